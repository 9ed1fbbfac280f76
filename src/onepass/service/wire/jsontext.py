"""JSON text: decoded by msgspec, whole or some elements at a time; refused in the asker's words.

A list of numbers takes sixteen times its text's bytes as Python's objects. So a long list is cut
into pieces of whole elements, each of which is made an array before the next is decoded. Where an
element ends is guessed: a piece that was cut within a text or a list is no JSON, and is made twice
as long. A piece that begins with an element and is JSON was cut where an element ends.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from onepass.errors import LabelError, RequestError
from onepass.service.wire.limits import Limits, refused

__all__ = [
    "COLUMN",
    "DAMAGED",
    "ELEMENT",
    "LIST",
    "OBJECT",
    "PIECE",
    "TEXT",
    "decoded",
    "encoded",
    "in_pieces",
    "short",
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


def decoded(decoder: Any, text: Any, place: str = "") -> Any:
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


def encoded(told: Any) -> bytes:
    """A tree of plain values as JSON.

    Parameters
    ----------
    told : Any
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
    read: Callable[[Any], _T],
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


def told(wrong: Exception, text: Any, place: str, *, whole: bool = True) -> RequestError:
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


def _at_once(read: Callable[[Any], _T], text: bytes, place: str) -> _T:
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


def _malformed(said: str, text: Any, place: str) -> RequestError:
    """The error of what is no JSON; NaN and Infinity, which Python writes, have a remedy."""
    found = _BYTE.search(said)
    at = int(found[1]) if found else 0
    if found and bytes(text[at : at + 3]).lstrip(b"-") in {b"NaN", b"Inf", b"In"}:
        remedy = "Give null for what is missing, or send binary tensors"
        return refused(place, "be JSON", "NaN or Infinity, which JSON has not", remedy)
    said = said.removeprefix("JSON is malformed: ")
    return refused(place, "be JSON", f"other text: {said}", "Fix it, or check what wrote it")
