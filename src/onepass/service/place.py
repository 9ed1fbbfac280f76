"""Place: whether a file that is open still stands where it was opened."""

import os
from pathlib import Path

__all__ = ["Place"]


class Place:
    """Where a file stands, and which one it is.

    Parameters
    ----------
    path : Path
        Of a file that is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.path.realpath(path)  # wherever the process goes
        self._file = self._there()

    def kept(self) -> bool:
        """Whether it stands there, as far as the system can say."""
        try:
            return self._there() == self._file
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def _there(self) -> tuple[int, int]:
        found = os.stat(self._path)  # noqa: PTH116  at every write
        return found.st_dev, found.st_ino
