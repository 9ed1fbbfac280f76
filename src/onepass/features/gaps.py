"""Gaps: a matrix in which nan stands for a value that is missing."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import Array, Floats
from onepass.validation.table import Table, has_names, is_frame

__all__ = ["matrix_with_gaps"]


def matrix_with_gaps(
    X: Any, where: str, *, d: int | None = None, names: Sequence[str] | None = None
) -> tuple[Floats, list[str] | None]:
    """The rows of X as an array of shape (n, d), finite or nan, and its columns' names.

    Parameters
    ----------
    X : array-like of shape (n, d), Table or DataFrame
        Numbers; nan, None and null are missing.
    where, d, names
        As in :func:`onepass.validation.matrix`, which refuses what is no such matrix.

    Raises
    ------
    ShapeError, ColumnError, TypeMismatchError, NotFiniteError
        If X is not a matrix of real numbers with these columns; infinity is refused.

    Examples
    --------
    >>> matrix_with_gaps([[1, None], [2, 3]], "here")[0].tolist()
    [[1.0, nan], [2.0, 3.0]]
    """
    if isinstance(X, Table) or is_frame(X):
        named = isinstance(X, Table) or has_names(X)
        table = X if isinstance(X, Table) else Table.from_frame(X)
        names = names if named else None  # columns without names are taken in their order
        filled = {name: _filled(column) for name, column in table.columns.items()}
        array, columns = validation.matrix(Table(filled, table.n), where, d=d, names=names)
        order = table.names if names is None else names
        missing = np.column_stack([table[name] != table[name] for name in order])
        return np.where(missing, np.nan, array), columns if named else None
    raw = _floats(X)
    array, _ = validation.matrix(_filled(raw), where, d=d, names=names)
    if isinstance(raw, np.ndarray) and raw.dtype.kind == "f":
        array = np.where(np.isnan(raw), raw.dtype.type(np.nan), array)
    return array, None


def _floats(X: Any) -> Any:
    """X as an array; None among numbers becomes nan; what is no number is left as it is."""
    if hasattr(X, "toarray"):
        return X
    try:
        raw = np.asarray(X)
    except ValueError:  # rows of different lengths
        return X
    if raw.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            return raw.astype(np.float64)  # None becomes nan
    return raw


def _filled(raw: Any) -> Any:
    """Numbers with zeros where they are missing, so that what is left to refuse is refused."""
    if isinstance(raw, np.ndarray) and raw.dtype.kind == "f":
        known: Array = np.where(np.isnan(raw), raw.dtype.type(0), raw)
        return known
    return raw
