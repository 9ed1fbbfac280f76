"""Files at a path or an address, as fsspec opens them, and their bytes, decompressed if necessary.

The first bytes can be inspected before the rest is read, also of a pipe. Compression is detected by
these bytes, not by the name, so also in a pipe: gzip, bzip2, xz and Zstandard. A byte-order mark of
UTF-8 is removed.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import fsspec
import pyarrow as pa

from onepass.errors import MissingExtraError, SourceError

__all__ = ["Bytes", "File", "Readable", "is_address", "packed_as"]


_WHERE = "op.stream.read"
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*(://|::)", re.IGNORECASE)


class Readable(Protocol):
    """A file object, or another object that can be read sequentially."""

    def read(self, size: int, /) -> bytes | str:
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


class File:
    """A file, a folder or a pattern at a path or an address.

    Parameters
    ----------
    address : str
        A path, or an address as fsspec takes it.

    Attributes
    ----------
    name : str
        Its last part, without what stands behind a question mark, where keys may be.
    local : bool
        Whether it is a path of this machine.
    path : str
        The path in its file system.

    Raises
    ------
    MissingExtraError
        If the package that fsspec needs for such addresses is not installed.
    SourceError
        If nothing is there, or it may not be read.
    """

    def __init__(self, address: str, *, _found: tuple[Any, str] | None = None) -> None:
        self.local = not is_address(address)
        self.address = os.fspath(Path(address)) if self.local else address
        if self.local:
            self._system, self.path = fsspec.filesystem("file"), self.address
            self.name = Path(address).name
            return
        with self._reached():
            self._system, self.path = _found or fsspec.core.url_to_fs(address)
        self.name = _plain(self.path).rstrip("/").rpartition("/")[2] or _plain(address)

    @property
    def size(self) -> int:
        """How many bytes it has; 0 where nobody knows."""
        with self._reached():
            return int(self._system.size(self.path) or 0)

    def open(self) -> BinaryIO:
        """The file, opened to be read."""
        with self._reached():
            if self.local and not self.is_file():  # a pipe or a device, which fsspec would seek
                return Path(self.path).open("rb")
            opened: BinaryIO = self._system.open(self.path, "rb")
            return opened

    def is_file(self) -> bool:
        """Whether it is a file, no folder, pipe or device."""
        return bool(self._asked(self._system.isfile))

    def is_dir(self) -> bool:
        """Whether it is a folder; over HTTP, whether its address ends with a slash."""
        # fsspec would download a file over HTTP to look for links in it
        page = self.path.startswith(("http://", "https://")) and not self.path.endswith("/")
        return not page and bool(self._asked(self._system.isdir))

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._asked(self._system.exists))

    def within(self) -> list["File"]:
        """The files in a folder and the folders in it."""
        return [self._other(path) for path in self._asked(self._system.find)]

    def matching(self) -> list["File"]:
        """The files that the address means as a pattern."""
        found = [self._other(path) for path in self._asked(self._system.glob)]
        return [file for file in found if not file.is_dir()]

    def parts(self) -> tuple[str, ...]:
        """The names of folders and file on the way to it."""
        path = os.path.abspath(self.path) if self.local else _plain(self.path)  # noqa: PTH100
        return tuple(path.replace(os.sep, "/").split("/"))

    def __str__(self) -> str:
        return _plain(self.address)

    def _other(self, path: str) -> "File":
        head, mark, _ = self.address.partition("://")
        address = path if self.local else f"{head}{mark}{path.lstrip('/')}"
        return File(address, _found=(self._system, path))

    def _asked(self, question: Callable[[str], Any]) -> Any:
        with self._reached():
            return question(self.path)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise what goes wrong at an address as an error that names it."""
        try:
            yield
        except SourceError:
            raise
        except ImportError as missing:
            raise MissingExtraError(
                f"{_WHERE}: {self} needs a package of its own beside fsspec ({missing}). "
                "Install it, or fetch the file and give its path."
            ) from missing
        except FileNotFoundError as wrong:
            raise SourceError(
                f"{_WHERE}: {self} must be a file, got nothing at that address. Check it."
            ) from wrong
        except Exception as wrong:
            raise SourceError(
                f"{_WHERE}: {self} must be a file that can be read, got "
                f"{type(wrong).__name__}: {_plain(str(wrong))}. Check the address, and that you "
                "may read it."
            ) from wrong


def _plain(address: str) -> str:
    """An address that can be shown: without a password or a key."""
    hidden = re.sub(r"(://)[^/@\s]*@", r"\1", address)
    return re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", hidden)


_UTF8 = b"\xef\xbb\xbf"
_MARKS: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\x00": ("xz", lzma.open),
    b"\x28\xb5\x2f\xfd": (
        "Zstandard", lambda file: pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    ),
}  # fmt: skip


def packed_as(head: bytes) -> str | None:
    r"""The compression that some first bytes are of.

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
    return next((name for mark, (name, _) in _MARKS.items() if head.startswith(mark)), None)


class Bytes:
    """The bytes of a file, decompressed, whose beginning can be looked at.

    Parameters
    ----------
    source : File or file object
        A file object may be open in text or binary mode; it is left open.
    name : str, optional
        What messages call it.
    """

    def __init__(self, source: File | Readable, name: str = "") -> None:
        self.name = name or getattr(source, "name", "")
        self._file: BinaryIO | None = None
        self._laid: IO[bytes] | None = None
        self._size = 0
        if isinstance(source, File):
            self._size, source = source.size, source.open()
            self._file = source
        text = isinstance(source.read(0), str)
        self._inner: Any = _Ahead(_Encoded(source) if text else source)
        self.packing: str | None = None
        try:
            head = self._inner.look(max(map(len, _MARKS)))
            self.packing = packed_as(head)
            if self.packing is not None:
                unpack = next(unpack for name, unpack in _MARKS.values() if name == self.packing)
                self._inner = _Ahead(unpack(io.BufferedReader(self._inner)))
            if self.look(len(_UTF8)) == _UTF8:
                self.read(len(_UTF8))
        except BaseException:
            self.close()
            raise

    def look(self, n: int) -> bytes:
        """The next n bytes, or all there are; they will be read again."""
        with self._whole():
            ahead: bytes = self._inner.look(n)
            return ahead

    def read(self, size: int) -> bytes:
        """The next bytes: as many as asked, but at the end."""
        with self._whole():
            return _full(self._inner, size)

    def seekable(self) -> IO[bytes]:
        """All bytes in a file that can be sought; if necessary on the disk, until it is closed."""
        if self._file is not None and self.packing is None:
            self._file.seek(0)
            return self._file
        if self._laid is None:
            self._laid = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
            while part := self.read(1 << 20):
                self._laid.write(part)
        self._laid.seek(0)
        return self._laid

    @property
    def fraction(self) -> float | None:
        """How much of the file has been read, compressed as it is; None for a pipe."""
        if self._file is None or self._file.closed:
            return None
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    @property
    def closed(self) -> bool:
        """Whether the file that was opened here is closed; Arrow asks."""
        return self._file is not None and self._file.closed

    def close(self) -> None:
        """Close the files that were opened here; a file object that was given stays open."""
        for file in (self._file, self._laid):
            if file is not None:
                file.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Raise what a damaged file raises as a SourceError."""
        try:
            yield
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as wrong:
            packed = "must be whole" if self.packing is None else "must be a whole packed file"
            raise SourceError(
                f"{_WHERE}: {self.name} {packed}, got one that breaks off or is damaged ({wrong}). "
                "Copy or download it again."
            ) from wrong


class _Ahead(io.RawIOBase):
    """Bytes of which some have been looked at."""

    def __init__(self, rest: Any) -> None:
        self._ahead = b""
        self._rest = rest

    def readable(self) -> bool:
        """It is."""
        return True

    def look(self, n: int) -> bytes:
        """The next n bytes, which will be read again."""
        self._ahead += _full(self._rest, n - len(self._ahead))
        return self._ahead[:n]

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as many as asked or fewer."""
        if not self._ahead:
            return bytes(self._rest.read(size) or b"")
        end = len(self._ahead) if size < 0 else size
        given, self._ahead = self._ahead[:end], self._ahead[end:]
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
