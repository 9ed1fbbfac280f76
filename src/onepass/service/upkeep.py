"""Upkeep: what a journal lets go: old snapshots and blocks, old keys, rows that waited too long.

Snapshots are few. All else is let go some at a time, so that nobody waits for it long.
"""

from onepass.service.transactions import Transactions

__all__ = ["Upkeep"]

_ROOM = 1 << 16  # bytes that a full disk must have again before anything is learned
_SOME = 1_000  # keys, and rows that wait, that are let go at once
_BYTES = 1 << 27  # of blocks, which are enough at once: a group of requests brings fewer
_SPARE = 1024  # free pages that may stay in the file
_PAGES = 256  # that are given back at once


class Upkeep(Transactions):
    """The open file, which is kept small; of the same parameters."""

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
