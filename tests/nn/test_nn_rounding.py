"""Rounding is no dependence of a row on other rows, and what depends on them is refused."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402
from onepass.errors import ParameterError  # noqa: E402
from onepass.nn.batch import batch  # noqa: E402
from onepass.nn.probe import rounded  # noqa: E402

nn = torch.nn


class Steep(nn.Module):
    """Row-wise, and so steep that rounding shows in its outputs."""

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
    """Knows float32 alone."""

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
def test_a_steep_module_that_takes_each_row_alone_is_taken(
    seed: int, slope: float, dtype: Any
) -> None:
    torch.manual_seed(seed)
    net = op.nn.OneStepSGD(Steep(slope).to(dtype))
    assert net.predict(torch.randn(120, 4, dtype=dtype)).shape == (120,)


def test_a_steep_module_that_knows_no_float64_is_taken() -> None:
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
def test_what_mixes_rows_is_refused_however_steep(mix: Any, slope: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(40, 4)
    x[0, 0], x[3, 0] = 1.0, -1.0
    said = (
        r"learn: the answer .*not depend on other rows.*x\[0, 0\].*x\.sum\(\).*GroupNorm.*batch_f"
    )
    with pytest.raises(ParameterError, match=said):
        op.nn.OneStepSGD(Mixing(mix, slope)).learn(x, torch.zeros(40, 3))


def test_sums_that_cancel_are_no_dependence() -> None:
    """Weights that have grown to 10²⁰ leave of a sum what rounding is."""
    module = nn.Sequential(nn.Linear(4, 60), nn.Tanh(), nn.Linear(60, 1))
    with torch.no_grad():
        module[2].weight.copy_(1e20 * torch.randn(1, 30).repeat(1, 2))
        module[2].weight[0, 30:] *= -1.0
        module[0].weight[30:] = module[0].weight[:30]
        module[0].bias[30:] = module[0].bias[:30]
    assert op.nn.OGD(module).predict(torch.randn(50, 4)).shape == (50,)


def test_the_module_itself_is_left_as_it_is() -> None:
    torch.manual_seed(0)
    module = Steep(1e5).train()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    op.nn.OneStepSGD(module).predict(torch.randn(30, 4))
    assert module.training
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert module.inner.weight.dtype == torch.float32


def test_what_cannot_be_copied_is_judged_as_it_answers() -> None:
    module = Steep(1e5)
    module.__dict__["lock"] = __import__("threading").Lock()
    rows = batch(torch.randn(4, 4), torch.float32, torch.device("cpu"), "here")
    assert not rounded(module, rows, 0, module(rows.args[0][:1]))


def test_rows_of_another_number_of_axes_are_looked_at_anew() -> None:
    """A recurrent layer takes a sequence alone as well, as if its steps were no rows."""

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
    with pytest.raises(ParameterError, match="predict: the answer for a row must not depend on"):
        net.predict(x[0])
    with pytest.raises(ParameterError, match="learn: the answer for a row must not depend on"):
        net.learn(x[0], torch.randn(5, 3))
    assert torch.equal(net.network.weights(), before)
    assert net.predict(x).shape == (6, 3)
