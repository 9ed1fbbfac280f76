"""The key column of rows for many models, one per key.

Keys are text and whole numbers; a boolean is the number 0 or 1, and 2.0 is the number 2. Categories
are text, even if their names are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onepass.errors import ColumnError, ShapeError, TypeMismatchError, join_names
from onepass.types import Array
from onepass.validation.arrays import check_contains_rows
from onepass.validation.table import (
    Table,
    is_frame,
    is_missing_value,
    named_row,
    narwhals_frame,
    series_values,
)

Key: TypeAlias = str | int
"""A key after validation."""

_EXACT = 1 << 53  # larger whole numbers in float64 may be rounded


class Keys(NamedTuple):
    """The keys of rows."""

    codes: Array
    """The index of each row's key in ``names``, (n,) int32."""
    names: list[Key]
    """The different keys, in order of their first rows."""


def plain_key(value: object, what: str = "keys", row: int | None = None) -> Key:
    """Validate one key.

    Parameters
    ----------
    value : object
    what : str
        What the key is, for messages.
    row : int, optional
        The row of the key.

    Raises
    ------
    TypeMismatchError
        If the key is missing, or neither text nor a whole number.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        value = float(value)
        if value.is_integer() and abs(value) < _EXACT:
            return int(value)
    got = "a missing key" if is_missing_value(value) else repr(value)
    raise TypeMismatchError(
        f"{what} must be text or whole numbers (in float64, below 2**53)",
        got=got,
        remedy="Convert keys to text (--type NAME=text) or whole numbers, and drop rows without a "
        "key.",
        row=row,
    )


def split_keys(X: Any, by: str | int) -> tuple[Keys, Any, list[str] | None]:
    """Split rows into their keys and their other columns.

    Parameters
    ----------
    X : array-like of shape (n, d), Table, DataFrame or sequence of dicts
    by : str or int
        The name of the key column, or its index in arrays.

    Returns
    -------
    keys : Keys
    rest : ndarray, Table, DataFrame or list of dicts
    names : list of str or None
        The names of all columns.

    Raises
    ------
    ColumnError
        If there is no such column.
    TypeMismatchError
        If a key is missing, or neither text nor a whole number, or ``by`` is of another type.
    """
    _check_by(by)
    if isinstance(by, str):
        if isinstance(X, Table):
            _check_named(by, X.names)
            return _coded(X[by], by), X.drop([by]), X.names
        if is_frame(X):
            frame = narwhals_frame(X)
            _check_named(by, frame.columns)
            names = [str(name) for name in frame.columns]
            return _coded(frame[by], by), frame.drop(by).to_native(), names
        if isinstance(X, (list, tuple)) and all(isinstance(row, Mapping) for row in X):
            names = list(dict.fromkeys(str(name) for row in X for name in row))
            if X:
                _check_named(by, names)
            rest = [{name: value for name, value in row.items() if name != by} for row in X]
            return _coded([row.get(by) for row in X], by), rest, names
        check_contains_rows(X)
        raise ColumnError(
            "`by` must be the index of a column if rows have no column names, got "
            f"{by!r}. Pass a data frame or dicts, or an index such as by=0."
        )
    check_contains_rows(X)
    array = narwhals_frame(X).to_numpy() if is_frame(X) else X
    array = _unmasked(array if isinstance(array, np.ndarray) else np.array(array, dtype=object))
    if array.ndim != 2 or not -array.shape[1] <= by < array.shape[1]:
        raise ShapeError(
            f"`X` must be an array of shape (n, d) with the key column {by}, got shape "
            f"{array.shape}. Pass the key as one of the columns."
        )
    return _coded(array[:, by], by), np.delete(array, by, axis=1), None


def split_row(x: Any, by: str | int) -> tuple[Key, Any]:
    """Split one row, an array or a dict, into its key and its other values."""
    _check_by(by)
    x = named_row(x)
    if isinstance(x, Mapping):
        if by not in x:
            _check_named(by, list(x))
        rest = {name: value for name, value in x.items() if name != by}
        return plain_key(x[by]), rest
    row = _unmasked(x) if isinstance(x, np.ndarray) else np.array(x, dtype=object)
    if isinstance(by, str) or row.ndim != 1 or not -len(row) <= by < len(row):
        raise ColumnError(
            f"the row must have the key {by!r}, got a row without it. Pass a dict with "
            "this name, or an array of shape (d,) if `by` is an index."
        )
    return plain_key(row[by]), np.delete(row, by)


def _check_by(by: object) -> None:
    """Raise if `by` is neither a name nor an index."""
    if isinstance(by, bool) or not isinstance(by, (str, int, np.integer)):
        raise TypeMismatchError(
            "`by` must be the name of the key column, or its index in arrays, got "
            f"{by!r}. Pass text or a whole number."
        )


def _unmasked(array: Any) -> Array:
    """The array with None in place of masked elements."""
    if np.ma.isMaskedArray(array):
        mask, array = np.ma.getmaskarray(array), array.data.astype(object)
        array[mask] = None
    return np.asarray(array)


def _check_named(by: object, names: Sequence[object]) -> None:
    """Raise if there is no key column of this name."""
    if by not in names:
        raise ColumnError(
            f"the rows must have the key column {by!r}, got the columns "
            f"{join_names([str(name) for name in names])}. Set `by` to one of them."
        )


def _coded(values: Any, by: str | int) -> Keys:
    """Replace keys by codes."""
    if len(values) != 1:  # one value is faster without Arrow
        with suppress(ValueError, TypeError, OverflowError, NotImplementedError, ImportError):
            keys = _coded_by_arrow(values)
            if keys is not None:
                return keys
    codes, found = np.empty(len(values), dtype=np.int32), dict[Key, int]()
    for i, value in enumerate(values):  # keys of mixed types, or invalid ones
        key = plain_key(value, f"keys in column {by!r}", i)
        codes[i] = found.setdefault(key, len(found))
    return Keys(codes, list(found))


def _coded_by_arrow(values: Any) -> Keys | None:
    """Replace keys of one type by codes; None if some are missing, or of other types."""
    import pyarrow as pa  # noqa: PLC0415  learners need no Arrow

    column: Any = values.to_arrow() if hasattr(values, "to_arrow") else pa.array(_whole(values))
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            column = pa.array(series_values(values))  # names of categories are text, as in a Table
    known = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)
    if column.null_count or not any(is_kind(column.type) for is_kind in known):
        return None
    coded: Any = column.dictionary_encode()
    names = coded.dictionary.to_pylist()
    if pa.types.is_boolean(column.type):
        names = [int(name) for name in names]
    return Keys(coded.indices.to_numpy(), names)


def _whole(values: Any) -> Any:
    """Convert an array of whole floats to integers; return others unchanged."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        whole = (np.abs(values) < _EXACT) & (values == np.floor(values))
        return values.astype(np.int64) if whole.all() else values
    return values
