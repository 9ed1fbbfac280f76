"""Tensors: requests and responses of the Open Inference Protocol, version 2, over HTTP.

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
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.service.wire.binary import HEADER, head_length, read_binary, write_binary
from onepass.service.wire.datatypes import datatype_named, datatype_of
from onepass.service.wire.dates import dates
from onepass.service.wire.elements import elements
from onepass.service.wire.heads import Head, Tensor, TensorParameters, WantedParameters, read_head
from onepass.service.wire.jsontext import encoded
from onepass.service.wire.limits import Limits, refused, shown
from onepass.service.wire.plain import packed_request, plain_request, plain_rows, plain_values
from onepass.service.wire.rows import OUTPUTS, Asked, Output, Reply, asked, hold_output

__all__ = ["read", "write"]

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
        told: dict[str, Any] = {
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
