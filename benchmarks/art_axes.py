"""ART-IPCA in two levels beside one level at equal memory, and with discriminant axes.

Five tasks of two classes each (digits of scikit-learn, and Split MNIST), one pass, predictions
among all ten classes. Vigilance, the number of axes and the settings of the levels are chosen by
the accuracy on a fifth of the training rows, held out; then all training rows are learned.

*Equal memory*: the learner of one level has as many prototypes as fit into the bytes of the learner
of two levels, axes and all other state included.

    python benchmarks/art_axes.py [--runs 3]

writes docs/results/art-axes.md. MNIST is loaded by ``onepass.stream.images``.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import onepass as op

PAGE = Path(__file__).parents[1] / "docs" / "results" / "art-axes.md"
BLOCK = 128
VIGILANCES = (0.5, 0.65, 0.8)
MNIST_ROWS = 100  # of each class
AXES = {"digits": (10, 20, 40), "MNIST": (20, 50)}
CLUSTERS = {"digits": (2, 4, 8), "MNIST": (2, 6)}

Data = tuple[Any, Any, Any, Any]  # X, y to learn, in order of tasks; X, y to test


def tasks(y: Any, rng: Any) -> Any:
    """Indices of rows in order of tasks, at random within a task."""
    order = rng.permutation(len(y))
    return order[np.argsort(y[order] // 2, kind="stable")]


def data(name: str, run: int) -> Data:
    rng = np.random.default_rng([run, 35])
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        at = rng.permutation(len(y))
        X, y, test = X[at] / 16.0, y[at], np.arange(len(y)) >= 1200
        train = np.flatnonzero(~test)
    else:
        images = op.stream.images("mnist")
        every = images.train_images.reshape(-1, 784) / 255.0
        chosen = [rng.permutation(np.flatnonzero(images.train_labels == c)) for c in range(10)]
        rows = np.concatenate([each[:MNIST_ROWS] for each in chosen])
        tested = np.concatenate([each[-500:] for each in chosen])
        X, y = every[np.r_[rows, tested]], images.train_labels[np.r_[rows, tested]]
        train, test = np.arange(len(rows)), np.arange(len(y)) >= len(rows)
    train = train[tasks(y[train], rng)]
    return X[train], y[train], X[test], y[test]


def chosen(settings: Iterable[Any], make: Callable[[Any], Any], each: Data) -> tuple[Any, Any]:
    """The setting with the highest accuracy on held-out rows, and its learner of all rows."""
    X, y, _, _ = each
    held = np.arange(len(y)) % 5 == 0
    scores = {s: make(s).partial_fit(X[~held], y[~held]).score(X[held], y[held]) for s in settings}
    best = max(scores, key=scores.__getitem__)
    begin = time.perf_counter()
    model = make(best).partial_fit(X, y)
    return model, time.perf_counter() - begin


def line(name: str, found: list[tuple[Any, float, Data]]) -> dict[str, Any]:
    """One line of a table: accuracy of all runs, and means of the rest."""
    scores = [100.0 * model.score(each[2], each[3]) for model, _, each in found]
    models = [model for model, _, _ in found]
    art = hasattr(models[0], "prototypes_")
    compact = [model.compact().nbytes for model in models] if art else [np.nan]
    return {
        "method": name,
        "accuracy, %": f"{np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}",
        "prototypes": f"{np.mean([len(m.prototypes_) for m in models]):,.0f}" if art else "–",
        "kB": f"{np.mean([m.nbytes for m in models]) / 1e3:,.0f}",
        "kB to predict": f"{np.mean(compact) / 1e3:,.0f}" if art else "–",
        "seconds": f"{np.mean([took for _, took, _ in found]):.2f}",
    }


def markdown(lines: list[dict[str, Any]]) -> str:
    head = list(lines[0])
    rows = [" | ".join(str(x) for x in one.values()) for one in lines]
    rules = " | ".join(["---", "---"] + ["---:"] * (len(head) - 2))
    return "\n".join(f"| {row} |" for row in [" | ".join(head), rules, *rows])


def flat_of(limit: int, k: Any, vigilance: float, **params: Any) -> Any:
    return op.ARTIPCAClassifier(k, vigilance, max_prototypes=limit, block=BLOCK, **params)


def fitting(nbytes: int, k: int, d: int) -> int:
    """The number of prototypes of one level, of k axes, that fit into these bytes."""
    X, y = np.random.default_rng(0).normal(size=(300, d)), np.zeros(300, int)
    probe, small = (flat_of(W, k, 1.0).partial_fit(X, y).nbytes for W in (50, 10))
    each = (probe - small) / 40
    return max(10, int((nbytes - probe) / each) + 50)


def levels_table(runs: int) -> str:
    lines = []
    for name, limit in product(AXES, (20, 60)):
        deep, flat = [], []
        for run in range(runs):
            each, ks = data(name, run), AXES[name]

            def two(s: Any, limit: int = limit) -> Any:
                clusters, k, vigilance = s
                return op.ARTIPCAClassifier(
                    k, (0.0, vigilance), levels=2, block=BLOCK,
                    max_prototypes=(clusters, limit * 6 // clusters),
                )  # fmt: skip

            model, took = chosen(product(CLUSTERS[name], ks, VIGILANCES), two, each)
            deep.append((model, took, each))
            fits = {k: fitting(model.nbytes, k, each[0].shape[1]) for k in ks}

            def one(s: Any, fits: Any = fits) -> Any:
                return flat_of(fits[s[0]], *s)

            flat.append((*chosen(product(ks, VIGILANCES), one, each), each))
            flat_bytes = flat[-1][0].nbytes
            if flat_bytes > 1.01 * model.nbytes:
                raise SystemExit(f"one level has {flat_bytes:,} bytes, two {model.nbytes:,}")
        budget = f"{name}, ≤ {np.mean([m.nbytes for m, _, _ in deep]) / 1e3:,.0f} kB"
        lines += [{"data": budget, **line("two levels", deep)}]
        lines += [{"data": budget, **line("one level", flat)}]
        print(lines[-2:], flush=True)
    return markdown(lines)


def axes_table(runs: int) -> str:
    lines = []
    for name in AXES:
        found: dict[str, list[Any]] = {}
        for run in range(runs):
            each = data(name, run)
            ways: dict[str, Callable[[Any], Any]] = {
                "ART, principal axes": lambda v: flat_of(10_000, 0.95, v),
                "ART, principal axes, k = 9": lambda v: flat_of(10_000, 9, v),
            }
            for shrinkage in (0.0, 1e-4, "oas"):
                ways[f"ART, discriminant axes, shrinkage {shrinkage}"] = lambda v, s=shrinkage: (
                    flat_of(10_000, 9, v, projection="lda", shrinkage=s)
                )
            ways["ART, no axes"] = lambda v: flat_of(10_000, 9, v, pca="none")
            for key, make in ways.items():
                found.setdefault(key, []).append((*chosen(VIGILANCES, make, each), each))
            for shrinkage in (1e-4, "oas"):
                made = chosen([shrinkage], lambda s: op.StreamingLDA(shrinkage=s), each)
                key = f"StreamingLDA, shrinkage {shrinkage}"
                found.setdefault(key, []).append((*made, each))
        lines += [{"data": name, **line(key, those)} for key, those in found.items()]
        print(lines[-len(found) :], flush=True)
    return markdown(lines)


TEXT = """# ART-IPCA: levels and discriminant axes

```bash
python benchmarks/art_axes.py
```

The command writes the tables of this page. Five tasks of two classes each, one pass, predictions
among all ten classes; {mnist} training and 500 test rows per class of MNIST, 1,200 and 597 rows of
scikit-learn's digits. Mean ± standard deviation of {runs} runs. Vigilance, the number of axes and
the number of clusters are chosen on held-out training rows.

## Two levels beside one, at equal memory

The learner of one level has as many prototypes as fit into the bytes of the learner of two levels.

{levels}

## Discriminant axes

*ART, discriminant axes*: `ARTIPCAClassifier(9, projection="lda")`.

{axes}

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with threadpool_limits(1), ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(table, given.runs) for table in (axes_table, levels_table)]
        axes, levels = (job.result() for job in jobs)
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    mark = "## What it shows"
    after = mark + old.split(mark, 1)[1] if mark in old else mark + "\n"
    text = TEXT.format(mnist=MNIST_ROWS, runs=given.runs, levels=levels, axes=axes)
    PAGE.write_text(text + after, encoding="utf-8")


if __name__ == "__main__":
    main()
