"""Kill runs at random times, resume them, and compare the result with an uninterrupted run.

A run is a process that executes ``onepass run … --save m.onepass --checkpoint 0``: it writes a
checkpoint after each block. It is killed (SIGKILL) after a random time and resumed, repeatedly,
until it finishes. All bytes of the models, and all numbers of the report except times, must then
equal those of an uninterrupted run. Then the next round begins.

For speed, most runs are forked from a process that has loaded the library; the others are separate
processes::

    python tests/killing.py --kills 300
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fork_server import ForkServer
from onepass.errors import CheckpointError
from onepass.evaluate import Report, run_progress
from onepass.serialization.models import describe

COMMAND = "import sys; from onepass.cli import main; sys.exit(main())"
PREPARE = """
from onepass import models
from onepass.cli import main
from onepass.evaluate import prequential
from onepass.serialization.models import load
from onepass.stream import read
import matplotlib.backends.backend_agg, matplotlib.pyplot, pyarrow.csv
models.pipelines(["rls", "sgd"], "regression")
"""


def run_process(arguments: list[str], timeout: float | None) -> int:
    """Run a command in a separate process; kill it after the timeout."""
    process = subprocess.Popen(  # noqa: S603  a fixed command
        [sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.DEVNULL
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@dataclass
class Result:
    """Counts of kills, and differences from the uninterrupted run."""

    kills: int = 0
    fresh: int = 0  # kills of separate processes
    rounds: int = 0
    halves: int = 0  # kills that left a partial file
    places: list[int] = field(default_factory=list)  # rows learned when a run was killed
    wrong: Counter[str] = field(default_factory=Counter)


def table(path: Path, rows: int) -> None:
    """Write a stream with numbers, text, missing values, missing targets and delayed targets."""
    rng = np.random.default_rng(0)
    km, by, wind = rng.normal(size=rows), rng.integers(0, 3, rows), rng.normal(size=rows)
    lines = ["id,by,km,wind,at,known,price"]
    for i in range(rows):
        price = "" if i % 97 == 5 else f"{2 * km[i] + by[i] + wind[i] / 9:.4f}"
        blown = "" if i % 7 == 0 else f"{wind[i]:.3f}"
        known = i + int(rng.integers(0, 90))
        lines.append(f"{i},{'abc'[by[i]]},{km[i]:.4f},{blown},{i},{known},{price}")
    path.write_text("\n".join(lines) + "\n")


def command(stream: Path, folder: Path) -> list[str]:
    """The command of a run."""
    arguments = (
        f"run {stream} --target price --drop id --time at --delay-until known --model rls,sgd "
        "--set rls__forgetting=1.0 "  # automatic forgetting continues to rounding, not bit for bit
        f"--window 200 --block 32 --checkpoint 0 -q --save {folder / 'm.onepass'}"
    )
    return arguments.split()


def outcome(folder: Path, report: Report) -> dict[str, str]:
    """What must be equal: digests of the models, and the report without times."""
    summary = report.to_dict()
    del summary["resumed"]
    for score in summary["scores"].values():
        del score["seconds"]
    models = {path.name: describe(path)["sha256"] for path in folder.glob("m-*.onepass")}
    return {"report": json.dumps(summary, sort_keys=True), **models}


def finish(stream: Path, folder: Path, run: Any) -> dict[str, str]:
    """Finish a run and return its outcome."""
    arguments = [*command(stream, folder), "--resume", "--report", str(folder / "report")]
    assert run(arguments, None) == 0
    return outcome(folder, Report.from_json(folder / "report" / "report.json"))


def kill_runs(folder: Path, kills: int, rows: int, *, every: int = 10, seed: int = 0) -> Result:
    """Kill runs; one of ``every`` is a separate process."""
    rng = np.random.default_rng(seed)
    stream = folder / "stream.csv"
    table(stream, rows)
    result = Result()
    with ForkServer(PREPARE, "main(given)") as fork_server:
        began = time.monotonic()
        (folder / "reference").mkdir()
        reference = finish(stream, folder / "reference", fork_server.run)
        longest = (time.monotonic() - began) / 3
        while result.kills < kills:
            place = folder / f"round{result.rounds}"
            place.mkdir()
            _round(result, stream, place, fork_server, rng, (kills, every, longest))
            again = finish(stream, place, fork_server.run)
            result.wrong.update(name for name in reference if again.get(name) != reference[name])
            result.rounds += 1
    return result


def _round(
    result: Result,
    stream: Path,
    place: Path,
    fork_server: ForkServer,
    rng: Any,
    plan: tuple[int, int, float],
) -> None:
    """Kill and resume a run until it finishes or there are enough kills."""
    kills, every, longest = plan
    arguments = [*command(stream, place), "--resume"]
    while result.kills < kills:
        alone = every > 0 and result.kills % every == every - 1
        run, timeout = (run_process, 1.0 + rng.random()) if alone else (fork_server.run, 0.0)
        code = run(arguments, timeout + longest * rng.random())
        if code == 0:
            return
        if code != -signal.SIGKILL:
            result.wrong[f"exit code {code}"] += 1
            return
        result.kills += 1
        result.fresh += alone
        result.halves += bool(halves := list(place.glob(".onepass-*")))
        for half in halves:
            shutil.rmtree(half)
        try:
            stood = run_progress(place / "m.onepass.run")
        except CheckpointError:
            result.wrong["a damaged checkpoint"] += 1
            return
        rows = 0 if stood is None else stood.rows
        if result.places and rows == result.places[-1]:  # no block was learned in that time
            longest *= 1.2
        result.places.append(rows)


def summary(result: Result, rows: int, seconds: float) -> str:
    """A summary as text."""
    places = np.array(result.places)
    behind = places[places > 0]
    return (
        f"{result.kills} kills, {result.fresh} of them of separate processes, in "
        f"{result.rounds} runs of {rows:,} rows; {seconds:.0f} s\n"
        f"{result.halves} left a partial file\n"
        f"{int((places == 0).sum())} came before the first checkpoint, the others after "
        f"{int(behind.min(initial=rows)):,} to {int(behind.max(initial=0)):,} rows\n"
        f"differences from the uninterrupted run: {dict(result.wrong) or 'none'}\n"
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3000, help="of the stream")
    parser.add_argument(
        "--every", type=int, default=10, help="one of so many runs is a separate process"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_runs(
            Path(folder), given.kills, given.rows, every=given.every, seed=given.seed
        )
    sys.stdout.write(summary(result, given.rows, time.monotonic() - began))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
