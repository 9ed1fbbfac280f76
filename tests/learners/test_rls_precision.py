"""Precision of RLS: badly scaled features, long streams, huge and tiny numbers."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onepass import RLSRegressor
from onepass.errors import NumericalError
from onepass.forgetting import Exponential
from oracles import ridge_qr

Floats = NDArray[np.float64]


def assert_close(a: Any, b: Any, tolerance: float, *, scale: float = 0.0) -> None:
    a, b = np.asarray(a), np.asarray(b)
    size = max(float(np.abs(b).max(initial=0.0)), scale)
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0.0) <= tolerance * size


# -- conditioning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-20])
@pytest.mark.parametrize("block", [1, 37, 400])
def test_predictions_at_condition_1e7_equal_qr(ridge: float, block: int) -> None:
    rng = np.random.default_rng(7)
    U, V = (np.linalg.qr(rng.normal(size=(n, 6)))[0] for n in (400, 6))
    X = U @ np.diag(np.logspace(0, -7, 6)) @ V.T
    y = X @ rng.normal(size=6) + 1e-3 * rng.normal(size=400)
    learner = RLSRegressor(ridge=ridge)
    for i in range(0, 400, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    coef, b = ridge_qr(X, y, ridge)
    assert_close(learner.predict(X), X @ coef + b, 1e-8)


@pytest.mark.parametrize("ridge", [0.0, 1e-20, 1e-6])
@pytest.mark.parametrize("intercept", [True, False])
def test_features_scaled_from_1e_5_to_1e5_retain_precision(ridge: float, intercept: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(8)
    scales = np.array([1e-5, 1e5, 1.0, 1e-3, 1e3])
    X = (rng.normal(size=(300, 5)) + 1.0) * scales
    y = X @ (1.0 / scales) + rng.normal(size=300)
    learner = RLSRegressor(ridge=ridge, fit_intercept=intercept)
    predictions = np.concatenate([learner.test_then_train(X[i : i + 9], y[i : i + 9])
                           for i in range(0, 300, 9)])  # fmt: skip
    coef, b = ridge_qr(X, y, ridge, intercept=intercept)
    assert_close(learner.predict(X), X @ coef + b, 1e-12)
    assert_close(learner.coef_ * scales, coef * scales, 1e-11)
    before, b = ridge_qr(X[:299], y[:299], ridge, intercept=intercept)
    assert_close(predictions[-1], X[-1] @ before + b, 1e-11)


@pytest.mark.parametrize("block", [1, 500])
def test_features_far_from_zero_retain_precision(block: int) -> None:
    rng = np.random.default_rng(9)
    near = rng.normal(size=(5000, 3))
    X = near + 1e8
    near = X - 1e8  # what float64 holds of them, exactly
    y = near @ [1.0, 2.0, 3.0] + rng.normal(size=5000) - 1e6
    learner = RLSRegressor(ridge=0.0)
    for i in range(0, 5000, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    coef, b = ridge_qr(near, y)
    assert_close(learner.coef_, coef, 1e-11)
    assert_close(learner.predict(X), near @ coef + b, 1e-12)  # of 1e6, through products of 1e8


def test_years_and_pressures_retain_precision_with_forgetting() -> None:
    rng = np.random.default_rng(10)
    X = np.column_stack([np.arange(1900.0, 2000.0, 0.1), 101325 + rng.normal(size=1000)])
    y = 0.02 * (X[:, 0] - 1950) + 3 * (X[:, 1] - 101325) + rng.normal(size=1000)
    learner = RLSRegressor(ridge=0.0, forgetting=Exponential(0.99))
    for x, target in zip(X, y, strict=True):
        learner.learn_one(x, target)
    coef, b = ridge_qr(X - [1950, 101325], y, forgetting=0.99)
    assert_close(learner.coef_, coef, 1e-12)
    assert_close(learner.predict(X), (X - [1950, 101325]) @ coef + b, 1e-9)


# -- standard deviations ---------------------------------------------------------------------------


def test_std_with_intercept_equals_textbook_formula() -> None:
    rng = np.random.default_rng(11)
    X, new = rng.normal(size=(30, 3)) + 5.0, rng.normal(size=(7, 3))
    y = X @ rng.normal(size=(3, 2)) + rng.normal(size=(30, 2))
    learner = RLSRegressor(ridge=0.0).fit(X, y)
    A = np.column_stack([np.ones(30), X])
    rest = y - A @ np.linalg.lstsq(A, y)[0]
    sigma = np.sqrt((rest**2).sum(axis=0) / (30 - 4))
    a = np.column_stack([np.ones(7), new])
    leverage = np.einsum("ij,jk,ik->i", a, np.linalg.inv(A.T @ A), a)
    predictions, std = learner.predict(new, return_std=True)
    assert_close(predictions, learner.predict(new), 0.0)
    assert_close(std, np.sqrt(1.0 + leverage)[:, None] * sigma, 1e-10)


def test_std_with_weights_and_forgetting_equals_batch_formula() -> None:
    rng = np.random.default_rng(12)
    X, y, new = rng.normal(size=(40, 3)), rng.normal(size=40), rng.normal(size=(5, 3))
    s, lam, ridge = rng.uniform(0.5, 2.0, 40), 0.97, 0.3
    for intercept in (True, False):
        learner = RLSRegressor(ridge, lam, fit_intercept=intercept)
        for rows in np.split(np.arange(40), [3, 17]):
            learner.partial_fit(X[rows], y[rows], s[rows])
        u = s * lam ** np.arange(39, -1, -1.0)
        A, a = (np.column_stack([np.ones(len(Z)), Z]) if intercept else Z for Z in (X, new))
        prior = lam**40 * ridge * np.eye(A.shape[1])
        if intercept:
            prior[0, 0] = 0.0
        M = A.T @ (u[:, None] * A) + prior
        w = np.linalg.solve(M, A.T @ (u * y))
        variance = u @ (y - A @ w) ** 2 / (u.sum() - A.shape[1])
        leverage = np.einsum("ij,jk,ik->i", a, np.linalg.inv(M), a)
        std = learner.predict(new, return_std=True)[1]
        assert_close(std, np.sqrt(variance * (1.0 + leverage)), 1e-10)
        for x, expected in zip(new, std, strict=True):  # compiled, before and after a row
            assert_close(learner.predict_one(x, return_std=True)[1], expected, 1e-10)
        learner.learn_one(X[0], y[0])
        both = learner.predict(new[:1], return_std=True)[1][0]
        assert_close(learner.predict_one(new[0], return_std=True)[1], both, 1e-10)


def test_std_is_infinite_until_rows_determine_variance() -> None:
    rng = np.random.default_rng(13)
    X, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    learner = RLSRegressor(ridge=0.0)
    for i in range(8):
        learner.learn_one(X[i], y[i])
        std = learner.predict(X, return_std=True)[1]
        assert np.isinf(std).all() if i < 4 else np.isfinite(std).all()


def test_std_is_infinite_where_constant_columns_change() -> None:
    X = np.ones((9, 2))
    for y in (np.zeros(9), np.arange(9.0)):
        learner = RLSRegressor(ridge=0.0).fit(X, y)
        assert np.isinf(learner.predict(X + 1.0, return_std=True)[1]).all()
        assert np.isfinite(learner.predict(X, return_std=True)[1]).all()


@pytest.mark.parametrize("intercept", [True, False])
def test_std_is_huge_outside_the_span_of_the_rows(*, intercept: bool) -> None:
    rng = np.random.default_rng(13)
    X = rng.normal(size=(20, 1)) * np.ones(3)
    y = X[:, 0] + rng.normal(size=20)
    learner = RLSRegressor(0.0, fit_intercept=intercept).fit(X, y)
    inside, outside = (
        learner.predict(rows, return_std=True)[1] for rows in (X, X * [1.0, 2.0, 3.0])
    )
    assert inside.max() < 2.0
    assert outside.min() > 1e4


# -- long streams, and numbers of every size -------------------------------------------------------


@pytest.mark.parametrize(("forgetting", "ridge"), [(0.9, 0.0), (0.98, 1e-6)])
def test_constant_and_returning_features_never_give_nan(forgetting: float, ridge: float) -> None:
    rng = np.random.default_rng(14)
    n = 50_000
    X = rng.normal(size=(n, 6))
    X[:, 1], X[:, 2], X[100:, 3], X[:-50, 4], X[100:, 5] = 3.0, 0.0, 0.0, 0.0, 7.0
    y = X @ np.arange(1.0, 7.0) + 0.1 * rng.normal(size=n)
    learner = RLSRegressor(ridge, Exponential(forgetting))
    predictions = learner.test_then_train(X, y)
    assert np.isfinite(predictions).all()
    assert np.isfinite(learner.coef_).all()
    assert np.abs(predictions - y)[500:-50].max() < 5.0
    back = rng.normal(size=(200, 6))
    predictions = learner.test_then_train(back, back @ np.arange(1.0, 7.0))
    assert np.isfinite(predictions).all()
    assert_close(learner.predict(back), back @ np.arange(1.0, 7.0), 0.05)


@pytest.mark.parametrize("size", [1e100, 1e154, 1e200, 1e300])
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
@pytest.mark.parametrize("where", ["X", "y", "both"])
def test_huge_numbers_are_learned_or_refused_without_change(
    size: float, ridge: float, where: str
) -> None:
    rng = np.random.default_rng(15)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    learner = RLSRegressor(ridge).partial_fit(X, y)
    coef, seen, state = learner.coef_, learner.rows_seen_, learner.state_.copy()
    big = rng.normal(size=(5, 3)) * (size if where != "y" else 1.0)
    targets = rng.normal(size=5) * (size if where != "X" else 1.0)
    try:
        learner.partial_fit(big, targets)
    except NumericalError:
        assert (learner.coef_ == coef).all()
        assert learner.rows_seen_ == seen
        assert (learner.state_ == state).all()
    else:
        assert np.isfinite(learner.coef_).all()
        assert np.isfinite(learner.predict(X)).all()
        assert not np.isnan(learner.predict(X, return_std=True)[1]).any()


@pytest.mark.parametrize("size", [1e-100, 1e-160, 1e-300])
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_tiny_numbers_give_finite_results(size: float, ridge: float) -> None:
    rng = np.random.default_rng(16)
    X, y = size * rng.normal(size=(20, 3)), rng.normal(size=20)
    try:
        learner = RLSRegressor(ridge).partial_fit(X, y)
    except NumericalError:
        return
    assert np.isfinite(learner.coef_).all()
    assert np.isfinite(learner.predict(X)).all()


# -- all shapes and layouts ------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 5), (5, 1), (3, 40), (200, 3)])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_any_shape_equals_batch_ridge(n: int, d: int, ridge: float) -> None:
    rng = np.random.default_rng(17)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    learner = RLSRegressor(ridge).fit(X, y)
    coef, b = ridge_qr(X, y, ridge, scaled="size")
    if ridge == 0.0 and n < d:  # the norm is the least in about these units
        assert_close(learner.predict(X), y, 1e-9)
        sizes = np.linalg.norm(X - X.mean(axis=0), axis=0)
        least = np.linalg.norm(sizes * coef)
        assert np.linalg.norm(sizes * learner.coef_) <= 2.5 * least + 1e-9
    else:
        assert_close(learner.coef_, coef, 1e-9, scale=1e-3)
        assert_close(learner.intercept_, b, 1e-9, scale=1.0)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_dtype_and_memory_layout_of_rows_do_not_matter(ridge: float) -> None:
    rng = np.random.default_rng(18)
    X, y = rng.normal(size=(60, 8)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    expected = RLSRegressor(ridge).fit(X.astype(np.float64), y.astype(np.float64))
    wide, long = np.zeros((60, 16), dtype=np.float32), np.zeros((120, 8), dtype=np.float32)
    wide[:, ::2], long[::2] = X, X
    fixed = X.copy()
    fixed.flags.writeable = False
    for rows in (X, np.asfortranarray(X), wide[:, ::2], long[::2], fixed):
        learner = RLSRegressor(ridge)
        learner.partial_fit(rows[:7], y[:7]).partial_fit(rows[7:], y[7:])
        assert_close(learner.coef_, expected.coef_, 1e-12)
        assert learner.coef_.dtype == np.float64


def test_late_features_equal_zeros_in_earlier_rows() -> None:
    rng = np.random.default_rng(19)
    X, y = rng.normal(size=(40, 5)), rng.normal(size=40)
    X[:25, 3:] = 0.0
    for ridge, forgetting in ((0.0, 1.0), (0.0, 0.98), (0.2, 1.0)):
        late = RLSRegressor(ridge, Exponential(forgetting)).partial_fit(X[:25, :3], y[:25]).grow(5)
        late.partial_fit(X[25:], y[25:])
        known = RLSRegressor(ridge, Exponential(forgetting)).partial_fit(X, y)
        assert_close(late.coef_, known.coef_, 1e-11)
        assert_close(late.intercept_, known.intercept_, 1e-11, scale=1.0)


@pytest.mark.parametrize("ridge", [1e-3, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("forgetting", [0.97, 0.995, Exponential(0.97, ridge="held")])
def test_std_is_that_of_the_residuals_after_many_rows(forgetting: Any, ridge: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 4))
    y = X @ [1.0, 2.0, 3.0, 4.0] + 0.1 * rng.normal(size=1500)
    learner = RLSRegressor(ridge, forgetting)
    for rows in np.split(np.arange(1500), [1, 700]):
        learner.partial_fit(X[rows], y[rows])
    factor = forgetting if isinstance(forgetting, float) else forgetting.factor
    u = factor ** np.arange(1499, -1, -1.0)
    residuals = y - learner.predict(X)
    sigma = np.sqrt(u @ residuals**2 / (u.sum() - 5))
    std = learner.predict(np.zeros((1, 4)), return_std=True)[1][0]
    assert 0.7 * sigma < std < 1.5 * sigma
    assert_close(learner.predict_one(np.zeros(4), return_std=True)[1], std, 1e-9)
