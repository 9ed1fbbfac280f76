"""Streams: the rows of a source, in order and in blocks.

A source yields chunks of any length. Their columns are converted to fixed types, and they are
divided into blocks of exactly the requested number of rows.

The fingerprint of the first rows identifies a stream. It depends on the rows, not on how they are
stored: files, pipes and compressed files with the same rows have equal fingerprints, which do not
change when rows are appended. The digest is SHA-256 over the columns read, row by row: numbers as
float64, text in UTF-8, dates as microseconds; missing values of all types are equal.
"""

from __future__ import annotations

import hashlib
import warnings
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from onepass.errors import (
    EmptySourceError,
    OnepassError,
    RowsRefusedWarning,
    SourceError,
    calling,
    public,
)
from onepass.stream.choice import ColumnSelection
from onepass.stream.dtypes import ColumnTypes
from onepass.stream.literals import TYPE_NAMES, TextParser
from onepass.stream.rebatch import Rebatcher, default_block_size
from onepass.stream.sources import (
    HEAD_ROWS,
    Chunk,
    Source,
    check_labels,
    infer_task,
    prefetch,
)
from onepass.types import Array
from onepass.validation import whole
from onepass.validation.rows import Rows, concatenate_tables
from onepass.validation.table import Table, is_missing


class Head:
    """The first rows of a stream, at most :data:`~onepass.stream.sources.HEAD_ROWS`.

    Parameters
    ----------
    named : bool
        Whether the source names its columns in advance; otherwise a column exists as soon as it has
        a value.

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
        self._targets: list[Table] = []

    @property
    def full(self) -> bool:
        """Whether no more rows are needed."""
        return self.rows >= HEAD_ROWS

    def add(self, chunk: Chunk) -> None:
        """Add the next rows, up to the maximum."""
        if not self.full:
            wanted = slice(0, HEAD_ROWS - self.rows)
            self._tables.append(chunk.table[wanted])
            if chunk.targets is not None:
                self._targets.append(Chunk(chunk.targets, chunk.n).table[wanted])
            self.rows += len(self._tables[-1])

    def columns(self, rows: int) -> dict[str, str | None]:
        """Return the types of columns in the first rows; None if all values are missing."""
        return {
            name: None if is_missing(column).all() else TYPE_NAMES[column.dtype.kind]
            for name, column in self._first(rows).items()
        }

    def digest(self, rows: int) -> str:
        """Return the SHA-256 digest of the first rows, in hexadecimal."""
        whole = hashlib.sha256()
        for name, column in sorted(self._first(rows).items()):
            whole.update(hashlib.sha256(name.encode()).digest())
            whole.update(_column_digest(column))
        return whole.hexdigest()

    def _first(self, rows: int) -> dict[str, Array]:
        """Return the columns of the first rows, then separate targets."""
        groups = [("", self._tables), ("answer ", self._targets)]
        columns: dict[str, Array] = {}
        for prefix, tables in groups:
            if tables:
                table = concatenate_tables(tables)[:rows]
                columns |= {
                    prefix + name: column
                    for name, column in table.columns.items()
                    if self._named or not is_missing(column).all()
                }
        return columns


def _column_digest(column: Array) -> bytes:
    """Return the SHA-256 digest of a column; missing values of all types are equal."""
    missing = is_missing(column)
    digest = hashlib.sha256(np.packbits(missing).tobytes())
    known = column[~missing]
    if known.dtype.kind == "O":
        words = [str(value).encode() for value in known.tolist()]
        digest.update(np.array([len(word) for word in words], dtype="<i8").tobytes())
        digest.update(b"".join(words))
    elif known.dtype.kind == "M":
        digest.update(known.astype("datetime64[us]").astype("<i8").tobytes())
    else:
        digest.update((known.astype("<f8") + 0.0).tobytes())  # -0 is 0
    return digest.digest()


def setting_differences(
    then: Mapping[str, Any], now: Mapping[str, Any], *, alike: bool
) -> list[str]:
    """Return the differences between two fingerprints in the selection and parsing of columns.

    Changes that do not affect the rows already read are allowed, because error messages recommend
    them: further spellings of a missing value, ``bad_rows`` or ``missing`` changed from "error",
    further columns to drop, and types that change no column.

    Parameters
    ----------
    then, now : dict
        The stored and the current fingerprint.
    alike : bool
        Whether the columns of the first rows have the same types as before.

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
            ("target", "its target"), ("time", "its column of times"),
            ("drop", "`drop`"),
            ("features", "`columns`"), ("types", "`types`"),
            ("read", "the set of read options"),
        )
        if then.get(key) != now.get(key) and not may.get(key)
    ]  # fmt: skip


def _column_differences(then: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    missing = [name for name in then if name not in now]
    new = [name for name in now if name not in then]
    found = [f"its column {name!r} is missing" for name in missing]
    found += [f"its column {name!r} is new" for name in new]
    found += [
        f"its column {name!r} had type {then[name] or 'none'} and has type {kind or 'none'}"
        for name, kind in now.items()
        if name in then and kind != then[name]
    ]
    if not found and list(then) != list(now):
        found.append(f"the order of its columns was {list(then)} and is {list(now)}")
    return found


_AHEAD = 2  # blocks read ahead
_MAX_SHOWN = 3  # bad rows named in the final warning
_MIN_ROWS_AHEAD = 1024  # minimum number of rows to read ahead
_Block = tuple[Rows, float | None, tuple[int, int]]


class Stream:
    """Rows of a source in typed blocks, read on demand.

    :func:`onepass.stream.read` and :func:`onepass.stream.dataset` create streams. Each ``for rows
    in stream`` starts at the first row. If the source can be read only once (standard input, a
    generator), a second loop raises an error. All blocks have exactly ``block`` rows, except that
    the last one may have fewer; it is empty only if it counts skipped rows at the end. Memory is
    bounded by the block.

    Files are read one or two blocks ahead in a thread, which ends with the iteration. Data in
    memory, pipes and iterables are not read ahead.

    Parameters
    ----------
    source : Source
        The source of the rows.
    selection : ColumnSelection
        The roles of columns.
    block : int, optional
        Number of rows per block.
    types : dict of str to str
        Types of columns, set in advance.
    n_rows : int, optional
        Number of rows in the source, if the source does not know it.
    task : {"regression", "classification"}, optional
        The task of the targets, if known in advance.
    dtypes : dict of str to str, optional
        Types of columns that may be absent; ``types`` take precedence.
    parser : TextParser
        Parser of text.
    start : int
        Number of rows to skip at the beginning of the source, counted like :attr:`Rows.first`.
    read : dict
        Read options that affect the rows, for the fingerprint.

    Attributes
    ----------
    name : str
        The name of the source, for tables and messages.
    target : str, list of str or None
        The target column, or several.
    block : int
        Number of rows per block.
    requested_block : int or None
        The block size set by the user; None if it is the default.
    start : int
        Position in the source at which the stream begins.
    rows_read : int
        Number of rows of the source that the last iteration has yielded or skipped so far. A stream
        with this ``start`` continues with the next block.
    gaps : bool, default=False
        Whether rows whose numeric target is missing, NaN, are yielded instead of skipped; set by
        ``op.evaluate.prequential`` while it reads.
    fraction : float or None
        Fraction of the source that has been read, in [0, 1], for progress bars; None if unknown.
    bad_rows : int
        Number of rows that the last iteration skipped because of ``bad_rows="skip"``. At its end a
        warning contains their number and the first errors.
    incomplete_rows : int
        Number of rows with a target that the last iteration skipped because of ``missing="skip"``.

    Raises
    ------
    ParameterError
        If ``block`` is not a whole number >= 1, or ``start`` is not a whole number >= 0.
    ColumnError
        If a named column does not exist, or exists twice.
    SourceError
        If the source cannot be opened or read.
    """

    def __init__(
        self,
        source: Source,
        selection: ColumnSelection,
        *,
        block: int | None,
        types: Mapping[str, str],
        n_rows: int | None = None,
        task: str | None = None,
        dtypes: Mapping[str, str] | None = None,
        parser: TextParser = TextParser(),  # noqa: B008  immutable
        start: int = 0,
        read: Mapping[str, object] | None = None,
    ) -> None:
        self.name = source.name
        requested = None if block is None else whole(block, "block", low=1)
        self.start = self.rows_read = whole(start, "start", low=0)
        self.gaps = False
        self.fraction: float | None = None
        self.bad_rows = self.incomplete_rows = 0
        self._bad: list[OnepassError] = []  # errors of the first bad rows
        self._source = source
        self._selection = selection
        self._requested_types = dict(types)
        self._task = task
        self._read = dict(read or {})
        skip = selection.bad_rows == "skip"
        self._types = (
            ColumnTypes(
                {**(dtypes or {}), **types}, source.located, parser,
                targets=selection.targets, skip=skip, learned=set(dtypes or ()) - set(types),
            ),
            ColumnTypes({}, source.located, skip=skip, parsed=False),
        )  # fmt: skip
        self._was_started = False
        self._buffered: Iterator[Chunk] | None = (
            None  # chunks read to infer the task, then the rest
        )
        self._head: Head | None = None
        names = self._names() if source.repeatable else None  # the names in a pipe may arrive late
        columns = None if names is None else len(names)
        self.block = default_block_size(columns, source.n_rows) if requested is None else requested
        self.requested_block = requested
        self._n_rows = source.n_rows if n_rows is None else n_rows

    @property
    def target(self) -> str | list[str] | None:
        """Target column, or several; None if there is no target or it has no name."""
        return self._selection.target

    @property
    def time(self) -> str | None:
        """Column of times; None if there is none or it has no name."""
        return self._selection.time

    @property
    def n_rows(self) -> int | None:
        """Number of rows in the source, including skipped rows; None if unknown."""
        return self._n_rows

    @property
    def repeatable(self) -> bool:
        """Whether the stream can be read again from its beginning."""
        return self._source.repeatable

    @property
    @calling("op.stream.read")
    def task(self) -> str | None:
        """Task of the targets, "regression" or "classification"; None if there are no targets.

        Named data sets define the task. Otherwise it is inferred from the first rows, which are
        yielded nevertheless: text and, if there are no other numbers, 0 and 1 are labels
        (:mod:`onepass.stream.sources`).
        """
        if self._task is None:
            targets = self._first_targets()
            if isinstance(self.target, str) and self.target not in self._requested_types:
                place = f"{self.name}: the target {self.target!r}"
                check_labels(targets, place, self.target)
            self._task = infer_task(targets) if targets else None
        return self._task

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Identification of this stream by its columns, their roles, and its first rows.

        A short dict that JSON can represent. It does not depend on the location of the rows,
        ``block`` or ``start``, and rows may be appended to a file: see :meth:`differences`. For a
        source that can be read only once, the first rows are read and yielded later; after the
        first block was requested, the fingerprint covers only the rows yielded so far.
        """
        head, selection = self._first_rows(), self._selection
        return {
            "name": self.name, "read": self._read, "target": self.target, "time": selection.time,
            "drop": list(selection.drop),
            "features": None if selection.columns is None else list(selection.columns),
            "types": self._requested_types, "columns": head.columns(head.rows), "rows": head.rows,
            "digest": head.digest(head.rows),
        }  # fmt: skip

    def differences(self, fingerprint: Mapping[str, Any]) -> list[str]:
        """Return the differences between this stream and a stored fingerprint.

        Parameters
        ----------
        fingerprint : dict
            The value of :attr:`fingerprint` of another stream.

        Returns
        -------
        differences : list of str
            One phrase per difference, such as "its column 'km' is missing"; empty if there are
            none. Only the first 1024 rows are compared.

        Examples
        --------
        >>> from onepass.stream import read
        >>> rows = [{"km": 1.0, "price": 3.0}, {"km": 2.0, "price": 5.0}]
        >>> then = read(rows, target="price").fingerprint
        >>> grown = [*rows, {"km": 3.0, "price": 7.0}]
        >>> read(grown, target="price").differences(then)
        []
        >>> read(grown[1:], target="price").differences(then)
        ['the values in its first 2 rows differ']
        >>> len(read(grown, target="km").differences(then))
        1
        """
        now, head, rows = self.fingerprint, self._first_rows(), int(fingerprint.get("rows", 0))
        if rows > head.rows:
            few = f"it had at least {rows} rows and has {head.rows}"
            return [*setting_differences(fingerprint, now, alike=False), few]
        others = _column_differences(fingerprint.get("columns", {}), head.columns(rows))
        found = [*setting_differences(fingerprint, now, alike=not others), *others]
        if not found and head.digest(rows) != fingerprint.get("digest"):
            found.append(f"the values in its first {rows} rows differ")
        return found

    @public
    def cut(self, block: int) -> None:
        """Set the block size, unless the user has set it.

        Parameters
        ----------
        block : int
            Number of rows per block.

        Examples
        --------
        >>> from onepass.stream import read
        >>> stream = read([{"km": 1.0}, {"km": 2.0}, {"km": 3.0}])
        >>> stream.cut(2)
        >>> [len(rows) for rows in stream]
        [2, 1]
        """
        if self.requested_block is None:
            requested = whole(block, "block", low=1)
            self.block = self.requested_block = requested

    def __repr__(self) -> str:
        rows = "rows unknown" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<Stream {self.name}: {rows}, target {self.target!r}, block {self.block}>"

    @calling("op.stream.read")
    def __iter__(self) -> Iterator[Rows]:
        return self._iterate(self._blocks(self._next_pass()))

    def _names(self) -> list[str] | None:
        """Return the columns to read; None if they are unknown before the rows are read."""
        names = self._source.columns()
        return None if names is None else self._selection.of(names, self._requested_types)

    def _next_pass(self) -> Iterator[Chunk]:
        """Return the chunks of the next pass, buffered chunks first; raise if already consumed."""
        if self._buffered is not None:
            chunks, self._buffered = self._buffered, None
            return chunks
        return self._open_chunks(self.start, tap=not self.repeatable and self._head is None)

    def _open_chunks(self, start: int, *, tap: bool = False) -> Iterator[Chunk]:
        if self._was_started and not self.repeatable:
            raise SourceError(
                f"{self.name} must be iterated only once, since its source cannot be read again, "
                "got a second iteration. Write the rows to a file to read them again.",
            )
        self._was_started = True
        names = self._names()
        if tap:  # rows that cannot be read again
            self._head = Head(named=names is not None)
        return self._typed(names, start, self._head if tap else None)

    def _typed(self, names: list[str] | None, start: int, head: Head | None) -> Iterator[Chunk]:
        """Yield the converted chunks of the source; add the first rows to ``head``."""
        columns, targets = self._types
        for each in self._types:
            each.restart()
        columns.order(names or ())
        seen = 0
        for chunk in self._source.chunks(names, self.block, start):
            passed = seen >= HEAD_ROWS and seen + chunk.n <= start
            typed = columns.convert(chunk, seen, passed=passed)
            if chunk.targets is not None and not passed:
                apart = targets.convert(Chunk(chunk.targets, chunk.n, bad=typed.bad), seen)
                typed = replace(typed, targets=apart.columns, bad=apart.bad)
            seen += chunk.n
            if head is not None:
                head.add(typed)
            yield typed

    def _first_rows(self) -> Head:
        """Return the first rows; for a source that can be read only once, those yielded so far."""
        if self._head is None:
            self._first_targets()
        return self._head or Head()

    @calling("op.stream.read")
    def _first_targets(self) -> list[Array]:
        """Return the first targets; buffer their chunks if the source can be read only once."""
        chunks = self._open_chunks(0) if self.repeatable else self._next_pass()
        head = Head(named=self._source.columns() is not None)
        looked, targets, known = [], [], 0
        for chunk in chunks:
            looked.append(chunk)
            head.add(chunk)
            y = self._selection.split(chunk).rows.y
            if y is not None:
                targets.append(y)
                known += len(y)
            if head.full and (y is None or known >= HEAD_ROWS):
                break
        if not self.repeatable:
            self._buffered = chain(looked, chunks)
        self._head = head
        return targets

    def _blocks(self, chunks: Iterator[Chunk]) -> Generator[_Block]:
        """Yield each block with the fraction read, and the bad and incomplete rows so far."""
        rebatcher, seen, bad, incomplete = Rebatcher(self.block, self.start), 0, 0, 0
        given, done = self.start, 0.0
        for chunk in chunks:
            first, seen = seen, seen + chunk.n
            if seen > self.start:
                split = self._selection.split(
                    chunk, first, self.start, self._source.located, gaps=self.gaps
                )
                split = self._selection.check(split)
                places = sorted(split.bad)
                self._bad += [split.bad[i] for i in places][: _MAX_SHOWN - len(self._bad)]
                for rows in rebatcher.add(split.rows, seen):
                    given += len(rows) + rows.skipped
                    counts = (
                        bad + bisect_left(places, given),
                        incomplete + bisect_left(split.gaps, given),
                    )
                    share = chunk.fraction
                    if share is not None:  # of the rows of a chunk that have been yielded
                        share = done + (share - done) * max(0, given - first) / chunk.n
                    yield rows, share, counts
                bad, incomplete = bad + len(places), incomplete + len(split.gaps)
            done = chunk.fraction or 0.0
        self._check(rebatcher.used, seen, bad, incomplete)
        for rows in rebatcher.rest():
            yield rows, 1.0, (bad, incomplete)

    def _iterate(self, blocks: Generator[_Block]) -> Iterator[Rows]:
        self.rows_read, self.fraction = self.start, None
        self.bad_rows, self.incomplete_rows, self._bad = 0, 0, []
        try:
            with calling("op.stream.read"):
                for block in islice(blocks, 1):
                    yield self._count_block(*block)
                if self._source.prefetch:  # a stream of one block needs no thread
                    blocks = prefetch(blocks, max(_AHEAD, _MIN_ROWS_AHEAD // self.block))
                for block in blocks:
                    yield self._count_block(*block)
            self.fraction = 1.0
        finally:
            blocks.close()
            if self.bad_rows:
                n, first = self.bad_rows, self._bad[: self.bad_rows]
                shown = "; ".join(str(one.at(where="", remedy="")) for one in first)
                warnings.warn(
                    f"{self.name}: {n:,} bad {'row was' if n == 1 else 'rows were'} skipped: "
                    f"{shown}{'; and others' * (n > _MAX_SHOWN)}.",
                    RowsRefusedWarning,
                    stacklevel=3,
                )

    def _count_block(self, rows: Rows, fraction: float | None, counts: tuple[int, int]) -> Rows:
        """Count the rows of a block and return it."""
        self.rows_read += len(rows) + rows.skipped
        self.fraction, (self.bad_rows, self.incomplete_rows) = fraction, counts
        return rows

    def _check(self, used: int, seen: int, bad: int, incomplete: int) -> None:
        """Raise if the source has no rows, or none of them can be used."""
        if not seen:
            raise EmptySourceError(
                f"{self.name} must contain rows, got none. Check that the source is "
                "complete and the right one.",
            )
        if seen < self.start:
            raise SourceError(
                f"{self.name} must contain the {self.start:,} rows to skip, got {seen:,}. Check "
                "that the source is the same, or pass a smaller `start`.",
            )
        if bad == seen:
            self.bad_rows = bad
            raise SourceError(
                f"{self.name} must contain valid rows, got {seen:,} bad ones, all "
                f"skipped, the first: {self._bad[0].at(where='', remedy='')}. Check the format.",
            )
        if not used and not self.start:
            if incomplete:
                raise SourceError(
                    f"{self.name} must contain complete rows, got a missing value in each of its "
                    f"{seen} rows that have a target. Drop empty columns, or pass "
                    "missing='keep' (--missing impute) to keep such rows.",
                )
            which = "they are" if self.target is None else f"the target {self.target!r} is"
            raise SourceError(
                f"{self.name} must contain targets, but {which} missing in all of its "
                f"{seen} rows. Pass another target, or None to read only features.",
            )
