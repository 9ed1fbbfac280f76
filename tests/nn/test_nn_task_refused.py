"""Tasks with non-finite gradients are reported and not ended."""

from typing import Any

import pytest
from test_nn_ogd import network, stream

import onepass as op
from onepass.errors import NumericalError, RowsRefusedWarning
from raising import raises

torch = pytest.importorskip("torch")
optim = op.nn.optim


@pytest.mark.parametrize("per_task", [5, None])
def test_task_without_finite_gradient_is_not_ended(per_task: int | None) -> None:
    module, (X, y) = network(), stream(9)
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer = optim.OrthogonalGradient(inner, module, memory=6, per_task=per_task)
    optimizer.after_task((X, y))
    before, memory = optimizer.state_dict()["onepass"], optimizer.memory_
    directions = memory.subspace.U.clone()
    weight = module[0].weight.detach().clone()
    with torch.no_grad():
        module[0].weight.fill_(torch.nan)
    with raises(
        NumericalError, where="OrthogonalGradient.after_task", remedy="Nothing was stored, and"
    ):
        optimizer.after_task([(X[:4], y[:4]), (X[4:], y[4:])])
    assert optimizer.tasks_ == before["tasks"] == 1
    assert optimizer.memory_ is memory
    assert torch.equal(memory.subspace.U, directions)
    with torch.no_grad():
        module[0].weight.copy_(weight)
    optimizer.after_task((X, y))
    assert optimizer.tasks_ == 2


def test_nonfinite_gradients_are_skipped_with_warning() -> None:
    module, (X, y) = network(), stream(9)
    X[[2, 5]] = 1e200  # finite, unlike what the module makes of it
    module.insert(0, Square())
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer, right = (optim.OrthogonalGradient(inner, module, per_task=None) for _ in range(2))
    with pytest.warns(
        RowsRefusedWarning, match="got nan or infinity in 2. These gradients were skipped"
    ):
        optimizer.after_task((X, y))
    good = [0, 1, 3, 4, 6, 7, 8]
    right.after_task((X[good], y[good]))
    torch.testing.assert_close(
        optimizer.memory_.Q @ optimizer.memory_.Q.T, right.memory_.Q @ right.memory_.Q.T
    )
    assert optimizer.tasks_ == 1


class Square(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * x
