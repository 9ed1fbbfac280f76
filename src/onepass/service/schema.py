"""Schema: the tables of a journal, made or brought up to date.

A file says its format in SQLite's ``user_version``, and that it is one of ours in
``application_id``. A newer format is refused; an older one is brought up to date, step by step, in
one transaction, so that a crash, or a disk that is full, leaves the one or the other whole.

====== =============================================================================================
format keys, and rows that wait, stand
====== =============================================================================================
1      in the order of their own words, which is any: a commit of many wrote as many pages
2      in the order in which they came, beside an index: half the bytes a commit, and fewer to go by
====== =============================================================================================

A new format is a line in ``_LAYOUTS``, and one in ``_STEPS`` that leads to it: what stands in a
table is copied to another, which is made in the words that ``_LAYOUTS`` has.
"""

import sqlite3
from pathlib import Path

from onepass.errors import DamagedError, StoreError

__all__ = ["APPLICATION", "FORMAT", "looked", "made", "opened"]

APPLICATION = 0x6F6E6570
"""The word "onep": what tells the file from others of SQLite."""

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
_STEPS = {  # from a format to the next
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

_OLDEST = (3, 37)  # of SQLite: STRICT tables
_BEFORE = (
    "PRAGMA locking_mode = EXCLUSIVE",  # first of all: then no memory is shared with others
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
)
_AFTER = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: to the disk, not to its cache
    "PRAGMA checkpoint_fullfsync = ON",
    f"PRAGMA journal_size_limit = {1 << 22}",  # of the log that a snapshot has made long
)


def made(path: Path, where: str) -> sqlite3.Connection:
    """A new file with its tables, open, in a transaction.

    Parameters
    ----------
    path : Path
        An empty file.
    where : str
        The public call, for messages.

    Raises
    ------
    StoreError
        If SQLite is too old.
    sqlite3.Error
        If it cannot be written.
    """
    _hold_new_enough(where)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("BEGIN EXCLUSIVE")
        for table in _LAYOUTS[FORMAT]:
            db.execute(table)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        db.close()
        raise
    return db


def opened(path: Path, where: str) -> sqlite3.Connection:
    """A file that was made, open, held, and of this format.

    Parameters
    ----------
    path, where
        As for :func:`made`.

    Raises
    ------
    StoreError
        If it is of a newer format, or SQLite is too old, or knows no write-ahead log there.
    DamagedError
        If it is another program's, or damaged.
    sqlite3.Error
        If it cannot be opened or written; an older format is then as it was.
    """
    _hold_new_enough(where)
    there = f"{path.absolute().as_uri()}?mode=rw"  # it is not made anew
    db = sqlite3.connect(there, isolation_level=None, check_same_thread=False, uri=True)
    try:
        for pragma in _BEFORE:
            db.execute(pragma)
        looked(db, path, where)
        _log_ahead(db, path, where)
        for pragma in _AFTER:
            db.execute(pragma)
        _update(db)
    except BaseException:
        db.close()
        raise
    return db


def _log_ahead(db: sqlite3.Connection, path: Path, where: str) -> None:
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{where}: {path} must lie where SQLite can have a write-ahead log, got its journal "
            f"mode {mode!r}. Choose a local disk."
        )


def _hold_new_enough(where: str) -> None:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"{where}: SQLite must be at least {'.'.join(map(str, _OLDEST))}, got "
            f"{sqlite3.sqlite_version}. Use a newer Python."
        )


def looked(db: sqlite3.Connection, path: Path, where: str) -> int:
    """The format of a file; refused if it is not ours, too new, or damaged.

    Parameters
    ----------
    db : sqlite3.Connection
    path : Path
        The file.
    where : str
        The public call, for messages.

    Raises
    ------
    StoreError
        If it is of a newer format.
    DamagedError
        If it is another program's, or damaged.
    """
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise DamagedError(
            f"{where}: {path} must be a file that onepass made for a durable learner, got another "
            "program's database. Choose another path."
        )
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        raise StoreError(
            f"{where}: {path} is format {found}; this version reads up to {FORMAT}. Upgrade "
            "onepass."
        )
    wrong = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if wrong == "ok" and _said(db) != set(_LAYOUTS.get(found, ())):
        wrong = "its tables are not those of its format"
    if wrong != "ok":
        raise DamagedError(
            f"{where}: {path} is not as it was written: {wrong}. Restore it from a backup."
        )
    return int(found)


def _said(db: sqlite3.Connection) -> set[str]:
    """The SQL of all tables, indexes and triggers, except the statistics of ANALYZE."""
    rows = db.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_stat[134]'"
    )
    return {text for (text,) in rows}


def _update(db: sqlite3.Connection) -> None:
    """Bring an older format up to date, or leave it as it is."""
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found == FORMAT:
        return
    db.execute("BEGIN EXCLUSIVE")
    for version in range(found, FORMAT):
        for statement in _STEPS[version]:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")
