"""Measures: short pieces of work with a score and a speed, of whichever onepass is imported.

``compare.py`` runs this file once for each of two versions. Each measure says, as it stands in the
table, by how much its score may be worse and its speed lower before that counts.

    python benchmarks/measures.py [--only NAME ...]
"""

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import onepass as op

TOP = 5  # lines of a profile

Measured = tuple[float, int]
"""A score, and the units of work that were done."""


@dataclass(frozen=True)
class Measure:
    """A piece of work.

    Parameters
    ----------
    name : str
    score : str
        What the score is; less is better.
    worse : float
        By which part of itself the score may be worse.
    slower : float
        By which part the speed may be lower.
    unit : str
        Of which the speed counts so many a second.
    make : callable
        Sets up; gives what is timed.
    """

    name: str
    score: str
    worse: float
    slower: float
    unit: str
    make: Callable[[], Callable[[], Measured]]


def stream(n: int, p: int, c: int = 1) -> tuple[Any, Any]:
    """Rows of p features, and c noisy answers of each."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(n, p))
    Y = X @ rng.normal(size=(p, c)) + rng.normal(size=(n, c))
    return X, Y[:, 0] if c == 1 else Y


def error(said: Any, y: Any) -> float:
    """The root of the mean squared error, but of the first tenth."""
    begun = len(y) // 10
    return float(np.sqrt(np.mean((np.asarray(said) - y)[begun:] ** 2)))


def blocks(make: Callable[[], Any], n: int, p: int, c: int = 1) -> Callable[[], Any]:
    """Test-then-train over an array."""

    def begun() -> Callable[[], Measured]:
        X, y = stream(n, p, c)
        return lambda: (error(make().test_then_train(X, y), y), n)

    return begun


def singles(make: Callable[[], Any], n: int, p: int, *, named: bool = False) -> Callable[[], Any]:
    """predict_one, then learn_one."""

    def begun() -> Callable[[], Measured]:
        X, y = stream(n, p)
        rows: list[Any] = list(X)
        if named:
            rows = [{f"x{j}": value for j, value in enumerate(row)} for row in X.tolist()]

        def work() -> Measured:
            model, said = make(), []
            for x, answer in zip(rows, y.tolist(), strict=True):
                said.append(model.predict_one(x))
                model.learn_one(x, answer)
            return error(said, y), n

        return work

    return begun


def digits(make: Callable[[], Any]) -> Callable[[], Any]:
    """Classes of scikit-learn's digits, in an order that is random."""

    def begun() -> Callable[[], Measured]:
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order] / 16.0, y[order]

        def work() -> Measured:
            model = make().partial_fit(X[:10], y[:10], classes=range(10))
            said = model.test_then_train(X[10:], y[10:])
            return float(np.mean(said != y[10:])), len(y) - 10

        return work

    return begun


def flights() -> Callable[[], Measured]:
    """The bundled stream, from file to report."""

    def work() -> Measured:
        model = op.Pipeline(
            op.features.Encode(), op.features.Impute(), op.RLSRegressor(ridge=10.0, forgetting=0.98)
        )
        report = op.evaluate.prequential({"rls": model}, op.stream.read("flights"))
        return float(report.scores["rls"].overall["mae"]), report.rows

    return work


MEASURES = (
    Measure("RLS, 10 features", "rmse", 1e-6, 0.2, "rows", blocks(op.RLSRegressor, 100_000, 10)),
    Measure("RLS, 100 features", "rmse", 1e-6, 0.2, "rows", blocks(op.RLSRegressor, 20_000, 100)),
    Measure("RLS, 1000 features", "rmse", 1e-6, 0.2, "rows", blocks(op.RLSRegressor, 2_500, 1000)),
    Measure(
        "RLS, forgetting", "rmse", 1e-6, 0.2, "rows",
        blocks(lambda: op.RLSRegressor(forgetting=0.99), 50_000, 10),
    ),
    Measure(
        "RLS, ten answers", "rmse", 1e-6, 0.2, "rows", blocks(op.RLSRegressor, 20_000, 100, 10)
    ),
    Measure("RLS, single rows", "rmse", 1e-6, 0.3, "rows", singles(op.RLSRegressor, 20_000, 10)),
    Measure(
        "RLS, single rows, 300", "rmse", 1e-6, 0.3, "rows", singles(op.RLSRegressor, 4_000, 300)
    ),
    Measure(
        "RLS, dicts", "rmse", 1e-6, 0.3, "rows", singles(op.RLSRegressor, 20_000, 10, named=True)
    ),
    Measure(
        "SGD", "rmse", 1e-4, 0.2, "rows",
        blocks(lambda: op.SGDRegressor(step_size=0.01), 100_000, 20),
    ),
    Measure(
        "SGD, single rows", "rmse", 1e-4, 0.3, "rows",
        singles(lambda: op.SGDRegressor(step_size=0.01), 10_000, 20),
    ),
    Measure("perceptron, digits", "mistakes", 0.0, 0.3, "rows", digits(op.Perceptron)),
    Measure("RLS, digits", "mistakes", 0.0, 0.3, "rows", digits(op.RLSClassifier)),
    Measure(
        "ORFit, digits", "mistakes", 0.02, 0.3, "rows",
        digits(lambda: op.ORFitClassifier(memory=20)),
    ),
    Measure("ART-IPCA, digits", "mistakes", 0.05, 0.3, "rows", digits(op.ARTIPCAClassifier)),
    Measure("flights, to the report", "mae", 1e-6, 0.2, "rows", flights),
)  # fmt: skip


def main() -> None:
    """A line of JSON for each measure: its name, score and speed, or why there is none."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--only", nargs="+", choices=[each.name for each in MEASURES])
    asked.add_argument("--times", type=int, default=3, help="the best of so many")
    asked.add_argument("--profile", action="store_true", help="where the time goes, too")
    args = asked.parse_args()
    for measure in MEASURES:
        if args.only and measure.name not in args.only:
            continue
        with threadpool_limits(1):
            found = measured(measure, args.times)
            if args.profile and "wrong" not in found:
                found["profile"] = profile(measure)
        print(json.dumps({"name": measure.name, **found}), flush=True)


def measured(measure: Measure, times: int) -> dict[str, Any]:
    """Score and speed; or what went wrong, which an older version may not know yet."""
    try:
        work, took, score, units = measure.make(), [], 0.0, 0
        for _ in range(times):
            began = time.process_time()
            score, units = work()
            took.append(time.process_time() - began)
    except (AttributeError, TypeError, ValueError) as wrong:
        return {"wrong": f"{type(wrong).__name__}: {wrong}"}
    return {"score": score, "speed": units / min(took)}


def profile(measure: Measure) -> list[tuple[str, float]]:
    """The functions in which most time goes by, and their part of it; by cProfile."""
    work, watch = measure.make(), cProfile.Profile()
    work()
    watch.runcall(work)
    stats = pstats.Stats(watch)
    whole = stats.total_tt  # type: ignore[attr-defined]  # not in its stub
    spent = {place: own for place, (_, _, own, _, _) in stats.stats.items()}  # type: ignore[attr-defined]
    most = sorted(spent, key=lambda place: -spent[place])[:TOP]
    return [(_named(place), spent[place] / whole) for place in most]


def _named(place: tuple[str, int, str]) -> str:
    """A function as a reader knows it."""
    file, _, name = place
    return name if file == "~" else f"{Path(file).stem}.{name}"


if __name__ == "__main__":
    main()
