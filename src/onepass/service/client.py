"""HTTP clients of the service, blocking and asynchronous, with retries where they are safe.

Numbers are sent as binary tensors, which are exact. Rows to learn are sent with an idempotency key,
so that the service learns them once even if the client retries after a broken connection, a restart
of the service or status 429.

Requests, responses and retries are implemented once, as coroutines. In ``Client`` they call httpx's
blocking client, and complete without an event loop.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote

import numpy as np

from onepass.errors import ParameterError, ServiceError, calling, import_extra, public
from onepass.serialization import archive
from onepass.serialization.models import dumps, from_contents
from onepass.service.model import copied_learner
from onepass.service.requests import LearnResult, check_labelled, read_rows
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.rows import Rows
from onepass.validation.table import Table, TableLike

if TYPE_CHECKING:
    import httpx

    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

P = ParamSpec("P")
T = TypeVar("T")

# -- tensors of the Open Inference Protocol --------------------------------------------------------

_SHARES = ("probabilities", "classes")
_JSON_LENGTH = "Inference-Header-Content-Length"


def encode_tensors(
    block: Rows, parameters: Mapping[str, object], outputs: Sequence[str] = ()
) -> tuple[bytes, int]:
    """Encode rows as the body of a request: JSON with the text, then the numbers.

    Parameters
    ----------
    block : Rows
    parameters : mapping of str to value
        Parameters of the request.
    outputs : sequence of str
        Names of the requested outputs; by default the predictions.

    Returns
    -------
    body : bytes
    length : int
        Length of the JSON in bytes.
    """
    columns = dict(block.X.columns) if isinstance(block.X, Table) else {"X": block.X}
    columns |= {"y": block.y, "sample_weight": block.weight, "time": block.time}
    inputs, parts = [], []
    for name, array in columns.items():
        if array is None:
            continue
        tensor: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": "BYTES"}
        if array.dtype.kind in "biuf":
            parts.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
            tensor["datatype"] = array.dtype.name.upper().replace("FLOAT", "FP")
            tensor["parameters"] = {"binary_data_size": array.nbytes}
        else:
            values = array.ravel().tolist()
            if array.dtype.kind == "M":
                times = np.datetime_as_string(array).ravel().tolist()
                values = [None if time == "NaT" else time for time in times]
                tensor["parameters"] = {"content_type": "datetime"}
            tensor["data"] = [None if value is None else str(value) for value in values]
        inputs.append(tensor)
    request = {"inputs": inputs, "parameters": dict(parameters)}
    if outputs:
        request["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(request).encode()
    return b"".join((head, *parts)), len(head)


def _decode_tensors(response: httpx.Response) -> dict[str, Array]:
    """Return the tensors of a response by name.

    Raises
    ------
    ServiceError
        If the response is not from the service but, for example, from a proxy.
    """
    data, arrays = response.content, {}
    try:
        at = int(response.headers.get(_JSON_LENGTH, len(data)))
        for tensor in json.loads(data[:at])["outputs"]:
            size = tensor.get("parameters", {}).get("binary_data_size", 0)
            part, at = data[at : at + size], at + size
            if "data" in tensor:
                array = np.array(tensor["data"])
            elif tensor["datatype"] == "BYTES":
                array = np.array(_split_texts(part), dtype=object)
            else:
                dtype = np.dtype(tensor["datatype"].lower().replace("fp", "float"))
                array = np.frombuffer(part, dtype.newbyteorder("<")).astype(dtype)
            arrays[tensor["name"]] = array.reshape(tensor["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise _foreign(response) from error
    return arrays


def _foreign(response: httpx.Response) -> ServiceError:
    """Return the error for a response that is not from the service."""
    return ServiceError(
        f"the response must come from the service, got {response.content[:200]!r}. Check the URL, "
        "and proxies in front of the service.",
        str(response.url),
        status=response.status_code,
    )


def _split_texts(data: bytes) -> list[str]:
    """Split a BYTES tensor into texts, each preceded by its length in 4 bytes."""
    texts, at = [], 0
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start], "little")
        texts.append(data[start:at].decode())
    return texts


# -- requests, responses and retries ---------------------------------------------------------------

_BUSY = 429  # the service did not process the request
_RETRIED = {_BUSY, 502, 503, 504}
_MAX_WAIT = 2.0  # seconds between two attempts, unless Retry-After is longer
_RANDOM = secrets.SystemRandom()


class _Connection:
    """Base class of both clients: connections, requests with retries, and errors."""

    _asynchronous: bool

    @public
    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retry_timeout: float = 60.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        httpx = import_extra("httpx", extra="serve")
        try:
            address = httpx.URL(url)
            port = 80 if address.port is None else address.port
            valid = address.scheme in {"http", "https"} and address.host and 0 < port < 1 << 16
        except (httpx.InvalidURL, TypeError):
            valid = False
        if not valid:
            raise ParameterError(
                f"`url` must be a URL such as http://127.0.0.1:8080, got {url!r}. Pass "
                "scheme, host and port."
            )
        headers = {}
        if token is not None:
            _check_header(token, "token")
            headers["Authorization"] = f"Bearer {token}"
        if context is None and address.scheme == "https":
            context = ssl.create_default_context()
        self.url = url
        self._retry_timeout = retry_timeout
        self._httpx = httpx
        self._options = {"base_url": address, "headers": headers, "timeout": timeout,
                         "verify": context or False, "trust_env": False,
                         "limits": httpx.Limits(max_keepalive_connections=100)}  # fmt: skip
        self._http = self._open()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    def _features(self, X: TableLike, verb: str) -> Rows:
        """Copy rows to predict."""
        with calling(f"{type(self).__name__}.{verb}"):
            return read_rows(X, None)

    async def _learn(
        self,
        name: str,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        time: Any = None,
        *,
        where: str,
        key: str | None = None,
    ) -> LearnResult:
        """Learn the rows of one request."""
        with calling(where):
            if key is not None:
                _check_header(key, "key")
            check_labelled(y)
            block = read_rows(X, y, sample_weight, time)
        return _learn_result(
            await self._send_rows(name, "learn", block, key or secrets.token_hex(16))
        )

    async def _send_rows(
        self,
        name: str,
        verb: str,
        block: Rows,
        key: str | None = None,
        *,
        repeatable: bool = True,
        outputs: Sequence[str] = (),
        **parameters: object,
    ) -> httpx.Response:
        body, length = encode_tensors(block, {**parameters, "binary_data_output": True}, outputs)
        headers = {_JSON_LENGTH: str(length), "Content-Type": "application/octet-stream"}
        if key is not None:
            headers["Idempotency-Key"] = key
        path = _path(name, verb)
        return await self._send("POST", path, repeatable=repeatable, content=body, headers=headers)

    async def _send(
        self, method: str, path: str, *, repeatable: bool = True, **content: Any
    ) -> httpx.Response:
        """Send a request until it succeeds, is rejected, or the retry timeout is over.

        A request that is not ``repeatable`` is retried only if the service did not process it.
        """
        end = time.monotonic() + self._retry_timeout
        backoff = 0.05
        while True:
            after = 0.0
            try:
                reply = self._http.request(method, path, **content)
                response: httpx.Response = await reply if self._asynchronous else reply
            except self._httpx.TransportError as error:
                failure, retry = self._unreachable(error, repeatable=repeatable)
            else:
                if response.is_success:
                    return response
                failure = ServiceError(_message(response), status=response.status_code)
                retry = response.status_code in (_RETRIED if repeatable else {_BUSY})
                after = _seconds(response.headers.get("Retry-After", ""))
            wait, left = backoff * _RANDOM.uniform(0.5, 1.5), end - time.monotonic()
            if not retry or wait > left:
                raise failure
            wait = min(max(wait, after), left)
            if self._asynchronous:
                await asyncio.sleep(wait)
            else:
                time.sleep(wait)  # noqa: ASYNC251  there is no event loop
            backoff = min(2.0 * backoff, _MAX_WAIT)

    def _unreachable(self, error: Exception, *, repeatable: bool) -> tuple[ServiceError, bool]:
        """Return the error for a request without a response, and whether to retry the request."""
        httpx = self._httpx
        unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        misused = isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol))
        refused_tls = unsent and "SSL" in str(error) and "EOF" not in str(error)
        failure = ServiceError(
            f"the service must respond within {self._retry_timeout:g} seconds, got: {error!r}. "
            "Check that the service runs, and that the URL begins with its scheme, http:// or "
            "https://; to trust its certificate, pass `context`, such as "
            "ssl.create_default_context(cafile=FILE). The service may have processed the request; "
            "rows to learn can be sent again with the same key.",
            self.url,
            status=0,
        )
        failure.__cause__ = error
        return failure, not (refused_tls or misused) and (repeatable or unsent)

    def _open(self) -> Any:
        http = self._httpx.AsyncClient if self._asynchronous else self._httpx.Client
        return http(**self._options)


def _path(name: str, verb: str = "") -> str:
    return f"/v2/models/{quote(name, safe='')}/{verb}".rstrip("/")


def _learn_result(response: httpx.Response) -> LearnResult:
    version = int(response.headers.get("X-Onepass-Version", "0"))
    replayed = response.headers.get("Idempotent-Replayed") == "true"
    return LearnResult(version, _decode_tensors(response)["y"], repeated=replayed)


def _json(response: httpx.Response) -> Any:
    """Decode the JSON of a response; raise ServiceError if it is not JSON."""
    try:
        return response.json()
    except ValueError as error:
        raise _foreign(response) from error


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service responded with {response.status_code}: {response.content[:200]!r}"


def _seconds(header: str) -> float:
    return float(header) if header.isdecimal() else 0.0


def _check_header(value: object, name: str) -> None:
    """Check that a value can be sent in a header; messages omit the value, which may be secret."""
    printable = isinstance(value, str) and value.isascii() and value.isprintable()
    if not printable or not value or value != str(value).strip():
        received = "other text" if isinstance(value, str) else type(value).__name__
        raise ParameterError(
            f"`{name}` must be text of printable ASCII without leading or trailing blanks, got "
            f"{received}. Remove line ends and blanks, for example with str.strip."
        )


# -- clients ---------------------------------------------------------------------------------------


class AsyncClient(_Connection):
    """Asynchronous client of one service, with the methods of ``Client`` as coroutines.

    It may be created outside an event loop; all requests must be sent from the same event loop.

    Parameters
    ----------
    url, token, timeout, retry_timeout, context
        As for :class:`Client`.

    Raises
    ------
    ParameterError
        If the URL is not an HTTP URL, or the token cannot be sent in a header.
    MissingExtraError
        If httpx is not installed.

    Examples
    --------
    >>> AsyncClient("http://127.0.0.1:8080")
    <AsyncClient of http://127.0.0.1:8080>
    """

    _asynchronous = True

    async def predict(self: _Connection, name: str, X: TableLike) -> Array:
        """Predict rows.

        Parameters
        ----------
        name : str
            Name of the learner.
        X : array-like of shape (n, d), frame, or sequence of dicts

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        block = self._features(X, "predict")
        return _decode_tensors(await self._send_rows(name, "infer", block))["y"]

    async def recall(self: _Connection, name: str, X: TableLike) -> Array:
        """Predict rows of the whole past by a mixture, instead of the next row.

        Parameters
        ----------
        name : str
            Name of the learner.
        X : array-like of shape (n, d), frame, or sequence of dicts

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        block = self._features(X, "recall")
        response = await self._send_rows(name, "infer", block, outputs=("recall",))
        return _decode_tensors(response)["recall"]

    async def predict_proba(self: _Connection, name: str, X: TableLike) -> tuple[Array, Array]:
        """Predict probabilities of the classes of a classifier.

        Parameters
        ----------
        name : str
            Name of the learner.
        X : array-like of shape (n, d), frame, or sequence of dicts

        Returns
        -------
        probabilities : ndarray of shape (n, c)
        classes : ndarray of shape (c,)
            The class of each column.

        Raises
        ------
        ServiceError
            If the service refuses the request, or does not respond in time.
        """
        block = self._features(X, "predict_proba")
        arrays = _decode_tensors(await self._send_rows(name, "infer", block, outputs=_SHARES))
        return arrays["probabilities"], arrays["classes"]

    async def learn(
        self: _Connection,
        name: str,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        key: str | None = None,
    ) -> LearnResult:
        """Learn rows; they are on the service's disk when the method returns.

        Parameters
        ----------
        name : str
            Name of the learner.
        X, y, sample_weight, time
            As for ``op.durable``'s ``learn``.
        key : str, optional
            Idempotency key of printable ASCII; by default a random key.

        Returns
        -------
        result : LearnResult

        Raises
        ------
        ParameterError
            If the key cannot be sent in a header.
        ServiceError
            If the service rejects the request or does not respond in time. Without a response it is
            unknown whether the rows were learned: repeat the call with the same ``key``.
        """
        where = f"{type(self).__name__}.learn"
        return await self._learn(name, X, y, sample_weight, time, where=where, key=key)

    async def predict_pending(
        self: _Connection, name: str, X: TableLike, *, seconds: float = 86400.0
    ) -> tuple[Array, list[str]]:
        """Predict rows whose labels arrive later.

        Parameters
        ----------
        name : str
            Name of the learner.
        X : array-like of shape (n, d), frame, or sequence of dicts
        seconds : float, default 86400
            How long the service stores the rows.

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)
        ids : list of str
            Ids of the rows, for ``learn_labels``.

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        block = self._features(X, "predict_pending")
        response = await self._send_rows(
            name, "infer", block, repeatable=False, await_label=True, seconds=seconds
        )
        arrays = _decode_tensors(response)
        return arrays["y"], arrays["id"].tolist()

    async def learn_labels(
        self: _Connection,
        name: str,
        ids: Sequence[str],
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> LearnResult:
        """Learn rows of ``predict_pending`` from their labels; each row is learned once.

        Parameters
        ----------
        name : str
            Name of the learner.
        ids : sequence of str
            Ids of the rows.
        y, sample_weight, time
            As for ``op.durable``'s ``learn_labels``.

        Returns
        -------
        result : LearnResult

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        rows = Table({"id": np.array(list(ids), dtype=object)}, len(ids))
        with calling(f"{type(self).__name__}.learn_labels"):
            block = read_rows(rows, y, sample_weight, time)
        return _learn_result(await self._send_rows(name, "labels", block))

    async def models(self: _Connection) -> list[dict[str, Any]]:
        """List the learners of the service.

        Returns
        -------
        models : list of dict
            Name, version and state of each learner.
        """
        return list(_json(await self._send("GET", "/v2/repository/index")))

    async def create(
        self: _Connection,
        name: str,
        model: str | Learner | Pipeline,
        task: str = "regression",
        settings: Mapping[str, object] | None = None,
    ) -> int:
        """Serve a new learner, and return its version.

        Parameters
        ----------
        name : str
            Name of the learner.
        model : str, learner or Pipeline
            Name of a preset, such as "rls", or a learner or Pipeline, which is sent as a model file
            with its learned state.
        task : {"regression", "classification"}, default "regression"
            Task of a preset.
        settings : mapping of str to value, optional
            Parameters of a preset, such as ``{"rls__forgetting": 0.99}``.

        Returns
        -------
        version : int

        Raises
        ------
        ParameterError
            If ``settings`` are passed with a learner or Pipeline.
        TypeMismatchError, CheckpointError
            If ``model`` cannot be saved as a learner.
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        where = f"{type(self).__name__}.create"
        if isinstance(model, str):
            specification = {"model": model, "task": task, "settings": dict(settings or {})}
            content: dict[str, Any] = {"json": specification}
        elif settings:
            raise ParameterError(
                "`settings` must be passed with the name of a model, got them with "
                f"{type(model).__name__}. Set the parameters of the {type(model).__name__}.",
                where,
            )
        else:
            with calling(where):
                data = dumps(copied_learner(model), where)
            content = {"content": data, "headers": {"Content-Type": "application/x-onepass"}}
        response = await self._send("PUT", _path(name), repeatable=False, **content)
        return int(_json(response)["version"])

    async def model(
        self: _Connection,
        name: str,
        *,
        version: int | None = None,
        replacements: Mapping[str, object] | None = None,
    ) -> Learner | Pipeline:
        """Download a learner, which can predict, learn and be saved here.

        Parameters
        ----------
        name : str
            Name of the learner.
        version : int, optional
            Version since the oldest snapshot; by default the current one.
        replacements : mapping of str to object, optional
            Functions that a file cannot store, as for ``op.load``.

        Returns
        -------
        model : learner or Pipeline

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        CheckpointError
            If a newer version of onepass wrote the file.
        """
        path = _path(name, "file" if version is None else f"versions/{version}/file")
        response = await self._send("GET", path)
        contents = archive.loads(response.content, path)
        model: Learner | Pipeline = from_contents(contents, path, replacements or {})
        return model

    async def retire(self: _Connection, name: str) -> None:
        """Stop serving a learner.

        Parameters
        ----------
        name : str
            Name of the learner.

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        await self._send("DELETE", _path(name), repeatable=False)

    async def snapshot(self: _Connection, name: str) -> int:
        """Take a snapshot of a learner.

        Parameters
        ----------
        name : str
            Name of the learner.

        Returns
        -------
        version : int
            Version of the snapshot.

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        return int(_json(await self._send("POST", _path(name, "snapshot")))["version"])

    async def rollback(self: _Connection, name: str, *, to: int) -> int:
        """Restore an earlier version of a learner.

        Parameters
        ----------
        name : str
            Name of the learner.
        to : int
            Version to restore.

        Returns
        -------
        version : int
            New version, with the restored state.

        Raises
        ------
        ServiceError
            If the service rejects the request, or does not respond in time.
        """
        path = _path(name, "rollback")
        response = await self._send("POST", path, json={"to": to}, repeatable=False)
        return int(_json(response)["version"])

    async def learn_each(
        self, name: str, rows: Iterable[Sequence[TableLike | None]]
    ) -> AsyncIterator[LearnResult]:
        """Learn rows in order, one request per tuple.

        Parameters
        ----------
        name : str
            Name of the learner.
        rows : iterable of tuple
            As for ``Client.learn_each``.

        Yields
        ------
        result : LearnResult
            Result of each request, in order, when its rows are on the service's disk.

        Raises
        ------
        ServiceError
            If the service rejects a request, or does not respond in time. The rows of earlier
            requests are learned.
        """
        where = f"{type(self).__name__}.learn_each"
        for row in rows:
            yield await self._learn(name, *row, where=where)

    async def close(self) -> None:
        """Close the connections; a later request opens new connections."""
        http, self._http = self._http, self._open()
        await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _blocking(
    method: Callable[Concatenate[_Connection, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the method of ``Client`` that runs a method of ``AsyncClient``."""

    @wraps(method)
    def run(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _result(method(client, *args, **kwargs))

    run.__qualname__ = f"Client.{method.__name__}"
    return run


def _result(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("unreachable")


class Client(_Connection):
    """Client of one service; thread-safe.

    Create a new client after a fork: a child process would share the connections of its parent.

    Parameters
    ----------
    url : str
        URL such as ``"http://127.0.0.1:8080"``; its path is prepended to all paths. The proxies in
        the environment are not used.
    token : str, optional
        Bearer token, sent with each request as ``Authorization: Bearer TOKEN``.
    timeout : float, default 30
        Timeout of one attempt, in seconds.
    retry_timeout : float, default 60
        Seconds during which a request is retried.
    context : ssl.SSLContext, optional
        TLS context, to trust other certificates than the system does, such as
        ``ssl.create_default_context(cafile=FILE)``.

    Raises
    ------
    ParameterError
        If the URL is not an HTTP URL, or the token cannot be sent in a header.
    MissingExtraError
        If httpx is not installed.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8080", token="not a real one")
    >>> client
    <Client of http://127.0.0.1:8080>
    """

    _asynchronous = False

    predict = _blocking(AsyncClient.predict)
    recall = _blocking(AsyncClient.recall)
    predict_proba = _blocking(AsyncClient.predict_proba)
    learn = _blocking(AsyncClient.learn)
    predict_pending = _blocking(AsyncClient.predict_pending)
    learn_labels = _blocking(AsyncClient.learn_labels)
    models = _blocking(AsyncClient.models)
    create = _blocking(AsyncClient.create)
    model = _blocking(AsyncClient.model)
    retire = _blocking(AsyncClient.retire)
    snapshot = _blocking(AsyncClient.snapshot)
    rollback = _blocking(AsyncClient.rollback)

    def learn_each(
        self, name: str, rows: Iterable[Sequence[TableLike | None]]
    ) -> Iterator[LearnResult]:
        """Learn rows in order, one request per tuple; ``learn`` with blocks of rows is much faster.

        Each request is sent when its result is iterated over.

        Parameters
        ----------
        name : str
            Name of the learner.
        rows : iterable of tuple
            The rows of each request: X and y, and optionally sample_weight and time, as for
            ``learn``. May be an infinite generator.

        Yields
        ------
        result : LearnResult
            Result of each request, in order, when its rows are on the service's disk.

        Raises
        ------
        ServiceError
            If the service rejects a request, or does not respond in time. The rows of earlier
            requests are learned.
        """
        where = f"{type(self).__name__}.learn_each"
        return (_result(self._learn(name, *row, where=where)) for row in rows)

    def close(self) -> None:
        """Close the connections; a later request opens new connections."""
        http, self._http = self._http, self._open()
        http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
