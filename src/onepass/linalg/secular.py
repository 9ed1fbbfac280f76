"""Singular value decomposition of a diagonal matrix with additional columns.

The squared singular values s² of M = [diag(d) z] are the eigenvalues of diag(d)² + z zᵀ, the roots
of the secular equation

    1 + Σ_j z_j² / (d_j² − s²) = 0                                                          (1)

one between any two neighbouring d_j², and the left singular vectors are (diag(d)² − s²)⁻¹ z. With
roots rounded to floating point these are orthogonal only if z is made consistent with the roots,
which changes it by rounding errors only [1]:

    ẑ_j² = Π_i (s_i² − d_j²) / Π_{i ≠ j} (d_i² − d_j²)                                      (2)

Cost: O(n²) for n rows and one column, where a dense decomposition takes O(n³).

[1] M. Gu, S. C. Eisenstat, "A stable and efficient algorithm for the rank-one modification of the
    symmetric eigenproblem", SIAM Journal on Matrix Analysis and Applications 15(4), 1994.
"""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
from scipy.linalg import cython_lapack, lapack

from onepass import native
from onepass.linalg.factorizations import svd
from onepass.types import Floats

_DLASD4 = cython_lapack.__pyx_capi__["dlasd4"]  # its name contains the type of its integers

_MIN_ROWS = 8 if native.loops is not None else 24  # rows; below this a dense SVD is as fast
_APART = 16.0 * np.finfo(np.float64).eps  # relative difference below which values count as equal


def bordered_svd(d: Floats, Z: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors (n, n) and singular values (n,), largest first, of [diag(d) Z].

    Parameters
    ----------
    d : ndarray of shape (n,)
        >= 0, largest first.
    Z : ndarray of shape (n, k)

    Raises
    ------
    LinAlgError
        If a number is not finite.
    """
    n, k = Z.shape
    result = _rank_one(d, Z[:, 0]) if k == 1 and n >= _MIN_ROWS else None
    if result is not None:
        return result
    r = n if n == 0 or d[-1] else int(np.count_nonzero(d))
    M = np.zeros((n, max(r + k, n)))
    M.flat[: r * (M.shape[1] + 1) : M.shape[1] + 1] = d[:r]
    M[:, r : r + k] = Z
    return svd(M)


def _rank_one(d: Floats, z: Floats) -> tuple[Floats, Floats] | None:
    """The decomposition for one column z (n,); None if a dense decomposition is required."""
    largest = float(
        d[0] + np.abs(z).max()
    )  # up to a factor of 2; nan and infinity fail the tests below
    acts = np.abs(z) > _APART * largest
    poles = d[acts][::-1]
    if len(poles) < _MIN_ROWS or not (poles[1:] - poles[:-1]).min() > _APART * largest:
        return None
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)  # so that no square overflows
    result = _roots(poles / unit, z[acts][::-1] / unit)
    if result is None:
        return None
    vectors, roots = result[0][::-1, ::-1], result[1][::-1] * unit
    if len(poles) == len(d):
        return vectors, roots
    U, sigma, places = np.eye(len(d)), d.copy(), np.flatnonzero(acts)
    U[np.ix_(places, places)], sigma[places] = vectors, roots  # other directions do not change
    order = np.argsort(-sigma, kind="stable")
    return U[:, order], sigma[order]


def _roots(d: Floats, z: Floats) -> tuple[Floats, Floats] | None:
    """The decomposition for well separated, increasing d and nonzero z; None if LAPACK fails."""
    if native.loops is not None and "(int *, int *, " in repr(_DLASD4):
        return _compiled(native.loops, d, z)
    n, length = len(d), float(np.linalg.norm(z))
    below, above, roots = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    z_one, length_squared = z / length, length * length
    for i in range(n):
        below[i], roots[i], above[i], info = lapack.dlasd4(i, d, z_one, length_squared)
        if info:
            return None
    apart = np.subtract.outer(d, d) * np.add.outer(d, d)  # d_i² − d_j²
    gaps = -below * above  # s_i² − d_j², accurate for the nearest pole
    rows, nearest = np.arange(n), np.abs(gaps).argmin(axis=1)
    gaps = apart[nearest] + gaps[rows, nearest][:, None]
    ratios = gaps[:-1] / np.where(np.tri(n - 1, n, 0, dtype=bool), apart[1:], apart[:-1])
    agreed = np.copysign(np.sqrt(np.abs(ratios.prod(axis=0) * gaps[-1])), z)
    vectors = (agreed / gaps).T
    return vectors / np.sqrt(np.einsum("ij,ij->j", vectors, vectors)), roots


def _compiled(loops: ModuleType, d: Floats, z: Floats) -> tuple[Floats, Floats] | None:
    """Compute `_roots` by a compiled loop, which calls LAPACK directly."""
    n = len(d)
    vectors, roots, work = np.empty((n, n)), np.empty(n), np.empty(3 * n)
    d, z = np.ascontiguousarray(d), np.ascontiguousarray(z)
    result = loops.secular(_DLASD4, n, d, z, vectors, roots, work)
    return (vectors.T, roots) if result else None
