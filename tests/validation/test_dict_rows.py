"""Rows as dicts: the fast path for numbers equals the conversion by tables."""

from collections import defaultdict
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onepass import native, validation
from onepass.errors import ColumnError, NotFiniteError, OnepassError, TypeMismatchError
from onepass.validation.table import Table

NAMES = ["a", "b", "c"]
VALUES = st.one_of(
    st.floats(),
    st.integers(-(10**310), 10**310),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.floats(width=32).map(np.float32),
    st.integers(-9, 9).map(Decimal),
)


def as_table(row: dict[Any, Any]) -> Any:
    try:
        return validation.matrix(Table.from_rows([row]), d=3, names=NAMES)[0].ravel()
    except OnepassError as error:
        return type(error), str(error)


def as_row(row: dict[Any, Any]) -> Any:
    try:
        return validation.row_vector(row, d=3, names=NAMES)
    except OnepassError as error:
        return type(error), str(error)


@given(st.dictionaries(st.sampled_from([*NAMES, "d"]), VALUES))
@example({"a": 10**310, "b": 1.0, "c": 1.0})
def test_dict_equals_table_of_one_row(row: dict[str, Any]) -> None:
    one, other = as_row(row), as_table(row)
    if isinstance(other, tuple):
        assert one == other
    else:
        np.testing.assert_array_equal(one, other)
        assert one.dtype == np.float64


@given(st.dictionaries(st.sampled_from([*NAMES, "d"]), VALUES))
@example({"a": 10**310, "b": 1.0, "c": 1.0})
def test_dict_without_compiled_loop_gives_equal_row(row: dict[str, Any]) -> None:
    one = as_row(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", None)
        other = as_row(row)
    if isinstance(other, tuple):
        assert one == other
    else:
        np.testing.assert_array_equal(one, other)


@given(st.permutations(NAMES), st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3))
def test_order_of_keys_does_not_matter(order: list[str], values: list[float]) -> None:
    row = dict(zip(NAMES, values, strict=True))
    assert as_row({name: row[name] for name in order}).tolist() == values


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"a": 1.0, "b": 2.0, "c": float("nan")}, NotFiniteError),
        ({"a": 1.0, "b": 2.0, "c": None}, NotFiniteError),
        ({"a": 1.0, "b": 2.0, "c": "3"}, TypeMismatchError),
        ({"a": 1.0, "b": 2.0}, ColumnError),
        ({"a": 1.0, "b": 2.0, "d": 3.0}, ColumnError),
        ({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, ColumnError),
    ],
)
def test_invalid_rows_are_refused(row: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"column|row|`x`"):
        validation.row_vector(row, d=3, names=NAMES)


def test_defaultdict_gets_no_new_keys() -> None:
    row = defaultdict(float, a=1.0, b=2.0)
    with pytest.raises(ColumnError):
        validation.row_vector(row, d=3, names=NAMES)
    assert list(row) == ["a", "b"]
