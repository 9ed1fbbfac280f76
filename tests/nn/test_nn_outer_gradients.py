"""Derivatives by layers equal plain autograd."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402  if there is torch

from onepass.nn.jacobian import Derivative, InseparableRows, LayerRecorder  # noqa: E402
from onepass.nn.module import Network  # noqa: E402

nn = torch.nn
functional = nn.functional


class Made(nn.Module):
    """A forward pass of some layers."""

    def __init__(self, forward: Callable[[Any, Any], Any], **layers: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.shape = forward

    def forward(self, x: Any) -> Any:
        return self.shape(self.layers, x)


def patches(**settings: Any) -> Any:
    return nn.Sequential(nn.Conv2d(4, 6, 3, **settings), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))


MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...], set[str]]] = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), (4,), {"1", "n"},
    ),
    "in place": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
        (4,), {"1", "n"},
    ),
    "convolution": (lambda: patches(stride=2, padding=1), (4, 7, 6), {"1", "n"}),
    "dilated": (lambda: patches(dilation=2, padding=(2, 1)), (4, 7, 6), {"1", "n"}),
    "groups": (lambda: patches(groups=2, bias=False), (4, 5, 6), {"1", "n"}),
    "padded in words": (lambda: patches(padding="same"), (4, 5, 6), {"1"}),
    "sequence": (
        lambda: Made(lambda at, x: at["b"](torch.tanh(at["a"](x)).mean(1)),
                     a=nn.Linear(4, 5), b=nn.Linear(5, 3)),
        (6, 4), {"1", "n"},
    ),
    "turned sequence": (
        lambda: Made(lambda at, x: at["a"](x.transpose(0, 1)).mean(0), a=nn.Linear(4, 3)),
        (6, 4), {"1"},
    ),
    "used twice": (
        lambda: Made(lambda at, x: at["b"](at["a"](torch.tanh(at["a"](x)))),
                     a=nn.Linear(4, 4), b=nn.Linear(4, 3)),
        (4,), {"1", "n"},
    ),
    "used by others as well": (
        lambda: Made(lambda at, x: at["a"](x) + (x @ at["a"].weight.T).exp(), a=nn.Linear(4, 3)),
        (4,), {"1"},
    ),
    "normalised": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)),
        (4,), {"1"},
    ),
    "named": (
        lambda: Made(
            lambda at, x: functional.linear(bias=at["a"].bias, input=x, weight=at["a"].weight),
            a=nn.Linear(4, 3),
        ),
        (4,), {"1", "n"},
    ),
    "nowhere": (
        lambda: Made(lambda at, x: at["a"](x), a=nn.Linear(4, 3), b=nn.Linear(2, 2)),
        (4,), {"1", "n"},
    ),
    "not derived": (
        lambda: Made(lambda at, x: at["a"](x) + at["a"](x).detach(), a=nn.Linear(4, 3)),
        (4,), {"1", "n"},
    ),
    "as one vector": (
        lambda: Made(lambda at, x: torch.stack([at["a"](row) for row in x]), a=nn.Linear(4, 3)),
        (4,), {"1"},
    ),
}  # fmt: skip


def made(name: str, n: int, dtype: Any = torch.float64) -> tuple[Any, Any]:
    torch.manual_seed(0)
    make, shape, _ = MODULES[name]
    module, x = make(), torch.randn(n, *shape)
    module(x[:1])  # lazy layers
    return module.to(dtype), x.to(dtype)


def plain(module: Any, x: Any) -> Any:
    rows = []
    for i in range(len(x)):
        outputs = module(x[i : i + 1])
        for k in range(outputs.shape[1]):
            leaves = [each for each in module.parameters() if each.requires_grad]
            found = torch.autograd.grad(outputs[0, k], leaves, retain_graph=True, allow_unused=True)
            zeros = (torch.zeros_like(each) for each in leaves)
            parts = (z if g is None else g for g, z in zip(found, zeros, strict=True))
            rows.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(rows)


@pytest.mark.parametrize("n", [1, 5, 6])
@pytest.mark.parametrize("name", MODULES)
def test_equals_autograd(name: str, n: int) -> None:
    module, x = made(name, n)
    net = Network(module)
    outputs, J = net.jacobian(x)
    torch.testing.assert_close(J, plain(module, x), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(outputs, module(x).detach())
    trusted = net._derivative._trusted
    way, kinds = ("layers", "1") if n == 1 else ("layers of rows", "n")
    turned = name == "turned sequence" and n == 6  # where any axis could be that of rows
    assert trusted.get(way, False) is (kinds in MODULES[name][2]) or turned


@pytest.mark.parametrize("name", ["perceptron", "groups", "sequence", "used twice"])
@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("n", [1, 4])
def test_frozen_parameters_have_no_derivative(name: str, frozen: str, n: int) -> None:
    module, x = made(name, n)
    for at, each in module.named_parameters():
        each.requires_grad_(not at.endswith(frozen))
    net = Network(module)
    torch.testing.assert_close(net.jacobian(x)[1], plain(module, x), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n", [1, 4])
def test_rows_computed_at_once_do_not_change_result(
    rows: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = made("convolution", n)
    monkeypatch.setattr(Derivative, "_rows_per_chunk", lambda *_: rows)
    J = Network(module).jacobian(x)[1]
    torch.testing.assert_close(J, plain(module, x), rtol=0.0, atol=1e-12)


def test_recomputed_weights_use_autograd() -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
    module = Made(
        lambda at, x: at["b"](checkpoint(at["a"], x, use_reentrant=False)),
        a=inner, b=nn.Linear(4, 3).double(),
    )  # fmt: skip
    for n in (1, 5):
        x = torch.randn(n, 4, dtype=torch.float64)
        J = Network(module).jacobian(x)[1]
        torch.testing.assert_close(J, plain(module, x), rtol=0.0, atol=1e-12)


def test_overwritten_inputs_raise() -> None:
    weight = torch.ones(3, 4, requires_grad=True)
    x, watch = torch.ones(1, 4), LayerRecorder({"weight": weight})
    with watch:
        out = functional.linear(x, weight)
    J, v = torch.empty(1, 3, 12), torch.eye(3)[:, None]
    watch.write(out, v, J, {"weight": slice(0, 12)})
    assert J.sum() == 12.0
    x.mul_(2.0)
    with pytest.raises(InseparableRows):
        watch.write(out, v, J, {"weight": slice(0, 12)})


def test_module_is_not_changed() -> None:
    module, x = made("in place", 5)
    hooks = [len(each._forward_hooks) for each in module.modules()]
    before, given = [each.clone() for each in module.parameters()], x.clone()
    Network(module).jacobian(x)
    assert all(each.grad is None and each.requires_grad for each in module.parameters())
    assert all(map(torch.equal, before, module.parameters()))
    assert torch.equal(x, given)
    assert hooks == [len(each._forward_hooks) for each in module.modules()]


def test_row_length_may_change() -> None:
    module, _ = made("turned sequence", 2)
    net = Network(module)
    for n, steps in ((6, 6), (4, 6), (6, 6), (3, 3)):
        x = torch.randn(n, steps, 4, dtype=torch.float64)
        torch.testing.assert_close(net.jacobian(x)[1], plain(module, x), rtol=0.0, atol=1e-12)
