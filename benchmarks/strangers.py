"""Hostile connections: memory of the server, and latency of another client, before and during them.

    python benchmarks/strangers.py [--connections 10000] [--waves 2] [--files N] [--json F]

Each wave opens connections to ``onepass serve rls``, in equal parts of three kinds:

- reset: half of a request, then RST;
- slow: one byte of a request every three seconds, until the server closes the connection;
- silent: nothing is sent.

Slow and silent connections are open at one time, as far as the limit of open files allows, until
the server's timeouts, which are 20 seconds here instead of 30 and 75, so that a run is short.
Another client learns and predicts all the time. ``--files`` limits the open files of the server.
"""

import argparse
import asyncio
import multiprocessing
import os
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from backups import serving
from cells import Found, write
from load import processor, resident
from load_tables import VERBS, strangers

from onepass.service import Client
from onepass.service.lock import file_limit

TIMEOUT = 20.0  # seconds, of requests and of idle connections
QUIET = 15.0  # seconds of measuring without strangers
RATE = 500.0  # connections opened per second
HEAD = b"POST /v2/models/rls/learn HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"[" * 500
RST = struct.pack("ii", 1, 0)
KINDS = ("reset", "slow", "silent")


def main() -> None:
    """Measure, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=10_000, help="connections of a wave")
    parser.add_argument("--waves", type=int, default=2)
    parser.add_argument("--files", type=int, help="limit of open files of the server")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "command": "python benchmarks/strangers.py " + " ".join(sys.argv[1:]),
            "machine": {"cores": os.cpu_count(), "cpu": processor()},
            "connections": options.connections,
            "timeout": TIMEOUT,
            "files": options.files or file_limit(),
            "phases": measured(Path(folder), options.connections, options.waves, options.files),
        }
    if options.json:
        write(options.json, found)
    print(strangers(found))


def measured(folder: Path, connections: int, waves: int, files: int | None) -> list[Found]:
    """Measure before, during and after each wave."""
    arguments = ("--data", str(folder), "--request-timeout", f"{TIMEOUT:g}",
                 "--idle-timeout", f"{TIMEOUT:g}")  # fmt: skip
    limit = None if files is None else partial(_limit, files)
    with (
        serving("rls", *arguments, preexec_fn=limit) as (process, address),
        Client(address) as client,
    ):
        phase = partial(measure, process.pid, client)
        phase("warm-up", _until(QUIET))
        phases = [phase("before", _until(QUIET))]
        host, _, port = address.removeprefix("http://").partition(":")
        for i in range(1, waves + 1):
            attack = multiprocessing.get_context("spawn").Process(
                target=wave, args=(host, int(port), connections)
            )
            attack.start()
            phases.append(phase(f"wave {i}", lambda attack=attack: not attack.is_alive()))
            phase("timeouts", _until(TIMEOUT))
            phases.append(phase(f"after wave {i}", _until(QUIET)))
    return phases


def measure(pid: int, client: Client, name: str, ended: Callable[[], bool]) -> Found:
    """Learn and predict until a phase ends; return durations, memory and open files."""
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {verb: [] for verb in VERBS}
    memory, files = 0.0, 0
    checked = 0.0
    while not ended():
        X = rng.normal(size=(1, 10))
        for verb in VERBS:
            began = time.perf_counter()
            if verb == "learn":
                client.learn("rls", X, X.sum(axis=1))
            else:
                client.predict("rls", X)
            seconds[verb].append(time.perf_counter() - began)
        if time.perf_counter() - checked > 0.25:
            checked = time.perf_counter()
            memory = max(memory, resident(pid))
            files = max(files, open_files(pid))
    return {
        "name": name,
        "MB": [memory, resident(pid)],
        "files": [files, open_files(pid)],
        "requests": len(seconds["learn"]),
        **{f"{verb} p99 ms": 1000 * float(np.quantile(seconds[verb], 0.99)) for verb in VERBS},
    }


def open_files(pid: int) -> int:
    """Return the number of open files of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _until(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


def _limit(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def wave(host: str, port: int, connections: int) -> None:
    """Open connections of all kinds; return when the server has closed them."""
    file_limit()  # raise it
    asyncio.run(_wave(host, port, connections))


async def _wave(host: str, port: int, connections: int) -> None:
    began, tasks = time.perf_counter(), []
    for i in range(connections):
        await asyncio.sleep(began + i / RATE - time.perf_counter())
        tasks.append(asyncio.create_task(stranger(host, port, KINDS[i % len(KINDS)])))
    await asyncio.gather(*tasks)


async def stranger(host: str, port: int, kind: str) -> None:
    """Open one connection, and wait until the server closes it, or reset it."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection, suppress(OSError):
        connection.settimeout(0.0)
        await loop.sock_connect(connection, (host, port))
        if kind == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
            await loop.sock_sendall(connection, HEAD)
        elif kind == "slow":
            closed = asyncio.create_task(loop.sock_recv(connection, 1))
            for byte in HEAD:
                await loop.sock_sendall(connection, bytes([byte]))
                if (await asyncio.wait([closed], timeout=3.0))[0]:
                    break
            closed.cancel()
        else:
            await loop.sock_recv(connection, 1)


if __name__ == "__main__":
    main()
