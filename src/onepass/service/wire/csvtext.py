"""CSV text: a body as MLflow takes it, with the types that the library finds in files of it."""

import re
from collections import Counter
from types import ModuleType
from typing import Any

from onepass.errors import Array, OnepassError, RequestError, SourceError, need
from onepass.service.wire.arrays import Arrays
from onepass.service.wire.limits import Limits, refused, shown
from onepass.service.wire.rows import Asked, asked
from onepass.stream.csv import Misread
from onepass.stream.files import packed_as

__all__ = ["read_csv"]

_NO_LIMITS = Limits()
_WHERE = "onepass.service.wire.csvtext"
_LONGEST = 1 << 20  # bytes of the line of names
_MARKS = re.compile(rb"[\"\r\n]")


def read_csv(body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False) -> Asked:
    r"""What a request asks whose body is CSV: a line of names, and a line for each row.

    Parameters
    ----------
    body : bytes
        In UTF-8, with commas.
    limits : Limits
    learning : bool, default False
        Whether the columns y, sample_weight and time are what these say, and no features.

    Raises
    ------
    RequestError
        If it is no such text, or too large.
    MissingExtraError
        If pyarrow is not installed.

    Examples
    --------
    >>> read_csv(b"speed,gear\n3,low\n,high\n").X["speed"]
    array([ 3., nan])
    """
    limits.hold_body(body)
    if packed_as(body[:8]) is not None:
        raise refused("", "be CSV as text", "packed bytes", "Unpack it, or say Content-Encoding")
    _hold_header(body, limits)
    cells = body.count(b",") + body.count(b"\n") + body.count(b"\r")
    if cells > limits.values:
        must = f"have at most {limits.values:,} commas and ends of lines"
        raise refused("", must, f"{cells:,}", "Send fewer rows at a time")
    pa = need("pyarrow", extra="files", where=_WHERE)
    try:
        misread = Misread("the request")
        misread.check_beginning(body[:_LONGEST], ",")
        try:
            columns = _columns(_parsed(body, pa), pa, limits)
        except OnepassError:
            raise
        except (pa.ArrowException, OSError, ValueError) as wrong:
            raise misread.error(wrong) from wrong
    except SourceError as wrong:
        raise RequestError(str(wrong).removeprefix("op.stream.read: ")) from wrong
    return asked(columns, _place, learning=learning)


def _parsed(body: bytes, pa: ModuleType) -> Any:
    """The text as an Arrow table: in one block, by which all types are told."""
    csv = need("pyarrow.csv", extra="files", where=_WHERE)
    return csv.read_csv(
        pa.BufferReader(body),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(body) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(strings_can_be_null=True),
    )


def _columns(table: Any, pa: ModuleType, limits: Limits) -> dict[str, Array]:
    """A table's columns as arrays."""
    arrays, names = Arrays(pa, limits), table.schema.names
    limits.hold_text(max(map(len, names), default=0), "header")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        remedy = "Give each column a name of its own"
        raise refused("header", "hold each name once", f"{shown(twice)} again", remedy)
    limits.hold(table.num_rows, len(names), "", texts=arrays.texts(table.schema))
    found = {}
    for name, column in zip(names, table.columns, strict=True):
        if pa.types.is_binary(column.type):  # as Arrow takes text that is not UTF-8
            raise refused(_place(name), "be UTF-8", "other bytes", "Write it in UTF-8")
        found[name] = arrays.of(column.combine_chunks(), _place(name))
    return found


def _hold_header(body: bytes, limits: Limits) -> None:
    """Refuse a first line of too many names, or without commas where other marks stand."""
    quoted, end = False, len(body)
    for mark in _MARKS.finditer(body, 0, _LONGEST):
        if mark[0] == b'"':
            quoted = not quoted
        elif not quoted:
            end = mark.start()
            break
    else:
        if len(body) > _LONGEST:
            came = f"more than {_LONGEST:,} bytes"
            raise refused("header", "be a line of names", came, "Begin with the columns' names")
    first = body[:end]
    limits.hold(0, first.count(b",") + 1, "header")
    if b"," not in first and b'"' not in first and (b";" in first or b"\t" in first):
        raise refused("header", "have commas between names", "others", "Write it with commas")


def _place(name: str) -> str:
    return f"columns[{shown(name)}]"
