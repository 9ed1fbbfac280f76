"""Types of columns: inferred from the first values or given, and equal in all passes."""

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onepass.errors import ColumnError, ParameterError, SourceError, TypeMismatchError
from onepass.stream import csv, read
from raising import raises


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """First bytes so few that files of a test are longer."""
    monkeypatch.setattr(csv, "_SAMPLE", 64)
    monkeypatch.setattr(csv, "_CHUNK", 128)


def test_inferred_types_of_csv_columns() -> None:
    text = (
        "whole,real,truth,date,stamp,zoned,clock,name\n"
        "1,2.5,true,2013-01-01,2013-01-01 10:00:00.5,2013-01-01T10:00:00+02:00,10:30,x\n"
        ",,,,,,,\n"
    )
    (rows,) = read(io.StringIO(text))
    assert {n: c.dtype.kind for n, c in rows.X.columns.items()} == {
        "whole": "f", "real": "f", "truth": "f", "date": "M", "stamp": "M", "zoned": "M",
        "clock": "f", "name": "O",
    }  # fmt: skip
    first = rows.X.row(0)
    assert first["zoned"] == dt.datetime(2013, 1, 1, 8)  # noqa: DTZ001  in UTC, zone dropped
    assert first["stamp"].microsecond == 500000
    assert first["clock"] == 10.5 * 3600  # seconds
    assert rows.X.row(1)["name"] is None


@pytest.mark.usefixtures("small")
def test_integers_may_become_fractions_in_later_rows() -> None:
    text = "a,y\n" + "1,2\n" * 200 + "1.5,2e3\n"
    blocks = list(read(io.StringIO(text), target="y"))
    assert blocks[0].X["a"][-1] == 1.5
    assert blocks[0].y[-1] == 2000


@pytest.mark.parametrize(
    ("values", "dtype", "last"),
    [
        (["", "3", "4.5"], "f", 4.5),
        (["", "true", "false"], "f", 0.0),
        (["", "2013-01-02", "2013-01-03 04:00"], "M", np.datetime64("2013-01-03T04:00")),
        (["", "2013-01-02T00:00:00Z", "2013-01-03T04:00:00Z"], "M", np.datetime64("2013-01-03T04")),
        (["", "low", "high"], "O", "high"),
    ],
)
@pytest.mark.usefixtures("small")
def test_type_of_a_column_that_is_empty_at_first(values: list[str], dtype: str, last: Any) -> None:
    text = "a,late\n" + "".join(f"1,{v}\n" for v in [""] * 100 + values)
    blocks = list(read(io.StringIO(text), block=10))
    assert np.isnan(blocks[0].X["late"]).all()
    assert blocks[-1].X["late"].dtype.kind == dtype
    assert blocks[-1].X["late"][-1] == last


def test_type_of_a_late_column_is_equal_in_every_pass(tmp_path: Path) -> None:
    rows = ["1,,\n"] * 1_200_000 + ["2,late,\n"]
    path = tmp_path / "late.csv"
    path.write_text("a,b,c\n" + "".join(rows))
    stream = read(path)
    firsts = [next(iter(stream)).X.columns for _ in range(2)]
    dtypes = [{name: column.dtype for name, column in first.items()} for first in firsts]
    assert dtypes[0] == dtypes[1]
    assert dtypes[0]["b"] == np.float64


def test_column_without_values_is_nan() -> None:
    (rows,) = read(io.StringIO("a,b\n1,\n2,\n"))
    assert np.isnan(rows.X["b"]).all()


@pytest.mark.usefixtures("small")
def test_late_column_with_mixed_types_is_refused() -> None:
    text = "a,late\n" + "1,\n" * 100 + "1,5\n" + "1,\n" * 50 + "1,high\n"
    with pytest.raises(SourceError, match=r"row 151 .*'late' must be a number.*'high'.*types="):
        list(read(io.StringIO(text)))


@pytest.mark.usefixtures("small")
def test_csv_value_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text("a,b\n" + "1,2\n" * 100 + "1,x\n" + "1,2\n" * 100)
    expected = (
        r"^op.stream.read: meter.csv: row 100 \(counting from 0\), column 'b' must be a number, "
        r"as in the first rows, got 'x'. Fix the row, or pass na=\('x',\) \(--na 'x'\) if it "
        r"means missing, bad_rows='skip' \(--bad-rows skip\) to skip such rows, or start again "
        r"with types=\{'b': 'text'\} \(--type b=text\).$"
    )
    with pytest.raises(SourceError, match=expected):
        list(read(path))
    blocks = list(read(path, types={"b": "text"}))
    assert blocks[0].X["b"].tolist()[99:102] == ["2", "x", "2"]


def test_dict_value_of_another_type_is_refused() -> None:
    rows = [{"a": 1.0}] * 5 + [{"a": None}, {"a": "x"}]
    with pytest.raises(SourceError, match=r"row 6 .*column 'a' must be a number.*got 'x'"):
        list(read(rows, block=5))


TYPED = {"code": "text", "flag": "bool", "day": "date", "size": "number"}


def typed_sources(folder: Path) -> dict[str, Any]:
    big = 2**53 + 1
    frame = pd.DataFrame(
        {"code": [big, 7], "flag": [1, 0], "day": ["2013-01-01", None], "size": ["2.5", "1"]}
    )
    (folder / "t.csv").write_text(frame.to_csv(index=False))
    pq.write_table(pa.Table.from_pandas(frame), folder / "t.parquet")
    return {
        "csv": folder / "t.csv",
        "parquet": folder / "t.parquet",
        "frame": frame,
        "dicts": frame.to_dict("records"),
    }


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "dicts"])
def test_given_types_convert_values(kind: str, tmp_path: Path) -> None:
    (rows,) = read(typed_sources(tmp_path)[kind], types=TYPED)
    assert rows.X["code"].tolist() == ["9007199254740993", "7"]
    assert rows.X["flag"].tolist() == [1.0, 0.0]
    assert rows.X["day"].dtype.kind == "M"
    assert rows.X["size"].tolist() == [2.5, 1.0]


def test_given_types_convert_arrays() -> None:
    (rows,) = read(np.array([[2**53 + 1, 3]]), types={"x0": "text"})
    assert rows.X["x0"].tolist() == ["9007199254740993"]
    (rows,) = read(np.array([[2.5, 3.0]]), types={"x0": "text", "x1": "text"})
    assert rows.X.row(0) == {"x0": "2.5", "x1": "3"}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("number", "x", "a number"), ("bool", 2, "true or false"), ("date", 5, "a date")],
)
def test_values_that_violate_the_given_type_are_refused(
    kind: str, value: Any, expected: str
) -> None:
    with pytest.raises(SourceError, match=f"row 1 .*'a' must be {expected}, as requested"):
        list(read([{"a": None}, {"a": value}], types={"a": kind}))


def test_invalid_types_are_refused() -> None:
    with raises(ParameterError, argument="types", got="'int' for column 'x0'"):
        read(np.ones((2, 2)), types={"x0": "int"})
    with raises(ColumnError, argument="types", got="'z'"):
        read(np.ones((2, 2)), types={"z": "text"})


def test_conversion_of_arrow_types(tmp_path: Path) -> None:
    day = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    table = pa.table(
        {
            "small": pa.array([1, None], pa.int8()),
            "money": pa.array([Decimal("1.25"), None]),
            "half": pa.array([1.5, None], pa.float32()),
            "truth": pa.array([True, None]),
            "nothing": pa.nulls(2),
            "coded": pa.array(["a", None]).dictionary_encode(),
            "large": pa.array(["b", None], pa.large_string()),
            "day": pa.array([day.date(), None], pa.date32()),
            "zoned": pa.array([day, None], pa.timestamp("ns", "Europe/Paris")),
            "clock": pa.array([day.time(), None], pa.time32("s")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    (rows,) = read(tmp_path / "a.parquet")
    kinds = "".join(column.dtype.kind for column in rows.X.columns.values())
    assert kinds == "fffffOOMMf"
    assert rows.X["clock"][0] == 12 * 3600
    assert rows.X["zoned"][0] == np.datetime64("2013-01-01T12:00")
    assert [str(v) for v in rows.X.row(1).values()] == ["nan"] * 5 + ["None"] * 4 + ["nan"]


def test_nested_arrow_types_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [[1, 2], [3]]}), tmp_path / "a.parquet")
    with raises(TypeMismatchError, where="a.parquet", got="Arrow's list", remedy="drop=['a']"):
        list(read(tmp_path / "a.parquet"))


def test_numbers_in_text_columns_are_written_exactly() -> None:
    rows = [{"a": 2**60 + 1}, {"a": "x"}, {"a": 1.5}, {"a": 7.0}, {"a": None}, {"a": float("nan")}]
    (block,) = read(rows, types={"a": "text"})
    assert block.X["a"].tolist() == [str(2**60 + 1), "x", "1.5", "7", None, None]
