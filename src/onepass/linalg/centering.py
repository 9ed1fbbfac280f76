"""Exact running centring of rows, for an unpenalised intercept, also with forgetting.

Least squares with an unpenalised intercept,

    min over w, b of  Σ_k λ^(n−k) s_k (y_k − b − xₖᵀw)² + λⁿ ‖w − w₀‖²_Π                      (1)

equals least squares without one on rows centred at the means *before* them. With the unnormalised
weights u_k = λ⁻ᵏ s_k and their sums M_k = M₀ + u₁ + … + u_k, minimising (1) over b leaves

    Σ_k λⁿ h_k² ((y_k − ȳ_{k−1}) − (x_k − x̄_{k−1})ᵀ w)²,      h_k² = u_k M_{k−1} / M_k        (2)
    x̄_k = x̄_{k−1} + (u_k / M_k) (x_k − x̄_{k−1}),              b = ȳ − x̄ᵀw                    (3)

(Helmert's rotation, one row at a time). Features with a large mean, such as years or pressures,
lose no digits, and the triangle of RLS is that of the centred rows. Each mean is stored as the sum
of two numbers, the second of which is the rounding error of the first ([1]): rounded means would
differ from those in (2) by up to 1e-8 for a feature of size 1e8.

Two sets of rows with masses M_a and M_b, each centred at its own means, are centred at their common
means by one additional row, the difference of the means:

    √(M_a M_b / (M_a + M_b)) · (x̄_b − x̄_a, ȳ_b − ȳ_a)                                     (4)

[1] D. E. Knuth, "The Art of Computer Programming", volume 2, 1998, section 4.2.2, theorem B.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onepass.linalg.backend import like
from onepass.types import Array, Floats

__all__ = ["Centering", "CentredRows", "MeanDifference"]


class CentredRows(NamedTuple):
    """Centred rows, whose least-squares problem has no intercept and the same solution."""

    center: "Centering"
    """The means after the block."""
    X: Floats
    """x_k − x̄_{k−1}, (n, d)."""
    Y: Floats
    """y_k − ȳ_{k−1}, (n, c)."""
    scale: Floats
    """h_k, (n,); 0 for the very first row, which only sets the means."""
    before: float
    """λ of the first row: the factor by which the past fades before the block."""
    ages: Floats
    """The factor by which the state before the first row has faded when each row arrives, (n,)."""
    fade: float
    """The last of ``ages``: the factor by which past and block must fade after the block."""


class MeanDifference(NamedTuple):
    """The common means of two sets of rows, and the difference between their means."""

    center: "Centering"
    x: Floats
    """x̄_b − x̄_a, (d,)."""
    y: Floats
    """ȳ_b − ȳ_a, (c,)."""
    scale: float
    """The root in (4); 0 if one of the two is empty or there is no intercept."""


@dataclass(frozen=True, eq=False, slots=True)
class Centering:
    """Running means of features and targets.

    Parameters
    ----------
    features : ndarray of shape (d,)
        x̄.
    targets : ndarray of shape (c,)
        ȳ.
    mass : float
        Sum of the faded weights of all rows, Σ λ^(n−k) s_k.
    free : bool
        Whether there is an intercept; otherwise the means stay zero.
    features_rest, targets_rest : ndarrays of shape (d,) and (c,)
        Rounding errors of the means.
    """

    features: Floats
    targets: Floats
    mass: float
    free: bool
    features_rest: Floats
    targets_rest: Floats

    @classmethod
    def start(cls, d: int, c: int, *, free: bool) -> "Centering":
        """The means before the first row."""
        return cls(np.zeros(d), np.zeros(c), 0.0, free, np.zeros(d), np.zeros(c))

    def around(self, X: Floats) -> Floats:
        """Subtract the means from rows, (n, d)."""
        return X - self.features - self.features_rest

    def grown(self, d: int) -> "Centering":
        """Add features at the end, which were zero in all rows so far."""
        extra = np.zeros(d - len(self.features))
        return replace(
            self,
            features=np.concatenate((self.features, extra)),
            features_rest=np.concatenate((self.features_rest, extra)),
        )

    def with_outputs(self, at: Array, c: int) -> "Centering":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        targets, rest = np.zeros(c), np.zeros(c)
        old = np.setdiff1d(np.arange(c), at)
        targets[old], rest[old] = self.targets, self.targets_rest
        return replace(self, targets=targets, targets_rest=rest)

    def faded(self, factor: float) -> "Centering":
        """Multiply the weight of all rows by ``factor``."""
        return replace(self, mass=self.mass * factor)

    def joined(self, other: "Centering") -> MeanDifference:
        """The common means of two sets of rows with the same features and targets: (4)."""
        mass = self.mass + other.mass
        x = (other.features - self.features) + (other.features_rest - self.features_rest)
        y = (other.targets - self.targets) + (other.targets_rest - self.targets_rest)
        if not self.free or self.mass == 0.0 or other.mass == 0.0:
            center = other if self.mass == 0.0 else self
            return MeanDifference(replace(center, mass=mass), x, y, 0.0)
        part = other.mass / mass
        return MeanDifference(
            _moved(self, part * x, part * y, mass), x, y, math.sqrt(part * self.mass)
        )

    def reduce(
        self, X: Floats, Y: Floats, weights: Floats | None, forgetting: float | Floats
    ) -> CentredRows:
        """Centre a block of rows as in (2), and update the means; rows and means may be tensors.

        Before the block, the past fades by ``CentredRows.before``; after it, the past and the rows
        of the block fade by ``CentredRows.fade``.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        Y : ndarray of shape (n, c)
        weights : ndarray of shape (n,), or None for ones
            All positive.
        forgetting : float, or ndarray of shape (n,)
            λ in (0, 1], by which the past fades before each row; one value, or one per row. The
            product of all but the first should be above 1e-3.
        """
        n = X.shape[0]
        before, ages = _ages(forgetting, n)
        fade = float(ages[-1])
        if n == 1 and self.mass > 0.0:
            return self._reduce_one(X, Y, 1.0 if weights is None else weights[0], before, ages)
        u = 1.0 / ages if weights is None else weights / ages
        past = before * self.mass
        mass = past + np.cumsum(u)
        if not self.free:
            center = replace(self, mass=fade * float(mass[-1]))
            rows = like(X, self.features)
            return CentredRows(center, rows, Y, np.sqrt(u), before, ages, fade)
        earlier = np.concatenate(([past], mass[:-1]))
        empty = self.mass == 0.0
        old = self._at(X[0], Y[0]) if empty else self
        dx, by_x = _around(old.around(X), u, mass)
        dy, by_y = _around(Y - old.targets - old.targets_rest, u, mass)
        if empty:  # the means before the first row are zero
            dx[0], dy[0] = X[0], Y[0]
        center = _moved(old, by_x, by_y, fade * float(mass[-1]))
        return CentredRows(center, dx, dy, np.sqrt(u * (earlier / mass)), before, ages, fade)

    def _reduce_one(
        self, X: Floats, Y: Floats, weight: float, before: float, ages: Floats
    ) -> CentredRows:
        """`reduce` for one row, without the cumulative sums."""
        past = before * self.mass
        mass = past + weight
        if not self.free:
            center = replace(self, mass=mass)
            return CentredRows(center, X, Y, np.array([math.sqrt(weight)]), before, ages, 1.0)
        dx, dy = self.around(X), Y - self.targets - self.targets_rest
        part = weight / mass
        center = _moved(self, part * dx[0], part * dy[0], mass)
        return CentredRows(center, dx, dy, np.array([math.sqrt(part * past)]), before, ages, 1.0)

    def _at(self, x: Floats, y: Floats) -> "Centering":
        """The means of one row."""
        return replace(self, features=like(x, self.features), targets=like(y, self.targets))


def _ages(forgetting: float | Floats, n: int) -> tuple[float, Floats]:
    """λ of the first row, and cumulative products of the λ of later rows, (n,), starting at 1."""
    if isinstance(forgetting, float):
        return forgetting, np.ones(n) if forgetting == 1.0 else forgetting ** np.arange(float(n))
    ages = forgetting.copy()
    ages[0] = 1.0
    return float(forgetting[0]), np.cumprod(ages)


def _moved(old: Centering, by_x: Floats, by_y: Floats, mass: float) -> Centering:
    """Add differences to the means, and set a new mass."""
    features, features_rest = _sum(old.features, old.features_rest + by_x)
    targets, targets_rest = _sum(old.targets, old.targets_rest + by_y)
    return Centering(features, targets, mass, old.free, features_rest, targets_rest)


def _around(rows: Floats, u: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Subtract in place the mean of the rows before each row; also return the last mean (3)."""
    moved = (like(u, rows)[:, None] * rows).cumsum(0) / like(mass, rows)[:, None]
    rows[1:] -= moved[:-1]
    return rows, moved[-1]


def _sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum, and its rounding error ([1])."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)
