"""Sealed: a tree of plain values and arrays as bytes that no accident can change unnoticed.

They are those of a safetensors file, with JSON in its metadata under the one key ``onepass``::

    {"sha256": "…", "format": 1, "version": "0.1.0", "kind": "learner", "tree": …}

with ``tree`` as in :mod:`onepass.tree`. ``sha256`` is of all bytes, its own 64 digits taken as
zeros: of header, padding and data. It guards against accidents; whoever forges bytes forges the
digest too, and so nothing else is trusted: reading runs no code, and takes memory in proportion to
what there is, whatever the header claims.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from safetensors import SafetensorError
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save as bytes_of

from onepass.errors import Array, CheckpointError
from onepass.tree import damaged, join, split

__all__ = ["FORMAT", "Contents", "divided", "packed", "place", "readable", "unpacked"]

FORMAT = 1
"""The newest format that this version reads, and the one that it writes."""

_LARGEST_HEADER = 100_000_000  # bytes; safetensors' own limit
_NO_DIGEST = "0" * 64
_DIGEST_KEY = rb"\"sha256\":\""  # as it stands in JSON within JSON
_SQLITE = b"SQLite f"  # what such a file begins with
_FIELDS = {"sha256": str, "format": int, "version": str, "kind": str}


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """What a file holds, and what it says of itself.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        What was written.
    kind : str
        What the tree means to whoever wrote it.
    format : int
        The format of the file.
    version : str
        The version of onepass that wrote it.
    sha256 : str
        The file's digest, 64 hexadecimal digits; equal trees of one version have equal digests.
    nbytes : int
        The file's size in bytes.
    """

    tree: Any
    kind: str
    format: int
    version: str
    sha256: str
    nbytes: int


def packed(tree: Any, where: str, *, kind: str = "tree") -> bytes:
    """What :func:`write` would write to a file.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
    where : str
        Where the bytes will stand, for messages.
    kind : str, default "tree"

    Raises
    ------
    CheckpointError
        If the tree holds anything else.
    """
    metadata, arrays = divided(tree, kind, where)
    data = bytes_of(arrays, metadata=metadata)
    at = place(data, where)
    digest = hashlib.sha256(data).hexdigest().encode("ascii")
    rest = memoryview(data)[at + len(_NO_DIGEST) :]
    return b"".join((data[:at], digest, rest))  # one copy


def unpacked(data: bytes, where: str) -> Contents:
    """The tree of these bytes, and what they say of themselves.

    Parameters
    ----------
    data : bytes
        From whatever source.
    where : str
        Where they stand, for messages.

    Raises
    ------
    CheckpointError
        If they are damaged, or too new.
    """
    header = data[8 : 8 + readable(data[:9], len(data), where)]
    record = _record(header, where)
    if _digest(data, header) != record["sha256"]:
        raise damaged(where, "its bytes are not those that were written")
    tree = join(record.pop("tree"), _arrays(data, where), where)
    return Contents(tree=tree, nbytes=len(data), **record)


def divided(tree: Any, kind: str, where: str) -> tuple[dict[str, str], dict[str, Array]]:
    """A tree as the metadata and the arrays of a file, whose digest is to come.

    Parameters
    ----------
    tree, kind, where
        As for :func:`packed`.
    """
    said, arrays = split(tree, where)
    record = {"sha256": _NO_DIGEST, "format": FORMAT, "version": _version(), "kind": kind}
    text = json.dumps({**record, "tree": said}, allow_nan=False, separators=(",", ":"))
    return {"onepass": text}, arrays


@cache
def _version() -> str:
    try:
        return version("onepass")
    except PackageNotFoundError:  # run from its source
        return "unknown"


def place(start: bytes | bytearray, where: str) -> int:
    """Where the 64 digits of the digest belong.

    Parameters
    ----------
    start : bytes
        Of a file: its header at least.
    where : str
        The file, for messages.
    """
    size = int.from_bytes(start[:8], "little")
    if size > _LARGEST_HEADER:
        raise CheckpointError(
            f"{where}: all text and plain values together must take at most "
            f"{_LARGEST_HEADER:,} bytes, got {size:,}. Limit the number of categories, or "
            "keep numbers in arrays."
        )
    return start.index(_DIGEST_KEY) + len(_DIGEST_KEY)


def readable(start: bytes, whole: int, where: str) -> int:
    """The length of the header, if these can be bytes of ours.

    Parameters
    ----------
    start : bytes
        The first nine.
    whole : int
        How many there are.
    where : str
        Where they stand, for messages.

    Raises
    ------
    CheckpointError
        If they cannot be.
    """
    if start[:8] == _SQLITE:
        raise CheckpointError(
            f"{where}: must be a model file, got a database, which a learner may have that is "
            "served. Open it with op.durable, or serve the folder in which it stands."
        )
    size = int.from_bytes(start[:8], "little")
    if not 2 <= size <= min(whole - 8, _LARGEST_HEADER):
        raise damaged(where, "its header is cut short, or it is of another program")
    if start[8:] != b"{":
        raise damaged(where, "it has no header, or it is of another program")
    return size


def _digest(data: bytes, header: bytes) -> str:
    """The digest of a file whose own digest is taken as zeros."""
    at = 8 + header.find(_DIGEST_KEY) + len(_DIGEST_KEY)
    digest = hashlib.sha256(memoryview(data)[:at])
    digest.update(_NO_DIGEST.encode("ascii"))
    digest.update(memoryview(data)[at + len(_NO_DIGEST) :])
    return digest.hexdigest()


def _record(header: bytes, where: str) -> dict[str, Any]:
    """What the header says, of a format that this version reads."""
    outer = _json(header, where)
    inner = outer.get("__metadata__") if type(outer) is dict else None
    if type(inner) is not dict or type(inner.get("onepass")) is not str:
        raise CheckpointError(
            f"{where}: must be a file that onepass wrote, got a safetensors file without its "
            "header. Load it with the program that wrote it."
        )
    record = _json(inner["onepass"], where)
    if type(record) is not dict or type(record.get("format")) is not int:
        raise damaged(where, "it does not say its format")
    if record["format"] > FORMAT:
        raise CheckpointError(
            f"{where} is format {record['format']}; this version reads up to {FORMAT}. "
            "Upgrade onepass."
        )
    fields = {name: type(value) for name, value in record.items() if name != "tree"}
    if fields != _FIELDS or "tree" not in record or record["format"] < 1:
        raise damaged(where, "its header has other fields than those of its format")
    return record


def _json(text: str | bytes, where: str) -> Any:
    """What JSON says; nan, infinity and a key that stands twice are no JSON."""
    try:
        return json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as wrong:
        raise damaged(where, f"its header is no JSON: {wrong}") from wrong


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) < len(pairs):
        raise ValueError("a key stands twice")
    return items


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _arrays(data: bytes, where: str) -> dict[str, Array]:
    try:
        arrays: dict[str, Array] = arrays_of(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as wrong:
        raise damaged(where, f"its arrays cannot be read: {wrong}") from wrong
    return arrays
