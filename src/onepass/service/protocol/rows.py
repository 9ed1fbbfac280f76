"""Decoded requests and responses: what every format reads into and writes from."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from onepass.service.protocol.limits import request_error, shown
from onepass.types import Array
from onepass.validation.table import Table

__all__ = [
    "DEFAULT_OUTPUTS",
    "OUTPUTS",
    "ROLES",
    "DecodedRequest",
    "EncodedResponse",
    "Output",
    "OutputName",
    "build_request",
    "datatype_of",
    "dates",
    "with_roles",
]

OutputName: TypeAlias = Literal["y", "probabilities", "classes"]

OUTPUTS: tuple[str, ...] = get_args(OutputName)
"""Outputs: predictions (n,), probabilities of the classes (n, k), and the classes (k,)."""

ROLES = ("y", "sample_weight", "time")
"""Names of columns that belong to rows to be learned and are not features."""

_Place = Callable[[str], str]


class Output(NamedTuple):
    """An output of the response."""

    name: str
    """One of ``OUTPUTS``."""
    binary: bool = False
    """Whether as a binary tensor."""


DEFAULT_OUTPUTS = (Output("y"),)
"""The outputs of a request that names none."""


@dataclass(slots=True, eq=False)
class DecodedRequest:
    """A decoded request.

    Parameters
    ----------
    X : ndarray of shape (n, d) or Table
        The rows: numbers without names, or named columns.
    y : ndarray of shape (n,) or (n, c), optional
        Targets of rows to be learned: float64, int64, uint64, bool, or text as objects.
    sample_weight : ndarray of shape (n,), optional
        float64.
    time : ndarray of shape (n,), optional
        float64, int64, or datetime64[us] in UTC.
    id : str, default ""
        The client's name of the request.
    outputs : tuple of Output
        Outputs of the response, in this order.
    parameters : mapping of str to bool, int, float, str or None, optional
        Further parameters, as they were received.
    """

    X: Array | Table
    y: Array | None = None
    sample_weight: Array | None = None
    time: Array | None = None
    id: str = ""
    outputs: tuple[Output, ...] = DEFAULT_OUTPUTS
    parameters: Mapping[str, Any] | None = None


class EncodedResponse(NamedTuple):
    """An encoded response."""

    body: bytes
    kind: str = "application/json"
    """Its content type."""
    headers: Mapping[str, str] | None = None
    """Further headers of HTTP."""


def build_request(named: dict[str, Array], place: _Place, *, learning: bool) -> DecodedRequest:
    """Build a request from named arrays.

    Parameters
    ----------
    named : dict of str to ndarray of shape (n,) or (n, k)
        Numbers, truth values, text as objects, or dates. One matrix by itself is rows without
        names; else each is a column.
    place : callable
        Where a column stands in the request, by its name.
    learning : bool
        Whether y, sample_weight and time belong to rows to be learned. If not, they are ignored
        beside a matrix, and are columns otherwise.

    Raises
    ------
    RequestError
        If the arrays do not fit together.
    """
    parts = {role: named[role] for role in ROLES if role in named} if learning else {}
    others = {name: array for name, array in named.items() if name not in ROLES}
    if learning or [array.ndim for array in others.values()] == [2]:
        named = others
    if not named:
        got = " and ".join(parts) or "none"
        raise request_error(
            "", "have columns that are features", got, "Send rows, one or more columns"
        )
    return with_roles(_features(named, place), parts, place)


def with_roles(X: Array | Table, parts: Mapping[str, Array], place: _Place) -> DecodedRequest:
    """Build a request from features and the columns that belong to them.

    Parameters
    ----------
    X : ndarray of shape (n, d) or Table
    parts : mapping of str to ndarray
        By the names of ``ROLES``.
    place : callable
        Where a column stands in the request, by its name.

    Raises
    ------
    RequestError
        If a column has another number of rows or other values than its role has.
    """
    request = DecodedRequest(X)
    for role, part in parts.items():
        where = place(role)
        if len(part) != len(X):
            must = f"have {len(X):,} rows, as the features have"
            raise request_error(where, must, f"{len(part):,}", "Send as many as there are rows")
        setattr(request, role, _CHECKS[role](part, where))
    return request


def _features(named: dict[str, Array], place: _Place) -> Array | Table:
    """A matrix, or a Table."""
    if len(named) == 1:
        (only,) = named.values()
        if only.ndim == 2 and only.dtype.kind in "biuf":
            return only.astype(np.float64, copy=False)
    n = len(next(iter(named.values())))
    columns = {name: _column(array, n, place(name)) for name, array in named.items()}
    return Table(columns, n)


def _column(array: Array, n: int, place: str) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "be a column of shape [n] or [n, 1], as text or one of several is"
        remedy = "Send numbers as one matrix [n, d], or each column by its name"
        raise request_error(place, must, f"{list(array.shape)}", remedy)
    if len(array) != n:
        must = f"have {n:,} rows, as the column before"
        raise request_error(place, must, f"{len(array):,}", "Send columns of equal length")
    array = array.reshape(n)
    return array if array.dtype.kind in "OM" else array.astype(np.float64, copy=False)


def _targets(array: Array, place: str) -> Array:
    """Targets: text without a second axis, and whole numbers as int64 where they fit."""
    kind = array.dtype.kind
    if kind == "M" or (kind == "O" and array.ndim == 2 and array.shape[1] != 1):
        got = "dates" if kind == "M" else f"text of shape {list(array.shape)}"
        raise request_error(place, "be numbers, or one text a row", got, "Send such targets")
    if kind == "O":
        return array.reshape(len(array))
    if kind == "u" and (not array.size or int(array.max()) < 1 << 63):
        return array.astype(np.int64)
    return array


def _weights(array: Array, place: str) -> Array:
    if array.dtype.kind not in "iuf":
        raise request_error(place, "be numbers", "others", "Send one number a row")
    return _one_a_row(array, place).astype(np.float64, copy=False)


def _times(array: Array, place: str) -> Array:
    array = _one_a_row(array, place)
    if array.dtype.kind == "O":
        return dates(array, lambda i: f"{place}, row {i}")
    if array.dtype.kind == "b":
        raise request_error(place, "be numbers or dates", "truth values", "Send one time a row")
    return array


def _one_a_row(array: Array, place: str) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "have the shape [n] or [n, 1]"
        raise request_error(place, must, f"{list(array.shape)}", "Send one value a row")
    return array.reshape(len(array))


_CHECKS = {"y": _targets, "sample_weight": _weights, "time": _times}


def dates(texts: Array, place: Callable[[int], str]) -> Array:
    """Parse dates.

    Parameters
    ----------
    texts : ndarray of shape (n,), of objects
        Text such as ``2026-11-22T23:08:40.5Z`` or ``2026-11-22``, or None. A date without a time
        zone is UTC; digits below a microsecond are left out.
    place : callable
        Where a text stands in the request, by its number.

    Returns
    -------
    dates : ndarray of shape (n,), datetime64[us]
        NaT for None.

    Raises
    ------
    RequestError
        If one is not a date.

    Examples
    --------
    >>> dates(np.array(["2026-11-22T01:00+02:00", None], dtype=object), str)
    array(['2026-11-21T23:00:00.000000', 'NaT'], dtype='datetime64[us]')
    """
    found = [None if each is None else _date(each, i, place) for i, each in enumerate(texts)]
    return np.array(found, dtype="datetime64[us]")


def _date(text: str, i: int, place: Callable[[int], str]) -> dt.datetime:
    try:
        date = dt.datetime.fromisoformat(text)
        return date if date.tzinfo is None else date.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        must = "be a date as ISO 8601 writes it, such as '2026-11-22T23:08:40Z'"
        raise request_error(place(i), must, shown(text), "Write it so") from error


def datatype_of(array: Array) -> str:
    """The datatype of the Open Inference Protocol in which predictions are written.

    Parameters
    ----------
    array : ndarray
        Numbers, truth values or text; of objects, text or whole numbers with None among them.

    Examples
    --------
    >>> [datatype_of(np.array(y)) for y in (0.5, 3, True, "late")]
    ['FP64', 'INT64', 'BOOL', 'BYTES']
    >>> datatype_of(np.array([None, 3]))  # nan stands for None
    'FP64'
    """
    kind = array.dtype.kind
    if kind == "O":
        words = any(isinstance(each, str) for each in array.flat)
        return "BYTES" if words or not array.size else "FP64"
    if kind == "u" and array.dtype.itemsize == 8:
        return "UINT64"
    return {"f": "FP64", "b": "BOOL", "U": "BYTES"}.get(kind, "INT64")
