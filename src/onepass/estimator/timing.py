"""Timing: learners that want to know when each row happened."""

from abc import ABC, abstractmethod
from typing import Any

from onepass.errors import Array, Floats, ParameterError

__all__ = ["Timing"]


class Timing(ABC):
    """What stands behind the argument ``time`` of the verbs; most learners need none."""

    @abstractmethod
    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        """Learn rows one after the other; return what was said of each before, (n, c)."""

    @property
    def uses_time(self) -> bool:
        """Whether the verbs that learn need the time of each row."""
        return False

    def _when(self, time: Any, n: int, where: str) -> Any:
        """The times of n rows, (n,), checked; None where none are needed."""
        del n
        if time is None:
            return None
        raise ParameterError(
            f"{where}: `time` must be left out unless the learner forgets by time, got it with one "
            "that does not. Leave it out, or set a rule such as "
            "RLSRegressor(forgetting=op.forgetting.Bounded(half_life='1h'))."
        )

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Any
    ) -> Floats:
        """Learn rows that happened at these times."""
        del time
        return self._learn(X, Y, s, known)
