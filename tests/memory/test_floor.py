"""The floor: forgetting does not wind up, and costs nothing where the stream stays excited."""

import numpy as np
import pytest

import onepass as op
from onepass.memory.floor import Floor, rows_between
from onepass.memory.square_root import SquareRoot


def silent_stream(
    seed: int, *, changed: bool, silent: int = 48_000
) -> tuple[np.ndarray, np.ndarray]:
    """Five features; three are silent for long, then back, with the truth changed or not."""
    rng = np.random.default_rng(seed)
    n = 1000 + silent + 100
    X = rng.normal(size=(n, 5))
    X[1000 : 1000 + silent, 2:] = 0.0
    truth = np.tile(rng.normal(size=5), (n, 1))
    if changed:
        truth[1000:, 2:] += rng.normal(size=3)
    return X, (X * truth).sum(axis=1) + 0.1 * rng.normal(size=n)


def rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def test_features_that_come_back_find_what_was_known_of_them() -> None:
    early, late = [], []
    for seed in range(5):
        X, y = silent_stream(seed, changed=False)
        said = op.RLSRegressor(forgetting=0.98).test_then_train(X, y)
        early.append(rmse((said - y)[49_000:49_005]))
        X, y = silent_stream(seed, changed=True)
        said = op.RLSRegressor(forgetting=0.98).test_then_train(X, y)
        late.append(rmse((said - y)[49_020:]))
    assert np.mean(early) < 0.2
    assert np.mean(late) < 0.2


def test_plain_exponential_forgetting_winds_up_where_the_floor_does_not() -> None:
    X, y = silent_stream(0, changed=False)
    plain = op.RLSRegressor(forgetting=0.98, floor=0.0).test_then_train(X, y)
    held = op.RLSRegressor(forgetting=0.98).test_then_train(X, y)
    assert np.abs(plain - y)[49_000:].max() > 10 * np.abs(held - y)[49_000:].max()
    assert np.isfinite(plain).all()


def test_information_stays_near_or_above_the_floor() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 3)) * [1.0, 100.0, 1e-3]
    X[200:, 1] = 0.0
    model = op.RLSRegressor(0.0, forgetting=0.95, floor=2.0, fit_intercept=False)
    model.partial_fit(X, X @ [1.0, 2.0, 3.0])
    R = model.memory_.R
    seen = 2.0 * (X**2).mean(axis=0)
    least = 0.95 ** rows_between(0.95) * seen[1]  # it fades between two visits, no further
    assert (R.T @ R)[1, 1] > least


def test_pseudo_rows_do_not_move_the_weights() -> None:
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(64, 10)), rng.normal(size=(64, 2))
    memory, _ = SquareRoot(1e-6).start(10, 2).absorb(A, b, np.ones(64))
    floor = Floor.start(3.0, np.full(10, 1e-6)).seen(A, None)
    held = floor.under(memory, 0.99)
    np.testing.assert_allclose(held.R @ memory.w, held.z, atol=1e-12)
    wanted = memory.R.T @ memory.R
    wanted += np.diag(3.0 * (A**2).mean(axis=0) * (1 - 0.99**64))
    np.testing.assert_allclose(held.R.T @ held.R, wanted, atol=1e-11)


def test_every_weight_has_its_turn() -> None:
    p = 600
    floor = Floor.start(1.0, np.zeros(p))
    memory = SquareRoot(1e-8).start(p, 1)
    for _ in range(3):
        floor = floor.seen(np.ones((64, p)), None)
        memory = floor.under(memory, 0.99)
    assert (np.diagonal(memory.R.T @ memory.R) > 0.1).all()


@pytest.mark.parametrize("d", [3, 300])
@pytest.mark.parametrize("forgetting", [0.999, 0.9, 0.3])
def test_how_the_stream_is_cut_does_not_matter(d: int, forgetting: float) -> None:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(400, d))
    X[:, 1] *= rng.random(400) < 0.02
    y = X[:, 0] - X[:, 1] + rng.normal(size=400)
    whole = op.RLSRegressor(1.0, forgetting, floor=5.0)
    said = whole.test_then_train(X, y)
    parts = op.RLSRegressor(1.0, forgetting, floor=5.0)
    told = [parts.test_then_train(X[i:j], y[i:j]) for i, j in [(0, 63), (63, 65), (65, 400)]]
    np.testing.assert_allclose(np.concatenate(told), said, atol=1e-8)
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-8)


def test_a_stream_that_stays_excited_is_tracked_as_by_plain_forgetting() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 5))
    truth = np.cumsum(0.02 * rng.normal(size=(20_000, 5)), axis=0)
    y = (X * truth).sum(axis=1) + 0.1 * rng.normal(size=20_000)
    plain, held = (
        rmse((op.RLSRegressor(forgetting=0.98, floor=f).test_then_train(X, y) - y)[500:])
        for f in (0.0, 1.0)
    )
    assert held < 1.05 * plain


@pytest.mark.parametrize("silent", [10, 100, 1000, 5000])
def test_without_a_ridge_what_was_known_waits_for_a_feature_that_comes_late(silent: int) -> None:
    model = op.RLSRegressor(0.0, 0.5, fit_intercept=False).partial_fit([[2.0, 0.0]], [3.0])
    model.partial_fit(np.zeros((silent, 2)), np.zeros(silent))
    model.learn_one([1.0, 1.0], 2.0)
    np.testing.assert_allclose(model.coef_, [1.5, 0.5], rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0])
def test_without_a_floor_what_has_faded_is_lost_but_the_stream_goes_on(ridge: float) -> None:
    rng = np.random.default_rng(4)
    model = op.RLSRegressor(ridge, 0.5, floor=0.0)
    model.partial_fit([[2.0, 0.0, 0.0]], [3.0]).partial_fit(np.zeros((3000, 3)), np.zeros(3000))
    model.learn_one([1.0, 1.0, 1.0], 2.0)
    assert model.predict_one([1.0, 1.0, 1.0]) == pytest.approx(2.0)
    X = rng.normal(size=(200, 3))
    model.partial_fit(X, X @ [1.0, 2.0, 3.0])
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0], rtol=1e-6)
