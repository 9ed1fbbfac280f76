"""Requests to learn rows, and the blocks of rows that are learned and logged.

Rows of one learner come from many threads at once. Requests with the same columns are joined and
learned as one block, which is logged as it was learned, so that replay repeats it exactly. A block
is encoded as::

    length of the header, 4 bytes | header, JSON | the arrays, one after the other

The header is the number of rows, and of each array its part, its column where it is one of a table,
its dtype, its shape and its bytes. An array of Python objects is JSON.

The size of a block on the disk is checked before it is encoded: rows may share one text in memory
that each of them stores by itself, so a kilobyte in memory may become gigabytes on the disk.

Also here: checks of idempotency keys, source names and positions.
"""

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
from onepass.validation.table import Table, TableLike, is_frame, to_column

__all__ = [
    "Block",
    "LearnResult",
    "Request",
    "aligned",
    "array_from_bytes",
    "array_to_bytes",
    "check_encodable",
    "check_labelled",
    "check_size",
    "check_text",
    "joined",
    "read_rows",
    "runs",
]


_LENGTH = struct.Struct("<I")
_PARTS = ("y", "weights", "time")
_EXACT = 2**53  # float64 represents all integers up to this

_Field = tuple[str, str | None, str, tuple[int, ...], int]


@dataclass(slots=True, eq=False)
class Block:
    """Rows as a learner's verbs take them.

    Parameters
    ----------
    X : ndarray of shape (n, …) or Table
    y : ndarray of shape (n,) or (n, c), or None
        None of rows that wait for their answers.
    weights : ndarray of shape (n,), optional
    time : ndarray of shape (n,), optional
    """

    X: Any
    y: Array | None = None
    weights: Array | None = None
    time: Array | None = None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def plain(self) -> bool:
        """Whether it is a matrix of float64 with one such target a row, and nothing else."""
        X, y = self.X, self.y
        return (
            type(X) is np.ndarray
            and type(y) is np.ndarray
            and self.weights is None
            and self.time is None
            and X.dtype == y.dtype == np.float64
            and X.ndim == 2
            and y.shape == X.shape[:1]
        )

    @property
    def like(self) -> tuple[object, ...]:
        """What blocks must have in common to be learned as one."""
        if self.plain:
            return self.X.shape[1:]  # type: ignore[no-any-return]
        return tuple(
            (
                part,
                column,
                array.dtype.str if part in {"X", "time"} else array.dtype.kind,
                array.shape[1:],
            )
            for part, column, array in self.arrays()
        )

    def named(self) -> dict[str, Array]:
        """Weights and time, as far as there are, by the names of the verbs' arguments."""
        if self.weights is None and self.time is None:
            return {}
        given = {"sample_weight": self.weights, "time": self.time}
        return {name: value for name, value in given.items() if value is not None}

    def __getitem__(self, rows: slice) -> "Block":
        parts = (self.y, self.weights, self.time)
        return Block(self.X[rows], *(None if part is None else part[rows] for part in parts))

    def digest(self) -> bytes:
        """The digest of the values, independent of dtype, encoding and order of columns."""
        X = self.X
        if isinstance(X, Table):
            X = Table({name: _canonical(X.columns[name]) for name in sorted(X.names)}, len(X))
        else:
            X = _canonical(X)
        parts = (
            None if part is None else _canonical(part) for part in (self.y, self.weights, self.time)
        )
        return Block(X, *parts).former_digest()

    def former_digest(self) -> bytes:
        """The digest of former versions: of the bytes, so of dtypes and order of columns too."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """What ``from_bytes`` reads; equal blocks have equal bytes.

        Raises
        ------
        TypeError
            If it holds values that JSON cannot say.
        """
        if self.plain:
            return b"".join((_plain_head(*self.X.shape), self.X.tobytes(), self.y.tobytes()))  # type: ignore[union-attr]
        fields: list[_Field] = []
        bodies: list[bytes] = []
        for part, column, array in self.arrays():
            plain = array.dtype.kind != "O"
            body = array.tobytes() if plain else json.dumps(array.tolist()).encode()
            fields.append((part, column, array.dtype.str, array.shape, len(body)))
            bodies.append(body)
        head = _block_header(len(self), tuple(fields))
        return b"".join((head, *bodies))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Block":
        """What ``to_bytes`` gave; ``where`` it stands, for messages.

        Raises
        ------
        CorruptStoreError
            If it is not.
        """
        try:
            at = _LENGTH.size + _LENGTH.unpack_from(data)[0]
            n, table, fields = json.loads(data[_LENGTH.size : at])
            columns: dict[str, Array] = {}
            parts: dict[str, Array] = {}
            for part, column, dtype, shape, size in fields:
                into, name = (parts, part) if column is None else (columns, column)
                into[name] = _array(data[at : at + size], dtype, shape)
                at += size
            X = Table(columns, n) if table else parts.pop("X")
            return cls(X, **parts)
        except (ValueError, TypeError, KeyError, struct.error) as wrong:
            raise CorruptStoreError(
                f"{where}: a block in it is not as it was written: {wrong}. Restore it from a "
                "backup."
            ) from wrong

    def arrays(self) -> Iterator[tuple[str, str | None, Array]]:
        """Part, column and values of each array."""
        columns = self.X.columns.items() if isinstance(self.X, Table) else [(None, self.X)]
        for name, column in columns:
            yield "X", name, column
        for part in _PARTS:
            if (array := getattr(self, part)) is not None:
                yield part, None, array


def joined(blocks: Sequence[Block]) -> Block:
    """Blocks that are alike as one.

    Parameters
    ----------
    blocks : sequence of Block
        At least one.
    """
    if len(blocks) == 1:
        return blocks[0]
    first = blocks[0].X
    if isinstance(first, Table):
        X: Any = Table(
            {name: np.concatenate([block.X[name] for block in blocks]) for name in first.names},
            sum(map(len, blocks)),
        )
    else:
        X = np.concatenate([block.X for block in blocks])
    parts = ([getattr(block, name) for block in blocks] for name in _PARTS)
    return Block(X, *(None if part[0] is None else np.concatenate(part) for part in parts))


def _canonical(array: Array) -> Array:
    """Values in one canonical dtype, for digests.

    Numbers are float64 where that holds them, text and mixed values objects, dates microseconds
    where these hold them.
    """
    kind = array.dtype.kind
    if kind == "M":
        times = array.astype("datetime64[us]")
        return times if ((times == array) | np.isnat(array)).all() else array
    if kind in "biuf":
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float64)
        large = kind in "iu" and bool((np.abs(numbers) >= _EXACT).any())
        if not large or numbers.tolist() == array.tolist():  # Python compares them exactly
            return np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one nan, and no -0
    values = np.empty(array.size, dtype=object)
    values[:] = [
        float(each) + 0.0 if isinstance(each, (int, float)) and abs(each) <= _EXACT else each
        for each in array.ravel().tolist()
    ]
    return values.reshape(array.shape)


@lru_cache(maxsize=256)
def _block_header(n: int, fields: tuple[_Field, ...]) -> bytes:
    """The header and its length; many blocks have the same."""
    table = not any(part == "X" and column is None for part, column, *_ in fields)
    said = json.dumps([n, table, fields], separators=(",", ":")).encode()
    return _LENGTH.pack(len(said)) + said


@lru_cache(maxsize=256)
def _plain_head(n: int, d: int) -> bytes:
    dtype = np.dtype(np.float64).str
    return _block_header(
        n, (("X", None, dtype, (n, d), 8 * n * d), ("y", None, dtype, (n,), 8 * n))
    )


def _array(body: bytes, dtype: str, shape: list[int]) -> Array:
    if dtype == "|O":
        if math.prod(shape) > len(body):  # each takes a byte at least
            raise ValueError(f"{shape} values in {len(body)} bytes")
        found = np.empty(shape, dtype=object)
        values = json.loads(body)
        found[...] = values if found.ndim == 1 else np.array(values, dtype=object)
        return found
    if np.dtype(dtype).kind not in _KINDS:
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(body, dtype).reshape(shape).copy()


_ROWS = 4096  # in a block of several requests
_KINDS = "biufUM"  # of dtypes that stand as they are


class LearnResult(NamedTuple):
    """What became of rows that were learned: they are on the disk."""

    version: int
    """The learner's version with them: how many blocks it has learned."""

    said: Array
    """What was said of each row just before it was learned, of the shape of y."""

    again: bool = False
    """Whether they had been learned before, by a request with the same key."""


@dataclass(slots=True, eq=False)
class Request:
    """Rows to learn, or to store until their labels come, and the result.

    Parameters
    ----------
    block : Block
    body : bytes
        The encoded block, where it was encoded to check that it can be.
    size : int
        About how many bytes it takes.
    keys : sequence of tuple[str, bytes]
        An idempotency key of all rows, or one of each, with the digest of the request.
    source, position : str, optional
        Where the rows came from.
    ids : sequence of str
        Of rows that wait for their labels, or are labelled by this request.
    until : float
        Until when they wait.
    done : callable, optional
        Called with the request once it is decided.
    receipt, error : Receipt and exception, optional
        The result, or why there is none.
    settled : bool
        Whether it is decided.
    former : bytes
        The digest of a former version for this request.
    gate : lock
        Held until it is decided.
    process : int
        The process in which it is decided.
    """

    block: Block
    body: bytes = b""
    size: int = 0
    keys: Sequence[tuple[str, bytes]] = ()
    source: str | None = None
    position: str | None = None
    ids: Sequence[str] = ()
    until: float = 0.0
    done: Callable[["Request"], None] | None = None
    receipt: LearnResult | None = None
    error: BaseException | None = None
    settled: bool = False
    former: bytes = b""
    gate: Any = field(default_factory=allocate_lock)
    process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.gate.acquire()

    def wait(self) -> LearnResult:
        """The receipt, once it is decided; raises the error if there is one."""
        if self.process != os.getpid():  # no thread of a forked process opens the gate
            return self.result()
        with self.gate:
            return self.result()

    def result(self) -> LearnResult:
        """The receipt; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        if not self.settled or self.receipt is None:
            raise StoreError(
                f"a request: it must be decided before its result is read, by process "
                f"{self.process}, which made it; this is process {os.getpid()}. Wait for it there, "
                "or send it again with the same key."
            )
        return self.receipt


def runs(requests: Sequence[Request]) -> list[list[Request]]:
    """Consecutive requests that can be learned as one block.

    Parameters
    ----------
    requests : sequence of Request
        A request of a source is a block by itself: it has a position.
    """
    if len(requests) == 1:
        return [list(requests)]
    found: list[list[Request]] = []
    run: list[Request] = []
    rows, like = 0, None
    for request in requests:
        size, kind = len(request.block), request.block.like
        alone = request.source is not None
        if not run or alone or kind != like or rows + size > _ROWS:
            run, rows = [], 0
            found.append(run)
        run.append(request)
        rows += size
        like = None if alone else kind
    return found


def array_to_bytes(array: Array) -> bytes:
    """Predictions, encoded."""
    plain = array.dtype.kind in _KINDS
    body = array.tobytes() if plain else json.dumps(array.tolist()).encode()
    return _head(array.dtype.str, array.shape) + body


@lru_cache(maxsize=256)
def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    return json.dumps([dtype, shape]).encode() + b"\n"


def array_from_bytes(data: bytes) -> Array:
    """Decode what ``array_to_bytes`` encoded.

    Raises
    ------
    CorruptStoreError
        If these are other bytes.
    """
    try:
        head, _, body = data.partition(b"\n")
        dtype, shape = json.loads(head)
        if np.dtype(dtype).kind in _KINDS:
            return np.frombuffer(body, dtype).reshape(shape).copy()
        array = np.empty(shape, dtype=object)
        array[...] = json.loads(body)
    except (ValueError, TypeError) as error:
        raise CorruptStoreError(
            f"stored predictions are not as they were written: {error}"
        ) from error
    return array


_NUMBERS = "biuf"
_MIXED = "OUM"  # a matrix of text, dates or mixed values, for features that read it
_NUMBER_BYTES = 8  # bytes of a number
_PLAIN = (str, int, float, bool, type(None))


def read_rows(
    X: TableLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    time: TimeLike | None = None,
    *,
    where: str,
) -> Block:
    """Rows as they came, as a block of their own: nothing of it is the caller's.

    Whether they can be learned, the learner says.

    Parameters
    ----------
    X : array-like of shape (n, …), frame, Table, or sequence of dicts
    y : array-like of shape (n,) or (n, c), or None
    sample_weight, time : array-like of shape (n,) or number, optional
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError, TypeMismatchError
        If these are no rows, or not as many answers.
    """
    given: Any = Block(X, y, sample_weight, time)  # type: ignore[arg-type]  # as far as it is one
    if given.plain:
        return Block(given.X.copy(), given.y.copy())
    rows = _rows(X, where)
    n = len(rows)
    return Block(
        rows,
        None if y is None else aligned(y, "y", n, where),
        None if sample_weight is None else aligned(sample_weight, "sample_weight", n, where),
        None if time is None else aligned(time, "time", n, where),
    )


def check_labelled(y: object, where: str) -> None:
    """Refuse rows to be learned that have no answers.

    Parameters
    ----------
    y : object
    where : str
        The public call, for messages.

    Raises
    ------
    TypeMismatchError
    """
    if y is None:
        raise TypeMismatchError(
            f"{where}: `y` must be an answer for each row, got None. Give the answers, or `ask` "
            "for rows whose answers come later."
        )


def _rows(X: Any, where: str) -> Any:
    if isinstance(X, Table):
        return Table({name: _column(column, name) for name, column in X.columns.items()}, X.n)
    if is_frame(X):
        return Table.from_frame(X)
    if isinstance(X, (list, tuple)) and (not X or isinstance(X[0], Mapping)):
        return Table.from_rows(X)
    array = _copied(X)
    if array.ndim < 2 or array.dtype.kind not in _NUMBERS + _MIXED:
        matrix(X, where)  # says what is wrong with it
    if array.dtype.kind not in _NUMBERS:
        if not isinstance(X, np.ndarray):  # NumPy would make text of the numbers among it
            array = np.array(X, dtype=object)
        _check_plain(array, "X", where)
    elif array.dtype.itemsize > _NUMBER_BYTES:
        array = array.astype(np.float64)
    return array


def _column(values: Array, name: str) -> Array:
    """A copy, of what a file can hold."""
    plain = values.dtype.kind in f"{_KINDS}O"
    return values.copy() if plain else to_column(values, name)


def aligned(part: ArrayLike | TimeLike, name: str, n: int, where: str) -> Array:
    """Answers, weights or times as an array of their own.

    Parameters
    ----------
    part : array-like of shape (n, …); weights and times may be one for all rows
    name : str
        Of the argument.
    n : int
        How many rows there are.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError, TypeMismatchError
        If it is not one value a row, or no number, text or date.
    """
    array = _copied(part)
    if name == "y" and array.dtype.kind == "U" and isinstance(part, (list, tuple)):
        values = np.array(part, dtype=object)  # NumPy has made text of the numbers among them
        array = array if all(isinstance(v, str) for v in values.ravel().tolist()) else values
    if name == "time" and array.dtype.kind == "O":
        array = to_column(array, "time")
    if array.ndim == 0 and name != "y":
        array = np.full(n, array[()])
    if array.ndim == 0 or len(array) != n:
        came = f"the shape {array.shape}" if array.ndim else "one that is no list"
        raise ShapeError(
            f"{where}: `{name}` must have one value for each of {n} rows, got {came}. Give as many "
            "values as rows."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > _NUMBER_BYTES:
        return array.astype(np.float64)
    if array.dtype.kind not in _KINDS:
        _check_plain(array, name, where)
    return array


def _copied(values: Any) -> Array:
    """A copy, its rows one after the other."""
    if type(values) not in {np.ndarray, list}:
        if hasattr(values, "detach"):  # a tensor
            values = values.detach().cpu().numpy()
        if np.ma.is_masked(values):
            kind, nothing = (float, np.nan) if values.dtype.kind in _NUMBERS else (object, None)
            values = values.astype(kind).filled(nothing)
    try:
        return np.array(values, order="C", copy=True)
    except ValueError:  # rows of several lengths
        return np.empty((), dtype=object)


def _check_plain(array: Array, name: str, where: str) -> None:
    """Refuse what no file can hold."""
    if array.dtype.kind in _KINDS:
        return
    odd = next((v for v in array.ravel().tolist() if not isinstance(v, _PLAIN)), None)
    if odd is not None or array.dtype.kind != "O":
        came = type(odd).__name__ if array.dtype.kind == "O" else str(array.dtype)
        raise TypeMismatchError(
            f"{where}: `{name}` must hold numbers or text, got {came}. Convert it, or give rows as "
            "dicts or a frame, in which dates may stand."
        )


_LARGEST_ENCODED = 1 << 29  # bytes of rows at once
_LONGEST = 12  # bytes of a character as JSON, at most
_FEW = 512  # values, which are not too many bytes where each is a request's longest text


def check_encodable(block: Block, where: str) -> None:
    """Refuse a block that would take too many bytes, before it is encoded.

    Parameters
    ----------
    block : Block
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
    """
    parts = [array for part, _, array in block.arrays() if part in {"X", "y"}]
    if sum(part.size for part in parts) <= _FEW:
        return
    size = sum(part.nbytes for part in parts if part.dtype.kind != "O")
    values = [part.ravel().tolist() for part in parts if part.dtype.kind == "O"]
    length = sum(len(each) for column in values for each in column if type(each) is str)
    if size + _LONGEST * length > _LARGEST_ENCODED:  # few are: these are measured
        for column in values:
            size += sum(len(json.dumps(each)) * n for each, n in Counter(column).items())
        check_size(size, where)


def check_size(nbytes: int, where: str) -> None:
    """Refuse rows that take too many bytes.

    Parameters
    ----------
    nbytes : int
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
    """
    if nbytes > _LARGEST_ENCODED:
        raise ShapeError(
            f"{where}: `X` must take at most {_LARGEST_ENCODED:,} bytes, got {nbytes:,}. Give "
            "fewer rows at once."
        )


_LONGEST_KEY = 512  # characters
_HALVES = re.compile("[\ud800-\udfff]")


def check_text(word: object, name: str, where: str) -> None:
    """Refuse what is no text, empty, too long, or of halves of characters.

    Parameters
    ----------
    word : object
    name : str
        Of the argument.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    came = type(word).__name__
    if isinstance(word, str):
        came = f"{len(word):,} characters"
        if 0 < len(word) <= _LONGEST_KEY and not _HALVES.search(word):
            return
    raise ParameterError(
        f"{where}: `{name}` must be text of 1 to {_LONGEST_KEY} characters, got {came}. Give "
        "another, such as str(uuid.uuid4())."
    )
