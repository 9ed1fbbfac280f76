"""NumPy or PyTorch: which backend an array belongs to, and conversion of small matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from scipy.linalg import blas

from onepass.types import Array, ArrayOrTensor

if TYPE_CHECKING:
    import torch

_FEW = 4096  # numbers; below this BLAS sums faster than NumPy under errstate


def is_tensor(array: object) -> TypeGuard[torch.Tensor]:
    """Whether an array is a PyTorch tensor; PyTorch is not imported for this check."""
    return not isinstance(array, np.ndarray)


def on_device(array: ArrayOrTensor) -> bool:
    """Whether an array is on an accelerator, so that reading a number from it synchronizes.

    No control flow depends on numbers on an accelerator; invalid results are masked instead.
    """
    return not isinstance(array, np.ndarray) and array.device.type != "cpu"


def small(array: ArrayOrTensor) -> Any:
    """Convert a small matrix to float64: to NumPy, or to a tensor if it is on an accelerator."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float64, copy=False)
    double = array.detach().double()
    return double if on_device(array) else double.numpy()


def host(array: ArrayOrTensor) -> Any:
    """Convert a small matrix to a float64 NumPy array, synchronizing if necessary."""
    return array.detach().double().cpu().numpy() if is_tensor(array) else array.astype(float)


def all_to_numpy(*arrays: ArrayOrTensor) -> list[Any]:
    """Convert small matrices to float64 NumPy arrays, with one synchronization for all tensors."""
    tensors = [array.detach().double() for array in arrays if is_tensor(array)]
    if len(tensors) < 2:
        return [host(array) for array in arrays]
    import torch  # noqa: PLC0415  only if there is a tensor

    numbers = host(torch.cat([tensor.reshape(-1) for tensor in tensors]))
    cuts = np.cumsum([tensor.numel() for tensor in tensors])[:-1]
    parts = zip(np.split(numbers, cuts), tensors, strict=True)
    converted = iter([part.reshape(tuple(tensor.shape)) for part, tensor in parts])
    return [next(converted) if is_tensor(array) else host(array) for array in arrays]


def like(array: ArrayOrTensor, other: ArrayOrTensor) -> Any:
    """Convert a small matrix or mask to the library, device and dtype of another array."""
    if isinstance(other, np.ndarray):
        kind = array.dtype if array.dtype == bool else other.dtype
        return array.astype(kind, copy=False)
    import torch  # noqa: PLC0415  only if there is a tensor

    tensor = torch.as_tensor(array, device=other.device)
    return tensor if tensor.dtype == torch.bool else tensor.to(other.dtype)


def kind(array: ArrayOrTensor) -> Any:
    """The specification of new arrays like this one: its NumPy dtype, or the tensor itself."""
    return array if is_tensor(array) else array.dtype


def blank(array: ArrayOrTensor, shape: tuple[int, ...] | None = None) -> Any:
    """An uninitialized array like this one, of the same or of another shape."""
    if is_tensor(array):
        return array.new_empty(array.shape if shape is None else shape)
    return np.empty_like(array) if shape is None else np.empty(shape, array.dtype)


def wide(array: ArrayOrTensor) -> Any:
    """An empty float64 array of the same library and device."""
    return array[:0].double() if is_tensor(array) else np.empty(0)


def numpy_view(array: ArrayOrTensor) -> Any:
    """A NumPy view of a CPU tensor if there is one; other arrays are returned unchanged.

    For matrix-vector products of arrays in the cache NumPy was measured a third faster than
    PyTorch, with less overhead per call.
    """
    if isinstance(array, np.ndarray) or on_device(array) or array.itemsize < 4:
        return array
    return array.detach().numpy()


def finite(*arrays: ArrayOrTensor) -> bool:
    """Whether all numbers are finite; their sum, to which nan and infinity propagate, is tested."""
    for array in arrays:
        near = numpy_view(array)
        if not isinstance(near, np.ndarray):
            if not bool(near.isfinite().all()):
                return False
        elif not (math.isfinite(_summed(near)) or np.isfinite(near).all()):
            return False
    return True


def _summed(array: ArrayOrTensor) -> float:
    """The sum of all numbers or of their magnitudes, whichever is faster to compute."""
    if 0 < array.size < _FEW and array.dtype == np.float64:
        return float(blas.dasum(array.ravel(order="K")))
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.add.reduce(array, axis=None))


def widened(array: ArrayOrTensor) -> Any:
    """Convert half precision to float32; other arrays are returned unchanged."""
    if isinstance(array, np.ndarray) or array.itemsize != 2:
        return array
    return array.float()


def as_array(values: object) -> Array:
    """Convert an array-like or a tensor, also one on a device, to a NumPy array."""
    on_device: Any = values if hasattr(values, "cpu") else None
    return np.asarray(values if on_device is None else widened(on_device).detach().cpu())
