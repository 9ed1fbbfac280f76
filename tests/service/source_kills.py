"""Kill processes that learn a stream of Redis, and Redis, at any step or moment.

Producers go on meanwhile: each entry has an id of its own, so that one which is sent again, because
nobody knows what became of it, is there once. In the end every row must have been learned once, in
order, and the weights must be those of an unbroken process that learns the log, to the last bit.
"""

import shutil
import threading
import time
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from kill_checks import ANY_MOMENT, STEP_TIMEOUT, KillPoint, KillReport, KillSchedule, kill_at
from redis_server import RedisServer, redis
from waiting import until

import onepass as op
from fork_server import ForkServer
from onepass.service.consumer import SourceConsumer, source
from onepass.service.monitoring import Gauges

POISON = 17  # one in so many entries is no row
REDIS = "redis-server"
STEPS = {
    "created": 1,
    "in place": 1,
    "begun": 9,
    "snapshot": 3,
    "pruned snapshots": 2,
    "trimmed log": 2,
    "before commit": 9,
    "after commit": 9,
    "published": 8,
    "acknowledged": 8,
    REDIS: 1,
}
"""What ``Journal.reached`` names, and how often each is reached at most before the kill; and Redis
itself, at any moment."""


@dataclass(frozen=True)
class Plan:
    """What a process does, and where it is killed."""

    folder: str
    url: str
    rows: int  # when so many were learned, it ends
    snapshot_rows: int = 30
    step: str = ""  # of what is written, at which it is killed
    nth: int = 1  # time that it is reached

    @property
    def path(self) -> Path:
        return Path(self.folder, "m.db")


def linear() -> Any:
    return op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-6))


def entry(i: int) -> dict[str, Any]:
    """The i-th: always the same."""
    rng = np.random.default_rng(i)
    a, b = rng.normal(size=2).tolist()
    return {"n": i, "a": a, "b": "much" if i % POISON == POISON - 1 else b, "y": a + rng.normal()}


def good(entries: int) -> list[int]:
    """Which of so many are rows."""
    return [i for i in range(entries) if i % POISON != POISON - 1]


def execute(plan: Plan) -> None:
    """Learn until all are learned."""
    kill_at(plan.step, plan.nth)
    with op.durable(plan.path, linear(), snapshot_rows=plan.snapshot_rows, snapshots=3) as durable:
        feeder = SourceConsumer(durable, source(plan.url), Gauges(durable.frozen_copy).refuse)
        until(lambda: durable.rows_seen >= plan.rows)
        feeder.close()


# -- the killing process ---------------------------------------------------------------------------


class Producer:
    """A thread that sends entries, each as often as it takes, until it is told to end.

    Parameters
    ----------
    server : RedisServer
    stream : str
    at_once : int
        How many before each pause.
    pause : float
        Its seconds.

    Attributes
    ----------
    entries : int
        How many were sent: in the end, so that the last is a row. With it those that are none are
        passed by.
    """

    def __init__(
        self, server: RedisServer, stream: str, at_once: int = 3, pause: float = 0.01
    ) -> None:
        self.entries = 0
        self._server, self._stream = server, stream
        self._at_once, self._pause = at_once, pause
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        client = self._server.client(socket_timeout=5.0)
        while not self._over.is_set() or self.entries - 1 not in good(self.entries):
            while not self._sent(client, self.entries):
                time.sleep(0.01)
            self.entries += 1
            if self.entries % self._at_once == 0:
                time.sleep(self._pause)

    def _sent(self, client: Any, i: int) -> bool:
        try:
            client.xadd(self._stream, entry(i), id=f"{i + 1}-0")
        except redis.ResponseError as error:
            return "equal or smaller" in str(error)  # it was there
        except (redis.RedisError, OSError):
            return False
        return True


def plan_fork_server() -> ForkServer:
    """Of processes that carry out plans."""
    do = "source_kills.execute(source_kills.Plan(**given))"
    return ForkServer("import source_kills", do)


def killed(folder: Path, schedule: KillSchedule, found: KillReport, rng: Any) -> None:
    """Kill the learner, or Redis and then the learner, until the schedule is empty."""
    with plan_fork_server() as fork_server, RedisServer(folder / "redis") as server:
        while schedule and not found.error:
            place = folder / f"round{found.rounds}"
            place.mkdir()
            stream = f"flow{found.rounds}"
            plan = Plan(str(place), server.url(stream=stream), 10**9)
            with Producer(server, stream) as producer:
                kills = 0
                while not found.faults and (
                    point := schedule.next_point(kills=kills, exists=plan.path.exists())
                ):
                    _live(plan, point, found, fork_server, server, rng)
                    kills += 1
            ended(plan, producer.entries, found, fork_server)
            if not found.error:
                shutil.rmtree(place)
                server.client().delete(stream)


def _live(
    plan: Plan,
    point: KillPoint,
    found: KillReport,
    fork_server: ForkServer,
    server: RedisServer,
    rng: Any,
) -> None:
    """One process, until it is killed, or Redis before it."""
    at_any = point.place in {ANY_MOMENT, REDIS}
    fork_server.begin(plan if at_any else replace(plan, step=point.step, nth=point.nth))
    if point.place == REDIS:
        fork_server.ended(0.4 * rng.random())
        server.kill()
        server.start()
        fork_server.ended(1.0 * rng.random())  # it is killed too, perhaps before it has gone on
        found.count_kill(point, fork_server.end())
    elif point.place == ANY_MOMENT:
        fork_server.ended(0.6 * rng.random())
        found.count_kill(point, fork_server.end())
    else:
        late = not fork_server.ended(STEP_TIMEOUT)
        found.count_kill(point, fork_server.end(), late=late)


def ended(plan: Plan, entries: int, found: KillReport, fork_server: ForkServer) -> None:
    """Let a process come to the end; each row was learned once, in order."""
    rows = good(entries)
    if code := fork_server.run(replace(plan, rows=len(rows)), STEP_TIMEOUT):
        found.faults.append(f"exit code {code} in the end")
    log = found.compare(plan.path, linear())[0]
    learned = chain.from_iterable(each.block.X["n"].astype(int).tolist() for each in log)
    found.count_rows(learned, [rows])
    with op.durable(plan.path, snapshots=10**6) as durable:
        if list(durable.positions.values()) != [f"{entries}-0/{entries}"]:
            found.faults.append(f"it stands at {durable.positions} of {entries} entries")
