"""The compiled sliding window, one row at a time, against blocks."""

from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass import native

pytestmark = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")

W, N = 40, 300
PLAIN = (np.ndarray, frozenset(), None, float, None, None)


def opened(
    X: Any, y: Any, *, d: int, ridge: float = 1e-3, free: bool = True, step: float = 0.0,
    rows: int = W, reading: Any = PLAIN, n: int = 20,
) -> Any:  # fmt: skip
    """A window with n rows."""
    c, p = np.ndim(y[:1].T) and y.reshape(len(y), -1).shape[1], d + free
    loop = native.loops.Window(d, c, free, ridge == 0.0, rows, step, reading)  # type: ignore[union-attr]
    penalty = np.zeros((p, p + c))
    penalty[np.arange(free, p), np.arange(free, p)] = np.sqrt(ridge)
    loop.put("penalty", penalty)
    loop.load(n, np.ascontiguousarray(X[:n]), np.ascontiguousarray(y[:n]), None, None)
    return loop


def part(loop: Any, name: str) -> Any:
    return np.frombuffer(loop.get(name))


def stream(d: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) + 5.0
    X[150] *= 1e5  # the triangle is computed anew when it leaves
    return X, X @ rng.normal(size=d) + rng.normal(size=N)


@pytest.mark.parametrize("factor", [None, 0.9])
@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("d", [1, 7, 8])
def test_single_rows_equal_blocks(d: int, ridge: float, *, free: bool, factor: Any) -> None:
    X, y = stream(d)
    step = 0.0 if factor is None else -np.log2(factor)
    loop = opened(X, y, d=d, ridge=ridge, free=free, step=step)
    if factor is not None:  # the penalty was renewed each 7 rows
        loop.numbers(factor ** (19 % 7))
    rule = op.forgetting.Window(W, factor=factor)
    model = op.RLSRegressor(ridge, rule, fit_intercept=free).partial_fit(X[:20], y[:20])
    wanted = model.test_then_train(X[20:], y[20:])
    predictions = []
    for x, target in zip(X[20:], y[20:].tolist(), strict=True):
        predictions.append(loop.predict_one(x))
        assert loop.learn_one(x, target, 1.0)
    scale = np.abs(y[20:]) + 10.0
    np.testing.assert_array_less(np.abs(predictions - wanted) / scale, 1e-9)
    count, _, seen, accurate, mass = loop.numbers()
    assert (count, seen, accurate) == (W, N - 20, 1)
    assert mass == pytest.approx(model.centering_.mass)
    np.testing.assert_allclose(part(loop, "w")[free:], model.coef_, atol=1e-9)
    np.testing.assert_allclose(part(loop, "squares"), model.memory_.squares, rtol=1e-8)
    np.testing.assert_array_equal(part(loop, "X").reshape(W, d), X[-W:])
    np.testing.assert_array_equal(part(loop, "Y"), y[-W:])


def test_named_rows_weights_and_initial_weights() -> None:
    X, y = stream(3)
    w0, s = np.array([1.0, -2.0, 3.0]), 0.5 + np.arange(N) % 3
    reading = (np.ndarray, frozenset(), ("a", "b", "c"), float, None, None)
    loop = opened(X, y - X @ w0, d=3, ridge=2.0, reading=reading)
    loop.put("start", w0)
    model = op.RLSRegressor(2.0, op.forgetting.Window(W), initial_coef=w0)
    model.partial_fit(X[:20], y[:20])
    for x, target, weight in zip(X[20:].tolist(), y[20:], s[20:], strict=True):
        row = dict(zip("abc", x, strict=True))
        assert loop.predict_one(row) == pytest.approx(float(model.predict([x])[0]), rel=1e-9)
        assert loop.learn_one(row, target, weight)
        model.partial_fit([x], [target], [weight])


def test_labels() -> None:
    X, y = stream(3)
    labels = np.where(y > np.median(y), "b", "a").tolist()
    reading = (np.ndarray, frozenset(), None, None, ("a", "b"), {"a": 0, "b": 1})
    Y = np.array([[label == "a", label == "b"] for label in labels], dtype=np.float64)
    loop = opened(X, Y, d=3, reading=reading)
    model = op.RLSClassifier(1e-3, op.forgetting.Window(W)).partial_fit(X[:20], labels[:20])
    wanted = model.test_then_train(X[20:], labels[20:])
    predictions = []
    for x, label in zip(X[20:], labels[20:], strict=True):
        predictions.append(loop.predict_one(x))
        assert loop.learn_one(x, label, 1.0)
    assert predictions == list(wanted)
    assert not loop.learn_one(X[0], "c", 1.0)


@pytest.mark.parametrize("step", [0.0, 0.1])
def test_copy_and_saved_state_continue_exactly(step: float) -> None:
    X, y = stream(4)
    loop = opened(X, y, d=4, step=step)
    for i in range(20, 100):
        assert loop.learn_one(X[i], y[i], 1.0)
    twin, other = loop.copy(), opened(X, y, d=4, step=step, n=0)
    rows = [part(loop, name) for name in ("X", "Y", "weights", "clock")]
    other.load(W, *rows[:3], np.ascontiguousarray(rows[3] - rows[3][0]))
    other.put("state", part(loop, "state"))
    before = part(loop, "state").copy()
    for i in range(100, N):
        for each in (twin, other):
            assert each.learn_one(X[i], y[i], 1.0)
            assert each.predict_one(X[i - 1]) == each.predict_one(X[i - 1])
    np.testing.assert_array_equal(part(loop, "state"), before)
    np.testing.assert_allclose(part(twin, "w"), part(other, "w"), rtol=1e-10)
    assert twin.numbers()[2] == N - 20


def test_rows_that_python_must_handle_change_nothing() -> None:
    X, y = stream(3)
    loop = opened(X, y, d=3, ridge=0.0)
    assert loop.learn_one(X[20], y[20], 1.0)
    before = part(loop, "state").copy()
    for x, target, weight in (
        (X[0][:2], 1.0, 1.0), (X[0], float("nan"), 1.0), (X[0], 1.0, 0.0), (X[0], "a", 1.0),
        (np.full(3, 1e90), 1.0, 1.0), ([1.0, 2.0, "3"], 1.0, 1.0), (X[0], 1.0, 1e-90),
    ):  # fmt: skip
        assert loop.learn_one(x, target, weight) is False
        np.testing.assert_array_equal(part(loop, "state"), before)
    dependent = opened(X[:, [0, 1, 0]], y, d=3, ridge=0.0)
    assert dependent.predict_one(X[0]) is None
    assert dependent.learn_one(X[0], 1.0, 1.0) is False
    assert dependent.numbers()[0] == 20


def test_constant_features_have_weight_zero() -> None:
    X, y = stream(3)
    X[:100, 1] = 2.0
    loop = opened(X, y, d=3, ridge=0.0)
    for x, target in zip(X[20:100], y[20:100], strict=True):
        assert loop.learn_one(x, target, 1.0)
        assert part(loop, "w")[2] == 0.0
    for x, target in zip(X[100:130], y[100:130], strict=True):
        assert loop.learn_one(x, target, 1.0)
        assert part(loop, "w")[2] != 0.0


def test_wrong_arrays_are_refused() -> None:
    X, y = stream(3)
    loop = opened(X, y, d=3)
    for name, error in (("nothing", KeyError), (1, TypeError)):
        with pytest.raises(error):
            loop.get(name)
    with pytest.raises(KeyError):
        loop.put("nothing", y)
    for name in ("penalty", "state", "start"):
        with pytest.raises(ValueError, match="expected"):
            loop.put(name, y)
    with pytest.raises(ValueError, match="expected"):
        loop.load(3, X[:2], y[:3], None, None)
    with pytest.raises(ValueError, match="expected"):
        loop.learn(2, X[:2], y[:2], None, np.empty(3))
    with pytest.raises(TypeError):
        loop.learn_one(X[0], 1.0)
    for sizes in ((0, 1, 1, 0, 5, 0.0), (3, 0, 1, 0, 5, 0.0), (3, 1, 1, 0, -1, 0.0)):
        with pytest.raises(ValueError, match="sizes"):
            native.loops.Window(*sizes, PLAIN)  # type: ignore[union-attr]
