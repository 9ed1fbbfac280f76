"""Evidence: the information of all past rows as a few rows with targets and noise.

A memory that retains the whole past can export as many rows as it has directions, which have the
same effect on another memory as all past rows. Learners are merged this way.

The triangle [R z] of least squares, RᵀR = Π + Σ_k a_k a_kᵀ with Π = LᵀL, contains its prior besides
the rows, and the prior must not count twice. With M = L R⁻¹ = U Γ Vᵀ, where 0 ≤ Γ ≤ 1,

    RᵀR − Π = Rᵀ V (I − Γ²) Vᵀ R,          Rᵀ z = Rᵀ V Vᵀ z                                (1)
    rows  √(1 − γ²) vᵀR   with targets   vᵀz / √(1 − γ²)                                   (2)

so that no squares are formed and subtracted: the error is relative to the total information of
prior and rows about each direction, whatever the units of the features. The residual sum of squares
of these rows is, if s is that of rows and prior,

    s + ‖z‖² − Σ (vᵀz)² / (1 − γ²) = s − Σ (vᵀz)² γ² / (1 − γ²)                            (3)

If the prior outweighs the rows so far that 1 − γ² is lost in rounding, a rounding error is used in
its place: Rᵀz is unchanged, and the information is larger by 1e-14 of the prior's. A direction that
only the prior informs has vᵀz = 0 as well, and yields no row. Cost: O(p³) time, once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.linalg.update import Step
from onepass.types import Array, ArrayOrTensor, Floats

_NOTHING = 64.0 * float(np.finfo(np.float64).eps)  # relative to the prior, and to all targets


class Evidence(NamedTuple):
    """A few rows with the information of all past rows, as NumPy arrays or as tensors."""

    rows: Floats
    """(k, p)."""
    targets: Floats
    """Targets (k, c), or (k,) if each output has its own gradients."""
    noise: Floats
    """The noise variance of each row, (k,)."""
    rest: Floats
    """The residual sum of squares that no weights can explain, (c,)."""
    lost: float = 0.0
    """D of the certificate of a memory that truncates (:mod:`onepass.linalg.subspace`)."""
    full_length: bool = True
    """Whether the rows have the length of the rows that they represent, instead of length 1."""

    def moved(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float:
        """Bound changes of predictions on the represented rows between two weights.

        √(‖rows (new − old)‖² + D ‖new − old‖²). For rows of length 1 it is infinite as soon as one
        prediction changes by more than rounding.
        """
        apart = (new - old).reshape(len(new), -1)
        there = linalg.length(linalg.inner(self.rows.T, apart))
        seen, size, whole = (
            float(each) for each in (there, linalg.length(apart), linalg.length(new))
        )
        if not self.full_length:
            return math.inf if seen > linalg.resolution(self.rows) * whole else 0.0
        return math.hypot(seen, math.sqrt(self.lost) * size)

    def near(self, w: ArrayOrTensor) -> Evidence:
        """Convert to the library, precision and device of other weights."""
        targets = linalg.small(linalg.like(linalg.host(self.targets), linalg.wide(w)))
        return self._replace(rows=linalg.like(self.rows, w), targets=targets)

    def placed(self, features: Array, p: int, outputs: Array, c: int) -> Evidence:
        """Move the features to the columns ``features`` of p, the outputs to ``outputs`` of c."""
        rows = np.zeros((len(self.rows), p))
        rows[:, features] = self.rows
        if self.targets.ndim == 1:
            return self._replace(rows=rows)
        targets, rest = np.zeros((len(rows), c)), np.zeros(c)
        targets[:, outputs], rest[outputs] = self.targets, self.rest
        return self._replace(rows=rows, targets=targets, rest=rest)

    def learned_by(self, memory: Any, w: ArrayOrTensor) -> Step:
        """Learn these rows with a memory, at the weights w."""
        predictions = linalg.inner(self.rows.T, w.reshape(len(w), -1)).reshape(self.targets.shape)
        step: Step = memory.learn(w, self.rows.T, self.targets - predictions, self.noise)
        return step


def without_prior(T: Floats, z: Floats, squares: Floats, L: Floats) -> Evidence:
    """The information of the rows in a triangle, without the prior: (1), (2), (3).

    Parameters
    ----------
    T : ndarray of shape (q, q)
        Nonsingular upper triangle.
    z : ndarray of shape (q, c)
    squares : ndarray of shape (c,)
        The least sum of squares of rows and prior.
    L : ndarray of shape (k, q)
        Rows of the prior, with targets 0; LᵀL is part of TᵀT.
    """
    L = L[L.any(axis=1)]
    q = len(T)
    if not len(L) or not q:
        return Evidence(np.triu(T), z, np.ones(q), squares)
    _, gamma, Vt = linalg.svd_both(linalg.whitened(L, T), whole=True)
    gap = np.ones(q)
    gap[: len(gamma)] = (1.0 - gamma) * (1.0 + gamma)
    rotated, least = Vt @ z, _NOTHING * np.sqrt(q)
    retained = (gap > least) | (np.abs(rotated) > least * linalg.norms(z)).any(axis=1)
    gap, rotated = np.maximum(gap, least)[retained], rotated[retained]
    root = np.sqrt(gap)[:, None]
    rest = squares - np.einsum("ij,i->j", rotated**2, (1.0 - gap) / gap)  # (3)
    rows = root * (Vt[retained] @ np.triu(T))
    return Evidence(rows, rotated / root, np.ones(len(rows)), np.maximum(rest, 0.0))
