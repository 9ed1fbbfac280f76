"""Lagged targets as further features.

Row t gets the target of row t − r for each r in ``rows``. The target of a row is stored after the
row was transformed, so no row is predicted from its own target. In ``transform``, the lags of every
row are counted from the last target learned.

With a delay of D rows, the last target known when row t arrives is that of row t − D, so r >= D. A
row is learned just before row t + D; between the two, D − 1 further targets were learned:

    learned     the r-th last target
    predicted   the (r − D + 1)-th last target                                          (1)

Both are the target of row t − r, so a row is learned with the features that predicted it.

With ``difference``, the regressor of the pipeline learns the change since the last known target,
that is, since the shortest lag, which is added to its predictions. A learner whose coefficients
start at 0 then starts at the last value instead of the mean. Rows without a known lag count as
no change.

An inner :class:`onepass.features.Encode` encodes the lags: numbers unchanged, and labels one-hot. A
lag has no column until it is first known; in earlier rows it counts as the first known target.

Cost: O(columns) time per row; memory of the last max(rows) targets.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from onepass import validation
from onepass.declared import State, param
from onepass.errors import ParameterError, public
from onepass.features.encode import Encode
from onepass.features.transformer import (
    Columnwise,
    Starts,
    Transformer,
    all_or_nothing,
)
from onepass.serialization.state import forget
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.table import Table, TableLike


def checked_targets(y: ArrayLike | None, n: int, *, labels: bool, gaps: bool = False) -> Array:
    """Validate targets for ``Lag``: numbers, or labels, which are returned as text.

    With ``gaps``, numbers may be missing, NaN.
    """
    if not labels:
        return validation.targets(y, n, gaps=gaps)
    text = np.empty(n, dtype=object)
    text[:] = [
        str(int(label) if isinstance(label, float) and label.is_integer() else label)
        for label in validation.labels(y, n).tolist()
    ]
    return text


@dataclass(eq=False, repr=False)
class Lag(Columnwise):
    """Append the targets of earlier rows as features.

    In a Pipeline, targets are passed to this step; it usually follows ``Encode``. Targets of a
    regressor are numbers, and labels of a classifier are encoded as one column each.
    A pipeline of scikit-learn also fits the next step to rows with their own lags. The lag of a
    missing target is the last known one.

    Parameters
    ----------
    target : str, default "target"
        The name of the target, for the names of the features.
    rows : int, or sequence of int >= 1, default 1
        The lags: 1 is the previous row.
    delay : int >= 0, default 0
        Number of rows after which a target arrives, as in ``op.evaluate.prequential``. Lags must
        not be smaller.
    difference : bool, default False
        Whether a regressor that follows in a ``Pipeline`` learns the change since the shortest lag.

    Attributes
    ----------
    recent_ : ndarray of shape (m,) or (m, c), or None
        The last m <= max(rows) targets.

    Raises
    ------
    ParameterError
        If a lag is not a whole number, occurs twice, or is smaller than the delay.

    Examples
    --------
    >>> lag = Lag("load", rows=[1, 2])
    >>> lag.learn_transform([[7.0], [8.0], [9.0]], [0.1, 0.2, 0.3]).tolist()
    [[7.0, 0.0, 0.0], [8.0, 0.1, 0.0], [9.0, 0.2, 0.1]]
    >>> lag.transform([[5.0]]).tolist(), lag.get_feature_names_out().tolist()
    ([[5.0, 0.3, 0.2]], ['x0', 'load lag 1', 'load lag 2'])
    """

    _uses_targets = True
    _accepts_missing = True
    _merge_from = Transformer._merge_from  # noqa: SLF001  not supported

    lags_ = State[list[int]]()
    recent_ = State[Array | None]()
    encode_ = State[Encode]()
    order_ = State[Array]()

    target: str = "target"
    rows: int | Sequence[int] = 1
    delay: int = param(0, whole=True, low=0)
    _: KW_ONLY
    difference: bool = False

    @property
    def _relative(self) -> bool:  # type: ignore[override]  # by parameter
        return bool(self.difference)

    @property
    def n_features_out_(self) -> int:
        """Number of output columns: inputs and lags."""
        return len(getattr(self, "order_", ()))

    @public
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the outputs, such as ``"target lag 1"`` or ``"target lag 1=up"``."""
        lags = self.encode_.layout_ if hasattr(self, "encode_") else []
        names = np.array([*self._names_in(input_features), *lags], dtype=object)
        return names[self._selection()] if lags else names

    @public
    def fit_transform(self, X: TableLike, y: ArrayLike | None = None) -> Floats:
        """Reset, then learn the rows; return each row with its own lags.

        ``fit(X, y).transform(X)`` would give all rows the last targets.

        Parameters
        ----------
        X, y
            As in ``fit``.

        Returns
        -------
        ndarray of shape (n, n_features_out_)
        """
        with all_or_nothing(self):
            forget(self)
            return self._learn_public(X, y)

    # -- hooks -----------------------------------------------------------------------------------

    def _learn_public(self, X: TableLike, y: ArrayLike | None) -> Floats:
        with all_or_nothing(self):
            checked_rows = self._check_rows(X, learning=True)
            labels = y is not None and np.asarray(y).dtype.kind not in "iuf"
            targets = checked_targets(y, len(checked_rows), labels=labels, gaps=True)
            return self._learn_with_targets(checked_rows, None, targets)[0]

    def _start(self, d: int) -> None:
        del d
        low = max(self.delay, 1)
        given = np.atleast_1d(self.rows).tolist()
        self.lags_ = [validation.whole(lag, "rows", low=1) for lag in given]
        if not given or len(set(given)) < len(given) or min(given) < low:
            raise ParameterError(
                f"`rows` must be different whole numbers >= {low}, as targets arrive "
                f"after {low} row(s), got {self.rows!r}. Remove the other lags."
            )
        self.recent_, self.order_ = None, np.empty(0, dtype=np.intp)
        self.encode_ = Encode(max_categories=1000)
        self.encode_.learn([])

    def _widen(self, d: int) -> None:
        """Do nothing: ``_learn_with_targets`` appends columns."""

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        return X, starts

    def _merge_block(self, other: Lag, at: Array, known: int) -> Array:
        raise NotImplementedError

    @public
    def _learn_rows(self, checked_rows: Floats, starts: Starts | None) -> tuple[Floats, Starts]:
        return self._learn_with_targets(checked_rows, starts, None)

    def _learn_with_targets(
        self,
        checked_rows: Floats,
        starts: Starts | None,
        y: Array | None,
        learned: Array | None = None,
    ) -> tuple[Floats, Starts]:
        """Learn the rows; without targets, as in a first prediction, nothing is stored.

        With a mask ``learned``, these are the rows that it selects of those with the targets y.
        """
        X, starts = super()._learn_rows(checked_rows, starts)
        series = None if y is None else _continued(self.recent_, y)
        encode = copy.copy(self.encode_)  # so that a shallow copy of this object can learn
        table = self._lagged(series, len(X) if learned is None else len(learned), 0)
        table = table if learned is None else table[learned]
        L, lags = encode._learn_rows(table, None)  # noqa: SLF001
        d, e = np.count_nonzero(self.order_ >= 0), np.count_nonzero(self.order_ < 0)
        new = [(int(row), 0, j) for j, row in enumerate(starts.rows)][d:]
        new += [(int(row), 1, j) for j, row in enumerate(lags.rows)][e:]
        places = [~j if is_lag else j for _, is_lag, j in sorted(new)]
        self.order_ = np.concatenate([self.order_, np.array(places, dtype=np.intp)])
        self.encode_ = encode
        if series is not None:
            self.recent_ = series[-max(self.lags_) :].copy()
        at = self._selection()
        both = Starts(*(np.concatenate(pair)[at] for pair in zip(starts, lags, strict=True)))
        return np.hstack([X, L])[:, at], both

    def _transform_block(self, X: Floats) -> Floats:
        return self._with_lags(X, max(self.delay, 1))

    def _with_lags(self, X: Floats, ahead: int) -> Floats:
        """Return rows, each as the one that is ``ahead`` rows after the last known target."""
        lags = self._lagged(self.recent_, 1, ahead)
        L = self.encode_._transform_rows(lags).repeat(len(X), axis=0)  # noqa: SLF001
        return np.hstack([X, L])[:, self._selection()]

    def _with_own_lags(self, X: Floats, y: Array) -> Floats:
        """Return consecutive rows with the targets y, each with the lags of its position."""
        lags = self._lagged(_continued(self.recent_, y), len(X), 0)
        L = self.encode_._transform_rows(lags)  # noqa: SLF001
        return np.hstack([X, L])[:, self._selection()]

    def _remember(self, y: Array) -> None:
        """Store the targets of the next rows, known or predicted, without learning the rows."""
        self.recent_ = _continued(self.recent_, y)[-max(self.lags_) :]

    # -- private -------------------------------------------------------------------------------

    def _changes(self, past: Array | None, y: Array, learned: Array) -> tuple[Floats, Floats]:
        """Return the targets minus the shortest lag, and that lag; both are 0 if it is unknown.

        ``past`` is ``recent_`` before these rows, and ``learned`` selects the learned ones.
        """
        series = _continued(past, y[learned])
        at = len(series) - learned.sum() + np.cumsum(learned) - learned - min(self.lags_)
        at += np.where(learned, 0, max(self.delay, 1) - 1)  # (1)
        level, known = np.full(y.shape, np.nan), at >= 0
        level[known] = series[at[known]]
        changes = y - level
        changes[np.isnan(level) & ~np.isnan(y)] = 0.0
        return changes, np.nan_to_num(level)

    def _level(self, ahead: int | None = None) -> Any:
        """Return the shortest lag of the row ``ahead`` rows after the last known target, or 0.

        By default it is the row whose prediction is due.
        """
        if self.recent_ is None:
            return 0.0
        at = len(self.recent_) - 1 + (ahead or max(self.delay, 1)) - min(self.lags_)
        return np.nan_to_num(self.recent_[at]) if at >= 0 else 0.0

    def _selection(self) -> Array:
        """Return the position of each output among the inputs, followed by the lags."""
        return np.where(self.order_ >= 0, self.order_, self.n_features_in_ + ~self.order_)

    def _lagged(self, series: Array | None, n: int, shift: int) -> Table:
        """Return the lags of n rows, whose first target is ``shift`` after the n-th last one."""
        columns: dict[str, Array] = {}
        if series is not None:
            several = series.ndim == 2
            for lag in self.lags_:
                at = len(series) - n + shift - lag + np.arange(n)
                for j, values in enumerate(series.T if several else [series]):
                    column = np.full(n, np.nan if values.dtype.kind == "f" else None, values.dtype)
                    column[at >= 0] = values[at[at >= 0]]
                    columns[f"{self.target}{f' {j}' * several} lag {lag}"] = column
        return Table(columns, n)


def _continued(past: Array | None, y: Array) -> Array:
    """Targets after earlier ones; the last known one in place of each that is missing."""
    same = past is not None and past.shape[1:] == y.shape[1:]  # else the learner raises
    series: Array = np.concatenate([past, y]) if same else y
    if series.dtype.kind != "f" or not np.isnan(series).any():
        return series
    known = np.where(np.isnan(series.T), 0, np.arange(len(series)))
    last = np.maximum.accumulate(known, axis=-1).T
    return np.take_along_axis(series, last, axis=0)
