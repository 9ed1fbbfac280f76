"""Conformal: coverage, form of intervals and sets, and equality of all ways to learn."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_equal
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils import get_tags

import onepass as op
from onepass.errors import NotFittedError, ParameterError, TypeMismatchError
from raising import raises


def stream(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows of a linear function that changes abruptly, with noise that doubles."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, 3)), rng.normal(size=(2, 3))
    half = np.arange(n) * 2 // n
    return X, np.einsum("ij,ij->i", X, w[half]) + (1.0 + half) * rng.normal(size=n)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("model", [op.RLSRegressor(), op.RLSRegressor(forgetting=0.99)])
def test_coverage_is_nominal_under_drift(model: Any, alpha: float) -> None:
    X, y = stream(8000)
    conformal = op.Conformal(model, alpha).partial_fit(X, y)
    assert conformal.coverage_ == pytest.approx(1.0 - alpha, abs=0.01)
    fresh, truth = stream(8000)
    low, high = conformal.predict_interval(fresh[4000:]).T
    inside = ((low <= truth[4000:]) & (truth[4000:] <= high)).mean()
    assert inside == pytest.approx(1.0 - alpha, abs=0.15)  # q fluctuates


@settings(max_examples=30, deadline=None)
@given(
    scores=st.lists(st.floats(0.01, 100.0), min_size=400, max_size=400),
    alpha=st.sampled_from([0.05, 0.2]),
)
def test_coverage_is_bounded_for_every_sequence(scores: list[float], alpha: float) -> None:
    """Equation (2), with log q between the logarithms of the scores and one step beyond."""
    conformal = op.Conformal(op.RLSRegressor(), alpha, step_size=0.5)
    conformal._model()
    conformal._update(np.array(scores)[:, None])
    bound = (np.log(100.0 / 0.01) + 2 * 0.5) / 0.5 + 1 / alpha
    assert abs(400 * (1.0 - conformal.coverage_ - alpha)) <= bound


def test_sets_of_labels() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 3)) + 1.5 * np.eye(3)[y]
    names = np.array(["a", "b", "c"])[y]
    model = op.Conformal(op.StreamingLDA(), alpha=0.1)
    predictions = model.test_then_train(X, names)
    assert model.coverage_ == pytest.approx(0.9, abs=0.01)
    sets = model.predict_set(X)
    assert sets.shape == (3000, 3)
    assert sets.dtype == bool
    assert sets[np.arange(3000), y].mean() == pytest.approx(0.9, abs=0.06)
    assert 1.0 < sets.sum(axis=1).mean() < 2.0
    assert (model.predict(X) == op.StreamingLDA().partial_fit(X, names).predict(X)).all()
    assert (predictions[1:] == op.StreamingLDA().test_then_train(X, names)[1:]).all()
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("model", [op.RLSRegressor(), op.RLSClassifier()])
def test_blocks_and_single_rows_are_equal(model: Any) -> None:
    X, y = stream(300)
    y = y if is_regressor(model) else (y > 0).astype(int)
    one, two, three = (op.Conformal(model) for _ in range(3))
    for x, target in zip(X, y.tolist(), strict=True):
        one.learn_one(x, target)
    two.partial_fit(X, y)
    for part in np.array_split(np.arange(300), [3, 50, 51]):
        three.test_then_train(X[part], y[part])
    for other in (one, three):
        assert_allclose(other.quantiles_, two.quantiles_, rtol=1e-6)
        assert other.coverage_ == two.coverage_
        assert other.rows_seen_ == 300


def test_single_rows_have_the_intervals_and_sets_of_blocks() -> None:
    X, y = stream(200)
    model = op.Conformal(op.RLSRegressor())
    assert np.isinf(model.predict_interval_one(X[0])).all()
    model.partial_fit(X, np.column_stack([y, -y]))
    assert_allclose(model.predict_interval_one(X[3]), model.predict_interval(X[3:4])[0])
    model.fit(X, y)
    assert_allclose(model.predict_interval_one(X[3]), model.predict_interval(X[3:4])[0])
    sets = op.Conformal(op.RLSClassifier())
    assert sets.predict_set_one(X[0]) == set()
    sets.partial_fit(X, np.where(y > 0, "up", "down"), classes=["down", "level", "up"])
    found = np.array([[k in sets.predict_set_one(x) for k in sets.classes_] for x in X])
    assert (found == sets.predict_set(X)).all()
    with raises(ParameterError, where="Conformal.partial_fit", argument="classes"):
        model.partial_fit(X, y, classes=[1, 2])


@pytest.mark.parametrize("kind", [op.RLSRegressor, op.RLSClassifier])
def test_merged_models_and_coverage_are_those_of_all_rows(kind: Any) -> None:
    X, y = stream(4000)
    y = y if kind is op.RLSRegressor else (y > 0).astype(int)
    one = op.Conformal(kind()).partial_fit(X[:3000], y[:3000])
    two, new = op.Conformal(kind()).partial_fit(X[3000:], y[3000:]), op.Conformal(kind())
    inside = 2999 * one.coverage_ + 999 * two.coverage_  # the first row has no score
    limits = sorted([one.quantiles_[0], two.quantiles_[0]])
    merged = new.merge(one).merge(two)
    assert merged.coverage_ == pytest.approx(inside / 3998)
    assert limits[0] < merged.quantiles_[0] < limits[1]
    assert_allclose(merged.predict(X), kind().partial_fit(X, y).predict(X), rtol=1e-6)
    assert merged.merge(op.Conformal(kind())).rows_seen_ == 4000
    with raises(
        op.errors.MergeError, where="Conformal.merge", got="one that stores only its weights"
    ):
        op.Conformal(op.SGDRegressor()).merge(op.Conformal(op.SGDRegressor()))
    with raises(op.errors.MergeError, argument="alpha"):
        merged.merge(op.Conformal(kind(), alpha=0.3))


def test_prequential_probabilities_are_those_of_the_model() -> None:
    X, y = stream(200)
    model = op.Pipeline(op.features.Scale(), op.RLSClassifier())
    found = op.Conformal(model).test_then_train(X, y > 0, return_proba=True)
    expected = clone(model).test_then_train(X, y > 0, return_proba=True)
    for one, two in zip(found, expected, strict=True):
        assert_equal(one, two)
    fitted = op.Conformal(model).partial_fit(X, y > 0)
    assert fitted.test_then_train(X[:0], y[:0] > 0, return_proba=True)[1].shape == (0, 2)
    with raises(ParameterError, argument="return_proba"):
        op.Conformal(op.RLSRegressor()).test_then_train(X, y, return_proba=True)
    with raises(op.errors.ShapeError, where="Conformal.fit", argument="X"):
        fitted.fit(X[:0], y[:0])
    assert fitted.rows_seen_ == 200


@pytest.mark.parametrize("kind", [op.RLSRegressor, op.RLSClassifier])
def test_rows_may_be_dicts(kind: Any) -> None:
    X, y = stream(40)
    y = y if kind is op.RLSRegressor else y > 0
    model, expected = op.Conformal(kind()), op.Conformal(kind()).partial_fit(X, y)
    for x, target in zip(X.tolist(), y, strict=True):
        model.learn_one(dict(zip("abc", x, strict=True)), target)
    assert_allclose(model.quantiles_, expected.quantiles_)
    assert_allclose(
        model.predict_one(dict(zip("abc", X[0], strict=True))), expected.predict_one(X[0])
    )


def test_several_outputs() -> None:
    X, y = stream(2000)
    Y = np.column_stack([y, 10.0 * y])
    model = op.Conformal(op.RLSRegressor()).partial_fit(X, Y)
    intervals = model.predict_interval(X)
    assert intervals.shape == (2000, 2, 2)
    assert_allclose(intervals.mean(axis=2), model.predict(X))
    assert_allclose(model.coverage_, [0.9, 0.9], atol=0.01)
    assert_allclose(model.quantiles_[1], 10.0 * model.quantiles_[0], rtol=1e-6)


@pytest.mark.parametrize("model", [op.RLSRegressor(), op.SGDClassifier()])
def test_copies_and_files(model: Any, tmp_path: Path) -> None:
    X, y = stream(200)
    y = y if is_regressor(model) else (y > 0).astype(int)
    made = op.Conformal(op.Pipeline(op.features.Scale(), model), alpha=0.2)
    assert clone(made).get_params()["alpha"] == 0.2
    learner = clone(made).partial_fit(X[:100], y[:100])
    op.save(learner, tmp_path / "m.onepass")
    frozen = learner.frozen_copy()
    before = frozen.predict(X)
    twins = [
        op.load(tmp_path / "m.onepass"),
        copy.copy(learner),
        copy.deepcopy(learner),
        pickle.loads(pickle.dumps(learner)),  # noqa: S301
    ]
    learner.partial_fit(X[100:], y[100:])
    for twin in twins:
        twin.partial_fit(X[100:], y[100:])
        assert_allclose(twin.quantiles_, learner.quantiles_, rtol=1e-9)
        assert twin.coverage_ == learner.coverage_
    assert (frozen.predict(X) == before).all()
    assert learner.nbytes > 0
    again = learner.fit(X[:100], y[:100])
    assert again.rows_seen_ == 100
    assert_allclose(again.quantiles_, clone(made).partial_fit(X[:100], y[:100]).quantiles_)


def test_weights_frames_and_times() -> None:
    X, y = stream(300)
    on = np.arange(300) % 3 > 0
    one = op.Conformal(op.RLSRegressor()).partial_fit(X, y, sample_weight=on.astype(float))
    two = op.Conformal(op.RLSRegressor()).partial_fit(X[on], y[on])
    assert_allclose(one.quantiles_, two.quantiles_, rtol=1e-6)
    assert one.rows_seen_ == 200
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = pd.Series(np.where(y > 0, "up", "down"))
    model = op.Conformal(op.RLSClassifier()).partial_fit(frame, labels)
    assert model.predict_set(frame).shape == (300, 2)
    timed = op.Conformal(op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life=50.0)))
    assert get_tags(timed).uses_time
    timed.partial_fit(X, y, time=np.arange(300.0))
    assert timed.coverage_ == pytest.approx(0.9, abs=0.05)


def test_messages() -> None:
    X, y = stream(20)
    assert is_regressor(op.Conformal(op.RLSRegressor()))
    assert is_classifier(op.Conformal(op.Pipeline(op.RLSClassifier())))
    assert not hasattr(op.Conformal(op.RLSRegressor()), "predict_set")
    assert not hasattr(op.Conformal(op.RLSClassifier()), "predict_interval")
    with raises(
        NotFittedError, where="Conformal.predict_interval", remedy="Call fit, partial_fit or"
    ):
        op.Conformal(op.RLSRegressor()).predict_interval(X)
    with raises(ParameterError, argument="alpha"):
        op.Conformal(op.RLSRegressor(), alpha=0.0).fit(X, y)
    with raises(TypeMismatchError, argument="model"):
        op.Conformal(op.features.Scale()).fit(X, y)
    few = op.Conformal(op.RLSRegressor(), alpha=0.01).partial_fit(X, y)
    assert np.isinf(few.predict_interval(X)).all()
    assert few.coverage_ == 1.0
    assert np.isnan(op.Conformal(op.RLSRegressor()).coverage_)


@pytest.mark.parametrize("kind", [op.RLSRegressor, op.RLSClassifier])
def test_refused_and_empty_blocks_change_nothing(kind: Any) -> None:
    X, y = stream(20)
    y = y if kind is op.RLSRegressor else (y > 0).astype(int)
    nan = np.where(np.arange(60).reshape(20, 3) == 10, np.nan, X)
    model = op.Conformal(kind()).partial_fit(X[:0], y[:0]).partial_fit(X, y)
    before = model.quantiles_.copy(), model.predict(X)
    keyed = op.Conformal(op.Keyed(kind(), by=0)).partial_fit(
        np.arange(60.0).reshape(20, 3) // 30, y
    )
    with raises(op.errors.OnepassError, where="Conformal.partial_fit", argument="X", row=3):
        keyed.partial_fit(nan.round(), y)
    assert keyed.rows_seen_ == 20
    with raises(op.errors.ShapeError, where="Conformal.predict", remedy="Start a new learner"):
        model.predict(X[:, :2])
    wrong: list[tuple[Any, type[op.errors.OnepassError], str]] = [
        ((nan, y), op.errors.NotFiniteError, "X"),
        ((X, y[:5]), op.errors.ShapeError, "y"),
        ((X, y, np.ones(5)), op.errors.ShapeError, "sample_weight"),
        ((X, y, np.full(20, np.nan)), op.errors.NotFiniteError, "sample_weight"),
        ((X, None), op.errors.TypeMismatchError, ""),
        ((X[0], y[:1]), op.errors.ShapeError, ""),
    ]
    for bad, error, argument in wrong:
        with raises(error, where="Conformal.partial_fit", argument=argument) as caught:
            model.partial_fit(*bad)
        assert error is not op.errors.NotFiniteError or caught.value.row in (3, 0)
    model.partial_fit(X[:0], y[:0])
    assert (model.quantiles_ == before[0]).all()
    assert (model.predict(X) == before[1]).all()
    assert model.rows_seen_ == 20
    with raises(ParameterError, argument="step_size"):
        op.Conformal(kind(), step_size=1000.0).fit(X, y)


def test_keys_are_inside() -> None:
    X = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 2.0], [1.0, -2.0]] * 5)
    model = op.Conformal(op.Keyed(op.RLSClassifier(), by=0)).partial_fit(X, X[:, 1] > 0)
    assert model.predict_set(X).shape == (20, 2)
    inside = model.classes_[model.predict_set(X[:1])[0]].tolist()
    assert model.predict_set_one(X[0]) == set(inside)


def test_widths_leave_zero() -> None:
    rng, n = np.random.default_rng(0), 9000
    X = rng.normal(size=(n, 2)) * (np.arange(n) % 3 == 2)[:, None]  # at rest in two of three rows
    X[:200] = 0.0
    y = X @ [1.0, 2.0] + 0.3 * rng.normal(size=n) * (X[:, 0] != 0)
    model = op.Conformal(op.RLSRegressor(fit_intercept=False)).partial_fit(X, y)
    assert abs(model.coverage_ - 0.9) < 0.02
    assert np.isnan(op.Conformal(op.RLSRegressor()).partial_fit(X[:1], y[:1]).coverage_)
