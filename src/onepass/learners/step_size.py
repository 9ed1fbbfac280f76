"""Step rules: how far a row moves the weights against the slope of its loss.

With a score s = wᵀx, its answer y, the loss ℓ(s, y), its slope ℓ′ and t rows learned before:

============ ========================================= ====================================
step         w ← w − …                                 what a row's weight q does
============ ========================================= ====================================
constant     η ℓ′ x                          [1, (4)]  η q stands for η
decaying     η (1 + decay · t)^−power ℓ′ x             η q stands for η
normalised   η / (noise + ‖x‖²) ℓ′ x         [3]       η q stands for η
pa           ℓ / ‖x‖² ℓ′ x                   [2] PA    nothing: pa1 at C = ∞
pa1          min(C, ℓ / ‖x‖²) ℓ′ x           [2] PA-I  C q stands for C
pa2          ℓ / (‖x‖² + 1 / (2C)) ℓ′ x      [2] PA-II C q stands for C
============ ========================================= ====================================

An intercept is one more feature that is always 1, and counts in ‖x‖². A row whose ‖x‖² vanishes
has no direction to move in: the rules that divide by it leave the weights alone. As
(ℓ² / 2)′ = ℓ ℓ′, the passive-aggressive rules are normalised steps of size 1 on ℓ² / 2.

A penalty l2 / 2 · ‖w‖² joins the loss of every row. For constant and decaying steps its gradient
is taken with the same η, w ← (1 − η l2) w − …; for normalised steps with η undivided, since the
penalty does not depend on the scale of x (leaky NLMS). The intercept is not penalised.

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

_TINY = float(np.finfo(np.float64).tiny)  # below it a squared length has lost its digits


class Slope(NamedTuple):
    """What a row's rate is multiplied with.

    Parameters
    ----------
    at : callable
        Of two floats, a score and its answer.
    number : int
        By which the compiled loops know it: the loss's; negative where it is ℓ ℓ′.
    parameter : float
        The loss's.
    """

    at: Callable[[float, float], float]
    number: int
    parameter: float


class Steps(NamedTuple):
    """What each of n rows does: w ← keep · w − clip(rate · slope, −limit, limit) · x.

    Parameters
    ----------
    rate : ndarray of shape (n,)
    limit : ndarray of shape (n,), optional
        Where steps are bounded.
    keep : ndarray of shape (n,), optional
        Where l2 shrinks the weights.
    damping : ndarray of shape (n,), optional
        Where the rate is yet to be divided by damping + ‖x‖².
    """

    rate: Floats
    limit: Floats | None = None
    keep: Floats | None = None
    damping: Floats | None = None

    def of(self, rows: slice) -> "Steps":
        """The steps of some of the rows."""
        return Steps(self.rate[rows], *(None if part is None else part[rows] for part in self[1:]))

    def along(self, lengths: Floats) -> "Steps":
        """The steps of rows with these squared lengths (n,)."""
        if self.damping is None:
            return self
        return Steps(self.rate * _inverse(self.damping + lengths), self.limit, self.keep)


class StepRule(ABC):
    """How far a row moves the weights."""

    closed_form: ClassVar[bool] = False
    """Whether the step is the solution for one loss, without a penalty."""

    @abstractmethod
    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """The steps of n rows with weights q (n,), t rows before them."""

    @property
    def max_l2(self) -> float:
        """The largest penalty with which no step turns a weight's sign round."""
        return 0.0

    def slope(self, loss: Loss) -> Slope:
        """What a row's rate is multiplied with."""
        return Slope(loss.slope, loss.number, loss.parameter)


@dataclass(frozen=True)
class Constant(StepRule):
    """Steps of one size.

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
    """Steps that grow shorter.

    Parameters
    ----------
    step_size : float > 0, default=0.01
        η, the first step.
    decay : float >= 0, default=0.001
        How soon steps grow shorter, in 1 / rows.
    power : float in [0, 1], default=0.5
        How much shorter: 0.5 suits convex losses, 1 strongly convex ones.

    Examples
    --------
    >>> Decaying(step_size=1.0, decay=1.0, power=1.0).steps(4, None, 0, 0.0).rate
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """

    step_size: float = field(default=0.01, metadata={"above": 0.0})
    decay: float = field(default=0.001, metadata={"low": 0.0})
    power: float = field(default=0.5, metadata={"low": 0.0, "high": 1.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """η (1 + decay · t)^−power, for t, t + 1, and so on."""
        times = np.arange(t, t + n)
        return _sized(self.step_size * (1.0 + self.decay * times) ** -self.power, q, l2)

    @property
    def max_l2(self) -> float:
        """1 / η."""
        return 1.0 / self.step_size


@dataclass(frozen=True)
class Normalised(StepRule):
    """Normalised least mean squares, and the same for other losses.

    With the squared loss a row's error shrinks by the factor 1 − η where ``noise`` is 0, whatever
    the scale of its features; so η < 2 keeps the weights bounded.

    Parameters
    ----------
    step_size : float > 0, default=0.1
        η.
    noise : float >= 0, default=0.0
        Added to ‖x‖², in its units: damps rows that are short.

    Examples
    --------
    >>> steps = Normalised(step_size=1.0, noise=1.0).steps(2, None, 0, 0.0)
    >>> steps.along(np.array([3.0, 0.0])).rate
    array([0.25, 1.  ])
    """

    step_size: float = field(default=0.1, metadata={"above": 0.0})
    noise: float = field(default=0.0, metadata={"low": 0.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """η / (noise + ‖x‖²)."""
        del t
        rate = np.full(n, self.step_size)
        keep = np.full(n, 1.0 - self.step_size * l2) if l2 else None
        damping = np.full(n, self.noise)
        return Steps(rate if q is None else rate * q, keep=keep, damping=damping)

    @property
    def max_l2(self) -> float:
        """1 / η."""
        return 1.0 / self.step_size


@dataclass(frozen=True)
class PassiveAggressive(StepRule):
    """PA: the smallest step after which the row has no loss."""

    closed_form: ClassVar[bool] = True

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """1 / ‖x‖²."""
        del q, t, l2
        return Steps(np.ones(n), damping=np.zeros(n))

    def slope(self, loss: Loss) -> Slope:
        """(ℓ² / 2)′ = ℓ ℓ′."""
        value, slope = loss.value, loss.slope
        return Slope(
            lambda score, answer: value(score, answer) * slope(score, answer),
            -loss.number,
            loss.parameter,
        )


@dataclass(frozen=True)
class PassiveAggressiveI(PassiveAggressive):
    """PA-I: the same, bounded, so that a wrong label does little harm.

    Parameters
    ----------
    aggressiveness : float > 0, default=1.0
        C, the most that one row moves the weights, in units of x.
    """

    aggressiveness: float = field(default=1.0, metadata={"above": 0.0})

    def steps(self, n: int, q: Floats | None, t: int, l2: float) -> Steps:
        """1 / ‖x‖², and the bound C."""
        del t, l2
        limit = np.full(n, self.aggressiveness)
        return Steps(np.ones(n), limit if q is None else limit * q, damping=np.zeros(n))


@dataclass(frozen=True)
class PassiveAggressiveII(PassiveAggressive):
    """PA-II: the same, damped.

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
"""The step rules, by the names that users give."""


def _sized(rate: Floats, q: Floats | None, l2: float) -> Steps:
    """Steps of these sizes, weighed, and the shrinkage that belongs to them."""
    return Steps(rate if q is None else rate * q, keep=1.0 - rate * l2 if l2 else None)


def _inverse(lengths: Floats) -> Floats:
    """1 / lengths; 0 where a length vanishes, and nan where it overflowed, to be refused later."""
    there = lengths >= _TINY
    inverse: Floats = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=there)
    inverse[np.isinf(lengths)] = np.nan
    return inverse
