"""Decoding of JSON requests with msgspec, in bounded memory.

A list of numbers takes sixteen times the bytes of its text as Python objects. A long list is
therefore cut into pieces of whole elements, each of which becomes an array before the next is
decoded. The end of an element is guessed: a piece that was cut within a string or a list is not
valid JSON, and is decoded again at twice the length.

Values that have the declared data type are decoded directly. If that fails, each value is checked:
null is a missing number or text, 3.0 is an integer, 0 and 1 are booleans; anything else is an
error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np

from onepass.errors import LabelError, RequestError
from onepass.service.protocol.limits import Limits, refused, shown
from onepass.service.protocol.rows import Datatype
from onepass.types import Array

__all__ = [
    "COLUMN",
    "DAMAGED",
    "ELEMENT",
    "LIST",
    "OBJECT",
    "PIECE",
    "TEXT",
    "Gathered",
    "column",
    "decoded",
    "elements",
    "encoded",
    "exact",
    "in_pieces",
    "short",
    "texts",
    "told",
    "unwritable",
]


DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of text that is not what it should be."""

PIECE = 1 << 16
"""Bytes of a piece; what is no longer is decoded at once."""

ELEMENT = re.compile(rb"(,)")
COLUMN = re.compile(rb"(,)\s*\"")
LIST = re.compile(rb"\]\s*(,)")
OBJECT = re.compile(rb"\}\s*(,)")
TEXT = re.compile(rb"(?:\"|null)\s*(,)")
"""How elements end: numbers, named columns, lists, objects, and texts."""

_ENCODER = msgspec.json.Encoder()
_T = TypeVar("_T")
_PATH = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)
_TYPES = re.compile(r"Expected `(.*)`, got `(.*)`")
_BOUND = re.compile(r"Expected `int` (>=|<=) (-?\d+)")
_FIELD = re.compile(r"Object missing required field `(.*)`")
_BYTE = re.compile(r"\(byte (\d+)\)")
_WORDS = {
    "array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number",
    "null": "null", "object": "an object", "str": "text",
    "bool | int | float | str | null": "a number, text, true, false or null",
}  # fmt: skip


def decoded(decoder: msgspec.json.Decoder[_T], text: bytes | memoryview, place: str = "") -> _T:
    """What a decoder of msgspec makes of a text.

    Parameters
    ----------
    decoder : msgspec.json.Decoder
    text : bytes-like
    place : str, default ""
        Where it stands in the request, for messages.

    Raises
    ------
    RequestError
        If it is no JSON, or not of the decoder's type.
    """
    try:
        return decoder.decode(text)
    except DAMAGED as wrong:
        raise told(wrong, text, place) from wrong


def encoded(told: object) -> bytes:
    """A tree of plain values as JSON.

    Parameters
    ----------
    told : object
        nan and infinity in it are null.

    Raises
    ------
    LabelError
        If there is text in it that UTF-8 cannot write.
    """
    try:
        return _ENCODER.encode(told)
    except UnicodeEncodeError as wrong:
        raise unwritable(wrong) from wrong


def unwritable(wrong: UnicodeEncodeError) -> LabelError:
    """The error of an answer that UTF-8 cannot write.

    Parameters
    ----------
    wrong : UnicodeEncodeError
    """
    return LabelError(
        "the answers: text must be such as UTF-8 can write, got half a character "
        f"({wrong.object[:40]!a}). Learn other labels."
    )


def in_pieces(
    read: Callable[[bytes], _T],
    text: bytes,
    end: re.Pattern[bytes],
    place: str,
    limits: Limits | None,
) -> Iterator[_T]:
    """What is read of a JSON list or object, some elements at a time.

    Parameters
    ----------
    read : callable
        Takes a shorter list or object as JSON text; may raise what msgspec raises.
    text : bytes
        The whole of it. If it is neither, ``read`` has it all, and may say so.
    end : re.Pattern
        How an element ends that a comma follows, which is its group.
    place : str
        Where it stands in the request, for messages.
    limits : Limits or None
        None if what is read of an element is still text, and may be long.

    Raises
    ------
    RequestError
        If it is not what ``read`` takes.
    """
    start, stop, size = 1, len(text) - 1, PIECE
    if len(text) <= size or text[:1] not in {b"[", b"{"}:
        yield _at_once(read, text, place)
        return
    while start < stop:
        cut = end.search(text, start + size)
        inner = memoryview(text)[start : stop if cut is None else cut.start(1)]
        piece = b"".join((text[:1], inner, text[-1:]))
        if limits is not None:
            _hold_piece(piece, place, limits)
        try:
            found = read(piece)
        except DAMAGED as wrong:
            mended = not isinstance(wrong, (msgspec.ValidationError, UnicodeDecodeError))
            if cut is None or not mended:
                raise told(wrong, piece, place, whole=start == 1) from wrong
            size *= 2
            continue
        yield found
        start, size = stop if cut is None else cut.end(1), PIECE


def short(text: msgspec.Raw, place: str) -> msgspec.Raw:
    """A part of the request that has no reason to be long, if it is not.

    Parameters
    ----------
    text : msgspec.Raw
    place : str
        Where it stands in the request, for messages.

    Raises
    ------
    RequestError
        If it is.
    """
    size = len(memoryview(text))
    if size > PIECE:
        raise refused(place, f"have at most {PIECE:,} bytes", f"{size:,}", "Shorten it")
    return text


def told(
    wrong: Exception, text: bytes | memoryview, place: str, *, whole: bool = True
) -> RequestError:
    """What msgspec said of a text, in the asker's words.

    Parameters
    ----------
    wrong : Exception
        One of ``DAMAGED``.
    text : bytes-like
        What was decoded.
    place : str
        Where that stands in the request.
    whole : bool, default True
        Whether its elements are counted from the first.
    """
    if isinstance(wrong, RecursionError):
        return refused(place, "be nested a few levels deep", "hundreds", "Give plain lists")
    if isinstance(wrong, UnicodeDecodeError):
        return refused(place, "be UTF-8", f"other bytes ({wrong.reason})", "Write text in UTF-8")
    said = str(wrong)
    if not isinstance(wrong, msgspec.ValidationError):
        return _malformed(said, text, place)
    path = _PATH.fullmatch(said)
    if path is not None:
        inner = path[2] if whole else ""
        said, place = path[1], (place + inner if place else inner.lstrip("."))
    return _unfit(said, place)


def _at_once(read: Callable[[bytes], _T], text: bytes, place: str) -> _T:
    try:
        return read(text)
    except DAMAGED as wrong:
        raise told(wrong, text, place) from wrong


def _hold_piece(piece: bytes, place: str, limits: Limits) -> None:
    """Refuse an element of more values than there may be: a list within a list, an object."""
    if len(piece) > 2 * PIECE and piece.count(b",") > 4 * PIECE + limits.columns:
        must = f"hold at most {limits.columns:,} values a row"
        raise refused(place, must, "more", "Leave out columns that are not needed")


def _unfit(said: str, place: str) -> RequestError:
    """The error of a value that is not what it should be."""
    if types := _TYPES.fullmatch(said):
        must, came = map(_in_words, types.groups())
        return refused(place, f"be {must}", came, "Give it as such")
    if bound := _BOUND.fullmatch(said):
        must = f"be a whole number {bound[1]} {bound[2]}"
        return refused(place, must, "one beyond", "Give one that is")
    if field := _FIELD.fullmatch(said):
        return refused(place, f"have `{field[1]}`", "none", "Give it")
    if said.endswith("out of range"):
        return refused(place, "be a number within float64", "one beyond", "Use larger units")
    return refused(place, "be as the protocol has it", said, "Fix it")


def _in_words(types: str) -> str:
    """What msgspec calls types, as whoever writes JSON would."""
    each = " or ".join(_WORDS.get(one, one) for one in types.split(" | "))
    return _WORDS.get(types, each)


def _malformed(said: str, text: bytes | memoryview, place: str) -> RequestError:
    """The error of what is no JSON; NaN and Infinity, which Python writes, have a remedy."""
    found = _BYTE.search(said)
    at = int(found[1]) if found else 0
    if found and bytes(memoryview(text)[at : at + 3]).lstrip(b"-") in {b"NaN", b"Inf", b"In"}:
        remedy = "Give null for what is missing, or send binary tensors"
        return refused(place, "be JSON", "NaN or Infinity, which JSON has not", remedy)
    said = said.removeprefix("JSON is malformed: ")
    return refused(place, "be JSON", f"other text: {said}", "Fix it, or check what wrote it")


_WHOLE_FLOAT = 1 << 53  # whole numbers of a greater size may have been others in the text
_NESTED = re.compile(rb"\[\s*\[")
_SCALAR = bool | int | float | str | None
_MIXED = msgspec.json.Decoder(list[_SCALAR])
_MIXED_ROWS = msgspec.json.Decoder(list[list[_SCALAR]])
_WANTED = {"f": "a number", "i": "a whole number", "u": "a whole number", "b": "true or false",
           "O": "text"}  # fmt: skip


def elements(
    text: bytes | memoryview, datatype: Datatype, shape: tuple[int, ...], place: str, limits: Limits
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

    def __call__(self, text: bytes | memoryview) -> Array:
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

    def _typed(self, values: list[object]) -> Array:
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

    def _mixed(self, values: list[object]) -> Array:
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

    def _whole(self, value: object) -> int | None:
        """A whole number within the datatype's bounds; None for anything else."""
        low, high = self.datatype.bounds
        if type(value) is float and value.is_integer() and abs(value) <= _WHOLE_FLOAT:
            value = int(value)
        return value if type(value) is int and low <= value <= high else None

    def _at(self, i: int) -> str:
        """Where a value of the list that is read stands."""
        i += self.before
        return f"{self.place}[{i}]" if not self.d else f"{self.place}[{i // self.d}][{i % self.d}]"

    def _unfit(self, i: int, came: object) -> RequestError:
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


def _truth(value: object) -> bool | None:
    """True, false, 1 or 0; None for anything else."""
    return bool(value) if type(value) in {bool, int} and value in {0, 1} else None


def _text(value: object) -> str | None:
    return value if type(value) is str else None


_NUMBERS = {bool, int, float}
_RUNS = 16
_KIND_NAMES = {"f": "numbers", "O": "text", "M": "dates"}
_Run = tuple[int, Mapping[str, Array | None]]
_REMEDY = "Send numbers as numbers and text as text, and null for what is missing"
_MISSING: dict[str, Any] = {"f": np.nan, "O": None, "M": np.datetime64("NaT", "us")}


class Gathered:
    """Columns by their names, which grow.

    Parameters
    ----------
    limits : Limits
    place : callable
        Where a column stands in the request, by its name.
    """

    def __init__(self, limits: Limits, place: Callable[[str], str]) -> None:
        self._limits, self._place = limits, place
        self._runs: list[_Run] = []
        self._recent: list[_Run] = []
        self._wide: dict[str, int] = {}  # values a row, as the limits count them
        self.n = 0

    def add(self, columns: Mapping[str, Array | None], n: int) -> None:
        """Take some rows more.

        Parameters
        ----------
        columns : mapping of str to ndarray of shape (n,) or (n, k), or None
            Those that came; one of None has no value in these rows, and one that did not come
            neither.
        n : int
            How many rows.

        Raises
        ------
        RequestError
            If they are too many.
        """
        for name, array in columns.items():
            wide = 1 if array is None else _wide(array)
            self._wide[name] = max(wide, self._wide.get(name, 0))
        self.n += n
        self._limits.hold(self.n, len(self._wide), "")
        if self.n * sum(self._wide.values()) > self._limits.values:
            must = f"hold at most {self._limits.values:,} values, a text counted as 8"
            raise refused("", must, "more", "Send fewer rows at a time")
        self._recent.append((n, columns))
        if len(self._recent) == _RUNS:  # an array of one row takes the room of fifteen numbers
            self._runs.append(self._one(self._recent))
            self._recent = []

    def joined(self) -> dict[str, Array]:
        """All columns, whole: where nothing came, there is nan, None or NaT.

        Raises
        ------
        RequestError
            If a column is of several kinds.
        """
        n, columns = self._one([*self._runs, *self._recent])
        return {name: np.full(n, np.nan) if array is None else array
                for name, array in columns.items()}  # fmt: skip

    def _one(self, runs: list[_Run]) -> _Run:
        """Runs of rows as one."""
        names = dict.fromkeys(name for _, columns in runs for name in columns)
        runs = [run for run in runs if run[0]]
        sizes = [n for n, _ in runs]
        return sum(sizes), {
            name: self._joined(name, [columns.get(name) for _, columns in runs], sizes)
            for name in names
        }

    def _joined(self, name: str, parts: list[Array | None], sizes: list[int]) -> Array | None:
        """A column of each run as one; None if it has no value in any."""
        known = [array for array in parts if array is not None]
        if not known:
            return None
        kinds = {_kind(array) for array in known}
        shapes = {array.shape[1:] for array in known}
        if len(kinds) > 1 or len(shapes) > 1:
            words = sorted(_KIND_NAMES[kind] for kind in kinds)
            came = " and ".join(words) if len(kinds) > 1 else "several"
            raise refused(self._place(name), "hold one kind of value", came, _REMEDY)
        if len(known) == len(parts):
            return known[0] if len(known) == 1 else np.concatenate(known)
        (kind,), (inner,) = kinds, shapes
        dtype = np.float64 if kind == "f" else known[0].dtype
        whole = np.full((sum(sizes), *inner), _MISSING[kind], dtype=dtype)
        start = 0
        for array, n in zip(parts, sizes, strict=True):
            if array is not None:
                whole[start : start + n] = array
            start += n
        return whole


def _kind(array: Array) -> str:
    return array.dtype.kind if array.dtype.kind in _MISSING else "f"


def _wide(array: Array) -> int:
    """The values of a row, as the limits count them."""
    return 8 if array.dtype == object else 1 if array.ndim == 1 else array.shape[1]


def column(values: list[Any], place: str, limits: Limits, *, first: int = 0) -> Array | None:
    """Values of JSON as a column; None if all of them are null.

    Parameters
    ----------
    values : list of bool, int, float, str or None
    place : str
        Where they stand in the request, for messages.
    limits : Limits
    first : int, default 0
        The number of the first of them, for messages.

    Returns
    -------
    array : ndarray of shape (n,), or None
        bool, int64, float64 with nan, or objects: text and None.

    Raises
    ------
    RequestError
        If they are text and numbers, or a number is too large for float64.

    Examples
    --------
    >>> limits = Limits()
    >>> column([1, None], "y", limits), column([1, 2], "y", limits)
    (array([ 1., nan]), array([1, 2]))
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return None
    if kinds == {str}:
        return texts(values, place, limits)
    if not kinds <= _NUMBERS:
        i = next(i for i, each in enumerate(values) if type(each) is str)
        remedy = "Send numbers as numbers and text as text, and null for what is missing"
        raise refused(
            f"{place}[{first + i}]", "be a number, as others are", shown(values[i]), remedy
        )
    plain = len(kinds) == 1 and None not in values
    try:
        return np.array(values, dtype=np.int64 if plain and kinds == {int} else None if plain else
                        np.float64)  # fmt: skip
    except OverflowError:
        return _large(values, place)


def _large(values: list[object], place: str) -> Array:
    """Numbers beyond 64 bits, as float64."""
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError as wrong:
        must, came = "hold numbers within float64", "one beyond"
        raise refused(place, must, came, "Use larger units, or send it as text") from wrong
