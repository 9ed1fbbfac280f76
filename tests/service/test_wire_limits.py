"""Memory of decoding is bounded by the length of the body."""

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from wire_bodies import arrow_stream, binary_request

from onepass.errors import RequestError
from raising import raises

pytest.importorskip("msgspec")
from onepass.service.protocol import arrow, mlflow, records, v2
from onepass.service.protocol.limits import Limits, shown
from onepass.service.protocol.mlflow import read_csv

LENGTH = 1 << 19


def many(element: bytes, length: int = LENGTH) -> bytes:
    return b"[" + element[:-1] + (b"," + element[:-1]) * (length // len(element)) + b"]"


def inputs(data: bytes, *, shape: str = "[1, 1]", datatype: str = "FP64") -> bytes:
    content = f'{{"inputs": [{{"name": "X", "shape": {shape}, "datatype": "{datatype}", "data": '
    return content.encode() + data + b"}]}"


def names(n: int) -> bytes:
    return b",".join(b'"%x":1' % i for i in range(n))


BOMBS: list[tuple[Callable[..., Any], bytes]] = [
    (v2.read, inputs(many(b"0,"))),
    (v2.read, inputs(many(b"300,"), shape="[1, 65536]")),
    (v2.read, inputs(b"[" + many(b"300,") + b"]")),
    (v2.read, inputs(many(b"[],"))),
    (v2.read, inputs(many(b"[0],"))),
    (v2.read, inputs(many(b'"a",'), datatype="BYTES")),
    (v2.read, inputs(many(b'"a",'), datatype="BYTES", shape="[1572865]")),
    (v2.read, inputs(b'["' + b'\\",\\"' * (LENGTH // 6) + b'"]', datatype="BYTES")),
    (v2.read, inputs(b'["' + b"],[" * (LENGTH // 3) + b'"]', datatype="BYTES")),
    (v2.read, inputs(b"[1]", shape=many(b"300,").decode())),
    (v2.read, b'{"inputs": ' + many(b'{"name":"","shape":[],"datatype":""},') + b"}"),
    (v2.read, b'{"inputs": [], "outputs": ' + many(b'{"name":""},') + b"}"),
    (v2.read, b'{"inputs": [], "parameters": {' + names(LENGTH // 11) + b"}}"),
    (v2.read, b'{"inputs": [], "other": ' + many(b'{"name":""},') + b"}"),
    (mlflow.read, b'{"inputs": ' + many(b"[[]],") + b"}"),
    (records.read, b'{"x": ' + many(b"[[]],") + b"}"),
    (partial(records.read, learning=True), b'{"x": ' + many(b'{"a":1},') + b', "y": [1]}'),
    (records.read, many(b'{"x":[]},')[:-1] + b"0]"),
    (partial(records.read, ndjson=True), b'{"x":[]}\n' * (LENGTH // 9) + b"0"),
    (mlflow.read, b'{"inputs": ' + many(b'{"a":1,"a":1},') + b', "instances": 1}'),
    (mlflow.read, b'{"inputs": {' + names(LENGTH // 11) + b"}}"),
    (mlflow.read, b'{"inputs": {"a": ' + b"[" + many(b"300,") + b"]}}"),
    (mlflow.read, b'{"inputs": ' + many(b'{"a":{}},') + b"}"),
    (mlflow.read, b'{"dataframe_split": {"data": [], "columns": ' + many(b'"a",') + b"}}"),
    (mlflow.read, b'{"dataframe_split": {"data": [], "columns": ' + many(b"1,") + b"}}"),
    (read_csv, b"," * LENGTH),
    (read_csv, b'"' + b"\n" * LENGTH),
    (read_csv, b"a\n" + b"b\n" * (5 << 18)),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(BOMBS)))
def test_memory_is_bounded_by_the_bytes_of_a_body(i: int) -> None:
    read, body = BOMBS[i]
    assert len(body) > LENGTH // 2
    tracemalloc.start()
    try:
        with pytest.raises(RequestError):
            read(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 48 * len(body)


JSON_READERS: list[Callable[..., Any]] = [
    v2.read, mlflow.read, records.read, partial(records.read, ndjson=True),
]  # fmt: skip


@pytest.mark.parametrize("read", JSON_READERS)
def test_json_is_limited_to_8_mebibytes(read: Callable[..., Any]) -> None:
    body = b"[" + b" " * (8 << 20)
    with pytest.raises(RequestError, match=r"at most 8,388,608 bytes of JSON.* Arrow stream"):
        read(body)
    with pytest.raises(RequestError, match="at most 8 bytes of JSON"):
        read(b'{"x": 1, "inputs": 1}', Limits(json_bytes=8))


def test_binary_tensors_have_no_json_limit() -> None:
    X = np.ones((1100, 1000))
    body, length = binary_request({"X": X})
    assert len(body) > 8 << 20
    np.testing.assert_array_equal(v2.read(body, header=length).rows.X, X)


def test_sparse_records_and_nulls_are_limited() -> None:
    content = [{f"{i:x}": 1} for i in range(3000)]
    with raises(
        RequestError, got="35,743 bytes for 9,000,000 values, of which nearly all are missing"
    ):
        mlflow.read(json.dumps({"instances": content}).encode())
    content = [{f"{i:x}": 1} for i in range(300)]
    assert len(mlflow.read(json.dumps({"instances": content}).encode()).rows.X.names) == 300
    nulls = pa.Array.from_buffers(pa.null(), 1 << 20, [None])
    with raises(
        RequestError, got="280 bytes for 2,097,152 values, of which nearly all are missing"
    ):
        arrow.read(arrow_stream(pa.table({"a": nulls, "b": nulls})))


def test_values_in_messages_are_shortened() -> None:
    assert shown("a'b") == repr("a'b")
    assert shown("\ud800" * 100) == "'" + "\\ud800" * 60 + "'..."
    assert shown(10**5000) == "a whole number of 16,610 bits"
    assert [shown(each) for each in (1.5, True, None, 3)] == ["1.5", "True", "None", "3"]
