"""Threads: BLAS held to one where a block is too small to share."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import cache
from itertools import pairwise
from threading import RLock
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from onepass.types import ArrayOrTensor

__all__ = [
    "Sums",
    "blas_threads",
    "one_thread",
    "one_thread_for_tensors",
    "single_threaded",
    "sum_in_threads",
    "thread_count",
]

Sums = tuple[Any, ...]

_TINY = 1 << 13  # numbers of a matrix whose product with a vector BLAS does not share
_SHARED = 1 << 15  # weights; of fewer, work is done before a second thread is awake


@contextmanager
def one_thread(p: int, n: int) -> Iterator[None]:
    """Hold BLAS to one thread where a block of n rows and p weights is too small to share.

    Threads that wait for each other on a busy machine make small updates many times slower.
    Tiny ones, which BLAS does not share anyway, are left alone: the hold itself costs 10 µs.
    """
    if p * n < 1024 or p >= 1024:
        yield
        return
    with _BLAS.held():
        yield


def single_threaded(size: int) -> AbstractContextManager[Any]:
    """Hold BLAS to one thread for products of vectors with matrices of so many numbers.

    Those of the tiny ones it does not share anyway.
    """
    return nullcontext() if size < _TINY else _BLAS.held()


@contextmanager
def one_thread_for_tensors(p: int) -> Iterator[None]:
    """Hold NumPy's BLAS to one thread, and torch as well where p weights are too few to share."""
    with _BLAS.held(), nullcontext() if p >= _SHARED else _TORCH.held():
        yield


class _Hold:
    """Something held while anyone is within, and as it was before when the last one leaves.

    The limit is the process's own. If each thread put back what it had found, one that enters
    while another is within would find the limit, and put it back for good.

    An interrupt may come at any place. So what to go back to is noted before anything is changed,
    to leave twice is to leave once, and who was not let out in order leaves when it is forgotten.
    """

    def __init__(
        self, counts: Callable[[], list[int]], put: Callable[[list[int], list[int]], None]
    ) -> None:
        self._lock = RLock()
        self._within: set[int] = set()
        self._counts, self._put = counts, put
        self._before: list[int] | None = None

    def held(self) -> "_Held":
        """A context within which it is held."""
        return _Held(self)

    def enter(self, who: int) -> None:
        """Hold it, if nobody does; ``who`` is an id of one that lives until it has left."""
        with self._lock:
            self._within.add(who)
            if self._before is None:
                self._before = self._counts()
                self._put([1] * len(self._before), self._before)

    def leave(self, who: int) -> None:
        """Put back what was there before, if nobody else is within."""
        with self._lock:
            self._within.discard(who)
            if not self._within and self._before is not None:
                self._put(self._before, [1] * len(self._before))
                self._before = None


class _Held:
    """One who is within."""

    __slots__ = ("_hold",)

    def __init__(self, hold: _Hold) -> None:
        self._hold = hold

    def __enter__(self) -> None:
        self._hold.enter(id(self))

    def __exit__(self, *raised: object) -> None:
        self._hold.leave(id(self))

    def __del__(self) -> None:
        self._hold.leave(id(self))


@cache
def _blas() -> list[Any]:
    """The BLAS libraries that were loaded with NumPy and SciPy, to be told how many threads."""
    controllers = ThreadpoolController().lib_controllers
    return [each for each in controllers if each.user_api == "blas"]


def blas_threads() -> int:
    """How many threads BLAS shares large products with; 1 where that is not known."""
    return max(_blas_counts(), default=1)


def _blas_counts() -> list[int]:
    return [each.get_num_threads() for each in _blas()]


def _put_blas(counts: list[int], now: list[int]) -> None:
    for each, count, is_now in zip(_blas(), counts, now, strict=True):
        if is_now != count:
            each.set_num_threads(count)


def _torch_counts() -> list[int]:
    import torch  # noqa: PLC0415  only where there is a tensor

    return [torch.get_num_threads()]


def _put_torch(counts: list[int], now: list[int]) -> None:
    import torch  # noqa: PLC0415  only where there is a tensor

    if now != counts:
        torch.set_num_threads(*counts)


_BLAS = _Hold(_blas_counts, _put_blas)
_TORCH = _Hold(_torch_counts, _put_torch)


def thread_count(array: ArrayOrTensor) -> int:
    """How many threads share the work on an array: as many as torch has on a tensor."""
    if isinstance(array, np.ndarray):
        return 1
    import torch  # noqa: PLC0415  only where there is a tensor

    return int(torch.get_num_threads())


def sum_in_threads(
    work: Callable[[Sequence[slice]], Sums], pieces: Sequence[slice], many: int
) -> Sums:
    """What ``work`` sums over pieces, each sum by itself, done by so many threads.

    Each takes a run of pieces, with a BLAS of one thread: threads that share a piece would wait
    for each other a thousand times in one read. The order of summing is the same at each call.
    What NumPy is told to do of overflow holds in them as well.
    """
    many = max(min(many, len(pieces)), 1)
    if many == 1:
        return work(pieces)
    edges = [len(pieces) * i // many for i in range(many + 1)]
    with _BLAS.held(), ThreadPoolExecutor(many) as pool:
        runs = [pool.submit(copy_context().run, work, pieces[i:j]) for i, j in pairwise(edges)]
        parts = [run.result() for run in runs]
    return tuple(sum(each[1:], each[0]) for each in zip(*parts, strict=True))
