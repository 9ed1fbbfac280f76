"""Steps are atomic, whatever is raised."""

import copy
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import MemoryFullWarning, MergeWarning
from onepass.nn.module import Network
from sampling import sample

torch = pytest.importorskip("torch")


def network(width: int = 8) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, width), torch.nn.Tanh(),
        torch.nn.Linear(width, 1),
    ).double()  # fmt: skip


def stream(n: int, seed: int = 1) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return X, torch.sin(X.sum(dim=1))


def assert_alike(one: Any, two: Any) -> None:
    """Equal bit for bit, also after further rows."""
    counts = ("rows_seen_", "rows_refused_", "inconsistent_rows_", "nbytes")
    assert [getattr(one, name) for name in counts] == [getattr(two, name) for name in counts]
    for _ in range(2):
        np.testing.assert_array_equal(one.network.weights(), two.network.weights())
        assert repr(one.forgetting_bound_) == repr(two.forgetting_bound_)
        for net in (one, two):
            net.learn(*stream(12, seed=5))


def refuse(*_: Any) -> Any:
    raise MemoryError


# -- merging --------------------------------------------------------------------------------------

MEMORIES = [4, op.memory.Sketch(4), op.memory.Random(4), op.memory.LastDirections(4), None]
ignored = pytest.mark.filterwarnings("ignore::UserWarning")
each_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)


def parts(memory: Any, noise: float = 0.0, *, by_layer: bool = False) -> tuple[Any, Any]:
    """Two separately trained copies; one layer has as many weights as directions."""
    X, y = stream(24)
    module = network()
    one, two = (
        op.nn.ORFit(copy.deepcopy(module), memory, noise, by_layer=by_layer) for _ in range(2)
    )
    return one.learn(X[:12], y[:12]), two.learn(X[12:], y[12:])


@pytest.mark.parametrize(
    ("memory", "by_layer"), sample(list(product(MEMORIES, [False, True])), 5, "failed merge")
)
@ignored
def test_memory_error_in_merge_changes_nothing(
    memory: Any,
    by_layer: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = parts(memory, by_layer=by_layer)
    before, other = copy.deepcopy(one), copy.deepcopy(two)
    where, name = (type(one.memory_.parts[-1]), "merged") if by_layer else (Network, "set_weights")
    method, calls = getattr(where, name), []

    def full(self: Any, *args: Any) -> Any:
        calls.append(name)
        if len(calls) == (2 if by_layer else 1):  # the first layer's memory has been written in
            raise MemoryError
        return method(self, *args)

    with monkeypatch.context() as held:
        held.setattr(where, name, full)
        with pytest.raises(MemoryError):
            one.merge(two)
    assert_alike(one, before)
    assert_alike(two, other)


@each_memory
def test_memory_error_in_merge_into_new_learner_changes_nothing(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, two = op.nn.ORFit(network(), memory), parts(memory)[1]
    with monkeypatch.context() as held:
        held.setattr(fresh, "_set_weights", refuse)
        with pytest.raises(MemoryError):
            fresh.merge(two)
    assert fresh.memory_ is None
    assert fresh.rows_seen_ == 0
    assert fresh.merge(two).rows_seen_ == 12


# -- warnings that are errors ---------------------------------------------------------------------

KINDS: dict[str, Any] = {
    "ORFit": lambda module: op.nn.ORFit(module, memory=5),
    "ORFit-block": lambda module: op.nn.ORFit(module, memory=5, block_update=True),
    "ORFit-layers": lambda module: op.nn.ORFit(module, memory=None, by_layer=True),
    "EKF": lambda module: op.nn.EKF(module, noise=0.0),
    "NTKRLS": lambda module: op.nn.NTKRLS(module, forgetting=0.0),
    "OGD": lambda module: op.nn.OGD(module, memory=5, batch=1, step_size=0.1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_full_memory_warning_as_error_counts_row(kind: str) -> None:
    torch.manual_seed(0)
    module, (X, y) = torch.nn.Linear(2, 1, bias=False).double(), stream(6)
    net, right = KINDS[kind](module), KINDS[kind](copy.deepcopy(module))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right.learn(X[:2], y[:2])
    with pytest.raises(MemoryFullWarning, match="further rows cannot be learned"):
        net.learn(X[:2], y[:2])
    np.testing.assert_array_equal(net.network.weights(), right.network.weights())
    assert net.rows_seen_ == right.rows_seen_ == 2
    assert net.predict(X).shape == right.predict(X).shape == y.shape
    for each in (net, right):  # it is told once
        each.learn(X[2:], y[2:])
    np.testing.assert_array_equal(net.network.weights(), right.network.weights())
    assert net.rows_seen_ == 6


def test_full_memory_warning_as_error_ends_task() -> None:
    X, y = stream(6)
    module = torch.nn.Linear(2, 1, bias=False).double()
    net = op.nn.OGD(module, memory=5, per_task=4, step_size=0.1).learn(X, y)
    with pytest.raises(MemoryFullWarning):
        net.after_task()
    assert (net.tasks_, net.memory_.rank) == (1, 2)
    assert net.after_task().tasks_ == 1


@pytest.mark.parametrize("started", [False, True])
def test_full_memory_warning_as_error_completes_merge(started: bool) -> None:  # noqa: FBT001
    module = torch.nn.Linear(2, 1, bias=False).double()
    X, y = stream(2)
    one, two = (op.nn.ORFit(copy.deepcopy(module), memory=None) for _ in range(2))
    two.learn(X[:1], y[:1])
    if started:
        one.learn(X[1:], y[1:])
    else:
        with pytest.warns(MemoryFullWarning):
            two.learn(X[1:], y[1:])
    with pytest.raises(MemoryFullWarning):
        one.merge(two)
    assert (one.rows_seen_, one.memory_.rank) == (2, 2)
    np.testing.assert_allclose(one.predict(X), y, atol=1e-9)


def test_merge_warning_as_error_completes_merge() -> None:
    X, y = stream(60)
    module = network(40)
    one, two = (op.nn.ORFit(copy.deepcopy(module), memory=None) for _ in range(2))
    one.learn(X[:30], y[:30])
    two.learn(X[30:], y[30:])
    right = copy.deepcopy(one)
    with pytest.warns(MergeWarning):
        right.merge(two)
    with pytest.raises(MergeWarning):  # all warnings are errors here
        one.merge(two)
    assert one.rows_seen_ == 60
    np.testing.assert_array_equal(one.network.weights(), right.network.weights())
    assert one.memory_.rank == right.memory_.rank
