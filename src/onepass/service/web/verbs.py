"""Verbs: predict, learn, ask and answer, in the formats of :mod:`onepass.service.wire`."""

import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from onepass.errors import ParameterError
from onepass.service.charge import said_of
from onepass.service.requests import Receipt
from onepass.service.served import Served
from onepass.service.shelf import Shelf
from onepass.service.web.exchange import Answer, Asking
from onepass.service.web.formats import Format, format_of
from onepass.service.web.mail import Mail
from onepass.service.web.refusals import OfRows
from onepass.service.web.threads import Threads
from onepass.service.wire.limits import Limits
from onepass.service.wire.rows import Asked, Output

__all__ = ["Verbs"]

_T = TypeVar("_T")
_LARGE = 1 << 16  # bytes; more are left to another thread, so that others need not wait
_DAY = 86400.0
_Y = (Output("y"),)


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
    """

    def __init__(self, shelf: Shelf, limits: Limits, first: str | None, threads: Threads) -> None:
        self._shelf, self._limits, self._first = shelf, limits, first
        self._threads = threads
        self._mail: Mail | None = None

    async def infer(self, asking: Asking, name: str, version: str | None = None) -> Answer:
        """``POST /v2/models/NAME/infer``."""
        began = time.perf_counter()
        served = self._shelf[name]
        form = format_of(asking)
        body, asked = await self._read(asking, form, learning=False)
        if asked.parameters and _asks(asked):
            return await self._ask(served, form, asked)
        return await self._said(served, form, asked, len(body), began, version)

    async def learn(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/learn``: answered when the rows are on the disk."""
        began = time.perf_counter()
        served = self._shelf[name]
        form = format_of(asking)
        body, asked = await self._read(asking, form, learning=True)
        key = asking.header(b"idempotency-key")
        if self._mail is None:
            self._mail = Mail(self._threads.patience)
        future, done = self._mail.expect(name)
        rows = {
            "X": asked.X, "y": asked.y, "sample_weight": asked.sample_weight, "time": asked.time
        }  # fmt: skip

        def put() -> None:
            digest = None if key is None else hashlib.sha256(body).digest()
            served.learn(rows, done, key=key, digest=digest)

        with OfRows(name):
            await self._done(put, len(body))
            receipt = await future
        served.gauges.answered(time.perf_counter() - began)
        return await self._received(form, name, asked, receipt)

    async def answers(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/answers``: answers to rows that were asked, by their ids."""
        served = self._shelf[name]
        form = format_of(asking)
        _, asked = await self._read(asking, form, learning=True)
        ids = _ids(asked)
        work = served.admitted(
            len(ids), lambda: served.answer(ids, asked.y, asked.sample_weight, time=asked.time)
        )
        with OfRows(name):
            receipt = await self._threads.disk(work, name)
        return await self._received(form, name, asked, receipt)

    async def invocations(self, asking: Asking) -> Answer:
        """``POST /invocations``: MLflow's convention."""
        began = time.perf_counter()
        served = self._shelf[self._only()]
        form = format_of(asking, scoring=True)
        body, asked = await self._read(asking, form, learning=False)
        return await self._said(served, form, asked, len(body), began)

    # -- what stands behind them ---------------------------------------------------------------

    async def _read(self, asking: Asking, form: Format, *, learning: bool) -> tuple[bytes, Asked]:
        """The body, unpacked, and what it asks."""
        body = await asking.body()
        if asking.packed:
            packed = body
            body = await self._threads.compute(lambda: asking.unpacked(packed))
            asking.take(len(body))
        if len(body) < _LARGE:
            return body, form.read(body, self._limits, learning=learning)
        return body, await self._threads.compute(
            lambda: form.read(body, self._limits, learning=learning)
        )

    async def _said(
        self,
        served: Served,
        form: Format,
        asked: Asked,
        size: int,
        began: float,
        version: str | None = None,
    ) -> Answer:
        """Answers by the learner as it is now."""
        now, learner = served.answering(version)

        def answer() -> Answer:
            with OfRows(served.name):
                answers = _answers(learner, asked)
            return form.answer(served.name, now, asked, answers)

        found = answer() if size < _LARGE else await self._threads.compute(answer)
        served.gauges.predicted(len(asked.X), time.perf_counter() - began)
        return found

    async def _received(self, form: Format, name: str, asked: Asked, receipt: Receipt) -> Answer:
        """What was said of rows before they were learned."""
        asked.outputs = tuple(each for each in asked.outputs if each.name == "y") or _Y
        found = {"y": receipt.said}
        return await self._done(
            lambda: form.answer(name, receipt.version, asked, found, again=receipt.again),
            8 * receipt.said.size,
        )

    async def _ask(self, served: Served, form: Format, asked: Asked) -> Answer:
        seconds = asked.parameters.get("seconds", _DAY)
        work = served.admitted(len(asked.X), lambda: served.ask(asked.X, seconds))
        with OfRows(served.name):
            version, said, ids = await self._threads.disk(work, served.name)
        found = {"y": said, "id": np.array(ids, dtype=object)}
        wanted = [each for each in asked.outputs if each.name == "y"] or _Y
        asked.outputs = (*wanted, Output("id", wanted[0].binary))
        return await self._done(lambda: form.answer(served.name, version, asked, found), len(ids))

    async def _done(self, work: Callable[[], _T], size: int) -> _T:
        """Work done here, or by a thread where it is about many bytes."""
        return work() if size < _LARGE else await self._threads.compute(work)

    def _only(self) -> str:
        if self._first is not None:
            return self._first
        names = [served.name for served in self._shelf]
        if len(names) != 1:
            raise ParameterError(
                f"/invocations needs one learner to ask, got {len(names)}. Start the service with "
                "--first NAME, or ask /v2/models/NAME/infer."
            )
        return names[0]


def _answers(learner: Any, asked: Asked) -> dict[str, Any]:
    """What was asked for: answers, and probabilities where they are named."""
    if asked.outputs[0].name == "y" and len(asked.outputs) == 1:
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


def _asks(asked: Asked) -> bool:
    wanted = asked.parameters.get("ask", False)
    if not isinstance(wanted, bool):
        raise ParameterError(
            f"the parameter 'ask' must be true or false, got {wanted!r:.40}. Give one of them."
        )
    return wanted


def _ids(asked: Asked) -> list[str]:
    columns = getattr(asked.X, "columns", {})
    if list(columns) != ["id"]:
        raise ParameterError(
            "answers must come as two tensors, 'id' and 'y', got others. Give the ids that infer "
            "gave with the parameter 'ask'."
        )
    return columns["id"].tolist()  # type: ignore[no-any-return]  # whatever they are, they are told
