"""The update equation of the least-squares family, as pure functions.

For a block of n rows let e (n, c) be the errors before the update, G (p, n) the gradients of the
outputs with respect to the p weights, P (p, p) the projector on the free directions, which is never
formed, and R >= 0 (n,) the noise variance of each row::

    U = P G                        the free part of the gradients
    S = Gᵀ U + diag(R) = L Lᵀ      one small factorization, in the order of the rows
    W = U L⁻ᵀ                      the directions that this block uses up
    ν = L⁻¹ e                      normalised innovations, row by row
    w ← w + W ν                    update of the weights
    P ← P − W Wᵀ                   these directions are no longer free

The error of row i after learning the rows before it one by one is
``e_i − L[i, before i] ν[before i]``, which is ``L[i, i] ν_i`` if each row has one gradient.

:func:`absorb` is the update of a memory that stores the square root of P⁻¹ (QRD-RLS [1]);
:func:`fit` that of a memory that can apply P to a vector.

[1] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003, on array algorithms.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.types import Array, ArrayOrTensor, Floats

_CALM = 2.0  # whitened rows below this need no QR
_FEW = 32  # weights; below this a QR is as fast
_SHARP = 1e2  # whitened rows above this blur the errors of later rows
_BLIND = 1e13  # a whitened row above this reduces earlier rows to rounding
_FLOOR = 1e-200  # lower bound of diagonal entries, far above underflow


class Step(NamedTuple):
    """The result of learning a block."""

    w: ArrayOrTensor
    """Weights after the block, in the shape of the input."""
    memory: Any
    """The memory after the block; the previous one is not modified."""
    errors: ArrayOrTensor
    """The error of each row just before it is learned, (n, c) or (n,)."""
    rank: int
    """The number of new directions that the block used up."""
    inconsistent_rows: int
    """Rows in the span of the past that are inconsistent with it; the past is not changed."""


class TriangleUpdate(NamedTuple):
    """A triangle after a block of rows."""

    R: Floats
    z: Floats
    w: Floats
    errors: Floats
    """The error of each row just before it is learned, (n, c)."""
    left: Floats
    """The growth of the least sum of squares, (c,)."""


class FittedStep(NamedTuple):
    """The directions used up by a block, and the weights updated along them."""

    w: Floats
    W: Floats
    errors: Floats
    retained: Array
    inconsistent_rows: int


def absorb(R: Floats, z: Floats, w: Floats, A: Floats, b: Floats) -> TriangleUpdate:
    """Add rows [A b] of noise 1 to the triangle [R z], where RᵀR = P⁻¹ and R w = z.

    Rows with far more information than all rows before them, such as the first rows of large
    features under a small ridge, are added in a separate factorization before the later rows: in a
    joint one, the errors of the later rows would be differences of much larger numbers. Rows that
    reduce earlier rows to rounding errors are added together with as many rows as there are
    weights, since these determine all weights.
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
        first = absorb(R, z, w, A[:cut], b[:cut])
        second = absorb(first.R, first.z, first.w, A[cut:], b[cut:])
        return second._replace(
            errors=np.vstack((first.errors, second.errors)), left=first.left + second.left
        )
    nu = linalg.solve_lower(L, e)
    if _FEW <= len(R) <= len(A) and spread.max() < _CALM:
        R_new, z_new = linalg.cholesky_update(R, z, V, b)
        left = np.einsum("ij,ij->j", nu, nu)
    else:
        R_new, z_new, left = linalg.qr_update(R, z, A, b)
    w_new = linalg.solve_upper(R_new, z_new)
    if not linalg.finite(w_new):
        R_new, z_new = nonsingular(R_new, z_new, w)
        w_new = linalg.solve_upper(R_new, z_new)
    return TriangleUpdate(R_new, z_new, w_new, spread[:, None] * nu, left)


def nonsingular(R: Floats, z: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Make the triangle [R z] nonsingular: a direction without information retains its weight.

    If a direction has faded below the rounding errors of another, its information vanishes with the
    first row that excites both.
    """
    empty = np.flatnonzero(np.diagonal(R) == 0.0)
    if len(empty):
        R, z = R.copy(order="F"), z.copy()
        R[empty], R[empty, empty], z[empty] = 0.0, _FLOOR, _FLOOR * w[empty]
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
) -> FittedStep:
    """The update of the weights from U = P G, for NumPy arrays or tensors.

    If R = 0, P must be a projector that has been applied twice: then S = UᵀU. A gradient whose
    free part is below :func:`onepass.linalg.resolution` of its length lies in the span of the
    past: it uses up no direction, and if its error is not zero it counts as inconsistent.

    Parameters
    ----------
    w : array of shape (p, c) or (p,)
    G, U : arrays of shape (p, n)
        U may be of another precision, or on another device.
    e : array of shape (n, c) or (n,)
    noise : ndarray of shape (n,)
        R, all zero or all positive.
    group : int
        The number of neighbouring columns of G that belong to one row.
    basis : array, optional
        The array that P is made of: a lower precision than that of G raises the threshold.
    """
    coarse = [linalg.resolution(array) for array in (G, U, basis) if array is not None]
    U, lengths, tau = linalg.like(U, G), linalg.norms(G), max(coarse)
    if noise.any():
        R = linalg.like(np.diag(noise), lengths)
        L, retained = linalg.ordered_cholesky(linalg.inner(G, U) + R, 0.0 * lengths)
        W = linalg.solve_lower_right(U, L)
    else:
        W, L, retained = linalg.orthonormal(U, tau * lengths)
    flat = linalg.small(e).reshape(e.shape[0], math.prod(e.shape[1:]))
    if len(noise) == 1 and not linalg.is_tensor(L) and retained[0]:  # nothing to solve or count
        nu = flat / L[0, 0]
        return FittedStep(linalg.moved(w, W, nu), W, flat.reshape(e.shape), retained, 0)
    nu = linalg.solve_lower(L, flat) * retained[:, None]
    errors = flat - L * linalg.like(_earlier(len(L), group), L) @ nu
    count: Any = 0
    if linalg.on_device(w) or not retained.all():
        size = abs(flat) + (lengths * linalg.norms(w.reshape(-1, 1)))[:, None]
        inconsistent = (abs(errors) > 10.0 * tau * size).any(axis=1) & ~retained
        count = inconsistent.reshape(-1, group).any(axis=1).sum()
    return FittedStep(linalg.moved(w, W, nu), W, errors.reshape(e.shape), retained, count)


def row_by_row(
    memory: Any, w: ArrayOrTensor, G: ArrayOrTensor, e: ArrayOrTensor, noise: Floats, group: int
) -> Step:
    """Learn rows of ``group`` neighbouring gradients each, one row after the other.

    The errors of a row are those before any gradient of this row is learned.
    """
    now, after, rank, count = w, memory, 0, 0
    errors = np.empty(e.shape)
    for i in range(0, len(e), group):
        rows = slice(i, i + group)
        errors[rows] = e[rows] - G[:, rows].T @ (now - w)
        step = after.learn(now, G[:, rows], errors[rows], noise[rows])
        now, after = step.w, step.memory
        rank, count = rank + step.rank, count + step.inconsistent_rows
    return Step(now, after, errors, rank, count)


def _earlier(n: int, group: int) -> Floats:
    """1 if a column belongs to an earlier row's group, else 0, (n, n)."""
    first = np.arange(n) // group
    return (first[None, :] < first[:, None]).astype(float)
