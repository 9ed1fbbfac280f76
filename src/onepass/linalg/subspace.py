"""The top m principal directions of a stream of vectors, with delayed rotation.

The state is the thin factorization of all vectors so far, weighted and truncated to rank m after
each step (the sequential Karhunen-Loève algorithm, [1] (8), [2]): with A ≈ U Σ Vᵀ and new columns
G,

    [A G] = [U u] [Σ  UᵀG] [V  ]ᵀ,      u h = G − U UᵀG                                     (1)
                  [0  h  ] [  I]
    [Σ UᵀG; 0 h] = Ũ Σ̃ Ṽᵀ,              U ← [U u] Ũ[:, :m],   Σ ← Σ̃[:m]                     (2)

without V. A sketch (Frequent Directions [3]) also subtracts the first dropped squared singular
value from all retained ones, so that none is overestimated:

    Σ² ← Σ̃[:m]² − Σ̃[m]²                                                                     (3)

Rotating U (p × m) at every step costs O(m² p). Instead, the state contains an orthonormal B
(p × q), m <= q <= 3m/2, and a small K (q × m) with U = B K: a step appends u to B and rotates K
only; when B is full, B is rotated too, by one matrix product. The subspace is the same to rounding,
at O(m p) per step. With two projections only, B drifts: by 1e-5 over 10⁴ steps of a few directions
in float32. So if the lengths of the columns of B differ from 1 by more than a few roundings when B
is rotated, as happens if they are not orthogonal, B is reorthogonalized with its Gram matrix: then
the drift stays within 1e-6.

A step removes a matrix Δ_t >= 0 from Σ g gᵀ, of rank n in (2): σ̃² ũ ũᵀ of each dropped direction.
The retained and the removed parts add up at every step, so that over all vectors g

    0 ≤ Σ g gᵀ − U Σ² Uᵀ ≤ D · I,  D = Σ over rotations of λmax (Σ Δ_t between two rotations) (4)

where the matrices between two rotations of B are summed in its coordinates: errors in different
directions do not add up, and D is a fraction of Σ λmax(Δ_t). Two subspaces merge by (1) with
G = U_b Σ_b; D is then the sum of the D of both and of the merge.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 3.2 and Algorithm 3.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.
[3] M. Ghashami, E. Liberty, J. M. Phillips, D. P. Woodruff, "Frequent Directions: Simple and
    Deterministic Matrix Sketching", SIAM Journal on Computing 45(5), 2016.

:class:`OrthonormalBasis` stores orthonormal columns with reserved space for more. The columns of B
(p × q) are the rows of one array, a NumPy array or a PyTorch tensor of any precision, on any
device. :mod:`onepass.linalg.projection` describes how they are read.

A new column is written to the free space behind the existing columns, which are not changed. So
earlier objects stay valid; a second column appended to an earlier object is appended to a copy.
Tensors are large and have one user at a time: they are rotated in place, which invalidates earlier
objects.

A single vector takes a path with fewer calls than a matrix of one column, with the same result:
the part in B outside U is computed once for ``split`` and ``added``, and no matrix is factorized.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.linalg.projection import Lift, Projection, Split
from onepass.types import ArrayOrTensor, Floats, Kind

_ROUNDINGS = {4: 4.0, 8: 32.0}  # by itemsize: tolerance of squared lengths, in roundings


class ColumnBuffer:
    """The array that columns are stored in, and its first free row."""

    __slots__ = ("array", "end")

    def __init__(self, array: ArrayOrTensor, end: int) -> None:
        self.array = array
        self.end = end


@dataclass(frozen=True, eq=False, slots=True)
class OrthonormalBasis:
    """Orthonormal columns, stored as the rows of an array with free space for more.

    Parameters
    ----------
    rows : array of shape (q, p)
        The columns, in a NumPy array or a tensor.
    capacity : int
        The maximum number of columns in the array.
    """

    rows: Any
    capacity: int = 0
    buffer: ColumnBuffer = field(init=False, repr=False)
    first: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        array = self.rows
        if self.capacity > len(self.rows):
            array = _empty(linalg.kind(self.rows), self.capacity, self.rows.shape[1])
            array[: len(self.rows)] = self.rows
        self._set(array[: len(self.rows)], ColumnBuffer(array, len(self.rows)), 0)

    def __reduce__(self) -> Any:
        return OrthonormalBasis, (self.rows, self.capacity)

    @classmethod
    def start(cls, p: int, kind: Kind, capacity: int = 0) -> OrthonormalBasis:
        """An empty basis of columns of p numbers, with reserved space.

        ``kind`` is a NumPy dtype, or a tensor of the desired precision and device.
        """
        return cls(_empty(kind, 0, p), capacity)

    @classmethod
    def within(cls, buffer: ColumnBuffer, first: int, end: int) -> OrthonormalBasis:
        """The columns ``first`` to ``end`` of a buffer; the space behind them is free."""
        buffer.end = end
        columns = object.__new__(cls)  # fast path, called for each learned row
        columns._set(buffer.array[first:end], buffer, first)
        return columns

    def _set(self, rows: ArrayOrTensor, buffer: ColumnBuffer, first: int) -> None:
        put = object.__setattr__
        put(self, "rows", rows)
        put(self, "capacity", int(buffer.array.shape[0]))
        put(self, "buffer", buffer)
        put(self, "first", first)

    @property
    def matrix(self) -> Any:
        """B, (p, q)."""
        return self.rows.T

    @property
    def nbytes(self) -> int:
        """Bytes of the array, free space included."""
        return int(self.capacity * self.rows.shape[1] * self.rows.itemsize)

    def __len__(self) -> int:
        return int(self.rows.shape[0])  # len() of a tensor is slow

    # -- reading ---------------------------------------------------------------------------------

    def split(self, G: ArrayOrTensor, lift: Lift | None = None) -> Split:
        """Split vectors (p, n) into the part in the span and the part outside.

        Parameters
        ----------
        G : array of shape (p, n)
            Preferably the transpose of contiguous rows.
        lift : callable, optional
            Computes D (q, n) from C (q, n), both small; without it F is O.
        """
        return Projection(self.rows).split(G, lift)

    def reorthogonalized(self, W: ArrayOrTensor) -> Any:
        """Unit vectors W (p, k), orthogonal to B but for rounding, such as differences of vectors.

        A vector that nearly depends on others of its block is normalised from a small difference,
        which amplifies rounding errors along B.
        """
        outside = self.split(W).outside
        return outside * linalg.like(1.0 / linalg.norms(outside), outside)

    def coordinates(self, G: ArrayOrTensor) -> Any:
        """BᵀG, small."""
        return Projection(self.rows).coordinates(G)

    def combined(self, M: ArrayOrTensor) -> Any:
        """B M of a small M (q, k), long, (p, k)."""
        wide = linalg.widened(self.rows)
        return (linalg.like(M, wide).T @ wide).T

    def drifted(self) -> bool:
        """Whether the lengths of the columns deviate from 1 by more than a few roundings.

        Always True on accelerators and in half precision: the check costs as much as the correction
        there.
        """
        few = _ROUNDINGS.get(self.rows.itemsize)
        if few is None or linalg.on_device(self.rows):
            return True
        off = np.abs(Projection(self.rows).squares() - 1.0).max(initial=0.0)
        return not off < few * linalg.rounding(self.rows)

    def gram(self) -> Any:
        """BᵀB, as a NumPy array."""
        return Projection(self.rows).gram()

    # -- adding and removing ---------------------------------------------------------------------

    def appended(self, new: ArrayOrTensor) -> OrthonormalBasis:
        """Append columns (p, k), written to the free space if there is enough."""
        end = self.first + len(self)
        occupied = self.buffer.end != end and not linalg.is_tensor(self.rows)
        columns = self
        if occupied or end + new.shape[1] > self.capacity:
            columns = self.moved(len(self) + new.shape[1])
            end = len(self)
        near = linalg.like(new, columns.rows)
        for j in range(new.shape[1]):  # one by one: PyTorch copies matrices of one column slowly
            columns.buffer.array[end + j] = near[:, j]
        return OrthonormalBasis.within(columns.buffer, columns.first, end + new.shape[1])

    def latest(self, m: int) -> OrthonormalBasis:
        """The last m columns."""
        end = self.first + len(self)
        return self if len(self) <= m else OrthonormalBasis.within(self.buffer, end - m, end)

    def zeros(self) -> list[int]:
        """The indices of columns that are zero; synchronizes an accelerator once."""
        largest = linalg.largest(self.rows) if len(self) else np.zeros(0)
        largest = linalg.host(linalg.summed(largest)[0])
        return np.flatnonzero(largest == 0.0).tolist()

    def without(self, leaving: list[int]) -> OrthonormalBasis:
        """Remove columns; the last ones take their places."""
        left, dropped = len(self) - len(leaving), set(leaving)
        movers = [j for j in range(left, len(self)) if j not in dropped]
        columns = self if linalg.is_tensor(self.rows) else self.moved(len(self))
        for hole, mover in zip((j for j in leaving if j < left), movers, strict=True):
            columns.rows[hole] = columns.rows[mover]
        return OrthonormalBasis.within(columns.buffer, columns.first, columns.first + left)

    def turned(self, T: ArrayOrTensor) -> OrthonormalBasis:
        """B T of a small T (q, k), k <= q, piece by piece; tensors in place."""
        k, buffer, first = T.shape[1], self.buffer, self.first
        if not linalg.is_tensor(self.rows):
            buffer, first = (
                ColumnBuffer(np.empty((self.capacity, self.rows.shape[1]), self.rows.dtype), 0),
                0,
            )
        Projection(self.rows).turn(T, buffer.array[first : first + k])
        return OrthonormalBasis.within(buffer, first, first + k)

    def moved(self, needed: int) -> OrthonormalBasis:
        """Copy the columns to the start of an array with space for ``needed`` columns.

        A tensor's own array is reused if there is enough free space before the columns.
        """
        buffer = self.buffer
        free = linalg.is_tensor(self.rows) and self.first >= len(self)
        if not free or needed > len(buffer.array):
            capacity = max(len(buffer.array), needed + needed // 2 * (needed > len(buffer.array)))
            buffer = ColumnBuffer(_empty(linalg.kind(self.rows), capacity, self.rows.shape[1]), 0)
        buffer.array[: len(self)] = self.rows
        return OrthonormalBasis.within(buffer, 0, len(self))

    def grown(self, p: int) -> OrthonormalBasis:
        """Append zeros to every column."""
        wider = _empty(linalg.kind(self.rows), len(self), p)
        wider[:, : self.rows.shape[1]], wider[:, self.rows.shape[1] :] = self.rows, 0.0
        return OrthonormalBasis(wider, self.capacity)


def _empty(kind: Kind, q: int, p: int) -> Any:
    """An uninitialized array of a NumPy dtype or of a tensor's kind."""
    if isinstance(kind, (type, np.dtype)):
        return np.empty((q, p), dtype=kind)
    return kind.new_empty((q, p))


@dataclass(frozen=True, eq=False, slots=True)
class Subspace:
    """Top principal directions and singular values of the vectors so far.

    Parameters
    ----------
    B : OrthonormalBasis
        q orthonormal columns of p numbers.
    K : ndarray of shape (q, k)
        Orthonormal columns, in float64; U = B K, k <= m.
    sigma : ndarray of shape (k,)
        Singular values, largest first.
    m : int
        The maximum number of directions.
    shrinks : bool
        Whether (3) is applied.
    closed : float
        D of (4) up to the last rotation.
    open : ndarray of shape (q, q)
        Σ Δ_t since the last rotation, in the coordinates of B.
    """

    B: OrthonormalBasis
    K: Floats
    sigma: Floats
    m: int
    shrinks: bool
    closed: float
    open: Floats

    @classmethod
    def start(
        cls, p: int, m: int, kind: Kind = np.float64, *, shrinks: bool = False, batch: int = 1
    ) -> Subspace:
        """The state before the first vector, for blocks of ``batch`` vectors of p numbers.

        ``kind`` is a NumPy dtype, or a tensor of the desired precision and device.
        """
        few = min(linalg.count_weights(p), m + max(_spare_columns(m), batch))
        columns = OrthonormalBasis.start(p, kind, few)
        return cls(columns, np.zeros((0, 0)), np.zeros(0), m, shrinks, 0.0, np.zeros((0, 0)))

    @property
    def rank(self) -> int:
        """k, the number of retained directions."""
        return len(self.sigma)

    @property
    def U(self) -> Any:  # noqa: N802  the symbol of the papers
        """The directions, (p, k), orthonormal."""
        return self.B.combined(self.K)

    @property
    def lost(self) -> float:
        """D of (4)."""
        return self.closed + _largest(self.open)

    @property
    def max_lost(self) -> float:
        """A cheaper upper bound of D of (4): ‖·‖_F in place of λmax since the last rotation."""
        return self.closed + float(linalg.length(self.open))

    def coordinates(self, G: ArrayOrTensor) -> Floats:
        """UᵀG, (k, n), without forming U."""
        inside: Floats = self.K.T @ linalg.host(self.B.coordinates(G))
        return inside

    def split(self, G: ArrayOrTensor, noise: float = 0.0) -> Split:
        """Vectors (p, n) in the coordinates of B; ``lifted`` is G − U diag(σ² / (σ² + r)) UᵀG.

        Without noise r it is G − U UᵀG, orthogonal to U. With noise, the part along U is computed
        separately, and a part outside U that is no longer than rounding is dropped, because it
        would be large relative to a variance of r / (σ² + r).
        """
        blur = linalg.blur(G, self.B.rows) if noise else 0.0

        def lift(C: ArrayOrTensor) -> Any:
            K = linalg.like(self.K, C)
            along = K.T @ C
            rest = C - K @ along
            rest = rest - K @ (K.T @ rest)
            if not noise:
                return rest
            known = (rest * rest).sum(axis=0) < blur**2 * (C * C).sum(axis=0)
            left = linalg.like(noise / (self.sigma**2 + noise), C)
            return rest * ~known + K @ (left[:, None] * along)

        found = self.B.split(G, lift)
        return self._without_rounding(found, blur, lift) if noise and len(self.B) else found

    def _without_rounding(self, found: Split, blur: float, lift: Lift) -> Split:
        """Drop parts outside B that are no longer than rounding."""
        inside, outside, lifted = found
        lengths = linalg.norms(outside)
        known = lengths < blur * ((inside * inside).sum(axis=0) + lengths * lengths) ** 0.5
        if linalg.on_device(outside):
            dropped = outside * linalg.like(known, outside)
            return Split(inside, outside - dropped, lifted - dropped)
        for j in np.flatnonzero(known):
            outside[:, j] = 0.0
            lifted[:, j] = linalg.like(self.B.combined(lift(inside)[:, j : j + 1]), lifted)[:, 0]
        return found

    def added(self, G: ArrayOrTensor, split: Split | None = None) -> Subspace:
        """Add the columns of G as one block: (1) to (3).

        ``split`` is the result of :meth:`split` for G, if it was computed before.
        """
        B, K, C = self._with_new_directions(G, split or self.B.split(G))
        a, outside, height = _outside(K, C)
        least = linalg.rounding(G) * math.sqrt(linalg.count_weights(len(G)))
        K = np.concatenate((K, outside), axis=1)
        return self.rotated(B, K, np.concatenate((a, height)), least)

    def merged(self, other: Subspace) -> Subspace:
        """The subspace of the vectors of both subspaces, of the rank of this one: (1) to (4)."""
        both = self.added(linalg.times(other.U, np.diag(other.sigma)))
        return replace(both, closed=both.closed + other.lost)

    def joined(self, v: ArrayOrTensor) -> Subspace:
        """Add v (p, 1), of which only the part outside the subspace counts.

        Then UᵀG = 0 in (2): the matrix is diagonal, and its SVD only sorts it. v is added with its
        length as singular value, and the smallest singular value beyond m is dropped. A v inside
        the subspace is ignored.
        """
        B, K, C = self._with_new_directions(v, self.B.split(v))
        _, outside, height = _outside(K, C)
        largest = max(self.sigma.max(initial=0.0), float(linalg.norms(C)[0]))
        least = 4.0 * linalg.rounding(v) * math.sqrt(linalg.count_weights(len(v))) * largest
        if not np.abs(height).max(initial=0.0) > least:
            return self
        sigma = np.append(self.sigma, np.abs(height))
        order = np.argsort(-sigma, kind="stable")
        return self._truncated(B, np.hstack((K, outside))[:, order], sigma[order], len(order), 1)

    def rotated(self, B: OrthonormalBasis, K: Floats, Z: Floats, least: float) -> Subspace:
        """Add vectors that are given in coordinates: (2), (3).

        Parameters
        ----------
        B : OrthonormalBasis
            The basis of this subspace with new columns appended.
        K : ndarray of shape (q, k + j)
            U and the new directions, in the coordinates of B.
        Z : ndarray of shape (k + j, n)
            The vectors, in the coordinates of K.
        least : float
            The share of the largest singular value that is rounding.

        Returns
        -------
        after : Subspace
            If B is a tensor and was rotated, this one is no longer valid.

        Raises
        ------
        LinAlgError
            If numbers overflowed; nothing is written then.
        """
        d = np.zeros(len(Z))
        d[: self.rank] = self.sigma
        inner, sigma = linalg.bordered_svd(d, Z)
        rank = int(np.count_nonzero(sigma > least * sigma[0])) if len(sigma) else 0
        return self._truncated(B, K @ inner, sigma, rank, Z.shape[1])

    def _truncated(
        self, B: OrthonormalBasis, K: Floats, sigma: Floats, rank: int, n: int
    ) -> Subspace:
        """Retain the first m of these directions; rotate B if it has no space for n more."""
        k, q = min(self.m, rank), len(self.open)
        left: Any = sigma[:k]
        dropped: Any = K[:, k:] * sigma[k:]
        if self.shrinks and k < len(sigma):
            left = np.sqrt(np.maximum(left**2 - sigma[k] ** 2, 0.0))
            squares = sigma**2
            squares[:k] -= left**2
            dropped = K * np.sqrt(np.maximum(squares, 0.0))
            k = int((left > 0.0).sum())
        summed = dropped @ dropped.T
        summed[:q, :q] += self.open
        retained = np.ascontiguousarray(K[:, :k])
        new = Subspace(B, retained, left[:k].copy(), self.m, self.shrinks, self.closed, summed)
        p = linalg.count_weights(B.matrix.shape[0])
        full = len(B) + n > min(self.m + max(_spare_columns(self.m), n), p)
        return new.turned() if full and len(B) > k else new

    def turned(self) -> Subspace:
        """The same subspace with B = U, reorthogonalized if it has drifted."""
        T, sigma = self.K, self.sigma
        if self.B.drifted():
            L, _ = linalg.ordered_cholesky(self.B.gram(), np.zeros(len(self.B)))
            inner, sigma = linalg.svd(L.T @ (self.K * self.sigma))
            T = linalg.solve_lower_transposed(L, inner)
        k, lost = len(sigma), self.lost
        K, none = np.eye(k), np.zeros((k, k))  # nothing may raise after B is overwritten
        return Subspace(self.B.turned(T), K, sigma, self.m, self.shrinks, lost, none)

    def grown(self, p: int) -> Subspace:
        """Append zeros to every vector."""
        return replace(self, B=self.B.grown(p))

    def _with_new_directions(
        self, G: ArrayOrTensor, split: Split
    ) -> tuple[OrthonormalBasis, Floats, Floats]:
        """B with the new directions of G; K and G in the coordinates of this B."""
        lengths = linalg.norms(split.outside)
        whole = (split.inside * split.inside).sum(axis=0) + lengths * lengths
        p = linalg.count_weights(len(G))
        least = 4.0 * linalg.rounding(G) * (p * whole) ** 0.5
        W, L, retained = linalg.orthonormal(split.outside, least, lengths)
        inside, height, new, sizes = linalg.all_to_numpy(
            split.inside, L, retained, lengths
        )  # the only synchronization
        retained = np.flatnonzero(new)[: p - len(self.B)]
        if not len(retained):
            return self.B, self.K, inside
        W = W if len(retained) == W.shape[1] else W[:, retained]
        if (np.diagonal(height)[retained] < _NEAR * sizes[retained]).any():
            W = self.B.reorthogonalized(W)
        B = self.B.appended(W)
        K = np.zeros((len(B), self.rank))
        K[: len(self.K)] = self.K
        return B, K, np.concatenate((inside, height[:, retained].T))


def _spare_columns(m: int) -> int:
    """The number of columns of B beyond m: more cost longer reads, fewer more rotations."""
    return (m + 1) // 2


def _largest(S: Floats) -> float:
    """λmax of a small symmetric matrix, 0 if it is empty."""
    return float(np.linalg.eigvalsh(S)[-1]) if len(S) and S.any() else 0.0


def _outside(K: Floats, C: Floats) -> tuple[Floats, Floats, Floats]:
    """C = K a + Q h, with Q orthonormal and orthogonal to K."""
    a = K.T @ C
    rest = C - K @ a
    again = K.T @ rest
    rest = rest - K @ again
    if rest.shape[1] == 1:  # no factorization is needed
        h = linalg.norms(rest)[:, None]
        return a + again, rest / (h + (h == 0.0)), h
    Q, h = np.linalg.qr(rest)
    return a + again, Q, h


_NEAR = 1e-2  # share of a vector outside B that is not along earlier columns of its block
_SQUARED = {4: 1e18, 8: 1e140}  # by itemsize: lengths whose squares are finite


class RankOneStep(NamedTuple):
    """The effect of one vector on a subspace."""

    free: Any
    """G − U diag(σ² / (σ² + r)) Uᵀg, (p,)."""
    length: float
    """‖g − U Uᵀg‖."""
    whole: float
    """‖g‖."""
    after: Callable[[], Subspace]
    """The subspace after the vector; the subspace before the vector may be overwritten."""


def rank_one_step(space: Subspace, g: Floats, noise: float = 0.0) -> RankOneStep | None:
    """The step of one vector; None if the basis is too large for this to be the fastest path.

    Parameters
    ----------
    space : Subspace
    g : ndarray of shape (p,)
        In the precision of the columns.
    noise : float
        R >= 0.

    Returns
    -------
    found : RankOneStep or None
        Nothing is written before its ``after`` is called.
    """
    reading, K = Projection(space.B.rows), space.K
    if not reading.fits_cache or g.dtype != reading.near.dtype:
        return None
    C, rest = reading.split_vector(g)
    a = C @ K
    along = C - K @ a
    again = along @ K
    along -= K @ again
    a += again
    b, h, inside = linalg.length(along), linalg.length(rest), linalg.length(C)
    whole, left = math.hypot(inside, h), along
    if not 1.0 / _SQUARED[g.itemsize] < whole < _SQUARED[g.itemsize]:
        return None
    if noise:  # rounding is dropped, as in Subspace.split
        blur = linalg.blur(g)
        if not h >= blur * whole:
            rest, h = 0.0 * rest, 0.0
        known = K @ (noise / (space.sigma**2 + noise) * a)
        left = known + along if b >= blur * inside else known
    free = rest + linalg.like(left, rest) @ reading.near
    after = partial(_after, space, a, along, rest, h, whole)
    return RankOneStep(free, math.hypot(b, h), whole, after)


def _after(
    space: Subspace, a: Floats, along: Floats, rest: Floats, h: float, whole: float
) -> Subspace:
    """The subspace after the vector U a + B along + rest, where h is the length of rest."""
    B, k, p = space.B, space.rank, len(rest)
    least = linalg.rounding(rest) * math.sqrt(p)
    q = len(along)
    if h > 4.0 * least * whole and q < p:
        B = B.appended((rest / h)[:, None])
    else:
        h = 0.0
    length = math.hypot(linalg.length(along), h)
    K, z = np.zeros((len(B), k + 1)), np.empty((k + 1, 1))
    K[:q, :k], K[:q, k], K[q:, k] = space.K, along, h
    K[:, k] /= length or 1.0
    z[:k, 0], z[k, 0] = a, length
    return space.rotated(B, K, z, least)
