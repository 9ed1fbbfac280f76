"""Encoding of trees: every value is restored exactly, and invalid encodings are refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onepass.errors import CheckpointError
from onepass.serialization.archive import DEPTH, join, split
from raising import raises

numbers = st.one_of(hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes())
others = hnp.unicode_string_dtypes() | hnp.datetime64_dtypes(max_period="s")
dtypes = st.one_of(numbers, hnp.boolean_dtypes(), others).filter(
    lambda dtype: dtype.kind != "f" or dtype.itemsize <= 8
)
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
objects = hnp.arrays(object, hnp.array_shapes(max_dims=2, max_side=3), elements=scalars)
keys = st.sampled_from(["$", "@", "__metadata__", "a.b", "a", "b", "", "é", "\ud800", "sha256"])
trees = st.recursive(
    scalars | arrays | objects,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=8,
)


def comparable(tree: Any) -> Any:
    """A tree in a form that compares types, dtypes, shapes and comparable."""
    if isinstance(tree, np.ndarray):
        native = tree.astype(tree.dtype.newbyteorder("="))
        inside = comparable(tree.ravel().tolist()) if tree.dtype.kind == "O" else native.tobytes()
        return "array", str(native.dtype), tree.shape, inside
    if isinstance(tree, (list, tuple)):
        return type(tree), [comparable(part) for part in tree]
    if isinstance(tree, dict):
        return dict, [(key, comparable(part)) for key, part in tree.items()]
    return type(tree), repr(tree)


def same(a: Any, b: Any) -> bool:
    return bool(comparable(a) == comparable(b))


@given(trees)
def test_round_trip(tree: Any) -> None:
    assert same(tree, join(*split(tree, "m.onepass"), "m.onepass"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int8(-3), -3),
        (np.True_, True),
        (np.str_("a"), "a"),
        (np.datetime64("2020-01-02T03", "h"), np.datetime64("2020-01-02T03", "h")),
        (2**200, 2**200),
        (-(2**200), -(2**200)),
        (-0.0, -0.0),
    ],
)
def test_numpy_scalars_become_python_scalars(value: Any, expected: Any) -> None:
    assert same(join(*split({"x": value}, "f"), "f")["x"], expected)


def test_memory_layout_is_preserved() -> None:
    block = np.arange(24.0).reshape(2, 3, 4)
    for array in (block, block.T, np.asfortranarray(block), block.transpose(1, 0, 2)):
        again = join(*split(array, "f"), "f")
        np.testing.assert_array_equal(again, array)
        assert again.strides == array.strides


@pytest.mark.parametrize("part", [np.s_[::2], np.s_[:, ::-1], np.s_[1:, :2], np.s_[:, 0]])
def test_views_are_stored_by_value(part: Any) -> None:
    view = np.arange(20.0).reshape(4, 5)[part]
    np.testing.assert_array_equal(join(*split(view, "f"), "f"), view)


def test_big_endian_arrays_become_native() -> None:
    again = join(*split(np.arange(3, dtype=">f8"), "f"), "f")
    assert again.dtype == np.dtype("=f8")
    np.testing.assert_array_equal(again, np.arange(3.0))


def test_names_of_arrays_are_unique_paths() -> None:
    one = np.ones(1)
    tree = {"memory_": {"Q": one}, "memory_.Q": 2 * one, "__metadata__": 3 * one, "": 4 * one}
    encoded, found = split(tree, "f")
    assert sorted(found) == ["'", "__metadata__'", "memory_.Q", "memory_.Q'"]
    assert same(join(encoded, found, "f"), tree)


wide = pytest.mark.skipif(
    np.dtype(np.longdouble).itemsize == 8, reason="longdouble is float64 here"
)


class _Odd(dict[str, int]):
    pass


@pytest.mark.parametrize(
    ("tree", "fields"),
    [
        ({"memory_": {"Q": object()}}, {"where": "m.onepass", "got": "object"}),
        ({"steps": [1, {2: 3}]}, {"got": "a dict with the key 2"}),
        ({"a": np.ones(2, complex)}, {"argument": "a", "got": "an array of complex128"}),
        pytest.param(
            {"a": np.ones(2, np.longdouble)},
            {"argument": "a", "got": "an array of float"},
            marks=wide,
        ),
        pytest.param({"a": np.longdouble(1)}, {"argument": "a", "got": "longdouble"}, marks=wide),
        ({"a": np.array([b"x"])}, {"argument": "a", "got": "an array of |S1"}),
        ({"a": np.array([None, {}])}, {"argument": "a", "got": "an array that contains a dict"}),
        ({"a": np.zeros(1, "m8[s]")}, {"argument": "a", "got": "an array of timedelta64[s]"}),
        ({"a": {1, 2}}, {"argument": "a", "got": "set"}),
        ({"a": b"x"}, {"argument": "a", "got": "bytes"}),
        ({"a": 1j}, {"argument": "a", "got": "complex"}),
        ({"a": _Odd()}, {"argument": "a", "got": "_Odd"}),
        ({"a": np.ma.ones(2)}, {"argument": "a", "got": "MaskedArray"}),
        (print, {"got": "builtin_function_or_method"}),
    ],
)
def test_unsupported_values_are_refused_with_their_path(tree: Any, fields: dict[str, Any]) -> None:
    with raises(CheckpointError, **fields):
        split(tree, "m.onepass")


def test_circular_reference_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(CheckpointError, match=f"more than {DEPTH} levels, perhaps with a circular"):
        split({"a": circle}, "f")


REF = {"$": "array", "name": "a"}


@pytest.mark.parametrize(
    "encoded",
    [
        {"$": "what"},
        {"$": None},
        {"$": []},
        {"$": REF},
        {"$": "float", "value": "1.0"},
        {"$": "float", "value": 1.0},
        {"$": "float", "value": []},
        {"$": "float"},
        {"$": "float", "value": "nan", "more": 1},
        {"$": "int", "value": "x"},
        {"$": "int", "value": 5},
        {"$": "tuple", "items": {}},
        {"$": "tuple", "items": "ab"},
        {"$": "dict", "items": []},
        {"$": "array", "name": "b"},
        {"$": "array", "name": ["a"]},
        {"$": "array", "name": {}},
        {"$": "array"},
        [REF, REF],
        [],
        {**REF, "axes": [0]},
        {**REF, "axes": [0, 0]},
        {**REF, "axes": [1, 2]},
        {**REF, "axes": [False, True]},
        {**REF, "axes": "01"},
        {**REF, "dtype": "datetime64[s]"},
        {**REF, "dtype": "<U5"},
        {**REF, "dtype": "<U999999999"},
        {**REF, "dtype": "O"},
        {**REF, "dtype": 3},
        {"$": "scalar", "of": REF, "x": 1},
        {"$": "scalar", "of": {"$": "float", "value": "nan"}},
        {"$": "scalar", "of": 3},
        {"$": "objects", "shape": [2], "items": [1]},
        {"$": "objects", "shape": [-1], "items": [1]},
        {"$": "objects", "shape": [1.0], "items": [1]},
        {"$": "objects", "shape": [True], "items": [1]},
        {"$": "objects", "shape": 1, "items": [1]},
        {"$": "objects", "shape": [1], "items": [[1]]},
        {"$": "objects", "shape": [1], "items": 7},
        {"$": "objects", "shape": [0, 10**30], "items": []},
        {"$": "objects", "shape": [1] * 90, "items": [1]},
    ],
)
def test_invalid_encodings_are_refused(encoded: Any) -> None:
    with pytest.raises(CheckpointError, match=r"m\.onepass: must be an intact file of onepass"):
        join(encoded, {"a": np.zeros((2, 3))}, "m.onepass")


def test_invalid_dates_text_and_booleans_are_refused() -> None:
    text = {**REF, "dtype": "<U1"}
    for encoded, array in [
        (text, np.array([[0x110000]], dtype=np.uint32)),
        (text, np.array(1, dtype=np.uint32)),
        ({**REF, "dtype": "datetime64[0s]"}, np.zeros(1, np.int64)),
        (REF, np.array([2], dtype=np.uint8).view(bool)),
    ]:
        with raises(CheckpointError, got="a damaged"):
            join(encoded, {"a": array}, "f")


def test_deep_tree_is_refused() -> None:
    encoded: Any = 1
    for _ in range(DEPTH + 2):
        encoded = [encoded]
    with raises(CheckpointError, got="a damaged one: more than 100 levels"):
        join(encoded, {}, "f")
