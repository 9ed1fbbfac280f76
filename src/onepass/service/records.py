"""Records: what stands in a journal, and the digests that tell it from anything else."""

import hashlib
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["BEGINNING", "Answer", "Asked", "Entry", "Group", "Snapshot", "chained", "sealed"]

BEGINNING = b"\0" * 32
"""The digest before the first block."""

_LENGTH = struct.Struct("<Q")
_SHORT = 1 << 16  # bytes


class Entry(NamedTuple):
    """A block as it was learned."""

    sequence: int
    kind: str
    """"learn", "rollback" to an earlier block, or "pass": a source's position without rows."""
    rows: int
    seen: int
    """Rows that were learned until here, those that were rolled back too."""
    aside: bool
    """Whether the learner was taken out of its loops before: it is again when it is replayed."""
    note: str
    """JSON: ``source`` and ``position``, or ``to`` of a rollback; empty where there is nothing."""
    body: bytes


class Answer(NamedTuple):
    """What became of a request with an idempotency key."""

    key: str
    digest: bytes
    """Of what was asked: the same key with another request is a mistake."""
    sequence: int
    said: bytes
    at: float

    def seal(self) -> bytes:
        """The digest of it."""
        number = b"%d %a" % (self.sequence, self.at)
        return sealed(self.key.encode(), self.digest, number, self.said)


@dataclass(frozen=True, slots=True)
class Asked:
    """A row that waits for its answer."""

    id: str
    until: float
    body: bytes

    def seal(self) -> bytes:
        """The digest of it."""
        return sealed(self.id.encode(), b"%a" % self.until, self.body)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The learner after a block."""

    sequence: int
    seen: int
    at: float
    why: str
    positions: str
    """JSON: the sources' positions then."""
    digest: bytes
    """Of the log until here."""
    body: bytes = b""
    size: int = 0

    def seal(self) -> bytes:
        """The digest of it, of the log until here, and of the positions."""
        number = b"%d %d %a" % (self.sequence, self.seen, self.at)
        words = (self.why.encode(), self.positions.encode())
        return sealed(number, *words, self.digest, self.body)


@dataclass(slots=True)
class Group:
    """What is committed together."""

    entries: list[Entry] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    snapshot: Snapshot | None = None

    def __bool__(self) -> bool:
        return bool(self.entries or self.asked)

    @property
    def bare(self) -> bool:
        """Whether nothing is committed but entries."""
        return not (self.answers or self.asked or self.answered or self.snapshot)


def chained(before: bytes, entry: Entry) -> bytes:
    """The digest of a block, and of the one before it.

    Parameters
    ----------
    before : bytes
        That of the block before.
    entry : Entry
    """
    sequence, kind, rows, seen, aside, note, body = entry
    said = f"{sequence} {kind} {rows} {seen} {aside:d} {note}\n".encode()
    if len(body) <= _SHORT:
        return hashlib.sha256(b"".join((before, said, body))).digest()
    return _digest([before, said, body])


def sealed(*parts: bytes) -> bytes:
    """The digest of parts, each with its length.

    Parameters
    ----------
    *parts : bytes
    """
    pieces: list[bytes] = []
    for part in parts:
        pieces += (_LENGTH.pack(len(part)), part)
    return _digest(pieces)


def _digest(pieces: list[bytes]) -> bytes:
    """Of pieces one after the other; only short ones are copied together, for that is quicker."""
    if sum(map(len, pieces)) <= _SHORT:
        return hashlib.sha256(b"".join(pieces)).digest()
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
