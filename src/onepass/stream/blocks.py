"""Blocks of exactly as many rows as asked, cut from pieces of any length."""

from collections.abc import Callable, Iterator

import numpy as np

from onepass.errors import Array
from onepass.stream.choice import Split
from onepass.stream.kinds import absent
from onepass.stream.rows import Rows
from onepass.validation.table import Table, is_missing

__all__ = ["Cutter", "rows_a_block", "stacked"]

_BYTES = 2 << 20  # of a block's numbers: what a nearer cache holds, and not much to wait for
_LEAST, _MOST = 1024, 8192  # rows


def rows_a_block(columns: int | None, rows: int | None) -> int:
    """How many rows a block should have: narrow ones more, for a block has costs of its own.

    Measured from file to report, 3 to 300 columns: a row costs least in blocks of 1 to 4 MiB, and
    up to twice as much in 1024 narrow rows. A short source is cut into eight all the same, so that
    some are read while others are learned.

    Parameters
    ----------
    columns : int or None
        How many there are to read; None where that or the pace of the rows is not known: who waits
        for rows does not wait for many.
    rows : int or None
        How many the source has, where that is known.

    Examples
    --------
    >>> [rows_a_block(d, None) for d in (3, 20, 100, 5000, None)]
    [8192, 8192, 2048, 1024, 1024]
    >>> [rows_a_block(3, n) for n in (100, 20_000, 40_000, 80_000)]
    [1024, 2048, 4096, 8192]
    """
    if columns is None:
        return _LEAST
    fitting = _BYTES // (8 * max(columns, 1))
    if rows is not None:
        fitting = min(fitting, rows // 8)
    fitting = max(fitting, 1)
    return min(max(1 << (fitting.bit_length() - 1), _LEAST), _MOST)


class Cutter:
    """Cuts pieces into blocks; holds less than one block and one piece.

    A block is given as soon as it is full. Rows without an answer take no place in it.

    Parameters
    ----------
    block : int
        Rows a block.
    start : int
        Where the first row that is added stands in the source.
    place : callable, optional
        Says in words where a row of the source stands, by its number.
    """

    def __init__(
        self, block: int, start: int = 0, place: Callable[[int], str] | None = None
    ) -> None:
        self._place = place
        self.gaps = 0
        self._block = block
        self._parts: list[tuple[Table, Array | None, Array | None]] = []
        self._numbers: list[Array] = []
        self._held = 0
        self._first = start
        self._given = start  # source rows that blocks given so far account for
        self.seen = start
        self.kept = 0

    def add(self, split: Split) -> Iterator[Rows]:
        """The blocks that these rows fill."""
        kept = np.flatnonzero(split.kept)
        start, self.seen = self.seen, self.seen + len(split.kept)
        self.kept += len(kept)
        self.gaps += split.gaps
        at = 0
        while at < len(kept):
            taken = kept[at : at + self._block - self._held]
            at += len(taken)
            if not self._held:
                self._first, self._parts, self._numbers = start + int(taken[0]), [], []
            self._numbers.append(start + taken)
            self._parts.append(_some(split, taken))
            self._held += len(taken)
            if self._held == self._block:
                yield self._rows(start + int(taken[-1]) + 1)
        if not self._held:
            self._parts = [_some(split, kept[:0])]  # an empty last block has these columns
            self._numbers = [kept[:0]]

    def rest(self) -> Iterator[Rows]:
        """What is left at the end: fewer rows than a block, or none but skipped ones."""
        if self.seen > self._given:
            if not self._held:
                self._first = self.seen
            yield self._rows(self.seen)

    def _rows(self, upto: int) -> Rows:
        tables, answers, times = zip(*self._parts, strict=True)
        skipped = upto - self._given - self._held
        rows = Rows(
            stacked(tables), _joined(answers), _joined(times), self._first, skipped,
            np.concatenate(self._numbers), self._place,
        )  # fmt: skip
        self._parts, self._numbers, self._held, self._given = [], [], 0, upto
        return rows


def _some(split: Split, taken: Array) -> tuple[Table, Array | None, Array | None]:
    """These rows of a piece; without a copy where they lie side by side."""
    key: slice | Array = taken
    if len(taken) == 0:
        key = slice(0, 0)
    elif taken[-1] - taken[0] + 1 == len(taken):
        key = slice(int(taken[0]), int(taken[-1]) + 1)
    return (
        split.X[key],
        None if split.y is None else split.y[key],
        None if split.time is None else split.time[key],
    )


def stacked(tables: tuple[Table, ...]) -> Table:
    """Tables one below the other; a column that one lacks is missing there."""
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.names)
    n = sum(len(table) for table in tables)
    columns = {}
    for name in names:
        parts = [t.columns[name] if name in t else np.full(len(t), np.nan) for t in tables]
        columns[name] = _end_to_end(parts)
    return Table(columns, n)


def _joined(arrays: tuple[Array | None, ...]) -> Array | None:
    given = [array for array in arrays if array is not None]
    return None if not given else _end_to_end(given)


def _end_to_end(parts: list[Array]) -> Array:
    """Arrays end to end. Those that were empty so far, nan, take the kind of the others."""
    if len(parts) == 1:
        return parts[0]
    if len({part.dtype.kind for part in parts}) > 1:
        kind = next(p.dtype.kind for p in parts if p.dtype.kind != "f" or not is_missing(p).all())
        parts = [p if p.dtype.kind == kind else absent(kind, len(p)) for p in parts]
    return np.concatenate(parts)
