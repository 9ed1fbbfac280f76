"""Verbs: predict, learn, ask and answer, in the formats of :mod:`onepass.service.protocol`."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from onepass.errors import ParameterError
from onepass.service.charge import said_of
from onepass.service.protocol.limits import Limits
from onepass.service.protocol.rows import ANSWERS, ROLES, Asked, Output
from onepass.service.requests import Receipt
from onepass.service.served import Served
from onepass.service.shelf import Shelf
from onepass.service.web.auth import LEARN, Tokens
from onepass.service.web.exchange import Answer, Asking
from onepass.service.web.formats import Format, format_of
from onepass.service.web.mail import Mail
from onepass.service.web.parameters import asks
from onepass.service.web.refusals import OfRows
from onepass.service.web.threads import Threads
from onepass.validation.arrays import bounded
from onepass.validation.table import Table

__all__ = ["Verbs"]

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

    def infer(self, asking: Asking, name: str, version: str | None = None) -> Any:
        """``POST /v2/models/NAME/infer``: answered at once, unless there is much to do."""
        return self._predicted(asking, self._shelf[name], format_of(asking), version)

    def invocations(self, asking: Asking) -> Any:
        """``POST /invocations``: MLflow's convention."""
        return self._predicted(asking, self._shelf[self._only()], format_of(asking, scoring=True))

    def learn(self, asking: Asking, name: str) -> Any:
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
    ) -> Any:
        """Predict now, or return an awaitable if ids are requested or it takes long."""
        began = time.perf_counter()

        def read(body: bytes) -> Any:
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

    async def _apart(self, asking: Asking, served: Served, work: Callable[[bytes], Any]) -> Answer:
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


def _put(served: Served, asked: Asked, body: bytes, key: str | None, done: Any) -> None:
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


def _answers(learner: Any, asked: Asked) -> dict[str, Any]:
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


def _features(learner: Any, X: Any) -> Any:
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
