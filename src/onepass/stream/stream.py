"""Streams: rows of a source in blocks, in order, once or repeatedly.

Pieces of a source have any length; their columns are converted to fixed types, and blocks of
exactly as many rows as requested are cut from them.

A stream is recognised by the fingerprint of its first rows. It depends on rows, not on a file: it
is the same whether the rows come from a file or through a pipe, compressed or not, and does not
change while a file grows at its end. Its digest is SHA-256 over the columns that are read, row for
row: numbers as float64, text in UTF-8, dates as microseconds; missing values of all kinds are
equal.
"""

import hashlib
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from onepass.errors import RowsRefusedWarning, SourceError
from onepass.stream.choice import ColumnSelection, Split
from onepass.stream.dtypes import ColumnTypes, absent
from onepass.stream.literals import KINDS, Literals
from onepass.stream.sources import LOOKED_AT, Chunk, Source, ahead, check_labels, suggested
from onepass.types import Array
from onepass.validation import whole
from onepass.validation.table import Table, is_missing

__all__ = [
    "Head",
    "Rebatcher",
    "Rows",
    "Stream",
    "concatenate_tables",
    "differences",
    "rows_a_block",
    "setting_differences",
]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Consecutive rows of a stream, with their answers.

    Parameters
    ----------
    X : Table
        The features: n rows. A missing value is nan, None or NaT, as in every table.
    y : ndarray of shape (n,) or (n, c), or None
        The answers: float64 where they are numbers, object (of str) where they are text labels.
        None where the stream has no target.
    time : ndarray of shape (n,), or None
        When each row happened, where the stream was told which column says so.
    first : int
        Where the block's first row stands in the source, counting from 0 and counting skipped
        rows too. For an empty block: where the next row would have stood.
    skipped : int
        Rows left out, because their answer was missing or, if the stream was told so, one of
        their features: those passed over after the block before,
        up to this block's last row; in a stream's last block, up to the end of the source.
        So over a whole stream ``sum(len(rows) + rows.skipped)`` is the number of rows in the
        source.
    numbers : ndarray of int of shape (n,), or None
        Where each row stands in the source, counted as ``first`` is.
    place : callable or None
        Says in words where a row of the source stands, by that number.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.stream import read
    >>> speeds, loads = np.arange(10.0)[:, None], np.where(np.arange(10) == 3, np.nan, 1.0)
    >>> [(len(rows), rows.first, rows.skipped) for rows in read((speeds, loads), block=4)]
    [(4, 0, 1), (4, 5, 0), (1, 9, 0)]
    """

    X: Table
    y: Array | None
    time: Array | None
    first: int
    skipped: int
    numbers: Array | None = None
    place: Callable[[int], str] | None = None

    def located(self, i: int) -> str:
        """Where a row of the block stands, in words: the file, and its row there."""
        if self.numbers is None or self.place is None:
            return f"row {self.first + i} (counting from 0)"
        return self.place(int(self.numbers[i]))

    def __len__(self) -> int:
        return len(self.X)


_BYTES = 2 << 20  # of a block's numbers: what a nearer cache holds, and not much to wait for
_LEAST, _MOST = 1024, 8192  # rows


def rows_a_block(columns: int | None, rows: int | None) -> int:
    """How many rows a block should have: narrow ones more, for a block has costs of its own.

    Measured from file to report, 3 to 300 columns: a row costs least in blocks of 1 to 4 MiB, and
    up to twice as much in 1024 narrow rows. A short source is cut into eight all the same, so that
    some are read while others are learned.

    Parameters
    ----------
    columns : int or None
        How many there are to read; None where that or the pace of the rows is not known: who waits
        for rows does not wait for many.
    rows : int or None
        How many the source has, where that is known.

    Examples
    --------
    >>> [rows_a_block(d, None) for d in (3, 20, 100, 5000, None)]
    [8192, 8192, 2048, 1024, 1024]
    >>> [rows_a_block(3, n) for n in (100, 20_000, 40_000, 80_000)]
    [1024, 2048, 4096, 8192]
    """
    if columns is None:
        return _LEAST
    fitting = _BYTES // (8 * max(columns, 1))
    if rows is not None:
        fitting = min(fitting, rows // 8)
    fitting = max(fitting, 1)
    return min(max(1 << (fitting.bit_length() - 1), _LEAST), _MOST)


class Rebatcher:
    """Cuts pieces into blocks; holds less than one block and one piece.

    A block is given as soon as it is full. Rows without an answer take no place in it.

    Parameters
    ----------
    block : int
        Rows a block.
    start : int
        Where the first row that is added stands in the source.
    place : callable, optional
        Says in words where a row of the source stands, by its number.
    """

    def __init__(
        self, block: int, start: int = 0, place: Callable[[int], str] | None = None
    ) -> None:
        self._place = place
        self.gaps = 0
        self._block = block
        self._parts: list[tuple[Table, Array | None, Array | None]] = []
        self._numbers: list[Array] = []
        self._held = 0
        self._first = start
        self._given = start  # source rows that blocks given so far account for
        self.seen = start
        self.kept = 0

    def add(self, split: Split) -> Iterator[Rows]:
        """The blocks that these rows fill."""
        kept = np.flatnonzero(split.kept)
        start, self.seen = self.seen, self.seen + len(split.kept)
        self.kept += len(kept)
        self.gaps += split.gaps
        at = 0
        while at < len(kept):
            taken = kept[at : at + self._block - self._held]
            at += len(taken)
            if not self._held:
                self._first, self._parts, self._numbers = start + int(taken[0]), [], []
            self._numbers.append(start + taken)
            self._parts.append(_some(split, taken))
            self._held += len(taken)
            if self._held == self._block:
                yield self._rows(start + int(taken[-1]) + 1)
        if not self._held:
            self._parts = [_some(split, kept[:0])]  # an empty last block has these columns
            self._numbers = [kept[:0]]

    def rest(self) -> Iterator[Rows]:
        """What is left at the end: fewer rows than a block, or none but skipped ones."""
        if self.seen > self._given:
            if not self._held:
                self._first = self.seen
            yield self._rows(self.seen)

    def _rows(self, upto: int) -> Rows:
        tables, answers, times = zip(*self._parts, strict=True)
        skipped = upto - self._given - self._held
        rows = Rows(
            concatenate_tables(tables), _joined(answers), _joined(times), self._first, skipped,
            np.concatenate(self._numbers), self._place,
        )  # fmt: skip
        self._parts, self._numbers, self._held, self._given = [], [], 0, upto
        return rows


def _some(split: Split, taken: Array) -> tuple[Table, Array | None, Array | None]:
    """These rows of a piece; without a copy where they lie side by side."""
    key: slice | Array = taken
    if len(taken) == 0:
        key = slice(0, 0)
    elif taken[-1] - taken[0] + 1 == len(taken):
        key = slice(int(taken[0]), int(taken[-1]) + 1)
    return (
        split.X[key],
        None if split.y is None else split.y[key],
        None if split.time is None else split.time[key],
    )


def concatenate_tables(tables: tuple[Table, ...]) -> Table:
    """Tables one below the other; a column that one lacks is missing there."""
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.names)
    n = sum(len(table) for table in tables)
    columns = {}
    for name in names:
        parts = [t.columns[name] if name in t else np.full(len(t), np.nan) for t in tables]
        columns[name] = _end_to_end(parts)
    return Table(columns, n)


def _joined(arrays: tuple[Array | None, ...]) -> Array | None:
    given = [array for array in arrays if array is not None]
    return None if not given else _end_to_end(given)


def _end_to_end(parts: list[Array]) -> Array:
    """Arrays end to end. Those that were empty so far, nan, take the kind of the others."""
    if len(parts) == 1:
        return parts[0]
    if len({part.dtype.kind for part in parts}) > 1:
        kind = next(p.dtype.kind for p in parts if p.dtype.kind != "f" or not is_missing(p).all())
        parts = [p if p.dtype.kind == kind else absent(kind, len(p)) for p in parts]
    return np.concatenate(parts)


class Head:
    """The first rows of a stream, at most :data:`~onepass.stream.sources.LOOKED_AT`.

    Parameters
    ----------
    named : bool
        Whether the source names its columns; else a column is there once it has a value.

    Examples
    --------
    >>> head = Head()
    >>> head.add(Chunk({"km": np.array([1.0, 2.0])}, 2))
    >>> head.rows, head.full
    (2, False)
    """

    def __init__(self, *, named: bool = False) -> None:
        self.rows = 0
        self._named = named
        self._tables: list[Table] = []
        self._answers: list[Table] = []

    @property
    def full(self) -> bool:
        """Whether no more rows are wanted."""
        return self.rows >= LOOKED_AT

    def add(self, chunk: Chunk) -> None:
        """Take the next rows, as many as are wanted."""
        if not self.full:
            wanted = slice(0, LOOKED_AT - self.rows)
            self._tables.append(chunk.table[wanted])
            if chunk.answers is not None:
                self._answers.append(Chunk(chunk.answers, chunk.n).table[wanted])
            self.rows += len(self._tables[-1])

    def columns(self, rows: int) -> dict[str, str | None]:
        """The kind of each column as its first rows show it; None where they are all missing."""
        return {
            name: None if is_missing(column).all() else KINDS[column.dtype.kind]
            for name, column in self._first(rows).items()
        }

    def digest(self, rows: int) -> str:
        """SHA-256 of the first rows, in hexadecimal."""
        whole = hashlib.sha256()
        for name, column in sorted(self._first(rows).items()):
            whole.update(hashlib.sha256(name.encode()).digest())
            whole.update(_digested(column))
        return whole.hexdigest()

    def _first(self, rows: int) -> dict[str, Array]:
        """The columns of the first rows; answers that came apart stand behind them."""
        held = [("", self._tables), ("answer ", self._answers)]
        columns: dict[str, Array] = {}
        for prefix, tables in held:
            if tables:
                table = concatenate_tables(tuple(tables))[:rows]
                columns |= {
                    prefix + name: column
                    for name, column in table.columns.items()
                    if self._named or not is_missing(column).all()
                }
        return columns


def _digested(column: Array) -> bytes:
    """SHA-256 of a column; a missing value is the same whatever the column's kind."""
    missing = is_missing(column)
    told = hashlib.sha256(np.packbits(missing).tobytes())
    known = column[~missing]
    if known.dtype.kind == "O":
        words = [str(value).encode() for value in known.tolist()]
        told.update(np.array([len(word) for word in words], dtype="<i8").tobytes())
        told.update(b"".join(words))
    elif known.dtype.kind == "M":
        told.update(known.astype("datetime64[us]").astype("<i8").tobytes())
    else:
        told.update((known.astype("<f8") + 0.0).tobytes())  # -0 is 0
    return told.digest()


def differences(
    then: Mapping[str, Any], now: Mapping[str, Any], head: Head | None = None
) -> list[str]:
    """In which ways a stream is not the one of which a fingerprint was taken.

    Parameters
    ----------
    then, now : dict
        Fingerprints: that of the stream as it was, and that of the one at hand.
    head : Head, optional
        The first rows at hand. Where fewer rows were looked at then, as many are now.

    Returns
    -------
    differences : list of str
        A phrase each; empty where the rows are the same.

    Examples
    --------
    >>> differences({"target": "km"}, {"target": "price"})
    ["its target was 'km' and is 'price'"]
    >>> len(differences({"target": "km"}, {"target": "km"}))
    0
    """
    rows = int(then.get("rows", 0))
    if rows > int(now.get("rows", 0)):
        few = f"it had at least {rows} rows and has {now.get('rows', 0)}"
        return [*setting_differences(then, now, alike=False), few]
    columns = now.get("columns", {}) if head is None else head.columns(rows)
    others = _columns(then.get("columns", {}), columns)
    said = [*setting_differences(then, now, alike=not others), *others]
    digest = now.get("digest") if head is None else head.digest(rows)
    if not said and digest != then.get("digest"):
        said.append(f"the values in its first {rows} rows are others")
    return said


def setting_differences(
    then: Mapping[str, Any], now: Mapping[str, Any], *, alike: bool
) -> list[str]:
    """The differences between two fingerprints in the choice and the reading of columns.

    Changes that do not affect the rows read before are allowed, so that the remedies of errors
    work: further spellings of a missing value, another ``bad_rows`` or ``missing`` than "error",
    new columns to drop, and kinds that change no column.

    Parameters
    ----------
    then, now : dict
        Fingerprints.
    alike : bool
        Whether the columns of the first rows have the kinds that they had.

    Examples
    --------
    >>> setting_differences({"read": {"na": ["-"]}}, {"read": {"na": ["?", "-"]}}, alike=True)
    []
    >>> len(setting_differences({"drop": []}, {"drop": ["km"]}, alike=True))
    0
    """
    usual = {"na": [], "missing": "keep", "bad_rows": "error"}
    one, two = ({**usual, **(each.get("read") or {})} for each in (then, now))
    remedied = [option for option in ("missing", "bad_rows") if one[option] == "error"]
    if set(one["na"]) <= set(two["na"]):
        remedied.append("na")
    dropped = set(now.get("drop") or ()) - set(then.get("drop") or ())
    may = {
        "read": {**one, **dict.fromkeys(remedied)} == {**two, **dict.fromkeys(remedied)},
        "drop": set(then.get("drop") or ()) <= set(now.get("drop") or ())
        and not dropped & then.get("columns", {}).keys(),
        "types": alike,
    }
    return [
        f"{word} was {then.get(key)!r} and is {now.get(key)!r}"
        for key, word in (
            ("target", "its target"), ("time", "its column of times"), ("drop", "what is dropped"),
            ("features", "the columns asked for"), ("types", "the kinds asked for"),
            ("read", "how it is read"),
        )
        if then.get(key) != now.get(key) and not may.get(key)
    ]  # fmt: skip


def _columns(then: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    gone = [name for name in then if name not in now]
    new = [name for name in now if name not in then]
    said = [f"its column {name!r} is gone" for name in gone]
    said += [f"its column {name!r} is new" for name in new]
    said += [
        f"its column {name!r} held {then[name] or 'nothing'} and holds {kind or 'nothing'}"
        for name, kind in now.items()
        if name in then and kind != then[name]
    ]
    if not said and list(then) != list(now):
        said.append(f"its columns stood as {list(then)} and stand as {list(now)}")
    return said


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
    choice : ColumnSelection
        What its columns are for.
    block : int, optional
        Rows a block; by default as many as suit the columns.
    types : dict of str to str
        Kinds of columns that are fixed beforehand.
    n_rows : int, optional
        Rows in the source, where they are known better than the source knows them.
    task : {"regression", "classification"}, optional
        What the answers ask for, where it is known without looking at them.
    dtypes : dict of str to str, optional
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
    requested_block : int or None
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
        choice: ColumnSelection,
        *,
        block: int | None,
        types: Mapping[str, str],
        n_rows: int | None = None,
        task: str | None = None,
        dtypes: Mapping[str, str] | None = None,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        start: int = 0,
        read: Mapping[str, object] | None = None,
    ) -> None:
        self.name = source.name
        asked = None if block is None else whole(block, "block", "op.stream", low=1)
        self.start = self.rows_read = whole(start, "start", "op.stream", low=0)
        self.fraction: float | None = None
        self.bad_rows = 0
        self._bad: list[str] = []  # errors of the first of them
        self._source = source
        self._selection = choice
        self._asked = dict(types)
        self._task = task
        self._read = dict(read or {})
        skip = choice.bad_rows == "skip"
        self._types = (
            ColumnTypes(
                {**(dtypes or {}), **types}, source.located, literals,
                targets=choice.targets, skip=skip,
            ),
            ColumnTypes({}, source.located, skip=skip),
        )  # fmt: skip
        self._begun = False
        self._looked: Iterator[Chunk] | None = None  # chunks looked at, then the rest
        self._head: Head | None = None
        names = self._names() if source.repeatable else None  # a pipe's may be slow to come
        columns = None if names is None else len(names)
        self.block = rows_a_block(columns, source.n_rows) if asked is None else asked
        self.requested_block = asked
        self._n_rows = source.n_rows if n_rows is None else n_rows

    @property
    def target(self) -> str | list[str] | None:
        """The column of answers, or several; None where there are none or they have no name."""
        return self._selection.target

    @property
    def time(self) -> str | None:
        """The column that says when a row happened; None where there is none or it has no name."""
        return self._selection.time

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
        given all the same: text, or nothing but 0 and 1, are labels
        (:mod:`onepass.stream.sources`).
        """
        if self._task is None:
            answers = self._first_answers()
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
        head, selection = self._first_rows(), self._selection
        return {
            "name": self.name, "read": self._read, "target": self.target, "time": selection.time,
            "drop": list(selection.drop),
            "features": None if selection.columns is None else list(selection.columns),
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
        return differences(fingerprint, self.fingerprint, self._first_rows())

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
        if self.requested_block is None:
            asked = whole(block, "block", "op.stream", low=1)
            self.block = self.requested_block = asked

    def __repr__(self) -> str:
        rows = "rows unknown" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<Stream {self.name}: {rows}, target {self.target!r}, block {self.block}>"

    def __iter__(self) -> Iterator[Rows]:
        return self._counted(self._blocks(self._begin()))

    def _names(self) -> list[str] | None:
        """The columns to be read; None where only the rows can tell."""
        names = self._source.columns()
        return None if names is None else self._selection.of(names, self._asked)

    def _begin(self) -> Iterator[Chunk]:
        """All chunks, those that were looked at among them; refused where they have been read."""
        if self._looked is not None:
            chunks, self._looked = self._looked, None
            return chunks
        return self._opened(self.start, tap=not self.repeatable and self._head is None)

    def _opened(self, start: int, *, tap: bool = False) -> Iterator[Chunk]:
        if self._begun and not self.repeatable:
            raise SourceError(
                f"op.stream: {self.name} can be read only once, and it was begun before. "
                "Write it to a file to read it again, or learn all in one pass."
            )
        self._begun = True
        names = self._names()
        if tap:  # nobody can look at these first rows later
            self._head = Head(named=names is not None)
        return self._typed(names, start, self._head if tap else None)

    def _typed(self, names: list[str] | None, start: int, head: Head | None) -> Iterator[Chunk]:
        """The chunks of the source, all columns converted; their first rows are added to a head."""
        columns, answers = self._types
        for each in self._types:
            each.restart()
        columns.order(names or ())
        seen = 0
        for chunk in self._source.chunks(names, self.block, start):
            passed = seen >= LOOKED_AT and seen + chunk.n <= start
            typed = columns.convert(chunk, seen, passed=passed)
            if chunk.answers is not None and not passed:
                apart = answers.convert(Chunk(chunk.answers, chunk.n, bad=typed.bad), seen)
                typed = replace(typed, answers=apart.columns, bad=apart.bad)
            seen += chunk.n
            if head is not None:
                head.add(typed)
            yield typed

    def _first_rows(self) -> Head:
        """The first rows; of what can be read only once, as many as were given once it is read."""
        if self._head is None:
            self._first_answers()
        return self._head or Head()

    def _first_answers(self) -> list[Array]:
        """The first targets. What can be read only once will give them again."""
        chunks = self._opened(0) if self.repeatable else self._begin()
        head = Head(named=self._source.columns() is not None)
        looked, answers, known = [], [], 0
        for chunk in chunks:
            looked.append(chunk)
            head.add(chunk)
            split = self._selection.split(chunk)
            if split.y is not None:
                answers.append(split.y[split.kept])
                known += len(answers[-1])
            if head.full and (split.y is None or known >= LOOKED_AT):
                break
        if not self.repeatable:
            self._looked = chain(looked, chunks)
        self._head = head
        return answers

    def _blocks(self, chunks: Iterator[Chunk]) -> Generator[_Block]:
        """The blocks, each with how much has been read and how many rows were bad by then."""
        cutter, seen, bad = Rebatcher(self.block, self.start, self._source.located), 0, 0
        given = self.start
        for chunk in chunks:
            first, seen = seen, seen + chunk.n
            over = max(0, self.start - first)
            if over < chunk.n:
                split = self._selection.split(chunk).after(over)
                self._selection.check(split, first + over, self._source.located)
                places = sorted(split.bad)
                self._bad += [split.bad[i] for i in places][: _SHOWN - len(self._bad)]
                for rows in cutter.add(split):
                    given += len(rows) + rows.skipped
                    yield rows, chunk.fraction, bad + bisect_left(places, given - first - over)
                bad += len(places)
        self._check(cutter, seen, bad)
        for rows in cutter.rest():
            yield rows, 1.0, bad

    def _counted(self, blocks: Generator[_Block]) -> Iterator[Rows]:
        self.rows_read, self.fraction = self.start, None
        self.bad_rows, self._bad = 0, []
        try:
            for block in islice(blocks, 1):
                yield self._given(*block)
            if self._source.ahead:  # from the second block on: one block needs no thread
                blocks = ahead(blocks, max(_AHEAD, _FEWEST // self.block))
            for block in blocks:
                yield self._given(*block)
            self.fraction = 1.0
        finally:
            blocks.close()
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

    def _check(self, cutter: Rebatcher, seen: int, bad: int) -> None:
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
