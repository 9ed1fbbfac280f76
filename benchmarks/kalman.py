"""Kalman regression: equality with and time of other filters, and real streams.

The peers are filterpy's KalmanFilter and a square-root filter by QR in NumPy (tests/oracles.py).
All learn the same rows with the same noises. The difference is the largest one between the weights
after the last row, relative to the largest weight. The time is CPU time per row on one thread, the
lowest of three runs; onepass learns a block of rows, and single rows by ``learn_one``.
On the streams, all models get one pass of the same encoded columns; the filter scales them first.
The best factor and process noise are the best of eight on all rows, in hindsight.

    python benchmarks/kalman.py [--rows 2000]      # needs filterpy and river
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cells import versions, write
from filterpy.kalman import KalmanFilter
from sklearn.base import clone
from streams import features
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

import onepass as op
from onepass.forgetting.auto import FACTORS
from onepass.learners.kalman import PROCESS_NOISES

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles import kalman_square_root

NOISE, PRIOR = 0.25, 10.0
STREAMS: dict[str, tuple[str, tuple[int, ...]]] = {
    "elec2": ("elec2", ()),
    "elec2 and its last label": ("elec2", (1,)),
    "vic-elec": ("vic-elec", ()),
    "vic-elec and its past": ("vic-elec", (1, 48, 336)),
    "bikeshare": ("bikeshare", ()),
    "bikeshare and its past": ("bikeshare", (1, 24)),
    "panda": ("panda", ()),
    "ur10": ("ur10", ()),
}


def peer(X: Any, y: Any, F: Any, Q: Any) -> Any:
    """The weights of filterpy's filter."""
    p = X.shape[1]
    kf = KalmanFilter(dim_x=p, dim_z=1)
    kf.x, kf.P, kf.F, kf.Q, kf.R = np.zeros((p, 1)), PRIOR * np.eye(p), F, Q, NOISE * np.eye(1)
    for x, target in zip(X, y, strict=True):
        kf.predict()
        kf.update(target, H=x[None])
    return kf.x[:, 0]


def learner(F: Any, Q: Any) -> op.KalmanRegressor:
    walk = not (F - np.eye(len(F))).any()
    return op.KalmanRegressor(
        float(Q[0, 0]), NOISE, PRIOR, transition=None if walk else F, fit_intercept=False
    )


def single_rows(X: Any, y: Any, F: Any, Q: Any) -> Any:
    model = learner(F, Q)
    for x, target in zip(X, y, strict=True):
        model.learn_one(x, target)
    return model.coef_


WAYS: dict[str, Callable[..., Any]] = {
    "onepass, blocks": lambda X, y, F, Q: learner(F, Q).partial_fit(X, y).coef_,
    "onepass, single rows": single_rows,
    "filterpy KalmanFilter": peer,
    "square-root filter, NumPy": lambda X, y, F, Q: kalman_square_root(
        X, y, F, Q, NOISE, PRIOR * np.eye(len(F)), np.zeros(len(F))
    )[0],
}


def filters(n: int) -> list[dict[str, Any]]:
    """Compare the filters for several numbers of weights and kinds of movement."""
    found = []
    for p in (4, 16, 64):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, p))
        y = (X * np.cumsum(0.1 * rng.normal(size=(n, p)), axis=0)).sum(axis=1) + rng.normal(size=n)
        turn = 0.99 * np.linalg.qr(rng.normal(size=(p, p)))[0]
        for kind, F, q in (
            ("none", np.eye(p), 0.0),
            ("random walk", np.eye(p), 0.01),
            ("transition", turn, 0.01),
        ):
            seconds, weights = dict.fromkeys(WAYS, np.inf), {}
            for _ in range(3):
                for way, learn in WAYS.items():
                    begin = time.process_time()
                    weights[way] = learn(X, y, F, q * np.eye(p))
                    seconds[way] = min(seconds[way], time.process_time() - begin)
            ours, size = weights["onepass, blocks"], abs(weights["onepass, blocks"]).max()
            found.append(
                {
                    "weights": p,
                    "movement": kind,
                    "microseconds": {way: each / n * 1e6 for way, each in seconds.items()},
                    "difference": {
                        w: float(abs(each - ours).max() / size) for w, each in weights.items()
                    },
                }
            )
    return found


def rls(**settings: Any) -> Any:
    return op.RLSRegressor(prior=1.0, **settings)


def filtered(**settings: Any) -> Any:
    return op.Pipeline(op.features.Scale(), op.KalmanRegressor(**settings))


MODELS: dict[str, list[Any]] = {
    "RLS": [rls()],
    "RLS, 0.99": [rls(forgetting=0.99)],
    "RLS, best factor": [rls(forgetting=factor) for factor in FACTORS],
    "RLS, auto": [rls(forgetting="auto")],
    "RLS, window 100": [rls(forgetting="window:100")],
    "RLS, window 1000": [rls(forgetting="window:1000")],
    "Kalman, best noise": [filtered(process_noise=q) for q in PROCESS_NOISES],
    "Kalman, auto": [filtered()],
}


def stream(name: str, rows: int | None) -> Mapping[str, Any]:
    """Evaluate all models on a stream; the score is that of the best candidate of each."""
    X, y, task = features(*STREAMS[name])
    X, y = X[:rows], y[:rows].astype(np.float64)
    scores, seconds = {}, {}
    for model, candidates in MODELS.items():
        each = []
        for one in map(clone, candidates):
            begin = time.process_time()
            parts = [
                one.test_then_train(X[i : i + 256], y[i : i + 256]) for i in range(0, len(X), 256)
            ]
            seconds[model] = (time.process_time() - begin) / len(X) * 1e6
            predictions = np.concatenate(parts)
            if task == "classification":
                each.append(float(np.mean((predictions > 0.5) == (y > 0.5))))
            else:
                each.append(float(np.mean(np.abs(predictions - y))))
        scores[model] = max(each) if task == "classification" else min(each)
    metric = "accuracy" if task == "classification" else "mae"
    return {
        "rows": len(X),
        "features": X.shape[1],
        "metric": metric,
        "scores": scores,
        "microseconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="max number of rows; nothing is written")
    arguments = parser.parse_args()
    with threadpool_limits(1), np.errstate(all="ignore"):
        found = {
            "command": "python benchmarks/kalman.py",
            **versions(("filterpy", "numpy", "scipy")),
            "filters": filters(min(arguments.rows or 2000, 2000)),
            "streams": {name: stream(name, arguments.rows) for name in STREAMS},
        }
    if arguments.rows is None:
        write(RESULTS / "kalman.json", found)
    print(markdown("kalman_filters", found), markdown("kalman_streams", found), sep="\n\n")


if __name__ == "__main__":
    main()
