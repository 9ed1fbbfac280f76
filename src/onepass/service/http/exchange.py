"""Requests and responses, the threads that handle them, and errors as responses.

Errors of onepass are returned with their message. Messages about a learner's file omit its folder;
the log has the full path. A ValueError or TypeError of scikit-learn, NumPy or a user's feature is
an error of the request if it is raised while rows are read, predicted or learned. Any other
exception is a server error: the response has a number, under which the log has the traceback.

Waiting for the disk, computing, reading status and administration have separate thread pools, so
that large predictions are answered while many rows wait to be learned. One learner never occupies
all threads of a pool.
"""

import asyncio
import logging
import os
import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, final

from numpy.linalg import LinAlgError

from onepass.errors import (
    BusyError,
    CheckpointError,
    ForbiddenError,
    KeyReusedError,
    LongError,
    MethodError,
    MissingExtraError,
    OnepassError,
    ParameterError,
    PendingError,
    RequestError,
    SourceError,
    StoreError,
    TakenError,
    UnauthorizedError,
    UnknownError,
)
from onepass.service.http.status import pathless
from onepass.service.protocol.v2 import failed
from onepass.service.registry import Served
from onepass.service.requests import Receipt, Request

__all__ = [
    "Answer",
    "Asking",
    "Failure",
    "Failures",
    "Letter",
    "Mail",
    "OfRows",
    "Room",
    "Threads",
    "pending",
]


_LOG = logging.getLogger("onepass.service")
_MOST = 4000  # characters of a message
_SELDOM = 60.0  # seconds after which the log is told the same again


@dataclass(frozen=True)
class Failure:
    """Status, message and headers of an answer."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)


_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (UnknownError, 404),
    (MethodError, 405),
    (KeyReusedError, 409),
    (TakenError, 409),
    (LongError, 413),
    (BusyError, 429),
    (MissingExtraError, 501),
    (PendingError, 503),
    (StoreError, 503),
    (OnepassError, 400),
)
_OF_FILES = (StoreError, CheckpointError, SourceError)


class Failures:
    """What is said of failures, and to whom.

    Parameters
    ----------
    folder : Path
        Of the learners' files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged: tuple[str, float] = ("", 0.0)

    def told(self, wrong: BaseException) -> Failure:
        """The answer to whoever asked for what has raised this.

        Parameters
        ----------
        wrong : exception
        """
        found = next((status for kind, status in _STATUS if isinstance(wrong, kind)), 500)
        if found == 500:
            number = secrets.token_hex(8)
            _LOG.error("failure", exc_info=wrong, extra={"told": {"number": number}})
            return Failure(500, f"the server has failed; its log tells why, under {number}.")
        text = str(wrong)
        if isinstance(wrong, StoreError):
            found = 507 if wrong.full else 503
            self._log(text)
        if isinstance(wrong, _OF_FILES):
            text = pathless(text, self._folder)
        return Failure(found, text[:_MOST], _headers(wrong))

    def _log(self, text: str) -> None:
        """Log what is wrong with a file: the same once a minute, for it comes with each request."""
        last, at = self._logged
        if text != last or time.monotonic() - at > _SELDOM:
            self._logged = text, time.monotonic()
            _LOG.error("a learner's file", extra={"told": {"trouble": text}})


def _headers(wrong: BaseException) -> dict[str, str]:
    if isinstance(wrong, UnauthorizedError):
        return {"WWW-Authenticate": 'Bearer realm="onepass"'}
    if isinstance(wrong, MethodError):
        return {"Allow": wrong.allowed}
    if isinstance(wrong, (BusyError, PendingError)):
        return {"Retry-After": str(max(1, round(wrong.seconds)))}
    return {}


_JSON = "application/json"
_UNCHANGED = 304  # it has no body, and says nothing of one
_LITTLE = 1 << 16  # bytes of a body for which there is room in any case
_NOTHING: Mapping[str, str] = {}


class Room:
    """Room for the bodies of all requests together, but for small ones.

    Parameters
    ----------
    nbytes : int
    """

    def __init__(self, nbytes: int) -> None:
        self._all = self._left = nbytes

    def take(self, nbytes: int) -> None:
        """Take some of it; it is given back by taking less than nothing.

        Raises
        ------
        BusyError
            If there is not so much.
        """
        if nbytes > self._left:
            raise BusyError(
                f"the bodies of all requests must have at most {self._all:,} bytes at a time, got "
                "more. Ask again in a second, with the same key.",
                1.0,
            )
        self._left -= nbytes


class Asking:
    """A request.

    Parameters
    ----------
    method, path : str
    headers : dict of bytes to bytes
        By their names in lower case.
    most : int
        Bytes of its body, as they come and unpacked.
    room : Room
        Of which a large body takes some, until it is ``done``.

    Attributes
    ----------
    body : bytes
        As it came; set once all of it is there.
    abreast : bool
        Whether it may be begun while others of its kind are under way on the same connection.
    """

    __slots__ = ("_headers", "_most", "_room", "_taken", "abreast", "body", "method", "path")

    def __init__(
        self, method: str, path: str, headers: dict[bytes, bytes], most: int, room: Room
    ) -> None:
        self.method, self.path = method, path
        self._headers, self._most = headers, most
        self._room, self._taken = room, 0
        self.body = b""
        self.abreast = False

    def header(self, name: bytes) -> str | None:
        """A header by its name in lower case; None if it is not there."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def take(self, nbytes: int) -> None:
        """Have so much room in all, if it is not little; see ``done``.

        Parameters
        ----------
        nbytes : int

        Raises
        ------
        LongError, BusyError
            If it is more than one request may have, or than all together.
        """
        self.hold_length(nbytes)
        if nbytes > _LITTLE and nbytes > self._taken:
            self._room.take(nbytes - self._taken)
            self._taken = nbytes

    def done(self) -> None:
        """Give back the room that it had."""
        if self._taken:
            self._room.take(-self._taken)
            self._taken = 0

    def hold_length(self, nbytes: int) -> None:
        """Refuse a body that is too long.

        Parameters
        ----------
        nbytes : int
            That have come, or that are told of.

        Raises
        ------
        LongError
        """
        if nbytes > self._most:
            raise LongError(
                f"the body must have at most {self._most:,} bytes, unpacked too; it has more. "
                "Send fewer rows at a time."
            )

    @property
    def packed(self) -> bool:
        """Whether the body is packed, and so ``unpacked`` gives what it holds."""
        return self._headers.get(b"content-encoding", b"identity").lower() != b"identity"

    def unpacked(self) -> bytes:
        """What the body holds.

        Raises
        ------
        LongError
            If it is longer than may be.
        ParameterError
            If it is packed in a way that is not known, or damaged.
        """
        if not self.packed:
            return self.body
        packing = (self.header(b"content-encoding") or "").lower()
        if packing not in {"gzip", "deflate"}:
            raise ParameterError(
                f"Content-Encoding must be gzip, deflate or identity, got {packing[:40]!r}. Send "
                "it as one of these."
            )
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            found = unpacker.decompress(self.body, self._most + 1)
        except zlib.error as wrong:
            raise ParameterError(
                f"the body must be {packing}, as Content-Encoding says, got: {wrong}. Pack it anew."
            ) from wrong
        self.hold_length(len(found))
        if not unpacker.eof or unpacker.unused_data:
            came = "more behind its end" if unpacker.eof else "one that is cut short"
            raise ParameterError(f"the body must be {packing}, got {came}. Send it whole.")
        return found


@final
class Answer(NamedTuple):
    """What goes back."""

    body: bytes
    kind: str = _JSON
    """Its content type."""
    status: int = 200
    headers: Mapping[str, str] = _NOTHING

    @classmethod
    def of(cls, failure: Failure) -> "Answer":
        """A failure, as the Open Inference Protocol tells it."""
        return cls(failed(failure.message).body, _JSON, failure.status, failure.headers)

    def whole(self, method: str, more: bytes) -> bytes:
        """All that is sent: to HEAD without the body.

        Parameters
        ----------
        method : str
            Of the request.
        more : bytes
            Further lines of the head, each with its end.
        """
        lines = "".join([f"{name.lower()}: {value}\r\n" for name, value in self.headers.items()])
        return b"%b%b%b%b\r\n%b" % (
            _beginning(self.status, self.kind),
            b"" if self.status == _UNCHANGED else b"content-length: %d\r\n" % len(self.body),
            lines.encode("latin-1"),
            more,
            b"" if method == "HEAD" else self.body,
        )


@lru_cache(maxsize=256)
def _beginning(status: int, kind: str) -> bytes:
    """The first lines of the head."""
    phrase = HTTPStatus(status).phrase
    return (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {kind}\r\nx-content-type-options: nosniff\r\n"
    ).encode("latin-1")


_T = TypeVar("_T")
_DISK = 32  # they wait more than they work
_FEW = 4


class _Shared:
    """A pool of threads for all learners; one learner never uses all of them.

    Parameters
    ----------
    most : int
        Threads that one learner may use at a time.
    name : str
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._pool = most, ThreadPoolExecutor(most + 1, name)
        self._limits: dict[str, asyncio.Semaphore] = {}

    async def run(self, work: Callable[[], _T], name: str) -> _T:
        """Work for a learner once a thread is free, and return the result."""
        async with self._limits.setdefault(name, asyncio.Semaphore(self._most)):
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)


class Threads:
    """Pools, whose threads are started when they are needed.

    Parameters
    ----------
    patience : float
        Seconds that whoever waits for the disk is kept waiting.
    """

    def __init__(self, patience: float) -> None:
        cores = os.cpu_count() or 1
        self.patience = patience
        self._computing = _Shared(max(2, min(8, cores)), "onepass compute")
        self._waiting = _Shared(_DISK, "onepass disk")
        self._looking = ThreadPoolExecutor(_FEW, "onepass look")
        self._changing = ThreadPoolExecutor(_FEW, "onepass change")

    async def compute(self, work: Callable[[], _T], name: str) -> _T:
        """Compute for the learner of this name, and return the result."""
        return await self._computing.run(work, name)

    async def look(self, work: Callable[[], _T]) -> _T:
        """What comes of work that looks at the learners, and waits for others but briefly."""
        return await asyncio.get_running_loop().run_in_executor(self._looking, work)

    async def change(self, work: Callable[[], _T]) -> _T:
        """What comes of work that makes, retires or turns back a learner, however long it takes."""
        return await asyncio.get_running_loop().run_in_executor(self._changing, work)

    async def disk(self, work: Callable[[], _T], name: str) -> _T:
        """What comes of work that brings rows to the disk.

        Parameters
        ----------
        work : callable
            It goes on when nobody waits any longer.
        name : str
            Of the learner.

        Raises
        ------
        PendingError
            If it is not done in time.
        """
        done = asyncio.ensure_future(self._waiting.run(work, name))
        finished, _ = await asyncio.wait([done], timeout=self.patience)
        if not finished:
            done.add_done_callback(_heard)
            raise pending(name, self.patience)
        return done.result()


def pending(name: str, seconds: float) -> PendingError:
    """What is said to who waits no longer.

    Parameters
    ----------
    name : str
        Of the learner.
    seconds : float
        How long they have waited.
    """
    return PendingError(
        f"{name}: the rows must be on the disk before it is answered, but after {seconds:g} "
        "seconds they are not known to be. They may be learned yet: ask again, with the same key.",
        1.0,
    )


def _heard(done: "asyncio.Future[_T]") -> None:
    """Nobody waits any longer: what was raised is looked at, lest it be told of as forgotten."""
    if not done.cancelled():
        done.exception()


_OURS = (OnepassError, LinAlgError)  # the second is about arithmetic, not about what came


class OfRows:
    """A context in which errors are about the rows of a request.

    Parameters
    ----------
    name : str
        Of the learner.

    Raises
    ------
    RequestError
        In place of a ValueError or TypeError that is not onepass's own.

    Examples
    --------
    >>> with OfRows("flow"):
    ...     raise ValueError("X has 3 features, but it is expecting 2.")
    Traceback (most recent call last):
        ...
    onepass.errors.RequestError: flow: the rows must be such as it takes, got: X has 3 features, but
    it is expecting 2. Send others.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(wrong, (TypeError, ValueError)) and not isinstance(wrong, _OURS):
            came = str(wrong).rstrip(".")
            raise RequestError(
                f"{self._name}: the rows must be such as it takes, got: {came}. Send others."
            ) from wrong


_Finish = Callable[[Receipt], object]
_OFTEN = 1.0  # seconds between two looks at who has waited too long


class Letter:
    """What becomes of rows, for one who waits in the event loop.

    It is what a future is, but whoever waits for it is told at once, not in a turn of the loop. One
    waits for it, once, or has a function called.

    Parameters
    ----------
    mail : Mail
        That brings it.
    name : str
        Of the learner.
    finish : callable
        Makes of the receipt what is waited for; called in the event loop.
    until : float
        When whoever waits is let go, by the loop's clock.

    Attributes
    ----------
    found : Any
        What is there, or the exception that came in its place.
    ended : bool
        Whether it is there.
    then : callable or None
        Called with ``found`` when it is there.
    """

    found: Any = None
    ended = False
    then: Callable[[Any], object] | None = None
    request: Request | None = None

    def __init__(self, mail: "Mail", name: str, finish: _Finish, until: float) -> None:
        self.name, self.until = name, until
        self._mail, self._finish = mail, finish

    def decided(self, request: Request) -> None:
        """Called, by whatever thread, with the request that decides on it.

        Parameters
        ----------
        request : Request
        """
        self.request = request
        self._mail.post(self)

    def read(self) -> None:
        """Let whoever waits have it."""
        request: Any = self.request
        self.request = None  # which knows this letter
        try:
            if request.error is not None:
                with OfRows(self.name):
                    request.result()
            found = self._finish(request.result())
        except Exception as wrong:  # noqa: BLE001  whoever asked is told
            found = wrong
        self.end(found)

    def end(self, found: object) -> None:
        """It is there; what is wrong with whoever is told is no trouble of who ends it.

        Parameters
        ----------
        found : object
            An exception is what went wrong.
        """
        self.found, self.ended = found, True
        if self.then is not None:
            try:
                self.then(found)
            except Exception as wrong:  # noqa: BLE001  others wait for what is ended next
                context = {"message": "an answer could not be handed on", "exception": wrong}
                asyncio.get_running_loop().call_exception_handler(context)

    def cancel(self, msg: str | None = None) -> None:
        """It will not be there, unless it is by the next turn of the loop.

        Parameters
        ----------
        msg : str, optional
            Why. uvicorn cancels all that it waits for, and looks at nothing else meanwhile.
        """
        asyncio.get_running_loop().call_soon(self._cancelled, msg)

    def _cancelled(self, msg: str | None) -> None:
        if not self.ended:
            self.end(asyncio.CancelledError(msg))

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.ended:
            future = asyncio.get_running_loop().create_future()
            self.then = lambda _: None if future.done() else future.set_result(None)
            yield from future
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


class Mail:
    """Wakes the event loop that runs where it is made, once for many letters.

    Parameters
    ----------
    patience : float
        Seconds after which who waits is told that it is not known yet.
    """

    def __init__(self, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._letters: deque[Letter] = deque()  # that have come
        self._expected: dict[Letter, None] = {}  # who has waited longest comes first
        self._called = self._looks = False
        self._put: set[Served] = set()

    def expect(self, name: str, finish: _Finish) -> Letter:
        """A letter that is still to come.

        Parameters
        ----------
        name : str
            Of the learner.
        finish : callable
            As for :class:`Letter`.
        """
        letter = Letter(self, name, finish, self._loop.time() + self._patience)
        self._expected[letter] = None
        if not self._looks:
            self._looks = True
            self._loop.call_later(min(_OFTEN, self._patience), self._look)
        return letter

    def withdraw(self, letter: Letter) -> None:
        """Expect it no longer: its rows were refused at once.

        Parameters
        ----------
        letter : Letter
        """
        self._expected.pop(letter, None)

    def sent(self, served: Served) -> None:
        """Rows wait: they are learned together with all others that have come by now.

        Parameters
        ----------
        served : Served
        """
        if not self._put:
            self._loop.call_soon(self._wake)
        self._put.add(served)

    def post(self, letter: Letter) -> None:
        """Bring a letter that has come; called by whatever thread.

        Parameters
        ----------
        letter : Letter
        """
        self._letters.append(letter)
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _wake(self) -> None:
        put, self._put = self._put, set()
        for served in put:
            served.wake()

    def _deliver(self) -> None:
        self._called = False  # before the letters are read: one that comes now calls again
        letters, expected = self._letters, self._expected
        while letters:
            letter = letters.popleft()
            expected.pop(letter, None)
            if letter.ended:  # it was waited for too long
                letter.request = None
            else:
                letter.read()

    def _look(self) -> None:
        """Let go who has waited too long."""
        expected, now = self._expected, self._loop.time()
        for letter in [each for each in expected if each.until <= now]:
            del expected[letter]
            if not letter.ended:
                letter.end(pending(letter.name, self._patience))
        self._looks = bool(expected)
        if expected:
            self._loop.call_later(min(_OFTEN, self._patience), self._look)
