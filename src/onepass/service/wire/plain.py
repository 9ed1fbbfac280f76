"""Plain: values that are just what they are said to be, read the shortest way.

In most requests there is nothing wrong, and most have few values. Whatever is long or unusual is
left to the long way, which says what is wrong with it.
"""

from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from onepass.service.wire.datatypes import DATATYPES
from onepass.service.wire.heads import Tensor
from onepass.service.wire.jsontext import PIECE
from onepass.service.wire.limits import Limits
from onepass.service.wire.rows import ROLES, Asked
from onepass.types import Array

__all__ = ["plain_request", "plain_rows", "plain_values"]

_BRACKET = ord("[")
_ROWS = ("FP64", "FP32")


class _Numbers(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor that says nothing but its numbers, flat or a list for each row."""

    name: str
    shape: list[Annotated[int, msgspec.Meta(ge=1)]]
    datatype: Literal["FP64"]
    data: list[float | list[float]]


class _Request(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A request that says nothing else."""

    inputs: list[_Numbers]
    id: str | None = None


_REQUEST = msgspec.json.Decoder(_Request)


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
    if len(body) > PIECE:
        return None
    try:
        said = _REQUEST.decode(body)
    except (msgspec.DecodeError, ValueError):  # the long way says what is wrong
        return None
    inputs, name = said.inputs, said.id or ""
    if len(inputs) != 1 + learning or len(inputs[0].shape) != 2 or len(name) > limits.text:
        return None
    rows, (n, d) = inputs[0], inputs[0].shape
    wide = d + learning  # answers are counted too
    few = n <= limits.rows and wide <= limits.columns and n * wide <= limits.values
    X = _numbers(rows.data, (n, d), (n * d,)) if few and len(rows.name) <= limits.text else None
    if X is None:
        return None
    if not learning:
        return Asked(X.reshape(n, d), id=name)
    answers = inputs[1]
    paired = answers.name == "y" and rows.name not in ROLES and answers.shape == [n]
    y = _numbers(answers.data, (n,)) if paired else None
    return None if y is None else Asked(X.reshape(n, d), y, id=name)


def _numbers(data: list[Any], *shapes: tuple[int, ...]) -> Array | None:
    """Numbers of one of these shapes."""
    try:
        array = np.array(data, dtype=np.float64)
    except ValueError:  # rows of several lengths
        return None
    return array if array.shape in shapes else None


def plain_rows(inputs: list[Tensor], body: bytes, at: int, limits: Limits) -> Asked | None:
    """The rows of a request, if they are one plain tensor of FP64 or FP32.

    Parameters
    ----------
    inputs : list of Tensor
    body : bytes
        Of the request.
    at : int
        Where its JSON ends.
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
    if tensor.parameters is None:
        X = plain_values(tensor, limits) if at == len(body) else None
        return None if X is None else Asked(X)
    size = tensor.parameters.binary_data_size
    dtype = DATATYPES[tensor.datatype].dtype
    if (
        size is None
        or size != n * d * dtype.itemsize
        or at + size != len(body)
        or memoryview(tensor.data)
        or tensor.parameters.shared_memory_region is not None
    ):
        return None
    numbers = np.frombuffer(body[at:], dtype).reshape(n, d)
    return Asked(numbers.astype(np.float64, copy=False))


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
