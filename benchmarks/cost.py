"""Constants of the cost model `op.scale.cost`, fitted to runs, and its error in other runs.

    python benchmarks/cost.py [--rounds 7]    # five minutes on two idle cores

Every run is repeated in rounds, one run after the other, and its fastest round counts, so that
other load has little effect if it pauses at times. On a machine that is never idle, `--clock cpu`
counts the CPU time of the slowest process, plus that of merging. Least squares reads Parquet files;
two machines are two processes with a thread each. The time of an exchange is the best of 2,000 by
torch.distributed (gloo), halved for its two phases. The other constants minimise the sum of squared
relative differences; three runs are held back. Results are written to
benchmarks/results/scale_cost.json; `python benchmarks/tables.py` then updates docs/scale-cost.md.
Copy the constants to `Machine` in src/onepass/scale/cost.py.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from cells import write
from cost_tables import scale_constants, scale_runs
from joblib import Parallel, delayed
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

import onepass as op
from onepass.scale import Machine, cost, federated

RESULTS = Path(__file__).parent / "results" / "scale_cost.json"
BLOCK, WARM = 8192, 300
HELD_BACK = 0.25


class Run(NamedTuple):
    """A run of one learner."""

    rows: int
    p: int
    c: int = 1
    m: int | None = None
    machines: int = 1
    held_back: bool = False

    @property
    def name(self) -> str:
        """A description."""
        learner = "least squares" if self.m is None else f"ORFit({self.m})"
        outputs = "" if self.c == 1 else f", {self.c} outputs"
        machines = "" if self.machines == 1 else f", {self.machines} processes"
        return f"{learner}, {self.rows:,} rows × {self.p:,}{outputs}{machines}"

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `op.scale.cost`."""
        return {"outputs": self.c, "m": self.m, "machines": self.machines}


RUNS = [
    Run(4_000_000, 5),
    Run(2_000_000, 20),
    Run(1_000_000, 20, c=8),
    Run(400_000, 100),
    Run(100_000, 200),
    Run(40_000, 400),
    Run(8_000, 20, machines=2),  # mainly the merge
    Run(8_000, 400, machines=2),
    Run(8_000, 800, machines=2),
    Run(2_000, 500, m=10),
    Run(1_000, 500, m=100),
    Run(1_000, 4_000, m=30),
    Run(500, 20_000, m=50),
    Run(300, 20_000, m=100),
    Run(700_000, 50, held_back=True),
    Run(200_000, 150, c=3, machines=2, held_back=True),
    Run(500, 10_000, m=60, held_back=True),
]


def make_files(run: Run, folder: Path) -> list[Path]:
    """Write the rows of each process; return the paths."""
    paths = []
    for i in range(run.machines):
        path = folder / f"{run.p}-{run.c}-{run.rows}-{i}.parquet"
        rng, n = np.random.default_rng(i), run.rows // run.machines
        schema = pa.schema([(f"{kind}{j}", pa.float64()) for kind, k in (("x", run.p), ("y", run.c))
                            for j in range(k)])  # fmt: skip
        with pq.ParquetWriter(path, schema, compression="zstd") as file:
            for begin in range(0, n, 65_536):
                X = rng.normal(size=(min(65_536, n - begin), run.p + run.c))
                file.write_table(pa.table(list(X.T), schema=schema))
        paths.append(path)
    return paths


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def learned(path: Path, c: int) -> tuple[bytes, float]:
    """Learn the rows of a file; return the summary, and the CPU time."""
    begin = time.process_time()
    model = op.RLSRegressor()
    target: Any = "y0" if c == 1 else [f"y{j}" for j in range(c)]
    with threadpool_limits(1):
        for rows in op.stream.read(path, target=target, block=BLOCK):
            model.partial_fit(rows.X, rows.y)
    return federated.summary(model), time.process_time() - begin


def seconds_of(run: Run, paths: list[Path], workers: Any, clock: str) -> float:
    """Seconds of a run."""
    now = CLOCKS[clock]
    if run.m is not None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(WARM + run.rows, run.p)), rng.normal(size=WARM + run.rows)
        model = op.ORFitRegressor(run.m).partial_fit(X[:WARM], y[:WARM])
        begin = now()
        model.partial_fit(X[WARM:], y[WARM:])
        return now() - begin
    begin = now()
    if run.machines == 1:
        learned(paths[0], run.c)
    else:
        parts = workers(delayed(learned)(path, run.c) for path in paths)
        federated.combine(summary for summary, _ in parts)
        if clock == "cpu":
            begin -= max(seconds for _, seconds in parts)
    return now() - begin


def exchange_seconds(rank: int, path: str, times: int = 2_000) -> float:
    """Seconds in which two processes add up 160 numbers, at best."""
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    numbers, best = torch.zeros(160, dtype=torch.float64), np.inf
    for _ in range(times):
        begin = time.perf_counter()
        dist.all_reduce(numbers)
        best = min(best, time.perf_counter() - begin)
    dist.barrier()
    dist.destroy_process_group()
    return best


def fitted(measured: dict[Run, float], exchange: float) -> Machine:
    """The constants of runs that are not held back."""
    runs = [run for run in measured if not run.held_back]
    names = Machine._fields
    nothing = dict.fromkeys(names, 0.0)
    counts = np.array(
        [
            [
                cost(
                    run.rows, run.p, **run.settings, machine=Machine(**nothing | {name: 1.0})
                ).seconds
                for name in names
            ]
            for run in runs
        ]
    )  # the model is linear in the constants
    seconds = np.array([measured[run] for run in runs])
    found, _ = nnls(counts / seconds[:, None], np.ones(len(runs)))
    constants = dict(zip(names, found, strict=True)) | {"exchange": exchange}
    return Machine(**{name: float(f"{value:.3g}") for name, value in constants.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    times: dict[Run, list[float]] = {run: [] for run in RUNS}
    with tempfile.TemporaryDirectory() as folder, Parallel(2) as workers, threadpool_limits(1):
        files = {run: make_files(run, Path(folder)) if run.m is None else [] for run in RUNS}
        workers(delayed(learned)(files[RUNS[6]][i], 1) for i in range(2))  # start the processes
        for k in range(arguments.rounds):
            for run in RUNS:
                seconds = seconds_of(run, files[run], workers, arguments.clock)
                times[run].append(seconds)
            print(f"round {k + 1} of {arguments.rounds}", flush=True)
        path = f"{folder}/exchange"
        phases = 2  # of two processes
        exchange = max(workers(delayed(exchange_seconds)(i, path) for i in range(2))) / phases
    measured = {run: min(values) for run, values in times.items()}
    machine = fitted(measured, exchange)
    found = {
        "command": "python benchmarks/cost.py"
        + (" --clock cpu" if arguments.clock == "cpu" else ""),
        "rounds": arguments.rounds,
        "clock": arguments.clock,
        "machine": machine._asdict(),
        "runs": [
            {
                "name": run.name,
                "held_back": run.held_back,
                "measured": seconds,
                "slowest": max(times[run]),
                "predicted": cost(run.rows, run.p, **run.settings, machine=machine).seconds,
            }
            for run, seconds in measured.items()
        ],
    }
    write(arguments.out, found)
    print(scale_constants(found), scale_runs(found), sep="\n\n")
    errors = [one["predicted"] / one["measured"] - 1.0 for one in found["runs"] if one["held_back"]]
    worst = max(map(abs, errors))
    print(f"\nlargest difference of a run held back: {worst:.0%}, aim {HELD_BACK:.0%}")


if __name__ == "__main__":
    main()
