"""Losses of a score and a target, and their derivatives.

Online gradient descent moves the weights against the gradient of one row's loss [1, (4)]. With a
score s = wᵀx that is

    w ← w − η ℓ′(s, y) x,   ℓ′ = ∂ℓ/∂s                                                   (1)

==================== ======================= ==========================================
loss                 ℓ(s, y)                 ℓ′(s, y)
==================== ======================= ==========================================
squared              (s − y)² / 2            e = s − y
absolute             |s − y|                 sign(e), 0 where e = 0
huber, δ             e²/2, or δ(|e| − δ/2)   e where |e| <= δ, else δ sign(e)
epsilon-insensitive  max(0, |s − y| − ε)     sign(e) where |e| > ε, else 0
hinge                max(0, 1 − ys)          −y where ys < 1, else 0
logistic             log(1 + exp(−ys))       −y / (1 + exp(ys))
perceptron           max(0, −ys)             −y where sign(s) ≠ y, else 0    [1, (6)-(8)]
==================== ======================= ==========================================

The last three are margin losses: y is −1 or +1. At a kink the subgradient is 0 (no loss, no step),
except for the perceptron: sign(0) = +1 [1, (5)], so y = −1 is misclassified at s = 0 and ℓ′ = +1
there.

Scores and targets are floats, for one row and one output: the rows of a stream arrive one at a
time, and Python's arithmetic on floats is ten times faster than NumPy's on arrays of length one.

[1] "Online Learning", lecture notes; equations (4)-(9).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


def _sign(e: float) -> float:
    return math.copysign(1.0, e) if e else 0.0


class Loss(ABC):
    """Base class of losses."""

    number: ClassVar[int]
    """The identifier of the loss in the compiled loops."""

    @property
    def parameter(self) -> float:
        """The parameter of the loss in the compiled loops; 0 if it has none."""
        return 0.0

    @abstractmethod
    def value(self, score: float, target: float) -> float:
        """The loss ℓ(s, y) >= 0."""

    @abstractmethod
    def slope(self, score: float, target: float) -> float:
        """The derivative ℓ′(s, y) with respect to the score, or a subgradient."""


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared error.

    Examples
    --------
    >>> Squared().slope(3.0, 1.0)
    2.0
    """

    number: ClassVar[int] = 1

    def value(self, score: float, target: float) -> float:
        """Half the squared error."""
        return 0.5 * (score - target) * (score - target)

    def slope(self, score: float, target: float) -> float:
        """The error s − y."""
        return score - target


@dataclass(frozen=True)
class Absolute(Loss):
    """The absolute error."""

    number: ClassVar[int] = 2

    def value(self, score: float, target: float) -> float:
        """The absolute error."""
        return abs(score - target)

    def slope(self, score: float, target: float) -> float:
        """The sign of the error; 0 if the error is 0."""
        return _sign(score - target)


@dataclass(frozen=True)
class Huber(Loss):
    """Squared for small errors, absolute for large ones, smooth in between.

    Parameters
    ----------
    huber_delta : float > 0, default=1.0
        Size of the error, in units of the targets, at which the loss changes from squared to
        absolute.
    """

    number: ClassVar[int] = 3

    huber_delta: float = field(default=1.0, metadata={"above": 0.0})

    @property
    def parameter(self) -> float:
        """δ."""
        return self.huber_delta

    def value(self, score: float, target: float) -> float:
        """The Huber loss."""
        e = abs(score - target)
        if e <= self.huber_delta:
            return 0.5 * e * e
        return self.huber_delta * (e - 0.5 * self.huber_delta)

    def slope(self, score: float, target: float) -> float:
        """The error, clipped to [−δ, δ]."""
        return max(-self.huber_delta, min(self.huber_delta, score - target))


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """The absolute error beyond a tolerance.

    Parameters
    ----------
    epsilon : float >= 0, default=0.1
        Errors up to this size, in units of the targets, have no loss.
    """

    number: ClassVar[int] = 4

    epsilon: float = field(default=0.1, metadata={"low": 0.0})

    @property
    def parameter(self) -> float:
        """The tolerance."""
        return self.epsilon

    def value(self, score: float, target: float) -> float:
        """The absolute error beyond the tolerance."""
        return max(0.0, abs(score - target) - self.epsilon)

    def slope(self, score: float, target: float) -> float:
        """The sign of the error, 0 within the tolerance."""
        e = score - target
        return _sign(e) if abs(e) > self.epsilon else 0.0


@dataclass(frozen=True)
class Hinge(Loss):
    """The hinge loss, max(0, 1 − ys).

    Examples
    --------
    >>> Hinge().value(0.25, 1.0)
    0.75
    """

    number: ClassVar[int] = 5

    def value(self, score: float, target: float) -> float:
        """max(0, 1 − ys)."""
        return max(0.0, 1.0 - target * score)

    def slope(self, score: float, target: float) -> float:
        """−y if the margin is below 1, else 0."""
        return -target if target * score < 1.0 else 0.0


@dataclass(frozen=True)
class Logistic(Loss):
    """The negative log-likelihood of logistic regression; scores are log-odds."""

    number: ClassVar[int] = 6

    def value(self, score: float, target: float) -> float:
        """−log P(y | s), without overflow at any score."""
        margin = target * score
        return max(0.0, -margin) + math.log1p(math.exp(-abs(margin)))

    def slope(self, score: float, target: float) -> float:
        """−y P(−y | s), without overflow at any score."""
        margin = target * score
        small = math.exp(-abs(margin))  # in (0, 1]
        return -target * (small if margin >= 0 else 1.0) / (1.0 + small)


@dataclass(frozen=True)
class Misclassified(Loss):
    """The perceptron loss, which is 0 for rows classified correctly [1, (6)]."""

    number: ClassVar[int] = 7

    def value(self, score: float, target: float) -> float:
        """max(0, −ys)."""
        return max(0.0, -target * score)

    def slope(self, score: float, target: float) -> float:
        """−y where sign(s) ≠ y, with sign(0) = +1 [1, (8)]."""
        return -target if (score >= 0) != (target > 0) else 0.0


REGRESSION_LOSSES: Mapping[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "huber": Huber,
    "epsilon-insensitive": EpsilonInsensitive,
}
"""Losses for real targets, by the value of the parameter ``loss``."""

MARGIN_LOSSES: Mapping[str, type[Loss]] = {
    "hinge": Hinge,
    "logistic": Logistic,
    "perceptron": Misclassified,
}
"""Losses for targets −1 and +1, by the value of the parameter ``loss``."""
