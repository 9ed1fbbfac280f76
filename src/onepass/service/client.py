"""Client: asks a service over HTTP, and asks again where that is safe.

Numbers go as binary tensors, to the last bit. What is to be learned goes with an idempotency key,
so that it is learned once however often it is sent: after a broken connection, a restart of the
service, or where it says that it is busy.
"""

import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.message import Message
from threading import local
from typing import Any, Self
from urllib.parse import quote, urlsplit

import numpy as np

from onepass.errors import ParameterError, ServiceError
from onepass.service.blocks import Block
from onepass.service.intake import read_rows
from onepass.service.packing import read_tensors, tensors_of
from onepass.service.requests import Receipt
from onepass.table import Table
from onepass.types import Array

__all__ = ["Client"]

_HEADER = "Inference-Header-Content-Length"
_BUSY = 429  # nothing of it was done
_AGAIN = {_BUSY, 502, 503, 504}


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
        If the address is none of HTTP.

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

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    # -- verbs ---------------------------------------------------------------------------------

    def predict(self, name: str, X: Any) -> Array:
        """What a learner says of rows.

        Parameters
        ----------
        name : str
            The learner's.
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
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        time: Any = None,
        key: str | None = None,
    ) -> Receipt:
        """Have rows learned; they are on the service's disk when it returns.

        Parameters
        ----------
        name : str
            The learner's.
        X, y, sample_weight, time
            As for ``op.durable``'s ``learn``.
        key : str, optional
            An idempotency key; by default one that nobody has.

        Raises
        ------
        ServiceError
            If the service refuses, or does not answer in time: then it is not known whether the
            rows were learned, and the same call with the same ``key`` finds out.
        """
        block = read_rows(X, y, sample_weight, time, where="Client.learn")
        headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else key}
        found, told = self._infer(name, "learn", block, headers)
        version = int(told.get("X-Onepass-Version", "0"))
        return Receipt(version, found["y"], again=told.get("Idempotent-Replayed") == "true")

    def ask(self, name: str, X: Any, *, seconds: float = 86400.0) -> tuple[Array, list[str]]:
        """What a learner says of rows whose answers come later, and their ids."""
        block = read_rows(X, None, where="Client.ask")
        found, _ = self._infer(name, "infer", block, {}, {"ask": True, "seconds": seconds})
        return found["y"], found["id"].tolist()

    def answer(self, name: str, ids: Sequence[str], y: Any) -> Receipt:
        """Answers for rows that were asked; each is learned once."""
        rows = Table({"id": np.array(list(ids), dtype=object)}, len(ids))
        block = read_rows(rows, y, where="Client.answer")
        found, told = self._infer(name, "answers", block, {})
        version = int(told.get("X-Onepass-Version", "0"))
        return Receipt(version, found["y"], again=told.get("Idempotent-Replayed") == "true")

    def models(self) -> list[dict[str, Any]]:
        """Which learners there are."""
        found: list[dict[str, Any]] = self._json("GET", "/v2/repository/index")
        return found

    def create(self, name: str, model: str, task: str = "regression", **settings: Any) -> int:
        """Have a new learner served, by the name of a model; its version.

        Settings are parameters of the model, such as ``**{"rls.forgetting": 0.99}``.
        """
        body = {"model": model, "task": task, "settings": settings}
        path = f"/v2/models/{quote(name, safe='')}"
        return int(self._json("PUT", path, body, again=False)["version"])

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
        connection = getattr(self._here, "connection", None)
        if connection is not None:
            connection.close()
            self._here.connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what stands behind them ---------------------------------------------------------------

    def _infer(
        self,
        name: str,
        verb: str,
        block: Block,
        headers: Mapping[str, str],
        parameters: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Array], Message]:
        body, length = tensors_of(block, {**(parameters or {}), "binary_data_output": True})
        sent = {**headers, _HEADER: str(length), "Content-Type": "application/octet-stream"}
        path = f"/v2/models/{quote(name, safe='')}/{verb}"
        data, told = self._asked("POST", path, body, sent)
        return read_tensors(data, told.get(_HEADER)), told

    def _json(self, method: str, path: str, body: Any = None, *, again: bool = True) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"}
        found, _ = self._asked(method, path, data, sent, again=again)
        return json.loads(found)

    def _asked(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        again: bool = True,
    ) -> tuple[bytes, Message]:
        """The answer to a request, which is sent again until it comes or patience is over.

        Where ``again`` is False, it is sent again only if nothing of it can have been done.
        """
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
                strange = isinstance(broken, ssl.SSLCertVerificationError)
                if strange or time.monotonic() + wait > end or (heard and not again):
                    raise ServiceError(self._silence(broken, strange), 0) from broken
            else:
                if status < 300:
                    return data, told
                wise = status in _AGAIN if again else status == _BUSY
                if not wise or time.monotonic() + wait > end:
                    raise ServiceError(_message(data, status), status)
                wait = max(wait, _seconds(told.get("Retry-After")))
            time.sleep(min(wait, max(end - time.monotonic(), 0.0)))
        raise AssertionError("unreachable")

    def _silence(self, broken: Exception, strange: bool) -> str:  # noqa: FBT001  our own
        if strange:
            return (
                f"{self.url}: must have a certificate that is trusted here, got: {broken}. To "
                "trust it give `context`: ssl.create_default_context(cafile=FILE)."
            )
        return (
            f"{self.url}: must answer within {self._patience:g} seconds, got: {broken!r}. Look "
            "whether it runs, and whether it has done what was asked; rows to learn may be sent "
            "again with the same key."
        )

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
