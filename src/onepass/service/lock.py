"""Lock and identity of the file of a durable learner.

One process at a time may open a learner's file. It locks a small file beside it, ``.lock``, which
identifies the process; the error of a second process names it. The operating system releases the
lock when the process ends for any reason. The lock file also holds the number of
acknowledged blocks: if the end of SQLite's log is damaged, SQLite takes the last blocks for
uncommitted and continues without them; this number detects that.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from onepass.errors import LockedError, StoreError

__all__ = ["FileIdentity", "FileLock", "unlocked"]

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class FileLock:
    """A lock on a file's name, until it is closed.

    Parameters
    ----------
    path : Path
        The file; the lock file is ``path`` with ``.lock`` appended.
    where : str
        The public call, for messages.

    Attributes
    ----------
    acknowledged : int
        The number of blocks that the last holder acknowledged.

    Raises
    ------
    LockedError
        If another process, or another object of this one, holds it.
    StoreError
        If the lock file cannot be created.
    """

    def __init__(self, path: Path, where: str) -> None:
        self.path = _beside(path)
        try:
            self._file: int | None = os.open(self.path, _FLAGS, 0o644)
        except OSError as error:
            raise StoreError(
                f"{where}: {path} must be in a folder where files can be created, got: "
                f"{error.strerror} ({self.path}). Create the folder, or choose another."
            ) from error
        try:
            _lock(self._file, path, where)
        except LockedError:
            self.close()
            raise
        self.acknowledged = _acknowledged(self._file)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with suppress(OSError):  # on a full disk the holder is not named
            os.ftruncate(self._file, 0)
            self._write(b"%020d\n%s\n" % (self.acknowledged, json.dumps(holder).encode()))

    def acknowledge(self, sequence: int) -> None:
        """Write the number of acknowledged blocks; a crash of the system may undo it."""
        with suppress(OSError):
            self._write(b"%020d" % sequence)

    def close(self) -> None:
        """Release the lock; in a forked process only this process's descriptor is closed."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _write(self, data: bytes) -> None:
        if self._file is not None:
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, data)


@contextmanager
def unlocked(path: Path, where: str) -> Iterator[int]:
    """Prevent processes from opening a file; a missing lock file is not created.

    Yields
    ------
    acknowledged : int
        The number of acknowledged blocks; 0 without a lock file.

    Raises
    ------
    LockedError
        If a process holds the file.
    """
    try:
        file = os.open(_beside(path), os.O_RDONLY)
    except OSError:  # a copy that was never opened
        yield 0
        return
    try:
        _lock(file, path, where)
        yield _acknowledged(file)
    finally:
        os.close(file)


def _beside(path: Path) -> Path:
    return Path(f"{os.path.realpath(path)}.lock")


def _lock(file: int, path: Path, where: str) -> None:
    try:
        free = lock_descriptor(file, blocking=False)
    except OSError:  # a file system without locks: SQLite's lock must suffice
        free = True
    if not free:
        raise LockedError(
            f"{where}: {path} must be held by one process at a time, but {_holder(file)} has it. "
            "Stop that process first, or choose another file."
        )


def _read(file: int) -> list[bytes]:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, 4096).split(b"\n")


def _acknowledged(file: int) -> int:
    with suppress(OSError, ValueError):
        return int(_read(file)[0])
    return 0


def _holder(file: int) -> str:
    """The process that holds the lock, as its lock file names it."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        holder = json.loads(_read(file)[1])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(holder["since"])))
        pid = int(holder["pid"])
        this = " (this one)" if pid == os.getpid() else ""
        return f"process {pid}{this} on {str(holder['host'])[:100]}, since {since},"
    return "another process"


class FileIdentity:
    """The device and inode behind a path, which reveal that a file was moved or replaced.

    Parameters
    ----------
    path : str
        An absolute path; a file that does not exist yet is identified when it first does.
    """

    _found: tuple[int, int] | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._found = self._read()

    def changed(self) -> bool:
        """Whether another file, or none, is at the path now."""
        found = self._read()
        if self._found is None:
            self._found = found
        return found != self._found

    def _read(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  at every commit
        except FileNotFoundError:
            return None
        except OSError:  # unknown: as it was
            return self._found
        return found.st_dev, found.st_ino
