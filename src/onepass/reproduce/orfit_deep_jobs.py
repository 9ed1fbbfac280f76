"""Jobs: the runs of ``orfit-deep``, one after the other or in several processes.

A run follows from its place and its seed alone, so that its result is the same in any process.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onepass.evaluate.parallel import side_by_side
from onepass.reproduce.orfit_deep_course import Run, run
from onepass.reproduce.orfit_deep_methods import METHODS
from onepass.reproduce.orfit_deep_streams import STREAMS
from onepass.stream import Experience, Images

__all__ = ["Job", "Setting", "done"]


_APART = 10_000  # draws of one seed, at most, until they meet those of the next


@dataclass(frozen=True)
class Job:
    """One run.

    Parameters
    ----------
    draw : int
        Of rows, first weights and whatever a method draws.
    stream, network, method : str
        Names.
    settings : dict of str to Any
        Of the method.
    """

    draw: int
    stream: str
    network: str
    method: str
    settings: dict[str, Any]

    @property
    def place(self) -> tuple[str, str, str]:
        """Stream, network and method."""
        return self.stream, self.network, self.method


@dataclass(frozen=True, eq=False)
class Setting:
    """What all runs have in common.

    Parameters
    ----------
    images : Images
        As networks take them.
    scale : float
        Rows, as a share of those that a stream has by default.
    seed : int
        Of all that is drawn.
    clock : callable, optional
        Gives seconds.
    """

    images: Images
    scale: float
    seed: int
    clock: Callable[[], float] | None

    def tasks(self, job: Job) -> list[Experience]:
        """The tasks of a run."""
        return list(
            STREAMS[job.stream].make(self.images, self.scale, _APART * self.seed + job.draw)
        )


def done(jobs: Sequence[Job], setting: Setting, processes: int) -> Iterator[tuple[Job, Run]]:
    """Each run when it is done.

    Parameters
    ----------
    jobs : sequence of Job
        Those of a draw and a stream together, so that its tasks are made once.
    setting : Setting
        What they have in common.
    processes : int
        1 for this one alone.

    Yields
    ------
    job : Job
    run : Run
    """
    if processes == 1:
        worker = _Worker(setting)
        yield from ((job, worker(job)) for job in jobs)
        return
    yield from side_by_side(jobs, _one, processes, _begin, setting, where="orfit_deep")


class _Worker:
    """Runs jobs; keeps the tasks of the last stream."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._known: tuple[int, str] | None = None
        self._tasks: list[Experience] = []

    def __call__(self, job: Job) -> Run:
        if self._known != (job.draw, job.stream):
            self._tasks, self._known = self._setting.tasks(job), (job.draw, job.stream)
        seed = [self._setting.seed, job.draw]
        method = METHODS[job.method]
        return run(method, job.settings, self._tasks, job.network, seed, self._setting.clock)


_WORKERS: list[_Worker] = []
"""The one of a process that was begun for jobs."""


def _begin(setting: Setting, tell: Any) -> None:
    del tell  # a run is short
    _WORKERS[:] = [_Worker(setting)]


def _one(job: Job) -> Run:
    return _WORKERS[0](job)
