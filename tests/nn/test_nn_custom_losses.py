"""Losses of the user, data loaders, and the warning about predictions worse than trivial ones."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import onepass as op
from onepass.errors import (
    ParameterError,
    TaskWarning,
    TypeMismatchError,
    WorseThanTrivialWarning,
)
from onepass.nn.losses import LOSSES
from onepass_experiments import baselines
from raising import raises

N = 60


def rows(c: int = 1) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    w = torch.randn(3, c, generator=generator, dtype=torch.float64)
    return X, X @ w + 0.1 * torch.randn(N, c, generator=generator, dtype=torch.float64)


def net(c: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, c)).double()


def half_squared(f: Any, y: Any) -> Any:
    return 0.5 * (f - y).square().sum()


def half_squared_indicators(f: Any, y: Any) -> Any:
    return half_squared(f, nn.functional.one_hot(y, f.shape[1]))


SAME = {
    "squared": half_squared,
    "one_hot": half_squared_indicators,
    "cross_entropy": nn.CrossEntropyLoss(),
}
KINDS = {
    "orfit": lambda module, **more: op.nn.ORFit(module, 6, **more),
    "exact": lambda module, **more: op.nn.ORFit(module, None, **more),
    "ekf": op.nn.EKF,
    "lofi": lambda module, **more: op.nn.LoFi(module, 6, **more),
    "ntk": op.nn.NTKRLS,
    "one step": op.nn.OneStepSGD,
    "ogd": lambda module, **more: op.nn.OGD(
        module, op.memory.NoMemory(), gradients="outputs", **more
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_callables_equal_the_losses_by_name(kind: str, name: Any) -> None:
    X, Y = (each[:20] for each in rows(4))
    y = Y if name == "squared" else Y.argmax(dim=1)
    noise = {} if kind in {"ntk", "ogd"} else {"noise": 0.1}
    given = [KINDS[kind](net(4), loss=loss, **noise) for loss in (SAME[name], name)]
    for k in range(20):
        ours, named = (each.learn(X[k : k + 1], y[k : k + 1]) for each in given)
        torch.testing.assert_close(ours.outputs(X), named.outputs(X), rtol=1e-6, atol=1e-6)
    assert ours.predict(X).shape == y.shape


@pytest.mark.parametrize("noise", [0.01, 1.0])
@pytest.mark.parametrize("kind", ["orfit", "ekf", "lofi", "one step"])
@pytest.mark.parametrize("order", ["mixed", "sorted"])
def test_outputs_of_classes_are_bounded_for_any_noise(kind: str, noise: float, order: str) -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(5, (100,), generator=generator)
    y = y.sort().values if order == "sorted" else y
    X = torch.randn(100, 3, generator=generator) + y[:, None]
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 5))
    learner = KINDS[kind](module, loss="cross_entropy", noise=noise).learn(X, y)
    assert float(learner.outputs(X).abs().max()) < 1e3
    assert not learner.rows_refused_


def test_huber_loss_bounds_the_effect_of_an_outlier() -> None:
    X, y = rows()
    clean = op.nn.EKF(net(), loss=nn.HuberLoss()).learn(X, y).predict(X)
    y[30] = 1e4
    robust = op.nn.EKF(net(), loss=nn.HuberLoss()).learn(X, y).predict(X)
    assert float((robust - clean).abs().max()) < 1.5


@pytest.mark.parametrize(
    ("loss", "fields"),
    [
        (nn.L1Loss(), {"argument": "loss", "remedy": "Use a smooth convex"}),
        (
            lambda f, y: -(f - y).square().sum(),
            {"argument": "loss", "remedy": "Use a smooth convex"},
        ),
        (lambda f, y: f @ y, {"argument": "loss", "remedy": "Pass a module such"}),
        (
            lambda f, y: (f - y).detach().numpy().sum(),
            {"argument": "loss", "remedy": "Pass a module such"},
        ),
    ],
)
def test_unsuitable_losses_are_refused(loss: Any, fields: dict[str, Any]) -> None:
    module = net(2)
    before = [p.clone() for p in module.parameters()]
    with raises(ParameterError, **fields):
        op.nn.EKF(module, loss=loss).learn(*rows(2))
    assert all(bool((a == b).all()) for a, b in zip(before, module.parameters(), strict=True))
    with raises(ParameterError, argument="noise"):
        op.nn.ORFit(net(), 10, loss=nn.HuberLoss())


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(*rows(), strict=True))


def test_loaders_and_datasets_are_learned_in_one_pass() -> None:
    X, y = rows()
    expected = op.nn.EKF(net()).learn(X, y).predict(X)
    data = TensorDataset(X, y)
    for source in (data, DataLoader(data, batch_size=7), Endless()):
        learner = op.nn.EKF(net())
        assert learner.learn(source) is learner
        assert learner.rows_seen_ == N
        torch.testing.assert_close(learner.predict(X), expected)
    module = net()
    plain = baselines.SGD(net(), loss="squared", step_size=0.1)
    for i in range(0, N, 7):
        plain.learn(X[i : i + 7], y[i : i + 7])
    loader = DataLoader(data, batch_size=7)
    baselines.SGD(module, loss="squared", step_size=0.1).learn(loader)
    torch.testing.assert_close(module(X), plain.module(X))


def test_other_batches_and_missing_targets_are_refused() -> None:
    X, y = rows()
    with raises(TypeMismatchError, remedy="Let the Dataset return"):
        op.nn.EKF(net()).learn(DataLoader(TensorDataset(X)))
    with raises(TypeMismatchError, argument="sample_weight"):
        op.nn.EKF(net()).learn(DataLoader(TensorDataset(X, y)), None, np.ones(N))
    for given in ((X,), (TensorDataset(X, y), y)):
        with raises(TypeMismatchError, argument="y"):
            op.nn.EKF(net()).learn(*given)


@pytest.mark.parametrize("classes", [False, True])
def test_predictions_worse_than_trivial_ones_warn_once(*, classes: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3)).astype(np.float32)
    y: Any = rng.integers(0, 2, 700) if classes else rng.normal(size=700)
    y = np.where(np.arange(700) % 3, 1, y) if classes else y
    torch.manual_seed(0)
    learner = op.nn.OneStepSGD(
        nn.Linear(3, 2 if classes else 1), loss="one_hot" if classes else "squared"
    )
    with pytest.warns(WorseThanTrivialWarning, match="noise > 0"):
        learner.learn(X[:350], y[:350])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.learn(X[350:], y[350:])


def test_ogd_learns_with_its_defaults_in_any_units() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=900)
    for scale in (1.0, 1e3):
        module = nn.Linear(3, 1).double()
        found = op.nn.OGD(module, op.memory.NoMemory()).test_then_train(X, scale * y)
        assert float((found[300:].numpy() - scale * y[300:]).std()) < 0.3 * scale * y.std()


FORGETS = {
    "ORFit": lambda module: op.nn.ORFit(module, 10, 1.0, loss="one_hot"),
    "ORFit of the last layer": lambda module: op.nn.ORFit(
        module, 10, 1.0, loss="one_hot", learns=["2.*"]
    ),
    "LoFi": lambda module: op.nn.LoFi(module, 10, loss="one_hot"),
    "OGD": lambda module: op.nn.OGD(module, 10, loss="one_hot"),
    "callable": lambda module: op.nn.EKF(module, loss=nn.CrossEntropyLoss()),
}


def task_warnings(learner: Any, X: Any, y: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(0, len(X), 40):
            learner.learn(X[i : i + 40], y[i : i + 40])
    return [str(each.message) for each in caught if each.category is TaskWarning]


@pytest.mark.parametrize("kind", FORGETS)
@pytest.mark.parametrize(("classes", "rows_each"), [(4, 70), (10, 40), (30, 12)])
def test_classes_that_come_one_after_the_other_warn_once(
    kind: str, classes: int, rows_each: int
) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), rows_each)
    X = (rng.normal(size=(len(y), 3)) + y[:, None]).astype(np.float32)
    for shuffled in (True, False):
        order = rng.permutation(len(y)) if shuffled else np.arange(len(y))
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, classes))
        found = task_warnings(FORGETS[kind](module), X[order], y[order])
        assert len(found) == (not shuffled)
        assert all("learns='last'" in each and "wide last layer" in each for each in found)


def test_a_head_with_all_directions_does_not_warn() -> None:
    y = np.repeat(np.arange(4), 70)
    X = (np.random.default_rng(0).normal(size=(280, 3)) + y[:, None]).astype(np.float32)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
    assert not task_warnings(op.nn.ORFit(module, loss="one_hot", learns="last"), X, y)


def test_rare_classes_of_a_shuffled_stream_do_not_warn() -> None:
    rng = np.random.default_rng(0)
    y = np.minimum(rng.geometric(0.05, 600) - 1, 49)
    X = rng.normal(size=(600, 8)).astype(np.float32)
    assert not task_warnings(op.nn.LoFi(nn.Linear(8, 50), 2, loss="one_hot"), X, y)
