"""Connection: one that HTTP comes by, held to a time and to a length of its headers.

uvicorn waits for a request as long as it takes, and reads headers however many there are.
"""

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from onepass.service.web.exchange import WHOLE

__all__ = ["connection", "swept"]

_HEAD = 1 << 16  # bytes of a request before its body


def connection() -> Any:
    """The class of connections, for uvicorn."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415  an extra

    class Connection(HttpToolsProtocol):
        since: float | None = None
        """When the request began that is still coming; None between requests."""

        _head = 0
        """Bytes of it that came by themselves before its headers were there; then -1."""

        def connection_made(self, transport: Any) -> None:
            self.since = time.monotonic()
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            before = self.since
            super().data_received(data)
            if self.since == before and before is not None and self._head >= 0:
                self._head += len(data)
                if self._head > _HEAD:
                    _refused(self, 431, "Request Header Fields Too Large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.since, self._head = time.monotonic(), 1

        def on_headers_complete(self) -> None:
            self._head = -1
            super().on_headers_complete()
            scope: Any = self.scope
            scope["extensions"] = {WHOLE: partial(_whole, self.cycle)}

        def on_message_complete(self) -> None:
            super().on_message_complete()
            if not self.cycle.response_complete:  # else uvicorn no longer counts it as idle
                self.since = None

    return Connection


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
    """End those whose request takes longer to come.

    Parameters
    ----------
    connections : iterable of Connection
    seconds : float
    """
    oldest = time.monotonic() - seconds
    for each in list(connections):
        if each.since is not None and each.since < oldest:
            _refused(each, 408, "Request Timeout")
