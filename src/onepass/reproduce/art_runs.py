"""The runs of ART-IPCA's tables, one after the other or in several processes.

A run follows from its place and its seed alone, so that its result is the same in any process.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from onepass.errors import Array, Floats
from onepass.evaluate.parallel import side_by_side
from onepass.learners import ARTIPCAClassifier
from onepass.stream import Images

__all__ = ["WAYS", "Found", "Job", "Setting", "done"]

_TRAIN, _TEST = 2000, 500  # rows of a class
_TASKS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
_AXES = {"Fashion-MNIST": 250}  # the paper, A.5.4
_AXES_ELSE = 200

WAYS = {
    "No PCA": "none",
    "IPCA": "task",
    "Static PCA": "static",
    "IPCA, rows as they come": "incremental",
}
"""Method -> how the classifier learns its axes."""


@dataclass(frozen=True, eq=False)
class Job:
    """One run.

    Parameters
    ----------
    data, method : str
        Which.
    run : int
        Of rows and their order.
    """

    data: str
    method: str
    run: int


@dataclass(frozen=True, eq=False)
class Found:
    """What a run came to.

    Parameters
    ----------
    single, multi : float
        Percent right among all classes, and among those of the task.
    prototypes : int
        At the end.
    nbytes, compact : int
        Of all that was learned, and of what answering needs.
    seconds : float or None
        Learning; None without a clock.
    """

    single: float
    multi: float
    prototypes: int
    nbytes: int
    compact: int
    seconds: float | None


@dataclass(frozen=True, eq=False)
class Setting:
    """What all runs have in common.

    Parameters
    ----------
    images : dict of str to Images
    seed : int
        Of all that is drawn.
    vigilance : float
    clock : callable, optional
        Gives seconds.
    """

    images: dict[str, Images]
    seed: int
    vigilance: float
    clock: Callable[[], float] | None


def done(jobs: Sequence[Job], setting: Setting, processes: int) -> Iterator[tuple[Job, Found]]:
    """Each run when it is done.

    Parameters
    ----------
    jobs : sequence of Job
    setting : Setting
        What they have in common.
    processes : int
        1 for this one alone.

    Yields
    ------
    job : Job
    found : Found
    """
    if processes == 1:
        yield from ((job, _run(job, setting)) for job in jobs)
        return
    yield from side_by_side(jobs, _one, processes, _begin, setting, where="art_tables")


_SETTING: list[Setting] = []
"""That of a process that was begun for runs."""


def _begin(setting: Setting, tell: Any) -> None:
    del tell  # a run is short
    _SETTING[:] = [setting]


def _one(job: Job) -> Found:
    return _run(job, _SETTING[0])


def _run(job: Job, setting: Setting) -> Found:
    """Learn the tasks one after the other, each row once; then test each."""
    known, clock = setting.images[job.data], setting.clock
    rng = np.random.default_rng([setting.seed, job.run])
    tasks = [_rows(known.train_images, known.train_labels, c, _TRAIN, rng) for c in _TASKS]
    tests = [_rows(known.test_images, known.test_labels, c, _TEST, rng) for c in _TASKS]
    k = _AXES.get(job.data, _AXES_ELSE)
    way = WAYS[job.method]
    model = ARTIPCAClassifier(k, setting.vigilance, pca=way, max_prototypes=None)
    with threadpool_limits(1, "blas"):
        began = clock() if clock else 0.0
        if way == "static":
            model.learn_axes(np.vstack([X for X, _ in tasks]))
        for X, y in tasks:
            model.partial_fit(X, y)
        took = clock() - began if clock else None
        said = [(model.predict(X), model.predict(X, task=c), y) for c, (X, y) in
                zip(_TASKS, tests, strict=True)]  # fmt: skip
    single, multi = (
        100.0 * float(np.mean([(each[i] == each[2]).mean() for each in said])) for i in (0, 1)
    )
    count = len(model.prototype_weights_)
    return Found(single, multi, count, model.nbytes, model.compact().nbytes, took)


def _rows(
    pictures: Array, labels: Array, classes: Sequence[int], each: int, rng: np.random.Generator
) -> tuple[Floats, Array]:
    """Rows of classes, so many of each, in any order; all where there are fewer."""
    chosen = []
    for label in classes:
        those = np.flatnonzero(labels == label)
        chosen.append(rng.choice(those, min(each, len(those)), replace=False))
    rows = rng.permutation(np.concatenate(chosen))
    return pictures[rows].reshape(len(rows), -1) / 255.0, labels[rows]
