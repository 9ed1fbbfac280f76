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
  changed, missing or torn record raises ``CorruptStoreError``.
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
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onepass.errors import CorruptStoreError, LockedError, StoreError
from onepass.serialization.atomic import atomic_write
from onepass.service.lock import FileIdentity, FileLock
from onepass.service.schema import checked_format, create, open_database

__all__ = ["Answer", "Asked", "Entry", "Group", "Journal", "Snapshot"]


_BEGINNING = b"\0" * 32
"""The digest before the first block."""

_LENGTH = struct.Struct("<Q")
_LATEST = 1 << 62  # beyond every block


class Entry(NamedTuple):
    """A block as it was learned."""

    sequence: int
    kind: str
    """"learn", "rollback" to an earlier block, or "pass": a source's position without rows."""
    rows: int
    seen: int
    """Rows learned up to here, including those that were rolled back."""
    aside: bool
    """Whether the native state was written back before: replay does the same."""
    note: str
    """JSON: ``source`` and ``position``, or ``to`` of a rollback; empty where there is nothing."""
    body: bytes


class Answer(NamedTuple):
    """The result of a request with an idempotency key."""

    key: str
    digest: bytes
    """Of the request: the same key with another request is an error."""
    sequence: int
    said: bytes
    at: float

    def seal(self) -> bytes:
        """The digest of all fields."""
        number = b"%d %a" % (self.sequence, self.at)
        return _sealed(self.key.encode(), self.digest, number, self.said)


class Asked(NamedTuple):
    """A row that waits for its label."""

    id: str
    until: float
    body: bytes

    def seal(self) -> bytes:
        """The digest of all fields."""
        return _sealed(self.id.encode(), b"%a" % self.until, self.body)


_Record = TypeVar("_Record", Answer, Asked)


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
    """Of the log up to here."""
    body: bytes = b""
    size: int = 0

    def seal(self) -> bytes:
        """The digest of all fields."""
        number = b"%d %d %a" % (self.sequence, self.seen, self.at)
        words = (self.why.encode(), self.positions.encode())
        return _sealed(number, *words, self.digest, self.body)


@dataclass(slots=True)
class Group:
    """What is committed in one transaction."""

    entries: list[Entry] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    """Ids of rows that were labelled."""
    snapshot: Snapshot | None = None


def _chained(before: bytes, entry: Entry) -> bytes:
    """The digest of a block, given that of the block before it."""
    sequence, kind, rows, seen, aside, note, body = entry
    head = f"{sequence} {kind} {rows} {seen} {aside:d} {note}\n".encode()
    digest = hashlib.sha256(before + head)
    digest.update(body)
    return digest.digest()


def _sealed(*parts: bytes) -> bytes:
    """The digest of parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(_LENGTH.pack(len(part)))
        digest.update(part)
    return digest.digest()


_SQLITE = (sqlite3.Error, UnicodeDecodeError)
"""What Python's sqlite3 raises, of damaged files too."""

_NOT_KEPT = {
    "FULL": "Nothing of this was kept. Make room, then go on.",
    "TOOBIG": "Nothing of this was kept: at most 1 GB can be written as one thing. Give less.",
}
"""Kinds of errors after which nothing is on the disk, and their remedies."""

_ADVICE = {
    "opened": "Look at its permissions, and at those of its folder.",
    "made": "Look at the permissions of its folder, and at the room on its disk.",
    "read": "Look whether its disk is well.",
    "written": "Whether this was kept is not known, and nothing more is written. Look whether its "
    "disk is well, open it again, and ask again with the same keys.",
}
_MOVED = (
    "must stay where it is, but it was moved or removed, or another stands there. Nothing more is "
    "written: put it back, with its -wal if there is one, and open it again."
)
_LOG_MOVED = (
    "must stay where it is, but it was moved or removed. Nothing more is written: stop this "
    "process by SIGTERM or close, which saves all that was learned, and open it again."
)
_OLDEST = (3, 37)  # SQLite with STRICT tables
_ANSWERS = "SELECT key, digest, sequence, said, at, seal FROM keys"
_ASKED = "SELECT id, until, body, seal FROM asked"
_SNAPSHOT = "sequence, seen, at, why, positions, digest"
_ROOM = 1 << 16  # bytes that a full disk must have again before anything is learned
_SOME = 1_000  # keys, and pending rows, that are deleted at once
_BYTES = 1 << 27  # of blocks deleted at once
_SPARE = 1024  # free pages that may stay in the file
_PAGES = 256  # pages returned to the system at once

_TOGETHER = (16, 4, 1)  # keys per statement: each statement releases Python's lock
_KEYS = {
    many: "INSERT INTO keys (key, digest, sequence, said, at, seal) VALUES "  # noqa: S608
    + ", ".join(["(?, ?, ?, ?, ?, ?)"] * many)
    for many in _TOGETHER
}
_LOG = (
    "INSERT INTO log (sequence, kind, rows, seen, aside, note, body, digest) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_PENDING = "INSERT OR REPLACE INTO asked (id, until, body, seal) VALUES (?, ?, ?, ?)"


class Journal:
    """The open file; one thread at a time uses it.

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
        Rows learned up to there.
    digest : bytes
        Of all blocks up to there.
    broken : StoreError or None
        A failure after which nothing more is written.
    full : StoreError or None
        Set where the disk was full at the last write.
    format : int
        Of a file that is open for reading only.

    Raises
    ------
    LockedError
        If another process holds it.
    StoreError
        If it cannot be opened or written, or is too new.
    CorruptStoreError
        If it is no such file, or not as it was written.
    """

    _db: sqlite3.Connection
    _lock: FileLock | None = None
    format: int

    def __init__(
        self, path: str | os.PathLike[str], where: str, *, read_only: bool = False
    ) -> None:
        self.path, self.where = Path(path), where
        self.sequence, self.seen, self.digest = 0, 0, _BEGINNING
        self.broken: StoreError | None = None
        self.full: StoreError | None = None
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreError(
                f"{where}: SQLite must be at least {'.'.join(map(str, _OLDEST))}, got "
                f"{sqlite3.sqlite_version}. Use a newer Python."
            )
        try:
            if read_only:
                self._open_read_only()
            else:
                self._exists()  # before a lock file is made beside it
                self._lock = FileLock(self.path, where)
                if self._exists():
                    self._open()
        except BaseException:
            self.close()
            raise

    @property
    def empty(self) -> bool:
        """Whether the file is still to be created."""
        return not hasattr(self, "_db")

    def begin(self, first: Snapshot) -> None:
        """Create the file, with the first snapshot in it."""
        if self._lock is not None:
            self._lock.acknowledge(0)
        try:
            with atomic_write(self.path) as temporary, closing(create(temporary)) as db:
                self._insert(db, first)
                db.execute("COMMIT")
                self.reached("made")
        except sqlite3.Error as error:
            raise self._error(error, "made") from error
        except OSError as error:
            raise StoreError(
                f"{self.where}: {self.path} could not be made: {error.strerror or error}. "
                f"{_ADVICE['made']}"
            ) from error
        self.reached("in place")
        self._open()

    def close(self) -> None:
        """Release the file; what was committed stays."""
        try:
            if not self.empty:
                self._db.close()
        finally:
            self._unlock()

    def abandon(self) -> None:
        """In a process that was forked from the holder: never close SQLite's connection.

        Else SQLite would remove the log, to which the holder goes on writing.
        """
        if not self.empty:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))
            del self._db
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _exists(self) -> bool:
        """Whether the file exists; refused if it is no such file, or only its log is there."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            for ending in ("-wal", "-journal"):
                if (log := Path(f"{os.path.realpath(self.path)}{ending}")).exists():
                    raise self.damaged(
                        f"{log} is there without it", ", or remove that too to begin anew"
                    ) from None
            return False
        except OSError as error:
            raise StoreError(
                f"{self.where}: {self.path} could not be opened: {error.strerror}. "
                f"{_ADVICE['opened']}"
            ) from error
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
            self._db = open_database(self.path, self.where)
        except _SQLITE as error:
            raise self._error(error, "opened") from error
        real = os.path.realpath(self.path)  # wherever the process changes its directory to
        self._file, self._log = FileIdentity(real), FileIdentity(f"{real}-wal")

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
            self.format = checked_format(self._db, self.path, self.where)
        except _SQLITE as error:
            raise self._error(error, "opened") from error

    # -- checks -----------------------------------------------------------------------------------

    def check_writable(self, *, log: bool = False) -> None:
        """Refuse to write after a failure, or if the file, or SQLite's log, was moved.

        Raises
        ------
        StoreError
        """
        if self.broken is None:
            if self._file.changed():
                self.broken = StoreError(f"{self.where}: {self.path} {_MOVED}")
            elif log and self._log.changed():
                self.broken = StoreError(f"{self.where}: {self.path}-wal {_LOG_MOVED}")
        self.check_sound()

    def check_in_place(self) -> None:
        """Refuse where the file is not where it was opened.

        Raises
        ------
        StoreError
        """
        if self._file.changed():
            raise StoreError(f"{self.where}: {self.path} {_MOVED}")

    def check_sound(self) -> None:
        """Refuse after a failure whose outcome is unknown.

        Raises
        ------
        StoreError
        """
        if self.broken is not None:
            raise copy.copy(self.broken)

    def check_complete(self) -> None:
        """Refuse a log that ends before the last acknowledged block.

        Raises
        ------
        CorruptStoreError
        """
        lock = self._lock
        if lock is not None and self.sequence < lock.acknowledged:
            raise self.damaged(
                f"its log ends at block {self.sequence:,}, but {lock.acknowledged:,} were "
                "acknowledged",
                f"; if this is the backup, remove {lock.path} to go on from there",
            )

    def check_room(self) -> None:
        """Refuse while a disk that was full has no room yet.

        Raises
        ------
        StoreError
        """
        if self.full is not None:
            # the log holds pages many times over, and gives its room back
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)", verb="written")
            with self._transaction() as db:
                db.execute(_PENDING, ("", 0.0, bytes(_ROOM), b""))
            with self._transaction() as db:
                db.execute("DELETE FROM asked WHERE id = ''")

    # -- appending --------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Write a group to the disk, whole or not at all.

        Raises
        ------
        StoreError
            If the disk is full: then nothing of it is kept. If it fails, that is not known.
        """
        digest, rows = self.digest, []
        for entry in group.entries:
            digest = _chained(digest, entry)
            rows.append((*entry, digest))
        with self._transaction() as db:
            for row in rows:
                db.execute(_LOG, row)
                self.reached("entry")
            self._write_requests(db, group)
            if group.snapshot is not None:
                self._insert(db, replace(group.snapshot, digest=digest))
        if rows:
            self.ends(entry.sequence, entry.seen, digest)
            if self._lock is not None:
                self._lock.acknowledge(self.sequence)

    def ends(self, sequence: int, seen: int, digest: bytes) -> None:
        """Set where the log ends: its last block, the rows and the digest up to there."""
        self.sequence, self.seen, self.digest = sequence, seen, digest

    def _write_requests(self, db: sqlite3.Connection, group: Group) -> None:
        first, answers = 0, group.answers
        while first < len(answers):
            count = next(many for many in _TOGETHER if many <= len(answers) - first)
            some = answers[first : first + count]
            first += count
            db.execute(_KEYS[count], [value for each in some for value in (*each, each.seal())])
        if answers:
            self.reached("keys")
        if group.asked:
            db.executemany(_PENDING, [(*each, each.seal()) for each in group.asked])
            self.reached("asked")
        if group.answered:
            db.executemany("DELETE FROM asked WHERE id = ?", [(each,) for each in group.answered])
            self.reached("answered")

    def _insert(self, db: sqlite3.Connection, taken: Snapshot) -> None:
        db.execute(
            f"INSERT OR REPLACE INTO snapshots ({_SNAPSHOT}, body, seal) "  # noqa: S608
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (taken.sequence, taken.seen, taken.at, taken.why, taken.positions, taken.digest,
             taken.body, taken.seal()),
        )  # fmt: skip
        self.reached("snapshot")

    # -- reading ----------------------------------------------------------------------------------

    def answers(self, keys: Sequence[str] | None = None) -> Iterator[Answer]:
        """The results of requests with these keys, as far as there are; by default of all.

        Raises
        ------
        CorruptStoreError
            If one is not as it was written.
        """
        sql = _ANSWERS
        if keys is not None:
            sql = f"{_ANSWERS} WHERE key IN ({', '.join('?' * len(keys))})"
        return self._records(Answer, sql, keys or (), "the result of the request")

    def asked(self, name: str | None = None) -> Iterator[Asked]:
        """The row with this id that waits for its label, if there is one; by default all.

        Raises
        ------
        CorruptStoreError
            If one is not as it was written.
        """
        # a crash in ``check_room`` may have left a row without an id
        condition, values = ("id != ''", ()) if name is None else ("id = ?", (name,))
        what = "a row that waits for its label,"
        return self._records(Asked, f"{_ASKED} WHERE {condition}", values, what)

    def _records(
        self, kind: type[_Record], sql: str, values: Sequence[object], what: str
    ) -> Iterator[_Record]:
        """Records, each verified by its seal."""
        for *row, seal in self._each(sql, values):
            found = kind(*row)
            if found.seal() != seal:
                raise self.damaged(f"{what} {found[0]!r} was changed")
            yield found

    def waiting(self, now: float) -> int:
        """How many rows wait for their labels."""
        return int(self._rows("SELECT count(*) FROM asked WHERE until >= ?", (now,))[0][0])

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, the oldest first, without their bodies."""
        sql = f"SELECT {_SNAPSHOT}, x'', length(body) FROM snapshots ORDER BY sequence"  # noqa: S608
        return [Snapshot(*row) for row in self._rows(sql)]

    def before(self, sequence: int | None = None) -> Snapshot:
        """The last snapshot at or before a block; by default of all.

        Raises
        ------
        CorruptStoreError
            If there is none, or it is not as it was written.
        """
        rows = self._rows(
            f"SELECT {_SNAPSHOT}, body, length(body), seal FROM snapshots "  # noqa: S608
            "WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1",
            (_LATEST if sequence is None else sequence,),
        )
        if not rows:
            raise self.damaged("a snapshot is missing")
        found = Snapshot(*rows[0][:-1])
        if found.seal() != rows[0][-1]:
            raise self.damaged(f"the snapshot after block {found.sequence:,} was changed")
        return found

    def entries(self, after: Snapshot, until: int | None) -> Iterator[tuple[Entry, bytes]]:
        """The blocks after a snapshot, in order, until one or the last, with their digests.

        Raises
        ------
        CorruptStoreError
            If one is missing, or not as it was written.
        """
        digest, expected = after.digest, after.sequence + 1
        for *values, stored in self._each(
            "SELECT sequence, kind, rows, seen, aside, note, body, digest FROM log "
            "WHERE sequence > ? AND sequence <= ? ORDER BY sequence",
            (after.sequence, _LATEST if until is None else until),
        ):
            entry = Entry(*values)
            digest = _chained(digest, entry)
            if entry.sequence != expected or digest != stored:
                raise self.damaged(f"block {expected:,} of its log is missing or was changed")
            yield entry, digest
            expected += 1
        if until is not None and expected != until + 1:
            raise self.damaged(f"block {expected:,} of its log is missing")

    # -- retention --------------------------------------------------------------------------------

    def prune(self, keep: int) -> None:
        """Delete all snapshots but the last ``keep``; ``trim`` deletes the blocks before them.

        Raises
        ------
        StoreError
        """
        oldest = self._rows(
            "SELECT sequence FROM snapshots ORDER BY sequence DESC LIMIT 1 OFFSET ?", (keep - 1,)
        )
        if oldest:
            with self._transaction() as db:
                db.execute("DELETE FROM snapshots WHERE sequence < ?", oldest[0])
                self.reached("pruned snapshots")

    def trim(self, count: int) -> bool:
        """Delete some of the blocks before all snapshots, or free pages; whether more are left.

        Parameters
        ----------
        count : int
            Blocks that are deleted at once, fewer if they are long.

        Raises
        ------
        StoreError
        """
        blocks = self._rows(
            "SELECT sequence, length(body) FROM log "
            "WHERE sequence <= (SELECT min(sequence) FROM snapshots) ORDER BY sequence LIMIT ?",
            (count,),
        )
        if not blocks:
            return self._shrink()
        size = 0
        for last, body in blocks:  # noqa: B007  the last is used below
            size += body
            if size >= _BYTES:
                break
        with self._transaction() as db:
            db.execute("DELETE FROM log WHERE sequence <= ?", (last,))
            self.reached("trimmed log")
        return True

    def sweep(self, *, keys_before: float, now: float) -> bool:
        """Delete some old keys and expired rows; whether there may be more.

        Parameters
        ----------
        keys_before, now : float
            In seconds since 1970.

        Raises
        ------
        StoreError
        """
        old = self._rows(
            "SELECT EXISTS (SELECT 1 FROM keys WHERE at < ?) "
            "OR EXISTS (SELECT 1 FROM asked WHERE until < ?)",
            (keys_before, now),
        )
        if not old[0][0]:
            return False
        with self._transaction() as db:
            keys = db.execute(
                "DELETE FROM keys WHERE number IN "
                "(SELECT number FROM keys WHERE at < ? ORDER BY at LIMIT ?)",
                (keys_before, _SOME),
            )
            self.reached("swept keys")
            asked = db.execute(
                "DELETE FROM asked WHERE number IN "
                "(SELECT number FROM asked WHERE until < ? ORDER BY until LIMIT ?)",
                (now, _SOME),
            )
        return max(keys.rowcount, asked.rowcount) == _SOME

    def _shrink(self) -> bool:
        """Return some pages to the system, if many are free; whether that was done."""
        free = self._pages("freelist")
        if free <= _SPARE + self._pages("page") // 4:
            return False
        with self._transaction() as db:
            for _ in range(_PAGES):  # Python's sqlite3 makes one step of it, which is one page
                db.execute("PRAGMA incremental_vacuum(1)")
        return self._pages("freelist") < free  # a user may have switched it off

    def _pages(self, kind: str) -> int:
        return int(self._rows(f"PRAGMA {kind}_count")[0][0])

    # -- transactions, statements and errors -------------------------------------------------------

    def reached(self, step: str) -> None:
        """Called at each step of a write, for tests that stop the process there."""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction around the statements of this context.

        Raises
        ------
        StoreError
            If the disk is full or fails; ``broken`` is set if it is unknown what is on it now.
        """
        self.check_sound()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self.reached("begun")
            yield self._db
            self.reached("before commit")
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            failure = self._error(error, "written")
            self.full = failure if failure.full else None
            if _kind(error) not in _NOT_KEPT:
                self.broken = failure
            self._roll_back()
            raise failure from error
        except BaseException:
            self._roll_back()
            raise
        self.full = None
        self.reached("after commit")

    def _roll_back(self) -> None:
        try:
            self._db.rollback()
        except sqlite3.Error as error:
            self.broken = self._error(error, "written")

    def _rows(self, sql: str, values: Sequence[object] = (), *, verb: str = "read") -> list[Any]:
        return list(self._each(sql, values, verb))

    def _each(self, sql: str, values: Sequence[object], verb: str = "read") -> Iterator[Any]:
        """Row by row: together they may be larger than memory."""
        try:
            yield from self._db.execute(sql, values)
        except _SQLITE as error:
            raise self._error(error, verb) from error

    def _error(self, error: Exception, verb: str) -> StoreError:
        """The error for one of SQLite."""
        kind = _kind(error)
        if kind in {"CORRUPT", "NOTADB", "FORMAT", ""}:  # without a name: text that is none
            return self.damaged(str(error))
        start = f"{self.where}: {self.path} could not be {verb}: {error}."
        if kind in {"BUSY", "LOCKED"}:
            return LockedError(
                f"{start} Another process has it: stop that one first. A process that was forked "
                "from one that had it open cannot open it: start it by `spawn`."
            )
        if kind in _NOT_KEPT:
            return StoreError(f"{start} {_NOT_KEPT[kind]}", full=kind == "FULL")
        return StoreError(f"{start} {_ADVICE[verb]}")

    def damaged(self, why: str, otherwise: str = "") -> CorruptStoreError:
        """The error for a file that is not as it was written.

        Parameters
        ----------
        why, otherwise : str
            What is wrong, and what to do other than to restore a backup.
        """
        return CorruptStoreError(
            f"{self.where}: {self.path} is not as it was written: {why}. Restore it from a "
            f"backup{otherwise}."
        )


def _kind(error: BaseException) -> str:
    """CORRUPT, FULL, IOERR, …; empty for what Python itself refuses to read."""
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]
