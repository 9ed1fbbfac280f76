"""Adopted models of River: their scores equal those of River's own validation."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import evaluate, linear_model, metrics, naive_bayes, preprocessing, tree
from sklearn.base import clone, is_classifier, is_regressor

import onepass as op
from onepass.errors import LabelError, ParameterError, ShapeError, TypeMismatchError
from onepass.evaluate import prequential
from onepass.integrations.river import adopt
from raising import raises


def _table(n: int = 300, seed: int = 0) -> tuple[list[dict[str, Any]], list[float]]:
    rng = np.random.default_rng(seed)
    rows = [{"a": float(a), "b": float(b)} for a, b in rng.normal(size=(n, 2))]
    return rows, [3.0 * x["a"] - x["b"] + 0.1 * e for x, e in zip(rows, rng.normal(size=n))]  # noqa: B905


def _scaled() -> Any:
    return preprocessing.StandardScaler() | linear_model.LinearRegression()


@pytest.mark.parametrize(
    "make",
    [_scaled, lambda: tree.HoeffdingTreeRegressor(grace_period=50)],
    ids=["linear", "tree"],
)
def test_score_of_an_adopted_model_equals_river(make: Any) -> None:
    rows, answers = _table()
    theirs = evaluate.progressive_val_score(zip(rows, answers, strict=True), make(), metrics.MAE())
    stream = op.stream.read([{**x, "y": y} for x, y in zip(rows, answers, strict=True)], target="y")
    report = prequential({"theirs": adopt(make())}, stream, baselines=False)
    assert report.scores["theirs"].overall["mae"] == pytest.approx(theirs.get(), rel=1e-12)
    nbytes = report.scores["theirs"].nbytes
    assert nbytes is not None
    assert nbytes > 100


def test_adopted_classifiers_are_evaluated_next_to_learners() -> None:
    rows, answers = _table()
    labels = ["up" if y > 0 else "down" for y in answers]
    make = lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression()  # noqa: E731
    bayes = naive_bayes.GaussianNB()
    score = evaluate.progressive_val_score(zip(rows, labels, strict=True), bayes, metrics.MacroF1())
    stream = op.stream.read([{**x, "y": y} for x, y in zip(rows, labels, strict=True)], target="y")
    models = {"bayes": adopt(naive_bayes.GaussianNB()), "ours": op.Perceptron()}
    report = prequential(models, stream, ["macro_f1", "accuracy"])
    first = 1 / len(rows)  # River passes over the first row, of which nothing is said
    assert report.scores["bayes"].overall["macro_f1"] == pytest.approx(score.get(), abs=2 * first)
    truths = np.array(answers) > 0
    by_truth = adopt(make())
    predictions = by_truth.test_then_train(pd.DataFrame(rows), truths)
    assert predictions.dtype == bool
    assert (predictions == truths).mean() > 0.9
    assert by_truth.predict_one(rows[0]) in {True, False}


def test_adopted_models_are_scikit_learn_estimators() -> None:
    assert is_regressor(adopt(_scaled()))
    assert is_classifier(adopt(tree.HoeffdingTreeClassifier()))
    assert is_classifier(adopt(preprocessing.StandardScaler() | linear_model.Perceptron()))
    model = adopt(_scaled())
    model.learn_one({"a": 1.0}, 2.0)
    again = clone(model)
    assert again.predict([{"a": 1.0}])[0] == 0.0
    assert model.predict([{"a": 1.0}])[0] != 0.0
    assert model.model.predict_one({"a": 1.0}) == model.predict_one({"a": 1.0})  # River's own
    assert model.fit([{"a": 1.0}], [2.0]).predict_one({"a": 1.0}) == model.predict_one({"a": 1.0})


def test_missing_values_are_absent_or_none() -> None:
    class Hears(linear_model.LinearRegression):
        def learn_one(self, x: Any, y: Any) -> None:  # type: ignore[override]
            received.append(x)
            assert y > 0

    frame = pd.DataFrame({"a": [1.0, np.nan], "by": ["sea", None]})
    received: list[Any] = []
    adopt(Hears()).partial_fit(frame, [1.0, 2.0])
    assert received == [{"a": 1.0, "by": "sea"}, {}]
    received.clear()
    adopt(Hears(), missing="none").partial_fit(frame, [1.0, 2.0])
    assert received == [{"a": 1.0, "by": "sea"}, {"a": None, "by": None}]
    received.clear()
    adopt(Hears()).partial_fit(np.array([[1.0, 2.0]]), [1.0])
    assert received == [{"x0": 1.0, "x1": 2.0}]


def test_adopted_model_with_delayed_targets() -> None:
    rows, answers = _table(120)
    X = np.array([[x["a"], x["b"]] for x in rows])
    report = prequential(adopt(_scaled()), (X, np.array(answers)), delay=7, baselines=False)
    model, predictions = _scaled(), []
    for t, x in enumerate(X.tolist()):
        if t >= 7:
            model.learn_one(dict(zip(["x0", "x1"], X[t - 7].tolist(), strict=True)), answers[t - 7])
        predictions.append(model.predict_one(dict(zip(["x0", "x1"], x, strict=True))))
    mae = np.abs(np.array(predictions) - answers).mean()
    assert report.scores["AdoptedRegressor"].overall["mae"] == pytest.approx(mae, rel=1e-12)


def test_adopt_refuses_other_objects() -> None:
    with raises(TypeMismatchError, argument="model", got="RLSRegressor()"):
        adopt(op.RLSRegressor())
    with raises(TypeMismatchError, argument="model", got="StandardScaler"):
        adopt(preprocessing.StandardScaler())
    with raises(ParameterError, argument="missing", got="'nan'"):
        adopt(_scaled(), missing="nan")
    with raises(TypeMismatchError, argument="y"):
        adopt(_scaled()).partial_fit([[1.0]], [[1.0, 2.0]])
    with pytest.raises(LabelError):
        adopt(tree.HoeffdingTreeClassifier()).partial_fit([[1.0]], [0.5])


@pytest.mark.parametrize("rows", [np.ones(3), [], np.float64(1.0)])
def test_rows_without_two_dimensions_are_refused(rows: Any) -> None:
    with raises(ShapeError, argument="X"):
        adopt(_scaled()).predict(rows)
