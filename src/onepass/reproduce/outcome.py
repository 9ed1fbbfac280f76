"""Outcome: what came of repeating a paper's experiment, beside what the paper shows."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table as RichTable

from onepass.durable import writing
from onepass.reproduce.figure import draw
from onepass.reproduce.published import Published
from onepass.stream import write
from onepass.types import Array, Floats

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
class Outcome:
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
    """

    name: str
    title: str
    source: str
    setup: dict[str, Any]
    lines: tuple[Line, ...]
    remark: str = ""

    def __rich__(self) -> RichTable:
        return self.table()

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

    def table(self) -> RichTable:
        """The errors after the last step as a table for a terminal."""
        table = RichTable(title=self.title, caption=f"degrees; {self._about()}")
        for column in _COLUMNS:
            table.add_column(column, justify="left" if column in _COLUMNS[:2] else "right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """The same table in Markdown, with what is said of it below."""
        sides = ["---", "---", *["---:"] * (len(_COLUMNS) - 2)]
        rows = [_COLUMNS, sides, *self._rows()]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([*lines, "", f"Degrees; {self._about()}", ""])

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers."""
        return {"format": _FORMAT, **asdict(self), "lines": [asdict(line) for line in self.lines]}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """All of it as JSON, numbers to a thousandth of a degree.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.

        Raises
        ------
        SourceError
            If the file cannot be written.
        """
        text = json.dumps(_rounded(self.to_dict()), ensure_ascii=False, allow_nan=False)
        if path is not None:
            with writing(path, "Outcome.to_json"):
                Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """All curves as one table, a row for each step of each line; numbers as in JSON.

        Its columns are figure, method, error, step; mean, low, high and deviation, as in
        :class:`Band`; and published, what the paper shows. A field is empty where one of the two
        was not measured at this step.

        Parameters
        ----------
        path : path
            Where to write it: .csv, .tsv, .csv.gz, .tsv.gz or .parquet.

        Raises
        ------
        ParameterError
            If the path has another suffix.
        SourceError
            If the file cannot be written.
        """
        write(map(self._curve, self.lines), path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The figure of the paper, as published on the left and as repeated on the right.

        Parameters
        ----------
        path : path, optional
            Where to write it; the suffix says how: .png, .svg, .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the path has another suffix.
        SourceError
            If the file cannot be written.
        """
        return draw(self, path)

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write NAME.json, NAME.csv, NAME.md and NAME.png: numbers, curves, table and figure.

        Parameters
        ----------
        directory : path
            Made if it is not there.

        Returns
        -------
        paths : list of Path
            What was written.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed: then all but the figure is written.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}{suffix}" for suffix in (".json", ".csv", ".md", ".png")]
        self.to_json(paths[0])
        self.to_csv(paths[1])
        with writing(paths[2], "Outcome.save"):
            paths[2].write_text(self.to_markdown(), encoding="utf-8")
        self.plot(paths[3])
        return paths

    def _about(self) -> str:
        draws, runs = self.setup["draws"], self.setup["runs"]
        said = f"{draws} draws of the images, {runs} runs each, seed {self.setup['seed']}."
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


_COLUMNS = ["method", "error", "paper", "here", "range over draws", "± over runs"]


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


def _rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _rounded(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_rounded(part) for part in tree]
    return round(tree, 3) if isinstance(tree, float) else tree
