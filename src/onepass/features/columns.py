"""Encoding of one column of a table by its type: numbers, text (one-hot or hashed) and dates.

The state of a column is immutable; learning returns a new one. ``new_outputs`` returns the output
columns that a column needs, ``with_outputs`` sets their positions, and ``encode_rows`` writes the
encoded rows there. Dates become phases in the day, the week and the year, and days since the first
date.
"""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from onepass.types import Array, Floats

NewOutput: TypeAlias = tuple[int, str]
"""The row of the block that adds an output column, and the suffix of its name."""


@dataclass(frozen=True, slots=True)
class Column(ABC):
    """State of one column; ``at`` is the position of its first output column, -1 for none.

    ``since`` is the number of rows before its first value.
    """

    code: ClassVar[str]
    """The ``dtype.kind`` of the column in a Table."""
    kind: ClassVar[str]
    """Name of the type, for messages."""

    at: int = -1
    since: int = 0

    @property
    def outputs(self) -> list[int]:
        """Positions of the output columns of this column."""
        return [self.at] if self.at >= 0 else []

    @property
    def origins(self) -> list[float] | None:
        """The constants that count in rows before the first value; None if outputs are 0 there."""
        return None

    @property
    def exceeds_limit(self) -> bool:
        """Whether there are more categories than output columns."""
        return False

    def is_compatible(self, other: Column) -> bool:
        """Return whether another encoder's column of the same name has the same encoding."""
        return type(self) is type(other)

    def without_outputs(self, since: int) -> Self:
        """Return a copy without outputs, whose first value follows ``since`` rows."""
        return replace(self, at=-1, since=since)

    @abstractmethod
    def new_outputs(self, values: Array) -> list[NewOutput]:
        """Return the output columns that these rows add, in the order of the rows."""

    def with_outputs(self, places: dict[str, int]) -> Self:
        """Return a copy with output columns at these positions, by label."""
        return replace(self, at=min(places.values()))

    @abstractmethod
    def encode_rows(self, values: Array | None, out: Floats) -> None:
        """Write the rows into the zeros of out (n, width); None means that all are missing."""

    @abstractmethod
    def encode_value(self, value: object, row: Floats) -> bool:
        """Write one value into the zeros of row (width,); return False if it has another type."""


@dataclass(frozen=True, slots=True)
class Number(Column):
    """Numbers and booleans, unchanged; missing values are nan, or 0 if ``sparse``."""

    code: ClassVar[str] = "f"
    kind: ClassVar[str] = "numbers"

    sparse: bool = False
    first: float = 0.0
    """The first value."""

    @property
    def origins(self) -> list[float] | None:
        """The first value."""
        return None if self.sparse else [self.first]

    def new_outputs(self, values: Array) -> list[NewOutput]:
        """Return one output column, added with the first value."""
        return [] if self.at >= 0 else [(int(np.argmax(~np.isnan(values))), "")]

    def encode_rows(self, values: Array | None, out: Floats) -> None:
        """Write the values."""
        out[:, self.at] = np.nan if values is None else values
        if self.sparse:
            out[np.isnan(out[:, self.at]), self.at] = 0.0

    def encode_value(self, value: Any, row: Floats) -> bool:
        """Encode a number, a bool or None."""
        if value is None:
            row[self.at] = 0.0 if self.sparse else math.nan
            return True
        if type(value) not in {float, int, bool} or value in {math.inf, -math.inf}:
            return False
        try:
            row[self.at] = value
        except OverflowError:  # a whole number beyond float64
            return False
        return True


@dataclass(frozen=True, slots=True)
class Hashed(Column):
    """Hash encoding: +1 or -1 in one of ``size`` columns, chosen by the hash of the text."""

    code: ClassVar[str] = "O"
    kind: ClassVar[str] = "text"

    size: int = 1
    seed: int = 0

    @property
    def outputs(self) -> list[int]:
        """Positions of all buckets."""
        return list(range(self.at, self.at + self.size)) if self.at >= 0 else []

    @property
    def labels(self) -> list[str]:
        """Suffixes of the names of the outputs."""
        return [f"#{bucket}" for bucket in range(self.size)]

    def is_compatible(self, other: Column) -> bool:
        """Return whether the size and the seed are equal."""
        return replace(self, at=0, since=0) == replace(other, at=0, since=0)

    def new_outputs(self, values: Array) -> list[NewOutput]:
        """Return the columns of all buckets, added with the first text."""
        if self.at >= 0:
            return []
        first = next(i for i, value in enumerate(values.tolist()) if value is not None)
        return [(first, label) for label in self.labels]

    def encode_rows(self, values: Array | None, out: Floats) -> None:
        """Write +1 or -1 into the bucket of the text of each row."""
        if values is None:
            return
        listed = values.tolist()
        buckets = {value: self._bucket(value) for value in set(listed) if value is not None}
        for i, value in enumerate(listed):
            if value is not None:
                place, sign = buckets[value]
                out[i, place] = sign

    def encode_value(self, value: object, row: Floats) -> bool:
        """Encode a text or None."""
        if type(value) is str:
            place, sign = self._bucket(value)
            row[place] = sign
            return True
        return value is None

    def _bucket(self, value: str) -> tuple[int, float]:
        """Return the output column and the sign of a text; they are the same on every machine."""
        key = str(self.seed).encode()
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        number = int.from_bytes(digest, "little")
        return self.at + (number >> 1) % self.size, 1.0 if number & 1 else -1.0


@dataclass(frozen=True, slots=True)
class Text(Column):
    """One-hot encoding of text; missing and unknown texts are 0 in all columns.

    The first ``limit`` categories, in order of appearance, have one column each. All further
    categories are encoded by ``others``.
    """

    code: ClassVar[str] = "O"
    kind: ClassVar[str] = "text"

    limit: int = 1
    places: dict[str, int] = field(default_factory=dict)
    others: Hashed = field(default_factory=Hashed)

    @property
    def outputs(self) -> list[int]:
        """Positions of the columns of categories, and of the shared columns."""
        return [*self.places.values(), *self.others.outputs]

    @property
    def exceeds_limit(self) -> bool:
        """Whether some categories have no output column of their own."""
        return len(self.outputs) > min(len(self.places), self.limit)

    def without_outputs(self, since: int) -> Self:
        """Return a copy without categories."""
        return replace(self, at=-1, since=since, places={})

    def new_outputs(self, values: Array) -> list[NewOutput]:
        """Return one column per new category within the limit, and those of further categories."""
        if len(self.outputs) > len(self.places):
            return []
        listed = values.tolist()
        fresh = set(listed).difference(self.places, (None,))
        found: list[NewOutput] = []
        for i, value in enumerate(listed if fresh else ()):
            if value not in fresh:
                continue
            if len(self.places) + len(found) == self.limit:
                return [*found, *((i, label) for label in self.others.labels)]
            fresh.discard(value)
            found.append((i, f"={value}"))
            if not fresh:
                break
        return found

    def with_outputs(self, places: dict[str, int]) -> Self:
        """Return a copy with the positions of new categories and of the shared columns."""
        new = {label[1:]: at for label, at in places.items() if label.startswith("=")}
        shared, others = {k: at for k, at in places.items() if k.startswith("#")}, self.others
        if shared:
            others = others.with_outputs(shared)
        return replace(self, places=self.places | new, others=others)

    def encode_rows(self, values: Array | None, out: Floats) -> None:
        """Write 1 into the column of the category of each row."""
        if values is None:
            return
        positions = np.array([self.places.get(v, -1) for v in values.tolist()], dtype=np.intp)
        rows = np.flatnonzero(positions >= 0)
        out[rows, positions[rows]] = 1.0
        if self.others.at >= 0 and len(rows) < len(values):
            rows = np.flatnonzero(positions < 0)
            rest = np.zeros((len(rows), out.shape[1]))
            self.others.encode_rows(values[rows], rest)
            out[rows] += rest

    def encode_value(self, value: object, row: Floats) -> bool:
        """Encode a text that has a column, or None."""
        if value is None:
            return True
        at = self.places.get(value, -1) if type(value) is str else -1
        if at >= 0:
            row[at] = 1.0
            return True
        return self.others.at >= 0 and self.others.encode_value(value, row)


CYCLES = ("hour", "weekday", "month", "yearday")
"""The cycles of a date: day, week in whole days, year in whole months, year in whole days."""

_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Date(Column):
    """Encoding of dates: sine and cosine of the phase in each cycle, and days since the first."""

    code: ClassVar[str] = "M"
    kind: ClassVar[str] = "dates"

    parts: tuple[str, ...] = ()
    origin: int = 0
    """The first date, in microseconds since 1970."""

    @property
    def outputs(self) -> list[int]:
        """Positions of all parts."""
        return list(range(self.at, self.at + self._width)) if self.at >= 0 else []

    @property
    def origins(self) -> list[float]:
        """The parts of the first date."""
        row = np.zeros((1, self.at + self._width))
        self.encode_rows(np.array([self.origin], dtype="datetime64[us]"), row)
        return list(map(float, row[0, self.outputs]))

    def is_compatible(self, other: Column) -> bool:
        """Return whether the parts are equal and days are counted from the same date."""
        same = replace(self, at=0, since=0) == replace(other, at=0, since=0)
        return same or (
            isinstance(other, Date) and self.parts == other.parts and "elapsed" not in self.parts
        )

    @property
    def _width(self) -> int:
        return sum(2 if part in CYCLES else 1 for part in self.parts)

    def new_outputs(self, values: Array) -> list[NewOutput]:
        """Return the columns of all parts, added with the first date."""
        if self.at >= 0:
            return []
        first = int(np.argmax(~np.isnat(values)))
        labels = [
            f".{part}{suffix}"
            for part in self.parts
            for suffix in (("_sin", "_cos") if part in CYCLES else ("",))
        ]
        return [(first, label) for label in labels]

    def encode_rows(self, values: Array | None, out: Floats) -> None:
        """Write each part; nan where missing."""
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

    def encode_value(self, value: object, row: Floats) -> bool:
        """Encode a date without a time zone, or None."""
        plain = type(value) is dt.date or (type(value) is dt.datetime and value.tzinfo is None)
        if plain or value is None:
            self.encode_rows(np.array([value], dtype="datetime64[us]"), row[None, :])
        return plain or value is None


def _phase(cycle: str, dates: Array, micros: Array) -> Floats:
    """Return the phase of dates in a cycle, within [0, 1)."""
    if cycle == "hour":
        of_day: Floats = (micros % _DAY) / _DAY
        return of_day
    days = micros // _DAY
    if cycle == "weekday":
        of_week: Floats = (days + 3) % 7 / 7  # 1970 began on a Thursday; weeks begin on Monday
        return of_week
    if cycle == "month":
        month: Floats = dates.astype("datetime64[M]").astype(np.int64) % 12 / 12
        return month
    year = dates.astype("datetime64[Y]")
    start = year.astype("datetime64[D]").astype(np.int64)
    length = (year + 1).astype("datetime64[D]").astype(np.int64) - start
    of_year: Floats = (days - start) / np.maximum(length, 1)  # length is 0 for NaT
    return of_year
