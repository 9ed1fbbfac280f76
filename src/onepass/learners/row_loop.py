"""Recursive least squares in the compiled row loop, for the cases that it supports.

The loop supports forgetting by rows, with or without a floor, once every direction is determined.
All other rows, and values so large or small that their squares may overflow or underflow, are
learned in blocks by :mod:`onepass.memory.forgetting`. Both compute the same recursion, to rounding.
"""

from typing import Any

import numpy as np

from onepass import linalg, native
from onepass.learners.linear import float64_blocks
from onepass.linalg.centering import Centering
from onepass.memory.floor import Floor, rows_between
from onepass.memory.forgetting.exponential import (
    Bounded,
    Exponential,
    Learned,
    LeastSquaresState,
    NewRows,
)
from onepass.memory.forgetting.protocols import ForgettingRule, ForgettingState
from onepass.memory.rebased import GAP
from onepass.memory.square_root import Triangle
from onepass.types import Floats

__all__ = ["learn_rows", "open_loop", "read_loop", "supports"]

_MAX_FEATURES = 1 << 13  # with more, copies of the triangle would be too large
_MAX_ONE_THREAD = 1024  # features up to which the loop is faster than BLAS with several threads
_MAX_FLOOR = 256  # features up to which the loop supports a floor
_HEAD = 64  # rows learned by blocks before the loop is tried again; doubled while it fails
_MAX_HEAD = 4096  # maximum number of rows learned by blocks before the loop is tried again
_NO_ROWS = (None,) * 5  # the loop parses no single rows
_LARGEST, _SMALLEST = 1e60, 1e-50  # squares of values in between, and their sums, are safe


def open_loop(
    rule: Any, past: LeastSquaresState, floor: Floor, start: Floats, reading: tuple[Any, ...]
) -> Any:
    """Open a loop with this state; None if a direction is undetermined or values are extreme.

    Parameters
    ----------
    rule : forgetting rule
    past : LeastSquaresState
    floor : state of the rule
    start : ndarray of shape (d, c)
        Initial weights w₀.
    reading : tuple
        The row format: the last five arguments of ``native.loops.Rows``.
    """
    memory, centering, prior = past
    d, c = memory.z.shape
    level = rule.level if rule.factor < 1.0 else 0.0
    early = memory.span is not None or centering.mass == 0.0
    if native.loops is None or early or (prior.level and not prior.seen.all()):
        return None
    size = np.abs(np.diagonal(memory.R))
    largest = max(map(linalg.magnitude, (memory.R, memory.z, start, centering.features)))
    if not (size.min() > _SMALLEST and largest < _LARGEST):
        return None
    fading = (rule.factor, level, rows_between(rule.factor))
    loop = native.loops.Rows(d, c, centering.free, *fading, *reading)
    parts = {
        "start": start,
        "squares": memory.squares,
        "means": np.concatenate((centering.features, centering.targets)),
        "rest": np.concatenate((centering.features_rest, centering.targets_rest)),
        "least": floor.least,
        "energy": floor.squares,
        "active": floor.active,
        "last": floor.last,
    }
    for name, values in parts.items():
        loop.put(name, np.ascontiguousarray(values, dtype=np.float64))
    loop.numbers(centering.mass, float(floor.ages.max(initial=0.0)), floor.rows)
    loop.triangle(np.asfortranarray(memory.R).T, np.ascontiguousarray(memory.z), 0)
    return loop


def read_loop(loop: Any, past: LeastSquaresState, floor: Floor) -> tuple[LeastSquaresState, Floor]:
    """Return the state of a loop.

    Parameters
    ----------
    loop : Rows
    past, floor : LeastSquaresState and Floor
        The state with which the loop was opened.
    """
    memory, centering, prior = past
    d, c = memory.z.shape
    mass, age, faded, count, _ = loop.numbers()
    R, z = np.zeros((d, d), order="F"), np.empty((d, c))
    loop.triangle(R.T, z, 1)
    means, rest = _part(loop, "means"), _part(loop, "rest")
    w = _part(loop, "w").reshape(d, c)
    past = LeastSquaresState(
        Triangle(R, z, w, _part(loop, "squares"), memory.ridge, None),
        Centering(means[:d], means[d:], mass, centering.free, rest[:d], rest[d:]),
        prior.faded(faded),
    )
    if count == floor.rows:  # the floor is not in use
        return past, floor
    energy, active, last = (_part(loop, name) for name in ("energy", "active", "last"))
    return past, Floor(floor.least, energy, active, last, np.array([age]), count)


def learn_rows(rule: ForgettingRule, state: Any, past: LeastSquaresState, rows: NewRows) -> Learned:
    """Learn rows one after the other, as ``rule.learn`` does.

    Parameters
    ----------
    rule, state, past
        A forgetting rule, its state, and the state of the memory.
    rows : NewRows
    """
    n, d = rows.X.shape
    errors, i = np.empty(rows.Y.shape), 0
    few = 8 * n < d  # copying the triangle would take longer
    if few or not supports(rule, d) or _prefers_blas(d):
        return _by_blocks(rule, state, past, rows)
    head = max(d, _HEAD)
    while i < n:
        loop = open_loop(rule, past, state, rows.start, _NO_ROWS)
        if loop is not None:
            count = _count_learned(loop, rows.part(i, n), errors[i:])
            if count > 0:
                past, state = read_loop(loop, past, state)
                i += count
        if i == n:
            break
        first = past.centering.mass == 0.0
        width = n if loop is not None and count < 0 else 1 if first else head
        head = max(d, _HEAD) if loop is not None else min(2 * head, _MAX_HEAD)
        errors[i : i + width], past, state = _by_blocks(rule, state, past, rows.part(i, i + width))
        i += width
    return Learned(errors, past, state)


def _by_blocks(
    rule: ForgettingRule, state: ForgettingState, past: LeastSquaresState, rows: NewRows
) -> Learned:
    found: Learned = rule.learn(state, past, rows)
    return found


def supports(rule: Any, d: int) -> bool:
    """Whether the loop supports this rule with d features.

    Parameters
    ----------
    rule : forgetting rule
    d : int
    """
    fading = type(rule) in {Bounded, Exponential} and rule.factor is not None
    if native.loops is None or not fading or rule.factor < GAP:
        return False
    return d <= (_MAX_FLOOR if rule.factor < 1.0 and rule.level else _MAX_FEATURES)


def _prefers_blas(d: int) -> bool:
    """Whether blocks with d features are learned faster by BLAS with several threads."""
    return d > _MAX_ONE_THREAD and linalg.blas_threads() > 2


def _count_learned(loop: Any, rows: NewRows, errors: Floats) -> int:
    """The number of rows learned before a row that the loop rejects; -1 if its state is invalid."""
    Y, s = rows.Y, rows.weights
    for part, X in float64_blocks(rows.X):
        targets = np.ascontiguousarray(Y[part], dtype=np.float64)
        weights = None if s is None else np.ascontiguousarray(s[part], dtype=np.float64)
        count: int = loop.learn(len(X), X, targets, weights, errors[part])
        if count < len(X):
            return count if count < 0 else int(part.start) + count
    return len(rows.X)


def _part(loop: Any, name: str) -> Floats:
    """A writable copy of a part of the loop's state."""
    return np.frombuffer(loop.get(name), dtype=np.float64).copy()
