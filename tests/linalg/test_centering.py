"""Centred rows against an intercept as a column of ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass.linalg.centering import Centering
from oracles import ridge_qr

Floats = NDArray[Any]


def reduce_blocks(
    X: Floats, y: Floats, s: Floats | None, forgetting: float, cuts: list[int]
) -> tuple[Centering, Floats, Floats]:
    """Means after all rows, and the rows that are to be solved without an intercept."""
    center = Centering.start(X.shape[1], 1, free=True)
    A, b = np.zeros((0, X.shape[1])), np.zeros((0, 1))
    for rows in np.split(np.arange(len(X)), cuts):
        if len(rows) == 0:
            continue
        part = center.reduce(X[rows], y[rows, None], None if s is None else s[rows], forgetting)
        h, before, fade = part.scale[:, None], np.sqrt(part.before), np.sqrt(part.fade)
        A = np.vstack((before * A, h * part.X)) * fade
        b = np.vstack((before * b, h * part.Y)) * fade
        center = part.center
    return center, A, b


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(5, 40),
    st.sampled_from([1.0, 0.98, 0.8]),
    st.booleans(),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_centred_rows_have_solution_with_intercept(
    seed: int,
    n: int,
    forgetting: float,
    weighted: bool,  # noqa: FBT001
    cuts: list[int],
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)) + 3.0, rng.normal(size=n) - 7.0
    s = rng.uniform(0.1, 3.0, n) if weighted else None
    center, A, b = reduce_blocks(X, y, s, forgetting, sorted(cuts))
    w = np.linalg.lstsq(A, b)[0][:, 0]
    coef, intercept = ridge_qr(X, y, weights=s, forgetting=forgetting)
    scale = 1.0 + np.abs(coef).max()
    np.testing.assert_allclose(w, coef, atol=1e-9 * scale)
    np.testing.assert_allclose(
        center.targets[0] - center.features @ w, intercept, atol=1e-8 * scale
    )
    u = (np.ones(n) if s is None else s) * forgetting ** np.arange(n - 1, -1, -1.0)
    np.testing.assert_allclose(center.mass, u.sum())
    np.testing.assert_allclose(center.features, u @ X / u.sum())
    np.testing.assert_allclose(np.sum(b**2), u @ (y - u @ y / u.sum()) ** 2)


@pytest.mark.parametrize("size", [1, 100, 1000])
def test_means_far_from_zero_retain_precision(size: int) -> None:
    rng = np.random.default_rng(0)
    X = 1e8 + rng.normal(size=(5000, 1))
    center, A, _ = reduce_blocks(X, np.zeros(5000), None, 1.0, list(range(0, 5000, size)))
    deviations = X - 1e8
    mean = deviations.mean(axis=0)
    np.testing.assert_allclose((center.features - 1e8) + center.features_rest, mean, atol=1e-13)
    np.testing.assert_allclose(A.T @ A, np.sum((deviations - mean) ** 2), rtol=1e-13)
    np.testing.assert_allclose(center.around(X), deviations - mean, atol=1e-13)


def test_centred_constant_feature_is_exactly_zero() -> None:
    X = np.full((50, 1), 0.1)
    for cuts in ([], [1, 2, 30], list(range(50))):
        _, A, _ = reduce_blocks(X, np.zeros(50), None, 0.9, cuts)
        np.testing.assert_array_equal(A[1:], 0.0)


@pytest.mark.parametrize("n", [1, 7])
def test_rows_without_intercept_are_weighted_only(n: int) -> None:
    rng = np.random.default_rng(1)
    X, Y, s = rng.normal(size=(n, 2)), rng.normal(size=(n, 1)), rng.uniform(0.5, 2.0, n)
    center = Centering.start(2, 1, free=False)
    for _ in range(3):
        part = center.reduce(X, Y, s, 0.9)
        np.testing.assert_array_equal(part.X, X)
        np.testing.assert_allclose(part.scale**2, s * 0.9 ** -np.arange(0.0, n))
        center = part.center
        np.testing.assert_array_equal(center.features, 0.0)
    assert part.before * part.fade == pytest.approx(0.9**n)


def test_reduce_accepts_float32_and_leaves_arrays_unchanged() -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(9, 3)).astype(np.float32), rng.normal(size=(9, 1)).astype(np.float32)
    X.flags.writeable = Y.flags.writeable = False
    center = Centering.start(3, 1, free=True).reduce(X, Y, None, 1.0).center
    means = center.features.copy(), center.targets.copy()
    part = center.reduce(X[:1], Y[:1], None, 1.0)
    assert part.X.dtype == part.center.features.dtype == np.float64
    np.testing.assert_array_equal(center.features, means[0])
    np.testing.assert_array_equal(center.targets, means[1])
    np.testing.assert_allclose(means[0], X.astype(float).mean(axis=0))


def test_late_features_and_outputs_have_mean_zero() -> None:
    rng = np.random.default_rng(3)
    X, Y = 1e8 + rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    center = Centering.start(2, 2, free=True).reduce(X, Y, None, 1.0).center
    wide = center.grown(3).with_outputs(np.array([1]), 3)
    np.testing.assert_array_equal(wide.features, [*center.features, 0.0])
    np.testing.assert_array_equal(wide.features_rest, [*center.features_rest, 0.0])
    np.testing.assert_array_equal(wide.targets, [center.targets[0], 0.0, center.targets[1]])
    assert wide.mass == center.mass


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("mean", [0.0, 1e8])
def test_joined_means_equal_means_of_all_rows(mean: float, free: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(4)
    X, Y, s = mean + rng.normal(size=(60, 3)), rng.normal(size=(60, 2)), rng.uniform(0.5, 2.0, 60)
    empty = Centering.start(3, 2, free=free)
    first, second, whole = (
        empty.reduce(X[rows], Y[rows], s[rows], 1.0).center
        for rows in (slice(0, 20), slice(20, 60), slice(0, 60))
    )
    between = first.joined(second)
    found = between.center
    np.testing.assert_allclose(found.mass, whole.mass)
    shift = (found.features - whole.features) + (found.features_rest - whole.features_rest)
    np.testing.assert_allclose(shift, 0.0, atol=1e-14 * max(1.0, mean * 1e-7))
    np.testing.assert_allclose(found.targets, whole.targets, atol=1e-14)
    spread = between.scale**2 * np.outer(between.x, between.x)
    for part in (first, second):
        rows = slice(0, 20) if part is first else slice(20, 60)
        around = X[rows] - part.features - part.features_rest
        spread = spread + (s[rows, None] * around).T @ around
    around = X - whole.features - whole.features_rest
    np.testing.assert_allclose(
        spread, (s[:, None] * around).T @ around, atol=1e-6 if mean else 1e-9
    )
    assert (between.scale > 0.0) == free
    for one, other in ((empty, second), (second, empty)):
        assert one.joined(other).scale == 0.0
        np.testing.assert_array_equal(one.joined(other).center.features, second.features)
