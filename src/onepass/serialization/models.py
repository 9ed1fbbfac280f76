"""Save and load any learner, pipeline, transformer or memory, exactly and without pickle.

The file is an archive of :mod:`onepass.serialization.archive`; :mod:`onepass.serialization.codec`
encodes objects and lists the classes that a file may name. A loaded learner predicts and learns the
same as the saved one, to the last bit. A file can be described without building its learner.
"""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onepass.errors import CheckpointError
from onepass.serialization import archive, former
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, Encoder, Role, class_registry, from_state, state_dict
from onepass.types import Array

__all__ = [
    "LEARNER",
    "NETWORK",
    "describe",
    "describe_contents",
    "dumps",
    "from_contents",
    "load",
    "save",
]


LEARNER, NETWORK = "learner", "network"
"""What files hold; the second is of :mod:`onepass.nn.saving`."""


def save(learner: Any, path: str | os.PathLike[str]) -> None:
    """Save a learner, pipeline, feature or memory to one file.

    It is a safetensors file, written whole or not at all: see :mod:`onepass.serialization.archive`.
    Arguments that are functions, such as ``feature_map``, or the network of a feature, cannot be
    saved: the file notes their names, and :func:`load` wants them back. The learner of a network is
    saved as by its own ``save``, without the module's code: ``op.nn.load(path, module)`` gives it
    back.

    Parameters
    ----------
    learner : learner, Pipeline, feature or memory
        Of a class of onepass; it need not have learned anything.
    path : path-like
        The file; one that is there is replaced.

    Raises
    ------
    CheckpointError
        If it is, or holds, something that no file can hold, or if the file cannot be written.
        What was at ``path`` is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import onepass as op
    >>> model = op.RLSRegressor().partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save(model, f"{directory}/m.onepass")
    ...     again = load(f"{directory}/m.onepass")
    >>> float(abs(again.predict(np.eye(3)) - model.predict(np.eye(3))).max())
    0.0
    """
    if getattr(type(learner), "saves_itself", False) is True:  # torch is not imported to know it
        learner.save(path)
    else:
        archive.write(path, _state(learner, os.fspath(path)), kind=LEARNER)


def load(path: str | os.PathLike[str], **replacements: object) -> Any:
    """What :func:`save` saved, as it was, to the last bit.

    Nothing in a file is run, and it can name only onepass's own classes; so it is safe to load a
    stranger's file, though not to believe what its learner says.

    Parameters
    ----------
    path : path-like
        The file.
    **replacements : callable or network
        For each argument that was a function, by the argument's name, that function; for a feature
        that asks a network, that network (``module=``) or where its file lies now (``model=``). A
        name stands for every argument of that name; a place such as ``"learner_.feature_map"`` for
        one.

    Returns
    -------
    learner : learner, Pipeline, feature or memory

    Raises
    ------
    CheckpointError
        If there is no such file, if it is damaged, too new or holds no learner, if a replacement
        is missing or stands for nothing, or if a network is another than it was.
    """
    return from_contents(archive.contents(path), os.fspath(path), replacements)


def dumps(learner: object, where: str) -> bytes:
    """What :func:`save` would write, but for networks.

    Parameters
    ----------
    learner : learner, Pipeline, feature or memory
    where : str
        Where the bytes will stand, for messages.

    Raises
    ------
    CheckpointError
        If it is, or holds, something that no file can hold.
    """
    return archive.dumps(_state(learner, where), where, kind=LEARNER)


def _state(learner: object, where: str) -> Any:
    """An object of a registered class as a tree."""
    if not _is_model(learner):
        raise Encoder(where).unknown(learner, ())
    return state_dict(learner, where)


def _is_model(thing: object) -> bool:
    """Whether an object is one that ``save`` takes: parts of evaluations alone are not."""
    entry = class_registry().get(type(thing).__name__)
    return entry is not None and entry.cls is type(thing) and Role.METRIC < entry.role < Role.RUN


def from_contents(found: archive.Contents, where: str, replacements: Mapping[str, object]) -> Any:
    """What was saved, out of what a file holds.

    Parameters
    ----------
    found : Contents
    where : str
        The file, for messages.
    replacements : dict of str to Any
        As for :func:`load`.

    Raises
    ------
    CheckpointError
        As :func:`load`.
    """
    if found.kind == NETWORK:
        raise CheckpointError(
            f"{where}: must hold a learner with its weights, got that of a network, whose module "
            "no file can hold. Use op.nn.load(path, module)."
        )
    if found.kind != LEARNER:
        raise CheckpointError(
            f"{where}: must hold a {LEARNER}, got a {found.kind}. Choose another file."
        )
    learner = from_state(found.tree, where, replacements)
    if not _is_model(learner):
        raise damaged(where, "it holds no learner")
    return learner


_COLUMNS = {"Number": "number", "Text": "text", "Hashed": "text", "Date": "date"}
_CERTIFIED = {"PrincipalState", "Directions"}  # memories that count what they let go
_PLAIN_PARTS = {"Subspace", "OrthonormalBasis", "Blocks", "tensor"}
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
    return describe_contents(archive.contents(path), os.fspath(path))


def describe_contents(found: archive.Contents, where: str) -> dict[str, Any]:
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


def _file(found: archive.Contents) -> dict[str, Any]:
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


def _mark(said: object) -> str | None:
    mark = said.get(MARK) if type(said) is dict else None
    return former.CLASSES.get(mark, mark) if type(mark) is str else None


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


def _object(said: dict[str, object]) -> dict[str, Any]:
    """An object by its class and how it was made."""
    parameters = {key: _told(value) for key, value in _arguments(said).items()}
    return {"class": said[MARK], "parameters": parameters}


def _arguments(said: dict[str, object]) -> dict[str, Any]:
    """What of an object was not learned."""
    return {key: part for key, part in said.items() if key != MARK and not key.endswith("_")}


def _listed(array: Array | np.datetime64) -> Any:
    """A short array's values; of a long one the kind and the shape."""
    if max((array.size, *array.shape)) > _MOST_SHOWN:  # a shape (10⁹, 0) holds nothing, 10⁹ times
        return {"dtype": str(array.dtype), "shape": list(array.shape)}
    return _told((array.astype(str) if array.dtype.kind == "M" else array).tolist())
