"""Networks of one hidden layer, learned in one pass by several methods.

Each row is predicted before it is learned, one row a step. All networks of a stream have the same
300 hidden ReLU units and the same initial weights; those "with inputs" have the columns beside the
hidden units. Targets are standardized by the first 200 rows, which are not evaluated. SGD and Adam
have the best of five step sizes in hindsight, chosen by the mean over seeds. Prints the root
mean squared error relative to the standard deviation of the targets, or the error rate in percent,
as the mean over seeds, and the CPU time per row with one thread.

    ONEPASS_DATA=folder python benchmarks/network_table.py [--json FILE] [--streams ur10 …]
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import defaults
import numpy as np
import real_tables
import torch
from cells import table, three, versions, write

import onepass as op

ROWS, FIRST, WIDTH, SEEDS = 3_000, 200, 300, (0, 1, 2)
STREAMS = ("ur10", "panda", "bikeshare", "digits", "mnist")
STEPS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
WEIGHTS = 8_000  # the filter with the full covariance is measured up to this number


class Beside(torch.nn.Module):
    """A hidden layer, and the inputs beside it."""

    def __init__(self, d: int, c: int) -> None:
        super().__init__()
        self.hidden, self.last = torch.nn.Linear(d, WIDTH), torch.nn.Linear(WIDTH + d, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.hidden(x).relu(), x], dim=1))


def stream(name: str) -> tuple[Any, Any, bool]:
    """Return rows (n, d), standardized targets or labels, and whether they are classes."""
    if name == "mnist":
        images = op.stream.images("mnist")
        X = images.train_images[:ROWS].reshape(ROWS, -1).astype(np.float32) / 255.0
        return X, images.train_labels[:ROWS].astype(int), True
    chosen = real_tables.TABLES[name]
    frame = chosen.load().iloc[:ROWS]
    y = frame.pop(chosen.target).to_numpy()
    X = defaults.transformed(frame)
    if name == "digits":
        return X, y.astype(int), True
    return X, ((y - y[:FIRST].mean()) / y[:FIRST].std()).astype(np.float32), False


def plain(d: int, c: int) -> torch.nn.Module:
    hidden, last = torch.nn.Linear(d, WIDTH), torch.nn.Linear(WIDTH, c)
    return torch.nn.Sequential(hidden, torch.nn.ReLU(), last)


def descent(optimizer: Any, step: float) -> Callable[..., Any]:
    """Return a loop of PyTorch over single rows."""

    def run(X: Any, y: Any, c: int, *, classes: bool) -> Any:
        module = plain(X.shape[1], c)
        loss = torch.nn.CrossEntropyLoss() if classes else torch.nn.MSELoss()
        steps, found = optimizer(module.parameters(), lr=step), []
        for x, target in zip(torch.as_tensor(X), torch.as_tensor(y), strict=True):
            out = module(x[None])
            found.append(int(out.argmax()) if classes else float(out))
            steps.zero_grad()
            loss(out if classes else out[0], target[None]).backward()
            steps.step()
        return np.array(found)

    return run


def network(kind: Any, body: Any = plain, **settings: Any) -> Callable[..., Any]:
    """Return a run of a network of this package."""

    def run(X: Any, y: Any, c: int, *, classes: bool) -> Any:
        module = body(X.shape[1], c)
        net = kind(module, loss="one_hot" if classes else "squared", **settings)
        found = [net.test_then_train(X[i : i + 1], y[i : i + 1]) for i in range(len(y))]
        return np.concatenate([np.asarray(each) for each in found])

    return run


def squares(width: int = 0) -> Callable[..., Any]:
    """Return a run of recursive least squares, on random features if there is a width."""

    def run(X: Any, y: Any, c: int, *, classes: bool) -> Any:
        del c
        learner = op.RLSClassifier() if classes else op.RLSRegressor()
        features = [op.features.RandomReLU(width, seed=torch.initial_seed())] if width else []
        return np.asarray(op.Pipeline(*features, learner).test_then_train(X, y))

    return run


METHODS: dict[str, dict[str, Callable[..., Any]]] = {
    "ORFit, last layer": {"": network(op.nn.ORFit, learns="last")},
    "ORFit, last layer, with inputs": {"": network(op.nn.ORFit, Beside, learns="last")},
    "ORFit, all layers": {"": network(op.nn.ORFit)},
    "EKF": {"": network(op.nn.EKF, noise=1.0)},
    "LoFi": {"": network(op.nn.LoFi, noise=1.0)},
    "OGD": {"": network(op.nn.OGD)},
    "Adam": {f"{step:g}": descent(torch.optim.Adam, step) for step in STEPS},
    "SGD": {f"{step:g}": descent(torch.optim.SGD, step) for step in STEPS},
    "300 random features and RLS": {"": squares(300)},
    "1,000 random features and RLS": {"": squares(1000)},
    "RLS": {"": squares()},
}


def error(found: Any, y: Any, *, classes: bool) -> float:
    if classes:
        return float(100.0 * np.mean(found[FIRST:] != y[FIRST:]))
    rest = y[FIRST:]
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean((found.ravel()[FIRST:] - rest) ** 2)) / rest.std())


def measure(name: str, method: str) -> dict[str, Any]:
    """Return the least mean error of a method on a stream, its step, and its time per row."""
    X, y, classes = stream(name)
    c = int(y.max()) + 1 if classes else 1
    if method == "EKF" and WIDTH * (X.shape[1] + 1 + c) + c > WEIGHTS:
        return {}
    best: dict[str, Any] = {}
    for step, run in METHODS[method].items():
        errors, seconds = [], []
        for seed in SEEDS:
            torch.manual_seed(seed)
            begin = time.process_time()
            errors.append(error(run(X, y, c, classes=classes), y, classes=classes))
            seconds.append(time.process_time() - begin)
        mean = float(np.mean(errors))
        if not best or mean < best["error"]:
            ms = 1e3 * min(seconds) / len(y)
            best = {"error": mean, "seeds": errors, "step": step, "ms": ms}
    return best


def text(found: dict[str, Any]) -> str:
    """Return the table of results."""
    head = ["method", *(f"{name}: error | ms" for name in found["streams"])]
    rows = []
    for method in METHODS:
        cells = [found["streams"][name].get(method) or {} for name in found["streams"]]
        words = [f"{three(c['error'])} | {three(c['ms'])}" if c else "– | –" for c in cells]
        rows.append([method, *words])
    return table(" | ".join(head).split(" | "), [" | ".join(row).split(" | ") for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", nargs="*", default=STREAMS, choices=STREAMS)
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {
        "command": "python benchmarks/network_table.py",
        **versions(["torch", "numpy"]),
        "streams": {name: {} for name in given.streams},
    }
    for name in given.streams:
        for method in METHODS:
            found["streams"][name][method] = result = measure(name, method)
            print(json.dumps({"stream": name, "method": method, **result}), flush=True)
    print(text(found))
    if given.json:
        write(given.json, found)


if __name__ == "__main__":
    main()
