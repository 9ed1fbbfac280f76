"""Automatic forgetting: a mixture of forgetting factors, weighted by their prequential errors.

K experts learn the same rows, one without forgetting and K − 1 with half-lives from 32,768 down to
8 rows (:class:`~onepass.memory.forgetting.exponential.Bounded`). Each output is predicted by a
weighted mean of the experts. With the errors e_k of a row of weight s before it is learned,

    v = Σ ρ^(n−i) min(s_i e_i², 1000 v_i) / Σ ρ^(n−i)    ρ = 1 − 1/200                     (1)
    ℓ_k = ½ min(s e_k² / v, 16)                                                             (2)
    π_k ← ((1 − α) π_k + α / K) exp(−η ℓ_k), normalised,   η = ½, α = 0.005                    (3)

for each output: exponential weights with a fixed share ([1], Fixed Share), so that the mixture
follows a change of the best factor. In (1), e_i is the error of the leading expert, and v_i the
value before row i: after an outlier, v is soon that of the errors again. The first 20 rows,
which hardly determine the weights, are not counted. v makes the losses independent of units and of
the scale of the row weights; in it e_i² counts as at least 1e-16 y_i², so that rounding errors do
not decide between exact fits. For class indicators, e_k is the error of the prediction limited to
[0, 1]: a score beyond the indicator of the right class is no error. Predictions remain linear in
the row. Their variance, and the covariance of the weights, are those of a mixture with the noise v,
which contains the errors of the experts on average,

    Var y = v (1 + 1/ν + (x − x̄)ᵀ P₁ (x − x̄)) + Σ_k π_k (f_k(x) − f(x))²                    (4)
    cov(w) = Σ_k π_k (v P_k + (w_k − w)(w_k − w)ᵀ)                                          (5)

where P₁ and ν are those of all rows, without forgetting. Cost: K times that of one factor.

[1] M. Herbster, M. Warmuth, "Tracking the best expert", Machine Learning 32, 1998.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass import linalg, native
from onepass.linalg.centering import Centering
from onepass.memory.floor import Floor
from onepass.memory.forgetting.exponential import Bounded, Learned, LeastSquaresState, NewRows
from onepass.memory.square_root import Prior, Triangle
from onepass.types import Array, Floats

__all__ = ["EXPERTS", "Auto", "AutoState"]

EXPERTS = (
    Bounded(1.0),
    *(Bounded(2.0 ** (-1.0 / rows)) for rows in (32768, 8192, 2048, 512, 128, 32, 8)),
)
"""The forgetting rules of the experts; the first one does not forget."""

SHARE = 0.005
RATE = 0.5
LIMIT = 16.0
CAP = 1000.0
DECAY = 1.0 - 1.0 / 200.0
SKIPPED = 20.0  # a constant: columns may be added later, at a row that depends on the blocks
ROUNDING = 1e-16  # squared errors, relative to the target, that may be rounding

Part = tuple[Triangle, Centering, Prior, Floor]


@dataclass(frozen=True, eq=False, slots=True)
class AutoState:
    """The experts that forget, and the weights of all experts.

    Parameters
    ----------
    parts : tuple of K − 1 tuples (Triangle, Centering, Prior, Floor)
        The experts after the first one, which is the state of the learner itself.
    weights : ndarray of shape (K, c)
        π of (3).
    squares : ndarray of shape (c,)
        The numerator of (1).
    count : float
        Its denominator; below 0, the number of rows that will not be counted.
    indicators : bool
        Whether targets are class indicators.
    """

    parts: tuple[Part, ...]
    weights: Floats
    squares: Floats
    count: float
    indicators: bool = False

    def experts(self, past: LeastSquaresState) -> list[tuple[LeastSquaresState, Floor]]:
        """All experts, of which ``past`` is the first."""
        first = (past, Floor.start(self.parts[0][3].least))
        return [first, *((LeastSquaresState(*part[:3]), part[3]) for part in self.parts)]

    @property
    def factors(self) -> Floats:
        """The forgetting factor that leads for each output, (c,)."""
        factors = np.array([rule.factor for rule in EXPERTS], dtype=np.float64)
        return np.asarray(factors[self.weights.argmax(axis=0)])

    def fitted(self, past: LeastSquaresState, start: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights W (d, c), centre m (d,), offset b (c,): a row's prediction is Wᵀ(x − m) + b."""
        each = [expert.fitted(start) for expert, _ in self.experts(past)]
        middle = each[int(self.weights.sum(axis=1).argmax())][1]
        offsets = [b + (middle - m) @ W for W, m, b in each]
        weights = np.einsum("kc,kdc->dc", self.weights, [W for W, _, _ in each])
        return weights, middle, (self.weights * offsets).sum(axis=0)

    @property
    def noise(self) -> Floats:
        """V of (1), (c,); infinite before the first counted row."""
        return self.squares / self.count if self.count > 0.0 else np.full_like(self.squares, np.inf)

    def variance(self, past: LeastSquaresState, X: Floats, start: Floats) -> Floats:
        """The variance (4) of a target of each row, (n, c); infinite while undetermined."""
        f = _predicted(self.fitted(past, start), X)
        each = zip(self.weights, self.experts(past), strict=True)
        between = sum(pi * (_predicted(one.fitted(start), X) - f) ** 2 for pi, (one, _) in each)
        return np.asarray(past.variance(X, self.noise) + between)

    def covariance(self, past: LeastSquaresState, start: Floats) -> Floats:
        """The covariance (5) of the weights of each output, (c, d, d)."""
        w, total = self.fitted(past, start)[0], np.zeros(())
        for pi, (one, _) in zip(self.weights, self.experts(past), strict=True):
            by = (start + one.memory.w - w).T
            within = one.covariance(self.noise)
            total = total + pi[:, None, None] * (within + by[:, :, None] * by[:, None])
        return total

    def mixed(self, errors: Floats, Y: Floats, s: Floats | None) -> tuple[Floats, "AutoState"]:
        """The errors of the mixture, (n, c), and the state after rows.

        Parameters
        ----------
        errors : ndarray of shape (K, n, c)
            The error of each expert just before each row is learned.
        Y : ndarray of shape (n, c)
        s : ndarray of shape (n,), or None for ones
            The weights of the rows.
        """
        weights, squares, count = self.weights, self.squares, self.count
        if native.loops is not None:
            k, c = weights.shape
            numbers, mixed = np.concatenate((weights.ravel(), squares, (count,))), np.empty(Y.shape)
            given = (
                None if a is None else np.ascontiguousarray(a, np.float64) for a in (Y, s, errors)
            )
            native.loops.mix(k, len(Y), c, self.indicators, *given, numbers, mixed)
            weights, squares = numbers[: k * c].reshape(k, c), numbers[k * c : -1]
            after = AutoState(self.parts, weights, squares, float(numbers[-1]), self.indicators)
            return mixed, after
        limited = Y - np.clip(Y - errors, 0.0, 1.0) if self.indicators else errors
        losses = limited**2 if s is None else limited**2 * s[:, None]
        least = ROUNDING * (Y**2 if s is None else Y**2 * s[:, None])
        mixed, each, share = np.empty(Y.shape), np.arange(len(squares)), SHARE / len(weights)
        for i in range(len(Y)):
            mixed[i] = (weights * errors[:, i]).sum(axis=0)
            if count < 0.0:
                count += 1.0
                continue
            v = squares / max(count, 1e-300)
            v = np.where(v > 0.0, v, np.inf)
            loss = np.minimum(losses[:, i] / v, LIMIT)
            prior = (1.0 - SHARE) * weights + share
            weights = prior * np.exp(-0.5 * RATE * (loss - loss.min(axis=0)))  # (2), (3)
            weights /= weights.sum(axis=0)
            leading = losses[weights.argmax(axis=0), i, each]
            squares = DECAY * squares + np.maximum(np.minimum(leading, CAP * v), least[i])  # (1)
            count = DECAY * count + 1.0
        return mixed, replace(self, weights=weights, squares=squares, count=count)

    def after_merge(
        self,
        other: "AutoState",
        pasts: list[LeastSquaresState],
        layout: Any,
        rows: tuple[int, int],
        ridge: float,
    ) -> "AutoState":
        """The state after the rows of another learner too.

        Its rows count as the last ones; for concurrent streams, by their number.

        Parameters
        ----------
        other : AutoState
        pasts : list of LeastSquaresState
            The merged experts that forget.
        layout : Layout
            The positions of the other learner's features and outputs.
        rows : tuple of int
            The numbers of rows of the two learners.
        ridge : float
            The penalty of features that only the other learner has.
        """
        weights, squares = (
            np.full(self.weights.shape, 1.0 / len(EXPERTS)),
            np.zeros(len(self.squares)),
        )
        weights[:, layout.outputs], squares[layout.outputs] = other.weights, other.squares
        n, more = rows
        share, keep = (1.0 - SHARE) ** more if n else 0.0, DECAY**more
        if layout.concurrent:
            share, keep = n / (n + more), 1.0
        count = keep * max(self.count, 0.0) + max(other.count, 0.0)
        floors = (part[3].grown(layout.d, ridge) for part in self.parts)
        each = zip(pasts, floors, other.parts, strict=True)
        return replace(
            self,
            parts=tuple((*past, floor.joined(b[3], layout.features)) for past, floor, b in each),
            weights=share * self.weights + (1.0 - share) * weights,
            squares=keep * self.squares + squares,
            count=count if count > 0.0 else min(self.count + more, 0.0),
        )

    def grown(self, d: int, ridge: float) -> "AutoState":
        """Add features at the end, which were zero in all rows so far."""
        return replace(
            self,
            parts=tuple(
                (
                    memory.grown(d, center, floor.share_of_new(prior)),
                    center.grown(d),
                    prior.grown(d),
                    floor.grown(d, ridge),
                )
                for memory, center, prior, floor in self.parts
            ),
        )

    def with_outputs(self, at: Array, c: int) -> "AutoState":
        """Extend to c outputs; those in columns ``at`` are new and were zero in all rows so far."""
        old = np.setdiff1d(np.arange(c), at)
        weights, squares = np.full((len(EXPERTS), c), 1.0 / len(EXPERTS)), np.zeros(c)
        weights[:, old], squares[old] = self.weights, self.squares
        parts = tuple(
            (memory.with_outputs(at, c), center.with_outputs(at, c), prior, floor)
            for memory, center, prior, floor in self.parts
        )
        return replace(self, parts=parts, weights=weights, squares=squares)

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        memories = [part[0] for part in self.parts]
        squares = [
            number for memory in memories for number in (np.diagonal(memory.R), memory.squares)
        ]
        return linalg.finite(self.weights, self.squares, *squares) and all(
            floor.finite for *_, floor in self.parts
        )


@dataclass(frozen=True)
class Auto:
    """Forgetting at a rate that follows the stream: a mixture of eight forgetting factors.

    Its experts and weights are described in :mod:`onepass.memory.forgetting.auto`.

    Examples
    --------
    >>> import onepass as op
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> drifting = np.cumsum(0.1 * rng.normal(size=(4000, 3)), axis=0)
    >>> y = (X * drifting).sum(axis=1) + rng.normal(size=4000)
    >>> model = op.RLSRegressor(forgetting="auto").fit(X, y)
    >>> round(model.forgetting_factor_, 3)
    0.917
    """

    state: ClassVar[type] = AutoState
    clock: ClassVar[None] = None
    additive: ClassVar[bool] = False
    stores_rows: ClassVar[bool] = False

    def start(self, past: LeastSquaresState, least: Floats) -> AutoState:
        """The initial state; ``least`` (d,) is the ridge of each coefficient."""
        part, c = (*past, Floor.start(least)), past.memory.z.shape[1]
        weights = np.full((len(EXPERTS), c), 1.0 / len(EXPERTS))
        return AutoState((part,) * (len(EXPERTS) - 1), weights, np.zeros(c), -SKIPPED)

    def learn(self, state: AutoState, past: LeastSquaresState, rows: NewRows) -> Learned:
        """Learn rows one after the other."""
        experts = zip(EXPERTS, state.experts(past), strict=True)
        learned = [rule.learn(floor, expert, rows) for rule, (expert, floor) in experts]
        errors = np.array([each.errors for each in learned])
        mixed, after = state.mixed(errors, rows.Y, rows.weights)
        parts = tuple((*each.past, each.state) for each in learned[1:])
        return Learned(mixed, learned[0].past, replace(after, parts=parts))


def _predicted(fitted: tuple[Floats, Floats, Floats], X: Floats) -> Floats:
    """Predictions of rows, (n, c)."""
    W, m, b = fitted
    predictions: Floats = (X - m) @ W + b
    return predictions
