"""Gain: what rows do to the weights and the covariance of a Kalman filter, where it is small.

In coordinates where P = C Cᵀ, rows with gradients G, noise R and errors e ask, with F = Cᵀ G, for

    z = argmin ‖R^-½ (Fᵀ z − e)‖² + ‖z‖²,      w ← w + C z                                  (1)
    C ← C M,      M Mᵀ = (I + F R⁻¹ Fᵀ)⁻¹                                                   (2)

and S = Fᵀ F + R = L Lᵀ says what would have been said of each row: its error, in the units of L.
Rows that contradict each other, or depend on others, make S as ill-conditioned as 1 / R, and a sum
of two large numbers of what they say together. So with F = Q T, Q orthonormal, T triangular, only
what rows say of a direction of their own is divided by R, by QR of [R^-½ Tᵀ; I]:

    UᵀU = I + T R⁻¹ Tᵀ,      Uᵀ U x = T R⁻¹ e,      z = Q x,      M = I + Q (U⁻¹ − I) Qᵀ      (3)

Nothing is squared. What of T is no longer than the rounding of F is left out: it would be a
direction of its own, of which nothing is known, moved by rounding / R. A root of P of some other
shape is as good: with M of (3), M Mᵀ = I − QQᵀ + Q (UᵀU)⁻¹ Qᵀ.

With R = 0 nothing of P is left in the span of F: W = F L⁻ᵀ is orthonormal, and M = I − W Wᵀ. Rows
of which nothing is left to move are skipped. Potter's form of one number is in R. H. Battin,
"Astronautical Guidance", 1964; roots for several in A. Andrews, "A square root formulation of the
Kalman covariance equations", AIAA Journal 6(6), 1968.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.errors import Array, Floats, NumericalError

__all__ = ["Gain", "exact", "noisy", "refuse_overflow", "triangle"]

_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)


class Gain(NamedTuple):
    """What rows do in coordinates."""

    root: Floats
    """C after them."""
    moved: Floats
    """The change of the weights, (q, c)."""
    L: Floats
    nu: Floats
    """L⁻¹ e."""
    kept: Array
    """The rows that were not skipped."""


def exact(root: Floats, F: Floats, e: Floats, least: Floats) -> Gain:
    """R = 0; rows of which no more than ``least`` is free are skipped.

    Parameters
    ----------
    root : ndarray of shape (q, q)
        C.
    F : ndarray of shape (q, n)
    e : ndarray of shape (n, c)
    least : ndarray of shape (n,)
    """
    W, L, kept = linalg.orthonormal(F, least)
    nu = linalg.solve_lower(L, e) * kept[:, None]
    along = root @ W
    return Gain(root - along @ W.T, along @ nu, L, nu, kept)


def noisy(root: Floats, F: Floats, e: Floats, deviations: Floats, lengths: Floats) -> Gain:
    """R > 0: (3).

    Parameters
    ----------
    root, F, e
        As of :func:`exact`.
    deviations : ndarray of shape (n,)
        R^½.
    lengths : ndarray of shape (n,)
        √(gᵀ P g) of each row, had none come before it: F is as precise as rounding of these.
    """
    if len(e) == 1:
        return _one(root, F, e, float(deviations[0]))
    column = deviations[:, None]
    L = column * linalg.lower_from_rows(F.T / column)
    Q, T = np.linalg.qr(F)
    T = np.where(np.abs(T) > _ROUNDING * lengths, T, 0.0)
    k = len(T)
    U = triangle(np.hstack((T.T, e)) / column, np.eye(k, k + e.shape[1]))
    x = linalg.solve_upper(U[:k, :k], U[:k, k:])
    along = root @ Q
    left = linalg.whitened(along, np.asfortranarray(U[:k, :k]))
    after = (left - along) @ Q.T
    after += root
    return Gain(after, along @ x, L, linalg.solve_lower(L, e), np.ones(len(e), dtype=bool))


def _one(root: Floats, F: Floats, e: Floats, deviation: float) -> Gain:
    """(3) of one number, after J. E. Potter: M = I − F Fᵀ / (σ (σ + √r)), σ² = S."""
    sigma = math.hypot(float(linalg.norms(F)[0]), deviation)
    nu, along = e / sigma, root @ F / sigma
    after = along * (F.T / (sigma + deviation))
    np.subtract(root, after, out=after)  # to map memory of this size anew costs most
    return Gain(after, along * nu, np.array([[sigma]]), nu, np.ones(1, dtype=bool))


def refuse_overflow(squares: Floats) -> None:
    """Refuse gradients, in units of what is known of the weights, whose squares are no numbers.

    Raises
    ------
    NumericalError
    """
    if not np.isfinite(squares).all():
        raise NumericalError(
            "Kalman step: the variance of an answer must be finite, got gradients so large that "
            "their squares are not. Scale the inputs, or give a smaller prior."
        )


def triangle(A: Floats, B: Floats) -> Floats:
    """R with RᵀR = AᵀA + BᵀB, without squaring either."""
    R: Any = np.linalg.qr(np.vstack((A, B)), mode="r")
    return np.asarray(R)
