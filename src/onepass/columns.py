"""Columns: orthonormal columns as long as there are weights, in one array with room for more.

Kept are the columns of B (p × q) as rows of one array, NumPy's or torch's, of any precision, on
any device. What costs time is to read them, p · q numbers, so that vectors G (p × n) are split
into what lies in their span and what does not, in two reads or, if need be, in three:

    C₁ = BᵀG                                                                   one read     (1)
    O = G − B C₁,   C₂ = BᵀO,   F = O + B D                                    one read     (2)
    O ← O − B C₂,   F = O + B D,   D some function of C = C₁ + C₂              one read     (3)

Twice is what floating point asks for where O is much shorter than G [1]. C₂ shows whether it is:
where ‖C₂‖ ≤ 2ε‖O‖, O is as orthogonal to the columns as (3) would make it, and with D of C₁ all is
done. Inner products are summed in float64 over pieces of so few numbers that in float32 too this
holds while O has a tenth of G's length. On a device, where the program would have to wait to see
C₂, (3) is always done.

In (2) and (3) the columns are read piece by piece, and used again while the processor has the
piece at hand. C and D are small, in float64. Columns of half precision are widened to float32
piece by piece: that they are orthonormal to three digits only is mended by projecting twice.

A new column is written into the room behind the others, and what was there before stays as it
was: an object of before can still be used, and if columns are added to it again, they are added to
a copy. Torch's columns are large and have one user at a time: they are turned in place, which
leaves nothing of what was there before.

[1] L. Giraud, J. Langou, M. Rozložník, J. van den Eshof, "Rounding error analysis of the classical
    Gram-Schmidt orthogonalization process", Numerische Mathematik 101, 2005.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg

__all__ = ["Columns", "Room", "Split"]

_AT_HAND = 1 << 20  # bytes of columns that a processor's cache holds beside what is made of them
_ONCE_AT_HAND = 1 << 24  # the same, where nothing is used again
_ON_DEVICE = 1 << 30  # bytes of a piece elsewhere, where each piece costs a wait
_SHORT = 4096  # numbers whose products may be summed in float32, before they are in float64
_WIDE = 4 * _SHORT  # the same, of a matrix and a vector, where more numbers are summed side by side
_NARROW = 512  # numbers of each column in a piece, at least: shorter ones are read slowly
_ORTHOGONAL = 2.0  # roundings by which O may be off the columns' complement, for its length
_SHARE = 0.03  # length of O for that of C₁; if it is less, (3) will have to be done


class Split(NamedTuple):
    """Vectors as what lies in the span of columns and what does not."""

    inside: Any
    """C (q, n), their coordinates, small."""
    outside: Any
    """O (p, n), orthogonal to the columns."""
    lifted: Any
    """F (p, n), O and what was made of the coordinates."""


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
        columns = cls(holder.array[first:end])
        columns._set(columns.rows, holder, first)
        return columns

    def _set(self, rows: Any, holder: Room, first: int) -> None:
        given = {"rows": rows, "room": len(holder.array), "holder": holder, "first": first}
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @property
    def matrix(self) -> Any:
        """B, (p, q)."""
        return self.rows.T

    @property
    def nbytes(self) -> int:
        """Bytes of the array, room for more included."""
        return int(self.room * self.rows.shape[1] * self.rows.itemsize)

    def __len__(self) -> int:
        return len(self.rows)

    # -- reading ---------------------------------------------------------------------------------

    def split(self, G: Any, lift: Callable[[Any], Any] | None = None) -> Split:
        """Vectors (p, n) as what lies in the span and what does not: (1) to (3).

        Parameters
        ----------
        G : array of shape (p, n)
            Best the transpose of contiguous rows.
        lift : callable, optional
            Makes D (q, n) of C (q, n), both small; without it F is O.
        """
        J = self._near(G.T)
        if not len(self):
            empty = linalg.small(J.T[:0])
            return Split(empty, J.T, J.T)
        if len(J) == 1:
            J = J[0]  # products of a matrix and a vector are quicker as such
        C = self._into(J)
        once = self._once(J, C)
        rest, lifted, again = self._without(J, C, self._made(lift, C) if once else None)
        if not (once and _orthogonal(rest, again)):
            C = C + again
            lifted = self._finished(rest, again, self._made(lift, C))
        return Split(C.reshape(len(self), -1), _standing(rest), _standing(lifted))

    def coordinates(self, G: Any) -> Any:
        """BᵀG, small: (1)."""
        J = self._near(G.T)
        return self._into(J[0] if len(J) == 1 else J).reshape(len(self), -1)

    def combined(self, M: Any) -> Any:
        """B M of a small M (q, k), long, (p, k)."""
        wide = linalg.widened(self.rows)
        return (linalg.like(M, wide).T @ wide).T

    def gram(self) -> Any:
        """BᵀB, NumPy's."""
        none = self.rows[:, :0]
        total = linalg.small(none @ none.T)
        for i in range(0, self.rows.shape[1], _SHORT):
            rows = linalg.widened(self.rows[:, i : i + _SHORT])
            total = total + linalg.small(rows @ rows.T)
        return linalg.host(total)

    # -- adding and leaving ----------------------------------------------------------------------

    def appended(self, new: Any) -> "Columns":
        """With more columns (p, k) at the end, written into the room there is."""
        end = self.first + len(self)
        taken = self.holder.end != end and not linalg.is_tensor(self.rows)
        columns = self
        if taken or end + new.shape[1] > len(self.holder.array):
            columns = self.moved(len(self) + new.shape[1])
            end = len(self)
        stop = end + new.shape[1]
        columns.holder.array[end:stop] = linalg.like(new.T, columns.rows)
        return Columns.within(columns.holder, columns.first, stop)

    def latest(self, m: int) -> "Columns":
        """The last m of them."""
        end = self.first + len(self)
        return self if len(self) <= m else Columns.within(self.holder, end - m, end)

    def zeros(self) -> list[int]:
        """Which of them are zero; a device is waited for."""
        largest = [linalg.host(abs(row).max()).item() for row in self.rows]
        return [j for j, size in enumerate(largest) if size == 0.0]

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
        for piece in self._pieces():
            rows = linalg.widened(self.rows[:, piece])
            holder.array[first : first + k, piece] = linalg.like(T, rows).T @ rows
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

    # -- what stands behind them -----------------------------------------------------------------

    def _near(self, J: Any) -> Any:
        """Vectors as rows, in the precision that is computed in, on the columns' device."""
        return linalg.like(J, linalg.widened(self.rows[:0]))

    def _into(self, J: Any) -> Any:
        """(1), for vectors (n, p) or one (p,)."""
        total: Any = 0.0
        for piece in self._pieces(_ONCE_AT_HAND):
            rows = linalg.widened(self.rows[:, piece])
            total = total + linalg.small(rows @ _across(J[..., piece]))
        return total

    def _once(self, J: Any, C: Any) -> bool:
        """Whether (2) may well be all: nothing that a device would have to be waited for."""
        if linalg.waits(J) or self.rows.dtype != J.dtype:
            return False
        outside = linalg.norms(_standing(J)) ** 2 - (C * C).sum(axis=0)
        return bool((outside > _SHARE**2 * (C * C).sum(axis=0)).all())

    def _made(self, lift: Callable[[Any], Any] | None, C: Any) -> Any:
        """D of C, in the shape of C."""
        return None if lift is None else lift(C.reshape(len(self), -1)).reshape(C.shape)

    def _without(self, J: Any, C: Any, D: Any) -> tuple[Any, Any, Any]:
        """(2): O so far, F of it, and C₂."""
        rest, again = linalg.blank(J), 0.0
        lifted = rest if D is None else linalg.blank(J)
        c, d = (None if each is None else _across(linalg.like(each, J)) for each in (C, D))
        for piece in self._pieces():
            rows, left = linalg.widened(self.rows[:, piece]), rest[..., piece]
            linalg.add(J[..., piece], -1.0, c, rows, left)
            again = again + linalg.small(rows @ _across(left))
            if d is not None:
                linalg.add(left, 1.0, d, rows, lifted[..., piece])
        return rest, lifted, again

    def _finished(self, rest: Any, again: Any, D: Any) -> Any:
        """(3): O in place, and F."""
        c, d = (None if each is None else _across(linalg.like(each, rest)) for each in (again, D))
        lifted = rest if D is None else linalg.blank(rest)
        for piece in self._pieces():
            rows, left = linalg.widened(self.rows[:, piece]), rest[..., piece]
            linalg.add(left, -1.0, c, rows, left)
            if d is not None:
                linalg.add(left, 1.0, d, rows, lifted[..., piece])
        return lifted

    def _pieces(self, bytes_at_hand: int = _AT_HAND) -> Iterator[slice]:
        """Slices of p, as wide as can be kept at hand."""
        each = max(len(self), 1) * max(self.rows.itemsize, 4)
        width = min(max(bytes_at_hand // each, _NARROW), _WIDE)
        if linalg.waits(self.rows):
            width = _ON_DEVICE // each
        for i in range(0, self.rows.shape[1], width):
            yield slice(i, i + width)


def _orthogonal(rest: Any, again: Any) -> bool:
    """Whether O is orthogonal to the columns as it is, by C₂."""
    off = _ORTHOGONAL * linalg.rounding(rest) * linalg.norms(_standing(rest))
    return bool(((again * again).sum(axis=0) <= off**2).all())


def _empty(kind: Any, q: int, p: int) -> Any:
    """An array of whatever numbers, of a NumPy precision or of a tensor's kind."""
    numpys = isinstance(kind, (type, np.dtype))
    return np.empty((q, p), dtype=kind) if numpys else kind.new_empty((q, p))


def _across(vectors: Any) -> Any:
    """Rows as columns; one vector as it is."""
    return vectors if vectors.ndim == 1 else vectors.T


def _standing(vectors: Any) -> Any:
    """Rows (n, p), or one vector (p,), as columns (p, n)."""
    return vectors[:, None] if vectors.ndim == 1 else vectors.T
