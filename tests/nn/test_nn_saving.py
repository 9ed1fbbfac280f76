"""Saved and loaded learners continue like ones that were never saved."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import CheckpointError
from onepass.serialization import archive
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")

MEMORIES = {
    "all": None,
    "principal": 6,
    "projected": op.memory.Principal(6, of="projected"),
    "sketch": op.memory.Sketch(6),
    "latest": op.memory.LastDirections(6),
    "random": op.memory.Random(6, seed=3),
    "nothing": op.memory.NoMemory(),
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"ORFit, {name}": ("ORFit", {"memory": spec}) for name, spec in MEMORIES.items()},
    "ORFit, noisy": ("ORFit", {"memory": 6, "noise": 0.3}),
    "ORFit, ridge": ("ORFit", {"memory": None, "noise": 0.3}),
    "ORFit, by layer": ("ORFit", {"memory": op.memory.Principal(3), "by_layer": True}),
    "ORFit, half": ("ORFit", {"memory": 6, "memory_dtype": torch.bfloat16}),
    "OneStepSGD": ("OneStepSGD", {"noise": 0.5}),
    "EKF": ("EKF", {"noise": 0.5, "process_noise": 0.01, "decay": 0.99}),
    "NTKRLS": ("NTKRLS", {"forgetting": 0.9}),
    "LoFi": ("LoFi", {"memory": 4, "process_noise": 0.01, "decay": 0.99}),
    "OGD": ("OGD", {"memory": 6, "step_size": 0.01, "batch": 1}),
    "OGD, drawn": ("OGD", {"memory": 6, "step_size": 0.01, "batch": 1, "per_task": 3}),
}


def module(seed: int = 0, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(seed)
    made = torch.nn.Sequential(
        torch.nn.Linear(3, 7), torch.nn.BatchNorm1d(7), torch.nn.Tanh(), torch.nn.Linear(7, 1)
    ).eval()
    made[1].running_mean.uniform_(-0.5, 0.5)
    return made.to(dtype)


def stream(n: int, seed: int = 1, dtype: Any = torch.float32) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 3, generator=generator).to(dtype)
    return X, torch.sin(X[:, 0]).to(dtype)


def flat(module: Any) -> Any:
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()])


@pytest.mark.parametrize("name", sample(list(KINDS), 6, "loaded learner continues"))
def test_loaded_learner_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    kind, arguments = KINDS[name]
    net = getattr(op.nn, kind)(module(), **arguments)
    X, y = stream(20)
    net.learn(X[:9], y[:9])
    net.save(tmp_path / "net.onepass")
    other = module(seed=9)
    again = op.nn.load(tmp_path / "net.onepass", other)
    assert type(again) is type(net)
    assert again.module is other
    assert repr(again) == repr(net)
    assert torch.equal(flat(other), flat(net.module))
    assert torch.equal(other[1].running_mean, net.module[1].running_mean)
    assert (again.rows_seen_, again.nbytes) == (net.rows_seen_, net.nbytes)
    predictions, twin = (each.test_then_train(X[9:], y[9:]) for each in (net, again))
    assert torch.equal(predictions, twin)
    assert torch.equal(flat(other), flat(net.module))
    for attribute in ("inconsistent_rows_", "forgetting_bound_", "rows_refused_"):
        assert getattr(again, attribute, None) == getattr(net, attribute, None)


def test_all_learners_are_covered() -> None:
    assert {kind for kind, _ in KINDS.values()} == set(op.nn.__all__) - {"load"}


def test_untrained_and_partially_trained_modules_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "net.onepass"
    X, y = stream(12)
    net = op.nn.ORFit(module(), memory=3, learns=["3", "0.bias"])
    net.save(path)
    again = op.nn.load(path, module(seed=5))
    assert torch.equal(net.learn(X, y).predict(X), again.learn(X, y).predict(X))
    X, y = stream(12, dtype=torch.bfloat16)
    half = op.nn.ORFit(module(dtype=torch.bfloat16), memory=3).learn(X[:6], y[:6])
    half.save(path)
    again = op.nn.load(path, module(seed=5, dtype=torch.bfloat16))
    assert torch.equal(half.learn(X, y).predict(X), again.learn(X, y).predict(X))


def test_mismatching_module_error_names_difference(tmp_path: Path) -> None:
    path = tmp_path / "net.onepass"
    X, y = stream(6)
    op.nn.ORFit(module(), memory=3, learns="last").learn(X, y).save(path)
    nn = torch.nn
    wrong: dict[str, Any] = {
        "'0.weight' as float32 of shape": nn.Sequential(nn.Linear(4, 7), *module()[1:]),
        "got float64 of shape": module(dtype=torch.float64),
        "'3.bias' as": nn.Sequential(*module()[:3], nn.Linear(7, 1, bias=False)),
        "'4.weight' as no such": nn.Sequential(*module(), nn.Linear(1, 1)),
        "'1.running_mean'": nn.Sequential(module()[0], nn.GroupNorm(1, 7), *module()[2:]),
    }
    for words, other in wrong.items():
        before = flat(other).clone()
        with pytest.raises(CheckpointError, match=words):
            op.nn.load(path, other)
        assert torch.equal(flat(other), before)
    frozen = module()
    frozen[3].bias.requires_grad_(requires_grad=False)
    with raises(CheckpointError, argument="module", got="('3.weight',)"):
        op.nn.load(path, frozen)


def test_other_file_kinds_name_their_loader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = tmp_path / "net.onepass", tmp_path / "model.onepass"
    net = op.nn.ORFit(module(), memory=op.memory.Sketch(3)).learn(*stream(6))
    net.save(path)
    with raises(CheckpointError, remedy="load(path, module)"):
        op.load(path)
    op.save(op.RLSRegressor(), model)
    with raises(CheckpointError, remedy="Use op.load"):
        op.nn.load(model, module())
    from onepass.cli import main

    main(["inspect", str(path), "--json"])
    info = json.loads(capsys.readouterr().out)
    assert info["class"] == "nn.ORFit"
    assert info["parameters"]["memory"] == {"class": "Sketch", "parameters": {"m": 3}}
    assert (info["rows_seen"], info["weights"]) == (6, flat(net.module).numel())
    assert info["forgetting_bound"]["kind"] == "estimate"


def rewritten(tree: Any, path: Path, change: Any) -> None:
    tree = copy.deepcopy(tree)
    change(tree)
    archive.write(path, tree, kind="network")


def test_damaged_files_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.onepass"
    net = op.nn.ORFit(module(), memory=3).learn(*stream(6))
    net.save(path)
    tree = archive.contents(path).tree
    other = module(seed=4)
    before = flat(other).clone()
    changes: list[Any] = [
        lambda t: t.update(learner="Tensor"),
        lambda t: t.update(learner="load"),
        lambda t: t.pop("names"),
        lambda t: t["arguments"].update(memory={"@": "Popen"}),
        lambda t: t["arguments"].update(noise="much"),
        lambda t: t["arguments"].update(steps=3),
        lambda t: t["learned"].pop("memory"),
        lambda t: t["learned"]["memory"].update({"@": "RLSRegressor"}),
        lambda t: t["learned"]["memory"]["subspace"]["B"].update(rows=np.zeros((2, 5))),
        lambda t: t["learned"]["memory"]["subspace"].update(K=np.zeros((9, 9))),
        lambda t: t["module"]["weights"]["0.weight"].update(dtype="float64"),
        lambda t: t["module"]["weights"].update({"0.weight": 3}),
        lambda t: t["module"].update(buffers=[]),
    ]
    for change in changes:
        rewritten(tree, path, change)
        with pytest.raises(CheckpointError):
            op.nn.load(path, other)
        assert torch.equal(flat(other), before)


def test_custom_learners_are_refused(tmp_path: Path) -> None:
    class Mine(op.nn.ORFit):
        pass

    with raises(CheckpointError, remedy="Save custom classes with"):
        Mine(module(), memory=2).save(tmp_path / "mine.onepass")


def test_load_overrides_memory_device(tmp_path: Path) -> None:
    path = tmp_path / "net.onepass"
    op.nn.ORFit(module(), memory=3).learn(*stream(4)).save(path)
    assert op.nn.load(path, module(), memory_device="cpu").memory_device == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device beside the CPU")
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_memory_on_another_device_is_saved_and_merged(tmp_path: Path, noise: float) -> None:
    predictions, (X, y) = [], stream(12)
    for place in (None, "cuda"):
        arguments = {"memory": 4, "noise": noise, "memory_device": place}
        one = op.nn.ORFit(module(), **arguments).learn(X[:6], y[:6])
        one.save(tmp_path / "net.onepass")
        again = op.nn.load(tmp_path / "net.onepass", module(seed=5))
        two = op.nn.ORFit(module(), **arguments).learn(X[6:], y[6:])
        predictions.append(two.merge(again).predict(X))
    torch.testing.assert_close(predictions[1], predictions[0], rtol=1e-3, atol=1e-4)
