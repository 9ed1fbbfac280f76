"""Rows are selected and joined like their arrays; positions and locations follow them."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from onepass.validation.rows import Rows, concatenate_rows
from onepass.validation.table import Table


def drawn(rng: np.random.Generator) -> Rows:
    """Rows of a table or an array, with some of the optional parts."""
    n = int(rng.integers(0, 40))
    matrix = rng.normal(size=(n, 2))
    X: Any = Table({"a": matrix[:, 0], "b": matrix[:, 1]}, n) if rng.random() < 0.5 else matrix
    numbers = np.sort(rng.choice(1000, n, replace=False)) if rng.random() < 0.5 else None
    weight = rng.random(n) if rng.random() < 0.5 else None
    first = int(rng.integers(0, 50)) if numbers is None or not n else int(numbers[0])
    y, time = rng.normal(size=n), np.arange(n) / 2.0
    return Rows(X, y, weight=weight, time=time, first=first, numbers=numbers, place="row {}".format)


def values(rows: Rows) -> list[tuple[Any, ...]]:
    """Each row with all its parts."""
    X = rows.X if isinstance(rows.X, np.ndarray) else np.column_stack(list(rows.X.columns.values()))
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    time = np.zeros(len(rows)) if rows.time is None else rows.time
    places = [rows.located(i) for i in range(len(rows))]
    parts = (rows.positions, weight, time, rows.y)
    return [tuple(x) for x in zip(*X.T.tolist(), *(p.tolist() for p in parts), places, strict=True)]


@pytest.mark.parametrize("key", [slice(None), slice(3, 17), slice(-5, None), slice(None, None, 3),
                                 slice(50, 60), "mask", "indices"])  # fmt: skip
def test_selected_rows_keep_their_parts(key: Any, rng: np.random.Generator) -> None:
    for _ in range(30):
        rows = drawn(rng)
        if key == "mask":
            chosen: Any = rng.random(len(rows)) < 0.5
        elif key == "indices":
            chosen = rng.permutation(len(rows))
        else:
            chosen = key
        expected = [values(rows)[i] for i in np.arange(len(rows))[chosen]]
        assert values(rows[chosen]) == expected


def test_concatenated_parts_are_the_rows(rng: np.random.Generator) -> None:
    for _ in range(50):
        rows = drawn(rng)
        cuts = np.sort(rng.integers(0, len(rows) + 1, 3)).tolist()
        edges = [0, *cuts, len(rows)]
        parts = [rows[a:b] for a, b in pairwise(edges)]
        assert values(concatenate_rows(parts)) == values(rows)


def test_parts_that_do_not_follow_each_other_keep_their_positions() -> None:
    parts = [Rows(np.zeros((2, 1)), first=0), Rows(np.zeros((2, 1)), first=7)]
    assert concatenate_rows(parts).positions.tolist() == [0, 1, 7, 8]


def test_missing_targets_take_the_type_of_text() -> None:
    text = Rows(np.zeros((1, 1)), np.array(["a"], dtype=object))
    assert concatenate_rows([Rows(np.zeros((1, 1)), np.array([np.nan])), text]).y.tolist() == [
        None, "a",
    ]  # fmt: skip
    numbers = Rows(np.zeros((1, 1)), np.array([1.0]))
    assert concatenate_rows([numbers, text]).y.tolist() == [1.0, "a"]
