"""Span: least squares in the coordinates of the directions seen so far.

With Q (p × q) an orthonormal basis of the span of all rows, every row is a = Q c, and the
least-norm solution has the form w = Q θ. In these coordinates the triangle is small and never
singular::

    c = Qᵀ a,   h u = a − Q c          the new part of the row                       (1)
    Q ← [Q u],  T ← diag(T, √ridge)    if h > 0: a new direction, with its prior     (2)
    [T z] ← [T z] and the row [c h b]  by QR                                         (3)
    w = Q T⁻¹ z                        the least-norm solution                       (4)

With ridge 0 it is the limit of ridge regression for ridge → 0, at every row, whatever the rank.
The new part of a row must exceed the rounding error of the row along u, and the error that the
directions contribute to it. A direction computed from nearly parallel rows, with small h, may be
rotated by an angle δ:

    ρ_u = ε √p (‖a‖ + ‖u ∘ a‖),   ρ = 2 ε √p ‖a‖,   κ² = Σ_j (c_j δ_j)²                     (5)
    new if h > ρ_u (16 + κ / ρ),      δ = (ρ + κ) / h                                       (6)

So rows of lower rank are recognised in any order. For rows whose rank float64 cannot resolve, the
least-norm solution is returned; with a ridge of 1e-30 they count as rows of full rank.

Cost: O(p q) per row, O(p q) memory. Exact ridge regression with far fewer rows than features needs
no p × p matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onepass import linalg
from onepass.linalg.update import absorb, nonsingular
from onepass.types import Floats


class _SplitRows(NamedTuple):
    """Rows, each split into the part in a span and the part outside."""

    C: Floats
    """Coordinates, (n, q)."""
    rest: Floats
    """The part outside, (n, p)."""
    height: Floats
    """Its length h, (n,)."""
    least: Floats
    """The length above which the part outside is new, by (6)."""
    rounding: Floats
    """ρ + κ."""


class SpanUpdate(NamedTuple):
    """A span after rows, and their errors just before."""

    span: Span
    errors: Floats


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
        The angle by which rounding may have rotated each direction: δ of (6).
    """

    Q: Floats
    T: Floats
    z: Floats
    ridge: float
    doubt: Floats

    @classmethod
    def start(cls, p: int, c: int, ridge: float) -> Span:
        """The state before the first row."""
        return cls(np.zeros((p, 0)), np.zeros((0, 0)), np.zeros((0, c)), ridge, np.zeros(0))

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

    def absorb(self, A: Floats, b: Floats) -> SpanUpdate:
        """Add rows of noise 1, one after the other; as a block if no row is new.

        Parameters
        ----------
        A : ndarray of shape (n, p)
        b : ndarray of shape (n, c)
        """
        errors, span = np.empty(b.shape), self
        i, n, ahead = 0, A.shape[0], 1
        while i < n:
            split_rows = span.split_rows(A[i : i + ahead])
            new = (split_rows.height > split_rows.least) & (not span.full)
            known = int(np.argmax(new)) if new.any() else len(new)
            if known:
                rows = slice(i, i + known)
                theta = linalg.solve_upper(span.T, span.z)
                update = absorb(span.T, span.z, theta, split_rows.C[:known], b[rows])
                errors[rows] = update.errors
                span = replace(span, T=update.R, z=update.z)
            i += known
            ahead *= 2  # larger chunks while no row is new
            if known < len(new):
                errors[i], span = span.extended(A[i : i + 1], b[i : i + 1])
                i, ahead = i + 1, 1
        return SpanUpdate(span, errors)

    def grown(self, p: int) -> Span:
        """Add weights at the end, whose features were zero in all rows so far."""
        extra = np.zeros((p - self.Q.shape[0], self.rank))
        return replace(self, Q=np.vstack((self.Q, extra)))

    def with_outputs(self, at: Floats, c: int) -> Span:
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        z = np.zeros((self.rank, c))
        z[:, np.setdiff1d(np.arange(c), at)] = self.z
        return replace(self, z=z)

    def extended(self, A: Floats, b: Floats) -> tuple[Floats, Span]:
        """Add one row with a new direction: (1), (2), (3)."""
        C, rest, height, _, rounding = self.split_rows(A)
        theta, q = linalg.solve_upper(self.T, self.z), self.rank
        T: Floats = np.zeros((q + 1, q + 1), order="F")
        T[:q, :q], T[q, q] = self.T, np.sqrt(self.ridge)
        none = np.zeros((1, b.shape[1]))
        T, z, _ = linalg.qr_update(T, np.vstack((self.z, none)), np.column_stack((C, height)), b)
        T, z = nonsingular(T, z, np.vstack((theta, none)))
        Q, doubt = np.column_stack((self.Q, rest[0] / height)), rounding / height
        wider = replace(self, Q=Q, T=T, z=z, doubt=np.append(self.doubt, doubt))
        return b[0] - C[0] @ theta, wider

    def split_rows(self, A: Floats) -> _SplitRows:
        """Split rows into the part in the span and the part outside: (1), (5), (6)."""
        C = A @ self.Q
        rest = A - C @ self.Q.T
        again = rest @ self.Q
        C, rest = C + again, rest - again @ self.Q.T
        height, length = linalg.norms(rest.T), linalg.norms(A.T)
        u = rest / np.where(height > 0.0, height, 1.0)[:, None]
        unit = float(np.finfo(np.float64).eps * np.sqrt(A.shape[1]))
        along = unit * (length + linalg.norms((u * A).T))
        whole = 2.0 * unit * length
        turned = linalg.norms((C * self.doubt).T)
        least = along * (16.0 + turned / np.where(whole > 0.0, whole, 1.0))
        return _SplitRows(C, rest, height, least, whole + turned)
