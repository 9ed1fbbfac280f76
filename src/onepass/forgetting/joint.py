"""Joint: coefficients and intercept in one triangle, for rules that know no running means.

The rows are √s_k [1, x_k − r] and √s_k (y_k − r_y), where r is some row: the intercept is free, so
that it does not matter which, and differences from a near row lose no digits. The intercept's
column stands first and has no ridge. So below it the triangle

    R = [ρ  ρ (x̄ − r)ᵀ]     z = [ρ (ȳ − r_y)]                                              (1)
        [0      R₁     ]         [    z₁     ]

holds in R₁ and z₁ that of the rows centred at their means x̄ and ȳ, and in ρ² the sum of their
weights: what answers are made of. Where R₁ is singular, because there is no ridge, the solution of
least norm is taken, in units of each column's own size; which directions are empty is decided in
these too, and a column is empty where it is no larger than the rounding of its feature.
Cost: O(p²) a row, O(p³) while R₁ is singular, O(p²) memory.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from onepass import linalg
from onepass.centering import Centering
from onepass.memory.span import Span
from onepass.memory.square_root import Triangle
from onepass.types import Array, Floats
from onepass.update import absorb

__all__ = ["Joint", "joined", "taken_in"]

_WIDTH = 128  # rows absorbed at a time
_SAFE = 1e-7  # a triangle is solved as it is where the reciprocal of its condition is above
_CLEAN = 1e-6  # or, under a penalty, what of each column is left beside those before it
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, slots=True)
class Joint:
    """The triangle (1).

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Upper triangle, p = d + 1 with an intercept, else d.
    z : ndarray of shape (p, c)
    squares : ndarray of shape (c,)
        The least sum of squares.
    mass : float
        The effective number of rows.
    features, answers : ndarrays of shape (d,) and (c,)
        r and r_y; zeros without an intercept.
    largest : ndarray of shape (d,)
        The largest size of each feature: its rounding is relative to it.
    free : bool
        Whether there is an intercept.
    loose : bool
        Whether the penalty leaves directions undetermined.
    """

    R: Floats
    z: Floats
    squares: Floats
    mass: float
    features: Floats
    answers: Floats
    largest: Floats
    free: bool
    loose: bool

    @classmethod
    def start(cls, memory: Triangle, *, free: bool) -> "Joint":
        """No rows, under the penalty that a memory of no rows holds."""
        d, c = memory.z.shape
        p = d + free
        R: Floats = np.zeros((p, p), order="F")
        R[free:, free:] = memory.R
        none, zeros = np.zeros(d), np.zeros(c)
        loose = memory.span is not None
        return cls(R, np.zeros((p, c)), zeros, 0.0, none, zeros, none, bool(free), loose)

    def rows(self, X: Floats, b: Floats, roots: Floats) -> tuple[Floats, Floats]:
        """Rows as the triangle takes them in: A (n, p) and answers (n, c), weighted."""
        A = X - self.features
        if self.free:
            A = np.where(np.abs(A) <= 4.0 * _EPS * np.abs(X), 0.0, A)  # a constant is its own mean
            A = np.column_stack((np.ones(len(X)), A))
        return A * roots[:, None], (b - self.answers) * roots[:, None]

    def around(self, x: Floats, b: Floats) -> "Joint":
        """The same of no rows yet, relative to a row x with answers b."""
        if not self.free:
            return self
        return replace(self, features=x.astype(np.float64), answers=b.astype(np.float64))

    def centred(self) -> "Joint":
        """The same, relative to the means: then the intercept's row holds nothing else."""
        if not self.free or self.R[0, 0] == 0.0:
            return self
        features = self.features + self.R[0, 1:] / self.R[0, 0]
        answers = self.answers + self.z[0] / self.R[0, 0]
        R, z = self.R.copy(order="F"), self.z.copy(order="F")
        R[0, 1:] -= self.R[0, 0] * (features - self.features)
        z[0] -= self.R[0, 0] * (answers - self.answers)
        return replace(self, R=R, z=z, features=features, answers=answers)

    def noting(self, X: Floats) -> "Joint":
        """The same with the sizes of rows X noted."""
        largest = np.maximum(self.largest, np.abs(X).max(axis=0, initial=0.0))
        return replace(self, largest=largest)

    @property
    def calm(self) -> bool:
        """Whether the triangle can be solved as it is, in any direction, without losing digits."""
        if self.R[0, 0] == 0.0:
            return False
        size = linalg.norms(self.R)
        if not self.loose:
            return bool((np.abs(np.diagonal(self.R)) > _CLEAN * size).all())
        inner = size[self.free :]
        if (inner <= self._rounding()).any():
            return False
        return bool(lapack.dtrcon(self.R / np.where(size > 0.0, size, 1.0))[0] > _SAFE)

    def calm_rows(self, A: Floats) -> int:
        """How many rows A can be taken in until the triangle may not be calm, or is not now."""
        if not self.calm:
            return 0
        large = np.abs(A) * _CLEAN > np.abs(np.diagonal(self.R))
        return int(np.argmax(large.any(axis=1))) if large.any() else len(A)

    def solution(self) -> Floats:
        """The intercept, relative to r and r_y, and the coefficients: (p, c)."""
        if self.calm:
            return linalg.solve_upper(self.R, self.z)
        if self.free and self.R[0, 0] == 0.0:
            return np.zeros(self.z.shape)
        w, _ = self._inner()
        if not self.free:
            return w
        return np.vstack(((self.z[:1] - self.R[:1, 1:] @ w) / self.R[0, 0], w))

    def absorb(self, A: Floats, b: Floats, X: Floats, roots: Floats) -> tuple["Joint", Floats]:
        """Take rows in, one after the other; return the error of each just before, (n, c).

        ``X`` and ``roots`` are what :meth:`rows` made A of.
        """
        errors, joint, i = np.empty(b.shape), self, 0
        while i < len(A):
            calm = joint.calm_rows(A[i : i + _WIDTH])
            rows = slice(i, i + max(calm, 1))
            if calm:
                w = linalg.solve_upper(joint.R, joint.z)
                R, z, _, errors[rows], left = absorb(joint.R, joint.z, w, A[rows], b[rows])
                joint = replace(joint, R=R, z=z, squares=joint.squares + left)
            else:
                errors[i] = b[i] - A[i] @ joint.solution()
                joint = joined(joint, A[rows], b[rows])
            mass = joint.mass + float(roots[rows] @ roots[rows])
            joint, i = replace(joint.noting(X[rows]), mass=mass), rows.stop
        return joint, errors

    def past(self, start: Floats, ridge: float | None) -> tuple[Triangle, Centering]:
        """What answers are made of: the triangle of centred rows, and the means."""
        k = int(self.free)
        R, z = np.asfortranarray(self.R[k:, k:]), np.asfortranarray(self.z[k:])
        span: Span | None = None
        if self.calm:
            w = linalg.solve_upper(R, z)
        else:
            w, span = self._inner()
        memory = Triangle(R, z, w, self.squares, ridge, span)
        d, c = z.shape
        center = Centering.start(d, c, free=self.free)
        if not k or self.R[0, 0] == 0.0:
            return memory, replace(center, mass=self.mass)
        moved = self.R[0, 1:] / self.R[0, 0]
        answers = self.answers + self.z[0] / self.R[0, 0] + start.T @ (self.features + moved)
        return memory, replace(
            center,
            features=self.features + moved,
            features_rest=moved - ((self.features + moved) - self.features),
            answers=answers,
            mass=self.mass,
        )

    def grown(self, d: int, ridge: float) -> "Joint":
        """The same with new features at the end, zero in every row so far."""
        p, q = len(self.R), d + self.free
        R: Floats = np.zeros((q, q), order="F")
        R[:p, :p] = self.R
        R[np.arange(p, q), np.arange(p, q)] = np.sqrt(ridge)
        z, none = np.zeros((q, self.z.shape[1])), np.zeros(q - p)
        z[:p] = self.z
        return replace(
            self,
            R=R,
            z=z,
            features=np.append(self.features, none),
            largest=np.append(self.largest, none),
            loose=self.loose or ridge == 0.0,
        )

    def with_outputs(self, at: Array, c: int) -> "Joint":
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""
        old = np.setdiff1d(np.arange(c), at)
        z, squares, answers = np.zeros((len(self.z), c)), np.zeros(c), np.zeros(c)
        z[:, old], squares[old], answers[old] = self.z, self.squares, self.answers
        return replace(self, z=z, squares=squares, answers=answers)

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return linalg.finite(self.R, self.z, self.squares)

    def _rounding(self) -> Floats:
        """The least size of a column that is more than rounding of its feature, (d,)."""
        return np.asarray(16.0 * _EPS * np.sqrt(self.mass) * self.largest)

    def _inner(self) -> tuple[Floats, Span | None]:
        """Coefficients of least norm, and the span, in units of the columns, of what is known."""
        k = int(self.free)
        R, z = self.R[k:, k:], self.z[k:]
        # Under a penalty, columns as small as the rounding of their features are determined too.
        size, rounding = linalg.norms(R), self._rounding() * self.loose
        there = size > rounding
        unit = np.where(there, size, 1.0)
        U, sigma, Vt = linalg.svd_both(np.where(there, R / unit, 0.0), whole=True)
        least = 64.0 * _EPS * len(R) + 4.0 * float((rounding / unit)[there].max(initial=0.0))
        known = sigma > least
        if known.all():
            return linalg.solve_upper(R, z), None
        Q, y = Vt[known].T * there[:, None], U[:, known].T @ z
        span = Span(Q, np.asfortranarray(np.diag(sigma[known])), y, 0.0, np.zeros(Q.shape[1]))
        return span.solution() / unit[:, None], span


def taken_in(joint: Joint, A: Floats, b: Floats) -> Joint:
    """The triangle with rows [A b] taken in, of which it matters not what would have been said."""
    R, z, left = linalg.take_in(joint.R, joint.z, A, b)
    return replace(joint, R=R, z=z, squares=joint.squares + left)


def joined(joint: Joint, A: Floats, b: Floats) -> Joint:
    """The same as :func:`taken_in` where rows differ much in size, or R is any square matrix.

    A reflection whose pivot is small adds rounding errors of large rows to small ones. So the rows
    are put in the order of the pivots of Gaussian elimination first. Cost: O(p² (n + p)).
    """
    p = len(joint.R)
    M = np.vstack((np.hstack((joint.R, joint.z)), np.hstack((A, b))))
    there = np.flatnonzero(M[:, :p].any(axis=0))  # rows of R at other columns must stay empty
    q, R, z = len(there), np.zeros((p, p), order="F"), np.zeros_like(joint.z)
    M = M[:, np.append(there, np.arange(p, M.shape[1]))]
    if q:
        M = np.triu(lapack.dgeqrf(lapack.dlaswp(M, lapack.dgetrf(M[:, :q])[1]))[0])
    R[np.ix_(there, there)], z[there] = M[:q, :q], M[:q, q:]
    return replace(joint, R=R, z=z, squares=joint.squares + (M[q:, q:] ** 2).sum(axis=0))
