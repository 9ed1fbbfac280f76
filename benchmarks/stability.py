"""Forgetting with unexcited features: covariance wind-up, and tracking of a later change.

λ = 0.98. Five features, y = x·w + noise of 0.1. After 1,000 rows three features are zero for 48,000
rows, then they return. For each rule the table shows the root mean square error

- of rows 1 to 5 after the return, if the true weights are unchanged,
- of rows 21 to 100 after the return, if the weights of the three features changed meanwhile,
- on another stream, always excited, whose true weights follow a random walk: relative to onepass's
  exponential forgetting, which is exact, on the same rows in float64,

as means over seeds. The noise alone contributes 0.1. Each rule starts from w ~ N(0, I), has no
intercept and receives single rows, except bayesianbandits, which is slow with single rows and
receives the middle of the unexcited part in blocks of 100. According to its documentation, its
uniform rules have the same result with blocks; for its two other rules the difference decays by
λ¹⁰⁰⁰ in the last 1,000 rows before the return. With float32 all rows and targets are float32.
``--only`` measures some rules and preserves the results of the others.

    make peers    or    python benchmarks/stability.py [--seeds 10] [--only onepass]
"""

import argparse
import copy
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bayesianbandits import (
    ExponentialForgetting,
    FeatureWiseForgetting,
    SiftForgetting,
    StabilizedForgetting,
)
from cells import versions, write
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
from frames import PolarsOnline, frame, installed, online_settings
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

import onepass as op

FORGETTING, RIDGE, NOISE = 0.98, 1.0, 0.1
BEFORE, SILENT, AFTER = 1_000, 48_000, 100
CALM = (2_000, 1_000)  # first and last unexcited rows, which are always learned one by one
WALK, LONG = 0.01, 3_000  # step of the random walk, and rows of that stream
LIBRARIES = (
    "river", "padasip", "reservoirpy", "bayesianbandits", "filterpy", "polars-online", "numpy",
    "scipy",
)  # fmt: skip

Rule = Callable[[], Any]


def ours(**settings: Any) -> Rule:
    """Return a rule of onepass; blocks equal single rows, as the tests show."""
    return lambda: OursBlocks(5, RIDGE, **settings)


def bandits(kind: Any) -> Rule:
    """Return a rule of bayesianbandits."""
    return lambda: Bandits(5, RIDGE, kind(FORGETTING))


class Bank:
    """A model of polars-online that continues its stream from frame to frame."""

    def __init__(self, kind: str, **settings: Any) -> None:
        from polars_online import ModelBank, spec  # noqa: PLC0415  not on every machine

        more = online_settings(np.zeros((1, 5)))
        self._bank = ModelBank([getattr(spec, kind)("m", lam=FORGETTING, **settings, **more)])

    def test_then_train(self, X: Floats, y: Floats) -> Floats:
        """Predict and learn all rows; the first prediction is 0."""
        found = self._bank.fit_predict(frame(X, y))["m"].struct.field("pred_y")
        return np.asarray(found.fill_null(0.0).to_numpy())


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
if installed([PolarsOnline])[0]:
    RULES["polars-online, rls"] = lambda: Bank("rls", delta=RIDGE)
    RULES["polars-online, ewridge"] = lambda: Bank("ewridge", solve_every=0)


def predict_then_learn(rule: Any, X: Floats, y: Floats) -> Floats:
    """Return prequential predictions of a rule."""
    whole = getattr(rule, "test_then_train", None)
    return whole(X, y) if whole else one_by_one(rule, rule.rows(X), y)


def learn_history(rule: Any, X: Floats, y: Floats) -> None:
    """Learn all rows before the return."""
    if not isinstance(rule, Bandits):
        predict_then_learn(rule, X, y)
        return
    at = 0
    while at < len(X):
        width = 100 if BEFORE + CALM[0] <= at < len(X) - CALM[1] else 1
        rule.learn_block(X[at : at + width], y[at : at + width])
        at += width


def silent_stream(seed: int) -> tuple[Floats, Floats, Floats]:
    """Return features, targets with unchanged weights, and targets with changed weights."""
    rng = np.random.default_rng(seed)
    n = BEFORE + SILENT + AFTER
    X = rng.normal(size=(n, 5))
    X[BEFORE : BEFORE + SILENT, 2:] = 0.0
    truth, change = rng.normal(size=5), np.r_[0.0, 0.0, rng.normal(size=3)]
    noise = NOISE * rng.normal(size=n)
    back = np.arange(n) >= BEFORE + SILENT
    return X, X @ truth + noise, X @ truth + back * (X @ change) + noise


def walking_stream(seed: int) -> tuple[Floats, Floats]:
    """Return excited features, and targets whose weights follow a random walk."""
    rng = np.random.default_rng(1_000 + seed)
    X = rng.normal(size=(LONG, 5))
    truth = rng.normal(size=5) + WALK * rng.normal(size=(LONG, 5)).cumsum(axis=0)
    return X, (X * truth).sum(axis=1) + NOISE * rng.normal(size=LONG)


def rmse(errors: Floats) -> float:
    """Return the root mean square error; infinite if an error is not finite."""
    with np.errstate(over="ignore"):
        found = float(np.sqrt(np.mean(errors.astype(float) ** 2)))
    return found if np.isfinite(found) else float("inf")


def after_silence(start: Rule, seed: int, dtype: Any) -> dict[str, Any]:
    """Return errors after the return, and the exception, if any."""
    X, same, changed = (part.astype(dtype) for part in silent_stream(seed))
    rule, back = start(), BEFORE + SILENT
    try:
        learn_history(rule, X[:back], same[:back])
        other = copy.deepcopy(rule)
        unchanged = predict_then_learn(rule, X[back:], same[back:])
        new = predict_then_learn(other, X[back:], changed[back:])
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        return {"raised": type(error).__name__, "unchanged": None, "changed": None}
    fine = np.isfinite(unchanged).all() and np.isfinite(new).all()
    return {
        "raised": None if fine else "not finite",
        "unchanged": rmse((unchanged - same[back:])[:5]),
        "changed": rmse((new - changed[back:])[20:]),
    }


def tracking(start: Rule, seed: int, dtype: Any) -> float | None:
    """Return the error on the random-walk stream, after the first 200 rows."""
    X, y = (part.astype(dtype) for part in walking_stream(seed))
    try:
        return rmse((predict_then_learn(start(), X, y) - y)[200:])
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        return None


def mean(values: list[float | None]) -> float | str | None:
    """Return the mean over seeds; None if a value is missing, "inf" if one is infinite."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    total = float(np.mean(numbers))
    return total if np.isfinite(total) else "inf"


def measure(start: Rule, seeds: int, dtype: str) -> dict[str, Any]:
    """Measure a rule with rows of one precision."""
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
    """Return former results."""
    return dict(json.loads(path.read_text(encoding="utf-8"))["rules"]) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="prefix of the rules to measure")
    parser.add_argument("--json", type=Path, default=RESULTS / "stability.json")
    arguments = parser.parse_args()
    if not any(name.startswith(arguments.only) for name in RULES):
        parser.error(f"--only must begin one of {'; '.join(RULES)}; got {arguments.only!r}")
    rules: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows are expected
        for name, start in RULES.items():
            if name.startswith(arguments.only):
                rules[name] = {
                    dtype: measure(start, arguments.seeds, dtype)
                    for dtype in ("float64", "float32")
                }
                print(name, {d: f"{one['seconds']:.0f} s" for d, one in rules[name].items()})
    if arguments.only:
        rules = known(arguments.json) | rules
    found = {
        "command": "python benchmarks/stability.py",
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        **versions(LIBRARIES),
        "seeds": arguments.seeds,
        "rules": {name: rules[name] for name in RULES if name in rules},
    }
    print("\n" + markdown("stability", found))
    write(arguments.json, found)


if __name__ == "__main__":
    main()
