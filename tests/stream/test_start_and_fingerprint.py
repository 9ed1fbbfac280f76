"""Streams with `start`: equal to the rest of the whole stream; fingerprints of streams."""

import io
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onepass.errors import ParameterError, SourceError
from onepass.stream import Rows, csv, read
from raising import raises
from sampling import sample

N = 4000
RNG = np.random.default_rng(3)


def column(values: Any, first: int, missing: Any = None) -> np.ndarray[Any, Any]:
    """A column that begins with missing values and has some later."""
    values = np.array(values, dtype=object)
    values[:first] = missing
    values[RNG.random(N) < 0.1] = missing
    return values


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=N, freq="7min")
    words = RNG.choice(["low", "high"], N)
    return pd.DataFrame(
        {
            "speed": RNG.normal(size=N).round(5),
            "late": pd.array(column(RNG.normal(size=N).round(3), 2500), dtype="Float64"),
            "gear": pd.array(column(words, 1500), dtype="str"),
            "when": column(stamps, 0),
            "far": column(stamps, 3100),
            "never": pd.array([None] * N, dtype="str"),
            "load": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(size=N)),
        }
    ).astype({"when": "datetime64[us]", "far": "datetime64[us]"})


class Once(io.RawIOBase):
    """A pipe."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._content.read(size)


def made(kind: str, frame: pd.DataFrame, folder: Path) -> Any:
    if kind.startswith("parquet"):
        group = {"parquet": N, "parquet, groups": 300}[kind]
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, folder / "a.parquet", row_group_size=group)
        return folder / "a.parquet"
    if kind == "csv":
        frame.to_csv(folder / "a.csv", index=False)
        return folder / "a.csv"
    if kind == "pipe":
        return Once(frame.to_csv(index=False).encode())
    if kind == "pair":
        return frame[["speed", "gear"]], frame["load"]
    rows: list[dict[str, Any]] = pl.from_pandas(frame).to_dicts()
    return {"frame": frame, "dicts": rows, "generator": (row for row in rows)}[kind]


def same(one: Rows, other: Rows) -> None:
    assert (one.first, one.skipped, len(one)) == (other.first, other.skipped, len(other))
    assert one.X.names == other.X.names
    for name in one.X.names:
        assert one.X[name].dtype == other.X[name].dtype, (name, one.first)
        np.testing.assert_array_equal(one.X[name], other.X[name])
    np.testing.assert_array_equal(one.y, other.y)
    assert one.time is None or np.array_equal(one.time, other.time, equal_nan=True)


KINDS = ["csv", "pipe", "parquet", "parquet, groups", "frame", "pair", "dicts", "generator"]


@pytest.mark.parametrize(
    ("kind", "block"), sample(list(product(KINDS, [100, 1000])), 8, "stream with start")
)
def test_stream_with_start_equals_the_rest_of_the_whole_stream(
    kind: str, block: int, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "_SAMPLE", 20_000)
    monkeypatch.setattr(csv, "_CHUNK", 7_000)
    options = {} if kind == "pair" else {"target": "load", "time": "when"}

    def opened(start: int) -> Any:
        return read(made(kind, frame, tmp_path), block=block, start=start, **options)

    whole = opened(0)
    blocks, ends = [], []
    for rows in whole:
        blocks.append(rows)
        ends.append(whole.rows_read)
    for i in [0, len(blocks) // 2, len(blocks) - 2]:
        rest = opened(ends[i])
        again = list(rest)
        assert len(again) == len(blocks) - i - 1
        for one, other in zip(again, blocks[i + 1 :], strict=True):
            same(one, other)
        assert rest.rows_read == whole.rows_read == N
    assert list(opened(N)) == []
    with pytest.raises(SourceError, match=r"must contain the 4,001 rows .* got 4,000. Check"):
        list(opened(N + 1))


def test_start_at_any_row(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = made("csv", frame, tmp_path)
    for start in (1, 1023, 1024, 1025, 3999):
        rows = list(read(path, target="load", block=5, start=start))
        assert sum(len(each) + each.skipped for each in rows) == N - start
        used_rows = np.flatnonzero(frame["load"].notna())
        assert rows[0].first == min([*used_rows[used_rows >= start], N])


def test_skipped_row_groups_are_not_decoded(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = made("parquet, groups", frame[["speed", "load"]], tmp_path)
    group = pq.read_metadata(path).row_group(5).column(0)
    content = bytearray(path.read_bytes())
    begin = group.dictionary_page_offset or group.data_page_offset
    content[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    path.write_bytes(content)
    assert sum(len(rows) + rows.skipped for rows in read(path, target="load", start=2000)) == 2000
    with pytest.raises(SourceError, match="must be a complete Parquet file"):
        list(read(path, target="load"))


@pytest.mark.parametrize("start", [-1, 0.5, True, "many"])
def test_invalid_start_is_refused(start: Any) -> None:
    with raises(ParameterError, argument="start"):
        read(np.ones((3, 2)), start=start)


@pytest.mark.parametrize("kind", KINDS)
def test_task_does_not_depend_on_the_start(kind: str, frame: pd.DataFrame, tmp_path: Path) -> None:
    labels = frame.assign(load=np.where(np.arange(N) < 2000, frame.index % 2, 1.0))
    options = {} if kind == "pair" else {"target": "load"}
    stream = read(made(kind, labels, tmp_path), start=2500, **options)
    assert stream.task == "classification"
    assert sum(len(rows) for rows in stream) == N - 2500


# -- fingerprints ---------------------------------------------------------------------------------


def test_fingerprint_does_not_depend_on_format_or_start(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    prints = {}
    for kind in ["csv", "pipe", "parquet", "parquet, groups"]:
        for start, block in ((0, 64), (3000, 1024)):
            stream = read(
                made(kind, frame, tmp_path), target="load", time="when", start=start, block=block
            )
            fingerprint = stream.fingerprint
            assert json.loads(json.dumps(fingerprint)) == fingerprint
            assert stream.differences(fingerprint) == []
            assert sum(len(rows) + rows.skipped for rows in stream) == N - start
            assert stream.fingerprint == fingerprint
            prints[kind, start] = {**fingerprint, "name": None}
    first = prints["csv", 0]
    assert first["rows"] == 1024
    assert first["columns"]["when"] == "date"
    assert first["columns"]["gear"] is None
    assert all(fingerprint == first for fingerprint in prints.values())


def test_fingerprint_during_iteration(frame: pd.DataFrame) -> None:
    stream = read(Once(frame.to_csv(index=False).encode()), target="load", block=64)
    for _ in stream:
        pass
    assert stream.fingerprint["rows"] == 1024
    again = read(Once(frame.to_csv(index=False).encode()), target="load")
    assert again.differences(stream.fingerprint) == []


def test_appended_rows_keep_the_fingerprint_compatible(frame: pd.DataFrame, tmp_path: Path) -> None:
    short = frame[:300]
    for kind in ("csv", "dicts", "generator", "parquet"):
        then = read(made(kind, short, tmp_path), target="load").fingerprint
        assert then["rows"] == 300
        assert read(made(kind, frame, tmp_path), target="load").differences(then) == []
        differences = read(made(kind, frame[:200], tmp_path), target="load").differences(then)
        assert differences == ["it had at least 300 rows and has 200"]


def test_differences_name_changed_settings_and_columns(frame: pd.DataFrame) -> None:
    then = read(frame, target="load", time="when").fingerprint

    def differences(other: Any = frame, **options: Any) -> list[str]:
        return read(other, **{"target": "load", "time": "when", **options}).differences(then)

    changed = frame.copy()
    changed.loc[700, "speed"] += 1e-9
    assert differences(changed) == ["the values in its first 1024 rows differ"]
    beyond = frame.copy()
    beyond.loc[1024, "speed"] = 5.0
    assert differences(beyond) == []
    assert differences(target="speed", drop=["load"])[:2] == [
        "its target was 'load' and is 'speed'",
        "`drop` was [] and is ['load']",
    ]
    assert differences(time=None)[0] == "its column of times was 'when' and is None"
    assert differences(types={"speed": "text"}) == [
        "`types` was {} and is {'speed': 'text'}",
        "its column 'speed' had type number and has type text",
    ]
    assert "its column 'speed' is missing" in differences(frame.drop(columns="speed"))
    assert differences(frame.assign(more=1.0)) == ["its column 'more' is new"]
    assert differences(frame[frame.columns[::-1]])[0].startswith(
        "the order of its columns was ['speed', 'late'"
    )


def test_fingerprint_does_not_read_ahead_of_a_generator() -> None:
    asked = []

    def rows() -> Iterator[dict[str, int]]:
        for i in range(5000):
            asked.append(i)
            yield {"a": i, "y": i}

    stream = read(rows(), target="y", block=10)
    blocks = iter(stream)
    next(blocks)
    assert len(asked) == 10
    assert stream.fingerprint["rows"] == 10
