"""Plants at set points, in engineering units: predictions stay bounded while undetermined."""

import os
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import onepass as op
from onepass.forgetting import Exponential, Window

RULES: list[Any] = [1.0, 0.99, Exponential(0.99), Window(200), "auto"]
UNITS = [(0.0, 1.0), (1500.0, 100.0), (101_325.0, 3000.0), (101_325.0, 101_325.0), (0.0, 1e6)]
HELD = 40
"""Rows at each set point."""


def plant(rng: np.random.Generator, level: float, step: float, d: int) -> tuple[Any, Any]:
    """Features at ten set points, and noisy targets."""
    X = np.repeat(level + step * rng.normal(size=(10, d)), HELD, axis=0)
    y = (X - level) @ rng.normal(size=d) / step + rng.normal(size=len(X))
    return X, y


def least_norm(X: Any, y: Any) -> Any:
    """Predictions by the least weights, in units of the columns, of the rows before each point."""
    found = []
    for n in range(2 * HELD, len(X), HELD):
        away = X[:n] - X[:n].mean(axis=0)
        lengths = np.sqrt((away**2).sum(axis=0))
        weights = np.linalg.pinv(away / lengths, rcond=1e-10) @ (y[:n] - y[:n].mean()) / lengths
        found.append((X[n] - X[:n].mean(axis=0)) @ weights + y[:n].mean())
    return np.array(found)


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("level", "step"), UNITS)
@pytest.mark.parametrize("ridge", [1e-12, 0.0])
def test_predictions_at_new_set_points_are_bounded(
    rule: Any, level: float, step: float, ridge: float
) -> None:
    rng = np.random.default_rng(int(os.environ["ONEPASS_TEST_SEED"]))
    for d in (2, 6, 9):
        X, y = plant(rng, level, step, d)
        model = op.RLSRegressor(ridge, rule)
        blocks = model.test_then_train(X, y)
        least = np.abs(least_norm(X, y)[: max(d - 2, 0)]).max(initial=np.abs(y).max())
        undetermined = slice(HELD, HELD * d)  # fewer set points than weights and the intercept
        assert np.abs(blocks[undetermined]).max() < 20.0 * least
        if rule == 1.0:
            batch = LinearRegression().fit(X, y)
            np.testing.assert_allclose(model.predict(X), batch.predict(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_predictions_after_an_idle_start_are_those_of_batch(scale: float) -> None:
    rng = np.random.default_rng(0)
    X = (3.0 + rng.normal(size=(90, 6))) * scale
    X[1:60] = 0.0
    y = X @ np.arange(1.0, 7.0) / scale + rng.normal(size=90)
    found = op.RLSRegressor().test_then_train(X, y)
    assert np.abs(found[60:]).max() < 5.0 * np.abs(y).max()
