"""Requests and responses of the Open Inference Protocol, version 2, over HTTP.

Rows come in one of two forms:

* one tensor of numbers, of shape [n, d]: rows without names, whatever the tensor is called;
* tensors of shape [n] or [n, 1]: named columns of numbers (those of BOOL are 0 and 1) or, as BYTES,
  of text, or of dates, if the tensor's parameter ``content_type`` is ``"datetime"``.

So a tensor of shape [d] is a column of d rows; one row of d numbers is [1, d]. Rows that are to be
learned have their answers beside them, as a tensor ``y`` of shape [n] or [n, c], and may have
``sample_weight`` and ``time``: numbers, or ISO dates as BYTES. null is a missing number or text.

Each tensor brings ``data``, flat or nested, in JSON, where a whole number -0 is 0; or, as the
protocol's binary extension has it, bytes behind the JSON, which keep nan and infinity too. Answers
that are nan or infinite are null in JSON, and one that there is none of is null, nan, or no text.

Binary tensors follow the JSON as bytes: numbers row by row, little-endian; each text as its length
in 4 bytes and its UTF-8. An HTTP header has the length of the JSON, and the parameter
``binary_data_size`` that of each tensor.

The JSON is decoded into structs, which have no fields for unknown keys. Long JSON is checked piece
by piece, so that a list of a million empty tensors, or a shape of a million axes, is refused before
it takes memory. Short requests without errors, which are most, are decoded on a direct path; all
others take the general path, which finds what is wrong.

Metadata of the server and its models (``/v2``, ``/v2/models/NAME``) and error responses are made
here as well.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np

from onepass.service.protocol.json import (
    OBJECT,
    PIECE,
    decoded,
    elements,
    encoded,
    in_pieces,
    short,
    texts,
    unwritable,
)
from onepass.service.protocol.limits import Limits, refused, shown
from onepass.service.protocol.rows import (
    ANSWERS,
    DATATYPES,
    OUTPUTS,
    ROLES,
    Asked,
    Datatype,
    Output,
    Reply,
    asked,
    datatype_named,
    datatype_of,
    dates,
    hold_output,
)
from onepass.types import Array

__all__ = [
    "HEADER",
    "Head",
    "Tensor",
    "TensorParameters",
    "Wanted",
    "WantedParameters",
    "failed",
    "head_length",
    "model",
    "packed_request",
    "plain_request",
    "plain_rows",
    "plain_values",
    "read",
    "read_binary",
    "read_head",
    "server",
    "write",
    "write_binary",
]


HEADER = "inference-header-content-length"
"""The header that says how many bytes of JSON come first."""

_LENGTH = struct.Struct("<I")


def head_length(header: str | int | None, body: bytes) -> int:
    """How many bytes of JSON a body begins with.

    Parameters
    ----------
    header : str, int or None
        What the header says; None if there is none, and all is JSON.
    body : bytes

    Raises
    ------
    RequestError
        If it is no whole number, or more than there are.
    """
    if header is None:
        return len(body)
    text = str(header).strip()
    length = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not 0 <= length <= len(body):
        must = f"be a whole number from 0 to {len(body):,}, the body's bytes"
        remedy = "Say how many bytes the JSON has that comes first"
        raise refused("Inference-Header-Content-Length", must, repr(text[:20]), remedy)
    return length


def read_binary(
    data: bytes, datatype: Datatype, shape: tuple[int, ...], place: str, limits: Limits
) -> Array:
    """A tensor's values out of its bytes.

    Parameters
    ----------
    data : bytes
    datatype : Datatype
    shape : tuple of int
    place : str
        Where the tensor stands in the request, for messages.
    limits : Limits

    Returns
    -------
    array : ndarray of this shape
        Of ``datatype.within``; it may not be written to.

    Raises
    ------
    RequestError
        If they are not as many as the shape says, or no truth values or text.
    """
    count = shape[0] if len(shape) == 1 else shape[0] * shape[1]
    if datatype.dtype == object:
        return texts(_texts(data, count, place), place, limits).reshape(shape)
    if len(data) != count * datatype.dtype.itemsize:
        must = f"have {count * datatype.dtype.itemsize:,} bytes, as {datatype.name} and shape say"
        remedy = "Send all values, and their number of bytes as `binary_data_size`"
        raise refused(place, must, f"{len(data):,}", remedy)
    if not count:
        return np.empty(shape, dtype=datatype.within)
    if datatype.name == "BOOL" and (wrong := data.translate(None, b"\0\1")):
        must = "have bytes 0 and 1, as BOOL says"
        raise refused(place, must, f"{wrong[0]}", "Send 1 for true")
    array = np.frombuffer(data, dtype=datatype.dtype).reshape(shape)
    return array if array.dtype == datatype.within else array.astype(datatype.within)


def write_binary(array: Array, datatype: Datatype) -> bytes:
    """A tensor's values as bytes.

    Parameters
    ----------
    array : ndarray
    datatype : Datatype
        As ``datatype_of`` tells it. None is an empty text.

    Raises
    ------
    LabelError
        If there is text in it that UTF-8 cannot write.
    """
    if datatype.dtype != object:
        return array.astype(datatype.dtype, copy=False).tobytes()
    try:
        words = [b"" if each is None else each.encode() for each in array.ravel().tolist()]
    except UnicodeEncodeError as wrong:
        raise unwritable(wrong) from wrong
    return b"".join(part for word in words for part in (_LENGTH.pack(len(word)), word))


def _texts(data: bytes, count: int, place: str) -> list[str | None]:
    """So many texts, each behind its length."""
    found: list[str | None] = []
    at = 0
    remedy = "Send each text as its number of bytes, of 4 bytes, and its UTF-8"
    if count * _LENGTH.size > len(data):
        must = f"hold {count:,} texts, as the shape says"
        raise refused(place, must, f"{len(data):,} bytes, which are fewer", remedy)
    for _ in range(count):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0] if start <= len(data) else start
        if at > len(data):
            must = f"hold {count:,} texts, as the shape says"
            raise refused(place, must, f"{len(found):,} whole ones", remedy)
        try:
            found.append(data[start:at].decode())
        except UnicodeDecodeError as wrong:
            came = f"other bytes in text {len(found):,}"
            raise refused(place, "be UTF-8", came, "Write text in UTF-8") from wrong
    if at != len(data):
        must = f"hold {count:,} texts, as the shape says"
        raise refused(place, must, f"{len(data) - at:,} bytes more", remedy)
    return found


_AT_ONCE = 4 << 20  # bytes; of fewer, the structs have room in any case
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Parameters = dict[str, bool | int | float | str | None]


class TensorParameters(msgspec.Struct, gc=False):
    """What a tensor says of itself, as far as it is heeded here."""

    binary_data_size: _Size | None = None
    content_type: str | None = None
    shared_memory_region: str | None = None


class Tensor(msgspec.Struct):
    """A tensor of a request."""

    name: str
    shape: list[_Size]
    datatype: str
    data: msgspec.Raw = msgspec.Raw(b"")
    parameters: TensorParameters | None = None


class WantedParameters(msgspec.Struct, gc=False):
    """What is said of an output that is asked for, as far as it is heeded here."""

    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: str | None = None


class Wanted(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: WantedParameters | None = None


class Head(msgspec.Struct):
    """A request, whose tensors' values are still text or lie behind it."""

    inputs: list[Tensor]
    outputs: list[Wanted] | None = None
    parameters: _Parameters | None = None
    id: str | None = None
    ask: msgspec.Raw = msgspec.Raw(b"")
    """Where it has no place: it would be passed over, and the rows not kept."""


class _LongTensor(msgspec.Struct):
    """A tensor whose shape may be of any length."""

    name: str
    shape: msgspec.Raw
    datatype: str
    data: msgspec.Raw = msgspec.Raw(b"")
    parameters: TensorParameters | None = None


class _LongHead(msgspec.Struct):
    """A request of which nothing has been looked at."""

    inputs: msgspec.Raw
    outputs: msgspec.Raw = msgspec.Raw(b"null")
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    id: msgspec.Raw = msgspec.Raw(b"null")
    ask: msgspec.Raw = msgspec.Raw(b"")


_HEAD = msgspec.json.Decoder(Head)
_LONG_HEAD = msgspec.json.Decoder(_LongHead)
_TENSORS = msgspec.json.Decoder(list[_LongTensor])
_SHAPE = msgspec.json.Decoder(list[_Size])
_REST = {
    "outputs": msgspec.json.Decoder(list[Wanted] | None),
    "parameters": msgspec.json.Decoder(_Parameters | None),
    "id": msgspec.json.Decoder(str | None),
}


def read_head(text: bytes | memoryview, limits: Limits) -> Head:
    """The JSON of a request.

    Parameters
    ----------
    text : bytes-like
    limits : Limits

    Raises
    ------
    RequestError
        If it is no JSON, or not such a request.
    """
    if len(text) <= _AT_ONCE:
        head: Head = decoded(_HEAD, text)
        limits.hold(0, len(head.inputs), "inputs")
    else:
        head = _long(text, limits)
    limits.hold_text(len(head.id or ""), "id")
    if memoryview(head.ask):
        must, remedy = "stand among the `parameters`", 'Send "parameters": {"ask": true}'
        raise refused("ask", must, "it beside them", remedy)
    return head


def _long(text: bytes | memoryview, limits: Limits) -> Head:
    long = decoded(_LONG_HEAD, text)
    rest = {name: decoded(each, short(getattr(long, name), name), name)
            for name, each in _REST.items()}  # fmt: skip
    inputs: list[Tensor] = []
    for found in in_pieces(_TENSORS.decode, bytes(long.inputs), OBJECT, "inputs", None):
        limits.hold(0, len(inputs) + len(found), "inputs")
        for each in found:
            place = f"inputs[{len(inputs)}].shape"
            shape = decoded(_SHAPE, short(each.shape, place), place)
            inputs.append(Tensor(each.name, shape, each.datatype, each.data, each.parameters))
    return Head(inputs, ask=long.ask, **rest)


_BRACKET = ord("[")
_ROWS = ("FP64", "FP32")
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]
_BINARY = (Output("y", binary=True),)


class _Numbers(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor that says nothing but its numbers, flat or a list for each row."""

    name: str
    shape: list[_Count]
    datatype: Literal["FP64"]
    data: list[float | list[float]]


class _Request(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A request that says nothing else."""

    inputs: list[_Numbers]
    id: str | None = None


class _InBytes(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What a binary tensor says of itself."""

    binary_data_size: _Count


class _Packed(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A binary tensor."""

    name: str
    shape: list[_Count]
    datatype: Literal["FP64", "FP32"]
    parameters: _InBytes


class _Wishes(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """How the answer is to come."""

    binary_data_output: bool = False


class _PackedRequest(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A request of binary tensors that says nothing else."""

    inputs: list[_Packed]
    parameters: _Wishes | None = None
    id: str | None = None


_REQUEST = msgspec.json.Decoder(_Request)
_Plain = TypeVar("_Plain", _Request, _PackedRequest)
_PACKED_REQUEST = msgspec.json.Decoder(_PackedRequest)


def plain_request(body: bytes, limits: Limits, *, learning: bool) -> Asked | None:
    """What a short request asks, if it is rows of FP64 in JSON, with an answer for each to learn.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool
        Whether there are answers.

    Returns
    -------
    asked : Asked or None
    """
    said = _decoded(_REQUEST, body, limits, learning=learning)
    if said is None:
        return None
    inputs = said.inputs
    n, d = inputs[0].shape
    X = _numbers(inputs[0].data, (n, d), (n * d,))
    y = _numbers(inputs[1].data, (n,)) if learning else None
    if X is None or (y is None and learning):
        return None
    return Asked(X.reshape(n, d), y, id=said.id or "")


def packed_request(body: bytes, at: int, limits: Limits, *, learning: bool) -> Asked | None:
    """What a request asks, if it is rows as a binary tensor, with an answer for each to learn.

    Parameters
    ----------
    body : bytes
    at : int
        Where its JSON ends.
    limits : Limits
    learning : bool
        Whether there are answers.

    Returns
    -------
    asked : Asked or None
        Without ``parameters``: they say nothing but what its ``outputs`` say.
    """
    if at == len(body):
        return None
    said = _decoded(_PACKED_REQUEST, memoryview(body)[:at], limits, learning=learning)
    if said is None:
        return None
    arrays: list[Array] = []
    for tensor in said.inputs:
        size, dtype = tensor.parameters.binary_data_size, DATATYPES[tensor.datatype].dtype
        if size != math.prod(tensor.shape) * dtype.itemsize or at + size > len(body):
            return None
        numbers = np.frombuffer(body[at : at + size], dtype).reshape(tensor.shape)
        arrays.append(numbers.astype(np.float64, copy=False))
        at += size
    if at != len(body):
        return None
    y = arrays[1] if learning else None
    binary = said.parameters is not None and said.parameters.binary_data_output
    return Asked(arrays[0], y, id=said.id or "", outputs=_BINARY if binary else ANSWERS)


def _decoded(
    decoder: msgspec.json.Decoder[_Plain],
    text: bytes | memoryview,
    limits: Limits,
    *,
    learning: bool,
) -> _Plain | None:
    """What a short text says, if it is nothing else than rows, and perhaps their answers."""
    if len(text) > PIECE:
        return None
    try:
        said = decoder.decode(text)
    except (msgspec.DecodeError, ValueError):  # the long way says what is wrong
        return None
    return said if _fit(said.inputs, said.id or "", limits, learning=learning) else None


def _fit(
    inputs: list[_Numbers] | list[_Packed], name: str, limits: Limits, *, learning: bool
) -> bool:
    """Whether tensors are rows, and perhaps their answers, within the limits."""
    if len(inputs) != 1 + learning or len(inputs[0].shape) != 2 or len(name) > limits.text:
        return False
    rows, (n, d) = inputs[0], inputs[0].shape
    wide = d + learning  # answers are counted too
    if n > limits.rows or wide > limits.columns or n * wide > limits.values:
        return False
    if not learning:
        return len(rows.name) <= limits.text
    answers = inputs[1]
    paired = answers.name == "y" and rows.name not in ROLES and answers.shape == [n]
    return paired and len(rows.name) <= limits.text


def _numbers(data: list[float | list[float]], *shapes: tuple[int, ...]) -> Array | None:
    """Numbers of one of these shapes."""
    try:
        array = np.array(data, dtype=np.float64)
    except ValueError:  # rows of several lengths
        return None
    return array if array.shape in shapes else None


def plain_rows(inputs: list[Tensor], limits: Limits) -> Asked | None:
    """The rows of a request, if they are one plain tensor of FP64 or FP32 in JSON.

    Parameters
    ----------
    inputs : list of Tensor
    limits : Limits

    Returns
    -------
    asked : Asked or None
    """
    if len(inputs) != 1:
        return None
    (tensor,) = inputs
    if len(tensor.shape) != 2 or tensor.datatype not in _ROWS or len(tensor.name) > limits.text:
        return None
    n, d = tensor.shape
    if not (n and d) or n > limits.rows or d > limits.columns or n * d > limits.values:
        return None
    X = plain_values(tensor, limits)
    return None if X is None else Asked(X)


def plain_values(tensor: Tensor, limits: Limits) -> Array | None:
    """The values of a tensor in JSON, if they are few and plain.

    Parameters
    ----------
    tensor : Tensor
        Of one or two axes, within the limits.
    limits : Limits

    Returns
    -------
    array : ndarray of the tensor's shape, of its datatype's ``within``, or None
    """
    text, datatype = memoryview(tensor.data), DATATYPES.get(tensor.datatype)
    if datatype is None or tensor.parameters is not None or not 2 < len(text) <= PIECE:
        return None
    nested = text[1] == _BRACKET
    try:
        values = (datatype.nested if nested else datatype.flat).decode(text)
        array = np.array(values, dtype=datatype.within)
    except (msgspec.DecodeError, ValueError, OverflowError):
        return None
    shape = tuple(tensor.shape)
    if not nested and len(shape) == 2 and len(array) == shape[0] * shape[1]:
        array = array.reshape(shape)
    if array.shape != shape or (nested and len(shape) == 1):  # rows of texts of several lengths
        return None
    if datatype.dtype == object:
        longest = max(map(len, filter(None, array.ravel().tolist())), default=0)
        return array if longest <= limits.text else None
    if datatype.within.kind == "f" and datatype.dtype.itemsize < 8:
        with np.errstate(over="ignore"):
            array = array.astype(datatype.dtype).astype(np.float64)
        return None if np.isinf(array).any() else array
    return array


_NO_LIMITS = Limits()
_NO_PARAMETERS, _NO_WISHES = TensorParameters(), WantedParameters()
_OCTETS = "application/octet-stream"


def read(
    body: bytes,
    limits: Limits = _NO_LIMITS,
    *,
    header: str | int | None = None,
    learning: bool = False,
) -> Asked:
    """What a request asks.

    Parameters
    ----------
    body : bytes
    limits : Limits
    header : str or int, optional
        The header ``Inference-Header-Content-Length``, if there is one: how many bytes of JSON come
        first.
    learning : bool, default False
        Whether the tensors y, sample_weight and time are what these say, and no features.

    Raises
    ------
    RequestError
        If it is no such request, or too large.

    Examples
    --------
    >>> body = b'{"inputs": [{"name": "X", "shape": [2, 1], "datatype": "FP64", "data": [3, 4.5]}]}'
    >>> read(body).X
    array([[3. ],
           [4.5]])
    """
    limits.hold_body(body)
    plain = None if header is not None else plain_request(body, limits, learning=learning)
    if plain is not None:
        return plain
    length = head_length(header, body)
    packed = packed_request(body, length, limits, learning=learning)
    if packed is not None:
        return packed
    head = read_head(body if length == len(body) else memoryview(body)[:length], limits)
    plain = plain_rows(head.inputs, limits) if not learning and length == len(body) else None
    found = plain or _asked(head, body, length, limits, learning=learning)
    found.id = head.id or ""
    if head.parameters or head.outputs:
        found.parameters = head.parameters
        found.outputs = _outputs(head)
    return found


def write(asked: Asked, answers: Mapping[str, Array], *, model: str, version: str = "") -> Reply:
    """What is sent back.

    Parameters
    ----------
    asked : Asked
        Its ``outputs`` say what, and which of it as binary tensors.
    answers : mapping of str to ndarray
        By the names of ``OUTPUTS``: numbers, truth values or text, or objects of one of these with
        None among them.
    model, version : str
        The model's name, and the version that answered.

    Raises
    ------
    LabelError
        If a text among the answers is none that UTF-8 can write.

    Examples
    --------
    >>> body = b'{"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP64", "data": [3]}]}'
    >>> reply = write(read(body), {"y": np.array([0.5])}, model="flow", version="7")
    >>> import json
    >>> json.loads(reply.body)["outputs"]
    [{'name': 'y', 'datatype': 'FP64', 'shape': [1], 'data': [0.5]}]
    """
    outputs, parts = [], []
    for output in asked.outputs:
        array = answers[output.name]
        datatype = datatype_of(array)
        if array.dtype == object and datatype.name == "FP64":
            array = array.astype(np.float64)
        told: dict[str, object] = {
            "name": output.name,
            "datatype": datatype.name,
            "shape": array.shape,
        }
        if output.binary:
            parts.append(write_binary(array, datatype))
            told["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            told["data"] = array.ravel().tolist()
        outputs.append(told)
    response = {"model_name": model, "model_version": version, "id": asked.id, "outputs": outputs}
    if not asked.id:
        del response["id"]
    body = encoded(response)
    if not parts:
        return Reply(body)
    return Reply(b"".join((body, *parts)), _OCTETS, {HEADER: str(len(body))})


def _asked(head: Head, body: bytes, at: int, limits: Limits, *, learning: bool) -> Asked:
    """The rows, and what belongs to them; ``at`` is where the JSON ends."""
    named: dict[str, Array] = {}
    columns = texts = 0
    for i, tensor in enumerate(head.inputs):
        shape = _shape(tensor, i, head.inputs[0])
        columns += shape[1] if len(shape) == 2 else 1
        texts += tensor.datatype == "BYTES"
        limits.hold(shape[0], columns, f"inputs[{i}].shape", texts=texts)
        array = plain_values(tensor, limits)
        if array is None:
            array, at = _values(tensor, i, body, at, limits)
        if tensor.name in named or len(tensor.name) > limits.text:
            limits.hold_text(len(tensor.name), f"inputs[{i}].name")
            remedy = "Give each tensor a name of its own"
            raise refused(f"inputs[{i}].name", "be new", shown(tensor.name), remedy)
        named[tensor.name] = array
    if at != len(body):
        must = f"have {at:,} bytes, as its JSON and its tensors' `binary_data_size` say"
        raise refused("", must, f"{len(body):,}", "Send what they say, and nothing behind it")
    return asked(named, lambda name: _place(name, head.inputs), learning=learning)


def _shape(tensor: Tensor, i: int, first: Tensor) -> list[int]:
    """A tensor's shape, of one or two axes."""
    shape = tensor.shape
    if not 1 <= len(shape) <= 2:
        came = str(shape[:8]) if len(shape) <= 8 else f"{len(shape):,} axes"
        remedy = "Send rows of numbers as [n, d], one row as [1, d]; named columns as [n]"
        raise refused(f"inputs[{i}].shape", "be [n] or [n, d]", came, remedy)
    if shape[0] != first.shape[0]:
        must = f"have {first.shape[0]:,} rows, as inputs[0] has"
        raise refused(f"inputs[{i}].shape", must, f"{shape[0]:,}", "Send as many values for each")
    return shape


def _values(tensor: Tensor, i: int, body: bytes, at: int, limits: Limits) -> tuple[Array, int]:
    """A tensor's values, from the JSON or the bytes from ``at``, and where the next ones begin."""
    said = tensor.parameters or _NO_PARAMETERS
    datatype = datatype_named(tensor.datatype, f"inputs[{i}].datatype")
    size = said.binary_data_size
    in_json = len(memoryview(tensor.data)) and bytes(memoryview(tensor.data)[:4]) != b"null"
    if said.shared_memory_region is not None:
        raise refused(f"inputs[{i}]", "bring its values", "shared memory", "Send them in the body")
    if bool(in_json) == (size is not None):
        came = "both" if in_json else "neither"
        must = "have either `data` or the parameter `binary_data_size`"
        raise refused(f"inputs[{i}]", must, came, "Send values once")
    if size is None:
        place = f"inputs[{i}].data"
        array = elements(tensor.data, datatype, tuple(tensor.shape), place, limits)
    else:
        if at + size > len(body):
            must = f"be at most {len(body) - at:,}, the bytes behind its JSON"
            remedy = "Send all bytes, and the header that says how many of them are JSON"
            raise refused(f"inputs[{i}].parameters.binary_data_size", must, f"{size:,}", remedy)
        data = body[at : at + size]
        array = read_binary(data, datatype, tuple(tensor.shape), f"inputs[{i}]", limits)
    if said.content_type == "datetime" and datatype.name == "BYTES":
        array = dates(array.ravel(), lambda row: f"inputs[{i}], row {row}")
    return array, at + (size or 0)


def _outputs(head: Head) -> tuple[Output, ...]:
    """What is asked for."""
    binary = (head.parameters or {}).get("binary_data_output", False)
    if not isinstance(binary, bool):
        place = "parameters.binary_data_output"
        raise refused(place, "be true or false", shown(binary), "Give one of them")
    if not head.outputs:
        return (Output("y", binary),)
    found: dict[str, Output] = {}
    for i, wanted in enumerate(head.outputs):
        name, said = wanted.name, wanted.parameters or _NO_WISHES
        if name not in OUTPUTS:
            hold_output(name, f"outputs[{i}].name")
        if name in found:
            raise refused(f"outputs[{i}].name", "be new", shown(name), "Ask for each once")
        if said.classification or said.shared_memory_region is not None:
            must = "be asked for as it is, without `classification` and shared memory"
            remedy = "Leave them out; ask for `probabilities`"
            raise refused(f"outputs[{i}]", must, "one of them", remedy)
        found[name] = Output(name, binary if said.binary_data is None else said.binary_data)
    return tuple(found.values())


def _place(name: str, inputs: list[Tensor]) -> str:
    """Where a tensor stands."""
    return f"inputs[{[each.name for each in inputs].index(name)}]"


_KINDS = {"number": "FP64", "truth": "BOOL", "text": "BYTES", "date": "BYTES"}


def server(version: str, extensions: Sequence[str] = ("binary_tensor_data",)) -> Reply:
    """What the server says of itself.

    Parameters
    ----------
    version : str
        Of onepass.
    extensions : sequence of str
        Of the protocol, as far as the server has them.
    """
    return _reply({"name": "onepass", "version": version, "extensions": list(extensions)})


def model(
    name: str,
    *,
    versions: Sequence[str],
    learner: str,
    features: int | Mapping[str, str] | None = None,
    answers: str = "FP64",
    outputs: int = 1,
    classes: int | None = None,
    probabilities: bool = False,
) -> Reply:
    """What a model says of itself.

    Parameters
    ----------
    name : str
    versions : sequence of str
        Those that can be asked.
    learner : str
        The class of its learner.
    features : int, mapping of str to str, or None
        How many columns rows have that have no names; or the columns' names, and for each whether
        it holds a "number", "truth", "text" or "date"; None before any was seen.
    answers : {"FP64", "INT64", "UINT64", "BOOL", "BYTES"}, default "FP64"
        The datatype of its answers.
    outputs : int, default 1
        How many answers a row has.
    classes : int, optional
        How many classes it knows, if it is a classifier.
    probabilities : bool, default False
        Whether it tells the classes' probabilities.

    Examples
    --------
    >>> reply = model("flow", versions=["7"], learner="RLSRegressor", features=3)
    >>> msgspec.json.decode(reply.body)["inputs"]
    [{'name': 'X', 'datatype': 'FP64', 'shape': [-1, 3]}]
    """
    told = [_tensor("y", answers, [-1] if outputs == 1 else [-1, outputs])]
    if classes is not None:
        if probabilities:
            told.append(_tensor("probabilities", "FP64", [-1, classes]))
        told.append(_tensor("classes", answers, [classes]))
    return _reply(
        {
            "name": name,
            "versions": list(versions),
            "platform": f"onepass_{learner}",
            "inputs": _inputs(features),
            "outputs": told,
        }
    )


def failed(message: str) -> Reply:
    """An error, in words.

    Parameters
    ----------
    message : str
    """
    return _reply({"error": message.encode(errors="backslashreplace").decode()})


def _inputs(features: int | Mapping[str, str] | None) -> list[dict[str, object]]:
    if isinstance(features, Mapping):
        return [_column(name, kind) for name, kind in features.items()]
    return [_tensor("X", "FP64", [-1, -1 if features is None else features])]


def _column(name: str, kind: str) -> dict[str, object]:
    found = _tensor(name, _KINDS[kind], [-1])
    return found | {"parameters": {"content_type": "datetime"}} if kind == "date" else found


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape}


def _reply(told: dict[str, object]) -> Reply:
    return Reply(msgspec.json.encode(told))
