"""Requests to learn rows, and the blocks of rows that are learned and logged.

Several threads may send rows for one learner. Requests with the same columns are joined and learned
as one block; the log contains the blocks, so that replay learns exactly the same blocks. A block is
encoded as::

    length of the header, 4 bytes | header, JSON | arrays, one after the other

The header contains the number of rows and, for each array, its part, its column if it belongs to a
table, its dtype, its shape and its number of bytes. Arrays of Python objects are encoded as JSON.

The size of a block is checked before it is encoded: rows may share one text in memory, but each row
stores a copy, so a kilobyte in memory may become gigabytes on the disk.

The module also checks idempotency keys, source names and positions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from _thread import allocate_lock
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import (
    CorruptStoreError,
    ParameterError,
    ShapeError,
    StoreError,
    TypeMismatchError,
)
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation import matrix
from onepass.validation.rows import Rows
from onepass.validation.table import Table, TableLike, is_frame, to_column

_LENGTH = struct.Struct("<I")
_PARTS = ("y", "weight", "time")
_NAMES = {name: name for name in ("X", *_PARTS)}
_EXACT = 2**53  # float64 represents all integers up to this

_Field = tuple[str, str | None, str, tuple[int, ...], int]


def is_plain(rows: Rows) -> bool:
    """Whether rows consist of a float64 matrix and one float64 target per row."""
    X, y = rows.X, rows.y
    return (
        type(X) is np.ndarray
        and type(y) is np.ndarray
        and rows.weight is None
        and rows.time is None
        and X.dtype == y.dtype == np.float64
        and X.ndim == 2
        and y.shape == X.shape[:1]
    )


def layout(rows: Rows) -> tuple[object, ...]:
    """Return columns, dtypes and shapes; only rows of equal layout can be joined."""
    if is_plain(rows):
        return rows.X.shape[1:]  # type: ignore[no-any-return]
    return tuple(
        (
            part,
            column,
            array.dtype.str if part in {"X", "time"} else array.dtype.kind,
            array.shape[1:],
        )
        for part, column, array in _arrays(rows)
    )


def rows_digest(rows: Rows) -> bytes:
    """Return the digest of the values, independent of dtypes and the order of columns."""
    X = rows.X
    if isinstance(X, Table):
        X = Table({name: _canonical(X.columns[name]) for name in sorted(X.names)}, len(X))
    else:
        X = _canonical(X)
    given = rows.y, rows.weight, rows.time
    y, weight, time = (None if part is None else _canonical(part) for part in given)
    return hashlib.sha256(encode_rows(Rows(X, y, weight=weight, time=time))).digest()


def encode_rows(rows: Rows) -> bytes:
    """Encode rows for ``decode_rows``; equal rows have equal bytes.

    Raises
    ------
    TypeError
        If the rows contain values that JSON cannot represent.
    """
    if is_plain(rows):
        return b"".join((_plain_head(*rows.X.shape), rows.X.tobytes(), rows.y.tobytes()))
    fields: list[_Field] = []
    bodies: list[bytes] = []
    for part, column, array in _arrays(rows):
        plain = array.dtype.kind != "O"
        body = array.tobytes() if plain else json.dumps(array.tolist()).encode()
        fields.append((part, column, array.dtype.str, array.shape, len(body)))
        bodies.append(body)
    head = _block_header(len(rows), tuple(fields))
    return b"".join((head, *bodies))


def decode_rows(data: bytes, where: str) -> Rows:
    """Decode the result of ``encode_rows``; ``where`` is the file, for messages.

    Raises
    ------
    CorruptStoreError
        If the bytes are not encoded rows.
    """
    try:
        at = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        n, table, fields = json.loads(data[_LENGTH.size : at])
        columns: dict[str, Array] = {}
        parts: dict[str, Array] = {}
        for part, column, dtype, shape, size in fields:
            arrays, name = (parts, _NAMES[part]) if column is None else (columns, column)
            arrays[name] = _array(data[at : at + size], dtype, shape)
            at += size
        X = Table(columns, n) if table else parts.pop("X")
        return Rows(X, parts.get("y"), weight=parts.get("weight"), time=parts.get("time"))
    except (ValueError, TypeError, KeyError, struct.error) as error:
        raise CorruptStoreError(
            f"a block of the file is damaged: {error}. Restore the file from a backup.", where
        ) from error


def _arrays(rows: Rows) -> Iterator[tuple[str, str | None, Array]]:
    """Yield part, column and values of each array."""
    columns = rows.X.columns.items() if isinstance(rows.X, Table) else [(None, rows.X)]
    for name, column in columns:
        yield "X", name, column
    for part in _PARTS:
        if (array := getattr(rows, part)) is not None:
            yield part, None, array


def _canonical(array: Array) -> Array:
    """Convert values to a canonical dtype, for digests.

    Numbers become float64 and dates become microseconds, if the conversion is exact; text and mixed
    values become objects.
    """
    kind = array.dtype.kind
    if kind == "M":
        times = array.astype("datetime64[us]")
        return times if ((times == array) | np.isnat(array)).all() else array
    if kind in "biuf":
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float64)
        large = kind in "iu" and bool((np.abs(numbers) >= _EXACT).any())
        if not large or numbers.tolist() == array.tolist():  # Python compares int and float exactly
            return np.where(
                np.isnan(numbers), np.nan, numbers + 0.0
            )  # one bit pattern for nan, and 0 for -0
    values = np.empty(array.size, dtype=object)
    values[:] = [
        float(each) + 0.0 if isinstance(each, (int, float)) and abs(each) <= _EXACT else each
        for each in array.ravel().tolist()
    ]
    return values.reshape(array.shape)


@lru_cache(maxsize=256)
def _block_header(n: int, fields: tuple[_Field, ...]) -> bytes:
    """Encode the header with its length; cached, as many blocks have equal headers."""
    table = not any(part == "X" and column is None for part, column, *_ in fields)
    header = json.dumps([n, table, fields], separators=(",", ":")).encode()
    return _LENGTH.pack(len(header)) + header


@lru_cache(maxsize=256)
def _plain_head(n: int, d: int) -> bytes:
    dtype = np.dtype(np.float64).str
    return _block_header(
        n, (("X", None, dtype, (n, d), 8 * n * d), ("y", None, dtype, (n,), 8 * n))
    )


def _array(body: bytes, dtype: str, shape: list[int]) -> Array:
    if dtype == "|O":
        if math.prod(shape) > len(body):  # a value has at least one byte
            raise ValueError(f"{shape} values in {len(body)} bytes")
        array = np.empty(shape, dtype=object)
        values = json.loads(body)
        array[...] = values if array.ndim == 1 else np.array(values, dtype=object)
        return array
    if np.dtype(dtype).kind not in _KINDS:
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(body, dtype).reshape(shape).copy()


_ROWS = 4096  # max rows of a block that joins requests
_KINDS = "biufUM"  # kinds of dtypes that are stored as raw bytes


class LearnResult(NamedTuple):
    """The result of learning rows, which are on the disk."""

    version: int
    """Version of the learner that includes the rows: the number of blocks learned."""

    predictions: Array
    """Prequential predictions, of the shape of y: each row is predicted before it is learned."""

    repeated: bool = False
    """Whether the rows were learned before, by a request with the same key."""


@dataclass(slots=True, eq=False)
class Request:
    """Rows to learn, or to store until their labels arrive, and the result.

    Parameters
    ----------
    block : Rows
    body : bytes
        Encoded rows, if already known; otherwise empty.
    size : int
        Approximate size in bytes.
    keys : sequence of tuple[str, bytes]
        Idempotency key of the request, or of each row, with the digest of its content.
    source, position : str, optional
        Source of the rows, and the position after them.
    ids : sequence of str
        Ids of pending rows that this request stores, or learns from their labels.
    until : float
        Time at which pending rows expire.
    done : callable, optional
        Function that is called with the completed request.
    learn_result, error : LearnResult and exception, optional
        Result or error of a completed request.
    completed : bool
        Whether the request is completed.
    gate : lock
        Lock that is held until the request is completed.
    process : int
        Id of the process that completes the request.
    """

    block: Rows
    body: bytes = b""
    size: int = 0
    keys: Sequence[tuple[str, bytes]] = ()
    source: str | None = None
    position: str | None = None
    ids: Sequence[str] = ()
    until: float = 0.0
    done: Callable[[Request], None] | None = None
    learn_result: LearnResult | None = None
    error: BaseException | None = None
    completed: bool = False
    gate: Any = field(default_factory=allocate_lock)
    process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.gate.acquire()

    def wait(self) -> LearnResult:
        """Wait until the request is completed; return its result or raise its error."""
        if self.process != os.getpid():  # the gate is never released in a forked process
            return self.result()
        with self.gate:
            return self.result()

    def result(self) -> LearnResult:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        if not self.completed or self.learn_result is None:
            raise StoreError(
                f"the request must be completed by process {self.process}, which created it, got "
                f"an earlier call in process {os.getpid()}. Call `wait` in the process that "
                "created it, or send the rows again with the same key.",
                "Request.result",
            )
        return self.learn_result


def runs(requests: Sequence[Request]) -> list[list[Request]]:
    """Group consecutive requests that can be learned as one block.

    Parameters
    ----------
    requests : sequence of Request
        Requests in order. A request of a source is a separate block, as it has a position.
    """
    if len(requests) == 1:
        return [list(requests)]
    groups: list[list[Request]] = []
    run: list[Request] = []
    rows, before = 0, None
    for request in requests:
        size, own_layout = len(request.block), layout(request.block)
        separate = request.source is not None
        if not run or separate or own_layout != before or rows + size > _ROWS:
            run, rows = [], 0
            groups.append(run)
        run.append(request)
        rows += size
        before = None if separate else own_layout
    return groups


_NUMBERS = "biuf"
_MIXED = "OUM"  # dtypes of a matrix of text, dates or mixed values
_NUMBER_BYTES = 8  # bytes of a number
_PLAIN = (str, int, float, bool, type(None))


def read_rows(
    X: TableLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    time: TimeLike | None = None,
) -> Rows:
    """Copy rows, so that they share no memory with the caller's arrays.

    Only the learner checks whether the rows can be learned.

    Parameters
    ----------
    X : array-like of shape (n, …), frame, Table, or sequence of dicts
    y : array-like of shape (n,) or (n, c), or None
    sample_weight, time : array-like of shape (n,) or number, optional

    Raises
    ------
    ShapeError, TypeMismatchError
        If the rows are invalid, or ``y``, ``sample_weight`` or ``time`` has the wrong length.
    """
    rows = _rows(X)
    n = len(rows)
    return Rows(
        rows,
        None if y is None else _aligned(y, "y", n),
        weight=None if sample_weight is None else _aligned(sample_weight, "sample_weight", n),
        time=None if time is None else _aligned(time, "time", n),
    )


def check_labelled(y: object) -> None:
    """Check that rows to be learned have targets.

    Parameters
    ----------
    y : object

    Raises
    ------
    TypeMismatchError
    """
    if y is None:
        raise TypeMismatchError(
            "`y` must have a target for each row, got None. Pass the targets, or use "
            "`predict_pending` for rows whose labels arrive later."
        )


def _rows(X: Any) -> Any:
    if isinstance(X, Table):
        return Table({name: _column(column, name) for name, column in X.columns.items()}, X.n)
    if is_frame(X):
        return Table.from_frame(X)
    if isinstance(X, (list, tuple)) and (not X or isinstance(X[0], Mapping)):
        return Table.from_rows(X)
    array = _copied(X)
    if array.ndim < 2 or array.dtype.kind not in _NUMBERS + _MIXED:
        matrix(X)  # raises the error
    if array.dtype.kind not in _NUMBERS:
        if not isinstance(X, np.ndarray):  # NumPy would convert numbers beside text to text
            array = np.array(X, dtype=object)
        _check_plain(array, "X")
    elif array.dtype.itemsize > _NUMBER_BYTES:
        array = array.astype(np.float64)
    return array


def _column(values: Array, name: str) -> Array:
    """Copy a column, converted to a dtype that can be stored."""
    plain = values.dtype.kind in f"{_KINDS}O"
    return values.copy() if plain else to_column(values, name)


def _aligned(part: ArrayLike | TimeLike, name: str, n: int) -> Array:
    """Copy targets, weights or times to an array with one value per row."""
    array = _copied(part)
    if name == "y" and array.dtype.kind == "U" and isinstance(part, (list, tuple)):
        values = np.array(part, dtype=object)  # NumPy converts numbers beside text to text
        array = array if all(isinstance(v, str) for v in values.ravel().tolist()) else values
    if name == "time" and array.dtype.kind == "O":
        array = to_column(array, "time")
    if array.ndim == 0 and name != "y":
        array = np.full(n, array[()])
    if array.ndim == 0 or len(array) != n:
        got = f"the shape {array.shape}" if array.ndim else "no list of values of equal shape"
        raise ShapeError(
            f"`{name}` must have one value for each of {n} rows, got {got}. Pass as "
            "many values as rows."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > _NUMBER_BYTES:
        return array.astype(np.float64)
    if array.dtype.kind not in _KINDS:
        _check_plain(array, name)
    return array


def _copied(values: Any) -> Array:
    """Copy values to an array in C order; tensors and masked arrays are converted."""
    if type(values) not in {np.ndarray, list}:
        if hasattr(values, "detach"):  # a tensor
            values = values.detach().cpu().numpy()
        if np.ma.is_masked(values):
            dtype, missing = (float, np.nan) if values.dtype.kind in _NUMBERS else (object, None)
            values = values.astype(dtype).filled(missing)
    try:
        return np.array(values, order="C", copy=True)
    except ValueError:  # rows of different lengths
        return np.empty((), dtype=object)


def _check_plain(array: Array, name: str) -> None:
    """Check that values can be stored."""
    if array.dtype.kind in _KINDS:
        return
    invalid = next((v for v in array.ravel().tolist() if not isinstance(v, _PLAIN)), None)
    if invalid is not None or array.dtype.kind != "O":
        got = type(invalid).__name__ if array.dtype.kind == "O" else str(array.dtype)
        raise TypeMismatchError(
            f"`{name}` must contain numbers or text, got {got}. Convert the values, or "
            "pass rows with dates as dicts or as a frame."
        )


_MAX_ENCODED = 1 << 29  # max bytes of an encoded block
_LONGEST = 12  # max bytes of a character in JSON
_FEW = 512  # values of a block whose size is not checked


def check_text_in(rows: Rows) -> None:
    """Check the size of rows before they are encoded.

    Parameters
    ----------
    rows : Rows

    Raises
    ------
    ShapeError
    """
    parts = [array for part, _, array in _arrays(rows) if part in {"X", "y"}]
    if sum(part.size for part in parts) <= _FEW:
        return
    size = sum(part.nbytes for part in parts if part.dtype.kind != "O")
    values = [part.ravel().tolist() for part in parts if part.dtype.kind == "O"]
    length = sum(len(each) for column in values for each in column if type(each) is str)
    if size + _LONGEST * length > _MAX_ENCODED:  # rare: measure it exactly
        for column in values:
            size += sum(len(json.dumps(each)) * n for each, n in Counter(column).items())
        check_size(size)


def check_size(nbytes: int) -> None:
    """Check the size of rows.

    Parameters
    ----------
    nbytes : int

    Raises
    ------
    ShapeError
    """
    if nbytes > _MAX_ENCODED:
        raise ShapeError(
            f"`X` must have at most {_MAX_ENCODED:,} bytes, got {nbytes:,}. Pass fewer "
            "rows per call."
        )


_MAX_KEY = 512  # characters
_SURROGATES = re.compile("[\ud800-\udfff]")


def check_text(value: object, name: str) -> None:
    """Check that a value is text of 1 to 512 characters, without lone surrogates.

    Parameters
    ----------
    value : object
    name : str
        Name of the argument.

    Raises
    ------
    ParameterError
    """
    got = type(value).__name__
    if isinstance(value, str):
        got = f"{len(value):,} characters"
        if 0 < len(value) <= _MAX_KEY and not _SURROGATES.search(value):
            return
    raise ParameterError(
        f"`{name}` must be text of 1 to {_MAX_KEY} characters without lone surrogates, "
        f"got {got}. Pass text such as str(uuid.uuid4())."
    )
