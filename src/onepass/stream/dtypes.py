"""Types of columns, which are fixed by the first values of each.

A type is number, truth, text or date (see :mod:`onepass.validation.table`). It is fixed by the
first piece of the stream in which the column has a value, or beforehand: by the user's ``types``,
or by the source, as a Parquet file does. A column without a type is nan. A later value of another
type is refused, with its place. Text columns that look like numbers, dates or truth values raise a
warning or an error: one ``?`` among twenty thousand numbers makes a column text and each of its
numbers a category, and only the user knows what such a cell means.

A stream may begin in the middle of a source; its columns have the types that they would have had
there. Most are known beforehand, but a column may be empty in the first bytes of a text. Of the
rows that are skipped, these columns are read until each has a value.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from onepass.errors import MixedColumnWarning, ParameterError, SourceError, TypeMismatchError
from onepass.stream.literals import KINDS, LETTERS, Literals, Oddity, as_text, typed
from onepass.stream.sources import LOOKED_AT
from onepass.types import Array
from onepass.validation.table import Table, as_python, is_missing

__all__ = ["Kinds", "Undecided", "absent", "checked_types", "refuse", "report"]


_MOST = 0.9  # if more of the values of a target are of one kind, the others are errors


def report(
    odd: Iterable[Oddity],
    *,
    read: Sequence[str],
    targets: Sequence[str],
    types: Mapping[str, str],
    skip: bool = False,
) -> None:
    """Warn of columns that are taken as text; refuse those whose values would be misread.

    Parameters
    ----------
    odd : iterable of Oddity
        The columns to check.
    read, targets : sequence of str
        The columns that are read, and those of them that are targets.
    types : dict of str to str
        The kinds that are given; only ambiguous dates are reported of these columns.
    skip : bool
        Whether bad rows are skipped, so that a given kind is a remedy.

    Raises
    ------
    TypeMismatchError
        If numbers have separators or dates an order that the options do not name, or nearly all
        values of a target are of one kind.
    """
    for one in odd:
        given = types.get(one.name)
        ambiguous = one.what == "ambiguous" and given == "date"
        if one.name not in read or not (given is None or ambiguous):
            continue
        where = f"{one.source}: column {one.name!r}"
        at = f"{one.value!r} in row {one.row} (counting from 0)"
        text, kind = typed(one.name, "text"), typed(one.name, one.kind)
        if one.what in {"spelling", "ambiguous"}:
            raise TypeMismatchError(
                f"op.stream.read: {where} must hold {one.noun}, got {at}. Give {one.remedy}, or "
                f"{text} if it is text."
            )
        count = f"{one.fits:,} of the first {one.values:,} values are {one.noun}"
        if one.what == "zeros":
            found, ways = f"{count}, as {at}", [f"{kind} if they are numbers"]
        else:
            found = f"{count}, but {at} is not"
            spelling = f"na=({one.value!r},) (--na {one.value!r}) if it means missing"
            options = f"{one.remedy} and {kind}" if one.remedy else kind
            rest = f"{options} to skip the rows with other values"
            ways = [spelling] * (not one.quoted) + [rest] * skip
        give = f"Give {', '.join(ways)}{', or ' * bool(ways)}{text} if"
        if one.what == "mixed" and one.name in targets and one.fits > _MOST * one.values:
            raise TypeMismatchError(
                f"op.stream.read: {one.source}: the target {one.name!r} must hold numbers or "
                f"labels, got both: {found}. {give} all of them are labels: then the task is "
                "classification."
            )
        warnings.warn(
            f"{where} is taken as text: {found}. {give} it is text.",
            MixedColumnWarning,
            stacklevel=2,
        )


def checked_types(types: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """The user's ``types`` as a dict, refused where a kind is unknown.

    Raises
    ------
    ParameterError
        If a kind is not one of number, truth, text and date.
    """
    asked = dict(types or {})
    for name, kind in asked.items():
        if kind not in LETTERS:
            raise ParameterError(
                f"{where}: `types` must give each column one of {', '.join(map(repr, LETTERS))}, "
                f"got {kind!r} for column {name!r}. Name one of these kinds."
            )
    return asked


def absent(kind: str, n: int) -> Array:
    """A column of n missing values; ``kind`` is its letter: f, b, O or M."""
    if kind == "O":
        return np.full(n, None, dtype=object)
    if kind == "M":
        return np.full(n, np.datetime64("NaT"), dtype="datetime64[us]")
    return np.full(n, np.nan)


class Kinds:
    """Holds every column of a stream to one kind.

    Parameters
    ----------
    types : dict of str to str
        Kinds fixed beforehand.
    located : callable
        Says in words where a row of the source stands, by its number.
    known : dict of str to str or None, optional
        The columns in their order, where it is known beforehand; each with the letter of its dtype
        (f, O or M) where the source is certain of it.
    literals : Literals
        How text is parsed.

    Examples
    --------
    >>> kinds = Kinds({"code": "text"}, "meter.csv: row {}".format)
    >>> table = kinds.fit(Table.from_rows([{"code": 7, "load": None}]), first=0)
    >>> table.row(0)
    {'code': '7', 'load': nan}
    >>> kinds.fit(Table.from_rows([{"load": "high"}]), first=1).row(0)
    {'code': None, 'load': 'high'}
    """

    def __init__(
        self,
        types: Mapping[str, str],
        located: Callable[[int], str],
        known: Mapping[str, str | None] | None = None,
        literals: Literals = Literals(),  # noqa: B008  it does not change
    ) -> None:
        self._types = types
        self._located = located
        self._literals = literals
        self._forms: dict[str, str] = {}
        self._known: dict[str, str | None] = dict(known or {})

    def fit(self, table: Table, first: int, bad: dict[int, str] | None = None) -> Table:
        """The table with all columns so far, each of its kind.

        Parameters
        ----------
        table : Table
            The next rows. A column that it lacks is missing in all of them.
        first : int
            Where its first row stands in the source.
        bad : dict of int to str, optional
            Gets the errors of rows to be skipped, by index.

        Raises
        ------
        SourceError
            If a value is not of its column's kind, and ``bad`` is not given.
        """
        names = dict.fromkeys((*self._known, *table.names))
        return Table({name: self._fit(table, name, first, bad) for name in names}, len(table))

    def _fit(self, table: Table, name: str, first: int, bad: dict[int, str] | None) -> Array:
        known = self._known.setdefault(name, None)
        column = table.columns.get(name)
        if column is None:
            column = absent(known or "f", len(table))
        if name in self._types:
            column = self._converted(column, name, first, bad)
            self._known[name] = column.dtype.kind
            return column
        if known == column.dtype.kind:
            return column
        missing = is_missing(column)
        if missing.all():
            return absent(known or "f", len(table))
        if known is None:
            self._known[name] = column.dtype.kind
            return column
        for i in np.flatnonzero(~missing).tolist():
            expected = self._literals.word(KINDS[known])
            error = self._refused(name, first + i, expected, column[i], "as in the first rows")
            refuse(i, error, bad)
        return absent(known, len(table))

    def _converted(self, column: Array, name: str, first: int, bad: dict[int, str] | None) -> Array:
        """The column converted to the kind that the user gave."""
        kind, missing = self._types[name], is_missing(column)
        if missing.all():
            return absent(LETTERS[kind], len(column))
        if column.dtype.kind == LETTERS[kind]:
            return column
        values = as_python(column)
        words = [None if gone else as_text(v) for v, gone in zip(values, missing, strict=True)]
        form = self._form(name, words, first)
        converted, unfit = self._literals.array(words, form)
        word, because = self._literals.word(form), "as it is asked for"
        for i in unfit:
            refuse(i, self._refused(name, first + i, word, values[i], because), bad)
        return converted

    def _form(self, name: str, words: list[str | None], first: int) -> str:
        """Decide the form of a column of text that is to be of another kind."""
        if name not in self._forms:
            kind, where = self._types[name], self._located(first).partition(":")[0]
            form, odd = self._literals.decide(name, words, kind, source=where, first=first)
            report([] if odd is None else [odd], read=[name], targets=[], types=self._types)
            self._forms[name] = form or kind
        return self._forms[name]

    def _refused(
        self, name: str, row: int, expected: str, value: object, because: str
    ) -> SourceError:
        return SourceError(
            f"op.stream.read: {self._located(row)}, column {name!r} must be {expected}, {because}, "
            f"got {_shown(value)}. {self._literals.remedy(name, value)}"
        )


def refuse(i: int, error: SourceError, bad: dict[int, str] | None) -> None:
    """Raise the error of a row, or note it if bad rows are skipped."""
    if bad is None:
        raise error from None
    bad.setdefault(i, str(error))


def _shown(value: object) -> str:
    if isinstance(value, np.datetime64):
        return repr(str(value))
    return repr(value.item() if isinstance(value, np.generic) else value)


class Undecided:
    """Which columns must still be read of rows that are passed over.

    Parameters
    ----------
    names : iterable of str
        The columns that are not certain, in the source's order.
    start : int
        Rows before this one are passed over.

    Examples
    --------
    >>> undecided = Undecided(["gear", "when"], start=5000)
    >>> undecided.learn(Table.from_rows([{"gear": "low", "when": None}]))
    >>> undecided.names, undecided.passes(2000, 1000), undecided.passes(4500, 1000)
    (['when'], True, False)
    """

    def __init__(self, names: Iterable[str], start: int) -> None:
        self.names = list(names)
        self.start = start

    def passes(self, first: int, n: int = 1) -> bool:
        """Whether n rows, the first of which stands at ``first``, need not be given in full."""
        return first >= LOOKED_AT and first + n <= self.start

    def learn(self, table: Table) -> None:
        """Take note of the columns that have a value here."""
        if self.names:
            seen = table.columns
            self.names = [
                name for name in self.names if name not in seen or is_missing(seen[name]).all()
            ]
