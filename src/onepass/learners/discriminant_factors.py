"""Discriminant factors: what classes of normal density need of a covariance Σ, also of a poor one.

Matrices are factorised in units in which their diagonal is 1, so that the features' own units make
no difference to what is small. What Cholesky's factorisation cannot tell from singular, by a pivot
of less than d ε, is taken apart into eigenvectors.

[1] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
    estimation", IEEE Transactions on Signal Processing 58(10), 2010.
"""

import numpy as np

from onepass import linalg
from onepass.errors import Floats

__all__ = ["lower", "oas", "shrunk", "solve"]


def oas(S: Floats, n: float) -> float:
    """The share by which oracle approximating shrinkage draws a covariance to its mean variance.

    In scikit-learn's form of [1] (23), without its factor 2 / d:
    ρ = (t + μ²) / ((n + 1) (t − μ² / d)), at most 1, with μ the mean of the diagonal and t that of
    all squared entries.

    Parameters
    ----------
    S : ndarray of shape (d, d)
    n : float
        Rows, by weight.
    """
    d, size = len(S), float(np.abs(np.diagonal(S)).max(initial=0.0))
    if size == 0.0:
        return 1.0
    S = S / size
    squares, mean = float(np.mean(S * S)), float(np.trace(S)) / d
    apart = (n + 1.0) * (squares - mean * mean / d)
    return 1.0 if apart <= 0.0 else min((squares + mean * mean) / apart, 1.0)


def shrunk(S: Floats, share: float, variance: float) -> Floats:
    """(1 − share) S + share · variance · I, (d, d)."""
    drawn: Floats = (1.0 - share) * S
    drawn.ravel()[:: len(S) + 1] += share * variance
    return drawn


def solve(S: Floats, B: Floats) -> Floats:
    """S⁻¹ B, of least norm in the units of its diagonal where S is singular.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive semidefinite.
    B : ndarray of shape (d, k)
    """
    units = _units(np.diagonal(S))
    R = _in_units(S, units)
    B = B / units[:, None]
    L = _cholesky(R)
    if L is not None:
        solved = linalg.solve_lower_transposed(L, linalg.solve_lower(L, B))
    else:
        values, V = linalg.eigh(R)
        kept = values > _least(R) * max(float(values[-1]), 0.0)
        solved = V[:, kept] @ ((V[:, kept].T @ B) / values[kept][:, None])
    said: Floats = solved / units[:, None]
    return said


def lower(S: Floats, variances: Floats) -> Floats:
    """L with L Lᵀ = S, a lower triangle (d, d) whose diagonal is nowhere 0.

    Parameters
    ----------
    S : ndarray of shape (d, d)
        Positive semidefinite.
    variances : ndarray of shape (d,)
        What is usual in each feature: S has no less than d ε of it, in any direction.
    """
    units = _units(variances)
    R = _in_units(S, units)
    L = _cholesky(R)
    if L is None:
        values, V = linalg.eigh(R)
        roots = np.sqrt(np.maximum(values, _least(R)))
        L = np.linalg.qr((V * roots).T)[1].T
        L = L * np.where(np.diagonal(L) < 0.0, -1.0, 1.0)
    said: Floats = L * units[:, None]
    return said


def _units(variances: Floats) -> Floats:
    """Standard deviations, 1 where there is none."""
    units: Floats = np.sqrt(variances)
    return np.where(units > 0.0, units, 1.0)


def _in_units(S: Floats, units: Floats) -> Floats:
    """S with its rows and columns divided by these, (d, d)."""
    R: Floats = (S / units) / units[:, None]
    return R


def _least(R: Floats) -> float:
    """An eigenvalue that is not told from 0."""
    return len(R) * float(np.finfo(np.float64).eps)


def _cholesky(R: Floats) -> Floats | None:
    """The lower factor; None where R is all but singular."""
    factor, info = linalg.cholesky(R)
    if info or not (np.square(np.diagonal(factor)) > _least(R)).all():
        return None
    return factor
