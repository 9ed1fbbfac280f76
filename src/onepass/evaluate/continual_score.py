"""Continual score: what came of one learner, over all seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass.errors import Floats, ParameterError, meant
from onepass.evaluate.continual_course import Run
from onepass.evaluate.continual_measures import MEASURES, Scored

__all__ = ["ContinualScore"]


@dataclass(frozen=True, repr=False)
class ContinualScore:
    """What one learner knew of all tasks after each experience, over all seeds.

    Parameters
    ----------
    model : str
        Its name.
    runs : sequence of Run
        One a seed.
    sign : float
        1 where more is better, −1 of errors.
    """

    model: str
    runs: Sequence[Run]
    sign: float

    def __repr__(self) -> str:
        return f"<ContinualScore {self.model}: {self.average_accuracy:.4g}, seeds {self.seeds}>"

    @property
    def seeds(self) -> list[int]:
        """Of the runs."""
        return [run.seed for run in self.runs]

    @property
    def matrices(self) -> Floats:
        """R of each seed, (S, I, J): after experience i on task j; nan where not tested."""
        return np.array([run.matrix for run in self.runs], dtype=float)

    @property
    def accuracy_matrix(self) -> Floats:
        """R, (I, J): the mean over the seeds."""
        mean: Floats = self.matrices.mean(axis=0)
        return mean

    @property
    def error_matrix(self) -> Floats:
        """The same, of a metric that is an error."""
        return self.accuracy_matrix

    def values(self, measure: str) -> Floats:
        """A measure of each seed, (S,); nan where it is not defined.

        Parameters
        ----------
        measure : str
            A key of ``MEASURES``: average, forgetting, …

        Raises
        ------
        ParameterError
            If there is no such measure.
        """
        if measure not in MEASURES:
            raise ParameterError(
                f"ContinualScore.values: `measure` must be one of {', '.join(MEASURES)}, got "
                f"{measure!r}.{meant(measure, MEASURES) or ' Choose from these.'}"
            )
        scored = [
            Scored(matrix, np.array(run.before, dtype=float), np.array(run.when), self.sign)
            for matrix, run in zip(self.matrices, self.runs, strict=True)
        ]
        with np.errstate(invalid="ignore"):  # nothing is known of inf less inf
            return np.array([MEASURES[measure](one) for one in scored])

    def mean(self, measure: str) -> float:
        """A measure's mean over the seeds."""
        with np.errstate(invalid="ignore"):
            return float(self.values(measure).mean())

    def deviation(self, measure: str) -> float:
        """Its standard deviation over the seeds, of n − 1; nan of a single seed."""
        values = self.values(measure)
        with np.errstate(invalid="ignore"):
            return float(values.std(ddof=1)) if len(values) > 1 else float("nan")

    @property
    def average_accuracy(self) -> float:
        """Over all tasks after the last experience: mean over the seeds."""
        return self.mean("average")

    @property
    def average_error(self) -> float:
        """The same, of a metric that is an error."""
        return self.mean("average")

    @property
    def average_incremental_accuracy(self) -> float:
        """Over the tasks so far after each experience, and then over experiences."""
        return self.mean("average_incremental")

    @property
    def forgetting(self) -> float:
        """What was lost of the best that was known of a task."""
        return self.mean("forgetting")

    @property
    def backward_transfer(self) -> float:
        """What later tasks brought to earlier ones, or took from them where it is negative."""
        return self.mean("backward_transfer")

    @property
    def forward_transfer(self) -> float:
        """What earlier tasks brought to later ones before these came."""
        return self.mean("forward_transfer")

    @property
    def complete(self) -> bool:
        """Whether no run stopped and some prediction was correct; if not, it is never the best."""
        return not any(run.stopped for run in self.runs) and self._ever_right

    @property
    def _ever_right(self) -> bool:
        """Whether the accuracy was ever above 0; True for error metrics."""
        return self.sign < 0 or bool(np.any(np.nan_to_num(self.matrices)))

    @property
    def nbytes(self) -> float | None:
        """Bytes kept from row to row, the most."""
        return self._over("nbytes")

    @property
    def prototypes(self) -> float | None:
        """How many prototypes at the end, if it has any."""
        return self._over("prototypes")

    @property
    def repeated(self) -> float | None:
        """How often a row was learned again: 0 in one pass; None if the learner does not tell."""
        return self._over("repeated")

    @property
    def learning(self) -> float | None:
        """Seconds to learn a row; None without a clock."""
        return self._over("learning")

    @property
    def answering(self) -> float | None:
        """Seconds to answer a row; None without a clock."""
        return self._over("answering")

    @property
    def rows(self) -> int:
        """Rows learned with the first seed."""
        return self.runs[0].rows

    @property
    def notes(self) -> list[str]:
        """What is known of its limits here, and where and why it stopped."""
        told = dict.fromkeys(note for run in self.runs for note in run.notes)
        stops: dict[str, list[str]] = {}
        for run in self.runs:
            if run.stopped:
                stops.setdefault(f"stopped at {run.stopped}", []).append(str(run.seed))
        if not (stops or self._ever_right):
            told["predicted no label correctly"] = None
        if len(self.runs) == 1:
            return [*told, *stops]
        return [*told, *(f"with seed {', '.join(of)} {stop}" for stop, of in stops.items())]

    def _over(self, name: str) -> float | None:
        values: list[Any] = [getattr(run, name) for run in self.runs]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None
