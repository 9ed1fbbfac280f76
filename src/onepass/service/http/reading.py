"""Reading: requests out of the bytes of one connection, by httptools.

A request is let in once its head is there: who may not ask is told so before a body is kept. What
is refused in the middle of its body is answered, and the rest of it thrown away.

Who would rather have another protocol is answered in the one that is spoken here, and has the
connection ended after that; the parser, which stops there, is told to read the body all the same.
"""

import asyncio
import time
from collections import deque
from typing import Any

import httptools

from onepass.errors import OnepassError, ParameterError
from onepass.service.http.door import Coming, Door
from onepass.service.http.exchange import Answer, Letter
from onepass.service.http.known import END, Head

__all__ = ["NEVER", "Reading", "Turn"]

NEVER = float("inf")
_HEAD = 1 << 16  # bytes of a request that are none of its body
_SMALL = 1 << 16  # bytes of a body that is waited for though its request is refused
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Turn:
    """A request that is begun, and will be answered when all before it are.

    Parameters
    ----------
    coming : Coming
    awaited : Letter, asyncio.Task or None
        What gives its answer.
    found : Answer or exception, optional
        What is answered, once it is there.
    abreast : bool, default True
        Whether the next may be begun before this is answered.
    """

    __slots__ = ("abreast", "awaited", "coming", "found")

    def __init__(
        self,
        coming: Coming,
        awaited: Letter | asyncio.Task[Answer] | None,
        found: Answer | BaseException | None = None,
        abreast: bool = True,  # noqa: FBT001, FBT002  one is made for each request
    ) -> None:
        self.coming, self.awaited = coming, awaited
        self.found, self.abreast = found, abreast


class Reading(asyncio.Protocol):
    """What reads; of the same parameters as a connection.

    Parameters
    ----------
    door : Door
    """

    _transport: Any = None
    _coming: Coming | None = None  # what is read
    _ends = False  # whether no further request is taken
    _fresh = True  # whether what comes next is the beginning of a request
    _repeats = True  # and may have a head that came before
    _part = 0  # bytes of a body that came last
    _head = 0  # bytes of a request that came without any of its body
    _until = NEVER  # when its time is over

    def __init__(self, door: Door) -> None:
        self._door, self._site = door, door.site
        self._parser: Any = httptools.HttpRequestParser(self)
        self._waiting: deque[Coming] = deque()  # requests that are whole, or cut
        self._under_way: deque[Turn] = deque()  # those that are begun, and not answered

    def _read(self, data: bytes) -> None:
        """Read what came."""
        known = self._door.heads.split(data) if self._repeats else None
        if known is not None:
            self._take_known(*known)
            return
        fresh = self._fresh
        waited, self._part = len(self._waiting), 0
        self._feed(data)
        head = data.find(END) + len(END) if fresh else 0
        self._fresh = (
            self._coming is None
            and len(self._waiting) == waited + 1
            and head + self._part == len(data)
        )
        self._repeats = fresh and self._fresh and self._keep(data, head, self._waiting[-1])

    def _take_known(self, head: Head, body: bytes) -> None:
        """A whole request, whose head has come before: who asks may have lost the right to."""
        coming = Coming()
        coming.method, coming.target, coming.headers, length = head
        coming.keeps, coming.size = True, length
        self._admit(coming, length)
        if coming.asking is not None:
            coming.asking.body = body
        self._waiting.append(coming)
        self._until = NEVER

    def _keep(self, data: bytes, at: int, coming: Coming) -> bool:
        """Know its head from now on, if another may be the same; whether that is so."""
        if not coming.keeps or coming.refused is not None or coming.size > _SMALL:
            return False
        head = Head(coming.method, coming.target, coming.headers, coming.size)
        return self._door.heads.keep(data, at, head)

    def _feed(self, data: bytes) -> None:
        """Have it read by the parser."""
        begun = self._coming
        size = 0 if begun is None else begun.size
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as stopped:
                self._go_on(data[stopped.args[0] :])
        except httptools.HttpParserCallbackError as wrong:
            self._cut(self._site.failed(wrong.__context__ or wrong))
        except httptools.HttpParserError:
            must = "the request must be one of HTTP/1.1, got something else. See /openapi.json."
            self._cut(self._site.failed(ParameterError(must)))
        if begun is not None and begun is self._coming and begun.size == size:
            self._head += len(data)  # of its head, or of what follows its chunks
            if self._head > _HEAD:
                self._cut(Answer(b'{"error":"the head of the request is too long"}', status=431))

    def _go_on(self, rest: bytes) -> None:
        """Read the body of who would rather have another protocol; there is no further request."""
        coming = self._coming
        if coming is None or not coming.turns:
            self._ends = True
            return
        coming.turns, chunked = False, b"transfer-encoding" in coming.headers
        length = b"content-length: " + coming.headers.get(b"content-length", b"0")
        body = b"transfer-encoding: chunked" if chunked else length
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\nconnection: close\r\n%b\r\n\r\n" % body)
        self._parser.feed_data(rest)

    # -- what the parser tells -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._coming is None and not self._ends:
            self._coming, self._head = Coming(), 0
            self._until = time.monotonic() + self._door.seconds

    def on_url(self, part: bytes) -> None:
        """Of its target, a part."""
        if self._coming is not None and not self._coming.method:
            self._coming.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        if self._coming is not None:
            try:
                self._coming.add_header(name.lower(), value)
            except OnepassError as wrong:
                self._coming.refused = self._site.failed(wrong)

    def on_headers_complete(self) -> None:
        """Its head is there: it is let in, or refused."""
        coming = self._coming
        if coming is None or coming.method:
            return
        parser, headers = self._parser, coming.headers
        coming.method = parser.get_method().decode("latin-1")
        recent = parser.get_http_version() != "1.0"
        coming.keeps = recent and parser.should_keep_alive()
        length = int(headers.get(b"content-length", b"0")[:18])
        self._admit(coming, length)
        chunked = b"transfer-encoding" in headers
        if b"upgrade" in headers and parser.should_upgrade():
            coming.keeps = False
            coming.turns = coming.method != "CONNECT" and (chunked or length > 0)
        coming.expects = recent and headers.get(b"expect", b"").lower() == b"100-continue"
        if coming.refused is None:
            if coming.expects:
                self._until = NEVER
                self._invite()
        elif coming.expects or length > _SMALL or chunked:
            self._cut(coming.refused)

    def on_body(self, part: bytes) -> None:
        """Of its body, a part."""
        self._part = len(part)
        if self._coming is not None:
            try:
                self._coming.add(part)
            except OnepassError as wrong:
                self._cut(self._site.failed(wrong))

    def on_message_complete(self) -> None:
        """All of it is there, unless the parser has stopped before its body."""
        coming = self._coming
        if coming is not None and not coming.turns:
            self._coming = None
            coming.complete()
            self._waiting.append(coming)
            self._until = NEVER

    # -- what follows --------------------------------------------------------------------------

    def _admit(self, coming: Coming, length: int) -> None:
        """Let it in, with a body of so many bytes, or refuse it."""
        try:
            admitted = self._site.admit(coming.method, coming.target, coming.headers)
            coming.asking, coming.verb = admitted
            coming.asking.hold_length(length)
        except Exception as wrong:  # noqa: BLE001  whoever asks is told
            coming.refused = coming.refused or self._site.failed(wrong)

    def _invite(self) -> None:
        """Ask for a body that comes only when it is asked for, once it is its turn."""
        coming, busy = self._coming, self._under_way or self._waiting
        if coming is not None and coming.expects and not busy and not self._ends:
            coming.expects = False
            self._until = time.monotonic() + self._door.seconds
            self._door.send(self._transport, _CONTINUE)

    def _cut(self, answer: Answer) -> None:
        """Answer a request that is not read to its end, after those before it; then end."""
        if self._ends:
            return
        coming, self._coming = self._coming or Coming(), None
        coming.done()
        coming.refused, coming.cut, coming.keeps = answer, True, False
        self._ends, self._until = True, NEVER
        self._waiting.append(coming)

    def _drop(self) -> None:
        """Let go all that has come and is not being answered."""
        for coming in (*self._waiting, self._coming):
            if coming is not None:
                coming.done()
        self._waiting.clear()
        self._coming = None
