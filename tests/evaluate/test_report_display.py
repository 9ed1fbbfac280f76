"""Printed reports, and errors about targets."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from onepass.errors import NotFiniteError, ParameterError, TypeMismatchError
from onepass.evaluate import LastValue, prequential
from onepass.learners import RLSRegressor
from raising import raises

ROWS = np.arange(600.0)


def test_short_representations_of_a_report() -> None:
    report = prequential({"<b>": LastValue()}, (ROWS[:, None], ROWS), "mae", baselines=False)
    assert repr(report) == "<Report regression: <b>; 600 rows>"
    assert "<b>" in str(report)
    assert len(str(report)) < 2000
    assert "&lt;b&gt;" in report._repr_html_()


def test_unbeaten_baseline_is_named() -> None:
    walk = np.cumsum(np.random.default_rng(0).normal(size=600))
    lost = prequential({"rls": RLSRegressor()}, (np.ones((600, 1)), walk), "mae")
    text = " ".join(str(lost).split())
    assert "no model is better than last value; recent targets predict best: try lagged" in text
    won = prequential({"rls": RLSRegressor()}, (walk[:, None], walk), "mae")
    assert "no model is better" not in str(won)


@pytest.mark.parametrize(
    "y", [ROWS, pd.Series(ROWS), ROWS.tolist()], ids=lambda y: type(y).__name__
)
def test_targets_as_a_separate_argument_are_refused(y: Any) -> None:
    with raises(
        ParameterError, argument="metrics", remedy="as one pair: prequential(model, (X, y))"
    ):
        prequential(LastValue(), ROWS[:, None], y)


def test_errors_about_targets_suggest_remedies_for_targets() -> None:
    with raises(NotFiniteError, argument="y", remedy="Leave the row out of both X and y"):
        RLSRegressor().partial_fit([[1.0], [2.0]], [1.0, np.nan])
    with raises(TypeMismatchError, argument="y", remedy="Use a classifier for labels"):
        RLSRegressor().partial_fit([[1.0], [2.0]], ["a", "b"])
