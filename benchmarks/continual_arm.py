"""A robot arm whose working region moves: kin40k in five ranges of its first input, in one pass.

Each range is learned once, after the one before it, and all are tested after each; the answers are
standardised. Recursive least squares on fixed random features is at the end what ridge regression
on all rows at once is, whatever the order; gradient descent on the same features is not. Frequency
and ridge were chosen on rows held out of those to learn. Milliseconds depend on the machine.

    ONEPASS_DATA=folder python benchmarks/continual_arm.py [folder for figures and numbers]
"""

import sys
import time

import numpy as np
from sklearn.kernel_approximation import RBFSampler

import onepass as op
from onepass.stream import Experiences
from onepass.types import Floats

FEATURES, GAMMA, RIDGE = 1000, 0.1, 1e-3


def table() -> tuple[Floats, Floats]:
    """All rows, as numbers."""
    blocks = list(op.stream.dataset("kin40k"))
    X = np.concatenate([np.stack(list(b.X.columns.values()), axis=1) for b in blocks])
    return X, np.concatenate([b.y for b in blocks])


X, Y = table()
SEEN = RBFSampler(gamma=GAMMA, n_components=FEATURES, random_state=0).fit(X[:1]).transform(X)
SEEN *= np.sqrt(FEATURES / 100.0)


def arm(seed: int) -> Experiences:
    """The arm's five regions; the seed draws which rows are tested, and the order within."""
    return op.stream.experiences(SEEN, Y, by=X[:, 0], n_tasks=5, seed=seed, name="kin40k")


def main() -> None:
    """Print the table, and the matrices."""
    models = {"RLS": op.RLSRegressor(ridge=RIDGE), "SGD": op.SGDRegressor()}
    report = op.evaluate.continual(models, arm, seeds=3, clock=time.process_time)
    print(report.to_markdown())
    for name, score in report.scores.items():
        print(name, np.round(score.error_matrix, 2).tolist(), sep="\n")
    if len(sys.argv) > 1:
        report.save(sys.argv[1])


if __name__ == "__main__":
    main()
