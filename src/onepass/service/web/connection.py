"""Connection: HTTP/1.1 on one connection: requests as they come, and answers in their order.

httptools reads the requests; uvicorn listens, speaks TLS, and stops. What lies between is kept
short, since all that is asked goes through it: a request whose answer is there at once has it
written before the next is looked at, without a task of its own.

A request is let in once its head is there: who may not ask is told so before a body is kept. What
is refused in the middle of its body is answered, and the rest of it read and thrown away for a
while: an answer that a reset follows is often lost.
"""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Any

import httptools

from onepass.errors import OnepassError, ParameterError
from onepass.service.web.door import Coming, Door
from onepass.service.web.exchange import Answer

__all__ = ["Connection"]

_HEAD = 1 << 16  # bytes of a request before its body
_SMALL = 1 << 16  # bytes of a body that is waited for though its request is refused
_IDLE = 30.0  # seconds that a connection is kept for another request
_LINGER = 2.0  # seconds for which the rest of a refused request is read
_TAKEN = 1 << 16  # bytes of an answer that must be taken within the time
_NEVER = float("inf")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_ONCE = {b"authorization", b"content-encoding", b"content-length", b"content-type", b"host",
         b"idempotency-key", b"inference-header-content-length", b"origin"}  # fmt: skip


class Connection(asyncio.Protocol):
    """One connection.

    Parameters
    ----------
    door : Door
    """

    _transport: Any = None
    _coming: Coming | None = None  # what is read
    _pending: Any = None  # what will be an answer
    _full = False  # whether answers are not taken
    _paused = False  # whether nothing is read
    _ends = False  # whether no further request is taken
    _stops = False  # whether it ends when nothing is under way
    _head = 0  # bytes of a request that came by themselves before its head was there
    _unsent: tuple[float, int] | None = None  # when so many bytes were still to be taken
    _until = _NEVER  # when its time is over

    def __init__(self, door: Door) -> None:
        self._door, self._site = door, door.site
        self._parser: Any = httptools.HttpRequestParser(self)
        self._waiting: deque[Coming] = deque()  # requests that are whole, or cut

    # -- what the transport tells --------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A client is there."""
        self._transport = transport
        self._door.connections.add(self)
        self._until = time.monotonic() + self._door.seconds
        if len(self._door.connections) > self._door.most:
            transport.abort()

    def connection_lost(self, wrong: BaseException | None) -> None:
        """The client is gone; what it asked to be learned is learned all the same."""
        del wrong
        self._door.connections.discard(self)
        for coming in (self._coming, *self._waiting):
            if coming is not None:
                coming.done()
        self._ends, self._coming, self._parser = True, None, None
        self._waiting.clear()

    def eof_received(self) -> bool:
        """The client sends no more; whether it may still have an answer."""
        self._ends = True
        if self._transport.get_extra_info("ssl_object") is not None:
            return False
        if self._pending is None and not self._waiting:
            self._close()
        return True

    def pause_writing(self) -> None:
        """The client does not take its answers: no more are made."""
        self._full = True

    def resume_writing(self) -> None:
        """It takes them again."""
        self._full = False
        self._advance()

    def data_received(self, data: bytes) -> None:
        """Something came."""
        if self._ends:
            return
        begun = self._coming
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # answered in the protocol that is spoken here
            self._ends = True
        except httptools.HttpParserCallbackError as wrong:
            self._cut(self._site.failed(wrong.__context__ or wrong))
        except httptools.HttpParserError:
            must = "the request must be one of HTTP/1.1, got something else. See /openapi.json."
            self._cut(self._site.failed(ParameterError(must)))
        if begun is not None and begun is self._coming and not begun.method:
            self._head += len(data)
            if self._head > _HEAD:
                self._cut(Answer(b'{"error":"the head of the request is too long"}', status=431))
        if self._waiting:
            self._advance()

    # -- what the parser tells -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._ends:
            self._coming, self._head = Coming(), 0
            self._until = time.monotonic() + self._door.seconds

    def on_url(self, part: bytes) -> None:
        """Of its target, a part."""
        if self._coming is not None:
            self._coming.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers; of several of a name the last counts, where there may be several."""
        coming = self._coming
        if coming is None:
            return
        name = name.lower()
        if name in coming.headers and name in _ONCE:
            came = f"the header {name.decode('latin-1').title()}"
            must = f"{came} must come once, got it twice. Send one of them."
            coming.refused = self._site.failed(ParameterError(must))
        coming.headers[name] = value

    def on_headers_complete(self) -> None:
        """Its head is there: it is let in, or refused."""
        coming = self._coming
        if coming is None:
            return
        parser, headers = self._parser, coming.headers
        coming.method = parser.get_method().decode("latin-1")
        coming.keeps = parser.should_keep_alive() and parser.get_http_version() != "1.0"
        length = int(headers.get(b"content-length", b"0")[:18])
        try:
            coming.asking, coming.verb = self._site.admit(coming.method, coming.target, headers)
            coming.asking.hold_length(length)
        except Exception as wrong:  # noqa: BLE001  whoever asks is told
            coming.refused = coming.refused or self._site.failed(wrong)
        expects = headers.get(b"expect", b"").lower() == b"100-continue"
        if coming.refused is None:
            if expects and self._pending is None and not self._waiting:
                self._door.send(self._transport, _CONTINUE)
        elif expects or length > _SMALL or b"transfer-encoding" in headers:
            self._cut(coming.refused)

    def on_body(self, part: bytes) -> None:
        """Of its body, a part."""
        if self._coming is not None:
            try:
                self._coming.add(part)
            except OnepassError as wrong:
                self._cut(self._site.failed(wrong))

    def on_message_complete(self) -> None:
        """All of it is there."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.complete()
            self._waiting.append(coming)
            self._until = _NEVER

    # -- answers -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Answer those that wait, as far as it can be done at once."""
        waiting = self._waiting
        while waiting and self._pending is None and not self._full:
            coming = waiting.popleft()
            answer: Any = coming.refused or self._site.answer(coming.asking, coming.verb)  # type: ignore[arg-type]
            if type(answer) is Answer:
                self._send(coming, answer)
            else:
                self._pending = asyncio.ensure_future(answer)
                self._door.tasks.add(self._pending)
                self._pending.add_done_callback(partial(self._settled, coming))
        pauses = bool(waiting) or self._full
        if pauses is not self._paused and not self._transport.is_closing():
            self._paused = pauses
            (self._transport.pause_reading if pauses else self._transport.resume_reading)()

    def _settled(self, coming: Coming, done: Any) -> None:
        """What was pending is an answer, or an error."""
        self._pending = None
        self._door.tasks.discard(done)
        if done.cancelled():
            coming.done()
            self._close()
            return
        wrong = done.exception()
        self._send(coming, done.result() if wrong is None else self._site.failed(wrong))
        self._advance()

    def _send(self, coming: Coming, answer: Answer) -> None:
        coming.done()
        more = self._waiting or (self._coming is not None and not self._ends)
        keeps = coming.keeps and bool(more or not (self._ends or self._stops))
        lines = self._door.lines()
        data = answer.whole(coming.method, lines if keeps else lines + _CLOSE)
        self._door.send(self._transport, data)
        if keeps:
            if self._coming is None:
                self._until = time.monotonic() + min(_IDLE, self._door.seconds)
            return
        self._ends = True
        self._waiting.clear()
        if coming.cut and not self._stops:
            self._until = time.monotonic() + _LINGER
        else:
            self._close()

    def _cut(self, answer: Answer) -> None:
        """Answer a request that is not read to its end, after those before it; then end."""
        if self._ends:
            return
        coming, self._coming = self._coming or Coming(), None
        coming.done()
        coming.refused, coming.cut, coming.keeps = answer, True, False
        self._ends, self._until = True, _NEVER
        self._waiting.append(coming)

    # -- the end -------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Answer what is under way, and end: uvicorn asks for it when it is told to stop."""
        self._stops = True
        begun = self._coming is not None and bool(self._coming.method)
        if not begun and self._pending is None and not self._waiting:
            self._close()

    def look(self, now: float) -> None:
        """End it if its time is over: a request that is not whole is refused.

        Parameters
        ----------
        now : float
            By ``time.monotonic``.
        """
        if self._until <= now:
            self._until = _NEVER
            if self._coming is not None and not self._ends:
                must = b'{"error":"the request must come in time, but it did not; send it again"}'
                self._cut(Answer(must, status=408))
                self._advance()
            else:
                self._close()
        left = self._transport.get_write_buffer_size()
        at, before = self._unsent or (now, left)
        if not left:
            self._unsent = None
        elif self._unsent is None or left <= before - _TAKEN or left > before:
            self._unsent = (now, left)
        elif at < now - self._door.seconds:
            self._transport.abort()  # to close it would wait until all is taken

    def _close(self) -> None:
        """Close it, after all that was sent; what still comes is not looked at."""
        self._ends = True
        self._door.send(self._transport, b"", closes=True)
