"""Head: the first rows of a stream, by which it is told from another.

A fingerprint is taken of rows, not of a file: it is the same whether the rows come from a file or
through a pipe, packed or not, and it stays the same while a file grows at its end. Its digest is
SHA-256 over the columns that are read, row for row: numbers as float64, text in UTF-8, dates as
microseconds; missing values of any kind are alike.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.stream.blocks import stacked
from onepass.stream.literals import KINDS
from onepass.stream.task import LOOKED_AT
from onepass.validation.table import Table, is_missing

__all__ = ["Head", "changed", "differences"]


class Head:
    """The first rows of a stream, at most :data:`~onepass.stream.task.LOOKED_AT`.

    Parameters
    ----------
    named : bool
        Whether the source names its columns; else a column is there once it has a value.

    Examples
    --------
    >>> head = Head()
    >>> head.add(Table.from_rows([{"km": 1.0}, {"km": 2.0}]), None)
    >>> head.rows, head.full
    (2, False)
    """

    def __init__(self, *, named: bool = False) -> None:
        self.rows = 0
        self._named = named
        self._tables: list[Table] = []
        self._answers: list[Table] = []

    @property
    def full(self) -> bool:
        """Whether no more rows are wanted."""
        return self.rows >= LOOKED_AT

    def add(self, table: Table, answers: Table | None) -> None:
        """Take the next rows, as many as are wanted."""
        if not self.full:
            wanted = slice(0, LOOKED_AT - self.rows)
            self._tables.append(table[wanted])
            if answers is not None:
                self._answers.append(answers[wanted])
            self.rows += len(self._tables[-1])

    def columns(self, rows: int) -> dict[str, str | None]:
        """The kind of each column as its first rows show it; None where they are all missing."""
        return {
            name: None if is_missing(column).all() else KINDS[column.dtype.kind]
            for name, column in self._first(rows).items()
        }

    def digest(self, rows: int) -> str:
        """SHA-256 of the first rows, in hexadecimal."""
        whole = hashlib.sha256()
        for name, column in sorted(self._first(rows).items()):
            whole.update(hashlib.sha256(name.encode()).digest())
            whole.update(_digested(column))
        return whole.hexdigest()

    def _first(self, rows: int) -> dict[str, Array]:
        """The columns of the first rows; answers that came apart stand behind them."""
        held = [("", self._tables), ("answer ", self._answers)]
        columns: dict[str, Array] = {}
        for prefix, tables in held:
            if tables:
                table = stacked(tuple(tables))[:rows]
                columns |= {
                    prefix + name: column
                    for name, column in table.columns.items()
                    if self._named or not is_missing(column).all()
                }
        return columns


def _digested(column: Array) -> bytes:
    """SHA-256 of a column; a missing value is the same whatever the column's kind."""
    missing = is_missing(column)
    told = hashlib.sha256(np.packbits(missing).tobytes())
    known = column[~missing]
    if known.dtype.kind == "O":
        words = [str(value).encode() for value in known.tolist()]
        told.update(np.array([len(word) for word in words], dtype="<i8").tobytes())
        told.update(b"".join(words))
    elif known.dtype.kind == "M":
        told.update(known.astype("datetime64[us]").astype("<i8").tobytes())
    else:
        told.update((known.astype("<f8") + 0.0).tobytes())  # -0 is 0
    return told.digest()


def differences(
    then: Mapping[str, Any], now: Mapping[str, Any], head: Head | None = None
) -> list[str]:
    """In which ways a stream is not the one of which a fingerprint was taken.

    Parameters
    ----------
    then, now : dict
        Fingerprints: that of the stream as it was, and that of the one at hand.
    head : Head, optional
        The first rows at hand. Where fewer rows were looked at then, as many are now.

    Returns
    -------
    differences : list of str
        A phrase each; empty where the rows are the same.

    Examples
    --------
    >>> differences({"target": "km"}, {"target": "price"})
    ["its target was 'km' and is 'price'"]
    >>> len(differences({"target": "km"}, {"target": "km"}))
    0
    """
    rows = int(then.get("rows", 0))
    if rows > int(now.get("rows", 0)):
        few = f"it had at least {rows} rows and has {now.get('rows', 0)}"
        return [*changed(then, now, alike=False), few]
    columns = now.get("columns", {}) if head is None else head.columns(rows)
    others = _columns(then.get("columns", {}), columns)
    said = [*changed(then, now, alike=not others), *others]
    digest = now.get("digest") if head is None else head.digest(rows)
    if not said and digest != then.get("digest"):
        said.append(f"the values in its first {rows} rows are others")
    return said


def changed(then: Mapping[str, Any], now: Mapping[str, Any], *, alike: bool) -> list[str]:
    """The differences between two fingerprints in the choice and the reading of columns.

    Changes that do not affect the rows read before are allowed, so that the remedies of errors
    work: further spellings of a missing value, another ``bad_rows`` or ``missing`` than "error",
    new columns to drop, and kinds that change no column.

    Parameters
    ----------
    then, now : dict
        Fingerprints.
    alike : bool
        Whether the columns of the first rows have the kinds that they had.

    Examples
    --------
    >>> changed({"read": {"na": ["-"]}}, {"read": {"na": ["?", "-"]}}, alike=True)
    []
    >>> len(changed({"drop": []}, {"drop": ["km"]}, alike=True))
    0
    """
    usual = {"na": [], "missing": "keep", "bad_rows": "error"}
    one, two = ({**usual, **(each.get("read") or {})} for each in (then, now))
    remedied = [option for option in ("missing", "bad_rows") if one[option] == "error"]
    if set(one["na"]) <= set(two["na"]):
        remedied.append("na")
    dropped = set(now.get("drop") or ()) - set(then.get("drop") or ())
    may = {
        "read": {**one, **dict.fromkeys(remedied)} == {**two, **dict.fromkeys(remedied)},
        "drop": set(then.get("drop") or ()) <= set(now.get("drop") or ())
        and not dropped & then.get("columns", {}).keys(),
        "types": alike,
    }
    return [
        f"{word} was {then.get(key)!r} and is {now.get(key)!r}"
        for key, word in (
            ("target", "its target"), ("time", "its column of times"), ("drop", "what is dropped"),
            ("features", "the columns asked for"), ("types", "the kinds asked for"),
            ("read", "how it is read"),
        )
        if then.get(key) != now.get(key) and not may.get(key)
    ]  # fmt: skip


def _columns(then: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    gone = [name for name in then if name not in now]
    new = [name for name in now if name not in then]
    said = [f"its column {name!r} is gone" for name in gone]
    said += [f"its column {name!r} is new" for name in new]
    said += [
        f"its column {name!r} held {then[name] or 'nothing'} and holds {kind or 'nothing'}"
        for name, kind in now.items()
        if name in then and kind != then[name]
    ]
    if not said and list(then) != list(now):
        said.append(f"its columns stood as {list(then)} and stand as {list(now)}")
    return said
