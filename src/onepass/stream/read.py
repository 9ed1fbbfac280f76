"""Function ``read``: streams from files, pipes, frames, arrays, iterables and data sets."""

from __future__ import annotations

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
    calling,
    did_you_mean,
    first_unencodable,
)
from onepass.stream import catalogue
from onepass.stream.choice import ColumnSelection
from onepass.stream.dtypes import check_types
from onepass.stream.files import File
from onepass.stream.formats import (
    FORMATS,
    FileSequence,
    FoundFile,
    ReadOptions,
    format_of,
    hive_partitions,
    natural_key,
)
from onepass.stream.literals import TextParser
from onepass.stream.sources import Frame, Matrix, Pair, RowIterable, Source
from onepass.stream.stream import Stream
from onepass.validation.table import TableLike, is_frame


def _open_source(source: Any, reading: ReadOptions) -> Source:
    """Open the source that the user passed."""
    if isinstance(source, str) and source == "-":
        return reading.stream(getattr(sys.stdin, "buffer", sys.stdin), "standard input")
    if isinstance(source, FoundFile):
        return FileSequence([source], str(source.file), reading)
    if _is_path(source) or _is_list_of_paths(source):
        files, title = find_files(source, reading)
        files = [found for found in files if not reading.is_empty(found.file)] or files
        if len(files) == 1 and not files[0].partitions:
            return reading.file(files[0].file)
        return FileSequence(files, title, reading)
    chunked = hasattr(source, "get_chunk")  # pandas.read_csv(chunksize=...), an iterator of frames
    if isinstance(source, io.IOBase) or (callable(getattr(source, "read", None)) and not chunked):
        name = getattr(source, "name", None)
        return reading.stream(source, name if isinstance(name, str) else "the file object")
    in_memory = _in_memory(source, reading.skip)
    if reading.format is not None:
        raise ParameterError(
            "`format` must be omitted unless the source is a file, got "
            f"{reading.format!r} for {in_memory.name}. Omit it.",
        )
    reading.check(None, in_memory.name)
    return in_memory


def _in_memory(source: Any, skip: bool) -> Source:  # noqa: FBT001
    """Return a source for rows in memory or from an iterable."""
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
        "`source` must be a path, a file object, a DataFrame, an array, (X, y) or an "
        f"iterable of rows, got {type(source).__name__}. Collect lazy frames first, and "
        "pass columns as a DataFrame.",
    )


def _is_path(source: object) -> bool:
    return isinstance(source, (str, os.PathLike))


def _is_list_of_paths(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(map(_is_path, source))


def find_files(source: Any, reading: ReadOptions) -> tuple[list[FoundFile], str]:
    """Return the files of a source in order, and its name for messages.

    Parameters
    ----------
    source : path, address, pattern, folder, or list of paths and addresses
    reading : ReadOptions

    Raises
    ------
    SourceError
        If there is no such file, or a folder contains files of no known format.
    """
    if not _is_path(source):
        files = [_file(os.fsdecode(os.fspath(one))) for one in source]
        return [FoundFile(file, {}) for file in files], f"{len(files)} files"
    text = os.fsdecode(os.fspath(source))
    place = File(text)
    if place.is_dir():
        return _folder_files(place, reading)
    if any(mark in str(place) for mark in "*?[") and not place.exists():
        return _pattern_files(place)
    return [FoundFile(_file(text), {})], text


def _file(text: str) -> File:
    """Return the file at an address; raise if it does not exist."""
    file = File(text)
    if not file.local:
        return file
    if not file.exists():
        known = format_of(file.name) is not None
        sets = "" if known else f" Named data sets are {', '.join(catalogue.names())}."
        raise SourceError(
            f"{file} must be a file, got a path that does not exist. Check the path, "
            "which is relative to "
            f"{Path.cwd()}.{sets}{'' if known else did_you_mean(text, catalogue.names())}",
        )
    return file


def _pattern_files(pattern: File) -> tuple[list[FoundFile], str]:
    """Return the files that match a pattern."""
    files = pattern.matching()
    if not files:
        raise SourceError(
            f"the pattern {pattern} must match at least one file, got none. Check the "
            f"pattern, which is relative to {Path.cwd()}.",
        )
    words = pattern.parts()
    fixed = next(i for i, word in enumerate(words) if any(mark in word for mark in "*?["))
    return _ordered(files, fixed, str(pattern))


def _folder_files(folder: File, reading: ReadOptions) -> tuple[list[FoundFile], str]:
    """Return the files in a folder tree, except those beginning with "." or "_"."""
    depth = len(folder.parts())
    seen = [
        file for file in folder.within()
        if not any(word.startswith((".", "_")) for word in file.parts()[depth:])
    ]  # fmt: skip
    other = [file for file in seen if format_of(file.name) is None and reading.format is None]
    json = [file for file in seen if file.name.lower().endswith(".json")]
    other += json if len(json) < len(seen) else []  # beside tables, a description of them
    if other or not seen:
        got = f"{other[0]}, which has another format" if other else "none"
        raise SourceError(
            f"the folder {folder} must contain files of one format "
            f"({', '.join(FORMATS)}), got {got}. Select files by a pattern, such as "
            f'"{folder}/*.parquet".',
        )
    return _ordered(seen, depth, str(folder))


def _ordered(files: Sequence[File], depth: int, name: str) -> tuple[list[FoundFile], str]:
    """Return files in natural order; folders after the first ``depth`` parts may be columns."""
    found = [FoundFile(file, hive_partitions(file.parts()[depth:-1])) for file in files]
    keys = list(found[0].partitions)
    if odd := next((one for one in found if list(one.partitions) != keys), None):
        raise SourceError(
            f"all files of {name} must be in folders with the keys of {files[0]}, {keys}, got "
            f"{list(odd.partitions)} for {odd.file}. Move the file, or select files by a pattern.",
        )
    return sorted(found, key=lambda one: natural_key(str(one.file))), name


@calling("op.stream.read")
def read(
    source: str | os.PathLike[str] | IO[bytes] | IO[str] | TableLike | Iterable[object] | FoundFile,
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
    format: str | None = None,  # noqa: A002  as in pandas
    delimiter: str | None = None,
    header: bool | Sequence[str] = True,
    missing: str = "keep",
    bad_rows: str = "error",
    leave_unterminated: int | None = None,
    start: int = 0,
) -> Stream:
    r"""Read rows from any source as a stream of typed blocks.

    Parameters
    ----------
    source : path, str, file object, DataFrame, array, (X, y), iterable
        - the path of a file: ``.csv``, ``.tsv`` (``.tab``), ``.jsonl`` (``.ndjson``, ``.json``),
          ``.parquet``, ``.arrow`` (``.feather``, ``.arrows``); all but Parquet may be compressed,
          as ``.gz``, ``.bz2``, ``.xz``, ``.zst`` or ``.zip``;
        - a pattern, such as ``"logs/*.csv"``; a list of paths; a folder of such files, in which
          folders named ``key=value`` are columns. Files are read one after the other;
        - the address of any of these, in the syntax of fsspec: ``"s3://…"``, ``"https://…"``;
        - ``"-"`` for standard input, or an open file object, read once: CSV, unless the first bytes
          or ``format`` indicate another format;
        - the name of a data set (:func:`onepass.stream.datasets`);
        - a DataFrame of any library that narwhals supports (pandas, polars, pyarrow, …);
        - an array of shape (n, d), whose columns are x0, x1, … or their indices;
        - a tuple ``(X, y)`` of an array or frame and its targets;
        - an iterable of dicts, or of pairs (x, y) in which x is a dict or an array of shape (d,).
    target : str, int or list of them, optional
        The target column, or a list of them for targets of shape (n, c). Rows without a target are
        skipped and counted. None to read only features, for sources with separate targets, or for
        the usual target of a data set; () to read only the features of a data set.
    time : str or int, optional
        The column with the time of each row. It is also a feature unless it is dropped.
    drop : sequence of str or int
        Columns that are not features.
    columns : sequence of str or int, optional
        The only columns to use as features. By default all but the target.
    block : int, optional
        Number of rows per block, at least 1. By default 1024 to 8192, about 2 MiB of numbers; 1024
        for sources that can be read only once, whose rows may arrive slowly. It only affects speed.
    types : dict of str to str, optional
        Types of columns: ``"number"``, ``"bool"``, ``"text"`` or ``"date"``. By default types are
        inferred from the first values (the first 4 MiB of a CSV file).
    dtypes : dict of str to str, optional
        Types of columns, such as ``model.dtypes_`` of a fitted Pipeline. Unlike columns of
        ``types``, which take precedence, these columns may be absent.
    na : str or sequence of str
        CSV: further spellings of a missing value, such as ``("?", "-")``, in every column.
    decimal, thousands : str
        Decimal and thousands separators of numbers in text; no thousands separator by default. In
        sources other than CSV, text is parsed as numbers only in columns of ``types``.
    date_format : str, optional
        Format of dates in text, for ``strptime``, such as ``"%d/%m/%Y"``; a time of day may follow
        the date. By default ISO 8601, ``YYYY/MM/DD``, ``DD.MM.YYYY``, ``Mon D YYYY``,
        ``D Mon YYYY`` and ``YYYY-MM`` are recognised, and ``MM/DD/YYYY`` or ``DD/MM/YYYY`` if the
        values show which number is the month.
    format : {"csv", "tsv", "jsonl", "parquet", "arrow"}, optional
        The file format, if its suffix or first bytes do not determine it.
    delimiter : str, optional
        CSV: the field delimiter, one character; a comma by default.
    header : bool or sequence of str
        CSV: whether the first line contains the column names; or the column names. With False the
        names are x0, x1, ….
    missing : {"keep", "skip", "error"}
        How to handle rows with missing features: keep them, for the model to impute (default); skip
        and count them, like rows without a target; or raise an error with row and column.
    bad_rows : {"error", "skip"}
        How to handle invalid rows: lines of CSV and JSON that are damaged, have too many or too few
        fields or another encoding, rows of an iterable in another form than the first row, values
        of another type than their column, and infinite numbers. Skipped rows are counted; at the
        end of the stream a warning (:class:`~onepass.errors.RowsRefusedWarning`) names the first
        ones. An unclosed quotation mark in CSV is always an error.
    leave_unterminated : int, optional
        CSV and JSON Lines: skip the last row if it does not end with a line break (outside of
        quotation marks), and may thus be incomplete, and its number is at least this. By default
        the last row is always read.
    start : int
        Number of rows to skip at the beginning of the source, including rows without a target. The
        remaining rows and their types equal those of the whole stream; if ``start`` is
        ``rows_read`` of a stream that was stopped between two blocks, the blocks are equal too.

    Returns
    -------
    Stream

    Raises
    ------
    SourceError
        If the source cannot be opened or read, or a value does not have the type of its column.
    ColumnError
        If a named column does not exist, or exists twice.
    ParameterError
        If an option is out of range or incompatible with the source, or the target is also a
        feature.
    ShapeError, TypeMismatchError
        If an array or iterable has no rows of features, numbers or dates are in a format that no
        option specifies, or more than 90 %, but not all, of the values of a text target are
        numbers.
    MissingExtraError
        If a package that fsspec requires for the address is not installed.

    Notes
    -----
    Memory is bounded by one block plus a few mebibytes, independently of the length of the file and
    even if a Parquet file is a single row group; for Arrow, by the largest record batch. Text must
    be UTF-8. Empty fields, ``NA``, ``NaN`` and ``null`` are missing. The first block of a pipe is
    available after 4 MiB or at the end of the pipe; for rows that arrive slowly, use an iterable. A
    row of JSON Lines is one line with one object. Missing features remain missing; the model
    imputes them. A column is read as text, with one warning
    (:class:`~onepass.errors.MixedColumnWarning`), if at least a tenth of its first values, but not
    all, are numbers, dates, times of day or booleans. Times of day and durations are converted to
    seconds, and the fields of structs are columns.

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
    requested, expected = check_types(types), check_types(dtypes)
    reading = ReadOptions(
        format=format,
        delimiter={"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        header=_header(header),
        na=(na,) if isinstance(na, str) else tuple(map(str, na)),
        dropped=tuple(name for name in _text_names(drop) if name not in _text_names(time)),
        parser=TextParser(decimal, thousands, date_format),
        only=None
        if columns is None
        else (*_text_names(columns), *_text_names(target), *_text_names(time)),
        skip=bad_rows == "skip",
        leave=leave_unterminated,
        typed=(*expected, *requested),
    )
    n_rows = task = None
    if isinstance(source, str) and _is_dataset_name(source):
        known = catalogue.find_entry(source)
        n_rows = known.rows
        task = known.task if target is None or target == known.target else None
        target = known.target if target is None else target
        time = known.time if time is None else time
        drop = (*known.drop, *drop) if columns is None else drop
        opened: Source = known.opened(known.fetch_paths())
        reading.check(None, f"the data set {source}")
    else:
        opened = _open_source(source, reading)
    selection = _selection(opened, target, time, drop, columns, missing, bad_rows)
    options = reading.given | {"missing": missing, "bad_rows": bad_rows}
    usual = ("missing", "keep"), ("bad_rows", "error")
    return Stream(
        opened, selection, block=block, types=requested, n_rows=n_rows, task=task, dtypes=expected,
        parser=reading.parser, start=start,
        read={key: value for key, value in options.items() if (key, value) not in usual},
    )  # fmt: skip


def _text_names(names: str | int | Iterable[str | int] | None) -> tuple[str, ...]:
    """Return the column specifiers that are names, not indices."""
    given = [names] if isinstance(names, (str, int)) or names is None else list(names)
    return tuple(name for name in given if isinstance(name, str))


def _header(header: Any) -> bool | tuple[str, ...]:
    """Check ``header``, and convert names to a tuple."""
    if isinstance(header, (bool, np.bool_)):
        return bool(header)
    names = () if isinstance(header, str) else tuple(header)
    if not names or not all(
        isinstance(n, str) and n and first_unencodable([n]) is None for n in names
    ):
        raise ParameterError(
            f"`header` must be True, False or the column names, got {header!r}. Pass a "
            "list of names, or False for x0, x1, …",
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
    """Return the column selection, with column indices converted to names."""
    known = opened.columns() if isinstance(opened, (Matrix, Pair)) else None

    def named(name: object) -> str:
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            if known is None or not -len(known) <= name < len(known):
                raise ColumnError(
                    f"columns of {opened.name} must be "
                    + ("names" if known is None else f"names or indices 0 to {len(known) - 1}")
                    + f", got {name}. Check the columns of the source.",
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
        where=f"op.stream.read: {opened.name}",
        missing=missing,
        bad_rows=bad_rows,
    )


def _is_dataset_name(source: str) -> bool:
    return source in catalogue.names() and not Path(source).exists()
