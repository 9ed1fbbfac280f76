"""Comparison of the losses `one_hot` and `cross_entropy` for several noise levels.

A 64–32–10 perceptron with tanh learns 800 of scikit-learn's digits in one pass, row by row, in
random order, and is tested on 500 others. Prints the accuracy as a mean over two runs, the table of
docs/networks.md, in four minutes; or, in class order, the accuracy with all layers and the last:

    python benchmarks/class_losses.py
    python benchmarks/class_losses.py --sorted
"""

import sys
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits

import onepass as op

NOISES = (0.1, 1.0, 10.0, 100.0)
LEARNERS = {
    "ORFit(memory=50)": lambda module, **more: op.nn.ORFit(module, 50, **more),
    "LoFi(memory=20)": lambda module, **more: op.nn.LoFi(module, 20, **more),
}
SORTED = {
    "ORFit(memory=50)": LEARNERS["ORFit(memory=50)"],
    'ORFit(memory=None, learns="last")': lambda module, **more: op.nn.ORFit(
        module, None, learns="last", **more
    ),
}


def accuracy(learner: str, loss: str, noise: float, seed: int) -> float:
    """Return the test accuracy after one pass."""
    X, y = load_digits(return_X_y=True)
    at = np.random.default_rng(seed).permutation(len(X))
    rows, test = at[:800], at[800:1300]
    if "--sorted" in sys.argv:
        rows = rows[np.argsort(y[rows], kind="stable")]
    X = (X / 16.0).astype(np.float32)
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    net = (LEARNERS | SORTED)[learner](module, noise=noise, loss=loss).learn(X[rows], y[rows])
    return float((net.predict(X[test]).numpy() == y[test]).mean())


def main() -> None:
    """Print a table."""
    print("| learner | loss |", *(f"noise={noise:g} |" for noise in NOISES))
    print("|---|---|", *("---:|" for _ in NOISES))
    ordered = "--sorted" in sys.argv
    warnings.simplefilter("ignore", op.errors.TaskWarning)
    for learner in SORTED if ordered else LEARNERS:
        for loss in ("one_hot",) if ordered else ("one_hot", "cross_entropy"):
            found = [np.mean([accuracy(learner, loss, r, s) for s in (0, 1)]) for r in NOISES]
            cells = (f"{100.0 * each:.0f} % |" for each in found)
            print(f"| `{learner}` | `{loss}` |", *cells, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
