"""Messages: what an Arrow stream says it holds, looked at before any of it is unpacked.

A stream is messages, each a table of FlatBuffers that tells of the body behind it [1]. A packed
buffer of the body begins with how many bytes it will have, and Arrow takes that much memory before
it unpacks; a batch tells its rows, of which a column of nulls has as many as it likes. Here both
are read from the tables themselves, each offset checked, and summed.

[1] https://arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format", and
    format/Message.fbs of Apache Arrow.
"""

import struct
from collections.abc import Iterator
from typing import Any

from onepass.service.wire.limits import Limits, refused

__all__ = ["hold_messages"]

_MOST = 1 << 14  # messages
_VERSION, _HEADER = 0, 2  # fields of Message; 1 tells which table its header is
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # of RecordBatch
_DATA = 1  # of DictionaryBatch
_V5 = 4
_DICTIONARY, _BATCH = "dictionary", "record batch"
_REMEDY = "Write it anew with Arrow 1.0 or later"


def hold_messages(messages: Iterator[Any], limits: Limits) -> None:
    """Refuse a stream that would take more memory than it may, before it does.

    Parameters
    ----------
    messages : iterator of pyarrow.ipc.Message
    limits : Limits

    Raises
    ------
    RequestError
        If it would, or a message is not as the format has it.
    """
    rows = unpacked = count = 0
    for count, message in enumerate(messages, start=1):
        if count > _MOST:
            must = f"have at most {_MOST:,} messages"
            raise refused("stream", must, "more", "Write larger batches")
        if message.type not in {_DICTIONARY, _BATCH}:
            continue
        try:
            length, size = _told(message)
        except (struct.error, IndexError) as wrong:
            came = "offsets that lead out of it"
            raise refused("stream", "hold whole messages", came, _REMEDY) from wrong
        if message.type == _BATCH:
            rows += length
            limits.hold(rows, 1, "stream")
        unpacked += size
        if unpacked > limits.unpacked or length > limits.values:
            must = f"have at most {limits.unpacked:,} bytes once it is unpacked"
            raise refused("stream", must, "more", "Send fewer rows at a time")


def _told(message: Any) -> tuple[int, int]:
    """A batch's rows, and the bytes that its buffers will have where they are packed."""
    root = _Table.root(message.metadata.to_pybytes())
    if root.number(_VERSION, "<h") != _V5:
        raise refused("stream", "be of metadata version 5", "an earlier one", _REMEDY)
    batch = root.table(_HEADER)
    if batch is not None and message.type == _DICTIONARY:
        batch = batch.table(_DATA)
    if batch is None:
        raise IndexError
    length = batch.number(_LENGTH, "<q")
    if length < 0:
        raise IndexError
    if batch.table(_COMPRESSION) is None:
        return length, 0
    body = memoryview(message.body)
    return length, sum(_size(body, at, n) for at, n in batch.pairs(_BUFFERS))


def _size(body: memoryview, at: int, n: int) -> int:
    """The bytes that a packed buffer will have; -1 at its beginning says that it is as it is."""
    if n == 0:
        return 0
    if at < 0 or n < 8 or at + n > len(body):
        raise IndexError
    size: int = struct.unpack_from("<q", body, at)[0]
    if size < -1:
        raise IndexError
    return n - 8 if size == -1 else size


class _Table:
    """A table of FlatBuffers: where its fields stand, another table tells.

    Parameters
    ----------
    data : bytes
    at : int
        Where it begins.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read("<i", at)
        self._size = self._read("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> "_Table":
        """The outermost table."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def number(self, field: int, form: str) -> int:
        """A number; 0 if it is not there."""
        at = self._field(field)
        return 0 if at is None else self._read(form, at)

    def table(self, field: int) -> "_Table | None":
        """A table within, if it is there."""
        at = self._field(field)
        return None if at is None else _Table(self._data, at + self._read("<I", at))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two numbers of 64 bits."""
        at = self._field(field)
        if at is not None:
            at += self._read("<I", at)
            count = self._read("<I", at)
            if at + 4 + 16 * count > len(self._data):
                raise IndexError
            yield from struct.iter_unpack("<qq", self._data[at + 4 : at + 4 + 16 * count])

    def _field(self, field: int) -> int | None:
        place = 4 + 2 * field
        if place + 2 > self._size:
            return None
        offset = self._read("<H", self._fields + place)
        return self._at + offset if offset else None

    def _read(self, form: str, at: int) -> int:
        if at < 0:  # which would be counted from the end
            raise IndexError
        found: int = struct.unpack_from(form, self._data, at)[0]
        return found
