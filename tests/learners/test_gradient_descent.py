"""Gradient descent and perceptron for any dtype and memory layout of rows."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onepass as op
from onepass import native


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("shape", [(40, 1), (40, 7), (40, 8), (40, 9), (40, 61), (7, 70_000)])
@pytest.mark.parametrize("make", [op.SGDRegressor, op.SGDClassifier, op.Perceptron])
def test_dtype_and_memory_layout_of_rows_do_not_matter(
    make: Any, shape: tuple[int, int], monkeypatch: Any, *, alone: bool
) -> None:
    """With the compiled loops and without, equal to plain rows of float64 to rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape).astype(np.float32)
    y = rng.integers(0, 2, size=len(X))
    want = make()
    predictions = want.test_then_train(X.astype(np.float64), y).tolist()
    if alone:
        monkeypatch.setattr(native, "loops", None)
    for rows in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X[::-1][::-1]):
        model = make()
        got = model.test_then_train(rows, y).tolist()
        if make is op.SGDRegressor:
            assert_allclose(got, predictions, rtol=1e-9, atol=1e-10)
        else:
            assert got == predictions
        assert_allclose(model.coef_, want.coef_, rtol=1e-9, atol=1e-10)


def test_float32_rows_in_parts_equal_float64_rows() -> None:
    """Parts continue from the weights and step counts of earlier parts."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5_000, 20)).astype(np.float32)
    y, s = rng.normal(size=5_000), rng.uniform(0.5, 2.0, size=5_000)
    settings = {"step": "decaying", "step_size": 0.05, "decay": 0.1, "l2": 0.01}
    parts, whole = op.SGDRegressor(**settings), op.SGDRegressor(**settings)
    got = parts.test_then_train(X, y, s)
    assert_allclose(got, whole.test_then_train(X.astype(float), y, s), rtol=1e-9, atol=1e-10)
    assert_allclose(parts.coef_, whole.coef_, rtol=1e-9)
    assert parts.steps_ == 5_000
