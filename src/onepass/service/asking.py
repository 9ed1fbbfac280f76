"""Asking: one request to a service over HTTP, sent again where that is safe."""

import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from threading import local
from typing import Any
from urllib.parse import urlsplit

from onepass.errors import ParameterError, ServiceError

__all__ = ["Asker"]

_BUSY = 429  # nothing of it was done
_AGAIN = {_BUSY, 502, 503, 504}
_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}  # plain HTTP came


class Asker:
    """Asks one service; any thread may use it, each by a connection of its own.

    Parameters
    ----------
    url, token, timeout, patience, context
        As for :class:`Client`.

    Raises
    ------
    ParameterError
        If the address is none of HTTP.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout: float,
        patience: float,
        context: ssl.SSLContext | None,
    ) -> None:
        parts = urlsplit(url)
        good: Any = False
        with suppress(ValueError):  # there is no such port
            good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if not good:
            raise ParameterError(
                f"Client: `url` must be such as http://127.0.0.1:8080, got {url!r}. Give scheme, "
                "host and port."
            )
        self.url = url
        self._parts, self._context = parts, context
        self._token, self._timeout, self._patience = token, timeout, patience
        self._here = local()

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._here, "connection", None)
        if connection is not None:
            connection.close()
            self._here.connection = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        again: bool = True,
    ) -> tuple[bytes, Message]:
        """The answer to a request, which is sent again until it comes or patience is over.

        Parameters
        ----------
        method, path : str
        body : bytes
        headers : mapping of str to str
        again : bool, default True
            Whether it may be done twice; if not, it is sent again only if nothing of it can have
            been done.

        Raises
        ------
        ServiceError
            If the service refuses, or does not answer in time.
        """
        if not again:  # a connection may have ended since it was used last: nobody could tell why
            self.close()
        end = time.monotonic() + self._patience
        sent = dict(headers)
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        for attempt in range(1 << 30):
            wait = min(0.05 * 2.0 ** min(attempt, 6), 2.0) * (0.5 + secrets.randbelow(1000) / 1000)
            try:
                status, data, told = self._once(method, path, body, sent)
            except (OSError, http.client.HTTPException) as broken:
                self.close()
                heard = not isinstance(broken, (ConnectionRefusedError, socket.gaierror))
                strange = self._strange(broken)
                if strange or time.monotonic() + wait > end or (heard and not again):
                    raise ServiceError(strange or self._silence(broken), 0) from broken
            else:
                if status < 300:
                    return data, told
                wise = status in _AGAIN if again else status == _BUSY
                if not wise or time.monotonic() + wait > end:
                    raise ServiceError(_message(data, status), status)
                wait = max(wait, _seconds(told.get("Retry-After")))
            time.sleep(min(wait, max(end - time.monotonic(), 0.0)))
        raise AssertionError("unreachable")

    def _silence(self, broken: Exception) -> str:
        plain = isinstance(broken, http.client.RemoteDisconnected) and self._parts.scheme == "http"
        return (
            f"{self.url}: must answer within {self._patience:g} seconds, got: {broken!r}. Look "
            "whether it runs, and whether it has done what was asked; rows to learn may be sent "
            "again with the same key." + " If it speaks TLS, ask it by https://." * plain
        )

    def _strange(self, broken: Exception) -> str:
        """Why it is no use to ask again; empty if it may be."""
        if isinstance(broken, ssl.SSLCertVerificationError):
            return (
                f"{self.url}: must have a certificate that is trusted here, got: {broken}. To "
                "trust it give `context`: ssl.create_default_context(cafile=FILE)."
            )
        if isinstance(broken, ssl.SSLError) and broken.reason in _NO_TLS:
            return (
                f"{self.url}: must speak TLS, got something else: {broken.reason}. Ask it by "
                "http://, or give the service a certificate."
            )
        return ""

    def _once(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes, Message]:
        connection = getattr(self._here, "connection", None)
        if connection is None:
            connection = self._here.connection = self._connection()
        connection.request(method, self._parts.path.rstrip("/") + path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read(), response.headers

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout, context=self._context
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _message(data: bytes, status: int) -> str:
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {status}: {data[:200]!r}"


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() else 0.0
