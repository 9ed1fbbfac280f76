"""The figure of the experiment ``continual``: a panel a stream, a dot a learner."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.evaluate import ContinualReport
from onepass.evaluate.figures import COLOURS, GREY, sheet
from onepass.reproduce.continual_learners import TITLES
from onepass.reproduce.continual_streams import STREAMS
from onepass.reproduce.dots import Dots, panel

__all__ = ["drawn"]

_SIDE = 2  # panels beside each other
_WIDE, _HIGH, _HEAD = 4.6, 0.19, 0.75  # inches: a panel, a learner, and what is around


def drawn(
    title: str,
    reports: Mapping[str, ContinualReport],
    path: str | os.PathLike[str] | None,
    *,
    paper: bool,
) -> Any:
    """Each learner's average at the end ± its deviation, and what is published.

    Parameters
    ----------
    title : str
    reports : mapping of str to ContinualReport
        By the stream's name.
    path : path or None
        Where to write it.
    paper : bool
        Whether what is published is shown, which is of all rows.
    """
    names = list(reports)
    rows = [names[i : i + _SIDE] for i in range(0, len(names), _SIDE)]
    high = [_HEAD + _HIGH * max(len(reports[n].scores) for n in row) for row in rows]
    wide = min(_SIDE, len(names))
    size = (_WIDE * wide, sum(high) + 0.4)
    with sheet(size, path, "ContinualOutcome.plot", layout="constrained") as figure:
        panels = figure.subplots(len(rows), wide, squeeze=False, height_ratios=high).ravel()
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        for axes, name in zip(panels, names, strict=False):
            _panel(axes, name, reports[name], paper=paper)
        figure.suptitle(title, fontsize=10)
    return figure


def _panel(axes: Any, name: str, report: ContinualReport, *, paper: bool) -> None:
    stream, scores = STREAMS[name], report.scores
    share = report.metric == "accuracy"
    scale, places = (100.0, 1) if share else (1.0, 2)
    means = np.array([scale * one.mean("average") for one in scores.values()])
    spreads = [scale * one.deviation("average") for one in scores.values()]
    once = np.array([one.repeated == 0 for one in scores.values()])
    known = [stream.published.get(key, (np.nan, None))[0] for key in scores] if paper else []
    kinds = [
        Dots("each row once", COLOURS[0], np.where(once, means, np.nan), spreads, places=places),
        Dots("rows again", COLOURS[1], np.where(once, np.nan, means), spreads, places=places),
        *([Dots("published", GREY, known, mark="|")] if paper else []),
    ]
    title = f"{stream.title}, {'accuracy, %' if share else 'RMSE'}"
    panel(axes, title, [TITLES[key] for key in scores], kinds)
