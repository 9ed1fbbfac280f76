"""Data frames of plain numbers as NumPy arrays, without a copy of the whole frame.

A frame of pandas, Polars or Arrow whose columns are all integers, booleans or floats of at most 64
bits is read in slices, whose columns are NumPy arrays that share the memory of the frame where
possible. The columns of a slice are written as rows in one pass, which also checks that they are
finite. Other frames are converted column by column, by :class:`onepass.validation.table.Table`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from onepass import native
from onepass.types import Array, Floats

Columns: TypeAlias = Sequence[Array] | Array
"""The columns of some rows; as an array, its shape is (d, n)."""

_VALUES = 1 << 20
"""Maximum number of values of a slice: it bounds the memory of columns that must be converted."""

_FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
_SERIES = {"pandas": "Series", "polars": "Series", "pyarrow": "ChunkedArray"}
_PLAIN = frozenset(np.dtype(code) for code in "?bhilqBHILQfd")
_ARROW = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float",
     "double")
)  # fmt: skip


def _library(value: object, classes: Mapping[str, str]) -> str | None:
    """Return the library of a value whose class is among these; None for other values."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return library if classes.get(library) == kind.__name__ else None


def frame_library(X: object) -> str | None:
    """Return the library of a data frame: pandas, polars or pyarrow; None for other objects.

    Instances of subclasses are other objects.
    """
    return _library(X, _FRAMES)


def is_series(y: object) -> bool:
    """Return whether y is a column of pandas, Polars or Arrow."""
    return _library(y, _SERIES) is not None


def series_array(y: Any) -> Any:
    """Convert a column of a data frame to an array; return other objects unchanged."""
    return y.to_numpy() if is_series(y) else y


def labels_of(frame: Any) -> list[Any]:
    """Return the column labels of a plain frame, which may be duplicates."""
    library = frame_library(frame)
    if library == "pyarrow":
        return list(frame.column_names)
    return list(frame.columns if library == "polars" else frame.columns.tolist())


def plain_slices(frame: Any) -> Iterator[Columns] | None:
    """Return an iterator over the columns of slices of a frame; None if the frame is not plain.

    Parameters
    ----------
    frame : DataFrame or pyarrow.Table

    Returns
    -------
    iterator over sequences of ndarray of shape (rows,), or over ndarray of shape (d, rows), or None
        The columns must not be modified. Nulls are nan.
    """
    library = frame_library(frame)
    if library is None or not frame.shape[1]:
        return None
    max_rows = max(1, _VALUES // frame.shape[1])
    if library == "polars":
        return _polars(frame, max_rows) if all(map(_is_plain_polars, frame.dtypes)) else None
    if library == "pandas":
        return _pandas(frame, max_rows) if all(map(_is_plain, frame.dtypes.tolist())) else None
    return _arrow(frame, max_rows) if {str(one) for one in frame.schema.types} <= _ARROW else None


def _is_plain(dtype: Any) -> bool:
    """Whether a dtype of pandas is plain; the hash of a dtype with many categories is slow."""
    return isinstance(dtype, np.dtype) and dtype in _PLAIN


def _is_plain_polars(dtype: Any) -> bool:
    """Whether a dtype of Polars is plain; the hash of a dtype with many categories is slow."""
    return dtype.base_type() in _polars_dtypes()


@cache
def _polars_dtypes() -> frozenset[Any]:
    """The plain dtypes of Polars."""
    names = ("Boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    pl = sys.modules["polars"]
    return frozenset(getattr(pl, name) for name in (*names, "Float32", "Float64"))


def _polars(frame: Any, max_rows: int) -> Iterator[Columns]:
    float64 = sys.modules["polars"].Float64
    for rows in [frame] if frame.height <= max_rows else frame.iter_slices(max_rows):
        columns = []
        for series in rows.get_columns():
            column = series.to_numpy()
            if column.dtype == object:  # booleans and nulls
                column = series.cast(float64).to_numpy()
            columns.append(column)
        yield columns


def _pandas(frame: Any, max_rows: int) -> Iterator[Columns]:
    n = len(frame)
    for i in range(0, n, max_rows):
        rows = frame if n <= max_rows else frame.iloc[i : i + max_rows]
        yield rows.to_numpy(dtype=np.float64).T


def _arrow(frame: Any, max_rows: int) -> Iterator[Columns]:
    for batch in frame.to_batches(max_chunksize=max_rows):
        yield [
            (column.cast("float64", safe=False) if _is_converted(column) else column).to_numpy(
                zero_copy_only=False
            )
            for column in batch.columns
        ]


def _is_converted(column: Any) -> bool:
    """Whether NumPy cannot represent an Arrow column of plain numbers in its type."""
    return bool(column.null_count or str(column.type) == "bool")


def plain_array(column: Any) -> Array | None:
    """Return an array with the memory of a column of plain numbers without nulls, in one piece.

    Parameters
    ----------
    column : Series or pyarrow.ChunkedArray

    Returns
    -------
    ndarray of shape (n,), or None
        It must not be modified. None for other columns.
    """
    library = _library(column, _SERIES)
    if library == "polars":
        plain = _is_plain_polars(column.dtype) and column.n_chunks() == 1
        shared = plain and not column.null_count()
    elif library == "pyarrow":
        plain = str(column.type) in _ARROW and column.num_chunks == 1
        shared = plain and not _is_converted(column)
    else:
        shared = library == "pandas" and _is_plain(column.dtype)
    return np.asarray(column.to_numpy()) if shared else None


def write_rows(columns: Columns, rows: Floats) -> bool:
    """Write columns as rows; return whether they are known to be finite.

    Parameters
    ----------
    columns : sequence of ndarray of shape (n,)
        Numbers of any of the dtypes of plain frames.
    rows : ndarray of shape (n, d)
        C-contiguous, written in place.
    """
    if native.loops is None:
        for j, column in enumerate(columns):
            rows[:, j] = column
        return False
    finite: bool = native.loops.transpose(len(rows), tuple(columns), rows)
    return finite
