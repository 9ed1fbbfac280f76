"""The figure of the experiment ``continual``: a panel a stream, a dot a learner."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.evaluate import ContinualReport
from onepass.evaluate.style import COLOURS, GREY, sheet
from onepass.reproduce.continual_learners import TITLES
from onepass.reproduce.continual_streams import STREAMS

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
    size = (_WIDE * min(_SIDE, len(names)), sum(high) + 0.4)
    with sheet(size, path, "ContinualOutcome.plot", layout="constrained") as figure:
        panels = figure.subplots(
            len(rows), min(_SIDE, len(names)), squeeze=False, height_ratios=high
        )
        for panel in panels.ravel()[len(names) :]:
            panel.set_visible(False)
        for panel, name in zip(panels.ravel(), names, strict=False):
            _panel(panel, name, reports[name], paper=paper)
        figure.suptitle(title, fontsize=10)
    return figure


def _panel(panel: Any, name: str, report: ContinualReport, *, paper: bool) -> None:
    stream, scores = STREAMS[name], report.scores
    share = report.metric == "accuracy"
    scale = 100.0 if share else 1.0
    places = np.arange(len(scores), dtype=float)[::-1]
    means = np.array([scale * one.mean("average") for one in scores.values()])
    spread = np.nan_to_num([scale * one.deviation("average") for one in scores.values()])
    once = [one.repeated == 0 for one in scores.values()]
    for label, colour, those in (
        ("each row once", COLOURS[0], np.array(once)),
        ("rows again", COLOURS[1], ~np.array(once)),
    ):
        if those.any():
            panel.errorbar(
                means[those], places[those], xerr=spread[those], fmt="o", color=colour,
                label=label, capsize=2, markersize=4,
            )  # fmt: skip
    known = [stream.published.get(key, (np.nan, None))[0] for key in scores]
    if paper and np.isfinite(known).any():
        panel.plot(known, places, "|", color=GREY, markersize=9, label="published")
    for mean, place in zip(means, places, strict=True):
        panel.annotate(
            f"{mean:.1f}" if share else f"{mean:.2f}", (mean, place), xytext=(0, 3.5), ha="center",
            fontsize=6, textcoords="offset points",
        )  # fmt: skip
    panel.set_yticks(places, [TITLES[key] for key in scores], fontsize=7)
    panel.set_ylim(-0.7, len(scores) - 0.2)
    panel.margins(x=0.08)
    panel.set_title(f"{stream.title}, {'accuracy, %' if share else 'RMSE'}", fontsize=8)
    panel.tick_params(axis="x", labelsize=7)
    panel.grid(visible=True, axis="x")
    panel.legend(fontsize=6, frameon=False, loc="best")
