"""Types of columns: inference and conversion for all sources.

A type is number, bool, text or date (see :mod:`onepass.validation.table`). The form of a column is
its type and, for text, the spelling of its values. ``types`` set it in advance; otherwise the first
chunk in which the column has a value determines it. Until then the column is nan. A later value of
another form raises an error with its position.

Text in CSV may be of any type. Text in other sources, which can store numbers as numbers, may be
dates, times of day or durations, and numbers only if ``types`` says so. The categories of frames
and of Arrow, the keys of folders, and targets apart from the features remain text.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from onepass.errors import OnepassError, ParameterError, SourceError, first_unencodable
from onepass.stream.arrow import dtype_code, is_exact, is_text, to_array
from onepass.stream.literals import (
    DTYPE_CODES,
    SKIP_REMEDY,
    TYPE_NAMES,
    TextParser,
    as_text,
)
from onepass.stream.sources import Chunk, RawColumn
from onepass.types import Array
from onepass.validation.table import (
    as_python,
    is_missing,
    is_missing_value,
    missing_column,
    to_column,
    zoned,
)

_Converted = tuple[Array, list[int], Any]
"""A converted column, the positions of values of another type, and the original values."""


def check_types(types: Mapping[str, str] | None) -> dict[str, str]:
    """Check the user's ``types``, and return them as a dict.

    Raises
    ------
    ParameterError
        If a type is not one of number, bool, text and date.
    """
    requested = dict(types or {})
    for name, kind in requested.items():
        if kind not in DTYPE_CODES:
            raise ParameterError(
                f"`types` must map each column to one of {', '.join(map(repr, DTYPE_CODES))}, got "
                f"{kind!r} for column {name!r}. Use one of these types."
            )
    return requested


class ColumnTypes:
    """Converts the chunks of one source, so that each column has one type.

    Parameters
    ----------
    types : dict of str to str
        Types of columns that the user has set.
    located : callable
        Returns the location of a row as text, by its number.
    parser : TextParser
        Parser of text.
    targets : sequence of str
        The target columns, in which booleans are text labels as written.
    skip : bool
        Whether rows with values of another type are skipped.
    parsed : bool
        Whether text is parsed; otherwise it remains text.
    learned : collection of str
        Columns whose type is that of a model: numbers are not converted to its text.

    Examples
    --------
    >>> types = ColumnTypes({"code": "text"}, "meter.csv: row {}".format)
    >>> types.convert(Chunk({"code": [7], "load": [None]}, 1), first=0).columns
    {'code': array(['7'], dtype=object), 'load': array([nan])}
    >>> types.convert(Chunk({"load": ["high"]}, 1), first=1).columns
    {'code': array([None], dtype=object), 'load': array(['high'], dtype=object)}
    """

    def __init__(
        self,
        types: Mapping[str, str],
        located: Callable[[int], str],
        parser: TextParser = TextParser(),  # noqa: B008  immutable
        *,
        targets: Sequence[str] = (),
        skip: bool = False,
        parsed: bool = True,
        learned: Collection[str] = (),
    ) -> None:
        self._parsed, self._learned = parsed, learned
        self._given, self._types = types, dict(types)
        self._located = located
        self._parser = parser
        self._targets, self._skip = targets, skip
        self._forms: dict[str, str | None] = {}
        self._warned: set[str] = set()

    def restart(self) -> None:
        """Reset the inferred types: each pass infers them from its first rows.

        Warnings are not repeated in later passes.
        """
        self._warned |= {name for name, form in self._forms.items() if form is not None}
        self._forms = {}
        self._types = dict(self._given)

    def order(self, names: Sequence[str]) -> None:
        """Put these columns first, in this order."""
        self._forms = {**dict.fromkeys(names), **self._forms}

    def convert(self, chunk: Chunk, first: int, *, passed: bool = False) -> Chunk:
        """Return a chunk with all columns seen so far, converted to their types.

        Parameters
        ----------
        chunk : Chunk
            The next rows. Values of absent columns are missing.
        first : int
            Position of the first row in the source.
        passed : bool
            Whether the rows are skipped; if so, only columns without a form are examined.

        Raises
        ------
        SourceError
            If a value is not of the type of its column, unless such rows are skipped.
        """
        bad = dict(chunk.bad)
        if passed:
            for name, column in chunk.columns.items():
                if self._forms.get(name) is None:
                    self._convert(name, column, first, chunk, bad)
            return replace(chunk, columns={}, bad={})
        columns = {}
        for name in dict.fromkeys((*self._forms, *chunk.columns)):
            column = chunk.columns.get(name)
            if column is None:
                columns[name] = missing_column(self._dtype_code(name), chunk.n)
            else:
                columns[name] = self._convert(name, column, first, chunk, bad)
        return replace(chunk, columns=columns, bad=bad)

    def _dtype_code(self, name: str) -> str:
        """Return the dtype code of a column; f if it has no form yet."""
        kind = self._types.get(name) or self._parser.kind(self._forms.get(name) or "number")
        return DTYPE_CODES[kind].replace("b", "f")

    def _convert(
        self, name: str, column: RawColumn, first: int, chunk: Chunk, bad: dict[int, OnepassError]
    ) -> Array:
        """Convert a column to an array; raise for values of another type, or mark them as bad."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.Array) and is_text(column.type):
            column = column.cast(pa.string())
        if isinstance(column, np.ndarray) and column.dtype.kind in "OU":
            column = column.tolist()
        self._forms.setdefault(name)
        if name in self._types:
            array, unfit, values = self._of_given_type(name, column, first)
        elif isinstance(column, pa.Array) and pa.types.is_string(column.type):
            kind = None if chunk.text_format == "csv" else "quoted"
            array, unfit, values = self._of_text(name, column, first, kind)
        elif isinstance(column, list):
            array, unfit, values = self._of_objects(name, column, first, chunk.text_format)
        else:
            array, unfit, values = self._of_own_type(name, column, first)
        because = "requested" if name in self._types else "in the first rows"
        for i in unfit:
            form = self._forms[name] or self._types.get(name) or "number"
            expected = f"{self._parser.word(form)}, as {because}"
            error = self._error(
                name, first + i, values[i], expected, csv=chunk.text_format == "csv"
            )
            if not self._skip:
                raise error
            bad.setdefault(i, error)
        return array

    def _of_given_type(self, name: str, column: RawColumn, first: int) -> _Converted:
        """Convert a column whose type the user has set."""
        kind, typed = self._types[name], None
        texts: Any = column
        if not isinstance(column, pa.Array) or not pa.types.is_string(column.type):
            with suppress(OnepassError) if isinstance(column, list) else nullcontext():
                typed = self._typed(name, column, first)
            if typed is not None and typed.dtype.kind == DTYPE_CODES[kind]:
                return typed, [], []
            # a code was perhaps 00501 or 1.50 before another program read it as a number
            if name in self._learned and typed is not None and typed.dtype.kind + kind == "ftext":
                given = np.flatnonzero(~is_missing(typed)).tolist()
                return missing_column("O", len(typed)), given, as_python(typed)
            texts = _texts(column, typed, kind)
        array, unfit, _ = self._of_text(name, texts, first, kind)
        if isinstance(column, list) and array.dtype == object and typed is None:
            unfit = [
                i for i, text in enumerate(texts) if text and first_unencodable([text]) is not None
            ]
            array[unfit] = None
        if unfit and typed is not None and not isinstance(column, list):
            return array, unfit, as_python(typed)
        return array, unfit, column

    def _of_text(
        self, name: str, column: pa.Array | list[Any], first: int, kind: str | None
    ) -> _Converted:
        """Convert a column of text, which is parsed."""
        if _is_empty(column):
            return missing_column(self._dtype_code(name), len(column)), [], []
        if self._forms[name] is None:
            form = self._parser.quick_form(column, kind) if isinstance(column, pa.Array) else None
            if form is None:
                texts = column.to_pylist() if isinstance(column, pa.Array) else column
                form = self._infer_form(name, texts, first, kind)
            if kind is None and form == "true or false" and name in self._targets:
                self._types[name] = form = "text"
            self._forms[name] = form
        return *self._parser.array(column, self._forms[name] or "text"), column

    def _of_objects(self, name: str, column: list[Any], first: int, text_format: str) -> _Converted:
        """Convert Python values; text is parsed if at least half of the first values are text."""
        texts = [value if isinstance(value, str) else None for value in column]
        if self._forms[name] is None:
            given = [value for value in column if not is_missing_value(value)]
            if not given:
                return missing_column(self._dtype_code(name), len(column)), [], []
            n_texts = sum(isinstance(value, str) for value in given)
            most = 2 * n_texts > len(given) - isinstance(given[0], str)
            if text_format and name in self._targets and set(map(type, given)) == {bool}:
                self._types[name] = "text"
                return self._of_given_type(name, column, first)
            if most and self._parsed:
                self._forms[name] = self._infer_form(
                    name, texts, first, "quoted", len(given) - n_texts
                )
            else:
                self._forms[name] = TYPE_NAMES[_majority_array(column, None)[0].dtype.kind]
        form = self._forms[name] or "text"
        if form in TYPE_NAMES.values():
            return self._of_form(name, *_majority_array(column, form), column)
        array, unfit = self._parser.array(texts, form)
        others = [i for i, v in enumerate(column) if texts[i] is None and not is_missing_value(v)]
        return array, sorted(others + unfit), column

    def _infer_form(
        self, name: str, texts: Sequence[Any], first: int, kind: str | None, numbers: int = 0
    ) -> str | None:
        """Infer the form of a column of text from its first values."""
        return self._parser.infer_form(
            name, texts, kind, source=self._source(first), first=first, numbers=numbers,
            target=name in self._targets, skip=self._skip, warn=name not in self._warned,
        )  # fmt: skip

    def _of_own_type(self, name: str, column: RawColumn, first: int) -> _Converted:
        """Convert an array that has a type."""
        if isinstance(column, pa.Array) and self._forms[name] is None:
            certain = dtype_code(column.type)
            if certain == "b" and name in self._targets:
                self._types[name] = "text"
                return self._of_given_type(name, column, first)
            self._forms[name] = None if certain is None else TYPE_NAMES[certain]
        return self._of_form(name, self._typed(name, column, first), [], None)

    def _of_form(
        self, name: str, array: Array, unfit: list[int], values: list[Any] | None
    ) -> _Converted:
        """Set the form of a column by its first values; later values of other forms are unfit."""
        if TYPE_NAMES[array.dtype.kind] == self._forms[name]:
            return array, unfit, values
        given = np.flatnonzero(~is_missing(array)).tolist()
        if self._forms[name] is None and given:
            self._forms[name] = TYPE_NAMES[array.dtype.kind]
            return array, unfit, values
        values = as_python(array) if values is None else values
        return missing_column(self._dtype_code(name), len(array)), sorted(unfit + given), values

    def _typed(self, name: str, column: RawColumn, first: int) -> Array:
        """Convert a column according to its type in the source."""
        if isinstance(column, pa.Array):
            return to_array(column, name, self._source(first))
        return to_column(column, name)

    def _source(self, row: int) -> str:
        """Return the name of the source of a row, for messages."""
        return self._located(row).rpartition(": row ")[0]

    def _error(
        self, name: str, row: int, value: object, expected: str, *, csv: bool
    ) -> SourceError:
        place = f"{self._located(row)}, column {name!r}"
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        if _kind(value) == ("", False):
            shown: Any
            expected, shown = (
                "a number, text, a boolean or a date",
                f"a value of type {type(value).__name__}",
            )
            if isinstance(value, str):
                expected, shown = "text", f"{value!a}, which contains a lone surrogate"
            elif isinstance(value, int):
                expected, shown = "a number within float64", "a number of more than 308 digits"
            return SourceError(
                f"{place} must be {expected}",
                got=shown,
                remedy=f"Exclude the column with drop=[{name!r}] (--drop {name}), or pass "
                f"{SKIP_REMEDY}.",
            )
        if isinstance(value, dt.datetime) and expected.startswith("a date"):
            expected = f"a date {'without' if value.tzinfo else 'with'} a time zone"
        shown = str(value) if isinstance(value, (np.datetime64, dt.datetime)) else value
        shown = shown.item() if isinstance(shown, np.generic) else shown
        na = f"na=({value!r},) (--na {value!r}) if it means missing, " if csv else ""
        remedy = self._parser.remedy(name, value, na)
        return SourceError(f"{place} must be {expected}", got=repr(shown), remedy=remedy)


def _majority_array(values: list[Any], form: str | None) -> tuple[Array, list[int]]:
    """Convert Python values of one type to an array; also return the positions of all others.

    The others are missing in the array. The type is the form, or the type of most values.
    """
    with suppress(OnepassError):
        return to_column(values, ""), []
    kinds = [_kind(value) for value in values]
    counts = Counter(kind for kind in kinds if kind and kind[0] and form in {None, kind[0]})
    most = counts.most_common(1)[0][0] if counts else (form or "number", False)
    unfit = [i for i, kind in enumerate(kinds) if kind not in {None, most}]
    given = [value if kind == most else None for value, kind in zip(values, kinds, strict=True)]
    return to_column(given, ""), unfit


def _kind(value: Any) -> tuple[str, bool] | None:
    """Return the type of a Python value and whether it has a time zone; ("", False) for no type."""
    with suppress(OnepassError):
        column = to_column([value], "")
        return (
            None
            if is_missing(column)[0]
            else (TYPE_NAMES[column.dtype.kind], True in zoned([value]))
        )
    return "", False


def _is_empty(column: pa.Array | list[Any]) -> bool:
    """Return whether all values are missing."""
    if isinstance(column, pa.Array):
        return bool(column.null_count == len(column))
    return all(value is None for value in column)


def _texts(column: RawColumn, typed: Array | None, kind: str) -> pa.Array | list[str | None]:
    """Convert the values of a column to text; integers retain all digits."""
    if isinstance(column, list) or typed is None:
        texts = [_text(value) for value in column]
        return texts if kind == "text" else [text or None for text in texts]
    if isinstance(column, np.ndarray) and column.dtype.kind == "b":
        return [_text(value) for value in column.tolist()]
    if kind == "text" and isinstance(column, pa.Array) and is_exact(column.type):
        return column.cast(pa.string())
    if kind == "text" and isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        words: list[str | None] = column.astype(str).tolist()
        return words
    values = zip(as_python(typed), is_missing(typed), strict=True)
    return [None if missing else as_text(value) for value, missing in values]


def _text(value: Any) -> str | None:
    """Convert a value to text, booleans and lists as in JSON; missing values to None."""
    if is_missing_value(value):
        return None
    return json.dumps(value) if isinstance(value, (bool, list)) else as_text(value)
