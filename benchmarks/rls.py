"""Test-then-train over arrays: rows a second, and the ratio to a plain NumPy loop.

The loop is the textbook recursion with P (p × p), the code that people write by hand. Both say
what they think of each row before learning it; both run in one process on one thread, in turn,
and the best of several rounds counts, so that the ratio stands on a noisy machine.

    python benchmarks/rls.py [--rounds 5] [--json benchmarks/results/rls.json]
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import onepass as op

Floats = NDArray[np.float64]
Way = Callable[[Floats, Floats, float], Floats]

ROWS = {10: 200_000, 100: 50_000, 1000: 4_000}
LOOP_ROWS = {10: 20_000, 100: 8_000, 1000: 400}


def loop(X: Floats, y: Floats, ridge: float) -> Floats:
    """Plain recursive least squares, row by row; what was said of each row."""
    d = X.shape[1]
    P, w = np.eye(d) / ridge, np.zeros(d)
    said = np.empty(len(y))
    for i, x in enumerate(X):
        said[i] = w @ x
        u = P @ x
        gain = u / (1.0 + x @ u)
        w = w + gain * (y[i] - said[i])
        P = P - np.outer(gain, u)
    return said


def blocks(X: Floats, y: Floats, ridge: float) -> Floats:
    """The same answers from onepass."""
    return op.RLSRegressor(ridge, fit_intercept=False).test_then_train(X, y)


def with_intercept(X: Floats, y: Floats, ridge: float) -> Floats:
    """And with an intercept, as users have it."""
    return op.RLSRegressor(ridge).test_then_train(X, y)


def one_by_one(X: Floats, y: Floats, ridge: float) -> Floats:
    """Row by row through predict_one and learn_one: for streams that give one row at a time."""
    model = op.RLSRegressor(ridge, fit_intercept=False)
    return np.array([_one(model, x, t) for x, t in zip(X, y.tolist(), strict=True)])


def _one(model: op.RLSRegressor, x: Floats, t: float) -> float:
    said: float = model.predict_one(x)
    model.learn_one(x, t)
    return said


def rate(way: Way, X: Floats, y: Floats) -> float:
    """Rows a second."""
    start = time.perf_counter()
    way(X, y, 1e-3)
    return len(y) / (time.perf_counter() - start)


def measure(p: int, rounds: int) -> dict[str, Any]:
    """Rates at p features, and the largest difference between the answers."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(ROWS[p], p))
    y = X @ rng.normal(size=p) + rng.normal(size=len(X))
    few = slice(0, LOOP_ROWS[p])
    ways = {"loop": loop, "blocks": blocks, "intercept": with_intercept, "learn_one": one_by_one}
    rates = dict.fromkeys(ways, 0.0)
    for _ in range(rounds):  # in turn, so that a busy moment hits all alike
        for name, way in ways.items():
            part = few if name in {"loop", "learn_one"} else slice(None)
            rates[name] = max(rates[name], rate(way, X[part], y[part]))
    apart = np.abs(loop(X[few], y[few], 1e-3) - blocks(X[few], y[few], 1e-3)).max()
    return {"p": p, **rates, "ratio": rates["blocks"] / rates["loop"], "apart": float(apart)}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--json", type=Path)
    asked = ask.parse_args()
    with threadpool_limits(1):
        rows = [measure(p, asked.rounds) for p in ROWS]
    print("Recursive least squares, test-then-train, rows a second on one thread\n")
    print("    p  NumPy loop  learn_one     blocks  +intercept   ratio    apart")
    for r in rows:
        rates = f"{r['loop']:>11,.0f} {r['learn_one']:>10,.0f} {r['blocks']:>10,.0f}"
        print(f"{r['p']:>5}{rates} {r['intercept']:>11,.0f} {r['ratio']:>6.1f}x {r['apart']:>8.0e}")
    print("\nratio: blocks / NumPy loop.  apart: largest difference between their answers.")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        versions = f"NumPy {np.__version__}, Python {platform.python_version()}"
        found = {"machine": f"{platform.machine()}, {versions}", "rows": rows}
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
