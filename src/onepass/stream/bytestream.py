"""Bytes of a text file, from wherever they come: a path, a pipe, gzip inside or not.

The first bytes can be looked at before all are read, which a pipe alone would not allow.
"""

import gzip
import io
import os
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["Bytes"]

_GZIP = b"\x1f\x8b"


class Bytes(io.RawIOBase):
    """A readable of bytes whose beginning can be looked at.

    Parameters
    ----------
    source : path or file object
        A file object may be open in text or binary mode; it is left open. A file that begins as
        gzip does is unpacked, whatever its name.
    """

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._file: BinaryIO | None = None
        self._size = 0
        if isinstance(source, Path):
            self._file = source.open("rb")
            self._size = os.fstat(self._file.fileno()).st_size
            inner: Any = self._file
        else:
            inner = _Encoded(source) if isinstance(source, io.TextIOBase) else source
        head = _full(inner, len(_GZIP))
        inner = _Again(head, inner)
        self._inner: Any = gzip.GzipFile(fileobj=inner) if head == _GZIP else inner

    def look(self, n: int) -> bytes:
        """The next n bytes, or all there are; they will be read again."""
        ahead = _full(self._inner, n)
        self._inner = _Again(ahead, self._inner)
        return ahead

    @property
    def fraction(self) -> float | None:
        """How much of the file has been read, packed as it is; None for a pipe."""
        if self._file is None or self._file.closed:
            return None
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    def readable(self) -> bool:
        """It can be read, which is all that it is for."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes: as many as asked, but at the end."""
        return _full(self._inner, size)

    def close(self) -> None:
        """Close the file that was opened here; a file object that was given stays open."""
        if self._file is not None:
            self._file.close()
        super().close()


class _Again:
    """Bytes read before, then the rest."""

    def __init__(self, ahead: bytes, rest: Any) -> None:
        self._ahead = io.BytesIO(ahead)
        self._rest = rest

    def read(self, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        before = self._ahead.read(size)
        if 0 <= size <= len(before):
            return before
        more = self._rest.read(-1 if size < 0 else size - len(before)) or b""
        return before + bytes(more)


class _Encoded:
    """Text as the bytes that it would be in UTF-8."""

    def __init__(self, text: io.TextIOBase) -> None:
        self._text = text
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            given, self._left = self._left + self._text.read().encode(), b""
            return given
        while len(self._left) < size:
            more = self._text.read(size - len(self._left))
            if not more:
                break
            self._left += more.encode()
        given, self._left = self._left[:size], self._left[size:]
        return given


def _full(file: Any, n: int | None) -> bytes:
    """Read until n bytes are there or none are left: a pipe gives fewer at a time."""
    if n is None or n < 0:
        return bytes(file.read() or b"")
    parts = []
    while n > 0:
        part = bytes(file.read(n) or b"")
        if not part:
            break
        parts.append(part)
        n -= len(part)
    return b"".join(parts)
