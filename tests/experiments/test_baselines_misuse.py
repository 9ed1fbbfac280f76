"""Misuse of baselines: it raises an error or has no effect."""

from typing import Any

import pytest

from onepass.errors import NumericalError, TypeMismatchError
from onepass_experiments import baselines
from raising import raises

torch = pytest.importorskip("torch")

each_kind = pytest.mark.parametrize("kind", ["SGD", "EWC", "SI", "LwF", "Replay", "Joint"])


def stream() -> tuple[Any, Any]:
    X = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    return X, torch.sin(X[:, 0])


def network(*between: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8), *between, torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )


def flat(module: Any) -> Any:
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()])


@each_kind
def test_learning_is_the_same_in_inference_mode(kind: str) -> None:
    X, y = stream()
    plain, held = (
        getattr(baselines, kind)(network(), loss="squared", step_size=0.1) for _ in range(2)
    )
    plain.learn(X, y).after_task().learn(X, y).after_task()
    with torch.inference_mode():
        held.learn(X * 1.0, y * 1.0).after_task()
    held.learn(X, y).after_task()
    assert torch.equal(flat(held.module), flat(plain.module))
    assert not torch.equal(flat(held.module), flat(network()))


@pytest.mark.parametrize("kind", ["SGD", "Replay", "Joint"])
def test_overflowing_running_statistics_are_not_applied(kind: str) -> None:
    X, y = stream()
    model = getattr(baselines, kind)(
        network(torch.nn.BatchNorm1d(8)), loss="squared", step_size=0.01
    )
    model.learn(X, y).after_task()
    before = [each.clone() for each in model.module.buffers()]
    with pytest.raises(NumericalError, match="running_var"):
        model.learn(1e25 * X, y).after_task()
    for each, was in zip(model.module.buffers(), before, strict=True):
        assert torch.equal(each, was)


@each_kind
def test_buffer_of_minus_infinity_is_accepted(kind: str) -> None:
    X, y = stream()
    module = network()
    module.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
    model = getattr(baselines, kind)(module, loss="squared", step_size=0.01)
    assert model.learn(X, y).rows_seen_ == 16


@each_kind
def test_classes_given_as_numbers_are_not_rounded_in_half_precision(kind: str) -> None:
    module = torch.nn.Linear(3, 600).bfloat16()
    torch.nn.init.zeros_(module.bias)
    model = getattr(baselines, kind)(module, step_size=1.0)
    model.learn(stream()[0][:2], torch.tensor([257.0, 513.0])).after_task()
    assert sorted(module.bias.topk(2).indices.tolist()) == [257, 513]


def test_replay_accepts_integer_dtypes_of_classes_and_rejects_another_dtype_of_rows() -> None:
    X, y = stream()
    model = baselines.Replay(torch.nn.Linear(3, 2), capacity=8)
    classes = (y > 0.0).long()
    model.learn(X, classes).learn(X, classes.to(torch.uint8)).learn(X, classes.float())
    assert model.rows_seen_ == 48
    model.module.double()
    with raises(TypeMismatchError, argument="x", got="float64"):
        model.learn(X, classes)
    assert model.rows_seen_ == 48
