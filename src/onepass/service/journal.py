"""Journal: everything that a durable learner has learned, in one SQLite file.

========= ==========================================================================================
table     a row is
========= ==========================================================================================
log       a block of rows as it was learned, in order: sequence 1, 2, …
keys      what became of a request, by its idempotency key
asked     a row that was predicted and waits for its answer, by its id
snapshots the whole learner after so many blocks
========= ==========================================================================================

What belongs together is committed together: a block, the keys of its requests, and the position of
the source it came from, which stands in the block's note. A commit is on the disk when it returns.
Each block's digest covers the one before it, and a snapshot's the positions of its time, so that
nothing that is ever read again can be changed, lost or torn without being noticed.

The file is held by one process and one connection: write-ahead log, ``synchronous=FULL``,
``locking_mode=EXCLUSIVE`` (https://www.sqlite.org/wal.html). It is made whole or not at all, with
the first snapshot in it.
"""

import ctypes
import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from onepass.errors import InUseError, StoreError
from onepass.serialization.atomic import replacing
from onepass.service.archive import SQLITE
from onepass.service.holding import Holding
from onepass.service.place import Place
from onepass.service.records import BEGINNING, Answer, Group, Snapshot, chained
from onepass.service.schema import made, opened
from onepass.service.upkeep import Upkeep

__all__ = ["Journal"]

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


class Journal(Upkeep):
    """The open file.

    Parameters
    ----------
    path : path-like
        Its folder must be there; if it is not there itself, ``begin`` makes it.
    where : str
        The public call, for messages.

    Attributes
    ----------
    sequence : int
        The last block.
    seen : int
        Rows that were learned until there.
    digest : bytes
        Of all blocks until there.

    Raises
    ------
    InUseError
        If another process holds it.
    StoreError
        If it cannot be opened or written, or is too new.
    DamagedError
        If it is no such file, or not as it was written.
    """

    def __init__(self, path: str | os.PathLike[str], where: str) -> None:
        super().__init__(Path(path), where)
        self.sequence, self.seen, self.digest = 0, 0, BEGINNING
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
        self._holding.note(0)
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
            self._holding.close()

    def abandon(self) -> None:
        """In a process that was forked from the one that has it: leave all as it is.

        SQLite must not close its copy of the connection: it would take the log, to which the other
        goes on writing, for its own, and remove it. So this copy is never let go.
        """
        if not self.empty:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))
            _ABANDONED.add(os.path.realpath(self.path))
        self._holding.close()

    # -- writing -------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Bring a group to the disk, whole or not at all.

        Raises
        ------
        StoreError
            If the disk is full: then nothing of it is kept. Or if it fails: then nobody knows.
        """
        digest, rows = self.digest, []
        for entry in group.entries:
            digest = chained(digest, entry)
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
            self._holding.note(self.sequence)

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

    def hold_complete(self) -> None:
        """Refuse a log that ends before what was acknowledged.

        Raises
        ------
        DamagedError
        """
        acknowledged = self._holding.acknowledged
        if self.sequence < acknowledged:
            raise self._damaged(
                f"its log ends at block {self.sequence:,}, but {acknowledged:,} were acknowledged",
                f"; if this is the backup, remove {self._holding.path} to go on from there",
            )

    def snapshot(self, taken: Snapshot) -> None:
        """Keep a snapshot, with the log's digest then."""
        self._write(lambda: self._insert(self._db, taken))

    # -- what stands behind them ---------------------------------------------------------------

    def _there(self) -> bool:
        """Whether the file is there; refused if it is none, or only its log is there."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            for ending in ("-wal", "-journal"):
                if (log := Path(f"{os.path.realpath(self.path)}{ending}")).exists():
                    raise self._damaged(
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
            raise self._damaged("it is empty", ", or remove it to begin anew")
        return True

    def _open(self) -> None:
        try:
            self._db = opened(self.path, self.where)
        except SQLITE as wrong:
            told = self._told(wrong, "opened")
            if isinstance(told, InUseError) and os.path.realpath(self.path) in _ABANDONED:
                told = InUseError(
                    f"{self.where}: {self.path} must be opened by a process that was not forked "
                    "from one that had it open: here SQLite takes it for held, whoever has let it "
                    "go. Open it in a process that is started anew, as by `spawn`."
                )
            raise told from wrong
        self._place = Place(self.path, self.where)

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
