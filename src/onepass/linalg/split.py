"""Sums over weights that are split over processes.

Each process stores some of the p weights, and those rows of every long array. Sums over all weights
are then sums over the weights of this process, added up over all processes. Everything else is
local to a process, or small and equal in all processes, because it is computed from such sums.

Functions of this package that sum over weights call :func:`summed`, which does nothing outside of
:func:`split_over`. There, long arrays are tensors, so that NumPy arrays are small.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

__all__ = ["WeightSplit", "count_weights", "is_split", "split_over", "summed"]


class WeightSplit(NamedTuple):
    """How weights are split over processes."""

    p: int
    """The number of weights of all processes."""
    add: Callable[..., tuple[Any, ...]]
    """Adds up each of some small arrays over all processes, in one exchange."""


_SPLIT: ContextVar[WeightSplit | None] = ContextVar("_SPLIT", default=None)


@contextmanager
def split_over(split: WeightSplit | None) -> Iterator[None]:
    """Context in which long arrays contain the weights of one process; None: all weights."""
    token = _SPLIT.set(split)
    try:
        yield
    finally:
        _SPLIT.reset(token)


def summed(*arrays: Any) -> tuple[Any, ...]:
    """Add up small arrays over all processes, in one exchange."""
    split = _SPLIT.get()
    return arrays if split is None else split.add(*arrays)


def is_split() -> bool:
    """Whether long arrays contain the weights of one process only."""
    return _SPLIT.get() is not None


def count_weights(n: int) -> int:
    """The number of weights of all processes, of which this one has n."""
    split = _SPLIT.get()
    return n if split is None else split.p
