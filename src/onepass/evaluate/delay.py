"""Delayed labels: rows that are predicted at once and learned when their target arrives.

Row i arrives at time tᵢ and is predicted at once; its target is available from dᵢ on. It is learned
just before the first later row j with

    tⱼ ≥ dᵢ,   j > i                                                                     (1)

rows for the same j in order of dᵢ, then of i. With a delay of k rows, tᵢ = i and dᵢ = i + k. Each
row is thus predicted by a model that has learned exactly the targets available at that time,
independently of how the stream is cut [1].

Rows to learn and rows to predict form one sequence, in which rows to predict have weight 0: a
learner's ``test_then_train`` predicts these without learning, and processes the sequence in blocks.
Times of rows and of targets are checked before they are used.

Cost: two rows of the learner's cost for each row, and memory for the pending rows.

[1] J. Gama, I. Žliobaitė, A. Bifet, M. Pechenizkiy, A. Bouchachia, "A survey on concept drift
    adaptation", ACM Computing Surveys 46, 2014: delayed labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass.errors import ColumnError, NotFiniteError, ParameterError, TypeMismatchError
from onepass.evaluate.blocks import Block, sliceable
from onepass.serialization.codec import Role, register
from onepass.stream.stream import concatenate_tables
from onepass.types import Array
from onepass.validation import as_dates, as_numbers
from onepass.validation.table import Table, is_missing

__all__ = ["Room", "Turns", "Waiting"]


def _moments(time: Array | None, last: object, located: Callable[[int], str], where: str) -> Array:
    """The moments at which rows come: numbers or dates that never fall."""
    if time is None:
        raise ParameterError(
            f"{where}: `delay_until` needs a stream that says when each row comes, got none. "
            "Name the column of times: op.stream.read(source, time=...), or --time."
        )
    at = _checked(np.asarray(time), "the column of times", located, where)
    before = at[:1] if last is None else np.asarray([last])
    if (before.dtype.kind == "M") != (at.dtype.kind == "M"):
        raise TypeMismatchError(
            f"{where}: times must be of one kind, got {at.dtype} after {before.dtype}, from "
            f"{located(0)} on. Convert them."
        )
    fallen = np.flatnonzero(at < np.concatenate([before, at[:-1]]))
    if len(fallen):
        i = int(fallen[0])
        raise ParameterError(
            f"{where}: with `delay_until` the times of rows must not fall, got {at[i]} in "
            f"{located(i)}, after {before[0] if i == 0 else at[i - 1]}. Sort the rows by "
            "time; if local clocks went back here, give dates in UTC or with their time zone."
        )
    return at


def _dues(column: Array, name: str, at: Array, located: Callable[[int], str], where: str) -> Array:
    """When answers are known; an answer known before its row came is known as it comes."""
    due = _checked(np.asarray(column), f"column {name!r}", located, where)
    if (due.dtype.kind == "M") != (at.dtype.kind == "M"):
        raise TypeMismatchError(
            f"{where}: column {name!r} must be of the kind of the stream's times, {at.dtype}, got "
            f"{due.dtype}. Convert one of them."
        )
    return np.maximum(due, at)


def _checked(values: Array, what: str, located: Callable[[int], str], where: str) -> Array:
    """Numbers or dates in full precision, none missing."""
    if values.dtype.kind in "iuf":
        values = as_numbers(values, where)
    elif values.dtype.kind == "M":
        values = as_dates(values, where)
    else:
        raise TypeMismatchError(
            f"{where}: {what} must hold numbers or dates, to say when a row comes or is answered, "
            f"got {values.dtype}. Convert it, or give its kind by `types` (--type NAME=date)."
        )
    missing = np.flatnonzero(is_missing(values))
    if len(missing):
        raise NotFiniteError(
            f"{where}: {what} must say of every row when it comes or is answered, got none in "
            f"{located(int(missing[0]))}. Fill it in, or drop the row."
        )
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Rows that wait, in the order in which they will be learned.

    Parameters
    ----------
    X : Table or ndarray of shape (n, d)
        The rows.
    y : ndarray of shape (n,) or (n, c)
        Their answers.
    due : ndarray of shape (n,)
        When each answer is known.
    """

    X: Any
    y: Array
    due: Array

    def __len__(self) -> int:
        return len(self.due)

    def __getitem__(self, key: slice | Array) -> "Waiting":
        return Waiting(self.X[key], self.y[key], self.due[key])

    @property
    def _sound(self) -> bool:
        """Whether what was read from a file are rows."""
        kinds = type(self.X) in {Table, np.ndarray} and type(self.y) is np.ndarray
        same = len(self.X) == len(self.y) == len(self.due)
        return kinds and same and self.due.ndim == 1 and self.due.dtype.kind in "ifM"


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """A sequence of rows, each to be learned or to be asked about.

    Parameters
    ----------
    X : Table or ndarray of shape (m, d)
        The rows.
    y : ndarray of shape (m,) or (m, c)
        Their answers.
    time : ndarray of shape (m,), or None
        When each is learned or asked about; it never falls.
    learned : ndarray of shape (m,) of bool
        Whether it is learned.
    left : Waiting or None
        What waits afterwards.
    last : object
        The moment of the last row that came.
    located : callable, optional
        Says where the row of a turn stands in the source, by the turn's place in the sequence.
    """

    X: Any
    y: Array
    time: Array | None
    learned: Array
    left: Waiting | None
    last: Any
    located: Callable[[int], str] | None = None


class Room:
    """Where rows wait for their answers.

    Parameters
    ----------
    delay : int
        The answer of a row is known before so many rows later; 1 is before the next. Not used with
        ``until``.
    until : str, optional
        The column that says when a row's answer is known, in the unit of the stream's times.
    most : int
        Most rows that may wait.
    where : str
        The public call, for messages.

    Attributes
    ----------
    waiting : Waiting or None
        The rows that wait now.
    last : object
        The moment of the last row that came.
    """

    def __init__(self, delay: int, until: str | None, most: int, where: str) -> None:
        self.waiting: Waiting | None = None
        self._delay, self._until, self._most, self._where = delay, until, most, where
        self.last: Any = None

    def __len__(self) -> int:
        return 0 if self.waiting is None else len(self.waiting)

    def turns(self, block: Block, rows: int) -> Turns:
        """What is to be done when a block comes; nothing is changed yet.

        Parameters
        ----------
        block : Block
            At least one row.
        rows : int
            How many came before.

        Raises
        ------
        ColumnError, NotFiniteError, ParameterError, TypeMismatchError
            If the rows do not say when they come and are answered, times fall, or too many wait.
        """
        came, at = self._coming(block, rows)
        n, own = len(came), np.arange(1, len(came) + 1)
        # (1): the first later row of this block that comes when the answer is known
        turn = np.maximum(np.searchsorted(at, came.due), own)
        before = np.array([], dtype=int)
        pool, head = came, 0
        if self.waiting is not None and len(self.waiting):
            before = np.searchsorted(at, self.waiting.due)
            head = int(np.searchsorted(before, n))
            pool = _joined(self.waiting[:head], came)
        turn = np.concatenate([before[:head], turn])
        left = self._left(came[turn[head:] >= n], head)
        now = np.flatnonzero(turn < n)
        now = now[np.lexsort((pool.due[now], turn[now]))]
        order = np.argsort(np.concatenate([2 * turn[now], 2 * own - 1]), kind="stable")
        index = np.concatenate([now, np.arange(head, head + n)])[order]
        learned = order < len(now)
        time = self._times(block, pool.due[index], turn[index], learned)
        located = _located(block, index - head)
        return Turns(pool.X[index], pool.y[index], time, learned, left, at[-1], located)

    def settle(self, turns: Turns) -> None:
        """The turns were taken: what is left waits."""
        self.waiting, self.last = turns.left, turns.last

    def rest(self, time: object) -> Block | None:
        """All rows that wait, to be learned at the stream's end; None where there are none.

        Parameters
        ----------
        time : object
            The time of the last row, or None.
        """
        waiting = self.waiting
        if waiting is None or not len(waiting):
            return None
        times: Array | None = waiting.due
        if self._until is None:
            times = None if time is None else np.full(len(waiting), time)
        return Block(waiting.X, waiting.y, times)

    def _coming(self, block: Block, rows: int) -> tuple[Waiting, Array]:
        """The block's rows as they will wait, and the moments at which they come."""
        X = sliceable(block.X)
        if self._until is None:
            at = np.arange(rows, rows + len(block))
            return Waiting(X, block.y, at + self._delay), at
        if not isinstance(X, Table) or self._until not in X:
            raise ColumnError(
                f"{self._where}: `delay_until` must name a column of the stream that is not "
                f"dropped, got {self._until!r}. Check the spelling; it will be no feature."
            )
        first = rows if block.first is None else block.first
        located = block.located or (lambda i: f"row {first + i:,} (from 0)")
        at = _moments(block.time, self.last, located, self._where)
        due = _dues(X[self._until], self._until, at, located, self._where)
        return Waiting(X.drop([self._until]), block.y, due), at

    def _left(self, more: Waiting, head: int) -> Waiting | None:
        """What waits afterwards: the rows not due, and some of the block."""
        old = None if self.waiting is None else self.waiting[head:]
        left = more if old is None or not len(old) else _joined(old, more)
        if len(left) > self._most:
            raise ParameterError(
                f"{self._where}: at most {self._most:,} rows may wait for their answers, got "
                f"{len(left):,}. Give a higher `max_waiting` if there is memory for them, or a "
                "shorter delay."
            )
        return left[np.argsort(left.due, kind="stable")] if self._until else left

    def _times(self, block: Block, due: Array, turn: Array, learned: Array) -> Array | None:
        """When each turn is taken."""
        if block.time is None:
            return None
        here = np.cumsum(~learned) - 1  # the row of the block that is asked about
        at = np.asarray(block.time)[np.where(learned, turn, here)]
        return at if self._until is None else np.where(learned, due, at)


def _located(block: Block, rows: Array) -> Callable[[int], str] | None:
    """Where the row of each turn stands; those below 0 came before the block."""
    given = block.located
    if given is None:
        return None
    return lambda i: given(int(rows[i])) if rows[i] >= 0 else "one that waited for its answer"


def _joined(a: Waiting, b: Waiting) -> Waiting:
    """One after the other."""
    X = concatenate_tables((a.X, b.X)) if isinstance(a.X, Table) else np.concatenate([a.X, b.X])
    return Waiting(X, np.concatenate([a.y, b.y]), np.concatenate([a.due, b.due]))


register(Role.RUN, Waiting, Table)
