"""Sums over weights that are split over processes.

Each process stores some of the p weights, and those rows of every long array. Sums over all weights
are then sums over the weights of this process, added up over all processes. Everything else is
local to a process, or small and equal in all processes, because it is computed from such sums.

Functions of this package that sum over weights call :func:`summed`, which does nothing outside of
:func:`split_over`. There, long arrays are tensors, so that NumPy arrays are small.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_SPLIT: ContextVar[Any] = ContextVar("_SPLIT", default=None)


@contextmanager
def split_over(split: Any) -> Iterator[None]:
    """Context in which long arrays contain the weights of one process.

    Parameters
    ----------
    split : ProcessSplit or None
        Has ``p``, the number of weights of all processes, and ``add``, which adds up each of some
        small arrays over all processes in one exchange. None: one process has all weights.
    """
    token = _SPLIT.set(split)
    try:
        yield
    finally:
        _SPLIT.reset(token)


def summed(*arrays: Any) -> tuple[Any, ...]:
    """Add up small arrays over all processes, in one exchange."""
    split = _SPLIT.get()
    return arrays if split is None else tuple(split.add(*arrays))


def is_split() -> bool:
    """Whether long arrays contain the weights of one process only."""
    return _SPLIT.get() is not None


def count_weights(n: int) -> int:
    """The number of weights of all processes, of which this one has n."""
    split = _SPLIT.get()
    return n if split is None else int(split.p)
