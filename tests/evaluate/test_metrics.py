"""Metrics equal scikit-learn's batch formulas for any blocks and merges."""

import math
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as batch

from onepass.errors import ParameterError, ShapeError
from onepass.evaluate import METRICS
from onepass.evaluate.metrics import Metric, ProbabilityMetric, metric_class, row_probabilities
from onepass.evaluate.metrics.metric import Total
from raising import raises


def _root(y: Any, predictions: Any) -> float:
    return batch.root_mean_squared_error(y, predictions)


REGRESSION = {
    "mae": batch.mean_absolute_error,
    "rmse": _root,
    "r2": batch.r2_score,
    "mean_loss": batch.mean_squared_error,
    "cumulative_loss": lambda y, predictions: len(y) * batch.mean_squared_error(y, predictions),
}


def _macro(y: Any, predictions: Any) -> float:
    nothing = "nothing at all"
    predictions = [nothing if label is None else label for label in predictions]
    labels = sorted({*y, *predictions} - {nothing})
    return batch.f1_score(y, predictions, labels=labels, average="macro", zero_division=0)


CLASSIFICATION = {
    "accuracy": lambda y, predictions: np.mean(
        [a == b for a, b in zip(y, predictions, strict=True)]
    ),
    "macro_f1": _macro,
    "mean_loss": lambda y, predictions: np.mean(
        [a != b for a, b in zip(y, predictions, strict=True)]
    ),
    "cumulative_loss": lambda y, predictions: sum(
        a != b for a, b in zip(y, predictions, strict=True)
    ),
}


def _pieces(rng: np.random.Generator, n: int) -> list[Any]:
    cuts = np.sort(rng.integers(0, n + 1, size=rng.integers(0, 8)))
    return np.split(np.arange(n), cuts)  # some are empty


def _added(kind: type, y: Any, predictions: Any, pieces: list[Any]) -> Metric:
    metric = kind()
    for rows in pieces:
        metric.add(y[rows], predictions[rows])
    return metric


def test_all_metrics_have_a_batch_reference() -> None:
    assert set(METRICS["regression"]) == set(REGRESSION)
    labels = {
        n for n, k in METRICS["classification"].items() if not issubclass(k, ProbabilityMetric)
    }
    assert labels == set(CLASSIFICATION)  # test_probability_metrics.py has the others


@pytest.mark.parametrize("name", REGRESSION)
@pytest.mark.parametrize("mean", [0.0, 1e8])
@pytest.mark.parametrize("outputs", [(), (3,)])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 60))
def test_regression_metrics_equal_batch_formulas(
    name: str, mean: float, outputs: tuple[int, ...], seed: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    y = mean + rng.normal(size=(n, *outputs))
    predictions = y + 0.3 * rng.normal(size=y.shape)
    metric = _added(METRICS["regression"][name], y, predictions, _pieces(rng, n))
    assert metric.rows == n
    # shifting targets and predictions by one number is exact here and helps the batch formula
    oracle = REGRESSION[name](y - mean, predictions - mean)
    assert metric.value == pytest.approx(oracle, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", CLASSIFICATION)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), text=st.booleans())
def test_classification_metrics_equal_batch_formulas(
    name: str, seed: int, n: int, *, text: bool
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, size=n)
    predictions = rng.integers(1, 6, size=n)
    if text:
        y, predictions = y.astype(str), predictions.astype(str)
        predictions = np.where(rng.random(n) < 0.2, None, predictions.astype(object))
    metric = _added(METRICS["classification"][name], y, predictions, _pieces(rng, n))
    known = {"y": list(y.tolist()), "predictions": list(predictions.tolist())}
    assert metric.value == pytest.approx(CLASSIFICATION[name](**known), rel=1e-12)


@pytest.mark.parametrize("task", METRICS)
@pytest.mark.parametrize("n", [0, 1, 50])
def test_merged_metric_equals_metric_of_all_rows(task: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for kind in METRICS[task].values():
        if task == "regression":
            y = 1e8 + rng.normal(size=(120, 2))
            predictions = y + rng.normal(size=(120, 2))
        else:
            y = rng.integers(0, 3, size=120)
            predictions = rng.integers(0, 4, size=120)
        if issubclass(kind, ProbabilityMetric):
            y, P = rng.integers(0, 2, size=120), rng.dirichlet([1.0, 1.0], 120)
            predictions = row_probabilities(y, y, np.arange(2), P)
        a, b = kind().add(y[:n], predictions[:n]), kind().add(y[n:], predictions[n:])
        before = b.value
        assert a.merge(b) is a
        assert a.rows == 120
        assert a.value == pytest.approx(kind().add(y, predictions).value, rel=1e-12)
        assert b.value == before


@pytest.mark.parametrize("task", METRICS)
@pytest.mark.parametrize("c", [0, 2])
def test_values_along_a_block_equal_those_of_its_parts(
    task: str, c: int, rng: np.random.Generator
) -> None:
    for kind in METRICS[task].values():
        shape, level = (400, c) if c else 400, float(rng.choice([0.0, 1e8]))
        y: Any = level + rng.normal(size=shape)
        predictions: Any = y + rng.normal(size=shape)
        if rng.random() < 0.3:
            y, predictions = np.full(shape, level), np.full(shape, level)
        if task == "classification":
            y, predictions = rng.integers(0, 3, size=400), rng.integers(0, 4, size=400)
        if issubclass(kind, ProbabilityMetric):
            y, P = rng.integers(0, 2, size=400), rng.dirichlet([1.0, 1.0], 400)
            P[rng.random(400) < 0.1] = np.nan
            predictions = row_probabilities(y, y, np.arange(2), P)
        whole, parts, cuts = kind(), kind(), [0, 57, 57, 300, 400]
        for a, b in pairwise(cuts):
            ends = np.unique(rng.integers(1, b - a + 1, 9)).tolist() if b > a else []
            expected, begin = [], a
            for end in ends:
                parts.add(y[begin : a + end], predictions[begin : a + end])
                expected.append(parts.value)
                begin = a + end
            parts.add(y[begin:b], predictions[begin:b])
            found = whole.along(y[a:b], predictions[a:b], ends)
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
            assert whole.value == pytest.approx(parts.value, rel=1e-9, abs=1e-9, nan_ok=True)
            assert whole.rows == parts.rows


@pytest.mark.parametrize("task", METRICS)
def test_metrics_without_rows_are_nan(task: str) -> None:
    for name, kind in METRICS[task].items():
        value = kind().value
        assert value == 0.0 if name == "cumulative_loss" else np.isnan(value)


def test_r2_of_one_row_is_nan() -> None:
    assert np.isnan(METRICS["regression"]["r2"]().add([1.0], [1.0]).value)


@pytest.mark.parametrize("predictions", [[0.1, 0.1, 0.1], [0.1, 0.1, 0.2]])
def test_r2_of_constant_targets(predictions: Any) -> None:
    metric = METRICS["regression"]["r2"]()
    for one in predictions:
        metric.add([0.1], [one])
    assert metric.value == (1.0 if predictions[-1] == 0.1 else 0.0)


def test_r2_is_accurate_after_an_outlier_in_the_first_row() -> None:
    rng = np.random.default_rng(3)
    y = np.r_[1e6, rng.normal(size=500)]
    predictions = y + 0.1 * rng.normal(size=501)
    metric = METRICS["regression"]["r2"]()
    for rows in np.array_split(np.arange(501), 40):
        metric.add(y[rows], predictions[rows])
    assert 1 - metric.value == pytest.approx(1 - batch.r2_score(y, predictions), rel=1e-3)


def test_overflow_gives_infinity_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, kind in METRICS["regression"].items():
            value = kind().add([0.0, 1.0], [1e300, -1e300]).add([0.0], [1e300]).value
            assert np.isinf(value) or name == "mae"


def test_metrics_do_not_change_their_inputs() -> None:
    y, predictions = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0])
    retained = y.copy(), predictions.copy()
    for kind in METRICS["regression"].values():
        kind().add(y, predictions).add(y, predictions)
    assert (y == retained[0]).all()
    assert (predictions == retained[1]).all()


@pytest.mark.parametrize("task", METRICS)
def test_metrics_refuse_different_shapes(task: str) -> None:
    for kind in METRICS[task].values():
        with raises(ShapeError, where="Metric.add", argument="predictions", remedy="Pass one"):
            kind().add([1.0, 2.0], [1.0])


def test_unknown_metric_is_refused_with_all_names() -> None:
    with raises(ParameterError, got="'mea'", remedy="Did you"):
        metric_class("mea", "regression")


def test_totals_compensate_rounding_errors() -> None:
    rng = np.random.default_rng(0)
    terms = rng.normal(size=2000) * 10.0 ** rng.integers(-8, 9, size=2000)
    total, other = Total(), Total()
    for term in terms[:1000]:
        total.add(term)
    for term in terms[1000:]:
        other.add(term)
    total.merge(other)
    assert float(total.value) == pytest.approx(math.fsum(terms), rel=1e-15)
