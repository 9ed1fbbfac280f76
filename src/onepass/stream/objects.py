"""Objects: lines of JSON, one by one and exactly; what is wrong is said with its place."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onepass.errors import SourceError
from onepass.spelling import unencodable
from onepass.stream.kinds import as_date, as_text, refuse
from onepass.table import Table, to_column
from onepass.types import Array

__all__ = ["Objects"]

_WORDS = {"f": "a number", "O": "text", "M": "a date"}


class Objects:
    r"""Reads lines of one source.

    Parameters
    ----------
    source : str
        Its name, for messages.
    passes : callable
        Whether a key is passed over, with all that lies within, by its full name.

    Examples
    --------
    >>> text = b'{"km": 3, "by": {"sea": true}}\n\n{"km": null}\n'
    >>> table = Objects("a.jsonl").table(text, {}, {}, first=0, line=0)
    >>> table.row(0), table.row(1)
    ({'km': 3.0, 'by.sea': 1.0}, {'km': nan, 'by.sea': nan})
    """

    def __init__(self, source: str, passes: Callable[[str], bool] = lambda name: not name) -> None:
        self._source = source
        self._passes = passes

    def table(
        self,
        text: bytes,
        known: Mapping[str, str],
        types: Mapping[str, str],
        first: int,
        line: int,
        bad: dict[int, str] | None = None,
    ) -> Table:
        """The rows of some whole lines.

        Parameters
        ----------
        text : bytes
            The lines; empty ones are no rows.
        known : dict of str to str
            The letters of columns that are known: f, O or M.
        types : dict of str to str
            The kinds that the user asked for; these are left to be converted.
        first, line : int
            How many rows and lines there are before.
        bad : dict of int to str, optional
            Where to put the errors of rows that are to be skipped, by their place among the rows.

        Raises
        ------
        SourceError
            If a line is no object, or a value is not of its column's kind, and ``bad`` is not
            given.
        """
        rows, lines = self._rows(text, line, bad)
        columns = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            if name in types:
                columns[name] = _worded(values, name)
                continue
            letter = known.get(name) or _letter(values)
            for i, value in enumerate(values):
                if not _fits(value, letter):
                    place = f"row {first + i} (counting from 0, line {lines[i]}), column {name!r}"
                    refuse(i, self._refused(place, letter, value, name), bad)
                    values[i] = None
            columns[name] = _column(values, letter, name)
        return Table(columns, len(rows))

    def letters(self, text: bytes, *, skip: bool = False) -> dict[str, str]:
        """The letters of the columns that are of one kind in some whole lines."""
        rows, _ = self._rows(text, 0, {} if skip else None)
        told = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            letter = _letter(values)
            if any(v is not None for v in values) and all(_fits(v, letter) for v in values):
                told[name] = letter
        return told

    def _rows(
        self, text: bytes, line: int, bad: dict[int, str] | None
    ) -> tuple[list[dict[str, Any]], list[int]]:
        """The values of some whole lines, and the number of each line."""
        rows: list[dict[str, Any]] = []
        lines = []
        for number, one in enumerate(text.split(b"\n"), line + 1):
            if one.strip():
                lines.append(number)
                try:
                    rows.append(self._row(one, number))
                except SourceError as error:
                    refuse(len(rows), error, bad)
                    rows.append({})
        return rows, lines

    def _row(self, text: bytes, line: int) -> dict[str, Any]:
        """The values of a line by their full names; it must be one object in which none clash."""
        try:
            return self._named(json.loads(text, object_pairs_hook=_once))
        except (TypeError, ValueError) as wrong:  # bytes that are no UTF-8 among them
            raise self._no_object(text, line, f"{wrong}") from wrong
        except RecursionError:
            raise self._no_object(text, line, "it is nested too deeply") from None

    def _named(self, value: Any) -> dict[str, Any]:
        """The values within an object by their full names, no two of which are the same."""
        if not isinstance(value, dict):
            raise TypeError(f"it is a {type(value).__name__}")
        row: dict[str, Any] = {}
        for name, inner in self._flat(value, ""):
            if name in row:
                raise ValueError(f"it has two values of {name!a}")
            if unencodable([name, inner if isinstance(inner, str) else None]) is not None:
                raise ValueError(f"{name!a} holds a lone surrogate, which UTF-8 cannot encode")
            row[name] = inner
        return row

    def _no_object(self, text: bytes, line: int, why: str) -> SourceError:
        shown = text.strip()[:60].decode("utf-8", "replace")
        return SourceError(
            f"op.stream.read: {self._source}: line {line} must be one JSON object in UTF-8, got "
            f"{shown!r} ({why}). Mend the line, or give bad_rows='skip' (--bad-rows skip) to leave "
            "such rows out."
        )

    def _flat(self, value: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        """Keys and values; those within an object by their full name."""
        for key, inner in value.items():
            name = before + key
            if self._passes(name):
                continue
            if isinstance(inner, dict):
                yield from self._flat(inner, f"{name}.")
            else:
                yield name, inner

    def _refused(self, place: str, letter: str, value: Any, name: str) -> SourceError:
        if isinstance(value, list):
            return SourceError(
                f"op.stream.read: {self._source}: {place} must be a number, text, true, false, "
                f"null or an object, got a list. Leave it out with drop=[{name!r}] (--drop {name})"
                ", or such rows with bad_rows='skip' (--bad-rows skip)."
            )
        return SourceError(
            f"op.stream.read: {self._source}: {place} must be {_WORDS[letter]}, as its first "
            f"values are, got {value!r}. Mend the row, or give bad_rows='skip' (--bad-rows skip) "
            f"to leave such rows out or, from the first row on, types={{{name!r}: 'text'}} "
            f"(--type {name}=text)."
        )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, refused if it has a key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"it has the key {twice!a} twice")
    return found


def _letter(values: Sequence[Any]) -> str:
    """The letter of a column by its first value: of dates if all are."""
    first = next((value for value in values if value is not None), None)
    if not isinstance(first, str):
        return "f"
    return "M" if all(value is None or _is_date(value) for value in values) else "O"


def _fits(value: Any, letter: str) -> bool:
    if value is None:
        return True
    if letter == "f":
        return isinstance(value, (bool, int, float))
    return isinstance(value, str) and (letter == "O" or _is_date(value))


def _is_date(value: Any) -> bool:
    try:
        as_date(value)
    except ValueError:
        return False
    return True


def _column(values: Sequence[Any], letter: str, name: str) -> Array:
    if letter == "M":
        stamps = [np.datetime64("NaT") if v is None else as_date(v) for v in values]
        return np.array(stamps, dtype="datetime64[us]")
    return to_column(values, name)


def _worded(values: Sequence[Any], name: str) -> Array:
    """Values of any kind; as text where they are not all numbers."""
    if all(_fits(value, "f") for value in values) and not any(isinstance(v, int) for v in values):
        return to_column(values, name)
    words = [None if value is None else _word(value) for value in values]
    column = np.empty(len(words), dtype=object)
    column[:] = words
    return column


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list)) else as_text(value)
