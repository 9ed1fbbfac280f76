"""What a source must give: pieces of any length, in order, from which blocks are cut."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onepass.validation.table import Table

__all__ = ["Piece", "Source"]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some consecutive rows as a source gives them.

    Parameters
    ----------
    table : Table
        The rows' columns.
    answers : Table, optional
        The rows' answers, where the source keeps them apart from its columns.
    flat : bool
        Whether those answers are one value a row, shape (n,), rather than (n, c).
    fraction : float, optional
        How much of the source has been read once this piece is, in [0, 1]; None if unknown.
    bad : dict of int to str
        Rows that are to be skipped because they cannot be read, by their place in the piece, and
        the error of each. They are among the rows of ``table``.
    """

    table: Table
    answers: Table | None = None
    flat: bool = True
    fraction: float | None = None
    bad: Mapping[int, str] = field(default_factory=dict)


class Source(Protocol):
    """Where rows come from. To add a kind of source is to write one class of this form."""

    @property
    def name(self) -> str:
        """What messages call it: a file's name, or what it is."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where it is known without reading them."""

    @property
    def repeatable(self) -> bool:
        """Whether it can be read again from its beginning."""

    @property
    def ahead(self) -> bool:
        """Whether blocks may be read before they are asked for, in another thread."""

    def columns(self) -> list[str] | None:
        """The names of its columns; None where only the rows themselves can tell."""

    def kinds(self) -> dict[str, str]:
        """The letters of columns whose kind is known even while they are empty.

        They are those of dtypes: f, O and M, but b for truth values, which are floats in tables.
        They stand in their order where ``columns`` does not know it.
        """

    def located(self, row: int) -> str:
        """Where a row stands, in words, by its number: the file and the row."""

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, in order.

        Parameters
        ----------
        names : sequence of str, optional
            The columns that are wanted; None for all.
        types : dict of str to str
            The kinds that the user asked for. A source may leave them to
            :class:`~onepass.stream.kinds.Kinds`, or read by them where its own values would not
            survive being read otherwise.
        block : int
            The rows that go into one block: a piece should not hold many times more.
        start : int
            Rows before this one will be passed over. They are given all the same, to be counted;
            but pieces of nothing else may lack every column that ``kinds`` tells of, once the
            first :data:`~onepass.stream.task.LOOKED_AT` rows have been given in full. A source
            may leave it out of account.
        """
