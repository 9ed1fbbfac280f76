"""Load: requests per second and CPU time per request of four services, measured with wrk.

    python benchmarks/load.py [--former SRC] [--seconds 5] [--rounds 7] [--rows 10000000] [--json F]

The services, each one process on this machine:

- ``onepass serve`` with RLSRegressor;
- with ``--former``, ``onepass serve`` of another version, from its folder ``src``;
- a bare Starlette handler, which returns a constant (``by_hand.py``);
- a group-commit service written by hand in about 80 lines (``by_hand.py``).

A request has one row in JSON: 100 features to predict, 10 to learn. Every learned row is on the
disk before the response is sent. Rounds alternate between the services; the table shows the
median round, with the lowest and highest. CPU time is that of the service's process, user and
system, per request. Then one client sends a long stream in blocks while the server's memory is
recorded. Requires wrk and Starlette; wrk itself occupies one core.
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
from contextlib import ExitStack, closing, contextmanager, suppress
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
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '%s'
local count = 0
local prefix = tostring(os.time()) .. tostring({}):gsub("table: ", "")
if %s then
  request = function()
    count = count + 1
    wrk.headers["Idempotency-Key"] = prefix .. count
    return wrk.format(nil, nil, nil, nil)
  end
end
done = function(summary, latency, requests)
  io.write(string.format('{"requests": %%d, "us": %%d, "bad": %%d, "p50": %%d, "p99": %%d}\\n',
    summary.requests, summary.duration, summary.errors.status, latency:percentile(50.0),
    latency:percentile(99.0)))
end
"""
Found = dict[str, Any]


BY_HAND = {"bare": "bare Starlette handler", "group_commit": "group commit by hand"}


class Run(NamedTuple):
    """Requests of one wrk process."""

    verb: str
    connections: int
    keys: bool = False


LOADS = [
    (what, connections, [Run(verb, connections, keys)])
    for what, verb, keys in (
        ("predict", "infer", False),
        ("learn", "learn", False),
        ("learn, with keys", "learn", True),
    )
    for connections in CONNECTIONS
] + [("predict and learn at once", 64, [Run("infer", 32), Run("learn", 32)])]


def main() -> None:
    """Measure, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--former", type=Path, help="the folder src of another version")
    parser.add_argument("--seconds", type=int, default=5, help="seconds per load and round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the long stream")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("load.py: wrk must be installed, for example by: apt-get install wrk")
    if find_spec("starlette") is None:
        sys.exit("load.py: starlette must be installed: pip install 'onepass[serve]'")
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "command": "python benchmarks/load.py " + " ".join(sys.argv[1:]),
            "machine": {"cores": os.cpu_count(), "cpu": processor(), "versions": versions()},
            "rounds": given.rounds,
            **lines(Path(folder), given.seconds, given.rounds, given.former),
        }
        if given.rows:
            found["stream"] = stream(Path(folder), given.rows)
    if given.json:
        write(given.json, found)
    print(load(found))


def lines(folder: Path, seconds: int, rounds: int, former: Path | None) -> Found:
    """Measure SQLite commits alone and every load of every service; return the median rounds."""
    alone = []
    found: dict[tuple[str, str, int], list[Found]] = {}
    with ExitStack() as services:
        begun = {"onepass": services.enter_context(serving(folder / "onepass"))}
        if former is not None:
            at = serving(folder / "former", former.resolve())
            begun["onepass, former version"] = services.enter_context(at)
        for app in ("bare", "group_commit"):
            begun[BY_HAND[app]] = services.enter_context(by_hand(folder / app, app))
        for _ in range(rounds):
            alone.append(commits(folder))
            for what, connections, runs in LOADS:
                for name, service in begun.items():
                    runs_of = found.setdefault((what, name, connections), [])
                    runs_of.append(measured(*service, runs, seconds))
            for verb in VERBS:
                process, address = begun["onepass"]
                runs_of = found.setdefault((f"Python client: {verb}", "onepass", 1), [])
                rates = by_client(verb, address, (PREDICTING, LEARNING), seconds)
                runs_of.append({**rates, "CPU us": None, "MB": resident(process.pid)})
    lines = [
        {"what": what, "service": name, "connections": connections,
         **sorted(runs_of, key=lambda one: one["a second"][-1])[len(runs_of) // 2],
         "all rounds": [one["a second"] for one in runs_of]}
        for (what, name, connections), runs_of in found.items()
    ]  # fmt: skip
    return {"commits alone": alone, "lines": lines}


def stream(folder: Path, rows: int) -> Found:
    """Send a stream of blocks; record the server's memory, file size and rate at ten points."""
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
    """Run one or two wrk processes: requests, latency, CPU time and memory of the server."""
    with tempfile.TemporaryDirectory() as folder:
        before = cpu(process.pid)
        begun = [wrk(Path(folder), address, run, seconds) for run in runs]
        results = [json.loads(each.communicate()[0].splitlines()[-1]) for each in begun]
        spent = cpu(process.pid) - before
    if bad := sum(one["bad"] for one in results):
        raise SystemExit(f"{bad} requests failed")
    return {
        "a second": [1e6 * one["requests"] / one["us"] for one in results],
        "CPU us": 1e6 * spent / sum(one["requests"] for one in results),
        **{f"{p} ms": [one[p] / 1000 for one in results] for p in ("p50", "p99")},
        "MB": resident(process.pid),
    }


def wrk(folder: Path, address: str, run: Run, seconds: int) -> Any:
    """Start wrk with a script in the folder."""
    verb, connections = run.verb, run.connections
    d = PREDICTING if verb == "infer" else LEARNING
    name = "wide" if verb == "infer" else "flow"
    row = np.random.default_rng(0).normal(size=d).round(6).tolist()
    inputs = [{"name": "X", "shape": [1, d], "datatype": "FP64", "data": row}]
    if verb == "learn":
        inputs.append({"name": "y", "shape": [1], "datatype": "FP64", "data": [1.5]})
    script = folder / f"{verb}-{connections}.lua"
    script.write_text(SCRIPT % (json.dumps({"inputs": inputs}), "true" if run.keys else "false"))
    url = f"{address}/v2/models/{name}/{verb}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


@contextmanager
def serving(folder: Path, src: Path | None = None) -> Iterator[tuple[Any, str]]:
    """Run the service with two fitted learners; ``src`` selects another version."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, d in (("wide", PREDICTING), ("flow", LEARNING)):
        X = rng.normal(size=(4 * d, d))
        op.save(op.RLSRegressor().partial_fit(X, X.sum(axis=1)), folder / f"{name}.onepass")
    data = folder / "served"
    given = {**os.environ, "OMP_NUM_THREADS": "1"}
    if src is not None:
        given["PYTHONPATH"] = str(src)
    command = [sys.executable, "-m", "onepass", "serve", str(folder / "flow.onepass"), "--data",
               str(data), "--port", "0", "--log", "error"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=given)  # noqa: S603
    try:
        address = None
        while address is None:
            line = process.stderr.readline()  # type: ignore[union-attr]
            if not line:
                raise SystemExit("the service did not start")
            at = re.search(r"http://[\d.:]+", line)
            address = at and at[0]
        created = urllib.request.Request(  # noqa: S310
            f"{address}/v2/models/wide",
            (folder / "wide.onepass").read_bytes(),
            {"Content-Type": "application/x-onepass"},
            method="PUT",
        )
        with urllib.request.urlopen(created) as response:  # noqa: S310
            response.read()
        yield process, str(address)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def by_hand(folder: Path, app: str) -> Iterator[tuple[Any, str]]:
    """Run a service of ``by_hand.py``."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = str(Path(__file__).parent)
    command = [sys.executable, "-m", "uvicorn", f"by_hand:{app}", "--app-dir", here, "--port",
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
    """Measure commits per second of SQLite alone, with the settings of the journal."""
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


def cpu(pid: int) -> float:
    """Return the CPU time of a process in seconds, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Return the resident size of a process in MB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def processor() -> str:
    """Return the name of the processor."""
    with suppress(OSError):
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if name := re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE):
            return name[1]
    return platform.processor()


def versions() -> dict[str, str]:
    """Return the versions of the server's packages."""
    found = {"Python": platform.python_version()}
    for name in ("uvicorn", "msgspec", "uvloop", "httptools", "starlette"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    main()
