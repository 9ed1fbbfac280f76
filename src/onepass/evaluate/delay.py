"""Delayed labels: rows are predicted immediately and learned when their target arrives.

Row i arrives at time tᵢ and is predicted immediately; its target becomes available at dᵢ. The row
is learned just before the first later row j with

    tⱼ ≥ dᵢ,   j > i                                                                     (1)

Rows with the same j are learned in order of dᵢ, then of i. For a delay of k rows, tᵢ = i and
dᵢ = i + k. Each row is thus predicted by a model that has learned exactly the targets available at
that time, independently of the block size [1].

Rows to learn and rows to predict form one sequence, in which rows to predict have weight 0:
``test_then_train`` of a learner predicts them without learning, and processes the sequence in
blocks. Times of rows and of targets are checked before they are used.

Cost per row: that of two rows of the learner. Memory: the pending rows.

[1] J. Gama, I. Žliobaitė, A. Bifet, M. Pechenizkiy, A. Bouchachia, "A survey on concept drift
    adaptation", ACM Computing Surveys 46, 2014: delayed labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onepass.errors import ColumnError, NotFiniteError, ParameterError, TypeMismatchError
from onepass.serialization.codec import Role, register
from onepass.types import Array
from onepass.validation import as_dates, as_numbers
from onepass.validation.rows import Rows, concatenate_rows
from onepass.validation.table import Table, is_missing


def _row_times(time: Array | None, last: object, located: Callable[[int], str]) -> Array:
    """Check the times at which rows arrive: numbers or dates that never decrease."""
    if time is None:
        raise ParameterError(
            "`delay_until` requires a stream with times, got a stream without times. "
            "Name the column of times: op.stream.read(source, time=...), or --time."
        )
    at = _instants(np.asarray(time), "the column of times", located)
    before = at[:1] if last is None else np.asarray([last])
    if (before.dtype.kind == "M") != (at.dtype.kind == "M"):
        raise TypeMismatchError(
            f"times must be of one type, got {at.dtype} after {before.dtype}, starting "
            f"at {located(0)}. Convert them to one type."
        )
    fallen = np.flatnonzero(at < np.concatenate([before, at[:-1]]))
    if len(fallen):
        i = int(fallen[0])
        raise ParameterError(
            f"with `delay_until` the times of rows must not decrease, got {at[i]} in {located(i)}, "
            f"after {before[0] if i == 0 else at[i - 1]}. Sort the rows by time; if local clocks "
            "were set back here, use dates in UTC or with a time zone."
        )
    return at


def _due_times(column: Array, name: str, at: Array, located: Callable[[int], str]) -> Array:
    """Check the times at which targets arrive: none precedes its row."""
    due = _instants(np.asarray(column), f"column {name!r}", located)
    if (due.dtype.kind == "M") != (at.dtype.kind == "M"):
        raise TypeMismatchError(
            f"column {name!r} must have the type of the times of rows, {at.dtype}, got "
            f"{due.dtype}. Convert one of them."
        )
    return np.maximum(due, at)


def _instants(values: Array, what: str, located: Callable[[int], str]) -> Array:
    """Return numbers or dates in full precision; raise if one is missing."""
    if values.dtype.kind in "iuf":
        values = as_numbers(values)
    elif values.dtype.kind == "M":
        values = as_dates(values)
    else:
        raise TypeMismatchError(
            f"{what} must contain the times of rows or targets as numbers or dates, got "
            f"{values.dtype}. Convert it, or set its type with `types` (--type NAME=date)."
        )
    missing = np.flatnonzero(is_missing(values))
    if len(missing):
        raise NotFiniteError(
            f"{what} must contain a time for every row, got a missing value in "
            f"{located(int(missing[0]))}. Fill it in, or drop the row."
        )
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A sequence of rows to learn and rows to predict.

    Parameters
    ----------
    rows : Rows
        The m rows, with the times at which they are learned or predicted, which never decrease.
    learned : ndarray of shape (m,) of bool
        Whether the row is learned.
    left : Rows or None
        The rows that are pending after the sequence; their times are those of their targets.
    last : object
        The time of the last row that arrived.
    """

    rows: Rows
    learned: Array
    left: Rows | None
    last: Any


class DelayedLabels:
    """Scheduling of rows whose targets arrive later.

    Parameters
    ----------
    delay : int
        Number of rows after which a target arrives; 1 means before the next row. Ignored if
        ``until`` is set.
    until : str, optional
        The column with the time at which the target of a row arrives, in the unit of the times of
        rows.
    max_rows : int
        Maximum number of pending rows.

    Attributes
    ----------
    pending : Rows or None
        The pending rows in the order in which they will be learned; their times are those at which
        their targets arrive.
    last : object
        The time of the last row that arrived.
    """

    def __init__(self, delay: int, until: str | None, max_rows: int) -> None:
        self.pending: Rows | None = None
        self._delay, self._until, self._max_rows = delay, until, max_rows
        self.last: Any = None

    def __len__(self) -> int:
        return 0 if self.pending is None else len(self.pending)

    def schedule(self, block: Rows, rows: int) -> Schedule:
        """Return the rows to learn and to predict when a block arrives, without changing the state.

        Parameters
        ----------
        block : Rows
            A block of at least one row.
        rows : int
            Number of rows before the block.

        Raises
        ------
        ColumnError, NotFiniteError, ParameterError, TypeMismatchError
            If times are missing or decrease, or too many rows are pending.
        """
        arrived, at = self._arrivals(block, rows)
        n, own = len(arrived), np.arange(1, len(arrived) + 1)
        # (1): the first later row of this block that arrives after the target is available
        position = np.maximum(np.searchsorted(at, _due(arrived)), own)
        before = np.array([], dtype=int)
        pool, head = arrived, 0
        if self.pending is not None and len(self.pending):
            before = np.searchsorted(at, _due(self.pending))
            head = int(np.searchsorted(before, n))
            pool = concatenate_rows([self.pending[:head], arrived])
        position = np.concatenate([before[:head], position])
        left = self._left(arrived[position[head:] >= n], head)
        now = np.flatnonzero(position < n)
        now = now[np.lexsort((_due(pool)[now], position[now]))]
        order = np.argsort(np.concatenate([2 * position[now], 2 * own - 1]), kind="stable")
        chosen = pool[np.concatenate([now, np.arange(head, head + n)])[order]]
        learned = order < len(now)
        time = None
        if block.time is not None:
            here = np.cumsum(~learned) - 1  # the row of the block that is predicted
            moment = np.concatenate([position[now], np.zeros(n, dtype=int)])[order]
            time = np.asarray(block.time)[np.where(learned, moment, here)]
            time = time if self._until is None else np.where(learned, _due(chosen), time)
        return Schedule(replace(chosen, time=time, place=block.place), learned, left, at[-1])

    def commit(self, schedule: Schedule) -> None:
        """Update the pending rows after a schedule has been processed."""
        self.pending, self.last = schedule.left, schedule.last

    def remaining(self, time: object) -> Rows | None:
        """Return all pending rows, to learn at the end of the stream; None if there are none.

        Parameters
        ----------
        time : object
            The time of the last row, or None.
        """
        pending = self.pending
        if pending is None or not len(pending):
            return None
        if self._until is not None:
            return pending
        return replace(pending, time=None if time is None else np.full(len(pending), time))

    def _arrivals(self, block: Rows, rows: int) -> tuple[Rows, Array]:
        """Return the rows of a block with the times of their targets, and the times of the rows."""
        if self._until is None:
            at = np.arange(rows, rows + len(block))
            return replace(block, time=at + self._delay), at
        if not isinstance(block.X, Table) or self._until not in block.X:
            raise ColumnError(
                "`delay_until` must name a column of the stream that is not dropped, "
                f"got {self._until!r}. Check the spelling, and do not drop the column."
            )
        at = _row_times(block.time, self.last, block.located)
        due = _due_times(block.X[self._until], self._until, at, block.located)
        return replace(block, X=block.X.drop([self._until]), time=due), at

    def _left(self, more: Rows, head: int) -> Rows | None:
        """Return the rows that remain pending: those not due, and some rows of the block."""
        old = None if self.pending is None else self.pending[head:]
        left = more if old is None or not len(old) else concatenate_rows([old, more])
        if len(left) > self._max_rows:
            raise ParameterError(
                f"at most {self._max_rows:,} rows may wait for their targets, got {len(left):,}. "
                "Increase `max_waiting` if there is enough memory, or use a shorter delay."
            )
        return left[np.argsort(_due(left), kind="stable")] if self._until else left


def _due(rows: Rows) -> Array:
    """Return the time at which the target of each pending row arrives."""
    return np.asarray(rows.time)


register(Role.RUN, Table)
