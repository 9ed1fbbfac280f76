"""Measures of a matrix, compared with hand-computed values and formulas as loops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass.evaluate.continual_measures import MEASURES, TaskScores


def by_loops(R: NDArray[Any], b: NDArray[Any]) -> dict[str, float]:
    """The papers' formulas, with i and j from 1 to T."""
    T = len(R)
    at = lambda i, j: R[i - 1, j - 1]  # noqa: E731  as the papers write it
    past = range(1, T)
    every = range(1, T + 1)
    lower = [(i, j) for i in every for j in every if i > j]
    return {
        "average": sum(at(T, j) for j in every) / T,
        "average_incremental": sum(sum(at(i, j) for j in range(1, i + 1)) / i for i in every) / T,
        "forgetting": sum(max(at(i, j) for i in range(j, T)) - at(T, j) for j in past) / (T - 1),
        "backward_transfer": sum(at(T, j) - at(j, j) for j in past) / (T - 1),
        "forward_transfer": sum(at(j - 1, j) - b[j - 1] for j in range(2, T + 1)) / (T - 1),
        "whole_average": sum(at(i, j) for i in every for j in range(1, i + 1)) * 2 / (T * (T + 1)),
        "whole_backward_transfer": sum(at(i, j) - at(j, j) for i, j in lower) * 2 / (T * (T - 1)),
        "whole_forward": sum(at(j, i) for i, j in lower) * 2 / (T * (T - 1)),
    }


@given(T=st.integers(2, 6), seed=st.integers(0, 999))
def test_measures_equal_the_formulas_of_the_papers(T: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    R, b = rng.random((T, T)), rng.random(T)
    known = TaskScores(R, b, np.arange(T), 1.0)
    expected = by_loops(R, b)
    assert expected.keys() == MEASURES.keys()
    for name, value in expected.items():
        assert MEASURES[name](known) == pytest.approx(value)


def test_measures_of_an_error_matrix() -> None:
    R, b = np.array([[1.0, 5.0], [3.0, 0.5]]), np.array([4.0, 6.0])
    known = TaskScores(R, b, np.arange(2), -1.0)
    assert MEASURES["average"](known) == 1.75
    assert MEASURES["forgetting"](known) == 2.0
    assert MEASURES["backward_transfer"](known) == -2.0
    assert MEASURES["forward_transfer"](known) == 1.0


def test_measures_with_untested_tasks() -> None:
    nan = np.nan
    R, b = np.array([[0.9, 0.1, nan], [0.8, 0.9, 0.2], [0.7, 0.8, 0.9]]), np.array([0.0, nan, nan])
    known = TaskScores(R, b, np.arange(3), 1.0)
    assert MEASURES["average"](known) == pytest.approx(0.8)
    assert MEASURES["forgetting"](known) == pytest.approx(0.15)
    assert np.isnan(MEASURES["forward_transfer"](known))


def test_measures_of_a_single_task() -> None:
    known = TaskScores(np.array([[0.5]]), np.array([0.0]), np.arange(1), 1.0)
    assert MEASURES["average"](known) == 0.5
    assert np.isnan(MEASURES["forgetting"](known))
    assert np.isnan(MEASURES["forward_transfer"](known))


def test_task_free_measures_count_from_the_first_block_of_a_task() -> None:
    R = np.array([[0.5, 0.0], [0.9, 0.1], [0.8, 0.6], [0.6, 0.9]])
    known = TaskScores(R, np.zeros(2), np.array([1, 3]), 1.0)
    assert MEASURES["forgetting"](known) == pytest.approx(0.3)
    assert MEASURES["backward_transfer"](known) == pytest.approx(-0.3)
    assert MEASURES["forward_transfer"](known) == pytest.approx((0.5 + 0.6) / 2)
    assert MEASURES["average_incremental"](known) == pytest.approx((0.9 + 0.8 + 0.75) / 3)
