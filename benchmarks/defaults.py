"""Every public learner with its defaults, on five real streams, compared with a trivial baseline.

Learners of features learn behind ``Encode``, ``Impute`` and ``Scale``; networks of one hidden layer
of 10 units learn the features transformed in this way; baselines that learn at the end of a task
are left out. The trivial baseline is the majority class,
or the running mean. Writes results/defaults.json, in some minutes:

    python benchmarks/defaults.py
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import real_tables
import torch
from tables import RESULTS, markdown

import onepass as op
from onepass.models import learner_class, names, pipelines
from onepass_experiments import baselines

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 1_000  # first rows of longer streams
BATCH = 32  # rows of a step of a baseline
STREAMS = ("digits", "bikeshare", "vic-elec", "ur10", "elec2")
NETWORKS = ("ORFit", "OneStepSGD", "EKF", "NTKRLS", "LoFi", "OGD")
BASELINES = ("SGD", "EWC", "SI", "LwF", "Replay", "AGEM", "DERPP")


def stream(name: str) -> tuple[Any, Any, bool]:
    """Return features as a table, targets, and whether the targets are classes."""
    table = real_tables.TABLES[name]
    frame = table.load().iloc[:ROWS]
    y = frame.pop(table.target)
    classes = name in {"digits", "elec2"}
    return frame, y.to_numpy(), classes


def transformed(frame: Any) -> Any:
    """Return the rows as the learners of a pipeline receive them."""
    model = pipelines(["sgd"], "regression")["sgd"]
    rows = np.zeros(0)
    features, learned = model.features, []
    for transformer in features:
        rows = transformer.learn_transform(frame if not learned else rows)
        learned.append(transformer)
    return rows.astype(np.float32)


def feature_learners(*, classes: bool) -> dict[str, Callable[[], Any]]:
    """Return the learners of features for a task."""
    task = "classification" if classes else "regression"
    return {
        learner_class(name, task).__name__: lambda name=name: op.Pipeline(
            op.features.Encode(), op.features.Impute(), op.features.Scale(),
            learner_class(name, task)(),
        )
        for name in names(task)
    }  # fmt: skip


def network(kind: Any, d: int, c: int, *, classes: bool) -> Any:
    """Return a network of one hidden layer, learned by ``kind`` with its defaults."""
    torch.manual_seed(0)
    hidden, last = torch.nn.Linear(d, 10), torch.nn.Linear(10, c)
    own = kind.__module__.startswith("onepass.")
    loss = "squared" if not classes else "one_hot" if own else "cross_entropy"
    return kind(torch.nn.Sequential(hidden, torch.nn.ReLU(), last), loss=loss)


def predictions(model: Any, X: Any, y: Any) -> Any:
    """Predict each row, or each batch of a baseline, before it is learned."""
    if hasattr(model, "test_then_train"):
        return np.asarray(model.test_then_train(X, y))
    found = []
    for i in range(0, len(X), BATCH):
        x, targets = X[i : i + BATCH], y[i : i + BATCH]
        found.append(np.asarray(model.predict(x)))
        model.learn(x, targets)
    return np.concatenate(found)


def relative(found: Any, y: Any, *, classes: bool) -> float:
    """Return the error divided by that of the trivial baseline."""
    trivial = op.evaluate.Majority() if classes else op.evaluate.RunningMean()
    reference = trivial.test_then_train(np.zeros((len(y), 1)), y)
    if classes:
        return float(np.mean(found != y) / np.mean(reference != y))
    spread = np.sqrt(np.mean((reference[1:] - y[1:]) ** 2))
    return float(np.sqrt(np.mean((found.ravel()[1:] - y[1:]) ** 2)) / spread)


def measured(run: Callable[[], Any], y: Any, *, classes: bool) -> dict[str, Any]:
    """Return the relative error of a learner and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            error: float | None = relative(run(), y, classes=classes)
        except op.errors.OnepassError as refused:
            return {"error": None, "warnings": [str(refused)]}
    own = [str(each.message) for each in caught if each.category.__module__ == "onepass.errors"]
    return {"error": error if np.isfinite(error) else None, "warnings": own[:1]}


def main() -> None:
    """Write the results, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--streams", nargs="*", default=STREAMS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sets: dict[str, Any] = {}
    for name in chosen.streams:
        frame, y, classes = stream(name)
        frame, y = (frame.to_numpy(), y.astype(int)) if name == "digits" else (frame, y)
        rows, labels = transformed(frame), y
        c = 1
        if classes:
            labels = np.unique(y, return_inverse=True)[1]
            c = int(labels.max()) + 1
        models: dict[str, Any] = {}
        for learner, make in feature_learners(classes=classes).items():
            models[learner] = lambda make=make, X=frame, y=y: make().test_then_train(X, y)
        for package, listed in ((op.nn, NETWORKS), (baselines, BASELINES)):
            for each in listed:
                if not hasattr(package, each) or (not classes and each == "LwF"):
                    continue
                kind = getattr(package, each)
                models[f"{package.__name__.split('.')[-1]}.{each}"] = (
                    lambda kind=kind, X=rows, t=labels, c=c, classes=classes: predictions(
                        network(kind, X.shape[1], c, classes=classes), X, t
                    )
                )
        sets[name] = {"rows": len(y), "classes": classes, "models": {}}
        for learner, run in models.items():
            if chosen.only and not any(part in learner for part in chosen.only):
                continue
            target = y if not learner.startswith(("nn.", "baselines.")) else labels
            one = sets[name]["models"][learner] = measured(run, target, classes=classes)
            sys.stderr.write(f"{name} {learner} {one['error']} {one['warnings'][:1]}\n")
    if not chosen.only and tuple(chosen.streams) == STREAMS:
        (RESULTS / "defaults.json").write_text(
            json.dumps({"command": "python benchmarks/defaults.py", "sets": sets}, indent=1) + "\n"
        )
        print(markdown("defaults", {"sets": sets}))


if __name__ == "__main__":
    main()
