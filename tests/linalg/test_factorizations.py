"""Factorizations against NumPy, and thread limits of BLAS."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from onepass import linalg
from onepass.linalg import factorizations, threads

SRC = Path(linalg.__file__).parents[1]
Floats = NDArray[Any]
SIZES = [(1, 1), (1, 5), (5, 1), (3, 40), (40, 3), (70, 70), (0, 4), (4, 0)]


def random_matrix(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(("n", "p"), SIZES)
@pytest.mark.parametrize("c", [0, 1, 3])
@pytest.mark.parametrize("singular", [False, True])
def test_qr_update_adds_gram_matrices_of_rows_and_targets(
    n: int,
    p: int,
    c: int,
    singular: bool,  # noqa: FBT001
) -> None:
    R = np.zeros((p, p)) if singular else np.triu(random_matrix(0, p, p))
    z, A, b = (
        (np.zeros((p, c)) if singular else random_matrix(1, p, c)),
        random_matrix(2, n, p),
        random_matrix(3, n, c),
    )
    copies = [array.copy() for array in (R, z, A, b)]
    R_new, z_new, left = linalg.qr_update(R, z, A, b)
    squares = (z**2).sum(axis=0) + (b**2).sum(axis=0)
    np.testing.assert_allclose((z_new**2).sum(axis=0) + left, squares, atol=1e-11)
    np.testing.assert_allclose(R_new.T @ R_new, R.T @ R + A.T @ A, atol=1e-11)
    np.testing.assert_allclose(R_new.T @ z_new, R.T @ z + A.T @ b, atol=1e-11)
    np.testing.assert_array_equal(R_new, np.triu(R_new))
    for array, copy in zip((R, z, A, b), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("p", [0, 1, 6])
def test_triangular_solvers_accept_any_layout(p: int) -> None:
    R = np.triu(random_matrix(0, p, p)) + 3.0 * np.eye(p)
    b = random_matrix(1, p, 2)
    for order in ("C", "F"):
        T, L = np.array(R, order=order), np.array(R.T, order=order)
        np.testing.assert_allclose(R @ linalg.solve_upper(T, b), b, atol=1e-13)
        np.testing.assert_allclose(R.T @ linalg.solve_upper_transposed(T, b), b, atol=1e-13)
        np.testing.assert_allclose(linalg.whitened(b.T, T) @ R, b.T, atol=1e-13)
        np.testing.assert_allclose(R.T @ linalg.solve_lower(L, b), b, atol=1e-13)
        np.testing.assert_allclose(R @ linalg.solve_lower_transposed(L, b), b, atol=1e-13)
        np.testing.assert_allclose(linalg.solve_lower_right(b.T, L) @ R, b.T, atol=1e-13)


@pytest.mark.parametrize("c", [1, 2])
def test_singular_triangle_has_no_finite_solution(c: int) -> None:
    singular, b = np.diag([1.0, 0.0, 2.0]), np.ones((3, c))
    for solve in (linalg.solve_upper, linalg.solve_lower_transposed):
        assert not np.isfinite(solve(singular, b)).all()


def test_right_solve_preserves_dtype() -> None:
    U = random_matrix(0, 9, 3).astype(np.float32)
    assert linalg.solve_lower_right(U, np.eye(3)).dtype == np.float32


def test_cholesky_update_equals_qr_update_for_small_rows() -> None:
    R = np.triu(random_matrix(0, 6, 6)) + 3.0 * np.eye(6)
    R[:, 4] *= 1e6  # nor do the units of a feature matter
    A, z, b = random_matrix(1, 9, 6) @ (0.5 * R), random_matrix(2, 6, 2), random_matrix(3, 9, 2)
    calm, z_calm = linalg.cholesky_update(np.asfortranarray(R), z, linalg.whitened(A, R), b)
    exact, z_exact, _ = linalg.qr_update(R, z, A, b)
    signs = np.sign(np.diagonal(exact) * np.diagonal(calm))[:, None]
    np.testing.assert_allclose(
        signs * calm / np.abs(R).max(0), exact / np.abs(R).max(0), atol=1e-13
    )
    np.testing.assert_allclose(signs * z_calm, z_exact, atol=1e-13)


@given(
    p=st.integers(1, 40),
    n=st.integers(1, 40),
    c=st.integers(0, 3),
    order=st.sampled_from("CF"),
    seed=st.integers(0, 99),
)
def test_routines_for_large_triangles_equal_those_for_small_ones(
    p: int, n: int, c: int, order: Any, seed: int
) -> None:
    """The same routines are called so that other threads run meanwhile: to the last bit."""
    rng = np.random.default_rng(seed)
    R = np.array(np.triu(rng.normal(size=(p, p))) + 3 * np.eye(p), order=order)
    z, A, b = (np.array(rng.normal(size=s), order=order) for s in ((p, c), (n, p), (n, c)))
    before = [each.copy() for each in (R, z, A, b)]

    def found() -> list[Any]:
        return [
            *linalg.qr_update(R, z, A, b), linalg.whitened(A, R),
            *linalg.cholesky_update(R, z, A, b),
            *linalg.cholesky(R.T @ R), *linalg.cholesky(R - 9.0 * np.eye(p)),
        ]  # fmt: skip

    small = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factorizations, "LONG", 0)
        large = found()
    for one, two in zip(small, large, strict=True):
        np.testing.assert_array_equal(one, two)
    for given_, retained in zip((R, z, A, b), before, strict=True):
        np.testing.assert_array_equal(given_, retained)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e3, 1e7, 1e10])
@pytest.mark.parametrize(("p", "n"), [(1, 1), (4, 9), (9, 4), (0, 3)])
def test_lower_from_rows_equals_qr_for_any_size(size: float, p: int, n: int) -> None:
    V = size * random_matrix(0, p, n)
    L = linalg.lower_from_rows(V.T)
    assert (np.diagonal(L) > 0).all()
    np.testing.assert_array_equal(L, np.tril(L))
    signs = np.sign(np.diagonal(np.linalg.qr(np.vstack((V, np.eye(n))))[1]))
    exact = (np.linalg.qr(np.vstack((V, np.eye(n))))[1] * signs[:, None]).T
    np.testing.assert_allclose(L, exact, rtol=1e-7, atol=1e-13 * max(size, 1.0))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 8))
def test_ordered_cholesky_skips_dependent_rows(seed: int, p: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(p, n))
    for j in range(1, n):
        if rng.random() < 0.4:
            U[:, j] = U[:, :j] @ rng.normal(size=j)
    lengths = np.linalg.norm(U, axis=0)
    L, retained = linalg.ordered_cholesky(U.T @ U, (1e-6 * lengths) ** 2)
    ranks = [np.linalg.matrix_rank(U[:, : j + 1], tol=1e-5 * lengths.max()) for j in range(n)]
    if any(s / lengths.max() < 1e-3 for s in _distances_from_span(U, retained)):
        return  # what is nearly dependent may fall on either side
    assert retained.tolist() == (np.diff([0, *ranks]) == 1).tolist()
    W = linalg.solve_lower_right(U, L) * retained
    np.testing.assert_allclose(W.T @ W, np.diag(retained.astype(float)), atol=1e-6)


def _distances_from_span(U: Floats, retained: Floats) -> Floats:
    """Distance of retained columns from the span of earlier retained columns."""
    return np.abs(np.diagonal(np.linalg.qr(U[:, retained])[1]))


def test_ordered_cholesky_equals_numpy_for_independent_rows() -> None:
    A = random_matrix(0, 9, 5)
    L, retained = linalg.ordered_cholesky(A.T @ A, np.zeros(5))
    assert retained.all()
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(A.T @ A), atol=1e-13)


def test_ordered_cholesky_skips_all_rows_of_zeros() -> None:
    L, retained = linalg.ordered_cholesky(np.zeros((3, 3)), np.zeros(3))
    assert not retained.any()
    np.testing.assert_array_equal(L, np.eye(3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_and_singular_values_are_computed_in_float64(dtype: Any) -> None:
    G = (1e25 * random_matrix(0, 7, 3)).astype(dtype)  # squares of float32 overflow
    np.testing.assert_allclose(linalg.norms(G), np.linalg.norm(G.astype(float), axis=0))
    U, sigma = linalg.svd(G)
    assert U.dtype == sigma.dtype == np.float64
    np.testing.assert_allclose((U * sigma) @ (U * sigma).T, G.astype(float) @ G.T.astype(float))


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e160, 1e307])
def test_norms_neither_underflow_nor_overflow(size: float) -> None:
    G = np.array([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]])
    with np.errstate(over="raise"):
        np.testing.assert_allclose(linalg.norms(G * [size, size, 1.0]), [5.0 * size, 0.0, 1.0])
        np.testing.assert_allclose(linalg.norms(size * G[:, :1]), [5.0 * size])


def test_norms_of_nonfinite_columns_are_not_finite() -> None:
    assert not np.isfinite(linalg.norms(np.array([[np.inf], [1.0]]))).any()
    assert not np.isfinite(linalg.norms(np.array([[np.nan], [1.0]]))).any()


def test_empty_matrix_has_no_singular_values() -> None:
    U, sigma = linalg.svd(np.zeros((0, 3)))
    assert U.shape == (0, 0)
    assert sigma.shape == (0,)


def test_finite_checks_all_arrays() -> None:
    assert linalg.finite(np.ones(3), np.zeros((0, 2)))
    assert not linalg.finite(np.ones(3), np.array([1.0, np.nan]))
    assert not linalg.finite(np.array([np.inf, 1.0]), np.ones(2))


def test_finite_accepts_numbers_whose_sum_overflows() -> None:
    with np.errstate(over="ignore"):
        assert linalg.finite(np.full(3, 1e308))


def test_overlapping_thread_limits_restore_the_counts() -> None:
    def limits() -> list[int]:
        return [library["num_threads"] for library in threadpool_info()]

    with threadpool_limits(2, "blas"):
        before = limits()
        first, second = linalg.one_thread(100, 100), linalg.one_thread(100, 100)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert all(
            library["num_threads"] == 1
            for library in threadpool_info()
            if library["user_api"] == "blas"
        )
        second.__exit__(None, None, None)
        assert limits() == before


@pytest.mark.parametrize("n", [1, 2])
def test_subnormal_column_is_not_retained(n: int) -> None:
    U = np.full((4, n), 1e-40, dtype=np.float32)
    W, L, retained = linalg.orthonormal(U, np.zeros(n))
    assert not retained.any()
    assert np.isfinite(W).all()
    assert np.isfinite(L).all()


def test_rows_whose_squares_overflow_are_nonfinite() -> None:
    torch = pytest.importorskip("torch")
    J = torch.tensor([[1e200, 1.0], [1.0, 2.0], [torch.nan, 1.0]], dtype=torch.float64)
    assert linalg.rows_are_finite(J).tolist() == [False, True, False]


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_svd_of_nonfinite_matrix_is_refused(wrong: float) -> None:
    M = np.array([[wrong, 0.0, 1e159], [0.0, wrong, -1e160], [0.0, 0.0, 5e129]])
    for decomposed in (linalg.svd, linalg.svd_both, linalg.eigh):
        with pytest.raises(np.linalg.LinAlgError, match="must be finite"):
            decomposed(M)


def test_svd_routines_are_called_in_factorizations_only() -> None:
    places = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if re.search(r"np\.linalg\.svd|scipy\.linalg import.*svd", path.read_text("utf-8"))
    }
    assert places == {"linalg/factorizations.py"}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (0, 3)])
def test_svd_both_and_eigh_reconstruct_matrix(shape: tuple[int, int], whole: bool) -> None:  # noqa: FBT001
    M = np.random.default_rng(0).normal(size=shape)
    U, sigma, Vt = linalg.svd_both(M, whole=whole)
    k = min(shape)
    np.testing.assert_allclose(U[:, :k] * sigma @ Vt[:k], M, atol=1e-14)
    assert (U.shape[1], Vt.shape[0]) == (shape if whole else (k, k))
    values, vectors = linalg.eigh(M @ M.T)
    np.testing.assert_allclose(vectors * values @ vectors.T, M @ M.T, atol=1e-13)


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("wrong", [np.inf, np.nan, 1e200])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_nonfinite_column_is_not_retained(n: int, wrong: float, tensors: bool) -> None:  # noqa: FBT001
    U: Any = np.random.default_rng(0).normal(size=(20, n))
    U[3, n - 1] = wrong
    if tensors:
        U = pytest.importorskip("torch").as_tensor(U)
    with np.errstate(all="ignore"):
        W, _, retained = linalg.orthonormal(U, np.full(n, 1e-7))
    finite = np.isfinite(np.asarray(W)).all(axis=0)
    assert np.isfinite(wrong) or not retained[n - 1]
    assert finite[retained].all()  # columns not retained are zero or nan
    W = np.asarray(W)[:, retained]
    np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_magnitude_equals_largest_absolute_value(dtype: Any) -> None:
    A = random_matrix(0, 7, 5).astype(dtype)
    A[3, 2] = -9.0
    for array in (A, A.T, A[::2, ::-1], A[:, :0]):
        assert linalg.magnitude(array) == np.abs(array).max(initial=0.0)


@pytest.mark.parametrize("place", ["read", "set", "put back", "before leaving"])
def test_interrupt_restores_thread_counts(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, sets, due = threads._BLAS, [], [True]
    counts, put = hold.counts, hold.put

    def interrupt(at: str) -> None:
        if due[0] and at == place:
            due[0] = False
            raise KeyboardInterrupt

    def read() -> list[int]:
        interrupt("read")
        return counts()

    def write(given: list[int], now: list[int]) -> None:
        sets.append(given)
        put(given, now)
        interrupt("set" if len(sets) == 1 else "put back")

    monkeypatch.setattr(hold, "counts", read)
    monkeypatch.setattr(hold, "put", write)
    with threadpool_limits(2, "blas"):
        before = [each["num_threads"] for each in threadpool_info()]
        if place == "before leaving":  # the context is entered and never left
            hold.context().__enter__()
        else:
            with pytest.raises(KeyboardInterrupt), linalg.single_threaded(1 << 20):
                pass
        assert [each["num_threads"] for each in threadpool_info()] == before
        with linalg.single_threaded(1 << 20):
            now = [each for each in threadpool_info() if each["user_api"] == "blas"]
            assert all(each["num_threads"] == 1 for each in now)
        assert [each["num_threads"] for each in threadpool_info()] == before


def test_tiny_products_do_not_limit_threads() -> None:
    with threadpool_limits(2, "blas"), linalg.single_threaded(100):
        now = [each for each in threadpool_info() if each["user_api"] == "blas"]
        assert all(each["num_threads"] == 2 for each in now)


def test_svd_falls_back_to_gesvd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    M = random_matrix(0, 9, 6)
    missed = (np.zeros((9, 6)), np.zeros(6), np.zeros((6, 6)), 1)
    monkeypatch.setattr(factorizations.lapack, "dgesdd", lambda *_, **__: missed)
    U, sigma = linalg.svd(M)
    np.testing.assert_allclose(sigma, np.linalg.svd(M)[1])
    np.testing.assert_allclose((U * sigma**2) @ U.T, M @ M.T, atol=1e-12)


@pytest.mark.parametrize("k", [1, 5, 12, 20])
def test_principal_axes_are_zero_in_zero_columns(k: int) -> None:
    rng = np.random.default_rng(0)
    F = rng.normal(size=(40, 30)) * np.linspace(1.0, 9.0, 30)
    F[:, rng.permutation(30)[:14]] = 0.0
    directions, lengths = linalg.principal(F, k)
    _, sigma, V = np.linalg.svd(F, full_matrices=False)
    k = min(k, 16)  # there are no more
    np.testing.assert_allclose(lengths, sigma[:k], rtol=1e-10)
    np.testing.assert_allclose(abs(directions @ V[:k].T), np.eye(k), atol=1e-9)
    assert abs(directions[:, ~F.any(axis=0)]).max() < 1e-15
