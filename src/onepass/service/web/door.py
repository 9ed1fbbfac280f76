"""Door: what all connections share, and a request while it comes in."""

import asyncio
from typing import Any, Protocol

from onepass.service.web.exchange import Answer, Asking

__all__ = ["Coming", "Door", "Site"]


class Site(Protocol):
    """What answers."""

    def admit(self, method: str, target: bytes, headers: dict[bytes, bytes]) -> tuple[Asking, Any]:
        """The request whose head is there, and what answers it; raises why it may not be asked."""

    def answer(self, asking: Asking, verb: Any) -> Any:
        """An Answer, or something to be awaited that gives one."""

    def failed(self, wrong: BaseException) -> Answer:
        """What is said of an error."""


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
    """

    def __init__(self, site: Site, state: Any, seconds: float, most: int) -> None:
        self.site, self.seconds, self.most = site, seconds, most
        self.connections: set[Any] = state.connections
        self.tasks: set[Any] = state.tasks
        self._state, self._headers, self._lines = state, None, b""
        self._out: list[tuple[Any, bytes, bool]] = []

    def lines(self) -> bytes:
        """The lines that all answers have in common, each with its end."""
        headers = self._state.default_headers
        if headers is not self._headers:
            self._lines = b"".join(b"%b: %b\r\n" % each for each in headers)
            self._headers = headers
        return self._lines

    def send(self, transport: Any, data: bytes, *, closes: bool = False) -> None:
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
            asyncio.get_running_loop().call_soon(self._sent)
        self._out.append((transport, data, closes))

    def _sent(self) -> None:
        out, self._out = self._out, []
        for transport, data, closes in out:
            try:
                if data and not transport.is_closing():
                    transport.write(data)
                if closes:
                    transport.close()
            except Exception:  # noqa: BLE001  the others are to have their answers
                transport.abort()


class Coming:
    """A request while it comes, and until it is answered.

    Attributes
    ----------
    method : str
        Empty until its head is there.
    keeps : bool
        Whether the connection is kept for another.
    cut : bool
        Whether it is answered before all of it is there.
    asking : Asking or None
        Itself, once it is let in; ``verb`` is what answers it.
    refused : Answer or None
        What is answered in its place.
    """

    __slots__ = ("_parts", "_size", "asking", "cut", "headers", "keeps", "method", "refused",
                 "target", "verb")  # fmt: skip

    def __init__(self) -> None:
        self.target, self.method = b"", ""
        self.headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self.keeps = self.cut = False
        self.asking: Asking | None = None
        self.verb: Any = None
        self.refused: Answer | None = None

    def add(self, part: bytes) -> None:
        """Of its body, a part; nothing is kept of what is refused.

        Raises
        ------
        LongError, BusyError
            If there is no room for it.
        """
        if self.refused is None and self.asking is not None:
            self._size += len(part)
            self.asking.take(self._size)
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
