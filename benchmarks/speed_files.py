"""Speed from file to report: CSV and Parquet with 10⁷ rows, and overlap of reading and learning.

The script generates both files. Interleaved with the others, over as many first rows as take a
second or two, onepass reads, learns and reports as ``onepass run`` does. Then that command
processes the whole file in a separate process, and its memory is sampled. Times are wall-clock
seconds, since reading and learning may overlap; CPU seconds are recorded too.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from limits import Limits
from pyarrow import csv as arrow_csv
from turns import Way, Work, turns

import onepass as op

P = 20
ROWS = int(os.environ.get("ONEPASS_FILE_ROWS", "10000000"))
AT_ONCE = 250_000  # rows generated at a time
LEAST, MOST = 8192, 800_000  # min and max rows per method and round
SECONDS = 1.5  # approximate time per method and round
TEXT = 200_000  # rows for Vowpal Wabbit, repeated if necessary
FEW = 500_000  # rows for separate timing of reading and learning
CHUNK = 65_536  # rows per chunk of pandas
POINTS = 10  # number of memory samples
NAMES = [f"x{j}" for j in range(P)]
OURS = "onepass"
WHOLE = "onepass run, whole file including start-up"
RIVER = "River BayesianLinearRegression"
VW = "Vowpal Wabbit, native text (SGD)"
VW_CSV = "Vowpal Wabbit, CSV (SGD)"
PANDAS = "pandas in chunks, NumPy normal equations"
NOTE = (
    "The target refers to River, which learns the same model. Vowpal Wabbit uses SGD; its text was "
    "prepared. pandas with NumPy forms normal equations, predicts a chunk at a time and computes "
    "one sum. onepass computes three metrics of three models and writes a report."
)


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """Run the benchmarks of both files."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for path, rows in (made(place / "rows.csv"), rivers_csv), (
            made(place / "rows.parquet"), rivers_parquet
        ):  # fmt: skip
            yield work(path, rows, rounds, limits)
            path.unlink()


def work(path: Path, rows: Callable[[Path], Any], rounds: int, limits: Limits) -> Work:
    """Compare all methods on one file."""
    kind = {".csv": "CSV", ".parquet": "Parquet"}[path.suffix]
    ways: dict[str, Way] = {
        OURS: lambda n: learn(first(path, n)),
        PANDAS: lambda n: squares(pandas(path), n),
        **river(path, rows),
        **vowpal_wabbit(path),
    }
    for way in ways.values():
        way(LEAST)  # import everything before timing
    most = min(MOST, ROWS)
    rates = turns(ways, rounds, least=LEAST, most=most, seconds=SECONDS, clock=time.perf_counter)
    found, numbers = run(path)
    numbers |= overlap(path, rounds)
    size = path.stat().st_size
    numbers["bytes per row"] = size / ROWS
    return Work(
        f"{kind} of {ROWS:,} × {P}, from file to report",
        "rows",
        OURS,
        {**rates, WHOLE: [found]},
        10.0,
        ("memory bandwidth, the file read once", limits.bandwidth * ROWS / size),
        (PANDAS, VW, VW_CSV, WHOLE),
        NOTE,
        numbers,
    )


# -- the files -------------------------------------------------------------------------------------


def made(path: Path) -> Path:
    """Write a file of rows with four decimals, whose target is a noisy linear function."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in (*NAMES, "y")])
    if path.suffix == ".csv":
        # Vowpal Wabbit needs unquoted names and a target called _label
        path.write_text(",".join((*NAMES, "_label")) + "\n", encoding="utf-8")
        options = arrow_csv.WriteOptions(include_header=False)
        with path.open("ab") as file:
            for done in range(0, ROWS, AT_ONCE):
                table = some(rng, min(AT_ONCE, ROWS - done), schema)
                arrow_csv.write_csv(table, file, options)
        return path
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    with pq.ParquetWriter(path, schema, **plain) as file:
        for done in range(0, ROWS, AT_ONCE):
            file.write_table(some(rng, min(AT_ONCE, ROWS - done), schema))
    return path


def some(rng: np.random.Generator, n: int, schema: Any) -> Any:
    """Return rows as an Arrow table."""
    X = rng.normal(size=(n, P)).round(4)
    y = (X @ np.arange(1.0, P + 1) + rng.normal(size=n)).round(4)
    return pa.table([*np.asfortranarray(X).T, y], schema=schema)


def target(path: Path) -> str:
    """Return the name of the target column."""
    return "_label" if path.suffix == ".csv" else "y"


# -- this library ----------------------------------------------------------------------------------


def run(path: Path) -> tuple[float, dict[str, float]]:
    """Run the command line; return rows per second, seconds and memory."""
    report = path.with_suffix(".report")
    command = [sys.executable, "-m", "onepass", "run", str(path), "--target", target(path)]
    command += ["--report", str(report), "--quiet"]
    began, before = time.perf_counter(), spent()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:  # noqa: S603
        seen = []
        while process.poll() is None:
            seen.append(resident(process.pid))
            time.sleep(0.05)
        wall = time.perf_counter() - began
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    seen = [one for one in seen if one]
    later = seen[len(seen) // POINTS :]
    points = [max(part) for part in np.array_split(later, POINTS - 1)]
    numbers = {"whole file, s": wall, "whole file, CPU s": spent() - before}
    numbers["MB after 20 %"] = points[0] / 1e6
    numbers["MB after 90 %"] = points[-2] / 1e6
    numbers["max MB, including the report"] = max(seen) / 1e6
    return ROWS / wall, numbers


def spent() -> float:
    """Return the CPU time of child processes in seconds."""
    times = os.times()
    return times.children_user + times.children_system


def resident(pid: int) -> int:
    """Return the resident size of a process in bytes; 0 if it is not available."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def overlap(path: Path, rounds: int) -> dict[str, float]:
    """Measure reading, learning and both together; the best of the rounds counts.

    The shorter of the two can overlap with the other if there is a second core.
    """
    few = min(FEW, ROWS)
    best = dict.fromkeys(("reading", "learning", "both"), float("inf"))
    for _ in range(rounds):
        began = time.perf_counter()
        held = list(first(path, few))
        best["reading"] = min(best["reading"], time.perf_counter() - began)
        began = time.perf_counter()
        learn(held)
        best["learning"] = min(best["learning"], time.perf_counter() - began)
        del held
        began = time.perf_counter()
        learn(first(path, few))
        best["both"] = min(best["both"], time.perf_counter() - began)
    hidden = best["reading"] + best["learning"] - best["both"]
    shorter = min(best["reading"], best["learning"])
    named = {f"{what} {few:,} rows, s": value for what, value in best.items()}
    return {**named, "overlap, % of the shorter": 100 * hidden / shorter}


def first(path: Path, n: int) -> Iterator[Any]:
    """Yield blocks of the first rows."""
    stream = op.stream.read(path, target=target(path))
    return islice(iter(stream), max(1, n // stream.block))


def learn(blocks: Iterable[Any]) -> None:
    """Learn as ``onepass run`` does."""
    models = op.models.pipelines(["rls"], "regression", {})
    op.evaluate.prequential(models, blocks, clock=time.perf_counter)


# -- others ----------------------------------------------------------------------------------------


def river(path: Path, rows: Callable[[Path], Any]) -> dict[str, Way]:
    """Return River's exact regression, row by row, with one metric."""
    try:
        from river import linear_model, metrics  # noqa: PLC0415  not on every machine
    except ImportError:
        return {}

    def way(n: int) -> float:
        model, error = linear_model.BayesianLinearRegression(), metrics.MAE()
        for x, y in islice(rows(path), n):
            error.update(y, model.predict_one(x))
            model.learn_one(x, y)
        return float(error.get())

    return {RIVER: way}


def rivers_csv(path: Path) -> Any:
    """Read rows with River's reader."""
    from river import stream  # noqa: PLC0415

    numbers = dict.fromkeys((*NAMES, target(path)), float)
    return stream.iter_csv(str(path), target=target(path), converters=numbers)


def rivers_parquet(path: Path) -> Iterator[Any]:
    """Read rows as dicts with Arrow, since River cannot read Parquet."""
    for batch in pq.ParquetFile(path).iter_batches(1024):
        for row in batch.to_pylist():
            target = row.pop("y")
            yield row, target


def pandas(path: Path) -> Iterator[Any]:
    """Yield data frames."""
    if path.suffix == ".csv":
        yield from pd.read_csv(path, chunksize=CHUNK)
    else:
        for batch in pq.ParquetFile(path).iter_batches(CHUNK):
            yield batch.to_pandas()


def squares(frames: Iterator[Any], n: int) -> float:
    """Learn by normal equations with an intercept; each frame is predicted before it is learned."""
    gram, right, w = 1e-6 * np.eye(P + 1), np.zeros(P + 1), np.zeros(P + 1)
    error = seen = 0.0
    for frame in frames:
        values = frame.to_numpy()[: int(n - seen)]
        rows = np.column_stack([np.ones(len(values)), values[:, :P]])
        targets = values[:, P]
        error += float(np.abs(rows @ w - targets).sum())
        gram += rows.T @ rows
        right += rows.T @ targets
        w = np.linalg.solve(gram, right)
        seen += len(values)
        if seen >= n:
            break
    return error / seen


def vowpal_wabbit(path: Path) -> dict[str, Way]:
    """Return methods with its native text and its CSV reader, which use a parser thread."""
    try:
        from vowpalwabbit import Workspace  # noqa: PLC0415  not on every machine
    except ImportError:
        return {}
    if path.suffix != ".csv":
        return {}
    text, few = path.with_suffix(".vw"), path.with_name("few.csv")
    with path.open(encoding="utf-8") as source, few.open("w", encoding="utf-8") as copy:
        copy.writelines(islice(source, TEXT + 1))
    with few.open(encoding="utf-8") as source, text.open("w", encoding="utf-8") as out:
        for row in islice(csv.reader(source), 1, None):
            features = " ".join(f"{name}:{value}" for name, value in zip(NAMES, row, strict=False))
            out.write(f"{row[-1]} | {features}\n")

    def way(options: str, n: int) -> None:
        for left in range(n, 0, -TEXT):
            Workspace(f"{options} --examples {min(left, TEXT)} --quiet").finish()

    return {VW: partial(way, f"-d {text}"), VW_CSV: partial(way, f"--csv -d {few}")}
