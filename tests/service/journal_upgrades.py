"""Upgrade a file of a former format in a process that is killed, or on a full disk."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import onepass as op
from onepass.errors import StoreError
from onepass.service import schema


@dataclass(frozen=True)
class Plan:
    """A file, and when the process that opens it is killed or the disk is full."""

    path: str
    at: float  # the time of day
    killed: int = 0  # after so many steps of SQLite's machine; 0: it is not
    room: int = -1  # pages that the disk has left; -1: as many as it takes


@contextmanager
def updating(done: Callable[[sqlite3.Connection, Callable[[], None]], None]) -> Iterator[None]:
    """Call a function in place of the upgrade, with the upgrade as its argument."""
    update = schema._upgrade
    schema._upgrade = lambda db, found: done(db, lambda: update(db, found))
    try:
        yield
    finally:
        schema._upgrade = update


def execute(plan: Plan) -> int:
    """Open the file; 0 on success, 3 if the disk is full."""

    def troubled(db: sqlite3.Connection, update: Callable[[], None]) -> None:
        if plan.room >= 0:
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {pages + plan.room}")
        if plan.killed:
            steps = 0

            def step() -> int:
                nonlocal steps
                steps += 1
                if steps == plan.killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                return 0

            db.set_progress_handler(step, 1)
        update()
        db.execute("PRAGMA max_page_count = 1000000")
        db.set_progress_handler(None, 0)

    with updating(troubled):
        try:
            op.durable(plan.path, clock=lambda: plan.at).close()
        except StoreError as error:
            if error.full:
                return 3
            raise
    return 0
