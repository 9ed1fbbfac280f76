"""Class labels: whole numbers, truth values or text, all of one kind."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from onepass.errors import LabelError, ShapeError, TypeMismatchError
from onepass.types import Array
from onepass.validate.arrays import refuse_nonfinite

__all__ = ["labels"]


def labels(y: Any, n: int, where: str) -> Array:
    """Class labels as an array of shape (n,): whole numbers, truth values or text."""
    if y is None:
        raise TypeMismatchError(
            f"{where}: requires y to be passed, but the target y is None. Give one label a row."
        )
    array = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected, in {where}. Give "
            "y.ravel(), of shape (n,).",
            DataConversionWarning,
            stacklevel=2,
        )
        array = array[:, 0]
    if array.shape != (n,):
        raise ShapeError(
            f"{where}: `y` must have shape ({n},), one label for each row of X, got "
            f"{array.shape}. Check that X and y come from the same rows."
        )
    if array.dtype.kind == "f":
        refuse_nonfinite(array[:, None], where, "y", None)
        if (array != np.floor(array)).any():
            raise LabelError(
                f"{where}: Unknown label type: `y` must hold class labels, got fractions such as "
                f"{array[array != np.floor(array)][0]:g}. Use a regressor, or bin the values."
            )
    elif array.dtype.kind == "O":
        array = _object_labels(array, where)
    elif array.dtype.kind not in "biuUS":
        raise LabelError(
            f"{where}: Unknown label type: `y` must hold whole numbers or text, got "
            f"{array.dtype}. Complex data not supported; name the classes."
        )
    return array


def _object_labels(array: Array, where: str) -> Array:
    """Objects that are all text, or all whole numbers, as an array of that kind."""
    values = array.tolist()
    if all(isinstance(v, str) for v in values):
        return array.astype(str) if values else array
    if all(isinstance(v, (bool, int, np.integer)) for v in values):
        return np.array(values)
    if all(isinstance(v, (bool, int, float, np.number)) for v in values):
        return labels(np.array(values, dtype=np.float64), len(values), where)
    i, odd = next(
        (i, v)
        for i, v in enumerate(values)
        if not isinstance(v, type(values[0])) or not isinstance(v, (str, int))
    )
    raise LabelError(
        f"{where}: Unknown label type: `y` must hold labels of one kind, text or whole numbers, "
        f"got {odd!r} in row {i}. Drop rows without a label, and give all labels one type."
    )
