"""Intake: rows as a user gives them, as a block of their own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.errors import Array, ShapeError, TypeMismatchError
from onepass.service.blocks import Block, is_plain
from onepass.validation import matrix
from onepass.validation.table import Table, is_frame, to_column

__all__ = ["aligned", "hold_answered", "read_rows"]

_NUMBERS = "biuf"
_MIXED = "OUM"  # a matrix of text, dates or mixed values, for features that read it
_PLAIN_KINDS = "biufUM"  # of dtypes that a file holds as they are
_LARGEST = 8  # bytes of a number
_PLAIN = (str, int, float, bool, type(None))


def read_rows(X: Any, y: Any, sample_weight: Any = None, time: Any = None, *, where: str) -> Block:
    """Rows as they came, as a block of their own: nothing of it is the caller's.

    Whether they can be learned, the learner says.

    Parameters
    ----------
    X : array-like of shape (n, …), frame, Table, or sequence of dicts
    y : array-like of shape (n,) or (n, c), or None
    sample_weight, time : array-like of shape (n,) or number, optional
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError, TypeMismatchError
        If these are no rows, or not as many answers.
    """
    if sample_weight is None and time is None and is_plain(X, y):
        return Block(X.copy(), y.copy())
    rows = _rows(X, where)
    n = len(rows)
    return Block(
        rows,
        None if y is None else aligned(y, "y", n, where),
        None if sample_weight is None else aligned(sample_weight, "sample_weight", n, where),
        None if time is None else aligned(time, "time", n, where),
    )


def hold_answered(y: Any, where: str) -> None:
    """Refuse rows to be learned that have no answers.

    Parameters
    ----------
    y : Any
    where : str
        The public call, for messages.

    Raises
    ------
    TypeMismatchError
    """
    if y is None:
        raise TypeMismatchError(
            f"{where}: `y` must be an answer for each row, got None. Give the answers, or `ask` "
            "for rows whose answers come later."
        )


def _rows(X: Any, where: str) -> Any:
    if isinstance(X, Table):
        return Table({name: _column(column, name) for name, column in X.columns.items()}, X.n)
    if is_frame(X):
        return Table.from_frame(X)
    if isinstance(X, (list, tuple)) and (not X or isinstance(X[0], Mapping)):
        return Table.from_rows(X)
    array = _array(X)
    if array.ndim < 2 or array.dtype.kind not in _NUMBERS + _MIXED:
        matrix(X, where)  # says what is wrong with it
    if array.dtype.kind not in _NUMBERS:
        if not isinstance(X, np.ndarray):  # NumPy would make text of the numbers among it
            array = np.array(X, dtype=object)
        _hold_plain(array, "X", where)
    elif array.dtype.itemsize > _LARGEST:
        array = array.astype(np.float64)
    return array


def _column(values: Array, name: str) -> Array:
    """A copy, of what a file can hold."""
    plain = values.dtype.kind in f"{_PLAIN_KINDS}O"
    return values.copy() if plain else to_column(values, name)


def aligned(part: Any, name: str, n: int, where: str) -> Array:
    """Answers, weights or times as an array of their own.

    Parameters
    ----------
    part : array-like of shape (n, …); weights and times may be one for all rows
    name : str
        Of the argument.
    n : int
        How many rows there are.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError, TypeMismatchError
        If it is not one value a row, or no number, text or date.
    """
    array = _array(part)
    if name == "y" and array.dtype.kind == "U" and isinstance(part, (list, tuple)):
        values = np.array(part, dtype=object)  # NumPy has made text of the numbers among them
        array = array if all(isinstance(v, str) for v in values.ravel().tolist()) else values
    if name == "time" and array.dtype.kind == "O":
        array = to_column(array, "time")
    if array.ndim == 0 and name != "y":
        array = np.full(n, array[()])
    if array.ndim == 0 or len(array) != n:
        came = f"the shape {array.shape}" if array.ndim else "one that is no list"
        raise ShapeError(
            f"{where}: `{name}` must have one value for each of {n} rows, got {came}. Give as many "
            "values as rows."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > _LARGEST:
        return array.astype(np.float64)
    if array.dtype.kind not in _PLAIN_KINDS:
        _hold_plain(array, name, where)
    return array


def _array(values: Any) -> Array:
    """A copy, its rows one after the other."""
    if type(values) not in {np.ndarray, list}:
        if hasattr(values, "detach"):  # a tensor
            values = values.detach().cpu().numpy()
        if np.ma.is_masked(values):
            kind, nothing = (float, np.nan) if values.dtype.kind in _NUMBERS else (object, None)
            values = values.astype(kind).filled(nothing)
    try:
        return np.array(values, order="C", copy=True)
    except ValueError:  # rows of several lengths
        return np.empty((), dtype=object)


def _hold_plain(array: Array, name: str, where: str) -> None:
    """Refuse what no file can hold."""
    if array.dtype.kind in _PLAIN_KINDS:
        return
    odd = next((v for v in array.ravel().tolist() if not isinstance(v, _PLAIN)), None)
    if odd is not None or array.dtype.kind != "O":
        came = type(odd).__name__ if array.dtype.kind == "O" else str(array.dtype)
        raise TypeMismatchError(
            f"{where}: `{name}` must hold numbers or text, got {came}. Convert it, or give rows as "
            "dicts or a frame, in which dates may stand."
        )
