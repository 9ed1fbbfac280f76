"""Bytes of a file, from wherever they come: a path, an address, a pipe; packed or not.

The first bytes can be looked at before all are read, which a pipe alone would not allow. What is
packed says so by its first bytes, whatever its name: gzip, bzip2, xz and Zstandard are unpacked.
"""

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from onepass.errors import need
from onepass.stream.remote import Remote

__all__ = ["DAMAGED", "Bytes", "packed_as"]

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
"""What a packing that is broken raises; bzip2 and Zstandard raise a plain OSError too."""

_MARKS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}


class Bytes:
    """A readable of bytes whose beginning can be looked at.

    Parameters
    ----------
    source : Path, Remote or file object
        A file object may be open in text or binary mode; it is left open. A file that begins as
        one that is packed is unpacked, whatever its name.
    """

    def __init__(self, source: Any) -> None:
        self._file: BinaryIO | None = None
        self._size = 0
        self.packing: str | None = None
        if isinstance(source, (Path, Remote)):
            self._size = source.stat().st_size if isinstance(source, Path) else source.size
            source = self._file = source.open("rb")
        try:
            self._inner = self._unpacked(source)
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

    @property
    def closed(self) -> bool:
        """Whether the file that was opened here is closed; Arrow asks."""
        return self._file is not None and self._file.closed

    def read(self, size: int) -> bytes:
        """The next bytes: as many as asked, but at the end."""
        return _full(self._inner, size)

    def close(self) -> None:
        """Close the file that was opened here; a file object that was given stays open."""
        if self._file is not None:
            self._file.close()

    def _unpacked(self, source: Any) -> Any:
        """The file as bytes, unpacked if it is packed."""
        inner = _Encoded(source) if isinstance(source.read(0), str) else source
        head = _full(inner, max(map(len, _MARKS)))
        again: Any = _Again(head, inner)
        self.packing = packed_as(head)
        if self.packing == "gzip":
            return gzip.GzipFile(fileobj=again)
        if self.packing == "bzip2":
            return bz2.BZ2File(io.BufferedReader(again))
        if self.packing == "xz":
            return lzma.LZMAFile(io.BufferedReader(again))
        if self.packing == "Zstandard":
            pa = need("pyarrow", extra="files", where="op.stream.read")
            return pa.CompressedInputStream(pa.PythonFile(again, mode="r"), "zstd")
        return again


def packed_as(head: bytes) -> str | None:
    r"""The packing that some first bytes are of.

    Parameters
    ----------
    head : bytes
        Six or more.

    Examples
    --------
    >>> packed_as(b"BZh91AY"), packed_as(b"a,b\n1,2\n")
    ('bzip2', None)
    >>> len(packed_as(b"\x1f\x8b\x08\x00\x00\x00"))
    4
    """
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)


class _Again(io.RawIOBase):
    """Bytes read before, then the rest."""

    def __init__(self, ahead: bytes, rest: Any) -> None:
        self._ahead = io.BytesIO(ahead)
        self._rest = rest

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as many as asked or fewer."""
        given: bytes = self._ahead.read(size) or self._rest.read(size) or b""
        return given

    def readinto(self, buffer: Any) -> int:
        """The next bytes, put where they are wanted."""
        given = self.read(len(buffer))
        buffer[: len(given)] = given
        return len(given)


class _Encoded:
    """Text as the bytes that it would be in UTF-8."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._left = b""

    def read(self, size: int) -> bytes:
        """The next bytes, as many as asked or fewer."""
        if not self._left:
            self._left = self._text.read(size).encode(errors="surrogatepass")
        given, self._left = self._left[:size], self._left[size:]
        return given


def _full(file: Any, n: int) -> bytes:
    """Read until n bytes are there or none are left: a pipe gives fewer at a time."""
    parts = []
    while n > 0 and (part := file.read(n)):
        parts.append(bytes(part))
        n -= len(part)
    return b"".join(parts)
