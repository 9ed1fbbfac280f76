"""Kill learning processes a thousand times: over HTTP, from Redis, and in the library.

Half of the kills come at any moment, the others at a step of the journal. The checks are in
``kill_checks.py``; the exit code is 1 if one fails::

    PYTHONPATH=tests python tests/service/kills.py --kills 1000
"""

import argparse
import importlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from kill_checks import KillReport, KillSchedule

from scripts import script

WAYS = {"over HTTP": "web_kills", "from Redis": "source_kills", "in the library": "durable_kills"}
SHARES = {"over HTTP": 0.45, "from Redis": 0.4, "in the library": 0.15}
COMMAND = "PYTHONPATH=tests python tests/service/kills.py"


def killed(way: str, folder: Path, kills: int, seed: int = 0) -> KillReport:
    """Kill learning processes of one kind, with its share of the kills."""
    module = importlib.import_module(WAYS[way])
    rng = np.random.default_rng(seed)
    found = KillReport()
    try:
        module.killed(
            folder, KillSchedule(module.STEPS, round(SHARES[way] * kills), rng), found, rng
        )
    except Exception as error:  # noqa: BLE001  the other kinds are still to be tried
        traceback.print_exc()
        found.faults.append(repr(error))
    return found


def summary(found: KillReport) -> dict[str, Any]:
    """Counts of one kind, for JSON."""
    return {
        "killed": dict(found.killed),
        "rounds": found.rounds,
        "rows": found.rows,
        "lost": found.lost,
        "twice": found.twice,
        "equal": found.equal,
        "wrong": found.error,
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the counts")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = {"seed": given.seed, "json": given.json}
    words = "".join(f" --{name} {value}" for name, value in options.items() if value)
    found: dict[str, Any] = {
        "command": f"{COMMAND} --kills {given.kills}{words}",
        "kills": given.kills,
        "ways": {},
    }
    for way in WAYS:
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="kills-"))  # what is wrong stays there
        one = found["ways"][way] = summary(killed(way, folder, given.kills, given.seed))
        one["seconds"] = round(time.monotonic() - began)
        left = f"{one['wrong']}: see {folder}" if one["wrong"] else "nothing is wrong"
        kills = sum(one["killed"].values())
        sys.stdout.write(f"{kills} kills {way}, {one['seconds']} s: {left}\n")
        sys.stdout.flush()
    sys.stdout.write(f"\n{script('kill_tables').kills(found)}\n")
    if given.json is not None:
        script("cells").write(given.json, found)
    return 1 if any(one["wrong"] for one in found["ways"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
