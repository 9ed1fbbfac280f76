"""Adaptive steps of SGD: units, targets that features do not explain, and the NumPy loop."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import onepass as op
from onepass import native
from onepass.evaluate import Majority, RunningMean

few_examples = settings(max_examples=20, deadline=None, derandomize=True)
LOSSES = ["squared", "absolute", "huber", "epsilon-insensitive"]


def stream(n: int = 300, d: int = 4, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    return X, X @ rng.normal(size=d) + 0.3 * rng.normal(size=n)


@few_examples
@given(
    exponent=st.integers(-60, 60),
    scale=st.integers(-60, 60),
    shift=st.floats(-100.0, 100.0),
    loss=st.sampled_from(["squared", "absolute"]),
)
def test_predictions_have_the_units_of_the_targets(
    exponent: int, scale: int, shift: float, loss: str
) -> None:
    X, y = stream()
    a, b = 2.0**exponent, 2.0**scale
    first = op.SGDRegressor(loss, fit_intercept=False).test_then_train(X, y)
    second = op.SGDRegressor(loss, fit_intercept=False).test_then_train(X * a, y * b)
    assert_allclose(second, first * b, rtol=1e-9, atol=1e-9 * b)
    first = op.SGDRegressor(loss).test_then_train(X, y)[1:]
    second = op.SGDRegressor(loss).test_then_train(X, (y + shift) * b)[1:]
    assert_allclose(second, (first + shift) * b, rtol=1e-7, atol=1e-7 * b)


@pytest.mark.parametrize("d", [1, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_targets_without_features_are_predicted_as_well_as_by_their_mean(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(1000, d)), 1e6 + rng.normal(size=1000)
    labels = rng.random(1000) < 0.8
    errors = op.SGDRegressor().test_then_train(X, y) - y
    means = RunningMean().test_then_train(X, y) - y
    assert np.sqrt(np.mean(errors[1:] ** 2)) <= 1.02 * np.sqrt(np.mean(means[1:] ** 2))
    wrong = op.SGDClassifier(classes=[False, True]).test_then_train(X, labels) != labels
    trivial = Majority(classes=[False, True]).test_then_train(X, labels) != labels
    assert wrong.mean() <= 1.1 * trivial.mean()


def test_learning_continues_after_outliers() -> None:
    X, y = stream(3000)
    X[500] *= 1e8
    y[700] = 1e8
    predictions = op.SGDRegressor().test_then_train(X, y)
    assert np.abs(predictions - y)[-300:].mean() < 0.5 * np.abs(y - y.mean())[-300:].mean()


@pytest.mark.parametrize("loss", LOSSES)
def test_large_weights_and_a_large_first_row_change_errors_little(loss: str) -> None:
    X, y = stream(2000)
    one = np.arange(2000) == 0
    often = np.where(np.arange(2000) % 100 == 7, 1e6, 1.0)

    def error(X: Any = X, s: Any = None) -> float:
        predictions = op.SGDRegressor(loss).test_then_train(X, y, s)
        return float(np.abs(predictions - y)[-500:].mean())

    for s in (np.full(2000, 10.0), np.full(2000, 1e6), often):
        assert error(s=s) < 1.25 * error()
    for size in (1e3, 1e6, 1e12):
        assert error(np.where(one[:, None], size * X, X)) < 1.05 * error()


@pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, "hinge", "logistic", "perceptron"])
def test_numpy_loop_equals_compiled_loop(
    loss: str,
    weighted: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = stream()
    s = np.random.default_rng(1).uniform(0.1, 3.0, len(y)) if weighted else None
    targets = y if loss in LOSSES else np.digitize(y, [-1.0, 1.0])
    kind: Any = op.SGDRegressor if loss in LOSSES else op.SGDClassifier
    for params in ({}, {"fit_intercept": False, "l2": 0.1, "noise": 2.0, "step_size": 0.5}):
        first = kind(loss, **params).partial_fit(X, targets, sample_weight=s)
        with monkeypatch.context() as patch:
            patch.setattr(native, "loops", None)
            second = kind(loss, **params).partial_fit(X, targets, sample_weight=s)
        for name in ("weights_", "offset_", "statistics_"):
            assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [op.SGDRegressor, op.SGDClassifier])
def test_statistics_are_saved_copied_and_read_from_the_compiled_state(
    kind: Any, tmp_path: Any
) -> None:
    X, y = stream()
    targets = y if kind is op.SGDRegressor else y > 0
    model = kind()
    for x, target in zip(X[:100], targets[:100], strict=True):
        model.learn_one(x, target)
    op.save(model, tmp_path / "m.onepass")
    twins = [copy.deepcopy(model), op.load(tmp_path / "m.onepass")]
    for one in (model, *twins):
        one.partial_fit(X[100:], targets[100:])
        assert one.statistics_.shape[1] == 5
    whole = kind().partial_fit(X, targets)
    for one in (model, *twins):
        assert_allclose(one.statistics_, whole.statistics_, rtol=1e-9)
        assert_allclose(one.coef_, whole.coef_, rtol=1e-9, atol=1e-12)


def test_step_rule_may_change_between_rows() -> None:
    X, y = stream()
    model = op.SGDRegressor(step="normalised").partial_fit(X[:100], y[:100])
    model.set_params(step="adaptive").partial_fit(X[100:200], y[100:200])
    assert model.statistics_.shape == (1, 5)
    model.set_params(step="normalised").partial_fit(X[200:], y[200:])
    assert model.statistics_.shape == (1, 0)
    assert model.steps_ == len(y)
