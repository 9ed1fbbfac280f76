"""Kill and suspend processes that share the partitions of a Kafka topic.

Three processes of one consumer group learn a topic of librdkafka's mock cluster while messages
arrive. Each time one of them is killed (SIGKILL) at any moment or at a step of the journal,
suspended until the group has excluded it, or closed; and another one joins. Each change rebalances
the group. In the end each message must have been learned once, by its partition's learner and in
order; the learners must equal, to the last bit, uninterrupted ones that learn the same blocks; and
the merged learner must equal one that learns all messages in one pass::

    PYTHONPATH=tests python tests/service/kafka_kills.py --kills 200
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from kafka_cluster import PARTITIONS, KafkaCluster
from kill_checks import ANY_MOMENT, KillPoint, KillReport, kill_at
from waiting import until

import onepass as op
from fork_server import ForkServer
from onepass.service import PartitionedLearner, merge_partitions

POISON = 17  # one in so many messages is no row
MEMBERS = 3
PROPERTIES = "session.timeout.ms=3000\nheartbeat.interval.ms=200\nfetch.wait.max.ms=50\n"
STEPS = {"created": 1, "in place": 1, "begun": 20, "snapshot": 3, "before commit": 20,
         "after commit": 20, "published": 20, "acknowledged": 20}  # fmt: skip
"""Steps of the journal, and how often each is reached at most before the kill."""


@dataclass(frozen=True)
class Plan:
    """What a process does, and where it is killed."""

    folder: str
    url: str
    step: str = ""
    nth: int = 1


def linear() -> Any:
    return op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-6))


def message(i: int) -> dict[str, Any]:
    """The i-th message: always the same."""
    rng = np.random.default_rng(i)
    a, b = rng.normal(size=2).tolist()
    return {"n": i, "a": a, "b": "much" if i % POISON == POISON - 1 else b, "y": a + rng.normal()}


def execute(plan: Plan) -> None:
    """Learn until SIGTERM, which closes the learner."""
    kill_at(plan.step, plan.nth)
    options = {"snapshot_rows": 200, "snapshots": 3, "copy_seconds": 0.5}
    with PartitionedLearner(plan.url, linear(), plan.folder, **options) as learner:
        signal.signal(signal.SIGTERM, lambda *_: learner._end.set())
        learner.wait()


class Sender(threading.Thread):
    """Sends messages until the ``with`` block ends.

    Attributes
    ----------
    sent : int
        Number of messages, of which message ``i`` is in partition ``i % PARTITIONS``.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__()
        self.sent, self._cluster, self._over = 0, cluster, threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.05):
            self._cluster.send(map(message, range(self.sent, self.sent + 8)))
            self.sent += 8


@dataclass
class Report(KillReport):
    """Also counts suspended and closed processes."""

    events: Counter[str] = field(default_factory=Counter)
    largest_error: float = 0.0


def killed(folder: Path, kills: int, seed: int = 0) -> Report:
    """Kill this many processes, and suspend or close half as many."""
    rng, found = np.random.default_rng(seed), Report()
    config = folder / "client.properties"
    config.write_text(PROPERTIES)
    do = "kafka_kills.execute(kafka_kills.Plan(**given))"
    servers = [ForkServer("import kafka_kills", do) for _ in range(MEMBERS)]
    for server in servers:
        server.__enter__()
    try:
        with KafkaCluster() as cluster:
            url = cluster.url(group="plant", config=config)
            plan = Plan(str(folder), url)
            with Sender(cluster) as sender:
                _killed(servers, plan, kills, found, rng)
            _learned(folder, sender.sent, found)
            for server in servers:
                found.faults += [
                    f"exit code {code}" for code in [server.end(signal.SIGTERM)] if code
                ]
    finally:
        for server in servers:
            server.__exit__(None, None, None)
    if not found.faults:
        _compare(folder, sender.sent, found)
    return found


def _killed(servers: list[ForkServer], plan: Plan, kills: int, found: Report, rng: Any) -> None:
    for server in servers:
        server.begin(plan)
    while found.kills < kills and not found.faults:
        server = servers[int(rng.integers(MEMBERS))]
        time.sleep(2.0 * rng.random())
        event = ("kill", "step", "kill", "step", "suspend", "close")[int(rng.integers(6))]
        if event == "suspend":  # longer than the session timeout
            os.kill(server._child, signal.SIGSTOP)
            time.sleep(3.0 + 2.0 * rng.random())
            os.kill(server._child, signal.SIGCONT)
        elif event == "close":
            found.faults += [f"exit code {code}" for code in [server.end(signal.SIGTERM)] if code]
            server.begin(plan)
        elif event == "kill":
            found.count_kill(KillPoint(ANY_MOMENT), server.end())
            server.begin(plan)
        else:  # replace it by a process that is killed at a step, if it reaches the step
            step = str(rng.choice(list(STEPS)))
            found.count_kill(KillPoint(ANY_MOMENT), server.end())
            point = Plan(plan.folder, plan.url, step, int(rng.integers(1, STEPS[step] + 1)))
            server.begin(point)
            reached = server.ended(6.0)
            found.count_kill(KillPoint(step if reached else ANY_MOMENT), server.end())
            server.begin(plan)
        found.events[event] += 1


def _files(folder: Path) -> list[Path]:
    return [folder / f"flow-{n}.db" for n in range(PARTITIONS)]


def _learned(folder: Path, sent: int, found: Report) -> None:
    """Wait until all rows are in the copies."""
    rows = sum(i % POISON != POISON - 1 for i in range(sent))

    def seen() -> int:
        return int(getattr(merge_partitions(folder, "flow"), "rows_seen_", 0))

    try:
        until(lambda: seen() >= rows, 300.0)
    except AssertionError:
        found.faults.append(f"{seen():,} of {rows:,} rows were learned in the end")


def _compare(folder: Path, sent: int, found: Report) -> None:
    """Compare logs with the messages, and learners with uninterrupted ones."""
    for number, file in enumerate(_files(folder)):
        log = found.compare(file, linear())[0]
        learned = chain.from_iterable(each.block.X["n"].astype(int).tolist() for each in log)
        rows = [i for i in range(number, sent, PARTITIONS) if i % POISON != POISON - 1]
        found.count_rows(learned, [rows])
    good = [message(i) for i in range(sent) if i % POISON != POISON - 1]
    single = linear().partial_fit(
        [{k: v for k, v in row.items() if k != "y"} for row in good], [row["y"] for row in good]
    )
    merged = merge_partitions(folder, "flow")
    found.largest_error = float(abs(merged.learner_.coef_ - single.learner_.coef_).max())
    if merged.rows_seen_ != len(good) or not found.largest_error <= 1e-10:
        found.faults.append(
            f"{merged.rows_seen_:,} of {len(good):,} rows, weights differ by {found.largest_error}"
        )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(tempfile.mkdtemp(prefix="kafka-kills-"))  # retained if there is a fault
    began = time.monotonic()
    found = killed(folder, given.kills, given.seed)
    result = {
        "kills": found.kills, "killed": dict(found.killed), "events": dict(found.events),
        "rows": found.rows, "lost": found.lost, "twice": found.twice,
        "equal": f"{found.equal} of {found.rounds}", "weights_differ_by": found.largest_error,
        "wrong": found.error, "seconds": round(time.monotonic() - began), "folder": str(folder),
    }  # fmt: skip
    sys.stdout.write(f"{json.dumps(result, indent=1)}\n")
    return 1 if found.error else 0


if __name__ == "__main__":
    sys.exit(main())
