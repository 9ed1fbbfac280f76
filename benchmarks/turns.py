"""Interleaved timing of several implementations of the same task.

Implementations are timed in rounds, one after the other, so that other load affects all alike. The
medians of the rounds are compared and their spread is recorded. The default clock is the CPU time
of all threads of this process.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

SECONDS = 0.3  # approximate time per implementation and round

Way = Callable[[int], object]
"""Processes the given number of units."""

Clock = Callable[[], float]
"""Returns seconds."""


@dataclass(frozen=True)
class Work:
    """A task, and the rates of its implementations.

    Parameters
    ----------
    name : str
    unit : str
        Unit of the rates.
    ours : str
        Implementation of this library.
    rates : dict of str to list of float
        Implementation -> units per second in each round.
    required : float or None
        Required ratio to the fastest other implementation.
    limit : tuple of str and float, or None
        Limit of the machine and the rate that it allows.
    aside : tuple of str
        Implementations that are shown but not compared.
    note : str
        Note below the table.
    numbers : dict of str to float
        Further measurements.
    aim : float or None
        Desired ratio to the fastest other implementation.
    differs : float or None
        Largest difference of the results of another implementation from those of this library,
        relative to the largest target.
    missing : tuple of str
        Libraries that are not installed.
    errors : dict of str to dict of str to float or None
        Data -> implementation -> error; None if it has no results.
    """

    name: str
    unit: str
    ours: str
    rates: dict[str, list[float]]
    required: float | None = None
    limit: tuple[str, float] | None = None
    aside: tuple[str, ...] = ()
    note: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    aim: float | None = None
    differs: float | None = None
    missing: tuple[str, ...] = ()
    errors: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def median(self, way: str) -> float:
        """Return the median rate over rounds."""
        return float(np.median(self.rates[way]))

    @property
    def best(self) -> str | None:
        """The fastest other implementation."""
        others = [way for way in self.rates if way != self.ours and way not in self.aside]
        return max(others, key=self.median, default=None)

    @property
    def ratio(self) -> float | None:
        """Ratio of this library to the fastest other implementation."""
        return None if self.best is None else self.median(self.ours) / self.median(self.best)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields with medians and ratio."""
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
    """Measure the rates of several implementations in interleaved rounds.

    Parameters
    ----------
    ways : mapping of str to callable
    rounds : int
    least, most : int
        Min and max number of units per round.
    whole : int
        The number of units is a multiple of this.
    seconds : float
        Approximate time per implementation and round.
    clock : callable
        Use ``time.perf_counter`` if the task waits or runs in other processes.
    """
    counts = {name: _fitting(way, least, most, seconds, clock) for name, way in ways.items()}
    counts = {name: max(whole, count // whole * whole) for name, count in counts.items()}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(counts[name] / _seconds(way, counts[name], clock))
    return rates


def difference(ours: Any, others: Sequence[Any], targets: Any) -> float | None:
    """Return the largest difference of results, relative to the largest target.

    NaN, where another implementation has no result, is ignored.
    """
    apart = [np.nanmax(np.abs(np.asarray(ours) - np.asarray(each))) for each in others]
    return float(max(apart) / np.abs(targets).max()) if apart else None


def _seconds(way: Way, count: int, clock: Clock) -> float:
    began = clock()
    way(count)
    return max(clock() - began, 1e-9)


def _fitting(way: Way, least: int, most: int, seconds: float, clock: Clock) -> int:
    """Return the number of units that take about ``seconds``, after a warm-up."""
    way(least)
    count = least
    while (took := _seconds(way, count, clock)) < seconds / 4 and count < most:
        count = min(most, count * 4)
    return max(least, min(most, int(count * seconds / took)))
