"""Projection onto orthonormal columns whose length is the number of weights.

To read the columns of B (p × q) is what costs time, p · q numbers. Vectors G (p × n) are split
into what lies in their span and what does not, in two reads or, if need be, in three:

    C₁ = BᵀG                                                                   one read     (1)
    O = G − B C₁,   C₂ = BᵀO,   F = O + B D                                    one read     (2)
    O ← O − B C₂,   F = O + B D,   D some function of C = C₁ + C₂              one read     (3)

Twice is what floating point asks for where O is much shorter than G [1]. C₂ shows whether it is:
where ‖C₂‖ ≤ 4ε‖O‖, O is as orthogonal to the columns as (3) would make it, and with D of C₁ all is
done. Inner products are summed in float64 over pieces of so few numbers that in float32 too this
holds while O has a tenth of G's length. On a device, where the program would have to wait to see
C₂, (3) is always done.

In (2) and (3) the columns are read piece by piece, and used again while the processor has the piece
at hand; of one vector by compiled loops, where they are installed. C and D are small, in
float64. Columns of half precision are widened to float32 piece by piece: that they are orthonormal
to three digits only is mended by projecting twice.

On a CPU the pieces of tensors are multiplied with one vector by NumPy, which was measured a third
quicker on what lies in the cache, and with several by torch, a quarter quicker; threads take runs
of pieces each, all by NumPy.

[1] L. Giraud, J. Langou, M. Rozložník, J. van den Eshof, "Rounding error analysis of the classical
    Gram-Schmidt orthogonalization process", Numerische Mathematik 101, 2005.

The compiled loops do the same as NumPy and torch with fewer reads of memory: each piece is
subtracted, added and multiplied while it is in the cache.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg, native
from onepass.types import Array, ArrayOrTensor, Floats

__all__ = ["Projection", "Split", "into", "lengths", "served", "without"]


_RUN = 1 << 15  # numbers of a run: so many are not cut further for threads
_CODES = {np.dtype(np.float32): "f", np.dtype(np.float64): "d"}


def served(*arrays: ArrayOrTensor) -> bool:
    """Whether the compiled loops read these: NumPy's, number after number, of one type."""
    first = arrays[0]
    if native.loops is None or not isinstance(first, np.ndarray) or first.dtype not in _CODES:
        return False
    return all(each.flags.c_contiguous and each.dtype == first.dtype for each in arrays)


def into(rows: Array, g: Array, many: int) -> tuple[Floats, float]:
    """Their products with a vector (p,), (q,), and the square of its length.

    Parameters
    ----------
    rows : ndarray of shape (q, p)
    g : ndarray of shape (p,)
        Of the same type, one number after the other.
    many : int
        Threads.
    """
    loops: Any = native.loops
    code, shape = _CODES[rows.dtype], rows.shape

    def work(runs: Sequence[slice]) -> linalg.Sums:
        said = np.empty(len(rows))
        square = loops.into(code, *shape, *_ends(runs), rows, g, said)
        return said, square

    return linalg.sum_in_threads(work, _runs(rows), many)


def without(
    rows: Array, g: Array, c: Array, d: Array | None, many: int, rest: Array | None = None
) -> tuple[Any, Any, Floats, float]:
    """Rest = g + c rows, lifted = rest + d rows, rows rest, and the square of the rest's length.

    Parameters
    ----------
    rows : ndarray of shape (q, p)
    g : ndarray of shape (p,)
    c, d : ndarrays of shape (q,)
        Of the same type; without d, ``lifted`` is the rest itself.
    many : int
        Threads.
    rest : ndarray of shape (p,), optional
        Where to write it, g itself: then its products are not asked for, and are zero.
    """
    loops: Any = native.loops
    code, shape = _CODES[rows.dtype], rows.shape
    asked = rest is None
    c, d = np.ascontiguousarray(c), None if d is None else np.ascontiguousarray(d)
    rest = np.empty_like(g) if asked else rest
    lifted = None if d is None else np.empty_like(g)

    def work(runs: Sequence[slice]) -> linalg.Sums:
        said = np.zeros(len(rows))
        given = (rows, g, c, d, rest, lifted, said if asked else None)
        square = loops.without(code, *shape, *_ends(runs), *given)
        return said, square

    again, square = linalg.sum_in_threads(work, _runs(rows), many)
    return rest, rest if lifted is None else lifted, again, square


def lengths(rows: Array, many: int) -> Floats:
    """Their lengths, squared, (q,)."""
    loops: Any = native.loops
    code, shape = _CODES[rows.dtype], rows.shape

    def work(runs: Sequence[slice]) -> linalg.Sums:
        said = np.empty(len(rows))
        loops.lengths(code, *shape, *_ends(runs), rows, said)
        return (said,)

    (said,) = linalg.sum_in_threads(work, _runs(rows), many)
    squares: Floats = said
    return squares


def _runs(rows: Array) -> list[slice]:
    p = rows.shape[1]
    return [slice(i, min(i + _RUN, p)) for i in range(0, max(p, 1), _RUN)]


def _ends(runs: Sequence[slice]) -> tuple[int, int]:
    return runs[0].start, runs[-1].stop


Pieces = Sequence[slice]
Lift = Callable[[ArrayOrTensor], ArrayOrTensor]

_AT_HAND = 3 << 18  # bytes of columns that a processor's cache holds beside what is made of them
_ONCE_AT_HAND = 1 << 24  # the same, where nothing is used again
_TURNED_AT_ONCE = 1 << 25  # the same, of products of matrices: of narrow ones they are slow
_ON_DEVICE = 1 << 30  # bytes of a piece elsewhere, where each piece costs a wait
_SHORT = 2048  # numbers whose products may be summed in float32, before they are in float64
_WIDE = 8 * _SHORT  # the same, of a matrix and a vector, where more numbers are summed side by side
_SHARED = 1 << 24  # bytes of columns; fewer are read before a second thread is awake
_BLOCK = 64  # columns whose inner products with others are taken at once
_NARROW = 512  # numbers of each column in a piece, or so many times as many: others read slowly
_ORTHOGONAL = 4.0  # roundings by which O may be off the columns' complement, for its length
_SHARE = 0.05  # length of O for that of C₁; if it is less, (3) will have to be done


class Split(NamedTuple):
    """Vectors as what lies in the span of columns and what does not."""

    inside: Any
    """C (q, n), their coordinates, small."""
    outside: Any
    """O (p, n), orthogonal to the columns."""
    lifted: Any
    """F (p, n), O and what was made of the coordinates."""


class Projection:
    """Columns as the rows (q, p) of an array, to be read."""

    __slots__ = ("by_numpy", "near", "rows")

    def __init__(self, rows: ArrayOrTensor) -> None:
        self.rows = rows
        self.near = linalg.numpy_view(rows)
        self.by_numpy = True  # whether tensors that NumPy can read are read by it

    @property
    def few(self) -> bool:
        """Whether the columns are NumPy's to read, and lie in the cache: calls cost more then."""
        p = self.rows.shape[1]
        short = p <= _WIDE and p * self.rows.shape[0] * self.rows.itemsize <= _AT_HAND
        return short and not linalg.is_tensor(self.near)

    def split(self, G: ArrayOrTensor, lift: Lift | None = None) -> Split:
        """Vectors (p, n) as what lies in the span and what does not: (1) to (3)."""
        J = near = self._near(G.T)
        if not len(self.rows):
            empty = linalg.small(J.T[:0])
            return Split(empty, J.T, J.T)
        if len(J) == 1:
            J = linalg.numpy_view(J)[0]  # products of a matrix and a vector are quicker as such
        elif linalg.is_tensor(J) and linalg.thread_count(J) == 1:
            self.near, self.by_numpy = self.rows, False  # torch's products of matrices are quicker
        else:
            J = linalg.numpy_view(J)
        if J.ndim == 1 and self.few:
            C, rest = self.at_once(J)
            D = self._made(lift, C)
            lifted = rest if D is None else rest + linalg.like(D, rest) @ self.near
        else:
            C, rest, lifted = self._by_pieces(J, lift)
        outside, lifted = (linalg.like(_standing(each), near) for each in (rest, lifted))
        return Split(C.reshape(len(self.rows), -1), outside, lifted)

    def coordinates(self, G: ArrayOrTensor) -> Any:
        """BᵀG, small: (1)."""
        J = linalg.numpy_view(self._near(G.T))
        C, _ = self._into(J[0] if len(J) == 1 else J)
        return C.reshape(len(self.rows), -1)

    def gram(self) -> Any:
        """BᵀB, NumPy's."""
        q, end = len(self.rows), self.rows.shape[1]
        if end <= _SHORT and q <= _BLOCK and not linalg.is_tensor(self.near):
            rows = linalg.small(self.near)
            return rows @ rows.T

        def products(pieces: Pieces) -> linalg.Sums:
            total: Any = linalg.blank(linalg.small(self.rows[:, :1]), (q, q))
            total[:] = 0.0
            for piece in pieces:
                rows = self._wide(piece)
                for j in range(0, q, _BLOCK):  # what is above the diagonal is that below
                    total[j:, j : j + _BLOCK] += linalg.small(rows[j:] @ rows[j : j + _BLOCK].T)
            return (total,)

        pieces = [slice(i, i + _SHORT) for i in range(0, max(end, 1), _SHORT)]
        (total,) = linalg.sum_in_threads(products, pieces, self._many)
        below = np.tril(linalg.host(total))
        return below + np.tril(below, -1).T

    def squares(self) -> Any:
        """The columns' lengths, squared, NumPy's."""
        if served(self.near):
            return lengths(self.near, self._many)

        def sum_in_threads(pieces: Pieces) -> linalg.Sums:
            return (sum(linalg.host(_squares(self._read(piece))) for piece in pieces),)

        p = max(self.rows.shape[1], 1)
        pieces = [slice(i, i + _SHORT) for i in range(0, p, _SHORT)]
        return linalg.sum_in_threads(sum_in_threads, pieces, self._many)[0]

    def turn(self, T: ArrayOrTensor, onto: ArrayOrTensor) -> None:
        """B T of a small T (q, k), written as rows onto an array, B's own if k <= q."""
        turning = linalg.like(T, self._wide(slice(0, 0))).T

        def turn(pieces: Pieces) -> linalg.Sums:
            for piece in pieces:
                onto[:, piece] = linalg.like(turning @ self._wide(piece), onto)
            return ()

        linalg.sum_in_threads(turn, self._pieces(_TURNED_AT_ONCE, 1 << 20), self._many)

    def _near(self, J: ArrayOrTensor) -> Any:
        """Vectors as rows, in the precision that is computed in, on the columns' device."""
        return linalg.like(J, linalg.widened(self.rows[:0]))

    def _read(self, piece: slice) -> Any:
        """Those numbers of the columns, as they are computed with."""
        rows = linalg.widened(self.near[:, piece])
        return linalg.numpy_view(rows) if self.by_numpy else rows

    def _wide(self, piece: slice) -> Any:
        """The same for products of matrices, in which torch is quicker by itself.

        With more threads it would share each piece among them, and they wait for each other.
        """
        one = linalg.on_device(self.rows) or linalg.thread_count(self.rows) == 1
        return linalg.widened(self.rows[:, piece]) if one else self._read(piece)

    @property
    def _many(self) -> int:
        """How many threads share the reading: those of large tensors."""
        large = linalg.is_tensor(self.rows) and self.rows[:1].nbytes * len(self.rows) >= _SHARED
        return linalg.thread_count(self.rows) if large else 1

    def _swept(self, J: ArrayOrTensor) -> bool:
        """Whether the compiled loops read the columns for this: for one vector."""
        return J.ndim == 1 and served(self.near, J)

    def at_once(self, g: ArrayOrTensor) -> tuple[Any, Any]:
        """C (q,) and O (p,) of one vector g (p,), of columns that are :attr:`few`."""
        rows = self.near
        C = rows @ g
        rest = g - C @ rows
        again = rows @ rest
        rest -= again @ rows
        return linalg.small(C) + linalg.small(again), rest

    def _by_pieces(self, J: ArrayOrTensor, lift: Lift | None) -> tuple[Any, Any, Any]:
        """C, O and F of vectors (n, p) or of one (p,), by (1) to (3)."""
        C, squares = self._into(J)
        once = self._once(C, squares)
        rest, lifted, again, left = self._without(J, C, self._made(lift, C) if once else None)
        if not (once and _orthogonal(again, left, linalg.rounding(rest))):
            C = C + again
            lifted = self._finished(rest, again, self._made(lift, C))
        return C, rest, lifted

    def _into(self, J: ArrayOrTensor) -> linalg.Sums:
        """(1), for vectors (n, p) or one (p,), and their lengths squared."""
        if self._swept(J):
            return into(self.near, J, self._many)

        def products(pieces: Pieces) -> linalg.Sums:
            total, squares = 0.0, 0.0
            for piece in pieces:
                here = J[..., piece]
                total = total + linalg.small(self._read(piece) @ _across(here))
                squares = squares + _squares(here)
            return total, squares

        return linalg.sum_in_threads(products, self._pieces(_ONCE_AT_HAND), self._many)

    def _once(self, C: ArrayOrTensor, squares: ArrayOrTensor | float) -> bool:
        """Whether (2) may well be all: nothing that a device would have to be waited for."""
        if self.rows[:1].nbytes * len(self.rows) < _AT_HAND or self.rows.itemsize < 4:
            return False  # a third read of what lies in the cache costs less than to ask
        if linalg.on_device(self.rows):
            return False
        inside = (C * C).sum(axis=0)
        return bool((squares - inside > _SHARE**2 * inside).all())

    def _made(self, lift: Lift | None, C: ArrayOrTensor) -> Any:
        """D of C, in the shape of C."""
        return None if lift is None else lift(C.reshape(len(self.rows), -1)).reshape(C.shape)

    def _without(
        self, J: ArrayOrTensor, C: ArrayOrTensor, D: ArrayOrTensor | None
    ) -> tuple[Any, Any, Any, Any]:
        """(2): O so far, F of it, C₂, and the lengths of O squared."""
        if self._swept(J):
            c, d = linalg.like(-C, J), None if D is None else linalg.like(D, J)
            return without(self.near, J, c, d, self._many)
        rest = linalg.blank(J)
        lifted = rest if D is None else linalg.blank(J)
        c, d = (None if each is None else _across(linalg.like(each, J)) for each in (-C, D))

        def project(pieces: Pieces) -> linalg.Sums:
            total, squares = 0.0, 0.0
            for piece in pieces:
                rows, left = self._read(piece), rest[..., piece]
                linalg.add(J[..., piece], c, rows, left)
                if d is not None:
                    linalg.add(left, d, rows, lifted[..., piece])
                total = total + linalg.small(rows @ _across(left))
                squares = squares + _squares(left)
            return total, squares

        again, squares = linalg.sum_in_threads(project, self._pieces(), self._many)
        return rest, lifted, again, squares

    def _finished(self, rest: ArrayOrTensor, again: ArrayOrTensor, D: ArrayOrTensor | None) -> Any:
        """(3): O in place, and F."""
        c = _across(linalg.like(-again, rest))
        d = None if D is None else _across(linalg.like(D, rest))
        if self._swept(rest):
            return without(self.near, rest, c, d, self._many, rest=rest)[1]
        lifted = rest if D is None else linalg.blank(rest)

        def project(pieces: Pieces) -> linalg.Sums:
            for piece in pieces:
                rows, left = self._read(piece), rest[..., piece]
                linalg.add(left, c, rows, left)
                if d is not None:
                    linalg.add(left, d, rows, lifted[..., piece])
            return ()

        linalg.sum_in_threads(project, self._pieces(), self._many)
        return lifted

    def _pieces(self, bytes_at_hand: int = _AT_HAND, most: int = _WIDE) -> Pieces:
        """Slices of p, as wide as can be kept at hand."""
        each = max(len(self.rows), 1) * max(self.rows.itemsize, 4)
        width = min(max(bytes_at_hand // each // _NARROW, 1) * _NARROW, most)
        if linalg.on_device(self.rows):
            width = _ON_DEVICE // each
        return [slice(i, i + width) for i in range(0, max(self.rows.shape[1], 1), width)]


def _squares(vectors: ArrayOrTensor) -> Any:
    """The sums of squares of a piece of rows (n, k), or of one (k,); 0 where none is asked for."""
    if linalg.is_tensor(vectors):
        return 0.0 if linalg.on_device(vectors) else linalg.small((vectors * vectors).sum(-1))
    with np.errstate(over="ignore"):  # then it is infinite, and :func:`_orthogonal` says no
        if vectors.ndim == 1:
            return float(vectors @ vectors)
        return np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)


def _orthogonal(again: ArrayOrTensor, squares: ArrayOrTensor | float, rounding: float) -> bool:
    """Whether O is orthogonal to the columns as it is, by C₂; not if its squares overflowed."""
    off = (_ORTHOGONAL * rounding) ** 2 * squares
    return bool(((again * again).sum(axis=0) <= off).all() and np.isfinite(off).all())


def _across(vectors: ArrayOrTensor) -> Any:
    """Rows as columns; one vector as it is."""
    return vectors if vectors.ndim == 1 else vectors.T


def _standing(vectors: ArrayOrTensor) -> Any:
    """Rows (n, p), or one vector (p,), as columns (p, n)."""
    return vectors[:, None] if vectors.ndim == 1 else vectors.T
