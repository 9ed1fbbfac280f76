"""Delimited text (CSV, TSV) as a source.

pyarrow would fix the type of a column by the first block: a column of whole numbers would refuse
3.5 a million rows later, and a column that is empty at first every value. It also infers types
whose values it does not convert. So :mod:`onepass.stream.literals` decides the form of each column
by the first bytes, or by its first values where it is empty there. pyarrow parses plain numbers,
truth values and ISO dates, of which it accepts fewer spellings than literals do. A chunk with any
other value in such a column is parsed again as text and converted by literals.

The text is cut into whole rows here, and pyarrow parses them from memory. If it read the file
itself, it would read many blocks ahead in a thread that calls back into Python, which aborts at
exit. A line break ends a row unless it is in a quoted field. A field is quoted if it begins with a
quotation mark; a doubled mark within it is one mark; what follows the closing mark belongs to the
field unchanged. This is how pyarrow reads, and agrees with RFC 4180 where that is defined.

pyarrow's errors give the number of a column and the line of a row. Here they are raised with the
column's name, the row as :class:`~onepass.stream.stream.Rows` counts it, and what to do.
"""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import compute, csv

from onepass.errors import OnepassError, RowsRefusedWarning, SourceError
from onepass.stream.arrow import to_array
from onepass.stream.dtypes import Undecided
from onepass.stream.files import DAMAGED, Bytes, Readable, Remote
from onepass.stream.literals import ISO, LETTERS, SKIP, ZONED, Literals, Oddity
from onepass.stream.sources import Piece
from onepass.stream.stream import stacked
from onepass.validation.table import Table

__all__ = ["Delimited", "Misread", "Records", "is_left"]


_WHERE = "op.stream.read"
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_PACKED = re.compile(r"[Ii]nvalid data stream|ZSTD|zstd")
_OTHER_CODES = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
}
_DELIMITERS = (b";", b"\t", b",", b"|")
_SHELL = {"\t": "tab"}


class Misread:
    """Makes four-part errors for one file.

    Parameters
    ----------
    source : str
        The file's name.
    names : sequence of str
        Its columns.
    first : int
        Where the first row of the text at hand stands in the source.
    headed : bool
        Whether the columns' names stand before it.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str] = (),
        *,
        first: int = 0,
        headed: bool = True,
    ) -> None:
        self._source = source
        self._names = names
        self._headed = headed
        # pyarrow counts from 1, the line of names included
        self._shift = first - (2 if headed else 1)

    def check_beginning(self, sample: bytes, delimiter: str) -> None:
        """Refuse what is no delimited text in UTF-8 by its first bytes.

        Parameters
        ----------
        sample : bytes
            The first of them.
        delimiter : str
            What stands between two fields.

        Raises
        ------
        SourceError
            If the file is empty, in another code or format, or delimited by something else.
        """
        if not sample.strip():
            raise self._error("must hold rows, got an empty file", "Check that it was written")
        for mark, code in _OTHER_CODES.items():
            if sample.startswith(mark):
                raise self._error(
                    f"must be delimited text in UTF-8, got {code}",
                    "Write it as CSV in UTF-8, or give the file a suffix that says what it is",
                )
        first = sample.lstrip().split(b"\n", 1)[0]
        others = [mark for mark in _DELIMITERS if mark in first]
        if others and delimiter.encode() not in first and b'"' not in first:
            came, wanted = others[0].decode(), delimiter
            raise self._error(
                f"must have fields with {wanted!r} between them, got {came!r} in its first line",
                f"Give delimiter={came!r} (--delimiter {_SHELL.get(came, repr(came))}); or, if "
                "this is a name, put it in quotation marks",
            )

    def error(self, wrong: Exception) -> SourceError:
        """The error in the user's words."""
        said = str(wrong)
        if isinstance(wrong, DAMAGED) or "compressed stream" in said or _PACKED.search(said):
            return self._error(
                f"must be a whole packed file, got one that breaks off or is damaged ({said})",
                "Copy or download it again",
            )
        if isinstance(wrong, UnicodeDecodeError) or "invalid UTF8" in said:
            return self._code(said)
        if "Empty CSV" in said:
            return self._error("must hold rows, got a header alone", "Check that it was written")
        return self._ragged(said) or self._other(wrong)

    def _ragged(self, said: str) -> SourceError | None:
        found = _RAGGED.search(said)
        if found is None:
            return None
        line, expected, came = (int(number) for number in found.groups())
        return self._error(
            f"row {line + self._shift} (counting from 0) must have {expected} fields, as "
            f"{'in the first line' if self._headed else 'there are names'}, got {came}",
            "Fix the line, where a field that holds the delimiter must stand in quotation marks, "
            f"or give {SKIP}",
        )

    def _code(self, said: str) -> SourceError:
        line = re.search(r"Row #(\d+)", said)
        column = re.search(r"column #(\d+)", said)
        place = f"row {int(line[1]) + self._shift} (counting from 0)" if line else "the text"
        if column and int(column[1]) < len(self._names):
            place += f", column {self._names[int(column[1])]!r}"
        return self._error(
            f"{place} must be UTF-8, got other bytes",
            f"Write it in UTF-8, as with: iconv -f latin1 -t utf-8; or give {SKIP}",
        )

    def _other(self, wrong: Exception) -> SourceError:
        return self._error(f"must be delimited text, got: {wrong}", "Check the file")

    def _error(self, what: str, remedy: str) -> SourceError:
        joint = "" if what.startswith("must") else ":"
        return SourceError(f"{_WHERE}: {self._source}{joint} {what}. {remedy}.")


_LONGEST = 16 << 20  # bytes; a longer row is a quotation mark that was not closed


class _Readable(Protocol):
    """Gives as many bytes as asked, but at its end."""

    def read(self, size: int) -> bytes:
        """The next bytes."""


def is_left(source: str, row: int, leave: int | None) -> bool:
    """Whether to leave an unterminated last line unread; if so, a warning names it.

    Parameters
    ----------
    source : str
        The source's name.
    row : int
        The number of its row.
    leave : int or None
        The first row that may be left; None for none.
    """
    if leave is None or row < leave:
        return False
    warnings.warn(
        f"{source}: row {row} (counting from 0) was left, as its line has no line break and may "
        "still be written. End it with a line break if it is whole.",
        RowsRefusedWarning,
        stacklevel=2,
    )
    return True


class Records:
    r"""Finds the ends of rows.

    Parameters
    ----------
    delimiter : str
        What stands between two fields, one character.
    source : str
        The source's name, for messages.

    Examples
    --------
    >>> Records(",", "a.csv").end(b'1,"a\nb"\n2,"c\n')
    8
    """

    def __init__(self, delimiter: str, source: str) -> None:
        self._source = source
        delimiter = re.escape(delimiter)
        stop = rf"{delimiter}\r\n"
        field = rf'(?:"(?:[^"]++|"")*+"[^{stop}]*+|[^"{stop}][^{stop}]*+|)'
        # possessive within a row: nothing is tried twice. Not over rows: before 3.11.5, Python
        # counts to them what matched of the row that did not
        pattern = rf"(?:{field}(?:{delimiter}{field})*+(?:\r\n|\n|\r))*"
        self._rows = re.compile(pattern.encode())
        self._row = re.compile(pattern.encode()[:-1] + b"?")

    def end(self, text: bytes) -> int:
        """Where the last whole row of a text ends that begins with one; 0 if none is whole."""
        if b'"' not in text:
            return max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        found = self._rows.match(text)
        return 0 if found is None else found.end()

    def first(self, text: bytes) -> int:
        """Where the first row that is not blank ends; the length of the text if none is whole."""
        end = 0
        while end < len(text) and not text[:end].strip():
            found = self._row.match(text, end)
            end = found.end() if found is not None and found.end() > end else len(text)
        return end

    def chunks(self, file: _Readable, size: int) -> Iterator[bytes]:
        """Texts of whole rows, about ``size`` bytes each, or as long as one row.

        Raises
        ------
        SourceError
            If a row is longer than 16 MiB.
        """
        left, wanted = b"", size
        while more := file.read(wanted):
            text = left + more
            end = self.end(text)
            if end:
                yield text[:end]
                left, wanted = text[end:], size
            elif len(text) > _LONGEST:
                raise self.too_long()
            else:  # twice as much each time, or a long row would be looked through too often
                left, wanted = text, len(text)
        if left:
            yield left

    def too_long(self) -> SourceError:
        """What is said where no row ends."""
        return SourceError(
            f"op.stream.read: {self._source} must have rows of some mebibytes at most, got one "
            "that is longer. Look for a quotation mark that is not closed."
        )


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
    literals : Literals
        How text is parsed.
    skip : bool
        Whether rows that cannot be parsed are skipped.
    leave : int or None
        The first row that is left unread if its line is unterminated; None for none.
    declared : bool
        Whether a first line such as ``sep=;``, which Excel writes, sets the delimiter.

    Raises
    ------
    SourceError
        While reading: if the text is not as promised.
    """

    n_rows: int | None = None

    def __init__(
        self,
        source: Path | Remote | Readable[bytes | str],
        name: str,
        *,
        delimiter: str = ",",
        header: Sequence[str] | None = None,
        na: Sequence[str] = (),
        literals: Literals = Literals(),  # noqa: B008  it does not change
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
        stamp, zoned = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
        self._types = {ISO: stamp, ISO + ZONED: zoned, "true or false": pa.bool_()}
        if not literals.given.keys() & {"decimal", "thousands"}:
            self._types["number"] = pa.float64()
        self._literals = literals
        self._names: list[str] | None = None
        self._called: list[str] = []  # the same, set before the sample is parsed, for its errors
        self._sample: pa.Table = None  # the first rows as text
        self._forms: dict[str, str | None] = {}
        self._odd: list[Oddity] = []
        self._waiting: Bytes | None = None  # a pipe whose first bytes were looked at

    def columns(self) -> list[str]:
        """The names in the first line, which may hold duplicates."""
        if self._names is None:
            opened = self._open()
            try:
                with self._told(headed=self._header is None):
                    self._names = self._looked(opened)
            finally:
                if self.repeatable or self._names is None:
                    opened.close()
            self._waiting = None if self.repeatable else opened
        return list(self._names)

    def kinds(self) -> dict[str, str]:
        """The letters of the columns that have values in the first bytes."""
        kind = self._literals.kind
        return {name: LETTERS[kind(form)] for name, form in self._forms.items() if form}

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
        del block  # pieces are bounded by their bytes
        every = self.columns()
        opened, self._waiting = self._waiting or self._open(), None
        forms = dict(self._forms)
        self._odd = [one for one in self._odd if one.name not in types]
        for name in types.keys() & forms.keys():
            forms[name] = self._decided(name, self._sample[name], types[name])
        wanted = every if names is None else list(names)
        undecided = Undecided([name for name in wanted if forms[name] is None], start)
        header, first = self._header, 0
        chunks = self._records.chunks(opened, _CHUNK)
        try:
            while True:
                with self._told(first, headed=header is None):
                    chunk = next(chunks, b"")
                if not chunk:
                    break
                if not chunk.endswith((b"\n", b"\r")) and is_left(self.name, first, self.leave):
                    break
                table, bad = self._passed(chunk, forms, types, undecided, first), dict[int, str]()
                if table is None:
                    table, bad = self._rows(chunk, header, forms, types, wanted, first)
                header, first = every, first + len(table)
                undecided.learn(table)
                yield Piece(table, fraction=opened.fraction, bad=bad)
        finally:
            opened.close()

    def _rows(
        self,
        text: bytes,
        header: list[str] | None,
        forms: dict[str, str | None],
        types: Mapping[str, str],
        names: list[str],
        first: int,
    ) -> tuple[Table, dict[int, str]]:
        """Parse rows as a table; with ``skip``, rows that cannot be parsed have no values.

        They are found by parsing the halves of a text that cannot be parsed.
        """
        try:
            with self._told(first, headed=header is None):
                return self._table(self._typed(text, header, forms, names), forms, types, first), {}
        except SourceError as error:
            if not self._skip:
                raise
            wrong = str(error)
        if header is None:
            rows = text[self._records.first(text) :]
            return self._rows(rows, self.columns(), forms, types, names, first)
        cut = self._records.end(text[: len(text) // 2]) or self._records.first(text)
        if cut == len(text):
            return Table({}, 1), {0: wrong}
        upper, bad = self._rows(text[:cut], header, forms, types, names, first)
        first += len(upper)
        lower, more = self._rows(text[cut:], header, forms, types, names, first)
        return stacked((upper, lower)), bad | {len(upper) + i: why for i, why in more.items()}

    def _passed(
        self,
        chunk: bytes,
        forms: dict[str, str | None],
        types: Mapping[str, str],
        undecided: Undecided,
        first: int,
    ) -> Table | None:
        """The undecided columns of rows before ``start``; None where rows must be read in full."""
        if not undecided.passes(first):
            return None
        every = list(forms)
        names = undecided.names or every[:1]
        kinds = {n: pa.string() if n in names else pa.binary() for n in every}
        convert = self._convert(include_columns=names, column_types=kinds)
        try:
            parsed = self._parsed(chunk, every, convert)
            if not undecided.passes(first, parsed.num_rows):
                return None
            table = self._table(parsed.select(undecided.names), forms, types, first)
        except (ValueError, OnepassError):  # raised or skipped when the rows are parsed in full
            return None
        return Table(table.columns, parsed.num_rows)

    def _open(self) -> Bytes:
        with self._told():
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

    def _looked(self, opened: Bytes) -> list[str]:
        """Read the names of the columns, and decide their forms from the first bytes."""
        sample = opened.look(_SAMPLE)
        misread = Misread(self.name, headed=self._header is None)
        misread.check_beginning(sample, self._delimiter)
        if len(sample) == _SAMPLE:  # cut within a row
            sample = sample[: self._records.end(sample)]
            if not sample:
                raise self._records.too_long()
        elif self.leave is not None and (end := self._records.end(sample)):
            sample = sample[:end]
        first = sample[: self._records.first(sample)]
        # the line break: pyarrow finds no column in a single line without one
        names = self._parsed(first + b"\n", self._header, self._convert()).column_names
        if self._header == []:
            names = self._header = [f"x{j}" for j in range(len(names))]
        self._called = list(names)
        kinds = dict.fromkeys(names, pa.string())
        convert = self._convert(column_types=kinds)
        self._sample = self._parsed(sample, self._header, convert, ragged=self._skip)
        for name, column in zip(names, self._sample.columns, strict=True):
            self._forms[name] = self._decided(name, column)
        return list(names)

    def _decided(
        self, name: str, column: pa.ChunkedArray, kind: str | None = None, first: int = 0
    ) -> str | None:
        """Decide the form of a column of text, and note any oddity."""
        if not self._literals.given and column.null_count < len(column):
            zeros = compute.any(compute.match_substring_regex(column, "^0[0-9]"))
            for quick in ("number", ISO, ISO + ZONED):  # a faster way to the result of `decide`
                codes = quick == "number" and zeros.as_py()
                if kind in {None, self._literals.kind(quick)} and not codes:
                    with suppress(pa.ArrowInvalid):
                        column[:99].cast(self._types[quick])  # a cast that fails is slow
                        column.cast(self._types[quick])
                        return quick
        form, odd = self._literals.decide(
            name, column.to_pylist(), kind, source=self.name, first=first
        )
        self._odd += [] if odd is None else [odd]
        return form

    def _convert(self, **options: object) -> csv.ConvertOptions:
        """How text becomes values."""
        convert = csv.ConvertOptions(strings_can_be_null=True, **options)
        convert.null_values = [*convert.null_values, *self._na]
        return convert

    def _parsed(
        self,
        text: bytes,
        header: list[str] | None,
        convert: csv.ConvertOptions,
        *,
        ragged: bool = False,
    ) -> pa.Table:
        """Whole rows as an Arrow table; the first line names the columns if ``header`` does not.

        With ``ragged``, rows of another number of fields are left out.
        """
        if header is not None and not text.strip():
            return pa.table({})
        # one thread and one block: rows stay in order, and errors know theirs
        return csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(
                use_threads=False,
                block_size=len(text) + 1,
                column_names=header,
                autogenerate_column_names=header == [],
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=(lambda _: "skip") if ragged else None,
            ),
            convert_options=convert,
        )

    def _typed(
        self,
        text: bytes,
        header: list[str] | None,
        forms: Mapping[str, str | None],
        names: list[str],
    ) -> pa.Table:
        """Parse rows; all columns as text if pyarrow cannot convert a value."""
        words = dict.fromkeys(forms, pa.string())
        kinds = words | {n: self._types[f] for n, f in forms.items() if f in self._types}
        try:
            convert = self._convert(include_columns=names, column_types=kinds)
            return self._parsed(text, header, convert)
        except pa.ArrowInvalid as wrong:
            if "conversion error" not in str(wrong):
                raise
        convert = self._convert(include_columns=names, column_types=words)
        return self._parsed(text, header, convert)

    def _table(
        self,
        read: pa.Table,
        forms: dict[str, str | None],
        types: Mapping[str, str],
        first: int,
    ) -> Table:
        """Convert columns of text by their forms; decide forms that are not decided yet."""
        columns = {}
        for name, column in zip(read.column_names, read.columns, strict=True):
            if not pa.types.is_string(column.type) or forms[name] == "text":
                columns[name] = to_array(column.combine_chunks(), name, self.name)
                continue
            form = forms[name] or self._decided(name, column, types.get(name), first)
            values, forms[name] = column.to_pylist(), form
            columns[name], unfit = self._literals.array(values, form or "number")
            if unfit:
                place, value = self.located(first + unfit[0]), values[unfit[0]]
                because = "it is asked for" if name in types else "in the first rows"
                na = f"na=({value!r},) (--na {value!r}) if it means missing, "
                raise SourceError(
                    f"op.stream.read: {place}, column {name!r} must be "
                    f"{self._literals.word(form or '')}, as {because}, got {value!r}. "
                    f"{self._literals.remedy(name, value, na)}"
                )
        return Table(columns, read.num_rows)

    @contextmanager
    def _told(self, first: int = 0, *, headed: bool = True) -> Iterator[None]:
        """Raise errors from below as SourceErrors that name the row and the column."""
        try:
            yield
        except OnepassError:
            raise
        except (OSError, ValueError, *DAMAGED) as wrong:
            misread = Misread(self.name, self._called, first=first, headed=headed)
            raise misread.error(wrong) from wrong
