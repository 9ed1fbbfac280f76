"""Row loop: least squares learned by the compiled loop, where a learner is one that it knows.

It knows the past that fades by rows, with or without a floor, once every direction is determined;
whatever else comes, and numbers so large or small that squares of them need care, is learned by
the blocks of :mod:`onepass.memory.forgetting`. Both are the same recursion, to rounding.
"""

from typing import Any

import numpy as np

from onepass import linalg, native
from onepass.learners.linear import plain_parts
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

__all__ = ["learned", "opened", "serves", "told"]

_WIDEST = 1 << 13  # features; of more, the copies of the triangle would be too large
_ALONE = 1024  # features of rows that the loop's one thread learns sooner than many of BLAS
_SHARE = 256  # features that a visit of the floor looks at
_HEAD = 64  # rows learned by blocks before the loop is tried again; doubled while it refuses
_LONGEST = 4096  # the largest such number
_NO_ROWS = (None,) * 5  # no single rows will come
_LARGEST, _SMALLEST = 1e60, 1e-50  # their squares, and sums of them, are far from the ends


def opened(
    rule: Any, past: LeastSquaresState, floor: Floor, start: Floats, reading: tuple[Any, ...]
) -> Any:
    """The loop with this past; None where too little is known yet, or numbers are extreme.

    Parameters
    ----------
    rule : rule of forgetting
    past : Past
    floor : state of the rule
    start : ndarray of shape (d, c)
        w₀.
    reading : tuple
        How single rows are read and answered: the last five arguments of ``compiled.loops.Rows``.
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


def told(loop: Any, past: LeastSquaresState, floor: Floor) -> tuple[LeastSquaresState, Floor]:
    """What the loop has made of a past and a floor.

    Parameters
    ----------
    loop : Rows
    past, floor : Past and Floor
        With which it was opened.
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
    if count == floor.rows:  # it is not in use
        return past, floor
    energy, active, last = (_part(loop, name) for name in ("energy", "active", "last"))
    return past, Floor(floor.least, energy, active, last, np.array([age]), count)


def learned(rule: ForgettingRule, state: Any, past: LeastSquaresState, rows: NewRows) -> Learned:
    """Learn rows one after the other, as ``rule.learn`` does.

    Parameters
    ----------
    rule, state, past
        A rule of forgetting, its state, and what is known.
    rows : Coming
    """
    n, d = rows.X.shape
    errors, i = np.empty(rows.Y.shape), 0
    few = 8 * n < d  # to copy the triangle would take longer
    if few or not serves(rule, d) or _shared(d):
        return _by_blocks(rule, state, past, rows)
    head = max(d, _HEAD)
    while i < n:
        loop = opened(rule, past, state, rows.start, _NO_ROWS)
        if loop is not None:
            count = _count_learned(loop, rows.part(i, n), errors[i:])
            if count > 0:
                past, state = told(loop, past, state)
                i += count
        if i == n:
            break
        first = past.centering.mass == 0.0
        width = n if loop is not None and count < 0 else 1 if first else head
        head = max(d, _HEAD) if loop is not None else min(2 * head, _LONGEST)
        errors[i : i + width], past, state = _by_blocks(rule, state, past, rows.part(i, i + width))
        i += width
    return Learned(errors, past, state)


def _by_blocks(
    rule: ForgettingRule, state: ForgettingState, past: LeastSquaresState, rows: NewRows
) -> Learned:
    found: Learned = rule.learn(state, past, rows)
    return found


def serves(rule: Any, d: int) -> bool:
    """Whether the loop can learn rows of d features by this rule, once enough is known.

    Parameters
    ----------
    rule : rule of forgetting
    d : int
    """
    fading = type(rule) in {Bounded, Exponential} and rule.factor is not None
    if native.loops is None or not fading or rule.factor < GAP:
        return False
    return d <= (_SHARE if rule.factor < 1.0 and rule.level else _WIDEST)


def _shared(d: int) -> bool:
    """Whether blocks of d features are learned sooner by several threads of BLAS."""
    return d > _ALONE and linalg.blas_threads() > 2


def _count_learned(loop: Any, rows: NewRows, errors: Floats) -> int:
    """How many rows the loop learned before one that needs care; -1 if its state is unusable."""
    Y, s = rows.Y, rows.weights
    for part, X in plain_parts(rows.X):
        targets = np.ascontiguousarray(Y[part], dtype=np.float64)
        weights = None if s is None else np.ascontiguousarray(s[part], dtype=np.float64)
        count: int = loop.learn(len(X), X, targets, weights, errors[part])
        if count < len(X):
            return count if count < 0 else int(part.start) + count
    return len(rows.X)


def _part(loop: Any, name: str) -> Floats:
    """A part of the state, writable."""
    return np.frombuffer(loop.get(name), dtype=np.float64).copy()
