"""Sources: protocol, sources in memory, prefetching, and inference of the task.

A source yields its rows in order, in chunks of any length, which are divided into blocks.
:class:`~onepass.stream.dtypes.ColumnTypes` infers the types of columns and converts them. Iterables
yield rows one by one, as dicts or as (x, y) pairs.

The task is inferred from the targets of the first rows:

======================================= ==============
targets of the first rows               task
======================================= ==============
text                                    classification
0 and 1, both, and no other numbers     classification
other numbers                           regression
======================================= ==============

Booleans are 0 and 1 in every table. Other numbers are never inferred to be labels: 0 to 9 may be
digits or counts. The user can set the task. If a command infers labels from 0 and 1, another number
later is an error: they were counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Protocol, TypeAlias, TypeVar

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from onepass.errors import (
    ColumnError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.types import Array, ArrayLike
from onepass.validation.frames import plain_array
from onepass.validation.rows import Rows
from onepass.validation.table import Table, is_frame, series_values

HEAD_ROWS = 1024
"""Number of rows used for inference and fingerprints, independent of the block size."""

RawColumn: TypeAlias = Array | pa.Array | pa.ChunkedArray | list[Any]
"""A column of a source: a NumPy or Arrow array, or Python values (None is missing)."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive rows of a source.

    Parameters
    ----------
    columns : dict of str to RawColumn
        The columns of the rows.
    n : int
        The number of rows.
    text_format : {"", "csv", "json"}
        The format of text: "csv", in which text may be of any type; "json", in which booleans of
        a target are labels; or "".
    targets : dict of str to RawColumn, optional
        The targets of the rows, if the source has separate targets.
    flat : bool
        Whether separate targets have shape (n,) rather than (n, c).
    fraction : float, optional
        Fraction of the source read after this chunk, in [0, 1]; None if unknown.
    bad : dict of int to str
        Errors of invalid rows to skip, by index in the chunk. These rows are contained in
        ``columns``.
    """

    columns: Mapping[str, RawColumn]
    n: int
    text_format: str = ""
    targets: Mapping[str, RawColumn] | None = None
    flat: bool = True
    fraction: float | None = None
    bad: Mapping[int, OnepassError] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        """The converted columns as a table."""
        return Table({name: np.asarray(column) for name, column in self.columns.items()}, self.n)


class Source(Protocol):
    """Protocol of sources: the members that every source must define.

    To add a source, write a class with these members, which may inherit from :class:`BaseSource`,
    and return it from :func:`onepass.stream.read`; if it reads files, list its format and suffixes
    in :mod:`onepass.stream.formats`. :class:`onepass.stream.Stream` selects and converts columns
    and creates blocks. If a row cannot be read, the source raises a SourceError with its position.
    """

    name: str
    """The name in messages: a file name or a description."""
    n_rows: int | None
    """The number of rows, if known without reading them."""
    repeatable: bool
    """Whether the source can be read again from its beginning."""
    prefetch: bool
    """Whether blocks may be read ahead in another thread."""

    def columns(self) -> list[str] | None:
        """Return the column names; None if they are unknown before the rows are read."""

    def located(self, row: int) -> str:
        """Return the location of a row as text (file and row), by its number from 0."""

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in order, including bad rows; if ``repeatable``, each call restarts.

        If the iterator is closed before its end, it closes the files that it opened.

        Parameters
        ----------
        names : sequence of str, optional
            The requested columns; None for all.
        block : int
            The number of rows per block. A chunk should not have many times more rows.
        start : int
            The number of first rows that the caller skips. They must be yielded nevertheless, since
            the caller counts them. After the first :data:`HEAD_ROWS` rows, a chunk of only skipped
            rows may have empty Arrow arrays, which have a type, as columns. A source may ignore
            this argument.
        """


class BaseSource:
    """Common members of most sources.

    Parameters
    ----------
    name : str
        The name in messages.
    n_rows : int, optional
        The number of rows, if known.
    repeatable : bool
        Whether the source can be read again from its beginning.
    prefetch : bool, optional
        Whether blocks may be read ahead; equal to ``repeatable`` by default.
    """

    def __init__(
        self,
        name: str,
        n_rows: int | None = None,
        *,
        repeatable: bool,
        prefetch: bool | None = None,
    ) -> None:
        self.name, self.n_rows = name, n_rows
        self.repeatable = repeatable
        self.prefetch = repeatable if prefetch is None else prefetch

    def located(self, row: int) -> str:
        """Return the location of a row as text."""
        return f"{self.name}: row {row} (counting from 0)"


class Matrix(BaseSource):
    """Rows of an array of shape (n, d), with columns x0, x1, … unless named.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows.
    name : str
        The name in messages.
    header : sequence of str, optional
        The column names.

    Raises
    ------
    ShapeError
        If X does not have two dimensions.
    TypeMismatchError
        If X is sparse.
    """

    def __init__(
        self, X: ArrayLike, name: str = "array", header: Sequence[str] | None = None
    ) -> None:
        if hasattr(X, "toarray") and hasattr(X, "nnz"):
            raise TypeMismatchError(
                f"the array must be dense, got the sparse {type(X).__name__}. Sparse "
                "input is not supported; convert with .toarray().",
            )
        array = np.asarray(X)
        if array.ndim != 2:
            raise ShapeError(
                f"the array must have shape (n, d), got {array.shape}. Reshape it: "
                "X.reshape(-1, 1) for a single feature.",
            )
        super().__init__(name, array.shape[0], repeatable=True, prefetch=False)
        self._array = array
        self._header = [f"x{j}" for j in range(array.shape[1])] if header is None else list(header)

    def columns(self) -> list[str]:
        """Return the column names."""
        return list(self._header)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in blocks."""
        del start  # rows in memory are skipped quickly
        wanted = set(self._header if names is None else names)
        n = len(self._array)
        for i in range(0, n, block):
            rows = self._array[i : i + block].T
            pairs = zip(self._header, rows, strict=True)
            columns = {name: column for name, column in pairs if name in wanted}
            yield Chunk(columns, rows.shape[1], fraction=(i + rows.shape[1]) / n)


class Frame(BaseSource):
    """Rows of a DataFrame of any library that narwhals supports.

    Parameters
    ----------
    frame : DataFrame
        The rows.
    name : str
        The name in messages.

    Raises
    ------
    ColumnError
        If column names are not unique, or have several levels.
    """

    def __init__(self, frame: Any, name: str = "frame") -> None:
        try:
            self._frame: Any = nw.from_native(frame, eager_only=True)
        except ValueError as error:
            raise ColumnError(
                f"the columns of the frame must have unique names, got: {error}. Rename "
                "the columns.",
            ) from error
        for label in self._frame.columns:
            if isinstance(label, tuple):  # a MultiIndex of pandas
                raise ColumnError(
                    f"the columns of the frame must have names of one level, got {label!r}. Join "
                    "the levels: frame.columns = ['_'.join(map(str, c)) for c in frame.columns].",
                )
        super().__init__(name, len(self._frame), repeatable=True, prefetch=False)

    def columns(self) -> list[str]:
        """Return the column names."""
        return [str(name) for name in self._frame.columns]

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in blocks."""
        del start  # rows in memory are skipped quickly
        own = dict(zip(self.columns(), self._frame.columns, strict=True))
        frame = self._frame.select([nw.col(own[n]) for n in (own if names is None else names)])
        n = len(frame)
        shared = {name: plain_array(frame.get_column(name).to_native()) for name in frame.columns}
        others = [name for name, column in shared.items() if column is None]
        for i in range(0, n, block):
            rows = slice(i, min(i + block, n))
            part: Any = frame[rows].select(others) if others else None
            columns = {
                str(name): _column(part.get_column(name)) if column is None else column[rows]
                for name, column in shared.items()
            }
            yield Chunk(columns, rows.stop - i, fraction=rows.stop / n)


def _column(series: Any) -> RawColumn:
    """Convert a column of a frame; integers unchanged, as float64 is not exact above 2**53."""
    array = plain_array(series.to_native())
    if array is not None:
        return array
    if series.dtype in (nw.Categorical, nw.Enum):
        return pa.array(series_values(series), pa.dictionary(pa.int32(), pa.string()))
    column: RawColumn = series.to_arrow() if series.dtype.is_integer() else series_values(series)
    return column


class Pair(BaseSource):
    """Features and separate targets, ``(X, y)``.

    Parameters
    ----------
    features : Matrix or Frame
        The rows.
    y : array-like of shape (n,) or (n, c), or DataFrame
        Their targets.

    Raises
    ------
    ShapeError
        If the numbers of rows and targets differ.
    """

    def __init__(self, features: Matrix | Frame, y: ArrayLike) -> None:
        targets = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        n = features.n_rows
        if targets.ndim not in {1, 2} or len(targets) != n:
            raise ShapeError(
                f"`y` must have shape ({n},) or ({n}, c), one target for each row of X, "
                f"got {targets.shape}. Check that X and y come from the same rows.",
            )
        super().__init__(features.name, n, repeatable=True, prefetch=False)
        self._features = features
        flat = targets.ndim == 1
        names = ["y"] if flat else [f"y{j}" for j in range(targets.shape[1])]
        self._flat = flat
        self._targets = dict(zip(names, (targets[:, None] if flat else targets).T, strict=True))

    def columns(self) -> list[str]:
        """Return the names of the features."""
        return self._features.columns()

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in blocks."""
        at = 0
        for chunk in self._features.chunks(names, block, start):
            rows = slice(at, at := at + chunk.n)
            targets = {name: column[rows] for name, column in self._targets.items()}
            yield replace(chunk, targets=targets, flat=self._flat)


class RowIterable(BaseSource):
    """Rows of an iterable.

    A row is a dict of named features, or a pair (x, y). x is a dict or an array of shape (d,). y is
    a number, a label, None if unknown, or, for several targets, a dict or an array of shape (c,).
    Dicts need not have the same keys. DataFrames of several rows each may take the place of rows.

    Parameters
    ----------
    rows : iterable
        The rows. A list can be read repeatedly, an iterator such as a generator only once.
    name : str
        The name in messages.
    skip : bool
        Whether rows of another form than the first one are skipped.
    """

    def __init__(
        self, rows: Iterable[object], name: str = "iterable", *, skip: bool = False
    ) -> None:
        n_rows = len(rows) if isinstance(rows, Sequence) else None
        if isinstance(rows, Sequence) and rows and is_frame(rows[0]):
            n_rows = sum(map(len, rows))
        super().__init__(name, n_rows, repeatable=not isinstance(rows, Iterator), prefetch=False)
        self._rows, self._skip = rows, skip

    def columns(self) -> None:
        """Return None: the columns are unknown before the rows are read."""

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows in blocks; no row is requested before it is needed."""
        del names, start  # the caller selects and skips
        rows = iter(self._rows)
        first = list(islice(rows, 1))
        if first and is_frame(first[0]):
            for frame in chain(first, rows):
                for chunk in Frame(frame, self.name).chunks(None, block):
                    yield replace(chunk, fraction=None)
            return
        rows, done = chain(first, rows), 0
        parts: _RowSplitter | None = None
        while taken := list(islice(rows, block)):
            parts = parts or _RowSplitter(self.located, pairs=_is_pair(taken[0]))
            split_row, bad = [], {}
            for i, row in enumerate(taken):
                try:
                    split_row.append(parts.split_row(row, done + i))
                except OnepassError as error:
                    if not self._skip:
                        raise
                    split_row.append(({}, {}))
                    bad[i] = error
            done += len(taken)
            targets = columns_of_dicts([y for _, y in split_row]) if parts.pairs else None
            fraction = done / self.n_rows if self.n_rows else None
            yield Chunk(
                columns_of_dicts([x for x, _ in split_row]), len(taken), targets=targets,
                flat=parts.flat, fraction=fraction, bad=bad,
            )  # fmt: skip


def columns_of_dicts(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """Transpose rows given as dicts to columns; absent values are None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {str(name): [row.get(name) for row in rows] for name in names}


def _is_pair(row: object) -> bool:
    return isinstance(row, (tuple, list)) and len(row) == 2


class _RowSplitter:
    """Splits rows of one form into features and targets; the first row sets the form."""

    def __init__(self, located: Callable[[int], str], *, pairs: bool) -> None:
        self._located = located
        self.pairs, self.flat = pairs, True
        self._form = ""  # form of the targets

    def split_row(self, row: Any, number: int) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Return the features and the targets of a row by name."""
        good = _is_pair(row) if self.pairs else isinstance(row, Mapping)
        if not good:
            form = "a pair (x, y), like the first row" if self.pairs else "a dict of named features"
            raise TypeMismatchError(
                f"{self._located(number)} must be {form}, got {type(row).__name__}. Pass all rows "
                "in one form: dicts, pairs (x, y), or one array of shape (n, d).",
            )
        x, y = row if self.pairs else (row, None)
        if not isinstance(x, Mapping):
            array = _array(x)
            if array.ndim != 1:
                raise ShapeError(
                    f"{self._located(number)}: `x` must be a dict or have shape (d,), "
                    f"got shape {array.shape}. Pass one row at a time.",
                )
            x = {f"x{j}": value for j, value in enumerate(array.tolist())}
        return x, {} if y is None else self._targets(y, number)

    def _targets(self, y: Any, number: int) -> Mapping[Any, Any]:
        """Return the targets of a row by name."""
        shape = _array(y).shape
        form = "a dict" if isinstance(y, Mapping) else f"shape {shape}"
        if len(shape) > 1 or self._form not in {"", form}:
            raise ShapeError(
                f"{self._located(number)}: `y` must be one value per row, or have equal "
                f"shape in all rows, got {form}{self._form and f' after {self._form}'}. "
                "Pass the same targets in every row.",
            )
        self._form, self.flat = form, form == "shape ()"
        if isinstance(y, Mapping):
            return y
        return {"y": y} if self.flat else {f"y{j}": value for j, value in enumerate(y)}


def _array(values: Any) -> Array:
    """Convert values other than arrays to objects: NumPy would convert mixed numbers to text."""
    return np.asarray(values, dtype=None if hasattr(values, "__array__") else object)


_Item = TypeVar("_Item")


def prefetch(items: Iterator[_Item], depth: int) -> Generator[_Item]:
    """Request the items of an iterator ahead of time in another thread.

    Items, order and errors equal those of the iterator. The thread ends with the iterator, when
    this generator is closed or garbage-collected, and when the interpreter exits.

    Parameters
    ----------
    items : iterator
        The iterator, which is closed at the end.
    depth : int
        Number of items to request ahead.

    Examples
    --------
    >>> sum(prefetch(iter(range(5)), depth=2))
    10
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="onepass reads ahead")
    futures: deque[Future[list[_Item]]] = deque()

    def order() -> None:
        with suppress(RuntimeError):  # when the interpreter exits
            futures.append(pool.submit(_next, items))

    try:
        for _ in range(depth):
            order()
        while futures:
            if not (taken := futures.popleft().result()):
                return
            order()
            yield from taken
        yield from items
    finally:
        with suppress(RuntimeError):  # a thread cannot join itself
            pool.shutdown(cancel_futures=True)
        if hasattr(items, "close"):
            items.close()


def _next(items: Iterator[_Item]) -> list[_Item]:
    """Return a list of the next item, empty at the end: a future cannot raise StopIteration."""
    return list(islice(items, 1))


_MIN_ROWS = 10  # minimum number of labels for the check


def check_labels(targets: Sequence[Array], place: str, target: str) -> None:
    """Raise if nearly all text targets differ, since each would be a class.

    Raises
    ------
    TypeMismatchError
        If more than 90 % of the first text targets are different.
    """
    labels = [label for y in targets if y.dtype.kind == "O" for label in y.tolist()][:HEAD_ROWS]
    different = len(set(labels))
    if len(labels) >= _MIN_ROWS and different > 0.9 * len(labels):
        raise TypeMismatchError(
            f"{place} must contain numbers, or labels that repeat, got {different:,} different "
            f"texts in {len(labels):,} rows, such as {labels[0]!r}. Pass types={{{target!r}: "
            f"'number'}} (--type {target}=number), with decimal= and thousands= (--decimal, "
            f"--thousands) as needed, if they are numbers; types={{{target!r}: 'text'}} "
            f"(--type {target}=text) if they are labels."
        )


def infer_task(targets: Sequence[Array]) -> str:
    """Infer the task from targets.

    Parameters
    ----------
    targets : sequence of ndarrays of shape (n,) or (n, c)
        Targets of the first blocks; only the first :data:`HEAD_ROWS` rows are used.

    Returns
    -------
    task : {"regression", "classification"}

    Examples
    --------
    >>> infer_task([np.array([0.0, 1.0, 1.0])]), infer_task([np.array([0.0, 1.0, 1.5])])
    ('classification', 'regression')
    >>> len(infer_task([np.zeros(3), np.array(["wet", "dry"], dtype=object)]))
    14
    """
    if any(y.dtype.kind == "O" for y in targets):
        return "classification"
    values = np.concatenate([y.astype(np.float64).ravel() for y in targets] or [np.empty(0)])
    single = all(y.ndim == 1 for y in targets)
    found = set(np.unique(values[:HEAD_ROWS]).tolist())
    return "classification" if single and found == {0.0, 1.0} else "regression"


def check_binary(rows: Rows) -> None:
    """Raise if a target is a number other than 0 and 1, after a task was inferred from such.

    Raises
    ------
    ParameterError
    """
    if rows.y is None or rows.y.ndim > 1 or rows.y.dtype.kind != "f":
        return
    other = np.flatnonzero((rows.y != 0) & (rows.y != 1) & ~np.isnan(rows.y))
    if len(other):
        i = int(other[0])
        raise ParameterError(
            f"{rows.located(i)}: the target must be 0 or 1, like those of the first rows, which "
            f"were taken for labels, got {rows.y[i]:g}. Set the task: --task regression for "
            "numbers, --task classification for labels."
        )
