"""Metrics of class probabilities, with a state of bounded size.

They are computed from four numbers per row: the index of the label among the classes that the model
knows, its probability p, Σ_k p_k², and of two classes the probability of the second.
``row_probabilities`` makes an array of them. A row whose label the model has not seen yet has no
probability and counts only in the Brier score.

ROC AUC and average precision are for two labels, of which the larger one is positive. Rows are
counted in cells of equal width 2^−k in the log-odds of the positive class. k is at first 43, so
that each probability has a cell of its own and the areas are exact; it is reduced whenever more
than 4,000 cells have rows. Rows of a cell are ties: with n negative and p positive rows of each
cell, N and P in all, the error of the ROC AUC is at most ½ Σ n p / (N P).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from onepass.errors import ShapeError
from onepass.evaluate.metrics.metric import Mean, Metric
from onepass.serialization.codec import Role, register
from onepass.types import Array, ArrayLike, Floats

_FIELDS = np.dtype([("label", object), ("p", float), ("squares", float), ("second", float)])
_CELLS = 4000
_FINEST = 43  # k at first: keys of cells are below 2^53
_REACH = 800.0  # beyond the log-odds of all p > 0
_ONLY = 2.0  # marks rows whose label was the only known class
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
        With the fields ``label``, ``p``, ``squares`` and ``second``; p is nan if the label is not
        known, and ``second``, the probability of the second of two known classes, is 2 if the model
        knows one class, and nan if it knows more.

    Examples
    --------
    >>> y, P = np.array(["a", "b"]), [[0.9, 0.1], [0.5, 0.5]]
    >>> LogLoss().add(y, row_probabilities(y, y, np.array(["a", "b"]), P)).value.__round__(4)
    0.3993
    """
    p, squares, second = np.full(len(y), np.nan), np.zeros(len(y)), np.full(len(y), _ONLY)
    if probabilities is not None and np.shape(probabilities)[1]:
        P = np.asarray(probabilities, dtype=np.float64)
        places = {label: k for k, label in enumerate(classes.tolist())}
        at = np.array([places.get(label, -1) for label in y.tolist()], dtype=int)
        rows = np.flatnonzero(at >= 0)
        p[rows], squares = P[rows, at[rows]], np.nansum(np.square(P), axis=1)
        known = ~np.isnan(P)  # nan before a class is known
        count, last = known.sum(axis=1), P.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        second = np.where(count == 2, P[np.arange(len(P)), last], np.nan)
        second[count < 2] = _ONLY
    return with_fields((labels, p, squares, second))


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
    _skips_nan = True

    @staticmethod
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        return -np.log(np.clip(_fields(y, predictions)[0], _LEAST, 1.0))


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
        self._labels: list[Any] = []  # the first two
        self._undefined = False  # whether there are more classes
        self._level = _FINEST  # k
        self._keys = np.empty(0, dtype=np.int64)  # the log-odds of each cell in units of its width
        self._counts = np.zeros((0, 2), dtype=np.int64)  # rows of each label in each cell

    def add(self, y: ArrayLike, predictions: ArrayLike) -> Self:
        """Add rows."""
        self.along(np.asarray(y), np.asarray(predictions), ())
        return self

    def along(self, y: Array, predictions: Array, ends: Sequence[int]) -> list[float]:
        """Add rows; return the values after some of them."""
        known = ~np.isnan(_fields(y, predictions)[0])
        labels, second = y[known], predictions["second"][known]
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.nan_to_num(np.log(second) - np.log1p(-second)).clip(-_REACH, _REACH)
        odds[second == _ONLY] = 2.0 * _REACH
        counted, values, begin = np.concatenate([[0], np.cumsum(known)]), list[float](), 0
        for end in (*ends, len(y)):
            part = slice(counted[begin], counted[end])
            self.rows += end - begin
            self._add_rows(labels[part], odds[part])
            if np.isnan(second[part]).any():  # the model knows more than two classes
                self._undefined = True
            values += [self.value] if len(values) < len(ends) else []
            begin = end
        return values

    def _add_rows(self, labels: Array, odds: Floats) -> None:
        """Add rows whose labels the model knew, with the log-odds of the second class."""
        counts = np.zeros((len(labels), 2), dtype=np.int64)
        self._join(labels.tolist())
        for k, label in enumerate(self._labels):
            counts[:, k] = labels == label
        self._add(np.floor(np.ldexp(odds, self._level)).astype(np.int64), counts)

    def merge(self, other: Self) -> Self:
        """Add all rows of another metric of the same class."""
        self.rows += other.rows
        self._undefined |= other._undefined
        self._join(other._labels)
        counts = np.zeros_like(other._counts)
        for label, column in zip(other._labels, other._counts.T, strict=False):
            if label in self._labels:
                counts[:, self._labels.index(label)] = column
        level = min(self._level, other._level)
        self._coarsen(level)
        self._add(other._keys >> (other._level - level), counts)
        return self

    def _join(self, labels: Iterable[Any]) -> None:
        """Add labels to those so far; with a third one the value is nan."""
        new = [label for label in dict.fromkeys(labels) if label not in self._labels]
        self._undefined |= len(self._labels) + len(new) > 2
        self._labels = [*self._labels, *sorted(new)][:2]

    def _add(self, keys: Array, counts: Array) -> None:
        """Add cells of the present width one after the other, so that blocks do not matter."""
        level = self._level
        while len(keys):
            room = 2 * _CELLS - len(self._keys)
            self._keys = np.concatenate([self._keys, keys[:room] >> (level - self._level)])
            self._counts = np.concatenate([self._counts, counts[:room]])
            keys, counts = keys[room:], counts[room:]
            if len(self._keys) == 2 * _CELLS:
                self._coarsen(self._level)
                while len(self._keys) > _CELLS:
                    self._coarsen(self._level - 1)

    def _coarsen(self, level: int) -> None:
        """Widen the cells to this level, and join those of the same key."""
        self._keys, self._counts = _joined_cells(self._keys >> (self._level - level), self._counts)
        self._level = level

    def _by_score(self) -> tuple[Floats, Floats] | None:
        """Numbers of negative and positive rows by cell, the highest score first."""
        if self._undefined or len(self._labels) < 2:
            return None
        keys, counts = _joined_cells(self._keys, self._counts)
        last = self._labels.index(max(self._labels))
        counts = counts[::-1].astype(float)
        negative, positive = counts[:, 1 - last], counts[:, last]
        if keys[-1] >> self._level > _REACH:  # 0 and 1 are the scores of the two labels
            negative, positive = np.append(negative, negative[0]), np.append(positive, 0.0)
            negative[0] = 0.0
        return negative, positive


def _joined_cells(keys: Array, counts: Array) -> tuple[Array, Array]:
    """The cells in order, one for each key."""
    own, cells = np.unique(keys, return_inverse=True)
    sums = [np.bincount(cells, column, minlength=len(own)) for column in counts.T]
    return own, np.column_stack(sums).astype(np.int64)


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
