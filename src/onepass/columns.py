"""Columns: orthonormal columns as long as there are weights, in one array with room for more.

Kept are the columns of B (p × q) as rows of one array, NumPy's or torch's, of any precision, on
any device. They are read as :mod:`onepass.reading` says.

A new column is written into the room behind the others, and what was there before stays as it
was: an object of before can still be used, and if columns are added to it again, they are added to
a copy. Torch's columns are large and have one user at a time: they are turned in place, which
leaves nothing of what was there before.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onepass import linalg
from onepass.reading import Reading, Split

__all__ = ["Columns", "Room", "Split"]

_ROUNDINGS = {4: 4.0, 8: 32.0}  # bytes of a number: by how many a square of length 1 may be off


class Room:
    """The array that columns lie in, and the first row of it that is free."""

    __slots__ = ("array", "end")

    def __init__(self, array: Any, end: int) -> None:
        self.array = array
        self.end = end


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """Orthonormal columns, as the rows of an array with room for more.

    Parameters
    ----------
    rows : array of shape (q, p)
        The columns: NumPy's, or torch's.
    room : int
        How many the array can hold.
    """

    rows: Any
    room: int = 0
    holder: Room = field(init=False, repr=False)
    first: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        array = self.rows
        if self.room > len(self.rows):
            array = _empty(linalg.kind(self.rows), self.room, self.rows.shape[1])
            array[: len(self.rows)] = self.rows
        self._set(array[: len(self.rows)], Room(array, len(self.rows)), 0)

    def __reduce__(self) -> Any:
        return Columns, (self.rows, self.room)

    @classmethod
    def start(cls, p: int, kind: Any, room: int = 0) -> "Columns":
        """No columns yet, of p numbers each, with room for so many.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        return cls(_empty(kind, 0, p), room)

    @classmethod
    def within(cls, holder: Room, first: int, end: int) -> "Columns":
        """Those columns of an array; what is behind them is free."""
        holder.end = end
        columns = object.__new__(cls)  # it is made for each row that is learned
        columns._set(holder.array[first:end], holder, first)
        return columns

    def _set(self, rows: Any, holder: Room, first: int) -> None:
        put = object.__setattr__
        put(self, "rows", rows)
        put(self, "room", int(holder.array.shape[0]))
        put(self, "holder", holder)
        put(self, "first", first)

    @property
    def matrix(self) -> Any:
        """B, (p, q)."""
        return self.rows.T

    @property
    def nbytes(self) -> int:
        """Bytes of the array, room for more included."""
        return int(self.room * self.rows.shape[1] * self.rows.itemsize)

    def __len__(self) -> int:
        return int(self.rows.shape[0])  # torch's own length is slow to tell

    # -- reading ---------------------------------------------------------------------------------

    def split(self, G: Any, lift: Callable[[Any], Any] | None = None) -> Split:
        """Vectors (p, n) as what lies in the span and what does not: see :mod:`onepass.reading`.

        Parameters
        ----------
        G : array of shape (p, n)
            Best the transpose of contiguous rows.
        lift : callable, optional
            Makes D (q, n) of C (q, n), both small; without it F is O.
        """
        return Reading(self.rows).split(G, lift)

    def coordinates(self, G: Any) -> Any:
        """BᵀG, small."""
        return Reading(self.rows).coordinates(G)

    def combined(self, M: Any) -> Any:
        """B M of a small M (q, k), long, (p, k)."""
        wide = linalg.widened(self.rows)
        return (linalg.like(M, wide).T @ wide).T

    def drifted(self) -> bool:
        """Whether their lengths say that they are orthonormal no more, but for a few roundings.

        On a device, and of half precision, they are said to be: to look costs no less than to mend.
        """
        few = _ROUNDINGS.get(self.rows.itemsize)
        if few is None or linalg.waits(self.rows):
            return True
        off = np.abs(Reading(self.rows).squares() - 1.0).max(initial=0.0)
        return not off < few * linalg.rounding(self.rows)

    def gram(self) -> Any:
        """BᵀB, NumPy's."""
        return Reading(self.rows).gram()

    # -- adding and leaving ----------------------------------------------------------------------

    def appended(self, new: Any) -> "Columns":
        """With more columns (p, k) at the end, written into the room there is."""
        end = self.first + len(self)
        taken = self.holder.end != end and not linalg.is_tensor(self.rows)
        columns = self
        if taken or end + new.shape[1] > self.room:
            columns = self.moved(len(self) + new.shape[1])
            end = len(self)
        near = linalg.like(new, columns.rows)
        for j in range(new.shape[1]):  # one by one: torch is slow to copy a matrix of one column
            columns.holder.array[end + j] = near[:, j]
        return Columns.within(columns.holder, columns.first, end + new.shape[1])

    def latest(self, m: int) -> "Columns":
        """The last m of them."""
        end = self.first + len(self)
        return self if len(self) <= m else Columns.within(self.holder, end - m, end)

    def zeros(self) -> list[int]:
        """Which of them are zero; a device is waited for, once."""
        largest = linalg.host(linalg.largest(self.rows)) if len(self) else np.zeros(0)
        return np.flatnonzero(largest == 0.0).tolist()

    def without(self, leaving: list[int]) -> "Columns":
        """Without some; the last ones take their places."""
        left, gone = len(self) - len(leaving), set(leaving)
        movers = [j for j in range(left, len(self)) if j not in gone]
        columns = self if linalg.is_tensor(self.rows) else self.moved(len(self))
        for hole, mover in zip((j for j in leaving if j < left), movers, strict=True):
            columns.rows[hole] = columns.rows[mover]
        return Columns.within(columns.holder, columns.first, columns.first + left)

    def turned(self, T: Any) -> "Columns":
        """B T of a small T (q, k), k <= q, piece by piece; torch's in place."""
        k, holder, first = T.shape[1], self.holder, self.first
        if not linalg.is_tensor(self.rows):
            holder, first = Room(np.empty((self.room, self.rows.shape[1]), self.rows.dtype), 0), 0
        Reading(self.rows).turn(T, holder.array[first : first + k])
        return Columns.within(holder, first, first + k)

    def moved(self, needed: int) -> "Columns":
        """The same at the front of an array that has room for so many: torch's own, if it has."""
        holder = self.holder
        free = linalg.is_tensor(self.rows) and self.first >= len(self)
        if not free or needed > len(holder.array):
            room = max(len(holder.array), needed + needed // 2 * (needed > len(holder.array)))
            holder = Room(_empty(linalg.kind(self.rows), room, self.rows.shape[1]), 0)
        holder.array[: len(self)] = self.rows
        return Columns.within(holder, 0, len(self))

    def grown(self, p: int) -> "Columns":
        """With new numbers at the end of every column, all zero."""
        wider = _empty(linalg.kind(self.rows), len(self), p)
        wider[:, : self.rows.shape[1]], wider[:, self.rows.shape[1] :] = self.rows, 0.0
        return Columns(wider, self.room)


def _empty(kind: Any, q: int, p: int) -> Any:
    """An array of whatever numbers, of a NumPy precision or of a tensor's kind."""
    numpys = isinstance(kind, (type, np.dtype))
    return np.empty((q, p), dtype=kind) if numpys else kind.new_empty((q, p))
