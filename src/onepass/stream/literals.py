"""Literals: text as numbers, truth values, dates, times of day and durations.

A column of text has one form, which its first values decide: the form that all of them have. The
parser that decides is the parser that converts, so no value that was looked at is refused later. A
form of dates is a format of ``strptime``; a time of day may follow it, and a UTC offset either all
values have or none. Times of day and durations are numbers of seconds. Digits of a second beyond
the sixth are cut off.
"""

import datetime as dt
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from onepass.errors import ParameterError
from onepass.types import Array

__all__ = ["ISO", "LETTERS", "SKIP", "ZONED", "Literals", "Oddity", "as_text"]

LETTERS = {"number": "f", "truth": "f", "text": "O", "date": "M"}
ISO, ZONED = "%Y-%m-%d", " with UTC offset"
SKIP = "bad_rows='skip' (--bad-rows skip) to leave such rows out"
"""A remedy of errors of rows."""
_WORDS = {"number": "a number", "truth": "true or false", "text": "text", "date": "a date"}
_NOUNS = {"number": "numbers", "true or false": "truth values", "duration": "times of day"}
_DTYPES = {"number": "f8", "truth": "f8", "text": "O", "date": "M8[us]"}
_TRUE = {"true", "t", "yes", "1", "1.0"}
_FALSE = {"false", "f", "no", "0", "0.0"}
_BASIC = "%Y%m%d"  # a number, unless a date is asked for
_DAYS = (
    ISO, "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%b %d %Y",
    "%B %d %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%Y-%m", _BASIC,
)  # fmt: skip
_HALF = r"(?: ?(?P<p>[AaPp])\.?[Mm]\.?)?"
_STAMP = re.compile(
    r"(?P<day>(?:[^ T]|T(?!\d))+(?: +[^ :]+ +\d{4})?|.+?)"
    r"(?:(?:T|,? +)(?P<H>\d{1,2})(?P<rest>(?::\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?)"
    rf"{_HALF}(?: ?(?P<z>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?)?",
    re.ASCII,
)
_CLOCK = re.compile(
    r"(?=.)(?:(?P<D>[+-]?\d{1,9}) days?,? *)?(?:(?P<s>[+-]?)(?P<H>\d{1,9}):(?P<M>[0-5]\d)"
    rf"(?::(?P<S>[0-5]\d)(?:\.(?P<f>\d{{1,9}}))?)?{_HALF})?",
    re.ASCII,
)
_PERIOD = re.compile(
    r"(?P<s>[+-]?)P(?=.)(?:(?P<d>\d{1,9})D)?(?:T(?=.)(?:(?P<H>\d{1,9})H)?"
    r"(?:(?P<M>\d{1,9})M)?(?:(?P<S>\d{1,9})(?:\.(?P<f>\d{1,9}))?S)?)?(?P<p>)",
    re.ASCII,
)
_LIKELY = re.compile(r"\s*(?:[+-]?(?:[.,P]?\d|P|inf|nan|true|false)|[a-z]{3,9} +\d)", re.IGNORECASE)
_SPELLINGS = [
    (".", ""),
    (",", ""),
    *((d, t) for t in ",. \u00a0\u202f'\u2019" for d in ".," if d != t),
]
_HEAD = 256  # values by which the likeliest forms are chosen
_SOME, _MOST = 0.1, 0.9  # of the values: where fewer have a form, text is meant; others are odd
_Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Oddity:
    """Why a column of text is not read as most of its values look.

    Parameters
    ----------
    source, name : str
        The source and the column.
    values : int
        How many values were looked at.
    row : int
        The row of the example, counting from 0.
    what : {"mixed", "local", "quoted", "ambiguous", "zeros"}
        Some values are of another kind; they are numbers in another spelling, or such in what is
        text in the source; they are dates in which day and month may be either; they are digits
        with leading zeros.
    noun : str
        What most values are, or what all must be.
    fits : int
        How many values are ``noun``.
    value : str
        An example: a value of another kind, in another spelling, with a leading zero.
    remedy : str
        The options that read the values.
    """

    source: str
    name: str
    values: int
    row: int
    what: str
    noun: str
    fits: int
    value: str
    remedy: str = ""


def as_text(value: Any) -> str:
    """A value as a person would write it: a number is 7, not 7.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


class Literals:
    """Parses text by the spelling that the user gives.

    Parameters
    ----------
    decimal : str
        The decimal separator.
    thousands : str
        The separator of groups of digits; none if empty.
    date_format : str, optional
        A further form of dates, as ``strptime`` takes it.

    Raises
    ------
    ParameterError
        If one is no separator, or no format of dates.

    Examples
    --------
    >>> literals = Literals(decimal=",", thousands=".")
    >>> literals.decide("load", ["1.234,5", "7"])
    ('number', None)
    >>> literals.array(["1.234,5", None], "number")[0]
    array([1234.5,    nan])
    >>> len(literals.array(["Jan 5, 2024 3:04 PM"], "%b %d %Y")[0])
    1
    """

    def __init__(
        self, decimal: str = ".", thousands: str = "", date_format: str | None = None
    ) -> None:
        _check(decimal, thousands, date_format)
        given = [("decimal", decimal.strip(".")), ("thousands", thousands)]
        self.told = {k: v for k, v in [*given, ("date_format", date_format)] if v}
        self._decimal = decimal
        days = dict.fromkeys((*([date_format] if date_format else []), *_DAYS))
        self._dates: dict[str, _Parse] = {
            day + zone: partial(_date, day, bool(zone), day == date_format)
            for day in days
            for zone in ("", ZONED)
        }
        self._local: dict[str, _Parse] = {
            _options(*pair, decimal): _number(*pair)
            for pair in _SPELLINGS
            if pair != (decimal, thousands)
        }
        numbers: dict[str, _Parse] = {
            "number": _number(decimal, thousands), "duration": _span,
            "true or false": partial(_truth, {"true", "1"}, {"false", "0"}),
        }  # fmt: skip
        quoted: dict[str, _Parse] = {
            form: partial(_spelt, parse, numbers["number"]) for form, parse in self._local.items()
        }
        dates = {form: parse for form, parse in self._dates.items() if not form.startswith(_BASIC)}
        self._forms: dict[str | None, dict[str, _Parse]] = {
            None: numbers | dates | self._local,
            "quoted": {"duration": _span} | dates | quoted,
            "number": numbers | {"plain": _number(".", "")},
            "truth": {"truth": partial(_truth, _TRUE, _FALSE)},
            "text": {"text": str},
            "date": self._dates,
        }
        self._parsers = {f: parse for forms in self._forms.values() for f, parse in forms.items()}

    def kind(self, form: str) -> str:
        """The kind of a form's values: number, truth, text or date."""
        kinds = {"duration": "number", "plain": "number", "true or false": "truth"}
        return "date" if form in self._dates else kinds.get(form, form)

    def word(self, form: str) -> str:
        """What a value of a form is, for messages."""
        plain = form == ISO or form not in self._dates
        return _WORDS[self.kind(form)] + ("" if plain else f" ({form})")

    def decide(
        self,
        name: str,
        values: Sequence[str | None],
        kind: str | None = None,
        *,
        source: str = "",
        first: int = 0,
    ) -> tuple[str | None, Oddity | None]:
        """The form of a column by its values.

        Parameters
        ----------
        name : str
            The column.
        values : sequence of str or None
            Its first values.
        kind : str, optional
            The kind that was asked for; "quoted" for what is text in the source, as in JSON, and
            may be dates, times of day and durations.
        source : str
            The source, for messages.
        first : int
            The row of the first value.

        Returns
        -------
        form : str or None
            None where there is no value yet.
        oddity : Oddity or None
            The warning or error of the column.
        """
        counts = Counter(value for value in values if value is not None)
        asked = kind not in {None, "quoted"}
        if not counts or kind == "text":
            return ("text" if counts or asked else None), None
        least = 0 if asked else max(1, _SOME * counts.total())
        if not asked and "date_format" not in self.told:
            likely = sum(n for value, n in counts.items() if _LIKELY.match(value))
            if likely < least:
                return "text", None
        best, fits = _best(counts, self._forms[kind])
        if fits < least:
            return "text", None
        form = best[0]
        found = self._odd(best, fits, counts, kind)
        if found is None:
            return form, None
        odd = Oddity(source, name, counts.total(), first + values.index(found[3]), *found)
        return (form if odd.what == "ambiguous" else "text"), odd

    def _odd(
        self, best: list[str], fits: int, counts: Counter[str], kind: str | None
    ) -> tuple[str, str, int, str, str] | None:
        """What, noun, fits, value and remedy of an oddity."""
        form, number, noun = best[0], self._parsers["number"], _NOUNS.get(best[0], "dates")
        days = [day.removesuffix(ZONED) for day in best]
        if len(best) > 1 and form[:2] == "%m" and days[0] != self.told.get("date_format"):
            noun = "dates that show which number is the month"
            remedy = " or ".join(f"date_format={day!r} (--date-format {day})" for day in days)
            return "ambiguous", noun, fits, next(iter(counts)), remedy
        if kind not in {None, "quoted"}:
            return None
        if form in self._local:
            if fits > _MOST * counts.total():
                fitting = (value for value in counts if _fits(value, self._local[form]))
                spelt = next(value for value in fitting if not _fits(value, number))
                noun = f"numbers with the decimal separator {self._decimal!r}"
                return "quoted" if kind else "local", noun, fits, spelt, " or ".join(best[:2])
            noun = f"numbers by {form}"
        if fits < counts.total():
            unfit = next(value for value in counts if not _fits(value, self._parsers[form]))
            return "mixed", noun, fits, unfit, ""
        zeros = [v for v in counts if len(v) > 1 and v[0] == "0" and v.isdigit()]
        if form == "number" and zeros and all(map(str.isdigit, counts)):
            n = sum(counts[value] for value in zeros)
            return "zeros", "numbers with leading zeros", n, zeros[0], ""
        return None

    def array(self, values: Sequence[str | None], form: str) -> tuple[Array | None, int]:
        """Text as values of one form; or None and the place of a value that does not have it."""
        parse, dtype = self._parsers[form], _DTYPES[self.kind(form)]
        parsed: dict[str | None, Any] = {None: np.nan if dtype == "f8" else None}
        for i, value in enumerate(values):
            if value is not None and value not in parsed:
                try:
                    parsed[value] = parse(value)
                except (ValueError, OverflowError):
                    return None, i
        return np.array([parsed[value] for value in values], dtype=dtype), 0

    def remedy(self, name: str, value: Any, na: str = "") -> str:
        """How to read a value of another kind than its column, the end of an error message."""
        spelt = [options for options, parse in self._local.items() if _fits(str(value), parse)]
        number = f"give {' or '.join(spelt[:2])} if it is a number, or " if spelt else ""
        return (
            f"Fix the row, or {number}give {na}{SKIP} or, from the first row on, "
            f"types={{{name!r}: 'text'}} (--type {name}=text)."
        )


def _fits(value: str, parse: _Parse) -> bool:
    """Whether a value has a form."""
    try:
        parse(value)
    except (ValueError, OverflowError):
        return False
    return True


def _best(counts: Counter[str], forms: Mapping[str, _Parse]) -> tuple[list[str], int]:
    """The forms that the most values have, and how many that are."""
    best = list(forms)
    if not all(_fits(value, forms[best[0]]) for value in counts):
        head = list(counts)[:: len(counts) // _HEAD + 1]
        fits = {f: sum(counts[v] for v in head if _fits(v, parse)) for f, parse in forms.items()}
        best = [form for form in best if 0 < fits[form] == max(fits.values())] or best[:1]
        fits = {f: sum(n for v, n in counts.items() if _fits(v, forms[f])) for f in best}
        most = max(fits.values())
        return [form for form in best if fits[form] == most], most
    return best[:1], counts.total()


def _number(decimal: str, thousands: str) -> _Parse:
    """A parser of numbers in one spelling."""
    d, t = re.escape(decimal), re.escape(thousands)
    whole = rf"(?:\d{{1,3}}(?:{t}\d{{2,3}})*{t}\d{{3}}|\d+)" if thousands else r"\d+"
    number = rf"(?:{whole}(?:{d}\d*)?|{d}\d+)(?:[eE][+-]?\d+)?"
    pattern = re.compile(rf"\s*[+-]?(?:{number}|(?i:inf|infinity|nan))\s*", re.ASCII)

    def parse(text: str) -> float:
        if pattern.fullmatch(text) is None:
            raise ValueError(text)
        return float(text.replace(thousands, "").replace(decimal, "."))

    return parse


def _spelt(parse: _Parse, number: _Parse, text: str) -> Any:
    """A number in another spelling than the present one; quoted text of plain numbers is text."""
    if _fits(text, number):
        raise ValueError(text)
    return parse(text)


def _options(decimal: str, thousands: str, present: str) -> str:
    """The options that give a spelling of numbers, where a decimal separator is present."""
    given = {"decimal": decimal.replace(present, ""), "thousands": thousands}
    given = {name: mark for name, mark in given.items() if mark}
    shell = " ".join(f"--{name} {shlex.quote(mark)}" for name, mark in given.items())
    return f"{', '.join(f'{name}={mark!r}' for name, mark in given.items())} ({shell})"


def _truth(true: set[str], false: set[str], text: str) -> float:
    """A truth value by the words for it."""
    word = text.strip().lower()
    if word not in true | false:
        raise ValueError(text)
    return float(word in true)


def _hour(found: re.Match[str]) -> int:
    """The hour; that of a clock of twelve hours counts from midnight."""
    hour = int(found["H"] or 0)
    if not found["p"]:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + 12 * (found["p"] in "pP")


def _span(text: str) -> float:
    """A time of day or a duration as seconds."""
    found = _CLOCK.fullmatch(text.strip()) or _PERIOD.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    part = found.groupdict()
    minutes, seconds = int(part["M"] or 0), int(part["S"] or 0)
    micro = int((part["f"] or "").ljust(6, "0")[:6])
    own = dt.timedelta(int(part.get("d") or 0), seconds, micro, 0, minutes, _hour(found))
    days = dt.timedelta(int(part.get("D") or 0))
    return (days - own if part["s"] == "-" else days + own).total_seconds()


_time = lru_cache(maxsize=4096)(dt.time.fromisoformat)  # many values are of one time or day
_day = lru_cache(maxsize=4096)(dt.datetime.strptime)


def _date(date_format: str, zoned: bool, own: bool, text: str) -> dt.datetime:  # noqa: FBT001
    """A date of one form, in UTC if it has an offset; the user's own may have a time of day."""
    stamp = None
    if own and not zoned:
        with suppress(ValueError):
            stamp = _day(text.strip(), date_format)
    if stamp is None:
        found = _STAMP.fullmatch(text.strip())
        if found is None or (found["z"] is not None) != zoned:
            raise ValueError(text)
        stamp = _day(found["day"].replace(",", " "), date_format)
        if found["H"]:
            zone = "Z" if found["z"] in {"UTC", "GMT"} else found["z"] or ""
            stamp = dt.datetime.combine(stamp, _time(f"{_hour(found):02d}{found['rest']}{zone}"))
    return stamp if stamp.tzinfo is None else stamp.astimezone(dt.UTC).replace(tzinfo=None)


def _check(decimal: str, thousands: str, date_format: str | None) -> None:
    """Refuse separators that numbers hold, and formats of no dates."""
    marks = [decimal, *([thousands] if thousands else [])]
    if len({*marks}) < len(marks) or not all(re.fullmatch(r"[^\w+-]", str(m)) for m in marks):
        raise ParameterError(
            "op.stream.read: `decimal` and `thousands` must be two characters that are no letter, "
            f"digit or sign, got {decimal!r} and {thousands!r}. Give two such as ',' and '.'."
        )
    tried = dt.datetime(2001, 2, 3, tzinfo=dt.UTC)
    with suppress(ValueError, TypeError, re.error):
        day = tried if date_format is None else _day(tried.strftime(date_format), date_format)
        if (day.year, day.month) == (2001, 2):
            return
    raise ParameterError(
        "op.stream.read: `date_format` must be a format of strptime that has a year and a month, "
        f"got {date_format!r}. Give one such as '%d/%m/%Y'."
    )
