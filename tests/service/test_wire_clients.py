"""Requests and responses of third-party clients.

``make test`` installs them; without them these tests are skipped.
"""

import json
import warnings
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from onepass.service.protocol import v2
from onepass.service.protocol.rows import DecodedRequest, EncodedResponse

HEADER = "inference-header-content-length"
X = np.array([[0.1, -0.0, np.nan], [5e-324, 1.7976931348623157e308, 1 / 3]])
OUTPUTS = {
    "y": np.array([0.1, -1e-300]),
    "probabilities": np.array([[0.25, 0.75], [1 / 3, 2 / 3]]),
    "classes": np.array(["late", "früh 🚗"], dtype=object),
}
NAMED = {
    "speed": X[:, 0], "rank": np.array([1, -(1 << 40)]), "wet": np.array([True, False]),
    "gear": np.array(["low", "höch 🚗"], dtype=object), "small": np.array([3, 4], dtype=np.uint8),
    "single": np.array([0.1, 2], dtype=np.float32), "half": np.array([0.5, 2], dtype=np.float16),
}  # fmt: skip


def module(name: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


def written(decoded: DecodedRequest, answers: dict[str, Any] | None = None) -> EncodedResponse:
    return v2.write(decoded, answers or OUTPUTS, model="flow", version="7")


def length_of(reply: EncodedResponse) -> int | None:
    return None if reply.headers is None else int(reply.headers[HEADER])


def same(found: Any, expected: Any) -> None:
    found = np.asarray(found)
    assert found.shape == expected.shape
    if expected.dtype == object:
        assert [each.decode() if isinstance(each, bytes) else each for each in found.tolist()] == (
            expected.tolist()
        )
    else:
        assert found.tobytes() == expected.tobytes()


# -- tritonclient ----------------------------------------------------------------------------------


def triton_request(named: dict[str, Any], *, binary: bool, outputs: Any = None, **more: Any) -> Any:
    triton = module("tritonclient.http")
    types = module("tritonclient.utils")
    inputs = []
    for name, values in named.items():
        each = triton.InferInput(name, list(values.shape), types.np_to_triton_dtype(values.dtype))
        inputs.append(each.set_data_from_numpy(values, binary_data=binary))
    wanted = [triton.InferRequestedOutput(name, binary_data=each) for name, each in outputs or ()]
    return triton.InferenceServerClient.generate_request_body(inputs, outputs=wanted, **more)


@pytest.mark.parametrize("binary", [True, False])
def test_triton_sends_rows_and_reads_predictions(*, binary: bool) -> None:
    triton = module("tritonclient.http")
    rows = X if binary else np.nan_to_num(X, nan=7.0)
    wanted = [("y", binary), ("probabilities", not binary), ("classes", binary)]
    body, length = triton_request({"X": rows}, binary=binary, outputs=wanted, request_id="a7")
    decoded = v2.read(body, header=length)
    same(decoded.rows.X, rows)
    assert decoded.id == "a7"
    assert [(each.name, each.binary) for each in decoded.outputs] == wanted
    reply = written(decoded)
    read = triton.InferenceServerClient.parse_response_body(
        reply.body, header_length=length_of(reply)
    )
    for name, expected in OUTPUTS.items():
        same(read.as_numpy(name), expected)
    response = read.get_response()
    assert (response["model_name"], response["model_version"], response["id"]) == (
        "flow",
        "7",
        "a7",
    )


@pytest.mark.parametrize("binary", [True, False])
def test_triton_sends_columns(*, binary: bool) -> None:
    named = {name: each for name, each in NAMED.items() if binary or name != "half"}
    body, length = triton_request(named, binary=binary)
    decoded = v2.read(body, header=length)
    for name, expected in named.items():
        same(
            decoded.rows.X[name],
            expected if expected.dtype == object else expected.astype(np.float64),
        )
    assert [(each.name, each.binary) for each in decoded.outputs] == [("y", True)]


@pytest.mark.parametrize("y", [[], [1, 2], [True], ["a", ""], [0.5, 1e300]])
def test_triton_reads_predictions_of_each_type(y: Any) -> None:
    triton = module("tritonclient.http")
    expected = np.array(y)
    expected = expected.astype(object) if expected.dtype.kind == "U" else expected
    for outputs in (None, [("y", False)]):
        body, length = triton_request({"X": X}, binary=True, outputs=outputs)
        reply = written(v2.read(body, header=length), {"y": np.array(y)})
        read = triton.InferenceServerClient.parse_response_body(
            reply.body, header_length=length_of(reply)
        )
        same(read.as_numpy("y"), expected)


def test_triton_sends_parameters() -> None:
    body, length = triton_request(
        {"X": X}, binary=True, parameters={"a": 1, "b": "c", "d": True}, priority=3, timeout=9
    )
    decoded = v2.read(body, header=length)
    assert dict(decoded.parameters) == {
        "a": 1, "b": "c", "d": True, "priority": 3, "timeout": 9, "binary_data_output": True
    }  # fmt: skip


# -- kserve ----------------------------------------------------------------------------------------


def kserve_request(named: dict[str, Any], *, binary: bool, **more: Any) -> tuple[bytes, Any]:
    kserve, codec = module("kserve"), module("kserve.utils.numpy_codec")
    inputs = []
    for name, values in named.items():
        each = kserve.InferInput(name, list(values.shape), codec.from_np_dtype(values.dtype))
        each.set_data_from_numpy(values, binary_data=binary)
        inputs.append(each)
    made = kserve.InferRequest(model_name="flow", infer_inputs=inputs, **more)
    response, length = made.to_rest()
    return (json.dumps(response).encode(), None) if length is None else (response, length)


@pytest.mark.parametrize("binary", [True, False])
def test_kserve_sends_rows_and_reads_predictions(*, binary: bool) -> None:
    kserve = module("kserve")
    rows = X if binary else np.nan_to_num(X, nan=7.0)
    types = module("kserve.protocol.infer_type")
    wanted = [types.RequestedOutput(name, parameters={"binary_data": binary}) for name in OUTPUTS]
    body, length = kserve_request({"X": rows}, binary=binary, request_id="a7",
                                  request_outputs=wanted)  # fmt: skip
    decoded = v2.read(body, header=length)
    same(decoded.rows.X, rows)
    assert decoded.id == "a7"
    reply = written(decoded)
    if binary:
        read = kserve.InferResponse.from_bytes(reply.body, length_of(reply))
    else:
        read = kserve.InferResponse.from_rest(json.loads(reply.body))
    for name, expected in OUTPUTS.items():
        same(read.get_output_by_name(name).as_numpy(), expected)
    assert read.id == "a7"
    assert read.model_name == "flow"


@pytest.mark.parametrize("binary", [True, False])
def test_kserve_sends_columns(*, binary: bool) -> None:
    named = {name: each for name, each in NAMED.items() if binary or name != "half"}
    body, length = kserve_request(named, binary=binary)
    decoded = v2.read(body, header=length)
    for name, expected in named.items():
        same(
            decoded.rows.X[name],
            expected if expected.dtype == object else expected.astype(np.float64),
        )


def test_kserve_reads_metadata() -> None:
    models = module("kserve.protocol.rest.v2_datamodels")
    server = v2.ServerMetadata("onepass", "1.0", ["binary_tensor_data"])
    found = models.ServerMetadataResponse(**msgspec.to_builtins(server))
    assert found.extensions == ["binary_tensor_data"]
    model = v2.metadata("flow", versions=["7"], learner="RLSRegressor")
    found = models.ModelMetadataResponse(**msgspec.to_builtins(model))
    assert (found.inputs[0].name, found.inputs[0].shape) == ("X", [-1, -1])
