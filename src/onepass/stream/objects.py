"""Objects: lines of JSON parsed one by one, with the place of each error."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onepass.errors import Array, SourceError, unencodable
from onepass.stream.kinds import refuse
from onepass.stream.literals import SKIP, Literals, as_text
from onepass.validation.table import Table, to_column

__all__ = ["NATIVE", "Objects"]

NATIVE = frozenset({"number", "true or false"})
"""Forms of values that JSON does not quote."""
_Decide = Callable[[str, Sequence[Any], int], str]


class Objects:
    r"""Reads lines of one source.

    Parameters
    ----------
    source : str
        Its name, for messages.
    passes : callable
        Whether to leave out a key and all keys within its value, by its full name.
    literals : Literals
        How text is parsed.
    decide : callable
        Gives the form of a column of text by its name, its values and the row of the first.

    Examples
    --------
    >>> text = b'{"km": 3, "by": {"sea": true}}\n\n{"km": null}\n'
    >>> table = Objects("a.jsonl").table(text, {}, {}, first=0, line=0)
    >>> table.row(0), table.row(1)
    ({'km': 3.0, 'by.sea': 1.0}, {'km': nan, 'by.sea': nan})
    """

    def __init__(
        self,
        source: str,
        passes: Callable[[str], bool] = lambda name: not name,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        decide: _Decide = lambda *_: "text",
    ) -> None:
        self._source = source
        self._passes = passes
        self._literals = literals
        self._decide = decide

    def table(
        self,
        text: bytes,
        known: dict[str, str],
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
            The forms of columns; those of new columns are added.
        types : dict of str to str
            The kinds that the user gave; the caller converts these columns.
        first, line : int
            The numbers of rows and lines before.
        bad : dict of int to str, optional
            Gets the errors of rows to be skipped, by index.

        Raises
        ------
        SourceError
            If a line is no object, or a value is not of its column's kind, and ``bad`` is not
            given.
        """
        rows, lines = self._rows(text, line, bad)
        columns = {}
        for name, values in _by_name(rows).items():
            if name in types:
                columns[name] = _worded(values, name, types[name])
                continue
            form = known.get(name) or self._form(name, values, first)
            if any(value is not None for value in values):
                known[name] = form
            columns[name], unfit = self._column(values, form, name)
            for i in unfit:
                place = f"row {first + i} (counting from 0, line {lines[i]}), column {name!r}"
                refuse(i, self._refused(place, form, values[i], name), bad)
        return Table(columns, len(rows))

    def forms(self, text: bytes, *, skip: bool = False) -> dict[str, str]:
        """The forms of the columns of which all values in some whole lines have one form."""
        rows, _ = self._rows(text, 0, {} if skip else None)
        columns = {n: v for n, v in _by_name(rows).items() if any(one is not None for one in v)}
        forms = {name: self._form(name, values, 0) for name, values in columns.items()}
        return {n: form for n, form in forms.items() if not self._column(columns[n], form, n)[1]}

    def _form(self, name: str, values: Sequence[Any], first: int) -> str:
        """The form of a column by most of its values, of which a list counts as none."""
        given = [value for value in values if isinstance(value, (str, int, float))]
        most = Counter(isinstance(value, str) for value in given).most_common(1)
        if most and most[0][0]:
            return self._decide(name, values, first)
        shown = next((value for value in given if not isinstance(value, str)), None)
        return "true or false" if isinstance(shown, bool) else "number"

    def _column(self, values: Sequence[Any], form: str, name: str) -> tuple[Array, list[int]]:
        """Values as a column of one form, and the places of those that do not have it."""
        kinds = (int, float) if form in NATIVE else str  # a bool is an int
        given: list[Any] = [value if isinstance(value, kinds) else None for value in values]
        other = [i for i, v in enumerate(values) if v is not None and given[i] is None]
        if form in NATIVE:
            return to_column(given, name), other
        column, unfit = self._literals.array(given, form)
        return column, sorted(other + unfit)

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
        """The values of a line, which must be one object, by their full names."""
        try:
            return self._named(json.loads(text, object_pairs_hook=_once))
        except (TypeError, ValueError) as wrong:  # bytes that are no UTF-8 among them
            raise self._no_object(text, line, f"{wrong}") from wrong
        except RecursionError:
            raise self._no_object(text, line, "it is nested too deeply") from None

    def _named(self, value: Any) -> dict[str, Any]:
        """The values within an object by their full names, which must be unique."""
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
            f"{shown!r} ({why}). Fix the line, or give {SKIP}."
        )

    def _flat(self, value: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        """The full names of the keys of an object and of objects within it, and the values."""
        for key, inner in value.items():
            name = before + key
            if self._passes(name):
                continue
            if isinstance(inner, dict):
                yield from self._flat(inner, f"{name}.")
            else:
                yield name, inner

    def _refused(self, place: str, form: str, value: Any, name: str) -> SourceError:
        if isinstance(value, list):
            return SourceError(
                f"op.stream.read: {self._source}: {place} must be a number, text, true, false, "
                f"null or an object, got a list. Leave it out with drop=[{name!r}] (--drop {name}) "
                f"or give {SKIP}."
            )
        return SourceError(
            f"op.stream.read: {self._source}: {place} must be {self._literals.word(form)}, as most "
            f"of its first values are, got {value!r}. {self._literals.remedy(name, value)}"
        )


def _by_name(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each column, None where a row has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, refused if it has a key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"it has the key {twice!a} twice")
    return found


def _worded(values: Sequence[Any], name: str, kind: str) -> Array:
    """Values of any kind as a column: numbers, or text that keeps the digits of whole numbers."""
    numbers = float if kind == "text" else (int, float)
    if all(v is None or (isinstance(v, numbers) and not isinstance(v, bool)) for v in values):
        return to_column(values, name)
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        word = json.dumps(value) if isinstance(value, (bool, list)) else as_text(value)
        column[i] = None if value is None else word
    return column
