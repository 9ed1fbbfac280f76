"""Training ART-IPCA on Split MNIST: onepass compared with the published code.

Both learn the same 20,000 rows in the same order (2,000 per class, k = 200, vigilance 0.5) on one
thread. The published code projects all prototypes for every row; it is reimplemented here with
scikit-learn's IncrementalPCA, following Algorithm 1. Prototypes and accuracy are compared.

    ONEPASS_DATA=... python benchmarks/art_ipca.py [--json FILE]
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import IncrementalPCA
from threadpoolctl import threadpool_limits

import onepass as op

AXES, VIGILANCE = 200, 0.5


class Published:
    """Algorithm 1; projects every prototype for every row."""

    def __init__(self) -> None:
        self.pca = IncrementalPCA(AXES)
        self.rows: list[Any] = []
        self.labels: list[int] = []
        self.counts: list[int] = []

    def learn(self, X: Any, y: Any) -> None:
        self.pca.partial_fit(X)
        for x, label in zip(X, y.tolist(), strict=True):
            if self.rows:
                near = self._near(x[None])[0]
                best = int(near.argmax())
                if near[best] >= VIGILANCE and self.labels[best] == label:
                    self.counts[best] += 1
                    self.rows[best] = self.rows[best] + (x - self.rows[best]) / self.counts[best]
                    continue
            self.rows.append(x)
            self.labels.append(label)
            self.counts.append(1)

    def predict(self, X: Any) -> Any:
        return np.array(self.labels)[self._near(X).argmax(axis=1)]

    def _near(self, X: Any) -> Any:
        A, B = self.pca.transform(X), self.pca.transform(np.array(self.rows))
        return A @ B.T / np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))


class Ours:
    """op.ARTIPCAClassifier with one PCA update per task."""

    def __init__(self) -> None:
        self.model = op.ARTIPCAClassifier(AXES, VIGILANCE, pca="task", max_prototypes=None)

    def learn(self, X: Any, y: Any) -> None:
        self.model.partial_fit(X, y)

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)

    @property
    def rows(self) -> Any:
        return self.model.prototypes_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    tasks = [
        (one.X.astype(float), one.y, one.X_test.astype(float), one.y_test)
        for one in op.stream.split_mnist(rows_per_class=2000, test_rows_per_class=500)
    ]
    found: dict[str, Any] = {
        "command": "python benchmarks/art_ipca.py",
        "machine": f"{os.cpu_count()} cores, one thread used",
        "rows": sum(len(y) for _, y, _, _ in tasks),
    }
    learned = {}
    with threadpool_limits(1):
        for name, learner in (("onepass", Ours()), ("published code", Published())):
            begin = time.perf_counter()
            for X, y, _, _ in tasks:
                learner.learn(X, y)
            took = time.perf_counter() - begin
            right = [(learner.predict(X) == y).mean() for _, _, X, y in tasks]
            learned[name] = np.array(learner.rows)
            found[name] = {
                "seconds": took,
                "prototypes": len(learned[name]),
                "accuracy, %": 100.0 * float(np.mean(right)),
            }
    one, two = learned.values()
    same = one.shape == two.shape and bool(np.allclose(one, two, atol=1e-8))
    found["the same prototypes"] = same
    found["times quicker"] = found["published code"]["seconds"] / found["onepass"]["seconds"]
    print(json.dumps(found, indent=1))
    if given.json:
        from cells import write  # noqa: PLC0415  in this folder

        write(given.json, found)


if __name__ == "__main__":
    main()
