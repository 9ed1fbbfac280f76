"""OrthogonalGradient with torch optimizers preserves past outputs."""

import copy
import io
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from test_nn_ogd import digits_network, flat, network, permuted_digits, stream

import onepass as op
from onepass import linalg
from onepass.errors import (
    CheckpointError,
    LabelError,
    MemoryFullWarning,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from raising import raises

torch = pytest.importorskip("torch")
optim = op.nn.optim

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "decay": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.5),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


def train(optimizer: Any, module: Any, X: Any, y: Any, steps: int = 1) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(X), y).backward()
        optimizer.step()


def wrapped(module: Any, make: str = "SGD", **given: Any) -> Any:
    return optim.OrthogonalGradient(OPTIMIZERS[make](module.parameters()), module, **given)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("memory", [None, 60])
def test_linear_model_preserves_past_outputs(name: str, memory: int | None) -> None:
    module = torch.nn.Linear(20, 3).double()
    X, y = stream(6, d=20)
    optimizer = wrapped(module, name, memory=memory, gradients="outputs")
    train(optimizer, module, X, y, 5)
    outputs = optimizer.after_task((X, y)) and module(X).detach()
    new, labels = stream(30, d=20, seed=4)
    before = module(new).detach()
    train(optimizer, module, new, labels, 40)
    torch.testing.assert_close(module(X), outputs, rtol=0.0, atol=1e-12)
    assert (module(new) - before).abs().max() > 0.1


def test_float32_preserves_outputs_to_rounding() -> None:
    module = torch.nn.Linear(50, 3)
    X, y = (each.float() if each.is_floating_point() else each for each in stream(10, d=50))
    optimizer = wrapped(module, "Adam", gradients="outputs").after_task((X, y))
    outputs = module(X).detach()
    train(optimizer, module, torch.randn(20, 50, generator=torch.Generator()), y.repeat(2), 100)
    torch.testing.assert_close(module(X), outputs, rtol=0.0, atol=1e-4)


def test_step_is_orthogonal_to_stored_gradients() -> None:
    module, (X, y) = network(), stream(4)
    optimizer = wrapped(module, "AdamW").after_task((X, y))
    stored = []
    for x, label in zip(X, y, strict=True):
        found = torch.autograd.grad(module(x[None])[0, label], list(module.parameters()))
        stored.append(torch.cat([each.reshape(-1) for each in found]))
    before = flat(module)
    train(optimizer, module, *stream(9, seed=2))
    moved = flat(module) - before
    assert moved.norm() > 0.1
    assert (torch.stack(stored) @ moved).abs().max() < 1e-12


def test_equals_inner_optimizer_in_first_task() -> None:
    module, plain = network(), network()
    optimizer, inner = wrapped(module, "AdamW"), OPTIMIZERS["AdamW"](plain.parameters())
    for each, of in ((optimizer, module), (inner, plain)):
        train(each, of, *stream(9), 5)
    assert torch.equal(flat(module), flat(plain))


def test_unprojected_heads_are_free() -> None:
    class TwoHeads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(20, 5)
            self.heads = torch.nn.ModuleList([torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)])
            self.task = 0

        def forward(self, x: Any) -> Any:
            return self.heads[self.task](self.body(x))

    module = TwoHeads().double()
    optimizer = wrapped(module, "decay", projects="body", gradients="outputs")
    X, y = stream(4, d=20)
    optimizer.after_task((X, y))
    outputs, module.task = module(X).detach(), 1
    head = [each.detach().clone() for each in module.heads[0].parameters()]
    train(optimizer, module, *stream(30, d=20, seed=1), 20)
    assert not torch.equal(module.heads[1].weight, head[0])
    module.task = 0
    torch.testing.assert_close(module(X), outputs, rtol=0.0, atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(head, module.heads[0].parameters(), strict=True))


@pytest.mark.parametrize("kind", ["OGD", "GPM"])
def test_forgets_less_on_permuted_digits(kind: str) -> None:
    tasks, accuracies = permuted_digits(3), {}
    for name in (kind, "plain"):
        module = digits_network(40, 10)
        optimizer: Any = torch.optim.Adam(module.parameters(), lr=1e-2)
        if name == "OGD":
            optimizer = optim.OrthogonalGradient(optimizer, module, per_task=100)
        elif name == "GPM":
            optimizer = optim.GPM(optimizer, module, 0.95)
        for X, y, *_ in tasks:
            loader = torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(X, y), batch_size=64
            )
            for _ in range(2):
                for rows, labels in loader:
                    train(optimizer, module, rows, labels)
            if name != "plain":
                optimizer.after_task(loader)
        _, _, X, y = tasks[0]
        accuracies[name] = float((module(X).argmax(1) == y).float().mean())
    assert accuracies[kind] > accuracies["plain"] + 0.15


# -- optimizer interface --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "memory", [None, 6, op.memory.Principal(6, of="projected"), op.memory.LastDirections(5),
               op.memory.Random(5), op.memory.NoMemory()]
)  # fmt: skip
@pytest.mark.parametrize("name", ["momentum", "AdamW"])
def test_state_dict_continues_bit_for_bit(name: str, memory: Any) -> None:
    def steps(optimizer: Any, module: Any) -> Any:
        train(optimizer, module, *stream(9, seed=2), 3)
        optimizer.after_task(stream(9, seed=3))
        train(optimizer, module, *stream(9, seed=4), 3)
        return flat(module)

    module = network()
    optimizer = wrapped(module, name, memory=memory, per_task=4)
    train(optimizer, module, *stream(9), 3)
    optimizer.after_task(stream(9, seed=1))
    file = io.BytesIO()
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    expected = steps(optimizer, module)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = network()
    other.load_state_dict(saved["model"])
    again = wrapped(other, name, memory=memory, per_task=4)
    again.load_state_dict(saved["optimizer"])
    assert again.tasks_ == 1
    assert torch.equal(steps(again, other), expected)


def test_state_dict_is_a_snapshot() -> None:
    module = network()
    optimizer = wrapped(module, memory=3).after_task(stream(9))
    saved = optimizer.state_dict()
    rows = saved["onepass"]["memory"]["tensors"]["subspace.B.rows.of"].clone()
    optimizer.after_task(stream(9, seed=1))
    assert torch.equal(saved["onepass"]["memory"]["tensors"]["subspace.B.rows.of"], rows)


def test_schedulers_scalers_closures_and_groups() -> None:
    module = network()
    optimizer = wrapped(module).after_task(stream(3))
    assert isinstance(optimizer, torch.optim.Optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train(optimizer, module, *stream(9))
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == optimizer.optimizer.param_groups[0]["lr"] == 0.05
    torch.optim.lr_scheduler.OneCycleLR(wrapped(module, "momentum"), max_lr=0.1, total_steps=9)

    X, y = stream(9)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(X), y)
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0

    scaler, before = torch.amp.GradScaler("cpu"), flat(module)
    optimizer.zero_grad()
    scaler.scale(torch.nn.functional.cross_entropy(module(X), y)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(flat(module), before)
    assert "OrthogonalGradient" in repr(optimizer)
    called = []
    optimizer.register_step_post_hook(lambda *_: called.append(1))
    train(optimizer, module, X, y)
    assert called == [1]


def test_frozen_parameters_do_not_change() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(20, 4), torch.nn.Linear(4, 3)).double()
    module[0].bias.requires_grad_(False)  # noqa: FBT003
    optimizer = wrapped(module, "decay", gradients="outputs")
    X, y = stream(3, d=20)
    optimizer.after_task((X, y))
    module[1].requires_grad_(False)  # noqa: FBT003
    before = [each.detach().clone() for each in module.parameters()]
    outputs = module(X).detach()
    optimizer.zero_grad()
    train(optimizer, module, *stream(30, d=20, seed=1), 10)
    after = list(module.parameters())
    assert not torch.equal(after[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(after[1:], before[1:], strict=True))
    torch.testing.assert_close(module(X), outputs, rtol=0.0, atol=1e-12)


def test_added_groups_are_free_and_foreign_ones_refused() -> None:
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(5, 3), "b": torch.nn.Linear(5, 3)})
    body = torch.nn.Sequential(torch.nn.Linear(4, 5))
    whole = torch.nn.Sequential(body, module["a"])
    optimizer = wrapped(whole)
    whole.append(torch.nn.Linear(3, 3))
    with raises(ParameterError, got="one of shape (3, 5) that is not the module's"):
        optimizer.add_param_group({"params": module["b"].parameters()})
    optimizer.add_param_group({"params": whole[2].parameters(), "lr": 0.5})
    assert len(optimizer.param_groups) == len(optimizer.optimizer.param_groups) == 2
    optimizer.after_task((torch.ones(2, 4), torch.zeros(2, dtype=torch.int64)))
    whole.append(torch.nn.Linear(3, 3))
    optimizer.add_param_group({"params": whole[3].parameters()})
    weight = whole[3].weight.detach().clone()
    train(optimizer, whole, torch.ones(2, 4), torch.zeros(2, dtype=torch.int64))
    assert not torch.equal(whole[3].weight, weight)


def test_module_is_not_changed() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 3)
    ).double()
    optimizer = wrapped(module)
    train(optimizer, module, *stream(9))
    state = copy.deepcopy(module.state_dict())
    grads = [each.grad.clone() for each in module.parameters()]
    optimizer.after_task(stream(9))
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in state.items())
    assert all(part.training for part in module.modules())
    assert all(torch.equal(g, p.grad) for g, p in zip(grads, module.parameters(), strict=True))


def test_loader_types_are_equivalent() -> None:
    X, y = stream(10)
    pairs = torch.utils.data.TensorDataset(X, y)
    loaders: list[Any] = [
        (X, y), [(X, y)], [(X[:4], y[:4]), [X[4:], y[4:]]], (X.numpy(), y.numpy()),
        torch.utils.data.DataLoader(pairs, batch_size=3), iter([(X[:1], y[:1]), (X[1:], y[1:])]),
    ]  # fmt: skip
    found = [wrapped(network(), per_task=6).after_task(each).memory_.Q for each in loaders]
    assert all(torch.equal(each, found[0]) for each in found)
    assert found[0].shape[1] == 6
    every = wrapped(network(), per_task=None).after_task([(X[:4], y[:4]), (X[4:], y[4:])])
    assert every.memory_.rank == 10


# -- errors ---------------------------------------------------------------------------------------


def test_invalid_arguments() -> None:
    module, other = network(), network()
    sgd = OPTIMIZERS["SGD"](module.parameters())
    wrap = optim.OrthogonalGradient
    with raises(TypeMismatchError, argument="optimizer"):
        wrap(module, sgd)
    with raises(TypeMismatchError, argument="module"):
        wrap(sgd, None)
    with raises(ParameterError, got="one of shape (7, 4) that is not the module's"):
        wrap(sgd, other)
    with raises(ParameterError, argument="optimizer", got="LBFGS"):
        wrap(torch.optim.LBFGS(module.parameters()), module)
    with raises(ParameterError, argument="optimizer", remedy="Wrap its `optimizer`"):
        wrap(wrap(sgd, module), module)
    with raises(ParameterError, argument="projects"):
        wrap(sgd, module, projects="head")
    with raises(ParameterError, argument="projects", got="'2', which selects no parameter"):
        wrap(OPTIMIZERS["SGD"](module[0].parameters()), module, projects="2")
    for given in ({"gradients": "loss"}, {"per_task": 0}, {"seed": -1}, {"memory": "all"}):
        with raises(ParameterError, argument=next(iter(given))):
            wrap(sgd, module, **given)
    with raises(TypeMismatchError, remedy="state_dict"):
        copy.deepcopy(wrap(sgd, module))


@pytest.mark.parametrize("per_task", [5, None])
def test_invalid_loaders_change_nothing(per_task: int | None) -> None:
    X, y = stream(6)
    module = network()
    optimizer = wrapped(module, memory=4, per_task=per_task).after_task((X, y))
    saved = copy.deepcopy(optimizer.state_dict())
    wrong: list[tuple[Any, type[OnepassError], str, str, str]] = [
        ([], ParameterError, "loader", "none", ""),
        (X, TypeMismatchError, "loader", "Tensor", "DataLoader"),
        (7, TypeMismatchError, "loader", "int", "DataLoader"),
        ([(X, y), (X, y + 7)], LabelError, "y", "9", ""),
        ([(X, y), (X, y.double())], TypeMismatchError, "y", "torch.float64", "gradients='outputs'"),
        ([(X, y), X], ShapeError, "loader", "x only", ""),
        ([(X, X, y)], ShapeError, "loader", "3 parts", "(x1, x2)"),
        ([(X, y), (X * torch.nan, y)], NotFiniteError, "x", "nan", ""),
        ([(X[:, :2], y)], ShapeError, "", "float64 (6, 2)", ""),
        (torch.utils.data.TensorDataset(X, y), ShapeError, "loader", "a single row", "DataLoader"),
    ]
    for loader, error, argument, got, remedy in wrong:
        with raises(error, argument=argument, got=got, remedy=remedy):
            optimizer.after_task(loader)
        assert optimizer.tasks_ == 1
        now, then = (each["onepass"]["memory"] for each in (optimizer.state_dict(), saved))
        assert now["tree"] == then["tree"]
        assert all(
            torch.equal(each, then["tensors"][name]) for name, each in now["tensors"].items()
        )


def test_logit_for_one_output_is_refused() -> None:
    module = network(c=1)
    with raises(ParameterError, argument="gradients"):
        wrapped(module).after_task(stream(3, c=1))


def test_full_memory_warns() -> None:
    module = torch.nn.Linear(2, 2, bias=False).double()
    with pytest.warns(MemoryFullWarning, match="all 4"):
        wrapped(module, gradients="outputs").after_task((stream(5, d=2)[0], None))


def test_foreign_states_change_nothing() -> None:
    module = network()
    optimizer = wrapped(module, "momentum").after_task(stream(3))
    train(optimizer, module, *stream(3))
    with raises(CheckpointError, got="that of a plain optimizer"):
        optimizer.load_state_dict(optimizer.optimizer.state_dict())
    gpm = optim.GPM(OPTIMIZERS["SGD"](module.parameters()), module)
    with raises(CheckpointError, got="that of GPM"):
        optimizer.load_state_dict(gpm.state_dict())
    part = wrapped(module, projects="0")
    with raises(CheckpointError, got="another: the state must be for the parameters"):
        optimizer.load_state_dict(part.state_dict())
    wide = wrapped(network(hidden=9)).after_task(stream(3))
    with raises(CheckpointError, got="another: the memory must be of 59 weights"):
        optimizer.load_state_dict(wide.state_dict())
    for key in ("memory", "names", "tasks"):
        damaged = optimizer.state_dict()
        del damaged["onepass"][key]
        with raises(CheckpointError, got=f"another: {key!r}"):
            optimizer.load_state_dict(damaged)
    damaged = optimizer.state_dict()
    damaged["onepass"]["memory"]["tree"]["@"] = "System"
    with raises(CheckpointError, where=".load_state_dict", remedy="unexpected class 'System'"):
        optimizer.load_state_dict(damaged)
    assert optimizer.memory_.rank == 3


def test_failing_optimizer_restores_weights() -> None:
    module = network()
    optimizer = wrapped(module).after_task(stream(3))
    before = flat(module)

    def failing() -> Any:
        with torch.no_grad():
            module[0].weight.add_(1.0)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        optimizer.step(failing)
    assert torch.equal(flat(module), before)


def test_public_names_are_listed() -> None:
    assert {"GPM", "OrthogonalGradient"} <= set(dir(optim))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = optim.nonsense


@pytest.mark.parametrize("kind", ["OGD", "OGD-principal", "GPM"])
@pytest.mark.parametrize("masked", [False, True])
def test_projection_does_not_synchronise(
    kind: str,
    masked: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, (X, y) = network().float(), stream(9)
    X = X.float()
    if masked:  # the path that a device takes
        for place in ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors"):
            monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
    inner = OPTIMIZERS["SGD"](module.parameters())
    if kind == "GPM":
        optimizer = optim.GPM(inner, module)
    else:
        memory = 4 if kind == "OGD-principal" else None
        optimizer = optim.OrthogonalGradient(inner, module, memory)
    optimizer.after_task((X, y))
    held = optimizer._corrected_parameters()
    before = [each.detach().clone() for each in held]
    train(inner, module, X, y)
    moved = [each.detach().clone() for each in held]

    def on_device(*_: Any, **__: Any) -> Any:
        raise AssertionError("a device was waited for")

    names = ("item", "tolist", "cpu", "__bool__", "__float__", "__int__", "nonzero")
    names += ("numpy",) if masked else ()
    with monkeypatch.context() as forbidden, torch.no_grad():
        for name in names:
            forbidden.setattr(torch.Tensor, name, on_device)
        optimizer._correct(held, before)
    assert not all(torch.equal(*pair) for pair in zip(moved, held, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", ["OGD", "GPM"])
def test_step_does_not_synchronise_on_cuda(kind: str) -> None:
    module, (X, y) = network(d=30, hidden=30).cuda(), stream(6, d=30)
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer = (
        optim.GPM(inner, module, 1.0)
        if kind == "GPM"
        else optim.OrthogonalGradient(inner, module, gradients="outputs", projects=["2"])
    )
    optimizer.after_task((X, y))  # from the host, as loaders are
    X, y = X.cuda(), y.cuda()
    train(optimizer, module, X, y)
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(optimizer, module, X, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(each.device.type == "cuda" for each in module.parameters())


def test_failing_module_leaves_memory_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = torch.nn.Linear(4, 3)
    optimizer = optim.OrthogonalGradient(
        torch.optim.SGD(module.parameters(), lr=0.1), module, memory=3, per_task=200
    )
    X, y = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 3
    optimizer.after_task((X, y))
    orthogonal = import_module("onepass.nn.optim.orthogonal")
    before, asked, given = (
        optimizer.memory_.subspace.U.clone(),
        iter(range(150)),
        orthogonal.row_gradients,
    )

    def raising(*rows: Any) -> Any:
        if next(asked, None) is None:
            raise RuntimeError("the module raised")
        return given(*rows)

    monkeypatch.setattr(orthogonal, "row_gradients", raising)
    with pytest.raises(RuntimeError, match="the module raised"):
        optimizer.after_task((X * torch.tensor([1.0, 9.0, 0.1, 5.0]), y))
    assert torch.equal(optimizer.memory_.subspace.U, before)
    assert optimizer.tasks_ == 1
