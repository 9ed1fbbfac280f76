"""Principal against a dense oracle: full SVD, truncated at each step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onepass import ORFitClassifier, ORFitRegressor
from onepass.errors import ParameterError
from onepass.linalg.update import Step
from onepass.memory import Basis, LastDirections, Principal, Random, SquareRoot
from raising import raises

Floats = NDArray[Any]


@dataclass
class DensePrincipal:
    """The m principal directions, by a full SVD of [U diag(σ), new gradients] at every step."""

    p: int
    m: int
    noise: float = 0.0

    def __post_init__(self) -> None:
        self.scaled = np.zeros((self.p, 0))

    @property
    def P(self) -> Floats:  # noqa: N802
        U, sigma, _ = np.linalg.svd(self.scaled, full_matrices=False)
        U, sigma = U[:, sigma > 1e-9], sigma[sigma > 1e-9]
        return np.eye(self.p) - (U * (sigma**2 / (sigma**2 + self.noise))) @ U.T

    def learn(self, w: Floats, G: Floats, y: Floats) -> Floats:
        """One augmented row: all columns of G at once."""
        U = self.P @ G
        S = G.T @ U + self.noise * np.eye(G.shape[1])
        w = w + U @ np.linalg.solve(S, y - G.T @ w)
        U, sigma, _ = np.linalg.svd(np.hstack((self.scaled, G)), full_matrices=False)
        self.scaled = (U * sigma)[:, : self.m]
        return w


def stream(p: int, n: int, c: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Gradients with directions of falling strength, so that the cut is well determined."""
    rng = np.random.default_rng(seed)
    strong = rng.normal(size=(p, 4)) * [8.0, 4.0, 2.0, 1.0]
    G = strong @ rng.normal(size=(4, n)) + 0.1 * rng.normal(size=(p, n))
    return G, rng.normal(size=(n, c))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-2)])
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("m", [1, 4, 9])
def test_principal_equals_full_svd_truncated_at_each_step(
    m: int, n: int, noise: float, dtype: Any, tolerance: float
) -> None:
    G, y = stream(30, 60, 2)
    memory, dense = Principal(m).start(30, 2, noise, dtype), DensePrincipal(30, m, noise)
    w, expected = np.zeros((30, 2), dtype=dtype), np.zeros((30, 2))
    for i in range(0, 60, n):
        g, targets = G[:, i : i + n].astype(dtype), y[i : i + n]
        expected = dense.learn(expected, g.astype(np.float64), targets)
        step = memory.learn(w, g, (targets - g.T @ w).astype(dtype), np.full(n, noise))
        w, memory = step.w, step.memory
        assert memory.rank <= m
        assert len(memory.subspace.B) <= 2 * max(m, n)
    free = memory.subspace.split(np.eye(30, dtype=dtype), noise).lifted
    np.testing.assert_allclose(free, dense.P, atol=tolerance)
    np.testing.assert_allclose(w, expected, atol=tolerance * np.abs(expected).max())
    assert w.dtype == memory.subspace.B.rows.dtype == dtype


def test_principal_with_room_and_noise_equals_ridge() -> None:
    G, y = stream(20, 8, 1)
    ridge, principal = SquareRoot(0.4).start(20, 1), Principal(8).start(20, 1, 0.4)
    a = b = np.zeros((20, 1))
    for i in range(8):
        g = G[:, i : i + 1]
        one = ridge.learn(a, g, y[i : i + 1] - g.T @ a, np.ones(1))
        two = principal.learn(b, g, y[i : i + 1] - g.T @ b, np.full(1, 0.4))
        a, ridge, b, principal = one.w, one.memory, two.w, two.memory
    np.testing.assert_allclose(b, a, atol=1e-13)


def test_rows_of_unequal_noise_equal_weighted_rows() -> None:
    rng = np.random.default_rng(1)
    G, y, s = rng.normal(size=(20, 6)), rng.normal(size=(6, 1)), rng.uniform(0.5, 2.0, 6)
    ridge, principal = SquareRoot(0.4).start(20, 1), Principal(6).start(20, 1, 0.4)
    a = b = np.zeros((20, 1))
    for i in range(6):
        g = G[:, i : i + 1]
        one = ridge.learn(a, g, y[i : i + 1] - g.T @ a, np.full(1, 1.0 / s[i]))
        two = principal.learn(b, g, y[i : i + 1] - g.T @ b, np.full(1, 0.4 / s[i]))
        a, ridge, b, principal = one.w, one.memory, two.w, two.memory
    np.testing.assert_allclose(b, a, atol=1e-13)


def test_projected_directions_equal_algorithm_1() -> None:
    rng = np.random.default_rng(2)
    m, p = 3, 12
    G = rng.normal(size=(p, 25)) * rng.uniform(0.1, 5.0, 25)
    memory, w = Principal(m, of="projected").start(p, 1), np.zeros(p)
    retained: list[tuple[float, Floats]] = []  # length and direction, longest first
    for i in range(25):
        v = G[:, i] - sum((u * (u @ G[:, i]) for _, u in retained), np.zeros(p))
        length = float(np.linalg.norm(v))
        retained = sorted([*retained, (length, v / length)], key=lambda pair: -pair[0])[:m]
        step = memory.learn(w, G[:, i : i + 1], np.ones(1), np.zeros(1))
        np.testing.assert_allclose(step.w, w + v / (length**2), atol=1e-12)
        w, memory = step.w, step.memory
    U = np.column_stack([u for _, u in retained])
    np.testing.assert_allclose(memory.subspace.sigma, [length for length, _ in retained])
    found = memory.subspace.U
    np.testing.assert_allclose(found @ found.T, U @ U.T, atol=1e-12)


@pytest.mark.parametrize(("of", "noise"), [("raw", 0.0), ("raw", 0.5), ("projected", 0.0)])
@pytest.mark.parametrize("p", [1, 4])
def test_zero_and_repeated_rows_add_no_direction(of: Any, noise: float, p: int) -> None:
    memory, w = Principal(2, of=of).start(p, 1, noise), np.zeros(p)
    g = np.arange(1.0, p + 1.0)
    for row in (np.zeros(p), g, np.zeros(p), g, -2 * g, g):
        step: Step = memory.learn(w, row[:, None], np.ones(1) - row @ w, np.full(1, noise))
        w, memory = step.w, step.memory
        assert np.isfinite(w).all()
    U = memory.subspace.U
    assert memory.subspace.rank == 1
    np.testing.assert_allclose(np.abs(U[:, 0]), g / np.linalg.norm(g), atol=1e-12)


def test_contradicting_row_is_counted_and_ignored() -> None:
    memory, w = Principal(3).start(5, 1), np.zeros(5)
    g = np.ones((5, 1))
    against = []
    for target in (1.0, 1.0, 3.0):
        step = memory.learn(w, g, np.full(1, target) - g.T @ w, np.zeros(1))
        w, memory = step.w, step.memory
        against.append(step.inconsistent_rows)
    assert against == [0, 0, 1]
    np.testing.assert_allclose(g.T @ w, 1.0)


def test_bytes_do_not_grow_with_rows() -> None:
    rng = np.random.default_rng(3)
    memory, w = Principal(5).start(200, 1), np.zeros(200)
    for _ in range(100):
        step = memory.learn(w, rng.normal(size=(200, 1)), np.ones(1), np.zeros(1))
        w, memory = step.w, step.memory
        space = memory.subspace
        assert space.B.nbytes + space.K.nbytes + space.sigma.nbytes <= 8 * (200 * 10 + 10 * 5 + 5)


@pytest.mark.parametrize("m", [0, -1, 2.5, True, "3"])
def test_invalid_m_is_refused(m: Any) -> None:
    with raises(ParameterError, argument="m"):
        Principal(m)


def test_unknown_kind_of_direction_is_refused() -> None:
    with raises(ParameterError, argument="of"):
        Principal(3, of="raws")  # type: ignore[arg-type]


def test_projected_directions_refuse_noise() -> None:
    """P = I − UUᵀ with R > 0 is no least squares, whatever the lengths of U stand for."""
    message = r"`noise` must be 0 with a memory of projected directions, got 0.5. Use op.memory.Pri"
    with pytest.raises(ParameterError, match=f"^{message}"):
        Principal(3, of="projected").start(4, 1, 0.5)
    assert Principal(3, of="projected").start(4, 1, 0.0).rank == 0


@pytest.mark.parametrize("retained", [Principal(3, of="projected"), LastDirections(3), Random(3)])
@pytest.mark.parametrize("kind", [ORFitRegressor, ORFitClassifier])
def test_learners_refuse_noise_with_memories_without_noise(kind: Any, retained: Any) -> None:
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    model = kind(memory=retained, noise=0.5)
    before = dict(vars(model))
    with raises(
        ParameterError, argument="noise", remedy="Use op.memory.Principal(m), which stores"
    ):
        model.partial_fit(X, y)
    assert vars(model) == before
    model.set_params(noise=0.0).partial_fit(X, y)
    assert model.rows_seen_ == 4


def test_specifications_compare_by_value() -> None:
    assert Principal(3) == Principal(3) != Principal(4)
    assert Basis() == Basis()
