"""Journal of a durable learner: a write-ahead log and snapshots, in one SQLite file.

========= ==========================================================================================
table     each row is
========= ==========================================================================================
log       a learned block; blocks are numbered 1, 2, … in the order of learning
keys      the result of a request, by idempotency key
pending   a predicted row that waits for its label, by id
snapshots the learner after a block
========= ==========================================================================================

Guarantees
----------
- A commit is atomic and durable: when it returns, the block, the keys of its requests and the
  position of its source (in the block's note) are on the disk. If it fails, none of these are.
- The digest of a block covers the digest of the block before it; the digest of a snapshot covers
  the log and the positions up to its block; keys and pending rows have separate digests. Records
  are verified when they are read: a changed, missing or torn record raises ``CorruptStoreError``.
- If a write fails for another reason than lack of space, its outcome is unknown: the journal is
  ``broken`` and rejects further writes, as retrying a failed commit may lose rows.
- The file is created atomically, with its first snapshot.

One process learns, through one connection: WAL, ``synchronous=FULL``
(https://www.sqlite.org/wal.html). Other programs may read the file meanwhile: ``onepass backup``,
``.backup`` and ``VACUUM INTO`` of SQLite, Litestream. A file that was closed is in the mode DELETE,
without a ``-wal`` file, so that a copy of the file alone is complete. Retention deletes a bounded
amount at a time, so that it delays commits only briefly.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import os
import sqlite3
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onepass.errors import CorruptStoreError, LockedError, StoreError
from onepass.serialization.atomic import atomic_write
from onepass.service.lock import FileIdentity, FileLock
from onepass.service.schema import (
    LOCK_TIMEOUT,
    begin_log,
    check_format,
    create,
    open_database,
)

_BEGINNING = b"\0" * 32
"""Digest before the first block."""

_LENGTH = struct.Struct("<Q")
_LATEST = 1 << 62  # greater than the number of any block


class Entry(NamedTuple):
    """A learned block."""

    sequence: int
    kind: str
    """One of "learn", "rollback", and "pass", which is a source's position without rows."""
    rows: int
    seen: int
    """Rows learned so far, including rolled-back rows."""
    note: str
    """JSON with ``source`` and ``position``, or with ``to`` of a rollback; otherwise empty."""
    body: bytes


class StoredResult(NamedTuple):
    """The result of a request with an idempotency key."""

    key: str
    digest: bytes
    """Digest of the request, which must match if the key is used again."""
    sequence: int
    predictions: bytes
    at: float


class PendingRow(NamedTuple):
    """A row that waits for its label."""

    id: str
    until: float
    body: bytes


_Record = TypeVar("_Record", StoredResult, PendingRow)


class Snapshot(NamedTuple):
    """The learner after a block."""

    sequence: int
    seen: int
    at: float
    why: str
    positions: str
    """JSON with the positions of sources."""
    digest: bytes
    """Digest of the log up to the block."""
    body: bytes = b""
    size: int = 0
    """Size of the body, also of a snapshot without it."""


@dataclass(slots=True)
class Group:
    """Records to commit in one transaction."""

    entries: list[Entry] = field(default_factory=list)
    results: list[StoredResult] = field(default_factory=list)
    pending_rows: list[PendingRow] = field(default_factory=list)
    labelled: list[str] = field(default_factory=list)
    """Ids of pending rows that are learned now."""
    snapshot: Snapshot | None = None


def _chained(before: bytes, entry: Entry) -> bytes:
    """Return the digest of a block, given the digest of the block before it."""
    sequence, kind, rows, seen, note, body = entry
    head = f"{sequence} {kind} {rows} {seen} {note}\n".encode()
    digest = hashlib.sha256(before + head)
    digest.update(body)
    return digest.digest()


def _seal(*fields: object) -> bytes:
    """Return the digest of the fields of a record, each preceded by its length."""
    digest = hashlib.sha256()
    for value in fields:
        data = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)
    return digest.digest()


_SQLITE = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions that Python's sqlite3 raises, also for damaged files."""

_NOT_WRITTEN = {
    "FULL": "Nothing was written. Free disk space, then retry.",
    "TOOBIG": "Nothing was written: a record can have at most 1 GB. Send fewer rows per request, "
    "or use a smaller learner.",
}
"""Kinds of errors after which nothing is on the disk, with their remedies."""

_ADVICE = {
    "opened": "Check the permissions of the file and of its folder.",
    "created": "Check the permissions of its folder, and the free space on the disk.",
    "read": "Check the disk.",
    "written": "It is unknown whether the last rows were written; further writes are rejected. "
    "Check the disk, open the file again, and repeat the requests with the same keys.",
}
_MOVED = (
    "must stay at its path, but it was moved, removed or replaced. Further writes are rejected: "
    "put the file back, with its -wal file if there is one, and open it again."
)
_LOG_MOVED = (
    "must stay at its path, but it was moved or removed. Further writes are rejected: stop this "
    "process with SIGTERM or close the learner, either of which saves all learned rows, and open "
    "the file again."
)
_MIN_SQLITE = (3, 37)  # the first SQLite with STRICT tables
_RESULTS = "SELECT key, digest, sequence, predictions, at, seal FROM keys"
_PENDING_ROWS = "SELECT id, until, body, seal FROM pending"
_SNAPSHOT = "sequence, seen, at, why, positions, digest"
_MIN_ROOM = 1 << 16  # free bytes required after a full disk before learning resumes
_MAX_DELETED = 1_000  # max keys, and pending rows, deleted at once
_MAX_DELETED_BYTES = 1 << 27  # max bytes of blocks deleted at once
_MAX_FREE_PAGES = 1024  # free pages that may stay in the file
_PAGES_PER_VACUUM = 256  # pages returned to the file system at once

_LOG = (
    "INSERT INTO log (sequence, kind, rows, seen, note, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_KEY = (
    "INSERT INTO keys (key, digest, sequence, predictions, at, seal) VALUES (?, ?, ?, ?, ?, ?)"
)
_INSERT_PENDING = "INSERT OR REPLACE INTO pending (id, until, body, seal) VALUES (?, ?, ?, ?)"


class Journal:
    """The file of a durable learner; not thread-safe.

    Parameters
    ----------
    path : path-like
        Path in an existing folder; ``begin`` creates the file if it does not exist.
    read_only : bool, default False
        Open an existing file that no process has open, without changing or upgrading it. SQLite may
        create a ``-shm`` file beside it if there is a ``-wal`` file.

    Attributes
    ----------
    sequence : int
        Number of the last block.
    seen : int
        Rows learned so far.
    digest : bytes
        Digest of all blocks so far.
    broken : StoreError or None
        Error after which writes are rejected.
    full : StoreError or None
        Error of the last write if the disk was full.
    format : int
        Format of the file, if it is opened read-only.

    Raises
    ------
    LockedError
        If another process has the file open.
    StoreError
        If the file cannot be opened or written, or has a newer format.
    CorruptStoreError
        If the file is damaged, or is not the file of a durable learner.
    """

    _db: sqlite3.Connection
    _lock: FileLock | None = None
    _logs = False  # whether this connection writes to a log
    format: int

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.sequence, self.seen, self.digest = 0, 0, _BEGINNING
        self.broken: StoreError | None = None
        self.full: StoreError | None = None
        if sqlite3.sqlite_version_info < _MIN_SQLITE:
            raise StoreError(
                f"SQLite must be at least {'.'.join(map(str, _MIN_SQLITE))}, got "
                f"{sqlite3.sqlite_version}. Install a newer Python, which contains SQLite."
            )
        try:
            if read_only:
                self._open_read_only()
            else:
                self._exists()  # before a lock file is created beside it
                self._lock = FileLock(self.path)
                if self._exists():
                    self._open()
        except BaseException:
            self.close()
            raise

    @property
    def empty(self) -> bool:
        """Whether the file does not exist yet."""
        return not hasattr(self, "_db")

    def begin(self, first: Snapshot) -> None:
        """Create the file, with the first snapshot in it."""
        if self._lock is not None:
            self._lock.acknowledge(0)
        try:
            with atomic_write(self.path) as temporary, closing(create(temporary)) as db:
                self._insert(db, first)
                db.execute("COMMIT")
                self.reached("created")
        except sqlite3.Error as error:
            raise self._error(error, "created") from error
        except OSError as error:
            raise StoreError(
                f"{self.path} could not be created: {error.strerror or error}. "
                f"{_ADVICE['created']}",
            ) from error
        self.reached("in place")
        self._open()

    @property
    def log_bytes(self) -> int:
        """Size of SQLite's log, 0 without one."""
        with suppress(OSError):
            return Path(f"{os.path.realpath(self.path)}-wal").stat().st_size
        return 0

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            if not self.empty:
                if self._logs and self.broken is None:
                    with suppress(sqlite3.Error):  # another program reads the file
                        self._db.execute("PRAGMA busy_timeout = 0")
                        self._db.execute("PRAGMA journal_mode = DELETE")
                self._db.close()
        finally:
            self._unlock()

    def abandon(self) -> None:
        """Release the file in a forked process, without closing SQLite's connection.

        Closing it would remove the log, to which the parent process still writes.
        """
        if not self.empty:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))
            del self._db
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _exists(self) -> bool:
        """Return whether the file exists; raise if it is irregular, or only its log exists."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            for ending in ("-wal", "-journal"):
                if (log := Path(f"{os.path.realpath(self.path)}{ending}")).exists():
                    raise self.damaged(
                        f"{log} exists without it", ", or remove that file to create a new learner"
                    ) from None
            return False
        except OSError as error:
            raise StoreError(
                f"{self.path} could not be opened: {error.strerror}. {_ADVICE['opened']}",
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(
                f"{self.path} must be a regular file or not exist yet, got a folder or "
                "a device. Choose another path."
            )
        if not status.st_size:
            raise self.damaged("it is empty", ", or remove it to create a new learner")
        return True

    def _open(self) -> None:
        try:
            self._db = open_database(self.path)
        except _SQLITE as error:
            raise self._error(error, "opened") from error
        real = os.path.realpath(self.path)  # independent of the working directory
        self._file, self._log = FileIdentity(real), FileIdentity(f"{real}-wal")

    def begin_log(self) -> None:
        """Switch to a write-ahead log; until then the file is unchanged.

        Raises
        ------
        StoreError
        """
        try:
            begin_log(self._db, self.path)
        except _SQLITE as error:
            raise self._error(error, "opened") from error
        self._logs = True

    def _open_read_only(self) -> None:
        if not self.path.is_file():
            raise StoreError(
                f"{self.path} must be an existing file, but there is no file at this "
                "path. Check the path."
            )
        log = Path(f"{os.path.realpath(self.path)}-wal").exists()
        options = "mode=ro" if log else "mode=ro&immutable=1"
        try:
            address = f"{self.path.absolute().as_uri()}?{options}"
            self._db = sqlite3.connect(address, isolation_level=None, uri=True)
            check_format(self._db, self.path)
        except _SQLITE as error:
            raise self._error(error, "opened") from error

    # -- checks -----------------------------------------------------------------------------------

    def check_writable(self, *, log: bool = False) -> None:
        """Check that no write has failed, and that the file and SQLite's log are at their paths.

        Raises
        ------
        StoreError
        """
        if self.broken is None:
            if self._file.changed():
                self.broken = StoreError(f"{self.path} {_MOVED}")
            elif log and self._log.changed():
                self.broken = StoreError(f"{self.path}-wal {_LOG_MOVED}")
        self.check_sound()

    def check_in_place(self) -> None:
        """Check that the file is still at its path.

        Raises
        ------
        StoreError
        """
        if self._file.changed():
            raise StoreError(f"{self.path} {_MOVED}")

    def check_sound(self) -> None:
        """Check that no write has failed with unknown outcome.

        Raises
        ------
        StoreError
        """
        if self.broken is not None:
            raise copy.copy(self.broken)

    def check_complete(self) -> None:
        """Check that the log reaches the last acknowledged block.

        Raises
        ------
        CorruptStoreError
        """
        lock = self._lock
        if lock is not None and self.sequence < lock.acknowledged:
            raise self.damaged(
                f"its log ends at block {self.sequence:,}, but {lock.acknowledged:,} were "
                "acknowledged",
                f"; if this file is the backup, remove {lock.path} to continue from it",
            )

    def check_room(self) -> None:
        """Check that a disk that was full has space again.

        Raises
        ------
        StoreError
        """
        if self.full is not None:
            # a checkpoint frees pages of which the log contains several versions
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)", verb="written")
            with self._transaction() as db:
                db.execute(_INSERT_PENDING, ("", 0.0, bytes(_MIN_ROOM), b""))
            with self._transaction() as db:
                db.execute("DELETE FROM pending WHERE id = ''")

    # -- appending --------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Commit a group to the disk atomically.

        Raises
        ------
        StoreError
            If the disk is full; then nothing is written. If the disk fails; then it is unknown
            whether the group was written.
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
                self._insert(db, group.snapshot._replace(digest=digest))
        if rows:
            self.ends(entry.sequence, entry.seen, digest)
            if self._lock is not None:
                self._lock.acknowledge(self.sequence)

    def ends(self, sequence: int, seen: int, digest: bytes) -> None:
        """Set the number of the last block, and the rows and the digest up to it."""
        self.sequence, self.seen, self.digest = sequence, seen, digest

    def _write_requests(self, db: sqlite3.Connection, group: Group) -> None:
        if group.results:
            db.executemany(_INSERT_KEY, [(*each, _seal(*each)) for each in group.results])
            self.reached("keys")
        if group.pending_rows:
            db.executemany(_INSERT_PENDING, [(*each, _seal(*each)) for each in group.pending_rows])
            self.reached("pending rows")
        if group.labelled:
            db.executemany("DELETE FROM pending WHERE id = ?", [(name,) for name in group.labelled])
            self.reached("labels")

    def _insert(self, db: sqlite3.Connection, snapshot: Snapshot) -> None:
        db.execute(
            f"INSERT OR REPLACE INTO snapshots ({_SNAPSHOT}, body, seal) "  # noqa: S608
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*snapshot[:-1], _seal(*snapshot[:-1])),
        )
        self.reached("snapshot")

    # -- reading ----------------------------------------------------------------------------------

    def results(self, keys: Sequence[str] | None = None) -> Iterator[StoredResult]:
        """Yield the stored results of requests with these keys; by default of all keys.

        Raises
        ------
        CorruptStoreError
            If a record is damaged.
        """
        sql = _RESULTS
        if keys is not None:
            sql = f"{_RESULTS} WHERE key IN ({', '.join('?' * len(keys))})"
        return self._records(StoredResult, sql, keys or (), "the result of the request")

    def pending_rows(self, name: str | None = None) -> Iterator[PendingRow]:
        """Yield the pending row with an id, if it exists; by default all pending rows.

        Raises
        ------
        CorruptStoreError
            If a record is damaged.
        """
        # a crash in ``check_room`` may have left a row without an id
        condition, values = ("id != ''", ()) if name is None else ("id = ?", (name,))
        what = "a row that waits for its label,"
        return self._records(PendingRow, f"{_PENDING_ROWS} WHERE {condition}", values, what)

    def _records(
        self, kind: type[_Record], sql: str, values: Sequence[object], what: str
    ) -> Iterator[_Record]:
        """Yield records, after verifying the digest of each."""
        for *row, seal in self._each(sql, values):
            record = kind(*row)
            if _seal(*record) != seal:
                raise self.damaged(f"{what} {record[0]!r} was changed")
            yield record

    def count_pending(self, now: float) -> int:
        """Return the number of rows that wait for their labels."""
        return int(self._rows("SELECT count(*) FROM pending WHERE until >= ?", (now,))[0][0])

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots without their bodies, oldest first."""
        sql = f"SELECT {_SNAPSHOT}, x'', length(body) FROM snapshots ORDER BY sequence"  # noqa: S608
        return [Snapshot(*row) for row in self._rows(sql)]

    def before(self, sequence: int | None = None) -> Snapshot:
        """Return the last snapshot at or before a block; by default the last snapshot.

        Raises
        ------
        CorruptStoreError
            If the snapshot is missing or damaged.
        """
        rows = self._rows(
            f"SELECT {_SNAPSHOT}, body, length(body), seal FROM snapshots "  # noqa: S608
            "WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1",
            (_LATEST if sequence is None else sequence,),
        )
        if not rows:
            raise self.damaged("a snapshot is missing")
        *values, seal = rows[0]
        snapshot = Snapshot(*values)
        if _seal(*snapshot[:-1]) != seal:
            raise self.damaged(f"the snapshot after block {snapshot.sequence:,} was changed")
        return snapshot

    def entries(self, after: Snapshot, until: int | None) -> Iterator[tuple[Entry, bytes]]:
        """Yield the blocks after a snapshot with their digests, up to block ``until`` or the last.

        Raises
        ------
        CorruptStoreError
            If a block is missing or damaged.
        """
        digest, expected = after.digest, after.sequence + 1
        for *values, stored in self._each(
            "SELECT sequence, kind, rows, seen, note, body, digest FROM log "
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

    def copy(self, to: Path) -> None:
        """Write the content at this moment to an empty file, without a log.

        Raises
        ------
        StoreError
        """
        self._rows("VACUUM INTO ?", (str(to),), verb="written")

    # -- retention --------------------------------------------------------------------------------

    def prune(self, count: int) -> None:
        """Delete all but the last ``count`` snapshots; ``trim`` deletes the blocks before them.

        Raises
        ------
        StoreError
        """
        oldest = self._rows(
            "SELECT sequence FROM snapshots ORDER BY sequence DESC LIMIT 1 OFFSET ?", (count - 1,)
        )
        if oldest:
            with self._transaction() as db:
                db.execute("DELETE FROM snapshots WHERE sequence < ?", oldest[0])
                self.reached("pruned snapshots")

    def trim(self, count: int) -> bool:
        """Delete some blocks before the oldest snapshot, or free pages; return whether more remain.

        Parameters
        ----------
        count : int
            Max blocks to delete; fewer are deleted if they are large.

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
        for last, body_size in blocks:  # noqa: B007  used after the loop
            size += body_size
            if size >= _MAX_DELETED_BYTES:
                break
        with self._transaction() as db:
            db.execute("DELETE FROM log WHERE sequence <= ?", (last,))
            self.reached("trimmed log")
        return True

    def delete_expired(self, *, keys_before: float, now: float) -> bool:
        """Delete some old keys and expired rows; return whether more may remain.

        Parameters
        ----------
        keys_before, now : float
            Time before which keys are old, and the current time, in seconds since 1970.

        Raises
        ------
        StoreError
        """
        exists = self._rows(
            "SELECT EXISTS (SELECT 1 FROM keys WHERE at < ?) "
            "OR EXISTS (SELECT 1 FROM pending WHERE until < ?)",
            (keys_before, now),
        )
        if not exists[0][0]:
            return False
        with self._transaction() as db:
            keys = db.execute(
                "DELETE FROM keys WHERE number IN "
                "(SELECT number FROM keys WHERE at < ? ORDER BY at LIMIT ?)",
                (keys_before, _MAX_DELETED),
            )
            self.reached("swept keys")
            pending_rows = db.execute(
                "DELETE FROM pending WHERE number IN "
                "(SELECT number FROM pending WHERE until < ? ORDER BY until LIMIT ?)",
                (now, _MAX_DELETED),
            )
        return max(keys.rowcount, pending_rows.rowcount) == _MAX_DELETED

    def _shrink(self) -> bool:
        """Return some pages to the file system if many are free; return whether it did."""
        free = self._pages("freelist")
        if free <= _MAX_FREE_PAGES + self._pages("page") // 4:
            return False
        with self._transaction() as db:
            # Python's sqlite3 executes one step of the statement, which frees one page
            for _ in range(_PAGES_PER_VACUUM):
                db.execute("PRAGMA incremental_vacuum(1)")
        return self._pages("freelist") < free  # not if auto_vacuum is disabled

    def _pages(self, kind: str) -> int:
        return int(self._rows(f"PRAGMA {kind}_count")[0][0])

    # -- transactions, statements and errors -------------------------------------------------------

    def reached(self, step: str) -> None:
        """Do nothing; called at each step of a write, so that tests can kill the process there."""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Execute the statements of the context in one transaction.

        Raises
        ------
        StoreError
            If the disk is full or fails; ``broken`` is set if the outcome is unknown.
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
            if _kind(error) not in {*_NOT_WRITTEN, "BUSY"}:
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
        """Yield rows one by one, as all rows together may exceed memory."""
        try:
            yield from self._db.execute(sql, values)
        except _SQLITE as error:
            raise self._error(error, verb) from error

    def _error(self, error: Exception, verb: str) -> StoreError:
        """Return the StoreError for an error of SQLite."""
        kind = _kind(error)
        if kind in {"CORRUPT", "NOTADB", "FORMAT", ""}:  # "": text that is not UTF-8
            return self.damaged(str(error))
        start = f"{self.path} could not be {verb}: {error}."
        if kind in {"BUSY", "LOCKED"}:
            return LockedError(
                f"{start} Another program has locked it for {LOCK_TIMEOUT:.0f} seconds; nothing "
                "was written. Wait until it is done, or stop it, then retry. If this process was "
                "forked from one that has the file open, start it with the method `spawn` instead."
            )
        if kind in _NOT_WRITTEN:
            return StoreError(f"{start} {_NOT_WRITTEN[kind]}", full=kind == "FULL")
        return StoreError(f"{start} {_ADVICE[verb]}")

    def damaged(self, why: str, otherwise: str = "") -> CorruptStoreError:
        """Return the error for a damaged file.

        Parameters
        ----------
        why, otherwise : str
            Damage, and an alternative to restoring a backup, for the message.
        """
        return CorruptStoreError(
            f"{self.path} is not as it was written: {why}. Restore it from a backup{otherwise}.",
        )


def _kind(error: BaseException) -> str:
    """Return CORRUPT, FULL, IOERR, …; "" for an error of Python, such as text that is not UTF-8."""
    return str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]
