"""Delimited text (CSV, TSV) as a source.

The text is cut into whole rows here, and pyarrow parses them from memory, all columns as text;
:class:`~onepass.stream.dtypes.ColumnTypes` converts it. If pyarrow read the file itself, it would
infer the type of a column from the first block, so that a column of integers would refuse 3.5 a
million rows later; and it would read many blocks ahead in a thread that calls back into Python,
which aborts at exit.

A line break ends a row unless it is in a quoted field. A field is quoted if it begins with a
quotation mark; a doubled mark within it is one mark; text after the closing mark belongs to the
field unchanged. This is how pyarrow reads, and agrees with RFC 4180 where that is defined.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv

from onepass.errors import RowsRefusedWarning, SourceError
from onepass.stream.files import Bytes, File
from onepass.stream.literals import SKIP_REMEDY
from onepass.stream.sources import BaseSource, Chunk, RawColumn

__all__ = ["Delimited", "Lines", "ParseErrors", "Records", "skip_unterminated"]


_WHERE = "op.stream.read"
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_OTHER_CODES = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
}
_DELIMITERS = (b";", b"\t", b",", b"|")
_SHELL = {"\t": "tab"}


class ParseErrors:
    """Creates the errors of one text.

    Parameters
    ----------
    source : str
        The name of the source.
    headed : bool
        Whether the first line holds the column names.
    """

    def __init__(self, source: str, *, headed: bool = True) -> None:
        self._source = source
        self._headed = headed

    def check_beginning(self, sample: bytes, delimiter: str) -> None:
        """Refuse first bytes that are not delimited text in UTF-8.

        Parameters
        ----------
        sample : bytes
            The first bytes.
        delimiter : str
            The field delimiter.

        Raises
        ------
        SourceError
            If the file is empty, has another encoding or format, or another delimiter.
        """
        if not sample.strip():
            raise self._error("must hold rows, got an empty file", "Check that it was written")
        for mark, code in _OTHER_CODES.items():
            if sample.startswith(mark):
                raise self._error(
                    f"must be delimited text in UTF-8, got {code}",
                    "Write it as CSV in UTF-8, or give the file the suffix of its format",
                )
        first = sample.lstrip().split(b"\n", 1)[0]
        others = [mark for mark in _DELIMITERS if mark in first]
        if others and delimiter.encode() not in first and b'"' not in first:
            got, wanted = others[0].decode(), delimiter
            raise self._error(
                f"must have the delimiter {wanted!r}, got {got!r} in its first line",
                f"Give delimiter={got!r} (--delimiter {_SHELL.get(got, repr(got))}); or, if "
                "this is a column name, quote it",
            )

    def error(self, error: Exception) -> SourceError:
        """The error for an exception of pyarrow."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in message:
            row = re.search(r"Row #(\d+)", message)
            return self.encoding(int(row[1]) - 2 if row else None)
        if "Empty CSV" in message:
            return self._error("must hold rows, got a header alone", "Check that it was written")
        if found := _RAGGED.search(message):  # it counts from 1, with the header
            return self.ragged(int(found[1]) - 2, int(found[2]), int(found[3]))
        return self._error(f"must be delimited text, got: {error}", "Check the file")

    def ragged(self, row: int, expected: int, got: int) -> SourceError:
        """The error of a row with another number of fields."""
        return self._error(
            f"row {row} (counting from 0) must have {expected} fields, as "
            f"{'in the first line' if self._headed else 'there are names'}, got {got}",
            "Fix the line, in which fields that hold the delimiter must be quoted, "
            f"or give {SKIP_REMEDY}",
        )

    def unclosed(self, row: int | None) -> SourceError:
        """The error of an unclosed quotation mark; ``row`` is None for the header."""
        place = "the first line" if row is None else f"row {row} (counting from 0)"
        return self._error(
            f"{place} must close its quotation marks, got an open one at the end of the text",
            "Add the missing mark, or double a mark that is part of a field",
        )

    def encoding(self, row: int | None, name: str | None = None) -> SourceError:
        """The error of text that is not UTF-8."""
        place = "the text" if row is None else f"row {row} (counting from 0)"
        place += "" if name is None else f", column {name!r}"
        return self._error(
            f"{place} must be UTF-8, got other bytes",
            f"Write it in UTF-8, as with: iconv -f latin1 -t utf-8; or give {SKIP_REMEDY}",
        )

    def _error(self, what: str, remedy: str) -> SourceError:
        joint = "" if what.startswith("must") else ":"
        return SourceError(f"{_WHERE}: {self._source}{joint} {what}. {remedy}.")


_LONGEST = 16 << 20  # bytes; a longer row is a mistake, such as an open quotation mark


class _Readable(Protocol):
    """An object that returns as many bytes as requested, except at its end."""

    def read(self, size: int) -> bytes:
        """The next bytes."""


def skip_unterminated(source: str, row: int, leave: int | None) -> bool:
    """Whether to leave an unterminated last row unread, with a warning.

    Parameters
    ----------
    source : str
        The source's name.
    row : int
        The number of its row.
    leave : int or None
        The first row that may be left unread; None for none.
    """
    if leave is None or row < leave:
        return False
    warnings.warn(
        f"{source}: row {row} (counting from 0) was left unread: it does not end with a line "
        "break, so it may be incomplete. If it is complete, add a line break.",
        RowsRefusedWarning,
        stacklevel=2,
    )
    return True


class Lines:
    """Cuts text into rows, one a line.

    Parameters
    ----------
    source : str
        The name of the source, for messages.
    """

    _remedy = "Write one object per line; to convert an array: jq -c '.[]'"

    def __init__(self, source: str) -> None:
        self._source = source

    def end(self, text: bytes) -> int:
        """The end of the last whole row of a text that begins with a row; 0 if there is none."""
        return text.rfind(b"\n") + 1

    def chunks(
        self, file: _Readable, first: int, size: int, *, whole: bool = True
    ) -> Iterator[tuple[bytes, bool]]:
        """Texts of whole rows, about ``first`` and then ``size`` bytes each, or one row.

        Parameters
        ----------
        file : file object
            It returns as many bytes as requested, except at its end.
        first, size : int
            Bytes of the first text, and of the following ones.
        whole : bool
            Whether the end of the file ends its last row, as a line break does.

        Yields
        ------
        text : bytes
        whole : bool
            False for an unterminated last row.

        Raises
        ------
        SourceError
            If a row is longer than 16 MiB.
        """
        left, wanted, more = b"", first, True
        while more:
            read = file.read(wanted)
            text, more = left + read, len(read) == wanted
            if whole and not more and text:
                text += b"\n"
            end = self.end(text)
            if end:
                yield text[:end], True
                left, wanted = text[end:], size
            elif len(text) > _LONGEST:
                raise self.too_long()
            else:  # double the size, so that a long row is scanned few times
                left, wanted = text, len(text)
        if left:
            yield left, False

    def too_long(self) -> SourceError:
        """The error of a row beyond the maximal length."""
        return SourceError(
            f"op.stream.read: {self._source} must have rows of some mebibytes at most, got one "
            f"that is longer. {self._remedy}."
        )


class Records(Lines):
    r"""Cuts delimited text into rows, in which quoted fields may hold line breaks.

    Parameters
    ----------
    delimiter : str
        The field delimiter, one character.
    source : str
        The name of the source, for messages.

    Examples
    --------
    >>> Records(",", "a.csv").end(b'1,"a\nb"\n2,"c\n')
    8
    """

    _remedy = "Look for a quotation mark that is not closed"

    def __init__(self, delimiter: str, source: str) -> None:
        super().__init__(source)
        self._openers = f'{delimiter}\r\n"'.encode()
        delimiter = re.escape(delimiter)
        stop = rf"{delimiter}\r\n"
        field = rf'(?:"(?:[^"]++|"")*+"[^{stop}]*+|[^"{stop}][^{stop}]*+|)'
        # possessive within a row, to avoid backtracking; not over rows: before 3.11.5, Python
        # includes the partial match of the row that failed
        pattern = rf"(?:{field}(?:{delimiter}{field})*+(?:\r\n|\n|\r))*"
        self._rows = re.compile(pattern.encode())
        self._row = re.compile(pattern.encode()[:-1] + b"?")

    def end(self, text: bytes) -> int:
        """The end of the last whole row of a text that begins with a row; 0 if there is none."""
        mark, end = text.rfind(b'"'), max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        # a last mark after another character does not open a field: it closes one or is text
        if mark < 0 or (0 < mark < end and text[mark - 1] not in self._openers):
            return end
        found = self._rows.match(text)
        return 0 if found is None else found.end()

    def first(self, text: bytes) -> int:
        """The end of the first row that is not blank; the length of the text if there is none."""
        end = 0
        while end < len(text) and not text[:end].strip():
            found = self._row.match(text, end)
            end = found.end() if found is not None and found.end() > end else len(text)
        return end

    def beginning(self, file: Bytes, size: int) -> tuple[bytes, int]:
        """The first bytes, at least ``size`` or all, and the end of their first row.

        Raises
        ------
        SourceError
            If that row is longer than 16 MiB.
        """
        while True:
            text = file.look(size)
            end = self.first(text)
            if end < len(text) or len(text) < size or text.endswith(b"\n"):
                return text, end
            if size > _LONGEST:
                raise self.too_long()
            size *= 2


_SAMPLE = 4 << 20  # bytes of the first chunk, from which types are inferred
_CHUNK = 256 << 10  # bytes parsed at a time
_DECLARED = re.compile(rb"sep=([!-~\t])(?:\r\n|\n|\r)")


class Delimited(BaseSource):
    """Rows of a delimited text file, or of a pipe.

    Parameters
    ----------
    source : File or Bytes
        A file can be read repeatedly, bytes once.
    name : str
        The name in messages.
    delimiter : str
        The field delimiter.
    header : sequence of str, optional
        The column names, if the file has no header; () for x0, x1, ….
    na : sequence of str
        Further spellings of a missing value.
    skip : bool
        Whether rows that cannot be parsed are skipped.
    leave : int or None
        The first row that is left unread if it is unterminated; None for none.
    declared : bool
        Whether a first line such as ``sep=;``, which Excel writes, sets the delimiter.

    Raises
    ------
    SourceError
        While reading: if the text is invalid.
    """

    def __init__(
        self,
        source: File | Bytes,
        name: str,
        *,
        delimiter: str = ",",
        header: Sequence[str] | None = None,
        na: Sequence[str] = (),
        skip: bool = False,
        leave: int | None = None,
        declared: bool = True,
    ) -> None:
        super().__init__(name, repeatable=isinstance(source, File))
        self._source = source
        self._delimiter = delimiter
        self._header = header
        self._na = list(na)
        self._skip, self.leave, self._declared = skip, leave, declared
        self._errors = ParseErrors(name, headed=header is None)
        self._names: list[str] | None = None
        self._waiting: Bytes | None = None  # a pipe whose header has been read

    def columns(self) -> list[str]:
        """The names in the first line, which may hold duplicates."""
        if self._names is None:
            opened = self._open()
            if self.repeatable:
                opened.close()
            else:
                self._waiting = opened
        return list(self._names or ())

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, some hundred kibibytes of text at a time; some mebibytes at first."""
        del block, start  # chunks are bounded by their bytes
        wanted = self.columns() if names is None else list(names)
        opened, self._waiting = self._waiting or self._open(), None
        records, first = Records(self._delimiter, self.name), 0
        try:
            pieces = records.chunks(opened, _SAMPLE, _CHUNK, whole=self.leave is None)
            for text, whole in pieces:
                if not whole and skip_unterminated(self.name, first, self.leave):
                    break
                if not whole and not records.end(text + b"\n"):
                    raise self._errors.unclosed(first)
                columns, n, bad = self._parsed(text, wanted, first)
                first += n
                yield Chunk(columns, n, "csv", fraction=opened.fraction, bad=bad)
        finally:
            opened.close()

    def _open(self) -> Bytes:
        """The text after the header, which has been read."""
        opened = self._source if isinstance(self._source, Bytes) else Bytes(self._source, self.name)
        try:
            mark = _DECLARED.match(opened.look(10))
            if mark is not None:
                opened.read(mark.end())
                if self._declared:
                    self._delimiter = mark[1].decode()
            records = Records(self._delimiter, self.name)
            sample, end = records.beginning(opened, _CHUNK)
            self._errors.check_beginning(sample, self._delimiter)
            if self._header is None:
                if not records.end(sample[:end] + b"\n"):
                    raise self._errors.unclosed(None)  # noqa: TRY301
                opened.read(end)
            if self._names is None:
                self._names = self._header_names(sample[:end])
        except BaseException:
            opened.close()
            raise
        return opened

    def _header_names(self, first: bytes) -> list[str]:
        """The column names by the first row."""
        if self._header:
            return list(self._header)
        try:
            # pyarrow finds no column in a single line without a line break
            names: list[str] = self._read(first + b"\n", self._header)[0].column_names
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._errors.error(error) from error
        return names if self._header is None else [f"x{j}" for j in range(len(names))]

    def _read(
        self, text: bytes, header: Sequence[str] | None, wanted: Sequence[str] = ()
    ) -> tuple[pa.Table, list[csv.InvalidRow]]:
        """Whole rows as an Arrow table of bytes, and the rows with other numbers of fields."""
        ragged: list[csv.InvalidRow] = []

        def handle(row: csv.InvalidRow) -> str:
            ragged.append(row)
            return "skip"

        convert = csv.ConvertOptions(
            strings_can_be_null=True, include_columns=wanted,
            column_types=dict.fromkeys(header or (), pa.binary()),
        )  # fmt: skip
        convert.null_values = [*convert.null_values, *self._na]
        table = csv.read_csv(  # one thread and one block keep rows in order, with numbers
            pa.BufferReader(text),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=header,
                autogenerate_column_names=header == (),
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=handle
            ),
            convert_options=convert,
        )  # fmt: skip
        return table, ragged

    def _parsed(
        self, text: bytes, wanted: Sequence[str], first: int
    ) -> tuple[dict[str, RawColumn], int, dict[int, str]]:
        """Rows as columns of text, their number, and the errors of rows to be skipped."""
        if not text.strip(b"\r\n"):
            return {}, 0, {}
        every = self._names or []
        table, ragged = self._read(text, every, wanted or every[:1])
        n = table.num_rows + len(ragged)
        bad: dict[int, str] = {}
        for row in ragged:
            at, fields = row.number - 1, (row.expected_columns, row.actual_columns)
            self._refuse(at, self._errors.ragged(first + at, *fields), bad)
        take = None
        if bad:  # bad rows have no values
            places = np.zeros(n, dtype=np.int64)
            good = np.setdiff1d(np.arange(n), list(bad))
            places[good] = np.arange(len(good))
            take = pa.array(places, mask=np.isin(np.arange(n), list(bad)))
        columns = {}
        for name in wanted:
            column = table[name].combine_chunks()
            column = column if take is None else column.take(take)
            columns[name] = self._decoded(column, name, first, bad)
        return columns, n, bad

    def _decoded(self, column: pa.Array, name: str, first: int, bad: dict[int, str]) -> pa.Array:
        """Bytes as text, which must be UTF-8."""
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            for i, value in enumerate(column.to_pylist()):
                try:
                    texts.append(None if value is None else value.decode())
                except UnicodeDecodeError:
                    texts.append(None)
                    self._refuse(i, self._errors.encoding(first + i, name), bad)
            return pa.array(texts, pa.string())

    def _refuse(self, i: int, error: SourceError, bad: dict[int, str]) -> None:
        """Raise the error of a row, or store it if such rows are skipped."""
        if not self._skip:
            raise error
        bad.setdefault(i, str(error))
