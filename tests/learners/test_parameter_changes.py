"""Hyperparameters and feature maps that change while a stream is learned."""

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.base import clone

import onepass as op
from cases import snapshot
from onepass.errors import MergeError, OnepassError, ParameterError, ShapeError
from onepass.forgetting import Exponential
from raising import raises

X = np.random.default_rng(0).normal(size=(60, 4))
Y = X @ [1.0, 2.0, 3.0, 4.0] + 0.1


@pytest.mark.parametrize("wrong", [0.0, 1.5, -1.0, float("nan"), "much", None])
@pytest.mark.parametrize("rule", [0.9, Exponential(0.9), "exponential:0.9"])
def test_invalid_forgetting_set_later_is_refused(wrong: Any, rule: Any) -> None:
    model = op.RLSRegressor(forgetting=rule).fit(X[:30], Y[:30])
    before = model.coef_
    with raises(ParameterError, argument="forgetting"):
        model.set_params(forgetting=wrong).partial_fit(X[30:], Y[30:])
    assert model.coef_.tolist() == before.tolist()


def test_forgetting_set_later_acts_from_next_row() -> None:
    model = op.RLSRegressor(0.0).fit(X, Y).set_params(forgetting=Exponential(0.5))
    model.partial_fit(X, -Y)
    np.testing.assert_allclose(model.coef_, [-1.0, -2.0, -3.0, -4.0], atol=1e-6)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("window:9", "window:span=9"),
        ("window:span=9", "window:9"),
        ("window:span=9", "window:span=9s"),
        ("exponential:0.9", "exponential:half_life=9"),
        ("exponential:half_life=9", "exponential:half_life=9s"),
        ("exponential:0.9", "window:9"),
        ("window:9", "exponential:0.9"),
    ],
)
def test_rule_of_another_kind_is_refused_until_fit(first: str, then: str) -> None:
    def learned(text: str) -> Any:
        return op.RLSRegressor(forgetting=text).fit(X, Y, **timed(text, 0))

    def timed(text: str, start: int) -> dict[str, Any]:
        seconds = start + np.arange(60)
        dates = np.datetime64("2024-05-01T00:00:00") + seconds * np.timedelta64(1, "s")
        return {"time": dates if text.endswith("s") else seconds} if "=" in text else {}

    model, other = learned(first), learned(then)
    model.set_params(forgetting=then)
    before = snapshot(model), snapshot(other)
    with raises(ParameterError, argument="forgetting", remedy="Call fit"):
        model.partial_fit(X, Y, **timed(then, 60))
    with pytest.raises(MergeError, match="another kind"):
        model.merge(other)
    with pytest.raises(MergeError, match="another kind"):
        other.merge(model)
    assert (snapshot(model), snapshot(other)) == before
    assert model.fit(X, Y, **timed(then, 0)).coef_.tolist() == other.coef_.tolist()


@pytest.mark.parametrize("memory", [None, 3, op.memory.NoMemory()])
@pytest.mark.parametrize(("first", "then"), [(0.0, 0.5), (0.5, 0.0), (0.5, -1.0), (0.0, "no")])
def test_change_between_zero_and_positive_noise_is_refused(
    memory: Any, first: float, then: Any
) -> None:
    model = op.ORFitRegressor(memory, first).fit(X[:2], Y[:2])
    with raises(ParameterError, argument="noise"):
        model.set_params(noise=then).partial_fit(X[2:], Y[2:])
    model.set_params(noise=first).partial_fit(X[2:3], Y[2:3])


def test_positive_noise_may_change_between_rows() -> None:
    model = op.ORFitRegressor(None, 1.0).fit(X[:30], Y[:30])
    model.set_params(noise=0.25).partial_fit(X[30:], Y[30:])
    weights = np.where(np.arange(60) < 30, 1.0, 4.0)
    same = op.RLSRegressor(1.0, fit_intercept=False).fit(X, Y, weights)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-12)


@pytest.mark.parametrize(
    "change", [{"fit_intercept": True}, {"feature_map": lambda rows: rows[:, :2]}]
)
def test_change_of_the_number_of_weights_is_refused_until_fit(change: dict[str, Any]) -> None:
    model = op.ORFitRegressor(1).fit(X, Y).set_params(**change)
    for request in (lambda: model.partial_fit(X, Y), lambda: model.predict(X)):
        with raises(ShapeError, argument="feature_map", remedy="Call fit"):
            request()
    model.fit(X, Y).predict(X)


@pytest.mark.parametrize("wrong", ["x", 3, lambda rows: rows[:, :0], lambda rows: rows[0]])
def test_invalid_feature_maps_are_refused(wrong: Any) -> None:
    with raises(OnepassError, argument="feature_map"):
        op.ORFitRegressor(2, feature_map=wrong).fit(X, Y)


def test_memory_set_later_takes_effect_at_next_fit() -> None:
    model = op.ORFitRegressor(2).partial_fit(X[:30], Y[:30])
    same = op.ORFitRegressor(2).partial_fit(X, Y)
    model.set_params(memory=None).partial_fit(X[30:], Y[30:])
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-12)


def inner_products(A: Any, B: Any) -> Any:
    return A @ B.T


class Change(NamedTuple):
    model: Any
    change: dict[str, Any]
    refused: bool = False


CHANGES = [
    Change(op.MirrorORFitRegressor(1.5), {"potential": 3.0}),
    Change(op.MirrorORFitRegressor("entropy"), {"potential": 1.1}),
    Change(op.MirrorORFitRegressor("entropy"), {"scale": 1.0}),
    Change(op.MirrorORFitRegressor(), {"fit_intercept": True}, refused=True),
    Change(op.KernelRLSRegressor("poly"), {"kernel": "rbf"}),
    Change(op.KernelRLSRegressor("poly"), {"kernel": inner_products}),
    Change(op.KernelRLSRegressor("poly"), {"degree": 2, "coef0": 0.5}),
    Change(op.KernelRLSRegressor(inner_products), {"kernel": "rbf"}, refused=True),
    Change(op.KernelRLSRegressor(), {"gamma": 3.0}),
    Change(op.KernelRLSClassifier(), {"kernel": "linear"}),
    Change(op.KalmanRegressor(), {"process_noise": 1.0}, refused=True),
    Change(op.KalmanRegressor(1.0), {"process_noise": "auto"}, refused=True),
    Change(op.KalmanRegressor(), {"fit_intercept": False}, refused=True),
    Change(op.KalmanRegressor(), {"prior_variance": 1.0, "initial_coef": np.ones(4)}),
    Change(op.ARTIPCAClassifier(), {"pca": "none"}),
    Change(op.ARTIPCAClassifier(), {"n_components": 1, "block": 2}),
    Change(op.ARTIPCAClassifier(), {"projection": "lda", "shrinkage": 0.5}),
    Change(op.ARTIPCAClassifier(projection="lda"), {"projection": "pca", "shrinkage": 0.5}),
    Change(op.ARTIPCAClassifier(2, levels=2), {"projection": "lda"}),
    Change(op.ARTIPCAClassifier(2, levels=2, projection="lda"), {"projection": "pca"}),
    Change(op.ARTIPCAClassifier(), {"levels": 2}),
    Change(op.ARTIPCACluster(), {"levels": 2, "pca": "static"}),
]


@pytest.mark.parametrize("given", CHANGES, ids=lambda each: type(each.model).__name__)
def test_parameters_of_the_state_do_not_change_predictions_until_fit(
    given: Change, tmp_path: Any
) -> None:
    """What was learned is never read as if it had been learned with other parameters."""
    rows = np.vstack((X[:30], 9.0 * X[30:]))  # the later rows start clusters
    targets = (Y > 0).astype(int) if hasattr(given.model, "classes") else Y
    model = clone(given.model).partial_fit(rows[:30], targets[:30])
    twin = copy.deepcopy(model)
    model.set_params(**given.change)
    if given.refused:
        for request in (lambda: model.partial_fit(rows, targets), lambda: model.predict(rows)):
            with raises(ParameterError, remedy="Call fit to start again"):
                request()
    else:
        np.testing.assert_array_equal(model.predict(rows), twin.predict(rows))
        for each in (model, twin):
            each.partial_fit(rows[30:], targets[30:])
        np.testing.assert_array_equal(model.predict(rows), twin.predict(rows))
    if not callable(model.get_params().get("kernel")):
        op.save(model, tmp_path / "model.onepass")
        assert snapshot(op.load(tmp_path / "model.onepass")) == snapshot(model)
    same = clone(given.model).set_params(**given.change)
    assert snapshot(model.fit(rows, targets)) == snapshot(same.fit(rows, targets))


@pytest.mark.parametrize("ridge", [[[1.0, 2.0], [3.0]], "x", [1.0, 2.0], None, np.eye(3)])
def test_invalid_ridges_are_refused(ridge: Any) -> None:
    with raises(OnepassError, argument="ridge"):
        op.RLSRegressor(ridge).fit(X, Y)
