"""How learners do on a stream: each row is said first, then learned, and counted."""

from onepass.evaluate.answers import answers
from onepass.evaluate.blocks import Block
from onepass.evaluate.bookmark import Standing, standing
from onepass.evaluate.continual import continual
from onepass.evaluate.continual_jobs import Progress
from onepass.evaluate.continual_measures import MEASURES
from onepass.evaluate.continual_report import ContinualReport
from onepass.evaluate.continual_score import ContinualScore
from onepass.evaluate.curve import Curve
from onepass.evaluate.metrics import METRICS
from onepass.evaluate.prequential import prequential
from onepass.evaluate.reference import LastLabel, LastValue, Majority, RunningMean
from onepass.evaluate.report import Report
from onepass.evaluate.score import Score

__all__ = [
    "MEASURES",
    "METRICS",
    "Block",
    "ContinualReport",
    "ContinualScore",
    "Curve",
    "LastLabel",
    "LastValue",
    "Majority",
    "Progress",
    "Report",
    "RunningMean",
    "Score",
    "Standing",
    "answers",
    "continual",
    "prequential",
    "standing",
]
