"""The references agree with each other and with results of the papers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import DenseP, full_svd_basis, ridge_qr, rls_row_by_row, sgd_multipass

few_examples = settings(max_examples=25, deadline=None, derandomize=True)


def problem(seed: int, n: int = 30, d: int = 5) -> tuple[Any, ...]:
    """Rows, targets, weights, some of them 0, and initial coefficients."""
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], size=n)
    weights[0] = 1.0
    return rng.normal(size=(n, d)), rng.normal(size=n), weights, rng.normal(size=d)


@few_examples
@given(seed=st.integers(0, 2**31), forgetting=st.sampled_from([0.8, 0.99, 1.0]))
def test_equation_3_solves_batch_problem(seed: int, forgetting: float) -> None:
    X, y, s, start = problem(seed)
    root = np.random.default_rng(seed).normal(size=(5, 5))
    ridge = root.T @ root + np.eye(5)
    options: dict[str, Any] = {"weights": s, "forgetting": forgetting, "initial": start}
    batch, b = ridge_qr(X, y, ridge, intercept=False, **options)
    assert b == 0.0
    for rescaled in (True, False):
        row_by_row = rls_row_by_row(X, y, ridge, rescaled=rescaled, **options)
        np.testing.assert_allclose(row_by_row.coef, batch, atol=1e-9)


@few_examples
@given(seed=st.integers(0, 2**31))
def test_dense_update_equals_equation_3(seed: int) -> None:
    X, y, s, start = problem(seed)
    expected = rls_row_by_row(X, y, 0.3, weights=s, forgetting=0.9, initial=start)
    on = s > 0
    memory = DenseP(5, prior=np.eye(5) / 0.3)
    noise = 0.9 ** np.arange(1, on.sum() + 1) / s[on]
    step = memory.learn(start, X[on].T, y[on] - X[on] @ start, noise)
    np.testing.assert_allclose(step.w, expected.coef, atol=1e-9)
    np.testing.assert_allclose(y[on] - step.errors, expected.predictions[on], atol=1e-9)
    memory.forget(0.9 ** on.sum())
    np.testing.assert_allclose(memory.P, expected.P, rtol=1e-6, atol=1e-9)


@few_examples
@given(seed=st.integers(0, 2**31))
def test_unpenalised_intercept_equals_column_of_ones(seed: int) -> None:
    X, y, s, _ = problem(seed)
    coef, b = ridge_qr(X, y, 0.7, weights=s, forgetting=0.95)
    wide = np.column_stack([X, np.ones(len(X))])
    penalty = np.diag([0.7] * 5 + [0.0])
    both, _ = ridge_qr(wide, y, penalty, intercept=False, weights=s, forgetting=0.95)
    np.testing.assert_allclose([*coef, b], both, atol=1e-9)
    late = ridge_qr(np.vstack([wide, wide[:1]]), np.append(y, 9.0), penalty, intercept=False,
                    weights=np.append(s, 0.0), forgetting=0.95)[0]  # fmt: skip
    np.testing.assert_allclose(late, both, atol=1e-9)


def test_zero_ridge_is_limit_of_small_ridge() -> None:
    X, y, s, start = problem(0, n=8, d=3)
    exact, b = ridge_qr(X, y, 0.0, weights=s, initial=start)
    near, near_b = ridge_qr(X, y, 1e-12, weights=s, initial=start)
    np.testing.assert_allclose([*near, near_b], [*exact, b], atol=1e-9)
    X, y, _, start = problem(1, n=3, d=6)
    exact, b = ridge_qr(X, y, 0.0, initial=start)
    np.testing.assert_allclose(X @ exact + b, y, atol=1e-9)
    np.testing.assert_allclose(exact, ridge_qr(X, y, 1e-9, initial=start)[0], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_theorem_2_and_corollary_1_sgd_converges_to_one_pass(seed: int) -> None:
    X, y, _, start = problem(seed, n=4, d=12)
    orfit = DenseP(12).learn(start, X.T, y - X @ start)
    assert orfit.rank == 4
    nearest, _ = ridge_qr(X, y, 0.0, intercept=False, initial=start)
    np.testing.assert_allclose(orfit.w, nearest, atol=1e-9)
    many = sgd_multipass(X, y, start, step_size=0.05, epochs=3000)
    np.testing.assert_allclose(orfit.w, many, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_proposition_1_orfit_equals_rls_with_zero_forgetting(seed: int) -> None:
    X, y, _, start = problem(seed, n=4, d=7)
    memory = DenseP(7)
    step = memory.learn(start, X.T, y - X @ start)
    limit = rls_row_by_row(X, y, 1.0, forgetting=0.0, initial=start, rescaled=False)
    np.testing.assert_allclose(step.w, limit.coef, atol=1e-9)
    Q, sigma = full_svd_basis(X.T)
    assert sigma.shape == (4,)
    np.testing.assert_allclose(memory.P, np.eye(7) - Q @ Q.T, atol=1e-9)


def test_first_of_two_contradicting_rows_wins() -> None:
    G = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    memory = DenseP(2)
    step = memory.learn(np.zeros((2, 2)), G, np.array([[1.0, 2.0], [2.0, 5.0], [0.0, 0.0]]))
    np.testing.assert_allclose(step.w, [[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_allclose(step.errors[1], [0.0, 1.0])
    assert step.rank == 1
    assert memory.inconsistent_rows == 1  # the row of zeros is fitted as it is


def test_basis_has_largest_directions() -> None:
    gradients = np.diag([3.0, 1.0, 2.0, 0.0])
    U, sigma = full_svd_basis(gradients, 2)
    np.testing.assert_allclose(sigma, [3.0, 2.0])
    np.testing.assert_allclose(np.abs(U), np.eye(4)[:, [0, 2]])
    assert full_svd_basis(np.zeros((3, 2)))[0].shape == (3, 0)
    assert full_svd_basis(np.zeros((3, 0)))[0].shape == (3, 0)
