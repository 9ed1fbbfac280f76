"""The update equation, in both forms, against a dense P."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass.linalg import update
from oracles import DenseP

Floats = NDArray[Any]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 20), st.integers(1, 3))
def test_absorb_equals_dense_update(seed: int, p: int, n: int, c: int) -> None:
    rng = np.random.default_rng(seed)
    R = np.triu(rng.normal(size=(p, p))) + 3.0 * np.eye(p)
    w, A, b = rng.normal(size=(p, c)), rng.normal(size=(n, p)), rng.normal(size=(n, c))
    dense = DenseP(p, np.linalg.inv(R.T @ R))
    expected = dense.learn(w, A.T, b - A @ w, 1.0)
    found = update.absorb(np.asfortranarray(R), R @ w, w, A, b)
    np.testing.assert_allclose(found.w, expected.w, atol=1e-11)
    np.testing.assert_allclose(found.errors, expected.errors, atol=1e-10)
    np.testing.assert_allclose(np.linalg.inv(found.R.T @ found.R), dense.P, atol=1e-12)
    np.testing.assert_allclose(found.R @ found.w, found.z, atol=1e-11)
    before = np.sum((b - A @ found.w) ** 2, axis=0) + np.sum((R @ (found.w - w)) ** 2, axis=0)
    np.testing.assert_allclose(found.left, before, atol=1e-10)


@pytest.mark.parametrize("noise", [0.0, 0.7])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize(("p", "n"), [(1, 1), (9, 4), (30, 30), (200, 12)])
def test_fit_of_block_equals_dense_update(p: int, n: int, c: int, noise: float) -> None:
    rng = np.random.default_rng(0)
    G, w, e = rng.normal(size=(p, n)), rng.normal(size=(p, c)), rng.normal(size=(n, c))
    expected = DenseP(p).learn(w, G, e, noise)
    found = update.fit(w, G, G, e, np.full(n, noise))
    np.testing.assert_allclose(found.w, expected.w, atol=1e-7 if p == n else 1e-10)
    np.testing.assert_allclose(found.errors, expected.errors, atol=1e-7 if p == n else 1e-10)
    if not noise:
        np.testing.assert_allclose(found.W.T @ found.W, np.eye(n), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dependent_rows_of_block_are_not_retained(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    g, h = rng.normal(size=(2, 300, 1)).astype(dtype)
    G = np.hstack((g, 1.5 * g, h, g + h, g, np.zeros_like(g)))
    e = np.array([1.0, 1.5, 2.0, 9.0, 1.0, 0.0], dtype=dtype)
    found = update.fit(np.zeros(300, dtype=dtype), G, G, e, np.zeros(6))
    assert found.retained.tolist() == [True, False, True, False, False, False]
    assert found.inconsistent_rows == 1  # g + h should have given 3
    np.testing.assert_allclose(G.T @ found.w, [1, 1.5, 2, 3, 1, 0], atol=1e-4)
    np.testing.assert_allclose(found.errors, [1, 0, found.errors[2], 6, 0, 0], atol=1e-4)
    assert found.w.dtype == found.W.dtype == dtype


def test_first_of_two_contradicting_rows_wins_in_block() -> None:
    g = np.array([[1.0, 1.0], [2.0, 2.0]])
    found = update.fit(np.zeros(2), g, g, np.array([1.0, 5.0]), np.zeros(2))
    np.testing.assert_allclose(g.T @ found.w, 1.0)
    np.testing.assert_allclose(found.errors, [1.0, 4.0])
    assert found.inconsistent_rows == 1


def test_inconsistent_row_counts_once_for_all_outputs() -> None:
    G = np.zeros((3, 4))
    found = update.fit(np.zeros(3), G, G, np.array([1.0, 2.0, 0.0, 0.0]), np.zeros(4), group=2)
    assert found.inconsistent_rows == 1
    np.testing.assert_array_equal(found.errors, [1.0, 2.0, 0.0, 0.0])


def test_direction_without_information_retains_its_weight() -> None:
    R, w = np.asfortranarray(np.diag([1e-120, 1e-120])), np.array([[0.25], [3.0]])
    found = update.absorb(R, R @ w, w, np.ones((1, 2)), np.array([[2.0]]))
    np.testing.assert_allclose(found.w, [[-1.0], [3.0]])
    np.testing.assert_allclose(found.R @ found.w, found.z)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_nearly_parallel_rows_add_no_direction_by_rounding(scale: float) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        G = rng.normal(size=(4, 30))
        G[:, 1] = G[:, 0] + scale * G[:, 1]
        y = G.T @ rng.normal(size=4) + rng.normal(size=30)
        fitted = update.fit(np.zeros(4), G, G, y, np.zeros(30))
        assert fitted.retained.sum() == 4
        np.testing.assert_allclose(G[:, :4].T @ fitted.w, y[:4], atol=1e-6)


@pytest.mark.parametrize("size", [1e4, 1e9, 1e20])
def test_rows_far_above_ridge_retain_precision_of_later_errors(size: float) -> None:
    rng = np.random.default_rng(0)
    A = size * rng.normal(size=(64, 4))
    b = A @ rng.normal(size=(4, 2)) + size * rng.normal(size=(64, 2))
    R, zero = np.asfortranarray(1e-3 * np.eye(4)), np.zeros((4, 2))
    found = update.absorb(R, zero, zero, A, b)
    for i in range(8, 64):
        w = np.linalg.lstsq(A[:i], b[:i], rcond=None)[0]
        np.testing.assert_allclose(found.errors[i], b[i] - A[i] @ w, rtol=0, atol=1e-11 * size)
    left = ((b - A @ found.w) ** 2).sum(axis=0)
    np.testing.assert_allclose(found.left, left, rtol=1e-9)
