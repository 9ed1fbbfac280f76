"""Encoding of numbers, text and dates as one numeric matrix, in one pass.

Columns are matched by name. A column or a category is added with its first value: new output
columns are appended row by row, and within a row in the order of the input columns, so that the
layout does not depend on how the stream is cut into blocks. Columns and categories that have not
been seen are 0.

======= ========================================================================================
numbers unchanged; nan where missing, for :class:`onepass.features.Impute`
truths  0 and 1; nan where missing
text    a column for each category, 1 where the row has it (``"onehot"``); or +1 or -1 in one of
        ``hash_size`` columns, both given by the text's hash (``"hash"``) [1]; all 0 where missing
dates   sine and cosine of the phase in the day, the week and the year; nan where missing
======= ========================================================================================

On a merge, the rows of the second encoder follow those of the first: columns and categories that
only the second has are appended in its order.

Cost: O(width) time a row; memory of the categories, at most ``max_categories`` a column.

[1] K. Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009;
    section 2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from onepass.errors import (
    ColumnError,
    MergeError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.features.columns import CYCLES, Column, Date, Hashed, Number, Text
from onepass.features.transformer import Transformer, matrix_with_gaps
from onepass.types import Array, ArrayLike, Floats
from onepass.validation.arrays import ColumnPositions, check_values
from onepass.validation.table import (
    Table,
    TableLike,
    check_encodable,
    is_frame,
    is_missing,
    named_row,
    to_column,
)

__all__ = ["Encode"]


_KINDS = {"f": "numbers", "O": "text", "M": "dates"}


def _are_dicts(X: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Whether X is a sequence of rows given as dicts."""
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], Mapping)


def _incoming(X: TableLike, names: Sequence[str] | None, where: str) -> Floats | Table:
    """Rows as a table; as an array (n, d) where they are numbers without names."""
    if isinstance(X, Table):
        return X
    if is_frame(X):
        return Table.from_frame(X)
    if _are_dicts(X):
        return Table.from_rows(X)
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # a sparse one is refused as such
        raise TypeMismatchError(
            f"{where}: `X` must be rows, got one dict. Give a list of dicts, a frame or an array; "
            "learn_one and predict_one of a Pipeline take one dict."
        )
    if isinstance(X, (list, tuple)) and not X:
        return Table({}, 0)
    array = _mixed(X)
    if array is None:
        return matrix_with_gaps(X, where, d=None if names is None else len(names), names=names)[0]
    if names is not None and array.shape[1] != len(names):
        raise ShapeError(
            f"{where}: `X` must have {len(names)} columns, as those learned so far, got "
            f"{array.shape[1]}. Give a frame or dicts to have columns found by name."
        )
    named = [f"x{j}" for j in range(array.shape[1])] if names is None else names
    columns = {name: to_column(array[:, j], name) for j, name in enumerate(named)}
    return Table(columns, array.shape[0])


def _check_kinds(table: Table, columns: Mapping[str, Column | None], where: str) -> None:
    """Refuse a column of another kind than known, infinity, and text that UTF-8 cannot encode."""
    for name, values in table.columns.items():
        column, kind = columns.get(name), values.dtype.kind
        if column is not None and kind != column.code:
            known = ~is_missing(values)
            if known.any():
                i = int(known.argmax())
                raise TypeMismatchError(
                    f"{where}: column {name!r} must hold {column.kind}, as so far, got "
                    f"{_KINDS[kind]}: {str(values[i])!r} in row {i}. "
                    "Convert the column to the kind it had, or give it another name."
                )
        elif kind == "O":
            check_encodable(values, where, name)
        elif kind == "f" and np.isinf(values).any():
            i = int(np.isinf(values).argmax())
            raise NotFiniteError(
                f"{where}: `X` must be finite or missing, got {values[i]} in row {i}, column "
                f"{name!r}. Drop the row, or put nan there and impute it (op.features.Impute())."
            )


def _check_whole(
    rows: Floats | Table, names: Sequence[str], where: str, missing: str
) -> Floats | Table:
    """The rows; refused where one lacks a value, in a column that is there or should be."""
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
                f"{where}: `X` must hold a value in every column, got none in row "
                f"{int(gaps.argmax())}, column {name!r}. Leave such rows out, as with "
                'op.stream.read(..., missing="skip"), or construct Encode(missing="keep") and put '
                "Impute() behind it."
            )
    return rows


def _mixed(X: object) -> Array | None:
    """A matrix of text, dates or mixed values; None where the numbers' way must judge X."""
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
"""What is known of each input column; None for one that has shown no value yet."""


class _Extension(NamedTuple):
    """What a block of rows brings."""

    columns: _Columns
    """What is known of each input column now."""
    names: list[str]
    """The names of the new output columns, in order."""
    rows: list[int]
    """The row that each of them came with."""


def _extended(
    columns: _Columns, table: Table, width: int, begin: Callable[[Array, int], Column]
) -> _Extension:
    """Take in what these rows bring."""
    after = columns | {name: None for name in table.names if name not in columns}
    coming: list[tuple[int, int, int, str, str]] = []
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
            coming += [
                (row, position, i, name, label)
                for i, (row, label) in enumerate(column.arrivals(values))
            ]
    coming.sort()
    return _Extension(
        _placed(after, [(name, label) for *_, name, label in coming], width),
        [name + label for *_, name, label in coming],
        [row for row, *_ in coming],
    )


def _encode_table(columns: Mapping[str, Column | None], table: Table, width: int) -> Floats:
    """The rows of a table as an array of shape (n, width)."""
    check_values(table.n, width, "Encode")
    out = np.zeros((table.n, width))
    for name, column in columns.items():
        if column is not None:
            values = table.columns.get(name)
            fits = values is not None and values.dtype.kind == column.code
            column.write(values if fits else None, out)
    return out


def _placed(columns: _Columns, coming: Iterable[tuple[str, str]], width: int) -> _Columns:
    """The columns, once their new outputs stand from ``width`` on."""
    places: dict[str, dict[str, int]] = {}
    for at, (name, label) in enumerate(coming, width):
        places.setdefault(name, {})[label] = at
    for name, new in places.items():
        column = columns[name]
        if column is not None:
            columns[name] = column.placed(new)
    return columns


class _Union(NamedTuple):
    """The columns of both."""

    columns: _Columns
    layout: list[str]
    """The names of the output columns."""
    at: Array
    """The place of each output of the second, (width′,)."""


def _united(one: "Encode", other: "Encode", where: str) -> _Union:
    """The columns of both, each output of the second with its place among those of both."""
    layout = list(one.layout_)
    mine = _owners(one)
    known = {owner: at for at, owner in enumerate(mine)}
    at: list[int] = []
    new: dict[str, dict[str, int]] = {}
    for owner, label in zip(_owners(other), other.layout_, strict=True):
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
        _check_one_kind(name, column, theirs, where)
        if column is None:
            column = theirs.unplaced(one.rows_seen_ + theirs.since)
        if name in new:
            column = column.placed(new[name])
        _check_room(name, column, where)
        columns[name] = column
    return _Union(columns, layout, np.array(at, dtype=np.intp))


def _owners(encode: "Encode") -> list[tuple[str, str]]:
    """Of each output, the column that it belongs to, and its label there."""
    owner = [("", "")] * len(encode.layout_)
    for name, column in encode.columns_.items():
        for place in () if column is None else column.outputs:
            owner[place] = (name, encode.layout_[place][len(name) :])
    return owner


def _check_one_kind(name: str, mine: Column | None, theirs: Column, where: str) -> None:
    if mine is not None and not mine.alike(theirs):
        kinds = f"{mine.kind}, as in the first, got {theirs.kind}"
        if mine.kind == theirs.kind:
            kinds = "counted from one date, got two. Leave 'elapsed' out of Encode(times=...)"
        raise MergeError(
            f"{where}: column {name!r} must hold {kinds}. Give all parts the same columns."
        )


def _check_room(name: str, column: Column, where: str) -> None:
    """Refuse categories beyond those that have an output each: nobody knows which came first."""
    if column.crowded:
        raise MergeError(
            f"{where}: column {name!r} must have no more categories in both parts together than "
            f"Encode(max_categories=...) allows, got {len(column.outputs)} or more. Allow more, or "
            'learn with Encode(categories="hash").'
        )


_CHOICES = {
    "categories": ("onehot", "hash"), "extra": ("learn", "ignore", "refuse"),
    "missing": ("keep", "skip", "error"),
}  # fmt: skip


class _Encoded(NamedTuple):
    """A row that brought nothing new, encoded while it was read."""

    row: Floats


class Encode(Transformer):
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
    merging = "exact"

    columns_: _Columns
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

    def read_rows(self, X: TableLike, where: str, *, learning: bool) -> Floats | Table | _Encoded:
        """A table of columns of the kinds known, or an array where all are numbers."""
        columns = getattr(self, "columns_", None) or None  # none known yet: any will do
        rows = _incoming(X, None if columns is None else list(columns), where)
        if isinstance(rows, np.ndarray):
            if columns is None or self.plain_:
                return _check_whole(rows, (), where, self.missing)
            rows = Table(dict(zip(columns, rows.T.astype(np.float64), strict=True)), len(rows))
        rows = rows.select(self._wanted(rows, X, where, learning=learning))
        _check_kinds(rows, columns or {}, where)
        return _check_whole(rows, [n for n, c in (columns or {}).items() if c], where, self.missing)

    def read_row(
        self, x: ArrayLike | Mapping[str, object], where: str, *, learning: bool
    ) -> Floats | Table | _Encoded:
        """The same of one row; encoded at once where it brings nothing new."""
        if not isinstance(x := named_row(x), Mapping):
            rows = x[None] if isinstance(x, np.ndarray) else [x]
            return self.read_rows(rows, where, learning=learning)
        row = self._encoded(x) if hasattr(self, "columns_") and self.missing == "keep" else None
        return self.read_rows([x], where, learning=learning) if row is None else _Encoded(row)

    def _wanted(self, rows: Table, X: object, where: str, *, learning: bool) -> list[str]:
        """The names of the columns to take; the rest is passed over, or refused."""
        known: _Columns = getattr(self, "columns_", {})
        if not getattr(self, "rows_seen_", 0):
            if not learning or self.extra == "learn" or not _are_dicts(X):
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
        if extra and known and not taken and not _are_dicts(X):
            raise ColumnError(
                f"{where}: `X` must have columns that were learned, such as "
                f"{next(iter(known))!r}, got none of them, but {extra[0]!r}. Check the source."
            )
        return taken

    def _encoded(self, x: Mapping[str, object]) -> Floats | None:
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

    # -- merging -----------------------------------------------------------------------------------

    def join(self, other: "Encode", at: ColumnPositions | None, where: str) -> ColumnPositions:
        """Know the other's columns and categories too, in the order in which they came there."""
        if not hasattr(self, "columns_"):
            self._start()
        rows = self.rows_seen_ + other.rows_seen_
        if at is not None:  # numbers, from the feature before
            self.take(np.empty((0, at.d)), None)
            self.rows_seen_ = rows
            return at
        both = _united(self, other, where)
        new = both.layout[len(self.layout_) :]
        self._hold(both.columns, new)
        self.rows_seen_ = rows
        return ColumnPositions(both.at, len(both.layout), both.layout)

    def differs(self, other: "Encode") -> str:
        """Where the other's rows would have been encoded in another way here, and why."""
        if not self.rows_seen_:
            return ""
        for name, mine in self.columns_.items():
            theirs = other.columns_.get(name)
            if mine is None or mine.code == "O":
                continue  # nothing was known of it, or 0 stands for a missing text in both
            if theirs is None or theirs.since:
                rows = other.rows_seen_ if theirs is None else theirs.since
                return (
                    f"column {name!r} had no value in the first {rows:,} rows of the second, which "
                    "took it for 0, while it is missing to the first. Give all parts its values"
                )
        extra = [name for name in other.columns_ if name not in self.columns_]
        if extra and self.extra != "learn":
            return (
                f"the second has a column {extra[0]!r}, which the first would {self.extra}. "
                "Leave it out"
            )
        return ""

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

    def take(self, read: Floats | Table | _Encoded, born: Array | None) -> tuple[Floats, Array]:
        """Learn rows; return them encoded, and the row that each output column came with."""
        if not hasattr(self, "columns_"):
            self._start()
        width = len(self.layout_)
        if isinstance(read, _Encoded):
            out, arrived = read.row, np.zeros(width, dtype=np.intp)
        elif isinstance(read, np.ndarray):
            out, arrived = self._numbered(read, born)
        else:
            new = _extended(self.columns_, read, width, self._begin)
            if new.names or len(new.columns) > len(self.columns_):
                self._hold(new.columns, new.names)
            out = _encode_table(new.columns, read, width + len(new.names))
            arrived = np.zeros(out.shape[1], dtype=np.intp)
            for at, row in enumerate(new.rows, width):
                out[:row, at] = 0.0  # a column that has shown no value is 0, not missing
                arrived[at] = row
        self.rows_seen_ += len(out)
        return out, arrived

    def ask(self, read: Floats | Table | _Encoded) -> Floats:
        """The rows encoded by what is known; new columns and categories light nothing."""
        if isinstance(read, _Encoded):
            return read.row
        if isinstance(read, np.ndarray):
            return read.copy()
        return _encode_table(getattr(self, "columns_", {}), read, self.n_features_out_)

    def _begin(self, values: Array, first: int) -> Column:
        """A column whose first value stands in row ``first``."""
        since = self.rows_seen_ + first
        if values.dtype.kind == "f":
            return Number(since=since)
        if values.dtype.kind == "M":
            origin = int(values[first].astype("datetime64[us]").astype(np.int64))
            return Date(parts=tuple(self.times), origin=origin, since=since)
        if self.categories == "hash":
            return Hashed(size=self.hash_size, seed=self.seed, since=since)
        return Text(limit=self.max_categories, since=since)

    def _numbered(self, X: Floats, born: Array | None) -> tuple[Floats, Array]:
        """Numbers without names, each column known to be one from the start."""
        known, d = self.n_features_in_, X.shape[1]
        if d > known and not self.plain_:
            raise ParameterError(
                "Encode.grow: columns must be numbers without names, got tables so far. Leave it "
                "out: columns of tables are taken in when they come."
            )
        if d > known:
            new: _Columns = {f"x{j}": Number(at=j, since=self.rows_seen_) for j in range(known, d)}
            self._hold(self.columns_ | new, list(new))
        return X.copy(), np.zeros(d, dtype=np.intp) if born is None else born

    def _hold(self, columns: _Columns, new: list[str]) -> None:
        """Know these columns, and the outputs that came."""
        self.columns_ = columns
        self.layout_ = [*self.layout_, *new]
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array(list(columns), dtype=object)
        self.plain_ = all(
            column is not None and column.code == "f" and column.at == j
            for j, column in enumerate(columns.values())
        )
