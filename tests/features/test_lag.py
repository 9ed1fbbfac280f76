"""Lag: equal to a learner whose rows contain the targets of earlier rows."""

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline

import onepass as op
from features.feature_cases import CUTS, state
from onepass.cli import main
from onepass.errors import MergeError, ParameterError, TypeMismatchError
from onepass.features import Encode, Impute, Lag, Scale
from raising import raises

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.ForecastWarning")

LAGS = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)


def stream(n: int, seed: int = 0, c: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and targets of which each depends on the one before."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=(n, c) if c else n)
    for i in range(1, n):
        y[i] += 0.8 * y[i - 1] + X[i, 0]
    return X, y


def with_lags(X: Any, y: Any, lags: Any, *, known: bool = True) -> np.ndarray:
    """Rows followed by their lags, computed one by one; 0 where unknown."""
    out = [X]
    for lag in lags:
        out += [
            np.array([column[i - lag] if i >= lag else known * column[0] for i in range(len(X))])
            for column in y.reshape(len(y), -1).T
        ]
    return np.column_stack(out)


def steps(lags: Any, learner: Any, **options: Any) -> op.Pipeline:
    return op.Pipeline(Encode(), Lag(rows=lags, **options), Impute(), Scale(), learner)


def blocks(model: Any, X: Any, y: Any, cuts: Any) -> np.ndarray:
    edges = [0, *sorted(min(cut, len(X)) for cut in cuts), len(X)]
    parts = [model.test_then_train(X[a:b], y[a:b]) for a, b in pairwise(edges) if b > a]
    return np.concatenate(parts)


@given(LAGS, CUTS, st.sampled_from([0, 2]), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_predictions_equal_those_of_explicit_lags(lags: Any, cuts: Any, c: int, n: int) -> None:
    X, y = stream(n, c=c)
    model = steps(lags, op.RLSRegressor(ridge=0.1))
    predictions = blocks(model, X, y, cuts)
    expected = op.RLSRegressor(ridge=0.1).test_then_train(with_lags(X, y, lags), y)
    assert_allclose(predictions, expected, rtol=1e-7, atol=1e-9)
    whole = steps(lags, op.RLSRegressor(ridge=0.1))
    whole.test_then_train(X, y)
    names = model.get_feature_names_out()
    assert_array_equal(names, whole.get_feature_names_out())
    one = steps(lags, op.RLSRegressor(ridge=0.1))
    for x, target, expect in zip(X, y, predictions, strict=True):
        assert_allclose(one.predict_one(x), expect, rtol=1e-7, atol=1e-9)
        one.learn_one(x, target)
    later = np.vstack([X, X[:1]])
    row = with_lags(later, np.concatenate([y, y[:1]]), lags)[-1:]
    learner = op.RLSRegressor(ridge=0.1).partial_fit(with_lags(X, y, lags), y)
    assert_allclose(model.predict(X[[0, 0]]), learner.predict(row)[[0, 0]], rtol=1e-6, atol=1e-8)


@given(st.integers(0, 6), st.integers(1, 40), st.integers(1, 17))
@settings(max_examples=40, deadline=None)
def test_pending_targets_are_unknown(delay: int, n: int, block: int) -> None:
    X, y = stream(n)
    lags = [max(delay, 1), delay + 3]

    def run(model: Any, X: Any) -> np.ndarray:
        found: list[np.ndarray] = []
        rows = [op.stream.Rows(X[a : a + block], y[a : a + block]) for a in range(0, n, block)]
        op.evaluate.prequential(
            {"model": model},
            rows,
            delay=delay,
            baselines=False,
            on_block=lambda _, predictions: found.append(predictions["model"]),
        )
        return np.concatenate(found)

    model = steps(lags, op.RLSRegressor(ridge=0.1), delay=delay)
    known = op.RLSRegressor(ridge=0.1)
    assert_allclose(run(model, X), run(known, with_lags(X, y, lags)), rtol=1e-7, atol=1e-9)
    assert_allclose(  # after the rows that were pending at the end
        model.learner_.coef_[: known.coef_.shape[0]],
        known.coef_[: len(model.learner_.coef_)],
        rtol=1e-6,
        atol=1e-8,
    )


@given(
    st.integers(0, 5), st.integers(1, 30), st.integers(1, 9),
    st.lists(st.booleans(), min_size=30, max_size=30), st.sampled_from([0, 2]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_regressor_learns_the_change_since_the_last_known_target(
    delay: int, n: int, block: int, learned: list[bool], c: int
) -> None:
    X, y = stream(n, c=c)
    lag = max(delay, 1)
    model = steps([lag + 2, lag], op.RLSRegressor(ridge=0.1), delay=delay, difference=True)
    explicit = with_lags(X, y, [lag + 2, lag])
    level = with_lags(X, y, [lag], known=False)[:, -max(c, 1) :].reshape(y.shape)
    changes = np.where(np.arange(n).reshape(-1, *[1] * (y.ndim - 1)) < lag, 0.0, y - level)
    learner = op.RLSRegressor(ridge=0.1)
    expected = level + learner.test_then_train(explicit, changes)
    assert_allclose(blocks(model, X, y, range(0, n, block)), expected, rtol=1e-6, atol=1e-8)
    one = steps([lag + 2, lag], op.RLSRegressor(ridge=0.1), delay=delay, difference=True)
    for i, (x, target, expect) in enumerate(zip(X, y, expected, strict=True)):
        if i and lag == 1:
            assert_allclose(one.predict_one(x), expect, rtol=1e-6, atol=1e-8)
        one.learn_one(x, target)
    mean, std = model.predict(X[:1], return_std=True)
    assert_allclose(mean[0], one.predict_one(X[0]), rtol=1e-6, atol=1e-8)
    assert (std >= 0).all()
    if n > 1:
        assert_allclose(model.score(X, y), r2_score(y, model.predict(X)))
    weights = np.array(learned[:n], dtype=float)
    weights[: lag + 3] = 1.0  # the first values of all lags
    found = clone(model).test_then_train(X, y, sample_weight=weights)
    expected = level + op.RLSRegressor(ridge=0.1).test_then_train(explicit, changes, weights)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_labels_are_encoded_as_they_appear() -> None:
    X, y = stream(60)
    labels = np.where(y > 1, "up", np.where(y < -1, "down", "same"))
    model = steps([1], op.RLSClassifier())
    predictions = blocks(model, X, labels, [7, 20])
    known = (labels[:, None] == np.unique(labels)).astype(float)
    codes = with_lags(X, known, [1], known=False)
    expected = op.RLSClassifier().test_then_train(codes, labels)
    assert_array_equal(predictions, expected)
    names = {f"target lag 1={label}" for label in labels}
    assert set(model.get_feature_names_out()) == names | {"x0", "x1"}
    numbers = steps([1], op.RLSClassifier()).partial_fit(X, y > 0)
    assert "target lag 1=True" in numbers.get_feature_names_out()


def test_copies_and_files_continue_alone(tmp_path: Path) -> None:
    X, y = stream(80)
    model = steps([1, 7], op.RLSRegressor(forgetting=0.99)).partial_fit(X[:40], y[:40])
    op.save(model, tmp_path / "m.onepass")
    before = state(model)
    twins = [copy.copy(model), copy.deepcopy(model), op.load(tmp_path / "m.onepass")]
    frozen, found = model.frozen_copy(), model.predict(X[:3])
    predictions = [twin.test_then_train(X[40:], y[40:]) for twin in twins]
    assert state(model) == before
    expected = model.test_then_train(X[40:], y[40:])
    for each in predictions:
        assert_array_equal(each, expected)
    assert_array_equal(frozen.predict(X[:3]), found)


def test_each_key_has_its_own_lags() -> None:
    X, y = stream(60)
    rows = [{"a": a, "b": b, "key": "uvw"[i % 3]} for i, (a, b) in enumerate(X)]
    keyed = op.Keyed(steps([1, 2], op.RLSRegressor()), by="key")
    predictions = keyed.test_then_train(rows, y)
    for k in range(3):
        alone = steps([1, 2], op.RLSRegressor()).test_then_train(X[k::3], y[k::3])
        assert_allclose(predictions[k::3], alone, atol=1e-9)


def test_merges_are_rejected() -> None:
    X, y = stream(40)
    first, second = (steps([1], op.RLSRegressor()).partial_fit(X, y) for _ in range(2))
    assert first._merging == "refused"
    with raises(MergeError, remedy="learn all rows with one pipeline"):
        first.merge(second)
    with raises(MergeError, got="Lag"):
        Lag().learn(X, y).merge(Lag().learn(X, y))


@pytest.mark.parametrize("options", [
    {"rows": []}, {"rows": [0]}, {"rows": [1, 1]}, {"rows": [1.5]}, {"rows": [2], "delay": 3},
    {"delay": -1},
])  # fmt: skip
def test_invalid_lags_are_errors(options: Any) -> None:
    X, y = stream(5)
    with pytest.raises(ParameterError, match=r"Lag: `(rows|delay)` must be"):
        Lag(**options).learn(X, y)


def test_errors_leave_a_pipeline_unchanged() -> None:
    X, y = stream(20)
    model = steps([1], op.RLSRegressor()).partial_fit(X, y)
    before = state(model)
    for bad in (y[:3], np.full(20, np.nan), np.array(["a"] * 20)):
        with pytest.raises(ValueError, match=r"Pipeline\.partial_fit"):
            model.partial_fit(X, bad)
    with raises(TypeMismatchError, remedy="Pass one target per"):
        Lag().learn(X)
    assert state(model) == before


@pytest.mark.parametrize(
    ("model", "options", "fields"),
    [
        (steps([1], op.RLSRegressor()), {"delay": 3}, {"remedy": "delay=3"}),
        (steps([3], op.RLSRegressor(), delay=3), {}, {"remedy": "delay=0"}),
        (
            op.Keyed(steps([3], op.RLSRegressor(), delay=3), by=0),
            {"delay": 3},
            {"remedy": "remove the lags"},
        ),
        (
            op.Conformal(op.Keyed(steps([1], op.RLSRegressor()), by=0)),
            {"delay": 3},
            {"remedy": "the lags"},
        ),
        (op.Conformal(steps([1], op.RLSRegressor())), {"delay": 3}, {"remedy": "delay=3"}),
        (
            steps([3], op.RLSRegressor(), delay=3),
            {"delay_until": "at"},
            {"remedy": "remove the lags"},
        ),
    ],
)
def test_another_delay_is_an_error(model: Any, options: Any, fields: dict[str, Any]) -> None:
    with raises(ParameterError, **fields):
        op.evaluate.prequential(model, stream(9), **options)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = stream(300)
    file, model = tmp_path / "a.csv", tmp_path / "m.onepass"
    file.write_text("a,b,y\n" + "".join(f"{a},{b},{t}\n" for (a, b), t in zip(X, y, strict=True)))

    def run(*options: str) -> str:
        words = ["run", str(file), "--target", "y", "--model", "rls", "-q"]
        words += ["--save", str(model), *options]
        assert main(words) == 0
        return capsys.readouterr().out

    def error(table: str) -> float:
        line = next(line for line in table.splitlines() if "rls" in line)
        return float(line.split()[1].lstrip("*"))

    assert error(run("--lags", "1,5")) < 0.9 * error(run())
    run("--lags", "5,9", "--delay", "5")
    lag = op.load(model).features_[1]
    assert (lag.rows, lag.delay, len(lag.recent_)) == ((5, 9), 5, 9)
    assert main(["predict", str(model), str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 301
    for options, remedy in (("--lags 1 --delay 5", "whole numbers >= 5"), ("--lags 0", ">= 1")):
        assert main(["run", str(file), "--target", "y", *options.split()]) == 2
        assert remedy in capsys.readouterr().err


def test_pipelines_of_scikit_learn_learn_every_row_with_its_own_lags() -> None:
    y = np.sin(np.arange(80.0))
    X = np.ones((80, 1))
    ours = op.Pipeline(Lag(rows=[1, 2]), op.RLSRegressor()).fit(X, y)
    theirs = make_pipeline(Lag(rows=[1, 2]), op.RLSRegressor()).fit(X, y)
    assert_allclose(theirs.predict(X[:1]), ours.predict(X[:1]))
    assert_allclose(theirs.predict(X[:1]), np.sin(80.0), atol=0.02)


@pytest.mark.parametrize("kind", [int, float, np.int8, np.float32])
def test_whole_labels_are_the_same_lags_whatever_their_type(kind: type) -> None:
    labels = np.array([0, 1, 1, 0, 1])
    model = op.Pipeline(Lag(), op.RLSClassifier()).partial_fit(np.ones((5, 1)), labels)
    model.partial_fit(np.ones((5, 1)), labels.astype(kind))
    assert model.get_feature_names_out().tolist() == ["x0", "target lag 1=0", "target lag 1=1"]


@pytest.mark.parametrize("difference", [False, True])
def test_targets_of_rows_of_weight_zero_are_lags(
    difference: bool,  # noqa: FBT001
    rng: np.random.Generator,
) -> None:
    n = 200
    X, y = rng.normal(size=(n, 2)), np.cumsum(rng.normal(size=n))
    weights = (rng.random(n) > 0.3).astype(float)
    weights[:3] = 1.0

    def model() -> Any:
        return op.Pipeline(Lag(rows=[1, 2], difference=difference), op.RLSRegressor())

    lags = np.column_stack([X, np.append(y[0], y[:-1]), np.append([y[0], y[0]], y[:-2])])
    targets = y - lags[:, 2] * difference  # before its first value, a lag is at that value
    by_hand = op.RLSRegressor().partial_fit(lags, targets, sample_weight=weights)
    block = model().partial_fit(X, y, sample_weight=weights)
    assert_allclose(block.learner_.coef_, by_hand.coef_, rtol=1e-6, atol=1e-9)
    found, single = model().test_then_train(X, y, weights), model()
    for i in range(n):
        assert single.predict_one(X[i]) == pytest.approx(found[i], abs=1e-9)
        single.learn_one(X[i], y[i], weights[i])
    assert_allclose(single.learner_.coef_, by_hand.coef_, rtol=1e-6, atol=1e-9)
