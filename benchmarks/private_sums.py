"""Error of federated least squares by ε, with noise on the sums; draws docs/federated-noise.png.

Rows of ten features, N(0, 1), with targets xᵀw + 3 + N(0, 0.25), divided evenly among sites. Each
site adds its own noise (δ = 1e-6). The error is the root mean square difference from the noiseless
targets of other rows, in standard deviations of the targets; the median of ten seeds.

    python benchmarks/private_sums.py [--out docs/federated-noise.png]
"""

import argparse
import math
from pathlib import Path

import numpy as np
from cells import table
from dp_accounting import get_sigma_gaussian

import onepass as op
from onepass.evaluate.figures import new_figure
from onepass.scale import federated

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
JOBS = ((20_000, 1), (20_000, 10), (200_000, 1), (200_000, 10))
"""Rows and sites."""
D, DELTA, ROW_NORM, TARGET_NORM, SEEDS = 10, 1e-6, 5.0, 14.0, 10


def error(rows: int, sites: int, epsilon: float | None, seed: int) -> float:
    """Error of the combined model; without noise if there is no ε."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(rows, D)), rng.normal(size=D)
    clean = X @ w + 3.0
    y = clean + 0.5 * rng.normal(size=rows)
    if epsilon is None:
        model = op.RLSRegressor().fit(X, y)
    else:
        sigma = math.sqrt(6.0) * get_sigma_gaussian(epsilon, DELTA)
        ridge = 0.3 * ROW_NORM**2 * sigma * math.sqrt(D * sites)
        model = federated.combine(
            federated.summary(
                federated.private(
                    op.RLSRegressor(ridge),
                    [(X[i::sites], y[i::sites])],
                    epsilon=epsilon, delta=DELTA, row_norm=ROW_NORM, target_norm=TARGET_NORM,
                    seed=1000 * seed + i,
                )
            )
            for i in range(sites)
        )  # fmt: skip
    X = rng.normal(size=(5_000, D))
    clean = X @ w + 3.0
    return float(np.sqrt(np.mean((model.predict(X) - clean) ** 2)) / clean.std())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/federated-noise.png"))
    arguments = parser.parse_args()
    rows = []
    with new_figure((6.4, 4.0), arguments.out) as figure:
        axes = figure.add_subplot()
        for n, sites in JOBS:
            found = [
                float(np.median([error(n, sites, epsilon, seed) for seed in range(SEEDS)]))
                for epsilon in (*EPSILONS, None)
            ]
            name = f"{n:,} rows, {sites} site{'s' if sites > 1 else ''}"
            axes.loglog(EPSILONS, found[:-1], marker="o", label=name)
            rows.append([name, *(f"{value:.2g}" for value in found)])
        axes.set_xlabel("ε of each row (δ = 1e-6)")
        axes.set_ylabel("error / standard deviation of targets")
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.legend()
    print(table(["", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "without noise"], rows))


if __name__ == "__main__":
    main()
