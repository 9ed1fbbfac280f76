"""Forgetting bound compared with measured forgetting, by memory size; draws docs/certificate.png.

Real streams with standardised columns, 400 random Fourier features, each row learned once. The
table contains the change of predictions since their rows were learned (root mean square over rows,
in standard deviations of the targets) and the bound, then the change by one more step of length 1
in the worst direction and its bound. With PyTorch, it also contains a network, for which the bound
is an estimate.

    python benchmarks/certificate.py [--rows 1000] [--out docs/certificate.png]

UCI streams are read from the folder named by ONEPASS_DATA; diabetes is part of scikit-learn.
"""

import argparse
import math
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

import onepass as op
from onepass.evaluate.figures import COLOURS, DARK, new_figure

Floats = NDArray[np.float64]

SIZES = (5, 10, 20, 50, 100, 200)
UCI = ("elevators", "kin40k", "protein")
WEIGHTS, SEED = 400, 0
KINDS = {"Principal": op.memory.Principal, "Sketch": op.memory.Sketch}


class Drift(NamedTuple):
    """Result for one stream and memory; per prediction, except for the step of length 1."""

    moved: float
    bound: float
    step: float
    step_bound: float


def streams(rows: int) -> dict[str, tuple[Floats, Floats]]:
    """Return standardised features and targets of the available streams."""
    found = {"diabetes": load_diabetes(return_X_y=True)}
    folder = Path(os.environ.get("ONEPASS_DATA", ".")) / "uci-regression"
    for name in UCI:
        path = folder / f"{name}.csv.gz"
        if path.is_file():
            table = np.loadtxt(path, delimiter=",", max_rows=rows)
            found[name] = (table[:, :-1], table[:, -1])
    return {name: (whole(X[:rows]), whole(y[:rows])) for name, (X, y) in found.items()}


def whole(A: Floats) -> Floats:
    """Standardise columns."""
    spread = A.std(axis=0)
    scaled: Floats = (A - A.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return scaled


def fourier(X: Floats) -> Floats:
    """Return random Fourier features of a Gaussian kernel of width √d."""
    rng = np.random.default_rng(SEED)
    W = rng.normal(size=(X.shape[1], WEIGHTS)) / math.sqrt(X.shape[1])
    features: Floats = math.sqrt(2.0 / WEIGHTS) * np.cos(X @ W + rng.uniform(0, 2 * np.pi, WEIGHTS))
    return features


def linear(A: Floats, y: Floats, memory: Any) -> Drift:
    """Measure a model that is linear in its weights, where the certificate is a bound."""
    model, then = op.ORFitRegressor(memory=memory), np.empty(len(y))
    for k, (x, target) in enumerate(zip(A, y, strict=True)):
        then[k] = model.learn_one(x, target).predict_one(x)
    moved = float(np.linalg.norm(model.predict(A) - then))
    free = model.memory_.split(A.T).lifted
    found, each = model.forgetting_bound_, math.sqrt(len(y))
    step = float(np.linalg.norm(free, 2))
    rounding = 1e-9 * (1.0 + float(np.linalg.norm(y)))
    if moved > found.all_steps + rounding or step > found.one_step + rounding:
        raise SystemExit(f"the bound is exceeded: {found}, {moved}, {step}")
    return Drift(moved / each, found.all_steps / each, step, found.one_step)


def network(X: Floats, y: Floats, m: int) -> Drift:
    """Measure a network of 200 hidden units, where the certificate is an estimate."""
    import torch  # noqa: PLC0415  optional

    torch.manual_seed(SEED)
    module = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 200), torch.nn.Tanh(), torch.nn.Linear(200, 1)
    ).double()
    net = op.nn.ORFit(module, memory=m)
    rows = [(torch.as_tensor(X[k : k + 1]), torch.as_tensor(y[k : k + 1])) for k in range(len(y))]
    then = torch.cat([net.learn(x, target).outputs(x) for x, target in rows])
    each, found = math.sqrt(len(y)), net.forgetting_bound_
    return Drift(net.drift(X, then) / each, found.all_steps / each, math.nan, found.one_step)


def table(drifts: dict[tuple[str, str, int], Drift]) -> None:
    """Print the results as Markdown."""
    print("| stream | memory | change of predictions | bound | change by one step | bound |")
    print("|:--|:--|--:|--:|--:|--:|")
    for (name, kind, m), found in drifts.items():
        numbers = " | ".join("–" if math.isnan(x) else f"{x:.3g}" for x in found)
        print(f"| {name} | {kind}({m}) | {numbers} |")


def draw(drifts: dict[tuple[str, str, int], Drift], path: Path) -> None:
    """Plot measured change and bound over m, one column per stream: all steps, one step."""
    names = list(dict.fromkeys(name for name, *_ in drifts))
    with new_figure((7.2, 4.2), path) as figure:
        panels = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for name, column in zip(names, panels.T, strict=True):
            for kind, colour in zip(KINDS, COLOURS, strict=False):
                sizes = [m for stream, each, m in drifts if (stream, each) == (name, kind)]
                moved, bound, step, most = zip(*(drifts[name, kind, m] for m in sizes), strict=True)
                for axes, truth, bounds in zip(column, (moved, step), (bound, most), strict=True):
                    axes.plot(sizes, bounds, color=colour, lw=1.3, ls=(0, (4, 2)))
                    axes.plot(sizes, truth, color=colour, lw=1.3, marker="o", ms=3)
            for axes in column:
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.set_xticks([5, 20, 100], ["5", "20", "100"])
                axes.minorticks_off()
            column[0].set_title(name, fontsize=8, loc="left", color=DARK)
            column[1].set_xlabel("m, retained directions")
        panels[0, 0].set_ylabel("change of a past prediction\nby all steps")
        panels[1, 0].set_ylabel("change of all past predictions\nby a step of length 1")
        for kind, colour in zip(KINDS, COLOURS, strict=False):
            panels[0, 0].plot([], [], color=colour, ls=(0, (4, 2)), label=f"{kind}: bound")
            panels[0, 0].plot([], [], color=colour, marker="o", ms=3, label=f"{kind}: measured")
        figure.legend(loc="outside upper left", ncols=4, frameon=False, fontsize=7.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", op.errors.MemoryFullWarning)
    found = streams(arguments.rows)
    drifts = {
        (name, kind, m): linear(fourier(X), y, make(m))
        for name, (X, y) in found.items()
        for kind, make in KINDS.items()
        for m in SIZES
    }
    table(drifts)
    if arguments.out is not None:
        draw(drifts, arguments.out)
    if find_spec("torch"):
        print("\nFor a network, where the bound is an estimate:\n")
        name, (X, y) = list(found.items())[-1]
        table({(name, "Principal", m): network(X[:300], y[:300], m) for m in (10, 50, 100, 200)})


if __name__ == "__main__":
    main()
