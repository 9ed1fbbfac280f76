"""Time and memory of fits of shards, which are made on the spot and removed afterwards.

    python benchmarks/scale.py --rows 1e8 --columns 20 --shards 40 --folder /tmp/shards
    python benchmarks/scale.py --break-even

The first reports seconds, rows per second and the peak memory of the calling process (with one
worker, it learns here), and the same files with ``SGDRegressor.partial_fit`` of scikit-learn,
polars-online and Dask-ML, if they are installed. The second prints the same for tables of
increasing size, to find from which size two processes, Ray and Dask are faster than the plain loop.
Each contender runs in a process of its own, one after the other; times contain reading and the
start of the engine, and imports that it makes.
"""

import argparse
import importlib.util
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

_BATCH = 250_000  # rows written at a time


def make_shards(folder: Path, rows: int, columns: int, shards: int) -> None:
    """Write Parquet shards of a noisy linear target."""
    coefficients = np.linspace(-1.0, 1.0, columns)
    for i in range(shards):
        n = rows * (i + 1) // shards - rows * i // shards
        writer = None
        for start in range(0, n, _BATCH):
            rng = np.random.default_rng((i, start))
            X = rng.normal(size=(min(_BATCH, n - start), columns))
            y = X @ coefficients + rng.normal(size=len(X))
            table = pa.table({**{f"x{j}": X[:, j] for j in range(columns)}, "y": y})
            writer = writer or parquet.ParquetWriter(
                folder / f"{i:04d}.parquet", table.schema, compression="none", use_dictionary=False
            )
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _fit(folder: Path, engine: str, workers: int) -> Any:
    import onepass as op  # noqa: PLC0415

    return op.scale.fit(
        op.RLSRegressor(), f"{folder}/*.parquet", target="y", engine=engine, workers=workers
    ).model.coef_


def _one_pass(folder: Path) -> Any:
    import onepass as op  # noqa: PLC0415

    model = op.RLSRegressor()
    for rows in op.stream.read(f"{folder}/*.parquet", target="y"):
        model.partial_fit(rows.X, rows.y)
    return model.coef_


def _batches(folder: Path) -> Iterator[tuple[Any, Any]]:
    for file in _files(folder):
        for batch in parquet.ParquetFile(file).iter_batches(8192):
            array = np.column_stack([column.to_numpy() for column in batch.columns])
            yield array[:, :-1], array[:, -1]


def _sklearn(folder: Path) -> Any:
    from sklearn.linear_model import SGDRegressor  # noqa: PLC0415

    model = SGDRegressor()
    for X, y in _batches(folder):
        model.partial_fit(X, y)
    return model.coef_


def _polars_online(folder: Path) -> Any:
    import polars as pl  # noqa: PLC0415
    from polars_online import ModelBank, spec  # noqa: PLC0415  not on every machine

    names = parquet.read_schema(_files(folder)[0]).names[:-1]
    settings = {"targets": ["y"], "features": names, "fit_intercept": True}
    bank = ModelBank([spec.rls("m", delta=1e-6, half_life=float("inf"), **settings)])
    for file in _files(folder):
        bank.fit_predict(pl.read_parquet(file))
    return bank.coef()["coef"].to_numpy()[1:]  # the first is the intercept


def _dask_ml(folder: Path) -> Any:
    import dask.dataframe as dd  # noqa: PLC0415
    from dask_ml.linear_model import LinearRegression  # noqa: PLC0415

    rows = dd.read_parquet(_files(folder)).to_dask_array(lengths=True)
    # Newton's method takes the fewest passes of its solvers
    return LinearRegression(solver="newton").fit(rows[:, :-1], rows[:, -1]).coef_


def _contenders() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The installed contenders: name -> function and arguments after the folder."""
    every: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {
        "onepass, one pass": ("onepass", _one_pass, ()),
        "onepass, 1 worker": ("onepass", _fit, ("local", 1)),
        "onepass, 2 workers": ("onepass", _fit, ("local", 2)),
        "onepass, Ray": ("ray", _fit, ("ray", 2)),
        "onepass, Dask": ("distributed", _fit, ("dask", 2)),
        "scikit-learn SGDRegressor": ("sklearn", _sklearn, ()),
        "polars-online rls": ("polars_online", _polars_online, ()),
        "Dask-ML LinearRegression": ("dask_ml", _dask_ml, ()),
    }
    return {
        name: (function, arguments)
        for name, (package, function, arguments) in every.items()
        if importlib.util.find_spec(package) is not None
    }


def _timed(name: str, folder: Path) -> None:
    """Run a contender here; print seconds, peak memory of this process (MiB) and coefficients."""
    warnings.simplefilter("ignore")
    function, arguments = _contenders()[name]
    start = time.perf_counter()
    coefficients = np.ravel(function(folder, *arguments)).tolist()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, peak, coefficients]))


def measure(name: str, folder: Path) -> tuple[float, float, Any]:
    """Run a contender in a new process; return what `_timed` prints.

    A process of `multiprocessing` would wait at its end until the idle workers of joblib end.
    """
    call = [sys.executable, __file__, "--contender", name, "--folder", str(folder)]
    done = subprocess.run(call, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if done.returncode:
        return float("nan"), float("nan"), None
    seconds, peak, coefficients = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak, coefficients


def compare(folder: Path, rows: int, only: list[str] | None) -> list[dict[str, Any]]:
    """Measure all contenders on the shards; print and return a table."""
    expected, table = None, []
    for name in _contenders():
        if only and not any(part in name for part in only):
            continue
        seconds, peak, coefficients = measure(name, folder)
        expected = expected or coefficients
        apart = float("nan")
        if coefficients and expected:
            apart = float(np.abs(np.subtract(coefficients, expected)).max())
        line = {
            "contender": name, "seconds": round(seconds, 2),
            "rows/s": float(f"{rows / seconds:.3g}"), "MiB": round(peak, 1),
            "coefficients apart": apart,
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        table.append(line)
    return table


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=float, default=4e6)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="parent folder of the shards")
    parser.add_argument("--break-even", action="store_true")
    parser.add_argument("--only", nargs="*", help="parts of the names of contenders")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        _timed(given.contender, given.folder)
        return
    sizes = [10**5, 10**6, 4 * 10**6, 16 * 10**6] if given.break_even else [int(given.rows)]
    for rows in sizes:
        folder = Path(tempfile.mkdtemp(prefix="onepass-scale-", dir=given.folder))
        try:
            make_shards(folder, rows, given.columns, given.shards)
            size = sum(file.stat().st_size for file in _files(folder))
            print(f"{rows:,} rows x {given.columns}, {given.shards} shards, {size / 1e9:.2f} GB")
            compare(folder, rows, given.only)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
