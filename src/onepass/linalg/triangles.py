"""Triangles: least squares by QR and Cholesky factors, of NumPy arrays in float64."""

import math

import numpy as np
from scipy.linalg import blas, lapack

from onepass.errors import Floats
from onepass.linalg import unlocked

__all__ = [
    "cholesky",
    "lower_from_rows",
    "solve_upper",
    "solve_upper_transposed",
    "solved",
    "take_in",
    "take_in_calm",
    "whitened",
]

_SAFE_GRAM = 1e4  # a Gram matrix may be squared while its largest entry is below this


def take_in(R: Floats, z: Floats, A: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """The triangle of the rows [R z] and [A b] together, by Householder QR (LAPACK tpqrt).

    Parameters
    ----------
    R : ndarray of shape (p, p)
        Upper triangle; it may be singular.
    z : ndarray of shape (p, c)
    A : ndarray of shape (n, p)
        New rows.
    b : ndarray of shape (n, c)

    Returns
    -------
    R, z : ndarrays of the same shapes
        New arrays; RᵀR has grown by AᵀA and Rᵀz by Aᵀb.
    left : ndarray of shape (c,)
        Sum of squares of what of b no weights can answer: by so much grows the residual.
    """
    p = R.shape[0]
    if p == 0 or A.shape[0] == 0:
        return R, z, np.einsum("ij,ij->j", b, b)
    nb, (n, c) = _panel(p), b.shape
    long = n * p * p >= unlocked.LONG
    if long:
        R_new, V, T = np.array(R, order="F"), np.array(A, order="F"), np.empty((nb, p), order="F")
        unlocked.call("dtpqrt", n, p, 0, nb, R_new, p, V, n, T, nb, np.empty(nb * p), 0)
    else:
        R_new, V, T, _ = lapack.dtpqrt(0, nb, R, A)
    if c == 0:
        return R_new, z, np.zeros(0)
    if long:
        z_new, rest, work = np.array(z, order="F"), np.array(b, order="F"), np.empty(nb * c)
        sizes = (n, c, p, 0, nb)
        unlocked.call("dtpmqrt", "L", "T", *sizes, V, n, T, nb, z_new, p, rest, n, work, 0)
    else:
        z_new, rest, _ = lapack.dtpmqrt(0, V, T, z, b, side="L", trans="T")
    return R_new, z_new, np.einsum("ij,ij->j", rest, rest)


def _panel(p: int) -> int:
    """Columns that are reflected together, as measured for blocks as wide as they come."""
    return min(p, 16) if p < 512 else 32 if p < 4096 else 64


def cholesky(S: Floats) -> tuple[Floats, int]:
    """The lower Cholesky factor of S (p, p), and LAPACK's info, nonzero if there is none."""
    p = len(S)
    if p**3 < unlocked.LONG:
        L, info = lapack.dpotrf(S, lower=1)
        return L, info
    L = np.array(S, order="F")
    info = unlocked.call("dpotrf", "L", p, L, p, 0)
    return np.asfortranarray(np.tril(L)), info


def take_in_calm(R: Floats, z: Floats, V: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The same triangle from the whitened rows V = A R⁻¹, while they are not large.

    I + VᵀV = CᵀC, R ← C R, z ← C⁻ᵀ (z + Vᵀ b). With V of a few units I + VᵀV is as well
    conditioned, so that C is exact to rounding whatever the condition of R; and for as many rows
    as weights this is quicker than a QR.
    """
    n, p = V.shape
    if n * p * p < unlocked.LONG:
        M = blas.dsyrk(1.0, V, trans=1)
        M.ravel(order="K")[:: p + 1] += 1.0
        C = lapack.dpotrf(M, clean=0, overwrite_a=1)[0]
        R = blas.dtrmm(1.0, C, R)
    else:
        C, R = np.zeros((p, p), order="F"), np.array(R, order="F")
        unlocked.call("dsyrk", "U", "T", p, n, 1.0, np.asfortranarray(V), n, 0.0, C, p)
        C.ravel(order="K")[:: p + 1] += 1.0
        unlocked.call("dpotrf", "U", p, C, p, 0)
        unlocked.call("dtrmm", "L", "U", "N", "N", p, p, 1.0, C, p, R, p)
    return R, solve_upper_transposed(C, z + V.T @ b)


def solve_upper(R: Floats, z: Floats) -> Floats:
    """R⁻¹ z for an upper triangle R of shape (p, p)."""
    return solved(R, z, lower=0, trans=0)


def solve_upper_transposed(R: Floats, b: Floats) -> Floats:
    """R⁻ᵀ b for an upper triangle R of shape (p, p)."""
    return solved(R, b, lower=0, trans=1)


def whitened(A: Floats, R: Floats) -> Floats:
    """A R⁻¹, rows with respect to an upper triangle R of shape (p, p); A of shape (n, p)."""
    n, p = A.shape
    if n <= 1:
        return solved(R, A.T, lower=0, trans=1).T
    if n * p * p < unlocked.LONG:
        V: Floats = blas.dtrsm(1.0, R, A, side=1)
    else:
        V = np.array(A, order="F")
        unlocked.call("dtrsm", "R", "U", "N", "N", n, p, 1.0, np.asfortranarray(R), p, V, n)
    return V


def solved(T: Floats, b: Floats, *, lower: int, trans: int) -> Floats:
    """A triangle's system by BLAS; where the triangle is singular, infinity or nan.

    LAPACK's dtrtrs would give b back unsolved there, and shares even the smallest system among
    threads, which on a busy machine wait for each other a thousand times longer than they work.
    """
    if b.size == 0:
        return b
    x: Floats
    if b.shape[1] == 1:
        x = blas.dtrsv(T, b[:, 0], lower=lower, trans=trans)[:, None]
    else:
        x = blas.dtrsm(1.0, T, b, lower=lower, trans_a=trans)
    return x


def lower_from_rows(V: Floats) -> Floats:
    """The Cholesky factor L of V Vᵀ + I, V of shape (n, p), in the order of V's rows.

    While V Vᵀ is small its Cholesky factor is exact enough; else L comes from a QR of [Vᵀ; I],
    which does not square V (with a tiny ridge V reaches 1e10).
    """
    n, p = V.shape
    if n == 1 and p:
        return np.array([[math.hypot(1.0, blas.dnrm2(V[0]))]])
    S: Floats = blas.dsyrk(1.0, V, lower=1) if p else np.zeros((n, n), order="F")
    diagonal = S.ravel(order="K")[:: n + 1]
    if diagonal.max(initial=0.0) < _SAFE_GRAM:
        diagonal += 1.0
        L: Floats = lapack.dpotrf(S, lower=1, clean=0, overwrite_a=1)[0]
        return L
    triangle = take_in(np.eye(n, order="F"), np.zeros((n, 0)), V.T, np.zeros((p, 0)))[0]
    signs = np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
    return (triangle * signs[:, None]).T
