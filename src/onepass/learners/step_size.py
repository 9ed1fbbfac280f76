"""Step rules: the length of the step against the gradient of the loss.

With a score s = wᵀx, its target y, the loss ℓ(s, y), its slope ℓ′ and t rows learned before:

============ ========================================= ====================================
step         w ← w − …                                 effect of a row's weight q
============ ========================================= ====================================
constant     η ℓ′ x                          [1, (4)]  η q replaces η
decaying     η (1 + decay · t)^−power ℓ′ x             η q replaces η
normalised   η / (noise + ‖x‖²) ℓ′ x         [3]       η q replaces η
pa           ℓ / ‖x‖² ℓ′ x                   [2] PA    none: pa1 with C = ∞
pa1          min(C, ℓ / ‖x‖²) ℓ′ x           [2] PA-I  C q replaces C
pa2          ℓ / (‖x‖² + 1 / (2C)) ℓ′ x      [2] PA-II C q replaces C
============ ========================================= ====================================

An intercept is the weight of a feature that is always 1, which is included in ‖x‖². Rules that
divide by ‖x‖² do not change the weights if it is 0. As (ℓ² / 2)′ = ℓ ℓ′, the passive-aggressive
rules are normalised steps of size 1 on ℓ² / 2.

A penalty l2 / 2 · ‖w‖² is added to the loss of every row. For constant and decaying steps its
gradient has the same step, w ← (1 − η l2) w − …; for normalised steps η is not divided by ‖x‖²,
since the penalty does not depend on the scale of x (leaky NLMS). The intercept is not penalised.

[1] "Online Learning", lecture notes.
[2] K. Crammer, O. Dekel, J. Keshet, S. Shalev-Shwartz, Y. Singer, "Online Passive-Aggressive
    Algorithms", JMLR 7, 2006; figure 1 and section 5.
[3] S. Haykin, "Adaptive Filter Theory", 4th edition, 2002; chapter 6.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from onepass.learners.losses import Loss
from onepass.types import Floats

__all__ = [
    "STEP_RULES",
    "Constant",
    "Decaying",
    "Normalised",
    "PassiveAggressive",
    "PassiveAggressiveI",
    "PassiveAggressiveII",
    "Slope",
    "StepRule",
    "Steps",
]

_TINY = float(np.finfo(np.float64).tiny)  # smaller squared lengths are subnormal and inaccurate


class Slope(NamedTuple):
    """The slope by which the rate of a row is multiplied.

    Parameters
    ----------
    at : callable
        Function of two floats, a score and its target.
    number : int
        The identifier of the loss in the compiled loops; negative for ℓ ℓ′.
    parameter : float
        The parameter of the loss.
    """

    at: Callable[[float, float], float]
    number: int
    parameter: float


class Steps(NamedTuple):
    """Steps of n rows: w ← shrinkage · w − clip(rate · slope, −limit, limit) · x.

    Parameters
    ----------
    rate : ndarray of shape (n,)
    limit : ndarray of shape (n,), optional
        Bounds of the steps.
    shrinkage : ndarray of shape (n,), optional
        Factors by which l2 multiplies the weights.
    damping : ndarray of shape (n,), optional
        If given, the rate has not yet been divided by damping + ‖x‖².
    """

    rate: Floats
    limit: Floats | None = None
    shrinkage: Floats | None = None
    damping: Floats | None = None

    def of(self, rows: slice) -> "Steps":
        """Steps of a slice of the rows."""
        return Steps(self.rate[rows], *(None if part is None else part[rows] for part in self[1:]))

    def scaled(self, lengths: Floats) -> "Steps":
        """Steps whose rates are divided by damping + ‖x‖², given the squared lengths (n,)."""
        if self.damping is None:
            return self
        return Steps(self.rate * _inverse(self.damping + lengths), self.limit, self.shrinkage)


class StepRule(ABC):
    """Base class of step rules."""

    closed_form: ClassVar[bool] = False
    """Whether the step is the closed-form solution for one loss, without a penalty."""

    @abstractmethod
    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """Steps of n rows with weights q (n,), after t earlier rows."""

    @property
    def max_l2(self) -> float:
        """The largest penalty with which no step changes the sign of a weight."""
        return 0.0

    def slope(self, loss: Loss) -> Slope:
        """The slope by which the rate of a row is multiplied."""
        return Slope(loss.slope, loss.number, loss.parameter)


@dataclass(frozen=True)
class Constant(StepRule):
    """Steps of constant size.

    Parameters
    ----------
    step_size : float > 0, default=0.01
        η.
    """

    step_size: float = field(default=0.01, metadata={"above": 0.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """η for every row."""
        del t
        return _sized(np.full(n, self.step_size), q, l2)

    @property
    def max_l2(self) -> float:
        """1 / η."""
        return 1.0 / self.step_size


@dataclass(frozen=True)
class Decaying(StepRule):
    """Steps of decreasing size.

    Parameters
    ----------
    step_size : float > 0, default=0.01
        η, the first step.
    decay : float >= 0, default=0.001
        Rate of the decrease, in 1 / rows.
    power : float in [0, 1], default=0.5
        Exponent of the decrease: 0.5 suits convex losses, 1 strongly convex ones.

    Examples
    --------
    >>> Decaying(step_size=1.0, decay=1.0, power=1.0).steps(4, None, 0, 0.0).rate
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """

    step_size: float = field(default=0.01, metadata={"above": 0.0})
    decay: float = field(default=0.001, metadata={"low": 0.0})
    power: float = field(default=0.5, metadata={"low": 0.0, "high": 1.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """η (1 + decay · t)^−power for the rows t, t + 1, ..."""
        times = np.arange(t, t + n)
        return _sized(self.step_size * (1.0 + self.decay * times) ** -self.power, q, l2)

    @property
    def max_l2(self) -> float:
        """1 / η."""
        return 1.0 / self.step_size


@dataclass(frozen=True)
class Normalised(StepRule):
    """Normalised least mean squares (NLMS), generalised to other losses.

    With the squared loss and ``noise`` 0, a step multiplies the error of its row by 1 − η, whatever
    the scale of the features; so the weights remain bounded for η < 2.

    Parameters
    ----------
    step_size : float > 0, default=0.1
        η.
    noise : float >= 0, default=0.0
        Added to ‖x‖², in its units; damps the steps of short rows.

    Examples
    --------
    >>> steps = Normalised(step_size=1.0, noise=1.0).steps(2, None, 0, 0.0)
    >>> steps.scaled(np.array([3.0, 0.0])).rate
    array([0.25, 1.  ])
    """

    step_size: float = field(default=0.1, metadata={"above": 0.0})
    noise: float = field(default=0.0, metadata={"low": 0.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """η / (noise + ‖x‖²)."""
        del t
        rate = np.full(n, self.step_size)
        shrinkage = np.full(n, 1.0 - self.step_size * l2) if l2 else None
        damping = np.full(n, self.noise)
        return Steps(rate if q is None else rate * q, shrinkage=shrinkage, damping=damping)

    @property
    def max_l2(self) -> float:
        """1 / η."""
        return 1.0 / self.step_size


@dataclass(frozen=True)
class PassiveAggressive(StepRule):
    """PA: the smallest step after which the loss of the row is 0."""

    closed_form: ClassVar[bool] = True

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """1 / ‖x‖²."""
        del q, t, l2
        return Steps(np.ones(n), damping=np.zeros(n))

    def slope(self, loss: Loss) -> Slope:
        """(ℓ² / 2)′ = ℓ ℓ′."""
        value, slope = loss.value, loss.slope
        return Slope(
            lambda score, target: value(score, target) * slope(score, target),
            -loss.number,
            loss.parameter,
        )


@dataclass(frozen=True)
class PassiveAggressiveI(PassiveAggressive):
    """PA-I: bounded PA steps, which are robust to wrong labels.

    Parameters
    ----------
    aggressiveness : float > 0, default=1.0
        C, the maximum step of one row, in units of x.
    """

    aggressiveness: float = field(default=1.0, metadata={"above": 0.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """1 / ‖x‖² with the bound C."""
        del t, l2
        limit = np.full(n, self.aggressiveness)
        return Steps(np.ones(n), limit if q is None else limit * q, damping=np.zeros(n))


@dataclass(frozen=True)
class PassiveAggressiveII(PassiveAggressive):
    """PA-II: damped PA steps.

    Parameters
    ----------
    aggressiveness : float > 0, default=1.0
        C; 1 / (2C) is added to ‖x‖².
    """

    aggressiveness: float = field(default=1.0, metadata={"above": 0.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """1 / (‖x‖² + 1 / (2C))."""
        del t, l2
        C = np.full(n, self.aggressiveness)
        return Steps(np.ones(n), damping=0.5 / (C if q is None else C * q))


STEP_RULES: Mapping[str, type[StepRule]] = {
    "constant": Constant,
    "decaying": Decaying,
    "normalised": Normalised,
    "pa": PassiveAggressive,
    "pa1": PassiveAggressiveI,
    "pa2": PassiveAggressiveII,
}
"""Step rules, by the value of the parameter ``step``."""


def _sized(rate: Floats, q: Floats | None, l2: float) -> Steps:
    """Steps with these rates, multiplied by the weights q, and the shrinkage by l2."""
    return Steps(rate if q is None else rate * q, shrinkage=1.0 - rate * l2 if l2 else None)


def _inverse(lengths: Floats) -> Floats:
    """1 / lengths: 0 if a length is 0, nan if a length overflowed, which is rejected later."""
    nonzero = lengths >= _TINY
    inverse: Floats = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=nonzero)
    inverse[np.isinf(lengths)] = np.nan
    return inverse
