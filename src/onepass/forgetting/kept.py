"""Kept: the rows of a sliding window, and the triangle of any of its ends without taking rows out.

To take a row out of a triangle loses digits. So none is: the window is two parts, as a queue made
of two stacks. Rows come into the *back*, whose triangle grows by QR. They leave from the *front*,
of which the triangles of its ends are known, built once from its last row to its first:

    T_b = triangle of the front's rows from b g on,    b = 0, 1, …                          (1)
    triangle of the window = QR of T_b, the rows left before b g, and the back's triangle   (2)

When the front is empty, the back becomes the front, about a new reference row. Each row is taken
in three times in all; every g ≥ p rows a triangle is kept, so that they need no more room than the
rows. Cost: O(p²) a row, O(p³) for (2), O(n p) memory for a window of n rows.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onepass import linalg
from onepass.errors import Array, Floats
from onepass.forgetting.joint import Joint, taken_in

__all__ = ["Kept", "Queue"]

_APART = 32  # rows between two triangles of the front, at least


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """Some rows, as they came.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    b : ndarray of shape (n, c)
        Answers relative to w₀.
    roots : ndarray of shape (n,)
        √s.
    time : ndarray of shape (n,), or None
    """

    X: Floats
    b: Floats
    roots: Floats
    time: Any

    def __len__(self) -> int:
        return len(self.X)

    def part(self, rows: slice | Array) -> "Kept":
        """Some of the rows."""
        time = None if self.time is None else self.time[rows]
        return Kept(self.X[rows], self.b[rows], self.roots[rows], time)

    def copied(self) -> "Kept":
        """These rows in memory of their own: a part of a block holds all of it."""
        time = None if self.time is None else self.time.copy()
        return Kept(self.X.copy(), self.b.copy(), self.roots.copy(), time)

    def then(self, more: "Kept") -> "Kept":
        """These rows and more."""
        if not len(self):
            return more
        return Kept(
            np.concatenate((self.X, more.X)),
            np.concatenate((self.b, more.b)),
            np.concatenate((self.roots, more.roots)),
            None if self.time is None else np.concatenate((self.time, more.time)),
        )

    def grown(self, d: int) -> "Kept":
        """The same with new features at the end, zero in every row."""
        return replace(self, X=np.hstack((self.X, np.zeros((len(self), d - self.X.shape[1])))))

    def with_outputs(self, at: Array, c: int) -> "Kept":
        """The same with new outputs at the columns ``at`` of now c, zero in every row."""
        b = np.zeros((len(self), c))
        b[:, np.setdiff1d(np.arange(c), at)] = self.b
        return replace(self, b=b)


@dataclass(frozen=True, eq=False, slots=True)
class Queue:
    """The rows of a window, and its triangles.

    Parameters
    ----------
    empty : Joint
        The penalty alone, about nothing.
    back : Joint
        The penalty and the rows of the back.
    came : tuple of Kept
        The rows of the back, in order; each part longer than the next.
    front : Kept
        The rows of the front.
    gone : int
        How many of them have left.
    ends : tuple of ndarrays of shapes (k, p, p), (k, p, c) and (k, c)
        R, z and squares of (1).
    """

    empty: Joint
    back: Joint
    came: tuple[Kept, ...]
    front: Kept
    gone: int
    ends: tuple[Floats, Floats, Floats]

    @classmethod
    def start(cls, empty: Joint) -> "Queue":
        """No rows."""
        p, c = empty.z.shape
        none = Kept(np.zeros((0, p - empty.free)), np.zeros((0, c)), np.zeros(0), None)
        return cls(empty, empty, (), none, 0, _ends(empty, none))

    def __len__(self) -> int:
        return self.ahead + sum(map(len, self.came))

    @property
    def ahead(self) -> int:
        """The rows that can leave before the front is empty."""
        return len(self.front) - self.gone

    @property
    def kept(self) -> Kept:
        """All rows, in order."""
        rows = self.front.part(slice(self.gone, None))
        for more in self.came:
            rows = rows.then(more)
        return rows

    @property
    def oldest(self) -> Any:
        """When the oldest row came; None where there is none."""
        if self.ahead:
            return self.front.time[self.gone]
        return self.came[0].time[0] if self.came else None

    def rows(self, n: int) -> tuple[Floats, Floats]:
        """The n oldest rows, all of the front, as a triangle takes them in."""
        part = self.front.part(slice(self.gone, self.gone + n))
        return self.back.rows(part.X, part.b, part.roots)

    def triangle(self, without: int = 0) -> Joint:
        """The triangle of all rows but some of the oldest, which must be in the front: (2)."""
        kept = self.front.part(slice(self.gone + without, None))
        parts = [kept, *self.came]
        mass = sum(float(part.roots @ part.roots) for part in parts)
        joint = replace(self.back, mass=mass)
        if not len(kept):
            return joint
        R, z, squares = self.ends
        apart = _apart(len(self.back.R))
        end = -(-(self.gone + without) // apart)
        before = kept.part(slice(0, end * apart - self.gone - without))
        A, b = self.back.rows(before.X, before.b, before.roots)
        if end < len(R):
            A, b = np.vstack((R[end], A)), np.vstack((z[end], b))
            joint = replace(joint, squares=joint.squares + squares[end])
        return taken_in(joint, A, b)

    def fresh(self) -> Joint:
        """The triangle computed from the rows of the window alone, relative to the newest row.

        It has no rounding errors of rows that have left, and constant features are exactly 0.
        """
        kept, empty = self.kept, self.empty
        if not len(kept):
            return empty
        joint = empty.around(kept.X[-1], kept.b[-1]).noting(kept.X)
        joint = replace(joint, mass=float(kept.roots @ kept.roots))
        return taken_in(joint, *joint.rows(kept.X, kept.b, kept.roots))

    def pushed(self, more: Kept) -> "Queue":
        """The same with more rows."""
        back = self.back if len(self) else self.empty.around(more.X[0], more.b[0])
        back = taken_in(back.noting(more.X), *back.rows(more.X, more.b, more.roots))
        came = (*self.came, more.copied())
        while len(came) > 1 and len(came[-2]) <= len(came[-1]):
            came = (*came[:-2], came[-2].then(came[-1]))
        return replace(self, back=back, came=came)

    def dropped(self, n: int) -> "Queue":
        """The same without the n oldest rows."""
        queue = self
        while n > queue.ahead:
            n -= queue.ahead
            queue = queue.turned()
        return replace(queue, gone=queue.gone + n)

    def turned(self) -> "Queue":
        """The same with the rows of the back as the front, about the last of them."""
        front = self.came[0]
        for more in self.came[1:]:
            front = front.then(more)
        back = self.empty.around(front.X[-1], front.b[-1]).noting(front.X)
        return Queue(self.empty, back, (), front, 0, _ends(back, front))

    def penalised(self, rows: Floats) -> "Queue":
        """The same with pseudo-rows (k, d) in the penalty, answered by w₀."""
        A = np.column_stack((np.zeros((len(rows), int(self.empty.free))), rows))
        b = np.zeros((len(rows), self.empty.z.shape[1]))
        return replace(self, empty=taken_in(self.empty, A, b), back=taken_in(self.back, A, b))

    def grown(self, d: int, ridge: float) -> "Queue":
        """The same with new features at the end, zero in every row so far."""
        return self._changed(lambda kept: kept.grown(d), lambda joint: joint.grown(d, ridge))

    def with_outputs(self, at: Array, c: int) -> "Queue":
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""
        return self._changed(
            lambda kept: kept.with_outputs(at, c), lambda joint: joint.with_outputs(at, c)
        )

    def _changed(self, kept: Any, joint: Any) -> "Queue":
        """The same after a change of every row and of the triangles."""
        front, back = kept(self.front.part(slice(self.gone, None))), joint(self.back)
        came = tuple(map(kept, self.came))
        return Queue(joint(self.empty), back, came, front, 0, _ends(back, front))

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return self.back.finite and linalg.finite(*self.ends)


def _apart(p: int) -> int:
    """Rows between two triangles of the front."""
    return max(_APART, p)


def _ends(about: Joint, front: Kept) -> tuple[Floats, Floats, Floats]:
    """The triangles (1), without the penalty."""
    p, c = about.z.shape
    apart = _apart(p)
    k = -(-len(front) // apart)
    R, z, squares = np.zeros((k, p, p)), np.zeros((k, p, c)), np.zeros((k, c))
    A, b = about.rows(front.X, front.b, front.roots)
    end: tuple[Floats, Floats, Floats] = (
        np.zeros((p, p), order="F"),
        np.zeros((p, c)),
        np.zeros(c),
    )
    for i in range(k - 1, -1, -1):
        rows = slice(i * apart, (i + 1) * apart)
        T, y, left = linalg.take_in(end[0], end[1], A[rows], b[rows])
        end = (T, y, end[2] + left)
        R[i], z[i], squares[i] = end
    return R, z, squares
