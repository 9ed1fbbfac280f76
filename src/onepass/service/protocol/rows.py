"""Decoded requests and encoded responses, which all formats share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from onepass.service.protocol.limits import request_error, shown
from onepass.types import Array
from onepass.validation.rows import Rows
from onepass.validation.table import Table

OutputName: TypeAlias = Literal["y", "probabilities", "classes", "recall"]

OUTPUTS: tuple[str, ...] = get_args(OutputName)
"""Predictions (n,) or (n, c), probabilities of the classes (n, k), the classes (k,), and the
predictions of rows of the whole past (n,) or (n, c)."""

ROLES = ("y", "sample_weight", "time")
"""Columns of rows to learn that are not features."""

_Place = Callable[[str], str]


class Output(NamedTuple):
    """An output of the response."""

    name: str
    """One of ``OUTPUTS``."""
    binary: bool = False
    """Whether the output is a binary tensor."""


DEFAULT_OUTPUTS = (Output("y"),)
"""Outputs of a request without ``outputs``."""


@dataclass(slots=True, eq=False)
class DecodedRequest:
    """A decoded request.

    Parameters
    ----------
    rows : Rows
        The features are numbers without names, or named columns. Targets of rows to learn are
        float64, int64, uint64, bool, or text as objects; weights are float64; times are float64,
        int64, or datetime64[us] in UTC.
    id : str, default ""
        Id of the request, chosen by the client.
    outputs : tuple of Output
        Outputs of the response, in order.
    parameters : mapping of str to bool, int, float, str or None, optional
        Further parameters, unchanged.
    """

    rows: Rows
    id: str = ""
    outputs: tuple[Output, ...] = DEFAULT_OUTPUTS
    parameters: Mapping[str, Any] | None = None


class EncodedResponse(NamedTuple):
    """An encoded response."""

    body: bytes
    kind: str = "application/json"
    """Content type of the body."""
    headers: Mapping[str, str] | None = None
    """Further HTTP headers."""


def build_request(named: dict[str, Array], place: _Place, *, learning: bool) -> DecodedRequest:
    """Build a request from named arrays.

    Parameters
    ----------
    named : dict of str to ndarray of shape (n,) or (n, k)
        Numbers, truth values, text as objects, or dates. A single matrix contains rows without
        names; otherwise each array is a column.
    place : callable
        Function that maps the name of a column to its location in the request.
    learning : bool
        Whether y, sample_weight and time are targets, weights and times. If False, they are ignored
        if there is a matrix, and are features otherwise.

    Raises
    ------
    RequestError
        If the shapes or types of the arrays are invalid or inconsistent.
    """
    parts = {role: named[role] for role in ROLES if role in named} if learning else {}
    others = {name: array for name, array in named.items() if name not in ROLES}
    if learning or [array.ndim for array in others.values()] == [2]:
        named = others
    if not named:
        got = " and ".join(parts) or "none"
        raise request_error(
            "", "have at least one feature", got, "Send one or more columns of features"
        )
    return with_roles(_features(named, place), parts, place)


def with_roles(X: Array | Table, parts: Mapping[str, Array], place: _Place) -> DecodedRequest:
    """Build a request from features and from targets, weights and times.

    Parameters
    ----------
    X : ndarray of shape (n, d) or Table
    parts : mapping of str to ndarray
        Arrays by the names in ``ROLES``.
    place : callable
        Function that maps the name of a column to its location in the request.

    Raises
    ------
    RequestError
        If an array does not have one value per row, or values of the wrong type.
    """
    checked = {}
    for role, part in parts.items():
        where = place(role)
        if len(part) != len(X):
            must = f"have {len(X):,} rows, like the features"
            raise request_error(where, must, f"{len(part):,}", "Send one value per row")
        checked[role] = _CHECKS[role](part, where)
    weight, time = checked.get("sample_weight"), checked.get("time")
    return DecodedRequest(Rows(X, checked.get("y"), weight=weight, time=time))


def _features(named: dict[str, Array], place: _Place) -> Array | Table:
    """Build a matrix from a single 2-d array of numbers, or a Table from columns."""
    if len(named) == 1:
        (only,) = named.values()
        if only.ndim == 2 and only.dtype.kind in "biuf":
            return only.astype(np.float64, copy=False)
    n = len(next(iter(named.values())))
    columns = {name: _column(array, n, place(name)) for name, array in named.items()}
    return Table(columns, n)


def _column(array: Array, n: int, place: str) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "have the shape [n] or [n, 1], as a column of text or one of several columns"
        remedy = "Send numbers as one matrix [n, d], or each column with its name"
        raise request_error(place, must, f"{list(array.shape)}", remedy)
    if len(array) != n:
        must = f"have {n:,} rows, like the first column"
        raise request_error(place, must, f"{len(array):,}", "Send columns of equal length")
    array = array.reshape(n)
    return array if array.dtype.kind in "OM" else array.astype(np.float64, copy=False)


def _targets(array: Array, place: str) -> Array:
    """Check targets; reshape text to (n,), and convert uint64 to int64 if all values fit."""
    kind = array.dtype.kind
    if kind == "M" or (kind == "O" and array.ndim == 2 and array.shape[1] != 1):
        got = "dates" if kind == "M" else f"text of shape {list(array.shape)}"
        raise request_error(place, "be numbers, or one text per row", got, "Send such targets")
    if kind == "O":
        return array.reshape(len(array))
    if kind == "u" and (not array.size or int(array.max()) < 1 << 63):
        return array.astype(np.int64)
    return array


def _weights(array: Array, place: str) -> Array:
    if array.dtype.kind not in "iuf":
        raise request_error(place, "be numbers", "other values", "Send one number per row")
    return _one_per_row(array, place).astype(np.float64, copy=False)


def _times(array: Array, place: str) -> Array:
    array = _one_per_row(array, place)
    if array.dtype.kind == "O":
        return dates(array, lambda i: f"{place}, row {i}")
    if array.dtype.kind == "b":
        raise request_error(place, "be numbers or dates", "truth values", "Send one time per row")
    return array


def _one_per_row(array: Array, place: str) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "have the shape [n] or [n, 1]"
        raise request_error(place, must, f"{list(array.shape)}", "Send one value per row")
    return array.reshape(len(array))


_CHECKS = {"y": _targets, "sample_weight": _weights, "time": _times}


def dates(texts: Array, place: Callable[[int], str]) -> Array:
    """Parse dates.

    Parameters
    ----------
    texts : ndarray of shape (n,), of objects
        Text such as ``2026-11-22T23:08:40.5Z`` or ``2026-11-22``, or None. A date without a time
        zone is UTC; digits below a microsecond are dropped.
    place : callable
        Function that maps the index of a text to its location in the request.

    Returns
    -------
    dates : ndarray of shape (n,), datetime64[us]
        NaT for None.

    Raises
    ------
    RequestError
        If a text is not an ISO 8601 date.

    Examples
    --------
    >>> dates(np.array(["2026-11-22T01:00+02:00", None], dtype=object), str)
    array(['2026-11-21T23:00:00.000000', 'NaT'], dtype='datetime64[us]')
    """
    parsed = [None if text is None else _date(text, i, place) for i, text in enumerate(texts)]
    return np.array(parsed, dtype="datetime64[us]")


def _date(text: str, i: int, place: Callable[[int], str]) -> dt.datetime:
    try:
        date = dt.datetime.fromisoformat(text)
        return date if date.tzinfo is None else date.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        must = "be an ISO 8601 date, such as '2026-11-22T23:08:40Z'"
        raise request_error(place(i), must, shown(text), "Send dates in this format") from error


def datatype_of(array: Array) -> str:
    """Return the datatype of the Open Inference Protocol for an array of predictions.

    Parameters
    ----------
    array : ndarray
        Numbers, truth values or text; an array of objects contains text, or whole numbers, and
        None.

    Examples
    --------
    >>> [datatype_of(np.array(y)) for y in (0.5, 3, True, "late")]
    ['FP64', 'INT64', 'BOOL', 'BYTES']
    >>> datatype_of(np.array([None, 3]))  # None becomes nan
    'FP64'
    """
    kind = array.dtype.kind
    if kind == "O":
        has_text = any(isinstance(value, str) for value in array.flat)
        return "BYTES" if has_text or not array.size else "FP64"
    if kind == "u" and array.dtype.itemsize == 8:
        return "UINT64"
    return {"f": "FP64", "b": "BOOL", "U": "BYTES"}.get(kind, "INT64")
