"""Metrics of class probabilities, with a state of bounded size.

They are computed from three numbers per row: the index of the label among the classes that the
model knows, its probability p, and Σ_k p_k². ``row_probabilities`` makes an array of them. A row
whose label the model has not seen yet has no probability and counts only in the Brier score.

ROC AUC and average precision are for two labels, of which the larger one is positive.
Probabilities are counted in 2,001 cells of equal width in log-odds from −20 to 20. Rows of the same
cell are ties: the error is at most half the share of pairs of rows, one of each class, that share a
cell, and as their order within a cell is nearly random it is far smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from onepass.errors import ShapeError
from onepass.evaluate.metrics.metric import Mean, Metric
from onepass.serialization.codec import Role, register
from onepass.types import Array, ArrayLike, Floats

__all__ = [
    "ROCAUC",
    "AveragePrecision",
    "Brier",
    "LogLoss",
    "ProbabilityMetric",
    "fields_of",
    "row_probabilities",
    "with_fields",
]

_FIELDS = np.dtype([("label", object), ("p", float), ("squares", float)])
_CELLS = 2001
_REACH = 20.0  # largest log-odds
_LEAST = float(np.finfo(np.float64).eps)  # as in scikit-learn


def row_probabilities(
    labels: Array, y: Array, classes: Array, probabilities: ArrayLike | None
) -> Array:
    """The predictions of rows for these metrics.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        The predicted labels.
    y : ndarray of shape (n,)
        The labels.
    classes : ndarray of shape (c,)
        The classes that the model knows.
    probabilities : array-like of shape (n, c), or None
        The probabilities of the classes, nan for unknown classes; None if no class is known.

    Returns
    -------
    rows : structured array of shape (n,)
        With the fields ``label``, ``p`` and ``squares``; p is nan if the label is not known.

    Examples
    --------
    >>> y, P = np.array(["a", "b"]), [[0.9, 0.1], [0.5, 0.5]]
    >>> LogLoss().add(y, row_probabilities(y, y, np.array(["a", "b"]), P)).value.__round__(4)
    0.3993
    """
    p, squares = np.full(len(y), np.nan), np.zeros(len(y))
    if probabilities is not None:
        P = np.asarray(probabilities, dtype=np.float64)
        places = {label: k for k, label in enumerate(classes.tolist())}
        at = np.array([places.get(label, -1) for label in y.tolist()], dtype=int)
        rows = np.flatnonzero(at >= 0)
        p[rows], squares = P[rows, at[rows]], np.nansum(np.square(P), axis=1)
    return with_fields((labels, p, squares))


def with_fields(parts: Sequence[Array]) -> Array:
    """The result of `row_probabilities` from its fields; one array is returned unchanged."""
    if len(parts) == 1:
        return parts[0]
    found = np.empty(len(parts[0]), _FIELDS)
    for name, part in zip(found.dtype.names or (), parts, strict=True):
        found[name] = part
    return found


def fields_of(predictions: Array) -> tuple[Array, ...]:
    """The fields of the result of `row_probabilities`; other predictions as the only field."""
    names = predictions.dtype.names
    return (predictions,) if names is None else tuple(predictions[name] for name in names)


class ProbabilityMetric(Metric):
    """Base class of metrics of probabilities; ``add`` takes the array of `row_probabilities`."""


def _fields(y: ArrayLike, predictions: Any) -> tuple[Floats, Floats]:
    """Probabilities of the labels, and sums of squares."""
    n = len(np.asarray(y))
    if getattr(predictions, "dtype", None) != _FIELDS or len(predictions) != n:
        raise ShapeError(
            f"`predictions` must be the result of `row_probabilities` for {n} labels "
            "for a metric of probabilities, got other predictions. Pass one such "
            "result, or use op.evaluate.prequential.",
            "Metric.add",
        )
    return predictions["p"], predictions["squares"]


class LogLoss(Mean, ProbabilityMetric):
    """Mean of −log p of the label, in nats; without the first row of each new class."""

    label = "Log loss"
    better = "lower"
    unit = ""

    @staticmethod
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        p = _fields(y, predictions)[0]
        return -np.log(np.clip(p[~np.isnan(p)], _LEAST, 1.0))


class Brier(Mean, ProbabilityMetric):
    """Mean of ½ Σ_k (p_k − y_k)², in [0, 1]; for two classes the mean of (p − y)²."""

    label = "Brier score"
    better = "lower"
    unit = ""

    @staticmethod
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        p, squares = _fields(y, predictions)
        return 0.5 * (1.0 - 2.0 * np.nan_to_num(p) + squares)


class _Ranking(ProbabilityMetric):
    """Base class of metrics of the order of two classes by probability; nan for other numbers."""

    better = "higher"
    unit = ""

    def __init__(self) -> None:
        super().__init__()
        self._labels: list[Any] = []
        self._counts = np.zeros((0, _CELLS), dtype=np.int64)  # rows of each label by cell

    def add(self, y: ArrayLike, predictions: ArrayLike) -> Self:
        """Add rows."""
        p = _fields(y, predictions)[0]
        self.rows += len(p)
        labels = np.asarray(y)[~np.isnan(p)]
        p = np.clip(p[~np.isnan(p)], 1e-300, 1.0)
        with np.errstate(divide="ignore"):
            odds = np.log(p) - np.log1p(-p)
        middle = _CELLS // 2  # p and 1 − p are in cells at equal distances from it
        cells = middle + np.rint(np.clip(odds / _REACH, -1.0, 1.0) * middle).astype(int)
        for label in np.unique(labels).tolist():
            self._add(label, np.bincount(cells[labels == label], minlength=_CELLS))
        return self

    def merge(self, other: Self) -> Self:
        """Add all rows of another metric of the same class."""
        self.rows += other.rows
        for label, counts in zip(other._labels, other._counts, strict=True):
            self._add(label, counts)
        return self

    def _add(self, label: Any, counts: Array) -> None:
        if label not in self._labels and len(self._labels) < 3:  # with three the value is nan
            self._labels = [*self._labels, label]
            self._counts = np.concatenate([self._counts, np.zeros((1, _CELLS), dtype=np.int64)])
        if label in self._labels:
            self._counts = self._counts.copy()  # saved states share the former array
            self._counts[self._labels.index(label)] += counts

    def _by_score(self) -> tuple[Floats, Floats] | None:
        """Numbers of negative and positive rows by cell, the highest score first."""
        if len(self._labels) != 2:
            return None
        last = self._labels.index(max(self._labels))
        negative, positive = self._counts[1 - last], self._counts[last]
        return negative.astype(float), positive[::-1].astype(float)  # scores 1 − p, and p


class ROCAUC(_Ranking):
    """Area under the ROC curve: the share of pairs of rows that are in the right order.

    For two labels; the larger one is positive.
    """

    label = "ROC AUC"

    @property
    def value(self) -> float:
        """The area over all rows so far; nan unless there are two labels."""
        if (counts := self._by_score()) is None:
            return np.nan
        negative, positive = counts
        above = np.cumsum(positive) - 0.5 * positive
        return float(negative @ above / (negative.sum() * positive.sum()))


class AveragePrecision(_Ranking):
    """Area under the precision-recall curve: Σ (R_n − R_{n−1}) P_n over decreasing thresholds."""

    label = "Average precision"

    @property
    def value(self) -> float:
        """The average precision over all rows so far; nan unless there are two labels."""
        if (counts := self._by_score()) is None:
            return np.nan
        negative, positive = counts
        right, chosen = np.cumsum(positive), np.cumsum(positive + negative)
        return float(positive @ (right / np.maximum(chosen, 1.0)) / right[-1])


register(Role.METRIC, AveragePrecision, Brier, LogLoss, ROCAUC)
