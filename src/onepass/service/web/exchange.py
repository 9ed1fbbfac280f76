"""Exchange: a request as it comes over ASGI, and the answer that goes back."""

import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from onepass.errors import BusyError, GoneError, LongError, ParameterError
from onepass.service.web.failures import Failure
from onepass.service.wire.described import failed

__all__ = ["WHOLE", "Answer", "Asking", "Room"]

_Receive = Callable[[], Awaitable[Any]]
_Send = Callable[[Any], Awaitable[None]]

WHOLE = "onepass.whole"
"""The server's extension that sends an answer at once, as :mod:`~onepass.service.web.connection`
has it."""

_JSON = "application/json"
_LITTLE = 1 << 18  # bytes of a body for which there is room in any case
_ONCE = {
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"host",
    b"idempotency-key", b"inference-header-content-length", b"origin",
}  # fmt: skip
_NOSNIFF = {"x-content-type-options": "nosniff"}
_NONE: Mapping[str, Any] = {}
_STATUS = {each.value: f"{each.value} {each.phrase}" for each in HTTPStatus}


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
    """A request: its headers at once, its body when it is asked for.

    Parameters
    ----------
    scope, receive
        As ASGI gives them.
    most : int
        Bytes of its body, as they come and unpacked.
    room : Room
        Of which a large body takes some, until it is ``done``.
    """

    __slots__ = ("_came", "_headers", "_most", "_receive", "_room", "_taken", "method", "path")

    def __init__(self, scope: Mapping[str, Any], receive: _Receive, most: int, room: Room) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._came = scope["headers"]
        self._headers: dict[bytes, bytes] = dict(self._came)
        self._receive, self._most = receive, most
        self._room, self._taken = room, 0

    def hold_clear(self) -> None:
        """Refuse a header that came twice, of which somebody else may take the other.

        Raises
        ------
        ParameterError
        """
        if len(self._headers) == len(self._came):
            return
        times = Counter(name for name, _ in self._came)
        twice = next((each for each in sorted(_ONCE) if times[each] > 1), None)
        if twice is not None:
            raise ParameterError(
                f"the header {twice.decode().title()} must come once, got it {times[twice]} times. "
                "Send one of them."
            )

    def take(self, nbytes: int) -> None:
        """Have so much room, if it is not little.

        Raises
        ------
        BusyError
            If there is not so much.
        """
        if nbytes > max(self._taken, _LITTLE):
            self._room.take(nbytes - self._taken)
            self._taken = nbytes

    def done(self) -> None:
        """Give back the room that it had."""
        if self._taken:
            self._room.take(-self._taken)
            self._taken = 0

    def header(self, name: bytes) -> str | None:
        """A header by its name in lower case; None if it is not there."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self) -> bytes:
        """The whole body, as it came; the server sees to it that it comes in time.

        Raises
        ------
        LongError
            If it is longer than may be.
        BusyError
            If there is no room for it beside those of others.
        GoneError
            If the asker is gone.
        """
        length = self._headers.get(b"content-length", b"0")
        if len(length) > 18 or int(length) > self._most:
            raise self._long()
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message: Mapping[str, Any] = await self._receive()
            if message["type"] == "http.disconnect":
                raise GoneError("whoever asked is gone before the body was there.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._most:
                raise self._long()
            self.take(size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def packed(self) -> bool:
        """Whether the body is packed, and so ``unpacked`` gives what it holds."""
        return self._headers.get(b"content-encoding", b"identity").lower() != b"identity"

    def unpacked(self, whole: bytes) -> bytes:
        """What a packed body holds.

        Raises
        ------
        LongError
            If it is longer than may be.
        ParameterError
            If it is packed in a way that is not known, or damaged.
        """
        packing = (self.header(b"content-encoding") or "").lower()
        if packing not in {"gzip", "deflate"}:
            raise ParameterError(
                f"Content-Encoding must be gzip, deflate or identity, got {packing[:40]!r}. Send "
                "it as one of these."
            )
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            found = unpacker.decompress(whole, self._most + 1)
        except zlib.error as wrong:
            raise ParameterError(
                f"the body must be {packing}, as Content-Encoding says, got: {wrong}. Pack it anew."
            ) from wrong
        if len(found) > self._most:
            raise self._long()
        if not unpacker.eof or unpacker.unused_data:
            came = "more behind its end" if unpacker.eof else "one that is cut short"
            raise ParameterError(f"the body must be {packing}, got {came}. Send it whole.")
        return found

    def _long(self) -> LongError:
        return LongError(
            f"the body must have at most {self._most:,} bytes, unpacked too; it has more. "
            "Send fewer rows at a time."
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back.

    Parameters
    ----------
    body : bytes
    kind : str
        Its content type.
    status : int
    headers : mapping of str to str
    """

    body: bytes
    kind: str = _JSON
    status: int = 200
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(cls, failure: Failure) -> "Answer":
        """A failure, as the Open Inference Protocol tells it."""
        return cls(failed(failure.message).body, status=failure.status, headers=failure.headers)

    async def send(self, scope: Mapping[str, Any], send: _Send) -> None:
        """Send it, whole where the server can; to HEAD without its body.

        Parameters
        ----------
        scope, send
            As ASGI gives them.
        """
        told = {"content-type": self.kind, "content-length": str(len(self.body)), **_NOSNIFF}
        if self.headers:
            told |= {name.lower(): value for name, value in self.headers.items()}
        body = b"" if scope["method"] == "HEAD" else self.body
        whole = scope.get("extensions", _NONE).get(WHOLE)
        if whole is not None:
            lines = [_STATUS[self.status], *(f"{name}: {value}" for name, value in told.items())]
            if whole("\r\n".join((*lines, "")).encode("latin-1"), body):
                return
        headers = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
