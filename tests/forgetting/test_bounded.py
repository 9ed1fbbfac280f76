"""Bounded forgetting prevents windup and has no effect on an excited stream."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.forgetting import Bounded, Exponential
from onepass.memory.least_squares import triangle
from sampling import sample


def silent_stream(
    seed: int, *, changed: bool, silent: int = 48_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Five features; three are zero for long, then return, with changed or equal weights.

    The features, their targets, and the targets without the noise, of standard deviation 0.1.
    """
    rng = np.random.default_rng(seed)
    n = 1000 + silent + 100
    X = rng.normal(size=(n, 5))
    X[1000 : 1000 + silent, 2:] = 0.0
    truth = np.tile(rng.normal(size=5), (n, 1))
    if changed:
        truth[1000:, 2:] += rng.normal(size=3)
    clean = (X * truth).sum(axis=1)
    return X, clean + 0.1 * rng.normal(size=n), clean


def rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


@pytest.mark.parametrize(("silent", "dtype"), [(48_000, np.float64), (4_000, np.float32)])
def test_returning_features_have_accurate_coefficients(silent: int, dtype: Any) -> None:
    early, late = [], []
    for seed in range(6):
        for changed, errors, rows in (
            (False, early, slice(-100, -95)),
            (True, late, slice(-80, None)),
        ):
            X, y, clean = silent_stream(seed, changed=changed, silent=silent)
            model = op.RLSRegressor(forgetting=0.98)
            predictions = model.test_then_train(X.astype(dtype), y.astype(dtype))
            errors.append(rmse((predictions - clean)[rows]))
    assert rmse(np.array(early)) < 0.4  # the weights are about 1, and the noise is 0.1
    assert np.mean(late) < 0.05


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
def test_windup_of_exponential_forgetting_is_prevented() -> None:
    rules = (Exponential(0.98), Bounded(0.98), Exponential(0.98, ridge="held"))
    errors: list[list[float]] = [[], [], []]
    for seed in range(6):
        X, y, clean = silent_stream(seed, changed=False, silent=3_000)
        for i, rule in enumerate(rules):
            predictions = op.RLSRegressor(1e-3, rule).test_then_train(X, y)
            assert np.isfinite(predictions).all()
            errors[i].append(rmse((predictions - clean)[-100:-95]))
    plain, bounded, held = (rmse(np.array(each)) for each in errors)
    assert bounded < 0.1 * plain, (plain, bounded, held)
    assert held < plain


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
def test_faded_rows_have_no_effect_once_rank_is_full() -> None:
    X, y, _ = silent_stream(0, changed=False)
    predictions = op.RLSRegressor(forgetting=Exponential(0.98)).test_then_train(X, y)
    A = np.hstack((np.ones((len(X), 1)), X))[46_000:]
    for i in range(49_006, 49_020):
        root = np.sqrt(0.98 ** np.arange(i - 46_000.0)[::-1])
        w = np.linalg.lstsq(A[: len(root)] * root[:, None], y[46_000:i] * root)[0]
        np.testing.assert_allclose(predictions[i], A[len(root)] @ w, atol=1e-9)


@pytest.mark.parametrize("silent", [1_000, 100_000])
def test_unexcited_information_stays_at_floor(silent: int) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000 + silent, 3)) * [1.0, 100.0, 1e-3] + [0.0, 50.0, 0.0]
    X[1000:, 1] = 7.0
    model = op.RLSRegressor(0.0, Bounded(0.95, floor=2.0)).partial_fit(X, X @ [1.0, 2.0, 3.0])
    R, _ = triangle(model.state_)
    energy = ((X[:1000, 1] - 50.0) ** 2).mean()
    assert 0.2 * 2.0 * energy < (R.T @ R)[1, 1] < 3.0 * energy + 2.0 * 43.0**2
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("d", "forgetting"), sample(list(product([3, 300], [0.999, 0.9, 0.3])), 2, "cuts with a floor")
)
def test_block_boundaries_do_not_matter(d: int, forgetting: float) -> None:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(400, d))
    X[:, 1] *= rng.random(400) < 0.02
    y = X[:, 0] - X[:, 1] + rng.normal(size=400)
    whole = op.RLSRegressor(1.0, Bounded(forgetting, floor=5.0))
    predictions = whole.test_then_train(X, y)
    parts = op.RLSRegressor(1.0, Bounded(forgetting, floor=5.0))
    by_parts = [parts.test_then_train(X[i:j], y[i:j]) for i, j in [(0, 63), (63, 65), (65, 400)]]
    np.testing.assert_allclose(np.concatenate(by_parts), predictions, atol=1e-8)
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-8)


@pytest.mark.parametrize("correlated", [False, True])
def test_excited_stream_is_tracked_as_by_plain_forgetting(*, correlated: bool) -> None:
    rng = np.random.default_rng(3)
    X, speed = rng.normal(size=(20_000, 5)), 0.02
    if correlated:
        X, speed = X[:, :1] + 0.03 * rng.normal(size=(20_000, 5)), 1.0
    truth = np.cumsum(speed * rng.normal(size=(20_000, 5)), axis=0)
    if correlated:  # the targets depend on differences only
        truth -= truth.mean(axis=1, keepdims=True)
    y = (X * truth).sum(axis=1) + 0.1 * rng.normal(size=20_000)
    plain, held = (
        rmse((op.RLSRegressor(forgetting=rule).test_then_train(X, y) - y)[500:])
        for rule in (Exponential(0.98), Bounded(0.98))
    )
    assert held < 1.02 * plain


@pytest.mark.parametrize("silent", [10, 100, 1000, 5000])
def test_information_is_retained_without_a_ridge(silent: int) -> None:
    model = op.RLSRegressor(0.0, 0.5, fit_intercept=False).partial_fit([[2.0, 0.0]], [3.0])
    model.partial_fit(np.zeros((silent, 2)), np.zeros(silent))
    np.testing.assert_allclose(model.coef_, [1.5, 0.0], rtol=1e-9)
    model.learn_one([1.0, 1.0], 2.0)
    assert model.predict_one([1.0, 1.0]) == pytest.approx(2.0)
    assert np.isfinite(model.coef_).all()


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0])
def test_learning_continues_after_complete_fading(ridge: float) -> None:
    rng = np.random.default_rng(4)
    model = op.RLSRegressor(ridge, Exponential(0.5))
    model.partial_fit([[2.0, 0.0, 0.0]], [3.0]).partial_fit(np.zeros((3000, 3)), np.zeros(3000))
    model.learn_one([1.0, 1.0, 1.0], 2.0)
    assert model.predict_one([1.0, 1.0, 1.0]) == pytest.approx(2.0)
    X = rng.normal(size=(200, 3))
    model.partial_fit(X, X @ [1.0, 2.0, 3.0])
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0], rtol=1e-6)
