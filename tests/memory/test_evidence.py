"""Evidence: information of all rows without the prior."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass.memory.basis import Basis
from onepass.memory.evidence import without_prior
from onepass.memory.principal import Principal

Floats = NDArray[Any]


def triangle(A: Floats, b: Floats, L: Floats) -> tuple[Floats, Floats, Floats]:
    """R, z and the least value of the squares, of rows and prior, by QR."""
    Q, R = np.linalg.qr(np.vstack((L, A)))
    B = np.vstack((np.zeros((len(L), b.shape[1])), b))
    z = Q.T @ B
    return R, z, np.sum(B**2, axis=0) - np.sum(z**2, axis=0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(1, 8),
    n=st.integers(0, 20),
    prior=st.sampled_from(["scalar", "matrix", "some"]),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_evidence_equals_information_of_all_rows(
    seed: int, p: int, n: int, prior: str, size: float
) -> None:
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.uniform(-4, 4, p)
    A, b = rng.normal(size=(n, p)) * units, rng.normal(size=(n, 2))
    L = {
        "scalar": np.eye(p),
        "matrix": rng.normal(size=(p, p)) + 2.0 * np.eye(p),
        "some": np.diag((np.arange(p) % 2) * units),
    }[prior] * size
    if prior == "some" and n < p:
        return  # R would be singular
    R, z, squares = triangle(A, b, L)
    evidence = without_prior(R, z, squares, L)
    assert len(evidence.rows) <= p
    whole = R.T @ R  # its own rounding, and that of R, is relative to rows and prior together
    unit = np.sqrt(np.diag(whole))
    apart = (evidence.rows.T @ evidence.rows - A.T @ A) / np.outer(unit, unit)
    assert np.abs(apart).max() < 1e-11 * np.linalg.cond(R / unit)
    np.testing.assert_allclose(
        (evidence.rows.T @ evidence.targets) / unit[:, None], (A.T @ b) / unit[:, None], atol=1e-9
    )
    if n > p and prior != "matrix" and size < 1e3:
        least = np.linalg.lstsq(A / units, b)[1]
        np.testing.assert_allclose(evidence.rest, least, rtol=1e-6, atol=1e-8)


def test_directions_of_prior_only_give_no_evidence() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(50, 6)), rng.normal(size=(50, 1))
    A[:, 1], A[:, 4] = 0.0, 2.0 * A[:, 0]
    for ridge in (1e-12, 1e-6, 1.0, 1e6):
        L = np.sqrt(ridge) * np.eye(6)
        evidence = without_prior(*triangle(A, b, L), L)
        small = 1e-4 * np.sqrt(ridge)
        assert (np.linalg.norm(evidence.rows, axis=1) > small).sum() == 4
        np.testing.assert_allclose(
            evidence.rows.T @ evidence.rows, A.T @ A, atol=1e-10 + 1e-12 * ridge
        )
        least = np.sum((b - A @ np.linalg.pinv(A) @ b) ** 2)
        np.testing.assert_allclose(evidence.rest, least, rtol=1e-8)


@pytest.mark.parametrize("start", [None, "other"])
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("spec", [Basis(), Principal(20)])
def test_memory_merged_from_its_evidence_retains_weights(
    spec: Any, noise: float, start: str | None
) -> None:
    rng = np.random.default_rng(1)
    w0 = np.zeros((30, 2)) if start is None else rng.normal(size=(30, 2))
    G, y = rng.normal(size=(30, 12)), rng.normal(size=(12, 2))
    step = spec.start(30, 2, noise).learn(w0, G, y - G.T @ w0, np.full(12, noise))
    evidence = step.memory.evidence(step.w, None if start is None else w0)
    again = spec.start(30, 2, noise).merged(w0, evidence)
    np.testing.assert_allclose(again.w, step.w, atol=1e-12)
