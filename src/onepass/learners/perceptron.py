"""Perceptron: a linear classifier that is updated on mistakes only.

For labels y in {−1, +1}, with sign(0) = +1 [1, Algorithm 1]:

    ŷ_t = sign(x_tᵀ β)                        the prediction                         (1)
    β ← β + η y_t x_t   where ŷ_t ≠ y_t       learn                                  (2)

which is online gradient descent on the loss max(0, −y xᵀβ). If some unit vector u separates the
rows, y_t x_tᵀ u >= γ, and ‖x_t‖ <= R, there are at most (R / γ)² mistakes when β starts at 0,
however long the stream [2].

More classes have a vector each, and the largest score is the answer; on a mistake [3]

    w_y ← w_y + η/2 · x,   w_ŷ ← w_ŷ − η/2 · x                                       (3)

which for two classes is (2) with β = w_1 − w_0. Cost: O(dc) a row, O(dc) memory.

[1] "Online Learning", lecture notes; (5)-(9) and Algorithm 1.
[2] A. B. J. Novikoff, "On Convergence Proofs on Perceptrons", Symposium on the Mathematical
    Theory of Automata, 1962.
[3] K. Crammer, Y. Singer, "Ultraconservative Online Algorithms for Multiclass Problems", JMLR 3,
    2003; the update of one wrong class.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from onepass import native, validation
from onepass.errors import NumericalError, ParameterError
from onepass.learners.estimator import Classifier
from onepass.learners.linear import HALVES, Linear, initial_prediction, named_columns, plain_parts
from onepass.learners.step_size import Steps
from onepass.types import Array, Floats

__all__ = ["Perceptron"]


class Perceptron(Linear, Classifier):
    """Linear classification that moves only on mistakes.

    Parameters
    ----------
    step_size : float > 0, default=1.0
        η. From a zero start it scales the weights and changes no answer.
    initial : {"zeros", "random"}, default="zeros"
        The start of β. Random weights are standard normal, for the classes named in ``classes``;
        a class that comes later begins at zero.
    seed : int >= 0, default=None
        Of the random start: the same seed is the same start. None is 0.
    fit_intercept : bool, default=False
        Learn an intercept, as the weight of a feature that is always 1. It starts at zero.
    classes : array-like, default=None
        Labels known beforehand. Others may still come. Where none is given there is no answer to
        the first row: it counts as a mistake, and of it only the label is learned.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
        For two classes, β.
    intercept_ : ndarray of shape (c,), or (1,) for two classes
    mistakes_ : int
        Rows whose class was not what was said of them, rows of weight 0 left out. The cumulative
        loss of the stream so far is ``mistakes_ / rows_seen_``.

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If the weights run out of float64; the learner is then as it was before the block.

    Notes
    -----
    A row's weight multiplies its step.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = np.where(X @ [1.0, 2.0, 3.0] >= 0, 1, -1)
    >>> model = Perceptron(classes=[-1, 1]).partial_fit(X, y)
    >>> model.mistakes_ / model.rows_seen_
    0.05
    """

    held = ("weights_", "offset_", "rows_seen_", "mistakes_")

    mistakes_: int

    def __init__(
        self,
        step_size: float = 1.0,
        *,
        initial: str = "zeros",
        seed: int | None = None,
        fit_intercept: bool = False,
        classes: Collection[object] | None = None,
    ) -> None:
        self.step_size = step_size
        self.initial = initial
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.classes = classes

    def _start(self, d: int, c: int) -> None:
        self._checked()
        self.weights_, self.offset_ = np.zeros((d, c)), np.zeros(c)
        self.mistakes_ = 0
        if self.initial == "random":
            at = named_columns(self, "initial")
            self.weights_[:, at] = self._drawn(d, len(at))

    def _widen(self, d: int) -> None:
        now = self.weights_.shape[0]
        super()._widen(d)
        if self.initial == "random":
            at = named_columns(self, "initial")
            self.weights_[now:, at] = self._drawn(d, len(at))[now:]

    def _drawn(self, d: int, c: int) -> Floats:
        """The random start (d, c); row by row, so that more features leave the first the same."""
        rng = np.random.default_rng(0 if self.seed is None else self.seed)
        return rng.standard_normal((d, 1)) * HALVES if c == 2 else rng.standard_normal((d, c))

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        moves = np.full(len(X), 0.5 * self._checked()) * (1.0 if s is None else s)
        with np.errstate(all="ignore"):  # what overflows is refused below
            weights, offset, said, mistakes = self._corrected(X, Y, moves, known)
        if not (
            np.isfinite(weights).all() and np.isfinite(offset).all() and np.isfinite(said).all()
        ):
            raise NumericalError(
                "Perceptron: weights and scores must stay finite while rows are learned, got "
                "infinity or nan. Scale the features with op.features.Scale()."
            )
        self.weights_, self.offset_ = weights, offset
        self.mistakes_ += mistakes
        return said

    def _slope_and_steps(self, n: int) -> tuple[int, float, Steps]:
        return 0, 0.0, Steps(np.full(n, 0.5 * self._checked()))

    def _corrected(
        self, X: Floats, Y: Floats, moves: Floats, known: Array | None
    ) -> tuple[Floats, Floats, Floats, int]:
        """Weights and offset after these rows, what was said of each before, and the mistakes."""
        W, b, said = self.weights_.T.copy(), self.offset_.copy(), np.empty(Y.shape)
        unit, mistakes = (1.0 if self.fit_intercept else 0.0), 0
        answers = Y @ np.arange(Y.shape[1], dtype=np.float64)
        if native.loops is not None:
            seen = None if known is None else np.ascontiguousarray(known)
            how = (X.shape[1], len(b), unit)
            for rows, x in plain_parts(X):
                there = None if seen is None else seen[rows]
                mistakes += native.loops.correct(
                    len(x), *how, x, answers[rows], moves[rows], there, W, b, said[rows]
                )
            return W.T, b, said, mistakes
        X = np.ascontiguousarray(X, dtype=np.float64)
        for i, (x, y, move) in enumerate(zip(X, answers.astype(int), moves.tolist(), strict=True)):
            said[i] = scores = W.dot(x) + b
            best = _best(scores if known is None else np.where(known[i], scores, -np.inf))  # (1)
            if best == y:
                continue
            mistakes += 1
            if best is not None:
                W[y] += move * x  # (2), (3)
                W[best] -= move * x
                b[y] += move * unit
                b[best] -= move * unit
        return W.T, b, said, mistakes

    def _checked(self) -> float:
        """The step size, once all hyperparameters are found to be in range."""
        if self.initial not in ("zeros", "random"):
            raise ParameterError(
                f"Perceptron: `initial` must be 'zeros' or 'random', got {self.initial!r}. "
                "Choose one of these."
            )
        whole = isinstance(self.seed, (int, np.integer)) and not isinstance(self.seed, bool)
        if self.seed is not None and (self.initial == "zeros" or not whole or self.seed < 0):
            raise ParameterError(
                "Perceptron: `seed` must be a whole number >= 0, with initial='random' only, got "
                f"{self.seed!r} with initial={self.initial!r}. Leave it out, or choose another."
            )
        return validation.in_range(self.step_size, "step_size", "Perceptron", above=0.0)

    def _initial_prediction(self, row: Floats) -> Any:
        return initial_prediction(self, row)


def _best(scores: Floats) -> int | None:
    """The largest score, the last of several that tie; None where no class is known."""
    best = len(scores) - 1 - int(scores[::-1].argmax())
    return None if scores[best] == -np.inf else best
