"""Alone: a subspace and one vector, where a step costs calls rather than numbers.

The same as :meth:`Subspace.split <onepass.subspace.Subspace.split>` and ``added`` make of a matrix
of one column, in far fewer calls: what lies in B and not in U is found once for both, and
nothing need be factorised to know a single length.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onepass import linalg
from onepass.errors import Floats
from onepass.reading import Reading
from onepass.subspace import Subspace

__all__ = ["Alone", "alone"]


_SQUARED = {4: 1e18, 8: 1e140}  # bytes of a number: lengths whose squares are numbers too


class Alone(NamedTuple):
    """What a subspace makes of one vector."""

    free: Any
    """G − U diag(σ² / (σ² + r)) Uᵀg, (p,)."""
    length: float
    """‖g − U Uᵀg‖."""
    whole: float
    """‖g‖."""
    after: Callable[[], Subspace]
    """The subspace after it has come; then the one before may be written over."""


def alone(space: Subspace, g: Any, noise: float = 0.0) -> Alone | None:
    """What a subspace makes of a vector; None where its columns are too many for this to be best.

    Parameters
    ----------
    space : Subspace
    g : ndarray of shape (p,)
        In the precision of the columns.
    noise : float
        R >= 0.

    Returns
    -------
    found : Alone or None
        Nothing is written before its ``after`` is called.
    """
    reading, K = Reading(space.B.rows), space.K
    if not reading.few or g.dtype != reading.near.dtype:
        return None
    C, rest = reading.at_once(g)
    a = C @ K
    along = C - K @ a
    again = along @ K
    along -= K @ again
    a += again
    b, h, inside = linalg.length(along), linalg.length(rest), linalg.length(C)
    whole, left = math.hypot(inside, h), along
    if not 1.0 / _SQUARED[g.itemsize] < whole < _SQUARED[g.itemsize]:
        return None
    if noise:  # what is no more than rounding is left out, as in Subspace.split
        blur = linalg.blur(g)
        if not h >= blur * whole:
            rest, h = 0.0 * rest, 0.0
        known = K @ (noise / (space.sigma**2 + noise) * a)
        left = known + along if b >= blur * inside else known
    free = rest + linalg.like(left, rest) @ reading.near
    after = partial(_after, space, a, along, rest, h, whole)
    return Alone(free, math.hypot(b, h), whole, after)


def _after(
    space: Subspace, a: Floats, along: Floats, rest: Any, h: float, whole: float
) -> Subspace:
    """The subspace after U a + B along + rest has come, h being the length of the rest."""
    B, k, p = space.B, space.rank, len(rest)
    least = linalg.rounding(rest) * math.sqrt(p)
    q = len(along)
    if h > 4.0 * least * whole and q < p:
        B = B.appended((rest / h)[:, None])
    else:
        h = 0.0
    length = math.hypot(linalg.length(along), h)
    K, z = np.zeros((len(B), k + 1)), np.empty((k + 1, 1))
    K[:q, :k], K[:q, k], K[q:, k] = space.K, along, h
    K[:, k] /= length or 1.0
    z[:k, 0], z[k, 0] = a, length
    return space.rotated(B, K, z, least)
