"""Fates: where processes that learn are killed, and what must hold of what they leave.

Whatever learns, and from wherever its rows come, three things are asked when it was killed often
enough. Of the rows that were sent, none may be missing in the log, and none there twice; those of
one sender must be in order. And a learner that was never killed, and that learns the blocks of the
log, must be the learner that is found in the file, to the last bit.
"""

import os
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from durable_files import query

import onepass as op
from cases import snapshot
from onepass.service.journal import Journal
from onepass.service.requests import Block

ANY = "any moment"
FIRST = ("created", "in place")  # steps of a file that is not there yet
LIVES = 8  # of a round
LONGEST = 60.0  # seconds within which a step is reached


@dataclass(frozen=True)
class Fate:
    """Where a process is killed.

    Parameters
    ----------
    place : str
        What ``Journal.reached`` names, ``ANY``, or another.
    nth : int
        Time that it is reached.
    """

    place: str
    nth: int = 1

    @property
    def step(self) -> str:
        return "" if self.place == ANY else self.place


class Fates:
    """Fates to come: each step once, then any moment and the steps in turn.

    Parameters
    ----------
    steps : mapping of str to int
        How often each is reached at most before the process is killed there.
    kills : int
    rng : numpy.random.Generator
    """

    def __init__(self, steps: Mapping[str, int], kills: int, rng: Any) -> None:
        self._rng = rng
        places = [ANY, *self._mixed(steps)]
        while len(places) < kills:
            places += [place for step in self._mixed(steps) for place in (ANY, step)]
        self._left = [
            Fate(place, int(rng.integers(1, steps.get(place, 1) + 1))) for place in places[:kills]
        ]

    def __len__(self) -> int:
        return len(self._left)

    def take(self, *, lives: int, there: bool) -> Fate | None:
        """The next of a process, or None if its round is to end.

        Parameters
        ----------
        lives : int
            How many there were before in this round.
        there : bool
            Whether its file is there.
        """
        early = lives < len(FIRST) and not there
        found = next((each for each in self._left if early and each.place in FIRST), None)
        if found is None and lives < LIVES:
            found = next((each for each in self._left if each.place not in FIRST), None)
        if found is not None:
            self._left.remove(found)
        return found

    def put_back(self, fate: Fate) -> None:
        """It did not come to that."""
        self._left.insert(0, fate)

    def _mixed(self, steps: Iterable[str]) -> list[str]:
        return [str(each) for each in self._rng.permutation(list(steps))]


# -- in the process that is killed -----------------------------------------------------------------


def meet(step: str, nth: int = 1) -> None:
    """Be killed when this step is reached for the nth time, if it is one.

    Blocks that are let go with old snapshots are kept in a file beside.
    """
    count = 0

    def reached(journal: Journal, name: str) -> None:
        nonlocal count
        if name == "pruned snapshots":
            _keep(journal)
        count += name == step
        if name == step and count == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.reached = reached  # type: ignore[method-assign]


def _keep(journal: Journal) -> None:
    """What the transaction that is open is about to let go."""
    blocks = journal._rows(
        "SELECT sequence, kind, aside, body FROM log "
        "WHERE sequence <= (SELECT min(sequence) FROM snapshots)"
    )
    with closing(sqlite3.connect(_beside(journal.path), isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("CREATE TABLE IF NOT EXISTS log (sequence PRIMARY KEY, kind, aside, body)")
        db.execute("BEGIN")
        db.executemany("INSERT OR IGNORE INTO log VALUES (?, ?, ?, ?)", blocks)
        db.execute("COMMIT")


def _beside(path: Path) -> Path:
    return Path(f"{path}.kept")


# -- in the process that kills ---------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """A block of the log."""

    sequence: int
    reloaded: bool
    block: Block


def log_of(path: Path) -> list[Learned]:
    """All blocks that were ever learned, in order, also those that were let go."""
    sql = "SELECT sequence, kind, aside, body FROM log ORDER BY sequence"
    beside = _beside(path)
    deleted_blocks = query(beside, sql) if beside.exists() else []
    there = query(path, sql)
    found = {each[0]: each for each in deleted_blocks}
    assert all(found.get(each[0], each) == each for each in there), "a block was written anew"
    found |= {each[0]: each for each in there}
    assert sorted(found) == list(range(1, len(found) + 1)), "a block is missing"
    return [
        Learned(sequence, bool(reloaded), Block.from_bytes(body, "here"))
        for sequence, (_, kind, reloaded, body) in sorted(found.items())
        if kind == "learn"
    ]


def learned_again(log: Sequence[Learned], model: Any) -> list[Any]:
    """Have a learner learn the log in one go; what it said of each block before."""
    predictions = []
    for each in log:
        if each.reloaded:
            for part in (model, getattr(model, "learner_", None)):
                if part is not None:
                    vars(part)
        predictions.append(model.test_then_train(each.block.X, each.block.y, **each.block.named()))
    return predictions


@dataclass
class Found:
    """What came of it."""

    killed: Counter[str] = field(default_factory=Counter)  # by place
    rounds: int = 0
    rows: int = 0
    lost: int = 0
    twice: int = 0
    equal: int = 0  # rounds whose learner was the unbroken one, to the last bit
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.killed.values())

    @property
    def error(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        numbers = (
            (self.lost, "rows lost"),
            (self.twice, "rows learned twice"),
            (self.rounds - self.equal, "learners that are not the unbroken one"),
        )
        return "; ".join([f"{n:,} {what}" for n, what in numbers if n] + self.faults)

    def died(self, fate: Fate, code: int, *, late: bool = False) -> None:
        """Count a kill, or note that a process has ended otherwise, or too late."""
        if code != -signal.SIGKILL:
            self.faults.append(f"exit code {code} on the way to {fate}")
        elif late:
            self.faults.append(f"{fate} was never reached")
        self.killed[fate.place] += 1

    def account(self, learned: Iterable[Hashable], senders: Iterable[Sequence[Hashable]]) -> None:
        """Count rows that are missing in the log or there twice.

        Parameters
        ----------
        learned : iterable
            Names of rows, in the order of the log.
        senders : iterable of sequences
            Names of the rows that were acknowledged to each, in order.
        """
        places: dict[Hashable, list[int]] = defaultdict(list)
        for n, row in enumerate(learned):
            places[row].append(n)
        for sent in senders:
            at = [places.pop(row, []) for row in sent]
            self.rows += len(at)
            self.lost += sum(not each for each in at)
            self.twice += sum(len(each) - 1 for each in at if each)
            first = [each[0] for each in at if each]
            if first != sorted(first):
                self.faults.append("rows of one sender are not in order")
        if places:
            self.faults.append(f"{len(places)} rows were learned that nobody sent")

    def compare(self, path: Path, model: Any) -> tuple[list[Learned], list[Any], Any]:
        """Hold the file's learner to one that learns the log in one go.

        Parameters
        ----------
        path : Path
            Of the file.
        model : learner or Pipeline
            That has learned nothing.

        Returns
        -------
        log : list of Learned
        predictions : list of ndarray
            By the one that learns now, of each block.
        model : learner
            That was in the file.
        """
        with op.durable(path, snapshots=10**6) as durable:
            there, seen = durable.model(), durable.rows_seen
        log = log_of(path)
        predictions = learned_again(log, model)
        self.rounds += 1
        self.equal += snapshot(there) == snapshot(model)
        if seen != sum(len(each.block) for each in log):
            self.faults.append(f"{seen:,} rows are told, and others are in the log")
        return log, predictions, there


def names_of(X: Any, y: Any) -> list[bytes]:
    """What tells rows of numbers from each other: all that is in them."""
    table = np.column_stack([np.asarray(X, np.float64), np.asarray(y, np.float64)])
    return [row.tobytes() for row in table]


def named(log: Iterable[Learned]) -> Iterable[bytes]:
    """The same of a log's rows."""
    return chain.from_iterable(names_of(each.block.X, each.block.y) for each in log)
