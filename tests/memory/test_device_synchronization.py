"""Number of device synchronizations of a step."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from onepass import linalg
from onepass.linalg.subspace import OrthonormalBasis
from onepass.memory import Basis, LastDirections, Principal, Random, Sketch
from sampling import sample

torch = pytest.importorskip("torch")

P = 60


class SynchronizationCounter:
    """Number of small matrices copied from the device."""

    def __init__(self) -> None:
        self.count = 0

    def host(self, array: Any) -> Any:
        self.count += linalg.is_tensor(array)
        return HOST(array)


HOST = linalg.host


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> SynchronizationCounter:
    counted = SynchronizationCounter()
    places = ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors")
    for place in places:
        monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
        monkeypatch.setattr(f"{place}.host", counted.host)
    return counted


def synchronizations_of_steps(
    specification: Any, noise: float, c: int, on_device: SynchronizationCounter
) -> list[int]:
    """Number of synchronizations of 30 steps, some of them with repeated rows."""
    rng = np.random.default_rng(0)
    kind = torch.empty(0, dtype=torch.float64)
    memory, w = specification.start(P, c, noise, kind), torch.zeros(P, dtype=torch.float64)
    found, J = [], kind
    for k in range(30):
        if k % 7 != 3:
            J = torch.as_tensor(rng.normal(size=(c, P)))
        e = torch.ones(c, dtype=torch.float64) - J @ w
        before = on_device.count
        step = memory.learn(w, J.T, e, np.full(c, noise), group=c)
        w, memory = step.w, step.memory
        found.append(on_device.count - before)
    return found


@pytest.mark.parametrize(
    ("spec", "noise", "c"),
    sample(list(product([Principal(8), Sketch(8)], [0.0, 0.5], [1, 3])), 4, "synchronization"),
)
def test_principal_step_synchronizes_once_or_twice(
    spec: Any, noise: float, c: int, on_device: SynchronizationCounter
) -> None:
    found = synchronizations_of_steps(spec, noise, c, on_device)
    assert set(found) == {1, 2}
    assert c > 1 or found.count(2) <= 8  # of 30


@pytest.mark.parametrize("spec", [LastDirections(8), Random(8)])
def test_direction_memory_step_synchronizes_once(spec: Any, on_device: Any) -> None:
    assert set(synchronizations_of_steps(spec, 0.0, 2, on_device)) == {1}


def test_basis_does_not_synchronize_while_there_is_room(on_device: SynchronizationCounter) -> None:
    found = synchronizations_of_steps(Basis(), 0.0, 1, on_device)
    assert set(found) == {0, 1}
    assert found.count(1) <= 10  # of 30, as its array grows by half
    on_device.count = 0
    columns = OrthonormalBasis(torch.eye(9, 20))
    columns.rows[[2, 5]] = 0.0
    assert columns.zeros() == [2, 5]
    assert on_device.count == 1
    assert OrthonormalBasis(np.eye(9, 20)).zeros() == []
    assert OrthonormalBasis.start(20, np.float64).zeros() == []


def test_all_to_numpy_converts_with_one_synchronization(on_device: SynchronizationCounter) -> None:
    parts = [np.arange(6.0).reshape(2, 3), torch.tensor([True, False]), torch.ones(0, 4)]
    parts += [torch.arange(4).reshape(2, 2)]
    found = linalg.all_to_numpy(*parts)
    assert [each.shape for each in found] == [(2, 3), (2,), (0, 4), (2, 2)]
    assert all(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in found)
    assert found[1].tolist() == [1.0, 0.0]
    assert found[3].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert on_device.count == 1
