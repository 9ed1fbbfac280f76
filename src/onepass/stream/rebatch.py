"""Blocks of rows: the rows of chunks, divided into blocks of exactly the requested length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onepass.validation.rows import Rows, concatenate_rows

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
            part = rows[at : at + self._block - self._buffered]
            self._parts = [*self._parts, part] if self._buffered else [part]
            self._buffered += len(part)
            at += len(part)
            if self._buffered == self._block:
                yield self._joined(int(part.positions[-1]) + 1)
        if not self._buffered:
            self._parts = [rows[:0]]  # the columns of an empty last block

    def rest(self) -> Iterator[Rows]:
        """Yield the last, shorter block, which is empty if it only counts skipped rows."""
        if self._seen > self._yielded:
            yield self._joined(self._seen)

    def _joined(self, upto: int) -> Rows:
        """Return the buffered rows as the block that ends before row ``upto`` of the source."""
        rows = concatenate_rows(self._parts)
        skipped = upto - self._yielded - len(rows)
        self._parts, self._buffered, self._yielded = [], 0, upto
        return replace(rows, first=rows.first if len(rows) else upto, skipped=skipped)
