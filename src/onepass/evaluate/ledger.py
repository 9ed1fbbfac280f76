"""Ledger: what models said of the rows so far, counted up to each point of the curves."""

from collections.abc import Iterable, Mapping
from typing import Any

from onepass.errors import Array
from onepass.evaluate.blocks import Block
from onepass.evaluate.curve import Curve, Track, Values
from onepass.evaluate.metrics import Metric
from onepass.evaluate.tally import Tally
from onepass.serialization.archive import damaged

__all__ = ["Ledger"]


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
