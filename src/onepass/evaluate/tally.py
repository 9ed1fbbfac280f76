"""What one model said, summed up: over the whole stream, and over its last rows."""

from collections import deque
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.evaluate.curve import Values
from onepass.evaluate.metrics import Metric, kept
from onepass.serialization.archive import damaged

__all__ = ["Tally"]


class Tally:
    """The metrics of one model.

    Parameters
    ----------
    metrics : dict of str to type
        Name -> class of metric.
    window : int, optional
        How many of the last rows ``recent`` is about. Their answers are kept: O(window) memory.
    """

    def __init__(self, metrics: dict[str, type[Metric]], window: int | None = None) -> None:
        self._kinds = metrics
        self._metrics = {name: kind() for name, kind in metrics.items()}
        self._window = window
        self._last: deque[tuple[Array, Array]] = deque()
        self._kept = 0

    def add(self, y: Array, said: Array) -> None:
        """Take rows.

        Parameters
        ----------
        y : ndarray of shape (n,) or (n, c)
            The answers.
        said : ndarray of the shape of y
            What was said of the same rows.
        """
        for metric in self._metrics.values():
            metric.add(y, said)
        if self._window is not None:
            # copies: a slice would keep its whole block alive, or see it written over
            self._last.append((y[-self._window :].copy(), said[-self._window :].copy()))
            self._kept += len(self._last[-1][0])
            self._forget(self._kept - self._window)

    def _forget(self, excess: int) -> None:
        """Let go of the oldest rows beyond the window."""
        while excess > 0:
            y, said = self._last.popleft()
            if len(y) > excess:
                self._last.appendleft((y[excess:], said[excess:]))
            gone = min(len(y), excess)
            self._kept -= gone
            excess -= gone

    @property
    def overall(self) -> Values:
        """The metrics over all rows so far."""
        return _plain(self._metrics)

    @property
    def recent(self) -> Values:
        """The metrics over exactly the last ``window`` rows, or all where there are fewer."""
        fresh = {name: kind() for name, kind in self._kinds.items()}
        if self._last:
            y = np.concatenate([y for y, _ in self._last])
            said = np.concatenate([said for _, said in self._last])
            self._last = deque([(y, said)])  # one piece is smaller than many
            for metric in fresh.values():
                metric.add(y, said)
        return _plain(fresh)

    def state(self) -> dict[str, Any]:
        """All of it as plain values and arrays."""
        return {
            "metrics": {name: kept.said(metric) for name, metric in self._metrics.items()},
            "last": [[y, said] for y, said in self._last],
        }

    def restore(self, state: Any, place: str) -> None:
        """Go on from what ``state`` gave.

        Parameters
        ----------
        state : dict
            From whatever source.
        place : str
            Where it was read, for messages.

        Raises
        ------
        CheckpointError, LookupError, TypeError
            If it is of a tally with other metrics, or no such thing.
        """
        if state["metrics"].keys() != self._metrics.keys():
            raise damaged(place, "it has other metrics than those of the run")
        for name, kind in self._kinds.items():
            self._metrics[name] = kept.heard(kind, state["metrics"][name], place)
        self._last = deque((np.asarray(y), np.asarray(said)) for y, said in state["last"])
        if any(y.shape != said.shape or not y.ndim for y, said in self._last):
            raise damaged(place, "what was said last is not as the answers")
        self._kept = sum(len(y) for y, _ in self._last)


def _plain(metrics: dict[str, Any]) -> Values:
    """Values as JSON and == can hold them: nan is None."""
    values = {name: float(metric.value) for name, metric in metrics.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}
