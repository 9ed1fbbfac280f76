"""Encode: numbers, text and dates as one matrix of numbers, in one pass, columns in any order.

Columns are found by their names. A column comes in with its first value, and so does each category:
new output columns are appended at the end, those of an earlier row before those of a later one.
What has never been seen is 0.

======= ========================================================================================
numbers as they are; nan where missing, for :class:`onepass.features.Impute`
truths  0 and 1; nan where missing
text    a column for each category, 1 where the row has it (``"onehot"``); or +1 or -1 in one of
        ``hash_size`` columns, both told by the text's hash (``"hash"``) [1]; all 0 where missing
dates   sine and cosine of the phase in the day, the week and the year; nan where missing
======= ========================================================================================

Cost: O(width) time a row; memory of the categories, at most ``max_categories`` a column.

[1] K. Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009;
    section 2.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from onepass.errors import Array, ColumnError, Floats, ParameterError
from onepass.features.columns import Number
from onepass.features.dates import CYCLES
from onepass.features.intake import are_dicts, hold_kinds, hold_whole, incoming
from onepass.features.layout import Columns, encoded, extended
from onepass.features.union import NamedColumns
from onepass.validation.table import Table, named_row

__all__ = ["Encode"]

_CHOICES = {
    "categories": ("onehot", "hash"), "extra": ("learn", "ignore", "refuse"),
    "missing": ("keep", "skip", "error"),
}  # fmt: skip


class _Encoded(NamedTuple):
    """A row that brought nothing new, encoded while it was read."""

    row: Floats


class Encode(NamedColumns):
    """Numbers, text and dates as one matrix of numbers.

    Rows may be a Table, a DataFrame, a list of dicts or an array; an array's columns are named
    x0, x1, ... A column that is missing altogether is missing in every row. While nothing is
    learned (``transform``), new columns and new categories light no column: a linear learner would
    not have a weight for them either.

    Parameters
    ----------
    categories : {"onehot", "hash"}, default "onehot"
        How text becomes numbers.
    max_categories : int >= 1, default 1000
        With "onehot": how many categories of a column, the first to come, get an output column
        each. All others share one more.
    hash_size : int >= 1, default 256
        With "hash": output columns for each text column.
    times : sequence of {"hour", "weekday", "yearday", "elapsed"}
        What of a date is given: "hour" is the phase in the day (midnight is 0), "weekday" that in
        the week (whole days, Monday is 0) and "yearday" that in the year (whole days), each as
        sine and cosine; "elapsed" is days since the column's first date. Default: the three
        phases. Time zones are converted to UTC.
    extra : {"learn", "ignore", "refuse"}, default "learn"
        What to do with a column that comes after the first row was learned: "learn" takes it in,
        as if it had been 0 so far, so rows given as dicts may have optional keys; "ignore" passes
        over it; "refuse" raises ColumnError. Only "refuse" minds one in ``transform``.
    seed : int, default 0
        With "hash": another seed, other collisions. The hash is the same on every machine.
    missing : {"keep", "skip", "error"}, default "keep"
        "keep" lets gaps go on, to ``Impute``; the others refuse rows that lack a column's value.
        "skip" also asks who feeds the model to leave them out, as the command line does.

    Attributes
    ----------
    columns_ : dict of str to column, or None for one that has shown no value yet
        What is known of each input column, in order of arrival.
    layout_ : list of str
        The names of the output columns.

    Raises
    ------
    ParameterError
        If a parameter is outside its range.
    TypeMismatchError
        If a column changes its kind: text where numbers were.
    ColumnError
        If a column is refused, or a frame has none of the columns that were learned.

    Examples
    --------
    >>> encode = Encode()
    >>> encode.learn_transform([{"km": 3.0, "by": "air"}, {"by": "sea", "km": 5}]).tolist()
    [[3.0, 1.0, 0.0], [5.0, 0.0, 1.0]]
    >>> encode.get_feature_names_out().tolist()
    ['km', 'by=air', 'by=sea']
    >>> encode.transform([{"by": "rail", "km": 7}]).tolist()
    [[7.0, 0.0, 0.0]]
    """

    by_name = True
    columns_: Columns
    layout_: list[str]
    plain_: bool

    def __init__(
        self,
        categories: Literal["onehot", "hash"] = "onehot",
        max_categories: int = 1000,
        hash_size: int = 256,
        times: Sequence[str] = CYCLES,
        extra: Literal["learn", "ignore", "refuse"] = "learn",
        seed: int = 0,
        missing: Literal["keep", "skip", "error"] = "keep",
    ) -> None:
        self.categories = categories
        self.max_categories = max_categories
        self.hash_size = hash_size
        self.times = times
        self.extra = extra
        self.seed = seed
        self.missing = missing

    @property
    def n_features_out_(self) -> int:
        """The number of columns that come out now."""
        return len(getattr(self, "layout_", ()))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """The names of the output columns, such as ``"carrier=UA"`` and ``"start.hour_sin"``.

        Parameters
        ----------
        input_features : sequence of str, optional
            If given, it must be the names of the input columns, as learned.

        Raises
        ------
        ColumnError
            If it is not.
        """
        names = list(getattr(self, "columns_", ()))
        if input_features is not None and list(input_features) != names:
            raise ColumnError(
                f"Encode.get_feature_names_out: `input_features` must be the columns learned, "
                f"{names}, got {list(input_features)}. Leave it out."
            )
        return np.array(getattr(self, "layout_", []), dtype=object)

    # -- reading -----------------------------------------------------------------------------------

    def read_rows(self, X: Any, where: str, *, learning: bool) -> Any:
        """A table of columns of the kinds known, or an array where all are numbers."""
        columns = getattr(self, "columns_", None) or None  # none known yet: any will do
        rows = incoming(X, None if columns is None else list(columns), where)
        if isinstance(rows, np.ndarray):
            if columns is None or self.plain_:
                return hold_whole(rows, (), where, self.missing)
            rows = Table(dict(zip(columns, rows.T.astype(np.float64), strict=True)), len(rows))
        rows = rows.select(self._wanted(rows, X, where, learning=learning))
        hold_kinds(rows, columns or {}, where)
        return hold_whole(rows, [n for n, c in (columns or {}).items() if c], where, self.missing)

    def read_row(self, x: Any, where: str, *, learning: bool) -> Any:
        """The same of one row; encoded at once where it brings nothing new."""
        if not isinstance(x := named_row(x), Mapping):
            rows = x[None] if isinstance(x, np.ndarray) else [x]
            return self.read_rows(rows, where, learning=learning)
        row = self._encoded(x) if hasattr(self, "columns_") and self.missing == "keep" else None
        return self.read_rows([x], where, learning=learning) if row is None else _Encoded(row)

    def _wanted(self, rows: Table, X: Any, where: str, *, learning: bool) -> list[str]:
        """The names of the columns to take; the rest is passed over, or refused."""
        known: Columns = getattr(self, "columns_", {})
        if not getattr(self, "rows_seen_", 0):
            if not learning or self.extra == "learn" or not are_dicts(X):
                return rows.names
            first = map(str, X[0])  # the first row's keys, however the rows are cut
            known = known | dict.fromkeys(first)
        extra = [name for name in rows.names if name not in known]
        taken = [name for name in rows.names if name in known]
        if extra and self.extra == "refuse":
            raise ColumnError(
                f"{where}: `X` must have the columns learned so far, got {extra[0]!r} too. "
                'Leave it out, or construct Encode(extra="ignore") or Encode(extra="learn").'
            )
        if learning and self.extra == "learn":
            return rows.names
        if extra and known and not taken and not are_dicts(X):
            raise ColumnError(
                f"{where}: `X` must have columns that were learned, such as "
                f"{next(iter(known))!r}, got none of them, but {extra[0]!r}. Check the source."
            )
        return taken

    def _encoded(self, x: Mapping[str, Any]) -> Floats | None:
        """A row of known columns and plain values; None for any other, which tables see to."""
        columns, out = self.columns_, np.zeros((1, len(self.layout_)))
        row = out[0]
        for name, value in x.items():
            column = columns.get(name)
            if column is None and value is None and name in columns:
                continue
            if column is None or not column.write_one(value, row):
                return None
        if len(x) < len(columns):
            for name, column in columns.items():
                if name not in x and column is not None:
                    column.write_one(None, row)
        return out

    # -- learning ----------------------------------------------------------------------------------

    def _start(self) -> None:
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ParameterError(
                    f"Encode: `{name}` must be one of {known}, got {value!r}. Choose one of these."
                )
        for name in ("max_categories", "hash_size"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ParameterError(
                    f"Encode: `{name}` must be a whole number >= 1, got {value!r}. "
                    "Construct it with another."
                )
        if not isinstance(self.seed, (int, np.integer)) or isinstance(self.seed, bool):
            raise ParameterError(
                f"Encode: `seed` must be a whole number, got {self.seed!r}. Give an int."
            )
        times = (self.times,) if isinstance(self.times, str) else tuple(self.times)
        if isinstance(self.times, str) or not times or not set(times) <= {*CYCLES, "elapsed"}:
            raise ParameterError(
                f"Encode: `times` must be some of {(*CYCLES, 'elapsed')}, got {self.times!r}. "
                "Give a tuple of them; leave out columns of dates that are not wanted."
            )
        self.columns_, self.layout_, self.plain_ = {}, [], True
        self.n_features_in_ = self.rows_seen_ = 0

    def take(self, read: Any, born: Array | None) -> tuple[Floats, Array]:
        """Learn rows; return them encoded, and the row that each output column came with."""
        if not hasattr(self, "columns_"):
            self._start()
        width = len(self.layout_)
        if isinstance(read, _Encoded):
            out, arrived = read.row, np.zeros(width, dtype=np.intp)
        elif isinstance(read, np.ndarray):
            out, arrived = self._numbered(read, born)
        else:
            new = extended(self.columns_, read, width, self._begin)
            if new.names or len(new.columns) > len(self.columns_):
                self._hold(new.columns, new.names)
            out = encoded(new.columns, read, width + len(new.names))
            arrived = np.zeros(out.shape[1], dtype=np.intp)
            for at, row in enumerate(new.rows, width):
                out[:row, at] = 0.0  # a column that has shown no value is 0, not missing
                arrived[at] = row
        self.rows_seen_ += len(out)
        return out, arrived

    def ask(self, read: Any) -> Floats:
        """The rows encoded by what is known; new columns and categories light nothing."""
        if isinstance(read, _Encoded):
            return read.row
        if isinstance(read, np.ndarray):
            return read.copy()
        return encoded(getattr(self, "columns_", {}), read, self.n_features_out_)

    def _numbered(self, X: Floats, born: Array | None) -> tuple[Floats, Array]:
        """Numbers without names, each column known to be one from the start."""
        known, d = self.n_features_in_, X.shape[1]
        if d > known and not self.plain_:
            raise ParameterError(
                "Encode.grow: columns must be numbers without names, got tables so far. Leave it "
                "out: columns of tables are taken in when they come."
            )
        if d > known:
            new: Columns = {f"x{j}": Number(at=j, since=self.rows_seen_) for j in range(known, d)}
            self._hold(self.columns_ | new, list(new))
        return X.copy(), np.zeros(d, dtype=np.intp) if born is None else born

    def _hold(self, columns: Columns, new: list[str]) -> None:
        """Know these columns, and the outputs that came."""
        self.columns_ = columns
        self.layout_ = [*self.layout_, *new]
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array(list(columns), dtype=object)
        self.plain_ = all(
            column is not None and column.code == "f" and column.at == j
            for j, column in enumerate(columns.values())
        )
