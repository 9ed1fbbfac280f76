"""Principal: the principal axes of some rows."""

import numpy as np

from onepass.errors import Floats
from onepass.linalg.factors import eigh, svd_both
from onepass.linalg.long import magnitude

__all__ = ["principal"]

_SHARP = 1e-3  # share of the largest length; of shorter axes, squares lose too many digits
_MOST_USED = 0.95  # of the columns that are not all zero: others, as dead pixels, are left out
_LEAST = 1e-12  # share of the largest length that is rounding


def principal(F: Floats, k: int) -> tuple[Floats, Floats]:
    """The top k right singular vectors of F (q, d), as rows (k, d), and its singular values.

    From the smaller of FFᵀ and FᵀF where squares keep enough digits, else from F itself. Of each
    vector the largest number is positive, so that the answer is one. There are fewer than k where
    F has no more.

    Parameters
    ----------
    F : ndarray of shape (q, d)
    k : int

    Raises
    ------
    LinAlgError
        If a number is not finite.
    """
    q, d = F.shape
    unit = magnitude(F) or 1.0  # so that no square is lost
    found = _by_squares(F / unit, min(k, q, d)) if min(q, d) else (F[:0], np.zeros(0))
    if found is None:
        _, lengths, directions = svd_both(F / unit)
        there = lengths > _LEAST * lengths.max(initial=0.0)
        found = directions[there][:k], lengths[there][:k]
    directions, lengths = found
    largest = np.abs(directions).argmax(axis=1) if directions.size else np.zeros(0, dtype=int)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return directions * signs[:, None], lengths * unit


def _by_squares(F: Floats, k: int) -> tuple[Floats, Floats] | None:
    """The same by squares; None where they keep too few digits."""
    q, d = F.shape
    used = np.flatnonzero(F.any(axis=0))
    if q >= d and len(used) < _MOST_USED * d:
        found = _by_squares(F[:, used], k) if k <= len(used) else None
        if found is None:
            return None
        directions = np.zeros((k, d))
        directions[:, used] = found[0]
        return directions, found[1]
    values, vectors = eigh(F @ F.T if q < d else F.T @ F)
    squares = values[::-1][:k]
    if not squares[-1] > _SHARP**2 * squares[0]:
        return None
    lengths, top = np.sqrt(squares), vectors[:, ::-1][:, :k].T
    return (top @ F / lengths[:, None] if q < d else np.ascontiguousarray(top)), lengths
