"""The compiled core of least squares against the same algorithm in NumPy, row by row."""

from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from onepass import native
from onepass.memory import least_squares, plain
from onepass.memory.vector import (
    Fading,
    Flag,
    Parts,
    Slot,
    Window,
    WindowSlot,
    experts,
    numbers,
)
from onepass.types import Floats
from sampling import sample

pytestmark = pytest.mark.skipif(native.loops is None, reason="without compiled loops")

SEEDS = range(4)
EXACT = [Slot.FEATURES, Slot.OUTPUTS, Slot.FLAGS, Slot.FACTOR, Slot.LEVEL, Slot.RIDGE, Slot.PRIOR]
EXACT += [Slot.ROWS, Slot.TURN, Slot.FRESH]
FACTORS = tuple(1.0 - 0.5**k for k in range(1, 9))


class Stream(NamedTuple):
    """Rows, and what `least_squares.learn` takes besides them."""

    X: Floats
    Y: Floats
    weights: Floats | None = None
    fades: Floats | None = None
    leaving: Floats | None = None

    def between(self, first: int, last: int) -> "Stream":
        parts: list[Any] = [None if part is None else part[first:last] for part in self]
        return Stream(*parts)


def stream(rng: np.random.Generator, n: int, d: int, c: int) -> Stream:
    """Correlated features of several scales, far from the origin; targets that drift."""
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    X = 3.0 + X * 10.0 ** rng.integers(-2, 3, size=d)
    w = rng.normal(size=(d, c)) / np.abs(X).max(axis=0)[:, None]
    Y = X @ w + np.linspace(0.0, 2.0, n)[:, None] * rng.normal(size=c)
    return Stream(X, Y + 0.1 * rng.normal(size=(n, c)))


def gaps(rng: np.random.Generator, n: int, deepest: float) -> Floats:
    """log2 of fades by time: none, short, and a few long gaps."""
    fades = -rng.exponential(0.05, size=n) * (rng.random(n) < 0.7)
    fades[0] = 0.0
    fades[rng.integers(n // 3, n, size=3)] = deepest * rng.random(3)
    return np.asarray(fades)


def learned(
    vector: Floats, rows: Stream, cuts: list[int], loops: ModuleType | None
) -> tuple[Floats, Floats]:
    """The vector after the rows in blocks, and their errors."""
    vector, errors = vector.copy(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", loops)
        for first, last in zip([0, *cuts], [*cuts, len(rows.X)], strict=True):
            block, finite = least_squares.learn(vector, *rows.between(first, last))
            assert finite
            errors.append(block)
    return vector, np.concatenate(errors)


def random_cuts(rng: np.random.Generator, n: int) -> list[int]:
    return sorted(set(rng.integers(1, n, size=5).tolist()))


def assert_same_state(one: Floats, two: Floats, rtol: float, *, sizes: bool = True) -> None:
    """Compare plain vectors; with ``sizes``, all their parts."""
    a, b = Parts(one), Parts(two)
    d, c = a.d, a.c
    np.testing.assert_array_equal(a.head[EXACT], b.head[EXACT])
    inexact = [Slot.MASS, Slot.FADED]
    np.testing.assert_allclose(a.head[inexact], b.head[inexact], rtol=1e-9, atol=1e-12)
    D = np.diagonal(a.T)
    np.testing.assert_allclose(D, np.diagonal(b.T), rtol=rtol)
    root = np.sqrt(D)[:, None]  # U relative to the lengths of columns
    scale = np.sqrt(np.where(a.sums > 0.0, a.sums, 1.0))
    U, V = np.triu(a.T, 1), np.triu(b.T, 1)
    np.testing.assert_allclose(U * root / scale, V * root / scale, atol=rtol)
    np.testing.assert_allclose(a.sums, b.sums, rtol=rtol)
    size = np.abs(a.means).max()
    np.testing.assert_allclose(a.means + a.rests, b.means + b.rests, rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_allclose(a.squares, b.squares, rtol=rtol, atol=1e-12)
    np.testing.assert_array_equal(a.start, b.start)
    if a.free:
        np.testing.assert_array_equal(a.last, b.last)
    np.testing.assert_allclose(a.active, b.active, rtol=1e-12)
    if sizes:
        np.testing.assert_allclose(a.head[Slot.DUE], b.head[Slot.DUE], atol=1e-8)
        np.testing.assert_allclose(a.visited, b.visited, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(a.energy, b.energy, rtol=1e-9)
        np.testing.assert_allclose(a.prior, b.prior, rtol=1e-6)
    assert not a.T[:, d + c :].any()
    assert not b.T[:, d + c :].any()


def assert_same_fit(one: Floats, two: Floats, rtol: float) -> None:
    fits = [least_squares.fitted(vector.copy()) for vector in (one, two)]
    for a, b in zip(*fits, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(a).max())


class Case(NamedTuple):
    """A kind of vector, and how its rows are changed."""

    fading: Fading = Fading()
    ridge: Any = 0.1
    free: bool = True
    initial: bool = False
    prior: float = 0.0
    deepest: float | None = None
    weighted: bool = False
    change: Callable[[Floats], None] | None = None
    c: int = 2


def late_column(X: Floats) -> None:
    X[: len(X) // 3, -1] = X[0, -1]
    X[: len(X) // 4, 0] = 0.0


def dependent_columns(X: Floats) -> None:
    X[:, -1] = 2.0 * X[:, 0] - 1.0


CASES = {
    "factor 1": Case(),
    "no intercept": Case(free=False),
    "factor 0.99": Case(Fading(0.99), weighted=True),
    "factor 0.5": Case(Fading(0.5), 1.0, c=1),
    "one output": Case(weighted=True, c=1),
    "initial": Case(Fading(0.95), initial=True, weighted=True),
    "initial, no intercept": Case(Fading(0.95), initial=True, free=False),
    "by time": Case(deepest=-6.0, weighted=True),
    "by time, long gaps": Case(deepest=-60.0),
    "by time, no intercept": Case(deepest=-60.0, free=False, initial=True),
    "by time, no ridge": Case(ridge=0.0, deepest=-60.0),
    "bounded": Case(Fading(0.97, 2.0, held=True), weighted=True),
    "bounded, no intercept": Case(Fading(0.97, 1.0, held=True), free=False, initial=True),
    "bounded by time": Case(Fading(1.0, 1.0, held=True), deepest=-20.0),
    "bounded, not held": Case(Fading(0.9, 0.1), initial=True),
    "bounded, no ridge": Case(Fading(0.9, 1.0), 0.0, change=late_column),
    "held": Case(Fading(0.9, held=True), initial=True, weighted=True),
    "held by time": Case(Fading(1.0, held=True), initial=True, deepest=-30.0),
    "no ridge": Case(ridge=0.0, weighted=True),
    "no ridge, no intercept": Case(ridge=0.0, free=False),
    "no ridge, fading": Case(Fading(0.98), ridge=0.0),
    "no ridge, late column": Case(ridge=0.0, change=late_column),
    "no ridge, initial": Case(ridge=0.0, initial=True, change=late_column),
    "prior": Case(prior=0.5, initial=True, weighted=True),
    "prior, no ridge": Case(ridge=0.0, prior=0.5, change=late_column),
    "prior, fading": Case(Fading(0.95), prior=0.5, free=False, change=late_column),
    "matrix": Case(ridge="matrix", initial=True, weighted=True),
    "matrix, fading": Case(Fading(0.95), "matrix", free=False),
}


def drawn(case: Case, rng: np.random.Generator, n: int) -> tuple[Floats, Stream]:
    d = int(rng.integers(2, 20))
    rows = stream(rng, n, d, case.c)
    if case.change is not None:
        case.change(rows.X)
    if case.weighted:
        rows = rows._replace(weights=rng.uniform(0.2, 3.0, size=n))
    if case.deepest is not None:
        rows = rows._replace(fades=gaps(rng, n, case.deepest))
    initial = rng.normal(size=(d, case.c)) if case.initial else np.zeros((d, case.c))
    ridge = rng.normal(size=(d + 1, d)) if case.ridge == "matrix" else case.ridge
    vector = least_squares.start(case.fading, ridge, initial, free=case.free, prior=case.prior)
    return vector, rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_compiled_core_equals_plain(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, *name.encode()])
    start, rows = drawn(CASES[name], rng, 150)
    scale = 1e-7 * np.abs(rows.Y).max()
    expected, errors = learned(start, rows, [], None)
    ways = {"block": [], "rows": list(range(1, 150)), "cuts": random_cuts(rng, 150)}
    for cuts in ways.values():
        vector, found = learned(start, rows, cuts, native.loops)
        np.testing.assert_allclose(found, errors, rtol=1e-6, atol=scale)
        assert_same_state(vector, expected, 1e-7)
        assert_same_fit(vector, expected, 1e-6)


def full_rank_rows(rng: np.random.Generator, n: int, d: int) -> Stream:
    """Rows of about the same size, so that few digits are lost when some leave."""
    X, w = 2.0 + rng.normal(size=(n, d)), rng.normal(size=(d, 2))
    Y = X @ w + np.linspace(0.0, 2.0, n)[:, None] + 0.1 * rng.normal(size=(n, 2))
    return Stream(X, Y, rng.uniform(0.5, 2.0, size=n))


def assert_same_window(one: Floats, two: Floats) -> None:
    a, b = Window(one), Window(two)
    slots = [WindowSlot.CAPACITY, WindowSlot.STORED, WindowSlot.NEXT, WindowSlot.LENGTH]
    np.testing.assert_array_equal(a.head[slots], b.head[slots])
    np.testing.assert_allclose(a.ring, b.ring, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.empty, b.empty, rtol=1e-9)


WINDOWS = {
    "rows": (Fading(window=30), 0.1, 0.0, False),
    "no ridge": (Fading(window=30), 0.0, 0.0, False),
    "initial": (Fading(window=25), 2.0, 0.0, True),
    "prior": (Fading(window=30), 0.1, 0.5, True),
    "no ridge, factor": (Fading(0.97, held=True, window=40), 0.0, 0.0, False),
}


@pytest.mark.parametrize(
    ("name", "free", "seed"), sample(list(product(WINDOWS, [True, False], SEEDS)), 16, "windows")
)
def test_windows(name: str, seed: int, *, free: bool) -> None:
    fading, ridge, prior, started = WINDOWS[name]
    rng = np.random.default_rng([seed, free, *name.encode()])
    d, n = int(rng.integers(2, 7)), 260
    rows = full_rank_rows(rng, n, d)
    initial = rng.normal(size=(d, 2)) * started
    start = least_squares.start(fading, ridge, initial, free=free, prior=prior)
    expected, errors = learned(start, rows, [], None)
    for cuts in ([], list(range(1, n)), random_cuts(rng, n)):
        vector, found = learned(start, rows, cuts, native.loops)
        np.testing.assert_allclose(found, errors, rtol=1e-6, atol=1e-6)
        assert_same_window(vector, expected)
        assert_same_fit(vector, expected, 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_leave_at_times_of_the_caller(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 7)), 200
    leaving, stored = np.zeros(n), 0
    for i in range(n):
        leaving[i] = min(stored, rng.choice([0, 0, 1, 1, 2, 90])) if stored > 40 else 0
        stored += 1 - int(leaving[i])
    rows = full_rank_rows(rng, n, d)._replace(leaving=leaving, fades=-rng.random(n) * (seed % 2))
    fading = Fading(held=True, window=0)
    ridge = 0.0 if seed % 2 else 0.1  # that is put back at other rows after a refit
    start = least_squares.start(fading, ridge, np.zeros((d, 2)), free=True)
    start = least_squares.reserve(start, n)
    expected, errors = learned(start, rows, [], None)
    for cuts in ([], list(range(1, n)), random_cuts(rng, n)):
        vector, found = learned(start, rows, cuts, native.loops)
        np.testing.assert_allclose(found, errors, rtol=1e-6, atol=1e-6)
        assert_same_window(vector, expected)
        assert_same_fit(vector, expected, 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("indicators", [False, True])
def test_mixtures(seed: int, *, indicators: bool) -> None:
    rng = np.random.default_rng([seed, indicators])
    d, n, c = int(rng.integers(2, 12)), 150, 3
    rows = stream(rng, n, d, c)._replace(weights=rng.uniform(0.5, 2.0, size=n))
    if indicators:
        rows = rows._replace(Y=np.eye(c)[rows.Y.argmax(axis=1)])
    fading = Fading(level=0.1, mixture=FACTORS)
    initial = np.zeros((d, c))
    start = least_squares.start(fading, 0.1, initial, free=True, indicators=indicators)
    assert bool(Parts(start).flags & Flag.INDICATORS) == indicators
    expected, errors = learned(start, rows, [], None)
    for cuts in ([], list(range(1, n)), random_cuts(rng, n)):
        vector, found = learned(start, rows, cuts, native.loops)
        np.testing.assert_allclose(found, errors, rtol=1e-5, atol=1e-6 * np.abs(rows.Y).max())
        np.testing.assert_allclose(numbers(vector), numbers(expected), rtol=1e-5, atol=1e-9)
        for one, two in zip(experts(vector), experts(expected), strict=True):
            assert_same_state(one, two, 1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_continues_from_the_vector_of_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 7)), 160
    rows = full_rank_rows(rng, n, d)
    fadings = (
        Fading(0.95, 1.0, held=True),
        Fading(held=True),
        Fading(window=30),
        Fading(level=0.1, mixture=FACTORS),
    )
    for fading in fadings:
        start = least_squares.start(fading, 0.1, np.zeros((d, 2)), free=True)
        expected, errors = learned(start, rows, [], native.loops)
        for order in ((None, native.loops), (native.loops, None)):
            vector, found = start, []
            for i, first in enumerate(range(0, n, 20)):
                block = rows.between(first, first + 20)
                vector, errors_of_block = learned(vector, block, [], order[i % 2])
                found.append(errors_of_block)
            np.testing.assert_allclose(np.concatenate(found), errors, rtol=1e-6, atol=1e-6)
            assert_same_fit(vector, expected, 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("free", [True, False])
def test_rotate_adds_and_removes_rows(seed: int, *, free: bool) -> None:
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 20)), 300
    start = least_squares.start(Fading(), 1.0, rng.normal(size=(d, 2)), free=free)
    rows = np.zeros((n, Parts(start).stride))
    rows[:, : d + 2] = rng.normal(size=(n, d + 2))
    rows[n // 2 :] = rows[: n - n // 2]  # and half of each is removed again
    weights = rng.uniform(0.5, 2.0, size=n)
    weights[n // 2 :] = -0.5 * weights[: n - n // 2]
    one, two, copy = start.copy(), start.copy(), rows.copy()
    assert native.loops is not None
    assert native.loops.ls_rotate(one, n, rows, weights)
    assert plain.rotate(two, rows, weights)
    np.testing.assert_array_equal(rows, copy)
    assert_same_state(one, two, 1e-8)
    plain.solve(Parts(two))
    np.testing.assert_allclose(least_squares.fitted(one)[0].T, Parts(two).w, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("window", [None, 30])
def test_overflow_is_reported(window: int | None) -> None:
    start = least_squares.start(Fading(window=window), 1.0, np.zeros((2, 1)), free=True)
    X, Y = np.array([[1.0, 2.0], [1e200, 1.0], [3.0, 1.0]]), np.ones((3, 1))
    assert not plain.learn(start.copy(), X, Y, None, None, None)[1]
    assert not least_squares.learn(start.copy(), X, Y)[1]


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_the_row_after_a_gap_is_predicted_by_the_past(level: float) -> None:
    rng = np.random.default_rng(0)
    rows = full_rank_rows(rng, 30, 3)._replace(fades=np.where(np.arange(30) == 20, -3000.0, 0.0))
    start = least_squares.start(Fading(1.0, level, held=True), 1.0, np.zeros((3, 2)), free=True)
    fitted = least_squares.fitted(learned(start, rows.between(0, 20), [], native.loops)[0])
    for loops in (None, native.loops):
        _, errors = learned(start, rows, [], loops)
        expected = rows.Y[20] - least_squares.scores(fitted, rows.X[20:21])[0]
        np.testing.assert_allclose(errors[20], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("experts_of_mixture", [2, 8])
def test_weigh(experts_of_mixture: int) -> None:
    assert native.loops is not None
    rng, K, n, c = np.random.default_rng(0), experts_of_mixture, 60, 3
    Y, each = (
        rng.normal(size=(n, c)),
        rng.normal(size=(K, n, c)) * np.arange(1, K + 1)[:, None, None],
    )
    one = np.concatenate((np.full(K * c, 1.0 / K), np.zeros(c), [-20.0]))
    two, errors = one.copy(), np.empty((n, c))
    native.loops.mix(K, n, c, False, Y, None, each, one, errors)  # noqa: FBT003
    np.testing.assert_allclose(plain.weigh(two, Y, None, each), errors, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(two, one, rtol=1e-10)
