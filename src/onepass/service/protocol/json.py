"""JSON of requests: msgspec decodes a body, and its errors are converted to RequestError.

Rows in JSON, as lists, objects or columns, are converted to arrays and tables.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from onepass.errors import LabelError, NumericalError, RequestError, TypeMismatchError
from onepass.service.protocol.limits import Limits, request_error, shown
from onepass.types import Array
from onepass.validation.table import Table

Scalar: TypeAlias = bool | int | float | str | None
Number: TypeAlias = bool | float | None
Row: TypeAlias = Annotated[list[Number], msgspec.Meta(description="Numbers of a row")]
Object: TypeAlias = Annotated[
    dict[str, Scalar], msgspec.Meta(description="Values of a row by the names of their columns")
]

_T = TypeVar("_T")
_Place = Callable[[int], str]
_ENCODER = msgspec.json.Encoder()
_PATH = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)
_TYPES = re.compile(r"Expected `(.*)`, got `(.*)`")
_BOUND = re.compile(r"Expected `(\w+)` (.*)")
_BYTE = re.compile(r"\(byte (\d+)\)")
_WORDS = {
    "array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number",
    "null": "null", "object": "an object", "str": "text",
}  # fmt: skip

ALIKE = "Send values of one type per column: numbers, text, or true and false; null if missing"
"""Remedy for values of several types."""

_RECORD = 'Send {"x": {"km": 3}, "y": 5}, a list of such rows, or tensors; see /openapi.json'
_ONE_FORM = "Send all rows as objects, or all as lists"


def decoded(
    decoder: msgspec.json.Decoder[_T],
    text: bytes | memoryview,
    limits: Limits,
    hints: Mapping[str, str] | None = None,
    place: str = "",
) -> _T:
    """Decode a body, or the JSON at its beginning.

    Parameters
    ----------
    decoder : msgspec.json.Decoder
    text : bytes-like
    limits : Limits
    hints : mapping of str to str, optional
        Remedies for invalid fields, by name of the field.
    place : str, default ""
        Location of the JSON in the request, for messages.

    Raises
    ------
    RequestError
        If the text is too long, is not JSON, or does not have the decoder's type.
    """
    limits.check_json(len(text))
    try:
        return decoder.decode(text)
    except RecursionError as error:
        must = "be nested a few levels deep"
        remedy = "Send rows as lists or objects of plain values"
        raise request_error(place, must, "hundreds of levels", remedy) from error
    except UnicodeDecodeError as error:
        must, got = "be UTF-8", f"other bytes ({error.reason})"
        raise request_error(place, must, got, "Encode text in UTF-8") from error
    except msgspec.ValidationError as error:
        raise _invalid(str(error), place, hints or {}) from error
    except msgspec.DecodeError as error:
        raise _malformed(str(error), text, place) from error


def _invalid(problem: str, place: str, hints: Mapping[str, str]) -> RequestError:
    """Return the error for a value of the wrong type or out of bounds."""
    path = ""
    if located := _PATH.fullmatch(problem):
        problem, path = located.groups()
        place = f"{place}{path}" if place else path.lstrip(".")
    field = re.sub(r"\[[\d.]*\]", "", path).rpartition(".")[2]
    if problem.endswith("missing required field `inputs`"):
        return request_error(place, "have rows", "none", _RECORD)
    if types := _TYPES.fullmatch(problem):
        must, got = map(_in_words, types.groups())
        must = f"be {must}"
    elif bound := _BOUND.fullmatch(problem):
        must, got = f"be {_WORDS[bound[1]]} {bound[2]}", "a value out of bounds"
    else:
        must, got = "conform to the schema", problem[0].lower() + problem[1:200]
    return request_error(place, must, got, hints.get(field, "See /openapi.json"))


def _in_words(types: str) -> str:
    """Describe types in msgspec's notation in plain words."""
    *others, last = (_WORDS.get(name, name) for name in types.split(" | "))
    return f"{', '.join(others)} or {last}" if others else last


def _malformed(problem: str, text: bytes | memoryview, place: str) -> RequestError:
    """Return the error for text that is not JSON, such as NaN and Infinity, which Python writes."""
    byte = _BYTE.search(problem)
    at = int(byte[1]) if byte else 0
    if byte and bytes(memoryview(text)[at : at + 3]).lstrip(b"-") in {b"NaN", b"Inf", b"In"}:
        remedy = "Send null for missing values, or send binary tensors"
        return request_error(place, "be JSON", "NaN or Infinity, which JSON does not have", remedy)
    if not len(text):
        return request_error(place, "be JSON", "an empty body", "Send the rows in the body")
    problem = problem.removeprefix("JSON is malformed: ")
    return request_error(place, "be JSON", f"other text: {problem}", "Correct the JSON")


def encoded(value: object) -> bytes:
    """Encode plain values or structs, also nested; nan and infinity become null.

    Raises
    ------
    LabelError
        If ``value`` contains text that UTF-8 cannot encode.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise unwritable(error) from error


def unwritable(error: UnicodeEncodeError) -> LabelError:
    """Return the error for a predicted text that UTF-8 cannot encode."""
    return LabelError(
        "the predictions: text must be encodable in UTF-8, got a lone surrogate in "
        f"{error.object[:40]!a}. Learn labels without lone surrogates."
    )


def texts(values: list[Any], place: str, limits: Limits) -> Array:
    """Convert texts and None to an array of objects.

    Raises
    ------
    RequestError
        If a text is too long.
    """
    limits.check_text(max(map(len, filter(None, values)), default=0), place)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def features(rows: list[Any], place: _Place, limits: Limits, nbytes: int) -> Array | Table:
    """Convert rows: lists of numbers, or objects whose absent keys are missing values.

    Parameters
    ----------
    rows : list of list of number or None, or list of dict
    place : callable
        Function that maps the index of a row to its location in the request.
    limits : Limits
    nbytes : int
        Size of the request in bytes.

    Returns
    -------
    X : ndarray of shape (n, d) or Table

    Raises
    ------
    RequestError
        If the rows do not all have the same form, or a limit is exceeded.
    """
    if type(rows[0]) is not dict:
        return _matrix(rows, place, limits)
    for i, row in enumerate(rows):
        if type(row) is not dict:
            raise request_error(place(i), "be an object, like the first row", _kind(row), _ONE_FORM)
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    limits.check_size(len(rows), len(names), "columns")
    limits.check_sparse(len(rows) * len(names), nbytes, "columns")
    try:
        table = Table.from_rows(rows)
    except (TypeMismatchError, NumericalError):
        for name in names:  # raises the error with the location of the value
            where = partial(_in_column, place, name)
            column([row.get(name) for row in rows], where, limits)
        raise
    text_columns: list[Any] = [each for each in table.columns.values() if each.dtype == object]
    limits.check_size(len(rows), len(names), "columns", texts=len(text_columns))
    for each in (names, *text_columns):
        limits.check_text(max((len(text) for text in each if text), default=0), "columns")
    return table


def _in_column(place: _Place, name: str, i: int) -> str:
    return f"{place(i)}[{shown(name)}]"


def _matrix(rows: list[Any], place: _Place, limits: Limits) -> Array:
    """Convert rows of numbers, all of the same length, to a matrix."""
    d = len(rows[0]) if rows else 0
    limits.check_size(len(rows), d, "rows")
    for i, row in enumerate(rows):
        if type(row) is not list or len(row) != d:
            must = f"be a list of {d:,} values, like the first row"
            got = f"{len(row):,} values" if type(row) is list else _kind(row)
            raise request_error(place(i), must, got, "Send rows of equal length")
    flat = column(list(chain.from_iterable(rows)), lambda i: f"{place(i // d)}[{i % d}]", limits)
    if flat.dtype == object or flat.ndim != 1:
        must = "contain numbers, as its columns have no names"
        raise request_error(place(0), must, "text or lists", "Send numbers, or name the columns")
    return flat.astype(np.float64).reshape(len(rows), d)


def column(values: list[Any], place: _Place, limits: Limits) -> Array:
    """Convert JSON values to an array; whole numbers and truth values are not converted to float64.

    Parameters
    ----------
    values : list of bool, int, float, str, None, or lists of numbers
    place : callable
        Function that maps the index of a value to its location in the request.
    limits : Limits

    Returns
    -------
    array : ndarray of shape (n,) or (n, c)
        bool, int64, uint64, float64 with nan, or objects: text and None.

    Raises
    ------
    RequestError
        If the values have several types, or a number is too large for float64.

    Examples
    --------
    >>> column([1, None], str, Limits()), column([1, 2], str, Limits())
    (array([ 1., nan]), array([1, 2]))
    """
    types = set(map(type, values))
    if types == {list}:
        return _matrix(values, place, limits)
    types -= {type(None)}
    if types == {str}:
        return texts(values, place(0), limits)
    if types & {str, list, dict}:
        kinds = [_kind(each) for each in values]
        first = next(kind for kind in kinds if kind != "null")
        allowed = {first, "null"} if first in {"a number", "text"} else {first}
        i = next(i for i, kind in enumerate(kinds) if kind not in allowed)
        raise request_error(place(i), f"be {first}, like earlier values", shown(values[i]), ALIKE)
    if types == {bool} and None not in values:
        return np.array(values)
    if types == {int} and None not in values:
        for dtype in (np.int64, np.uint64):
            with suppress(OverflowError):
                return np.array(values, dtype=dtype)
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError as error:
        i = max(range(len(values)), key=lambda i: abs(values[i] or 0))
        must = "be a number that fits in float64"
        remedy = "Divide the values by a constant, or send text"
        raise request_error(place(i), must, shown(values[i]), remedy) from error


def _kind(value: object) -> str:
    kinds = {str: "text", list: "a list", dict: "an object", type(None): "null"}
    return kinds.get(type(value), "a number")
