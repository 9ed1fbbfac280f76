"""Directional forgetting against the dense SIFt-RLS recursion."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import ParameterError
from onepass.forgetting import Directional
from onepass.memory.least_squares import Parts, Slot
from raising import raises
from sampling import sample

Floats = np.ndarray[Any, np.dtype[np.float64]]


def sift_dense(
    X: Floats,
    y: Floats,
    ridge: float,
    factor: float,
    block: int,
    *,
    scaled: bool = True,
    threshold: float = 1e-6,
) -> tuple[Floats, Floats]:
    """SIFt-RLS with dense information matrix: predictions at the start of each block, and weights.

    phi is the filtered regressor (k, p):  A ← A − (1 − λⁿ) A phiᵀ (phi A phiᵀ)⁻¹ phi A + phiᵀ phi
    in units of the root mean squares, if scaled.
    """
    A, w = ridge * np.eye(X.shape[1]), np.zeros(X.shape[1])
    predictions = np.zeros(len(X))
    for i in range(0, len(X), block):
        rows = slice(i, i + block)
        predictions[rows] = X[rows] @ w
        seen = X[: i + block]
        rms = np.sqrt((seen**2).sum(axis=0) / np.maximum((seen != 0.0).sum(axis=0), 1))
        rms = np.where((rms > 0.0) & scaled, rms, 1.0)
        U, sigma, Vt = np.linalg.svd(X[rows] / rms, full_matrices=False)
        on = sigma > np.sqrt(threshold * block)
        phi, targets = sigma[on, None] * Vt[on], U[:, on].T @ y[rows]
        if on.any():
            A, v = A / np.outer(rms, rms), w * rms
            B = A @ phi.T
            A = A - (1 - factor**block) * B @ np.linalg.solve(phi @ B, B.T) + phi.T @ phi
            v = v + np.linalg.solve(A, phi.T @ (targets - phi @ v))
            A, w = A * np.outer(rms, rms), v / rms
    return predictions, w


@pytest.mark.parametrize(
    ("factor", "scaled", "silent"),
    sample(list(product([0.98, 0.7], [False, True], [False, True])), 4, "SIFt-RLS"),
)
def test_directional_by_rows_equals_sift_rls(factor: float, scaled: bool, silent: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) * [1.0, 10.0, 0.1, 1.0]
    if silent:
        X[100:200, 2:] = 0.0
        X[150] = 0.0
    y = X @ [1.0, 2.0, 3.0, 4.0] + 0.1 * rng.normal(size=300)
    rule = Directional(factor, 1, scaled=scaled)
    predictions = op.RLSRegressor(1.0, rule, fit_intercept=False).test_then_train(X, y)
    wanted, _ = sift_dense(X, y, 1.0, factor, 1, scaled=scaled)
    np.testing.assert_allclose(predictions, wanted, atol=1e-8 * np.abs(y).max())


def test_directional_with_intercept_equals_centred_sift_rls() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) + np.array([0.0, 5.0, -3.0])
    X[100:250, 1] = 4.0
    y = X @ [1.0, 2.0, 3.0] + 7.0 + 0.1 * rng.normal(size=300)
    predictions = op.RLSRegressor(1e-2, Directional(0.95, 1, scaled=False)).test_then_train(X, y)
    A, w, wanted = np.diag([1e-2, 1e-2, 1e-2, 1.0]), np.array([0.0, 0.0, 0.0, y[0]]), np.zeros(300)
    mean = X[0].copy()
    for i in range(1, 300):
        phi = np.append(X[i] - mean, 1.0)
        wanted[i] = phi @ w
        B = A @ phi
        A = A - 0.05 * np.outer(B, B) / (phi @ B) + np.outer(phi, phi)
        w = w + np.linalg.solve(A, phi * (y[i] - phi @ w))
        moved, T = A[:3, 3] / A[3, 3], np.eye(4)  # about the mean again
        mean, T[:3, 3], w[3] = mean + moved, -moved, w[3] + moved @ w[:3]
        A = T @ A @ T.T
    np.testing.assert_allclose(predictions, wanted, atol=1e-8)


@pytest.mark.parametrize(
    ("factor", "block"), [(1.0, 1), (1.0, 3), (1.0, 16), (0.99, 3), (0.99, 16)]
)
@pytest.mark.parametrize("intercept", [True, False])
def test_standard_deviations_equal_weighted_least_squares(
    factor: float, block: int, *, intercept: bool
) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(330, 2))
    if factor == 1.0:
        X[100:200, 1] = 0.0
    y = X @ [1.0, 2.0] + 7.0 * intercept + rng.normal(size=330)
    ends = np.arange(330) // block
    full = 330 // block
    q = factor ** (block * np.maximum(full - 1.0 - ends, 0.0))
    A = np.column_stack((X, np.ones(330)))[:, : 2 + intercept]
    P = np.linalg.inv((A.T * q) @ A)
    residual = y - A @ (P @ (A.T @ (q * y)))
    variance = q @ residual**2 / (q.sum() - A.shape[1])
    wanted = np.sqrt(variance * (1.0 + np.einsum("ij,jk,ik->i", A, P, A)))[:5]
    model = op.RLSRegressor(0.0, Directional(factor, block), fit_intercept=intercept).fit(X, y)
    np.testing.assert_allclose(model.predict(X[:5], return_std=True)[1], wanted, rtol=1e-6)


def test_predictions_do_not_depend_on_the_units_of_features() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 3))
    truth = np.where(np.arange(3000) < 1500, 1.0, -1.0)
    y = X.sum(axis=1) * truth
    predictions = op.RLSRegressor(0.0, Directional(0.95)).test_then_train(X, y)
    far = X * [1e-5, 1.0, 1e5] + [1.0, 0.0, -1e5]
    again = op.RLSRegressor(0.0, Directional(0.95)).test_then_train(far, y)
    np.testing.assert_allclose(again[10:], predictions[10:], atol=1e-6)
    assert np.abs(again - y)[2500:].max() < 1e-3


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 3, 16, 50]),
    st.sampled_from([0.99, 0.8]),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_block_boundaries_do_not_matter(
    seed: int, block: int, factor: float, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(200, 5)) * (rng.random((200, 5)) < 0.7), rng.normal(size=200)
    X[50:150, 3:] = 0.0
    rule = Directional(factor, block)
    parts, whole = (op.RLSRegressor(0.1, rule, fit_intercept=False) for _ in range(2))
    predictions = whole.test_then_train(X, y)
    reported = [parts.test_then_train(X[r], y[r]) for r in np.split(np.arange(200), sorted(cuts))]
    np.testing.assert_allclose(np.concatenate(reported), predictions, atol=1e-8)
    full = 200 - 200 % block
    wanted, w = sift_dense(X[:full], y[:full], 0.1, factor, block)
    starts = np.arange(0, full, block)
    np.testing.assert_allclose(predictions[starts], wanted[starts], atol=1e-8)
    ended = op.RLSRegressor(0.1, rule, fit_intercept=False).fit(X[:full], y[:full])
    np.testing.assert_allclose(ended.coef_, w, atol=1e-8)


def test_unexcited_directions_are_retained_and_others_tracked() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 4))
    X[1000:, 2:] = 0.0
    truth = (
        np.array([1.0, 2.0, 3.0, 4.0]) * np.where(np.arange(20_000) < 10_000, 1.0, -1.0)[:, None]
    )
    model = op.RLSRegressor(forgetting=Directional(0.98)).fit(X, (X * truth).sum(axis=1))
    np.testing.assert_allclose(model.coef_, [-1.0, -2.0, 3.0, 4.0], atol=1e-6)


def test_forgetting_by_time_equals_forgetting_by_rows() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(100, 3)), rng.normal(size=100)
    by_rows = op.RLSRegressor(1.0, Directional(0.5, 1), fit_intercept=False).fit(X, y)
    times = 3.0 * np.arange(100)
    by_time = op.RLSRegressor(1.0, Directional(block=1, half_life=3.0), fit_intercept=False)
    by_time.partial_fit(X[:40], y[:40], time=times[:40])
    by_time.partial_fit(X[40:], y[40:], time=times[40:])
    np.testing.assert_allclose(by_time.coef_, by_rows.coef_, atol=1e-5)  # the first has no gap
    by_time.partial_fit(X[:1], y[:1], time=[1e12])  # λ underflows
    assert by_time.predict(X[:1]) == pytest.approx(y[0])
    assert np.isfinite(by_time.coef_).all()


@pytest.mark.parametrize(
    "wrong",
    [{}, {"factor": 0.0}, {"factor": 0.9, "half_life": 1.0}, {"factor": 0.9, "block": 0},
     {"factor": 0.9, "threshold": -1.0}, {"half_life": "soon"}],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with raises(ParameterError, where="Directional"):
        Directional(**wrong)


def test_block_size_can_be_reduced_midway() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X @ [1.0, 2.0, 3.0]
    model = op.RLSRegressor(1e-6, Directional(0.9, 16)).fit(X[:10], y[:10])
    model.set_params(forgetting=Directional(0.9, 4)).partial_fit(X[10:], y[10:])
    assert model.rows_seen_ == 40
    assert Parts(model.state_).head[Slot.MASS] < 20.0
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0], atol=1e-6)
