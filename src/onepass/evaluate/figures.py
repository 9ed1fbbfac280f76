"""Figures of reports: style, learning curves, lines with bands, dot plots and heat maps.

The colours are distinguishable with colour vision deficiency. Learning curves have the width of a
printed column; ticks on a curve mark rows at which drift was detected.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from onepass.errors import ParameterError, import_extra
from onepass.evaluate.tables import decimals, format_number
from onepass.serialization.atomic import write_errors
from onepass.types import Array, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Palette of Okabe and Ito without black and yellow."""

GREY, DARK = "#767676", "#444444"
_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))

_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": DARK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.color": DARK,
    "ytick.color": DARK,
    "xtick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "xtick.minor.size": 0.0,
    "ytick.major.width": 0.0,
    "pdf.fonttype": 42,  # embed fonts, as journals require
    "svg.fonttype": "none",
}


@contextmanager
def new_figure(size: tuple[float, float], path: str | os.PathLike[str] | None) -> Iterator[Any]:
    """Create an empty figure, and write it when the block ends without an error.

    Settings of matplotlib are not changed.

    Parameters
    ----------
    size : tuple of float
        Width and height, in inches.
    path : path, optional
        File to which the figure is written: .png, .svg or .pdf.

    Yields
    ------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ParameterError
        If the suffix of the path is unknown.
    SourceError
        If the file cannot be written.
    """
    matplotlib = import_extra("matplotlib", extra="plot")
    figures = import_extra("matplotlib.figure", extra="plot")
    with matplotlib.rc_context(_SETTINGS):
        figure = figures.Figure(figsize=size, dpi=200, layout="constrained")
        if path is not None:
            suffix = Path(path).suffix.lower().lstrip(".")
            if suffix not in figure.canvas.get_supported_filetypes():
                raise ParameterError(
                    f"`path` must end in .png, .svg or .pdf, got {os.fspath(path)!r}. "
                    "Rename the file."
                )
        yield figure
        if path is not None:
            with write_errors(path):
                figure.savefig(path, bbox_inches="tight", pad_inches=0.04)


def _stroke(k: int) -> dict[str, Any]:
    """Return the colour and dashes of the k-th line; after the last colour, dashed lines follow.

    Parameters
    ----------
    k : int
        Index of the line, from 0.
    """
    around = k // len(COLOURS)
    dash = _DASHES[around % len(_DASHES)] if around else "-"
    return {"color": COLOURS[k % len(COLOURS)], "ls": dash}


def band(axes: Axes, x: Any, mean: Any, spread: Any, alpha: float = 0.15, **line: Any) -> Any:
    """Draw a line with a band of deviations.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    x, mean, spread : array-like of shape (n,)
        The band is mean ± spread; None for no band.
    alpha : float
        Opacity of the band.
    **line
        Properties of the line, including ``color``.

    Returns
    -------
    matplotlib.lines.Line2D
    """
    if spread is not None:
        mean, spread = np.asarray(mean), np.asarray(spread)
        axes.fill_between(x, mean - spread, mean + spread, color=line["color"], alpha=alpha, lw=0)
    return axes.plot(x, mean, **line)[0]


@dataclass(frozen=True)
class Dots:
    """One series of a dot plot: one number per row.

    Parameters
    ----------
    label : str
        Label in the legend.
    colour : str
    means : sequence of float, or array
        One value per row; nan if missing.
    spreads : sequence of float, array or None
        Standard deviations; None for no bars.
    offset : float
        Vertical offset from the row.
    mark : str
        Marker of matplotlib.
    places : int or None
        Decimals of the number beside each dot; None for no numbers.
    """

    label: str
    colour: str
    means: Sequence[float] | Floats
    spreads: Sequence[float] | Floats | None = None
    offset: float = 0.0
    mark: str = "o"
    places: int | None = None


_ACROSS = 2  # dot plots side by side
_WIDTH, _ROW, _HEAD, _MARGIN = 4.6, 0.19, 0.75, 0.6  # inches: of a dot plot, of its parts, of all


def dot_plots(
    title: str,
    plots: Mapping[str, tuple[Sequence[str], Sequence[Dots]]],
    path: str | os.PathLike[str] | None,
) -> Any:
    """Draw dot plots with one legend: one row per name, with one dot per series.

    Parameters
    ----------
    title : str
    plots : mapping of str to tuple
        Title of each plot -> names of its rows, from top to bottom, and its series.
    path : path, optional
        As in :func:`new_figure`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    across = min(_ACROSS, len(plots))
    lines = [len(names) * len({one.offset for one in series}) for names, series in plots.values()]
    high = [_HEAD + _ROW * max(lines[i : i + across]) for i in range(0, len(lines), across)]
    with new_figure((_WIDTH * across, sum(high) + _MARGIN), path) as figure:
        panels = figure.subplots(len(high), across, squeeze=False, height_ratios=high).ravel()
        for axes in panels[len(plots) :]:
            axes.set_visible(False)
        shown: dict[str, Any] = {}
        for axes, (heading, (names, series)) in zip(panels, plots.items(), strict=False):
            _draw_dots(axes, names, series)
            axes.set_title(heading, fontsize=8)
            handles, labels = axes.get_legend_handles_labels()
            shown = dict(zip(labels, handles, strict=True)) | shown
        figure.suptitle(title, fontsize=10)
        figure.legend(
            shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown),
            frameon=False, fontsize=7,
        )  # fmt: skip
    return figure


def _draw_dots(axes: Axes, names: Sequence[str], series: Sequence[Dots]) -> None:
    rows = np.arange(len(names), dtype=float)[::-1]
    for one in series:
        means, at = np.asarray(one.means, dtype=float), rows + one.offset
        some = np.isfinite(means)
        if not some.any():
            continue
        bars = None if one.spreads is None else np.nan_to_num(np.asarray(one.spreads))[some]
        axes.errorbar(
            means[some], at[some], xerr=bars, fmt=one.mark, color=one.colour, label=one.label,
            capsize=2, markersize=4 if one.mark == "o" else 9,
        )  # fmt: skip
        for mean, place in zip(means[some], at[some], strict=True):
            if one.places is not None:  # on the side away from other series
                below = one.offset < 0
                axes.annotate(
                    f"{mean:.{one.places}f}", (mean, place), xytext=(0, -3.5 if below else 3.5),
                    ha="center", va="top" if below else "bottom", fontsize=6,
                    textcoords="offset points",
                )  # fmt: skip
    axes.set_yticks(rows, names, fontsize=7)
    axes.set_ylim(-0.7, len(names) - 0.2)
    axes.margins(x=0.1)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=True, axis="x")


_MAX_WRITTEN = 12  # maximum number of rows for numbers in the cells
_LETTER, _SIDE = 0.06, 2.1  # width of a letter, and side of a heat map, in inches


def heat_map(
    axes: Axes,
    values: Floats,
    names: tuple[Sequence[str], Sequence[str]],
    span: tuple[float, float],
    *,
    lower_is_better: bool,
) -> Any:
    """Draw a matrix as a heat map; bright is good, and small matrices show their numbers.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    values : ndarray of shape (n, m)
    names : tuple of sequence of str
        Names of rows and of columns; long names are replaced by numbers.
    span : tuple of float
        The values at both ends of the colour map.
    lower_is_better : bool

    Returns
    -------
    matplotlib.image.AxesImage
        The image, for a colour bar.
    """
    low, high = span
    colours = "cividis_r" if lower_is_better else "cividis"
    image = axes.imshow(values, cmap=colours, vmin=low, vmax=high)
    axes.grid(visible=False)
    size = max(values.shape)
    for (i, j), value in np.ndenumerate(values if size <= _MAX_WRITTEN else np.empty((0, 0))):
        if np.isfinite(value):
            bright = (value - low) / ((high - low) or 1.0) > 0.55
            text = f"{value:.0f}" if high == 100.0 or abs(value) >= 9.95 else f"{value:.2g}"
            axes.text(
                j, i, text, ha="center", va="center", fontsize=7.0 if size <= 6 else 5.0,
                color="white" if bright == lower_is_better else "black",
            )  # fmt: skip
    for side, given, n in zip((axes.yaxis, axes.xaxis), names, values.shape, strict=True):
        short = all(len(name) <= 6 for name in given)
        letters = max(len(name) for name in given) if short else len(str(n))
        step = max(1, math.ceil(n * _LETTER * (letters + 1) / _SIDE))
        at = range(0, n, step)
        side.set_ticks(list(at), [given[i] if short else str(i + 1) for i in at])
    axes.tick_params(length=0, labelsize=6.5)
    return image


_LEGEND = 28  # maximum number of letters in a line of the legend
_TICKS = 100  # alarms up to which each has a mark
_BINS = 150  # of the rate of more alarms
_POINTS = 30  # points of a curve up to which each has a marker


@dataclass(frozen=True)
class Line:
    """The learning curve of a model.

    Parameters
    ----------
    name : str
    x : ndarray of shape (n,)
        Rows, times or numbers of experiences.
    values : ndarray of shape (n,)
        The metric over all rows or experiences so far.
    spread : ndarray of shape (n,), or None
        Standard deviation, drawn as a band.
    recent : tuple of ndarray of shape (m,), or None
        x and the metric over the last rows.
    baseline : bool
    alarms : ndarray of shape (k,)
        Rows or times at which drift was detected.
    """

    name: str
    x: Array
    values: Floats
    spread: Floats | None = None
    recent: tuple[Array, Floats] | None = None
    baseline: bool = False
    alarms: Array = field(default_factory=lambda: np.empty(0))

    @property
    def last(self) -> float:
        """Last defined value; nan if there is none."""
        defined = self.values[~np.isnan(self.values)]
        return float(defined[-1]) if len(defined) else np.nan


def learning_curves(
    lines: Sequence[Line],
    labels: tuple[str, str, str],
    path: str | os.PathLike[str] | None,
    *,
    lower_is_better: bool,
) -> Any:
    """Draw learning curves, with a legend of their last values, the highest above.

    Parameters
    ----------
    lines : sequence of Line
        Models in colours, baselines in grey; at least one, all with the same x.
    labels : tuple of str
        Labels of both axes, and the title.
    path : path, optional
        As in :func:`new_figure`.
    lower_is_better : bool

    Returns
    -------
    matplotlib.figure.Figure
    """
    low, high = _limits(lines, lower_is_better=lower_is_better)
    places = decimals(line.last for line in lines)
    names = {line.name: fill(f"{line.name} {_shown(line, low, high, places)}", _LEGEND)
             for line in lines}  # fmt: skip
    width = max(len(part) for name in names.values() for part in name.split("\n"))
    height = sum(name.count("\n") + 1 for name in names.values())
    size = (5.0 + _LETTER * max(16, width), max(3.0, 0.17 * height))
    with new_figure(size, path) as figure:
        axes = figure.add_subplot()
        axes.set_ylim(low, high)
        drawn, models, baselines, strips = {}, count(), cycle(_DASHES), count()
        for line in lines:
            grey = {"color": GREY, "ls": next(baselines)} if line.baseline else None
            look = (grey or _stroke(next(models))) | {"label": names[line.name]}
            drawn[line.name] = _trace(axes, line, look)
            if len(line.alarms) > _TICKS:
                _draw_rate(axes, line.alarms, look["color"], next(strips))
        worst = np.inf if lower_is_better else -np.inf
        order = sorted(lines, key=lambda line: worst if np.isnan(line.last) else line.last)
        legend = figure.legend(
            handles=[drawn[line.name] for line in reversed(order)], loc="outside right center",
            frameon=False, fontsize=7.5, labelcolor="linecolor",
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)  # names may contain dollar signs
        _label_axes(axes, lines[0].x, labels)
    return figure


def _shown(line: Line, low: float, high: float, places: int) -> str:
    """Return the last value of a curve, with an arrow if it is outside of the limits."""
    off = " ↑" if line.last > high else " ↓" if line.last < low else ""
    return format_number(line.last, places).replace("-", "−") + off


def _trace(axes: Axes, line: Line, look: dict[str, Any]) -> Any:
    """Draw a curve, a faint curve over the last rows, and ticks where drift was detected."""
    colour = look["color"]
    if line.recent is not None:
        axes.plot(*line.recent, color=colour, ls=look["ls"], lw=0.9, alpha=0.4, zorder=2)
    width, level = (1.0, 3) if line.baseline else (1.5, 4)
    defined = np.isfinite(line.values)
    marker = "." if defined.sum() <= _POINTS else None
    if 0 < len(line.alarms) <= _TICKS and defined.any():
        height = np.interp(_numbers(line.alarms), _numbers(line.x[defined]), line.values[defined])
        axes.plot(line.alarms, height, ls="", marker="|", ms=12, mew=0.8, color=colour, zorder=5)
    return band(
        axes, line.x, line.values, line.spread, **look, lw=width, zorder=level, marker=marker
    )


def _draw_rate(axes: Axes, alarms: Array, colour: Any, strip: int) -> None:
    """Draw the rate of many alarms along the stream, as a strip at the lower edge."""
    counts, edges = np.histogram(_numbers(alarms), bins=_BINS)
    if alarms.dtype.kind == "M":
        edges = edges.astype("datetime64[us]")
    height, across = 0.05 * counts / counts.max(), axes.get_xaxis_transform()
    bottom = 0.06 * strip
    axes.fill_between(
        edges, bottom, bottom + np.append(height, height[-1]), step="post", color=colour, lw=0.0,
        alpha=0.5, transform=across, zorder=1,
    )  # fmt: skip
    axes.text(
        1.01, bottom, "drift", color=colour, fontsize=6.0, va="bottom", transform=axes.transAxes
    )


def _numbers(along: Array) -> Floats:
    plain: Floats = along.astype(np.int64 if along.dtype.kind == "M" else np.float64)
    return plain


def _limits(lines: Sequence[Line], *, lower_is_better: bool) -> tuple[float, float]:
    """Return the limits of the y axis, independent of first points and of models that diverged.

    The limits cover values after a twentieth of the points up to four times the error of the best
    model, or down to 1.5 below its score, in units of a score above 1. Baselines that would make
    the models indistinguishable are outside of the limits, and are marked by an arrow.
    """
    finals = [line.last for line in lines if np.isfinite(line.last)]
    least, most = -np.inf, 4.0 * min((value for value in finals if value > 0), default=np.inf)
    if not lower_is_better:
        best = max(finals, default=0.0)
        least, most = best - 1.5 * max(1.0, abs(best)), np.inf

    first = (len(lines[0].x) - 1) // 20

    def span(some: Sequence[Line]) -> tuple[float, float]:
        parts = []
        for line in some:
            spread = 0.0 if line.spread is None else line.spread
            parts += [(line.values - spread)[first:], (line.values + spread)[first:]]
            if line.recent is not None:
                parts.append(line.recent[1][line.recent[0] >= line.x[first]])
        values = np.concatenate(parts)
        values = values[np.isfinite(values) & (values >= least) & (values <= most)]
        return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)

    models = [line for line in lines if not line.baseline] or lines
    low, high = span(models)
    wide = span(lines)
    if len(models) == 1 or high - low >= 0.25 * (wide[1] - wide[0]):
        low, high = wide
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return low - margin, high + margin


def _label_axes(axes: Axes, x: Array, labels: tuple[str, str, str]) -> None:
    """Label the axes, and set their ticks."""
    from matplotlib import dates, ticker  # noqa: PLC0415  installed, since there are axes

    axes.margins(x=0.01)
    along, measured, title = labels
    if x.dtype.kind == "M":
        locator = dates.AutoDateLocator(minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    else:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=along != "time"))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:,.10g}"))
        axes.set_xlabel(along)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.set_ylabel(measured, parse_math=False)
    axes.set_title(title, loc="left", fontsize=7.5, color=GREY, pad=6, parse_math=False)
