"""A Redis stream as a source of rows: each entry is one row.

The fields of an entry are the columns of the row. Redis stores text: text that reads as a number is
a number, empty text is missing, and the first learned row determines which of the two a column
has. The address gives the roles of the fields::

    redis://USER:PASSWORD@HOST:6379/0?stream=NAME&target=FIELD

============= ====================================================================================
``stream``    the key of the stream
``target``    the field of the targets; labels of a classifier are whole numbers or text
``time``      the field of the time of a row, a number or an ISO 8601 date, for a learner that
              forgets by time; ``id`` for the time in the entry's id
``text``      fields that are text even if they read as numbers, such as ``text=postcode,y``
``drop``      fields to ignore
``name``      the name under which positions are stored, by default the address without its
              password; with a name the server can move, and under a new name the stream is learned
              from its beginning
``ca``        with ``rediss://``, which is TLS: a file of trusted certificates
============= ====================================================================================

A position is the id of an entry, and the number of entries of the stream up to it. This reveals
entries that were removed (``XTRIM``, ``MAXLEN``, ``DEL``) before they were read; they are counted
as refused, with a message. The user needs ``+xinfo|stream +xrange +xread +multi +exec``.

Redis 7 or later is required. Acknowledged entries are durable if it runs with ``appendonly yes``
and ``appendfsync always``; otherwise a crash of Redis can lose entries before they are read. The
package hiredis, which ``onepass[redis]`` installs, makes reading twice as fast.
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
_ESCAPE = "In a user, a password or a name write @ : / ? # and % as %40 %3A %2F %3F %23 and %25"
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
        Address of Redis, and the number of the database.
    user, password : str or None
    tls : bool
    stream : str
        The stream's key.
    target : str
        The field of the targets.
    time : str or None
        The field of the time of a row, or ``id``.
    text, drop : frozenset of str
        Fields that are text even if they read as numbers, and fields to ignore.
    ca : str or None
        A file of trusted certificates.
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
        """Parse an address; no message contains its password.

        Raises
        ------
        ParameterError
            If the address is invalid.
        """
        parts, given = _read(url)
        host, port, db = _place(parts)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{db}"
        name = given.get("name", f"{shown}?{urlencode({'stream': given['stream']})}")
        if len(name) > _MAX_NAME or any(map(_UNPRINTABLE.search, (name, *given.values()))):
            must = f"Names have at most {_MAX_NAME} characters, all of which are printable"
            raise _error(f"one of {len(name):,}, or others", must)
        text, drop = (frozenset(filter(None, given.get(e, "").split(","))) for e in _MANY)
        user, password = (
            unquote(word) if word else None for word in (parts.username, parts.password)
        )
        return cls(
            host, port, db, user, password, parts.scheme == "rediss", given["stream"],
            given["target"], given.get("time"), text, drop, given.get("ca"), name,
        )  # fmt: skip


def _read(url: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(url)
        found = parse_qs(parts.query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise _error("an invalid URL", _ESCAPE) from None
    if _UNPRINTABLE.search(url):
        raise _error("characters that are not printable", _ESCAPE)
    if "@" in parts.path + parts.query + parts.fragment:
        raise _error("an '@' after the host", _ESCAPE)
    return parts, _parameters(found)


def _parameters(found: dict[str, list[str]]) -> dict[str, str]:
    unknown = found.keys() - {*_ONE, *_MANY}
    if unknown:
        names = ", ".join(sorted(filter(_WORD.fullmatch, unknown))) or "others"
        raise _error(names, f"The parameters are {', '.join((*_ONE, *_MANY))}")
    twice = [name for name, values in found.items() if len(values) > 1 or not values[0]]
    if twice:
        raise _error(f"{twice[0]} twice, or empty", "Give each once, with a value")
    for name in ("stream", "target"):
        if name not in found:
            raise _error(f"no {name!r}", "Name the stream, and the field of the targets")
    return {name: values[0] for name, values in found.items()}


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
    return ParameterError(f"{_WHERE}: the address must be such as {_SUCH}, got {got}. {remedy}.")


Entry = tuple[bytes, dict[bytes, bytes]]
"""An id, and the fields."""

_MAX_ENTRY_BYTES = 1 << 20  # bytes of an entry
_LATEST = 253_402_300_800_000  # milliseconds since 1970: the year 10000


def build_batch(
    entries: Sequence[Entry],
    address: Address,
    before: int,
    **more: Any,
) -> SourceBatch:
    """Convert entries to a batch of rows, without the invalid ones.

    Parameters
    ----------
    entries : sequence of Entry
        Entries in order.
    address : Address
    before : int
        Number of entries of the stream before them.
    **more
        Further fields of :class:`SourceBatch`.
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
    with suppress(OnepassError):  # mixed columns: some rows will be refused
        X = Table.from_rows(rows)
    return SourceBatch(
        address.name, position, positions, X, _array(targets),
        None if address.time is None else _array(times), refused, **more,
    )  # fmt: skip


def _row(
    name: str, fields: dict[bytes, bytes], address: Address
) -> tuple[dict[str, Any], Any, Any]:
    """The row, its target and its time."""
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if size > _MAX_ENTRY_BYTES:
        raise SourceError(f"must have at most {_MAX_ENTRY_BYTES:,} bytes, got {size:,}.")
    try:
        words = {field.decode(): text.decode() for field, text in fields.items()}
    except UnicodeDecodeError:
        raise SourceError("must be text in UTF-8, got other bytes.") from None
    target, when = address.target, address.time
    value = _value(words.pop(target, ""), text=target in address.text)
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
        time = _time(words.pop(when, ""), when)
    row = {
        field: _value(text, text=field in address.text)
        for field, text in words.items()
        if field not in address.drop
    }
    return row, value, time


def _value(word: str, *, text: bool) -> Any:
    """A number if the text reads as one; None if it is empty."""
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
    found = _value(word, text=False)
    if isinstance(found, str):
        with suppress(ValueError):
            found = dt.datetime.fromisoformat(word)  # without a zone it is UTC
    if found is None or isinstance(found, str):
        got = f"{word[:40]!r}" if word else "none"
        raise SourceError(
            f"must have a number or a date such as 2026-11-22T23:08:40Z in its field {field!r}, "
            f"got {got}."
        )
    return found


def _array(values: list[object]) -> Array:
    """An array of the values' common type, or of objects."""
    if len({type(value) for value in values}) == 1 and not isinstance(values[0], str):
        return np.array(values)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


_T = TypeVar("_T")
_WHERE = "serve: --source"
_MAX_ENTRIES = 1000  # entries
_BEGINNING = "0-0"
_TIMEOUT = 5.0  # seconds for a response of Redis
_NO_KEY = "no such key"


@dataclass(frozen=True)
class _Look:
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
        Address, as described above.

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
        """Id of the last entry, and the number of entries ever added."""
        found = self._look(_BEGINNING)
        return {self.name: f"{found.last}/{found.added}"}

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[SourceBatch]:
        """Yield batches of up to a thousand entries as they arrive."""
        at, count = self._place(start.get(self.name))
        while True:
            found = self._look(at)
            self._check_reaching(found, at)
            before = _before(found, at, count)
            if found.entries or before != count:
                removed = (
                    None if count in {None, before} else self._removed(before - (count or 0), at)
                )
                lag = found.added - before - len(found.entries)
                batch = build_batch(
                    found.entries, self._address, before, removed=removed, lag=max(lag, 0),
                    position=f"{at}/{before}",
                )  # fmt: skip
                at, count = self._place(batch.position)
                if found.entries or removed:
                    yield batch
            elif not self._wait(at, seconds):
                return

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _look(self, at: str) -> _Look:
        """Read the state of the stream, and its next entries after a position."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.xinfo_stream(self._address.stream)
        pipeline.xrange(self._address.stream, f"({at}", "+", count=_MAX_ENTRIES)
        info, entries = self._call(lambda: pipeline.execute(raise_on_error=False))
        if isinstance(info, Exception) and _NO_KEY in str(info):
            raise SourceError(
                f"{self.name}: the stream {self._address.stream!r} must exist, but there is none "
                "of this name yet. Check the name, or add its first entry."
            )
        for error in (info, entries):
            if isinstance(error, Exception):
                raise self._error(error)
        if "entries-added" not in info:
            raise self._error("a version before 7, which does not count removed entries")
        first = info["first-entry"]
        return _Look(
            int(info["entries-added"]),
            int(info["length"]),
            first[0].decode() if first else "",
            info["last-generated-id"].decode(),
            entries,
        )

    def _wait(self, at: str, seconds: float) -> bool:
        """Wait for an entry; whether one has arrived in time."""
        stream, timeout = self._address.stream, max(int(1000 * seconds), 1)
        return bool(self._call(lambda: self._client.xread({stream: at}, count=1, block=timeout)))

    def _check_reaching(self, found: _Look, at: str) -> None:
        """Check that the stream reaches the position that was read."""
        if _order(found.last) < _order(at):
            raise SourceError(
                f"{self.name}: the stream must reach {at}, which was read, but it ends at "
                f"{found.last}: it was recreated, or Redis has lost its last entries. Reading "
                f"continues with the first entry after {at}; to learn the stream from its "
                "beginning, give the address another `name`."
            )

    def _removed(self, entries: int, at: str) -> tuple[int, str]:
        """Number of removed entries, and the message about them."""
        if entries > 0:
            return entries, (
                f"{self.name}: entries must exist until they are read, but {entries:,} after {at} "
                "were removed before. Trim the stream later (XTRIM, MAXLEN)."
            )
        return 0, (
            f"{self.name}: the stream must be the one that was read until {at}, but it was "
            "recreated, or Redis has lost its last entries. Reading continues after that entry; "
            "the number of lost entries is unknown. Run Redis with appendfsync always."
        )

    def _place(self, position: str | None) -> tuple[str, int | None]:
        """The id of a position, and the number of entries up to it."""
        if position is None:
            return _BEGINNING, None
        at, _, count = position.partition("/")
        try:
            _order(at)
            return at, int(count)
        except ValueError:
            raise SourceError(
                f"{self.name}: the position must be such as 1795388746800-0/12, got "
                f"{position[:100]!r}, of another source. Give the address another `name`."
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
            f"{self.name}: must be a Redis stream that can be read, got: {text}. Check that Redis "
            "runs, and the address."
        )


def _before(found: _Look, at: str, count: int | None) -> int:
    """Number of entries of the stream before the next ones.

    If all entries after a position are known, it is the total number minus these.
    """
    if len(found.entries) < _MAX_ENTRIES:
        return found.added - len(found.entries)
    if count is None or _order(found.first) > _order(at):
        return found.added - found.length
    return count


def _order(position: str) -> tuple[int, int]:
    first, _, second = position.partition("-")
    return int(first), int(second)
