"""Delimited text (CSV, TSV) as a source.

This module divides the text into whole rows. pyarrow parses them from memory, all columns as text,
and :class:`~onepass.stream.dtypes.ColumnTypes` converts the columns. If pyarrow read the file
itself, it would infer column types from the first block, so that a column of integers would reject
3.5 a million rows later. It would also read many blocks ahead in a thread that calls back into
Python, which aborts at exit.

A line break ends a row unless it is in a quoted field. A field is quoted if it begins with a
quotation mark; a doubled mark within the field is one mark; text after the closing mark belongs to
the field unchanged. pyarrow has the same rules, which agree with RFC 4180 where it defines them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv

from onepass.errors import EmptySourceError, OnepassError, RowsRefusedWarning, SourceError
from onepass.stream.files import Bytes, File
from onepass.stream.literals import SKIP_REMEDY
from onepass.stream.sources import BaseSource, Chunk, RawColumn

_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_OTHER_CODES = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PAR1": "Parquet",
}
_NUMBER = re.compile(rb"[+-]?\d+\.?\d*")
_DELIMITERS = (b";", b"\t", b",", b"|")
_SHELL = {"\t": "tab"}
PANDAS_MISSING = ("None", "<NA>")
"""Missing values of ``pandas.read_csv`` besides those of Arrow."""


class ParseErrors:
    """Factory of the errors for one text.

    Parameters
    ----------
    source : str
        The name of the source.
    headed : bool
        Whether the first line contains the column names.
    """

    def __init__(self, source: str, *, headed: bool = True) -> None:
        self._source = source
        self._headed = headed

    def check_beginning(self, sample: bytes, delimiter: str) -> None:
        """Raise if the first bytes are not delimited text in UTF-8.

        Parameters
        ----------
        sample : bytes
            The first bytes.
        delimiter : str
            The field delimiter.

        Raises
        ------
        SourceError
            If the file is empty, or has another encoding, format or delimiter.
        """
        if not sample.strip():
            raise EmptySourceError(
                f"{self._source} must contain rows, got an empty file. Check that it was written."
            )
        for mark, code in _OTHER_CODES.items():
            if sample.startswith(mark):
                raise self._error(
                    f"must be delimited text in UTF-8, got {code}",
                    "Write it as CSV in UTF-8, or rename the file with the suffix of its format",
                )
        first, *second = sample.strip().splitlines()[:2]
        others = [mark for mark in _DELIMITERS if mark in first]
        if others and delimiter.encode() not in first and b'"' not in first:
            got, wanted = others[0].decode(), delimiter
            raise self._error(
                f"must have the delimiter {wanted!r}, got {got!r} in its first line",
                f"Pass delimiter={got!r} (--delimiter {_SHELL.get(got, repr(got))}); or, if "
                "the line is one column name, quote it",
            )
        words = second[0].split() if second and not others else []
        spaced = 1 < len(words) == len(first.split()) and any(map(_NUMBER.fullmatch, words))
        if spaced and delimiter.encode() not in first:
            raise self._error(
                f"must have the delimiter {delimiter!r}, got values separated by spaces",
                "Pass delimiter=' ' (--delimiter ' ') if it is always one space; or convert the "
                "file, for example by: sed -E 's/^ +//; s/ +/,/g'",
            )

    def error(self, error: Exception) -> SourceError:
        """Convert an exception of pyarrow to an error of onepass."""
        message = str(error)
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in message:
            row = re.search(r"Row #(\d+)", message)
            return self.encoding(int(row[1]) - 2 if row else None)
        if "Empty CSV" in message:
            return self._error("must contain rows, got only a header", "Check that it was written")
        if found := _RAGGED.search(message):  # pyarrow counts from 1 and includes the header
            return self.ragged(int(found[1]) - 2, int(found[2]), int(found[3]))
        return self._error(f"must be delimited text, got: {error}", "Check the file")

    def ragged(self, row: int, expected: int, got: int) -> SourceError:
        """Return the error for a row with a wrong number of fields."""
        return self._error(
            f"row {row} (counting from 0) must have {expected} fields, as "
            f"{'in the first line' if self._headed else 'there are names'}, got {got}",
            f"Fix the line: quote fields that contain the delimiter. Or pass {SKIP_REMEDY}",
        )

    def unclosed(self, row: int | None) -> SourceError:
        """Return the error for an unclosed quotation mark; ``row`` is None for the header."""
        place = "the first line" if row is None else f"row {row} (counting from 0)"
        return self._error(
            f"{place} must close its quotation marks, got an open one at the end of the text",
            "Add the closing mark, or double a mark that is part of a field",
        )

    def encoding(self, row: int | None, name: str | None = None) -> SourceError:
        """Return the error for text that is not UTF-8."""
        place = "the text" if row is None else f"row {row} (counting from 0)"
        place += "" if name is None else f", column {name!r}"
        return self._error(
            f"{place} must be UTF-8, got other bytes",
            f"Convert it to UTF-8, for example by: iconv -f latin1 -t utf-8; or pass {SKIP_REMEDY}",
        )

    def _error(self, what: str, remedy: str) -> SourceError:
        joint = "" if what.startswith("must") else ":"
        return SourceError(f"{self._source}{joint} {what}", remedy=f"{remedy}.")


_LONGEST = 16 << 20  # bytes; a longer row is a mistake, such as an open quotation mark


def skip_unterminated(source: str, row: int, leave: int | None) -> bool:
    """Return whether to skip an unterminated last row; warn if so.

    Parameters
    ----------
    source : str
        The name of the source.
    row : int
        The number of the row.
    leave : int or None
        The first row that may be skipped; None to read all rows.
    """
    if leave is None or row < leave:
        return False
    warnings.warn(
        f"{source}: row {row} (counting from 0) was left unread: it does not end with a line "
        "break and may be incomplete. If it is complete, add a line break.",
        RowsRefusedWarning,
        stacklevel=2,
    )
    return True


class Lines:
    """Divides text into rows, one per line.

    Parameters
    ----------
    source : str
        The name of the source, for messages.
    """

    _remedy = "Write one object per line; jq -c '.[]' converts an array"

    def __init__(self, source: str) -> None:
        self._source = source

    def end(self, text: bytes) -> int:
        """Return the end of the last whole row in text that begins with a row, or 0."""
        return text.rfind(b"\n") + 1

    def chunks(
        self, file: Bytes, first: int, size: int, *, whole: bool = True
    ) -> Iterator[tuple[bytes, bool]]:
        """Yield whole rows as text of about ``first``, then ``size`` bytes, or a single longer row.

        Parameters
        ----------
        file : file object
            A file that returns as many bytes as requested, except at its end.
        first, size : int
            Number of bytes of the first text, and of each later text.
        whole : bool
            Whether the end of the file terminates its last row, like a line break.

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
            else:  # double the size, to scan a long row only a few times
                left, wanted = text, len(text)
        if left:
            yield left, False

    def too_long(self) -> SourceError:
        """Return the error for a row that exceeds the maximum length."""
        return SourceError(
            f"{self._source} must have rows of at most 16 MiB, got a longer one. {self._remedy}.",
        )


class Records(Lines):
    r"""Divides delimited text into rows, whose quoted fields may contain line breaks.

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

    _remedy = "Close the quotation mark, or double a mark that is part of a field"

    def __init__(self, delimiter: str, source: str) -> None:
        super().__init__(source)
        self._openers = f'{delimiter}\r\n"'.encode()
        delimiter = re.escape(delimiter)
        stop = rf"{delimiter}\r\n"
        field = rf'(?:"(?:[^"]++|"")*+"[^{stop}]*+|[^"{stop}][^{stop}]*+|)'
        # possessive within a row, to avoid backtracking, but not across rows: before 3.11.5,
        # Python includes the partial match of the row that failed
        pattern = rf"(?:{field}(?:{delimiter}{field})*+(?:\r\n|\n|\r))*"
        self._rows = re.compile(pattern.encode())
        self._row = re.compile(pattern.encode()[:-1] + b"?")

    def end(self, text: bytes) -> int:
        """Return the end of the last whole row in text that begins with a row, or 0."""
        mark, end = text.rfind(b'"'), max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        # a final mark after another character does not open a field: it closes one or is text
        if mark < 0 or (0 < mark < end and text[mark - 1] not in self._openers):
            return end
        found = self._rows.match(text)
        return 0 if found is None else found.end()

    def first(self, text: bytes) -> int:
        """Return the end of the first row that is not blank, or the length of the text."""
        end = 0
        while end < len(text) and not text[:end].strip():
            found = self._row.match(text, end)
            end = found.end() if found is not None and found.end() > end else len(text)
        return end

    def beginning(self, file: Bytes, size: int) -> tuple[bytes, int]:
        """Return at least ``size`` first bytes, or all bytes, and the end of their first row.

        Raises
        ------
        SourceError
            If the first row is longer than 16 MiB.
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
        The column names of a file without a header; () for x0, x1, ….
    na : sequence of str
        Further spellings of a missing value.
    skip : bool
        Whether rows that cannot be parsed are skipped.
    leave : int or None
        The first row that is skipped if it is unterminated; None to read all rows.
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
        self._waiting: Bytes | None = None  # a pipe of which only the header has been read

    def columns(self) -> list[str]:
        """Return the names in the first line, including duplicates."""
        if self._names is None:
            opened = self._open()
            if self.repeatable:
                opened.close()
            else:
                self._waiting = opened
        return list(self._names or ())

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in chunks of 256 KiB of text; the first chunk has 4 MiB."""
        del block, start  # chunks are bounded by bytes
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
        """Read the header, and return the text after it."""
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
        """Return the column names, read or counted from the first row."""
        if self._header:
            return list(self._header)
        try:
            # pyarrow reads no column from a single line without a line break
            names: list[str] = self._read(first + b"\n", self._header)[0].column_names
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._errors.error(error) from error
        return names if self._header is None else [f"x{j}" for j in range(len(names))]

    def _read(
        self, text: bytes, header: Sequence[str] | None, wanted: Sequence[str] = ()
    ) -> tuple[pa.Table, list[csv.InvalidRow]]:
        """Parse whole rows to a table of bytes; also return rows with a wrong number of fields."""
        ragged: list[csv.InvalidRow] = []

        def handle(row: csv.InvalidRow) -> str:
            ragged.append(row)
            return "skip"

        convert = csv.ConvertOptions(
            strings_can_be_null=True, include_columns=wanted,
            column_types=dict.fromkeys(header or (), pa.binary()),
        )  # fmt: skip
        convert.null_values = [*convert.null_values, *PANDAS_MISSING, *self._na]
        table = csv.read_csv(  # one thread and one block preserve the order and numbers of rows
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
    ) -> tuple[dict[str, RawColumn], int, dict[int, OnepassError]]:
        """Parse rows to columns of text; also return their number, and errors of rows to skip."""
        if not text.strip(b"\r\n"):
            return {}, 0, {}
        every = self._names or []
        table, ragged = self._read(text, every, wanted or every[:1])
        n = table.num_rows + len(ragged)
        bad: dict[int, OnepassError] = {}
        for row in ragged:
            at, fields = row.number - 1, (row.expected_columns, row.actual_columns)
            self._refuse(at, self._errors.ragged(first + at, *fields), bad)
        take = None
        if bad:  # bad rows become missing values
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

    def _decoded(
        self, column: pa.Array, name: str, first: int, bad: dict[int, OnepassError]
    ) -> pa.Array:
        """Decode a column of bytes as UTF-8."""
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

    def _refuse(self, i: int, error: SourceError, bad: dict[int, OnepassError]) -> None:
        """Raise the error of a row, or store it if such rows are skipped."""
        if not self._skip:
            raise error
        bad.setdefault(i, error)
