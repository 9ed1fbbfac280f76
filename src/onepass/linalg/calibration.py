"""Probabilities from the scores of a classifier: one temperature, fitted in one pass.

Scores z (c) of a row become the probabilities

    p = softmax(u),   u = β (z − z̄),   β = exp(θ − L)                                      (1)

with z̄ the mean of the scores, so that the class with the largest score is the most probable one. L
is a running mean of log s, where s is the standard deviation of a row's scores over the classes:
θ does not depend on the unit of the scores. θ minimises the log loss of prequential scores [1, 2].
A row of class y, predicted before it is learned, takes one Newton step of at most 1,

    H ← (1 − r) H + Σ_k p_k u_k² − m²,   θ ← θ − (m − (1 − ε) u_y) / H,   m = Σ_k p_k u_k   (2)

after N such rows. r = max(2 / (N + 2), 1/1000) forgets the first rows, whose scores vary most, and
follows drift. ε = 1 / (N + 2) smooths the target as in [1], so that θ stays finite while all rows
are correct.

Not all rows are used: the first 128, then 64 each time that the number of rows doubles, and one in
512 in the end. For one number this is enough, since N rows cost about 1 / (2N) of log loss, and
learning takes no longer. The choice depends only on the index of a row, so the division of a stream
into blocks has no effect. Rows whose scores are equal up to rounding, s <= 8 eps max |z|, as of a
machine that stands still, are left out. The state is four numbers: θ, H, N and L.
Compiled states of :mod:`onepass.native` contain it and update it with single rows.

[1] J. C. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized
    likelihood methods", Advances in Large Margin Classifiers, 1999.
[2] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On calibration of modern neural networks",
    ICML 2017; temperature scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from onepass import native
from onepass.types import Floats

__all__ = ["START", "merged", "probabilities", "rows", "temperature", "updated"]

START = np.zeros(4)
"""The state before the first row: probabilities are softmax(z)."""

_HEAD = 7  # log2 of the number of first rows that are all used
_SPACING = 512  # maximum distance between rows that are used
_SLOWEST = 1e-3  # minimum of r
_RIDGE = 1e-2  # added to H
_LARGEST = 1e100  # larger u, after a change of the scores' unit, only update L
_LEAST = -1e300  # lower scores are those of classes without rows


def _next_row(i: int) -> int:
    """The index of the first row at or after row i that is used."""
    step = min(1 << max(i.bit_length() - _HEAD, 0), _SPACING)
    return -(-i // step) * step


def rows(first: int, n: int) -> Iterator[int]:
    """The rows that are used of n rows, numbered from 0, of which the first has this index."""
    i = _next_row(first)
    while i < first + n:
        yield i - first
        i = _next_row(i + 1)


def updated(state: Floats, scores: Floats, y: int) -> Floats:
    """The state after one row.

    Parameters
    ----------
    state : ndarray of shape (4,)
    scores : ndarray of shape (c,)
        The prequential scores; −inf for classes that are not known yet.
    y : int
        The class.
    """
    if native.loops is not None:
        state = state.copy()
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        native.loops.calibrate(len(scores), state, scores, y)
        return state
    known = scores > _LEAST
    if known.sum() < 2 or not known[y]:
        return state
    with np.errstate(over="ignore", invalid="ignore"):
        z = scores[known] - scores[known].mean()
        s = math.sqrt(float(np.mean(z * z)))
    rounding = 8.0 * np.finfo(np.float64).eps * float(np.abs(scores[known]).max())
    if not max(1e-150, rounding) < s < 1e150:
        return state
    theta, H, N, L = state.tolist()
    r = max(2.0 / (N + 3.0), _SLOWEST)
    L += (math.log(s) - L) * (r if N else 1.0)
    beta = math.exp(theta - L)
    if not beta * s < _LARGEST:
        return np.array([theta, H, N, L])
    u = beta * z
    p = np.exp(u - u.max())
    p /= p.sum()
    m = float(p @ u)
    H = (1.0 - r) * H + float(p @ (u * u)) - m * m  # (2)
    step = (m - (1.0 - 1.0 / (N + 3.0)) * float(u[known[:y].sum()])) / (H + _RIDGE)
    return np.array([theta - min(max(step, -1.0), 1.0), H, N + 1.0, L])


def merged(one: Floats, two: Floats) -> Floats:
    """The state for the rows of two learners: means weighted by the numbers of rows."""
    total = one[2] + two[2]
    mean = one + (two - one) * (two[2] / total if total else 0.0)
    return np.array([mean[0], one[1] + two[1], total, mean[3]])


def temperature(state: Floats) -> float:
    """β of (1)."""
    return math.exp(state[0] - state[3])


def probabilities(scores: Floats, temperature: Any) -> Floats:
    """Probabilities (1) of the classes from scores (n, c) and β, a number or (n, 1)."""
    if not scores.shape[1]:
        return scores
    with np.errstate(over="ignore"):
        p: Floats = np.exp((scores - scores.max(axis=1, keepdims=True)) * temperature)
    p /= p.sum(axis=1, keepdims=True)
    return p
