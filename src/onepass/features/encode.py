"""Encoding of numbers, text and dates as one numeric matrix, in one pass.

Columns are matched by name. A column or a category is added with its first value: new output
columns are appended row by row, and within a row in the order of the input columns, so that the
layout does not depend on how the stream is cut into blocks. In the rows before, outputs are 0, but
for the following steps a column of numbers or dates was at its first value: absent is not zero.

======= ========================================================================================
numbers unchanged; nan where missing, for :class:`onepass.features.Impute`, or 0 if ``absent=0``
bools   0 and 1; nan where missing
text    a column for each category, 1 where the row has it (``"onehot"``), and for categories
        after the first ``max_categories``, or for all (``"hash"``), +1 or -1 in one of a fixed
        number of columns, selected by the hash of the text [1]; all 0 where missing
dates   sine and cosine of the phase in the day, the week and the year; nan where missing
======= ========================================================================================

On a merge, the rows of the second encoder follow those of the first: columns and categories that
only the second has are appended in its order.

Cost: O(width) time per row; memory of the categories, at most ``max_categories`` per column.

[1] K. Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009;
    section 2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from sklearn.base import clone

from onepass import native, validation
from onepass.declared import State, check_parameters, param
from onepass.errors import (
    ColumnError,
    ManyCategoriesWarning,
    MergeError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    public,
)
from onepass.features.columns import CYCLES, Column, Date, Hashed, Number, Text
from onepass.features.transformer import Starts, Transformer
from onepass.types import Array, Floats
from onepass.validation.arrays import ColumnPositions, check_values
from onepass.validation.table import (
    Table,
    TableLike,
    check_encodable,
    dates_of_text,
    is_frame,
    is_missing,
    named_row,
    to_column,
)

_SHARED = 32  # columns for the categories of a column that exceed max_categories
_KINDS = {"f": "numbers", "O": "text", "M": "dates"}
_REMEDIES = {
    "f": "Convert the column, as op.stream.read(X, dtypes=model.dtypes_) does, or rename it.",
    "O": "Convert the column to text, or rename it.",
    "M": "Pass datetime objects, datetime64 values or text in ISO 8601; "
    "op.stream.read(X, dtypes=model.dtypes_) parses other text. Or rename the column.",
}


def _are_dicts(X: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Return whether X is a sequence of dicts."""
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], Mapping)


def to_table(X: TableLike, names: Sequence[str] | None) -> Floats | Table:
    """Convert rows to a table, or to an array (n, d) if they are numbers without names."""
    if isinstance(X, Table):
        return X
    if is_frame(X):
        return Table.from_frame(X)
    if _are_dicts(X):
        return Table.from_rows(X)
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # sparse matrices are rejected below
        raise TypeMismatchError(
            "`X` must be rows, got one dict. Pass a list of dicts, a frame or an "
            "array; learn_one and predict_one of a Pipeline accept one dict."
        )
    if isinstance(X, (list, tuple)) and not X:
        return Table({}, 0)
    array = _mixed_matrix(X)
    if array is None:
        d = None if names is None else len(names)
        return validation.matrix(X, d=d, names=names, missing=True)[0]
    if names is not None and array.shape[1] != len(names):
        raise ShapeError(
            f"`X` must have {len(names)} columns, as learned, got {array.shape[1]}. "
            "Pass a frame or dicts to match columns by name."
        )
    named = [f"x{j}" for j in range(array.shape[1])] if names is None else names
    columns = {name: to_column(array[:, j], name) for j, name in enumerate(named)}
    return Table(columns, array.shape[0])


def _with_fitted_kinds(table: Table, columns: Mapping[str, Column | None]) -> Table:
    """Return the table with columns of the fitted types: dates may be text in ISO 8601.

    Other types, infinity, and text that UTF-8 cannot encode are rejected.
    """
    found = dict(table.columns)
    for name, values in table.columns.items():
        column, kind = columns.get(name), values.dtype.kind
        if column is not None and (column.code, kind) == ("M", "O"):
            dates = dates_of_text(values.tolist(), f"column {name!r}")
            if dates is not None:
                found[name] = dates
                continue
        if column is not None and kind != column.code:
            known = ~is_missing(values)
            if known.any():
                i = int(known.argmax())
                raise TypeMismatchError(
                    f"column {name!r} must contain {column.kind}, as in earlier rows",
                    got=f"{_KINDS[kind]}: {str(values[i])!r}",
                    remedy=_REMEDIES[column.code],
                    row=i,
                )
        elif kind == "O":
            check_encodable(values, name)
        elif kind == "f" and np.isinf(values).any():
            i = int(np.isinf(values).argmax())
            raise NotFiniteError(
                "`X` must be finite or missing",
                got=values[i],
                remedy=(
                    "Drop the row, or replace the value by nan and impute it with "
                    "op.features.Impute()."
                ),
                row=i,
                column=name,
            )
    return Table(found, table.n)


def _check_no_missing(rows: Floats | Table, names: Sequence[str], missing: str) -> Floats | Table:
    """Return the rows; reject a missing value, unless ``missing`` is "keep"."""
    if missing == "keep":
        return rows
    if isinstance(rows, np.ndarray):
        columns: dict[str, Array] = {f"x{j}": column for j, column in enumerate(rows.T)}
    else:
        columns = rows.columns
    absent = [name for name in names if name not in columns]
    for name in [*absent, *columns]:
        gaps = np.ones(len(rows), dtype=bool) if name in absent else is_missing(columns[name])
        if gaps.any():
            raise NotFiniteError(
                "`X` must contain a value in every column",
                got="none",
                remedy=(
                    'Drop such rows, as with op.stream.read(..., missing="skip"), '
                    'or use Encode(missing="keep") followed by Impute().'
                ),
                row=int(gaps.argmax()),
                column=name,
            )
    return rows


def _mixed_matrix(X: object) -> Array | None:
    """Return a matrix of text, dates or mixed values; None for any other object."""
    if hasattr(X, "toarray"):
        return None
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths
        return None
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "OUSM":
        return None
    return array if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)


_Columns: TypeAlias = dict[str, Column | None]
"""State of each input column; None before its first value."""


class _Extension(NamedTuple):
    """Columns and outputs that a block of rows adds."""

    columns: _Columns
    """The new state of each input column."""
    names: list[str]
    """The names of the new output columns, in order."""
    rows: list[int]
    """The first row that needs each new output column."""


def _extend(
    columns: _Columns, table: Table, width: int, begin: Callable[[Array, int], Column]
) -> _Extension:
    """Add the columns and outputs that first appear in these rows."""
    after = columns | {name: None for name in table.names if name not in columns}
    pending: list[tuple[int, int, int, str, str]] = []
    for position, (name, column) in enumerate(after.items()):
        values = table.columns.get(name)
        if values is None:
            continue
        if column is None:
            known = ~is_missing(values)
            if not known.any():
                continue
            after[name] = column = begin(values, int(known.argmax()))  # noqa: PLW2901
        if values.dtype.kind == column.code:
            pending += [
                (row, position, i, name, label)
                for i, (row, label) in enumerate(column.new_outputs(values))
            ]
    pending.sort()
    return _Extension(
        _place_outputs(after, [(name, label) for *_, name, label in pending], width),
        [name + label for *_, name, label in pending],
        [row for row, *_ in pending],
    )


def _encode_table(columns: Mapping[str, Column | None], table: Table, width: int) -> Floats:
    """Encode the rows of a table as an array of shape (n, width)."""
    check_values(table.n, width)
    out = np.zeros((table.n, width))
    for name, column in columns.items():
        if column is not None:
            values = table.columns.get(name)
            fits = values is not None and values.dtype.kind == column.code
            column.encode_rows(values if fits else None, out)
    return out


def _place_outputs(columns: _Columns, pending: Iterable[tuple[str, str]], width: int) -> _Columns:
    """Assign positions to new outputs, starting at ``width``."""
    places: dict[str, dict[str, int]] = {}
    for at, (name, label) in enumerate(pending, width):
        places.setdefault(name, {})[label] = at
    for name, new in places.items():
        column = columns[name]
        if column is not None:
            columns[name] = column.with_outputs(new)
    return columns


class _MergedLayout(NamedTuple):
    """The columns of two encoders."""

    columns: _Columns
    layout: list[str]
    """The names of the output columns."""
    at: Array
    """Position of each output of the second, (width′,)."""


def _merge_layouts(one: Encode, other: Encode) -> _MergedLayout:
    """Merge the columns of two encoders, with the position of each output of the second."""
    layout = list(one.layout_)
    mine = _output_keys(one)
    known = {owner: at for at, owner in enumerate(mine)}
    at: list[int] = []
    new: dict[str, dict[str, int]] = {}
    for owner, label in zip(_output_keys(other), other.layout_, strict=True):
        place = known.get(owner)
        if place is None:
            place = len(layout)
            layout.append(label)
            new.setdefault(owner[0], {})[owner[1]] = place
        at.append(place)
    columns: _Columns = dict(one.columns_)
    for name, theirs in other.columns_.items():
        column = columns.setdefault(name, None)
        if theirs is None:
            continue
        _check_one_kind(name, column, theirs)
        if column is None:
            column = theirs.without_outputs(one.rows_seen_ + theirs.since)
        if name in new:
            column = column.with_outputs(new[name])
        _check_room(name, column)
        columns[name] = column
    return _MergedLayout(columns, layout, np.array(at, dtype=np.intp))


def _origins(columns: Mapping[str, Column | None], width: int) -> Floats:
    """Return the origin of each output; nan if it is 0 before the first value."""
    origins = np.full(width, np.nan)
    for column in columns.values():
        if column is not None and column.origins is not None:
            origins[column.outputs] = column.origins
    return origins


def _output_keys(encode: Encode) -> list[tuple[str, str]]:
    """Return the column name and the label within the column for each output."""
    owner = [("", "")] * len(encode.layout_)
    for name, column in encode.columns_.items():
        for place in () if column is None else column.outputs:
            owner[place] = (name, encode.layout_[place][len(name) :])
    return owner


def _check_one_kind(name: str, mine: Column | None, theirs: Column) -> None:
    if mine is not None and not mine.is_compatible(theirs):
        requirement = f"must contain {mine.kind}, as in the first, got {theirs.kind}"
        if mine.kind == theirs.kind:
            requirement = (
                "must have its days counted from the same date in both, got two dates. Remove "
                "'elapsed' from Encode(times=...)"
            )
        raise MergeError(f"column {name!r} {requirement}. Use the same columns in all parts.")


def _check_room(name: str, column: Column) -> None:
    """Reject more categories than ``max_categories``: their order of appearance is unknown."""
    if column.exceeds_limit:
        raise MergeError(
            f"column {name!r} must have no more categories in both parts together than "
            f"Encode(max_categories=...) allows, got {len(column.outputs)} or more. "
            'Increase it, or use Encode(categories="hash").'
        )


@dataclass(eq=False, repr=False)
class Encode(Transformer):
    """Encode numbers, text and dates as one matrix of numbers.

    Rows may be a Table, a DataFrame, a list of dicts or an array; the columns of an array are named
    x0, x1, ... The values of an absent column are missing in every row. In ``transform``, new
    columns and new categories are ignored.

    Parameters
    ----------
    categories : {"onehot", "hash"}, default "onehot"
        Encoding of text.
    max_categories : int >= 1, default 100
        With "onehot": number of categories of a column, in order of appearance, that have an output
        column each. All further categories are hashed to 32 columns (or ``max_categories``, if
        there are fewer), with a ManyCategoriesWarning.
    hash_size : int >= 1, default 256
        With "hash": number of output columns for each text column.
    times : sequence of {"hour", "weekday", "month", "yearday", "elapsed"}
        Encoding of dates: "hour" is the phase in the day (midnight is 0), "weekday" the phase in
        the week (whole days, Monday is 0), "month" and "yearday" the phase in the year (whole
        months, and whole days), each as sine and cosine; "elapsed" is days since the first date of
        the column. Default: "hour", "weekday" and "month", as a coefficient of "yearday" that was
        learned from a few days extrapolates badly. Time zones are converted to UTC.
    extra : {"learn", "ignore", "refuse"}, default "learn"
        How to handle a column that first appears after the first row was learned: "learn" adds it,
        as if it had been 0 so far, so rows given as dicts may have optional keys; "ignore" ignores
        it; "refuse" raises ColumnError, also in ``transform``.
    seed : int, default 0
        With "hash": seed of the hash, which is the same on every machine.
    missing : {"keep", "skip", "error"}, default "keep"
        How to handle missing values: "keep" passes them on, for ``Impute``; "skip" and "error"
        raise an error for rows that lack a value. With "skip", the command line drops such rows.
    absent : 0 or None, default None
        The value of numbers that a row lacks. None: they are missing (see ``missing``), and before
        its first value a column counts as constant, at that value. 0 is for sparse rows, such as
        counts of words, in which a column without a value is 0.

    Attributes
    ----------
    columns_ : dict of str to column, or None before its first value
        State of each input column, in order of appearance.
    layout_ : list of str
        The names of the output columns.

    Raises
    ------
    ParameterError
        If a parameter is outside its range.
    TypeMismatchError
        If a column changes its type, such as from numbers to text; dates may become text in
        ISO 8601.
    ColumnError
        If a column is rejected, or a frame has none of the fitted columns.

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

    _by_name = True
    _merging = "exact"

    columns_ = State[_Columns]()
    layout_ = State[list[str]]()
    plain_ = State[bool]()

    @property
    def _stored_rows(self) -> str:
        """What the state contains of single rows after ``_remove_rows``; empty if nothing."""
        return "which stores the first date; leave out 'elapsed'" if "elapsed" in self.times else ""

    def _remove_rows(self) -> None:
        """Remove first values, which only 'elapsed' and merges of different columns need."""
        none: dict[type, dict[str, int]] = {Date: {"origin": 0}, Number: {"first": 0}}
        self.columns_ = {
            name: column and replace(column, **none.get(type(column), {}))
            for name, column in self.columns_.items()
        }

    categories: Literal["onehot", "hash"] = param("onehot", choices=("onehot", "hash"))
    max_categories: int = param(100, whole=True, low=1)
    hash_size: int = param(256, whole=True, low=1)
    times: Sequence[str] = ("hour", "weekday", "month")
    extra: Literal["learn", "ignore", "refuse"] = param(
        "learn", choices=("learn", "ignore", "refuse")
    )
    seed: int = param(0, whole=True, low=0)
    missing: Literal["keep", "skip", "error"] = param("keep", choices=("keep", "skip", "error"))
    absent: Literal[0] | None = None

    @property
    def n_features_out_(self) -> int:
        """Current number of output columns."""
        return len(getattr(self, "layout_", ()))

    @public
    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the output columns, such as ``"carrier=UA"``, ``"start.hour_sin"``.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the input columns; by default those seen while learning. Columns learned with
            names must be given by these names.

        Raises
        ------
        ColumnError
            If ``input_features`` differs from the names of the learned columns.
        """
        given = self._names_in(input_features)
        names = np.array(self.layout_, dtype=object)
        for new, (old, column) in zip(given, self.columns_.items(), strict=True):
            for at in column.outputs if column and new != old else ():
                names[at] = new + names[at].removeprefix(old)
        return names

    # -- reading -----------------------------------------------------------------------------------

    def _check_rows(self, X: TableLike, *, learning: bool) -> Floats | Table:
        """Return a table of columns of the fitted types, or an array if all are numbers."""
        columns = getattr(self, "columns_", None) or None  # not fitted: any columns
        rows = to_table(X, None if columns is None else list(columns))
        if isinstance(rows, np.ndarray):
            if columns is None or self.plain_:
                return _check_no_missing(rows, (), self.missing)
            rows = Table(dict(zip(columns, rows.T.astype(np.float64), strict=True)), len(rows))
        rows = rows.select(self._select_names(rows, X, learning=learning))
        rows = _with_fitted_kinds(rows, columns or {})
        return _check_no_missing(rows, [n for n, c in (columns or {}).items() if c], self.missing)

    def _select_names(self, rows: Table, X: object, *, learning: bool) -> list[str]:
        """Return the names of the columns to encode; ignore or reject other columns."""
        known: _Columns = getattr(self, "columns_", {})
        if not getattr(self, "rows_seen_", 0):
            if not learning or self.extra == "learn" or not _are_dicts(X):
                return rows.names
            first = map(str, X[0])  # keys of the first row, independent of the block size
            known = known | dict.fromkeys(first)
        extra = [name for name in rows.names if name not in known]
        taken = [name for name in rows.names if name in known]
        if extra and self.extra == "refuse":
            raise ColumnError(
                f"`X` must have only learned columns, got also {extra[0]!r}. Leave it "
                'out, or construct Encode(extra="ignore") or Encode(extra="learn").'
            )
        if learning and self.extra == "learn":
            return rows.names
        if extra and known and not taken and not _are_dicts(X):
            raise ColumnError(
                f"`X` must have columns that were learned, such as {next(iter(known))!r}, got only "
                f"new columns, such as {extra[0]!r}. Check the source."
            )
        return taken

    def _encode_row(self, x: object) -> Floats | None:
        """Encode a dict of fitted columns and plain values; None for any other row."""
        x = named_row(x)
        if not isinstance(x, dict) or self.missing != "keep" or not hasattr(self, "columns_"):
            return None
        columns, width = self.columns_, len(self.layout_)
        row = np.empty(width)
        loops = native.loops if self.absent is None else None
        if loops is not None and loops.encode_row(x, columns, Number, Text, width, row):
            return row
        row[:] = 0.0  # dates and hashed text, which the compiled loop does not support
        for name, value in x.items():
            column = columns.get(name)
            if column is None and value is None and name in columns:
                continue
            if column is None or not column.encode_value(value, row):
                return None
        if len(x) < len(columns):
            for name, column in columns.items():
                if name not in x and column is not None:
                    column.encode_value(None, row)
        return row

    def _learn_row(self, x: Any, *, checked: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Return one row as encoded after it was learned, and the new attributes."""
        row = self._encode_row(x)
        if row is None:
            return super()._learn_row(x, checked=checked)
        return row, {"rows_seen_": self.rows_seen_ + 1}

    def _transform_row(self, x: Any, *, checked: bool) -> Floats:
        """Encode one row; new columns and categories are ignored."""
        row = self._encode_row(x)
        return super()._transform_row(x, checked=checked) if row is None else row

    # -- merging -----------------------------------------------------------------------------------

    def _merge_from(self, other: Encode, at: ColumnPositions | None) -> ColumnPositions:
        """Append the columns and categories of the other, in the order in which they appeared."""
        if not hasattr(self, "columns_"):
            self._start()
        rows = self.rows_seen_ + other.rows_seen_
        if at is not None:  # numbers from the preceding transformer
            self._learn_rows(np.empty((0, at.d)), None)
            self.rows_seen_ = rows
            return at
        both, known = _merge_layouts(self, other), len(self.layout_)
        self._set_columns(both.columns, both.layout[known:])
        self.rows_seen_ = rows
        origins = _origins(both.columns, len(both.layout))
        origins[:known] = np.nan
        return ColumnPositions(both.at, len(both.layout), both.layout, origins)

    def _merge_conflict(self, other: Encode) -> str:
        """Return a reason if this encoder would have encoded the other's rows differently."""
        if not self.rows_seen_:
            return ""
        for name, mine in self.columns_.items():
            theirs = other.columns_.get(name)
            if mine is None or mine.code == "O":
                continue  # unfitted, or a missing text is 0 in both
            if theirs is None or theirs.since:
                rows = other.rows_seen_ if theirs is None else theirs.since
                return (
                    f"column {name!r} had no value in the first {rows:,} rows of the second, where "
                    "it counted as constant, while the first treats it as missing. Provide its "
                    "values in all parts"
                )
        extra = [name for name in other.columns_ if name not in self.columns_]
        if extra and self.extra != "learn":
            return (
                f"the second has a column {extra[0]!r}, which the first would {self.extra}. Remove "
                "it"
            )
        return ""

    # -- learning ----------------------------------------------------------------------------------

    def _start(self) -> None:
        check_parameters(self)
        if self.absent not in (0, None):
            raise ParameterError(
                f"`absent` must be 0 or None, got {self.absent!r}. Pass one of these."
            )
        times = (self.times,) if isinstance(self.times, str) else tuple(self.times)
        if isinstance(self.times, str) or not times or not set(times) <= {*CYCLES, "elapsed"}:
            raise ParameterError(
                f"`times` must be some of {(*CYCLES, 'elapsed')}, got {self.times!r}. "
                'Pass a list of these, such as ["hour", "month"]; remove columns of '
                "dates that are not needed."
            )
        self.columns_, self.layout_, self.plain_ = {}, [], True
        self.n_features_in_ = self.rows_seen_ = 0

    @public
    def _learn_rows(
        self, checked_rows: Floats | Table, starts: Starts | None
    ) -> tuple[Floats, Starts]:
        """Learn the rows; return them encoded, and the starts of the output columns."""
        if not hasattr(self, "columns_"):
            self._start()
        width = len(self.layout_)
        if isinstance(checked_rows, np.ndarray):
            out, starts = self._learn_matrix(checked_rows, starts)
        else:
            new = _extend(self.columns_, checked_rows, width, self._new_column)
            if new.names or len(new.columns) > len(self.columns_):
                self._set_columns(new.columns, new.names)
                self._warn_of_categories(width)
            out = _encode_table(new.columns, checked_rows, width + len(new.names))
            origins = _origins(new.columns, out.shape[1])
            origins[:width] = np.nan
            starts = Starts(np.full(len(origins), -1), ~np.isnan(origins), np.nan_to_num(origins))
            for at, row in enumerate(new.rows, width):
                starts.rows[at] = row
                out[:row, at] = 0.0  # before its first value, a column is not missing
        self.rows_seen_ += len(out)
        return out, starts

    @public
    def _transform_rows(self, checked_rows: Floats | Table) -> Floats:
        """Encode the rows; new columns and categories are ignored."""
        if isinstance(checked_rows, np.ndarray):
            return self._copied(checked_rows)
        return _encode_table(getattr(self, "columns_", {}), checked_rows, self.n_features_out_)

    def _warn_of_categories(self, before: int) -> None:
        """Warn of columns whose categories exceed the limit since there were ``before`` outputs."""
        for name, column in self.columns_.items():
            if isinstance(column, Text) and column.others.at >= before:
                warnings.warn(
                    f"Encode: column {name!r} has more than {column.limit:,} categories: all "
                    f"further ones share {column.others.size} hashed columns. Drop the column if "
                    "its values identify rows. encode__max_categories=N gives N categories a "
                    "column each; the time per row of recursive least squares is quadratic in the "
                    f"number of columns, now {len(self.layout_):,}.",
                    ManyCategoriesWarning,
                    stacklevel=2,
                )

    def _new_column(self, values: Array, first: int) -> Column:
        """Return the state of a column whose first value is in row ``first``."""
        since = self.rows_seen_ + first
        if values.dtype.kind == "f":
            return Number(since=since, sparse=self.absent == 0, first=float(values[first]))
        if values.dtype.kind == "M":
            origin = int(values[first].astype("datetime64[us]").astype(np.int64))
            return Date(parts=tuple(self.times), origin=origin, since=since)
        if self.categories == "hash":
            return Hashed(size=self.hash_size, seed=self.seed, since=since)
        others = Hashed(size=min(self.max_categories, _SHARED), seed=self.seed)
        return Text(limit=self.max_categories, since=since, others=others)

    def _novel_rows(self, checked_rows: Floats | Table) -> Array:
        """Return the rows that bring new columns."""
        if isinstance(checked_rows, np.ndarray) or not len(checked_rows):
            return np.zeros(0, dtype=np.intp)
        encode = self
        if not hasattr(self, "columns_"):
            encode = clone(self)
            encode._start()  # noqa: SLF001  a copy
        width = len(encode.layout_)
        new = _extend(encode.columns_, checked_rows, width, encode._new_column)  # noqa: SLF001
        rows: Array = np.unique(np.array(new.rows, dtype=np.intp))
        return rows

    def _learn_matrix(self, X: Floats, starts: Starts | None) -> tuple[Floats, Starts]:
        """Learn numbers without names, whose columns are numbers from the start."""
        known, d = self.n_features_in_, X.shape[1]
        if d > known and not self.plain_:
            raise ParameterError(
                "columns must be numbers without names, got tables so far. Remove the "
                "call: columns of tables are added when they first appear."
            )
        if d > known:
            sparse, since = self.absent == 0, self.rows_seen_
            new: _Columns = {
                f"x{j}": Number(at=j, since=since, sparse=sparse) for j in range(known, d)
            }
            self._set_columns(self.columns_ | new, list(new))
        return self._copied(X), Starts.none(d) if starts is None else starts

    def _copied(self, X: Floats) -> Floats:
        """Return a copy of numbers without names."""
        return X.copy() if self.absent is None else np.nan_to_num(X, nan=0.0)

    def _set_columns(self, columns: _Columns, new: list[str]) -> None:
        """Set the columns, and append new outputs."""
        self.columns_ = columns
        self.layout_ = [*self.layout_, *new]
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array(list(columns), dtype=object)
        self.plain_ = all(
            column is not None and column.code == "f" and column.at == j
            for j, column in enumerate(columns.values())
        )
