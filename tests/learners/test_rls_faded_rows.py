"""RLS with rows that have faded almost completely, against exact solutions."""

from typing import Any

import mpmath
import numpy as np
import pytest

import onepass as op
from onepass.errors import WindupWarning
from onepass.forgetting import Bounded, Directional, Exponential, Window

Floats = Any


def predict_then_learn_rows(model: Any, X: Floats, y: Floats, time: Any = None) -> Floats:
    found = []
    for i, (x, target) in enumerate(zip(X, y, strict=True)):
        found.append(float(model.predict_one(x)))
        model.learn_one(x, target, **({} if time is None else {"time": time[i]}))
    return np.array(found)


RETAINED = 2.0**-22
"""The weight of the past after a gap, relative to that of the row that follows, at least."""
ignore_windup = pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")


@ignore_windup
def test_predictions_after_gaps_are_near_exact_least_squares() -> None:
    X = np.array([[1.0, 2.0], [-2.0, 1.0], [-2.0, 1.0], [1.0, -2.0]])
    y, t = np.array([2.0, -3.0, 3.0, 0.0]), np.array([1.0, 51.0, 52.0, 102.0])
    make = lambda: op.RLSRegressor(forgetting=Exponential(half_life=0.5), fit_intercept=False)  # noqa: E731
    block, rows = make().test_then_train(X, y, time=t), predict_then_learn_rows(make(), X, y, t)
    np.testing.assert_allclose(rows, block, atol=1e-12)
    assert block[3] == pytest.approx(-2.64, abs=1e-5)  # in rational arithmetic -2.63999976


@ignore_windup
@pytest.mark.parametrize("gap", [5.0, 15.0, 30.0, 100.0, 200.0])
@pytest.mark.parametrize("ridge", [1e-6, 0.0])
def test_std_after_gap_without_intercept_equals_exact_value(ridge: float, gap: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(42, 3))
    y, s = X @ [1.0, 2.0, 3.0] + rng.normal(size=42), np.append(np.ones(40), (100.0, 100.0))
    t = np.append(np.zeros(40), (gap, gap))
    model = op.RLSRegressor(ridge, Exponential(half_life=1.0), fit_intercept=False)
    std = model.fit(X, y, s, time=t).predict(X[:5], return_std=True)[1]
    fade = 2.0**-gap
    with mpmath.workdps(200):
        A, b = mpmath.matrix(X), mpmath.matrix(y)
        prior = mpmath.diag([ridge] * 3)
        if gap > 8.0:  # the past becomes a prior
            fade = max(fade, RETAINED * 100.0 / 40.0)
            prior += mpmath.diag((RETAINED * (ridge + (X[:40] ** 2).sum(axis=0))).tolist())
        Q = mpmath.diag(np.append(np.full(40, fade), s[40:]))
        P = (A.T * Q * A + fade * prior) ** -1
        mass = 40 * fade + 200.0
        variance = (b.T * Q * (b - A * P * A.T * Q * b))[0] / (mass - 3)
        rows = (A[i, :] for i in range(5))
        exact = [float(mpmath.sqrt(variance * (1 + (x * P * x.T)[0]))) for x in rows]
    np.testing.assert_allclose(std, exact, rtol=1e-6)


@pytest.mark.parametrize("half_life", [0.5, 0.25])
@pytest.mark.parametrize("rule", [Exponential, Bounded])
def test_predictions_after_long_gap_stay_near_range_of_targets(rule: Any, half_life: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(72, 4))
    X[60:64] = X[60]
    t = np.concatenate((np.arange(60) / 10, 70.0 + np.arange(12) / 10))
    y = X @ [1.0, -2.0, 3.0, 0.5] + 5.0 + 0.1 * rng.normal(size=72)
    model = op.RLSRegressor(forgetting=rule(half_life=half_life))
    assert np.abs(model.test_then_train(X, y, time=t)[60:]).max() < 2.0 * np.abs(y).max()


def collinear_rows(seed: int) -> tuple[Floats, Floats]:
    """Rows of which those in the middle have one direction."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(5010, 3))
    X[5:5005] = np.outer(rng.normal(size=5000), X[5])
    return X, X @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=5010)


@pytest.mark.parametrize("rule", [Exponential(0.98, ridge="held"), Bounded(0.98)])
def test_collinear_rows_do_not_cause_windup(rule: Any) -> None:
    for seed in range(5):
        X, y = collinear_rows(seed)
        model = op.RLSRegressor(forgetting=rule, fit_intercept=False)
        assert np.abs(model.test_then_train(X, y)[5005:]).max() < 10.0 * np.abs(y).max()


@pytest.mark.parametrize("singly", [True, False])
def test_windup_of_plain_forgetting_is_reported_once(*, singly: bool) -> None:
    X, y = collinear_rows(0)
    model = op.RLSRegressor(forgetting=Exponential(0.98), fit_intercept=False)
    model.partial_fit(X[:50], y[:50])

    def learn() -> None:
        for i in range(0, 20_000 if singly else 4950, 1 if singly else 99):
            at = 50 + i % 4950
            if singly:  # information is checked now and then
                model.learn_one(X[at], y[at])
            else:
                model.partial_fit(X[at : at + 99], y[at : at + 99])
        model.partial_fit(X[50:5005], y[50:5005])

    with pytest.warns(WindupWarning, match="ridge='held'") as caught:
        learn()
    assert len(caught) == 1


def test_floor_holds_below_full_rank() -> None:
    X = np.array([[-2.0, 1.0], [0.0, -1.0], [-1.0, -1.0], [-1.0, -1.0], [-2.0, 2.0]])
    y, t = np.array([2.0, -1.0, -2.0, 0.0, -3.0]), np.array([0.0, 50.0, 50.0, 50.0, 51.0])
    block = op.RLSRegressor(0, Bounded(half_life=0.7)).test_then_train(X, y, time=t)
    assert np.abs(block).max() < 2.0 * np.abs(y).max()
    one = predict_then_learn_rows(op.RLSRegressor(0, Bounded(half_life=0.7)), X, y, t)
    np.testing.assert_allclose(one, block, atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-12, 1e-6, 1e-3])
def test_constant_feature_in_window_has_no_effect(ridge: float) -> None:
    X, y = np.array([[8e6], [2e6], [1e6], [1e6]]), np.array([2.0, 4.0, 2.0, 0.0])
    model = op.RLSRegressor(ridge, Window(2)).fit(X, y)
    assert model.predict([[2e6]])[0] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("level", [1e6, 1.7e18])
def test_directional_forgetting_ignores_a_constant_feature(level: float) -> None:
    rng = np.random.default_rng(2)
    X = np.column_stack((np.full(2000, level), rng.normal(size=2000)))
    y = 2.0 * X[:, 1] + 0.1 * rng.normal(size=2000)
    model = op.RLSRegressor(forgetting=Directional(0.95, scaled=False))
    errors = model.test_then_train(X, y) - y
    assert np.abs(errors[100:]).max() < 1.0


@pytest.mark.parametrize("rule", [1.0, Exponential(0.99), Directional(0.99), Window(50)])
@pytest.mark.parametrize("weight", [1e-32, 1e-20, 1e-7, 1e3])
def test_scale_of_weights_does_not_matter_without_ridge(rule: Any, weight: float) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, 2.0, 3.0] + 4.0 + 0.1 * rng.normal(size=300)
    plain = op.RLSRegressor(0, rule).fit(X, y)
    model = op.RLSRegressor(0, rule).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, rtol=1e-9)


def test_huge_column_retains_precision_of_other_columns() -> None:
    rng = np.random.default_rng(0)
    days = np.arange(400.0)
    x = 0.01 * rng.normal(size=400)
    X = np.column_stack((1.7e18 + days * 8.64e13, x))
    y = 200.0 * x + 0.04 * days + 0.1 * rng.normal(size=400)
    A = np.column_stack((days, x, np.ones(400)))
    fitted = np.linalg.lstsq(A, y, rcond=None)[0]
    for ridge in (0.0, 1e-30):
        model = op.RLSRegressor(ridge).fit(X, y)
        assert model.coef_[1] == pytest.approx(fitted[1], rel=1e-9)
        np.testing.assert_allclose(model.predict(X), A @ fitted, atol=1e-9)
    model = op.RLSRegressor(0.0).learn_one({"out": 1.0, "other": 1e19}, 1.0)
    for k in range(40):
        model.learn_one({"out": float(k % 3), "other": 0.0}, float(k % 3))
    assert model.predict_one({"out": 2.0, "other": 0.0}) == pytest.approx(2.0, abs=1e-9)


def test_large_offset_of_features_retains_precision() -> None:
    rng = np.random.default_rng(4)
    X = rng.integers(-8, 9, size=(200, 2)) / 8.0
    y = X @ [1.0, -2.0] + rng.normal(size=200)
    near = op.RLSRegressor(0.0).fit(X, y).predict(X)
    far = op.RLSRegressor(0.0).fit(X + 2.0**40, y).predict(X + 2.0**40)
    np.testing.assert_allclose(far, near, atol=1e-9)


def test_subnormal_column_does_not_prevent_learning() -> None:
    X = np.random.default_rng(0).normal(size=(10, 2)) * [1e-310, 1.0]
    assert op.RLSRegressor(0.0).fit(X, X[:, 1]).coef_[1] == pytest.approx(1.0)


def test_repeated_rows_without_ridge_give_group_means() -> None:
    rng = np.random.default_rng(5)
    X = np.tile(rng.normal(size=(3, 5)), (400, 1))
    y = rng.normal(size=1200)
    model = op.RLSRegressor(0.0).fit(X, y)
    fitted = y.reshape(400, 3).mean(axis=0)
    np.testing.assert_allclose(model.predict(X[:3]), fitted, atol=1e-12)


@ignore_windup
@pytest.mark.parametrize("gap", [10.0, 20.0, 60.0, 120.0])
def test_unexcited_column_after_gap_is_fitted_by_earlier_rows(gap: float) -> None:
    X, y = np.array([[2.0, 1.0], [-1.0, -1.5], [1.0, 0.0]]), np.array([0.0, 2.5, 0.6])
    model = op.RLSRegressor(0.0, Exponential(half_life=1.0), fit_intercept=False)
    model.fit(X, y, time=[0.0, 0.5, gap])
    q = 2.0**-0.5  # the weight of the first row relative to the second
    fade = max(2.0 ** (0.5 - gap), RETAINED / (q + 1.0))
    A = np.sqrt([q * fade, fade, 1.0])[:, None] * np.column_stack((X, y))
    coef = np.linalg.lstsq(A[:, :2], A[:, 2])[0]
    np.testing.assert_allclose(model.coef_, coef, atol=10.0 * RETAINED)  # the past becomes a prior


@pytest.mark.parametrize("rule", [1.0, Exponential(0.9), Window(20), Directional(0.9)])
@pytest.mark.parametrize("intercept", [True, False])
def test_standard_deviations_are_huge_outside_the_span_of_the_rows(
    rule: Any, *, intercept: bool
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1)) * np.ones(3)
    y = X[:, 0] + rng.normal(size=20)
    model = op.RLSRegressor(0.0, rule, fit_intercept=intercept).fit(X, y)
    inside, outside = (model.predict(rows, return_std=True)[1] for rows in (X, X * [1.0, 2.0, 3.0]))
    assert inside[-5:].max() < 3.0
    assert outside.min() > 1e4
