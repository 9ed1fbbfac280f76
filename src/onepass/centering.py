"""Centering: an intercept that costs nothing, exact at every row, also with forgetting.

Least squares with an intercept that is not penalised,

    min over w, b of  Σ_k λ^(n−k) s_k (y_k − b − xₖᵀw)² + λⁿ ‖w − w₀‖²_Π                      (1)

is least squares without one on rows centred at the means *before* them. With the unnormalised
weights u_k = λ⁻ᵏ s_k and their sums M_k = M₀ + u₁ + … + u_k, minimising (1) over b leaves

    Σ_k λⁿ h_k² ((y_k − ȳ_{k−1}) − (x_k − x̄_{k−1})ᵀ w)²,      h_k² = u_k M_{k−1} / M_k        (2)
    x̄_k = x̄_{k−1} + (u_k / M_k) (x_k − x̄_{k−1}),              b = ȳ − x̄ᵀw                    (3)

(the rotation that Helmert's matrix does, one row at a time). Features with a large mean, years or
pressures, lose no digits, and the triangle of RLS stays that of the centred rows.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onepass.types import Floats

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
    """

    features: Floats
    answers: Floats
    mass: float
    free: bool

    @classmethod
    def start(cls, d: int, c: int, *, free: bool) -> "Centering":
        """The means of no rows."""
        return cls(np.zeros(d), np.zeros(c), 0.0, free)

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
            center = Centering(self.features, self.answers, fade * float(mass[-1]), free=False)
            return Reduced(center, X.astype(np.float64, copy=False), Y, np.sqrt(u), fade)
        before = np.concatenate(([self.mass], mass[:-1]))
        empty = self.mass == 0.0
        dx, mean_x = _around(X, X[0] if empty else self.features, u, mass)
        dy, mean_y = _around(Y, Y[0] if empty else self.answers, u, mass)
        if empty:  # the means before the first row are zero
            dx[0], dy[0] = X[0], Y[0]
        center = Centering(mean_x, mean_y, fade * float(mass[-1]), free=True)
        return Reduced(center, dx, dy, np.sqrt(u * (before / mass)), fade)

    def _reduce_one(self, X: Floats, Y: Floats, weight: float, forgetting: float) -> Reduced:
        """One row, without the sums over a block."""
        u = weight / forgetting
        mass = self.mass + u
        if not self.free:
            center = Centering(self.features, self.answers, forgetting * mass, free=False)
            return Reduced(center, X, Y, np.array([math.sqrt(u)]), forgetting)
        dx, dy = X - self.features, Y - self.answers
        part = u / mass
        center = Centering(
            self.features + part * dx[0], self.answers + part * dy[0], forgetting * mass, free=True
        )
        return Reduced(center, dx, dy, np.array([math.sqrt(part * self.mass)]), forgetting)


def _around(rows: Floats, start: Floats, u: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Rows less the mean of those before each (3), and the mean after all."""
    shifted = rows.astype(np.float64, copy=False) - start
    sums = np.cumsum(u[:, None] * shifted, axis=0)
    moved = sums / mass[:, None]
    centred = shifted.copy()
    centred[1:] -= moved[:-1]
    return centred, start + moved[-1]
