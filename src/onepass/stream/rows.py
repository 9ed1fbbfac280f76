"""Blocks of rows: the rows of chunks, divided into blocks of exactly the requested length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from onepass.stream.dtypes import missing_column
from onepass.types import Array
from onepass.validation.table import Table, is_missing

__all__ = ["Rebatcher", "Rows", "concatenate_tables", "default_block_size", "select_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Consecutive rows of a stream, with their targets.

    Parameters
    ----------
    X : Table
        The features. Missing values are nan, None or NaT.
    y : ndarray of shape (n,) or (n, c), or None
        The targets: float64 for numbers, object (of str) for text labels. None if there is no
        target.
    time : ndarray of shape (n,), or None
        Time of each row, if the stream has a column of times.
    first : int
        Position of the first row of the block in the source, counted from 0 and including skipped
        rows. For an empty block: the position of the next row.
    skipped : int
        Number of rows skipped since the previous block, up to the last row of this block, because
        the target or, with ``missing="skip"``, a feature was missing. For the last block of a
        stream, up to the end of the source, so that the sum of ``len(rows) + rows.skipped`` over
        all blocks is the number of rows in the source.
    numbers : ndarray of int of shape (n,), or None
        Position of each row in the source, counted like ``first``.
    place : callable or None
        Returns the location of a row as text, by its position.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import read
    >>> speeds, loads = np.arange(10.0)[:, None], np.where(np.arange(10) == 3, np.nan, 1.0)
    >>> [(len(rows), rows.first, rows.skipped) for rows in read((speeds, loads), block=4)]
    [(4, 0, 1), (4, 5, 0), (1, 9, 0)]
    """

    X: Table
    y: Array | None
    time: Array | None
    first: int
    skipped: int
    numbers: Array | None = None
    place: Callable[[int], str] | None = None

    def located(self, i: int) -> str:
        """Return the location of row ``i`` of the block as text: the file and the row."""
        if self.numbers is None or self.place is None:
            return f"row {self.first + i} (counting from 0)"
        return self.place(int(self.numbers[i]))

    def __len__(self) -> int:
        return len(self.X)


_BYTES = 2 << 20  # bytes of the numbers of a block, to fit in a cache
_MIN_BLOCK, _MAX_BLOCK = 1024, 8192  # rows


def default_block_size(columns: int | None, rows: int | None) -> int:
    """Return the default number of rows per block; narrow rows have larger blocks.

    A block has fixed costs. Measured from file to report with 3 to 300 columns, the time per row is
    lowest for blocks of 1 to 4 MiB, and up to twice as long for blocks of 1024 narrow rows. A short
    source is divided into eight blocks, so that reading and learning overlap.

    Parameters
    ----------
    columns : int or None
        Number of columns to read; None if unknown or if rows may arrive slowly.
    rows : int or None
        Number of rows of the source, if known.

    Examples
    --------
    >>> [default_block_size(d, None) for d in (3, 20, 100, 5000, None)]
    [8192, 8192, 2048, 1024, 1024]
    >>> [default_block_size(3, n) for n in (100, 20_000, 40_000, 80_000)]
    [1024, 2048, 4096, 8192]
    """
    if columns is None:
        return _MIN_BLOCK
    fitting = _BYTES // (8 * max(columns, 1))
    if rows is not None:
        fitting = min(fitting, rows // 8)
    fitting = max(fitting, 1)
    return min(max(1 << (fitting.bit_length() - 1), _MIN_BLOCK), _MAX_BLOCK)


class Rebatcher:
    """Divides rows into blocks; stores less than one block and the rows of one chunk.

    A block is yielded as soon as it is full.

    Parameters
    ----------
    block : int
        Number of rows per block.
    start : int
        Position of the first added row in the source.
    """

    def __init__(self, block: int, start: int = 0) -> None:
        self._block = block
        self._parts: list[Rows] = []
        self._buffered = 0
        self._seen = self._yielded = start  # rows of the source added and yielded so far
        self.used = 0

    def add(self, rows: Rows, seen: int) -> Iterator[Rows]:
        """Add rows, and count all rows of the source so far; yield the completed blocks."""
        self._seen = seen
        self.used += len(rows)
        at = 0
        while at < len(rows):
            part = select_rows(rows, slice(at, at + self._block - self._buffered))
            self._parts = [*self._parts, part] if self._buffered else [part]
            self._buffered += len(part)
            at += len(part)
            if self._buffered == self._block:
                yield self._joined(int(cast("Array", part.numbers)[-1]) + 1)
        if not self._buffered:
            self._parts = [select_rows(rows, slice(0))]  # the columns of an empty last block

    def rest(self) -> Iterator[Rows]:
        """Yield the last, shorter block, which is empty if it only counts skipped rows."""
        if self._seen > self._yielded:
            yield self._joined(self._seen)

    def _joined(self, upto: int) -> Rows:
        """Return the buffered rows as the block that ends before row ``upto`` of the source."""
        parts = self._parts
        numbers = np.concatenate([cast("Array", part.numbers) for part in parts])
        rows = Rows(
            concatenate_tables([part.X for part in parts]),
            _concatenate_optional([part.y for part in parts]),
            _concatenate_optional([part.time for part in parts]),
            int(numbers[0]) if len(numbers) else upto,
            upto - self._yielded - len(numbers),
            numbers,
            parts[0].place,
        )
        self._parts, self._buffered, self._yielded = [], 0, upto
        return rows


def select_rows(rows: Rows, key: slice | Array) -> Rows:
    """Select rows by a slice, which returns a view, or by a mask."""
    return replace(
        rows,
        X=rows.X[key],
        y=None if rows.y is None else rows.y[key],
        time=None if rows.time is None else rows.time[key],
        numbers=cast("Array", rows.numbers)[key],
    )


def concatenate_tables(tables: Sequence[Table]) -> Table:
    """Concatenate tables by rows; columns that a table lacks are missing in its rows."""
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.names)
    n = sum(len(table) for table in tables)
    columns = {}
    for name in names:
        parts = [t.columns[name] if name in t else np.full(len(t), np.nan) for t in tables]
        columns[name] = _concatenate(parts)
    return Table(columns, n)


def _concatenate_optional(arrays: Sequence[Array | None]) -> Array | None:
    given = [array for array in arrays if array is not None]
    return None if not given else _concatenate(given)


def _concatenate(parts: list[Array]) -> Array:
    """Concatenate arrays; arrays of only nan are converted to the type of the others."""
    if len(parts) == 1:
        return parts[0]
    if len({part.dtype.kind for part in parts}) > 1:
        kind = next(p.dtype.kind for p in parts if p.dtype.kind != "f" or not is_missing(p).all())
        parts = [p if p.dtype.kind == kind else missing_column(kind, len(p)) for p in parts]
    return np.concatenate(parts)
