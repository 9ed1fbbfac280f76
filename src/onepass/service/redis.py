"""A Redis stream as a source of rows: each entry is one row.

The fields of an entry are the columns of the row. Redis stores text: text that can be parsed as a
number becomes a number, and empty text is a missing value. The first learned row determines whether
a column contains numbers or text. The address defines the roles of the fields::

    redis://USER:PASSWORD@HOST:6379/0?stream=NAME&target=FIELD

``stream`` is the key of the stream, ``target`` and the other roles of fields are described in
:mod:`.source`. ``time=id`` selects the time in the entry's id, and ``ca=FILE`` the trusted
certificates for ``rediss://`` (TLS).

A position is the id of an entry, and the number of entries of the stream up to this entry. The
number reveals entries that were removed (``XTRIM``, ``MAXLEN``, ``DEL``) before they were read;
these are counted as rejected, with a message. The user of Redis must have the permissions
``+xinfo|stream +xrange +xread +multi +exec``.

Redis 7 or later is required. Entries are durable if Redis runs with ``appendonly yes`` and
``appendfsync always``; otherwise a crash of Redis can lose entries before they are read. The
package hiredis, which ``onepass[redis]`` installs, doubles the reading speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from onepass.errors import SourceError, import_extra
from onepass.service.source import AddressForm, Entry, SourceBatch, build_batch

_FORM = AddressForm(
    "redis://HOST:6379/0?stream=NAME&target=FIELD",
    ("stream", "target"),
    ("ca",),
    "In a user, password or name, write @ : / ? # and % as %40 %3A %2F %3F %23 and %25",
)


def _entry(raw: bytes, fields: dict[bytes, bytes], number: int) -> Entry:
    """Describe the entry with a number in its stream."""
    name = raw.decode()
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    milliseconds = int(name.partition("-")[0])
    return Entry(f"entry {name}", f"{name}/{number}", size, lambda: _decoded(fields), milliseconds)


def _decoded(fields: dict[bytes, bytes]) -> dict[str, str]:
    try:
        return {field.decode(): text.decode() for field, text in fields.items()}
    except UnicodeDecodeError:
        raise SourceError("must be text in UTF-8, got other bytes.") from None


def _value(word: str, text: bool) -> Any:  # noqa: FBT001  passed by position
    """Parse a number; return other text unchanged, and None for empty text."""
    if not word:
        return None
    if text or "_" in word:  # Python parses 1_000 as a number
        return word
    try:
        return float(word)
    except ValueError:
        return word


_T = TypeVar("_T")
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
    entries: list[tuple[bytes, dict[bytes, bytes]]]
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
        parts, parameters = _FORM.parse(url)
        try:
            port = parts.port or 6379
        except ValueError:
            port = 0
        db = parts.path.strip("/") or "0"
        if not (parts.hostname and port and db.isdecimal() and len(db) < 6) or parts.fragment:
            raise _FORM.error("no host, or an invalid port or database number")
        self._stream = parameters["stream"]
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{db}"
        self._roles = _FORM.roles(parameters, f"{shown}?{urlencode({'stream': self._stream})}")
        self.name, self.has_time = self._roles.name, self._roles.time is not None
        self._redis = redis = import_extra("redis", extra="redis")
        tls = {"ssl_ca_certs": parameters.get("ca")} if parts.scheme == "rediss" else {}
        self._client = redis.Redis.from_url(
            parts._replace(query="").geturl(), socket_timeout=_TIMEOUT,
            socket_connect_timeout=_TIMEOUT, socket_keepalive=True, protocol=2,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0), **tls,
        )  # fmt: skip

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
                numbered = enumerate(state.entries, before + 1)
                batch = build_batch(
                    (_entry(*raw, number) for number, raw in numbered), self._roles, _value,
                    own_time="id", part=self.name, position=f"{at}/{before}", removed=removed,
                    lag=max(lag, 0),
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
        pipeline.xinfo_stream(self._stream)
        pipeline.xrange(self._stream, f"({at}", "+", count=_MAX_ENTRIES)
        info, entries = self._call(lambda: pipeline.execute(raise_on_error=False))
        if isinstance(info, Exception) and _NO_KEY in str(info):
            raise SourceError(
                f"the stream {self._stream!r} must exist, but there is no stream of "
                "this name. Correct the name, or add the first entry.",
                self.name,
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
        stream, timeout = self._stream, max(int(1000 * seconds), 1)
        return bool(self._call(lambda: self._client.xread({stream: at}, count=1, block=timeout)))

    def _check_reaching(self, state: _StreamState, at: str) -> None:
        """Check that the stream still contains or exceeds the position that was read."""
        if _order(state.last) < _order(at):
            raise SourceError(
                f"the stream must reach {at}, which was read, but it ends at "
                f"{state.last}: it was recreated, or Redis has lost its last entries. "
                f"Reading continues with the first entry after {at}; to learn the "
                "stream from its beginning, set another `name` in the address.",
                self.name,
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
                f"the position must have a form such as 1795388746800-0/12, got {position[:100]!r} "
                "from another source. Set another `name` in the address.",
                self.name,
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
            f"the source must be a Redis stream that can be read, got: {text}. Check "
            "that Redis runs, and the address.",
            self.name,
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
