"""Probabilities from the scores of a classifier: a scale and offsets, fitted in one pass.

Scores z (c) of a row become the probabilities

    p = softmax(u),   u = β z + a,   β = e^λ                                               (1)

with one scale β and one offset a_k per class [1, 2]: scores whose threshold is not where the
classes are equally probable, as those of rare classes, need the offsets. λ and a minimise the log
loss of prequential scores. A row of class y and weight w, predicted before it is learned, takes one
Newton step of at most 1 in each number, with v = β (z − z̄), z̄ the mean of z:

    λ ← λ + Σ_k g_k v_k / (H + 1/100),    H ← (1 − r) H + ω (Σ_k p_k v_k² − (Σ_k p_k v_k)²)
    a_k ← a_k + g_k / (2 (h_k + 10)),    h_k ← (1 − r) h_k + ω p_k (1 − p_k)               (2)
    g = ω (t − p),   t_k = (1 − ε) [k = y] + ε / c

where ω is w divided by the mean weight of the N rows so far. r = ω max(3 / (N + 4), 1/500), at most
1/2, forgets the first rows, whose scores vary most, and follows drift. ε = 1 / (N + 3) smooths the
target as in [1], so that λ stays finite while all rows are correct. v is shortened to a standard
deviation of 50. λ starts with the scores of the first row at a standard deviation of 1, and the
offset of a new class with the mean of the others, 0.

All of the first 256 rows are used, then one in 2, 4 and 8 while the number of rows doubles, and one
in 16 from row 2,048 on. This is enough, since N rows cost about 1 / (2N) of log loss for each
number, and learning takes no longer. A row is drawn in each interval by its index alone, so the
division of a stream into blocks has no effect, nor has a period of the labels. Rows whose scores
are equal up to rounding, with a standard deviation of at most 1e-10 max |z|, as of a machine that
stands still, are left out. The state is λ, H, w̄, N, and a_k, h_k of each class. Compiled states of
:mod:`onepass.native` contain it and update it with single rows.

[1] J. C. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized
    likelihood methods", Advances in Large Margin Classifiers, 1999.
[2] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On calibration of modern neural networks",
    ICML 2017; temperature and vector scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from onepass import native
from onepass.types import Array, Floats

_HEAD = 8  # log2 of the number of first rows that are all used
_SPACING = 16  # maximum number of rows of which one is used
_SLOWEST = 2e-3  # minimum of r / ω
_RIDGE = 1e-2  # added to H
_OF_CLASS = 10.0  # added to h
_FARTHEST = 50.0  # maximum standard deviation of v
_TIE = 1e-10  # of the largest score; a smaller standard deviation is rounding
_LEAST = -1e300  # lower scores are those of classes without rows


def start(c: int) -> Floats:
    """The state of c classes before the first row: probabilities are softmax(z)."""
    return np.zeros(4 + 2 * c)


def grown(state: Floats, at: Array) -> Floats:
    """The state with further classes, in the places ``at`` (sorted) among all."""
    return np.insert(state, 4 + 2 * np.repeat(at - np.arange(len(at)), 2), 0.0)


def next_row(i: int) -> int:
    """The index of the first row at or after row i that is used."""
    step = min(1 << max(i.bit_length() - _HEAD, 0), _SPACING)
    interval = i // step
    drawn = interval * step + (interval * 0x9E3779B97F4A7C15 % 2**64 >> 40) % step
    return drawn if drawn >= i else next_row((interval + 1) * step)


def rows(first: int, n: int) -> Iterator[int]:
    """The rows that are used of n rows, numbered from 0, of which the first has this index."""
    i = next_row(first)
    while i < first + n:
        yield i - first
        i = next_row(i + 1)


def updated(
    state: Floats, scores: Floats, labels: Array, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """The state after rows, and the scale and offsets (n, 1 + c) after each of them.

    Parameters
    ----------
    state : ndarray of shape (4 + 2 c,)
    scores : ndarray of shape (n, c)
        The prequential scores; −inf for classes that are not known yet.
    labels : ndarray of shape (n,)
        The indices of the classes.
    weights : ndarray of shape (n,), optional
    """
    state, found = state.copy(), np.empty((len(scores), 1 + scores.shape[1]))
    weights = np.ones(len(scores)) if weights is None else weights
    if native.loops is not None:
        native.loops.calibrate(
            *scores.shape, state, np.ascontiguousarray(scores, dtype=np.float64),
            labels.astype(np.float64), np.ascontiguousarray(weights, dtype=np.float64), found,
        )  # fmt: skip
        return state, found
    for i, (row, y, weight) in enumerate(zip(scores, labels.tolist(), weights, strict=True)):
        _update(state, row, y, float(weight))
        found[i] = scale_and_offsets(state)
    return state, found


def _update(state: Floats, scores: Floats, y: int, weight: float) -> None:
    """Take the step (2) of one row, in place."""
    known = scores > _LEAST
    if known.sum() < 2 or not known[y]:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        z = scores[known] - scores[known].mean()
        s = math.sqrt(float(np.mean(z * z)))
    if not max(1e-150, _TIE * float(np.abs(scores[known]).max())) < s < 1e150:
        return
    (lam, H, mean, N), classes = state[:4].tolist(), state[4:].reshape(-1, 2)
    a, h = classes[known].T
    if not N:
        lam = -math.log(s)
    mean += (weight - mean) / (N + 1.0)
    omega = weight / mean
    keep = 1.0 - min(omega * max(3.0 / (N + 4.0), _SLOWEST), 0.5)
    v = z * (min(math.exp(lam) * s, _FARTHEST) / s)
    p = np.exp((v + a) - (v + a).max())
    p /= p.sum()
    m = float(p @ v)
    H = keep * H + omega * (float(p @ (v * v)) - m * m)
    h = keep * h + omega * p * (1.0 - p)
    epsilon = 1.0 / (N + 3.0)
    target = np.full(len(v), epsilon / len(v))
    target[known[:y].sum()] += 1.0 - epsilon
    g = omega * (target - p)
    a = a + np.clip(g / (2.0 * (h + _OF_CLASS)), -1.0, 1.0)
    lam += min(max(float(g @ v) / (H + _RIDGE), -1.0), 1.0)
    state[:4] = lam, H, mean, N + 1.0
    classes[known] = np.column_stack([a - a.mean(), h])


def merged(one: Floats, two: Floats) -> Floats:
    """The state for the rows of two learners: means of the first numbers by the second ones."""
    first, second = one.reshape(-1, 2), two.reshape(-1, 2)
    total = first[:, 1] + second[:, 1]
    share = np.divide(second[:, 1], total, out=np.zeros(len(total)), where=total > 0.0)
    means = first[:, 0] + (second[:, 0] - first[:, 0]) * share
    return np.column_stack([means, total]).ravel()


def scale_and_offsets(state: Floats) -> Floats:
    """β and a of (1), (1 + c,)."""
    fitted = state[2::2].copy()
    fitted[0] = math.exp(state[0])
    return fitted


def probabilities(scores: Floats, fitted: Floats | None = None) -> Floats:
    """Probabilities (1) of the classes.

    Parameters
    ----------
    scores : ndarray of shape (n, c)
        −inf for classes that are not known yet.
    fitted : ndarray of shape (1 + c,) or (n, 1 + c), optional
        The scale and offsets; without them, softmax of the scores.
    """
    if not scores.shape[1]:
        return scores
    u = scores - scores.max(axis=1, keepdims=True)
    if fitted is not None:
        with np.errstate(over="ignore"):
            u = fitted[..., :1] * u + fitted[..., 1:]
    p: Floats = np.exp(u - u.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p
