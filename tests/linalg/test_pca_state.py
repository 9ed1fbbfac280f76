"""Incremental PCA: exact without truncation, independent of block boundaries."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from onepass.linalg.pca import IncrementalPCAState


def random_rows(n: int, d: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.geomspace(1.0, 0.05, d) + rng.normal(size=d)


def fit_blocks(
    axes: IncrementalPCAState, X: Any, s: Any = None, cut: int = 10**9
) -> IncrementalPCAState:
    for start in range(0, len(X), cut):
        piece = slice(start, start + cut)
        begin = 0
        for end in axes.checkpoints(len(X[piece])):
            here = slice(start + begin, start + end)
            axes = axes.taken(X[here], None if s is None else s[here])
            begin = end
    return axes


def assert_same_axes(one: Any, other: Any, atol: float = 1e-9) -> None:
    assert one.directions.shape == other.directions.shape
    assert_allclose(one.lengths, other.lengths, rtol=1e-9)
    overlap = np.abs(one.directions @ other.directions.T)
    assert_allclose(overlap, np.eye(len(overlap)), atol=atol)


@pytest.mark.parametrize("weighted", [True, False])
def test_axes_without_truncation_equal_batch_pca(*, weighted: bool) -> None:
    X = random_rows(90, 7)
    s = np.random.default_rng(1).uniform(0.1, 3.0, 90) if weighted else np.ones(90)
    axes = fit_blocks(IncrementalPCAState.start(7, 7, 30), X, s)
    mean = (s @ X) / s.sum()
    _, lengths, directions = np.linalg.svd(np.sqrt(s)[:, None] * (X - mean))
    assert_allclose(axes.mean, mean, atol=1e-12)
    assert_allclose(axes.trace, (lengths**2).sum(), rtol=1e-12)
    assert_allclose(axes.view.lengths, lengths, rtol=1e-10)
    assert_allclose(np.abs(axes.view.directions @ directions.T), np.eye(7), atol=1e-9)


@given(cut=st.integers(1, 200), k=st.sampled_from([1, 3, 0.9]), seed=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_block_boundaries_do_not_matter(cut: int, k: float, seed: int) -> None:
    X = random_rows(150, 12, seed)
    one, other = (fit_blocks(IncrementalPCAState.start(12, k, 20), X, cut=c) for c in (10**9, cut))
    assert_allclose(one.view.lengths, other.view.lengths, rtol=1e-9)
    assert_allclose(one.view.center, other.view.center, atol=1e-12)
    assert_allclose(one.view.directions, other.view.directions, atol=1e-7)


def test_checkpoints_are_powers_of_two_then_blocks() -> None:
    axes = IncrementalPCAState.start(3, 2, 12)
    assert list(axes.checkpoints(40)) == [1, 2, 4, 8, 12, 24, 36, 40]
    axes = fit_blocks(axes, random_rows(14, 3))
    assert list(axes.checkpoints(12)) == [10, 12]
    assert not list(axes.checkpoints(0))


def test_joined_batch_equals_sequential_karhunen_loeve() -> None:
    """Ross et al. 2008: SVD of retained axes, centred batch and shift of the mean."""
    X, Y, k = random_rows(60, 9), random_rows(50, 9, 1) + 2.0, 4
    axes = IncrementalPCAState.start(9, k, 30).joined(X).joined(Y)
    retained = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    move = np.sqrt(60 * 50 / 110) * (Y.mean(axis=0) - X.mean(axis=0))
    both = np.vstack((retained[1][:k, None] * retained[2][:k], Y - Y.mean(axis=0), move))
    _, lengths, directions = np.linalg.svd(both, full_matrices=False)
    assert_allclose(axes.view.lengths, lengths[:k], rtol=1e-12)
    assert_allclose(np.abs(axes.view.directions @ directions[:k].T), np.eye(k), atol=1e-10)


def test_long_batch_in_pieces_equals_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    X = random_rows(300, 8)
    whole = IncrementalPCAState.start(8, 3, 30).joined(X)
    monkeypatch.setattr("onepass.linalg.pca._PIECE", 37)
    assert_same_axes(IncrementalPCAState.start(8, 3, 30).joined(X).view, whole.view)


def test_merged_axes_equal_axes_of_all_rows() -> None:
    X, Y = random_rows(40, 6), random_rows(70, 6, 3) - 5.0
    one = fit_blocks(IncrementalPCAState.start(6, 6, 25), X).merged(
        fit_blocks(IncrementalPCAState.start(6, 6, 25), Y)
    )
    all_rows = fit_blocks(IncrementalPCAState.start(6, 6, 25), np.vstack((X, Y)))
    assert one.rows == 110
    assert_allclose(one.mean, all_rows.mean, atol=1e-12)
    assert_allclose(one.trace, all_rows.trace, rtol=1e-12)
    assert_same_axes(one.view, all_rows.truncated().view)


def test_large_offset_retains_precision() -> None:
    X = random_rows(200, 5)
    near, far = (
        fit_blocks(IncrementalPCAState.start(5, 3, 40), X + offset) for offset in (0.0, 2.0**30)
    )
    assert_allclose(far.view.lengths, near.view.lengths, rtol=1e-6)
    assert_allclose(far.view.directions, near.view.directions, atol=1e-5)


def test_small_axes_retain_precision() -> None:
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(20, 4)))[0].T
    X = rng.normal(size=(500, 4)) * [1.0, 1e-3, 1e-6, 1e-8] @ directions
    axes = fit_blocks(IncrementalPCAState.start(20, 4, 50), X)
    lengths = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:4]
    assert_allclose(axes.view.lengths, lengths, rtol=1e-5)
    V = axes.view.directions
    assert_allclose(V @ V.T, np.eye(4), atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 60])
def test_identical_rows_have_axes_of_length_zero(n: int) -> None:
    axes = fit_blocks(IncrementalPCAState.start(4, 3, 8), np.full((n, 4), 3.0))
    assert_allclose(axes.view.lengths, 0.0, atol=1e-12)
    assert np.isfinite(axes.view.directions).all()
    assert_allclose(axes.view.of(np.full((2, 4), 3.0)), 0.0, atol=1e-12)


def test_variance_share_retains_enough_axes() -> None:
    X = random_rows(400, 10)
    axes = fit_blocks(IncrementalPCAState.start(10, 0.9, 100), X)
    squares = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    needed = int(np.searchsorted(np.cumsum(squares) / squares.sum(), 0.9)) + 1
    assert needed <= len(axes.view.lengths) <= needed + 1


def test_new_columns_equal_zeros_in_earlier_rows() -> None:
    X, Y = random_rows(30, 4), random_rows(20, 6, 2)
    grown = fit_blocks(fit_blocks(IncrementalPCAState.start(4, 6, 64), X).grown(6), Y)
    whole = fit_blocks(
        IncrementalPCAState.start(6, 6, 64), np.vstack((np.pad(X, ((0, 0), (0, 2))), Y))
    )
    assert_same_axes(grown.truncated().view, whole.truncated().view)
