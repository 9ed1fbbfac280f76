"""Weights and memory that are split over processes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
distributed = pytest.importorskip("torch.distributed")
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("torch has no gloo", allow_module_level=True)

import split_program as program  # noqa: E402
from torch import multiprocessing  # noqa: E402

import onepass as op  # noqa: E402
from onepass.errors import CheckpointError, MergeError, ParameterError  # noqa: E402


def run(work: Callable[..., None], size: int, folder: Path) -> None:
    multiprocessing.get_context("forkserver").set_forkserver_preload(["split_program"])
    multiprocessing.start_processes(
        work, (size, str(folder)), nprocs=size, start_method="forkserver"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of three processes and of one, and what the one learns next."""
    path = tmp_path_factory.mktemp("split")
    run(program.learn, 3, path)
    module, x, y = program.case("conv")
    one = op.nn.ORFit(module, **program.MEMORIES["ridge"]).learn(x[:5], y[:5])
    one.save(path / "one.onepass")
    torch.save(one.test_then_train(x[5:], y[5:]), path / "expected.pt")
    return path


def test_steps_of_three_processes_equal_those_of_one(folder: Path) -> None:
    index = json.loads((folder / "sharded" / "index.json").read_text())
    assert len(index["parts"]) == 3
    assert sum(b - a for part in index["parts"] for a, b in part["slices"]) == index["p"] == 92


def test_steps_of_two_processes_equal_those_of_one(tmp_path: Path) -> None:
    run(program.learn, 2, tmp_path)


def test_two_processes_continue_checkpoints_of_three_and_of_one(folder: Path) -> None:
    run(program.resume, 2, folder)


def test_all_processes_refuse_the_same_rows_and_files(tmp_path: Path) -> None:
    run(program.refuse, 2, tmp_path)


@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_one_process_continues_checkpoints_of_three(folder: Path, name: str) -> None:
    module, x, y = program.case("conv")
    net = op.nn.load(folder / name, module)
    assert net.rows_seen_ == 5
    expected = torch.load(folder / "expected.pt")
    assert program.gap(expected, net.test_then_train(x[5:], y[5:])) < 1e-12


def damage_index(text: str) -> str:
    index = json.loads(text)
    index["parts"][0]["slices"][0][1] += 1
    return json.dumps(index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage_index, "each weight once"),
        (lambda text: text[:-5], "index is invalid"),
        (lambda text: text.replace('"format": 1', '"format": 9'), "format version 1 or lower"),
        (lambda text: text.replace("part-1", "part-7"), "part-7"),
        (lambda _: None, "index.json"),
    ],
)
def test_damaged_checkpoints_are_named(
    folder: Path, tmp_path: Path, change: Callable[[str], str | None], message: str
) -> None:
    for file in (folder / "plain").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    changed = change((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").unlink()
    if changed is not None:
        (tmp_path / "index.json").write_text(changed)
    module = program.case("conv")[0]
    before = {name: each.clone() for name, each in module.state_dict().items()}
    with pytest.raises(CheckpointError, match=message):
        op.nn.load(tmp_path, module)
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
    with pytest.raises(MergeError, match="in one process"):
        split.merge(op.nn.ORFit(program.case("attention")[0], memory=6))
    one = op.nn.ORFit(program.case("attention")[0], memory=6)
    assert program.gap(one.test_then_train(x, y), split.test_then_train(x, y)) < 1e-12


@pytest.mark.parametrize("options", [{"by_layer": True}, {"memory": None, "noise": 1.0}])
def test_memories_that_cannot_be_split_are_refused(alone: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="split over processes"):
        op.nn.ORFit(torch.nn.Linear(2, 1), group=alone, **options)
