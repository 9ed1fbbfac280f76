"""Schema of a journal: its tables, and upgrades from former formats.

The format is SQLite's ``user_version``, and ``application_id`` marks the file as one of onepass. A
newer format is rejected; an older one is upgraded in one transaction, so a crash or a full disk
leaves the old format or the new one.

====== =============================================================================================
format tables ``keys`` and ``asked``
====== =============================================================================================
1      without rowid, ordered by key: a commit writes about one page per key
2      ordered by arrival, with an index: a commit writes half as much and reads fewer pages
====== =============================================================================================

For a new format, add an entry to ``_LAYOUTS``, and to ``_UPGRADES`` the upgrade to this format.
"""

import sqlite3
from pathlib import Path

from onepass.errors import CorruptStoreError, StoreError

__all__ = ["APPLICATION", "FORMAT", "checked_format", "create", "open_database"]

APPLICATION = 0x6F6E6570
"""The bytes "onep", which identify an SQLite file of onepass."""

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
_UPGRADES = {  # from each format to the next
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
"""Format of new files, and the newest format that can be read."""

_BEFORE = (
    "PRAGMA locking_mode = EXCLUSIVE",  # first, so that no shared memory is used
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
        If the format is newer, or SQLite cannot use a write-ahead log.
    CorruptStoreError
        If the file is damaged, or belongs to another program.
    sqlite3.Error
        If the file cannot be opened or written; an older format is then unchanged.
    """
    address = f"{path.absolute().as_uri()}?mode=rw"  # do not create a missing file
    db = sqlite3.connect(address, isolation_level=None, check_same_thread=False, uri=True)
    try:
        for pragma in _BEFORE:
            db.execute(pragma)
        version = checked_format(db, path, where)
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(  # noqa: TRY301  the connection must be closed
                f"{where}: {path} must be on a disk where SQLite can use a write-ahead log, got "
                f"the journal mode {mode!r}. Choose a local disk."
            )
        for pragma in _AFTER:
            db.execute(pragma)
        if version != FORMAT:
            _upgrade(db, version)
    except BaseException:
        db.close()
        raise
    return db


def checked_format(db: sqlite3.Connection, path: Path, where: str) -> int:
    """Verify the tables of a file, and return its format.

    Raises
    ------
    StoreError
        If the format is newer.
    CorruptStoreError
        If the file is damaged, or belongs to another program.
    """
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise CorruptStoreError(
            f"{where}: {path} must be the file of a durable learner, got another program's "
            "database. Choose another path."
        )
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > FORMAT:
        raise StoreError(
            f"{where}: {path} must have a format up to {FORMAT}, got format {version} of a newer "
            "onepass. Upgrade onepass."
        )
    problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    statements = db.execute(  # except the statistics tables of ANALYZE
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_stat[134]'"
    )
    if problem == "ok" and {sql for (sql,) in statements} != set(_LAYOUTS.get(version, ())):
        problem = "its tables are not those of its format"
    if problem != "ok":
        raise CorruptStoreError(
            f"{where}: {path} is not as it was written: {problem}. Restore it from a backup."
        )
    return version


def _upgrade(db: sqlite3.Connection, start: int) -> None:
    db.execute("BEGIN EXCLUSIVE")
    for version in range(start, FORMAT):
        for statement in _UPGRADES[version]:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")
