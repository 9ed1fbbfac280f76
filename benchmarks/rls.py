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
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import onepass as op

ROWS = {10: 200_000, 100: 50_000, 1000: 4_000}
LOOP_ROWS = {10: 20_000, 100: 8_000, 1000: 400}


def loop(X, y, ridge):
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


def blocks(X, y, ridge):
    """The same answers from onepass."""
    return op.RLSRegressor(ridge, fit_intercept=False).test_then_train(X, y)


def with_intercept(X, y, ridge):
    """And with an intercept, as users have it."""
    return op.RLSRegressor(ridge).test_then_train(X, y)


def one_by_one(X, y, ridge):
    """Row by row through predict_one and learn_one: for streams that give one row at a time."""
    model = op.RLSRegressor(ridge, fit_intercept=False)
    return np.array([_one(model, x, t) for x, t in zip(X, y.tolist(), strict=True)])


def _one(model, x, t):
    said = model.predict_one(x)
    model.learn_one(x, t)
    return said


def rate(way, X, y, rounds):
    """Rows a second, the best of several rounds."""
    best = np.inf
    for _ in range(rounds):
        start = time.perf_counter()
        way(X, y, 1e-3)
        best = min(best, time.perf_counter() - start)
    return len(y) / best


def measure(p, rounds):
    """Rates at p features, and the largest difference between the answers."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(ROWS[p], p))
    y = X @ rng.normal(size=p) + rng.normal(size=len(X))
    few = slice(0, LOOP_ROWS[p])
    rates = {"loop": 0.0, "blocks": 0.0, "intercept": 0.0, "learn_one": 0.0}
    for _ in range(rounds):  # in turn, so that a busy moment hits all alike
        rates["loop"] = max(rates["loop"], rate(loop, X[few], y[few], 1))
        rates["blocks"] = max(rates["blocks"], rate(blocks, X, y, 1))
        rates["intercept"] = max(rates["intercept"], rate(with_intercept, X, y, 1))
        rates["learn_one"] = max(rates["learn_one"], rate(one_by_one, X[few], y[few], 1))
    apart = np.abs(loop(X[few], y[few], 1e-3) - blocks(X[few], y[few], 1e-3)).max()
    return {"p": p, **rates, "ratio": rates["blocks"] / rates["loop"], "apart": float(apart)}


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--json", type=Path)
    asked = ask.parse_args()
    with threadpool_limits(1):
        rows = [measure(p, asked.rounds) for p in ROWS]
    print("Recursive least squares, test-then-train, rows a second on one thread\n")
    print(f"{'p':>5} {'NumPy loop':>11} {'learn_one':>10} {'blocks':>10} {'+intercept':>11} "
          f"{'ratio':>7} {'apart':>8}")
    for r in rows:
        print(f"{r['p']:>5} {r['loop']:>11,.0f} {r['learn_one']:>10,.0f} {r['blocks']:>10,.0f} "
              f"{r['intercept']:>11,.0f} {r['ratio']:>6.1f}x {r['apart']:>8.0e}")
    print("\nratio: blocks / NumPy loop.  apart: largest difference between their answers.")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        machine = f"{platform.machine()}, NumPy {np.__version__}, Python {platform.python_version()}"
        asked.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
