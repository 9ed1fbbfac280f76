"""Arrow streams as requests and responses."""

import json
import struct
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bodies import arrow_stream

from onepass.errors import LabelError, RequestError
from raising import raises

pytest.importorskip("msgspec")
from onepass.service.protocol import arrow
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.rows import DecodedRequest, Output
from onepass.validation.rows import Rows

PACKINGS = [None, "lz4", "zstd"]
TABLE = pa.table(
    {
        "number": [0.1, None, float("nan")],
        "whole": pa.array([1, 2, None], pa.int16()),
        "truth": [True, None, False],
        "text": ["a", None, "höch 🚗"],
        "long": pa.array(["a", None, ""], pa.large_string()),
        "category": pa.array(["u", "v", None]).dictionary_encode(),
        "codes": pa.array([5, 7, None]).dictionary_encode(),
        "at": pa.array([0, None, 86_400_000], pa.timestamp("ms", tz="Europe/Berlin")),
        "day": pa.array([0, 1, None], pa.date32()),
        "clock": pa.array([61, None, 0], pa.time32("s")),
        "took": pa.array([1500, None, 0], pa.duration("ms")),
        "price": pa.array([125, None, 250], pa.decimal128(5, 2)),
        "never": pa.nulls(3),
    }
)


def rows(table: Any) -> list[dict[str, Any]]:
    """A table's rows, with None for whatever is missing."""
    return [{name: None if value is None or value != value else value  # noqa: PLR0124
             for name, value in row.items()} for row in table.rows()]  # fmt: skip


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("size", [1, 2, None])
def test_columns_of_each_type(packing: str | None, size: int | None) -> None:
    table = TABLE if size is None else TABLE.slice(0, 3).unify_dictionaries()
    X = arrow.read(arrow_stream(table, rows=size, compression=packing)).rows.X
    first, second, third = rows(X)
    assert first | {"at": 0, "day": 0} == {
        "number": 0.1, "whole": 1.0, "truth": 1.0, "text": "a", "long": "a", "category": "u",
        "codes": 5.0, "at": 0, "day": 0, "clock": 61.0, "took": 1.5, "price": 125.0, "never": None,
    }  # fmt: skip
    assert {name: each for name, each in second.items() if each is not None}.keys() == {
        "whole", "category", "codes", "day"
    }  # fmt: skip
    assert third["text"] == "höch 🚗"
    assert X["at"].dtype == X["day"].dtype == np.dtype("datetime64[us]")
    assert str(X["at"][2]) == "1970-01-02T00:00:00.000000"
    assert str(X["day"][1]) == "1970-01-02T00:00:00.000000"


@pytest.mark.parametrize("packing", PACKINGS)
@given(data=st.data())
def test_numbers_keep_every_bit(packing: str | None, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(), max_size=20))
    table = pa.table({"a": pa.array(values, pa.float64())})
    found = arrow.read(arrow_stream(table, rows=7, compression=packing)).rows.X
    assert struct.pack(f"{len(values)}d", *found["a"]) == struct.pack(f"{len(values)}d", *values)
    reply = arrow.write(DecodedRequest(Rows(None)), {"y": np.array(values)}, model="m")
    again = pa.ipc.open_stream(reply.body).read_all()["y"].to_pylist()
    assert struct.pack(f"{len(values)}d", *again) == struct.pack(f"{len(values)}d", *values)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int8(), pa.uint64(), pa.bool_()])
def test_fixed_size_lists_are_rows_without_names(kind: Any) -> None:
    flat = pa.array([0, 1, 1, 0, 1, 1]).cast(kind)
    X = pa.FixedSizeListArray.from_arrays(flat, 2)
    found = arrow.read(arrow_stream(pa.table({"X": X}), rows=2)).rows.X
    assert found.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert found.dtype == np.float64
    assert arrow.read(arrow_stream(pa.table({"X": X.slice(1, 2)}))).rows.X.tolist() == [
        [1, 0],
        [1, 1],
    ]


def test_targets_weights_and_times_are_not_features() -> None:
    X = pa.FixedSizeListArray.from_arrays(pa.array([0.5, None, 1, 2]), 2)
    y = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2, 3, 4]), 2)
    table = pa.table(
        {"X": X, "y": y, "sample_weight": [1, 2], "time": pa.array([3, 4], pa.int32())}
    )
    decoded = arrow.read(arrow_stream(table), learning=True)
    np.testing.assert_array_equal(decoded.rows.X, [[0.5, np.nan], [1, 2]])
    assert decoded.rows.y.tolist() == [[1, 2], [3, 4]]
    assert decoded.rows.weight.tolist() == [1, 2]
    assert (decoded.rows.time.tolist(), decoded.rows.time.dtype) == ([3, 4], np.int64)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (pa.array([1, (1 << 63) - 1]), "i"), (pa.array([1, 2], pa.uint8()), "i"),
        (pa.array([1, (1 << 64) - 1], pa.uint64()), "u"), (pa.array([True, False]), "b"),
        (pa.array(["a", "b"]).dictionary_encode(), "O"), (pa.array([0.5, 1.5]), "f"),
    ],
)  # fmt: skip
def test_targets_keep_their_type(y: Any, kind: str) -> None:
    decoded = arrow.read(arrow_stream(pa.table({"a": [1.0, 2.0], "y": y})), learning=True)
    assert decoded.rows.y.dtype.kind == kind
    assert decoded.rows.y.tolist() == y.to_pylist()


def test_streams_of_polars_are_read() -> None:
    frame = pl.DataFrame({"a": [1.5, None], "b": ["x" * 40, None], "c": ["u", "v"]})
    frame = frame.with_columns(pl.col("c").cast(pl.Categorical))
    for packing in ("uncompressed", "lz4", "zstd"):
        body = frame.write_ipc_stream(None, compression=packing).getvalue()
        first, second = rows(arrow.read(body).rows.X)
        assert first == {"a": 1.5, "b": "x" * 40, "c": "u"}
        assert second == {"a": None, "b": None, "c": "v"}


def test_no_rows() -> None:
    table = TABLE.slice(0, 0)
    assert len(arrow.read(arrow_stream(table)).rows.X) == 0
    assert arrow.read(arrow_stream(table)).rows.X.names == TABLE.column_names


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"a": [[1], [2]]}), r"columns\['a'\]` must be numbers.* got the Arrow type list"),
        (pa.table({"a": [{"b": 1}]}), "got the Arrow type struct"),
        (pa.table({"a": [b"x"]}), "got the Arrow type binary"),
        (pa.table({"a": pa.FixedSizeListArray.from_arrays(pa.array(["b"]), 1)}), "fixed_size_list"),
        (pa.table({"a": pa.RunEndEncodedArray.from_arrays([1], ["b"])}), "run_end_encoded"),
        (
            pa.table({"a": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))}),
            "got the Arrow type map",
        ),
        (pa.table([[1], [2]], names=["a", "a"]), "have unique names, got 'a' twice"),
        (pa.table({"a": pa.array([[1, 2], None], pa.list_(pa.int8(), 2))}), "a list in each row"),
        (pa.table({"a": ["x" * 300_000]}), "texts of at most 65,536 characters"),
        (pa.table({"a" * 70_000: [1]}), "texts of at most 65,536 characters"),
        (pa.table({}), "must have at least one feature"),
    ],
)
def test_unsupported_tables_are_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        arrow.read(arrow_stream(table))


WHOLE = arrow_stream(TABLE, compression="zstd")


@pytest.mark.parametrize("body", [b"", b"abc", b"ARROW1" * 9, WHOLE[8:], WHOLE[:-50], WHOLE[:200]])
def test_incomplete_streams_are_refused(body: bytes) -> None:
    with raises(RequestError, remedy="Send the whole stream"):
        arrow.read(body)


def test_bytes_after_the_stream_are_refused() -> None:
    with raises(RequestError, got="3 bytes after its end"):
        arrow.read(WHOLE + b"abc")


def test_former_metadata_version_is_refused() -> None:
    version = pa.ipc.MetadataVersion.V4
    with raises(RequestError, got="an earlier version"):
        arrow.read(arrow_stream(TABLE.select(["number"]), metadata_version=version))


# -- responses -------------------------------------------------------------------------------------


def test_responses_are_streams() -> None:
    answers = {"y": np.array(["a", None], dtype=object), "classes": np.array(["b", "a"]),
               "probabilities": np.array([[0.25, 0.75], [0.5, 0.5]])}  # fmt: skip
    decoded = DecodedRequest(Rows(None), id="a7", outputs=tuple(map(Output, answers)))
    reply = arrow.write(decoded, answers, model="flow", version="7")
    assert reply.kind == "application/vnd.apache.arrow.stream"
    found = pa.ipc.open_stream(reply.body).read_all()
    assert found.to_pydict() == {"y": ["a", None], "probabilities": [[0.25, 0.75], [0.5, 0.5]]}
    assert json.loads(found.schema.metadata[b"onepass"]) == {
        "model_name": "flow", "model_version": "7", "id": "a7", "classes": ["b", "a"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (np.array([1, 2]), pa.int64()), (np.array([1], dtype=np.uint8), pa.uint8()),
        (np.array([True]), pa.bool_()), (np.array(["a"]), pa.string()),
        (np.array([None, 2], dtype=object), pa.float64()), (np.empty(0), pa.float64()),
        (np.array([[1.0, 2.0]]), pa.list_(pa.float64(), 2)),
    ],
)  # fmt: skip
def test_predictions_of_each_type(y: Any, kind: Any) -> None:
    found = pa.ipc.open_stream(
        arrow.write(DecodedRequest(Rows(None)), {"y": y}, model="m").body
    ).read_all()["y"]
    assert found.type == kind
    assert len(found) == len(y)


def test_lone_surrogates_cannot_be_encoded() -> None:
    with raises(LabelError, got="a lone surrogate"):
        arrow.write(
            DecodedRequest(Rows(None)), {"y": np.array(["\ud800"], dtype=object)}, model="m"
        )


# -- memory ----------------------------------------------------------------------------------------


def refused(table: pa.Table, limits: Limits, message: str, **options: Any) -> None:
    body = arrow_stream(table, **options)
    with pytest.raises(RequestError, match=message):
        arrow.read(body, limits)


@pytest.mark.parametrize("packing", ["lz4", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_decoded_size_of_compressed_streams_is_limited(packing: str, *, dictionary: bool) -> None:
    text = pa.array(["a" * 50_000] * 400)
    column = pa.DictionaryArray.from_arrays(pa.array([0]), text) if dictionary else text
    table = pa.table({"a": column})
    assert len(arrow_stream(table, compression=packing)) < 1 << 18
    refused(table, Limits(unpacked=1 << 20), "1,048,576 bytes after decoding",
            compression=packing)  # fmt: skip


def test_number_of_rows_of_null_columns_is_limited() -> None:
    table = pa.table({"a": pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])})
    refused(table, Limits(), "must have at most 1,048,576 rows")
    refused(pa.table({"a": pa.nulls(9)}), Limits(rows=8), "at most 8 rows", rows=4)


def test_decoded_size_of_views_is_limited() -> None:
    long = pa.array(["a" * 60_000], pa.string_view())
    views = pa.py_buffer(long.buffers()[1].to_pybytes()[:16] * 10_000)
    column = pa.Array.from_buffers(pa.string_view(), 10_000, [None, views, long.buffers()[2]])
    refused(pa.table({"a": column}), Limits(), "at most 268,435,456 bytes after decoding")


def indices(n: int, kind: Any = None) -> pa.Table:
    """A dictionary column of n indices to one text of 60,000 characters."""
    text = pa.array(["a" * 60_000], kind)
    return pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), text)})


def test_values_of_a_dictionary_are_shared() -> None:
    found = arrow.read(arrow_stream(indices(4_000))).rows.X["a"]
    assert found[0] is found[-1]  # 240 MB else


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_decoded_size_of_dictionaries_is_limited(kind: Any) -> None:
    """The encoded rows would contain each of the texts."""
    table = indices(5_000, kind)
    assert len(arrow_stream(table, compression="zstd")) < 1 << 11
    refused(table, Limits(), "at most 268,435,456 bytes after decoding", compression="zstd")
    refused(table, Limits(), "at most 268,435,456 bytes after decoding", rows=100)


def test_dictionary_values_count_as_text() -> None:
    table = pa.table({"a": pa.array(["b", None, "b"]).dictionary_encode()})
    assert arrow.read(arrow_stream(table), Limits(values=24)).rows.X["a"].tolist() == [
        "b",
        None,
        "b",
    ]
    refused(table, Limits(values=23), "3 rows of 1 columns, including 1 text columns")


def test_number_of_values_columns_and_rows_is_limited() -> None:
    X = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(100)), 10)
    refused(pa.table({"a": X}), Limits(values=99), "at most 99 values")
    refused(pa.table({"a": X}), Limits(columns=9), "at most 9 columns")
    refused(pa.table({"a": [1], "b": [1]}), Limits(columns=1), "at most 1 columns")
    refused(pa.table({"a": ["b"] * 3}), Limits(values=23), "at most 23 values")
    refused(pa.table({"a": [1, 2, 3]}), Limits(rows=2), "at most 2 rows", rows=1)


def test_number_of_batches_is_limited() -> None:
    empty = pa.record_batch({"a": pa.array([], pa.float64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, empty.schema) as stream:
        for _ in range(17_000):
            stream.write_batch(empty)
    with pytest.raises(RequestError, match="at most 16,384 messages"):
        arrow.read(sink.getvalue().to_pybytes())
