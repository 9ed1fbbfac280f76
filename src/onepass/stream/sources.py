"""Sources: the protocol, arrays, frames and iterables in memory, reading ahead, and the task.

A source gives chunks of any length, in order, from which blocks are cut. Their columns are as they
come: :class:`~onepass.stream.dtypes.ColumnTypes` decides their types and converts them. Iterables
give rows one by one, as dicts or as (x, y) pairs.

The task is inferred from the targets of the first rows:

======================================= ==============
targets of the first rows               task
======================================= ==============
text                                    classification
0 and 1, both and nothing else          classification
any other numbers                       regression
======================================= ==============

Truth values are 0 and 1 in every table. No other numbers are taken for labels: 0 to 9 may be
digits, or counts. The user can set the task.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from onepass.errors import ColumnError, OnepassError, ShapeError, TypeMismatchError
from onepass.types import Array, ArrayLike
from onepass.validation.table import Table, series_values

__all__ = [
    "LOOKED_AT",
    "BaseSource",
    "Chunk",
    "Frame",
    "Matrix",
    "Pair",
    "RawColumn",
    "RowIterable",
    "Source",
    "ahead",
    "by_name",
    "check_labels",
    "suggested",
]

LOOKED_AT = 1024
"""How many rows are looked at, whatever the width of a block."""

RawColumn: TypeAlias = Array | pa.Array | pa.ChunkedArray | list[Any]
"""A column as a source gives it: an array of NumPy or Arrow, or Python values (None is missing)."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some consecutive rows as a source gives them.

    Parameters
    ----------
    columns : dict of str to RawColumn
        The rows' columns.
    n : int
        The number of rows.
    spelled : {"", "csv", "json"}
        How the values of text columns are spelled: as in CSV, where text may be of any type, or as
        in JSON, which quotes text; "" where columns have types of their own.
    answers : dict of str to RawColumn, optional
        The rows' targets, where the source has them apart from its columns.
    flat : bool
        Whether those targets are one value a row, shape (n,), rather than (n, c).
    fraction : float, optional
        How much of the source has been read once this chunk is, in [0, 1]; None if unknown.
    bad : dict of int to str
        Rows that are to be skipped because they cannot be read, by their place in the chunk, and
        the error of each. They are among the rows of ``columns``.
    """

    columns: Mapping[str, RawColumn]
    n: int
    spelled: str = ""
    answers: Mapping[str, RawColumn] | None = None
    flat: bool = True
    fraction: float | None = None
    bad: Mapping[int, str] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        """The columns as a table, once they are converted."""
        return Table({name: np.asarray(column) for name, column in self.columns.items()}, self.n)


class Source(Protocol):
    """A source of rows: the members that every source must define.

    To add a source, write a class with these members, which may inherit :class:`BaseSource`, and
    return it from :func:`onepass.stream.read`; if it reads files, list its format and suffixes in
    :mod:`onepass.stream.formats`. :class:`onepass.stream.Stream` does the rest: it chooses columns,
    converts them and cuts blocks. A row that cannot be read raises a SourceError that says where
    the row stands.
    """

    name: str
    """What messages call it: a file's name, or what it is."""
    n_rows: int | None
    """The number of rows, where it is known without reading them."""
    repeatable: bool
    """Whether it can be read again from its beginning."""
    ahead: bool
    """Whether blocks may be read before they are asked for, in another thread."""

    def columns(self) -> list[str] | None:
        """The names of its columns; None where only the rows themselves can tell."""

    def located(self, row: int) -> str:
        """Where a row stands, in words, by its number from 0: the file and the row."""

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, in order and the bad ones too; from the first at each call, if ``repeatable``.

        The iterator may be closed before its end, and then closes what it has opened.

        Parameters
        ----------
        names : sequence of str, optional
            The columns that are wanted; None for all.
        block : int
            The number of rows in one block. A chunk should not hold many times more.
        start : int
            The caller skips the rows before this one. Yield them all the same, so that they are
            counted. After the first :data:`LOOKED_AT` rows, columns of a chunk that holds only
            skipped rows may be empty Arrow arrays, which tell a type. A source may ignore this
            argument.
        """


class BaseSource:
    """What most sources have in common.

    Parameters
    ----------
    name : str
        What messages call it.
    n_rows : int, optional
        The number of rows, where it is known.
    repeatable : bool
        Whether it can be read again from its beginning.
    ahead : bool, optional
        Whether blocks may be read ahead; as ``repeatable`` by default.
    """

    def __init__(
        self,
        name: str,
        n_rows: int | None = None,
        *,
        repeatable: bool,
        ahead: bool | None = None,
    ) -> None:
        self.name, self.n_rows = name, n_rows
        self.repeatable = repeatable
        self.ahead = repeatable if ahead is None else ahead

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"


_WHERE = "op.stream.read"


class Matrix(BaseSource):
    """Rows of an array of shape (n, d); its columns are x0, x1, … unless they are named.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows.
    name : str
        What messages call it.
    header : sequence of str, optional
        The columns' names.

    Raises
    ------
    ShapeError
        If X has not two dimensions.
    TypeMismatchError
        If X is sparse.
    """

    def __init__(
        self, X: ArrayLike, name: str = "array", header: Sequence[str] | None = None
    ) -> None:
        if hasattr(X, "toarray") and hasattr(X, "nnz"):
            raise TypeMismatchError(
                f"{_WHERE}: the array must be dense, got the sparse {type(X).__name__}. "
                "Sparse input is not supported; convert with .toarray()."
            )
        array = np.asarray(X)
        if array.ndim != 2:
            raise ShapeError(
                f"{_WHERE}: the array must have shape (n, d), got {array.shape}. "
                "Reshape it: X.reshape(-1, 1) if it is one feature."
            )
        super().__init__(name, array.shape[0], repeatable=True, ahead=False)
        self._array = array
        self._header = [f"x{j}" for j in range(array.shape[1])] if header is None else list(header)

    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._header)

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, a block at a time."""
        del start  # what is in memory is quickly passed over
        wanted = set(self._header if names is None else names)
        n = len(self._array)
        for i in range(0, n, block):
            rows = self._array[i : i + block].T
            pairs = zip(self._header, rows, strict=True)
            columns = {name: column for name, column in pairs if name in wanted}
            yield Chunk(columns, rows.shape[1], fraction=(i + rows.shape[1]) / n)


class Frame(BaseSource):
    """Rows of a DataFrame of any library that narwhals knows.

    Parameters
    ----------
    frame : DataFrame
        The rows.
    name : str
        What messages call it.

    Raises
    ------
    ColumnError
        If two columns have one name, or one has a name of several levels.
    """

    def __init__(self, frame: Any, name: str = "frame") -> None:
        try:
            self._frame: Any = nw.from_native(frame, eager_only=True)
        except ValueError as wrong:
            raise ColumnError(
                f"{_WHERE}: the frame's columns must each have a name of their own, got: {wrong}. "
                "Rename the columns."
            ) from wrong
        for label in self._frame.columns:
            if isinstance(label, tuple):  # as pandas has them, level by level
                raise ColumnError(
                    f"{_WHERE}: the frame's columns must each have one name, got {label!r}. "
                    "Join the levels: frame.columns = ['_'.join(map(str, c)) for c in "
                    "frame.columns]."
                )
        super().__init__(name, len(self._frame), repeatable=True, ahead=False)

    def columns(self) -> list[str]:
        """The names of its columns."""
        return [str(name) for name in self._frame.columns]

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, a block at a time."""
        del start  # what is in memory is quickly passed over
        own = dict(zip(self.columns(), self._frame.columns, strict=True))
        frame = self._frame.select([nw.col(own[n]) for n in (own if names is None else names)])
        n = len(frame)
        for i in range(0, n, block):
            rows = frame[i : i + block]
            columns: dict[str, RawColumn] = {}
            for name in frame.columns:
                column = rows.get_column(name)
                # whole numbers as they are: float64 would not hold digits beyond 2^53
                whole = column.dtype.is_integer()
                columns[str(name)] = column.to_arrow() if whole else series_values(column)
            yield Chunk(columns, len(rows), fraction=(i + len(rows)) / n)


class Pair(BaseSource):
    """Features and targets that lie apart, ``(X, y)``.

    Parameters
    ----------
    features : Matrix or Frame
        The rows.
    y : array-like of shape (n,) or (n, c), or DataFrame
        Their targets.

    Raises
    ------
    ShapeError
        If the targets are not one a row.
    """

    def __init__(self, features: Matrix | Frame, y: ArrayLike) -> None:
        answers = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        n = features.n_rows
        if answers.ndim not in {1, 2} or len(answers) != n:
            raise ShapeError(
                f"{_WHERE}: `y` must have shape ({n},) or ({n}, c), one answer for each row of X, "
                f"got {answers.shape}. Check that X and y come from the same rows."
            )
        super().__init__(features.name, n, repeatable=True, ahead=False)
        self._features = features
        flat = answers.ndim == 1
        names = ["y"] if flat else [f"y{j}" for j in range(answers.shape[1])]
        self._flat = flat
        self._answers = dict(zip(names, (answers[:, None] if flat else answers).T, strict=True))

    def columns(self) -> list[str]:
        """The names of the features."""
        return self._features.columns()

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, a block at a time."""
        at = 0
        for chunk in self._features.chunks(names, block, start):
            rows = slice(at, at := at + chunk.n)
            answers = {name: column[rows] for name, column in self._answers.items()}
            yield replace(chunk, answers=answers, flat=self._flat)


class RowIterable(BaseSource):
    """Rows of an iterable.

    Each is a dict of named features, or a pair (x, y): features as a dict or an array of shape
    (d,), and their target, a number, a label, None where it is not known, or several as a dict or
    an array of shape (c,). A dict may lack features that others have.

    Parameters
    ----------
    rows : iterable
        A list can be read again and again; an iterator, such as a generator, once.
    name : str
        What messages call it.
    skip : bool
        Whether rows of another form than the first one are skipped.
    """

    def __init__(
        self, rows: Iterable[object], name: str = "iterable", *, skip: bool = False
    ) -> None:
        n_rows = len(rows) if isinstance(rows, Sequence) else None
        super().__init__(name, n_rows, repeatable=not isinstance(rows, Iterator), ahead=False)
        self._rows, self._skip = rows, skip

    def columns(self) -> None:
        """Unknown: only the rows can tell."""

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """The rows, a block at a time: none is asked for before it is needed."""
        del names, start  # chosen and passed over above
        rows = iter(self._rows)
        done = 0
        parts: _Parts | None = None
        while taken := list(islice(rows, block)):
            parts = parts or _Parts(self.located, pairs=_is_pair(taken[0]))
            parted, bad = [], {}
            for i, row in enumerate(taken):
                try:
                    parted.append(parts.parted(row, done + i))
                except OnepassError as wrong:
                    if not self._skip:
                        raise
                    parted.append(({}, {}))
                    bad[i] = str(wrong)
            done += len(taken)
            answers = by_name([y for _, y in parted]) if parts.pairs else None
            fraction = done / self.n_rows if self.n_rows else None
            yield Chunk(
                by_name([x for x, _ in parted]), len(taken), answers=answers, flat=parts.flat,
                fraction=fraction, bad=bad,
            )  # fmt: skip


def by_name(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """The values of each column of rows given as dicts; None where a row has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {str(name): [row.get(name) for row in rows] for name in names}
    if len(columns) < len(names):
        raise ColumnError(
            "Table: each column must have a name of its own, got names that are the same as text, "
            f"of {list(names)}. Rename one of them."
        )
    return columns


def _is_pair(row: object) -> bool:
    return isinstance(row, (tuple, list)) and len(row) == 2


class _Parts:
    """Takes rows of one form apart: features, and targets of the shape of the first one."""

    def __init__(self, located: Callable[[int], str], *, pairs: bool) -> None:
        self._located = located
        self.pairs, self.flat = pairs, True
        self._form = ""  # of a target

    def parted(self, row: Any, number: int) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """The features and the targets of a row by name."""
        good = _is_pair(row) if self.pairs else isinstance(row, Mapping)
        if not good:
            form = "a pair (x, y), as the first row" if self.pairs else "a dict of named features"
            raise TypeMismatchError(
                f"{_WHERE}: {self._located(number)} must be {form}, got "
                f"{type(row).__name__}. Give all rows in one form: dicts, "
                "pairs (x, y), or one array of shape (n, d)."
            )
        x, y = row if self.pairs else (row, None)
        if not isinstance(x, Mapping):
            array = _array(x)
            if array.ndim != 1:
                raise ShapeError(
                    f"{_WHERE}: {self._located(number)}: `x` must be a dict or have "
                    f"shape (d,), got shape {array.shape}. Give one row at a time."
                )
            x = {f"x{j}": value for j, value in enumerate(array.tolist())}
        return x, {} if y is None else self._targets(y, number)

    def _targets(self, y: Any, number: int) -> Mapping[Any, Any]:
        """The targets of a row by name."""
        shape = _array(y).shape
        form = "a dict" if isinstance(y, Mapping) else f"shape {shape}"
        if len(shape) > 1 or self._form not in {"", form}:
            raise ShapeError(
                f"{_WHERE}: {self._located(number)}: `y` must be one value a row, or as many for "
                f"each, got {form}"
                f"{self._form and f' after {self._form}'}. Give every row the same targets."
            )
        self._form, self.flat = form, form == "shape ()"
        if isinstance(y, Mapping):
            return y
        return {"y": y} if self.flat else {f"y{j}": value for j, value in enumerate(y)}


def _array(values: Any) -> Array:
    """An array as it is, and other values as objects: NumPy makes text of numbers beside text."""
    return np.asarray(values, dtype=None if hasattr(values, "__array__") else object)


_Item = TypeVar("_Item")


def ahead(items: Iterator[_Item], depth: int) -> Generator[_Item]:
    """The items of an iterator, taken from it in another thread before they are asked for.

    Items, their order and errors are those of the iterator. The thread ends with it, or when this
    generator is closed or forgotten, or the interpreter ends.

    Parameters
    ----------
    items : iterator
        It is closed with the thread.
    depth : int
        How many items may wait.

    Examples
    --------
    >>> sum(ahead(iter(range(5)), depth=2))
    10
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="onepass reads ahead")
    waiting: deque[Future[list[_Item]]] = deque()

    def order() -> None:
        with suppress(RuntimeError):  # no thread takes work any more: the interpreter ends
            waiting.append(pool.submit(_next, items))

    try:
        for _ in range(depth):
            order()
        while waiting:
            if not (taken := waiting.popleft().result()):
                return
            order()
            yield from taken
        yield from items
    finally:
        with suppress(RuntimeError):  # forgotten within that thread, which cannot await itself
            pool.shutdown(cancel_futures=True)
        if hasattr(items, "close"):
            items.close()


def _next(items: Iterator[_Item]) -> list[_Item]:
    """The next item, or nothing at the end; a future cannot hold a StopIteration."""
    return list(islice(items, 1))


_FEWEST = 10  # rows by which labels are judged


def check_labels(answers: Sequence[Array], where: str, target: str) -> None:
    """Refuse targets of text of which nearly all values differ: each would be a class.

    Raises
    ------
    TypeMismatchError
        If more than nine in ten of the first texts are different.
    """
    labels = [label for y in answers if y.dtype.kind == "O" for label in y.tolist()][:LOOKED_AT]
    different = len(set(labels))
    if len(labels) >= _FEWEST and different > 0.9 * len(labels):
        raise TypeMismatchError(
            f"{where} must hold numbers, or labels that repeat, got {different:,} different "
            f"texts in {len(labels):,} rows, such as {labels[0]!r}. Give types={{{target!r}: "
            f"'number'}} (--type {target}=number), with decimal= and thousands= (--decimal, "
            f"--thousands) as they are spelled, if they are numbers; types={{{target!r}: 'text'}} "
            f"(--type {target}=text) if they are labels."
        )


def suggested(answers: Sequence[Array]) -> str:
    """The task that some answers suggest.

    Parameters
    ----------
    answers : sequence of ndarrays of shape (n,) or (n, c)
        Those of the first blocks; only the first :data:`LOOKED_AT` rows are looked at.

    Returns
    -------
    task : {"regression", "classification"}

    Examples
    --------
    >>> suggested([np.array([0.0, 1.0, 1.0])]), suggested([np.array([0.0, 1.0, 1.5])])
    ('classification', 'regression')
    >>> len(suggested([np.zeros(3), np.array(["wet", "dry"], dtype=object)]))
    14
    """
    if any(y.dtype.kind == "O" for y in answers):
        return "classification"
    values = np.concatenate([y.astype(np.float64).ravel() for y in answers] or [np.empty(0)])
    single = all(y.ndim == 1 for y in answers)
    found = set(np.unique(values[:LOOKED_AT]).tolist())
    return "classification" if single and found == {0.0, 1.0} else "regression"
