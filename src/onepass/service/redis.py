"""A Redis stream as a source of rows: each entry is one row.

The fields of an entry are the columns of the row. Redis stores text: text that can be parsed as a
number becomes a number, and empty text is a missing value. The first learned row determines whether
a column contains numbers or text. The address defines the roles of the fields::

    redis://USER:PASSWORD@HOST:6379/0?stream=NAME&target=FIELD

============= ====================================================================================
``stream``    key of the stream
``target``    field of the targets; labels of a classifier must be whole numbers or text
``time``      field of the time of a row, a number or an ISO 8601 date, for a learner that forgets
              by time; ``id`` for the time in the entry's id
``text``      fields that are text even if they look like numbers, such as ``text=postcode,y``
``drop``      fields to ignore
``name``      name under which positions are stored, by default the address without its password;
              with a name, positions survive a change of the address; under a new name, the stream
              is learned from its beginning
``ca``        file of trusted certificates, for ``rediss://`` (TLS)
============= ====================================================================================

A position is the id of an entry, and the number of entries of the stream up to this entry. The
number reveals entries that were removed (``XTRIM``, ``MAXLEN``, ``DEL``) before they were read;
these are counted as rejected, with a message. The user of Redis must have the permissions
``+xinfo|stream +xrange +xread +multi +exec``.

Redis 7 or later is required. Entries are durable if Redis runs with ``appendonly yes`` and
``appendfsync always``; otherwise a crash of Redis can lose entries before they are read. The
package hiredis, which ``onepass[redis]`` installs, doubles the reading speed.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

import numpy as np

from onepass.errors import OnepassError, ParameterError, SourceError, import_extra
from onepass.service.source import SourceBatch
from onepass.types import Array
from onepass.validation.table import Table

__all__ = ["Address", "Entry", "RedisStream", "build_batch"]

_SUCH = "redis://HOST:6379/0?stream=NAME&target=FIELD"
_ESCAPE = "In a user, password or name, write @ : / ? # and % as %40 %3A %2F %3F %23 and %25"
_MAX_NAME = 512  # max characters of a name of positions
_ONE = ("stream", "target", "time", "name", "ca")
_MANY = ("text", "drop")  # lists of fields, separated by commas
_WORD = re.compile("[a-z_-]{1,20}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Address:
    """Address of a stream, and the roles of its fields.

    Parameters
    ----------
    host, port, db
        Address of Redis, and number of the database.
    user, password : str or None
    tls : bool
    stream : str
        Key of the stream.
    target : str
        Field of the targets.
    time : str or None
        Field of the time of a row, or ``id``.
    text, drop : frozenset of str
        Fields that are text even if they look like numbers, and fields to ignore.
    ca : str or None
        File of trusted certificates.
    name : str
        Name under which positions are stored.
    """

    host: str
    port: int
    db: int
    user: str | None
    password: str | None = field(repr=False)
    tls: bool
    stream: str
    target: str
    time: str | None
    text: frozenset[str]
    drop: frozenset[str]
    ca: str | None
    name: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse an address; messages do not contain its password.

        Raises
        ------
        ParameterError
            If the address is invalid.
        """
        parts, parameters = _read(url)
        host, port, db = _place(parts)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{db}"
        name = parameters.get("name", f"{shown}?{urlencode({'stream': parameters['stream']})}")
        if len(name) > _MAX_NAME or any(map(_UNPRINTABLE.search, (name, *parameters.values()))):
            remedy = f"Use parameters of printable characters, and a name of at most {_MAX_NAME}"
            raise _error(f"a name of {len(name):,} characters, or unprintable characters", remedy)
        text, drop = (frozenset(filter(None, parameters.get(e, "").split(","))) for e in _MANY)
        user, password = (
            unquote(part) if part else None for part in (parts.username, parts.password)
        )
        return cls(
            host, port, db, user, password, parts.scheme == "rediss", parameters["stream"],
            parameters["target"], parameters.get("time"), text, drop, parameters.get("ca"), name,
        )  # fmt: skip


def _read(url: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise _error("an invalid URL", _ESCAPE) from None
    if _UNPRINTABLE.search(url):
        raise _error("characters that are not printable", _ESCAPE)
    if "@" in parts.path + parts.query + parts.fragment:
        raise _error("an '@' after the host", _ESCAPE)
    return parts, _parameters(query)


def _parameters(query: dict[str, list[str]]) -> dict[str, str]:
    unknown = query.keys() - {*_ONE, *_MANY}
    if unknown:
        names = ", ".join(sorted(filter(_WORD.fullmatch, unknown))) or "other names"
        got = f"unknown parameters ({names})"
        raise _error(got, f"The parameters are {', '.join((*_ONE, *_MANY))}")
    invalid = [name for name, values in query.items() if len(values) > 1 or not values[0]]
    if invalid:
        raise _error(f"{invalid[0]} twice or empty", "Pass each parameter once, with a value")
    for name in ("stream", "target"):
        if name not in query:
            raise _error(f"no {name!r}", "Name the stream, and the field of the targets")
    return {name: values[0] for name, values in query.items()}


def _place(parts: SplitResult) -> tuple[str, int, int]:
    try:
        port = parts.port or 6379
    except ValueError:
        port = 0
    db = parts.path.strip("/") or "0"
    if not (parts.hostname and port and db.isdecimal() and len(db) < 6) or parts.fragment:
        raise _error("no host, or an invalid port or database number", _ESCAPE)
    return parts.hostname, port, int(db)


def _error(got: str, remedy: str) -> ParameterError:
    return ParameterError(f"{_WHERE}: the address must have the form {_SUCH}, got {got}. {remedy}.")


Entry = tuple[bytes, dict[bytes, bytes]]
"""Id and fields of an entry."""

_MAX_ENTRY_BYTES = 1 << 20
_LATEST = 253_402_300_800_000  # milliseconds since 1970: the year 10000


def build_batch(
    entries: Sequence[Entry],
    address: Address,
    before: int,
    **more: Any,
) -> SourceBatch:
    """Convert entries to a batch of rows, without the invalid entries.

    Parameters
    ----------
    entries : sequence of Entry
        Entries in order.
    address : Address
    before : int
        Number of earlier entries of the stream.
    **more
        Further fields of :class:`SourceBatch`; ``position`` is used if there are no entries.
    """
    rows: list[dict[str, Any]] = []
    targets, times, positions, refused = [], [], [], []
    position = more.pop("position")
    for number, (raw, fields) in enumerate(entries, before + 1):
        name = raw.decode()
        position = f"{name}/{number}"
        try:
            row, value, time = _row(name, fields, address)
        except SourceError as error:
            refused.append((len(rows), f"{address.name}: entry {name} {error}"))
            continue
        rows.append(row)
        targets.append(value)
        times.append(time)
        positions.append(position)
    X: Table | list[dict[str, Any]] = rows
    with suppress(OnepassError):  # a column with numbers and text: some rows will be rejected
        X = Table.from_rows(rows)
    return SourceBatch(
        address.name, position, positions, X, _array(targets),
        None if address.time is None else _array(times), refused, **more,
    )  # fmt: skip


def _row(
    name: str, fields: dict[bytes, bytes], address: Address
) -> tuple[dict[str, Any], Any, Any]:
    """Return the row of an entry, its target and its time."""
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if size > _MAX_ENTRY_BYTES:
        raise SourceError(f"must have at most {_MAX_ENTRY_BYTES:,} bytes, got {size:,}.")
    try:
        texts = {field.decode(): text.decode() for field, text in fields.items()}
    except UnicodeDecodeError:
        raise SourceError("must be text in UTF-8, got other bytes.") from None
    target, when = address.target, address.time
    value = _value(texts.pop(target, ""), text=target in address.text)
    if value is None or value != value:  # noqa: PLR0124  nan
        got = "none" if value is None else "nan"
        raise SourceError(f"must have a target in its field {target!r}, got {got}.")
    time = None
    if when == "id":
        at = int(name.partition("-")[0])
        if at >= _LATEST:
            raise SourceError(f"must have an id that is a time in milliseconds, got {name[:40]}.")
        time = np.datetime64(at, "ms").astype("datetime64[us]")
    elif when is not None:
        time = _time(texts.pop(when, ""), when)
    row = {
        field: _value(text, text=field in address.text)
        for field, text in texts.items()
        if field not in address.drop
    }
    return row, value, time


def _value(word: str, *, text: bool) -> Any:
    """Parse a number; return other text unchanged, and None for empty text."""
    if not word:
        return None
    if text or "_" in word:  # Python parses 1_000 as a number
        return word
    try:
        return float(word)
    except ValueError:
        return word


def _time(word: str, field: str) -> Any:
    """Parse a time: a number or a date."""
    time = _value(word, text=False)
    if isinstance(time, str):
        with suppress(ValueError):
            time = dt.datetime.fromisoformat(word)  # UTC if there is no time zone
    if time is None or isinstance(time, str):
        got = f"{word[:40]!r}" if word else "none"
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


_T = TypeVar("_T")
_WHERE = "serve: --source"
_MAX_ENTRIES = 1000  # entries per batch
_BEGINNING = "0-0"
_TIMEOUT = 5.0  # seconds for a response of Redis
_NO_KEY = "no such key"


@dataclass(frozen=True)
class _StreamState:
    """State of a stream, and its next entries."""

    added: int
    """Number of entries ever added."""
    length: int
    first: str
    last: str
    entries: list[Entry]
    """The next entries after a position."""


class RedisStream:
    """A Redis stream as a source.

    Parameters
    ----------
    url : str
        Address, as described in the module's docstring.

    Raises
    ------
    ParameterError
        If the address is invalid.
    MissingExtraError
        If the package redis is not installed.
    """

    def __init__(self, url: str) -> None:
        self._address = address = Address.of(url)
        self.name, self.has_time = address.name, address.time is not None
        self._redis = redis = import_extra("redis", extra="redis", where=_WHERE)
        retry = import_extra("redis.retry", extra="redis", where=_WHERE)
        backoff = import_extra("redis.backoff", extra="redis", where=_WHERE)
        tls = {"ssl": True, "ssl_ca_certs": address.ca} if address.tls else {}
        self._client = redis.Redis(
            address.host, address.port, address.db, username=address.user,
            password=address.password, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT,
            socket_keepalive=True, retry=retry.Retry(backoff.NoBackoff(), 0), protocol=2, **tls,
        )  # fmt: skip

    def positions(self) -> dict[str, str]:
        """Return the id of the last entry, and the number of entries ever added."""
        state = self._look(_BEGINNING)
        return {self.name: f"{state.last}/{state.added}"}

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[SourceBatch]:
        """Yield batches of up to a thousand entries as they arrive."""
        at, count = self._place(start.get(self.name))
        while True:
            state = self._look(at)
            self._check_reaching(state, at)
            before = _before(state, at, count)
            if state.entries or before != count:
                removed = (
                    None if count in {None, before} else self._removed(before - (count or 0), at)
                )
                lag = state.added - before - len(state.entries)
                batch = build_batch(
                    state.entries, self._address, before, removed=removed, lag=max(lag, 0),
                    position=f"{at}/{before}",
                )  # fmt: skip
                at, count = self._place(batch.position)
                if state.entries or removed:
                    yield batch
            elif not self._wait(at, seconds):
                return

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _look(self, at: str) -> _StreamState:
        """Read the state of the stream, and its next entries after a position."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.xinfo_stream(self._address.stream)
        pipeline.xrange(self._address.stream, f"({at}", "+", count=_MAX_ENTRIES)
        info, entries = self._call(lambda: pipeline.execute(raise_on_error=False))
        if isinstance(info, Exception) and _NO_KEY in str(info):
            raise SourceError(
                f"{self.name}: the stream {self._address.stream!r} must exist, but there is no "
                "stream of this name. Correct the name, or add the first entry."
            )
        for error in (info, entries):
            if isinstance(error, Exception):
                raise self._error(error)
        if "entries-added" not in info:
            raise self._error("Redis before version 7, which does not count removed entries")
        first = info["first-entry"]
        return _StreamState(
            int(info["entries-added"]),
            int(info["length"]),
            first[0].decode() if first else "",
            info["last-generated-id"].decode(),
            entries,
        )

    def _wait(self, at: str, seconds: float) -> bool:
        """Wait for an entry; return whether an entry has arrived in time."""
        stream, timeout = self._address.stream, max(int(1000 * seconds), 1)
        return bool(self._call(lambda: self._client.xread({stream: at}, count=1, block=timeout)))

    def _check_reaching(self, state: _StreamState, at: str) -> None:
        """Check that the stream still contains or exceeds the position that was read."""
        if _order(state.last) < _order(at):
            raise SourceError(
                f"{self.name}: the stream must reach {at}, which was read, but it ends at "
                f"{state.last}: it was recreated, or Redis has lost its last entries. Reading "
                f"continues with the first entry after {at}; to learn the stream from its "
                "beginning, set another `name` in the address."
            )

    def _removed(self, entries: int, at: str) -> tuple[int, str]:
        """Return the number of removed entries, and the message about them."""
        if entries > 0:
            return entries, (
                f"{self.name}: entries must exist until they are read, but {entries:,} entries "
                f"after {at} were removed earlier. Trim the stream later (XTRIM, MAXLEN)."
            )
        return 0, (
            f"{self.name}: the stream must be the one that was read until {at}, but it was "
            "recreated, or Redis has lost its last entries. Reading continues after that entry; "
            "the number of lost entries is unknown. Run Redis with appendfsync always."
        )

    def _place(self, position: str | None) -> tuple[str, int | None]:
        """Split a position into the id of an entry and the number of entries up to it."""
        if position is None:
            return _BEGINNING, None
        at, _, count = position.partition("/")
        try:
            _order(at)
            return at, int(count)
        except ValueError:
            raise SourceError(
                f"{self.name}: the position must have a form such as 1795388746800-0/12, got "
                f"{position[:100]!r} from another source. Set another `name` in the address."
            ) from None

    def _call(self, command: Callable[[], _T]) -> _T:
        """Call Redis, and convert its errors to SourceError."""
        try:
            return command()
        except (self._redis.RedisError, OSError, ValueError) as error:
            raise self._error(error) from error

    def _error(self, got: object) -> SourceError:
        text = str(got).rstrip(".")
        return SourceError(
            f"{self.name}: the source must be a Redis stream that can be read, got: {text}. Check "
            "that Redis runs, and the address."
        )


def _before(state: _StreamState, at: str, count: int | None) -> int:
    """Return the number of entries of the stream before the next entries.

    If all entries after the position are known, this is the total number minus their number.
    """
    if len(state.entries) < _MAX_ENTRIES:
        return state.added - len(state.entries)
    if count is None or _order(state.first) > _order(at):
        return state.added - state.length
    return count


def _order(position: str) -> tuple[int, int]:
    first, _, second = position.partition("-")
    return int(first), int(second)
