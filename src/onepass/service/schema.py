"""Schema of a journal: its tables, and upgrades of former formats.

The format is SQLite's ``user_version``, and ``application_id`` marks the file as one of onepass. A
newer format is refused; an older one is upgraded in one transaction, so a crash or a full disk
leaves the old format or the new one.

====== =============================================================================================
format tables ``keys`` and ``asked``
====== =============================================================================================
1      without rowid, ordered by key: a commit of many keys writes as many pages
2      ordered by arrival, with an index: half the bytes a commit, and fewer pages to read
====== =============================================================================================

For a new format, add a line to ``_LAYOUTS``, and one to ``_UPGRADES`` that leads to it.
"""

import sqlite3
from pathlib import Path

from onepass.errors import CorruptStoreError, StoreError

__all__ = ["APPLICATION", "FORMAT", "checked_format", "create", "open_database"]

APPLICATION = 0x6F6E6570
"""The bytes "onep", which identify a file of onepass among those of SQLite."""

_LOG = """CREATE TABLE log (
        sequence INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        rows INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        aside INTEGER NOT NULL,
        note TEXT NOT NULL,
        body BLOB NOT NULL,
        digest BLOB NOT NULL
    ) STRICT"""
_SNAPSHOTS = """CREATE TABLE snapshots (
        sequence INTEGER PRIMARY KEY,
        seen INTEGER NOT NULL,
        at REAL NOT NULL,
        why TEXT NOT NULL,
        positions TEXT NOT NULL,
        digest BLOB NOT NULL,
        body BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT"""
_INDEXES = ("CREATE INDEX keys_by_time ON keys (at)", "CREATE INDEX asked_by_time ON asked (until)")
_FIRST = (
    """CREATE TABLE keys (
        key TEXT PRIMARY KEY,
        digest BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        said BLOB NOT NULL,
        at REAL NOT NULL,
        seal BLOB NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE asked (
        id TEXT PRIMARY KEY,
        until REAL NOT NULL,
        body BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT, WITHOUT ROWID""",
)
_SECOND = (
    """CREATE TABLE keys (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        digest BLOB NOT NULL,
        sequence INTEGER NOT NULL,
        at REAL NOT NULL,
        seal BLOB NOT NULL,
        said BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE asked (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        until REAL NOT NULL,
        seal BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT""",
)
_LAYOUTS = {  # the tables of each format
    1: (_LOG, _SNAPSHOTS, *_FIRST, *_INDEXES),
    2: (_LOG, _SNAPSHOTS, *_SECOND, *_INDEXES),
}
_UPGRADES = {  # from a format to the next
    1: (
        "DROP INDEX keys_by_time",
        "DROP INDEX asked_by_time",
        "ALTER TABLE keys RENAME TO former_keys",
        "ALTER TABLE asked RENAME TO former_asked",
        *_SECOND,
        """INSERT INTO keys (key, digest, sequence, at, seal, said)
            SELECT key, digest, sequence, at, seal, said FROM former_keys""",
        """INSERT INTO asked (id, until, seal, body)
            SELECT id, until, seal, body FROM former_asked""",
        "DROP TABLE former_keys",
        "DROP TABLE former_asked",
        *_INDEXES,
    )
}
FORMAT = max(_LAYOUTS)
"""The newest format that this version reads, and the one that it writes."""

_BEFORE = (
    "PRAGMA locking_mode = EXCLUSIVE",  # first, so that no shared memory is used
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
)
_AFTER = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: to the disk, not to its cache
    "PRAGMA checkpoint_fullfsync = ON",
    f"PRAGMA journal_size_limit = {1 << 22}",  # after a large snapshot
)


def create(path: Path) -> sqlite3.Connection:
    """Open an empty file, in an open transaction that creates its tables."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("BEGIN EXCLUSIVE")
    for statement in _LAYOUTS[FORMAT]:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {FORMAT}")
    return db


def open_database(path: Path, where: str) -> sqlite3.Connection:
    """Open and lock an existing file, and upgrade an older format.

    Raises
    ------
    StoreError
        If the format is newer, or SQLite has no write-ahead log there.
    CorruptStoreError
        If it is another program's file, or damaged.
    sqlite3.Error
        If it cannot be opened or written; an older format is then unchanged.
    """
    address = f"{path.absolute().as_uri()}?mode=rw"  # without creating it
    db = sqlite3.connect(address, isolation_level=None, check_same_thread=False, uri=True)
    try:
        for pragma in _BEFORE:
            db.execute(pragma)
        found = checked_format(db, path, where)
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(  # noqa: TRY301  the connection must be closed
                f"{where}: {path} must be on a disk where SQLite can use a write-ahead log, got "
                f"the journal mode {mode!r}. Choose a local disk."
            )
        for pragma in _AFTER:
            db.execute(pragma)
        if found != FORMAT:
            _upgrade(db, found)
    except BaseException:
        db.close()
        raise
    return db


def checked_format(db: sqlite3.Connection, path: Path, where: str) -> int:
    """The format of a file.

    Raises
    ------
    StoreError
        If it is newer.
    CorruptStoreError
        If the file is another program's, or damaged.
    """
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise CorruptStoreError(
            f"{where}: {path} must be the file of a durable learner, got another program's "
            "database. Choose another path."
        )
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found > FORMAT:
        raise StoreError(
            f"{where}: {path} is format {found}; this version reads up to {FORMAT}. Upgrade "
            "onepass."
        )
    problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    statements = db.execute(  # without the statistics of ANALYZE
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_stat[134]'"
    )
    if problem == "ok" and {sql for (sql,) in statements} != set(_LAYOUTS.get(found, ())):
        problem = "its tables are not those of its format"
    if problem != "ok":
        raise CorruptStoreError(
            f"{where}: {path} is not as it was written: {problem}. Restore it from a backup."
        )
    return found


def _upgrade(db: sqlite3.Connection, found: int) -> None:
    db.execute("BEGIN EXCLUSIVE")
    for version in range(found, FORMAT):
        for statement in _UPGRADES[version]:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")
