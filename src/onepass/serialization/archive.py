"""A tree of plain values and arrays in one safetensors file, with a checksum.

Any safetensors reader can open the file and finds the arrays under their place in the tree. A tree
is None, a truth value, a whole number of any size, a float, text, or an array, or a list, tuple or
dict (with text for keys) of trees. What JSON cannot say is an object with the key ``"$"``:

================================================================ ==================================
``{"$": "float", "value": "nan"}``                               nan, inf, -inf
``{"$": "int", "value": "0x1f…"}``                               a whole number beyond 64 bits
``{"$": "tuple", "items": […]}``                                 a tuple
``{"$": "dict", "items": {…}}``                                  a dict that has the key ``"$"``
``{"$": "array", "name": "coef_"}``                              the array of that name
``{…, "dtype": "datetime64[us]"}``                               dates, kept as int64
``{…, "dtype": "<U5"}``                                          text of fixed width, as uint32
``{…, "axes": [1, 0]}``                                          its axes in order of their strides
``{"$": "scalar", "of": {"$": "array", …}}``                     one date
``{"$": "objects", "shape": [2], "items": ["a", null]}``         an array of Python's values
================================================================ ==================================

The order of the axes in memory is kept, because BLAS rounds differently for rows and columns: a
learner that goes on after loading must go on to the last bit.
An array's name is its place in the tree, such as ``memory_.Q``.

The metadata of the file have JSON under the one key ``onepass``::

    {"sha256": "…", "format": 1, "version": "0.1.0", "kind": "learner", "tree": …}

with ``tree`` as above. ``sha256`` is of all bytes (header, padding and data), its own 64 digits
taken as zeros. It guards against accidents; whoever forges bytes forges the digest too, and so
nothing else is trusted: reading runs no code, and takes memory in proportion to what there is,
whatever the header claims.
"""

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

__all__ = [
    "DEPTH",
    "FORMAT",
    "FORMATS",
    "Contents",
    "contents",
    "damaged",
    "divided",
    "dumps",
    "join",
    "loads",
    "place",
    "read",
    "readable",
    "split",
    "write",
]


DEPTH = 100
"""How deep a tree may be; deeper is a circle, or an attack."""

_DATE = re.compile(r"datetime64(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_TEXT = re.compile(r"<U([1-9]\d{0,8})")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_PLAIN = (type(None), bool, int, float, str)
_LARGEST_CODE = 0x10FFFF  # of Unicode


def split(tree: object, where: str) -> tuple[Any, dict[str, Array]]:
    """A tree as what JSON can say, and its arrays by name.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        NumPy's scalars become Python's.
    where : str
        The file, for messages.

    Returns
    -------
    said : None, bool, int, float, str, list or dict
        Floats in it are finite.
    arrays : dict of str to ndarray
        Contiguous, little-endian, of numbers or truth values.

    Raises
    ------
    CheckpointError
        If the tree holds anything else, or is deeper than ``DEPTH``.

    Examples
    --------
    >>> said, arrays = split({"scale": (2, math.inf), "w": np.ones(3)}, "m.onepass")
    >>> said["scale"]
    {'$': 'tuple', 'items': [2, {'$': 'float', 'value': 'inf'}]}
    >>> float(join(said, arrays, "m.onepass")["w"].sum())
    3.0
    """
    splitter = _Splitter(where)
    return splitter.encode(tree, ()), splitter.arrays


def join(said: object, arrays: Mapping[str, Array], where: str) -> Any:
    """The tree that ``split`` took apart.

    Raises
    ------
    CheckpointError
        If this is not something that ``split`` gives. Nothing is allocated beyond the size of
        what is passed.
    """
    joiner = _Joiner(arrays, where)
    tree = joiner.decode(said, ())
    for name in arrays.keys() - joiner.used:
        raise damaged(where, f"nothing refers to the array {name!r}")
    return tree


def damaged(where: str, found: str) -> CheckpointError:
    """The error for a file that is not as it was written."""
    return CheckpointError(
        f"{where}: must be a file as onepass wrote it, got a damaged one: {found}. "
        "Load another copy, or save it again."
    )


class _Splitter:
    def __init__(self, where: str) -> None:
        self.where = where
        self.arrays: dict[str, Array] = {}

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        if len(path) > DEPTH:
            raise self.refusal(path[:3], f"more than {DEPTH} levels, perhaps a circle")
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
        raise self.refusal(path, kind.__name__)

    def mapping(self, value: dict[str, object], path: tuple[str, ...]) -> dict[str, Any]:
        for key in (key for key in value if type(key) is not str):
            raise self.refusal(path, f"a dict with the key {key!r}")
        items = {key: self.encode(part, (*path, key)) for key, part in value.items()}
        return {"$": "dict", "items": items} if "$" in value else items

    def array(self, array: Array, path: tuple[str, ...]) -> dict[str, Any]:
        tag: dict[str, Any] = {"$": "array", "name": self.name(path)}
        kind = array.dtype.kind
        if kind not in "biufMU" or (kind == "f" and array.dtype.itemsize > 8):
            raise self.refusal(path, f"an array of {array.dtype}")
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
            raise self.refusal(path, f"an array with a {odd} in it")
        return {"$": "objects", "shape": list(array.shape), "items": [_plain(v) for v in values]}

    def name(self, path: tuple[str, ...]) -> str:
        """The place in the tree as a name; a prime where two places read the same."""
        name = ".".join(path).encode("utf-8", "backslashreplace").decode("utf-8")
        while name in self.arrays or name in {"", "__metadata__"}:
            name += "'"
        return name

    def refusal(self, path: tuple[str, ...], came: str) -> CheckpointError:
        place = f"`{'.'.join(path)}`" if path else "what is saved"
        return CheckpointError(
            f"{self.where}: {place} must be None, a truth value, a number, text, an array of "
            "numbers, text or dates, or a list, tuple or dict (with text for keys) of these, "
            f"got {came}. Convert it, or leave it out."
        )


class _Joiner:
    def __init__(self, arrays: Mapping[str, Array], where: str) -> None:
        self.arrays = arrays
        self.where = where
        self.used: set[str] = set()

    def decode(self, said: object, path: tuple[str, ...]) -> Any:
        if len(path) > DEPTH:
            raise damaged(self.where, f"more than {DEPTH} levels")
        if type(said) is list:
            return [self.decode(part, (*path, str(i))) for i, part in enumerate(said)]
        if type(said) is not dict:
            return said
        if "$" not in said:
            return {key: self.decode(part, (*path, key)) for key, part in said.items()}
        try:
            return self.tagged(said, path)
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as wrong:
            raise damaged(self.where, f"`{'.'.join(path)}` is no value it knows") from wrong

    def tagged(self, state: dict[str, Any], path: tuple[str, ...]) -> Any:
        """A value that JSON cannot say; whatever it raises means that it is none."""
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
    """One plain value as JSON can say it."""
    if type(value) is float and not math.isfinite(value):
        return {"$": "float", "value": repr(value)}
    if type(value) is int and not -(2**63) <= value < 2**64:
        return {"$": "int", "value": hex(value)}
    return value


def _axes(array: Array) -> list[int]:
    """The axes from the one with the longest stride to the one with the shortest."""
    if array.flags.c_contiguous:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))


def _retyped(array: Array, dtype: str) -> Array:
    """Whole numbers as the dates or the text that they stand for."""
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
    """The one field that there is, which must have this name."""
    if set(fields) != {name}:
        raise KeyError(name)
    return fields[name]


def _of(kind: type, value: object) -> Any:
    """A value, which must be of exactly this type."""
    if type(value) is not kind:
        raise TypeError(kind)
    return value


FORMAT = 1
"""The newest format that this version reads, and the one that it writes."""
FORMATS = {"run": 2}
"""The same for kinds whose format is another."""

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


def dumps(tree: object, where: str, *, kind: str = "tree") -> bytes:
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


def loads(data: bytes, where: str) -> Contents:
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


def divided(tree: object, kind: str, where: str) -> tuple[dict[str, str], dict[str, Array]]:
    """A tree as the metadata and the arrays of a file, whose digest is to come.

    Parameters
    ----------
    tree, kind, where
        As for :func:`dumps`.
    """
    said, arrays = split(tree, where)
    record = {
        "sha256": _NO_DIGEST,
        "format": FORMATS.get(kind, FORMAT),
        "version": _version(),
        "kind": kind,
    }
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
    newest = FORMATS.get(str(record.get("kind")), FORMAT)
    if record["format"] > newest:
        raise CheckpointError(
            f"{where} is format {record['format']}; this version reads up to {newest}. "
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
            parse_constant=_finite,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as wrong:
        raise damaged(where, f"its header is no JSON: {wrong}") from wrong


def _unique(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) < len(pairs):
        raise ValueError("a key stands twice")
    return items


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _arrays(data: bytes, where: str) -> dict[str, Array]:
    try:
        arrays: dict[str, Array] = arrays_of(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as wrong:
        raise damaged(where, f"its arrays cannot be read: {wrong}") from wrong
    return arrays


def write(path: str | os.PathLike[str], tree: object, *, kind: str = "tree") -> None:
    """Write a tree to a file, in place of what was there, whole or not at all.

    Parameters
    ----------
    path : path-like
        The file; its directory must exist.
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        What :func:`onepass.serialization.archive.split` takes.
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
    metadata, arrays = divided(tree, kind, where)
    try:
        with atomic_write(path) as temporary:
            save_file(arrays, temporary, metadata=metadata)
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
        data = _bytes(Path(path), where)
    except OSError as failed:
        raise CheckpointError(
            f"{where}: must be a file that can be read, got: {failed.strerror}. Check the path."
        ) from failed
    return loads(data, where)


def _seal(path: Path, where: str) -> None:
    """Put the digest of the whole file into its place."""
    with path.open("r+b") as file:
        size = file.read(8)
        at = place(size + file.read(int.from_bytes(size, "little")), where)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(at)
        file.write(digest.encode("ascii"))


def _bytes(path: Path, where: str) -> bytes:
    """A whole file; refused before it is read if it cannot be one of ours."""
    if not stat.S_ISREG(path.stat().st_mode):  # before opening: to open a pipe is to wait
        raise CheckpointError(
            f"{where}: must be a file, got a directory or a device. Give the path of a file that "
            "onepass wrote."
        )
    with path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        readable(file.read(9), whole, where)
        file.seek(0)
        return file.read()
