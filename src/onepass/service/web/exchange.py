"""Exchange: a request as it has come, and the answer that goes back."""

import zlib
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

from onepass.errors import BusyError, LongError, ParameterError
from onepass.service.protocol.v2 import failed
from onepass.service.web.failures import Failure

__all__ = ["Answer", "Asking", "Room"]

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
    phrase: Any = HTTPStatus(status).phrase
    return (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {kind}\r\nx-content-type-options: nosniff\r\n"
    ).encode("latin-1")
