"""SGD: online gradient descent on a linear model, one step a row; rows are not stored.

For a row x with targets y (c), slope ℓ′ of the loss, rate η, bound C and shrinkage κ:

    s = Wᵀ x + b                            predict                                      (1)
    δ_k = clip(η ℓ′(s_k, y_k), −C, C)       how far output k moves                       (2)
    W ← κ W − x δᵀ,   b ← b − δ             learn                                        (3)

that is w ← w − η ∂ℓ(wᵀx + b, y)/∂w [1, (4)], b likewise, as the weight of a feature that is always
1. :mod:`onepass.learners.losses` has the losses, :mod:`onepass.learners.step_size` the rules for η:
constant, decaying, normalised (NLMS), and the closed-form steps of the passive-aggressive
algorithms [2]. Cost: O(dc) time a row, with one BLAS call for (1) and one for (3), O(dc) memory.

[1] "Online Learning", lecture notes; equations (2)-(4), and (5) for the prediction at score 0.
[2] K. Crammer, O. Dekel, J. Keshet, S. Shalev-Shwartz, Y. Singer, "Online Passive-Aggressive
    Algorithms", JMLR 7, 2006.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise, repeat
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dgemv, dger
from sklearn.utils.metaestimators import available_if

from onepass import native, validation
from onepass.errors import NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Regressor
from onepass.learners.linear import (
    HALVES,
    Linear,
    chosen,
    initial_prediction,
    initial_weights,
    named_columns,
    plain_parts,
)
from onepass.learners.losses import MARGIN_LOSSES, REGRESSION_LOSSES, Loss
from onepass.learners.step_size import STEP_RULES, Slope, StepRule, Steps
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.table import TableLike

__all__ = ["Descent", "SGDClassifier", "SGDRegressor", "descend"]


class Descent(Linear):
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
        l2 = validation.in_range(self.l2, "l2", who, low=0.0, high=rule.max_l2)
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
    if native.loops is not None:
        return _compiled(native.loops, weights, offset, X, Y, slope, steps, unit)
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
    loops: ModuleType,
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


class SGDRegressor(Descent, Regressor):
    """Linear regression by online gradient descent.

    Parameters
    ----------
    loss : {"squared", "absolute", "huber", "epsilon-insensitive"}, default="squared"
        The loss whose slope is followed; the squared one is half the squared error.
    step : {"normalised", "constant", "decaying", "pa", "pa1", "pa2"}, default="normalised"
        How long a step is. Normalised steps do not depend on the scale of the features; constant
        and decaying ones need it near 1. The passive-aggressive ones go with
        ``loss="epsilon-insensitive"``.
    step_size : float > 0, default=None
        The (first) step. None is 0.1 for normalised steps (with the squared loss, the part of a
        row's error that is taken away; keep it below 2), 0.01 for constant and decaying ones.
    noise : float >= 0, default=None
        Normalised steps: added to ``||x||**2``, in its units. None is 0.
    decay : float >= 0, default=None
        Decaying steps: step t, from 0, is ``step_size / (1 + decay * t) ** power``; rows of
        weight 0 are not counted. None is 0.001.
    power : float in [0, 1], default=None
        Decaying steps: as above. None is 0.5.
    aggressiveness : float > 0, default=None
        C of pa1 and pa2: the larger, the more one row may move the weights. None is 1.
    huber_delta : float > 0, default=None
        Where the Huber loss turns from squared to absolute, in units of y. None is 1.
    epsilon : float >= 0, default=None
        Errors that the epsilon-insensitive loss does not count, in units of y. None is 0.1.
    l2 : float >= 0, default=0.0
        Penalty ``l2 / 2 * ||coef||**2`` on every row; at most 1 / step_size, and 0 with the
        passive-aggressive steps. The intercept is not penalised.
    fit_intercept : bool, default=True
        Learn an intercept, as the weight of a feature that is always 1.
    initial_coef : array-like of shape (d,) or (c, d), default=None
        The coefficients before anything is learned. None is zeros.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
    intercept_ : float or ndarray of shape (c,)
    steps_ : int
        Rows learned so far.

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range or means nothing beside the others.
    NumericalError
        If the weights run away; the learner is then as it was before the block.

    Notes
    -----
    A row's weight multiplies its step, but C with the passive-aggressive steps.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = SGDRegressor().partial_fit(X, X @ [1.0, 2.0, 3.0] + 4.0)
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([1., 2., 3.]), 4.0)
    """

    losses = REGRESSION_LOSSES
    closed_form_loss = "epsilon-insensitive"

    def __init__(
        self,
        loss: str = "squared",
        *,
        step: str = "normalised",
        step_size: float | None = None,
        noise: float | None = None,
        decay: float | None = None,
        power: float | None = None,
        aggressiveness: float | None = None,
        huber_delta: float | None = None,
        epsilon: float | None = None,
        l2: float = 0.0,
        fit_intercept: bool = True,
        initial_coef: ArrayLike | None = None,
    ) -> None:
        self.loss = loss
        self.step = step
        self.step_size = step_size
        self.noise = noise
        self.decay = decay
        self.power = power
        self.aggressiveness = aggressiveness
        self.huber_delta = huber_delta
        self.epsilon = epsilon
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.initial_coef: Any = initial_coef

    def _start(self, d: int, c: int) -> None:
        super()._start(d, c)
        self.weights_ = initial_weights(self.initial_coef, d, c, type(self).__name__)

    def _descended(
        self, X: Floats, Y: Floats, slope: Slope, steps: Steps, known: Array | None
    ) -> tuple[Floats, Floats, Floats]:
        del known
        return descend(
            self.weights_, self.offset_, X, Y, slope, steps, fit_intercept=self.fit_intercept
        )

    def _initial_prediction(self, row: Floats) -> Any:
        several = np.ndim(self.initial_coef) == 2
        c = len(self.initial_coef) if several else 1
        said = row @ initial_weights(self.initial_coef, len(row), c, type(self).__name__)
        return said if several else float(said[0])


class SGDClassifier(Descent, Classifier):
    """Linear classification by online gradient descent.

    Two classes are one problem with y = +1 for ``classes_[1]`` and −1 for ``classes_[0]``; the
    answer is ``classes_[1]`` where the score is >= 0. More classes are one problem each, against
    the rest, and the largest score is the answer. When a third class comes, the two so far begin
    from their halves of the problem that they shared.

    Parameters
    ----------
    loss : {"hinge", "logistic", "perceptron"}, default="hinge"
        The loss whose slope is followed.
    step : {"normalised", "constant", "decaying", "pa", "pa1", "pa2"}, default="normalised"
        How long a step is, as in :class:`SGDRegressor`. The passive-aggressive ones go with
        ``loss="hinge"``.
    step_size, noise, decay, power, aggressiveness : float, default=None
        As in :class:`SGDRegressor`.
    l2 : float >= 0, default=0.0
        As in :class:`SGDRegressor`.
    fit_intercept : bool, default=True
        Learn an intercept, as the weight of a feature that is always 1.
    initial_coef : array-like of shape (d,), or (c, d) for c > 2 classes, default=None
        The coefficients before anything is learned, for the classes named in ``classes``, in
        sorted order. None is zeros.
    classes : array-like, default=None
        Labels known beforehand. Others may still come. While fewer than two are known there is
        nothing to tell apart, and of a row only its label is learned.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
    intercept_ : ndarray of shape (c,), or (1,) for two classes
    steps_ : int
        Rows learned so far.

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range or means nothing beside the others.
    NumericalError
        If the weights run away; the learner is then as it was before the block.

    Notes
    -----
    A row's weight multiplies its step, but C with the passive-aggressive steps.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = SGDClassifier("logistic").partial_fit(X, X @ [1.0, 2.0, 3.0] > 0)
    >>> round(model.score(X, X @ [1.0, 2.0, 3.0] > 0), 2)
    1.0
    >>> model.predict_proba([[0.0, 0.0, 0.0]]).round(1)
    array([[0.5, 0.5]])
    """

    losses = MARGIN_LOSSES
    closed_form_loss = "hinge"

    def __init__(
        self,
        loss: str = "hinge",
        *,
        step: str = "normalised",
        step_size: float | None = None,
        noise: float | None = None,
        decay: float | None = None,
        power: float | None = None,
        aggressiveness: float | None = None,
        l2: float = 0.0,
        fit_intercept: bool = True,
        initial_coef: ArrayLike | None = None,
        classes: Collection[object] | None = None,
    ) -> None:
        self.loss = loss
        self.step = step
        self.step_size = step_size
        self.noise = noise
        self.decay = decay
        self.power = power
        self.aggressiveness = aggressiveness
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.initial_coef: Any = initial_coef
        self.classes = classes

    @available_if(lambda self: self.loss == "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: TableLike) -> Floats:
        """Probabilities of the classes, shape (n, c); with the logistic loss only.

        Its scores are log-odds. Of more than two classes, each against the rest, the
        probabilities are divided by their sum.
        """
        scores = self._scores(self._matrix(X, "predict_proba"))
        if scores.shape[1] == 2:  # halves of one problem
            scores = scores * 2.0
        odds = np.exp(-np.abs(scores))
        shares: Floats = np.where(scores >= 0, 1.0, odds) / (1.0 + odds)
        total = shares.sum(axis=1, keepdims=True)
        even = np.full_like(shares, 1.0 / max(1, shares.shape[1]))  # where all have underflowed
        said: Floats = np.divide(shares, total, out=even, where=total > 0)
        return said

    def _start(self, d: int, c: int) -> None:
        super()._start(d, c)
        if self.initial_coef is not None:
            at = named_columns(self, "initial_coef")
            problems = 1 if len(at) == 2 else len(at)
            given = initial_weights(self.initial_coef, d, problems, type(self).__name__)
            self.weights_[:, at] = given * HALVES if problems == 1 else given

    def _descended(
        self, X: Floats, Y: Floats, slope: Slope, steps: Steps, known: Array | None
    ) -> tuple[Floats, Floats, Floats]:
        weights, offset, said = self.weights_.copy(), self.offset_.copy(), np.zeros(Y.shape)
        for rows, at in _spans(Y, known):
            y, w, b = Y[rows, at], weights[:, at], offset[at]
            two = y.shape[1] == 2
            if two:  # the first class has minus what the second has
                y, w, b = y[:, 1:], 2.0 * w[:, 1:], 2.0 * b[1:]
            y = 2.0 * y - 1.0
            w, b, scores = descend(
                w, b, X[rows], y, slope, steps.of(rows), fit_intercept=self.fit_intercept
            )
            halves = HALVES if two else 1.0
            weights[:, at], offset[at], said[rows, at] = w * halves, b * halves, scores * halves
        return weights, offset, said

    def _problems(self) -> tuple[Floats, Floats]:
        two = len(self.classes_) == 2
        return (2.0 * self.weights_[:, 1:], 2.0 * self.offset_[1:]) if two else super()._problems()

    def _solved(self, weights: Floats, offset: Floats) -> tuple[Floats, Floats]:
        return (weights * HALVES, offset * HALVES) if len(offset) == 1 else (weights, offset)

    def _initial_prediction(self, row: Floats) -> Any:
        return initial_prediction(self, row)


def _spans(Y: Floats, known: Array | None) -> list[tuple[slice, Any]]:
    """Rows between which no class comes, and the classes that are there, if two or more."""
    n, c = Y.shape
    if known is None:
        return [(slice(0, n), slice(0, c))] if c > 1 else []
    there = known | (Y > 0)
    edges = np.flatnonzero(np.diff(there.sum(axis=1), prepend=0, append=0))
    spans = [(slice(a, b), np.flatnonzero(there[a])) for a, b in pairwise(edges)]
    return [(rows, at) for rows, at in spans if len(at) > 1]
