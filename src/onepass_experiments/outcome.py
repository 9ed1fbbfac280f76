"""Outcome of a reproduced experiment beside the published one: tables, figures and files.

Published curves are read from files of this package and drawn on the left, reproduced curves on the
right.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.stats import ttest_rel

from onepass.errors import import_extra, public
from onepass.evaluate.figures import COLOURS, DARK, GREY, new_figure
from onepass.evaluate.report import BaseReport
from onepass.evaluate.tables import Column, Table, markdown
from onepass.types import Array, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (7.2, 5.0)  # inches: two columns of a page
_TRAIN = (0, (1.5, 1.2))
_LEARNED = "--"
_BEHIND = 0.022  # fraction of the axis between the ranges over draws


def _published(axes: Axes, lines: Iterable[Line], colours: dict[str, str]) -> None:
    """Plot the published curves, with the published deviations after the last step."""
    traced = []
    for line in lines:
        paper = line.paper
        if paper is None or paper in traced:  # two methods may share a published curve
            continue
        traced.append(paper)
        colour = colours[line.method]
        axes.plot(paper.steps, paper.values, color=colour, **_stroke(line))
        if paper.deviation is not None:
            reach = [paper.values[-1] - paper.deviation, paper.values[-1] + paper.deviation]
            axes.plot([paper.steps[-1]] * 2, reach, color=colour, lw=3, alpha=0.35, clip_on=False)


def _ours(axes: Axes, lines: Sequence[Line], colours: dict[str, str]) -> None:
    """Plot the reproduced curves with bands (deviation over runs) and bars (range over draws)."""
    for line in lines:
        ours, colour = line.ours, colours[line.method]
        low, high = _reach(ours)
        axes.fill_between(ours.steps, low, high, color=colour, alpha=0.2, lw=0)
        axes.plot(ours.steps, ours.mean, color=colour, zorder=4, **_stroke(line))
    tested = [line for line in lines if line.error != "train"]
    for i, line in enumerate(tested):
        place = 1.0 + (i + 1) * _BEHIND  # in parts of the axis' width
        ends = [line.ours.low[-1], line.ours.high[-1]]
        style: dict[str, Any] = {
            "transform": axes.get_yaxis_transform(),
            "clip_on": False,
            "lw": 1.1,
        }
        axes.plot([place] * 2, ends, color=colours[line.method], **style)
        dot: dict[str, Any] = {**style, "marker": "o", "ms": 2.6, "lw": 0}
        axes.plot([place], [line.ours.mean[-1]], color=colours[line.method], **dot)


def _stroke(line: Line) -> dict[str, Any]:
    train = line.error == "train"
    return {"ls": _TRAIN, "lw": 1.1} if train else {"ls": "-", "lw": 1.4}


def _reach(ours: Band) -> tuple[Floats, Floats]:
    mean, deviation = np.array(ours.mean), np.array(ours.deviation)
    return np.maximum(mean - deviation, 0.0), mean + deviation


def _frame(row: Sequence[Any], lines: Sequence[Line]) -> None:
    """Set the axes: rows from 1, logarithmic for many epochs; degrees from 0."""
    last = max(line.ours.steps[-1] for line in lines)
    rows = min(line.ours.steps[-1] for line in lines)
    top = 1.04 * max(_high(line) for line in lines) or 1.0
    row[0].set_ylim(-0.015 * top, top)  # keep a line at zero visible
    for axes in row:
        if last > 10 * rows:
            axes.set_xscale("log")
        axes.set_xlim(1, max(last, 2))
        if axes.get_subplotspec().is_last_row():
            many = "steps (rows, over all epochs)"
            axes.set_xlabel("rows learned" if last == rows else many)


def _high(line: Line) -> float:
    known = [max(line.ours.high), float(_reach(line.ours)[1].max())]
    return max(known if line.paper is None else [*known, *line.paper.values])


def _label(axes: Axes, text: str, x: float) -> None:
    """Label a vertical line at its top."""
    place: dict[str, Any] = {
        "xytext": (3, -1),
        "textcoords": "offset points",
        "va": "top",
        "zorder": 6,
    }
    at: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "fontsize": 6.5, "color": DARK}
    axes.annotate(text, (x, 1.0), **place, **at)


def _key(figure: Figure, lines: list[Line], colours: dict[str, str], outcome: Outcome) -> None:
    """Draw the legend above the panels."""
    strokes = import_extra("matplotlib.lines", extra="plot")
    shown = [
        strokes.Line2D([], [], color=colours[name], lw=1.4, label=name)
        for name in dict.fromkeys(line.method for line in lines)
    ]
    if any(line.error == "train" for line in lines):
        shown += [
            strokes.Line2D([], [], color=DARK, ls="-", lw=1.4, label="test"),
            strokes.Line2D([], [], color=DARK, ls=_TRAIN, lw=1.1, label="train"),
        ]
    setup = outcome.setup
    figure.legend(
        handles=shown,
        loc="outside upper left",
        ncols=4,
        frameon=False,
        fontsize=7.5,
        handlelength=2.0,
        columnspacing=1.6,
        title=(
            f"{outcome.title}. Bands: ± standard deviation over {setup['runs']} runs; bars after "
            f"the last step: range over {setup['draws']} draws of the images"
        ),
        title_fontsize=7.5,
        alignment="left",
    )


@dataclass(frozen=True)
class Published:
    """A published curve.

    Parameters
    ----------
    steps : list of int
        Number of rows learned so far, counted in every epoch.
    values : list of float
        Mean error over the runs.
    deviation : float, or None
        Standard deviation over the runs after the last step, if published.
    """

    steps: list[int]
    values: list[float]
    deviation: float | None = None


def published(file: str, figure: str) -> tuple[str, Mapping[tuple[str, str], Published]]:
    """Return the source and the published curves of a figure.

    Parameters
    ----------
    file : str
        Name of the file in this package, such as ``"orfit-published.json"``.
    figure : str
        Name of the figure, such as ``"orfit-fig6"``.

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
    text = files("onepass_experiments").joinpath(file).read_text(encoding="utf-8")
    tree = json.loads(text)
    curves = {
        (method, error): Published(**curve)
        for method, errors in tree[figure].items()
        for error, curve in errors.items()
    }
    return tree["source"], curves


class ExperimentOutcome(BaseReport):
    """Base class of outcomes with a name, a title and rows of text.

    ``save`` writes NAME.json (everything), NAME.csv (numbers), NAME.md (table) and NAME.png.

    Attributes
    ----------
    name : str
        Name on the command line.
    title : str
        Title of the table and the figure.
    columns : list of str
        Column headings of the table.
    """

    columns: ClassVar[list[str]]
    _words: ClassVar[int] = 2
    """Number of leading text columns; the other columns contain numbers."""
    _groups: ClassVar[int] = 0
    """Number of leading columns that are equal within a section of the table."""

    name: str
    title: str

    @abstractmethod
    def _values(self) -> Iterable[dict[str, Any]]:
        """Yield all numbers as records with the same keys; None for missing numbers."""

    def _record_kinds(self) -> Mapping[str, Callable[[], Iterable[dict[str, Any]]]]:
        return {"scores": self._values}

    @abstractmethod
    def _rows(self) -> Iterator[list[str]]:
        """Yield the rows of the table."""

    @abstractmethod
    def _caption(self) -> str:
        """Return the text below the table."""

    def _table(self) -> Table:
        columns = as_columns(self.columns, self._rows(), self._words)
        return Table(self.title, columns, self._caption(), groups=self._groups)

    def to_markdown(self) -> str:
        """Return the table in Markdown, with its caption."""
        table = self._table()
        return "\n".join([*markdown(table.columns), "", table.caption, ""])

    def _files(self) -> Mapping[str, Callable[[Path], object]]:
        return {
            f"{self.name}.json": self.to_json,
            f"{self.name}.csv": self.to_csv,
            f"{self.name}.md": self._write_markdown,
            f"{self.name}.png": self.plot,
        }


def as_columns(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> list[Column]:
    """Convert rows of text to table columns.

    Parameters
    ----------
    heads : sequence of str
    rows : iterable of sequence of str
    words : int
        Number of leading text columns.
    """
    cells = list(zip(*rows, strict=True)) or [() for _ in heads]
    return [
        Column(head, column, words=i < words)
        for i, (head, column) in enumerate(zip(heads, cells, strict=True))
    ]


def paired(ours: Sequence[float] | Floats, base: Sequence[float] | Floats) -> float | None:
    """Return the p-value of a two-sided paired t-test; None if the test is undefined.

    It is undefined for fewer than two pairs, equal differences, and values that are not finite.

    Parameters
    ----------
    ours, base : sequence of float, or array
        One number per run.
    """
    if len(ours) < 2 or not (np.isfinite(ours).all() and np.isfinite(base).all()):
        return None
    if np.ptp(np.subtract(ours, base)) < 1e-9:  # rounding
        return None
    return float(ttest_rel(ours, base).pvalue)


@dataclass(frozen=True)
class Band:
    """Error along the stream over runs and draws of the data, in degrees.

    Parameters
    ----------
    steps : list of int
        Number of rows learned so far, counted in every epoch.
    mean : list of float
        Mean over runs and draws.
    low, high : list of float
        Smallest and largest over draws of the mean over runs.
    deviation : list of float
        Standard deviation over the runs of a draw, averaged over draws.
    """

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    deviation: list[float]


@dataclass(frozen=True)
class Line:
    """Reproduced and published error of one kind for one method.

    Parameters
    ----------
    method : str
        Name of the method in the papers.
    error : {"test", "train", "sample", "learned"}
        Error over the test rows, over the training rows, on a single training row, or over the
        training rows learned so far.
    ours : Band
    paper : Published, or None
        None if not published.
    """

    method: str
    error: str
    ours: Band
    paper: Published | None


@dataclass(frozen=True)
class Outcome(ExperimentOutcome):
    """Outcome of an experiment with curves.

    Parameters
    ----------
    name : str
        Name on the command line: ``"orfit-fig6"``.
    title : str
        Title of the table and the figure.
    source : str
        Source of the published numbers.
    setup : dict of str to Any
        All settings as plain values, sufficient to repeat the run.
    lines : tuple of Line
    remark : str
        Additional text for the caption.

    Notes
    -----
    The CSV has one row per step and line: figure, method, error, step; mean, low, high and
    deviation, as in :class:`Band`; and the published value. The figure shows the published
    curves on the left and the reproduced ones on the right.
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
        """Return the line of a method, such as ``outcome.line("ORFit", "train")``.

        Parameters
        ----------
        method : str
            Name of a method in ``lines``.
        error : {"test", "train", "sample", "learned"}, default="test"
            Kind of error.

        Raises
        ------
        KeyError
            If there is no such line.
        """
        return {(line.method, line.error): line for line in self.lines}[method, error]

    def _rounded(self, value: float) -> float:
        """Round to a thousandth of a degree."""
        return round(float(value), 3)

    def _values(self) -> Iterator[dict[str, Any]]:
        """Yield one record per step and line: figure, method, error, step; as in :class:`Band`."""
        for line in self.lines:
            paper = line.paper
            published = {} if paper is None else dict(zip(paper.steps, paper.values, strict=True))
            keys = ("mean", "low", "high", "deviation")
            ours = {key: dict(zip(line.ours.steps, getattr(line.ours, key), strict=True))
                    for key in keys}  # fmt: skip
            found = {**ours, "published": published}
            for step in sorted({*line.ours.steps, *published}):
                row = {"figure": self.name, "method": line.method, "error": line.error}
                values = {key: _thousandth(values.get(step)) for key, values in found.items()}
                yield {**row, "step": step, **values}

    @public
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot four panels: published and reproduced errors, over all rows and on a single row.

        Bands show the standard deviation over the runs, and bars after the last step the range over
        the draws of the images. Without published curves the left column is omitted. Parameters and
        errors as of ``Report.plot``.
        """
        many = [line for line in self.lines if line.error in {"test", "train"}]
        one = [line for line in self.lines if line.error == "sample"]
        methods = list(dict.fromkeys(line.method for line in many))
        colours = dict(zip(methods, (*COLOURS, *[GREY] * len(methods)), strict=False))
        sides = 1 + any(line.paper is not None for line in many)
        sample = self.setup["sample"]
        with new_figure(_SIZE, path) as figure:
            panels = figure.subplots(2, sides, sharex=True, sharey="row", squeeze=False)
            for row, lines in zip(panels, (many, one), strict=True):
                if sides == 2:
                    _published(row[0], lines, colours)
                _ours(row[-1], lines, colours)
                _frame(row, lines)
            for axes in panels[1]:
                axes.axvline(sample, color=DARK, ls=_LEARNED, lw=0.8, zorder=1)
                _label(axes, f"row {sample} is learned", sample)
            for axes, title in zip(panels[0], ("published", "reproduced")[-sides:], strict=True):
                axes.set_title(title, loc="left", fontsize=8, color=DARK)
            kinds = " and ".join(dict.fromkeys(line.error for line in many))
            panels[0][0].set_ylabel(f"{kinds} error, degrees")
            panels[1][0].set_ylabel(f"error of row {sample} alone, degrees")
            _key(figure, many, colours, self)
        return figure

    def _caption(self) -> str:
        draws, runs = self.setup["draws"], self.setup["runs"]
        text = f"Degrees; {draws} draws of the images, {runs} runs each, seed {self.setup['seed']}."
        return f"{text} {self.remark}".strip()

    def _rows(self) -> Iterator[list[str]]:
        """Yield the rows of the table, grouped by kind of error."""
        for error in dict.fromkeys(line.error for line in self.lines):
            if error != "learned":
                yield from (
                    _row(line, self.setup["sample"]) for line in self.lines if line.error == error
                )


def _row(line: Line, sample: int) -> list[str]:
    """Return the table row of a line: its errors after the last step."""
    paper, ours = "–", line.ours
    if line.paper is not None and line.paper.steps[-1] >= 0.99 * ours.steps[-1]:
        spread = "" if line.paper.deviation is None else f" ± {line.paper.deviation:.1f}"
        paper = f"{line.paper.values[-1]:.1f}{spread}"
    here, low, high = (f"{abs(x[-1]):.1f}" for x in (ours.mean, ours.low, ours.high))
    between = here if low == high else f"{low} – {high}"
    error = f"row {sample}" if line.error == "sample" else line.error
    return [line.method, error, paper, here, between, f"{ours.deviation[-1]:.1f}"]


def band(steps: Array, errors: Floats) -> Band:
    """Summarize errors over draws and runs.

    Parameters
    ----------
    steps : ndarray of int of shape (t,)
        Steps at which the errors were measured.
    errors : ndarray of shape (draws, t, runs)
        Errors in degrees.
    """
    means = errors.mean(axis=2)
    return Band(
        steps.tolist(),
        means.mean(axis=0).tolist(),
        means.min(axis=0).tolist(),
        means.max(axis=0).tolist(),
        errors.std(axis=2).mean(axis=0).tolist(),
    )


def _thousandth(value: float | None) -> float | None:
    return None if value is None else round(value, 3) + 0.0  # + 0.0 turns -0.0 into 0.0
