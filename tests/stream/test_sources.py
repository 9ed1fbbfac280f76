"""Equal rows from all kinds of sources, in blocks of the requested size."""

import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepass.errors import ParameterError, SourceError
from onepass.stream import Rows, Stream, read
from raising import raises
from sampling import sample

N = 53
RNG = np.random.default_rng(7)
SPEED = RNG.normal(size=N).round(6)
GEAR = np.array(["low", "high", "mid"], dtype=object)[RNG.integers(0, 3, N)]
WHEN = np.datetime64("2013-01-01T05:00", "us") + np.arange(N) * np.timedelta64(7, "m")
LOAD = RNG.normal(size=N).round(6)
GONE = [0, 10, 11, 12, 30, 52]
LOAD[GONE] = np.nan
SPEED[[3, 20]] = np.nan
GEAR[[5, 21]] = None


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"speed": SPEED, "gear": GEAR, "when": WHEN, "load": LOAD})


def dicts(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    return nw.from_native(pl.from_pandas(frame), eager_only=True).rows(named=True)


def sources(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    frame.to_csv(folder / "b.csv.gz", index=False)
    pq.write_table(pa.Table.from_pandas(frame), folder / "a.parquet")
    text = frame.to_csv(index=False)
    return {
        "csv": folder / "a.csv",
        "csv as text": str(folder / "a.csv"),
        "tsv": folder / "a.tsv",
        "packed": folder / "b.csv.gz",
        "parquet": folder / "a.parquet",
        "binary file": io.BytesIO(text.encode()),
        "packed file": io.BytesIO(gzip.compress(text.encode())),
        "text file": io.StringIO(text),
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "pyarrow": pa.Table.from_pandas(frame),
        "dicts": dicts(frame),
        "generator": (row for row in dicts(frame)),
    }


KINDS = [
    "csv", "csv as text", "tsv", "packed", "parquet", "binary file", "packed file", "text file",
    "pandas", "polars", "pyarrow", "dicts", "generator",
]  # fmt: skip


def joined(blocks: list[Rows], name: str) -> Any:
    return np.concatenate([rows.X[name] for rows in blocks])


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        *((kind, 7) for kind in KINDS),
        *sample([(kind, n) for kind in KINDS for n in (1, 47, 48, 1024)], 16, "block sizes"),
    ],
)
def test_sources_give_equal_rows(
    kind: str, block: int, frame: pd.DataFrame, tmp_path: Path
) -> None:
    stream = read(sources(frame, tmp_path)[kind], target="load", time="when", block=block)
    blocks = list(stream)
    used_rows = np.setdiff1d(np.arange(N), GONE)

    assert [len(rows) for rows in blocks[:-1] if len(rows) != block] == []
    assert sum(len(rows) for rows in blocks) == len(used_rows)
    assert sum(rows.skipped for rows in blocks) == len(GONE)
    assert stream.rows_read == N
    assert stream.fraction == 1.0
    np.testing.assert_array_equal(np.concatenate([rows.y for rows in blocks]), LOAD[used_rows])
    np.testing.assert_array_equal(joined(blocks, "speed"), SPEED[used_rows])
    assert joined(blocks, "gear").tolist() == GEAR[used_rows].tolist()
    np.testing.assert_array_equal(joined(blocks, "when"), WHEN[used_rows])
    np.testing.assert_array_equal(np.concatenate([rows.time for rows in blocks]), WHEN[used_rows])
    assert blocks[0].X.names == ["speed", "gear", "when"]
    starts = [rows.first for rows in blocks if len(rows)]
    assert starts == used_rows[::block].tolist()


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    block=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_skipped_and_first_account_for_every_row(lengths: list[int], block: int, seed: int) -> None:
    n = sum(lengths)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, np.nan, np.arange(n))
    y[rng.integers(n)] = 1.0
    X = np.arange(float(n))[:, None]
    used_rows = np.flatnonzero(~np.isnan(y))
    covered = 0
    for rows in read((X, y), block=block):
        index = rows.X["x0"].astype(int)
        assert set(index) <= set(used_rows.tolist())
        if len(rows):
            assert rows.first == index[0]
        covered += len(rows) + rows.skipped
        assert covered >= (index[-1] + 1 if len(rows) else 0)
    assert covered == n


def test_last_block_is_empty_if_only_skipped_rows_remain() -> None:
    blocks = list(read((np.arange(4.0)[:, None], [1, 2, None, None]), block=2))
    assert [(len(rows), rows.first, rows.skipped) for rows in blocks] == [(2, 0, 0), (0, 4, 2)]
    assert blocks[1].X.names == ["x0"]
    assert blocks[1].y.shape == (0,)


def test_generator_is_consumed_one_block_at_a_time() -> None:
    asked = []

    def rows() -> Iterator[dict[str, int]]:
        for i in range(10):
            asked.append(i)
            yield {"a": i, "y": i}

    stream = iter(read(rows(), target="y", block=2))
    assert len(next(stream)) == 2
    assert asked == [0, 1]


@pytest.mark.parametrize("kind", ["binary file", "text file", "generator"])
def test_single_pass_sources_refuse_a_second_pass(
    kind: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    stream = read(sources(frame, tmp_path)[kind], target="load")
    assert not stream.repeatable
    list(stream)
    with raises(SourceError, remedy="Write the rows to a file"):
        iter(stream)


@pytest.mark.parametrize("kind", ["csv", "packed", "parquet", "pandas", "polars", "dicts"])
def test_repeatable_sources_give_equal_passes(
    kind: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    stream = read(sources(frame, tmp_path)[kind], target="load", block=10)
    assert stream.repeatable
    once, again = ([rows.y.tolist() for rows in stream] for _ in range(2))
    assert once == again
    next(iter(stream))  # and left in the middle
    assert [rows.y.tolist() for rows in stream] == once


def test_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a,y\n1,2\n3,4\n"))
    (rows,) = read("-", target="y")
    assert rows.X["a"].tolist() == [1, 3]


def test_open_text_file_is_read_with_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_bytes("gear,y\nhöchster,1\n".encode("latin1"))
    with path.open(encoding="latin1") as file:
        (rows,) = read(file, target="y")
        assert rows.X["gear"].tolist() == ["höchster"]
        assert not file.closed


def test_arrays_name_columns_by_number() -> None:
    X = np.arange(12).reshape(4, 3)
    (rows,) = read(X, target=-1, time=0, drop=[0])
    assert rows.X.names == ["x1"]
    assert rows.y.tolist() == [2, 5, 8, 11]
    assert rows.time.tolist() == [0, 3, 6, 9]
    (rows,) = read(X)
    assert rows.y is None
    assert rows.X.names == ["x0", "x1", "x2"]


def test_rows_are_copies_of_input_arrays() -> None:
    X, y = np.ones((4, 2)), np.ones(4)
    (rows,) = read((X, y))
    rows.X["x0"][:] = 5
    rows.y[:] = 5
    assert X.sum() == 8
    assert y.sum() == 4


def test_several_targets_have_shape_n_c(frame: pd.DataFrame) -> None:
    frame["other"] = np.arange(N)
    first = next(iter(read(frame, target=["load", "other"], block=5)))
    assert first.y.shape == (5, 2)
    assert first.y[:, 1].tolist() == [1, 2, 3, 4, 5]
    assert next(iter(read(frame, target=["other"], block=5))).y.shape == (5, 1)
    assert next(iter(read((np.ones((6, 1)), np.ones((6, 3))), block=5))).y.shape == (5, 3)


def test_labels_keep_their_type() -> None:
    X = np.arange(3.0)[:, None]
    (rows,) = read((X, np.array(["a", "b", "a"])))
    assert rows.y.dtype == object
    assert rows.y.tolist() == ["a", "b", "a"]
    (rows,) = read((X, [True, False, True]))
    assert rows.y.tolist() == [1.0, 0.0, 1.0]


def test_iterables_of_pairs() -> None:
    pairs = [({"a": 1, "b": "x"}, 1.0), ({"a": 2}, None), ({"b": "y", "c": 3}, 2.0)]
    (rows,) = read(pairs)
    assert rows.X.names == ["a", "b", "c"]
    assert rows.X["b"].tolist() == ["x", "y"]
    assert rows.y.tolist() == [1.0, 2.0]
    (rows,) = read((x, y) for x, y in zip(np.eye(2), ["u", "v"], strict=True))
    assert rows.X["x1"].tolist() == [0.0, 1.0]
    (rows,) = read([({"a": 1}, {"p": 1, "q": 2}), ({"a": 1}, None), ({"a": 2}, {"p": 3, "q": 4})])
    assert rows.y.tolist() == [[1, 2], [3, 4]]
    assert rows.skipped == 1


def test_targets_that_start_in_a_later_row() -> None:
    pairs = [({"a": i}, None if i < 5 else [i, -i]) for i in range(8)]
    blocks = list(read(iter(pairs), block=2))
    assert [rows.y.tolist() for rows in blocks] == [[[5, -5], [6, -6]], [[7, -7]]]
    assert blocks[0].skipped == 5


def test_dict_columns_absent_from_a_block_are_retained() -> None:
    rows = [{"a": 1, "g": "u"}, {"a": 2, "g": "v"}, {"b": 3}, {"b": 4}]
    first, second = read(rows, block=2)
    assert first.X.names == ["a", "g"]
    assert second.X.names == ["a", "g", "b"]
    assert second.X["g"].tolist() == [None, None]


def test_columns_and_drop_select_features(frame: pd.DataFrame, tmp_path: Path) -> None:
    for kind in ("csv", "parquet", "pandas", "dicts"):
        source = sources(frame, tmp_path)[kind]
        rows = next(iter(read(source, target="load", columns=["gear", "speed"], block=4)))
        assert rows.X.names == ["gear", "speed"]
        rows = next(iter(read(source, target="load", time="when", drop=("when", "gear"), block=4)))
        assert rows.X.names == ["speed"]
        assert rows.time.dtype == "datetime64[us]"


def test_stream_repr(frame: pd.DataFrame, tmp_path: Path) -> None:
    stream = read(sources(frame, tmp_path)["parquet"], target="load")
    assert isinstance(stream, Stream)
    assert (stream.name, stream.target, stream.n_rows) == ("a.parquet", "load", N)
    assert repr(stream) == "<Stream a.parquet: 53 rows, target 'load', block 1024>"
    assert read(tmp_path / "a.csv", target="load").n_rows is None
    rows = next(iter(stream))
    assert isinstance(rows, Rows)


def test_fraction_increases_to_one(frame: pd.DataFrame, tmp_path: Path) -> None:
    source = sources(frame, tmp_path)
    stream = read(source["polars"], target="load", block=10)
    assert stream.fraction is None
    fractions = [stream.fraction for _ in stream]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] == 1.0
    assert all(0 < stream.fraction <= 1 for stream in [read(source["csv"])] for _ in stream)
    parts = read(source["csv"], block=len(frame) // 4)  # blocks of one chunk
    shares = [parts.fraction for _ in parts]
    assert shares[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.02)


@pytest.mark.parametrize("block", [0, -1, 1.5, True, "many"])
def test_invalid_block_sizes_are_refused(block: int) -> None:
    with raises(ParameterError, argument="block"):
        read(np.ones((3, 2)), block=block)
