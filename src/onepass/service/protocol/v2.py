"""Requests and responses of the Open Inference Protocol, version 2, over HTTP.

Rows have one of two forms:

* one tensor of numbers, of shape [n, d]: rows without names; the tensor may have any name;
* tensors of shape [n] or [n, 1]: named columns of numbers (BOOL is 0 and 1), of text as BYTES, or
  of dates as BYTES with the parameter ``content_type`` ``"datetime"``.

Hence a tensor of shape [d] is a column of d rows; one row of d numbers has the shape [1, d]. Rows
to learn also have their targets, as a tensor ``y`` of shape [n] or [n, c], and may have
``sample_weight`` and ``time``: numbers, or ISO 8601 dates as BYTES. null is a missing value.

A tensor has ``data`` in JSON, flat or nested, where the integer -0 is 0; or, in the protocol's
binary extension, bytes after the JSON, which can represent nan and infinity. In JSON, nan and
infinite predictions are null; a missing prediction is null, nan, or an empty text.

Binary tensors follow the JSON as bytes: numbers row by row, little-endian; each text as its length
in 4 bytes and its UTF-8. An HTTP header contains the length of the JSON, and the parameter
``binary_data_size`` the length of each tensor.

The structs in this module decode and encode JSON, and define the schemas of the HTTP API. The
datatype is the tag that selects a tensor's struct, so that msgspec checks each value.
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

HEADER = "inference-header-content-length"
"""Header with the length in bytes of the JSON at the beginning of the body."""


class Datatype(NamedTuple):
    """A datatype of the protocol."""

    name: str
    dtype: np.dtype[Any]
    """Dtype of the encoded values, little-endian; object for BYTES."""
    within: np.dtype[Any]
    """Dtype of the decoded array, which represents all values exactly."""


_EXACT = 1 << 53  # float64 represents all integers up to this
_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Shape: TypeAlias = Annotated[
    list[_Size],
    msgspec.Meta(min_length=1, max_length=2, description="[n, d] or, for a named column, [n]"),
]


class TensorParameters(msgspec.Struct, gc=False):
    """Parameters of an input tensor."""

    binary_data_size: (
        Annotated[_Size, msgspec.Meta(description="Bytes of the values, which follow the JSON")]
        | None
    ) = None
    content_type: (
        Annotated[str, msgspec.Meta(description='"datetime": texts are ISO 8601 dates')] | None
    ) = None
    shared_memory_region: None = None


class Tensor(msgspec.Struct, tag_field="datatype", gc=False):
    """Base class of input tensors; each datatype has a subclass."""

    kind: ClassVar[Datatype]
    name: Annotated[str, msgspec.Meta(description="Name of the column; any name for a matrix")]
    shape: _Shape
    data: Any = None
    parameters: TensorParameters | None = None


def _tensor(name: str, code: str, within: type, value: Any) -> type[Tensor]:
    """Define the struct of tensors of one datatype."""
    data = Annotated[
        list[value | list[value | None] | None],
        msgspec.Meta(description="Values row by row, flat or nested; null is missing"),
    ]
    doc = f"An input tensor of {name}."
    return msgspec.defstruct(  # type: ignore[return-value]  # a subclass of Tensor
        f"{name}Tensor",
        [("data", data | None, None)],
        bases=(Tensor,),
        namespace={"kind": Datatype(name, np.dtype(code), np.dtype(within)), "__doc__": doc},
        tag=name,
        gc=False,
    )


def _integers(name: str, code: str) -> type[Tensor]:
    """Define the struct of tensors of integers, which JSON may contain as 3.0."""
    low, high = (int(each) for each in (np.iinfo(code).min, np.iinfo(code).max))
    bounds = msgspec.Meta(
        ge=low, le=None if high >= 1 << 63 else high
    )  # msgspec supports bounds within int64
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
"""Supported datatypes by name."""

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
    """A requested output of the response."""

    name: OutputName
    parameters: OutputParameters | None = None


class InferRequest(msgspec.Struct):
    """Rows to predict, or to learn with their targets as the tensor ``y``."""

    inputs: list[_AnyTensor]
    outputs: list[RequestedOutput] | None = None
    parameters: dict[str, Scalar] | None = None
    id: str | None = None


class _InferRequest(InferRequest):
    """InferRequest that rejects parameters in the wrong place, which would be ignored."""

    await_label: None = None


class OutputTensor(msgspec.Struct, omit_defaults=True):
    """A tensor of a response."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Scalar] | None = None
    parameters: dict[str, int] | None = None


class InferResponse(msgspec.Struct, omit_defaults=True):
    """Predictions, and the version of the model that predicted."""

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
    """An error: location, expected value, received value, and remedy."""

    error: str


_REQUEST = msgspec.json.Decoder(_InferRequest)
_HINTS = {
    "await_label": 'Send "parameters": {"await_label": true}',
    "classification": "Request `probabilities`",
    "data": "Send values of the datatype, and null for missing values",
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
        The header ``Inference-Header-Content-Length``, the length of the JSON in bytes; None if the
        request does not have the header.
    learning : bool, default False
        Whether the tensors y, sample_weight and time are targets, weights and times, not features.

    Raises
    ------
    RequestError
        If the body is not a valid request, or a limit is exceeded.

    Examples
    --------
    >>> body = b'{"inputs": [{"name": "X", "shape": [2, 1], "datatype": "FP64", "data": [3, 4.5]}]}'
    >>> read(body).rows.X
    array([[3. ],
           [4.5]])
    """
    length = _head_length(header, body)
    text = body if length == len(body) else memoryview(body)[:length]
    request = decoded(_REQUEST, text, limits, _HINTS)
    limits.check_text(len(request.id or ""), "id")
    named = _arrays(request.inputs, body, length, limits)
    places = {name: f"inputs[{i}]" for i, name in enumerate(named)}
    result = build_request(named, places.__getitem__, learning=learning)
    result.id = request.id or ""
    if request.parameters or request.outputs:
        result.parameters = request.parameters
        result.outputs = _outputs(request)
    return result


def _head_length(header: str | int | None, body: bytes) -> int:
    """Return the length of the JSON at the beginning of a body; all of it without the header."""
    if header is None:
        return len(body)
    text = str(header).strip()
    length = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not 0 <= length <= len(body):
        must = f"be a whole number from 0 to {len(body):,}, the length of the body"
        remedy = "Send the length in bytes of the JSON, without the tensors after it"
        raise request_error("Inference-Header-Content-Length", must, repr(text[:20]), remedy)
    return length


def _arrays(inputs: list[Tensor], body: bytes, at: int, limits: Limits) -> dict[str, Array]:
    """Return the values of tensors by name; ``at`` is the offset of the end of the JSON."""
    named: dict[str, Array] = {}
    columns = text_columns = 0
    for i, tensor in enumerate(inputs):
        shape = tensor.shape
        if shape[0] != inputs[0].shape[0]:
            must = f"have {inputs[0].shape[0]:,} rows, like inputs[0]"
            remedy = "Send tensors with the same number of rows"
            raise request_error(f"inputs[{i}].shape", must, f"{shape[0]:,}", remedy)
        columns += shape[-1] if len(shape) == 2 else 1
        text_columns += tensor.kind.name == "BYTES"
        limits.check_size(shape[0], columns, f"inputs[{i}].shape", texts=text_columns)
        limits.check_text(len(tensor.name), f"inputs[{i}].name")
        if tensor.name in named:
            got, remedy = f"{shown(tensor.name)} twice", "Rename one of the tensors"
            raise request_error(f"inputs[{i}].name", "be unique", got, remedy)
        named[tensor.name], at = _values(tensor, f"inputs[{i}]", body, at, limits)
    if at != len(body):
        must = f"have {at:,} bytes, the sum of its JSON and its tensors' `binary_data_size`"
        remedy = "Correct the sizes, or remove the bytes after the last tensor"
        raise request_error("", must, f"{len(body):,}", remedy)
    return named


def _values(tensor: Tensor, place: str, body: bytes, at: int, limits: Limits) -> tuple[Array, int]:
    """Return a tensor's values, from JSON or the bytes at offset ``at``, and the next offset."""
    parameters = tensor.parameters or _NO_PARAMETERS
    size, shape = parameters.binary_data_size, tuple(tensor.shape)
    if (tensor.data is None) == (size is None):
        got = "both" if tensor.data is not None else "neither"
        must = "have either `data` or the parameter `binary_data_size`"
        raise request_error(place, must, got, "Send the values in one of these forms")
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
    """Convert values in JSON, whose datatype msgspec has checked, to an array."""
    count = math.prod(shape)
    if datatype.name == "FP64" and (floats := _floats64(data, shape, count)) is not None:
        return floats
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
    except OverflowError as error:  # msgspec does not check bounds beyond int64
        must = "be whole numbers below 2**64, as the datatype is UINT64"
        remedy = "Use another datatype"
        raise request_error(place, must, "a larger number", remedy) from error
    if datatype.name in {"FP16", "FP32"}:  # round as in a binary tensor
        array = array.astype(datatype.dtype).astype(np.float64)
    return array.reshape(shape)


def _floats64(data: list[Any], shape: tuple[int, ...], count: int) -> Array | None:
    """Convert valid FP64 values fast; return None if values need the checks of ``_elements``."""
    try:
        array = np.array(data, dtype=np.float64)
    except ValueError:
        return None
    return array.reshape(shape) if array.shape in {shape, (count,)} else None


def _miscounted(place: str, expected: int, got: str) -> Exception:
    must = f"have {expected:,} values, as the shape states"
    return request_error(place, must, got, "Send all values row by row, and their shape")


def _read_binary(
    data: bytes, datatype: Datatype, shape: tuple[int, ...], place: str, limits: Limits
) -> Array:
    """Decode the bytes of a tensor; the array may be read-only."""
    count = math.prod(shape)
    if datatype.dtype == object:
        return texts(_texts(data, count, place), place, limits).reshape(shape)
    if len(data) != count * datatype.dtype.itemsize:
        must = (
            f"have {count * datatype.dtype.itemsize:,} bytes, given {datatype.name} and the shape"
        )
        remedy = "Send all values, and their length in bytes as `binary_data_size`"
        raise request_error(place, must, f"{len(data):,}", remedy)
    if datatype.name == "BOOL" and (invalid := data.translate(None, b"\0\1")):
        must = "have bytes 0 and 1, as the datatype is BOOL"
        remedy = "Send 0 for false and 1 for true"
        raise request_error(place, must, f"{invalid[0]}", remedy)
    array = np.frombuffer(data, dtype=datatype.dtype).reshape(shape)
    return array.astype(datatype.within, copy=False)


def _texts(data: bytes, count: int, place: str) -> list[str]:
    """Decode texts, each preceded by its length."""
    decoded_texts: list[str] = []
    at = 0
    with suppress(struct.error, UnicodeDecodeError):
        while len(decoded_texts) < count:
            start = at + _LENGTH.size
            at = start + _LENGTH.unpack_from(data, at)[0]
            decoded_texts.append(data[start:at].decode())
    if at != len(data) or len(decoded_texts) != count:
        must = f"be exactly {count:,} texts, as the shape states"
        got = f"{len(data):,} bytes, from which {len(decoded_texts):,} texts could be decoded"
        remedy = "Send each text as its length, in 4 bytes, and its UTF-8"
        raise request_error(place, must, got, remedy)
    return decoded_texts


def _outputs(request: InferRequest) -> tuple[Output, ...]:
    """Return the requested outputs."""
    binary = (request.parameters or {}).get("binary_data_output", False)
    if not isinstance(binary, bool):
        place = "parameters.binary_data_output"
        raise request_error(place, "be true or false", shown(binary), "Send true or false")
    if not request.outputs:
        return (Output("y", binary),) if binary else DEFAULT_OUTPUTS
    outputs: dict[str, Output] = {}
    for i, requested in enumerate(request.outputs):
        parameters = requested.parameters or _NO_OUTPUT_PARAMETERS
        if requested.name in outputs:
            got, remedy = f"{shown(requested.name)} twice", "Request each output once"
            raise request_error(f"outputs[{i}].name", "be unique", got, remedy)
        chosen = parameters.binary_data
        outputs[requested.name] = Output(requested.name, binary if chosen is None else chosen)
    return tuple(outputs.values())


def write(
    request: DecodedRequest, values: Mapping[str, Array], *, model: str, version: str = ""
) -> EncodedResponse:
    """Encode a response.

    Parameters
    ----------
    request : DecodedRequest
        Request, with the ``outputs`` to encode, in JSON or as binary tensors.
    values : mapping of str to ndarray
        Outputs by name: numbers, truth values or text, or objects of one of these types and None.
    model, version : str
        Name of the model, and the version that predicted.

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
        encoded_texts = [b"" if text is None else text.encode() for text in array.ravel().tolist()]
    except UnicodeEncodeError as error:
        raise unwritable(error) from error
    return b"".join(part for text in encoded_texts for part in (_LENGTH.pack(len(text)), text))


_KINDS = {"number": "FP64", "bool": "BOOL", "text": "BYTES", "date": "BYTES"}
_DATES = {"content_type": "datetime"}


def metadata(
    name: str,
    *,
    versions: Sequence[str],
    learner: str,
    features: int | Mapping[str, str] | None = None,
    datatype: str = "FP64",
    outputs: int = 1,
    classes: int | None = None,
    probabilities: bool = False,
    recall: bool = False,
) -> ModelMetadata:
    """Return a model's metadata.

    Parameters
    ----------
    name : str
    versions : sequence of str
        Versions that can predict.
    learner : str
        Class of the learner.
    features : int, mapping of str to str, or None
        Number of columns of rows without names; or the type of each named column: "number", "bool",
        "text" or "date"; None before the first row.
    datatype : {"FP64", "INT64", "UINT64", "BOOL", "BYTES"}, default "FP64"
        Datatype of the predictions.
    outputs : int, default 1
        Number of targets.
    classes : int, optional
        Number of classes of a classifier.
    probabilities : bool, default False
        Whether the model predicts probabilities of the classes.
    recall : bool, default False
        Whether the model predicts rows of the whole past.

    Examples
    --------
    >>> metadata("flow", versions=["7"], learner="RLSRegressor", features=3).inputs
    [TensorMetadata(name='X', datatype='FP64', shape=[-1, 3], parameters=None)]
    """
    if isinstance(features, Mapping):
        inputs = [
            TensorMetadata(column, _KINDS[kind], [-1], _DATES if kind == "date" else None)
            for column, kind in features.items()
        ]
    else:
        inputs = [TensorMetadata("X", "FP64", [-1, -1 if features is None else features])]
    shape = [-1] if outputs == 1 else [-1, outputs]
    tensors = [TensorMetadata("y", datatype, shape)]
    tensors += [TensorMetadata("recall", datatype, shape)] if recall else []
    if classes is not None:
        if probabilities:
            tensors.append(TensorMetadata("probabilities", "FP64", [-1, classes]))
        tensors.append(TensorMetadata("classes", datatype, [classes]))
    return ModelMetadata(name, list(versions), f"onepass_{learner}", inputs, tensors)
