"""Locks and identity of the files of durable learners.

One process at a time may open a learner's file. It locks a small file beside it and writes into it
which process it is; a second process gets this in its error. The operating system releases the lock
when the process ends, however it ends. The lock file also holds the number of acknowledged blocks:
if the end of SQLite's log is damaged, SQLite takes the last blocks for uncommitted ones and
continues without them, which this number reveals.

A file that was moved or replaced while it is open is detected as well.
"""

import json
import os
import re
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onepass.errors import InUseError, StoreError

__all__ = ["Holding", "Place", "unheld"]


if sys.platform != "win32":
    import fcntl

_COUNT = re.compile(rb"\d{20}\n")
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Holding:
    """A lock on a file's name, until it is closed.

    Parameters
    ----------
    path : Path
        The file; the lock is on ``path`` with ``.lock`` at its end.
    where : str
        The public call, for messages.

    Attributes
    ----------
    acknowledged : int
        How many blocks were acknowledged by whoever had it before.

    Raises
    ------
    InUseError
        If another process, or another object of this one, holds it.
    StoreError
        If no file can be made there.
    """

    def __init__(self, path: Path, where: str) -> None:
        self.path = Path(f"{os.path.realpath(path)}.lock")
        try:
            file = os.open(self.path, _FLAGS, 0o644)
        except OSError as failed:
            raise StoreError(
                f"{where}: {path} must lie in a folder where files can be made, got: "
                f"{failed.strerror} ({self.path}). Make the folder, or choose another."
            ) from failed
        try:
            _hold_free(file, path, where)
        except InUseError:
            os.close(file)
            raise
        self._file = file
        self._end = weakref.finalize(self, os.close, file)
        self._end.atexit = False  # the system does it, when the last thread is gone
        self.acknowledged = _count(file)
        with suppress(OSError):  # a full disk: then it does not say who has it
            me = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            os.ftruncate(file, 0)
            _put(file, b"%020d\n%s\n" % (self.acknowledged, json.dumps(me).encode()))

    def note(self, sequence: int) -> None:
        """Note that so many blocks were acknowledged; a crash of the system may forget it."""
        with suppress(OSError):
            _put(self._file, b"%020d" % sequence)

    def close(self) -> None:
        """Let it go; in a process that was forked from the holder, it stays the holder's."""
        self._end()


@contextmanager
def unheld(path: Path, where: str) -> Iterator[int]:
    """Within this context nobody begins to hold a file; nothing is made where nobody ever did.

    Gives how many blocks were acknowledged, as far as that stands beside it.

    Parameters
    ----------
    path, where
        As for :class:`Holding`.

    Raises
    ------
    InUseError
        If a process holds it.
    """
    try:
        file = os.open(f"{os.path.realpath(path)}.lock", os.O_RDONLY)
    except OSError:  # a copy that was never opened
        yield 0
        return
    try:
        _hold_free(file, path, where)
        yield _count(file)
    finally:
        os.close(file)


def _hold_free(file: int, path: Path, where: str) -> None:
    if not _locked(file):
        raise InUseError(
            f"{where}: {path} must be held by one process at a time, but {_said(file)} has it. "
            "Stop that process first, or choose another file."
        )


def _locked(file: int) -> bool:
    """Whether the lock could be had; where the system has none, SQLite's own must do."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _put(file: int, data: bytes) -> None:
    if sys.platform != "win32":
        os.pwrite(file, data, 0)
    else:
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, data)


def _got(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, 4096)


def _count(file: int) -> int:
    with suppress(OSError):
        found = _COUNT.match(_got(file))
        return int(found[0]) if found else 0
    return 0


def _said(file: int) -> str:
    """Who holds it, as far as it has said so."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        told = json.loads(_got(file).split(b"\n")[1])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(told["since"])))
        pid = int(told["pid"])
        mine = " (this one)" if pid == os.getpid() else ""
        return f"process {pid}{mine} on {str(told['host'])[:100]}, since {since},"
    return "another process"


_GONE, _UNKNOWN = (-1, -1), (-2, -2)


class Place:
    """Where a file stands, and which one it is.

    Parameters
    ----------
    path : Path
        Of a file that is there.
    where : str
        The public call, for messages.
    """

    def __init__(self, path: Path, where: str) -> None:
        self._path, self._where = path, where
        self._real = os.path.realpath(path)  # wherever the process goes
        self._file = _there(self._real)
        self._log: tuple[int, int] | None = None  # until it is seen first

    def hold(self) -> None:
        """Refuse where it is not there, as far as the system can say.

        Raises
        ------
        StoreError
        """
        if _there(self._real) not in {self._file, _UNKNOWN}:
            raise StoreError(
                f"{self._where}: {self._path} must stay where it is, but it was moved or removed, "
                "or another stands there. Nothing more is written: put it back, with its -wal if "
                "there is one, and open it again."
            )

    def hold_log(self) -> None:
        """The same of SQLite's log, in which the last rows stand.

        Raises
        ------
        StoreError
        """
        found = _there(f"{self._real}-wal")
        if self._log not in {None, found} and found != _UNKNOWN:
            raise StoreError(
                f"{self._where}: {self._path}-wal must stay where it is, but it was moved or "
                "removed. Nothing more is written: stop this process by SIGTERM or close, which "
                "saves all that was learned, and open it again."
            )
        self._log = found if found not in {_GONE, _UNKNOWN} else self._log


def _there(path: str) -> tuple[int, int]:
    """Which file stands there, as far as the system can say."""
    try:
        found = os.stat(path)  # noqa: PTH116  at every write
    except FileNotFoundError:
        return _GONE
    except OSError:
        return _UNKNOWN
    return found.st_dev, found.st_ino
