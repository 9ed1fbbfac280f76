"""JSON Lines as a source: an object a line; what lies within an object is called ``outer.inner``.

A key that a line lacks is missing there, as null is, and a key may come for the first time at any
line. A column is text, numbers, truth values or, if its first values are all dates in ISO 8601,
dates; they are fixed by the first bytes of the file, where it has values there.

pyarrow parses the lines, some hundred kibibytes at a time. What it refuses is parsed line by line
(:mod:`onepass.stream.objects`): that is slower, takes what is right after all, and says of what is
wrong where it stands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import OnepassError, SourceError, TypeMismatchError
from onepass.extras import need
from onepass.stream.arrow import letters, to_array, truths
from onepass.stream.bytestream import DAMAGED, Bytes
from onepass.stream.objects import Objects
from onepass.stream.pieces import Piece
from onepass.stream.records import is_left
from onepass.stream.remote import Remote
from onepass.table import Table, is_missing

__all__ = ["JsonLines"]

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
        Whether a key is passed over, with all that lies within, by its full name.
    skip : bool
        Whether lines that cannot be parsed are skipped.
    leave : int or None
        The row from whose number on an unterminated last line is left unread; None for none.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    SourceError
        While reading: if a line is no object, or a value is not of its column's kind.
    """

    n_rows: int | None = None

    def __init__(
        self,
        source: Any,
        name: str,
        passes: Callable[[str], bool] = lambda name: not name,
        *,
        skip: bool = False,
        leave: int | None = None,
    ) -> None:
        self.name = name
        self.repeatable = self.ahead = isinstance(source, (Path, Remote))
        self._source = source
        self._passes = passes
        self._skip, self.leave = skip, leave
        self._pa = need("pyarrow", extra="files", where="op.stream.read")
        self._json = need("pyarrow.json", extra="files", where="op.stream.read")
        self._layout: dict[str, Any] | None = None  # leaf -> Arrow type
        self._waiting: Bytes | None = None

    def columns(self) -> None:
        """Unknown: only the rows can tell."""

    def kinds(self) -> dict[str, str]:
        """Those of columns that have values in the first bytes."""
        if self._layout is None:
            opened = self._open()
            try:
                with self._told():
                    self._layout = self._looked(opened)
            finally:
                if self.repeatable or self._layout is None:
                    opened.close()
            self._waiting = None if self.repeatable else opened
        return letters(self._layout.items(), self._pa)

    def truths(self) -> set[str]:
        """The columns of truth values, once they are known."""
        return truths((self._layout or {}).items(), self._pa)

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
        layout, fields = dict(self._layout or {}), dict[str, Any]()
        objects = Objects(self.name, self._passes)
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
                    table = self._quick(chunk, fields, layout, types)
                    if table is None:
                        known = letters(layout.items(), self._pa)
                        wrong = bad if self._skip else None
                        table = objects.table(chunk, known, types, first, line, wrong)
                        layout = self._types(_shown(table)) | layout
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

    def _looked(self, opened: Bytes) -> dict[str, Any]:
        """Each leaf's type as the first bytes show it."""
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
        layout: dict[str, Any] = {}
        if self._quick(sample, {}, layout, {}) is None:
            end = sample.find(b"\n", _CHUNK) + 1 or len(sample)
            objects = Objects(self.name, self._passes)
            layout = self._types(objects.letters(sample[:end], skip=self._skip))
        return layout

    def _types(self, told: Mapping[str, str]) -> dict[str, Any]:
        """Arrow types by letters."""
        pa = self._pa
        kinds = {"f": pa.float64(), "O": pa.string(), "M": pa.timestamp("us")}
        return {name: kinds[letter] for name, letter in told.items()}

    def _quick(
        self, text: bytes, fields: dict[str, Any], layout: dict[str, Any], types: Mapping[str, str]
    ) -> Table | None:
        """Lines as a table, by pyarrow; None where it refuses, or they do not fit.

        ``fields`` are the types by which keys are parsed and ``layout`` those that leaves have;
        both learn of what comes for the first time.
        """
        pa = self._pa
        try:
            read = self._parsed(text, fields)
            while stamps := [f.name for f in read.schema if _has_stamp(f.type, pa)]:
                fields |= {
                    name: _as_text(read.schema.field(name).type, pa) for name in stamps
                }  # dates are told from text here, not there
                read = self._parsed(text, fields)
            columns = {}
            for leaf, column in _leaves(read, self._passes):
                if leaf in columns:  # "a.b" beside "b" in "a"
                    return None
                kind = layout.get(leaf)
                if kind is None and column.null_count < len(column):
                    kind = layout[leaf] = _decided(column, pa)
                asked = types.get(leaf)
                if asked is None and kind is not None:
                    column = _cast(column, kind, pa)  # noqa: PLW2901
                elif asked == "date" and pa.types.is_string(column.type):
                    column = column.cast(_decided(column, pa))  # noqa: PLW2901
                columns[leaf] = to_array(column, leaf, pa, self.name, text=asked == "text")
        except (pa.ArrowException, TypeMismatchError, UnicodeDecodeError, RecursionError):
            return None
        fields |= {
            f.name: _kept(f.type, pa, f.name, types)
            for f in read.schema
            if not pa.types.is_null(f.type)
        }
        return Table(columns, read.num_rows)

    def _parsed(self, text: bytes, fields: Mapping[str, Any]) -> Any:
        schema = self._pa.schema(list(fields.items())) if fields else None
        return self._json.read_json(
            self._pa.BufferReader(text),
            read_options=self._json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=self._json.ParseOptions(explicit_schema=schema),
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say errors from below again in the user's words."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, *DAMAGED) as wrong:
            raise SourceError(
                f"op.stream.read: {self.name} must be whole, got a file that breaks off or is "
                f"damaged ({wrong}). Copy or download it again."
            ) from wrong


def _shown(table: Table) -> dict[str, str]:
    """The letters of columns that have a value."""
    return {n: c.dtype.kind for n, c in table.columns.items() if not is_missing(c).all()}


def _leaves(table: Any, passes: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """Each column that holds no others, by its full name."""
    left = [(f.name, table.column(f.name).combine_chunks()) for f in table.schema][::-1]
    while left:
        name, column = left.pop()
        if passes(name):
            continue
        if not hasattr(column.type, "num_fields") or not str(column.type).startswith("struct<"):
            yield name, column
            continue
        inner = zip(column.type, column.flatten(), strict=True)
        left += [(f"{name}.{field.name}", part) for field, part in inner][::-1]


def _has_stamp(kind: Any, pa: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_stamp(field.type, pa) for field in kind)
    return bool(pa.types.is_timestamp(kind))


def _as_text(kind: Any, pa: Any) -> Any:
    """The type with text for its dates, and nothing that has shown no value."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [(f.name, _as_text(f.type, pa)) for f in kind if not pa.types.is_null(f.type)]
        )
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _kept(kind: Any, pa: Any, name: str, types: Mapping[str, str]) -> Any:
    """The type by which a key is parsed from now on: whole numbers may get a fraction."""
    if pa.types.is_struct(kind):
        inner = [f for f in kind if not pa.types.is_null(f.type)]
        return pa.struct([(f.name, _kept(f.type, pa, f"{name}.{f.name}", types)) for f in inner])
    return pa.float64() if pa.types.is_integer(kind) and types.get(name) != "text" else kind


def _decided(column: Any, pa: Any) -> Any:
    """What a column is by its first values."""
    if not pa.types.is_string(column.type):
        return pa.float64() if pa.types.is_integer(column.type) else column.type
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            column.cast(kind)
        except pa.ArrowInvalid:
            continue
        return kind
    return pa.string()


def _cast(column: Any, kind: Any, pa: Any) -> Any:
    """A column as what it is; refused where it is not."""
    if column.null_count == len(column):
        return pa.nulls(len(column))
    word = pa.types.is_string(column.type)
    if word != (pa.types.is_string(kind) or pa.types.is_timestamp(kind)):
        raise pa.ArrowInvalid("it is of another kind")
    return column.cast(kind) if word else column
