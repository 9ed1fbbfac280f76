"""Subspace: the top m principal directions of a stream of vectors, turned late.

Kept is the thin factorisation of all vectors so far, weighted and truncated to rank m after each
step (the sequential Karhunen-Loève algorithm, [1] (8), [2]): with A ≈ U Σ Vᵀ and new columns G,

    [A G] = [U u] [Σ  UᵀG] [V  ]ᵀ,      u h = G − U UᵀG                                     (1)
                  [0  h  ] [  I]
    [Σ UᵀG; 0 h] = Ũ Σ̃ Ṽᵀ,              U ← [U u] Ũ[:, :m],   Σ ← Σ̃[:m]                     (2)

without V. Rotating U (p × m) at every step costs O(m² p). Kept instead are an orthonormal B
(p × q), m <= q <= 2m, and a small K (q × m) with U = B K: a step appends u to B and turns K alone,
and only when B is full is it turned itself, by one matrix product. It is the same subspace to
rounding, at O(m p) a step. When B turns, a Gram matrix in float64 restores its orthogonality: over
10⁴ steps in float32 two projections alone drift to 1e-6, with it they stay at 1e-7.

What truncation leaves out is bounded: with δ_t the largest σ̃² that step t left out,

    0 ≤ Σ g gᵀ − U Σ² Uᵀ ≤ D · I,      D = Σ_t δ_t                                          (3)

over all vectors g so far, because kept and left out add up at every step. Two subspaces merge by
(1) with G = U_b Σ_b, and their D add up, with that of the merge itself.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 3.2 and Algorithm 3.
[2] A. Levey, M. Lindenbaum, "Sequential Karhunen-Loeve basis extraction and its application to
    images", IEEE Transactions on Image Processing 9(8), 2000.
"""

from dataclasses import dataclass, replace

import numpy as np

from onepass import linalg
from onepass.types import Floats

__all__ = ["Subspace"]


@dataclass(frozen=True, eq=False, slots=True)
class Subspace:
    """Top principal directions and singular values of the vectors so far.

    Parameters
    ----------
    B : ndarray of shape (p, q)
        Orthonormal columns.
    K : ndarray of shape (q, k)
        Orthonormal columns, in float64; U = B K, k <= m.
    sigma : ndarray of shape (k,)
        Singular values, largest first.
    m : int
        Directions kept at most.
    lost : float
        D of (3).
    """

    B: Floats
    K: Floats
    sigma: Floats
    m: int
    lost: float = 0.0

    @classmethod
    def start(cls, p: int, m: int, dtype: type[np.floating] = np.float64) -> "Subspace":
        """No vectors seen, of p numbers each."""
        return cls(np.zeros((p, 0), dtype=dtype), np.zeros((0, 0)), np.zeros(0), m)

    @property
    def rank(self) -> int:
        """k, the directions kept."""
        return len(self.sigma)

    @property
    def U(self) -> Floats:  # noqa: N802  the papers' letter
        """The directions, (p, k), orthonormal."""
        return self.B @ self.K.astype(self.B.dtype)

    def coordinates(self, G: Floats) -> Floats:
        """UᵀG, (k, n), without forming U."""
        return self.K.T @ (self.B.T @ G)

    def removed(self, G: Floats, share: Floats | None = None) -> Floats:
        """G − U diag(share) UᵀG; all of it where no share is given."""
        a = self.coordinates(G)
        if share is not None:
            a = share[:, None] * a
        return G - self.B @ (self.K @ a).astype(G.dtype)

    def added(self, G: Floats) -> "Subspace":
        """The subspace after the columns of G have come, all at once: (1), (2)."""
        wide, C = self._widened(G)
        a, outside, height = _outside(wide.K, C)
        k = wide.rank
        small = np.zeros((k + len(height), k + G.shape[1]))
        small[:k, :k].flat[:: k + 1] = wide.sigma
        small[:k, k:], small[k:, k:] = a, height
        inner, sigma = linalg.svd(small)
        least = np.finfo(G.dtype).eps * np.sqrt(len(G)) * sigma.max(initial=0.0)
        keep = np.flatnonzero(sigma > least)[: self.m]
        left_out = float(sigma[len(keep) : len(keep) + 1].sum())
        K = np.hstack((wide.K, outside)) @ inner[:, keep]
        return replace(wide, K=K, sigma=sigma[keep], lost=self.lost + left_out * left_out)

    def merged(self, other: "Subspace") -> "Subspace":
        """The subspace of the vectors of both, to the rank of this one: (1) to (3)."""
        both = self.added(other.U * other.sigma.astype(other.B.dtype))
        return replace(both, lost=both.lost + other.lost)

    def joined(self, v: Floats) -> "Subspace":
        """The subspace after v (p,) has come, of which only what is outside it counts.

        Then UᵀG = 0 in (2): the matrix is diagonal, and its SVD only sorts it. v joins with its
        length as singular value, and the smallest beyond m leaves. A v inside is left out.
        """
        wide, C = self._widened(v[:, None])
        _, outside, height = _outside(wide.K, C)
        least = np.finfo(v.dtype).eps * np.sqrt(len(v)) * linalg.norms(C)
        if not (np.abs(height) > least).any():
            return self
        sigma = np.append(wide.sigma, np.abs(height))
        order = np.argsort(-sigma, kind="stable")[: self.m]
        return replace(wide, K=np.hstack((wide.K, outside))[:, order], sigma=sigma[order])

    def _widened(self, G: Floats) -> tuple["Subspace", Floats]:
        """B with the directions that G brings, and G in its coordinates."""
        fits = self.B.shape[1] + G.shape[1] <= self.m + max(self.m, G.shape[1])
        old = self if fits else self.turned()
        C, u, h = _split(old.B, G)
        K = np.vstack((old.K, np.zeros((len(h), old.rank))))
        return replace(old, B=np.hstack((old.B, u)), K=K), np.vstack((C, h))

    def turned(self) -> "Subspace":
        """The same subspace with B = U, orthogonal anew."""
        gram = self.B.astype(np.float64).T @ self.B
        L, _ = linalg.cholesky_in_order(gram, np.zeros(len(gram)))
        inner, sigma = linalg.svd(L.T @ (self.K * self.sigma))
        turn = linalg.solve_lower_transposed(L, inner)
        B = self.B @ turn.astype(self.B.dtype)
        return replace(self, B=B, K=np.eye(len(sigma)), sigma=sigma)

    def grown(self, p: int) -> "Subspace":
        """The same with new numbers at the end of every vector, zero in all so far."""
        extra = np.zeros((p - self.B.shape[0], self.B.shape[1]), dtype=self.B.dtype)
        return replace(self, B=np.vstack((self.B, extra)))


def _outside(K: Floats, C: Floats) -> tuple[Floats, Floats, Floats]:
    """C = K a + Q h, with Q orthonormal and orthogonal to K."""
    a = K.T @ C
    rest = C - K @ a
    again = K.T @ rest
    Q, h = np.linalg.qr(rest - K @ again)
    return a + again, Q, h


def _split(B: Floats, G: Floats) -> tuple[Floats, Floats, Floats]:
    """G = B C + u h with u orthonormal and orthogonal to B; directions at rounding are left."""
    C = B.T @ G
    rest = G - B @ C
    again = B.T @ rest
    rest = rest - B @ again
    least = 4 * np.finfo(G.dtype).eps * np.sqrt(len(G)) * linalg.norms(G)
    u: list[Floats] = []
    for j in range(G.shape[1]):
        left = rest[:, j]
        for known in u * 2:  # twice is enough
            left = left - known * (known @ left)
        length = linalg.norms(left[:, None])[0]
        if length > least[j] and len(u) < len(G) - B.shape[1]:
            u.append((left / length).astype(G.dtype))
    basis = np.column_stack(u) if u else np.zeros((len(G), 0), dtype=G.dtype)
    h = (basis.T @ rest).astype(np.float64)
    return (C + again).astype(np.float64), basis, h
