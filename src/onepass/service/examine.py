"""Verification of a durable learner's file, without changing it.

Opening a file for learning verifies the last snapshot and the blocks after it. ``examine`` reads
and verifies every snapshot, every block from the oldest snapshot on, every key and every pending
row, as a backup needs. Blocks before the oldest snapshot, which a crash may leave, are not read:
nothing uses them, and they are deleted after the next start.
"""

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from onepass.errors import CheckpointError
from onepass.serialization import archive as sealed
from onepass.serialization.models import describe_contents
from onepass.service.journal import Journal, Snapshot
from onepass.service.lock import unlocked
from onepass.service.requests import Block

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
    LockedError
        If a process holds it.
    CorruptStoreError
        If anything in it is not as it was written.
    StoreError
        If it cannot be read, or is too new.
    """
    where, file = "examine", Path(path)
    with unlocked(file, where) as known, closing(Journal(file, where, read_only=True)) as journal:
        return _description(journal, known)


def _description(journal: Journal, acknowledged: int) -> dict[str, Any]:
    """All that the file holds, verified; its log must reach the acknowledged block."""
    snapshots, path = journal.snapshots(), str(journal.path)
    learner: dict[str, Any] = {}
    positions: dict[str, str] = {}
    version = rows = blocks = 0
    for i, each in enumerate(snapshots):
        following = snapshots[i + 1] if i + 1 < len(snapshots) else None
        found = journal.before(each.sequence)
        learner = describe_contents(_learner(journal, found), path)
        positions = json.loads(found.positions)
        version, rows, digest = found.sequence, found.seen, found.digest
        until = None if following is None else following.sequence
        for entry, digest in journal.entries(found, until):  # noqa: B007  the last is used below
            if entry.kind == "learn":
                Block.from_bytes(entry.body, path)
            if entry.note and entry.kind != "rollback":
                note = json.loads(entry.note)
                positions[note["source"]] = note["position"]
            version, rows, blocks = entry.sequence, entry.seen, blocks + 1
        if following is not None and digest != following.digest:
            raise journal.damaged(f"the log before block {following.sequence:,} was changed")
    if not snapshots:
        raise journal.damaged("a snapshot is missing")
    if version < acknowledged:
        came = f"its log ends at block {version:,}, but {acknowledged:,} were acknowledged"
        raise journal.damaged(came)
    return {
        **{name: learner[name] for name in ("class", "parameters")},
        "version": version,
        "rows_seen": rows,
        "snapshots": [_line(each) for each in snapshots],
        "blocks": blocks,
        "keys": sum(1 for _ in journal.answers()),
        "waiting": sum(len(Block.from_bytes(each.body, path)) for each in journal.asked()),
        "positions": positions,
        "bytes": journal.path.stat().st_size,
        "format": journal.format,
        "checked": "all of it is as it was written",
    }


def _learner(journal: Journal, found: Snapshot) -> sealed.Contents:
    try:
        return sealed.loads(found.body, str(journal.path))
    except CheckpointError as wrong:
        came = f"the snapshot after block {found.sequence:,} holds no learner: {wrong}"
        raise journal.damaged(came) from wrong


def _line(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.sequence,
        "rows_seen": snapshot.seen,
        "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(snapshot.at)),
        "why": snapshot.why,
        "bytes": snapshot.size,
    }
