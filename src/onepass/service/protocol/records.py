"""Rows as plain JSON records (a placeholder)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from onepass.service.protocol.limits import Limits, refused
from onepass.service.protocol.rows import Asked, Reply, asked
from onepass.types import Array

__all__ = ["Record", "RecordsResponse", "is_records", "read", "write"]

_Value = float | str | bool | None


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """One row."""

    x: dict[str, _Value]
    y: float | str | None = None


class RecordsResponse(msgspec.Struct):
    """Predictions."""

    predictions: list[Any]
    model: str
    version: str


_DECODER = msgspec.json.Decoder(list[Record] | Record)


def is_records(body: bytes) -> bool:
    """Whether a body of JSON is no request of the V2 protocol."""
    return b'"inputs"' not in body


def read(body: bytes, limits: Limits, *, learning: bool, ndjson: bool = False) -> Asked:
    """Rows of a body.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning, ndjson : bool
    """
    if ndjson:
        body = b"[%b]" % b",".join(line for line in body.split(b"\n") if line.strip())
    try:
        found = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refused("", "be an object with `inputs` or `x`", str(error), "Fix it") from error
    rows = [found] if isinstance(found, Record) else found
    if not rows:
        raise refused("", "hold rows", "none", "Send one or more")
    named: dict[str, Array] = {}
    for name in rows[0].x:
        values = [row.x.get(name) for row in rows]
        text = any(isinstance(value, str) for value in values)
        named[name] = np.array(values, dtype=object if text else float)
    if learning and all(row.y is not None for row in rows):
        named["y"] = np.array([row.y for row in rows])
    limits.hold(len(rows), len(named), "")
    return asked(named, lambda name: name, learning=learning)


def write(asked: Asked, found: Mapping[str, Array], *, model: str, version: str) -> Reply:
    """Predictions as JSON.

    Parameters
    ----------
    asked : Asked
    found : mapping of str to ndarray
    model, version : str
    """
    del asked
    predictions = found["y"].tolist()
    return Reply(msgspec.json.encode(RecordsResponse(predictions, model, version)))
