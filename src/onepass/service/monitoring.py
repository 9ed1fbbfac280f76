"""Metrics of served learners, for the page and for Prometheus, and drift detectors.

Some threads read metrics while others write them: numbers are replaced, and lists that grow are
bounded. Learned rows are counted in groups, and before a metric is read, because counting single
rows takes as long as learning them.

Drift detectors are objects of other libraries, which are updated with each error. One that raises
is switched off and reported as ``trouble``; the others continue.

Metrics are stored in a file beside the learner's, after each of its snapshots and at intervals.
When a learner is opened, the rows learned since the snapshot are counted again, except those that
the file already includes. Rows are counted twice or missed only if the process is killed between a
snapshot and the write that follows it. A metrics file that is damaged, missing or ahead of its
learner is ignored, and counting starts at zero.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from sklearn.base import is_classifier

from onepass.errors import OnepassError
from onepass.evaluate.curves import Tally
from onepass.evaluate.drift import counts_mistakes
from onepass.evaluate.metrics import METRICS
from onepass.serialization import archive
from onepass.serialization.atomic import replacing
from onepass.service.requests import Block
from onepass.types import Array, Floats

if TYPE_CHECKING:
    from river.base import BinaryDriftDetector, DriftDetector

    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["Course", "Diary", "Gauges", "Guards", "memory_of", "spectrum", "task_of"]


_MARKS = 100  # the last ones


class Guards:
    """Detectors at work; for one thread at a time.

    Parameters
    ----------
    detectors : mapping of str to detector
        As :func:`onepass.integrations.river` gives them.

    Attributes
    ----------
    alarms : int
        How often one has found drift.
    drift : deque of dict
        The last of these: ``rows``, counted from the first of all, ``detector``, and ``at``, in
        seconds since 1970, when that was noticed, which is up to a second after the row was
        learned, or when it was asked for.
    """

    def __init__(self, detectors: Mapping[str, "DriftDetector | BinaryDriftDetector"]) -> None:
        self._at_work: dict[str, Any] = dict(detectors)
        self._failed: dict[str, str] = {}
        self.alarms = 0
        self.drift: deque[dict[str, Any]] = deque(maxlen=_MARKS)

    @property
    def trouble(self) -> str | None:
        """Which have failed and why, in a sentence for each; None if all are at work."""
        return " ".join(self._failed.values()) or None

    def watching(self) -> dict[str, bool]:
        """Whether each of them is at work, by its name."""
        return dict.fromkeys(self._at_work, True) | dict.fromkeys(self._failed, False)

    def add(self, rows: int, errors: Array) -> None:
        """Tell them of some rows; note where they find drift.

        Parameters
        ----------
        rows : int
            How many rows there were before.
        errors : ndarray of shape (n,)
            Of each row, 0 or more; one that is not finite is passed over.
        """
        if self._at_work:
            found = [(i, name) for name in list(self._at_work) for i in self._found(name, errors)]
            self.alarms += len(found)
            now = time.time()
            for i, name in sorted(found):
                self.drift.append({"rows": rows + i + 1, "at": now, "detector": name})

    def recall(self, errors: Array) -> None:
        """Tell them of rows that were counted before; what they find is no alarm now."""
        for name in list(self._at_work):
            for _ in self._found(name, errors):
                pass

    def _found(self, name: str, errors: Array) -> Iterator[int]:
        """The rows after which one has found drift."""
        detector = self._at_work[name]
        kind = bool if counts_mistakes(detector) else float
        try:
            for i in np.flatnonzero(np.isfinite(errors)).tolist():
                detector.update(kind(errors[i]))
                if detector.drift_detected:
                    yield i
        except Exception as wrong:  # noqa: BLE001  whatever it is, rows are counted all the same
            del self._at_work[name]
            self._failed[name] = (
                f"The drift detector {name} has failed and watches no longer: "
                f"{str(wrong) or repr(wrong)}. All else goes on; leave it out when you start again."
            )


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

    def __init__(
        self, task: str, window: int, detectors: Mapping[str, "DriftDetector | BinaryDriftDetector"]
    ) -> None:
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


_BLOCKS, _ROWS = 256, 4096  # so many are counted together, or those of a second if they are fewer
_SECONDS = 120  # of the rates' curve
_TIMES = 2048  # durations that are kept
_REFUSED = 20  # the last ones


def task_of(learner: "Learner | Pipeline") -> str:
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
        self,
        learner: "Learner | Pipeline",
        *,
        window: int = 1000,
        detectors: "Mapping[str, DriftDetector | BinaryDriftDetector] | None" = None,
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

    def learned(self, block: Block, said: Array) -> Callable[[], object] | None:
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


_OFTEN = 30.0  # seconds
_WHERE = "onepass serve"


class Diary:
    """A file of gauges.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = (-1, 0, time.monotonic())

    def read(self, gauges: Gauges, seen: int) -> None:
        """Have gauges go on, if there are some that can.

        Parameters
        ----------
        gauges : Gauges
            That were told what the learner has learned again on opening.
        seen : int
            Rows that the learner has learned in all.
        """
        state = None
        with suppress(OSError, OnepassError):
            state = archive.unpacked(self._path.read_bytes(), str(self._path)).tree
        gauges.resume(state, seen)

    def tend(self, gauges: Gauges, snapshot: int) -> None:
        """Write them down if it is time.

        Parameters
        ----------
        gauges : Gauges
        snapshot : int
            Rows that had been learned at the last snapshot.
        """
        rows, taken, at = self._written
        now = time.monotonic()
        if snapshot != taken or (now - at > _OFTEN and gauges.seen != rows):
            self._written = (gauges.seen, snapshot, now)
            self.write(gauges)

    def write(self, gauges: Gauges) -> None:
        """Write them down, as far as the disk allows it."""
        with suppress(OSError, OnepassError):
            data = archive.packed(gauges.state(), str(self._path), kind="gauges")
            with replacing(self._path) as temporary:
                temporary.write_bytes(data)


_WIDEST = 512  # features; of more it would take longer than a page is worth
_MOST = 128  # values that are told


def memory_of(learner: "Learner | Pipeline | None") -> Any:
    """The memory that a learner has, if it has such as ``spectrum`` takes; None otherwise.

    Parameters
    ----------
    learner : learner or Pipeline, or None
    """
    memory = getattr(getattr(learner, "learner_", learner), "memory_", None)
    return memory if hasattr(memory, "R") or hasattr(memory, "lengths") else None


def spectrum(memory: object) -> Floats | None:
    """Singular values of what is remembered, the largest first; None where there are none such.

    Of least squares they are those of R, √(XᵀX + ridge); of a memory of directions, the lengths of
    these.

    Parameters
    ----------
    memory
        As ``memory_of`` gives it.
    """
    R = getattr(memory, "R", None)
    if isinstance(R, np.ndarray) and R.ndim == 2 and R.shape[0] <= _WIDEST:
        return _told(scipy.linalg.svdvals(R))
    lengths = getattr(memory, "lengths", None)
    if isinstance(lengths, np.ndarray) and lengths.ndim == 1:
        return _told(np.sort(lengths)[::-1])
    return None


def _told(values: Floats) -> Floats | None:
    found = values[np.isfinite(values)][:_MOST]
    return found if len(found) else None
