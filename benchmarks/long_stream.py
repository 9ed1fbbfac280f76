"""Numerical drift and speed of recursive least squares with forgetting over ten million rows.

Twenty features, λ = 0.99, test-then-train, on one thread. Seventeen features are excited in every
row, with scales from 1e-3 to 1e3; one is constant; one is zero; one is zero after 10,000 rows. The
targets are an exact linear function of the features plus 7, rounded to the precision of the stream,
so that errors of the coefficients are caused by rounding or drift. Errors are in the units of the
features: the largest over the excited features within each decade of rows (the last decade is the
last block of ten million), and that of the unexcited feature.

    python benchmarks/long_stream.py [--rows 10000000] [--rule 0.99] [--json FILE]
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import onepass as op

Floats = NDArray[Any]

P, EXCITED, BLOCK, SILENT_FROM = 20, 17, 10_000, 10_000
UNITS = np.concatenate((np.geomspace(1e-3, 1e3, EXCITED), [5.0, 1.0, 1.0]))
TRUTH = np.concatenate((np.linspace(1.0, 3.0, EXCITED) / UNITS[:EXCITED], [0.0, 0.0, 2.0]))


def block(rng: np.random.Generator, first: int, dtype: Any) -> tuple[Floats, Floats]:
    """Return a block of rows that starts at row ``first``, and its targets."""
    X = rng.standard_normal((BLOCK, P), dtype=np.float64) * UNITS
    X[:, EXCITED], X[:, EXCITED + 1] = UNITS[EXCITED], 0.0
    if first >= SILENT_FROM:
        X[:, EXCITED + 2] = 0.0
    X = X.astype(dtype)
    return X, (X.astype(np.float64) @ TRUTH + 7.0).astype(dtype)


def measure(rows: int, rule: str, dtype: Any) -> dict[str, Any]:
    """Measure the rate, and the largest coefficient errors by decade."""
    model = op.RLSRegressor(forgetting=float(rule) if rule.replace(".", "").isdigit() else rule)
    rng = np.random.default_rng(0)
    decades: dict[int, dict[str, float]] = {}
    seconds, nans, worst = 0.0, 0, 0.0
    for first in range(0, rows, BLOCK):
        X, y = block(rng, first, dtype)
        began = time.perf_counter()
        predictions = model.test_then_train(X, y)
        seconds += time.perf_counter() - began
        nans += int(np.isnan(predictions).sum() + np.isnan(model.coef_).sum())
        off = np.abs(model.coef_ - TRUTH) * UNITS
        decade = decades.setdefault(int(np.log10(first + BLOCK)), {"excited": 0.0, "silent": 0.0})
        decade["excited"] = max(decade["excited"], float(off[:EXCITED].max()))
        decade["silent"] = max(decade["silent"], float(off[EXCITED + 2]))
        if first:
            worst = max(worst, float(np.abs(predictions - y).max()))
    return {
        "dtype": np.dtype(dtype).name,
        "rows": rows,
        "rows_per_second": rows / seconds,
        "nans": nans,
        "largest_error_of_an_answer": worst,
        "coefficient_error_by_decade": {f"1e{k}": off for k, off in decades.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rule", default="0.99")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        found = [
            measure(arguments.rows, arguments.rule, dtype) for dtype in (np.float64, np.float32)
        ]
    print(f"{arguments.rows:,} rows, {P} features, forgetting={arguments.rule}, one thread\n")
    for one in found:
        print(
            f"{one['dtype']}: {one['rows_per_second']:,.0f} rows/s, {one['nans']} NaN, largest "
            f"error of a prediction {one['largest_error_of_an_answer']:.1e}"
        )
        print("  rows from   largest error of a coefficient   unexcited feature")
        for decade, off in one["coefficient_error_by_decade"].items():
            print(f"  {decade:>9}   {off['excited']:>32.1e}   {off['silent']:>17.1e}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        machine = (
            f"{platform.machine()}, NumPy {np.__version__}, Python {platform.python_version()}"
        )
        arguments.json.write_text(
            json.dumps({"machine": machine, "rule": arguments.rule, "runs": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
