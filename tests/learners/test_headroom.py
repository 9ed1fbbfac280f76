"""Least squares refuse a row that could be learned itself, if no row could be learned after it."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import NumericalError
from onepass.memory.forgetting import Bounded, Directional, Exponential, Window

X = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [3.0, -1.0]])
Y = np.array([1.0, 0.0, 1.0, 0.0])
RULES = [1.0, 0.9, Exponential(0.9), Bounded(0.95), Window(5), Directional(0.9)]
SIZES = [1.3e154, 1e200, 1e307, 1.7e308]
ROWS: dict[str, Callable[[float], Any]] = {
    "alike": lambda v: ([[v, v]], [1.0], None),
    "apart": lambda v: ([[v, -v]], [1.0], None),
    "one of two": lambda v: ([[1.0, -v]], [1.0], None),
    "some": lambda v: ([[1.0, 1.0], [v, 2.0], [-v, 1.0]], [1.0, 0.0, 1.0], None),
    "weight": lambda v: ([[1.0, 1.0]], [1.0], [v]),
    "weighed": lambda v: ([[1.0, 1.0], [1.0, v**0.9]], [1.0, 0.0], [1e40, v**0.3]),
}
every_rule = pytest.mark.parametrize("rule", RULES, ids=str)
every_learner = pytest.mark.parametrize("make", [op.RLSRegressor, op.RLSClassifier])


def goes_on(model: Any) -> None:
    """Whether ordinary rows are learned, in blocks and by themselves, and answered."""
    for _ in range(2):
        model.partial_fit(X, Y)
        for x, y in zip(X, Y, strict=True):
            model.learn_one(x, y)
    predictions = model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)
    assert np.isfinite(predictions).all()


@every_rule
@every_learner
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("ridge", [1e-6, 0.0])
@pytest.mark.parametrize("begun", [True, False])
def test_no_row_that_is_learned_keeps_others_out(
    make: Any, rule: Any, kind: str, ridge: float, *, begun: bool
) -> None:
    for size in [1e100, 1e150, *SIZES]:
        model = make(ridge, rule)
        if begun:
            model.partial_fit(X, Y)
        before = pickle.dumps(vars(model))
        huge, y, weights = ROWS[kind](size)
        try:
            model.partial_fit(huge, y, sample_weight=weights)
        except NumericalError:
            assert size > 1e150 or weights is not None
            assert pickle.dumps(vars(model)) == before
        else:
            assert size <= 1e150 or weights is not None
        goes_on(model)


@every_rule
@every_learner
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [0, 200])
def test_single_rows(make: Any, rule: Any, size: float, rows: int) -> None:
    """Also where the compiled loop holds what was learned."""
    model = make(1e-6, rule)
    for i in range(rows):
        model.learn_one(X[i % 4], Y[i % 4])
    for x in (np.full(2, size), np.array([1.0, -size])):
        with pytest.raises(NumericalError, match=r"got values up to 1[.\d]*e\+\d+\. Use"):
            model.learn_one(x, 1.0)
    goes_on(model)


@every_rule
@pytest.mark.parametrize("size", SIZES)
def test_answers(rule: Any, size: float) -> None:
    """The first only sets the mean: its square is taken with the next."""
    model = op.RLSRegressor(1e-6, rule)
    for _ in range(2):
        with pytest.raises(NumericalError, match="must stay within float64"):
            model.partial_fit([[1.0, 1.0]], [size])
        with pytest.raises(NumericalError, match="must stay within float64"):
            model.learn_one([1.0, 1.0], -size)
        goes_on(model)


@every_rule
def test_large_rows_are_learned(rule: Any) -> None:
    rng = np.random.default_rng(0)
    rows, w = rng.uniform(-1.0, 1.0, size=(60, 3)), np.array([1.0, -2.0, 0.5])
    small = op.RLSRegressor(0.0, rule).fit(rows, rows @ w)
    large = op.RLSRegressor(0.0, rule).fit(rows * 1e150, rows @ w * 1e149)
    np.testing.assert_allclose(large.coef_ * 10.0, small.coef_, rtol=1e-9)
