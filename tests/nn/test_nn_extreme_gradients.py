"""Very small and very large gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402


@pytest.mark.parametrize("tiny", [1e-43, 1e-45, 0.0])
def test_tiny_gradients_in_ridge_regression(tiny: float) -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(140, 12, generator=g)
    X[:40] *= tiny
    y = X @ torch.ones(12)
    module = torch.nn.Linear(12, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    op.nn.ORFit(module, memory=30, noise=0.5).learn(X, y)
    A, b = X.double().numpy(), y.double().numpy()
    exact = np.linalg.solve(A.T @ A + 0.5 * np.eye(12), A.T @ b)
    np.testing.assert_allclose(module.weight.detach()[0], exact, atol=1e-5)


def test_huge_gradient_is_a_unit_direction() -> None:
    module = torch.nn.Linear(8, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    net = op.nn.ORFit(module, memory=4).learn(torch.full((1, 8), 2e38), torch.ones(1))
    rows = net.memory_.subspace.B.rows
    torch.testing.assert_close(torch.linalg.vector_norm(rows, dim=1), torch.ones(1))


def test_memory_error_in_forgetting_count_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    X, y = torch.randn(30, 6), torch.randn(30)
    net = op.nn.ORFit(torch.nn.Linear(6, 1), memory=2).learn(X, y)
    before, rows = net.network.weights(), net.memory_.subspace.B.rows.clone()
    kind = type(net.memory_)

    def no_room(*_: object) -> float:
        raise MemoryError

    monkeypatch.setattr(kind, "forgetting_bound", no_room)
    for i in range(3):
        with pytest.raises(MemoryError):
            net.learn(X[i : i + 1], y[i : i + 1])
    assert torch.equal(net.network.weights(), before)
    assert torch.equal(net.memory_.subspace.B.rows, rows)
    assert net.rows_seen_ == 30
