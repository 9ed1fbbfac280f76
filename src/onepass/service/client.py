"""Client of the service over HTTP, with retries where they are safe.

Numbers are sent as binary tensors, which keeps every bit. Rows to be learned are sent with an
idempotency key, so that they are learned once however often the request is repeated: after a broken
connection, a restart of the service, or a response that the service is busy. Requests may be sent
before earlier ones are answered, over one connection.
"""

import http.client
import io
import json
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.message import Message
from threading import local
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import SplitResult, quote, urlsplit

import numpy as np

from onepass.errors import ParameterError, ServiceError, TypeMismatchError
from onepass.service.requests import (
    Block,
    Receipt,
    hold_answered,
    hold_sendable,
    read_rows,
    read_tensors,
    tensors_of,
)
from onepass.service.writer import Charge
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.table import Table, TableLike

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["Ahead", "Asker", "Client", "Connection", "Found", "connection_to", "whole"]


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
        self._socket: socket.socket = connection.sock
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

    def makefile(self, *_: object) -> io.BufferedReader:
        """What a response asks its socket for: the same for all, since it reads ahead."""
        return self._file

    def close(self) -> None:
        self._file.end()
        self._socket.close()


class _Raw(io.RawIOBase):
    """What comes by a socket."""

    ended = False

    def __init__(self, socket: socket.socket) -> None:
        self._socket = socket

    def readable(self) -> bool:
        return True

    def readinto(self, into: "WriteableBuffer") -> int | None:
        try:
            count = self._socket.recv_into(into)
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


_HEADER = "Inference-Header-Content-Length"


class Client:
    """Asks one service; any thread may use it.

    Parameters
    ----------
    url : str
        Such as ``"http://127.0.0.1:8080"``; a path is a prefix.
    token : str, optional
        Sent with each request, as ``Authorization: Bearer TOKEN``.
    timeout : float, default 30
        Seconds for one attempt.
    patience : float, default 60
        Seconds during which a request is tried again.
    context : ssl.SSLContext, optional
        Of HTTPS, where the system's certificates are not those that count:
        ``ssl.create_default_context(cafile=FILE)``.

    Raises
    ------
    ParameterError
        If the address is none of HTTP, or the token none that can be sent.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8080", token="not a real one")
    >>> client
    <Client of http://127.0.0.1:8080>
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self._asker = Asker(url, token, timeout, patience, context)

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    # -- verbs ---------------------------------------------------------------------------------

    def predict(self, name: str, X: TableLike) -> Array:
        """What a learner says of rows.

        Parameters
        ----------
        name : str
            Name of the learner.
        X : array-like of shape (n, d), frame, or sequence of dicts

        Raises
        ------
        ServiceError
            If the service refuses, or does not answer in time.
        """
        found, _ = self._infer(name, "infer", read_rows(X, None, where="Client.predict"), {})
        return found["y"]

    def learn(
        self,
        name: str,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Have rows learned; they are on the service's disk when it returns.

        Parameters
        ----------
        name : str
            Name of the learner.
        X, y, sample_weight, time
            As for ``op.durable``'s ``learn``.
        key : str, optional
            An idempotency key, of printable ASCII; by default one that nobody has.

        Raises
        ------
        ParameterError
            If the key cannot be sent.
        ServiceError
            If the service refuses, or does not answer in time: then it is not known whether the
            rows were learned, and the same call with the same ``key`` finds out.
        """
        block = _block((X, y, sample_weight, time), "Client.learn")
        if key is not None:
            hold_sendable(key, "key", "Client.learn")
        headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else key}
        return self._learned(name, "learn", block, headers)

    def learn_each(
        self, name: str, rows: Iterable[Sequence[TableLike | None]], *, ahead: int = 32
    ) -> Iterator[Receipt]:
        """Have rows learned in their order, without waiting for one to send the next.

        What is on its way together, the service brings to the disk together. It goes by a
        connection of its own, which ends when the receipts do, or are asked for no longer; nothing
        is sent before the first is asked for.

        Parameters
        ----------
        name : str
            Name of the learner.
        rows : iterable of tuple
            Each what one request takes: X and y, and if they are wanted sample_weight and time, as
            for ``learn``. It may be a generator, and endless: each is sent when it comes.
        ahead : int, default 32
            Requests that may wait for their receipts, if they have 32 KB together; the service
            learns up to 64 short ones together.

        Yields
        ------
        receipt : Receipt
            For each, in their order, once it is on the service's disk: after a row is sent, all
            that have come.

        Raises
        ------
        ParameterError
            If ``ahead`` is no whole number from 1 on.
        TypeMismatchError
            If ``rows`` cannot be iterated over.
        ServiceError
            If the service refuses one, or does not answer in time. Those before it are learned,
            those behind it that were sent may be. What was sent is sent again over a new
            connection where one breaks or the service is busy, and is learned once all the same;
            where it was busy, perhaps after those behind it.
        OnepassError
            If something is no rows, once all before it are told of.
        """
        if not isinstance(ahead, (int, np.integer)) or isinstance(ahead, bool) or ahead < 1:
            raise ParameterError(
                f"Client.learn_each: `ahead` must be a whole number from 1 on, got {ahead!r}. "
                "Give how many requests may wait for their receipts, such as 32."
            )
        if not isinstance(rows, Iterable):
            raise TypeMismatchError(
                "Client.learn_each: `rows` must be a list or a generator of tuples, got "
                f"{type(rows).__name__}. Give such as [([[0.5]], [1.0])]."
            )
        path, place = f"/v2/models/{quote(name, safe='')}/learn", "Client.learn_each"
        requests = (
            _sent(_block(given, place), {"Idempotency-Key": secrets.token_hex(16)})
            for given in rows
        )
        answers = self._asker.ask_each(path, requests, ahead)
        return (_receipt(read_tensors(data, told.get(_HEADER)), told) for data, told in answers)

    def ask(self, name: str, X: TableLike, *, seconds: float = 86400.0) -> tuple[Array, list[str]]:
        """What a learner says of rows whose answers come later, and their ids."""
        block = read_rows(X, None, where="Client.ask")
        found, _ = self._infer(name, "infer", block, {}, {"ask": True, "seconds": seconds})
        return found["y"], found["id"].tolist()

    def answer(
        self,
        name: str,
        ids: Sequence[str],
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Receipt:
        """Answers for rows that were asked, as for ``op.durable``'s; each is learned once."""
        rows = Table({"id": np.array(list(ids), dtype=object)}, len(ids))
        block = read_rows(rows, y, sample_weight, time, where="Client.answer")
        return self._learned(name, "answers", block, {})

    def models(self) -> list[dict[str, Any]]:
        """Which learners there are."""
        found: list[dict[str, Any]] = self._json("GET", "/v2/repository/index")
        return found

    def create(
        self,
        name: str,
        model: "str | Learner | Pipeline",
        task: str = "regression",
        settings: Mapping[str, object] | None = None,
    ) -> int:
        """Serve a new learner, and return its version.

        Parameters
        ----------
        name : str
            Name of the learner.
        model : str, learner or Pipeline
            Name of a model, or an object with its learned state, which is sent as a model file.
        task : {"regression", "classification"}, default "regression"
            Task of a named model.
        settings : mapping of str to value, optional
            Parameters of a named model, such as ``{"rls.forgetting": 0.99}``.

        Raises
        ------
        ParameterError
            If settings come with an object.
        TypeMismatchError, CheckpointError
            If the object cannot be saved as a learner.
        ServiceError
            If the service refuses, or does not answer in time.
        """
        where, path = "Client.create", f"/v2/models/{quote(name, safe='')}"
        if isinstance(model, str):
            body = {"model": model, "task": task, "settings": dict(settings or {})}
            return int(self._json("PUT", path, body, again=False)["version"])
        if settings:
            raise ParameterError(
                f"{where}: `settings` must come with the name of a model, got them with "
                f"{type(model).__name__}. Set the parameters of the object."
            )
        kind = {"Content-Type": "application/x-onepass"}
        data = Charge.of(model, where).to_bytes(where)
        return int(json.loads(self._asker.ask("PUT", path, data, kind, again=False)[0])["version"])

    def retire(self, name: str) -> None:
        """Have a learner served no longer."""
        self._json("DELETE", f"/v2/models/{quote(name, safe='')}", again=False)

    def snapshot(self, name: str) -> int:
        """Have a snapshot taken; the version."""
        return int(self._json("POST", f"/v2/models/{quote(name, safe='')}/snapshot")["version"])

    def rollback(self, name: str, *, to: int) -> int:
        """Have a learner go back to a version; the new one."""
        path = f"/v2/models/{quote(name, safe='')}/rollback"
        return int(self._json("POST", path, {"to": to}, again=False)["version"])

    def close(self) -> None:
        """Close this thread's connection."""
        self._asker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what stands behind them ---------------------------------------------------------------

    def _learned(self, name: str, verb: str, block: Block, headers: Mapping[str, str]) -> Receipt:
        return _receipt(*self._infer(name, verb, block, headers))

    def _infer(
        self,
        name: str,
        verb: str,
        block: Block,
        headers: Mapping[str, str],
        parameters: Mapping[str, object] | None = None,
    ) -> tuple[dict[str, Array], Message]:
        path = f"/v2/models/{quote(name, safe='')}/{verb}"
        data, told = self._asker.ask("POST", path, *_sent(block, headers, parameters))
        return read_tensors(data, told.get(_HEADER)), told

    def _json(self, method: str, path: str, body: object = None, *, again: bool = True) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"}
        found, _ = self._asker.ask(method, path, data, sent, again=again)
        return json.loads(found)


def _sent(
    block: Block, headers: Mapping[str, str], parameters: Mapping[str, object] | None = None
) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a request."""
    body, length = tensors_of(block, {**(parameters or {}), "binary_data_output": True})
    kind = {_HEADER: str(length), "Content-Type": "application/octet-stream"}
    return body, {**headers, **kind}


def _receipt(found: Mapping[str, Array], told: Message) -> Receipt:
    version = int(told.get("X-Onepass-Version", "0"))
    return Receipt(version, found["y"], again=told.get("Idempotent-Replayed") == "true")


def _block(given: Sequence[Any], where: str) -> Block:
    """What one request takes, of rows that came as one of many."""
    if not isinstance(given, (tuple, list)) or not 2 <= len(given) <= 4:
        raise TypeMismatchError(
            f"{where}: `rows` must give X and y, and perhaps sample_weight and time, for each "
            f"request, got {type(given).__name__}. Give tuples such as ([[0.5]], [1.0])."
        )
    X, y, weight, time = (*given, None, None)[:4]
    hold_answered(y, where)
    return read_rows(X, y, weight, time, where=where)
