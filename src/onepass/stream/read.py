"""``read``: streams from files, pipes, frames, arrays, iterables and named data sets."""

import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from onepass.errors import (
    ColumnError,
    ParameterError,
    SourceError,
    TypeMismatchError,
    did_you_mean,
    first_unencodable,
)
from onepass.stream import catalogue
from onepass.stream.choice import ColumnSelection
from onepass.stream.dtypes import checked_types
from onepass.stream.files import File
from onepass.stream.formats import FORMATS, Parts, Reading, format_of, hive, natural
from onepass.stream.literals import Literals
from onepass.stream.sources import Frame, Matrix, Pair, RowIterable, Source
from onepass.stream.stream import Stream
from onepass.validation.table import TableLike, is_frame

__all__ = ["read"]

_WHERE = "op.stream.read"


def _open_source(source: Any, reading: Reading) -> Source:
    """The source that reads this."""
    if isinstance(source, str) and source == "-":
        return reading.stream(getattr(sys.stdin, "buffer", sys.stdin), "standard input")
    if isinstance(source, (str, os.PathLike)):
        return _named(os.fsdecode(os.fspath(source)), reading)
    if isinstance(source, (list, tuple)) and source and all(map(_is_path, source)):
        files = [_file(os.fsdecode(os.fspath(one))) for one in source]
        return _together(files, 0, f"{len(files)} files", reading)
    if isinstance(source, io.IOBase) or callable(getattr(source, "read", None)):
        name = getattr(source, "name", None)
        return reading.stream(source, name if isinstance(name, str) else "the file object")
    held = _in_memory(source, reading.skip)
    if reading.format is not None:
        raise ParameterError(
            f"{_WHERE}: `format` must be left out unless the source is a file, got "
            f"{reading.format!r} for {held.name}. Leave it out."
        )
    reading.check(None, held.name)
    return held


def _in_memory(source: Any, skip: bool) -> Source:  # noqa: FBT001
    """The source that reads rows which are in memory, or are made one by one."""
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[0], Mapping):
        X, y = source
        return Pair(Frame(X) if is_frame(X) else Matrix(X), y)
    if is_frame(source):
        return Frame(source)
    if isinstance(source, np.ndarray) or hasattr(source, "nnz"):
        return Matrix(source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        return RowIterable(source, skip=skip)
    raise TypeMismatchError(
        f"{_WHERE}: `source` must be a path, a file object, a DataFrame, an array, (X, y) or an "
        f"iterable of rows, got {type(source).__name__}. Collect lazy frames first, and give "
        "columns as a DataFrame."
    )


def _is_path(source: object) -> bool:
    return isinstance(source, (str, os.PathLike))


def _named(text: str, reading: Reading) -> Source:
    """The source at a path, an address or a pattern."""
    place = File(text)
    if place.is_dir():
        return _within(place, reading)
    if any(mark in str(place) for mark in "*?[") and not place.exists():
        return _matching(place, reading)
    return reading.file(_file(text))


def _file(text: str) -> File:
    """A file, which is there."""
    file = File(text)
    if not file.local:
        return file
    if file.is_dir():
        raise SourceError(
            f"{_WHERE}: {file} must be a file, got a directory. Give it alone, or the files in it."
        )
    if not file.exists():
        known = format_of(file.name) is not None
        sets = "" if known else f" Data sets by name are {', '.join(catalogue.names())}."
        raise SourceError(
            f"{_WHERE}: {file} must be a file, got nothing by that name. "
            f"Check the path, which is taken from {Path.cwd()}.{sets}"
            f"{'' if known else did_you_mean(text, catalogue.names())}"
        )
    return file


def _matching(pattern: File, reading: Reading) -> Source:
    """The files that a pattern means."""
    files = pattern.matching()
    if not files:
        raise SourceError(
            f"{_WHERE}: the pattern {pattern} must match at least one file, got none. Check it; a "
            f"relative one is taken from {Path.cwd()}."
        )
    words = pattern.parts()
    fixed = next(i for i, word in enumerate(words) if any(mark in word for mark in "*?["))
    return _together(files, fixed, str(pattern), reading)


def _within(folder: File, reading: Reading) -> Source:
    """The files in a folder and below it; those that begin with a point or a dash below are not."""
    depth = len(folder.parts())
    seen = [
        file for file in folder.within()
        if not any(word.startswith((".", "_")) for word in file.parts()[depth:])
    ]  # fmt: skip
    other = [file for file in seen if format_of(file.name) is None and reading.format is None]
    if other or not seen:
        came = f"{other[0]}, which is none" if other else "none"
        raise SourceError(
            f"{_WHERE}: the folder {folder} must hold files of one format ({', '.join(FORMATS)}), "
            f'got {came}. Name those that are meant by a pattern, such as "{folder}/*.parquet".'
        )
    return _together(seen, depth, str(folder), reading)


def _together(files: Sequence[File], depth: int, name: str, reading: Reading) -> Source:
    """Some files as one source, in natural order unless the user gave one.

    Folders behind the first ``depth`` words of the path may tell columns.
    """
    listed = name.endswith(" files")
    told = [{} if listed else hive(file.parts()[depth:-1]) for file in files]
    if any(list(one) != list(told[0]) for one in told):
        odd = next(i for i, one in enumerate(told) if list(one) != list(told[0]))
        raise SourceError(
            f"{_WHERE}: all files of {name} must lie in folders of the same keys, "
            f"{list(told[0])} as {files[0]}, got {list(told[odd])} for {files[odd]}. "
            "Move the file, or name those that are meant by a pattern."
        )
    given = list(zip(files, told, strict=True))
    if not listed:
        given.sort(key=lambda pair: natural(str(pair[0])))
    given = [pair for pair in given if not reading.is_empty(pair[0])] or given
    if len(given) == 1 and not told[0]:
        return reading.file(given[0][0])
    return Parts(given, name, reading)


def read(
    source: str | os.PathLike[str] | IO[bytes] | IO[str] | TableLike | Iterable[object],
    *,
    target: str | int | Sequence[str | int] | None = None,
    time: str | int | None = None,
    drop: Sequence[str | int] = (),
    columns: Sequence[str | int] | None = None,
    block: int | None = None,
    types: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    na: str | Sequence[str] = (),
    decimal: str = ".",
    thousands: str = "",
    date_format: str | None = None,
    format: str | None = None,  # noqa: A002  as pandas and everyone has it
    delimiter: str | None = None,
    header: bool | Sequence[str] = True,
    missing: str = "keep",
    bad_rows: str = "error",
    leave_unterminated: int | None = None,
    start: int = 0,
) -> Stream:
    r"""Rows from wherever they come, as a stream of typed blocks.

    Parameters
    ----------
    source : path, str, file object, DataFrame, array, (X, y), iterable
        - the path of a file: ``.csv``, ``.tsv``, ``.jsonl`` (``.ndjson``), ``.parquet``,
          ``.arrow`` (``.feather``, ``.arrows``); but for Parquet also packed, as ``.gz``,
          ``.bz2``, ``.xz`` or ``.zst``;
        - a pattern, such as ``"logs/*.csv"``; a list of paths; a folder of such files, of which
          parts that are called ``key=value`` are columns. They are read one after the other;
        - the address of any of these, as fsspec takes it: ``"s3://…"``, ``"https://…"``;
        - ``"-"``, or an open file object, read once: CSV, unless the first bytes or ``format`` say
          otherwise;
        - the name of a data set, see :func:`onepass.stream.datasets`;
        - a DataFrame of any library that narwhals knows (pandas, polars, pyarrow, …);
        - an array of shape (n, d), whose columns are called x0, x1, …, or by their number;
        - a tuple ``(X, y)`` of an array or frame and its answers;
        - an iterable of dicts, or of pairs (x, y) with x a dict or an array of shape (d,).
    target : str, int or list of them, optional
        The column of answers; a list gives answers of shape (n, c). Rows that lack an answer are
        skipped and counted. None for features alone, or where the source brings its answers, or
        for the usual target of a data set; () for none there too.
    time : str or int, optional
        The column that says when a row happened. It stays among the features unless dropped.
    drop : sequence of str or int
        Columns that are not to be features.
    columns : sequence of str or int, optional
        The only columns that are to be features. By default all but the target.
    block : int, optional
        Rows a block, at least 1. By default 1024 to 8192, about 2 MiB of numbers; 1024 of what can
        be read only once, for its rows may come slowly. It changes the speed alone.
    types : dict of str to str, optional
        Kinds of columns, ``"number"``, ``"truth"``, ``"text"`` or ``"date"``. The others have the
        kind of their first values: of the first 4 MiB of a CSV file.
    dtypes : dict of str to str, optional
        The same for columns that may be there, such as ``model.dtypes_`` of a learned Pipeline:
        columns that the source lacks are passed over. ``types`` go before them.
    na : str or sequence of str
        Of CSV: further spellings of a missing value, such as ``("?", "-")``, in every column.
    decimal, thousands : str
        Decimal and thousands separator of numbers in text; no thousands separator by default. In
        sources other than CSV, text is read as numbers only where ``types`` says so.
    date_format : str, optional
        Format of dates in text, for ``strptime``, such as ``"%d/%m/%Y"``; a time of day may
        follow it. Without it ISO 8601, ``YYYY/MM/DD``, ``DD.MM.YYYY``, ``Mon D YYYY``,
        ``D Mon YYYY`` and ``YYYY-MM`` are known, and ``MM/DD/YYYY`` or ``DD/MM/YYYY`` where the
        values tell which it is.
    format : {"csv", "tsv", "jsonl", "parquet", "arrow"}, optional
        What a file is, where its suffix or first bytes do not tell.
    delimiter : str, optional
        Of CSV: what stands between two fields, one character; a comma by default.
    header : bool or sequence of str
        Of CSV: whether the first line holds the columns' names, or else their names. With False
        they are called x0, x1, ….
    missing : {"keep", "skip", "error"}
        What becomes of rows that lack a feature: they are kept, for the model to impute; or
        skipped and counted, as rows without an answer are; or refused, with row and column.
    bad_rows : {"error", "skip"}
        How to handle rows that cannot be read: lines of CSV and JSON with too many or too few
        fields, in another encoding or damaged, rows of an iterable in another form than the first,
        values that are not of their column's kind, and infinite numbers. Skipped rows are counted;
        a warning (:class:`~onepass.errors.RowsRefusedWarning`) at the end of the stream names the
        first. A quotation mark of CSV that is not closed is an error all the same.
    leave_unterminated : int, optional
        Of CSV and JSON Lines: leave a last row unread that no line break ends (outside of quotation
        marks), as it may still be written, if it has this number or a higher one. By default it is
        read.
    start : int
        How many of the source's first rows to pass over, those without an answer counted too. The
        rows after them are those of the whole stream, of the same kinds; where ``start`` is the
        ``rows_read`` of a stream that was left between two blocks, so are the blocks.

    Returns
    -------
    Stream

    Raises
    ------
    SourceError
        If the source cannot be opened or read, or a value is not of its column's kind.
    ColumnError
        If a column was named that the source has not, or has twice.
    ParameterError
        If an option is out of range or does not go with the source, or the target is a feature
        too.
    ShapeError, TypeMismatchError
        If an array or iterable has no rows of features; numbers are in a spelling or dates in an
        order that the options do not name; or more than nine in ten values of a target in text are
        numbers and some are not.
    MissingExtraError
        If a file lies at an address for which fsspec needs a package that is not installed.

    Notes
    -----
    Memory is bounded by the block and some mebibytes, whatever the length of the file, also where
    a Parquet file is a single row group; of Arrow by its largest record batch. Text must be in
    UTF-8. Empty fields, ``NA``, ``NaN`` and ``null`` are missing. Of a pipe, 4 MiB or all there is
    are awaited before the first block is given; rows that come slowly are better given as an
    iterable. A row of JSON Lines is a line with one object, whatever the file's size. Missing
    features stay missing: to fill them is the model's part. A column of
    text of which at least a tenth of the first values are numbers, dates, times of day or truth
    values, and others are not, stays text with one warning
    (:class:`~onepass.errors.MixedColumnWarning`). Times of day and durations are numbers of
    seconds, and what is in a struct is a column of its own.

    Examples
    --------
    >>> import io
    >>> import onepass.stream
    >>> text = io.StringIO("speed,gear,load\n10,low,1.5\n,high,2.5\n30,low,\n")
    >>> (rows,) = onepass.stream.read(text, target="load")
    >>> rows.X.row(1)
    {'speed': nan, 'gear': 'high'}
    >>> rows.skipped, rows.y.sum()
    (1, np.float64(4.0))
    """
    asked, expected = checked_types(types, _WHERE), checked_types(dtypes, _WHERE)
    reading = Reading(
        format=format,
        delimiter={"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        header=_header(header),
        na=(na,) if isinstance(na, str) else tuple(map(str, na)),
        dropped=tuple(name for name in _texts(drop) if name not in _texts(time)),
        literals=Literals(decimal, thousands, date_format),
        only=None if columns is None else (*_texts(columns), *_texts(target), *_texts(time)),
        skip=bad_rows == "skip",
        leave=leave_unterminated,
        typed=(*expected, *asked),
    )
    n_rows = task = None
    if isinstance(source, str) and _names_a_set(source):
        known = catalogue.find_entry(source)
        n_rows = known.rows
        task = known.task if target is None or target == known.target else None
        target = known.target if target is None else target
        time = known.time if time is None else time
        drop = (*known.drop, *drop) if columns is None else drop
        opened: Source = catalogue.opened(source)
        reading.check(None, f"the data set {source}")
    else:
        opened = _open_source(source, reading)
    selection = _selection(opened, target, time, drop, columns, missing, bad_rows)
    options = reading.given | {"missing": missing, "bad_rows": bad_rows}
    usual = ("missing", "keep"), ("bad_rows", "error")
    return Stream(
        opened, selection, block=block, types=asked, n_rows=n_rows, task=task, dtypes=expected,
        literals=reading.literals, start=start,
        read={key: value for key, value in options.items() if (key, value) not in usual},
    )  # fmt: skip


def _texts(names: str | int | Iterable[str | int] | None) -> tuple[str, ...]:
    """Those of some names of columns that are text."""
    given = [names] if isinstance(names, (str, int)) or names is None else list(names)
    return tuple(name for name in given if isinstance(name, str))


def _header(header: Any) -> bool | tuple[str, ...]:
    """The header as the formats take it."""
    if isinstance(header, (bool, np.bool_)):
        return bool(header)
    names = () if isinstance(header, str) else tuple(header)
    if not names or not all(
        isinstance(n, str) and n and first_unencodable([n]) is None for n in names
    ):
        raise ParameterError(
            f"{_WHERE}: `header` must be True, False or the columns' names, got {header!r}. Give "
            "a list of names, or False to have them called x0, x1 and so on."
        )
    return names


def _selection(
    opened: Source,
    target: str | int | Sequence[str | int] | None,
    time: str | int | None,
    drop: Iterable[str | int],
    columns: Iterable[str | int] | None,
    missing: str,
    bad_rows: str,
) -> ColumnSelection:
    """The roles of columns; numbers of columns as names."""
    known = opened.columns() if isinstance(opened, (Matrix, Pair)) else None

    def named(name: object) -> str:
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            if known is None or not -len(known) <= name < len(known):
                raise ColumnError(
                    f"{_WHERE}: {opened.name} must be asked for columns "
                    + ("by their names" if known is None else f"0 to {len(known) - 1}")
                    + f", got {name}. Check which columns it has."
                )
            return known[name]
        return str(name)

    def listed(names: str | int | Iterable[str | int]) -> list[str]:
        return [named(name) for name in ([names] if isinstance(names, (str, int)) else names)]

    single = target is None or isinstance(target, (str, int, np.integer))
    return ColumnSelection(
        target=None if target is None else named(target) if single else listed(target),
        time=None if time is None else named(time),
        drop=tuple(listed(drop)),
        columns=None if columns is None else tuple(listed(columns)),
        where=f"{_WHERE}: {opened.name}",
        missing=missing,
        bad_rows=bad_rows,
    )


def _names_a_set(source: str) -> bool:
    return source in catalogue.names() and not Path(source).exists()
