"""Single rows of River in the native loop: results equal those of the Python loop."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onepass as op
from onepass import native
from onepass.errors import OnepassError

pytest.importorskip("river")

from onepass.integrations.river import wrap

NAMES = list("cab")
N = 120


def rows(seed: int = 0) -> tuple[list[dict[str, float]], list[float]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    y = X @ [1.0, -2.0, 3.0] + rng.normal(size=N)
    return [dict(zip(NAMES, x, strict=True)) for x in X.tolist()], y.tolist()


def walked(model: Any, X: Any, y: Any) -> list[Any]:
    predictions = []
    for x, answer in zip(X, y, strict=True):
        predictions.append(model.predict_one(x))
        model.learn_one(x, answer)
    return predictions


@pytest.mark.parametrize("model", [op.SGDRegressor(), op.RLSRegressor()], ids=str)
def test_native_loop_equals_python_loop(model: Any, monkeypatch: Any) -> None:
    X, y = rows()
    one, two = wrap(model), wrap(model)
    predictions = walked(one, X, y)
    assert (one._single is not None) == (native.loops is not None)
    monkeypatch.setattr(native, "loops", None)
    assert_allclose(predictions[5:], walked(two, X, y)[5:], rtol=1e-8, atol=1e-9)
    assert_allclose(one.model_.coef_, two.model_.coef_, rtol=1e-8)
    assert all(type(each) is float for each in predictions)


@pytest.mark.parametrize("model", [op.SGDClassifier(), op.Perceptron()], ids=str)
@pytest.mark.parametrize("labels", [[False, True], ["a", "b"]], ids=str)
def test_labels_of_the_native_loop_keep_their_type(
    model: Any, labels: Any, monkeypatch: Any
) -> None:
    X, y = rows()
    answers = [labels[value > 0] for value in y]
    one, two = wrap(model), wrap(model)
    predictions = walked(one, X, answers)
    assert (one._single is not None) == (native.loops is not None)
    monkeypatch.setattr(native, "loops", None)
    assert predictions == walked(two, X, answers)
    assert {type(each) for each in predictions[2:]} == {type(labels[0])}


@pytest.mark.parametrize("model", [op.SGDRegressor(), op.RLSRegressor()], ids=str)
def test_native_loop_with_changing_columns(model: Any, monkeypatch: Any) -> None:
    X, y = rows()
    for i in range(40, N, 7):
        X[i].pop("a")
        X[i + 1 if i + 1 < N else i]["new"] = 1.0
        X[i]["b"] = True
    one, two = wrap(model), wrap(model)
    predictions = walked(one, X, y)
    monkeypatch.setattr(native, "loops", None)
    assert_allclose(predictions[5:], walked(two, X, y)[5:], rtol=1e-7, atol=1e-8)
    assert one.model_.n_features_in_ == 4


@pytest.mark.parametrize("bad", [{**dict.fromkeys(NAMES, 1.0), "a": "text"}, [1.0, 2.0, 3.0]])
def test_refused_rows_leave_the_native_loop_unchanged(bad: Any) -> None:
    X, y = rows()
    one, two = wrap(op.SGDRegressor()), wrap(op.SGDRegressor())
    walked(one, X[:50], y[:50])
    with pytest.raises(OnepassError):
        one.learn_one(bad, 1.0)
    with pytest.raises(OnepassError):
        one.learn_one(X[50], "text")
    walked(one, X[50:], y[50:])
    walked(two, X, y)
    assert_allclose(one.model_.coef_, two.model_.coef_, rtol=1e-12)
