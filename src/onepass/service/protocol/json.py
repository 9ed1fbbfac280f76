"""JSON of requests: msgspec decodes a body at once, and its errors become errors of the request.

Rows that JSON gives as lists, objects or columns become arrays and tables here.
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

__all__ = [
    "ALIKE",
    "Number",
    "Object",
    "Row",
    "Scalar",
    "column",
    "decoded",
    "encoded",
    "features",
    "texts",
    "unwritable",
]

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

ALIKE = "Send numbers as numbers, text as text, and null for what is missing"
"""The remedy for values of several kinds."""


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
        What to do if a field of this name is not what it should be.
    place : str, default ""
        Where the text stands in the request, for messages.

    Raises
    ------
    RequestError
        If it is too long, not JSON, or not of the decoder's type.
    """
    limits.check_json(len(text))
    try:
        return decoder.decode(text)
    except RecursionError as error:
        must = "be nested a few levels deep"
        raise request_error(place, must, "hundreds", "Give plain lists") from error
    except UnicodeDecodeError as error:
        must, got = "be UTF-8", f"other bytes ({error.reason})"
        raise request_error(place, must, got, "Write text in UTF-8") from error
    except msgspec.ValidationError as error:
        raise _invalid(str(error), place, hints or {}) from error
    except msgspec.DecodeError as error:
        raise _malformed(str(error), text, place) from error


def _invalid(problem: str, place: str, hints: Mapping[str, str]) -> RequestError:
    """The error of a value of another type, or beyond its bounds."""
    path = ""
    if found := _PATH.fullmatch(problem):
        problem, path = found.groups()
        place = f"{place}{path}" if place else path.lstrip(".")
    field = re.sub(r"\[[\d.]*\]", "", path).rpartition(".")[2]
    if types := _TYPES.fullmatch(problem):
        must, got = map(_in_words, types.groups())
        must = f"be {must}"
    elif bound := _BOUND.fullmatch(problem):
        must, got = f"be {_WORDS[bound[1]]} {bound[2]}", "another"
    else:
        must, got = "fit the schema", problem[0].lower() + problem[1:200]
    return request_error(place, must, got, hints.get(field, "See /openapi.json"))


def _in_words(types: str) -> str:
    """Types of msgspec in plain words."""
    *others, last = (_WORDS.get(each, each) for each in types.split(" | "))
    return f"{', '.join(others)} or {last}" if others else last


def _malformed(problem: str, text: bytes | memoryview, place: str) -> RequestError:
    """The error of text that is not JSON, such as NaN and Infinity, which Python writes."""
    found = _BYTE.search(problem)
    at = int(found[1]) if found else 0
    if found and bytes(memoryview(text)[at : at + 3]).lstrip(b"-") in {b"NaN", b"Inf", b"In"}:
        remedy = "Give null for what is missing, or send binary tensors"
        return request_error(place, "be JSON", "NaN or Infinity, which JSON does not have", remedy)
    if not len(text):
        return request_error(place, "be JSON", "an empty body", "Send one")
    problem = problem.removeprefix("JSON is malformed: ")
    return request_error(place, "be JSON", f"other text: {problem}", "Correct it")


def encoded(value: object) -> bytes:
    """Encode a tree of plain values or structs; nan and infinity become null.

    Raises
    ------
    LabelError
        If it contains text that UTF-8 cannot encode.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise unwritable(error) from error


def unwritable(error: UnicodeEncodeError) -> LabelError:
    """The error of a prediction that UTF-8 cannot encode."""
    return LabelError(
        "the predictions: text must be such as UTF-8 can encode, got half a character "
        f"({error.object[:40]!a}). Learn other labels."
    )


def texts(values: list[Any], place: str, limits: Limits) -> Array:
    """Texts and None as an array of objects.

    Raises
    ------
    RequestError
        If one is too long.
    """
    limits.check_text(max(map(len, filter(None, values)), default=0), place)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def features(rows: list[Any], place: _Place, limits: Limits, nbytes: int) -> Array | Table:
    """Rows as lists of numbers, or as objects, whose missing keys are missing values.

    Parameters
    ----------
    rows : list of list of number or None, or list of dict
    place : callable
        Where a row stands in the request, by its number.
    limits : Limits
    nbytes : int
        Bytes of the request.

    Returns
    -------
    X : ndarray of shape (n, d) or Table

    Raises
    ------
    RequestError
        If rows are not alike, or there is too much of something.
    """
    if type(rows[0]) is not dict:
        return _matrix(rows, place, limits)
    for i, row in enumerate(rows):
        if type(row) is not dict:
            raise request_error(place(i), "be an object, as the rows before", _kind(row), ALIKE)
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    limits.check_size(len(rows), len(names), "columns")
    limits.check_sparse(len(rows) * len(names), nbytes, "columns")
    try:
        table = Table.from_rows(rows)
    except (TypeMismatchError, NumericalError):
        for name in names:  # which raises the error of a value with its place
            where = partial(_in_column, place, name)
            column([row.get(name) for row in rows], where, limits)
        raise
    words: list[Any] = [each for each in table.columns.values() if each.dtype == object]
    limits.check_size(len(rows), len(names), "columns", texts=len(words))
    for each in (names, *words):
        limits.check_text(max((len(text) for text in each if text), default=0), "columns")
    return table


def _in_column(place: _Place, name: str, i: int) -> str:
    return f"{place(i)}[{shown(name)}]"


def _matrix(rows: list[Any], place: _Place, limits: Limits) -> Array:
    """Rows of numbers, all as long as the first."""
    d = len(rows[0]) if rows else 0
    limits.check_size(len(rows), d, "rows")
    for i, row in enumerate(rows):
        if type(row) is not list or len(row) != d:
            must = f"hold {d:,} values, as the rows before"
            got = f"{len(row):,}" if type(row) is list else _kind(row)
            raise request_error(place(i), must, got, "Send as many")
    flat = column(list(chain.from_iterable(rows)), lambda i: f"{place(i // d)}[{i % d}]", limits)
    if flat.dtype == object or flat.ndim != 1:
        must = "hold numbers, as rows without names do"
        raise request_error(place(0), must, "text or lists", "Send numbers, or name the columns")
    return flat.astype(np.float64).reshape(len(rows), d)


def column(values: list[Any], place: _Place, limits: Limits) -> Array:
    """A column of JSON values; whole numbers and truth values stay what they are.

    Parameters
    ----------
    values : list of bool, int, float, str, None, or lists of numbers
    place : callable
        Where a value stands in the request, by its number.
    limits : Limits

    Returns
    -------
    array : ndarray of shape (n,) or (n, c)
        bool, int64, uint64, float64 with nan, or objects: text and None.

    Raises
    ------
    RequestError
        If they are of several kinds, or a number is too large for float64.

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
        fit = {first, "null"} if first in {"a number", "text"} else {first}
        i = next(i for i, kind in enumerate(kinds) if kind not in fit)
        raise request_error(place(i), f"be {first}, as the values before", shown(values[i]), ALIKE)
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
        must = "be a number within float64"
        raise request_error(
            place(i), must, shown(values[i]), "Use larger units, or text"
        ) from error


def _kind(value: object) -> str:
    kinds = {str: "text", list: "a list", dict: "an object", type(None): "null"}
    return kinds.get(type(value), "a number")
