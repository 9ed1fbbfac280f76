"""Metrics of answers that are labels: text or whole numbers, new ones at any time."""

from collections import Counter
from typing import Any, Self

import numpy as np

from onepass.errors import Array, Floats, ShapeError
from onepass.evaluate.metrics.metric import Mean, Metric

__all__ = ["Accuracy", "MacroF1", "MeanZeroOneLoss", "ZeroOneLoss"]


def _right(y: Any, said: Any) -> Array:
    """Whether what was said of each row is its label, shape (n,)."""
    answers, sayings = np.ravel(np.asarray(y)), np.ravel(np.asarray(said))
    if answers.shape != sayings.shape:
        raise ShapeError(
            f"Metric.add: `said` must hold {len(answers)} labels, one for each row of `y`, got "
            f"{len(sayings)}. Give one saying for each answer."
        )
    if (answers.dtype.kind in "US") != (sayings.dtype.kind in "US"):
        answers = answers.astype(object)  # arrays of text compare with nothing else
    right: Array = np.asarray(answers == sayings, dtype=bool)
    return right


class Accuracy(Mean):
    """The share of rows whose label was said.

    Examples
    --------
    >>> Accuracy().add(["a", "b", "b"], [None, "b", "b"]).value
    0.6666666666666666
    """

    label = "Accuracy"
    better = "higher"
    unit = ""

    @staticmethod
    def _loss(y: Any, said: Any) -> Floats:
        return _right(y, said).astype(np.float64)


class MeanZeroOneLoss(Mean):
    """The notes' (1) with the 0/1 loss: the share of rows said wrongly.

    Examples
    --------
    >>> MeanZeroOneLoss().add(["a", "b"], [None, "b"]).value
    0.5
    """

    label = "Mean 0/1 loss"
    better = "lower"
    unit = ""

    @staticmethod
    def _loss(y: Any, said: Any) -> Floats:
        return (~_right(y, said)).astype(np.float64)


class ZeroOneLoss(MeanZeroOneLoss):
    """The notes' (2) with the 0/1 loss: the number of rows said wrongly.

    Examples
    --------
    >>> ZeroOneLoss().add(["a", "b"], [None, "a"]).value
    2.0
    """

    label = "Mistakes"
    unit = "rows"

    @property
    def value(self) -> float:
        """The number of wrong rows so far."""
        return float(self._total.value)


class MacroF1(Metric):
    """F1 of each class, averaged over all classes that were an answer or were said.

    Classes come at any time. It is scikit-learn's ``f1_score(average="macro", zero_division=0)``.

    Examples
    --------
    >>> MacroF1().add([0, 1, 1, 0], [0, 1, 0, 0]).value
    0.7333333333333334
    """

    label = "Macro F1"
    better = "higher"
    unit = ""

    def __init__(self) -> None:
        super().__init__()
        self._right: Counter[Any] = Counter()
        self._either: Counter[Any] = Counter()  # how often answered plus how often said

    def add(self, y: Any, said: Any) -> Self:
        """Take more rows."""
        right = _right(y, said)
        answers = np.ravel(np.asarray(y))
        self.rows += len(answers)
        self._right.update(answers[right].tolist())
        self._either.update(answers.tolist())
        self._either.update(np.ravel(np.asarray(said)).tolist())
        del self._either[None]  # nothing said is no class
        return self

    def merge(self, other: Self) -> Self:
        """Take all rows that another metric of the same class has seen."""
        self.rows += other.rows
        self._right.update(other._right)
        self._either.update(other._either)
        return self

    @property
    def value(self) -> float:
        """The mean over the classes so far; nan before the first row."""
        if not self._either:
            return np.nan
        scores = [2 * self._right[label] / count for label, count in self._either.items()]
        return float(np.mean(scores))
