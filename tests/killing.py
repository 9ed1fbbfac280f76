"""Kill runs at random moments, resume them, and hold what comes of it to the unbroken run.

A run is a process that does what ``onepass run … --save m.onepass --checkpoint 0`` does: it writes
where it stands after each block. It is killed (SIGKILL) after a random time, resumed, killed again,
and so on until it comes to its end. Then every byte of the models, and every number of the report
but the seconds, must be those of the run that was never broken. Then the next round begins.

To be quick, most runs are forked from a process that has the library loaded; the others are
interpreters of their own::

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


def fresh(words: list[str], patience: float | None) -> int:
    """The same with an interpreter of its own."""
    process = subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-c", COMMAND, *words], stdout=subprocess.DEVNULL
    )
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@dataclass
class Found:
    """What came of it."""

    kills: int = 0
    fresh: int = 0  # kills of interpreters of their own
    rounds: int = 0
    halves: int = 0  # kills that left a file half written
    places: list[int] = field(default_factory=list)  # rows that a run had when it was killed
    wrong: Counter[str] = field(default_factory=Counter)


def table(path: Path, rows: int) -> None:
    """A stream of numbers, text, gaps, missing answers, and answers that come later."""
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
    """The run that is killed."""
    words = (
        f"run {stream} --target price --drop id --time at --delay-until known --model rls,sgd "
        f"--window 200 --block 32 --checkpoint 0 -q --save {folder / 'm.onepass'}"
    )
    return words.split()


def outcome(folder: Path, report: Report) -> dict[str, str]:
    """All that must be equal: the bytes of the models, the numbers of the report."""
    summary = report.to_dict()
    del summary["resumed"]
    for score in summary["scores"].values():
        del score["seconds"]
    models = {path.name: describe(path)["sha256"] for path in folder.glob("m-*.onepass")}
    return {"report": json.dumps(summary, sort_keys=True), **models}


def whole(stream: Path, folder: Path, run: Any) -> dict[str, str]:
    """Come to the end, and tell what came of it."""
    words = [*command(stream, folder), "--resume", "--report", str(folder / "report")]
    assert run(words, None) == 0
    return outcome(folder, Report.from_json(folder / "report" / "report.json"))


def killed(folder: Path, kills: int, rows: int, *, every: int = 10, seed: int = 0) -> Found:
    """Kill runs so often, in as many rounds as it takes, every so many of them a fresh one."""
    rng = np.random.default_rng(seed)
    stream = folder / "stream.csv"
    table(stream, rows)
    found = Found()
    with ForkServer(PREPARE, "main(given)") as fork_server:
        began = time.monotonic()
        (folder / "calm").mkdir()
        calm = whole(stream, folder / "calm", fork_server.run)
        longest = (time.monotonic() - began) / 3
        while found.kills < kills:
            place = folder / f"round{found.rounds}"
            place.mkdir()
            _round(found, stream, place, fork_server, rng, (kills, every, longest))
            again = whole(stream, place, fork_server.run)
            found.wrong.update(name for name in calm if again.get(name) != calm[name])
            found.rounds += 1
    return found


def _round(
    found: Found,
    stream: Path,
    place: Path,
    fork_server: ForkServer,
    rng: Any,
    plan: tuple[int, int, float],
) -> None:
    """Kill a run again and again, until it comes to its end or there were enough kills."""
    kills, every, longest = plan
    words = [*command(stream, place), "--resume"]
    while found.kills < kills:
        alone = every > 0 and found.kills % every == every - 1
        run, patience = (fresh, 1.0 + rng.random()) if alone else (fork_server.run, 0.0)
        code = run(words, patience + longest * rng.random())
        if code == 0:
            return
        if code != -signal.SIGKILL:
            found.wrong[f"exit code {code}"] += 1
            return
        found.kills += 1
        found.fresh += alone
        found.halves += bool(halves := list(place.glob(".onepass-*")))
        for half in halves:
            shutil.rmtree(half)
        try:
            stood = run_progress(place / "m.onepass.run")
        except CheckpointError:
            found.wrong["a torn checkpoint"] += 1
            return
        rows = 0 if stood is None else stood.rows
        if found.places and rows == found.places[-1]:  # no block was learned in that time
            longest *= 1.2
        found.places.append(rows)


def summary(found: Found, rows: int, seconds: float) -> str:
    """What came of it, in words."""
    places = np.array(found.places)
    behind = places[places > 0]
    return (
        f"{found.kills} kills, {found.fresh} of them of interpreters of their own, in "
        f"{found.rounds} runs of {rows:,} rows; {seconds:.0f} s\n"
        f"{found.halves} met a file half written\n"
        f"{int((places == 0).sum())} came before the first checkpoint, the others after "
        f"{int(behind.min(initial=rows)):,} to {int(behind.max(initial=0)):,} rows\n"
        f"differences from the unbroken run: {dict(found.wrong) or 'none'}\n"
    )


def main() -> int:
    """As the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3000, help="of the stream")
    parser.add_argument("--every", type=int, default=10, help="one in so many is a fresh process")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = killed(Path(folder), given.kills, given.rows, every=given.every, seed=given.seed)
    sys.stdout.write(summary(found, given.rows, time.monotonic() - began))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
