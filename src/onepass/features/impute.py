"""Imputation of missing numbers, from the earlier values of their column.

The value of nan in row k depends on the strategy:

``"mean"``  the mean of the column's values in rows 1 ... k
``"last"``  the last value
``"zero"``  0

Before the first value of a column, it is 0; for the following steps, the column was at its first
value (:class:`onepass.features.transformer.Starts`), or at 0 with ``"zero"``. Blocks are
vectorised: running means are cumulative sums over the values, last values a running maximum of row
indices. With D = x - m about the mean m of the c values before the block,

    m_k = m + (D_1 + ... + D_k) / (c + c_k)      c_k values in rows 1 ... k of the block

Cost: O(d) time per row, O(d) memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from onepass import native
from onepass.declared import FEATURE, State, param, start_states
from onepass.errors import NumericalError, public
from onepass.features.transformer import Columnwise, Starts
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.arrays import ColumnPositions
from onepass.validation.table import Table, named_row


@dataclass(eq=False, repr=False)
class Impute(Columnwise):
    """Imputation of missing numbers (nan) from the earlier values of their column.

    Parameters
    ----------
    strategy : {"mean", "last", "zero"}, default "mean"
        Replacement: the mean of the values of the column so far, the last value, or 0. Before its
        first value a column is 0, and a learner counts it as constant: at that value, or at 0 with
        "zero".
    indicator : bool, default False
        Append, for each column with missing values while learning, a column that is 1 where the
        value is missing and 0 elsewhere. The indicator is appended at the first missing value.

    Attributes
    ----------
    fills_ : ndarray of shape (d,)
        The replacement for a missing value in the next row.
    counts_ : ndarray of shape (d,)
        Number of values so far.
    rows_before_ : ndarray of shape (d,)
        Number of rows before the column was added.

    Raises
    ------
    ParameterError
        If ``strategy`` is not one of these.
    NumericalError
        If the sum of a column's values overflows float64.

    Examples
    --------
    >>> Impute().learn_transform([[1.0], [None], [4.0], [None]]).ravel().tolist()
    [1.0, 1.0, 4.0, 2.5]
    """

    _fills = True
    _merging: ClassVar[str] = "exact"
    _accepts_missing = True
    fills_ = State[Array](FEATURE)
    counts_ = State[Array](FEATURE, dtype=np.int64)
    rows_before_ = State[Array](FEATURE, dtype=np.int64)
    places_ = State[Array]()
    flags_ = State[Array]()

    strategy: Literal["mean", "last", "zero"] = param("mean", choices=("mean", "last", "zero"))
    indicator: bool = False

    @property
    def n_features_out_(self) -> int:
        """Number of output columns: inputs, and an indicator for each input with missing values."""
        if not hasattr(self, "places_"):
            return 0
        return len(self.places_) + int(np.count_nonzero(self.flags_ >= 0))

    @public
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the outputs; an indicator is named ``"<input> (missing)"``."""
        inputs = self._names_in(input_features)
        names = np.empty(self.n_features_out_, dtype=object)
        for j, name in enumerate(inputs):
            names[self.places_[j]] = name
            if self.flags_[j] >= 0:
                names[self.flags_[j]] = f"{name} (missing)"
        return names

    @property
    def _stored_rows(self) -> str:
        """What the state contains of single rows, with a remedy; empty if nothing."""
        last = self.strategy == "last"
        return "which stores the last value of each column; use another strategy" if last else ""

    def _check_row(self, x: ArrayLike | Mapping[str, object], *, learning: bool) -> Floats:
        """Return one row as a matrix of one row."""
        x = named_row(x)
        if isinstance(x, dict):
            return self._check_rows(Table.from_rows([x]), learning=learning)
        rows: Any = x[None] if isinstance(x, np.ndarray) else [x]
        return self._check_rows(rows, learning=learning)

    def _compiled_row(self, x: Any, *, learning: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Transform a row in the compiled loop; None if NumPy must handle the row."""
        names = self._row_names(x)
        if names is False:
            return None
        d = len(self.fills_)
        z, indicate = np.empty(d), self.indicator and learning
        fills, counts = (np.empty(d), np.empty(d, dtype=np.int64)) if learning else (None, None)
        done = native.loops.impute_row(  # type: ignore[union-attr]
            x, names, self.strategy, indicate, self.fills_, self.counts_, self.flags_,
            z, fills, counts,
        )  # fmt: skip
        if not done:
            return None
        return z, {"fills_": fills, "counts_": counts, "rows_seen_": self.rows_seen_ + 1}

    def _learn_row(self, x: Any, *, checked: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Return one row as imputed after it was learned; None if a column has no value yet."""
        row = self._compiled_row(x, learning=True)
        if row is None and hasattr(self, "counts_") and self.counts_.all():
            return super()._learn_row(x, checked=checked)
        return row

    def _start(self, d: int) -> None:
        start_states(self, d=d)
        self.places_ = np.arange(0)
        self.flags_ = np.arange(0)

    def _widen(self, d: int) -> None:
        known = self.n_features_in_
        super()._widen(d)
        self.counts_[known:] = self.rows_seen_

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        gaps = np.isnan(X)
        placed = self._place_outputs(gaps, np.maximum(starts.rows, 0))
        if starts.absent.any() or not self.counts_.all():
            return self._begin(X, gaps, starts, placed)
        placed.rows[self.places_] = starts.rows
        return self._arrange(self._fill(X, gaps) if len(X) else X, gaps), placed

    def _begin(
        self, X: Floats, gaps: Array, starts: Starts, placed: Starts
    ) -> tuple[Floats, Starts]:
        """Learn rows as ``_step`` if columns may have their first values in them."""
        n, since = len(X), starts.since
        self.rows_before_ = np.where(starts.absent, self.rows_seen_ + since, self.rows_before_)
        self.counts_ = np.where(starts.absent, 0, self.counts_)
        begin = np.flatnonzero((self.counts_ == 0) & (starts.absent | (starts.rows < 0)))
        unknown = gaps | (np.arange(n)[:, None] < since)
        first = np.where(unknown.all(axis=0), n, unknown.argmin(axis=0) if n else 0)
        own = Starts.none(X.shape[1])._replace(rows=starts.rows.copy())
        own.rows[begin] = first[begin]
        if self.strategy != "zero":
            own.absent[begin] = True
            started = begin[first[begin] < n]
            own.origins[started] = X[first[started], started]
        for mine, out in zip(own, placed, strict=True):
            out[self.places_] = mine
        if n:
            X = self._fill(np.where(unknown, np.nan, X), unknown)
        return self._arrange(X, gaps), placed

    def _merge_block(self, other: Impute, at: Array, known: int) -> Array:
        """Merge counts and fills, and append new indicators in their order."""
        n, more = self.rows_seen_, other.rows_seen_
        counts, fills = np.full(len(self.fills_), more), np.zeros(len(self.fills_))
        counts[at], fills[at] = other.counts_, other.fills_
        if self.strategy == "mean":
            share = counts / np.maximum(self.counts_ + counts, 1)
            fills = self.fills_ + share * (fills - self.fills_)
        elif n:
            fills = np.where(counts > 0, fills, self.fills_)
        self.fills_, self.counts_ = fills, self.counts_ + counts
        before = np.zeros(len(fills), dtype=np.int64)
        before[at] = other.rows_before_
        self.rows_before_ = self.rows_before_ + np.where(np.arange(len(fills)) < known, 0, before)
        return self._join_outputs(other, at, known)

    def _join_outputs(self, other: Impute, at: Array, known: int) -> Array:
        """Append the outputs that only the other has; return the positions of its outputs."""
        places, flags = self.places_.copy(), self.flags_.copy()
        width = known + int(np.count_nonzero(flags >= 0))
        got = [(int(place), 0, j) for j, place in enumerate(other.places_)]
        got += [(int(place), 1, j) for j, place in enumerate(other.flags_) if place >= 0]
        out = np.zeros(len(got), dtype=np.intp)
        for place, is_flag, j in sorted(got):
            mine, table = at[j], flags if is_flag else places
            if (flags[mine] < 0) if is_flag else (mine >= known):
                table[mine], width = width, width + 1
            out[place] = table[mine]
        self.places_, self.flags_ = places, flags
        return out

    def _merge_from(self, other: Impute, at: ColumnPositions | None) -> ColumnPositions:
        merged = super()._merge_from(other, at)
        if at is None or at.origins is None or self.strategy == "zero":
            return merged
        origins = np.full(merged.d, np.nan)
        origins[self.places_] = at.origins
        return merged._replace(origins=origins)

    def _merge_conflict(self, other: Impute) -> str:
        """Return a reason if the other imputed missing values from its own rows."""
        gaps = other.counts_ + other.rows_before_ < other.rows_seen_
        if self.strategy == "zero" or not self.rows_seen_:
            return ""
        if not self.counts_.all():
            return "a column has no value in the first part. Provide its values in all parts"
        if not gaps.any():
            return ""
        return (
            "missing values of the second part were imputed from its own rows. Use "
            "Impute('zero', indicator=True)"
        )

    def _transform_block(self, X: Floats) -> Floats:
        gaps = np.isnan(X)
        ignored = gaps | ((self.counts_ == 0) & bool(self.rows_seen_))  # as a new column of a table
        return self._arrange(np.where(ignored, self.fills_, X).astype(X.dtype, copy=False), gaps)

    def _arrange(self, filled: Floats, gaps: Array) -> Floats:
        """Return inputs and indicators, each at its position."""
        if self.n_features_out_ == filled.shape[1]:
            return filled
        out = np.empty((filled.shape[0], self.n_features_out_), dtype=filled.dtype)
        out[:, self.places_] = filled
        flagged = self.flags_ >= 0
        out[:, self.flags_[flagged]] = gaps[:, flagged]
        return out

    def _place_outputs(self, gaps: Array, first_rows: Array) -> Starts:
        """Place new inputs and indicators; return the starts of the indicators."""
        known, d, width = len(self.places_), len(first_rows), self.n_features_out_
        flags = np.append(self.flags_, np.full(d - known, -1)) if d > known else self.flags_.copy()
        pending = [(int(first_rows[j]), 0, j) for j in range(known, d)]
        if self.indicator:
            pending += [
                (int(gaps[:, j].argmax()), 1, int(j))
                for j in np.flatnonzero(gaps.any(axis=0))
                if flags[j] < 0
            ]
        starts = Starts.none(width + len(pending))
        if pending:
            places = np.append(self.places_, np.zeros(d - known, dtype=np.intp))
            for at, (row, is_flag, j) in enumerate(sorted(pending), width):
                (flags if is_flag else places)[j] = at
                starts.rows[at] = row
            self.places_, self.flags_ = places, flags
        return starts

    def _fill(self, X: Floats, gaps: Array) -> Floats:
        """Learn n >= 1 rows; return them with missing values imputed."""
        known, filled, gap_columns = self.counts_, X.copy(), np.flatnonzero(gaps.any(axis=0))
        self.counts_ = known + len(X)
        running: Floats = np.zeros((len(X), len(gap_columns)))
        if len(gap_columns):
            self.counts_[gap_columns] -= gaps[:, gap_columns].sum(axis=0)
        if self.strategy == "last":
            running = _last_values(
                X[:, gap_columns], gaps[:, gap_columns], self.fills_[gap_columns]
            )
            self.fills_ = X[-1].astype(np.float64)
            self.fills_[gap_columns] = running[-1]
        elif self.strategy == "mean":
            running = self._means(X, gaps[:, gap_columns], gap_columns, known[gap_columns])
        if len(gap_columns):
            filled[:, gap_columns] = np.where(gaps[:, gap_columns], running, X[:, gap_columns])
        return filled

    def _means(self, X: Floats, holes: Array, gap_columns: Array, known: Array) -> Floats:
        """Learn n >= 1 rows; return the running means of the columns that have gaps."""
        running: Floats = np.zeros((len(X), 0))
        with np.errstate(over="ignore", invalid="ignore"):
            D = X - self.fills_
            if len(gap_columns):
                D[:, gap_columns] = np.where(holes, 0.0, D[:, gap_columns])
                sums = np.cumsum(D[:, gap_columns], axis=0)
                count = known + np.cumsum(~holes, axis=0)
                running = self.fills_[gap_columns] + sums / np.maximum(count, 1)
            self.fills_ = self.fills_ + D.sum(axis=0) / np.maximum(self.counts_, 1)
        self._refuse_overflow(X)
        return running

    def _refuse_overflow(self, X: Floats) -> None:
        if not np.isfinite(self.fills_).all():
            j = int(np.flatnonzero(~np.isfinite(self.fills_))[0])
            raise NumericalError(
                "the sum of the values of a column so far must be within float64, got values up to "
                f"{np.nanmax(np.abs(X[:, j])):g} in column {self._names_in()[j]!r}. Rescale the "
                "column by a constant. If these values are small, an earlier row was large: "
                "restore a model saved before that row."
            )


def _last_values(X: Floats, gaps: Array, before: Floats) -> Floats:
    """Return the last value of each column up to each row, (n, d).

    Before the first value of a column, it is the value in ``before`` (d,).
    """
    rows = np.maximum.accumulate(np.where(gaps, -1, np.arange(len(X))[:, None]), axis=0)
    return np.where(rows >= 0, np.take_along_axis(X, np.maximum(rows, 0), axis=0), before)
