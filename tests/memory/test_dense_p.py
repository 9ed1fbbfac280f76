"""Every memory against the update equation with a dense P."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from onepass.errors import ParameterError
from onepass.memory import Basis, NoMemory, Principal, SquareRoot
from onepass.memory.basis import Directions, NoisySpan
from onepass.memory.directions import NoMemoryState
from onepass.memory.principal import PrincipalState
from onepass.memory.square_root import Triangle
from oracles import DenseP
from raising import raises

Floats = NDArray[Any]
P = 40
TOLERANCE = {np.float64: 1e-8, np.float32: 5e-3}
NEAR = {np.float64: (1e-10, 1e-4), np.float32: (1e-7, 1e-1)}  # below and above what is resolved


class Stream(NamedTuple):
    """Gradients as columns, and the targets that they should give, one row a gradient."""

    G: Floats
    y: Floats
    inconsistent_rows: int


def awkward_stream(dtype: Any, c: int) -> Stream:
    """Fresh, repeated, contradicting, zero and nearly dependent rows, scaled differently."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(P, c))
    below, above = NEAR[dtype]
    g = rng.normal(size=(P, 12)).astype(dtype).astype(np.float64)
    lean = [g[:, 0] + far * np.linalg.norm(g[:, 0]) / np.sqrt(P) * rng.normal(size=P)
            for far in (below, above)]  # fmt: skip
    columns = [
        g[:, 0], g[:, 1], g[:, 0], np.zeros(P), g[:, 2], 3.0 * g[:, 1], g[:, 2] - g[:, 0],
        *lean, g[:, 3], np.zeros(P), g[:, 3], 10.0 * g[:, 4], 0.1 * g[:, 5], *g.T[6:12],
    ]  # fmt: skip
    G = np.column_stack(columns).astype(dtype)
    y = G.T.astype(np.float64) @ hidden
    y[2] += 1.0  # the first row again, with another target
    y[10] = 1.0  # zeros cannot target one
    y[6] -= 2.0  # a sum of rows before, with another target
    return Stream(G, y, 3)


def p_times(memory: Any, X: Floats) -> Floats:
    """P X, from the state of the memory."""
    X = X.astype(np.float64)
    match memory:
        case NoMemoryState():
            return X
        case Directions(Q=Q):
            return X - Q @ (Q.T @ X)
        case Triangle(R=R):
            return np.linalg.solve(np.triu(R), np.linalg.solve(np.triu(R).T, X))
        case NoisySpan(span=span):
            inside = span.Q.T @ X
            T = np.triu(span.T)
            return X - span.Q @ inside + span.Q @ np.linalg.solve(T, np.linalg.solve(T.T, inside))
        case PrincipalState(subspace=space, noise=noise):
            return space.split(X, noise).lifted
    raise AssertionError(memory)


def specification(name: str, noise: float) -> Any:
    return {
        "square root": SquareRoot(noise or 1.0),
        "basis": Basis(),
        "principal, wide enough": Principal(30),
    }[name]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize(
    ("name", "noise", "block"),
    [
        *[("basis", noise, block) for noise in (0.0, 0.5) for block in (1, 2, 7, 20)],
        *[("square root", 0.5, block) for block in (1, 2, 7, 20)],
        *[("principal, wide enough", noise, 1) for noise in (0.0, 0.5)],
    ],
)
def test_memories_equal_dense_update_on_awkward_rows(
    name: str, noise: float, block: int, c: int, dtype: Any
) -> None:
    stream = awkward_stream(dtype, c)
    if name.startswith("principal"):  # which retains even directions too small to learn
        stream = Stream(np.delete(stream.G, 7, axis=1), np.delete(stream.y, 7, axis=0), 3)
    memory = specification(name, noise).start(P, c, noise, dtype)
    # with noise a triangle has P₀ = I / ridge and noise 1, the others P₀ = I and noise r
    R = 1.0 if name == "square root" else noise
    prior = np.eye(P) / (noise if name == "square root" else 1.0)
    dense = DenseP(P, prior, tau=1e-7 if dtype == np.float64 else 1e-5, tolerance=1e-2)
    w, expected = np.zeros((P, c), dtype=dtype), np.zeros((P, c))
    tolerance, rank, against = TOLERANCE[dtype], 0, 0
    size = np.abs(stream.y).max()
    for i in range(0, len(stream.y), block):
        G, y = stream.G[:, i : i + block], stream.y[i : i + block]
        n = G.shape[1]
        step = memory.learn(w, G, (y - G.T @ w).astype(dtype), np.full(n, R))
        then = dense.learn(expected, G, y - G.T.astype(float) @ expected, R)
        np.testing.assert_allclose(step.errors, then.errors, atol=tolerance * size)
        w, memory, expected = step.w, step.memory, then.w
        rank, against = rank + step.rank, against + step.inconsistent_rows
        if not noise:
            assert step.rank == then.rank
        np.testing.assert_allclose(w, expected, atol=tolerance * np.abs(expected).max())
    probes = np.random.default_rng(1).normal(size=(P, 4))
    np.testing.assert_allclose(p_times(memory, probes), dense.P @ probes, atol=10 * tolerance)
    triangle = name == "square root" or (name == "basis" and noise)
    assert w.dtype == (np.float64 if triangle else dtype)
    if not noise:
        assert against == dense.inconsistent_rows == stream.inconsistent_rows
        assert memory.rank == rank


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_basis_learns_all_gradients_of_row_at_once(noise: float) -> None:
    rng = np.random.default_rng(2)
    c, n = 3, 8
    G = rng.normal(size=(P, n * c))
    G[:, 6:9] = G[:, 0:3]  # a row again
    G[:, 10] = 0.0  # an output without a gradient
    y = G.T @ rng.normal(size=P)
    dense, expected, errors = DenseP(P), np.zeros(P), []
    for i in range(0, n * c, c):
        e = y[i : i + c] - G[:, i : i + c].T @ expected
        errors.append(e)  # of a row before any of its own outputs is learned
        expected = dense.learn(expected, G[:, i : i + c], e, noise).w
    for specified in (Basis(), Principal(40)):
        for blocks in ([n * c], [c] * n, [2 * c, 5 * c, c]):
            if specified != Basis() and blocks != [c] * n:
                continue
            memory, w, prequential, i = specified.start(P, 1, noise), np.zeros(P), [], 0
            for size in blocks:
                rows = slice(i, i + size)
                e = y[rows] - G[:, rows].T @ w
                step = memory.learn(w, G[:, rows], e, np.full(size, noise), group=c)
                w, memory, i = step.w, step.memory, i + size
                prequential.append(step.errors)
            np.testing.assert_allclose(w, expected, atol=1e-10)
            np.testing.assert_allclose(
                np.concatenate(prequential), np.concatenate(errors), atol=1e-10
            )


def test_square_root_learns_vector_outputs_row_by_row() -> None:
    rng = np.random.default_rng(3)
    G, y, noise = rng.normal(size=(6, 12)), rng.normal(size=12), rng.uniform(0.5, 2.0, 12)
    dense, expected = DenseP(6, np.eye(6) / 0.7), np.zeros(6)
    errors = np.empty(12)
    for i in range(0, 12, 3):
        errors[i : i + 3] = y[i : i + 3] - G[:, i : i + 3].T @ expected
        expected = dense.learn(expected, G[:, i : i + 3], errors[i : i + 3], noise[i : i + 3]).w
    step = SquareRoot(0.7).start(6, 1).learn(np.zeros(6), G, y, noise, group=3)
    np.testing.assert_allclose(step.w, expected, atol=1e-12)
    np.testing.assert_allclose(step.errors, errors, atol=1e-12)


def test_square_root_with_a_matrix_equals_its_penalty() -> None:
    rng = np.random.default_rng(8)
    G, y, L = rng.normal(size=(5, 9)), rng.normal(size=9), rng.normal(size=(7, 5))
    expected = DenseP(5, np.linalg.inv(L.T @ L)).learn(np.zeros(5), G, y, 1.0).w
    step = SquareRoot(L.T @ L).start(5, 1).learn(np.zeros(5), G, y, np.ones(9))
    np.testing.assert_allclose(step.w, expected, atol=1e-12)
    penalty = np.sum((L @ step.w) ** 2)
    np.testing.assert_allclose(step.memory.squares, np.sum((y - G.T @ step.w) ** 2) + penalty)
    with raises(ParameterError, argument="ridge", remedy="Pass a number, or"):
        step.memory.grown(6)


@pytest.mark.parametrize(
    ("ridge", "message"),
    [
        (0.0, "a number in (0, inf)"),
        (-1.0, "a number in (0, inf)"),
        ("much", "a number in (0, inf)"),
        (np.ones((2, 3)), "or a symmetric matrix"),
        ([[1.0], [1.0, 2.0]], "or a symmetric matrix"),
        ([[1.0, 0.5], [0.0, 1.0]], "or a symmetric matrix"),
        (np.diag([1.0, 0.0]), "must be positive definite"),
    ],
)
def test_square_root_refuses_a_ridge_that_is_not_positive(ridge: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)):
        SquareRoot(ridge)
    with raises(ParameterError, argument="ridge", got="shape (2, 2)"):
        SquareRoot(np.eye(2)).start(3, 1)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 4])
def test_no_memory_equals_step_with_identity_p(noise: float, n: int) -> None:
    rng = np.random.default_rng(4)
    w, G, e = rng.normal(size=(P, 2)), rng.normal(size=(P, n)), rng.normal(size=(n, 2))
    step = NoMemory().start(P, 2).learn(w, G, e, np.full(n, noise))
    np.testing.assert_allclose(step.w, DenseP(P).learn(w, G, e, noise).w, atol=1e-12)
    assert step.memory.rank == 0
    if not noise:  # the block is fitted, whatever was learned before
        np.testing.assert_allclose(G.T @ (step.w - w), e, atol=1e-12)


def test_no_memory_skips_zero_rows_and_counts_contradictions() -> None:
    memory = NoMemory().start(3, 1)
    w = np.ones((3, 1))
    for e, against in ((0.0, 0), (1.0, 1)):
        step = memory.learn(w, np.zeros((3, 1)), np.full((1, 1), e), np.zeros(1))
        assert (step.w == w).all()
        assert step.inconsistent_rows == against


@pytest.mark.parametrize(
    "specified", [Basis(), Principal(5), SquareRoot(np.eye(8)), SquareRoot(1.0)]
)
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_learn_leaves_arguments_and_memory_unchanged(specified: Any, noise: float) -> None:
    noise = noise or float(isinstance(specified, SquareRoot))
    rng = np.random.default_rng(5)
    memory = specified.start(8, 2, noise)
    w = np.zeros((8, 2))
    for k in range(7):
        G, e, R = rng.normal(size=(8, 2)), rng.normal(size=(2, 2)), np.full(2, noise)
        for array in (w, G, e, R):
            array.flags.writeable = False
        before = memory.learn(w, G, e, R)
        again = memory.learn(w, G, e, R)
        np.testing.assert_array_equal(before.w, again.w, err_msg=str(k))
        w, memory = before.w, before.memory


@pytest.mark.parametrize("specified", [Basis(), Principal(6), NoMemory(), SquareRoot(0.5)])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_late_weights_equal_zeros_in_earlier_rows(specified: Any, noise: float) -> None:
    noise = noise or float(isinstance(specified, SquareRoot))
    rng = np.random.default_rng(6)
    G, y = rng.normal(size=(7, 6)), rng.normal(size=(6, 2))
    G[4:, :3] = 0.0
    known, late = specified.start(7, 2, noise), specified.start(4, 2, noise)
    a, b = np.zeros((7, 2)), np.zeros((4, 2))
    for i in range(6):
        if i == 3:
            late, b = late.grown(7), np.vstack((b, np.zeros((3, 2))))
        g, R = G[:, i : i + 1], np.full(1, noise)
        one = known.learn(a, g, y[i : i + 1] - g.T @ a, R)
        g = g[: len(b)]
        two = late.learn(b, g, y[i : i + 1] - g.T @ b, R)
        a, known, b, late = one.w, one.memory, two.w, two.memory
    np.testing.assert_allclose(b, a, atol=1e-12)


@pytest.mark.parametrize("specified", [Basis(), Principal(6), NoMemory(), SquareRoot(0.5)])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_late_outputs_equal_zeros_in_earlier_rows(specified: Any, noise: float) -> None:
    noise = noise or float(isinstance(specified, SquareRoot))
    rng = np.random.default_rng(7)
    G, y = rng.normal(size=(7, 6)), rng.normal(size=(6, 3))
    y[:3, 1] = 0.0
    known, late = specified.start(7, 3, noise), specified.start(7, 2, noise)
    a, b = np.zeros((7, 3)), np.zeros((7, 2))
    for i in range(6):
        if i == 3:
            late = late.with_outputs(np.array([1]), 3)
            b = np.insert(b, 1, 0.0, axis=1)
        g, R = G[:, i : i + 1], np.full(1, noise)
        target = y[i : i + 1] if i >= 3 else y[i : i + 1, [0, 2]]
        one = known.learn(a, g, y[i : i + 1] - g.T @ a, R)
        two = late.learn(b, g, target - g.T @ b, R)
        a, known, b, late = one.w, one.memory, two.w, two.memory
    np.testing.assert_allclose(b, a, atol=1e-12)
