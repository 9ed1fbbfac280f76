"""Delimited text (CSV, TSV) as a source: read as it flows, its types fixed by its first bytes.

pyarrow fixes a column's type by the first block it parses, and for ever: a column of whole numbers
refuses 3.5 a million rows later, a column that is empty at first refuses every value. So the first
bytes are looked at by themselves, and then all columns are read by types that can hold what may
come: numbers as float64, dates to the microsecond, and what was empty as text that becomes what
its first values are (see :mod:`onepass.stream.late`).

The text is cut into whole rows here, and pyarrow parses them out of memory. Were it given the file,
it would read ahead in a thread of its own, which calls back into Python: at exit that ends in an
abort, and until then it holds many blocks more than are needed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import OnepassError, SourceError
from onepass.extras import need
from onepass.stream.arrow import letters, to_array, truths
from onepass.stream.blocks import stacked
from onepass.stream.bytestream import DAMAGED, Bytes
from onepass.stream.late import Late
from onepass.stream.misread import Misread
from onepass.stream.oddities import Oddity, found
from onepass.stream.pieces import Piece
from onepass.stream.records import Records, is_left
from onepass.stream.remote import Remote
from onepass.stream.undecided import Undecided
from onepass.table import Table

__all__ = ["Delimited"]

_SAMPLE = 4 << 20  # bytes by which the types are fixed
_CHUNK = 256 << 10  # bytes parsed at a time
_DECLARED = re.compile(rb"(?:\xef\xbb\xbf)?sep=([!-~\t])(?:\r\n|\n|\r)")


class Delimited:
    """Rows of a delimited text file, or of a pipe.

    Parameters
    ----------
    source : Path, Remote, or file object
        What lies at a place can be read again and again, a file object once.
    name : str
        What messages call it.
    delimiter : str
        What stands between two fields.
    header : sequence of str, optional
        The columns' names, where the file has no line of them; () for x0, x1, ….
    na : sequence of str
        Further spellings of a missing value.
    skip : bool
        Whether rows that cannot be parsed are skipped.
    leave : int or None
        The row from whose number on an unterminated last line is left unread; None for none.
    declared : bool
        Whether a first line such as ``sep=;``, as Excel writes it, declares the delimiter.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    SourceError
        While reading: if the text is not as promised.
    """

    n_rows: int | None = None

    def __init__(
        self,
        source: Any,
        name: str,
        *,
        delimiter: str = ",",
        header: Sequence[str] | None = None,
        na: Sequence[str] = (),
        skip: bool = False,
        leave: int | None = None,
        declared: bool = True,
    ) -> None:
        self.name = name
        self.repeatable = self.ahead = isinstance(source, (Path, Remote))
        self._source = source
        self._delimiter = delimiter
        self._records = Records(delimiter, name)
        self._header = None if header is None else list(header)
        self._na = list(na)
        self._skip, self.leave, self._declared = skip, leave, declared
        self._pa = need("pyarrow", extra="files", where="op.stream.read")
        self._csv = need("pyarrow.csv", extra="files", where="op.stream.read")
        self._layout: list[tuple[str, Any]] | None = None
        self._odd: list[Oddity] = []
        self._waiting: Bytes | None = None  # a pipe whose first bytes were looked at

    def columns(self) -> list[str]:
        """The names in the first line; a name may stand there twice."""
        if self._layout is None:
            opened = self._open()
            try:
                with self._told({}, headed=self._header is None):
                    self._layout = self._looked(opened)
            finally:
                if self.repeatable or self._layout is None:
                    opened.close()
            self._waiting = None if self.repeatable else opened
        return [name for name, _ in self._layout]

    def kinds(self) -> dict[str, str]:
        """Text and dates, as the first bytes show them."""
        return letters(self._layout or [], self._pa)

    def oddities(self) -> list[Oddity]:
        """The columns that are text for the sake of a few values; nothing is read for it."""
        return list(self._odd)

    def truths(self) -> set[str]:
        """The columns of truth values, once they are known."""
        return truths(self._layout or [], self._pa)

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, some hundred kibibytes of text at a time."""
        del block  # pieces are bounded by their bytes
        every = self.columns()
        opened, self._waiting = self._waiting or self._open(), None
        fixed = {name: self._fixed(kind, types.get(name)) for name, kind in self._layout or []}
        wanted = every if names is None else list(names)
        late = Late([name for name, kind in fixed.items() if kind is None], self._pa, self.name)
        undecided = Undecided([name for name in wanted if fixed[name] is None], start)
        reading = self._reading(fixed, wanted)
        header, first = self._header, 0
        chunks = self._records.chunks(opened, _CHUNK)
        try:
            while True:
                with self._told(types, first, headed=header is None):
                    chunk = next(chunks, b"")
                if not chunk:
                    break
                if not chunk.endswith((b"\n", b"\r")) and is_left(self.name, first, self.leave):
                    break
                table, bad = self._passed(chunk, fixed, late, undecided, first), dict[int, str]()
                if table is None:
                    table, bad = self._rows(chunk, header, reading, late, types, first)
                header, first = every, first + len(table)
                undecided.learn(table)
                yield Piece(table, fraction=opened.fraction, bad=bad)
        finally:
            opened.close()

    def _rows(
        self, text: bytes, header: list[str] | None, reading: Any, late: Late,
        types: Mapping[str, str], first: int,
    ) -> tuple[Table, dict[int, str]]:  # fmt: skip
        """Whole rows as a table; with ``skip``, rows that cannot be parsed are without values."""
        try:
            with self._told(types, first, headed=header is None):
                return self._table(self._parsed(text, header, reading), late, first), {}
        except SourceError as error:
            if not self._skip:
                raise
            wrong = str(error)
        if header is None:
            while not (line := text[: self._records.first(text)]).strip():
                text = text[len(line) :]
            return self._rows(text[len(line) :], self.columns(), reading, late, types, first)
        cut = self._records.end(text[: len(text) // 2]) or self._records.first(text)
        if cut == len(text):
            return Table({}, 1), {0: wrong}
        upper, bad = self._rows(text[:cut], header, reading, late, types, first)
        first += len(upper)
        lower, more = self._rows(text[cut:], header, reading, late, types, first)
        return stacked((upper, lower)), bad | {len(upper) + i: why for i, why in more.items()}

    def _passed(
        self, chunk: bytes, fixed: dict[str, Any], late: Late, undecided: Undecided, first: int
    ) -> Table | None:
        """What must be known of rows that are passed over; None where they must be read in full."""
        if not undecided.passes(first):
            return None
        names = undecided.names or list(fixed)[:1]
        counted = {name: self._pa.binary() for name in fixed if name not in undecided.names}
        try:
            parsed = self._parsed(chunk, list(fixed), self._reading(fixed | counted, names))
            if not undecided.passes(first, parsed.num_rows):
                return None
            table = self._table(parsed.select(undecided.names), late, first)
        except (ValueError, OnepassError):  # it is raised, or skipped, when all is parsed
            return None
        return Table(table.columns, parsed.num_rows)

    def _reading(self, fixed: Mapping[str, Any], names: list[str]) -> Any:
        """How the text of some columns becomes values of their types."""
        return self._convert(
            include_columns=names,
            column_types={name: kind or self._pa.string() for name, kind in fixed.items()},
        )

    def _open(self) -> Bytes:
        with self._told({}):
            opened = self._source if isinstance(self._source, Bytes) else Bytes(self._source)
            try:
                mark = _DECLARED.match(opened.look(10))
            except BaseException:
                opened.close()
                raise
            if mark is not None:
                opened.read(mark.end())
                if self._declared:
                    self._delimiter = mark[1].decode()
                    self._records = Records(self._delimiter, self.name)
            return opened

    def _looked(self, opened: Bytes) -> list[tuple[str, Any]]:
        """Each column's name and the type of its first values."""
        sample = opened.look(_SAMPLE)
        misread = Misread(self.name, headed=self._header is None)
        misread.check_beginning(sample, self._delimiter)
        if len(sample) == _SAMPLE:  # cut within a row
            sample = sample[: self._records.end(sample)]
            if not sample:
                raise self._records.too_long()
        elif self.leave is not None and (end := self._records.end(sample)):
            sample = sample[:end]
        table = self._parsed(sample, self._header, self._convert(), ragged=self._skip)
        if self._header == []:
            self._header = [f"x{j}" for j in range(table.num_columns)]
            table = table.rename_columns(self._header)
        compute = need("pyarrow.compute", extra="files", where="op.stream.read")
        self._odd = found(table, self._pa, compute)
        return list(zip(table.schema.names, table.schema.types, strict=True))

    def _convert(self, **options: Any) -> Any:
        """How text becomes values."""
        convert = self._csv.ConvertOptions(strings_can_be_null=True, **options)
        convert.null_values = [*convert.null_values, *self._na]
        return convert

    def _parsed(
        self, text: bytes, header: list[str] | None, convert: Any, *, ragged: bool = False
    ) -> Any:
        """Whole rows as an Arrow table; the first line names the columns if ``header`` does not.

        With ``ragged``, rows of another number of fields are left out.
        """
        if header is not None and not text.strip():
            return self._pa.table({})
        # one thread and one block: rows stay in order, and errors know theirs
        return self._csv.read_csv(
            self._pa.BufferReader(text),
            read_options=self._csv.ReadOptions(
                use_threads=False,
                block_size=len(text) + 1,
                column_names=header,
                autogenerate_column_names=header == [],
            ),
            parse_options=self._csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=(lambda _: "skip") if ragged else None,
            ),
            convert_options=convert,
        )

    def _fixed(self, kind: Any, asked: str | None) -> Any:
        """The type a column is read by; None for text that is decided late."""
        pa = self._pa
        zone = getattr(kind, "tz", None)
        if asked is not None:
            empty = pa.types.is_null(kind)  # a date's first value says whether it has a zone
            return {
                "number": pa.bool_() if pa.types.is_boolean(kind) else pa.float64(),
                "truth": pa.bool_(),
                "text": pa.string(),
                "date": None if empty else pa.timestamp("us", tz=zone),
            }[asked]
        if pa.types.is_null(kind):
            return None
        if pa.types.is_boolean(kind):
            return kind
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return pa.timestamp("us", tz=zone)
        return pa.string()

    def _table(self, read: Any, late: Late, first: int) -> Table:
        columns = {}
        for name, column in zip(read.schema.names, read.columns, strict=True):
            decided = late.decided(name, column.combine_chunks(), first)
            columns[name] = to_array(decided, name, self._pa, self.name)
        return Table(columns, read.num_rows)

    @contextmanager
    def _told(
        self, types: Mapping[str, str], first: int = 0, *, headed: bool = True
    ) -> Iterator[None]:
        """Say below's errors again in the user's words."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, *DAMAGED) as wrong:
            names = [name for name, _ in self._layout or []]
            misread = Misread(self.name, names, types, first=first, headed=headed)
            raise misread.error(wrong) from wrong
