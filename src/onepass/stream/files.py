"""Bytes of a file from a path, a URL or a pipe, decompressed if necessary.

The first bytes can be inspected before the rest is read, also of a pipe. Compression is detected by
these bytes, not by the name: gzip, bzip2, xz and Zstandard. URLs such as ``s3://bucket/a.parquet``
and ``https://host/a.csv.gz`` are opened by fsspec, which needs a further package for some schemes.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

import pyarrow as pa

from onepass.errors import MissingExtraError, SourceError, need

if TYPE_CHECKING:
    import fsspec

__all__ = ["DAMAGED", "Bytes", "Readable", "Remote", "is_address", "packed_as"]


_WHERE = "op.stream.read"
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*(://|::)", re.IGNORECASE)
_Found = TypeVar("_Found")
_Given_co = TypeVar("_Given_co", covariant=True)


class Readable(Protocol[_Given_co]):
    """A file object, or another object that can be read sequentially."""

    def read(self, size: int, /) -> _Given_co:
        """Return at most ``size`` bytes or characters; none at the end."""


def is_address(text: str) -> bool:
    r"""Whether a text is an address and no path.

    Parameters
    ----------
    text : str
        What the user gave.

    Examples
    --------
    >>> is_address("s3://bucket/a.csv"), is_address("C:\a.csv"), is_address("a.csv")
    (True, False, False)
    >>> sum(map(is_address, ["zip://a.csv::b.zip", "https://host/a.csv?key=1"]))
    2
    """
    return _ADDRESS.match(text) is not None


class Remote:
    """A file at an address.

    Parameters
    ----------
    address : str
        As fsspec takes it.

    Attributes
    ----------
    name : str
        Its last part, without what stands behind a question mark, where keys may be.

    Raises
    ------
    MissingExtraError
        If fsspec, or the package that it needs for such addresses, is not installed.
    SourceError
        If nothing is there, or it may not be read.
    """

    def __init__(
        self, address: str, *, _found: "tuple[fsspec.AbstractFileSystem, str] | None" = None
    ) -> None:
        self.address = address
        self._fs, self._path = _found or _told(address, lambda: _located(address))
        self.name = _plain(self._path).rstrip("/").rpartition("/")[2] or _plain(address)

    @property
    def size(self) -> int:
        """How many bytes it has; 0 where nobody knows."""
        return int(_told(self.address, lambda: self._fs.size(self._path)) or 0)

    def open(self, mode: str = "rb") -> BinaryIO:
        """The file, opened to be read."""
        opened: BinaryIO = _told(self.address, lambda: self._fs.open(self._path, mode))
        return opened

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return bool(_told(self.address, lambda: self._fs.isdir(self._path)))

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(_told(self.address, lambda: self._fs.exists(self._path)))

    def within(self) -> list["Remote"]:
        """The files in a folder and the folders in it."""
        return self._those(_told(self.address, lambda: self._fs.find(self._path)))

    def matching(self) -> list["Remote"]:
        """The files that the address means as a pattern."""
        paths = _told(self.address, lambda: self._fs.glob(self._path))
        return [one for one in self._those(paths) if not one.is_dir()]

    def parts(self) -> tuple[str, ...]:
        """The names of folders and file on the way to it."""
        return tuple(_plain(self._path).split("/"))

    def __str__(self) -> str:
        return _plain(self.address)

    def _those(self, paths: list[str]) -> list["Remote"]:
        head = self.address.partition("://")[0]
        return [Remote(f"{head}://{path.lstrip('/')}", _found=(self._fs, path)) for path in paths]


def _located(address: str) -> "tuple[fsspec.AbstractFileSystem, str]":
    fsspec = need("fsspec", extra="remote", where=f"{_WHERE}: {_plain(address)}")
    fs, path = fsspec.core.url_to_fs(address)
    return fs, path


def _told(address: str, doing: Callable[[], _Found]) -> _Found:
    """Do something at an address; say what goes wrong in the user's words."""
    try:
        return doing()
    except MissingExtraError:
        raise
    except ImportError as missing:
        raise MissingExtraError(
            f"{_WHERE}: {_plain(address)} needs a package of its own beside fsspec ({missing}). "
            "Install it, or fetch the file and give its path."
        ) from missing
    except FileNotFoundError as wrong:
        raise SourceError(
            f"{_WHERE}: {_plain(address)} must be a file, got nothing at that address. Check it."
        ) from wrong
    except Exception as wrong:
        raise SourceError(
            f"{_WHERE}: {_plain(address)} must be a file that can be read, got "
            f"{type(wrong).__name__}: {_plain(str(wrong))}. Check the address, and that you may "
            "read it."
        ) from wrong


def _plain(address: str) -> str:
    """An address that can be shown: without a password or a key."""
    hidden = re.sub(r"(://)[^/@\s]*@", r"\1", address)
    return re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", hidden)


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

    def __init__(self, source: Path | Remote | Readable[bytes | str]) -> None:
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
            again = pa.CompressedInputStream(pa.PythonFile(again, mode="r"), "zstd")
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

    def __init__(self, ahead: bytes, rest: Readable[bytes]) -> None:
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

    def __init__(self, text: Readable[str]) -> None:
        self._text = text
        self._left = b""

    def read(self, size: int) -> bytes:
        """The next bytes, as many as asked or fewer."""
        if not self._left:
            self._left = self._text.read(size).encode(errors="surrogatepass")
        given, self._left = self._left[:size], self._left[size:]
        return given


def _full(file: Readable[bytes], n: int) -> bytes:
    """Read until n bytes are there or none are left: a pipe gives fewer at a time."""
    parts = []
    while n > 0 and (part := file.read(n)):
        parts.append(bytes(part))
        n -= len(part)
    return b"".join(parts)
