"""Probabilities of the default mixture, and coverage of its conformal intervals.

On the classification streams of forest_streams.py (seed 0): log loss and expected calibration error
(ECE, 15 bins) of the mixture and of its members, before each row is learned, from row 1,000 on, and
of gradient boosting refitted on all rows so far every 1,000 rows. On regression streams: the
coverage of ``op.Conformal(mixture, 0.1)``.

    python benchmarks/mixture_probabilities.py
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from cells import write
from forest_streams import STREAMS
from sklearn.ensemble import HistGradientBoostingClassifier
from tables import RESULTS
from threadpoolctl import threadpool_limits

import onepass as op

FIRST, BINS, CLASSES = 1_000, 15, 20


def measures(P: Any, y: Any) -> dict[str, float]:
    """Log loss and ECE of probabilities (n, c) of labels (n,)."""
    P, y = np.nan_to_num(P)[FIRST:], y[FIRST:]
    top, right = P.max(axis=1), P.argmax(axis=1) == y
    at = np.minimum((top * BINS).astype(int), BINS - 1)
    bins = [at == b for b in range(BINS) if (at == b).any()]
    losses = -np.log(np.clip(P[np.arange(len(y)), y], 1e-6, 1.0))
    ece = sum(abs(top[b].mean() - right[b].mean()) * b.mean() for b in bins)
    return {"log loss": float(losses.mean()), "ECE": float(ece)}


def boosted(X: Any, y: Any) -> Any:
    """Probabilities of gradient boosting, refitted every 1,000 rows on all rows before."""
    P = np.full((len(y), y.max() + 1), 1e-6)
    for a in range(FIRST, len(y), FIRST):
        model = HistGradientBoostingClassifier(early_stopping=False, max_iter=50)
        rows = slice(a, a + FIRST)
        P[rows, np.unique(y[:a])] = model.fit(X[:a], y[:a]).predict_proba(X[rows])
    return P


def main() -> None:
    classes, intervals = {}, {}
    for name, stream in STREAMS.items():
        try:
            X, y = stream.make(0)
        except op.errors.SourceError:
            continue
        Z = op.features.Impute().learn_transform(op.features.Encode().learn_transform(X))
        if len(np.unique(y)) > CLASSES:
            model = op.Conformal(op.models.pipelines(["mixture"], "regression")["mixture"], 0.1)
            intervals[name] = float(model.partial_fit(Z, y).coverage_)
            print(name, f"coverage {intervals[name]:.3f}", flush=True)
            continue
        if len(y) < 2 * FIRST:
            continue
        y = np.unique(y, return_inverse=True)[1]
        models = op.models.pipelines(["mixture", "rls", "forest"], "classification")
        classes[name] = {
            each: measures(model.test_then_train(Z, y, return_proba=True)[1], y)
            for each, model in models.items()
        } | {"boosting": measures(boosted(Z, y), y)}
        print(name, classes[name], flush=True)
    command = "python benchmarks/mixture_probabilities.py"
    write(
        RESULTS / "mixture_probabilities.json",
        {"command": command, "classes": classes, "intervals": intervals},
    )


if __name__ == "__main__":
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        main()
