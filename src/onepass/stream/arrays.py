"""Arrays and frames in memory as sources."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from onepass.errors import Array, ColumnError, ShapeError, TypeMismatchError
from onepass.stream.pieces import Piece
from onepass.validation.table import Table, to_column

__all__ = ["Frame", "Matrix", "Pair"]

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

    def __init__(self, X: Any, name: str = "array", header: Sequence[str] | None = None) -> None:
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

    def __init__(self, features: Matrix | Frame, y: Any) -> None:
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
