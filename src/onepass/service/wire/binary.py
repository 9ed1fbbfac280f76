"""Binary tensors: the protocol's extension, values as bytes behind the JSON.

Numbers stand there row after row, little-endian; each text is its length in bytes, of 4 bytes, and
its UTF-8. How many bytes the JSON has, a header of HTTP says, and how many each tensor, its
parameter ``binary_data_size``.
"""

import struct
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.service.wire.datatypes import Datatype
from onepass.service.wire.elements import texts
from onepass.service.wire.jsontext import unwritable
from onepass.service.wire.limits import Limits, refused

__all__ = ["HEADER", "head_length", "read_binary", "write_binary"]

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


def _texts(data: bytes, count: int, place: str) -> list[Any]:
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
