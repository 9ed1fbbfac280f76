"""Encode's policy for missing values in all methods, in files and in predictions."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import onepass as op
from onepass.errors import NotFiniteError, ParameterError
from onepass.features import Encode
from raising import raises

WHOLE = pd.DataFrame({"km": [1.0, 2.0, 3.0, 4.0], "by": ["sea", "air", "sea", "air"]})
TARGETS = [3.0, 4.0, 7.0, 8.0]


@pytest.mark.parametrize("missing", ["skip", "error"])
@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"km": None, "by": "sea"}, "km"),
        ({"km": 1.0, "by": None}, "by"),
        ({"by": "sea"}, "km"),
        ({"km": 2.0}, "by"),
    ],
)
def test_missing_values_are_refused_by_every_method(
    missing: Any, row: dict[str, Any], name: str
) -> None:
    model = op.Pipeline(Encode(missing=missing), op.RLSRegressor())
    model.partial_fit(WHOLE, TARGETS)
    before = model.predict(WHOLE).tolist()
    rows = [{"km": 5.0, "by": "air"}, row]
    for call in (
        lambda: model.partial_fit(rows, [1.0, 2.0]),
        lambda: model.test_then_train(rows, [1.0, 2.0]),
        lambda: model.predict(rows),
    ):
        with raises(NotFiniteError, argument="X", column=name, got="none", remedy="Drop such rows"):
            call()
    for call in (lambda: model.learn_one(row, 1.0), lambda: model.predict_one(row)):
        with raises(NotFiniteError, argument="X", column=name):
            call()
    assert model.predict(WHOLE).tolist() == before
    assert model.rows_seen_ == 4


def test_missing_values_in_matrices_and_new_columns() -> None:
    encode = Encode(missing="error")
    with raises(NotFiniteError, argument="X", row=1, column="x1"):
        encode.learn([[1.0, 2.0], [3.0, np.nan]])
    encode.learn([[1.0, 2.0]])
    with raises(NotFiniteError, argument="X", row=0, column="x0"):
        encode.transform([[np.nan, 2.0]])
    model = op.Pipeline(Encode(missing="error"), op.RLSRegressor()).partial_fit(WHOLE, TARGETS)
    extra = WHOLE.assign(more=[None, 1.0, 2.0, 3.0])
    assert model.predict(extra).tolist() == model.predict(WHOLE).tolist()
    with raises(ParameterError, argument="missing"):
        Encode(missing="drop").learn([[1.0]])  # type: ignore[arg-type]


def test_policy_is_saved_and_used_for_predictions(tmp_path: Path) -> None:
    model = op.Pipeline(Encode(missing="skip"), op.RLSRegressor()).partial_fit(WHOLE, TARGETS)
    op.save(model, tmp_path / "m.onepass")
    again = op.load(tmp_path / "m.onepass")
    assert again.missing == "skip"
    frame = pd.DataFrame({"km": [1.0, None, 3.0], "by": ["sea", "sea", None]})
    (block,) = op.evaluate.predictions(again, op.stream.read(frame))
    assert np.isnan(block["prediction"]).tolist() == [False, True, True]
    assert np.isclose(block["prediction"][0], model.predict(WHOLE)[0])
    (block,) = op.evaluate.predictions(again, op.stream.read(frame[["by"]]))
    assert np.isnan(block["prediction"]).all()
    labels = op.Pipeline(Encode(missing="skip"), op.RLSClassifier())
    labels.partial_fit(WHOLE, ["a", "b", "a", "b"])
    (block,) = op.evaluate.predictions(labels, op.stream.read(frame))
    assert block["prediction"].tolist() == ["a", None, None]
