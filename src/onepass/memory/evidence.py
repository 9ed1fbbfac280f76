"""Evidence: what the rows of the past said, as a few rows that say the same.

A memory that keeps the whole past can give it away: so many rows as it has directions, which teach
another memory what all rows would have taught it. That is how learners are merged.

The triangle [R z] of least squares, RᵀR = Π + Σ_k a_k a_kᵀ with Π = LᵀL, holds its prior beside
the rows, and the prior must not count twice. With M = L R⁻¹ = U Γ Vᵀ, where 0 ≤ Γ ≤ 1,

    RᵀR − Π = Rᵀ V (I − Γ²) Vᵀ R,          Rᵀ z = Rᵀ V Vᵀ z                                (1)
    rows  √(1 − γ²) vᵀR   answered by   vᵀz / √(1 − γ²)                                    (2)

so that no squares are formed and subtracted: the error is relative to what the prior and the rows
say together of each direction, whatever the units of the features. The least value of the squares
that these rows leave is, with s that of rows and prior,

    s + ‖z‖² − Σ (vᵀz)² / (1 − γ²) = s − Σ (vᵀz)² γ² / (1 − γ²)                            (3)

Where the prior outweighs the rows so far that 1 − γ² is lost in rounding, that rounding stands for
it: Rᵀz is as it was, and the information is larger by 1e-14 of the prior's. A direction of which
only the prior says something has vᵀz = 0 as well, and gives no row. Cost: O(p³) time, once.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.linalg.update import Step
from onepass.types import Array, ArrayOrTensor, Floats

__all__ = ["Evidence", "without_prior"]

_NOTHING = 64.0 * float(np.finfo(np.float64).eps)  # relative to the prior, and to all answers


class Evidence(NamedTuple):
    """A few rows that say what all rows said; of NumPy, or in tensors with small answers."""

    rows: Floats
    """(k, p)."""
    targets: Floats
    """(k, c), or (k,) where outputs have gradients of their own."""
    noise: Floats
    """The variance of each, (k,)."""
    rest: Floats
    """What no weights can answer: by so much the least value of the squares is larger, (c,)."""
    lost: float = 0.0
    """The certificate of a memory that truncated (:mod:`onepass.linalg.subspace`)."""
    weighty: bool = True
    """Whether the rows are as long as what they stand for, and not of length 1."""

    def moved(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """By how much the answers that these rows stand for can move, from some weights to others.

        √(‖rows (new − old)‖² + D ‖new − old‖²). Where rows of length 1 stand for others it is
        infinite as soon as one of their answers moves by more than rounding.
        """
        apart = (new - old).reshape(len(new), -1)
        there = linalg.length(linalg.inner(self.rows.T, apart))
        seen, size, whole = (
            float(each) for each in (there, linalg.length(apart), linalg.length(new))
        )
        if not self.weighty:
            return math.inf if seen > linalg.resolution(self.rows) * whole else 0.0
        return math.hypot(seen, math.sqrt(self.lost) * size)

    def near(self, w: ArrayOrTensor) -> "Evidence":
        """The same in the library, precision and place of other weights."""
        targets = linalg.small(linalg.like(linalg.host(self.targets), linalg.wide(w)))
        return self._replace(rows=linalg.like(self.rows, w), targets=targets)

    def placed(self, features: Array, p: int, outputs: Array, c: int) -> "Evidence":
        """The same with its p′ features at the places ``features`` of p, and its outputs of c."""
        rows = np.zeros((len(self.rows), p))
        rows[:, features] = self.rows
        if self.targets.ndim == 1:
            return self._replace(rows=rows)
        targets, rest = np.zeros((len(rows), c)), np.zeros(c)
        targets[:, outputs], rest[outputs] = self.targets, self.rest
        return self._replace(rows=rows, targets=targets, rest=rest)

    def learned_by(self, memory: Any, w: ArrayOrTensor) -> Step:
        """The step of a memory that learns these rows at the weights w."""
        said = linalg.inner(self.rows.T, w.reshape(len(w), -1)).reshape(self.targets.shape)
        step: Step = memory.learn(w, self.rows.T, self.targets - said, self.noise)
        return step


def without_prior(T: Floats, z: Floats, squares: Floats, L: Floats) -> Evidence:
    """What the rows in a triangle said, without the prior's: (1), (2), (3).

    Parameters
    ----------
    T : ndarray of shape (q, q)
        Nonsingular upper triangle.
    z : ndarray of shape (q, c)
    squares : ndarray of shape (c,)
        The least value of the squares of rows and prior.
    L : ndarray of shape (k, q)
        Rows of the prior, answered by 0; LᵀL is part of TᵀT.
    """
    L = L[L.any(axis=1)]
    q = len(T)
    if not len(L) or not q:
        return Evidence(np.triu(T), z, np.ones(q), squares)
    _, gamma, Vt = linalg.svd_both(linalg.whitened(L, T), whole=True)
    gap = np.ones(q)
    gap[: len(gamma)] = (1.0 - gamma) * (1.0 + gamma)
    turned, least = Vt @ z, _NOTHING * np.sqrt(q)
    kept = (gap > least) | (np.abs(turned) > least * linalg.norms(z)).any(axis=1)
    gap, turned = np.maximum(gap, least)[kept], turned[kept]
    root = np.sqrt(gap)[:, None]
    rest = squares - np.einsum("ij,i->j", turned**2, (1.0 - gap) / gap)  # (3)
    rows = root * (Vt[kept] @ np.triu(T))
    return Evidence(rows, turned / root, np.ones(len(rows)), np.maximum(rest, 0.0))
