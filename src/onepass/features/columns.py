"""Encoding of one column of a table by its type: numbers, text (one-hot or hashed) and dates.

The state of a column is immutable; learning returns a new one. A column requests output columns
(``arrivals``), is given their positions (``placed``), and writes its rows there (``write``). Dates
become phases in the day, the week and the year, and days since the first date.
"""

import datetime as dt
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from onepass.types import Array, Floats

__all__ = ["CYCLES", "Arrival", "Column", "Date", "Hashed", "Number", "Text"]


Arrival: TypeAlias = tuple[int, str]
"""A row of the block, and what to append to the column's name for an output that comes with it."""

_OTHER = " (other)"  # labels of categories begin with "=", so none of them is this one


@dataclass(frozen=True, slots=True)
class Column(ABC):
    """What is known of one column; the first output column stands at ``at``, -1 for none yet.

    ``since`` is the number of rows before its first value.
    """

    code: ClassVar[str]
    """The dtype.kind of the column's values in a Table."""
    kind: ClassVar[str]
    """The same in words."""

    at: int = -1
    since: int = 0

    @property
    def outputs(self) -> list[int]:
        """The output columns that are its own."""
        return [self.at] if self.at >= 0 else []

    @property
    def crowded(self) -> bool:
        """Whether more values have come than can be told apart."""
        return False

    def alike(self, other: "Column") -> bool:
        """Whether another of this name writes what this one would."""
        return type(self) is type(other)

    def unplaced(self, since: int) -> Self:
        """The same without outputs, its first value after so many rows."""
        return replace(self, at=-1, since=since)

    @abstractmethod
    def arrivals(self, values: Array) -> list[Arrival]:
        """The output columns that these rows bring, in order of their rows."""

    def placed(self, places: dict[str, int]) -> Self:
        """The column once its arrivals, by their labels, stand at these output columns."""
        return replace(self, at=min(places.values()))

    @abstractmethod
    def write(self, values: Array | None, out: Floats) -> None:
        """Write rows into the zeros of out (n, width); None: all rows are missing."""

    @abstractmethod
    def write_one(self, value: object, row: Floats) -> bool:
        """Write one value into the zeros of row (width,); False if that takes more than a look."""


@dataclass(frozen=True, slots=True)
class Number(Column):
    """A number or truth value is itself; missing is nan."""

    code: ClassVar[str] = "f"
    kind: ClassVar[str] = "numbers"

    def arrivals(self, values: Array) -> list[Arrival]:
        """The column itself, with its first value."""
        return [] if self.at >= 0 else [(int(np.argmax(~np.isnan(values))), "")]

    def write(self, values: Array | None, out: Floats) -> None:
        """The values; nan where missing."""
        out[:, self.at] = np.nan if values is None else values

    def write_one(self, value: Any, row: Floats) -> bool:
        """A plain number, or None."""
        if value is None:
            row[self.at] = math.nan
            return True
        if type(value) not in {float, int, bool} or value in {math.inf, -math.inf}:
            return False
        try:
            row[self.at] = value
        except OverflowError:  # a whole number beyond float64
            return False
        return True


@dataclass(frozen=True, slots=True)
class Text(Column):
    """A text lights the column of its category; missing and unknown texts light none.

    The first ``limit`` categories get a column each, in order of arrival; all later ones share one
    more, at ``at``.
    """

    code: ClassVar[str] = "O"
    kind: ClassVar[str] = "text"

    limit: int = 1
    places: dict[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> list[int]:
        """Those of the categories, and that of all others."""
        return [*self.places.values(), *([self.at] if self.at >= 0 else [])]

    @property
    def crowded(self) -> bool:
        """Whether some categories have no output of their own."""
        return self.at >= 0 or len(self.places) > self.limit

    def unplaced(self, since: int) -> Self:
        """Without any category."""
        return replace(self, at=-1, since=since, places={})

    def arrivals(self, values: Array) -> list[Arrival]:
        """A column for each new category while there is room, and one for all others."""
        if self.at >= 0:
            return []
        listed = values.tolist()
        fresh = set(listed).difference(self.places, (None,))
        found: list[Arrival] = []
        for i, value in enumerate(listed if fresh else ()):
            if value not in fresh:
                continue
            if len(self.places) + len(found) == self.limit:
                return [*found, (i, _OTHER)]
            fresh.discard(value)
            found.append((i, f"={value}"))
            if not fresh:
                break
        return found

    def placed(self, places: dict[str, int]) -> Self:
        """With the places of new categories, and that of all others."""
        new = {label[1:]: at for label, at in places.items() if label != _OTHER}
        return replace(self, at=places.get(_OTHER, self.at), places=self.places | new)

    def write(self, values: Array | None, out: Floats) -> None:
        """1 in the column of each row's category."""
        if values is None:
            return
        get, other = self.places.get, self.at
        lit = np.array([-1 if v is None else get(v, other) for v in values.tolist()], dtype=np.intp)
        rows = np.flatnonzero(lit >= 0)
        out[rows, lit[rows]] = 1.0

    def write_one(self, value: object, row: Floats) -> bool:
        """A text of a category that has a column, or None."""
        if value is None:
            return True
        at = self.places.get(value, self.at) if type(value) is str else -1
        if at >= 0:
            row[at] = 1.0
        return at >= 0


@dataclass(frozen=True, slots=True)
class Hashed(Column):
    """A text is +1 or -1 in one of ``size`` columns, both told by its hash; missing lights none."""

    code: ClassVar[str] = "O"
    kind: ClassVar[str] = "text"

    size: int = 1
    seed: int = 0

    @property
    def outputs(self) -> list[int]:
        """All of the buckets."""
        return list(range(self.at, self.at + self.size)) if self.at >= 0 else []

    def alike(self, other: Column) -> bool:
        """Whether the hash is the same."""
        return replace(self, at=0, since=0) == replace(other, at=0, since=0)

    def arrivals(self, values: Array) -> list[Arrival]:
        """All columns at once, with the first text."""
        if self.at >= 0:
            return []
        first = next(i for i, value in enumerate(values.tolist()) if value is not None)
        return [(first, f"#{bucket}") for bucket in range(self.size)]

    def write(self, values: Array | None, out: Floats) -> None:
        """+1 or -1 in the column of each row's text."""
        if values is None:
            return
        listed = values.tolist()
        told = {value: self._told(value) for value in set(listed) if value is not None}
        for i, value in enumerate(listed):
            if value is not None:
                place, sign = told[value]
                out[i, place] = sign

    def write_one(self, value: object, row: Floats) -> bool:
        """Any text, or None."""
        if type(value) is str:
            place, sign = self._told(value)
            row[place] = sign
            return True
        return value is None

    def _told(self, value: str) -> tuple[int, float]:
        """The output column and the sign of a text, the same on every machine."""
        key = str(self.seed).encode()
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        number = int.from_bytes(digest, "little")
        return self.at + (number >> 1) % self.size, 1.0 if number & 1 else -1.0


CYCLES = ("hour", "weekday", "yearday")
"""The cycles of a date: the day, the week (in whole days) and the year (in whole days)."""

_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Date(Column):
    """A date is the sine and cosine of its phase in each cycle, and days since the first date."""

    code: ClassVar[str] = "M"
    kind: ClassVar[str] = "dates"

    parts: tuple[str, ...] = ()
    origin: int = 0
    """The first date, in microseconds since 1970."""

    @property
    def outputs(self) -> list[int]:
        """Those of all parts."""
        return list(range(self.at, self.at + self._width)) if self.at >= 0 else []

    def alike(self, other: Column) -> bool:
        """Whether the parts are the same, and days are counted from the same date."""
        same = replace(self, at=0, since=0) == replace(other, at=0, since=0)
        return same or (
            isinstance(other, Date) and self.parts == other.parts and "elapsed" not in self.parts
        )

    @property
    def _width(self) -> int:
        return sum(2 if part in CYCLES else 1 for part in self.parts)

    def arrivals(self, values: Array) -> list[Arrival]:
        """All parts at once, with the first date."""
        if self.at >= 0:
            return []
        first = int(np.argmax(~np.isnat(values)))
        labels = [
            f".{part}{suffix}"
            for part in self.parts
            for suffix in (("_sin", "_cos") if part in CYCLES else ("",))
        ]
        return [(first, label) for label in labels]

    def write(self, values: Array | None, out: Floats) -> None:
        """Each part; nan where missing."""
        block = out[:, self.at : self.at + self._width]
        if values is None:
            block[:] = np.nan
            return
        values = values.astype("datetime64[us]")
        micros = values.astype(np.int64)
        j = 0
        for part in self.parts:
            if part in CYCLES:
                angle = 2 * np.pi * _phase(part, values, micros)
                block[:, j], block[:, j + 1] = np.sin(angle), np.cos(angle)
                j += 2
            else:
                block[:, j] = (micros - self.origin) / _DAY
                j += 1
        missing = np.isnat(values)
        if missing.any():
            block[missing] = np.nan

    def write_one(self, value: object, row: Floats) -> bool:
        """A date without a time zone, or None."""
        plain = type(value) is dt.date or (type(value) is dt.datetime and value.tzinfo is None)
        if plain or value is None:
            self.write(np.array([value], dtype="datetime64[us]"), row[None, :])
        return plain or value is None


def _phase(cycle: str, dates: Array, micros: Array) -> Floats:
    """How much of its cycle a date has behind it, within [0, 1)."""
    if cycle == "hour":
        of_day: Floats = (micros % _DAY) / _DAY
        return of_day
    days = micros // _DAY
    if cycle == "weekday":
        of_week: Floats = (days + 3) % 7 / 7  # 1970 began on a Thursday; weeks begin on Monday
        return of_week
    year = dates.astype("datetime64[Y]")
    start = year.astype("datetime64[D]").astype(np.int64)
    length = (year + 1).astype("datetime64[D]").astype(np.int64) - start
    of_year: Floats = (days - start) / np.maximum(length, 1)  # a missing date has no length
    return of_year
