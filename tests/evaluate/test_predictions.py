"""Predictions of a model for a stream: all rows, in order, for any blocks."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import onepass as op
from onepass import models, stream
from onepass.errors import ColumnError, NotFittedError, OnepassError
from onepass.evaluate import predictions
from onepass.learners.linear import named_coefficients
from raising import raises

ROWS = [{"id": i, "km": i % 7, "by": ("sea", "air")[i % 2]} for i in range(100)]
TARGETS = np.array([2.0 * row["km"] + (row["by"] == "sea") for row in ROWS])


@pytest.fixture
def model() -> Any:
    return models.pipelines(["rls"], "regression")["rls"].partial_fit(ROWS, TARGETS)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_predictions_equal_predict(model: Any, block: int) -> None:
    found = list(predictions(model, stream.read(ROWS, block=block), keep=["id", "by"]))
    assert {tuple(each) for each in found} == {("id", "by", "prediction")}
    together = np.concatenate([each["prediction"] for each in found])
    np.testing.assert_allclose(together, model.predict(ROWS), atol=1e-12)
    assert np.concatenate([each["id"] for each in found]).tolist() == list(range(100))


def test_predictions_do_not_change_the_model(model: Any) -> None:
    before = model.learner.coef_.copy()
    list(predictions(model, stream.read([*ROWS, {"by": "rail", "km": 3}])))
    np.testing.assert_array_equal(model.learner.coef_, before)
    assert model.rows_seen_ == 100


def test_several_outputs_have_one_column_each() -> None:
    X = np.eye(3)
    model = models.pipelines(["rls"], "regression")["rls"].partial_fit(X, np.c_[X[:, 0], X[:, 1]])
    (block,) = predictions(model, stream.read(X))
    assert list(block) == ["prediction0", "prediction1"]


def test_columns_to_copy_are_checked(model: Any) -> None:
    with raises(ColumnError, argument="keep", got="'kmm'", remedy="Did you mean 'km'"):
        list(predictions(model, stream.read(ROWS), keep=["kmm"]))
    named = [{**row, "prediction": 1.0} for row in ROWS]
    with raises(ColumnError, got="'prediction'"):
        list(predictions(model, stream.read(named), keep=["prediction"]))


def test_errors_name_the_rows_of_the_block(model: Any) -> None:
    bad = [*ROWS[:10], {**ROWS[0], "km": np.inf}]
    with pytest.raises(
        OnepassError,
        match=r"5 row\(s\) starting at row 5 \(counting from 0\)|1 row\(s\) starting at row 10",
    ):
        list(predictions(model, stream.read(bad, block=5)))
    with pytest.raises(NotFittedError):
        list(predictions(models.pipelines(["rls"], "regression")["rls"], stream.read(ROWS)))


def test_errors_count_skipped_rows(model: Any) -> None:
    asked = [{**row, "km": "far", "load": None} for row in ROWS[:3]]
    asked.append({**ROWS[0], "km": "far", "load": 1.0})
    with raises(
        OnepassError,
        where="1 row(s) starting at row 3 (counting from 0): Pipeline.predict",
        remedy="Convert the column, as op.stream.read(X, dtypes=model.dtypes_) does, or",
    ):
        list(predictions(model, stream.read(asked, target="load")))


@pytest.mark.parametrize("labels", [[0, 1, 2], [0.0, 1.0, 2.0]])
def test_columns_and_outputs_of_whole_labels_have_no_decimal_point(labels: Any) -> None:
    X = np.eye(3).repeat(5, axis=0)
    learner = op.RLSClassifier(ridge=1.0).partial_fit(X, np.repeat(labels, 5))
    model = op.Pipeline(op.features.Encode(), op.RLSClassifier())
    model.partial_fit(pd.DataFrame(X, columns=["a", "b", "c"]), np.repeat(labels, 5))
    blocks = stream.read(pd.DataFrame(X, columns=["a", "b", "c"]))
    (found,) = predictions(model, blocks, proba=True)
    assert list(found) == ["prediction", "probability_0", "probability_1", "probability_2"]
    assert list(named_coefficients(learner)) == ["0", "1", "2"]
