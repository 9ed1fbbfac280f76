"""Type aliases for annotations: arrays and array-like arguments."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import torch

__all__ = [
    "Array",
    "ArrayLike",
    "ArrayOrTensor",
    "Estimator",
    "Floats",
    "Kind",
    "RowLike",
    "TimeLike",
]

Array: TypeAlias = NDArray[Any]
"""A NumPy array of any dtype: numbers, text, dates."""

Floats: TypeAlias = NDArray[np.floating[Any]]
"""A NumPy array of floating-point numbers: float32 or float64."""

ArrayOrTensor: TypeAlias = Union[Array, "torch.Tensor"]
"""An array of either backend: NumPy or PyTorch."""

Kind: TypeAlias = Union[type[np.floating[Any]], np.dtype[np.floating[Any]], "torch.Tensor"]
"""A NumPy dtype, or a tensor with the desired dtype and device."""

RowLike: TypeAlias = ArrayLike | Mapping[str, object]
"""One row of features: an array, or a mapping of named features."""

TimeLike: TypeAlias = ArrayLike | date | Sequence[date]
"""Times of rows: numbers, or NumPy or Python dates."""


class Estimator(Protocol):
    """An object of unknown class that learns, such as one read from a file."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Reset, then learn rows."""

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn further rows."""

    def __getattr__(self, name: str) -> Any:
        """Return another method or attribute, which the class may have."""
