"""Door: what all connections share, and a request while it comes in."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from onepass.errors import ParameterError
from onepass.service.http.exchange import Answer, Asking
from onepass.service.http.known import Heads

if TYPE_CHECKING:
    from uvicorn.server import ServerState

__all__ = ["Coming", "Door", "Site"]

_ONCE = {b"authorization", b"content-encoding", b"content-length", b"content-type", b"host",
         b"idempotency-key", b"inference-header-content-length", b"origin"}  # fmt: skip
_OFTEN = 1.0  # seconds between two looks at the connections
_LATE = 1.0  # seconds that it may come late
_MUCH = 1 << 18  # bytes of answers that are kept back
_SMALL = 1 << 10  # bytes of a part of a body that is kept together with the next


class Site(Protocol):
    """What answers."""

    def admit(self, method: str, target: bytes, headers: dict[bytes, bytes]) -> tuple[Asking, Any]:
        """The request whose head is there, and what answers it; raises why it may not be asked."""

    def answer(self, asking: Asking, verb: Any) -> Answer | Awaitable[Answer]:
        """An Answer, or something to be awaited that gives one."""

    def failed(self, wrong: BaseException) -> Answer:
        """What is said of an error."""

    def count(self, status: int) -> None:
        """An answer of this status is sent."""


class Door:
    """What all connections share.

    Parameters
    ----------
    site : Site
    state : uvicorn.server.ServerState
        Where uvicorn keeps connections, what they wait for, and headers that it makes anew each
        second.
    seconds : float
        Within which a request must come, and some of an answer be taken.
    most : int
        How many connections there may be.

    Attributes
    ----------
    stops : bool
        Whether no further connection is taken.
    greeted : set of asyncio.Task
        Handshakes under way.
    heads : Heads
        Of requests that came before.
    """

    def __init__(self, site: Site, state: "ServerState", seconds: float, most: int) -> None:
        self.site, self.seconds, self.most = site, seconds, most
        self.stops = False
        self.greeted: set[Any] = set()
        self.heads = Heads()
        self.connections: set[Any] = state.connections
        self.tasks: set[Any] = state.tasks
        self._state, self._lines = state, b""
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._out: list[tuple[asyncio.Transport, bytes, bool]] = []
        self._size = 0  # bytes of it

    def stop(self) -> None:
        """Take no further connection."""
        self.stops = True
        for each in self.greeted:
            each.cancel()

    async def looks(self) -> None:
        """Look at all connections each second, until it is cancelled.

        Where it comes late, so has all that was sent meanwhile: nobody's time is over for that.
        """
        last = time.monotonic()
        while True:
            now = time.monotonic()
            late = now - last - _OFTEN
            for each in list(self.connections):
                if late > _LATE:
                    each.wait_longer(late)
                each.look(now)
            last = now
            await asyncio.sleep(_OFTEN)

    def lines(self) -> bytes:
        """The lines that all answers have in common, each with its end."""
        headers = self._state.default_headers
        if headers is not self._headers:
            self._lines = b"".join(b"%b: %b\r\n" % each for each in headers)
            self._headers = headers
        return self._lines

    def send(self, transport: asyncio.Transport, data: bytes, *, closes: bool = False) -> None:
        """Send something once all that has come is looked at, after what was sent before.

        To wake whoever waits for an answer takes as long as to make it. So answers go out one right
        after the other: those who wait together are woken once.

        Parameters
        ----------
        transport : asyncio.Transport
        data : bytes
        closes : bool, default False
            Whether nothing follows.
        """
        if not self._out:
            asyncio.get_running_loop().call_soon(self.flush)
        self._out.append((transport, data, closes))
        self._size += len(data)
        if self._size > _MUCH:  # who does not take it is noticed before more is made
            self.flush()

    def flush(self) -> None:
        """Send it now."""
        out, self._out, self._size = self._out, [], 0
        for transport, data, closes in out:
            try:
                if data and not transport.is_closing():
                    transport.write(data)
                if closes and not transport.is_closing():
                    transport.close()
            except Exception:  # noqa: BLE001  the others are to have their answers
                transport.abort()


class Coming:
    """A request while it comes, and until it is answered.

    Attributes
    ----------
    method : str
        Empty until its head is there.
    size : int
        Bytes of its body that have come.
    keeps : bool
        Whether the connection is kept for another.
    expects : bool
        Whether its body comes only when it is asked for.
    turns : bool
        Whether it would rather have another protocol, and its body is still to be read.
    cut : bool
        Whether it is answered before all of it is there.
    asking : Asking or None
        Itself, once it is let in; ``verb`` is what answers it.
    refused : Answer or None
        What is answered in its place.
    """

    __slots__ = ("_parts", "asking", "cut", "expects", "headers", "keeps", "method", "refused",
                 "size", "target", "turns", "verb")  # fmt: skip

    def __init__(self) -> None:
        self.target, self.method = b"", ""
        self.headers: dict[bytes, bytes] = {}
        self._parts: list[Any] = []
        self.size = 0
        self.keeps = self.cut = self.expects = self.turns = False
        self.asking: Asking | None = None
        self.verb: Any = None
        self.refused: Answer | None = None

    def add_header(self, name: bytes, value: bytes) -> None:
        """One of its headers; of several of a name the last counts, where there may be several.

        Parameters
        ----------
        name : bytes
            In lower case.
        value : bytes
            What comes behind the body says nothing: the request was let in without it.

        Raises
        ------
        ParameterError
            If there may not be several.
        """
        if self.method:
            return
        again, self.headers[name] = name in self.headers, value
        if again and name in _ONCE:
            came = f"the header {name.decode('latin-1').title()}"
            raise ParameterError(f"{came} must come once, got it twice. Send one of them.")

    def add(self, part: bytes) -> None:
        """Of its body, a part; nothing is kept of what is refused.

        Raises
        ------
        LongError, BusyError
            If there is no room for it.
        """
        self.size += len(part)
        if self.refused is None and self.asking is not None:
            self.asking.take(self.size)
            if self._parts and len(part) < _SMALL:  # each by itself would take more than it holds
                if type(self._parts[-1]) is bytes:
                    self._parts.append(bytearray())
                self._parts[-1] += part
            else:
                self._parts.append(part)

    def complete(self) -> None:
        """All of it is there."""
        if self.asking is not None:
            parts, self._parts = self._parts, []
            self.asking.body = parts[0] if len(parts) == 1 else b"".join(parts)

    def done(self) -> None:
        """It is answered, or will not be."""
        if self.asking is not None:
            self.asking.done()
        self._parts = []
