"""JSON Lines as a source: one object a line; keys within an object are named ``outer.inner``.

A key that a line lacks is missing there, as null is, and any line may have new keys. A column is
text, numbers or truth values; text is dates, times of day or durations where all its first values
are (:mod:`onepass.stream.literals`). The first bytes of the file fix the types of the columns that
have values there.

pyarrow parses the lines, some hundred kibibytes at a time. A chunk that it refuses is parsed line
by line in Python, which is slower and gives the place of an error.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from onepass.errors import OnepassError, SourceError, TypeMismatchError, unencodable
from onepass.stream.arrow import leaves, to_array
from onepass.stream.csv import is_left
from onepass.stream.dtypes import refuse
from onepass.stream.files import DAMAGED, Bytes, Readable, Remote
from onepass.stream.literals import LETTERS, SKIP, SOME, Literals, Oddity, as_text
from onepass.stream.sources import Piece
from onepass.types import Array
from onepass.validation.table import Table, to_column

__all__ = ["NATIVE", "JsonLines", "Objects"]


NATIVE = frozenset({"number", "true or false"})
"""Forms of values that JSON does not quote."""
_Decide = Callable[[str, Sequence[object], int], str]


class Objects:
    r"""Reads lines of one source.

    Parameters
    ----------
    source : str
        Its name, for messages.
    passes : callable
        Whether to leave out a key and all keys within its value, by its full name.
    literals : Literals
        How text is parsed.
    decide : callable
        Gives the form of a column of text by its name, its values and the row of the first.

    Examples
    --------
    >>> text = b'{"km": 3, "by": {"sea": true}}\n\n{"km": null}\n'
    >>> table = Objects("a.jsonl").table(text, {}, {}, first=0, line=0)
    >>> table.row(0), table.row(1)
    ({'km': 3.0, 'by.sea': 1.0}, {'km': nan, 'by.sea': nan})
    """

    def __init__(
        self,
        source: str,
        passes: Callable[[str], bool] = lambda name: not name,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        decide: _Decide = lambda *_: "text",
    ) -> None:
        self._source = source
        self._passes = passes
        self._literals = literals
        self._decide = decide

    def table(
        self,
        text: bytes,
        known: dict[str, str],
        types: Mapping[str, str],
        first: int,
        line: int,
        bad: dict[int, str] | None = None,
    ) -> Table:
        """The rows of some whole lines.

        Parameters
        ----------
        text : bytes
            The lines; empty ones are no rows.
        known : dict of str to str
            The forms of columns; those of new columns are added.
        types : dict of str to str
            The kinds that the user gave; the caller converts these columns.
        first, line : int
            The numbers of rows and lines before.
        bad : dict of int to str, optional
            Gets the errors of rows to be skipped, by index.

        Raises
        ------
        SourceError
            If a line is no object, or a value is not of its column's kind, and ``bad`` is not
            given.
        """
        rows, lines = self._rows(text, line, bad)
        columns = {}
        for name, values in _by_name(rows).items():
            if name in types:
                columns[name] = _worded(values, name, types[name])
                continue
            form = known.get(name) or self._form(name, values, first)
            if any(value is not None for value in values):
                known[name] = form
            columns[name], unfit = self._column(values, form, name)
            for i in unfit:
                place = f"row {first + i} (counting from 0, line {lines[i]}), column {name!r}"
                refuse(i, self._refused(place, form, values[i], name), bad)
        return Table(columns, len(rows))

    def forms(self, text: bytes, *, skip: bool = False) -> dict[str, str]:
        """The forms of the columns of which all values in some whole lines have one form."""
        rows, _ = self._rows(text, 0, {} if skip else None)
        columns = {n: v for n, v in _by_name(rows).items() if any(one is not None for one in v)}
        forms = {name: self._form(name, values, 0) for name, values in columns.items()}
        return {n: form for n, form in forms.items() if not self._column(columns[n], form, n)[1]}

    def _form(self, name: str, values: Sequence[object], first: int) -> str:
        """The form of a column by most of its values, of which a list counts as none."""
        given = [value for value in values if isinstance(value, (str, int, float))]
        most = Counter(isinstance(value, str) for value in given).most_common(1)
        if most and most[0][0]:
            return self._decide(name, values, first)
        shown = next((value for value in given if not isinstance(value, str)), None)
        return "true or false" if isinstance(shown, bool) else "number"

    def _column(self, values: Sequence[object], form: str, name: str) -> tuple[Array, list[int]]:
        """Values as a column of one form, and the places of those that do not have it."""
        kinds = (int, float) if form in NATIVE else str  # a bool is an int
        given: list[Any] = [value if isinstance(value, kinds) else None for value in values]
        other = [i for i, v in enumerate(values) if v is not None and given[i] is None]
        if form in NATIVE:
            return to_column(given, name), other
        column, unfit = self._literals.array(given, form)
        return column, sorted(other + unfit)

    def _rows(
        self, text: bytes, line: int, bad: dict[int, str] | None
    ) -> tuple[list[dict[str, object]], list[int]]:
        """The values of some whole lines, and the number of each line."""
        rows: list[dict[str, object]] = []
        lines = []
        for number, one in enumerate(text.split(b"\n"), line + 1):
            if one.strip():
                lines.append(number)
                try:
                    rows.append(self._row(one, number))
                except SourceError as error:
                    refuse(len(rows), error, bad)
                    rows.append({})
        return rows, lines

    def _row(self, text: bytes, line: int) -> dict[str, object]:
        """The values of a line, which must be one object, by their full names."""
        try:
            return self._named(json.loads(text, object_pairs_hook=_once))
        except (TypeError, ValueError) as wrong:  # bytes that are no UTF-8 among them
            raise self._no_object(text, line, f"{wrong}") from wrong
        except RecursionError:
            raise self._no_object(text, line, "it is nested too deeply") from None

    def _named(self, value: object) -> dict[str, object]:
        """The values within an object by their full names, which must be unique."""
        if not isinstance(value, dict):
            raise TypeError(f"it is a {type(value).__name__}")
        row: dict[str, object] = {}
        for name, inner in self._flat(value, ""):
            if name in row:
                raise ValueError(f"it has two values of {name!a}")
            if unencodable([name, inner if isinstance(inner, str) else None]) is not None:
                raise ValueError(f"{name!a} holds a lone surrogate, which UTF-8 cannot encode")
            row[name] = inner
        return row

    def _no_object(self, text: bytes, line: int, why: str) -> SourceError:
        shown = text.strip()[:60].decode("utf-8", "replace")
        return SourceError(
            f"op.stream.read: {self._source}: line {line} must be one JSON object in UTF-8, got "
            f"{shown!r} ({why}). Fix the line, or give {SKIP}."
        )

    def _flat(self, value: Mapping[str, object], before: str) -> Iterator[tuple[str, object]]:
        """The full names of the keys of an object and of objects within it, and the values."""
        for key, inner in value.items():
            name = before + key
            if self._passes(name):
                continue
            if isinstance(inner, dict):
                yield from self._flat(inner, f"{name}.")
            else:
                yield name, inner

    def _refused(self, place: str, form: str, value: object, name: str) -> SourceError:
        if isinstance(value, list):
            return SourceError(
                f"op.stream.read: {self._source}: {place} must be a number, text, true, false, "
                f"null or an object, got a list. Leave it out with drop=[{name!r}] (--drop {name}) "
                f"or give {SKIP}."
            )
        return SourceError(
            f"op.stream.read: {self._source}: {place} must be {self._literals.word(form)}, as most "
            f"of its first values are, got {value!r}. {self._literals.remedy(name, value)}"
        )


def _by_name(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """The values of each column, None where a row has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON, refused if it has a key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"it has the key {twice!a} twice")
    return found


def _worded(values: Sequence[object], name: str, kind: str) -> Array:
    """Values of any kind as a column: numbers, or text that keeps the digits of whole numbers."""
    numbers = float if kind == "text" else (int, float)
    if all(v is None or (isinstance(v, numbers) and not isinstance(v, bool)) for v in values):
        return to_column(values, name)
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        word = json.dumps(value) if isinstance(value, (bool, list)) else as_text(value)
        column[i] = None if value is None else word
    return column


_SAMPLE = 4 << 20  # bytes by which the kinds are fixed
_CHUNK = 256 << 10  # bytes parsed at a time
_LONGEST = 16 << 20  # bytes; a longer line is no row


class JsonLines:
    """Rows of a file of JSON Lines, or of a pipe.

    Parameters
    ----------
    source : Path, Remote, or file object
        What lies at a place can be read again and again, a file object once.
    name : str
        What messages call it.
    passes : callable, optional
        Whether to leave out a key and all keys within its value, by its full name.
    literals : Literals
        How text is parsed.
    skip : bool
        Whether lines that cannot be parsed are skipped.
    leave : int or None
        The first row that is left unread if its line is unterminated; None for none.

    Raises
    ------
    SourceError
        While reading: if a line is no object, or a value is not of its column's kind.
    """

    n_rows: int | None = None

    def __init__(
        self,
        source: Path | Remote | Readable[bytes | str],
        name: str,
        passes: Callable[[str], bool] = lambda name: not name,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        *,
        skip: bool = False,
        leave: int | None = None,
    ) -> None:
        self.name = name
        self.repeatable = self.ahead = isinstance(source, (Path, Remote))
        self._source = source
        self._passes = passes
        self._skip, self.leave = skip, leave
        self._literals = literals
        self._layout: dict[str, str] | None = None  # leaf -> form
        self._odd: list[Oddity] = []
        self._waiting: Bytes | None = None

    def columns(self) -> None:
        """None: any row may have new columns."""

    def kinds(self) -> dict[str, str]:
        """The letters of the columns that have values in the first bytes."""
        if self._layout is None:
            opened = self._open()
            try:
                with self._told():
                    self._layout = self._looked(opened)
            finally:
                if self.repeatable or self._layout is None:
                    opened.close()
            self._waiting = None if self.repeatable else opened
        return {n: LETTERS[self._literals.kind(form)] for n, form in self._layout.items()}

    def oddities(self) -> list[Oddity]:
        """The columns to report of the rows read so far."""
        return list(self._odd)

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, some hundred kibibytes of text at a time."""
        del names, block, start  # chosen and passed over above; bounded by their bytes
        self.kinds()
        opened, self._waiting = self._waiting or self._open(), None
        self._odd = [one for one in self._odd if one.name not in types]
        layout, fields = dict(self._layout or {}), dict[str, pa.DataType]()
        objects = Objects(self.name, self._passes, self._literals, self._decided)
        first = line = 0
        chunks = self._chunks(opened)
        try:
            while True:
                with self._told():
                    chunk, bad = next(chunks, b""), dict[int, str]()
                    if not chunk:
                        break
                    if not chunk.endswith(b"\n") and is_left(self.name, first, self.leave):
                        break
                    table = self._quick(chunk, fields, layout, types, first)
                    if table is None:
                        wrong = bad if self._skip else None
                        table = objects.table(chunk, layout, types, first, line, wrong)
                first, line = first + len(table), line + chunk.count(b"\n")
                yield Piece(table, fraction=opened.fraction, bad=bad)
        finally:
            opened.close()

    def _open(self) -> Bytes:
        with self._told():
            return self._source if isinstance(self._source, Bytes) else Bytes(self._source)

    def _chunks(self, opened: Bytes) -> Iterator[bytes]:
        """Texts of whole lines."""
        left = b""
        while more := opened.read(_CHUNK):
            text = left + more
            end = text.rfind(b"\n") + 1
            if end:
                yield text[:end]
            elif len(text) > _LONGEST:
                raise SourceError(
                    f"op.stream.read: {self.name} must have lines of some mebibytes at most, got "
                    "one that is longer. Write each object on a line of its own."
                )
            left = text[end:]
        if left.strip():
            yield left

    def _looked(self, opened: Bytes) -> dict[str, str]:
        """The form of each leaf that has values in the first bytes."""
        sample = opened.look(_SAMPLE)
        if len(sample) == _SAMPLE or (self.leave is not None and b"\n" in sample):  # maybe cut
            sample = sample[: sample.rfind(b"\n") + 1]
        if not sample.strip():
            raise SourceError(
                f"op.stream.read: {self.name} must hold rows, got an empty file. "
                "Check that it was written."
            )
        if sample.lstrip().startswith(b"["):
            raise SourceError(
                f"op.stream.read: {self.name} must hold one JSON object a line, got an array. "
                "Write its elements as lines, as with: jq -c '.[]'."
            )
        layout: dict[str, str] = {}
        if self._quick(sample, {}, layout, {}) is None:
            end = sample.find(b"\n", _CHUNK) + 1 or len(sample)
            objects = Objects(self.name, self._passes, self._literals, self._decided)
            layout = objects.forms(sample[:end], skip=self._skip)
        return layout

    def _decided(self, name: str, values: Sequence[object], first: int) -> str:
        """Decide the form of a column of which most values are text, and note any oddity."""
        texts = [value if isinstance(value, str) else None for value in values]
        form, odd = self._literals.decide(name, texts, "quoted", source=self.name, first=first)
        numbers = sum(isinstance(value, (int, float)) for value in values)
        count = numbers + len(texts) - texts.count(None)
        if self._skip and form == "text" and odd is None and numbers > SOME * count:
            row, text = next((i, text) for i, text in enumerate(texts, first) if text is not None)
            odd = Oddity(
                self.name, name, count, row, "mixed", "numbers", "number", numbers, text,
                quoted=True,
            )  # fmt: skip
        self._odd += [] if odd is None else [odd]
        return form or "text"

    def _quick(
        self,
        text: bytes,
        fields: dict[str, pa.DataType],
        layout: dict[str, str],
        types: Mapping[str, str],
        first: int = 0,
    ) -> Table | None:
        """Lines as a table, parsed by pyarrow; None where they must be parsed one by one.

        ``fields`` are the Arrow types by which keys are parsed, and ``layout`` the forms of leaves.
        New keys and leaves are added to both.
        """
        try:
            read = self._parsed(text, fields)
            texts = {f.name: kind for f in read.schema if (kind := _as_text(f.type)) != f.type}
            if texts:  # literals decide which texts are dates, not pyarrow
                read = self._parsed(text, fields | texts)
            columns = {}
            for leaf, column in leaves(read, self._passes):
                if leaf in columns:  # "a.b" beside "b" in "a"
                    return None
                if types.get(leaf) is None and column.null_count < len(column):
                    array = self._converted(leaf, column, layout, first)
                else:
                    text_asked = types.get(leaf) == "text"
                    array = to_array(column, leaf, self.name, text=text_asked)
                if array is None:
                    return None
                columns[leaf] = array
        except (pa.ArrowException, TypeMismatchError, UnicodeDecodeError, RecursionError):
            return None
        fields |= {
            f.name: _kept(f.type, f.name, types)
            for f in read.schema
            if not pa.types.is_null(f.type)
        }
        return Table(columns, read.num_rows)

    def _converted(
        self, leaf: str, column: pa.Array, layout: dict[str, str], first: int
    ) -> Array | None:
        """A column by the form of the leaf; None where a value does not have it."""
        word = pa.types.is_string(column.type)
        if leaf not in layout and not word:
            truth = pa.types.is_boolean(column.type)
            layout[leaf] = "true or false" if truth else "number"
        elif leaf not in layout:
            layout[leaf] = self._decided(leaf, column.to_pylist(), first)
        if word == (layout[leaf] in NATIVE):
            return None
        if word and layout[leaf] != "text":
            array, unfit = self._literals.array(column.to_pylist(), layout[leaf])
            return None if unfit else array
        return to_array(column, leaf, self.name)

    def _parsed(self, text: bytes, fields: Mapping[str, pa.DataType]) -> pa.Table:
        schema = pa.schema(list(fields.items())) if fields else None
        return pa.json.read_json(
            pa.BufferReader(text),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=schema),
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors from below as SourceErrors."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, *DAMAGED) as wrong:
            raise SourceError(
                f"op.stream.read: {self.name} must be whole, got a file that breaks off or is "
                f"damaged ({wrong}). Copy or download it again."
            ) from wrong


def _as_text(kind: pa.DataType) -> pa.DataType:
    """The type with dates as text."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _as_text(f.type)) for f in kind])
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _kept(kind: pa.DataType, name: str, types: Mapping[str, str]) -> pa.DataType:
    """The type by which a key is parsed from now on: whole numbers may get a fraction."""
    if pa.types.is_struct(kind):
        inner = [f for f in kind if not pa.types.is_null(f.type)]
        return pa.struct([(f.name, _kept(f.type, f"{name}.{f.name}", types)) for f in inner])
    return pa.float64() if pa.types.is_integer(kind) and types.get(name) != "text" else kind
