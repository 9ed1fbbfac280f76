"""RLS by single rows against RLS by blocks."""

import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import OnepassError
from onepass.memory.least_squares import Parts, experts, triangle
from raising import raises

WIDE = 61  # features: several panels, the last of which is not full
RULES = [1.0, 0.97, op.forgetting.Exponential(0.99), op.forgetting.Bounded(0.9), "auto"]


def stream(n: int, d: int = WIDE, c: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + 3.0
    Y = X @ rng.normal(size=(d, c)) + rng.normal(size=(n, c))
    return X, Y[:, 0] if c == 1 else Y


def assert_close(one: Any, two: Any, digits: float = 1e-9) -> None:
    two = np.asarray(two)
    scale = max(np.abs(two).max(initial=0.0), 1e-3)  # what should be 0 is a rounding away from it
    np.testing.assert_allclose(one, two, rtol=0.0, atol=digits * scale)


def assert_equal_learners(one: Any, two: Any, digits: float = 1e-9) -> None:
    """Assert equal coefficients and states up to rounding."""
    for part in ("coef_", "intercept_", "rows_seen_"):
        assert_close(getattr(one, part), getattr(two, part), digits)
    for a, b in zip(experts(one.state_), experts(two.state_), strict=True):
        assert_close(Parts(a).squares, Parts(b).squares, digits)
        for found, wanted in zip(triangle(a), triangle(b), strict=True):
            assert_close(found, wanted, digits)


def predict_then_learn_rows(model: Any, X: Any, y: Any) -> list[Any]:
    """Prequential predictions of single rows."""
    predictions = []
    for x, t in zip(X, y, strict=True):
        predictions.append(model.predict_one(x))
        model.learn_one(x, t)
    return predictions


def learner_pair(**settings: Any) -> tuple[Any, Any]:
    return op.RLSRegressor(**settings), op.RLSRegressor(**settings)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 9, 10, 17, 18, 19, 26, 130, 201])
def test_single_rows_equal_one_block(rule: Any, n: int, *, intercept: bool) -> None:
    X, y = stream(n)
    one, many = learner_pair(ridge=0.5, forgetting=rule, fit_intercept=intercept)
    expected = many.test_then_train(X, y)
    assert_close(predict_then_learn_rows(one, X, y), expected)
    assert_equal_learners(one, many)


@pytest.mark.parametrize("d", [47, 48, 49, 55, 56, 57, 63, 64, 65, 263, 264, 400, 1030])
def test_single_rows_equal_one_block_for_any_feature_count(d: int) -> None:
    X, y = stream(40, d)
    one, many = learner_pair(ridge=2.0)
    expected = many.test_then_train(X, y)
    assert_close(predict_then_learn_rows(one, X, y), expected)
    assert_equal_learners(one, many)


def test_extra_predictions_between_rows_do_not_matter() -> None:
    X, y = stream(90)
    one, many = learner_pair(ridge=0.5)
    for i, (x, t) in enumerate(zip(X, y, strict=True)):
        many.partial_fit(x[None], [t])
        for j in range(i % 4):  # of this row and of others, before and after it is learned
            assert_close(one.predict_one(X[i - j]), _before(many, X, y, i, X[i - j]), 1e-8)
        one.learn_one(x, t)
        for j in range(i % 3):
            assert_close(one.predict_one(X[j]), many.predict(X[j : j + 1])[0], 1e-8)
    assert_equal_learners(one, many)


def _before(many: Any, X: Any, y: Any, i: int, x: Any) -> Any:
    """The prediction of x after i rows."""
    if i == 0:
        return 0.0
    return type(many)(**many.get_params()).partial_fit(X[:i], y[:i]).predict(x[None])[0]


@pytest.mark.parametrize("factor", [1.0, 0.98])
def test_weighted_single_rows_equal_weighted_block(factor: float) -> None:
    X, y = stream(150)
    s = np.random.default_rng(1).uniform(0.01, 100.0, size=len(y))
    one, many = learner_pair(ridge=0.5, forgetting=factor)
    many.partial_fit(X, y, sample_weight=s)
    for x, t, weight in zip(X, y, s.tolist(), strict=True):
        one.learn_one(x, t, weight)
    assert_equal_learners(one, many)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_single_rows_of_growing_size_equal_one_block(size: float) -> None:
    X, y = stream(150)
    X[70::9] *= size
    y[70::9] *= size
    one, many = learner_pair(ridge=1e-3)
    expected = many.test_then_train(X, y)
    assert_close(predict_then_learn_rows(one, X, y), expected, 1e-8)
    assert_equal_learners(one, many, 1e-8)


def test_single_rows_with_tiny_ridge_equal_one_block() -> None:
    X, y = stream(100)
    one, many = learner_pair(ridge=1e-9)
    expected = many.test_then_train(X, y)
    assert_close(
        predict_then_learn_rows(one, X, y), expected, 1e-6
    )  # half of the digits are the prior's
    assert_equal_learners(one, many, 1e-6)


def test_zero_and_repeated_single_rows_equal_one_block() -> None:
    X, y = stream(80)
    X[20:30] = 0.0
    X[40:70] = X[40]
    one, many = learner_pair(ridge=0.5, fit_intercept=False)
    expected = many.test_then_train(X, y)
    assert_close(predict_then_learn_rows(one, X, y), expected)
    assert_equal_learners(one, many)


def test_alternating_single_rows_and_blocks_equal_one_block() -> None:
    X, y = stream(200)
    one, many = learner_pair(ridge=0.5, forgetting=0.99)
    many.partial_fit(X, y)
    for i in range(0, 200, 20):
        for x, t in zip(X[i : i + 13], y[i : i + 13], strict=True):
            one.predict_one(x)
            one.learn_one(x, t)
        one.partial_fit(X[i + 13 : i + 20], y[i + 13 : i + 20])
    assert_equal_learners(one, many)


@pytest.mark.parametrize("i", [2, 5, 11, 12, 19, 30, 31])
def test_reading_attributes_changes_nothing(i: int) -> None:
    X, y = stream(60)
    one, many = learner_pair(ridge=0.5)
    many.partial_fit(X[:i], y[:i])
    for x, t in zip(X[:i], y[:i], strict=True):
        one.learn_one(x, t)
    twin = pickle.loads(pickle.dumps(one))  # noqa: S301  our own
    assert_equal_learners(twin, many)
    assert_equal_learners(one, many)
    for x, t in zip(X[i:], y[i:], strict=True):
        one.learn_one(x, t)
    assert_equal_learners(twin, many)
    assert_equal_learners(one, many.partial_fit(X[i:], y[i:]))


def test_invalid_row_leaves_learner_unchanged() -> None:
    X, y = stream(60)
    one, many = learner_pair(ridge=0.5)
    many.partial_fit(X, y)
    for i, (x, t) in enumerate(zip(X, y, strict=True)):
        if i % 7 == 5:
            one.predict_one(x)
            for bad in (np.full(WIDE, np.nan), x[:-1]):
                with raises(OnepassError):
                    one.learn_one(bad, t)
            with raises(OnepassError):
                one.learn_one(x, np.inf)
        one.learn_one(x, t)
    assert_equal_learners(one, many)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("width", [1, 3, 8, 32, 64, 150])
@pytest.mark.parametrize("d", [5, WIDE])
def test_small_blocks_equal_one_block(d: int, width: int, rule: Any) -> None:
    X, y = stream(330, d)
    one, many = learner_pair(ridge=0.5, forgetting=rule)
    expected = many.test_then_train(X, y)
    predictions = np.empty(len(y))
    for i in range(0, len(y), width):
        rows = slice(i, i + width)
        if i > 200:
            predictions[rows] = one.predict(X[rows]) if width == 1 else expected[rows]
            one.partial_fit(X[rows], y[rows])
        else:
            predictions[rows] = one.test_then_train(X[rows], y[rows])
    assert_close(predictions, expected)
    assert_equal_learners(one, many)


def test_predictions_between_small_blocks_equal_refitted_learner() -> None:
    X, y = stream(300)
    one = op.RLSRegressor(ridge=0.5)
    for i in range(0, 300, 10):
        one.partial_fit(X[i : i + 10], y[i : i + 10])
        fresh = op.RLSRegressor(ridge=0.5).partial_fit(X[: i + 10], y[: i + 10])
        assert_close(one.predict(X[:7]), fresh.predict(X[:7]))
        with raises(OnepassError):
            one.partial_fit(np.full((3, WIDE), np.nan), y[:3])
        with raises(OnepassError):
            one.partial_fit(X[:3, 1:], y[:3])
        with raises(OnepassError):
            one.predict(X[:3, 1:])
    assert_equal_learners(one, fresh)


@pytest.mark.parametrize("labels", [[0, 1], ["a", "b", "c"]])
def test_single_rows_of_classes_equal_one_block(labels: list[Any]) -> None:
    X, _ = stream(120)
    y = np.array(labels)[np.random.default_rng(2).integers(len(labels), size=len(X))]
    one = op.RLSClassifier(ridge=0.5).partial_fit(X[:3], y[:3], classes=labels)
    many = op.RLSClassifier(ridge=0.5).partial_fit(X[:3], y[:3], classes=labels)
    expected = many.test_then_train(X[3:], y[3:])
    predictions = []
    for x, label in zip(X[3:], y[3:], strict=True):
        predictions.append(one.predict_one(x))
        one.learn_one(x, label)
    assert predictions == expected.tolist()
    assert_close(one.coef_, many.coef_)


def test_single_rows_with_initial_weights_equal_one_block() -> None:
    X, y = stream(50)
    one, many = learner_pair(ridge=3.0, initial_coef=np.arange(WIDE, dtype=float))
    expected = many.test_then_train(X, y)
    assert_close(predict_then_learn_rows(one, X, y), expected)
    assert_equal_learners(one, many)


# -- others meanwhile ------------------------------------------------------------------------------

MAKERS = [lambda: op.RLSRegressor(1.0), lambda: op.SGDRegressor(step="normalised")]


@pytest.mark.parametrize(("n", "d"), [(400, 5), (30, 1100)], ids=["narrow", "wide"])
@pytest.mark.parametrize("make", MAKERS)
def test_reading_attributes_in_another_thread_loses_no_row(make: Any, n: int, d: int) -> None:
    """A wide learner lets other threads run while it learns a row."""
    X, y = stream(n, d)
    model, plain = make(), make().partial_fit(X, y)
    done, wrong = threading.Event(), []

    def read_attributes() -> None:
        while not done.is_set():
            try:
                _ = model.rows_seen_, vars(model), model.coef_
            except op.errors.OnepassError as error:
                wrong.append(error)

    model.partial_fit(X[:1], y[:1])
    reading = threading.Thread(target=read_attributes)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        reading.start()
        for x, t in zip(X[1:], y[1:], strict=True):
            model.learn_one(x, t)
    finally:
        done.set()
        reading.join()
        sys.setswitchinterval(before)
    assert not wrong
    assert model.rows_seen_ == n
    assert_close(model.coef_, plain.coef_)


def test_predictions_in_another_thread_lose_no_row() -> None:
    """Predictions in the other thread wait for the row."""
    X, y = stream(40, 1100)
    model, plain = op.RLSRegressor(1.0), op.RLSRegressor(1.0).partial_fit(X, y)
    model.partial_fit(X[:1], y[:1])
    done = threading.Event()

    def predict_repeatedly() -> None:
        while not done.is_set():
            assert np.isfinite(model.predict_one(X[0]))
            assert np.isfinite(model.predict(X[:2])).all()

    predicting = threading.Thread(target=predict_repeatedly)
    predicting.start()
    try:
        for i in range(1, 40, 3):
            model.learn_one(X[i], y[i])
            model.test_then_train(X[i + 1 : i + 3], y[i + 1 : i + 3])
    finally:
        done.set()
        predicting.join()
    assert model.rows_seen_ == 40
    assert_close(model.coef_, plain.coef_)


@pytest.mark.parametrize("make", MAKERS)
def test_failed_compilation_leaves_learner_unchanged(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    X, y = stream(30, 5)
    model, plain = make().partial_fit(X[:29], y[:29]), make().partial_fit(X, y)
    for module in ("rls", "linear", "kernel_rls"):
        monkeypatch.setattr(f"onepass.learners.{module}.row_format", full)
    with pytest.raises(MemoryError):
        model.learn_one(X[29].astype(np.longdouble), y[29])
    assert model.rows_seen_ == 29
    monkeypatch.undo()
    assert_close(model.learn_one(X[29], y[29]).coef_, plain.coef_)


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")  # on purpose
def test_extreme_forgetting_by_rows_equals_blocks() -> None:
    X, y = stream(300, 5)
    rule = op.forgetting.Exponential(6e-6)
    one, many = learner_pair(ridge=0.5, forgetting=rule)
    for i in range(0, 300, 60):
        one.partial_fit(X[i : i + 60], y[i : i + 60])
    for x, t in zip(X, y, strict=True):
        many.learn_one(x, t)
    assert_close(one.predict(X[-1:]), many.predict(X[-1:]), 1e-6)
