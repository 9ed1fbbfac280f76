"""The floor prevents windup and has no effect on an excited stream."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.memory.floor import Floor, rows_between
from onepass.memory.forgetting import Bounded, Exponential
from onepass.memory.square_root import SquareRoot
from sampling import sample

ONE = -np.log2(0.99) * np.ones(64)
"""The half-lives that 64 rows take at λ = 0.99."""


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
        X, y, clean = silent_stream(seed, changed=False, silent=silent)
        predictions = op.RLSRegressor(forgetting=0.98).test_then_train(
            X.astype(dtype), y.astype(dtype)
        )
        early.append(rmse((predictions - clean)[-100:-95]))
        X, y, clean = silent_stream(seed, changed=True, silent=silent)
        predictions = op.RLSRegressor(forgetting=0.98).test_then_train(
            X.astype(dtype), y.astype(dtype)
        )
        late.append(rmse((predictions - clean)[-80:]))
    assert np.hypot(rmse(np.array(early)), 0.1) < 0.14  # with the noise of the targets
    assert np.mean(late) < 0.05


def test_floor_prevents_windup_of_exponential_forgetting() -> None:
    plain, held = [], []
    for seed in range(6):
        X, y, clean = silent_stream(seed, changed=False, silent=3_000)
        for rule, errors in ((Exponential(0.98), plain), (0.98, held)):
            predictions = op.RLSRegressor(forgetting=rule).test_then_train(X, y)
            assert np.isfinite(predictions).all()
            errors.append(rmse((predictions - clean)[-100:-95]))
    assert rmse(np.array(plain)) > 10 * rmse(np.array(held))


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
    information = (model.memory_.R.T @ model.memory_.R)[1, 1]
    least = 0.95 ** rows_between(0.95) * 2.0 * 100.0**2  # it fades between two visits, no further
    assert least < information < 3.0 * 100.0**2


def test_pseudo_rows_do_not_move_the_weights() -> None:
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(64, 10)), rng.normal(size=(64, 2))
    memory, _ = SquareRoot(1e-6).start(10, 2).absorb(A, b, np.ones(64))
    floor = Floor.start(np.full(10, 1e-6)).updated(A, A, None, free=False).aged(ONE)
    after, held = floor.applied_to(memory, 3.0, 64)
    np.testing.assert_allclose(held.R @ memory.w, held.z, atol=1e-12)
    wanted = memory.R.T @ memory.R
    tolerance = 1.0 / (np.diagonal(wanted) * np.diagonal(np.linalg.inv(wanted)))
    wanted += np.diag(3.0 * (A**2).mean(axis=0) * tolerance * (1 - 0.99**64))
    np.testing.assert_allclose(held.R.T @ held.R, wanted, atol=1e-11)
    assert not after.ages.any()


def test_floor_visits_all_weights() -> None:
    p = 600
    floor = Floor.start(np.zeros(p))
    memory = SquareRoot(1e-8).start(p, 1)
    for _ in range(3):
        floor = floor.updated(np.ones((64, p)), np.ones((64, p)), None, free=False).aged(ONE)
        floor, memory = floor.applied_to(memory, 1.0, 64)
    assert (np.diagonal(memory.R.T @ memory.R) > 0.1).all()


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


def test_excited_stream_is_tracked_as_by_plain_forgetting() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 5))
    truth = np.cumsum(0.02 * rng.normal(size=(20_000, 5)), axis=0)
    y = (X * truth).sum(axis=1) + 0.1 * rng.normal(size=20_000)
    plain, held = (
        rmse((op.RLSRegressor(forgetting=rule).test_then_train(X, y) - y)[500:])
        for rule in (Exponential(0.98), Bounded(0.98))
    )
    assert held < 1.02 * plain


def test_correlated_features_are_tracked_as_by_plain_forgetting() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20_000, 1)) + 0.03 * rng.normal(size=(20_000, 5))
    truth = np.cumsum(rng.normal(size=(20_000, 5)), axis=0)
    truth -= truth.mean(axis=1, keepdims=True)  # the targets depend on differences only
    y = (X * truth).sum(axis=1) + 0.1 * rng.normal(size=20_000)
    plain, held = (
        rmse((op.RLSRegressor(forgetting=rule).test_then_train(X, y) - y)[500:])
        for rule in (Exponential(0.98), Bounded(0.98))
    )
    assert held < 1.05 * plain


@pytest.mark.parametrize("silent", [10, 100, 1000, 5000])
def test_floor_without_ridge_retains_information_for_late_feature(silent: int) -> None:
    model = op.RLSRegressor(0.0, 0.5, fit_intercept=False).partial_fit([[2.0, 0.0]], [3.0])
    model.partial_fit(np.zeros((silent, 2)), np.zeros(silent))
    model.learn_one([1.0, 1.0], 2.0)
    np.testing.assert_allclose(model.coef_, [1.5, 0.5], rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0])
def test_learning_continues_after_complete_fading_without_floor(ridge: float) -> None:
    rng = np.random.default_rng(4)
    model = op.RLSRegressor(ridge, Exponential(0.5))
    model.partial_fit([[2.0, 0.0, 0.0]], [3.0]).partial_fit(np.zeros((3000, 3)), np.zeros(3000))
    model.learn_one([1.0, 1.0, 1.0], 2.0)
    assert model.predict_one([1.0, 1.0, 1.0]) == pytest.approx(2.0)
    X = rng.normal(size=(200, 3))
    model.partial_fit(X, X @ [1.0, 2.0, 3.0])
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0], rtol=1e-6)
