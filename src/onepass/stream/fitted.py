"""Fitted: the pieces of a source, each column held to its kind; the first can be looked at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from onepass.errors import Array, SourceError
from onepass.stream.blocks import rows_a_block
from onepass.stream.choice import Choice
from onepass.stream.head import Head
from onepass.stream.kinds import Kinds
from onepass.stream.literals import Literals, Oddity
from onepass.stream.oddities import report
from onepass.stream.pieces import Piece, Source
from onepass.stream.task import LOOKED_AT

__all__ = ["Fitted"]


class Fitted:
    """A source's pieces from its first row on, ready to be cut into blocks.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    choice : Choice
        What its columns are for.
    types, kinds : dict of str to str
        Kinds of columns that are fixed beforehand, and of those that may be there.
    literals : Literals
        How text is parsed.
    block : int, optional
        Rows a block; by default as many as suit the columns.

    Attributes
    ----------
    block : int
        Rows a block.
    """

    def __init__(
        self,
        source: Source,
        choice: Choice,
        types: Mapping[str, str],
        kinds: Mapping[str, str],
        literals: Literals,
        block: int | None,
    ) -> None:
        self._source = source
        self._choice = choice
        self._asked = dict(types)
        self._types = {**kinds, **types}
        self._literals = literals
        self._warned: set[str] = set()
        self._begun = False
        self._ahead: Iterator[Piece] | None = None  # pieces looked at, then the rest
        self._head: Head | None = None
        names = self._names() if source.repeatable else None  # a pipe's may be slow to come
        columns = None if names is None else len(names)
        self.block = rows_a_block(columns, source.n_rows) if block is None else block

    def pieces(self, start: int) -> Iterator[Piece]:
        """All pieces, those that were looked at among them; refused where they have been read.

        Parameters
        ----------
        start : int
            Rows before this one will be passed over.
        """
        if self._ahead is not None:
            pieces, self._ahead = self._ahead, None
            return pieces
        pieces = self._opened(start)
        if self._source.repeatable or self._head is not None:
            return pieces
        self._head = head = Head(named=self._source.columns() is not None)
        return self._tapped(pieces, head)

    def _opened(self, start: int) -> Iterator[Piece]:
        if self._begun and not self._source.repeatable:
            raise SourceError(
                f"op.stream: {self._source.name} can be read only once, and it was begun before. "
                "Write it to a file to read it again, or learn all in one pass."
            )
        self._begun = True
        names, certain = self._names(), self._source.kinds()
        # labels stay as they are written in the source: true or True, not 1
        labels = {name: "text" for name in self._choice.targets if certain.get(name) == "b"}
        self._types = {**labels, **self._types}
        return self._fit(names, certain, self._source.pieces(names, self._types, self.block, start))

    def _fit(
        self, names: list[str] | None, certain: dict[str, str], pieces: Iterator[Piece]
    ) -> Iterator[Piece]:
        certain = {name: letter.replace("b", "f") for name, letter in certain.items()}
        known = certain if names is None else {name: certain.get(name) for name in names}
        columns = Kinds(self._types, self._source.located, known, self._literals)
        answers = Kinds({}, self._source.located)
        seen = 0
        for piece in pieces:
            bad = dict(piece.bad) if self._choice.bad_rows == "skip" else None
            table = columns.fit(piece.table, seen, bad)
            apart = None if piece.answers is None else answers.fit(piece.answers, seen, bad)
            seen += len(table)
            self._report(names or table.names)
            yield replace(piece, table=table, answers=apart, bad=bad or {})

    def _names(self) -> list[str] | None:
        names = self._source.columns()
        if names is None:
            return None
        read = self._choice.of(names, self._asked)
        self._report(read)
        return read

    def _report(self, read: Sequence[str]) -> None:
        """Warn of columns, once each, or refuse them."""
        found: list[Oddity] = getattr(self._source, "oddities", list)()
        odd = {one.name: one for one in found if one.name not in self._warned}
        targets, skip = self._choice.targets, self._choice.bad_rows == "skip"
        report(odd.values(), read=read, targets=targets, types=self._types, skip=skip)
        self._warned |= odd.keys()

    # -- the first rows ----------------------------------------------------------------------------

    @staticmethod
    def _tapped(pieces: Iterator[Piece], head: Head) -> Iterator[Piece]:
        """The pieces; their first rows are kept, for nobody can look at them later."""
        for piece in pieces:
            head.add(piece.table, piece.answers)
            yield piece

    def head(self) -> Head:
        """The first rows; of what can be read only once, as many as were given once it is read."""
        if self._head is None:
            self.first_answers()
        return self._head or Head()

    def first_answers(self) -> list[Array]:
        """The first answers, piece by piece. What can be read only once will give them again."""
        once = not self._source.repeatable
        pieces = self.pieces(0) if once else self._opened(0)
        head = Head(named=self._source.columns() is not None)
        looked, answers, known = [], [], 0
        for piece in pieces:
            looked.append(piece)
            head.add(piece.table, piece.answers)
            split = self._choice.split(piece)
            if split.y is not None:
                answers.append(split.y[split.kept])
                known += len(answers[-1])
            if head.full and (split.y is None or known >= LOOKED_AT):
                break
        if once:
            self._ahead = chain(looked, pieces)
        self._head = head
        return answers
