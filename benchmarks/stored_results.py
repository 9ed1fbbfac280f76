"""Outcomes of experiments, read back from benchmarks/results to draw their figures again."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

from onepass_experiments.art_ipca import PAPER, ArtOutcome, Entry
from onepass_experiments.continual import comparison_figure
from onepass_experiments.continual_learners import TITLES
from onepass_experiments.outcome import Band, Line, Outcome, published

RESULTS = Path(__file__).parent / "results"
PAPERS = ("orfit-fig6", "orfit-fig7")
ART = ("art-table1", "art-table2")
BAND = ("mean", "low", "high", "deviation")


def rows_of(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def orfit_outcome(name: str) -> Outcome:
    """Return the outcome of ``orfit-fig6`` or ``orfit-fig7``."""
    table = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    counts = re.findall(r"(\d+) draws of the images, (\d+) runs each, seed (\d+)", table)[0]
    setup = dict(zip(("draws", "runs", "seed"), map(int, counts), strict=True))
    setup["sample"] = int(re.findall(r"\| row (\d+) \|", table)[0])
    curves: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows_of(name):
        if row["mean"]:
            curves[row["method"], row["error"]].append(row)
    source, paper = published("orfit-published.json", name)
    lines = []
    for (method, error), rows in curves.items():
        ours = Band(
            [int(float(row["step"])) for row in rows],
            *([float(row[key]) for row in rows] for key in BAND),
        )
        lines.append(Line(method, error, ours, paper.get((method, error))))
    memory = "memory of 10 directions" if name == "orfit-fig6" else "unlimited memory"
    return Outcome(name, f"Rotated digits, {memory}", source, setup, tuple(lines))


def art_outcome(name: str) -> ArtOutcome:
    """Return the accuracies of ``art-table1`` or ``art-table2``, without sizes and times."""
    number = int(name[-1])
    accuracies: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows_of(name):
        accuracies[row["data"], row["method"]].append(float(row["accuracy"]))
    heads = "single-headed" if number == 1 else "multi-headed"
    entries = tuple(
        Entry(data, method, PAPER[number][data].get(method), found, 0.0, 0, 0, None)
        for (data, method), found in accuracies.items()
    )
    return ArtOutcome(name, f"ART-IPCA, {heads}: accuracy after the last task, %", {}, entries)


def continual_figure() -> Any:
    """Return the figure of ``continual``."""
    runs: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of("continual-results"):
        runs[row["stream"]][row["learner"]].append(row)
    reports: dict[str, Any] = {}
    for stream, learners in runs.items():
        scores = {key: scores_of(learners[key]) for key in TITLES if key in learners}
        metric = "rmse" if stream == "kin40k" else "accuracy"
        reports[stream] = SimpleNamespace(metric=metric, scores=scores)
    title = "Continual learning: average over tasks after the last task"
    return comparison_figure(title, reports, None, paper=True)


def scores_of(rows: list[dict[str, str]]) -> Any:
    """Return what the figure needs of the runs of a learner."""
    averages = [float(row["average"]) for row in rows]
    deviation = stdev(averages) if len(averages) > 1 else math.nan
    return SimpleNamespace(
        mean=lambda _: mean(averages),
        deviation=lambda _: deviation,
        repeated=max(float(row["repeated"] or 0.0) for row in rows),
    )
