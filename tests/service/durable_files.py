"""What tests of durable learners share: files as a crash leaves them, and what is in them."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from cases import snapshot
from onepass.serialization import models
from onepass.service import Durable

ENDINGS = ("", "-wal", ".lock")


def crashed(durable: Durable, to: Path) -> Path:
    """The file as it would be found, were the process killed now."""
    to.mkdir(exist_ok=True)
    copied = to / durable.path.name
    for ending in ENDINGS:
        here = Path(f"{durable.path}{ending}")
        if here.exists():
            shutil.copyfile(here, f"{copied}{ending}")
    return copied


def changed(path: Path, *statements: str) -> None:
    """Change a file by hand, as its digests cannot know."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def query(path: Path, question: str) -> list[Any]:
    """Ask SQLite."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(question).fetchall()


def bits(durable: Durable) -> tuple[bytes, Any]:
    """All that was learned: as ``op.save`` would write it, and how it lies in memory."""
    model = durable.model()
    return models.dumps(model, "here"), snapshot(model)


def idle(durable: Durable) -> None:
    """Wait until the writer has done what it was given, and its maintenance."""
    durable._writer.call(lambda: None)


def learn_and_maintain(durable: Durable, X: Any, y: Any) -> None:
    """Learn rows, and wait for the maintenance after them."""
    durable.learn(X, y)
    idle(durable)


@contextmanager
def held(durable: Durable) -> Iterator[None]:
    """Within this context the writer decides nothing: what is requested becomes one group."""
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


def fill(durable: Durable) -> None:
    """Let the file grow no more: to SQLite a full disk."""
    idle(durable)
    db = durable._journal._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")


def make_room(durable: Durable) -> None:
    idle(durable)
    durable._journal._db.execute("PRAGMA max_page_count = 1000000")
