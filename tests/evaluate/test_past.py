"""A random sample of past rows."""

import numpy as np
import pytest

import onepass as op
from onepass.evaluate.past import PastRows


def test_errors_are_those_of_a_uniform_sample() -> None:
    X, y = np.arange(5000.0)[:, None], np.arange(5000.0)
    past = PastRows(400, seed=1)
    for rows in np.split(np.arange(5000), [3, 700, 701, 3000]):
        past.add(X[rows], y[rows], {"m": y[rows] + 2.0})
    model = op.RLSRegressor().partial_fit(X, 2.0 * y)
    errors = past.errors("m", model)
    assert (errors.rows, errors.before, errors.numbers) == (400, pytest.approx(2.0), True)
    assert errors.now == pytest.approx(2500.0, rel=0.1)  # |2 y − y|, the mean of y
    assert errors.forgotten


@pytest.mark.parametrize(("forgetting", "forgotten"), [(1.0, False), ("auto", True)])
def test_a_model_that_forgets_sorted_classes_is_noticed(
    *, forgetting: float | str, forgotten: bool
) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c", "d"], 300)
    X = rng.normal(size=(1200, 6)) + np.repeat(2.0 * np.eye(6)[:4], 300, axis=0)
    model = op.RLSClassifier(forgetting=forgetting, prior=1.0)
    past = PastRows(200)
    past.add(X, labels, {"rls": model.test_then_train(X, labels)})
    errors = past.errors("rls", model)
    assert errors.before < 0.3
    assert errors.forgotten == forgotten


@pytest.mark.parametrize("forgetting", [1.0, 0.97, "auto"])
def test_the_sample_measures_what_is_left_of_sorted_classes(
    forgetting: float | str, rng: np.random.Generator
) -> None:
    c, d, each = int(rng.integers(3, 7)), int(rng.integers(8, 21)), int(rng.integers(200, 400))
    y = np.repeat(np.arange(c), each)
    X = rng.normal(size=(c * each, d)) + 4.0 * np.eye(c, d)[y] + rng.choice([0.0, 100.0])
    model, past = op.RLSClassifier(forgetting=forgetting, prior=1.0), PastRows(500, seed=1)
    for part in np.array_split(np.arange(len(y)), np.sort(rng.integers(1, len(y), 4))):
        past.add(X[part], y[part], {"rls": model.test_then_train(X[part], y[part])})
    errors = past.errors("rls", model)
    assert errors.now == pytest.approx(1.0 - model.score(X, y), abs=0.07)  # of all rows
    assert errors.forgotten == (forgetting != 1.0)
