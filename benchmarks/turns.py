"""Turns: ways to do the same work, timed one after the other in rounds, and what came of them.

A busy moment of the machine hits all ways alike; medians of the rounds are compared, and their
spread is written down. Seconds are the processor's, of all threads of this process, where nothing
else is asked for.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

SECONDS = 0.3  # about what a way is timed for in a round

Way = Callable[[int], object]
"""Does so many units of work."""

Clock = Callable[[], float]
"""Seconds since some moment."""


@dataclass(frozen=True)
class Work:
    """A piece of work, and how quickly each does it.

    Parameters
    ----------
    name : str
    unit : str
        What a rate counts, a second.
    ours : str
        The way that is this library's.
    rates : dict of str to list of float
        Units a second of each way, in each round.
    target : float or None
        The ratio to the best of the others that is wanted.
    limit : tuple of str and float, or None
        What of the machine bounds it, and the rate at that.
    aside : tuple of str
        Ways that are shown, and are not peers.
    note : str
        What a reader of the table should know besides.
    numbers : dict of str to float
        Others that were found beside it.
    lead : bool
        Whether it stands among the few that are shown first.
    """

    name: str
    unit: str
    ours: str
    rates: dict[str, list[float]]
    target: float | None = None
    limit: tuple[str, float] | None = None
    aside: tuple[str, ...] = ()
    note: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    lead: bool = False

    def median(self, way: str) -> float:
        """Of the rounds."""
        return float(np.median(self.rates[way]))

    @property
    def best(self) -> str | None:
        """The quickest of the others."""
        others = [way for way in self.rates if way != self.ours and way not in self.aside]
        return max(others, key=self.median, default=None)

    @property
    def ratio(self) -> float | None:
        """Ours to the quickest of the others."""
        return None if self.best is None else self.median(self.ours) / self.median(self.best)

    def to_dict(self) -> dict[str, Any]:
        """All of it, with medians and ratio."""
        medians = {way: self.median(way) for way in self.rates}
        return {**asdict(self), "medians": medians, "best": self.best, "ratio": self.ratio}


def turns(
    ways: Mapping[str, Way],
    rounds: int,
    *,
    least: int = 1,
    most: int = 1 << 40,
    whole: int = 1,
    seconds: float = SECONDS,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Units a second of each way, in each round.

    Parameters
    ----------
    ways : mapping of str to callable
    rounds : int
    least, most : int
        Units that a way may be given.
    whole : int
        Of which it is given multiples.
    seconds : float
        About what a way is timed for in a round.
    clock : callable
        ``time.perf_counter`` where what is measured waits, or has other processes work for it.
    """
    counts = {name: _fitting(way, least, most, seconds, clock) for name, way in ways.items()}
    counts = {name: max(whole, count // whole * whole) for name, count in counts.items()}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(counts[name] / _seconds(way, counts[name], clock))
    return rates


def _seconds(way: Way, count: int, clock: Clock) -> float:
    began = clock()
    way(count)
    return max(clock() - began, 1e-9)


def _fitting(way: Way, least: int, most: int, seconds: float, clock: Clock) -> int:
    """As many units as take about so long; what is loaded or compiled at first is not counted."""
    way(least)
    count = least
    while (took := _seconds(way, count, clock)) < seconds / 4 and count < most:
        count = min(most, count * 4)
    return max(least, min(most, int(count * seconds / took)))
