"""Sources of the service, whose rows have positions, so that reading resumes after a restart.

They are not the sources of :mod:`onepass.stream`, which have no positions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from onepass.types import Array
from onepass.validation.table import Table

__all__ = ["Piece", "Source"]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that follow each other in one part of a source.

    Parameters
    ----------
    part : str
        The part's name: a stream, or a partition of a topic.
    position : str
        Behind all of it, what is refused or gone too: from there on it is read again.
    positions : list of str
        The same behind each row.
    X : Table, or list of dict
    y : ndarray of shape (n,)
    time : ndarray of shape (n,), optional
        When each row happened, where the source says so.
    refused : list of tuple of int and str
        Of each entry among them that is no row, how many rows come before it, and why.
    gone : tuple of int and str, optional
        How many entries before these were removed before they were read, and what to say of it;
        0 if nobody can know how many.
    behind : int
        Entries that wait behind these.
    """

    part: str
    position: str
    positions: list[str]
    X: Table | list[dict[str, Any]]
    y: Array
    time: Array | None = None
    refused: list[tuple[int, str]] = field(default_factory=list)
    gone: tuple[int, str] | None = None
    behind: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    def rows(self, first: int, end: int) -> dict[str, Any]:
        """Some of the rows, and the position behind them, as ``Durable.learn`` takes them."""
        some = slice(first, end)
        return {
            "X": self.X[some],
            "y": self.y[some],
            "time": None if self.time is None else self.time[some],
            "source": self.part,
            "position": self.positions[end - 1],
        }


class Source(Protocol):
    """Rows in an order that stays, each with a position: the form of every kind of source.

    Attributes
    ----------
    name : str
        What its positions are kept under; without passwords.
    has_time : bool
        Whether its rows say when they happened.
    """

    name: str
    has_time: bool

    def positions(self) -> dict[str, str]:
        """The parts, and the last position of each.

        Raises
        ------
        SourceError
            If it cannot be reached, or is not there.
        """

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[Piece]:
        """Rows as they come.

        Parameters
        ----------
        start : mapping of str to str
            Positions behind which to begin; a part that is not named is read from its beginning.
        seconds : float
            After so long without a row it ends, to be called again.

        Raises
        ------
        SourceError
            If it cannot be reached, is not there, or ends before a position.
        """

    def close(self) -> None:
        """Let it go."""
