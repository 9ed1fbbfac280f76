"""Table: named columns of equal length, the one form in which mixed data travels.

A column is a NumPy array of one of four kinds:

======== ================== ====================
kind     dtype              a missing value is
======== ================== ====================
number   float64            nan
truth    float64 (0 and 1)  nan
text     object (of str)    None
date     datetime64[us]     NaT; datetime64[ns] where the dates have digits below a microsecond
======== ================== ====================

Times of day and durations are numbers of seconds.

Frames of any library that narwhals knows (pandas, polars, pyarrow, …) and rows given as dicts
come in through :meth:`Table.from_frame` and :meth:`Table.from_rows`.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import narwhals.stable.v1 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from onepass.errors import (
    ColumnError,
    NumericalError,
    ShapeError,
    TypeMismatchError,
    first_unencodable,
    join_names,
)
from onepass.types import Array, ArrayLike

__all__ = [
    "Table",
    "TableLike",
    "as_python",
    "check_encodable",
    "dates_from",
    "dates_of",
    "has_names",
    "is_date",
    "is_frame",
    "is_missing",
    "is_missing_value",
    "mixed_zones",
    "named_row",
    "series_values",
    "to_column",
    "zoned",
]

_NUMBERS = (bool, int, float, np.number, np.bool_, Decimal)
_CAN_BE_MISSING = (float, np.floating, Decimal, dt.datetime, np.datetime64, np.timedelta64)
_PLAIN_NUMBERS = frozenset({bool, int, float, type(None)})
_PLAIN_TEXT = frozenset({str, type(None)})


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Named columns of equal length.

    Parameters
    ----------
    columns : dict of str to ndarray of shape (n,)
        The columns, in order. Use :func:`to_column` to bring values into one of the four kinds.
    n : int
        Number of rows; needed where there are no columns.

    Examples
    --------
    >>> table = Table.from_rows([{"speed": 3, "gear": "low"}, {"speed": None, "gear": "high"}])
    >>> table["speed"]
    array([ 3., nan])
    >>> table[1:].row(0)
    {'speed': nan, 'gear': 'high'}
    """

    columns: dict[str, Array]
    n: int

    def __post_init__(self) -> None:
        if (odd := first_unencodable(map(str, self.columns))) is not None:
            raise ColumnError(
                f"Table: the name of a column must be text that UTF-8 can encode, got {odd!a}, "
                "which holds a lone surrogate. Rename the column."
            )
        for name, column in self.columns.items():
            if column.shape != (self.n,):
                raise ShapeError(
                    f"Table: column {name!r} must have shape ({self.n},), as the table has "
                    f"{self.n} rows, got {column.shape}. Give one value a row."
                )

    @classmethod
    def from_frame(cls, frame: object) -> "Table":
        """The columns of a DataFrame of any library that narwhals knows."""
        try:
            native = nw.from_native(frame, eager_only=True)
        except DuplicateError as twice:
            raise _same_name(str(twice)) from twice
        pairs = zip(native.columns, native.iter_columns(), strict=True)
        columns = {str(name): to_column(series_values(series), str(name)) for name, series in pairs}
        if len(columns) < len(native.columns):
            raise _same_name(f"names that are the same as text, of {native.columns}")
        return cls(columns, len(native))

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, object]]) -> "Table":
        """The columns of rows given as dicts; a key that a row lacks is missing there."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {
            str(name): to_column([row.get(name) for row in rows], str(name)) for name in names
        }
        if len(columns) < len(names):
            raise _same_name(f"names that are the same as text, of {list(names)}")
        return cls(columns, len(rows))

    @property
    def names(self) -> list[str]:
        """The columns' names, in order."""
        return list(self.columns)

    def __len__(self) -> int:
        return self.n

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, key: str | slice | Array | Sequence[int]) -> Any:
        """One column by its name, or some rows by a slice, a mask or their indices."""
        if isinstance(key, str):
            if key not in self.columns:
                raise ColumnError(
                    f"Table: there is no column {key!r}; it has {join_names(self.names)}. "
                    "Check the spelling, or the source."
                )
            return self.columns[key]
        taken = {name: column[key] for name, column in self.columns.items()}
        n = len(np.arange(self.n)[key])
        return Table(taken, n)

    def select(self, names: Sequence[str]) -> "Table":
        """These columns, in this order."""
        return Table({name: self[name] for name in names}, self.n)

    def drop(self, names: Sequence[str]) -> "Table":
        """All columns but these."""
        gone = set(names)
        return Table({k: v for k, v in self.columns.items() if k not in gone}, self.n)

    def row(self, i: int) -> dict[str, Any]:
        """One row as a dict of Python values."""
        return {name: as_python(column[i : i + 1])[0] for name, column in self.columns.items()}

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, one dict each."""
        values = {name: as_python(column) for name, column in self.columns.items()}
        for i in range(self.n):
            yield {name: column[i] for name, column in values.items()}


TableLike: TypeAlias = ArrayLike | Sequence[Mapping[str, object]] | Table
"""Rows of features: an array, a data frame, a sequence of rows as mappings, or a table."""


def is_frame(X: object) -> bool:
    """Whether X is a DataFrame of a library that narwhals knows."""
    if isinstance(X, (np.ndarray, list, tuple, dict, Table)):
        return False
    return bool(nw.dependencies.is_into_dataframe(X))


def has_names(frame: object) -> bool:
    """Whether all columns of a DataFrame have names, and not just numbers as pandas gives them."""
    native = nw.from_native(frame, eager_only=True)
    return all(isinstance(name, str) for name in native.columns)


def named_row(x: object) -> Any:
    """A row of a pandas frame, which is a Series with the columns' names, as a dict."""
    if isinstance(x, Mapping):
        return x
    if nw.dependencies.is_pandas_series(x) and all(isinstance(name, str) for name in x.index):
        return x.to_dict()
    return x


def as_python(column: Array) -> list[Any]:
    """The values of a column as Python objects; dates in nanoseconds stay ``numpy.datetime64``."""
    return list(column) if column.dtype == np.dtype("datetime64[ns]") else column.tolist()


def is_missing(column: Array) -> Array:
    """Where a column has no value, shape (n,) of bool."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind == "M":
        return np.isnat(column)
    missing: Array = column == np.array(None)
    return missing


def to_column(values: Sequence[object] | Array, name: str) -> Array:
    """Bring values into one of the four kinds of column: number, truth, text, date."""
    if not isinstance(values, np.ndarray):
        return _from_objects(list(values), name)
    array = values
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        return dates_of(array)
    if array.dtype.kind == "m":
        return array / np.timedelta64(1, "s")
    if array.dtype.kind in "US":
        return check_encodable(array.astype(str).astype(object), "Table", name)
    if array.dtype.kind == "O":
        return _from_objects(array.tolist(), name)
    raise TypeMismatchError(
        f"Table: column {name!r} must hold numbers, truth values, text or dates, "
        f"got {array.dtype}. Convert it, or leave it out."
    )


def _array(values: Sequence[object]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def _from_objects(values: list[object], name: str) -> Array:
    """Objects, None and nan among them, as the one kind of column that they all fit."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN_NUMBERS:
        return _numbers(values, name)
    if kinds <= _PLAIN_TEXT:
        return check_encodable(_array(values), "Table", name)
    known = [v for v in values if not is_missing_value(v)]
    if all(isinstance(v, _NUMBERS) for v in known):
        return _numbers([None if is_missing_value(v) else v for v in values], name)
    if all(isinstance(v, str) for v in known):
        texts = [None if is_missing_value(v) else str(v) for v in values]
        return check_encodable(_array(texts), "Table", name)
    if all(isinstance(v, (dt.date, np.datetime64)) for v in known):
        return dates_from(
            [None if is_missing_value(v) else v for v in values], f"Table: column {name!r}"
        )
    if all(isinstance(v, (dt.time, dt.timedelta, np.timedelta64)) for v in known):
        spans = ["NaT" if is_missing_value(v) else _span(v) for v in values]
        return np.array(spans, dtype="timedelta64[us]") / np.timedelta64(1, "s")
    kinds = {type(v) for v in known}
    raise TypeMismatchError(
        f"Table: column {name!r} must hold one kind of value (numbers, text or dates), "
        f"got {', '.join(sorted(kind.__name__ for kind in kinds))}. Convert it, or leave it out."
    )


def check_encodable(column: Array, where: str, name: str) -> Array:
    """Return a column, or refuse text in it that UTF-8 cannot encode, which no file can hold.

    Raises
    ------
    TypeMismatchError
        Naming the column, the row and the value.
    """
    odd = first_unencodable(text for text in column.tolist() if isinstance(text, str))
    if odd is not None:
        raise TypeMismatchError(
            f"{where}: {name!r} must hold text that UTF-8 can encode, got {odd!a} in row "
            f"{column.tolist().index(odd)}, which holds a lone surrogate. Write the whole "
            "character, or leave it out."
        )
    return column


def _numbers(values: list[object], name: str) -> Array:
    try:
        return np.array(values, dtype=np.float64)  # None becomes nan
    except OverflowError as wrong:
        raise NumericalError(
            f"Table: column {name!r} must hold numbers within float64, got a whole number of more "
            "than 308 digits. Give it as text, or in larger units."
        ) from wrong


def is_missing_value(value: object) -> bool:
    """None, nan, NaT, and the NA of pandas, which is known by its name alone."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, _CAN_BE_MISSING) and value != value  # noqa: PLR0124  nan and NaT


def is_date(value: object) -> bool:
    """Whether it is a date of any library, or a missing value."""
    return is_missing_value(value) or isinstance(value, (dt.date, np.datetime64))


def zoned(values: Iterable[object]) -> set[bool]:
    """Whether the datetimes among values have a time zone: both, one, or none of False and True."""
    return {
        v.tzinfo is not None
        for v in values
        if isinstance(v, dt.datetime) and not is_missing_value(v)
    }


def mixed_zones(what: str) -> TypeMismatchError:
    """The error for datetimes of which only some have a time zone."""
    return TypeMismatchError(
        f"{what} must hold datetimes that all have a time zone, or none of them, got both. Give "
        "all with their zones, such as datetime(..., tzinfo=timezone.utc)."
    )


def dates_from(values: list[object], what: str) -> Array:
    """Dates of any library as datetime64, in UTC.

    Raises
    ------
    TypeMismatchError
        If only some have a time zone.
    """
    if len(zoned(values)) > 1:
        raise mixed_zones(what)
    return dates_of([_moment(value) for value in values])


def _moment(value: Any) -> np.datetime64:
    """A date, or a missing value, as datetime64 in UTC."""
    if is_missing_value(value):
        return np.datetime64("NaT", "us")
    if hasattr(value, "to_datetime64"):  # a Timestamp of pandas, with its nanoseconds
        value = value.to_datetime64()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return value if isinstance(value, np.datetime64) else np.datetime64(value, "us")


def dates_of(values: Array | list[np.datetime64]) -> Array:
    """Dates in microseconds, or in nanoseconds where these are needed.

    Parameters
    ----------
    values : ndarray or list of datetime64
    """
    micro, nano = (np.array(values, dtype=f"datetime64[{unit}]") for unit in ("us", "ns"))
    finer = (nano != micro.astype(nano.dtype)) & ~np.isnat(micro)
    held = (nano.astype(micro.dtype) == micro) | np.isnat(micro)
    return nano if finer.any() and held.all() else micro


def _span(value: object) -> Any:
    """A time of day as the duration since midnight; durations as they are."""
    if isinstance(value, dt.time):
        micro = value.microsecond + 10**6 * (value.second + 60 * (value.minute + 60 * value.hour))
        return np.timedelta64(micro, "us")
    return value


def series_values(series: Any) -> Array | list[Any]:
    """One column of a frame; a list where its type does not tell the kind of its values."""
    kind = series.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        missing = series.is_null().to_numpy()
        numbers = np.array(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        numbers[missing] = np.nan
        return numbers
    if isinstance(kind, nw.Datetime) and kind.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if isinstance(kind, (nw.Datetime, nw.Date)) or kind in (nw.Datetime, nw.Date):
        return dates_of(series.to_numpy())
    values = series.to_list()
    if kind in (nw.Categorical, nw.Enum):  # whatever names the categories, they are no numbers
        return [None if is_missing_value(value) else str(value) for value in values]
    return list(values)


def _same_name(came: str) -> ColumnError:
    return ColumnError(
        f"Table: each column must have a name of its own, got {came}. Rename one of them."
    )
