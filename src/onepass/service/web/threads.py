"""Threads: where work is done that would hold up the event loop.

Whoever waits for the disk, whoever computes, whoever looks and whoever changes what there is have
threads of their own: however many rows wait to be learned, and however long the disk takes, large
questions are answered meanwhile, and the page tells how it goes. One learner never has all threads
of a kind: one is left for the others.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from onepass.errors import PendingError

__all__ = ["Threads", "pending"]

_T = TypeVar("_T")
_DISK = 32  # they wait more than they work
_FEW = 4


class _Shared:
    """A pool of threads for all learners; one learner never uses all of them.

    Parameters
    ----------
    most : int
        Threads that one learner may use at a time.
    name : str
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._pool = most, ThreadPoolExecutor(most + 1, name)
        self._limits: dict[str, asyncio.Semaphore] = {}

    async def run(self, work: Callable[[], _T], name: str) -> _T:
        """Work for a learner once a thread is free, and return the result."""
        async with self._limits.setdefault(name, asyncio.Semaphore(self._most)):
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)


class Threads:
    """Pools, whose threads are started when they are needed.

    Parameters
    ----------
    patience : float
        Seconds that whoever waits for the disk is kept waiting.
    """

    def __init__(self, patience: float) -> None:
        cores = os.cpu_count() or 1
        self.patience = patience
        self._computing = _Shared(max(2, min(8, cores)), "onepass compute")
        self._waiting = _Shared(_DISK, "onepass disk")
        self._looking = ThreadPoolExecutor(_FEW, "onepass look")
        self._changing = ThreadPoolExecutor(_FEW, "onepass change")

    async def compute(self, work: Callable[[], _T], name: str) -> _T:
        """Compute for the learner of this name, and return the result."""
        return await self._computing.run(work, name)

    async def look(self, work: Callable[[], _T]) -> _T:
        """What comes of work that looks at the learners, and waits for others but briefly."""
        return await asyncio.get_running_loop().run_in_executor(self._looking, work)

    async def change(self, work: Callable[[], _T]) -> _T:
        """What comes of work that makes, retires or turns back a learner, however long it takes."""
        return await asyncio.get_running_loop().run_in_executor(self._changing, work)

    async def disk(self, work: Callable[[], _T], name: str) -> _T:
        """What comes of work that brings rows to the disk.

        Parameters
        ----------
        work : callable
            It goes on when nobody waits any longer.
        name : str
            Of the learner.

        Raises
        ------
        PendingError
            If it is not done in time.
        """
        done = asyncio.ensure_future(self._waiting.run(work, name))
        finished, _ = await asyncio.wait([done], timeout=self.patience)
        if not finished:
            done.add_done_callback(_heard)
            raise pending(name, self.patience)
        return done.result()


def pending(name: str, seconds: float) -> PendingError:
    """What is said to who waits no longer.

    Parameters
    ----------
    name : str
        Of the learner.
    seconds : float
        How long they have waited.
    """
    return PendingError(
        f"{name}: the rows must be on the disk before it is answered, but after {seconds:g} "
        "seconds they are not known to be. They may be learned yet: ask again, with the same key.",
        1.0,
    )


def _heard(done: "asyncio.Future[Any]") -> None:
    """Nobody waits any longer: what was raised is looked at, lest it be told of as forgotten."""
    if not done.cancelled():
        done.exception()
