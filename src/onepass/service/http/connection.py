"""Connection: HTTP/1.1 on one connection: answers in the order of the requests.

httptools reads the requests; uvicorn listens, speaks TLS, and stops. What lies between is kept
short, since all that is asked goes through it: a request whose answer is there at once has it
written before the next is looked at, without a task of its own.

Who need not wait for an answer before they ask again may send further requests meanwhile. Short
ones to learn, one after the other, are learned and written together; any other request begins when
all before it are answered.

Where a request is refused before all of it is there, its rest is read for a while: an answer that a
reset follows is often lost.
"""

import asyncio
import time
from collections.abc import Awaitable
from functools import partial
from typing import Any

from onepass.service.http.door import Coming
from onepass.service.http.exchange import Answer, Letter
from onepass.service.http.reading import NEVER, Reading, Turn

__all__ = ["Connection"]

_IDLE = 30.0  # seconds that a connection is kept for another request
_LINGER = 2.0  # seconds for which the rest of a refused request is read
_TAKEN = 1 << 16  # bytes of an answer that must be taken within the time
_CLOSE = b"connection: close\r\n"
_REFUSED = 400  # and all above it
_ABREAST, _SHORT = 64, 1 << 12  # requests that are under way together, and bytes of each


class Connection(Reading):
    """One connection.

    Parameters
    ----------
    door : Door
    """

    _full = False  # whether answers are not taken
    _paused = False  # whether nothing is read
    _stops = False  # whether it ends when nothing is under way
    _ignores = False  # whether something came that is not looked at
    _over = NEVER  # when it is not waited for any longer, once it is closed
    _unsent: tuple[float, int] | None = None  # when so many bytes were still to be taken

    # -- what the transport tells --------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A client is there."""
        self._transport = transport
        self._door.connections.add(self)
        self._until = time.monotonic() + self._door.seconds
        if self._door.stops or len(self._door.connections) > self._door.most:
            transport.abort()

    def connection_lost(self, wrong: BaseException | None) -> None:
        """The client is gone; what it asked to be learned is learned all the same."""
        del wrong
        self._door.connections.discard(self)
        self._drop()
        self._ends, self._parser = True, None

    def eof_received(self) -> bool:
        """The client sends no more; whether it may still have an answer."""
        self._ends, self._until = True, NEVER
        if self._transport.get_extra_info("ssl_object") is not None:
            self._door.flush()  # TLS ends both ways at once
            return False
        if self._coming is not None:  # of which there will be no more
            self._coming.done()
            self._coming = None
        if not self._under_way and not self._waiting:
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
            self._ignores = True
            return
        self._read(data)
        self._ends = self._ends or (self._stops and self._coming is None)
        if self._waiting:
            self._advance()

    # -- answers -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Answer those that wait, as far as it can be done at once."""
        waiting, under_way = self._waiting, self._under_way
        while waiting and not self._full and (not under_way or self._may_join(waiting[0])):
            coming = waiting.popleft()
            answer = coming.refused or self._site.answer(coming.asking, coming.verb)  # type: ignore[arg-type]
            if type(answer) is not Answer:
                self._await(coming, answer)
            elif not under_way:
                self._send(coming, answer)
            elif answer.status < _REFUSED:  # it tells of now, not of when it is its turn
                coming.asking.abreast = False  # type: ignore[union-attr]
                waiting.appendleft(coming)
            else:
                under_way.append(Turn(coming, None, answer))
        if self._coming is not None:
            self._invite()
        pauses = not self._ends and (bool(waiting) or self._full)
        if pauses is not self._paused and not self._transport.is_closing():
            self._paused = pauses
            if pauses:
                self._transport.pause_reading()
                return
            self._transport.resume_reading()
            if self._coming is not None:  # its time begins anew
                self._until = time.monotonic() + self._door.seconds

    def _may_join(self, coming: Coming) -> bool:
        """Whether a request may be begun though others are under way."""
        last, asking = self._under_way[-1], coming.asking
        if asking is None or coming.refused is not None or not asking.abreast:
            return False
        short = len(asking.body) <= _SHORT and len(self._under_way) < _ABREAST
        return short and last.abreast and last.coming.keeps

    def _await(self, coming: Coming, answer: Letter | Awaitable[Answer]) -> None:
        """Go on when an answer is there."""
        if isinstance(answer, Letter):
            turn = Turn(coming, answer)
            answer.then = partial(self._settled, turn)
        else:  # it is to be learned when much else is done: none may overtake it
            task = asyncio.ensure_future(answer)
            turn = Turn(coming, task, None, False)  # noqa: FBT003
            task.add_done_callback(lambda done: self._settled(turn, _found(done)))
        self._under_way.append(turn)
        self._door.tasks.add(turn.awaited)

    def _settled(self, turn: Turn, found: Answer | BaseException) -> None:
        """What was waited for is an answer, or an error; those before it are sent first."""
        self._door.tasks.discard(turn.awaited)
        turn.awaited, turn.found = None, found
        under_way = self._under_way
        while under_way and (told := under_way[0].found) is not None:
            coming = under_way.popleft().coming
            if isinstance(told, asyncio.CancelledError):
                coming.done()
                self._drop()
                self._close()
            else:
                self._send(coming, told if type(told) is Answer else self._site.failed(told))
        self._advance()

    def _send(self, coming: Coming, answer: Answer) -> None:
        coming.done()
        more = self._waiting or self._under_way or (self._coming is not None and not self._ends)
        keeps = coming.keeps and bool(more or not (self._ends or self._stops))
        lines = self._door.lines()
        self._site.count(answer.status)
        data = answer.whole(coming.method, lines if keeps else lines + _CLOSE)
        self._door.send(self._transport, data)
        if keeps:
            if self._coming is None and not self._waiting and not self._under_way:
                self._until = time.monotonic() + min(_IDLE, self._door.seconds)
            return
        self._ends = True
        self._drop()
        if self._ignores if self._stops else coming.cut:  # what is not read would be a reset
            self._until = time.monotonic() + _LINGER
        else:
            self._close()

    # -- the end -------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Answer what is there, and end: uvicorn asks for it when it is told to stop."""
        self._stops = True
        if self._coming is not None and self._coming.method:  # its head is there
            return
        self._ends, self._until = True, NEVER
        if self._coming is not None:
            self._coming.done()
            self._coming = None
        if not self._under_way and not self._waiting:
            self._close()

    def look(self, now: float) -> None:
        """End it if its time is over: a request that is not whole is refused.

        Parameters
        ----------
        now : float
            By ``time.monotonic``.
        """
        if self._until <= now and not self._paused:
            self._until = NEVER
            if self._coming is not None and not self._ends:
                must = b'{"error":"the request must come in time, but it did not; send it again"}'
                self._cut(Answer(must, status=408))
                self._advance()
            else:
                self._close()
        left = self._transport.get_write_buffer_size()
        if self._over < now and not left:  # by TLS the other is still to say that it has ended
            self._transport.abort()
        at, before = self._unsent or (now, left)
        if not left:
            self._unsent = None
        elif self._unsent is None or left <= before - _TAKEN or left > before:
            self._unsent = (now, left)
        elif at < now - self._door.seconds:
            self._transport.abort()  # to close it would wait until all is taken

    def wait_longer(self, seconds: float) -> None:
        """Wait so much longer for all that is waited for.

        Parameters
        ----------
        seconds : float
        """
        self._until += seconds
        self._over += seconds
        if self._unsent is not None:
            self._unsent = (self._unsent[0] + seconds, self._unsent[1])

    def _close(self) -> None:
        """Close it, after all that was sent; what still comes is not looked at."""
        self._ends = True
        self._over = min(self._over, time.monotonic() + _LINGER)
        self._door.send(self._transport, b"", closes=True)


def _found(done: asyncio.Future[Answer]) -> Answer | BaseException:
    """What a task gave or raised."""
    if done.cancelled():
        return asyncio.CancelledError()
    return done.exception() or done.result()
