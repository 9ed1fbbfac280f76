"""A report as a figure: learning curves fit to print at the width of a column."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.isotonic import isotonic_regression

from onepass.errors import ParameterError
from onepass.evaluate.curve import Curve
from onepass.evaluate.metrics import METRICS
from onepass.evaluate.sheet import decimals, worded
from onepass.extras import need
from onepass.types import Array, Floats

if TYPE_CHECKING:
    from onepass.evaluate.report import Report

__all__ = ["draw"]

# Okabe and Ito's colours, told apart by all kinds of eyes; black and yellow left out
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#767676"
_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))
_SIZE = (5.0, 3.0)  # inches
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.0,
    "xtick.major.size": 3.0,
    "pdf.fonttype": 42,  # letters, not outlines: journals ask for it
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class _Line:
    """One model's curve over all rows, how it looks, and where it ends."""

    name: str
    values: Floats
    colour: str
    dash: Any
    baseline: bool

    @property
    def last(self) -> float:
        known = self.values[~np.isnan(self.values)]
        return float(known[-1]) if len(known) else np.nan


def draw(report: "Report", path: str | os.PathLike[str] | None, metric: str | None) -> Any:
    """The learning curves of one metric.

    Parameters
    ----------
    report : Report
        What to show.
    path : path or None
        Where to write the figure: .png, .svg or .pdf.
    metric : str or None
        One of the report's; its first by default.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ParameterError
        If the report has no such metric, or no row was learned.
    """
    metric = _chosen(report, metric)
    matplotlib = need("matplotlib", extra="plot", where="Report.plot")
    figures = need("matplotlib.figure", extra="plot", where="Report.plot")
    with matplotlib.rc_context(_STYLE):
        figure = figures.Figure(figsize=_SIZE, dpi=200)
        axes = figure.add_subplot()
        lines = _lines(report, metric)
        _trace(axes, report, metric, lines)
        axes.set_ylim(*_limits(report, metric, lines))
        _label_axes(axes, report, metric)
        _label_lines(axes, lines)
        if path is not None:
            figure.savefig(path, bbox_inches="tight", pad_inches=0.04)
    return figure


def _chosen(report: "Report", metric: str | None) -> str:
    """The metric to draw."""
    chosen = report.metrics[0] if metric is None else metric
    if chosen not in report.metrics:
        raise ParameterError(
            f"Report.plot: `metric` must be one of the report's, {', '.join(report.metrics)}, "
            f"got {metric!r}. Name it in op.evaluate.prequential(..., metrics=[...])."
        )
    if not report.rows:
        raise ParameterError(
            "Report.plot: the report must be about at least 1 row, got 0. "
            "Check that the stream has rows with answers."
        )
    return chosen


def _lines(report: "Report", metric: str) -> list[_Line]:
    """The curves over all rows: models in colours, baselines in grey."""
    lines = []
    hues = dashes = 0
    for name, score in report.scores.items():
        values = np.array(report.overall.points[name][metric], dtype=np.float64)
        if score.baseline:
            lines.append(_Line(name, values, _GREY, _DASHES[dashes % len(_DASHES)], baseline=True))
            dashes += 1
        else:
            # past the last colour they come again, dashed
            dash = "-" if hues < len(_COLOURS) else _DASHES[hues // len(_COLOURS) % len(_DASHES)]
            lines.append(_Line(name, values, _COLOURS[hues % len(_COLOURS)], dash, baseline=False))
            hues += 1
    return lines


def _trace(axes: Any, report: "Report", metric: str, lines: list[_Line]) -> None:
    """All lines: the faint ones, over the last rows, lie below."""
    if report.recent is not None and len(report.recent):
        x = _along(report.recent)
        for line in lines:
            if not line.baseline:
                recent = _recent(report.recent, line, metric)
                axes.plot(x, recent, color=line.colour, ls=line.dash, lw=0.9, alpha=0.4, zorder=2)
    x = _along(report.overall)
    for line in lines:
        width, level = (1.0, 3) if line.baseline else (1.5, 4)
        axes.plot(
            x,
            line.values,
            color=line.colour,
            ls=line.dash,
            lw=width,
            zorder=level,
            marker="." if len(x) == 1 else None,
        )


def _along(curve: Curve) -> Array:
    """Where the points stand: in time where it is known of each, otherwise in rows."""
    if curve.times is None or None in curve.times:
        return np.array(curve.rows, dtype=np.float64)
    if isinstance(curve.times[0], str):
        return np.array(curve.times, dtype="datetime64[us]")
    return np.array(curve.times, dtype=np.float64)


def _limits(report: "Report", metric: str, lines: list[_Line]) -> tuple[float, float]:
    """The range that matters: neither the first rows nor a model that went astray rule it.

    Values count from the first twentieth of the stream on, and as far as a reader would compare
    them with the best: to four times its error, or 1.5 below its share. Baselines so far off that
    several models could not be told apart beside them are left outside, as an arrow.
    """
    fence = _fence(report, metric, lines)
    models = [line for line in lines if not line.baseline] or lines
    shown = [_settled(report, report.overall, line.values, fence) for line in models]
    if report.recent is not None:
        for line in (line for line in models if not line.baseline):
            recent = _recent(report.recent, line, metric)
            shown.append(_settled(report, report.recent, recent, fence))
    low, high = _span(shown)
    every = [_settled(report, report.overall, line.values, fence) for line in lines]
    wide = _span([*shown, *every])
    if len(models) == 1 or high - low >= 0.25 * (wide[1] - wide[0]):
        low, high = wide
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return low - margin, high + margin


def _fence(report: "Report", metric: str, lines: list[_Line]) -> tuple[float, float]:
    """What a reader would compare with the best."""
    finals = [line.last for line in lines if np.isfinite(line.last)]
    if METRICS[report.task][metric].better == "higher":
        return max(finals, default=np.inf) - 1.5, np.inf
    return -np.inf, 4.0 * min((value for value in finals if value > 0), default=np.inf)


def _settled(report: "Report", curve: Curve, values: Floats, fence: tuple[float, float]) -> Floats:
    """The finite values within the fence, past the first twentieth of the stream."""
    late = np.array(curve.rows) >= report.rows / 20
    return values[late & np.isfinite(values) & (values >= fence[0]) & (values <= fence[1])]


def _span(parts: list[Floats]) -> tuple[float, float]:
    values = np.concatenate(parts)
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _recent(curve: Curve, line: _Line, metric: str) -> Floats:
    return np.array(curve.points[line.name][metric], dtype=np.float64)


def _label_axes(axes: Any, report: "Report", metric: str) -> None:
    """What is measured, over what."""
    axes.margins(x=0.0)
    dates = need("matplotlib.dates", extra="plot", where="Report.plot")
    tickers = need("matplotlib.ticker", extra="plot", where="Report.plot")
    x = _along(report.overall)
    if x.dtype.kind == "M":
        locator = dates.AutoDateLocator(minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    else:
        thousands = tickers.FuncFormatter(lambda value, _: f"{value:,.10g}")
        axes.xaxis.set_major_locator(tickers.MaxNLocator(5))
        axes.xaxis.set_major_formatter(thousands)
        in_rows = report.overall.times is None or None in report.overall.times
        axes.set_xlabel("rows learned" if in_rows else "time")
        if in_rows:
            axes.set_xlim(0, report.rows)
    axes.yaxis.set_major_locator(tickers.MaxNLocator(5))
    kind = METRICS[report.task][metric]
    axes.set_ylabel(f"{kind.label} of {report.target}" if report.target else kind.label)
    about = f"{report.source + ': ' if report.source else ''}{report.rows:,} rows, one pass"
    if report.recent is not None and len(report.recent):
        about += f"; faint: last {report.window:,} rows"
    axes.set_title(about, loc="left", fontsize=7.5, color=_GREY, pad=6)


def _label_lines(axes: Any, lines: list[_Line]) -> None:
    """Each line's name and last value at its right end, moved apart where they would overlap."""
    lines = sorted((line for line in lines if not np.isnan(line.last)), key=lambda line: line.last)
    if not lines:
        return
    low, high = axes.get_ylim()
    height = axes.get_position().height * axes.figure.get_size_inches()[1] * 72
    gap = 10.5  # points from line to line of text
    ends = np.clip([(line.last - low) / (high - low) * height for line in lines], 0, height)
    steps = gap * np.arange(len(lines))
    # least squares under "at least a gap apart" is isotonic regression of the ends less the gaps
    spots = steps + np.clip(isotonic_regression(ends - steps), 0, max(0, height - steps[-1]))
    places = decimals([line.last for line in lines])
    for line, end, spot in zip(lines, ends, spots, strict=True):
        off = " ↑" if line.last > high else " ↓" if line.last < low else ""
        number = worded(line.last, places).replace("-", "−")
        leader = {
            "arrowstyle": "-",
            "color": line.colour,
            "linewidth": 0.5,
            "shrinkA": 1,
            "shrinkB": 1,
            "relpos": (0.0, 0.5),
        }
        axes.annotate(
            f"{line.name} {number}{off}",
            xy=(1.0, end / height),
            xycoords="axes fraction",
            xytext=(12, spot - end),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=8,
            color=line.colour,
            annotation_clip=False,
            arrowprops=leader if abs(spot - end) > 2 and not off else None,
        )
