"""Continual records: one a model, one a run, or one a number of its matrix."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onepass.evaluate.continual_measures import MEASURES

if TYPE_CHECKING:
    from onepass.evaluate.continual_report import ContinualReport

__all__ = ["of_matrix", "of_runs", "of_scores"]

_COSTS = ("nbytes", "prototypes", "repeated", "learning", "answering")


def of_scores(report: "ContinualReport") -> Iterator[dict[str, Any]]:
    """One for each model: means and deviations over the seeds, and costs.

    Parameters
    ----------
    report : ContinualReport
        What to tell.
    """
    for name, score in report.scores.items():
        row: dict[str, Any] = {"model": name, "metric": report.metric, "seeds": len(score.runs)}
        for measure in MEASURES:
            row[measure] = _known(score.mean(measure))
            row[f"{measure}_deviation"] = _known(score.deviation(measure))
        row |= {cost: getattr(score, cost) for cost in _COSTS}
        yield row | {"rows": score.rows, "notes": "; ".join(score.notes)}


def of_runs(report: "ContinualReport") -> Iterator[dict[str, Any]]:
    """One for each model and seed: tidy, with all numbers in full.

    Parameters
    ----------
    report : ContinualReport
        What to tell.
    """
    for name, score in report.scores.items():
        values = {measure: score.values(measure) for measure in MEASURES}
        for i, run in enumerate(score.runs):
            row: dict[str, Any] = {"model": name, "seed": run.seed, "metric": report.metric}
            row |= {measure: _known(float(each[i])) for measure, each in values.items()}
            row |= {cost: getattr(run, cost) for cost in _COSTS}
            yield row | {"rows": run.rows, "stopped": run.stopped}


def of_matrix(report: "ContinualReport") -> Iterator[dict[str, Any]]:
    """One for each model, seed, experience and task; experience 0 is before anything was learned.

    Parameters
    ----------
    report : ContinualReport
        What to tell.
    """
    for run in report.runs:
        for i, row in enumerate([run.before, *run.matrix]):
            for j, value in enumerate(row):
                yield {
                    "model": run.model,
                    "seed": run.seed,
                    "experience": i,
                    "after": "" if i == 0 else report.experiences[i - 1],
                    "task": report.tasks[j],
                    report.metric: value,
                }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
