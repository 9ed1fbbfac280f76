"""Delayed targets: each row is predicted by a model that has learned the available targets only."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin, clone

import onepass as op
from onepass.errors import (
    ColumnError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    TypeMismatchError,
)
from onepass.evaluate import prequential
from onepass.learners import ORFitRegressor, Perceptron, RLSClassifier, RLSRegressor, SGDRegressor
from onepass.validation.table import Table
from raising import raises

LEARNERS: dict[str, Callable[[], Any]] = {
    "rls": lambda: RLSRegressor(forgetting=0.99),
    "sgd": SGDRegressor,
    "orfit": lambda: ORFitRegressor(memory=2, noise=1.0),
    "pipeline": lambda: op.models.pipelines(["sgd"], "regression")["sgd"],
}


def _stream(n: int, seed: int = 0) -> tuple[Table, Any]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    return Table({"a": a, "b": b}, n), 2 * a - b + 0.1 * rng.normal(size=n) + 3


def _loop(model: Any, rows: list[Any], y: Any, at: Any, due: Any) -> tuple[Any, list[int]]:
    """Predictions of a plain loop: learn the available targets by their times, then predict."""
    predictions, waiting = [], []
    for i, row in enumerate(rows):
        known = sorted((max(due[j], at[j]), j) for j in waiting if due[j] <= at[i])
        for _, j in known:
            model.learn_one(rows[j], y[j])
            waiting.remove(j)
        predictions.append(model.predict_one(row))
        waiting.append(i)
    for _, j in sorted((max(due[j], at[j]), j) for j in waiting):
        model.learn_one(rows[j], y[j])
    return np.array(predictions, dtype=object), waiting


def _cut(X: Table, y: Any, cuts: list[int], time: Any = None) -> Any:
    for rows in np.split(np.arange(len(y)), cuts):
        yield SimpleNamespace(X=X[rows], y=y[rows], time=None if time is None else time[rows])


def _run(model: Any, stream: Any, **given: Any) -> tuple[Any, Any]:
    """The predictions of a model for a stream, and the report."""
    predictions: list[Any] = []
    report = prequential(
        {"m": model},
        stream,
        on_block=lambda _, answers: predictions.extend(np.asarray(answers["m"]).tolist()),
        **given,
    )
    return np.array(predictions, dtype=object), report


@settings(max_examples=8)
@given(
    name=st.sampled_from(list(LEARNERS)),
    delay=st.integers(0, 40),
    cuts=st.lists(st.integers(0, 60), max_size=5),
)
def test_delay_in_rows_equals_a_plain_loop_for_any_blocks(
    name: str, delay: int, cuts: list[int]
) -> None:
    X, y = _stream(60)
    at = np.arange(60)
    plain, model = LEARNERS[name](), LEARNERS[name]()
    oracle, waiting = _loop(plain, list(X.rows()), y, at, at + max(delay, 1))
    found, report = _run(model, _cut(X, y, sorted(cuts)), delay=delay)
    np.testing.assert_allclose(found.astype(float), oracle.astype(float), rtol=1e-9, atol=1e-9)
    probe = X[:5] if name == "pipeline" else np.column_stack([X["a"], X["b"]])[:5]
    np.testing.assert_allclose(model.predict(probe), plain.predict(probe), rtol=1e-9)
    assert report.rows == 60
    assert report.delay == (delay if delay > 1 else None)
    assert report.waiting == (len(waiting) if delay > 1 else 0)
    errors = np.abs(y - oracle.astype(float))
    assert report.scores["m"].overall["mae"] == pytest.approx(errors.mean())


@settings(max_examples=8)
@given(
    seed=st.integers(0, 100),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    dates=st.booleans(),
    whole=st.booleans(),
)
def test_delay_in_time_equals_a_plain_loop_for_any_blocks(
    *, seed: int, cuts: list[int], dates: bool, whole: bool
) -> None:
    X, y = _stream(60)
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.integers(0, 3, 60)).astype(float)  # some come at the same moment
    due = at + (rng.integers(-3, 12, 60) if whole else rng.exponential(5.0, 60))
    if dates:
        start = np.datetime64("2024-01-01", "us")
        at, due = (start + (1e6 * t).astype("timedelta64[us]") for t in (at, due))
    plain, model = RLSRegressor(), RLSRegressor()
    oracle, waiting = _loop(plain, list(X.rows()), y, at, due)
    known = Table({"a": X["a"], "known": due, "b": X["b"]}, 60)
    found, report = _run(model, _cut(known, y, sorted(cuts), at), delay_until="known")
    np.testing.assert_allclose(found.astype(float), oracle.astype(float), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert (report.delay, report.waiting) == ("known", len(waiting))


@pytest.mark.parametrize("learner", [RLSClassifier, Perceptron])
@pytest.mark.parametrize("delay", [2, 9])
def test_labels_are_not_predicted_before_they_arrive(learner: Any, delay: int) -> None:
    X, y = _stream(80)
    labels = np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [1.0, 4.0])]
    oracle, _ = _loop(learner(), list(X.rows()), labels, np.arange(80), np.arange(80) + delay)
    found, report = _run(learner(), _cut(X, labels, [30, 31]), delay=delay)
    assert found.tolist() == oracle.tolist()
    assert found[:delay].tolist() == [None] * delay
    assert report.scores["m"].overall["accuracy"] == np.mean(oracle == labels)


class _Weightless(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A model of another library, without sample weights."""

    def __init__(self) -> None:
        self.inner = RLSRegressor()

    def test_then_train(self, X: Any, y: Any) -> Any:
        return self.inner.test_then_train(X, y)

    def predict(self, X: Any) -> Any:
        return self.inner.predict(X)

    def predict_one(self, x: Any) -> Any:
        return self.inner.predict_one(x)


def test_delay_works_with_models_without_sample_weights() -> None:
    X, y = _stream(60)
    found, _ = _run(_Weightless(), _cut(X, y, [25]), delay=7)
    oracle, _ = _run(RLSRegressor(), _cut(X, y, [25]), delay=7)
    np.testing.assert_allclose(found.astype(float), oracle.astype(float), rtol=1e-9, atol=1e-12)


def test_delay_of_several_targets() -> None:
    X, y = _stream(50)
    both = np.column_stack([y, -y])
    _, report = _run(RLSRegressor(), _cut(X, both, [20]), delay=5)
    _, alone = _run(RLSRegressor(), _cut(X, y, [20]), delay=5)
    assert report.scores["m"].overall["mae"] == pytest.approx(alone.scores["m"].overall["mae"])


def test_delay_applies_to_baselines() -> None:
    y = np.arange(10.0)
    report = prequential({}, (y[:, None], y), "mae", delay=3)
    assert report.scores["last value"].overall["mae"] == (0 + 1 + 2 + 7 * 3) / 10


@pytest.mark.parametrize("delay", [1, 5, 300])
def test_delayed_score_equals_river(delay: int) -> None:
    """Where all answers are counted, as at its end, River's score is ours."""
    river = pytest.importorskip("river")
    from river import evaluate, metrics

    X, y = _stream(200)
    model = op.RLSRegressor(ridge=1.0, fit_intercept=False)

    class Ours(river.base.Regressor):  # type: ignore[misc,name-defined]
        def learn_one(self, x: Any, y: Any) -> None:
            model.learn_one(x, y)

        def predict_one(self, x: Any) -> Any:
            return float(model.predict_one(x))

    pairs = zip(X.rows(), y.tolist(), strict=True)
    theirs = evaluate.progressive_val_score(pairs, Ours(), metrics.MAE(), delay=delay).get()
    again = clone(model)
    report = prequential({"m": again}, (X, y), "mae", delay=delay)
    assert report.scores["m"].overall["mae"] == pytest.approx(theirs, rel=1e-12)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-12)  # learned to the end


def test_interrupt_leaves_pending_rows() -> None:
    X, y = _stream(90)

    def stopped() -> Any:
        yield from list(_cut(X, y, [30, 60]))[:2]
        raise KeyboardInterrupt

    model = RLSRegressor()
    report = prequential(model, stopped(), delay=20)
    assert (report.rows, report.waiting, model.rows_seen_) == (60, 20, 40)
    assert "20 rows were still pending" in " ".join(str(report).split())
    calm = prequential(RLSRegressor(), (X, y), delay=20)
    assert "targets arrived 20 rows later; 20 rows were learned at the end" in calm.to_markdown()


def _known(values: Any) -> Any:
    X, y = _stream(4)
    X = Table({**X.columns, "known": np.asarray(values)}, 4)
    return [SimpleNamespace(X=X, y=y, time=np.arange(4.0))]


@pytest.mark.parametrize(
    ("given", "kind", "fields"),
    [
        ({"delay": -1}, ParameterError, {"argument": "delay", "remedy": "Choose another `delay`"}),
        (
            {"delay": 3, "delay_until": "known"},
            ParameterError,
            {"argument": "delay_until", "remedy": "one of the two"},
        ),
        (
            {"delay": 3, "max_waiting": 2},
            ParameterError,
            {"argument": "delay", "remedy": "Increase `max_waiting`"},
        ),
        ({"delay_until": "later"}, ColumnError, {"argument": "delay_until"}),
        (
            {"delay_until": "known", "stream": [5.0] * 4, "max_waiting": 2},
            ParameterError,
            {"got": "4"},
        ),
        (
            {"delay_until": "known", "stream": [1.0, np.nan, 2.0, 3.0]},
            NotFiniteError,
            {"got": "a missing value in row 1"},
        ),
        (
            {"delay_until": "known", "stream": ["a"] * 4},
            TypeMismatchError,
            {"remedy": "Convert it, or set"},
        ),
        (
            {"delay_until": "known", "stream": np.array(["2024-01-01"] * 4, dtype="M8[us]")},
            TypeMismatchError,
            {"remedy": "Convert one of them"},
        ),
    ],
)
def test_invalid_delays_are_errors(
    given: dict[str, Any], kind: Any, fields: dict[str, Any]
) -> None:
    model = RLSRegressor()
    stream = _known(given.pop("stream", [1.0, 2.0, 3.0, 4.0]))
    with raises(kind, **fields):
        prequential(model, stream, **given)
    assert not hasattr(model, "rows_seen_")


def test_decreasing_times_are_an_error() -> None:
    X, y = _stream(4)
    X = Table({**X.columns, "known": np.arange(4.0)}, 4)
    blocks = [
        SimpleNamespace(X=X, y=y, time=np.array([0.0, 1.0, 1.0, 2.0]), first=0),
        SimpleNamespace(X=X, y=y, time=np.array([2.0, 5.0, 4.0, 6.0]), first=4),
    ]
    with raises(ParameterError, got="4.0 in row 6 (counting from 0), after 5.0", remedy="Sort"):
        prequential(RLSRegressor(), blocks, delay_until="known")
    with raises(OnepassError, argument="delay_until", remedy="Name the column of"):
        prequential(RLSRegressor(), (X, y), delay_until="known")


@pytest.mark.parametrize("block", [2, 64])
@pytest.mark.parametrize("how", [{"delay": 2}, {"delay_until": "known"}])
def test_errors_use_the_row_numbers_of_the_source(how: dict[str, Any], block: int) -> None:
    """Skipped rows and rows that are learned between others do not count."""
    n, wrong = 12, 9
    rows = {"at": np.arange(n), "known": np.arange(n) + 2.0, "x": np.ones(n), "y": np.ones(n)}
    rows["y"][[1, 3, 4]] = np.nan
    blocks = list(op.stream.read(pd.DataFrame(rows), target="y", time="at", block=block))
    for each in blocks:  # behind the stream, which would refuse it
        each.X["x"][each.numbers == wrong] = np.inf
    models = [SGDRegressor(), RLSRegressor()]
    for model in models:
        pipeline = op.Pipeline(op.features.Encode(), model)
        with pytest.raises(NotFiniteError, match=f"of the block is .*row {wrong} "):
            prequential(pipeline, blocks, **how)


@pytest.mark.parametrize(("column", "named"), [("known", "column 'known'"), ("at", "of times")])
def test_missing_times_use_the_row_numbers_of_the_source(column: str, named: str) -> None:
    frame = pd.DataFrame({"at": range(6), "known": range(6), "y": 1.0}, dtype=float)
    frame.loc[1, "y"] = frame.loc[4, column] = np.nan
    stream = op.stream.read(frame, target="y", time="at", block=2)
    with pytest.raises(NotFiniteError, match=rf"{named}.* got a missing value in .*row 4 "):
        prequential(RLSRegressor(), stream, delay_until="known")


def test_one_pending_row_is_singular() -> None:
    X, y = _stream(3)
    caption = str(prequential(RLSRegressor(), (X[:1], y[:1]), delay=2).table().caption)
    assert "; 1 row was learned at the end" in caption
