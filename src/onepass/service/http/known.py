"""Known: heads of requests that have come before, byte by byte, and so need not be read again.

Whoever asks much says the same before each of its bodies, but for the key of what is to be learned.
To read that again takes longer than all else that is done with a short request's bytes.
"""

import re
from typing import NamedTuple

__all__ = ["END", "Head", "Heads"]

END = b"\r\n\r\n"
"""What ends a head."""

_MANY = 1024  # heads
_LONGEST = 1024  # bytes of one
_EACH = {b"expect", b"transfer-encoding", b"upgrade"}  # other each time, or not plain
_KEY = b"idempotency-key"
_BEFORE = b"\r\n"  # the parser passes over these in front of a head, where no line may stand
_KEYED = re.compile(
    rb"\r\n[Ii]dempotency-[Kk]ey: ([!-~]{1,256})"
    rb"(?=\r\n[^ \t])"  # not folded, though httptools refuses such a line
)


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
        self._known: dict[bytes, Head] = {}  # without their keys

    def split(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the body, if these bytes are one whole request with a known head.

        Parameters
        ----------
        data : bytes
            What came after a request that was whole, or first of all.
        """
        at = data.find(END) + len(END)
        lines = data[:at]
        head = self._known.get(lines)
        if head is None and (parted := _parted(lines)) is not None:
            head = self._known.get(parted[0])
            if head is not None:
                head = head._replace(headers={**head.headers, _KEY: parted[1]})
        return (head, data[at:]) if head is not None and len(data) - at == head.length else None

    def keep(self, data: bytes, at: int, head: Head) -> bool:
        """Know a head from now on, if it is short, and another may be the same but for its key.

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
        if at > _LONGEST or data[:1] in _BEFORE or not _EACH.isdisjoint(head.headers):
            return False
        lines, key = _parted(data[:at]) or (data[:at], None)
        if key != head.headers.get(_KEY):  # it is written in another way
            return False
        if lines not in self._known and len(self._known) >= _MANY:
            del self._known[next(iter(self._known))]
        headers = {name: value for name, value in head.headers.items() if name != _KEY}
        self._known[lines] = head._replace(headers=headers)
        return True


def _parted(head: bytes) -> tuple[bytes, bytes] | None:
    """A head without the line of its key, and the key; None where there is none."""
    found = _KEYED.search(head)
    return (head[: found.start()] + head[found.end() :], found[1]) if found else None
