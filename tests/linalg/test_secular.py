"""SVD of a diagonal matrix with additional columns against dense SVD."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass import linalg, native
from sampling import sample

Floats = NDArray[Any]
SPECTRA = {
    "plain": lambda rng, n: 10.0 * rng.random(n),
    "far apart": lambda _, n: np.logspace(5, -8, n),
    "equal": lambda _, n: np.full(n, 3.0),
    "in pairs": lambda rng, n: np.repeat(rng.random((n + 1) // 2), 2)[:n],
    "one far above": lambda rng, n: np.append(1e8, rng.random(n - 1)),
    "huge": lambda rng, n: 1e200 * rng.random(n),
    "tiny": lambda rng, n: 1e-200 * rng.random(n),
    "nearly equal": lambda rng, n: 1.0 + 1e-14 * rng.random(n),
}


def check_bordered_svd(d: Floats, Z: Floats) -> None:
    U, sigma = linalg.bordered_svd(d, Z)
    size = max(d.max(initial=0.0), np.abs(Z).max(initial=0.0)) or 1.0
    M = np.hstack((np.diag(d), Z)) / size
    n = len(d)
    assert U.shape == (n, n)
    assert (np.diff(sigma) <= 0.0).all()
    np.testing.assert_allclose(sigma / size, np.linalg.svd(M)[1], atol=1e-14 * n)
    np.testing.assert_allclose(U.T @ U, np.eye(n), atol=1e-14 * n)
    np.testing.assert_allclose((U * (sigma / size) ** 2) @ U.T, M @ M.T, atol=1e-14 * n)


@pytest.mark.parametrize(
    ("spectrum", "n"),
    sample(list(product(SPECTRA, [1, 2, 11, 23, 24, 25, 60, 101])), 24, "bordered SVD"),
)
def test_bordered_svd_of_one_column_equals_dense_svd(spectrum: str, n: int) -> None:
    rng = np.random.default_rng(n)
    d = np.sort(SPECTRA[spectrum](rng, n))[::-1].copy()
    z = rng.normal(size=n) * d[0]
    sparse = np.where(np.arange(n) % 3 == 0, z, 0.0)
    for column in (z, 1e-9 * z, sparse, 0.0 * z):
        check_bordered_svd(d, column[:, None])
        check_bordered_svd(np.append(d[:-1], 0.0), column[:, None])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(8, 40), st.floats(-20, 3), st.integers(0, 30))
def test_bordered_svd_of_random_spectra_equals_dense_svd(
    seed: int, n: int, least: float, zeros: int
) -> None:
    rng = np.random.default_rng(seed)
    d = np.sort(10.0 ** rng.uniform(least, 3, n))[::-1].copy()
    z = rng.normal(size=n) * 10.0 ** rng.uniform(least, 3, n)
    z[rng.integers(0, n, zeros)] = 0.0
    check_bordered_svd(d, z[:, None])


@pytest.mark.parametrize("k", [0, 1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 30])
def test_bordered_svd_accepts_several_columns_and_zeros(n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    for zeros in range(min(n, k) + 1):
        d = np.sort(rng.random(n))[::-1].copy()
        d[n - zeros :] = 0.0
        check_bordered_svd(d, rng.normal(size=(n, k)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("n", [5, 60])
def test_bordered_svd_refuses_nonfinite_numbers(n: int, wrong: float) -> None:
    d, Z = np.linspace(2.0, 1.0, n), np.ones((n, 1))
    for place in range(2):
        bad = (d.copy(), Z.copy())
        bad[place][0] = wrong
        with pytest.raises(np.linalg.LinAlgError):
            linalg.bordered_svd(*bad)


@pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("n", [24, 57])
def test_compiled_bordered_svd_equals_numpy(spectrum: str, n: int, monkeypatch: Any) -> None:
    rng = np.random.default_rng(n)
    d = np.sort(SPECTRA[spectrum](rng, n))[::-1].copy()
    z = rng.normal(size=(n, 1)) * d[0]
    U, sigma = linalg.bordered_svd(d, z)
    monkeypatch.setattr(native, "loops", None)
    V, plain = linalg.bordered_svd(d, z)
    np.testing.assert_allclose(sigma, plain, rtol=1e-13, atol=1e-13 * d[0])
    apart = np.append(np.inf, -np.diff(sigma)) > 1e-6 * sigma[0]
    alone = apart & np.append(apart[1:], True)  # equal ones may turn among each other
    cosines = np.abs(np.einsum("ij,ij->j", U, V))[alone]
    np.testing.assert_allclose(cosines, 1.0, atol=1e-9)
