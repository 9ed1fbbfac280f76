"""Centering: an intercept that costs nothing, exact at every row, also with forgetting.

Least squares with an intercept that is not penalised,

    min over w, b of  Σ_k λ^(n−k) s_k (y_k − b − xₖᵀw)² + λⁿ ‖w − w₀‖²_Π                      (1)

is least squares without one on rows centred at the means *before* them. With the unnormalised
weights u_k = λ⁻ᵏ s_k and their sums M_k = M₀ + u₁ + … + u_k, minimising (1) over b leaves

    Σ_k λⁿ h_k² ((y_k − ȳ_{k−1}) − (x_k − x̄_{k−1})ᵀ w)²,      h_k² = u_k M_{k−1} / M_k        (2)
    x̄_k = x̄_{k−1} + (u_k / M_k) (x_k − x̄_{k−1}),              b = ȳ − x̄ᵀw                    (3)

(the rotation that Helmert's matrix does, one row at a time). Features with a large mean, years or
pressures, lose no digits, and the triangle of RLS stays that of the centred rows. A mean is kept
as the sum of two numbers, the second of which is what rounding left of the first ([1]): rounded
means would differ from those in (2) by as much as 1e-8 of a feature that is 1e8.

[1] D. E. Knuth, "The Art of Computer Programming", volume 2, 1998, section 4.2.2, theorem B.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onepass.types import Array, Floats

__all__ = ["Centering", "Reduced"]


class Reduced(NamedTuple):
    """Rows without an intercept that say the same as the rows that came in."""

    center: "Centering"
    """The means after the block."""
    X: Floats
    """x_k − x̄_{k−1}, (n, d)."""
    Y: Floats
    """y_k − ȳ_{k−1}, (n, c)."""
    scale: Floats
    """h_k, (n,); 0 for the very first row, which only sets the means."""
    fade: float
    """λⁿ."""


@dataclass(frozen=True, eq=False, slots=True)
class Centering:
    """Running means of features and answers.

    Parameters
    ----------
    features : ndarray of shape (d,)
        x̄.
    answers : ndarray of shape (c,)
        ȳ.
    mass : float
        Sum of the faded weights of all rows, Σ λ^(n−k) s_k.
    free : bool
        Whether there is an intercept; if not the means stay zero.
    features_rest, answers_rest : ndarrays of shape (d,) and (c,)
        What rounding left of the means.
    """

    features: Floats
    answers: Floats
    mass: float
    free: bool
    features_rest: Floats
    answers_rest: Floats

    @classmethod
    def start(cls, d: int, c: int, *, free: bool) -> "Centering":
        """The means of no rows."""
        return cls(np.zeros(d), np.zeros(c), 0.0, free, np.zeros(d), np.zeros(c))

    def around(self, X: Floats) -> Floats:
        """Rows less the means, (n, d)."""
        return X - self.features - self.features_rest

    def grown(self, d: int) -> "Centering":
        """The same with new features at the end, zero in every row so far."""
        extra = np.zeros(d - len(self.features))
        return replace(
            self,
            features=np.concatenate((self.features, extra)),
            features_rest=np.concatenate((self.features_rest, extra)),
        )

    def with_outputs(self, at: Array, c: int) -> "Centering":
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""
        answers, rest = np.zeros(c), np.zeros(c)
        old = np.setdiff1d(np.arange(c), at)
        answers[old], rest[old] = self.answers, self.answers_rest
        return replace(self, answers=answers, answers_rest=rest)

    def reduce(self, X: Floats, Y: Floats, weights: Floats | None, forgetting: float) -> Reduced:
        """Rows as (2) wants them, and the means after them.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        Y : ndarray of shape (n, c)
        weights : ndarray of shape (n,), or None for ones
            All positive.
        forgetting : float
            λ in (0, 1]; λⁿ should stay above 1e-3.
        """
        n = X.shape[0]
        if n == 1 and self.mass > 0.0:
            return self._reduce_one(X, Y, 1.0 if weights is None else weights[0], forgetting)
        fade = forgetting**n
        u = np.ones(n) if forgetting == 1.0 else forgetting ** -np.arange(1.0, n + 1.0)
        if weights is not None:
            u = u * weights
        mass = self.mass + np.cumsum(u)
        if not self.free:
            center = replace(self, mass=fade * float(mass[-1]))
            return Reduced(center, X.astype(np.float64, copy=False), Y, np.sqrt(u), fade)
        before = np.concatenate(([self.mass], mass[:-1]))
        empty = self.mass == 0.0
        old = self._at(X[0], Y[0]) if empty else self
        dx, by_x = _around(old.around(X), u, mass)
        dy, by_y = _around(Y - old.answers - old.answers_rest, u, mass)
        if empty:  # the means before the first row are zero
            dx[0], dy[0] = X[0], Y[0]
        center = _moved(old, by_x, by_y, fade * float(mass[-1]))
        return Reduced(center, dx, dy, np.sqrt(u * (before / mass)), fade)

    def _reduce_one(self, X: Floats, Y: Floats, weight: float, forgetting: float) -> Reduced:
        """One row, without the sums over a block."""
        u = weight / forgetting
        mass = self.mass + u
        if not self.free:
            center = replace(self, mass=forgetting * mass)
            return Reduced(center, X, Y, np.array([math.sqrt(u)]), forgetting)
        dx, dy = self.around(X), Y - self.answers - self.answers_rest
        part = u / mass
        center = _moved(self, part * dx[0], part * dy[0], forgetting * mass)
        return Reduced(center, dx, dy, np.array([math.sqrt(part * self.mass)]), forgetting)

    def _at(self, x: Floats, y: Floats) -> "Centering":
        """The means of one row."""
        return replace(self, features=x.astype(np.float64), answers=y.astype(np.float64))


def _moved(old: Centering, by_x: Floats, by_y: Floats, mass: float) -> Centering:
    """The means moved by so much."""
    features, features_rest = _sum(old.features, old.features_rest + by_x)
    answers, answers_rest = _sum(old.answers, old.answers_rest + by_y)
    return Centering(features, answers, mass, old.free, features_rest, answers_rest)


def _around(rows: Floats, u: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Rows, relative to the mean before all, less the mean of those before each; the last (3)."""
    moved = np.cumsum(u[:, None] * rows, axis=0) / mass[:, None]
    centred = rows.copy()
    centred[1:] -= moved[:-1]
    return centred, moved[-1]


def _sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The sum, rounded, and what rounding left of it ([1])."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)
