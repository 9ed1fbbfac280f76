"""Arguments: how what stands on a command line becomes the library's values."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter, Token

__all__ = [
    "Count",
    "Files",
    "Names",
    "Quiet",
    "Seconds",
    "Settings",
    "Source",
    "Types",
    "Whole",
    "pairs",
    "values",
]


def _split(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """``a,b`` and ``a`` ``b`` alike."""
    return tuple(name for token in tokens for name in token.value.split(",") if name)


def _equated(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Pairs such as ``a=1``, each of them whole."""
    for token in tokens:
        name, equals, _value = token.value.partition("=")
        if not name or not equals:
            raise ValueError(f"it must be NAME=VALUE, got {token.value!r}.")
    return tuple(token.value for token in tokens)


def _from(low: int) -> Callable[[Any, Sequence[Token]], int]:
    """Reads a whole number that is at least ``low``; nothing is cut off from it."""

    def counted(_: Any, tokens: Sequence[Token]) -> int:
        text = tokens[-1].value
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"it must be a whole number, got {text!r}.") from None
        if number < low:
            raise ValueError(f"it must be a whole number >= {low}, got {number}.")
        return number

    return counted


def _timed(_: Any, tokens: Sequence[Token]) -> float:
    """Seconds, none of them negative or without an end."""
    text = tokens[-1].value
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"it must be a number of seconds >= 0, got {text!r}.")
    return seconds


Names: TypeAlias = Annotated[tuple[str, ...], Parameter(converter=_split, metavar="A,B")]
"""Names with commas between them, or the option more than once."""

Source: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A path, a name, or ``-`` for standard input."""

Quiet: TypeAlias = Annotated[bool, Parameter(alias="-q")]
"""A switch."""

Count: TypeAlias = Annotated[int, Parameter(converter=_from(1))]
"""A whole number from 1 on; 1.5 is refused, not made 1."""

Whole: TypeAlias = Annotated[int, Parameter(converter=_from(0))]
"""A whole number from 0 on."""

Seconds: TypeAlias = Annotated[float, Parameter(converter=_timed)]
"""A length of time."""

Settings: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--set", converter=_equated, metavar="PART.PARAMETER=VALUE"),
]
"""``PART.PARAMETER=VALUE``, once or more than once."""

Types: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--type", converter=_equated, metavar="COLUMN=KIND"),
]
"""``COLUMN=KIND``, once or more than once."""


@Parameter(name="*")
@dataclass(frozen=True)
class Files:
    """How files are read, for commands that read a source."""

    columns: Names = ()
    """The only columns that are to be features. By default all but the target."""

    format: Literal["csv", "tsv", "jsonl", "parquet", "arrow"] | None = None
    """What a file or standard input is, where suffix or first bytes do not tell."""

    delimiter: str | None = None
    """Of CSV: what stands between two fields, such as ";" or tab; a comma by default."""

    decimal: str = "."
    """Decimal separator of numbers in text, such as ","; a point by default."""

    thousands: str = ""
    """Thousands separator of numbers in text, such as "," or " "; none by default."""

    date_format: str | None = None
    """Format of dates in text, for strptime, such as "%d/%m/%Y"; a time of day may follow."""

    header: Names = ()
    """Of CSV without a line of names: the names, or none for x0, x1 and so on."""

    bad_rows: Literal["error", "skip"] = "error"
    """How to handle rows that cannot be read, or hold an infinite number: error or skip. Skipped
    rows are counted, and the first are named."""

    def options(self) -> dict[str, Any]:
        """As the library takes them."""
        none = [name.lower() for name in self.header] == ["none"]
        return {
            "columns": list(self.columns) or None,
            "format": self.format,
            "delimiter": self.delimiter,
            "decimal": self.decimal,
            "thousands": self.thousands,
            "date_format": self.date_format,
            "bad_rows": self.bad_rows,
            "header": False if none else list(self.header) or True,
        }


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Pairs ``NAME=VALUE`` as a dict.

    Parameters
    ----------
    given : sequence of str
        Of the form ``NAME=VALUE``; the last of a name counts.

    Examples
    --------
    >>> len(pairs(["code=text", "at=date"]))
    2
    """
    return dict(pair.split("=", 1) for pair in given)


def values(given: Sequence[str]) -> dict[str, Any]:
    """Pairs ``NAME=VALUE`` as a dict of values: numbers, lists, true, false, null, or else text.

    Parameters
    ----------
    given : sequence of str
        Of the form ``NAME=VALUE``; the last of a name counts.

    Examples
    --------
    >>> values(["rls.forgetting=0.99", "sgd.step=constant", "orfit.memory=none"])
    {'rls.forgetting': 0.99, 'sgd.step': 'constant', 'orfit.memory': None}
    >>> 1 + values(["orfit.memory=9"])["orfit.memory"]
    10
    """
    return {name: _value(text) for name, text in pairs(given).items()}


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
