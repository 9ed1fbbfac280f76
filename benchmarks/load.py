"""Load: how many requests a second one service answers, with wrk on the same machine.

    python benchmarks/load.py [--seconds 5] [--rounds 7] [--rows 10000000] [--json FILE]

One process of ``onepass serve`` with RLSRegressor: 100 features where it predicts, 10 where it
learns, a row a request, in JSON. Every row is on the disk before its request is answered. Each is
asked in several rounds, and the median told, with the lowest and the highest: the machine has
other work too. In each round the same is asked of a service that one would write oneself
(``by_hand.py``; it needs starlette), the Python client asks the service, and what a commit of
SQLite alone costs is measured. Then one client sends a long stream, in blocks, while the server's
memory is looked at. wrk must be installed; it takes a core.
"""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cells import write
from load_client import VERBS, by_client
from load_tables import load

import onepass as op
from onepass.service import Client

PREDICTING, LEARNING = 100, 10  # features
BLOCK = 1000  # rows of a request of the long stream
CONNECTIONS = (1, 32, 128)
AHEAD = 16  # requests that one client has under way
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local body = '%s'
local count = 0
local keys, ahead = %s, %d
local prefix = tostring(os.time()) .. tostring({}):gsub("table: ", "")
wrk.body = body
if ahead > 1 then
  init = function() many = string.rep(wrk.format(nil, nil, nil, body), ahead) end
  request = function() return many end
elseif keys then
  request = function()
    count = count + 1
    wrk.headers["Idempotency-Key"] = prefix .. count
    return wrk.format(nil, nil, nil, body)
  end
end
done = function(summary, latency, requests)
  io.write(string.format('{"requests": %%d, "us": %%d, "bad": %%d, "p50": %%d, "p99": %%d}\\n',
    summary.requests, summary.duration, summary.errors.status, latency:percentile(50.0),
    latency:percentile(99.0)))
end
"""
Found = dict[str, Any]


class Run(NamedTuple):
    """What one wrk asks."""

    verb: str
    connections: int
    keys: bool = False
    ahead: int = 1
    """Requests of each connection that are under way."""


def main() -> None:
    """Measure, print a table, and write the results."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--seconds", type=int, default=5, help="of each load in each round")
    asked.add_argument("--rounds", type=int, default=7)
    asked.add_argument("--rows", type=int, default=10_000_000, help="of the long stream")
    asked.add_argument("--json", type=Path)
    given = asked.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("load.py: wrk must be installed, such as by: apt-get install wrk")
    if find_spec("starlette") is None:
        sys.exit("load.py: starlette must be installed, such as by: pip install starlette")
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "command": "python benchmarks/load.py --json benchmarks/results/load.json",
            "machine": {"cores": os.cpu_count(), "cpu": processor(), "versions": versions()},
            "rounds": given.rounds,
            **lines(Path(folder), given.seconds, given.rounds),
        }
        if given.rows:
            found["stream"] = stream(Path(folder), given.rows)
    if given.json:
        write(given.json, found)
    print(load(found))


def lines(folder: Path, seconds: int, rounds: int) -> Found:
    """Commits alone, and predicting, learning, both at once: of each load the median round."""
    loads = [
        (what, connections, [Run(verb, connections, keys)])
        for what, verb, keys in (
            ("predict", "infer", False),
            ("learn", "learn", False),
            ("learn, with keys", "learn", True),
        )
        for connections in CONNECTIONS
    ]
    loads.append((f"learn, {AHEAD} ahead", 1, [Run("learn", 1, ahead=AHEAD)]))
    both = ("both at once: predict, learn", 64, [Run("infer", 32), Run("learn", 32)])
    by_hand = [load for load in loads if "keys" not in load[0]]
    alone = []
    found: dict[tuple[str, int], list[Found]] = {}
    with serving(folder) as ours, writing_oneself(folder) as other:
        for _ in range(rounds):
            alone.append(commits(folder))
            for what, connections, runs in (*loads, both):
                kept = found.setdefault((what, connections), [])
                kept.append(measured(*ours, runs, seconds))
            for verb in VERBS:
                kept = found.setdefault((f"the Python client: {verb}", 1), [])
                asked = by_client(verb, ours[1], (PREDICTING, LEARNING), seconds)
                kept.append({**asked, "MB": resident(ours[0].pid)})
            for what, connections, runs in by_hand:
                kept = found.setdefault((f"by hand: {what}", connections), [])
                kept.append(measured(*other, runs, seconds))
    told = [
        {"what": what, "connections": connections,
         **sorted(kept, key=lambda one: one["a second"][-1])[len(kept) // 2],
         "all rounds": [one["a second"] for one in kept]}
        for (what, connections), kept in found.items()
    ]  # fmt: skip
    return {"commits alone": alone, "lines": told}


def stream(folder: Path, rows: int) -> Found:
    """Rows of one client in blocks; at ten points the server's memory, its file, and its rate."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(BLOCK, LEARNING))
    y = X.sum(axis=1) + rng.normal(size=BLOCK)
    points, seconds, before = [], 0.0, 0.0
    with serving(folder / "stream") as (process, address), Client(address) as client:
        file = folder / "stream" / "served" / "flow.db"
        for i in range(1, rows // BLOCK + 1):
            began = time.perf_counter()
            client.learn("flow", X, y)
            seconds += time.perf_counter() - began
            if i % (rows // BLOCK // 10) == 0:
                held = (resident(process.pid), file.stat().st_size / 1e6)
                points.append((i * BLOCK, *held, rows / 10 / (seconds - before)))
                before = seconds
    return {"rows": rows, "block": BLOCK, "a second": rows / seconds, "points": points}


def measured(process: Any, address: str, runs: list[Run], seconds: int) -> Found:
    """One or two wrks at once; requests and percentiles of each, and the server's memory."""
    with tempfile.TemporaryDirectory() as folder:
        begun = [wrk(Path(folder), address, run, seconds) for run in runs]
        said = [json.loads(each.communicate()[0].splitlines()[-1]) for each in begun]
    bad = sum(one["bad"] for one in said)
    if bad:
        raise SystemExit(f"{bad} requests were refused")
    waits = [run.ahead == 1 for run in runs]  # else wrk does not know which answer is whose
    return {
        "a second": [1e6 * one["requests"] / one["us"] for one in said],
        **{
            f"{p} ms": [one[p] / 1000 if w else None for one, w in zip(said, waits, strict=True)]
            for p in ("p50", "p99")
        },
        "MB": resident(process.pid),
    }


def wrk(folder: Path, address: str, run: Run, seconds: int) -> Any:
    """A client that has begun; its script stands in the folder."""
    verb, connections = run.verb, run.connections
    d = PREDICTING if verb == "infer" else LEARNING
    name = "wide" if verb == "infer" else "flow"
    row = np.random.default_rng(0).normal(size=d).round(6).tolist()
    inputs = [{"name": "X", "shape": [1, d], "datatype": "FP64", "data": row}]
    if verb == "learn":
        inputs.append({"name": "y", "shape": [1], "datatype": "FP64", "data": [1.5]})
    script = folder / f"{verb}-{connections}.lua"
    keys = "true" if run.keys else "false"
    script.write_text(SCRIPT % (json.dumps({"inputs": inputs}), keys, run.ahead))
    url = f"{address}/v2/models/{name}/{verb}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Any, str]]:
    """The service, with two learners that have learned some rows."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, d in (("wide", PREDICTING), ("flow", LEARNING)):
        X = rng.normal(size=(4 * d, d))
        op.save(op.RLSRegressor().partial_fit(X, X.sum(axis=1)), folder / f"{name}.onepass")
    data = folder / "served"
    data.mkdir()
    with op.durable(data / "wide.db", op.load(folder / "wide.onepass")):
        pass
    command = [sys.executable, "-m", "onepass", "serve", str(folder / "flow.onepass"), "--data",
               str(data), "--port", "0", "--log", "error"]  # fmt: skip
    given = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=given)  # noqa: S603
    try:
        address = None
        while address is None:
            line = process.stderr.readline()  # type: ignore[union-attr]
            if not line:
                raise SystemExit("the service did not start")
            at = re.search(r"http://[\d.:]+", line)
            address = at and at[0]
        with urllib.request.urlopen(f"{address}/v2/health/ready") as answer:  # noqa: S310
            answer.read()
        yield process, str(address)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def writing_oneself(folder: Path) -> Iterator[tuple[Any, str]]:
    """The service of ``by_hand.py``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = str(Path(__file__).parent)
    command = [sys.executable, "-m", "uvicorn", "by_hand:site", "--app-dir", here, "--port",
               str(port), "--no-access-log", "--log-level", "error"]  # fmt: skip
    given = {**os.environ, "OMP_NUM_THREADS": "1", "BY_HAND": str(folder)}
    process = subprocess.Popen(command, env=given)  # noqa: S603
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def commits(folder: Path, count: int = 2000) -> float:
    """Commits a second of SQLite alone, as the journal has it set, in a file of its own."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as fresh,
        closing(sqlite3.connect(Path(fresh) / "alone.db", isolation_level=None)) as db,
    ):
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            db.execute(f"PRAGMA {setting}")
        db.execute("CREATE TABLE log (sequence INTEGER PRIMARY KEY, body BLOB)")
        began = time.perf_counter()
        for _ in range(count):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO log (body) VALUES (zeroblob(200))")
            db.execute("COMMIT")
        return count / (time.perf_counter() - began)


def resident(pid: int) -> float:
    """MB that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def processor() -> str:
    """What the system calls it."""
    with suppress(OSError):
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if name := re.search(r"^model name\s*: (.*)$", told, re.MULTILINE):
            return name[1]
    return platform.processor()


def versions() -> dict[str, str]:
    """Of what answers."""
    found = {"Python": platform.python_version()}
    for name in ("uvicorn", "msgspec", "uvloop", "httptools", "starlette"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    main()
