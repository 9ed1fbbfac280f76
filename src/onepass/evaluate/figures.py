"""Figures of a prequential evaluation, and the style that all figures share.

Learning curves are drawn at the width of a printed column, in colours that readers with colour
vision deficiency can tell apart. Ticks on a model's curve mark the rows where drift was detected.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onepass.errors import ParameterError, need
from onepass.evaluate.curves import Curve
from onepass.evaluate.drift import Drift
from onepass.evaluate.metrics import METRICS, Metric
from onepass.evaluate.score import Results
from onepass.evaluate.tables import decimals, worded
from onepass.serialization.atomic import writing
from onepass.types import Array, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "DARK", "DASHES", "GREY", "draw", "sheet"]


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's; black and yellow left out."""

GREY, DARK = "#767676", "#444444"
DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))

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
    "pdf.fonttype": 42,  # letters, not outlines: journals ask for it
    "svg.fonttype": "none",
}


@contextmanager
def sheet(
    size: tuple[float, float],
    path: str | os.PathLike[str] | None,
    where: str,
    layout: str | None = None,
) -> Iterator[Any]:
    """An empty figure to draw on, written when the block ends without an error.

    Settings of matplotlib that the user made are left alone.

    Parameters
    ----------
    size : tuple of float
        Width and height, in inches.
    path : path, optional
        Where to write it: .png, .svg or .pdf.
    where : str
        The public call, for messages.
    layout : str, optional
        Which of matplotlib's layout engines places the axes.

    Yields
    ------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ParameterError
        If the path has a suffix that stands for no kind of figure.
    SourceError
        If the file cannot be written.
    """
    matplotlib = need("matplotlib", extra="plot", where=where)
    figures = need("matplotlib.figure", extra="plot", where=where)
    with matplotlib.rc_context(_SETTINGS):
        figure = figures.Figure(figsize=size, dpi=200, layout=layout)
        if path is not None:
            _check_suffix(figure, path, where)
        yield figure
        if path is not None:
            with writing(path, where):
                figure.savefig(path, bbox_inches="tight", pad_inches=0.04)


def _check_suffix(figure: "Figure", path: str | os.PathLike[str], where: str) -> None:
    if Path(path).suffix.lower().lstrip(".") not in figure.canvas.get_supported_filetypes():
        raise ParameterError(
            f"{where}: `path` must end in .png, .svg or .pdf, got {os.fspath(path)!r}. "
            "Give the file another name."
        )


def _tick(
    axes: "Axes",
    along: Array,
    values: Floats,
    drift: dict[str, Drift] | None,
    colour: str,
    *,
    timed: bool,
) -> None:
    """Thin ticks across a curve, one for each alarm that was kept."""
    known = np.isfinite(values)
    for said in (drift or {}).values():
        marks = said.alarms
        if marks.rows and known.any():
            at = np.array(marks.times if timed else marks.rows, dtype=along.dtype)
            height = np.interp(_number(at), _number(along[known]), values[known])
            axes.plot(at, height, ls="", marker="|", ms=12, mew=0.8, color=colour, zorder=5)


def _number(along: Array) -> Floats:
    plain: Floats = along.astype(np.int64 if along.dtype.kind == "M" else np.float64)
    return plain


_SIZE = (5.0, 3.0)  # inches


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
        """The last value that is known; nan where none is."""
        known = self.values[~np.isnan(self.values)]
        return float(known[-1]) if len(known) else np.nan


def draw(report: Results, path: str | os.PathLike[str] | None, metric: str | None) -> Any:
    """The learning curves of one metric.

    Parameters
    ----------
    report : Results
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
        If the report has no such metric, no row was learned, or the suffix is another.
    SourceError
        If the file cannot be written.
    """
    metric = _chosen(report, metric)
    with sheet(_SIZE, path, "Report.plot") as figure:
        axes = figure.add_subplot()
        lines = _lines(report, metric)
        _trace(axes, report, metric, lines)
        axes.set_ylim(*_limits(report, metric, lines))
        _label_axes(axes, report, metric)
        _label_lines(axes, lines, METRICS[report.task][metric])
    return figure


def _chosen(report: Results, metric: str | None) -> str:
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


def _lines(report: Results, metric: str) -> list[_Line]:
    """The curves over all rows: models in colours, baselines in grey."""
    lines = []
    hues = dashes = 0
    for name, score in report.scores.items():
        values = np.array(report.overall.points[name][metric], dtype=np.float64)
        if score.baseline:
            lines.append(_Line(name, values, GREY, DASHES[dashes % len(DASHES)], baseline=True))
            dashes += 1
        else:
            # past the last colour they come again, dashed
            dash = "-" if hues < len(COLOURS) else DASHES[hues // len(COLOURS) % len(DASHES)]
            lines.append(_Line(name, values, COLOURS[hues % len(COLOURS)], dash, baseline=False))
            hues += 1
    return lines


def _trace(axes: "Axes", report: Results, metric: str, lines: list[_Line]) -> None:
    """All lines: the faint ones, over the last rows, lie below."""
    timed = _timed(report)
    if report.recent is not None and len(report.recent):
        x = _along(report.recent, timed=timed)
        for line in lines:
            if not line.baseline:
                recent = _recent(report.recent, line, metric)
                axes.plot(x, recent, color=line.colour, ls=line.dash, lw=0.9, alpha=0.4, zorder=2)
    x = _along(report.overall, timed=timed)
    for line in lines:
        width, level = (1.0, 3) if line.baseline else (1.5, 4)
        axes.plot(
            x,
            line.values,
            color=line.colour,
            ls=line.dash,
            lw=width,
            zorder=level,
            marker="." if np.isfinite(line.values).sum() == 1 else None,
        )
        _tick(axes, x, line.values, report.scores[line.name].drift, line.colour, timed=timed)


def _timed(report: Results) -> bool:
    """Whether the curves stand over time: it is known of each point, goes on, and never back."""
    moments = [_moments(curve) for curve in (report.overall, report.recent) if curve is not None]
    if any(m is None or (m[1:] < m[:-1]).any() for m in moments):
        return False
    overall = moments[0]
    return overall is not None and len(overall) > 1 and bool(overall[-1] > overall[0])


def _moments(curve: Curve) -> Array | None:
    """The times of a curve's points; None where one is unknown, or is text that is no date."""
    if len(curve) == 0:
        return np.empty(0)
    if curve.times is None or None in curve.times:
        return None
    try:
        return np.array(
            curve.times, dtype="datetime64[us]" if isinstance(curve.times[0], str) else np.float64
        )
    except ValueError:
        return None


def _along(curve: Curve, *, timed: bool) -> Array:
    """Where the points stand: in time, or in rows."""
    moments = _moments(curve) if timed else None
    return np.array(curve.rows, dtype=np.float64) if moments is None else moments


def _limits(report: Results, metric: str, lines: list[_Line]) -> tuple[float, float]:
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


def _fence(report: Results, metric: str, lines: list[_Line]) -> tuple[float, float]:
    """What a reader would compare with the best."""
    finals = [line.last for line in lines if np.isfinite(line.last)]
    if METRICS[report.task][metric].better == "higher":
        return max(finals, default=np.inf) - 1.5, np.inf
    return -np.inf, 4.0 * min((value for value in finals if value > 0), default=np.inf)


def _settled(report: Results, curve: Curve, values: Floats, fence: tuple[float, float]) -> Floats:
    """The finite values within the fence, past the first twentieth of the stream."""
    late = np.array(curve.rows) >= report.rows / 20
    return values[late & np.isfinite(values) & (values >= fence[0]) & (values <= fence[1])]


def _span(parts: list[Floats]) -> tuple[float, float]:
    values = np.concatenate(parts)
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _recent(curve: Curve, line: _Line, metric: str) -> Floats:
    return np.array(curve.points[line.name][metric], dtype=np.float64)


def _label_axes(axes: "Axes", report: Results, metric: str) -> None:
    """What is measured, over what."""
    axes.margins(x=0.0)
    dates = need("matplotlib.dates", extra="plot", where="Report.plot")
    tickers = need("matplotlib.ticker", extra="plot", where="Report.plot")
    timed = _timed(report)
    if _along(report.overall, timed=timed).dtype.kind == "M":
        locator = dates.AutoDateLocator(minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    else:
        thousands = tickers.FuncFormatter(lambda value, _: f"{value:,.10g}")
        axes.xaxis.set_major_locator(tickers.MaxNLocator(5, integer=not timed))
        axes.xaxis.set_major_formatter(thousands)
        axes.set_xlabel("time" if timed else "rows learned")
        if not timed:
            axes.set_xlim(0, report.rows)
    axes.yaxis.set_major_locator(tickers.MaxNLocator(5))
    kind = METRICS[report.task][metric]
    label = f"{kind.label} of {report.target}" if report.target else kind.label
    axes.set_ylabel(f"{label}, so far", parse_math=False)
    rows = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
    about = f"{report.source + ': ' if report.source else ''}{rows}, one pass"
    if report.recent is not None and len(report.recent):
        about += f"; faint: last {report.window:,} rows"
    if any(score.drift for score in report.scores.values()):
        about += "; ticks: drift"
    axes.set_title(about, loc="left", fontsize=7.5, color=GREY, pad=6, parse_math=False)


def _label_lines(axes: Any, lines: list[_Line], kind: type[Metric]) -> None:
    """Each line's name and last value at its right end, moved apart where they would overlap.

    A model of which no value is known stands where the worst would.
    """
    low, high = axes.get_ylim()
    worst = -np.inf if kind.better == "higher" else np.inf
    lines = sorted(lines, key=lambda line: worst if np.isnan(line.last) else line.last)
    height = axes.get_position().height * axes.figure.get_size_inches()[1] * 72
    gap = 10.5  # points from line to line of text
    values = [worst if np.isnan(line.last) else line.last for line in lines]
    ends = np.clip([(value - low) / (high - low) * height for value in values], 0, height)
    steps = gap * np.arange(len(lines))
    # least squares under "at least a gap apart" is isotonic regression of the ends less the gaps
    from sklearn.isotonic import isotonic_regression  # noqa: PLC0415  slow to load

    spots = steps + np.clip(isotonic_regression(ends - steps), 0, max(0, height - steps[-1]))
    places = decimals([line.last for line in lines])
    for line, end, spot in zip(lines, ends, spots, strict=True):
        off = " ↑" if line.last > high else " ↓" if line.last < low else ""
        known = not np.isnan(line.last)
        number = worded(line.last, places).replace("-", "−") if known else "–"
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
            parse_math=False,  # a name may hold dollars
            arrowprops=leader if abs(spot - end) > 2 and known and not off else None,
        )
