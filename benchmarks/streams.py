"""Prequential evaluation on real streams: onepass and River's models, in one pass.

All models get the same features, one pass of ``Encode`` and ``Impute`` over the columns of the data
set (and, for two of the sets, lagged targets). Models that need scaled features use the scaler of
their library. Each model runs with its defaults, and again with the best of four settings (two for
the perceptron) on the first 4,000 rows. The best fixed factor is the best of eight on all rows, in
hindsight. The time is CPU time in the model with its defaults, on one
thread. Data sets are loaded by ``op.stream.dataset``.

    make peers    or    python benchmarks/streams.py [--rows 2000] [--data elec2] [--models onepass]
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from cells import write
from numpy.typing import NDArray
from stream_models import HINDSIGHT, MODELS, Kind, Setting, worded
from tables import RESULTS, markdown
from threadpoolctl import threadpool_limits

import onepass as op

Floats = NDArray[np.float64]
TUNING = 4_000
METRIC = {"regression": "mae", "classification": "accuracy"}
ALSO = {"regression": "r2", "classification": "macro_f1"}
SETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "elec2": ("elec2", ()),
    "elec2 and its last label": ("elec2", (1,)),
    "vic-elec": ("vic-elec", ()),
    "vic-elec and its past": ("vic-elec", (1, 48, 336)),
    "bikeshare": ("bikeshare", ()),
    "occupancy": ("occupancy", ()),
    "panda": ("panda", ()),
}
HINDSIGHT_ROW = "onepass RLS, best fixed factor"
LIBRARIES = ("river", "numpy", "scipy")


def features(name: str, lags: tuple[int, ...]) -> tuple[Floats, Any, str]:
    """Return the features of all rows, as known at their times, the targets, and the task.

    For each lag, the target that many rows earlier is a further feature; 0 at the start.
    """
    stream = op.stream.dataset(name)
    encode, impute, parts, targets = op.features.Encode(), op.features.Impute(), [], []
    for rows in stream:
        parts.append(impute.learn_transform(encode.learn_transform(rows.X)))
        targets.append(rows.y)
    width = max(part.shape[1] for part in parts)
    X = np.vstack([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])
    y = np.concatenate(targets)
    past = [np.r_[np.zeros(lag), y[:-lag].astype(float)] for lag in lags]
    task = stream.task or ("regression" if y.dtype.kind == "f" else "classification")
    return np.column_stack([X, *past]), y.astype(int) if task == "classification" else y, task


def run(models: Mapping[str, Any], X: Floats, y: Any, task: str, *, least: bool) -> Any:
    """Evaluate all models in one pass."""
    metrics = [METRIC[task], ALSO[task]]
    return op.evaluate.prequential(
        dict(models), (X, y), metrics, baselines=least, clock=time.process_time
    )


def best_of(kind: Kind, X: Floats, y: Any, task: str) -> tuple[Setting, Any]:
    """Return the best of a model's settings on these rows, and its score."""
    trial = {worded(one): kind.make(one, y) for one in kind.settings}
    scores = run(trial, X, y, task, least=False).scores
    pick = max if task == "classification" else min
    best = pick(scores, key=lambda word: scores[word].overall[METRIC[task]])
    return next(one for one in kind.settings if worded(one) == best), scores[best]


def compare(name: str, rows: int | None, prefix: str) -> dict[str, Any]:
    """Evaluate the models with this prefix on one data set, with defaults and tuned."""
    source, lags = SETS[name]
    X, y, task = features(source, lags)
    X, y = X[:rows], y[:rows]
    kinds = {
        model: kind
        for model, kind in MODELS[task].items()
        if (kind.several or y.ndim == 1) and model.startswith(prefix)
    }
    picks = {m: best_of(kind, X[:TUNING], y[:TUNING], task)[0] for m, kind in kinds.items()}
    defaults = {model: kind.make(kind.settings[0], y) for model, kind in kinds.items()}
    plain = run(defaults, X, y, task, least=True)
    other = {
        model: kind.make(picks[model], y)
        for model, kind in kinds.items()
        if picks[model] != kind.settings[0]
    }
    tuned = run(other, X, y, task, least=False).scores if other else {}
    main, also = METRIC[task], ALSO[task]
    picks[HINDSIGHT_ROW], hindsight = best_of(HINDSIGHT[task], X, y, task)
    scores = dict(plain.scores)
    baselines = {model: scores.pop(model) for model in plain.scores if scores[model].baseline}
    scores |= {HINDSIGHT_ROW: hindsight, **baselines}
    return {
        "task": task,
        "rows": len(X),
        "features": X.shape[1],
        "outputs": 1 if y.ndim == 1 else y.shape[1],
        "metric": main,
        "models": {
            model: {
                "baseline": score.baseline,
                "defaults": score.overall[main],
                also: score.overall[also],
                "tuned": tuned.get(model, score).overall[main],
                "setting": worded(picks.get(model, {})),
                "microseconds": score.seconds / len(X) * 1e6,
            }
            for model, score in scores.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="max number of rows per data set")
    parser.add_argument(
        "--data", default=",".join(SETS), help="data sets to run; other results are kept"
    )
    parser.add_argument(
        "--json", type=Path, help="result file; by default results/streams.json for whole sets"
    )
    parser.add_argument(
        "--models", default="", help="prefix of the models to run; results of others are kept"
    )
    arguments = parser.parse_args()
    path = arguments.json or (None if arguments.rows else RESULTS / "streams.json")
    wanted = arguments.data.split(",")
    if unknown := [name for name in wanted if name not in SETS]:
        parser.error(f"--data must be of {', '.join(SETS)}; got {', '.join(unknown)}")
    known = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in wanted:
            try:
                known[name] = compare(name, arguments.rows, arguments.models)
            except op.errors.SourceError as missing:
                print(f"{name} is skipped: {missing}")
    if path is not None and path.exists() and (arguments.models or set(wanted) != set(SETS)):
        before = json.loads(path.read_text(encoding="utf-8"))["sets"]
        for name, each in known.items() if arguments.models else ():
            models = before.get(name, each)["models"] | each["models"]
            order = [*MODELS[each["task"]], HINDSIGHT_ROW, *models]
            each["models"] = {model: models[model] for model in sorted(models, key=order.index)}
        known = before | known
    found = {
        "command": "python benchmarks/streams.py",
        "machine": f"{platform.machine()}, one thread, Python {platform.python_version()}",
        "versions": {name: version(name) for name in LIBRARIES},
        "sets": {name: known[name] for name in SETS if name in known},
    }
    print(markdown("streams", found))
    if path is not None:
        write(path, found)
        path.with_suffix(".md").write_text(markdown("streams", found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
