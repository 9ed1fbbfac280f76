"""Elements: the values of a tensor or a list, out of JSON text, as arrays.

What is plainly of its datatype is decoded as such. Where that fails, each value is looked at: null
is a missing number or text, 3.0 is a whole number, 0 and 1 are truth values; all else is refused.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from onepass.errors import Array, RequestError
from onepass.service.wire.datatypes import Datatype
from onepass.service.wire.jsontext import DAMAGED, ELEMENT, LIST, PIECE, TEXT, in_pieces, told
from onepass.service.wire.limits import Limits, refused, shown

__all__ = ["elements", "exact", "texts"]

_WHOLE_FLOAT = 1 << 53  # whole numbers of a greater size may have been others in the text
_NESTED = re.compile(rb"\[\s*\[")
_SCALAR = bool | int | float | str | None
_MIXED = msgspec.json.Decoder(list[_SCALAR])
_MIXED_ROWS = msgspec.json.Decoder(list[list[_SCALAR]])
_WANTED = {"f": "a number", "i": "a whole number", "u": "a whole number", "b": "true or false",
           "O": "text"}  # fmt: skip


def elements(
    text: Any, datatype: Datatype, shape: tuple[int, ...], place: str, limits: Limits
) -> Array:
    """A tensor's values.

    Parameters
    ----------
    text : bytes-like
        A JSON list of them, flat or, if there are two axes, nested.
    datatype : Datatype
    shape : tuple of one or two int
    place : str
        Where the list stands in the request, for messages.
    limits : Limits

    Returns
    -------
    array : ndarray of this shape
        Of ``datatype.within``; float64 with nan where a number is missing.

    Raises
    ------
    RequestError
        If they are not of the datatype, or not as many as the shape says.
    """
    d = shape[1] if len(shape) == 2 and _NESTED.match(text) else None
    read = _Reader(datatype, d, place, limits)
    if len(text) <= PIECE:
        try:
            array = read(text)
        except DAMAGED as wrong:
            raise told(wrong, text, place) from wrong
    else:
        array = _in_pieces(read, bytes(text), shape, limits)
    _hold_count(len(array), shape, place)
    return array.reshape(shape)


def exact(values: Array, datatype: Datatype, place: Callable[[int], str]) -> Array:
    """Numbers as they are once their datatype has rounded them, as float64.

    Parameters
    ----------
    values : ndarray of shape (n,), float64
        Finite, or nan.
    datatype : Datatype
        Of numbers with a fraction.
    place : callable
        Where a value stands in the request, by its number.

    Raises
    ------
    RequestError
        If the datatype cannot hold one.
    """
    if datatype.dtype == np.float64:
        return values
    with np.errstate(over="ignore"):
        narrow = values.astype(datatype.dtype)
    beyond = np.isinf(narrow)
    if beyond.any():
        i = int(np.argmax(beyond))
        must = f"be a number that {datatype.name} can hold"
        raise refused(place(i), must, shown(float(values[i])), "Choose FP64")
    return narrow.astype(np.float64)


def texts(values: list[str | None], place: str, limits: Limits) -> Array:
    """Texts and None as an array of objects.

    Parameters
    ----------
    values : list of str or None
    place : str
        Where they stand in the request, for messages.
    limits : Limits

    Raises
    ------
    RequestError
        If one is too long.
    """
    limits.hold_text(max(map(len, filter(None, values)), default=0), place)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class _Reader:
    """Reads lists of values, one after the other, each as a flat array."""

    def __init__(self, datatype: Datatype, d: int | None, place: str, limits: Limits) -> None:
        self.datatype, self.d, self.place, self.limits = datatype, d, place, limits
        self.end = ELEMENT if datatype.dtype != object else TEXT
        self.end = self.end if d is None else LIST
        self.before = 0  # values of the lists before

    def __call__(self, text: Any) -> Array:
        plain = self.datatype.flat if self.d is None else self.datatype.nested
        try:
            values = plain.decode(text)
        except msgspec.ValidationError:
            values = (_MIXED if self.d is None else _MIXED_ROWS).decode(text)
            array = self._mixed(self._flat(values))
        else:
            array = self._typed(values)
        self.before += len(array)
        return array

    def _typed(self, values: list[Any]) -> Array:
        datatype = self.datatype
        if datatype.dtype == object:
            return texts(self._flat(values), self.place, self.limits)
        try:
            array = np.array(values, dtype=datatype.within)
        except OverflowError:
            return self._mixed(self._flat(values))  # says which
        except ValueError:  # rows of several lengths: says which
            array = np.array(self._flat(values), dtype=datatype.within)
        if self.d is not None:
            if array.shape[1:] != (self.d,):
                self._flat(values)
            array = array.ravel()
        return exact(array, datatype, self._at) if datatype.within.kind == "f" else array

    def _flat(self, values: list[Any]) -> list[Any]:
        """Rows one after the other, if each is as long as the shape says."""
        if self.d is None:
            return values
        for i, row in enumerate(values):
            if len(row) != self.d:
                place = f"{self.place}[{i + self.before // max(self.d, 1)}]"
                raise _miscounted(place, self.d, f"{len(row):,}")
        return list(chain.from_iterable(values))

    def _mixed(self, values: list[Any]) -> Array:
        """Values of several types, as what they mean; the first that does not fit is refused."""
        kind = self.datatype.within.kind
        sound = {"f": _number, "i": self._whole, "u": self._whole, "b": _truth}.get(kind, _text)
        found: list[Any] = [None if each is None else sound(each) for each in values]
        for i, (came, each) in enumerate(zip(values, found, strict=True)):
            if each is None and came is not None:
                raise self._unfit(i, came)
        if kind == "O":
            return texts(found, self.place, self.limits)
        if kind == "f" or None in found:
            array = np.array(found, dtype=np.float64)
            return exact(array, self.datatype, self._at) if kind == "f" else array
        return np.array(found, dtype=self.datatype.within)

    def _whole(self, value: Any) -> int | None:
        """A whole number within the datatype's bounds; None for anything else."""
        low, high = self.datatype.bounds
        if type(value) is float and value.is_integer() and abs(value) <= _WHOLE_FLOAT:
            value = int(value)
        return value if type(value) is int and low <= value <= high else None

    def _at(self, i: int) -> str:
        """Where a value of the list that is read stands."""
        i += self.before
        return f"{self.place}[{i}]" if not self.d else f"{self.place}[{i // self.d}][{i % self.d}]"

    def _unfit(self, i: int, came: Any) -> RequestError:
        datatype = self.datatype
        must = f"be {_WANTED[datatype.within.kind]}, as {datatype.name} says"
        remedy = "Give another datatype, or other data"
        if datatype.within.kind in "iu":
            must += ", from {:,} to {:,}".format(*datatype.bounds)
        elif isinstance(came, str) and came.strip("+-").lower() in {"nan", "inf", "infinity"}:
            remedy = "Give null for what is missing, or send binary tensors"
        return refused(self._at(i), must, shown(came), remedy)


def _in_pieces(read: _Reader, text: bytes, shape: tuple[int, ...], limits: Limits) -> Array:
    """A long list; no more of it is read than the shape says."""
    parts, count = [], 0
    for part in in_pieces(read, text, read.end, read.place, limits):
        parts.append(part)
        count += len(part)
        if count > int(np.prod(shape)):
            break
    _hold_count(count, shape, read.place)
    return np.concatenate(parts)


def _hold_count(count: int, shape: tuple[int, ...], place: str) -> None:
    expected = shape[0] if len(shape) == 1 else shape[0] * shape[1]
    if count != expected:
        came = f"{count:,}" + (" or more" if count > expected else "")
        raise _miscounted(place, expected, came)


def _miscounted(place: str, expected: int, came: str) -> RequestError:
    must = f"hold {expected:,} values, as the shape says"
    return refused(place, must, came, "Give all values, row after row, and their shape")


def _number(value: Any) -> float | None:
    """A number; None for anything else."""
    try:
        return float(value) if type(value) in {int, float} else None
    except OverflowError:
        return None


def _truth(value: Any) -> bool | None:
    """True, false, 1 or 0; None for anything else."""
    return bool(value) if type(value) in {bool, int} and value in {0, 1} else None


def _text(value: Any) -> str | None:
    return value if type(value) is str else None
