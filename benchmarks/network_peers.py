"""ORFit of rebayes (JAX) and onepass: milliseconds per row, and deviation from the papers.

Both learn the same rows in one process, interleaved, linear models as networks. The references are
dense float64 implementations of the papers' recursions: ``raw``, the principal directions of the
gradients (extended paper, Algorithm 3), and ``projected``, Algorithm 1 of 2022 as printed. Without
rebayes only onepass is measured.

    ONEPASS_DATA=... python benchmarks/network_peers.py [--json FILE]
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import onepass as op
from onepass_experiments.orfit import RotatedDigits

try:
    import jax
    import jax.numpy as jnp
    from rebayes.low_rank_filter.orfit import RebayesORFit
except ImportError:
    RebayesORFit = None

Floats = NDArray[np.float64]
SIZES = [(784, 10), (10_000, 50), (100_000, 50), (500_000, 50)]
LINEAR = 10_000  # max weights for which a linear learner is measured too
ROUNDS = 20  # timed stretches
STRETCH = 50  # approximate rows per learner and stretch
AT_MOST = 10  # max timed rows of rebayes, whose rows have equal cost


def dense(X: Floats, y: Floats, w: Floats, m: int, *, raw: bool) -> Floats:
    """Return the weights after all rows, with a full SVD at each row."""
    directions = np.zeros((len(w), 0))
    for x, t in zip(X, y, strict=True):
        U = directions / np.linalg.norm(directions, axis=0)
        v = x - U @ (U.T @ x)
        v = v - U @ (U.T @ v)
        w = w + v * (t - x @ w) / (x @ v)
        left, sigma, _ = np.linalg.svd(
            np.column_stack([directions, x if raw else v]), full_matrices=False
        )
        directions = (left * sigma)[:, :m]
    return w


class Ours:
    """op.nn.ORFit of a linear layer."""

    def __init__(self, start: Any, memory: Any) -> None:
        self.layer = torch.nn.Linear(len(start), 1, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.as_tensor(start)[None])
        self.net = op.nn.ORFit(self.layer, memory)

    def rows(self, X: Any, y: Any) -> Sequence[Any]:
        X, y = torch.as_tensor(X).float(), torch.as_tensor(y).float()
        return [(X[i : i + 1], y[i : i + 1]) for i in range(len(X))]

    def learn(self, row: Any) -> None:
        self.net.learn(*row)

    def weights(self) -> Floats:
        return self.layer.weight[0].detach().double().numpy()


class OursLinear:
    """op.ORFitRegressor, one row at a time."""

    def __init__(self, memory: int) -> None:
        self.model = op.ORFitRegressor(memory)

    def rows(self, X: Any, y: Any) -> Sequence[Any]:
        return list(zip(X, y.tolist(), strict=True))

    def learn(self, row: Any) -> None:
        self.model.learn_one(*row)


class Rebayes:
    """rebayes' ORFit of wᵀx, compiled before it is timed."""

    def __init__(self, start: Any, memory: int) -> None:
        none: Any = None
        self.model = RebayesORFit(none, none, lambda w, x: w @ x, none, memory_size=memory)
        self.belief = self.model.init_bel(jnp.asarray(start, dtype=jnp.float32))
        size = len(start)
        self.model.update_state(self.belief, jnp.ones(size), jnp.ones(1))

    def rows(self, X: Any, y: Any) -> Sequence[Any]:
        X, y = jnp.asarray(X, dtype=jnp.float32), jnp.asarray(y, dtype=jnp.float32)
        return [(X[i], y[i : i + 1]) for i in range(len(X))]

    def learn(self, row: Any) -> None:
        self.belief = jax.block_until_ready(self.model.update_state(self.belief, *row))

    def weights(self) -> Floats:
        return np.asarray(self.belief.mean, dtype=np.float64)


def seconds(learner: Any, rows: Sequence[Any]) -> list[float]:
    """Return the seconds per row."""
    spans = []
    for row in rows:
        begin = time.perf_counter()
        learner.learn(row)
        spans.append(time.perf_counter() - begin)
    return spans


def digits(m: int = 10) -> dict[str, Any]:
    """Compare weights on the papers' linear stream: 100 rotated digits."""
    drawn = RotatedDigits().draw(op.stream.images("mnist"), 1, [0])
    start = drawn.start[0]
    exact = {raw: dense(drawn.X, drawn.y, start, m, raw=raw) for raw in (True, False)}
    ways: dict[str, Callable[[], Any]] = {
        "onepass": lambda: Ours(start, m),
        "onepass, of='projected'": lambda: Ours(start, op.memory.Principal(m, of="projected")),
    }
    if RebayesORFit:
        ways["rebayes"] = lambda: Rebayes(start, m)
    found = {}
    for name, make in ways.items():
        learner = make()
        for row in learner.rows(drawn.X, drawn.y):
            learner.learn(row)
        w = learner.weights()
        off = [np.linalg.norm(w - e) / np.linalg.norm(e - start) for e in exact.values()]
        error = float(np.rad2deg(np.sqrt(np.mean((drawn.X_test @ w - drawn.y_test) ** 2))))
        found[name] = {
            "error, raw": off[0],
            "error, projected": off[1],
            "test RMSE, degrees": error,
        }
    return found


def speed(p: int, m: int) -> dict[str, Any]:
    """Measure milliseconds per row with a full memory over rotation cycles; learners alternate."""
    cycle, some = (m + 1) // 2, np.random.default_rng(0)
    stretch = cycle * max(STRETCH // cycle, 1)
    start, draw = np.zeros(p), lambda n: (some.normal(size=(n, p)), some.normal(size=n))
    ours, theirs = Ours(start, m), Rebayes(start, m) if RebayesORFit else None
    linear = OursLinear(m) if p <= LINEAR else None
    spans: dict[str, list[float]] = {"onepass": [], "ORFitRegressor": [], "rebayes": []}
    learners = {"onepass": ours, "ORFitRegressor": linear, "rebayes": theirs}
    for k in range(-3, ROUNDS if linear else 1):
        X, y = draw(stretch)
        for name, learner in learners.items():
            if learner is None or (learner is theirs and k < 0):
                continue  # its rows have equal cost
            first = slice(None if linear or learner is not theirs else AT_MOST)
            found = seconds(learner, learner.rows(X[first], y[first]))
            spans[name] += found if k >= 0 else []
    each = {name: 1e3 * float(np.mean(some)) for name, some in spans.items() if some}
    return {"p": p, "m": m, **each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    versions = {"torch": torch.__version__} | ({"jax": jax.__version__} if RebayesORFit else {})
    found: dict[str, Any] = {
        "command": "python benchmarks/network_peers.py",
        "machine": f"{os.cpu_count()} cores",
        "versions": versions,
        "speed": [speed(p, m) for p, m in SIZES],
    }
    if "ONEPASS_DATA" in os.environ:
        found["digits"] = digits()
    print(json.dumps(found, indent=1))
    if given.json:
        from cells import write  # noqa: PLC0415  in this folder

        write(given.json, found)


if __name__ == "__main__":
    main()
