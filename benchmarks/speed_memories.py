"""Speed of memories of directions in float64 and float32, and of network Jacobians.

Steps are timed over whole cycles between two rotations of the columns, so that the mean includes
the rotation. Random gradients are generated outside the timed part.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jacobians import jacobians
from limits import Limits
from network import rotating
from numpy.typing import NDArray
from turns import Work, turns

import onepass as op
from onepass import linalg

try:
    import jax
    import jax.numpy as jnp
    from rebayes.low_rank_filter.orfit import RebayesORFit
except ImportError:
    RebayesORFit = None

Floats = NDArray[np.float64]
Rates = dict[str, list[float]]
M, P = 100, 1_000_000
REBAYES = "rebayes ORFit (JAX)"
READS = "three plain reads of the columns"
ROTATING = "rotating at each step"
FEWER = (60, 500_000)  # directions and weights for the comparison of float32 and float64
MEMORIES = {
    "Principal (ORFit)": op.memory.Principal,
    "Sketch (frequent directions)": op.memory.Sketch,
    "LastDirections": op.memory.LastDirections,
    "Basis (OGD, all directions)": lambda _: op.memory.Basis(),
}


class Steps:
    """A full memory of m directions of p weights."""

    def __init__(self, kind: Any, m: int, p: int, dtype: Any) -> None:
        self._some = torch.Generator().manual_seed(0)
        self.w = torch.zeros(p, dtype=dtype)
        self._J = torch.empty(1, p, dtype=dtype)
        start = kind(m).start(p, 1, 0.0, self.w[:0])
        first = torch.randn(m, p, dtype=dtype, generator=self._some).T
        none = torch.zeros(m, dtype=torch.float64)
        self.memory = start.learn(self.w, first, none, np.zeros(m)).memory

    @property
    def columns(self) -> Any:
        """The basis B as rows (q, p)."""
        return self.memory.basis

    def gradient(self) -> Any:
        """Return a new gradient (1, p)."""
        self._J.normal_(generator=self._some)
        return self._J

    def __call__(self, count: int) -> float:
        """Return the seconds of ``count`` steps."""
        took, e, none = 0.0, torch.ones(1, dtype=torch.float64), np.zeros(1)
        for _ in range(count):
            J = self.gradient()
            began = time.process_time()
            step = self.memory.learn(self.w, J.T, e, none)
            took += time.process_time() - began
            self.w, self.memory = step.w, step.memory
        return took


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """Run all benchmarks of this file."""
    torch.set_num_threads(1)
    with linalg.one_thread_for_tensors(P):
        yield orfit(rounds, limits.bandwidth)
        for name, kind in MEMORIES.items():
            yield precisions(name, kind, rounds)
        yield from linear(rounds)
        yield from jacobians(rounds)


def orfit(rounds: int, bandwidth: float) -> Work:
    """Compare a step of ORFit with plain reads of its columns, and with rotation at each step."""
    cycle, steps = M // 2, Steps(op.memory.Principal, M, P, torch.float64)
    rates: Rates = {name: [] for name in ("onepass", READS, ROTATING)}
    steps(2)
    for _ in range(min(rounds, 2)):  # a cycle has fifty rows of a quarter second
        spans, reads = [], []
        for k in range(0, cycle, 5):
            reads.append(plain(steps.columns, steps.gradient()[0]))
            spans.append(steps(min(5, cycle - k)))
        rates["onepass"].append(cycle / sum(spans))
        rates[READS].append(1.0 / float(np.mean(reads)))
        rates[ROTATING].append(
            1.0 / rotating(steps.columns[:M], steps.gradient()[0], time.process_time)
        )
    bound = bandwidth / (2.0 * 8.0 * P * 1.25 * M)
    del steps
    rates |= rebayes(M, P, rounds)
    return Work(
        f"a step of ORFit, {M} directions of {P:,} weights",
        "rows",
        "onepass",
        rates,
        1 / 1.2,
        ("two reads of the columns", bound),
        note="The target is at most 1.2 times the time of three plain reads (products with a "
        "vector) of the same 100 to 150 columns. rebayes has a different memory.",
    )


def plain(rows: Any, g: Any) -> float:
    """Time three products of the columns with a vector, by the faster library."""
    spans, near, flat = [], rows.numpy(), g.numpy()
    for read in (lambda: rows @ g, lambda: near @ flat):
        began = time.process_time()
        for _ in range(3):
            read()
        spans.append(time.process_time() - began)
    return min(spans)


def rebayes(m: int, p: int, rounds: int) -> Rates:
    """Time steps of rebayes in float64; empty if it is not installed."""
    if RebayesORFit is None:
        return {}
    learn = compiled(m, p)
    some = np.random.default_rng(0)
    rates = []
    for _ in range(min(rounds, 3)):
        x, y = jnp.asarray(some.normal(size=p)), jnp.ones(1)
        began = time.process_time()
        learn(x, y)
        rates.append(1.0 / (time.process_time() - began))
    return {REBAYES: rates}


def compiled(m: int, p: int) -> Callable[[Any, Any], None]:
    """Return a compiled ORFit of rebayes for wᵀx that learns a row."""
    jax.config.update("jax_enable_x64", True)  # noqa: FBT003
    none: Any = None
    model = RebayesORFit(none, none, lambda w, x: w @ x, none, memory_size=m)
    belief = [model.init_bel(jnp.zeros(p))]

    def learn(x: Any, y: Any) -> None:
        belief[0] = jax.block_until_ready(model.update_state(belief[0], x, y))

    learn(jnp.ones(p), jnp.ones(1))
    return learn


def precisions(name: str, kind: Any, rounds: int) -> Work:
    """Compare steps of a memory in float32 and float64."""
    m, p = FEWER
    cycle = m // 2 if hasattr(kind(m).start(1, 1), "subspace") else 8
    rates: Rates = {"float32": [], "float64": []}
    each = {way: Steps(kind, m, p, getattr(torch, way)) for way in rates}
    for _ in range(rounds):
        for way, steps in each.items():
            rates[way].append(cycle / steps(cycle))
    what = f"{name} in float32, {m} directions of {p:,} weights"
    return Work(what, "rows", "float32", rates, 1.7)


def linear(rounds: int) -> Iterator[Work]:
    """Measure linear models with few weights, row by row."""
    for p, m in ((784, 10), (10_000, 50)):
        some = np.random.default_rng(0)
        X, y = some.normal(size=(512, p)), some.normal(size=512)
        model = op.ORFitRegressor(m)

        def ours(count: int, X: Floats = X, y: Floats = y, model: Any = model) -> None:
            for i in range(count):
                model.learn_one(X[i % 512], y[i % 512])

        ways: dict[str, Callable[[int], object]] = {"onepass": ours}
        if RebayesORFit is not None:
            learn, rows, one = compiled(m, p), [jnp.asarray(x) for x in X], jnp.ones(1)

            def theirs(count: int, learn: Any = learn, rows: Any = rows, one: Any = one) -> None:
                for i in range(count):
                    learn(rows[i % 512], one)

            ways[REBAYES] = theirs
        found = turns(ways, rounds, least=16)
        yield Work(
            f"ORFitRegressor, a row at a time, {m} directions of {p:,} weights",
            "rows",
            "onepass",
            found,
        )
