"""Streams of tasks: their rows, order and transformations."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from onepass.errors import LabelError, NotFiniteError, ParameterError, ShapeError
from onepass.stream import (
    Experiences,
    Images,
    experiences,
    permuted_mnist,
    rotated_mnist,
    rotation_angles,
    split_mnist,
)
from onepass.stream.digits import rotated
from raising import raises


@pytest.fixture(scope="module")
def images() -> Images:
    """Different pictures: the first pixel is the number of the picture."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (300, 28, 28), dtype=np.uint8)
    pictures[:, 0, 0] = np.arange(300) % 200
    labels = np.tile(np.arange(10, dtype=np.uint8), 30)
    return Images(pictures[:200], labels[:200], pictures[200:], labels[200:])


def which(X: NDArray[Any], pictures: NDArray[np.uint8]) -> list[int]:
    """The places of rows among pictures."""
    flat = pictures.reshape(len(pictures), -1)
    rows = np.rint(X.reshape(len(X), -1) * 255).astype(int)
    found = [np.flatnonzero((flat == row).all(axis=1)) for row in rows]
    assert all(len(places) == 1 for places in found)
    return [int(places[0]) for places in found]


# -- any data by classes --------------------------------------------------------------------------


@given(
    labels=st.lists(st.integers(0, 5), min_size=30, max_size=60),
    cut=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_tasks_partition_the_rows_by_class(labels: list[int], cut: int, seed: int) -> None:
    y = np.array([*range(6), *labels])
    X = np.arange(len(y), dtype=float)[:, None]
    made = experiences(X, y, X, y, [range(cut), range(cut, 6)], seed=seed)
    learned = [X[:, 0] for X in (task.X for task in made)]
    assert sorted(np.concatenate(learned)) == list(range(len(y)))
    for task in made:
        assert_array_equal(y[task.X[:, 0].astype(int)], task.y)
        assert set(task.y) == set(task.classes)
    assert made.classes == tuple(range(6))
    assert made.n_rows == len(y)


def test_rows_per_class_limit_training_and_test_rows() -> None:
    y = np.repeat(["a", "b", "c"], 10)
    X = np.arange(30.0)[:, None]
    made = experiences(X, y, X, y, [["c", "a"]], rows_per_class=4, test_rows_per_class=2)
    task = made[0]
    assert task.classes == ("a", "c")
    assert sorted(task.y) == ["a"] * 4 + ["c"] * 4
    assert len(set(task.X[:, 0])) == 8
    assert sorted(task.y_test) == ["a"] * 2 + ["c"] * 2
    assert task.name == "a–c"


def test_rows_depend_on_the_seed_only() -> None:
    y = np.tile([0, 1], 20)
    X = np.arange(40.0)[:, None]
    one, same, other = (experiences(X, y, X, y, [(0, 1)], seed=seed)[0].X for seed in (3, 3, 4))
    assert_array_equal(one, same)
    assert (one != other).any()


def test_order_of_tasks() -> None:
    y = np.tile([0, 1, 2], 5)
    X = np.arange(15.0)[:, None]
    plain = experiences(X, y, X, y, [[0], [1], [2]])
    turned = experiences(X, y, X, y, [[0], [1], [2]], order=[2, 0, 1])
    for place, task in enumerate([2, 0, 1]):
        assert turned[place].classes == (task,)
        assert_array_equal(turned[place].X, plain[task].X)
    assert len(turned) == 3
    assert turned[-1].classes == (1,)


def test_held_out_takes_the_last_rows_of_each_task() -> None:
    y = np.tile([0, 1], 10)
    X = np.arange(20.0)[:, None]
    made = experiences(X, y, X + 100, y, [[0], [1]])
    held = made.held_out(3)
    for whole, part in zip(made, held, strict=True):
        assert_array_equal(np.concatenate([part.X, part.X_test]), whole.X)
        assert_array_equal(np.concatenate([part.y, part.y_test]), whole.y)
        assert len(part.X_test) == 3


@pytest.mark.parametrize("wrong", [0, 10, 11, 1.5])
def test_invalid_numbers_of_held_out_rows_are_refused(wrong: Any) -> None:
    y = np.tile([0, 1], 10)
    X = np.arange(20.0)[:, None]
    with raises(ParameterError, where="Experiences.held_out", argument="rows"):
        experiences(X, y, X, y, [[0], [1]]).held_out(wrong)


@pytest.mark.parametrize("groups", [[], [[]], [[0, 1], [1]], [[0, 7]], [[0], []]])
def test_invalid_groups_of_classes_are_refused(groups: Any) -> None:
    y = np.tile([0, 1], 10)
    X = np.zeros((20, 1))
    with raises(LabelError, argument="groups"):
        experiences(X, y, X, y, groups)


def test_incompatible_arguments_are_refused() -> None:
    y = np.tile([0, 1], 10)
    X = np.zeros((20, 1))
    with raises(ShapeError, argument="X"):
        experiences(X[:5], y, X, y, [[0]])
    with raises(ShapeError, argument="X_test"):
        experiences(X, y, X, y[:, None], [[0]])
    with raises(ParameterError, argument="rows_per_class", got="11"):
        experiences(X, y, X, y, [[0]], rows_per_class=11)
    with raises(ParameterError, argument="test_rows_per_class"):
        experiences(X, y, X, y, [[0]], test_rows_per_class=0)
    with raises(ParameterError, argument="order", got="[0, 0]"):
        experiences(X, y, X, y, [[0], [1]], order=[0, 0])
    with raises(ShapeError, argument="X", remedy="at least one row"):
        experiences(X[:0], y[:0])
    with pytest.raises(NotFiniteError) as info:
        experiences(X, y, by=np.array(["a", None] * 10, dtype=object))
    assert info.value.row == 1
    for seed in (-1, 1.5, None):
        with raises(ParameterError, argument="seed"):
            experiences(X, y, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_integer_column_of_a_data_frame_holds_classes(library: str) -> None:
    module = pytest.importorskip(library)
    columns = {"a": np.arange(20.0), "n": np.tile([3, 5], 10), "t": np.tile([True, False], 10)}
    frame = (module.table if library == "pyarrow" else module.DataFrame)(columns)
    assert experiences(frame, "n").classes == (3, 5)
    assert experiences(frame, "t", n_tasks=2).classes == (False, True)
    assert experiences(frame, "a", by="n").classes == ()


# -- pictures of digits ---------------------------------------------------------------------------


def test_split_tasks_have_their_own_classes(images: Images) -> None:
    made = split_mnist(images, rows_per_class=5)
    assert [task.classes for task in made] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    rows = [place for task in made for place in which(task.X, images.train_images)]
    assert len(set(rows)) == 50
    task = made[3]
    assert task.X.shape == (10, 784)
    assert task.X.dtype == np.float32
    assert 0 <= task.X.min() < task.X.max() <= 1
    assert_array_equal(images.train_labels[which(task.X, images.train_images)], task.y)
    assert_array_equal(images.test_labels[which(task.X_test, images.test_images)], task.y_test)
    assert len(task.X_test) == 20


def test_as_images_keeps_the_image_shape(images: Images) -> None:
    flat, pictures = split_mnist(images)[1].X, split_mnist(images, as_images=True)[1].X
    assert pictures.shape == (40, 1, 28, 28)
    assert_array_equal(pictures.reshape(40, 784), flat)


def test_rotated_tasks_use_one_angle_each(images: Images) -> None:
    made = rotated_mnist(images, n_tasks=4, degrees=90, rows_per_task=30)
    assert [task.name for task in made] == ["0°", "90°", "180°", "270°"]
    for quarters, task in enumerate(made):
        back = np.rot90(task.X.reshape(-1, 28, 28), -quarters, axes=(1, 2))
        places = which(back, images.train_images)
        assert len(set(places)) == 30
        assert_array_equal(images.train_labels[places], task.y)
        assert task.classes == tuple(range(10))


def test_rotation_is_bilinear_by_default(images: Images) -> None:
    made = rotated_mnist(images, n_tasks=2, degrees=35)
    rows = made.tasks[1].train.rows
    expected = rotated(images.train_images[rows], np.full(len(rows), 35.0), 1) / 255
    assert_allclose(made[1].X, expected.reshape(len(rows), -1), atol=1e-6)


def test_permuted_tasks_use_one_pixel_order_each(images: Images) -> None:
    made = permuted_mnist(images, n_tasks=3, rows_per_task=20)
    which(made[0].X, images.train_images)  # as they were
    for i in (1, 2):
        task, parts = made[i], made.tasks[i]
        plain = images.train_images[parts.train.rows].reshape(20, -1) / np.float32(255)
        tested = images.test_images[parts.test.rows].reshape(100, -1) / np.float32(255)
        order = [np.flatnonzero((plain == column[:, None]).all(axis=0))[0] for column in task.X.T]
        assert sorted(order) == list(range(784))
        assert order != list(range(784))
        assert_array_equal(task.X_test, tested[:, order])  # the same to test
    assert (made[1].X != permuted_mnist(images, n_tasks=2, rows_per_task=20, seed=1)[1].X).any()


def test_angle_ranges_increase_from_task_to_task(images: Images) -> None:
    made = rotation_angles(images, n_tasks=4, degrees=45, rows_per_task=5)
    taken = [int(row) for task in made.tasks for row in task.train.rows]
    assert len(set(taken)) == 20
    assert set(images.train_labels[taken]) == {2}
    for t, task in enumerate(made):
        for angles in (task.y, task.y_test):
            assert t * np.pi / 4 <= angles.min() < angles.max() < (t + 1) * np.pi / 4
        expected = rotated(images.train_images[made.tasks[t].train.rows], np.rad2deg(task.y), 1)
        assert_allclose(task.X * 255, expected.reshape(5, -1), atol=1e-3)
        assert len(task.y_test) == 10
        assert task.classes == ()
    assert made.classes == ()
    assert made[1].name == "45–90°"


@pytest.mark.parametrize("make", [rotated_mnist, permuted_mnist, rotation_angles])
def test_held_out_rows_are_transformed_like_training_rows(make: Any, images: Images) -> None:
    made: Experiences = make(images, n_tasks=3, rows_per_task=6)
    held = made.held_out(2)
    for whole, part in zip(made, held, strict=True):
        assert_array_equal(np.concatenate([part.X, part.X_test]), whole.X)
        assert_array_equal(np.concatenate([part.y, part.y_test]), whole.y)


def test_invalid_arguments_of_image_tasks_are_refused(images: Images) -> None:
    with pytest.raises(ParameterError, match="`rows_per_task` must be at most 200"):
        rotated_mnist(images, rows_per_task=201)
    with raises(ParameterError, argument="test_rows_per_task", got="101"):
        permuted_mnist(images, test_rows_per_task=101)
    with pytest.raises(ParameterError, match="rows_per_task` must be at most 20"):
        rotation_angles(images, n_tasks=3, rows_per_task=7)
    with raises(ParameterError, argument="n_tasks"):
        rotated_mnist(images, n_tasks=0)
    for make in (rotated_mnist, permuted_mnist, rotation_angles):
        with raises(ParameterError, argument="seed"):
            make(images, seed=-1)
    with raises(ParameterError, argument="degrees"):
        rotation_angles(images, degrees=0)
    with raises(ParameterError, argument="order"):
        permuted_mnist(images, n_tasks=2, order=[1])


mnist = pytest.mark.skipif(
    not (Path(os.environ.get("ONEPASS_DATA", "absent")) / "mnist").is_dir(),
    reason="needs MNIST in the folder named by ONEPASS_DATA",
)


@mnist
def test_mnist_is_loaded_by_default() -> None:
    made = split_mnist()
    assert made.n_rows == 60000
    assert [len(task.train.rows) for task in made.tasks] == [12665, 12089, 11263, 12183, 11800]
    task = made[0]
    assert task.X_test.shape == (2115, 784)
    assert len(rotated_mnist(rows_per_task=10)) == 15
    assert rotation_angles()[8].X_test.shape == (1032, 784)
