"""Asking: one request to a service over HTTP, sent again where that is safe."""

import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from email.message import Message
from threading import local
from typing import Any
from urllib.parse import urlsplit

from onepass.errors import ParameterError, ServiceError
from onepass.service.ahead import Ahead
from onepass.service.speaking import Connection, Found, connection_to, whole
from onepass.service.words import hold_sendable

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
        If the address is none of HTTP, or the token none that can be sent.
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
        if token is not None:
            hold_sendable(token, "token", "Client")
        if parts.scheme == "https" and context is None:  # once: it reads all certificates
            context = ssl.create_default_context()
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
        sent = self._signed(headers)
        return self._heard(lambda: self._once(method, path, body, sent), self.close, again=again)

    def ask_each(
        self, path: str, requests: Iterable[tuple[bytes, Mapping[str, str]]], most: int
    ) -> Iterator[tuple[bytes, Message]]:
        """The answers to requests, in their order, while others are on their way behind them.

        They have a connection of their own, and are sent again until they are answered or patience
        is over: each may be done twice.

        Parameters
        ----------
        path : str
        requests : iterable of tuple of bytes and mapping
            Their bodies and headers.
        most : int
            So many are on their way together.

        Raises
        ------
        ServiceError
            If the service refuses one, or does not answer in time: those behind it may be done.
        Exception
            Whatever ``requests`` raises, once all before it are answered.
        """
        ahead, coming, wrong = Ahead(self._connection, most), iter(requests), None
        try:
            while True:
                try:
                    data = self._next(path, coming)
                except Exception as raised:  # noqa: BLE001  it is raised when all before are told
                    wrong, data = raised, b""
                while ahead and not (data and ahead.has_room(data)):
                    yield self._heard(ahead.answer, ahead.break_off)
                if not data:
                    break
                ahead.add(data)
                while ahead.ready:
                    yield self._heard(ahead.answer, ahead.break_off)
            if wrong is not None:
                raise wrong
        finally:
            wrong = None  # which knows this frame
            ahead.break_off()

    def _next(self, path: str, requests: Iterator[tuple[bytes, Mapping[str, str]]]) -> bytes:
        """The next request as it is sent; empty after the last."""
        found = next(requests, None)
        if found is None:
            return b""
        return self._connection().written(self._place(path), found[0], self._signed(found[1]))

    def _heard(
        self,
        once: Callable[[], Found],
        close: Callable[[], None],
        *,
        again: bool = True,
    ) -> tuple[bytes, Message]:
        """What is answered, as often as it must be asked."""
        end = time.monotonic() + self._patience
        for attempt in range(1 << 30):
            wait = min(0.05 * 2.0 ** min(attempt, 6), 2.0) * (0.5 + secrets.randbelow(1000) / 1000)
            try:
                status, data, told = once()
            except (OSError, http.client.HTTPException) as broken:
                close()
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

    def _signed(self, headers: Mapping[str, str]) -> dict[str, str]:
        sign = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        return {**headers, **sign}

    def _place(self, path: str) -> str:
        return self._parts.path.rstrip("/") + path

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

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Found:
        connection: Connection | None = getattr(self._here, "connection", None)
        if connection is None:
            connection = self._here.connection = self._connection()
        try:
            connection.ask(method, self._place(path), body, headers)
            return whole(connection.getresponse())
        except BaseException:  # something of it may be left there
            self.close()
            raise

    def _connection(self) -> Connection:
        return connection_to(self._parts, self._timeout, self._context)


def _message(data: bytes, status: int) -> str:
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {status}: {data[:200]!r}"


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() else 0.0
