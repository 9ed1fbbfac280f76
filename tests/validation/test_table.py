"""Tables: values of any container become one of four kinds of column."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from onepass.errors import NumericalError, TypeMismatchError
from onepass.validation.table import Table, to_column
from raising import raises


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 3],
        [1.0, float("nan"), 3],
        [Decimal(1), Decimal("nan"), Decimal(3)],
        [np.float32(1), None, np.int8(3)],
        [1, pd.NA, 3],
        [True, None, 3],
    ],
    ids=["int", "float", "decimal", "numpy", "pandas", "bool"],
)
def test_numbers_of_all_types_are_float64(values: list[Any]) -> None:
    np.testing.assert_array_equal(to_column(values, "a"), [1.0, np.nan, 3.0])


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_missing_text_is_none(gap: Any) -> None:
    assert to_column(["x", gap, np.str_("y")], "a").tolist() == ["x", None, "y"]


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NaT, np.datetime64("NaT"), pd.NA])
def test_missing_dates_are_nat(gap: Any) -> None:
    column = to_column([dt.date(2020, 1, 2), gap], "a")
    assert column.dtype == np.dtype("datetime64[us]")
    assert column[0] == np.datetime64("2020-01-02")
    assert np.isnat(column[1])


def test_empty_columns_are_float64() -> None:
    np.testing.assert_array_equal(to_column([None, None], "a"), [np.nan, np.nan])
    assert to_column([], "a").dtype == np.float64


def test_integers_beyond_float64_are_refused() -> None:
    with pytest.raises(NumericalError, match="'a' must contain numbers within float64"):
        to_column([1, 10**400], "a")


def test_mixed_columns_are_refused() -> None:
    with raises(TypeMismatchError, got="int, str"):
        to_column([1, "x"], "a")


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}),
        pd.DataFrame({"a": pd.array([1, None, 3], dtype="Float32")}),
        pd.DataFrame({"a": [1.0, np.nan, 3.0]}),
        pd.DataFrame({"a": np.array([1, None, 3], dtype=object)}),
        pl.DataFrame({"a": [1, None, 3]}),
        pl.DataFrame({"a": pl.Series([1, None, 3], dtype=pl.Int128)}),
        pl.DataFrame({"a": [Decimal(1), None, Decimal(3)]}),
        pa.table({"a": pa.array([1, None, 3], pa.uint8())}),
    ],
    ids=["Int64", "Float32", "float", "object", "polars", "Int128", "decimal", "arrow"],
)
def test_numbers_of_frames_are_float64(frame: Any) -> None:
    np.testing.assert_array_equal(Table.from_frame(frame)["a"], [1.0, np.nan, 3.0])


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [True, False]}),
        pd.DataFrame({"a": pd.array([True, False], dtype="boolean")}),
        pl.DataFrame({"a": [True, False]}),
        pa.table({"a": [True, False]}),
    ],
    ids=["bool", "boolean", "polars", "arrow"],
)
def test_booleans_of_frames_are_numbers(frame: Any) -> None:
    assert Table.from_frame(frame)["a"].tolist() == [1.0, 0.0]


def test_column_of_frame_is_a_copy() -> None:
    frame = pl.DataFrame({"a": [1.0, 2.0]})
    Table.from_frame(frame)["a"][0] = 7.0
    assert frame["a"].to_list() == [1.0, 2.0]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": ["x", None]}),
        pd.DataFrame({"a": pd.array(["x", None], dtype="string")}),
        pd.DataFrame({"a": pd.Categorical(["x", None])}),
        pl.DataFrame({"a": ["x", None]}),
        pa.table({"a": ["x", None]}),
    ],
    ids=["object", "string", "categorical", "polars", "arrow"],
)
def test_text_of_frames_has_none_for_missing(frame: Any) -> None:
    assert Table.from_frame(frame)["a"].tolist() == ["x", None]


def test_dates_as_objects_in_frame_are_datetimes() -> None:
    stamps = pd.Series([pd.NaT, pd.Timestamp("2020-01-02", tz="UTC")], dtype=object)
    column = Table.from_frame(pd.DataFrame({"a": stamps}))["a"]
    assert np.isnat(column[0])
    assert column[1] == np.datetime64("2020-01-02")


def test_categories_are_text() -> None:
    frame = pd.DataFrame({"gear": pd.Categorical([1, 2, None, 1])})
    assert Table.from_frame(frame)["gear"].tolist() == ["1", "2", None, "1"]
    kinds = pl.DataFrame({"gear": ["low", None]}, schema={"gear": pl.Enum(["low", "high"])})
    assert Table.from_frame(kinds)["gear"].tolist() == ["low", None]
