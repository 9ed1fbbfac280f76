"""Kernel RLS: equal to batch solvers, to a dense tracker, and exact without noise."""

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.kernel_ridge import KernelRidge

import onepass as op
from onepass.errors import MergeError, NotFittedError, NumericalError, ParameterError
from raising import raises

EVERY = {"tolerance": 0.0, "budget": None}
KERNELS = ("rbf", "laplacian", "polynomial", "poly", "linear", "cosine")


def rows(n: int, d: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_rls_equals_kernel_ridge(kernel: str) -> None:
    X, y = rows(300)
    X_test, _ = rows(50, seed=1)
    batch = KernelRidge(kernel=kernel, gamma=0.5, alpha=0.1).fit(X, y)
    model = op.KernelRLSRegressor(kernel, gamma=0.5, noise=0.1, **EVERY).fit(X, y)
    np.testing.assert_allclose(model.predict(X_test), batch.predict(X_test), rtol=0, atol=1e-8)


@pytest.mark.parametrize("noise", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize("kernel", ["rbf", Matern(0.8)])
def test_kernel_rls_equals_gaussian_process(kernel: Any, noise: float) -> None:
    X, y = rows(200)
    X_test, _ = rows(50, seed=1)
    prior = RBF(1.0) if kernel == "rbf" else kernel
    batch = GaussianProcessRegressor(prior, alpha=noise, optimizer=None).fit(X, y)
    model = op.KernelRLSRegressor(kernel, gamma=0.5, noise=noise, **EVERY)
    for part in np.split(np.arange(200), [1, 3, 90]):
        model.partial_fit(X[part], y[part])
    mean, std = batch.predict(X_test, return_std=True)
    found, deviation = model.predict(X_test, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(deviation**2 - noise, std**2, rtol=0, atol=1e-8)


def test_weights_are_the_noise_of_rows() -> None:
    X, y = rows(100)
    s = np.random.default_rng(2).uniform(0.1, 3.0, size=100)
    batch = KernelRidge(kernel="rbf", gamma=0.5, alpha=0.1).fit(X, y, sample_weight=s)
    model = op.KernelRLSRegressor(gamma=0.5, noise=0.1, **EVERY).fit(X, y, s)
    np.testing.assert_allclose(model.predict(X), batch.predict(X), rtol=0, atol=1e-8)


def tracked(
    X: Any, y: Any, *, budget: int, noise: float, forgetting: float, tolerance: float
) -> Any:
    """KRLS-T by its definition: mean and covariance of f at the dictionary, inverted anew."""
    points, mean, S = X[:0], np.zeros(0), np.zeros((0, 0))
    predictions = np.zeros(len(y))
    for i in range(len(X)):
        both = np.vstack([points, X[i : i + 1]])
        K = np.exp(-0.5 * cdist(both, both, "sqeuclidean"))
        q = np.linalg.solve(K[:-1, :-1], K[:-1, -1])
        novelty, h = max(1.0 - K[:-1, -1] @ q, 0.0), S @ q
        variance = novelty + q @ h
        predictions[i] = q @ mean
        joins = novelty > tolerance
        if joins:
            points, mean, gain = both, np.append(mean, q @ mean), np.append(h, variance)
            S = np.block([[S, h[:, None]], [h[None], np.array([[variance]])]])
        else:
            K, gain = K[:-1, :-1], h
        s = variance + noise
        mean, S = mean + gain * (y[i] - predictions[i]) / s, S - np.outer(gain, gain) / s
        mean, S = np.sqrt(forgetting) * mean, forgetting * S + (1.0 - forgetting) * K
        if len(points) > budget:
            inverse = np.linalg.inv(K)
            change = (inverse @ mean) ** 2 / np.diagonal(inverse)
            stay = np.arange(len(points)) != np.argmin(change)
            points, mean, S = points[stay], mean[stay], S[np.ix_(stay, stay)]
    return predictions, points


@pytest.mark.parametrize("forgetting", [1.0, 0.98])
@pytest.mark.parametrize("width", [1, 7, 200])
def test_pruned_dictionary_equals_dense_tracker(forgetting: float, width: int) -> None:
    X, y = rows(200)
    expected, points = tracked(X, y, budget=15, noise=0.05, forgetting=forgetting, tolerance=0.02)
    model = op.KernelRLSRegressor(
        gamma=0.5, noise=0.05, forgetting=forgetting, budget=15, tolerance=0.02
    )
    found = [
        model.test_then_train(X[i : i + width], y[i : i + width]) for i in range(0, 200, width)
    ]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(model.dictionary_, points)
    assert model.rank_ == 15


def test_without_noise_new_rows_are_fitted_and_the_dictionary_does_not_change() -> None:
    """Kernel ORFit: least-norm interpolation at m rows."""
    X, y = rows(60)
    model = op.KernelRLSRegressor(gamma=0.5, noise=0.0, budget=10, tolerance=0.01)
    for x, target in zip(X, y, strict=True):
        model.learn_one(x, target)
        assert abs(model.predict_one(x) - target) < 1e-8
    points = model.dictionary_
    targets = np.array([y[np.flatnonzero((point == X).all(axis=1))[0]] for point in points])
    np.testing.assert_allclose(model.predict(points), targets, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(points[-1], X[-1])
    K = np.exp(-0.5 * cdist(points, points, "sqeuclidean"))
    np.testing.assert_allclose(model.dual_coef_, np.linalg.solve(K, targets), atol=1e-7)
    _, std = model.predict(points, return_std=True)
    assert std.max() < 1e-6


def test_rank_and_inconsistent_rows_are_reported() -> None:
    X, _ = rows(20, d=5)
    model = op.KernelRLSRegressor("linear", noise=0.0, **EVERY).fit(X, X @ np.arange(5.0))
    assert (model.rank_, model.inconsistent_rows_) == (5, 0)
    model.partial_fit(X[:3], X[:3] @ np.arange(5.0) + 1.0)
    assert (model.rank_, model.inconsistent_rows_) == (5, 3)


def test_scale_of_the_targets() -> None:
    X, y = rows(2000)
    one = op.KernelRLSRegressor(gamma=0.5, noise=0.05).fit(X, y)
    other = op.KernelRLSRegressor(gamma=0.5, noise=0.05).fit(X, 50.0 * y)
    np.testing.assert_allclose(other.scale_, 50.0 * one.scale_)


def test_whitened_basis_is_accurate_after_many_replacements() -> None:
    X, y = rows(3000)
    model = op.KernelRLSRegressor(gamma=0.5, noise=0.01, budget=20, forgetting=0.99).fit(X, y)
    posterior = model.posterior_
    K = np.exp(-0.5 * cdist(posterior.points, posterior.points, "sqeuclidean"))
    assert posterior.pruned > 500
    np.testing.assert_allclose(posterior.L @ posterior.L.T, K, rtol=0, atol=1e-10)


def test_merge_of_limited_dictionaries_is_near_one_learner() -> None:
    X, y = rows(2000)
    whole = op.KernelRLSRegressor(gamma=0.3, tolerance=0.01, budget=60).fit(X, y)
    parts = [op.KernelRLSRegressor(gamma=0.3, tolerance=0.01, budget=60) for _ in range(2)]
    parts[0].fit(X[:1000], y[:1000]).merge(parts[1].fit(X[1000:], y[1000:]))
    X_test, y_test = rows(500, seed=3)
    one, two = (np.mean((m.predict(X_test) - y_test) ** 2) for m in (whole, parts[0]))
    assert parts[0].rank_ == 60
    assert two < 1.5 * one


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel": "sigmoid"},
        {"gamma": 0.0},
        {"noise": -1.0},
        {"budget": 0},
        {"forgetting": 0.0},
        {"tolerance": 2.0},
        {"degree": 0},
        {"coef0": -1.0},
    ],
)
def test_parameters_out_of_range_raise_an_error(wrong: dict[str, Any]) -> None:
    X, y = rows(5)
    with raises(ParameterError, where="KernelRLSRegressor.fit", argument=next(iter(wrong))):
        op.KernelRLSRegressor(**wrong).fit(X, y)


def test_kernel_functions_of_a_wrong_shape_raise_an_error() -> None:
    X, y = rows(5)
    with raises(NumericalError, remedy="Divide the features by"):
        op.KernelRLSRegressor(lambda A, B: A[:, :1] + B[0, 0]).fit(X, y)
    with raises(NumericalError, got="shape (5, 5) with values up to nan for 5 by 5 rows"):
        op.KernelRLSRegressor("poly", degree=0.5, coef0=0.0).fit(X, y)


@pytest.mark.parametrize("name", ["dictionary_", "rank_", "dual_coef_", "scale_"])
def test_attributes_before_the_first_row_raise_not_fitted(name: str) -> None:
    with raises(NotFittedError, remedy="Call fit"):
        getattr(op.KernelRLSRegressor(), name)


def test_weights_too_small_are_named_in_the_error() -> None:
    X, y = rows(5)
    with raises(NumericalError, got="targets up to 1.22"):
        op.KernelRLSRegressor().fit(X, y, np.full(5, 1e-300))


def test_learners_of_different_widths_are_not_merged() -> None:
    (X, y), (Z, v) = rows(5), rows(5, d=4)
    with pytest.raises(MergeError):
        op.KernelRLSRegressor().fit(X, y).merge(op.KernelRLSRegressor().fit(Z, v))


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_smaller_budget_applies_from_the_next_row(rows: int, noise: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sin(X).sum(axis=1)
    model = op.KernelRLSRegressor(gamma=0.5, noise=noise, budget=50).fit(X[:60], y[:60])
    model.set_params(budget=10)
    assert model.rank_ == 50
    for i in range(60, 80, rows):
        model.partial_fit(X[i : i + rows], y[i : i + rows])
        assert model.rank_ == 10
    assert np.isfinite(model.predict(X)).all()
