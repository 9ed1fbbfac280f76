"""Continual measured: the measures of one model, or of each by its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from onepass.evaluate.continual_score import ContinualScore

__all__ = ["Measured"]


class Measured(ABC):
    """Measures of models: numbers and arrays of one, dicts of them by name of several."""

    @property
    @abstractmethod
    def scores(self) -> Mapping[str, ContinualScore]:
        """All that came of each model, by its name."""

    @property
    def accuracy_matrix(self) -> Any:
        """R, (I, J): after experience i on the rows to test of task j; mean over the seeds."""
        return self._each("accuracy_matrix")

    @property
    def error_matrix(self) -> Any:
        """The same, of a metric that is an error."""
        return self._each("accuracy_matrix")

    @property
    def average_accuracy(self) -> Any:
        """Over all tasks after the last experience."""
        return self._each("average_accuracy")

    @property
    def average_error(self) -> Any:
        """The same, of a metric that is an error."""
        return self._each("average_accuracy")

    @property
    def average_incremental_accuracy(self) -> Any:
        """Over the tasks so far after each experience, and then over experiences."""
        return self._each("average_incremental_accuracy")

    @property
    def forgetting(self) -> Any:
        """What was lost of the best that was known of a task."""
        return self._each("forgetting")

    @property
    def backward_transfer(self) -> Any:
        """What later tasks brought to earlier ones, or took from them where it is negative."""
        return self._each("backward_transfer")

    @property
    def forward_transfer(self) -> Any:
        """What earlier tasks brought to later ones before these came."""
        return self._each("forward_transfer")

    def _each(self, what: str) -> Any:
        found = {name: getattr(score, what) for name, score in self.scores.items()}
        return next(iter(found.values())) if len(found) == 1 else found
