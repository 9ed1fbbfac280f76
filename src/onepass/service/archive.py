"""Archive: what a journal holds, read again.

Whatever is read is held to its digest. What SQLite raises is told in the user's words.
"""

import copy
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onepass.errors import DamagedError, InUseError, StoreError
from onepass.service.place import Place
from onepass.service.records import Answer, Asked, Entry, Snapshot, chained

__all__ = ["HARMLESS", "SQLITE", "Archive", "kind_of"]

SQLITE = (sqlite3.Error, UnicodeDecodeError)
"""What Python's sqlite3 raises, of damaged files too."""

HARMLESS = {
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


class Archive:
    """The open file.

    Parameters
    ----------
    path : Path
    where : str
        The public call, for messages.

    Attributes
    ----------
    broken : StoreError or None
        What has failed for good.
    full : StoreError or None
        Set where the disk was full when it was written last.
    """

    _db: sqlite3.Connection
    _place: Place | None = None

    def __init__(self, path: Path, where: str) -> None:
        self.path, self.where = path, where
        self.broken: StoreError | None = None
        self.full: StoreError | None = None

    def reached(self, step: str) -> None:
        """Called at each step of what is written, for tests that stop the process there."""

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

    # -- requests ------------------------------------------------------------------------------

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

    # -- versions ------------------------------------------------------------------------------

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
            raise self._damaged("a snapshot is missing")
        at, seen, when, why, positions, digest, body, seal = rows[0]
        found = Snapshot(at, seen, when, why, positions, digest, body, len(body))
        if found.seal() != seal:
            raise self._damaged(f"the snapshot after block {found.sequence:,} was changed")
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
            digest = chained(digest, entry)
            if entry.sequence != expected or digest != written:
                raise self._damaged(f"block {expected:,} of its log is missing or was changed")
            yield entry, digest
            expected += 1
        if until is not None and expected != until + 1:
            raise self._damaged(f"block {expected:,} of its log is missing")

    # -- what stands behind them ---------------------------------------------------------------

    def _rows(self, sql: str, values: Sequence[Any] = (), *, verb: str = "read") -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except SQLITE as wrong:
            raise self._told(wrong, verb) from wrong

    def _answer(self, *row: Any) -> Answer:
        """What stands in a row of the table, held to its seal."""
        found = Answer(*row[:-1])
        if found.seal() != row[-1]:
            raise self._damaged(f"what became of the request {found.key!r} was changed")
        return found

    def _asked(self, *row: Any) -> Asked:
        """The same of one that waits."""
        found = Asked(*row[:-1])
        if found.seal() != row[-1]:
            came = f"the row {found.id!r}, which waits for its answer, was changed"
            raise self._damaged(came)
        return found

    def _each(self, sql: str, values: Sequence[Any]) -> Iterator[Any]:
        """Row by row: together they may be larger than memory."""
        try:
            yield from self._db.execute(sql, values)
        except SQLITE as wrong:
            raise self._told(wrong, "read") from wrong

    def hold_sound(self) -> None:
        """Refuse where that has failed for good; end what an interrupt left open."""
        self._take_back()
        if self.broken is not None:
            raise copy.copy(self.broken)

    def _take_back(self) -> None:
        """End a transaction that was not committed."""
        try:
            self._db.rollback()
        except sqlite3.Error as wrong:
            self.broken = self._told(wrong, "written")

    def _told(self, wrong: Exception, verb: str) -> StoreError:
        """What SQLite raises, in the user's words."""
        if (kind := kind_of(wrong)) in _DAMAGED:
            return self._damaged(str(wrong))
        start = f"{self.where}: {self.path} could not be {verb}: {wrong}."
        if kind in _HELD:
            return InUseError(f"{start} Another process has it: stop that one first.")
        if kind in HARMLESS:
            return StoreError(f"{start} {HARMLESS[kind]}", full=kind == "FULL")
        return StoreError(f"{start} {_ADVICE[verb]}")

    def _damaged(self, why: str, otherwise: str = "") -> DamagedError:
        return DamagedError(
            f"{self.where}: {self.path} is not as it was written: {why}. Restore it from a "
            f"backup{otherwise}."
        )


def kind_of(wrong: Exception) -> str:
    """CORRUPT, FULL, IOERR, …; empty for what Python itself refuses to read.

    Parameters
    ----------
    wrong : Exception
        What was raised.
    """
    return str(getattr(wrong, "sqlite_errorname", "")).removeprefix("SQLITE_").partition("_")[0]
