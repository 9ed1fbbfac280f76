"""Threads: limit BLAS to one thread for blocks that are too small to split."""

from __future__ import annotations

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

Sums = tuple[Any, ...]

_TINY = 1 << 13  # numbers of a matrix whose product with a vector BLAS does not split
_SHARED = 1 << 15  # weights; below this one thread is faster


@contextmanager
def one_thread(p: int, n: int) -> Iterator[None]:
    """Limit BLAS to one thread if a block of n rows and p weights is too small to split.

    Threads that synchronize on a busy machine make small updates many times slower. BLAS does not
    split tiny blocks anyway; for them no limit is set, since that costs 10 µs.
    """
    if p * n < 1024 or p >= 1024:
        yield
        return
    with _BLAS.context():
        yield


def single_threaded(size: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for matrix-vector products of ``size`` numbers that are not tiny."""
    return nullcontext() if size < _TINY else _BLAS.context()


@contextmanager
def one_thread_for_tensors(p: int) -> Iterator[None]:
    """Limit NumPy's BLAS to one thread, and PyTorch too if p weights are too few to split."""
    with _BLAS.context(), nullcontext() if p >= _SHARED else _TORCH.context():
        yield


class _ThreadLimit:
    """A process-wide limit of one thread, restored when the last context exits.

    If each thread restored the counts that it found on entry, a thread that enters while the limit
    is set would restore the limit, and so make it permanent.

    An interrupt can occur at any point. So the counts to restore are stored before the limit is
    set, leaving twice has no effect, and a context that was never exited is left when it is
    garbage-collected.
    """

    def __init__(
        self, counts: Callable[[], list[int]], put: Callable[[list[int], list[int]], None]
    ) -> None:
        self.lock = RLock()
        self.within: set[int] = set()
        self.counts, self.put = counts, put
        self.before: list[int] | None = None

    def context(self) -> _LimitContext:
        """A context within which the limit applies."""
        return _LimitContext(self)


class _LimitContext:
    """An active or inactive context of a `_ThreadLimit`."""

    __slots__ = ("_limit",)

    def __init__(self, limit: _ThreadLimit) -> None:
        self._limit = limit

    def __enter__(self) -> None:
        """Set the limit, unless it is set."""
        limit = self._limit
        with limit.lock:
            limit.within.add(id(self))
            if limit.before is None:
                limit.before = limit.counts()
                limit.put([1] * len(limit.before), limit.before)

    def __exit__(self, *raised: object) -> None:
        """Restore the former counts, if no other context is active."""
        limit = self._limit
        with limit.lock:
            limit.within.discard(id(self))
            if not limit.within and limit.before is not None:
                limit.put(limit.before, [1] * len(limit.before))
                limit.before = None

    __del__ = __exit__


@cache
def _blas() -> list[Any]:
    """The BLAS libraries that were loaded with NumPy and SciPy."""
    controllers = ThreadpoolController().lib_controllers
    return [library for library in controllers if library.user_api == "blas"]


def blas_threads() -> int:
    """The number of threads of BLAS for large products; 1 if unknown."""
    return max(_blas_counts(), default=1)


def _blas_counts() -> list[int]:
    return [library.get_num_threads() for library in _blas()]


def _put_blas(counts: list[int], present: list[int]) -> None:
    for library, count, current in zip(_blas(), counts, present, strict=True):
        if current != count:
            library.set_num_threads(count)


def _torch_counts() -> list[int]:
    import torch  # noqa: PLC0415  only if there is a tensor

    return [torch.get_num_threads()]


def _put_torch(counts: list[int], present: list[int]) -> None:
    import torch  # noqa: PLC0415  only if there is a tensor

    if present != counts:
        torch.set_num_threads(*counts)


_BLAS = _ThreadLimit(_blas_counts, _put_blas)
_TORCH = _ThreadLimit(_torch_counts, _put_torch)


def thread_count(array: ArrayOrTensor) -> int:
    """The number of threads for an array: PyTorch's for a tensor, else 1."""
    if isinstance(array, np.ndarray):
        return 1
    import torch  # noqa: PLC0415  only if there is a tensor

    return int(torch.get_num_threads())


def sum_in_threads(
    work: Callable[[Sequence[slice]], Sums], pieces: Sequence[slice], threads: int
) -> Sums:
    """Sum the results of ``work`` over pieces, each component separately, in threads.

    Each thread processes a run of pieces, with BLAS limited to one thread: threads that share a
    piece would synchronize a thousand times per pass. The order of summation is deterministic.
    NumPy's error state applies in all threads.
    """
    threads = max(min(threads, len(pieces)), 1)
    if threads == 1:
        return work(pieces)
    edges = [len(pieces) * i // threads for i in range(threads + 1)]
    with _BLAS.context(), ThreadPoolExecutor(threads) as pool:
        runs = [pool.submit(copy_context().run, work, pieces[i:j]) for i, j in pairwise(edges)]
        parts = [run.result() for run in runs]
    return tuple(sum(terms[1:], terms[0]) for terms in zip(*parts, strict=True))
