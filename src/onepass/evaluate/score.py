"""Score of one model of a prequential evaluation."""

from dataclasses import dataclass

from onepass.evaluate.curves import Values
from onepass.evaluate.drift import Drift

__all__ = ["Score"]


@dataclass(frozen=True)
class Score:
    """How one model did.

    Parameters
    ----------
    learner : str
        The model as it was constructed.
    baseline : bool
        Whether it is one of the baselines.
    overall : dict of str to float
        Metric -> value over all rows; None where it is not defined.
    recent : dict of str to float, or None
        The same over the last ``window`` rows; None where no window was asked for.
    seconds : float, or None
        Time spent in the model; None where no clock was given.
    nbytes : int, or None
        Bytes of all that it has learned; None where it does not say.
    drift : dict of str to Drift, or None
        What each detector said of its errors; None where none watched it.
    """

    learner: str
    baseline: bool
    overall: Values
    recent: Values | None
    seconds: float | None
    nbytes: int | None
    drift: dict[str, Drift] | None = None
