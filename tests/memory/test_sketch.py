"""Sketch against Frequent Directions and its bounds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import onepass as op
from onepass.linalg.subspace import Subspace
from onepass.memory import Principal, Sketch

Floats = NDArray[Any]


class FrequentDirections:
    """B (ℓ × p), one row of A at a time, by a full SVD (Ghashami et al. 2016, Algorithm 2.1)."""

    def __init__(self, p: int, rows: int) -> None:
        self.B = np.zeros((rows, p))
        self.taken = 0.0

    def take(self, rows: Floats) -> None:
        """One row, or a block of rows of which all but ℓ − 1 directions are shrunk away."""
        _, sigma, Vt = np.linalg.svd(np.vstack((self.B[:-1], rows)), full_matrices=False)
        squares = np.zeros(max(len(self.B), len(sigma)))
        squares[: len(sigma)] = sigma**2
        delta = squares[len(self.B) - 1]
        self.taken += delta
        left = np.sqrt(np.maximum(sigma**2 - delta, 0.0))
        self.B[:] = 0.0
        self.B[: min(len(left), len(self.B))] = (left[:, None] * Vt)[: len(self.B)]


def drifting(seed: int, n: int, p: int) -> Floats:
    """Rows whose strongest direction changes half-way."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, p)) * np.geomspace(1.0, 0.05, p)
    A[: n // 2] += 3.0 * rng.normal(size=(n // 2, 1)) * rng.normal(size=p)
    A[n // 2 :] += 3.0 * rng.normal(size=(n - n // 2, 1)) * rng.normal(size=p)
    A[rng.integers(n)] = 0.0
    return A


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 14), st.integers(1, 4))
def test_sketch_equals_frequent_directions_within_bounds(seed: int, m: int, p: int, n: int) -> None:
    A = drifting(seed, 40, p)
    space, plain = Subspace.start(p, m, shrinks=True, batch=n), FrequentDirections(p, m + 1)
    for i in range(0, len(A), n):
        space = space.added(A[i : i + n].T)
        plain.take(A[i : i + n])
    size = np.linalg.norm(A, 2) ** 2
    retained = (space.U * space.sigma**2) @ space.U.T
    np.testing.assert_allclose(retained, plain.B.T @ plain.B, atol=1e-9 * size)
    gone = np.linalg.eigvalsh(A.T @ A - retained)
    assert gone.min() >= -1e-9 * size
    assert gone.max() <= space.lost + 1e-9 * size
    assert space.lost <= plain.taken + 1e-9 * size
    assert space.lost <= space.max_lost * (1.0 + 1e-9) + 1e-12 * size
    rest = np.linalg.svd(A, compute_uv=False) ** 2
    for k in range(m + 1):  # Theorem 1.1, with ℓ = m + 1
        assert plain.taken <= rest[k:].sum() / (m + 1 - k) + 1e-9 * size
    assert plain.taken <= (rest.sum() - np.trace(retained)) / (m + 1) + 1e-9 * size


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_step_equals_update_with_shrunken_strengths(noise: float) -> None:
    rng = np.random.default_rng(1)
    A, y = drifting(2, 30, 12), rng.normal(size=30)
    memory, w = Sketch(4).start(12, 1, noise), np.zeros(12)
    plain, expected = FrequentDirections(12, 5), np.zeros(12)
    for g, target in zip(A, y, strict=True):
        _, sigma, Vt = np.linalg.svd(plain.B, full_matrices=False)
        U, squares = Vt[sigma > 1e-9].T, sigma[sigma > 1e-9] ** 2
        u = g - U @ (squares / (squares + noise) * (U.T @ g))
        if np.linalg.norm(g):
            expected = expected + u * (target - g @ expected) / (g @ u + noise)
        plain.take(g[None, :])
        step = memory.learn(w, g[:, None], np.array([target - g @ w]), np.full(1, noise))
        w, memory = step.w, step.memory
        np.testing.assert_allclose(w, expected, atol=1e-8 * max(1.0, np.abs(expected).max()))
        assert memory.subspace.rank <= 4


def test_sketch_with_room_equals_principal() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(9, 20)), rng.normal(size=9)
    one = op.ORFitRegressor(memory=Sketch(9), noise=0.3).fit(X, y)
    two = op.ORFitRegressor(memory=Principal(9), noise=0.3).fit(X, y)
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-13)
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-13)


def test_sketch_follows_changed_directions_unlike_principal() -> None:
    rng = np.random.default_rng(4)
    old, new = np.linalg.qr(rng.normal(size=(50, 6)))[0].T.reshape(2, 3, 50)
    early = 5.0 * rng.normal(size=(40, 3)) @ old
    late = rng.normal(size=(2500, 3)) @ new
    found = {}
    for retained in (Sketch(3), Principal(3)):
        memory = retained.start(50, 1)
        for g in np.vstack((early, late)):
            memory = memory.after(g[:, None], memory.split(g[:, None]), np.zeros(1))
        found[type(retained)] = float(np.linalg.norm(memory.subspace.U.T @ new.T, 2))
    assert found[Principal] < 0.1
    assert found[Sketch] > 0.9


def test_merged_sketch_error_is_bounded() -> None:
    A, B = drifting(5, 40, 15), drifting(6, 40, 15)
    y = np.random.default_rng(7).normal(size=80)
    one = op.ORFitRegressor(memory=Sketch(5)).fit(A, y[:40])
    two = op.ORFitRegressor(memory=Sketch(5)).fit(B, y[40:])
    assert one.merge(two)._merging == "approximate"
    space = one.memory_.subspace
    whole = np.vstack((A, B))
    gone = np.linalg.eigvalsh(whole.T @ whole - (space.U * space.sigma**2) @ space.U.T)
    assert gone.min() > -1e-8
    assert gone.max() <= space.lost + 1e-8
