"""Kill processes that learn durably, at any step or moment, and check the acknowledged rows.

A *plan* is what a process does, again and again until it comes to its end: rows of several threads
with keys, rows of a source that goes on at its position, rows that are asked and answered later,
snapshots. What was acknowledged is noted beside the file, before anything else is done. After all
kills every row must have been learned once: then the weights are those of a batch solution over
all rows, and those of an unbroken process that learns the log's blocks, to the last bit.

The processes are forked from one that has the library loaded.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from kill_checks import (
    ANY_MOMENT,
    STEP_TIMEOUT,
    KillReport,
    KillSchedule,
    kill_at,
    logged_row_keys,
    row_keys,
)

import onepass as op
from fork_server import ForkServer

WIDTH = 5
RIDGE = 1e-12
STEPS = {
    "created": 1,
    "in place": 1,
    "begun": 9,
    "entry": 12,
    "keys": 5,
    "pending rows": 1,
    "labels": 2,
    "snapshot": 3,
    "pruned snapshots": 1,
    "trimmed log": 1,
    "before commit": 7,
    "after commit": 7,
    "published": 6,
    "acknowledged": 11,
}
"""What ``Journal.reached`` names, and how often each is reached at least by a process that has all
before it."""


@dataclass(frozen=True)
class Plan:
    """What a process does, and where it is killed."""

    folder: str
    threads: int = 2
    requests: int = 8  # of each thread
    source: int = 4  # rows of a source
    pending: int = 3  # rows that are asked, and answered later
    snapshot_rows: int = 12
    snapshots: int = 3
    step: str = ""  # of what is written, at which it is killed
    nth: int = 1  # time that it is reached
    task: str = ""  # in place of all this: "back" to version 3, or to "sweep" what is too old

    @property
    def path(self) -> Path:
        return Path(self.folder, "m.db")

    @property
    def notes(self) -> Path:
        return Path(self.folder, "notes")

    @property
    def rows(self) -> int:
        """How many are learned in the end."""
        return self.threads * sum(map(size, range(self.requests))) + self.source + self.pending


def size(i: int) -> int:
    """Rows of a request."""
    return (1, 1, 3, 1)[i % 4]


def rows_of(thread: int, i: int, n: int) -> tuple[Any, Any]:
    """The rows of a request: always the same."""
    rng = np.random.default_rng((thread, i))
    X = rng.normal(size=(n, WIDTH))
    return X, X @ np.arange(WIDTH) + rng.normal(size=n)


def all_rows(plan: Plan) -> list[tuple[Any, Any]]:
    """All that is learned in the end, by sender."""
    keyed = [
        [rows_of(thread, i, size(i)) for i in range(plan.requests)]
        for thread in range(plan.threads)
    ]
    source = [rows_of(100, i, 1) for i in range(plan.source)]
    late = [rows_of(200, 0, plan.pending)]
    return [
        (np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts]))
        for parts in [*keyed, source, late]
        if parts
    ]


class Notes:
    """What was acknowledged, line by line: a line is there whole once it was written."""

    def __init__(self, plan: Plan) -> None:
        self._file = os.open(plan.notes, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.lines = [json.loads(line) for line in plan.notes.read_text().splitlines()]

    def __call__(self, *words: Any) -> None:
        os.write(self._file, (json.dumps(words) + "\n").encode())

    def of(self, kind: str) -> list[Any]:
        return [rest for first, *rest in self.lines if first == kind]


# -- the killed process ----------------------------------------------------------------------------


def execute(plan: Plan) -> None:
    """Do what is left of the plan."""
    kill_at(plan.step, plan.nth)
    notes = Notes(plan)
    with op.durable(
        plan.path,
        op.RLSRegressor(ridge=RIDGE),
        snapshot_rows=plan.snapshot_rows,
        snapshots=plan.snapshots,
    ) as durable:
        if plan.task:
            TASKS[plan.task](durable)
            return
        check_acknowledged(durable, notes)
        work: list[Callable[[], None]] = [
            lambda: learn_source(durable, plan, notes),
            lambda: learn_late(durable, plan, notes),
        ]
        work += [
            lambda thread=thread: learn_keyed(durable, plan, notes, thread)  # type: ignore[misc]
            for thread in range(plan.threads)
        ]
        if plan.step:  # in order: so that a step is reached as often in each run
            for each in work:
                each()
            return
        threads = [threading.Thread(target=each) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def sweep(durable: Any) -> None:
    """Let go what is too old, years later."""
    durable._writer._began += 1e9
    durable.commit_pending()


TASKS: dict[str, Callable[[Any], None]] = {
    "back": lambda durable: durable.rollback(to=3),
    "sweep": sweep,
}


def warm() -> None:
    """Have all loaded that a plan needs."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            execute(Plan(folder, threads=0, snapshot_rows=1))


def check_acknowledged(durable: Any, notes: Notes) -> None:
    """Nothing that was acknowledged is gone: else the process ends with an error."""
    for key, version in notes.of("learned"):
        assert durable.version >= version
        thread, i = map(int, key.split("-"))
        result = durable.learn(*rows_of(thread, i, size(i)), key=key)
        assert (result.repeated, result.version) == (True, version)
    for (position,) in notes.of("position")[-1:]:
        assert int(durable.positions["tail"]) >= position


def learn_keyed(durable: Any, plan: Plan, notes: Notes, thread: int) -> None:
    """All requests again, as by one who does not know which of them were learned."""
    for i in range(plan.requests):
        key = f"{thread}-{i}"
        result = durable.learn(*rows_of(thread, i, size(i)), key=key)
        if not result.repeated:
            notes("learned", key, result.version)


def learn_source(durable: Any, plan: Plan, notes: Notes) -> None:
    """Rows without keys, from where the positions say."""
    for i in range(int(durable.positions.get("tail", -1)) + 1, plan.source):
        durable.learn(*rows_of(100, i, 1), source="tail", position=str(i))
        notes("position", i)


def learn_late(durable: Any, plan: Plan, notes: Notes) -> None:
    """Rows that are asked, and answered: in the same process, or in a later one."""
    X, y = rows_of(200, 0, plan.pending)
    known = notes.of("ids")
    if not known:
        ids = durable.predict_pending(X)[1]
        notes("ids", ids)
        known = [[ids]]
    ids = known[0][0]
    durable.learn_labels(ids[:1], y[:1])
    durable.learn_labels(ids, y)


# -- the killing process ---------------------------------------------------------------------------


def plan_fork_server() -> ForkServer:
    """Of processes that carry out plans."""
    do = "durable_kills.execute(durable_kills.Plan(**given))"
    return ForkServer("import durable_kills; durable_kills.warm()", do)


def check_result(plan: Plan, found: KillReport) -> None:
    """Every row was learned once, and the weights are those of an unbroken process."""
    sent = all_rows(plan)
    with op.durable(plan.path, snapshots=plan.snapshots) as durable:
        check_acknowledged(durable, Notes(plan))
        assert durable.rows_seen == plan.rows
        assert (
            durable.labels_pending % plan.pending == 0
        )  # ids that nobody was told are never answered
    log, _, model = found.compare(plan.path, op.RLSRegressor(ridge=RIDGE))
    found.count_rows(logged_row_keys(log), [row_keys(X, y) for X, y in sent])
    X, y = (np.concatenate(parts) for parts in zip(*sent, strict=True))
    batch = op.RLSRegressor(ridge=RIDGE).partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, batch.coef_, rtol=0, atol=1e-9)
    assert model.rows_seen_ == plan.rows


def killed(folder: Path, schedule: KillSchedule, found: KillReport, rng: Any) -> None:
    """Kill processes of several threads until the schedule is empty."""
    work = {"threads": 4, "requests": 24, "source": 10, "pending": 6}
    with plan_fork_server() as fork_server:
        calm = Plan(str(folder / "calm"), **work)
        Path(calm.folder).mkdir()
        began = time.monotonic()
        assert fork_server.run(calm) == 0
        longest = time.monotonic() - began
        check_result(calm, KillReport())
        while schedule and not found.error:
            plan = Plan(str(folder / f"round{found.rounds}"), **work)
            Path(plan.folder).mkdir()
            _round(plan, schedule, found, fork_server, lambda: longest * rng.random())
            check_result(plan, found)
            if not found.error:
                shutil.rmtree(plan.folder)


def _round(
    plan: Plan,
    schedule: KillSchedule,
    found: KillReport,
    fork_server: ForkServer,
    patience: Callable[[], float],
) -> None:
    """Kill processes until one comes to the end of the plan, or there were enough."""
    kills = 0
    while (point := schedule.next_point(kills=kills, exists=plan.path.exists())) is not None:
        fork_server.begin(replace(plan, step=point.step, nth=point.nth))
        late = not fork_server.ended(patience() if point.place == ANY_MOMENT else STEP_TIMEOUT)
        code = fork_server.end()
        kills += 1
        if code == 0:  # the steps of all that were learned before are not reached again
            schedule.put_back(point)
            if kills == 1 and point.place != ANY_MOMENT:
                found.faults.append(f"{point} was never reached")
            return
        found.count_kill(point, code, late=late and point.place != ANY_MOMENT)
        if found.faults:
            return
    if code := fork_server.run(plan, STEP_TIMEOUT):
        found.faults.append(f"exit code {code} in the end")
