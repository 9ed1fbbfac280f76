"""Least squares with rows whose squares are near the limit of float64."""

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import NumericalError
from onepass.forgetting import Bounded, Directional, Exponential, Window
from sampling import sample

X = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [3.0, -1.0]])
Y = np.array([1.0, 0.0, 1.0, 0.0])
RULES = [1.0, 0.9, Exponential(0.9), Bounded(0.95), Window(5), Directional(0.9), "auto"]
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
LEARNERS = [op.RLSRegressor, op.RLSClassifier]


def assert_learns_ordinary_rows(model: Any) -> None:
    """Assert that ordinary rows are learned, in blocks and singly, and predicted finitely."""
    for _ in range(2):
        model.partial_fit(X, Y)
        for x, y in zip(X, Y, strict=True):
            model.learn_one(x, y)
    predictions = model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)
    assert np.isfinite(predictions).all()


@pytest.mark.parametrize(
    ("make", "rule", "kind", "ridge", "begun"),
    sample(list(product(LEARNERS, RULES, ROWS, [1e-6, 0.0], [True, False])), 48, "huge blocks"),
)
def test_learner_accepts_rows_after_huge_blocks(
    make: Any, rule: Any, kind: str, ridge: float, *, begun: bool
) -> None:
    for size in [1e100, 1e150, *SIZES]:
        model = make(ridge, rule)
        if begun:
            model.partial_fit(X, Y)
        before = pickle.dumps(model)
        huge, y, weights = ROWS[kind](size)
        try:
            model.partial_fit(huge, y, sample_weight=weights)
        except NumericalError:
            assert size > 1e150 or weights is not None
            assert pickle.dumps(model) == before
        else:
            assert size <= 1e150 or weights is not None
        assert_learns_ordinary_rows(model)


@pytest.mark.parametrize(
    ("make", "rule", "size", "rows"),
    sample(list(product(LEARNERS, RULES, SIZES, [0, 200])), 24, "huge rows"),
)
def test_learner_accepts_rows_after_huge_single_rows(
    make: Any, rule: Any, size: float, rows: int
) -> None:
    """Also with a compiled state."""
    model = make(1e-6, rule)
    for i in range(rows):
        model.learn_one(X[i % 4], Y[i % 4])
    for x in (np.full(2, size), np.array([1.0, -size])):
        with pytest.raises(NumericalError, match=r"got values up to 1[.\d]*e\+\d+\. Use"):
            model.learn_one(x, 1.0)
    assert_learns_ordinary_rows(model)


@every_rule
@pytest.mark.parametrize("size", SIZES)
def test_huge_targets_are_refused(rule: Any, size: float) -> None:
    """The first target sets the mean; its square is computed with the next row."""
    model = op.RLSRegressor(1e-6, rule)
    for _ in range(2):
        with pytest.raises(NumericalError, match="must stay within float64"):
            model.partial_fit([[1.0, 1.0]], [size])
        with pytest.raises(NumericalError, match="must stay within float64"):
            model.learn_one([1.0, 1.0], -size)
        assert_learns_ordinary_rows(model)


@every_rule
def test_rows_of_size_1e150_are_learned_exactly(rule: Any) -> None:
    rng = np.random.default_rng(0)
    rows, w = rng.uniform(-1.0, 1.0, size=(60, 3)), np.array([1.0, -2.0, 0.5])
    small = op.RLSRegressor(0.0, rule).fit(rows, rows @ w)
    large = op.RLSRegressor(0.0, rule).fit(rows * 1e150, rows @ w * 1e149)
    np.testing.assert_allclose(large.coef_ * 10.0, small.coef_, rtol=1e-9)
