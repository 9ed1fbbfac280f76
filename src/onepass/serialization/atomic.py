"""Atomic replacement of files.

The new file is written to a temporary folder in the same directory, flushed to disk, and renamed.
After a crash, a full disk or a power failure at any moment, the path contains the complete old or
new file. If a process is killed, its folder ``.onepass-….tmp`` may remain; the next write of the
same file removes it. A folder is locked while its process runs; locked folders are not removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onepass.errors import SourceError

if sys.platform != "win32":
    import fcntl

_LOCK = "lock"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a temporary file that replaces ``path`` when the block ends without an error.

    A symbolic link is followed: its target is replaced. The new file has the permissions of the old
    one and, if the system allows it, the owner.

    Parameters
    ----------
    path : path-like
        The file to replace; it need not exist, but its directory must.

    Yields
    ------
    temporary : Path
        A new, empty file to write within the block.

    Raises
    ------
    OSError
        If writing fails, or ``path`` is not a regular file. An existing file remains unchanged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory, "count.txt")
    ...     with atomic_write(path) as temporary:
    ...         _ = temporary.write_text("41")
    ...     int(path.read_text()) + 1
    42
    """
    target = Path(os.path.realpath(path))
    old = _status(target)
    with _folder(target) as folder:
        temporary = folder / f"new{target.suffix}"
        # created here, so that it has the default permissions of the process
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        owner = temporary.stat() if old is None else old
        yield temporary
        _copy_permissions(temporary, owner)
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    _sync_directory(target.parent)


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return inode and modification time, which identify a version of a file, or None.

    Parameters
    ----------
    path : path-like
        The file.
    """
    try:
        found = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert an OSError in the block to a SourceError.

    Parameters
    ----------
    path : path-like
        The file that the block writes.

    Raises
    ------
    SourceError
        If the file cannot be written.
    """
    try:
        yield
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(
            f"{os.fspath(path)} must be a file that can be written, got: "
            f"{error.strerror or error}. Check the folder, its permissions and the free "
            "disk space."
        ) from error


@contextmanager
def _folder(target: Path) -> Iterator[Path]:
    """Create a locked temporary folder next to a file; remove it at the end of the block."""
    prefix = f".onepass-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]}-"
    _remove_stale(target.parent, prefix)
    lock = None
    while lock is None:  # another process may remove the folder before it is locked
        folder = target.with_name(f"{prefix}{secrets.token_hex(8)}.tmp")
        folder.mkdir()
        lock = _locked(folder, os.O_RDWR | os.O_CREAT)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(parent: Path, prefix: str) -> None:
    """Remove folders that killed processes left behind."""
    if sys.platform == "win32":  # folders cannot be locked
        return
    with suppress(OSError):
        for folder in [entry for entry in parent.iterdir() if entry.name.startswith(prefix)]:
            with suppress(OSError):  # no permission, or removed by another process
                if not (folder / _LOCK).exists():
                    folder.rmdir()
                elif (lock := _locked(folder, os.O_RDWR)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)


def _locked(folder: Path, flags: int) -> int | None:
    """Lock a folder; None if another process has locked it, or it was removed."""
    try:
        lock = os.open(folder / _LOCK, flags, 0o600)
    except FileNotFoundError:
        return None
    if sys.platform == "win32":
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if flags & os.O_CREAT and error.errno not in {errno.EAGAIN, errno.EACCES}:
            return (
                lock  # file system without locks: no process can lock, and thus remove, the folder
            )
        os.close(lock)
        return None
    if os.fstat(lock).st_nlink:
        return lock
    os.close(lock)
    return None


def _status(target: Path) -> os.stat_result | None:
    """Return the status of a regular file; None if it is missing."""
    try:
        old = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "Not an ordinary file", str(target))
    return old


def _copy_permissions(temporary: Path, owner: os.stat_result) -> None:
    """Set permissions and, if allowed, the owner of a file."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(temporary, owner.st_uid, owner.st_gid)
    temporary.chmod(stat.S_IMODE(owner.st_mode))


def _sync_directory(directory: Path) -> None:
    """Flush a directory to disk, if the system supports it."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # raised by some network file systems
            raise
    finally:
        os.close(descriptor)
