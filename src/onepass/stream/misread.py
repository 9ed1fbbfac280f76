"""Misread: what went wrong in a delimited text file, said in the user's words.

pyarrow says the column by its number and the row by its line; here they get their name and the
place that :class:`~onepass.stream.rows.Rows` counts by, and the message says what to do.
"""

import re
from collections.abc import Sequence

from onepass.errors import SourceError
from onepass.stream.bytestream import DAMAGED
from onepass.stream.literals import SKIP

__all__ = ["Misread"]

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
