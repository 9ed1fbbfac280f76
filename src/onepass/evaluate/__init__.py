"""Evaluation of learners on streams: prequential and continual."""

from onepass.evaluate.continual import continual
from onepass.evaluate.continual_measures import MEASURES, ContinualScore
from onepass.evaluate.continual_report import ContinualReport
from onepass.evaluate.curves import Curve
from onepass.evaluate.metrics import METRICS
from onepass.evaluate.naive import LastLabel, LastValue, Majority, RunningMean
from onepass.evaluate.predictions import predictions
from onepass.evaluate.prequential import prequential
from onepass.evaluate.report import Report
from onepass.evaluate.resume import RunProgress, run_progress
from onepass.evaluate.score import Score
from onepass.evaluate.suggest import Suggestion, suggest

__all__ = [
    "MEASURES",
    "METRICS",
    "ContinualReport",
    "ContinualScore",
    "Curve",
    "LastLabel",
    "LastValue",
    "Majority",
    "Report",
    "RunProgress",
    "RunningMean",
    "Score",
    "Suggestion",
    "continual",
    "predictions",
    "prequential",
    "run_progress",
    "suggest",
]
