"""Choice of the settings of ``RandomConvolution`` on held-out rows.

For each of several recipes and ridges, 10,000 training rows are learned by the batch solution, to
which RLS is equal, and 5,000 other training rows are evaluated; test rows are not used. The results
are in results/fixed_features.json, and the best ridge of each recipe is in the table of
docs/results/features.md. ``onepass reproduce continual`` measures the chosen settings in one pass.

    ONEPASS_DATA=folder python benchmarks/fixed_features.py [mnist] [fashion-mnist]
    python benchmarks/fixed_features.py table
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

import onepass as op
from onepass.features import RandomConvolution
from onepass_experiments.continual_learners import FILTERS

RESULTS = Path(__file__).parent / "results" / "fixed_features.json"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "features.md"
DATA = {"mnist": "MNIST, %", "fashion-mnist": "Fashion-MNIST, %"}
BLOCK = 1000
SMOOTH = {"padding": 2, "overlap": 0.4, "power": 0.5}
CLOTHES, DIGITS = FILTERS["fashion-mnist"][0], FILTERS["mnist"][0]
GRID: list[dict[str, Any]] = [
    {},
    {"size": 7, "source": "patches"},  # patches of the first task depend on the order of classes
    {"overlap": 0.4, "power": 0.5},
    SMOOTH | {"size": 7, "threshold": 0.5, "pool": 5},
    DIGITS,
    CLOTHES,
    CLOTHES | {"filters": 156, "pool": 4},
]
RIDGES = (0.1, 0.3, 1.0, 3.0)


def blocks(X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
    for i in range(0, len(y), BLOCK):
        yield X[i : i + BLOCK], y[i : i + BLOCK]


def load_results() -> dict[str, Any]:
    """Return all results so far: recipe -> data -> ridge -> accuracy in percent."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def save_result(recipe: str, data: str, ridge: float, right: float) -> None:
    results = load_results()
    results.setdefault(recipe, {}).setdefault(data, {})[f"{ridge:g}"] = right
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def named(features: Any) -> str:
    return " ".join(repr(features).split())


def choose(data: str) -> None:
    """Measure the accuracy on 5,000 held-out rows for each recipe and ridge."""
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
            predictions = ((A - mean) @ w + Y.mean(axis=0)).argmax(axis=1)
            right = round(100.0 * float(np.mean(predictions == y[held])), 2)
            save_result(named(features), data, ridge, right)
            print(data, named(features), ridge, right, flush=True)


def lines() -> list[str]:
    """Return the Markdown table: each recipe with its best ridge."""
    table = ["| features | " + " | ".join(DATA.values()) + " |", "| --- |" + " --: |" * len(DATA)]
    known = load_results()
    for recipe in GRID:
        name = named(RandomConvolution(**recipe))
        cells = []
        for data in DATA:
            found = known.get(name, {}).get(data)
            best = max(found, key=found.__getitem__) if found else None
            chosen = FILTERS[data][0] == recipe
            text = "–" if best is None else f"{found[best]:.2f}"
            cells.append(f"**{text}**" if chosen else text)
        table.append(f"| `{name}` | {' | '.join(cells)} |")
    return table


def page(text: str) -> str:
    """Return the page with the current table."""
    begin, end = "<!-- python benchmarks/fixed_features.py -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    return before + begin + "\n" + "\n".join(lines()) + "\n\n" + end + rest.partition(end)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help="mnist, fashion-mnist, or table")
    names = parser.parse_args().names or list(DATA)
    if unknown := set(names) - {*DATA, "table"}:
        parser.error(f"names must be of {', '.join(DATA)}, or table, got {', '.join(unknown)}")
    for name in names:
        if name != "table":
            choose(name)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("\n".join(lines()))


if __name__ == "__main__":
    main()
