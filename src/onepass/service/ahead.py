"""Ahead: requests that go out before those in front of them are answered, by one connection."""

import http.client
import io
from collections import deque
from collections.abc import Callable, Mapping
from email.message import Message
from typing import Any

__all__ = ["Ahead", "whole", "written"]

_BYTES = 1 << 16  # on their way together: whatever is answered to them is held by the system
_Connect = Callable[[], http.client.HTTPConnection]


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
        self._broken = False  # since the first that waits was asked for last

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the first must be answered before another is added."""
        return self._broken or len(self._waiting) >= self._most or self._size > _BYTES

    def add(self, request: bytes) -> None:
        """Add one, and send it; if that cannot be done, ``answer`` does it, or says why not.

        Parameters
        ----------
        request : bytes
            As ``written`` gives it.
        """
        self._waiting.append(request)
        self._size += len(request)
        try:
            self._send()
        except (OSError, http.client.HTTPException):
            self.break_off()
            self._broken = True

    def answer(self) -> tuple[int, bytes, Message]:
        """The status, body and headers for the first, once all that waits is sent.

        If all is well it waits no longer; if not, all is sent again when it is asked again.

        Raises
        ------
        OSError, http.client.HTTPException
        """
        found = self._send().read()
        self._broken = False
        if found[0] >= http.client.MULTIPLE_CHOICES:
            self.break_off()
        else:
            self._size -= len(self._waiting.popleft())
            self._sent -= 1
        return found

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


class _Line:
    """A connection that is open, and all that comes by it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        connection.connect()
        self._socket: Any = connection.sock
        self._file = _Shared(self._socket.makefile("rb", buffering=0))

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def read(self) -> tuple[int, bytes, Message]:
        response = http.client.HTTPResponse(self, method="POST")  # type: ignore[arg-type]
        response.begin()
        return whole(response)

    def makefile(self, *_: Any) -> io.BufferedReader:
        """What a response asks its socket for: the same for all, since it reads ahead."""
        return self._file

    def close(self) -> None:
        self._file.end()
        self._socket.close()


class _Shared(io.BufferedReader):
    """What a response may not close: others follow."""

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()


class _Recorded:
    """In the place of a socket: what would be sent."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: Any) -> None:
        self.data += data


def whole(response: http.client.HTTPResponse) -> tuple[int, bytes, Message]:
    """The status, body and headers of a response.

    Parameters
    ----------
    response : http.client.HTTPResponse

    Raises
    ------
    OSError, http.client.HTTPException
        If it does not come to its end: http.client takes a head that is cut off for a whole one.
    """
    data, status, headers = response.read(), response.status, response.headers
    told = headers.get("Content-Length", "").isdecimal() or "Transfer-Encoding" in headers
    if status < http.client.MULTIPLE_CHOICES and not told:
        raise http.client.IncompleteRead(data)
    return status, data, headers


def written(
    connection: http.client.HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]
) -> bytes:
    """A request, as http.client sends it.

    Parameters
    ----------
    connection : http.client.HTTPConnection
        That is not open, and not to be opened.
    path : str
    body : bytes
    headers : mapping of str to str
    """
    recorded: Any = _Recorded()
    connection.sock = recorded
    connection.request("POST", path, body, dict(headers))
    return bytes(recorded.data)
