"""Measures of continual learning, their means over seeds, and statistical tests.

R[i, j] is the accuracy on the test rows of task j after experience i, both counted from 1 to T, and
b[j] is that accuracy before learning. For errors the sign of a difference is reversed: forgetting
is always a loss and transfer a gain.

============================ ======================================================== =============
average                      1/T Σ_j R[T, j]                                          [1] (2)
average incremental          1/T Σ_i 1/i Σ_{j≤i} R[i, j]                              [2] 4.1
forgetting                   1/(T−1) Σ_{j<T} max_{j≤i<T} R[i, j] − R[T, j]            [3] 3.1
backward transfer            1/(T−1) Σ_{j<T} R[T, j] − R[j, j]                        [1] (3)
forward transfer             1/(T−1) Σ_{j>1} R[j−1, j] − b[j]                         [1] (4)
whole average                2/(T(T+1)) Σ_{i≥j} R[i, j]                               [4] (1)
whole backward transfer      2/(T(T−1)) Σ_{i>j} R[i, j] − R[j, j]                     [4] (2)
whole forward                2/(T(T−1)) Σ_{i<j} R[i, j]                               [4] (4)
============================ ======================================================== =============

The maximum in [3] is over all i < T; here the accuracy of a task before it was learned is excluded.
If experiences are not tasks (blocks without boundaries), "after task j" means the experience by
which most rows of task j have been learned.

Models are compared by paired t-tests over the seeds that they share. With the differences d_s,
s = 1 … n, the statistic t = d̄ √n / sd(d) has Student's distribution with n − 1 degrees of freedom
if the models do not differ. Both models have the same rows and the same order for a seed, so these
do not affect the difference. For m tests the k-th smallest p is multiplied by m − k + 1 [5], which
bounds the probability of any false positive by p. If no model depends on the seed, each model has
one run, and t and p are undefined.

[1] D. Lopez-Paz, M. Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
[2] S.-A. Rebuffi et al., "iCaRL: incremental classifier and representation learning", CVPR 2017.
[3] A. Chaudhry et al., "Riemannian walk for incremental learning", ECCV 2018.
[4] N. Díaz-Rodríguez, V. Lomonaco, D. Filliat, D. Maltoni, "Don't forget, there is more than
    forgetting: new metrics for continual learning", 2018.
[5] S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

from onepass.errors import ParameterError, public
from onepass.evaluate.choice import check_choice
from onepass.evaluate.continual_run import Run
from onepass.types import Array, Floats


@dataclass(frozen=True, slots=True, eq=False)
class TaskScores:
    """The test results of one run: the metric of each task after each experience.

    Parameters
    ----------
    matrix : ndarray of shape (I, J)
        R: the metric on the test rows of task j after experience i; nan if not tested.
    before : ndarray of shape (J,)
        b: the metric on the test rows of task j before learning.
    when : ndarray of int of shape (J,)
        The experience after which task j has been learned, counted from 0.
    sign : float
        1 if higher is better, −1 for errors.
    """

    matrix: Floats
    before: Floats
    when: Array
    sign: float

    @property
    def so_far(self) -> Floats:
        """Mean over the tasks learned so far, after each experience (I,); nan if none."""
        learned = [row[self.when <= i] for i, row in enumerate(self.matrix)]
        return np.array([row.mean() if len(row) else np.nan for row in learned])


def _average(scores: TaskScores) -> float:
    return float(scores.matrix[-1].mean())


def _incremental(scores: TaskScores) -> float:
    return float(scores.so_far[scores.when.min() :].mean())


def _forgetting(scores: TaskScores) -> float:
    better, last = scores.sign * scores.matrix, len(scores.matrix) - 1
    past = [(j, i) for j, i in enumerate(scores.when) if i < last]
    return _mean([better[i:last, j].max() - better[last, j] for j, i in past])


def _backward(scores: TaskScores) -> float:
    better, last = scores.sign * scores.matrix, len(scores.matrix) - 1
    past = [(j, i) for j, i in enumerate(scores.when) if i < last]
    return _mean([better[last, j] - better[i, j] for j, i in past])


def _forward(scores: TaskScores) -> float:
    later = [(j, i) for j, i in enumerate(scores.when) if i > 0]
    return _mean([scores.sign * (scores.matrix[i - 1, j] - scores.before[j]) for j, i in later])


def _whole(scores: TaskScores) -> float:
    return _mean([value for j, i in enumerate(scores.when) for value in scores.matrix[i:, j]])


def _whole_backward(scores: TaskScores) -> float:
    better = scores.sign * scores.matrix
    return _mean(
        [gain for j, i in enumerate(scores.when) for gain in better[i + 1 :, j] - better[i, j]]
    )


def _whole_forward(scores: TaskScores) -> float:
    return _mean([value for j, i in enumerate(scores.when) for value in scores.matrix[:i, j]])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


MEASURES: Mapping[str, Callable[[TaskScores], float]] = {
    "average": _average,
    "average_incremental": _incremental,
    "forgetting": _forgetting,
    "backward_transfer": _backward,
    "forward_transfer": _forward,
    "whole_average": _whole,
    "whole_backward_transfer": _whole_backward,
    "whole_forward": _whole_forward,
}
"""Name -> function that computes the measure."""


@dataclass(frozen=True, repr=False)
class ContinualScore:
    """Results of one learner: all tasks after each experience, for all seeds.

    Parameters
    ----------
    model : str
        The name of the learner.
    runs : sequence of Run
        One run per seed.
    sign : float
        1 if higher is better, −1 for errors.
    """

    model: str
    runs: Sequence[Run]
    sign: float

    def __repr__(self) -> str:
        return f"<ContinualScore {self.model}: {self.average_accuracy:.4g}, seeds {self.seeds}>"

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs."""
        return [run.seed for run in self.runs]

    @property
    def matrices(self) -> Floats:
        """R for each seed, (S, I, J): task j after experience i; nan if not tested."""
        return np.array([run.matrix for run in self.runs], dtype=float)

    @property
    def accuracy_matrix(self) -> Floats:
        """R, averaged over the seeds, (I, J)."""
        mean: Floats = self.matrices.mean(axis=0)
        return mean

    @property
    def error_matrix(self) -> Floats:
        """Alias of ``accuracy_matrix``, for metrics that are errors."""
        return self.accuracy_matrix

    @public
    def values(self, measure: str) -> Floats:
        """Return a measure for each seed, (S,); nan if undefined.

        Parameters
        ----------
        measure : str
            A key of ``MEASURES``: average, forgetting, …

        Raises
        ------
        ParameterError
            If there is no such measure.
        """
        check_choice(measure, MEASURES, "`measure`")
        with np.errstate(invalid="ignore"):  # inf − inf is nan
            return np.array([MEASURES[measure](scores) for scores in task_scores(self)])

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the seeds."""
        with np.errstate(invalid="ignore"):
            return float(self.values(measure).mean())

    def deviation(self, measure: str) -> float:
        """Return the standard deviation of a measure over the seeds, with n − 1."""
        values = self.values(measure)
        with np.errstate(invalid="ignore"):
            return float(values.std(ddof=1)) if len(values) > 1 else float("nan")

    @property
    def average_accuracy(self) -> float:
        """Mean over tasks after the last experience, averaged over seeds."""
        return self.mean("average")

    @property
    def average_error(self) -> float:
        """Alias of ``average_accuracy``, for metrics that are errors."""
        return self.mean("average")

    @property
    def average_incremental_accuracy(self) -> float:
        """Mean over the tasks so far after each experience, averaged over experiences."""
        return self.mean("average_incremental")

    @property
    def forgetting(self) -> float:
        """Mean difference between the best and the last accuracy of a task."""
        return self.mean("forgetting")

    @property
    def backward_transfer(self) -> float:
        """Mean change of earlier tasks after later tasks are learned; negative is forgetting."""
        return self.mean("backward_transfer")

    @property
    def forward_transfer(self) -> float:
        """Mean gain of tasks, before they are learned, from earlier tasks."""
        return self.mean("forward_transfer")

    @property
    def complete(self) -> bool:
        """Whether no run stopped and a prediction was correct; otherwise never marked as best."""
        return not any(run.stopped for run in self.runs) and self._ever_right

    @property
    def _ever_right(self) -> bool:
        """Whether the accuracy was ever above 0; True for error metrics."""
        return self.sign < 0 or bool(np.any(np.nan_to_num(self.matrices)))

    @property
    def nbytes(self) -> float | None:
        """Maximum size of the state in bytes."""
        return self._mean_of("nbytes")

    @property
    def prototypes(self) -> float | None:
        """Number of prototypes at the end; None if the learner has none."""
        return self._mean_of("prototypes")

    @property
    def repeated(self) -> float | None:
        """Number of times a row was learned again: 0 in one pass; None if not counted."""
        return self._mean_of("repeated")

    @property
    def learning_seconds(self) -> float | None:
        """Seconds per row to learn; None without a clock."""
        return self._mean_of("learning_seconds")

    @property
    def prediction_seconds(self) -> float | None:
        """Seconds per row to predict; None without a clock."""
        return self._mean_of("prediction_seconds")

    @property
    def rows(self) -> int:
        """Number of rows learned with the first seed."""
        return self.runs[0].rows

    @property
    def notes(self) -> list[str]:
        """Known limits of the learner in this scenario, and where and why runs stopped."""
        notes = dict.fromkeys(note for run in self.runs for note in run.notes)
        stops: dict[str, list[str]] = {}
        for run in self.runs:
            if run.stopped:
                stops.setdefault(f"stopped at {run.stopped}", []).append(str(run.seed))
        if not (stops or self._ever_right):
            notes["predicted no label correctly"] = None
        if len(self.runs) == 1:
            return [*notes, *stops]
        return [*notes, *(f"with seed {', '.join(of)} {stop}" for stop, of in stops.items())]

    def _mean_of(self, name: str) -> float | None:
        values: list[Any] = [getattr(run, name) for run in self.runs]
        defined = [value for value in values if value is not None]
        return float(np.mean(defined)) if defined else None


def task_scores(score: ContinualScore) -> list[TaskScores]:
    """Return the test results of each run.

    Parameters
    ----------
    score : ContinualScore
    """
    return [
        TaskScores(matrix, np.array(run.before, dtype=float), np.array(run.when), score.sign)
        for matrix, run in zip(score.matrices, score.runs, strict=True)
    ]


def pairs(
    scores: Mapping[str, ContinualScore], measure: str = "average", against: str | None = None
) -> list[dict[str, Any]]:
    """Compare each pair of models, or all models with one.

    Parameters
    ----------
    scores : dict of str to ContinualScore
        The scores of the models, by name.
    measure : str
        A key of ``MEASURES``.
    against : str, optional
        The model to compare all others with.

    Raises
    ------
    ParameterError
        If there is no such model, or two models share fewer than two seeds.
    """
    if against is not None:
        check_choice(against, scores, "`against`")
    chosen = (
        list(combinations(scores, 2))
        if against is None
        else [(name, against) for name in scores if name != against]
    )
    found: list[dict[str, Any]] = []
    for one, other in chosen:
        values = [
            dict(zip(scores[n].seeds, scores[n].values(measure), strict=True)) for n in (one, other)
        ]
        shared = [seed for seed in values[0] if seed in values[1]]
        if len(shared) < 2:
            raise ParameterError(
                f"two models must share at least two seeds, got {len(shared)} of "
                f"{one!r} and {other!r}. Evaluate them with the same seeds."
            )
        differences = np.array([values[0][seed] - values[1][seed] for seed in shared])
        drawn = any(len({each[seed] for seed in shared}) > 1 for each in values)
        t, p = _tested(differences) if drawn or not differences.any() else (None, None)
        row = {"model": one, "against": other, "measure": measure, "n": len(shared)}
        found.append(row | {"difference": float(differences.mean()), "t": t, "p": p})
    corrected = _holm([row["p"] for row in found])
    return [row | {"p_holm": p} for row, p in zip(found, corrected, strict=True)]


def _tested(differences: Floats) -> tuple[float | None, float | None]:
    """Return the t statistic and its two-sided p; None if undefined."""
    mean = differences.mean()
    if not np.isfinite(mean):
        return None, None
    if differences.std(ddof=1) <= 1e-12 * abs(mean):  # equal for all seeds
        return (None, 0.0) if mean else (0.0, 1.0)
    t, p = ttest_1samp(differences, 0.0)
    return float(t), float(p)


def _holm(found: list[float | None]) -> list[float | None]:
    tested = sorted((p, i) for i, p in enumerate(found) if p is not None)
    out: list[float | None] = [None] * len(found)
    least = 0.0
    for k, (p, i) in enumerate(tested):
        least = max(least, min(1.0, p * (len(tested) - k)))
        out[i] = least
    return out
