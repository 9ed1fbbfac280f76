"""The figures of ``orfit-deep``: bars at the end of the streams, and curves along them."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from onepass.errors import Floats
from onepass.evaluate.figures import COLOURS, DARK, GREY, sheet

if TYPE_CHECKING:
    from onepass.reproduce.orfit_deep_outcome import DeepOutcome, Result

__all__ = ["bars", "curves"]

_WIDE, _HIGH = 1.95, 0.145  # inches: a panel, and a bar
_SHORT = 15.0  # percent, up to which a bar is too short for its number
_DASHES = ("-", (0, (4, 1.4)), (0, (1.2, 1.2)))


def bars(outcome: "DeepOutcome", path: str | os.PathLike[str] | None) -> Any:
    """A panel a stream and network: each method's average at the end, ± its deviation.

    Parameters
    ----------
    outcome : DeepOutcome
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
    streams, networks, methods = _sides(outcome)
    size = (1.3 + _WIDE * len(streams), (0.55 + _HIGH * len(methods)) * len(networks) + 0.3)
    with sheet(size, path, "DeepOutcome.plot", layout="constrained") as figure:
        panels = figure.subplots(len(networks), len(streams), sharey=True, squeeze=False)
        for i, network in enumerate(networks):
            for j, stream in enumerate(streams):
                found = _of(outcome, stream, network)
                _bars(panels[i][j], found, methods)
                _title(panels[i][j], found, stream if i == 0 else "", network if j == 0 else "")
        figure.suptitle(f"{outcome.title}; ± over {outcome.setup['draws']} draws", fontsize=8)
    return figure


def _bars(axes: Any, found: "dict[str, Result]", methods: list[str]) -> None:
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
        if short:  # no room within the bar
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


def curves(outcome: "DeepOutcome", path: str | os.PathLike[str] | None) -> Any:
    """A panel a stream and network: the average over the tasks so far, after each task.

    Parameters
    ----------
    outcome : DeepOutcome
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
    streams, networks, methods = _sides(outcome)
    size = (0.4 + _WIDE * len(streams), 0.75 + 1.75 * len(networks))
    with sheet(size, path, "DeepOutcome.plot_curves", layout="constrained") as figure:
        panels = figure.subplots(len(networks), len(streams), squeeze=False)
        shown: dict[str, Any] = {}
        for i, network in enumerate(networks):
            for j, stream in enumerate(streams):
                found = _of(outcome, stream, network)
                for method in [name for name in methods if name in found]:
                    shown.setdefault(method, _curve(panels[i][j], found[method], methods))
                _title(panels[i][j], found, stream if i == 0 else "", network if j == 0 else "")
                panels[i][j].tick_params(labelsize=6.5)
                if network == networks[-1]:
                    panels[i][j].set_xlabel("tasks learned", fontsize=6.5)
        figure.legend(
            shown.values(), shown.keys(), loc="outside upper left", ncols=6, frameon=False,
            fontsize=6.5, handlelength=2.4, alignment="left", title_fontsize=7.5,
            title="Average over the tasks so far, after each task; bands: ± deviation over "
            f"{outcome.setup['draws']} draws",
        )  # fmt: skip
    return figure


def _curve(axes: Any, result: "Result", methods: list[str]) -> Any:
    along = _so_far(result.matrix())
    tasks = np.arange(1, along.shape[1] + 1)
    mean, spread = along.mean(axis=0), along.std(axis=0)
    colour = _colour(result.method)
    alike = [name for name in methods if _colour(name) == colour]
    dash = _DASHES[alike.index(result.method) % len(_DASHES)]
    if np.isnan(mean[:-1]).all():  # measured at the end alone
        return axes.plot(tasks[-1], mean[-1], "*", color=colour, ms=6, clip_on=False, zorder=5)[0]
    axes.fill_between(tasks, mean - spread, mean + spread, color=colour, alpha=0.12, lw=0)
    return axes.plot(tasks, mean, color=colour, ls=dash, lw=1.2)[0]


def _so_far(matrices: Floats) -> Floats:
    """After each task the mean over the tasks so far, (draws, T)."""
    return np.stack([matrices[:, t, : t + 1].mean(axis=1) for t in range(matrices.shape[1])], 1)


def _sides(outcome: "DeepOutcome") -> tuple[list[str], list[str], list[str]]:
    """Streams, networks and methods, each in order."""
    return tuple(  # type: ignore[return-value]
        list(dict.fromkeys(getattr(result, side) for result in outcome.results))
        for side in ("stream", "network", "method")
    )


def _of(outcome: "DeepOutcome", stream: str, network: str) -> "dict[str, Result]":
    here = (stream, network)
    return {r.method: r for r in outcome.results if (r.stream, r.network) == here}


def _title(axes: Any, found: "dict[str, Result]", stream: str, network: str) -> None:
    error = any(result.measure == "error" for result in found.values())
    if stream:
        axes.set_title(
            f"{stream}\n{'RMSE, degrees (less is better)' if error else 'accuracy, %'}", fontsize=7
        )
    if network:
        axes.set_ylabel(network, fontsize=8, fontweight="bold")


def _colour(method: str) -> str:
    """One colour a family, so that the sizes of one memory are seen as such."""
    families = ("ORFit", "OGD", "GPM", "EWC", "LO-FI", "Replay")
    for family, colour in zip(families, COLOURS, strict=True):
        if method.startswith(family):
            return colour
    return DARK if method == "Joint" else GREY
