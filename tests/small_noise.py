"""Data for learners with small noise: repeated and linearly dependent rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
NOISES = (1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e2)


class Rows(NamedTuple):
    """X = Z B, with inconsistent targets."""

    X: Floats
    y: Floats
    Z: Floats
    B: Floats


def rows(kind: str, p: int, n: int) -> Rows:
    """n rows of p features: 5 distinct rows, rows in the span of 6, or rows of full rank."""
    rng = np.random.default_rng(0)
    k = {"repeated": 5, "dependent": 6, "all of them": p}[kind]
    B = np.round(64.0 * rng.normal(size=(k, p))) / 64.0
    Z = np.eye(k)[rng.integers(0, k, n)]
    if kind != "repeated":
        Z = rng.integers(-2, 3, size=(n, k)).astype(float)
    X = Z @ B
    return Rows(X, X @ rng.normal(size=p) + rng.normal(size=n), Z, B)
