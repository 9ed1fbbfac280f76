"""Save and load a network's learner in one safetensors file, to the last bit.

The file is one of :mod:`onepass.serialization.archive`, of the kind ``network``::

    {"learner": "ORFit", "arguments": {…}, "names": […],
     "module": {"weights": {name: tensor}, "buffers": {name: tensor}},
     "learned": {…}}

Memories and their specifications are encoded by :mod:`onepass.serialization.codec`.

The module's code is not in the file, and nothing in it is run: a module made alike is handed to
:func:`load`, which compares names, shapes and dtypes, and writes nothing before all is read.

A tensor of any precision is stored as its bytes: ``{"@": "tensor", "dtype": "bfloat16", "of":
array}``; files of networks and states of wrapped optimizers hold such.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from onepass.errors import CheckpointError, ParameterError, TypeMismatchError
from onepass.nn.selection import broken
from onepass.serialization import archive, former
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, from_state, register_value, state_dict

__all__ = ["KIND", "from_tensors", "load", "register", "save", "tensors_of"]


_Class = TypeVar("_Class", bound=type)
_TENSOR = "tensor"
_BITS = {torch.bfloat16: torch.int16}  # NumPy knows no such numbers
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
           "bool")  # fmt: skip


def _as_array(tensor: Tensor) -> dict[str, Any]:
    """A tensor as an array."""
    near = tensor.detach().cpu().contiguous()
    array = near.view(_BITS[near.dtype]).numpy() if near.dtype in _BITS else near.numpy()
    return {"dtype": str(near.dtype).removeprefix("torch."), "of": array}


def _tensor(dtype: str, of: Any, device: Any) -> Tensor:
    """The tensor that an array stands for, on a device."""
    if dtype not in _DTYPES or not isinstance(of, np.ndarray) or of.dtype.kind not in "fiub":
        raise ValueError(dtype)
    kind, tensor = getattr(torch, dtype), torch.from_numpy(of.copy(order="C"))
    if tensor.dtype != _BITS.get(kind, kind):
        raise ValueError(f"it is not of {dtype}")
    return tensor.view(kind).to(device or "cpu")


# a single number that a learner has on a device is waited for, and saved as one of Python's
register_value(_TENSOR, Tensor, lambda each: _as_array(each) if each.ndim else each.item(), _tensor)


def tensors_of(memory: object, where: str) -> dict[str, Any]:
    """A memory as plain values and new tensors on the CPU, for a ``state_dict`` of torch."""
    tree, arrays = archive.split(state_dict(memory, where), where)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    return {"tree": tree, "tensors": tensors}


def from_tensors(state: Any, device: torch.device, where: str) -> Any:
    """The memory that ``tensors_of``, or a former version, has encoded, on a device."""
    if not isinstance(state, Mapping) or set(state) != {"tree", "tensors"}:
        return from_state(former.memory(state, device), where)
    arrays = {name: each.cpu().numpy() for name, each in state["tensors"].items()}
    return from_state(archive.join(state["tree"], arrays, where), where, device=device)


KIND = "network"
"""The kind of such a file."""

_LATER = {"shape", "linear", "network.columns", "shared"}  # missing in files of former versions
_TYPES = {"learner": str, "arguments": dict, "names": list, "module": dict, "learned": dict}


_LEARNERS: dict[str, Any] = {}


def register(cls: _Class) -> _Class:
    """Let files name a learner of op.nn; a decorator of its class."""
    _LEARNERS[cls.__name__] = cls
    return cls


def save(learner: Any, path: str | os.PathLike[str]) -> None:
    """Save a learner and its module's weights and buffers.

    Parameters
    ----------
    learner : learner of op.nn
    path : path-like
        The file; one that is there is replaced, whole or not at all.

    Raises
    ------
    CheckpointError
        If its class is not one of op.nn, its module holds nan, or the file cannot be written.
    """
    where = os.fspath(path)
    if _LEARNERS.get(type(learner).__name__) is not type(learner):
        raise CheckpointError(
            f"{where}: what is saved must be a learner of op.nn, got {type(learner).__name__}. "
            "Save a class of your own with torch.save(module.state_dict(), ...)."
        )
    module, names = _parts(learner.module), list(learner.network.names)
    _refuse_lost(module, names, where)
    tree = {
        "learner": type(learner).__name__,
        "arguments": {name: getattr(learner, name) for name in learner.arguments},
        "names": names,
        "learned": {_plain(name): attrgetter(name)(learner) for name in learner.kept},
    }
    state = state_dict(tree, where)
    state["module"] = {
        kind: {name: {MARK: _TENSOR, **_as_array(each)} for name, each in part.items()}
        for kind, part in module.items()
    }
    archive.write(path, state, kind=KIND)


def load(path: str | os.PathLike[str], module: torch.nn.Module, **replaced: object) -> Any:
    """The learner that was saved, its weights and buffers written into a module made alike.

    Parameters
    ----------
    path : path-like
        A file that a learner's ``save`` wrote.
    module : torch.nn.Module
        With weights of the same names, shapes and dtypes, on any device. It learns in place.
    **replaced : object
        In place of what was saved: ``chunk``, ``memory_device``; no other argument.

    Returns
    -------
    learner : learner of op.nn

    Raises
    ------
    CheckpointError, ParameterError, TypeMismatchError
        If there is no such file, it is damaged, too new or of another kind, or the module is not
        alike: the first difference is named; or if another argument is given. All is as it was.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> import onepass as op
    >>> x, y = torch.eye(3), torch.tensor([1.0, 2.0, 3.0])
    >>> net = op.nn.ORFit(torch.nn.Linear(3, 1, bias=False), memory=2).learn(x, y)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     net.save(f"{directory}/net.onepass")
    ...     again = op.nn.load(f"{directory}/net.onepass", torch.nn.Linear(3, 1, bias=False))
    >>> float((again.predict(x) - net.predict(x)).abs().max())
    0.0
    """
    if isinstance(path, torch.nn.Module):
        raise TypeMismatchError(
            f"op.nn.load: `path` must be that of a file, got the module {type(path).__name__}. "
            "The file comes first: op.nn.load(path, module)."
        )
    where = os.fspath(path)
    _refuse_others(replaced)
    tree = _tree(path, where)
    pairs = _alike(tree["module"], module, where)
    _refuse_lost(tree["module"], tree["names"], where)
    cls = _LEARNERS.get(tree["learner"])
    if cls is None:
        raise damaged(where, f"it names {tree['learner'][:40]!r} as the learner")
    arguments = {**from_state(tree["arguments"], where), **replaced}
    with _whatever(module):
        learner = _made(cls, module, arguments, where)
    if list(learner.network.names) != tree["names"]:
        raise _unlike(where, "let the same weights learn", tree["names"], learner.network.names)
    device = getattr(learner, "memory_device", None) or learner.network.device
    learned = from_state(tree["learned"], where, device=device)
    known = {_plain(name) for name in learner.kept}
    learned = dict.fromkeys(_LATER & known) | learned
    if set(learned) != known:
        raise damaged(where, f"a {cls.__name__} keeps other things than it holds")
    _remember(learner, learned, where)
    with torch.no_grad():
        for each, value in pairs:
            each.copy_(value)
    return learner


# -- modules and learners --------------------------------------------------------------------------


def _tree(path: str | os.PathLike[str], where: str) -> dict[str, Any]:
    """What the file holds; its parts are there."""
    found = archive.contents(path)
    if found.kind != KIND:
        raise CheckpointError(
            f"{where}: must hold a network's learner, got a {found.kind}. "
            "Use op.load for what op.save wrote."
        )
    tree = found.tree
    good = type(tree) is dict and {name: type(part) for name, part in tree.items()} == _TYPES
    module = from_state(tree["module"], where) if good else {}
    whole = type(module) is dict and set(module) == {"weights", "buffers"}
    parts = list(module.values()) if whole else [None]
    if not all(type(p) is dict and all(isinstance(t, Tensor) for t in p.values()) for p in parts):
        raise damaged(where, "it has other parts than a network's learner")
    return {**tree, "module": module}


def _alike(saved: Any, module: torch.nn.Module, where: str) -> list[tuple[Tensor, Tensor]]:
    """Each weight and buffer of the module, and what is to be written into it."""
    if not isinstance(module, torch.nn.Module):
        raise CheckpointError(
            f"{where}: `module` must be a torch.nn.Module made like the one that was saved, got "
            f"{type(module).__name__}. Build it anew and hand it to op.nn.load."
        )
    pairs = []
    for kind, there in _parts(module).items():
        for name in [*saved[kind], *there]:
            came, expected = _form(there, name), _form(saved[kind], name)
            if came != expected:
                raise _unlike(where, f"have {name!r} as", expected, came)
        pairs += [(there[name], value) for name, value in saved[kind].items()]
    return pairs


def _form(tensors: Mapping[str, Tensor], name: str) -> str:
    """A tensor's dtype and shape."""
    if name not in tensors:
        return "no such"
    each = tensors[name]
    return f"{str(each.dtype)[6:]} of shape {tuple(each.shape)}"


def _unlike(where: str, what: str, expected: object, came: object) -> CheckpointError:
    return CheckpointError(
        f"{where}: `module` must {what} {expected}, as the one that was saved, got {came}. "
        "Build it as it was built then, and hand it to op.nn.load."
    )


def _parts(module: torch.nn.Module) -> dict[str, dict[str, Tensor]]:
    """The weights of a module, and the buffers that belong to its state."""
    lasting = module.state_dict(keep_vars=True)
    buffers = {name: each for name, each in module.named_buffers() if name in lasting}
    return {"weights": dict(module.named_parameters()), "buffers": buffers}


def _refuse_lost(
    module: Mapping[str, Mapping[str, Tensor]], names: Sequence[str], where: str
) -> None:
    """Refuse numbers of a module that are nan, or infinite and learn: no row can mend them."""
    for name, each in (*module["weights"].items(), *module["buffers"].items()):
        learns = name in names and name in module["weights"]
        lost = int((~each.isfinite() if learns else each.isnan()).sum())
        if lost:
            raise CheckpointError(
                f"{where}: a module's numbers must not be nan, nor infinite where they learn, got "
                f"{lost} of {each.numel()} in {name!r}. Nothing can be learned or answered from "
                "there: go back to the last file, or write numbers into them."
            )


@contextmanager
def _whatever(module: torch.nn.Module) -> Iterator[None]:
    """Let a module be wrapped that is yet to be written: the numbers of a new one may be nan."""
    lost = [each for each in module.parameters() if broken([("", each)]) is not None]
    kept = [each.detach().clone() for each in lost]
    with torch.no_grad():
        for each in lost:
            each.zero_()
        try:
            yield
        finally:
            for each, was in zip(lost, kept, strict=True):
                each.copy_(was)


def _refuse_others(replaced: Mapping[str, object]) -> None:
    """Refuse arguments by which what was learned would be another's."""
    for name in replaced.keys() - {"chunk", "memory_device"}:
        raise ParameterError(
            f"op.nn.load: only `chunk` and `memory_device` may be replaced, got {name!r}. Make a "
            "new learner to learn with other arguments."
        )


def _made(cls: type, module: torch.nn.Module, arguments: Mapping[str, object], where: str) -> Any:
    """The learner that has learned nothing yet."""
    try:
        return cls(module, **arguments)
    except Exception as wrong:  # whatever a class makes of arguments that nobody checked
        raise CheckpointError(
            f"{where}: must hold arguments that op.nn.{cls.__name__} takes for this module, got "
            f"some that it refuses: {wrong}"
        ) from wrong


def _remember(learner: Any, learned: Mapping[str, object], where: str) -> None:
    """Let a learner remember what it has learned; what is no memory lies beside the weights."""
    for name in learner.kept:
        owner, _, last = name.rpartition(".")
        value = learned[_plain(name)]
        value = value.to(learner.network.device) if isinstance(value, torch.Tensor) else value
        setattr(attrgetter(owner)(learner) if owner else learner, last, value)
    try:
        learner._tried()  # noqa: SLF001  it belongs to loading alone
    except Exception as wrong:  # whatever comes of numbers that do not belong together
        raise damaged(where, f"it has not learned what it says: {wrong}") from wrong


def _plain(name: str) -> str:
    """An attribute's name, or a path to it, as a key of the file."""
    return ".".join(part.strip("_") for part in name.split("."))
