"""JSON Lines as a source: one object a line; keys within an object are named ``outer.inner``.

A key that a line lacks is missing there, as null is, and any line may have new keys. A column is
text, numbers or truth values; text is dates, times of day or durations where all its first values
are (:mod:`onepass.stream.literals`). The first bytes of the file fix the kinds of the columns that
have values there.

pyarrow parses the lines, some hundred kibibytes at a time. A chunk that it refuses is parsed line
by line (:mod:`onepass.stream.objects`), which is slower and gives the place of an error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import Array, OnepassError, SourceError, TypeMismatchError, need
from onepass.stream.arrow import leaves, to_array
from onepass.stream.bytestream import DAMAGED, Bytes
from onepass.stream.literals import LETTERS, SOME, Literals, Oddity
from onepass.stream.objects import NATIVE, Objects
from onepass.stream.pieces import Piece
from onepass.stream.records import is_left
from onepass.stream.remote import Remote
from onepass.validation.table import Table

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
        Whether to leave out a key and all keys within its value, by its full name.
    literals : Literals
        How text is parsed.
    skip : bool
        Whether lines that cannot be parsed are skipped.
    leave : int or None
        The first row that is left unread if its line is unterminated; None for none.

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
        self._pa = need("pyarrow", extra="files", where="op.stream.read")
        self._json = need("pyarrow.json", extra="files", where="op.stream.read")
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
        layout, fields = dict(self._layout or {}), dict[str, Any]()
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

    def _decided(self, name: str, values: Sequence[Any], first: int) -> str:
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
        fields: dict[str, Any],
        layout: dict[str, str],
        types: Mapping[str, str],
        first: int = 0,
    ) -> Table | None:
        """Lines as a table, parsed by pyarrow; None where they must be parsed one by one.

        ``fields`` are the Arrow types by which keys are parsed, and ``layout`` the forms of leaves.
        New keys and leaves are added to both.
        """
        pa = self._pa
        try:
            read = self._parsed(text, fields)
            texts = {f.name: kind for f in read.schema if (kind := _as_text(f.type, pa)) != f.type}
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
                    array = to_array(column, leaf, pa, self.name, text=text_asked)
                if array is None:
                    return None
                columns[leaf] = array
        except (pa.ArrowException, TypeMismatchError, UnicodeDecodeError, RecursionError):
            return None
        fields |= {
            f.name: _kept(f.type, pa, f.name, types)
            for f in read.schema
            if not pa.types.is_null(f.type)
        }
        return Table(columns, read.num_rows)

    def _converted(
        self, leaf: str, column: Any, layout: dict[str, str], first: int
    ) -> Array | None:
        """A column by the form of the leaf; None where a value does not have it."""
        word = self._pa.types.is_string(column.type)
        if leaf not in layout and not word:
            truth = self._pa.types.is_boolean(column.type)
            layout[leaf] = "true or false" if truth else "number"
        elif leaf not in layout:
            layout[leaf] = self._decided(leaf, column.to_pylist(), first)
        if word == (layout[leaf] in NATIVE):
            return None
        if word and layout[leaf] != "text":
            array, unfit = self._literals.array(column.to_pylist(), layout[leaf])
            return None if unfit else array
        return to_array(column, leaf, self._pa, self.name)

    def _parsed(self, text: bytes, fields: Mapping[str, Any]) -> Any:
        schema = self._pa.schema(list(fields.items())) if fields else None
        return self._json.read_json(
            self._pa.BufferReader(text),
            read_options=self._json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=self._json.ParseOptions(explicit_schema=schema),
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


def _as_text(kind: Any, pa: Any) -> Any:
    """The type with dates as text."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _as_text(f.type, pa)) for f in kind])
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _kept(kind: Any, pa: Any, name: str, types: Mapping[str, str]) -> Any:
    """The type by which a key is parsed from now on: whole numbers may get a fraction."""
    if pa.types.is_struct(kind):
        inner = [f for f in kind if not pa.types.is_null(f.type)]
        return pa.struct([(f.name, _kept(f.type, pa, f"{name}.{f.name}", types)) for f in inner])
    return pa.float64() if pa.types.is_integer(kind) and types.get(name) != "text" else kind
