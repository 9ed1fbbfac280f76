"""Blocks: rows and their answers, as they are learned, joined and written down.

Rows of one learner come from many askers at once. Those that are alike are learned as one block;
what is written down is the block, so that it can be learned again in just the same way::

    length of the header, 4 bytes | header, JSON | the arrays, one after the other

The header is the number of rows, and of each array its part, its column where it is one of a table,
its dtype, its shape and its bytes. An array of Python's values is JSON.
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from onepass.errors import Array, DamagedError
from onepass.validation.table import Table

__all__ = ["Block", "is_plain", "joined"]

_LENGTH = struct.Struct("<I")
_PARTS = ("y", "weights", "time")
_KINDS = "biufUM"  # of dtypes that stand as they are
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
        """Whether it is a matrix of float64 and such an answer a row, and nothing else."""
        return self.weights is None and self.time is None and is_plain(self.X, self.y)

    @property
    def like(self) -> tuple[Any, ...]:
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
            for part, column, array in self._arrays()
        )

    def named(self) -> dict[str, Any]:
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
        for part, column, array in self._arrays():
            plain = array.dtype.kind != "O"
            body = array.tobytes() if plain else json.dumps(array.tolist()).encode()
            fields.append((part, column, array.dtype.str, array.shape, len(body)))
            bodies.append(body)
        head = _head(len(self), tuple(fields))
        return b"".join((head, *bodies))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Block":
        """What ``to_bytes`` gave; ``where`` it stands, for messages.

        Raises
        ------
        DamagedError
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
            raise DamagedError(
                f"{where}: a block in it is not as it was written: {wrong}. Restore it from a "
                "backup."
            ) from wrong

    def _arrays(self) -> Iterator[tuple[str, str | None, Array]]:
        if isinstance(self.X, Table):
            for name, column in self.X.columns.items():
                yield "X", name, column
        else:
            yield "X", None, self.X
        if self.y is not None:
            yield "y", None, self.y
        if self.weights is not None:
            yield "weights", None, self.weights
        if self.time is not None:
            yield "time", None, self.time


def is_plain(X: Any, y: Any) -> bool:
    """Whether these are a matrix of float64, and such an answer for each of its rows.

    Parameters
    ----------
    X, y : Any
    """
    return (
        type(X) is np.ndarray
        and type(y) is np.ndarray
        and X.dtype == y.dtype == np.float64
        and X.ndim == 2
        and y.shape == X.shape[:1]
    )


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
def _head(n: int, fields: tuple[_Field, ...]) -> bytes:
    """The header and its length; many blocks have the same."""
    table = not any(part == "X" and column is None for part, column, *_ in fields)
    said = json.dumps([n, table, fields], separators=(",", ":")).encode()
    return _LENGTH.pack(len(said)) + said


@lru_cache(maxsize=256)
def _plain_head(n: int, d: int) -> bytes:
    dtype = np.dtype(np.float64).str
    return _head(n, (("X", None, dtype, (n, d), 8 * n * d), ("y", None, dtype, (n,), 8 * n)))


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
