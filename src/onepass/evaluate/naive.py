"""Naive baselines that use no features: the minimum that a model must beat.

=====================  =======================================  ====================
learner                prediction                               before the first row
=====================  =======================================  ====================
:class:`LastValue`     the last target                          0
:class:`RunningMean`   the mean of all targets so far           0
:class:`LastLabel`     the last label                           None
:class:`Majority`      the most frequent label so far           None
=====================  =======================================  ====================

If targets are autocorrelated, the last target is hard to beat: on Elec2 it is correct for 85 % of
the rows, more than many published methods [1].

Only the number of rows of X is used, so X may contain text, dates and missing values.
Cost: O(c) time per row and O(c) memory, for c outputs or classes.

[1] I. Žliobaitė, A. Bifet, J. Read, B. Pfahringer, G. Holmes, "Evaluation methods and decision
    theory for classification of streaming data with temporal dependence", Machine Learning 98,
    2015.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

import numpy as np

from onepass.learners.estimator import Classifier, Learner, Regressor
from onepass.serialization.codec import Role, register
from onepass.types import Array, ArrayLike, Floats, TimeLike
from onepass.validation.table import TableLike


class _Naive(Learner):
    """A learner that uses no features, with one score per output."""

    _scored: ClassVar[str]
    """The attribute with the score of each output, (c,)."""

    def _start(self, d: int, c: int) -> None:
        del d
        setattr(self, self._scored, np.zeros(c))

    def _scores(self, X: Floats) -> Floats:
        return np.tile(getattr(self, self._scored), (len(X), 1))

    def _add_outputs(self, at: Array, c: int) -> None:
        wider = np.zeros(c)
        wider[np.setdiff1d(np.arange(c), at)] = getattr(self, self._scored)
        setattr(self, self._scored, wider)

    def _learn_block(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        verb: str,
        time: TimeLike | None = None,
    ) -> tuple[Floats, Array | None, Floats]:
        return super()._learn_block(_zeros(X), y, sample_weight, verb, time)

    def _matrix(self, X: TableLike) -> Floats:
        return super()._matrix(_zeros(X))

    def _row(self, x: object) -> Floats:
        del x
        return np.zeros(1)

    def _set_features(self, d: int, names: list[str] | None) -> None:
        del d, names
        super()._set_features(1, None)

    def _widen(self, d: int) -> None:
        """Ignore new features."""


def _zeros(X: Any) -> Floats:
    """Return a column of zeros with the rows of X, in the memory of one number."""
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    return np.broadcast_to(np.zeros(1), (n, 1))


class _NaiveRegressor(_Naive, Regressor):
    """A regressor without features."""

    def _initial_prediction(self, row: Floats) -> Any:
        del row
        return np.float64(0.0)


def _learn_last(learner: Any, Y: Floats) -> Floats:
    """Set ``last_`` to the last targets; return the targets before each row."""
    predictions = np.vstack([learner.last_, Y[:-1]])
    learner.last_ = Y[-1].astype(np.float64)
    return predictions


class LastValue(_NaiveRegressor):
    """Predict the last target; 0 before the first.

    Examples
    --------
    >>> LastValue().test_then_train([["a"], [None], ["c"]], [3.0, 5.0, 4.0])
    array([0., 3., 5.])
    """

    _scored = "last_"
    last_: Floats

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del X, s, class_mask
        return _learn_last(self, Y)


class RunningMean(_NaiveRegressor):
    """Predict the (weighted) mean of all targets so far; 0 before the first.

    The mean is updated with differences of targets from the mean, so that targets such as 10⁸ ± 1
    lose no digits.

    Examples
    --------
    >>> RunningMean().test_then_train([["a"], [None], ["c"]], [3.0, 5.0, 4.0])
    array([0., 3., 4.])
    """

    _scored = "mean_"
    mean_: Floats
    weight_: float

    def _start(self, d: int, c: int) -> None:
        super()._start(d, c)
        self.weight_ = 0.0

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del X, class_mask
        s = np.ones(len(Y)) if s is None else s
        origin = self.mean_ if self.weight_ > 0 else Y[0].astype(np.float64)
        weight = self.weight_ + np.cumsum(s)
        means = origin + np.cumsum(s[:, None] * (Y - origin), axis=0) / weight[:, None]
        predictions = np.vstack([self.mean_, means[:-1]])
        self.mean_, self.weight_ = means[-1].copy(), float(weight[-1])
        return predictions


class _NaiveClassifier(_Naive, Classifier):
    """A classifier without features.

    Parameters
    ----------
    classes : array-like, optional
        Labels that are known in advance. Further labels may occur later.
    """

    def __init__(self, classes: Collection[object] | None = None) -> None:
        self.classes = classes

    def partial_fit(  # type: ignore[override]  # the third argument is scikit-learn's
        self,
        X: TableLike,
        y: ArrayLike,
        classes: Collection[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the rows in order; only the number of rows of X is used."""
        return super().partial_fit(_zeros(X), y, classes=classes, sample_weight=sample_weight)


class LastLabel(_NaiveClassifier):
    """Predict the last label; None before the first.

    Parameters
    ----------
    classes : array-like, optional
        Labels that are known in advance. Further labels may occur later.

    Examples
    --------
    >>> LastLabel().test_then_train([[0.0]] * 4, ["up", "up", "down", "up"]).tolist()
    [None, 'up', 'up', 'down']
    """

    _scored = "last_"
    last_: Floats

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del X, s, class_mask
        return _learn_last(self, Y)


class Majority(_NaiveClassifier):
    """Predict the label with the most rows (or weight) so far; None before the first.

    If labels tie, the last of them in sorted order is predicted.

    Parameters
    ----------
    classes : array-like, optional
        Labels that are known in advance. Further labels may occur later.

    Examples
    --------
    >>> Majority().test_then_train([[0.0]] * 4, ["up", "up", "down", "up"]).tolist()
    [None, 'up', 'up', 'up']
    """

    _scored = "counts_"
    _calibrated = False
    counts_: Floats

    def _probabilities(self, scores: Floats, fitted: Floats) -> Floats:
        """Shares of the known classes so far, with one more row of each, (n, c)."""
        del fitted
        counts = np.maximum(scores + 1.0, 0.0)
        shares: Floats = counts / counts.sum(axis=1, keepdims=True)
        return shares

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del X, class_mask
        counts = self.counts_ + np.cumsum(Y if s is None else s[:, None] * Y, axis=0)
        predictions = np.vstack([self.counts_, counts[:-1]])
        self.counts_ = counts[-1].copy()
        return predictions


register(Role.RUN, LastValue, RunningMean, LastLabel, Majority)
