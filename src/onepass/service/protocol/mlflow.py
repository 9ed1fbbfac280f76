"""MLflow's scoring protocol: JSON in four forms, and CSV.

======================= ==========================================================================
the body has            which is
======================= ==========================================================================
``dataframe_split``     ``{"columns": ["speed", …], "data": [[3, …], …]}``; without columns, or
                        with whole numbers as pandas counts them, rows without names
``dataframe_records``   ``[{"speed": 3, …}, …]``; what a row lacks is missing
``instances``           rows ``[[3, …], …]`` or ``[3, …]`` of numbers; records; or columns
``inputs``              the same
======================= ==========================================================================

Columns are ``{"speed": [3, …], …}``, and the only one may be a matrix, ``{"X": [[3, …], …]}``.
Whatever else stands in the body beside ``params`` is passed over, as MLflow does. Numbers, truth
values and text are what JSON says they are; null is missing.

JSON is decoded piece by piece, so that only one piece is held as Python objects. CSV bodies get the
types that :func:`onepass.stream.read` finds in a CSV file.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import csv

from onepass.errors import OnepassError, RequestError, SourceError
from onepass.service.protocol.arrow import Arrays
from onepass.service.protocol.json import (
    COLUMN,
    ELEMENT,
    LIST,
    OBJECT,
    TEXT,
    Gathered,
    column,
    decoded,
    encoded,
    in_pieces,
    short,
)
from onepass.service.protocol.limits import Limits, refused, shown
from onepass.service.protocol.rows import Asked, Reply, asked
from onepass.stream.csv import Misread
from onepass.stream.files import packed_as
from onepass.types import Array

__all__ = ["UNNAMED", "Forms", "read", "read_csv", "write"]


UNNAMED = "X"
"""What rows without names are called, as one matrix."""

_INNER = re.compile(rb"[\[{]\s*(\S)")
_SCALAR = bool | int | float | str | None
_FLOAT_ROWS = msgspec.json.Decoder(list[list[float]])
_SCALARS = msgspec.json.Decoder(list[_SCALAR])
_SCALAR_ROWS = msgspec.json.Decoder(list[list[_SCALAR]])
_RECORDS = msgspec.json.Decoder(list[dict[str, _SCALAR]])
_COLUMNS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES = msgspec.json.Decoder(list[str | int])


class Forms:
    """Reads what stands under one key of a body.

    Parameters
    ----------
    key : str
        For messages.
    limits : Limits
    exact : bool
        Whether whole numbers are to stay what they are in named columns: they may be labels.
    """

    def __init__(self, key: str, limits: Limits, *, exact: bool) -> None:
        self._key, self._limits, self._exact = key, limits, exact

    def place(self, name: str) -> str:
        """Where a column stands, by its name."""
        return f"{self._key}[{shown(name)}]"

    def any(self, text: bytes) -> dict[str, Array]:
        """Columns, records or rows, as their first characters tell."""
        inner = _inner(text)
        if text.startswith(b"{"):
            return self.columns(text)
        if text.startswith(b"[") and inner == b"{":
            return self.records(text)
        if inner == b"[":
            return {UNNAMED: self._matrix(text, self._key, None)}
        if inner == b"]":
            raise refused(self._key, "hold rows", "an empty list", "Send one or more")
        return {UNNAMED: self._numbers(self._column(text, self._key), self._key)[:, None]}

    def split(self, names: bytes, data: bytes) -> dict[str, Array]:
        """Rows, and their columns' names beside them: none, or numbers, are no names."""
        known = self._names(names)
        place = f"{self._key}.data"
        if not known or known == list(range(len(known))):
            return {UNNAMED: self._matrix(data, place, len(known) or None)}
        self._hold_names(known, f"{self._key}.columns")
        gathered = Gathered(self._limits, self.place)
        matrix: list[Array] = []  # rows of floats alone, until others come

        def add() -> None:
            if matrix:
                whole = np.concatenate(matrix)
                gathered.add(dict(zip(known, whole.T, strict=True)), len(whole))
                matrix.clear()

        n = 0
        for rows, plain in self._rows(data, place, len(known), exact=self._exact):
            n += len(rows)
            self._limits.hold(n, len(known), place)
            if plain and rows:
                matrix.append(np.array(rows, dtype=np.float64))
            elif rows:
                add()
                columns = self._turned(rows, map(self.place, known), first=gathered.n)
                gathered.add(dict(zip(known, columns, strict=True)), len(rows))
        add()
        return gathered.joined() if n else {name: np.empty(0) for name in known}

    def records(self, text: bytes) -> dict[str, Array]:
        """Rows, each of which names its values; what one lacks is missing."""
        gathered = Gathered(self._limits, self.place)
        known: dict[str, None] = {}
        for rows in in_pieces(_RECORDS.decode, text, OBJECT, self._key, self._limits):
            names = list(dict.fromkeys(chain.from_iterable(rows)))
            known.update(dict.fromkeys(names))
            n = gathered.n + len(rows)
            self._limits.hold(n, len(known), self._key)
            self._limits.hold_sparse(n * len(known), len(text), self._key)
            self._hold_names(names, self._key)
            found = {}
            for name in names:
                values = [row.get(name) for row in rows]
                found[name] = column(values, self.place(name), self._limits, first=gathered.n)
            gathered.add(found, len(rows))
        if not gathered.n:
            raise refused(self._key, "hold rows", "an empty list", "Send one or more")
        return gathered.joined()

    def columns(self, text: bytes) -> dict[str, Array]:
        """Columns, each with its name."""
        found: dict[str, Array] = {}
        for some in in_pieces(_COLUMNS.decode, text, COLUMN, self._key, None):
            self._hold_names(list(some), self._key)
            for name, values in some.items():
                if name in found:
                    raise refused(self._key, "hold each name once", shown(name), "Rename one")
                found[name] = self._column(bytes(values), self.place(name))
            n = max(map(len, found.values()), default=0)
            texts = sum(each.dtype == object for each in found.values())
            self._limits.hold(n, len(found), self._key, texts=texts)
        if not found:
            raise refused(self._key, "hold columns", "an empty object", "Send one or more")
        return found

    def _column(self, text: bytes, place: str) -> Array:
        """One column, or a matrix in the place of one."""
        inner = _inner(text)
        if inner == b"[":
            return self._matrix(text, place, None)
        gathered = Gathered(self._limits, lambda _: place)
        end = TEXT if inner == b'"' else ELEMENT
        for values in in_pieces(_SCALARS.decode, text, end, place, self._limits):
            found = column(values, place, self._limits, first=gathered.n)
            gathered.add({UNNAMED: found}, len(values))
        return gathered.joined()[UNNAMED]

    def _matrix(self, text: bytes, place: str, d: int | None) -> Array:
        """Numbers without names, (n, d)."""
        parts: list[Array] = []
        n = 0
        for rows, plain in self._rows(text, place, d):
            if not rows:
                continue
            n, d = n + len(rows), len(rows[0])
            self._limits.hold(n, d, place)
            columns = [] if plain else self._turned(rows, repeat(place, d), first=n - len(rows))
            numbers = [self._numbers(each, place, len(rows)) for each in columns]
            parts.append(np.array(rows, dtype=np.float64) if plain else np.column_stack(numbers))
        if d is None:
            raise refused(place, "hold rows", "an empty list", "Send one or more")
        return np.concatenate(parts) if parts else np.empty((0, d))

    def _numbers(self, array: Array | None, place: str, n: int = 0) -> Array:
        """A column of rows that have no names: numbers, or n that are missing."""
        if array is None:
            return np.full(n, np.nan)
        if array.dtype == object:
            came = f"text such as {shown(next(filter(None, array), ''))}"
            raise refused(place, "hold numbers, as rows without names do", came, "Name the columns")
        return array.astype(np.float64)

    def _rows(
        self, text: bytes, place: str, d: int | None, *, exact: bool = False
    ) -> Iterator[tuple[list[list[Any]], bool]]:
        """Some rows at a time, all as long as the first or d, and whether all are floats."""
        before = 0

        def read(piece: bytes) -> tuple[list[list[Any]], bool]:
            try:
                return (_SCALAR_ROWS if exact else _FLOAT_ROWS).decode(piece), not exact
            except msgspec.ValidationError:
                return _SCALAR_ROWS.decode(piece), False

        for rows, plain in in_pieces(read, text, LIST, place, self._limits):
            d = len(rows[0]) if rows and d is None else d
            for i, row in enumerate(rows):
                if len(row) != d:
                    must = f"hold {d:,} values, as the rows before or their names say"
                    raise refused(f"{place}[{before + i}]", must, f"{len(row):,}", "Send as many")
            before += len(rows)
            yield rows, plain

    def _turned(
        self, rows: list[list[object]], places: Iterable[str], *, first: int
    ) -> list[Array | None]:
        """Rows as columns; ``first`` is the number of the first."""
        found = zip(zip(*rows, strict=True), places, strict=True)
        return [column(list(each), place, self._limits, first=first) for each, place in found]

    def _names(self, text: bytes) -> list[Any]:
        found: list[Any] = []
        place = f"{self._key}.columns"
        for some in in_pieces(_NAMES.decode, text or b"[]", TEXT, place, self._limits):
            found += some
            self._limits.hold(0, len(found), place)
        return found

    def _hold_names(self, names: list[Any], place: str) -> None:
        """Refuse names that are no text, too long, or there twice."""
        odd = next((each for each in names if not isinstance(each, str)), None)
        if odd is not None:
            raise refused(place, "hold names", shown(odd), "Name all columns, or none")
        self._limits.hold_text(max(map(len, names), default=0), place)
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise refused(place, "hold each name once", f"{shown(twice)} again", "Rename one")


def _inner(text: bytes) -> bytes:
    """The first character within brackets."""
    found = _INNER.match(text)
    return b"" if found is None else found[1]


_NO_LIMITS = Limits()
_LISTS = ("dataframe_records", "instances", "inputs")


class _Split(msgspec.Struct):
    data: msgspec.Raw
    columns: msgspec.Raw = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    dataframe_split: _Split | None = None
    dataframe_records: msgspec.Raw = msgspec.Raw(b"")
    instances: msgspec.Raw = msgspec.Raw(b"")
    inputs: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"null")


_BODY = msgspec.json.Decoder(_Body)
_PARAMS = msgspec.json.Decoder(dict[str, bool | int | float | str | None] | None)


def read(body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False) -> Asked:
    """What a request asks whose body is JSON.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool, default False
        Whether the columns y, sample_weight and time are what these say, and no features.

    Raises
    ------
    RequestError
        If it is no such request, or too large.

    Examples
    --------
    >>> read(b'{"dataframe_records": [{"speed": 3}, {"speed": null}]}').X["speed"]
    array([ 3., nan])
    >>> read(b'{"inputs": [[1, 2], [3, 4]]}').X
    array([[1., 2.],
           [3., 4.]])
    """
    limits.hold_body(body)
    found = decoded(_BODY, body)
    lists = {key: text for key in _LISTS if (text := bytes(getattr(found, key)))}
    keys = [*lists, *([] if found.dataframe_split is None else ["dataframe_split"])]
    if len(keys) != 1:
        must = "have one of `dataframe_split`, `dataframe_records`, `instances` and `inputs`"
        raise refused("", must, " and ".join(keys) or "none", "Send the rows under one of them")
    (key,) = keys
    forms = Forms(key, limits, exact=learning)
    if found.dataframe_split is not None:
        named = forms.split(bytes(found.dataframe_split.columns), bytes(found.dataframe_split.data))
    elif key == "dataframe_records":
        named = forms.records(lists[key])
    else:
        named = forms.any(lists[key])
    rows = asked(named, forms.place, learning=learning)
    rows.parameters = decoded(_PARAMS, short(found.params, "params"), "params") or {}
    return rows


def write(answers: Mapping[str, Array]) -> Reply:
    """What is sent back.

    Parameters
    ----------
    answers : mapping of str to ndarray
        Its ``y`` are the predictions. nan and infinity are null.

    Raises
    ------
    LabelError
        If a text among the answers is none that UTF-8 can write.

    Examples
    --------
    >>> import numpy as np
    >>> write({"y": np.array([0.5, 1])}).body
    b'{"predictions":[0.5,1.0]}'
    """
    return Reply(encoded({"predictions": answers["y"].tolist()}))


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
    try:
        misread = Misread("the request")
        misread.check_beginning(body[:_LONGEST], ",")
        try:
            columns = _columns(_parsed(body), limits)
        except OnepassError:
            raise
        except (pa.ArrowException, OSError, ValueError) as wrong:
            raise misread.error(wrong) from wrong
    except SourceError as wrong:
        raise RequestError(str(wrong).removeprefix("op.stream.read: ")) from wrong
    return asked(columns, _place, learning=learning)


def _parsed(body: bytes) -> pa.Table:
    """The text as an Arrow table: in one block, by which all types are told."""
    return csv.read_csv(
        pa.BufferReader(body),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(body) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(strings_can_be_null=True),
    )


def _columns(table: pa.Table, limits: Limits) -> dict[str, Array]:
    """A table's columns as arrays."""
    arrays, names = Arrays(limits), table.schema.names
    limits.hold_text(max(map(len, names), default=0), "header")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        remedy = "Give each column a name of its own"
        raise refused("header", "hold each name once", f"{shown(twice)} again", remedy)
    limits.hold(table.num_rows, len(names), "", texts=arrays.texts(table.schema))
    found = {}
    for name, values in zip(names, table.columns, strict=True):
        if pa.types.is_binary(values.type):  # as Arrow takes text that is not UTF-8
            raise refused(_place(name), "be UTF-8", "other bytes", "Write it in UTF-8")
        found[name] = arrays.of(values.combine_chunks(), _place(name))
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
