"""Lagged targets, and lagged columns, as further features.

Row t gets the target of row t − r for each r in ``rows``. Targets are stored after their row was
transformed, so no row is predicted from its own target. In ``transform``, lags are counted from the
last targets learned, the same ones for each row.

With a delay of D rows, the last target known when row t arrives is that of row t − D, so r >= D. A
row is learned just before row t + D; between the two, D − 1 further targets were learned:

    learned     the r-th last target
    predicted   the (r − D + 1)-th last target                                          (1)

Both are the target of row t − r, so that a row is learned with the features that predicted it.

An inner :class:`onepass.features.Encode` encodes the lags: numbers unchanged, and labels one-hot. A
lag has no columns until it is first known; they are 0 in earlier rows.

On a merge, the rows of the second follow those of the first. The lags in its first rows remain as
they were learned, that is, unknown.

Cost: O(columns) time per row; memory of the last max(rows) targets.
"""

import copy
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from onepass import validation
from onepass.errors import ColumnError, ParameterError
from onepass.features.encode import Encode
from onepass.features.transformer import Columnwise, all_or_nothing, matrix_with_gaps
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.table import Table, TableLike

__all__ = ["Lag", "lagged_labels"]


def lagged_labels(labels: Array) -> Array:
    """Return labels as text, which ``Lag`` encodes one-hot."""
    out = np.empty(len(labels), dtype=object)
    out[:] = list(map(str, labels.tolist()))
    return out


class Lag(Columnwise):
    """Append the targets of earlier rows, and the values of some columns there, as features.

    In a Pipeline, targets are passed to this step; it usually follows ``Encode``. Targets of a
    regressor are numbers, and labels of a classifier are encoded as one column each.

    Parameters
    ----------
    target : bool, default True
        Whether to append lagged targets.
    rows : sequence of int >= 1, default (1,)
        The lags: 1 is the previous row.
    columns : sequence of str, default ()
        Names of input columns of which to append the lagged values; they may be missing.
    delay : int >= 0, default 0
        Number of rows after which a target arrives, as in ``op.evaluate.prequential``. Lags must
        not be smaller.

    Attributes
    ----------
    recent_ : dict of str to ndarray
        The last max(rows) targets, and values of ``columns``.

    Raises
    ------
    ParameterError
        If a lag is not a whole number, occurs twice, or is smaller than the delay.
    ColumnError
        If the input lacks one of ``columns``.

    Examples
    --------
    >>> lag = Lag(rows=(1, 2))
    >>> lag.learn_transform([[7.0], [8.0], [9.0]], [0.1, 0.2, 0.3]).tolist()
    [[7.0, 0.0, 0.0], [8.0, 0.1, 0.0], [9.0, 0.2, 0.1]]
    >>> lag.transform([[5.0]]).tolist(), lag.get_feature_names_out().tolist()
    ([[5.0, 0.3, 0.2]], ['x0', 'target lag 1', 'target lag 2'])
    """

    merging: ClassVar[str] = "approximate"
    _matrix = staticmethod(matrix_with_gaps)

    lags_: list[int]
    recent_: dict[str, Array]
    encode_: Encode
    order_: Array

    def __init__(
        self,
        target: bool = True,  # noqa: FBT001, FBT002  sklearn's style of switches
        rows: Sequence[int] = (1,),
        columns: Sequence[str] = (),
        delay: int = 0,
    ) -> None:
        self.target = target
        self.rows = rows
        self.columns = columns
        self.delay = delay

    @property
    def uses_targets(self) -> bool:
        """Whether targets are learned."""
        return bool(self.target)

    @property
    def n_features_out_(self) -> int:
        """Number of output columns: inputs and lags."""
        return len(getattr(self, "order_", ()))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the outputs, such as ``"target lag 1"`` or ``"target lag 1=up"``."""
        if not hasattr(self, "order_"):
            return np.array([], dtype=object)
        names = [*self._names_in(input_features), *self.encode_.layout_]
        return np.array(names, dtype=object)[self._selection()]

    def learn(self, X: TableLike, y: ArrayLike | None = None) -> Self:
        """Learn the rows and their targets one after the other.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or (n, c)
            The targets, unless ``target`` is False.
        """
        self._public(X, "learn", y)
        return self

    def learn_transform(self, X: TableLike, y: ArrayLike | None = None) -> Floats:
        """Learn the rows; return each row with its lags.

        Parameters
        ----------
        X, y
            As in ``learn``.
        """
        return self._public(X, "learn_transform", y)

    def _public(self, X: TableLike, verb: str, y: ArrayLike | None = None) -> Floats:
        with all_or_nothing(self):
            where = f"Lag.{verb}"
            rows = self._check_rows(X, where, learning=True)
            targets = None
            if self.target and np.asarray(y).dtype.kind in "iuf":
                targets = validation.targets(y, len(rows), where)
            elif self.target:
                targets = lagged_labels(validation.labels(y, len(rows), where))
            return self._learn_with_targets(rows, None, targets)[0]

    # -- hooks -----------------------------------------------------------------------------------

    def _start(self, d: int) -> None:
        del d
        low = max(validation.whole(self.delay, "delay", "Lag", low=0), 1)
        given = list(self.rows) if isinstance(self.rows, (tuple, list, np.ndarray)) else [self.rows]
        self.lags_ = [validation.whole(lag, "rows", "Lag", low=1) for lag in given]
        if not given or len(set(self.lags_)) < len(given) or min(self.lags_) < low:
            raise ParameterError(
                f"Lag: `rows` must be different whole numbers >= {low}, as targets arrive after "
                f"{low} row(s), got {self.rows!r}. Remove the other lags."
            )
        self.recent_, self.order_ = {}, np.empty(0, dtype=np.intp)
        self.encode_ = Encode(max_categories=1000)
        self.encode_.learn([])

    def _widen(self, d: int) -> None:
        """Do nothing: ``_append`` adds the columns."""

    def _learn_rows(self, checked_rows: Floats, first_rows: Array | None) -> tuple[Floats, Array]:
        return self._learn_with_targets(checked_rows, first_rows, None)

    def _step(self, X: Floats, first_rows: Array) -> tuple[Floats, Array]:
        return X, first_rows

    def _learn_with_targets(
        self, checked_rows: Floats, first_rows: Array | None, y: Array | None
    ) -> tuple[Floats, Array]:
        """Learn the rows; without targets, as in a first prediction, nothing is stored."""
        X, first_rows = super()._learn_rows(checked_rows, first_rows)
        new = self._values(X, y) if len(X) and (y is not None or not self.target) else {}
        series = self._continued(new)
        lags = self._lagged(series, np.arange(-len(X), 0), 0)
        encode = copy.copy(self.encode_)  # of which shallow copies of this object have one
        L, lag_rows = encode._learn_rows(lags, None)  # noqa: SLF001
        known = int((self.order_ >= 0).sum()), int((self.order_ < 0).sum())
        self._append(
            [(int(row), j) for j, row in enumerate(first_rows)][known[0] :]
            + [(int(row), ~j) for j, row in enumerate(lag_rows)][known[1] :]
        )
        self.encode_ = encode
        self.recent_ = self.recent_ | self._last(series)
        at = self._selection()
        return np.hstack([X, L])[:, at], np.concatenate([first_rows, lag_rows])[at]

    def _transform_block(self, X: Floats) -> Floats:
        lags = self._lagged(self.recent_, np.zeros(1, dtype=np.intp), max(self.delay, 1) - 1)
        L = np.repeat(self.encode_._transform_rows(lags), len(X), axis=0)  # noqa: SLF001
        return np.hstack([X, L])[:, self._selection()]

    def _merge_block(self, other: "Lag", at: Array, known: int) -> Array:
        """Append the lags that only the other has; continue with its last targets."""
        del known
        encode = copy.copy(self.encode_)
        lags = encode._merge_from(other.encode_, None, "Lag.merge").at  # noqa: SLF001
        missing = set(range(len(encode.layout_))) - set((~self.order_[self.order_ < 0]).tolist())
        self._append([(0, ~j) for j in sorted(missing)])
        self.encode_ = encode
        self.recent_ = self.recent_ | self._last(self._continued(other.recent_))
        places = {int(column): place for place, column in enumerate(self.order_)}
        mine = [at[j] if j >= 0 else ~lags[~j] for j in other.order_]
        return np.array([places[int(j)] for j in mine], dtype=np.intp)

    def _merge_conflict(self, other: Self) -> str:
        """Return no reason: only the lags of the first rows of the other differ."""
        del other
        return ""

    # -- private -------------------------------------------------------------------------------

    def _append(self, new: list[tuple[int, int]]) -> None:
        """Append output columns in the order of their first rows."""
        self.order_ = np.append(self.order_, [j for _, j in sorted(new, key=_by_row)]).astype(
            np.intp
        )

    def _selection(self) -> Array:
        """Return the position of each output among the inputs, followed by the lags."""
        return np.where(self.order_ >= 0, self.order_, self.n_features_in_ + ~self.order_)

    def _values(self, X: Floats, y: Array | None) -> dict[str, Array]:
        """Return the values of a block to store, by name."""
        names = self._names_in()
        absent = [name for name in self.columns if name not in names]
        if absent:
            raise ColumnError(
                f"Lag: `columns` must be input columns, got {absent[0]!r}. Check the spelling; "
                f"the inputs are {', '.join(names)}."
            )
        values: dict[str, Array] = {name: X[:, names.index(name)] for name in self.columns}
        if y is not None and y.ndim == 1:
            values["target"] = y
        elif y is not None:
            values |= {f"target {j}": column for j, column in enumerate(y.T)}
        return values

    def _continued(self, new: dict[str, Array]) -> dict[str, Array]:
        """Return the stored values, followed by new ones."""
        return {
            name: np.concatenate([self.recent_.get(name, values[:0]), values])
            for name, values in new.items()
        }

    def _last(self, series: dict[str, Array]) -> dict[str, Array]:
        """Return the values that later lags refer to."""
        return {name: values[-max(self.lags_) :].copy() for name, values in series.items()}

    def _lagged(self, series: dict[str, Array], rows: Array, shift: int) -> Table:
        """Return the lags of rows, given by their distance to the end of the series."""
        columns = {}
        for lag in self.lags_:
            for name, values in series.items():
                at = len(values) + rows - (lag - shift)
                column = np.empty(len(rows), dtype=values.dtype)
                column[:] = np.nan if values.dtype.kind == "f" else None
                column[at >= 0] = values[at[at >= 0]]
                columns[f"{name} lag {lag}"] = column
        return Table(columns, len(rows))


def _by_row(new: tuple[int, int]) -> tuple[int, bool, int]:
    """Return the sort key of a new output: its row; inputs before lags."""
    row, j = new
    return row, j < 0, abs(j)
