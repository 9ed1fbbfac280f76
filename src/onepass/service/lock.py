"""Lock and identity of the file of a durable learner.

One process at a time may open a learner's file. The process locks a small file beside it,
``.lock``, and writes its id there, so that the error in a second process can name the first. The
operating system releases the lock when the process ends for any reason. The lock file also contains
the number of acknowledged blocks: if the end of SQLite's log is damaged, SQLite treats the last
blocks as uncommitted and continues without them; this number reveals it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from onepass.errors import LockedError, StoreError

if sys.platform != "win32":
    import resource

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


def file_limit() -> int:
    """Return the max number of open files of this process, after raising it as far as allowed."""
    if sys.platform == "win32":
        return 1 << 30
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


class FileLock:
    """Lock on the path of a file; released by ``close``.

    Parameters
    ----------
    path : Path
        File to lock; the lock file is ``path`` with ``.lock`` appended.

    Attributes
    ----------
    acknowledged : int
        Number of blocks that the previous holder acknowledged.

    Raises
    ------
    LockedError
        If another process, or another object in this process, holds the lock.
    StoreError
        If the lock file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = _beside(path)
        try:
            self._file: int | None = os.open(self.path, _FLAGS, 0o644)
        except OSError as error:
            raise StoreError(
                f"{path} must be in a folder where files can be created, got: {error.strerror} "
                f"({self.path}). Create the folder, or choose another folder.",
            ) from error
        try:
            _lock(self._file, path)
        except LockedError:
            self.close()
            raise
        self.acknowledged = _acknowledged(self._file)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with suppress(OSError):  # on a full disk the lock file does not name its holder
            os.ftruncate(self._file, 0)
            self._write(b"%020d\n%s\n" % (self.acknowledged, json.dumps(holder).encode()))

    def acknowledge(self, sequence: int) -> None:
        """Write the number of acknowledged blocks; a system crash may revert it to an older one."""
        with suppress(OSError):
            self._write(b"%020d" % sequence)

    def close(self) -> None:
        """Release the lock; a forked process closes only its own descriptor."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _write(self, data: bytes) -> None:
        if self._file is not None:
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, data)


@contextmanager
def unlocked(path: Path) -> Iterator[int]:
    """Prevent other processes from opening a file; do not create a missing lock file.

    Yields
    ------
    acknowledged : int
        Number of acknowledged blocks; 0 without a lock file.

    Raises
    ------
    LockedError
        If a process has the file open.
    """
    try:
        file = os.open(_beside(path), os.O_RDONLY)
    except OSError:  # a copy that was never opened
        yield 0
        return
    try:
        _lock(file, path)
        yield _acknowledged(file)
    finally:
        os.close(file)


def acknowledged_blocks(path: Path) -> int:
    """Return the number of blocks acknowledged so far, also of a file in use; 0 if unknown."""
    try:
        file = os.open(_beside(path), os.O_RDONLY)
    except OSError:
        return 0
    try:
        return _acknowledged(file)
    finally:
        os.close(file)


def _beside(path: Path) -> Path:
    return Path(f"{os.path.realpath(path)}.lock")


def _lock(file: int, path: Path) -> None:
    try:
        free = lock_descriptor(file, blocking=False)
    except OSError:  # a file system without locks: rely on SQLite's lock
        free = True
    if not free:
        raise LockedError(
            f"{path} must be open in one process at a time, but {_holder(file)} has it "
            "open. Stop that process first, or choose another file."
        )


def _read(file: int) -> list[bytes]:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, 4096).split(b"\n")


def _acknowledged(file: int) -> int:
    with suppress(OSError, ValueError):
        return int(_read(file)[0])
    return 0


def _holder(file: int) -> str:
    """Describe the process that holds the lock, as far as the lock file names it."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        holder = json.loads(_read(file)[1])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(holder["since"])))
        pid = int(holder["pid"])
        this = " (this one)" if pid == os.getpid() else ""
        return f"process {pid}{this} on {str(holder['host'])[:100]}, since {since},"
    return "another process"


class FileIdentity:
    """Device and inode of a path, which reveal that its file was moved or replaced.

    Parameters
    ----------
    path : str
        Absolute path; a file that does not exist yet is identified once it exists.
    """

    _identity: tuple[int, int] | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity = self._read()

    def changed(self) -> bool:
        """Return whether the file at the path was moved, removed or replaced."""
        identity = self._read()
        if self._identity is None:
            self._identity = identity
        return identity != self._identity

    def _read(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116  faster, and called at every commit
        except FileNotFoundError:
            return None
        except OSError:  # unknown: assume that nothing has changed
            return self._identity
        return status.st_dev, status.st_ino
