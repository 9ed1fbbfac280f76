"""Tensors in a file: a tensor is its bytes, of whatever precision, back to the last bit.

It stands there as ``{"@": "tensor", "dtype": "bfloat16", "of": array}``.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, Builder, Entry, Taker

__all__ = ["TensorBuilder", "TensorTaker", "as_array", "as_tensor"]

_BITS = {torch.bfloat16: torch.int16}  # NumPy knows no such numbers
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
           "bool")  # fmt: skip


class TensorTaker(Taker):
    """Takes what holds tensors apart."""

    def __init__(self, where: str, states: tuple[type, ...]) -> None:
        super().__init__(where)
        self.known |= dict(_own(states))

    def take(self, value: Any, owner: Entry | None, path: Any, *, finite: bool) -> Any:
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

    def give(self, value: Any, owner: Entry | None, path: Any, *, finite: bool) -> Any:
        """Any part; tensors on the device."""
        if self.mark(value, path) == "tensor":
            return as_tensor(value, self.where).to(self.device)
        return super().give(value, owner, path, finite=finite)


def _own(states: tuple[type, ...]) -> list[tuple[type, Entry]]:
    """States that stand in no list of op.memory, as if they did."""
    room = "onepass.memory"
    taken: Any = {cls: tuple(each.name for each in fields(cls) if each.init) for cls in states}
    return [(cls, Entry(cls, room, arguments, None)) for cls, arguments in taken.items()]


def as_array(tensor: Any) -> dict[str, Any]:
    """A tensor as an array."""
    near = tensor.detach().cpu().contiguous()
    array = near.view(_BITS[near.dtype]).numpy() if near.dtype in _BITS else near.numpy()
    return {MARK: "tensor", "dtype": str(near.dtype).removeprefix("torch."), "of": array}


def as_tensor(said: Any, where: str) -> Any:
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
