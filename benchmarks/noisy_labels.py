"""One-pass learning of networks with exact and noisy targets.

An MLP with 100 tanh units learns 150 rows of sin x₁ − x₃. The error is the root mean square error
on 1,000 new rows without noise, over several runs with their own rows and initial weights. Prints
the table of docs/network-methods.md in a minute or two:

    python benchmarks/noisy_labels.py
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import onepass as op

METHODS: dict[str, Callable[[Any], Any]] = {
    "OneStepSGD()": op.nn.OneStepSGD,
    "ORFit(memory=20)": lambda module: op.nn.ORFit(module, 20),
    "ORFit(memory=20, noise=1)": lambda module: op.nn.ORFit(module, 20, noise=1.0),
    "ORFit(memory=None)": lambda module: op.nn.ORFit(module, None),
    "ORFit(memory=None, noise=1)": lambda module: op.nn.ORFit(module, None, noise=1.0),
    "LoFi(memory=20)": lambda module: op.nn.LoFi(module, 20),
    "LoFi(memory=5)": lambda module: op.nn.LoFi(module, 5),
}
DEVIATION = 0.5  # standard deviation of the noise


def rows(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    X = rng.normal(size=(n, 3))
    return torch.from_numpy(X), torch.from_numpy(np.sin(X[:, 0]) - X[:, 2])


def network(rng: np.random.Generator, width: int = 100) -> Any:
    module = torch.nn.Sequential(
        torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
    ).double()
    with torch.no_grad():
        for each in module.parameters():
            reach = (3 if each.shape[-1] == 3 or len(each) == width else width) ** -0.5
            each.copy_(torch.from_numpy(rng.uniform(-reach, reach, each.shape)))
    return module


def error(method: Callable[[Any], Any], deviation: float, seed: int) -> float:
    """Return the final error of a method in one run."""
    rng = np.random.default_rng(seed)
    X, y = rows(150, rng)
    y = y + deviation * torch.from_numpy(rng.normal(size=len(y)))
    fresh, truth = rows(1000, rng)
    net = method(network(rng)).learn(X, y)
    return float((net.predict(fresh) - truth).square().mean().sqrt())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    print("| | exact targets | noisy targets |\n| --- | --- | --- |")
    for name, method in METHODS.items():
        cells = []
        for deviation in (0.0, DEVIATION):
            errors = [error(method, deviation, seed) for seed in range(runs)]
            cells.append(f"{np.mean(errors):.2f} ± {np.std(errors):.2f}")
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
