"""The subspace with delayed rotation against rotation at every step and a full SVD."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass.linalg.subspace import OrthonormalBasis, Subspace
from oracles import full_svd_basis

Floats = NDArray[Any]


def projector(U: Floats) -> Floats:
    U = U.astype(np.float64)
    return U @ U.T


def rotated_each_step(space: Subspace, G: Floats) -> Subspace:
    return space.added(G).turned()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 8), st.integers(1, 4))
def test_subspace_without_truncation_equals_full_svd(seed: int, p: int, count: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(p, count)) * 10.0 ** rng.uniform(-2, 2, count)
    space = Subspace.start(p, count)
    for i in range(0, count, n):
        space = space.added(G[:, i : i + n])
    U, sigma = full_svd_basis(G)
    assert space.rank == len(sigma)
    np.testing.assert_allclose(space.sigma, sigma, rtol=1e-9)
    np.testing.assert_allclose(projector(space.U), projector(U), atol=1e-8)
    np.testing.assert_allclose(space.U.T @ space.U, np.eye(space.rank), atol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 8])
def test_delayed_rotation_equals_rotation_at_each_step(n: int) -> None:
    rng = np.random.default_rng(0)
    scales = np.array([9.0, 5.0, 3.0, 2.0] + [0.3] * 20)
    late = early = Subspace.start(24, 4)
    for _ in range(1000 // n):
        G = scales[:, None] * rng.normal(size=(24, n))
        late, early = late.added(G), rotated_each_step(early, G)
        assert len(late.B) <= 4 + max(4, n)
    np.testing.assert_allclose(late.sigma, early.sigma, rtol=1e-11)
    np.testing.assert_allclose(projector(late.U), projector(early.U), atol=1e-11)
    np.testing.assert_allclose(late.B.rows @ late.B.rows.T, np.eye(len(late.B)), atol=1e-13)


def test_float32_basis_stays_orthogonal_over_4000_steps() -> None:
    rng = np.random.default_rng(1)
    space = Subspace.start(16, 3, np.float32)
    worst = 0.0
    for k in range(4_000):
        space = space.added(rng.normal(size=(16, 1)).astype(np.float32))
        if k % 100 == 0:
            gram = space.B.rows.astype(np.float64) @ space.B.rows.T
            worst = max(worst, float(np.abs(gram - np.eye(len(gram))).max()))
    assert worst < 1e-6
    assert space.B.rows.dtype == np.float32


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float64, np.float32]),
    tensors=st.booleans(),
)
def test_nearly_dependent_vectors_leave_the_basis_orthonormal(
    seed: int, dtype: Any, *, tensors: bool
) -> None:
    rng, p, n = np.random.default_rng(seed), 300, 6
    space = Subspace.start(p, 60, torch.empty(0, dtype=torch.as_tensor(dtype(0)).dtype)
                           if tensors else dtype, batch=n)  # fmt: skip
    every = []
    for _ in range(6):
        shared = rng.normal(size=(p, n - 1)) @ rng.normal(size=(n - 1, n))
        G = (shared * 10.0 ** rng.uniform(-3, 3, n) + 10.0 ** rng.uniform(-14, -4)).astype(dtype)
        every.append(G.astype(np.float64))
        space = space.added(torch.from_numpy(G) if tensors else G)
    B, few = np.asarray(space.B.rows, np.float64), float(np.finfo(dtype).eps) ** 0.5
    np.testing.assert_allclose(B @ B.T, np.eye(len(B)), atol=0.1 * few)
    total, U = np.hstack(every) @ np.hstack(every).T, np.asarray(space.U, np.float64)
    np.testing.assert_allclose(U @ np.diag(space.sigma**2) @ U.T / np.abs(total).max(),
                               total / np.abs(total).max(), atol=10.0 * few)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_vectors_in_span_add_no_direction(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    A = rng.normal(size=(50, 3)).astype(dtype)
    space = Subspace.start(50, 10, dtype).added(A)
    for _ in range(300):
        inside = (A @ rng.normal(size=(3, 1))).astype(dtype)
        space = space.added(inside)
    if dtype == np.float64:
        assert space.rank == 3
    else:  # rounding to float32 leaves the span by 1e-7; such directions stay far below the rest
        assert (space.sigma[3:] < 1e-6 * space.sigma[0]).all()
    eye = np.eye(len(space.B))
    np.testing.assert_allclose(space.B.rows.astype(float) @ space.B.rows.T, eye, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("m", [1, 3, 9])
@pytest.mark.parametrize("n", [1, 4])
def test_zero_vectors_and_full_rank_give_orthonormal_basis(p: int, m: int, n: int) -> None:
    rng = np.random.default_rng(3)
    space = Subspace.start(p, m)
    vectors = []
    for k in range(12):
        G = np.zeros((p, n)) if k % 3 == 0 else rng.normal(size=(p, n))
        space = space.added(G)
        vectors.append(G)
        assert len(space.B) <= p
        assert space.rank <= min(m, p)
        np.testing.assert_allclose(space.U.T @ space.U, np.eye(space.rank), atol=1e-12)
    if m >= p:
        U, sigma = full_svd_basis(np.hstack(vectors))
        np.testing.assert_allclose(projector(space.U), projector(U), atol=1e-10)
        np.testing.assert_allclose(space.sigma, sigma, rtol=1e-10)


def test_joined_vector_in_subspace_adds_no_direction() -> None:
    rng = np.random.default_rng(4)
    space = Subspace.start(6, 3).joined(np.zeros((6, 1)))
    assert space.rank == 0
    v = rng.normal(size=(6, 1))
    space = space.joined(v)
    assert space.joined(-3.0 * v).rank == 1
    assert space.joined(np.zeros((6, 1))).rank == 1
    np.testing.assert_allclose(space.sigma, [np.linalg.norm(v)])


def test_coordinates_and_residuals_equal_products_with_u() -> None:
    rng = np.random.default_rng(5)
    space = Subspace.start(20, 4)
    for _ in range(7):
        space = space.added(rng.normal(size=(20, 1)))
    X, U, noise = rng.normal(size=(20, 3)), space.U, 3.0
    np.testing.assert_allclose(space.coordinates(X), U.T @ X, atol=1e-13)
    np.testing.assert_allclose(space.split(X).lifted, X - U @ U.T @ X, atol=1e-13)
    share = space.sigma**2 / (space.sigma**2 + noise)
    shared = X - U @ (share[:, None] * (U.T @ X))
    np.testing.assert_allclose(space.split(X, noise).lifted, shared, atol=1e-13)


def test_grown_and_turned_leave_subspace_unchanged() -> None:
    rng = np.random.default_rng(6)
    space = Subspace.start(6, 3)
    for _ in range(5):
        space = space.added(rng.normal(size=(6, 1)))
    before = [space.B.rows.copy(), space.K.copy(), space.sigma.copy()]
    turned, grown = space.turned(), space.grown(9)
    space.added(rng.normal(size=(6, 1)))
    space.joined(rng.normal(size=(6, 1)))
    for array, copy in zip((space.B.rows, space.K, space.sigma), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    np.testing.assert_allclose(projector(turned.U), projector(space.U), atol=1e-14)
    np.testing.assert_allclose(grown.U, np.vstack((space.U, np.zeros((3, 3)))), atol=1e-15)
    assert len(turned.B) == 3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 8), st.integers(1, 12))
def test_truncation_error_is_bounded_through_merges(seed: int, p: int, m: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(p, 3 * count)) * np.geomspace(1.0, 0.1, p)[:, None]
    parts = []
    for part in np.split(G, 3, axis=1):
        space = Subspace.start(p, m)
        for j in range(count):
            space = space.added(part[:, j : j + 1])
        parts.append(space)
    a, b, c = parts
    for merged in (a.merged(b).merged(c), a.merged(b.merged(c))):
        left_out = np.linalg.eigvalsh(G @ G.T - (merged.U * merged.sigma**2) @ merged.U.T)
        assert left_out.min() > -1e-10
        assert left_out.max() <= merged.lost + 1e-10
        if m >= p:
            assert merged.lost < 1e-20
            U, sigma = full_svd_basis(G)
            np.testing.assert_allclose(merged.sigma, sigma, rtol=1e-9)
            np.testing.assert_allclose(projector(merged.U), projector(U), atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("common", [0.0, 30.0])
def test_columns_are_reorthogonalized_only_after_drift(dtype: Any, common: float) -> None:
    rng = np.random.default_rng(1)
    base, least = rng.normal(size=(20, 300)), 1e-13 if dtype == np.float64 else 1e-6
    space, drifted = Subspace.start(300, 10, dtype), 0
    for _ in range(400):
        g = rng.normal(size=300) + common * rng.normal(size=20) @ base
        space = space.added(g[:, None].astype(dtype))
        B = space.B.rows.astype(np.float64)
        assert np.abs(B @ B.T - np.eye(len(B))).max() < least
        drifted += space.B.drifted()
    assert drifted < 400
    wrong = replace(space, B=OrthonormalBasis((1.0 + 1e-4) * space.B.rows)).turned()
    B = wrong.B.rows.astype(np.float64)
    assert np.abs(B @ B.T - np.eye(len(B))).max() < least
    np.testing.assert_allclose(wrong.sigma, (1.0 + 1e-4) * space.sigma, rtol=1e-6)
