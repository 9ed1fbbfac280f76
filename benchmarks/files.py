"""Learning a file larger than memory in one pass: memory, rows per second, and overlap.

    python benchmarks/files.py --gb 5 --json benchmarks/results/files.json

The script generates a CSV file with ten features and a Parquet file with a single row group.
Recursive least squares reads and learns each in a separate process, which records its memory at ten
points. It is compared with what a user would write instead: pandas in chunks, and the same model as
normal equations in NumPy, block by block. Both predict each block before they learn it, on one
thread; the coefficients must agree. Times are from one run.

The overlap of reading and learning is the best of several interleaved rounds. It needs an idle
core, so the load of the machine is recorded too.
"""

# ruff: noqa: PLC0415  a process imports only what it measures

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402  reads the number of threads on import

P = 10
BLOCK = 1024
CHUNK = 65536  # rows per chunk of pandas
NAMES = [f"x{j}" for j in range(P)]
WEIGHTS = np.arange(1.0, P + 1)


def rows(rng: np.random.Generator, n: int) -> dict[str, np.ndarray[Any, Any]]:
    X = rng.normal(size=(n, P)).round(6)
    y = (X @ WEIGHTS + 5.0 + rng.normal(size=n)).round(6)
    return {name: X[:, j] for j, name in enumerate(NAMES)} | {"y": y}


def make_csv(path: Path, size: float) -> None:
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        options = csv.WriteOptions(include_header=True)
        while file.tell() < size:
            csv.write_csv(pa.table(rows(rng, 200_000)), file, options)
            options = csv.WriteOptions(include_header=False)


def make_parquet(path: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(rows(np.random.default_rng(1), n))
    pq.write_table(table, path, row_group_size=n, use_dictionary=False, compression="none")


def memory(what: str) -> int:
    """Return the resident size (RSS) or its peak (HWM) of this process in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(rf"Vm{what}:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def ours(path: Path, most: int | None = None, *, ahead: bool = True) -> dict[str, Any]:
    """Read and learn; record memory at ten points."""
    import onepass as op

    stream = op.stream.read(path, target="y", block=BLOCK)
    stream._source.ahead = ahead  # type: ignore[misc]  # noqa: SLF001  what is measured here
    model = op.RLSRegressor()
    points: list[dict[str, float]] = []
    began, n, error = time.perf_counter(), 0, 0.0
    for block in islice(stream, most):
        predictions = model.test_then_train(block.X, block.y)
        error += float(np.abs(predictions - block.y).sum())
        n += len(block)
        if (stream.fraction or 0.0) * 10 >= len(points) + 1:
            points.append({"rows": n, "rss": memory("RSS"), "peak": memory("HWM")})
    seconds = time.perf_counter() - began
    coef = [float(model.intercept_), *map(float, model.coef_)]
    return {"rows": n, "seconds": seconds, "mae": error / n, "coef": coef, "memory": points}


def reading(path: Path, most: int) -> dict[str, Any]:
    """Only read."""
    import onepass as op

    stream = op.stream.read(path, target="y", block=BLOCK)
    stream._source.ahead = False  # type: ignore[misc]  # noqa: SLF001
    began = time.perf_counter()
    n = sum(len(block) for block in islice(stream, most))
    return {"rows": n, "seconds": time.perf_counter() - began}


def theirs(path: Path) -> dict[str, Any]:
    """Read chunks with pandas and learn by normal equations in NumPy."""
    import pandas as pd

    A, b, w = np.zeros((P + 1, P + 1)), np.zeros(P + 1), np.zeros(P + 1)
    A[1:, 1:] = 1e-6 * np.eye(P)
    began, n, error = time.perf_counter(), 0, 0.0
    for chunk in pd.read_csv(path, chunksize=CHUNK):
        X, y = chunk[NAMES].to_numpy(), chunk["y"].to_numpy()
        for i in range(0, len(y), BLOCK):
            rows = np.column_stack([np.ones(len(y[i : i + BLOCK])), X[i : i + BLOCK]])
            error += float(np.abs(rows @ w - y[i : i + BLOCK]).sum())
            A += rows.T @ rows
            b += rows.T @ y[i : i + BLOCK]
            w = np.linalg.lstsq(A, b, rcond=None)[0]
        n += len(y)
    seconds = time.perf_counter() - began
    return {
        "rows": n, "seconds": seconds, "mae": error / n, "coef": w.tolist(), "peak": memory("HWM")
    }  # fmt: skip


def apart(call: str, path: Path, *arguments: str) -> dict[str, Any]:
    """Call this file in a separate process."""
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, __file__, "--call", call, str(path), *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def overlap(path: Path, blocks: int, rounds: int) -> dict[str, float]:
    """Measure which part of the shorter of reading and learning overlaps with the other."""
    calls = {"read": "reading", "both, in turn": "turn", "both, ahead": "ahead"}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], apart(call, path, str(blocks))["seconds"])
    learn = best["both, in turn"] - best["read"]
    hidden = (best["both, in turn"] - best["both, ahead"]) / min(best["read"], learn)
    return {**best, "learn": learn, "hidden": hidden, "load": os.getloadavg()[0]}


def compared(folder: Path, gb: float, parquet: int, rounds: int) -> dict[str, Any]:
    path = folder / "rows.csv"
    make_csv(path, gb * 1e9)
    print(f"CSV, {path.stat().st_size / 1e9:.2f} GB")
    results: dict[str, Any] = {"gb": path.stat().st_size / 1e9, "cores": os.cpu_count()}
    results["csv"] = mine = apart("whole", path)
    show("onepass", mine)
    results["pandas"] = other = apart("theirs", path)
    show("pandas", other)
    results["agree"] = float(np.abs(np.subtract(mine["coef"], other["coef"])).max())
    results["ratio"] = other["seconds"] / mine["seconds"]
    print(f"ratio {results['ratio']:.2f}, coefficients agree to {results['agree']:.1e}")
    results["overlap"] = hidden = overlap(path, 400, rounds)
    print("overlap, best seconds of each:", {k: round(v, 3) for k, v in hidden.items()})
    path.unlink()
    path = folder / "rows.parquet"
    make_parquet(path, parquet)
    print(f"Parquet, one row group, {path.stat().st_size / 1e9:.2f} GB")
    results["parquet gb"] = path.stat().st_size / 1e9
    results["parquet"] = apart("whole", path)
    show("onepass", results["parquet"])
    results["parquet overlap"] = overlap(path, 400, rounds)
    print("overlap:", {k: round(v, 3) for k, v in results["parquet overlap"].items()})
    return results


def show(name: str, result: dict[str, Any]) -> None:
    print(f"  {name:8} {result['rows']:,} rows, {result['rows'] / result['seconds']:,.0f} rows/s")
    for point in result.get("memory", ()):
        print(f"    {point['rows']:>12,} rows {point['peak'] / 1e6:8.1f} MB peak")
    if "peak" in result:
        print(f"    {result['peak'] / 1e6:.1f} MB peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gb", type=float, default=0.5, help="size of the CSV file")
    parser.add_argument("--parquet", type=int, default=3_000_000, help="rows of the Parquet file")
    parser.add_argument("--rounds", type=int, default=7, help="rounds for the overlap")
    parser.add_argument("--folder", type=Path, help="folder for the temporary files")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--call", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.call:
        call, path, *most = given.call
        count = int(most[0]) if most else None
        done = {
            "whole": lambda: ours(Path(path)),
            "turn": lambda: ours(Path(path), count, ahead=False),
            "ahead": lambda: ours(Path(path), count),
            "reading": lambda: reading(Path(path), count or 0),
            "theirs": lambda: theirs(Path(path)),
        }[call]()
        print(json.dumps(done))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        results = compared(Path(folder), given.gb, given.parquet, given.rounds)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
