from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import DenseP

torch = pytest.importorskip("torch")

from onepass.nn.kalman import Covariance, PosteriorCovariance  # noqa: E402

KINDS = {"numpy": np.float64, "torch": torch.empty(0, dtype=torch.float64)}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def of_kind(kind: Any, *arrays: Any) -> list[Any]:
    return [torch.from_numpy(a) if isinstance(kind, torch.Tensor) else a for a in arrays]


def dense(belief: PosteriorCovariance) -> Any:
    """The dense P."""
    Q = np.asarray(belief.Q)
    P = Q @ belief.root @ belief.root.T @ Q.T
    return P + belief.beyond * (np.eye(len(Q)) - Q @ Q.T)


def stream(rng: Any, p: int, blocks: int, c: int, *, inside: bool) -> list[tuple[Any, Any]]:
    """Blocks of gradients and errors; some columns are repeated, zero or dependent on past ones."""
    made, past = [], rng.normal(size=(p, 2))
    for _ in range(blocks):
        n = c * int(rng.integers(1, 4))
        G = rng.normal(size=(p, n)) * 10.0 ** rng.integers(-2, 3)
        if inside:
            G[:, rng.random(n) < 0.2] = 0.0
            G = np.where(rng.random(n) < 0.3, past @ rng.normal(size=(2, n)), G)
        made.append((G, rng.normal(size=n)))
    return made


@each_kind
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(3, 9),
    st.sampled_from([0.0, 1e-3, 1.0]),
    st.floats(0.1, 9.0),
    st.integers(1, 3),
)
def test_equals_dense_covariance(
    kind: Any, seed: int, p: int, noise: float, prior: float, c: int
) -> None:
    rng = np.random.default_rng(seed)
    belief = Covariance(prior).start(p, c, noise, kind)
    oracle, w = DenseP(p, prior * np.eye(p)), np.zeros(p)
    for G, e in stream(rng, p, 5, c, inside=noise > 0.0):
        if not noise and belief.used + G.shape[1] > p:
            break  # nothing would be left; rows inside the past are another test
        right = oracle.learn(w, G, e, noise)
        w_long, G_long, e_long = of_kind(kind, w, G, e)
        step = belief.learn(w_long, G_long, e_long, np.full(len(e), noise))
        belief = step.memory
        scale = max(np.abs(right.w).max(), 1.0)
        np.testing.assert_allclose(np.asarray(step.w), right.w, atol=1e-6 * scale)
        np.testing.assert_allclose(np.asarray(step.errors), right.errors, atol=1e-6 * scale)
        np.testing.assert_allclose(dense(belief), oracle.P, atol=1e-8 * prior)
        w = right.w
    assert len(belief.columns) <= p


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_block_equals_sequential_rows(noise: float) -> None:
    rng = np.random.default_rng(0)
    G, e = rng.normal(size=(20, 8)), rng.normal(size=8)
    start = Covariance().start(20, 2)
    whole = start.learn(np.zeros(20), G, e, np.full(8, noise), group=2)
    w, belief, errors = np.zeros(20), start, []
    for i in range(0, 8, 2):
        G_i = G[:, i : i + 2]
        step = belief.learn(w, G_i, e[i : i + 2] - G_i.T @ w, np.full(2, noise), group=2)
        w, belief = step.w, step.memory
        errors += list(step.errors)
    np.testing.assert_allclose(whole.w, w, atol=1e-12)
    np.testing.assert_allclose(whole.errors, errors, atol=1e-12)
    np.testing.assert_allclose(dense(whole.memory), dense(belief), atol=1e-12)
    assert whole.memory.rank == (8 if not noise else 0)


def test_square_root_update_equals_joseph_form() -> None:
    rng = np.random.default_rng(1)
    G = rng.normal(size=(6, 2))
    before = Covariance(2.0).start(6, 1)
    before = before.learn(np.zeros(6), rng.normal(size=(6, 3)), np.ones(3), np.ones(3)).memory
    P = dense(before)
    for noise in (1.0, 1e-8, 1e-16, 1e-30, 0.0):
        K = np.linalg.solve(G.T @ P @ G + noise * np.eye(2), G.T @ P).T
        A = np.eye(6) - K @ G.T
        after = before.learn(np.zeros(6), G, np.ones(2), np.full(2, noise)).memory
        np.testing.assert_allclose(dense(after), A @ P @ A.T + noise * K @ K.T, atol=1e-14)


@each_kind
def test_mixed_noise_in_one_block(kind: Any) -> None:
    rng = np.random.default_rng(2)
    G, e = rng.normal(size=(9, 4)), rng.normal(size=4)
    noise, oracle = np.array([0.0, 1.0, 0.0, 0.5]), DenseP(9)
    right = oracle.learn(np.zeros(9), G, e, noise)
    step = Covariance().start(9, 1, 0.0, kind).learn(*of_kind(kind, np.zeros(9), G, e), noise)
    np.testing.assert_allclose(np.asarray(step.w), right.w, atol=1e-12)
    np.testing.assert_allclose(dense(step.memory), oracle.P, atol=1e-12)


@each_kind
def test_zero_noise_counts_inconsistent_rows(kind: Any) -> None:
    rng = np.random.default_rng(3)
    G = rng.normal(size=(7, 3))
    G = np.column_stack([G, G[:, 0], G @ [1.0, 2.0, 3.0], np.zeros(7)])
    e = np.array([1.0, 2.0, 3.0, 1.0, 5.0, 0.0])  # row 3 repeats, row 4 contradicts (14)
    step = Covariance().start(7, 1, 0.0, kind).learn(*of_kind(kind, np.zeros(7), G, e), np.zeros(6))
    w = np.asarray(step.w)
    np.testing.assert_allclose(G[:, :3].T @ w, e[:3], atol=1e-12)
    assert (step.rank, step.inconsistent_rows, step.memory.rank) == (3, 1, 3)
    again = step.memory.learn(*of_kind(kind, w, G[:, :1], np.ones(1)), np.zeros(1))
    assert (again.rank, again.inconsistent_rows) == (0, 1)
    np.testing.assert_allclose(np.asarray(again.w), w, atol=1e-12)
    np.testing.assert_allclose(np.asarray(again.errors), 1.0)


@each_kind
def test_zero_gradient_changes_nothing(kind: Any) -> None:
    start = Covariance().start(4, 1, 0.0, kind)
    for noise in (0.0, 1.0):
        step = start.learn(
            *of_kind(kind, np.ones(4), np.zeros((4, 1)), np.ones(1)), np.full(1, noise)
        )
        assert np.asarray(step.w).tolist() == [1.0] * 4
        assert len(step.memory.columns) == 0
        assert step.inconsistent_rows == (noise == 0.0)


def test_time_update_equals_dense_covariance() -> None:
    rng = np.random.default_rng(4)
    belief = Covariance(3.0).start(8, 1)
    belief = belief.learn(np.zeros(8), rng.normal(size=(8, 3)), np.ones(3), np.full(3, 0.1)).memory
    P = dense(belief)
    np.testing.assert_allclose(dense(belief.discounted(0.9)), P / 0.9, atol=1e-13)
    np.testing.assert_allclose(
        dense(belief.with_process_noise(0.9, 0.5)), 0.81 * P + 0.5 * np.eye(8), atol=1e-13
    )
    floored = np.linalg.inv(0.1 * np.linalg.inv(P) + np.eye(8) / 5.0)
    np.testing.assert_allclose(dense(belief.discounted(0.1, limit=5.0)), floored, atol=1e-13)
    exact = belief.learn(np.zeros(8), rng.normal(size=(8, 2)), np.ones(2), np.zeros(2)).memory
    P, moves = dense(exact), exact.with_process_noise(1.0, 1e-3)
    np.testing.assert_allclose(dense(moves), P + 1e-3 * np.eye(8), atol=1e-13)
    assert (exact.rank, moves.rank) == (2, 0)


@pytest.mark.parametrize("factor", [0.5, 1e-9, 1e-200])
def test_unexcited_directions_stay_bounded(factor: float) -> None:
    rng = np.random.default_rng(5)
    g, h = rng.normal(size=(2, 6, 1))
    step = Covariance().start(6, 1).learn(np.zeros(6), h, np.ones(1), np.ones(1))
    for _ in range(300):
        step = step.memory.discounted(factor, 1e12).learn(step.w, g, np.zeros(1), np.ones(1))
    step = step.memory.learn(step.w, h, 1.0 - h.T @ step.w, np.ones(1))
    assert step.memory.beyond <= 1e12
    assert np.isfinite(dense(step.memory)).all()
    assert abs(float(h[:, 0] @ step.w) - 1.0) < 1e-3
    assert np.abs(step.w).max() < 10.0


@each_kind
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_merge_equals_learning_both(kind: Any, noise: float) -> None:
    rng = np.random.default_rng(6)
    w0, G, truth = rng.normal(size=12), rng.normal(size=(12, 10)), rng.normal(size=12)
    y = G.T @ truth + (noise > 0) * rng.normal(size=10)

    def learned(rows: slice) -> Any:
        given = of_kind(kind, w0, G[:, rows], (y - G.T @ w0)[rows])
        n = len(given[2])
        return Covariance(2.0).start(12, 1, noise, kind).learn(*given, np.full(n, noise))

    a, b, both = learned(slice(0, 5)), learned(slice(5, 10)), learned(slice(0, 10))
    merged = a.memory.merged(a.w, b.memory.evidence(b.w, *of_kind(kind, w0)))
    np.testing.assert_allclose(np.asarray(merged.w), np.asarray(both.w), atol=1e-10)
    np.testing.assert_allclose(dense(merged.memory), dense(both.memory), atol=1e-10)


def test_float32_is_near_float64_and_size_is_bounded() -> None:
    rng = np.random.default_rng(7)
    single = Covariance().start(15, 1, 0.1, torch.empty(0))
    double = Covariance().start(15, 1, 0.1)
    w32, w64 = torch.zeros(15), np.zeros(15)
    for i in range(400):
        g = rng.normal(size=(15, 1)).astype(np.float32)
        step = double.learn(w64, g.astype(float), 1.0 - g[:, 0] @ w64[:, None], np.ones(1) / 10)
        w64, double = step.w, step.memory
        step = single.learn(
            w32, torch.from_numpy(g), torch.ones(1) - g[:, 0] @ w32.numpy(), np.ones(1) / 10
        )
        w32, single = step.w, step.memory
        if i == 20:
            nbytes = single.nbytes
    np.testing.assert_allclose(w32.numpy(), w64, atol=1e-4)
    assert len(single.columns) == len(double.columns) == 15
    assert single.nbytes == nbytes


def test_variances() -> None:
    rng = np.random.default_rng(8)
    belief = Covariance(2.0).start(7, 1)
    belief = belief.learn(np.zeros(7), rng.normal(size=(7, 3)), np.ones(3), np.full(3, 0.1)).memory
    G = rng.normal(size=(7, 4))
    np.testing.assert_allclose(belief.variances(G), np.diag(G.T @ dense(belief) @ G))
