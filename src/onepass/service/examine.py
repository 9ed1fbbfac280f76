"""Examine: what stands in a durable learner's file, all of it checked, and none of it changed.

On opening, a file is held to what its learner goes on from: the last snapshot, and the blocks after
it. Here every snapshot is read, every block from the oldest of them on, every key, and every row
that waits, as one wants to know of a backup. Blocks before the oldest, which a crash may leave, are
read by nobody any more, and are let go after the next start.
"""

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from onepass.errors import CheckpointError, StoreError
from onepass.serialization import archive as sealed
from onepass.serialization.models import described
from onepass.service.journal import SQLITE, Archive, Snapshot
from onepass.service.lock import unheld
from onepass.service.requests import Block
from onepass.service.schema import looked

__all__ = ["examine"]


def examine(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a durable learner's file holds, once all of it was found to be as it was written.

    Parameters
    ----------
    path : path-like
        A file that nobody holds, such as a backup. It stays as it is, and its format too; where a
        log of SQLite lies beside it, ``-wal``, SQLite may put a ``-shm`` there.

    Returns
    -------
    description : dict
        ``class`` and ``parameters`` of the learner, as ``onepass inspect`` tells those of a model;
        ``version``, how many blocks it has learned, rollbacks counted too, and ``rows_seen``;
        ``snapshots``, a list of dicts of ``version``, ``rows_seen``, ``at``, ``why`` and ``bytes``;
        how many ``blocks`` stand in the log since the oldest snapshot, how many ``keys`` are
        remembered, and how many rows are ``waiting`` for their answers; ``positions`` of sources;
        ``bytes`` and ``format`` of the file; and ``checked``. All of it is fit for JSON.

    Raises
    ------
    InUseError
        If a process holds it.
    DamagedError
        If anything in it is not as it was written.
    StoreError
        If it cannot be read, or is too new.
    """
    where, file = "examine", Path(path)
    with unheld(file, where) as known, closing(_Examined(file, where)) as archive:
        return archive.description(known)


class _Examined(Archive):
    """The file, open for reading alone.

    Parameters
    ----------
    path : Path
    where : str
        The public call, for messages.
    """

    def __init__(self, path: Path, where: str) -> None:
        super().__init__(path, where)
        if not path.is_file():
            raise StoreError(f"{where}: {path} must be a file, but there is none. Check the path.")
        log = Path(f"{os.path.realpath(path)}-wal").exists()
        how = "mode=ro" if log else "mode=ro&immutable=1"
        try:
            address = f"{path.absolute().as_uri()}?{how}"
            self._db = sqlite3.connect(address, isolation_level=None, uri=True)
            self._format = looked(self._db, path, where)
        except SQLITE as wrong:
            self.close()
            raise self._told(wrong, "opened") from wrong
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let it go."""
        with suppress(AttributeError):
            self._db.close()

    def description(self, known: int) -> dict[str, Any]:
        """All that it holds, checked.

        Parameters
        ----------
        known : int
            How many blocks were acknowledged, as far as that stands beside the file.
        """
        snapshots = self.snapshots()
        learner: dict[str, Any] = {}
        positions: dict[str, str] = {}
        version = rows = blocks = 0
        for i, told in enumerate(snapshots):
            following = snapshots[i + 1] if i + 1 < len(snapshots) else None
            found = self.before(told.sequence)
            learner = described(self._learner(found), str(self.path))
            positions = json.loads(found.positions)
            version, rows, digest = found.sequence, found.seen, found.digest
            until = None if following is None else following.sequence
            for entry, digest in self.entries(found, until):  # noqa: B007  the last is asked below
                if entry.kind == "learn":
                    self._hold_block(entry.body)
                if entry.note and entry.kind != "rollback":
                    note = json.loads(entry.note)
                    positions[note["source"]] = note["position"]
                version, rows, blocks = entry.sequence, entry.seen, blocks + 1
            if following is not None and digest != following.digest:
                raise self._damaged(f"the log before block {following.sequence:,} was changed")
        if not snapshots:
            raise self._damaged("a snapshot is missing")
        if version < known:
            came = f"its log ends at block {version:,}, but {known:,} were acknowledged"
            raise self._damaged(came)
        return {
            **{name: learner[name] for name in ("class", "parameters")},
            "version": version,
            "rows_seen": rows,
            "snapshots": [_line(each) for each in snapshots],
            "blocks": blocks,
            "keys": sum(1 for _ in self.answers()),
            "waiting": self._waiters(),
            "positions": positions,
            "bytes": self.path.stat().st_size,
            "format": self._format,
            "checked": "all of it is as it was written",
        }

    def _waiters(self) -> int:
        """How many rows wait, each of them read."""
        found = 0
        for each in self.all_asked():
            self._hold_block(each.body)
            found += 1
        return found

    def _hold_block(self, body: bytes) -> None:
        """Refuse what is no block."""
        Block.from_bytes(body, str(self.path))

    def _learner(self, found: Snapshot) -> sealed.Contents:
        try:
            return sealed.unpacked(found.body, str(self.path))
        except CheckpointError as wrong:
            came = f"the snapshot after block {found.sequence:,} holds no learner: {wrong}"
            raise self._damaged(came) from wrong


def _line(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.sequence,
        "rows_seen": snapshot.seen,
        "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(snapshot.at)),
        "why": snapshot.why,
        "bytes": snapshot.size,
    }
