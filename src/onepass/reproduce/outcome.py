"""Outcome: what came of repeating a paper's experiment, beside what the paper shows."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from onepass.durable import writing
from onepass.reproduce.figure import draw
from onepass.types import Array, Floats

__all__ = ["Band", "Line", "Outcome", "Published", "band", "published"]

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
class Published:
    """What a paper shows.

    Parameters
    ----------
    steps : list of int
        As in :class:`Band`.
    values : list of float
        Means over the runs.
    deviation : float, or None
        Standard deviation over the runs after the last step, where the paper shows it.
    """

    steps: list[int]
    values: list[float]
    deviation: float | None = None


@dataclass(frozen=True)
class Line:
    """One method's error of one kind: ours, and the paper's.

    Parameters
    ----------
    method : str
        As the papers call it.
    error : {"test", "train", "sample"}
        Over the rows to test, over the rows to learn, or of one row that is learned on the way.
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
    """

    name: str
    title: str
    source: str
    setup: dict[str, Any]
    lines: tuple[Line, ...]

    def __rich__(self) -> RichTable:
        return self.table()

    def line(self, method: str, error: str = "test") -> Line:
        """The line of a method, such as ``outcome.line("ORFit", "train")``.

        Parameters
        ----------
        method : str
            One of those in ``lines``.
        error : {"test", "train", "sample"}, default="test"
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
        """The same table in Markdown."""
        sides = ["---", "---", *["---:"] * (len(_COLUMNS) - 2)]
        rows = [_COLUMNS, sides, *self._rows()]
        return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"

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

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The figure of the paper, with the paper's own curves dashed.

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
        """Write the numbers, the table and the figure: NAME.json, NAME.md and NAME.png.

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
        paths = [folder / f"{self.name}{suffix}" for suffix in (".json", ".md", ".png")]
        self.to_json(paths[0])
        paths[1].write_text(self.to_markdown(), encoding="utf-8")
        self.plot(paths[2])
        return paths

    def _about(self) -> str:
        return f"{self.setup['draws']} draws of the images, {self.setup['runs']} runs each"

    def _rows(self) -> list[list[str]]:
        return [_row(line) for line in self.lines if line.error != "sample"]


_COLUMNS = ["method", "error", "paper", "here", "range over draws", "± over runs"]


def _row(line: Line) -> list[str]:
    """What is said of a line's last step."""
    paper, ours = "–", line.ours
    if line.paper is not None:
        spread = "" if line.paper.deviation is None else f" ± {line.paper.deviation:.1f}"
        paper = f"{line.paper.values[-1]:.1f}{spread}"
    here, low, high = (f"{abs(x[-1]):.1f}" for x in (ours.mean, ours.low, ours.high))
    between = here if low == high else f"{low} – {high}"
    return [line.method, line.error, paper, here, between, f"{ours.deviation[-1]:.1f}"]


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


def published(file: str, figure: str) -> tuple[str, Mapping[tuple[str, str], Published]]:
    """What a paper shows in a figure, and where: from a file of this package.

    Parameters
    ----------
    file : str
        Such as ``"orfit-published.json"``.
    figure : str
        Such as ``"orfit-fig6"``.

    Returns
    -------
    source : str
    curves : dict of (method, error) to Published

    Examples
    --------
    >>> _, curves = published("orfit-published.json", "orfit-fig7")
    >>> curves["ORFit", "test"].values[-1]
    37.32
    """
    text = files("onepass.reproduce").joinpath(file).read_text(encoding="utf-8")
    tree = json.loads(text)
    curves = {
        (method, error): Published(**curve)
        for method, errors in tree[figure].items()
        for error, curve in errors.items()
    }
    return tree["source"], curves


def _rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _rounded(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_rounded(part) for part in tree]
    return round(tree, 3) if isinstance(tree, float) else tree
