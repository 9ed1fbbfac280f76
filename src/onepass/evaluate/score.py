"""Score of one model of a prequential evaluation."""

from dataclasses import dataclass

from onepass.evaluate.curves import Values
from onepass.evaluate.drift import Drift

__all__ = ["Score"]


@dataclass(frozen=True)
class Score:
    """Scores and costs of one model.

    Parameters
    ----------
    learner : str
        The model and its parameters.
    baseline : bool
        Whether it is one of the baselines.
    overall : dict of str to float
        Metric -> value over all rows; None if not defined.
    recent : dict of str to float, or None
        The same over the last ``window`` rows; None without a window.
    seconds : float, or None
        Time spent in the model; None without a clock.
    nbytes : int, or None
        Size of the learned state in bytes; None if the model has no ``nbytes``.
    drift : dict of str to Drift, or None
        Drift detector -> alarms on its errors; None without detectors.
    """

    learner: str
    baseline: bool
    overall: Values
    recent: Values | None
    seconds: float | None
    nbytes: int | None
    drift: dict[str, Drift] | None = None
