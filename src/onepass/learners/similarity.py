"""Similarity: how alike vectors are, of which equal ones are alike whatever they are compared with.

=========== ============================================ ==========
cosine      aᵀb / (‖a‖ ‖b‖); 1 of two zeros, 0 of one    [−1, 1]
euclidean   1 / (1 + ‖a − b‖)                            (0, 1]
=========== ============================================ ==========

A product of many vectors at once is rounded in another way than that of two. So that it makes no
difference how many are compared, similarities are rounded to a grid that is far coarser than their
rounding: of equal prototypes the older one wins, and a row is as like itself as can be.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from onepass.errors import Floats

__all__ = ["OF_ONE", "SIMILARITIES", "lengths_of"]

_GRID = 2.0**40  # steps of 1
_CANCELS = 1e-3  # share of a² + b²; of smaller squares of distances the digits have cancelled
_PIECE = 1 << 18  # numbers of differences that are taken at once


def lengths_of(rows: Floats) -> Floats:
    """Euclidean lengths of rows."""
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return lengths


def _cosine(A: Floats, B: Floats, a: Floats, b: Floats) -> Floats:
    """Of rows (n, k) with rows (m, k) and their lengths, (n, m)."""
    scale = a[:, None] * b
    zero = scale == 0.0
    said = A @ B.T
    if zero.any():
        said[zero] = ((a == 0.0)[:, None] & (b == 0.0))[zero]
        scale[zero] = 1.0
    said /= scale
    return _on_grid(said)


def _cosine_of_one(z: Floats, B: Floats, length: float, b: Floats) -> Floats:
    """Of a row (k,) with rows (m, k) and their lengths, (m,), in fewer calls."""
    scale = length * b
    if not scale.all():
        whole: Floats = _cosine(z[None], B, np.array([length]), b)[0]
        return whole
    said = B @ z
    said /= scale
    return _on_grid(said)


def _nearness_of_one(z: Floats, B: Floats, length: float, b: Floats) -> Floats:
    """The same."""
    said: Floats = _nearness(z[None], B, np.array([length]), b)[0]
    return said


def _nearness(A: Floats, B: Floats, a: Floats, b: Floats) -> Floats:
    """The same."""
    whole = (a * a)[:, None] + b * b
    squares = A @ B.T
    squares *= -2.0
    squares += whole
    near, others = np.nonzero(squares < _CANCELS * whole)
    step = max(_PIECE // max(A.shape[1], 1), 1)
    for i in range(0, len(near), step):
        pair = near[i : i + step], others[i : i + step]
        apart = A[pair[0]] - B[pair[1]]
        squares[pair] = np.einsum("ij,ij->i", apart, apart)
    return _on_grid(1.0 / (1.0 + np.sqrt(np.maximum(squares, 0.0))))


def _on_grid(said: Floats) -> Floats:
    said *= _GRID
    np.rint(said, out=said)
    said /= _GRID
    return said


SIMILARITIES: dict[str, tuple[Callable[[Any, Any, Any, Any], Floats], float]] = {
    "cosine": (_cosine, -1.0),
    "euclidean": (_nearness, 0.0),
}
"""Name to function of rows, rows, and the lengths of both, and the least value that it has."""

OF_ONE: dict[str, Callable[[Any, Any, float, Any], Floats]] = {
    "cosine": _cosine_of_one,
    "euclidean": _nearness_of_one,
}
"""Name to the same of one row (k,) with others, (m,)."""
