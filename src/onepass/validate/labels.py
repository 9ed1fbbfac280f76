"""Class labels: whole numbers, truth values or text, all of one kind."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from onepass.breadth import hold_labels
from onepass.errors import Array, LabelError, ParameterError, ShapeError, TypeMismatchError
from onepass.table import check_encodable
from onepass.validate.finite import refuse_nonfinite

__all__ = ["class_names", "labels"]


def labels(y: Any, n: int, where: str, *, what: str = "y") -> Array:
    """Class labels as an array of shape (n,): whole numbers, truth values or text."""
    if y is None:
        raise TypeMismatchError(
            f"{where}: requires {what} to be passed, but the target {what} is None. Give one "
            "label a row."
        )
    # a list goes in as it is: as an array of text, None and 1 among its labels would be text too
    array = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
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
            f"{where}: `{what}` must have shape ({n},), one label for each row of X, got "
            f"{array.shape}. Check that X and y come from the same rows."
        )
    if np.ma.is_masked(y):
        raise LabelError(
            f"{where}: `{what}` must hold a label in each row, got a masked array. "
            "Drop rows without a label."
        )
    return _of_one_kind(array, where, what)


def class_names(classes: Any, where: str) -> Array:
    """The labels that are known beforehand, sorted, each once; none where None.

    Raises
    ------
    ParameterError
        If they are no list of labels.
    """
    listed = sorted(classes, key=str) if isinstance(classes, (set, frozenset)) else classes
    try:
        n = 0 if classes is None else len(listed)
    except TypeError:
        n = -1
    if n < 0 or isinstance(classes, (str, bytes)):
        raise ParameterError(
            f"{where}: `classes` must be a list of labels, got {classes!r}. "
            "Name the classes that are known beforehand, as in classes=[0, 1]."
        )
    return np.unique(labels(listed, n, where, what="classes")) if n else np.empty(0)


def _of_one_kind(array: Array, where: str, what: str) -> Array:
    """The labels, once they are found to be whole numbers, truth values or text."""
    if array.dtype.kind == "f":
        refuse_nonfinite(array[:, None], where, what, None)
        odd = array[array != np.floor(array)]
        if len(odd):
            raise LabelError(
                f"{where}: Unknown label type: `{what}` must hold class labels, got fractions "
                f"such as {odd[0]:g}. Use a regressor, or bin the values."
            )
        return array
    if array.dtype.kind == "O":
        return _object_labels(array, where, what)
    if array.dtype.kind == "U":
        _check_text(array, where, what)
    if array.dtype.kind not in "biuU":
        raise LabelError(
            f"{where}: Unknown label type: `{what}` must hold whole numbers or text, got "
            f"{array.dtype}. Complex data not supported; name the classes."
        )
    return array


def _check_text(array: Array, where: str, what: str) -> None:
    """Refuse labels that are too long, or that UTF-8 cannot encode."""
    if what == "y":  # classes are named by whoever makes the learner
        hold_labels(array.tolist(), where)
    check_encodable(array, where, what)


def _object_labels(array: Array, where: str, what: str) -> Array:
    """Objects that are all text, or all numbers, as an array of that kind."""
    values = array.tolist()
    if not values:
        return array
    if all(isinstance(v, str) for v in values):
        _check_text(array, where, what)
        return array.astype(str)
    if all(isinstance(v, (bool, int, np.integer, np.bool_)) for v in values):
        whole = np.array(values)
        if whole.dtype.kind in "biu":
            return whole
        raise LabelError(
            f"{where}: `{what}` must hold whole numbers that fit in 64 bits, all signed or all "
            f"unsigned, got {max(values, key=abs)}. Give such labels as text."
        )
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in values):
        return _of_one_kind(np.array(values, dtype=np.float64), where, what)
    first = str if isinstance(values[0], str) else (bool, int, float, np.number, np.bool_)
    i, odd = next((i, v) for i, v in enumerate(values) if not isinstance(v, first))
    raise LabelError(
        f"{where}: Unknown label type: `{what}` must hold labels of one kind, text or whole "
        f"numbers, got {odd!r} in row {i}. Drop rows without a label, and give all labels one type."
    )
