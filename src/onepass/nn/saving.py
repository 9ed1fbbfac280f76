"""Save and load a network's learner in one safetensors file, to the last bit.

The file is one of :mod:`onepass.serialization.archive`, of the kind ``network``::

    {"learner": "ORFit", "arguments": {…}, "names": […],
     "module": {"weights": {name: tensor}, "buffers": {name: tensor}},
     "learned": {…}}

Memories and their specifications are encoded by :mod:`onepass.serialization.codec`.

The module's code is not in the file, and nothing in it is run: a module made alike is handed to
:func:`load`, which compares names, shapes and dtypes, and writes nothing before all is read.

A tensor of any precision is stored as its bytes: ``{"@": "tensor", "dtype": "bfloat16", "of":
array}``.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from onepass.errors import CheckpointError, ParameterError, TypeMismatchError
from onepass.nn.selection import broken
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, Builder, Entry, Role, Taker

__all__ = [
    "KIND",
    "TensorBuilder",
    "TensorTaker",
    "as_array",
    "as_tensor",
    "load",
    "register",
    "save",
]


_Class = TypeVar("_Class", bound=type)
_BITS = {torch.bfloat16: torch.int16}  # NumPy knows no such numbers
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
           "bool")  # fmt: skip


class TensorTaker(Taker):
    """Takes what holds tensors apart."""

    def __init__(self, where: str, states: tuple[type, ...]) -> None:
        super().__init__(where)
        self.known |= dict(_own(states))

    def take(
        self, value: object, owner: Entry | None, path: tuple[str, ...], *, finite: bool
    ) -> Any:
        """Any part; a single number of a device is waited for."""
        if isinstance(value, torch.Tensor):
            return value.item() if value.ndim == 0 else as_array(value)
        return super().take(value, owner, path, finite=finite)


class TensorBuilder(Builder):
    """Builds what holds tensors, on a device."""

    def __init__(self, where: str, states: tuple[type, ...]) -> None:
        super().__init__(where, {})
        self.known |= {cls.__name__: entry for cls, entry in _own(states)}
        self.device: Any = "cpu"

    def give(
        self, value: object, owner: Entry | None, path: tuple[str, ...], *, finite: bool
    ) -> Any:
        """Any part; tensors on the device."""
        if self.mark(value, path) == "tensor":
            return as_tensor(value, self.where).to(self.device)
        return super().give(value, owner, path, finite=finite)


def _own(states: tuple[type, ...]) -> list[tuple[type, Entry]]:
    """States that stand in no list of op.memory, as if they did."""
    taken: Any = {cls: tuple(each.name for each in fields(cls) if each.init) for cls in states}
    return [(cls, Entry(cls, Role.MEMORY, arguments, None)) for cls, arguments in taken.items()]


def as_array(tensor: Tensor) -> dict[str, Any]:
    """A tensor as an array."""
    near = tensor.detach().cpu().contiguous()
    array = near.view(_BITS[near.dtype]).numpy() if near.dtype in _BITS else near.numpy()
    return {MARK: "tensor", "dtype": str(near.dtype).removeprefix("torch."), "of": array}


def as_tensor(said: Any, where: str) -> Tensor:
    """The tensor that an array stands for."""
    found = type(said) is dict and set(said) == {MARK, "dtype", "of"} and said["dtype"] in _DTYPES
    array = said["of"] if found else None
    dtype = getattr(torch, said["dtype"]) if found else None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise damaged(where, "a tensor in it is none")
    tensor = torch.from_numpy(array.copy(order="C"))
    if tensor.dtype != _BITS.get(dtype, dtype):
        raise damaged(where, f"a tensor in it is not of {said['dtype']}")
    return tensor.view(dtype)


KIND = "network"
"""The kind of such a file."""

_LATER = {"shape", "linear", "network.columns", "shared"}  # missing in files of former versions
_PARTS = {"learner": str, "arguments": dict, "names": list, "module": dict, "learned": dict}


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
    module, names = learner.module, learner.network.names
    _refuse_lost(dict(module.named_parameters()), _buffers(module), names, where)
    taker = TensorTaker(where, type(learner).states)
    arguments = {name: getattr(learner, name) for name in learner.arguments}
    learned = {_plain(name): _found(learner, name) for name in learner.kept}
    tree = {
        "learner": type(learner).__name__,
        "arguments": taker.take(arguments, None, ("arguments",), finite=False),
        "names": list(names),
        "module": {
            "weights": {name: as_array(each) for name, each in module.named_parameters()},
            "buffers": {name: as_array(each) for name, each in _buffers(module).items()},
        },
        "learned": taker.take(learned, None, ("learned",), finite=False),
    }
    archive.write(path, tree, kind=KIND)


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
    weights, buffers = _alike(tree["module"], module, where)
    cls = _LEARNERS.get(tree["learner"])
    if cls is None:
        raise damaged(where, f"it names {tree['learner'][:40]!r} as the learner")
    builder = TensorBuilder(where, cls.states)
    arguments = {**builder.give(tree["arguments"], None, ("arguments",), finite=False), **replaced}
    _refuse_lost(tree["module"]["weights"], tree["module"]["buffers"], tree["names"], where)
    with _whatever(module):
        learner = _made(cls, module, arguments, where)
    if list(learner.network.names) != tree["names"]:
        raise _unlike(where, "let the same weights learn", tree["names"], learner.network.names)
    keeping = getattr(learner, "memory_device", None)
    builder.device = keeping or learner.network.device
    learned = builder.give(tree["learned"], None, ("learned",), finite=False)
    known = {_plain(name) for name in learner.kept}
    learned = dict.fromkeys(_LATER & known) | learned
    if set(learned) != known:
        raise damaged(where, f"a {cls.__name__} keeps other things than it holds")
    _remember(learner, learned, where)
    with torch.no_grad():
        for each, value in (*weights, *buffers):
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
    good = type(tree) is dict and {name: type(part) for name, part in tree.items()} == _PARTS
    parts = tree["module"] if good else {}
    if set(parts) != {"weights", "buffers"} or not all(type(p) is dict for p in parts.values()):
        raise damaged(where, "it has other parts than a network's learner")
    return dict(tree)


def _alike(
    said: Mapping[str, Mapping[str, object]], module: torch.nn.Module, where: str
) -> tuple[Any, Any]:
    """Each weight and buffer of the module, and what is to be written into it."""
    if not isinstance(module, torch.nn.Module):
        raise CheckpointError(
            f"{where}: `module` must be a torch.nn.Module made like the one that was saved, got "
            f"{type(module).__name__}. Build it anew and hand it to op.nn.load."
        )
    mine = dict(module.named_parameters()), _buffers(module)
    pairs = []
    for kind, there in zip(("weights", "buffers"), mine, strict=True):
        saved = {name: as_tensor(each, where) for name, each in said[kind].items()}
        for name in [*saved, *there]:
            came, expected = (
                None if each is None else f"{str(each.dtype)[6:]} of shape {tuple(each.shape)}"
                for each in (there.get(name), saved.get(name))
            )
            if came != expected:
                raise _unlike(where, f"have {name!r} as", expected or "no such", came or "none")
        pairs.append([(there[name], value) for name, value in saved.items()])
    return pairs[0], pairs[1]


def _unlike(where: str, what: str, expected: object, came: object) -> CheckpointError:
    return CheckpointError(
        f"{where}: `module` must {what} {expected}, as the one that was saved, got {came}. "
        "Build it as it was built then, and hand it to op.nn.load."
    )


def _buffers(module: torch.nn.Module) -> dict[str, Tensor]:
    """The buffers that belong to a module's state."""
    lasting = module.state_dict(keep_vars=True)
    return {name: each for name, each in module.named_buffers() if name in lasting}


def _refuse_lost(
    weights: Mapping[str, Tensor | dict[str, object]],
    buffers: Mapping[str, Tensor | dict[str, object]],
    names: Sequence[str],
    where: str,
) -> None:
    """Refuse numbers of a module that are nan, or infinite and learn: no row can mend them."""
    for name, each in (*weights.items(), *buffers.items()):
        tensor = as_tensor(each, where) if isinstance(each, dict) else each.detach()
        learns = name in names and name in weights
        lost = int((~tensor.isfinite() if learns else tensor.isnan()).sum())
        if lost:
            raise CheckpointError(
                f"{where}: a module's numbers must not be nan, nor infinite where they learn, got "
                f"{lost} of {tensor.numel()} in {name!r}. Nothing can be learned or answered from "
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
        setattr(_found(learner, owner) if owner else learner, last, value)
    try:
        learner._tried()  # noqa: SLF001  it belongs to loading alone
    except Exception as wrong:  # whatever comes of numbers that do not belong together
        raise damaged(where, f"it has not learned what it says: {wrong}") from wrong


def _found(learner: object, name: str) -> Any:
    for part in name.split("."):
        learner = getattr(learner, part)
    return learner


def _plain(name: str) -> str:
    """An attribute's name, or a path to it, as a key of the file."""
    return ".".join(part.strip("_") for part in name.split("."))
