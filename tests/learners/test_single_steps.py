"""Single rows of slopes and mistakes: the same as rows of blocks, whoever looks between them."""

import copy
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import onepass as op
from onepass import native
from onepass.errors import NumericalError, OnepassError

needs_loops = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")

N = 200
REGRESSORS: list[dict[str, Any]] = [
    {},
    {"fit_intercept": False, "l2": 0.1, "noise": 2.0},
    {"step": "decaying", "step_size": 0.02, "l2": 0.01, "loss": "huber"},
    {"step": "constant", "step_size": 0.01, "loss": "absolute"},
    {"loss": "epsilon-insensitive", "step": "pa1"},
    {"loss": "epsilon-insensitive", "step": "pa2"},
]
CLASSIFIERS: list[Callable[[], Any]] = [
    op.SGDClassifier,
    lambda: op.SGDClassifier("logistic", step="decaying", l2=0.01),
    lambda: op.SGDClassifier("perceptron", step="constant", fit_intercept=False),
    lambda: op.SGDClassifier("hinge", step="pa1"),
    op.Perceptron,
    lambda: op.Perceptron(0.3, fit_intercept=True),
]


def stream(d: int = 5, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) + 0.5
    return X, X @ rng.normal(size=d) + rng.normal(size=N)


def one_by_one(model: Any, rows: Any, answers: Any) -> list[Any]:
    """Say each row, then learn it."""
    predictions = []
    for x, y in zip(rows, answers, strict=True):
        predictions.append(model.predict_one(x))
        assert model.learn_one(x, y) is model
    return predictions


def same(one: Any, two: Any) -> None:
    assert_allclose(one.coef_, two.coef_, rtol=1e-10, atol=1e-12)
    assert_allclose(one.intercept_, two.intercept_, rtol=1e-10, atol=1e-12)
    for name in ("rows_seen_", "steps_", "mistakes_"):
        assert getattr(one, name, None) == getattr(two, name, None)


def opened(model: Any = None) -> Any:
    """A learner that learns single rows by the loop."""
    X, y = stream()
    model = op.SGDRegressor() if model is None else model
    one_by_one(model, X[:50], y[:50].tolist())
    assert model._loop is not None
    return model


@pytest.mark.parametrize("kind", ["array", "dict", "float32"])
@pytest.mark.parametrize("settings", REGRESSORS, ids=str)
def test_single_rows_are_the_same_as_many(settings: Any, kind: str) -> None:
    X, y = stream()
    rows: Any = [dict(zip("abcde", x, strict=True)) for x in X.tolist()] if kind == "dict" else X
    if kind == "float32":
        rows = X = X.astype(np.float32)
    model, many = op.SGDRegressor(**settings), op.SGDRegressor(**settings)
    predictions = one_by_one(model, rows, y.tolist())
    assert (model._loop is not None) == (native.loops is not None)
    assert_allclose(predictions, many.test_then_train(X, y), rtol=1e-9, atol=1e-10)
    assert type(predictions[-1]) is np.float64
    same(model, many)


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [3, -1, 7]], ids=str)
@pytest.mark.parametrize("make", CLASSIFIERS)
def test_single_rows_of_classes(make: Any, labels: list[Any]) -> None:
    X, y = stream()
    at = np.digitize(y, np.quantile(y, np.linspace(0, 1, len(labels) + 1)[1:-1]))
    answers = [labels[i] for i in at]
    model, many = make(), make()
    predictions = one_by_one(model, X, answers)
    assert (model._loop is not None) == (native.loops is not None)
    assert predictions == many.test_then_train(X, answers).tolist()
    assert type(predictions[-1]) is type(many.predict(X)[0])
    same(model, many)


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_a_class_that_comes_late_is_learned(make: Any) -> None:
    X, _ = stream()
    answers = ["b", "c"] * 40 + ["a", "c"] * 40
    model, many = make(), make()
    predictions = one_by_one(model, X[:160], answers)
    assert predictions == many.test_then_train(X[:160], answers).tolist()
    assert list(model.classes_) == ["a", "b", "c"]
    same(model, many)


def test_more_rows_than_the_loop_is_opened_for() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(2_500, 3)), rng.normal(size=2_500)
    model = op.SGDRegressor(step="decaying")
    one_by_one(model, X, y.tolist())
    same(model, op.SGDRegressor(step="decaying").partial_fit(X, y))


@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8), looks=st.booleans())
def test_rows_and_blocks_in_any_order(cuts: list[int], looks: bool) -> None:  # noqa: FBT001
    X, y = stream()
    model, many, i = op.SGDRegressor(), op.SGDRegressor(), 0
    for k, width in enumerate(cuts):
        rows = slice(i, min(i + width, N))
        if k % 2:
            model.partial_fit(X[rows], y[rows])
        else:
            one_by_one(model, X[rows], y[rows].tolist())
        if looks and i < N:
            assert model.coef_.shape == (5,)
        i = min(i + width, N)
    many.partial_fit(X[:i], y[:i])
    same(model, many)


@needs_loops
@pytest.mark.parametrize(
    "twin",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
)
@pytest.mark.parametrize("make", [op.SGDRegressor, op.SGDClassifier, op.Perceptron])
def test_a_twin_goes_its_own_way(make: Any, twin: Any) -> None:
    X, y = stream()
    answers = y.tolist() if make is op.SGDRegressor else (y > 0).astype(int).tolist()
    model = make()
    one_by_one(model, X[:50], answers[:50])
    assert model._loop is not None
    other = twin(model)
    coefficients = other.coef_
    one_by_one(model, X[50:], answers[50:])
    assert_array_equal(other.coef_, coefficients)
    assert (other.rows_seen_, model.rows_seen_) == (50, N)
    same(other.partial_fit(X[50:], answers[50:]), model)


@needs_loops
def test_arrays_that_were_looked_at_are_never_written_to() -> None:
    X, y = stream()
    model = opened()
    weights, offset = model.weights_, model.offset_
    before = weights.copy(), offset.copy()
    one_by_one(model, X[50:], y[50:].tolist())
    assert model._loop is not None
    assert_array_equal(weights, before[0])
    assert_array_equal(offset, before[1])


@needs_loops
def test_all_attributes_can_be_read_while_the_loop_is_open(tmp_path: Any) -> None:
    model = opened()
    assert set(type(model)._loop_attributes) <= set(vars(model))
    assert opened().nbytes == model.nbytes
    assert repr(opened()) == repr(model)
    op.save(opened(), tmp_path / "model.onepass")
    same(op.load(tmp_path / "model.onepass"), model)
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        _ = opened().nothing_


@pytest.mark.parametrize("parameter", [{"step_size": 0.5}, {"l2": 0.3}, {"loss": "absolute"}])
def test_a_parameter_acts_from_the_next_row(parameter: Any) -> None:
    X, y = stream()
    one, plain = op.SGDRegressor(), op.SGDRegressor()
    one_by_one(one, X[:50], y[:50].tolist())
    plain.partial_fit(X[:50], y[:50])
    one_by_one(one.set_params(**parameter), X[50:], y[50:].tolist())
    same(one, plain.set_params(**parameter).partial_fit(X[50:], y[50:]))


def test_a_bad_parameter_is_refused_at_the_next_row() -> None:
    X, y = stream()
    model = op.SGDRegressor()
    one_by_one(model, X[:50], y[:50].tolist())
    before = model.coef_
    model.step_size = -1.0
    with pytest.raises(OnepassError, match="step_size"):
        model.learn_one(X[50], float(y[50]))
    assert_array_equal(model.coef_, before)


BAD_ROWS: list[Any] = [
    np.full(5, np.nan),
    np.array([0.0, 1.0, np.inf, 0.0, 0.0]),
    np.ones(4),
    np.ones((1, 5)),
    np.ones((5, 1)),
    [1.0, "a", 1.0, 1.0, 1.0],
    {"a": 1.0},
    None,
]


@pytest.mark.parametrize("x", BAD_ROWS, ids=repr)
@pytest.mark.parametrize("make", [op.SGDRegressor, op.SGDClassifier, op.Perceptron])
def test_a_bad_row_leaves_all_as_it_was(make: Any, x: Any) -> None:
    X, y = stream()
    answers = y.tolist() if make is op.SGDRegressor else (y > 0).astype(int).tolist()
    model, plain = make(), make().partial_fit(X[:60], answers[:60])
    one_by_one(model, X[:60], answers[:60])
    with pytest.raises(OnepassError) as one:
        model.learn_one(x, answers[0])
    with pytest.raises(OnepassError) as two:
        plain.learn_one(x, answers[0])
    assert str(one.value) == str(two.value)
    with pytest.raises(OnepassError):
        model.predict_one(x)
    same(model, plain)
    one_by_one(model, X[60:], answers[60:])
    same(model, plain.partial_fit(X[60:], answers[60:]))


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (op.SGDRegressor, np.nan),
        (op.SGDRegressor, "a"),
        (op.SGDRegressor, [1.0, 2.0]),
        (op.SGDRegressor, None),
        (op.SGDClassifier, 0.5),
        (op.SGDClassifier, None),
        (op.Perceptron, "text"),
    ],
)
def test_a_bad_answer_leaves_all_as_it_was(make: Any, y: Any) -> None:
    X, target = stream()
    answers = target.tolist() if make is op.SGDRegressor else (target > 0).astype(int).tolist()
    model = make()
    one_by_one(model, X[:60], answers[:60])
    with pytest.raises(OnepassError):
        model.learn_one(X[60], y)
    same(model, make().partial_fit(X[:60], answers[:60]))


def test_named_rows_must_have_just_the_known_names() -> None:
    X, y = stream()
    rows = [dict(zip("abcde", x, strict=True)) for x in X.tolist()]
    model = op.SGDRegressor()
    one_by_one(model, rows[:50], y[:50].tolist())
    before = model.coef_
    for bad in ({**rows[0], "f": 1.0}, {"a": 1.0}, {**rows[0], "b": np.nan}, {**rows[0], "b": "x"}):
        with pytest.raises(OnepassError):
            model.learn_one(bad, 1.0)
    assert_array_equal(model.coef_, before)
    model.learn_one(dict(reversed(rows[50].items())), float(y[50]))
    same(model, op.SGDRegressor().partial_fit(X[:51], y[:51]))


def test_weights_strides_and_other_kinds_of_rows() -> None:
    X, y = stream()
    wide = np.repeat(X, 2, axis=1)
    model, plain = op.SGDRegressor(), op.SGDRegressor()
    one_by_one(model, X[:50], y[:50].tolist())
    for i in range(50, 80):
        model.learn_one(wide[i, ::2], y[i], 1 + i % 3)
        model.learn_one(X[i], y[i], 0.0)
        model.learn_one(X[i].tolist(), y[i])
        model.learn_one(np.arange(5), True)  # noqa: FBT003  an answer like others
    plain.partial_fit(X[:50], y[:50])
    for i in range(50, 80):
        plain.partial_fit(X[i : i + 1], y[i : i + 1], float(1 + i % 3))
        plain.partial_fit(X[i : i + 1], y[i : i + 1]).partial_fit([np.arange(5)], [1.0])
    same(model, plain)


def test_rows_that_run_away_are_refused_as_in_blocks() -> None:
    X, y = stream()
    X, y = np.tile(X, (20, 1)), np.tile(y, 20)
    model, many = (op.SGDRegressor(step="constant", step_size=10.0) for _ in range(2))
    with pytest.raises(NumericalError, match="step_size"):
        deque(map(model.learn_one, X, y.tolist()), maxlen=0)
    n = model.rows_seen_
    assert 0 < n < len(X)
    assert_allclose(model.coef_, many.partial_fit(X[:n], y[:n]).coef_, rtol=1e-9)


def test_what_was_not_learned_yet_says_so() -> None:
    for model in (op.SGDRegressor(), op.SGDClassifier(), op.Perceptron()):
        with pytest.raises(OnepassError, match="not fitted yet"):
            _ = model.coef_
