"""Ahead: requests that go out before those in front of them are answered, by one connection."""

import http.client
import io
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

from onepass.service.speaking import Connection, Found, whole

__all__ = ["Ahead"]

_BYTES = 1 << 15  # on their way together: the system holds so many, whoever reads them or does not
_Connect = Callable[[], Connection]


class Ahead:
    """Requests that wait for their answers, which come in their order.

    Parameters
    ----------
    connect : callable
        Gives a connection that is not open yet.
    most : int
        So many are on their way together, if they are short.
    """

    def __init__(self, connect: _Connect, most: int) -> None:
        self._connect, self._most = connect, most
        self._waiting: deque[bytes] = deque()
        self._size = self._sent = 0  # bytes that wait, and requests of this line that do
        self._line: _Line | None = None
        self._answered: deque[Found] = deque()
        self._refused: Found | None = None
        self._broken = False  # since the first that waits was asked for last

    def __bool__(self) -> bool:
        return bool(self._waiting or self._answered)

    @property
    def ready(self) -> bool:
        """Whether ``answer`` is to be asked before anything is added."""
        return bool(self._answered) or self._refused is not None or self._broken

    def has_room(self, request: bytes) -> bool:
        """Whether it may go out before the first is answered: a long one goes alone.

        Parameters
        ----------
        request : bytes
        """
        if not self._waiting:
            return True
        return len(self._waiting) < self._most and self._size + len(request) <= _BYTES

    def add(self, request: bytes) -> None:
        """Add one, and send it; if that cannot be done, ``answer`` does it, or says why not.

        Parameters
        ----------
        request : bytes
            As ``Connection.written`` gives it.
        """
        try:
            self._gather()
        except (OSError, http.client.HTTPException):
            self.break_off()
        self._waiting.append(request)
        self._size += len(request)
        if self._refused is None:
            try:
                self._send()
            except (OSError, http.client.HTTPException):
                self.break_off()
                self._broken = True

    def answer(self) -> Found:
        """The status, body and headers for the first, once all that waits is sent.

        If all is well it waits no longer; if not, all is sent again when it is asked again.

        Raises
        ------
        OSError, http.client.HTTPException
        """
        if not self._answered and self._refused is None:
            self._take(self._send())
        if self._answered:
            return self._answered.popleft()
        found, self._refused = self._refused, None
        return found  # type: ignore[return-value]  # it is one or the other

    def break_off(self) -> None:
        """End the connection; what waits is to be sent again."""
        line, self._line, self._sent = self._line, None, 0
        if line is not None:
            line.close()

    def _send(self) -> "_Line":
        """Send all that waits; by what."""
        if self._line is None:
            self._line = _Line(self._connect())
        while self._sent < len(self._waiting):
            self._line.send(self._waiting[self._sent])
            self._sent += 1
        return self._line

    def _gather(self) -> None:
        """Take what has come; a line that the other end has closed is none."""
        while self._line is not None and self._line.is_ready():
            if not self._sent:
                self.break_off()
            else:
                self._take(self._line)

    def _take(self, line: "_Line") -> None:
        found = line.read()
        self._broken = False
        if found[0] >= http.client.MULTIPLE_CHOICES:
            self._refused = found
            self.break_off()
            return
        self._answered.append(found)
        self._size -= len(self._waiting.popleft())
        self._sent -= 1
        if line.ends:
            self.break_off()


class _Line:
    """A connection that is open, and all that comes by it."""

    ends = False  # whether the last answer was the last

    def __init__(self, connection: Connection) -> None:
        connection.connect()
        self._socket: Any = connection.sock
        self._raw = _Raw(self._socket)
        self._file = _Shared(self._raw)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def read(self) -> Found:
        response = http.client.HTTPResponse(self, method="POST")  # type: ignore[arg-type]
        response.begin()
        self.ends = response.will_close
        return whole(response)

    def is_ready(self) -> bool:
        """Whether something of an answer has come, or none will."""
        seconds = self._socket.gettimeout()
        self._socket.settimeout(0.0)
        try:
            return bool(self._file.peek(1)) or self._raw.ended
        finally:
            self._socket.settimeout(seconds)

    def makefile(self, *_: Any) -> io.BufferedReader:
        """What a response asks its socket for: the same for all, since it reads ahead."""
        return self._file

    def close(self) -> None:
        self._file.end()
        self._socket.close()


class _Raw(io.RawIOBase):
    """What comes by a socket."""

    ended = False

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int | None:
        try:
            count: int = self._socket.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.ended = not count
        return count


class _Shared(io.BufferedReader):
    """What a response may not close: others follow."""

    def close(self) -> None:
        """Whoever has read a response closes it: that is not the end."""

    def end(self) -> None:
        super().close()
