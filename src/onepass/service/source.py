"""Interface of the service's sources: rows with positions, from which reading resumes.

The sources of :mod:`onepass.stream` have no positions, and do not implement this interface.

An address defines a source and the roles of the fields of its entries; each entry is one row:

============= ====================================================================================
``target``    field of the targets; labels of a classifier must be whole numbers or text
``time``      field of the time of a row, a number or an ISO 8601 date, for a learner that forgets
              by time; each source also has a name for the time that it stores itself
``text``      fields that are text even if they look like numbers, such as ``text=postcode,y``
``drop``      fields to ignore
``name``      name under which positions are stored, by default the address without its password;
              with a name, positions survive a change of the address; under a new name, the source
              is learned from its beginning
============= ====================================================================================
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qs, urlsplit

import numpy as np

from onepass.errors import OnepassError, ParameterError, SourceError
from onepass.types import Array
from onepass.validation.rows import Rows
from onepass.validation.table import Table

WHERE = "serve: --source"
"""The option of an address, for messages."""

_MAX_NAME = 512  # max characters of a name of positions
_MAX_ENTRY_BYTES = 1 << 20
_LATEST = 253_402_300_800_000  # milliseconds since 1970: the year 10000
_ROLES = ("target", "time", "name", "text", "drop")
_WORD = re.compile("[a-z_-]{1,20}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, eq=False)
class SourceBatch:
    """Consecutive rows of one part of a source.

    Parameters
    ----------
    part : str
        Name of the part, such as a stream or a partition of a topic.
    position : str
        Position after the batch, including its refused and removed entries.
    positions : list of str
        Position after each row.
    rows : Rows
        Rows with targets and, if the source has times, times. If a column has numbers and text, X
        is a list of dicts, which learners refuse.
    refused : list of tuple of int and str
        For each invalid entry, the number of rows before it, and the reason of the refusal.
    removed : tuple of int and str, optional
        Number of entries that were removed before they were read (0 if unknown), and the message
        about them.
    lag : int
        Number of unread entries after the batch.
    """

    part: str
    position: str
    positions: list[str]
    rows: Rows
    refused: list[tuple[int, str]] = field(default_factory=list)
    removed: tuple[int, str] | None = None
    lag: int = 0

    def __len__(self) -> int:
        return len(self.positions)


class Source(Protocol):
    """Interface of a source: rows in a fixed order, each with a position.

    Attributes
    ----------
    name : str
        Name under which the positions are stored; must not contain passwords.
    has_time : bool
        Whether the rows have times.
    """

    name: str
    has_time: bool

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[SourceBatch]:
        """Yield batches of rows as they arrive.

        Parameters
        ----------
        start : mapping of str to str
            Positions after which to begin; a part without a position is read from its beginning.
        seconds : float
            Time without a row after which the iteration ends.

        Raises
        ------
        SourceError
            If the source cannot be reached, does not exist, or ends before a position.
        """

    def close(self) -> None:
        """Close the source."""


# -- addresses -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """Roles of the fields of an entry.

    Parameters
    ----------
    name : str
        Name under which positions are stored.
    target : str
        Field of the targets.
    time : str or None
        Field of the time of a row, or the name of the time that the source stores.
    text, drop : frozenset of str
        Fields that are text even if they look like numbers, and fields to ignore.
    """

    name: str
    target: str
    time: str | None
    text: frozenset[str]
    drop: frozenset[str]


@dataclass(frozen=True)
class AddressForm:
    """Form of the addresses of a kind of source.

    Parameters
    ----------
    example : str
        An address, for messages.
    required : tuple of str
        Parameters without which an address is invalid.
    optional : tuple of str
        Further parameters, in addition to those of ``Roles``.
    advice : str
        How to write special characters, or where to put them.
    """

    example: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    advice: str

    def parse(self, url: str) -> tuple[SplitResult, dict[str, str]]:
        """Return the parts of an address, and its parameters; messages contain no password.

        Raises
        ------
        ParameterError
            If the address is invalid.
        """
        try:
            parts = urlsplit(url)
            query = parse_qs(parts.query, keep_blank_values=True, errors="strict")
        except ValueError:
            raise self.error("an invalid URL") from None
        if any(map(_UNPRINTABLE.search, chain([url], *query.values()))):
            raise self.error("characters that are not printable")
        if "@" in parts.path + parts.query + parts.fragment:
            raise self.error("an '@' after the host")
        allowed = dict.fromkeys((*self.required, *_ROLES, *self.optional))
        if unknown := query.keys() - allowed:
            names = ", ".join(sorted(filter(_WORD.fullmatch, unknown))) or "other names"
            remedy = f"The parameters are {', '.join(allowed)}"
            raise self.error(f"unknown parameters ({names})", remedy)
        for name in (*self.required, *query):
            if len(values := query.get(name, [])) != 1 or not values[0]:
                got = f"{'an empty or repeated' if values else 'no'} {name!r}"
                raise self.error(got, f"Pass {name} once, with a value")
        return parts, {name: values[0] for name, values in query.items()}

    def roles(self, parameters: Mapping[str, str], name: str) -> Roles:
        """Return the roles that the parameters define; the default of ``name`` is given.

        Raises
        ------
        ParameterError
            If the name is too long.
        """
        name = parameters.get("name", name)
        if len(name) > _MAX_NAME:
            got = f"a name of {len(name):,} characters"
            raise self.error(got, f"Pass a name of at most {_MAX_NAME}")
        text, drop = (
            frozenset(parameters.get(each, "").split(",")) - {""} for each in ("text", "drop")
        )
        return Roles(name, parameters["target"], parameters.get("time"), text, drop)

    def error(self, got: str, remedy: str = "") -> ParameterError:
        """Return the error of an invalid address."""
        return ParameterError(
            f"the address must have the form {self.example}, got {got}. {remedy or self.advice}.",
            WHERE,
        )


# -- rows ------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """An entry of a source."""

    name: str
    """Its name in messages, such as "entry 17-0"."""
    position: str
    """Position after the entry."""
    size: int
    """Bytes."""
    fields: Callable[[], Mapping[str, Any]]
    """Function that returns the fields, not yet converted; raises SourceError for other content."""
    milliseconds: int = 0
    """Time that the source stores, since 1970."""


def build_batch(
    entries: Iterable[Entry],
    roles: Roles,
    convert: Callable[[Any, bool], Any],
    *,
    own_time: str,
    **more: Any,
) -> SourceBatch:
    """Convert entries to a batch of rows, without the invalid entries.

    Parameters
    ----------
    entries : iterable of Entry
        Entries in order.
    roles : Roles
    convert : callable
        Function of the value of a field, and whether it is text; returns a float, text or None.
        Raises SourceError for other values.
    own_time : str
        Name of the time that the source stores, as value of ``time`` in an address.
    **more
        Further fields of :class:`SourceBatch`; ``position`` is used if there are no entries.
    """
    rows: list[dict[str, Any]] = []
    targets, times, positions, refused = [], [], [], []
    for entry in entries:
        more["position"] = entry.position
        try:
            row, value, time = _row(entry, roles, convert, own_time)
        except SourceError as error:
            refused.append((len(rows), f"{more['part']}: {entry.name} {error}"))
            continue
        rows.append(row)
        targets.append(value)
        times.append(time)
        positions.append(entry.position)
    X: Table | list[dict[str, Any]] = rows
    with suppress(OnepassError):  # a column with numbers and text: some rows will be rejected
        X = Table.from_rows(rows)
    time_array = None if roles.time is None else _array(times)
    learned = Rows(X, _array(targets), time=time_array)
    return SourceBatch(positions=positions, rows=learned, refused=refused, **more)


def _row(
    entry: Entry, roles: Roles, convert: Callable[[Any, bool], Any], own_time: str
) -> tuple[dict[str, Any], Any, Any]:
    """Return the row of an entry, its target and its time."""
    if entry.size > _MAX_ENTRY_BYTES:
        raise SourceError(f"must have at most {_MAX_ENTRY_BYTES:,} bytes, got {entry.size:,}.")
    target, when = roles.target, roles.time
    row = {
        name: convert(value, name in roles.text and name != when)
        for name, value in entry.fields().items()
        if name not in roles.drop or name in {target, when}
    }
    value = row.pop(target, None)
    if value is None or value != value:  # noqa: PLR0124  nan
        got = "none" if value is None else "nan"
        raise SourceError(f"must have a target in its field {target!r}, got {got}.")
    time = None
    if when == own_time:
        if not 0 <= entry.milliseconds < _LATEST:
            raise SourceError(
                f"must have an {own_time} that is a time in milliseconds, got {entry.milliseconds}."
            )
        time = np.datetime64(entry.milliseconds, "ms").astype("datetime64[us]")
    elif when is not None:
        time = _time(row.pop(when, None), when)
    return row, value, time


def _time(time: Any, field: str) -> Any:
    """Parse a time: a number or a date."""
    got = "none" if time is None else f"{str(time)[:40]!r}"
    if isinstance(time, str):
        with suppress(ValueError):
            time = dt.datetime.fromisoformat(time)  # UTC if there is no time zone
    if time is None or isinstance(time, str):
        raise SourceError(
            f"must have a number or a date such as 2026-11-22T23:08:40Z in its field {field!r}, "
            f"got {got}."
        )
    return time


def _array(values: list[object]) -> Array:
    """Convert values to an array of their common type, or of objects."""
    if len({type(value) for value in values}) == 1 and not isinstance(values[0], str):
        return np.array(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
