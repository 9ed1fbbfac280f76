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


class Bytes:
    """A readable of bytes whose beginning can be looked at.

    Parameters
    ----------
    source : path or file object
        A file object may be open in text or binary mode; it is left open. A file that begins as
        gzip does is unpacked, whatever its name.
    """

    def __init__(self, source: Any) -> None:
        self._file: BinaryIO | None = None
        self._size = 0
        if isinstance(source, Path):
            source = self._file = source.open("rb")
            self._size = os.fstat(self._file.fileno()).st_size
        try:
            self._inner = _unpacked(source)
        except BaseException:
            self.close()
            raise

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

    def read(self, size: int) -> bytes:
        """The next bytes: as many as asked, but at the end."""
        return _full(self._inner, size)

    def close(self) -> None:
        """Close the file that was opened here; a file object that was given stays open."""
        if self._file is not None:
            self._file.close()


def _unpacked(source: Any) -> Any:
    """The file as bytes, out of gzip if it is packed."""
    inner = _Encoded(source) if isinstance(source.read(0), str) else source
    head = _full(inner, len(_GZIP))
    again: Any = _Again(head, inner)
    return gzip.GzipFile(fileobj=again) if head == _GZIP else again


class _Again:
    """Bytes read before, then the rest."""

    def __init__(self, ahead: bytes, rest: Any) -> None:
        self._ahead = io.BytesIO(ahead)
        self._rest = rest

    def read(self, size: int) -> bytes:
        """The next bytes, as many as asked or fewer."""
        return self._ahead.read(size) or self._rest.read(size) or b""


class _Encoded:
    """Text as the bytes that it would be in UTF-8."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._left = b""

    def read(self, size: int) -> bytes:
        """The next bytes, as many as asked or fewer."""
        if not self._left:
            self._left = self._text.read(size).encode()
        given, self._left = self._left[:size], self._left[size:]
        return given


def _full(file: Any, n: int) -> bytes:
    """Read until n bytes are there or none are left: a pipe gives fewer at a time."""
    parts = []
    while n > 0 and (part := file.read(n)):
        parts.append(bytes(part))
        n -= len(part)
    return b"".join(parts)
