"""Requests and responses of the Open Inference Protocol, version 2, over HTTP.

Rows come in one of two forms:

* one tensor of numbers, of shape [n, d]: rows without names, whatever the tensor is called;
* tensors of shape [n] or [n, 1]: named columns of numbers (those of BOOL are 0 and 1) or, as BYTES,
  of text, or of dates, if the tensor's parameter ``content_type`` is ``"datetime"``.

So a tensor of shape [d] is a column of d rows; one row of d numbers is [1, d]. Rows to be learned
have their targets beside them, as a tensor ``y`` of shape [n] or [n, c], and may have
``sample_weight`` and ``time``: numbers, or ISO dates as BYTES. null is a missing number or text.

Each tensor has ``data``, flat or nested, in JSON, where a whole number -0 is 0; or, by the
protocol's binary extension, bytes after the JSON, which represent nan and infinity too. Predictions
that are nan or infinite are null in JSON; a missing prediction is null, nan, or an empty text.

Binary tensors follow the JSON as bytes: numbers row by row, little-endian; each text as its length
in 4 bytes and its UTF-8. An HTTP header has the length of the JSON, and the parameter
``binary_data_size`` that of each tensor.

The structs below decode and encode JSON, and give the schemas of the HTTP API. The datatype is the
tag that selects a tensor's struct, so that msgspec checks each value against it.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, Union

import msgspec
import numpy as np

from onepass.service.protocol.json import Scalar, decoded, encoded, texts, unwritable
from onepass.service.protocol.limits import Limits, request_error, shown
from onepass.service.protocol.rows import (
    DEFAULT_OUTPUTS,
    OUTPUTS,
    DecodedRequest,
    EncodedResponse,
    Output,
    OutputName,
    build_request,
    datatype_of,
    dates,
)
from onepass.types import Array

__all__ = [
    "DATATYPES",
    "HEADER",
    "Datatype",
    "ErrorResponse",
    "InferRequest",
    "InferResponse",
    "ModelMetadata",
    "OutputParameters",
    "OutputTensor",
    "RequestedOutput",
    "ServerMetadata",
    "Tensor",
    "TensorMetadata",
    "TensorParameters",
    "failed",
    "model",
    "read",
    "server",
    "write",
]

HEADER = "inference-header-content-length"
"""The header that says how many bytes of JSON come first."""


class Datatype(NamedTuple):
    """A datatype of the protocol."""

    name: str
    dtype: np.dtype[Any]
    """Of its bytes, little-endian; object for BYTES."""
    within: np.dtype[Any]
    """Of the decoded array: float64, int64 or uint64, which hold narrower types exactly."""


_EXACT = 1 << 53  # beyond it, a float may not be the whole number of the text
_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Shape: TypeAlias = Annotated[
    list[_Size],
    msgspec.Meta(min_length=1, max_length=2, description="[n, d] or, for a named column, [n]"),
]


class TensorParameters(msgspec.Struct, gc=False):
    """Parameters of an input tensor."""

    binary_data_size: (
        Annotated[_Size, msgspec.Meta(description="Bytes of the values after the JSON")] | None
    ) = None
    content_type: (
        Annotated[str, msgspec.Meta(description='"datetime": texts are ISO 8601 dates')] | None
    ) = None
    shared_memory_region: None = None


class Tensor(msgspec.Struct, tag_field="datatype", gc=False):
    """An input tensor; each datatype has a struct of its own."""

    kind: ClassVar[Datatype]
    name: Annotated[str, msgspec.Meta(description="A column, or any name of a matrix")]
    shape: _Shape
    data: Any = None
    parameters: TensorParameters | None = None


def _tensor(name: str, code: str, within: type, value: Any) -> type[Tensor]:
    """The struct of tensors of one datatype."""
    data = Annotated[
        list[value | list[value | None] | None],
        msgspec.Meta(description="Values row by row, flat or nested; null is missing"),
    ]
    about = f"An input tensor of {name}."
    return msgspec.defstruct(  # type: ignore[return-value]  # it derives from the base
        f"{name}Tensor",
        [("data", data | None, None)],
        bases=(Tensor,),
        namespace={"kind": Datatype(name, np.dtype(code), np.dtype(within)), "__doc__": about},
        tag=name,
        gc=False,
    )


def _integers(name: str, code: str) -> type[Tensor]:
    """The struct of tensors of whole numbers, which may be written as 3.0."""
    low, high = (int(each) for each in (np.iinfo(code).min, np.iinfo(code).max))
    bounds = msgspec.Meta(ge=low, le=None if high >= 1 << 63 else high)  # msgspec's are of int64
    whole = msgspec.Meta(ge=max(low, -_EXACT), le=min(high, _EXACT), multiple_of=1)
    within = np.uint64 if name == "UINT64" else np.int64
    return _tensor(name, code, within, Annotated[int, bounds] | Annotated[float, whole])


def _floats(name: str, code: str) -> type[Tensor]:
    high = float(np.finfo(code).max)
    value = float if name == "FP64" else Annotated[float, msgspec.Meta(ge=-high, le=high)]
    return _tensor(name, code, np.float64, value)


_TENSORS = (
    _tensor("BOOL", "?", np.bool_, bool | Annotated[int, msgspec.Meta(ge=0, le=1)]),
    *(_integers(f"UINT{8 * size}", f"<u{size}") for size in (1, 2, 4, 8)),
    *(_integers(f"INT{8 * size}", f"<i{size}") for size in (1, 2, 4, 8)),
    *(_floats(f"FP{8 * size}", f"<f{size}") for size in (2, 4, 8)),
    _tensor("BYTES", "O", object, str),
)
DATATYPES = {each.kind.name: each.kind for each in _TENSORS}
"""All datatypes that are read, by their names."""

if TYPE_CHECKING:
    _AnyTensor = Tensor
else:
    _AnyTensor = Union[_TENSORS]  # noqa: UP007  the members are computed


class OutputParameters(msgspec.Struct, gc=False):
    """Parameters of a requested output."""

    binary_data: bool | None = None
    classification: Literal[0] | None = None
    shared_memory_region: None = None


class RequestedOutput(msgspec.Struct, gc=False):
    """An output that the response shall have."""

    name: OutputName
    parameters: OutputParameters | None = None


class InferRequest(msgspec.Struct):
    """Rows to predict, or to learn with their targets as the tensor ``y``."""

    inputs: list[_AnyTensor]
    outputs: list[RequestedOutput] | None = None
    parameters: dict[str, Scalar] | None = None
    id: str | None = None


class _InferRequest(InferRequest):
    """With parameters in the wrong place, which would otherwise be ignored."""

    ask: None = None
    await_label: None = None


class OutputTensor(msgspec.Struct, omit_defaults=True):
    """A tensor of a response."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Scalar] | None = None
    parameters: dict[str, int] | None = None


class InferResponse(msgspec.Struct, omit_defaults=True):
    """Predictions, and the version of the model that made them."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str = ""


class ServerMetadata(msgspec.Struct):
    """Metadata of the server."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(msgspec.Struct, omit_defaults=True):
    """Metadata of a tensor; an axis of unknown length is -1."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, str] | None = None


class ModelMetadata(msgspec.Struct):
    """Metadata of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ErrorResponse(msgspec.Struct):
    """An error: where, what was expected, what was received, and what to do."""

    error: str


_REQUEST = msgspec.json.Decoder(_InferRequest)
_HINTS = {
    "ask": 'Send "parameters": {"ask": true}',
    "await_label": 'Send "parameters": {"await_label": true}',
    "classification": "Request `probabilities`",
    "data": "Give values of the datatype, and null for what is missing",
    "datatype": f"Choose one of {', '.join(DATATYPES)}",
    "name": f"Choose one of {', '.join(OUTPUTS)}",
    "shape": "Send rows of numbers as [n, d], one row as [1, d]; named columns as [n]",
    "shared_memory_region": "Send the values in the body",
}
_NO_LIMITS = Limits()
_NO_PARAMETERS, _NO_OUTPUT_PARAMETERS = TensorParameters(), OutputParameters()
_OCTETS = "application/octet-stream"
_LENGTH = struct.Struct("<I")


def read(
    body: bytes,
    limits: Limits = _NO_LIMITS,
    *,
    header: str | int | None = None,
    learning: bool = False,
) -> DecodedRequest:
    """Decode a request.

    Parameters
    ----------
    body : bytes
    limits : Limits
    header : str or int, optional
        The header ``Inference-Header-Content-Length``, if there is one: how many bytes of JSON come
        first.
    learning : bool, default False
        Whether the tensors y, sample_weight and time belong to the rows and are not features.

    Raises
    ------
    RequestError
        If it is not such a request, or too large.

    Examples
    --------
    >>> body = b'{"inputs": [{"name": "X", "shape": [2, 1], "datatype": "FP64", "data": [3, 4.5]}]}'
    >>> read(body).X
    array([[3. ],
           [4.5]])
    """
    length = _head_length(header, body)
    text = body if length == len(body) else memoryview(body)[:length]
    request = decoded(_REQUEST, text, limits, _HINTS)
    limits.check_text(len(request.id or ""), "id")
    named = _arrays(request.inputs, body, length, limits)
    places = {name: f"inputs[{i}]" for i, name in enumerate(named)}
    found = build_request(named, places.__getitem__, learning=learning)
    found.id = request.id or ""
    if request.parameters or request.outputs:
        found.parameters = request.parameters
        found.outputs = _outputs(request)
    return found


def _head_length(header: str | int | None, body: bytes) -> int:
    """How many bytes of JSON a body begins with; all, without the header."""
    if header is None:
        return len(body)
    text = str(header).strip()
    length = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not 0 <= length <= len(body):
        must = f"be a whole number from 0 to {len(body):,}, the body's bytes"
        remedy = "Give the length of the JSON that comes first, in bytes"
        raise request_error("Inference-Header-Content-Length", must, repr(text[:20]), remedy)
    return length


def _arrays(inputs: list[Tensor], body: bytes, at: int, limits: Limits) -> dict[str, Array]:
    """The tensors' values by their names; ``at`` is where the JSON ends."""
    named: dict[str, Array] = {}
    columns = text_columns = 0
    for i, tensor in enumerate(inputs):
        shape = tensor.shape
        if shape[0] != inputs[0].shape[0]:
            must = f"have {inputs[0].shape[0]:,} rows, as inputs[0] has"
            remedy = "Send as many values for each"
            raise request_error(f"inputs[{i}].shape", must, f"{shape[0]:,}", remedy)
        columns += shape[-1] if len(shape) == 2 else 1
        text_columns += tensor.kind.name == "BYTES"
        limits.check_size(shape[0], columns, f"inputs[{i}].shape", texts=text_columns)
        limits.check_text(len(tensor.name), f"inputs[{i}].name")
        if tensor.name in named:
            remedy = "Give each tensor a name of its own"
            raise request_error(f"inputs[{i}].name", "be new", shown(tensor.name), remedy)
        named[tensor.name], at = _values(tensor, f"inputs[{i}]", body, at, limits)
    if at != len(body):
        must = f"have {at:,} bytes, the sum of its JSON and its tensors' `binary_data_size`"
        raise request_error("", must, f"{len(body):,}", "Correct the sizes, or send nothing more")
    return named


def _values(tensor: Tensor, place: str, body: bytes, at: int, limits: Limits) -> tuple[Array, int]:
    """A tensor's values, from the JSON or the bytes from ``at``, and where the next ones begin."""
    parameters = tensor.parameters or _NO_PARAMETERS
    size, shape = parameters.binary_data_size, tuple(tensor.shape)
    if (tensor.data is None) == (size is None):
        got = "both" if tensor.data is not None else "neither"
        must = "have either `data` or the parameter `binary_data_size`"
        raise request_error(place, must, got, "Send values once")
    if size is None:
        array = _elements(tensor.data, tensor.kind, shape, f"{place}.data", limits)
    else:
        array = _read_binary(body[at : at + size], tensor.kind, shape, place, limits)
        at += size
    if parameters.content_type == "datetime" and tensor.kind.name == "BYTES":
        array = dates(array.ravel(), lambda row: f"{place}, row {row}")
    return array, at


def _elements(
    data: list[Any], datatype: Datatype, shape: tuple[int, ...], place: str, limits: Limits
) -> Array:
    """Values in JSON, each of which msgspec has checked against the datatype."""
    count = math.prod(shape)
    if datatype.name == "FP64" and (found := _floats64(data, shape, count)) is not None:
        return found
    if data and type(data[0]) is list and len(shape) == 2:
        for i, row in enumerate(data):
            if type(row) is not list or len(row) != shape[1]:
                got = f"{len(row):,}" if type(row) is list else shown(row)
                raise _miscounted(f"{place}[{i}]", shape[1], got)
        data = list(chain.from_iterable(data))
    kinds = set(map(type, data))
    if list in kinds or len(data) != count:
        raise _miscounted(place, count, "lists" if list in kinds else f"{len(data):,}")
    if datatype.dtype == object:
        return texts(data, place, limits).reshape(shape)
    missing = type(None) in kinds
    try:
        array = np.array(data, dtype=np.float64 if missing else datatype.within)
    except OverflowError as error:  # msgspec has no bounds beyond int64
        must = "hold whole numbers below 2**64, as UINT64 says"
        raise request_error(place, must, "one beyond", "Give another datatype") from error
    if datatype.name in {"FP16", "FP32"}:  # as their bytes would be
        array = array.astype(datatype.dtype).astype(np.float64)
    return array.reshape(shape)


def _floats64(data: list[Any], shape: tuple[int, ...], count: int) -> Array | None:
    """The most frequent values at once; None if something is wrong with them."""
    try:
        array = np.array(data, dtype=np.float64)
    except ValueError:
        return None
    return array.reshape(shape) if array.shape in {shape, (count,)} else None


def _miscounted(place: str, expected: int, got: str) -> Exception:
    must = f"hold {expected:,} values, as the shape says"
    return request_error(place, must, got, "Give all values, row after row, and their shape")


def _read_binary(
    data: bytes, datatype: Datatype, shape: tuple[int, ...], place: str, limits: Limits
) -> Array:
    """Decode the bytes of a tensor; the array may not be writeable."""
    count = math.prod(shape)
    if datatype.dtype == object:
        return texts(_texts(data, count, place), place, limits).reshape(shape)
    if len(data) != count * datatype.dtype.itemsize:
        must = f"have {count * datatype.dtype.itemsize:,} bytes, as {datatype.name} and shape say"
        remedy = "Send all values, and their number of bytes as `binary_data_size`"
        raise request_error(place, must, f"{len(data):,}", remedy)
    if datatype.name == "BOOL" and (invalid := data.translate(None, b"\0\1")):
        must = "have bytes 0 and 1, as BOOL says"
        raise request_error(place, must, f"{invalid[0]}", "Send 1 for true")
    array = np.frombuffer(data, dtype=datatype.dtype).reshape(shape)
    return array.astype(datatype.within, copy=False)


def _texts(data: bytes, count: int, place: str) -> list[str]:
    """Decode texts, each after its length."""
    found: list[str] = []
    at = 0
    with suppress(struct.error, UnicodeDecodeError):
        while len(found) < count:
            start = at + _LENGTH.size
            at = start + _LENGTH.unpack_from(data, at)[0]
            found.append(data[start:at].decode())
    if at != len(data) or len(found) != count:
        must = f"hold {count:,} texts, as the shape says, and nothing else"
        remedy = "Send each text as its number of bytes, of 4 bytes, and its UTF-8"
        raise request_error(
            place, must, f"{len(data):,} bytes, in which {len(found):,} are", remedy
        )
    return found


def _outputs(request: InferRequest) -> tuple[Output, ...]:
    """The requested outputs."""
    binary = (request.parameters or {}).get("binary_data_output", False)
    if not isinstance(binary, bool):
        place = "parameters.binary_data_output"
        raise request_error(place, "be true or false", shown(binary), "Give one of them")
    if not request.outputs:
        return (Output("y", binary),) if binary else DEFAULT_OUTPUTS
    found: dict[str, Output] = {}
    for i, wanted in enumerate(request.outputs):
        parameters = wanted.parameters or _NO_OUTPUT_PARAMETERS
        if wanted.name in found:
            raise request_error(
                f"outputs[{i}].name", "be new", shown(wanted.name), "Name each once"
            )
        chosen = parameters.binary_data
        found[wanted.name] = Output(wanted.name, binary if chosen is None else chosen)
    return tuple(found.values())


def write(
    request: DecodedRequest, values: Mapping[str, Array], *, model: str, version: str = ""
) -> EncodedResponse:
    """Encode a response.

    Parameters
    ----------
    request : DecodedRequest
        Its ``outputs`` are those of the response, some of them as binary tensors.
    values : mapping of str to ndarray
        By the names of the outputs: numbers, truth values or text, or objects of one of these with
        None among them.
    model, version : str
        The model's name, and the version that predicted.

    Raises
    ------
    LabelError
        If a predicted text cannot be encoded in UTF-8.

    Examples
    --------
    >>> body = b'{"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP64", "data": [3]}]}'
    >>> reply = write(read(body), {"y": np.array([0.5])}, model="flow", version="7")
    >>> import json
    >>> json.loads(reply.body)["outputs"]
    [{'name': 'y', 'datatype': 'FP64', 'shape': [1], 'data': [0.5]}]
    """
    outputs, parts = [], []
    for output in request.outputs:
        array = values[output.name]
        datatype = datatype_of(array)
        if array.dtype == object and datatype == "FP64":
            array = array.astype(np.float64)
        tensor = OutputTensor(output.name, datatype, list(array.shape))
        if output.binary:
            parts.append(_write_binary(array, DATATYPES[datatype]))
            tensor.parameters = {"binary_data_size": len(parts[-1])}
        else:
            tensor.data = array.ravel().tolist()
        outputs.append(tensor)
    head = encoded(InferResponse(model, version, outputs, request.id))
    if not parts:
        return EncodedResponse(head)
    return EncodedResponse(b"".join((head, *parts)), _OCTETS, {HEADER: str(len(head))})


def _write_binary(array: Array, datatype: Datatype) -> bytes:
    """Encode values as bytes; None is an empty text."""
    if datatype.dtype != object:
        return array.astype(datatype.dtype, copy=False).tobytes()
    try:
        words = [b"" if each is None else each.encode() for each in array.ravel().tolist()]
    except UnicodeEncodeError as error:
        raise unwritable(error) from error
    return b"".join(part for word in words for part in (_LENGTH.pack(len(word)), word))


_KINDS = {"number": "FP64", "bool": "BOOL", "text": "BYTES", "date": "BYTES"}
_DATES = {"content_type": "datetime"}


def server(version: str) -> EncodedResponse:
    """The server's metadata.

    Parameters
    ----------
    version : str
        Of onepass.
    """
    return EncodedResponse(encoded(ServerMetadata("onepass", version, ["binary_tensor_data"])))


def model(
    name: str,
    *,
    versions: Sequence[str],
    learner: str,
    features: int | Mapping[str, str] | None = None,
    datatype: str = "FP64",
    outputs: int = 1,
    classes: int | None = None,
    probabilities: bool = False,
) -> EncodedResponse:
    """A model's metadata.

    Parameters
    ----------
    name : str
    versions : sequence of str
        Those that can predict.
    learner : str
        The class of its learner.
    features : int, mapping of str to str, or None
        The number of columns of rows without names; or the columns' names, and for each whether it
        holds a "number", "bool", "text" or "date"; None before any row was learned.
    datatype : {"FP64", "INT64", "UINT64", "BOOL", "BYTES"}, default "FP64"
        The datatype of its predictions.
    outputs : int, default 1
        How many targets a row has.
    classes : int, optional
        The number of classes, if it is a classifier.
    probabilities : bool, default False
        Whether it predicts probabilities of the classes.

    Examples
    --------
    >>> reply = model("flow", versions=["7"], learner="RLSRegressor", features=3)
    >>> msgspec.json.decode(reply.body)["inputs"]
    [{'name': 'X', 'datatype': 'FP64', 'shape': [-1, 3]}]
    """
    if isinstance(features, Mapping):
        inputs = [
            TensorMetadata(column, _KINDS[kind], [-1], _DATES if kind == "date" else None)
            for column, kind in features.items()
        ]
    else:
        inputs = [TensorMetadata("X", "FP64", [-1, -1 if features is None else features])]
    found = [TensorMetadata("y", datatype, [-1] if outputs == 1 else [-1, outputs])]
    if classes is not None:
        if probabilities:
            found.append(TensorMetadata("probabilities", "FP64", [-1, classes]))
        found.append(TensorMetadata("classes", datatype, [classes]))
    return EncodedResponse(
        encoded(ModelMetadata(name, list(versions), f"onepass_{learner}", inputs, found))
    )


def failed(message: str) -> EncodedResponse:
    """The response of a request that failed.

    Parameters
    ----------
    message : str
    """
    return EncodedResponse(
        encoded(ErrorResponse(message.encode(errors="backslashreplace").decode()))
    )
