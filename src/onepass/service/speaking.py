"""Speaking: HTTP by http.client, whose requests go out whole, and whose answers come whole."""

import http.client
import ssl
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import SplitResult

from onepass.errors import ParameterError

__all__ = ["Connection", "Found", "connection_to", "hold_sendable", "whole"]

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
        """A request by POST as it would be sent; it is not.

        Parameters
        ----------
        path : str
        body : bytes
        headers : mapping of str to str
        """
        blank = Connection(self.host, self.port)  # of an error something would be left in it
        blank.default_port = self.default_port
        return b"".join(blank._written("POST", path, body, headers))

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


def hold_sendable(word: Any, name: str, where: str) -> None:
    """Refuse what cannot stand in a header, such as the line of a file with its end.

    Parameters
    ----------
    word : Any
        It is not told: it may be secret.
    name : str
        Of the argument.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    good = isinstance(word, str) and word.isascii() and word.isprintable() and word == word.strip()
    if not good or not word:
        came = "other text" if isinstance(word, str) else type(word).__name__
        raise ParameterError(
            f"{where}: `{name}` must be text of printable ASCII, without blanks at its ends, got "
            f"{came}. If it was read from a file, strip it."
        )


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
