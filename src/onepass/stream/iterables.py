"""Rows that come one by one, as dicts or as (x, y) pairs, as a source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from onepass.errors import ShapeError, TypeMismatchError
from onepass.stream.literals import as_text
from onepass.stream.pieces import Piece
from onepass.validation.table import Table, to_column

__all__ = ["OneByOne"]

_WHERE = "op.stream.read"


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

    def __init__(self, rows: Iterable[Any], name: str = "iterable") -> None:
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


def _is_pair(row: Any) -> bool:
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


def _is_number(value: Any) -> bool:
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
