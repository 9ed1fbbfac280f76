"""HTTP/1.1 connections of uvicorn, with limits on headers, connections and idle time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from onepass.errors import ParameterError
from onepass.service.lock import file_limit

_BODY = {b"content-length", b"transfer-encoding"}
_UPGRADE = re.compile(rb"(\r\nConnection:[^\r\n]*?)\bUpgrade\b", re.IGNORECASE)
_HEAD = 1 << 16  # max bytes since the last complete headers or part of a body


def max_connections(used: int) -> int:
    """Return the max number of connections, given the file descriptors used by others."""
    return max(file_limit() - used, 16)


class Connection(HttpToolsProtocol):
    """One connection.

    The attributes of the class apply to all connections of a server.
    """

    request_timeout = 30.0
    """Seconds within which a request must be complete."""
    limit = 1 << 30
    """Max connections; further connections are closed."""

    _timer: asyncio.TimerHandle | None = None
    _size = 0  # bytes since the last headers or part of a body
    _unsent = 0  # bytes of responses not received by the client at the last check

    def connection_made(self, transport: Any) -> None:
        """Close a connection beyond the limit, or start the timeout of its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.limit:
            transport.abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeouts, which would keep the connection and its headers in memory."""
        self._stop_waiting()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # also after an error, unlike uvicorn
        self.headers = []

    def data_received(self, data: bytes) -> None:
        """Reject headers that are too long; start the timeout of an incomplete request.

        A server may ignore ``Upgrade``, which Java's client sends by default; httptools would take
        the body for the other protocol, so the word is removed from ``Connection``.
        """
        if self.cycle is None or self.cycle.response_complete:
            head, end, body = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(rb"\1x", head) + end + body
        self._size += len(data)
        super().data_received(data)
        if self._size > _HEAD:
            self._refuse(431, b"the headers of the request are too long; send shorter headers")
        elif self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self._wait()
        else:
            self._stop_waiting()

    def on_headers_complete(self) -> None:
        """Reject an upgrade with a body, which httptools would parse as the next request."""
        self._size = 0
        if self.parser.should_upgrade() and not _BODY.isdisjoint(dict(self.headers)):
            raise ParameterError("a body after an upgrade")
        super().on_headers_complete()
        self.headers = []  # trailers are not headers of the request

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._size = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Reject an invalid request."""
        del msg
        self._size += 1
        self._refuse(
            400,
            b"the request must use HTTP/1.1, without an upgrade or a tunnel; correct the client",
        )

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; abort it if the client does not read its responses."""
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
            self._timer = self.loop.call_later(self.request_timeout, self._time_out)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # the rest may have arrived, but was not read
            self._wait()
        else:
            self._refuse(
                408,
                b"the request must arrive within the request timeout, but is incomplete; "
                b"send it again",
            )

    def _refuse(self, status: int, error: bytes) -> None:
        """Close the connection, after an error response if the request has no response yet."""
        idle = self.cycle is None or self.cycle.response_complete
        if self._size if idle else self.cycle.more_body and not self.pipeline:
            self.transport.write(
                b"%bcontent-type: application/json\r\nconnection: close\r\n\r\n"
                b'{"error":"%b"}' % (STATUS_LINE[status], error)
            )
        if not idle:  # the handler must not wait for the rest of the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
