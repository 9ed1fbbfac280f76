"""Columns of every type of pandas, Polars and Arrow are read, or rejected with a remedy."""

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import TypeMismatchError
from onepass.validation.table import Table, as_python, is_missing

WHOLE, TEXT = st.integers(-100, 100), st.sampled_from(["a", "b", "", "nan", "3"])
CENTS = WHOLE.map(lambda cents: Decimal(cents) / 4)
SPANS = st.integers(0, 10**9).map(lambda micro: dt.timedelta(microseconds=micro))
DATES = st.dates(dt.date(1990, 1, 1), dt.date(2040, 1, 1))
TIMES = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2040, 1, 1))  # noqa: DTZ001
CLOCK = st.times().map(lambda at: at.replace(microsecond=0))


def seconds(value: Any) -> float:
    if isinstance(value, dt.time):
        value = dt.timedelta(hours=value.hour, minutes=value.minute, seconds=value.second)
    return float(value.total_seconds())


def midnight(value: Any) -> Any:
    return dt.datetime.combine(value, dt.time())


def in_pandas(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda values: pd.DataFrame({"c": pd.array(values, dtype=dtype)})


def in_polars(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda values: pl.DataFrame({"c": pl.Series(values, dtype=dtype, strict=False)})


def in_arrow(dtype: Any) -> Callable[[list[Any]], Any]:
    def frame(values: list[Any]) -> Any:
        column = pa.array(values, dtype.value_type if pa.types.is_dictionary(dtype) else dtype)
        return pa.table({"c": column.cast(dtype)})

    return frame


def periods(values: list[Any]) -> Any:
    return pd.DataFrame(
        {"c": pd.PeriodIndex(["NaT" if v is None else v for v in values], freq="D")}
    )


def arrow_of_pandas(dtype: Any) -> Any:
    return in_pandas(pd.ArrowDtype(dtype))


KINDS: dict[str, tuple[Callable[[list[Any]], Any], Any, Callable[[Any], Any]]] = {
    "pandas Int64": (in_pandas("Int64"), WHOLE, float),
    "pandas Float32": (in_pandas("Float32"), WHOLE, float),
    "pandas boolean": (in_pandas("boolean"), st.booleans(), float),
    "pandas string": (in_pandas("string"), TEXT, str),
    "pandas category": (in_pandas("category"), TEXT, str),
    "pandas category of numbers": (in_pandas("category"), WHOLE, None),
    "pandas object of Decimal": (in_pandas(object), CENTS, float),
    "pandas timedelta": (in_pandas("timedelta64[us]"), SPANS, seconds),
    "pandas datetime": (in_pandas("datetime64[us]"), TIMES, None),
    "pandas period": (periods, DATES, midnight),
    "pandas object of date": (in_pandas(object), DATES, midnight),
    "pandas object of time": (in_pandas(object), CLOCK, seconds),
    "pandas Arrow int64": (arrow_of_pandas(pa.int64()), WHOLE, float),
    "pandas Arrow string": (arrow_of_pandas(pa.string()), TEXT, str),
    "pandas Arrow decimal": (arrow_of_pandas(pa.decimal128(9, 2)), CENTS, float),
    "pandas Arrow duration": (arrow_of_pandas(pa.duration("us")), SPANS, seconds),
    "pandas Arrow timestamp": (arrow_of_pandas(pa.timestamp("us")), TIMES, None),
    "polars UInt8": (in_polars(pl.UInt8), st.integers(0, 99), float),
    "polars Int128": (in_polars(pl.Int128), WHOLE, float),
    "polars Boolean": (in_polars(pl.Boolean), st.booleans(), float),
    "polars String": (in_polars(pl.String), TEXT, str),
    "polars Categorical": (in_polars(pl.Categorical), TEXT, str),
    "polars Enum": (in_polars(pl.Enum(["a", "b", "", "nan", "3"])), TEXT, str),
    "polars Decimal": (in_polars(pl.Decimal(9, 2)), CENTS, float),
    "polars Duration": (in_polars(pl.Duration("us")), SPANS, seconds),
    "polars Datetime": (in_polars(pl.Datetime("us")), TIMES, None),
    "polars Date": (in_polars(pl.Date), DATES, midnight),
    "polars Time": (in_polars(pl.Time), CLOCK, seconds),
    "arrow float16": (in_arrow(pa.float16()), WHOLE.map(np.float16), float),
    "arrow bool": (in_arrow(pa.bool_()), st.booleans(), float),
    "arrow string_view": (in_arrow(pa.string_view()), TEXT, str),
    "arrow large_string": (in_arrow(pa.large_string()), TEXT, str),
    "arrow dictionary": (in_arrow(pa.dictionary(pa.int8(), pa.string())), TEXT, str),
    "arrow decimal256": (in_arrow(pa.decimal256(50, 2)), CENTS, float),
    "arrow duration": (in_arrow(pa.duration("ms")), SPANS.map(lambda v: dt.timedelta(v.seconds)),
                       seconds),
    "arrow timestamp": (in_arrow(pa.timestamp("us")), TIMES, None),
    "arrow date64": (in_arrow(pa.date64()), DATES, midnight),
    "arrow time32": (in_arrow(pa.time32("s")), CLOCK, seconds),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_types_are_read(kind: str, data: st.DataObject) -> None:
    frame, values, convert = KINDS[kind]
    listed = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    if kind.endswith("category of numbers"):
        convert = str
    column = Table.from_frame(frame(listed))["c"]
    expected = [v if v is None or convert is None else convert(v) for v in listed]
    found = [
        None if gap else v for v, gap in zip(as_python(column), is_missing(column), strict=True)
    ]
    if all(v is None for v in listed):
        assert found == expected
    else:
        assert (
            found == pytest.approx(expected) if isinstance(found[0], float) else found == expected
        )


REJECTED = {
    "pandas interval": pd.DataFrame({"c": pd.interval_range(0, 2)}),
    "pandas list": pd.DataFrame({"c": [[1], [2]]}),
    "pandas bytes": pd.DataFrame({"c": [b"a", b"b"]}),
    "pandas complex": pd.DataFrame({"c": [1j, 2j]}),
    "pandas mixed": pd.DataFrame({"c": ["a", 1]}),
    "polars list": pl.DataFrame({"c": [[1], [2]]}),
    "polars struct": pl.DataFrame({"c": [{"a": 1}, {"a": 2}]}),
    "polars binary": pl.DataFrame({"c": [b"a", b"b"]}),
    "polars object": pl.DataFrame({"c": pl.Series([object(), object()], dtype=pl.Object)}),
    "arrow list": pa.table({"c": pa.array([[1], [2]])}),
    "arrow struct": pa.table({"c": pa.array([{"a": 1}, {"a": 2}])}),
    "arrow binary": pa.table({"c": pa.array([b"a", b"b"])}),
    "arrow interval": pa.table({"c": pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval())}),
}


@pytest.mark.parametrize("kind", REJECTED)
def test_other_types_are_rejected(kind: str) -> None:
    for learner in (op.RLSRegressor(), op.Pipeline(op.features.Encode(), op.RLSRegressor())):
        with pytest.raises(TypeMismatchError, match=r"column 'c' must contain .*drop it"):
            learner.partial_fit(REJECTED[kind], [1.0, 2.0])
        assert not learner.__sklearn_is_fitted__()


def numbers() -> Iterator[list[float]]:
    yield from np.eye(3).tolist()


OTHER: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "got None. Pass an array"),
    "LazyFrame": (lambda: pl.DataFrame({"a": [1, 2, 3]}).lazy(), r"X\.collect\(\)"),
    "str": (lambda: "rows.csv", r"op\.stream\.read\(path"),
    "Path": (lambda: Path("rows.csv"), r"op\.stream\.read\(path"),
    "generator": (numbers, r"got a generator\. Pass list\(X\)"),
    "map": (lambda: map(list, np.eye(3)), r"Pass list\(X\)"),
    "dicts": (lambda: [{"a": 1.0}] * 3, r"a list of dicts\. Put op\.features\.Encode\(\)"),
}


@pytest.mark.parametrize("kind", OTHER)
def test_objects_that_are_not_rows_are_rejected_with_a_remedy(kind: str) -> None:
    make, remedy = OTHER[kind]
    fitted = op.RLSRegressor().partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    calls: list[Callable[[Any], Any]] = [
        lambda X: op.RLSRegressor().fit(X, [1.0, 2.0, 3.0]),
        fitted.predict,
        op.features.Scale().learn,
        op.features.Impute().learn,
    ]
    if kind != "dicts":
        calls += [
            lambda X: op.Keyed(op.RLSRegressor(), by="a").partial_fit(X, [1.0, 2.0, 3.0]),
            lambda X: op.Keyed(op.RLSRegressor(), by=0).partial_fit(X, [1.0, 2.0, 3.0]),
            op.features.Encode().learn,
        ]
        calls.append(lambda X: op.evaluate.prequential(op.RLSRegressor(), (X, [1.0, 2.0, 3.0])))
    for call in calls:
        with pytest.raises(TypeMismatchError, match=remedy):
            call(make())


def test_prequential_evaluation_of_dicts() -> None:
    model = op.Pipeline(op.features.Encode(), op.RLSRegressor())
    rows = [{"a": float(i), "b": "uv"[i % 2]} for i in range(9)]
    report = op.evaluate.prequential(model, (rows, np.arange(9.0)), delay=2)
    assert report.rows == model.rows_seen_ == 9
