"""Conversion and checks of command-line arguments, output paths, and usage errors."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import CycloptsError, Parameter, Token

if TYPE_CHECKING:
    from onepass.errors import OnepassError


def _split(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Split names at commas, as a row of CSV, and concatenate repeated options."""
    try:
        rows = [next(csv.reader([token.value], strict=True), []) for token in tokens]
    except csv.Error as error:
        raise ValueError(f"names with a comma must be quoted as in CSV: {error}.") from None
    pairs = zip(tokens, rows, strict=True)
    return tuple(name for token, row in pairs for name in row if name or '""' in token.value)


def _equated(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Check pairs ``NAME=VALUE``."""
    for token in tokens:
        name, equals, _value = token.value.partition("=")
        if not name or not equals:
            raise ValueError(f"the value must be NAME=VALUE, got {token.value!r}.")
    return tuple(token.value for token in tokens)


def _from(low: int) -> Callable[[object, Sequence[Token]], int]:
    """Return a converter to whole numbers >= ``low`` that does not round."""

    def convert(_: object, tokens: Sequence[Token]) -> int:
        text = tokens[-1].value
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low:
            raise ValueError(f"the value must be a whole number >= {low}, got {text!r}.")
        return number

    return convert


def _counts(_: object, tokens: Sequence[Token]) -> tuple[int, ...]:
    """Split at commas, and convert to whole numbers >= 1."""
    one = _from(1)
    names = _split(None, tokens)
    return tuple(one(None, [Token(value=name)]) for name in names)


def _timed(_: object, tokens: Sequence[Token]) -> float:
    """Convert to a finite number of seconds >= 0."""
    text = tokens[-1].value
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"the value must be a number of seconds >= 0, got {text!r}.")
    return seconds


Names: TypeAlias = Annotated[tuple[str, ...], Parameter(converter=_split, metavar="A,B")]
"""Names, separated by commas or in repeated options; with a comma, in quotes as in CSV."""

Source: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A path, a name, or ``-`` for standard input."""

Quiet: TypeAlias = Annotated[bool, Parameter(alias="-q")]
"""The option ``--quiet``."""

Count: TypeAlias = Annotated[int, Parameter(converter=_from(1))]
"""A whole number >= 1; 1.5 is an error."""

Counts: TypeAlias = Annotated[tuple[int, ...], Parameter(converter=_counts, metavar="N,M")]
"""Whole numbers >= 1, separated by commas."""

Whole: TypeAlias = Annotated[int, Parameter(converter=_from(0))]
"""A whole number >= 0."""

Seconds: TypeAlias = Annotated[float, Parameter(converter=_timed)]
"""A duration in seconds."""

Settings: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--set", converter=_equated, metavar="PART.PARAMETER=VALUE"),
]
"""``PART.PARAMETER=VALUE``, repeatable."""

Types: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--type", converter=_equated, metavar="COLUMN=KIND"),
]
"""``COLUMN=KIND``, repeatable."""


@Parameter(name="*")
@dataclass(frozen=True)
class Files:
    """Options for reading files."""

    columns: Names = ()
    """Columns to use as features; by default all except the target."""

    drop: Names = ()
    """Columns to ignore."""

    types: Types = ()
    """Type of a column: NAME=number, bool, text or date. By default the type in the model, or
    inferred from the first values."""

    na: Names = ()
    """CSV: further markers of missing values in features and target, such as --na "?,-"."""

    format: Literal["csv", "tsv", "jsonl", "parquet", "arrow"] | None = None
    """Format of a file or of standard input; by default inferred from the suffix or the first
    bytes."""

    delimiter: str | None = None
    """CSV: field separator, such as ";" or tab; a comma by default."""

    decimal: str = "."
    """Decimal separator of numbers in text, such as ","; a point by default."""

    thousands: str = ""
    """Thousands separator of numbers in text, such as "," or " "; none by default."""

    date_format: str | None = None
    """Format of dates in text, for strptime, such as "%d/%m/%Y"; a time of day may follow the
    date."""

    header: Names = ()
    """CSV without a header line: the column names, or "none" for x0, x1, …"""

    bad_rows: Literal["error", "skip"] = "error"
    """How to handle rows that cannot be parsed or contain infinity: error (default) or skip.
    Skipped rows are counted, and the first ones are reported."""

    def options(self) -> dict[str, Any]:
        """Return the options as arguments of ``op.stream.read``."""
        none = [name.lower() for name in self.header] == ["none"]
        return {
            "columns": list(self.columns) or None,
            "drop": self.drop,
            "types": {name: kind for name, _, kind in (one.rpartition("=") for one in self.types)},
            "na": self.na,
            "format": self.format,
            "delimiter": self.delimiter,
            "decimal": self.decimal,
            "thousands": self.thousands,
            "date_format": self.date_format,
            "bad_rows": self.bad_rows,
            "header": False if none else list(self.header) or True,
        }


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Parse pairs ``NAME=VALUE`` to a dict.

    Parameters
    ----------
    given : sequence of str
        Pairs ``NAME=VALUE``. If a name is repeated, the last value is used.

    Examples
    --------
    >>> len(pairs(["code=text", "at=date"]))
    2
    """
    return dict(pair.split("=", 1) for pair in given)


def values(given: Sequence[str]) -> dict[str, Any]:
    """Parse pairs ``NAME=VALUE`` to a dict of JSON values or text.

    Parameters
    ----------
    given : sequence of str
        Pairs ``NAME=VALUE``. If a name is repeated, the last value is used.

    Examples
    --------
    >>> values(["rls__forgetting=0.99", "sgd__step=constant", "orfit__memory=none"])
    {'rls__forgetting': 0.99, 'sgd__step': 'constant', 'orfit__memory': None}
    >>> 1 + values(["orfit__memory=9"])["orfit__memory"]
    10
    """
    return {name: _value(text) for name, text in pairs(given).items()}


def _value(text: str) -> Any:
    constants = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in constants:
        return constants[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def model_first(model: Path) -> None:
    """Check that the first argument is a model, not the source.

    Parameters
    ----------
    model : Path
        The first argument.

    Raises
    ------
    ParameterError
        If the argument has the suffix of a table.
    """
    from onepass.errors import ParameterError
    from onepass.stream.formats import format_of

    if format_of(model.name) is not None:
        raise ParameterError(
            f"the first argument must be a model file of onepass run --save, got {model}. Pass the "
            "model, then the source: onepass predict m.onepass new.csv.",
            "predict",
        )


def check_not_overwritten(read: Iterable[str | Path], written: Iterable[Path], option: str) -> None:
    """Check that output files are no folders, overwrite no source and are in no source folder.

    Parameters
    ----------
    read : iterable of str or Path
        Sources: files, folders, patterns; other names are ignored.
    written : iterable of Path
        Files that the command will write.
    option : str
        The command and its option, for messages.

    Raises
    ------
    ParameterError
        If a file is one of the sources, even under another name, is in a source folder, or is a
        folder.
    """
    from onepass.errors import ParameterError

    sources: dict[Path, str] = {}
    folders = []
    for source in map(str, read):
        if Path(source).is_dir():
            folders.append(Path(source).resolve())
        else:
            sources |= {Path(file).resolve(): file for file in _local_files(source)}
    for place in written:
        if place.is_dir():
            raise ParameterError(
                f"{option} must name a file, got the folder {place}. Append the name of a file."
            )
        at = place.resolve()
        for file, name in sources.items():
            if _is_same(file, at):
                raise ParameterError(
                    f"{option} must not name a source, got {place}, which is {name} and "
                    "would be overwritten. Choose another file."
                )
        for folder in folders:
            inner = at.relative_to(folder).parts if at.is_relative_to(folder) else ("_",)
            if not any(name.startswith((".", "_")) for name in inner):  # other files are not read
                raise ParameterError(
                    f"{option} must be outside the source folder, got {place} in {folder}, which "
                    "the next run would read. Choose another file."
                )


def _local_files(source: str) -> list[str]:
    """Return the local files that the reader finds for a source."""
    if Path(source).exists() or "://" in source or not any(mark in source for mark in "*?["):
        return [source]
    from onepass.stream.files import File

    return [str(file) for file in File(source).matching()]


def _is_same(one: Path, two: Path) -> bool:
    """Return whether two paths are the same file, including hard links."""
    return one == two or (one.exists() and two.exists() and one.samefile(two))


_OPTIONS = {"types": "type", "every": "checkpoint", "checkpoint": "save"}
"""Parameter of the library -> option with another name."""


@contextmanager
def usage_errors(
    command: str, *, settings: Sequence[str] = (), started: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Convert parameter and column errors of the library to usage errors of a command.

    Parameters
    ----------
    command : str
        The command, for messages.
    settings : sequence of str
        The pairs of --set.
    started : callable
        Returns whether rows were learned; if so, errors concern rows and are not converted.

    Raises
    ------
    CycloptsError
        In place of a ParameterError or ColumnError.
    """
    from onepass.errors import ColumnError, ParameterError

    try:
        yield
    except (ColumnError, ParameterError) as error:
        if started():
            raise
        raise CycloptsError(msg=str(_translated(error, command, settings))) from error


def _translated(error: "OnepassError", command: str, settings: Sequence[str]) -> "OnepassError":
    """Replace parameters of the library by options of the command in an error."""
    for setting, value in pairs(settings).items():
        part, _, parameter = setting.replace(".", "__", 1).partition("__")
        if error.argument == parameter and part in error.where.lower():
            remedy = f"Choose another: --set {setting}=VALUE." if error.remedy else ""
            return error.at(where=f"{command}: --set {setting}={value}", remedy=remedy)
    if error.where.startswith(("op.stream", "op.evaluate", "op.scale")):  # options here
        error = error.renamed(_option)
    call, colon, place = error.where.partition(": ")
    return error.at(where=f"{command}{colon}{place}") if call.startswith("op.") else error


def _option(parameter: str) -> str:
    return f"--{_OPTIONS.get(parameter, parameter).replace('_', '-')}"
