"""Idempotency keys over HTTP depend on the values of rows, not on their encoding."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from web_server import Server

import onepass as op
from sampling import examples

LEARN = "/v2/models/{}/learn"
_DATATYPES = {"f": "FP64", "i": "INT64", "O": "BYTES"}
Columns = dict[str, list[Any]]
Sent = tuple[bytes, dict[str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("keys") / "data", "rls") as running:
        yield running


def datatype(values: list[Any]) -> str:
    if isinstance(values[0], str):
        return "BYTES"
    return "INT64" if all(isinstance(value, int) for value in values) else "FP64"


def tensors(columns: Columns) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": [len(values)], "datatype": datatype(values), "data": values}
        for name, values in columns.items()
    ]


def plain(columns: Columns) -> Sent:
    return json.dumps({"inputs": tensors(columns)}, separators=(",", ":")).encode(), {}


def indented(columns: Columns) -> Sent:
    return json.dumps({"inputs": tensors(columns)}, indent=3, ensure_ascii=False).encode(), {}


def turned(columns: Columns) -> Sent:
    """Keys and tensors in another order, with an id and a parameter."""
    inputs = [dict(reversed(each.items())) for each in reversed(tensors(columns))]
    body = {"parameters": {"binary_data_output": True}, "inputs": inputs, "id": "again"}
    return json.dumps(body).encode(), {}


def nested(columns: Columns) -> Sent:
    """Features as columns of the shape [n, 1]."""
    inputs = tensors(columns)
    for each in inputs:
        if each["name"] != "y":
            each["shape"].append(1)
            each["data"] = [[value] for value in each["data"]]
    return json.dumps({"inputs": inputs}).encode(), {}


def as_floats(columns: Columns) -> Sent:
    """Whole numbers as FP64, written as such."""
    return plain({name: values if isinstance(values[0], str) else [float(v) for v in values]
                  for name, values in columns.items()})  # fmt: skip


def as_integers(columns: Columns) -> Sent:
    """Whole numbers without a point in FP64."""
    inputs = tensors(columns)
    for each in inputs:
        if each["datatype"] != "BYTES":
            each["datatype"] = "FP64"
            each["data"] = [int(v) if v == int(v) else v for v in each["data"]]
    return json.dumps({"inputs": inputs}).encode(), {}


def binary(columns: Columns) -> Sent:
    inputs, parts = tensors(columns), []
    for each in inputs:
        values = each.pop("data")
        if each["datatype"] == "BYTES":
            texts = [value.encode() for value in values]
            parts.append(b"".join(len(t).to_bytes(4, "little") + t for t in texts))
        else:
            kind = "<i8" if each["datatype"] == "INT64" else "<f8"
            parts.append(np.array(values, dtype=kind).tobytes())
        each["parameters"] = {"binary_data_size": len(parts[-1])}
    head = json.dumps({"inputs": inputs}).encode()
    return b"".join((head, *parts)), {"Inference-Header-Content-Length": str(len(head))}


def gzipped(columns: Columns) -> Sent:
    return gzip.compress(plain(columns)[0]), {"Content-Encoding": "gzip"}


def deflated(columns: Columns) -> Sent:
    body, headers = binary(columns)
    return zlib.compress(body), {**headers, "Content-Encoding": "deflate"}


def arrow(columns: Columns) -> Sent:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    return sink.getvalue().to_pybytes(), kind


ENCODINGS: list[Callable[[Columns], Sent]] = [
    plain, indented, turned, nested, as_floats, as_integers, binary, gzipped, deflated, arrow,
]  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(2**40), 2**40).map(float),
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.just(-0.0),
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)


@st.composite
def blocks(draw: st.DrawFn) -> Columns:
    n = draw(st.integers(1, 4))
    columns = {"a": NUMBERS, "b": NUMBERS, "word": TEXTS, "y": NUMBERS,
               "sample_weight": st.sampled_from([0.5, 1.0, 2.0])}  # fmt: skip
    names = draw(st.permutations(sorted(columns)))
    return {name: draw(st.lists(columns[name], min_size=n, max_size=n)) for name in names}


def learned(server: Server, name: str, key: str, sent: Sent) -> tuple[int, Any]:
    body, headers = sent
    at = LEARN.format(name)
    status, found, inputs = server.send("POST", at, body, {**headers, "Idempotency-Key": key})
    if status != 200:
        return status, found["error"]
    return status, (inputs["x-onepass-version"], inputs["idempotent-replayed"] == "true")


@settings(max_examples=examples(12, 60), print_blob=True)
@given(columns=blocks(), ways=st.permutations(ENCODINGS), data=st.data())
def test_repeated_key_ignores_the_encoding(
    server: Server, columns: Columns, ways: Any, data: st.DataObject
) -> None:
    key = uuid4().hex
    status, inputs = learned(server, "rls", key, ways[0](columns))
    assert (status, inputs[1]) == (200, False), inputs
    for way in ways[1:]:
        assert learned(server, "rls", key, way(columns)) == (200, (inputs[0], True)), way
    name = data.draw(st.sampled_from(sorted(columns)))
    i = data.draw(st.integers(0, len(columns["y"]) - 1))
    before = columns[name][i]
    other = before + "x" if name == "word" else np.nextafter(abs(before), 1e9).item()
    assume(other != before)
    values = [*columns[name][:i], other, *columns[name][i + 1 :]]
    for way in (ways[0], ways[1]):
        assert learned(server, "rls", key, way({**columns, name: values}))[0] == 409, way


@pytest.mark.parametrize(
    "other",
    [{"a": [2.0, 1.0], "y": [4.0, 3.0]}, {"a": [1.0], "y": [3.0]},
     {"b": [1.0, 2.0], "y": [3.0, 4.0]},
     {"a": [1.0, 2.0], "y": [3.0, 4.0], "sample_weight": [2.0, 2.0]}],
)  # fmt: skip
def test_repeated_key_with_other_rows_is_a_conflict(server: Server, other: Columns) -> None:
    key = uuid4().hex
    assert learned(server, "rls", key, plain({"a": [1.0, 2.0], "y": [3.0, 4.0]}))[0] == 200
    assert learned(server, "rls", key, plain(other))[0] == 409


def test_concurrent_requests_with_one_key_are_learned_once(server: Server) -> None:
    assert server.send("PUT", "/v2/models/concurrent", {"model": "rls"})[0] == 201
    start, row = Barrier(5), plain({"a": [1.0], "y": [2.0]})

    def learn(_: int) -> tuple[int, Any]:
        start.wait(timeout=20)
        return learned(server, "concurrent", "same", row)

    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(learn, range(5)))
    assert sorted(found) == [(200, ("1", False))] + [(200, ("1", True))] * 4
    state = {each["name"]: each for each in server.send("GET", "/state")[1]["models"]}
    assert state["concurrent"]["rows_seen"] == 1


@settings(max_examples=examples(25, 60), print_blob=True)
@given(
    values=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=4),
    kinds=st.tuples(*[st.sampled_from(["i8", "f8", ">i8", "f4", "list"])] * 2),
)
def test_repeated_key_ignores_the_dtype(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], kinds: tuple[str, str]
) -> None:
    """Integers beyond the precision of float64 are compared exactly."""
    y = {
        "list": values,
        "i8": np.array(values), "f8": np.array(values, "f8"), "f4": np.array(values, "f4"),
        ">i8": np.array(values, ">i8"),
    }  # fmt: skip
    first, second = (y[kind] for kind in kinds)
    same = [int(v) for v in np.ravel(first)] == [int(v) for v in np.ravel(second)]
    X = np.arange(float(len(values)))[:, None]
    with op.durable(tmp_path_factory.mktemp("dtypes") / "m.db", op.RLSClassifier()) as durable:
        durable.learn(X, first, key="k")
        if same:
            assert durable.learn(X.astype("i2"), second, key="k").repeated
        else:
            with pytest.raises(op.errors.IdempotencyConflictError):
                durable.learn(X, second, key="k")
