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
from typing import Any, TypeAlias

import numpy as np

from onepass.evaluate.blocks import Block
from onepass.evaluate.metrics import Metric, kept
from onepass.serialization.archive import damaged
from onepass.types import Array

__all__ = ["Curve", "Ledger", "Tally", "Track", "Values", "plain_time"]


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
        No point stands before this number of rows.
    """

    limit: int
    stride: int = 1
    start: int = 1
    _rows: list[int] = field(default_factory=list)
    _times: list[Any] = field(default_factory=list)
    _points: list[Mapping[str, Values]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next = -(-max(self.start, 1) // self.stride) * self.stride

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
        self._rows.append(rows)
        self._times.append(plain_time(time))
        self._points.append(values)
        if len(self._rows) >= self.limit:
            self._thin()
        self.next = (rows // self.stride + 1) * self.stride

    def end(self, rows: int, time: object, values: Mapping[str, Values]) -> None:
        """Set the last point, where the stream ended, unless one stands there.

        Parameters
        ----------
        rows, time, values
            As in ``note``.
        """
        if rows >= max(self.start, 1) and (not self._rows or self._rows[-1] != rows):
            self._rows.append(rows)
            self._times.append(plain_time(time))
            self._points.append(values)

    def _thin(self) -> None:
        self.stride *= 2
        kept = [i for i, rows in enumerate(self._rows) if rows % self.stride == 0]
        self._rows = [self._rows[i] for i in kept]
        self._times = [self._times[i] for i in kept]
        self._points = [self._points[i] for i in kept]

    def curve(self, models: Mapping[str, object], metrics: tuple[str, ...]) -> Curve:
        """The curve so far.

        Parameters
        ----------
        models : mapping of str to object
            The models, in order.
        metrics : tuple of str
            The metrics, in order.
        """
        values = {
            model: {metric: [point[model][metric] for point in self._points] for metric in metrics}
            for model in models
        }
        timed = any(time is not None for time in self._times)
        return Curve(list(self._rows), list(self._times) if timed else None, values)

    def state(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "stride": self.stride,
            "next": self.next,
            "rows": list(self._rows),
            "times": list(self._times),
            "points": [dict(point) for point in self._points],
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
            If it is no such thing.
        """
        rows, times, points = (list(state[key]) for key in ("rows", "times", "points"))
        counts = [state["stride"], state["next"], *rows]
        if not all(type(count) is int and count > 0 for count in counts):
            raise damaged(place, "the points of a curve stand at no rows")
        if not len(rows) == len(times) == len(points) < self.limit:
            raise damaged(place, "a curve has lost points")
        self.stride, self.next = state["stride"], state["next"]
        self._rows, self._times, self._points = rows, times, points


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


def _plain(metrics: dict[str, Metric]) -> Values:
    """Values as JSON and == can hold them: nan is None."""
    values = {name: float(metric.value) for name, metric in metrics.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


class Ledger:
    """The metrics of models, over all rows and over the last ones, and their curves.

    Parameters
    ----------
    models : iterable of str
        The models' names, in order.
    kinds : dict of str to type
        Name -> class of metric.
    window : int or None
        How many of the last rows ``recent`` is about.
    points : int
        Most points of a curve.

    Attributes
    ----------
    rows, skipped : int
        Rows counted so far, and rows left out by the stream.
    """

    def __init__(
        self,
        models: Iterable[str],
        kinds: dict[str, type[Metric]],
        window: int | None,
        points: int,
    ) -> None:
        self.rows = self.skipped = 0
        self._metrics = tuple(kinds)
        self._tallies = {name: Tally(kinds, window) for name in models}
        self._overall = Track(points)
        self._recent = None if window is None else Track(points, max(1, window // 4), window)
        self._time: Any = None

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
        tracks = [track for track in (self._overall, self._recent) if track is not None]
        a = 0
        while a < len(block):
            b = min(len(block), a + min(track.next for track in tracks) - self.rows)
            for name, tally in self._tallies.items():
                tally.add(block.y[a:b], said[name][a:b])
            self.rows += b - a
            self._time = None if block.time is None else block.time[b - 1]
            if self.rows == self._overall.next:
                self._overall.note(self.rows, self._time, self.overall())
            if self._recent is not None and self.rows == self._recent.next:
                self._recent.note(self.rows, self._time, self._last_rows())
            a = b

    def end(self) -> None:
        """The stream has ended: set the curves' last points."""
        self._overall.end(self.rows, self._time, self.overall())
        if self._recent is not None:
            self._recent.end(self.rows, self._time, self._last_rows())

    @property
    def time(self) -> Any:
        """The time of the last row; None where the stream has no times."""
        return self._time

    def overall(self) -> dict[str, Values]:
        """Each model's metrics over all rows so far."""
        return {name: tally.overall for name, tally in self._tallies.items()}

    def recent(self) -> dict[str, Values] | None:
        """The same over the last ``window`` rows; None where no window was asked for."""
        return None if self._recent is None else self._last_rows()

    def _last_rows(self) -> dict[str, Values]:
        return {name: tally.recent for name, tally in self._tallies.items()}

    def curves(self) -> tuple[Curve, Curve | None]:
        """The curves over all rows, and over the last ones if a window was asked for."""
        overall = self._overall.curve(self._tallies, self._metrics)
        if self._recent is None:
            return overall, None
        return overall, self._recent.curve(self._tallies, self._metrics)

    def state(self) -> dict[str, Any]:
        """All of it as plain values and arrays."""
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "time": self._time,
            "tallies": {name: tally.state() for name, tally in self._tallies.items()},
            "overall": self._overall.state(),
            "recent": None if self._recent is None else self._recent.state(),
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
        CheckpointError, LookupError, TypeError, AttributeError
            If it is of a ledger of other models or metrics, or no such thing.
        """
        if state["tallies"].keys() != self._tallies.keys():
            raise damaged(place, "it counts other models than those of the run")
        if (state["recent"] is None) != (self._recent is None):
            raise damaged(place, "it has another window than the run")
        for name, tally in self._tallies.items():
            tally.restore(state["tallies"][name], place)
        self._overall.restore(state["overall"], place)
        if self._recent is not None:
            self._recent.restore(state["recent"], place)
        if not all(type(state[key]) is int and state[key] >= 0 for key in ("rows", "skipped")):
            raise damaged(place, "it does not say how many rows were counted")
        if self._overall.next <= state["rows"]:
            raise damaged(place, "its curve stands behind its rows")
        self.rows, self.skipped, self._time = state["rows"], state["skipped"], state["time"]
