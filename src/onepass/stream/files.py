"""Files at a path or an address, opened with fsspec, and their decompressed bytes.

The first bytes can be inspected before the rest is read, even from a pipe. Compression (gzip,
bzip2, xz, Zstandard, a zip archive of one file) is detected from these bytes, not from the name. A
UTF-8 byte-order mark is removed.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import fsspec
import pyarrow as pa

from onepass.errors import MissingExtraError, SourceError

_VERSION = ("size", "mtime", "created", "LastModified", "last_modified", "updated", "ETag", "etag")
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*(://|::)", re.IGNORECASE)


class Readable(Protocol):
    """A file object, or another object that can be read sequentially."""

    def read(self, size: int, /) -> bytes | str:
        """Return at most ``size`` bytes or characters; an empty object at the end."""


def is_url(text: str) -> bool:
    r"""Return whether a text is an address rather than a path.

    Parameters
    ----------
    text : str
        The source given by the user.

    Examples
    --------
    >>> is_url("s3://bucket/a.csv"), is_url("C:\a.csv"), is_url("a.csv")
    (True, False, False)
    >>> sum(map(is_url, ["zip://a.csv::b.zip", "https://host/a.csv?key=1"]))
    2
    """
    return _ADDRESS.match(text) is not None


class File:
    """A file, a folder or a pattern at a path or an address.

    Parameters
    ----------
    address : str
        A path, or an address in the syntax of fsspec.

    Attributes
    ----------
    name : str
        The last part of the address, without a query string.
    local : bool
        Whether the address is a path of this machine.
    path : str
        The path within its file system.

    Raises
    ------
    MissingExtraError
        If a package that fsspec requires for such addresses is not installed.
    SourceError
        If the file does not exist or cannot be read.
    """

    def __init__(self, address: str, *, _found: tuple[Any, str] | None = None) -> None:
        self.local = not is_url(address)
        self.address = os.fspath(Path(address)) if self.local else address
        if self.local:
            self._system, self.path = fsspec.filesystem("file"), self.address
            self.name = Path(address).name
            return
        with self._address_errors():
            self._system, self.path = _found or fsspec.core.url_to_fs(address)
        self.name = _without_secrets(self.path).rstrip("/").rpartition("/")[2] or _without_secrets(
            address
        )

    @property
    def size(self) -> int:
        """Number of bytes; 0 if unknown."""
        with self._address_errors():
            return int(self._system.size(self.path) or 0)

    @property
    def version(self) -> str:
        """Size, time of change and entity tag of the file, those of them that its store has."""
        self._system.invalidate_cache(self.path)
        found = self._call(self._system.info)
        return " ".join(f"{name}={found[name]}" for name in _VERSION if found.get(name) is not None)

    def open(self) -> BinaryIO:
        """Open the file for reading."""
        with self._address_errors():
            if self.local and not self.is_file():  # a pipe or device: fsspec would seek
                return Path(self.path).open("rb")
            opened: BinaryIO = self._system.open(self.path, "rb")
            return opened

    def is_file(self) -> bool:
        """Return whether the address is a regular file, not a folder, pipe or device."""
        return bool(self._call(self._system.isfile))

    def is_dir(self) -> bool:
        """Return whether the address is a folder; over HTTP, whether it ends with a slash."""
        # over HTTP, fsspec would download a file to search it for links
        page = self.path.startswith(("http://", "https://")) and not self.path.endswith("/")
        return not page and bool(self._call(self._system.isdir))

    def exists(self) -> bool:
        """Return whether the file or folder exists."""
        return bool(self._call(self._system.exists))

    def within(self) -> list[File]:
        """Return the files in a folder and its subfolders."""
        return [self._other(path) for path in self._call(self._system.find)]

    def matching(self) -> list[File]:
        """Return the files that match the address as a pattern."""
        found = [self._other(path) for path in self._call(self._system.glob)]
        return [file for file in found if not file.is_dir()]

    def parts(self) -> tuple[str, ...]:
        """Return the parts of the path: folders and file name."""
        path = os.path.abspath(self.path) if self.local else _without_secrets(self.path)  # noqa: PTH100
        return tuple(path.replace(os.sep, "/").split("/"))

    def __str__(self) -> str:
        return _without_secrets(self.address)

    def _other(self, path: str) -> File:
        head, mark, _ = self.address.partition("://")
        address = path if self.local else f"{head}{mark}{path.lstrip('/')}"
        return File(address, _found=(self._system, path))

    def _call(self, method: Callable[[str], Any]) -> Any:
        with self._address_errors():
            return method(self.path)

    @contextmanager
    def _address_errors(self) -> Iterator[None]:
        """Convert exceptions to errors that name the address."""
        try:
            yield
        except SourceError:
            raise
        except ImportError as missing:
            raise MissingExtraError(
                f"{self} requires a package besides fsspec ({missing}). Install it, or "
                "download the file and pass its path.",
            ) from missing
        except Exception as error:
            raise SourceError(
                f"{self} must be a readable file, got {type(error).__name__}: "
                f"{_without_secrets(str(error))}. Check the address and its permissions.",
            ) from error


def _without_secrets(address: str) -> str:
    """Remove passwords and query strings from an address, for messages."""
    hidden = re.sub(r"(://)[^/@\s]*@", r"\1", address)
    return re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", hidden)


_UTF8 = b"\xef\xbb\xbf"
_UNPACK: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda file: pa.CompressedInputStream(
        pa.PythonFile(file, mode="r"), "zstd"
    ),
}
"""First bytes of compressed files, and functions that decompress them."""


class Bytes:
    """The decompressed bytes of a file, whose beginning can be inspected.

    Parameters
    ----------
    source : File or file object
        A file object may be open in text or binary mode; it is not closed.
    name : str, optional
        The name in messages.
    """

    def __init__(self, source: File | Readable, name: str = "") -> None:
        self.name = name or getattr(source, "name", "")
        self._file: BinaryIO | None = None
        self._spooled: IO[bytes] | None = None
        self._archive: IO[bytes] | None = None  # the bytes of a zip archive from a pipe
        self._size = 0
        if isinstance(source, File):
            self._size, source = source.size, source.open()
            self._file = source
        text = isinstance(source.read(0), str)
        self._inner: Any = _Buffered(_Encoded(source) if text else source)
        self._packed = False
        try:
            head = self.look(max(map(len, _UNPACK)))
            if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
                archive, self._packed = self.seekable(), True
                self._archive, self._spooled = self._spooled, None
                with self._damage_errors():
                    self._inner = _Buffered(self._member(archive))
            for mark, unpack in _UNPACK.items():
                if head.startswith(mark):
                    self._packed = True
                    self._inner = _Buffered(unpack(io.BufferedReader(self._inner)))
            if self.look(len(_UTF8)) == _UTF8:
                self.read(len(_UTF8))
        except BaseException:
            self.close()
            raise

    def _member(self, file: IO[bytes]) -> IO[bytes]:
        """Open the only file in a zip archive."""
        archive = zipfile.ZipFile(file)
        names = [
            name for name in archive.namelist() if not name.endswith("/") and "__MACOSX" not in name
        ]
        if len(names) != 1:
            raise SourceError(
                f"{self.name} must be a zip archive of one file, got {len(names)} files. Write the "
                "table as CSV, or pass zip://NAME::PATH for one file of the archive."
            )
        return archive.open(names[0])

    def look(self, n: int) -> bytes:
        """Return the next n bytes, or all remaining ones, without consuming them."""
        with self._damage_errors():
            prefetch: bytes = self._inner.look(n)
            return prefetch

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer at the end."""
        with self._damage_errors():
            return _read_full(self._inner, size)

    def seekable(self) -> IO[bytes]:
        """Return a seekable file of all bytes; a temporary one, if necessary, until ``close``."""
        if self._file is not None and not self._packed:
            self._file.seek(0)
            return self._file
        if self._spooled is None:
            self._spooled = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
            while part := self.read(1 << 20):
                self._spooled.write(part)
        self._spooled.seek(0)
        return self._spooled

    @property
    def fraction(self) -> float | None:
        """Fraction of the (compressed) file that has been read; None for a pipe."""
        if self._file is None or self._file.closed:
            return None
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    @property
    def closed(self) -> bool:
        """Whether the file opened here is closed; Arrow uses this attribute."""
        return self._file is not None and self._file.closed

    def close(self) -> None:
        """Close the files opened here; a given file object stays open."""
        for file in (self._file, self._spooled, self._archive):
            if file is not None:
                file.close()

    @contextmanager
    def _damage_errors(self) -> Iterator[None]:
        """Convert exceptions of a damaged file to SourceError."""
        try:
            yield
        except SourceError:
            raise
        except Exception as error:  # those of decompression and of file systems have no base class
            packed = "must be a complete compressed file" if self._packed else "must be complete"
            raise SourceError(
                f"{self.name} {packed}, got a truncated or damaged one "
                f"({_without_secrets(str(error))}). Copy or download the file again.",
            ) from error


class _Buffered(io.RawIOBase):
    """A file of which some bytes have been read ahead."""

    def __init__(self, rest: Any) -> None:
        self._buffer = b""
        self._rest = rest

    def readable(self) -> bool:
        """True."""
        return True

    def look(self, n: int) -> bytes:
        """Return the next n bytes without consuming them."""
        self._buffer += _read_full(self._rest, n - len(self._buffer))
        return self._buffer[:n]

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most ``size``."""
        if not self._buffer:
            return bytes(self._rest.read(size) or b"")
        end = len(self._buffer) if size < 0 else size
        result, self._buffer = self._buffer[:end], self._buffer[end:]
        return result

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer."""
        result = self.read(len(buffer))
        buffer[: len(result)] = result
        return len(result)


class _Encoded:
    """A text file, encoded in UTF-8."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._left = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``."""
        if not self._left:
            self._left = self._text.read(size).encode(errors="surrogatepass")
        result, self._left = self._left[:size], self._left[size:]
        return result


def _read_full(file: Any, n: int) -> bytes:
    """Read n bytes, or up to the end; a pipe may return fewer per call."""
    parts = []
    while n > 0 and (part := file.read(n)):
        parts.append(bytes(part))
        n -= len(part)
    return b"".join(parts)
