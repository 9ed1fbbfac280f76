"""Calls that make the host wait for an accelerator, counted on a CPU."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import onepass as op  # noqa: E402
from onepass import linalg  # noqa: E402
from onepass.errors import RowsRefusedWarning  # noqa: E402

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.default")


class Waits(TorchDispatchMode):  # type: ignore[misc]  # torch has no types for it
    """Counts operations and methods whose result the host waits for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.count = 0
        for name in ("numpy", "cpu", "tolist"):
            monkeypatch.setattr(torch.Tensor, name, self.counting(getattr(torch.Tensor, name)))

    def counting(self, method: Any) -> Any:
        def counted(*given: Any, **options: Any) -> Any:
            self.count += 1
            return method(*given, **options)

        return counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(name in str(func) for name in WAITING)
        return func(*args, **(kwargs or {}))


class Square(torch.nn.Module):  # type: ignore[misc]  # torch has no types for it
    def forward(self, x: Any) -> Any:
        return x.square()


def waits(net: Any, n: int, monkeypatch: pytest.MonkeyPatch, *, bad: bool = False) -> int:
    x, y = torch.randn(n, 6), torch.randn(n, 2)
    with monkeypatch.context() as patch, Waits(patch) as found:
        net.learn(x * 1e38 if bad else x, y)
    return found.count


@pytest.mark.parametrize("kind", ["all", "none", "noisy"])
def test_number_of_waits_does_not_depend_on_steps(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors"):
        monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 80), torch.nn.Tanh(), torch.nn.Linear(80, 2))
    net: Any = op.nn.OneStepSGD(module, 1.0 if kind == "noisy" else 0.0)
    if kind == "all":
        net = op.nn.ORFit(module, memory=None)
    net.learn(torch.randn(66, 6), torch.randn(66, 2))  # reserves space for more directions
    assert waits(net, 4, monkeypatch) == waits(net, 12, monkeypatch) <= 4


def test_rows_that_are_not_finite_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors"):
        monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
    torch.manual_seed(0)
    net = op.nn.OneStepSGD(torch.nn.Sequential(torch.nn.Linear(6, 2), Square()))
    net.learn(torch.randn(3, 6), torch.randn(3, 2))
    before = net.network.weights()
    with pytest.warns(RowsRefusedWarning):
        waits(net, 5, monkeypatch, bad=True)
    assert net.rows_refused_ == 5
    assert torch.equal(before, net.network.weights())
