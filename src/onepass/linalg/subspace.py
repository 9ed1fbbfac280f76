"""The top m principal directions of a stream of vectors, with delayed rotation.

Kept is the thin factorisation of all vectors so far, weighted and truncated to rank m after each
step (the sequential Karhunen-Loève algorithm, [1] (8), [2]): with A ≈ U Σ Vᵀ and new columns G,

    [A G] = [U u] [Σ  UᵀG] [V  ]ᵀ,      u h = G − U UᵀG                                     (1)
                  [0  h  ] [  I]
    [Σ UᵀG; 0 h] = Ũ Σ̃ Ṽᵀ,              U ← [U u] Ũ[:, :m],   Σ ← Σ̃[:m]                     (2)

without V. A sketch (Frequent Directions [3]) also takes from each squared singular value what the
first direction left out has, so that none that stays is overestimated:

    Σ² ← Σ̃[:m]² − Σ̃[m]²                                                                     (3)

Rotating U (p × m) at every step costs O(m² p). Kept instead are an orthonormal B (p × q),
m <= q <= 3m/2, and a small K (q × m) with U = B K: a step appends u to B and turns K alone, and
only when B is full is it turned itself, by one matrix product. It is the same subspace to rounding,
at O(m p) a step. Two projections alone let B drift: over 10⁴ steps of a few directions in float32
to 1e-5. So when B turns and its columns are not of length 1 to a few roundings, as turning makes
them when they are not orthogonal, its Gram matrix restores them: then they stay within 1e-6.

What a step takes out of Σ g gᵀ is a matrix Δ_t >= 0, of rank n in (2): σ̃² ũ ũᵀ of each direction
left out. What is kept and what was taken out add up at every step, so that over all vectors g

    0 ≤ Σ g gᵀ − U Σ² Uᵀ ≤ D · I,      D = Σ over turns of λmax (Σ Δ_t between two turns)     (4)

where the matrices between two turns of B are summed in its coordinates: what they leave out in
different directions does not add up, and D is a fraction of Σ λmax(Δ_t). Two subspaces merge by
(1) with G = U_b Σ_b, and their D add up, with that of the merge itself.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 3.2 and Algorithm 3.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.
[3] M. Ghashami, E. Liberty, J. M. Phillips, D. P. Woodruff, "Frequent Directions: Simple and
    Deterministic Matrix Sketching", SIAM Journal on Computing 45(5), 2016.

:class:`OrthonormalBasis` holds orthonormal columns with reserved space for more. Kept are the columns of B
(p × q) as rows of one array, NumPy's or torch's, of any precision, on any device. They are read as
:mod:`onepass.linalg.projection` says.

A new column is written into the room behind the others, and what was there before stays as it
was: an object of before can still be used, and if columns are added to it again, they are added to
a copy. Torch's columns are large and have one user at a time: they are turned in place, which
leaves nothing of what was there before.

A single vector takes a path with fewer calls than a matrix of one column, and with the same result:
the part that lies in B and not in U is computed once for ``split`` and ``added``, and no matrix is
factorised.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.linalg.projection import Lift, Projection, Split
from onepass.types import ArrayOrTensor, Floats, Kind

__all__ = ["OrthonormalBasis", "RankOneStep", "Room", "Split", "Subspace", "rank_one_step"]


_ROUNDINGS = {4: 4.0, 8: 32.0}  # bytes of a number: by how many a square of length 1 may be off


class Room:
    """The array that columns lie in, and the first row of it that is free."""

    __slots__ = ("array", "end")

    def __init__(self, array: ArrayOrTensor, end: int) -> None:
        self.array = array
        self.end = end


@dataclass(frozen=True, eq=False, slots=True)
class OrthonormalBasis:
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
        return OrthonormalBasis, (self.rows, self.room)

    @classmethod
    def start(cls, p: int, kind: Kind, room: int = 0) -> "Columns":
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

    def _set(self, rows: ArrayOrTensor, holder: Room, first: int) -> None:
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

    def split(self, G: ArrayOrTensor, lift: Lift | None = None) -> Split:
        """Split vectors (p, n) into what lies in the span and what does not.

        Parameters
        ----------
        G : array of shape (p, n)
            Best the transpose of contiguous rows.
        lift : callable, optional
            Makes D (q, n) of C (q, n), both small; without it F is O.
        """
        return Projection(self.rows).split(G, lift)

    def coordinates(self, G: ArrayOrTensor) -> Any:
        """BᵀG, small."""
        return Projection(self.rows).coordinates(G)

    def combined(self, M: ArrayOrTensor) -> Any:
        """B M of a small M (q, k), long, (p, k)."""
        wide = linalg.widened(self.rows)
        return (linalg.like(M, wide).T @ wide).T

    def drifted(self) -> bool:
        """Whether their lengths say that they are orthonormal no more, but for a few roundings.

        On a device, and of half precision, they are said to be: to look costs no less than to mend.
        """
        few = _ROUNDINGS.get(self.rows.itemsize)
        if few is None or linalg.on_device(self.rows):
            return True
        off = np.abs(Projection(self.rows).squares() - 1.0).max(initial=0.0)
        return not off < few * linalg.rounding(self.rows)

    def gram(self) -> Any:
        """BᵀB, NumPy's."""
        return Projection(self.rows).gram()

    # -- adding and leaving ----------------------------------------------------------------------

    def appended(self, new: ArrayOrTensor) -> "Columns":
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
        return OrthonormalBasis.within(columns.holder, columns.first, end + new.shape[1])

    def latest(self, m: int) -> "Columns":
        """The last m of them."""
        end = self.first + len(self)
        return self if len(self) <= m else OrthonormalBasis.within(self.holder, end - m, end)

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
        return OrthonormalBasis.within(columns.holder, columns.first, columns.first + left)

    def turned(self, T: ArrayOrTensor) -> "Columns":
        """B T of a small T (q, k), k <= q, piece by piece; torch's in place."""
        k, holder, first = T.shape[1], self.holder, self.first
        if not linalg.is_tensor(self.rows):
            holder, first = Room(np.empty((self.room, self.rows.shape[1]), self.rows.dtype), 0), 0
        Projection(self.rows).turn(T, holder.array[first : first + k])
        return OrthonormalBasis.within(holder, first, first + k)

    def moved(self, needed: int) -> "Columns":
        """The same at the front of an array that has room for so many: torch's own, if it has."""
        holder = self.holder
        free = linalg.is_tensor(self.rows) and self.first >= len(self)
        if not free or needed > len(holder.array):
            room = max(len(holder.array), needed + needed // 2 * (needed > len(holder.array)))
            holder = Room(_empty(linalg.kind(self.rows), room, self.rows.shape[1]), 0)
        holder.array[: len(self)] = self.rows
        return OrthonormalBasis.within(holder, 0, len(self))

    def grown(self, p: int) -> "Columns":
        """With new numbers at the end of every column, all zero."""
        wider = _empty(linalg.kind(self.rows), len(self), p)
        wider[:, : self.rows.shape[1]], wider[:, self.rows.shape[1] :] = self.rows, 0.0
        return OrthonormalBasis(wider, self.room)


def _empty(kind: Kind, q: int, p: int) -> Any:
    """An array of whatever numbers, of a NumPy precision or of a tensor's kind."""
    if isinstance(kind, (type, np.dtype)):
        return np.empty((q, p), dtype=kind)
    return kind.new_empty((q, p))


@dataclass(frozen=True, eq=False, slots=True)
class Subspace:
    """Top principal directions and singular values of the vectors so far.

    Parameters
    ----------
    B : Columns
        q orthonormal columns of p numbers, NumPy's or torch's.
    K : ndarray of shape (q, k)
        Orthonormal columns, in float64; U = B K, k <= m.
    sigma : ndarray of shape (k,)
        Singular values, largest first.
    m : int
        Directions kept at most.
    shrinks : bool
        Whether (3) is done.
    closed : float
        D of (4) up to the last turn.
    open : ndarray of shape (q, q)
        Σ Δ_t since then, in the coordinates of B.
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
        cls, p: int, m: int, kind: Kind = np.float64, *, shrinks: bool = False, room: int = 1
    ) -> "Subspace":
        """No vectors seen, of p numbers each, that will come so many at a time.

        ``kind`` is a NumPy precision, or a tensor of the precision and on the device wanted.
        """
        columns = OrthonormalBasis.start(p, kind, min(p, m + max(_spare(m), room)))
        return cls(columns, np.zeros((0, 0)), np.zeros(0), m, shrinks, 0.0, np.zeros((0, 0)))

    @property
    def rank(self) -> int:
        """k, the directions kept."""
        return len(self.sigma)

    @property
    def U(self) -> Any:  # noqa: N802  the papers' letter
        """The directions, (p, k), orthonormal."""
        return self.B.combined(self.K)

    @property
    def lost(self) -> float:
        """D of (4)."""
        return self.closed + _largest(self.open)

    @property
    def max_lost(self) -> float:
        """D of (4) or a little more, for less: ‖·‖_F in place of λmax since the last turn."""
        return self.closed + float(linalg.length(self.open))

    def coordinates(self, G: ArrayOrTensor) -> Floats:
        """UᵀG, (k, n), without forming U."""
        inside: Floats = self.K.T @ linalg.host(self.B.coordinates(G))
        return inside

    def split(self, G: ArrayOrTensor, noise: float = 0.0) -> Split:
        """Vectors (p, n) in the coordinates of B; ``lifted`` is G − U diag(σ² / (σ² + r)) UᵀG.

        Without noise r it is G − U UᵀG, orthogonal to U. With it, what is left of U is formed by
        itself, and what lies outside of U by no more than rounding is left out: beside a variance
        of r / (σ² + r) it would be large.
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
        return self._sharp(found, blur, lift) if noise and len(self.B) else found

    def _sharp(self, found: Split, blur: float, lift: Lift) -> Split:
        """The same, without what lies outside of B by no more than rounding."""
        inside, outside, lifted = found
        lengths = linalg.norms(outside)
        known = lengths < blur * ((inside * inside).sum(axis=0) + lengths * lengths) ** 0.5
        if linalg.on_device(outside):
            gone = outside * linalg.like(known, outside)
            return Split(inside, outside - gone, lifted - gone)
        for j in np.flatnonzero(known):
            outside[:, j] = 0.0
            lifted[:, j] = linalg.like(self.B.combined(lift(inside)[:, j : j + 1]), lifted)[:, 0]
        return found

    def added(self, G: ArrayOrTensor, split: Split | None = None) -> "Subspace":
        """The subspace after the columns of G have come, all at once: (1) to (3).

        ``split`` is that of G, where it is known.
        """
        B, K, C = self._widened(G, split or self.B.split(G))
        a, outside, height = _outside(K, C)
        least = linalg.rounding(G) * math.sqrt(len(G))
        K = np.concatenate((K, outside), axis=1)
        return self.rotated(B, K, np.concatenate((a, height)), least)

    def merged(self, other: "Subspace") -> "Subspace":
        """The subspace of the vectors of both, to the rank of this one: (1) to (4)."""
        both = self.added(linalg.times(other.U, np.diag(other.sigma)))
        return replace(both, closed=both.closed + other.lost)

    def joined(self, v: ArrayOrTensor) -> "Subspace":
        """The subspace after v (p, 1) has come, of which only what is outside it counts.

        Then UᵀG = 0 in (2): the matrix is diagonal, and its SVD only sorts it. v joins with its
        length as singular value, and the smallest beyond m leaves. A v inside is left out.
        """
        B, K, C = self._widened(v, self.B.split(v))
        _, outside, height = _outside(K, C)
        largest = max(self.sigma.max(initial=0.0), float(linalg.norms(C)[0]))
        least = 4.0 * linalg.rounding(v) * math.sqrt(len(v)) * largest
        if not np.abs(height).max(initial=0.0) > least:
            return self
        sigma = np.append(self.sigma, np.abs(height))
        order = np.argsort(-sigma, kind="stable")
        return self._truncated(B, np.hstack((K, outside))[:, order], sigma[order], len(order), 1)

    def rotated(self, B: OrthonormalBasis, K: Floats, Z: Floats, least: float) -> "Subspace":
        """The subspace after vectors have come, in coordinates: (2), (3).

        Parameters
        ----------
        B : Columns
            Those of this subspace, and what was added.
        K : ndarray of shape (q, k + j)
            U and the directions that came, in the coordinates of B.
        Z : ndarray of shape (k + j, n)
            The vectors, in the coordinates of K.
        least : float
            What share of the largest singular value is rounding.

        Returns
        -------
        after : Subspace
            Once B is torch's and was turned, this one is no longer of use.

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
    ) -> "Subspace":
        """The first m of these directions, the rest rounding; B turned without room for n more."""
        k, q = min(self.m, rank), len(self.open)
        left: Any = sigma[:k]
        gone: Any = K[:, k:] * sigma[k:]
        if self.shrinks and k < len(sigma):
            left = np.sqrt(np.maximum(left**2 - sigma[k] ** 2, 0.0))
            squares = sigma**2
            squares[:k] -= left**2
            gone = K * np.sqrt(np.maximum(squares, 0.0))
            k = int((left > 0.0).sum())
        summed = gone @ gone.T
        summed[:q, :q] += self.open
        kept = np.ascontiguousarray(K[:, :k])
        new = Subspace(B, kept, left[:k].copy(), self.m, self.shrinks, self.closed, summed)
        full = len(B) + n > min(self.m + max(_spare(self.m), n), B.matrix.shape[0])
        return new.turned() if full and len(B) > k else new

    def turned(self) -> "Subspace":
        """The same subspace with B = U, orthogonal anew where it has drifted."""
        T, sigma = self.K, self.sigma
        if self.B.drifted():
            L, _ = linalg.ordered_cholesky(self.B.gram(), np.zeros(len(self.B)))
            inner, sigma = linalg.svd(L.T @ (self.K * self.sigma))
            T = linalg.solve_lower_transposed(L, inner)
        k, lost = len(sigma), self.lost
        K, none = np.eye(k), np.zeros((k, k))  # whatever may raise comes before B is written in
        return Subspace(self.B.turned(T), K, sigma, self.m, self.shrinks, lost, none)

    def grown(self, p: int) -> "Subspace":
        """The same with new numbers at the end of every vector, zero in all so far."""
        return replace(self, B=self.B.grown(p))

    def _widened(self, G: ArrayOrTensor, split: Split) -> tuple[OrthonormalBasis, Floats, Floats]:
        """B with the directions that G brings; K and G in its coordinates."""
        lengths = linalg.norms(split.outside)
        whole = (split.inside * split.inside).sum(axis=0) + lengths * lengths
        least = 4.0 * linalg.rounding(G) * (len(G) * whole) ** 0.5
        W, L, kept = linalg.orthonormal(split.outside, least, lengths)
        inside, height, new = linalg.all_to_numpy(split.inside, L, kept)  # a device's only wait
        kept = np.flatnonzero(new)[: len(G) - len(self.B)]
        if not len(kept):
            return self.B, self.K, inside
        B = self.B.appended(W if len(kept) == W.shape[1] else W[:, kept])
        K = np.zeros((len(B), self.rank))
        K[: len(self.K)] = self.K
        return B, K, np.concatenate((inside, height[:, kept].T))


def _spare(m: int) -> int:
    """How many columns B has beyond m: more are read more often, fewer turned more often."""
    return (m + 1) // 2


def _largest(S: Floats) -> float:
    """λmax of a small symmetric matrix, 0 if there is none."""
    return float(np.linalg.eigvalsh(S)[-1]) if len(S) and S.any() else 0.0


def _outside(K: Floats, C: Floats) -> tuple[Floats, Floats, Floats]:
    """C = K a + Q h, with Q orthonormal and orthogonal to K."""
    a = K.T @ C
    rest = C - K @ a
    again = K.T @ rest
    rest = rest - K @ again
    if rest.shape[1] == 1:  # no factorisation is needed, nor its sign
        h = linalg.norms(rest)[:, None]
        return a + again, rest / (h + (h == 0.0)), h
    Q, h = np.linalg.qr(rest)
    return a + again, Q, h


_SQUARED = {4: 1e18, 8: 1e140}  # bytes of a number: lengths whose squares are numbers too


class RankOneStep(NamedTuple):
    """What a subspace makes of one vector."""

    free: Any
    """G − U diag(σ² / (σ² + r)) Uᵀg, (p,)."""
    length: float
    """‖g − U Uᵀg‖."""
    whole: float
    """‖g‖."""
    after: Callable[[], Subspace]
    """The subspace after it has come; then the one before may be written over."""


def rank_one_step(space: Subspace, g: Floats, noise: float = 0.0) -> RankOneStep | None:
    """What a subspace makes of a vector; None where its columns are too many for this to be best.

    Parameters
    ----------
    space : Subspace
    g : ndarray of shape (p,)
        In the precision of the columns.
    noise : float
        R >= 0.

    Returns
    -------
    found : Alone or None
        Nothing is written before its ``after`` is called.
    """
    reading, K = Projection(space.B.rows), space.K
    if not reading.few or g.dtype != reading.near.dtype:
        return None
    C, rest = reading.at_once(g)
    a = C @ K
    along = C - K @ a
    again = along @ K
    along -= K @ again
    a += again
    b, h, inside = linalg.length(along), linalg.length(rest), linalg.length(C)
    whole, left = math.hypot(inside, h), along
    if not 1.0 / _SQUARED[g.itemsize] < whole < _SQUARED[g.itemsize]:
        return None
    if noise:  # what is no more than rounding is left out, as in Subspace.split
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
    """The subspace after U a + B along + rest has come, h being the length of the rest."""
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
