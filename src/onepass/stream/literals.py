"""Parsing of text as numbers, booleans, dates, times of day and durations.

The first values of a column of text determine its form: a spelling of numbers, booleans, times of
day or durations, or a date format for ``strptime``, optionally followed by a time of day. The same
parser infers and converts, so values used for inference are never rejected later. Either all dates
of a column have a UTC offset, or none. Times of day and durations are converted to seconds. Digits
below a microsecond are truncated.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from onepass.errors import MixedColumnWarning, ParameterError, TypeMismatchError
from onepass.types import Array

DTYPE_CODES = {"number": "f", "bool": "b", "text": "O", "date": "M"}
"""Type of a column in a source -> dtype code."""
TYPE_NAMES = {"f": "number", "b": "number", "O": "text", "M": "date"}
"""Dtype code -> type of a column; booleans are numbers in tables."""
ISO, ZONED = "%Y-%m-%d", " with UTC offset"
SKIP_REMEDY = "bad_rows='skip' (--bad-rows skip) to skip such rows"
"""Remedy for invalid rows, for error messages."""
_WORDS = {"number": "a number", "bool": "true or false", "text": "text", "date": "a date"}
_NOUNS = {"number": "numbers", "true or false": "booleans", "duration": "times of day"}
_DTYPES = {"number": "f8", "bool": "f8", "text": "O", "date": "M8[us]"}
_BOOLS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
_EXPLICIT_BOOLS = {"t": 1.0, "yes": 1.0, "1.0": 1.0, "f": 0.0, "no": 0.0, "0.0": 0.0}
_BASIC = "%Y%m%d"  # a date only if the type is given
_DAYS = (
    ISO, "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%b %d %Y",
    "%B %d %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b-%d-%Y", "%b %Y", "%B %Y", "%Y-%m",
    "%d-%b-%y", "%m/%d/%y", "%d/%m/%y", _BASIC,
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
_AFFIXED = re.compile(
    r"\s*(?P<before>[$€£¥]?) ?[+-]?\d[\d.,' ]*(?P<after>(?: ?[a-zµ°%/²³$€£¥]{1,5})?)\s*",
    re.IGNORECASE,
)
_PART_OF_YEAR = re.compile(r"\s*\d{4}[ -]?[QWqw]\d{1,2}\s*")
_LIKELY = re.compile(
    r"\s*(?:[+-]?(?:[.,P]?\d|P|inf|nan|true|false)|[a-z]{3,9}[ -]+\d)", re.IGNORECASE
)
_SPELLINGS = [
    (".", ""),
    (",", ""),
    *((d, t) for t in ",. \u00a0\u202f'\u2019" for d in ".," if d != t),
]
_HEAD = 256  # number of values from which the likely forms are determined
_DIFFERENT = 5  # values that are different, below which numbers with a unit may be labels
_MIN_SHARE = 0.1  # forms of a smaller share of values are ignored: the column is text
_MAX_SHARE = 0.9  # a larger share of numbers with other separators is an error
_ARROW = {
    "number": pa.float64(), "true or false": pa.bool_(), ISO: pa.timestamp("us"),
    ISO + ZONED: pa.timestamp("us", tz="UTC"),
}  # fmt: skip
_Parse = Callable[[str], Any]


def type_option(name: str, kind: str) -> str:
    """Format the option that sets the type of a column, for messages.

    Examples
    --------
    >>> type_option("km", "number")
    "types={'km': 'number'} (--type km=number)"
    """
    return f"types={{{name!r}: {kind!r}}} (--type {shlex.quote(f'{name}={kind}')})"


def as_text(value: object) -> str:
    """Convert a value to text; integers have no decimal point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


class TextParser:
    """Infers the form of columns of text, and converts them.

    Parameters
    ----------
    decimal : str
        The decimal separator.
    thousands : str
        The separator of groups of three digits; empty for none.
    date_format : str, optional
        An additional date format, for ``strptime``.

    Attributes
    ----------
    given : dict of str to str
        The parameters that differ from their defaults.

    Raises
    ------
    ParameterError
        If a separator or the date format is invalid.

    Examples
    --------
    >>> literals = TextParser(decimal=",", thousands=".")
    >>> literals.infer_form("load", ["1.234,5", "7"])
    'number'
    >>> literals.array(["1.234,5", None, "?"], "number")
    (array([1234.5,    nan,    nan]), [2])
    >>> len(literals.array(["Jan 5, 2024 3:04 PM"], "%b %d %Y")[0])
    1
    """

    def __init__(
        self, decimal: str = ".", thousands: str = "", date_format: str | None = None
    ) -> None:
        _check(decimal, thousands, date_format)
        options = {
            "decimal": decimal.strip("."), "thousands": thousands, "date_format": date_format,
        }  # fmt: skip
        self.given = {name: value for name, value in options.items() if value}
        marks = f" and the thousands separator {thousands!r}" if thousands else ""
        self._marks = f"the decimal separator {decimal!r}{marks}"
        days = dict.fromkeys((*([date_format] if date_format else []), *_DAYS))
        self._dates: dict[str, _Parse] = {
            day + zone: partial(_parse_date, day, bool(zone), day == date_format)
            for day in days
            for zone in ("", ZONED)
        }
        others = [(d, t) for d, t in _SPELLINGS if d != decimal or t not in {"", thousands}]
        self._local: dict[str, _Parse] = {_options(d, t, decimal): _number(d, t) for d, t in others}
        self._proposed = {
            _options(d, t, decimal)
            for d, t in others
            if d != thousands and (t != decimal or decimal == ".")
        }
        numbers: dict[str, _Parse] = {
            "number": _number(decimal, thousands), "duration": _parse_duration,
            "true or false": partial(_parse_bool, _BOOLS),
        }  # fmt: skip
        quoted: dict[str, _Parse] = {
            form: partial(_parse_other_spelling, parse, numbers["number"])
            for form, parse in self._local.items()
        }
        dates = {form: parse for form, parse in self._dates.items() if not form.startswith(_BASIC)}
        self._forms: dict[str | None, dict[str, _Parse]] = {
            None: numbers | dates | self._local,
            "quoted": {"duration": _parse_duration} | dates | quoted,
            "number": numbers,
            "bool": {"bool": partial(_parse_bool, _BOOLS | _EXPLICIT_BOOLS)},
            "text": {"text": str},
            "date": self._dates,
        }
        self._parsers = {f: parse for forms in self._forms.values() for f, parse in forms.items()}

    def kind(self, form: str) -> str:
        """Return the type of the values of a form: number, bool, text or date."""
        kinds = {"duration": "number", "true or false": "bool"}
        return "date" if form in self._dates else kinds.get(form, form)

    def word(self, form: str) -> str:
        """Describe a number or date format for an error message."""
        plain = form == ISO or form not in self._dates
        return _WORDS[self.kind(form)] + ("" if plain else f" ({form})")

    def infer_form(
        self,
        name: str,
        values: Sequence[str | None],
        kind: str | None = None,
        *,
        source: str = "",
        first: int = 0,
        numbers: int = 0,
        target: bool = False,
        skip: bool = False,
        warn: bool = True,
    ) -> str | None:
        """Infer the form of a column of text from its first values.

        Parameters
        ----------
        name : str
            The column.
        values : sequence of str or None
            The first values of the column.
        kind : str, optional
            The type that the user has set; or "quoted" for text of sources that can store numbers
            and booleans, which is not parsed as such.
        source : str
            The source, for messages.
        first : int
            The row number of the first value.
        numbers : int
            Number of values in the column that are not text.
        target : bool
            Whether the column is a target.
        skip : bool
            Whether bad rows are skipped; if so, messages recommend setting the type.
        warn : bool
            Whether to warn about a text column in which many values have another type.

        Returns
        -------
        form : str or None
            None if there are no values and no type is set.

        Raises
        ------
        TypeMismatchError
            If numbers or dates are in a format that no option specifies, or nearly all values of a
            target, but not all, have one type.
        """
        counts = Counter(value for value in values if value is not None)
        free, total = kind in {None, "quoted"}, counts.total()
        if not counts or kind == "text":
            return None if free and not counts else "text"
        form, found = self._best_form(name, counts, kind)
        if found is None and form == "text" and skip and numbers > _MIN_SHARE * (numbers + total):
            found, total = ("mixed", "numbers", numbers, next(iter(counts)), ""), numbers + total
            form = "number"
        if found is None:
            return form
        what, noun, fits, value, remedy = found
        where = f"{source}: column {name!r}"
        at = f"{value!r} in row {first + values.index(value)} (counting from 0)"
        text, typing = type_option(name, "text"), type_option(name, self.kind(form))
        if what in {"spelling", "ambiguous"}:
            raise TypeMismatchError(
                f"{where} must contain {noun}, got {at}. Pass {remedy}, or {text} if "
                "the column is text.",
            )
        count = f"{fits:,} of the first {total:,} values are {noun}"
        if what in {"affixed", "quoted", "quoted, whole"}:
            shown, ways = f"{count}, as {at}", [remedy]
        elif what == "zeros":
            shown, ways = f"{count}, as {at}", [f"{typing} if they are numbers"]
        else:
            shown = f"{count}, but {at} is not"
            ways = [] if kind else [f"na=({value!r},) (--na {value!r}) if it means missing"]
            options = f"{remedy} and {typing}" if remedy else typing
            ways += [f"{options} to skip rows with other values"] * skip
        advice = f"Pass {', '.join(ways)}{', or ' * bool(ways)}{text} if"
        if what in {"mixed", "affixed", "quoted"} and target and fits > _MAX_SHARE * total:
            both = "both: " if what == "mixed" else ""
            raise TypeMismatchError(
                f"{source}: the target {name!r} must contain numbers or labels, got {both}{shown}. "
                f"{advice} all of them are labels; the task is then classification.",
            )
        if warn:
            warnings.warn(
                f"{where} is read as text: {shown}. {advice} the column is text.",
                MixedColumnWarning,
                stacklevel=2,
            )
        return "text"

    def _best_form(
        self, name: str, counts: Counter[str], kind: str | None
    ) -> tuple[str, tuple[str, str, int, str, str] | None]:
        """Return the form of most values, and the issue to report, if any."""
        free = kind in {None, "quoted"}
        least = max(1, _MIN_SHARE * counts.total()) if free else 0
        if free and (affixed := _affixed(counts)) is not None:
            return "text", affixed
        if kind == "quoted" and (issue := self._quoted_numbers(counts, name)) is not None:
            return "text", issue
        if free and "date_format" not in self.given:
            likely = sum(n for value, n in counts.items() if _LIKELY.match(value))
            if likely < least:
                return "text", None
        best, fits = _best_forms(counts, self._forms[kind])
        return (
            ("text", None)
            if fits < least
            else (best[0], self._describe_issue(best, fits, counts, kind, name))
        )

    def _quoted_numbers(
        self, counts: Counter[str], name: str
    ) -> tuple[str, str, int, str, str] | None:
        """Return the issue of a column of quoted numbers, unless they are codes such as 007."""
        parse = self._parsers["number"]
        numbers = {value: n for value, n in counts.items() if _has_form(value, parse)}
        fits, codes = sum(numbers.values()), any(re.match("0[0-9]", value) for value in numbers)
        if len(numbers) < _DIFFERENT or codes or 2 * fits <= counts.total():
            return None
        what = "quoted, whole" if all(map(str.isdigit, numbers)) else "quoted"
        remedy = f"{type_option(name, 'number')} if they are numbers"
        return what, "numbers in quotation marks", fits, next(iter(numbers)), remedy

    def _describe_issue(
        self, best: list[str], fits: int, counts: Counter[str], kind: str | None, name: str
    ) -> tuple[str, str, int, str, str] | None:
        """Return code, noun, number of matching values, example and remedy of an issue."""
        form, days = best[0], [day.removesuffix(ZONED) for day in best]
        if len(best) > 1 and form[:2] == "%m" and days[0] != self.given.get("date_format"):
            noun = "dates that show which number is the month"
            remedy = " or ".join(f"date_format={day!r} (--date-format {day})" for day in days)
            return "ambiguous", noun, fits, next(iter(counts)), remedy
        if kind not in {None, "quoted"}:
            return None
        noun, remedy = _NOUNS.get(form, "dates"), ""
        if form in self._local:
            noun = f"numbers with {self._proposal(best[:1]) or 'other separators'}"
            remedy = self._proposal(best) or "other separators (--decimal, --thousands)"
            if fits > _MAX_SHARE * counts.total():
                number, local = self._parsers["number"], self._local[form]
                value = next(v for v in counts if _has_form(v, local) and not _has_form(v, number))
                remedy += f" and {type_option(name, 'number')}" if kind == "quoted" else ""
                return "spelling", f"numbers with {self._marks}", fits, value, remedy
        if fits < counts.total():
            parse = self._forms[kind][form]
            value = next(value for value in counts if not _has_form(value, parse))
            return "mixed", noun, fits, value, remedy
        zeros = [v for v in counts if len(v) > 1 and v[0] == "0" and v.isdigit()]
        if form == "number" and zeros and all(map(str.isdigit, counts)):
            fits = sum(counts[value] for value in zeros)
            return "zeros", "numbers with leading zeros", fits, zeros[0], ""
        return None

    def array(self, values: pa.Array | Sequence[str | None], form: str) -> tuple[Array, list[int]]:
        """Convert text of one form to an array; also return the positions of other forms.

        Values of other forms are missing in the array.
        """
        if isinstance(values, pa.Array):
            if (column := self.cast(values, form)) is not None:
                return column, []
            values = values.to_pylist()
        if form == "text":
            texts = np.empty(len(values), dtype=object)
            texts[:] = values
            return texts, []
        parse, dtype = self._parsers[form], _DTYPES[self.kind(form)]
        parsed = {v: None if v is None else _try_parse(v, parse) for v in set(values)}
        unfit = [i for i, v in enumerate(values) if v is not None and parsed[v] is None]
        missing = np.nan if dtype == "f8" else None
        found = [missing if parsed[v] is None else parsed[v] for v in values]
        return np.array(found, dtype=dtype), unfit

    def cast(self, texts: pa.Array, form: str) -> Array | None:
        """Convert text with Arrow, which is faster and returns equal values; None if it fails.

        Arrow parses plain numbers, booleans and some spellings of ISO dates.
        """
        if form == "text":
            return np.asarray(texts.to_numpy(zero_copy_only=False), dtype=object)
        kind = _ARROW.get(form)
        if kind is None or (form == "number" and self.given.keys() & {"decimal", "thousands"}):
            return None
        try:
            texts[:99].cast(kind)  # a cast that fails is slow
            values = texts.cast(kind)
        except pa.ArrowInvalid:
            return None
        if kind == pa.bool_():
            values = values.cast(pa.uint8()).cast(pa.float64())
        elif kind != pa.float64():
            values = values.cast(pa.timestamp("us"))
        return np.array(values.to_numpy(zero_copy_only=False))

    def quick_form(self, texts: pa.Array, kind: str | None) -> str | None:
        """Return the form that Arrow can parse in all values, or None; faster than inference."""
        if self.given or texts.null_count == len(texts):
            return None
        for form in ("number", ISO, ISO + ZONED):
            fits = kind in {None, self.kind(form)} or (kind == "quoted" and form != "number")
            if fits and self.cast(texts, form) is not None:
                zeros = form == "number" and compute.match_substring_regex(texts, "^0[0-9]")
                return None if zeros and compute.any(zeros).as_py() else form
        return None

    def remedy(self, name: str, value: object, na: str = "") -> str:
        """Return the remedy for a value whose type differs from that of its column."""
        text = str(value)
        local = [form for form, parse in self._local.items() if _has_form(text, parse)]
        spelling = "" if _has_form(text, self._parsers["number"]) else self._proposal(local)
        number = f"pass {spelling} if it is a number, or " if spelling else ""
        return (
            f"Fix the row, or {number}pass {na}{SKIP_REMEDY}, or start again with "
            f"{type_option(name, 'text')}."
        )

    def _proposal(self, forms: Sequence[str]) -> str:
        """Return options for other spellings of numbers that are compatible with the current ones.

        The current thousands separator is not proposed as a decimal separator, nor the reverse.
        """
        return " or ".join([form for form in forms if form in self._proposed][:2])


def _affixed(counts: Counter[str]) -> tuple[str, str, int, str, str] | None:
    """Return the issue of a column of numbers with a unit or sign, or of quarters or weeks."""
    found: Counter[tuple[str, str]] = Counter()
    for value, n in counts.items():
        if _PART_OF_YEAR.fullmatch(value):
            found["", ""] += n
        elif (match := _AFFIXED.fullmatch(value)) and (match["before"] or match["after"]):
            found[match["before"], match["after"].strip()] += n
    affix, fits = next(iter(found.most_common(1)), (("", ""), 0))
    if len(counts) < _DIFFERENT or fits <= _MAX_SHARE * counts.total():
        return None
    sign = " and ".join(map(repr, filter(None, affix)))
    if not sign:
        noun, remedy = "quarters or weeks, not dates", "the first day of each"
    else:
        noun, remedy = f"numbers with {sign}", "the plain numbers"
    return "affixed", noun, fits, next(iter(counts)), remedy


def _try_parse(text: str, parse: _Parse) -> Any:
    """Parse a text; None if it has another form."""
    try:
        return parse(text)
    except (ValueError, OverflowError):
        return None


def _has_form(text: str, parse: _Parse) -> bool:
    """Return whether a text has a form."""
    return _try_parse(text, parse) is not None


def _best_forms(counts: Counter[str], forms: Mapping[str, _Parse]) -> tuple[list[str], int]:
    """Return the most frequent forms and their number of values."""
    first = next(iter(forms))
    if all(_has_form(value, forms[first]) for value in counts):
        return [first], counts.total()
    head = list(counts)[:: len(counts) // _HEAD + 1]
    fits = {f: sum(counts[v] for v in head if _has_form(v, parse)) for f, parse in forms.items()}
    likely = [form for form in forms if 0 < fits[form] == max(fits.values())] or [first]
    fits = {f: sum(n for v, n in counts.items() if _has_form(v, forms[f])) for f in likely}
    most = max(fits.values())
    return [form for form in likely if fits[form] == most], most


def _number(decimal: str, thousands: str) -> _Parse:
    """Return a parser of numbers in one spelling."""
    d, t = re.escape(decimal), re.escape(thousands)
    whole = rf"(?:\d{{1,3}}(?:{t}\d{{2,3}})*{t}\d{{3}}|\d+)" if thousands else r"\d+"
    number = rf"(?:{whole}(?:{d}\d*)?|{d}\d+)(?:[eE][+-]?\d+)?"
    pattern = re.compile(rf"\s*[+-]?(?:{number}|(?i:inf|infinity|nan))\s*", re.ASCII)

    def parse(text: str) -> float | None:
        plain = text.replace(thousands, "").replace(decimal, ".")
        return float(plain) if pattern.fullmatch(text) else None

    return parse


def _parse_other_spelling(parse: _Parse, number: _Parse, text: str) -> Any:
    """Parse a number in another spelling; None if it is valid in the current spelling."""
    return None if _has_form(text, number) else parse(text)


def _options(decimal: str, thousands: str, present: str) -> str:
    """Format the options for a spelling of numbers, except the current decimal separator."""
    given = {"decimal": decimal.replace(present, ""), "thousands": thousands}
    given = {name: mark for name, mark in given.items() if mark}
    shell = " ".join(f"--{name} {shlex.quote(mark)}" for name, mark in given.items())
    return f"{', '.join(f'{name}={mark!r}' for name, mark in given.items())} ({shell})"


def _parse_bool(words: Mapping[str, float], text: str) -> float | None:
    """Parse a boolean as 1 or 0."""
    return words.get(text.strip().lower())


def _hour(found: re.Match[str]) -> int:
    """Return the hour from 0 to 23, also of a 12-hour clock."""
    hour = int(found["H"] or 0)
    if not found["p"]:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + 12 * (found["p"] in "pP")


def _parse_duration(text: str) -> float:
    """Parse a time of day or a duration as seconds."""
    found = _CLOCK.fullmatch(text.strip()) or _PERIOD.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    part = found.groupdict()
    minutes, seconds = int(part["M"] or 0), int(part["S"] or 0)
    micro = int((part["f"] or "").ljust(6, "0")[:6])
    own = dt.timedelta(int(part.get("d") or 0), seconds, micro, 0, minutes, _hour(found))
    days = dt.timedelta(int(part.get("D") or 0))
    return (days - own if part["s"] == "-" else days + own).total_seconds()


_time = lru_cache(maxsize=4096)(dt.time.fromisoformat)  # many values share a time or a day
_day = lru_cache(maxsize=4096)(dt.datetime.strptime)


def _parse_date(date_format: str, zoned: bool, own: bool, text: str) -> dt.datetime:  # noqa: FBT001
    """Parse a date of one form, in UTC if it has an offset; ``own`` if the user set the format."""
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
    """Raise if separators occur in numbers, or if the date format lacks a year or a month."""
    marks = [decimal, *([thousands] if thousands else [])]
    if len({*marks}) < len(marks) or not all(re.fullmatch(r"[^\w+-]", str(m)) for m in marks):
        raise ParameterError(
            "`decimal` and `thousands` must be two different characters other than letters, digits "
            f"and signs, got {decimal!r} and {thousands!r}. Pass, for example, ',' and '.'.",
        )
    tried = dt.datetime(2001, 2, 3, tzinfo=dt.UTC)
    with suppress(ValueError, TypeError, re.error):
        day = tried if date_format is None else _day(tried.strftime(date_format), date_format)
        if (day.year, day.month) == (2001, 2):
            return
    raise ParameterError(
        "`date_format` must be a strptime format that has a year and a month, got "
        f"{date_format!r}. Pass, for example, '%d/%m/%Y'.",
    )
