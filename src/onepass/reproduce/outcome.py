"""Outcome: what came of repeating a paper's experiment, beside what the paper shows."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from onepass.errors import Array, Floats
from onepass.reproduce.figure import draw
from onepass.reproduce.published import Published
from onepass.reproduce.shown import Shown, rounded

__all__ = ["Band", "Line", "Outcome", "band"]

_FORMAT = 1


@dataclass(frozen=True)
class Band:
    """An error along the stream, over runs and draws of the data, in degrees.

    Parameters
    ----------
    steps : list of int
        Rows learned so far, rows of later epochs counted again.
    mean : list of float
        Over runs and draws.
    low, high : list of float
        Smallest and largest mean over the runs that any draw gave.
    deviation : list of float
        Standard deviation over the runs of a draw, averaged over the draws.
    """

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    deviation: list[float]


@dataclass(frozen=True)
class Line:
    """One method's error of one kind: ours, and the paper's.

    Parameters
    ----------
    method : str
        As the papers call it.
    error : {"test", "train", "sample", "learned"}
        Over the rows to test, over the rows to learn, of one row that is learned on the way, or
        over the rows that have been learned so far.
    ours : Band
    paper : Published, or None
        None where the papers do not show it.
    """

    method: str
    error: str
    ours: Band
    paper: Published | None


@dataclass(frozen=True)
class Outcome(Shown):
    """What came of an experiment.

    Parameters
    ----------
    name : str
        As the command line knows it: ``"orfit-fig6"``.
    title : str
        What is shown.
    source : str
        Where the published numbers stand.
    setup : dict of str to Any
        All that was set, in plain values: enough to repeat it.
    lines : tuple of Line
    remark : str
        What is to be said of them besides.

    Notes
    -----
    The CSV has a row for each step of each line: figure, method, error, step; mean, low, high and
    deviation, as in :class:`Band`; and published, what the paper shows. The figure is the paper's,
    as published on the left and as repeated on the right.
    """

    columns: ClassVar[list[str]] = [
        "method",
        "error",
        "paper",
        "here",
        "range over draws",
        "± over runs",
    ]

    name: str
    title: str
    source: str
    setup: dict[str, Any]
    lines: tuple[Line, ...]
    remark: str = ""

    def line(self, method: str, error: str = "test") -> Line:
        """The line of a method, such as ``outcome.line("ORFit", "train")``.

        Parameters
        ----------
        method : str
            One of those in ``lines``.
        error : {"test", "train", "sample", "learned"}, default="test"
            Of what kind.

        Raises
        ------
        KeyError
            If there is no such line.
        """
        return {(line.method, line.error): line for line in self.lines}[method, error]

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers, those to a thousandth of a degree."""
        tree: dict[str, Any] = rounded(
            {"format": _FORMAT, **asdict(self)}, lambda value: round(value, 3)
        )
        return tree

    def _tables(self) -> Iterable[dict[str, Any]]:
        """Curves: figure, method, error, step; ours as in :class:`Band`; published."""
        return map(self._curve, self.lines)

    def _draw(self, path: str | os.PathLike[str] | None) -> Any:
        """The figure of the paper, as published on the left and as repeated on the right."""
        return draw(self, path)

    def _caption(self) -> str:
        draws, runs = self.setup["draws"], self.setup["runs"]
        said = f"Degrees; {draws} draws of the images, {runs} runs each, seed {self.setup['seed']}."
        return f"{said} {self.remark}".strip()

    def _rows(self) -> Iterator[list[str]]:
        """The table, the errors that the papers show one kind after the other."""
        for error in dict.fromkeys(line.error for line in self.lines):
            if error != "learned":
                yield from (
                    _row(line, self.setup["sample"]) for line in self.lines if line.error == error
                )

    def _curve(self, line: Line) -> dict[str, Array]:
        """A line as columns."""
        ours, paper = line.ours, line.paper
        shown = {} if paper is None else dict(zip(paper.steps, paper.values, strict=True))
        steps = sorted({*ours.steps, *shown})
        said = {"figure": self.name, "method": line.method, "error": line.error}
        columns = {key: np.full(len(steps), text, dtype=object) for key, text in said.items()}
        columns["step"] = np.array(steps, dtype=np.float64)
        for key in ("mean", "low", "high", "deviation"):
            found = dict(zip(ours.steps, getattr(ours, key), strict=True))
            columns[key] = _column(found, steps)
        return {**columns, "published": _column(shown, steps)}


def _row(line: Line, sample: int) -> list[str]:
    """What is said of a line's last step."""
    paper, ours = "–", line.ours
    if line.paper is not None and line.paper.steps[-1] >= 0.99 * ours.steps[-1]:
        spread = "" if line.paper.deviation is None else f" ± {line.paper.deviation:.1f}"
        paper = f"{line.paper.values[-1]:.1f}{spread}"
    here, low, high = (f"{abs(x[-1]):.1f}" for x in (ours.mean, ours.low, ours.high))
    between = here if low == high else f"{low} – {high}"
    error = f"row {sample}" if line.error == "sample" else line.error
    return [line.method, error, paper, here, between, f"{ours.deviation[-1]:.1f}"]


def band(steps: Array, errors: Floats) -> Band:
    """Sum up errors over draws and runs.

    Parameters
    ----------
    steps : ndarray of int of shape (t,)
        When they were measured.
    errors : ndarray of shape (draws, t, runs)
        In degrees.
    """
    means = errors.mean(axis=2)
    return Band(
        steps.tolist(),
        means.mean(axis=0).tolist(),
        means.min(axis=0).tolist(),
        means.max(axis=0).tolist(),
        errors.std(axis=2).mean(axis=0).tolist(),
    )


def _column(found: dict[int, float], steps: list[int]) -> Array:
    """Values at steps, nan where there is none, to a thousandth."""
    values: Array = np.round([found.get(step, np.nan) for step in steps], 3)
    return values + 0.0  # no minus before zero
