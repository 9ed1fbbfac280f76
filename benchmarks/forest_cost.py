"""CPU time of a row of forests and of the default mixture, by features, classes and trees.

Blocks of 500 rows after 3,000 rows; half of the features matter.

    python benchmarks/forest_cost.py
"""

import time
from typing import Any

import numpy as np
from cells import write
from tables import RESULTS
from threadpoolctl import threadpool_limits

import onepass as op

FEATURES, CLASSES, TREES = (5, 20, 100, 300), (0, 2, 10, 100), (3, 10, 20)
ROWS, TIMED = 3_000, 2_000


def stream(d: int, classes: int) -> tuple[Any, Any]:
    """Rows with an additive and a product term; labels are quantiles of the target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS + TIMED, d))
    y = X[:, : d // 2].sum(axis=1) / np.sqrt(d) + X[:, 0] * X[:, -1]
    if classes:
        y = np.digitize(y, np.quantile(y, np.linspace(0, 1, classes + 1)[1:-1]))
    return X, y


def microseconds(model: Any, X: Any, y: Any) -> float:
    """CPU time of a row that is predicted and learned."""
    model.partial_fit(X[:ROWS], y[:ROWS])
    began = time.process_time()
    for a in range(ROWS, ROWS + TIMED, 500):
        model.test_then_train(X[a : a + 500], y[a : a + 500])
    return (time.process_time() - began) / TIMED * 1e6


def main() -> None:
    rows = []
    for classes in CLASSES:
        task = "classification" if classes else "regression"
        kind = op.ForestClassifier if classes else op.ForestRegressor
        for d in FEATURES:
            X, y = stream(d, classes)
            models = {str(trees): kind(trees) for trees in TREES}
            models |= op.models.pipelines(["mixture", "rls"], task)
            found = {name: microseconds(one, X, y) for name, one in models.items()}
            print(task, d, classes, {name: round(value, 1) for name, value in found.items()})
            rows.append({"features": d, "classes": classes, "microseconds": found})
    write(
        RESULTS / "forest_cost.json", {"command": "python benchmarks/forest_cost.py", "rows": rows}
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
