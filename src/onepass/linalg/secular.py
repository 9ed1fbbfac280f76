"""Secular: the singular value decomposition of a diagonal matrix with more columns beside it.

Of M = [diag(d) z] the squared singular values s² are those of diag(d)² + z zᵀ, the roots of the
secular equation

    1 + Σ_j z_j² / (d_j² − s²) = 0                                                          (1)

one between any two neighbouring d_j², and the left singular vectors are (diag(d)² − s²)⁻¹ z. From
roots as they are in floating point these are orthogonal only if z is put in agreement with them,
which moves it by rounding alone [1]:

    ẑ_j² = Π_i (s_i² − d_j²) / Π_{i ≠ j} (d_i² − d_j²)                                      (2)

Cost: O(n²) of n rows and one column, where a dense decomposition takes O(n³).

[1] M. Gu, S. C. Eisenstat, "A stable and efficient algorithm for the rank-one modification of the
    symmetric eigenproblem", SIAM Journal on Matrix Analysis and Applications 15(4), 1994.
"""

import math
from types import ModuleType

import numpy as np
from scipy.linalg import cython_lapack, lapack

from onepass import native
from onepass.linalg.factorizations import svd
from onepass.types import Floats

__all__ = ["bordered_svd"]

_DLASD4 = cython_lapack.__pyx_capi__["dlasd4"]  # its name says which whole numbers it takes

_FEW = 8 if native.loops is not None else 24  # rows; of fewer a dense one is as quick
_APART = 16.0 * np.finfo(np.float64).eps  # of the largest: what is nearer counts as equal


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
    found = _rank_one(d, Z[:, 0]) if k == 1 and n >= _FEW else None
    if found is not None:
        return found
    r = n if n == 0 or d[-1] else int(np.count_nonzero(d))
    M = np.zeros((n, max(r + k, n)))
    M.flat[: r * (M.shape[1] + 1) : M.shape[1] + 1] = d[:r]
    M[:, r : r + k] = Z
    return svd(M)


def _rank_one(d: Floats, z: Floats) -> tuple[Floats, Floats] | None:
    """The same for one column z (n,); None where a dense decomposition must do it."""
    largest = float(d[0] + np.abs(z).max())  # or twice; nan and infinity leave nothing below
    acts = np.abs(z) > _APART * largest
    poles = d[acts][::-1]
    if len(poles) < _FEW or not (poles[1:] - poles[:-1]).min() > _APART * largest:
        return None
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)  # so that nothing overflows when squared
    found = _roots(poles / unit, z[acts][::-1] / unit)
    if found is None:
        return None
    vectors, roots = found[0][::-1, ::-1], found[1][::-1] * unit
    if len(poles) == len(d):
        return vectors, roots
    U, sigma, places = np.eye(len(d)), d.copy(), np.flatnonzero(acts)
    U[np.ix_(places, places)], sigma[places] = vectors, roots  # the others are as they were
    order = np.argsort(-sigma, kind="stable")
    return U[:, order], sigma[order]


def _roots(d: Floats, z: Floats) -> tuple[Floats, Floats] | None:
    """The same for d that grows, all of it apart, and z of no zeros; None if LAPACK finds none."""
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
    gaps = -below * above  # s_i² − d_j², of the nearest pole to all digits
    rows, nearest = np.arange(n), np.abs(gaps).argmin(axis=1)
    gaps = apart[nearest] + gaps[rows, nearest][:, None]
    ratios = gaps[:-1] / np.where(np.tri(n - 1, n, 0, dtype=bool), apart[1:], apart[:-1])
    agreed = np.copysign(np.sqrt(np.abs(ratios.prod(axis=0) * gaps[-1])), z)
    vectors = (agreed / gaps).T
    return vectors / np.sqrt(np.einsum("ij,ij->j", vectors, vectors)), roots


def _compiled(loops: ModuleType, d: Floats, z: Floats) -> tuple[Floats, Floats] | None:
    """The same by a loop in C, which calls LAPACK by itself."""
    n = len(d)
    vectors, roots, room = np.empty((n, n)), np.empty(n), np.empty(3 * n)
    d, z = np.ascontiguousarray(d), np.ascontiguousarray(z)
    found = loops.secular(_DLASD4, n, d, z, vectors, roots, room)
    return (vectors.T, roots) if found else None
