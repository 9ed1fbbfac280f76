"""Conversion and checks of command-line arguments, output paths, and usage errors."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import CycloptsError, Parameter, Token

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
    "check_not_overwritten",
    "model_first",
    "pairs",
    "usage_errors",
    "values",
]


def _split(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """``a,b`` and ``a`` ``b`` alike."""
    return tuple(name for token in tokens for name in token.value.split(",") if name)


def _equated(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Pairs such as ``a=1``, each of them whole."""
    for token in tokens:
        name, equals, _value = token.value.partition("=")
        if not name or not equals:
            raise ValueError(f"it must be NAME=VALUE, got {token.value!r}.")
    return tuple(token.value for token in tokens)


def _from(low: int) -> Callable[[object, Sequence[Token]], int]:
    """Reads a whole number that is at least ``low``; nothing is cut off from it."""

    def counted(_: object, tokens: Sequence[Token]) -> int:
        text = tokens[-1].value
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"it must be a whole number, got {text!r}.") from None
        if number < low:
            raise ValueError(f"it must be a whole number >= {low}, got {number}.")
        return number

    return counted


def _timed(_: object, tokens: Sequence[Token]) -> float:
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


def model_first(model: Path) -> None:
    """Refuse a table where a model must stand: the two were given the wrong way round.

    Parameters
    ----------
    model : Path
        The first argument.

    Raises
    ------
    ParameterError
        If its suffix is a table's.
    """
    from onepass.errors import ParameterError
    from onepass.stream.formats import format_of

    if format_of(model.name) is not None:
        raise ParameterError(
            f"predict: the model comes first, a file that onepass run --save wrote, got {model}. "
            "Give the model, then the source: onepass predict m.onepass new.csv."
        )


def check_not_overwritten(read: Iterable[str | Path], written: Iterable[Path], option: str) -> None:
    """Refuse to write over a file that is to be read, or among those, before anything is.

    Parameters
    ----------
    read : iterable of str or Path
        Sources: files, folders, patterns; a name of something else is passed over.
    written : iterable of Path
        Where the command would write.
    option : str
        The command and the option that says where, for the message.

    Raises
    ------
    ParameterError
        If a place is one of the files that are read, by whatever name, or in a folder of them.
    """
    from onepass.errors import ParameterError

    there: dict[Path, str] = {}
    folders = []
    for source in map(str, read):
        if Path(source).is_dir():
            folders.append(Path(source).resolve())
        else:
            there |= {Path(file).resolve(): file for file in _meant(source)}
    for place in written:
        at = place.resolve()
        for file, name in there.items():
            if _is_same(file, at):
                raise ParameterError(
                    f"{option} must name another file than those that are read, got {place}, "
                    f"which is {name}. It would be overwritten; name another."
                )
        for folder in folders:
            inner = at.relative_to(folder).parts if at.is_relative_to(folder) else ("_",)
            if not any(name.startswith((".", "_")) for name in inner):  # else not read
                raise ParameterError(
                    f"{option} must name a place outside the folder that is read, got {place} in "
                    f"{folder}. The next run would read it as one of its files; name another."
                )


def _meant(source: str) -> list[str]:
    """The local files that a source names, found as the reader finds them."""
    if Path(source).exists() or "://" in source or not any(mark in source for mark in "*?["):
        return [source]
    from onepass.stream.files import File

    return [str(file) for file in File(source).matching()]


def _is_same(one: Path, two: Path) -> bool:
    """Whether two paths lead to one file, also by hard links."""
    return one == two or (one.exists() and two.exists() and one.samefile(two))


_OPTIONS = {"types": "type", "every": "checkpoint", "checkpoint": "save"}
"""Parameters of the library whose options have another name."""

_PREFIX = re.compile(r"^op\.(stream[.\w]*|evaluate\.\w+|models|durable): ")
_PLACE = re.compile(r"^model '\w+', [^:]*: ")
_REMEDY = re.compile(r"(Construct (the learner|it) with|Give) (another( `\w+`)?|one of these)\.$")


@contextmanager
def usage_errors(
    command: str, *, settings: Sequence[str] = (), began: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Report a name or value that the library refuses as wrong usage of the command's options.

    Parameters
    ----------
    command : str
        The command, for messages.
    settings : sequence of str
        Pairs of --set, one of which the library may refuse.
    began : callable
        Whether rows were learned: then an error is about the rows, and is not changed.

    Raises
    ------
    CycloptsError
        In place of a ParameterError or ColumnError.
    """
    from onepass.errors import ColumnError, ParameterError

    try:
        yield
    except (ColumnError, ParameterError) as wrong:
        if began():
            raise
        raise CycloptsError(msg=_translated(str(wrong), command, settings)) from wrong


def _translated(message: str, command: str, settings: Sequence[str]) -> str:
    """A message of the library with the options of a command in place of parameters."""
    for setting, value in pairs(settings).items():
        part, _, parameter = setting.rpartition(".")
        if f"`{parameter}`" in message and part in message.lower():  # also in a class's name
            inner = _REMEDY.sub(f"Give another: --set {setting}=VALUE.", message)
            return f"{command}: --set {setting}={value}: {_PLACE.sub('', _PREFIX.sub('', inner))}"
    if message.startswith(("op.stream", "op.evaluate")):  # whose parameters are options here
        message = re.sub(r"`(\w+)`", lambda found: _option(found[1]), message)
    return _PREFIX.sub(f"{command}: ", message)


def _option(parameter: str) -> str:
    return f"--{_OPTIONS.get(parameter, parameter).replace('_', '-')}"
