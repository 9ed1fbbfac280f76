"""Dots: a panel of a figure in which each method has a line, and its numbers dots with bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass.errors import Floats

__all__ = ["Dots", "panel"]


@dataclass(frozen=True)
class Dots:
    """A kind of number that methods have.

    Parameters
    ----------
    label : str
        In the legend.
    colour : str
    means : sequence of float, or array
        Of each method; nan where it has none.
    spreads : sequence of float, array or None
        Standard deviations; None for no bars.
    offset : float
        How far above its line.
    mark : str
        As matplotlib calls it.
    places : int or None
        Digits written beside a dot; None for none.
    """

    label: str
    colour: str
    means: Sequence[float] | Floats
    spreads: Sequence[float] | Floats | None = None
    offset: float = 0.0
    mark: str = "o"
    places: int | None = None


def panel(axes: Any, title: str, methods: Sequence[str], kinds: Sequence[Dots]) -> None:
    """Draw the methods from top to bottom.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    title : str
    methods : sequence of str
    kinds : sequence of Dots
        Those of which any method has a number.
    """
    lines = np.arange(len(methods), dtype=float)[::-1]
    for kind in kinds:
        means, at = np.asarray(kind.means, dtype=float), lines + kind.offset
        some = np.isfinite(means)
        if not some.any():
            continue
        bars = None if kind.spreads is None else np.nan_to_num(np.asarray(kind.spreads))[some]
        axes.errorbar(
            means[some], at[some], xerr=bars, fmt=kind.mark, color=kind.colour, label=kind.label,
            capsize=2, markersize=4 if kind.mark == "o" else 9,
        )  # fmt: skip
        for mean, place in zip(means[some], at[some], strict=True):
            if kind.places is not None:
                axes.annotate(
                    f"{mean:.{kind.places}f}", (mean, place), xytext=(0, 3.5), ha="center",
                    fontsize=6, textcoords="offset points",
                )  # fmt: skip
    axes.set_yticks(lines, methods, fontsize=7)
    axes.set_ylim(-0.7, len(methods) - 0.2)
    axes.margins(x=0.1)
    axes.set_title(title, fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=True, axis="x")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=6, frameon=False, loc="best")
