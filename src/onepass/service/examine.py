"""Verification of a durable learner's file, without changing it, and backups of files in use.

Opening a file for learning verifies only the last snapshot and the blocks after it. ``examine``
verifies all that restoring a backup may read: every snapshot, every block after the oldest
snapshot, every key and every pending row. Blocks before the oldest snapshot are ignored: a crash
may leave some, nothing reads them, and the next start deletes them.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from onepass.errors import CheckpointError, StoreError, calling
from onepass.serialization import archive
from onepass.serialization.atomic import atomic_write
from onepass.serialization.models import describe_contents
from onepass.service.journal import Journal, Snapshot
from onepass.service.lock import acknowledged_blocks, unlocked
from onepass.service.requests import decode_rows
from onepass.service.schema import FORMAT


@calling("examine")
def examine(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Verify the file of a durable learner, and describe its content.

    Parameters
    ----------
    path : path-like
        File that no process has open, such as a backup. Neither its content nor its format is
        changed; SQLite may create a ``-shm`` file beside it if there is a ``-wal``.

    Returns
    -------
    description : dict
        ``class`` and ``parameters`` of the learner, in the form of ``onepass inspect``;
        ``version``, the number of blocks learned, including rollbacks; ``rows_seen``;
        ``snapshots``, a list of dicts with ``version``, ``rows_seen``, ``at``, ``why`` and
        ``bytes``; ``blocks``, ``keys`` and ``labels_pending``, the numbers of blocks in the log
        after the oldest snapshot, of stored keys, and of rows that wait for their labels;
        ``positions`` of sources; ``bytes`` and ``format`` of the file; and ``checked``, a
        confirmation. All values can be encoded as JSON.

    Raises
    ------
    LockedError
        If a process has the file open.
    CorruptStoreError
        If any part of the file is damaged.
    StoreError
        If the file cannot be read, or has a newer format.
    """
    file = Path(path)
    with unlocked(file) as acknowledged, closing(Journal(file, read_only=True)) as journal:
        return _description(journal, acknowledged)


def _description(journal: Journal, acknowledged: int) -> dict[str, Any]:
    """Describe the verified content of a file; its log must reach the last acknowledged block."""
    snapshots, path = journal.snapshots(), str(journal.path)
    learner: dict[str, Any] = {}
    positions: dict[str, str] = {}
    version = rows = blocks = 0
    for i, each in enumerate(snapshots):
        following = snapshots[i + 1] if i + 1 < len(snapshots) else None
        snapshot = journal.before(each.sequence)
        learner = describe_contents(_learner(journal, snapshot), path)
        positions = json.loads(snapshot.positions)
        version, rows, digest = snapshot.sequence, snapshot.seen, snapshot.digest
        until = None if following is None else following.sequence
        for entry, digest in journal.entries(snapshot, until):  # noqa: B007  used after the loop
            if entry.kind == "learn":
                decode_rows(entry.body, path)
            if entry.note and entry.kind != "rollback":
                note = json.loads(entry.note)
                positions[note["source"]] = note["position"]
            version, rows, blocks = entry.sequence, entry.seen, blocks + 1
        if following is not None and digest != following.digest:
            raise journal.damaged(f"the log before block {following.sequence:,} was changed")
    if not snapshots:
        raise journal.damaged("a snapshot is missing")
    if version < acknowledged:
        problem = f"its log ends at block {version:,}, but {acknowledged:,} were acknowledged"
        raise journal.damaged(problem)
    return {
        **{name: learner[name] for name in ("class", "parameters")},
        "version": version,
        "rows_seen": rows,
        "snapshots": [_line(each) for each in snapshots],
        "blocks": blocks,
        "keys": sum(1 for _ in journal.results()),
        "labels_pending": sum(len(decode_rows(each.body, path)) for each in journal.pending_rows()),
        "positions": positions,
        "bytes": journal.path.stat().st_size,
        "format": FORMAT,
        "checked": _COPIED if _was_open(journal.path) else "the file is intact",
    }


_WAL = b"\2\2"  # bytes 18 and 19 of an SQLite file whose newest pages may be in a -wal file
_COPIED = (
    "all that is in the file is sound; it is a copy of a file in use: complete if a backup of "
    "SQLite made it, but without the newest rows if it was copied as a file. Copy files in use "
    "with: onepass backup"
)


def _was_open(path: Path) -> bool:
    """Return whether a file is a copy, without SQLite's log, of a file that was in use."""
    with path.open("rb") as file:
        mode = file.read(20)[18:]
    return mode == _WAL and not Path(f"{os.path.realpath(path)}-wal").exists()


@calling("backup")
def backup(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> dict[str, Any]:
    """Copy the file of a durable learner, also while a process learns, and verify the copy.

    The copy contains all rows acknowledged before the call. Learning does not wait for it; SQLite's
    log grows meanwhile.

    Parameters
    ----------
    path : path-like
        File of a durable learner, which may be in use.
    to : path-like
        The copy; an existing file is replaced when the new one is complete and verified.

    Returns
    -------
    description : dict
        That of the copy; see ``examine``.

    Raises
    ------
    CorruptStoreError
        If the file is damaged.
    StoreError
        If the file cannot be read, or the copy cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import onepass as op
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with op.durable(f"{folder}/flow.db", op.RLSRegressor()) as model:
    ...         _ = model.learn([[1.0], [2.0]], [3.0, 5.0])
    ...         backup(f"{folder}/flow.db", f"{folder}/copy.db")["rows_seen"]
    2
    """
    file, target = Path(path), Path(to)
    if os.path.realpath(file) == os.path.realpath(target):
        raise StoreError(f"the copy must be another file than {file}, got the same. Choose a path.")
    try:
        acknowledged = acknowledged_blocks(file)
        with closing(Journal(file, read_only=True)) as journal, atomic_write(target) as temporary:
            journal.copy(temporary)
            with closing(Journal(temporary, read_only=True)) as copied:
                return _description(copied, acknowledged)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{target} could not be written: {error.strerror or error}. Check the folder and the "
            "free space."
        ) from error


def _learner(journal: Journal, snapshot: Snapshot) -> archive.Contents:
    try:
        return archive.loads(snapshot.body, str(journal.path))
    except CheckpointError as error:
        problem = f"the snapshot after block {snapshot.sequence:,} contains no learner: {error}"
        raise journal.damaged(problem) from error


def _line(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.sequence,
        "rows_seen": snapshot.seen,
        "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(snapshot.at)),
        "why": snapshot.why,
        "bytes": snapshot.size,
    }
