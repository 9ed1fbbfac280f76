"""Figure of growth.json: six log-log panels with reference slopes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from figures import DOCS, picture

from onepass.evaluate.figures import COLOURS, GREY, new_figure

TITLES = {
    "rows": ("rows seen, p = 5", "Rows: time and memory are constant"),
    "features": ("features p", "Features: p² or p"),
    "outputs": ("outputs c", "Outputs: the triangle is shared"),
    "directions": ("retained directions m, p = 10,000", "Directions: m"),
    "blocks": ("rows per block", "Block size"),
    "threads": ("features p", "One and two threads, wall-clock time"),
}
RIGHT = ("blocks",)  # decreasing curves have their legend on the right
SLOPES = {"features": (1, 2), "outputs": (1,), "directions": (1,)}
MICRO = 1e6


def draw(found: Mapping[str, Any]) -> None:
    """Draw all panels to docs/growth.png."""
    with new_figure((8.6, 4.9), None) as figure:
        panels = figure.subplots(2, 3)
        for axes, (name, (along, title)) in zip(panels.flat, TITLES.items(), strict=True):
            curves = found["parts"].get(name, {})
            panel(axes, curves, SLOPES.get(name, ()), "right" if name in RIGHT else "left")
            axes.set_title(title, loc="left", fontsize=8.5)
            axes.set_xlabel(along)
            if name == "rows":
                memory(axes, curves)
        for axes in panels[:, 0]:
            axes.set_ylabel("µs per row")
        picture(figure, DOCS / "growth.png")


def panel(axes: Any, curves: Mapping[str, Any], slopes: tuple[int, ...], side: str) -> None:
    """Plot time per row for each curve."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = np.inf, 0.0
    for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
        at = np.array([one["at"] for one in points])
        times = MICRO * np.array([one["s"] for one in points])
        axes.plot(at, times, color=colour, lw=1.3, marker="o", ms=2.6, label=name)
        low, high = min(low, times.min()), max(high, times.max())
    if not np.isfinite(low):
        return
    axes.set_ylim(low / 3, high * (12 if high / low < 300 else 40))
    axes.legend(loc=f"upper {side}", frameon=False, fontsize=6.8, handlelength=1.4, borderpad=0.1)
    right = max(one["at"] for points in curves.values() for one in points)
    for slope in slopes:
        points = list(curves.values())[0 if slope == max(slopes) else -1]
        at = np.array([right / 10, right])
        line = 0.4 * MICRO * points[-1]["s"] * (at / right) ** slope
        axes.plot(at, line, color=GREY, lw=0.8, ls=(0, (3, 2)))
        axes.annotate(
            f"slope {slope}", (at.prod() ** 0.5, line.prod() ** 0.5), color=GREY, fontsize=6.5,
            ha="left", va="top", xytext=(2, -1), textcoords="offset points",
        )  # fmt: skip


def memory(axes: Any, curves: Mapping[str, Any]) -> None:
    """Plot the resident size on a second axis."""
    points = next(iter(curves.values()), [])
    if not points:
        return
    other = axes.twinx()
    other.plot(
        [one["at"] for one in points], [one["MB"] for one in points], color=GREY, lw=1.0,
        ls=(0, (1.5, 1.5)),
    )  # fmt: skip
    most = max(one["MB"] for one in points)
    other.set_ylim(0, 2.2 * most)
    other.grid(visible=False)
    other.set_ylabel("resident size, MB (dotted)", color=GREY, fontsize=6.8)
    other.tick_params(labelsize=6.5, colors=GREY)
