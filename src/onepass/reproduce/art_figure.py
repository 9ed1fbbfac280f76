"""The figure of ART-IPCA's tables: accuracy as published and as repeated."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onepass.extras import need

__all__ = ["drawn"]


def drawn(title: str, entries: Sequence[Any]) -> Any:
    """What the paper has and what came, side by side, a panel for each data set.

    Parameters
    ----------
    title : str
    entries : sequence of Entry

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    need("matplotlib", extra="plot", where="ArtOutcome.plot")
    from matplotlib.figure import Figure  # noqa: PLC0415  only where there is something to draw

    names = list(dict.fromkeys(one.data for one in entries))
    figure = Figure(figsize=(5.2 * len(names), 3.4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, data in zip(panels, names, strict=True):
        those = [one for one in entries if one.data == data]
        places = np.arange(len(those), dtype=float)[::-1]
        for offset, label, colour, shown in (
            (0.2, "paper", "#b5b5b5", [one.paper or (np.nan, 0.0) for one in those]),
            (-0.2, "here", "#0072b2", [(one.mean, one.deviation) for one in those]),
        ):
            values, errors = (np.array(column) for column in zip(*shown, strict=True))
            panel.errorbar(
                values, places + offset, xerr=errors, fmt="o", color=colour, label=label,
                capsize=3, markersize=5,
            )  # fmt: skip
            for value, place in zip(values, places + offset, strict=True):
                if np.isfinite(value):
                    panel.annotate(
                        f"{value:.2f}", (value, place), xytext=(0, 4), ha="center", fontsize=7,
                        textcoords="offset points", color="#404040",
                    )  # fmt: skip
        panel.set_yticks(places, [one.method for one in those], fontsize=8)
        panel.set_ylim(-0.7, len(those) - 0.3)
        panel.margins(x=0.12)
        panel.set_title(data, fontsize=10)
        panel.tick_params(axis="x", labelsize=8)
        panel.grid(axis="x", color="#e5e5e5")
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_axisbelow(True)
    panels[0].legend(fontsize=8, frameon=False, loc="best")
    return figure
