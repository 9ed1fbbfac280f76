"""Describing: what a file says of the learner in it, which is not built."""

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from onepass import checkpoint, sealed
from onepass.parts import MARK
from onepass.persist import LEARNER, NETWORK
from onepass.tree import damaged

__all__ = ["describe", "described"]

_COLUMNS = {"Number": "number", "Text": "text", "Hashed": "text", "Date": "date"}
_CERTIFIED = {"Components", "Directions"}  # memories that count what they let go
_PLAIN_PARTS = {"Subspace", "Columns", "Blocks", "tensor"}
_MOST_SHOWN = 20  # values of an array


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file says of the learner in it, which is not built.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    description : dict
        ``class``; ``parameters``, a dict, in which an object is again a dict of its ``class`` and
        its ``parameters``, a long array one of its ``dtype`` and ``shape``, a function its name,
        and what is not finite the text of it; ``functions``, the arguments that :func:`load` wants;
        ``rows_seen`` and ``features``, how many, or None before anything was learned; ``columns``,
        the kind of each that is known by name, None of one without a value so far; ``bytes``,
        ``format``, ``version`` and ``sha256`` of the file. All of it is fit for JSON.

    Raises
    ------
    CheckpointError
        If there is no such file, or if it is damaged, too new or holds no learner.
    """
    return described(checkpoint.contents(path), os.fspath(path))


def described(found: sealed.Contents, where: str) -> dict[str, Any]:
    """The same of a file's contents.

    Parameters
    ----------
    found : Contents
    where : str
        The file, for messages.
    """
    parts = list(_objects(found.tree))
    if found.kind == NETWORK:
        return {**_network(found.tree, where), **_file(found)}
    if found.kind != LEARNER or not parts or parts[0] is not found.tree:
        raise damaged(where, f"it holds no learner, but a {found.kind}")
    wanted = {key for part in parts for key, value in part.items() if _mark(value) == "function"}
    return {
        **_object(parts[0]),
        "functions": sorted(wanted),
        "rows_seen": _count(parts, "rows_seen_"),
        "features": _count(parts, "n_features_in_"),
        "columns": _columns(parts),
        **_bound(parts[0], "bound"),
        **_file(found),
    }


def _file(found: sealed.Contents) -> dict[str, Any]:
    """What is said of any file."""
    names = {"bytes": "nbytes", "format": "format", "version": "version", "sha256": "sha256"}
    return {name: getattr(found, attribute) for name, attribute in names.items()}


def _network(tree: Any, where: str) -> dict[str, Any]:
    """What a file says of the learner of a network; of its module, how many weights it has."""
    try:
        said, module = tree["learned"], tree["module"]
        weights = sum(int(each["of"].size) for each in module["weights"].values())
        arguments = {key: _told(value) for key, value in tree["arguments"].items()}
        return {
            "class": f"nn.{tree['learner']}",
            "parameters": arguments,
            "rows_seen": int(said["rows_seen"]),
            "weights": weights,
            "learning": [str(name) for name in tree["names"]],
            **_bound({"noise": arguments.get("noise", 0.0), **said}, "estimate"),
        }
    except (AttributeError, KeyError, TypeError, ValueError) as wrong:
        raise damaged(where, "it has other parts than a network's learner") from wrong


def _bound(said: dict[str, Any], kind: str) -> dict[str, Any]:
    """The certificate of forgetting, of a learner that has one."""
    forgotten = said.get("forgotten_", said.get("forgotten"))
    memory = said.get("memory_", said.get("memory"))
    parts = list(_objects(memory))
    if type(forgotten) is not float or not parts:
        return {}
    spaces = [part for part in parts if _mark(part) == "Subspace"]
    kept = [part for part in parts if _mark(part) in _CERTIFIED]
    others = {_mark(part) for part in parts} - {*_CERTIFIED, *_PLAIN_PARTS}
    projected = any(part.get("of") == "projected" for part in kept)
    if others or projected or said.get("noise") or math.isinf(forgotten):
        return {"forgetting_bound": {"kind": "none"}}
    lost = sum(_lost(space) for space in spaces)
    return {"forgetting_bound": {"kind": kind, "one_step": math.sqrt(lost), "all_steps": forgotten}}


def _lost(space: dict[str, Any]) -> float:
    """D of a subspace, as it stands in a file."""
    summed = np.asarray(space.get("open"), dtype=np.float64)
    if summed.ndim != 2 or summed.shape[0] != summed.shape[1] or not np.isfinite(summed).all():
        return math.nan
    largest = float(np.linalg.eigvalsh(summed)[-1]) if len(summed) else 0.0
    return float(space.get("closed", 0.0)) + max(largest, 0.0)


def _mark(said: Any) -> str | None:
    mark = said.get(MARK) if type(said) is dict else None
    return mark if type(mark) is str else None


def _objects(said: Any) -> Iterator[dict[str, Any]]:
    """The objects in a tree, each before those that are its parts."""
    if _mark(said) is not None:
        yield said
    if type(said) in {dict, list, tuple}:
        for part in said.values() if type(said) is dict else said:
            yield from _objects(part)


def _count(parts: list[dict[str, Any]], name: str) -> int | None:
    """The first whole number of this name: a pipeline's own, or else that of its first part."""
    return next((part[name] for part in parts if type(part.get(name)) is int), None)


def _columns(parts: list[dict[str, Any]]) -> dict[str, str | None]:
    """The columns that the first encoder knows, and their kinds."""
    known: dict[Any, Any] = next(
        (p["columns_"] for p in parts if type(p.get("columns_")) is dict), {}
    )
    return {str(name): _COLUMNS.get(_mark(column) or "") for name, column in known.items()}


def _told(said: Any) -> Any:
    """A parameter as JSON can say it."""
    mark = _mark(said)
    if mark == "dict":
        said = said.get("items")
    elif mark is not None:
        return str(said.get("name")) if mark == "function" else _object(said)
    if isinstance(said, (np.ndarray, np.datetime64)):
        return _listed(said)
    if type(said) in {list, tuple}:
        return [_told(part) for part in said]
    if type(said) is dict:
        return {key: _told(part) for key, part in said.items()}
    return repr(said) if type(said) is float and not math.isfinite(said) else said


def _object(said: dict[str, Any]) -> dict[str, Any]:
    """An object by its class and how it was made."""
    parameters = {key: _told(value) for key, value in _arguments(said).items()}
    return {"class": said[MARK], "parameters": parameters}


def _arguments(said: dict[str, Any]) -> dict[str, Any]:
    """What of an object was not learned."""
    return {key: part for key, part in said.items() if key != MARK and not key.endswith("_")}


def _listed(array: Any) -> Any:
    """A short array's values; of a long one the kind and the shape."""
    if max((array.size, *array.shape)) > _MOST_SHOWN:  # a shape (10⁹, 0) holds nothing, 10⁹ times
        return {"dtype": str(array.dtype), "shape": list(array.shape)}
    return _told((array.astype(str) if array.dtype.kind == "M" else array).tolist())
