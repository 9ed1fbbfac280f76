"""Forecasts: rows after the last one learned, whose lags are targets or earlier predictions."""

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onepass as op
from onepass.features import Encode, Impute, Lag, Scale
from raising import raises


def series(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """An hourly load: a daily shape, working days, and noise of autocorrelation 0.9."""
    rng = np.random.default_rng(seed)
    at = pd.date_range("2024-01-01", periods=n, freq="h")
    noise = np.convolve(rng.normal(size=n + 30), 0.9 ** np.arange(31), "valid")
    level = 100 + 20 * np.sin(2 * np.pi * at.hour / 24) + 10 * (at.day_of_week < 5)
    return pd.DataFrame({"at": at}), np.asarray(level + noise)


def by_hand(
    learner: Any, X: np.ndarray, past: list[float], known: np.ndarray, lags: list[int], *,
    shift: bool,
) -> np.ndarray:  # fmt: skip
    """Forecasts of a learner of [X, lags], one row after the other."""
    past, found = past.copy(), []
    for x, y in zip(X, known, strict=True):
        level = past[-min(lags)] if shift else 0.0
        row = [*x, *(past[-lag] for lag in lags)]
        found.append(float(learner.predict_one(np.array(row))) + level)
        past.append(found[-1] if np.isnan(y) else float(y))
    return np.array(found)


@pytest.mark.parametrize("difference", [False, True])
@pytest.mark.parametrize("delay", [0, 3])
def test_forecasts_equal_the_recursion_by_hand(*, difference: bool, delay: int) -> None:
    rng = np.random.default_rng(int(os.environ["ONEPASS_TEST_SEED"]))
    X, y = rng.normal(size=(120, 2)), np.zeros(120)
    for i in range(1, 120):
        y[i] = 50.0 * (i == 1) + 0.9 * y[i - 1] + X[i, 0] + 0.1 * rng.normal()
    lags = sorted(set(rng.integers(max(delay, 1), 9, size=3).tolist()))
    learned, rest = slice(0, 100), slice(100, 120)
    lag = Lag("y", lags, delay, difference=difference)
    model = op.Pipeline(Encode(), lag, Impute(), op.RLSRegressor(1e-3)).partial_fit(
        X[learned], y[learned]
    )
    known = np.where(rng.random(20) < 0.4, y[rest], np.nan)
    lagged = [[y[i - r] if i >= r else y[0] for r in lags] for i in range(100)]
    level = np.array([y[i - lags[0]] if i >= lags[0] else y[i] for i in range(100)])
    reference = op.RLSRegressor(1e-3)
    order = [name for name in model.get_feature_names_out() if name.startswith("y lag")]
    at = [lags.index(int(name.split()[-1])) for name in order]
    rows = np.column_stack([X[learned], np.array(lagged)[:, at]])
    reference.partial_fit(rows, y[learned] - level if difference else y[learned])
    ordered = [lags[i] for i in at]
    for given in (known, np.full(20, np.nan)):
        expected = by_hand(
            reference, X[rest], y[learned].tolist(), given, ordered, shift=difference
        )
        assert_allclose(model.forecast(X[rest], given), expected, rtol=1e-6)
    mean, std = model.forecast(X[rest], return_std=True)
    assert_allclose(mean, model.forecast(X[rest]))
    assert std.shape == mean.shape
    before = model.predict_one(X[100]) if not delay else None
    assert before is None or before == pytest.approx(mean[0])
    blocks = [op.stream.read(X[a : a + 7], block=7) for a in range(100, 120, 7)]
    parts = op.evaluate.predictions(model, (rows for block in blocks for rows in block))
    assert_allclose(np.concatenate([part["prediction"] for part in parts]), mean)


def test_labels_are_fed_back() -> None:
    X, y = np.zeros((90, 1)), np.array(["a", "b", "c"] * 30)
    model = op.Pipeline(Lag(rows=[1]), op.RLSClassifier(1e-3)).partial_fit(X, y)
    assert model.forecast(np.zeros((4, 1))).tolist() == ["a", "b", "c", "a"]
    assert model.forecast(np.zeros((3, 1)), ["c", None, "b"]).tolist() == ["a", "a", "b"]


def test_predicting_several_rows_warns_that_they_have_the_lags_of_one() -> None:
    X, y = series(200)
    model = op.models.pipelines(["rls"], "regression", lags=(1, 24))["rls"].partial_fit(X, y)
    with pytest.warns(op.errors.ForecastWarning, match="forecast") as caught:
        model.predict(X[:3])
    assert caught[0].filename == __file__
    model.predict(X[:1])
    plain = op.models.pipelines(["rls"], "regression")["rls"].partial_fit(X, y)
    assert_array_equal(plain.forecast(X[:3]), plain.predict(X[:3]))


def test_a_wrong_number_of_targets_is_refused() -> None:
    X, y = series(50)
    model = op.models.pipelines(["rls"], "regression", lags=(1,))["rls"].partial_fit(X, y)
    with raises(op.errors.ShapeError, where="Pipeline.forecast", argument="y", got="1"):
        model.forecast(X[:3], [1.0])
    assert model.forecast(X[:0]).shape == (0,)


def test_widths_are_those_of_each_number_of_rows_ahead() -> None:
    X, y = series(5000)
    model = op.Conformal(
        op.Pipeline(Encode(), Lag("load", [1, 24]), Impute(), Scale(), op.RLSRegressor(prior=1.0)),
        horizon=24,
    )
    inside = np.zeros(24)
    for begin in range(0, 4900, 49):  # 100 forecasts
        rows = slice(begin, begin + 24)
        if begin >= 1500:
            low, high = model.forecast_interval(X[rows]).T
            inside += (low <= y[rows]) & (y[rows] <= high)
        model.partial_fit(X[begin : begin + 49], y[begin : begin + 49])
    shares = inside / np.ceil((4900 - 1500) / 49)
    assert abs(shares.mean() - 0.9) < 0.05
    assert model.quantiles_[0] < 0.8 * model.quantiles_[12:].mean()
    assert model.forecast_errors_[0] < 0.8 * model.forecast_errors_[12:].mean()
    assert abs(np.mean(model.coverage_) - 0.9) < 0.03
    single = op.Conformal(model.model, horizon=24)
    for i in range(300):
        single.learn_one(X.iloc[i].to_dict(), y[i])
    blocks = op.Conformal(model.model, horizon=24).partial_fit(X[:130], y[:130])
    blocks.partial_fit(X[130:300], y[130:300])
    assert_allclose(single.forecast_errors_, blocks.forecast_errors_, rtol=1e-6)
