"""Speaking: HTTP by http.client, whose requests go out whole, and whose answers come whole."""

import http.client
import ssl
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import SplitResult

__all__ = ["Connection", "Found", "connection_to", "whole"]

_COPIED = 1 << 16  # bytes of a request that are put together, so that they go out in one piece
_OLD = 10  # HTTP/1.0, in which the end of the connection may be that of the body

Found = tuple[int, bytes, Message]
"""Status, body and headers of an answer."""


class Connection(http.client.HTTPConnection):
    """A connection, not open yet.

    http.client sends a head, and then a body: whoever gets them looks twice. Here they go together.
    """

    _pieces: list[bytes] | None = None  # of a request that is being written

    def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a request; after an error it is to be asked nothing more.

        Parameters
        ----------
        method, path : str
        body : bytes
        headers : mapping of str to str
        """
        parts = self._written(method, path, body, headers)
        for part in [b"".join(parts)] if len(body) <= _COPIED else parts:
            self.send(part)

    def written(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """A request by POST as it would be sent; it is not, and this is to be used no more.

        Parameters
        ----------
        path : str
        body : bytes
        headers : mapping of str to str
        """
        return b"".join(self._written("POST", path, body, headers))

    def send(self, data: Any) -> None:
        """Send bytes, or keep them as a part of what is being written."""
        if self._pieces is None:
            super().send(data)
        else:
            self._pieces.append(data)

    def _written(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> list[bytes]:
        parts: list[bytes] = []
        self._pieces = parts
        try:
            self.request(method, path, body, dict(headers))
        finally:
            self._pieces = None
        return parts


class _Secure(http.client.HTTPSConnection, Connection):
    """The same by TLS."""


def connection_to(parts: SplitResult, timeout: float, context: ssl.SSLContext | None) -> Connection:
    """A connection to a service, not open yet.

    Parameters
    ----------
    parts : SplitResult
        Of its address.
    timeout : float
    context : ssl.SSLContext, optional
        Of HTTPS.
    """
    host = str(parts.hostname)  # without a port beside it, http.client looks for one in ::1
    if parts.scheme == "https":
        return _Secure(host, parts.port or 443, timeout=timeout, context=context)
    return Connection(host, parts.port or 80, timeout=timeout)


def whole(response: http.client.HTTPResponse) -> Found:
    """The status, body and headers of a response.

    Parameters
    ----------
    response : http.client.HTTPResponse

    Raises
    ------
    OSError, http.client.HTTPException
        If it does not come to its end: http.client takes a head that is cut off for a whole one,
        so that one of HTTP/1.1 must say how long its body is.
    """
    data, status, headers = response.read(), response.status, response.headers
    told = response.chunked or headers.get("Content-Length", "").isdecimal()
    may = response.version == _OLD or status == http.client.NO_CONTENT
    if status < http.client.MULTIPLE_CHOICES and not told and not may:
        raise http.client.IncompleteRead(data)
    return status, data, headers
