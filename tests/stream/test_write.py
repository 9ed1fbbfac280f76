"""Written tables are read back; a file is written completely or not at all."""

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from onepass import stream
from onepass.errors import ParameterError, SourceError
from raising import raises

WORDS = np.array(["a,b", 'say "x"', None, "two\nlines"], dtype=object)
DATES = np.array(["2024-01-01T08:00:00", "NaT", "2024-02-29", "1999-12-31T23:59:59.5"], "M8[us]")


def blocks() -> Iterator[dict[str, Any]]:
    numbers = np.array([1.0, np.nan, -0.1, 2.0**60])
    for rows in (slice(0, 3), slice(3, 4), slice(0, 0)):
        yield {"n": numbers[rows], "w": WORDS[rows], "d": DATES[rows]}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.TSV.GZ", "t.parquet"])
def test_write_and_read_round_trip(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert stream.write(blocks(), path) == 4
    (rows,) = stream.read(path)
    assert rows.X["n"].tolist()[2:] == [-0.1, 2.0**60]
    assert np.isnan(rows.X["n"][1])
    assert rows.X["w"].tolist() == WORDS.tolist()
    np.testing.assert_array_equal(rows.X["d"], DATES)
    assert [each.name for each in tmp_path.iterdir()] == [name]


@given(st.lists(st.floats(allow_infinity=False), min_size=1))
def test_numbers_are_written_without_loss(values: list[float]) -> None:
    text = io.StringIO()
    stream.write([{"x": np.array(values), "i": np.arange(len(values))}], text)
    lines = text.getvalue().splitlines()[1:]
    again = [line.split(",")[0] for line in lines]
    np.testing.assert_array_equal([float(x) if x else np.nan for x in again], values)
    assert [line.split(",")[1] for line in lines] == [str(i) for i in range(len(values))]


@pytest.mark.parametrize("block", [1, 2, 5])
@pytest.mark.parametrize("unit", ["us", "ns", "s"])
def test_date_format_does_not_depend_on_the_block(block: int, unit: str) -> None:
    dates = np.array(["2024-01-01", "NaT", "2024-02-29T10:00", "1969-12-31T23:59:59.5"], "M8[us]")
    text = io.StringIO()
    column = dates.astype(f"M8[{unit}]")
    stream.write([{"d": column[i : i + block]} for i in range(0, 4, block)], text)
    last = {"us": "1969-12-31T23:59:59.500000", "ns": "1969-12-31T23:59:59.500000000"}
    assert text.getvalue().split() == [
        "d", "2024-01-01T00:00:00", '""', "2024-02-29T10:00:00",  # an empty line would be no row
        last.get(unit, "1969-12-31T23:59:59"),
    ]  # fmt: skip


def test_days_are_written_with_seconds() -> None:
    text = io.StringIO()
    stream.write([{"d": np.array(["2024-01-01", "NaT"], "M8[D]"), "n": np.arange(2)}], text)
    assert text.getvalue() == "d,n\n2024-01-01T00:00:00,0\n,1\n"


@given(st.lists(st.datetimes(), min_size=1))
def test_dates_are_written_in_iso_format(values: list[dt.datetime]) -> None:
    text = io.StringIO()
    stream.write([{"d": np.array(values, "M8[us]")}], text)
    assert text.getvalue().split()[1:] == [value.isoformat() for value in values]


def test_writing_no_blocks(tmp_path: Path) -> None:
    assert stream.write([], tmp_path / "t.csv") == 0
    assert (tmp_path / "t.csv").read_text() == ""
    assert stream.write([], tmp_path / "t.parquet") == 0
    assert pq.read_table(tmp_path / "t.parquet").num_rows == 0


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_failed_write_leaves_the_former_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("old")

    def broken() -> Iterator[dict[str, Any]]:
        yield {"x": np.arange(3.0)}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stream.write(broken(), path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["t.txt", "t", "t.parquet.gz", "t.gz"])
def test_other_suffixes_are_refused(name: str, tmp_path: Path) -> None:
    with raises(ParameterError, remedy="Rename the file"):
        stream.write(blocks(), tmp_path / name)


def test_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"t\.csv must be a file.*, got: No such"):
        stream.write(blocks(), tmp_path / "none" / "t.csv")


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_an_index_without_a_name_is_no_feature(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"t.{ending}"
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [3.0, 4.0]}, index=[7, 3])
    table = pa.Table.from_pandas(frame)
    (pq.write_table if ending == "parquet" else feather.write_feather)(table, file)
    assert "__index_level_0__" in table.column_names
    (rows,) = stream.read(file, target="y")
    assert list(rows.X.names) == ["a"]


def test_parquet_column_keeps_its_type(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    numbers, words = np.array([1.0, 2.0]), np.array(["a", "b"], dtype=object)
    with raises(SourceError, got="other types starting at row 2"):
        stream.write([{"x": numbers}, {"x": words}], path)
    assert not path.exists()
    stream.write([{"x": np.array([None], dtype=object)}, {"x": words}], path)
    assert pq.read_table(path)["x"].to_pylist() == [None, "a", "b"]
