"""Stream: rows from wherever they come, in blocks, in order, once or again and again."""

import re
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from onepass.errors import RowsRefusedWarning, SourceError
from onepass.stream.ahead import Ahead
from onepass.stream.blocks import Cutter
from onepass.stream.choice import Choice
from onepass.stream.fitted import Fitted
from onepass.stream.head import differences
from onepass.stream.literals import Literals
from onepass.stream.pieces import Piece, Source
from onepass.stream.rows import Rows
from onepass.stream.task import check_labels, suggested
from onepass.validation import whole

__all__ = ["Stream"]

_AHEAD = 2  # blocks that may wait while others are learned
_SHOWN = 3  # bad rows that the warning at the end names
_REMEDY = re.compile(r"\. (?=Fix|Leave|Write)")  # begins the last sentence of an error of a row
_FEWEST = 1024  # rows that may wait, however small a block is
_Block = tuple[Rows, float | None, int]


class Stream:
    """Typed blocks of rows, read as they are asked for.

    Streams are made by :func:`onepass.stream.read` and :func:`onepass.stream.dataset`. Each
    ``for rows in stream`` begins at the first row, where the source can be read again; a source
    that cannot (standard input, a generator) refuses the second time. Every block has exactly
    ``block`` rows but the last, which has fewer; it has none only where nothing but rows without
    an answer were left to be counted. Memory is bounded by the block.

    Files are read one or two blocks beforehand, in a thread of its own, which ends with the
    iteration, however that ends. What is in memory, pipes and iterables are read when asked.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    choice : Choice
        What its columns are for.
    block : int, optional
        Rows a block; by default as many as suit the columns.
    types : dict of str to str
        Kinds of columns that are fixed beforehand.
    n_rows : int, optional
        Rows in the source, where they are known better than the source knows them.
    task : {"regression", "classification"}, optional
        What the answers ask for, where it is known without looking at them.
    kinds : dict of str to str, optional
        Kinds of columns that may be there; ``types`` go before them.
    literals : Literals
        How text is parsed.
    start : int
        How many of the source's first rows are passed over, as :attr:`Rows.first` counts them.
    read : dict
        How the source is read, where that changes its rows; for the fingerprint.

    Attributes
    ----------
    name : str
        The source's name, for tables and messages.
    target : str, list of str or None
        The column of answers, or several.
    block : int
        Rows a block.
    block_asked : int or None
        The same as it was asked for; None where it was left to the stream.
    start : int
        Where in the source it begins.
    rows_read : int
        Source rows that lie behind the iteration begun last: those passed over, given or skipped.
        A stream that starts there goes on with the next block.
    fraction : float or None
        How much of the source has been read, in [0, 1]; None while unknown. A progress bar may
        ask at any time.
    bad_rows : int
        Rows that the last iteration has skipped because of ``bad_rows="skip"``. A warning at its
        end counts them and names the first.

    Raises
    ------
    ParameterError
        If ``block`` is not a whole number >= 1, or ``start`` not one >= 0.
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
        block: int | None,
        types: Mapping[str, str],
        n_rows: int | None = None,
        task: str | None = None,
        kinds: Mapping[str, str] | None = None,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        start: int = 0,
        read: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = source.name
        asked = None if block is None else whole(block, "block", "op.stream", low=1)
        self.start = self.rows_read = whole(start, "start", "op.stream", low=0)
        self.fraction: float | None = None
        self.bad_rows = 0
        self._bad: list[str] = []  # errors of the first of them
        self._source = source
        self._choice = choice
        self._asked = dict(types)
        self._task = task
        self._read = dict(read or {})
        self._pieces = Fitted(source, choice, types, kinds or {}, literals, asked)
        self.block, self.block_asked = self._pieces.block, asked
        self._n_rows = source.n_rows if n_rows is None else n_rows

    @property
    def target(self) -> str | list[str] | None:
        """The column of answers, or several; None where there are none or they have no name."""
        return self._choice.target

    @property
    def time(self) -> str | None:
        """The column that says when a row happened; None where there is none or it has no name."""
        return self._choice.time

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
            answers = self._pieces.first_answers()
            if isinstance(self.target, str) and self.target not in self._asked:
                check_labels(
                    answers, f"op.stream: {self.name}: the target {self.target!r}", self.target
                )
            self._task = suggested(answers) if answers else None
        return self._task

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What tells this stream from others: its columns, what they are for, its first rows.

        It is a short dict for JSON. It does not hang on where the rows lie, on ``block`` or
        ``start``, and a file may have grown at its end: see :meth:`differences`. A source that can
        be read only once gives the first rows all the same; once its blocks are being read, those
        that were given are told of.
        """
        head, choice = self._pieces.head(), self._choice
        return {
            "name": self.name, "read": self._read, "target": self.target, "time": choice.time,
            "drop": list(choice.drop),
            "features": None if choice.columns is None else list(choice.columns),
            "types": self._asked, "columns": head.columns(head.rows), "rows": head.rows,
            "digest": head.digest(head.rows),
        }  # fmt: skip

    def differences(self, fingerprint: Mapping[str, Any]) -> list[str]:
        """In which ways this stream is not the one of which a fingerprint was taken.

        Parameters
        ----------
        fingerprint : dict
            As :attr:`fingerprint` gave it.

        Returns
        -------
        differences : list of str
            A phrase each, such as "its column 'km' is gone"; empty where the streams begin alike.
            What lies behind the first 1024 rows is not looked at.

        Examples
        --------
        >>> from onepass.stream import read
        >>> rows = [{"km": 1.0, "price": 3.0}, {"km": 2.0, "price": 5.0}]
        >>> then = read(rows, target="price").fingerprint
        >>> grown = [*rows, {"km": 3.0, "price": 7.0}]
        >>> read(grown, target="price").differences(then)
        []
        >>> read(grown[1:], target="price").differences(then)
        ['the values in its first 2 rows are others']
        >>> len(read(grown, target="km").differences(then))
        1
        """
        return differences(fingerprint, self.fingerprint, self._pieces.head())

    def cut(self, block: int) -> None:
        """Have blocks of so many rows from now on, if their number was left to the stream.

        Parameters
        ----------
        block : int
            Rows a block, as if it had been asked for.

        Examples
        --------
        >>> from onepass.stream import read
        >>> stream = read([{"km": 1.0}, {"km": 2.0}, {"km": 3.0}])
        >>> stream.cut(2)
        >>> [len(rows) for rows in stream]
        [2, 1]
        """
        if self.block_asked is None:
            asked = whole(block, "block", "op.stream", low=1)
            self.block = self.block_asked = self._pieces.block = asked

    def __repr__(self) -> str:
        rows = "rows unknown" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<Stream {self.name}: {rows}, target {self.target!r}, block {self.block}>"

    def __iter__(self) -> Iterator[Rows]:
        return self._counted(self._blocks(self._pieces.pieces(self.start)))

    def _blocks(self, pieces: Iterator[Piece]) -> Iterator[_Block]:
        """The blocks, each with how much has been read and how many rows were bad by then."""
        cutter, seen, bad = Cutter(self.block, self.start, self._source.located), 0, 0
        given = self.start
        for piece in pieces:
            first, seen = seen, seen + len(piece.table)
            over = max(0, self.start - first)
            if over < len(piece.table):
                split = self._choice.split(piece).after(over)
                self._choice.check(split, first + over, self._source.located)
                places = sorted(split.bad)
                self._bad += [split.bad[i] for i in places][: _SHOWN - len(self._bad)]
                for rows in cutter.add(split):
                    given += len(rows) + rows.skipped
                    yield rows, piece.fraction, bad + bisect_left(places, given - first - over)
                bad += len(places)
        self._check(cutter, seen, bad)
        for rows in cutter.rest():
            yield rows, 1.0, bad

    def _counted(self, blocks: Iterator[_Block]) -> Iterator[Rows]:
        self.rows_read, self.fraction = self.start, None
        self.bad_rows, self._bad = 0, []
        ahead: Ahead[_Block] | None = None
        try:
            for block in islice(blocks, 1):
                yield self._given(*block)
            if self._source.ahead:  # from the second block on: who wants one needs no thread
                blocks = ahead = Ahead(blocks, max(_AHEAD, _FEWEST // self.block))
            for block in blocks:
                yield self._given(*block)
            self.fraction = 1.0
        finally:
            if ahead is not None:
                ahead.close()
            if self.bad_rows:
                n, first = self.bad_rows, self._bad[: self.bad_rows]
                shown = "; ".join(_REMEDY.split(one)[0] for one in first)
                warnings.warn(
                    f"{self.name}: {n:,} bad {'row was' if n == 1 else 'rows were'} skipped: "
                    f"{shown.replace('op.stream.read: ', '')}{'; and others' * (n > _SHOWN)}.",
                    RowsRefusedWarning,
                    stacklevel=3,
                )

    def _given(self, rows: Rows, fraction: float | None, bad: int) -> Rows:
        """The rows of a block, which are counted."""
        self.rows_read += len(rows) + rows.skipped
        self.fraction, self.bad_rows = fraction, bad
        return rows

    def _check(self, cutter: Cutter, seen: int, bad: int) -> None:
        if not seen:
            raise SourceError(
                f"op.stream: {self.name} must hold rows, got none. "
                "Check that it was written to its end, and that it is the one you mean."
            )
        if seen < self.start:
            raise SourceError(
                f"op.stream: {self.name} must hold the {self.start:,} rows that are to be passed "
                f"over, got {seen:,}. Check that it is the source that was begun, or start before."
            )
        if bad == seen:
            self.bad_rows = bad
            raise SourceError(
                f"op.stream: {self.name} must hold rows that can be read, got {seen:,} that were "
                f"all skipped. The first: {_REMEDY.split(self._bad[0])[0]}. Check its format."
            )
        if not cutter.kept and not self.start:
            if cutter.gaps:
                raise SourceError(
                    f"op.stream: {self.name} must hold rows without a gap, got a missing value in "
                    f"each of its {cutter.seen} rows that have an answer. Drop the columns that "
                    "are empty, or keep such rows: missing='keep' (--missing impute)."
                )
            which = "they are" if self.target is None else f"the target {self.target!r} is"
            raise SourceError(
                f"op.stream: {self.name} must hold answers, but {which} missing in all of its "
                f"{cutter.seen} rows. Name another target, or leave it out to read features alone."
            )
