"""Saving and loading of learners, pipelines, transformers and memories, exactly, without pickle.

The file format is defined in :mod:`onepass.serialization.archive`;
:mod:`onepass.serialization.codec` encodes objects and has the registry of classes that a file may
contain. A loaded learner is bit for bit equivalent to the saved one. :func:`describe` reads a file
without creating its learner.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onepass.errors import CheckpointError
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, Encoder, Role, class_registry, from_state, state_dict
from onepass.types import Array, Estimator

LEARNER, NETWORK = "learner", "network"
"""Kinds of files: of this module, and of :mod:`onepass.nn.saving`."""


def save(learner: Any, path: str | os.PathLike[str]) -> None:
    """Save a learner, pipeline, transformer or memory to one file.

    The file is a safetensors file, written atomically: see :mod:`onepass.serialization.archive`.
    Arguments that are functions, such as ``feature_map``, and the network of a transformer are not
    saved: the file contains only their names, and they must be passed to :func:`load`. A learner of
    a network is saved by its ``save`` method, without the code of the module; load it with
    ``op.nn.load(path, module)``.

    Parameters
    ----------
    learner : learner, Pipeline, transformer or memory
        An object of a class of onepass, fitted or not.
    path : path-like
        The file; an existing file is replaced.

    Raises
    ------
    CheckpointError
        If ``learner`` is or contains an object that cannot be stored, or the file cannot be
        written; an existing file remains unchanged.

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
    if getattr(type(learner), "_saves_itself", False) is True:  # checked without importing torch
        learner.save(path)
    else:
        archive.write(path, _state(learner, os.fspath(path)), kind=LEARNER)


def load(path: str | os.PathLike[str], **replacements: object) -> Estimator:
    """Load a learner, pipeline, transformer or memory that :func:`save` has written, exactly.

    Loading runs no code from the file, and the file can contain only classes of onepass. Loading an
    untrusted file is therefore safe, but its predictions may be wrong.

    Parameters
    ----------
    path : path-like
        The file.
    **replacements : callable or network
        The arguments that were not stored, by name: functions, and the network of a transformer
        (``module=``) or the path of its file (``model=``). A name such as ``feature_map`` applies
        to all arguments of this name, a path such as ``"learner_.feature_map"`` to one argument.

    Returns
    -------
    learner : learner, Pipeline, transformer or memory

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of a newer format or of another kind, a replacement is
        missing or unused, or a network differs from the original.
    """
    loaded: Estimator = from_contents(archive.contents(path), os.fspath(path), replacements)
    return loaded


def dumps(learner: object, where: str) -> bytes:
    """Serialise a learner, except networks, to the bytes that :func:`save` writes.

    Parameters
    ----------
    learner : learner, Pipeline, transformer or memory
    where : str
        The destination, for messages.

    Raises
    ------
    CheckpointError
        If ``learner`` is or contains an object that cannot be stored.
    """
    return archive.dumps(_state(learner, where), where, kind=LEARNER)


def _state(learner: object, where: str) -> Any:
    """Encode a learner as a tree."""
    if not _is_model(learner):
        raise Encoder(where).class_error(learner, ())
    return state_dict(learner, where)


def _is_model(thing: object) -> bool:
    """Return whether ``save`` accepts an object, unlike metrics and states of evaluations."""
    entry = class_registry().get(type(thing).__name__)
    return entry is not None and entry.cls is type(thing) and Role.METRIC < entry.role < Role.RUN


def from_contents(file: archive.Contents, where: str, replacements: Mapping[str, object]) -> Any:
    """Decode a learner from the contents of a file.

    Parameters
    ----------
    file : Contents
    where : str
        The file, for messages.
    replacements : dict of str to Any
        As in :func:`load`.

    Raises
    ------
    CheckpointError
        As in :func:`load`.
    """
    if file.kind == NETWORK:
        raise CheckpointError(
            "must contain a complete learner, got a learner of a network, whose module "
            "cannot be stored. Use op.nn.load(path, module).",
            where,
        )
    if file.kind != LEARNER:
        raise CheckpointError(
            f"must contain a {LEARNER}, got a {file.kind}. Choose another file.", where
        )
    learner = from_state(file.tree, where, replacements)
    if not _is_model(learner):
        raise damaged(where, "it does not contain a learner")
    return learner


_COLUMNS = {"Number": "number", "Text": "text", "Hashed": "text", "Date": "date"}
_CERTIFIED = {"PrincipalState", "Directions"}  # memories with a bound on the discarded energy
_PLAIN_PARTS = {"Subspace", "OrthonormalBasis", "Blocks", "tensor"}
_MAX_SHOWN = 20  # longest array of which all values are shown


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe the learner in a file without creating it.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    description : dict
        JSON values. ``class``; ``parameters``, a dict in which an object is a dict of ``class`` and
        ``parameters``, a long array a dict of ``dtype`` and ``shape``, a function its name, and a
        non-finite number text; ``functions``, the arguments that :func:`load` requires;
        ``rows_seen`` and ``features``, counts, or None before fitting; ``columns``, the types of
        named columns, None for columns without a value so far; ``keys``, their number, only for a
        learner with one model per key; ``bytes``, ``format``, ``version``
        and ``sha256`` of the file.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of a newer format or of another kind.
    """
    return describe_contents(archive.contents(path), os.fspath(path))


def describe_contents(file: archive.Contents, where: str) -> dict[str, Any]:
    """Describe the learner in the contents of a file, like :func:`describe`.

    Parameters
    ----------
    file : Contents
    where : str
        The file, for messages.
    """
    parts = list(_objects(file.tree))
    metadata = {
        "bytes": file.nbytes, "format": file.format, "version": file.version, "sha256": file.sha256,
    }  # fmt: skip
    if file.kind == NETWORK:
        return {**_network(file.tree, where), **metadata}
    if file.kind != LEARNER or not parts or parts[0] is not file.tree:
        raise damaged(where, "it does not contain a learner")
    functions = {key for part in parts for key, value in part.items() if _mark(value) == "function"}
    return {
        **_object(parts[0]),
        "functions": sorted(functions),
        "rows_seen": _count(parts, "rows_seen_"),
        "features": _count(parts, "n_features_in_"),
        "columns": _columns(parts),
        **_keys(parts[0]),
        **_bound(parts[0], "bound"),
        **metadata,
    }


def _network(tree: Any, where: str) -> dict[str, Any]:
    """Describe a learner of a network, and the number of weights of its module."""
    try:
        state, module = tree["learned"], tree["module"]
        weights = sum(int(weight["of"].size) for weight in module["weights"].values())
        arguments = {key: _shown(value) for key, value in tree["arguments"].items()}
        return {
            "class": f"nn.{tree['learner']}",
            "parameters": arguments,
            "rows_seen": int(state["rows_seen"]),
            "weights": weights,
            "learning": [str(name) for name in tree["names"]],
            **_bound({"noise": arguments.get("noise", 0.0), **state}, "estimate"),
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(where, "it is not a valid learner of a network") from error


def _bound(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the bound on forgetting, if the learner has one."""
    forgotten = state.get("forgotten_", state.get("forgotten"))
    memory = state.get("memory_", state.get("memory"))
    parts = list(_objects(memory))
    if type(forgotten) is not float or not parts:
        return {}
    spaces = [part for part in parts if _mark(part) == "Subspace"]
    certified = [part for part in parts if _mark(part) in _CERTIFIED]
    others = {_mark(part) for part in parts} - {*_CERTIFIED, *_PLAIN_PARTS}
    projected = any(part.get("of") == "projected" for part in certified)
    if others or projected or state.get("noise") or math.isinf(forgotten):
        return {"forgetting_bound": {"kind": "none"}}
    total = sum(_discarded(space) for space in spaces)
    one_step = math.sqrt(total)
    return {"forgetting_bound": {"kind": kind, "one_step": one_step, "all_steps": forgotten}}


def _discarded(space: dict[str, Any]) -> float:
    """Return D of an encoded subspace, the bound on the discarded energy."""
    summed = np.asarray(space.get("open"), dtype=np.float64)
    if summed.ndim != 2 or summed.shape[0] != summed.shape[1] or not np.isfinite(summed).all():
        return math.nan
    largest = float(np.linalg.eigvalsh(summed)[-1]) if len(summed) else 0.0
    return float(space.get("closed", 0.0)) + max(largest, 0.0)


def _mark(value: object) -> str | None:
    """Return the mark of an encoded object; None for any other value."""
    mark = value.get(MARK) if type(value) is dict else None
    return mark if type(mark) is str else None


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the encoded objects in a tree, parents before children."""
    if _mark(tree) is not None:
        yield tree
    if type(tree) in {dict, list, tuple}:
        for part in tree.values() if type(tree) is dict else tree:
            yield from _objects(part)


def _count(parts: list[dict[str, Any]], name: str) -> int | None:
    """Return the first integer attribute of this name in a pipeline or its parts."""
    return next((part[name] for part in parts if type(part.get(name)) is int), None)


def _columns(parts: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the columns of the first encoder with their types."""
    columns: dict[Any, Any] = next(
        (p["columns_"] for p in parts if type(p.get("columns_")) is dict), {}
    )
    return {str(name): _COLUMNS.get(_mark(column) or "") for name, column in columns.items()}


def _keys(state: dict[str, object]) -> dict[str, int]:
    """Return the number of keys of a learner with one model per key."""
    stored: Any = state.get("states_")
    packed = stored.get("packed") if type(stored) is dict else None
    return {"keys": packed.size} if isinstance(packed, np.ndarray) else {}


def _shown(value: Any) -> Any:
    """Convert a parameter to a JSON value."""
    mark = _mark(value)
    if mark == "dict":
        value = value.get("items")
    elif mark is not None:
        return str(value.get("name")) if mark == "function" else _object(value)
    if isinstance(value, (np.ndarray, np.datetime64)):
        return _listed(value)
    if type(value) in {list, tuple}:
        return [_shown(part) for part in value]
    if type(value) is dict:
        return {key: _shown(part) for key, part in value.items()}
    return repr(value) if type(value) is float and not math.isfinite(value) else value


def _object(state: dict[str, object]) -> dict[str, Any]:
    """Return the class and the parameters of an encoded object."""
    arguments = (key for key in state if key != MARK and not key.endswith("_"))
    return {"class": state[MARK], "parameters": {key: _shown(state[key]) for key in arguments}}


def _listed(array: Array | np.datetime64) -> Any:
    """Return the values of a short array; the dtype and shape of a long one."""
    if max((array.size, *array.shape)) > _MAX_SHOWN:  # shape too: (10⁹, 0) would be 10⁹ lists
        return {"dtype": str(array.dtype), "shape": list(array.shape)}
    return _shown((array.astype(str) if array.dtype.kind == "M" else array).tolist())
