"""Kinds: each column of a stream keeps the kind that its first values have.

A kind is number, truth, text or date (see :mod:`onepass.table`). It is fixed by the first piece of
the stream in which the column has a value, or beforehand: by the user's ``types``, or by those of a
source that has some, as a Parquet file has. A column without a kind stands as nan. A later value of
another kind is refused, with its place.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onepass.errors import ParameterError, SourceError
from onepass.table import Table, is_missing
from onepass.types import Array

__all__ = ["KINDS", "Kinds", "absent", "as_date", "as_text", "checked_types", "refuse"]

KINDS = ("number", "truth", "text", "date")

_WORDS = {"f": "a number", "O": "text", "M": "a date"}
_TRUE = frozenset({"true", "t", "yes", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "0", "0.0"})


def checked_types(types: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """The user's ``types`` as a dict, refused where a kind is unknown.

    Raises
    ------
    ParameterError
        If a kind is not one of number, truth, text and date.
    """
    asked = dict(types or {})
    for name, kind in asked.items():
        if kind not in KINDS:
            raise ParameterError(
                f"{where}: `types` must give each column one of {', '.join(map(repr, KINDS))}, "
                f"got {kind!r} for column {name!r}. Name one of these kinds."
            )
    return asked


def absent(kind: str, n: int) -> Array:
    """A column of n missing values; ``kind`` is the dtype's letter: f, O or M."""
    if kind == "O":
        return np.full(n, None, dtype=object)
    if kind == "M":
        return np.full(n, np.datetime64("NaT"), dtype="datetime64[us]")
    return np.full(n, np.nan)


def as_text(value: Any) -> str:
    """A value as a person would write it: a number is 7, not 7.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def as_date(value: Any) -> np.datetime64:
    """A text in ISO 8601 as a moment, in UTC; ValueError where it is none."""
    stamp = dt.datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
    if stamp.tzinfo is not None:
        stamp = stamp.astimezone(dt.UTC).replace(tzinfo=None)
    return np.datetime64(stamp, "us")


class Kinds:
    """Holds every column of a stream to one kind.

    Parameters
    ----------
    types : dict of str to str
        Kinds fixed beforehand.
    located : callable
        Says in words where a row of the source stands, by its number.
    known : dict of str to str or None, optional
        The columns in their order, where it is known beforehand; each with the letter of its dtype
        (f, O or M) where the source is certain of it.

    Examples
    --------
    >>> kinds = Kinds({"code": "text"}, "meter.csv: row {}".format)
    >>> table = kinds.fit(Table.from_rows([{"code": 7, "load": None}]), first=0)
    >>> table.row(0)
    {'code': '7', 'load': nan}
    >>> kinds.fit(Table.from_rows([{"load": "high"}]), first=1).row(0)
    {'code': None, 'load': 'high'}
    """

    def __init__(
        self,
        types: Mapping[str, str],
        located: Callable[[int], str],
        known: Mapping[str, str | None] | None = None,
    ) -> None:
        self._types = types
        self._located = located
        self._known: dict[str, str | None] = dict(known or {})

    def fit(self, table: Table, first: int, bad: dict[int, str] | None = None) -> Table:
        """The table with every column known so far, each of its kind.

        Parameters
        ----------
        table : Table
            The next rows. A column that it lacks is missing in all of them.
        first : int
            Where its first row stands in the source.
        bad : dict of int to str, optional
            Where to put the errors of rows that are to be skipped, by their place in the table.

        Raises
        ------
        SourceError
            If a value is not of its column's kind, and ``bad`` is not given.
        """
        names = dict.fromkeys((*self._known, *table.names))
        return Table({name: self._fit(table, name, first, bad) for name in names}, len(table))

    def _fit(self, table: Table, name: str, first: int, bad: dict[int, str] | None) -> Array:
        known = self._known.setdefault(name, None)
        column = table.columns.get(name)
        if column is None:
            column = absent(known or "f", len(table))
        if name in self._types:
            column = self._converted(column, name, first, bad)
            self._known[name] = column.dtype.kind
            return column
        if known == column.dtype.kind:
            return column
        missing = is_missing(column)
        if missing.all():
            return absent(known or "f", len(table))
        if known is None:
            self._known[name] = column.dtype.kind
            return column
        for i in np.flatnonzero(~missing).tolist():
            error = self._refused(name, first + i, _WORDS[known], column[i], "as in the first rows")
            refuse(i, error, bad)
        return absent(known, len(table))

    def _converted(self, column: Array, name: str, first: int, bad: dict[int, str] | None) -> Array:
        """The column as the kind that the user asked for."""
        kind = self._types[name]
        n = len(column)
        letter = {"text": "O", "date": "M"}.get(kind, "f")
        if kind == "number" and column.dtype.kind == "f":
            return column
        if kind != "truth" and column.dtype.kind == letter:
            return column
        converted = absent(letter, n)
        convert = _CONVERT[kind]
        for i in np.flatnonzero(~is_missing(column)).tolist():
            value = column[i : i + 1].tolist()[0]
            try:
                converted[i] = convert(value)
            except ValueError:
                words = {"number": "a number", "truth": "true or false", "date": "a date"}[kind]
                error = self._refused(name, first + i, words, value, "as it is asked for")
                refuse(i, error, bad)
        return converted

    def _refused(self, name: str, row: int, expected: str, value: Any, because: str) -> SourceError:
        remedy = (
            "Mend the row, or give bad_rows='skip' (--bad-rows skip) to leave such rows out or, "
            f"from the first row on, types={{{name!r}: 'text'}} (--type {name}=text)"
        )
        return SourceError(
            f"op.stream.read: {self._located(row)}, column {name!r} must be {expected}, {because}, "
            f"got {_shown(value)}. {remedy}."
        )


def refuse(i: int, error: SourceError, bad: dict[int, str] | None) -> None:
    """Raise the error of a row, or note it where such rows are to be skipped."""
    if bad is None:
        raise error from None
    bad.setdefault(i, str(error))


def _shown(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return repr(str(value))
    return repr(value.item() if isinstance(value, np.generic) else value)


def _number(value: Any) -> float:
    if isinstance(value, dt.datetime):
        raise ValueError  # noqa: TRY004  caught above, where the row is known
    return float(value)


def _truth(value: Any) -> float:
    word = as_text(value).strip().lower()
    if word in _TRUE:
        return 1.0
    if word in _FALSE:
        return 0.0
    raise ValueError


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "number": _number,
    "truth": _truth,
    "text": as_text,
    "date": as_date,
}
