"""Durable: a file takes the place of another as a whole, or not at all.

The new file is written beside the old one, brought to the disk, and renamed. A crash, a full disk
or a power cut at any moment leaves the old file or the new one under the name, never a mixture.
A process that is killed may leave a file ``.onepass-….tmp`` behind, which can be deleted.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onepass.errors import SourceError

__all__ = ["replacing", "writing"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
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
    ...     with replacing(path) as temporary:
    ...         _ = temporary.write_text("41")
    ...     int(path.read_text()) + 1
    42
    """
    target = Path(os.path.realpath(path))
    old = _status(target)
    temporary = target.with_name(f".onepass-{secrets.token_hex(8)}.tmp")
    # created here for the permissions that the process gives to new files
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        like = temporary.stat() if old is None else old
        yield temporary
        _dress(temporary, like)
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(target.parent)


@contextmanager
def writing(path: str | os.PathLike[str], where: str) -> Iterator[None]:
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
