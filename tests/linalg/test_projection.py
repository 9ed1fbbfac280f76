"""Projection in two or three reads: the residual is orthogonal to rounding."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass import linalg
from onepass.linalg.projection import Projection

Floats = NDArray[Any]
P, Q = 3000, 7


def orthonormal(dtype: Any, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.ascontiguousarray(np.linalg.qr(rng.normal(size=(P, Q)))[0].T.astype(dtype))


def third_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one item per third read."""
    third: list[int] = []
    monkeypatch.setattr("onepass.linalg.projection._CACHE_BYTES", 0)
    real = Projection._finished

    def counted(self: Projection, *given: Any) -> Any:
        third.append(1)
        return real(self, *given)

    monkeypatch.setattr(Projection, "_finished", counted)
    return third


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.float32, np.float64]),
    st.floats(-6.0, 6.0),
    st.integers(1, 3),
    st.sampled_from([0, 1 << 20]),
)
def test_parts_equal_projection_in_float64(
    seed: int, dtype: Any, length: float, n: int, at_hand: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("onepass.linalg.projection._CACHE_BYTES", at_hand)
        check_split(seed, dtype, length, n)


def check_split(seed: int, dtype: Any, length: float, n: int) -> None:
    rng, rows = np.random.default_rng(seed), orthonormal(dtype)
    eps = float(np.finfo(dtype).eps)
    J = rng.normal(size=(n, P)) / np.sqrt(P) + 10.0**length * rng.normal(size=(n, Q)) @ rows
    M, G = rng.normal(size=(Q, Q)), J.astype(dtype).T
    split = Projection(rows).split(G, lambda C: M @ C)
    off = np.abs(rows.astype(float) @ split.outside).max(axis=0)
    size = np.linalg.norm(G.astype(float), axis=0)
    assert (off <= 8.0 * eps * np.linalg.norm(split.outside, axis=0)).all()
    wide = rows.astype(float).T @ split.inside + split.outside
    assert np.abs(wide - G).max() <= 40.0 * eps * size.max()
    lifted = split.outside + rows.astype(float).T @ (M @ split.inside)
    assert np.abs(split.lifted - lifted).max() <= 100.0 * eps * size.max()


def test_third_read_is_done_for_small_residuals_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    third, rng, rows = third_reads(monkeypatch), np.random.default_rng(1), orthonormal(np.float64)
    new = rng.normal(size=P)
    new -= rows.T @ (rows @ new)
    new /= np.linalg.norm(new)
    for inside, expected in ((0.1, 0), (1e3, 1), (1e9, 1)):
        third.clear()
        Projection(rows).split((new + inside * rows.sum(axis=0))[:, None])
        assert len(third) == expected


def test_vectors_in_span_and_zeros_have_no_part_outside() -> None:
    rows = orthonormal(np.float64)
    split = Projection(rows).split(np.column_stack([rows[0] + 2.0 * rows[3], np.zeros(P)]))
    np.testing.assert_allclose(split.inside[[0, 3], 0], [1.0, 2.0], rtol=1e-14)
    assert np.abs(split.outside).max() < 1e-15


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_numbers_propagate(value: float) -> None:
    rows, g = orthonormal(np.float64), np.ones((P, 1))
    g[5] = value
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(Projection(rows).split(g).outside).any()


def test_gram_and_turn_equal_plain_products() -> None:
    rng = np.random.default_rng(2)
    rows, T = rng.normal(size=(150, 5000)), rng.normal(size=(150, 90))
    np.testing.assert_allclose(Projection(rows).gram(), rows @ rows.T, rtol=1e-11, atol=1e-10)
    expected = T.T @ rows
    Projection(rows).turn(T, rows[:90])
    np.testing.assert_allclose(rows[:90], expected, rtol=1e-11, atol=1e-11)


def test_gram_matrix_of_float32_is_summed_in_float64() -> None:
    rows = np.random.default_rng(4).normal(size=(15, 784)).astype(np.float32)
    exact = rows.astype(np.float64) @ rows.T.astype(np.float64)
    np.testing.assert_allclose(Projection(rows).gram(), exact, atol=1e-10)


def test_thread_count_does_not_change_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("onepass.linalg.projection._SHARED", 0)
    rng, rows = np.random.default_rng(3), torch.from_numpy(orthonormal(np.float32))
    G = torch.from_numpy(rng.normal(size=(2, P)).astype(np.float32)).T
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(Projection(rows).split(G, lambda C: 2.0 * C))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*(map(linalg.host, each) for each in found), strict=True):
        few = 16 * np.finfo(np.float32).eps  # the threads add up the products in another order
        np.testing.assert_allclose(one, other, rtol=0.0, atol=few * np.abs(other).max())


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_norms_of_tensors_neither_overflow_nor_underflow(scale: float) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(4).normal(size=(9000, 2)).astype(np.float32)
    tensor = torch.from_numpy(values * np.float32(scale))
    expected = np.linalg.norm(tensor.double().numpy(), axis=0)
    np.testing.assert_allclose(linalg.norms(tensor), expected, rtol=1e-6)
    assert linalg.norms(torch.zeros(9000, 2)).tolist() == [0.0, 0.0]


def test_rows_are_finite_finds_nonfinite_rows() -> None:
    torch = pytest.importorskip("torch")
    J = torch.ones(4, 10)
    J[1], J[2, 3], J[3, 4] = 3e38, float("nan"), float("-inf")
    assert linalg.rows_are_finite(J).tolist() == [True, True, False, False]
