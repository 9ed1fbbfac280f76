"""Factors: factorisations of small matrices in float64, NumPy's or a device's.

On a device nothing is decided by a number, for which the program would have to wait: every row is
factorised, and what must not count is masked.
"""

from typing import Any

import numpy as np
from scipy.linalg import lapack

from onepass.errors import Array, Floats
from onepass.linalg.library import finite, is_tensor
from onepass.linalg.triangles import cholesky, solved

__all__ = ["cholesky_in_order", "eigh", "solve_lower", "solve_lower_transposed", "svd", "svd_both"]


def solve_lower(L: Any, b: Any) -> Any:
    """L⁻¹ b for a lower triangle L of shape (n, n)."""
    if is_tensor(L):
        import torch  # noqa: PLC0415  only where there is a tensor

        return torch.linalg.solve_triangular(L, b, upper=False)
    return solved(L, b, lower=1, trans=0)


def solve_lower_transposed(L: Floats, b: Floats) -> Floats:
    """L⁻ᵀ b for a lower triangle L of shape (n, n)."""
    return solved(L, b, lower=1, trans=1)


def cholesky_in_order(S: Any, least: Any) -> tuple[Any, Any]:
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
    if is_tensor(S):
        return _masked_cholesky(S, least)
    S = S.astype(np.float64)
    n = S.shape[0]
    kept: Array = np.ones(n, dtype=bool)
    L, info = cholesky(S)
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


def _masked_cholesky(S: Any, least: Any) -> tuple[Any, Any]:
    """The same on a device, where no pivot is looked at: those too small are masked."""
    import torch  # noqa: PLC0415  only where there is a tensor

    L, kept = torch.zeros_like(S), torch.ones_like(least, dtype=torch.bool)
    for j in range(len(S)):
        row = L[j, :j]
        pivot = S[j, j] - row @ row
        kept[j] = pivot > least[j]
        height = torch.where(kept[j], pivot, 1.0).sqrt()
        below = (S[j + 1 :, j] - L[j + 1 :, :j] @ row) / height
        L[j, j] = height
        L[j + 1 :, j] = torch.where(kept[j], below, 0.0)
    return L, kept


def svd(M: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors and singular values of a small matrix, in float64.

    Raises
    ------
    LinAlgError
        If a number is not finite: LAPACK may search for ever; or if it finds none.
    """
    if not finite(M):
        raise np.linalg.LinAlgError("the singular values of what is not finite")
    if M.size == 0:
        return np.zeros((len(M), 0)), np.zeros(0)
    U, sigma, _, missed = lapack.dgesdd(M, full_matrices=0)  # of small ones quicker than NumPy's
    if missed:  # it divides and conquers; by rotations, slower, all are found but for the oddest
        U, sigma, _, missed = lapack.dgesvd(M, full_matrices=0)
    if missed:
        raise np.linalg.LinAlgError("the singular values were not found")
    return U, sigma


def svd_both(M: Floats, *, whole: bool = False) -> tuple[Floats, Floats, Floats]:
    """Singular vectors of both sides and singular values of a small matrix, U Σ Vᵀ.

    Parameters
    ----------
    M : ndarray of shape (n, p)
    whole : bool
        Whether U and V are square, and not as narrow as there are singular values.

    Returns
    -------
    U, sigma, Vt : ndarrays

    Raises
    ------
    LinAlgError
        If a number is not finite: LAPACK may search for ever.
    """
    if not finite(M):
        raise np.linalg.LinAlgError("the singular vectors of what is not finite")
    U, sigma, Vt = np.linalg.svd(M, full_matrices=whole)
    return U, sigma, Vt


def eigh(S: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, smallest first, and eigenvectors of a small symmetric matrix.

    Raises
    ------
    LinAlgError
        If a number is not finite: LAPACK may give numbers that mean nothing.
    """
    if not finite(S):
        raise np.linalg.LinAlgError("the eigenvectors of what is not finite")
    values, vectors = np.linalg.eigh(S)
    return values, vectors
