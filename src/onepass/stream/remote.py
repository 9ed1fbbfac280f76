"""Remote: files at an address, such as ``s3://bucket/a.parquet`` or ``https://host/a.csv.gz``.

fsspec knows the kinds of addresses; each brings a package of its own where it needs one.
"""

import re
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from onepass.errors import MissingExtraError, SourceError, need

__all__ = ["Remote", "is_address"]

_WHERE = "op.stream.read"
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*(://|::)", re.IGNORECASE)
_Found = TypeVar("_Found")


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

    def __init__(self, address: str, *, _found: tuple[Any, str] | None = None) -> None:
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


def _located(address: str) -> tuple[Any, str]:
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
