"""Invalid sources: errors with position, expected and actual content, and a remedy."""

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from onepass.errors import (
    ColumnError,
    ParameterError,
    ShapeError,
    SourceError,
    TypeMismatchError,
)
from onepass.stream import csv, read
from raising import raises

PACKED = gzip.compress(
    b"a,y\n" + b"1,2\n3,4\n" * 5000 + bytes(np.arange(97, 123)) + b",1\n", mtime=0
)


def zipped(*names: str) -> bytes:
    """A zip archive of files with these names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), "a,y\n1,2\n")  # the same date in each run
    return file.getvalue()


def refused(error: type[Exception], pattern: str, source: Any, **options: Any) -> None:
    with pytest.raises(error, match=pattern) as caught:
        list(read(source, **options))
    messages = str(caught.value)
    assert messages.startswith("op.stream")
    assert messages.endswith((".", "?"))


@pytest.mark.parametrize(
    ("name", "content", "pattern"),
    [
        ("a.csv", b"", r"a.csv must contain rows, got an empty file. Check"),
        ("a.csv", b"\n\n", r"must contain rows, got an empty file"),
        ("a.csv", b"a,y\n", r"must contain rows, got none. Check"),
        ("a.csv", b"a,y", r"must contain rows, got none. Check"),
        ("a.csv", b"a,y\n1,2\n3\n", r"row 1 \(counting from 0\) must have 2 fields.*got 1. Fix"),
        ("a.csv", b"a,y\n1,2\n1,2,3\n", r"row 1 .* must have 2 fields.*got 3. Fix"),
        ("a.csv", b"a,y\nx,2\n\xff,2\n", r"row 1 .*column 'a' must be UTF-8.* Convert it"),
        ("a.csv", b"\xe9,y\n1,2\n", r"the text must be UTF-8, got other bytes. Convert it"),
        ("a.csv", "a,y\n1,2\n".encode("utf-16"), r"must be delimited text in UTF-8, got UTF-16"),
        (
            "a.csv",
            b"a;y\n1,5;2\n",
            r"the delimiter ',', got ';' .* delimiter=';' \(--delimiter ';'\)",
        ),
        ("a.csv", b"a\ty\n1\t2\n", r"the delimiter ',', got '\\t' in its first line"),
        ("a.tsv", b"a,y\n1,2\n", r"the delimiter '\\t', got ',' in its first line"),
        ("a.csv", b"PAR1....", r"must be delimited text in UTF-8, got Parquet. Write"),
        (
            "a.csv.gz",
            PACKED[: len(PACKED) // 2],
            r"must be a complete compressed file.*Copy or download",
        ),
        ("a.csv.gz", PACKED[:40] + b"??????" + PACKED[46:], r"must be a complete compressed file"),
        ("a.parquet", b"", r"a.parquet must be a complete Parquet file.*Copy, download or write"),
        ("a.parquet", b"PAR1" + b"x" * 99, r"must be a complete Parquet file"),
        ("a.csv", b"a  y\n 1   2\n", r"got values separated by spaces. Pass delimiter=' ' .*sed"),
        ("a.json", b'[{"y": 1}]', r"one JSON object per line, got an array.*jq"),
        ("a.jsonl", b'{"y": 1} more', r"line 1 must be one JSON object in UTF-8.*Extra data"),
        ("a.csv.zip", zipped("a.csv", "b.csv"), r"a zip archive of one file, got 2 files.*zip://"),
        ("a.csv", zipped(), r"one file, got 0 files"),
        ("a.csv.zip", zipped("a.csv")[:60], r"must be a complete compressed file"),
        ("a.xml", b"<a>", r"must have one of the suffixes .csv.*got '.xml'. Rename"),
        ("a", b"1", r"must have one of the suffixes .* got 'none'"),
    ],
)
def test_invalid_files_are_refused(name: str, content: bytes, pattern: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refused(SourceError, pattern, tmp_path / name)


def test_missing_files_and_empty_folders_are_refused(tmp_path: Path) -> None:
    refused(
        SourceError, "must be a file, got a path that does not exist. Check", tmp_path / "a.csv"
    )
    refused(SourceError, "Named data sets are flights", "fligths")
    refused(SourceError, "must contain files of one format .* got none. Select", tmp_path)


def test_damaged_parquet_pages_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.arange(5000.0)}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[100:2000] = b"\xff" * 1900
    path.write_bytes(content)
    refused(SourceError, "must be a complete Parquet file, got a truncated or damaged one", path)


def test_invalid_rows_after_the_first_chunk_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(csv, "_SAMPLE", 256)
    monkeypatch.setattr(csv, "_CHUNK", 128)
    path = tmp_path / "a.csv"
    path.write_text("a,y\n" + "1,2\n" * 1000 + "1,2,3\n")
    refused(SourceError, r"row 1000 \(counting from 0\) must have 2 fields", path)
    path.write_bytes(b"a,y\n" + b"u,2\n" * 1000 + b"\xff,2\n")
    refused(SourceError, r"row 1000 .*column 'a' must be UTF-8", path)


def test_invalid_column_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a,y\n1,2,3\n")
    refused(ColumnError, "unique name, got 'a' more than once. Rename", tmp_path / "a.csv")
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    refused(ColumnError, "unique name", twice)
    frame = pl.DataFrame({"a": [1], "y": [2]})
    for option in ({"target": "z"}, {"time": "z"}, {"drop": ["z"]}, {"columns": ["z"]}):
        (what,) = option
        pattern = f"`{what}` must name a column of the source, which has 'a', 'y', got 'z'. Check"
        refused(ColumnError, pattern, frame, **option)
    refused(ColumnError, "in its first rows, got 'z'", [{"a": 1}], target="z")
    refused(ColumnError, "indices 0 to 1, got 2", np.ones((3, 2)), target=2)
    refused(ColumnError, "must be names, got 0", frame, target=0)


def test_missing_target_column_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,3\n")
    with raises(ColumnError, argument="target"):
        read(tmp_path / "a.csv", target="z")


def test_contradicting_column_options_are_refused() -> None:
    frame = pl.DataFrame({"a": [1], "y": [2]})
    refused(ParameterError, "must not be among `drop`", frame, target="y", drop=["y"])
    refused(ParameterError, "must not be among `drop` or `columns`", frame, target="y", columns="y")
    refused(ParameterError, "must name each column once", frame, target=["y", "y"])
    pair = (np.ones((2, 1)), [1, 2])
    refused(ParameterError, "`target` must be omitted", pair, target="x0")
    refused(ParameterError, "`target` must be omitted", [({"a": 1}, 2)], target="a")


def test_invalid_arrays_and_iterables_are_refused() -> None:
    refused(ShapeError, r"must have shape \(n, d\), got \(3,\). Reshape", np.ones(3))
    refused(ShapeError, r"must have shape \(n, d\)", (np.ones(3), np.ones(3)))
    refused(ShapeError, r"`y` must have shape \(3,\) or \(3, c\)", (np.ones((3, 1)), [1, 2]))
    refused(TypeMismatchError, "must be dense, got the sparse", sp.eye_array(3).tocsr())
    refused(TypeMismatchError, "`source` must be a path", 5)
    refused(TypeMismatchError, "`source` must be a path.*Collect lazy", pl.LazyFrame({"a": [1]}))
    refused(TypeMismatchError, "`source` must be a path.*as a DataFrame", {"a": [1]})
    refused(TypeMismatchError, "row 0 .*must be a dict of named features, got int", [1, 2])
    refused(TypeMismatchError, "row 1 .*must be a dict of named", [{"a": 1}, ({"a": 1}, 2)])
    refused(TypeMismatchError, r"row 1 .*must be a pair \(x, y\)", [({"a": 1}, 2), {"a": 1}])
    refused(ShapeError, r"row 0 .*`x` must be a dict or have shape \(d,\)", [(np.ones((2, 2)), 1)])
    refused(ShapeError, "equal shape in all rows", [({"a": 1}, [1, 2]), ({"a": 1}, [1])])


def test_invalid_targets_are_refused() -> None:
    dates = pl.DataFrame({"a": [1.0], "y": ["2013-01-01"]}).with_columns(pl.col("y").str.to_date())
    refused(
        TypeMismatchError, "target 'y' must contain numbers or labels, got dates", dates, target="y"
    )
    mixed = pl.DataFrame({"a": [1.0], "b": ["x"], "c": [1]})
    refused(ShapeError, "must be all numbers or all text, got both", mixed, target=["b", "a"])
    refused(SourceError, "must contain rows, got none", np.ones((0, 2)))
    refused(SourceError, "must contain rows, got none", iter([]))
    none = pl.DataFrame({"a": [1.0, 2.0], "y": [None, None]})
    refused(SourceError, "'y' is missing in all of its 2 rows. Pass another", none, target="y")
    refused(SourceError, "missing in all of its 2 rows", [({"a": 1}, None)] * 2)


def test_quoted_name_of_a_single_column_may_contain_delimiters() -> None:
    (rows,) = read(io.StringIO('"a;b"\n1\n2\n'))
    assert rows.X["a;b"].tolist() == [1.0, 2.0]


def test_multi_level_column_names_are_refused() -> None:
    levels = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    frame = pd.DataFrame([[1, 2]], columns=levels)
    refused(ColumnError, r"must have names of one level, got \('a', 'x'\). Join the levels", frame)


def test_unnamed_targets_that_are_all_missing_are_refused() -> None:
    pair = (np.eye(2), [np.nan, np.nan])
    refused(SourceError, "must contain targets, but they are missing in all of its 2 rows", pair)


def test_a_connection_that_ends_is_one_sentence() -> None:
    class Ending(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() and size:
                raise RuntimeError("received 9 of 90 bytes")
            return super().read(9)

    message = r"must be complete, .*received 9 of 90 bytes\)\. Copy or download"
    with pytest.raises(SourceError, match=message):
        list(read(Ending(b"x,y\n1,2\n" * 9), target="y"))
