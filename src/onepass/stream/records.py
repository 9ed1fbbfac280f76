"""Records: where the rows of a delimited text end, so that it can be parsed piece by piece.

A line break ends a row unless it stands in a quoted field. A field is quoted if it begins with a
quotation mark; a doubled mark within it stands for itself; what follows the closing mark belongs
to the field as it is. This is how pyarrow reads, and RFC 4180 where it says anything.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Protocol

from onepass.errors import RowsRefusedWarning, SourceError

__all__ = ["Records", "is_left"]

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
