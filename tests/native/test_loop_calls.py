"""Calls of the compiled loops with invalid arguments are refused."""

from typing import Any

import numpy as np
import pytest

from onepass import native

loops: Any = native.loops
pytestmark = pytest.mark.skipif(loops is None, reason="the compiled loops are not installed")

HUGE = 1 << 32  # its square is 0 in 64 bits


def zeros(*shape: int) -> Any:
    return np.zeros(shape)


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
        ("class_coefficients", (0, 3, -1, zeros(0), 0, 0.0, 1.0, None, zeros(5, 8))),
        ("class_coefficients", (0, 3, -1, zeros(1), 0, 0.0, 1.0, None, zeros(5, 8))),
        ("class_linear_scores", (-1, 3, zeros(8), 1, zeros(3), zeros(0))),
        (
            "class_quadratic_scores",
            (1, -1, zeros(0), (zeros(72),), zeros(1), 1, zeros(0), zeros(1)),
        ),
        ("class_quadratic_scores", (1, 1, zeros(5), (), zeros(1), 1, zeros(1), zeros(1))),
        ("class_factor", (-3, zeros(9), 1.0, 0.0, zeros(72))),
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
    counts, flags = np.ones(3, dtype=np.int64), np.full(3, -1)
    doubles = [zeros(3) + (i == 0) for i in range(7)]
    given = [zeros(3), counts, flags, zeros(3), zeros(3), counts.copy()]
    given = doubles if name == "scale_row" else given
    options = (False, True) if name == "scale_row" else ("mean", False)
    call = getattr(loops, name)
    assert call(zeros(3), None, *options, *given)
    assert not call(zeros(4), None, *options, *given)
    for i in range(len(given)):
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
