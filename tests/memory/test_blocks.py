"""Memories by parts against the update equation with P = diag(P_1, …, P_L)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onepass.errors import ParameterError
from onepass.memory import LastDirections, Principal, Random
from onepass.memory.blocks import Blocks
from raising import raises

Floats = NDArray[Any]
P, M = 24, 3
PLACES = (((0, 5), (12, 17)), ((5, 12),), ((17, P),))
WHERE = [np.r_[tuple(slice(*piece) for piece in place)] for place in PLACES]


def orthonormal(G: Floats, known: Floats) -> Floats:
    """Orthonormal directions of the columns of G outside the known ones."""
    found = known
    for g in G.T:
        rest = g - found @ (found.T @ g)
        rest = rest - found @ (found.T @ rest)
        if np.linalg.norm(rest) > 1e-7 * np.linalg.norm(g):
            found = np.column_stack((found, rest / np.linalg.norm(rest)))
    return found[:, known.shape[1] :]


class ProjectedDirections:
    """Algorithm 1 of 2022 for one part: lengths and directions of residuals, longest first."""

    def __init__(self, p: int) -> None:
        self.retained: list[tuple[float, Floats]] = []
        self.p = p

    @property
    def Q(self) -> Floats:  # noqa: N802
        return np.column_stack([np.zeros((self.p, 0)), *(u for _, u in self.retained)])

    def learn(self, G: Floats) -> None:
        free = G - self.Q @ (self.Q.T @ G)
        for v in free.T:
            rest = v - self.Q @ (self.Q.T @ v)
            length = float(np.linalg.norm(rest))
            if length > 1e-12:
                pair = (length, rest / length)
                self.retained = sorted([*self.retained, pair], key=lambda each: -each[0])[:M]


class RandomDirections:
    """M directions of one part, drawn by the same random numbers."""

    def __init__(self, p: int) -> None:
        self.Q, self.draws = np.zeros((p, 0)), 0

    def learn(self, G: Floats) -> None:
        Q = np.column_stack((self.Q, orthonormal(G - self.Q @ (self.Q.T @ G), self.Q)))
        q = Q.shape[1]
        if q > M:
            leaving = set(np.random.default_rng((7, self.draws)).permutation(q)[M:].tolist())
            movers = iter(j for j in range(M, q) if j not in leaving)  # the last take their places
            Q = Q[:, [next(movers) if j in leaving else j for j in range(M)]]
            self.draws += 1
        self.Q = Q


class LastDirectionsOnly:
    """The last M directions of one part."""

    def __init__(self, p: int) -> None:
        self.Q = np.zeros((p, 0))

    def learn(self, G: Floats) -> None:
        Q = np.column_stack((self.Q, orthonormal(G - self.Q @ (self.Q.T @ G), self.Q)))
        self.Q = Q[:, -M:]


KINDS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "projected": (Principal(M, of="projected"), ProjectedDirections),
    "random": (Random(M, seed=7), RandomDirections),
    "latest": (LastDirections(M), LastDirectionsOnly),
}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_memory_by_parts_equals_block_diagonal_p(name: str, c: int, library: str) -> None:
    specification, dense = KINDS[name]
    kind: Any = np.float64
    array: Callable[[Any], Any] = np.asarray
    if library == "torch":
        torch = pytest.importorskip("torch")
        kind, array = torch.empty(0, dtype=torch.float64), torch.as_tensor
    rng = np.random.default_rng(3)
    memory = Blocks.start(specification, PLACES, 0.0, c, kind)
    parts = [dense(len(at)) for at in WHERE]
    w, right = array(np.zeros(P)), np.zeros(P)
    for k in range(25):
        G = rng.normal(size=(P, c)) * rng.uniform(0.2, 4.0)
        if k % 6 == 4:
            G[WHERE[k % 3]] = 0.0  # a part without gradient
        y = rng.normal(size=c)
        U = np.zeros((P, c))
        for at, part in zip(WHERE, parts, strict=True):
            U[at] = G[at] - part.Q @ (part.Q.T @ G[at])
        right = right + U @ np.linalg.solve(U.T @ U, y - G.T @ right)
        for at, part in zip(WHERE, parts, strict=True):
            part.learn(G[at])
        J = array(np.ascontiguousarray(G.T))
        step = memory.learn(w, J.T, array(y) - J @ w, np.zeros(c), group=c)
        w, memory = step.w, step.memory
        np.testing.assert_allclose(np.asarray(w), right, atol=1e-9 * np.abs(right).max())
    assert memory.rank == 3 * M


def test_memories_without_noise_refuse_noise_by_parts() -> None:
    for specification, _ in KINDS.values():
        with raises(ParameterError, argument="noise"):
            Blocks.start(specification, PLACES, 0.5, 1, np.float64)


@pytest.mark.parametrize("name", KINDS)
def test_networks_by_layer_fit_new_rows_exactly(name: str) -> None:
    torch = pytest.importorskip("torch")
    from onepass.nn import ORFit

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 12), torch.nn.Tanh(), torch.nn.Linear(12, 2)
    ).double()
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)).double()
    Y = 1e-3 * torch.randn(20, 2, generator=torch.Generator().manual_seed(2)).double()
    net = ORFit(module, memory=KINDS[name][0], by_layer=True)
    for x, y in zip(X, Y, strict=True):
        before = net.outputs(x[None]).detach().clone()
        net.learn(x[None], before + y)  # a change so small that the module is as good as linear
        np.testing.assert_allclose(net.outputs(x[None]) - before, y[None], atol=5e-5)
    assert net.memory_.rank == 2 * M
    with raises(ParameterError, argument="noise"):
        ORFit(module, memory=KINDS[name][0], noise=0.1, by_layer=True)
