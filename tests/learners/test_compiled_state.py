"""Linear learners whose single rows compiled code learns: types, copies, files, uncertainty."""

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import onepass as op
from cases import is_compiled, snapshot
from onepass import native
from onepass.errors import OnepassError
from onepass.memory.vector import Slot

pytestmark = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")

N = 120
RULES: list[Any] = [
    1.0, 0.97, op.forgetting.Exponential(0.99), op.forgetting.Bounded(0.9, floor=2),
    op.forgetting.Window(70), op.forgetting.Window(70, factor=0.95),
]  # fmt: skip
MAKERS: list[Any] = [
    op.RLSRegressor,
    lambda: op.RLSRegressor(0.5, 0.97, fit_intercept=False),
    op.RLSClassifier,
    lambda: op.RLSRegressor(forgetting="window:30"),
    lambda: op.RLSRegressor(1e-3, "window:90", fit_intercept=False),
    op.SGDRegressor,
    lambda: op.SGDClassifier("logistic", step="decaying"),
    op.Perceptron,
]


def stream(d: int = 5, c: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(N, d)) + 2.0
    Y = X @ rng.normal(size=(d, max(c, 1))) + rng.normal(size=(N, max(c, 1)))
    return X, Y if c else Y[:, 0]


def learner(make: Any, d: int = 5, n: int = 60) -> tuple[Any, Any, Any]:
    """A learner with a compiled state after n rows, learned in blocks and one by one."""
    X, y = stream(d)
    model = make()
    if hasattr(model, "classes"):
        y = np.where(y > y.mean(), "high", "low")
    model.partial_fit(X[: n - 20], y[: n - 20])
    for x, t in zip(X[n - 20 : n], y[n - 20 : n], strict=True):
        model.learn_one(x, t)
    assert is_compiled(model)
    return model, X[n:], y[n:]


def continued(model: Any, X: Any, y: Any) -> Any:
    """All bits of the state after more rows, in blocks and one by one."""
    for x, t in zip(X[:9], y[:9], strict=True):
        model.learn_one(x, t)
    return snapshot([model.test_then_train(X[9:], y[9:]), model])


# -- blocks of one row -----------------------------------------------------------------------------

BLOCKS: list[Any] = [
    np.copy, np.ndarray.tolist, np.asfortranarray, list,
    lambda rows: np.repeat(rows, 2, axis=0)[::2],
]  # fmt: skip


@pytest.mark.parametrize("convert", BLOCKS)
@pytest.mark.parametrize("make", MAKERS)
def test_blocks_of_one_row_are_learned_and_predicted_as_single_rows(
    make: Any, convert: Any
) -> None:
    one, X, y = learner(make)
    block = copy.deepcopy(one)
    for i, (x, t) in enumerate(zip(X, y, strict=True)):
        rows, targets = convert(X[i : i + 1]), y[i : i + 1] if i % 2 else y[i : i + 1].tolist()
        prediction = block.predict(rows)
        assert snapshot(prediction[0]) == snapshot(one.predict_one(x))
        assert prediction.shape == (1,)
        weight = 1.0 if i % 3 else 0.5
        options = {} if i % 3 else {"sample_weight": [weight]}
        assert block.partial_fit(rows, targets, **options) is block
        one.learn_one(x, t, weight)
    assert snapshot(block) == snapshot(one)


@pytest.mark.parametrize("make", MAKERS)
def test_blocks_of_one_row_are_compiled_from_the_first(make: Any) -> None:
    X, y = stream()
    one, block = make(), make()
    if hasattr(one, "classes"):
        y = np.where(y > y.mean(), "high", "low")
        labels = {"classes": ["high", "low"]}
        one.partial_fit(X[:0], y[:0], **labels)
    else:
        labels = {}
    for i, (x, t) in enumerate(zip(X, y, strict=True)):
        one.learn_one(x, t)
        block.partial_fit(X[i : i + 1], y[i : i + 1], **labels)
        assert is_compiled(block)
    assert snapshot(block) == snapshot(one)
    assert block.predict(X[:1]).dtype == block.predict(X).dtype
    assert_allclose(block.rows_seen_, N)


def test_blocks_of_one_row_with_times_equal_single_rows() -> None:
    X, Y = stream(4, 2)
    rule = op.forgetting.Bounded(half_life=30.0)
    one, block = op.RLSRegressor(0.1, rule), op.RLSRegressor(0.1, rule)
    for i, time in enumerate(np.arange(N).tolist()):
        one.learn_one(X[i], Y[i], time=time)
        block.partial_fit(X[i : i + 1], Y[i : i + 1], time=[time])
        assert snapshot(block.predict(X[:1])[0]) == snapshot(one.predict_one(X[0]))
    assert snapshot(block) == snapshot(one)


BAD: list[tuple[Any, Any, dict[str, Any]]] = [
    ([[np.nan] * 5], None, {}), ([[1.0] * 4], None, {}), ([1.0] * 5, None, {}),
    ([{"a": 1.0}], None, {}), ([["1"] * 5], None, {}), ([[[1.0] * 5]], None, {}), (None, None, {}),
    ([[1.0] * 5], [None], {}), ([[1.0] * 5], [], {}), ([[1.0] * 5], [[1.0, 2.0]], {}),
    ([[1.0] * 5], None, {"sample_weight": [-1.0]}), ([[1.0] * 5], None, {"sample_weight": [1, 2]}),
    ([[1.0] * 5], None, {"time": [1.0]}), ([[1.0] * 5], None, {"time": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("X", "y", "options"), BAD, ids=str)
@pytest.mark.parametrize("make", MAKERS)
def test_bad_blocks_of_one_row_raise_the_errors_of_blocks(
    make: Any, X: Any, y: Any, options: Any
) -> None:
    model, _, targets = learner(make)
    before = snapshot(model)
    plain = copy.deepcopy(model).partial_fit(np.empty((0, 5)), targets[:0])
    found = []
    for each in (model, plain):
        with pytest.raises(OnepassError) as error:
            each.partial_fit(X, targets[:1] if y is None else y, **options)
        found.append((type(error.value), str(error.value), vars(error.value)))
    assert found[0] == found[1]
    assert found[0][2]["where"] == f"{type(model).__name__}.partial_fit"
    assert snapshot(model) == before


# -- several outputs, and rows and targets of every type -------------------------------------------


@pytest.mark.parametrize("d", [3, 49])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_single_rows_of_several_outputs_equal_one_block(rule: Any, c: int, d: int) -> None:
    X, Y = stream(d, c)
    s = np.random.default_rng(0).uniform(0.2, 3.0, size=N)
    one, many = op.RLSRegressor(0.1, rule), op.RLSRegressor(0.1, rule)
    expected = many.test_then_train(X, Y, s)
    predictions = []
    for x, y, weight in zip(X, Y, s.tolist(), strict=True):
        predictions.append(one.predict_one(x))
        one.learn_one(x, y, weight)
    assert is_compiled(one)
    assert predictions[-1].shape == (c,)
    assert_allclose(predictions[1:], expected[1:], rtol=1e-8, atol=1e-8)
    assert_allclose(one.coef_, many.coef_, rtol=1e-8, atol=1e-9)
    assert one.coef_.shape == (c, d)


def test_single_rows_of_several_outputs_by_sgd_equal_one_block() -> None:
    X, Y = stream(4, 3)
    one, many = op.SGDRegressor(), op.SGDRegressor()
    expected = many.test_then_train(X, Y)
    predictions = []
    for x, y in zip(X, Y, strict=True):
        predictions.append(one.predict_one(x))
        one.learn_one(x, y)
    assert_allclose(predictions[1:], expected[1:], rtol=1e-10)
    assert_allclose(one.coef_, many.coef_, rtol=1e-10)


@pytest.mark.parametrize(
    "convert",
    [
        list, tuple, np.float32, np.float64, np.int8, np.uint16, np.int64, np.uint64,
        lambda x: x.astype(">f8"), np.longdouble, lambda x: np.repeat(x, 2)[::2],
        lambda x: [np.float32(v) for v in x], lambda x: [int(v) for v in x],
        lambda x: dict(zip("abcde", x, strict=True)),
        lambda x: dict(zip("edcba", np.float32(x)[::-1], strict=True)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [op.RLSRegressor, op.SGDRegressor])
def test_rows_of_any_type_are_learned_as_float64(make: Any, convert: Any) -> None:
    X = np.random.default_rng(0).integers(0, 50, size=(40, 5)).astype(float)
    y = X @ np.arange(5.0) + 1.0
    one, plain = make(), make()
    for x, t in zip(X, y, strict=True):
        assert_allclose(one.predict_one(convert(x)), plain.predict_one(x), rtol=1e-9, atol=1e-9)
        one.learn_one(convert(x), t)
        plain.learn_one(x, t)
    assert_allclose(sorted(one.coef_), sorted(plain.coef_), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "convert", [float, int, np.float32, np.float16, np.int64, np.uint8, np.longdouble, np.array]
)
@pytest.mark.parametrize("make", [op.RLSRegressor, op.SGDRegressor])
def test_targets_of_any_type_are_learned_as_float64(make: Any, convert: Any) -> None:
    model, X, _ = learner(make)
    plain = copy.deepcopy(model)
    for i, x in enumerate(X):
        model.learn_one(x, convert(i % 7))
        plain.learn_one(x, float(i % 7))
    assert_allclose(model.coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize("y", [[1.0, 2.0], (1, 2), np.float32([1, 2]), np.array([1, 2])])
def test_vector_targets_of_any_type_are_learned_as_float64(y: Any) -> None:
    X, Y = stream(3, 2)
    one = op.RLSRegressor().partial_fit(X, Y)
    plain = copy.deepcopy(one).learn_one(X[0], np.array([1.0, 2.0]))
    assert_allclose(one.learn_one(X[0], y).coef_, plain.coef_)


@pytest.mark.parametrize("y", [1.0, [1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], [1.0, np.nan], None, "a"])
def test_invalid_vector_targets_leave_learner_unchanged(y: Any) -> None:
    X, Y = stream(3, 2)
    model = op.RLSRegressor().partial_fit(X, Y)
    before = snapshot(model)
    with pytest.raises(op.errors.OnepassError):
        model.learn_one(X[0], y)
    assert snapshot(model) == before


@pytest.mark.parametrize("x", [1j, np.complex128(1j), "1", b"1", None])
def test_numbers_of_other_kinds_are_refused_as_in_blocks(x: Any) -> None:
    model, _, _ = learner(op.RLSRegressor)
    before = snapshot(model)
    with pytest.raises((op.errors.OnepassError, TypeError)):
        model.learn_one([1.0, x, 1.0, 1.0, 1.0], 1.0)
    assert snapshot(model) == before


# -- uncertainty -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 5, 49, 64])
@pytest.mark.parametrize("c", [0, 2])
@pytest.mark.parametrize(
    "settings",
    [{}, {"fit_intercept": False}, {"forgetting": 0.97}, {"forgetting": "window:80", "ridge": 1.0}],
)
def test_uncertainty_of_single_rows_equals_that_of_blocks(settings: Any, c: int, d: int) -> None:
    X, Y = stream(d, c)
    model = op.RLSRegressor(**settings)
    assert np.isinf(model.predict_one(X[0], return_std=True)[1]).all()
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        model.learn_one(x, y)
        if i % 7 == 0 or i > N - 9:
            prediction, std = model.predict_one(X[i - 3], return_std=True)
            whole = model.predict(X[i - 3 : i - 2] if i > 2 else X[-3:-2], return_std=True)
            if i > 2:
                assert np.shape(std) == np.shape(prediction) == Y.shape[1:]
                assert_allclose(prediction, whole[0][0], rtol=1e-8, atol=1e-8)
                assert_allclose(std, whole[1][0], rtol=1e-8)


# -- fading by time --------------------------------------------------------------------------------


def gaps(kind: str) -> Any:
    """Times of rows, with equal times and gaps of up to 60 half-lives."""
    rng = np.random.default_rng(0)
    steps = rng.choice([0, 1, 2, 3, 60, 1200], size=N, p=[0.1, 0.4, 0.3, 0.17, 0.02, 0.01])
    seconds = np.cumsum(steps)
    if kind == "float":
        return seconds * 1.0
    if kind == "int":
        return seconds
    return np.datetime64("2026-01-01T00:00", "s") + seconds.astype("m8[s]")


@pytest.mark.parametrize("kind", ["float", "int", "datetime64", "datetime"])
@pytest.mark.parametrize("c", [0, 2])
@pytest.mark.parametrize("rule", [op.forgetting.Bounded, op.forgetting.Exponential])
def test_single_rows_by_time_equal_blocks(rule: Any, c: int, kind: str, monkeypatch: Any) -> None:
    X, Y = stream(4, c)
    time = gaps(kind)
    settings = {"ridge": 1e-3, "forgetting": rule(half_life="20s" if "date" in kind else 20.0)}
    one, many, plain = (op.RLSRegressor(**settings) for _ in range(3))
    many.partial_fit(X[:7], Y[:7], time=time[:7]).partial_fit(X[7:], Y[7:], time=time[7:])
    for x, y, t in zip(X, Y, time.tolist() if kind != "datetime64" else time, strict=True):
        one.learn_one(x, y, time=t)
    monkeypatch.setattr(native, "loops", None)
    plain.partial_fit(X, Y, time=time)
    for model in (one, many):
        assert_allclose(model.coef_, plain.coef_, rtol=1e-7, atol=1e-8)
        assert_allclose(model.intercept_, plain.intercept_, rtol=1e-7, atol=1e-8)
        assert model.time_ == plain.time_
        assert type(model.time_) is type(plain.time_)


@pytest.mark.parametrize("rule", [op.forgetting.Bounded, op.forgetting.Exponential])
def test_invalid_times_leave_learner_unchanged(rule: Any) -> None:
    X, y = stream()
    model = op.RLSRegressor(forgetting=rule(half_life=20.0))
    for x, t, time in zip(X, y, np.arange(float(N)), strict=True):
        model.learn_one(x, t, time=time)
    assert is_compiled(model)
    before = snapshot(model)
    for time in (1.0, np.nan, np.inf, "now", np.datetime64("2020"), None, [200.0, 201.0]):
        with pytest.raises(op.errors.OnepassError):
            model.learn_one(X[0], y[0], time=time)
        assert snapshot(model) == before
    with pytest.raises(op.errors.OnepassError):
        op.RLSRegressor().partial_fit(X, y).learn_one(X[0], y[0], time=1.0)


# -- copies and files ------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [5, 60])
@pytest.mark.parametrize("make", MAKERS)
def test_copies_continue_to_the_bit(make: Any, d: int) -> None:
    model, X, y = learner(make, d)
    twins = [copy.copy(model), copy.deepcopy(model)]
    expected = continued(model, X, y)
    assert [continued(twin, X, y) for twin in twins] == [expected] * 2


@pytest.mark.parametrize("d", [5, 60])
@pytest.mark.parametrize("make", MAKERS)
def test_saved_and_pickled_learners_continue_to_the_bit(make: Any, d: int, tmp_path: Any) -> None:
    model, X, y = learner(make, d)
    op.save(model, tmp_path / "m.onepass")
    twins = [op.load(tmp_path / "m.onepass"), pickle.loads(pickle.dumps(model))]  # noqa: S301
    expected = continued(model, X, y)
    assert [continued(twin, X, y) for twin in twins] == [expected] * 2


@pytest.mark.parametrize("make", MAKERS)
def test_files_load_without_compiled_loops(make: Any, tmp_path: Any, monkeypatch: Any) -> None:
    model, X, y = learner(make)
    op.save(model, tmp_path / "m.onepass")
    expected = model.partial_fit(X, y).coef_
    monkeypatch.setattr(native, "loops", None)
    twin = op.load(tmp_path / "m.onepass")
    assert not is_compiled(twin)
    assert_allclose(twin.partial_fit(X, y).coef_, expected, rtol=1e-10)


@given(looks=st.lists(st.sampled_from(["coef_", "covariance_", "nbytes", "rows_seen_", "copy"])))
def test_reading_attributes_changes_no_bit(looks: list[str]) -> None:
    for d in (5, 60):
        model, X, y = learner(op.RLSRegressor, d)
        plain = copy.deepcopy(model)
        for look in looks:
            copy.deepcopy(model) if look == "copy" else getattr(model, look)
        assert continued(model, X, y) == continued(plain, X, y)


@pytest.mark.parametrize("make", MAKERS)
def test_failed_block_leaves_compiled_learner_unchanged(make: Any) -> None:
    model, X, y = learner(make)
    before = snapshot(model)
    X = X.copy()
    X[-1, 0] = np.inf
    for block in (X, X * 1e200):
        with pytest.raises(op.errors.OnepassError):
            model.partial_fit(block, y)
        assert snapshot(model) == before


@pytest.mark.parametrize("make", MAKERS)
def test_new_fit_forgets_compiled_state(make: Any) -> None:
    model, X, y = learner(make)
    assert_allclose(model.fit(X, y).coef_, make().fit(X, y).coef_, rtol=1e-12)
    assert model.rows_seen_ == len(X)


@pytest.mark.parametrize("make", [op.RLSRegressor, lambda: op.RLSRegressor(forgetting="window:99")])
def test_predictions_in_another_thread_change_no_row(make: Any) -> None:
    """A wide learner lets other threads run while it learns a row."""
    X, y = stream(300)
    model, plain, done = make().partial_fit(X[:40], y[:40]), make(), threading.Event()
    plain.partial_fit(X, y)

    def predict_repeatedly() -> None:
        while not done.is_set():
            model.predict_one(np.full(300, 7.0))
            model.predict_one(np.full(300, 7.0), return_std=True)

    predicting = threading.Thread(target=predict_repeatedly)
    predicting.start()
    try:
        for x, t in zip(X[40:], y[40:], strict=True):
            model.learn_one(x, t)
    finally:
        done.set()
        predicting.join()
    assert_allclose(model.predict(X[:5]), plain.predict(X[:5]), rtol=1e-5)


def test_predictions_do_not_wait_for_many_blocks() -> None:
    """A prediction waits for the current block only, while another thread learns block by block."""
    X, y = stream(300)
    model, done = op.RLSRegressor().partial_fit(X, y), threading.Event()
    blocks = 0

    def learn_repeatedly() -> None:
        nonlocal blocks
        while not done.is_set():
            model.partial_fit(X[:64], y[:64])
            blocks += 1

    learning = threading.Thread(target=learn_repeatedly)
    learning.start()
    try:
        for _ in range(20):
            assert np.isfinite(model.predict_one(X[0]))
    finally:
        done.set()
        learning.join()
    assert model.rows_seen_ == N + 64 * blocks


@pytest.mark.parametrize("make", [op.RLSRegressor, lambda: op.RLSRegressor(forgetting="window:30")])
def test_pickles_are_consistent_while_another_thread_learns(make: Any) -> None:
    X, y = stream(5)
    model, done = make().partial_fit(X[:60], y[:60]), threading.Event()

    def learn_repeatedly() -> None:
        while not done.is_set():
            model.learn_one(X[0], y[0])

    learning = threading.Thread(target=learn_repeatedly)
    learning.start()
    try:
        twins = [pickle.loads(pickle.dumps(model)) for _ in range(50)]  # noqa: S301
        copies = [model.frozen_copy() for _ in range(50)]
    finally:
        done.set()
        learning.join()
    for twin in twins:
        rows = twin.rows_seen_ if make is op.RLSRegressor else 30
        assert twin.state_[Slot.MASS] == pytest.approx(rows)
    assert copies[-1].rows_seen_ <= model.rows_seen_


def test_unaligned_rows_are_learned() -> None:
    X, y = stream(3)
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float64).reshape(X.shape)
    for rule in (1.0, "window:50"):
        one, plain = op.RLSRegressor(forgetting=rule), op.RLSRegressor(forgetting=rule)
        for model, rows in ((one, unaligned), (plain, X)):
            model.partial_fit(rows[:50], y[:50]).partial_fit(rows[50:], y[50:])
            model.learn_one(rows[0], y[0])
        assert_allclose(one.coef_, plain.coef_, rtol=1e-12)


def test_fading_window_survives_changes_of_width() -> None:
    X, y = stream(3)
    model = op.RLSRegressor(10.0, op.forgetting.Window(100, factor=0.9)).partial_fit(X, y)
    model.learn_one(X[0], y[0])
    plain = copy.deepcopy(model)
    model.grow(4)
    model.learn_one(np.append(X[1], 0.0), y[1])
    assert_allclose(model.coef_[:3], plain.learn_one(X[1], y[1]).coef_, rtol=1e-9)
