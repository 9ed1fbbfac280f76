"""Save and load a network learner in one safetensors file, bit for bit.

The file is one of :mod:`onepass.serialization.archive`, of the kind ``network``::

    {"learner": "ORFit", "arguments": {…}, "names": […],
     "module": {"weights": {name: tensor}, "buffers": {name: tensor}},
     "learned": {…}, "outputs": [tensor]}

Memories and their specifications are encoded by :mod:`onepass.serialization.codec`.

The file contains no code. :func:`load` takes a module of the same architecture, compares names,
shapes, dtypes and the outputs for a fixed row of noise (:mod:`onepass.nn.example`), and changes
nothing in it if they differ.

Tensors, also in states of wrapped optimizers, are stored by their bytes:
``{"@": "tensor", "dtype": "bfloat16", "of": array}``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from onepass.errors import CheckpointError
from onepass.nn import parts
from onepass.nn.example import computes, example_outputs
from onepass.nn.selection import find_nonfinite
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, from_state, register_value, state_dict

_Class = TypeVar("_Class", bound=type)
_TENSOR = "tensor"
_BITS = {torch.bfloat16: torch.int16}  # not supported by NumPy
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
           "bool")  # fmt: skip


def _as_array(tensor: Tensor) -> dict[str, Any]:
    """Encode a tensor as an array."""
    whole = tensor.detach()
    whole = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
    near = whole.cpu().contiguous()
    array = near.view(_BITS[near.dtype]).numpy() if near.dtype in _BITS else near.numpy()
    return {"dtype": str(near.dtype).removeprefix("torch."), "of": array}


def _tensor(dtype: str, of: Any, device: Any) -> Tensor:
    """Decode a tensor onto a device."""
    if dtype not in _DTYPES or not isinstance(of, np.ndarray) or of.dtype.kind not in "fiub":
        raise ValueError(dtype)
    kind, tensor = getattr(torch, dtype), torch.from_numpy(of.copy(order="C"))
    if tensor.dtype != _BITS.get(kind, kind):
        raise ValueError(f"dtype of the array is not {dtype}")
    return tensor.view(kind).to(device or "cpu")


# tensors without axes are saved as Python numbers
register_value(_TENSOR, Tensor, lambda each: _as_array(each) if each.ndim else each.item(), _tensor)


def tensors_of(memory: object, where: str) -> dict[str, Any]:
    """Encode a memory as plain values and new CPU tensors, for a torch ``state_dict``."""
    tree, arrays = archive.split(state_dict(memory, where), where)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    return {"tree": tree, "tensors": tensors}


def from_tensors(state: Any, device: torch.device, where: str) -> Any:
    """Decode a memory encoded by ``tensors_of``, onto a device."""
    if not isinstance(state, Mapping) or set(state) != {"tree", "tensors"}:
        raise damaged(where, "it does not contain a memory")
    arrays = {name: each.cpu().numpy() for name, each in state["tensors"].items()}
    return from_state(archive.join(state["tree"], arrays, where), where, device=device)


KIND = "network"
"""Kind of the archive."""

_TYPES = {"learner": str, "arguments": dict, "names": list, "module": dict, "learned": dict,
          "outputs": list}  # fmt: skip


_LEARNERS: dict[str, Any] = {}


def register(cls: _Class) -> _Class:
    """Register a learner of op.nn for :func:`load`; a decorator."""
    _LEARNERS[cls.__name__] = cls
    return cls


def arguments_of(cls: type) -> dict[str, Any]:
    """Return the constructor arguments that a file stores, with their defaults."""
    parameters = inspect.signature(cls).parameters
    return {n: each.default for n, each in parameters.items() if n not in {"module", "group"}}


def state_attributes(learner: Any) -> tuple[str, ...]:
    """Return the attributes, as dotted paths, with learned state other than the weights."""
    names: tuple[str, ...] = learner._state_attributes  # noqa: SLF001  of this package
    return names


def save(learner: Any, path: str | os.PathLike[str]) -> None:
    """Save a learner and its module's weights and buffers.

    Parameters
    ----------
    learner : learner of op.nn
    path : path-like
        An existing file is replaced atomically. For weights that are split over processes, a
        directory, in which each process writes one file (:mod:`onepass.nn.parts`).

    Raises
    ------
    CheckpointError
        If the class of the learner is not one of op.nn, the module contains nan, or the file cannot
        be written.
    """
    where = os.fspath(path)
    if _LEARNERS.get(type(learner).__name__) is not type(learner):
        raise CheckpointError(
            f"the object to save must be a learner of op.nn, got {type(learner).__name__}. Save "
            "custom classes with torch.save(module.state_dict(), ...).",
            where,
        )
    split = getattr(learner, "_split", None)
    if split is not None:
        parts.write(path, lambda: _encoded(learner, where, split), split)
    else:
        archive.write(path, _encoded(learner, where)[0], kind=KIND)


def _encoded(learner: Any, where: str, split: Any = None) -> tuple[dict[str, Any], Any]:
    """Encode a learner; return split weights separately."""
    module, names = _parts(learner.module), list(learner.network.names)
    _check_no_nan(module, names, where)
    weights = None
    if split is not None:
        weights = _as_array(split.part(learner.network.weights()))["of"]
        for name in names:
            each = module["weights"][name]
            module["weights"][name] = torch.empty(0, *each.shape, dtype=each.dtype)
    tree = {
        "learner": type(learner).__name__,
        "arguments": {name: getattr(learner, name) for name in arguments_of(type(learner))},
        "names": names,
        "learned": {_plain(name): attrgetter(name)(learner) for name in state_attributes(learner)},
    }
    found = None if split is not None else example_outputs(learner.network, learner._example)  # noqa: SLF001  of a class of this package
    tree["outputs"] = [] if found is None else [found]
    state = state_dict(tree, where)
    state["module"] = {
        kind: {name: {MARK: _TENSOR, **_as_array(each)} for name, each in part.items()}
        for kind, part in module.items()
    }
    return state, weights


def load(
    path: str | os.PathLike[str],
    module: torch.nn.Module,
    *,
    group: Any = None,
    memory_device: str | int | torch.device | None = None,
) -> Any:
    """Load a learner, and write its weights and buffers into a module.

    Parameters
    ----------
    path : path-like
        File or directory written by a learner's ``save``.
    module : torch.nn.Module
        Module with weights of the same names, shapes and dtypes, on any device. Updated in place.
    group : torch.distributed.ProcessGroup, optional
        Processes over which to split the memory; their number may differ from that of ``save``.
    memory_device : str, int or torch.device, optional
        Device of the memory of an ``op.nn.ORFit``, instead of the stored one.

    Returns
    -------
    learner : learner of op.nn

    Raises
    ------
    CheckpointError, ParameterError, TypeMismatchError
        If the file does not exist, is damaged, too new or of another kind, if the module does not
        match. The module is not changed.

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
    where = os.fspath(path)
    saved = parts.Parts(path) if Path(path).is_dir() else None
    tree = _tree(path, where) if saved is None else _checked(saved.state(), where)
    pairs = _matched_pairs(tree["module"], module, where)
    _check_no_nan(tree["module"], tree["names"], where)
    cls = _LEARNERS.get(tree["learner"])
    if cls is None:
        raise damaged(where, f"unknown learner {tree['learner'][:40]!r}")
    replaced = {"memory_device": memory_device, "group": group}
    arguments = from_state(tree["arguments"], where)
    arguments |= {name: value for name, value in replaced.items() if value is not None}
    with _finite_parameters(module):
        learner = _new_learner(cls, module, arguments, where)
    if list(learner.network.names) != tree["names"]:
        raise _module_mismatch(where, "train the weights", tree["names"], learner.network.names)
    _fill_columns(tree["learned"], saved, learner, where)
    device = getattr(learner, "memory_device", None) or learner.network.device
    learned = from_state(tree["learned"], where, device=device)
    if set(learned) != {_plain(name) for name in state_attributes(learner)}:
        raise damaged(where, f"the state does not match {cls.__name__}")
    _restore_state(learner, learned, where)
    before = [each.detach().clone() for each, _ in pairs] if tree["outputs"] else []
    with torch.no_grad():
        for each, value in pairs:
            _write(each, value)
    for expected in from_state(tree["outputs"], where):
        if not computes(learner.network, learner._example, expected):  # noqa: SLF001  of a class of this package
            with torch.no_grad():
                for (each, _), value in zip(pairs, before, strict=True):
                    each.copy_(value)
            raise CheckpointError(
                "`module` must compute the function of the saved module, got other outputs for a "
                "fixed row, such as by another activation or constant. Create a module of the same "
                "code and pass it to op.nn.load.",
                where,
            )
    return learner


# -- modules and learners --------------------------------------------------------------------------


def _tree(path: str | os.PathLike[str], where: str) -> dict[str, Any]:
    """Read the file and check its structure."""
    found = archive.contents(path)
    if found.kind != KIND:
        raise CheckpointError(
            f"must contain a network learner, got a {found.kind}. Use op.load for files "
            "of op.save.",
            where,
        )
    return _checked(found.tree, where)


def _checked(tree: Any, where: str) -> dict[str, Any]:
    """Check the structure of an encoded learner, and decode its module."""
    good = type(tree) is dict and {name: type(part) for name, part in tree.items()} == _TYPES
    module = from_state(tree["module"], where) if good else {}
    whole = type(module) is dict and set(module) == {"weights", "buffers"}
    kinds = list(module.values()) if whole else [None]
    if not all(type(k) is dict and all(isinstance(t, Tensor) for t in k.values()) for k in kinds):
        raise damaged(where, "the entries are not those of a network learner")
    return {**tree, "module": module}


def _fill_columns(learned: Any, saved: parts.Parts | None, learner: Any, where: str) -> None:
    """Read the columns of the weights of this process into an encoded state."""
    split = getattr(learner, "_split", None)
    wanted = split.slices if split else [(0, learner.network.p)]
    try:
        arrays = saved.read("columns", wanted) if saved else []
        for i, node in enumerate(parts.columns(learned)):
            if saved:
                node["of"] = arrays[i]
            elif split:  # a file of one process
                node["of"] = np.concatenate([node["of"][..., a:b] for a, b in wanted], axis=-1)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise damaged(where, f"the memory does not match: {error}") from error


def _write(tensor: Any, value: Tensor) -> None:
    """Write a value into a weight or buffer, which may be a distributed tensor."""
    if hasattr(tensor, "to_local"):
        from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415  not in all builds

        value = distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


def _matched_pairs(saved: Any, module: torch.nn.Module, where: str) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of each weight or buffer of the module and its saved value."""
    pairs = []
    for kind, there in _parts(module).items():
        for name in [*saved[kind], *there]:
            found, expected = _form(there, name), _form(saved[kind], name)
            if found != expected:
                raise _module_mismatch(where, f"have {name!r} as", expected, found)
        pairs += [(there[name], value) for name, value in saved[kind].items()]
    return pairs


def _form(tensors: Mapping[str, Tensor], name: str) -> str:
    """Return the dtype and shape of a tensor as text."""
    if name not in tensors:
        return "no such"
    each = tensors[name]
    return f"{str(each.dtype)[6:]} of shape {tuple(each.shape)}"


def _module_mismatch(where: str, what: str, expected: object, found: object) -> CheckpointError:
    return CheckpointError(
        f"`module` must {what} {expected}, as the saved module, got {found}. Create a "
        "module of the same architecture and pass it to op.nn.load.",
        where,
    )


def _parts(module: torch.nn.Module) -> dict[str, dict[str, Tensor]]:
    """Return the parameters and buffers of a module."""
    return {"weights": dict(module.named_parameters()), "buffers": dict(module.named_buffers())}


def _check_no_nan(
    module: Mapping[str, Mapping[str, Tensor]], names: Sequence[str], where: str
) -> None:
    """Check that a module has no nan, and no infinity in weights that learn."""
    for name, each in (*module["weights"].items(), *module["buffers"].items()):
        learns = name in names and name in module["weights"]
        each = each.to_local() if hasattr(each, "to_local") else each  # noqa: PLW2901
        lost = int((~each.isfinite() if learns else each.isnan()).sum())
        if lost:
            raise CheckpointError(
                "weights and buffers must not be nan, and weights that learn must be "
                f"finite, got {lost} invalid of {each.numel()} numbers in {name!r}. "
                "Restore the previous file, or initialise them again.",
                where,
            )


@contextmanager
def _finite_parameters(module: torch.nn.Module) -> Iterator[None]:
    """Replace non-finite parameters by zeros temporarily: a new module may contain nan."""
    lost = [each for each in module.parameters() if find_nonfinite([("", each)]) is not None]
    copies = [each.detach().clone() for each in lost]
    with torch.no_grad():
        for each in lost:
            each.zero_()
        try:
            yield
        finally:
            for each, was in zip(lost, copies, strict=True):
                each.copy_(was)


def _new_learner(
    cls: type, module: torch.nn.Module, arguments: Mapping[str, object], where: str
) -> Any:
    """Create the learner."""
    try:
        return cls(module, **arguments)
    except Exception as error:  # any exception means that the arguments are invalid
        raise CheckpointError(
            f"must contain valid arguments of op.nn.{cls.__name__} for this module, got "
            f"invalid ones: {error}",
            where,
        ) from error


def _restore_state(learner: Any, learned: Mapping[str, object], where: str) -> None:
    """Set the state of a learner; tensors go to the device of the module."""
    for name in state_attributes(learner):
        owner, _, last = name.rpartition(".")
        value = learned[_plain(name)]
        value = value.to(learner.network.device) if isinstance(value, torch.Tensor) else value
        setattr(attrgetter(owner)(learner) if owner else learner, last, value)
    try:
        learner._check_restored()  # noqa: SLF001  for loading only
    except Exception as error:  # any exception means that the state is inconsistent
        raise damaged(where, f"the state is inconsistent: {error}") from error


def _plain(name: str) -> str:
    """Return the key of the file for an attribute name or path."""
    return ".".join(part.strip("_") for part in name.split("."))
