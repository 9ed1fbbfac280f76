"""Redis: a stream of Redis, each of whose entries is a row.

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onepass.errors import SourceError, need
from onepass.service.sources.address import Address
from onepass.service.sources.entries import Entry, piece_of
from onepass.service.sources.source import Piece, Source

__all__ = ["RedisStream"]

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


class RedisStream(Source):
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
        self._redis = redis = need("redis", extra="redis", where=_WHERE)
        retry = need("redis.retry", extra="redis", where=_WHERE)
        backoff = need("redis.backoff", extra="redis", where=_WHERE)
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
            self._hold_reaching(found, at)
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

    def _hold_reaching(self, found: _Look, at: str) -> None:
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

    def _told(self, ask: Any) -> Any:
        """What Redis answers; its errors in the user's words."""
        try:
            return ask()
        except (self._redis.RedisError, OSError, ValueError) as wrong:
            raise self._wrong(wrong) from wrong

    def _wrong(self, came: Any) -> SourceError:
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
