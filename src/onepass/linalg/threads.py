"""Threads: BLAS held to one where a block is too small to share."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["alone", "one_thread"]


@contextmanager
def one_thread(p: int, n: int) -> Iterator[None]:
    """Hold BLAS to one thread where a block of n rows and p weights is too small to share.

    Threads that wait for each other on a busy machine make small updates many times slower.
    Tiny ones, which BLAS does not share anyway, are left alone: the hold itself costs 15 µs.
    """
    if p * n < 1024 or p >= 1024:
        yield
        return
    with _HOLD:
        yield


def alone() -> AbstractContextManager[None]:
    """Hold NumPy's BLAS to one thread, where all that it is given is small."""
    return _HOLD


class _Hold:
    """BLAS at one thread while anyone is within, and as it was before when the last one leaves.

    The limit is the process's own. If each thread put back what it had found, one that enters
    while another is within would find the limit, and put it back for good.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._within = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._within == 0:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._within += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                self._limit.restore_original_limits()


_HOLD = _Hold()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
