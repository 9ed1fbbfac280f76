"""Differential fuzzing of RLSRegressor: random hard streams against exact predictions.

    PYTHONPATH=src:tests python tests/learners/rls_fuzz.py --cases 20000 --jobs 2 --json out.json
    PYTHONPATH=src:tests python tests/learners/rls_fuzz.py --rule exponential --cases 500
    PYTHONPATH=src:tests python tests/learners/rls_fuzz.py --case 1234

Each case is made from its seed alone. It is learned whole, in random blocks, in the same blocks
with the learner saved, copied and pickled between them, and row by row; by NumPy and by the
compiled loops. A row is predicted before it is learned, and each prediction is checked:

accuracy
    Where the weighted, column-equilibrated condition number of the rows before is at most 1e12:
    error <= 1e3 max(error of float64 batch QR, eps cond reach max(max|y|, |exact|)). QR takes the
    rows from the first to the last and from the last to the first, and `reach` >= 1 is the size of
    the predicted row in units of the columns: without these, QR in another order of the rows fails
    in 2 % of the cases. Windows, which remove rows, may have 100 times the error. With a small
    ridge, a matrix, or plain forgetting, there is a prior of (3e-8 column lengths)², which
    may move the prediction by 4e-15 cond² of its scale. After a gap the past is only a prior, and
    predictions are checked as beyond that condition.
nonfinite
    A prediction is not finite.
cutting, native
    Beyond that condition: two ways to cut the stream, or NumPy and the compiled loops, differ by
    more than 1e-6 max(max|y|, |prediction|). Not from condition 1e15 on, where rounding decides.
    NumPy and the loops are compared where the rows determine the prediction, unless there is a
    ridge that is larger than the rounding of the columns.
large
    Beyond that condition: more than 100 max|y|, times the distance of the row from the rows before,
    if it is farther away than these from each other. 0.5 % of the cases may be so. Where the exact
    prediction is as large it is `large_as_exact`, which is no failure.
persistence
    The same blocks do not give the same predictions, to 1e-9, after save and load, a copy or a
    pickle; with the compiled loops, beyond that condition, it is a matter of `cutting`.
exception, warning
    Anything raised but an OnepassError, and any warning.
refused, refused_in_range, refusal_differs
    The library refused a row; by its size that should not be; only some ways to cut were refused.
    `refused` is no failure.

Some kinds are reported but are no failures (`EXTRA`); besides `large_as_exact` and `refused`:

literal
    As accuracy, with 1e3 max(error of QR from the first row to the last, eps cond max|y|).
deficient
    Below full rank, where the rows determine the prediction all the same, and the independent
    columns have a condition number of at most 1e12: as accuracy.
"""

import argparse
import copy
import json
import math
import multiprocessing
import os
import pickle
import re
import sys
import tempfile
import time as clock
import traceback
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from exact_least_squares import Problem, Reference, Rule, reference

import onepass as op
from onepass import native as compiled
from onepass.errors import OnepassError, WindupWarning

KINDS = (
    "none", "exponential_rows", "exponential_time", "bounded_rows", "bounded_time",
    "directional_rows", "directional_time", "window_rows", "window_time",
)  # fmt: skip
FAILURES = (
    "accuracy", "nonfinite", "cutting", "native", "large", "persistence", "exception", "warning",
    "refused_in_range", "refusal_differs",
)  # fmt: skip
EXTRA = ("literal", "deficient", "large_as_exact", "refused")
EPS = float(np.finfo(np.float64).eps)
UNIT = 4e-15
"""The prior of ridge 0, in squared column lengths, at most."""
CONDITION = 1e12


@dataclass
class Case:
    """A stream and how to learn it.

    Attributes
    ----------
    kind : str
        One of KINDS.
    tags : list of str
        What makes it hard.
    parameters : dict
        Of RLSRegressor.
    X, Y, weights, time : ndarrays, the last two or None
    problem : Problem
        The same for the reference.
    cuts : list of int
    persist : dict
        By the row before which it happens: "save", "copy" or "pickle".
    """

    seed: int
    kind: str
    tags: list[str]
    parameters: dict[str, Any]
    X: Any
    Y: Any
    weights: Any
    time: Any
    problem: Problem
    cuts: list[int]
    persist: dict[int, str]


def kind_of(seed: int) -> str:
    """The rule of a seed."""
    return KINDS[seed % len(KINDS)]


def make(seed: int) -> Case:
    """The case of a seed."""
    rng, kind, tags = np.random.default_rng(seed), kind_of(seed), []
    d, c = int(rng.integers(1, 7)), int(rng.choice([1, 1, 2, 3]))
    n = int(rng.integers(3, 41)) if rng.random() < 0.6 else int(rng.integers(3, 3 * d + 4))
    intercept = bool(rng.random() < 0.6)
    X = _features(rng, n, d, tags)
    Y = _targets(rng, X, c, tags)
    X, Y = _scaled(rng, X, Y, tags)
    weights = _weights(rng, n, tags)
    ridge = _ridge(rng, d, tags)
    start = None
    if rng.random() < 0.15:
        tags.append("start")
        start = rng.integers(-3, 4, size=(c, d)) * 2.0 ** rng.integers(-2, 3)
        if "extreme" in " ".join(tags):
            start = start * 0.0 + 1.0
    flat = c == 1 and bool(rng.random() < 0.8)
    time, exact, rule, given = _forgetting(rng, kind, n, tags)
    inner = np.flatnonzero(rng.random(n - 1) < rng.choice([0.1, 0.3, 0.6])) + 1
    persist = {
        int(i): str(rng.choice(["save", "copy", "pickle"])) for i in inner if rng.random() < 0.4
    }
    parameters = {"ridge": ridge, "forgetting": given, "fit_intercept": intercept}
    if start is not None:
        parameters["initial_coef"] = start[0] if flat else start
    w0 = np.zeros((d, c)) if start is None else start.T
    s = np.ones(n) if weights is None else weights
    problem = Problem(X, Y, s, exact, ridge, intercept, w0, rule)
    Y = Y[:, 0] if flat else Y
    return Case(seed, kind, tags, parameters, X, Y, weights, time, problem, inner.tolist(), persist)


def _features(rng: Any, n: int, d: int, tags: list[str]) -> Any:
    base = rng.choice(["normal", "integer", "binary"], p=[0.5, 0.4, 0.1])
    if base == "normal":
        X = rng.normal(size=(n, d))
    else:
        X = rng.integers(*((-3, 4) if base == "integer" else (0, 2)), size=(n, d)).astype(float)
    if rng.random() < 0.25:
        tags.append("level")
        X = X + np.round(10.0 ** rng.uniform(0, 6, size=d)) * (rng.random(d) < 0.6)
    if d > 1 and rng.random() < 0.15:
        tags.append("near_collinear")
        i, j = rng.choice(d, 2, replace=False)
        X[:, i] = X[:, j] + 10.0 ** rng.uniform(-10, -1) * rng.normal(size=n)
    if rng.random() < 0.35:
        for _ in range(int(rng.integers(1, 3))):
            _column_changed(rng, X, tags)
    if rng.random() < 0.35:
        tags.append("rows_dependent")
        _rows_changed(rng, X)
    if rng.random() < 0.08:
        tags.append("stuck")
        a = int(rng.integers(0, n))
        X[a:] = X[a]
    if rng.random() < 0.1:
        tags.append("row_scales")
        X = X * 2.0 ** rng.integers(-20, 21, size=(n, 1))
    return X


def _column_changed(rng: Any, X: Any, tags: list[str]) -> None:
    """Make a column depend on others, or constant, or silent for some rows."""
    n, d = X.shape
    what = str(rng.choice(["repeated", "multiple", "sum", "constant", "zero", "silent"]))
    j, i, k = (int(v) for v in rng.integers(0, d, size=3))
    tags.append(f"column_{what}")
    if what == "repeated":
        X[:, j] = X[:, i]
    elif what == "multiple":
        X[:, j] = X[:, i] * float(rng.choice([-2.0, 3.0, 0.5, 0.3]))
    elif what == "sum":
        X[:, j] = X[:, i] + X[:, k]
    elif what == "constant":
        X[:, j] = float(rng.choice([1.0, -3.0, 0.1, 1e4]))
    elif what == "zero":
        X[:, j] = 0.0
    else:
        a = int(rng.integers(0, n))
        X[a : int(rng.integers(a, n)) + 1, j] = X[a, j] * (rng.random() < 0.5)


def _rows_changed(rng: Any, X: Any) -> None:
    """Make some rows repeat others, or multiples or sums of them."""
    for i in range(1, len(X)):
        r = rng.random()
        if r < 0.25:
            X[i] = X[rng.integers(0, i)]
        elif r < 0.4:
            X[i] = X[rng.integers(0, i)] * float(rng.integers(-2, 3))
        elif r < 0.5:
            X[i] = X[rng.integers(0, i)] + X[rng.integers(0, i)]


def _targets(rng: Any, X: Any, c: int, tags: list[str]) -> Any:
    n, d = X.shape
    what = str(rng.choice(["noise", "linear", "integer"], p=[0.4, 0.3, 0.3]))
    if what == "integer":
        return rng.integers(-3, 4, size=(n, c)).astype(float)
    size = np.abs(X).max(axis=0)
    Y = (X / np.where(size > 0.0, size, 1.0)) @ rng.normal(size=(d, c)) + rng.normal(size=c)
    if what == "noise":
        Y = Y + 10.0 ** rng.uniform(-6, 0) * rng.normal(size=(n, c))
    if rng.random() < 0.15:
        tags.append("target_level")
        Y = Y + 10.0 ** rng.uniform(0, 6)
    return Y


def _scaled(rng: Any, X: Any, Y: Any, tags: list[str]) -> Any:
    d, r = X.shape[1], rng.random()
    if r < 0.25:
        tags.append("scales")
        X = X * 2.0 ** rng.integers(-27, 28, size=d)
    elif r < 0.33:
        tags.append("extreme_features")
        X = X * 10.0 ** rng.uniform(-150, 150)
    elif r < 0.4:
        tags.append("extreme_columns")
        X = X * 10.0 ** rng.uniform(-150, 150, size=d)
    r = rng.random()
    if r < 0.1:
        tags.append("extreme_targets")
        Y = Y * 10.0 ** rng.uniform(-150, 150)
    elif r < 0.25:
        Y = Y * 10.0 ** rng.uniform(-8, 8)
    return X, Y


def _weights(rng: Any, n: int, tags: list[str]) -> Any:
    r = rng.random()
    if r < 0.55:
        return None
    tags.append("weights")
    if r < 0.7:
        s = np.full(n, 10.0 ** rng.uniform(-12, 12))
    elif r < 0.85:
        s = 10.0 ** rng.uniform(-12, 12, size=n)
    else:
        s = rng.uniform(0.1, 10.0, size=n)
    if rng.random() < 0.15:
        s = s * (rng.random(n) < 0.8)
    return s


def _ridge(rng: Any, d: int, tags: list[str]) -> Any:
    r = rng.random()
    if r < 0.45:
        tags.append("ridge_0")
        return 0.0
    if r < 0.65:
        return 1e-6
    if r < 0.87:
        return float(10.0 ** rng.uniform(-12, 3))
    tags.append("ridge_matrix")
    B = rng.integers(-3, 4, size=(d, d)) + 2.0 * np.eye(d)
    return B.T @ B * 2.0 ** rng.integers(-12, 3)


def _forgetting(rng: Any, kind: str, n: int, tags: list[str]) -> Any:
    """Times, exact times in half-lives or spans, the rule of the reference and of the library."""
    name, _, by = kind.partition("_")
    extra, given = {}, {}
    if name == "directional":
        extra = {"block": int(rng.choice([1, 3, 5, 16])), "scaled": bool(rng.random() < 0.6)}
        if not extra["scaled"]:
            tags.append("unscaled")
        given = extra
    if name == "bounded":
        extra = given = {"floor": float(rng.choice([1.0, 1.0, 0.1, 5.0]))}
    if by == "time":
        time, exact, length = _times(rng, n, tags, window=name == "window")
        if name == "window":
            return time, exact, Rule("window"), op.forgetting.Window(span=length)
        found = getattr(op.forgetting, name.capitalize())(half_life=length, **given)
        return time, exact, Rule(name, **extra), found
    if name == "none":
        return None, None, Rule("exponential", 1.0), 1.0
    if name == "window":
        rows = int(rng.integers(1, n + 2))
        return None, None, Rule("window", rows=rows), op.forgetting.Window(rows)
    factor = float(rng.choice([0.999, 0.98, 0.9, 0.5, 0.25, 0.125]))
    found = getattr(op.forgetting, name.capitalize())(factor, **given)
    return None, None, Rule(name, factor, **extra), found


def _times(rng: Any, n: int, tags: list[str], *, window: bool) -> Any:
    """Times, and the same in half-lives (or spans of a window), in exact eighths."""
    most = int(rng.choice([0, 1, 4, 16]))
    gaps = rng.integers(0, most + 1, size=n)
    if rng.random() < 0.7:
        tags.append("gaps")
        for _ in range(int(rng.integers(1, 4))):
            gaps[int(rng.integers(1, n))] = int(rng.integers(0, 12 if window else 8 * 400 + 1))
    gaps[0] = 0
    eighths = np.cumsum(gaps).astype(np.int64)
    exact = [Fraction(int(t), 8) for t in eighths]
    what = str(rng.choice(["float", "integer", "date"], p=[0.5, 0.3, 0.2]))
    if what == "float":
        unit = 2.0 ** int(rng.integers(-10, 20))
        origin = float(rng.choice([0.0, 0.0, 2.0**20]))
        return (eighths / 8 + origin) * unit, exact, unit
    if what == "integer":
        big = rng.random() < 0.5
        if big:
            tags.append("nanoseconds")
        origin, unit = (1_700_000_000_000_000_123, 125) if big else (0, 1)
        kind = np.uint64 if eighths[-1] % 2 else np.int64
        return (origin + eighths * unit).astype(kind), exact, 8 * unit
    step = str(rng.choice(["ms", "s", "h"]))
    moment = np.datetime64("2024-03-30T22:00:00", "ns" if eighths[-1] % 2 else "us")
    return moment + eighths * np.timedelta64(1, step), exact, f"8{step}"


@dataclass
class Run:
    """Predictions (n, c) of the first ``stop`` rows; what was raised at which row."""

    predictions: Any
    stop: int = 0
    refused: str | None = None
    raised: str | None = None
    where: int = -1


def learn(case: Case, cuts: list[int] | None, *, native: bool, persist: bool = False) -> Run:
    """Predict and learn all rows: row by row if ``cuts`` is None, else in blocks."""
    loops = compiled.loops
    n = len(case.X)
    run = Run(np.full(case.problem.Y.shape, np.nan))
    try:
        if not native:
            compiled.loops = None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", WindupWarning)  # the streams cause it on purpose
            model = op.RLSRegressor(**case.parameters)
            edges = list(range(n + 1)) if cuts is None else [0, *cuts, n]
            for a, b in pairwise(edges):
                run.where = a
                if persist and a in case.persist:
                    model = _again(model, case.persist[a])
                run.predictions[a:b] = _step(model, case, a, b, one=cuts is None)
                run.stop = b
    except OnepassError as error:
        run.refused = f"{type(error).__name__}: {error}"
    except Warning as error:
        run.raised = f"warning: {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        run.raised = f"exception: {type(error).__name__} at {place}: {error}"
    finally:
        compiled.loops = loops
    return run


def _step(model: Any, case: Case, a: int, b: int, *, one: bool) -> Any:
    s = None if case.weights is None else case.weights[a:b]
    if not one:
        time = {} if case.time is None else {"time": case.time[a:b]}
        found = model.test_then_train(case.X[a:b], case.Y[a:b], sample_weight=s, **time)
        return np.reshape(found, (b - a, -1))
    found = np.reshape(model.predict_one(case.X[a]), (1, -1))
    time = {} if case.time is None else {"time": case.time[a]}
    weight = 1.0 if s is None else float(s[0])
    target = float(case.Y[a]) if case.Y.ndim == 1 else case.Y[a]
    model.learn_one(case.X[a], target, sample_weight=weight, **time)
    return found


def _again(model: Any, how: str) -> Any:
    if how == "copy":
        return copy.deepcopy(model)
    if how == "pickle":
        return pickle.loads(pickle.dumps(model))  # noqa: S301
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "m.onepass"))
        op.save(model, path)
        return op.load(path)


def ways(case: Case) -> dict[str, Run]:
    """All ways to learn a case, by name."""
    runs = {
        "numpy whole": learn(case, [], native=False),
        "numpy blocks": learn(case, case.cuts, native=False),
        "numpy rows": learn(case, None, native=False),
    }
    if compiled.loops is not None:
        runs["native whole"] = learn(case, [], native=True)
        runs["native blocks"] = learn(case, case.cuts, native=True)
        if case.kind in {"none", "exponential_rows", "bounded_rows"}:
            runs["native rows"] = learn(case, None, native=True)
    if case.persist:
        by = "native" if compiled.loops is not None and case.seed % 2 else "numpy"
        runs[f"{by} persisted"] = learn(case, case.cuts, native=by == "native", persist=True)
    return runs


@dataclass
class Result:
    """What a case has shown.

    Attributes
    ----------
    failures : dict
        By kind: the worst ratio to what is allowed, or 1.
    notes : list of str
    """

    seed: int
    kind: str
    tags: list[str]
    failures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> set[str]:
        """The failures that the criteria name."""
        return set(self.failures) - set(EXTRA)

    def add(self, kind: str, ratio: float, note: str = "") -> None:
        if not ratio <= self.failures.get(kind, -1.0):
            self.failures[kind] = ratio
        if note and len(self.notes) < 40:
            self.notes.append(f"{kind}: {note}")


def check(seed: int, *, verbose: bool = False) -> Result:
    """Learn the case of a seed in all ways, and check it."""
    case = make(seed)
    exact = reference(case.problem)
    runs = ways(case)
    result = Result(seed, case.kind, case.tags)
    size = _size(case)
    _raised(result, case, exact, runs)
    first = _first(case)
    for name, run in runs.items():
        _checked(result, name, run, exact, case, first)
    apart = ~(exact.defined & (exact.condition <= CONDITION))
    for by in ("numpy", "native"):
        found = {name: run for name, run in runs.items() if name.startswith(by)}
        cut = apart & (np.isinf(exact.condition) | (exact.condition < 1e15))
        cut &= _resolved(case, exact)
        _agree(result, "cutting", list(found.values()), cut, size, first)
        if f"{by} persisted" in found:  # compiled loops are opened again, maybe at another row
            same, rows = found[f"{by} blocks"], ~apart if by == "native" else np.ones_like(apart)
            pair = [found[f"{by} persisted"], same]
            _agree(result, "persistence", pair, rows, size, first, 1e-9)
    for name in ("whole", "blocks", "rows"):
        if f"native {name}" in runs:
            pair = [runs[f"{by} {name}"] for by in ("numpy", "native")]
            _agree(result, "native", pair, cut & _resolved(case, exact), size, first)
    if verbose:
        _show(case, exact, runs, result)
    return result


def _has_unit_prior(case: Case) -> bool:
    """Whether there is a prior of 3e-8 column lengths: beside a small ridge, or a fading one."""
    ridge = case.problem.ridge
    with np.errstate(over="ignore"):
        sums = float((case.problem.weights @ case.X**2).max())
    return case.kind.startswith("exponential") or np.ndim(ridge) == 2 or ridge < UNIT * sums


def _is_faint(case: Case) -> bool:
    """Whether the ridge is less than the rounding of the columns, and thus than the prior."""
    ridge, used = case.problem.ridge, case.problem.weights > 0.0
    length = float(np.abs(case.X[used]).max(initial=0.0))
    return bool(np.ndim(ridge) == 0 and 0.0 < ridge < (1e-15 * length) ** 2)


def _resolved(case: Case, exact: Reference) -> Any:
    """The rows of which rounding does not decide how dependent columns share their effect."""
    if not _has_unit_prior(case) and not _is_faint(case):
        return np.ones(len(case.X), bool)
    return exact.determined & (exact.reduced <= 1e7)


def _reach(case: Case, i: int) -> float:
    """How far a row is from the rows before it, in units of their distances, at least 1."""
    before = case.X[:i][case.problem.weights[:i] > 0.0]
    origin = before[0] if case.problem.intercept else 0.0
    size, away = np.abs(before - origin).max(axis=0), np.abs(case.X[i] - origin)
    return float((away[size > 0.0] / size[size > 0.0]).max(initial=1.0))


def _raised(result: Result, case: Case, exact: Reference, runs: dict[str, Run]) -> None:
    """Check what was raised."""
    refused = {name for name, run in runs.items() if run.refused}
    for name, run in runs.items():
        if run.raised:
            result.add(run.raised.split(":")[0], 1.0, f"{name}, row {run.where}: {run.raised}")
        if run.refused:
            result.add("refused", 1.0, f"{name}, row {run.where}: {run.refused}")
    if refused and _in_range(case, exact):
        result.add("refused_in_range", 1.0)
    if refused and len(refused) < len([run for run in runs.values() if not run.raised]):
        result.add("refusal_differs", 1.0, f"refused only by {sorted(refused)}")


def _size(case: Case) -> float:
    """max|y|; with w₀, also of what it predicts."""
    problem = case.problem
    return float(max(np.abs(problem.Y).max(), np.abs(problem.X @ problem.start).max()))


def _first(case: Case) -> int:
    """The first row that a row was learned before: the number of outputs is not known earlier."""
    used = np.flatnonzero(case.problem.weights > 0.0)
    return int(used[0]) + 1 if len(used) else len(case.X)


def _in_range(case: Case, exact: Reference) -> bool:
    """Whether the rows, and the weights that fit them, are well within float64's squares."""
    problem = case.problem
    roots = np.sqrt(problem.weights[problem.weights > 0.0])
    top = max(float(np.abs(problem.X).max()), _size(case), 1.0) * float(roots.max(initial=1.0))
    return top < 1e145 and exact.largest < 145 * math.log2(10)


def _checked(result: Result, name: str, run: Run, exact: Reference, case: Case, first: int) -> None:
    """Check the predictions of one way to learn."""
    size, times = _size(case), 1e5 if case.kind.startswith("window") else 1e3
    prior = UNIT if _has_unit_prior(case) else 0.0
    for i in range(first, run.stop):
        found = run.predictions[i]
        if not np.isfinite(found).all():
            result.add("nonfinite", math.inf, f"{name}, row {i}")
            continue
        truth = exact.predictions[i]
        error = float(np.abs(found - truth).max())
        well = exact.condition[i] <= CONDITION
        at = f"{name}, row {i}, condition {exact.condition[i]:.1e}"
        if well and exact.defined[i]:
            batch, backward = (
                float(np.nan_to_num(np.abs(found_by[i] - truth).max(), nan=0.0))
                for found_by in (exact.batch, exact.reversed)
            )
            least = EPS * exact.condition[i]
            if error > (allowed := 1e3 * max(batch, least * size)):
                result.add("literal", error / allowed)
            scale = exact.reach[i] * max(size, float(np.abs(truth).max()))
            allowed = times * max(batch, backward, least * scale)
            allowed += prior * exact.condition[i] ** 2 * scale
            if error > allowed:
                note = f"{at}: error {error / size:.1e} max|y|, allowed {allowed / size:.1e}"
                result.add("accuracy", error / allowed, note)
        elif not well:
            most = float(np.abs(found).max())
            if most > 100 * size * _reach(case, i) and not _is_faint(case):
                as_exact = np.abs(truth).max() > 50 * size
                kind = "large_as_exact" if as_exact else "large"
                result.add(kind, most / size / 100, f"{at}: {most / size:.1e} max|y|")
            if not math.isfinite(exact.condition[i]) and exact.defined[i]:
                _below_full_rank(result, i, error, exact, size, at)


def _below_full_rank(
    result: Result, i: int, error: float, exact: Reference, size: float, at: str
) -> None:
    if exact.reduced[i] > CONDITION:
        return
    scale = max(size, float(np.abs(exact.predictions[i]).max()))
    if exact.determined[i]:
        allowed = 1e3 * EPS * exact.reduced[i] * scale
        if error > allowed:
            result.add("deficient", error / allowed, f"{at}: error {error / scale:.1e}")


def _agree(
    result: Result,
    kind: str,
    runs: list[Run],
    rows: Any,
    size: float,
    first: int,
    least: float = 1e-6,
) -> None:
    """Check that several ways to learn give the same at some rows."""
    if len(runs) < 2:
        return
    for i in range(first, min(run.stop for run in runs)):
        found = np.array([run.predictions[i] for run in runs])
        if not rows[i] or not np.isfinite(found).all():
            continue
        apart = float((found.max(axis=0) - found.min(axis=0)).max())
        allowed = least * max(size, float(np.abs(found).max()))
        if apart > allowed:
            result.add(kind, apart / allowed, f"row {i}: {apart / allowed * least:.1e} apart")


def _numbers_after_row(note: str) -> list[str]:
    return re.findall(r"row (\d+)", note)


def _show(case: Case, exact: Reference, runs: dict[str, Run], result: Result) -> None:
    """Print all of a case."""
    np.set_printoptions(precision=17, linewidth=180)
    problem = case.problem
    print(f"case {case.seed}: {case.kind}, {problem.rule}, tags {case.tags}")
    print(f"RLSRegressor(**{case.parameters!r})")
    print(f"X = np.array({case.X.tolist()!r})\ny = np.array({case.Y.tolist()!r})")
    if case.weights is not None:
        print(f"weights = np.array({case.weights.tolist()!r})")
    if case.time is not None:
        print(f"time = {case.time!r}\nhalf-lives: {[float(t) for t in problem.time or []]}")
    print(f"cuts {case.cuts}, persist {case.persist}, max|y| {_size(case):.6g}")
    named = {int(word) for note in result.notes for word in _numbers_after_row(note)}
    for i in range(len(case.X)):
        if i not in named:
            continue
        print(
            f"row {i}: cond {exact.condition[i]:.1e} (independent columns {exact.reduced[i]:.1e}), "
            f"determined {exact.determined[i]}, defined {exact.defined[i]}\n"
            f"    {'exact':18s} {exact.predictions[i]}\n    {'batch QR':18s} {exact.batch[i]}"
        )
        for name, run in runs.items():
            print(f"    {name:18s} {run.predictions[i]}")
    for name, run in runs.items():
        if run.refused or run.raised:
            print(f"{name}: row {run.where}: {run.refused or run.raised}")
    print("\n".join(result.notes))
    print({kind: f"{ratio:.1e}" for kind, ratio in result.failures.items()})


def table(results: list[Result]) -> str:
    """Failures by rule and kind."""
    columns = [k for k in (*FAILURES, *EXTRA) if any(k in r.failures for r in results)]
    groups = [(kind, [r for r in results if r.kind == kind]) for kind in KINDS]
    lines = [f"{'rule':18s}{'cases':>7s}{'failed':>8s}" + "".join(f"{k:>17s}" for k in columns)]
    for name, group in [*groups, ("all", results)]:
        if group:
            counts = Counter(k for r in group for k in r.failures)
            failed = sum(bool(r.failed) for r in group)
            cells = "".join(f"{counts[k] or '.':>17}" for k in columns)
            lines.append(f"{name:18s}{len(group):7d}{failed:8d}{cells}")
    return "\n".join(lines)


def by_tag(results: list[Result]) -> str:
    """The share of failed cases by what makes them hard."""
    tags: dict[str, list[bool]] = defaultdict(list)
    for r in results:
        for tag in sorted({*r.tags, *([] if r.tags else ["plain"])}):
            tags[tag].append(bool(r.failed))
    rows = sorted(tags.items(), key=lambda item: -sum(item[1]) / len(item[1]))
    return "\n".join(f"{t:20s}{len(f):7d}{sum(f):7d}{sum(f) / len(f):8.1%}" for t, f in rows)


def seeds_of(results: list[Result], most: int) -> str:
    """The seeds of each rule and kind of failure, the worst first."""
    lines = []
    for kind in KINDS:
        for failure in (*FAILURES, *EXTRA):
            found = [r for r in results if r.kind == kind and failure in r.failures]
            found.sort(key=lambda r: -r.failures[failure])
            if found:
                shown = ", ".join(f"{r.seed} ({r.failures[failure]:.0e})" for r in found[:most])
                lines.append(f"{kind} {failure}: {len(found)}: {shown}")
    return "\n".join(lines)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--rule", default="", help="only rules whose name begins so")
    parser.add_argument("--case", type=int, help="one seed, in full detail")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--tags", action="store_true", help="also failures by what makes them hard")
    parser.add_argument("--list", type=int, default=8, help="seeds to list of each rule and kind")
    given = parser.parse_args()
    if given.case is not None:
        return len(check(given.case, verbose=True).failed)
    seeds, seed = [], given.seed
    while len(seeds) < given.cases:
        if kind_of(seed).startswith(given.rule):
            seeds.append(seed)
        seed += 1
        if seed - given.seed > 100 * given.cases + 100:
            parser.error(f"--rule must begin the name of one of {', '.join(KINDS)}")
    start = clock.perf_counter()
    if given.jobs > 1:
        with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
            results = list(pool.imap(check, seeds, chunksize=20))
    else:
        results = [check(seed) for seed in seeds]
    print(table(results))
    if given.tags:
        print(by_tag(results))
    print(seeds_of(results, given.list))
    if given.json:
        rows = [
            {"seed": r.seed, "kind": r.kind, "tags": r.tags, "failures": r.failures,
             "notes": r.notes}
            for r in results
            if r.failures
        ]  # fmt: skip
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(f"{len(results)} cases in {clock.perf_counter() - start:.0f} s")
    large = sum("large" in r.failures for r in results)
    return int(large > 0.005 * len(results) or any(r.failed - {"large"} for r in results))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
