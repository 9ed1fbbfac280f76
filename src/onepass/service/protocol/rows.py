"""Decoded requests and responses, and the data types of the Open Inference Protocol.

Floating-point types become float64, integers int64 or uint64, which hold all narrower types
exactly. Dates are ISO 8601 text, and become datetime64 in microseconds, UTC.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from onepass.errors import listed, meant
from onepass.service.protocol.limits import refused, shown
from onepass.types import Array
from onepass.validation.table import Table

__all__ = [
    "ANSWERS",
    "DATATYPES",
    "OUTPUTS",
    "ROLES",
    "Asked",
    "Datatype",
    "Output",
    "Reply",
    "asked",
    "datatype_named",
    "datatype_of",
    "dates",
    "hold_output",
]


def dates(texts: Array, place: Callable[[int], str]) -> Array:
    """Dates out of text.

    Parameters
    ----------
    texts : ndarray of shape (n,), of objects
        Text such as ``2026-11-22T23:08:40.5Z`` or ``2026-11-22``, or None. Without a zone it is
        taken as UTC; what is finer than a microsecond is left out.
    place : callable
        Where a text stands in the request, by its number.

    Returns
    -------
    dates : ndarray of shape (n,), datetime64[us]
        NaT for None.

    Raises
    ------
    RequestError
        If one is no date.

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
    except (ValueError, OverflowError) as wrong:
        must = "be a date as ISO 8601 writes it, such as '2026-11-22T23:08:40Z'"
        raise refused(place(i), must, shown(text), "Write it so") from wrong


OUTPUTS = ("y", "probabilities", "classes")
"""What can be asked for: answers (n,), the classes' probabilities (n, k), and the classes (k,)."""

ROLES = ("y", "sample_weight", "time")
"""What columns are called that belong to rows to be learned, and are no features."""

_Place = Callable[[str], str]


class Output(NamedTuple):
    """Something that is to be sent back."""

    name: str
    """One of ``OUTPUTS``."""
    binary: bool = False
    """Whether as a binary tensor."""


ANSWERS = (Output("y"),)
"""What is sent back if nothing is said of it."""


@dataclass(slots=True, eq=False)
class Asked:
    """What a request asks.

    Parameters
    ----------
    X : ndarray of shape (n, d) or Table
        The rows: numbers without names, or named columns.
    y : ndarray of shape (n,) or (n, c), optional
        Their answers, if they are to be learned: float64, int64, uint64, bool, or text as objects.
    sample_weight : ndarray of shape (n,), optional
        float64.
    time : ndarray of shape (n,), optional
        float64, int64, or datetime64[us] in UTC.
    id : str, default ""
        What the asker calls the request.
    outputs : tuple of Output
        What is to be sent back, in this order.
    parameters : mapping of str to bool, int, float, str or None, optional
        What else came, as it came.
    """

    X: Array | Table
    y: Array | None = None
    sample_weight: Array | None = None
    time: Array | None = None
    id: str = ""
    outputs: tuple[Output, ...] = ANSWERS
    parameters: Mapping[str, Any] | None = None


class Reply(NamedTuple):
    """What is sent back."""

    body: bytes
    kind: str = "application/json"
    """Its content type."""
    headers: Mapping[str, str] | None = None
    """Further headers of HTTP."""


def asked(named: dict[str, Array], place: _Place, *, learning: bool) -> Asked:
    """Columns by their names as rows, and, if they are to be learned, as what belongs to them.

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
        If they do not go together.
    """
    parts = {role: named[role] for role in ROLES if role in named} if learning else {}
    others = {name: array for name, array in named.items() if name not in ROLES}
    if learning or [array.ndim for array in others.values()] == [2]:
        named = others
    if not named:
        came = " and ".join(parts) or "none"
        raise refused("", "have columns that are features", came, "Send rows, one or more columns")
    X = _features(named, place)
    for role, part in parts.items():
        if len(part) != len(X):
            must = f"have {len(X):,} rows, as the features have"
            raise refused(place(role), must, f"{len(part):,}", "Send as many as there are rows")
    found = Asked(X)
    if "y" in parts:
        found.y = _answers(parts["y"], place("y"))
    if "sample_weight" in parts:
        found.sample_weight = _weights(parts["sample_weight"], place("sample_weight"))
    if "time" in parts:
        found.time = _times(parts["time"], place("time"))
    return found


def hold_output(name: str, place: str) -> None:
    """Refuse an output that there is none of.

    Parameters
    ----------
    name : str
    place : str
        Where it is asked for.
    """
    if name not in OUTPUTS:
        remedy = meant(name[:40], OUTPUTS).strip() or "Leave it out to have y"
        must = f"be one of {', '.join(map(repr, OUTPUTS))}"
        raise refused(place, must, shown(name), remedy)


def _features(named: dict[str, Array], place: _Place) -> Array | Table:
    """A matrix, or a Table."""
    if len(named) == 1:
        (only,) = named.values()
        if only.ndim == 2 and only.dtype.kind in "biuf":
            return only.astype(np.float64, copy=False)
    n = len(next(iter(named.values())))
    columns = {name: _column(array, n, name, place) for name, array in named.items()}
    return Table(columns, n)


def _column(array: Array, n: int, name: str, place: _Place) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "be a column of shape [n] or [n, 1], as text or one of several is"
        remedy = "Send numbers as one matrix [n, d], or each column by its name"
        raise refused(place(name), must, f"{list(array.shape)}", remedy)
    if len(array) != n:
        must = f"have {n:,} rows, as the column before"
        raise refused(place(name), must, f"{len(array):,}", "Send columns of equal length")
    array = array.reshape(n)
    return array if array.dtype.kind in "OM" else array.astype(np.float64, copy=False)


def _answers(array: Array, place: str) -> Array:
    """Answers: text without a second axis, and whole numbers of one kind wherever they fit."""
    kind = array.dtype.kind
    if kind == "M" or (kind == "O" and array.ndim == 2 and array.shape[1] != 1):
        came = "dates" if kind == "M" else f"text of shape {list(array.shape)}"
        raise refused(place, "be numbers, or one text a row", came, "Send such answers")
    if kind == "O":
        return array.reshape(len(array))
    if kind == "u" and (not array.size or int(array.max()) < 1 << 63):
        return array.astype(np.int64)
    return array


def _weights(array: Array, place: str) -> Array:
    if array.dtype.kind not in "iuf":
        raise refused(place, "be numbers", "others", "Send one number a row")
    return _one_a_row(array, place).astype(np.float64, copy=False)


def _times(array: Array, place: str) -> Array:
    array = _one_a_row(array, place)
    if array.dtype.kind == "O":
        return dates(array, lambda i: f"{place}, row {i}")
    if array.dtype.kind == "b":
        raise refused(place, "be numbers or dates", "truth values", "Send one time a row")
    return array


def _one_a_row(array: Array, place: str) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "have the shape [n] or [n, 1]"
        raise refused(place, must, f"{list(array.shape)}", "Send one value a row")
    return array.reshape(len(array))


_WRITTEN = {"b": "BOOL", "U": "BYTES"}


@dataclass(frozen=True, slots=True)
class Datatype:
    """One of them.

    Parameters
    ----------
    name : str
        The protocol's.
    dtype : numpy.dtype
        Of its bytes, little-endian; object for BYTES.
    within : numpy.dtype
        What it becomes here.
    flat, nested : msgspec.json.Decoder
        Of a list of its values, and of a list of such lists.
    """

    name: str
    dtype: np.dtype[Any]
    within: np.dtype[Any]
    flat: msgspec.json.Decoder[list[Any]]
    nested: msgspec.json.Decoder[list[Any]]

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest of whole numbers."""
        found = np.iinfo(self.dtype)
        return int(found.min), int(found.max)


def datatype_named(name: str, place: str) -> Datatype:
    """The datatype of a name that came.

    Parameters
    ----------
    name : str
    place : str
        Where it stands in the request, for messages.

    Raises
    ------
    RequestError
        If it is none that is read here.
    """
    known = DATATYPES.get(name)
    if known is None:
        remedy = "Send FP32, which holds each BF16" if name == "BF16" else "Choose one of these"
        must = f"be one of {listed(list(DATATYPES), most=len(DATATYPES))}"
        raise refused(place, must, shown(name), remedy)
    return known


def datatype_of(array: Array) -> Datatype:
    """The datatype in which an array of answers is written.

    Parameters
    ----------
    array : ndarray
        Numbers, truth values or text; of objects, text or whole numbers with None among them.

    Examples
    --------
    >>> [datatype_of(np.array(y)).name for y in (0.5, 3, True, "late")]
    ['FP64', 'INT64', 'BOOL', 'BYTES']
    >>> datatype_of(np.array([None, 3])).name  # nan stands for None
    'FP64'
    """
    kind = array.dtype.kind
    if kind == "f":
        return _FP64
    if kind == "O":
        words = any(isinstance(each, str) for each in array.flat)
        return DATATYPES["BYTES" if words or not array.size else "FP64"]
    if kind == "u" and array.dtype.itemsize == 8:
        return DATATYPES["UINT64"]
    return DATATYPES[_WRITTEN.get(kind, "INT64")]


def _made(name: str, code: str, within: type, kind: Any) -> Datatype:
    flat, nested = (msgspec.json.Decoder(each) for each in (list[kind], list[list[kind]]))
    return Datatype(name, np.dtype(code), np.dtype(within), flat, nested)


def _whole(name: str, code: str) -> Datatype:
    low, high = (int(each) for each in (np.iinfo(code).min, np.iinfo(code).max))
    most = None if high >= 1 << 63 else high  # msgspec's bounds have 64 bits with a sign
    within = np.uint64 if most is None else np.int64
    return _made(name, code, within, Annotated[int, msgspec.Meta(ge=low, le=most)])


DATATYPES = {
    each.name: each
    for each in (
        _made("BOOL", "?", np.bool_, bool),
        *(_whole(f"UINT{8 * size}", f"<u{size}") for size in (1, 2, 4, 8)),
        *(_whole(f"INT{8 * size}", f"<i{size}") for size in (1, 2, 4, 8)),
        *(_made(f"FP{8 * size}", f"<f{size}", np.float64, float) for size in (2, 4, 8)),
        _made("BYTES", "O", object, str | None),
    )
}
"""All that are read here, by their names."""
_FP64 = DATATYPES["FP64"]
