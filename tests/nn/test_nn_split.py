"""Weights and memory that are split over processes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raising import raises

torch = pytest.importorskip("torch")
distributed = pytest.importorskip("torch.distributed")
pytest.importorskip("resource")  # limits the size of files
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("torch has no gloo", allow_module_level=True)

import split_program as program  # noqa: E402
from torch import multiprocessing  # noqa: E402

import onepass as op  # noqa: E402
from onepass.errors import CheckpointError, MergeError, ParameterError  # noqa: E402
from onepass.serialization import archive  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three processes write that compare split weights with those of one process."""
    path = tmp_path_factory.mktemp("split")
    multiprocessing.get_context("forkserver").set_forkserver_preload(["split_program"])
    multiprocessing.start_processes(program.run, (str(path),), nprocs=3, start_method="forkserver")
    return path


def test_two_and_three_processes_equal_one(folder: Path) -> None:
    index = archive.read(folder / "sharded" / "index.onepass", kind="network parts")
    assert len(index["parts"]) == 3
    assert sum(b - a for _, slices in index["parts"] for a, b in slices) == index["p"] == 92


@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_one_process_continues_checkpoints_of_three(folder: Path, name: str) -> None:
    module, x, y = program.case("conv")
    net = op.nn.load(folder / name, module)
    assert net.rows_seen_ == 4
    if name == "plain":  # began with the same weights
        assert net._started_at == op.nn.load(folder / "one.onepass", module)._started_at
        net = op.nn.load(folder / name, module)
    expected = torch.load(folder / "expected.pt")
    assert program.gap(expected, net.test_then_train(x[4:], y[4:])) < 1e-12


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("index.onepass", shorten, "damaged"),
        ("index.onepass", Path.unlink, "index.onepass"),
        ("part-1*", shorten, "part-1"),
        ("part-1*", Path.unlink, "part-1"),
    ],
)
def test_damaged_checkpoints_are_named(
    folder: Path, tmp_path: Path, name: str, change: Callable[[Path], None], message: str
) -> None:
    shutil.copytree(folder / "plain", tmp_path / "plain")
    (file,) = (tmp_path / "plain").glob(name)
    change(file)
    module = program.case("conv")[0]
    before = {name: each.clone() for name, each in module.state_dict().items()}
    with pytest.raises(CheckpointError, match=message):
        op.nn.load(tmp_path / "plain", module)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    """A group of one process."""
    method = (tmp_path / "group").as_uri()
    distributed.init_process_group("gloo", init_method=method, rank=0, world_size=1)
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def test_a_group_of_one_process_is_one_process(alone: Any) -> None:
    module, x, y = program.case("attention")
    split = op.nn.ORFit(module, memory=6, group=alone)
    with raises(MergeError, remedy="in one process"):
        split.merge(op.nn.ORFit(program.case("attention")[0], memory=6))
    one = op.nn.ORFit(program.case("attention")[0], memory=6)
    assert program.gap(one.test_then_train(x, y), split.test_then_train(x, y)) < 1e-12


@pytest.mark.parametrize("options", [{"by_layer": True}, {"memory": None, "noise": 1.0}])
def test_memories_that_cannot_be_split_are_refused(alone: Any, options: dict[str, Any]) -> None:
    with raises(ParameterError, argument="memory"):
        op.nn.ORFit(torch.nn.Linear(2, 1), group=alone, **options)
