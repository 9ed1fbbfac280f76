"""Learning curves of bounded length: a stride doubles when there are too many points.

Points stand where the number of rows is a multiple of the stride, which begins at ``stride``. When
``limit`` points are reached, the stride doubles and every point that is no multiple of it goes. So
a stream of any length leaves between limit/2 and limit points, evenly spaced, and where they stand
depends on the number of rows alone, never on how the stream was cut into blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from onepass.serialization.archive import damaged

__all__ = ["Curve", "Track", "Values", "plain_time"]

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

    def note(self, rows: int, time: Any, values: Mapping[str, Values]) -> None:
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

    def end(self, rows: int, time: Any, values: Mapping[str, Values]) -> None:
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

    def curve(self, models: Mapping[str, Any], metrics: tuple[str, ...]) -> Curve:
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


def plain_time(time: Any) -> Any:
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
