"""Blocks of rows with targets, and errors with the location of a row."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from onepass.errors import OnepassError, ParameterError, ShapeError, SourceError
from onepass.types import Array
from onepass.validation.arrays import check_contains_rows
from onepass.validation.rows import Rows
from onepass.validation.table import Table, sliceable

_BLOCK = 1024  # rows per block of a pair of arrays: fast, with little memory


def blocks(stream: Iterable[object], start: int = 0) -> Generator[Rows]:
    """Return the blocks of a stream, or of a pair of arrays or frames.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        A block has ``X`` and ``y``, and may have ``time``, ``weight`` and ``skipped``.
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
        return _split_pair(_features(stream[0]), _as_targets(stream[1]), start)
    if isinstance(stream, Iterable) and not isinstance(stream, (str, np.ndarray)):
        rows = _as_rows(stream)
        return rows if hasattr(stream, "start") else _skip_rows(rows, start)
    raise ParameterError(
        "`stream` must be a stream, an iterable of blocks or a pair (X, y), got "
        f"{type(stream).__name__}. Open a source with op.stream.read(source, target=...)."
    )


def _skip_rows(parts: Iterator[Rows], start: int) -> Generator[Rows]:
    """Yield the blocks after the first ``start`` rows."""
    behind = 0
    for rows in parts:
        over, behind = start - behind, behind + len(rows) + rows.skipped
        if over <= 0:
            yield rows
        elif behind > start:
            if rows.skipped:
                raise _too_few(start, "a block that skips rows and does not end there")
            yield rows[over:]
    if behind < start:
        raise _too_few(start, f"{behind:,}")


def _too_few(start: int, found_rows: str) -> SourceError:
    return SourceError(
        f"`stream` must contain the {start:,} rows that were learned before, which are skipped, "
        f"got {found_rows}. Pass the stream of the first run, with its first rows."
    )


def _as_rows(stream: Iterable[object]) -> Generator[Rows]:
    """Convert objects with the attributes of rows to rows with targets."""
    first = 0
    for block in stream:
        rows: Any = block
        if not hasattr(rows, "X") or not hasattr(rows, "y"):
            raise ParameterError(
                "each block of the stream must have `X` and `y`, got a "
                f"{type(rows).__name__}. Read rows with op.stream.read, or pass one pair (X, y)."
            )
        if rows.y is None:
            raise ParameterError(
                "the stream must have targets, got rows with `y` None. Name the target "
                "column: op.stream.read(source, target=...)."
            )
        if not isinstance(rows, Rows):
            optional = {name: getattr(rows, name, None) for name in ("weight", "time")}
            skipped = int(getattr(rows, "skipped", 0))
            X, y = _features(rows.X), _as_targets(rows.y)
            rows = Rows(X, y, **optional, first=first, skipped=skipped)
        elif not rows.first and rows.numbers is None:
            rows = replace(rows, first=first)
        first += len(rows) + rows.skipped
        yield rows


def _features(X: object) -> Table | Array:
    """Convert features to a table or an array."""
    features = sliceable(X)
    if not isinstance(features, Table):
        check_contains_rows(X)
    return features


def _as_targets(y: object) -> Array:
    """Convert targets to an array; a frame of several columns becomes (n, c)."""
    return np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)


def _split_pair(X: Table | Array, y: Array, start: int) -> Generator[Rows]:
    """Divide a pair of arrays into blocks."""
    if np.ndim(y) == 0 or len(X) != len(y):
        raise ShapeError(
            f"`y` must contain one target for each of the {len(X)} rows of X, got shape "
            f"{np.shape(y)}. Check that X and y come from the same rows."
        )
    if start > len(y):
        raise _too_few(start, f"{len(y):,}")
    at = range(start, len(y), _BLOCK)
    return (Rows(X[a : a + _BLOCK], y[a : a + _BLOCK], first=a) for a in at)


@contextmanager
def locating(rows: Rows, place: str = "") -> Iterator[None]:
    """Add the place of a call, and the location of its row in the source, to errors.

    A model counts rows within its block; the source counts rows within its files.

    Parameters
    ----------
    rows : Rows
        The rows of the call.
    place : str, optional
        The call and its rows, for messages.

    Examples
    --------
    >>> rows = Rows(np.zeros((5, 1)), first=5, place="b.csv: row {}".format)
    >>> try:
    ...     with locating(rows, "here"):
    ...         raise OnepassError("`X` holds nan", remedy="Drop the row.", row=2)
    ... except OnepassError as error:
    ...     print(error)
    here: `X` holds nan in row 2. Drop the row. (Row 2 of the block is b.csv: row 7.)
    """
    try:
        yield
    except OnepassError as error:
        row, source = error.row, error.source
        if row is not None and row < len(rows):
            source = source or rows.located(row)
        where = ": ".join(part for part in (place, error.where) if part)
        raise error.at(where=where, source=source) from error
