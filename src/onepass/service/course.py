"""Course: the errors of a learner along its stream: their mean, their curve, drift in them."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onepass.evaluate.metrics import METRICS
from onepass.evaluate.tally import Tally
from onepass.types import Array

__all__ = ["Course"]

_NAMES = {"regression": ("mae", "mean absolute error"), "classification": ("accuracy", "accuracy")}
_POINTS = 400  # of a curve; of more, one in so many rows stays
_MARKS = 100  # the last ones
_BEYOND = 6.0  # times the usual error: a row that contradicts what was known


class Course:
    """What is counted of rows that were learned; for one thread at a time.

    Parameters
    ----------
    task : {"regression", "classification"}
    window : int
        Rows that the recent error is about.
    detectors : mapping of str to detector
        As :func:`onepass.compat.detectors` gives them; they are told of each row's error.

    Attributes
    ----------
    rows : int
        Rows whose error was counted.
    contradictions : int
        Of these, how many were beyond six times the root of the mean square of all before them.
    alarms : int
        How often a detector has found drift.
    drift : deque of dict
        The last of these.
    """

    def __init__(self, task: str, window: int, detectors: Mapping[str, Any]) -> None:
        self.task, self.window = task, window
        self._metric, self._name = _NAMES[task]
        self._tally = Tally({self._metric: METRICS[task][self._metric]}, window)
        self._detectors = dict(detectors)
        self._errors: deque[Array] = deque()  # of the last rows, as the detectors are told them
        self._kept = 0
        self._squares = 0.0
        self.rows = self.contradictions = self.alarms = 0
        self.drift: deque[dict[str, Any]] = deque(maxlen=_MARKS)
        self._curve: list[list[Any]] = []
        self._every = self._next = 1

    def add(self, told: list[tuple[Array, Array]]) -> None:
        """Count rows: what is alike together, up to where a point of the curve is due.

        Parameters
        ----------
        told : list of tuple of ndarray
            The answers of some rows, and what was said of them before; of others; and so on.

        Raises
        ------
        Exception
            Whatever a detector raised first; all rows were counted.
        """
        wrong: Exception | None = None
        for run in self._runs(told):
            try:
                self._take(run)
            except Exception as failed:  # noqa: BLE001  the other rows are to be counted too
                wrong = wrong or failed
        if wrong is not None:
            raise wrong

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
        """The errors of the last rows, as the detectors are told them."""
        return np.concatenate(self._errors)[-self.window :] if self._errors else np.empty(0)

    def state(self) -> dict[str, Any]:
        """All that goes on after a restart, as plain values and arrays."""
        return {
            "task": self.task, "window": self.window, "rows": self.rows,
            "tally": self._tally.state(), "errors": self.last(), "squares": self._squares,
            "contradictions": self.contradictions, "curve": list(self._curve),
            "every": self._every, "drift": list(self.drift), "alarms": self.alarms,
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
        self._errors = deque([state["errors"]])
        self._kept = len(state["errors"])
        self.contradictions, self.alarms = state["contradictions"], state["alarms"]
        self._curve, self._every = state["curve"], state["every"]
        self._next = (self.rows // self._every + 1) * self._every
        self.drift.extend(state["drift"])
        for error in np.abs(state["errors"]).tolist():
            for detector in self._detectors.values():
                detector.update(error)

    # -- what stands behind them ---------------------------------------------------------------

    def _runs(self, told: list[tuple[Array, Array]]) -> Iterator[list[tuple[Array, Array]]]:
        """What is counted together; each is counted before the next is asked for."""
        run: list[tuple[Array, Array]] = []
        rows = self.rows
        for pair in told:
            if run and not _alike(run[0], pair):
                yield run
                run = []
            run.append(pair)
            rows += len(pair[0])
            if rows >= self._next:
                yield run
                run = []
        if run:
            yield run

    def _take(self, run: list[tuple[Array, Array]]) -> None:
        y, said = run[0] if len(run) == 1 else (np.concatenate(each) for each in zip(*run))  # noqa: B905
        self._tally.add(y, said)
        off = np.asarray(y - said if self.task == "regression" else said != y, dtype=np.float64)
        if off.ndim > 1:
            off = off.reshape(len(y), -1).mean(axis=1)
        self._weigh(off)
        self.rows += len(y)
        self._keep(off)
        if self.rows >= self._next:
            self._point()
        self._detect(off)

    def _weigh(self, off: Array) -> None:
        """Count those that are far beyond all before them."""
        with np.errstate(over="ignore"):  # what is not finite is far from what is
            squares = off * off
            total = np.cumsum(np.concatenate(([self._squares], squares)))
            if self.task == "regression":
                rows = np.arange(self.rows, self.rows + len(off))  # before each of them
                far = (rows >= self.window) & (squares * rows > _BEYOND**2 * total[:-1])
                self.contradictions += int(np.count_nonzero(far))
            self._squares = float(total[-1])

    def _keep(self, off: Array) -> None:
        self._errors.append(off[-self.window :])
        self._kept += len(self._errors[-1])
        while self._kept - len(self._errors[0]) >= self.window:
            self._kept -= len(self._errors.popleft())

    def _detect(self, off: Array) -> None:
        if not self._detectors:
            return
        for i, error in enumerate(np.abs(off).tolist()):
            for name, detector in self._detectors.items():
                detector.update(error)
                if detector.drift_detected:
                    self.alarms += 1
                    rows = self.rows - len(off) + i + 1
                    self.drift.append({"rows": rows, "at": time.time(), "detector": name})

    def _point(self) -> None:
        values = (self._tally.overall[self._metric], self._tally.recent[self._metric])
        self._curve.append([self.rows, *values])
        if len(self._curve) > _POINTS:
            while self.rows // self._every > _POINTS // 2:  # blocks may be longer than that
                self._every *= 2
            last = {(point[0] - 1) // self._every: point for point in self._curve}
            self._curve = list(last.values())
        self._next = (self.rows // self._every + 1) * self._every


def _alike(one: tuple[Array, Array], other: tuple[Array, Array]) -> bool:
    return all(
        (a.dtype.kind, a.shape[1:]) == (b.dtype.kind, b.shape[1:])
        for a, b in zip(one, other, strict=True)
    )
