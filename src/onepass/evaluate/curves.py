"""Learning curves of bounded length, and the scores of one model along them.

Points are placed where the number of rows is a multiple of the stride, which starts at ``stride``.
When ``limit`` points are reached, the stride doubles, and points that are not multiples of it are
removed. A stream of any length thus leaves between limit/2 and limit points, evenly spaced, whose
positions depend on the number of rows alone, not on how the stream is cut into blocks.

Scores are computed over the whole stream, and over its last rows.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np

from onepass.evaluate.blocks import Block
from onepass.evaluate.metrics import Metric
from onepass.serialization import former
from onepass.serialization.archive import damaged
from onepass.serialization.codec import Role, from_state, register, state_dict
from onepass.types import Array

__all__ = ["Curve", "Ledger", "RollingMetrics", "Track", "Values", "plain_time"]


Values: TypeAlias = dict[str, float | None]
"""Metric -> value; None where the metric is not defined or not a number."""


@dataclass(frozen=True)
class Curve:
    """Metrics of each model at some points of a stream.

    Parameters
    ----------
    rows : list of int
        Rows learned at each point.
    times : list of str or float, or None
        The time of the last of these rows: dates in ISO 8601, or numbers; None without times.
    points : dict of str to dict of str to list of float
        Model -> metric -> value at each point; None where the metric is not defined.
    """

    rows: list[int]
    times: list[Any] | None
    points: dict[str, dict[str, list[float | None]]]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class Track:
    """A curve while it grows.

    Parameters
    ----------
    limit : int
        Most points kept, at least 2; the stream's end may add one that is off the stride.
    stride : int
        Rows between two points at first.
    start : int
        No point stands before this number of rows, at least 1.
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
        """The number of rows at which the next point stands."""
        last = self.rows[-1] if self.rows else self.start - 1
        return (last // self.stride + 1) * self.stride

    def note(self, rows: int, time: object, values: Mapping[str, Values]) -> None:
        """Set a point.

        Parameters
        ----------
        rows : int
            Rows learned so far.
        time : object
            The time of the last of them: a datetime64, a number, or None.
        values : mapping of str to dict
            Model -> metric -> value.
        """
        self.end(rows, time, values)
        if len(self.rows) >= self.limit:
            self.stride *= 2
            kept = [i for i, rows in enumerate(self.rows) if rows % self.stride == 0]
            self.rows = [self.rows[i] for i in kept]
            self.times = [self.times[i] for i in kept]
            self.points = [self.points[i] for i in kept]

    def end(self, rows: int, time: object, values: Mapping[str, Values]) -> None:
        """Set the last point, where the stream ended, unless one stands there.

        Parameters
        ----------
        rows, time, values
            As in ``note``.
        """
        if rows >= self.start and (not self.rows or self.rows[-1] != rows):
            self.rows.append(rows)
            self.times.append(plain_time(time))
            self.points.append(values)

    def curve(self, tallies: Mapping[str, "Tally"]) -> Curve:
        """The curve so far.

        Parameters
        ----------
        tallies : mapping of str to Tally
            The metrics of each model, in order.
        """
        values = {
            model: {
                metric: [point[model][metric] for point in self.points] for metric in tally.metrics
            }
            for model, tally in tallies.items()
        }
        timed = any(time is not None for time in self.times)
        return Curve(list(self.rows), list(self.times) if timed else None, values)

    @property
    def _sound(self) -> bool:
        """Whether points that were read from a file can be points of a curve."""
        counts = (self.limit, self.stride, self.start, *self.rows)
        positive = all(type(count) is int and count > 0 for count in counts)
        return positive and len(self.rows) == len(self.times) == len(self.points) < self.limit


def plain_time(time: object) -> str | float | None:
    """A time as JSON can hold it.

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
        Name -> class of metric, or such a metric.
    window : int, optional
        How many of the last rows ``recent`` is about: O(window) memory.
    last : deque of (y, predictions)
        The targets and predictions of these rows, in blocks.
    """

    metrics: dict[str, Any]
    window: int | None = None
    last: deque[tuple[Array, Array]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        found = self.metrics.items()
        self.metrics = {name: each() if isinstance(each, type) else each for name, each in found}
        self._count = sum(len(y) for y, _ in self.last)

    def add(self, y: Array, said: Array) -> None:
        """Take rows.

        Parameters
        ----------
        y : ndarray of shape (n,) or (n, c)
            The answers.
        said : ndarray of the shape of y
            What was said of the same rows.
        """
        for metric in self.metrics.values():
            metric.add(y, said)
        if self.window is not None:
            # copies: a slice would keep its whole block alive, or see it written over
            self.last.append((y[-self.window :].copy(), said[-self.window :].copy()))
            self._count += len(self.last[-1][0])
            self._forget(self._count - self.window)

    def _forget(self, excess: int) -> None:
        """Let go of the oldest rows beyond the window."""
        while excess > 0:
            y, said = self.last.popleft()
            if len(y) > excess:
                self.last.appendleft((y[excess:], said[excess:]))
            gone = min(len(y), excess)
            self._count -= gone
            excess -= gone

    @property
    def overall(self) -> Values:
        """The metrics over all rows so far."""
        return _plain(self.metrics)

    @property
    def recent(self) -> Values:
        """The metrics over exactly the last ``window`` rows, or all where there are fewer."""
        fresh = {name: type(metric)() for name, metric in self.metrics.items()}
        if self.last:
            y = np.concatenate([y for y, _ in self.last])
            said = np.concatenate([said for _, said in self.last])
            self.last = deque([(y, said)])  # one piece is smaller than many
            for metric in fresh.values():
                metric.add(y, said)
        return _plain(fresh)

    @property
    def _sound(self) -> bool:
        """Whether what was read from a file are metrics and blocks of rows."""
        metrics = all(isinstance(each, Metric) for each in self.metrics.values())
        return metrics and all(y.ndim and y.shape == said.shape for y, said in self.last)

    @property
    def kinds(self) -> dict[str, type[Metric]]:
        """The class of each metric."""
        return {name: type(metric) for name, metric in self.metrics.items()}

    def state(self) -> dict[str, Any]:
        """All of it as plain values and arrays."""
        found: dict[str, Any] = state_dict(self, "Tally")
        return found

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
        CheckpointError
            If it is of a tally with other metrics, or no such thing.
        """
        kinds = self.kinds
        try:
            state = former.tally(state, self.state())
        except (LookupError, TypeError, AttributeError, ValueError) as wrong:
            raise damaged(place, "it holds no metrics") from wrong
        found = from_state(state, place)
        if not (
            type(found) is RollingMetrics and (found.kinds, found.window) == (kinds, self.window)
        ):
            raise damaged(place, "it has other metrics than those of the run")
        vars(self).update(vars(found))


def _plain(metrics: dict[str, Metric]) -> Values:
    """Values as JSON and == can hold them: nan is None."""
    values = {name: float(metric.value) for name, metric in metrics.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


@dataclass(eq=False)
class Ledger:
    """The metrics of models, over all rows and over the last ones, and their curves.

    Parameters
    ----------
    tallies : dict of str to Tally
        The metrics of each model, in order.
    overall_track : Track
        The curve over all rows.
    recent_track : Track or None
        The curve over the last rows.
    rows, skipped : int
        Rows counted so far, and rows left out by the stream.
    time : object
        The time of the last row; None where the stream has no times.
    """

    tallies: dict[str, RollingMetrics]
    overall_track: Track
    recent_track: Track | None
    rows: int = 0
    skipped: int = 0
    time: Any = None

    @classmethod
    def start(
        cls,
        models: Iterable[str],
        kinds: Mapping[str, type[Metric]],
        window: int | None,
        points: int,
    ) -> Self:
        """The ledger before the first row.

        Parameters
        ----------
        models : iterable of str
            The models' names, in order.
        kinds : mapping of str to type
            Name -> class of metric.
        window : int or None
            How many of the last rows ``recent`` is about.
        points : int
            Most points of a curve.
        """
        tallies = {name: RollingMetrics(dict(kinds), window) for name in models}
        recent = None if window is None else Track(points, max(1, window // 4), window)
        return cls(tallies, Track(points), recent)

    def is_like(self, other: Any) -> bool:
        """Whether another ledger is of the same models, metrics, window and number of points."""
        return type(other) is Ledger and self.setup == other.setup

    @property
    def setup(self) -> tuple[Any, ...]:
        """The models with their metrics and windows, and the limit and start of each curve."""
        tallies = {name: (each.kinds, each.window) for name, each in self.tallies.items()}
        return tallies, [(track.limit, track.start) for track in self._tracks]

    @property
    def _tracks(self) -> list[Track]:
        return [each for each in (self.overall_track, self.recent_track) if each is not None]

    @property
    def _sound(self) -> bool:
        """Whether what was read from a file fits together."""
        counts = all(type(count) is int and count >= 0 for count in (self.rows, self.skipped))
        tallies = all(type(tally) is RollingMetrics for tally in self.tallies.values())
        ahead = all(type(track) is Track and track.next > self.rows for track in self._tracks)
        return counts and tallies and ahead

    def add(self, block: Block, said: Mapping[str, Array]) -> None:
        """Count rows.

        Parameters
        ----------
        block : Block
            The rows with their answers; there may be none.
        said : mapping of str to ndarray of the shape of the block's y
            What each model said of them.
        """
        self.skipped += block.skipped
        a = 0
        while a < len(block):
            b = min(len(block), a + min(track.next for track in self._tracks) - self.rows)
            for name, tally in self.tallies.items():
                tally.add(block.y[a:b], said[name][a:b])
            self.rows += b - a
            self.time = None if block.time is None else block.time[b - 1]
            if self.rows == self.overall_track.next:
                self.overall_track.note(self.rows, self.time, self.overall())
            if self.recent_track is not None and self.rows == self.recent_track.next:
                self.recent_track.note(self.rows, self.time, self._last_rows())
            a = b

    def end(self) -> None:
        """The stream has ended: set the curves' last points."""
        self.overall_track.end(self.rows, self.time, self.overall())
        if self.recent_track is not None:
            self.recent_track.end(self.rows, self.time, self._last_rows())

    def overall(self) -> dict[str, Values]:
        """Each model's metrics over all rows so far."""
        return {name: tally.overall for name, tally in self.tallies.items()}

    def recent(self) -> dict[str, Values] | None:
        """The same over the last ``window`` rows; None where no window was asked for."""
        return None if self.recent_track is None else self._last_rows()

    def _last_rows(self) -> dict[str, Values]:
        return {name: tally.recent for name, tally in self.tallies.items()}

    def curves(self) -> tuple[Curve, Curve | None]:
        """The curves over all rows, and over the last ones if a window was asked for."""
        overall = self.overall_track.curve(self.tallies)
        if self.recent_track is None:
            return overall, None
        return overall, self.recent_track.curve(self.tallies)


register(Role.RUN, Track, RollingMetrics, Ledger)
