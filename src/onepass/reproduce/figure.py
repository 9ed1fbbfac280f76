"""The figure of a repeated experiment: ours as lines in bands, the paper's own curves dashed."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from onepass.evaluate.style import COLOURS, DARK, GREY, sheet
from onepass.extras import need
from onepass.types import Floats

if TYPE_CHECKING:
    from onepass.reproduce.outcome import Line, Outcome

__all__ = ["draw"]

_SIZE = (7.2, 3.1)  # inches: two columns of a page


def draw(outcome: "Outcome", path: str | os.PathLike[str] | None) -> Any:
    """Two panels: the errors over many rows, and of the one row learned on the way.

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
    methods = list(dict.fromkeys(line.method for line in outcome.lines))
    colours = dict(zip(methods, (*COLOURS, *[GREY] * len(methods)), strict=False))
    with sheet(_SIZE, path, "Outcome.plot", layout="constrained") as figure:
        left, right = figure.subplots(1, 2)
        many = [line for line in outcome.lines if line.error != "sample"]
        one = [line for line in outcome.lines if line.error == "sample"]
        for axes, lines in ((left, many), (right, one)):
            _trace(axes, lines, colours)
            _frame(axes, lines)
        sample = outcome.setup["sample"]
        right.axvline(sample, color=GREY, ls=(0, (1, 2)), lw=0.8, zorder=1)
        kinds = " and ".join(dict.fromkeys(line.error for line in many))
        left.set_ylabel(f"{kinds} error, RMSE in degrees")
        right.set_ylabel(f"error of row {sample} alone, degrees")
        _key(figure, many, colours, outcome)
    return figure


def _trace(axes: Any, lines: "Iterable[Line]", colours: dict[str, str]) -> None:
    """Bands below, the paper's curves above them, ours on top and with a dot at its end."""
    traced = []
    for line in lines:
        colour, ours = colours[line.method], line.ours
        train = line.error == "train"
        axes.fill_between(ours.steps, ours.low, ours.high, color=colour, alpha=0.14, lw=0)
        if line.paper is not None and line.paper not in traced:
            traced.append(line.paper)  # one curve may be the paper's for two methods
            dashes = (0, (1.2, 1.2)) if train else (0, (4, 1.6))
            axes.plot(line.paper.steps, line.paper.values, color=colour, ls=dashes, lw=0.9)
        width = 0.8 if train else 1.7
        axes.plot(ours.steps, ours.mean, color=colour, lw=width, zorder=4)
        end = {"marker": "o", "ms": 3 * width**0.5, "clip_on": False, "zorder": 5}
        axes.plot(ours.steps[-1], ours.mean[-1], color=colour, **end)


def _frame(axes: Any, lines: "list[Line]") -> None:
    """Scales: rows from 1 on, in powers of ten where they are many; degrees from 0 on."""
    last = max(line.ours.steps[-1] for line in lines)
    rows = min(line.ours.steps[-1] for line in lines)
    axes.set_xlabel("rows learned" if last == rows else "steps (rows, over all epochs)")
    if last > 10 * rows:
        axes.set_xscale("log")
    axes.set_xlim(1, max(last, 2))
    highest = max(_high(line) for line in lines)
    axes.set_ylim(0, 1.04 * highest or 1.0)


def _high(line: "Line") -> float:
    known: list[Floats] = [np.array(line.ours.high)]
    if line.paper is not None:
        known.append(np.array(line.paper.values))
    return float(max(values.max() for values in known))


def _key(figure: Any, lines: "list[Line]", colours: dict[str, str], outcome: "Outcome") -> None:
    """Names and what the strokes mean, above both panels."""
    strokes = need("matplotlib.lines", extra="plot", where="Outcome.plot")
    shown = [
        strokes.Line2D([], [], color=colours[name], lw=1.7, label=name)
        for name in dict.fromkeys(line.method for line in lines)
    ]
    meanings: list[tuple[str, Any, float]] = [("here", "-", 1.7), ("paper", (0, (4, 1.6)), 0.9)]
    if any(line.error == "train" for line in lines):
        meanings += [("train, here", "-", 0.8), ("train, paper", (0, (1.2, 1.2)), 0.9)]
    shown += [
        strokes.Line2D([], [], color=DARK, ls=dash, lw=width, label=label)
        for label, dash, width in meanings
    ]
    figure.legend(
        handles=shown,
        loc="outside upper left",
        ncols=4,
        frameon=False,
        fontsize=7.5,
        handlelength=2.2,
        columnspacing=1.6,
        title=f"{outcome.title}; bands: range over {outcome.setup['draws']} draws of the images",
        title_fontsize=7.5,
        alignment="left",
    )
