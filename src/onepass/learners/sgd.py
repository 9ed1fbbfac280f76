"""SGD: online gradient descent on a linear model, one step per row; rows are not stored.

For a row x with targets y (c), slope ℓ′ of the loss, rate η, bound C and shrinkage κ:

    s = Wᵀ x + b                            predict                                      (1)
    δ_k = clip(η ℓ′(s_k, y_k), −C, C)       how far output k moves                       (2)
    W ← κ W − x δᵀ,   b ← b − δ             learn                                        (3)

that is w ← w − η ∂ℓ(wᵀx + b, y)/∂w [1, (4)], where b is learned as the weight of a feature that is
always 1. The losses are in :mod:`onepass.learners.losses`, the rules for η in
:mod:`onepass.learners.step_size`: constant, decaying, normalised (NLMS), the closed-form steps of
the passive-aggressive algorithms [2], and the default, adaptive, whose equations are there: it also
has statistics of each output, and starts b at the first target. κ = 1 − η l2. Cost: O(dc) time per
row, O(dc) memory.

Two classes are one binary problem, stored as −½ and ½ of its weights.

[1] "Online Learning", lecture notes; equations (2)-(4), and (5) for the prediction at score 0.
[2] K. Crammer, O. Dekel, J. Keshet, S. Shalev-Shwartz, Y. Singer, "Online Passive-Aggressive
    Algorithms", JMLR 7, 2006.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise, repeat
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dgemv, dger

from onepass import native, validation
from onepass.declared import OUTPUT, CompiledState, start_states
from onepass.errors import NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Regressor
from onepass.learners.linear import (
    HALVES,
    Linear,
    float64_blocks,
    from_parameters,
    initial_prediction,
    initial_weights,
    named_class_columns,
    predicted_initially,
)
from onepass.learners.losses import MARGIN_LOSSES, REGRESSION_LOSSES, Loss
from onepass.learners.step_size import (
    STEP_RULES,
    SingleSteps,
    Slope,
    StepRule,
    Steps,
    adaptive_step,
)
from onepass.linalg import calibration
from onepass.serialization.state import RowCounter
from onepass.types import Array, ArrayLike, Floats


@dataclass(eq=False, repr=False)
class BaseSGD(Linear):
    """Base class of the SGD estimators: loss, step rule and weights."""

    _losses: ClassVar[Mapping[str, type[Loss]]]
    _closed_form_loss: ClassVar[str]
    """The loss for which the passive-aggressive steps are the closed-form solution."""

    loss: str = "squared"
    _: KW_ONLY
    step: str = "adaptive"
    step_size: float | None = None
    noise: float | None = None
    decay: float | None = None
    power: float | None = None
    aggressiveness: float | None = None
    l2: float = 0.0
    fit_intercept: bool = True
    initial_coef: ArrayLike | None = None

    steps_ = RowCounter()
    statistics_ = CompiledState[Floats](OUTPUT, None)

    def _familiarity(self, X: Floats) -> None:
        """None, as only the weights are stored."""

    @property
    def _remembered_rows(self) -> float:
        return 0.0

    def _start(self, d: int, c: int) -> None:
        rule = self._check_parameters()[1]
        start_states(self, d=d, c=c, statistics_=rule.statistics)
        self.steps_ = 0

    def _statistics(self, rule: StepRule) -> Floats:
        """Statistics (c, 5) of adaptive steps, (c, 0) for other rules."""
        shape = (len(self.offset_), rule.statistics)  # another rule begins with new statistics
        statistics: Floats = self.statistics_
        return statistics if statistics.shape == shape else np.zeros(shape)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        slope, rule, l2 = self._check_parameters()
        self._decompile()
        with np.errstate(all="ignore"):  # overflow is rejected below
            steps = rule.steps(len(X), s, self.steps_, l2)
            *state, predictions = self._gradient_descent(
                X, Y, slope, steps, self._statistics(rule), class_mask
            )
        self._check_finite(predictions, *state)
        self.weights_, self.offset_, self.statistics_ = state
        self.steps_ += len(X)
        return predictions

    def _slope_and_steps(self) -> tuple[int, float, SingleSteps]:
        """The loss and the steps of the compiled loop of single rows, for ``Linear``."""
        slope, rule, l2 = self._check_parameters()
        return slope.number, slope.parameter, rule.single(self.steps_, l2)

    def _problems(self) -> tuple[Floats, Floats, Floats]:
        """Weights, offsets and statistics of the binary problems, for ``Linear``."""
        return self.weights_, self.offset_, self.statistics_

    def _check_finite(self, predictions: Floats, *state: Floats) -> None:
        bad = ~np.isfinite(predictions).all(axis=1)
        if bad.any() or not all(np.isfinite(part).all() for part in state):
            raise NumericalError(
                "the weights must stay finite while rows are learned",
                got="infinity or nan",
                remedy="Lower `step_size`, or scale the features with op.features.Scale().",
                row=int(bad.argmax()) if bad.any() else len(predictions) - 1,
            )

    @abstractmethod
    def _gradient_descent(
        self, X: Floats, Y: Floats, slope: Slope, steps: Steps, statistics: Floats,
        class_mask: Array | None,
    ) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
        """Learn rows; return weights, offset, statistics, and the scores before each row."""

    def _check_parameters(self) -> tuple[Slope, StepRule, float]:
        """Validate the parameters; return the slope, the step rule and the penalty.

        Raises
        ------
        ParameterError
            If a parameter is unknown, out of range, or incompatible with the others.
        """
        params = vars(self)
        loss = from_parameters(self._losses, "loss", params)
        rule = from_parameters(STEP_RULES, "step", params)
        if rule.closed_form and (self.loss != self._closed_form_loss or self.l2):
            raise ParameterError(
                "`step` must be 'adaptive', 'normalised', 'constant' or 'decaying' "
                f"with loss={self.loss!r} and l2={self.l2!r}, got {self.step!r}, which "
                f"is only defined for the loss {self._closed_form_loss!r} without l2. "
                f"Set loss={self._closed_form_loss!r}, or choose one of these steps."
            )
        l2 = validation.in_range(self.l2, "l2", low=0.0, high=rule.max_l2)
        return rule.slope(loss), rule, l2


def gradient_descent(
    weights: Floats,
    offset: Floats,
    statistics: Floats,
    X: Floats,
    Y: Floats,
    slope: Slope,
    steps: Steps,
    *,
    fit_intercept: bool,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Learn the rows one after the other by online gradient descent.

    Parameters
    ----------
    weights : ndarray of shape (d, c)
    offset : ndarray of shape (c,)
    statistics : ndarray of shape (c, 5), or (c, 0)
        Statistics of adaptive steps; (c, 0) for other steps.
    X : ndarray of shape (n, d)
    Y : ndarray of shape (n, c)
    slope : Slope
        ℓ′(s, y).
    steps : Steps
        The step of each row.
    fit_intercept : bool
        Whether to learn the offset.

    Returns
    -------
    weights : ndarray of shape (d, c)
    offset : ndarray of shape (c,)
    statistics : ndarray of shape (c, 5), or (c, 0)
        New arrays; the inputs are not modified.
    predictions : ndarray of shape (n, c)
        The scores of each row just before it was learned.
    """
    unit = 1.0 if fit_intercept else 0.0
    if native.loops is not None:
        return _compiled(native.loops, weights, offset, statistics, X, Y, slope, steps, unit)
    X = np.ascontiguousarray(X, dtype=np.float64)
    lengths = np.einsum("ij,ij->i", X, X) + unit
    if statistics.size:
        return _adaptive(weights, offset, statistics, X, Y, slope, steps, lengths, unit)
    steps = steps.scaled(lengths)
    if weights.shape[1] == 1:
        w, b, scores = _one_output(
            weights[:, 0].copy(), float(offset[0]), X, Y[:, 0], slope, steps, unit
        )
        return w[:, None], np.array([b]), statistics, np.array(scores)[:, None]
    weights = np.array(weights, dtype=np.float64, order="F")
    weights, offset, predictions = _several_outputs(
        weights, offset.copy(), X, Y, slope, steps, unit
    )
    return weights, offset, statistics, predictions


def _compiled(
    loops: ModuleType,
    weights: Floats,
    offset: Floats,
    statistics: Floats,
    X: Floats,
    Y: Floats,
    slope: Slope,
    steps: Steps,
    unit: float,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute ``gradient_descent`` by the compiled loop."""
    W, b, own = np.array(weights.T, order="C"), np.array(offset, float), statistics.copy()
    predictions = np.empty(Y.shape)
    targets = np.ascontiguousarray(Y, dtype=np.float64)
    how = (X.shape[1], len(b), unit, slope.number, slope.parameter)
    for rows, x in float64_blocks(X):
        loops.descend(
            len(x), *how, x, targets[rows], *steps.of(rows), W, b, own if own.size else None,
            predictions[rows],
        )  # fmt: skip
    return W.T, b, own, predictions


def _adaptive(
    weights: Floats, offset: Floats, statistics: Floats, X: Floats, Y: Floats, slope: Slope,
    steps: Steps, lengths: Floats, unit: float,
) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
    """Compute ``gradient_descent`` with adaptive steps."""
    W, b, own = weights.copy(), offset.copy(), statistics.tolist()
    predictions = np.empty(Y.shape)
    keeps = np.ones(len(X)) if steps.shrinkage is None else steps.shrinkage
    if steps.damping is not None:
        lengths = lengths + steps.damping
    rows = zip(X, Y.tolist(), steps.rate.tolist(), keeps.tolist(), lengths.tolist(), strict=True)
    for i, (x, targets, rate, keep, length) in enumerate(rows):
        predictions[i] = scores = x @ W + b  # (1)
        for k, output in enumerate(own):
            w_step, b_step, shrinkage = adaptive_step(
                output, slope, unit, rate, keep, length, float(scores[k]), targets[k]
            )
            W[:, k] = shrinkage * W[:, k] - w_step * x  # (3)
            b[k] -= b_step
    return W, b, np.array(own), predictions


def _one_output(
    w: Floats, b: float, X: Floats, y: Floats, slope: Slope, steps: Steps, unit: float
) -> tuple[Floats, float, list[float]]:
    """Compute ``gradient_descent`` for one output, with floats and two vectors for speed."""
    d = len(w)
    predictions = []
    rows = zip(X, y.tolist(), *_as_lists(steps), strict=False)
    for x, target, rate, limit, shrinkage in rows:
        score = ddot(x, w) + b  # (1)
        predictions.append(score)
        change = rate * slope.at(score, target)  # (2)
        if limit is not None:
            change = max(-limit, min(limit, change))
        if shrinkage is not None:
            w *= shrinkage
        if change:
            w = daxpy(x, w, d, -change)  # (3), in place
            b -= change * unit
    return w, b, predictions


def _several_outputs(
    W: Floats, b: Floats, X: Floats, Y: Floats, slope: Slope, steps: Steps, unit: float
) -> tuple[Floats, Floats, Floats]:
    """Compute ``gradient_descent`` for several outputs, with a loss each and one step rule."""
    predictions = np.empty(Y.shape)
    rows = zip(X, Y.tolist(), *_as_lists(steps), strict=False)
    for i, (x, targets, rate, limit, shrinkage) in enumerate(rows):
        scores = dgemv(1.0, W, x, trans=1)  # (1)
        scores += b
        predictions[i] = scores
        changes = [
            rate * slope.at(s, y) for s, y in zip(scores.tolist(), targets, strict=True)
        ]  # (2)
        if limit is not None:
            changes = [max(-limit, min(limit, change)) for change in changes]
        if shrinkage is not None:
            W *= shrinkage
        if any(changes):
            delta = np.array(changes)
            W = dger(-1.0, x, delta, a=W, overwrite_a=1)  # (3), in place
            b -= delta * unit
    return W, b, predictions


def _as_lists(
    steps: Steps,
) -> tuple[Iterable[float], Iterable[float | None], Iterable[float | None]]:
    """Rate, bound and shrinkage of each row as Python floats, or None."""
    limit = repeat(None) if steps.limit is None else steps.limit.tolist()
    shrinkage = repeat(None) if steps.shrinkage is None else steps.shrinkage.tolist()
    return steps.rate.tolist(), limit, shrinkage


@dataclass(eq=False, repr=False)
class SGDRegressor(BaseSGD, Regressor):
    """Linear regression by online gradient descent.

    Parameters
    ----------
    loss : {"squared", "absolute", "huber", "epsilon-insensitive"}, default="squared"
        The loss function. "squared" is half the squared error.
    step : {"adaptive", "normalised", "constant", "decaying", "pa", "pa1", "pa2"}, \
            default="adaptive"
        The step rule. Adaptive and normalised steps do not depend on the scale of the features;
        constant and decaying steps need features of scale near 1. Adaptive steps do not depend on
        the units of the targets either: they grow with the share of the variance of recent targets
        that the model explains, and the intercept starts at the first target. The
        passive-aggressive steps require ``loss="epsilon-insensitive"``.
    step_size : float > 0, default=None
        The (initial) step size. None is 1, the largest step, for adaptive steps; 0.1 for normalised
        steps, for which it should be below 2 (with the squared loss it is the share of a row's
        error that the step removes); and 0.01 for constant and decaying steps.
    noise : float >= 0, default=None
        For adaptive and normalised steps: added to ``||x||**2``, in its units. None is 0.
    decay : float >= 0, default=None
        For decaying steps: step t, from 0, is ``step_size / (1 + decay * t) ** power``; rows of
        weight 0 are not counted. None is 0.001.
    power : float in [0, 1], default=None
        For decaying steps: the exponent above. None is 0.5.
    aggressiveness : float > 0, default=None
        C of pa1 and pa2. Larger values allow larger steps for one row. None is 1.
    l2 : float >= 0, default=0.0
        Penalty ``l2 / 2 * ||coef||**2`` on every row; at most 1 / step_size, and 0 with the
        passive-aggressive steps. The intercept is not penalised.
    fit_intercept : bool, default=True
        Whether to learn an intercept, as the weight of a feature that is always 1.
    initial_coef : array-like of shape (d,) or (c, d), default=None
        Initial coefficients. None is zeros.
    huber_delta : float > 0, default=None
        Error at which the Huber loss changes from squared to absolute, in units of y. None is 1.
    epsilon : float >= 0, default=None
        Errors up to this size are ignored by the epsilon-insensitive loss, in units of y. None is
        0.1.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
        Coefficients.
    intercept_ : float or ndarray of shape (c,)
        Intercept.
    statistics_ : ndarray of shape (c, 5), or (c, 0)
        Of adaptive steps, for each output: the sum of the step sizes, the mean of ``||x||**2``, the
        mean and the variance of the targets, and the mean squared error.
    steps_ : int
        Number of steps, one for each row learned.

    Raises
    ------
    ParameterError
        When learning starts, if a parameter is out of range or incompatible with the others.
    NumericalError
        If the weights diverge. The learner is then unchanged.

    Notes
    -----
    A sample weight multiplies the step of its row, or C with the passive-aggressive steps.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = SGDRegressor().partial_fit(X, X @ [1.0, 2.0, 3.0] + 4.0)
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([1., 2., 3.]), 4.0)

    Errors of up to 5 units count by their square, larger ones, such as those of wrong targets, by
    their size. ``l2`` shrinks the coefficients.

    >>> y = X @ [1.0, 2.0, 3.0] + 4.0 + 1000.0 * (np.arange(500) % 50 == 0)
    >>> SGDRegressor("huber", huber_delta=5.0).partial_fit(X, y).coef_.round(1)
    array([1., 2., 3.])
    >>> SGDRegressor(l2=0.01).partial_fit(X, X @ [1.0, 2.0, 3.0]).coef_.round(1)
    array([0.8, 1.8, 2.7])
    """

    _losses = REGRESSION_LOSSES
    _closed_form_loss = "epsilon-insensitive"

    _: KW_ONLY
    huber_delta: float | None = None
    epsilon: float | None = None

    def _start(self, d: int, c: int) -> None:
        super()._start(d, c)
        self.weights_ = initial_weights(self.initial_coef, d, c)

    def _gradient_descent(
        self, X: Floats, Y: Floats, slope: Slope, steps: Steps, statistics: Floats,
        class_mask: Array | None,
    ) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
        del class_mask
        return gradient_descent(
            self.weights_, self.offset_, statistics, X, Y, slope, steps,
            fit_intercept=self.fit_intercept,
        )  # fmt: skip

    def _initial_prediction(self, row: Floats) -> Any:
        return predicted_initially(self.initial_coef, row)


@dataclass(eq=False, repr=False)
class SGDClassifier(BaseSGD, Classifier):
    """Linear classification by online gradient descent.

    Two classes are one problem with y = +1 for ``classes_[1]`` and −1 for ``classes_[0]``;
    ``classes_[1]`` is predicted if the score is >= 0. With more classes, one problem per class
    separates it from the rest, and the class with the largest score is predicted. When a third
    class occurs, the first two start from their halves of the shared problem.

    Parameters
    ----------
    loss : {"logistic", "hinge", "perceptron"}, default="logistic"
        The loss function.
    step : {"adaptive", "normalised", "constant", "decaying", "pa", "pa1", "pa2"}, \
            default="adaptive"
        The step rule, as in :class:`SGDRegressor`. The passive-aggressive steps require
        ``loss="hinge"``.
    step_size, noise, decay, power, aggressiveness : float, default=None
        As in :class:`SGDRegressor`.
    l2 : float >= 0, default=0.0
        As in :class:`SGDRegressor`.
    fit_intercept : bool, default=True
        Whether to learn an intercept, as the weight of a feature that is always 1.
    initial_coef : array-like of shape (d,), or (c, d) for c > 2 classes, default=None
        Initial coefficients of the labels in ``classes``, in sorted order. None is zeros.
    classes : array-like, default=None
        Labels known in advance. New labels may still occur. While fewer than two are known, a row
        adds its label but does not change the weights.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
        Coefficients.
    intercept_ : ndarray of shape (c,), or (1,) for two classes
        Intercepts.
    statistics_ : ndarray of shape (c, 5), or (c, 0)
        As in :class:`SGDRegressor`.
    steps_ : int
        Number of steps, one for each row learned.

    Raises
    ------
    ParameterError
        When learning starts, if a parameter is out of range or incompatible with the others.
    NumericalError
        If the weights diverge. The learner is then unchanged.

    Notes
    -----
    A sample weight multiplies the step of its row, or C with the passive-aggressive steps.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = SGDClassifier("logistic").partial_fit(X, X @ [1.0, 2.0, 3.0] > 0)
    >>> round(model.score(X, X @ [1.0, 2.0, 3.0] > 0), 2)
    1.0
    >>> model.predict_proba([[0.0, 0.0, 0.0]]).round(1)
    array([[0.5, 0.5]])

    The passive-aggressive steps correct each row at once; if labels may be wrong, a small
    ``aggressiveness`` limits the step of one row. Here a tenth of the labels is wrong:

    >>> y = X @ [1.0, 2.0, 3.0] > 0
    >>> noisy = y ^ (np.random.default_rng(1).random(500) < 0.1)
    >>> for C in (1.0, 0.01):
    ...     model = SGDClassifier("hinge", step="pa1", aggressiveness=C).partial_fit(X, noisy)
    ...     print(round(model.score(X, y), 2))
    0.84
    0.99
    """

    _losses = MARGIN_LOSSES
    _closed_form_loss = "hinge"

    loss: str = "logistic"
    _: KW_ONLY
    classes: Collection[object] | None = None

    @property
    def _calibrated(self) -> bool:
        return self.loss != "logistic"

    def _probabilities(self, scores: Floats, fitted: Floats) -> Floats:
        """Those of the logistic loss; of several classes one-vs-rest, divided by their sum."""
        if self._calibrated:
            return super()._probabilities(scores, fitted)
        two = (scores > -np.inf).sum(axis=1, keepdims=True) == 2  # halves of one problem
        logarithms = np.where(two, scores, -np.logaddexp(0.0, -scores))
        return calibration.probabilities(logarithms)

    def _start(self, d: int, c: int) -> None:
        super()._start(d, c)
        if self.initial_coef is not None:
            at = named_class_columns(self, "initial_coef")
            problems = 1 if len(at) == 2 else len(at)
            given = initial_weights(self.initial_coef, d, problems)
            self.weights_[:, at] = given * HALVES if problems == 1 else given

    def _gradient_descent(
        self, X: Floats, Y: Floats, slope: Slope, steps: Steps, statistics: Floats,
        class_mask: Array | None,
    ) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
        weights, offset, statistics = self.weights_.copy(), self.offset_.copy(), statistics.copy()
        predictions = np.zeros(Y.shape)
        for rows, at in _spans(Y, class_mask):
            y, w, b, own = Y[rows, at], weights[:, at], offset[at], statistics[at]
            if y.shape[1] == 2:
                y, (w, b, own) = y[:, 1:], _shared(w, b, own)
            *state, scores = gradient_descent(
                w, b, own, X[rows], 2.0 * y - 1.0, slope, steps.of(rows),
                fit_intercept=self.fit_intercept,
            )  # fmt: skip
            weights[:, at], offset[at], statistics[at] = self._from_problems(*state)
            predictions[rows, at] = scores * HALVES if scores.shape[1] == 1 else scores
        return weights, offset, statistics, predictions

    def _problems(self) -> tuple[Floats, Floats, Floats]:
        problems = super()._problems()
        return _shared(*problems) if len(self.classes_) == 2 else problems

    def _from_problems(
        self, weights: Floats, offset: Floats, statistics: Floats
    ) -> tuple[Floats, Floats, Floats]:
        if len(offset) > 1:
            return weights, offset, statistics
        both = np.repeat(statistics, 2, axis=0)
        both[:1, 2:3] *= -1.0  # the mean of the targets of the first class
        return weights * HALVES, offset * HALVES, both

    def _initial_prediction(self, row: Floats) -> Any:
        return initial_prediction(self, row)


def _shared(weights: Floats, offset: Floats, statistics: Floats) -> tuple[Floats, Floats, Floats]:
    """The problem of two classes: the weights of the first are minus those of the second."""
    return 2.0 * weights[:, 1:], 2.0 * offset[1:], statistics[1:]


def _spans(Y: Floats, class_mask: Array | None) -> list[tuple[slice, Any]]:
    """Runs of rows with the same known classes, at least two, and the indices of the classes."""
    n, c = Y.shape
    if class_mask is None:
        return [(slice(0, n), slice(0, c))] if c > 1 else []
    present = class_mask | (Y > 0)  # it only grows: the first row of a run has its classes
    edges = np.flatnonzero(np.diff(present.sum(axis=1), prepend=0, append=0))
    spans = [(slice(a, b), np.flatnonzero(present[a])) for a, b in pairwise(edges)]
    return [(rows, at) for rows, at in spans if len(at) > 1]
