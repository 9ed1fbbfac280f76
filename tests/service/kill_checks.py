"""When processes are killed, and checks of the files that they leave.

Every row that was sent is in the log once, those of one sender in order. A learner that learns the
blocks of the log without interruption equals the learner in the file bit for bit.
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
from onepass.service.model import learn_block
from onepass.service.requests import decode_rows
from onepass.validation.rows import Rows

ANY_MOMENT = "any moment"
CREATION_STEPS = ("created", "in place")  # steps of creating a file
KILLS_PER_ROUND = 8
STEP_TIMEOUT = 60.0  # seconds until a step is reached


@dataclass(frozen=True)
class KillPoint:
    """Where a process is killed.

    Parameters
    ----------
    place : str
        A step of ``Journal.reached``, ``ANY_MOMENT``, or another place.
    nth : int
        The process is killed when the place is reached for the nth time.
    """

    place: str
    nth: int = 1

    @property
    def step(self) -> str:
        return "" if self.place == ANY_MOMENT else self.place


class KillSchedule:
    """KillSchedule to come: each step once, then any moment and the steps in turn.

    Parameters
    ----------
    steps : mapping of str to int
        Max number of times that each step is reached before the kill.
    kills : int
    rng : numpy.random.Generator
    """

    def __init__(self, steps: Mapping[str, int], kills: int, rng: Any) -> None:
        self._rng = rng
        places = [ANY_MOMENT, *self._mixed(steps)]
        while len(places) < kills:
            places += [place for step in self._mixed(steps) for place in (ANY_MOMENT, step)]
        self._left = [
            KillPoint(place, int(rng.integers(1, steps.get(place, 1) + 1)))
            for place in places[:kills]
        ]

    def __len__(self) -> int:
        return len(self._left)

    def next_point(self, *, kills: int, exists: bool) -> KillPoint | None:
        """The next kill, or None at the end of the round.

        Parameters
        ----------
        kills : int
            Number of kills in this round.
        exists : bool
            Whether the file exists.
        """
        early = kills < len(CREATION_STEPS) and not exists
        found = next((each for each in self._left if early and each.place in CREATION_STEPS), None)
        if found is None and kills < KILLS_PER_ROUND:
            found = next((each for each in self._left if each.place not in CREATION_STEPS), None)
        if found is not None:
            self._left.remove(found)
        return found

    def put_back(self, point: KillPoint) -> None:
        """Schedule a point again that was not reached."""
        self._left.insert(0, point)

    def _mixed(self, steps: Iterable[str]) -> list[str]:
        return [str(each) for each in self._rng.permutation(list(steps))]


# -- the killed process ----------------------------------------------------------------------------


def kill_at(step: str, nth: int = 1) -> None:
    """Kill this process when it reaches a step for the nth time.

    Blocks that are deleted with old snapshots are copied to a second file.
    """
    count = 0

    def reached(journal: Journal, name: str) -> None:
        nonlocal count
        if name == "pruned snapshots":
            _copy_old_blocks(journal)
        count += name == step
        if name == step and count == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.reached = reached  # type: ignore[method-assign]


def _copy_old_blocks(journal: Journal) -> None:
    """Copy the blocks that the open transaction will delete."""
    blocks = journal._rows(
        "SELECT sequence, kind, body FROM log "
        "WHERE sequence <= (SELECT min(sequence) FROM snapshots)"
    )
    with closing(sqlite3.connect(_second_file(journal.path), isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("CREATE TABLE IF NOT EXISTS log (sequence PRIMARY KEY, kind, body)")
        db.execute("BEGIN")
        db.executemany("INSERT OR IGNORE INTO log VALUES (?, ?, ?)", blocks)
        db.execute("COMMIT")


def _second_file(path: Path) -> Path:
    return Path(f"{path}.kept")


# -- the killing process ---------------------------------------------------------------------------


@dataclass(frozen=True)
class LoggedBlock:
    """A block of the log."""

    sequence: int
    block: Rows


def read_log(path: Path) -> list[LoggedBlock]:
    """All blocks that were learned, in order, including the deleted ones."""
    sql = "SELECT sequence, kind, body FROM log ORDER BY sequence"
    second = _second_file(path)
    deleted_blocks = query(second, sql) if second.exists() else []
    blocks = query(path, sql)
    found = {each[0]: each for each in deleted_blocks}
    assert all(found.get(each[0], each) == each for each in blocks), "a block was changed"
    found |= {each[0]: each for each in blocks}
    assert sorted(found) == list(range(1, len(found) + 1)), "a block is missing"
    return [
        LoggedBlock(sequence, decode_rows(body, "here"))
        for sequence, (_, kind, body) in sorted(found.items())
        if kind == "learn"
    ]


def replay(log: Sequence[LoggedBlock], model: Any) -> list[Any]:
    """Learn the log without interruption; the predictions of each block before it was learned."""
    return [learn_block(model, each.block) for each in log]


@dataclass
class KillReport:
    """Counts of kills and rows, and faults."""

    killed: Counter[str] = field(default_factory=Counter)  # by place
    rounds: int = 0
    rows: int = 0
    lost: int = 0
    twice: int = 0
    equal: int = 0  # rounds whose learner equals the uninterrupted one bit for bit
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.killed.values())

    @property
    def error(self) -> str:
        """Description of what is wrong; empty if nothing is."""
        numbers = (
            (self.lost, "rows lost"),
            (self.twice, "rows learned twice"),
            (self.rounds - self.equal, "learners that differ from the uninterrupted one"),
        )
        return "; ".join([f"{n:,} {what}" for n, what in numbers if n] + self.faults)

    def count_kill(self, point: KillPoint, code: int, *, late: bool = False) -> None:
        """Count a kill; a fault if the process ended otherwise, or did not reach the point."""
        if code != -signal.SIGKILL:
            self.faults.append(f"exit code {code} on the way to {point}")
        elif late:
            self.faults.append(f"{point} was never reached")
        self.killed[point.place] += 1

    def count_rows(
        self, learned: Iterable[Hashable], senders: Iterable[Sequence[Hashable]]
    ) -> None:
        """Count rows that are missing in the log or there twice.

        Parameters
        ----------
        learned : iterable
            Keys of rows, in the order of the log.
        senders : iterable of sequences
            Keys of the rows that were acknowledged to each sender, in order.
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

    def compare(self, path: Path, model: Any) -> tuple[list[LoggedBlock], list[Any], Any]:
        """Compare the file's learner with one that learns the log without interruption.

        Parameters
        ----------
        path : Path
            The file.
        model : learner or Pipeline
            An unfitted copy.

        Returns
        -------
        log : list of LoggedBlock
        predictions : list of ndarray
            Of each block, by the uninterrupted learner.
        model : learner
            The learner in the file.
        """
        with op.durable(path, snapshots=10**6) as durable:
            learner, seen = durable.model(), durable.rows_seen
        log = read_log(path)
        predictions = replay(log, model)
        self.rounds += 1
        self.equal += snapshot(learner) == snapshot(model)
        if seen != sum(len(each.block) for each in log):
            self.faults.append(f"rows_seen is {seen:,}, but the log has other rows")
        return log, predictions, learner


def row_keys(X: Any, y: Any) -> list[bytes]:
    """A key for each row: its values and target."""
    table = np.column_stack([np.asarray(X, np.float64), np.asarray(y, np.float64)])
    return [row.tobytes() for row in table]


def logged_row_keys(log: Iterable[LoggedBlock]) -> Iterable[bytes]:
    """Keys of the rows of a log."""
    return chain.from_iterable(row_keys(each.block.X, each.block.y) for each in log)
