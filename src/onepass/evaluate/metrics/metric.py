"""Metrics of regression and classification, updated block by block.

A metric receives targets and predictions in blocks; its value covers all rows so far. Regression
metrics accept one or several real numbers per row. Classification metrics accept text or integer
labels; new labels may occur at any time.

Sums are compensated. After adding xₖ to s, t = fl(s + xₖ), the rounding error is known exactly [1,
two-sum]:

    z = t − s,   lost ← lost + (s − (t − z)) + (xₖ − z),   s ← t                         (1)

and s + lost is the sum in twice the precision. Even over 10⁹ rows the sum is accurate, and
independent of the block size, up to the last one or two digits of float64.

[1] D. E. Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onepass.errors import ShapeError
from onepass.serialization.codec import Role, register
from onepass.types import Array, ArrayLike, Floats


class Total:
    """A compensated sum of numbers, or of arrays of equal shape.

    Examples
    --------
    >>> total = Total()
    >>> for number in [1e16, 1.0, 1.0, -1e16]:
    ...     total.add(number)
    >>> float(total.value)
    2.0
    """

    def __init__(self) -> None:
        self._sum: Any = np.float64(0.0)
        self._lost: Any = np.float64(0.0)

    def add(self, x: float | Array) -> None:
        """Add a number, or an array elementwise."""
        if isinstance(x, float) and isinstance(self._sum, float):  # NumPy floats too: same result
            self._add(float(x), float(self._sum), float(self._lost))
            return
        with np.errstate(over="ignore", invalid="ignore"):
            t = self._sum + x
            z = t - self._sum
            self._lost = self._lost + ((self._sum - (t - z)) + (x - z))  # (1)
        self._sum = t

    def _add(self, x: float, before: float, lost: float) -> None:
        """Add a number in Python's arithmetic, which takes a tenth of the time and never warns."""
        self._sum = t = before + x
        z = t - before
        self._lost = lost + ((before - (t - z)) + (x - z))  # (1)

    def merge(self, other: Self) -> None:
        """Add another total."""
        self.add(other._sum)
        self._lost = self._lost + other._lost

    @property
    def value(self) -> Any:
        """The sum; infinite after a term or the sum was infinite."""
        if isinstance(self._sum, float):
            return self._sum + self._lost if math.isfinite(self._sum) else self._sum
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self._sum), self._sum + self._lost, self._sum)


def _averaged(value: float | Array) -> float:
    """Average a value over outputs."""
    return float(value) if isinstance(value, float) else float(np.mean(value))


class Metric(ABC):
    """A measure of the predictions for all rows so far.

    Attributes
    ----------
    label : str
        The name in tables and figures.
    better : {"lower", "higher"}
        Whether lower or higher values are better.
    unit : {"", "y", "y²", "rows"}
        The unit of the value: none, that of the targets or its square, or a number of rows.
    rows : int
        Number of rows added so far.
    """

    label: ClassVar[str]
    better: ClassVar[Literal["lower", "higher"]]
    unit: ClassVar[str]

    def __init__(self) -> None:
        self.rows = 0

    @abstractmethod
    def add(self, y: ArrayLike, predictions: ArrayLike) -> Self:
        """Add rows.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, c)
            The targets.
        predictions : array-like of the same shape as y
            The predictions for the same rows.

        Returns
        -------
        self
        """

    @property
    @abstractmethod
    def value(self) -> float:
        """The metric over all rows so far; nan if undefined."""

    def along(self, y: Array, predictions: Array, ends: Sequence[int]) -> list[float]:
        """Add rows; return the values after some of them.

        Parameters
        ----------
        y, predictions
            As in ``add``.
        ends : sequence of int
            Increasing numbers of the rows, from 1 to n.
        """
        values, begin = [], 0
        for end in ends:
            self.add(y[begin:end], predictions[begin:end])
            values.append(self.value)
            begin = end
        self.add(y[begin:], predictions[begin:])
        return values

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add all rows of another metric of the same class.

        Parameters
        ----------
        other : Metric
            A metric, which is not changed.

        Returns
        -------
        self
        """

    @property
    def _sound(self) -> bool:
        """Whether the number of rows read from a file is valid."""
        return type(self.rows) is int and self.rows >= 0


class Mean(Metric):
    """Mean of a loss over rows, for each output, with a compensated sum."""

    _skips_nan: ClassVar[bool] = False  # whether rows without a loss, NaN, do not count

    def __init__(self) -> None:
        super().__init__()
        self._total = Total()

    @staticmethod
    @abstractmethod
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        """Return the loss of each row and output, shape (n,) or (n, c)."""

    def add(self, y: ArrayLike, predictions: ArrayLike) -> Self:
        """Add rows."""
        self.along(np.asarray(y), np.asarray(predictions), ())
        return self

    def merge(self, other: Self) -> Self:
        """Add all rows of another metric of the same class."""
        self.rows += other.rows
        self._total.merge(other._total)
        return self

    def along(self, y: Array, predictions: Array, ends: Sequence[int]) -> list[float]:
        """Add rows; return the values after some of them."""
        loss, before, rows = self._loss(y, predictions), self._total.value, self.rows
        at = np.array(ends, dtype=int)
        if self._skips_nan:
            counted = ~np.isnan(loss)
            at, loss = np.concatenate([[0], np.cumsum(counted)])[at], loss[counted]
        self.rows += len(loss)
        self._total.add(np.add.reduce(loss))
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.concatenate([np.zeros((1, *loss.shape[1:])), np.cumsum(loss, axis=0)])
            sums = before + sums[at]
        totals, counts = sums.tolist() if sums.ndim == 1 else sums, (rows + at).tolist()
        found = [self._of(t, n) if n else np.nan for t, n in zip(totals, counts, strict=True)]
        return [*found[:-1], self.value] if found and ends[-1] == len(y) else found

    @staticmethod
    def _of(total: Any, rows: int) -> float:
        """The value for a sum of losses."""
        return _averaged(total / rows)

    @property
    def value(self) -> float:
        """The mean over all rows so far; nan before the first."""
        return self._of(self._total.value, self.rows) if self.rows else np.nan


def _errors(y: ArrayLike, predictions: ArrayLike) -> Floats:
    """Y − ŷ."""
    targets, predicted = np.asarray(y, dtype=np.float64), np.asarray(predictions, dtype=np.float64)
    if targets.shape != predicted.shape:
        raise ShapeError(
            f"`predictions` must have the shape of `y`, {targets.shape}, got "
            f"{predicted.shape}. Pass one prediction for each target.",
            "Metric.add",
        )
    errors: Floats = targets - predicted
    return errors


def _squares(y: ArrayLike, predictions: ArrayLike) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        return _errors(y, predictions) ** 2


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
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        return np.abs(_errors(y, predictions))


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
    _loss = staticmethod(_squares)


class SquaredLoss(MeanSquaredLoss):
    """The notes' (2) with the squared loss: the sum of (ŷ − y)².

    Examples
    --------
    >>> SquaredLoss().add([1.0, 2.0], [1.0, 4.0]).value
    4.0
    """

    label = "Cumulative squared loss"

    @staticmethod
    def _of(total: Any, rows: int) -> float:
        del rows
        return _averaged(total)

    @property
    def value(self) -> float:
        """The sum over all rows so far."""
        return self._of(self._total.value, self.rows)


class RMSE(MeanSquaredLoss):
    """Root of the mean squared error.

    Examples
    --------
    >>> RMSE().add([0.0, 0.0], [3.0, -3.0]).value
    3.0
    """

    label = "RMSE"
    unit = "y"

    @staticmethod
    def _of(total: Any, rows: int) -> float:
        """The root for each output, averaged over outputs."""
        one = isinstance(total, float)
        return math.sqrt(total / rows) if one else _averaged(np.sqrt(total / rows))


class R2(Metric):
    """Coefficient of determination: 1 is perfect, 0 is no better than the mean of the targets.

    The sum of squares about the mean is updated with Chan's rule for merging, relative to the first
    target: differences of close numbers are exact, so targets such as 10⁸ ± 1 lose no digits. For
    constant targets the value is 1 if all predictions are exact, otherwise 0; for one row it is
    nan.

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
        self._origin: Any = None  # the first target
        self._mean: Any = np.float64(0.0)  # ȳ, relative to the origin

    def add(self, y: ArrayLike, predictions: ArrayLike) -> Self:
        """Add rows."""
        squares = _squares(y, predictions)
        n = squares.shape[0]
        if n == 0:
            return self
        targets = np.asarray(y, dtype=np.float64)
        if self._origin is None:
            self._origin = targets[0].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            from_origin = targets - self._origin
            mean = np.add.reduce(from_origin) / n
            self._error.add(np.add.reduce(squares))
            self._spread.add(np.add.reduce((from_origin - mean) ** 2))
            self._join(n, mean)
        return self

    def merge(self, other: Self) -> Self:
        """Add all rows of another metric of the same class."""
        if other.rows == 0:
            return self
        if self._origin is None:
            self._origin = other._origin
        self._error.merge(other._error)
        self._spread.merge(other._spread)
        self._join(other.rows, other._mean + (other._origin - self._origin))
        return self

    def along(self, y: Array, predictions: Array, ends: Sequence[int]) -> list[float]:
        """Add rows; return the values after some of them."""
        if y.ndim > 1 or not ends:
            return super().along(y, predictions, ends)
        origin = np.float64(y[0]) if self._origin is None else self._origin
        rows, mean = self.rows, self._mean
        error, spread = self._error.value, self._spread.value
        self.add(y, predictions)
        n, at = np.array(ends), np.array(ends) - 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            targets = np.asarray(y, dtype=np.float64) - origin
            center = targets.mean()
            sums = np.cumsum(targets - center)[at]
            within = np.cumsum((targets - center) ** 2)[at] - sums**2 / n
            apart = center + sums / n - mean
            spreads = spread + np.maximum(within, 0.0) + apart**2 * (rows * n / (rows + n))
            errors = error + np.cumsum(_squares(y, predictions))[at]
            exact = np.where(errors == 0, 1.0, 0.0)
            values = np.where(spreads > 0, 1.0 - errors / spreads, exact)
        found: list[float] = np.where(rows + n < 2, np.nan, values).tolist()
        return [*found[:-1], self.value] if ends[-1] == len(y) else found

    def _join(self, n: int, mean: float | Array) -> None:
        """Add the spread between the means of n rows and of all previous rows; update the mean."""
        total = self.rows + n
        apart = mean - self._mean
        self._spread.add(apart**2 * (self.rows * n / total))
        self._mean = self._mean + apart * (n / total)
        self.rows = total

    @property
    def value(self) -> float:
        """R² over all rows so far; nan for fewer than two."""
        if self.rows < 2:
            return np.nan
        error, spread = self._error.value, self._spread.value
        if isinstance(error, float) and isinstance(spread, float):  # one output
            return 1.0 - error / spread if spread > 0 else float(error == 0)
        varied = spread > 0
        with np.errstate(invalid="ignore", over="ignore"):
            share = 1.0 - error / np.where(varied, spread, 1.0)
        return float(np.mean(np.where(varied, share, np.where(error == 0, 1.0, 0.0))))


def _right(y: ArrayLike, predictions: ArrayLike) -> Array:
    """Return whether each prediction is correct, shape (n,)."""
    targets, predicted = np.ravel(np.asarray(y)), np.ravel(np.asarray(predictions))
    if targets.shape != predicted.shape:
        raise ShapeError(
            f"`predictions` must contain {len(targets)} labels, one for each row of "
            f"`y`, got {len(predicted)}. Pass one prediction for each target.",
            "Metric.add",
        )
    if (targets.dtype.kind in "US") != (predicted.dtype.kind in "US"):
        targets = targets.astype(object)  # text arrays can only be compared with text
    right: Array = np.asarray(targets == predicted, dtype=bool)
    return right


class Accuracy(Mean):
    """The fraction of correct predictions.

    Examples
    --------
    >>> Accuracy().add(["a", "b", "b"], [None, "b", "b"]).value
    0.6666666666666666
    """

    label = "Accuracy"
    better = "higher"
    unit = ""

    @staticmethod
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        return _right(y, predictions).astype(np.float64)


class MeanZeroOneLoss(Mean):
    """The notes' (1) with the 0/1 loss: the fraction of wrong predictions.

    Examples
    --------
    >>> MeanZeroOneLoss().add(["a", "b"], [None, "b"]).value
    0.5
    """

    label = "Mean 0/1 loss"
    better = "lower"
    unit = ""

    @staticmethod
    def _loss(y: ArrayLike, predictions: ArrayLike) -> Floats:
        return (~_right(y, predictions)).astype(np.float64)


class ZeroOneLoss(MeanZeroOneLoss):
    """The notes' (2) with the 0/1 loss: the number of wrong predictions.

    Examples
    --------
    >>> ZeroOneLoss().add(["a", "b"], [None, "a"]).value
    2.0
    """

    label = "Mistakes"
    unit = "rows"

    @staticmethod
    def _of(total: Any, rows: int) -> float:
        del rows
        return float(total)

    @property
    def value(self) -> float:
        """The number of wrong predictions so far."""
        return self._of(self._total.value, self.rows)


class MacroF1(Metric):
    """F1 score, averaged over all classes that were a target or a prediction.

    New classes may occur at any time. The value equals that of scikit-learn's
    ``f1_score(average="macro", zero_division=0)``.

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
        self._either: Counter[Any] = Counter()  # number of targets plus number of predictions

    def add(self, y: ArrayLike, predictions: ArrayLike) -> Self:
        """Add rows."""
        right = _right(y, predictions)
        targets = np.ravel(np.asarray(y))
        self.rows += len(targets)
        self._right.update(targets[right].tolist())
        self._either.update(targets.tolist())
        self._either.update(np.ravel(np.asarray(predictions)).tolist())
        del self._either[None]  # None is not a class
        return self

    def merge(self, other: Self) -> Self:
        """Add all rows of another metric of the same class."""
        self.rows += other.rows
        self._right.update(other._right)
        self._either.update(other._either)
        return self

    @property
    def value(self) -> float:
        """Mean over the classes so far; nan before the first row."""
        if not self._either:
            return np.nan
        scores = [2 * self._right[label] / count for label, count in self._either.items()]
        return float(np.mean(scores))


register(
    Role.METRIC,
    MAE,
    R2,
    RMSE,
    Accuracy,
    MacroF1,
    MeanSquaredLoss,
    MeanZeroOneLoss,
    SquaredLoss,
    Total,
    ZeroOneLoss,
)
