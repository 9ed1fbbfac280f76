"""Known: heads of requests that have come before, byte by byte, and so need not be read again.

Whoever asks much says the same before each of its bodies. To read that again takes longer than all
else that is done with a short request's bytes.
"""

from typing import NamedTuple

__all__ = ["END", "Head", "Heads"]

END = b"\r\n\r\n"
"""What ends a head."""

_MANY = 1024  # heads
_LONGEST = 1024  # bytes of one
_EACH = {b"expect", b"idempotency-key", b"transfer-encoding", b"upgrade"}  # other, or not plain


class Head(NamedTuple):
    """What stands in a head."""

    method: str
    target: bytes
    headers: dict[bytes, bytes]
    """By their names in lower case; nobody changes them."""
    length: int
    """Bytes of the body that follows."""


class Heads:
    """Heads that were read, of requests that were let in; the oldest goes first."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}

    def split(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the body, if these bytes are one whole request with a known head.

        Parameters
        ----------
        data : bytes
            What came after a request that was whole, or first of all.
        """
        at = data.find(END) + len(END)
        head = self._known.get(data[:at])
        return (head, data[at:]) if head is not None and len(data) - at == head.length else None

    def keep(self, data: bytes, at: int, head: Head) -> bool:
        """Know a head from now on, if it is short, and another may be the same.

        Parameters
        ----------
        data : bytes
            As it came.
        at : int
            Where it ends.
        head : Head
            Of HTTP/1.1, on a connection that is kept.

        Returns
        -------
        kept : bool
        """
        if at > _LONGEST or not _EACH.isdisjoint(head.headers):
            return False
        if len(self._known) >= _MANY:
            del self._known[next(iter(self._known))]
        self._known[data[:at]] = head
        return True
