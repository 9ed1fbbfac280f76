"""What came of repeating the tables of ART-IPCA, beside what the paper shows."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from onepass.reproduce.art_figure import drawn
from onepass.reproduce.shown import Shown, paired

__all__ = ["ArtOutcome", "Entry"]

_FORMAT = 1
_MEGABYTE = 1e6
_BASE = "IPCA"  # what the others are compared with


@dataclass(frozen=True)
class Entry:
    """One method on one data set.

    Parameters
    ----------
    data, method : str
    paper : tuple of two floats, or None
        Accuracy and its standard deviation over runs, percent; None where the paper has none.
    accuracy : list of float
        Of each run, percent.
    prototypes : float
        At the end, on average.
    nbytes : int
        Of the learner at the end, at most.
    compact : int
        Of what answering needs.
    seconds : float or None
        Learning, on average; None without a clock.
    """

    data: str
    method: str
    paper: tuple[float, float] | None
    accuracy: list[float]
    prototypes: float
    nbytes: int
    compact: int
    seconds: float | None

    @property
    def mean(self) -> float:
        """Accuracy on average, percent."""
        return float(np.mean(self.accuracy))

    @property
    def deviation(self) -> float:
        """Its standard deviation over runs; 0 of one run."""
        return float(np.std(self.accuracy, ddof=1)) if len(self.accuracy) > 1 else 0.0


@dataclass(frozen=True)
class ArtOutcome(Shown):
    """What came of a table.

    Parameters
    ----------
    name : str
        As the command line knows it: ``"art-table1"``.
    title : str
        What is shown.
    setup : dict of str to Any
        All that was set, in plain values: enough to repeat it.
    entries : tuple of Entry

    Notes
    -----
    The CSV has a row for each run: data, method, run, accuracy in percent. The figure shows
    accuracy as published and as repeated.
    """

    columns: ClassVar[list[str]] = [
        "data", "method", "paper", "here", "difference", "p of IPCA", "prototypes", "MB",
        "MB compact", "seconds",
    ]  # fmt: skip
    _groups: ClassVar[int] = 1

    name: str
    title: str
    setup: dict[str, Any]
    entries: tuple[Entry, ...]

    def entry(self, data: str, method: str) -> Entry:
        """What a method came to, such as ``outcome.entry("MNIST", "IPCA")``.

        Parameters
        ----------
        data, method : str

        Raises
        ------
        KeyError
            If there is none.
        """
        return {(one.data, one.method): one for one in self.entries}[data, method]

    def chance(self, entry: Entry) -> float | None:
        """How probable such a difference to IPCA is, were there none: p of a paired t-test.

        None of IPCA itself, of fewer than two runs, and where all runs differ by the same.

        Parameters
        ----------
        entry : Entry
        """
        return paired(entry.accuracy, self.entry(entry.data, _BASE).accuracy)

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers."""
        return {"format": _FORMAT, **asdict(self)}

    def _tables(self) -> Iterator[dict[str, Any]]:
        """Runs: data, method, run, accuracy in percent."""
        for one in self.entries:
            yield {
                "data": np.full(len(one.accuracy), one.data, dtype=object),
                "method": np.full(len(one.accuracy), one.method, dtype=object),
                "run": np.arange(len(one.accuracy)),
                "accuracy": np.round(one.accuracy, 3),
            }

    def _draw(self, path: str | os.PathLike[str] | None) -> Any:
        """Accuracy as published and as repeated, a panel for each data set."""
        return drawn(self.title, self.entries, path)

    def _caption(self) -> str:
        setup = self.setup
        several = setup["draws"] > 1
        counted = f"{setup['draws']} runs, each of rows" if several else "One run, of rows"
        tested = "± standard deviation over runs; p of a paired t-test; " if several else ""
        return (
            f"{counted} drawn anew, in an order of its own; seed {setup['seed']}, vigilance "
            f"{setup['vigilance']:g}. {tested}MB of all that was learned, and of what answering "
            "needs."
        )

    def _rows(self) -> Iterator[list[str]]:
        for one in self.entries:
            paper, chance = one.paper, self.chance(one)
            yield [
                one.data,
                one.method,
                "–" if paper is None else f"{paper[0]:.2f} ± {paper[1]:.2f}",
                f"{one.mean:.2f}" + (f" ± {one.deviation:.2f}" if len(one.accuracy) > 1 else ""),
                "–" if paper is None else f"{round(one.mean - paper[0], 2) + 0.0:+.2f}",
                "–" if chance is None else f"{chance:.1g}",
                f"{one.prototypes:,.0f}",
                f"{one.nbytes / _MEGABYTE:.1f}",
                f"{one.compact / _MEGABYTE:.1f}",
                "–" if one.seconds is None else f"{one.seconds:.1f}",
            ]
