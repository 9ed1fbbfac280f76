"""Accuracy of class statistics on split tasks, in one pass and without replay.

All rows of Split MNIST and Split Fashion-MNIST as pixels in [0, 1], two classes at a time, each row
seen once, without task labels. The shrinkage of covariances is chosen on the last 10,000 training
images. The printed accuracy is the mean over tasks of models trained on all training rows and
evaluated on test rows. Milliseconds per row depend on the machine. The last column is
scikit-learn's model, fitted to all rows at once. Results on held-out rows are printed to standard
error.

    ONEPASS_DATA=folder python benchmarks/class_statistics.py [mnist] [fashion-mnist]
"""

import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.neighbors import NearestCentroid

import onepass as op

SHARES = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.6)
HELD_OUT = 10_000


def learned(model: Any, tasks: Any) -> tuple[Any, float]:
    """Return the model after all tasks, and milliseconds per row."""
    seconds, rows = 0.0, 0
    for task in tasks:
        X, y = task.X, task.y
        begun = time.perf_counter()
        model.partial_fit(X, y)
        seconds, rows = seconds + time.perf_counter() - begun, rows + len(X)
    return model, 1e3 * seconds / rows


def average(model: Any, tests: Any) -> float:
    """Return the mean accuracy over tasks, in percent."""
    return 100.0 * float(np.mean([np.mean(model.predict(X) == y) for X, y in tests]))


def tests_of(tasks: Any) -> list[tuple[Any, Any]]:
    """Return the test rows of each task."""
    return [(task.X_test, task.y_test) for task in tasks]


def chosen(model: Any, name: str, images: Any) -> float:
    """Return the shrinkage that is best on held-out training rows."""
    X, y = images.train_images, images.train_labels
    held = op.stream.Images(X[:-HELD_OUT], y[:-HELD_OUT], X[-HELD_OUT:], y[-HELD_OUT:])
    tasks = op.stream.split_mnist(held)
    learned(model, tasks)
    tests = tests_of(tasks)
    found = {share: average(model.set_params(**{name: share}), tests) for share in SHARES}
    print(f"{type(model).__name__}, held out:", found, file=sys.stderr)
    return max(found, key=found.__getitem__)


def peer(name: str, share: float, tasks: Any, tests: list[tuple[Any, Any]]) -> float:
    """Evaluate scikit-learn's model on all rows, with the same shrinkage towards I."""
    X = np.concatenate([task.X for task in tasks]).astype(np.float64)
    y = np.concatenate([task.y for task in tasks])
    if name == "NearestClassMean":
        batch: Any = NearestCentroid()
    elif name == "StreamingLDA":
        batch = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=Drawn(share))
    else:
        batch = QuadraticDiscriminantAnalysis(reg_param=share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pixels that never vary
        return average(batch.fit(X, y), tests)


class Drawn:
    """A scikit-learn covariance estimator: (1 − ε) Σ + ε I."""

    def __init__(self, share: float) -> None:
        self.share = share

    def fit(self, X: Any) -> "Drawn":
        """Fit the covariance to rows of one class."""
        Z = X - X.mean(axis=0)
        self.covariance_ = (1.0 - self.share) * (Z.T @ Z) / len(Z) + self.share * np.eye(Z.shape[1])
        return self


def main() -> None:
    """Print one table per data set."""
    for data in sys.argv[1:] or ["mnist", "fashion-mnist"]:
        images = op.stream.images(data)
        tasks = op.stream.split_mnist(images)
        tests = tests_of(tasks)
        print(f"\n{data}: {sum(len(task.y) for task in tasks):,} rows\n")
        print("| learner | accuracy, % | shrinkage | state, KiB | ms per row | scikit-learn, % |")
        print("| --- | --: | --: | --: | --: | --: |")
        for make, name in (
            (op.NearestClassMean, ""),
            (op.StreamingLDA, "shrinkage"),
            (op.StreamingQDA, "reg_param"),
        ):
            share = chosen(make(), name, images) if name else 0.0
            model, took = learned(make(**({name: share} if name else {})), tasks)
            kibibytes = model.nbytes / 1024
            whole = peer(make.__name__, share, tasks, tests)
            cells = (
                f"{average(model, tests):.2f}",
                f"{share:g}" if name else "",
                f"{kibibytes:,.0f}",
            )
            print(
                "|", " | ".join((f"`{make.__name__}`", *cells, f"{took:.3f}", f"{whole:.2f}")), "|"
            )


if __name__ == "__main__":
    main()
