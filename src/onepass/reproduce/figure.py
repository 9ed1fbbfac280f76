"""The figure of a repeated experiment: the paper's curves on the left, ours on the right."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onepass.errors import Floats, need
from onepass.evaluate.figures import COLOURS, DARK, GREY, sheet

if TYPE_CHECKING:
    from onepass.reproduce.outcome import Band, Line, Outcome

__all__ = ["draw"]

_SIZE = (7.2, 5.0)  # inches: two columns of a page
_TRAIN = (0, (1.5, 1.2))
_LEARNED = "--"
_BEHIND = 0.022  # of an axis, from one range over draws to the next


def draw(outcome: "Outcome", path: str | os.PathLike[str] | None) -> Any:
    """Four panels: as published and here, over many rows and of the one learned on the way.

    Bands are the standard deviation over the runs; the bars behind the last step, the range over
    the draws of the images. Where the paper shows nothing, there is no left side.

    Parameters
    ----------
    outcome : Outcome
        What to show.
    path : path or None
        Where to write the figure: .png, .svg or .pdf.

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
    many = [line for line in outcome.lines if line.error in {"test", "train"}]
    one = [line for line in outcome.lines if line.error == "sample"]
    methods = list(dict.fromkeys(line.method for line in many))
    colours = dict(zip(methods, (*COLOURS, *[GREY] * len(methods)), strict=False))
    sides = 1 + any(line.paper is not None for line in many)
    sample = outcome.setup["sample"]
    with sheet(_SIZE, path, "Outcome.plot", layout="constrained") as figure:
        panels = figure.subplots(2, sides, sharex=True, sharey="row", squeeze=False)
        for row, lines in zip(panels, (many, one), strict=True):
            if sides == 2:
                _published(row[0], lines, colours)
            _ours(row[-1], lines, colours)
            _frame(row, lines)
        for axes in panels[1]:
            axes.axvline(sample, color=DARK, ls=_LEARNED, lw=0.8, zorder=1)
            _label(axes, f"row {sample} is learned", sample)
        for axes, title in zip(panels[0], ("as published", "here")[-sides:], strict=True):
            axes.set_title(title, loc="left", fontsize=8, color=DARK)
        kinds = " and ".join(dict.fromkeys(line.error for line in many))
        panels[0][0].set_ylabel(f"{kinds} error, degrees")
        panels[1][0].set_ylabel(f"error of row {sample} alone, degrees")
        _key(figure, many, colours, outcome)
    return figure


def _published(axes: Any, lines: "Iterable[Line]", colours: dict[str, str]) -> None:
    """The paper's curves, with the deviations that it shows after the last step."""
    traced = []
    for line in lines:
        paper = line.paper
        if paper is None or paper in traced:  # one curve may be the paper's for two methods
            continue
        traced.append(paper)
        colour = colours[line.method]
        axes.plot(paper.steps, paper.values, color=colour, **_stroke(line))
        if paper.deviation is not None:
            reach = [paper.values[-1] - paper.deviation, paper.values[-1] + paper.deviation]
            axes.plot([paper.steps[-1]] * 2, reach, color=colour, lw=3, alpha=0.35, clip_on=False)


def _ours(axes: Any, lines: "Sequence[Line]", colours: dict[str, str]) -> None:
    """Our curves in bands of the deviation over runs; behind them, the range over draws."""
    for line in lines:
        ours, colour = line.ours, colours[line.method]
        low, high = _reach(ours)
        axes.fill_between(ours.steps, low, high, color=colour, alpha=0.2, lw=0)
        axes.plot(ours.steps, ours.mean, color=colour, zorder=4, **_stroke(line))
    tested = [line for line in lines if line.error != "train"]
    for i, line in enumerate(tested):
        place = 1.0 + (i + 1) * _BEHIND  # in parts of the axis' width
        ends = [line.ours.low[-1], line.ours.high[-1]]
        beside = {"transform": axes.get_yaxis_transform(), "clip_on": False, "lw": 1.1}
        axes.plot([place] * 2, ends, color=colours[line.method], **beside)
        dot = {**beside, "marker": "o", "ms": 2.6, "lw": 0}
        axes.plot([place], [line.ours.mean[-1]], color=colours[line.method], **dot)


def _stroke(line: "Line") -> dict[str, Any]:
    train = line.error == "train"
    return {"ls": _TRAIN, "lw": 1.1} if train else {"ls": "-", "lw": 1.4}


def _reach(ours: "Band") -> tuple[Floats, Floats]:
    mean, deviation = np.array(ours.mean), np.array(ours.deviation)
    return np.maximum(mean - deviation, 0.0), mean + deviation


def _frame(row: "Sequence[Any]", lines: "Sequence[Line]") -> None:
    """Scales: rows from 1 on, in powers of ten where they are many; degrees from 0 on."""
    last = max(line.ours.steps[-1] for line in lines)
    rows = min(line.ours.steps[-1] for line in lines)
    top = 1.04 * max(_high(line) for line in lines) or 1.0
    row[0].set_ylim(-0.015 * top, top)  # a line at zero is seen whole
    for axes in row:
        if last > 10 * rows:
            axes.set_xscale("log")
        axes.set_xlim(1, max(last, 2))
        if axes.get_subplotspec().is_last_row():
            many = "steps (rows, over all epochs)"
            axes.set_xlabel("rows learned" if last == rows else many)


def _high(line: "Line") -> float:
    known = [max(line.ours.high), float(_reach(line.ours)[1].max())]
    return max(known if line.paper is None else [*known, *line.paper.values])


def _label(axes: Any, text: str, x: float) -> None:
    """Words at the head of an upright line."""
    place = {"xytext": (3, -1), "textcoords": "offset points", "va": "top", "zorder": 6}
    at = {"xycoords": axes.get_xaxis_transform(), "fontsize": 6.5, "color": DARK}
    axes.annotate(text, (x, 1.0), **place, **at)


def _key(figure: Any, lines: "list[Line]", colours: dict[str, str], outcome: "Outcome") -> None:
    """Names and what the strokes mean, above the panels."""
    strokes = need("matplotlib.lines", extra="plot", where="Outcome.plot")
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
            f"{outcome.title}. Bands: ± standard deviation over {setup['runs']} runs; bars behind "
            f"the last step: range over {setup['draws']} draws of the images"
        ),
        title_fontsize=7.5,
        alignment="left",
    )
