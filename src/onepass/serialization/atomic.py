"""Replacing: a file takes the place of another as a whole, or not at all.

The new file is written in a folder beside the old one, brought to the disk, and renamed. A crash, a
full disk or a power cut at any moment leaves the old file or the new one under the name, never a
mixture. A process that is killed may leave its folder ``.onepass-….tmp`` behind: whoever writes the
same file next removes it. A folder is locked as long as its owner lives, and no other is touched.
"""

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

__all__ = ["atomic_write", "file_identity", "write_errors"]

_LOCK = "lock"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new, empty file that takes the place of ``path`` when the block ends without an error.

    A symbolic link stays a link: the file that it points to is replaced. The new file has the
    permissions and, where the system allows it, the owner of the old.

    Parameters
    ----------
    path : path-like
        The file to be replaced; it need not exist, its directory must.

    Yields
    ------
    temporary : Path
        To be written in the block, in any way, by its name.

    Raises
    ------
    OSError
        If the system refuses, or ``path`` is no ordinary file. What was at ``path`` is unchanged.

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
        # created here for the permissions that the process gives to new files
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        like = temporary.stat() if old is None else old
        yield temporary
        _dress(temporary, like)
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    _sync_directory(target.parent)


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """What tells a file from the one that takes its place; None where there is none.

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
def write_errors(path: str | os.PathLike[str], where: str) -> Iterator[None]:
    """Say the system's refusal to write a file in the user's words.

    Parameters
    ----------
    path : path-like
        The file that is written in the block.
    where : str
        The public call, for the message.

    Raises
    ------
    SourceError
        If the system refuses.
    """
    try:
        yield
    except SourceError:
        raise
    except OSError as wrong:
        raise SourceError(
            f"{where}: {os.fspath(path)} must be a file that can be written, got: "
            f"{wrong.strerror or wrong}. Check the folder, its permissions and the space left."
        ) from wrong


@contextmanager
def _folder(target: Path) -> Iterator[Path]:
    """A folder beside a file for the next one, locked, and gone afterwards."""
    begin = f".onepass-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]}-"
    _clear(target.parent, begin)
    lock = None
    while lock is None:  # another may have cleared it away before it was locked
        folder = target.with_name(f"{begin}{secrets.token_hex(8)}.tmp")
        folder.mkdir()
        lock = _locked(folder, os.O_RDWR | os.O_CREAT)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _clear(parent: Path, begin: str) -> None:
    """Remove what the dead have left."""
    if sys.platform == "win32":  # it has no such locks
        return
    with suppress(OSError):
        for folder in [one for one in parent.iterdir() if one.name.startswith(begin)]:
            with suppress(OSError):  # not ours to remove, or gone
                if not (folder / _LOCK).exists():
                    folder.rmdir()
                elif (lock := _locked(folder, os.O_RDWR)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)


def _locked(folder: Path, flags: int) -> int | None:
    """The lock of a folder; None where its owner lives, or it is gone."""
    try:
        lock = os.open(folder / _LOCK, flags, 0o600)
    except FileNotFoundError:
        return None
    if sys.platform == "win32":
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refused:
        if flags & os.O_CREAT and refused.errno not in {errno.EAGAIN, errno.EACCES}:
            return lock  # a file system without locks: then nobody can take it for dead
        os.close(lock)
        return None
    if os.fstat(lock).st_nlink:
        return lock
    os.close(lock)
    return None


def _status(target: Path) -> os.stat_result | None:
    """What the system knows of the old file; None if there is none."""
    try:
        old = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "Not an ordinary file", str(target))
    return old


def _dress(temporary: Path, like: os.stat_result) -> None:
    """Give the file this owner, where allowed, and these permissions."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(temporary, like.st_uid, like.st_gid)
    temporary.chmod(stat.S_IMODE(like.st_mode))


def _sync_directory(directory: Path) -> None:
    """Bring the new name to the disk, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as failed:
        if failed.errno not in {errno.EINVAL, errno.ENOTSUP}:  # network file systems cannot
            raise
    finally:
        os.close(descriptor)
