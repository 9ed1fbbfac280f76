"""Factorisations: the only seam between the algorithms and the library that computes.

Everything above writes ``@``, ``.T`` and slices, and calls these. They take NumPy arrays, float32
or float64; small matrices are factorised in float64 whatever comes in.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack
from threadpoolctl import ThreadpoolController

from onepass.types import Array, Floats

__all__ = [
    "cholesky_in_order",
    "finite",
    "lower_from_rows",
    "norms",
    "one_thread",
    "solve_lower",
    "solve_lower_right",
    "solve_lower_transposed",
    "solve_upper",
    "solve_upper_transposed",
    "svd",
    "take_in",
    "take_in_calm",
    "whitened",
]

_SAFE_GRAM = 1e4  # a Gram matrix may be squared while its largest entry is below this
_LEAST_SQUARE = 1e-280  # a smaller sum of squares may have lost digits to underflow


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
    R_new, V, T, _ = lapack.dtpqrt(0, min(p, 16 if p < 512 else 32), R, A)
    if z.shape[1] == 0:
        return R_new, z, np.zeros(0)
    z_new, rest, _ = lapack.dtpmqrt(0, V, T, z, b, side="L", trans="T")
    return R_new, z_new, np.einsum("ij,ij->j", rest, rest)


def take_in_calm(R: Floats, z: Floats, V: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The same triangle from the whitened rows V = A R⁻¹, while they are not large.

    I + VᵀV = CᵀC, R ← C R, z ← C⁻ᵀ (z + Vᵀ b). With V of a few units I + VᵀV is as well
    conditioned, so that C is exact to rounding whatever the condition of R; and for as many rows
    as weights this is quicker than a QR.
    """
    p = R.shape[0]
    M = blas.dsyrk(1.0, V, trans=1)
    M.ravel(order="K")[:: p + 1] += 1.0
    C = lapack.dpotrf(M, clean=0, overwrite_a=1)[0]
    return blas.dtrmm(1.0, C, R), solve_upper_transposed(C, z + V.T @ b)


def solve_upper(R: Floats, z: Floats) -> Floats:
    """R⁻¹ z for an upper triangle R of shape (p, p)."""
    return _solve(R, z, lower=0, trans=0)


def solve_upper_transposed(R: Floats, b: Floats) -> Floats:
    """R⁻ᵀ b for an upper triangle R of shape (p, p)."""
    return _solve(R, b, lower=0, trans=1)


def whitened(A: Floats, R: Floats) -> Floats:
    """A R⁻¹, rows with respect to an upper triangle R of shape (p, p); A of shape (n, p)."""
    if len(A) <= 1:
        return _solve(R, A.T, lower=0, trans=1).T
    V: Floats = blas.dtrsm(1.0, R, A, side=1)
    return V


def solve_lower(L: Floats, b: Floats) -> Floats:
    """L⁻¹ b for a lower triangle L of shape (n, n)."""
    return _solve(L, b, lower=1, trans=0)


def solve_lower_transposed(L: Floats, b: Floats) -> Floats:
    """L⁻ᵀ b for a lower triangle L of shape (n, n)."""
    return _solve(L, b, lower=1, trans=1)


def _solve(T: Floats, b: Floats, *, lower: int, trans: int) -> Floats:
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


def solve_lower_right(U: Floats, L: Floats) -> Floats:
    """U L⁻ᵀ for a lower triangle L of shape (n, n)."""
    return solve_lower(L, U.T).T.astype(U.dtype, copy=False)


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


def cholesky_in_order(S: Floats, least: Floats) -> tuple[Floats, Array]:
    """Cholesky factor of a positive semidefinite S, its rows in order, dependent rows skipped.

    Without pivoting: the order of rows is the order of test-then-train, and of two rows that
    contradict each other the first must win.

    Parameters
    ----------
    S : ndarray of shape (n, n)
    least : ndarray of shape (n,)
        A row whose pivot is not above ``least`` depends on the rows before it, and is skipped.

    Returns
    -------
    L : ndarray of shape (n, n)
        Lower triangle; the column of a skipped row is zero but for a 1 on the diagonal.
    kept : ndarray of bool of shape (n,)
        The rows that were not skipped.
    """
    S = S.astype(np.float64)
    n = S.shape[0]
    kept = np.ones(n, dtype=bool)
    L, info = lapack.dpotrf(S, lower=1)
    if info == 0 and (np.diagonal(L) ** 2 > least).all():
        return L, kept
    L = np.zeros((n, n), order="F")
    for j in range(n):
        row = L[j, :j]
        pivot = S[j, j] - row @ row
        if not pivot > least[j]:
            kept[j] = False
            L[j, j] = 1.0
            continue
        L[j, j] = np.sqrt(pivot)
        L[j + 1 :, j] = (S[j + 1 :, j] - L[j + 1 :, :j] @ row) / L[j, j]
    return L, kept


def svd(M: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors and singular values of a small matrix, in float64."""
    U, sigma, _ = np.linalg.svd(M.astype(np.float64, copy=False), full_matrices=False)
    return U, sigma


def norms(G: Floats) -> Floats:
    """Euclidean norms of the columns of G, in float64, whatever their size."""
    if G.shape[1] == 1 and len(G) and G.dtype == np.float64:
        return np.array([blas.dnrm2(G[:, 0])])
    squares: Floats = np.einsum("ij,ij->j", G, G, dtype=np.float64)
    if squares.size == 0 or (squares.min() > _LEAST_SQUARE and squares.max() < math.inf):
        return np.sqrt(squares)
    largest = np.abs(G).max(axis=0, initial=0.0).astype(np.float64)
    scale = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    scaled = G / scale  # neither overflows when squared, nor is it lost
    lengths: Floats = scale * np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    return lengths


def finite(*arrays: Floats) -> bool:
    """Whether all numbers are finite: nan and infinity survive a sum, which is quickly taken."""
    for array in arrays:
        if not (math.isfinite(np.add.reduce(array, axis=None)) or np.isfinite(array).all()):
            return False
    return True


@contextmanager
def one_thread(p: int, n: int) -> Iterator[None]:
    """Hold BLAS to one thread where a block of n rows and p weights is too small to share.

    Threads that wait for each other on a busy machine make small updates many times slower.
    Tiny ones, which BLAS does not share anyway, are left alone: the hold itself costs 15 µs.
    """
    if p * n < 1024 or p >= 1024:
        yield
        return
    with _HOLD:
        yield


class _Hold:
    """BLAS at one thread while anyone is within, and as it was before when the last one leaves.

    The limit is the process's own. If each thread put back what it had found, one that enters
    while another is within would find the limit, and put it back for good.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._within = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._within == 0:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._within += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                self._limit.restore_original_limits()


_HOLD = _Hold()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
