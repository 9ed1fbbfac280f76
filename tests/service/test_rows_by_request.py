"""Requests of one row take the path of single rows: it learns and predicts as blocks of one row."""

import os
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.models import pipelines
from onepass.service.model import learn_block, predict_rows
from onepass.service.requests import read_rows
from onepass.validation.rows import Rows

SEED = int(os.environ["ONEPASS_TEST_SEED"])
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "rls": ("regression", {}),
    "sgd": ("regression", {}),
    "forest": ("regression", {}),
    "kalman": ("regression", {}),
    "mixture": ("regression", {}),
    "rls of classes": ("classification", {}),
    "sgd of classes": ("classification", {}),
}


def stream(task: str, n: int) -> list[tuple[dict[str, Any], Any, float]]:
    """Smooth, correlated columns far from 0, missing first values, late columns and categories."""
    rng = np.random.default_rng(SEED)
    level = np.cumsum(rng.normal(size=(n, 3)), axis=0) + np.array([0.0, 1e4, -300.0])
    rows: list[tuple[dict[str, Any], Any, float]] = []
    for i in range(n):
        x: dict[str, Any] = {"a": level[i, 0], "b": level[i, 1], "c": level[i, 2]}
        x["gear"] = str(rng.choice(["low", "high"] if i < n // 2 else ["low", "high", "reverse"]))
        if i < 5 or rng.random() < 0.1:
            x["a"] = None
        if i >= n // 3:
            x["late"] = float(rng.normal())
        value = level[i, 0] + 0.1 * level[i, 2] + 3.0 * (x["gear"] == "low") + rng.normal()
        y = value if task == "regression" else "wet" if value > level[: i + 1, 0].mean() else "dry"
        rows.append((x, y, float(rng.uniform(0.5, 2.0))))
    return rows


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_single_rows_are_learned_as_blocks_of_one_row(name: str, *, weighted: bool) -> None:
    task, settings = MODELS[name]
    preset = name.partition(" ")[0]
    first, second = (pipelines([preset], task, settings)[preset] for _ in range(2))
    predicted, expected = [], []
    for x, y, weight in stream(task, 150):
        block = read_rows([x], [y], [weight] if weighted else None)
        predicted.append(learn_block(first, block)[0])
        expected.append(second.test_then_train(block.X, block.y, **block.keywords)[0])
    rows = read_rows([x for x, _, _ in stream(task, 150)], None).X
    if task == "classification":
        assert np.mean(np.array(predicted) == np.array(expected)) > 0.98  # ties
        np.testing.assert_allclose(
            first.predict_proba(rows), second.predict_proba(rows), rtol=1e-6, atol=1e-8
        )
    else:
        np.testing.assert_allclose(predicted, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(first.predict(rows), second.predict(rows), rtol=1e-6, atol=1e-6)
    alone = [predict_rows(first, rows[i : i + 1])[0] for i in range(20)]
    if task == "regression":
        np.testing.assert_allclose(alone, first.predict(rows[:20]), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("d", [5, 60, 150])
def test_wide_rows_without_names(d: int) -> None:
    rng = np.random.default_rng(SEED)
    X = np.cumsum(rng.normal(size=(300, d)), axis=0) + 100.0
    y = X[:, 0] - X[:, -1] + rng.normal(size=300)
    first, second = op.RLSRegressor(), op.RLSRegressor()
    predicted = [learn_block(first, Rows(X[i : i + 1], y[i : i + 1]))[0] for i in range(300)]
    expected = second.test_then_train(X, y)
    np.testing.assert_allclose(predicted[d + 10 :], expected[d + 10 :], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=1e-6, atol=1e-5)
