"""Union: what two encoders know of their columns, as one.

The second one's rows came after the first one's. So what only it knows is appended in the order in
which it came there, as if its rows had brought it here: columns, and of each its outputs.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onepass.errors import Array, MergeError
from onepass.features.columns import Column, Hashed, Number, Text
from onepass.features.dates import Date
from onepass.features.layout import Columns
from onepass.features.transformer import Transformer
from onepass.validation.arrays import Places

__all__ = ["NamedColumns", "Union", "united"]


class Union(NamedTuple):
    """The columns of both."""

    columns: Columns
    layout: list[str]
    """The names of the output columns."""
    at: Array
    """The place of each output of the second, (width′,)."""


class NamedColumns(Transformer):
    """Columns that are known by name: how they begin, and how two that know some become one."""

    merging = "exact"

    columns_: Columns
    layout_: list[str]
    categories: str
    max_categories: int
    hash_size: int
    times: Sequence[str]
    extra: str
    seed: int

    def join(self, other: "NamedColumns", at: Places | None, where: str) -> Places:
        """Know the other's columns and categories too, in the order in which they came there."""
        if not hasattr(self, "columns_"):
            self._start()
        rows = self.rows_seen_ + other.rows_seen_
        if at is not None:  # numbers, from the feature before
            self.take(np.empty((0, at.d)), None)
            self.rows_seen_ = rows
            return at
        both = united(self, other, where)
        new = both.layout[len(self.layout_) :]
        self._hold(both.columns, new)
        self.rows_seen_ = rows
        return Places(both.at, len(both.layout), both.layout)

    def differs(self, other: "NamedColumns") -> str:
        """Where the other's rows would have been encoded in another way here, and why."""
        if not self.rows_seen_:
            return ""
        for name, mine in self.columns_.items():
            theirs = other.columns_.get(name)
            if mine is None or mine.code == "O":
                continue  # nothing was known of it, or 0 stands for a missing text in both
            if theirs is None or theirs.since:
                rows = other.rows_seen_ if theirs is None else theirs.since
                return (
                    f"column {name!r} had no value in the first {rows:,} rows of the second, which "
                    "took it for 0, while it is missing to the first. Give all parts its values"
                )
        extra = [name for name in other.columns_ if name not in self.columns_]
        if extra and self.extra != "learn":
            return (
                f"the second has a column {extra[0]!r}, which the first would {self.extra}. "
                "Leave it out"
            )
        return ""

    def _begin(self, values: Array, first: int) -> Column:
        """A column whose first value stands in row ``first``."""
        since = self.rows_seen_ + first
        if values.dtype.kind == "f":
            return Number(since=since)
        if values.dtype.kind == "M":
            origin = int(values[first].astype("datetime64[us]").astype(np.int64))
            return Date(parts=tuple(self.times), origin=origin, since=since)
        if self.categories == "hash":
            return Hashed(size=self.hash_size, seed=self.seed, since=since)
        return Text(limit=self.max_categories, since=since)

    @abstractmethod
    def _start(self) -> None:
        """Know no column yet; refuse hyperparameters out of range."""

    @abstractmethod
    def _hold(self, columns: Columns, new: list[str]) -> None:
        """Know these columns, and the outputs that came."""


def united(one: NamedColumns, other: NamedColumns, where: str) -> Union:
    """What both know of their columns.

    Parameters
    ----------
    one, other : Encode
        With the same parameters.
    where : str
        The public call, for messages.

    Raises
    ------
    MergeError
        If a column is of two kinds, or cannot hold what both know.
    """
    layout = list(one.layout_)
    mine = _owners(one)
    known = {owner: at for at, owner in enumerate(mine)}
    at: list[int] = []
    new: dict[str, dict[str, int]] = {}
    for owner, label in zip(_owners(other), other.layout_, strict=True):
        place = known.get(owner)
        if place is None:
            place = len(layout)
            layout.append(label)
            new.setdefault(owner[0], {})[owner[1]] = place
        at.append(place)
    columns: Columns = dict(one.columns_)
    for name, theirs in other.columns_.items():
        column = columns.setdefault(name, None)
        if theirs is None:
            continue
        _hold_one_kind(name, column, theirs, where)
        if column is None:
            column = theirs.unplaced(one.rows_seen_ + theirs.since)
        if name in new:
            column = column.placed(new[name])
        _hold_room(name, column, where)
        columns[name] = column
    return Union(columns, layout, np.array(at, dtype=np.intp))


def _owners(encode: NamedColumns) -> list[tuple[str, str]]:
    """Of each output, the column that it belongs to, and its label there."""
    owner = [("", "")] * len(encode.layout_)
    for name, column in encode.columns_.items():
        for place in () if column is None else column.outputs:
            owner[place] = (name, encode.layout_[place][len(name) :])
    return owner


def _hold_one_kind(name: str, mine: Column | None, theirs: Column, where: str) -> None:
    if mine is not None and not mine.alike(theirs):
        kinds = f"{mine.kind}, as in the first, got {theirs.kind}"
        if mine.kind == theirs.kind:
            kinds = "counted from one date, got two. Leave 'elapsed' out of Encode(times=...)"
        raise MergeError(
            f"{where}: column {name!r} must hold {kinds}. Give all parts the same columns."
        )


def _hold_room(name: str, column: Column, where: str) -> None:
    """Refuse categories beyond those that have an output each: nobody knows which came first."""
    if column.crowded:
        raise MergeError(
            f"{where}: column {name!r} must have no more categories in both parts together than "
            f"Encode(max_categories=...) allows, got {len(column.outputs)} or more. Allow more, or "
            'learn with Encode(categories="hash").'
        )
