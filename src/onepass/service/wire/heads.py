"""Heads: the JSON of a request of the Open Inference Protocol, all but the tensors' values.

What stands there is decoded into structs, in which there is no room for what is not known. Only
where it is long is it looked at piece by piece, lest a list of a million empty tensors, or a shape
of a million axes, take its room before it is refused.
"""

from typing import Annotated, Any

import msgspec

from onepass.service.wire.jsontext import OBJECT, decoded, in_pieces, short
from onepass.service.wire.limits import Limits, refused

__all__ = ["Head", "Tensor", "TensorParameters", "Wanted", "WantedParameters", "read_head"]

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


def read_head(text: Any, limits: Limits) -> Head:
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


def _long(text: Any, limits: Limits) -> Head:
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
