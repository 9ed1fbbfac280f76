"""Place: whether a file that is open still stands where it was opened."""

import os
from pathlib import Path

from onepass.errors import StoreError

__all__ = ["Place"]

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
