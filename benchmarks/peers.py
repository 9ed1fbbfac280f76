"""Exact recursive least squares in eight libraries: rows per second, and accuracy of the weights.

Test-then-train over the same arrays, in one process on one thread, in CPU seconds. Rounds are
interleaved, so that other load affects all alike; the best round counts, and the median and the
lowest are recorded too. Each library is timed on as many of the first rows as take a fraction of a
second. Then the weights are compared with batch ridge regression on the same rows, with features of
one scale and with features from 1e-3 to 1e3.

    make peers    or    python benchmarks/peers.py [--rounds 7] [--p 10 100 1000]
"""

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cells import versions, write
from contenders import (
    Bandits,
    FilterPy,
    Floats,
    Loop,
    Ours,
    OursBlocks,
    OursDicts,
    Padasip,
    ReservoirPy,
    River,
    one_by_one,
)
from frames import PolarsOnline, installed
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

ROWS = {10: 200_000, 100: 50_000, 1000: 4_096}
RIDGE = 1.0  # otherwise River's learn_one and learn_many have different priors
SECONDS = 0.3  # approximate time per method and round
WIDTHS = (64, 1024)
LIBRARIES = (
    "polars-online", "river", "padasip", "reservoirpy", "bayesianbandits", "filterpy", "numpy",
    "scipy",
)  # fmt: skip

SINGLE = (Loop, OursDicts, Ours, River, Padasip, ReservoirPy, Bandits, FilterPy)
IN_BLOCKS = (River, ReservoirPy, Bandits)
Way = Callable[[int, Floats, Floats], tuple[float, Floats]]


def by_row(kind: Any) -> Way:
    """Return a method that learns row by row; it returns seconds and the final weights."""

    def way(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
        contender = kind(p, RIDGE)
        rows = contender.rows(X)
        began = time.process_time()
        one_by_one(contender, rows, y)
        return time.process_time() - began, contender.weights()

    return way


def by_block(kind: Any, width: int) -> Way:
    """Return a method that predicts a whole block before learning it."""

    def way(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
        contender = kind(p, RIDGE)
        frames = contender.frames(X, width)
        began = time.process_time()
        for i, frame in enumerate(frames):
            if i:  # some cannot predict before they have learned
                contender.predict_block(frame)
            contender.learn_block(frame, y[i * width : (i + 1) * width])
        return time.process_time() - began, contender.weights()

    return way


def ours_in_blocks(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
    """Run test-then-train of onepass: each row is predicted after learning all rows before it."""
    contender = OursBlocks(p, RIDGE)
    began = time.process_time()
    contender.test_then_train(X, y)
    return time.process_time() - began, contender.weights()


def over_frame(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
    """Run polars-online over a frame: each row is predicted after learning all rows before it."""
    del p
    learner = PolarsOnline(X, y, RIDGE)
    began = time.process_time()
    learner.run(len(y))
    return time.process_time() - began, learner.weights()


def ways() -> dict[str, Way]:
    """Return all methods by name."""
    found: dict[str, Way] = {kind.name: by_row(kind) for kind in SINGLE}
    found[OursBlocks.name] = ours_in_blocks
    if installed([PolarsOnline])[0]:
        found[PolarsOnline.name()] = over_frame
    for width in WIDTHS:
        for kind in IN_BLOCKS:
            found[f"{kind.name}, blocks of {width}"] = by_block(kind, width)
    return found


def stream(p: int, n: int, *, scaled: bool = False) -> tuple[Floats, Floats]:
    """Return rows of p features and noisy targets, optionally with features of different scales."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(n, p))
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    return X * np.geomspace(1e-3, 1e3, p) if scaled else X, y


def weight_error(weights: Floats, X: Floats, y: Floats) -> float:
    """Return the relative distance from batch ridge regression by QR, in scaled features.

    The reference is solved with scaled columns, so that it is accurate to the last digits.
    """
    p = X.shape[1]
    scale = np.sqrt(RIDGE + (X**2).sum(axis=0))
    rows = np.vstack([np.eye(p) * np.sqrt(RIDGE), X]) / scale
    batch = np.linalg.lstsq(rows, np.r_[np.zeros(p), y], rcond=None)[0]
    return float(np.linalg.norm(weights * scale - batch) / np.linalg.norm(batch))


def measure(p: int, rounds: int) -> list[dict[str, Any]]:
    """Measure rates and errors of all methods at p features."""
    X, y = stream(p, ROWS[p])
    methods = ways()
    rows = {name: fitting(way, p, X, y, least(name)) for name, way in methods.items()}
    rates: dict[str, list[float]] = {name: [] for name in methods}
    apart = {}
    for _ in range(rounds):
        for name, way in methods.items():
            seconds, weights = way(p, X[: rows[name]], y[: rows[name]])
            rates[name].append(rows[name] / seconds)
            apart[name] = weights
    best = {name: max(found) for name, found in rates.items()}
    return [
        {
            "name": name,
            "prediction": "a block at a time" if "blocks of" in name else "row by row",
            "rows": rows[name],
            "best": best[name],
            "median": float(np.median(found)),
            "lowest": min(found),
            "ratio": best[OursBlocks.name] / best[name],
            "ratio of medians": float(np.median(rates[OursBlocks.name]) / np.median(found)),
            "error": weight_error(apart[name], X[: rows[name]], y[: rows[name]]),
            "error, scaled": scaled(methods[name], p),
        }
        for name, found in rates.items()
    ]


def least(name: str) -> int:
    """Return the min number of rows to time: two whole blocks for blockwise methods."""
    width = name.rpartition("blocks of ")[2]
    return 2 * int(width) if width.isdigit() else 16


def fitting(way: Way, p: int, X: Floats, y: Floats, low: int) -> int:
    """Return the number of rows that take about SECONDS."""
    n = low
    while n < len(y):
        seconds, _ = way(p, X[:n], y[:n])
        if seconds > SECONDS / 4:
            return int(min(len(y), max(low, n * SECONDS / seconds)))
        n *= 4
    return len(y)


def scaled(way: Way, p: int) -> float | None:
    """Return the error with features from 1e-3 to 1e3, after 2,000 rows; None if too slow."""
    if p > 100:
        return None
    X, y = stream(p, 2_000, scaled=True)
    return weight_error(way(p, X, y)[1], X, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--p", type=int, nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--json", type=Path, default=RESULTS / "peers.json")
    arguments = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = {p: measure(p, arguments.rounds) for p in arguments.p}
    found = {
        "command": "python benchmarks/peers.py",
        "machine": f"{platform.machine()}, one thread, Python {platform.python_version()}",
        **versions(LIBRARIES),
        "rounds": arguments.rounds,
        "features": tables,
    }
    print(markdown("peers", found))
    write(arguments.json, found)


if __name__ == "__main__":
    main()
