"""Threads: BLAS held to one where a block is too small to share."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["alone", "one_thread", "summed", "tensors_alone"]

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
    limit: Callable[[], object] = _blas().limit(limits=1, user_api="blas").restore_original_limits
    return limit


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
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def summed(work: Callable[[slice], Any], pieces: Sequence[slice], *, shared: bool) -> Any:
    """The sum of what is made of each piece, in their order.

    If ``shared``, as many threads as torch has take a run of pieces each, with a BLAS of one
    thread: threads that share a piece would wait for each other a thousand times in one read.
    """
    if not shared:
        return sum((work(piece) for piece in pieces[1:]), work(pieces[0]))
    import torch  # noqa: PLC0415  only where there is a tensor

    hands = max(min(torch.get_num_threads(), len(pieces)), 1)
    edges = [len(pieces) * i // hands for i in range(hands + 1)]
    runs = [pieces[i:j] for i, j in pairwise(edges)]
    with _HOLD:
        if hands == 1:
            return summed(work, pieces, shared=False)
        with ThreadPoolExecutor(hands) as pool:
            parts = list(pool.map(lambda run: summed(work, run, shared=False), runs))
    return sum(parts[1:], parts[0])
