"""The binary extension of the Open Inference Protocol."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from wire_bodies import CODES, binary_request, in_bytes, request, tensor

from onepass.errors import LabelError, RequestError
from raising import raises

pytest.importorskip("msgspec")
from onepass.service.protocol import v2
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.rows import DecodedRequest, EncodedResponse, Output
from onepass.validation.rows import Rows


def read(body: bytes, length: Any, **more: Any) -> DecodedRequest:
    return v2.read(body, header=length, **more)


@pytest.mark.parametrize("code", [code for name, code in CODES.items() if name != "BOOL"])
@given(st.data())
def test_numbers_keep_every_bit(code: str, data: st.DataObject) -> None:
    X = data.draw(arrays(np.dtype(code), st.tuples(st.integers(0, 4), st.integers(1, 5))))
    decoded = read(*binary_request({"X": X}))
    assert decoded.rows.X.dtype == np.float64
    assert decoded.rows.X.flags.aligned
    assert (
        decoded.rows.X.tobytes() == X.astype(np.float64).tobytes()
    )  # nan, infinity and -0 among them


def test_unaligned_bytes_are_read() -> None:
    X = np.random.default_rng(0).standard_normal((3, 5))
    for i in range(9):
        decoded = read(*binary_request({"X": X}, id="a" * i))
        assert decoded.rows.X.flags.aligned
        assert decoded.rows.X.tobytes() == X.tobytes()


def test_columns_targets_weights_and_times() -> None:
    named = {
        "speed": np.array([1.5, np.nan]), "wet": np.array([True, False]),
        "gear": np.array(["", "höch"]), "y": np.array(["a", "b"]),
        "time": np.array(["2026-11-22", "2026-11-23T01:02:03.000004Z"]),
        "sample_weight": np.array([1, 2], dtype=np.uint8),
    }  # fmt: skip
    body, length = binary_request(named)
    decoded = read(body, str(length), learning=True)
    assert decoded.rows.X.names == ["speed", "wet", "gear"]
    assert decoded.rows.X["gear"].tolist() == ["", "höch"]
    assert decoded.rows.X["wet"].tolist() == [1.0, 0.0]
    assert np.isnan(decoded.rows.X["speed"][1])
    assert decoded.rows.y.tolist() == ["a", "b"]
    assert decoded.rows.time[1] == np.datetime64("2026-11-23T01:02:03.000004")
    assert decoded.rows.weight.tolist() == [1.0, 2.0]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=9))
def test_text_keeps_every_character(words: list[str]) -> None:
    array = np.empty(len(words), dtype=object)
    array[:] = words
    decoded = read(*binary_request({"word": array, "other": array[:, None]}))
    assert decoded.rows.X["word"].tolist() == decoded.rows.X["other"].tolist() == words


def test_inputs_in_json_and_in_bytes() -> None:
    body, length = binary_request({"a": np.array([1.0]), "b": np.array([2.0])})
    head = json.loads(body[:length])
    head["inputs"].insert(1, tensor("j", [3.0]))
    text = json.dumps(head).encode()
    assert list(read(text + body[length:], len(text)).rows.X.rows()) == [
        {"a": 1.0, "j": 3.0, "b": 2.0}
    ]


def test_empty_tensors_need_no_header_length() -> None:
    tensors = {"name": "X", "shape": [0, 3], "datatype": "FP64", "data": None,
            "parameters": {"binary_data_size": 0}}  # fmt: skip
    assert read(request(tensors), None).rows.X.shape == (0, 3)  # as kserve's client writes it
    tensors |= {"shape": [0], "datatype": "BYTES"}
    assert len(read(request(tensors), None).rows.X) == 0


def changed(size: Any = 32, **more: Any) -> bytes:
    tensors = tensor("X", [[1.0, 2.0], [3.0, 4.0]], parameters={"binary_data_size": size}) | more
    del tensors["data"]
    return request(tensors)


FOUR = np.arange(4.0).tobytes()


@pytest.mark.parametrize(
    ("head", "tail", "message"),
    [
        (changed(), FOUR[:-1], "must have 32 bytes, given FP64 and the shape, got 31"),
        (changed(), FOUR + b"\0", "must have 1.. bytes, .* got 1.."),
        (
            changed(31),
            FOUR[:-1],
            r"inputs\[0\]` must have 32 bytes, given FP64 and the shape, got 31",
        ),
        (changed(1 << 60), FOUR, "must have 1,152,921,504,606,847,097 bytes"),
        (changed(1 << 70), FOUR, "binary_data_size` must be a whole number"),
        (changed("32"), FOUR, "binary_data_size` must be a whole number or null, got text"),
        (changed(None), FOUR, "neither"),
        (changed(shape=[1 << 20, 16]), FOUR, "must have 134,217,728 bytes"),
        (changed(datatype="BF16"), FOUR, "invalid value 'BF16'"),
        (changed(4, datatype="BOOL"), b"\0\1\2\0", "bytes 0 and 1, as the datatype is BOOL, got 2"),
        (changed(8, datatype="BYTES", shape=[2]), b"\0" * 8, None),
        (changed(8, datatype="BYTES", shape=[1]), b"\0" * 8, "exactly 1 texts.* got 8 bytes"),
        (changed(8, datatype="BYTES", shape=[3]), b"\0" * 8, "exactly 3 texts.* got 8 bytes"),
        (
            changed(8, datatype="BYTES", shape=[2]),
            b"\5\0\0\0abcd",
            "exactly 2 texts.* from which 1 texts",
        ),
        (changed(9, datatype="BYTES", shape=[2]), b"\3\0\0\0abcd\0", "got 9 bytes"),
        (changed(4, datatype="BYTES", shape=[1]), b"\xff" * 4, "exactly 1 texts.* got 4 bytes"),
        (changed(5, datatype="BYTES", shape=[1]), b"\1\0\0\0\xff", "and its UTF-8"),
        (changed(7, datatype="BYTES", shape=[1]), b"\3\0\0\0\xed\xa0\x80", "and its UTF-8"),
    ],
)
def test_bytes_that_do_not_match_the_header_are_refused(
    head: bytes, tail: bytes, message: str | None
) -> None:
    if message is None:
        assert read(head + tail, len(head)).rows.X["X"].tolist() == ["", ""]
        return
    with pytest.raises(RequestError, match=message):
        read(head + tail, len(head))


@pytest.mark.parametrize("header", ["", "-1", "1e3", "²", "12x", "9" * 30, "1_0", 1 << 40, -1])
def test_invalid_header_lengths_are_refused(header: Any) -> None:
    with raises(RequestError, remedy="Send the length in"):
        read(changed() + FOUR, header)


def test_missing_header_length_is_refused() -> None:
    with pytest.raises(RequestError, match=r"must be JSON|UTF-8"):
        read(changed() + FOUR, None)


def test_length_of_text_is_limited() -> None:
    body, length = binary_request({"a": np.array(["abc", "d"])})
    assert v2.read(body, Limits(text=3), header=length).rows.X["a"].tolist() == ["abc", "d"]
    with raises(RequestError, got="a text of 3"):
        v2.read(body, Limits(text=2), header=length)


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, (Output("y"),)),
        ({"parameters": {"binary_data_output": True}}, (Output("y", binary=True),)),
        ({"outputs": [{"name": "y"}, {"name": "classes", "parameters": {"binary_data": True}}]},
         (Output("y"), Output("classes", binary=True))),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": False}}, {"name": "classes"}],
          "parameters": {"binary_data_output": True}},
         (Output("y"), Output("classes", binary=True))),
        ({"outputs": None, "parameters": None, "id": None}, (Output("y"),)),
        ({"outputs": []}, (Output("y"),)),
    ],
)  # fmt: skip
def test_binary_outputs_are_selected(more: dict[str, Any], expected: tuple[Output, ...]) -> None:
    body = request(tensor("X", [[1.0]]), **more)
    assert v2.read(body).outputs == expected


def sent(
    answers: dict[str, Any], **binary: bool
) -> tuple[EncodedResponse, list[dict[str, Any]], bytes]:
    outputs = tuple(Output(name, each) for name, each in binary.items())
    reply = v2.write(
        DecodedRequest(Rows(None), outputs=outputs), answers, model="flow", version="7"
    )
    assert reply.headers is not None
    assert reply.kind == "application/octet-stream"
    length = int(reply.headers["inference-header-content-length"])
    return reply, json.loads(reply.body[:length])["outputs"], reply.body[length:]


@given(arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 3))))
def test_predictions_keep_every_bit(y: Any) -> None:
    _, (tensors,), tail = sent({"y": y}, y=True)
    assert tensors == {"name": "y", "datatype": "FP64", "shape": list(y.shape),
                    "parameters": {"binary_data_size": y.nbytes}}  # fmt: skip
    assert tail == y.tobytes()


@pytest.mark.parametrize(
    ("y", "datatype", "tail"),
    [
        (np.array([-3, 4]), "INT64", struct.pack("<2q", -3, 4)),
        (np.array([4], dtype=np.uint8), "INT64", struct.pack("<q", 4)),
        (np.array([True, False]), "BOOL", b"\1\0"),
        (np.array(["ä", "", "b"]), "BYTES", in_bytes(["ä", "", "b"])),
        (np.array(["ä", None], dtype=object), "BYTES", in_bytes(["ä", ""])),
        (np.array([None, 2], dtype=object), "FP64", struct.pack("<2d", np.nan, 2)),
        (np.array([0.5], dtype=np.float32), "FP64", struct.pack("<d", 0.5)),
        (np.array([1.0], dtype=">f8"), "FP64", struct.pack("<d", 1)),
        (np.arange(6.0).reshape(2, 3).T, "FP64", struct.pack("<6d", 0, 3, 1, 4, 2, 5)),
    ],
)
def test_predictions_of_each_type(y: Any, datatype: str, tail: bytes) -> None:
    _, (tensors,), found = sent({"y": y}, y=True)
    assert (tensors["datatype"], found) == (datatype, tail)


def test_outputs_in_json_and_in_bytes() -> None:
    answers = {"y": np.array(["a"]), "probabilities": np.array([[0.25, 0.75]]),
               "classes": np.array(["a", "b"])}  # fmt: skip
    _, tensors, tail = sent(answers, probabilities=True, y=False, classes=True)
    assert tensors[1]["data"] == ["a"]
    assert tail == in_bytes([[0.25, 0.75]]) + in_bytes(["a", "b"])


def test_lone_surrogates_cannot_be_encoded() -> None:
    with raises(LabelError, got="a lone surrogate"):
        sent({"y": np.array(["\udc00"], dtype=object)}, y=True)
