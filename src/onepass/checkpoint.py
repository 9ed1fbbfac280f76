r"""Checkpoint: a tree of plain values and arrays in one safetensors file.

Any safetensors reader can open the file and sees the arrays by their place in the tree. The rest
is JSON in the file's metadata, under the one key ``onepass``::

    {"sha256": "…", "format": 1, "version": "0.1.0", "kind": "learner", "tree": …}

with ``tree`` as in :mod:`onepass.tree`. ``sha256`` is of the whole file, its own 64 digits taken
as zeros, so that no byte can change unnoticed: header, padding or data. It guards against
accidents; whoever forges a file forges its digest too, and so nothing else is trusted: reading
runs no code, and takes memory in proportion to the file's size, whatever its header claims.
"""

import hashlib
import json
import math
import os
import stat
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save_file

from onepass.durable import replacing
from onepass.errors import CheckpointError
from onepass.tree import damaged, join, split
from onepass.types import Array

__all__ = ["FORMAT", "Contents", "contents", "read", "write"]

FORMAT = 1
"""The newest format of files that this version reads, and the one that it writes."""

_LARGEST_HEADER = 100_000_000  # bytes; safetensors' own limit
_NO_DIGEST = "0" * 64
_DIGEST_KEY = rb"\"sha256\":\""  # as it stands in JSON within JSON
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


def write(path: str | os.PathLike[str], tree: Any, *, kind: str = "tree") -> None:
    """Write a tree to a file, in place of what was there, whole or not at all.

    Parameters
    ----------
    path : path-like
        The file; its directory must exist.
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        What :func:`onepass.tree.split` takes.
    kind : str, default "tree"
        What the tree means, to be asked for again when it is read.

    Raises
    ------
    CheckpointError
        If the tree holds anything else, or the file cannot be written; then it is as before.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write(f"{directory}/a.onepass", {"w": np.arange(4.0), "rows": 4})
    ...     tree = read(f"{directory}/a.onepass")
    >>> float(tree["w"].sum()) + tree["rows"]
    10.0
    """
    where = os.fspath(path)
    said, arrays = split(tree, where)
    record = {"sha256": _NO_DIGEST, "format": FORMAT, "version": _version(), "kind": kind}
    text = json.dumps({**record, "tree": said}, allow_nan=False, separators=(",", ":"))
    try:
        with replacing(path) as temporary:
            save_file(arrays, temporary, metadata={"onepass": text})
            _seal(temporary, where)
    except (OSError, SafetensorError) as failed:
        raise CheckpointError(
            f"{where}: must be a file that can be written, got: {failed}. What was there is "
            "unchanged; choose another place, or make room."
        ) from failed


def read(path: str | os.PathLike[str], *, kind: str | None = None) -> Any:
    """The tree that was written to a file.

    Parameters
    ----------
    path : path-like
        The file.
    kind : str, optional
        What the tree must mean; anything, if not given.

    Returns
    -------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        Its arrays are new and writable.

    Raises
    ------
    CheckpointError
        If there is no such file, or it is damaged, too new, or of another kind.
    """
    found = contents(path)
    if kind is not None and found.kind != kind:
        raise CheckpointError(
            f"{os.fspath(path)}: must hold a {kind}, got a {found.kind}. Choose another file."
        )
    return found.tree


def contents(path: str | os.PathLike[str]) -> Contents:
    """The tree that was written to a file, and what the file says of itself.

    Raises
    ------
    CheckpointError
        If there is no such file, or it is damaged or too new.
    """
    where = os.fspath(path)
    try:
        data, header = _bytes(Path(path), where)
    except OSError as failed:
        raise CheckpointError(
            f"{where}: must be a file that can be read, got: {failed.strerror}. Check the path."
        ) from failed
    record = _record(header, where)
    if _digest(data, header) != record["sha256"]:
        raise damaged(where, "its bytes are not those that were written")
    tree = join(record.pop("tree"), _arrays(data, where), where)
    return Contents(tree=tree, nbytes=len(data), **record)


def _version() -> str:
    try:
        return version("onepass")
    except PackageNotFoundError:  # run from its source
        return "unknown"


def _seal(path: Path, where: str) -> None:
    """Put the digest of the whole file into its place."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > _LARGEST_HEADER:
            raise CheckpointError(
                f"{where}: all text and plain values together must take at most "
                f"{_LARGEST_HEADER:,} bytes, got {size:,}. Limit the number of categories, or "
                "keep numbers in arrays."
            )
        at = 8 + file.read(size).index(_DIGEST_KEY) + len(_DIGEST_KEY)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(at)
        file.write(digest.encode("ascii"))


def _digest(data: bytes, header: bytes) -> str:
    """The digest of a file whose own digest is taken as zeros."""
    at = 8 + header.find(_DIGEST_KEY) + len(_DIGEST_KEY)
    digest = hashlib.sha256(memoryview(data)[:at])
    digest.update(_NO_DIGEST.encode("ascii"))
    digest.update(memoryview(data)[at + len(_NO_DIGEST) :])
    return digest.hexdigest()


def _bytes(path: Path, where: str) -> tuple[bytes, bytes]:
    """A whole file, and its header; refused before it is read if it cannot be one of ours."""
    if not stat.S_ISREG(path.stat().st_mode):  # before opening: to open a pipe is to wait
        raise CheckpointError(
            f"{where}: must be a file, got a directory or a device. Give the path of a file that "
            "onepass wrote."
        )
    with path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= min(whole - 8, _LARGEST_HEADER):
            raise damaged(where, "its header is cut short, or it is of another program")
        header = file.read(size)
        if not header.startswith(b"{"):
            raise damaged(where, "it has no header, or it is of another program")
        file.seek(0)
        return file.read(), header


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
