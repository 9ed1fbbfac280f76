"""Gauges: what a served learner is doing, for the page and for Prometheus.

They are read by some threads and written by others: numbers are replaced, and lists that grow are
bounded. What is learned is counted once some has come together, and before any of it is read: to
count single rows each by itself takes as long as to learn them.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from onepass.errors import Array
from onepass.service.blocks import Block
from onepass.service.course import Course

__all__ = ["Gauges", "task_of"]

_BLOCKS, _ROWS = 256, 4096  # so many are counted together, or those of a second if they are fewer
_SECONDS = 120  # of the rates' curve
_TIMES = 2048  # durations that are kept
_REFUSED = 20  # the last ones


def task_of(learner: Any) -> str:
    """What a learner or Pipeline does: "classification" or "regression"."""
    return "classification" if is_classifier(learner) else "regression"


class Gauges:
    """Counts, errors, rates and durations of one learner.

    Parameters
    ----------
    learner : learner or Pipeline
    window : int, default 1000
        Rows that the recent error is about.
    detectors : mapping of str to detector, optional
        As :func:`onepass.integrations.river` gives them; they are told of each row's error.
    """

    def __init__(
        self, learner: Any, *, window: int = 1000, detectors: Mapping[str, Any] | None = None
    ) -> None:
        self._course = Course(task_of(learner), window, detectors or {})
        self._counting = Lock()  # of the course; held for longer than the other
        self._lock = Lock()
        self._told: list[tuple[Array, Array]] = []  # that are still to be counted
        self._told_rows = self._since = 0
        self._seen = 0
        self._resumed = False  # else it is not known yet what came before
        self.refused: deque[dict[str, Any]] = deque(maxlen=_REFUSED)
        self.rows_refused = 0
        self.predicted_rows = 0
        self._rates: deque[list[int]] = deque(maxlen=_SECONDS + 1)
        self._times = {verb: deque[float](maxlen=_TIMES) for verb in ("learn", "predict")}
        self._took = dict.fromkeys(self._times, (0, 0.0))

    # -- what happens --------------------------------------------------------------------------

    def learned(self, block: Block, said: Any) -> Callable[[], object] | None:
        """Rows were learned; ``said`` was said of them before.

        Returns
        -------
        count : callable or None
            Counts what has come together, if it is much: a watcher's work that is left.
        """
        if block.y is None or not len(block):
            return None
        said = np.asarray(said)
        y = block.y.reshape(said.shape)  # labels that came as a column
        with self._lock:
            self._told.append((y, said))
            self._told_rows += len(y)
            if not self._resumed:
                return None
            second = self._count(1, len(y))
            if len(self._told) == 1:
                self._since = second
            many = len(self._told) >= _BLOCKS or self._told_rows >= _ROWS
        return self._counted if many or second > self._since else None

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
        self._counted()
        with self._counting, self._lock:
            return {
                **self._course.state(), "seen": self._seen, "refused": list(self.refused),
                "rows_refused": self.rows_refused, "predicted_rows": self.predicted_rows,
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
        counted = 0  # of the rows that were told again
        if state is not None and self._fits(state, seen):
            self._course.restore(state)
            self.refused.extend(state["refused"])
            self.rows_refused = state["rows_refused"]
            self.predicted_rows = state["predicted_rows"]
            counted = max(int(state["seen"]) - (seen - self._told_rows), 0)
        again, self._told = self._told, []
        for y, said in again:
            if counted < len(y):
                self._told.append((y[counted:], said[counted:]))
            counted = max(counted - len(y), 0)
        self._seen = seen - sum(len(y) for y, _ in self._told)
        self._resumed = True
        self._counted()

    def _fits(self, state: Any, seen: int) -> bool:
        try:
            same = (state["task"], state["window"]) == (self._course.task, self._course.window)
            whole = state.keys() >= self.state().keys()  # another version may have other fields
            return same and whole and int(state["seen"]) <= seen
        except (AttributeError, LookupError, TypeError, ValueError):
            return False

    # -- what is told --------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows whose error was counted."""
        return self._counted().rows

    @property
    def seen(self) -> int:
        """Rows that the learner had learned when the last was counted, those before these too."""
        self._counted()
        return self._seen

    @property
    def contradictions(self) -> int:
        """Rows whose error was far beyond those before them."""
        return self._counted().contradictions

    @property
    def alarms(self) -> int:
        """How often a detector has found drift."""
        return self._counted().guards.alarms

    @property
    def drift(self) -> list[dict[str, Any]]:
        """Where, and when that was noticed, the last times, the first of them first."""
        course = self._counted()
        with self._counting:
            return list(course.guards.drift)

    @property
    def trouble(self) -> str | None:
        """Which detectors have failed and why; None if all of them watch."""
        course = self._counted()
        with self._counting:
            return course.guards.trouble

    def watching(self) -> dict[str, bool]:
        """Whether each detector watches, by its name; one that has failed does not."""
        course = self._counted()
        with self._counting:
            return course.guards.watching()

    def error(self) -> dict[str, Any]:
        """The prequential error: over all rows, over the last, and along the stream."""
        course = self._counted()
        with self._counting:
            return course.error()

    def innovations(self) -> dict[str, float]:
        """Mean and deviation of what was said amiss in the last rows: of mistakes, in classes."""
        course = self._counted()
        with self._counting:
            last = course.last()
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

    def _counted(self) -> Course:
        """The course, once all that was told by now is counted."""
        with self._counting:
            if self._resumed:
                with self._lock:
                    told, self._told, self._told_rows = self._told, [], 0
                if told:
                    self._seen += sum(len(y) for y, _ in told)
                    self._course.add(told)
            return self._course

    def _time(self, verb: str, seconds: float) -> None:
        self._times[verb].append(seconds)
        count, so_far = self._took[verb]
        self._took[verb] = (count + 1, so_far + seconds)

    def _count(self, column: int, rows: int) -> int:
        """Count rows of this second, which is returned."""
        second = int(time.monotonic())
        if not self._rates or self._rates[-1][0] != second:
            self._rates.append([second, 0, 0])
        self._rates[-1][column] += rows
        return second
