"""Kill processes that learn a stream of Redis, and Redis, at any step or moment.

Producers go on meanwhile: each entry has an id of its own, so that one which is sent again, because
nobody knows what became of it, is there once. In the end every row must have been learned once, in
order, and the weights must be those of an unbroken process that learns the log, to the last bit::

    PYTHONPATH=tests python tests/service/source_kills.py --kills 300
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from durable_files import asked_of, blocks_of
from durable_kills import kill_at
from redis_server import RedisServer, redis, until

import onepass as op
from cases import snapshot
from nursery import Nursery
from onepass.service.gauges import Gauges
from onepass.service.sources import Feeder, source

POISON = 17  # one in so many entries is no row


@dataclass(frozen=True)
class Plan:
    """What a process does, and where it is killed."""

    folder: str
    url: str
    rows: int  # when so many were learned, it ends
    snapshot_rows: int = 60
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


def carried_out(plan: Plan) -> None:
    """Learn until all are learned."""
    if plan.step:
        kill_at(plan.step, plan.nth)
    with op.durable(plan.path, linear(), snapshot_rows=plan.snapshot_rows, keep=10**6) as durable:
        feeder = Feeder(durable, source(plan.url), Gauges(durable.answering))
        until(lambda: durable.rows_seen >= plan.rows)
        feeder.close()


# -- in the process that kills ---------------------------------------------------------------------


class Producer:
    """A thread that sends entries, as often as it takes.

    Parameters
    ----------
    server : RedisServer
    entries : int
    at_once : int
        How many before each pause.
    pause : float
        Its seconds.
    """

    def __init__(
        self, server: RedisServer, entries: int, at_once: int = 3, pause: float = 0.003
    ) -> None:
        self._server, self._entries = server, entries
        self._at_once, self._pause = at_once, pause
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
        self._thread.join()

    def _work(self) -> None:
        client = self._server.client(socket_timeout=5.0)
        for first in range(0, self._entries, self._at_once):
            for i in range(first, min(first + self._at_once, self._entries)):
                while not self._sent(client, i):
                    time.sleep(0.01)
            time.sleep(self._pause)

    def _sent(self, client: Any, i: int) -> bool:
        try:
            client.xadd("flow", entry(i), id=f"{i + 1}-0")
        except redis.ResponseError as wrong:
            return "equal or smaller" in str(wrong)  # it was there
        except (redis.RedisError, OSError):
            return False
        return True


def nursery_of_plans() -> Nursery:
    """Of processes that carry out plans."""
    do = "source_kills.carried_out(source_kills.Plan(**given))"
    return Nursery("import source_kills", do)


def held(plan: Plan, entries: int) -> None:
    """Each row was learned once, in order, and the weights are those of an unbroken process."""
    blocks = blocks_of(plan.path)
    learned = np.concatenate([block.X["n"] for block in blocks]).astype(int).tolist()
    assert learned == good(entries)
    asides = [aside for (aside,) in asked_of(
        plan.path, "SELECT aside FROM log WHERE kind = 'learn' ORDER BY sequence"
    )]  # fmt: skip
    alone = linear()
    for block, aside in zip(blocks, asides, strict=True):
        if aside:
            for part in (alone, getattr(alone, "learner_", None)):
                if part is not None:
                    vars(part)
        alone.test_then_train(block.X, block.y)
    with op.durable(plan.path, keep=10**6) as durable:
        assert snapshot(durable.model()) == snapshot(alone)
        assert durable.rows_seen == len(learned)
        (position,) = durable.positions.values()
        assert position == f"{entries}-0/{entries}"


@dataclass
class Found:
    """What came of it."""

    kills: int = 0
    of_redis: int = 0
    entries: int = 0
    codes: Counter[int] = field(default_factory=Counter)


def killed(folder: Path, kills: int, *, seed: int = 0) -> Found:
    """Kill the one, the other, and both, so often, at random moments."""
    rng = np.random.default_rng(seed)
    entries = 150 + 40 * kills
    found = Found(entries=entries + (entries % POISON == 0))  # the last is a row
    with nursery_of_plans() as nursery, RedisServer(folder / "redis") as server:
        plan = Plan(str(folder), server.url(), 10**9)
        with Producer(server, found.entries, pause=0.03):
            while found.kills < kills:
                which = found.kills % 3
                killer = threading.Timer(0.4 * rng.random(), _killed, [server])
                if which:
                    killer.start()
                patience = 0.1 + 0.5 * rng.random() + (0.5 if which == 1 else 0.0)
                found.codes[nursery.run(plan, patience)] += 1
                if which:
                    killer.join()
                found.of_redis += bool(which)
                found.kills += 1
        found.codes[nursery.run(Plan(str(folder), server.url(), len(good(found.entries))))] += 1
        held(plan, found.entries)
    return found


def _killed(server: RedisServer) -> None:
    server.kill()
    server.start()


def main() -> int:
    """As the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = killed(Path(folder), given.kills, seed=given.seed)
    sys.stdout.write(
        f"{found.kills} kills of the learner, {found.of_redis} of Redis, {found.entries:,} "
        f"entries, {time.monotonic() - began:.0f} s: none lost, none learned twice, the same bits\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
