"""Schema of a journal: its tables.

The format is SQLite's ``user_version``, and ``application_id`` marks the file as one of onepass.
The tables ``keys`` and ``pending`` are ordered by arrival, with an index: with text as the primary
key a commit would write twice as many pages.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from onepass.errors import CorruptStoreError, StoreError

APPLICATION = 0x6F6E6570
"""The bytes "onep", which identify an SQLite file of onepass."""

FORMAT = 1
"""Format of new files, and the newest format that can be read."""

_TABLES = (
    """CREATE TABLE log (
        sequence INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        rows INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        note TEXT NOT NULL,
        body BLOB NOT NULL,
        digest BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE snapshots (
        sequence INTEGER PRIMARY KEY,
        seen INTEGER NOT NULL,
        at REAL NOT NULL,
        why TEXT NOT NULL,
        positions TEXT NOT NULL,
        digest BLOB NOT NULL,
        body BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE keys (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        digest BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        at REAL NOT NULL,
        seal BLOB NOT NULL,
        predictions BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE pending (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        until REAL NOT NULL,
        seal BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX keys_by_time ON keys (at)",
    "CREATE INDEX pending_by_time ON pending (until)",
)

LOCK_TIMEOUT = 20.0
"""Seconds to wait while another program, such as a backup, has locked the file."""

_BEFORE = (
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
)
_AFTER = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: flush the cache of the disk
    "PRAGMA checkpoint_fullfsync = ON",
    f"PRAGMA journal_size_limit = {1 << 22}",  # shrink the log after a large snapshot
)


def create(path: Path) -> sqlite3.Connection:
    """Create the tables in an empty file; the transaction is left open."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("BEGIN EXCLUSIVE")
    for statement in _TABLES:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {FORMAT}")
    return db


def open_database(path: Path) -> sqlite3.Connection:
    """Open an existing file, without changing it.

    Raises
    ------
    StoreError
        If the format is newer.
    CorruptStoreError
        If the file is damaged, or belongs to another program.
    sqlite3.Error
        If the file cannot be opened or written.
    """
    address = f"{path.absolute().as_uri()}?mode=rw"  # do not create a missing file
    db = sqlite3.connect(
        address, LOCK_TIMEOUT, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        for pragma in _BEFORE:
            db.execute(pragma)
        check_format(db, path)
    except BaseException:
        db.close()
        raise
    return db


def begin_log(db: sqlite3.Connection, path: Path) -> None:
    """Switch to a write-ahead log, which changes the file.

    Raises
    ------
    StoreError
        If SQLite cannot use a write-ahead log.
    sqlite3.Error
        If the file cannot be written.
    """
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":  # a file system without shared memory: no other program can read the file
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{path} must be on a disk where SQLite can use a write-ahead log, got "
            f"the journal mode {mode!r}. Choose a local disk.",
        )
    for pragma in _AFTER:
        db.execute(pragma)


def check_format(db: sqlite3.Connection, path: Path) -> None:
    """Verify the format and the tables of a file.

    Raises
    ------
    StoreError
        If the format is newer.
    CorruptStoreError
        If the file is damaged, or belongs to another program.
    """
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise CorruptStoreError(
            f"{path} must be the file of a durable learner, got another program's "
            "database. Choose another path."
        )
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > FORMAT:
        raise StoreError(
            f"{path} must have a format up to {FORMAT}, got format {version} of a newer "
            "onepass. Upgrade onepass."
        )
    problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    statements = db.execute(  # except the tables of ANALYZE and of Litestream
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_stat[134]' "
        "AND name NOT GLOB '_litestream_*'"
    )
    if problem == "ok" and (version < 1 or {sql for (sql,) in statements} != set(_TABLES)):
        problem = "its tables are not those of its format"
    if problem != "ok":
        raise CorruptStoreError(
            f"{path} is not as it was written: {problem}. Restore it from a backup."
        )
