"""Suggestions: the candidate with the lowest error, seasons, tasks and invalid input."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import onepass as op
from onepass.evaluate.suggest import _season
from raising import raises

rng = np.random.default_rng(7)


def test_suggestion_has_the_lowest_error_and_a_new_model() -> None:
    X = rng.normal(size=(400, 3))
    found = op.suggest((X, X @ [1.0, 2.0, -1.0] + 0.1 * rng.normal(size=400)), rows=300)
    candidates = {label: e for label, e in found.errors.items() if label.startswith("--model")}
    assert found.errors[found.options] <= 1.01 * min(candidates.values())
    assert found.name == "rls"
    assert not hasattr(found.model, "learner_")
    assert list(found.errors.values()) == sorted(found.errors.values())
    assert str(found).startswith("--model rls\n- ")


def test_autoregressive_targets_need_lags() -> None:
    y = np.zeros(600)
    for t in range(1, 600):
        y[t] = 0.95 * y[t - 1] + rng.normal()
    found = op.suggest((rng.normal(size=(600, 2)), y), rows=600)
    assert found.lags[:1] == (1,)
    assert any("Lagged targets" in reason for reason in found.reasons)


@pytest.mark.parametrize("period", [7, 24, 48])
def test_season_of_a_periodic_target_with_a_trend(period: int) -> None:
    t = np.arange(20.0 * period)
    y = 0.01 * t + np.sin(2 * np.pi * t / period) ** 3 + 0.05 * rng.normal(size=len(t))
    assert _season(y) in {period, 2 * period, 3 * period}


def test_white_noise_and_a_constant_have_no_season() -> None:
    assert _season(rng.normal(size=500)) is None
    assert _season(np.ones(100)) is None


def test_classification_of_labels() -> None:
    X = rng.normal(size=(300, 2))
    found = op.suggest((X, np.where(X[:, 0] > 0, "up", "down")))
    assert (found.task, found.model.learner.__class__.__name__[-10:]) != ("regression", "")
    assert found.task == "classification"
    assert found.errors[found.options] < 0.2


@pytest.mark.parametrize(
    ("source", "options", "fields"),
    [
        ((np.ones((5, 1)), np.ones(5)), {}, {"got": "5 rows"}),
        (np.ones((50, 1)), {}, {"got": "no target"}),
        ((np.ones((50, 1)), np.ones(50)), {"rows": 3}, {"argument": "rows"}),
        ((np.ones((50, 1)), np.ones(50)), {"task": "ranking"}, {"argument": "task"}),
        (op.stream.read((np.ones((50, 1)), np.ones(50))), {"target": "y"}, {"argument": "target"}),
    ],
)
def test_invalid_input(source: Any, options: dict[str, Any], fields: dict[str, Any]) -> None:
    with raises(op.errors.ParameterError, **fields):
        op.suggest(source, **options)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.array(["a", "b"] * 20), "regression"),
        (np.arange(40) / 3.0, "classification"),
    ],
)
def test_targets_that_no_learner_accepts_raise_its_error(y: Any, task: str) -> None:
    with raises(op.errors.OnepassError, got="none"):
        op.suggest((rng.normal(size=(40, 2)), y), task=task)


def test_a_generator_is_read_once() -> None:
    found = op.suggest((({"a": float(i % 7)}, float(i % 7)) for i in range(60)), rows=40)
    assert found.task == "regression"


def test_rare_labels_are_judged_by_log_loss() -> None:
    X = rng.normal(size=(1500, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=1500) > 2.0, "fraud", "no")
    assert 0.01 < np.mean(y == "fraud") < 0.09
    found = op.suggest((X, y))
    assert found.reasons[0].startswith("log loss on the second half")
    assert found.errors[found.options] < 0.8 * found.errors["majority"]


@pytest.mark.parametrize("named", [False, True])
def test_wide_tables_are_compared_on_some_columns(*, named: bool) -> None:
    X = rng.normal(size=(120, 450))
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(450)])
    y = np.where(X[:, 0] > 0, "up", "down")
    found = op.suggest(frame.assign(y=y), "y") if named else op.suggest((X, y))
    assert "--model rls" in found.errors
    assert "--model streamingqda" not in found.errors
    assert found.reasons[-1] == "Compared without slower learners, on 150 of 450 columns."
