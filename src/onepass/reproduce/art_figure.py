"""The figure of ART-IPCA's tables: accuracy as published and as repeated."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from onepass.evaluate.figures import COLOURS, GREY, sheet
from onepass.reproduce.dots import Dots, panel

__all__ = ["drawn"]


def drawn(title: str, entries: Sequence[Any], path: str | os.PathLike[str] | None) -> Any:
    """What the paper has and what came, side by side, a panel for each data set.

    Parameters
    ----------
    title : str
    entries : sequence of Entry
    path : path or None
        Where to write it.
    """
    names = list(dict.fromkeys(one.data for one in entries))
    with sheet((4.6 * len(names), 2.6), path, "ArtOutcome.plot", layout="constrained") as figure:
        for axes, data in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            those = [one for one in entries if one.data == data]
            paper = [one.paper or (np.nan, np.nan) for one in those]
            kinds = [
                Dots("paper", GREY, [p[0] for p in paper], [p[1] for p in paper], 0.18, places=2),
                Dots("here", COLOURS[0], [one.mean for one in those],
                     [one.deviation for one in those], -0.18, places=2),
            ]  # fmt: skip
            panel(axes, data, [one.method for one in those], kinds)
        figure.suptitle(title, fontsize=9)
    return figure
