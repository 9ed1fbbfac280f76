"""Bodies of requests, encoded without onepass."""

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa

CODES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip


def datatype(values: Any) -> str:
    code = np.asarray(values).dtype
    names = [name for name, each in CODES.items() if np.dtype(each) == code]
    return names[0] if names else "BYTES"


def tensor(name: str, values: Any, **more: Any) -> dict[str, Any]:
    """A tensor in JSON, nested."""
    array = np.asarray(values)
    tensor_json = {"name": name, "shape": list(array.shape), "datatype": datatype(array)}
    return tensor_json | {"data": array.tolist()} | more


def request(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs} | more).encode()


def in_bytes(values: Any) -> bytes:
    array = np.asarray(values)
    if datatype(array) != "BYTES":
        return array.tobytes()
    words = [b"" if each is None else str(each).encode() for each in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(word)) + word for word in words)


def binary_request(tensors: dict[str, Any], **more: Any) -> tuple[bytes, int]:
    """A request with binary tensors, and the length of its JSON."""
    inputs, parts = [], []
    for name, values in tensors.items():
        parts.append(in_bytes(values))
        tensor_json = tensor(name, values, parameters={"binary_data_size": len(parts[-1])})
        inputs.append({key: each for key, each in tensor_json.items() if key != "data"})
    head = request(*inputs, **more)
    return b"".join((head, *parts)), len(head)


def arrow_stream(table: pa.Table, *, rows: int | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()
