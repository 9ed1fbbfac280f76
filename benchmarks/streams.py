"""Real streams, each row said before it is learned: onepass beside River's models, in one pass.

All models get the same features, one pass of ``Encode`` and ``Impute`` over the data set's columns
(and, for two of the sets, the stream's own past); those that need it scale them, each library by
its own scaler. Each model runs as it comes, and again with the best of four settings (two of the
perceptron), the one that says the first 4,000 rows best. The time is that of the processor in the
model alone, as it comes, on one thread. Data sets are found as ``op.stream.dataset`` finds them.

    make peers    or    python benchmarks/streams.py [--rows 2000] [--data elec2,bikeshare]
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
from entrants import MODELS, Kind, Setting, worded
from numpy.typing import NDArray
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
LIBRARIES = ("river", "numpy", "scipy")


def features(name: str, lags: tuple[int, ...]) -> tuple[Floats, Any, str]:
    """The features of all rows as each was seen at its time, the answers, and the task.

    With lags, the answers so many rows before are features too; before there were any, 0.
    """
    stream = op.stream.dataset(name)
    encode, impute, parts, answers = op.features.Encode(), op.features.Impute(), [], []
    for rows in stream:
        parts.append(impute.learn_transform(encode.learn_transform(rows.X)))
        answers.append(rows.y)
    width = max(part.shape[1] for part in parts)
    X = np.vstack([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])
    y = np.concatenate(answers)
    past = [np.r_[np.zeros(lag), y[:-lag].astype(float)] for lag in lags]
    task = stream.task or ("regression" if y.dtype.kind == "f" else "classification")
    return np.column_stack([X, *past]), y.astype(int) if task == "classification" else y, task


def run(models: Mapping[str, Any], X: Floats, y: Any, task: str, *, least: bool) -> Any:
    """One pass of all models."""
    asked = [METRIC[task], ALSO[task]]
    return op.evaluate.prequential(
        dict(models), (X, y), asked, baselines=least, clock=time.process_time
    )


def chosen(kind: Kind, X: Floats, y: Any, task: str) -> Setting:
    """The best of a model's settings on the first rows."""
    trial = {worded(one): kind.make(one, y) for one in kind.settings}
    report = run(trial, X[:TUNING], y[:TUNING], task, least=False)
    values = {word: score.overall[METRIC[task]] for word, score in report.scores.items()}
    pick = max if task == "classification" else min
    best = pick(values, key=lambda word: values[word])
    return next(one for one in kind.settings if worded(one) == best)


def compare(name: str, rows: int | None) -> dict[str, Any]:
    """All models over one data set, as they come and tuned."""
    source, lags = SETS[name]
    X, y, task = features(source, lags)
    X, y = X[:rows], y[:rows]
    kinds = {model: kind for model, kind in MODELS[task].items() if kind.several or y.ndim == 1}
    picks = {model: chosen(kind, X, y, task) for model, kind in kinds.items()}
    comes = {model: kind.make(kind.settings[0], y) for model, kind in kinds.items()}
    plain = run(comes, X, y, task, least=True)
    other = {
        model: kind.make(picks[model], y)
        for model, kind in kinds.items()
        if picks[model] != kind.settings[0]
    }
    tuned = run(other, X, y, task, least=False).scores if other else {}
    main, also = METRIC[task], ALSO[task]
    return {
        "task": task,
        "rows": len(X),
        "features": X.shape[1],
        "outputs": 1 if y.ndim == 1 else y.shape[1],
        "metric": main,
        "models": {
            model: {
                "baseline": score.baseline,
                "as it comes": score.overall[main],
                also: score.overall[also],
                "tuned": tuned.get(model, score).overall[main],
                "setting": worded(picks.get(model, {})),
                "microseconds": score.seconds / len(X) * 1e6,
            }
            for model, score in plain.scores.items()
        },
    }


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--rows", type=int, help="only so many rows of each set")
    ask.add_argument("--data", default=",".join(SETS), help="which sets; the others' figures stay")
    ask.add_argument("--json", type=Path, help="by default results/streams.json, of whole sets")
    asked = ask.parse_args()
    path = asked.json or (None if asked.rows else RESULTS / "streams.json")
    wanted = asked.data.split(",")
    if unknown := [name for name in wanted if name not in SETS]:
        ask.error(f"--data must be of {', '.join(SETS)}; got {', '.join(unknown)}")
    known = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in wanted:
            try:
                known[name] = compare(name, asked.rows)
            except op.errors.SourceError as missing:
                print(f"{name} is left out: {missing}")
    if set(wanted) != set(SETS) and path is not None and path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))["sets"] | known
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
