"""Score of one model of a prequential evaluation, and the results that reports show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from onepass.evaluate.curves import Curve, Values
from onepass.evaluate.drift import Drift

__all__ = ["Results", "Score"]


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


class Results(Protocol):
    """What tables and figures show of a prequential evaluation; see ``Report``."""

    @property
    def source(self) -> str | None:
        """Source of the stream."""

    @property
    def target(self) -> str | None:
        """Name of the target column."""

    @property
    def task(self) -> str:
        """Either "regression" or "classification"."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Keys of ``METRICS[task]``."""

    @property
    def window(self) -> int | None:
        """Rows of the rolling metrics."""

    @property
    def rows(self) -> int:
        """Rows predicted and learned."""

    @property
    def skipped(self) -> int:
        """Rows without a target."""

    @property
    def interrupted(self) -> bool:
        """Whether the pass ended early."""

    @property
    def scores(self) -> Mapping[str, Score]:
        """Scores by model."""

    @property
    def overall(self) -> Curve:
        """Metrics over all rows so far."""

    @property
    def recent(self) -> Curve | None:
        """Metrics over the last ``window`` rows."""

    @property
    def resumed(self) -> list[int]:
        """Rows predicted each time that the pass was resumed."""

    @property
    def delay(self) -> int | str | None:
        """Rows by which targets are late, or the column that gives it."""

    @property
    def waiting(self) -> int:
        """Rows without their target when the pass ended."""
