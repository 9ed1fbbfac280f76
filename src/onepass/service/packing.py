"""Packing: rows as binary tensors of the Open Inference Protocol, for those who ask."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.service.blocks import Block
from onepass.validation.table import Table

__all__ = ["read_tensors", "tensors_of"]

_TYPES = {"f8": "FP64", "f4": "FP32", "f2": "FP16", "i8": "INT64", "i4": "INT32", "i2": "INT16",
          "i1": "INT8", "u8": "UINT64", "u4": "UINT32", "u2": "UINT16", "u1": "UINT8",
          "b1": "BOOL"}  # fmt: skip
_DTYPES = {name: f"<{code}" for code, name in _TYPES.items()}


def tensors_of(block: Block, parameters: Mapping[str, Any]) -> tuple[bytes, int]:
    """A block as the protocol's binary tensors, and how many bytes of JSON come first.

    Parameters
    ----------
    block : Block
    parameters : mapping of str to value
        Of the request.
    """
    named: dict[str, Array] = (
        dict(block.X.columns) if isinstance(block.X, Table) else {"X": block.X}
    )
    beside = {"y": block.y, "sample_weight": block.weights, "time": block.time}
    named |= {name: part for name, part in beside.items() if part is not None}
    inputs, parts = [], []
    for name, array in named.items():
        datatype, data, said = _tensor(array)
        told = {"name": name, "shape": list(array.shape), "datatype": datatype, "parameters": said}
        if isinstance(data, bytes):
            said["binary_data_size"] = len(data)
            parts.append(data)
        else:
            told["data"] = data
        inputs.append(told)
    head = json.dumps({"inputs": inputs, "parameters": dict(parameters)}).encode()
    return b"".join((head, *parts)), len(head)


def _tensor(array: Array) -> tuple[str, bytes | list[str | None], dict[str, Any]]:
    """Datatype, values and parameters; as a list, for JSON, where text is missing."""
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    if code in _TYPES:
        return _TYPES[code], array.astype(array.dtype.newbyteorder("<")).tobytes(), {}
    said: dict[str, Any] = {"content_type": "datetime"} if array.dtype.kind == "M" else {}
    missing = "NaT" if said else None
    values = (np.datetime_as_string(array) if said else array).ravel().tolist()
    texts = [None if each == missing else str(each) for each in values]
    raw = [each.encode() for each in texts if each is not None]
    if len(raw) < len(texts):  # bytes cannot say so
        return "BYTES", texts, said
    return "BYTES", b"".join(len(each).to_bytes(4, "little") + each for each in raw), said


def read_tensors(data: bytes, header: str | None) -> dict[str, Array]:
    """The tensors of an answer.

    Parameters
    ----------
    data : bytes
    header : str, optional
        How many bytes of JSON come first; all, if it is not there.
    """
    length = len(data) if header is None else int(header)
    found, at = {}, length
    for told in json.loads(data[:length])["outputs"]:
        size = told.get("parameters", {}).get("binary_data_size")
        if size is None:
            array = np.array(told["data"]).reshape(told["shape"])
        elif told["datatype"] == "BYTES":
            array = np.array(_texts(data[at : at + size]), dtype=object).reshape(told["shape"])
        else:
            dtype = _DTYPES[told["datatype"]]
            array = np.frombuffer(data[at : at + size], dtype).reshape(told["shape"]).copy()
        at += size or 0
        found[told["name"]] = array
    return found


def _texts(data: bytes) -> list[str]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        found.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return found
