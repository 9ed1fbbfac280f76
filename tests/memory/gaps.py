"""RLSRegressor after random gaps: predictions stay bounded, and rows give what blocks give.

    PYTHONPATH=src:tests python tests/memory/gaps.py --cases 1000

A case is drawn from its seed: 40 to 120 rows of 2 to 30 features of different units, some of them
silent in most rows, a rule with a half-life, a ridge, and gaps of up to 400 half-lives. It is
learned row by row and in blocks. It is wrong if a prediction is not finite or larger than `LARGEST`
times the largest target and the prediction by the rows since the last gap alone; or if rows and
blocks differ by more than `DIFFERENCE` of the largest target, where the rows since the last gap are
more than 2 d and determine the prediction.
"""

import argparse
import sys
import warnings
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import onepass as op

Floats = NDArray[np.float64]

LARGEST, DIFFERENCE = 1e3, 1e-6
CONDITION, LEVERAGE = 1e7, 10.0
"""Rows determine a prediction up to these."""
SUDDEN = 8.0
"""Half-lives after which the past is only a prior."""
RULES: dict[str, Any] = {
    "plain": lambda half_life: op.forgetting.Exponential(half_life=half_life),
    "held": lambda half_life: op.forgetting.Exponential(half_life=half_life, ridge="held"),
    "bounded": lambda half_life: op.forgetting.Bounded(half_life=half_life),
}
SETTINGS = [(rule, ridge) for rule in RULES for ridge in (1e-12, 0.0)]


class Case(NamedTuple):
    """A stream with gaps, and the first rows of its blocks."""

    X: Floats
    y: Floats
    time: Floats
    half_life: float
    cuts: Floats


def draw(seed: int, *, silent: bool = False) -> Case:
    """The case of a seed; with ``silent`` most values are 0, and half of the features integers."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 31)), int(rng.integers(40, 121))
    X = rng.normal(size=(n, d)) + 10.0 * (rng.random() < 0.5) * rng.normal(size=d)
    if silent:
        X[:, ::2] = np.round(X[:, ::2])
        X *= rng.random((n, d)) < 0.3
    y = X @ rng.normal(size=d) + rng.choice([0.0, 0.1, 1.0]) * rng.normal(size=n)
    half_life = 10.0 ** rng.uniform(0.0, 2.0)
    gaps, at = np.ones(n), rng.random(n) < rng.choice([0.02, 0.1, 0.3])
    gaps[at] = half_life * rng.uniform(0.0, 400.0, at.sum())
    X *= 10.0 ** rng.uniform(-2.0, 2.0, d)
    return Case(X, y, np.cumsum(gaps), half_life, np.sort(rng.integers(0, n, 4)))


def predictions(case: Case, rule: str, ridge: float) -> tuple[Floats, Floats]:
    """Prequential predictions of the rows, learned one by one and in blocks."""
    X, y, time, half_life, cuts = case
    model, rows = op.RLSRegressor(ridge, RULES[rule](half_life)), np.zeros(len(X))
    for i in range(len(X)):
        rows[i] = model.predict_one(X[i]) if i else 0.0
        model.learn_one(X[i], y[i], time=time[i])
    model = op.RLSRegressor(ridge, RULES[rule](half_life))
    parts = [part for part in np.split(np.arange(len(X)), cuts) if len(part)]
    blocks = [model.test_then_train(X[part], y[part], time=time[part]) for part in parts]
    return rows, np.concatenate(blocks)


def since_gap(case: Case) -> tuple[Floats, NDArray[np.bool_]]:
    """Predictions by the rows since the last gap, and whether these determine them."""
    X, y, time, half_life, _ = case
    found, determined, first = np.zeros(len(X)), np.zeros(len(X), dtype=bool), 0
    for i in range(1, len(X)):
        if i > 1 and time[i - 1] - time[i - 2] > SUDDEN * half_life:
            first = i - 1
        root = np.exp2((time[first:i] - time[i - 1]) / half_life / 2.0)
        mean = root**2 @ X[first:i] / (root @ root)
        A = root[:, None] * (X[first:i] - mean)
        unit = np.linalg.norm(A, axis=0)
        unit[unit == 0.0] = 1.0
        U, sigma, Vt = np.linalg.svd(A / unit, full_matrices=False)
        used = sigma > 1e-9 * max(sigma[0], 1e-300)
        away = Vt[used] @ ((X[i] - mean) / unit) / sigma[used]
        middle = float(root**2 @ y[first:i] / (root @ root))
        found[i] = middle + away @ (U[:, used].T @ (root * (y[first:i] - middle)))
        full = i - first > 2 * X.shape[1] and sigma[-1] * CONDITION > sigma[0]
        determined[i] = full and bool(np.linalg.norm(away) <= LEVERAGE)
    return found, determined


def check(seed: int, rule: str, ridge: float, *, silent: bool = False) -> dict[str, float]:
    """How wrong a case is, by kind: "largest", "difference"."""
    case, wrong = draw(seed, silent=silent), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, blocks = predictions(case, rule, ridge)
    scale = float(np.abs(case.y).max())
    alone, determined = since_gap(case)
    bound = np.maximum(scale, np.abs(alone))
    largest = float((np.maximum(np.abs(rows), np.abs(blocks)) / bound).max())
    if not largest <= LARGEST:
        wrong["largest"] = largest
    difference = float((np.abs(rows - blocks)[determined] / scale).max(initial=0.0))
    if not difference <= DIFFERENCE:
        wrong["difference"] = difference
    return wrong


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--silent", action="store_true", help="features that are mostly 0")
    options = parser.parse_args()
    count: Counter[Any] = Counter()
    for seed in range(options.seed, options.seed + options.cases):
        for rule, ridge in SETTINGS:
            wrong = check(seed, rule, ridge, silent=options.silent)
            if wrong:
                count[rule, ridge] += 1
                print(f"seed {seed}, {rule}, ridge {ridge:g}: {wrong}", flush=True)  # noqa: T201
    print(f"{options.cases} cases; wrong: {dict(count)}")  # noqa: T201
    return int(bool(count))


if __name__ == "__main__":
    sys.exit(main())
