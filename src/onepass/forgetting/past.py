"""State of least squares before and after a rule of forgetting has learned rows."""

from typing import Any, NamedTuple

import numpy as np

from onepass.errors import Floats
from onepass.linalg.centering import Centering
from onepass.memory.span import Span
from onepass.memory.square_root import Prior, Triangle

__all__ = ["Coming", "Learned", "Past"]


class Past(NamedTuple):
    """All that answers depend on."""

    memory: Triangle
    """The triangle of centred rows; its w is relative to w₀."""
    centering: Centering
    """The means, and the effective number of rows."""
    prior: Prior
    """Which features have been met."""

    def fitted(self, start: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights W (d, c), middle m (d,), offset b (c,): a row's prediction is Wᵀ(x − m) + b."""
        memory, center, _ = self
        weights = start + memory.w
        middle, rest = center.features, center.features_rest
        offset, more = center.answers, center.answers_rest
        if memory.span is not None and memory.span.free:
            (middle, rest), (offset, more) = memory.span.center, memory.span.answers
            more = more + memory.span.solution()[0]
        return weights, middle, offset + (more - rest @ weights)

    def leverage(self, X: Floats) -> Floats:
        """The variance of each row's prediction, relative to that of a target, (n,)."""
        memory, center, _ = self
        span = memory.span
        if isinstance(span, Span):  # of a window, or of a file of a former version
            return np.full(len(X), np.inf)
        if span is not None and span.free:
            A = X - span.center[0] - span.center[1]
            return memory.leverage(np.hstack((np.ones((len(A), 1)), A)))
        return memory.leverage(center.around(X)) + (1.0 / center.mass if center.free else 0.0)


class Coming(NamedTuple):
    """Rows to be learned one after the other."""

    X: Floats
    """(n, d)."""
    Y: Floats
    """(n, c)."""
    weights: Floats | None
    """(n,), all positive; None for ones."""
    start: Floats
    """w₀, (d, c)."""
    time: Any
    """When each came, (n,), numbers or dates in order; None where the rule needs none."""
    last: Any
    """When the row before came; None before the first."""

    def answers(self, X: Floats, Y: Floats) -> Floats:
        """Answers Y (n, c) relative to what w₀ says of rows X (n, d)."""
        return Y - X @ self.start if self.start.any() else Y

    def part(self, i: int, j: int) -> "Coming":
        """The rows from i on and before j, of those that need no time."""
        weights = None if self.weights is None else self.weights[i:j]
        return self._replace(X=self.X[i:j], Y=self.Y[i:j], weights=weights)

    @property
    def roots(self) -> Floats:
        """√s, (n,)."""
        return np.ones(len(self.X)) if self.weights is None else np.sqrt(self.weights)


class Learned(NamedTuple):
    """What learning rows gives."""

    errors: Floats
    """The error of each row just before it was learned, (n, c)."""
    past: Past
    state: Any
    """The rule's own state after the rows."""
