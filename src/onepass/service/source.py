"""Interface of the service's sources: rows with positions, from which reading resumes.

The sources of :mod:`onepass.stream` have no positions, and do not implement this interface.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from onepass.types import Array
from onepass.validation.table import Table

__all__ = ["Source", "SourceBatch"]


@dataclass(frozen=True, eq=False)
class SourceBatch:
    """Consecutive rows of one part of a source.

    Parameters
    ----------
    part : str
        Name of the part, such as a stream or a partition of a topic.
    position : str
        Position after the batch, including its refused and removed entries.
    positions : list of str
        Position after each row.
    X : Table, or list of dict
    y : ndarray of shape (n,)
    time : ndarray of shape (n,), optional
        Time of each row, if the source has times.
    refused : list of tuple of int and str
        For each invalid entry, the number of rows before it, and the reason of the refusal.
    removed : tuple of int and str, optional
        Number of entries that were removed before they were read (0 if unknown), and the message
        about them.
    lag : int
        Number of unread entries after the batch.
    """

    part: str
    position: str
    positions: list[str]
    X: Table | list[dict[str, Any]]
    y: Array
    time: Array | None = None
    refused: list[tuple[int, str]] = field(default_factory=list)
    removed: tuple[int, str] | None = None
    lag: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    def rows(self, first: int, end: int) -> dict[str, Any]:
        """Return some rows and the position after them, as arguments of ``Durable.learn``."""
        span = slice(first, end)
        return {
            "X": self.X[span],
            "y": self.y[span],
            "time": None if self.time is None else self.time[span],
            "source": self.part,
            "position": self.positions[end - 1],
        }


class Source(Protocol):
    """Interface of a source: rows in a fixed order, each with a position.

    Attributes
    ----------
    name : str
        Name under which the positions are stored; must not contain passwords.
    has_time : bool
        Whether the rows have times.
    """

    name: str
    has_time: bool

    def positions(self) -> dict[str, str]:
        """Return the last position of each part, by name.

        Raises
        ------
        SourceError
            If the source cannot be reached or does not exist.
        """

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[SourceBatch]:
        """Yield batches of rows as they arrive.

        Parameters
        ----------
        start : mapping of str to str
            Positions after which to begin; a part without a position is read from its beginning.
        seconds : float
            Time without a row after which the iteration ends.

        Raises
        ------
        SourceError
            If the source cannot be reached, does not exist, or ends before a position.
        """

    def close(self) -> None:
        """Close the source."""
