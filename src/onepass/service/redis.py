"""A Redis stream as a source of rows: each entry is one row.

An entry's fields are the row's columns, text as Redis has it: what reads as a number is one, what
is empty is missing, and the first row that is learned says which a column has. The address says
which field is what::

    redis://USER:PASSWORD@HOST:6379/0?stream=NAME&target=FIELD

============= ====================================================================================
``stream``    the stream's key
``target``    the field of the answers; labels of a classifier are whole numbers or text
``time``      the field that says when a row happened, a number or a date of ISO 8601, for a learner
              that forgets by time; ``id`` for the time in the entry's id
``text``      fields that are text though they may read as numbers, such as ``text=postcode,y``
``drop``      fields that are passed over
``name``      what positions are kept under, by default the address without its password: with a
              name the server can move; under a new name the stream is learned from its beginning
``ca``        with ``rediss://``, which is TLS: a file of the certificates that are trusted
============= ====================================================================================

The position is an entry's id, and how many entries the stream had until there. So it is known if
entries were removed (``XTRIM``, ``MAXLEN``, ``DEL``) before they were read: they are counted as
refused, with a sentence that says so. The user needs
``+xinfo|stream +xrange +xread +multi +exec``.

It must be Redis 7 or later. It keeps what it has acknowledged if it runs with ``appendonly yes``
and ``appendfsync always``; else a crash of it can lose entries that nobody has read. The
package hiredis, which ``onepass[redis]`` brings, reads it twice as fast.
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
from onepass.service.source import Piece
from onepass.types import Array
from onepass.validation.table import Table

__all__ = ["Address", "Entry", "RedisStream", "piece_of"]

_SUCH = "redis://HOST:6379/0?stream=NAME&target=FIELD"
_ESCAPE = "In a user, a password or a name write @ : / ? # and % as %40 %3A %2F %3F %23 and %25"
_LONGEST = 512  # characters of what positions are kept under
_ONE = ("stream", "target", "time", "name", "ca")
_MANY = ("text", "drop")  # fields, with commas
_WORD = re.compile("[a-z_-]{1,20}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Address:
    """A stream, and which of its fields are what.

    Parameters
    ----------
    host, port, db
        Where Redis listens, and the number of its database.
    user, password : str or None
    tls : bool
    stream : str
        The stream's key.
    target : str
        The field of the answers.
    time : str or None
        The field that says when a row happened, or ``id``.
    text, drop : frozenset of str
        Fields that are text whatever they read as, and fields that are passed over.
    ca : str or None
        A file of the certificates that are trusted.
    name : str
        What positions are kept under.
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
        """What an address says; no message repeats its password.

        Raises
        ------
        ParameterError
            If it is none.
        """
        parts, given = _read(url)
        host, port, db = _place(parts)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{db}"
        name = given.get("name", f"{shown}?{urlencode({'stream': given['stream']})}")
        if len(name) > _LONGEST or any(map(_UNPRINTABLE.search, (name, *given.values()))):
            must = f"Names have at most {_LONGEST} characters, all of which can be printed"
            raise _wrong(f"one of {len(name):,}, or others", must)
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
        raise _wrong("what is no address", _ESCAPE) from None
    if _UNPRINTABLE.search(url):
        raise _wrong("signs that cannot be printed", _ESCAPE)
    if "@" in parts.path + parts.query + parts.fragment:
        raise _wrong("an '@' behind the host", _ESCAPE)
    return parts, _parameters(found)


def _parameters(found: dict[str, list[str]]) -> dict[str, str]:
    odd = found.keys() - {*_ONE, *_MANY}
    if odd:
        said = ", ".join(sorted(filter(_WORD.fullmatch, odd))) or "others"
        raise _wrong(said, f"There are {', '.join((*_ONE, *_MANY))}")
    twice = [name for name, values in found.items() if len(values) > 1 or not values[0]]
    if twice:
        raise _wrong(f"{twice[0]} twice, or empty", "Give each once, with a value")
    for name in ("stream", "target"):
        if name not in found:
            raise _wrong(f"no {name!r}", "Name the stream, and the field of the answers")
    return {name: values[0] for name, values in found.items()}


def _place(parts: SplitResult) -> tuple[str, int, int]:
    try:
        port = parts.port or 6379
    except ValueError:
        port = 0
    db = parts.path.strip("/") or "0"
    if not (parts.hostname and port and db.isdecimal() and len(db) < 6) or parts.fragment:
        raise _wrong("no host, or what is no port or number of a database", _ESCAPE)
    return parts.hostname, port, int(db)


def _wrong(came: str, remedy: str) -> ParameterError:
    return ParameterError(f"{_WHERE}: the address must be such as {_SUCH}, got {came}. {remedy}.")


Entry = tuple[bytes, dict[bytes, bytes]]
"""An id, and the fields."""

_LARGEST = 1 << 20  # bytes of an entry
_LATEST = 253_402_300_800_000  # milliseconds since 1970: the year 10000


def piece_of(
    entries: Sequence[Entry],
    address: Address,
    before: int,
    **more: Any,
) -> Piece:
    """Entries as rows, those that are none left out.

    Parameters
    ----------
    entries : sequence of Entry
        In order.
    address : Address
    before : int
        How many entries the stream had before them.
    **more
        As :class:`Piece` takes it.
    """
    rows: list[dict[str, Any]] = []
    answers, times, positions, refused = [], [], [], []
    position = more.pop("position")
    for number, (raw, fields) in enumerate(entries, before + 1):
        name = raw.decode()
        position = f"{name}/{number}"
        try:
            row, answer, time = _row(name, fields, address)
        except SourceError as odd:
            refused.append((len(rows), f"{address.name}: entry {name} {odd}"))
            continue
        rows.append(row)
        answers.append(answer)
        times.append(time)
        positions.append(position)
    X: Table | list[dict[str, Any]] = rows
    with suppress(OnepassError):  # a column is text here and a number there: some are refused
        X = Table.from_rows(rows)
    return Piece(
        address.name, position, positions, X, _array(answers),
        None if address.time is None else _array(times), refused, **more,
    )  # fmt: skip


def _row(
    name: str, fields: dict[bytes, bytes], address: Address
) -> tuple[dict[str, Any], Any, Any]:
    """The row, its answer and its time."""
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if size > _LARGEST:
        raise SourceError(f"must have at most {_LARGEST:,} bytes, got {size:,}.")
    try:
        words = {field.decode(): text.decode() for field, text in fields.items()}
    except UnicodeDecodeError:
        raise SourceError("must be text in UTF-8, got other bytes.") from None
    target, when = address.target, address.time
    answer = _value(words.pop(target, ""), text=target in address.text)
    if answer is None or answer != answer:  # noqa: PLR0124  nan
        came = "none" if answer is None else "nan"
        raise SourceError(f"must have an answer in its field {target!r}, got {came}.")
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
    return row, answer, time


def _value(word: str, *, text: bool) -> Any:
    """A number if it reads as one; None if it is empty."""
    if not word:
        return None
    if text or "_" in word:  # Python takes 1_000 for a number
        return word
    try:
        return float(word)
    except ValueError:
        return word


def _time(word: str, field: str) -> Any:
    """A number, or a date."""
    found = _value(word, text=False)
    if isinstance(found, str):
        with suppress(ValueError):
            found = dt.datetime.fromisoformat(word)  # without a zone it is taken as UTC
    if found is None or isinstance(found, str):
        came = f"{word[:40]!r}" if word else "none"
        raise SourceError(
            f"must have a number or a date such as 2026-11-22T23:08:40Z in its field {field!r}, "
            f"got {came}."
        )
    return found


def _array(values: list[object]) -> Array:
    """Values of one kind as an array of it, others as they are."""
    if len({type(value) for value in values}) == 1 and not isinstance(values[0], str):
        return np.array(values)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


_T = TypeVar("_T")
_WHERE = "serve: --source"
_AT_ONCE = 1000  # entries
_BEGINNING = "0-0"
_PATIENCE = 5.0  # seconds for an answer
_NOTHING = "no such key"


@dataclass(frozen=True)
class _Look:
    """A stream at one moment."""

    added: int
    """Entries that it ever had."""
    length: int
    first: str
    last: str
    entries: list[Entry]
    """The next ones behind a position."""


class RedisStream:
    """A stream.

    Parameters
    ----------
    url : str
        Its address, as above.

    Raises
    ------
    ParameterError
        If it is none.
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
            password=address.password, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE,
            socket_keepalive=True, retry=retry.Retry(backoff.NoBackoff(), 0), protocol=2, **tls,
        )  # fmt: skip

    def positions(self) -> dict[str, str]:
        """The id of the last entry, and how many there were."""
        found = self._look(_BEGINNING)
        return {self.name: f"{found.last}/{found.added}"}

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[Piece]:
        """Entries as they come, up to a thousand at a time."""
        at, count = self._place(start.get(self.name))
        while True:
            found = self._look(at)
            self._check_reaching(found, at)
            before = _before(found, at, count)
            if found.entries or before != count:
                gone = None if count in {None, before} else self._gone(before - (count or 0), at)
                behind = found.added - before - len(found.entries)
                piece = piece_of(
                    found.entries, self._address, before, gone=gone, behind=max(behind, 0),
                    position=f"{at}/{before}",
                )  # fmt: skip
                at, count = self._place(piece.position)
                if found.entries or gone:
                    yield piece
            elif not self._wait(at, seconds):
                return

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _look(self, at: str) -> _Look:
        """The stream now, and its next entries behind a position."""
        asked = self._client.pipeline(transaction=True)
        asked.xinfo_stream(self._address.stream)
        asked.xrange(self._address.stream, f"({at}", "+", count=_AT_ONCE)
        info, entries = self._told(lambda: asked.execute(raise_on_error=False))
        if isinstance(info, Exception) and _NOTHING in str(info):
            raise SourceError(
                f"{self.name}: there must be a stream of the name {self._address.stream!r}, but "
                "there is none yet. Check the name, or wait for its first entry."
            )
        for wrong in (info, entries):
            if isinstance(wrong, Exception):
                raise self._wrong(wrong)
        if "entries-added" not in info:
            raise self._wrong("a version before 7, which does not count what was removed")
        first = info["first-entry"]
        return _Look(
            int(info["entries-added"]),
            int(info["length"]),
            first[0].decode() if first else "",
            info["last-generated-id"].decode(),
            entries,
        )

    def _wait(self, at: str, seconds: float) -> bool:
        """Whether an entry came within so long."""
        stream, most = self._address.stream, max(int(1000 * seconds), 1)
        return bool(self._told(lambda: self._client.xread({stream: at}, count=1, block=most)))

    def _check_reaching(self, found: _Look, at: str) -> None:
        """Refuse a stream that ends before what was read of it."""
        if _order(found.last) < _order(at):
            raise SourceError(
                f"{self.name}: the stream must reach {at}, until where it was read, but it ends at "
                f"{found.last}: it was made anew, or Redis has lost its last entries. It goes on "
                f"with the first entry behind {at}; to learn it from its beginning, give the "
                "address another `name`."
            )

    def _gone(self, entries: int, at: str) -> tuple[int, str]:
        """What to say of entries that are not there."""
        if entries > 0:
            return entries, (
                f"{self.name}: entries must be there until they were read, but {entries:,} behind "
                f"{at} were removed before. Keep them longer (XTRIM, MAXLEN)."
            )
        return 0, (
            f"{self.name}: the stream must be the one that was read until {at}, but it was made "
            "anew, or Redis has lost its last entries. It goes on behind there; how many were lost "
            "before they were read, nobody can know. Run Redis with appendfsync always."
        )

    def _place(self, position: str | None) -> tuple[str, int | None]:
        """An id, and how many entries there were until there."""
        if position is None:
            return _BEGINNING, None
        at, _, count = position.partition("/")
        try:
            _order(at)
            return at, int(count)
        except ValueError:
            raise SourceError(
                f"{self.name}: the position must be such as 1795388746800-0/12, got "
                f"{position[:100]!r}, which is another source's. Give the address another `name`."
            ) from None

    def _told(self, ask: Callable[[], _T]) -> _T:
        """What Redis answers; its errors in the user's words."""
        try:
            return ask()
        except (self._redis.RedisError, OSError, ValueError) as wrong:
            raise self._wrong(wrong) from wrong

    def _wrong(self, came: object) -> SourceError:
        said = str(came).rstrip(".")
        return SourceError(
            f"{self.name}: must be a stream of Redis that can be read, got: {said}. Look whether "
            "Redis runs, and whether the address is right."
        )


def _before(found: _Look, at: str, count: int | None) -> int:
    """How many entries the stream had before those that are next.

    Where all that are left behind a position are known, it is what it ever had less these.
    """
    if len(found.entries) < _AT_ONCE:
        return found.added - len(found.entries)
    if count is None or _order(found.first) > _order(at):
        return found.added - found.length
    return count


def _order(position: str) -> tuple[int, int]:
    first, _, second = position.partition("-")
    return int(first), int(second)
