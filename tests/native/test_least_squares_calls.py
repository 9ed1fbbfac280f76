"""Calls of the compiled least squares with invalid arguments are refused, and never crash."""

import math
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass import native
from onepass.memory.vector import Parts, Slot, Window, WindowSlot

loops: Any = native.loops
pytestmark = pytest.mark.skipif(loops is None, reason="the compiled loops are not installed")

D, C, N = 3, 2, 30
RULES: dict[str, Any] = {
    "none": 1.0,
    "bounded": 0.9,
    "held": op.forgetting.Exponential(0.9, ridge="held"),
    "window": op.forgetting.Window(8),
    "auto": "auto",
}
HOSTILE = [-1.0, 0.5, 7.0, 1e9, 2.0**53, 2.0**62, 1e19, -1e19, 1e300, math.inf, -math.inf, math.nan]
FORMAT = (np.ndarray, frozenset(), None, np.empty, None, None)


def rows(n: int = N) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, D)), rng.normal(size=(n, C))


def vector(rule: str = "none", **parameters: Any) -> Any:
    """The vector of a learner after some rows."""
    model = op.RLSRegressor(forgetting=RULES[rule], **parameters).partial_fit(*rows())
    return np.array(model.state_)


def call(name: str, state: Any, n: int = 4) -> Any:
    """Call a function with valid arguments for a vector."""
    X, Y = rows(n)
    calls: dict[str, tuple[Any, ...]] = {
        "ls_learn": (n, X, Y, None, None, None, np.empty((n, C)), True),
        "ls_learn_keys": (1, n, np.zeros(n, np.int32), X, Y, None, np.empty((n, C))),
        "ls_fitted": (1, np.empty((C, D)), np.empty(D), np.empty(C)),
        "ls_rotate": (n, np.zeros((n, Parts(vector()).stride)), np.ones(n)),
    }
    return getattr(loops, name)(state, *calls[name])


NAMES = ["ls_learn", "ls_learn_keys", "ls_fitted", "ls_rotate"]


@pytest.mark.parametrize("name", NAMES)
def test_wrong_vectors_are_refused(name: str) -> None:
    state = vector()
    call(name, state.copy())
    fixed = state.copy()
    fixed.flags.writeable = False
    for wrong in (
        None, 5, [1.0], fixed, bytes(8 * len(state)), state[:-1].copy(), state[:8].copy(),
        np.zeros(0), np.append(state, 0.0), np.repeat(state, 2)[::2], state.astype(np.float32),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, BufferError)):
            call(name, wrong)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_heads_do_not_crash(name: str, rule: str) -> None:
    """Sizes that do not fit are refused; other numbers give a result, maybe not a finite one."""
    for slot in Slot:
        for value in HOSTILE:
            state = vector(rule, prior=1.0)
            state[slot] = value
            try:
                call(name, state)
            except (ValueError, TypeError, MemoryError):
                continue
            assert slot > Slot.OUTPUTS


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("slot", WindowSlot)
def test_hostile_numbers_of_a_window_do_not_crash(slot: WindowSlot, value: float) -> None:
    state = vector("window")
    Window(state).head[slot] = value
    try:
        for _ in range(3):
            call("ls_learn", state, 30)
    except ValueError:
        assert slot != WindowSlot.GONE


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_rows_of_a_window_do_not_crash(value: float) -> None:
    state = vector("window")
    Window(state).ring[:] = value
    call("ls_learn", state, 30)


@pytest.mark.parametrize("leaving", [-5.0, 0.5, 3.0, 1e9, 1e300, math.nan, math.inf])
def test_any_number_of_rows_may_leave(leaving: float) -> None:
    state, (X, Y) = vector("window"), rows(5)
    given = (state, 5, X, Y, None, None, np.full(5, leaving), np.empty((5, C)))
    loops.ls_learn(*given, True)  # noqa: FBT003


def test_arrays_of_wrong_sizes_and_types_are_refused() -> None:
    n, (X, Y) = 5, rows(5)
    good: list[Any] = [n, X, Y, np.ones(n), np.zeros(n), np.zeros(n), np.empty((n, C)), True]
    loops.ls_learn(vector(), *good)
    wrong: dict[int, list[Any]] = {
        0: [-1, 6, 1 << 61, "5", 5.5],
        1: [None, X[:4], X.astype(np.float32), np.asfortranarray(X), X[:, :2].copy(), 5],
        2: [None, Y[:4], Y.astype(int), Y[:, 0].copy()],
        3: [np.ones(4), np.ones(n, np.float32), 1.0],
        4: [np.ones(4), "no"],
        5: [np.ones(6), np.ones(n, bool)],
        6: [None, np.empty(n), np.empty((n, C), np.float32), bytes(8 * n * C)],
    }
    for i, values in wrong.items():
        for value in values:
            with pytest.raises((TypeError, ValueError, BufferError, OverflowError)):
                loops.ls_learn(vector(), *good[:i], value, *good[i + 1 :])


def test_vectors_of_keys_of_wrong_sizes_are_refused() -> None:
    (X, Y), states = rows(4), np.tile(vector(), (3, 1))
    codes, errors = np.array([0, 2, -1, 1], np.int32), np.empty((4, C))
    good: list[Any] = [states, 3, 4, codes, X, Y, None, errors]
    assert loops.ls_learn_keys(*good)
    before = states.copy()
    outside = np.array([3, 99, -7, 2**31 - 1], np.int32)  # codes of no key: rows are not learned
    assert loops.ls_learn_keys(*good[:3], outside, *good[4:])
    np.testing.assert_array_equal(states, before)
    other = states.copy()
    other[1, Slot.FLAGS] = 0.0
    wrong: dict[int, list[Any]] = {
        0: [states[:, :-8].copy(), states[:2], other, np.zeros_like(states)],
        1: [0, -1, 2, 4, 1 << 40],
        2: [-1, 5, 1 << 40],
        3: [codes[:3], codes.astype(np.int64), None],
        4: [X[:3], None],
        5: [Y[:3], None],
        6: [np.ones(3)],
        7: [errors[:3], None],
    }
    for i, values in wrong.items():
        for value in values:
            with pytest.raises((TypeError, ValueError, BufferError)):
                loops.ls_learn_keys(*good[:i], value, *good[i + 1 :])


def test_arrays_of_fits_and_rotations_of_wrong_sizes_are_refused() -> None:
    states, stride = np.tile(vector(), (2, 1)), Parts(vector()).stride
    fit: list[Any] = [np.empty((2, C, D)), np.empty((2, D)), np.empty((2, C))]
    loops.ls_fitted(states, 2, *fit)
    for keys in (0, -1, 1, 3, 1 << 61):
        with pytest.raises(ValueError, match="expected"):
            loops.ls_fitted(states, keys, *fit)
    for i in range(3):
        for value in (None, fit[i][:1], fit[i].astype(np.float32)):
            with pytest.raises((TypeError, ValueError)):
                loops.ls_fitted(states, 2, *fit[:i], value, *fit[i + 1 :])
    for n, added, weights in (
        (2, np.zeros((2, stride - 1)), np.ones(2)), (2, np.zeros((2, stride)), np.ones(1)),
        (-1, np.zeros((2, stride)), np.ones(2)), (2, None, np.ones(2)), (1 << 61, None, None),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            loops.ls_rotate(vector(), n, added, weights)


def test_wrong_arguments_of_single_rows_are_refused() -> None:
    state, X = vector(), rows()[0]
    form = loops.Format(D, C, FORMAT)
    single = loops.Single(state, form, None, 0, 0)
    prediction = single.predict_one(X[0])
    assert prediction.shape == (C,)
    assert single.learn_one(X[0], np.ones(C), 1.0)
    for wrong in (None, 5, state, object(), int):
        with pytest.raises(TypeError, match="Format"):
            loops.Single(state, wrong, None, 0, 0)
    for d, c in ((D + 1, C), (D, C + 1)):
        with pytest.raises(ValueError, match="sizes"):
            loops.Single(state, loops.Format(d, c, FORMAT), None, 0, 0)
    for calibration in (np.zeros(3), np.zeros(4, np.float32), 1.0, bytes(32)):
        with pytest.raises((TypeError, ValueError, BufferError)):
            loops.Single(state, form, calibration, 0, 0)
    with pytest.raises(ValueError, match="expected"):
        loops.Single(state[:-1].copy(), form, None, 0, 0)
    for arguments in ((), (X[0],), (X[0], np.ones(C), 1.0, 0.0, 0.0)):
        with pytest.raises(TypeError):
            single.learn_one(*arguments)
    before = state.copy()
    for x, y, weight, *fade in (
        (X[0][:2], np.ones(C), 1.0), (X[0], np.ones(C + 1), 1.0), (X[0], np.ones(C), np.nan),
        (np.full(D, np.nan), np.ones(C), 1.0), (X[0], None, 1.0), (None, np.ones(C), 1.0),
        (X[0], np.ones(C), 1.0, 1.0), (X[0], np.ones(C), 1.0, math.nan),
        (X[0], np.ones(C), 0.0), (X[0], np.ones(C), -1.0), (np.full(D, 1e90), np.ones(C), 1.0),
    ):  # fmt: skip
        assert single.learn_one(x, y, weight, *fade) is False
    np.testing.assert_array_equal(state, before)
    for x in (None, X[0][:2], "abc", np.full(D, np.inf), {"a": 1.0}):
        assert single.predict_one(x) is None
        assert single.predict_std(x) is None
        assert single.predict_proba_one(x) is None


def test_fade_of_a_single_row_must_be_a_number() -> None:
    single = loops.Single(vector(), loops.Format(D, C, FORMAT), None, 0, 0)
    with pytest.raises(TypeError):
        single.learn_one(rows()[0][0], np.ones(C), 1.0, "now")


def test_rows_that_read_the_same_vector_meanwhile_are_left_to_python() -> None:
    """A value of a mapping may run any code."""
    state = vector()
    names = ("a", "b", "c")
    single = loops.Single(state, loops.Format(D, C, (*FORMAT[:2], names, *FORMAT[3:])), None, 0, 0)

    class Nested(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> float:
            assert single.predict_one(dict.fromkeys(names, 1.0)) is None
            assert single.learn_one(dict.fromkeys(names, 1.0), np.ones(C), 1.0) is False
            return 1.0

    single.predict_one(Nested.fromkeys(names, 2.0))
    assert single.predict_one(dict.fromkeys(names, 1.0)) is not None


@pytest.mark.parametrize("k", [0, 17, -1, 1 << 40])
def test_mixtures_of_other_sizes_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 16 experts"):
        loops.mix(k, 1, 1, 0, np.ones(1), None, np.ones(1), np.ones(3), np.ones(1))
