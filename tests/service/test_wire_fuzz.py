"""Random bodies are decoded, or refused with a message."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_bodies import arrow_stream, binary_request, request, tensor

from onepass.errors import RequestError
from sampling import examples

pytest.importorskip("msgspec")
from onepass.service.protocol import arrow, mlflow, records, v2
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.mlflow import read_csv
from onepass.service.protocol.rows import DecodedRequest

LIMITS = Limits(unpacked=1 << 24, values=1 << 20)
X = np.array([[0.5, -1e300, 3], [4, 5, 6]])
NAMED = {"speed": np.array([1.5, 2]), "gear": np.array(["low", "höch"]),
         "wet": np.array([True, False]), "y": np.array([1, 2])}  # fmt: skip
TABLE = pa.table(
    {
        "number": [0.1, None], "whole": pa.array([1, None], pa.int16()), "truth": [True, None],
        "text": ["a", None], "long": pa.array(["höch", None], pa.large_string()),
        "category": pa.array(["u", None]).dictionary_encode(),
        "at": pa.array([0, None], pa.timestamp("ms", tz="UTC")),
        "clock": pa.array([1, 2], pa.time32("s")),
        "price": pa.array([1, None], pa.decimal128(5, 2)), "never": pa.nulls(2),
        "m": pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2, 3, 4]), 2),
    }
)  # fmt: skip
OUTPUTS = [{"name": "y", "parameters": {"binary_data": True}}]
FORMS: list[Any] = [
    {"dataframe_split": {"columns": ["a", "b"], "data": [[1, "x"], [None, "y"]]}},
    {"dataframe_records": [{"a": 1, "b": "x"}, {"b": None}]},
    {"instances": [[1, 2], [3, 4]]},
    {"inputs": {"a": [1, None], "b": ["x", "y"]}, "params": {"k": 1}},
    {"inputs": {"X": [[1, 2], [3, 4]]}},
]
RECORDS: list[Any] = [
    [{"x": {"a": 1, "b": "x"}, "y": 1, "time": "2026-11-22"}, {"x": {}, "y": 2, "time": 3}],
    {"x": [1, None], "y": [0.5, 1], "outputs": ["y"]},
    {"x": [{"a": 1}, {"b": "x"}], "y": ["u", None], "sample_weight": [1, 2]},
    {"x": [[1, 2], [3, None]], "await_label": True, "seconds": 9},
]
BODIES: dict[str, list[bytes]] = {
    "tensors": [
        request(tensor("X", X), id="1", outputs=OUTPUTS, parameters={"a": 1}),
        request(*(tensor(name, each) for name, each in NAMED.items())),
    ],
    "binary": [binary_request({"X": X})[0], binary_request(NAMED)[0]],
    "invocations": [json.dumps(each).encode() for each in FORMS],
    "records": [json.dumps(each).encode() for each in RECORDS],
    "ndjson": [b"\n".join(json.dumps(each).encode() for each in RECORDS[0])],
    "csv": [b'a,b,y\n1,x,2\n,"y,\n",3\n', b"a\n1\n"],
    "arrow": [
        arrow_stream(TABLE.drop(["m"])), arrow_stream(TABLE.select(["m", "text"]), rows=1),
        arrow_stream(TABLE, compression="lz4"), arrow_stream(TABLE, compression="zstd"),
    ],
}  # fmt: skip
LENGTHS = {len(body): body.index(b"}]}") + 3 for body in BODIES["binary"]}
TOKENS = [
    b"null", b"NaN", b"[", b"]", b"{", b"}", b",", b'"', b"-1", b"1e999", b"true", b"\xff", b"\0",
    rb"\ud800", b"9" * 30, b'"FP32"', b'"BYTES"', b'"INT8"', b"0", b":", b"\n", b"\r", b";",
    b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0" * 8, b"\1\0\0\0\0\0\0\0",
]  # fmt: skip
edits = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(TOKENS) | st.binary(max_size=4)),
    min_size=1, max_size=4,
)  # fmt: skip


def edited(body: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    """The body with some bytes replaced."""
    for where, cut, put in changes:
        at = int(where * len(body))
        body = body[:at] + put + body[at + cut :]
    return body


def read_binary(body: bytes, limits: Limits, *, learning: bool) -> DecodedRequest:
    nearest = min(LENGTHS, key=lambda length: abs(length - len(body)))
    return v2.read(body, limits, header=LENGTHS[nearest], learning=learning)


READERS: dict[str, Callable[..., DecodedRequest]] = {
    "tensors": v2.read, "binary": read_binary, "invocations": mlflow.read,
    "csv": read_csv, "arrow": arrow.read, "records": records.read,
    "ndjson": partial(records.read, ndjson=True),
}  # fmt: skip


def hold(name: str, body: bytes, *, learning: bool) -> None:
    try:
        role = {} if name in {"invocations", "csv"} else {"learning": learning}
        decoded = READERS[name](body, LIMITS, **role)
    except RequestError as refused:
        message = str(refused)
        assert len(message) < 1500
        assert message.startswith("the request")
        assert " must " in message
        assert message[-1] in ".?"
    else:
        assert len(decoded.rows.X) >= 0


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=examples(120, 400))
@given(data=st.data())
def test_edited_bodies_are_decoded_or_refused(name: str, data: st.DataObject) -> None:
    body = edited(data.draw(st.sampled_from(BODIES[name])), data.draw(edits))
    hold(name, body, learning=data.draw(st.booleans()))


@pytest.mark.parametrize("name", READERS)
@given(body=st.binary(max_size=100), learning=st.booleans())
def test_random_bytes_are_decoded_or_refused(name: str, body: bytes, *, learning: bool) -> None:
    hold(name, body, learning=learning)


@pytest.mark.parametrize("name", ["tensors", "invocations", "records"])
@settings(max_examples=examples(80, 200))
@given(data=st.data())
def test_random_json_is_decoded_or_refused(name: str, data: st.DataObject) -> None:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3)
                         | st.dictionaries(st.text(max_size=2), inner, max_size=3))  # fmt: skip
    document = json.loads(BODIES[name][data.draw(st.integers(0, len(BODIES[name]) - 1))])
    keys = range(len(document)) if isinstance(document, list) else sorted(document)
    place, key = document, data.draw(st.sampled_from(keys))
    while isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans()):
        place = place[key]
        inner = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(inner))
    place[key] = data.draw(trees)
    hold(name, json.dumps(document).encode(), learning=data.draw(st.booleans()))


@pytest.mark.parametrize("name", READERS)
def test_truncated_bodies_are_decoded_or_refused(name: str) -> None:
    for body in BODIES[name]:
        for end in range(0, len(body), 1 + len(body) // 150):
            hold(name, body[:end], learning=False)
