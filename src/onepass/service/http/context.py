"""State shared by all requests: registry, limits, threads, and results of writers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from onepass.errors import BusyError, CommitTimeoutError
from onepass.service.http.auth import Tokens
from onepass.service.protocol.limits import Limits
from onepass.service.registry import ModelRegistry
from onepass.service.requests import Request

_T = TypeVar("_T")
_BODIES = 16  # max concurrent bodies of maximum size
_DISK_THREADS = 32  # more than CPUs, as these threads mostly wait


class Budget:
    """Limit on the total size of large request bodies in memory.

    Parameters
    ----------
    nbytes : int
        Limit in bytes.
    """

    def __init__(self, nbytes: int) -> None:
        self._size = self._left = nbytes

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes; a negative number releases them.

        Raises
        ------
        BusyError
            If fewer bytes are free.
        """
        if nbytes > self._left:
            raise BusyError(
                f"the bodies of all concurrent requests must have at most {self._size:,} bytes, "
                "got more. Retry in a second with the same key.",
                seconds=1.0,
            )
        self._left -= nbytes


class Completions:
    """Delivers completed requests from the writers' threads to the event loop, in batches."""

    def __init__(self) -> None:
        self._finished: deque[tuple[asyncio.Future[Request], Request]] = deque()
        self._scheduled = False

    def post(self, future: asyncio.Future[Request], request: Request) -> None:
        """Set the result of a future; may be called in any thread."""
        self._finished.append((future, request))
        if not self._scheduled:
            self._scheduled = True
            try:
                future.get_loop().call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the event loop is closed: no handler waits
                self._scheduled = False
                self._finished.clear()

    def _deliver(self) -> None:
        self._scheduled = False  # before reading: requests posted from now on are scheduled again
        while self._finished:
            future, request = self._finished.popleft()
            if not future.done():
                future.set_result(request)


class Service:
    """State that the handlers of all requests share.

    Parameters
    ----------
    registry : ModelRegistry
    tokens : Tokens
    limits : Limits
        Limits of one request.
    default_model : str or None
        Learner of ``/invocations``; required if there are several learners.
    commit_timeout : float
        Seconds within which rows must be on disk; afterwards the request fails.

    Attributes
    ----------
    statuses : Counter of int
        Number of responses by status.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        tokens: Tokens,
        limits: Limits,
        default_model: str | None,
        commit_timeout: float,
    ) -> None:
        self.registry, self.tokens, self.limits = registry, tokens, limits
        self.default_model = default_model
        self.commit_timeout = commit_timeout
        self.budget = Budget(_BODIES * limits.nbytes)
        self.statuses: Counter[int] = Counter()
        self.completions = Completions()
        threads = max(4, min(8, os.cpu_count() or 1))
        self._compute = ThreadPoolExecutor(threads, "onepass compute")
        self._disk = ThreadPoolExecutor(_DISK_THREADS, "onepass disk")

    async def compute(self, work: Callable[[], _T]) -> _T:
        """Run a long computation in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._compute, work)

    async def disk(self, work: Callable[[], _T]) -> _T:
        """Run a function that waits for files in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    async def committed(self, result: asyncio.Future[_T], name: str) -> _T:
        """Wait for the commit of rows; a timeout ends the waiting, not the commit.

        Parameters
        ----------
        result : Future
        name : str
            Name of the learner, for messages.

        Raises
        ------
        CommitTimeoutError
            If the rows are not on disk within ``commit_timeout``.
        """
        try:
            async with asyncio.timeout(self.commit_timeout):
                return await result
        except TimeoutError:
            raise CommitTimeoutError(
                f"the rows must be on the disk within {self.commit_timeout:g} seconds, but the "
                "commit has not finished. It may still succeed: retry with the same key.",
                name,
                seconds=1.0,
            ) from None
