"""Arrow's columns as a table's: numbers float64, text object, dates datetime64[us] in UTC.

Times of day and durations are numbers of seconds; the fields of structs are columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from onepass.errors import Array, TypeMismatchError
from onepass.validation.table import Table, dates_of

__all__ = ["leaves", "letters", "to_array", "to_table"]


def leaves(
    table: Any, passes: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, Any]]:
    """The columns of a table or a batch that are not structs, by their full names.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.RecordBatch
        Some rows.
    passes : callable
        Whether to leave out a column and its fields, by its full name.
    """
    left = list(zip(table.schema.names, table.columns, strict=True))[::-1]
    while left:
        name, column = left.pop()
        if passes(name):
            continue
        column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        if not str(column.type).startswith("struct<"):
            yield name, column
            continue
        inner = zip(column.type, column.flatten(), strict=True)
        left += [(f"{name}.{field.name}", part) for field, part in inner][::-1]


def letters(fields: Iterable[tuple[str, Any]], pa: ModuleType) -> dict[str, str]:
    """The letters (f, b, O or M) of columns by their Arrow types, as ``Source.kinds`` gives them.

    Parameters
    ----------
    fields : iterable of (str, pyarrow.DataType)
        The columns' names and types.
    pa : module
        pyarrow, which is optional and so handed in.

    Examples
    --------
    >>> import pyarrow as pa
    >>> letters([("km", pa.int8()), ("by", pa.string()), ("late", pa.bool_())], pa)
    {'km': 'f', 'by': 'O', 'late': 'b'}
    >>> len(letters([("never", pa.null())], pa))
    0
    """
    types = pa.types
    told = {}
    for name, kind in fields:
        value = kind.value_type if types.is_dictionary(kind) else kind
        if _is_text(types, value):
            told[name] = "O"
        elif types.is_timestamp(value) or types.is_date(value):
            told[name] = "M"
        elif types.is_boolean(value):
            told[name] = "b"
        elif _is_number(types, value):
            told[name] = "f"
    return told


def to_array(column: Any, name: str, pa: ModuleType, where: str, *, text: bool = False) -> Array:
    """One Arrow array as a table's column.

    Parameters
    ----------
    column : pyarrow.Array of length n
        Its values; nulls are missing.
    name : str
        The column's name, for the message.
    pa : module
        pyarrow, which is optional and so handed in.
    where : str
        The source, for the message.
    text : bool
        Take numbers and truth values as text, written as Arrow writes them: whole numbers of 64
        bits keep all their digits, which float64 would not.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    TypeMismatchError
        If it holds lists, structures, bytes or anything else that is no table's column.
    """
    types = pa.types
    if column.type == pa.float64() and not column.null_count:  # most columns are such
        return np.array(column.to_numpy())
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if _is_text(types, kind):
        return _objects(column)
    exact = (types.is_time, types.is_integer, types.is_decimal, types.is_boolean)
    if text and any(test(kind) for test in exact):
        return _objects(column.cast(pa.string()))
    if _is_number(types, kind):
        return _numbers(column, pa)
    if types.is_timestamp(kind) or types.is_date(kind):
        return _dates(column, pa)
    raise TypeMismatchError(
        f"{where}: column {name!r} must hold numbers, truth values, text or dates, got Arrow's "
        f"{kind}. Leave it out with drop=[{name!r}], or write it as columns of plain values."
    )


def to_table(
    batch: Any, names: Sequence[str], types: Mapping[str, str], pa: ModuleType, where: str
) -> Table:
    """The columns of these names in a batch, numbers as text where ``types`` says so.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    names : sequence of str
        Full names of columns.
    types : dict of str to str
        Kinds of columns.
    pa, where
        As in ``to_array``.
    """
    wanted = set(names)
    columns = {
        name: to_array(column, name, pa, where, text=types.get(name) == "text")
        for name, column in leaves(batch)
        if name in wanted
    }
    return Table(columns, batch.num_rows)


def _is_text(types: Any, kind: Any) -> bool:
    view = getattr(types, "is_string_view", None)  # newer than the oldest pyarrow we take
    return bool(types.is_string(kind) or types.is_large_string(kind) or (view and view(kind)))


def _is_number(types: Any, kind: Any) -> bool:
    tests = (
        types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_time,
        types.is_duration,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _numbers(column: Any, pa: ModuleType) -> Array:
    unit = 1.0
    if pa.types.is_time(column.type) or pa.types.is_duration(column.type):
        span = pa.time64("us") if pa.types.is_time(column.type) else pa.duration("us")
        column, unit = column.cast(span, safe=False).cast(pa.int64()), 1e6
    numbers = column.cast(pa.float64(), safe=False)
    return np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64) / unit


def _objects(column: Any) -> Array:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)


def _dates(column: Any, pa: ModuleType) -> Array:
    """Arrow keeps a zoned time in UTC; here the zone is dropped and UTC stays."""
    zone, unit = getattr(column.type, "tz", None), getattr(column.type, "unit", "us")
    stamps = column.cast(pa.timestamp("ns" if unit == "ns" else "us", tz=zone), safe=False)
    return dates_of(stamps.to_numpy(zero_copy_only=False))
