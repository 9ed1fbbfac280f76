"""Rounding differences are not taken for dependence on other rows."""

from collections.abc import Callable
from typing import Any

import pytest

from raising import raises

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402
from onepass.errors import ParameterError  # noqa: E402
from onepass.nn.batch import batch  # noqa: E402
from onepass.nn.probe import differs_by_rounding  # noqa: E402

nn = torch.nn


class Steep(nn.Module):
    """Row-wise, and so steep that rounding is visible in its outputs."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.inner, self.outer, self.slope = nn.Linear(4, 100), nn.Linear(100, 1), slope

    def forward(self, x: Any) -> Any:
        return self.outer(torch.sin(self.slope * self.inner(x)))


class Mixing(nn.Module):
    """As steep, and mixes rows."""

    def __init__(self, mix: Callable[[Any, Any], Any], slope: float) -> None:
        super().__init__()
        self.layer, self.mix, self.slope = nn.Linear(4, 3), mix, slope

    def forward(self, x: Any) -> Any:
        return torch.sin(self.slope * self.mix(x, self.layer(x)))


class Plain32(Steep):
    """Supports float32 only."""

    def forward(self, x: Any) -> Any:
        return super().forward(x @ torch.eye(4, dtype=torch.float32))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("slope", "dtype"),
    [
        (1e5, torch.float32),
        (1e14, torch.float32),  # beyond the digits of float64 as well
        (1e9, torch.float64),
        (1e2, torch.bfloat16),
        (1e3, torch.float16),
    ],
)
def test_steep_module_is_accepted(seed: int, slope: float, dtype: Any) -> None:
    torch.manual_seed(seed)
    net = op.nn.OneStepSGD(Steep(slope).to(dtype))
    assert net.predict(torch.randn(120, 4, dtype=dtype)).shape == (120,)


def test_steep_module_without_float64_is_accepted() -> None:
    torch.manual_seed(0)
    assert op.nn.OneStepSGD(Plain32(1e5)).predict(torch.randn(120, 4)).shape == (120,)


@pytest.mark.parametrize("slope", [1.0, 1e5])
@pytest.mark.parametrize(
    "mix",
    [
        lambda x, out: out if float(x[0, 0]) > 0 else -out,
        lambda x, out: out * x.sum().item(),
        lambda x, out: out + 0.01 * x.sum(),
        lambda _, out: out - out.mean(0),
    ],
)
def test_steep_module_that_mixes_rows_is_refused(mix: Any, slope: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(40, 4)
    x[0, 0], x[3, 0] = 1.0, -1.0
    message = (
        r"learn: the output .*not depend on other rows.*x\[0, 0\].*x\.sum\(\).*GroupNorm.*batch_f"
    )
    with pytest.raises(ParameterError, match=message):
        op.nn.OneStepSGD(Mixing(mix, slope)).learn(x, torch.zeros(40, 3))


def test_cancelling_sums_are_accepted() -> None:
    """With weights of 10²⁰, sums are dominated by rounding."""
    module = nn.Sequential(nn.Linear(4, 60), nn.Tanh(), nn.Linear(60, 1))
    with torch.no_grad():
        module[2].weight.copy_(1e20 * torch.randn(1, 30).repeat(1, 2))
        module[2].weight[0, 30:] *= -1.0
        module[0].weight[30:] = module[0].weight[:30]
        module[0].bias[30:] = module[0].bias[:30]
    assert op.nn.OGD(module).predict(torch.randn(50, 4)).shape == (50,)


def test_module_is_not_changed() -> None:
    torch.manual_seed(0)
    module = Steep(1e5).train()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    op.nn.OneStepSGD(module).predict(torch.randn(30, 4))
    assert module.training
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert module.inner.weight.dtype == torch.float32


def test_uncopyable_module_is_compared_directly() -> None:
    module = Steep(1e5)
    module.__dict__["lock"] = __import__("threading").Lock()
    rows = batch(torch.randn(4, 4), torch.float32, torch.device("cpu"))
    assert not differs_by_rounding(module, rows, 0, module(rows.args[0][:1]))


def test_new_number_of_axes_is_checked() -> None:
    """A recurrent layer also accepts an unbatched sequence."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.RNN(4, 3, batch_first=True)

        def forward(self, x: Any) -> Any:
            out = self.inner(x)[0]
            return out[:, -1] if x.ndim == 3 else out

    net = op.nn.ORFit(Last(), memory=5)
    x = torch.randn(6, 5, 4)
    net.learn(x, torch.randn(6, 3))
    before = net.network.weights()
    with raises(ParameterError, where="ORFit.predict", remedy="In forward"):
        net.predict(x[0])
    with raises(ParameterError, where="ORFit.learn", remedy="In forward"):
        net.learn(x[0], torch.randn(5, 3))
    assert torch.equal(net.network.weights(), before)
    assert net.predict(x).shape == (6, 3)
