"""Requests and responses as Arrow IPC streams.

A column contains numbers, truth values, text, dates, or a dictionary of these. A column of
fixed-size lists of numbers is a matrix of rows without names, if there are no other columns than y,
sample_weight and time. Other nested columns are rejected.

pyarrow reads the streams, and this module checks what it does not: it allocates the size that a
compressed buffer declares; it verifies offsets within buffers only in ``validate``; and indices of
a dictionary, or views, may refer to the same text many times, so the total length is computed
before the texts are created.

The declared sizes are located through the message's table of buffers (FlatBuffers) [1].

[1] https://arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format", and
    format/Message.fbs of Apache Arrow.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, ipc

from onepass.errors import OnepassError
from onepass.service.protocol.json import encoded, unwritable
from onepass.service.protocol.limits import Limits, request_error, shown
from onepass.service.protocol.rows import (
    DecodedRequest,
    EncodedResponse,
    build_request,
    datatype_of,
)
from onepass.stream.arrow import dtype_code, to_array
from onepass.types import Array

KIND = "application/vnd.apache.arrow.stream"
"""Content type."""

_NO_LIMITS = Limits()
_MAX_MESSAGES = 1 << 14
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3  # fields of Message.fbs


def read(body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False) -> DecodedRequest:
    """Decode a request whose body is an Arrow stream.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool, default False
        Whether the columns y, sample_weight and time are targets, weights and times, not features.

    Raises
    ------
    RequestError
        If the body is not an Arrow stream, or is too large before or after decompression.
    """
    source = pa.BufferReader(body)
    try:
        _check_messages(ipc.MessageReader.open_stream(pa.BufferReader(body)), limits)
        with ipc.open_stream(source, options=ipc.IpcReadOptions(use_threads=False)) as reader:
            limits.check_size(0, len(reader.schema), "schema")
            table = reader.read_all()
            rest = len(body) - source.tell()
        named = arrays(table, limits, len(body))
    except OnepassError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, struct.error) as error:
        got = f"a truncated or damaged stream ({str(error)[:200]})"
        remedy = "Send the whole stream, and close its writer before"
        raise request_error("", "be a complete Arrow stream", got, remedy) from error
    if rest:
        remedy = "Send one stream per request, without further bytes"
        raise request_error("", "be one Arrow stream", f"{rest:,} bytes after its end", remedy)
    return build_request(named, columns_place, learning=learning)


def _check_messages(messages: Iterator[pa.ipc.Message], limits: Limits) -> None:
    """Raise RequestError if a stream's buffers would be too large after decompression."""
    decompressed = 0
    for count, message in enumerate(messages, start=1):
        if count > _MAX_MESSAGES:
            must = f"have at most {_MAX_MESSAGES:,} messages"
            raise request_error("stream", must, "more", "Write larger record batches")
        if message.type not in {"dictionary", "record batch"}:
            continue
        if (
            message.metadata_version != ipc.MetadataVersion.V5
        ):  # an earlier version may compress without declaring it
            remedy = "Write the stream with Arrow 1.0 or later"
            raise request_error("stream", "have metadata version 5", "an earlier version", remedy)
        decompressed += _decompressed_bytes(message)
        _check_decoded(decompressed, limits)


def _decompressed_bytes(message: pa.ipc.Message) -> int:
    """Return the size of a message's compressed buffers after decompression; 0 without any."""
    data, body = message.metadata.to_pybytes(), memoryview(message.body)

    def field(table: int, i: int) -> int:
        """Follow the offset in a field of a table; return 0 if the table lacks the field."""
        vtable = table - struct.unpack_from("<i", data, table)[0]
        size = struct.unpack_from("<H", data, vtable)[0]
        start = struct.unpack_from("<H", data, vtable + 4 + 2 * i)[0] if 4 + 2 * i < size else 0
        return table + start + struct.unpack_from("<I", data, table + start)[0] if start else 0

    batch = field(struct.unpack_from("<I", data)[0], _HEADER)
    batch = field(batch, _DATA) if message.type == "dictionary" else batch
    if not field(batch, _COMPRESSION):
        return 0
    vector = field(batch, _BUFFERS)
    count = struct.unpack_from("<I", data, vector)[0]
    buffers = np.frombuffer(data, "<i8", 2 * count, vector + 4).reshape(-1, 2).tolist()
    sizes = [(struct.unpack_from("<q", body, at)[0], n - 8) for at, n in buffers if n]
    return sum(n if size == -1 else abs(size) for size, n in sizes)  # -1: not compressed


def arrays(table: pa.Table, limits: Limits, nbytes: int) -> dict[str, Array]:
    """Convert the columns of an Arrow table to arrays, after validation and checks of limits.

    Parameters
    ----------
    table : pyarrow.Table
    limits : Limits
    nbytes : int
        Size of the request in bytes.

    Returns
    -------
    named : dict of str to ndarray of shape (n,) or (n, k)
        bool, int64, uint64, float64 with nan, datetime64[us], or objects: text and None.

    Raises
    ------
    RequestError
        If a column has an unsupported type, or a limit is exceeded.
    """
    names, n = table.schema.names, table.num_rows
    limits.check_text(max(map(len, names), default=0), "schema")
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise request_error(
                "schema", "have unique names", f"{shown(name)} twice", "Rename one of the columns"
            )
    for name, kind in zip(names, table.schema.types, strict=True):
        _check_type(kind, columns_place(name))
    values = [getattr(kind, "value_type", kind) for kind in table.schema.types]
    limits.check_size(n, len(names), "stream", texts=sum(map(_is_text, values)))
    limits.check_sparse(n * sum(map(pa.types.is_null, values)), nbytes, "stream")
    table.validate(full=True)
    size, named = 0, {}
    for name, column in zip(names, table.columns, strict=True):
        place = columns_place(name)
        chunks = column.chunks or [column.combine_chunks()]
        for chunk in chunks:
            size += _decoded_bytes(chunk)
            _check_decoded(size, limits)
        named[name] = np.concatenate([_array(chunk, place, limits) for chunk in chunks])
    return named


def _check_decoded(nbytes: int, limits: Limits) -> None:
    if nbytes > limits.unpacked:
        must = f"have at most {limits.unpacked:,} bytes after decoding"
        raise request_error("stream", must, "more", "Send fewer rows per request")


def _check_type(kind: pa.DataType, place: str) -> None:
    matrix = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
    inner = kind.value_type if matrix else kind
    code = dtype_code(inner)
    if (matrix and code not in {"f", "b"}) or (code is None and not pa.types.is_null(inner)):
        must = "be numbers, truth values, text, dates, or fixed-size lists of numbers"
        remedy = "Leave out the column, or send plain values"
        raise request_error(place, must, f"the Arrow type {str(kind)[:80]}", remedy)


def _decoded_bytes(column: pa.Array) -> int:
    """Return the size of a column's texts, with each value of a dictionary written out."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        nbytes = 8 * len(values) + _decoded_bytes(values)
        if not _is_text(values.type):
            return nbytes
        sizes = compute.take(_sizes(values), column.indices)
        return nbytes + (compute.sum(sizes).as_py() or 0)
    return compute.sum(_sizes(column)).as_py() or 0 if _is_text(column.type) else 0


def _sizes(column: pa.Array) -> pa.Array:
    """Return the length of each text in bytes."""
    if str(column.type) != "string_view":
        return compute.binary_length(column).cast(pa.int64())
    views = np.frombuffer(column.buffers()[1] or b"", dtype="<i4").reshape(-1, 4)
    views = views[column.offset : column.offset + len(column), 0].astype(np.int64)
    return compute.if_else(column.is_valid(), pa.array(views), 0)


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in {"string", "large_string", "string_view"}


def _array(column: pa.Array, place: str, limits: Limits) -> Array:
    types, kind = pa.types, column.type
    if types.is_fixed_size_list(kind):
        limits.check_size(len(column), kind.list_size, place)
        if column.null_count:
            got = f"{column.null_count:,} null lists"
            remedy = "Send a list for each row; its values may be null"
            raise request_error(place, "contain a list in each row", got, remedy)
        flat = to_array(column.flatten(), place, "the request")
        return flat.astype(np.float64).reshape(len(column), kind.list_size)
    if types.is_dictionary(kind):
        values = _array(column.dictionary, place, limits)
        values = values if values.dtype.kind in "OM" else values.astype(np.float64)
        missing: Any = {"O": None, "M": np.datetime64("NaT", "us")}.get(values.dtype.kind, np.nan)
        at = column.indices.cast(pa.int64()).fill_null(len(values)).to_numpy()
        return np.asarray(np.append(values, missing)[at])
    if not column.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
        exact = np.asarray(column.to_numpy(zero_copy_only=False))
        return exact.astype({"i": np.int64, "u": np.uint64}.get(exact.dtype.kind, np.bool_))
    array = to_array(column, place, "the request")
    if array.dtype == object:
        limits.check_text(max(map(len, filter(None, array)), default=0), place)
    return array


def write(
    request: DecodedRequest, values: Mapping[str, Array], *, model: str, version: str = ""
) -> EncodedResponse:
    """Encode a response: one column per output, with probabilities as fixed-size lists.

    Parameters
    ----------
    request : DecodedRequest
        Request, with the ``outputs`` to encode.
    values : mapping of str to ndarray
        Outputs by name: numbers, truth values or text, or objects of one of these types and None.
    model, version : str
        Name of the model, and the version that predicted. The schema's metadata contains both, as
        JSON under the key "onepass", and the classes if they are requested.

    Raises
    ------
    LabelError
        If a predicted text cannot be encoded in UTF-8.
    """
    metadata: dict[str, object] = {"model_name": model, "model_version": version}
    metadata |= {"id": request.id} if request.id else {}
    columns = {}
    for output in request.outputs:
        array = values[output.name]
        if output.name == "classes":
            metadata["classes"] = array.tolist()
        else:
            columns[output.name] = _column(array)
    batch = pa.record_batch(columns).replace_schema_metadata({b"onepass": encoded(metadata)})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return EncodedResponse(sink.getvalue().to_pybytes(), KIND)


def _column(array: Array) -> pa.Array:
    """Convert an array of predictions to an Arrow array."""
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
    if array.dtype == object and datatype_of(array) == "FP64":
        array = array.astype(np.float64)
    try:
        return pa.array(array.tolist() if array.dtype.kind in "OU" else array)
    except UnicodeEncodeError as error:
        raise unwritable(error) from error


def columns_place(name: str) -> str:
    """Return the location of a column in the request, for messages."""
    return f"columns[{shown(name)}]"
