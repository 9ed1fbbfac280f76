"""Requests and responses as Arrow IPC streams.

Each column is one of a table: numbers, truth values, text, dates. A column of fixed-size lists of
numbers is a matrix: by itself, or beside what belongs to rows to be learned, it is rows without
names. Dictionaries are read; nested columns else are not.

What comes is checked in full before any of it is used, for Arrow itself trusts the offsets within.

What is small in Arrow may be large once it is plain: an index into a dictionary is a byte, and the
text that it stands for is as long as it likes; texts that are views may all lie at the same bytes.
So a dictionary's values are made once, and shared; and texts are counted before they are made, as
often as they are there: whoever writes the rows down writes each of them.

A stream is messages, each a table of FlatBuffers that tells of the body behind it [1]. A packed
buffer of the body begins with how many bytes it will have, and Arrow takes that much memory before
it unpacks; a batch tells its rows, of which a column of nulls has as many as it likes. Here both
are read from the tables themselves, each offset checked, and summed.

[1] https://arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format", and
    format/Message.fbs of Apache Arrow.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, ipc

from onepass.errors import OnepassError
from onepass.service.protocol.json import Gathered, encoded, unwritable
from onepass.service.protocol.limits import Limits, refused, shown
from onepass.service.protocol.rows import Asked, Reply, asked, datatype_of
from onepass.stream.arrow import letters, to_array
from onepass.types import Array

__all__ = ["KIND", "Arrays", "hold_messages", "read", "write"]


_UTF8 = 4  # bytes of a character at most


class Arrays:
    """Makes arrays, and counts the bytes of their texts.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = 0

    def of(self, column: pa.Array, place: str) -> Array:
        """A column of a batch that was validated in full.

        Parameters
        ----------
        column : pyarrow.Array of length n
            Of a type that a table's column can have, a dictionary of such, or a fixed-size list of
            numbers.
        place : str
            Where it stands in the request, for messages.

        Returns
        -------
        array : ndarray of shape (n,) or (n, k)
            bool, int64, uint64, float64 with nan, datetime64[us], or objects: text and None.

        Raises
        ------
        RequestError
            If it is too large, or a list is missing.
        """
        types, kind = pa.types, column.type
        if types.is_fixed_size_list(kind):
            return self._matrix(column, place)
        if types.is_dictionary(kind):
            return self._decoded(column, place)
        if self._is_text(kind):
            self._count(column, place)
        elif not column.null_count and types.is_integer(kind):
            whole = np.uint64 if kind == pa.uint64() else np.int64
            return np.asarray(column.to_numpy(zero_copy_only=False)).astype(whole)
        elif not column.null_count and types.is_boolean(kind):
            return np.asarray(column.to_numpy(zero_copy_only=False))
        found = to_array(column, place, "the request")
        if found.dtype == object:
            self._limits.hold_text(max(map(len, filter(None, found)), default=0), place)
        return found

    def texts(self, schema: pa.Schema) -> int:
        """How many columns are text, each its own or a dictionary's.

        Parameters
        ----------
        schema : pyarrow.Schema
        """
        dictionary = pa.types.is_dictionary
        return sum(self._is_text(kind.value_type if dictionary(kind) else kind)
                   for kind in schema.types)  # fmt: skip

    def empty(self, schema: pa.Schema) -> int:
        """How many columns are of nulls alone, which take no bytes.

        Parameters
        ----------
        schema : pyarrow.Schema
        """
        return sum(map(pa.types.is_null, schema.types))

    def _matrix(self, column: pa.Array, place: str) -> Array:
        """Lists as rows of numbers."""
        wide = column.type.list_size
        self._limits.hold(len(column), wide, place)
        if column.null_count:
            came = f"{column.null_count:,} that are null"
            raise refused(place, "hold a list in each row", came, "Send lists, of null if need be")
        return self.of(column.flatten(), place).astype(np.float64).reshape(len(column), wide)

    def _decoded(self, column: pa.Array, place: str) -> Array:
        """A dictionary's values, by their indices."""
        values = self.of(column.dictionary, place)
        at = column.indices.drop_null().to_numpy(zero_copy_only=False)
        if self._is_text(column.type.value_type):
            self._add(int(self._sizes(column.dictionary)[at].sum()), place)
        if values.dtype.kind in "biu":
            values = values.astype(np.float64)
        missing: Any = {"O": None, "M": np.datetime64("NaT", "us")}.get(values.dtype.kind, np.nan)
        taken = np.full(len(column), missing, dtype=values.dtype)
        there = np.asarray(column.indices.is_valid().to_numpy(zero_copy_only=False))
        taken[there] = values[at]
        return taken

    def _is_text(self, kind: pa.DataType) -> bool:
        types = pa.types
        return bool(types.is_string(kind) or types.is_large_string(kind) or self._is_view(kind))

    def _is_view(self, kind: pa.DataType) -> bool:
        view = getattr(pa.types, "is_string_view", None)  # newer than the oldest pyarrow we take
        return bool(view and view(kind))

    def _count(self, column: pa.Array, place: str) -> None:
        """Refuse texts that are too long, one or all."""
        if not len(column):
            return
        sizes = self._sizes(column)
        self._limits.hold_text(int(sizes.max()) // _UTF8, place)
        self._add(int(sizes.sum()), place)

    def _sizes(self, column: pa.Array) -> Array:
        """The bytes of each text, 0 where it is missing."""
        if self._is_view(column.type):
            views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)
            return views[column.offset : column.offset + len(column), 0].astype(np.int64)
        sizes = compute.fill_null(compute.binary_length(column), 0)
        return np.asarray(sizes.to_numpy(zero_copy_only=False)).astype(np.int64)

    def _add(self, nbytes: int, place: str) -> None:
        """Count bytes of text, and refuse more than may be."""
        self._bytes += nbytes
        if self._bytes > self._limits.unpacked:
            must = f"hold text of at most {self._limits.unpacked:,} bytes in all"
            raise refused(place, must, "more", "Send fewer rows at a time")


_MOST = 1 << 14  # messages
_VERSION, _HEADER = 0, 2  # fields of Message; 1 tells which table its header is
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3  # of RecordBatch
_DATA = 1  # of DictionaryBatch
_V5 = 4
_DICTIONARY, _BATCH = "dictionary", "record batch"
_REMEDY = "Write it anew with Arrow 1.0 or later"


def hold_messages(messages: Iterator["pa.ipc.Message"], limits: Limits) -> None:
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
            length, size = _rows_and_bytes(message)
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


def _rows_and_bytes(message: "pa.ipc.Message") -> tuple[int, int]:
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


KIND = "application/vnd.apache.arrow.stream"
"""The content type."""

_NO_LIMITS = Limits()


def read(body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False) -> Asked:
    """What a request asks whose body is an Arrow stream.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool, default False
        Whether the columns y, sample_weight and time are what these say, and no features.

    Raises
    ------
    RequestError
        If it is no such stream, or too large, unpacked too.
    """
    limits.hold_body(body)
    gathered = Gathered(limits, _place)
    with _told():
        hold_messages(ipc.MessageReader.open_stream(pa.BufferReader(body)), limits)
        source = pa.BufferReader(body)
        options = ipc.IpcReadOptions(use_threads=False)
        with ipc.open_stream(source, options=options) as reader:
            _hold_schema(reader.schema, limits)
            gathered.add(dict.fromkeys(reader.schema.names), 0)
            arrays = Arrays(limits)
            for batch in reader:
                batch.validate(full=True)
                columns = zip(batch.schema.names, batch.columns, strict=True)
                n = gathered.n + batch.num_rows
                limits.hold(n, batch.num_columns, "stream", texts=arrays.texts(batch.schema))
                limits.hold_sparse(n * arrays.empty(batch.schema), len(body), "stream")
                found = {name: arrays.of(each, _place(name)) for name, each in columns}
                gathered.add(found, batch.num_rows)
        if source.tell() != len(body):
            came = f"{len(body) - source.tell():,} bytes behind it"
            raise refused("", "end with its stream", came, "Send one stream a request")
        return asked(gathered.joined(), _place, learning=learning)


def write(asked: Asked, answers: Mapping[str, Array], *, model: str, version: str = "") -> Reply:
    """What is sent back: y a column, and so probabilities, as fixed-size lists.

    Parameters
    ----------
    asked : Asked
        Its ``outputs`` say what.
    answers : mapping of str to ndarray
        By the names of ``OUTPUTS``: numbers, truth values or text, or objects of one of these with
        None among them.
    model, version : str
        The model's name, and the version that answered. They stand in the schema's metadata, as
        JSON under "onepass", and the classes, if they are asked for.

    Raises
    ------
    LabelError
        If a text among the answers is none that UTF-8 can write.
    """
    about: dict[str, object] = {"model_name": model, "model_version": version}
    about |= {"id": asked.id} if asked.id else {}
    columns = {}
    for output in asked.outputs:
        array = answers[output.name]
        if output.name == "classes":
            about["classes"] = array.tolist()
        else:
            columns[output.name] = _column(array)
    schema = pa.schema([(name, each.type) for name, each in columns.items()])
    schema = schema.with_metadata({b"onepass": encoded(about)})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    return Reply(sink.getvalue().to_pybytes(), KIND)


def _hold_schema(schema: pa.Schema, limits: Limits) -> None:
    """Refuse columns that are too many, twice there, or of a kind that no table has."""
    names = [str(name) for name in schema.names]
    limits.hold(0, len(names), "schema")
    limits.hold_text(max(map(len, names), default=0), "schema")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise refused("schema", "hold each name once", f"{shown(twice)} again", "Rename one")
    for name, kind in zip(names, schema.types, strict=True):
        matrix = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
        inner = kind.value_type if matrix else kind
        known = letters([(name, inner)]).get(name)
        if (matrix and known not in {"f", "b"}) or (known is None and not pa.types.is_null(inner)):
            must = "be numbers, truth values, text, dates, or fixed-size lists of numbers"
            remedy = "Leave it out, or send columns of plain values"
            raise refused(_place(name), must, f"Arrow's {str(kind)[:80]}", remedy)


def _column(array: Array) -> pa.Array:
    """An array of answers as Arrow's."""
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
    if array.dtype == object and datatype_of(array).name == "FP64":
        array = array.astype(np.float64)
    try:
        return pa.array(array.tolist() if array.dtype.kind in "OU" else array)
    except UnicodeEncodeError as wrong:
        raise unwritable(wrong) from wrong


def _place(name: str) -> str:
    return f"columns[{shown(name)}]"


@contextmanager
def _told() -> Iterator[None]:
    """Say what Arrow says of damaged bytes in the asker's words."""
    try:
        yield
    except OnepassError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as wrong:
        came = f"one that breaks off or is damaged ({str(wrong)[:200]})"
        raise refused("", "be a whole Arrow stream", came, "Check what wrote it") from wrong
