"""Short benchmarks with a score and a speed, run with the onepass that is imported.

``compare.py`` runs this file once for each of two versions. Each measure has tolerances for a worse
score and a lower speed.

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

TOP = 5  # functions shown from a profile

Measured = tuple[float, int]
"""A score, and the number of processed units."""


@dataclass(frozen=True)
class Measure:
    """A benchmark.

    Parameters
    ----------
    name : str
    score : str
        Name of the score; lower is better.
    worse : float
        Relative tolerance for a worse score.
    slower : float
        Relative tolerance for a lower speed.
    unit : str
        Unit of the speed, per second.
    make : callable
        Prepares the data and returns the function to time.
    """

    name: str
    score: str
    worse: float
    slower: float
    unit: str
    make: Callable[[], Callable[[], Measured]]


def stream(n: int, p: int, c: int = 1) -> tuple[Any, Any]:
    """Return rows of p features with c noisy targets."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(n, p))
    Y = X @ rng.normal(size=(p, c)) + rng.normal(size=(n, c))
    return X, Y[:, 0] if c == 1 else Y


def error(predictions: Any, y: Any) -> float:
    """Return the root mean square error, without the first tenth."""
    begun = len(y) // 10
    return float(np.sqrt(np.mean((np.asarray(predictions) - y)[begun:] ** 2)))


def blocks(make: Callable[[], Any], n: int, p: int, c: int = 1) -> Callable[[], Any]:
    """Return a benchmark of test-then-train over an array."""

    def begun() -> Callable[[], Measured]:
        X, y = stream(n, p, c)
        return lambda: (error(make().test_then_train(X, y), y), n)

    return begun


def singles(make: Callable[[], Any], n: int, p: int, *, named: bool = False) -> Callable[[], Any]:
    """Return a benchmark of predict_one followed by learn_one."""

    def begun() -> Callable[[], Measured]:
        X, y = stream(n, p)
        rows: list[Any] = list(X)
        if named:
            rows = [{f"x{j}": value for j, value in enumerate(row)} for row in X.tolist()]

        def work() -> Measured:
            model, predictions = make(), []
            for x, target in zip(rows, y.tolist(), strict=True):
                predictions.append(model.predict_one(x))
                model.learn_one(x, target)
            return error(predictions, y), n

        return work

    return begun


def digits(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a benchmark of classifying scikit-learn's digits in random order."""

    def begun() -> Callable[[], Measured]:
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order] / 16.0, y[order]

        def work() -> Measured:
            model = make().partial_fit(X[:10], y[:10], classes=range(10))
            predictions = model.test_then_train(X[10:], y[10:])
            return float(np.mean(predictions != y[10:])), len(y) - 10

        return work

    return begun


def flights() -> Callable[[], Measured]:
    """Return a benchmark of the bundled stream, from file to report."""

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
        "RLS, ten outputs", "rmse", 1e-6, 0.2, "rows", blocks(op.RLSRegressor, 20_000, 100, 10)
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
    """Print a line of JSON per measure: name, score and speed, or the error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[each.name for each in MEASURES])
    parser.add_argument(
        "--times", type=int, default=3, help="number of repetitions; the best counts"
    )
    parser.add_argument("--profile", action="store_true", help="also profile")
    args = parser.parse_args()
    for measure in MEASURES:
        if args.only and measure.name not in args.only:
            continue
        with threadpool_limits(1):
            found = measured(measure, args.times)
            if args.profile and "error" not in found:
                found["profile"] = profile(measure)
        print(json.dumps({"name": measure.name, **found}), flush=True)


def measured(measure: Measure, times: int) -> dict[str, Any]:
    """Return score and speed, or the error of a version that lacks a feature."""
    try:
        work, took, score, units = measure.make(), [], 0.0, 0
        for _ in range(times):
            began = time.process_time()
            score, units = work()
            took.append(time.process_time() - began)
    except (AttributeError, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"score": score, "speed": units / min(took)}


def profile(measure: Measure) -> list[tuple[str, float]]:
    """Return the functions that take most time and their share, by cProfile."""
    work, watch = measure.make(), cProfile.Profile()
    work()
    watch.runcall(work)
    stats = pstats.Stats(watch)
    whole = stats.total_tt  # type: ignore[attr-defined]  # not in its stub
    spent = {place: own for place, (_, _, own, _, _) in stats.stats.items()}  # type: ignore[attr-defined]
    most = sorted(spent, key=lambda place: -spent[place])[:TOP]
    return [(_named(place), spent[place] / whole) for place in most]


def _named(place: tuple[str, int, str]) -> str:
    """Format the name of a function."""
    file, _, name = place
    return name if file == "~" else f"{Path(file).stem}.{name}"


if __name__ == "__main__":
    main()
