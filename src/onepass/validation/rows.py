"""Rows: a block of a stream, of a request or of a call, from its reader to the learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from onepass.types import Array
from onepass.validation.table import Table, known_rows, missing_column


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Consecutive rows, with their targets.

    Parameters
    ----------
    X : Table or ndarray of shape (n, …)
        The features. Missing values are nan, None or NaT.
    y : ndarray of shape (n,) or (n, c), or None
        The targets: float64 for numbers, object (of str) for text labels. None if there is no
        target.
    weight : ndarray of shape (n,), optional
        Weight of each row.
    time : ndarray of shape (n,), optional
        Time of each row. For pending rows, the time at which the target arrives.
    first : int, default=0
        Position of the first row in the source, counted from 0 and including skipped rows. For an
        empty block: the position of the next row.
    skipped : int, default=0
        Number of rows skipped since the previous block, up to the last row of this block, because
        the target or, with ``missing="skip"``, a feature was missing. For the last block of a
        stream, up to the end of the source, so that the sum of ``len(rows) + rows.skipped`` over
        all blocks is the number of rows in the source.
    numbers : ndarray of int of shape (n,), optional
        Position of each row in the source, counted like ``first``, or -1 if it is unknown; by
        default consecutive.
    place : callable, optional
        Returns the location of a row as text, by its position.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import read
    >>> speeds, loads = np.arange(10.0)[:, None], np.where(np.arange(10) == 3, np.nan, 1.0)
    >>> [(len(rows), rows.first, rows.skipped) for rows in read((speeds, loads), block=4)]
    [(4, 0, 1), (4, 5, 0), (1, 9, 0)]
    """

    X: Any
    y: Any = None
    _: KW_ONLY
    weight: Array | None = None
    time: Array | None = None
    first: int = 0
    skipped: int = 0
    numbers: Array | None = None
    place: Callable[[int], str] | None = None

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, key: slice | Array) -> Rows:
        """Select rows by a slice, which returns a view, a mask or indices."""
        first, numbers = self.first, self.numbers
        if numbers is None and isinstance(key, slice):
            at = range(len(self))[key]
            first, numbers = first + at.start, None if at.step == 1 else first + np.array(at)
        else:
            numbers = self.positions[key]
            first = int(numbers[0]) if len(numbers) else first
        return Rows(
            self.X[key],
            None if self.y is None else self.y[key],
            weight=None if self.weight is None else self.weight[key],
            time=None if self.time is None else self.time[key],
            first=first,
            skipped=self.skipped,
            numbers=numbers,
            place=self.place,
        )

    @property
    def positions(self) -> Array:
        """Position of each row in the source."""
        if self.numbers is None:
            return np.arange(self.first, self.first + len(self))
        return self.numbers

    @property
    def labelled(self) -> Rows:
        """The rows of which no target is missing; the others count as skipped."""
        if self.y is None or (mask := known_rows(self.y)).all():
            return self
        return replace(self[mask], skipped=self.skipped + int(np.count_nonzero(~mask)))

    @property
    def keywords(self) -> dict[str, Array]:
        """Weights and times, if any, by the names of arguments of learners."""
        arguments = {"sample_weight": self.weight, "time": self.time}
        return {name: array for name, array in arguments.items() if array is not None}

    def located(self, i: int) -> str:
        """Return the location of row ``i`` of the block as text: the file and the row."""
        number = self.first + i if self.numbers is None else int(self.numbers[i])
        if number < 0:
            return "a row of an earlier run"
        return f"row {number:,} (counting from 0)" if self.place is None else self.place(number)


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows. Targets, weights and times are in all parts, or in none."""
    first = parts[0]
    if len(parts) == 1:
        return first
    inputs = [part.X for part in parts]
    table = isinstance(first.X, Table)
    return replace(
        first,
        X=concatenate_tables(inputs) if table else np.concatenate(inputs),
        y=_concatenate([part.y for part in parts]),
        weight=_concatenate([part.weight for part in parts]),
        time=_concatenate([part.time for part in parts]),
        skipped=sum(part.skipped for part in parts),
        numbers=_positions(parts),
    )


def _positions(parts: Sequence[Rows]) -> Array | None:
    """The positions of rows; None if they are consecutive."""
    ends = (part.first + len(part) for part in parts)
    adjacent = all(end == part.first for end, part in zip(ends, parts[1:], strict=False))
    if adjacent and all(part.numbers is None for part in parts):
        return None
    return np.concatenate([part.positions for part in parts])


def concatenate_tables(tables: Sequence[Table]) -> Table:
    """Concatenate tables by rows; columns that a table lacks are missing in its rows."""
    if len(tables) == 1:
        return tables[0]
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        parts = [t.columns[name] if name in t else np.full(len(t), np.nan) for t in tables]
        columns[name] = _concatenate(parts)
    return Table(columns, sum(map(len, tables)))


def _concatenate(parts: Sequence[Array | None]) -> Array | None:
    """Concatenate arrays; an array of only NaN takes the type of text or dates beside it."""
    arrays = [part for part in parts if part is not None]
    kind = next((array.dtype.kind for array in arrays if array.dtype.kind in "OM"), None)
    if kind is not None:
        arrays = [
            missing_column(kind, array.shape)
            if array.dtype.kind == "f" and np.isnan(array).all()
            else array
            for array in arrays
        ]
    return np.concatenate(arrays) if arrays else None
