"""RLS on features that are drawn before data: what one pass reaches, without replay or task ids.

Class-incremental on Split MNIST and Split Fashion-MNIST, two classes at a time: 2000 rows a class
to learn and 500 to test (``split``), or all 60,000 and 10,000 (``whole``). Domain-incremental on
Rotated (15 turns of 5°) and Permuted MNIST (10 orders of pixels), 10,000 rows a task. Every row is
learned once, in blocks of 1000 and in the order of the stream. ``choose`` tries settings on rows
held out of those to learn, by the batch solution that RLS equals; no row to test is looked at.

Each run of a seed is kept as it ends in results/fixed_features.json, and is not run again unless
settings change; the table stands beside it in fixed_features.md. Seconds depend on the machine and
on what else runs.

    ONEPASS_DATA=folder python benchmarks/fixed_features.py choose|split|whole|rotated|permuted
        [--data mnist|fashion-mnist] [--seeds 5] [--width 5000]
    python benchmarks/fixed_features.py table
"""

import argparse
import fcntl
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

import onepass as op
from onepass.features import RandomConvolution, RandomReLU

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "features.md"
BLOCK = 1000
SMOOTH = {"filters": 100, "pool": 5, "padding": 2, "overlap": 0.4, "power": 0.5}
CHOSEN = {
    "mnist": (SMOOTH | {"filters": 156, "pool": 4, "size": 7, "threshold": 0.5}, 0.3),
    "fashion-mnist": (SMOOTH | {"size": 5, "threshold": 0.3, "contrast": 0.02}, 1.0),
}
"""Features and ridge that were best, or within 0.1 of it, on rows held out. Filters are noise."""
TURNED = (SMOOTH | {"size": 7, "threshold": 0.5, "pool": 4}, 0.3)
"""Of Rotated MNIST; where pixels are in another order, nothing is near anything: ReLU units."""
PATCHES = {"filters": 100, "size": 7, "pool": 4, "source": "patches"}
"""Filters of the first task, which depend on the order of classes."""
GRID = [
    {},
    {"overlap": 0.4, "power": 0.5},
    SMOOTH | {"size": 5, "threshold": 0.3, "contrast": 0.02},
    SMOOTH | {"size": 7, "threshold": 0.5},
    SMOOTH | {"size": 7, "threshold": 0.5, "filters": 156, "pool": 4},
    SMOOTH | {"size": 5, "threshold": 0.3, "contrast": 0.02, "filters": 156, "pool": 4},
    PATCHES,
]
RIDGES = (0.1, 0.3, 1.0, 3.0)


def blocks(X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
    for i in range(0, len(y), BLOCK):
        yield X[i : i + BLOCK], y[i : i + BLOCK]


def run(features: Any, ridge: float, tasks: Any) -> dict[str, Any]:
    """One pass over the tasks, then the accuracy on each."""
    model = op.Pipeline(features, op.RLSClassifier(ridge=ridge))
    rows, seconds, tests = 0, 0.0, []
    for task in tasks:
        begun = time.perf_counter()
        for X, y in blocks(task.X, task.y):
            model.partial_fit(X, y)
            rows += len(y)
        seconds += time.perf_counter() - begun
        tests.append((task.X_test, task.y_test))
    accuracy = [
        100.0 * sum(int((model.predict(Z) == z).sum()) for Z, z in blocks(X, y)) / len(y)
        for X, y in tests
    ]
    return {
        "accuracy": round(float(np.mean(accuracy)), 3),
        "of tasks": [round(each, 2) for each in accuracy],
        "rows": rows,
        "seconds": round(seconds, 1),
        "bytes": int(model.nbytes),
        "width": int(model.features_[0].n_features_out_),
        "features": repr(features),
        "ridge": ridge,
    }


def learner(what: str, data: str, width: int, seed: int) -> tuple[Any, float]:
    """Features that were chosen, and the ridge."""
    if what == "permuted":
        return RandomReLU(width, standardize="row", bias=1.0, seed=seed), 30.0
    recipe, ridge = TURNED if what == "rotated" else CHOSEN[data]
    return RandomConvolution(**recipe, seed=seed), ridge


def tasks_of(what: str, data: str, seed: int) -> Any:
    images = op.stream.images(data)
    if what in {"split", "whole"}:
        some = {"rows_per_class": 2000, "test_rows_per_class": 500} if what == "split" else {}
        return op.stream.split_mnist(images, seed=seed, **some)
    make = op.stream.rotated_mnist if what == "rotated" else op.stream.permuted_mnist
    n_tasks = 15 if what == "rotated" else 10
    return make(images, n_tasks=n_tasks, rows_per_task=10_000, seed=seed)


def kept(key: str = "", seed: str = "", found: Any = None) -> dict[str, Any]:
    """All results so far; with a key, one more: several may run side by side."""
    path = RESULTS / "fixed_features.json"
    if not key:
        return dict(json.loads(path.read_text())) if path.exists() else {}
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        said: dict[str, Any] = json.loads(file.read() or "{}")
        said.setdefault(key, {})[seed] = found
        file.truncate(0)
        file.write(json.dumps(said, indent=1, sort_keys=True) + "\n")
    return said


def choose(data: str) -> None:
    """Accuracy on 5000 rows held out, after 10,000 others: for each of the features and ridges."""
    images = op.stream.images(data)
    order = np.random.default_rng(0).permutation(len(images.train_labels))
    X = (images.train_images.reshape(len(order), -1) / 255.0).astype(np.float32)
    y = images.train_labels.astype(int)
    learn, held = order[:10_000], order[-5000:]
    learn = learn[np.argsort(y[learn] // 2, kind="stable")]  # patches come from the first task
    for recipe in GRID:
        features = RandomConvolution(**recipe).learn(X[learn[:1000]])
        Z, A = (
            np.concatenate([features.transform(b) for b, _ in blocks(X[at], y[at])])
            for at in (learn, held)
        )
        mean, Y = Z.mean(axis=0), np.eye(10)[y[learn]]
        Z -= mean
        gram, cross = (Z.T @ Z).astype(float), Z.T.astype(float) @ (Y - Y.mean(axis=0))
        for ridge in RIDGES:
            w = scipy.linalg.solve(gram + ridge * np.eye(len(gram)), cross, assume_a="pos")
            said = ((A - mean) @ w + Y.mean(axis=0)).argmax(axis=1)
            right = round(100.0 * float(np.mean(said == y[held])), 2)
            kept(f"choose {data}", f"{features!r}, ridge={ridge}", right)
            print(data, features, ridge, right, flush=True)


def lines() -> list[str]:
    """The Markdown table of all results so far."""
    head = "| stream | data | features | ridge | seeds | accuracy, % | rows/s | MiB kept |"
    said = [head, "|" + " --- |" * 3 + " --: |" * 5]
    for key, runs in sorted(kept().items()):
        if key.startswith("choose"):
            continue
        each = list(runs.values())
        right = [one["accuracy"] for one in each]
        spread = f" ± {np.std(right, ddof=1):.2f}" if len(right) > 1 else ""
        rate = sum(one["rows"] for one in each) / sum(one["seconds"] for one in each)
        what, data, *_ = key.split()
        features = " ".join(each[0]["features"].split())
        cells = [what, data, f"`{features}`", f"{each[0]['ridge']:g}", f"{len(right)}"]
        cells += [f"{np.mean(right):.2f}{spread}", f"{rate:.0f}"]
        cells += [f"{each[0]['bytes'] / 2**20:.0f}"]
        said.append("| " + " | ".join(cells) + " |")
    return said


def page(text: str) -> str:
    """The page with the table as it is now."""
    begin, end = "<!-- python benchmarks/fixed_features.py table -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    return before + begin + "\n" + "\n".join(lines()) + "\n\n" + end + rest.partition(end)[2]


def table() -> None:
    """Print the Markdown table, and write it beside the results and into the page."""
    title = "# RLS on features drawn before data\n\n"
    (RESULTS / "fixed_features.md").write_text(title + "\n".join(lines()) + "\n")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("\n".join(lines()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "what", choices=("choose", "split", "whole", "rotated", "permuted", "table")
    )
    parser.add_argument("--data", choices=tuple(CHOSEN))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--width", type=int, default=5000)
    given = parser.parse_args()
    both = given.what in {"choose", "split", "whole"}
    names = [given.data] if given.data else list(CHOSEN) if both else ["mnist"]
    if given.what == "choose":
        for data in names:
            choose(data)
    elif given.what != "table":
        for data, seed in itertools.product(names, range(given.seeds)):
            key = f"{given.what} {data}"
            key += f" {given.width}" if given.what == "permuted" else ""
            features, ridge = learner(given.what, data, given.width, seed)
            known = kept().get(key, {}).get(str(seed), {})
            if (known.get("features"), known.get("ridge")) != (repr(features), ridge):
                found = run(features, ridge, tasks_of(given.what, data, seed))
                kept(key, str(seed), found)
                print(key, seed, found["accuracy"], found["seconds"], flush=True)
    if given.what != "choose":
        table()


if __name__ == "__main__":
    main()
