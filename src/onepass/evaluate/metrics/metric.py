"""What a metric is: shown answers and sayings in pieces, it knows its value over all of them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onepass.errors import Floats
from onepass.evaluate.metrics.total import Total

__all__ = ["Mean", "Metric", "averaged"]


def averaged(value: Any) -> float:
    """The mean over the outputs; of one output, its own value."""
    return float(value) if isinstance(value, float) else float(np.mean(value))


class Metric(ABC):
    """A number that sums up what was said of the rows so far.

    Attributes
    ----------
    label : str
        The name that tables and figures show.
    better : {"lower", "higher"}
        Which way is better.
    unit : {"", "y", "y²", "rows"}
        The unit of the value: none, that of the answers, its square, or a count of rows.
    rows : int
        Rows added so far.
    """

    label: ClassVar[str]
    better: ClassVar[Literal["lower", "higher"]]
    unit: ClassVar[str]

    def __init__(self) -> None:
        self.rows = 0

    @abstractmethod
    def add(self, y: Any, said: Any) -> Self:
        """Take more rows.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, c)
            The answers.
        said : array-like of the shape of y
            What was said of the same rows.

        Returns
        -------
        self
        """

    @property
    @abstractmethod
    def value(self) -> float:
        """The metric over all rows so far; nan where it is not defined."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Take all rows that another metric of the same class has seen.

        Parameters
        ----------
        other : Metric
            It is not changed.

        Returns
        -------
        self
        """


class Mean(Metric):
    """The mean over rows of a loss of each row, for each output; its sum is kept exactly."""

    def __init__(self) -> None:
        super().__init__()
        self._total = Total()

    @staticmethod
    @abstractmethod
    def _loss(y: Any, said: Any) -> Floats:
        """The loss of each row and output, shape (n,) or (n, c)."""

    def add(self, y: Any, said: Any) -> Self:
        """Take more rows."""
        loss = self._loss(y, said)
        self.rows += loss.shape[0]
        self._total.add(np.add.reduce(loss))
        return self

    def merge(self, other: Self) -> Self:
        """Take all rows that another metric of the same class has seen."""
        self.rows += other.rows
        self._total.merge(other._total)
        return self

    @property
    def value(self) -> float:
        """The mean over all rows so far; nan before the first."""
        return averaged(self._total.value / self.rows) if self.rows else np.nan
