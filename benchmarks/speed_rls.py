"""Speed of recursive least squares: arrays, single rows, several outputs, float32."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from contenders import (
    Bandits,
    FilterPy,
    Floats,
    Loop,
    Ours,
    OursDicts,
    Padasip,
    ReservoirPy,
    River,
    one_by_one,
)
from limits import Limits
from scipy.linalg import blas
from turns import Way, Work, turns

import onepass as op

RIDGE = 1.0
FEATURES = (10, 100, 1000)
ROWS = {10: 200_000, 100: 50_000, 1000: 4_096}
PIECE = {10: 4096, 100: 256, 1000: 16}  # all methods process multiples of this
PEERS = (Padasip, ReservoirPy, River)
WANTED = {
    "arrays": {10: 30.0, 100: 12.0, 1000: 20.0},
    "rows": {10: 2.5, 100: 3.0, 1000: 10.0},
}
"""Target ratios to the best peer."""


def stream(p: int, c: int = 1) -> tuple[Floats, Floats]:
    """Return rows of p features with c noisy targets."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(ROWS[p], p))
    Y = X @ rng.normal(size=(p, c)) + rng.normal(size=(len(X), c))
    return X, Y[:, 0] if c == 1 else Y


def single(kind: Any, p: int) -> Way:
    """Return a method that predicts and learns row by row."""
    X, y = stream(p)
    rows = kind(p, RIDGE).rows(X)
    return lambda n: one_by_one(kind(p, RIDGE), rows[:n], y[:n])


def blocks(p: int, verb: str = "test_then_train", dtype: Any = float, **settings: Any) -> Way:
    """Return a method that learns all rows of an array in one call."""
    X, y = stream(p)
    X = X.astype(dtype)
    settings = {"fit_intercept": False, **settings}
    return lambda n: getattr(op.RLSRegressor(RIDGE, **settings), verb)(X[:n], y[:n])


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """Run all benchmarks of this file."""
    yield from arrays(rounds, limits.peak)
    yield learning(rounds)
    yield from rows(rounds)
    yield outputs(rounds)
    yield single_precision(rounds)


def arrays(rounds: int, peak: float) -> Iterator[Work]:
    """Measure test-then-train over arrays."""
    for p in FEATURES:
        ways = {"onepass": blocks(p), "with an intercept": blocks(p, fit_intercept=True)}
        ways |= {kind.name: single(kind, p) for kind in (*PEERS, Loop, Bandits, FilterPy)}
        found = turns(ways, rounds, least=PIECE[p], most=ROWS[p], whole=PIECE[p])
        # JAX's threads keep running, so it is not interleaved with the others
        found |= turns(scans(p), rounds, least=PIECE[p], most=ROWS[p], whole=PIECE[p])
        yield Work(
            f"exact RLS over arrays, {p} features",
            "rows",
            "onepass",
            found,
            WANTED["arrays"][p],
            ("dgemm peak, 3p² per row", peak / (3.0 * p * p)),
            ("with an intercept", Loop.name),
            lead=True,
        )


def scans(p: int) -> dict[str, Way]:
    """Return a Kalman filter of constant weights by dynamax, compiled before it is timed.

    JAX recompiles for every stream length, so the rows are processed in pieces of one length, each
    starting from the prior.
    """
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    try:
        import jax  # noqa: PLC0415  not on every machine
        import jax.numpy as jnp  # noqa: PLC0415
        from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_filter  # noqa: PLC0415
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)  # noqa: FBT003  its API
    piece = PIECE[p]
    X, y = stream(p)
    model = LinearGaussianSSM(p, 1)
    params, _ = model.initialize(
        initial_mean=jnp.zeros(p),
        initial_covariance=jnp.eye(p) / RIDGE,
        dynamics_weights=jnp.eye(p),
        dynamics_covariance=jnp.zeros((p, p)),
        emission_weights=jnp.asarray(X[:piece, None, :]),
        emission_covariance=jnp.eye(1),
    )
    targets = jnp.asarray(y[:piece, None])
    step = jax.jit(lgssm_filter)
    jax.block_until_ready(step(params, targets))

    def way(n: int) -> None:
        for _ in range(0, n, piece):
            jax.block_until_ready(step(params, targets))

    return {"dynamax lgssm_filter": way}


def rows(rounds: int) -> Iterator[Work]:
    """Measure predict_one followed by learn_one."""
    for p in FEATURES:
        ways = {kind.name: single(kind, p) for kind in (Ours, *PEERS, Loop, Bandits, FilterPy)}
        found = turns(ways, rounds, least=16, most=ROWS[p])
        yield Work(
            f"one row at a time, arrays, {p} features", "rows", Ours.name, found,
            WANTED["rows"][p], None, (Loop.name,), numbers=latencies(p), lead=True,
        )  # fmt: skip
    ways = {kind.name: single(kind, 10) for kind in (OursDicts, River)}
    found = turns(ways, rounds, least=16, most=ROWS[10])
    yield Work(
        "one row at a time, dicts, 10 features", "rows", OursDicts.name, found, 1.0, lead=True
    )


def latencies(p: int) -> dict[str, float]:
    """Return microseconds of learn_one: the median and the 99th percentile."""
    X, y = stream(p)
    model = op.RLSRegressor(RIDGE, fit_intercept=False)
    took = np.empty(min(len(X), 20_000 if p < 1000 else 2_000))
    for i, target in enumerate(y[: len(took)].tolist()):
        began = time.perf_counter()
        model.learn_one(X[i], target)
        took[i] = time.perf_counter() - began
    later = 1e6 * took[len(took) // 10 :]
    return {"median, µs": float(np.median(later)), "p99, µs": float(np.quantile(later, 0.99))}


def learning(rounds: int) -> Work:
    """Measure learning only, compared with normal equations."""
    X, y = stream(1000)
    ways: dict[str, Way] = {
        "onepass": blocks(1000, "partial_fit"),
        "normal equations, NumPy": partial(normal, X, y),
    }
    try:
        from sklearnex.linear_model import IncrementalRidge  # noqa: PLC0415  not on every machine
    except ImportError:
        pass
    else:
        ways["scikit-learn-intelex IncrementalRidge"] = partial(fitted, IncrementalRidge, X, y)
    found = turns(ways, rounds, least=1024, most=len(X))
    note = "The others form normal equations and lose half of the digits."
    return Work(
        "learning only, 1000 features", "rows", "onepass", found, 0.45, note=note, lead=True
    )


def normal(X: Floats, y: Floats, n: int) -> Floats:
    """Accumulate normal equations in blocks of 1024 rows and solve them once."""
    p = X.shape[1]
    gram, right = np.asfortranarray(RIDGE * np.eye(p)), np.zeros(p)
    for i in range(0, n, 1024):
        part = X[i : min(i + 1024, n)]
        gram = blas.dsyrk(1.0, part.T, beta=1.0, c=gram, overwrite_c=1)
        right += part.T @ y[i : min(i + 1024, n)]
    return np.linalg.solve(np.triu(gram) + np.triu(gram, 1).T, right)


def fitted(kind: Callable[..., Any], X: Floats, y: Floats, n: int) -> Any:
    """Fit a learner in blocks of 1024 rows."""
    model = kind(alpha=RIDGE, fit_intercept=False)
    for i in range(0, n, 1024):
        model.partial_fit(X[i : min(i + 1024, n)], y[i : min(i + 1024, n)])
    return model


def outputs(rounds: int) -> Work:
    """Measure ten outputs with one hundred features."""
    X, Y = stream(100, 10)
    ways: dict[str, Way] = {
        "onepass": lambda n: op.RLSRegressor(RIDGE, fit_intercept=False).test_then_train(
            X[:n], Y[:n]
        ),
        ReservoirPy.name: partial(together, X, Y),
        "River BayesianLinearRegression, ten": partial(apart, X, Y),
    }
    found = turns(ways, rounds, least=16, most=len(X))
    return Work("ten outputs, 100 features", "rows", "onepass", found, 5.0, lead=True)


def together(X: Floats, Y: Floats, n: int) -> None:
    """Run reservoirpy, with one matrix for all outputs."""
    from reservoirpy.nodes import RLS  # noqa: PLC0415

    model = RLS(alpha=RIDGE, fit_bias=False, input_dim=X.shape[1], output_dim=Y.shape[1])
    model.initialize(np.zeros((1, X.shape[1])), np.zeros((1, Y.shape[1])))
    for x, y in zip(X[:n], Y[:n], strict=True):
        model.step(x)
        model.partial_fit(x[None], y[None])


def apart(X: Floats, Y: Floats, n: int) -> None:
    """Run River, with one model per output."""
    for k in range(Y.shape[1]):
        contender = River(X.shape[1], RIDGE)
        one_by_one(contender, contender.rows(X[:n]), Y[:n, k])


def single_precision(rounds: int) -> Work:
    """Measure float32 rows; the triangle is float64."""
    ways = {"float32": blocks(100, dtype=np.float32), "float64": blocks(100)}
    found = turns(ways, rounds, least=64, most=ROWS[100])
    return Work("rows of float32, 100 features", "rows", "float32", found, 1.0)
