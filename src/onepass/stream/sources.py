"""Sources: the protocol, arrays, frames and iterables in memory, reading ahead, and the task.

A source gives pieces of any length, in order, from which blocks are cut. Iterables give rows one by
one, as dicts or as (x, y) pairs.

Reading ahead takes items from an iterator in a thread of its own, so that reading a file overlaps
with learning. Items, their order and errors are those of the iterator; at most ``depth`` items
wait. The thread ends with the iterator, or as soon as the iteration is closed, left by an error or
an interrupt, or garbage collected; it takes no further item then.

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

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import narwhals.stable.v1 as nw
import numpy as np

from onepass.errors import ColumnError, ShapeError, TypeMismatchError
from onepass.stream.literals import as_text
from onepass.types import Array, ArrayLike
from onepass.validation.table import Table, to_column

__all__ = [
    "LOOKED_AT",
    "Ahead",
    "Frame",
    "Matrix",
    "OneByOne",
    "Pair",
    "Piece",
    "Source",
    "check_labels",
    "suggested",
]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some consecutive rows as a source gives them.

    Parameters
    ----------
    table : Table
        The rows' columns.
    answers : Table, optional
        The rows' answers, where the source keeps them apart from its columns.
    flat : bool
        Whether those answers are one value a row, shape (n,), rather than (n, c).
    fraction : float, optional
        How much of the source has been read once this piece is, in [0, 1]; None if unknown.
    bad : dict of int to str
        Rows that are to be skipped because they cannot be read, by their place in the piece, and
        the error of each. They are among the rows of ``table``.
    """

    table: Table
    answers: Table | None = None
    flat: bool = True
    fraction: float | None = None
    bad: Mapping[int, str] = field(default_factory=dict)


class Source(Protocol):
    """A source of rows: the members that every source must define.

    To add a source, write a class with these members, which need not inherit from this one, and
    return it from :func:`onepass.stream.read`; if it reads files, list its format and suffixes in
    :mod:`onepass.stream.formats`. :class:`onepass.stream.Stream` does the rest: it chooses columns,
    settles their kinds and cuts blocks. A row that cannot be read raises a SourceError that says
    where the row stands.
    """

    @property
    def name(self) -> str:
        """What messages call it: a file's name, or what it is."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where it is known without reading them."""

    @property
    def repeatable(self) -> bool:
        """Whether it can be read again from its beginning."""

    @property
    def ahead(self) -> bool:
        """Whether blocks may be read before they are asked for, in another thread."""

    def columns(self) -> list[str] | None:
        """The names of its columns; None where only the rows themselves can tell."""

    def kinds(self) -> dict[str, str]:
        """The letters of columns whose kind is known even while they are empty.

        They are those of dtypes: f, O and M, but b for truth values, which are floats in tables.
        They stand in their order where ``columns`` does not know it.
        """

    def located(self, row: int) -> str:
        """Where a row stands, in words, by its number from 0: the file and the row."""

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, in order and the bad ones too; from the first at each call, if ``repeatable``.

        The iterator may be closed before its end, and then lets go of what it has opened.

        Parameters
        ----------
        names : sequence of str, optional
            The columns that are wanted; None for all.
        types : dict of str to str
            The kinds that the user asked for. :class:`~onepass.stream.dtypes.Kinds` applies them;
            a source needs them only where its values would be lost if they were read as another
            kind.
        block : int
            The number of rows in one block. A piece should not hold many times more.
        start : int
            The caller skips the rows before this one. Yield them all the same, so that they are
            counted. After the first :data:`~onepass.stream.sources.LOOKED_AT` rows, a piece that
            holds only skipped rows may leave out the columns that ``kinds`` lists. A source may
            ignore this argument.
        """


_WHERE = "op.stream.read"


class Matrix:
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

    repeatable = True
    ahead = False

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
        self.name = name
        self.n_rows: int | None = array.shape[0]
        self._array = array
        self._header = [f"x{j}" for j in range(array.shape[1])] if header is None else list(header)

    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._header)

    def kinds(self) -> dict[str, str]:
        """None: the values alone can tell."""
        return {}

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, a block at a time."""
        del start  # what is in memory is quickly passed over
        wanted = set(self._header if names is None else names)
        places = {j: name for j, name in enumerate(self._header) if name in wanted}
        whole = self._array.dtype.kind in "iu"
        n = self._array.shape[0]
        for i in range(0, n, block):
            rows = self._array[i : i + block]
            if rows.dtype.kind in "biuf":
                # a copy, each column in one stretch of memory
                numbers = np.array(rows, dtype=np.float64, order="F")
                columns = {name: numbers[:, j] for j, name in places.items()}
            else:
                columns = {name: to_column(rows[:, j], name) for j, name in places.items()}
            if whole:  # as float64 they would lose digits beyond 2^53
                columns |= {
                    name: to_column(rows[:, j].astype(str), name)
                    for j, name in places.items()
                    if types.get(name) == "text"
                }
            yield Piece(Table(columns, len(rows)), fraction=(i + len(rows)) / n)


class Frame:
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

    repeatable = True
    ahead = False

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
        self.name = name
        self.n_rows: int | None = len(self._frame)

    def columns(self) -> list[str]:
        """The names of its columns."""
        return [str(name) for name in self._frame.columns]

    def kinds(self) -> dict[str, str]:
        """None: the values alone can tell."""
        return {}

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, a block at a time."""
        del start  # what is in memory is quickly passed over
        own = dict(zip(self.columns(), self._frame.columns, strict=True))
        frame = self._frame.select([own[n] for n in (own if names is None else names)])
        whole = [
            name
            for name in frame.columns
            if types.get(str(name)) == "text" and frame[name].dtype.is_integer()
        ]
        n = len(frame)
        for i in range(0, n, block):
            rows = frame[i : i + block]
            if whole:  # as float64 they would lose digits beyond 2^53
                rows = rows.with_columns([nw.col(name).cast(nw.String) for name in whole])
            table = Table.from_frame(rows.to_native())
            yield Piece(table, fraction=(i + len(table)) / n)


class Pair:
    """Features and answers that lie apart, ``(X, y)``.

    Parameters
    ----------
    features : Matrix or Frame
        The rows.
    y : array-like of shape (n,) or (n, c), or DataFrame
        Their answers.

    Raises
    ------
    ShapeError
        If the answers are not one a row.
    """

    repeatable = True
    ahead = False

    def __init__(self, features: Matrix | Frame, y: ArrayLike) -> None:
        answers = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        n = features.n_rows
        if answers.ndim not in {1, 2} or len(answers) != n:
            raise ShapeError(
                f"{_WHERE}: `y` must have shape ({n},) or ({n}, c), one answer for each row of X, "
                f"got {answers.shape}. Check that X and y come from the same rows."
            )
        self.name = features.name
        self.n_rows: int | None = n
        self._features = features
        self._answers: Array = answers

    def columns(self) -> list[str]:
        """The names of the features."""
        return self._features.columns()

    def kinds(self) -> dict[str, str]:
        """None: the values alone can tell."""
        return {}

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, a block at a time."""
        at = 0
        flat = self._answers.ndim == 1
        for piece in self._features.pieces(names, types, block, start):
            y = self._answers[at : at + len(piece.table)]
            at += len(y)
            columns = y[:, None] if flat else y
            answers = {
                _called(j, flat=flat): to_column(np.array(columns[:, j]), _called(j, flat=flat))
                for j in range(columns.shape[1])
            }
            yield Piece(piece.table, Table(answers, len(y)), flat, piece.fraction)


def _called(j: int, *, flat: bool) -> str:
    return "y" if flat else f"y{j}"


class OneByOne:
    """Rows of an iterable.

    Each is a dict of named features, or a pair (x, y): features as a dict or an array of shape
    (d,), and their answer, a number, a label, None where it is not known, or several as a dict or
    an array of shape (c,). A dict may lack features that others have.

    Parameters
    ----------
    rows : iterable
        A list can be read again and again; an iterator, such as a generator, once.
    name : str
        What messages call it.
    """

    def __init__(self, rows: Iterable[object], name: str = "iterable") -> None:
        self.name = name
        self.ahead = False
        self.repeatable = not isinstance(rows, Iterator)
        self.n_rows: int | None = len(rows) if isinstance(rows, Sequence) else None
        self._rows = rows

    def columns(self) -> None:
        """Unknown: only the rows can tell."""

    def kinds(self) -> dict[str, str]:
        """None: the values alone can tell."""
        return {}

    def located(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows, a block at a time: none is asked for before it is needed."""
        del names, start  # chosen and passed over above
        text = [name for name, kind in types.items() if kind == "text"]
        rows = iter(self._rows)
        done = 0
        pairs: bool | None = None
        while taken := list(islice(rows, block)):
            where = f"{_WHERE}: {self.name}: row {done}"
            pairs = _is_pair(taken[0]) if pairs is None else pairs
            parted = [
                _parted(row, text, f"{_WHERE}: {self.name}: row {done + i}", pairs=pairs)
                for i, row in enumerate(taken)
            ]
            done += len(taken)
            fraction = done / self.n_rows if self.n_rows else None
            table = Table.from_rows([x for x, _ in parted])
            if pairs:
                answers, flat = _answers([y for _, y in parted], where)
                yield Piece(table, answers, flat, fraction)
            else:
                yield Piece(table, fraction=fraction)


def _is_pair(row: object) -> bool:
    return isinstance(row, (tuple, list)) and len(row) == 2


def _parted(
    row: Any, text: Sequence[str], where: str, *, pairs: bool
) -> tuple[dict[str, Any], Any]:
    """One row as a dict of features, and its answer."""
    good = _is_pair(row) if pairs else isinstance(row, Mapping)
    if not good:
        form = "a pair (x, y), as the first row" if pairs else "a dict of named features"
        raise TypeMismatchError(
            f"{where} must be {form}, got {type(row).__name__}. Give all rows in one form: dicts, "
            "pairs (x, y), or one array of shape (n, d)."
        )
    x, y = row if pairs else (row, None)
    if not isinstance(x, Mapping):
        array = np.asarray(x)
        if array.ndim != 1:
            raise ShapeError(
                f"{where}: `x` must be a dict or have shape (d,), got shape {array.shape}. "
                "Give one row at a time."
            )
        x = {f"x{j}": value for j, value in enumerate(array.tolist())}
    # whole numbers keep the digits that float64 would not; others may stand beside text
    worded = {name: as_text(x[name]) for name in text if _is_number(x.get(name))}
    return {**x, **worded}, y


def _is_number(value: object) -> bool:
    """Whether it is a number; nan is none."""
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool) and value == value  # noqa: PLR0124


def _answers(answers: list[Any], where: str) -> tuple[Table, bool]:
    """Answers one below the other, and whether each is one value."""
    known = [y for y in answers if y is not None]
    if not known:
        return Table({}, len(answers)), True
    if isinstance(known[0], Mapping):
        return Table.from_rows([y or {} for y in answers]), False
    if all(np.ndim(y) == 0 for y in known):
        return Table({"y": to_column(answers, "y")}, len(answers)), True
    c = len(known[0]) if np.ndim(known[0]) == 1 else -1
    if any(np.shape(y) != (c,) for y in known):
        raise ShapeError(
            f"{where} and following: `y` must be one value a row, or as many for each, got shapes "
            f"{sorted({np.shape(y) for y in known})}. Give every row the same answers."
        )
    filled = [[None] * c if y is None else list(y) for y in answers]
    columns = {f"y{j}": to_column([row[j] for row in filled], f"y{j}") for j in range(c)}
    return Table(columns, len(filled)), False


_Item = TypeVar("_Item")
_CHECK = 0.1  # seconds after which a waiting thread looks whether the interpreter is to end


class _Shelf(Generic[_Item]):
    """Items that wait, between the thread that puts and the one that takes."""

    def __init__(self, items: Iterator[_Item], depth: int) -> None:
        self.source = items
        self.depth = depth
        self.waiting: deque[_Item] = deque()
        self.changed = threading.Condition()
        self.wanted = True
        self.ended = False  # the thread has; what is left of the source is for whoever takes
        self.error: BaseException | None = None

    def room(self) -> bool:
        """Wait until there is room; whether more is wanted of the thread."""
        with self.changed:
            while self.wanted and threading.main_thread().is_alive():
                if len(self.waiting) < self.depth:
                    return True
                self.changed.wait(_CHECK)
            return False

    def put(self, item: _Item) -> None:
        """Put an item where it will be taken from."""
        with self.changed:
            self.waiting.append(item)
            self.changed.notify_all()

    def end(self, error: BaseException | None) -> None:
        """Say that the thread puts no more."""
        with self.changed:
            self.ended, self.error = True, error
            self.changed.notify_all()

    def take(self) -> _Item:
        """Wait for an item; StopIteration at the end."""
        with self.changed:
            while not self.waiting and not self.ended:
                self.changed.wait()
            if self.waiting:
                item = self.waiting.popleft()
                self.changed.notify_all()
                return item
            if self.error is not None:
                error, self.error = self.error, None
                raise error
        return next(self.source)  # at its end, or let go of because the interpreter ends

    def close(self) -> None:
        """Say that no more is wanted."""
        with self.changed:
            self.wanted = False
            self.waiting.clear()
            self.changed.notify_all()


class Ahead(Generic[_Item]):
    """Iterates over what another iterator gives, which is asked beforehand.

    Parameters
    ----------
    items : iterator
        Asked in another thread from now on, and by nobody else.
    depth : int
        How many items may wait.

    Examples
    --------
    >>> sum(Ahead(iter(range(5)), depth=2))
    10
    """

    def __init__(self, items: Iterator[_Item], depth: int) -> None:
        self._shelf = _Shelf(items, depth)
        # the thread knows the shelf and not this object: so this may be forgotten; and it is no
        # daemon, for one that is stopped within Arrow takes the whole process with it
        self._thread = threading.Thread(
            target=_filled, args=(self._shelf,), name="onepass reads ahead", daemon=False
        )
        self._thread.start()

    def __iter__(self) -> Iterator[_Item]:
        return self

    def __next__(self) -> _Item:
        return self._shelf.take()

    def close(self) -> None:
        """End the thread, wait until it has, and close the iterator."""
        self._shelf.close()
        self._thread.join()
        _close(self._shelf.source)

    def __del__(self) -> None:
        shelf = getattr(self, "_shelf", None)
        if shelf is not None:
            shelf.close()


def _filled(shelf: "_Shelf[_Item]") -> None:
    """Put what the iterator gives on the shelf, as long as it is wanted."""
    error: BaseException | None = None
    try:
        while shelf.room():
            shelf.put(next(shelf.source))
    except StopIteration:
        pass
    except BaseException as wrong:  # noqa: BLE001  it is raised where the items are taken
        error = wrong
    shelf.end(error)
    if not shelf.wanted:
        _close(shelf.source)


def _close(items: Iterator[object]) -> None:
    close = getattr(items, "close", None)
    if close is not None:
        close()


LOOKED_AT = 1024
"""How many rows are looked at, whatever the width of a block."""

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
