"""Projection onto orthonormal columns whose length is the number of weights.

Reading the columns of B (p × q), p · q numbers, dominates the cost. Vectors G (p × n) are split
into the part in their span and the part outside, in two or, if necessary, three reads:

    C₁ = BᵀG                                                                   one read     (1)
    O = G − B C₁,   C₂ = BᵀO,   F = O + B D                                    one read     (2)
    O ← O − B C₂,   F = O + B D,   D some function of C = C₁ + C₂              one read     (3)

Floating point requires the second projection if O is much shorter than G [1]. C₂ shows whether it
does: if ‖C₂‖ ≤ 4ε‖O‖, O is as orthogonal to the columns as (3) would make it, and (3) is skipped,
with D computed from C₁. Inner products are summed in float64 over pieces so short that this also
holds in float32 while O has at least a tenth of G's length. On an accelerator, where reading C₂
would synchronize, (3) is always computed.

In (2) and (3) the columns are processed piece by piece, and each piece is reused while it is in
the cache; for one vector by compiled loops, if they are installed. C and D are small, in float64.
Columns of half precision are converted to float32 piece by piece: they are orthonormal to three
digits only, which projecting twice corrects.

On a CPU, NumPy multiplies the pieces of tensors with one vector, which was measured a third faster
in the cache, and PyTorch multiplies them with several vectors, a quarter faster; with several
threads, each thread processes a run of pieces with NumPy.

[1] L. Giraud, J. Langou, M. Rozložník, J. van den Eshof, "Rounding error analysis of the classical
    Gram-Schmidt orthogonalization process", Numerische Mathematik 101, 2005.

The compiled loops compute the same as NumPy and PyTorch with fewer memory accesses: each piece is
subtracted, added and multiplied while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg, native
from onepass.types import Array, ArrayOrTensor, Floats

_RUN = 1 << 15  # numbers of a run, the smallest unit of work of a thread
_CODES = {np.dtype(np.float32): "f", np.dtype(np.float64): "d"}


def is_supported(*arrays: ArrayOrTensor) -> bool:
    """Whether the compiled loops accept arrays: C-contiguous NumPy arrays of one float type."""
    first = arrays[0]
    if native.loops is None or not isinstance(first, np.ndarray) or first.dtype not in _CODES:
        return False
    return all(each.flags.c_contiguous and each.dtype == first.dtype for each in arrays)


def matvec(rows: Array, g: Array, threads: int) -> tuple[Floats, float]:
    """The products of rows with a vector, (q,), and the squared length of the vector.

    Parameters
    ----------
    rows : ndarray of shape (q, p)
    g : ndarray of shape (p,)
        Contiguous, of the type of ``rows``.
    threads : int
    """
    loops: Any = native.loops
    code, shape = _CODES[rows.dtype], rows.shape

    def work(runs: Sequence[slice]) -> linalg.Sums:
        products = np.empty(len(rows))
        square = loops.into(code, *shape, *_ends(runs), rows, g, products)
        return products, square

    return linalg.sum_in_threads(work, _runs(rows), threads)


def residual(
    rows: Array, g: Array, c: Array, d: Array | None, threads: int, rest: Array | None = None
) -> tuple[Any, Any, Floats, float]:
    """Compute rest = g + c rows, lifted = rest + d rows, rows rest, and the squared length of rest.

    Parameters
    ----------
    rows : ndarray of shape (q, p)
    g : ndarray of shape (p,)
    c, d : ndarrays of shape (q,)
        Of the type of ``rows``; without d, ``lifted`` is ``rest``.
    threads : int
    rest : ndarray of shape (p,), optional
        The output array, which may be g. If given, the products are not computed, and are zero.
    """
    loops: Any = native.loops
    code, shape = _CODES[rows.dtype], rows.shape
    wants_products = rest is None
    c, d = np.ascontiguousarray(c), None if d is None else np.ascontiguousarray(d)
    rest = np.empty_like(g) if wants_products else rest
    lifted = None if d is None else np.empty_like(g)

    def work(runs: Sequence[slice]) -> linalg.Sums:
        products = np.zeros(len(rows))
        arrays = (rows, g, c, d, rest, lifted, products if wants_products else None)
        square = loops.without(code, *shape, *_ends(runs), *arrays)
        return products, square

    again, square = linalg.sum_in_threads(work, _runs(rows), threads)
    return rest, rest if lifted is None else lifted, again, square


def squared_lengths(rows: Array, threads: int) -> Floats:
    """The squared lengths of rows, (q,)."""
    loops: Any = native.loops
    code, shape = _CODES[rows.dtype], rows.shape

    def work(runs: Sequence[slice]) -> linalg.Sums:
        products = np.empty(len(rows))
        loops.lengths(code, *shape, *_ends(runs), rows, products)
        return (products,)

    (products,) = linalg.sum_in_threads(work, _runs(rows), threads)
    squares: Floats = products
    return squares


def _runs(rows: Array) -> list[slice]:
    p = rows.shape[1]
    return [slice(i, min(i + _RUN, p)) for i in range(0, max(p, 1), _RUN)]


def _ends(runs: Sequence[slice]) -> tuple[int, int]:
    return runs[0].start, runs[-1].stop


Pieces = Sequence[slice]
Lift = Callable[[ArrayOrTensor], ArrayOrTensor]

_CACHE_BYTES = 3 << 18  # bytes of columns that fit in the cache together with results
_SINGLE_PASS_BYTES = 1 << 24  # bytes of a piece that is read only once
_ROTATED_BYTES = 1 << 25  # bytes of a piece of a product of matrices, which is slow if narrow
_DEVICE_BYTES = 1 << 30  # bytes of a piece on an accelerator
_SHORT = 2048  # numbers whose products may be summed in float32
_WIDE = 8 * _SHORT  # numbers in products of a matrix and a vector, whose sums are vectorized
_SHARED = 1 << 24  # bytes of columns; below this one thread is faster
_BLOCK = 64  # columns per product of the Gram matrix
_NARROW = 512  # the width of a piece is a multiple of this
_ORTHOGONAL = 4.0  # tolerance of the orthogonality of O, in roundings of its length
_SHARE = 0.05  # ratio of the lengths of O and C₁ below which (3) is needed


class Split(NamedTuple):
    """Vectors, split into the part in the span of columns and the part outside."""

    inside: Any
    """C (q, n), their coordinates, small."""
    outside: Any
    """O (p, n), orthogonal to the columns."""
    lifted: Any
    """F (p, n), O plus B D for a function D of the coordinates."""


class Projection:
    """Projection onto orthonormal columns, stored as the rows (q, p) of an array."""

    __slots__ = ("by_numpy", "near", "rows")

    def __init__(self, rows: ArrayOrTensor) -> None:
        self.rows = rows
        self.near = linalg.numpy_view(rows)
        self.by_numpy = True  # whether CPU tensors are processed with NumPy

    @property
    def fits_cache(self) -> bool:
        """Whether the columns are NumPy arrays that fit in the cache, so that calls dominate."""
        p = self.rows.shape[1]
        short = p <= _WIDE and p * self.rows.shape[0] * self.rows.itemsize <= _CACHE_BYTES
        return short and not linalg.is_tensor(self.near) and not linalg.is_split()

    def split(self, G: ArrayOrTensor, lift: Lift | None = None) -> Split:
        """Split vectors (p, n) into the part in the span and the part outside: (1) to (3)."""
        J = near = self._near(G.T)
        if not len(self.rows):
            empty = linalg.small(J.T[:0])
            return Split(empty, J.T, J.T)
        if len(J) == 1:
            J = linalg.numpy_view(J)[0]  # products with a vector are faster than with a matrix
        elif linalg.is_tensor(J) and linalg.thread_count(J) == 1:
            self.near, self.by_numpy = self.rows, False  # PyTorch's products of matrices are faster
        else:
            J = linalg.numpy_view(J)
        if J.ndim == 1 and self.fits_cache:
            C, rest = self.split_vector(J)
            D = self._lift(lift, C)
            lifted = rest if D is None else rest + linalg.like(D, rest) @ self.near
        else:
            C, rest, lifted = self._by_pieces(J, lift)
        outside, lifted = (linalg.like(_as_columns(each), near) for each in (rest, lifted))
        return Split(C.reshape(len(self.rows), -1), outside, lifted)

    def coordinates(self, G: ArrayOrTensor) -> Any:
        """BᵀG, small: (1)."""
        J = linalg.numpy_view(self._near(G.T))
        C, _ = self._products(J[0] if len(J) == 1 else J)
        return C.reshape(len(self.rows), -1)

    def gram(self) -> Any:
        """BᵀB, as a NumPy array."""
        q, end = len(self.rows), self.rows.shape[1]
        if end <= _SHORT and q <= _BLOCK and not linalg.is_tensor(self.near):
            rows = linalg.small(self.near)
            return linalg.summed(rows @ rows.T)[0]

        def products(pieces: Pieces) -> linalg.Sums:
            total: Any = linalg.blank(linalg.small(self.rows[:, :1]), (q, q))
            total[:] = 0.0
            for piece in pieces:
                rows = self._wide(piece)
                for j in range(0, q, _BLOCK):  # by symmetry
                    total[j:, j : j + _BLOCK] += linalg.small(rows[j:] @ rows[j : j + _BLOCK].T)
            return (total,)

        pieces = [slice(i, i + _SHORT) for i in range(0, max(end, 1), _SHORT)]
        (total,) = linalg.summed(*linalg.sum_in_threads(products, pieces, self._threads))
        below = np.tril(linalg.host(total))
        return below + np.tril(below, -1).T

    def squares(self) -> Any:
        """The squared lengths of the columns, as a NumPy array."""
        if is_supported(self.near):
            return linalg.summed(squared_lengths(self.near, self._threads))[0]

        def sum_in_threads(pieces: Pieces) -> linalg.Sums:
            return (sum(linalg.host(_squares(self._read(piece))) for piece in pieces),)

        p = max(self.rows.shape[1], 1)
        pieces = [slice(i, i + _SHORT) for i in range(0, p, _SHORT)]
        return linalg.summed(*linalg.sum_in_threads(sum_in_threads, pieces, self._threads))[0]

    def turn(self, T: ArrayOrTensor, onto: ArrayOrTensor) -> None:
        """Write B T for a small T (q, k), as rows, to an array, which may be B's if k <= q."""
        turning = linalg.like(T, self._wide(slice(0, 0))).T

        def turn(pieces: Pieces) -> linalg.Sums:
            for piece in pieces:
                onto[:, piece] = linalg.like(turning @ self._wide(piece), onto)
            return ()

        linalg.sum_in_threads(turn, self._pieces(_ROTATED_BYTES, 1 << 20), self._threads)

    def _near(self, J: ArrayOrTensor) -> Any:
        """Vectors as rows, in the precision of the computation, on the device of the columns."""
        return linalg.like(J, linalg.widened(self.rows[:0]))

    def _read(self, piece: slice) -> Any:
        """A piece of the columns, in the precision of the computation."""
        rows = linalg.widened(self.near[:, piece])
        return linalg.numpy_view(rows) if self.by_numpy else rows

    def _wide(self, piece: slice) -> Any:
        """A piece of the columns for products of matrices, which PyTorch computes faster.

        With several threads PyTorch would split each piece among them, and synchronize for each.
        """
        one = linalg.on_device(self.rows) or linalg.thread_count(self.rows) == 1
        return linalg.widened(self.rows[:, piece]) if one else self._read(piece)

    @property
    def _threads(self) -> int:
        """The number of threads: more than one for large tensors only."""
        large = linalg.is_tensor(self.rows) and self.rows[:1].nbytes * len(self.rows) >= _SHARED
        return linalg.thread_count(self.rows) if large else 1

    def _compiled(self, J: ArrayOrTensor) -> bool:
        """Whether the compiled loops process these vectors: one vector only."""
        return J.ndim == 1 and is_supported(self.near, J)

    def split_vector(self, g: ArrayOrTensor) -> tuple[Any, Any]:
        """C (q,) and O (p,) of one vector g (p,), for columns that fit in the cache."""
        rows = self.near
        C = rows @ g
        rest = g - C @ rows
        again = rows @ rest
        rest -= again @ rows
        return linalg.small(C) + linalg.small(again), rest

    def _by_pieces(self, J: ArrayOrTensor, lift: Lift | None) -> tuple[Any, Any, Any]:
        """C, O and F of vectors (n, p) or of one (p,), by (1) to (3)."""
        C, squares = self._products(J)
        once = self._may_finish(C, squares)
        rest, lifted, again, left = self._residual(J, C, self._lift(lift, C) if once else None)
        if not (once and _orthogonal(again, left, linalg.rounding(rest))):
            C = C + again
            lifted = self._finished(rest, again, self._lift(lift, C))
        return C, rest, lifted

    def _products(self, J: ArrayOrTensor) -> linalg.Sums:
        """(1), for vectors (n, p) or one (p,), and their squared lengths."""
        if self._compiled(J):
            return linalg.summed(*matvec(self.near, J, self._threads))

        def products(pieces: Pieces) -> linalg.Sums:
            total, squares = 0.0, 0.0
            for piece in pieces:
                here = J[..., piece]
                total = total + linalg.small(self._read(piece) @ _transposed(here))
                squares = squares + _squares(here)
            return total, squares

        pieces = self._pieces(_SINGLE_PASS_BYTES)
        return linalg.summed(*linalg.sum_in_threads(products, pieces, self._threads))

    def _may_finish(self, C: ArrayOrTensor, squares: ArrayOrTensor | float) -> bool:
        """Whether (2) may suffice, decided without synchronization."""
        numbers = linalg.count_weights(self.rows.shape[1]) * len(self.rows)
        if numbers * self.rows.itemsize < _CACHE_BYTES or self.rows.itemsize < 4:
            return False  # a third read in the cache is cheaper than the test
        if linalg.on_device(self.rows):
            return False
        inside = (C * C).sum(axis=0)
        return bool((squares - inside > _SHARE**2 * inside).all())

    def _lift(self, lift: Lift | None, C: ArrayOrTensor) -> Any:
        """D of C, in the shape of C."""
        return None if lift is None else lift(C.reshape(len(self.rows), -1)).reshape(C.shape)

    def _residual(
        self, J: ArrayOrTensor, C: ArrayOrTensor, D: ArrayOrTensor | None
    ) -> tuple[Any, Any, Any, Any]:
        """(2): O so far, its F, C₂, and the squared lengths of O."""
        if self._compiled(J):
            c, d = linalg.like(-C, J), None if D is None else linalg.like(D, J)
            found = residual(self.near, J, c, d, self._threads)
            return *found[:2], *linalg.summed(*found[2:])
        rest = linalg.blank(J)
        lifted = rest if D is None else linalg.blank(J)
        c, d = (None if each is None else _transposed(linalg.like(each, J)) for each in (-C, D))

        def project(pieces: Pieces) -> linalg.Sums:
            total, squares = 0.0, 0.0
            for piece in pieces:
                rows, left = self._read(piece), rest[..., piece]
                linalg.add(J[..., piece], c, rows, left)
                if d is not None:
                    linalg.add(left, d, rows, lifted[..., piece])
                total = total + linalg.small(rows @ _transposed(left))
                squares = squares + _squares(left)
            return total, squares

        sums = linalg.sum_in_threads(project, self._pieces(), self._threads)
        again, squares = linalg.summed(*sums)
        return rest, lifted, again, squares

    def _finished(self, rest: ArrayOrTensor, again: ArrayOrTensor, D: ArrayOrTensor | None) -> Any:
        """(3): O in place, and F."""
        c = _transposed(linalg.like(-again, rest))
        d = None if D is None else _transposed(linalg.like(D, rest))
        if self._compiled(rest):
            return residual(self.near, rest, c, d, self._threads, rest=rest)[1]
        lifted = rest if D is None else linalg.blank(rest)

        def project(pieces: Pieces) -> linalg.Sums:
            for piece in pieces:
                rows, left = self._read(piece), rest[..., piece]
                linalg.add(left, c, rows, left)
                if d is not None:
                    linalg.add(left, d, rows, lifted[..., piece])
            return ()

        linalg.sum_in_threads(project, self._pieces(), self._threads)
        return lifted

    def _pieces(self, max_bytes: int = _CACHE_BYTES, max_width: int = _WIDE) -> Pieces:
        """Slices of p, as wide as the cache allows."""
        each = max(len(self.rows), 1) * max(self.rows.itemsize, 4)
        width = min(max(max_bytes // each // _NARROW, 1) * _NARROW, max_width)
        if linalg.on_device(self.rows):
            width = _DEVICE_BYTES // each
        return [slice(i, i + width) for i in range(0, max(self.rows.shape[1], 1), width)]


def _squares(vectors: ArrayOrTensor) -> Any:
    """The sums of squares of a piece of rows (n, k), or of one (k,); 0 on an accelerator."""
    if linalg.is_tensor(vectors):
        return 0.0 if linalg.on_device(vectors) else linalg.small((vectors * vectors).sum(-1))
    with np.errstate(over="ignore"):  # infinite; then :func:`_orthogonal` is False
        if vectors.ndim == 1:
            return float(vectors @ vectors)
        return np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)


def _orthogonal(again: ArrayOrTensor, squares: ArrayOrTensor | float, rounding: float) -> bool:
    """Whether O is orthogonal to the columns, by C₂; False if its squares overflowed."""
    off = (_ORTHOGONAL * rounding) ** 2 * squares
    return bool(((again * again).sum(axis=0) <= off).all() and np.isfinite(off).all())


def _transposed(vectors: ArrayOrTensor) -> Any:
    """Transpose a matrix of rows to columns; return one vector unchanged."""
    return vectors if vectors.ndim == 1 else vectors.T


def _as_columns(vectors: ArrayOrTensor) -> Any:
    """Convert rows (n, p), or one vector (p,), to columns (p, n)."""
    return vectors[:, None] if vectors.ndim == 1 else vectors.T
