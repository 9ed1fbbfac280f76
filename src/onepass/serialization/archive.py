"""A tree of plain values and arrays in one safetensors file, with a checksum.

Any safetensors reader can open the file; the names of the arrays are their paths in the tree, such
as ``memory_.Q``. A tree is None, a boolean, an integer of any size, a float, text, an array, or a
list, tuple or dict (with text keys) of trees. Values that JSON does not have are encoded as objects
with the key ``"$"``:

================================================================ ==================================
``{"$": "float", "value": "nan"}``                               nan, inf, -inf
``{"$": "int", "value": "0x1f…"}``                               an integer of more than 64 bits
``{"$": "tuple", "items": […]}``                                 a tuple
``{"$": "dict", "items": {…}}``                                  a dict that has the key ``"$"``
``{"$": "array", "name": "coef_"}``                              the array of that name
``{…, "dtype": "datetime64[us]"}``                               array of dates, stored as int64
``{…, "dtype": "<U5"}``                                          array of text, stored as uint32
``{…, "axes": [1, 0]}``                                          array with axes sorted by stride
``{"$": "scalar", "of": {"$": "array", …}}``                     one date
``{"$": "objects", "shape": [2], "items": ["a", null]}``         an array of Python objects
================================================================ ==================================

The memory layout of arrays is preserved, because BLAS rounds differently for row and column order,
and a loaded learner must be bit for bit equivalent to the saved one.

The file metadata has one key, ``onepass``, whose value is JSON text::

    {"sha256": "…", "format": 1, "version": "0.1.0", "kind": "learner", "tree": …}

with ``tree`` as above. ``sha256`` is the digest of all bytes (header, padding and data), in which
the 64 digits of the digest itself are zeros. It detects accidental damage, but does not protect
against forgery. Therefore the reader validates everything and runs no code, and its memory use is
proportional to the actual size of the file, whatever the header states.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save as bytes_of
from safetensors.numpy import save_file

from onepass.errors import CheckpointError
from onepass.serialization.atomic import atomic_write
from onepass.types import Array

DEPTH = 100
"""Maximum depth of a tree."""

_DATE = re.compile(r"datetime64(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_TEXT = re.compile(r"<U([1-9]\d{0,8})")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_PLAIN = (type(None), bool, int, float, str)
_LARGEST_CODE = 0x10FFFF  # largest code point of Unicode


def split(tree: object, where: str) -> tuple[Any, dict[str, Array]]:
    """Split a tree into JSON values and named arrays.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        NumPy scalars become Python scalars.
    where : str
        The file, for messages.

    Returns
    -------
    encoded : None, bool, int, float, str, list or dict
        JSON values; all floats are finite.
    arrays : dict of str to ndarray
        Contiguous, little-endian, of numbers or booleans.

    Raises
    ------
    CheckpointError
        If the tree contains another type, or is deeper than ``DEPTH``.

    Examples
    --------
    >>> encoded, arrays = split({"scale": (2, math.inf), "w": np.ones(3)}, "m.onepass")
    >>> encoded["scale"]
    {'$': 'tuple', 'items': [2, {'$': 'float', 'value': 'inf'}]}
    >>> float(join(encoded, arrays, "m.onepass")["w"].sum())
    3.0
    """
    splitter = _Splitter(where)
    return splitter.encode(tree, ()), splitter.arrays


def join(encoded: object, arrays: Mapping[str, Array], where: str) -> Any:
    """Restore the tree from the result of ``split``.

    Raises
    ------
    CheckpointError
        If the arguments are not a result of ``split``. Memory use is proportional to their size.
    """
    joiner = _Joiner(arrays, where)
    tree = joiner.decode(encoded, ())
    for name in arrays.keys() - joiner.used:
        raise damaged(where, f"the array {name!r} is not used")
    return tree


def damaged(where: str, problem: str) -> CheckpointError:
    """Create the error for a damaged file."""
    return CheckpointError(
        f"must be an intact file of onepass, got a damaged one: {problem}. Load "
        "another copy, or save the file again.",
        where,
    )


class _Splitter:
    """Encodes a tree as JSON values and collects its arrays."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.arrays: dict[str, Array] = {}

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        if len(path) > DEPTH:
            raise self.error(
                path[:3], f"a tree of more than {DEPTH} levels, perhaps with a circular reference"
            )
        if isinstance(value, np.datetime64):
            return {"$": "scalar", "of": self.array(np.asarray(value), path)}
        if isinstance(value, np.generic):
            value = value.item()
        kind = type(value)
        if kind in _PLAIN:
            return _plain(value)
        if kind is list:
            return [self.encode(part, (*path, str(i))) for i, part in enumerate(value)]
        if kind is tuple:
            return {"$": "tuple", "items": self.encode(list(value), path)}
        if kind is dict:
            return self.mapping(value, path)
        if kind is np.ndarray:
            return self.objects(value, path) if value.dtype.kind == "O" else self.array(value, path)
        raise self.error(path, kind.__name__)

    def mapping(self, value: dict[str, object], path: tuple[str, ...]) -> dict[str, Any]:
        for key in (key for key in value if type(key) is not str):
            raise self.error(path, f"a dict with the key {key!r}")
        items = {key: self.encode(part, (*path, key)) for key, part in value.items()}
        return {"$": "dict", "items": items} if "$" in value else items

    def array(self, array: Array, path: tuple[str, ...]) -> dict[str, Any]:
        tag: dict[str, Any] = {"$": "array", "name": self.name(path)}
        kind = array.dtype.kind
        if kind not in "biufMU" or (kind == "f" and array.dtype.itemsize > 8):
            raise self.error(path, f"an array of {array.dtype}")
        axes = _axes(array)
        if axes != list(range(array.ndim)):
            tag["axes"] = axes
            array = array.transpose(axes)
        array = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        if kind == "M":
            tag["dtype"] = str(array.dtype)
            array = array.view(np.int64)
        elif kind == "U":
            width = array.dtype.itemsize // 4
            tag["dtype"] = f"<U{width}"
            array = array.reshape(-1).view(np.uint32).reshape(*array.shape, width)
        self.arrays[tag["name"]] = array
        return tag

    def objects(self, array: Array, path: tuple[str, ...]) -> dict[str, Any]:
        values = [v.item() if isinstance(v, np.generic) else v for v in array.ravel().tolist()]
        for odd in (type(v).__name__ for v in values if type(v) not in _PLAIN):
            raise self.error(path, f"an array that contains a {odd}")
        return {"$": "objects", "shape": list(array.shape), "items": [_plain(v) for v in values]}

    def name(self, path: tuple[str, ...]) -> str:
        """Convert a path in the tree to a unique name; duplicates receive primes."""
        name = ".".join(path).encode("utf-8", "backslashreplace").decode("utf-8")
        while name in self.arrays or name in {"", "__metadata__"}:
            name += "'"
        return name

    def error(self, path: tuple[str, ...], given: str) -> CheckpointError:
        place = f"`{'.'.join(path)}`" if path else "the saved object"
        return CheckpointError(
            f"{place} must be None, a boolean, a number, text, an array of numbers, "
            "text or dates, or a list, tuple or dict (with text keys) of these, got "
            f"{given}. Convert or remove it.",
            self.where,
        )


class _Joiner:
    """Decodes JSON values and arrays to a tree."""

    def __init__(self, arrays: Mapping[str, Array], where: str) -> None:
        self.arrays = arrays
        self.where = where
        self.used: set[str] = set()

    def decode(self, value: object, path: tuple[str, ...]) -> Any:
        if len(path) > DEPTH:
            raise damaged(self.where, f"more than {DEPTH} levels")
        if type(value) is list:
            return [self.decode(part, (*path, str(i))) for i, part in enumerate(value)]
        if type(value) is not dict:
            return value
        if "$" not in value:
            return {key: self.decode(part, (*path, key)) for key, part in value.items()}
        try:
            return self.tagged(value, path)
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(self.where, f"`{'.'.join(path)}` is not a valid value") from error

    def tagged(self, state: dict[str, Any], path: tuple[str, ...]) -> Any:
        """Decode an object with the key ``"$"``; any plain error means that it is invalid."""
        fields = dict(state)
        match fields.pop("$"):
            case "float":
                value: Any = _NOT_FINITE[_only(fields, "value")]
            case "int":
                value = int(_only(fields, "value"), 16)
            case "tuple":
                value = tuple(self.decode(_of(list, _only(fields, "items")), path))
            case "dict":
                items = _of(dict, _only(fields, "items")).items()
                value = {key: self.decode(part, (*path, key)) for key, part in items}
            case "array":
                value = self.array(**fields)
            case "scalar":
                value = self.decode(_only(fields, "of"), path)[()]
            case "objects":
                value = self.objects(path, **fields)
            case unknown:
                raise KeyError(unknown)
        return value

    def array(self, *, name: str, dtype: str | None = None, axes: list[int] | None = None) -> Array:
        if name in self.used:
            raise ValueError(name)
        array = self.arrays[name]
        self.used.add(name)
        if array.dtype == np.bool_ and array.size and int(array.view(np.uint8).max()) > 1:
            raise ValueError(name)
        if dtype is not None:
            array = _retyped(array, dtype)
        if axes is None:
            return array
        if sorted(_of(int, a) for a in _of(list, axes)) != list(range(array.ndim)):
            raise ValueError(axes)
        return array.transpose(np.argsort(axes))

    def objects(self, path: tuple[str, ...], *, shape: list[int], items: list[object]) -> Array:
        values = [self.decode(item, path) for item in items]
        if any(type(v) not in _PLAIN for v in values):
            raise TypeError(items)
        if any(_of(int, k) < 0 for k in _of(list, shape)):
            raise ValueError(shape)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)


def _plain(value: object) -> Any:
    """Encode one scalar for JSON."""
    if type(value) is float and not math.isfinite(value):
        return {"$": "float", "value": repr(value)}
    if type(value) is int and not -(2**63) <= value < 2**64:
        return {"$": "int", "value": hex(value)}
    return value


def _axes(array: Array) -> list[int]:
    """Return the axes in order of decreasing stride."""
    if array.flags.c_contiguous:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))


def _retyped(array: Array, dtype: str) -> Array:
    """View an array of integers as dates or text."""
    text = _TEXT.fullmatch(dtype)
    if text is None:
        if not _DATE.fullmatch(dtype) or array.dtype != np.int64:
            raise ValueError(dtype)
        return array.view(dtype)
    width = int(text[1])
    if array.dtype != np.uint32 or array.ndim == 0 or array.shape[-1] != width:
        raise ValueError(dtype)
    if array.size and int(array.max()) > _LARGEST_CODE:
        raise ValueError(dtype)
    return array.reshape(-1).view(f"<U{width}").reshape(array.shape[:-1])


def _only(fields: dict[str, object], name: str) -> Any:
    """Return the value of a single field; raise if there are other fields."""
    if set(fields) != {name}:
        raise KeyError(name)
    return fields[name]


def _of(kind: type, value: object) -> Any:
    """Check that a value has exactly this type, and return it."""
    if type(value) is not kind:
        raise TypeError(kind)
    return value


FORMAT = 1
"""Version of the format that is written, and the newest that can be read."""

_LARGEST_HEADER = 100_000_000  # bytes; the limit of safetensors
_NO_DIGEST = "0" * 64
_DIGEST_KEY = rb"\"sha256\":\""  # escaped, as JSON within JSON
_SQLITE = b"SQLite f"  # the first bytes of a database
_FIELDS = {"sha256": str, "format": int, "version": str, "kind": str}


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """The tree and the metadata of a file.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        The stored tree.
    kind : str
        The kind of content, such as ``"learner"``.
    format : int
        The version of the format.
    version : str
        The version of onepass that wrote it.
    sha256 : str
        The digest, 64 hexadecimal digits; equal trees of one version have equal digests.
    nbytes : int
        The size of the file in bytes.
    """

    tree: Any
    kind: str
    format: int
    version: str
    sha256: str
    nbytes: int


def dumps(tree: object, where: str, *, kind: str = "tree") -> bytes:
    """Serialise a tree to the bytes that :func:`write` writes to a file.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
    where : str
        The destination, for messages.
    kind : str, default "tree"
        The kind of content.

    Raises
    ------
    CheckpointError
        If the tree contains another type.
    """
    metadata, arrays = to_safetensors(tree, kind, where)
    data = bytes_of(arrays, metadata=metadata)
    at = digest_offset(data, where)
    digest = hashlib.sha256(data).hexdigest().encode("ascii")
    rest = memoryview(data)[at + len(_NO_DIGEST) :]
    return b"".join((data[:at], digest, rest))  # one copy


def loads(data: bytes, where: str) -> Contents:
    """Read a tree and its metadata from bytes.

    Parameters
    ----------
    data : bytes
        From any source, trusted or not.
    where : str
        The source, for messages.

    Raises
    ------
    CheckpointError
        If the bytes are damaged, or of a newer format.
    """
    header = data[8 : 8 + header_size(data[:9], len(data), where)]
    record = _record(header, where)
    if _digest(data, header) != record["sha256"]:
        raise damaged(where, "its checksum does not match")
    tree = join(record.pop("tree"), _arrays(data, where), where)
    return Contents(tree=tree, nbytes=len(data), **record)


def to_safetensors(tree: object, kind: str, where: str) -> tuple[dict[str, str], dict[str, Array]]:
    """Return the metadata and arrays of a file, with a digest of zeros.

    Parameters
    ----------
    tree, kind, where
        As in :func:`dumps`.
    """
    encoded, arrays = split(tree, where)
    record = {
        "sha256": _NO_DIGEST,
        "format": FORMAT,
        "version": _version(),
        "kind": kind,
    }
    text = json.dumps({**record, "tree": encoded}, allow_nan=False, separators=(",", ":"))
    return {"onepass": text}, arrays


@cache
def _version() -> str:
    """Return the installed version of onepass."""
    try:
        return version("onepass")
    except PackageNotFoundError:  # not installed
        return "unknown"


def digest_offset(start: bytes | bytearray, where: str) -> int:
    """Return the offset of the 64 digits of the digest.

    Parameters
    ----------
    start : bytes
        The first bytes of a file, including the whole header.
    where : str
        The file, for messages.
    """
    size = int.from_bytes(start[:8], "little")
    if size > _LARGEST_HEADER:
        raise CheckpointError(
            f"all text and scalars together must take at most {_LARGEST_HEADER:,} bytes, got "
            f"{size:,}. Limit the number of categories, or store numbers in arrays.",
            where,
        )
    return start.index(_DIGEST_KEY) + len(_DIGEST_KEY)


def header_size(start: bytes, total: int, where: str) -> int:
    """Check the first bytes of a file, and return the length of its header.

    Parameters
    ----------
    start : bytes
        The first nine bytes.
    total : int
        The total number of bytes.
    where : str
        The source, for messages.

    Raises
    ------
    CheckpointError
        If the bytes are not the beginning of a file of onepass.
    """
    if start[:8] == _SQLITE:
        raise CheckpointError(
            "must be a model file, got a database, perhaps of a durable learner. Open "
            "it with op.durable, or serve its folder with `onepass serve`.",
            where,
        )
    size = int.from_bytes(start[:8], "little")
    if not 2 <= size <= min(total - 8, _LARGEST_HEADER) or start[8:] != b"{":
        raise damaged(where, "its header is truncated, or another program wrote it")
    return size


def _digest(data: bytes, header: bytes) -> str:
    """Compute the digest of a file, with zeros in place of the stored digest."""
    at = 8 + header.find(_DIGEST_KEY) + len(_DIGEST_KEY)
    digest = hashlib.sha256(memoryview(data)[:at])
    digest.update(_NO_DIGEST.encode("ascii"))
    digest.update(memoryview(data)[at + len(_NO_DIGEST) :])
    return digest.hexdigest()


def _record(header: bytes, where: str) -> dict[str, Any]:
    """Return the metadata of a file; raise if its format is invalid or too new."""
    outer = _json(header, where)
    inner = outer.get("__metadata__") if type(outer) is dict else None
    if type(inner) is not dict or type(inner.get("onepass")) is not str:
        raise CheckpointError(
            "must be a file of onepass, got a safetensors file without its metadata. "
            "Load it with the program that wrote it.",
            where,
        )
    record = _json(inner["onepass"], where)
    if type(record) is not dict or type(record.get("format")) is not int:
        raise damaged(where, "its format version is missing")
    if record["format"] > FORMAT:
        raise CheckpointError(
            f"must have format version {FORMAT} or lower, got {record['format']}. Upgrade onepass.",
            where,
        )
    fields = {name: type(value) for name, value in record.items() if name != "tree"}
    if fields != _FIELDS or "tree" not in record or record["format"] < 1:
        raise damaged(where, "its header has missing or unexpected fields")
    return record


def _json(text: str | bytes, where: str) -> Any:
    """Parse JSON; raise for NaN, infinity and duplicate keys."""
    try:
        return json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            object_pairs_hook=_unique,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"its header is not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    """Convert pairs to a dict; raise for duplicate keys."""
    items = dict(pairs)
    if len(items) < len(pairs):
        raise ValueError("a key is repeated")
    return items


def _finite(text: str) -> float:
    """Parse a finite float."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _arrays(data: bytes, where: str) -> dict[str, Array]:
    """Return the arrays of a file, by name."""
    try:
        arrays: dict[str, Array] = arrays_of(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise damaged(where, f"its arrays cannot be read: {error}") from error
    return arrays


def write(path: str | os.PathLike[str], tree: object, *, kind: str = "tree") -> None:
    """Write a tree to a file atomically, replacing an existing file.

    Parameters
    ----------
    path : path-like
        The file; its directory must exist.
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        The tree.
    kind : str, default "tree"
        The kind of content; :func:`read` can check it.

    Raises
    ------
    CheckpointError
        If the tree contains another type, or the file cannot be written; an existing file remains
        unchanged.

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
    metadata, arrays = to_safetensors(tree, kind, where)
    try:
        with atomic_write(path) as temporary:
            save_file(arrays, temporary, metadata=metadata)
            _write_digest(temporary, where)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"must be a file that can be written, got: {error}. An existing file is "
            "unchanged. Check the path, its permissions and the free disk space.",
            where,
        ) from error


def read(path: str | os.PathLike[str], *, kind: str | None = None) -> Any:
    """Read a tree from a file.

    Parameters
    ----------
    path : path-like
        The file.
    kind : str, optional
        The expected kind of content; any kind by default.

    Returns
    -------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        The tree. Arrays are writable copies.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of a newer format or of another kind.
    """
    found = contents(path)
    if kind is not None and found.kind != kind:
        raise CheckpointError(
            f"must contain a {kind}, got a {found.kind}. Choose another file.", os.fspath(path)
        )
    return found.tree


def contents(path: str | os.PathLike[str]) -> Contents:
    """Read a tree and its metadata from a file.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged or of a newer format.
    """
    where = os.fspath(path)
    try:
        data = _bytes(Path(path), where)
    except OSError as error:
        raise CheckpointError(
            f"must be a file that can be read, got: {error.strerror}. Check the path.", where
        ) from error
    return loads(data, where)


def _write_digest(path: Path, where: str) -> None:
    """Write the digest of a file into its header."""
    with path.open("r+b") as file:
        size = file.read(8)
        at = digest_offset(size + file.read(int.from_bytes(size, "little")), where)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(at)
        file.write(digest.encode("ascii"))


def _bytes(path: Path, where: str) -> bytes:
    """Check type, size and first bytes of a file, then read it."""
    if not stat.S_ISREG(path.stat().st_mode):  # before opening, because opening a pipe blocks
        raise CheckpointError(
            "must be a file, got a directory or a device. Pass the path of a file that "
            "onepass wrote.",
            where,
        )
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        header_size(file.read(9), total, where)
        file.seek(0)
        return file.read()
