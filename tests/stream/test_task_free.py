"""Blurred and task-free streams contain every row once, transformed by its own task."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from onepass.errors import ParameterError
from onepass.stream import (
    Experiences,
    Images,
    blurred,
    experiences,
    permuted_mnist,
    rotated_mnist,
    split_mnist,
    task_free,
)
from raising import raises


def lined(n: int, tasks: int) -> Experiences:
    """n rows a class, whose only feature is their place."""
    y = np.repeat(np.arange(tasks), n)
    X = np.arange(len(y), dtype=float)[:, None]
    return experiences(X, y, X, y, [(c,) for c in range(tasks)], shuffle=False)


@given(
    n=st.integers(2, 30),
    tasks=st.integers(1, 5),
    share=st.floats(0.0, 0.5),
    seed=st.integers(0, 99),
)
def test_blurred_tasks_exchange_rows_with_their_neighbours(
    n: int, tasks: int, share: float, seed: int
) -> None:
    sharp = lined(n, tasks)
    made = blurred(sharp, share, seed=seed)
    rows = [task.X[:, 0] for task in made]
    assert sorted(np.concatenate(rows)) == list(range(n * tasks))
    given_away = int(share * n)
    for t, task in enumerate(made):
        assert len(task.y) == n
        assert_array_equal(task.y, task.X[:, 0] // n)
        for side in (t - 1, t + 1):
            expected = given_away if 0 <= side < tasks else 0
            assert (task.y == side).sum() == expected
        assert task.classes == (t,)
        assert_array_equal(task.y_test, sharp[t].y_test)
    assert made.borders


@given(
    n=st.integers(4, 30),
    tasks=st.integers(1, 5),
    blocks=st.integers(1, 4),
    width=st.floats(0.0, 3.0),
    seed=st.integers(0, 99),
)
def test_task_free_stream_contains_every_row_once(
    n: int, tasks: int, blocks: int, width: float, seed: int
) -> None:
    sharp = lined(n, tasks)
    made = task_free(sharp, blocks, width=width, seed=seed)
    rows = np.concatenate([block.X[:, 0] for block in made])
    assert sorted(rows) == list(range(n * tasks))
    assert_array_equal(np.concatenate([block.y for block in made]), rows // n)
    sizes = [len(block.y) for block in made]
    assert max(sizes) - min(sizes) <= 1
    assert len(made) == blocks
    assert len(made.when) == tasks
    assert all(0 <= i < blocks for i in made.when)
    assert not made.borders
    for test_set, task in zip(made.test_sets(), sharp, strict=True):
        assert test_set.classes == task.classes
        assert_array_equal(test_set.y, task.y_test)
    if width == 0.0:
        assert_array_equal(rows, np.arange(n * tasks))


def test_width_of_task_free_streams() -> None:
    n, width = 5000, 0.3
    made = task_free(lined(n, 2), 1, width=width)
    labels = made[0].y
    # near the border, half of the rows are of each task; a deviation away, five of six of one
    middle = labels[n - 200 : n + 200].mean()
    later = labels[int(n + width * n) - 100 : int(n + width * n) + 100].mean()
    assert middle == pytest.approx(0.5, abs=0.1)
    assert later == pytest.approx(0.841, abs=0.1)


def test_rows_keep_the_transformation_of_their_own_task() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    labels = np.tile(np.arange(10, dtype=np.uint8), 4)
    images = Images(pictures, labels, pictures, labels)
    makers = (
        permuted_mnist(images, n_tasks=3),
        rotated_mnist(images, n_tasks=3, degrees=20.0),
        split_mnist(images),
    )
    for sharp in makers:
        known = {x.tobytes(): y for task in sharp for x, y in zip(task.X, task.y, strict=True)}
        n = sum(len(task.y) for task in sharp)
        for made in (blurred(sharp, 0.3), task_free(sharp, 7)):
            seen = [(x.tobytes(), y) for task in made for x, y in zip(task.X, task.y, strict=True)]
            assert len(seen) == n
            assert all(known[x] == y for x, y in seen)
            assert len({x for x, _ in seen}) == len(known)
            assert made.digest != sharp.digest


def test_digest_is_equal_for_equal_streams_only() -> None:
    assert lined(5, 2).digest == lined(5, 2).digest
    assert lined(5, 2).digest != lined(6, 2).digest
    assert blurred(lined(9, 2), 0.3).digest != blurred(lined(9, 2), 0.3, seed=1).digest


def test_incompatible_arguments_are_refused() -> None:
    free = task_free(lined(10, 2), 4)
    with raises(
        ParameterError,
        argument="experiences",
        got="'experiences, task-free', which has no boundaries",
    ):
        blurred(free)
    with raises(
        ParameterError,
        argument="experiences",
        got="'experiences, task-free', which has no boundaries",
    ):
        task_free(free)
    with raises(ParameterError, argument="share"):
        blurred(lined(5, 2), 0.6)
    with raises(ParameterError, argument="blocks", got="21"):
        task_free(lined(10, 2), 21)
    for make in (blurred, task_free):
        with raises(ParameterError, argument="seed"):
            make(lined(10, 2), seed=-1)
    with raises(ParameterError, remedy="Hold out rows"):
        free.held_out(1)
