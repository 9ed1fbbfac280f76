"""Continual jobs: the runs of an evaluation, one after the other or in several processes.

A run follows from its learner and its seed alone, so that its result is the same in any process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction
from typing import Any

import numpy as np

from onepass.errors import ParameterError
from onepass.evaluate.continual_course import Course, Rules, Run, through
from onepass.evaluate.continual_makers import is_learner, made, misplaced, takes_seed
from onepass.processes import side_by_side

__all__ = ["Job", "Progress", "Setting", "done"]

_WHERE = "op.evaluate.continual"


@dataclass(frozen=True)
class Job:
    """One learner with one seed.

    Parameters
    ----------
    model : str
        Its name.
    seed : int
        Of what is drawn.
    """

    model: str
    seed: int


@dataclass(frozen=True)
class Progress:
    """How far an evaluation has come.

    Parameters
    ----------
    model : str
        Which learner.
    seed : int
        In which run.
    experience : int
        How many experiences it has learned.
    done, total : int
        Experiences learned in all runs, and to learn; of an iterator, those that have come.
    """

    model: str
    seed: int
    experience: int
    done: int
    total: int


@dataclass(frozen=True, eq=False)
class Setting:
    """What all runs have in common.

    Parameters
    ----------
    models : mapping of str to learner or factory
    experiences : Experiences, Listed, or callable
        What is learned, or what makes it of a seed.
    rules : Rules
    """

    models: Mapping[str, Any]
    experiences: Any
    rules: Rules

    def source(self, seed: int) -> Any:
        """What is learned with a seed."""
        given = self.experiences
        if hasattr(given, "exams"):
            return given
        found = made(given, seed, _WHERE)
        if not hasattr(found, "exams"):
            raise ParameterError(
                f"{_WHERE}: what makes `experiences` must return op.stream.Experiences, got "
                f"{type(found).__name__}. Return one of op.stream's, or op.stream.experiences(…)."
            )
        return found

    def model(self, job: Job) -> Any:
        """A learner of its own for a run."""
        given = self.models[job.model]
        model = deepcopy(given) if is_learner(given) else made(given, job.seed, _WHERE)
        if not is_learner(model):
            raise ParameterError(
                f"{_WHERE}: a function of `models` must return a learner, with `predict` and "
                f"`partial_fit` or `learn`, got {model!r} of {job.model!r}. Return an instance."
            )
        wrong = misplaced(model, self.rules.task)
        if wrong is not None:
            raise ParameterError(
                f"{_WHERE}: models must do what the answers ask for, {self.rules.task}, got "
                f"{job.model!r}, a {wrong}. Real numbers (of dtype float) are regression, all else "
                "is classes."
            )
        return model

    @property
    def drawn(self) -> bool:
        """Whether a seed makes any difference."""
        makers = [self.experiences, *self.models.values()]
        return any(
            not is_learner(each) and not hasattr(each, "exams") and takes_seed(each)
            for each in makers
        )


def done(
    jobs: Sequence[Job], setting: Setting, processes: int, told: Callable[[Job, int], object]
) -> Iterator[tuple[Job, Run, Exception | None]]:
    """Each run when it is done.

    Parameters
    ----------
    jobs : sequence of Job
        Those of a seed together, so that its experiences are made once.
    setting : Setting
        What they have in common.
    processes : int
        1 for this one alone.
    told : callable
        Called with a job and the number of experiences that it has learned.

    Yields
    ------
    job : Job
    run : Run
    failed : Exception, or None
        Why the learner could not go on.

    Raises
    ------
    ParameterError
        If the setting cannot be sent to other processes.
    ProcessError
        If one of these was gone before its run was done.
    """
    if processes == 1 or len(jobs) < 2:
        worker = _Worker(setting)
        for job in jobs:
            yield job, *worker(job, partial(told, job))
        return
    _refuse_unsendable(setting)

    def hear(said: tuple[Job, int]) -> None:
        told(*said)

    beside = side_by_side(jobs, _one, processes, _begin, setting, where=_WHERE, hear=hear)
    for job, found in beside:
        yield job, *found


def _refuse_unsendable(setting: Setting) -> None:
    parts = {"experiences": setting.experiences, **setting.models, "clock": setting.rules.clock}
    for name, part in parts.items():
        try:
            reduction.ForkingPickler.dumps(part)
        except Exception as wrong:  # whatever it raises, it cannot be sent
            raise ParameterError(
                f"{_WHERE}: with `jobs` > 1 all must be sent to other processes, got {name!r}, "
                f"which cannot be: {wrong}. Define functions at the top of a module, or use "
                "functools.partial; or set jobs=1."
            ) from wrong


class _Worker:
    """Runs jobs; keeps the experiences of the last seed."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._seed: int | None = None
        self._source: Any = None

    def __call__(self, job: Job, told: Callable[[int], object]) -> tuple[Run, Exception | None]:
        if self._seed != job.seed:
            self._source, self._seed = self._setting.source(job.seed), job.seed
        labels = np.array(self._source.classes) if self._source.classes else None
        called = f"{job.model!r} with seed {job.seed}"
        course = Course(self._setting.model(job), self._setting.rules, labels, called)
        through([course], self._source, told)
        return course.run(job.model, job.seed, self._source.when), course.failed


_WORKERS: list[tuple[_Worker, Callable[[Any], None]]] = []
"""The one of a process that was begun for jobs, and what it tells progress to."""


def _begin(setting: Setting, tell: Callable[[Any], None]) -> None:
    _WORKERS[:] = [(_Worker(setting), tell)]


def _one(job: Job) -> tuple[Run, Exception | None]:
    worker, tell = _WORKERS[0]
    return worker(job, lambda i: tell((job, i)))
