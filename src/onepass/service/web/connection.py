"""Connection: one that HTTP comes by, held to a time and to a length of its headers.

uvicorn waits for a request as long as it takes, reads headers however many there are, keeps an
answer until it is fetched, and takes connections until the system has no more files for it, of
which learners need some.
"""

import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from onepass.service.web.exchange import WHOLE

if sys.platform != "win32":
    import resource

__all__ = ["connection", "most_connections", "swept"]

_HEAD = 1 << 16  # bytes of a request before its body
_TAKEN = 1 << 16  # bytes of an answer that whoever asked must take within the time
_FILES = 128  # that are left to learners and to Python


def most_connections() -> int:
    """How many connections there may be, so that files are left for all else."""
    if sys.platform == "win32":
        return 1 << 30
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if files == resource.RLIM_INFINITY else max(files - _FILES, files // 2)


def connection(most: int) -> Any:
    """The class of connections, for uvicorn.

    Parameters
    ----------
    most : int
        How many there may be; who comes then is turned away.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415  an extra

    class Connection(HttpToolsProtocol):
        since: float | None = None
        """When the request began that is still coming; None between requests."""

        unsent: tuple[float, int] | None = None
        """When so many bytes of answers were still to be taken; None if all were."""

        _head = 0
        """Bytes of it that came by themselves before its headers were there; then -1."""

        def connection_made(self, transport: Any) -> None:
            self.since = time.monotonic()
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()

        def data_received(self, data: bytes) -> None:
            before = self.since
            super().data_received(data)
            if self.since == before:
                _received(self, len(data))

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.since, self._head = time.monotonic(), 1

        def on_headers_complete(self) -> None:
            self._head = -1
            super().on_headers_complete()
            _headed(self)

        def on_message_complete(self) -> None:
            super().on_message_complete()
            if not self.cycle.response_complete:  # else uvicorn no longer counts it as idle
                self.since = None

    return Connection


def _headed(self: Any) -> None:
    """Offer what is not uvicorn's own, to a request whose headers are there."""
    if self.parser.should_upgrade():  # to nothing that is spoken here
        self.cycle.keep_alive = False
    self.scope["extensions"] = {WHOLE: partial(_whole, self.cycle)}


def _received(self: Any, size: int) -> None:
    """Note bytes with which no request began."""
    if self.since is None:
        if self.cycle is not None and self.cycle.response_complete:
            self.since = time.monotonic()  # a stray line, after which uvicorn no longer waits
    elif self._head >= 0:
        self._head += size
        if self._head > _HEAD:
            _refused(self, 431, "Request Header Fields Too Large")


def _whole(cycle: Any, head: bytes, body: bytes) -> bool:
    """Send an answer, whose head begins with its status, at once; whether it could be sent so.

    uvicorn's own way looks at each header by itself, and writes twice.
    """
    if cycle.flow.write_paused or cycle.response_started:
        return False
    if not cycle.disconnected:
        common = b"".join(b"%b: %b\r\n" % each for each in cycle.default_headers)
        ends = b"" if cycle.keep_alive else b"connection: close\r\n"
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"".join((b"HTTP/1.1 ", head, common, ends, b"\r\n", body)))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
    return True


def _refused(self: Any, status: int, phrase: str) -> None:
    """End a connection; whoever waits for an answer is told why, if no other is under way."""
    free = self.cycle is None or self.cycle.response_complete
    waits = self._head > 0 if free else not self.cycle.response_started
    if waits and not self.pipeline and not self.transport.is_closing():
        body = f'{{"error":"{phrase.lower()}"}}'
        self.transport.write(
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
    self.since = None
    self.transport.close()


def swept(connections: Iterable[Any], seconds: float) -> None:
    """End those whose request takes longer to come, or whose answer longer to be taken.

    Parameters
    ----------
    connections : iterable of Connection
    seconds : float
    """
    now = time.monotonic()
    for each in list(connections):
        if each.since is not None and each.since < now - seconds:
            _refused(each, 408, "Request Timeout")
        left = each.transport.get_write_buffer_size()
        at, before = each.unsent or (now, left)
        if not left:
            each.unsent = None
        elif each.unsent is None or left <= before - _TAKEN or left > before:
            each.unsent = (now, left)
        elif at < now - seconds:
            each.transport.abort()  # to close it would wait until all is taken
