"""Memory options of networks (layer, dtype, device), and the forgetting bound."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import ParameterError
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")


def linear(p: int = 30, c: int = 1, dtype: Any = torch.float64) -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(p, c, bias=False).to(dtype)


class Sum(torch.nn.Module):
    """Linear in its weights, with three layers, one in two places of w."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Linear(12, 2).double()
        self.right = torch.nn.Linear(9, 2).double()
        self.scale = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        return self.left(x[:, :12]) + self.right(x[:, 12:]) + self.scale * x[:, :2]


def stream(n: int, d: int, c: int, seed: int = 1) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, d, generator=generator, dtype=torch.float64),
        torch.randn(n, c, generator=generator, dtype=torch.float64),
    )


@pytest.mark.parametrize(
    "spec", [None, 40, op.memory.Sketch(40), op.memory.LastDirections(40), op.memory.Random(40)]
)
def test_by_layer_fits_new_rows_and_preserves_past_predictions(spec: Any) -> None:
    X, Y = stream(8, 21, 2)
    net = op.nn.ORFit(Sum(), memory=spec, by_layer=True)
    for k in range(8):
        net.learn(X[k : k + 1], Y[k : k + 1])
        np.testing.assert_allclose(net.predict(X[: k + 1]), Y[: k + 1], atol=1e-10)
    assert net.memory_.rank > 16  # more directions than one memory would use for 8 rows of 2
    if spec is None:
        assert net.forgetting_bound_.all_steps == 0.0
    net.learn(X[2:3], Y[2:3] + 1.0)  # the past wins where nothing is free
    assert net.inconsistent_rows_ in {0, 1}


def test_by_layer_of_single_layer_equals_single_memory() -> None:
    X, y = stream(20, 30, 1)
    predictions = []
    for by_layer in (False, True):
        for spec in (5, op.memory.Sketch(5), op.memory.LastDirections(5), op.memory.NoMemory()):
            net = op.nn.ORFit(linear(), memory=spec, by_layer=by_layer)
            predictions.append(net.test_then_train(X, y))
    for one, two in zip(predictions[:4], predictions[4:], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


def test_by_layer_with_noise_uses_block_diagonal_covariance() -> None:
    """P is block-diagonal, (I + Σ g_l g_lᵀ / r)⁻¹ in each block."""
    X, Y = stream(12, 21, 2)
    module = Sum()
    net = op.nn.ORFit(module, memory=op.memory.Principal(30), noise=0.5, by_layer=True)
    places = [np.r_[s[0].start : s[0].stop] for s in net.network.layers.values()]
    p = net.network.p
    precision, w = np.eye(p), net.network.weights().numpy()
    for x, y in zip(X, Y, strict=True):
        outputs, J = net.network.jacobian(x[None])
        G = J.numpy().T
        P = np.linalg.inv(precision)
        w = w + P @ G @ np.linalg.solve(G.T @ P @ G + 0.5 * np.eye(2), (y - outputs[0]).numpy())
        for at in places:
            precision[np.ix_(at, at)] += G[at] @ G[at].T / 0.5
        net.learn(x[None], y[None])
        np.testing.assert_allclose(net.network.weights(), w, atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "noise"),
    sample(
        list(product(["float32", "bfloat16", torch.float16, "float64"], [0.0, 0.3])),
        4,
        "memory_dtype",
    ),
)
def test_memory_dtype_is_near(dtype: Any, noise: float) -> None:
    X, y = stream(40, 1000, 1)
    X = X[:, :4] @ X[:4] + 0.3 * X
    fine = op.nn.ORFit(linear(1000), memory=8, noise=noise)
    coarse = op.nn.ORFit(linear(1000), memory=8, noise=noise, memory_dtype=dtype)
    one, two = fine.test_then_train(X, y), coarse.test_then_train(X, y)
    far = float((one - two).norm() / one.norm())
    assert far < {"float64": 1e-9, "float32": 1e-4}.get(str(coarse.memory_dtype), 0.1)
    assert str(coarse.memory_.basis.dtype) == f"torch.{coarse.memory_dtype}"
    ratio = coarse.memory_.basis.element_size() / 8
    assert coarse.nbytes < 1.1 * ratio * fine.nbytes + 8 * 1000 * bool(noise) + 1000
    if not noise:  # P of half precision is a projector to 1e-5
        assert float((coarse.predict(X[-1:]) - y[-1]).abs()) < 1e-4


def test_invalid_memory_options() -> None:
    for arguments, fields in (
        ({"memory_dtype": "int8"}, {"argument": "memory_dtype"}),
        ({"memory_dtype": 3}, {"argument": "memory_dtype"}),
        ({"memory_device": "nowhere"}, {"argument": "memory_device"}),
        (
            {"memory": None, "noise": 1.0, "by_layer": True},
            {"argument": "memory", "remedy": "Use op.memory.Principal(m), or noise=0"},
        ),
        (
            {"memory": None, "noise": 1.0, "memory_dtype": "bfloat16"},
            {"argument": "memory", "remedy": "Use op.memory.Principal(m), or noise=0"},
        ),
    ):
        with raises(ParameterError, **fields):
            op.nn.ORFit(linear(), **arguments)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device beside the CPU")
@pytest.mark.parametrize("spec", [6, None, op.memory.Sketch(6), op.memory.LastDirections(6)])
def test_memory_on_another_device_is_equal(spec: Any) -> None:
    X, y = stream(30, 50, 1)
    predictions = []
    for place, memory in (("cpu", "cpu"), ("cuda", "cpu"), ("cpu", "cuda"), ("cuda", None)):
        net = op.nn.ORFit(linear(50).to(place), memory=spec, memory_device=memory)
        predictions.append(net.test_then_train(X.to(place), y.to(place)).cpu())
        assert net.memory_.basis.device.type == (memory or place)
    for other in predictions[1:]:
        np.testing.assert_allclose(other, predictions[0], atol=1e-8)


# -- forgetting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("spec", [3, op.memory.Sketch(3)])
def test_drift_of_linear_module_is_bounded(
    spec: Any,
    by_layer: bool,  # noqa: FBT001
) -> None:
    X, Y = stream(30, 21, 2)
    net = op.nn.ORFit(Sum(), memory=spec, by_layer=by_layer)
    rows = ((X[k : k + 1], Y[k : k + 1]) for k in range(30))
    then = [net.learn(x, y).outputs(x) for x, y in rows]
    found, drift = net.forgetting_bound_, net.drift(X, torch.cat(then))
    assert found.kind == "estimate"
    assert 0.1 < drift <= found.all_steps
    probe = torch.randn(1, net.network.p, dtype=torch.float64)
    step = net.memory_.split(probe.T).lifted
    _, J = net.network.jacobian(X)
    assert float((J @ step).norm()) <= found.one_step * float(step.norm()) * (1 + 1e-9)


def test_drift_of_network_exceeds_estimate() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 60), torch.nn.Tanh(), torch.nn.Linear(60, 1)
    ).double()
    X, _ = stream(50, 3, 1)
    y = torch.sin(X[:, 0])
    net = op.nn.ORFit(module, memory=20)
    rows = ((X[k : k + 1], y[k : k + 1]) for k in range(50))
    then = [net.learn(x, target).predict(x) for x, target in rows]
    drift = net.drift(X, torch.cat(then))
    assert drift == pytest.approx(float((net.predict(X) - torch.cat(then)).norm()))
    assert 0.0 < drift < 10.0 * net.forgetting_bound_.all_steps
    for spec, noise in ((op.memory.LastDirections(5), 0.0), (20, 0.5), (None, 0.5)):
        none = op.nn.ORFit(module, memory=spec, noise=noise).learn(X[:3], y[:3])
        assert (none.forgetting_bound_.kind, none.forgetting_bound_.one_step) == ("none", math.inf)
