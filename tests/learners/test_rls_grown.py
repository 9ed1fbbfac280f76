"""Columns that appear while past rows fade: as if they had been zero from the first row."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass import native
from sampling import sample

RULES = {
    "none": 1.0,
    "bounded": 0.9,
    "exponential": op.forgetting.Exponential(0.9),
    "auto": "auto",
    "directional": "directional:0.9",
    "window": "window:20",
}


CHOICES = [(True, False), (1, 2, 30, 700), (0.0, 1e-6, 1.0), RULES, (True, False)]


@pytest.mark.parametrize(
    ("compiled", "at", "ridge", "rule", "intercept"),
    sample(list(product(*CHOICES)), 72, "columns that appear"),
)
def test_a_column_that_appears_equals_one_that_was_zero(
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    ridge: float,
    at: int,
    *,
    compiled: bool,
    intercept: bool,
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "loops", None)
    rng = np.random.default_rng(at)
    X = rng.normal(size=(at + 6, 4))
    X[:at, 3] = 0.0
    y = X @ [1.0, 2.0, 3.0, 4.0] + 0.1 * rng.normal(size=len(X))
    given: dict[str, Any] = {
        "ridge": ridge, "forgetting": RULES[rule], "fit_intercept": intercept
    }  # fmt: skip
    block, rows = op.RLSRegressor(**given), op.RLSRegressor(**given)
    block.partial_fit(X[: at + 1], y[: at + 1])
    for i in range(at):
        rows.partial_fit(X[i : i + 1, :3], y[i : i + 1])
    rows.grow(4)
    for i in range(at, len(X)):
        rows.partial_fit(X[i : i + 1], y[i : i + 1])
        if i > at:
            block.partial_fit(X[i : i + 1], y[i : i + 1])
        np.testing.assert_allclose(rows.predict(X), block.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ridge", [1e-6, 1.0])
def test_a_column_that_appears_equals_batch(ridge: float) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4))
    X[:30, 3] = 0.0
    y = X @ [1.0, 2.0, 3.0, 4.0] + 0.1 * rng.normal(size=40)
    rule = op.forgetting.Exponential(0.9)
    learner = op.RLSRegressor(ridge=ridge, forgetting=rule, fit_intercept=False)
    learner.partial_fit(X[:30, :3], y[:30])
    learner.grow(4)
    learner.partial_fit(X[30:31], y[30:31])
    root = np.sqrt(0.9 ** np.arange(31)[::-1])
    prior = np.sqrt(ridge * 0.9**31) * np.eye(4)  # the ridge fades as a row before the first
    A = np.vstack((prior, X[:31] * root[:, None]))
    w = np.linalg.lstsq(A, np.append(np.zeros(4), y[:31] * root), rcond=None)[0]
    block = op.RLSRegressor(ridge=ridge, forgetting=rule, fit_intercept=False)
    block.partial_fit(X[:31], y[:31])
    np.testing.assert_allclose(block.coef_, learner.coef_, rtol=1e-8)
    np.testing.assert_allclose(learner.coef_, w, rtol=1e-8)
