"""Requests and responses of the Open Inference Protocol in JSON."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_bodies import request, tensor

from onepass.errors import LabelError, RequestError
from onepass.validation.table import Table
from raising import raises

pytest.importorskip("msgspec")
from onepass.service.protocol import v2
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.rows import DecodedRequest, Output
from onepass.service.protocol.v2 import DATATYPES
from onepass.validation.rows import Rows

doubles = st.floats(allow_nan=False, allow_infinity=False)


def bits(array: Any) -> bytes:
    return np.asarray(array, dtype=np.float64).tobytes()


# -- rows without names ----------------------------------------------------------------------------


@given(
    rows=st.lists(st.lists(doubles, min_size=3, max_size=3), min_size=1, max_size=9),
    nested=st.booleans(),
)
def test_doubles_keep_every_bit(*, rows: list[list[float]], nested: bool) -> None:
    tensors = tensor("X", np.array(rows))
    if not nested:
        tensors["data"] = np.array(rows).ravel().tolist()
    decoded = v2.read(request(tensors))
    assert decoded.rows.X.dtype == np.float64
    assert decoded.rows.X.shape == (len(rows), 3)
    assert bits(decoded.rows.X) == bits(rows)
    assert (decoded.rows.y, decoded.rows.weight, decoded.rows.time) == (None, None, None)
    assert (decoded.id, decoded.outputs, decoded.parameters) == ("", (Output("y"),), None)


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_numbers_are_parsed_to_the_nearest_double(text: str) -> None:
    body = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP64","data":[%b]}]}' % text.encode()
    expected = float(text)
    if np.isinf(expected):
        with raises(RequestError, got="number out of range"):
            v2.read(body)
    elif text.startswith("-0") and expected == 0.0 and text == "-0":
        assert v2.read(body).rows.X == 0.0  # a whole number, which has no sign
    else:
        assert bits(v2.read(body).rows.X) == bits([expected])


@pytest.mark.parametrize("n", [2_000, 9_000])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("gap", ["", " ", " \n\t"])
def test_long_lists(*, n: int, nested: bool, gap: str) -> None:
    X = np.random.default_rng(0).standard_normal((n, 7))
    tensors = tensor("X", X) | ({} if nested else {"data": X.ravel().tolist()})
    body = json.dumps({"inputs": [tensors]}, separators=("," + gap, ":" + gap)).encode()
    assert bits(v2.read(body).rows.X) == bits(X)
    X[n // 2, 3] = np.nan
    tensors["data"] = X.tolist()
    tensors["data"][n // 2][3] = None
    assert bits(v2.read(request(tensors)).rows.X) == bits(X)


def test_long_bodies_are_read() -> None:
    X = np.random.default_rng(0).standard_normal((4_000, 60))
    who = np.array([f'a "{i}", [{{}}], ' for i in range(4_000)] * 1, dtype=object)
    body = request(tensor("X", X), id="long", outputs=[{"name": "classes"}], parameters={"a": 1})
    assert len(body) > 4 << 20
    decoded = v2.read(body)
    assert bits(decoded.rows.X) == bits(X)
    assert (decoded.id, decoded.outputs, decoded.parameters) == (
        "long",
        (Output("classes"),),
        {"a": 1},
    )
    columns = {f"x{j}": X[:, j] for j in range(60)} | {"who": who}
    body = request(*(tensor(name, each) for name, each in columns.items()))
    found = v2.read(body).rows.X
    assert found.names == list(columns)
    assert all(bits(found[f"x{j}"]) == bits(X[:, j]) for j in range(60))
    assert found["who"].tolist() == who.tolist()


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name[0] in "UIF"])
def test_each_datatype_of_numbers_is_read_as_float64(datatype: str) -> None:
    tensors = tensor("X", [[1, 2], [3, 4]], datatype=datatype)
    assert bits(v2.read(request(tensors)).rows.X) == bits([[1, 2], [3, 4]])


@given(st.data())
def test_narrow_numbers_are_rounded_as_their_bytes_would_be(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([16, 32]))
    values = data.draw(st.lists(st.floats(width=width, allow_nan=False, allow_infinity=False),
                                min_size=1, max_size=5))  # fmt: skip
    tensors = tensor("X", [values], datatype=f"FP{width}")
    assert bits(v2.read(request(tensors)).rows.X) == bits([values])
    tensors["data"] = [
        [float(np.dtype(f"f{width // 8}").type(v).astype(np.float64)) for v in values]
    ]
    assert bits(v2.read(request(tensors)).rows.X) == bits([values])
    assert np.float32(0.1) == v2.read(request(tensor("X", [[0.1]], datatype="FP32"))).rows.X


def test_null_is_missing_and_integral_floats_are_integers() -> None:
    tensors = tensor("X", [[1, 2], [3, 4]]) | {"data": [1.0, None, 3e0, 4]}
    for datatype in ("INT64", "FP64", "FP32", "UINT8"):
        X = v2.read(request(tensors | {"datatype": datatype})).rows.X
        assert bits(X) == bits([[1, np.nan], [3, 4]])


@pytest.mark.parametrize("shape", [[0, 3], [3, 0]])
def test_no_rows_and_no_columns(shape: list[int]) -> None:
    tensors = {"name": "X", "shape": shape, "datatype": "FP64", "data": []}
    assert v2.read(request(tensors)).rows.X.shape == tuple(shape)


# -- named columns ---------------------------------------------------------------------------------


def test_several_tensors_are_named_columns() -> None:
    named = {
        "speed": np.array([1.5, 2.5]), "rank": np.array([3, 4]), "wet": np.array([True, False]),
        "gear": np.array(["low", "höch 🚗"]), "one": np.array([[5.0], [6.0]]),
    }  # fmt: skip
    X = v2.read(request(*(tensor(name, each) for name, each in named.items()))).rows.X
    assert isinstance(X, Table)
    assert X.names == list(named)
    assert list(X.rows()) == [
        {"speed": 1.5, "rank": 3.0, "wet": 1.0, "gear": "low", "one": 5.0},
        {"speed": 2.5, "rank": 4.0, "wet": 0.0, "gear": "höch 🚗", "one": 6.0},
    ]


def test_one_axis_is_a_column_of_rows() -> None:
    X = v2.read(request(tensor("speed", [1.0, 2.0, 3.0]))).rows.X
    assert (X.names, len(X)) == (["speed"], 3)
    X = v2.read(request(tensor("gear", [["low"], ["high"]]))).rows.X
    assert X["gear"].tolist() == ["low", "high"]


def test_missing_values_of_columns() -> None:
    tensors = [tensor(name, [0, 0, 0]) for name in ("number", "whole", "truth", "text")]
    tensors[0] |= {"datatype": "FP64", "data": [1.5, None, 2]}
    tensors[1] |= {"datatype": "INT32", "data": [None, 2, 3]}
    tensors[2] |= {"datatype": "BOOL", "data": [True, None, 0]}
    tensors[3] |= {"datatype": "BYTES", "data": ["a", "", None]}
    X = v2.read(request(*tensors)).rows.X
    assert bits(X["number"]) == bits([1.5, np.nan, 2])
    assert bits(X["whole"]) == bits([np.nan, 2, 3])
    assert bits(X["truth"]) == bits([1, np.nan, 0])
    assert X["text"].tolist() == ["a", "", None]


def test_dates_have_a_content_type() -> None:
    tensors = tensor("at", ["2026-11-22T23:08:40.5Z", "2026-11-23T00:08:40+02:00", "2026-11-22"])
    tensors |= {"parameters": {"content_type": "datetime"}}
    at = v2.read(request(tensors)).rows.X["at"]
    assert at.dtype == np.dtype("datetime64[us]")
    expected = ["2026-11-22T23:08:40.5", "2026-11-22T22:08:40", "2026-11-22"]
    assert at.tolist() == np.array(expected, dtype="datetime64[us]").tolist()
    tensors["data"] = ["2026-11-22", None, "yesterday"]
    with pytest.raises(
        RequestError, match=r"inputs\[0\], row 2` must be an ISO 8601 date.*'yesterday'"
    ):
        v2.read(request(tensors))


# -- targets ---------------------------------------------------------------------------------------


def test_targets_weights_and_times_are_not_features() -> None:
    tensors = [tensor("X", [[1.0], [2.0]]), tensor("y", [3.0, 4.0]),
            tensor("sample_weight", [1, 2]), tensor("time", [[5], [6]])]  # fmt: skip
    decoded = v2.read(request(*tensors), learning=True)
    assert bits(decoded.rows.X) == bits([[1], [2]])
    assert bits(decoded.rows.y) == bits([3, 4])
    assert bits(decoded.rows.weight) == bits([1, 2])
    assert decoded.rows.time.tolist() == [5, 6]
    assert decoded.rows.time.dtype == np.int64
    for some in (
        tensors,
        [*tensors[:1], tensor("y", [[1.0, 2.0], [1.0, 2.0]])],
    ):  # not to be learned
        assert bits(v2.read(request(*some)).rows.X) == bits([[1], [2]])
    assert v2.read(request(*tensors[1:])).rows.X.names == ["y", "sample_weight", "time"]


@pytest.mark.parametrize(
    ("y", "datatype", "kind"),
    [([1, 2], "INT8", "i"), ([1, 2], "UINT16", "i"), ([1, 2], "UINT64", "i"),
     ([1, 1 << 63], "UINT64", "u"),
     ([True, False], "BOOL", "b"), (["a", "b"], "BYTES", "O"), ([0.5, 1], "FP32", "f"),
     ([[1.0, 2.0], [3.0, 4.0]], "FP64", "f")],
)  # fmt: skip
def test_targets_keep_their_type(y: Any, datatype: str, kind: str) -> None:
    tensors = tensor("y", y) | {"datatype": datatype, "data": y}
    decoded = v2.read(request(tensor("X", [[1.0], [2.0]]), tensors), learning=True)
    assert decoded.rows.y.dtype.kind == kind
    assert decoded.rows.y.tolist() == y
    assert kind not in "iuf" or decoded.rows.y.itemsize == 8


def test_whole_numbers_of_64_bits_are_exact() -> None:
    y = [-(1 << 63), (1 << 63) - 1, (1 << 53) + 1]
    X = tensor("X", [[1.0]] * 3)
    tensors = request(X, tensor("y", y), tensor("time", y))
    decoded = v2.read(tensors, learning=True)
    assert decoded.rows.y.tolist() == decoded.rows.time.tolist() == y
    y = np.array([1, 2, (1 << 64) - 1], dtype=np.uint64)
    decoded = v2.read(request(X, tensor("y", y)), learning=True)
    assert decoded.rows.y.tolist() == [1, 2, (1 << 64) - 1]


def test_times_may_be_dates() -> None:
    tensors = [
        tensor("X", [[1.0], [2.0]]),
        tensor("time", ["2026-11-22T01:00+01:00", "2026-11-23"]),
    ]
    time = v2.read(request(*tensors), learning=True).rows.time
    assert time.dtype == np.dtype("datetime64[us]")
    assert str(time[0]) == "2026-11-22T00:00:00.000000"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([tensor("y", [1.0])], "must have at least one feature, got y"),
        (
            [tensor("X", [[1.0]]), tensor("y", [[["a"]]])],
            r"must be a list of length <= 2.* as \[n, d\]",
        ),
        ([tensor("X", [[1.0]]), tensor("y", [["a", "b"]])], "numbers, or one text per row"),
        ([tensor("X", [[1.0]]), tensor("sample_weight", ["a"])], "must be numbers"),
        ([tensor("X", [[1.0]]), tensor("sample_weight", [[1.0, 2.0]])], r"\[n\] or \[n, 1\]"),
        ([tensor("X", [[1.0]]), tensor("time", [True])], "numbers or dates"),
        (
            [tensor("X", [[1.0]]), tensor("time", ["now"])],
            r"inputs\[1\], row 0` must be an ISO 8601 date",
        ),
        ([tensor("X", [[1.0], [2.0]]), tensor("y", [1.0])], r"inputs\[1\].shape` must have 2 rows"),
    ],
)
def test_invalid_targets_weights_and_times_are_refused(
    tensors: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        v2.read(request(*tensors), learning=True)


# -- errors ----------------------------------------------------------------------------------------


def changed(**more: Any) -> bytes:
    return request(tensor("X", [[1.0, 2.0], [3.0, 4.0]]) | more)


ONE = tensor("X", [[1.0]])
DATA = r"inputs\[0\]\.data"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "must be JSON, got an empty body"),
        (b"[]", "the request must be an object, got a list"),
        (b"{}", 'must have rows, got none. Send {"x": {"km": 3}, "y": 5}'),
        (b'{"inputs": []}', "must have at least one feature"),
        (b'{"inputs": [{}]}', r"inputs\[0\]` must conform to the schema, got object missing"),
        (b'{"inputs": []} x', "must be JSON"),
        (b"\xef\xbb\xbf{}", "must be JSON"),
        (b'{"inputs": ' + b"[" * 100_000, "must be a"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested a few levels deep"),
        (b'{"a": "\xff", "inputs": []}', "columns|UTF-8"),
        (changed(name="\ud800"), "must be JSON"),
        (changed(name=3), r"inputs\[0\]\.name` must be text, got a whole number"),
        (changed(shape=[2]), DATA),
        (changed(shape=[2, 3]), f"{DATA}.*must have"),
        (changed(shape=[2, 2, 1]), r"shape` must be a list of length <= 2.* as \[n, d\]"),
        (changed(shape=[]), r"shape` must be a list of length >= 1"),
        (changed(shape=[1] * 1000), "must be a list of length <= 2"),
        (changed(shape=[-1, 2]), r"shape\[0\]` must be a whole number >= 0"),
        (changed(shape=[2.0, 2]), r"shape\[0\]` must be a whole number, got a number"),
        (changed(shape=[1 << 70, 2]), r"shape\[0\]` must be a whole number <="),
        (changed(shape=[1 << 40, 1 << 40]), "at most 1,048,576 rows"),
        (changed(shape=[2, 1 << 40]), "at most 65,536 columns"),
        (changed(shape=[1 << 20, 1 << 10]), "at most 16,777,216 values"),
        (changed(datatype="FP65"), "got invalid value 'FP65'. Choose one of BOOL, "),
        (changed(datatype="BF16"), "invalid value 'BF16'"),
        (changed(data=[[1, 2], [3]]), rf"{DATA}\[1\]` must have 2 values.* got 1"),
        (changed(data=[[1, 2, 3, 4]]), rf"{DATA}\[0\]` must have 2 values.* got 4"),
        (changed(data=[1, 2, 3]), f"{DATA}` must have 4 values.* got 3"),
        (changed(data=[1, 2, 3, 4, 5]), f"{DATA}` must have 4 values.* got 5"),
        (changed(data=[[1, 2], [3, [4]]]), rf"{DATA}\[1\]\[1\]`.* got a list"),
        (changed(data=[[1, 2], 3, 4]), DATA),
        (changed(data=[1, 2, [3, 4]]), DATA),
        (changed(data={"a": 1}), f"{DATA}` must be a list or null, got an object"),
        (changed(data="1, 2"), f"{DATA}` must be a list or null, got text"),
        (changed(data=None), "neither"),
        (changed(data=[1, 2, 3, "4"]), rf"{DATA}\[3\]` must be a number, a list or null, got text"),
        (changed(data=[1, 2, 3, "NaN"]), "and null for missing values"),
        (changed(data=[1, 2, 3, float("nan")]), "NaN or Infinity, which JSON does not have"),
        (changed(data=[1, 2, 3, float("-inf")]), "NaN or Infinity, which JSON does not have"),
        (changed(data=[1, 2, 3, True]), rf"{DATA}\[3\]` must be a number"),
        (changed(data=[1, 2, 3, 10**400]), rf"{DATA}\[3\]`"),
        (changed(data=[[1, 2], [3, 4.5]], datatype="INT8"), r"a multiple of 1"),
        (changed(data=[[1, 2], [3, 400]], datatype="INT8"), r"\[1\]\[1\]` must be .* <= 127"),
        (changed(data=[1, 2, 3, -1], datatype="UINT64"), rf"{DATA}\[3\]` must be .* >= 0"),
        (changed(data=[1, 2, 3, 1 << 64], datatype="UINT64"), f"{DATA}` must be whole"),
        (changed(data=[1, 2, 3, 1e300], datatype="INT64"), rf"{DATA}\[3\]`"),
        (changed(data=[1, 2, 3, 1e39], datatype="FP32"), rf"{DATA}\[3\]` must be a number <= 3.4"),
        (changed(data=[[1, 2], [65520, 1]], datatype="FP16"), rf"{DATA}\[1\]\[0\]`.* <= 65504"),
        (changed(data=[1, 0, 1, 2], datatype="BOOL"), rf"{DATA}\[3\]` must be a whole number <= 1"),
        (changed(data=["a"] * 4, datatype="BYTES"), "must have the shape"),
        (changed(data=["a", 1], datatype="BYTES", shape=[2]), r"data\[1\]` must be text.* a whole"),
        (changed(data=[["a", "b"], ["c"]], datatype="BYTES", shape=[2]),
         f"{DATA}` must have 2 values.* got lists"),
        (changed(data=["\ud83d"], datatype="BYTES", shape=[1]), "must be JSON"),
        (changed(data=["a" * 70_000], datatype="BYTES", shape=[1]), "at most 65,536 characters"),
        (changed(name="a" * 70_000), "name` must have texts of at most 65,536 characters"),
        (request(tensor("a", [1.0]), tensor("a", [1.0])), r"\[1\].name` must be unique, got 'a'"),
        (request(tensor("a", [1.0]), tensor("b", [[1.0, 2.0]])), r"inputs\[1\]` must have the sh"),
        (request(tensor("a", [1.0]), tensor("b", [1.0, 2.0])), "must have 1 rows, like inputs"),
        (changed(parameters={"shared_memory_region": "r"}), "Send the values in the body"),
        (changed(parameters={"binary_data_size": 32}), "got both"),
        (changed(parameters={"binary_data_size": -1}), "binary_data_size` must be"),
        (request(tensor("X", [[1.0]]), outputs=[{"name": "z"}]), r"outputs\[0\].name` must con"),
        (request(tensor("X", [[1.0]]), outputs=[{"name": "class"}]), "Choose one of y, prob"),
        (request(tensor("X", [[1.0]]), outputs=[{"name": "y"}] * 2), r"outputs\[1\].name` must be"),
        (request(ONE, outputs=[{"name": "y", "parameters": {"classification": 2}}]),
         r"outputs\[0\].parameters.classification` .* Request `probabilities`"),
        (request(ONE, parameters={"binary_data_output": 1}), "true or false, got 1"),
        (request(tensor("X", [[1.0]]), parameters={"a": [1]}), r"parameters\[\.\.\.\]`"),
        (request(tensor("X", [[1.0]]), id=7), "id` must be text"),
        (request(tensor("X", [[1.0]]), id="a" * 70_000), "id` must have texts of at most"),
    ],
)  # fmt: skip
def test_errors_name_the_place(body: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        v2.read(body)
    error_text = str(refused.value)
    assert len(error_text) < 1000
    assert " must " in error_text and ", got " in error_text and error_text[-1] in ".?"  # noqa: PT018


@pytest.mark.parametrize("n", [3_000, 40_000])
def test_errors_late_in_a_body_name_the_place(n: int) -> None:
    data: list[Any] = [[0.5, 0.25]] * n
    tensors = {"name": "X", "shape": [n, 2], "datatype": "FP64"}
    with pytest.raises(
        RequestError, match=rf"data\[{n - 2}\]\[1\]` must be a number or null, got text"
    ):
        v2.read(request(tensors | {"data": [*data[:-2], [1, "no"], [1, 2]]}))
    with pytest.raises(RequestError, match=rf"data\[{n - 1}\]` must have 2 values.* got 3"):
        v2.read(request(tensors | {"data": [*data[:-1], [1, 2, 3]]}))
    with pytest.raises(RequestError, match=f"have {2 * n:,} values.* got {2 * n + 2:,}"):
        v2.read(request(tensors | {"data": [*data, [1, 2]]}))
    with pytest.raises(
        RequestError, match=rf"data.{n - 1}..1.` must be a number or null, got an object"
    ):
        v2.read(request(tensors | {"data": [*data[:-1], [1, {}]]}))


def test_limits_are_parameters() -> None:
    body = request(tensor("X", [[1.0, 2.0], [3.0, 4.0]]))
    assert len(v2.read(body, Limits(json_bytes=len(body), rows=2, columns=2, values=4)).rows.X) == 2
    for limits in (
        Limits(json_bytes=len(body) - 1),
        Limits(rows=1),
        Limits(columns=1),
        Limits(values=3),
    ):
        with pytest.raises(RequestError, match="must have at most"):
            v2.read(body, limits)
    words = request(tensor("a", ["x", "y"]), tensor("b", ["xyz", "y"]))
    assert len(v2.read(words, Limits(values=32, text=3)).rows.X) == 2
    for limits in (Limits(values=31), Limits(text=2), Limits(columns=1)):
        with pytest.raises(RequestError, match="at most"):
            v2.read(words, limits)


# -- responses -------------------------------------------------------------------------------------


def written(answers: dict[str, Any], *outputs: str, **more: Any) -> dict[str, Any]:
    decoded = DecodedRequest(Rows(None), outputs=tuple(map(Output, outputs or ("y",))), **more)
    reply = v2.write(decoded, answers, model="flow", version="7")
    assert reply.kind == "application/json"
    assert reply.headers is None
    return json.loads(reply.body)


@given(st.lists(doubles, max_size=20))
def test_predictions_keep_every_bit(y: list[float]) -> None:
    tensors = written({"y": np.array(y)})
    assert tensors["model_name"] == "flow"
    assert tensors["model_version"] == "7"
    assert "id" not in tensors
    (output,) = tensors["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP64", [len(y)])
    assert struct.pack(f"{len(y)}d", *output["data"]) == struct.pack(f"{len(y)}d", *y)


@pytest.mark.parametrize(
    ("y", "datatype", "data"),
    [
        (np.array([3, -(1 << 63)]), "INT64", [3, -(1 << 63)]),
        (np.array([3], dtype=np.uint8), "INT64", [3]),
        (np.array([(1 << 64) - 1], dtype=np.uint64), "UINT64", [(1 << 64) - 1]),
        (np.array([True]), "BOOL", [True]),
        (np.array(["ä", "b"]), "BYTES", ["ä", "b"]),
        (np.array(["ä", None], dtype=object), "BYTES", ["ä", None]),
        (np.array([None, 3], dtype=object), "FP64", [None, 3.0]),
        (np.array([None, True], dtype=object), "FP64", [None, 1.0]),
        (np.array([np.nan, np.inf, 0.1]), "FP64", [None, None, 0.1]),
        (np.array([0.1], dtype=np.float32), "FP64", [float(np.float32(0.1))]),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), "FP64", [1.0, 2.0, 3.0, 4.0]),
        (np.empty(0, dtype=object), "BYTES", []),
    ],
)
def test_predictions_of_each_type(y: Any, datatype: str, data: list[Any]) -> None:
    (output,) = written({"y": y})["outputs"]
    assert output["datatype"] == datatype
    assert output["shape"] == list(y.shape)
    assert output["data"] == data
    assert [type(each) for each in output["data"]] == [type(each) for each in data]


def test_outputs_are_in_the_requested_order() -> None:
    answers = {"y": np.array(["a"]), "probabilities": np.array([[0.25, 0.75]]),
               "classes": np.array(["b", "a"])}  # fmt: skip
    tensors = written(answers, "classes", "probabilities", "y", id="seven")
    assert [output["name"] for output in tensors["outputs"]] == ["classes", "probabilities", "y"]
    assert [output["shape"] for output in tensors["outputs"]] == [[2], [1, 2], [1]]
    assert tensors["id"] == "seven"


def test_lone_surrogates_cannot_be_encoded() -> None:
    with raises(LabelError, got="a lone surrogate in '\\ud800'"):
        written({"y": np.array(["\ud800"], dtype=object)})


@pytest.mark.parametrize("more", [0, 5 << 20])
def test_await_label_in_the_wrong_place_is_refused(more: int) -> None:
    body = request(tensor("X", np.ones((1, 2))))
    error = body[:-1] + b', "await_label": true' + b" " * more + b"}"
    with raises(RequestError, remedy='Send "parameters": {"await_label": true'):
        v2.read(error)
