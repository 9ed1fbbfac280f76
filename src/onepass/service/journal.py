"""Write-ahead log of everything that a durable learner has learned, in one SQLite file.

========= ==========================================================================================
table     a row is
========= ==========================================================================================
log       a block of rows as it was learned, in order: sequence 1, 2, …
keys      the result of a request, by its idempotency key
asked     a row that was predicted and whose label is still to come, by its id
snapshots the whole learner after so many blocks
========= ==========================================================================================

Guarantees
----------
- A commit is atomic and durable: a block, the keys of its requests and the position of the source
  it came from (in the block's note) are on the disk when it returns, or none of them is.
- The digest of each block covers the one before it; a snapshot's covers the log and the positions
  at that time; keys and pending rows have digests of their own. Whatever is read is verified, so a
  changed, missing or torn record raises ``DamagedError``.
- If a write fails other than for want of space, its outcome is unknown: the journal is ``broken``
  and refuses all further writes, as retrying a failed commit may lose rows.
- The file is created whole, with its first snapshot, or not at all.

One process and one connection hold the file: WAL, ``synchronous=FULL``, ``locking_mode=EXCLUSIVE``
(https://www.sqlite.org/wal.html). Retention deletes a bounded amount at a time, so that no commit
waits for it long.
"""

import copy
import ctypes
import hashlib
import os
import sqlite3
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from onepass.errors import DamagedError, InUseError, StoreError
from onepass.serialization.atomic import replacing
from onepass.service.lock import Holding, Place
from onepass.service.schema import looked, made, opened

__all__ = ["Answer", "Asked", "Entry", "Group", "Journal", "Snapshot"]


_BEGINNING = b"\0" * 32
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
        return _sealed(self.key.encode(), self.digest, number, self.said)


@dataclass(frozen=True, slots=True)
class Asked:
    """A row that waits for its answer."""

    id: str
    until: float
    body: bytes

    def seal(self) -> bytes:
        """The digest of it."""
        return _sealed(self.id.encode(), b"%a" % self.until, self.body)


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
        return _sealed(number, *words, self.digest, self.body)


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


def _chained(before: bytes, entry: Entry) -> bytes:
    """The digest of a block, given that of the block before it."""
    sequence, kind, rows, seen, aside, note, body = entry
    said = f"{sequence} {kind} {rows} {seen} {aside:d} {note}\n".encode()
    if len(body) <= _SHORT:
        return hashlib.sha256(b"".join((before, said, body))).digest()
    return _digest([before, said, body])


def _sealed(*parts: bytes) -> bytes:
    """The digest of parts, each with its length."""
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


_SQLITE = (sqlite3.Error, UnicodeDecodeError)
"""What Python's sqlite3 raises, of damaged files too."""

_HARMLESS = {
    "FULL": "Nothing of this was kept. Make room, then go on.",
    "TOOBIG": "Nothing of this was kept: at most 1 GB can be written as one thing. Give less.",
}
"""Kinds of errors of which nothing is kept, and what is to be done."""

_DAMAGED = {"CORRUPT", "NOTADB", "FORMAT", ""}  # without a name: what stands as text is none
_HELD = {"BUSY", "LOCKED"}
_ADVICE = {
    "opened": "Look at its permissions, and at those of its folder.",
    "made": "Look at the permissions of its folder, and at the room on its disk.",
    "read": "Look whether its disk is well.",
    "written": "Whether this was kept is not known, and nothing more is written. Look whether its "
    "disk is well, open it again, and ask again with the same keys.",
}
_AT_ONCE = 512  # keys that are looked for together
_ANSWERS = "SELECT key, digest, sequence, said, at, seal FROM keys"
_ASKED = "SELECT id, until, body, seal FROM asked"
_SNAPSHOT = "sequence, seen, at, why, positions, digest"
_ROOM = 1 << 16  # bytes that a full disk must have again before anything is learned
_SOME = 1_000  # keys, and rows that wait, that are let go at once
_BYTES = 1 << 27  # of blocks, which are enough at once: a group of requests brings fewer
_SPARE = 1024  # free pages that may stay in the file
_PAGES = 256  # that are given back at once

_ABANDONED: set[str] = set()  # files that were open when this process was forked
_TOGETHER = (16, 4, 1)  # answers that are written by one statement: of more each takes longer
_KEYS = {
    many: "INSERT INTO keys (key, digest, sequence, said, at, seal) VALUES "  # noqa: S608
    + ", ".join(["(?, ?, ?, ?, ?, ?)"] * many)
    for many in _TOGETHER
}

_LOG = (
    "INSERT INTO log (sequence, kind, rows, seen, aside, note, body, digest) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def _kind_of(wrong: Exception) -> str:
    """CORRUPT, FULL, IOERR, …; empty for what Python itself refuses to read."""
    return str(getattr(wrong, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]


class Journal:
    """The open file; at most one thread at a time writes it.

    Parameters
    ----------
    path : path-like
        Its folder must exist; ``begin`` creates the file if it does not exist itself.
    where : str
        The public call, for messages.
    read_only : bool, default False
        Open an existing file that no process holds, without changing or upgrading it. SQLite may
        put a ``-shm`` beside it where a ``-wal`` lies there.

    Attributes
    ----------
    sequence : int
        The last block.
    seen : int
        Rows that were learned until there.
    digest : bytes
        Of all blocks until there.
    broken : StoreError or None
        What has failed for good.
    full : StoreError or None
        Set where the disk was full at the last write.
    format : int
        Of a file that is open for reading only.

    Raises
    ------
    InUseError
        If another process holds it.
    StoreError
        If it cannot be opened or written, or is too new.
    DamagedError
        If it is no such file, or not as it was written.
    """

    _db: sqlite3.Connection
    _place: Place | None = None
    _holding: Holding | None = None
    format: int

    def __init__(
        self, path: str | os.PathLike[str], where: str, *, read_only: bool = False
    ) -> None:
        self.path, self.where = Path(path), where
        self.sequence, self.seen, self.digest = 0, 0, _BEGINNING
        self.broken: StoreError | None = None
        self.full: StoreError | None = None
        if read_only:
            self._open_read_only()
            return
        self._there()  # before anything is made beside it
        self._holding = Holding(self.path, where)
        try:
            if self._there():
                self._open()
        except BaseException:
            self.close()
            raise

    @property
    def empty(self) -> bool:
        """Whether it is still to be made."""
        return not hasattr(self, "_db")

    def begin(self, first: Snapshot) -> None:
        """Make the file, with the first snapshot in it."""
        self._acknowledge(0)
        try:
            with replacing(self.path) as temporary, closing(made(temporary, self.where)) as db:
                self._insert(db, first)
                db.execute("COMMIT")
                self.reached("made")
        except StoreError:
            raise
        except sqlite3.Error as wrong:
            raise self._told(wrong, "made") from wrong
        except OSError as wrong:
            raise StoreError(
                f"{self.where}: {self.path} could not be made: {wrong.strerror or wrong}. Look at "
                "the permissions of its folder, and at the room on its disk."
            ) from wrong
        self.reached("in place")
        self._open()

    def close(self) -> None:
        """Give the file back; what was committed stays."""
        try:
            if not self.empty:
                self._db.close()
        finally:
            self._release()

    def abandon(self) -> None:
        """In a process that was forked from the one that has it: leave all as it is.

        SQLite must not close its copy of the connection: it would take the log, to which the other
        goes on writing, for its own, and remove it. So this copy is never let go.
        """
        if not self.empty:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))
            _ABANDONED.add(os.path.realpath(self.path))
        self._release()

    def _release(self) -> None:
        if self._holding is not None:
            self._holding.close()

    def _acknowledge(self, sequence: int) -> None:
        """Note beside the file how far its log must reach."""
        if self._holding is not None:
            self._holding.note(sequence)

    def _there(self) -> bool:
        """Whether the file is there; refused if it is none, or only its log is there."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            for ending in ("-wal", "-journal"):
                if (log := Path(f"{os.path.realpath(self.path)}{ending}")).exists():
                    raise self.damaged(
                        f"{log} is there without it", ", or remove that too to begin anew"
                    ) from None
            return False
        except OSError as failed:
            raise StoreError(
                f"{self.where}: {self.path} could not be opened: {failed.strerror}. "
                "Look at its permissions, and at those of its folder."
            ) from failed
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(
                f"{self.where}: {self.path} must be an ordinary file, or none yet, got a folder or "
                "a device. Choose another path."
            )
        if not found.st_size:
            raise self.damaged("it is empty", ", or remove it to begin anew")
        return True

    def _open(self) -> None:
        try:
            self._db = opened(self.path, self.where)
        except _SQLITE as wrong:
            told = self._told(wrong, "opened")
            if isinstance(told, InUseError) and os.path.realpath(self.path) in _ABANDONED:
                told = InUseError(
                    f"{self.where}: {self.path} must be opened by a process that was not forked "
                    "from one that had it open: here SQLite takes it for held, whoever has let it "
                    "go. Open it in a process that is started anew, as by `spawn`."
                )
            raise told from wrong
        self._place = Place(self.path, self.where)

    def _open_read_only(self) -> None:
        if not self.path.is_file():
            raise StoreError(
                f"{self.where}: {self.path} must be a file, but there is none. Check the path."
            )
        log = Path(f"{os.path.realpath(self.path)}-wal").exists()
        how = "mode=ro" if log else "mode=ro&immutable=1"
        try:
            address = f"{self.path.absolute().as_uri()}?{how}"
            self._db = sqlite3.connect(address, isolation_level=None, uri=True)
            self.format = looked(self._db, self.path, self.where)
        except _SQLITE as wrong:
            self.close()
            raise self._told(wrong, "opened") from wrong
        except BaseException:
            self.close()
            raise

    # -- checks -----------------------------------------------------------------------------------

    def hold_whole(self, *, log: bool = False) -> None:
        """Refuse to write where that has failed for good; end what an interrupt left open.

        It is looked whether the file is where it was opened, and with ``log`` SQLite's log.

        Raises
        ------
        StoreError
        """
        if self.broken is None:
            try:
                self.hold_in_place()
                if log and self._place is not None:
                    self._place.hold_log()
            except StoreError as gone:
                self.broken = gone
        self.hold_sound()

    def hold_in_place(self) -> None:
        """Refuse where the file is not where it was opened.

        Raises
        ------
        StoreError
        """
        if self._place is not None:
            self._place.hold()

    def hold_sound(self) -> None:
        """Refuse where that has failed for good; end what an interrupt left open."""
        self._take_back()
        if self.broken is not None:
            raise copy.copy(self.broken)

    def hold_complete(self) -> None:
        """Refuse a log that ends before what was acknowledged.

        Raises
        ------
        DamagedError
        """
        held = self._holding
        if held is not None and self.sequence < held.acknowledged:
            raise self.damaged(
                f"its log ends at block {self.sequence:,}, but {held.acknowledged:,} were "
                "acknowledged",
                f"; if this is the backup, remove {held.path} to go on from there",
            )

    def hold_room(self) -> None:
        """Refuse while a disk that was full has no room yet.

        Raises
        ------
        StoreError
        """
        if self.full is not None:
            # the log holds pages many times over, and gives its room back
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)", verb="written")
            row = (
                "INSERT OR REPLACE INTO asked (id, until, body, seal) "
                "VALUES ('', 0.0, zeroblob(?), x'')"
            )
            self._write_one(row, (_ROOM,))
            self._write_one("DELETE FROM asked WHERE id = ''", ())

    # -- appending --------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Bring a group to the disk, whole or not at all.

        Raises
        ------
        StoreError
            If the disk is full: then nothing of it is kept. Or if it fails: then nobody knows.
        """
        digest, rows = self.digest, []
        for entry in group.entries:
            digest = _chained(digest, entry)
            rows.append((entry.sequence, entry.kind, entry.rows, entry.seen, entry.aside,
                         entry.note, entry.body, digest))  # fmt: skip

        def write() -> None:
            for row in rows:
                self._db.execute(_LOG, row)
                self.reached("entry")
            if group.answers or group.asked or group.answered:
                self._write_requests(group)
            if group.snapshot is not None:
                self._insert(self._db, replace(group.snapshot, digest=digest))

        if len(rows) == 1 and group.bare:
            self._write_one(_LOG, rows[0])
        else:
            self._write(write)
        if group.entries:
            last = group.entries[-1]
            self.ends(last.sequence, last.seen, digest)
            self._acknowledge(self.sequence)

    def holds(self, group: Group) -> bool:
        """Whether a group, whose commit was interrupted, is on the disk; where the log ends then.

        Raises
        ------
        StoreError
            If it cannot be read.
        """
        self._take_back()
        if not group.entries:
            return bool(group.asked) and self.asked(group.asked[0].id) is not None
        last = self._rows("SELECT sequence, seen, digest FROM log ORDER BY sequence DESC LIMIT 1")
        if not last or last[0][0] < group.entries[-1].sequence:
            return False
        self.ends(*last[0])
        return True

    def ends(self, sequence: int, seen: int, digest: bytes) -> None:
        """Know where the log ends.

        Parameters
        ----------
        sequence, seen : int
        digest : bytes
            Of all blocks until there.
        """
        self.sequence, self.seen, self.digest = sequence, seen, digest

    def snapshot(self, taken: Snapshot) -> None:
        """Keep a snapshot, with the log's digest then."""
        self._write(lambda: self._insert(self._db, taken))

    def _write_requests(self, group: Group) -> None:
        if group.answers:
            self._write_answers(group.answers)
            self.reached("keys")
        if group.asked:
            self._db.executemany(
                "INSERT INTO asked (id, until, body, seal) VALUES (?, ?, ?, ?)",
                [(a.id, a.until, a.body, a.seal()) for a in group.asked],
            )
            self.reached("asked")
        if group.answered:
            self._db.executemany(
                "DELETE FROM asked WHERE id = ?", [(each,) for each in group.answered]
            )
            self.reached("answered")

    def _write_answers(self, answers: Sequence[Answer]) -> None:
        """Many with each statement: Python lets other threads go on at every one."""
        first = 0
        while first < len(answers):
            left = len(answers) - first
            some = answers[first : first + next(many for many in _TOGETHER if many <= left)]
            first += len(some)
            values = [value for answer in some for value in (*answer, answer.seal())]
            self._db.execute(_KEYS[len(some)], values)

    def _insert(self, db: sqlite3.Connection, taken: Snapshot) -> None:
        db.execute(
            "INSERT OR REPLACE INTO snapshots "
            "(sequence, seen, at, why, positions, digest, body, seal) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (taken.sequence, taken.seen, taken.at, taken.why, taken.positions, taken.digest,
             taken.body, taken.seal()),
        )  # fmt: skip
        self.reached("snapshot")

    # -- reading ----------------------------------------------------------------------------------

    def answer(self, key: str) -> Answer | None:
        """What became of the request with this key; None if it is not known.

        Raises
        ------
        DamagedError
            If it is not as it was written.
        """
        rows = self._rows(f"{_ANSWERS} WHERE key = ?", (key,))
        return self._answer(*rows[0]) if rows else None

    def answers(self) -> Iterator[Answer]:
        """What became of all requests with keys."""
        for row in self._each(_ANSWERS, ()):
            yield self._answer(*row)

    def known(self, keys: Sequence[str]) -> set[str]:
        """Those of many keys that may be known; all of them where that cannot be read.

        Parameters
        ----------
        keys : sequence of str
        """
        found: set[str] = set()
        for first in range(0, len(keys), _AT_ONCE):
            some = keys[first : first + _AT_ONCE]
            sql = f"SELECT key FROM keys WHERE key IN ({', '.join('?' * len(some))})"  # noqa: S608
            try:
                rows = self._rows(sql, some)
            except StoreError:
                return set(keys)
            found.update(key for (key,) in rows)
        return found

    def asked(self, name: str) -> Asked | None:
        """The row with this id that waits for its answer; None if there is none.

        Raises
        ------
        DamagedError
            If it is not as it was written.
        """
        rows = self._rows(f"{_ASKED} WHERE id = ?", (name,))
        return self._asked(*rows[0]) if rows else None

    def all_asked(self) -> Iterator[Asked]:
        """All rows that wait for their answers; not the one that ``hold_room`` may have left."""
        for row in self._each(f"{_ASKED} WHERE id != ''", ()):
            yield self._asked(*row)

    def waiting(self, now: float) -> int:
        """How many rows wait for their answers."""
        return int(self._rows("SELECT count(*) FROM asked WHERE until >= ?", (now,))[0][0])

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, the oldest first, without their bodies."""
        sql = f"SELECT {_SNAPSHOT}, length(body) FROM snapshots ORDER BY sequence"  # noqa: S608
        return [
            Snapshot(at, seen, when, why, positions, digest, size=size)
            for at, seen, when, why, positions, digest, size in self._rows(sql)
        ]

    def before(self, sequence: int) -> Snapshot:
        """The last snapshot at or before a block.

        Raises
        ------
        DamagedError
            If there is none, or it is not as it was written.
        """
        rows = self._rows(
            f"SELECT {_SNAPSHOT}, body, seal FROM snapshots WHERE sequence <= ? "  # noqa: S608
            "ORDER BY sequence DESC LIMIT 1",
            (sequence,),
        )
        if not rows:
            raise self.damaged("a snapshot is missing")
        at, seen, when, why, positions, digest, body, seal = rows[0]
        found = Snapshot(at, seen, when, why, positions, digest, body, len(body))
        if found.seal() != seal:
            raise self.damaged(f"the snapshot after block {found.sequence:,} was changed")
        return found

    def entries(self, after: Snapshot, until: int | None) -> Iterator[tuple[Entry, bytes]]:
        """The blocks after a snapshot, in order, until one or the last, with their digests.

        Raises
        ------
        DamagedError
            If one is missing, or not as it was written.
        """
        digest, expected = after.digest, after.sequence + 1
        for *values, written in self._each(
            "SELECT sequence, kind, rows, seen, aside, note, body, digest FROM log "
            "WHERE sequence > ? AND sequence <= ? ORDER BY sequence",
            (after.sequence, (1 << 62) if until is None else until),
        ):
            entry = Entry(*values)
            digest = _chained(digest, entry)
            if entry.sequence != expected or digest != written:
                raise self.damaged(f"block {expected:,} of its log is missing or was changed")
            yield entry, digest
            expected += 1
        if until is not None and expected != until + 1:
            raise self.damaged(f"block {expected:,} of its log is missing")

    def _answer(self, *row: Any) -> Answer:
        """What stands in a row of the table, held to its seal."""
        found = Answer(*row[:-1])
        if found.seal() != row[-1]:
            raise self.damaged(f"what became of the request {found.key!r} was changed")
        return found

    def _asked(self, *row: Any) -> Asked:
        """The same of one that waits."""
        found = Asked(*row[:-1])
        if found.seal() != row[-1]:
            came = f"the row {found.id!r}, which waits for its answer, was changed"
            raise self.damaged(came)
        return found

    # -- retention --------------------------------------------------------------------------------

    def prune(self, keep: int) -> None:
        """Let go all snapshots but the last ``keep``; ``trim`` the log of the blocks before them.

        Raises
        ------
        StoreError
        """
        oldest = self._rows(
            "SELECT sequence FROM snapshots ORDER BY sequence DESC LIMIT 1 OFFSET ?", (keep - 1,)
        )

        def write() -> None:
            self._db.execute("DELETE FROM snapshots WHERE sequence < ?", oldest[0])
            self.reached("pruned snapshots")

        if oldest:
            self._write(write)

    def trim(self, most: int) -> bool:
        """Let go some of the blocks before all snapshots, or some free pages; whether more is left.

        Parameters
        ----------
        most : int
            Blocks that are let go at once, fewer if they are long.

        Raises
        ------
        StoreError
        """
        blocks = self._rows(
            "SELECT sequence, length(body) FROM log "
            "WHERE sequence <= (SELECT min(sequence) FROM snapshots) ORDER BY sequence LIMIT ?",
            (most,),
        )
        last = size = 0
        for last, body in blocks:  # noqa: B007  the last is let go below
            size += body
            if size >= _BYTES:
                break

        def write() -> None:
            self._db.execute("DELETE FROM log WHERE sequence <= ?", (last,))
            self.reached("trimmed log")

        if blocks:
            self._write(write)
        return bool(blocks) or self._shrink()

    def sweep(self, *, keys_before: float, now: float) -> bool:
        """Let go keys of old, and rows whose time is over; whether there may be more.

        Parameters
        ----------
        keys_before, now : float
            In seconds since 1970.

        Raises
        ------
        StoreError
        """
        keys = self._rows(
            "SELECT key FROM keys WHERE at < ? ORDER BY at LIMIT ?", (keys_before, _SOME)
        )
        asked = self._rows(
            "SELECT id FROM asked WHERE until < ? ORDER BY until LIMIT ?", (now, _SOME)
        )

        def write() -> None:
            self._db.executemany("DELETE FROM keys WHERE key = ?", keys)
            self.reached("swept keys")
            self._db.executemany("DELETE FROM asked WHERE id = ?", asked)

        if keys or asked:
            self._write(write)
        return max(len(keys), len(asked)) == _SOME

    def _shrink(self) -> bool:
        """Give the system some pages back, if many are free; whether that was done."""
        free, pages = self._count("freelist"), self._count("page")

        def write() -> None:
            for _ in range(_PAGES):  # Python's sqlite3 makes one step of it, which is one page
                self._db.execute("PRAGMA incremental_vacuum(1)")

        if free <= _SPARE + pages // 4:
            return False
        self._write(write)
        return self._count("freelist") < free  # not where somebody has set the file otherwise

    def _count(self, what: str) -> int:
        """Pages of the file that are free, or all."""
        return int(self._rows(f"PRAGMA {what}_count")[0][0])

    # -- transactions, statements and errors -------------------------------------------------------

    def reached(self, step: str) -> None:
        """Called at each step of what is written, for tests that stop the process there."""

    def _write(self, work: Callable[[], object]) -> None:
        """Do several things in one transaction.

        Raises
        ------
        StoreError
            If the disk is full or fails; ``broken`` if nobody knows what is on it now.
        """

        def transaction() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self.reached("begun")
            work()
            self.reached("before commit")
            self._db.execute("COMMIT")

        self._change(transaction)

    def _write_one(self, sql: str, values: tuple[object, ...]) -> None:
        """Do one thing: a statement by itself is a transaction, and quicker than one of three.

        Raises
        ------
        StoreError
            As of ``_write``.
        """

        def transaction() -> None:
            self.reached("begun")
            self.reached("before commit")
            self._db.execute(sql, values)

        self._change(transaction)

    def _change(self, transaction: Callable[[], object]) -> None:
        self.hold_sound()
        try:
            transaction()
        except sqlite3.Error as wrong:
            told = self._told(wrong, "written")
            self.full = told if told.full else None
            if _kind_of(wrong) not in _HARMLESS:
                self.broken = told
            self._take_back()
            raise told from wrong
        except BaseException:
            self._take_back()
            raise
        self.full = None
        self.reached("after commit")

    def _take_back(self) -> None:
        """End a transaction that was not committed."""
        try:
            self._db.rollback()
        except sqlite3.Error as wrong:
            self.broken = self._told(wrong, "written")

    def _rows(self, sql: str, values: Sequence[object] = (), *, verb: str = "read") -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except _SQLITE as wrong:
            raise self._told(wrong, verb) from wrong

    def _each(self, sql: str, values: Sequence[object]) -> Iterator[Any]:
        """Row by row: together they may be larger than memory."""
        try:
            yield from self._db.execute(sql, values)
        except _SQLITE as wrong:
            raise self._told(wrong, "read") from wrong

    def _told(self, wrong: Exception, verb: str) -> StoreError:
        """What SQLite raises, in the user's words."""
        if (kind := _kind_of(wrong)) in _DAMAGED:
            return self.damaged(str(wrong))
        start = f"{self.where}: {self.path} could not be {verb}: {wrong}."
        if kind in _HELD:
            return InUseError(f"{start} Another process has it: stop that one first.")
        if kind in _HARMLESS:
            return StoreError(f"{start} {_HARMLESS[kind]}", full=kind == "FULL")
        return StoreError(f"{start} {_ADVICE[verb]}")

    def damaged(self, why: str, otherwise: str = "") -> DamagedError:
        """The error for a file that is not as it was written.

        Parameters
        ----------
        why, otherwise : str
            What is wrong, and what to do other than to restore a backup.
        """
        return DamagedError(
            f"{self.where}: {self.path} is not as it was written: {why}. Restore it from a "
            f"backup{otherwise}."
        )
