"""Inference of the task from the targets consumes no rows."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onepass import stream


def text(answers: list[Any]) -> io.StringIO:
    return io.StringIO("x,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(answers)))


@pytest.mark.parametrize(
    ("answers", "task"),
    [
        (["up", "down"], "classification"),
        (["true", "false"], "classification"),
        ([0, 1, 1], "classification"),
        (["", 1, 0], "classification"),
        ([0, 0, 0], "regression"),
        ([1, 2], "regression"),
        ([0, 1, 2], "regression"),
        ([0.5, 1], "regression"),
    ],
)
@pytest.mark.parametrize("block", [1, 1024])
def test_inferred_task_does_not_depend_on_the_block_size(
    answers: list[Any], task: str, block: int
) -> None:
    assert stream.read(text(answers), target="y", block=block).task == task


@pytest.mark.parametrize("block", [1, 700, 5000])
def test_task_is_inferred_from_1024_rows(block: int) -> None:
    def task(at: int) -> str | None:
        answers = [0, 1] * 2000
        answers[at] = 7
        return stream.read(text(answers), target="y", block=block).task

    assert [task(1023), task(1024)] == ["regression", "classification"]


@pytest.mark.parametrize("block", [3, 1024])
def test_task_inference_consumes_no_rows(block: int) -> None:
    answers = list(range(3000))

    def pairs() -> Iterator[tuple[Any, float]]:
        yield from ((np.ones(2), float(y)) for y in answers)

    for source, target in ((text(answers), "y"), (pairs(), None)):
        rows = stream.read(source, target=target, block=block)
        assert rows.task == rows.task == "regression"
        seen = [y for each in rows for y in each.y.tolist()]
        assert seen == answers
        assert rows.rows_read == 3000
        assert rows.fraction == 1.0


def test_task_is_none_without_targets() -> None:
    assert stream.read(text([1, 2])).task is None


def test_task_of_data_sets() -> None:
    assert stream.dataset("flights").task == "regression"
    assert stream.read("flights", target="carrier").task == "classification"
    assert stream.read("flights", target=()).task is None


def test_several_numeric_targets_are_regression() -> None:
    bits = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert stream.read((bits, bits)).task == "regression"
