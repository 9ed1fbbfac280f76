"""Backups under load: rows lost or learned twice in copies of a learner that learns meanwhile.

    python benchmarks/backups.py [--seconds 300] [--rate 200] [--json F]

Clients of ``onepass serve rls`` send one row per request with idempotency keys, at a constant rate.
After a time without backups, a backup begins each second, in turn by ``onepass backup``, by
``Connection.backup`` of Python's sqlite3, and by copying the file that ``onepass backup`` has
written; one that takes more than three seconds delays the next one of its kind. Afterwards each
copy is verified and opened:

- each row that was acknowledged before the backup began is in its log, and no row is there twice;
- the learner is equal, to the last bit, to one that learned the same blocks without interruption;
- a request with the last acknowledged key is answered as repeated.

Old snapshots and blocks are deleted meanwhile, as the service takes a snapshot every 2,000 rows.
"""

import argparse
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from cells import Found, write
from load import processor
from load_tables import backups

import onepass as op
from onepass.serialization import archive
from onepass.serialization.models import dumps, from_contents
from onepass.service import Client, examine
from onepass.service.journal import Journal
from onepass.service.model import learn_block
from onepass.service.requests import decode_rows

CLIENTS, FEATURES = 4, 10
BASE = 10_000_000  # greater than the number of rows of a client
SNAPSHOT_ROWS = 2000


class Backup(NamedTuple):
    """A backup, with the number of acknowledged rows of each client when it began."""

    means: str
    path: Path
    began: float
    ended: float
    acknowledged: list[int]


def main() -> None:
    """Measure, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="seconds with backups")
    parser.add_argument("--rate", type=float, default=200.0, help="max requests per second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "command": "python benchmarks/backups.py " + " ".join(sys.argv[1:]),
            "machine": {"cores": os.cpu_count(), "cpu": processor()},
            **measured(Path(folder), options.seconds, options.rate),
        }
    if options.json:
        write(options.json, found)
    print(backups(found))
    if any(one["lost"] or one["twice"] or one["different"] for one in found["means"]):
        sys.exit("a copy is not complete")


def measured(folder: Path, seconds: float, rate: float) -> Found:
    """Take backups under load, then verify them."""
    source = folder / "data" / "rls.db"
    copies: list[Backup] = []
    end = Event()
    # start and duration of the acknowledged requests of each client, in order of their rows
    requests: list[list[tuple[float, float]]] = [[] for _ in range(CLIENTS)]
    arguments = ("rls", "--data", str(source.parent), "--snapshot-rows", str(SNAPSHOT_ROWS))
    with (
        serving(*arguments) as (_, address),
        ThreadPoolExecutor(CLIENTS + len(MEANS)) as pool,
    ):
        by_sqlite(source, folder / "beginning.db")
        clients = [
            pool.submit(learn, address, i, requests[i], CLIENTS / rate, end) for i in range(CLIENTS)
        ]
        try:
            time.sleep(max(seconds / 5, 10.0))
            first = time.perf_counter()
            copying = [
                pool.submit(back_up, source, means, i, first, seconds, requests, copies)
                for i, means in enumerate(MEANS)
            ]
            for future in copying:
                future.result()
        finally:
            end.set()
        for future in clients:
            future.result()
    together = sorted(request for each in requests for request in each)
    outcomes = verified(folder / "beginning.db", copies)
    return {
        "seconds": seconds,
        "rows": len(together),
        "a second": len(together) / (together[-1][0] - together[0][0]),
        "before": latency([took for at, took in together if at < first]),
        "means": [
            outcome(name, [pair for pair in outcomes if pair[0].means == name], together)
            for name in MEANS
        ],
    }


def back_up(
    source: Path, means: str, number: int, first: float, seconds: float,
    requests: list[list[Any]], copies: list[Backup],
) -> None:  # fmt: skip
    """Back up by one means, in its turn or when its previous backup is complete."""
    for i in count(number, len(MEANS)):
        time.sleep(max(first + i - time.perf_counter(), 0.0))
        began, path = time.perf_counter(), source.parent.parent / f"{i}.db"
        if began - first >= seconds:
            return
        acknowledged = [len(each) for each in requests]
        MEANS[means](source, path)
        copies.append(Backup(means, path, began, time.perf_counter(), acknowledged))


def outcome(name: str, outcomes: list[tuple[Backup, Found]], requests: list[Any]) -> Found:
    """Summarize the backups of one means, and the requests that were sent meanwhile."""
    meanwhile = [
        took
        for backup, _ in outcomes
        for at, took in requests
        if backup.began - took < at < backup.ended
    ]
    seconds = [backup.ended - backup.began for backup, _ in outcomes]
    return {
        "name": name,
        "backups": len(outcomes),
        **{key: sum(one[key] for _, one in outcomes) for key in outcomes[0][1]},
        "seconds": [float(np.median(seconds)), max(seconds)],
        **latency(meanwhile),
    }


def latency(seconds: list[float]) -> Found:
    """Return quantiles of durations in milliseconds."""
    p50, p99 = 1000 * np.quantile(seconds, (0.5, 0.99))
    return {"p50 ms": float(p50), "p99 ms": float(p99)}


def learn(
    address: str, number: int, done: list[tuple[float, float]], interval: float, end: Event
) -> None:
    """Send rows at regular intervals until the end; append each acknowledged request to a list."""
    with Client(address) as client:
        due = time.perf_counter()
        for i in count():
            time.sleep(max(due - time.perf_counter(), 0.0))
            due += interval
            if end.is_set():
                return
            began = time.perf_counter()
            X, y = row(number, i)
            client.learn("rls", X, y, key=f"{number}-{i}")
            done.append((began, time.perf_counter() - began))


def row(client: int, i: int) -> tuple[Any, Any]:
    """Return a row of a client; its target identifies it."""
    name = client * BASE + i
    return np.random.default_rng(name).normal(size=(1, FEATURES)), np.array([float(name)])


def by_command(source: Path, to: Path) -> None:
    command = [sys.executable, "-m", "onepass", "backup", "--quiet", str(source), str(to)]
    subprocess.run(command, check=True)  # noqa: S603


def by_sqlite(source: Path, to: Path) -> None:
    with closing(sqlite3.connect(source)) as db, closing(sqlite3.connect(to)) as copy:
        db.backup(copy)


def by_copy(source: Path, to: Path) -> None:
    first = to.with_suffix(".first")
    by_command(source, first)
    shutil.copyfile(first, to)
    first.unlink()


MEANS: dict[str, Callable[[Path, Path], None]] = {
    "`onepass backup`": by_command,
    "`Connection.backup` of sqlite3": by_sqlite,
    "`onepass backup`, then `cp`": by_copy,
}


def verified(beginning: Path, copies: list[Backup]) -> list[tuple[Backup, Found]]:
    """Verify the copies, in the order of their versions, and delete them.

    Their logs overlap: one learner learns the blocks of all of them in turn.
    """
    outcomes = []
    descriptions = {copy.path: examine(copy.path) for copy in copies}
    copies = sorted(copies, key=lambda copy: descriptions[copy.path]["version"])
    path = str(beginning)
    with closing(Journal(path, read_only=True)) as journal:
        end = journal.before(0)
    model = from_contents(archive.loads(end.body, path), path, {})
    names: list[int] = []
    for copy in copies:
        with closing(Journal(copy.path, read_only=True)) as journal:
            for entry, digest in journal.entries(end, None):
                rows = decode_rows(entry.body, path)
                names += [int(name) for name in rows.y]
                learn_block(model, rows)
                end = end._replace(sequence=entry.sequence, digest=digest)
        stored = set(names)
        acknowledged = {
            client * BASE + i for client, rows in enumerate(copy.acknowledged) for i in range(rows)
        }
        with op.durable(copy.path) as restored:
            different = dumps(restored.model(), "restored") != dumps(model, "restored")
            before = restored.rows_seen
            last = copy.acknowledged[0] - 1
            repeated = restored.learn(*row(0, last), key=f"0-{last}").repeated
        twice = len(names) - len(stored) + (not repeated)
        twice += abs(before - len(names)) + abs(descriptions[copy.path]["keys"] - len(names))
        outcomes.append((copy, {
            "rows": len(names), "lost": len(acknowledged - stored), "twice": twice,
            "different": int(different),
        }))  # fmt: skip
        for file in copy.path.parent.glob(f"{copy.path.name}*"):
            file.unlink()
    return outcomes


@contextmanager
def serving(*arguments: str, **options: Any) -> Iterator[tuple[Any, str]]:
    """Run ``onepass serve`` with arguments; yield the process and its address.

    Parameters
    ----------
    *arguments : str
    **options
        Options of ``Popen``.
    """
    command = [sys.executable, "-m", "onepass", "serve", *arguments]
    command += ["--port", "0", "--log", "error"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)  # noqa: S603
    try:
        for line in process.stderr:  # type: ignore[union-attr]
            if address := re.search(r"http://[\d.:]+", line):
                yield process, address[0]
                return
        raise SystemExit("the service did not start")
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
