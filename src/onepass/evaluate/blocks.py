"""Blocks of rows with targets, and errors with the location of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from onepass.errors import OnepassError, ParameterError, ShapeError, SourceError
from onepass.types import Array
from onepass.validation.arrays import check_contains_rows
from onepass.validation.table import Table, known_rows, sliceable

__all__ = [
    "Block",
    "blocks",
    "located_error",
    "with_gaps_apart",
    "with_row_location",
]


_BLOCK = 1024  # rows per block of a pair of arrays: fast, with little memory


@dataclass(frozen=True, slots=True)
class Block:
    """A block of consecutive rows.

    Parameters
    ----------
    X : Table or ndarray of shape (n, d)
        The rows.
    y : ndarray of shape (n,) or (n, c)
        Their targets.
    time : ndarray of shape (n,), optional
        The time of each row.
    first : int, optional
        Index of the first row in the source, counted from 0.
    skipped : int
        Number of rows in this part of the source that were skipped because they have no target.
    located : callable, optional
        Returns the location of a row in the source, by its index in the block.
    whole : Block, optional
        All rows, with those whose target is missing; they are not in this block.
    """

    X: Table | Array
    y: Array
    time: Array | None = None
    first: int | None = None
    skipped: int = 0
    located: Callable[[int], str] | None = None
    whole: Block | None = None

    def __len__(self) -> int:
        return len(self.y)


def with_gaps_apart(block: Block) -> Block:
    """A block of the rows whose targets are known, which contains the whole block."""
    known = known_rows(block.y)
    if known.all():
        return block
    at, located = np.flatnonzero(known), block.located
    return Block(
        sliceable(block.X)[known],
        block.y[known],
        None if block.time is None else block.time[known],
        block.first,
        block.skipped + int(np.count_nonzero(~known)),
        None if located is None else lambda i: located(int(at[i])),
        block,
    )


def blocks(stream: Iterable[object], start: int = 0) -> Iterator[Block]:
    """Return the blocks of a stream, or of a pair of arrays or frames.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        A block has ``X`` and ``y``, and may have ``time``, ``first`` and ``skipped``.
    start : int
        Number of rows to skip at the beginning, including rows that the stream skips. A stream with
        the attribute ``start`` skips them itself.

    Raises
    ------
    ParameterError
        If the stream is none of these, or has no targets.
    ShapeError
        If X and y differ in length.
    SourceError
        If the stream has fewer rows than ``start``, or a block cannot be divided there.
    """
    if isinstance(stream, tuple) and len(stream) == 2:
        X = sliceable(stream[0])
        if not isinstance(X, Table):
            check_contains_rows(stream[0])
        return _split_pair(X, _as_targets(stream[1]), start)
    if isinstance(stream, Iterable) and not isinstance(stream, (str, np.ndarray)):
        found = (_block(rows) for rows in stream)
        return found if hasattr(stream, "start") else _skip_rows(found, start)
    raise ParameterError(
        "`stream` must be a stream, an iterable of blocks or a pair (X, y), got "
        f"{type(stream).__name__}. Open a source with op.stream.read(source, target=...)."
    )


def _skip_rows(found: Iterator[Block], start: int) -> Iterator[Block]:
    """Yield the blocks after the first ``start`` rows."""
    behind = 0
    for block in found:
        over, behind = start - behind, behind + len(block) + block.skipped
        if over <= 0:
            yield block
        elif behind > start:
            if block.skipped:
                raise _too_few(start, "a block that skips rows and does not end there")
            time = None if block.time is None else block.time[over:]
            first = None if block.first is None else block.first + over
            yield Block(sliceable(block.X)[over:], block.y[over:], time, first)
    if behind < start:
        raise _too_few(start, f"{behind:,}")


def _too_few(start: int, found_rows: str) -> SourceError:
    return SourceError(
        f"`stream` must contain the {start:,} rows that were learned before, which are skipped, "
        f"got {found_rows}. Pass the stream of the first run, with its first rows."
    )


def _block(rows: object) -> Block:
    """Convert an object with the attributes of a block to a block."""
    if not hasattr(rows, "X") or not hasattr(rows, "y"):
        raise ParameterError(
            f"each block of the stream must have `X` and `y`, got a {type(rows).__name__}. Read "
            "rows with op.stream.read, or pass one pair (X, y)."
        )
    if rows.y is None:
        raise ParameterError(
            "the stream must have targets, got rows with `y` None. Name the target "
            "column: op.stream.read(source, target=...)."
        )
    return Block(
        rows.X,
        np.asarray(rows.y),
        getattr(rows, "time", None),
        getattr(rows, "first", None),
        int(getattr(rows, "skipped", 0)),
        getattr(rows, "located", None),
    )


def _as_targets(y: object) -> Array:
    """Convert targets to an array; a frame of several columns becomes (n, c)."""
    return np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)


def _split_pair(X: Table | Array, y: Array, start: int) -> Iterator[Block]:
    """Divide a pair of arrays into blocks."""
    if np.ndim(y) == 0 or len(X) != len(y):
        raise ShapeError(
            f"`y` must contain one target for each of the {len(X)} rows of X, got shape "
            f"{np.shape(y)}. Check that X and y come from the same rows."
        )
    if start > len(y):
        raise _too_few(start, f"{len(y):,}")
    at = range(start, len(y), _BLOCK)
    return (Block(X[a : a + _BLOCK], y[a : a + _BLOCK], first=a) for a in at)


def located_error(
    error: OnepassError, place: str, located: Callable[[int], str] | None, n: int
) -> OnepassError:
    """Add the location of the block and of the row to the message of an error.

    A model counts rows within its block; the source counts rows within its files.

    Parameters
    ----------
    error : OnepassError
        The error that the model raised.
    place : str
        The call and its rows.
    located : callable, optional
        Returns the location of a row by its index in the block, like ``Rows.located``.
    n : int
        Number of rows of the block.

    Examples
    --------
    >>> error = OnepassError("`X` holds nan", remedy="Drop the row.", row=2)
    >>> print(located_error(error, "here", "b.csv: row {}".format, 5))
    here: `X` holds nan in row 2. Drop the row. (Row 2 of the block is b.csv: row 2.)
    >>> len(str(located_error(OnepassError("no."), "here", None, 1)))
    9
    """
    where = f"{place}: {error.where}" if error.where else place
    return with_row_location(error, located, n).at(where=where)


def with_row_location(
    error: OnepassError, located: Callable[[int], str] | None, n: int
) -> OnepassError:
    """Add the location of its row to an error.

    Parameters
    ----------
    error, located, n
        As in ``located_error``.

    Examples
    --------
    >>> error = OnepassError("`y` holds inf", remedy="Drop it.", row=2)
    >>> print(with_row_location(error, "b.csv: row {}".format, 3))
    `y` holds inf in row 2. Drop it. (Row 2 of the block is b.csv: row 2.)
    >>> len(with_row_location(error, None, 3).source)
    0
    """
    if located is None or error.row is None or error.row >= n:
        return error.at()
    return error.at(source=located(error.row))
