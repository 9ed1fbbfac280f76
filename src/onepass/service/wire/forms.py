"""Forms: rows, records and columns in JSON, as columns by their names.

They are read piece by piece, so that no more than a piece stands in memory as Python's objects.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import msgspec
import numpy as np

from onepass.errors import Array
from onepass.service.wire.gathered import Gathered, column
from onepass.service.wire.jsontext import COLUMN, ELEMENT, LIST, OBJECT, TEXT, in_pieces
from onepass.service.wire.limits import Limits, refused, shown

__all__ = ["UNNAMED", "Forms"]

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
        self, rows: list[list[Any]], places: Iterable[str], *, first: int
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
