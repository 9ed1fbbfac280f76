"""Processes that learn with split weights, and the modules and rows that they learn."""

import resource
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from module_cases import Attention
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import onepass as op
from onepass.errors import CheckpointError, ParameterError, RowsRefusedWarning

ROWS = 6
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


def sharded(module: Any, ranks: int) -> Any:
    """The module after ``fully_shard``, layer by layer, over the first ranks."""
    mesh = DeviceMesh("cpu", torch.arange(ranks))
    for layer in module.modules() if isinstance(module, nn.Sequential) else ():
        if layer is not module and list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def made(module: Any, group: Any, ranks: int, *, shard: bool, **options: Any) -> Any:
    """A learner of a module that is split over the first ranks."""
    if shard:
        return op.nn.ORFit(sharded(module, ranks), **options)
    return op.nn.ORFit(module, group=group, **options)


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


def steps(counter: Counter, name: str, how: str, group: Any, ranks: int, *, shard: bool) -> None:
    """Compare learning in one process with learning in all of them."""
    options, (module, x, y) = MEMORIES[how], case(name)
    one = op.nn.ORFit(module, **options)
    predictions = one.test_then_train(x, y)
    two = made(case(name)[0], group, ranks, shard=shard, **options)
    c, before = y.shape[1], counter.total
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


def run(rank: int, folder: str) -> None:
    """What each of three processes does; the first two are also a group."""
    torch.set_num_threads(1)
    method = Path(folder, "group").as_uri()
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=3)
    pair = distributed.new_group([0, 1])
    counter = Counter()
    for group, ranks in ((distributed.group.WORLD, 3), (pair, 2)):
        for name in OUTPUTS if rank < ranks else ():
            steps(counter, name, "principal", group, ranks, shard=False)
            steps(counter, name, "principal", group, ranks, shard=True)
            for how in MEMORIES if (name, ranks) == ("conv", 3) else ["ridge"]:
                if how != "principal":
                    steps(counter, name, how, group, ranks, shard=False)
    save(Path(folder))
    if rank < 2:
        resume(Path(folder), pair)
    refuse(rank, Path(folder))
    refuse_different(rank, pair)
    more_processes_than_weights()
    distributed.barrier()
    distributed.destroy_process_group()


def save(folder: Path) -> None:
    """Save learners of three processes and of one, and what the one learns next."""
    for shard in (False, True):
        module, x, y = case("conv")
        net = made(module, distributed.group.WORLD, 3, shard=shard, **MEMORIES["ridge"])
        path = folder / ("sharded" if shard else "plain")
        net.learn(x[:4], y[:4]).save(path)
        net.save(path)
        assert len(list(path.iterdir())) == 4
    if not distributed.get_rank():
        one = op.nn.ORFit(case("conv")[0], **MEMORIES["ridge"]).learn(x[:4], y[:4])
        one.save(folder / "one.onepass")
        torch.save(one.test_then_train(x[4:], y[4:]), folder / "expected.pt")
    distributed.barrier()


def resume(folder: Path, pair: Any) -> None:
    """Load learners of three processes and of one in two, and continue."""
    _, x, y = case("conv")
    expected = torch.load(folder / "expected.pt")
    for shard in (False, True):
        for name in ("plain", "sharded", "one.onepass"):
            torch.manual_seed(9 + distributed.get_rank())
            module = case("conv")[0]
            for each in module.parameters():
                nn.init.normal_(each)
            module = sharded(module, 2) if shard else module
            net = op.nn.load(folder / name, module, group=None if shard else pair)
            assert gap(expected, net.test_then_train(x[4:], y[4:])) < 1e-12


def refuse(rank: int, folder: Path) -> None:
    """Rows that are not finite in one process are refused by all; a full disk stops all."""
    for shard in (False, True):
        module, x, y = case("linear")
        net = made(module, distributed.group.WORLD, 3, shard=shard, memory=4)
        net.learn(x[:2], y[:2])
        before = net.network.weights()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            net.learn(x[2:3].sign() * 1.7e308, y[2:3])
        assert [each.category for each in found] == [RowsRefusedWarning]
        assert net.rows_refused_ == 1
        assert torch.equal(before, net.network.weights())
        net.learn(x[3:4], y[3:4])
        target = folder / f"limited-{shard}"
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for interrupted in (rank == 1, rank == 0):
            if interrupted:
                resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))
            with pytest.raises(CheckpointError, match="File too large"):
                net.save(target)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert not list(target.glob(f"part-{rank}-*"))
        alone = folder / f"alone-{rank}"  # as on a machine that does not share its disk
        with pytest.raises(CheckpointError, match="No such file"):
            net.save(alone)
        assert not (alone / "index.onepass").exists()


def refuse_different(rank: int, pair: Any) -> None:
    """Weights, rows and groups that differ raise an error in all processes."""
    world, (module, x, y) = distributed.group.WORLD, case("linear")
    for shard in (False, True):
        net = made(case("linear")[0], world, 3, shard=shard, memory=4)
        before = net.network.weights()
        with pytest.raises(ParameterError, match="learn the same rows"):
            net.learn(x[rank : rank + 1], y[rank : rank + 1])
        assert torch.equal(before, net.network.weights())
    torch.manual_seed(rank)
    different = nn.Linear(5, 2).double()
    with pytest.raises(ParameterError, match="begin with the same weights"):
        op.nn.ORFit(different, 4, group=world).learn(x, y)
    if rank == 2:
        with pytest.raises(ParameterError, match="contains this process"):
            op.nn.ORFit(module, 4, group=pair)
    with pytest.raises(ParameterError, match="None for a module of fully_shard"):
        op.nn.ORFit(sharded(module, 3), 4, group=world)


def more_processes_than_weights() -> None:
    """Processes may store no weights."""
    x, y = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.ones(4, 1)
    for shard in (False, True):
        one, two = (nn.Linear(2, 1, bias=False) for _ in range(2))
        for each in (one, two):
            nn.init.ones_(each.weight)
        net = made(two, distributed.group.WORLD, 3, shard=shard, memory=1)
        expected = op.nn.ORFit(one, 1).test_then_train(x, y)
        assert torch.allclose(expected, net.test_then_train(x, y), atol=1e-5)
