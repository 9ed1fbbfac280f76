"""Figures of a continual evaluation: the mean over the tasks so far, and R as a heat map."""

import math
import os
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from onepass.evaluate.continual_measures import ContinualResults, ContinualScore
from onepass.evaluate.continual_tables import percent
from onepass.evaluate.figures import COLOURS, DARK, DASHES, GREY, sheet
from onepass.evaluate.metrics import METRICS
from onepass.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_curves", "draw_matrices"]

_ACROSS = 3  # heat maps side by side
_WRITTEN = 12  # tasks up to which each number is written into its field
_LINE, _TITLE = 28, 34  # letters of a model's name in a line of the legend, and above a heat map
_LETTER, _SIDE = 0.06, 2.1  # inches of a letter beside a heat map, and of its side


def draw_curves(report: ContinualResults, path: str | os.PathLike[str] | None) -> Any:
    """The mean over the tasks so far after each experience, a line a model; bands are ± 1 sd.

    Parameters
    ----------
    report : ContinualResults
        What to show.
    path : path, optional
        Where to write it.
    """
    scale = 100.0 if percent(report) else 1.0
    names = [fill(name, _LINE) for name in report.scores]
    letters = max(len(line) for name in names for line in name.split("\n"))
    lines = sum(name.count("\n") + 1 for name in names)
    size = (5.2 + _LETTER * max(16, letters), max(3.2, 0.17 * lines))
    with sheet(size, path, "ContinualReport.plot", "constrained") as figure:
        axes = figure.subplots()
        x = np.arange(1, len(report.experiences) + 1)
        for k, (name, score) in enumerate(zip(names, report.scores.values(), strict=True)):
            each = scale * _so_far(score)
            colour = COLOURS[k % len(COLOURS)]
            dash = "-" if k < len(COLOURS) else DASHES[k // len(COLOURS) % len(DASHES)]
            mean = each.mean(axis=0)
            axes.plot(x, mean, color=colour, ls=dash, lw=1.4, marker="o", ms=2.5, label=name)
            if len(each) > 1:
                with np.errstate(invalid="ignore"):  # of infinite errors there is none
                    spread = each.std(axis=0, ddof=1)
                axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
        axes.set_xlabel("experiences learned")
        axes.set_ylabel(_label(report))
        _ticks(axes, len(x))
        axes.set_title(f"{report.name}: mean over the tasks so far", loc="left", fontsize=7.5,
                       color=GREY, parse_math=False)  # fmt: skip
        legend = figure.legend(loc="outside right upper", frameon=False, fontsize=7.5)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def draw_matrices(report: ContinualResults, path: str | os.PathLike[str] | None) -> Any:
    """R of each model as a heat map: rows are experiences, columns the tasks tested.

    Parameters
    ----------
    report : ContinualResults
        What to show.
    path : path, optional
        Where to write it.
    """
    scores = report.scores
    scale = 100.0 if percent(report) else 1.0
    shown = {name: scale * score.accuracy_matrix for name, score in scores.items()}
    high = _top(report, list(shown.values()), scale)
    worse = METRICS[report.task][report.metric].better == "lower"
    lowest = [matrix[np.isfinite(matrix)].min(initial=0.0) for matrix in shown.values()]
    low = 0.0 if percent(report) or worse else float(min(lowest))
    across = min(_ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    size = (2.7 * across + 0.8, 2.6 * down + 0.3)
    with sheet(size, path, "ContinualReport.plot_matrix", "constrained") as figure:
        grid = figure.subplots(down, across, squeeze=False)
        for axes in grid.flat[len(shown) :]:
            axes.set_axis_off()
        for axes, (name, matrix) in zip(grid.flat, shown.items(), strict=False):
            image = axes.imshow(
                matrix, cmap="cividis_r" if worse else "cividis", vmin=low, vmax=high
            )
            axes.grid(visible=False)
            title = fill(name, _TITLE)
            axes.set_title(title, loc="left", fontsize=8, color=DARK, parse_math=False)
            _write(axes, matrix, (low, high), dark_high=worse, whole=percent(report))
            _name_sides(axes, report, matrix)
        bar = figure.colorbar(image, ax=grid, shrink=0.8 / down, pad=0.02)
        bar.set_label(_label(report))
        bar.outline.set_visible(False)
    return figure


def _so_far(score: ContinualScore) -> Floats:
    """The mean over the tasks that came by each experience, (S, I); nan before the first has."""
    each = []
    for matrix, run in zip(score.matrices, score.runs, strict=True):
        came = [row[np.array(run.when) <= i] for i, row in enumerate(matrix)]
        each.append([row.mean() if len(row) else np.nan for row in came])
    return np.array(each)


def _label(report: ContinualResults) -> str:
    kind = METRICS[report.task][report.metric]
    return f"{kind.label}, %" if percent(report) else kind.label


def _top(report: ContinualResults, shown: list[Floats], scale: float) -> float:
    """The top of the colours: all for shares, else what most fields do not pass."""
    if percent(report):
        return scale
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in shown])
    return (float(np.quantile(values, 0.95)) if len(values) else 0.0) or 1.0


def _ticks(axes: "Axes", n: int) -> None:
    step = max(1, math.ceil(n / 15))
    axes.set_xticks(range(1, n + 1, step))


def _write(
    axes: "Axes", matrix: Floats, span: tuple[float, float], *, dark_high: bool, whole: bool
) -> None:
    """Each number in its field, where they are few."""
    if max(matrix.shape) > _WRITTEN:
        return
    size = 7.0 if max(matrix.shape) <= 6 else 5.0
    for (i, j), value in np.ndenumerate(matrix):
        if np.isfinite(value):
            bright = (value - span[0]) / ((span[1] - span[0]) or 1.0) > 0.55
            colour = "white" if bright == dark_high else "black"
            text = f"{value:.0f}" if whole or abs(value) >= 9.95 else f"{value:.2g}"
            axes.text(j, i, text, ha="center", va="center", fontsize=size, color=colour)


def _name_sides(axes: "Axes", report: ContinualResults, matrix: Floats) -> None:
    down, across = matrix.shape
    sides = ((axes.xaxis, report.tasks, across), (axes.yaxis, report.experiences, down))
    for side, names, n in sides:
        short = all(len(name) <= 6 for name in names)
        letters = max(len(name) for name in names) if short else len(str(n))
        step = max(1, math.ceil(n * _LETTER * (letters + 1) / _SIDE))
        at = range(0, n, step)
        side.set_ticks(list(at), [names[i] if short else str(i + 1) for i in at])
    axes.tick_params(length=0, labelsize=6.5)
    axes.set_xlabel("tested on")
    axes.set_ylabel("after learning")
