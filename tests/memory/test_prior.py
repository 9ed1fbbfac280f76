"""The prior in units of the features: exact, scale-free, independent of block boundaries."""

import numpy as np
import pytest

import onepass as op
from oracles import ridge_qr


def table(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)) * [1.0, 1e-2, 1e2, 1.0, 1.0, 1.0]
    X[:, 3] = rng.random(n) < 0.05
    X[:, 4] = 0.0
    X[: n // 2, 5] = 0.0
    return X, X[:, 0] + 1e2 * X[:, 1] + 1e-2 * X[:, 2] + rng.normal(size=n)


def test_prior_equals_ridge_in_units_of_first_rows() -> None:
    X, y = table()
    model = op.RLSRegressor(1e-9, prior=3.0, fit_intercept=False).fit(X, y)
    first = np.array([np.abs(x[np.flatnonzero(x)[0]]) if x.any() else 0.0 for x in X.T])
    coef, _ = ridge_qr(X, y, np.diag(1e-9 + 3.0 * first**2), intercept=False)
    np.testing.assert_allclose(model.coef_ * np.abs(X).max(0), coef * np.abs(X).max(0), atol=1e-9)


def test_feature_units_do_not_matter() -> None:
    X, y = table()
    scale = np.array([1e2, 1e2, 1e-2, 1.0, 7.0, 1e-2])
    predictions = op.RLSRegressor(0.0, prior=1.0).test_then_train(X, y)
    other = op.RLSRegressor(0.0, prior=1.0).test_then_train(X * scale, y)
    np.testing.assert_allclose(predictions, other, atol=1e-6)


@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_block_boundaries_do_not_matter(forgetting: float) -> None:
    X, y = table()
    whole = op.RLSRegressor(prior=1.0, forgetting=forgetting)
    predictions = whole.test_then_train(X, y)
    parts = op.RLSRegressor(prior=1.0, forgetting=forgetting)
    by_parts = [
        parts.test_then_train(X[i:j], y[i:j]) for i, j in [(0, 1), (1, 2), (2, 101), (101, 200)]
    ]
    np.testing.assert_allclose(np.concatenate(by_parts), predictions, atol=1e-8)


def test_prior_reduces_error_on_wide_tables() -> None:
    rng = np.random.default_rng(1)
    X = np.eye(80)[rng.integers(0, 80, 400)]
    y = X @ rng.normal(size=80) + rng.normal(size=400)

    def error(prior: float) -> float:
        predictions = op.RLSRegressor(1e-8, prior=prior).test_then_train(X, y)
        return float(np.mean((predictions - y)[1:] ** 2))

    assert error(1.0) < error(0.0)
