"""Equal rows from all formats and compressions, from files and pipes."""

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from onepass.errors import MixedColumnWarning, ParameterError, SourceError
from onepass.stream import Rows, read
from raising import raises
from sampling import sample

N = 2500
RNG = np.random.default_rng(5)


def with_gaps(values: Any) -> list[Any]:
    return [None if gap else value for gap, value in zip(RNG.random(N) < 0.1, values, strict=True)]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    stamps = pd.date_range("2024-01-01", periods=N, freq="61min").to_pydatetime()
    return pa.table(
        {
            "speed": pa.array(with_gaps(RNG.normal(size=N).round(6).tolist()), pa.float64()),
            "count": pa.array(with_gaps(range(N)), pa.int32()),
            "gear": pa.array(with_gaps(RNG.choice(["low", 'a "b", c', "zéro"], N).tolist())),
            "when": pa.array(with_gaps(list(stamps)), pa.timestamp("us")),
            "on": pa.array(with_gaps((RNG.random(N) < 0.5).tolist()), pa.bool_()),
            "load": pa.array(with_gaps(RNG.normal(size=N).round(6).tolist())),
        }
    )


def ipc(table: pa.Table, *, stream: bool) -> bytes:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)
    return sink.getvalue().to_pybytes()


def jsonl(table: pa.Table) -> bytes:
    rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
    return "".join(
        json.dumps(row, default=lambda at: at.isoformat()) + "\n" for row in rows
    ).encode()


def content(suffix: str, table: pa.Table) -> bytes:
    if suffix in {".csv", ".tsv"}:
        return pl.from_arrow(table).write_csv(separator="\t" if suffix == ".tsv" else ",").encode()
    if suffix == ".jsonl":
        return jsonl(table)
    if suffix == ".parquet":
        sink = io.BytesIO()
        pq.write_table(table, sink)
        return sink.getvalue()
    return ipc(table, stream=suffix == ".arrows")


def zstd(text: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(text)
    return sink.getvalue().to_pybytes()


PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}
TEXT = [".csv", ".tsv", ".jsonl", ".arrow", ".arrows"]
PACKED = [text + packing for text in TEXT for packing in PACK if packing]


class Pipe(io.RawIOBase):
    """Bytes that cannot be sought, a few at a time."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._content.read(min(size, 5000) if size > 0 else size)


def same(blocks: list[Rows], others: list[Rows]) -> None:
    assert len(blocks) == len(others)
    for one, other in zip(blocks, others, strict=True):
        assert (one.first, one.skipped) == (other.first, other.skipped)
        assert one.X.names == other.X.names
        for name in one.X.names:
            np.testing.assert_array_equal(one.X[name], other.X[name])
        np.testing.assert_array_equal(one.y, other.y)


@pytest.mark.parametrize("suffix", [*TEXT, ".parquet", *sample(PACKED, 7, "packed formats")])
def test_formats_and_compressions_give_equal_rows(
    suffix: str, table: pa.Table, tmp_path: Path
) -> None:
    text, packing = next((s, p) for s in [*TEXT, ".parquet"] for p in PACK if s + p == suffix)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[packing](content(text, table)))
    plain = list(read(table, target="load", block=300))
    order = ["speed", "count", "gear", "when", "on"]
    stream = read(path, target="load", columns=order, block=300)
    assert stream.repeatable
    same(list(stream), plain)
    same(list(stream), plain)
    assert stream.fraction == 1.0
    given = "tsv" if text == ".tsv" else None
    for source in (Pipe(path.read_bytes()), path.open("rb")):
        piped = read(source, target="load", columns=order, block=300, format=given)
        same(list(piped), plain)
        source.close()


def test_feather_files_of_pandas_and_polars(table: pa.Table, tmp_path: Path) -> None:
    for compression in ("lz4", "zstd", "uncompressed"):
        feather.write_feather(table, tmp_path / "a.feather", compression=compression)
        same(list(read(tmp_path / "a.feather", target="load")), list(read(table, target="load")))
    pl.from_arrow(table).write_ipc(tmp_path / "b.arrow", compression="zstd")
    same(list(read(tmp_path / "b.arrow", target="load")), list(read(table, target="load")))


# -- JSON Lines -----------------------------------------------------------------------------------


def lines(*rows: Any) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())


def test_nested_json_objects_become_dotted_columns() -> None:
    source = lines(
        {"a": {"b": 1, "c": {"d": "x"}}, "y": 1}, {"a": None, "y": 2}, {"a": {"c": {}}, "y": 3}
    )
    (rows,) = read(source, target="y")
    assert rows.X.names == ["a.b", "a.c.d"]
    np.testing.assert_array_equal(rows.X["a.b"], [1, np.nan, np.nan])
    assert rows.X["a.c.d"].tolist() == ["x", None, None]


@pytest.mark.parametrize("odd", [None, {"id": "later", "y": 1}])
def test_json_keys_may_appear_in_any_line(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from onepass.stream import jsonlines

    monkeypatch.setattr(jsonlines, "_SAMPLE", 300)
    monkeypatch.setattr(jsonlines, "_CHUNK", 200)
    rows = [{"y": i} | ({"late": "x", "deep": {"n": i}} if i > 60 else {}) for i in range(99)]
    rows += [{"y": 99.5, "late": None}, *([odd] if odd else [])]
    blocks = list(read(lines(*rows), target="y", block=10))
    assert sum(len(block) for block in blocks) == len(rows)
    assert blocks[0].X.names == []
    assert blocks[-1].X.names[:2] == ["late", "deep.n"]
    assert blocks[8].X["deep.n"].tolist() == list(range(80, 90))
    assert blocks[9].y[-1] == 99.5


def test_date_inference() -> None:
    rows = [{"at": f"2024-01-0{i}T10:00:00Z", "on": f"2024-01-0{i}"} for i in range(1, 5)]
    (block,) = read(lines(*rows))
    assert block.X["at"][0] == np.datetime64("2024-01-01T10:00")
    assert block.X["on"].dtype == "datetime64[us]"
    (block,) = read(lines(*rows), types={"on": "text"})
    assert block.X["on"][0] == "2024-01-01"
    with pytest.warns(
        MixedColumnWarning, match=r"'on'.*4 of the first 5 values are dates.*'never'"
    ):
        (block,) = read(lines(*rows, {"on": "never"}))
    assert block.X["on"].tolist()[-1] == "never"


def test_large_json_numbers_and_mixed_types() -> None:
    rows = [{"id": 2**60 + 1, "v": 1}, {"id": 7, "v": 2.5}, {"id": 10**30, "v": 3}]
    (block,) = read(lines(*rows))
    assert block.X["id"].tolist() == [float(2**60), 7.0, 1e30]
    (block,) = read(lines(*rows[:2]), types={"id": "text"})
    assert block.X["id"].tolist() == [str(2**60 + 1), "7"]
    (block,) = read(lines(*rows, {"id": "x7"}), types={"id": "text"})
    assert block.X["id"].tolist() == [str(2**60 + 1), "7", str(10**30), "x7"]
    (block,) = read(lines({"v": True}, {"v": 0}, {"v": None}))
    np.testing.assert_array_equal(block.X["v"], [1, 0, np.nan])


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            '{"a":1}\n\n{"a":"x"}\n',
            r"row 1 \(counting from 0\), column 'a' must be a num.*'x'",
        ),
        (
            '{"a":"u"}\n{"a":1}\n',
            r"row 1 .*must be text, as in the first rows, got 1",
        ),
        ('{"a":1}\n{"a":1\n', r"line 2 must be one JSON object in UTF-8, got '{\"a\":1'"),
        ('{"a":1}\n[1,2]\n', r"line 2 must be one JSON object .* \(the line is a list\)"),
        (
            '{"a":{"b":[1]}}\n',
            r"column 'a.b' must be .* got a value of type list. Exclude .*drop=\['a.b'\]",
        ),
        ('[{"a":1}]', r"must contain one JSON object per line, got an array"),
        ("", r"must contain rows, got an empty file"),
        ('{"a":"\udcff"}\n', r"line 1 must be one JSON object in UTF-8"),
    ],
)
def test_invalid_json_lines_are_refused(text: str, pattern: str) -> None:
    source = io.BytesIO(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=pattern):
        list(read(source, format="jsonl"))


def test_unused_columns_may_have_any_type() -> None:
    rows = [{"a": 1, "tags": [1], "deep": {"l": [], "k": 2}, "y": 1}] * 3
    (block,) = read(lines(*rows), target="y", drop=["tags", "deep.l"])
    assert block.X.names == ["a", "deep.k"]
    (block,) = read(lines(*rows), target="y", drop=["tags", "deep"])
    assert block.X.names == ["a"]
    (block,) = read(lines(*rows), target="y", columns=["deep.k"])
    assert block.X.names == ["deep.k"]


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [";", "|", "\t", " "])
def test_delimiters(mark: str) -> None:
    text = f'a{mark}"b{mark}c"{mark}y\n1{mark}"x{mark}\n"{mark}2\n'
    (rows,) = read(io.StringIO(text), target="y", delimiter=mark)
    assert rows.X.row(0) == {"a": 1.0, f"b{mark}c": f"x{mark}\n"}
    assert rows.y.tolist() == [2.0]


def test_csv_files_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,u,2\n3,v,4\n")
    (rows,) = read(path, header=False, target="x2")
    assert rows.X.row(1) == {"x0": 3.0, "x1": "v"}
    (rows,) = read(path, header=["a", "b", "y"], target="y")
    assert rows.X.row(0) == {"a": 1.0, "b": "u"}
    with raises(SourceError, got="3"):
        list(read(path, header=["a", "b"]))
    (rows,) = read(io.StringIO("1,2\n"), header=False)
    assert next(iter(read(io.StringIO("1,2"), header=False))).X.row(0) == {"x0": 1.0, "x1": 2.0}
    assert rows.X.names == ["x0", "x1"]


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"delimiter": ";;"}, {"argument": "delimiter", "got": "';;'"}),
        ({"delimiter": '"'}, {"argument": "delimiter", "got": "'\"'"}),
        ({"delimiter": "é"}, {"argument": "delimiter", "got": "'é'"}),
        ({"header": "a,b"}, {"argument": "header", "got": "'a,b'"}),
        ({"header": []}, {"argument": "header", "got": "[]"}),
        ({"format": "xlsx"}, {"argument": "format", "got": "'xlsx'"}),
        ({"format": "json"}, {"argument": "format", "got": "'json'"}),
        ({"format": "jsonl", "delimiter": ";"}, {"argument": "delimiter", "remedy": "Omit it"}),
        ({"format": "parquet", "header": False}, {"argument": "header", "remedy": "Omit it"}),
        ({"format": "arrow", "na": "?"}, {"argument": "na", "remedy": "Replace such values"}),
    ],
)
def test_invalid_format_options_are_refused(
    options: dict[str, Any], fields: dict[str, Any]
) -> None:
    with raises(ParameterError, **fields):
        read(io.StringIO("a,y\n1,2\n"), **options)


def test_file_options_are_refused_for_arrays() -> None:
    for options in ({"format": "csv"}, {"delimiter": ";"}, {"header": False}, {"na": "?"}):
        remedy = "Replace such values" if "na" in options else "Omit it"
        with raises(ParameterError, argument=next(iter(options)), remedy=remedy):
            read(np.ones((2, 2)), **options)


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "suffix", [".jsonl", ".arrow", ".arrows", *sample(PACKED, 7, "truncated files")]
)
def test_truncated_files_are_refused(suffix: str, table: pa.Table, tmp_path: Path) -> None:
    text, packing = next((s, p) for s in TEXT for p in PACK if s + p == suffix)
    whole = PACK[packing](content(text, table))
    path = tmp_path / f"a{suffix}"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(SourceError, match=rf"a{suffix}.* (Copy|Fix)"):
        list(read(path, target="load"))


def test_content_that_differs_from_the_suffix_is_refused(tmp_path: Path) -> None:
    for name, pattern in (
        ("a.arrow", "must be a complete Arrow file"), ("a.jsonl", "line 1 must be one JSON object"),
        ("a.parquet", "must be a complete Parquet file"),
    ):  # fmt: skip
        (tmp_path / name).write_text("a,y\n1,2\n" * 9)
        with pytest.raises(SourceError, match=pattern):
            list(read(tmp_path / name))
    for name in ("a.arrow", "a.arrows", "a.jsonl", "a.csv.zst"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(SourceError, match=r"empty file|truncated or damaged"):
            list(read(tmp_path / name))
    (tmp_path / "a.parquet.gz").write_bytes(b"x")
    with raises(SourceError, remedy="Parquet is compressed internally: decompress"):
        read(tmp_path / "a.parquet.gz")


def test_format_option_overrides_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text('{"a": 1}\n')
    with raises(SourceError, got="'.txt'", remedy="Rename the file, convert it, or pass form"):
        read(tmp_path / "log.txt")
    (rows,) = read(tmp_path / "log.txt", format="jsonl")
    assert rows.X.names == ["a"]
