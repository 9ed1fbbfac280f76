"""Kernel RLS: error by the size of the dictionary, criteria of pruning, and speed.

Prequential errors of the second half of the rows, divided by the variance of the targets: kin40k
(dynamics of a simulated arm, 8 features) and a Franka arm (torque of the second joint from
positions and velocities of 7 joints, every fourth row). Columns are standardized. Speeds are
measured in turns in one run: the recursion of Engel et al. in plain NumPy, the package krls if it
is installed, and onepass by single rows and by blocks; and by the size of the dictionary.

    ONEPASS_DATA=folder python benchmarks/kernel.py [errors] [criteria] [speed] [dictionaries]

writes the tables of docs/results/kernel.md.
"""

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

import onepass as op
from onepass import native

DATA = Path(os.environ.get("ONEPASS_DATA", "../shared/data"))
PAGE = Path(__file__).parents[1] / "docs" / "results" / "kernel.md"
GAMMAS = {"kin40k": 0.1, "arm": 0.05}
BUDGETS = (50, 100, 200, 400)
TOLERANCES = (0.3, 0.1, 0.03, 0.01)


def rows(name: str, n: int) -> tuple[Any, Any]:
    """Return n standardized rows and targets."""
    if name == "kin40k":
        table = np.loadtxt(DATA / "uci-regression" / "kin40k.csv.gz", delimiter=",")[:n]
        X, y = table[:, :-1], table[:, -1]
    else:
        arm = np.load(DATA / "panda" / "panda_exciting_1khz.npz")
        X, y = np.hstack([arm["q"], arm["dq"]])[::4][:n], arm["tau"][::4, 1][:n]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def error(predictions: Any, y: Any) -> float:
    """Return the normalized squared error of the second half."""
    half = len(y) // 2
    return float(np.mean((predictions - y)[half:] ** 2) / np.var(y[half:]))


def errors() -> Iterator[str]:
    """Yield rows of the table of errors by the size of the dictionary."""
    yield "| data | limit | dictionary | error, forgetting 1 | error, forgetting 0.999 |"
    yield "| --- | --- | --: | --: | --: |"
    limits = [{"tolerance": t, "budget": None} for t in TOLERANCES]
    limits += [{"tolerance": 1e-3, "budget": m} for m in BUDGETS]
    for name, gamma in GAMMAS.items():
        X, y = rows(name, 5000)
        for limit in limits:
            found = []
            for forgetting in (1.0, 0.999):
                model = op.KernelRLSRegressor(
                    gamma=gamma, noise=0.01, forgetting=forgetting, **limit
                )
                found.append(error(model.test_then_train(X, y), y))
            text = f"budget {limit['budget']}"
            if limit["budget"] is None:
                text = f"tolerance {limit['tolerance']:g}"
            cells = " | ".join(f"{one:.4f}" for one in found)
            yield f"| {name} | {text} | {model.rank_} | {cells} |"
            print(name, limit, found, file=sys.stderr)


CRITERIA = (
    "change of f, (5)",
    "change of f at the row",
    "change of f by its variance",
    "change of f and information",
    "expected change at the row",
    "information",
    "information at the row",
    "novelty",
    "oldest",
    "newest",
)


def costs(criterion: str, changes: Any, variances: Any, novelty: Any) -> Any:
    """Return the cost of dropping each row, by its squared change of f, variance and novelty."""
    age = np.arange(len(changes))
    least = np.maximum(variances, 1e-12)
    found = (
        changes,
        changes * novelty,
        changes / least,
        changes - variances - np.log(least),
        (changes + variances) * novelty,
        1.0 - variances,
        (1.0 - variances) * novelty,
        novelty,
        age,
        -age,
    )
    return found[CRITERIA.index(criterion)]


def tracked(X: Any, y: Any, gamma: float, budget: int, criterion: str) -> Any:
    """Return the predictions of KRLS-T with a criterion: dense, each step from its definition."""
    noise, points = 0.01, np.zeros((0, X.shape[1]))
    mean, P, predictions = np.zeros(0), np.zeros((0, 0)), np.zeros(len(y))  # of f(points)
    for i, (x, target) in enumerate(zip(X, y, strict=True)):
        both = np.vstack([points, x])
        K = np.exp(-gamma * cdist(both, both, "sqeuclidean"))
        q = np.linalg.solve(K[:-1, :-1], K[:-1, -1])
        novelty = max(1.0 - K[:-1, -1] @ q, 0.0)
        h = P @ q
        variance = novelty + q @ h
        predictions[i] = q @ mean
        s = noise + variance
        if novelty > 1e-2:
            points = both
            mean, gain = np.append(mean, predictions[i]), np.append(h, variance)
            P = np.block([[P, h[:, None]], [h[None], np.array([[variance]])]])
        else:
            K, gain = K[:-1, :-1], h
        mean, P = mean + gain * (target - predictions[i]) / s, P - np.outer(gain, gain) / s
        if len(points) > budget:
            L = np.linalg.cholesky(K)
            A = solve_triangular(L, np.eye(len(L)), lower=True)
            size = (A * A).sum(axis=0)
            v, whitened = A / np.sqrt(size), A @ P @ A.T
            variances = np.einsum("ij,ij->j", v, whitened @ v)
            cost = costs(criterion, (v.T @ (A @ mean)) ** 2, variances, 1.0 / size)
            worst = int(np.argmin(cost))
            stay = np.arange(len(points)) != worst
            points, mean, P = points[stay], mean[stay], P[np.ix_(stay, stay)]
    return predictions


def criteria() -> Iterator[str]:
    """Yield rows of the table of criteria."""
    columns = [(name, budget) for name in GAMMAS for budget in (30, 60, 120)]
    yield "| dropped: the least | " + " | ".join(f"{a}, {b}" for a, b in columns) + " |"
    yield "| --- |" + " --: |" * len(columns)
    for label in CRITERIA:
        cells = []
        for name, budget in columns:
            X, y = rows(name, 1500)
            cells.append(f"{error(tracked(X, y, GAMMAS[name], budget, label), y):.3f}")
        print(label, cells, file=sys.stderr)
        yield f"| {label} | {' | '.join(cells)} |"


class Recursion:
    """ALD-KRLS as in Engel et al. 2004, Figure 1, in NumPy with preallocated arrays."""

    def __init__(self, gamma: float, tolerance: float, d: int, limit: int) -> None:
        self.gamma, self.tolerance, self.m = gamma, tolerance, 0
        self.points, self.alpha = np.zeros((limit, d)), np.zeros(limit)
        self.inverse, self.P = np.zeros((limit, limit)), np.zeros((limit, limit))

    def learn(self, x: Any, y: float) -> float:
        """Learn one row; return its prediction."""
        m = self.m
        if m == 0:
            self.points[0], self.alpha[0], self.inverse[0, 0], self.P[0, 0] = x, y, 1.0, 1.0
            self.m = 1
            return 0.0
        apart = self.points[:m] - x
        k = np.exp(-self.gamma * np.einsum("ij,ij->i", apart, apart))
        a = self.inverse[:m, :m] @ k
        delta, prediction = 1.0 - k @ a, float(k @ self.alpha[:m])
        e = y - prediction
        if delta > self.tolerance:
            self.inverse[:m, :m] += np.outer(a, a) / delta
            self.inverse[m, :m] = self.inverse[:m, m] = -a / delta
            self.inverse[m, m], self.P[m, m] = 1.0 / delta, 1.0
            self.points[m], self.alpha[m] = x, e / delta
            self.alpha[:m] -= a * (e / delta)
            self.m += 1
        else:
            q = self.P[:m, :m] @ a
            q /= 1.0 + a @ q
            self.P[:m, :m] -= np.outer(q, a @ self.P[:m, :m])
            self.alpha[:m] += self.inverse[:m, :m] @ q * e
        return prediction

    def learn_within(self, x: Any, y: float, limit: int) -> float:
        """Learn one row; with `limit` rows in the dictionary, no row joins."""
        tolerance = self.tolerance
        self.tolerance = np.inf if self.m >= limit else tolerance
        prediction = self.learn(x, y)
        self.tolerance = tolerance
        return prediction


def numpy_rows(X: Any, y: Any, gamma: float, tolerance: float) -> int:
    """Learn with the recursion in NumPy; return the size of the dictionary."""
    model = Recursion(gamma, tolerance, X.shape[1], 3000)
    for x, target in zip(X, y, strict=True):
        model.learn(x, target)
    return model.m


def single_rows(X: Any, y: Any, gamma: float, tolerance: float) -> int:
    """Learn single rows with onepass."""
    model = op.KernelRLSRegressor(gamma=gamma, tolerance=tolerance, budget=None)
    for x, target in zip(X, y, strict=True):
        model.predict_one(x)
        model.learn_one(x, target)
    return model.rank_


def blocks(X: Any, y: Any, gamma: float, tolerance: float) -> int:
    """Learn all rows with onepass."""
    model = op.KernelRLSRegressor(gamma=gamma, tolerance=tolerance, budget=None)
    model.test_then_train(X, y)
    return model.rank_


def package(X: Any, y: Any, gamma: float, tolerance: float) -> int:
    """Learn with the package krls."""
    made = importlib.import_module("krls.krls").KRLS
    model = made(nu=tolerance, N=10**6, kernel_type="RBF", validate_array=False, gamma=gamma)
    model.fit(X, y)
    return int(model.parameters_dict["Dict"].shape[1])


WAYS = {
    "onepass, blocks": blocks,
    "onepass, `predict_one` and `learn_one`": single_rows,
    "ALD-KRLS in NumPy": numpy_rows,
}
if importlib.util.find_spec("krls"):
    WAYS["krls"] = package


def speed() -> Iterator[str]:
    """Yield rows of the table of speeds."""
    yield "| data | rows | way | dictionary | ms per row | relative to onepass, blocks |"
    yield "| --- | --: | --- | --: | --: | --: |"
    for name, tolerance, n in (("arm", 0.01, 2000), ("kin40k", 0.3, 2000), ("kin40k", 0.1, 3000)):
        X, y = rows(name, n)
        best, ranks = dict.fromkeys(WAYS, np.inf), dict.fromkeys(WAYS, 0)
        for turn in range(3):
            for way, learn in WAYS.items():
                if way == "krls" and turn:
                    continue  # it takes long
                learn(X[:20], y[:20], GAMMAS[name], tolerance)  # imports
                begun = time.process_time()
                ranks[way] = learn(X, y, GAMMAS[name], tolerance)
                best[way] = min(best[way], 1e3 * (time.process_time() - begun) / n)
        for way, spent in best.items():
            ratio = spent / best["onepass, blocks"]
            yield f"| {name} | {n} | {way} | {ranks[way]} | {spent:.3f} | {ratio:.1f}× |"
        print(name, best, ranks, file=sys.stderr)


SIZES = {50: 0.62, 100: 0.44, 200: 0.25, 400: 0.107}  # dictionary on kin40k, by tolerance


def dictionaries() -> Iterator[str]:
    """Yield rows of the table of 1,000 single rows after 2,000, by the size of the dictionary."""
    yield (
        "| limit | dictionary | ALD-KRLS in NumPy, µs | single rows, µs | blocks, µs "
        "| single rows, not compiled, µs | single rows are quicker than NumPy by |"
    )
    yield "| --- | --: | --: | --: | --: | --: | --: |"
    X, y = rows("kin40k", 3000)
    first, last, n = slice(0, 2000), slice(2000, 3000), 1000
    targets = y[last].tolist()
    for size, tolerance in [(m, None) for m in SIZES] + [*SIZES.items()]:
        limit = {"tolerance": 1e-3 if tolerance is None else tolerance}
        budget = size if tolerance is None else None
        best: dict[str, float] = {}
        for _ in range(3):
            model = Recursion(GAMMAS["kin40k"], limit["tolerance"], X.shape[1], 3000)
            for x, target in zip(X[first], y[first], strict=True):
                model.learn_within(x, target, budget or 3000)
            begun = time.process_time()
            for x, target in zip(X[last], targets, strict=True):
                model.learn_within(x, target, budget or 3000)
            best["numpy"] = min(best.get("numpy", np.inf), time.process_time() - begun)
            for way in ("single", "blocks", "not compiled"):
                with patched(native, None if way == "not compiled" else native.loops):
                    ours = op.KernelRLSRegressor(
                        gamma=GAMMAS["kin40k"], noise=0.01, budget=budget, **limit
                    )
                    ours.partial_fit(X[first], y[first])
                    begun = time.process_time()
                    if way == "blocks":
                        ours.test_then_train(X[last], y[last])
                    else:
                        for x, target in zip(X[last], targets, strict=True):
                            ours.predict_one(x)
                            ours.learn_one(x, target)
                    best[way] = min(best.get(way, np.inf), time.process_time() - begun)
        cells = " | ".join(f"{1e6 * seconds / n:.0f}" for seconds in best.values())
        text = f"budget {size}" if tolerance is None else f"tolerance {tolerance:g}"
        ratio = best["numpy"] / best["single"]
        yield f"| {text} | {ours.rank_} | {cells} | {ratio:.1f}× |"
        print(text, model.m, ours.rank_, best, file=sys.stderr)


@contextmanager
def patched(module: Any, loops: Any) -> Iterator[None]:
    """Replace the compiled loops within the context."""
    before, module.loops = module.loops, loops
    try:
        yield
    finally:
        module.loops = before


TABLES = {"errors": errors, "criteria": criteria, "speed": speed, "dictionaries": dictionaries}


def main() -> None:
    for name in sys.argv[1:] or list(TABLES):
        lines = "\n".join(TABLES[name]())
        text = PAGE.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: python benchmarks/kernel.py {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        written = before + begin + "\n" + lines + "\n\n" + end + rest.partition(end)[2]
        PAGE.write_text(written, encoding="utf-8")
        print(lines)


if __name__ == "__main__":
    main()
