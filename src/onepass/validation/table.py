"""Table: named columns of equal length, for data of mixed types.

A column is a NumPy array of one of four kinds:

======== ================== ====================
kind     dtype              missing value
======== ================== ====================
number   float64            nan
boolean  float64 (0 and 1)  nan
text     object (of str)    None
date     datetime64[us]     NaT; datetime64[ns] if dates are finer than a microsecond
======== ================== ====================

Times of day and durations are converted to seconds, and periods of pandas to their start.

:meth:`Table.from_frame` converts a data frame of any library that narwhals supports (pandas,
polars, pyarrow, …), :meth:`Table.from_rows` a sequence of dicts.
"""

from __future__ import annotations

import datetime as dt
import math
import re
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
from onepass.validation.frames import (
    Columns,
    frame_library,
    is_series,
    labels_of,
    plain_slices,
)

_NUMBERS = (bool, int, float, np.number, np.bool_, Decimal)
_CAN_BE_MISSING = (float, np.floating, Decimal, dt.datetime, np.datetime64, np.timedelta64)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  of datetimes without time zones
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_PLAIN_NUMBERS = frozenset({bool, int, float, type(None)})
_PLAIN_TEXT = frozenset({str, type(None)})


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Named columns of equal length.

    Parameters
    ----------
    columns : dict of str to ndarray of shape (n,)
        The columns, in order. :func:`to_column` converts values to one of the four kinds.
    n : int
        The number of rows; needed if there are no columns.

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
        check_names(self.columns)
        for name, column in self.columns.items():
            if column.shape != (self.n,):
                raise ShapeError(
                    f"column {name!r} must have shape ({self.n},), as the table has "
                    f"{self.n} rows, got {column.shape}. Pass one value per row.",
                    "Table",
                )

    @classmethod
    def from_frame(cls, frame: object) -> Table:
        """Convert a data frame of any library that narwhals supports."""
        slices = plain_slices(frame)
        if slices is not None and are_unique(labels := labels_of(frame)):
            return cls(*_plain_columns(labels, slices, len(frame)))  # type: ignore[arg-type]
        native = narwhals_frame(frame)
        pairs = zip(native.columns, native.iter_columns(), strict=True)
        columns = {str(name): to_column(series_values(series), str(name)) for name, series in pairs}
        if len(columns) < len(native.columns):
            raise _duplicate_name(f"names that are equal as text, in {native.columns}")
        return cls(columns, len(native))

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, object]]) -> Table:
        """Convert rows given as dicts; a missing key is a missing value."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {
            str(name): to_column([row.get(name) for row in rows], str(name)) for name in names
        }
        if len(columns) < len(names):
            raise _duplicate_name(f"names that are equal as text, in {list(names)}")
        return cls(columns, len(rows))

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return list(self.columns)

    def __len__(self) -> int:
        return self.n

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, key: str | slice | Array | Sequence[int]) -> Any:
        """Select one column by name, or rows by a slice, a mask or indices."""
        if isinstance(key, str):
            if key not in self.columns:
                raise ColumnError(
                    f"there is no column {key!r}; the columns are {join_names(self.names)}. Check "
                    "the spelling, or the source of the table.",
                    "Table",
                )
            return self.columns[key]
        rows = {name: column[key] for name, column in self.columns.items()}
        return Table(rows, len(np.arange(self.n)[key]))

    def select(self, names: Sequence[str]) -> Table:
        """Select columns, in this order."""
        return Table({name: self[name] for name in names}, self.n)

    def drop(self, names: Sequence[str]) -> Table:
        """Remove columns."""
        dropped = set(names)
        return Table({k: v for k, v in self.columns.items() if k not in dropped}, self.n)

    def row(self, i: int) -> dict[str, Any]:
        """Return one row as a dict of Python values."""
        return {name: as_python(column[i : i + 1])[0] for name, column in self.columns.items()}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dicts of Python values."""
        values = {name: as_python(column) for name, column in self.columns.items()}
        for i in range(self.n):
            yield {name: column[i] for name, column in values.items()}


TableLike: TypeAlias = ArrayLike | Sequence[Mapping[str, object]] | Table
"""Rows of features: an array, a data frame, a sequence of rows as mappings, or a table."""


def _plain_columns(
    labels: Sequence[object], slices: Iterable[Columns], n: int
) -> tuple[dict[str, Array], int]:
    """Copy the columns of a plain frame of n rows."""
    columns = [np.empty(n) for _ in labels]
    at = 0
    for part in slices:
        rows = slice(at, at := at + len(part[0]))
        for column, values in zip(columns, part, strict=True):
            column[rows] = values
    return dict(zip(map(str, labels), columns, strict=True)), n


def are_unique(labels: Sequence[object]) -> bool:
    """Whether all column labels differ as text."""
    return len(set(map(str, labels))) == len(labels)


def check_names(labels: Iterable[object]) -> None:
    """Raise if UTF-8 cannot encode a column label.

    Raises
    ------
    ColumnError
    """
    if (odd := first_unencodable(map(str, labels))) is not None:
        raise ColumnError(
            f"the name of a column must be text that UTF-8 can encode, got {odd!a}, "
            "which contains a lone surrogate. Rename the column.",
            "Table",
        )


def is_frame(X: object) -> bool:
    """Whether X is a data frame of a library that narwhals supports."""
    if frame_library(X) is not None:
        return True
    if type(X).__name__ == "RecordBatch":  # np.asarray would lose the names of its columns
        raise TypeMismatchError(
            "`X` must be a table, got a RecordBatch of Arrow. Pass pyarrow.Table.from_batches([X])."
        )
    if isinstance(X, (np.ndarray, list, tuple, dict, Table)) or is_series(X):
        return False
    return bool(nw.dependencies.is_into_dataframe(X))


def narwhals_frame(frame: Any) -> nw.DataFrame[Any]:
    """A data frame whose column names are unique, as narwhals presents it."""
    try:
        return nw.from_native(frame, eager_only=True)
    except DuplicateError as error:
        raise _duplicate_name(str(error)) from error


def has_names(frame: object) -> bool:
    """Whether all column names of a data frame are text; the default names of pandas are not."""
    native = nw.from_native(frame, eager_only=True)
    return all(isinstance(name, str) for name in native.columns)


def named_row(x: object) -> Any:
    """Convert a mapping or a pandas Series with text labels to a dict; return others unchanged."""
    if isinstance(x, Mapping):
        return x if isinstance(x, dict) else dict(x)
    if nw.dependencies.is_pandas_series(x) and all(isinstance(name, str) for name in x.index):
        return x.to_dict()
    return x


def sliceable(X: object) -> Table | Array:
    """Convert rows to a Table or an array, which can be sliced."""
    if isinstance(X, Table):
        return X
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], Mapping):
        return Table.from_rows(X)
    return Table.from_frame(X) if is_frame(X) else np.asarray(X)


def as_python(column: Array) -> list[Any]:
    """Convert a column to Python objects; dates in nanoseconds remain ``numpy.datetime64``."""
    return list(column) if column.dtype == np.dtype("datetime64[ns]") else column.tolist()


def is_missing(column: Array) -> Array:
    """Mask of missing values, shape (n,)."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind == "M":
        return np.isnat(column)
    missing: Array = column == np.array(None)
    return missing


def missing_column(kind: str, shape: int | tuple[int, ...]) -> Array:
    """Return a column of missing values; ``kind`` is its dtype code: f, O or M."""
    if kind == "O":
        return np.full(shape, None, dtype=object)
    if kind == "M":
        return np.full(shape, np.datetime64("NaT"), dtype="datetime64[us]")
    return np.full(shape, np.nan)


def known_rows(y: Array) -> Array:
    """Mask (n,) of the rows of targets (n,) or (n, c) of which none is missing."""
    gaps = is_missing(y.reshape(-1)).reshape(len(y), math.prod(y.shape[1:]))
    return ~np.asarray(gaps.any(axis=1))


def to_column(values: Sequence[object] | Array, name: str) -> Array:
    """Convert values to one of the four kinds of column: number, boolean, text, date."""
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
        return check_encodable(array.astype(str).astype(object), name)
    if array.dtype.kind == "O":
        return _from_objects(array.tolist(), name)
    raise TypeMismatchError(
        f"column {name!r} must contain numbers, booleans, text or dates, got "
        f"{array.dtype}. Convert or drop it.",
        "Table",
    )


def _array(values: Sequence[object]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def _from_objects(values: list[object], name: str) -> Array:
    """Convert objects, which may include None and NaN, to a column of their common kind."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN_NUMBERS:
        return _numbers(values, name)
    if kinds <= _PLAIN_TEXT:
        return check_encodable(_array(values), name)
    if any(kind.__name__ == "Period" for kind in kinds):  # of pandas
        values = [getattr(v, "start_time", v) for v in values]
    present = [v for v in values if not is_missing_value(v)]
    if all(isinstance(v, _NUMBERS) for v in present):
        return _numbers([None if is_missing_value(v) else v for v in values], name)
    if all(isinstance(v, str) for v in present):
        texts = [None if is_missing_value(v) else str(v) for v in values]
        return check_encodable(_array(texts), name)
    if all(isinstance(v, (dt.date, np.datetime64)) for v in present):
        return dates_from(
            [None if is_missing_value(v) else v for v in values], f"Table: column {name!r}"
        )
    if all(isinstance(v, (dt.time, dt.timedelta, np.timedelta64)) for v in present):
        spans = ["NaT" if is_missing_value(v) else _span(v) for v in values]
        return np.array(spans, dtype="timedelta64[us]") / np.timedelta64(1, "s")
    kinds = {type(v) for v in present}
    raise TypeMismatchError(
        f"column {name!r} must contain one kind of value (numbers, text or dates), got "
        f"{', '.join(sorted(kind.__name__ for kind in kinds))}. Convert it, such as a list to "
        "several columns of numbers and other objects to text by str, or drop it.",
        "Table",
    )


def check_encodable(column: Array, name: str) -> Array:
    """Raise if a column has text that UTF-8 cannot encode; return the column.

    Such text cannot be stored in a file.

    Raises
    ------
    TypeMismatchError
        The message names the column, the row and the value.
    """
    odd = first_unencodable(text for text in column.tolist() if isinstance(text, str))
    if odd is not None:
        raise TypeMismatchError(
            f"{name!r} must contain text that UTF-8 can encode",
            got=f"{odd!a}",
            remedy="Replace the lone surrogate with the complete character, or remove it.",
            row=column.tolist().index(odd),
        )
    return column


def _numbers(values: list[object], name: str) -> Array:
    """Convert numbers and None to float64."""
    try:
        return np.array(values, dtype=np.float64)  # None becomes nan
    except OverflowError as error:
        raise NumericalError(
            f"column {name!r} must contain numbers within float64, got an integer of more than 308 "
            "digits. Convert the column to text, or divide it by a constant.",
            "Table",
        ) from error


def is_missing_value(value: object) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA, which is recognised by its class name."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, _CAN_BE_MISSING) and value != value  # noqa: PLR0124  nan and NaT


def is_date(value: object) -> bool:
    """Whether a value is a date of any library, or missing."""
    return is_missing_value(value) or isinstance(value, (dt.date, np.datetime64))


def zoned(values: Iterable[object]) -> set[bool]:
    """Return the set of answers, True or False, to whether each datetime has a time zone."""
    return {
        v.tzinfo is not None
        for v in values
        if isinstance(v, dt.datetime) and not is_missing_value(v)
    }


def mixed_zones(what: str) -> TypeMismatchError:
    """The error for datetimes of which only some have a time zone."""
    return TypeMismatchError(
        f"{what} must contain datetimes that all have a time zone, or that all have none, got "
        "both. Add the time zone to all, as in datetime(..., tzinfo=timezone.utc)."
    )


def dates_from(values: list[object], what: str) -> Array:
    """Convert dates of any library to datetime64 in UTC.

    Raises
    ------
    TypeMismatchError
        If some dates have a time zone and others do not.
    """
    if len(zoned(values)) > 1:
        raise mixed_zones(what)
    return dates_of([moment(value) for value in values])


def moment(value: Any) -> np.datetime64:
    """Convert a date or a missing value to datetime64 in UTC."""
    if is_missing_value(value):
        return np.datetime64("NaT", "us")
    if hasattr(value, "to_datetime64"):  # a Timestamp of pandas, with its nanoseconds
        value = value.to_datetime64()
    if isinstance(value, dt.datetime):  # a few times faster than datetime64(value)
        zone = value.tzinfo
        since = value - _EPOCH if zone is None else value.astimezone(dt.UTC) - _EPOCH_UTC
        return np.datetime64(since // _MICROSECOND, "us")
    return value if isinstance(value, np.datetime64) else np.datetime64(value, "us")


_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def dates_of_text(texts: Sequence[str | None], what: str) -> Array | None:
    """Convert dates in ISO 8601, ``YYYY-MM-DD`` and perhaps a time of day, to datetime64[us].

    None if a text is not such a date.

    Raises
    ------
    TypeMismatchError
        If some dates have a UTC offset and others do not.
    """
    if not all(text is None or _DAY.match(text) for text in texts):
        return None
    try:
        dates = [None if text is None else dt.datetime.fromisoformat(text) for text in texts]
    except ValueError:
        return None
    return dates_from(dates, what)  # type: ignore[arg-type]


def dates_of(values: Array | list[np.datetime64]) -> Array:
    """Convert dates to microseconds, or to nanoseconds if they need them and fit in 64 bits.

    Parameters
    ----------
    values : ndarray or list of datetime64
    """
    micro, nano = (np.array(values, dtype=f"datetime64[{unit}]") for unit in ("us", "ns"))
    finer = (nano != micro.astype(nano.dtype)) & ~np.isnat(micro)
    fits = (nano.astype(micro.dtype) == micro) | np.isnat(micro)
    return nano if finer.any() and fits.all() else micro


def _span(value: object) -> Any:
    """Convert a time of day to the duration since midnight; keep durations."""
    if isinstance(value, dt.time):
        micro = value.microsecond + 10**6 * (value.second + 60 * (value.minute + 60 * value.hour))
        return np.timedelta64(micro, "us")
    return value


def series_values(series: Any) -> Array | list[Any]:
    """Convert a column of a data frame to an array, or to a list if its dtype is ambiguous.

    The array may share the memory of the frame.
    """
    kind = series.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        column = series.to_native()
        if series.implementation.is_pyarrow() or hasattr(column.dtype, "pyarrow_dtype"):
            rounded = series.to_arrow().cast("float64", safe=False)  # integers above 2**53
            return np.asarray(rounded.to_numpy(zero_copy_only=False))
        numbers = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        if not series.null_count():
            return numbers
        return np.where(series.is_null().to_numpy(), np.nan, numbers)
    if isinstance(kind, nw.Datetime) and kind.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if isinstance(kind, (nw.Datetime, nw.Date)) or kind in (nw.Datetime, nw.Date):
        return dates_of(series.to_numpy())
    values = series.to_list()
    if kind in (nw.Categorical, nw.Enum):  # categories are text, even if their names are numbers
        return [None if is_missing_value(value) else str(value) for value in values]
    return list(values)


def _duplicate_name(found: str) -> ColumnError:
    """The error for columns that share a name."""
    return ColumnError(
        f"the names of columns must be unique, got {found}. Rename one of the columns.", "Table"
    )
