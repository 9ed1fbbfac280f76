"""HTTP/1.1 connection: that of uvicorn, with bounds on heads, connections and idle time."""

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from onepass.errors import ParameterError

if sys.platform != "win32":
    import resource

__all__ = ["Connection", "max_connections"]

_BODY = {b"content-length", b"transfer-encoding"}
_HEAD = 1 << 16  # bytes without a complete head, or a part of a body
_RESERVED_FILES = 128  # left to learners and to Python


def max_connections() -> int:
    """How many connections leave files for learners."""
    if sys.platform == "win32":
        return 1 << 30
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if files == resource.RLIM_INFINITY else max(files - _RESERVED_FILES, files // 2)


class Connection(HttpToolsProtocol):
    """One connection.

    ``request_timeout`` is that of the whole server: seconds until a request must be complete.
    """

    request_timeout = 30.0
    limit = 1 << 30
    """Connections at once; further ones are closed."""

    _timer: asyncio.TimerHandle | None = None
    _size = 0  # bytes since the last head or part of a body
    _unsent = 0  # bytes of responses that the client had not received at the last look

    def connection_made(self, transport: Any) -> None:
        """Close a connection beyond the limit; wait for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.limit:
            transport.abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse a head that is too long; wait for the rest of a request."""
        self._size += len(data)
        super().data_received(data)
        if self._size > _HEAD:
            self._refuse(431, b"the head of the request is too long")
        elif self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self._wait()
        else:
            self._stop_waiting()

    def on_headers_complete(self) -> None:
        """Refuse a body behind an upgrade: httptools would read it as the next request."""
        self._size = 0
        if self.parser.should_upgrade() and not _BODY.isdisjoint(dict(self.headers)):
            raise ParameterError("a body behind an upgrade")
        super().on_headers_complete()
        self.headers = []  # of trailers, which are no headers of the request

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._size = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request."""
        del msg
        self._size += 1
        self._refuse(400, b"the request must be one of HTTP/1.1, without an upgrade or a tunnel")

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; abort it if the client receives nothing of its responses."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent == self._unsent:
            self.transport.abort()
        elif unsent:
            self._unsent = unsent
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_timeout, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # the rest may have come
            self._wait()
        else:
            self._refuse(408, b"the request must arrive in time, but it did not; send it again")

    def _refuse(self, status: int, error: bytes) -> None:
        """Close the connection, with a response to a request that has none."""
        idle = self.cycle is None or self.cycle.response_complete
        if self._size if idle else self.cycle.more_body and not self.pipeline:
            self.transport.write(
                b"%bcontent-type: application/json\r\nconnection: close\r\n\r\n"
                b'{"error":"%b"}' % (STATUS_LINE[status], error)
            )
        if not idle:  # its handler need not wait for the rest
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
