"""Factorizations of small float64 matrices: Cholesky, QR, SVD and triangular solves.

Arrays are NumPy arrays or tensors on an accelerator. On an accelerator no control flow depends on
computed numbers: every row is factorized, and skipped rows are masked. Long computations on NumPy
arrays call BLAS and LAPACK without the GIL, which SciPy's wrappers do not release.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from onepass.linalg.backend import finite, is_tensor
from onepass.types import Array, ArrayOrTensor, Floats

LONG = 1 << 22
"""Minimum number of multiplications for which a call releases the GIL."""


@cache
def capsule(name: str) -> Any:
    """A BLAS or LAPACK routine for compiled code; its name is that of :func:`call`."""
    from scipy.linalg import cython_blas, cython_lapack  # noqa: PLC0415  not for all learners

    return {**cython_blas.__pyx_capi__, **cython_lapack.__pyx_capi__}[name]


@cache
def _routine(name: str) -> Any:
    routine = capsule(name)
    named, pointed = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointed.restype, pointed.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(pointed(routine, named(routine)))


def call(name: str, *arguments: str | float | Floats) -> int:
    """Call a BLAS or LAPACK routine; return the new value of its last argument, LAPACK's ``info``.

    Parameters
    ----------
    name : str
        Its name in ``scipy.linalg.cython_blas`` or ``cython_lapack``.
    *arguments : str, int, float or ndarray
        In the order of the Fortran routine. Arrays are float64 in Fortran order, and are changed
        in place.
    """
    last = ctypes.c_int()
    passed: list[Any] = []
    for each in arguments:
        if isinstance(each, str):
            passed.append(ctypes.c_char_p(each.encode()))
        elif isinstance(each, int):
            last = ctypes.c_int(each)
            passed.append(ctypes.byref(last))
        elif isinstance(each, float):
            passed.append(ctypes.byref(ctypes.c_double(each)))
        else:
            passed.append(ctypes.c_void_p(each.ctypes.data))
    _routine(name)(*passed)
    return last.value


_SAFE_GRAM = 1e4  # a Gram matrix may be squared while its largest entry is below this


def qr_update(R: Floats, z: Floats, A: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """The triangle of the stacked rows [R z] and [A b], by Householder QR (LAPACK tpqrt).

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
        The growth of the residual sum of squares.
    """
    p = R.shape[0]
    if p == 0 or A.shape[0] == 0:
        return R, z, np.einsum("ij,ij->j", b, b)
    nb, (n, c) = _panel(p), b.shape
    long = n * p * p >= LONG
    if long:
        R_new, V, T = np.array(R, order="F"), np.array(A, order="F"), np.empty((nb, p), order="F")
        call("dtpqrt", n, p, 0, nb, R_new, p, V, n, T, nb, np.empty(nb * p), 0)
    else:
        R_new, V, T, _ = lapack.dtpqrt(0, nb, R, A)
    if c == 0:
        return R_new, z, np.zeros(0)
    if long:
        z_new, rest, work = np.array(z, order="F"), np.array(b, order="F"), np.empty(nb * c)
        sizes = (n, c, p, 0, nb)
        call("dtpmqrt", "L", "T", *sizes, V, n, T, nb, z_new, p, rest, n, work, 0)
    else:
        z_new, rest, _ = lapack.dtpmqrt(0, V, T, z, b, side="L", trans="T")
    return R_new, z_new, np.einsum("ij,ij->j", rest, rest)


def _panel(p: int) -> int:
    """Panel width of the blocked QR, from measurements."""
    return min(p, 16) if p < 512 else 32 if p < 4096 else 64


def cholesky(S: Floats) -> tuple[Floats, int]:
    """The lower Cholesky factor of S (p, p), and LAPACK's info, nonzero on failure."""
    p = len(S)
    if p**3 < LONG:
        L, info = lapack.dpotrf(S, lower=1)
        return L, info
    L = np.array(S, order="F")
    info = call("dpotrf", "L", p, L, p, 0)
    return np.asfortranarray(np.tril(L)), info


def cholesky_update(R: Floats, z: Floats, V: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The triangle of `qr_update` from the whitened rows V = A R⁻¹, if these are not large.

    I + VᵀV = CᵀC, R ← C R, z ← C⁻ᵀ (z + Vᵀ b). If the entries of V are at most a few units,
    I + VᵀV is well conditioned, so that C is exact to rounding whatever the condition of R. For as
    many rows as weights this is faster than a QR.
    """
    n, p = V.shape
    if n * p * p < LONG:
        M = blas.dsyrk(1.0, V, trans=1)
        M.ravel(order="K")[:: p + 1] += 1.0
        C = lapack.dpotrf(M, clean=0, overwrite_a=1)[0]
        R = blas.dtrmm(1.0, C, R)
    else:
        C, R = np.zeros((p, p), order="F"), np.array(R, order="F")
        call("dsyrk", "U", "T", p, n, 1.0, np.asfortranarray(V), n, 0.0, C, p)
        C.ravel(order="K")[:: p + 1] += 1.0
        call("dpotrf", "U", p, C, p, 0)
        call("dtrmm", "L", "U", "N", "N", p, p, 1.0, C, p, R, p)
    return R, solve_upper_transposed(C, z + V.T @ b)


def solve_upper(R: Floats, z: Floats) -> Floats:
    """R⁻¹ z for an upper triangle R of shape (p, p)."""
    return solve_triangle(R, z, lower=0, trans=0)


def solve_upper_transposed(R: Floats, b: Floats) -> Floats:
    """R⁻ᵀ b for an upper triangle R of shape (p, p)."""
    return solve_triangle(R, b, lower=0, trans=1)


def whitened(A: Floats, R: Floats) -> Floats:
    """A R⁻¹, rows with respect to an upper triangle R of shape (p, p); A of shape (n, p)."""
    n, p = A.shape
    if n <= 1:
        return solve_triangle(R, A.T, lower=0, trans=1).T
    if n * p * p < LONG:
        V: Floats = blas.dtrsm(1.0, R, A, side=1)
    else:
        V = np.array(A, order="F")
        call("dtrsm", "R", "U", "N", "N", n, p, 1.0, np.asfortranarray(R), p, V, n)
    return V


def solve_triangle(T: Floats, b: Floats, *, lower: int, trans: int) -> Floats:
    """Solve a triangular system with BLAS; infinity or nan if the triangle is singular.

    LAPACK's dtrtrs would return b unsolved in that case, and splits even the smallest system among
    threads, whose synchronization on a busy machine takes a thousand times longer than the work.
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
    """The Cholesky factor L of V Vᵀ + I for V of shape (n, p), without pivoting.

    If V Vᵀ is small, its Cholesky factor is accurate enough; otherwise L comes from a QR of
    [Vᵀ; I], which does not square V (with a tiny ridge V reaches 1e10).
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
    triangle = qr_update(np.eye(n, order="F"), np.zeros((n, 0)), V.T, np.zeros((p, 0)))[0]
    signs = np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
    return (triangle * signs[:, None]).T


def solve_lower(L: ArrayOrTensor, b: ArrayOrTensor) -> Any:
    """L⁻¹ b for a lower triangle L of shape (n, n)."""
    if is_tensor(L):
        import torch  # noqa: PLC0415  only if there is a tensor

        return torch.linalg.solve_triangular(L, b, upper=False)
    return solve_triangle(L, b, lower=1, trans=0)


def solve_lower_transposed(L: Floats, b: Floats) -> Floats:
    """L⁻ᵀ b for a lower triangle L of shape (n, n)."""
    return solve_triangle(L, b, lower=1, trans=1)


def ordered_cholesky(S: ArrayOrTensor, least: ArrayOrTensor) -> tuple[Any, Any]:
    """Cholesky factor of a positive semidefinite S, without pivoting; dependent rows are skipped.

    Rows are not reordered, since their order is the order of test-then-train: if two rows are
    inconsistent, the first must be fitted.

    Parameters
    ----------
    S : ndarray of shape (n, n)
    least : ndarray of shape (n,)
        A row whose pivot is not above ``least`` depends on the rows before it, and is skipped.

    Returns
    -------
    L : ndarray of shape (n, n)
        Lower triangle; the column of a skipped row is zero except for a 1 on the diagonal.
    retained : ndarray of bool of shape (n,)
        The rows that were not skipped.
    """
    if is_tensor(S):
        return _masked_cholesky(S, least)
    S = S.astype(np.float64)
    n = S.shape[0]
    retained: Array = np.ones(n, dtype=bool)
    L, info = cholesky(S)
    if info == 0 and (np.diagonal(L) ** 2 > least).all():
        return L, retained
    L = np.zeros((n, n), order="F")
    for j in range(n):
        row = L[j, :j]
        pivot = S[j, j] - row @ row
        if not pivot > least[j]:
            retained[j] = False
            L[j, j] = 1.0
            continue
        L[j, j] = np.sqrt(pivot)
        L[j + 1 :, j] = (S[j + 1 :, j] - L[j + 1 :, :j] @ row) / L[j, j]
    return L, retained


def _masked_cholesky(S: ArrayOrTensor, least: ArrayOrTensor) -> tuple[Any, Any]:
    """`ordered_cholesky` on an accelerator, without synchronization: small pivots are masked."""
    import torch  # noqa: PLC0415  only if there is a tensor

    L, retained = torch.zeros_like(S), torch.ones_like(least, dtype=torch.bool)
    for j in range(len(S)):
        row = L[j, :j]
        pivot = S[j, j] - row @ row
        retained[j] = pivot > least[j]
        height = torch.where(retained[j], pivot, 1.0).sqrt()
        below = (S[j + 1 :, j] - L[j + 1 :, :j] @ row) / height
        L[j, j] = height
        L[j + 1 :, j] = torch.where(retained[j], below, 0.0)
    return L, retained


def svd(M: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors and singular values of a small matrix, in float64.

    Raises
    ------
    LinAlgError
        If a number is not finite (LAPACK might not terminate), or if LAPACK does not converge.
    """
    if not finite(M):
        raise np.linalg.LinAlgError("the matrix must be finite to compute singular values")
    if M.size == 0:
        return np.zeros((len(M), 0)), np.zeros(0)
    U, sigma, _, failed = lapack.dgesdd(
        M, full_matrices=0
    )  # faster than NumPy's for small matrices
    if failed:  # slower, but converges for almost all matrices
        U, sigma, _, failed = lapack.dgesvd(M, full_matrices=0)
    if failed:
        raise np.linalg.LinAlgError("the singular value decomposition did not converge")
    return U, sigma


def svd_both(M: Floats, *, whole: bool = False) -> tuple[Floats, Floats, Floats]:
    """Singular vectors of both sides and singular values of a small matrix, U Σ Vᵀ.

    Parameters
    ----------
    M : ndarray of shape (n, p)
    whole : bool
        Whether U and V are square; otherwise they have as many vectors as singular values.

    Returns
    -------
    U, sigma, Vt : ndarrays

    Raises
    ------
    LinAlgError
        If a number is not finite: LAPACK might not terminate.
    """
    if not finite(M):
        raise np.linalg.LinAlgError("the matrix must be finite to compute singular vectors")
    U, sigma, Vt = np.linalg.svd(M, full_matrices=whole)
    return U, sigma, Vt


def eigh(S: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, smallest first, and eigenvectors of a small symmetric matrix.

    Raises
    ------
    LinAlgError
        If a number is not finite: LAPACK might return arbitrary numbers.
    """
    if not finite(S):
        raise np.linalg.LinAlgError("the matrix must be finite to compute eigenvectors")
    values, vectors = np.linalg.eigh(S)
    return values, vectors
