"""Descent: a linear model goes down the slope of a loss, one row after the other.

For a row x with answers y (c), slope ℓ′ of the loss, rate η, bound C and shrinkage κ:

    s = Wᵀ x + b                            what is said of the row                      (1)
    δ_k = clip(η ℓ′(s_k, y_k), −C, C)       how far output k moves                       (2)
    W ← κ W − x δᵀ,   b ← b − δ             learn                                        (3)

Cost: O(dc) a row, with one BLAS call for (1) and one for (3).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dgemv, dger

from onepass import compiled, validation
from onepass.errors import Array, Floats, NumericalError, ParameterError
from onepass.learners.choice import chosen
from onepass.learners.linear import Linear, plain_parts
from onepass.learners.single_steps import SingleSteps
from onepass.learners.stepsize import STEP_RULES, Slope, StepRule, Steps
from onepass.losses import Loss

__all__ = ["Descent", "descend"]


class Descent(SingleSteps, Linear):
    """What the regressor and the classifier share: the loss, the step rule, and the weights."""

    losses: ClassVar[Mapping[str, type[Loss]]]
    closed_form_loss: ClassVar[str]
    """The loss for which the passive-aggressive steps are the solution."""

    loss: str
    step: str
    l2: float
    fit_intercept: bool
    steps_: int

    def _start(self, d: int, c: int) -> None:
        self._method()
        self.weights_ = np.zeros((d, c))
        self.offset_ = np.zeros(c)
        self.steps_ = 0

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        slope, rule, l2 = self._method()
        with np.errstate(all="ignore"):  # what overflows is refused below
            steps = rule.steps(len(X), s, self.steps_, l2)
            weights, offset, said = self._descended(X, Y, slope, steps, known)
        self._refuse_lost(weights, offset, said)
        self.weights_, self.offset_ = weights, offset
        self.steps_ += len(X)
        return said

    def _slope_and_steps(self, n: int) -> tuple[int, float, Steps]:
        slope, rule, l2 = self._method()
        return slope.number, slope.parameter, rule.steps(n, None, self.steps_, l2)

    def _refuse_lost(self, weights: Floats, offset: Floats, said: Floats) -> None:
        lost = ~np.isfinite(said).all(axis=1)
        if lost.any() or not (np.isfinite(weights).all() and np.isfinite(offset).all()):
            place = f"at row {int(lost.argmax())}" if lost.any() else "after the last row"
            raise NumericalError(
                f"{type(self).__name__}: the weights must stay finite while rows are learned, got "
                f"infinity or nan {place} of the block. Lower `step_size`, or scale the features "
                "with op.features.Scale()."
            )

    @abstractmethod
    def _descended(
        self, X: Floats, Y: Floats, slope: Slope, steps: Steps, known: Array | None
    ) -> tuple[Floats, Floats, Floats]:
        """The weights and the offset after these rows, and what was said of each before."""

    def _method(self) -> tuple[Slope, StepRule, float]:
        """What the hyperparameters say: the slope, the step rule and the penalty.

        Raises
        ------
        ParameterError
            If one is unknown, out of range, or without meaning beside the others.
        """
        who = type(self).__name__
        params = vars(self)
        loss = chosen(self.losses, "loss", params, who)
        rule = chosen(STEP_RULES, "step", params, who)
        if rule.closed_form and (self.loss != self.closed_form_loss or self.l2):
            raise ParameterError(
                f"{who}: `step` must be 'normalised', 'constant' or 'decaying' with "
                f"loss={self.loss!r} and l2={self.l2!r}, got {self.step!r}, which is the solution "
                f"of the loss {self.closed_form_loss!r} without l2. Choose another step."
            )
        l2 = validation.in_range(self.l2, "l2", who, low=0.0, high=rule.most_l2)
        return rule.slope(loss), rule, l2


def descend(
    weights: Floats,
    offset: Floats,
    X: Floats,
    Y: Floats,
    slope: Slope,
    steps: Steps,
    *,
    fit_intercept: bool,
) -> tuple[Floats, Floats, Floats]:
    """Learn the rows one after the other.

    Parameters
    ----------
    weights : ndarray of shape (d, c)
    offset : ndarray of shape (c,)
    X : ndarray of shape (n, d)
    Y : ndarray of shape (n, c)
    slope : Slope
        ℓ′(s, y).
    steps : Steps
        The step of each row.
    fit_intercept : bool
        Whether the offset is learned too.

    Returns
    -------
    weights : ndarray of shape (d, c)
    offset : ndarray of shape (c,)
        New arrays; those that came are not written to.
    said : ndarray of shape (n, c)
        The scores of each row just before it was learned.
    """
    unit = 1.0 if fit_intercept else 0.0
    if compiled.loops is not None:
        return _compiled(compiled.loops, weights, offset, X, Y, slope, steps, unit)
    X = np.ascontiguousarray(X, dtype=np.float64)
    steps = steps.along(np.einsum("ij,ij->i", X, X) + unit)
    if weights.shape[1] == 1:
        w, b, scores = _one_output(
            weights[:, 0].copy(), float(offset[0]), X, Y[:, 0], slope, steps, unit
        )
        return w[:, None], np.array([b]), np.array(scores)[:, None]
    return _several_outputs(
        np.array(weights, dtype=np.float64, order="F"), offset.copy(), X, Y, slope, steps, unit
    )


def _compiled(
    loops: Any,
    weights: Floats,
    offset: Floats,
    X: Floats,
    Y: Floats,
    slope: Slope,
    steps: Steps,
    unit: float,
) -> tuple[Floats, Floats, Floats]:
    """The same by a loop in C."""
    W, b = np.array(weights.T, order="C"), np.array(offset, float)
    said, room = np.empty(Y.shape), np.empty(len(b))
    answers = np.ascontiguousarray(Y, dtype=np.float64)
    how = (X.shape[1], len(b), unit, slope.number, slope.parameter)
    for rows, x in plain_parts(X):
        loops.descend(
            len(x), *how, x, answers[rows], *steps.of(rows), W, b, said[rows], room
        )  # fmt: skip
    return W.T, b, said


def _one_output(
    w: Floats, b: float, X: Floats, y: Floats, slope: Slope, steps: Steps, unit: float
) -> tuple[Floats, float, list[float]]:
    """One output: floats and two vectors, for speed."""
    d = len(w)
    said = []
    rows = zip(X, y.tolist(), *_listed(steps), strict=False)
    for x, answer, rate, limit, keep in rows:
        score = ddot(x, w) + b  # (1)
        said.append(score)
        change = rate * slope.at(score, answer)  # (2)
        if limit is not None:
            change = max(-limit, min(limit, change))
        if keep is not None:
            w *= keep
        if change:
            w = daxpy(x, w, d, -change)  # (3), in place
            b -= change * unit
    return w, b, said


def _several_outputs(
    W: Floats, b: Floats, X: Floats, Y: Floats, slope: Slope, steps: Steps, unit: float
) -> tuple[Floats, Floats, Floats]:
    """Several outputs: each its own loss, all the same step rule."""
    said = np.empty(Y.shape)
    rows = zip(X, Y.tolist(), *_listed(steps), strict=False)
    for i, (x, answers, rate, limit, keep) in enumerate(rows):
        scores = dgemv(1.0, W, x, trans=1)  # (1)
        scores += b
        said[i] = scores
        changes = [
            rate * slope.at(s, y) for s, y in zip(scores.tolist(), answers, strict=True)
        ]  # (2)
        if limit is not None:
            changes = [max(-limit, min(limit, change)) for change in changes]
        if keep is not None:
            W *= keep
        if any(changes):
            delta = np.array(changes)
            W = dger(-1.0, x, delta, a=W, overwrite_a=1)  # (3), in place
            b -= delta * unit
    return W, b, said


def _listed(steps: Steps) -> tuple[Iterable[float], Iterable[float | None], Iterable[float | None]]:
    """Rate, bound and shrinkage of each row as Python's floats; None where there is none."""
    limit = repeat(None) if steps.limit is None else steps.limit.tolist()
    keep = repeat(None) if steps.keep is None else steps.keep.tolist()
    return steps.rate.tolist(), limit, keep
