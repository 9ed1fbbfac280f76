"""Plain: values that are just what they are said to be, read the shortest way.

In most requests there is nothing wrong, and most have few values. Whatever is long or unusual is
left to the long way, which says what is wrong with it.
"""

import math
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from onepass.errors import Array
from onepass.service.wire.datatypes import DATATYPES
from onepass.service.wire.heads import Tensor
from onepass.service.wire.jsontext import PIECE
from onepass.service.wire.limits import Limits
from onepass.service.wire.rows import ANSWERS, ROLES, Asked, Output

__all__ = ["packed_request", "plain_request", "plain_rows", "plain_values"]

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


def _decoded(decoder: Any, text: Any, limits: Limits, *, learning: bool) -> Any:
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


def _numbers(data: list[Any], *shapes: tuple[int, ...]) -> Array | None:
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
