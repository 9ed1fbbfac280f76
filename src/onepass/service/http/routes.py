"""Handlers of the HTTP routes: predict, learn, delayed labels, administration and metadata.

Requests and responses are in the formats of :mod:`onepass.service.protocol`.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from sklearn.base import is_classifier

from onepass.errors import ParameterError, UnknownError
from onepass.features.presets import pipelines
from onepass.serialization import archive
from onepass.serialization.models import given_back
from onepass.service import page
from onepass.service.http.auth import LEARN, Tokens
from onepass.service.http.exchange import Answer, Asking, Mail, OfRows, Threads
from onepass.service.http.openapi import described
from onepass.service.http.status import exposition, onepass_version, pathless, state
from onepass.service.protocol import arrow, mlflow, v2
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.rows import ANSWERS, ROLES, Asked, Output, Reply
from onepass.service.protocol.v2 import model
from onepass.service.registry import Served, Shelf, hold_learnable
from onepass.service.requests import Receipt, Request
from onepass.service.writer import said_of
from onepass.types import Array
from onepass.validation.arrays import bounded
from onepass.validation.table import Table

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["About", "Admin", "Format", "Verbs", "asks", "format_of", "of_model"]


_HEADER = b"inference-header-content-length"
_LONGEST = 128  # of a content type that is told from others
_STREAM = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Format:
    """How bytes are read, and answers written.

    Parameters
    ----------
    reader : callable
        Of a body, limits, and whether it is to be learned.
    writer : callable
        Of what was asked, and of answers by their names.
    tells_ids : bool, default True
        Whether ids have a place in its answers.
    tells_size : bool, default True
        Whether a short body holds few rows: within a packed one there may be any number.
    """

    reader: Callable[..., Asked]
    writer: Callable[..., Reply]
    tells_ids: bool = True
    tells_size: bool = True

    def read(self, body: bytes, limits: Limits, *, learning: bool) -> Asked:
        """What a body asks.

        Raises
        ------
        RequestError
        """
        return self.reader(body, limits, learning=learning)

    def answer(
        self,
        name: str,
        version: int,
        asked: Asked,
        found: Mapping[str, Array],
        *,
        again: bool = False,
    ) -> Answer:
        """Answers as they go back.

        Parameters
        ----------
        name, version : str and int
            Of the learner that answers.
        asked : Asked
        found : mapping of str to ndarray
        again : bool, default False
            Whether the rows had been learned before: the header ``Idempotent-Replayed`` says so.
        """
        reply = self.writer(asked, found, model=name, version=str(version))
        headers = {"X-Onepass-Version": str(version)}
        if reply.headers is not None:
            headers.update(reply.headers)
        if again:
            headers["Idempotent-Replayed"] = "true"
        return Answer(reply.body, reply.kind, headers=headers)


def format_of(asking: Asking, *, scoring: bool = False) -> Format:
    """The format that a request's headers name.

    Parameters
    ----------
    asking : Asking
        Whatever its content type, a body that is no Arrow stream is one of the protocol's: many who
        ask do not say.
    scoring : bool, default False
        Whether it is MLflow's ``/invocations``.
    """
    form = _named((asking.header(b"content-type") or "")[:_LONGEST], scoring)
    header = asking.header(_HEADER) if form is _TENSORS else None
    return form if header is None else Format(partial(v2.read, header=header), v2.write)


@lru_cache(maxsize=64)
def _named(said: str, scoring: bool) -> Format:  # noqa: FBT001
    """The format of a content type."""
    kind = said.partition(";")[0].strip().lower()
    if kind == _STREAM:
        return _ARROW
    if scoring:
        return _CSV if kind == "text/csv" else _MLFLOW
    return _TENSORS


def _scored(asked: Asked, found: Mapping[str, Array], *, model: str, version: str) -> Reply:
    """MLflow's answer, which says nothing else."""
    del asked, model, version
    return mlflow.write(found)


_TENSORS = Format(v2.read, v2.write)
_ARROW = Format(arrow.read, arrow.write, tells_size=False)
_CSV = Format(mlflow.read_csv, _scored, tells_ids=False)
_MLFLOW = Format(mlflow.read, _scored, tells_ids=False)


def asks(parameters: Mapping[str, object] | None, *, may: bool) -> bool:
    """Whether ids are asked for, by which answers come later.

    Parameters
    ----------
    parameters : mapping of str to object, or None
        As they came; those of other names are other servers'.
    may : bool
        Whether that can be asked for here.

    Raises
    ------
    ParameterError
        If it can not, or is neither true nor false; or if ``seconds`` stands there without it. To
        pass them over would be to lose rows that somebody means to answer.
    """
    if not parameters:
        return False
    wanted = parameters.get("ask", False)
    if not isinstance(wanted, bool):
        raise ParameterError(
            f"the parameter 'ask' must be true or false, got {wanted!r:.40}. Give one of them."
        )
    if wanted and not may:
        raise ParameterError(
            "the parameter 'ask' must come with infer, got true elsewhere. Send the rows to "
            "/v2/models/NAME/infer, and their answers, by the ids that it gives, to answers."
        )
    if "seconds" in parameters and not wanted:
        raise ParameterError(
            "the parameter 'seconds' must come with 'ask', got it alone. Send \"ask\": true to "
            "infer too, or leave it out."
        )
    return wanted


_LARGE = 1 << 16  # bytes; more are left to another thread, so that others need not wait
_QUICK = 2e-3  # seconds that a prediction may take in the event loop
_ROWS = 8  # the overhead of a request in rows: as long as the prediction of about so many
_DAY = 86400.0


class Verbs:
    """What whoever predicts and learns may ask for.

    Parameters
    ----------
    shelf : Shelf
    limits : Limits
        Of one request.
    first : str, optional
        The learner that answers ``/invocations``; by default the only one.
    threads : Threads
    tokens : Tokens
    """

    def __init__(
        self, shelf: Shelf, limits: Limits, first: str | None, threads: Threads, tokens: Tokens
    ) -> None:
        self._shelf, self._limits, self._first = shelf, limits, first
        self._threads, self._tokens = threads, tokens
        self._mail: Mail | None = None

    def infer(
        self, asking: Asking, name: str, version: str | None = None
    ) -> Answer | Awaitable[Answer]:
        """``POST /v2/models/NAME/infer``: answered at once, unless there is much to do."""
        return self._predicted(asking, self._shelf[name], format_of(asking), version)

    def invocations(self, asking: Asking) -> Answer | Awaitable[Answer]:
        """``POST /invocations``: MLflow's convention."""
        return self._predicted(asking, self._shelf[self._only()], format_of(asking, scoring=True))

    def learn(self, asking: Asking, name: str) -> Answer | Awaitable[Answer]:
        """``POST /v2/models/NAME/learn``: answered when the rows are on the disk."""
        served, form, began = self._shelf[name], format_of(asking), time.perf_counter()
        key = asking.header(b"idempotency-key")
        if self._mail is None:
            self._mail = Mail(self._threads.patience)
        if not _small(asking, form):
            return self._learned_apart(self._mail, served, form, asking, key, began)
        asked = form.read(asking.body, self._limits, learning=True)
        if not len(asked.X):
            return _nothing(served, form, asked)

        def answer(receipt: Receipt) -> Answer:
            served.gauges.answered(time.perf_counter() - began)
            return _received(form, name, asked, receipt)

        letter = self._mail.expect(name, answer)
        try:
            _put(served, asked, asking.body, key, letter.decided)
        except BaseException:
            self._mail.withdraw(letter)
            raise
        self._mail.sent(served)
        return letter

    async def answers(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/answers``: answers to rows that were asked, by their ids."""
        served, form = self._shelf[name], format_of(asking)
        _, asked = await self._read(asking, form, name)
        ids = _ids(asked)
        work = served.admitted(
            len(ids), lambda: served.answer(ids, asked.y, asked.sample_weight, time=asked.time)
        )
        with OfRows(name):
            receipt = await self._threads.disk(work, name)
        return await self._threads.compute(lambda: _received(form, name, asked, receipt), name)

    # -- what stands behind them ---------------------------------------------------------------

    def _predicted(
        self, asking: Asking, served: Served, form: Format, version: str | None = None
    ) -> Answer | Awaitable[Answer]:
        """Predict now, or return an awaitable if ids are requested or it takes long."""
        began = time.perf_counter()

        def read(body: bytes) -> Answer | Awaitable[Answer]:
            asked = form.read(body, self._limits, learning=False)
            now, learner = served.answering(version)
            asked.X = _features(learner, asked.X)
            if asks(asked.parameters, may=form.tells_ids):
                self._tokens.hold(asking, LEARN, "infer with 'ask', which stores rows")
                return self._ask(served, form, asked, began)
            rows = len(asked.X)

            def predicted() -> Answer:
                start = time.thread_time()
                with OfRows(served.name), bounded(served.durable.most_features):
                    answers = _answers(learner, asked)
                answer = form.answer(served.name, now, asked, answers)
                pace = (time.thread_time() - start) / (rows + _ROWS)
                served.pace = max(pace, served.pace / 2)
                served.gauges.predicted(rows, time.perf_counter() - began)
                return answer

            slow = served.pace * (rows + _ROWS) > _QUICK
            return self._threads.compute(predicted, served.name) if slow else predicted()

        return read(asking.body) if _small(asking, form) else self._apart(asking, served, read)

    async def _learned_apart(
        self,
        mail: Mail,
        served: Served,
        form: Format,
        asking: Asking,
        key: str | None,
        began: float,
    ) -> Answer:
        """Rows of a large body are read, and their answers written, by a thread."""
        name, compute = served.name, self._threads.compute
        body, asked = await self._read(asking, form, name)
        if not len(asked.X):
            return _nothing(served, form, asked)
        letter = mail.expect(name, lambda receipt: receipt)
        try:
            await compute(lambda: _put(served, asked, body, key, letter.decided), name)
        except BaseException:
            mail.withdraw(letter)
            raise
        mail.sent(served)
        receipt = await letter
        served.gauges.answered(time.perf_counter() - began)
        return await compute(lambda: _received(form, name, asked, receipt), name)

    async def _ask(self, served: Served, form: Format, asked: Asked, began: float) -> Answer:
        seconds = (asked.parameters or {}).get("seconds", _DAY)
        work = served.admitted(len(asked.X), lambda: served.ask(asked.X, seconds))
        with OfRows(served.name):
            version, said, ids = await self._threads.disk(work, served.name)
        served.gauges.predicted(len(ids), time.perf_counter() - began)
        found = {"y": said, "id": np.array(ids, dtype=object)}
        wanted = [each for each in asked.outputs if each.name == "y"] or ANSWERS
        asked.outputs = (*wanted, Output("id", wanted[0].binary))
        return await self._threads.compute(
            lambda: form.answer(served.name, version, asked, found), served.name
        )

    async def _read(self, asking: Asking, form: Format, name: str) -> tuple[bytes, Asked]:
        """The unpacked body, and the rows in it."""
        body = await self._unpacked(asking, name)
        return body, await self._threads.compute(
            lambda: form.read(body, self._limits, learning=True), name
        )

    async def _apart(
        self, asking: Asking, served: Served, work: Callable[[bytes], Answer | Awaitable[Answer]]
    ) -> Answer:
        """Read a large body in a thread, and return the answer."""
        body = await self._unpacked(asking, served.name)
        found = await self._threads.compute(lambda: work(body), served.name)
        return found if isinstance(found, Answer) else await found

    async def _unpacked(self, asking: Asking, name: str) -> bytes:
        if asking.packed:
            body = await self._threads.compute(asking.unpacked, name)
            asking.take(len(body))
            return body
        return asking.body

    def _only(self) -> str:
        if self._first is not None:
            return self._first
        names = self._shelf.names
        if len(names) != 1:
            raise ParameterError(
                f"/invocations needs one learner to ask, got {len(names)}. Start the service with "
                "--first NAME, or ask /v2/models/NAME/infer."
            )
        return names[0]


def _small(asking: Asking, form: Format) -> bool:
    """Whether it takes less time than to hand it to a thread, so that others need not wait."""
    return len(asking.body) < _LARGE and not asking.packed and form.tells_size


def _put(
    served: Served, asked: Asked, body: bytes, key: str | None, done: Callable[[Request], None]
) -> None:
    """Have rows learned."""
    _hold_answers(asked)
    former = b"" if key is None else hashlib.sha256(body).digest()
    rows = {"X": asked.X, "y": asked.y, "sample_weight": asked.sample_weight, "time": asked.time}
    with OfRows(served.name):
        served.learn(rows, done, key=key, former=former)


def _nothing(served: Served, form: Format, asked: Asked) -> Answer:
    """No rows are learned as nothing."""
    _hold_answers(asked)
    return _received(form, served.name, asked, Receipt(served.durable.version, np.empty(0)))


def _hold_answers(asked: Asked) -> None:
    asks(asked.parameters, may=False)
    if asked.y is None:
        raise ParameterError(
            "what is to be learned must come with 'y', an answer for each row, got none. Send it; "
            "where answers come later, ask infer with the parameter 'ask' before."
        )


def _received(form: Format, name: str, asked: Asked, receipt: Receipt) -> Answer:
    """What was said of rows before they were learned."""
    if asked.outputs is not ANSWERS:
        asked.outputs = tuple(each for each in asked.outputs if each.name == "y") or ANSWERS
    return form.answer(name, receipt.version, asked, {"y": receipt.said}, again=receipt.again)


def _answers(learner: "Learner | Pipeline", asked: Asked) -> dict[str, Array]:
    """What was asked for: answers, and probabilities where they are named."""
    if asked.outputs is ANSWERS or [each.name for each in asked.outputs] == ["y"]:
        return {"y": said_of(learner, asked.X)}
    if not hasattr(learner, "predict_proba"):
        raise ParameterError(
            f"`outputs` may name 'probabilities' and 'classes' of learners that have them, got "
            f"{type(learner).__name__}. Ask for 'y'."
        )
    return {
        "y": said_of(learner, asked.X),
        "probabilities": learner.predict_proba(asked.X),
        "classes": learner.classes_,
    }


def _features(learner: "Learner | Pipeline", X: Array | Table) -> Array | Table:
    """Rows without y, sample_weight and time, unless the learner has features of these names."""
    known: Any = getattr(learner, "kinds_", None) or getattr(learner, "feature_names_in_", ())
    if not isinstance(X, Table) or set(ROLES).isdisjoint(X.columns):
        return X
    kept = {name: X[name] for name in X.names if name not in ROLES or name in known}
    return Table(kept, len(X)) if kept else X


def _ids(asked: Asked) -> list[str]:
    columns = getattr(asked.X, "columns", {})
    if list(columns) != ["id"]:
        raise ParameterError(
            "answers must come as two tensors, 'id' and 'y', got others. Give the ids that infer "
            "gave with the parameter 'ask'."
        )
    _hold_answers(asked)
    return columns["id"].tolist()  # type: ignore[no-any-return]  # whatever they are, they are told


_MODEL = "application/x-onepass"
_FILE = "the model file"


class _Making(msgspec.Struct, forbid_unknown_fields=True):
    """How a learner is described in JSON."""

    model: str
    task: str = "regression"
    settings: dict[str, Any] = {}


class _Going(msgspec.Struct, forbid_unknown_fields=True):
    """To which version to go back."""

    to: int


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Admin:
    """The verbs of whoever administers.

    Parameters
    ----------
    shelf : Shelf
    threads : Threads
    """

    def __init__(self, shelf: Shelf, threads: Threads) -> None:
        self._shelf, self._threads = shelf, threads

    async def create(self, asking: Asking, name: str) -> Answer:
        """``PUT /v2/models/NAME``: a model file, or a model by its name and parameters."""
        kind = (asking.header(b"content-type") or "").partition(";")[0].strip().lower()

        def made() -> int:
            whole = asking.unpacked()
            file = kind == _MODEL or (kind != "application/json" and not whole.startswith(b"{"))
            if file:
                model = _loaded(whole)
            else:
                said = _decoded(whole, _Making)
                model = pipelines([said.model], said.task, said.settings)[said.model]
                hold_learnable(model)
            return self._shelf.create(name, model).durable.version

        return _json({"name": name, "version": await self._threads.change(made)}, status=201)

    async def load(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/repository/models/NAME/load``: reopen a learner that failed."""
        del asking
        served = await self._threads.change(lambda: self._shelf.load(name))
        return _json({"name": name, "version": served.durable.version})

    async def retire(self, asking: Asking, name: str) -> Answer:
        """``DELETE /v2/models/NAME``: it is served no longer; its file is kept."""
        del asking
        kept = await self._threads.change(lambda: self._shelf.retire(name))
        return _json({"name": name, "kept": kept.name})

    async def snapshot(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/snapshot``."""
        del asking
        version = await self._threads.change(self._shelf[name].durable.snapshot)
        return _json({"name": name, "version": version})

    async def rollback(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/rollback`` with ``{"to": VERSION}``."""
        durable = self._shelf[name].durable

        def gone_back() -> int:
            return durable.rollback(to=_decoded(asking.unpacked(), _Going).to)

        return _json({"name": name, "version": await self._threads.change(gone_back)})


def _decoded(body: bytes, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        fields = ", ".join(map(repr, kind.__struct_fields__))
        came = f"what is none: {wrong}" if body else "nothing"
        raise ParameterError(
            f"the body must be an object of JSON with {fields}, got {came}. See /openapi.json."
        ) from wrong


def _loaded(body: bytes) -> Any:
    return given_back(archive.unpacked(body, _FILE), _FILE, {})


def _json(said: dict[str, object], status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(said), status=status)


_ANSWERS = {"i": "INT64", "u": "UINT64", "b": "BOOL", "f": "FP64"}


def of_model(name: str, version: int, learner: "Learner | Pipeline") -> Reply:
    """A learner's metadata.

    Parameters
    ----------
    name : str
    version : int
        The present one, which is the only one that answers.
    learner : learner or Pipeline
    """
    final = getattr(learner, "learner", learner)
    classes = getattr(final, "classes_", None)
    kind = "f" if classes is None else classes.dtype.kind
    return model(
        name,
        versions=[str(version)],
        learner=type(learner).__name__,
        features=_feature_kinds(learner),
        answers=_ANSWERS.get(kind, "BYTES"),
        outputs=int(getattr(final, "n_outputs_", 1)) if classes is None else 1,
        classes=(0 if classes is None else len(classes)) if is_classifier(final) else None,
        probabilities=hasattr(learner, "predict_proba"),
    )


def _feature_kinds(learner: "Learner | Pipeline") -> Any:
    """Columns by their names and kinds, or how many there are; None before any was seen."""
    kinds = getattr(learner, "kinds_", None)
    if kinds:
        return kinds
    names = getattr(learner, "feature_names_in_", None)
    if names is not None:
        return {str(each): "number" for each in names}
    try:
        return int(learner.n_features_in_)
    except AttributeError:
        return None


class About:
    """What may be read.

    Parameters
    ----------
    shelf : Shelf
    threads : Threads
    statuses : mapping of int to int
        How many requests were answered with each.
    """

    def __init__(self, shelf: Shelf, threads: Threads, statuses: Mapping[int, int]) -> None:
        self._shelf, self._threads, self._statuses = shelf, threads, statuses

    async def live(self, asking: Asking) -> Answer:
        """``GET /v2/health/live``: it answers."""
        del asking
        return Answer(b'{"live":true}')

    async def ready(self, asking: Asking) -> Answer:
        """``GET /v2/health/ready``: whether a learner can learn, or none exists."""
        del asking
        names = self._shelf.names
        if names and not any(served.ready for served in self._shelf):
            self._shelf[names[0]].hold_ready()  # raises
        return Answer(b'{"ready":true}')

    async def version(self, asking: Asking) -> Answer:
        """``GET /version``, as MLflow asks for it."""
        del asking
        return Answer(onepass_version().encode(), "text/plain; charset=utf-8")

    async def server(self, asking: Asking) -> Answer:
        """``GET /v2``."""
        del asking
        return _sent(v2.server(onepass_version()))

    async def model(self, asking: Asking, name: str, version: str | None = None) -> Answer:
        """``GET /v2/models/NAME``."""
        del asking
        served = self._shelf[name]
        now, learner = served.answering(version)
        return _sent(of_model(name, now, learner))

    async def model_ready(self, asking: Asking, name: str, version: str | None = None) -> Answer:
        """``GET /v2/models/NAME/ready``."""
        del asking
        served = self._shelf[name]
        served.answering(version)
        served.hold_ready()
        return Answer(msgspec.json.encode({"name": name, "ready": True}))

    async def index(self, asking: Asking) -> Answer:
        """``/v2/repository/index``: which learners there are."""
        del asking
        folder = self._shelf.folder
        lines = [_line(served, folder) for served in self._shelf]
        lines += [
            {"name": name, "version": "", "state": "UNAVAILABLE",
             "reason": pathless(reason, folder)}
            for name, reason in self._shelf.failed.items()
        ]  # fmt: skip
        return Answer(msgspec.json.encode(lines))

    async def state(self, asking: Asking) -> Answer:
        """``GET /state``: what the page shows."""
        del asking
        found = await self._threads.look(lambda: state(self._shelf))
        return Answer(msgspec.json.encode(found), headers={"Cache-Control": "no-store"})

    async def metrics(self, asking: Asking) -> Answer:
        """``GET /metrics``, for Prometheus."""
        del asking
        statuses = dict(self._statuses)
        text = await self._threads.look(lambda: exposition(self._shelf, statuses))
        return Answer(text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, asking: Asking) -> Answer:
        """``GET /openapi.json``."""
        del asking
        return Answer(msgspec.json.encode(described(onepass_version())))

    async def page(self, asking: Asking, file: str = "index.html") -> Answer:
        """``GET /`` and what it needs."""
        found = page.file(file)
        if found is None:
            raise UnknownError(f"{asking.path[:200]}: there is no such file.")
        headers = {**page.HEADERS, "ETag": found.tag}
        if asking.header(b"if-none-match") == found.tag:
            return Answer(b"", found.kind, 304, headers)
        return Answer(found.body, found.kind, headers=headers)


def _sent(reply: Reply) -> Answer:
    return Answer(reply.body, reply.kind, headers=reply.headers or {})


def _line(served: Served, folder: Path) -> dict[str, str]:
    return {
        "name": served.name,
        "version": str(served.durable.published[0]),
        "state": "READY" if served.ready else "UNAVAILABLE",
        "reason": pathless(served.trouble or "", folder),
    }
