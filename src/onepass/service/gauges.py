"""Gauges: what a served learner is doing, for the page and for Prometheus.

They are read by one thread and written by others: numbers are replaced, and lists that grow are
bounded.
"""

import time
from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from onepass.evaluate.metrics import METRICS
from onepass.evaluate.tally import Tally
from onepass.service.blocks import Block
from onepass.types import Array

__all__ = ["Gauges"]

_NAMES = {"regression": ("mae", "mean absolute error"), "classification": ("accuracy", "accuracy")}
_POINTS = 400  # of a curve; of more, one in so many rows stays
_SECONDS = 120  # of the rates' curve
_TIMES = 2048  # durations that are kept
_REFUSED = 20  # the last ones
_MARKS = 100  # the last ones
_BEYOND = 6.0  # times the usual error: a row that contradicts what was known


class Gauges:
    """Counts, errors, rates and durations of one learner.

    Parameters
    ----------
    learner : learner or Pipeline
    window : int, default 1000
        Rows that the recent error is about.
    detectors : mapping of str to detector, optional
        As :func:`onepass.compat.detectors` gives them; they are told of each row's error.
    """

    def __init__(
        self, learner: Any, *, window: int = 1000, detectors: Mapping[str, Any] | None = None
    ) -> None:
        self.task = "classification" if is_classifier(learner) else "regression"
        self.window = window
        self._errors: deque[Array] = deque()  # of the last rows, as the detectors are told them
        self._kept = 0
        self._squares = 0.0
        self.contradictions = 0
        metric, self.error_name = _NAMES[self.task]
        self._metric = metric
        self._tally = Tally({metric: METRICS[self.task][metric]}, window)
        self._detectors = dict(detectors or {})
        self._lock = Lock()
        self._again: (
            list[tuple[Array, Array]] | None
        ) = []  # told before it is known what came before
        self.rows = 0
        """Rows whose error was counted."""
        self.seen = 0
        """Rows that the learner had learned when the last was counted, those before these too."""
        self._curve: list[list[Any]] = []
        self._every, self._next = 1, 1
        self.drift: deque[dict[str, Any]] = deque(maxlen=_MARKS)
        self.alarms = 0
        self.refused: deque[dict[str, Any]] = deque(maxlen=_REFUSED)
        self.rows_refused = 0
        self.predicted_rows = 0
        self._rates: deque[list[int]] = deque(maxlen=_SECONDS + 1)
        self._times = {verb: deque[float](maxlen=_TIMES) for verb in ("learn", "predict")}
        self._took = dict.fromkeys(self._times, (0, 0.0))

    # -- what happens --------------------------------------------------------------------------

    def learned(self, block: Block, said: Any) -> None:
        """Rows were learned; ``said`` was said of them before."""
        if block.y is None or not len(block):
            return
        said = np.asarray(said)
        y = block.y.reshape(said.shape)  # labels that came as a column
        if self._again is not None:
            self._again.append((y, said))
            return
        with self._lock:
            self._count(1, len(block))
            self._take(y, said)

    def predicted(self, rows: int, seconds: float) -> None:
        """Rows were answered, in so many seconds."""
        with self._lock:
            self.predicted_rows += rows
            self._count(2, rows)
            self._time("predict", seconds)

    def answered(self, seconds: float) -> None:
        """A request to learn was answered, after so many seconds."""
        with self._lock:
            self._time("learn", seconds)

    def refuse(self, rows: int, why: str) -> None:
        """Rows were refused."""
        with self._lock:
            self.rows_refused += rows
            self.refused.append({"at": time.time(), "rows": rows, "why": why[:1000]})

    # -- over restarts -------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that goes on after a restart, as plain values and arrays."""
        with self._lock:
            return {
                "task": self.task, "window": self.window, "seen": self.seen, "rows": self.rows,
                "tally": self._tally.state(), "errors": self._last(), "squares": self._squares,
                "contradictions": self.contradictions, "curve": list(self._curve),
                "every": self._every, "drift": list(self.drift), "alarms": self.alarms,
                "refused": list(self.refused), "rows_refused": self.rows_refused,
                "predicted_rows": self.predicted_rows,
            }  # fmt: skip

    def resume(self, state: Any, seen: int) -> None:
        """Go on from a state, and count what was learned again on opening, as far as it is new.

        Parameters
        ----------
        state : dict or None
            As ``state`` gave it, some time before; another is left out.
        seen : int
            Rows that the learner has learned in all.
        """
        again, self._again = self._again or [], None
        self.seen = seen - sum(len(y) for y, _ in again)
        since = self.seen
        if state is not None and self._fits(state, seen):
            self._restore(state)
            since = max(since, int(state["seen"]))
        with self._lock:
            for y, said in again:
                skipped = min(max(since - self.seen, 0), len(y))
                self.seen += skipped
                if skipped < len(y):
                    self._take(y[skipped:], said[skipped:])

    def _fits(self, state: Any, seen: int) -> bool:
        try:
            same = (state["task"], state["window"]) == (self.task, self.window)
            whole = state.keys() >= self.state().keys()  # another version may have other fields
            return same and whole and int(state["seen"]) <= seen
        except (AttributeError, LookupError, TypeError, ValueError):
            return False

    def _restore(self, state: Any) -> None:
        """All of a state but where it ended; the detectors, which begin anew, see its last rows."""
        self._tally.restore(state["tally"], "gauges")
        self.rows, self._squares = state["rows"], state["squares"]
        self._errors = deque([state["errors"]])
        self._kept = len(state["errors"])
        self.contradictions, self.alarms = state["contradictions"], state["alarms"]
        self._curve, self._every = state["curve"], state["every"]
        self._next = (self.rows // self._every + 1) * self._every
        self.drift.extend(state["drift"])
        self.refused.extend(state["refused"])
        self.rows_refused = state["rows_refused"]
        self.predicted_rows = state["predicted_rows"]
        for error in np.abs(state["errors"]).tolist():
            for detector in self._detectors.values():
                detector.update(error)

    # -- what is told --------------------------------------------------------------------------

    def error(self) -> dict[str, Any]:
        """The prequential error: over all rows, over the last, and along the stream."""
        with self._lock:
            return {
                "name": self.error_name,
                "all": self._tally.overall[self._metric],
                "window": self._tally.recent[self._metric],
                "window_rows": min(self.window, self.rows),
                "curve": [list(point) for point in self._curve],
            }

    def innovations(self) -> dict[str, float]:
        """Mean and deviation of what was said amiss in the last rows: of mistakes, in classes."""
        with self._lock:
            last = self._last()
        return {"mean": float(last.mean()), "deviation": float(last.std())} if len(last) else {}

    def rates(self) -> dict[str, Any]:
        """Rows a second: over the last ten whole seconds, and second by second."""
        now = int(time.monotonic())
        with self._lock:
            found = {second: (learned, said) for second, learned, said in self._rates}
        last = [found.get(now - back, (0, 0)) for back in range(1, 11)]
        first = min(max(now - min(found, default=now), 1), _SECONDS)
        curve = [[back, *found.get(now - back, (0, 0))] for back in range(first, 0, -1)]
        learned, predicted = (sum(each) / len(last) for each in zip(*last, strict=True))
        return {"learned": learned, "predicted": predicted, "curve": curve}

    def latency(self) -> dict[str, dict[str, float | None]]:
        """Seconds that requests took: the median and the 99th of a hundred."""
        found: dict[str, dict[str, float | None]] = {}
        with self._lock:
            last = {verb: np.array(kept) for verb, kept in self._times.items()}
        for verb, kept in last.items():
            times = kept if len(kept) else None
            found[verb] = {
                "p50": None if times is None else float(np.quantile(times, 0.5)),
                "p99": None if times is None else float(np.quantile(times, 0.99)),
            }
        return found

    def took(self) -> dict[str, tuple[int, float]]:
        """How many requests there were since the start, and their seconds in all."""
        with self._lock:
            return dict(self._took)

    # -- what stands behind them ---------------------------------------------------------------

    def _time(self, verb: str, seconds: float) -> None:
        self._times[verb].append(seconds)
        count, so_far = self._took[verb]
        self._took[verb] = (count + 1, so_far + seconds)

    def _take(self, y: Array, said: Array) -> None:
        self._tally.add(y, said)
        self.rows += len(y)
        self.seen += len(y)
        self._detect(self._weighed(y, said))
        if self.rows >= self._next:
            self._point()

    def _last(self) -> Array:
        """The errors of the last rows, as the detectors are told them."""
        return np.concatenate(self._errors)[-self.window :] if self._errors else np.empty(0)

    def _count(self, column: int, rows: int) -> None:
        second = int(time.monotonic())
        if not self._rates or self._rates[-1][0] != second:
            self._rates.append([second, 0, 0])
        self._rates[-1][column] += rows

    def _weighed(self, y: Array, said: Array) -> Array:
        """The errors of rows; those that are far beyond all before them are counted."""
        off = np.asarray(y - said if self.task == "regression" else said != y, dtype=np.float64)
        if off.ndim > 1:
            off = off.reshape(len(y), -1).mean(axis=1)
        before, squares = self.rows - len(y), float(off @ off)
        if self.task == "regression" and before >= self.window:
            far = _BEYOND**2 * self._squares / before
            if squares > far:  # else none of them is
                self.contradictions += int((off * off > far).sum())
        self._squares += squares
        self._errors.append(off[-self.window :])
        self._kept += len(self._errors[-1])
        while self._kept - len(self._errors[0]) >= self.window:
            self._kept -= len(self._errors.popleft())
        return off

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
