"""Perceptron: a linear classifier that is updated on mistakes only.

For labels y in {−1, +1}, with sign(0) = +1 [1, Algorithm 1]:

    ŷ_t = sign(x_tᵀ β)                        the prediction                         (1)
    β ← β + η y_t x_t   where ŷ_t ≠ y_t       learn                                  (2)

which is online gradient descent on the loss max(0, −y xᵀβ). If some unit vector u separates the
rows, y_t x_tᵀ u >= γ, and ‖x_t‖ <= R, there are at most (R / γ)² mistakes if β starts at 0, for a
stream of any length [2].

With more classes, each has its own vector and the largest score is predicted; on a mistake [3]

    w_y ← w_y + η/2 · x,   w_ŷ ← w_ŷ − η/2 · x                                       (3)

which for two classes is (2) with β = w_1 − w_0. Cost: O(dc) time per row, O(dc) memory.

[1] "Online Learning", lecture notes; (5)-(9) and Algorithm 1.
[2] A. B. J. Novikoff, "On Convergence Proofs on Perceptrons", Symposium on the Mathematical
    Theory of Automata, 1962.
[3] K. Crammer, Y. Singer, "Ultraconservative Online Algorithms for Multiclass Problems", JMLR 3,
    2003; the update with one wrong class.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from onepass import native
from onepass.declared import param, start_states
from onepass.errors import NumericalError, ParameterError
from onepass.learners.estimator import Classifier
from onepass.learners.linear import (
    HALVES,
    Linear,
    float64_blocks,
    initial_prediction,
    named_class_columns,
)
from onepass.learners.step_size import SingleSteps
from onepass.serialization.state import RowCounter
from onepass.types import Array, Floats


@dataclass(eq=False, repr=False)
class Perceptron(Linear, Classifier):
    """Linear perceptron classifier.

    Parameters
    ----------
    step_size : float > 0, default=1.0
        η. With zero initial weights, η scales the weights and does not change predictions.
    initial : {"zeros", "random"}, default="zeros"
        Initial weights β. Random weights are standard normal, for the labels in ``classes``; a
        class that occurs later starts at zero.
    seed : int >= 0, default=None
        Seed of the random initial weights. None is 0.
    fit_intercept : bool, default=False
        Whether to learn an intercept, as the weight of a feature that is always 1. The intercept
        starts at zero.
    classes : array-like, default=None
        Labels known in advance. New labels may still occur. If none are known, the first row has no
        prediction: it counts as a mistake, and adds its label but does not change the weights.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
        Coefficients; β for two classes.
    intercept_ : ndarray of shape (c,), or (1,) for two classes
        Intercepts.
    mistakes_ : int
        Number of rows predicted incorrectly before they were learned, without rows of weight 0.
        The prequential error rate is ``mistakes_ / rows_seen_``.

    Raises
    ------
    ParameterError
        When learning starts, if a parameter is out of range.
    NumericalError
        If the weights exceed the range of float64. The learner is then unchanged.

    Notes
    -----
    A sample weight multiplies the step of its row.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = np.where(X @ [1.0, 2.0, 3.0] >= 0, 1, -1)
    >>> model = Perceptron(classes=[-1, 1]).partial_fit(X, y)
    >>> model.mistakes_ / model.rows_seen_
    0.05
    >>> Perceptron(classes=[-1, 1], initial="random", seed=1).partial_fit(X, y).mistakes_
    25
    """

    mistakes_ = RowCounter("mistakes")

    step_size: float = param(1.0, above=0.0)
    _: KW_ONLY
    initial: str = param("zeros", choices=("zeros", "random"))
    seed: int | None = param(None, whole=True, low=0)
    fit_intercept: bool = False
    classes: Collection[object] | None = None

    @property
    def _remembered_rows(self) -> float:
        return 0.0

    def _start(self, d: int, c: int) -> None:
        if self.seed is not None and self.initial == "zeros":
            raise ParameterError(
                f"`seed` must be None with initial='zeros', got {self.seed}. Leave out `seed`, or "
                "set initial='random'."
            )
        start_states(self, d=d, c=c)
        self.mistakes_ = 0
        if self.initial == "random":
            at = named_class_columns(self, "initial")
            self.weights_[:, at] = self._random_weights(d, len(at))

    def _widen(self, d: int) -> None:
        now = self.weights_.shape[0]
        super()._widen(d)
        if self.initial == "random":
            at = named_class_columns(self, "initial")
            self.weights_[now:, at] = self._random_weights(d, len(at))[now:]

    def _random_weights(self, d: int, c: int) -> Floats:
        """Random initial weights (d, c), drawn by feature, so that added features change none."""
        rng = np.random.default_rng(0 if self.seed is None else self.seed)
        return rng.standard_normal((d, 1)) * HALVES if c == 2 else rng.standard_normal((d, c))

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        self._decompile()
        moves = np.full(len(X), 0.5 * float(self.step_size)) * (1.0 if s is None else s)
        with np.errstate(all="ignore"):  # overflow is rejected below
            weights, offset, predictions, mistakes = self._learn_rows(X, Y, moves, class_mask)
        if not (
            np.isfinite(weights).all()
            and np.isfinite(offset).all()
            and np.isfinite(predictions).all()
        ):
            raise NumericalError(
                "weights and scores must stay finite while rows are learned, got "
                "infinity or nan. Scale the features with op.features.Scale()."
            )
        self.weights_, self.offset_ = weights, offset
        self.mistakes_ += mistakes
        return predictions

    def _slope_and_steps(self) -> tuple[int, float, SingleSteps]:
        return 0, 0.0, SingleSteps(0.5 * float(self.step_size))

    def _learn_rows(
        self, X: Floats, Y: Floats, moves: Floats, class_mask: Array | None
    ) -> tuple[Floats, Floats, Floats, int]:
        """Learn rows; return weights, offset, prequential scores and the number of mistakes."""
        W, b, predictions = self.weights_.T.copy(), self.offset_.copy(), np.empty(Y.shape)
        unit, mistakes = (1.0 if self.fit_intercept else 0.0), 0
        targets = Y @ np.arange(Y.shape[1], dtype=np.float64)
        if native.loops is not None:
            mask = None if class_mask is None else np.ascontiguousarray(class_mask)
            how = (X.shape[1], len(b), unit)
            for rows, x in float64_blocks(X):
                known = None if mask is None else mask[rows]
                mistakes += native.loops.correct(
                    len(x), *how, x, targets[rows], moves[rows], known, W, b, predictions[rows]
                )
            return W.T, b, predictions, mistakes
        X = np.ascontiguousarray(X, dtype=np.float64)
        for i, (x, y, move) in enumerate(zip(X, targets.astype(int), moves.tolist(), strict=True)):
            predictions[i] = scores = W.dot(x) + b
            best = _best(
                scores if class_mask is None else np.where(class_mask[i], scores, -np.inf)
            )  # (1)
            if best == y:
                continue
            mistakes += 1
            if best is not None:
                W[y] += move * x  # (2), (3)
                W[best] -= move * x
                b[y] += move * unit
                b[best] -= move * unit
        return W.T, b, predictions, mistakes

    def _initial_prediction(self, row: Floats) -> Any:
        return initial_prediction(self, row)


def _best(scores: Floats) -> int | None:
    """The index of the largest score, the last one of a tie; None if no class is known."""
    best = len(scores) - 1 - int(scores[::-1].argmax())
    return None if scores[best] == -np.inf else best
