"""Losses: what a score costs once its answer is known, and which way to move it.

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

The last three are losses of a margin: y is −1 or +1. At a kink the subgradient 0 is taken (no
loss, no step), but for the perceptron: sign(0) = +1 [1, (5)], so y = −1 is misclassified at s = 0
and ℓ′ = +1 there.

Scores and answers are floats, one row and one output at a time: so the rows of a stream come,
and Python's own arithmetic is ten times quicker there than that of arrays of length one.

[1] "Online Learning", lecture notes; equations (4)-(9).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

__all__ = [
    "MARGIN_LOSSES",
    "REGRESSION_LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Misclassified",
    "Squared",
]


def _sign(e: float) -> float:
    return math.copysign(1.0, e) if e else 0.0


class Loss(ABC):
    """What a score costs once its answer is known."""

    number: ClassVar[int]
    """By which the compiled loops know it."""

    @property
    def parameter(self) -> float:
        """What else they must know of it."""
        return 0.0

    @abstractmethod
    def value(self, score: float, answer: float) -> float:
        """The loss ℓ(s, y) >= 0."""

    @abstractmethod
    def slope(self, score: float, answer: float) -> float:
        """The derivative ℓ′(s, y) with respect to the score, or the subgradient taken."""


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared error.

    Examples
    --------
    >>> Squared().slope(3.0, 1.0)
    2.0
    """

    number: ClassVar[int] = 1

    def value(self, score: float, answer: float) -> float:
        """Half the squared error."""
        return 0.5 * (score - answer) * (score - answer)

    def slope(self, score: float, answer: float) -> float:
        """The error s − y."""
        return score - answer


@dataclass(frozen=True)
class Absolute(Loss):
    """The absolute error."""

    number: ClassVar[int] = 2

    def value(self, score: float, answer: float) -> float:
        """The absolute error."""
        return abs(score - answer)

    def slope(self, score: float, answer: float) -> float:
        """The sign of the error, 0 where there is none."""
        return _sign(score - answer)


@dataclass(frozen=True)
class Huber(Loss):
    """Squared for small errors, absolute for large ones, smooth in between.

    Parameters
    ----------
    huber_delta : float > 0, default=1.0
        The error, in units of the answers, at which one turns into the other.
    """

    number: ClassVar[int] = 3

    huber_delta: float = field(default=1.0, metadata={"above": 0.0})

    @property
    def parameter(self) -> float:
        """The error at which one turns into the other."""
        return self.huber_delta

    def value(self, score: float, answer: float) -> float:
        """The loss of Huber."""
        e = abs(score - answer)
        if e <= self.huber_delta:
            return 0.5 * e * e
        return self.huber_delta * (e - 0.5 * self.huber_delta)

    def slope(self, score: float, answer: float) -> float:
        """The error, cut off at ± delta."""
        return max(-self.huber_delta, min(self.huber_delta, score - answer))


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """The absolute error beyond a tolerance.

    Parameters
    ----------
    epsilon : float >= 0, default=0.1
        Errors up to here, in units of the answers, cost nothing.
    """

    number: ClassVar[int] = 4

    epsilon: float = field(default=0.1, metadata={"low": 0.0})

    @property
    def parameter(self) -> float:
        """The tolerance."""
        return self.epsilon

    def value(self, score: float, answer: float) -> float:
        """The absolute error beyond the tolerance."""
        return max(0.0, abs(score - answer) - self.epsilon)

    def slope(self, score: float, answer: float) -> float:
        """The sign of the error, 0 within the tolerance."""
        e = score - answer
        return _sign(e) if abs(e) > self.epsilon else 0.0


@dataclass(frozen=True)
class Hinge(Loss):
    """What a margin lacks of 1.

    Examples
    --------
    >>> Hinge().value(0.25, 1.0)
    0.75
    """

    number: ClassVar[int] = 5

    def value(self, score: float, answer: float) -> float:
        """What the margin lacks of 1."""
        return max(0.0, 1.0 - answer * score)

    def slope(self, score: float, answer: float) -> float:
        """−y where the margin is below 1."""
        return -answer if answer * score < 1.0 else 0.0


@dataclass(frozen=True)
class Logistic(Loss):
    """The negative log-likelihood of logistic regression: a score is a log-odds."""

    number: ClassVar[int] = 6

    def value(self, score: float, answer: float) -> float:
        """−log P(y | s), without overflow at any score."""
        margin = answer * score
        return max(0.0, -margin) + math.log1p(math.exp(-abs(margin)))

    def slope(self, score: float, answer: float) -> float:
        """−y P(−y | s), without overflow at any score."""
        margin = answer * score
        small = math.exp(-abs(margin))  # in (0, 1]
        return -answer * (small if margin >= 0 else 1.0) / (1.0 + small)


@dataclass(frozen=True)
class Misclassified(Loss):
    """The perceptron's loss: only misclassified rows count [1, (6)]."""

    number: ClassVar[int] = 7

    def value(self, score: float, answer: float) -> float:
        """How far the score stands on the wrong side."""
        return max(0.0, -answer * score)

    def slope(self, score: float, answer: float) -> float:
        """−y where sign(s) ≠ y, with sign(0) = +1 [1, (8)]."""
        return -answer if (score >= 0) != (answer > 0) else 0.0


REGRESSION_LOSSES: Mapping[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "huber": Huber,
    "epsilon-insensitive": EpsilonInsensitive,
}
"""Losses of real answers, by the names that users give."""

MARGIN_LOSSES: Mapping[str, type[Loss]] = {
    "hinge": Hinge,
    "logistic": Logistic,
    "perceptron": Misclassified,
}
"""Losses of answers −1 and +1, by the names that users give."""
