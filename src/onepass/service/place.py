"""Place: whether a file that is open still stands where it was opened."""

import os
from pathlib import Path

from onepass.errors import StoreError

__all__ = ["Place"]


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
        self._file = self._there()

    def hold(self) -> None:
        """Refuse where it is not there, as far as the system can say.

        Raises
        ------
        StoreError
        """
        try:
            kept = self._there() == self._file
        except FileNotFoundError:
            kept = False
        except OSError:
            return
        if not kept:
            raise StoreError(
                f"{self._where}: {self._path} must stay where it is, but it was moved or removed, "
                "or another stands there. Nothing more is written: put it back, with its -wal if "
                "there is one, and open it again."
            )

    def _there(self) -> tuple[int, int]:
        found = os.stat(self._real)  # noqa: PTH116  at every write
        return found.st_dev, found.st_ino
