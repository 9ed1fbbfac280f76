"""Processes that learn with split weights, and the modules and rows that they learn."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from module_cases import Attention
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import onepass as op
from onepass.errors import CheckpointError, RowsRefusedWarning
from onepass.nn import parts

ROWS = 8
OUTPUTS = {"linear": 2, "conv": 2, "attention": 3}
MEMORIES: dict[str, dict[str, Any]] = {
    "principal": {"memory": 6},
    "ridge": {"memory": 6, "noise": 0.1},
    "block": {"memory": 6, "noise": 1.0, "block_update": True},
    "all": {"memory": None},
    "projected": {"memory": op.memory.Principal(6, of="projected")},
    "last": {"memory": op.memory.LastDirections(5)},
}


def case(name: str) -> tuple[Any, Any, Any]:
    """A module, rows and targets."""
    torch.manual_seed(0)
    if name == "linear":
        module, x = nn.Linear(5, 2), torch.randn(ROWS, 5)
    elif name == "conv":
        layers = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 2)
        module, x = nn.Sequential(*layers).eval(), torch.randn(ROWS, 1, 5, 5)
    else:
        module, x = Attention(), torch.randn(ROWS, 4, 8)
    return module.double(), x.double(), torch.randn(ROWS, OUTPUTS[name]).double()


def sharded(module: Any, size: int) -> Any:
    """The module after ``fully_shard``, layer by layer."""
    mesh = init_device_mesh("cpu", (size,))
    for layer in module.modules() if isinstance(module, nn.Sequential) else ():
        if layer is not module and list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def gap(one: Any, two: Any) -> float:
    """The largest difference, relative to the largest number."""
    return float((one - two).abs().max() / one.abs().max())


class Counter:
    """Counts the numbers that ``all_reduce`` exchanges."""

    def __init__(self) -> None:
        self.total, self.real = 0, distributed.all_reduce
        distributed.all_reduce = self

    def __call__(self, tensor: Any, **options: Any) -> Any:
        self.total += tensor.numel()
        return self.real(tensor, **options)


def steps(counter: Counter, name: str, how: str, size: int, *, shard: bool) -> None:
    """Compare learning in one process with learning in all of them."""
    options, (module, x, y) = MEMORIES[how], case(name)
    one = op.nn.ORFit(module, **options)
    predictions = one.test_then_train(x, y)
    again = case(name)[0]
    group = None if shard else distributed.group.WORLD
    two = op.nn.ORFit(sharded(again, size) if shard else again, group=group, **options)
    c, before = OUTPUTS[name], counter.total
    for i in range(1 if how == "block" else ROWS):
        rows = slice(None) if how == "block" else slice(i, i + 1)
        found = two.test_then_train(x[rows], y[rows])
        assert gap(predictions[rows], found) < 1e-12
        if how in {"principal", "ridge"} and not shard:
            q = 9 + c  # directions, and those between two rotations
            assert counter.total - before <= 2 * q * c + 8 * c * c + 8 * c + q * q * (i % 2)
        before = counter.total
    if "noise" in options:
        pairs = zip(one.predict(x, return_std=True), two.predict(x, return_std=True), strict=True)
        assert all(gap(*pair) < 1e-12 for pair in pairs)
    elif how == "principal":
        bounds = [each.forgetting_bound_.all_steps for each in (one, two)]
        assert abs(bounds[0] - bounds[1]) <= 1e-12 * bounds[0]
    assert two.memory_.rank == one.memory_.rank
    assert two.inconsistent_rows_ == one.inconsistent_rows_
    assert two.nbytes < one.nbytes


def start(rank: int, size: int, folder: str) -> None:
    """Join the group of processes."""
    torch.set_num_threads(1)
    method = Path(folder, f"group-of-{size}").as_uri()
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=size)


def end() -> None:
    """Leave the group of processes."""
    distributed.barrier()
    distributed.destroy_process_group()


def learn(rank: int, size: int, folder: str) -> None:
    """Compare all cases, then save one learner."""
    start(rank, size, folder)
    counter = Counter()
    for name in OUTPUTS:
        for how in MEMORIES if name == "conv" else ("principal", "ridge"):
            steps(counter, name, how, size, shard=False)
            if how == "principal":
                steps(counter, name, how, size, shard=True)
    for shard in (False, True):
        module, x, y = case("conv")
        module = sharded(module, size) if shard else module
        group = None if shard else distributed.group.WORLD
        net = op.nn.ORFit(module, group=group, **MEMORIES["ridge"]).learn(x[:5], y[:5])
        path = Path(folder, "sharded" if shard else "plain")
        net.save(path)
        net.save(path)
        assert len(list(path.iterdir())) == size + 1
    end()


def resume(rank: int, size: int, folder: str) -> None:
    """Load learners of another number of processes, and of one, and continue."""
    start(rank, size, folder)
    _, x, y = case("conv")
    expected = torch.load(Path(folder, "expected.pt"))
    for shard in (False, True):
        for name in ("plain", "sharded", "one.onepass"):
            torch.manual_seed(9)
            module = case("conv")[0]
            for each in module.parameters():
                nn.init.normal_(each)
            module = sharded(module, size) if shard else module
            group = None if shard else distributed.group.WORLD
            net = op.nn.load(Path(folder, name), module, group=group)
            assert gap(expected, net.test_then_train(x[5:], y[5:])) < 1e-12
    end()


def refuse(rank: int, size: int, folder: str) -> None:
    """Rows that are not finite in one process are refused by all; a full disk stops all."""
    start(rank, size, folder)
    for shard in (False, True):
        module, x, y = case("linear")
        module = sharded(module, size) if shard else module
        net = op.nn.ORFit(module, 4, group=distributed.group.WORLD)
        net.learn(x[:2], y[:2])
        before = net.network.weights()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            net.learn(x[2:3].sign() * 1.7e308, y[2:3])
        assert [each.category for each in found] == [RowsRefusedWarning]
        assert net.rows_refused_ == 1
        assert torch.equal(before, net.network.weights())
        net.learn(x[3:], y[3:])
        target = Path(folder, "blocked")
        if rank == 1:
            real, parts.archive.write = parts.archive.write, fail
        with pytest.raises(CheckpointError, match="the disk is full"):
            net.save(target)
        if rank == 1:
            parts.archive.write = real
        assert not list(target.glob("*"))
    end()


def fail(*_: Any, **__: Any) -> None:
    """Fail like a full disk."""
    raise OSError("the disk is full")
