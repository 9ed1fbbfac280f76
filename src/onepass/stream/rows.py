"""Rows: one block of a stream, as the learners take it."""

from collections.abc import Callable
from dataclasses import dataclass

from onepass.errors import Array
from onepass.validation.table import Table

__all__ = ["Rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Consecutive rows of a stream, with their answers.

    Parameters
    ----------
    X : Table
        The features: n rows. A missing value is nan, None or NaT, as in every table.
    y : ndarray of shape (n,) or (n, c), or None
        The answers: float64 where they are numbers, object (of str) where they are text labels.
        None where the stream has no target.
    time : ndarray of shape (n,), or None
        When each row happened, where the stream was told which column says so.
    first : int
        Where the block's first row stands in the source, counting from 0 and counting skipped
        rows too. For an empty block: where the next row would have stood.
    skipped : int
        Rows left out, because their answer was missing or, if the stream was told so, one of
        their features: those passed over after the block before,
        up to this block's last row; in a stream's last block, up to the end of the source.
        So over a whole stream ``sum(len(rows) + rows.skipped)`` is the number of rows in the
        source.
    numbers : ndarray of int of shape (n,), or None
        Where each row stands in the source, counted as ``first`` is.
    place : callable or None
        Says in words where a row of the source stands, by that number.

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
        """Where a row of the block stands, in words: the file, and its row there."""
        if self.numbers is None or self.place is None:
            return f"row {self.first + i} (counting from 0)"
        return self.place(int(self.numbers[i]))

    def __len__(self) -> int:
        return len(self.X)
