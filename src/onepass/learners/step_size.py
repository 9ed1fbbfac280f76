"""Step rules: the length of the step against the gradient of the loss.

With a score s = wᵀx, its target y, the loss ℓ(s, y), its slope ℓ′ and t rows learned before:

============ ========================================= ====================================
step         w ← w − …                                 effect of a row's weight q
============ ========================================= ====================================
adaptive     (1)-(6) below                             η q replaces η
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

Adaptive steps. The step that reduces the expected error of a linear model most has the share of the
squared error that the model can still remove [3, section 6.4]; what exceeds it follows the noise of
single rows. The share R of the variance of the targets that the model has explained in recent rows
measures it without units, so that a model which explains nothing stays near the mean of the
targets. For each output, with rates r = η q, their sum T up to and including the row, γ = r / T,
β = max(γ, min(1, r / 100)), L = noise + ‖x‖², κ = 4 for the logistic loss (its second derivative is
at most 1 / κ) and 1 for others:

    R = max(1 − A / V, R₀),   R₀ = 0.03, for margin losses max(0.03, 30 / (30 + T))            (1)
    E ← E + β (min(L, 10 E) − E),   m ← m + γ (y − m)   energy of rows, mean of targets        (2)
    V ← V + β ((y − m)² − V),   A ← A + β (e² − A)      variance, squared error                (3)
    w ← w − κ min(r R, 1) / (L + E) ℓ′ x                                                       (4)
    b ← b − κ max(min(r R, 1) / (L + E), γ) ℓ′                                                 (5)
    b ← b + y − s                                     instead of (3)-(5), on the first row     (6)

By (4), the weight of a row never makes a step overshoot. Before (2), E is reduced to at most 10 L
if γ >= 1/2: a large first row alone does not make all later steps small. e is the error of s, for
the hinge and perceptron losses of s clipped to [−1, 1], for the logistic loss of tanh(s / 2) =
P(+1) − P(−1). By (5) and (6) the intercept starts at the first target and then moves at least as
fast as the mean of the targets. The slopes ±1 of the absolute and the epsilon-insensitive loss are
multiplied by √A, and those of the Huber loss by max(1, √A / δ), which gives them the units of the
targets. Without an intercept m = 0, and (6) does not apply.

[1] "Online Learning", lecture notes.
[2] K. Crammer, O. Dekel, J. Keshet, S. Shalev-Shwartz, Y. Singer, "Online Passive-Aggressive
    Algorithms", JMLR 7, 2006; figure 1 and section 5.
[3] S. Haykin, "Adaptive Filter Theory", 4th edition, 2002; chapter 6.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from onepass.learners.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
)
from onepass.types import Floats

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

    def of(self, rows: slice) -> Steps:
        """Steps of a slice of the rows."""
        return Steps(self.rate[rows], *(None if part is None else part[rows] for part in self[1:]))

    def scaled(self, lengths: Floats) -> Steps:
        """Steps whose rates are divided by damping + ‖x‖², given the squared lengths (n,)."""
        if self.damping is None:
            return self
        return Steps(self.rate * _inverse(self.damping + lengths), self.limit, self.shrinkage)


class SingleSteps(NamedTuple):
    """Steps of the rows t, t + 1, ..., in the compiled state of single rows.

    Parameters
    ----------
    rate, decay, power : float
        The rate of row t is rate · (1 + decay · t)^−power.
    l2 : float
        The shrinkage is 1 − l2 · rate.
    limit, damping : float
        As in `Steps`; without them, ``limit`` is infinite and ``damping`` negative.
    t : int
        The index of the next row.
    """

    rate: float
    decay: float = 0.0
    power: float = 0.0
    l2: float = 0.0
    limit: float = math.inf
    damping: float = -1.0
    t: int = 0


class StepRule(ABC):
    """Base class of step rules."""

    decay: float = 0.0
    power: float = 0.0

    closed_form: ClassVar[bool] = False
    """Whether the step is the closed-form solution for one loss, without a penalty."""

    statistics: ClassVar[int] = 0
    """Number of statistics of each output that the steps depend on."""

    @abstractmethod
    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """Steps of n rows with weights q (n,), after t earlier rows."""

    def single(self, t: int, l2: float) -> SingleSteps:
        """Steps of single rows of weight 1 after t earlier rows."""
        first = self.steps(1, None, 0, 0.0)
        limit = math.inf if first.limit is None else float(first.limit[0])
        damping = -1.0 if first.damping is None else float(first.damping[0])
        rate = float(first.rate[0])
        return SingleSteps(rate, self.decay, self.power, l2, limit, damping, t)

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
class Adaptive(Normalised):
    """Normalised steps of the size that the share of the explained variance justifies.

    Parameters
    ----------
    step_size : float > 0, default=1.0
        η, the step of a model that explains all of the variance; also the rate at which the
        statistics forget.
    noise : float >= 0, default=0.0
        Added to ‖x‖², in its units.
    """

    statistics: ClassVar[int] = 5

    step_size: float = field(default=1.0, metadata={"above": 0.0})


_LEAST, _RECENT, _START, _CAP = 0.03, 0.01, 30.0, 10.0  # constants, as in native/python/descent.c
_HUBER, _LOGISTIC, _HINGE = Huber.number, Logistic.number, Hinge.number
_CLIPPED = (Absolute.number, EpsilonInsensitive.number)


def adaptive_step(
    statistics: list[float], slope: Slope, unit: float, rate: float, keep: float, length: float,
    score: float, target: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Update the statistics (T, E, m, V, A) of an output; return the steps of w and b, and κ."""
    T, E, m, V, A = statistics
    margin, first = slope.number >= _HINGE, T == 0.0 and unit != 0.0
    T += rate
    gain = rate / T
    floor = max(_LEAST, _START / (_START + T)) if margin else _LEAST
    R = max(1.0 - A / V if V else 0.0, floor)  # (1)
    v = target - m
    recent = max(gain, min(1.0, _RECENT * rate))
    if gain >= 0.5:  # a row that weighs at least as much as all before
        E = min(E, _CAP * length)
    E += recent * ((min(length, _CAP * E) if E > 0 else length) - E)  # (2)
    m += unit * gain * v
    if first:
        statistics[:] = T, E, m, V, A
        return 0.0, score - target, 1.0  # (6)
    logistic = slope.number == _LOGISTIC
    estimate = math.tanh(0.5 * score) if logistic else max(-1.0, min(1.0, score))
    e = (estimate if margin else score) - target
    V += recent * (v * v - V)  # (3)
    A += recent * (e * e - A)
    statistics[:] = T, E, m, V, A
    change = slope.at(score, target) * (4.0 if logistic else 1.0)
    if slope.number in _CLIPPED:
        change *= math.sqrt(A)
    elif slope.number == _HUBER:
        change *= max(1.0, math.sqrt(A) / slope.parameter)
    by = min(R * rate, 1.0) * float(_inverse(np.array([length + E]))[0])
    return by * change, unit * max(by, gain) * change, 1.0 - R * (1.0 - keep)  # (4), (5)


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
    "adaptive": Adaptive,
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
