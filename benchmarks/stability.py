"""Forgetting while features are silent: which rules wind up, and which still follow a change.

λ = 0.98. Five features, y = x·w + noise of 0.1; after 1,000 rows three of the features are zero for
48,000 rows, then they are back. Of each rule the table has the root mean squared error

- of rows 1 to 5 after the return, where the truth is what it was before,
- of rows 21 to 100 after it, where the truth of the three changed while they were silent,
- on another stream, always excited, whose truth walks slowly: relative to onepass's exponential
  forgetting, which is exact, on the same rows in float64,

as means over seeds. The noise alone has 0.1. Each rule starts from w ~ N(0, I), has no intercept
and is given its rows one by one; but bayesianbandits, which is slow at that, takes the middle of
the silence in blocks of 100. Its uniform rules are the same in blocks, by its documentation; the
two others come back to what they are row by row in the last 1,000 rows of the silence, by a factor
of λ¹⁰⁰⁰. With float32 all rows and answers are float32. ``--only`` measures some rules, and keeps
the figures of the others.

    make peers    or    python benchmarks/stability.py [--seeds 10] [--only onepass]
"""

import argparse
import copy
import json
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from bayesianbandits import (
    ExponentialForgetting,
    FeatureWiseForgetting,
    SiftForgetting,
    StabilizedForgetting,
)
from cells import write
from contenders import (
    Bandits,
    FilterPy,
    Floats,
    Loop,
    OursBlocks,
    Padasip,
    ReservoirPy,
    River,
    one_by_one,
)
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

import onepass as op

FORGETTING, RIDGE, NOISE = 0.98, 1.0, 0.1
BEFORE, SILENT, AFTER = 1_000, 48_000, 100
CALM = (2_000, 1_000)  # rows at the begin and the end of the silence that are always one by one
WALK, LONG = 0.01, 3_000  # the walk's step for each row and weight, and the rows of that stream
LIBRARIES = ("river", "padasip", "reservoirpy", "bayesianbandits", "filterpy", "numpy", "scipy")

Rule = Callable[[], Any]


def ours(**settings: Any) -> Rule:
    """A rule of onepass; its blocks are the same as row by row, by the tests."""
    return lambda: OursBlocks(5, RIDGE, **settings)


def bandits(kind: Any) -> Rule:
    """A rule of bayesianbandits."""
    return lambda: Bandits(5, RIDGE, kind(FORGETTING))


RULES: dict[str, Rule] = {
    "onepass, bounded (default)": ours(forgetting=FORGETTING),
    "onepass, exponential": ours(forgetting=op.forgetting.Exponential(FORGETTING)),
    "onepass, directional": ours(forgetting=op.forgetting.Directional(FORGETTING)),
    "onepass, window of 50 rows": ours(forgetting=op.forgetting.Window(50)),
    "NumPy loop": lambda: Loop(5, RIDGE, FORGETTING),
    "River, smoothing": lambda: River(5, RIDGE, FORGETTING),
    "padasip, mu": lambda: Padasip(5, RIDGE, FORGETTING),
    "reservoirpy, forgetting": lambda: ReservoirPy(5, RIDGE, FORGETTING),
    "filterpy, fading memory": lambda: FilterPy(5, RIDGE, FORGETTING),
    "bayesianbandits, exponential": bandits(ExponentialForgetting),
    "bayesianbandits, stabilized": bandits(StabilizedForgetting),
    "bayesianbandits, SIFt": bandits(SiftForgetting),
    "bayesianbandits, feature-wise": bandits(FeatureWiseForgetting),
}


def take(rule: Any, X: Floats, y: Floats) -> Floats:
    """What a rule says of rows just before learning each."""
    whole = getattr(rule, "take", None)
    return whole(X, y) if whole else one_by_one(rule, rule.rows(X), y)


def hear(rule: Any, X: Floats, y: Floats) -> None:
    """Learn all up to the return, of which nothing is asked."""
    if not isinstance(rule, Bandits):
        take(rule, X, y)
        return
    at = 0
    while at < len(X):
        width = 100 if BEFORE + CALM[0] <= at < len(X) - CALM[1] else 1
        rule.learn_block(X[at : at + width], y[at : at + width])
        at += width


def silent_stream(seed: int) -> tuple[Floats, Floats, Floats]:
    """Features, answers with the truth unchanged, and answers where it changed in the silence."""
    rng = np.random.default_rng(seed)
    n = BEFORE + SILENT + AFTER
    X = rng.normal(size=(n, 5))
    X[BEFORE : BEFORE + SILENT, 2:] = 0.0
    truth, change = rng.normal(size=5), np.r_[0.0, 0.0, rng.normal(size=3)]
    noise = NOISE * rng.normal(size=n)
    back = np.arange(n) >= BEFORE + SILENT
    return X, X @ truth + noise, X @ truth + back * (X @ change) + noise


def walking_stream(seed: int) -> tuple[Floats, Floats]:
    """Features that are never silent, and answers of a truth that walks."""
    rng = np.random.default_rng(1_000 + seed)
    X = rng.normal(size=(LONG, 5))
    truth = rng.normal(size=5) + WALK * rng.normal(size=(LONG, 5)).cumsum(axis=0)
    return X, (X * truth).sum(axis=1) + NOISE * rng.normal(size=LONG)


def rmse(errors: Floats) -> float:
    """The root mean squared error; infinite where an error is not finite."""
    with np.errstate(over="ignore"):
        found = float(np.sqrt(np.mean(errors.astype(float) ** 2)))
    return found if np.isfinite(found) else float("inf")


def after_silence(start: Rule, seed: int, dtype: Any) -> dict[str, Any]:
    """Errors after the silence, and what went wrong."""
    X, same, changed = (part.astype(dtype) for part in silent_stream(seed))
    rule, back = start(), BEFORE + SILENT
    try:
        hear(rule, X[:back], same[:back])
        other = copy.deepcopy(rule)
        kept = take(rule, X[back:], same[back:])
        new = take(other, X[back:], changed[back:])
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as wrong:
        return {"raised": type(wrong).__name__, "unchanged": None, "changed": None}
    fine = np.isfinite(kept).all() and np.isfinite(new).all()
    return {
        "raised": None if fine else "not finite",
        "unchanged": rmse((kept - same[back:])[:5]),
        "changed": rmse((new - changed[back:])[20:]),
    }


def tracking(start: Rule, seed: int, dtype: Any) -> float | None:
    """The error on the stream that walks, after the first 200 rows."""
    X, y = (part.astype(dtype) for part in walking_stream(seed))
    try:
        return rmse((take(start(), X, y) - y)[200:])
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        return None


def mean(values: list[float | None]) -> float | str | None:
    """The mean over seeds; None if one of them has no value, "inf" if one is infinite."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    total = float(np.mean(numbers))
    return total if np.isfinite(total) else "inf"


def measure(start: Rule, seeds: int, dtype: str) -> dict[str, Any]:
    """All that is said of a rule, with rows of one precision."""
    began = time.perf_counter()
    silences = [after_silence(start, seed, dtype) for seed in range(seeds)]
    walks = [tracking(start, seed, dtype) for seed in range(seeds)]
    plain = [tracking(RULES["onepass, exponential"], seed, np.float64) for seed in range(seeds)]
    base, own = mean(plain), mean(walks)
    return {
        "seeds": seeds,
        "unchanged": mean([one["unchanged"] for one in silences]),
        "changed": mean([one["changed"] for one in silences]),
        "tracking": own / base if isinstance(own, float) and isinstance(base, float) else own,
        "raised": sorted({one["raised"] for one in silences if one["raised"]}),
        "seconds": time.perf_counter() - began,
    }


def known(path: Path) -> dict[str, Any]:
    """The rules measured before."""
    return dict(json.loads(path.read_text(encoding="utf-8"))["rules"]) if path.exists() else {}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", type=int, default=10)
    ask.add_argument("--only", default="", help="rules whose name begins so")
    ask.add_argument("--json", type=Path, default=RESULTS / "stability.json")
    asked = ask.parse_args()
    if not any(name.startswith(asked.only) for name in RULES):
        ask.error(f"--only must begin one of {'; '.join(RULES)}; got {asked.only!r}")
    rules: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows are what this is about
        for name, start in RULES.items():
            if name.startswith(asked.only):
                rules[name] = {
                    dtype: measure(start, asked.seeds, dtype) for dtype in ("float64", "float32")
                }
                print(name, {d: f"{one['seconds']:.0f} s" for d, one in rules[name].items()})
    if asked.only:
        rules = known(asked.json) | rules
    found = {
        "command": "python benchmarks/stability.py",
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in LIBRARIES},
        "seeds": asked.seeds,
        "rules": {name: rules[name] for name in RULES if name in rules},
    }
    print("\n" + markdown("stability", found))
    write(asked.json, found)


if __name__ == "__main__":
    main()
