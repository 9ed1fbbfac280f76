"""Metrics of served learners for the page and for Prometheus, and their drift detectors.

Rows are counted when they are learned. The prequential error is computed as in
:mod:`onepass.evaluate`: each row is predicted before it is learned. Durations of requests are
stored in a Prometheus histogram.

The baseline is that of :mod:`onepass.evaluate.naive`: it predicts the mean or the most frequent
label of all earlier rows, and learns each row after its prediction. R² compares the squared error
over the last rows with that of their mean.

The curve has few points of the whole stream, and more of the last hour, day and week.

Drift detectors are objects of other libraries, which are updated with the error of each row. A
detector that raises is disabled and reported in ``error``; the other detectors continue.

Metrics are stored in a file beside the learner's file, after each snapshot and at intervals. When a
learner is opened, the rows learned since the snapshot are replayed and counted, except rows that
the metrics file already includes. Rows are counted twice or missed only if the process is killed
after a snapshot and before the next write of the metrics file. A metrics file that is damaged,
missing, ahead of its learner or in another format is ignored, and counting starts at zero.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain, groupby
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import Histogram
from sklearn.base import is_classifier

from onepass.errors import OnepassError, OutlierError
from onepass.evaluate.curves import RollingMetrics
from onepass.evaluate.drift import counts_mistakes
from onepass.evaluate.metrics import METRICS, R2
from onepass.evaluate.naive import Majority, RunningMean
from onepass.serialization import archive
from onepass.serialization.codec import from_state, state_dict
from onepass.service.model import predict_rows
from onepass.types import Array
from onepass.validation.rows import Rows

if TYPE_CHECKING:
    from river.base import BinaryDriftDetector, DriftDetector

    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

_MAX_MARKS = 100  # alarms


class DriftMonitor:
    """Drift detectors of one learner, updated with its errors; not thread-safe.

    Parameters
    ----------
    detectors : mapping of str to detector
        Drift detectors by name; see :func:`onepass.integrations.detectors.detectors`.

    Attributes
    ----------
    alarms : int
        Number of alarms.
    marks : deque of dict
        Last alarms: ``rows``, the number of rows at the alarm; ``at``, the time in seconds since
        1970; and ``detector``, the name of the detector.
    """

    def __init__(self, detectors: Mapping[str, DriftDetector | BinaryDriftDetector]) -> None:
        self._detectors: dict[str, Any] = dict(detectors)
        self._failed: dict[str, str] = {}
        self.alarms = 0
        self.marks: deque[dict[str, Any]] = deque(maxlen=_MAX_MARKS)

    @property
    def error(self) -> str | None:
        """Messages about failed detectors; None if no detector has failed."""
        return " ".join(self._failed.values()) or None

    def active_detectors(self) -> dict[str, bool]:
        """Return whether each detector is active, by name."""
        return dict.fromkeys(self._detectors, True) | dict.fromkeys(self._failed, False)

    def add(self, rows: int, errors: Array, times: Array, *, replayed: bool = False) -> None:
        """Update the detectors with the errors of some rows, and record their alarms.

        Parameters
        ----------
        rows : int
            Number of earlier rows.
        errors : ndarray of shape (n,)
            Error of each row, at least 0; errors that are not finite are skipped.
        times : ndarray of shape (n,)
            Time at which each row was learned, in seconds since 1970.
        replayed : bool
            Whether the rows were counted before a restart, so that alarms are not recorded again.
        """
        alarms = [(i, name) for name in list(self._detectors) for i in self._alarms(name, errors)]
        if alarms and not replayed:
            self.alarms += len(alarms)
            for i, name in sorted(alarms):
                self.marks.append({"rows": rows + i + 1, "at": float(times[i]), "detector": name})

    def _alarms(self, name: str, errors: Array) -> Iterator[int]:
        """Update one detector, and yield the rows at which it detects drift."""
        detector = self._detectors[name]
        kind = bool if counts_mistakes(detector) else float
        try:
            for i in np.flatnonzero(np.isfinite(errors)).tolist():
                detector.update(kind(errors[i]))
                if detector.drift_detected:
                    yield i
        except Exception as error:  # noqa: BLE001  a failed detector must not stop the metrics
            del self._detectors[name]
            self._failed[name] = (
                f"The drift detector {name} has failed and is disabled: "
                f"{str(error) or repr(error)}. All else continues. Restart without this "
                "detector, or with another."
            )


_METRICS = {
    "regression": ("mae", "mean absolute error"),
    "classification": ("accuracy", "accuracy"),
}
_BASELINES: dict[str, tuple[type[Learner], str]] = {
    "regression": (RunningMean, "mean of earlier targets"),
    "classification": (Majority, "most frequent earlier label"),
}
_ROWS = 1000  # rows of a call of the baseline, which needs memory for each row and class
_MAX_POINTS = 400  # points of the curve of the whole stream
_RECENT = (3600.0, 86400.0, 7 * 86400.0)  # time spans with more points, in seconds
_RECENT_POINTS = 150  # points of such a span
_OUTLIER = 6.0  # an outlier's error exceeds this many root mean square errors
_SECONDS = 120  # length of the curve of rates
_MAX_REFUSED = 20  # reasons of refusals
_VARYING = re.compile(r"(?<= got )[^'.]*'[^']*'|[^\s'\"`]{0,40}\d[^\s'\"`]*")
"""Matches what differs between refusals of one reason: values, and words with digits."""
_BUCKETS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


def task_of(learner: Learner | Pipeline) -> str:
    """Return the task of a learner or Pipeline: "classification" or "regression"."""
    return "classification" if is_classifier(learner) else "regression"


_BLOCKS = 64  # learned blocks counted at once; a block of many rows is counted immediately
_COUNTS = {
    "rows": "_rows", "seen": "_seen", "stride": "_stride", "squares": "_squares",
    "usual_before": "_usual_before", "outliers": "_outliers", "rows_refused": "rows_refused",
    "predicted_rows": "predicted_rows",
}  # fmt: skip
"""Numbers that are restored after a restart: their attributes, by name in the metrics file."""


class Gauges:
    """Prequential error, counts, rates and durations of one learner; thread-safe.

    Parameters
    ----------
    learner : learner or Pipeline
    window : int, default 1000
        Number of rows over which the recent error is computed.
    detectors : mapping of str to detector, optional
        Drift detectors by name; see :func:`onepass.integrations.detectors.detectors`.

    Attributes
    ----------
    durations : Histogram
        Durations of requests since the start in seconds, by ``verb``.
    predicted_rows, rows_refused : int
    """

    def __init__(
        self,
        learner: Learner | Pipeline,
        *,
        window: int = 1000,
        detectors: Mapping[str, DriftDetector | BinaryDriftDetector] | None = None,
    ) -> None:
        self._task, self._window = task_of(learner), window
        self._metric, self._label = _METRICS[self._task]
        self._tracking = Lock()  # guards errors and drift; detectors may be slow
        self._tally, self._baseline_tally = self._new_tally(), self._new_tally()
        self._baseline: Any = _BASELINES[self._task][0]()
        self._curve: list[list[Any]] = []  # rows, all, window, time, window of the baseline
        self._recent = [deque[list[Any]](maxlen=_RECENT_POINTS) for _ in _RECENT]  # such points
        self._stride = 1  # rows between two points of the curve
        self._values: tuple[int, dict[str, Any]] = (-1, {})  # errors after a number of rows
        self._squares = 0.0
        self._usual_before: float | None = None  # usual error before the first ``window`` rows
        self._replayed: list[tuple[Array, Array]] | None = []  # None after `resume`
        # learned blocks and their times, counted in groups, as counting delays requests
        self._uncounted: list[tuple[Array, Array, float]] = []
        self._rows = self._seen = self._outliers = 0
        self._drift = DriftMonitor(detectors or {})
        self._lock = Lock()  # guards the other attributes
        self._rates: deque[list[int]] = deque(maxlen=_SECONDS + 1)  # second, learned, predicted
        self.rows_refused = self.predicted_rows = 0
        self._refused: dict[str, dict[str, Any]] = {}  # by reason, in the order of the last time
        self.durations = Histogram(
            "onepass_request_seconds", "Duration of requests.", ["verb"],
            registry=None, buckets=_BUCKETS,
        )  # fmt: skip
        self._learn, self._predict = map(self.durations.labels, ("learn", "predict"))

    def _new_tally(self) -> RollingMetrics:
        return RollingMetrics({self._metric: METRICS[self._task][self._metric]}, self._window)

    # -- events --------------------------------------------------------------------------------

    def learned(self, block: Rows, predictions: Array) -> None:
        """Count learned rows, given their prequential predictions."""
        if block.y is None or not len(block):
            return
        predictions = np.asarray(predictions)
        y = block.y.reshape(predictions.shape)  # labels may be a column
        with self._lock:
            if self._replayed is not None:
                self._replayed.append((y, predictions))
                return
            self._uncounted.append((y, predictions, time.time()))
            self._rate(1, len(y))
        if len(self._uncounted) >= _BLOCKS or len(y) >= _ROWS:
            self.count()

    def count(self) -> None:
        """Count the errors of all rows learned so far."""
        with self._tracking:
            with self._lock:
                blocks, self._uncounted = self._uncounted, []
            self._add(blocks)
            self._seen += sum(len(y) for y, *_ in blocks)

    @property
    def seen(self) -> int:
        """Rows that the learner had learned up to the last counted row."""
        self.count()
        return self._seen

    @property
    def outliers(self) -> int:
        """Number of outliers: rows whose error exceeds six times the root mean square error.

        For regression only. The root mean square is over all earlier rows, in which an outlier
        counts as six times it; the first ``window`` rows are not counted.
        """
        self.count()
        return self._outliers

    def check(self, learner: Learner | Pipeline, block: Rows, beyond: float) -> None:
        """Raise if a target is too far from its prediction; not in the first ``window`` rows.

        Parameters
        ----------
        learner : learner or Pipeline
        block : Rows
            Rows to learn, with targets.
        beyond : float
            The largest error, as a multiple of the root mean square of ``outliers``.

        Raises
        ------
        OutlierError
        """
        self.count()
        usual = self._usual_before
        if self._rows >= self._window:
            usual = math.sqrt(self._squares / self._rows)
        if self._task != "regression" or block.y is None or usual is None:
            return
        try:
            predictions = predict_rows(learner, block.X)
            errors = self._row_errors(block.y.reshape(predictions.shape), predictions, np.abs)
        except Exception:  # noqa: BLE001  the learner raises the error
            return
        far = np.flatnonzero(errors > beyond * usual)  # the learner rejects nan
        if len(far):
            i = int(far[0])
            raise OutlierError(
                f"the target must be within {beyond:g} times the usual error, {usual:.4g}, of its "
                f"prediction {predictions[i]}",
                got=block.y[i],
                remedy="Correct the row. If the change is real, restart the service with a larger "
                "--reject-beyond, or without it.",
                row=i,
            )

    @property
    def drift(self) -> DriftMonitor:
        """Drift monitor, updated with the error of each row."""
        self.count()
        return self._drift

    def observe_predict(self, rows: int, seconds: float) -> None:
        """Count predicted rows, and observe the duration of their request."""
        with self._lock:
            self.predicted_rows += rows
            self._rate(2, rows)
        self._predict.observe(seconds)

    def observe_learn(self, seconds: float) -> None:
        """Observe the duration of a request to learn."""
        self._learn.observe(seconds)

    def refuse(self, rows: int, why: str) -> None:
        """Count rejected rows, also by reason, in which numbers and values may differ."""
        at, why = time.time(), why[:1000]
        reason = _VARYING.sub("#", why)
        with self._lock:
            self.rows_refused += rows
            former = self._refused.pop(reason, {"first": at, "times": 0, "rows": 0})
            self._refused[reason] = {
                "at": at, "first": former["first"], "times": former["times"] + 1,
                "rows": former["rows"] + rows, "why": why,
            }  # fmt: skip
            if len(self._refused) > _MAX_REFUSED:
                del self._refused[next(iter(self._refused))]

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Refusals by reason, the last one last.

        ``first`` and ``at`` are their first and last time in seconds since 1970, ``times`` and
        ``rows`` their numbers, and ``why`` the text of the last one.
        """
        with self._lock:
            return list(self._refused.values())

    def _rate(self, column: int, rows: int) -> None:
        second = int(time.monotonic())
        if not self._rates or self._rates[-1][0] != second:
            self._rates.append([second, 0, 0])
        self._rates[-1][column] += rows

    def _add(self, blocks: Sequence[tuple[Array, Array, float]]) -> None:
        """Count blocks; those of equal types as one, which takes a fraction of the time."""
        for _, group in groupby(blocks, lambda b: (b[0].dtype, b[1].dtype, b[0].shape[1:])):
            ys, predictions, times = zip(*group, strict=True)
            lengths = [len(y) for y in ys]
            points = self._new_points(np.cumsum(lengths).tolist(), times)
            self._count(
                np.concatenate(ys), np.concatenate(predictions), np.repeat(times, lengths), points
            )
            if len(self._curve) > _MAX_POINTS:
                while (
                    self._rows // self._stride > _MAX_POINTS // 2
                ):  # blocks may be longer than the stride
                    self._stride *= 2
                by_stride = {point[0] // self._stride: point for point in self._curve}
                self._curve = list(by_stride.values())

    def _new_points(self, ends: Sequence[int], times: Sequence[float]) -> dict[int, list[Any]]:
        """Add points after some blocks, whose values follow; return them by the blocks' ends.

        The curve has a point where the number of rows passes a multiple of the stride.
        """
        points, before = {}, self._rows // self._stride
        for end, at in zip(ends, times, strict=True):
            strides = (self._rows + end) // self._stride
            curves: list[Any] = [
                recent
                for recent, span in zip(self._recent, _RECENT, strict=True)
                if not recent or at - recent[-1][3] >= span / _RECENT_POINTS
            ] + [self._curve] * (strides > before)
            before = strides
            if curves:
                points[end] = [self._rows + end, None, None, at, None]
            for curve in curves:
                curve.append(points[end])
        return points

    def _count(
        self, y: Array, predictions: Array, times: Array, points: Mapping[int, list[Any]]
    ) -> None:
        """Update the errors, the outliers and the detectors with rows; set the points' values."""
        ends = list(points)
        overall, recent = self._tally.add(y, predictions, ends, ends)
        baseline = self._count_baseline(y, ends)
        for point, *values in zip(points.values(), overall, recent, baseline, strict=True):
            point[1], point[2], point[4] = (each[self._metric] for each in values)
        errors = self._row_errors(y, predictions, np.abs)
        self._drift.add(self._rows, errors, times)
        if self._task == "regression":
            for row, error in enumerate(errors.tolist(), self._rows):
                square, limit = error * error, _OUTLIER**2 * self._squares / max(row, 1)
                if row >= self._window and square > limit:
                    self._outliers += 1
                    square = limit  # so that one outlier does not hide the next
                self._squares += square
        self._rows += len(y)

    def _count_baseline(self, y: Array, ends: Sequence[int]) -> list[dict[str, float | None]]:
        """Update the baseline with rows; return its errors over the last rows after some rows."""
        parts = [y[i : i + _ROWS] for i in range(0, len(y), _ROWS)]
        try:
            predictions = [
                self._baseline.test_then_train(np.zeros((len(part), 1)), part) for part in parts
            ]
        except OnepassError:  # other targets, after a rollback: the baseline begins again
            self._baseline, self._baseline_tally = type(self._baseline)(), self._new_tally()
            return [{self._metric: None}] * len(ends)
        return self._baseline_tally.add(y, np.concatenate(predictions), (), ends)[1]

    def _row_errors(
        self, y: Array, predictions: Array, measure: Callable[[Array], Array] = np.asarray
    ) -> Array:
        """Return target minus prediction, or 1 for a wrong label; the mean over targets."""
        with np.errstate(over="ignore", invalid="ignore"):
            errors = y - predictions if self._task == "regression" else predictions != y
            errors = measure(np.asarray(errors, dtype=np.float64))
            return errors if errors.ndim == 1 else errors.reshape(len(y), -1).mean(axis=1)

    # -- restarts ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state to restore after a restart, as plain values and arrays."""
        self.count()
        with self._tracking, self._lock:
            return {
                "task": self._task, "window": self._window, "tally": self._tally.state(),
                "baseline": state_dict(self._baseline, "metrics"),
                "baseline_tally": self._baseline_tally.state(), "curve": list(self._curve),
                "recent": [list(points) for points in self._recent],
                "drift": list(self._drift.marks), "alarms": self._drift.alarms,
                "refused": list(self._refused.values()),
                **{name: getattr(self, attribute) for name, attribute in _COUNTS.items()},
            }  # fmt: skip

    def resume(self, state: Any, seen: int) -> None:
        """Restore a state, and count the replayed rows that the state does not include.

        Parameters
        ----------
        state : dict or None
            Result of ``state``; an incompatible state is ignored.
        seen : int
            Total number of rows that the learner has learned.
        """
        with self._tracking, self._lock:
            replayed, self._replayed = self._replayed or [], None
            with suppress(AttributeError, LookupError, TypeError, ValueError, OnepassError):
                self._restore(state, seen)
            counted = (
                self._seen - seen + sum(len(y) for y, _ in replayed)
            )  # replayed rows that the state includes
            for y, predictions in replayed:
                if counted < len(y):
                    new = slice(max(counted, 0), None)
                    self._add([(y[new], predictions[new], time.time())])
                counted -= len(y)
            self._seen = seen

    def _restore(self, state: Any, seen: int) -> None:
        """Restore a state completely, or not at all if it is incompatible."""
        if (state["task"], state["window"]) != (self._task, self._window):
            return
        if state["seen"] > seen:  # the learner was restored from a backup
            self._usual_before = state["usual_before"]
            if state["rows"] >= self._window:
                self._usual_before = math.sqrt(state["squares"] / state["rows"])
            return
        counts = {attribute: state[name] for name, attribute in _COUNTS.items()}
        curve, *recent = (
            [list(point) for point in points] for points in (state["curve"], *state["recent"])
        )
        refused = {_VARYING.sub("#", each["why"]): each for each in state["refused"]}
        drift, alarms = list(state["drift"]), state["alarms"]
        tally, baseline_tally = self._new_tally(), self._new_tally()
        tally.restore(state["tally"], "metrics")
        baseline_tally.restore(state["baseline_tally"], "metrics")
        baseline = from_state(state["baseline"], "metrics")
        vars(self).update(
            counts, _curve=curve, _tally=tally, _baseline_tally=baseline_tally, _baseline=baseline,
            _refused=refused,
        )  # fmt: skip
        for points, former in zip(self._recent, recent, strict=False):
            points.extend(former)
        self._drift.alarms = alarms
        self._drift.marks.extend(drift)
        errors = self._last_errors(np.abs)
        self._drift.add(self._rows, errors, np.zeros(len(errors)), replayed=True)

    # -- values --------------------------------------------------------------------------------

    def prequential_error(self, *, curve: bool = True) -> dict[str, Any]:
        """Return the prequential error over all rows, over the last rows, and along the stream.

        Parameters
        ----------
        curve : bool, default True
            Whether to include the curve.
        """
        self.count()
        with self._tracking:
            if self._values[0] != self._rows:
                self._values = self._rows, {
                    "name": self._label, **self._errors(self._tally),
                    "window_rows": min(self._window, self._rows), "r2": self._r2(),
                    "baseline": {
                        "name": _BASELINES[self._task][1], **self._errors(self._baseline_tally),
                    },
                }  # fmt: skip
            if not curve:
                return self._values[1]
            points = {each[0]: each for each in chain(self._curve, *self._recent)}
            return {**self._values[1], "curve": [points[rows] for rows in sorted(points)]}

    def _errors(self, tally: RollingMetrics) -> dict[str, float | None]:
        return {"all": tally.overall[self._metric], "window": tally.recent[self._metric]}

    def _r2(self) -> float | None:
        """R² over the last rows; None for classification, and for fewer than two rows."""
        if self._task != "regression" or min(self._rows, self._window) < 2:
            return None
        return float(R2().add(*self._last_rows()).value)

    def innovations(self) -> dict[str, float]:
        """Return mean and standard deviation of target minus prediction over the last rows.

        For classification, errors are 0 or 1.
        """
        self.count()
        with self._tracking:
            last = self._last_errors()
        return {"mean": float(last.mean()), "deviation": float(last.std())} if len(last) else {}

    def _last_errors(self, measure: Callable[[Array], Array] = np.asarray) -> Array:
        """Return the errors of the last ``window`` rows."""
        return self._row_errors(*self._last_rows(), measure) if self._rows else np.empty(0)

    def _last_rows(self) -> tuple[Array, Array]:
        """Return targets and predictions of the last ``window`` rows."""
        y, predictions = zip(*self._tally.last, strict=True)
        return np.concatenate(y), np.concatenate(predictions)

    def rates(self) -> dict[str, Any]:
        """Return rows per second over the last ten whole seconds, and for each second."""
        now = int(time.monotonic())
        with self._lock:
            rates = {second: (learned, predicted) for second, learned, predicted in self._rates}
        last = [rates.get(now - back, (0, 0)) for back in range(1, 11)]
        first = min(max(now - min(rates, default=now), 1), _SECONDS)
        curve = [[back, *rates.get(now - back, (0, 0))] for back in range(first, 0, -1)]
        learned, predicted = (sum(each) / len(last) for each in zip(*last, strict=True))
        return {"learned": learned, "predicted": predicted, "curve": curve}

    def duration_samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield name, labels and value of each sample of the histogram of durations."""
        for metric in self.durations.collect():
            for sample in metric.samples:
                if not sample.name.endswith("_created"):
                    yield sample.name, sample.labels, sample.value

    def latency(self) -> dict[str, dict[str, float | None]]:
        """Return median and 99th percentile of the durations since the start, by verb."""
        buckets: dict[str, list[tuple[float, float]]] = {}
        for name, labels, value in self.duration_samples():
            if name.endswith("_bucket"):
                buckets.setdefault(labels["verb"], []).append((float(labels["le"]), value))
        return {
            verb: {"p50": _quantile(0.5, of_verb), "p99": _quantile(0.99, of_verb)}
            for verb, of_verb in buckets.items()
        }


def _quantile(q: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Return a quantile of a histogram, interpolated as by PromQL's ``histogram_quantile``."""
    rank = q * buckets[-1][1]
    low, below = 0.0, 0.0
    for high, count in buckets:
        if count >= rank > 0:
            return low if high == np.inf else low + (high - low) * (rank - below) / (count - below)
        low, below = high, count
    return None


_INTERVAL = 30.0  # seconds between writes


class MetricsFile:
    """File that stores the metrics of a learner across restarts.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path, self._digest = path, b""
        # rows, rows of the snapshot (-1 before the first call), time
        self._written = (-1, -1, time.monotonic())

    def read(self, gauges: Gauges, seen: int) -> None:
        """Restore metrics, if the file is compatible with the learner.

        Parameters
        ----------
        gauges : Gauges
            Metrics to restore; the learner was opened, so that its replayed rows are present.
        seen : int
            Total number of rows that the learner has learned.
        """
        state = None
        with suppress(OSError, OnepassError):
            data = self._path.read_bytes()
            state = archive.loads(data, str(self._path)).tree
            self._digest = sha256(data).digest()
        gauges.resume(state, seen)

    def maintain(self, gauges: Gauges, snapshot: int) -> None:
        """Write the metrics after a new snapshot, and at intervals.

        Parameters
        ----------
        gauges : Gauges
        snapshot : int
            Number of rows learned at the last snapshot.
        """
        rows, last, at = self._written
        now = time.monotonic()
        if last < 0:  # thousands of learners must not write at once after a start
            self._written = (gauges.seen, snapshot, at)
        elif snapshot != last or (now - at > _INTERVAL and gauges.seen != rows):
            self._written = (gauges.seen, snapshot, now)
            self.write(gauges)

    def write(self, gauges: Gauges) -> None:
        """Write the metrics if they have changed; ignore errors of the disk."""
        with suppress(OSError, OnepassError):
            data = archive.dumps(gauges.state(), str(self._path), kind="gauges")
            digest = sha256(data).digest()
            if digest == self._digest:
                return
            # not ``atomic_write``, which lists the folder, here of thousands of learners
            temporary = Path(f"{self._path}.new")
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            self._digest = digest
