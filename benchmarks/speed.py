"""Speed of this library and of others, and the limits of the machine.

Everything is measured in one run, on one thread, interleaved. Each part runs in a separate process,
so that threads and memory of libraries do not interfere. The results of a run of all parts are
written to benchmarks/results.

    python benchmarks/speed.py [PART ...] [--rounds 5] [--json FILE]
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from cells import versions, write  # noqa: E402  after the number of threads
from tables import RESULTS, markdown  # noqa: E402  after the number of threads

PARTS = {
    "rls": "speed_rls:rls",
    "windows": "speed_rls:windows",
    "rows": "speed_rls:single_rows",
    "pipelines": "speed_rls:pipelines",
    "keyed": "speed_rls:keyed",
    "bounded": "speed_rls:bounded",
    **{name: f"speed_{name}:works" for name in ("slopes", "memories", "art", "files", "start")},
}
"""Part -> file and function, with arguments ``rounds`` and ``limits``."""
SHOWN = ("speed_losses", "speed", "speed_windows", "speed_notes", "speed_aside")
LIBRARIES = (
    "numpy", "scipy", "scikit-learn", "torch", "pyarrow", "polars", "polars-online", "polars-ds",
    "polars-ols", "river", "padasip", "reservoirpy", "dynamax", "scikit-learn-intelex",
    "vowpalwabbit", "artlib", "opacus", "rebayes",
)  # fmt: skip


def main() -> None:
    """Run all parts, or the selected ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--section", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if args.section:
        print(json.dumps(section(args.section, args.rounds)))
        return
    found: dict[str, Any] = {
        "command": "make bench",
        "machine": machine(),
        "rounds": args.rounds,
        "sections": {},
    }
    for name in args.parts or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--section", name, "--rounds", str(args.rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603
        found["sections"][name] = json.loads(done.stdout.splitlines()[-1])
    if args.json or not args.parts:
        day = datetime.now(UTC).date().isoformat()
        write(args.json or RESULTS / f"{day}.json", found)
    print(*(markdown(name, found) for name in SHOWN), sep="\n\n")


def section(name: str, rounds: int) -> dict[str, Any]:
    """Run a part, after measuring the limits of the machine."""
    limits = importlib.import_module("limits").measured(rounds)
    works = []
    file, function = PARTS[name].split(":")
    for work in getattr(importlib.import_module(file), function)(rounds, limits):
        print(f"  {work.name}: {work.ratio}", file=sys.stderr, flush=True)
        works.append(work.to_dict())
    return {"peak": limits.peak, "bandwidth": limits.bandwidth, "works": works}


def machine() -> dict[str, Any]:
    """Describe the machine and the versions."""
    model = platform.processor()
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        lines = listed.read_text(encoding="utf-8").splitlines()
        model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": 1,
        "system": platform.platform(),
        "python": platform.python_version(),
        **versions(LIBRARIES),
    }


if __name__ == "__main__":
    main()
