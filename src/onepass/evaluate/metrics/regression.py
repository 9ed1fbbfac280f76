"""Metrics of answers that are real numbers, one or several a row."""

from typing import Any, Self

import numpy as np

from onepass.errors import Floats, ShapeError
from onepass.evaluate.metrics.metric import Mean, Metric, averaged
from onepass.evaluate.metrics.total import Total

__all__ = ["MAE", "R2", "RMSE", "MeanSquaredLoss", "SquaredLoss"]


def _errors(y: Any, said: Any) -> Floats:
    """How far what was said is off, in the unit of y."""
    answers, sayings = np.asarray(y, dtype=np.float64), np.asarray(said, dtype=np.float64)
    if answers.shape != sayings.shape:
        raise ShapeError(
            f"Metric.add: `said` must have the shape of `y`, {answers.shape}, got "
            f"{sayings.shape}. Give one saying for each answer."
        )
    errors: Floats = answers - sayings
    return errors


def _squares(y: Any, said: Any) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        return _errors(y, said) ** 2


class MAE(Mean):
    """Mean absolute error.

    Examples
    --------
    >>> MAE().add([1.0, 2.0], [1.5, 4.0]).value
    1.25
    """

    label = "MAE"
    better = "lower"
    unit = "y"

    @staticmethod
    def _loss(y: Any, said: Any) -> Floats:
        return np.abs(_errors(y, said))


class MeanSquaredLoss(Mean):
    """The notes' (1) with the squared loss: the mean of (ŷ − y)².

    Examples
    --------
    >>> MeanSquaredLoss().add([1.0, 2.0], [1.0, 4.0]).value
    2.0
    """

    label = "Mean squared loss"
    better = "lower"
    unit = "y²"

    @staticmethod
    def _loss(y: Any, said: Any) -> Floats:
        return _squares(y, said)


class SquaredLoss(MeanSquaredLoss):
    """The notes' (2) with the squared loss: the sum of (ŷ − y)².

    Examples
    --------
    >>> SquaredLoss().add([1.0, 2.0], [1.0, 4.0]).value
    4.0
    """

    label = "Cumulative squared loss"

    @property
    def value(self) -> float:
        """The sum over all rows so far."""
        return averaged(self._total.value)


class RMSE(MeanSquaredLoss):
    """Root of the mean squared error.

    Examples
    --------
    >>> RMSE().add([0.0, 0.0], [3.0, -3.0]).value
    3.0
    """

    label = "RMSE"
    unit = "y"

    @property
    def value(self) -> float:
        """The root for each output, averaged; nan before the first row."""
        return averaged(np.sqrt(self._total.value / self.rows)) if self.rows else np.nan


class R2(Metric):
    """The share of the answers' variance that was said: 1 is all, 0 is no better than the mean.

    The sum about the mean is kept by Chan's rule for merging, in coordinates that begin at the
    first answer: differences of near numbers are exact, so answers such as 10⁸ ± 1 keep their
    digits. Constant answers give 1 where all were said exactly, otherwise 0; one row gives nan.

    Examples
    --------
    >>> R2().add([1.0, 2.0, 3.0], [1.0, 2.0, 2.0]).value
    0.5
    """

    label = "R²"
    better = "higher"
    unit = ""

    def __init__(self) -> None:
        super().__init__()
        self._error = Total()  # Σ (y − ŷ)²
        self._spread = Total()  # Σ (y − ȳ)²
        self._origin: Any = None  # the first answer
        self._mean: Any = np.float64(0.0)  # ȳ, counted from the origin

    def add(self, y: Any, said: Any) -> Self:
        """Take more rows."""
        squares = _squares(y, said)
        n = squares.shape[0]
        if n == 0:
            return self
        answers = np.asarray(y, dtype=np.float64)
        if self._origin is None:
            self._origin = answers[0].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            from_origin = answers - self._origin
            mean = np.add.reduce(from_origin) / n
            self._error.add(np.add.reduce(squares))
            self._spread.add(np.add.reduce((from_origin - mean) ** 2))
            self._join(n, mean)
        return self

    def merge(self, other: Self) -> Self:
        """Take all rows that another metric of the same class has seen."""
        if other.rows == 0:
            return self
        if self._origin is None:
            self._origin = other._origin
        self._error.merge(other._error)
        self._spread.merge(other._spread)
        self._join(other.rows, other._mean + (other._origin - self._origin))
        return self

    def _join(self, n: int, mean: Any) -> None:
        """Join n rows of this mean: what they add to the spread beyond their own."""
        total = self.rows + n
        apart = mean - self._mean
        self._spread.add(apart**2 * (self.rows * n / total))
        self._mean = self._mean + apart * (n / total)
        self.rows = total

    @property
    def value(self) -> float:
        """The share over all rows so far; nan for fewer than two."""
        if self.rows < 2:
            return np.nan
        error, spread = self._error.value, self._spread.value
        if isinstance(error, float) and isinstance(spread, float):  # one output
            return 1.0 - error / spread if spread > 0 else float(error == 0)
        varied = spread > 0
        with np.errstate(invalid="ignore", over="ignore"):
            share = 1.0 - error / np.where(varied, spread, 1.0)
        return float(np.mean(np.where(varied, share, np.where(error == 0, 1.0, 0.0))))
