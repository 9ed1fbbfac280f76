"""Score of one model of a prequential evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from onepass.evaluate.curves import Values
from onepass.evaluate.drift import Drift


@dataclass(frozen=True)
class Score:
    """Scores and costs of one model.

    Parameters
    ----------
    learner : str
        The model and its parameters.
    baseline : bool
        Whether the model is a baseline.
    overall : dict of str to float
        Metric -> value over all rows; None if undefined.
    recent : dict of str to float, or None
        Metric -> value over the last ``window`` rows; None without a window.
    seconds : float, or None
        Time spent in the model, in seconds; None without a clock.
    nbytes : int, or None
        Size of the learned state in bytes; None if the model has no ``nbytes``.
    drift : dict of str to Drift, or None
        Drift detector -> alarms on the errors of the model; None without detectors.
    """

    learner: str
    baseline: bool
    overall: Values
    recent: Values | None
    seconds: float | None
    nbytes: int | None
    drift: dict[str, Drift] | None = None
