"""Speed of recursive least squares, relative to its nearest relatives, in one run on one thread.

Each function is a part of ``speed.py``. All implementations of a work learn the same rows from the
same prior, without an intercept. Where they define the same results, ``differs`` is the largest
difference of these results, relative to the largest target.
"""

import inspect
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from contenders import Floats, Loop, Padasip, ReservoirPy, River, named, one_by_one
from frames import AFTER, PolarsDS, PolarsOLS, PolarsOnline, frame, installed
from limits import Limits
from river.compose import Select
from river.linear_model import BayesianLinearRegression
from river.preprocessing import OneHotEncoder, StandardScaler, StatImputer
from scipy.linalg import blas
from turns import Way, Work, difference, turns

import onepass as op

GOALS: dict[str, tuple[float, float]] = {
    "exact RLS over arrays": (5.4, 8.0),
    "exact RLS over arrays: 5 features": (5.4, 10.0),
    "exact RLS over arrays: 10 features": (5.4, 10.0),
    "exact RLS from a Polars frame": (0.5, 0.71),
    "sliding window": (2.0, 6.0),
    "sliding window: 100 features, 300 rows": (1.0, 3.0),
    "learn_one": (1.0, 3.0),
    "learn_one and a read": (1.0, 3.0),
    "a read, relative to learn_one alone": (0.1, 0.33),
    "learn_one of a pipeline": (3.0, 10.0),
    "a pipeline, relative to bare learn_one": (0.01, 0.025),
    "one model per key": (1.0, 3.0),
    "bounded forgetting": (0.71, 0.83),
}
"""Required and desired ratios to the fastest other implementation."""

RIDGE = 1.0
ROWS = {5: 200_000, 10: 200_000, 20: 100_000, 100: 50_000, 1000: 4_096}
PIECE = {5: 4_096, 10: 4_096, 20: 1_024, 100: 256, 1000: 16}  # all process multiples of this
CHECKED = {5: 500, 10: 500, 20: 500, 100: 500, 1000: 64}  # rows whose predictions are compared
WINDOWS = {5: 100, 10: 100, 20: 100, 100: 300}  # features -> rows of the window
KEYS, KEYED_ROWS = (1_000, 10_000), 200_000
HAND = "NumPy recursion"
ALONE, BARE = "learn_one alone", "bare learn_one"


def stream(p: int, *outputs: int) -> tuple[Floats, Floats]:
    """Return rows of p features with noisy targets."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(ROWS[p], p))
    Y = X @ rng.normal(size=(p, *outputs))
    return X, Y + rng.normal(size=Y.shape)


def blocks(X: Any, y: Floats, **settings: Any) -> Way:
    """Return a method that predicts and learns all rows in one call."""
    settings = {"ridge": RIDGE, "fit_intercept": False, **settings}
    return lambda n: op.RLSRegressor(**settings).test_then_train(X[:n], y[:n])


def passes(way: Way, rows: int) -> Way:
    """Return a method that begins again after ``rows`` rows, so that a round is long enough."""

    def several(n: int) -> Any:
        found = None
        for begin in range(0, n, rows):
            found = way(min(rows, n - begin))
        return found

    return several


# -- arrays and frames -----------------------------------------------------------------------------


def rls(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure test-then-train over arrays and frames, and learning only."""
    for p in ROWS:
        yield arrays(p, rounds, limits.peak)
        yield frames(p, rounds)
    yield learning(rounds)


def arrays(p: int, rounds: int, peak: float) -> Work:
    """Measure test-then-train over arrays."""
    X, y = stream(p)
    ways = {"onepass": blocks(X, y), "with an intercept": blocks(X, y, fit_intercept=True)}
    for kind in (Padasip, ReservoirPy, River, Loop):
        ways[kind.name] = single(kind, X, y)
    here, missing = installed((PolarsOnline, PolarsDS, PolarsOLS))
    learners = {each.name(): each(X, y, RIDGE) for each in here if p < 1000 or each is PolarsOnline}
    timed = ways | {name: each.run for name, each in learners.items()}
    timed = {name: passes(way, ROWS[p]) for name, way in timed.items()}
    rates = turns(timed, rounds, least=PIECE[p], whole=PIECE[p])
    # JAX's threads keep running, so it is not interleaved with the others
    rates |= turns(scans(p), rounds, least=PIECE[p], whole=PIECE[p])
    n = CHECKED[p]
    others = [way(n) for name, way in ways.items() if name != "with an intercept"]
    others += [each.before(n) for each in learners.values()]
    return work(
        "exact RLS over arrays", f"{p} features", rates, "onepass",
        limit=("dgemm peak, 3p² per row", peak / (3.0 * p * p)),
        aside=("with an intercept", Loop.name, *(name for name in learners if AFTER in name)),
        differs=difference(ways["onepass"](n), others, y[:n]),
        missing=missing,
    )  # fmt: skip


def single(kind: Any, X: Floats, y: Floats) -> Way:
    """Return a method that predicts and learns row by row."""
    p = X.shape[1]
    rows = kind(p, RIDGE).rows(X)
    return lambda n: one_by_one(kind(p, RIDGE), rows[:n], y[:n])


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


def frames(p: int, rounds: int) -> Work:
    """Measure test-then-train over a Polars frame."""
    X, y = stream(p)
    ways = {"from a frame": blocks(frame(X), y), "from an array": blocks(X, y)}
    timed = {name: passes(way, ROWS[p]) for name, way in ways.items()}
    rates = turns(timed, rounds, least=ROWS[p], whole=ROWS[p])
    n = CHECKED[p]
    differs = difference(ways["from a frame"](n), [ways["from an array"](n)], y[:n])
    what = "exact RLS from a Polars frame"
    return work(what, f"{p} features", rates, "from a frame", differs=differs)


def learning(rounds: int) -> Work:
    """Measure learning only, compared with normal equations."""
    X, y = stream(1000)
    ways: dict[str, Way] = {
        "onepass": lambda n: op.RLSRegressor(RIDGE, fit_intercept=False).partial_fit(X[:n], y[:n]),
        "normal equations, NumPy": partial(normal, X, y),
    }
    try:
        from sklearnex.linear_model import IncrementalRidge  # noqa: PLC0415  not on every machine
    except ImportError:
        pass
    else:
        ways["scikit-learn-intelex IncrementalRidge"] = partial(fitted, IncrementalRidge, X, y)
    rates = turns(ways, rounds, least=1024, most=len(X))
    note = "The others form normal equations and lose half of the digits."
    return Work("learning only, 1000 features", "rows", "onepass", rates, 0.45, note=note)


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


# -- sliding windows -------------------------------------------------------------------------------


def windows(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure least squares on the last rows, and its errors on six streams."""
    del limits
    here, missing = installed((PolarsDS, PolarsOnline, PolarsOLS))
    for p, rows in WINDOWS.items():
        X, y = stream(p)
        ways = {"onepass": window_blocks(X, y, rows, 1e-6)}
        learners = {each.name(rows): each(X, y, 0.0, rows) for each in here}
        n = 2 * rows
        others = [each.before(n)[rows:] for each in learners.values()]
        timed = ways | {name: each.run for name, each in learners.items()}
        timed = {name: passes(way, ROWS[p]) for name, way in timed.items()}
        rates = turns(timed, rounds, least=4 * rows)
        yield work(
            "sliding window", f"{p} features, {rows} rows", rates, "onepass", missing=missing,
            differs=difference(ways["onepass"](n)[rows:], others, y[:n]),
            errors=window_errors(here) if p == 5 else {},
        )  # fmt: skip


def window_blocks(X: Floats, y: Floats, rows: int, ridge: float = 0.0) -> Way:
    """Return test-then-train of onepass over a window; the default ridge of onepass is 1e-6."""
    return blocks(X, y, ridge=ridge, forgetting=op.forgetting.Window(rows))


def hard_streams() -> Iterator[tuple[str, Floats, Floats]]:
    """Yield six streams of 1,200 rows of five features."""
    rng = np.random.default_rng(0)
    plain, truth, noise = rng.normal(size=(1200, 5)), rng.normal(size=5), rng.normal(size=1200)
    large, near, silent = plain.copy(), plain.copy(), plain.copy()
    large[500] *= 1e6
    near[:, 1] = near[:, 0] + 1e-6 * near[:, 1]
    silent[50:1000, 2:] = 0.0
    for name, X in {
        "plain": plain,
        "one row 1e6 times larger, long gone": large,
        "scales from 1e-3 to 1e4": plain * np.geomspace(1e-3, 1e4, 5),
        "two columns 1e-6 apart": near,
        "offset of 1e4": plain + 1e4,
        "three features zero for 950 rows": silent,
    }.items():
        yield name, X, X @ truth + 0.1 * noise


def window_errors(here: list[Any]) -> dict[str, dict[str, float | None]]:
    """Return the largest error of the last 200 predictions, relative to the mean of their |y|.

    The reference is a batch solution of the 100 rows before each row. Rows whose window does not
    determine all weights are omitted, since each library completes the weights differently.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name, X, y in hard_streams():
        exact = np.full(1200, np.nan)
        for i in range(1000, 1200):
            weights, _, rank, _ = np.linalg.lstsq(X[i - 100 : i], y[i - 100 : i])
            exact[i] = X[i] @ weights if rank == 5 else np.nan
        predictions = {"onepass": window_blocks(X, y, 100)(1200)}
        predictions |= {each.name(100): each(X, y, 0.0, 100).before(1200) for each in here}
        which = np.isfinite(exact)
        found[name] = {}
        for library, each in predictions.items():
            apart = np.abs(each - exact)[which] / np.abs(y[which]).mean()
            found[name][library] = float(apart.max()) if np.isfinite(apart).all() else None
    return found


# -- single rows -----------------------------------------------------------------------------------


def single_rows(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure learn_one with several kinds of rows, and with a read after each row."""
    del limits
    bare = partial(op.RLSRegressor, RIDGE, fit_intercept=False)
    for what, (items, by_hand, settings) in single_cases().items():
        ways = {
            "onepass": learn_rows(partial(bare, **settings), items, result=lambda m: m.coef_),
            HAND: learn_rows(by_hand, items, "learn", result=lambda loop: loop.w.T),
        }
        rates = turns(ways, rounds, least=64, most=len(items))
        differs = difference(ways["onepass"](500), [ways[HAND](500)], 1.0)
        yield work("learn_one", what, rates, "onepass", differs=differs)
    items = single_cases()["1 output"][0]
    for what, (read, read_by_hand) in reads().items():
        ways = {
            "onepass": read_rows(bare, items, read),
            HAND: read_rows(partial(LoopWithDeviation, 10, RIDGE), items, read_by_hand),
            ALONE: learn_rows(bare, items),
        }
        rates = turns(ways, rounds, least=64, most=len(items))
        differs = difference(ways["onepass"](500), [ways[HAND](500)], 1.0)
        alone = {"onepass": rates["onepass"], ALONE: rates.pop(ALONE)}
        yield work("learn_one and a read", what, rates, "onepass", differs=differs)
        yield work("a read, relative to learn_one alone", what, alone, "onepass")


def single_cases() -> dict[str, tuple[list[Any], Callable[[], Any], dict[str, Any]]]:
    """Return arguments of learn_one, the recursion by hand, and settings of onepass."""
    X, y = (part[:20_000] for part in stream(10))
    Y = stream(10, 7)[1][:20_000]
    whole = np.round(3.0 * X).astype(int)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    window = {"forgetting": op.forgetting.Window(100)}
    loop, of_any = partial(Loop, 10, RIDGE), partial(LoopOfAny, 10, RIDGE)

    def items(*parts: Any) -> list[Any]:
        return list(zip(*parts, strict=True))

    return {
        "1 output": (items(X, y.tolist()), loop, {}),
        "7 outputs": (items(X, Y), partial(Loop, 10, RIDGE, 1.0, 7), {}),
        "float32 target": (items(X, y.astype(np.float32)), loop, {}),
        "list row": (items(X.tolist(), y.tolist()), of_any, {}),
        "integer row": (items(whole, y.tolist()), of_any, {}),
        "Window(100)": (items(X, y.tolist()), partial(LoopOfWindow, 10, RIDGE), window),
        "weights": (items(X, y.tolist(), weights.tolist()), loop, {}),
    }


class LoopOfAny(Loop):
    """The recursion for rows of any type."""

    def learn(self, x: Any, y: Any, weight: float = 1.0) -> None:
        super().learn(np.asarray(x, dtype=float), y, weight)


class LoopOfWindow(Loop):
    """The recursion that removes each row when 100 later rows have been learned."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.window: deque[Any] = deque()

    def learn(self, x: Any, y: Any, weight: float = 1.0) -> None:
        self.window.append((x, y))
        super().learn(x, y, weight)
        if len(self.window) > 100:
            super().learn(*self.window.popleft(), -weight)


class LoopWithDeviation(Loop):
    """The recursion with the number of rows and the standard deviation of a new target."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.rows_seen, self.squares = 0, 0.0

    def learn_one(self, x: Any, y: Any) -> None:
        u = self.P.dot(x)
        spread, error = 1.0 + x.dot(u), y - x.dot(self.w)
        self.w += error / spread * u
        self.P -= (u / spread)[:, None] * u
        self.squares += error * error / spread
        self.rows_seen += 1

    def deviation(self, x: Any) -> Any:
        """Return the prediction and its standard deviation."""
        variance = self.squares / max(self.rows_seen - len(x), 1)
        return x.dot(self.w), np.sqrt(variance * (1.0 + x.dot(self.P.dot(x))))


def learn_rows(
    make: Callable[[], Any], items: list[Any], verb: str = "learn_one", result: Any = None
) -> Way:
    """Return a method that learns rows one by one, and returns a result of the learner."""

    def way(n: int) -> Any:
        learner = make()
        learn = getattr(learner, verb)
        for item in items[:n]:
            learn(*item)
        return result and result(learner)

    return way


def reads() -> dict[str, tuple[Any, Any]]:
    """Return what is read after each row, from onepass and from the recursion."""
    found: dict[str, tuple[Any, Any]] = {
        "coef_": (lambda model, _: model.coef_, lambda loop, _: loop.w.copy()),
        "rows_seen_": (lambda model, _: model.rows_seen_, lambda loop, _: loop.rows_seen),
    }
    if "return_std" in inspect.signature(op.RLSRegressor.predict_one).parameters:
        found["predict_one(x, return_std=True)"] = (
            lambda model, x: model.predict_one(x, return_std=True),
            LoopWithDeviation.deviation,
        )
    else:
        found["predict(X, return_std=True)"] = (
            lambda model, x: model.predict(x[None], return_std=True),
            LoopWithDeviation.deviation,
        )
    return found


def read_rows(make: Callable[[], Any], items: list[Any], read: Any) -> Way:
    """Return a method that learns rows and reads after each, and returns the last read."""

    def way(n: int) -> Any:
        learner, found = make(), None
        for x, y in items[:n]:
            learner.learn_one(x, y)
            found = read(learner, x)
        return np.ravel(np.asarray(found, dtype=float))

    return way


# -- pipelines -------------------------------------------------------------------------------------


def pipelines(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure learn_one of pipelines with ten columns."""
    del limits
    X, y = (part[:20_000] for part in stream(10))
    dicts, targets = named(X), y.tolist()
    mixed = [
        {**row, "x0": None if i % 10 == 0 else row["x0"], "x8": "abc"[i % 3], "x9": "de"[i % 2]}
        for i, row in enumerate(dicts)
    ]
    numbers, words = [f"x{j}" for j in range(8)], ["x8", "x9"]

    def river_mixed() -> Any:
        filled = Select(*numbers) | StatImputer()
        return (filled + (Select(*words) | OneHotEncoder())) | BayesianLinearRegression(RIDGE)

    bare = partial(op.RLSRegressor, RIDGE)
    encode, impute = op.features.Encode, op.features.Impute
    cases: dict[str, tuple[Any, Any, Any, Any, Any, str]] = {
        "Pipeline(Scale, RLS), array": (
            lambda: op.Pipeline(op.features.Scale(), bare()), list(X),
            lambda: StandardScaler() | BayesianLinearRegression(RIDGE), dicts, list(X),
            "onepass skips Scale before RLS, whose predictions do not depend on units.",
        ),
        "Pipeline(Encode, Impute, RLS), dict": (
            lambda: op.Pipeline(encode(), impute(), bare()), mixed, river_mixed, mixed, dicts,
            "Eight numbers, one of them missing in every tenth row, and two categories.",
        ),
    }  # fmt: skip
    for what, (ours, rows, river, their_rows, bare_rows, note) in cases.items():
        ways = {
            "onepass": learn_rows(ours, list(zip(rows, targets, strict=True))),
            "River": learn_rows(river, list(zip(their_rows, targets, strict=True))),
            BARE: learn_rows(bare, list(zip(bare_rows, targets, strict=True))),
        }
        rates = turns(ways, rounds, least=64, most=len(rows))
        alone = {"onepass": rates["onepass"], BARE: rates.pop(BARE)}
        yield work("learn_one of a pipeline", what, rates, "onepass", note=note)
        yield work("a pipeline, relative to bare learn_one", what, alone, "onepass")


# -- keys, forgetting ------------------------------------------------------------------------------


def keyed(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure one model per key, with the rows of all keys interleaved."""
    del limits
    if not hasattr(op, "Keyed"):
        print("keyed: skipped, since this version has no op.Keyed", file=sys.stderr)
        return
    here, missing = installed((PolarsOnline, PolarsOLS))
    X, y = stream(5)
    X, y = X[:KEYED_ROWS], y[:KEYED_ROWS]
    model = op.RLSRegressor(RIDGE, fit_intercept=False)
    for count in KEYS:
        keys = np.random.default_rng(count).integers(count, size=len(X))
        rows = frame(X, keys=keys)

        def ours(n: int, rows: Any = rows) -> Any:
            return op.Keyed(model, by="key").test_then_train(rows.head(n), y[:n])

        learners = {each.name(): each(X, y, RIDGE, keys=keys) for each in here}
        ways = {"onepass": ours} | {name: each.run for name, each in learners.items()}
        rates = turns(ways, rounds, least=len(X), most=len(X))
        n = 20_000
        others = [each.before(n) for name, each in learners.items() if AFTER not in name]
        yield work(
            "one model per key", f"{count:,} keys, 5 features", rates, "onepass",
            differs=difference(ours(n), others, y[:n]), missing=missing,
        )  # fmt: skip


def bounded(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure bounded relative to exponential forgetting."""
    del limits
    X, y = stream(100)
    rules = {"Bounded": 0.99, "Exponential": op.forgetting.Exponential(0.99)}
    ways = {name: blocks(X, y, forgetting=rule) for name, rule in rules.items()}
    rates = turns(ways, rounds, least=PIECE[100], most=len(X))
    yield work("bounded forgetting", "100 features", rates, "Bounded")


def work(goal: str, what: str, rates: Any, ours: str, **more: Any) -> Work:
    """Return a work with its goals."""
    name = f"{goal}: {what}"
    required, aim = GOALS.get(name, GOALS[goal])
    return Work(name, "rows", ours, rates, required, aim=aim, **more)
