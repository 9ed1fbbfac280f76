"""Read: one door for rows from files, pipes, frames, arrays, iterables and named data sets."""

import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onepass.errors import ColumnError, ParameterError, SourceError, TypeMismatchError
from onepass.stream import catalogue
from onepass.stream.arrays import Frame, Matrix, Pair
from onepass.stream.choice import Choice
from onepass.stream.delimited import Delimited
from onepass.stream.iterables import OneByOne
from onepass.stream.kinds import checked_types
from onepass.stream.parquet import Parquet
from onepass.stream.pieces import Source
from onepass.stream.stream import Stream
from onepass.table import is_frame

__all__ = ["read"]

_WHERE = "op.stream.read"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SUFFIXES = ".csv, .tsv, .csv.gz, .tsv.gz, .parquet"


def read(
    source: Any,
    *,
    target: str | int | Sequence[str | int] | None = None,
    time: str | int | None = None,
    drop: Sequence[str | int] = (),
    columns: Sequence[str | int] | None = None,
    block: int = 1024,
    types: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    na: str | Sequence[str] = (),
    start: int = 0,
) -> Stream:
    r"""Rows from wherever they come, as a stream of typed blocks.

    Parameters
    ----------
    source : path, str, file object, DataFrame, array, (X, y), iterable
        - the path of a file: ``.csv``, ``.tsv``, either with ``.gz``, or ``.parquet``;
        - ``"-"``, or an open file object: CSV from standard input, or from there, read once;
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
    block : int
        Rows a block, at least 1.
    types : dict of str to str, optional
        Kinds of columns, ``"number"``, ``"truth"``, ``"text"`` or ``"date"``. The others have the
        kind of their first values: of the first 4 MiB of a CSV file.
    kinds : dict of str to str, optional
        The same for columns that may be there, such as ``model.kinds_`` of a learned Pipeline:
        columns that the source lacks are passed over. ``types`` go before them.
    na : str or sequence of str
        Of CSV: further spellings of a missing value, such as ``("?", "-")``, in every column.
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
        If ``block``, ``start``, ``types`` or ``na`` are out of range, or the target is a feature
        too.
    ShapeError, TypeMismatchError
        If an array or iterable has no rows of features, or more than nine in ten answers of a CSV
        file are numbers and some are not.
    MissingExtraError
        If a file is to be read and pyarrow is not installed: ``pip install 'onepass[files]'``.

    Notes
    -----
    Memory is bounded by the block and some mebibytes, whatever the length of the file, also where
    a Parquet file is a single row group. A CSV file must be in UTF-8 and have a line of names.
    Empty fields, ``NA``, ``NaN`` and ``null`` are missing. Of a pipe, 4 MiB or all there is are
    awaited before the first block is given; rows that come slowly are better given as an iterable.
    Missing features stay missing: to fill them is the model's part. A column of a CSV file that is
    text although more than nine in ten of its first values are numbers is warned of, once
    (:class:`~onepass.errors.MixedColumnWarning`).

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
    asked, expected = checked_types(types, _WHERE), checked_types(kinds, _WHERE)
    spelt = [na] if isinstance(na, str) else [str(word) for word in na]
    n_rows = task = None
    if isinstance(source, str) and _names_a_set(source):
        known = catalogue.entry(source)
        n_rows = known.rows
        task = known.task if target is None or target == known.target else None
        target = known.target if target is None else target
        time = known.time if time is None else time
        drop = (*known.drop, *drop) if columns is None else drop
        opened: Source = catalogue.opened(source)
    else:
        opened = _opened(source, spelt)
    odd = None
    if isinstance(opened, Delimited):
        odd = opened.oddities
    elif spelt:
        raise ParameterError(
            f"{_WHERE}: `na` must be left out unless the source is CSV or TSV, got {spelt} for "
            f"{opened.name}. Put None or nan there in the source."
        )
    choice = _choice(opened, target, time, drop, columns)
    return Stream(
        opened, choice, block=block, types=asked, n_rows=n_rows, task=task, kinds=expected,
        oddities=odd, start=start, read={"na": spelt} if spelt else {},
    )  # fmt: skip


def _choice(opened: Source, target: Any, time: Any, drop: Any, columns: Any) -> Choice:
    """The columns' parts; numbers of columns as names."""
    known = opened.columns() if isinstance(opened, (Matrix, Pair)) else None

    def named(name: Any) -> str:
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            if known is None or not -len(known) <= name < len(known):
                raise ColumnError(
                    f"{_WHERE}: {opened.name} must be asked for columns "
                    + ("by their names" if known is None else f"0 to {len(known) - 1}")
                    + f", got {name}. Check which columns it has."
                )
            return known[name]
        return str(name)

    def listed(names: Any) -> list[str]:
        return [named(name) for name in ([names] if isinstance(names, (str, int)) else names)]

    single = target is None or isinstance(target, (str, int, np.integer))
    return Choice(
        target=None if target is None else named(target) if single else listed(target),
        time=None if time is None else named(time),
        drop=tuple(listed(drop)),
        columns=None if columns is None else tuple(listed(columns)),
        where=f"{_WHERE}: {opened.name}",
    )


def _names_a_set(source: str) -> bool:
    return source in catalogue.names() and not Path(source).exists()


def _opened(source: Any, na: Sequence[str]) -> Source:
    """The source that reads this."""
    if isinstance(source, str) and source == "-":
        return Delimited(getattr(sys.stdin, "buffer", sys.stdin), "standard input", na=na)
    if isinstance(source, (str, os.PathLike)):
        return _file(os.fspath(source), na)
    if isinstance(source, io.IOBase) or callable(getattr(source, "read", None)):
        name = getattr(source, "name", None)
        return Delimited(source, name if isinstance(name, str) else "the file object", na=na)
    return _held(source)


def _held(source: Any) -> Source:
    """The source that reads rows which are in memory, or are made one by one."""
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[0], Mapping):
        X, y = source
        return Pair(Frame(X) if is_frame(X) else Matrix(X), y)
    if is_frame(source):
        return Frame(source)
    if isinstance(source, np.ndarray) or hasattr(source, "nnz"):
        return Matrix(source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        return OneByOne(source)
    raise TypeMismatchError(
        f"{_WHERE}: `source` must be a path, a file object, a DataFrame, an array, (X, y) or an "
        f"iterable of rows, got {type(source).__name__}. Collect lazy frames first, and give "
        "columns as a DataFrame."
    )


def _file(given: str | bytes, na: Sequence[str]) -> Source:
    path = Path(os.fsdecode(given))
    name = path.name or str(path)
    packed = path.suffix.lower() == ".gz"
    suffix = (Path(path.stem) if packed else path).suffix.lower()
    known = suffix in _DELIMITERS or (suffix == ".parquet" and not packed)
    if path.is_dir():
        raise SourceError(
            f"{_WHERE}: {path} must be a file, got a directory. Name one of the files in it."
        )
    if not path.exists():
        sets = "" if known else f" Data sets by name are {', '.join(catalogue.names())}."
        raise SourceError(
            f"{_WHERE}: {path} must be a file, got nothing by that name. "
            f"Check the path, which is taken from {Path.cwd()}.{sets}"
        )
    if not known:
        raise SourceError(
            f"{_WHERE}: {path} must have one of the suffixes {_SUFFIXES}, got "
            f"{''.join(path.suffixes[-2:]) or 'none'!r}. Rename the file, or convert it."
        )
    if suffix == ".parquet":
        return Parquet(path, name)
    return Delimited(path, name, delimiter=_DELIMITERS[suffix], na=na)
