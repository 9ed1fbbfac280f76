"""Span: least squares in the coordinates of the directions seen so far.

With Q (p × q) an orthonormal basis of the span of all rows, every row is a = Q c, and the
least-norm solution has the form w = Q θ. In these coordinates the triangle is small and never
singular::

    c = Qᵀ a,   h u = a − Q c          what of the row is new                        (1)
    Q ← [Q u],  T ← diag(T, √ridge)    where h > 0: one more direction, with its prior (2)
    [T z] ← [T z] and the row [c h b]  by QR                                        (3)
    w = Q T⁻¹ z                        the solution of least norm                    (4)

With ridge 0 it is the limit of ridge regression for ridge → 0, at every row, whatever the rank.
What of a row is new must stand above the rounding of the row, ρ, and above that of the directions
that it is made of, κ. One that was found from rows nearly parallel, of small h, may be turned by δ:

    ρ = ε √p ‖a‖,   κ² = Σ_j (c_j δ_j)²,   new where h > 16 ρ + κ,   δ = (ρ + κ) / h        (5)

So rows of lower rank are known as such however they come, and of what is so nearly of lower rank
that float64 cannot tell, a condition of 1e14, the least norm is given: a ridge of 1e-30 lifts that.

Cost: O(p q) a row, O(p q) memory. Exact ridge with far fewer rows than features costs no p × p.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onepass import linalg
from onepass.types import Array, Floats
from onepass.update import absorb, fade, held

__all__ = ["Span", "Spanned"]


class Spanned(NamedTuple):
    """A span that took in rows, their errors before, and the growth of the residual."""

    span: "Span"
    errors: Floats
    left: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Span:
    """The directions seen so far, and the triangle in their coordinates.

    Parameters
    ----------
    Q : ndarray of shape (p, q)
        Orthonormal.
    T : ndarray of shape (q, q)
        Upper triangle, nonsingular.
    z : ndarray of shape (q, c)
    ridge : float
        The prior of a direction not seen yet, Π = ridge · I.
    doubt : ndarray of shape (q,)
        How far rounding may have turned each direction, as an angle: δ of (5).
    """

    Q: Floats
    T: Floats
    z: Floats
    ridge: float
    doubt: Floats

    @classmethod
    def start(cls, p: int, c: int, ridge: float) -> "Span":
        """No direction seen."""
        return cls(np.zeros((p, 0)), np.zeros((0, 0)), np.zeros((0, c)), ridge, np.zeros(0))

    @classmethod
    def of_all(cls, R: Floats, z: Floats) -> "Span":
        """All directions seen, in the coordinates of the weights themselves."""
        return cls(np.eye(len(R)), R, z, 0.0, np.zeros(len(R)))

    @property
    def rank(self) -> int:
        """q, the number of directions seen."""
        return int(self.Q.shape[1])

    @property
    def full(self) -> bool:
        """Whether all directions have been seen."""
        return bool(self.rank == self.Q.shape[0])

    def solution(self) -> Floats:
        """The weights w, shape (p, c), by (4)."""
        return self.Q @ linalg.solve_upper(self.T, self.z)

    def absorb(self, A: Floats, b: Floats) -> Spanned:
        """Take in rows [A b] of noise 1, one after the other; at once where no row is new."""
        errors, left = np.empty(b.shape), np.zeros(b.shape[1])
        span, i, n, ahead = self, 0, A.shape[0], 1
        while i < n:
            coordinates, new = span.split(A[i : i + ahead])
            known = int(np.argmax(new)) if new.any() else len(new)
            if known:
                rows = slice(i, i + known)
                theta = linalg.solve_upper(span.T, span.z)
                taken = absorb(span.T, span.z, theta, coordinates[:known], b[rows])
                errors[rows], left = taken.errors, left + taken.left
                span = replace(span, T=taken.R, z=taken.z)
            i += known
            ahead *= 2  # look further while nothing is new
            if known < len(new):
                errors[i], span, more = span.extended(A[i], b[i])
                left = left + more
                i, ahead = i + 1, 1
        return Spanned(span, errors, left)

    def faded(self, factor: float) -> "Span":
        """The same with all that was learned, and the prior, weighing ``factor`` as much."""
        T, z = fade(self.T, self.z, factor)
        return replace(self, T=T, z=z, ridge=self.ridge * factor)

    def grown(self, p: int) -> "Span":
        """The same with new weights at the end, zero in every row so far."""
        extra = np.zeros((p - self.Q.shape[0], self.rank))
        return replace(self, Q=np.vstack((self.Q, extra)))

    def with_outputs(self, at: Floats, c: int) -> "Span":
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""
        z = np.zeros((self.rank, c))
        z[:, np.setdiff1d(np.arange(c), at)] = self.z
        return replace(self, z=z)

    def split(self, A: Floats) -> tuple[Floats, Array]:
        """Coordinates of the rows (n, q), and which of them leave the span."""
        C, rest = self._apart(A)
        own, turned = self._rounding(A, C)
        new = linalg.norms(rest.T) > 16.0 * own + turned
        return C, np.asarray(new) & (not self.full)

    def extended(self, a: Floats, b: Floats) -> tuple[Floats, "Span", Floats]:
        """One row that brings a new direction: (1), (2), (3)."""
        C, rest = self._apart(a[None, :])
        height = linalg.norms(rest.T)
        theta = linalg.solve_upper(self.T, self.z)
        q = self.rank
        T: Floats = np.zeros((q + 1, q + 1), order="F")
        T[:q, :q], T[q, q] = self.T, np.sqrt(self.ridge)
        z = np.vstack((self.z, np.zeros((1, self.z.shape[1]))))
        T, z, left = linalg.take_in(T, z, np.column_stack((C, height)), b[None, :])
        T, z = held(T, z, np.vstack((theta, np.zeros((1, z.shape[1])))))
        Q = np.column_stack((self.Q, rest[0] / height))
        doubt = np.append(self.doubt, sum(self._rounding(a[None, :], C)) / height)
        return b - C[0] @ theta, replace(self, Q=Q, T=T, z=z, doubt=doubt), left

    def _apart(self, A: Floats) -> tuple[Floats, Floats]:
        """Coordinates of the rows, and what of the rows lies outside the span."""
        C = A @ self.Q
        rest = A - C @ self.Q.T
        again = rest @ self.Q
        return C + again, rest - again @ self.Q.T

    def _rounding(self, A: Floats, C: Floats) -> tuple[Floats, Floats]:
        """How much of each row outside the span may be rounding: ρ and κ of (5)."""
        own = float(np.finfo(np.float64).eps * np.sqrt(A.shape[1])) * linalg.norms(A.T)
        return own, linalg.norms((C * self.doubt).T)
