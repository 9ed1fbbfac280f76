"""Baselines: predictions as their names state, for rows of any type."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier, is_regressor

from onepass.errors import NotFittedError, ShapeError
from onepass.evaluate import LastLabel, LastValue, Majority, RunningMean
from onepass.validation.table import Table

REGRESSORS = [LastValue, RunningMean]
CLASSIFIERS = [LastLabel, Majority]
MIXED = [{"a": "text", "b": None}, {"a": None, "b": float("nan")}, {"a": "x", "b": 3.0}]


def _hand_made(kind: type, y: Any, weights: list[float]) -> list[Any]:
    """Predictions of a plain loop over rows."""
    predictions, seen = [], []
    for answer, weight in zip(y, weights, strict=True):
        if not seen:
            predictions.append(0.0 if kind in REGRESSORS else None)
        elif kind in {LastValue, LastLabel}:
            predictions.append(seen[-1][0])
        elif kind is RunningMean:
            predictions.append(sum(a * w for a, w in seen) / sum(w for _, w in seen))
        else:
            count = {}
            for label, w in seen:
                count[label] = count.get(label, 0.0) + w
            predictions.append(max(sorted(count), key=lambda label: (count[label], label)))
        if weight > 0:
            seen.append((answer, weight))
    return predictions


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), weighted=st.booleans())
def test_baselines_equal_a_plain_loop_for_any_blocks(
    kind: type, seed: int, n: int, *, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, size=n)
    y = y / 4 if kind in REGRESSORS else np.array(list("abcde"))[y]
    weights = rng.integers(0, 3, size=n) / 2 if weighted else np.ones(n)
    X = np.array([[None, "text"]] * n, dtype=object)
    cuts = np.sort(rng.integers(0, n + 1, size=3))
    model = kind()
    predictions = []
    for rows in np.split(np.arange(n), cuts):
        s = weights[rows] if weighted else None
        if len(rows):
            predictions += model.test_then_train(X[rows], y[rows], s).tolist()
    hand = _hand_made(kind, y.tolist(), weights.tolist())
    if kind in REGRESSORS:
        np.testing.assert_allclose(predictions, hand, rtol=1e-13, atol=1e-13)
    else:
        assert predictions == hand


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
def test_rows_may_contain_text_and_missing_values(kind: type) -> None:
    y = [1, 2, 2]
    model = kind().partial_fit(Table.from_rows(MIXED), y)
    assert model.predict(Table.from_rows(MIXED[:2])).shape == (2,)
    assert model.predict(MIXED).shape == (3,)
    model.learn_one(MIXED[0], 2)
    assert model.predict_one(MIXED[1]) == pytest.approx(2, abs=0.3)
    assert model.rows_seen_ == 4


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
def test_predictions_before_fitting(kind: type) -> None:
    assert kind().predict_one([1.0]) == (0.0 if kind in REGRESSORS else None)
    with pytest.raises(NotFittedError):
        kind().predict([[1.0]])


@pytest.mark.parametrize("kind", REGRESSORS)
def test_baselines_with_several_outputs(kind: type) -> None:
    Y = np.array([[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]])
    both = kind().test_then_train(MIXED, Y)
    for k in range(2):
        np.testing.assert_array_equal(both[:, k], kind().test_then_train(MIXED, Y[:, k]))


def test_running_mean_is_accurate_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    small = rng.normal(size=5000)
    model = RunningMean()
    for rows in np.array_split(np.arange(5000), 300):
        model.partial_fit(small[rows, None], 1e8 + small[rows])
    mean = np.mean((1e8 + small) - 1e8)
    assert float(model.mean_[0]) - 1e8 == pytest.approx(mean, abs=1e-7)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classes_given_before_learning(kind: type) -> None:
    model = kind(classes=["a", "b"])
    assert model.test_then_train(MIXED, ["a", "a", "c"]).tolist() == ["b", "a", "a"]
    assert model.classes_.tolist() == ["a", "b", "c"]
    named = kind().partial_fit(MIXED[:0], [], classes=["a", "b"])
    assert named.classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("kind", REGRESSORS + CLASSIFIERS)
def test_refused_input_leaves_the_baseline_unchanged(kind: type) -> None:
    model = kind().partial_fit(MIXED, [1, 2, 3])
    before = {name: np.copy(value) for name, value in vars(model).items()}
    with pytest.raises(ShapeError):
        model.partial_fit(MIXED, [1, 2])
    for name, value in vars(model).items():
        np.testing.assert_array_equal(value, before[name])


def test_baselines_are_scikit_learn_estimators() -> None:
    assert all(is_regressor(kind()) for kind in REGRESSORS)
    assert all(is_classifier(kind()) for kind in CLASSIFIERS)
    assert clone(Majority(classes=[1, 2])).classes == [1, 2]
    assert LastValue().partial_fit(MIXED, [1.0, 2.0, 3.0]).grow(5).predict_one(MIXED[0]) == 3.0
