"""Oddities: text columns of a file that are numbers but for a few cells.

One ``?`` among twenty thousand numbers makes a column text, and each of its numbers a category.
What such a cell means, nobody but the user knows; so it is said.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from onepass.errors import MixedColumnWarning, TypeMismatchError

__all__ = ["Oddity", "found", "told"]

_MOST = 0.9  # of a column's values: more numbers than this, and the others are odd
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"


@dataclass(frozen=True, slots=True)
class Oddity:
    """A text column most of whose values are numbers.

    Parameters
    ----------
    name : str
        The column.
    values, numbers : int
        How many values were looked at, and how many of them are numbers.
    value : str
        The first that is none.
    row : int
        Where it stands, counting from 0.
    """

    name: str
    values: int
    numbers: int
    value: str
    row: int


def found(table: Any, pa: ModuleType, pc: ModuleType) -> list[Oddity]:
    """The odd columns of a table.

    Parameters
    ----------
    table : pyarrow.Table
        The first rows of a source.
    pa, pc : modules
        pyarrow and its functions, which are optional and so handed in.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> table = pa.table({"load": [*"0123456789", "?"], "by": list("abcabcabcab")})
    >>> [(odd.name, odd.value) for odd in found(table, pa, pc)]
    [('load', '?')]
    >>> found(table, pa, pc)[0].row
    10
    """
    odd = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_string(column.type):
            continue
        numeric = pc.match_substring_regex(column, _NUMBER)
        values, numbers = len(column) - column.null_count, pc.sum(numeric).as_py() or 0
        if _MOST * values < numbers < values:
            row = pc.index(numeric, value=False).as_py()
            odd.append(Oddity(name, values, numbers, column[row].as_py(), row))
    return odd


def told(
    odd: Iterable[Oddity],
    source: str,
    *,
    read: Sequence[str],
    targets: Sequence[str],
    types: Mapping[str, str],
) -> None:
    """Warn of odd features; refuse odd answers, each of which would be a class.

    Parameters
    ----------
    odd : iterable of Oddity
        What was found.
    source : str
        The source's name.
    read, targets : sequence of str
        The columns that are read, and those of them that are answers.
    types : dict of str to str
        The kinds that are fixed: of these columns nothing is said.

    Raises
    ------
    TypeMismatchError
        If a target is odd.
    """
    for one in odd:
        if one.name not in read or one.name in types:
            continue
        said = (
            f"{one.numbers:,} of the first {one.values:,} values are numbers, but {one.value!r} "
            f"in row {one.row} (counting from 0) is none"
        )
        missing = f"na=({one.value!r},) (--na {one.value!r}) if it means missing"
        text = f"types={{{one.name!r}: 'text'}} (--type {one.name}=text)"
        if one.name in targets:
            raise TypeMismatchError(
                f"op.stream.read: {source}: the target {one.name!r} must hold numbers or labels, "
                f"got both: {said}. Give {missing}, or {text} if all of them are labels: then the "
                "task is classification."
            )
        warnings.warn(
            f"{source}: column {one.name!r} is taken as text: {said}. Give {missing}, or {text} "
            "if it is text.",
            MixedColumnWarning,
            stacklevel=2,
        )
