"""Calls of the compiled loops with invalid arguments are refused."""

from array import array
from typing import Any

import numpy as np
import pytest

from onepass import native

loops: Any = native.loops
pytestmark = pytest.mark.skipif(loops is None, reason="the compiled loops are not installed")

HUGE = 1 << 32  # its square is 0 in 64 bits


def zeros(*shape: int) -> Any:
    return np.zeros(shape)


def least_squares(d: int, factor: float = 1.0, level: float = 0.0, period: int = 64) -> Any:
    loop = loops.Rows(d, 1, 0, factor, level, period, None)
    loop.triangle(np.eye(d), np.ones((d, 1)), 0)
    loop.numbers(1.0, 0.0, 1)
    return loop


def loop_state(loop: Any, d: int) -> list[Any]:
    R, z_ = zeros(d, d), zeros(d, 1)
    loop.triangle(R, z_, 1)
    parts = ("squares", "means", "rest", "energy", "active", "last")
    return [R.tolist(), z_.tolist(), loop.numbers(), *map(loop.get, parts)]


def test_none_for_required_arrays_is_refused() -> None:
    given: dict[str, list[tuple[Any, ...]]] = {
        "into": [
            ("d", 2, 3, 0, 3, None, zeros(3), zeros(2)),
            ("d", 2, 3, 0, 3, zeros(2, 3), None, zeros(2)),
            ("d", 2, 3, 0, 3, zeros(2, 3), zeros(3), None),
        ],
        "without": [
            ("d", 2, 3, 0, 3, None, zeros(3), zeros(2), None, zeros(3), None, None),
            ("d", 2, 3, 0, 3, zeros(2, 3), None, zeros(2), None, zeros(3), None, None),
            ("d", 2, 3, 0, 3, zeros(2, 3), zeros(3), None, None, zeros(3), None, None),
            ("d", 2, 3, 0, 3, zeros(2, 3), zeros(3), zeros(2), None, None, None, None),
            ("d", 2, 3, 0, 3, zeros(2, 3), zeros(3), zeros(2), zeros(2), zeros(3), None, None),
            ("d", 2, 3, 0, 3, zeros(2, 3), zeros(3), zeros(2), None, zeros(3), zeros(3), None),
        ],
        "lengths": [("d", 2, 3, 0, 3, None, zeros(2)), ("d", 2, 3, 0, 3, zeros(2, 3), None)],
        "descend": [(2, 3, 1, 1.0, 1, 0.1, *[None] * 10)],
        "correct": [(2, 3, 1, 1.0, *[None] * 7)],
    }
    for name, calls in given.items():
        for call in calls:
            with pytest.raises(TypeError, match="None"):
                getattr(loops, name)(*call)


def test_sizes_that_overflow_are_refused() -> None:
    more = (None, None, None, zeros(1), zeros(1), None, zeros(1))
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("into", ("d", 1 << 61, 8, 0, 8, zeros(0), zeros(8), zeros(0))),
        ("lengths", ("d", HUGE, HUGE, 0, 1, zeros(0), zeros(1))),
        ("descend", (HUGE, HUGE, 1, 1.0, 1, 0.1, zeros(0), zeros(1), zeros(1), *more)),
        ("descend", (-1, 3, 1, 1.0, 1, 0.1, zeros(3), zeros(1), zeros(1), *more)),
        (
            "correct",
            (-1, 3, 1, 1.0, zeros(3), zeros(1), zeros(1), None, zeros(1, 3), zeros(1), zeros(1)),
        ),
        ("mix", (1, 0, 1 << 62, 0, zeros(0), None, zeros(0), zeros(1), zeros(0))),
        ("mix", (17, 0, 1, 0, zeros(0), None, zeros(0), zeros(19), zeros(0))),
        ("mix", (1, -1, 1, 0, zeros(1), None, zeros(1), zeros(3), zeros(1))),
        ("kalman", (1, 1, HUGE, 1, 1.0, *[zeros(0)] * 4, None, None, *[zeros(0)] * 4)),
    ]
    for name, call in calls:
        with pytest.raises(ValueError, match="expected"):
            getattr(loops, name)(*call)


def test_arrays_of_wrong_sizes_and_dtypes_are_refused() -> None:
    for rows in (
        zeros(2, 2),
        zeros(2, 3).astype(np.float32),
        zeros(2, 3).astype(">f8"),
        zeros(2, 3).astype(int),
    ):
        with pytest.raises(ValueError, match="expected 6 numbers of type d"):
            loops.into("d", 2, 3, 0, 3, rows, zeros(3), zeros(2))
    for rows in (np.asfortranarray(zeros(2, 3)), zeros(2, 6)[:, ::2]):
        with pytest.raises(ValueError, match="not C-contiguous"):
            loops.into("d", 2, 3, 0, 3, rows, zeros(3), zeros(2))
    with pytest.raises(BufferError):
        loops.into("d", 2, 3, 0, 3, zeros(2, 3), zeros(3), bytes(16))
    for first, last in ((-1, 3), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="first <= last"):
            loops.into("d", 2, 3, first, last, zeros(2, 3), zeros(3), zeros(2))


@pytest.mark.parametrize("wrong", [None, zeros(2), zeros(3).astype(np.float32), bytes(24)])
@pytest.mark.parametrize("name", ["scale_row", "impute_row"])
def test_wrong_arrays_for_single_rows_are_refused(name: str, wrong: Any) -> None:
    counts, flags = np.zeros(3, dtype=np.int64), np.full(3, -1)
    doubles = [zeros(3) for _ in range(6)]
    given = [zeros(3), counts, flags, zeros(3), zeros(3), counts.copy()]
    given = doubles if name == "scale_row" else given
    options = (5, True) if name == "scale_row" else ("mean", False)
    call = getattr(loops, name)
    assert call(zeros(3), None, *options, *given)
    assert not call(zeros(4), None, *options, *given)
    for i in range(6):
        arrays = [wrong if j == i else each for j, each in enumerate(given)]
        with pytest.raises((TypeError, ValueError, BufferError)):
            call(zeros(3), None, *options, *arrays)
    with pytest.raises(TypeError):
        call(zeros(3), None, *options)
    if name == "impute_row":
        assert not call(zeros(3), None, None, options[1], *given)


def test_wrong_arguments_of_encode_row_are_refused() -> None:
    class Column:
        at = 5

    for row in (zeros(2), None, bytes(24)):
        with pytest.raises((TypeError, ValueError, BufferError)):
            loops.encode_row({}, {}, Column, str, 3, row)
    with pytest.raises(TypeError):
        loops.encode_row([], {}, Column, str, 3, zeros(3))
    assert not loops.encode_row({"a": 1.0}, {"a": Column()}, Column, str, 3, zeros(3))


def test_refused_arrays_are_released() -> None:
    loop, given = least_squares(3), [array("d", [0.0] * n) for n in (9, 6, 2, 6)]
    R, X, y, few = given
    with pytest.raises(ValueError, match="expected 3 numbers"):
        loop.triangle(R, zeros(7), 0)
    with pytest.raises(ValueError, match="expected 2 numbers"):
        loop.learn(2, X, y, None, zeros(7))
    assert not loop.learn_few(2, few, zeros(7), zeros(2))
    for each in given:
        each.append(0.0)  # a BufferError while it is held


def test_packed_states_of_other_sizes_are_refused() -> None:
    loop, codes = least_squares(3), np.zeros(2, dtype=np.int32)
    size, learned = 3 + 3 + 3 + 1 + 3, np.zeros(1, dtype=np.int32)
    good = (2, 1, codes, np.ones((1, size)), zeros(2, 3), zeros(2, 1), None, zeros(2, 1), learned)
    loop.learn_packed(*good)
    assert learned.tolist() == [2]
    wrong: dict[int, Any] = {
        0: HUGE, 1: 2, 2: codes + 1, 3: np.ones((1, size - 1)), 4: zeros(2, 2), 5: zeros(2, 2),
        6: zeros(1), 7: zeros(1, 1), 8: np.zeros(1),
    }  # fmt: skip
    for i, value in wrong.items():
        with pytest.raises(ValueError, match="expected"):
            loop.learn_packed(*good[:i], value, *good[i + 1 :])
    loop.fitted_packed(1, good[3], zeros(3), zeros(3), zeros(1))
    with pytest.raises(ValueError, match="expected"):
        loop.fitted_packed(2, good[3], zeros(3), zeros(3), zeros(1))


def test_states_of_kernels_with_other_sizes_are_refused() -> None:
    d, m, k = 2, 3, 4
    names = (np.ndarray, frozenset(), None, np.float64, None, None)

    def kernel(sizes: Any, m: int, k: int, parts: Any) -> Any:
        constants = (0, 1.0, 3.0, 1.0, 0.1, 0.1, np.inf)
        return loops.Kernel(*constants, sizes, names, m, k, 0, 1, 1.0, tuple(parts))

    good = (zeros(d, m), np.eye(m), zeros(1, m), zeros(k, m), np.ones(m), zeros(1))
    assert kernel((d, 1), m, k, good).predict_one(zeros(d)) == 0.0
    for i in range(len(good)):
        with pytest.raises(ValueError, match="expected"):
            kernel((d, 1), m, k, (*good[:i], zeros(1, 1, 2), *good[i + 1 :]))
    for sizes, rows, columns in (
        ((0, 1), m, k), ((1 << 60, 1), m, k), ((d, 1 << 60), m, k), ((d, 1), -1, k),
        ((d, 1), HUGE, HUGE), ((d, 1), m, m - 1), ((d, 1), m, HUGE),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="a size is out of range"):
            kernel(sizes, rows, columns, good)
    loop = kernel((d, 1), m, k, good)
    for x, y, errors in (
        (zeros(1), zeros(1), zeros(1)), (zeros(d), zeros(2), zeros(1)), (zeros(d), zeros(1), None),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            loop.learn(x, y, 1.0, errors)
    with pytest.raises(BufferError):
        loop.learn(zeros(d), zeros(1), 1.0, bytes(8))


@pytest.mark.parametrize("level", [0.0, 2.0])
def test_block_refused_midway_leaves_loop_unchanged(level: float) -> None:
    d = 9
    loop, X = least_squares(d, 1e-2, level, 5), zeros(40, d)
    X[:, :5] = np.random.default_rng(0).normal(size=(40, 5))  # and nothing of the others
    X[20, 0] = 1e61  # which needs care
    assert loop.learn_few(4, X[:4], X[:4, 0].copy(), zeros(4))
    before = loop_state(loop, d)
    assert not loop.learn_few(40, X, X[:, 0].copy(), zeros(40))
    assert loop_state(loop, d) == before
