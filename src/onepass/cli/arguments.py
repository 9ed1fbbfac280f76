"""Conversion and checks of command-line arguments, output paths, and usage errors."""

import glob
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import CycloptsError, Parameter, Token

if TYPE_CHECKING:
    from onepass.stream import Stream

__all__ = [
    "MOST_WAITING",
    "Count",
    "Files",
    "Names",
    "Quiet",
    "Seconds",
    "Settings",
    "Source",
    "Types",
    "Whole",
    "fit_together",
    "known_measures",
    "model_first",
    "pairs",
    "spare",
    "timed",
    "usage",
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


def spare(read: Iterable[str | Path], written: Iterable[Path], option: str) -> None:
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

    sources = [str(source) for source in read]
    there = {(s.st_dev, s.st_ino): name for name in _files(sources) if (s := _status(name))}
    folders = [Path(source) for source in sources if Path(source).is_dir()]
    for place in written:
        found = _status(place)
        source = there.get((found.st_dev, found.st_ino)) if found else None
        if source is not None:
            raise ParameterError(
                f"{option} must name another file than those that are read, got {place}, which "
                f"is {source}. It would be lost; name another."
            )
        folder = next((folder for folder in folders if _is_within(place, folder)), None)
        if folder is not None:
            raise ParameterError(
                f"{option} must name a place outside the folder that is read, got {place} in "
                f"{folder}. It would be taken for one of its files the next time; name another."
            )


def _files(sources: Iterable[str]) -> Iterator[str]:
    """The files that sources may mean."""
    for source in sources:
        if Path(source).is_dir():
            within = (Path(at, name) for at, _, names in os.walk(source) for name in names)
            yield from (str(file) for file in within if _is_seen(file.relative_to(source)))
        elif Path(source).exists():
            yield source
        else:
            yield from glob.glob(source, recursive=True)  # noqa: PTH207  any depth


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116  it may be many files
    except OSError:
        return None


def _is_within(place: Path, folder: Path) -> bool:
    """Whether a folder that is read would be read with this file."""
    at, inside = place.resolve(), folder.resolve()
    return at.is_relative_to(inside) and _is_seen(at.relative_to(inside))


def _is_seen(inner: Path) -> bool:
    """Whether a file of a folder is read with it, by its path there."""
    return not any(name.startswith((".", "_")) for name in inner.parts)


MOST_WAITING = 100_000
"""Rows that may wait for their answers, unless --most-waiting says otherwise."""

_RUN = "--save, the file of the run that is to be "
_OPTIONS = {"types": "type"}  # parameters of the library whose options have another name


@contextmanager
def usage(command: str) -> Iterator[None]:
    """A name or a value that is refused within this context is wrong usage.

    Parameters
    ----------
    command : str
        Whose words they are.

    Raises
    ------
    CycloptsError
        In place of the ParameterError or the ColumnError that was raised, in the command's words.
    """
    from onepass.errors import ColumnError, ParameterError

    try:
        yield
    except (ColumnError, ParameterError) as wrong:
        said = str(wrong)
        if said.startswith("op.stream"):  # whose parameters are options here
            said = re.sub(r"`(\w+)`", lambda found: _option(found[1]), said)
        said = re.sub(r"^op\.(stream[.\w]*|models|durable)", command, said)
        raise CycloptsError(msg=said) from wrong


def fit_together(given: dict[str, Any]) -> None:
    """Refuse options of ``run`` that cannot be meant together.

    Parameters
    ----------
    given : dict of str to Any
        Options by name, those that were not given as None, False or 0.

    Raises
    ------
    CycloptsError
        If one lacks another, or contradicts it.
    """
    for one, other, why in (
        ("resume", "restart", "--resume goes on with a run and --restart loses it"),
        ("delay", "delay_until", "--delay and --delay-until both say when answers are known"),
        ("resume", "drift", "--drift watches from the first row on, and --resume begins later"),
    ):
        if given[one] and given[other]:
            raise CycloptsError(msg=f"run: {why}, got both. Give one.")
    if given["delay"] > (most := given["most_waiting"] or MOST_WAITING):
        raise CycloptsError(
            msg=f"run: --delay must be at most --most-waiting, {most:,} rows, got "
            f"{given['delay']:,}. Give a higher --most-waiting if there is memory for them."
        )
    waits = given["delay"] or given["delay_until"]
    for option, alone, needed in (
        ("--onward", given["onward"] and not given["resume"], "--resume"),
        ("--resume", given["resume"] and not given["save"], f"{_RUN}resumed"),
        ("--restart", given["restart"] and not given["save"], f"{_RUN}begun anew"),
        ("--checkpoint", given["checkpoint"] is not None and not given["save"], f"{_RUN}kept"),
        ("--most-waiting", given["most_waiting"] and not waits, "--delay or --delay-until"),
    ):
        if alone:
            raise CycloptsError(msg=f"run: {option} needs {needed}.")


def timed(stream: "Stream", delay_until: str | None) -> None:
    """Refuse answers that are known at a time, where nobody says when rows come.

    Parameters
    ----------
    stream : Stream
    delay_until : str or None
        As it was given.

    Raises
    ------
    CycloptsError
        If the stream has no times.
    """
    if delay_until and stream.time is None:
        raise CycloptsError(
            msg="run: --delay-until needs --time, the column that says when a row came."
        )


def known_measures(
    metrics: Sequence[str], drift: Sequence[str], models: Sequence[str], task: str
) -> Any:
    """The detectors of drift; they and the metrics are known before the pass to suit the task.

    Parameters
    ----------
    metrics, drift, models : sequence of str
        Names, as they were given.
    task : {"regression", "classification"}
        What the models do.

    Returns
    -------
    dict of str to detector, or None where none was asked for

    Raises
    ------
    ParameterError
        If a name is unknown, or of the other task.
    MissingExtraError
        If detectors are asked for and River is not installed.
    """
    from onepass.evaluate.drift import watch
    from onepass.evaluate.metrics import metric_class
    from onepass.integrations.detectors import detectors

    for name in metrics:
        metric_class(name, task, "run: --metrics")
    if not drift:
        return None
    chosen = detectors(drift, "run: --drift")
    watch(chosen, models, task, "run: --drift", resumed=False)
    return chosen


def _option(parameter: str) -> str:
    return f"--{_OPTIONS.get(parameter, parameter).replace('_', '-')}"
