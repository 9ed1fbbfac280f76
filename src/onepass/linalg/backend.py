"""NumPy or PyTorch: which backend an array belongs to, and conversion of small matrices."""

import math
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from scipy.linalg import blas

from onepass.types import ArrayOrTensor

if TYPE_CHECKING:
    import torch

__all__ = [
    "all_to_numpy",
    "blank",
    "finite",
    "host",
    "is_tensor",
    "kind",
    "like",
    "numpy_view",
    "on_device",
    "small",
    "wide",
    "widened",
]

_FEW = 4096  # numbers that are sooner summed by BLAS than NumPy is told to keep quiet


def is_tensor(array: object) -> TypeGuard["torch.Tensor"]:
    """Whether it is torch's; torch is not imported to know it."""
    return not isinstance(array, np.ndarray)


def on_device(array: ArrayOrTensor) -> bool:
    """Whether to read a number of it, the program would have to wait for a device.

    Where it would, nothing is decided by such a number: what must not happen is masked.
    """
    return is_tensor(array) and array.device.type != "cpu"


def small(array: ArrayOrTensor) -> Any:
    """A small matrix in float64: NumPy's where nothing need be waited for, else on its device."""
    if not is_tensor(array):
        return array.astype(np.float64, copy=False)
    double = array.detach().double()
    return double if on_device(array) else double.numpy()


def host(array: ArrayOrTensor) -> Any:
    """A small matrix as NumPy's, in float64, waited for if need be."""
    return array.detach().double().cpu().numpy() if is_tensor(array) else array.astype(float)


def all_to_numpy(*arrays: ArrayOrTensor) -> list[Any]:
    """Small matrices as NumPy's, in float64; those of a device are waited for all at once."""
    tensors = [each.detach().double() for each in arrays if is_tensor(each)]
    if len(tensors) < 2:
        return [host(each) for each in arrays]
    import torch  # noqa: PLC0415  only where there is a tensor

    numbers = host(torch.cat([each.reshape(-1) for each in tensors]))
    cuts = np.cumsum([each.numel() for each in tensors])[:-1]
    parts = zip(np.split(numbers, cuts), tensors, strict=True)
    came = iter([part.reshape(tuple(each.shape)) for part, each in parts])
    return [next(came) if is_tensor(each) else host(each) for each in arrays]


def like(array: ArrayOrTensor, other: ArrayOrTensor) -> Any:
    """A small matrix or mask in the library of another, on its device, in its type if a number."""
    if not is_tensor(other):
        kind = array.dtype if array.dtype == bool else other.dtype
        return array.astype(kind, copy=False)
    import torch  # noqa: PLC0415  only where there is a tensor

    tensor = torch.as_tensor(array, device=other.device)
    return tensor if tensor.dtype == torch.bool else tensor.to(other.dtype)


def kind(array: ArrayOrTensor) -> Any:
    """What makes another array of its precision, and on its device."""
    return array if is_tensor(array) else array.dtype


def blank(array: ArrayOrTensor, shape: tuple[int, ...] | None = None) -> Any:
    """An array of its kind, of its shape or another, of whatever numbers."""
    if is_tensor(array):
        return array.new_empty(array.shape if shape is None else shape)
    return np.empty_like(array) if shape is None else np.empty(shape, array.dtype)


def wide(array: ArrayOrTensor) -> Any:
    """An empty array of its library and place, in float64."""
    return array[:0].double() if is_tensor(array) else np.empty(0)


def numpy_view(array: ArrayOrTensor) -> Any:
    """NumPy's view of a tensor that need not be waited for, if it has one; others as they are.

    NumPy's products of a matrix and a vector were measured a third quicker than torch's on pieces
    that lie in the cache, and calls cost it less.
    """
    if not is_tensor(array) or on_device(array) or array.itemsize < 4:
        return array
    return array.detach().numpy()


def finite(*arrays: ArrayOrTensor) -> bool:
    """Whether all numbers are finite: nan and infinity survive a sum, which is quickly taken."""
    for array in arrays:
        near = numpy_view(array)
        if is_tensor(near):
            if not bool(near.isfinite().all()):
                return False
        elif not (math.isfinite(_summed(near)) or np.isfinite(near).all()):
            return False
    return True


def _summed(array: ArrayOrTensor) -> float:
    """A sum of all numbers, or of their magnitudes: whichever is sooner taken."""
    if 0 < array.size < _FEW and array.dtype == np.float64:
        return float(blas.dasum(array.ravel(order="K")))
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.add.reduce(array, axis=None))


def widened(array: ArrayOrTensor) -> Any:
    """It in the precision that is computed in: half precision as float32, others as they are."""
    return array.float() if is_tensor(array) and array.itemsize == 2 else array
