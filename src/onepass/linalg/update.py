"""The one equation of the least-squares family, as pure functions.

For a block of n rows let e (n, c) be the errors before learning, G (p, n) the gradients of the
outputs with respect to the p weights, P (p, p) the directions still free to move, never formed,
and R >= 0 (n,) the noise of each row::

    U = P G                        what of the gradients is still free
    S = Gᵀ U + diag(R) = L Lᵀ      one small factorisation, in the order of the rows
    W = U L⁻ᵀ                      the directions that this block uses up
    ν = L⁻¹ e                      errors, one row after the other, in their own units
    w ← w + W ν                    learn
    P ← P − W Wᵀ                   and never move there again

The error that row i would have shown, had the rows before it been learned one by one, is
``e_i − L[i, before i] ν[before i]``, which is ``L[i, i] ν_i`` where a row has one gradient.

:func:`absorb` is the equation for a memory that keeps the square root of P⁻¹ (QRD-RLS [1]);
:func:`fit` for one that can apply P to a vector.

[1] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003, on array algorithms.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.types import Array, ArrayOrTensor, Floats

__all__ = [
    "Absorbed",
    "Fitted",
    "Step",
    "absorb",
    "fade",
    "fit",
    "held",
    "row_by_row",
]

_CALM = 2.0  # rows below it, in standard deviations of their answer, need no QR to be taken in
_FEW = 32  # weights; a QR of fewer is as quick
_SHARP = 1e2  # rows above it blur the errors of rows after them in one factorisation
_BLIND = 1e13  # a row above it, by itself, leaves of all before it little but rounding
_FLOOR = 1e-200  # what has faded below it is held there: far from the least normal number


class Step(NamedTuple):
    """What learning a block gives: the new weights and memory, and what is told and forgotten."""

    w: ArrayOrTensor
    """Weights after the block, of the shape that came in."""
    memory: Any
    """The memory after the block; the one before is untouched."""
    errors: ArrayOrTensor
    """The error of each row just before it alone was learned, (n, c) or (n,)."""
    rank: int
    """How many new directions the block used up."""
    inconsistent_rows: int
    """Rows that lie in the span of the past and disagree with it; the past won."""


class Absorbed(NamedTuple):
    """A triangle that took in a block of rows."""

    R: Floats
    z: Floats
    w: Floats
    errors: Floats
    """What each row would have shown alone, (n, c)."""
    left: Floats
    """By how much the least sum of squares grew, (c,)."""


class Fitted(NamedTuple):
    """Directions used up by a block, and the weights moved along them."""

    w: Floats
    W: Floats
    errors: Floats
    kept: Array
    inconsistent_rows: int


def absorb(R: Floats, z: Floats, w: Floats, A: Floats, b: Floats) -> Absorbed:
    """Take rows [A b] of noise 1 into the triangle [R z], where RᵀR = P⁻¹ and R w = z.

    Rows that say far more than all before them, as the first of large features do under a small
    ridge, are taken in before the others: in one factorisation with them the others' errors would
    be differences of numbers so much larger. Beyond rounding, so many rows as there are weights
    stay together, which tell all that they can tell.
    Cost: 3 p² n + O(p n²) multiplications for n rows, all in BLAS 3.

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Nonsingular upper triangle.
    z, w : ndarrays of shape (p, c)
    A : ndarray of shape (n, p)
    b : ndarray of shape (n, c)
    """
    e = b - A @ w
    V = linalg.whitened(A, R)
    L = linalg.lower_from_rows(V)
    spread = np.diagonal(L)
    sharpest = spread.max(initial=0.0)
    cut = len(A) // 2 if sharpest < _BLIND else int(np.argmax(spread >= _BLIND)) + len(R)
    if not sharpest < _SHARP and 0 < cut < len(A):
        one = absorb(R, z, w, A[:cut], b[:cut])
        two = absorb(one.R, one.z, one.w, A[cut:], b[cut:])
        return two._replace(errors=np.vstack((one.errors, two.errors)), left=one.left + two.left)
    nu = linalg.solve_lower(L, e)
    if _FEW <= len(R) <= len(A) and spread.max() < _CALM:
        R_new, z_new = linalg.cholesky_update(R, z, V, b)
        left = np.einsum("ij,ij->j", nu, nu)
    else:
        R_new, z_new, left = linalg.qr_update(R, z, A, b)
    w_new = linalg.solve_upper(R_new, z_new)
    if not linalg.finite(w_new):
        R_new, z_new = held(R_new, z_new, w)
        w_new = linalg.solve_upper(R_new, z_new)
    return Absorbed(R_new, z_new, w_new, spread[:, None] * nu, left)


def held(R: Floats, z: Floats, w: Floats) -> tuple[Floats, Floats]:
    """The triangle [R z], nonsingular: a direction that lost all information keeps its weight.

    Where one has faded below the rounding of another, a row that excites both leaves nothing of it.
    """
    lost = np.flatnonzero(np.diagonal(R) == 0.0)
    if len(lost):
        R, z = R.copy(order="F"), z.copy()
        R[lost], R[lost, lost], z[lost] = 0.0, _FLOOR, _FLOOR * w[lost]
    return R, z


def fade(R: Floats, z: Floats, factor: float) -> tuple[Floats, Floats]:
    """The triangle [R z] of rows that all weigh ``factor`` as much as before; w stays.

    A direction that is never excited fades towards zero; before it underflows, its row of
    [R z] is held at 1e-200, which leaves R w = z true.
    """
    if factor == 1.0:
        return R, z
    R, z = R * np.sqrt(factor), z * np.sqrt(factor)
    size = np.abs(np.diagonal(R))
    if size.min(initial=1.0) < _FLOOR:
        lift = np.where(size < _FLOOR, _FLOOR / np.maximum(size, np.finfo(float).tiny), 1.0)
        R, z = R * lift[:, None], z * lift[:, None]
    return R, z


def fit(
    w: ArrayOrTensor,
    G: ArrayOrTensor,
    U: ArrayOrTensor,
    e: ArrayOrTensor,
    noise: Floats,
    *,
    group: int = 1,
    basis: ArrayOrTensor | None = None,
) -> Fitted:
    """The step itself, from U = P G, for NumPy's arrays or torch's.

    Where R = 0, P must be a projector that has been applied twice: then S = UᵀU. A gradient
    whose free part is below :func:`onepass.linalg.resolution` of its length lies in the span of the
    past: it uses up nothing, and if its error is not zero it is counted as a contradiction.

    Parameters
    ----------
    w : array of shape (p, c) or (p,)
    G, U : arrays of shape (p, n)
        U may be of another precision, or on another device.
    e : array of shape (n, c) or (n,)
    noise : ndarray of shape (n,)
        R, all zero or all positive.
    group : int
        Neighbouring columns of G that belong to one row.
    basis : array, optional
        Directions that P was made of: if they are less precise than G, less counts as new.
    """
    coarse = [linalg.resolution(array) for array in (G, U, basis) if array is not None]
    U, lengths, tau = linalg.like(U, G), linalg.norms(G), max(coarse)
    if noise.any():
        R = linalg.like(np.diag(noise), lengths)
        L, kept = linalg.ordered_cholesky(linalg.inner(G, U) + R, 0.0 * lengths)
        W = linalg.solve_lower_right(U, L)
    else:
        W, L, kept = linalg.orthonormal(U, tau * lengths)
    flat = linalg.small(e).reshape(e.shape[0], math.prod(e.shape[1:]))
    if len(noise) == 1 and not linalg.is_tensor(L) and kept[0]:  # nothing to solve, nor to count
        nu = flat / L[0, 0]
        return Fitted(linalg.moved(w, W, nu), W, flat.reshape(e.shape), kept, 0)
    nu = linalg.solve_lower(L, flat) * kept[:, None]
    errors = flat - L * linalg.like(_earlier(len(L), group), L) @ nu
    against: Any = 0
    if linalg.on_device(w) or not kept.all():
        size = abs(flat) + (lengths * linalg.norms(w.reshape(-1, 1)))[:, None]
        odd = (abs(errors) > 10.0 * tau * size).any(axis=1) & ~kept
        against = odd.reshape(-1, group).any(axis=1).sum()
    return Fitted(linalg.moved(w, W, nu), W, errors.reshape(e.shape), kept, against)


def row_by_row(
    memory: Any, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, group: int
) -> Step:
    """Rows of ``group`` neighbouring gradients each, one row after the other.

    The errors of a row are those before any of its own gradients was learned.
    """
    now, after, rank, against = w, memory, 0, 0
    errors = np.empty(e.shape)
    for i in range(0, len(e), group):
        rows = slice(i, i + group)
        errors[rows] = e[rows] - G[:, rows].T @ (now - w)
        step = after.learn(now, G[:, rows], errors[rows], noise[rows])
        now, after = step.w, step.memory
        rank, against = rank + step.rank, against + step.inconsistent_rows
    return Step(now, after, errors, rank, against)


def _earlier(n: int, group: int) -> Floats:
    """1 where a column is of an earlier row's group, 0 elsewhere, (n, n)."""
    first = np.arange(n) // group
    return (first[None, :] < first[:, None]).astype(float)
