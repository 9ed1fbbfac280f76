"""Exact recursive least squares in seven libraries: rows a second, and how exact the weights are.

Test-then-train over the same arrays, in one process on one thread; seconds are the processor's.
Rounds are interleaved, so that a busy moment of the machine hits all alike; the best of the rounds
counts, and the median and the lowest are written down beside it. Each library is timed on as many
of the first rows as take a fraction of a second. Then the weights are held against batch ridge
regression on the rows learned, with features of one scale and with features from 1e-3 to 1e3.

    make peers    or    python benchmarks/peers.py [--rounds 7] [--p 10 100 1000]
"""

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from cells import write
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
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

ROWS = {10: 200_000, 100: 50_000, 1000: 4_096}
RIDGE = 1.0  # with another, River's learn_one and learn_many start from different priors
SECONDS = 0.3  # about what each way is timed for, in each round
WIDTHS = (64, 1024)
LIBRARIES = ("river", "padasip", "reservoirpy", "bayesianbandits", "filterpy", "numpy", "scipy")

SINGLE = (Loop, OursDicts, Ours, River, Padasip, ReservoirPy, Bandits, FilterPy)
IN_BLOCKS = (River, ReservoirPy, Bandits)
Way = Callable[[int, Floats, Floats], tuple[float, Floats]]


def by_row(kind: Any) -> Way:
    """Row by row: seconds, and the final weights."""

    def way(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
        contender = kind(p, RIDGE)
        rows = contender.rows(X)
        began = time.process_time()
        one_by_one(contender, rows, y)
        return time.process_time() - began, contender.weights()

    return way


def by_block(kind: Any, width: int) -> Way:
    """A block said, then learned: no row of it is learned when its last is said."""

    def way(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
        contender = kind(p, RIDGE)
        frames = contender.frames(X, width)
        began = time.process_time()
        for i, frame in enumerate(frames):
            if i:  # some cannot answer before they have learned
                contender.say_block(frame)
            contender.learn_block(frame, y[i * width : (i + 1) * width])
        return time.process_time() - began, contender.weights()

    return way


def ours_in_blocks(p: int, X: Floats, y: Floats) -> tuple[float, Floats]:
    """Each row said as if all before it were learned; the blocks are onepass's own."""
    contender = OursBlocks(p, RIDGE)
    began = time.process_time()
    contender.take(X, y)
    return time.process_time() - began, contender.weights()


def ways() -> dict[str, Way]:
    """All that take part, by name."""
    found: dict[str, Way] = {kind.name: by_row(kind) for kind in SINGLE}
    found[OursBlocks.name] = ours_in_blocks
    for width in WIDTHS:
        for kind in IN_BLOCKS:
            found[f"{kind.name}, blocks of {width}"] = by_block(kind, width)
    return found


def stream(p: int, n: int, *, scaled: bool = False) -> tuple[Floats, Floats]:
    """Rows of p features and their noisy answers; each feature of its own scale if asked for."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(n, p))
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    return X * np.geomspace(1e-3, 1e3, p) if scaled else X, y


def off(weights: Floats, X: Floats, y: Floats) -> float:
    """Distance from batch ridge regression by QR, relative to its length, in units of features.

    The columns are solved in one scale, so that the reference is right to the last digits.
    """
    p = X.shape[1]
    scale = np.sqrt(RIDGE + (X**2).sum(axis=0))
    rows = np.vstack([np.eye(p) * np.sqrt(RIDGE), X]) / scale
    batch = np.linalg.lstsq(rows, np.r_[np.zeros(p), y], rcond=None)[0]
    return float(np.linalg.norm(weights * scale - batch) / np.linalg.norm(batch))


def measure(p: int, rounds: int) -> list[dict[str, Any]]:
    """Rates and distances of all ways at p features."""
    X, y = stream(p, ROWS[p])
    entrants = ways()
    rows = {name: fitting(way, p, X, y, least(name)) for name, way in entrants.items()}
    rates: dict[str, list[float]] = {name: [] for name in entrants}
    apart = {}
    for _ in range(rounds):
        for name, way in entrants.items():
            seconds, weights = way(p, X[: rows[name]], y[: rows[name]])
            rates[name].append(rows[name] / seconds)
            apart[name] = weights
    best = {name: max(found) for name, found in rates.items()}
    return [
        {
            "name": name,
            "said": "a block at a time" if "blocks of" in name else "row by row",
            "rows": rows[name],
            "best": best[name],
            "median": float(np.median(found)),
            "lowest": min(found),
            "ratio": best[OursBlocks.name] / best[name],
            "ratio of medians": float(np.median(rates[OursBlocks.name]) / np.median(found)),
            "off": off(apart[name], X[: rows[name]], y[: rows[name]]),
            "off, scaled": scaled(entrants[name], p),
        }
        for name, found in rates.items()
    ]


def least(name: str) -> int:
    """The fewest rows that a way is timed on: a few whole blocks of those that have a width."""
    width = name.rpartition("blocks of ")[2]
    return 2 * int(width) if width.isdigit() else 16


def fitting(way: Way, p: int, X: Floats, y: Floats, low: int) -> int:
    """As many rows as take about SECONDS."""
    n = low
    while n < len(y):
        seconds, _ = way(p, X[:n], y[:n])
        if seconds > SECONDS / 4:
            return int(min(len(y), max(low, n * SECONDS / seconds)))
        n *= 4
    return len(y)


def scaled(way: Way, p: int) -> float | None:
    """The distance with features from 1e-3 to 1e3, after 2,000 rows; None if it takes minutes."""
    if p > 100:
        return None
    X, y = stream(p, 2_000, scaled=True)
    return off(way(p, X, y)[1], X, y)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--p", type=int, nargs="+", choices=list(ROWS), default=list(ROWS))
    ask.add_argument("--json", type=Path, default=RESULTS / "peers.json")
    asked = ask.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = {p: measure(p, asked.rounds) for p in asked.p}
    found = {
        "command": "python benchmarks/peers.py",
        "machine": f"{platform.machine()}, one thread, Python {platform.python_version()}",
        "versions": {name: version(name) for name in LIBRARIES},
        "rounds": asked.rounds,
        "features": tables,
    }
    print(markdown("peers", found))
    write(asked.json, found)


if __name__ == "__main__":
    main()
