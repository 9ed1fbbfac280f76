"""Learning curves of bounded length, and scores of models along a stream.

Points are placed where the number of rows is a multiple of the stride, which starts at ``stride``.
When there are ``limit`` points, the stride doubles, and points that are not multiples of the new
stride are removed. The curve of a long stream thus has between limit/2 and limit evenly spaced
points, whose positions depend only on the number of rows, not on the block size.

Scores are computed over all rows, and over the last rows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np

from onepass.evaluate.metrics import Metric, ProbabilityMetric
from onepass.evaluate.metrics.probability import fields_of, with_fields
from onepass.serialization.archive import damaged
from onepass.serialization.codec import Role, from_state, register, state_dict
from onepass.types import Array
from onepass.validation.rows import Rows

Values: TypeAlias = dict[str, float | None]
"""Metric -> value; None if the metric is undefined or not a number."""


@dataclass(frozen=True)
class Curve:
    """Metrics of each model at some points of a stream.

    Parameters
    ----------
    rows : list of int
        Number of rows learned at each point.
    times : list of str or float, or None
        The time of the last row at each point: dates in ISO 8601, or numbers; None without times.
    points : dict of str to dict of str to list of float
        Model -> metric -> value at each point; None if the metric is undefined.
    """

    rows: list[int]
    times: list[Any] | None
    points: dict[str, dict[str, list[float | None]]]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class BoundedCurve:
    """A curve with a bounded number of points, which grows with the stream.

    Parameters
    ----------
    limit : int
        Maximum number of points, at least 2. The end of the stream may add another point that is
        not a multiple of the stride.
    stride : int
        Initial number of rows between two points.
    start : int
        Number of rows of the first point, at least 1.
    rows, times, points : list
        The number of rows, the time and the values of each point.
    """

    limit: int
    stride: int = 1
    start: int = 1
    rows: list[int] = field(default_factory=list)
    times: list[Any] = field(default_factory=list)
    points: list[Mapping[str, Values]] = field(default_factory=list)

    @property
    def next(self) -> int:
        """Number of rows at the next point."""
        last = self.rows[-1] if self.rows else self.start - 1
        return (last // self.stride + 1) * self.stride

    def thin(self, upto: int) -> list[int]:
        """Widen the stride for a stream of this many rows; return the points to be added.

        Points that would be removed again are not among them.
        """
        ahead, count = self.next, len(self.rows)
        points = range(ahead, upto + 1, self.stride)
        while count + len(points) >= self.limit:
            self.stride *= 2
            at = [i for i, rows in enumerate(self.rows) if rows % self.stride == 0]
            self.rows = [self.rows[i] for i in at]
            self.times = [self.times[i] for i in at]
            self.points = [self.points[i] for i in at]
            count = len(self.rows)
            points = range(-(-ahead // self.stride) * self.stride, upto + 1, self.stride)
        return list(points)

    def end(self, rows: int, time: object, values: Mapping[str, Values]) -> None:
        """Add a point, unless it exists; at the end of the stream it need not be a multiple.

        Parameters
        ----------
        rows : int
            Number of rows learned so far.
        time : object
            The time of the last row: a datetime64, a number, or None.
        values : mapping of str to dict
            Model -> metric -> value.
        """
        if rows >= self.start and (not self.rows or self.rows[-1] != rows):
            self.rows.append(rows)
            self.times.append(plain_time(time))
            self.points.append(values)

    def curve(self, models: Mapping[str, RollingMetrics]) -> Curve:
        """Return the curve so far.

        Parameters
        ----------
        models : mapping of str to RollingMetrics
            The metrics of each model, in order.
        """
        values = {
            model: {
                metric: [point[model][metric] for point in self.points]
                for metric in rolling.metrics
            }
            for model, rolling in models.items()
        }
        timed = any(time is not None for time in self.times)
        return Curve(list(self.rows), list(self.times) if timed else None, values)

    @property
    def _sound(self) -> bool:
        """Whether points read from a file are valid."""
        counts = (self.limit, self.stride, self.start, *self.rows)
        positive = all(type(count) is int and count > 0 for count in counts)
        return positive and len(self.rows) == len(self.times) == len(self.points) < self.limit


def plain_time(time: object) -> str | float | None:
    """Convert a time to a JSON value.

    Parameters
    ----------
    time : datetime64, number, text or None
    """
    if isinstance(time, np.datetime64):
        return None if np.isnat(time) else str(time.astype("datetime64[us]"))
    if isinstance(time, (int, float, np.number)):
        return float(time) if np.isfinite(time) else None
    return None if time is None else str(time)


@dataclass(eq=False)
class RollingMetrics:
    """The metrics of one model.

    Parameters
    ----------
    metrics : dict of str to type or Metric
        Name -> class of metric, or metric.
    window : int, optional
        Number of last rows that ``recent`` covers, with O(window) memory.
    last : deque of (y, predictions) or (y, labels, p, squares)
        Targets and predictions of the last rows, in blocks; the fields of rows with probabilities.
    """

    metrics: dict[str, Any]
    window: int | None = None
    last: deque[tuple[Array, ...]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        found = self.metrics.items()
        self.metrics = {name: each() if isinstance(each, type) else each for name, each in found}
        self._count = sum(len(y) for y, *_ in self.last)

    def add(
        self,
        y: Array,
        predictions: Array,
        ends: Sequence[int] = (),
        recent_ends: Sequence[int] = (),
    ) -> tuple[list[Values], list[Values]]:
        """Add rows; return the metrics after some of them, over all and over the last rows.

        Parameters
        ----------
        y : ndarray of shape (n,) or (n, c)
            The targets.
        predictions : ndarray of the shape of y
            The predictions for the same rows.
        ends, recent_ends : sequences of int
            Increasing numbers of the rows, from 1 to n.
        """
        labels = fields_of(predictions)[0]
        along = {
            name: metric.along(
                y, predictions if isinstance(metric, ProbabilityMetric) else labels, ends
            )
            for name, metric in self.metrics.items()
        }
        values = [
            _plain(dict(zip(along, each, strict=True)))
            for each in zip(*along.values(), strict=True)
        ]
        recent, begin = list[Values](), 0
        for end in (*recent_ends, len(y)) if self.window is not None else ():
            self._store(y[begin:end], predictions[begin:end])
            recent += [self.recent] if len(recent) < len(recent_ends) else []
            begin = end
        return values, recent

    def _store(self, y: Array, predictions: Array) -> None:
        """Store rows of the window."""
        window: Any = self.window
        # copies: a slice would keep its whole block alive, or change with it
        parts = (y, *fields_of(predictions))
        self.last.append(tuple(part[-window:].copy() for part in parts))
        self._count += len(self.last[-1][0])
        self._forget(self._count - window)

    def _forget(self, excess: int) -> None:
        """Drop the oldest rows beyond the window."""
        while excess > 0:
            parts = self.last.popleft()
            if len(parts[0]) > excess:
                self.last.appendleft(tuple(part[excess:] for part in parts))
            dropped = min(len(parts[0]), excess)
            self._count -= dropped
            excess -= dropped

    @property
    def overall(self) -> Values:
        """Metrics over all rows so far."""
        return _plain({name: metric.value for name, metric in self.metrics.items()})

    @property
    def recent(self) -> Values:
        """Metrics over exactly the last ``window`` rows, or all rows if there are fewer."""
        fresh = {name: type(metric)() for name, metric in self.metrics.items()}
        if self.last:
            joined = tuple(np.concatenate(parts) for parts in zip(*self.last, strict=True))
            self.last = deque([joined])  # one array uses less memory than many
            predictions = with_fields(joined[1:])
            for metric in fresh.values():
                metric.add(
                    joined[0],
                    predictions if isinstance(metric, ProbabilityMetric) else joined[1],
                )
        return _plain({name: metric.value for name, metric in fresh.items()})

    @property
    def _sound(self) -> bool:
        """Whether values read from a file are metrics and blocks of rows."""
        metrics = all(isinstance(each, Metric) for each in self.metrics.values())
        return metrics and all(
            y.ndim and all(part.shape == y.shape for part in parts) for y, *parts in self.last
        )

    @property
    def metric_classes(self) -> dict[str, type[Metric]]:
        """Name -> class of metric."""
        return {name: type(metric) for name, metric in self.metrics.items()}

    def state(self) -> dict[str, Any]:
        """Return the state as plain values and arrays."""
        found: dict[str, Any] = state_dict(self, "RollingMetrics")
        return found

    def restore(self, state: Any, place: str) -> None:
        """Restore a state returned by ``state``.

        Parameters
        ----------
        state : dict
            The state, which is validated completely.
        place : str
            The file from which it was read, for messages.

        Raises
        ------
        CheckpointError
            If the state has other metrics, or is damaged.
        """
        found = from_state(state, place)
        if not (
            type(found) is RollingMetrics
            and (found.metric_classes, found.window) == (self.metric_classes, self.window)
        ):
            raise damaged(place, "it has other metrics than those of the run")
        vars(self).update(vars(found))


def _plain(values: Mapping[str, float]) -> Values:
    """Return values of metrics as floats; nan becomes None, for JSON and for comparison."""
    return {name: None if math.isnan(value) else float(value) for name, value in values.items()}


@dataclass(eq=False)
class ScoreHistory:
    """Scores of models along a stream, over all and over the last rows, with their curves.

    Parameters
    ----------
    models : dict of str to RollingMetrics
        The metrics of each model, in order.
    overall_curve : BoundedCurve
        The curve over all rows.
    recent_curve : BoundedCurve or None
        The curve over the last rows.
    rows, skipped : int
        Number of rows so far, and of rows that the stream skipped.
    time : object
        The time of the last row; None if the stream has no times.
    """

    models: dict[str, RollingMetrics]
    overall_curve: BoundedCurve
    recent_curve: BoundedCurve | None
    rows: int = 0
    skipped: int = 0
    time: Any = None

    @classmethod
    def start(
        cls,
        models: Iterable[str],
        metric_classes: Mapping[str, type[Metric]],
        window: int | None,
        points: int,
    ) -> Self:
        """Create an empty history.

        Parameters
        ----------
        models : iterable of str
            The names of the models, in order.
        metric_classes : mapping of str to type
            Name -> class of metric.
        window : int or None
            Number of last rows that ``recent`` covers.
        points : int
            Maximum number of points of a curve.
        """
        models = {name: RollingMetrics(dict(metric_classes), window) for name in models}
        recent = None if window is None else BoundedCurve(points, max(1, window // 4), window)
        return cls(models, BoundedCurve(points), recent)

    @property
    def setup(self) -> tuple[Any, ...]:
        """The models with their metrics and windows, and the limit and start of each curve."""
        models = {name: (each.metric_classes, each.window) for name, each in self.models.items()}
        return models, [(curve.limit, curve.start) for curve in self._curves]

    @property
    def probabilities(self) -> bool:
        """Whether a metric needs probabilities."""
        rolling = next(iter(self.models.values()))
        return any(issubclass(kind, ProbabilityMetric) for kind in rolling.metric_classes.values())

    @property
    def _curves(self) -> list[BoundedCurve]:
        return [each for each in (self.overall_curve, self.recent_curve) if each is not None]

    @property
    def _sound(self) -> bool:
        """Whether values read from a file are consistent."""
        counts = all(type(count) is int and count >= 0 for count in (self.rows, self.skipped))
        models = all(type(rolling) is RollingMetrics for rolling in self.models.values())
        ahead = all(
            type(curve) is BoundedCurve and curve.next > self.rows for curve in self._curves
        )
        return counts and models and ahead

    def add(self, block: Rows, predictions: Mapping[str, Array]) -> None:
        """Add the rows of a block.

        Parameters
        ----------
        block : Rows
            The rows with their targets, possibly none.
        predictions : mapping of str to ndarray of the same shape as the y of the block
            The predictions of each model.
        """
        self.skipped += block.skipped
        if not len(block):
            return
        before, curves = self.rows, self._curves
        self.rows = before + len(block)
        self.time = None if block.time is None else block.time[-1]
        points = [curve.thin(self.rows) for curve in curves]
        ends = [[rows - before for rows in each] for each in (*points, [])[:2]]
        values = {
            name: rolling.add(block.y, predictions[name], *ends)
            for name, rolling in self.models.items()
        }
        for k, (curve, rows) in enumerate(zip(curves, points, strict=True)):
            for i, at in enumerate(rows):
                time = None if block.time is None else block.time[at - before - 1]
                curve.end(at, time, {name: found[k][i] for name, found in values.items()})

    def end(self) -> None:
        """Add the last points of the curves, at the end of the stream."""
        self.overall_curve.end(self.rows, self.time, self.overall())
        recent = self.recent()
        if self.recent_curve is not None and recent is not None:
            self.recent_curve.end(self.rows, self.time, recent)

    def overall(self) -> dict[str, Values]:
        """Return the metrics of each model over all rows so far."""
        return {name: rolling.overall for name, rolling in self.models.items()}

    def recent(self) -> dict[str, Values] | None:
        """Return the metrics of each model over the last ``window`` rows; None without a window."""
        if self.recent_curve is None:
            return None
        return {name: rolling.recent for name, rolling in self.models.items()}

    def curves(self) -> tuple[Curve, Curve | None]:
        """Return the curves over all rows and, if there is a window, over the last rows."""
        overall = self.overall_curve.curve(self.models)
        if self.recent_curve is None:
            return overall, None
        return overall, self.recent_curve.curve(self.models)


register(Role.RUN, BoundedCurve, RollingMetrics, ScoreHistory)
