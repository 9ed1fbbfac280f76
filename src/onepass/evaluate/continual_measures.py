"""Continual measures: what of the first tasks is left when the last one is learned.

R[i, j] is the accuracy on the rows to test of task j after experience i, both counted from 1 to T,
and b[j] the same before anything was learned. For accuracies more is better; of errors the sign of
a difference is turned, so that forgetting is what was lost, and transfer what was won, for both.

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

[3] takes the maximum over all i < T; here what a task's accuracy was before it was learned does not
count, as nothing of it could be forgotten. Where experiences are not tasks (blocks without
borders), "after task j" is the experience after which most of its rows have come.

[1] D. Lopez-Paz, M. Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
[2] S.-A. Rebuffi et al., "iCaRL: incremental classifier and representation learning", CVPR 2017.
[3] A. Chaudhry et al., "Riemannian walk for incremental learning", ECCV 2018.
[4] N. Díaz-Rodríguez, V. Lomonaco, D. Filliat, D. Maltoni, "Don't forget, there is more than
    forgetting: new metrics for continual learning", 2018.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onepass.errors import Array, Floats

__all__ = ["MEASURES", "Scored"]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a learner was tested to know, after each experience.

    Parameters
    ----------
    matrix : ndarray of shape (I, J)
        R, after experience i on the rows to test of task j; nan where that was not tested.
    before : ndarray of shape (J,)
        b, before anything was learned.
    when : ndarray of int of shape (J,)
        The experience after which task j has been learned, counted from 0.
    sign : float
        1 where more is better, −1 of errors.
    """

    matrix: Floats
    before: Floats
    when: Array
    sign: float

    def before_learning(self, j: int) -> float:
        """How well task j was known just before it came."""
        i = self.when[j] - 1
        return float(self.before[j] if i < 0 else self.matrix[i, j])


def _average(known: Scored) -> float:
    return float(known.matrix[-1].mean())


def _incremental(known: Scored) -> float:
    rows = [known.matrix[i, known.when <= i] for i in range(len(known.matrix))]
    return _mean([row.mean() for row in rows if len(row)])


def _forgetting(known: Scored) -> float:
    better, last = known.sign * known.matrix, len(known.matrix) - 1
    past = [(j, i) for j, i in enumerate(known.when) if i < last]
    return _mean([better[i:last, j].max() - better[last, j] for j, i in past])


def _backward(known: Scored) -> float:
    better, last = known.sign * known.matrix, len(known.matrix) - 1
    past = [(j, i) for j, i in enumerate(known.when) if i < last]
    return _mean([better[last, j] - better[i, j] for j, i in past])


def _forward(known: Scored) -> float:
    later = [j for j, i in enumerate(known.when) if i > 0]
    return _mean([known.sign * (known.before_learning(j) - known.before[j]) for j in later])


def _whole(known: Scored) -> float:
    return _mean([value for j, i in enumerate(known.when) for value in known.matrix[i:, j]])


def _whole_backward(known: Scored) -> float:
    better = known.sign * known.matrix
    pairs = [
        better[i, j] - better[at, j]
        for j, at in enumerate(known.when)
        for i in range(at + 1, len(better))
    ]
    return _mean(pairs)


def _whole_forward(known: Scored) -> float:
    return _mean([value for j, i in enumerate(known.when) for value in known.matrix[:i, j]])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


MEASURES: Mapping[str, Callable[[Scored], float]] = {
    "average": _average,
    "average_incremental": _incremental,
    "forgetting": _forgetting,
    "backward_transfer": _backward,
    "forward_transfer": _forward,
    "whole_average": _whole,
    "whole_backward_transfer": _whole_backward,
    "whole_forward": _whole_forward,
}
"""Name -> what it makes of a matrix."""
