"""Parts: several files as one source, one after the other in their order.

Names are put in natural order, so that part-10 stands behind part-9. All files must have the same
columns; what a column holds is told by the first. Folders on the way to a file that are called
``key=value``, as Hive has them, are columns too.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import numpy as np

from onepass.errors import ColumnError, listed
from onepass.stream.kinds import Kinds, absent
from onepass.stream.literals import KINDS, Literals, Oddity
from onepass.stream.pieces import Piece, Source
from onepass.stream.task import LOOKED_AT
from onepass.validation.table import Table, is_missing

__all__ = ["Part", "Parts", "hive", "natural"]

_NOTHING = "__HIVE_DEFAULT_PARTITION__"


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which names stand as a person would order them.

    Parameters
    ----------
    name : str
        A name, or a path.

    Examples
    --------
    >>> sorted(["b10.csv", "b9.csv", "a.csv"], key=natural)
    ['a.csv', 'b9.csv', 'b10.csv']
    >>> len(natural("a1b"))
    3
    """
    words = [word for word in re.split(r"(\d+)", name) if word]
    return [(0, int(word), word) if word.isdigit() else (1, 0, word) for word in words]


def hive(folders: Sequence[str]) -> dict[str, str | None]:
    """The columns that folders tell.

    Parameters
    ----------
    folders : sequence of str
        Their names.

    Examples
    --------
    >>> hive(["logs", "year=2024", "place=a%20b"])
    {'year': '2024', 'place': 'a b'}
    >>> len(hive(["logs"]))
    0
    """
    pairs = [folder.split("=", 1) for folder in folders if re.match(r"[^=]+=", folder)]
    return {unquote(k): None if v == _NOTHING else unquote(v) for k, v in pairs}


@dataclass(frozen=True, slots=True)
class Part:
    """One file of several.

    Parameters
    ----------
    name : str
        What messages call it.
    open : callable
        Gives its source.
    size : int
        Its bytes, for the progress.
    told : dict of str to str or None
        Columns that its folders tell.
    """

    name: str
    open: Callable[[], Source]
    size: int
    told: Mapping[str, str | None]


class Parts:
    """Files one after the other.

    Parameters
    ----------
    parts : sequence of Part
        At least one, in order.
    name : str
        What messages call them together.
    literals : Literals
        How text is parsed.
    skip : bool
        Whether rows with a value that is not of its column's kind are skipped.
    repeatable : bool
        Whether all of them can be read again.

    Raises
    ------
    ColumnError
        While reading: if a file has other columns than the first.
    """

    n_rows: int | None = None

    def __init__(
        self,
        parts: Sequence[Part],
        name: str,
        literals: Literals = Literals(),  # noqa: B008  it does not change
        *,
        skip: bool = False,
        repeatable: bool = True,
    ) -> None:
        self.name = name
        self.repeatable = self.ahead = repeatable
        self._skip = skip
        self._parts = list(parts)
        self._begins: list[tuple[int, str]] = []
        self._first = self._parts[0].open()
        self._literals = literals
        self._odd: list[Oddity] = []
        self._current = self._first
        values = {n: [part.told.get(n) for part in self._parts] for n in self._parts[0].told}
        self._numbers = {n for n, told in values.items() if all(map(_is_number, told))}

    def columns(self) -> list[str] | None:
        """Those of the first file, then those that folders tell."""
        return self._columns(self._first, self._parts[0])

    def kinds(self) -> dict[str, str]:
        """What the first file is certain of."""
        told = {n: "f" if n in self._numbers else "O" for n in self._parts[0].told}
        return {**self._first.kinds(), **told}

    def oddities(self) -> list[Oddity]:
        """The columns to report of the files read so far."""
        return [*self._odd, *getattr(self._current, "oddities", list)()]

    def located(self, row: int) -> str:
        """The file, and the row in it."""
        for begin, name in reversed(self._begins):
            if begin <= row:
                return f"{name}: row {row - begin} (counting from 0)"
        return f"{self.name}: row {row} (counting from 0)"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """The rows of all files."""
        every = self.columns()
        if every is not None and set(every) - set(self.kinds()):
            start = 0  # a column that is empty in the first file may hang on any of the others
        known = {n: KINDS[letter] for n, letter in self.kinds().items()}
        begins, seen, done = [], 0, 0
        whole = sum(part.size for part in self._parts) or 1
        for i, part in enumerate(self._parts):
            self._odd = self.oddities() if i else []
            self._current = source = part.open() if i else self._first
            self._same(source, part, every)
            begins.append((seen, part.name))
            self._begins = begins
            if getattr(source, "leave", None) is not None:
                source.leave = max(0, source.leave - seen)  # type: ignore[attr-defined]
            if source.n_rows is not None and LOOKED_AT <= seen <= start - source.n_rows:
                yield Piece(Table({}, source.n_rows), fraction=(done + part.size) / whole)
                seen, done = seen + source.n_rows, done + part.size
                continue
            inner = None if names is None else [n for n in names if n not in part.told]
            asked = {**known, **types} if i else types
            kinds = Kinds(asked if i else {}, self.located, literals=self._literals)
            for piece in source.pieces(inner, asked, block, max(0, start - seen)):
                bad = dict(piece.bad) if self._skip else None
                table = kinds.fit(piece.table, seen, bad) if piece.table.columns else piece.table
                seen += len(table)
                known |= {n: w for n, w in _shown(table).items() if n not in known}
                share = (done + part.size * (piece.fraction or 0.0)) / whole
                table = self._with(table, part, names)
                yield replace(piece, table=table, fraction=share, bad=bad or {})
            done += part.size

    def _columns(self, source: Source, part: Part) -> list[str] | None:
        names = source.columns()
        return None if names is None else [*names, *(n for n in part.told if n not in names)]

    def _same(self, source: Source, part: Part, every: list[str] | None) -> None:
        """Refuse a file that has other columns than the first."""
        there = self._columns(source, part)
        if every is None or there is None:
            return
        lacks, more = sorted(set(every) - set(there)), sorted(set(there) - set(every))
        if lacks or more:
            came = [f"no {listed(lacks)}"] if lacks else []
            came += [f"{listed(more)} too"] if more else []
            raise ColumnError(
                f"op.stream.read: {part.name} must have the columns of {self._parts[0].name}, got "
                f"{' and '.join(came)}. Fix the file, or leave it out."
            )

    def _with(self, table: Table, part: Part, names: Sequence[str] | None) -> Table:
        """The table with what the folders tell, in the order asked for."""
        columns = dict(table.columns)
        for name, value in part.told.items():
            if names is None or name in names:
                word = float(value) if value is not None and name in self._numbers else value
                kind = "f" if name in self._numbers else "O"
                known = np.full(len(table), word, dtype=float if kind == "f" else object)
                columns[name] = absent(kind, len(table)) if value is None else known
        order = columns if names is None else [n for n in names if n in columns]
        return Table({n: columns[n] for n in order}, len(table))


def _shown(table: Table) -> dict[str, str]:
    """The kinds of columns that have a value."""
    shown = [(n, c) for n, c in table.columns.items() if not is_missing(c).all()]
    return {name: KINDS[column.dtype.kind] for name, column in shown}


def _is_number(text: str | None) -> bool:
    try:
        return text is None or np.isfinite(float(text))
    except ValueError:
        return False
