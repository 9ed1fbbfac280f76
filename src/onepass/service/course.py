"""Course: the errors of a learner along its stream: their mean, their curve, drift in them."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.evaluate.curves import Tally
from onepass.evaluate.metrics import METRICS
from onepass.service.guards import Guards

__all__ = ["Course"]

_NAMES = {"regression": ("mae", "mean absolute error"), "classification": ("accuracy", "accuracy")}
_POINTS = 400  # of a curve; of more, one in so many rows stays
_BEYOND = 6.0  # times the usual error: a row that contradicts what was known


class Course:
    """What is counted of rows that were learned; for one thread at a time.

    Parameters
    ----------
    task : {"regression", "classification"}
    window : int
        Rows that the recent error is about.
    detectors : mapping of str to detector
        As :func:`onepass.integrations.river` gives them; they are told of each row's error.

    Attributes
    ----------
    rows : int
        Rows whose error was counted.
    contradictions : int
        Of these, how many were beyond six times the root of the mean square of all before them.
    guards : Guards
        The detectors, and what they have found.
    """

    def __init__(self, task: str, window: int, detectors: Mapping[str, Any]) -> None:
        self.task, self.window = task, window
        self._metric, self._name = _NAMES[task]
        self._tally = Tally({self._metric: METRICS[task][self._metric]}, window)
        self.guards = Guards(detectors)
        self._errors: deque[Array] = deque()  # of the last rows: with their sign, and without it
        self._kept = 0
        self._squares = 0.0
        self.rows = self.contradictions = 0
        self._curve: list[list[Any]] = []
        self._every = self._next = 1

    def add(self, told: list[tuple[Array, Array]]) -> None:
        """Count rows: what is alike together, up to where a point of the curve is due.

        Parameters
        ----------
        told : list of tuple of ndarray
            The answers of some rows, and what was said of them before; of others; and so on.
        """
        for run in self._runs(told):
            self._take(run)

    def error(self) -> dict[str, Any]:
        """The prequential error: over all rows, over the last, and along the stream."""
        return {
            "name": self._name,
            "all": self._tally.overall[self._metric],
            "window": self._tally.recent[self._metric],
            "window_rows": min(self.window, self.rows),
            "curve": [list(point) for point in self._curve],
        }

    def last(self) -> Array:
        """The errors of the last rows, answer less what was said; 1 for a mistake, in classes."""
        errors: Array = self._last()[0]
        return errors

    def state(self) -> dict[str, Any]:
        """All that goes on after a restart, as plain values and arrays."""
        return {
            "task": self.task, "window": self.window, "rows": self.rows,
            "tally": self._tally.state(), "errors": self._last(), "squares": self._squares,
            "contradictions": self.contradictions, "curve": list(self._curve),
            "every": self._every, "drift": list(self.guards.drift), "alarms": self.guards.alarms,
        }  # fmt: skip

    def restore(self, state: Any) -> None:
        """Go on from a state; the detectors, which begin anew, see its last rows.

        Parameters
        ----------
        state : dict
            As ``state`` gave it.
        """
        self._tally.restore(state["tally"], "gauges")
        self.rows, self._squares = state["rows"], state["squares"]
        errors = state["errors"]
        if errors.ndim == 1:  # as the first versions wrote them
            errors = np.stack([errors, np.abs(errors)])
        self._errors, self._kept = deque([errors]), errors.shape[1]
        self.contradictions, self.guards.alarms = state["contradictions"], state["alarms"]
        self._curve, self._every = state["curve"], state["every"]
        self._next = (self.rows // self._every + 1) * self._every
        self.guards.drift.extend(state["drift"])
        self.guards.recall(errors[1])

    # -- what stands behind them ---------------------------------------------------------------

    def _runs(self, told: list[tuple[Array, Array]]) -> Iterator[list[tuple[Array, Array]]]:
        """What is counted together; each is counted before the next is asked for."""
        run: list[tuple[Array, Array]] = []
        rows, kind = self.rows, None
        for pair in told:
            y, said = pair
            before, kind = kind, (y.dtype.kind, said.dtype.kind, y.shape[1:], said.shape[1:])
            if run and kind != before:
                yield run
                run = []
            run.append(pair)
            rows += len(y)
            if rows >= self._next:
                yield run
                run = []
        if run:
            yield run

    def _take(self, run: list[tuple[Array, Array]]) -> None:
        y, said = run[0] if len(run) == 1 else (np.concatenate(each) for each in zip(*run))  # noqa: B905
        self._tally.add(y, said)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is far from what is
            off = np.asarray(y - said if self.task == "regression" else said != y, dtype=np.float64)
            errors = np.stack([off, np.abs(off)])
            if off.ndim > 1:  # of several answers, which may be amiss in opposite ways
                errors = errors.reshape(2, len(y), -1).mean(axis=2)
            self._weigh(errors[1])
        self._keep(errors)
        self.guards.add(self.rows, errors[1])
        self.rows += len(y)
        if self.rows >= self._next:
            self._point()

    def _weigh(self, errors: Array) -> None:
        """Count those that are far beyond all before them."""
        squares = errors * errors
        total = np.cumsum(np.concatenate(([self._squares], squares)))
        if self.task == "regression":
            rows = np.arange(self.rows, self.rows + len(errors))  # before each of them
            far = (rows >= self.window) & (squares * rows > _BEYOND**2 * total[:-1])
            self.contradictions += int(np.count_nonzero(far))
        self._squares = float(total[-1])

    def _keep(self, errors: Array) -> None:
        self._errors.append(errors[:, -self.window :])
        self._kept += self._errors[-1].shape[1]
        while self._kept - self._errors[0].shape[1] >= self.window:
            self._kept -= self._errors.popleft().shape[1]

    def _last(self) -> Array:
        """The errors of the last rows (2, n): with their sign, and without it."""
        if not self._errors:
            return np.empty((2, 0))
        return np.concatenate(self._errors, axis=1)[:, -self.window :]

    def _point(self) -> None:
        values = (self._tally.overall[self._metric], self._tally.recent[self._metric])
        self._curve.append([self.rows, *values])
        if len(self._curve) > _POINTS:
            while self.rows // self._every > _POINTS // 2:  # blocks may be longer than that
                self._every *= 2
            last = {(point[0] - 1) // self._every: point for point in self._curve}
            self._curve = list(last.values())
        self._next = (self.rows // self._every + 1) * self._every
