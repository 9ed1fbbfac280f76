"""A report as records: one a model, one a point of a curve, or one an alarm."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepass.evaluate.report import Report

__all__ = ["of_curves", "of_drift", "of_scores"]


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
        row |= {"seconds": score.seconds, "nbytes": score.nbytes}
        for name in _detectors(report):
            said = (score.drift or {}).get(name)
            row[f"{name}_alarms"] = None if said is None else said.alarms.count
        yield row


def of_drift(report: "Report") -> Iterator[dict[str, Any]]:
    """One for each alarm and warning that was kept.

    Parameters
    ----------
    report : Report
        What to tell.
    """
    for model, score in report.scores.items():
        for detector, said in (score.drift or {}).items():
            for kind, marks in (("alarm", said.alarms), ("warning", said.warnings)):
                for i, row in enumerate(() if marks is None else marks.rows):
                    time = None if marks is None or marks.times is None else marks.times[i]
                    told = {"model": model, "detector": detector, "kind": kind}
                    yield told | {"row": row, "time": time}


def _detectors(report: "Report") -> list[str]:
    """The names of the detectors that watched."""
    return list(dict.fromkeys(name for s in report.scores.values() for name in s.drift or ()))


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
