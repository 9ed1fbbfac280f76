"""Every claim of the two ORFit papers, on a network or on a module that is linear in its weights.

Numbers are those of the extended paper; where a claim is about linear models, the module is linear
in its weights though not in its inputs, or it is a network's linearisation.
"""

import copy
from typing import Any

import numpy as np
import pytest

import onepass as op
from oracles import full_svd_basis

torch = pytest.importorskip("torch")

Tensor = Any


class Features(torch.nn.Module):
    """f(x; w) = Φ(x)ᵀw with c outputs, each of its own features, and all of one w."""

    def __init__(self, p: int, c: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.w = torch.nn.Parameter(torch.randn(p, dtype=torch.float64, generator=generator))
        self.register_buffer("T", torch.randn(c, p, 5, dtype=torch.float64, generator=generator))

    def map(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.einsum("cpd,nd->ncp", self.T, x))

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x) @ self.w


def network(c: int = 1, seed: int = 0, width: int = 30) -> Any:
    """A small network in float64."""
    generator = torch.Generator().manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Linear(5, width), torch.nn.Tanh(), torch.nn.Linear(width, c)
    ).double()
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(torch.randn(each.shape, dtype=torch.float64, generator=generator) * 0.5)
    return module


class Linearised(torch.nn.Module):
    """A network's first-order expansion around its weights: (11) of the paper."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.around = op.nn.ORFit(copy.deepcopy(module), memory=1).network
        self.start = self.around.weights()
        self.step = torch.nn.Parameter(torch.zeros_like(self.start))

    def forward(self, x: Tensor) -> Tensor:
        outputs, J = self.around.jacobian(x)
        return outputs + (J @ self.step).reshape(outputs.shape)


def stream(n: int, c: int = 1, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, dtype=torch.float64, generator=generator)
    y = torch.randn(n, c, dtype=torch.float64, generator=generator)
    return x, y[:, 0] if c == 1 else y


def flat(module: Any) -> np.ndarray:
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()]).numpy()


def gradients(module: Features, x: Tensor) -> np.ndarray:
    """All gradients so far, (p, n·c)."""
    return module.map(x).reshape(-1, len(module.w)).numpy().T


@pytest.mark.parametrize("c", [1, 3])
def test_lemma_1_projected_step_preserves_past_predictions(c: int) -> None:
    module = Features(40, c)
    net = op.nn.ORFit(module, memory=None)
    x, y = stream(8, c)
    net.learn(x, y)
    before = net.outputs(x)
    any_vector = torch.randn(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    free = net.memory_.columns.split(any_vector).outside[:, 0]
    for eta in (1e-3, 1.0, 50.0):
        net.network.set_weights(net.network.weights() - eta * free)
        torch.testing.assert_close(net.outputs(x), before, rtol=0, atol=1e-10 * max(eta, 1.0))


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("memory", [None, 40])
def test_theorem_2_weights_are_nearest_that_fit_all_rows(c: int, memory: int | None) -> None:
    module = Features(40, c)
    x, y = stream(10, c)
    w0, A = flat(module), gradients(module, x)
    net = op.nn.ORFit(module, memory=memory)
    for i in range(len(x)):
        net.learn(x[i : i + 1], y[i : i + 1])
        A_i, b_i = A[:, : (i + 1) * c].T, y[: i + 1].reshape(-1).numpy()
        nearest = w0 + np.linalg.lstsq(A_i, b_i - A_i @ w0, rcond=None)[0]
        np.testing.assert_allclose(flat(module), nearest, atol=1e-9)


@pytest.mark.parametrize("c", [1, 2])
def test_proposition_3_step_is_shortest_that_fits_rows_so_far(c: int) -> None:
    module = Features(30, c)
    x, y = stream(9, c)
    A = gradients(module, x)
    net = op.nn.ORFit(module, memory=None)
    for i in range(len(x)):
        before = flat(module)
        net.learn(x[i : i + 1], y[i : i + 1])
        A_i, b_i = A[:, : (i + 1) * c].T, y[: i + 1].reshape(-1).numpy()
        shortest = np.linalg.lstsq(A_i, b_i - A_i @ before, rcond=None)[0]
        np.testing.assert_allclose(flat(module) - before, shortest, atol=1e-9)


def test_proposition_1_orfit_is_rls_with_forgetting_0() -> None:
    module = torch.nn.Linear(5, 1, bias=False).double()
    x, y = stream(4)
    w, P = flat(module), np.eye(5)
    net = op.nn.ORFit(module, memory=4)
    for row, target in zip(x.numpy(), y.numpy(), strict=True):
        gain = P @ row / (0.0 + row @ P @ row)  # (3) with λ = 0
        w, P = w + gain * (target - row @ w), P - np.outer(gain, row @ P)
        net.learn(row[None], target[None])
        np.testing.assert_allclose(flat(module), w, atol=1e-9)
        U = net.memory_.subspace.U.numpy()
        np.testing.assert_allclose(np.eye(5) - U @ U.T, P, atol=1e-9)


def test_corollary_1_multi_pass_sgd_converges_to_orfit() -> None:
    module = Features(30, 1)
    other = copy.deepcopy(module)
    x, y = stream(6)
    op.nn.ORFit(module, memory=None).learn(x, y)
    features = other.map(x)[:, 0].detach()
    w = other.w.detach().clone()
    step = 1.0 / float((features**2).sum(dim=1).max())
    for _ in range(4000):
        for row, target in zip(features, y, strict=True):
            w += step * (target - row @ w) * row
    np.testing.assert_allclose(flat(module), w.numpy(), atol=1e-8)


@pytest.mark.parametrize("m", [3, 6])
def test_proposition_4_memory_minimises_worst_forgetting(m: int) -> None:
    """For one truncation; later ones start from the truncated memory."""
    module = Features(30, 1)
    x, y = stream(m + 1)
    net = op.nn.ORFit(module, memory=m).learn(x, y)
    G = gradients(module, x)
    U, sigma = full_svd_basis(G)
    basis = net.memory_.subspace.U.numpy()
    np.testing.assert_allclose(basis @ basis.T, U[:, :m] @ U[:, :m].T, atol=1e-8)

    def worst(S: np.ndarray) -> float:
        return np.linalg.norm(G.T - G.T @ S @ S.T, 2) ** 2

    assert worst(basis) == pytest.approx(sigma[m] ** 2)
    rng = np.random.default_rng(0)
    for _ in range(200):
        S = np.linalg.qr(basis + rng.normal(size=basis.shape) * rng.choice([0.01, 0.1, 1.0, 10.0]))[
            0
        ]
        assert worst(S) >= worst(basis) * (1.0 - 1e-9)


@pytest.mark.parametrize("c", [1, 3])
def test_theorem_5_nearest_weights_that_fit_linearised_rows(
    c: int,
) -> None:
    module = network(c)
    net = op.nn.ORFit(module, memory=None)
    x, y = stream(12, c)
    w0, rows, targets = flat(module), [], []
    for i in range(len(x)):
        now = flat(module)
        outputs, J = net.network.jacobian(x[i : i + 1])
        J = J.numpy()
        rows.append(J)
        targets.append(y[i].reshape(-1).numpy() - outputs[0].numpy() + J @ now)
        net.learn(x[i : i + 1], y[i : i + 1])
        A, b = np.vstack(rows), np.concatenate(targets)
        nearest = w0 + np.linalg.lstsq(A, b - A @ w0, rcond=None)[0]
        np.testing.assert_allclose(flat(module), nearest, atol=1e-7)


def test_linearised_network_is_fitted_exactly() -> None:
    module = Linearised(network(2))
    x, y = stream(10, 2)
    net = op.nn.ORFit(module, memory=None)
    for i in range(len(x)):
        net.learn(x[i : i + 1], y[i : i + 1])
        torch.testing.assert_close(net.outputs(x[: i + 1]), y[: i + 1], rtol=0, atol=1e-8)


def test_wider_networks_forget_less() -> None:
    """In the neural tangent kernel regime the network is nearly linear (section 6)."""
    changes = []
    for width in (30, 3000):
        module = torch.nn.Sequential(
            torch.nn.Linear(5, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
        ).double()
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for each in module.parameters():
                size = each.shape[-1] ** -0.5
                each.copy_(torch.randn(each.shape, dtype=torch.float64, generator=generator) * size)
        x, y = stream(20)
        net = op.nn.ORFit(module, memory=None).learn(x, y)
        changes.append(float((net.predict(x) - y).square().mean().sqrt()))
    assert changes[1] < 0.2 * changes[0]


@pytest.mark.parametrize("c", [1, 3])
def test_batch_is_one_augmented_row(c: int) -> None:
    """(9) is (7) for a model whose outputs are those of all rows of the batch."""
    x, y = stream(12, c)
    module = network(c)
    other = copy.deepcopy(module)

    class Stacked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = other

        def forward(self, many: Tensor) -> Tensor:
            outputs = self.module(many.reshape(-1, many.shape[2]))
            return outputs.reshape(len(many), -1)

    whole = op.nn.ORFit(module, memory=7, block_update=True)
    rows = op.nn.ORFit(Stacked(), memory=7)
    for i in range(0, 12, 4):
        whole.learn(x[i : i + 4], y[i : i + 4])
        rows.learn(x[None, i : i + 4], y[i : i + 4].reshape(1, -1))
    np.testing.assert_allclose(flat(module), flat(other), atol=1e-9)


def test_vector_rule_with_one_output_is_scalar_rule() -> None:
    """(7) with c = 1 against (5) and (6), written out."""
    module = network()
    net = op.nn.ORFit(module, memory=None)
    w, S = flat(module), []
    reference = op.nn.ORFit(copy.deepcopy(module), memory=None).network
    x, y = stream(15)
    for i in range(len(x)):
        outputs, J = reference.jacobian(x[i : i + 1])
        g = J[0].numpy()
        free = g - sum((v * (v @ g) / (v @ v) for v in S), np.zeros_like(g))
        free = free - sum((v * (v @ free) / (v @ v) for v in S), np.zeros_like(g))
        eta = (outputs.item() - y[i].item()) / (g @ free)
        w = w - eta * free
        S.append(free)
        reference.set_weights(torch.from_numpy(w))
        net.learn(x[i : i + 1], y[i : i + 1])
        np.testing.assert_allclose(flat(module), w, atol=1e-8)


@pytest.mark.parametrize("memory", [None, 6])
def test_float32_is_near_float64(memory: int | None) -> None:
    module = network(2)
    single = copy.deepcopy(module).float()
    x, y = stream(20, 2)
    op.nn.ORFit(module, memory=memory, noise=0.0).learn(x, y)
    op.nn.ORFit(single, memory=memory, noise=0.0).learn(x.float(), y.float())
    scale = np.abs(flat(module)).max()
    assert np.abs(flat(single) - flat(module)).max() < 5e-3 * scale


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("memory", [None, 6, op.memory.LastDirections(6), op.memory.Random(6)])
def test_cuda_equals_cpu(memory: Any) -> None:
    module = network(2)
    there = copy.deepcopy(module).cuda()
    x, y = stream(20, 2)
    op.nn.ORFit(module, memory=memory).learn(x, y)
    op.nn.ORFit(there, memory=memory).learn(x.cuda(), y.cuda())
    np.testing.assert_allclose(flat(there.cpu()), flat(module), atol=1e-8)
