"""Dates: a date as its phases in the day, the week and the year, and as days since the first."""

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onepass.errors import Array, Floats
from onepass.features.columns import Arrival, Column

__all__ = ["CYCLES", "Date"]

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

    def write_one(self, value: Any, row: Floats) -> bool:
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
