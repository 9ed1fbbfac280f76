"""Blocks of rows with their targets, and errors that name the row."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from onepass.errors import OnepassError, ParameterError, ShapeError, SourceError
from onepass.linalg import widened
from onepass.types import Array
from onepass.validation.table import Table, is_frame

__all__ = ["Block", "as_array", "blocks", "located_error", "sliceable", "with_row_location"]


_BLOCK = 1024  # rows of a block where the stream is one pair of arrays: fast, and small in memory


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
        Number of rows in this part of the source that were skipped, for want of a target.
    located : callable, optional
        Returns the location of a row in the source, by its index in the block.
    """

    X: Table | Array
    y: Array
    time: Array | None = None
    first: int | None = None
    skipped: int = 0
    located: Callable[[int], str] | None = None

    def __len__(self) -> int:
        return len(self.y)


def blocks(stream: Iterable[object], where: str, start: int = 0) -> Iterator[Block]:
    """The blocks of a stream, or of one pair of arrays or frames.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        A block has ``X`` and ``y``, and may have ``time``, ``first`` and ``skipped``.
    where : str
        The public call, for messages.
    start : int
        Number of rows to skip at the beginning, those that the stream skips counted too. A stream
        that has a ``start`` skips them itself.

    Raises
    ------
    ParameterError
        If it is none of these, or has no targets.
    ShapeError
        If X and y differ in length.
    SourceError
        If it has fewer rows than are to be skipped, or a block cannot be divided there.
    """
    if isinstance(stream, tuple) and len(stream) == 2:
        return _split_pair(sliceable(stream[0]), _as_targets(stream[1]), where, start)
    if isinstance(stream, Iterable) and not isinstance(stream, (str, np.ndarray)):
        found = (_block(rows, where) for rows in stream)
        return found if hasattr(stream, "start") else _skip_rows(found, start, where)
    raise ParameterError(
        f"{where}: `stream` must be a stream, an iterable of blocks or a pair (X, y), got "
        f"{type(stream).__name__}. Open a source with op.stream.read(source, target=...)."
    )


def _skip_rows(found: Iterator[Block], start: int, where: str) -> Iterator[Block]:
    """The blocks after the first ``start`` rows."""
    behind = 0
    for block in found:
        over, behind = start - behind, behind + len(block) + block.skipped
        if over <= 0:
            yield block
        elif behind > start:
            if block.skipped:
                raise _too_few(where, start, "a block that ends elsewhere and skips rows")
            time = None if block.time is None else block.time[over:]
            first = None if block.first is None else block.first + over
            yield Block(sliceable(block.X)[over:], block.y[over:], time, first)
    if behind < start:
        raise _too_few(where, start, f"{behind:,}")


def _too_few(where: str, start: int, found_rows: str) -> SourceError:
    return SourceError(
        f"{where}: `stream` must hold the {start:,} rows that were learned before, to skip "
        f"them, got {found_rows}. Pass the stream of the first run, from its first row on."
    )


def _block(rows: object, where: str) -> Block:
    """An object with the attributes of a block, as a block."""
    if not hasattr(rows, "X") or not hasattr(rows, "y"):
        raise ParameterError(
            f"{where}: each block of the stream must have `X` and `y`, got a "
            f"{type(rows).__name__}. Read rows with op.stream.read, or give one pair (X, y)."
        )
    if rows.y is None:
        raise ParameterError(
            f"{where}: the stream must have targets, got rows with `y` None. Name the column "
            "that holds them: op.stream.read(source, target=...)."
        )
    return Block(
        rows.X,
        np.asarray(rows.y),
        getattr(rows, "time", None),
        getattr(rows, "first", None),
        int(getattr(rows, "skipped", 0)),
        getattr(rows, "located", None),
    )


def sliceable(X: object) -> Table | Array:
    """Rows that can be sliced: a Table or an array."""
    if isinstance(X, Table):
        return X
    return Table.from_frame(X) if is_frame(X) else np.asarray(X)


def as_array(predictions: object) -> Array:
    """Predictions as a NumPy array, also those of a network on a device."""
    on_device = hasattr(predictions, "cpu")
    return np.asarray(widened(predictions).detach().cpu() if on_device else predictions)


def _as_targets(y: object) -> Array:
    """Targets as an array; a frame of several columns becomes (n, c)."""
    return np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)


def _split_pair(X: Table | Array, y: Array, where: str, start: int) -> Iterator[Block]:
    """The blocks of one pair of arrays."""
    if np.ndim(y) == 0 or len(X) != len(y):
        raise ShapeError(
            f"{where}: `y` must hold one target for each of the {len(X)} rows of X, got shape "
            f"{np.shape(y)}. Check that X and y come from the same rows."
        )
    if start > len(y):
        raise _too_few(where, start, f"{len(y):,}")
    at = range(start, len(y), _BLOCK)
    return (Block(X[a : a + _BLOCK], y[a : a + _BLOCK], first=a) for a in at)


_ROW = re.compile(r"\bin row (\d+)\b")


def located_error(
    error: OnepassError, place: str, located: Callable[[int], str] | None, n: int
) -> OnepassError:
    """An error of the same class with the location of the block and of the row in the message.

    A model counts the rows of its block; the source counts its own, and may be several files.

    Parameters
    ----------
    error : OnepassError
        As the model raised it.
    place : str
        The call, and its rows.
    located : callable, optional
        Returns the location of a row by its index in the block, as ``Rows.located`` does.
    n : int
        Rows of the block.

    Examples
    --------
    >>> error = OnepassError("`X` holds nan in row 2. Drop the row.")
    >>> print(located_error(error, "here", "b.csv: row {}".format, 5))
    here: `X` holds nan in row 2. Drop the row. (Row 2 of the block is b.csv: row 2.)
    >>> len(str(located_error(OnepassError("no."), "here", None, 1)))
    9
    """
    return type(error)(f"{place}: {with_row_location(error, located, n)}")


def with_row_location(
    error: OnepassError, located: Callable[[int], str] | None, n: int
) -> OnepassError:
    """An error of the same class with the location of the row that the message names.

    Parameters
    ----------
    error, located, n
        As in ``located_error``.

    Examples
    --------
    >>> print(with_row_location(OnepassError("got inf in row 2."), "b.csv: row {}".format, 3))
    got inf in row 2. (Row 2 of the block is b.csv: row 2.)
    >>> len(str(with_row_location(OnepassError("got inf in row 2."), None, 3)))
    17
    """
    found = _ROW.search(str(error))
    if found is None or located is None or int(found[1]) >= n:
        return error
    return type(error)(f"{error} (Row {found[1]} of the block is {located(int(found[1]))}.)")
