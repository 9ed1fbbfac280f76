"""What a stream is made of, as the evaluation sees it: blocks of rows with their answers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass.errors import ParameterError, ShapeError
from onepass.table import Table, is_frame
from onepass.types import Array

__all__ = ["Block", "blocks"]

_WIDTH = 1024  # rows of a block where the stream is one pair of arrays: fast, and small in memory


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows in a row.

    Parameters
    ----------
    X : Table or ndarray of shape (n, d)
        The rows.
    y : ndarray of shape (n,) or (n, c)
        Their answers.
    time : ndarray of shape (n,), optional
        When each happened.
    first : int, optional
        Where the first of them stands in the source, counted from 0.
    skipped : int
        Rows of this stretch of the source that were left out, for want of an answer.
    """

    X: Any
    y: Array
    time: Array | None = None
    first: int | None = None
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.y)


def blocks(stream: Any, where: str) -> Iterator[Block]:
    """The blocks of a stream, or of one pair of arrays or frames.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        A block has ``X`` and ``y``, and may have ``time``, ``first`` and ``skipped``.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If it is none of these, or has no answers.
    ShapeError
        If X and y differ in length.
    """
    if isinstance(stream, tuple) and len(stream) == 2:
        return _cut(_rows(stream[0]), _answers(stream[1]), where)
    if isinstance(stream, Iterable) and not isinstance(stream, (str, np.ndarray)):
        return (_block(rows, where) for rows in stream)
    raise ParameterError(
        f"{where}: `stream` must be a stream, an iterable of blocks or a pair (X, y), got "
        f"{type(stream).__name__}. Open a source with op.stream.read(source, target=...)."
    )


def _block(rows: Any, where: str) -> Block:
    """Whatever looks like a block, as one."""
    if not hasattr(rows, "X") or not hasattr(rows, "y"):
        raise ParameterError(
            f"{where}: each block of the stream must have `X` and `y`, got a "
            f"{type(rows).__name__}. Read rows with op.stream.read, or give one pair (X, y)."
        )
    if rows.y is None:
        raise ParameterError(
            f"{where}: the stream must have answers, got rows with `y` None. Name the column "
            "that holds them: op.stream.read(source, target=...)."
        )
    return Block(
        rows.X,
        np.asarray(rows.y),
        getattr(rows, "time", None),
        getattr(rows, "first", None),
        int(getattr(rows, "skipped", 0)),
    )


def _rows(X: Any) -> Any:
    """Rows that can be sliced."""
    if isinstance(X, Table):
        return X
    return Table.from_frame(X) if is_frame(X) else np.asarray(X)


def _answers(y: Any) -> Array:
    """Answers as an array; those of a frame of several columns side by side."""
    return np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)


def _cut(X: Any, y: Array, where: str) -> Iterator[Block]:
    """One pair, as blocks."""
    if np.ndim(y) == 0 or len(X) != len(y):
        raise ShapeError(
            f"{where}: `y` must hold one answer for each of the {len(X)} rows of X, got shape "
            f"{np.shape(y)}. Check that X and y come from the same rows."
        )
    return (Block(X[a : a + _WIDTH], y[a : a + _WIDTH], first=a) for a in range(0, len(y), _WIDTH))
