"""A report as records: one a model, or one a point of a curve."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepass.evaluate.report import Report

__all__ = ["of_curves", "of_scores"]


def of_scores(report: "Report") -> Iterator[dict[str, Any]]:
    """One for each model: its metrics, time and memory.

    Parameters
    ----------
    report : Report
        What to tell.
    """
    for model, score in report.scores.items():
        row: dict[str, Any] = {"model": model, "baseline": score.baseline}
        row |= score.overall
        if score.recent is not None:
            row |= {f"recent_{metric}": value for metric, value in score.recent.items()}
        yield row | {"seconds": score.seconds, "nbytes": score.nbytes}


def of_curves(report: "Report") -> Iterator[dict[str, Any]]:
    """One for each point, model and metric: over all rows, then over the last ones.

    Parameters
    ----------
    report : Report
        What to tell.
    """
    for over, curve in (("all", report.overall), (f"last {report.window}", report.recent)):
        if curve is None:
            continue
        for model, metrics in curve.points.items():
            for metric, values in metrics.items():
                for i, value in enumerate(values):
                    yield {
                        "over": over,
                        "rows": curve.rows[i],
                        "time": None if curve.times is None else curve.times[i],
                        "model": model,
                        "metric": metric,
                        "value": value,
                    }
