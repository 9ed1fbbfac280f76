"""Undecided columns: those whose kind may hang on rows that are passed over.

A stream may begin in the middle of a source. Its columns have the kinds that they would have had
there. Most are certain beforehand, but a column may be empty in the first bytes of a text. So of
the rows that are passed over these columns are read, each until it has shown a value.
"""

from collections.abc import Iterable

from onepass.stream.task import LOOKED_AT
from onepass.validation.table import Table, is_missing

__all__ = ["Undecided"]


class Undecided:
    """Which columns must still be read of rows that are passed over.

    Parameters
    ----------
    names : iterable of str
        The columns that are not certain, in the source's order.
    start : int
        Rows before this one are passed over.

    Examples
    --------
    >>> undecided = Undecided(["gear", "when"], start=5000)
    >>> undecided.learn(Table.from_rows([{"gear": "low", "when": None}]))
    >>> undecided.names, undecided.passes(2000, 1000), undecided.passes(4500, 1000)
    (['when'], True, False)
    """

    def __init__(self, names: Iterable[str], start: int) -> None:
        self.names = list(names)
        self.start = start

    def passes(self, first: int, n: int = 1) -> bool:
        """Whether n rows, the first of which stands at ``first``, need not be given in full."""
        return first >= LOOKED_AT and first + n <= self.start

    def learn(self, table: Table) -> None:
        """Take note of the columns that have a value here."""
        if self.names:
            seen = table.columns
            self.names = [
                name for name in self.names if name not in seen or is_missing(seen[name]).all()
            ]
