"""Several files as one source: patterns, lists and folders; errors name the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import onepass.stream.stream
from onepass.errors import ColumnError, SourceError
from onepass.stream import arrow, read
from raising import raises

N = 90


def cut(frame: pd.DataFrame, folder: Path, suffix: str, sizes: list[int]) -> list[Path]:
    paths, at = [], 0
    for i, size in enumerate(sizes, 8):  # part-8, part-9, part-10, …
        rows, path = frame[at : at + size], folder / f"part-{i}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path)
        elif suffix == ".jsonl":
            rows.to_json(path, orient="records", lines=True)
        else:
            rows.to_csv(path, index=False)
        paths, at = [*paths, path], at + size
    return paths


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    load = np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N).round(4))
    zips = np.where(np.arange(N) < 40, "a", "7")  # numbers in later files, text all the same
    return pd.DataFrame({"speed": rng.normal(size=N).round(4), "zip": zips, "load": load})


def flat(stream: Any) -> list[tuple[Any, ...]]:
    return [
        (
            rows.first,
            rows.skipped,
            rows.X["speed"].tolist(),
            rows.X["zip"].tolist(),
            rows.y.tolist(),
        )
        for rows in stream
    ]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl", ".parquet"])
def test_several_files_are_read_as_one_stream(
    suffix: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    paths = cut(frame, tmp_path, suffix, [30, 1, 29, 30])
    whole = read(frame, target="load", block=16)
    expected = flat(whole)
    for source in (f"{tmp_path}/part-*", f"{tmp_path}/**/part-?*{suffix}", paths, tmp_path):
        stream = read(source, target="load", block=16)
        assert stream.repeatable
        assert flat(stream) == expected == flat(stream)
        assert stream.rows_read == N
        assert stream.fraction == 1.0
    options = {"target": "load", "block": 16, "types": {"zip": "text"}}
    backwards = [rows.X["speed"][0] for rows in read(paths[::-1], **options)]
    assert backwards[0] == frame["speed"][60]
    assert read(paths, target="load").differences(whole.fingerprint) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_stream_of_several_files_starts_at_any_row(
    suffix: str, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (arrow, onepass.stream.stream):
        monkeypatch.setattr(module, "HEAD_ROWS", 20)
    frame["late"] = np.where(frame.index < 70, None, "x")
    cut(frame, tmp_path, suffix, [25, 25, 25, 15])
    whole = read(tmp_path, target="load", block=7)
    blocks, ends = [], []
    for rows in whole:
        blocks.append((rows.first, rows.skipped, rows.X.names, [*map(str, rows.X["late"])]))
        ends.append(whole.rows_read)
    for i, end in enumerate(ends):
        rest = read(tmp_path, target="load", block=7, start=end)
        messages = [(r.first, r.skipped, r.X.names, [*map(str, r.X["late"])]) for r in rest]
        assert messages == blocks[i + 1 :]


def test_files_with_other_columns_are_refused(frame: pd.DataFrame, tmp_path: Path) -> None:
    cut(frame, tmp_path, ".csv", [30, 60])
    frame.rename(columns={"speed": "velocity"}).to_csv(tmp_path / "part-99.csv", index=False)
    wanted = (
        r"part-99.csv must have the columns of .*part-8.csv, got no 'speed' and also 'velocity'"
    )
    with pytest.raises(ColumnError, match=wanted):
        list(read(tmp_path, target="load"))
    frame[["load", "zip", "speed"]].to_csv(tmp_path / "part-99.csv", index=False)
    blocks = list(read(tmp_path, target="load"))  # in any order
    assert blocks[0].X.names == ["speed", "zip"]
    assert blocks[0].X["speed"].tolist()[-5:] == frame["speed"][frame["load"].notna()].tolist()[-5:]


def test_errors_name_the_file_of_the_row(frame: pd.DataFrame, tmp_path: Path) -> None:
    cut(frame, tmp_path, ".csv", [30, 60])
    path = tmp_path / "part-9.csv"
    path.write_text(path.read_text().replace("\n", "\nfast,7,1.0\n", 1))
    with pytest.raises(SourceError, match=r"part-9.csv: row 0 \(counting from 0\), column 'speed'"):
        list(read(tmp_path, target="load"))
    pq.write_table(pa.table({"speed": [1.0], "load": [1.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"speed": ["x"], "load": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b.parquet: row 0 \(counting from 0\), column 'speed'"):
        list(read(f"{tmp_path}/*.parquet", target="load"))


def test_hive_folders_become_columns(frame: pd.DataFrame, tmp_path: Path) -> None:
    for year, place, rows in ((9, "a%20b", frame[:30]), (10, "c", frame[30:])):
        folder = tmp_path / f"year={year}" / f"place={place}"
        folder.mkdir(parents=True)
        rows.to_csv(folder / "x.csv", index=False)
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.csv").write_text("a\n1\n")
    for source in (tmp_path, f"{tmp_path}/year=*/*/x.csv"):
        blocks = list(read(source, target="load", block=1000))
        assert blocks[0].X.names == ["speed", "zip", "year", "place"]
        n_used = int(frame["load"][:30].notna().sum())
        assert blocks[0].X["year"].tolist() == [9.0] * n_used + [10.0] * (len(blocks[0]) - n_used)
        assert set(blocks[0].X["place"]) == {"a b", "c"}
    (rows,) = read(tmp_path, target="year", drop=["place"])
    assert rows.X.names == ["speed", "zip", "load"]
    assert rows.y.tolist() == [9.0] * 30 + [10.0] * 60
    hive = tmp_path / "month=1"
    hive.mkdir()
    frame.to_csv(hive / "x.csv", index=False)
    with pytest.raises(SourceError, match=r"must be in folders with the keys.*month=1"):
        read(tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_types_apply_to_hive_columns(suffix: str, tmp_path: Path) -> None:
    for zipcode in ("007", "010"):
        folder = tmp_path / f"zip={zipcode}" / "on=2024-01-02"
        folder.mkdir(parents=True)
        cut(pd.DataFrame({"speed": [1.0, 2.0]}), folder, suffix, [2])
    (rows,) = read(tmp_path)
    assert rows.X.row(0) == {"speed": 1.0, "zip": 7.0, "on": "2024-01-02"}
    for option in ("types", "dtypes"):
        (rows,) = read(tmp_path, **{option: {"zip": "text", "on": "date"}})
        assert rows.X["zip"].tolist() == ["007", "007", "010", "010"]
        assert rows.X["on"].dtype.kind == "M"
    with pytest.raises(SourceError, match=r"row 0 .*column 'zip' must be a date, .* got '007'"):
        list(read(tmp_path, types={"zip": "date"}))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_hive_column_that_a_file_contains_is_refused(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "speed=3"
    folder.mkdir()
    paths = cut(pd.DataFrame({"speed": [1.0, 2.0], "y": [1.0, 2.0]}), folder, suffix, [2])
    messages = r"part-8.* must have no column 'speed', the key of a folder .* got one. Rename"
    with pytest.raises(ColumnError, match=messages):
        list(read(tmp_path, target="y"))
    (rows,) = read(paths, target="y")
    assert rows.X["speed"].tolist() == [1.0, 2.0]


def test_missing_files_and_mixed_formats(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the pattern .*\*.csv must match .* got none. Check"):
        read(f"{tmp_path}/*.csv")
    with raises(SourceError, got="none"):
        read(tmp_path)
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "notes.md").write_text("a\n1\n")
    with pytest.raises(
        SourceError, match=r"got .*notes.md, which has another format. Select files"
    ):
        read(tmp_path)
    with raises(SourceError, got="a path that does not exist"):
        read([tmp_path / "a.csv", tmp_path / "b.csv"])
    odd = tmp_path / "odd[1].csv"
    odd.write_text("a\n5\n")
    (rows,) = read(odd)  # a name before a pattern
    assert rows.X["a"].tolist() == [5.0]


def test_a_description_beside_tables_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "meta.json").write_text('{"title": "x"}\n')
    with pytest.raises(SourceError, match=r"of one format.*got .*meta.json"):
        read(tmp_path, target="y")
    (tmp_path / "a.csv").unlink()
    assert len(next(iter(read(tmp_path)))) == 1
