"""Threads: where work is done that would hold up the event loop.

Whoever waits for the disk and whoever computes have threads of their own, so that however many rows
wait to be learned, large questions are answered meanwhile.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads"]

_T = TypeVar("_T")
_DISK = 32  # they wait more than they work


class Threads:
    """Two pools, whose threads are started when they are needed."""

    def __init__(self) -> None:
        cores = os.cpu_count() or 1
        self._computing = ThreadPoolExecutor(max(2, min(8, cores)), "onepass compute")
        self._waiting = ThreadPoolExecutor(_DISK, "onepass disk")

    async def compute(self, work: Callable[[], _T]) -> _T:
        """What comes of work that computes."""
        return await asyncio.get_running_loop().run_in_executor(self._computing, work)

    async def disk(self, work: Callable[[], _T]) -> _T:
        """What comes of work that may wait for the disk, or for others to be done with it."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, work)
