"""Helpers for files of durable learners: crashes, edits, full disks, and their content."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from cases import snapshot
from onepass.learners.rls import LeastSquares
from onepass.serialization import models
from onepass.service import Durable

ENDINGS = ("", "-wal", ".lock")


def copy_after_crash(durable: Durable, to: Path) -> Path:
    """Copy the files as a kill at this moment would leave them."""
    to.mkdir(exist_ok=True)
    copied = to / durable.path.name
    for ending in ENDINGS:
        here = Path(f"{durable.path}{ending}")
        if here.exists():
            shutil.copyfile(here, f"{copied}{ending}")
    return copied


def execute_sql(path: Path, *statements: str) -> None:
    """Edit a file without updating its digests."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def query(path: Path, sql: str) -> list[Any]:
    """Result of an SQL query."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(sql).fetchall()


def state_bits(durable: Durable) -> tuple[bytes, Any]:
    """The learned state: the bytes of ``op.save``, and the content in memory."""
    model = durable.model()
    learner = getattr(model, "learner_", model)
    if isinstance(learner, LeastSquares) and hasattr(learner, "rows_seen_"):
        learner.weights_  # noqa: B018  are computed, as by a prediction
    return models.dumps(model, "here"), snapshot(model)


def wait_for_writer(durable: Durable) -> None:
    """Wait until the writer has no requests and no maintenance left."""
    durable._writer.call(lambda: None)


def learn_and_maintain(durable: Durable, X: Any, y: Any) -> None:
    """Learn rows, and wait for the maintenance after them."""
    durable.learn(X, y)
    wait_for_writer(durable)


@contextmanager
def paused_writer(durable: Durable) -> Iterator[None]:
    """Pause the writer, so that the requests within the context become one group."""
    begun, end = Event(), Event()
    work = lambda: (begun.set(), end.wait(60))  # noqa: E731
    thread = Thread(target=durable._writer.call, args=(work,))
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        end.set()
        thread.join()


def fill_disk(durable: Durable) -> None:
    """Limit the file to its current size: a full disk for SQLite."""
    wait_for_writer(durable)
    db = durable._journal._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")


def free_disk(durable: Durable) -> None:
    """Let the file grow again."""
    wait_for_writer(durable)
    durable._journal._db.execute("PRAGMA max_page_count = 1000000")
