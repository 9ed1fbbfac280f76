"""The default model on 34 streams, against forests, trees and linear models of River.

Streams are those of River's generators, with and without drift, and tables of packages and of
``op.stream.dataset``. Half of them, those of the smallest CRC-32 of the name, are held out: they
are run once, after the last change of the model. All models predict each row and then learn it,
with their defaults; the adaptive random forest (ARF) also behind a StandardScaler, and the better
of the two counts. Errors are means over three seeds, of the stream where it is generated or
shuffled, and of the models. The time is CPU time of one thread.

    python benchmarks/forest_streams.py [--held-out] [--streams 'sea;friedman']
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import river.datasets
import sklearn.datasets
from cells import versions, write
from river import compose, forest, preprocessing, tree
from river.datasets import synth
from stream_models import linear, logistic
from tables import RESULTS
from threadpoolctl import threadpool_limits

import onepass as op
from onepass.integrations.river import adopt

ROWS, SEEDS = 5_000, (0, 1, 2)
_CLASSES = 20  # more distinct values are those of a regression
Made = tuple[pd.DataFrame, Any]


@dataclass(frozen=True)
class Stream:
    """A stream; ``make(seed)`` returns its rows and targets."""

    name: str
    make: Callable[[int], Made]

    @property
    def held_out(self) -> bool:
        return self.name in _HELD_OUT


def _rows(pairs: Any) -> Made:
    found = list(islice(pairs, ROWS))
    return pd.DataFrame([x for x, _ in found]), np.array([y for _, y in found])


def _generated(name: str, build: Callable[[int], Any]) -> Stream:
    return Stream(name, lambda seed: _rows(iter(build(seed))))


def _changing(name: str, before: Callable[[int], Any], after: Callable[[int], Any]) -> Stream:
    """A stream that changes in the middle, over about 100 rows."""

    def build(seed: int) -> Any:
        return synth.ConceptDriftStream(before(seed), after(seed), ROWS // 2, 100, seed)

    return _generated(name, build)


def _river(name: str, kind: str) -> Stream:
    def make(seed: int) -> Made:
        X, y = _rows(iter(getattr(river.datasets, kind)()))
        at = np.random.default_rng(seed).permutation(len(y))
        return X.iloc[at].reset_index(drop=True), y[at]

    return Stream(name, make)


def _sklearn(name: str) -> Stream:
    def make(seed: int) -> Made:
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, as_frame=True)
        at = np.random.default_rng(seed).permutation(len(y))
        return X.iloc[at].reset_index(drop=True), y.to_numpy()[at]

    return Stream(name, make)


def _named(name: str, *, output: int | None = None, shuffled: bool = False) -> Stream:
    """The first rows of a data set of onepass; of several outputs, one."""

    def make(seed: int) -> Made:
        parts, targets = [], []
        for rows in op.stream.dataset(name):
            parts.append(pd.DataFrame(dict(rows.X.columns)))
            targets.append(rows.y if output is None else rows.y[:, output])
            if not shuffled and sum(map(len, parts)) >= ROWS:
                break
        X, y = pd.concat(parts, ignore_index=True), np.concatenate(targets)
        at = np.random.default_rng(seed).permutation(len(y)) if shuffled else np.arange(len(y))
        return X.iloc[at[:ROWS]].reset_index(drop=True), y[at[:ROWS]]

    return Stream(name, make)


def _regions(seed: int) -> Iterator[tuple[dict[str, float], float]]:
    """Two linear functions, by the sign of the first feature."""
    rng = np.random.default_rng(seed)
    while True:
        x = rng.uniform(-1.0, 1.0, size=5)
        slope = [3.0, -2.0, 1.0, 0.5, 0.0] if x[0] > 0 else [-1.0, 2.0, 0.0, -0.5, 3.0]
        row = {f"x{j}": float(v) for j, v in enumerate(x)}
        yield row, float(x @ slope + 0.1 * rng.normal())


STREAMS = {
    stream.name: stream
    for stream in (
        _generated("agrawal", lambda s: synth.Agrawal(2, seed=s, perturbation=0.05)),
        _changing("agrawal, sudden", lambda s: synth.Agrawal(0, seed=s),
                  lambda s: synth.Agrawal(4, seed=s)),
        _generated("hyperplane", lambda s: synth.Hyperplane(s, 10, 5, 0.01)),
        _generated("led", lambda s: synth.LED(s, 0.1, irrelevant_features=True)),
        _generated("led, drift", lambda s: synth.LEDDrift(s, 0.1, n_drift_features=4)),
        _generated("mixed", lambda s: synth.Mixed(seed=s)),
        _changing("mixed, drift", lambda s: synth.Mixed(0, seed=s),
                  lambda s: synth.Mixed(1, seed=s)),
        _generated("rbf", lambda s: synth.RandomRBF(s, s, 4, 10, 20)),
        _generated("rbf, drift", lambda s: synth.RandomRBFDrift(s, s, 4, 10, 20, 0.001, 20)),
        _generated("random tree", lambda s: synth.RandomTree(s, s, 3)),
        _generated("sea", lambda s: synth.SEA(0, 0.1, s)),
        _changing("sea, sudden", lambda s: synth.SEA(0, 0.1, s), lambda s: synth.SEA(2, 0.1, s)),
        _generated("sine", lambda s: synth.Sine(2, seed=s)),
        _changing("stagger, sudden", lambda s: synth.STAGGER(0, s),
                  lambda s: synth.STAGGER(2, s)),
        _generated("waveform", lambda s: synth.Waveform(s, has_noise=True)),
        _generated("friedman", synth.Friedman),
        _generated("friedman, drift", lambda s: synth.FriedmanDrift("gra", (2000, 3500), 500, s)),
        _generated("friedman, sudden", lambda s: synth.FriedmanDrift("gsg", (1500, 3000), 1, s)),
        _generated("mv", synth.Mv),
        _generated("planes", synth.Planes2D),
        _generated("regions", _regions),
        _river("bananas", "Bananas"),
        _river("phishing", "Phishing"),
        _river("image segments", "ImageSegments"),
        _sklearn("digits"),
        _sklearn("breast_cancer"),
        _sklearn("diabetes"),
        _named("elec2"),
        _named("occupancy"),
        _named("bikeshare"),
        _named("vic-elec"),
        _named("ur10", output=1),
        _named("kin40k", shuffled=True),
        _named("elevators", shuffled=True),
    )
}  # fmt: skip
_HELD_OUT = frozenset(sorted(STREAMS, key=lambda name: crc32(name.encode()))[: len(STREAMS) // 2])

ARF = "River ARF"


def _models(task: str, seed: int) -> dict[str, Any]:
    """New models, by name; two of the adaptive random forest."""
    scaler = preprocessing.StandardScaler
    if task == "regression":
        arf, hat, amf = (
            forest.ARFRegressor, tree.HoeffdingAdaptiveTreeRegressor, forest.AMFRegressor,
        )  # fmt: skip
        first = linear()
    else:
        arf, hat, amf = (
            forest.ARFClassifier, tree.HoeffdingAdaptiveTreeClassifier, forest.AMFClassifier,
        )  # fmt: skip
        first = logistic()
    scaled = compose.Pipeline(scaler(), arf(seed=seed))
    presets = op.models.pipelines(
        ["mixture", "rls", "forest"], task,
        {"forest__seed": seed},
    )  # fmt: skip
    return {
        **presets,
        ARF: adopt(arf(seed=seed)),
        f"{ARF}, scaled": adopt(scaled),
        "River HAT": adopt(hat(seed=seed)),
        "River AMF": adopt(amf(seed=seed)),
        "River linear": first,
    }


def measure(stream: Stream, only: str) -> dict[str, Any]:
    """The mean error and time of each model on a stream."""
    errors: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    task, n, d = "", 0, 0
    for seed in SEEDS:
        X, y = stream.make(seed)
        task = "regression" if len(np.unique(y)) > _CLASSES else "classification"
        codes = y if task == "regression" else np.unique(y, return_inverse=True)[1]
        Z = op.features.Impute().learn_transform(op.features.Encode().learn_transform(X))
        n, d = Z.shape
        metric = "mae" if task == "regression" else "accuracy"
        chosen = {k: m for k, m in _models(task, seed).items() if k.startswith(only)}
        report = op.evaluate.prequential(
            chosen, (Z, codes), [metric], baselines=True, clock=time.process_time
        )
        for name, score in report.scores.items():
            value = score.overall[metric]
            errors.setdefault(name, []).append(value if metric == "mae" else 100 * (1.0 - value))
            times.setdefault(name, []).append(1e6 * score.seconds / n)
    return {
        "task": task,
        "rows": n,
        "features": d,
        "held out": stream.held_out,
        "errors": {name: float(np.mean(values)) for name, values in errors.items()},
        "microseconds": {name: float(np.mean(values)) for name, values in times.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held-out", action="store_true", help="also run the held-out streams")
    parser.add_argument("--streams", help="names of streams to run, separated by semicolons")
    parser.add_argument("--models", default="", help="prefix of the models to run; keep others")
    arguments = parser.parse_args()
    path = RESULTS / "forest_streams.json"
    found = json.loads(path.read_text(encoding="utf-8"))["streams"] if path.exists() else {}
    wanted = arguments.streams.split(";") if arguments.streams else list(STREAMS)
    for name in wanted:
        if STREAMS[name].held_out and not arguments.held_out:
            continue
        try:
            one = measure(STREAMS[name], arguments.models)
        except op.errors.SourceError as missing:
            print(f"{name} is skipped: {missing}")
            continue
        before = found.get(name, {"errors": {}, "microseconds": {}})
        for part in ("errors", "microseconds"):
            one[part] = before[part] | one[part]
        found[name] = one
        print(name, one["task"], {k: round(v, 4) for k, v in one["errors"].items()},
              {k: round(v) for k, v in one["microseconds"].items()}, flush=True)  # fmt: skip
        ordered = {name: found[name] for name in STREAMS if name in found}
        command = "python benchmarks/forest_streams.py --held-out"
        write(path, {"command": command, **versions(["river", "numpy"]), "streams": ordered})


if __name__ == "__main__":
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        main()
