"""SGD and perceptron by single rows against blocks, compiled or not."""

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
from onepass.errors import NotFittedError, NumericalError, OnepassError
from raising import raises

needs_loops = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")

N = 200
REGRESSORS: list[dict[str, Any]] = [
    {},
    {"fit_intercept": False, "l2": 0.1, "noise": 2.0},
    {"step": "normalised", "l2": 0.1},
    {"loss": "huber", "l2": 0.1},
    {"loss": "epsilon-insensitive", "step_size": 0.5},
    {"step": "decaying", "step_size": 0.02, "l2": 0.01, "loss": "huber"},
    {"step": "constant", "step_size": 0.01, "loss": "absolute"},
    {"loss": "epsilon-insensitive", "step": "pa1"},
    {"loss": "epsilon-insensitive", "step": "pa2"},
]
CLASSIFIERS: list[Callable[[], Any]] = [
    op.SGDClassifier,
    lambda: op.SGDClassifier("hinge", fit_intercept=False),
    lambda: op.SGDClassifier("hinge", step="normalised"),
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


def predict_then_learn_rows(model: Any, rows: Any, targets: Any) -> list[Any]:
    """Prequential predictions of single rows."""
    predictions = []
    for x, y in zip(rows, targets, strict=True):
        predictions.append(model.predict_one(x))
        assert model.learn_one(x, y) is model
    return predictions


def assert_equal_learners(one: Any, two: Any) -> None:
    assert_allclose(one.coef_, two.coef_, rtol=1e-10, atol=1e-12)
    assert_allclose(one.intercept_, two.intercept_, rtol=1e-10, atol=1e-12)
    for name in ("rows_seen_", "steps_", "mistakes_"):
        assert getattr(one, name, None) == getattr(two, name, None)


def compiled_learner(model: Any = None) -> Any:
    """A learner with a compiled state."""
    X, y = stream()
    model = op.SGDRegressor() if model is None else model
    predict_then_learn_rows(model, X[:50], y[:50].tolist())
    assert model._single is not None
    return model


@pytest.mark.parametrize("kind", ["array", "dict", "float32"])
@pytest.mark.parametrize("settings", REGRESSORS, ids=str)
def test_single_rows_equal_one_block(settings: Any, kind: str) -> None:
    X, y = stream()
    rows: Any = [dict(zip("abcde", x, strict=True)) for x in X.tolist()] if kind == "dict" else X
    if kind == "float32":
        rows = X = X.astype(np.float32)
    model, many = op.SGDRegressor(**settings), op.SGDRegressor(**settings)
    predictions = predict_then_learn_rows(model, rows, y.tolist())
    assert (model._single is not None) == (native.loops is not None)
    assert_allclose(predictions, many.test_then_train(X, y), rtol=1e-9, atol=1e-10)
    assert type(predictions[-1]) is np.float64
    assert_equal_learners(model, many)


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [3, -1, 7]], ids=str)
@pytest.mark.parametrize("make", CLASSIFIERS)
def test_single_rows_of_classes_equal_one_block(make: Any, labels: list[Any]) -> None:
    X, y = stream()
    at = np.digitize(y, np.quantile(y, np.linspace(0, 1, len(labels) + 1)[1:-1]))
    targets = [labels[i] for i in at]
    model, many = make(), make()
    predictions = predict_then_learn_rows(model, X, targets)
    assert (model._single is not None) == (native.loops is not None)
    assert predictions == many.test_then_train(X, targets).tolist()
    assert type(predictions[-1]) is type(many.predict(X)[0])
    assert_equal_learners(model, many)


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_late_class_by_rows_equals_block(make: Any) -> None:
    X, _ = stream()
    targets = ["b", "c"] * 40 + ["a", "c"] * 40
    model, many = make(), make()
    predictions = predict_then_learn_rows(model, X[:160], targets)
    assert predictions == many.test_then_train(X[:160], targets).tolist()
    assert list(model.classes_) == ["a", "b", "c"]
    assert_equal_learners(model, many)


@pytest.mark.parametrize("step", ["adaptive", "constant", "decaying", "normalised"])
def test_a_state_is_compiled_once(step: Any) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(2_500, 3)), rng.normal(size=2_500)
    model = op.SGDRegressor(step=step, l2=0.01)
    predict_then_learn_rows(model, X[:1], y[:1].tolist())
    compiled = model._single
    predict_then_learn_rows(model, X[1:], y[1:].tolist())
    assert model._single is compiled
    assert_equal_learners(model, op.SGDRegressor(step=step, l2=0.01).partial_fit(X, y))


def test_huge_steps_of_the_perceptron_are_refused_as_in_blocks() -> None:
    X, labels = np.array([[1e60], [1e60], [-1e60]]), ["a", "b", "a"]
    one, many = (op.Perceptron(1e300, classes=["a", "b"]) for _ in range(2))
    with pytest.raises(NumericalError):
        many.partial_fit(X, labels)
    with pytest.raises(NumericalError):
        predict_then_learn_rows(one, X, labels)


@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8), looks=st.booleans())
def test_rows_and_blocks_in_any_order_equal_one_block(cuts: list[int], looks: bool) -> None:  # noqa: FBT001
    X, y = stream()
    model, many, i = op.SGDRegressor(), op.SGDRegressor(), 0
    for k, width in enumerate(cuts):
        rows = slice(i, min(i + width, N))
        if k % 2:
            model.partial_fit(X[rows], y[rows])
        else:
            predict_then_learn_rows(model, X[rows], y[rows].tolist())
        if looks and i < N:
            assert model.coef_.shape == (5,)
        i = min(i + width, N)
    many.partial_fit(X[:i], y[:i])
    assert_equal_learners(model, many)


@needs_loops
@pytest.mark.parametrize(
    "twin",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
)
@pytest.mark.parametrize("make", [op.SGDRegressor, op.SGDClassifier, op.Perceptron])
def test_copies_of_compiled_learner_are_independent(make: Any, twin: Any) -> None:
    X, y = stream()
    targets = y.tolist() if make is op.SGDRegressor else (y > 0).astype(int).tolist()
    model = make()
    predict_then_learn_rows(model, X[:50], targets[:50])
    assert model._single is not None
    other = twin(model)
    coefficients = other.coef_
    predict_then_learn_rows(model, X[50:], targets[50:])
    assert_array_equal(other.coef_, coefficients)
    assert (other.rows_seen_, model.rows_seen_) == (50, N)
    assert_equal_learners(other.partial_fit(X[50:], targets[50:]), model)


@needs_loops
def test_arrays_read_before_are_never_written_to() -> None:
    X, y = stream()
    model = compiled_learner()
    weights, offset = model.weights_, model.offset_
    before = weights.copy(), offset.copy()
    predict_then_learn_rows(model, X[50:], y[50:].tolist())
    assert model._single is not None
    assert_array_equal(weights, before[0])
    assert_array_equal(offset, before[1])


@needs_loops
def test_attributes_of_compiled_learner_can_be_read(tmp_path: Any) -> None:
    model = compiled_learner()
    assert {"weights_", "offset_", "rows_seen_", "steps_"} <= set(model.__getstate__())
    assert compiled_learner().nbytes == model.nbytes
    assert repr(compiled_learner()) == repr(model)
    op.save(compiled_learner(), tmp_path / "model.onepass")
    assert_equal_learners(op.load(tmp_path / "model.onepass"), model)
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        _ = compiled_learner().nothing_


@pytest.mark.parametrize("parameter", [{"step_size": 0.5}, {"l2": 0.3}, {"loss": "absolute"}])
def test_parameter_set_later_acts_from_next_row(parameter: Any) -> None:
    X, y = stream()
    one, plain = op.SGDRegressor(), op.SGDRegressor()
    predict_then_learn_rows(one, X[:50], y[:50].tolist())
    plain.partial_fit(X[:50], y[:50])
    predict_then_learn_rows(one.set_params(**parameter), X[50:], y[50:].tolist())
    assert_equal_learners(one, plain.set_params(**parameter).partial_fit(X[50:], y[50:]))


def test_invalid_parameter_set_later_is_refused_at_next_row() -> None:
    X, y = stream()
    model = op.SGDRegressor()
    predict_then_learn_rows(model, X[:50], y[:50].tolist())
    before = model.coef_
    model.step_size = -1.0
    with raises(OnepassError, argument="step_size"):
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
def test_invalid_row_leaves_learner_unchanged(make: Any, x: Any) -> None:
    X, y = stream()
    targets = y.tolist() if make is op.SGDRegressor else (y > 0).astype(int).tolist()
    model, plain = make(), make().partial_fit(X[:60], targets[:60])
    predict_then_learn_rows(model, X[:60], targets[:60])
    with pytest.raises(OnepassError) as one:
        model.learn_one(x, targets[0])
    with pytest.raises(OnepassError) as two:
        plain.learn_one(x, targets[0])
    assert str(one.value) == str(two.value)
    with pytest.raises(OnepassError):
        model.predict_one(x)
    assert_equal_learners(model, plain)
    predict_then_learn_rows(model, X[60:], targets[60:])
    assert_equal_learners(model, plain.partial_fit(X[60:], targets[60:]))


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
def test_invalid_target_leaves_learner_unchanged(make: Any, y: Any) -> None:
    X, target = stream()
    targets = target.tolist() if make is op.SGDRegressor else (target > 0).astype(int).tolist()
    model = make()
    predict_then_learn_rows(model, X[:60], targets[:60])
    with pytest.raises(OnepassError):
        model.learn_one(X[60], y)
    assert_equal_learners(model, make().partial_fit(X[:60], targets[:60]))


def test_dict_rows_must_have_exactly_the_known_names() -> None:
    X, y = stream()
    rows = [dict(zip("abcde", x, strict=True)) for x in X.tolist()]
    model = op.SGDRegressor()
    predict_then_learn_rows(model, rows[:50], y[:50].tolist())
    before = model.coef_
    for bad in ({**rows[0], "f": 1.0}, {"a": 1.0}, {**rows[0], "b": np.nan}, {**rows[0], "b": "x"}):
        with pytest.raises(OnepassError):
            model.learn_one(bad, 1.0)
    assert_array_equal(model.coef_, before)
    model.learn_one(dict(reversed(rows[50].items())), float(y[50]))
    assert_equal_learners(model, op.SGDRegressor().partial_fit(X[:51], y[:51]))


def test_weighted_strided_and_list_rows_equal_blocks() -> None:
    X, y = stream()
    wide = np.repeat(X, 2, axis=1)
    model, plain = op.SGDRegressor(), op.SGDRegressor()
    predict_then_learn_rows(model, X[:50], y[:50].tolist())
    for i in range(50, 80):
        model.learn_one(wide[i, ::2], y[i], 1 + i % 3)
        model.learn_one(X[i], y[i], 0.0)
        model.learn_one(X[i].tolist(), y[i])
        model.learn_one(np.arange(5), True)  # noqa: FBT003  an target like others
    plain.partial_fit(X[:50], y[:50])
    for i in range(50, 80):
        plain.partial_fit(X[i : i + 1], y[i : i + 1], float(1 + i % 3))
        plain.partial_fit(X[i : i + 1], y[i : i + 1]).partial_fit([np.arange(5)], [1.0])
    assert_equal_learners(model, plain)


def test_diverging_rows_are_refused_as_in_blocks() -> None:
    X, y = stream()
    X, y = np.tile(X, (20, 1)), np.tile(y, 20)
    model, many = (op.SGDRegressor(step="constant", step_size=10.0) for _ in range(2))
    with raises(NumericalError, remedy="step_size"):
        deque(map(model.learn_one, X, y.tolist()), maxlen=0)
    n = model.rows_seen_
    assert 0 < n < len(X)
    assert_allclose(model.coef_, many.partial_fit(X[:n], y[:n]).coef_, rtol=1e-9)


def test_coefficients_of_unfitted_learner_are_refused() -> None:
    for model in (op.SGDRegressor(), op.SGDClassifier(), op.Perceptron()):
        with raises(NotFittedError):
            _ = model.coef_
