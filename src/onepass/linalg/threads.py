"""Threads: BLAS held to one where a block is too small to share."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

__all__ = ["Sums", "alone", "hands", "one_thread", "summed", "tensors_alone"]

Sums = tuple[Any, ...]

_SHARED = 1 << 15  # weights; of fewer, work is done before a second thread is awake


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


@contextmanager
def tensors_alone(p: int) -> Iterator[None]:
    """Hold NumPy's BLAS to one thread, and torch as well where p weights are too few to share."""
    with _HOLD:
        if p >= _SHARED:
            yield
            return
        with _TORCH:
            yield


class _Hold:
    """Something held while anyone is within, and as it was before when the last one leaves.

    The limit is the process's own. If each thread put back what it had found, one that enters
    while another is within would find the limit, and put it back for good.
    """

    def __init__(self, limit: Callable[[], Callable[[], object]]) -> None:
        self._lock = Lock()
        self._within = 0
        self._limit = limit
        self._restore: Callable[[], object] = lambda: None

    def __enter__(self) -> None:
        with self._lock:
            if self._within == 0:
                self._restore = self._limit()
            self._within += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                self._restore()


def _limit_blas() -> Callable[[], object]:
    shared = [(each, each.get_num_threads()) for each in _blas()]
    for each, before in shared:
        if before != 1:
            each.set_num_threads(1)

    def restore() -> None:
        for each, before in shared:
            if before != 1:
                each.set_num_threads(before)

    return restore


def _limit_torch() -> Callable[[], object]:
    import torch  # noqa: PLC0415  only where there is a tensor

    before = torch.get_num_threads()
    if before == 1:
        return lambda: None
    torch.set_num_threads(1)
    return lambda: torch.set_num_threads(before)


_HOLD = _Hold(_limit_blas)
_TORCH = _Hold(_limit_torch)


@cache
def _blas() -> list[Any]:
    """The BLAS libraries that were loaded with NumPy and SciPy, to be told how many threads."""
    controllers = ThreadpoolController().lib_controllers
    return [each for each in controllers if each.user_api == "blas"]


def hands(array: Any) -> int:
    """How many threads share the work on an array: as many as torch has on a tensor."""
    if isinstance(array, np.ndarray):
        return 1
    import torch  # noqa: PLC0415  only where there is a tensor

    return int(torch.get_num_threads())


def summed(work: Callable[[Sequence[slice]], Sums], pieces: Sequence[slice], many: int) -> Sums:
    """What ``work`` sums over pieces, each sum by itself, done by so many threads.

    Each takes a run of pieces, with a BLAS of one thread: threads that share a piece would wait
    for each other a thousand times in one read. The order of summing is the same at each call.
    What NumPy is told to do of overflow holds in them as well.
    """
    many = max(min(many, len(pieces)), 1)
    if many == 1:
        return work(pieces)
    edges = [len(pieces) * i // many for i in range(many + 1)]
    with _HOLD, ThreadPoolExecutor(many) as pool:
        runs = [pool.submit(copy_context().run, work, pieces[i:j]) for i, j in pairwise(edges)]
        parts = [run.result() for run in runs]
    return tuple(sum(each[1:], each[0]) for each in zip(*parts, strict=True))
