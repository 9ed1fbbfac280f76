"""ORFit: every claim of its papers, by name, against plain transcriptions of their equations.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version. Equations and algorithms are its own.
[2] The same, CDC 2022.
"""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from onepass import ORFitClassifier, ORFitRegressor, memory
from onepass.errors import (
    MemoryFullWarning,
    NumericalError,
    OnepassError,
    ParameterError,
    ShapeError,
)
from oracles import (
    DenseP,
    full_svd_basis,
    one_row_at_a_time,
    ridge_qr,
    rls_row_by_row,
    sgd_multipass,
)
from raising import raises

Floats = NDArray[np.float64]


def random_rows(n: int, p: int, seed: int = 0, c: int | None = None) -> tuple[Floats, Floats]:
    """Rows in general position, and random targets."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)), rng.normal(size=n if c is None else (n, c))


def memory_settings(m: int, noise: float) -> list[tuple[Any, float]]:
    """All memories without noise, and those that support noise with it."""
    spec = [None, m, memory.NoMemory()]
    calm = [(each, 0.0) for each in [*spec, memory.Principal(m, of="projected")]]
    return [*calm, *((each, noise) for each in spec)]


def gradients_per_output(p: int, c: int, d: int, seed: int = 0) -> Any:
    """Φ with separate gradients per output: X (n, d) -> (n, p, c)."""
    A = np.random.default_rng(seed).normal(size=(d, p, c))
    return lambda X: np.tanh(np.einsum("nd,dpc->npc", X, A))


def nearest_interpolant(start: Floats, G: Floats, y: Floats) -> Floats:
    """argmin ‖w − start‖ over all w with Gᵀ w = y."""
    return start + np.linalg.pinv(G.T) @ (y - G.T @ start)


def batch_orfit(blocks: Any, w: Floats, m: int | None = None) -> Floats:
    """(7) and (9) with (8), as printed: Algorithms 2 and 4, and with m Algorithms 3 and 5."""
    U, sigma = np.zeros((len(w), 0)), np.zeros(0)
    for G, y in blocks:
        free = G - U @ (U.T @ G)
        w = w - free @ np.linalg.solve(G.T @ free, G.T @ w - y)
        new = np.linalg.qr(free)[0]
        small = np.block(
            [
                [np.diag(sigma), U.T @ G],
                [np.zeros((new.shape[1], len(sigma))), new.T @ G],
            ]
        )
        inner, sigma, _ = np.linalg.svd(small, full_matrices=False)
        U, sigma = (np.hstack([U, new]) @ inner)[:, :m], sigma[:m]
    return w


# -- section 3.1: the step ------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.floats(-1e3, 1e3))
def test_lemma_1_projected_step_retains_past_predictions(seed: int, n: int, eta: float) -> None:
    X, y = random_rows(n, 8, seed)
    model = ORFitRegressor(memory=None).fit(X, y)
    g = np.random.default_rng(seed + 1).normal(size=8)
    projected = g - model.memory_.Q @ (model.memory_.Q.T @ g)
    moved = model.coef_ - eta * projected
    assert_allclose(X @ moved, y, atol=1e-8 * (1 + np.abs(model.coef_).sum()))


def test_new_row_is_fitted_exactly_in_one_step() -> None:
    X, y = random_rows(12, 40)
    for spec in (None, 3, memory.NoMemory(), memory.Principal(3, of="projected")):
        model = ORFitRegressor(memory=spec)
        for x, target in zip(X, y, strict=True):
            assert_allclose(model.learn_one(x, target).predict_one(x), target)


def test_unlimited_memory_retains_all_past_predictions() -> None:
    X, y = random_rows(12, 40)
    model = ORFitRegressor(memory=None)
    for k in range(1, 13):
        model.learn_one(X[k - 1], y[k - 1])
        assert_allclose(model.predict(X[:k]), y[:k], atol=1e-12)


def test_equation_7_with_gradients_per_output() -> None:
    X, Y = random_rows(6, 4, c=3)
    phi = gradients_per_output(30, 3, 4)
    start = np.random.default_rng(9).normal(size=30)
    model = ORFitRegressor(memory=None, feature_map=phi, initial_coef=start)
    predictions = model.test_then_train(X, Y)
    expected = batch_orfit(zip(phi(X), Y, strict=True), start)
    assert_allclose(model.coef_, expected, atol=1e-10)
    assert_allclose(model.predict(X), Y, atol=1e-10)
    loop = ORFitRegressor(memory=None, feature_map=phi, initial_coef=start)
    assert_allclose(predictions, one_row_at_a_time(loop, X, Y), atol=1e-10)


def test_vector_model_of_one_output_equals_scalar_model() -> None:
    X, y = random_rows(9, 20)
    for spec in (None, 4):
        scalar = ORFitRegressor(memory=spec).fit(X, y)
        vector = ORFitRegressor(memory=spec, feature_map=lambda X: X[:, :, None]).fit(X, y)
        assert vector.coef_.shape == (20,)
        assert_allclose(vector.coef_, scalar.coef_, atol=1e-12)
        assert_allclose(vector.predict(X), scalar.predict(X), atol=1e-12)


@pytest.mark.parametrize(("spec", "noise"), memory_settings(4, 0.3))
def test_remark_3_separate_weights_equal_scalar_models(spec: Any, noise: float) -> None:
    X, Y = random_rows(9, 20, c=3)
    start = np.random.default_rng(3).normal(size=(3, 20))
    together = ORFitRegressor(memory=spec, noise=noise, initial_coef=start).fit(X, Y)
    for j in range(3):
        alone = ORFitRegressor(memory=spec, noise=noise, initial_coef=start[j]).fit(X, Y[:, j])
        assert_allclose(together.coef_[j], alone.coef_, atol=1e-12)


# -- section 3.2: the summary of memory -----------------------------------------------------------


@pytest.mark.parametrize("m", [1, 4, 10])
def test_algorithm_3_limited_memory_of_raw_gradients(m: int) -> None:
    X, y = random_rows(30, 25, seed=1)
    X *= np.linspace(1, 3, 25)  # directions that differ in weight
    start = np.random.default_rng(2).normal(size=25)
    model = ORFitRegressor(memory=m, initial_coef=start)
    for k in range(1, 31):
        model.learn_one(X[k - 1], y[k - 1])
        expected = batch_orfit(
            ((x[:, None], [a]) for x, a in zip(X[:k], y, strict=False)), start, m
        )
        assert_allclose(model.coef_, expected, atol=1e-9)


def test_algorithm_3_with_gradients_per_output() -> None:
    X, Y = random_rows(15, 4, c=2)
    phi = gradients_per_output(30, 2, 4)
    model = ORFitRegressor(memory=5, feature_map=phi).fit(X, Y)
    expected = batch_orfit(zip(phi(X), Y, strict=True), np.zeros(30), 5)
    assert_allclose(model.coef_, expected, atol=1e-9)


def algorithm_1(X: Floats, y: Floats, w: Floats, m: int) -> Floats:
    """Algorithm 1 of [2], line by line; the weights after each row."""
    U, sigma, known = np.zeros((len(w), 0)), np.zeros(0), []
    for i, (x, target) in enumerate(zip(X, y, strict=True), start=1):
        v = x - sum((u @ x / (u @ u) * u for u in U.T), start=np.zeros(len(w)))
        g = (x @ w - target) * v
        if i <= m:
            U = np.column_stack([U, v])
            if i == m:
                U, sigma, _ = np.linalg.svd(U, full_matrices=False)
        else:
            u = v / np.linalg.norm(v)
            small = np.block([[np.diag(sigma), np.zeros((m, 1))], [np.zeros((1, m)), u @ v]])
            inner, sigma, _ = np.linalg.svd(small)
            U, sigma = (np.column_stack([U, u]) @ inner)[:, :m], sigma[:m]
        w = w - (x @ w - target) / (x @ g) * g
        known.append(w)
    return np.array(known)


@pytest.mark.parametrize("m", [1, 4, 9])
def test_algorithm_1_of_2022_equals_memory_of_projected_gradients(m: int) -> None:
    X, y = random_rows(20, 25, seed=5)
    start = np.random.default_rng(6).normal(size=25)
    expected = algorithm_1(X, y, start, m)
    model = ORFitRegressor(memory=memory.Principal(m, of="projected"), initial_coef=start)
    for k in range(20):
        assert_allclose(model.learn_one(X[k], y[k]).coef_, expected[k], atol=1e-9)
    raw = ORFitRegressor(memory=m, initial_coef=start).fit(X, y)
    assert np.abs(raw.coef_ - expected[-1]).max() > 1e-3  # another algorithm than the default


# -- section 3.3: blocks --------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [None, 6])
@pytest.mark.parametrize("c", [1, 3])
def test_equation_9_block_is_one_augmented_row(spec: int | None, c: int) -> None:
    X, Y = random_rows(16, 40, c=c)
    cuts = [0, 1, 6, 11, 16]
    model = ORFitRegressor(memory=spec, block_update=True)
    expected = np.zeros((40, c))
    for i, j in pairwise(cuts):
        model.partial_fit(X[i:j], Y[i:j])
        blocks = [(X[a:b].T, Y[a:b]) for a, b in pairwise(cuts) if b <= j]
        expected = batch_orfit(blocks, np.zeros((40, c)), spec)
        assert_allclose(model.coef_, expected.T, atol=1e-9)


@pytest.mark.parametrize("spec", [None, 6])
def test_equation_9_with_gradients_per_output(spec: int | None) -> None:
    X, Y = random_rows(12, 4, c=2)
    phi = gradients_per_output(40, 2, 4)
    model = ORFitRegressor(memory=spec, feature_map=phi, block_update=True)
    blocks = []
    for i in range(0, 12, 4):
        model.partial_fit(X[i : i + 4], Y[i : i + 4])
        blocks.append((np.hstack(list(phi(X[i : i + 4]))), Y[i : i + 4].reshape(-1)))
    assert_allclose(model.coef_, batch_orfit(blocks, np.zeros(40), spec), atol=1e-9)


def test_block_update_without_limit_equals_rows() -> None:
    X, Y = random_rows(30, 50, c=2)
    by_block = ORFitRegressor(memory=None, block_update=True).fit(X, Y)
    by_row = ORFitRegressor(memory=None)
    for x, y in zip(X, Y, strict=True):
        by_row.learn_one(x, y)
    assert_allclose(by_block.coef_, by_row.coef_, atol=1e-11)


def test_block_update_with_limit_differs_from_rows() -> None:
    X, y = random_rows(30, 50)
    by_block = ORFitRegressor(memory=5, block_update=True).fit(X, y)
    assert_allclose(by_block.predict(X), y, atol=1e-10)  # all rows of the block are fitted
    by_row = ORFitRegressor(memory=5).fit(X, y)
    assert np.abs(by_row.predict(X) - y).max() > 1e-2
    cut = ORFitRegressor(memory=5).partial_fit(X[:7], y[:7]).partial_fit(X[7:], y[7:])
    assert_allclose(cut.coef_, by_row.coef_, atol=1e-12)  # rows do not care for the cut


# -- section 4: theory ----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [None, 12])
def test_proposition_1_orfit_equals_rls_with_zero_forgetting(spec: int | None) -> None:
    X, y = random_rows(12, 30)
    start = np.random.default_rng(4).normal(size=30)
    model = ORFitRegressor(memory=spec, initial_coef=start)
    for k in range(1, 13):
        model.learn_one(X[k - 1], y[k - 1])
        ew = rls_row_by_row(X[:k], y[:k], 1.0, forgetting=0.0, initial=start, rescaled=False)
        assert_allclose(model.coef_, ew.coef, atol=1e-10)
        spec_now = model.memory_.Q if spec is None else model.memory_.subspace.U
        assert_allclose(np.eye(30) - spec_now @ spec_now.T, ew.P, atol=1e-10)
        past, _ = full_svd_basis(X[:k].T)
        assert_allclose(ew.P, np.eye(30) - past @ past.T, atol=1e-10)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    spec=st.sampled_from([None, 12]),
    block=st.booleans(),
)
def test_theorem_2_solution_is_nearest_interpolant(
    seed: int, n: int, spec: int | None, *, block: bool
) -> None:
    X, y = random_rows(n, 24, seed)
    start = np.random.default_rng(seed + 1).normal(size=24)
    model = ORFitRegressor(memory=spec, initial_coef=start, block_update=block).fit(X, y)
    assert_allclose(model.coef_, nearest_interpolant(start, X.T, y), atol=1e-8)


@pytest.mark.parametrize("spec", [None, 12])
def test_theorem_2_for_vector_outputs(spec: int | None) -> None:
    X, Y = random_rows(4, 5, c=3)
    phi = gradients_per_output(20, 3, 5)
    start = np.random.default_rng(8).normal(size=20)
    model = ORFitRegressor(memory=spec, feature_map=phi, initial_coef=start)
    for k in range(1, 5):
        model.learn_one(X[k - 1], Y[k - 1])
        G = np.hstack(list(phi(X[:k])))
        assert_allclose(model.coef_, nearest_interpolant(start, G, Y[:k].reshape(-1)), atol=1e-10)


def test_corollary_1_multi_pass_sgd_converges_to_one_pass() -> None:
    X, y = random_rows(6, 30, seed=2)
    start = np.random.default_rng(1).normal(size=30)
    far = sgd_multipass(X, y, start, step_size=0.02, epochs=400)
    one_pass = ORFitRegressor(memory=None, initial_coef=start).fit(X, y)
    assert_allclose(far, one_pass.coef_, atol=1e-8)
    near = sgd_multipass(X, y, start, step_size=0.02, epochs=1)
    assert np.abs(near - one_pass.coef_).max() > 1e-2  # it does take many passes


def test_proposition_3_step_is_shortest_fit_of_all_rows() -> None:
    X, y = random_rows(10, 24)
    model = ORFitRegressor(memory=10, initial_coef=np.ones(24))
    before = np.ones(24)
    for k in range(1, 11):
        after = model.learn_one(X[k - 1], y[k - 1]).coef_
        assert_allclose(after, nearest_interpolant(before, X[:k].T, y[:k]), atol=1e-10)
        before = after


def worst_forgetting(G: Floats, U: Floats) -> float:
    """The largest Σ (f_k(w + Δw) − f_k(w))² = ‖GᵀΔw‖² over all Δw ⟂ U with ‖Δw‖ = 1."""
    free = np.eye(len(G)) - U @ U.T
    return float(np.linalg.norm(G.T @ free, 2) ** 2)


def directions(n: int, p: int, seed: int = 3) -> Floats:
    """Gradients (p, n) some of whose directions matter more than others."""
    X, _ = random_rows(n, p, seed)
    return (X * np.geomspace(3.0, 0.1, p)).T


def test_proposition_4_principal_directions_minimise_worst_forgetting() -> None:
    G = directions(40, 15)
    eigenvalues = np.linalg.eigvalsh(G @ G.T)[::-1]
    rng = np.random.default_rng(0)
    for m in (1, 4, 10):
        U, _ = full_svd_basis(G, m)
        best = worst_forgetting(G, U)
        assert_allclose(best, eigenvalues[m])  # λ_{m+1}, counted from the largest
        for _ in range(50):
            other = np.linalg.qr(rng.normal(size=(15, m)))[0]
            assert worst_forgetting(G, other) >= best * (1 - 1e-12)
        near = np.linalg.qr(U + 0.05 * rng.normal(size=U.shape))[0]
        assert worst_forgetting(G, near) > best


@pytest.mark.parametrize(("n", "rank"), [(8, 15), (9, 15), (40, 8)])
def test_memory_without_truncation_is_principal_directions(n: int, rank: int) -> None:
    """Exact for up to m + 1 rows, and for any number of rows of rank up to m."""
    G = directions(n, 15)
    if rank < 15:
        U, sigma = full_svd_basis(G, rank)
        G = U @ np.diag(sigma) @ random_rows(n, rank, 7)[0].T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryFullWarning)
        model = ORFitRegressor(memory=8).fit(G.T, np.zeros(n))
    spec = model.memory_.subspace
    U, sigma = full_svd_basis(G, 8)
    assert_allclose(spec.U @ spec.U.T, U @ U.T, atol=1e-9)
    assert_allclose(spec.sigma, sigma, rtol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(10, 40))
def test_truncated_memory_forgets_at_most_sum_of_cuts(seed: int, n: int) -> None:
    """After truncation it is approximate: λ_{m+1} <= worst forgetting <= Σ (what was cut off)²."""
    G, m = directions(n, 12, seed), 4
    spec = ORFitRegressor(memory=m).fit(G.T, np.zeros(n)).memory_.subspace
    A, cut = np.zeros((12, 0)), 0.0
    for j in range(n):
        U, sigma, _ = np.linalg.svd(np.column_stack([A, G[:, j]]), full_matrices=False)
        A, cut = U[:, :m] * sigma[:m], cut + float((sigma[m:] ** 2).sum())
    least = np.linalg.eigvalsh(G @ G.T)[-m - 1]
    assert least * (1 - 1e-9) <= worst_forgetting(G, spec.U) <= cut * (1 + 1e-9)


# -- section 5.1 and appendix: limiting cases -----------------------------------------------------


def test_no_memory_equals_one_step_sgd() -> None:
    X, y = random_rows(20, 6)
    w = np.zeros(6)
    model = ORFitRegressor(memory=memory.NoMemory())
    for x, target in zip(X, y, strict=True):
        w = w - x * (x @ w - target) / (x @ x)  # (6) with nothing to be orthogonal to
        assert_allclose(model.learn_one(x, target).coef_, w, atol=1e-12)
    assert model.memory_.rank == 0


def test_no_memory_with_noise_equals_nlms() -> None:
    X, y = random_rows(20, 6)
    w = np.zeros(6)
    for x, target in zip(X, y, strict=True):
        w = w + x * (target - x @ w) / (0.5 + x @ x)
    model = ORFitRegressor(memory=memory.NoMemory(), noise=0.5).fit(X, y)
    assert_allclose(model.coef_, w, atol=1e-12)


@pytest.mark.parametrize("spec", [None, 10])
@pytest.mark.parametrize("r", [1e-4, 0.7])
def test_noise_equals_extended_kalman_filter_of_appendix(spec: int | None, r: float) -> None:
    X, y = random_rows(9, 10)
    w, Q = np.ones(10), np.eye(10)
    model = ORFitRegressor(memory=spec, noise=r, initial_coef=np.ones(10))
    for x, target in zip(X, y, strict=True):
        L = Q @ x / (x @ Q @ x + r)
        w, Q = w + L * (target - x @ w), Q - np.outer(L, x @ Q)
        assert_allclose(model.learn_one(x, target).coef_, w, atol=1e-8)


@pytest.mark.parametrize("n", [5, 40])
def test_unlimited_memory_with_noise_equals_ridge(n: int) -> None:
    X, Y = random_rows(n, 12, c=2)
    model = ORFitRegressor(memory=None, noise=0.3).fit(X, Y)
    coef, _ = ridge_qr(X, Y, 0.3, intercept=False)
    assert_allclose(model.coef_, coef.T, atol=1e-10)
    assert model.inconsistent_rows_ == 0


def test_tiny_noise_approaches_exact_fit() -> None:
    X, y = random_rows(6, 12)
    exact = ORFitRegressor(memory=None).fit(X, y)
    nearly = ORFitRegressor(memory=None, noise=1e-10).fit(X, y)
    assert_allclose(nearly.coef_, exact.coef_, atol=1e-7)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2]))
def test_orfit_equals_dense_update_equation(seed: int, noise: float) -> None:
    X, y = random_rows(8, 10, seed)
    dense = DenseP(10)
    learned = dense.learn(np.zeros(10), X.T, y, noise)
    model = ORFitRegressor(memory=None, noise=noise)
    predictions = model.test_then_train(X, y)
    assert_allclose(model.coef_, learned.w, atol=1e-7)
    assert_allclose(y - predictions, learned.errors, atol=1e-7)


# -- rows within the span of the past -------------------------------------------------------------


@pytest.mark.parametrize("spec", [None, 5, memory.Principal(5, of="projected")])
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.parametrize("block_update", [False, True])
def test_first_of_two_contradicting_rows_wins(spec: Any, cut: int, *, block_update: bool) -> None:
    X, y = random_rows(4, 9)
    X[2], y[2] = 2.0 * X[0], 2.0 * y[0] + 1.0
    model = ORFitRegressor(memory=spec, block_update=block_update)
    for i in range(0, 4, cut):
        model.partial_fit(X[i : i + cut], y[i : i + cut])
    assert model.inconsistent_rows_ == 1
    others = [0, 1, 3]
    assert_allclose(model.predict(X[others]), y[others], atol=1e-10)
    assert_allclose(
        model.coef_, nearest_interpolant(np.zeros(9), X[others].T, y[others]), atol=1e-10
    )


@pytest.mark.parametrize("spec", [None, 5])
def test_repeated_consistent_rows_are_not_counted(spec: int | None) -> None:
    X, y = random_rows(4, 9)
    model = ORFitRegressor(memory=spec).fit(X, y)
    before = model.coef_
    model.partial_fit(X, y)
    assert model.inconsistent_rows_ == 0
    assert_allclose(model.coef_, before, atol=1e-12)


def test_partly_contradicting_outputs_count_as_one_row() -> None:
    X, Y = random_rows(3, 9, c=2)
    model = ORFitRegressor(memory=None).fit(X, Y)
    model.learn_one(X[0], Y[0] + [0.0, 1.0])
    assert model.inconsistent_rows_ == 1
    assert_allclose(model.predict(X), Y, atol=1e-12)


def test_zero_row_leaves_weights_unchanged() -> None:
    for spec in (None, 3, memory.NoMemory(), memory.Principal(3, of="projected")):
        model = ORFitRegressor(memory=spec).fit(np.eye(5)[:2], [1.0, 2.0])
        model.learn_one(np.zeros(5), 1.0)
        assert_allclose(model.coef_, [1.0, 2.0, 0.0, 0.0, 0.0], atol=1e-15)


@pytest.mark.parametrize("spec", [None, 4, 100])
def test_full_memory_warns_once(spec: int | None) -> None:
    X, y = random_rows(10, 4)
    model = ORFitRegressor(memory=spec)
    model.partial_fit(X[:3], y[:3])
    with pytest.warns(MemoryFullWarning, match="all 4 directions"):
        model.partial_fit(X[3:6], y[3:6])
    model.partial_fit(X[6:], y[6:])  # a second warning would be an error here
    assert model.inconsistent_rows_ == 6
    assert_allclose(model.predict(X[:4]), y[:4], atol=1e-9)  # the first four have won


def test_full_memory_accepts_new_features() -> None:
    X, y = random_rows(3, 3)
    model = ORFitRegressor(memory=None)
    with pytest.warns(MemoryFullWarning):
        model.fit(X, y)
    model.grow(5)
    model.learn_one([1.0, 2.0, 3.0, 4.0, 5.0], 7.0)
    assert_allclose(model.predict_one([1.0, 2.0, 3.0, 4.0, 5.0]), 7.0)
    assert_allclose(model.predict(np.hstack([X, np.zeros((3, 2))])), y, atol=1e-9)


@pytest.mark.parametrize("setting", [{"memory": 3}, {"memory": None, "noise": 0.1}])
def test_memory_with_room_or_noise_does_not_warn(setting: dict[str, Any]) -> None:
    X, y = random_rows(20, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ORFitRegressor(**setting).fit(X, y)
    assert not caught
    assert model.rows_seen_ == 20


# -- weights of rows, intercept, feature maps -----------------------------------------------------


def test_integer_weights_equal_repeated_rows() -> None:
    X, y = random_rows(12, 5)
    s = np.tile([0.0, 1.0, 3.0], 4)
    weighted = ORFitRegressor(memory=None, noise=0.4).fit(X, y, sample_weight=s)
    again = np.repeat(np.arange(12), s.astype(int))
    repeated = ORFitRegressor(memory=None, noise=0.4).fit(X[again], y[again])
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-10)
    coef, _ = ridge_qr(X, y, 0.4, intercept=False, weights=s)
    assert_allclose(weighted.coef_, coef, atol=1e-10)


def test_sample_weights_do_not_matter_without_noise() -> None:
    X, y = random_rows(8, 20)
    plain = ORFitRegressor(memory=None)
    predictions = plain.test_then_train(X, y)
    for s in (1e-3, 7.0):
        weighted = ORFitRegressor(memory=None)
        assert_allclose(weighted.test_then_train(X, y, sample_weight=s), predictions, atol=1e-9)
        assert_allclose(weighted.coef_, plain.coef_, atol=1e-9)


@pytest.mark.parametrize("spec", [None, 4])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_intercept_equals_column_of_ones(spec: int | None, noise: float) -> None:
    X, Y = random_rows(9, 14, c=2)
    model = ORFitRegressor(memory=spec, noise=noise, fit_intercept=True).fit(X, Y)
    wide = np.hstack([np.ones((9, 1)), X])
    column = ORFitRegressor(memory=spec, noise=noise).fit(wide, Y)
    assert_allclose(model.intercept_, column.coef_[:, 0], atol=1e-12)
    assert_allclose(model.coef_, column.coef_[:, 1:], atol=1e-12)
    assert_allclose(model.predict(X), column.predict(wide), atol=1e-12)


def test_intercept_is_shared_with_gradients_per_output() -> None:
    X, Y = random_rows(3, 4, c=2)
    phi = gradients_per_output(20, 2, 4)
    model = ORFitRegressor(memory=None, feature_map=phi, fit_intercept=True).fit(X, Y)
    assert isinstance(model.intercept_, float)
    assert_allclose(model.predict(X), phi(X).transpose(0, 2, 1) @ model.coef_ + model.intercept_)
    assert_allclose(model.predict(X), Y, atol=1e-10)


def test_shared_feature_map_equals_mapped_features() -> None:
    X, Y = random_rows(8, 3, c=2)
    A = np.random.default_rng(1).normal(size=(3, 25))
    mapped = ORFitRegressor(memory=6, feature_map=lambda X: np.cos(X @ A))
    plain = ORFitRegressor(memory=6)
    assert_allclose(mapped.test_then_train(X, Y), plain.test_then_train(np.cos(X @ A), Y))
    assert_allclose(mapped.coef_, plain.coef_)
    assert mapped.n_features_in_ == 3
    assert mapped.coef_.shape == (2, 25)


def test_classifier_accepts_gradients_per_output() -> None:
    X, _ = random_rows(9, 4)
    labels = np.array(["a", "b", "c"] * 3)
    model = ORFitClassifier(
        memory=None, feature_map=gradients_per_output(60, 3, 4), classes=["a", "b", "c"]
    ).fit(X, labels)
    assert (model.predict(X) == labels).all()
    with raises(ParameterError, argument="classes"):
        model.learn_one(X[0], "d")
    assert (model.predict(X) == labels).all()


@pytest.mark.parametrize(
    ("phi", "error", "got"),
    [
        (lambda X: X[0], ShapeError, "(3,)"),
        (lambda X: X[:, :, None], ShapeError, "(1, 3, 1)"),
        (lambda X: X[:, None, None, :], ShapeError, "(1, 1, 1, 3)"),
        (lambda X: X * np.nan, NumericalError, "nan"),
    ],
)
def test_feature_map_of_wrong_shape_is_refused(
    phi: Any, error: type[OnepassError], got: str
) -> None:
    X, Y = random_rows(5, 3, c=2)
    with raises(error, got=got):
        ORFitRegressor(feature_map=phi).fit(X, Y)


def test_nonfinite_feature_map_leaves_learner_unchanged() -> None:
    X, y = random_rows(5, 3)
    model = ORFitRegressor(feature_map=lambda X: np.where(X > 5, np.inf, X) + np.zeros(3))
    model.partial_fit(X[:2], y[:2])
    before = model.coef_
    with raises(NumericalError, argument="feature_map", remedy="Check the map on this block"):
        model.partial_fit(X[2:] + 10.0, y[2:])
    assert_allclose(model.coef_, before)
    assert model.rows_seen_ == 2


def test_grow_is_refused_with_feature_map() -> None:
    X, y = random_rows(5, 3)
    model = ORFitRegressor(feature_map=np.tanh, memory=2).fit(X, y)
    with raises(ParameterError, remedy="Start a new learner"):
        model.grow(4)


@pytest.mark.parametrize("wrong", [np.ones(3), np.ones((2, 4)), np.full(4, np.nan), "w"])
def test_initial_coef_of_wrong_shape_is_refused_by_fit(wrong: Any) -> None:
    X, y = random_rows(5, 4)
    with raises(ParameterError, argument="initial_coef"):
        ORFitRegressor(initial_coef=wrong).fit(X, y)


@pytest.mark.parametrize("wrong", [np.ones(3), np.full(4, np.nan), "w"])
def test_initial_coef_of_wrong_shape_is_refused_by_predict_one(wrong: Any) -> None:
    with raises(ParameterError, argument="initial_coef"):
        ORFitRegressor(initial_coef=wrong).predict_one(np.ones(4))


def test_initial_coef_predicts_before_learning() -> None:
    x, start = np.arange(4.0), np.random.default_rng(0).normal(size=(3, 4))
    assert ORFitRegressor().predict_one(x) == 0.0
    assert_allclose(ORFitRegressor(initial_coef=start[0]).predict_one(x), start[0] @ x)
    assert_allclose(ORFitRegressor(initial_coef=start).predict_one(x), start @ x)
    phi, w = gradients_per_output(10, 2, 4), np.arange(10.0)
    assert_allclose(ORFitRegressor(feature_map=phi).predict_one(x), [0.0, 0.0])
    for intercept in (False, True):
        model = ORFitRegressor(feature_map=phi, initial_coef=w, fit_intercept=intercept)
        assert_allclose(model.predict_one(x), w @ phi(x[None])[0])


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "all"])
def test_invalid_memory_is_refused(wrong: Any) -> None:
    X, y = random_rows(5, 4)
    with raises(ParameterError, argument="memory"):
        ORFitRegressor(memory=wrong).fit(X, y)


# -- classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spec", "noise"), memory_settings(6, 0.5))
def test_late_class_equals_class_given_in_advance(spec: Any, noise: float) -> None:
    X, _ = random_rows(24, 30, seed=4)
    labels = np.repeat([5, 2, 9, 1], 6)
    late = ORFitClassifier(memory=spec, noise=noise)
    for i in range(0, 24, 4):
        late.partial_fit(X[i : i + 4], labels[i : i + 4])
    known = ORFitClassifier(memory=spec, noise=noise, classes=[1, 2, 5, 9]).fit(X, labels)
    assert late.classes_.tolist() == [1, 2, 5, 9]
    assert_allclose(late.coef_, known.coef_, atol=1e-10)
    regressor = ORFitRegressor(memory=spec, noise=noise)
    regressor.fit(X, (labels[:, None] == late.classes_).astype(float))
    assert_allclose(late.coef_, regressor.coef_, atol=1e-10)


# -- warnings -------------------------------------------------------------------------------------


def test_inconsistent_rows_warn_once_while_directions_are_free() -> None:
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=(60, 3)), np.ones(60), np.ones(60)])  # rank 4 of 5
    learner = ORFitRegressor(memory=5)
    with pytest.warns(MemoryFullWarning, match="rows contradict rows before them"):
        learner.partial_fit(X, rng.normal(size=60))
    learner.partial_fit(X, rng.normal(size=60))
