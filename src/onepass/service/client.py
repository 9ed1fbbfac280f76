"""Client: asks a service over HTTP, and asks again where that is safe.

Numbers go as binary tensors, to the last bit. What is to be learned goes with an idempotency key,
so that it is learned once however often it is sent: after a broken connection, a restart of the
service, or where it says that it is busy.
"""

import json
import secrets
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.message import Message
from typing import Any, Self
from urllib.parse import quote

import numpy as np

from onepass.errors import Array, ParameterError, TypeMismatchError
from onepass.service.asking import Asker
from onepass.service.blocks import Block
from onepass.service.charge import Charge
from onepass.service.intake import hold_answered, read_rows
from onepass.service.packing import read_tensors, tensors_of
from onepass.service.requests import Receipt
from onepass.service.words import hold_sendable
from onepass.validation.table import Table

__all__ = ["Client"]

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

    def predict(self, name: str, X: Any) -> Array:
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
        self, name: str, rows: Iterable[Sequence[Any]], *, ahead: int = 32
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

    def ask(self, name: str, X: Any, *, seconds: float = 86400.0) -> tuple[Array, list[str]]:
        """What a learner says of rows whose answers come later, and their ids."""
        block = read_rows(X, None, where="Client.ask")
        found, _ = self._infer(name, "infer", block, {}, {"ask": True, "seconds": seconds})
        return found["y"], found["id"].tolist()

    def answer(
        self, name: str, ids: Sequence[str], y: Any, sample_weight: Any = None, *, time: Any = None
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
        model: Any,
        task: str = "regression",
        settings: Mapping[str, Any] | None = None,
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
        parameters: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Array], Message]:
        path = f"/v2/models/{quote(name, safe='')}/{verb}"
        data, told = self._asker.ask("POST", path, *_sent(block, headers, parameters))
        return read_tensors(data, told.get(_HEADER)), told

    def _json(self, method: str, path: str, body: Any = None, *, again: bool = True) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"}
        found, _ = self._asker.ask(method, path, data, sent, again=again)
        return json.loads(found)


def _sent(
    block: Block, headers: Mapping[str, str], parameters: Mapping[str, Any] | None = None
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
