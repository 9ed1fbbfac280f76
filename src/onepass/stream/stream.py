"""Stream: rows from wherever they come, in blocks, in order, once or again and again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from onepass.errors import SourceError
from onepass.stream.blocks import Cutter
from onepass.stream.choice import Choice
from onepass.stream.kinds import Kinds
from onepass.stream.oddities import Oddity, told
from onepass.stream.pieces import Source
from onepass.stream.rows import Rows
from onepass.stream.task import LOOKED_AT, suggested
from onepass.validate import whole

__all__ = ["Stream"]


class Stream:
    """Typed blocks of rows, read as they are asked for.

    Streams are made by :func:`onepass.stream.read` and :func:`onepass.stream.dataset`. Each
    ``for rows in stream`` begins at the first row, where the source can be read again; a source
    that cannot (standard input, a generator) refuses the second time. Every block has exactly
    ``block`` rows but the last, which has fewer; it has none only where nothing but rows without
    an answer were left to be counted. Memory is bounded by the block.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    choice : Choice
        What its columns are for.
    block : int
        Rows a block.
    types : dict of str to str
        Kinds of columns that are fixed beforehand.
    n_rows : int, optional
        Rows in the source, where they are known better than the source knows them.
    task : {"regression", "classification"}, optional
        What the answers ask for, where it is known without looking at them.
    kinds : dict of str to str, optional
        Kinds of columns that may be there; ``types`` go before them.
    oddities : callable, optional
        Says, once the columns' names are known, which of them are not of one kind.

    Attributes
    ----------
    name : str
        The source's name, for tables and messages.
    target : str, list of str or None
        The column of answers, or several.
    block : int
        Rows a block.
    rows_read : int
        Source rows given so far in the iteration begun last, skipped ones included.
    fraction : float or None
        How much of the source has been read, in [0, 1]; None while unknown. A progress bar may
        ask at any time.

    Raises
    ------
    ParameterError
        If ``block`` is not a whole number >= 1.
    ColumnError
        If a column was named that the source has not, or has twice.
    SourceError
        If the source cannot be opened or read.
    """

    def __init__(
        self,
        source: Source,
        choice: Choice,
        *,
        block: int,
        types: Mapping[str, str],
        n_rows: int | None = None,
        task: str | None = None,
        kinds: Mapping[str, str] | None = None,
        oddities: Callable[[], Sequence[Oddity]] | None = None,
    ) -> None:
        self.name = source.name
        self.block = whole(block, "block", "op.stream", low=1)
        self.rows_read = 0
        self.fraction: float | None = None
        self._source = source
        self._choice = choice
        self._asked = dict(types)
        self._types = {**(kinds or {}), **types}
        self._oddities = oddities
        self._n_rows = source.n_rows if n_rows is None else n_rows
        self._task = task
        self._begun = False
        self._ahead: Iterator[Rows] | None = None  # blocks looked at, then the rest
        if source.repeatable:
            self._names()

    @property
    def target(self) -> str | list[str] | None:
        """The column of answers, or several; None where there are none or they have no name."""
        return self._choice.target

    @property
    def n_rows(self) -> int | None:
        """Rows in the source, those that will be skipped too; None if unknown without reading."""
        return self._n_rows

    @property
    def repeatable(self) -> bool:
        """Whether the stream can be read again from its beginning."""
        return self._source.repeatable

    @property
    def task(self) -> str | None:
        """What the answers ask for, "regression" or "classification"; None where there are none.

        It is known of a named data set. Otherwise the first rows are looked at, which will be
        given all the same: text, or nothing but 0 and 1, are labels (:mod:`onepass.stream.task`).
        """
        if self._task is None:
            answers = [rows.y for rows in self._looked() if rows.y is not None]
            self._task = suggested(answers) if answers else None
        return self._task

    def __repr__(self) -> str:
        rows = "rows unknown" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<Stream {self.name}: {rows}, target {self.target!r}, block {self.block}>"

    def __iter__(self) -> Iterator[Rows]:
        blocks, self._ahead = self._ahead or self._from_start(), None
        return self._counted(blocks)

    def _from_start(self) -> Iterator[Rows]:
        if self._begun and not self.repeatable:
            raise SourceError(
                f"op.stream: {self.name} can be read only once, and it was begun before. "
                "Write it to a file to read it again, or learn all in one pass."
            )
        self._begun = True
        return self._blocks()

    def _names(self) -> list[str] | None:
        names = self._source.columns()
        if names is None:
            return None
        read = self._choice.of(names, self._asked)
        if self._oddities is not None:
            odd, targets = self._oddities(), self._choice.targets
            told(odd, self.name, read=read, targets=targets, types=self._types)
            self._oddities = None  # once a stream
        return read

    def _looked(self) -> list[Rows]:
        """The first blocks. A source that can be read only once will give them again."""
        blocks, looked, rows = self._from_start(), [], 0
        for block in blocks:
            looked.append(block)
            rows += len(block)
            if rows >= LOOKED_AT:
                break
        if not self.repeatable:
            self._ahead = chain(looked, blocks)
        return looked

    def _blocks(self) -> Iterator[Rows]:
        columns = Kinds(self._types, self.name)
        answers = Kinds({}, self.name)
        cutter = Cutter(self.block)
        for piece in self._source.pieces(self._names(), self._types, self.block):
            table = columns.fit(piece.table, cutter.seen)
            told = None if piece.answers is None else answers.fit(piece.answers, cutter.seen)
            self.fraction = piece.fraction
            yield from cutter.add(self._choice.split(piece, table, told))
        self._check(cutter)
        self.fraction = 1.0
        yield from cutter.rest()

    def _counted(self, blocks: Iterator[Rows]) -> Iterator[Rows]:
        self.rows_read, self.fraction = 0, None
        for rows in blocks:
            self.rows_read += len(rows) + rows.skipped
            yield rows

    def _check(self, cutter: Cutter) -> None:
        if not cutter.seen:
            raise SourceError(
                f"op.stream: {self.name} must hold rows, got none. "
                "Check that it was written to its end, and that it is the one you mean."
            )
        if not cutter.kept:
            which = "they are" if self.target is None else f"the target {self.target!r} is"
            raise SourceError(
                f"op.stream: {self.name} must hold answers, but {which} missing in all of its "
                f"{cutter.seen} rows. Name another target, or leave it out to read features alone."
            )
