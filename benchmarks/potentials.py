"""ORFit with potentials: error of the weights by the number of rows, for sparse and dense truths.

100 weights, of which 4 or all are not zero, with the same sum of squares; normal features without
noise, learned in one pass with all directions in memory. The median of three seeds of the norm of
the error relative to that of the truth, and the time per row.

    python benchmarks/potentials.py
"""

import time
from typing import Any

import numpy as np
from cells import write
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

import onepass as op

D, SEEDS = 100, 3
POTENTIALS: dict[str, dict[str, Any]] = {
    "l2": {"potential": 2.0},
    "l1.5": {"potential": 1.5},
    "l1.1": {"potential": 1.1},
    "l4": {"potential": 4.0},
    "entropy": {"potential": "entropy", "scale": 1e-3},
}


def main() -> None:
    found: dict[str, Any] = {"command": "python benchmarks/potentials.py", "rows": []}
    with threadpool_limits(1):
        for truth, count in (("4 of 100", 4), ("all 100", D)):
            for n in (10, 20, 30, 40, 60):
                errors: dict[str, list[float]] = {name: [] for name in POTENTIALS}
                seconds = dict.fromkeys(POTENTIALS, 0.0)
                for seed in range(SEEDS):
                    rng = np.random.default_rng(seed)
                    X, w = rng.normal(size=(n, D)), np.zeros(D)
                    w[:count] = rng.normal(size=count)
                    w /= np.linalg.norm(w)
                    for name, params in POTENTIALS.items():
                        begin = time.process_time()
                        model = op.MirrorORFitRegressor(memory=None, **params).fit(X, X @ w)
                        seconds[name] += (time.process_time() - begin) / n / SEEDS
                        errors[name].append(float(np.linalg.norm(model.coef_ - w)))
                medians = {name: float(np.median(each)) for name, each in errors.items()}
                ms = {name: 1e3 * each for name, each in seconds.items()}
                found["rows"].append({"truth": truth, "n": n, "error": medians, "ms": ms})
    write(RESULTS / "potentials.json", found)
    print(markdown("potentials", found))


if __name__ == "__main__":
    main()
