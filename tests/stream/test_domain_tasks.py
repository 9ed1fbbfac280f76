"""Tasks by ranges and keys, with inferred classes, of data frames, and without test rows."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from onepass.errors import ColumnError, LabelError, NotFiniteError, ParameterError, ShapeError
from onepass.stream import Images, experiences, split_fashion_mnist, split_mnist


@given(
    key=st.lists(st.integers(0, 50), min_size=40, max_size=80),
    cuts=st.lists(st.integers(10, 40), min_size=1, max_size=3, unique=True),
    seed=st.integers(0, 99),
)
def test_ranges_partition_the_rows(key: list[int], cuts: list[int], seed: int) -> None:
    X = np.array([*key, *range(51), *range(51)], dtype=float)[:, None]
    edges = np.array(sorted(cuts))
    made = experiences(X, X[:, 0] * 2.0, X, X[:, 0] * 2.0, by=0, cuts=sorted(cuts), seed=seed)
    assert len(made) == len(cuts) + 1
    rows = np.concatenate([task.X[:, 0] for task in made])
    assert_array_equal(np.sort(rows), np.sort(X[:, 0]))
    for t, task in enumerate(made):
        assert (np.searchsorted(edges, task.X[:, 0], side="right") == t).all()
        assert_array_equal(task.y, 2.0 * task.X[:, 0])
        assert task.classes == ()


def test_quantiles_give_tasks_of_equal_size() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    made = experiences(X, X.sum(axis=1), by=2, n_tasks=5)
    assert [len(task.y) for task in made] == [80] * 5
    assert all(18 <= len(task.y_test) <= 22 for task in made)
    ends = [(task.X[:, 2].min(), task.X[:, 2].max()) for task in made]
    assert all(a[1] < b[0] for a, b in pairwise(ends))
    assert made[0].name.startswith("x2 < ")
    everything = np.concatenate([rows for task in made for rows in (task.X, task.X_test)])
    assert len(np.unique(everything, axis=0)) == 500


def test_key_values_define_tasks() -> None:
    X = np.arange(60.0)[:, None]
    site = np.repeat(["north", "south", "east"], 20)
    y = np.tile([0, 1], 30)
    made = experiences(X, y, by=site, order=[2, 0, 1])
    assert [task.name for task in made] == ["key = south", "key = east", "key = north"]
    assert all(task.classes == (0, 1) for task in made)
    assert all((len(task.y), len(task.y_test)) == (16, 4) for task in made)
    same = experiences(X, y, X, y, by=site, by_test=site, shuffle=False)
    assert_array_equal(same[0].X[:, 0], np.arange(40, 60))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_keep_their_column_names(library: str) -> None:
    frames = pytest.importorskip(library)
    columns = {
        "angle": np.linspace(0.0, 1.0, 50),
        "tool": ["saw", "drill"] * 25,
        "force": np.linspace(5.0, 6.0, 50),
    }
    made = experiences(frames.DataFrame(columns), "force", by="angle", n_tasks=2)
    assert made[0].X.names == ["angle", "tool"]
    assert made[0].X["angle"].max() < made[1].X["angle"].min()
    assert made[0].y.max() < made[1].y.min()
    by_tool = experiences(frames.DataFrame(columns), "force", by="tool", seed=1)
    assert [task.name for task in by_tool] == ["tool = drill", "tool = saw"]
    assert (
        by_tool.digest == experiences(frames.DataFrame(columns), "force", by="tool", seed=1).digest
    )
    with pytest.raises(ColumnError, match="anglle"):
        experiences(frames.DataFrame(columns), "force", by="anglle")


def test_tasks_of_a_data_frame_are_learned_by_a_pipeline() -> None:
    pd = pytest.importorskip("pandas")
    import onepass as op

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=300), "kind": rng.choice(["a", "b"], 300)})
    frame["y"] = 3.0 * frame.x + (frame.kind == "a")
    tasks = experiences(frame, "y", by="x", n_tasks=3)
    model = op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-9))
    report = op.evaluate.continual(model, tasks)
    assert report.average_error < 1e-6


def test_classes_are_inferred() -> None:
    y = np.repeat(np.arange(6), 10)
    X = np.arange(60.0)[:, None]
    assert [task.classes for task in experiences(X, y)] == [(0, 1), (2, 3), (4, 5)]
    assert [task.classes for task in experiences(X, y, n_tasks=2)] == [(0, 1, 2), (3, 4, 5)]
    assert [len(task.y_test) for task in experiences(X, y, test_share=0.3)] == [6] * 3
    orders = {tuple(t.classes for t in experiences(X, y, order="random", seed=s)) for s in range(9)}
    assert len(orders) > 2


def test_labels_within_tasks_are_shared() -> None:
    y = np.repeat(["a", "b", "c", "d"], 5)
    X = np.arange(20.0)[:, None]
    made = experiences(X, y, X, y, [("d", "a"), ("b", "c")], within=True)
    assert [task.name for task in made] == ["a–d", "b–c"]
    assert made.classes == (0, 1)
    for task in made:
        assert_array_equal(task.y, np.isin(task.X[:, 0] // 5, [2, 3]))


def test_fashion_mnist_is_split_like_mnist() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    labels = np.tile(np.arange(10, dtype=np.uint8), 4)
    images = Images(pictures, labels, pictures, labels)
    clothes, digits = split_fashion_mnist(images, seed=3), split_mnist(images, seed=3)
    assert clothes.name == "Split Fashion-MNIST"
    for one, other in zip(clothes, digits, strict=True):
        assert_array_equal(one.X, other.X)
    assert split_mnist(images, within=True).classes == (0, 1)


X20, Y20 = np.arange(20.0)[:, None], np.repeat([0, 1], 10)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"y": Y20 * 0.5}, ParameterError, "`by` must define"),
        ({"by": np.ones(3)}, ShapeError, "a key for each row"),
        ({"by": 0, "groups": [(0,)]}, ParameterError, "omitted with `by`"),
        ({"cuts": [1.0]}, ParameterError, "require `by`"),
        ({"by": 0, "cuts": [3.0, 1.0]}, ParameterError, "must increase"),
        ({"by": 0, "cuts": [50.0]}, ParameterError, "got none for 'x0 ≥ 50'"),
        ({"by": Y20, "n_tasks": 5}, ParameterError, "must increase"),
        ({"by": np.where(Y20, np.nan, 1.0)}, NotFiniteError, "in row 1"),
        ({"n_tasks": 3}, ParameterError, "at most 2"),
        ({"n_tasks": 1, "groups": [(0,)]}, ParameterError, "omitted with `groups`"),
        ({"groups": [(0, 7)]}, LabelError, "have none"),
        ({"test_share": 0.0}, ParameterError, "test_share"),
        ({"X_test": X20}, ParameterError, "both or not at all"),
        ({"order": [0, 0]}, ParameterError, "permutation"),
    ],
)
def test_incompatible_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    given = {"X": X20, "y": Y20, **arguments}
    with pytest.raises(error, match=match):
        experiences(given.pop("X"), given.pop("y"), **given)
