"""Modules whose layers and parameters have several names are restored exactly."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass_experiments import baselines
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")
nn = torch.nn

torch.manual_seed(0)
X = torch.randn(6, 3, dtype=torch.float64)
Y = X[:, 0].clone()
D = 3


class Stack(nn.Module):
    """Layers from a pool, in some order, with one name for each use or one for all."""

    def __init__(self, order: list[int], *, tied: bool, norm: bool, named: bool) -> None:
        super().__init__()
        pool = [nn.Linear(D, D) for _ in range(max(order) + 1)]
        if tied:
            pool[-1].weight = pool[0].weight
        self.layers = nn.ModuleList([pool[i] for i in order] if named else pool)
        self.order = list(range(len(order))) if named else order
        self.norm = nn.BatchNorm1d(D) if norm else nn.Identity()
        self.again = self.norm if named else None
        self.out = nn.Linear(D, 1)
        self.first = self.layers[0] if named else None

    def forward(self, x: Any) -> Any:
        for i in self.order:
            x = torch.tanh(self.layers[i](x))
        x = self.norm(x)
        return self.out(x if self.again is None else self.again(x))


def registered(module: Any) -> list[tuple[str, Any, type]]:
    """Every parameter and buffer, by all of its names."""
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return [(name, id(each), type(each)) for name, each in named]


def network(name: str, **settings: Any) -> Callable[[Any], None]:
    def use(module: Any) -> None:
        learner = getattr(op.nn, name)(module.eval(), **settings)
        learner.predict(X)
        learner.learn(X, Y).test_then_train(X[:2], Y[:2])
        copy.deepcopy(learner).learn(X, Y)
        learner.outputs(X)

    return use


def baseline(name: str, **settings: Any) -> Callable[[Any], None]:
    def use(module: Any) -> None:
        learner = getattr(baselines, name)(module, **settings)
        y = (Y > 0).long() * 0 if name == "ICaRL" else Y
        for _ in range(2):
            learner.learn(X, y).after_task()
        learner.predict(X)

    return use


def wrapper(name: str, **settings: Any) -> Callable[[Any], None]:
    def use(module: Any) -> None:
        inner = torch.optim.SGD(module.parameters(), lr=0.1)
        optimizer = getattr(op.nn.optim, name)(inner, module, **settings)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.mse_loss(module(X)[:, 0], Y).backward()
            optimizer.step()
            optimizer.after_task([(X, Y)])

    return use


def features(module: Any) -> None:
    feature = op.features.TorchFeatures(module).learn(X.numpy())
    feature.transform(X.numpy())


SQUARED = {"loss": "squared", "step_size": 0.01}
USES = {
    **{name: network(name) for name in ("EKF", "LoFi", "NTKRLS", "ORFit", "OneStepSGD", "OGD")},
    **{name: baseline(name, **SQUARED) for name in ("SGD", "EWC", "SI", "LwF", "Replay", "Joint")},
    "EWC passes": baseline("EWC", **SQUARED, epochs=2, batch=5, mode="online"),
    "ICaRL": baseline("ICaRL", step_size=0.01, epochs=1),
    "OrthogonalGradient": wrapper("OrthogonalGradient", gradients="outputs"),
    "GPM": wrapper("GPM", others="free"),
    "TorchFeatures": features,
}


def trained(module: Any) -> Any:
    """The state after a few steps of torch."""
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(module(X)[:, 0], Y).backward()
        optimizer.step()
    return module.state_dict()


orders = st.lists(st.integers(0, 2), min_size=2, max_size=4)


@pytest.mark.parametrize("use", sample(list(USES), 9, "module is restored"))
@given(order=orders, tied=st.booleans(), norm=st.booleans())
@settings(max_examples=3, print_blob=True)
def test_module_is_restored_and_trainable(
    use: str,
    order: list[int],
    tied: bool,  # noqa: FBT001
    norm: bool,  # noqa: FBT001
) -> None:
    torch.manual_seed(0)
    module = Stack(order, tied=tied, norm=norm, named=True).double()
    before, keys = registered(module), list(module.state_dict())
    USES[use](module)
    assert registered(module) == before
    assert list(module.state_dict()) == keys
    module.train()
    fresh = Stack(order, tied=tied, norm=norm, named=True).double()  # untouched, of these values
    fresh.load_state_dict(module.state_dict())
    for mine, theirs in zip(trained(module).values(), trained(fresh).values(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("use", sample([use for use in USES if use != "GPM"], 8, "names of layers"))
@given(order=orders, tied=st.booleans())
@settings(max_examples=2, print_blob=True)
def test_names_have_no_effect(
    use: str,
    order: list[int],
    tied: bool,  # noqa: FBT001
) -> None:
    """A layer used twice under two names learns as one used twice under one."""
    found = []
    for named in (True, False):
        torch.manual_seed(1)
        module = Stack(order, tied=tied, norm=False, named=named).double()
        USES[use](module)
        found.append(module(X).detach())
    assert torch.allclose(*found, rtol=1e-9, atol=1e-12)


def test_shared_module_is_saved_and_loaded(tmp_path: Path) -> None:
    def made() -> Any:
        return Stack([0, 0, 0], tied=False, norm=True, named=True).double().eval()

    learner = op.nn.ORFit(made(), memory=4).learn(X, Y)
    learner.save(tmp_path / "net.onepass")
    again = op.nn.load(tmp_path / "net.onepass", made())
    assert torch.equal(again.predict(X), learner.predict(X))
    assert torch.equal(again.learn(X, -Y).predict(X), learner.learn(X, -Y).predict(X))


def test_shared_layer_cannot_be_extended() -> None:
    layer = nn.Linear(4, 4)
    with raises(op.errors.ParameterError, argument="module"):
        baselines.DEN(nn.Sequential(layer, nn.ReLU(), layer))


def test_growing_module_keeps_parameters() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))
    before = registered(module)
    model = baselines.DEN(module, epochs=5, batch=2, loss_threshold=0.0, units=3)
    for k in (0, 2):
        model.learn(np.eye(2), [k, k + 1]).after_task()
    assert module[0].out_features > 3
    assert registered(module) == before
    module(torch.eye(2)).sum().backward()
