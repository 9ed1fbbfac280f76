"""Layout: which output columns come with the rows of a table, and where they stand.

Outputs are appended row after row, and within a row in the order of the input columns; so the
layout is the same however a stream is cut into blocks.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from onepass.errors import Array, Floats
from onepass.features.columns import Column
from onepass.validation.arrays import hold_values
from onepass.validation.table import Table, is_missing

__all__ = ["Columns", "Extension", "encoded", "extended"]

Columns: TypeAlias = dict[str, Column | None]
"""What is known of each input column; None for one that has shown no value yet."""


class Extension(NamedTuple):
    """What a block of rows brings."""

    columns: Columns
    """What is known of each input column now."""
    names: list[str]
    """The names of the new output columns, in order."""
    rows: list[int]
    """The row that each of them came with."""


def extended(
    columns: Columns, table: Table, width: int, begin: Callable[[Array, int], Column]
) -> Extension:
    """Take in what these rows bring.

    Parameters
    ----------
    columns : dict
        What is known before these rows; it is left as it is.
    table : Table of n >= 0 rows
        Columns of the kinds known, or missing in every row.
    width : int
        The number of output columns before these rows.
    begin : callable
        Makes a column from its values, shape (n,), and the row of its first one.
    """
    after = columns | {name: None for name in table.names if name not in columns}
    coming: list[tuple[int, int, int, str, str]] = []
    for position, (name, column) in enumerate(after.items()):
        values = table.columns.get(name)
        if values is None:
            continue
        if column is None:
            known = ~is_missing(values)
            if not known.any():
                continue
            after[name] = column = begin(values, int(known.argmax()))  # noqa: PLW2901
        if values.dtype.kind == column.code:
            coming += [
                (row, position, i, name, label)
                for i, (row, label) in enumerate(column.arrivals(values))
            ]
    coming.sort()
    return Extension(
        _placed(after, [(name, label) for *_, name, label in coming], width),
        [name + label for *_, name, label in coming],
        [row for row, *_ in coming],
    )


def encoded(columns: Mapping[str, Column | None], table: Table, width: int) -> Floats:
    """The rows of a table as an array of shape (n, width)."""
    hold_values(table.n, width, "Encode")
    out = np.zeros((table.n, width))
    for name, column in columns.items():
        if column is not None:
            values = table.columns.get(name)
            fits = values is not None and values.dtype.kind == column.code
            column.write(values if fits else None, out)
    return out


def _placed(columns: Columns, coming: Iterable[tuple[str, str]], width: int) -> Columns:
    """The columns, once their new outputs stand from ``width`` on."""
    places: dict[str, dict[str, int]] = {}
    for at, (name, label) in enumerate(coming, width):
        places.setdefault(name, {})[label] = at
    for name, new in places.items():
        column = columns[name]
        if column is not None:
            columns[name] = column.placed(new)
    return columns
