"""Growth of the cost per row with rows, features, outputs, directions, block size and threads.

    python benchmarks/growth.py [--quick] [--only rows features ...]

Rows are normal and generated in blocks; only the library is timed. Times are CPU seconds, the best
of several rounds; for threads they are wall-clock seconds. Memory is the state of the learner
(``nbytes``), and for the curve over rows the resident size of the process. ``--quick`` ends at 10⁷
rows and 3,000 features, and takes two minutes instead of ten. Results of parts that are not
selected are kept.
"""

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

if "--threads" not in sys.argv:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"

import numpy as np
from cells import write
from sklearn.base import clone
from tables import RESULTS, markdown

import onepass as op

RESULT = RESULTS / "growth.json"
SECONDS = 0.4  # approximate time per point
ROUNDS = 3

Point = dict[str, float]
Curves = dict[str, list[Point]]
Clock = Callable[[], float]


# -- measurements ----------------------------------------------------------------------------------


def over_rows(*, quick: bool) -> Curves:
    """Measure time per row and resident size over the number of rows, with five features."""
    most = 10**7 if quick else 10**8
    kinds = {
        "RLS": op.RLSRegressor(),
        "RLS, forgetting 0.999": op.RLSRegressor(forgetting=0.999),
        "SGD": op.SGDRegressor(step_size=0.01),
    }
    return {name: list(stream(model, most)) for name, model in kinds.items()}


def stream(model: Any, most: int, p: int = 5, block: int = 8192) -> Iterator[Point]:
    """Yield points at 1, 2 and 5 times powers of ten, each over the rows since the last."""
    rng, w = np.random.default_rng(0), np.arange(1.0, p + 1)
    stops = [k * 10**e for e in range(4, 9) for k in (1, 2, 5) if k * 10**e <= most]
    seen, begun = 0, clone(model)
    begun.test_then_train(
        rng.normal(size=(block, p)), rng.normal(size=block)
    )  # load everything before timing
    for stop in stops:
        first, spent = seen, 0.0
        while seen < stop:
            X = rng.normal(size=(min(block, stop - seen), p))
            y = X @ w + rng.normal(size=len(X))
            began = time.process_time()
            model.test_then_train(X, y)
            spent += time.process_time() - began
            seen += len(X)
        held = {"MB": resident() / 1e6, "bytes": float(model.nbytes)}
        yield {"at": stop, "s": spent / (stop - first), **held}


def resident() -> int:
    """Return the resident size of this process in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return int(found[1]) * 1024 if found else 0


def over_features(*, quick: bool) -> Curves:
    """Measure time per row over features: RLS, ORFit with 100 directions, SGD."""
    sizes = [10, 30, 100, 300, 1000, 3000, 10_000, 20_000]
    sizes = [p for p in sizes if p <= 3000] if quick else sizes
    kinds: dict[str, Callable[[], Any]] = {
        "RLS": lambda: op.RLSRegressor(fit_intercept=False),
        "ORFit, m = 100": lambda: op.ORFitRegressor(memory=100),
        "SGD": lambda: op.SGDRegressor(step_size=1e-5),
    }
    found: Curves = {name: [] for name in kinds}
    for p in sizes:
        for name, make in kinds.items():
            if name.startswith("ORFit") and p < 300:
                continue  # directions span all features
            needed = 8 * p * p * 3  # three copies of the triangle
            if name == "RLS" and needed > free():
                print(f"  RLS of {p:,} features needs {needed / 1e9:.0f} GB: skipped")
                continue
            rows = 250 if name.startswith("ORFit") else 1024  # two rotations of the memory
            found[name].append(point(p, make, p, rows))
    return found


def free() -> int:
    """Return the available memory in bytes."""
    text = Path("/proc/meminfo").read_text(encoding="utf-8")
    return 1024 * int(re.findall(r"MemAvailable:\s+(\d+)", text)[0])


def over_outputs(*, quick: bool) -> Curves:
    """Measure time per row over outputs, which share the triangle, with 100 features."""
    sizes = [1, 2, 5, 10, 20, 50, 100, 200] + ([] if quick else [500, 1000])
    return {
        "RLS, p = 100": [point(c, op.RLSRegressor, 100, 1024, c) for c in sizes],
        "SGD, p = 100": [
            point(c, lambda: op.SGDRegressor(step_size=1e-3), 100, 2048, c) for c in sizes
        ],
    }


def over_directions(*, quick: bool) -> Curves:
    """Measure time per row over retained directions, with 10,000 features and a full memory."""
    sizes = [1, 2, 5, 10, 20, 50, 100] + ([] if quick else [200])
    kinds = {
        "ORFit (Principal)": op.memory.Principal,
        "Frequent directions (Sketch)": op.memory.Sketch,
        "LastDirections": op.memory.LastDirections,
    }
    return {
        name: [point(m, partial(directions, kind, m), 10_000, max(5 * m // 2, 40)) for m in sizes]
        for name, kind in kinds.items()
    }


def directions(kind: Callable[[int], Any], m: int) -> Any:
    """Return a learner with m directions."""
    return op.ORFitRegressor(memory=kind(m))


def over_blocks(*, quick: bool) -> Curves:
    """Measure time per row over the block size."""
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
    return {
        f"RLS, p = {p}": [
            point(n, op.RLSRegressor, p, n, seconds=SECONDS / 2 if quick else SECONDS)
            for n in sizes
            if n * p <= 2_000_000
        ]
        for p in (10, 100, 1000)
    }


def over_threads(*, quick: bool) -> Curves:
    """Measure time per row on one and two threads, in separate, interleaved processes."""
    sizes = [10, 100, 1000] + ([3000] if quick else [3000, 5000])
    found: Curves = {"1 thread": [], "2 threads": []}
    for p in sizes:
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for name in found:
                took = threaded(p, int(name[0]))
                best[name] = min(took, best.get(name, took))
        for name, took in best.items():
            found[name].append({"at": p, "s": took})
    return found


def threaded(p: int, threads: int) -> float:
    """Return seconds per row in a process with the given number of threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    settings = {**os.environ, **dict.fromkeys(names, str(threads))}
    command = [sys.executable, __file__, "--threads", str(p)]
    done = subprocess.run(  # noqa: S603  our own interpreter
        command, env=settings, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def alone(p: int) -> float:
    """Return wall-clock seconds per row with the threads of this process."""
    rows = 8192 if p <= 100 else 1024
    return point(p, op.RLSRegressor, p, rows, rounds=1, clock=time.perf_counter)["s"]


PARTS: dict[str, Callable[..., Curves]] = {
    "rows": over_rows,
    "features": over_features,
    "outputs": over_outputs,
    "directions": over_directions,
    "blocks": over_blocks,
    "threads": over_threads,
}


def point(
    at: float,
    make: Callable[[], Any],
    p: int,
    rows: int,
    c: int = 1,
    *,
    rounds: int = ROUNDS,
    clock: Clock = time.process_time,
    seconds: float = SECONDS,
) -> Point:
    """Return seconds per row in blocks of this shape, best of several rounds, and the state."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, p))
    Y = X[:, :1] * np.arange(1.0, c + 1) + rng.normal(size=(rows, c))
    y = Y[:, 0] if c == 1 else Y
    model = make()
    began = clock()
    model.test_then_train(X, y)  # the first block starts with an empty memory
    count = max(1, int(seconds / rounds / max(clock() - began, 1e-6)))
    best = float("inf")
    for _ in range(rounds if p < 5000 else 1):
        began = clock()
        for _ in range(count):
            model.test_then_train(X, y)
        best = min(best, (clock() - began) / (count * rows))
    found = {"at": float(at), "s": best, "bytes": float(model.nbytes)}
    del model, X, Y, y
    gc.collect()
    return found


# -- results ---------------------------------------------------------------------------------------


def main() -> None:
    """Measure, write the results and draw the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10⁷ rows, 3,000 features")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--draw", action="store_true", help="only draw stored results")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.threads:
        print(alone(given.threads))
        return
    parts: dict[str, Curves] = {}
    if given.json.exists():
        parts = json.loads(given.json.read_text(encoding="utf-8"))["parts"]
    for name in [] if given.draw else given.only:
        began = time.perf_counter()
        parts[name] = PARTS[name](quick=given.quick)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    found = {"command": "python benchmarks/growth.py", "cores": os.cpu_count(), "parts": parts}
    write(given.json, found)
    print(markdown("growth", found))
    if given.json == RESULT:
        from growth_figure import draw  # noqa: PLC0415  needs matplotlib

        draw(found)


if __name__ == "__main__":
    main()
