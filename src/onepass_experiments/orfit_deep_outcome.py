"""Outcome of ``orfit-deep``: the score of each method on each task after each task, and figures.

With a_tj the accuracy on the test rows of task j after the t-th of T tasks was learned, in percent
(or the root mean square error in degrees, where the target is an angle):

    average accuracy   (1/T) Σ_j a_Tj                                                     [1] (1)
    forgetting         (1/(T − 1)) Σ_{j<T} (max_{j≤t<T} a_tj − a_Tj)                       [2] (2)

For errors the minimum replaces the maximum and the sign is reversed, so that more forgetting is
always a larger number. Figures show the final averages as bars, and the averages over time as
curves.

[1] D. Lopez-Paz, M. Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
[2] A. Chaudhry et al., "Riemannian walk for incremental learning", ECCV 2018, section 3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from onepass.errors import public
from onepass.evaluate.continual_measures import MEASURES, TaskScores
from onepass.evaluate.figures import COLOURS, DARK, GREY, band, new_figure
from onepass.evaluate.report import map_floats
from onepass.evaluate.tables import markdown, plus_minus
from onepass.types import Floats
from onepass_experiments.outcome import ExperimentOutcome, as_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE, _HIGH = 1.95, 0.145  # inches: width of a panel, height of a bar
_SHORT = 15.0  # percent; shorter bars have no room for their number
_DASHES = ("-", (0, (4, 1.4)), (0, (1.2, 1.2)))


def _bars(axes: Axes, found: dict[str, Result], methods: list[str]) -> None:
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    for place, method in enumerate(methods):
        if method not in found:
            continue
        values = found[method].last
        mean, spread = float(np.mean(values)), float(np.std(values, ddof=len(values) > 1))
        colour = _colour(method)
        axes.barh(place, mean, height=0.72, color=colour, alpha=0.85)
        axes.errorbar(mean, place, xerr=spread, color=DARK, lw=0.8, capsize=1.5)
        short = found[method].measure == "accuracy" and mean - spread < _SHORT
        if short:  # no room inside the bar
            axes.text(mean + spread + 2.0, place, f"{mean:.1f}", va="center", fontsize=5.6)
            continue
        axes.text(
            0.03, place, f"{mean:.1f}", va="center", fontsize=5.6, color="white",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
    axes.set_yticks(range(len(methods)), methods, fontsize=6.5)
    axes.tick_params(axis="x", labelsize=6.5)
    axes.set_ylim(len(methods) - 0.4, -0.6)
    if any(result.measure == "accuracy" for result in found.values()):
        axes.set_xlim(0, 100)


def _curve(axes: Axes, result: Result, methods: list[str]) -> Any:
    along = np.stack([_scored(matrix).so_far for matrix in result.matrix()])
    tasks = np.arange(1, along.shape[1] + 1)
    mean, spread = along.mean(axis=0), along.std(axis=0)
    colour = _colour(result.method)
    family = [name for name in methods if _colour(name) == colour]
    dash = _DASHES[family.index(result.method) % len(_DASHES)]
    if np.isnan(mean[:-1]).all():  # measured only at the end
        return axes.plot(tasks[-1], mean[-1], "*", color=colour, ms=6, clip_on=False, zorder=5)[0]
    return band(axes, tasks, mean, spread, alpha=0.12, color=colour, ls=dash, lw=1.2)


def _colour(method: str) -> str:
    """Return the colour of the method's family; memory sizes of one method share a colour."""
    families = ("ORFit", "OGD", "GPM", "EWC", "LO-FI", "Replay")
    for family, colour in zip(families, COLOURS, strict=True):
        if method.startswith(family):
            return colour
    return DARK if method == "Joint" else GREY


Measure: TypeAlias = Literal["accuracy", "error"]


def average(matrix: Floats) -> float:
    """Return (1) for a matrix (T, T); all rows except the last may contain nan.

    Examples
    --------
    >>> average(np.array([[90.0, 10.0], [50.0, 80.0]]))
    65.0
    """
    return MEASURES["average"](_scored(matrix))


def forgetting(matrix: Floats, measure: Measure = "accuracy") -> float:
    """Return (2) for a matrix (T, T); nan if only the last row was measured.

    Parameters
    ----------
    matrix : ndarray of shape (T, T)
        a_tj.
    measure : {"accuracy", "error"}, default="accuracy"
        Whether higher (accuracy) or lower (error) is better.

    Examples
    --------
    >>> forgetting(np.array([[90.0, 10.0], [50.0, 80.0]]))
    40.0
    """
    return MEASURES["forgetting"](_scored(matrix, 1.0 if measure == "accuracy" else -1.0))


def _scored(matrix: Floats, sign: float = 1.0) -> TaskScores:
    tasks = len(matrix)
    return TaskScores(matrix, np.full(tasks, np.nan), np.arange(tasks), sign)


@dataclass(frozen=True)
class Result:
    """One method on one stream with one network.

    Parameters
    ----------
    stream, network, method : str
        Names of the stream, the network and the method.
    measure : {"accuracy", "error"}
        Accuracy in percent (higher is better), or error in degrees (lower is better).
    settings : dict of str to Any
        Settings of the method.
    matrices : list of list of list of float or None
        a_tj of each draw, (draws, T, T); None if not measured.
    nbytes : int
        Size of the state besides the weights, at the end.
    seconds : list of float or None
        Training time per row for each draw; None without a clock.
    stopped : str or None
        Error that stopped the method, if any; the model at that point is scored.
    """

    stream: str
    network: str
    method: str
    measure: Measure
    settings: dict[str, Any]
    matrices: list[list[list[float | None]]]
    nbytes: int
    seconds: list[float | None]
    stopped: str | None = None

    def matrix(self) -> Floats:
        """Return a_tj of all draws, (draws, T, T); nan if not measured."""
        return np.array(self.matrices, dtype=float)

    @property
    def last(self) -> list[float]:
        """Average (1) for each draw."""
        return [average(one) for one in self.matrix()]

    @property
    def forgetting(self) -> list[float]:
        """Forgetting (2) for each draw."""
        return [forgetting(one, self.measure) for one in self.matrix()]


@dataclass(frozen=True)
class DeepOutcome(ExperimentOutcome):
    """Outcome of the experiment ``orfit-deep``.

    Parameters
    ----------
    name : str
        Name on the command line.
    title : str
        Title of the table and the figures.
    setup : dict of str to Any
        All settings as plain values, sufficient to repeat the run.
    results : tuple of Result
        Results, grouped by stream.

    Notes
    -----
    The CSV has one row per draw and result: stream, network, method, draw, measure, last,
    forgetting, bytes, seconds_per_row. The figure shows the final averages as bars.
    ``save`` also writes NAME-curves.png.
    """

    columns: ClassVar[list[str]] = [
        "stream", "network", "method", "final average", "forgetting", "memory", "ms per row",
    ]  # fmt: skip
    _words: ClassVar[int] = 3
    _groups: ClassVar[int] = 2

    name: str
    title: str
    setup: dict[str, Any]
    results: tuple[Result, ...]

    def result(self, stream: str, network: str, method: str) -> Result:
        """Return the result of a method, such as ``outcome.result("Split MNIST", "mlp", "SGD")``.

        Raises
        ------
        KeyError
            If there is no such result.
        """
        known = {(r.stream, r.network, r.method): r for r in self.results}
        return known[stream, network, method]

    def _rounded(self, value: float) -> float:
        """Round to six significant digits."""
        return float(f"{value:.6g}")

    def to_markdown(self) -> str:
        """Return one Markdown table per stream."""
        parts = []
        for stream in dict.fromkeys(result.stream for result in self.results):
            chosen = [row for row in self._rows() if row[0] == stream]
            table = markdown(as_columns(self.columns, chosen, self._words)[1:])
            parts.append("\n".join([f"### {stream}", "", *table]))
        return "\n\n".join(parts) + "\n"

    @public
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot each method's final average ± standard deviation, one panel per stream and network.

        Parameters and errors as of ``Report.plot``.
        """
        streams, networks, methods = self._sides()
        size = (1.3 + _WIDE * len(streams), (0.55 + _HIGH * len(methods)) * len(networks) + 0.3)
        with new_figure(size, path) as figure:
            for axes, found in self._panels(figure, sharey=True):
                _bars(axes, found, methods)
            draws = f"mean ± standard deviation over {self.setup['draws']} draws"
            figure.suptitle(f"{self.title}; {draws}", fontsize=8)
        return figure

    @public
    def plot_curves(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the average over the tasks so far after each task, per stream and network.

        Parameters and errors as of ``Report.plot``.
        """
        streams, networks, methods = self._sides()
        size = (0.4 + _WIDE * len(streams), 0.75 + 1.75 * len(networks))
        with new_figure(size, path) as figure:
            shown: dict[str, Any] = {}
            for axes, found in self._panels(figure, sharey=False):
                for method in (name for name in methods if name in found):
                    shown.setdefault(method, _curve(axes, found[method], methods))
                axes.tick_params(labelsize=6.5)
                if axes.get_subplotspec().is_last_row():
                    axes.set_xlabel("tasks learned", fontsize=6.5)
            figure.legend(
                shown.values(), shown.keys(), loc="outside upper left", ncols=6, frameon=False,
                fontsize=6.5, handlelength=2.4, alignment="left", title_fontsize=7.5,
                title="Average over the tasks so far, after each task; bands: ± standard deviation "
                f"over {self.setup['draws']} draws",
            )  # fmt: skip
        return figure

    def _panels(self, figure: Any, *, sharey: bool) -> Iterator[tuple[Any, dict[str, Result]]]:
        """Yield an empty panel for each stream (column) and network (row) with its results."""
        streams, networks, _ = self._sides()
        panels = figure.subplots(len(networks), len(streams), sharey=sharey, squeeze=False)
        for row, network in zip(panels, networks, strict=True):
            for axes, stream in zip(row, streams, strict=True):
                here = (stream, network)
                found = {r.method: r for r in self.results if (r.stream, r.network) == here}
                error = any(result.measure == "error" for result in found.values())
                kind = "RMSE, degrees (lower is better)" if error else "accuracy, %"
                if axes.get_subplotspec().is_first_row():
                    axes.set_title(f"{stream}\n{kind}", fontsize=7)
                if axes.get_subplotspec().is_first_col():
                    axes.set_ylabel(network, fontsize=8, fontweight="bold")
                yield axes, found

    def _sides(self) -> tuple[list[str], list[str], list[str]]:
        """Return streams, networks and methods, each in order."""
        return tuple(  # type: ignore[return-value]
            list(dict.fromkeys(getattr(result, side) for result in self.results))
            for side in ("stream", "network", "method")
        )

    def _files(self) -> Mapping[str, Callable[[Path], object]]:
        return {**super()._files(), f"{self.name}-curves.png": self.plot_curves}

    def _caption(self) -> str:
        return f"± over {self.setup['draws']} draws"

    def _rows(self) -> Iterator[list[str]]:
        return map(_row, self.results)

    def _values(self) -> Iterator[dict[str, Any]]:
        """Yield one record per draw and result, rounded to six digits."""
        for r in self.results:
            row = {"stream": r.stream, "network": r.network, "method": r.method}
            for i, last in enumerate(r.last):
                values = {"last": last, "forgetting": r.forgetting[i]}
                rest = {**values, "bytes": r.nbytes, "seconds_per_row": r.seconds[i]}
                yield {**row, "draw": i, "measure": r.measure, **map_floats(rest, self._rounded)}


def _row(r: Result) -> list[str]:
    """Format a result: mean ± standard deviation over the draws."""
    unit = " %" if r.measure == "accuracy" else "°"
    lost = [value for value in r.forgetting if not np.isnan(value)]
    known = [seconds for seconds in r.seconds if seconds is not None]
    pace = f"{1000 * np.mean(known):.2f}" if known else "–"
    end = _spread(r.last, unit) + (" (stopped)" if r.stopped else "")
    return [
        r.stream, r.network, r.method, end, _spread(lost, unit) if lost else "–",
        _size(r.nbytes), pace,
    ]  # fmt: skip


def _spread(values: Sequence[float], unit: str) -> str:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return plus_minus(f"{np.mean(values):.1f}", deviation, 1) + unit


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB" if nbytes else "0"
