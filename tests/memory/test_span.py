"""The span of the rows against lstsq and ridge, at every row and rank."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass.memory.span import Span
from oracles import ridge_qr

Floats = NDArray[Any]


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.3]),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_rows_of_any_rank_give_least_norm_solution(
    seed: int, p: int, rank: int, ridge: float, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(20, min(rank, p))) @ rng.normal(size=(min(rank, p), p))
    A[rng.random(20) < 0.2] = 0.0
    b = rng.normal(size=(20, 2))
    span = Span.start(p, 2, ridge)
    errors = []
    for rows in np.split(np.arange(20), sorted(cuts)):
        taken = span.absorb(A[rows], b[rows])
        span = taken.span
        errors.append(taken.errors)
    size = 1.0 + np.abs(np.linalg.pinv(A, rcond=1e-10)).max()
    coef, _ = ridge_qr(A, b, ridge, intercept=False)
    np.testing.assert_allclose(span.solution(), coef, atol=1e-9 * size)
    np.testing.assert_allclose(span.Q.T @ span.Q, np.eye(span.rank), atol=1e-12)
    assert span.rank == np.linalg.matrix_rank(A)
    first = np.flatnonzero(np.abs(A).any(axis=1))
    if len(first):
        before = first[0]
        np.testing.assert_allclose(np.vstack(errors)[: before + 1], b[: before + 1])


def test_rank_is_correct_with_nearly_parallel_rows() -> None:
    wrong = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        p = int(rng.integers(3, 13))
        rank = int(rng.integers(2, p))
        basis = rng.normal(size=(rank, p))
        basis[1] = basis[0] + 10.0 ** -rng.integers(1, 6) * basis[1]
        A = np.vstack((basis, rng.normal(size=(20, rank)) @ basis))
        wrong += Span.start(p, 1, 0.0).absorb(A, np.zeros((len(A), 1))).span.rank != rank
    assert wrong == 0


def test_span_stores_its_directions_only() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 50))
    span = Span.start(50, 1, 0.1)
    for i in range(0, 300, 30):
        span = span.absorb(rows[i : i + 30], rng.normal(size=(30, 1))).span
        assert span.Q.shape == (50, 4)
        assert span.T.shape == (4, 4)
