"""Methods and steps common to all baselines, compared with torch's optimizer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from onepass.errors import (
    LabelError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass_experiments import baselines
from raising import raises

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

EVERY = ("SGD", "EWC", "SI", "LwF", "Replay", "AGEM", "DERPP", "Joint")
each = pytest.mark.parametrize("name", EVERY)


def net(c: int = 3, *, norm: bool = False, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(5)] if norm else []
    return nn.Sequential(nn.Linear(4, 5), *middle, nn.Tanh(), nn.Linear(5, c)).to(dtype)


def batches(k: int, n: int = 6, seed: int = 0) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n)) for _ in range(k)]


def made(name: str, module: Any, **settings: Any) -> Any:
    return getattr(baselines, name)(module, **settings)


def state(model: Any) -> list[Any]:
    held = [t.clone() for t in model.module.state_dict().values()]
    return held + [t.clone() for t in model._stored()] + [model.rows_seen_]


def same(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(
        bool((a == b).all()) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(before, after, strict=True)
    )


# -- the step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("norm", [False, True])
def test_sgd_equals_torch_sgd(momentum: float, *, norm: bool) -> None:
    ours, theirs = net(norm=norm), net(norm=norm)
    model = baselines.SGD(ours, step_size=0.1, momentum=momentum)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum)
    for x, y in batches(7):
        model.learn(x, y)
        optimizer.zero_grad()
        functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    assert model.rows_seen_ == 42
    p = sum(w.numel() for w in ours.parameters())
    assert model.nbytes == (4 * p if momentum else 0)


def test_squared_loss_is_half_the_squared_error() -> None:
    ours, theirs = net(2, dtype=torch.float64), net(2, dtype=torch.float64)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    baselines.SGD(ours, loss="squared", step_size=0.1).learn(x, y)
    error = theirs(torch.tensor(x)) - torch.tensor(y)
    (0.5 * error.square().sum() / 5).backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.1 * b.grad)


def test_column_of_targets_fits_one_output() -> None:
    x = np.ones((3, 4), dtype=np.float32)
    flat, column = net(1), net(1)
    baselines.SGD(flat, loss="squared", step_size=0.01).learn(x, [1.0, 2.0, 3.0])
    baselines.SGD(column, loss="squared", step_size=0.01).learn(x, [[1.0], [2.0], [3.0]])
    assert same([w.data for w in flat.parameters()], [w.data for w in column.parameters()])


@each
def test_frozen_parts_modes_and_gradients_are_unchanged(name: str) -> None:
    module = net(norm=True)
    module[0].weight.requires_grad = False
    module[1].eval()
    module[3].bias.grad = torch.ones(3)
    frozen, statistics = module[0].weight.clone(), module[1].running_mean.clone()
    model = made(name, module)
    for x, y in batches(3):
        model.learn(x, y)
    model.after_task().predict(batches(1)[0][0])
    assert bool((module[0].weight == frozen).all())
    assert not module[0].weight.requires_grad
    assert bool((module[1].running_mean == statistics).all())
    assert [part.training for part in module.modules()] == [True, True, False, True, True]
    assert bool((module[3].bias.grad == 1).all())
    assert module[3].weight.grad is None
    assert all(not w.is_inference() for w in module.parameters())


@each
def test_learning_works_under_no_grad(name: str) -> None:
    ours, theirs = net(), net()
    (x, y), *_ = batches(1)
    with torch.no_grad():
        made(name, ours, step_size=0.1).learn(x, y).after_task()
    made(name, theirs, step_size=0.1).learn(x, y).after_task()
    assert same([w.data for w in ours.parameters()], [w.data for w in theirs.parameters()])
    assert not same([w.data for w in ours.parameters()], [w.data for w in net().parameters()])


@each
def test_global_random_state_is_unchanged(name: str) -> None:
    module = net()
    before = torch.get_rng_state()
    model = made(name, module)
    for x, y in batches(3):
        model.learn(x, y)
    model.after_task()
    assert bool((torch.get_rng_state() == before).all())


# -- methods --------------------------------------------------------------------------------------


@each
def test_predictions_have_the_type_of_the_rows(name: str) -> None:
    model = made(name, net())
    (x, y), *_ = batches(1)
    model.learn(x, y).after_task()
    predictions = model.predict(x)
    assert isinstance(predictions, np.ndarray)
    assert predictions.shape == (6,)
    assert set(predictions) <= {0, 1, 2}
    tensor = model.predict(torch.tensor(x))
    assert isinstance(tensor, torch.Tensor)
    assert_array_equal(tensor.numpy(), predictions)
    assert made(name, net(2), loss="squared", step_size=0.01).predict(x).shape == (6, 2)


@each
def test_empty_batch_has_no_effect(name: str) -> None:
    model = made(name, net())
    before = state(model)
    model.learn(np.zeros((0, 4), dtype=np.float32), np.zeros(0, dtype=int)).after_task()
    assert same(before, state(model))


@each
def test_stored_rows_are_copies(name: str) -> None:
    model = made(name, net())
    (x, y), *_ = batches(1)
    model.learn(x, y)
    before = state(model)
    x[:], y[:] = 9.0, 2
    assert same(before, state(model))


@each
def test_float64_arrays_and_integers_are_accepted(name: str) -> None:
    rows = np.random.default_rng(0).integers(0, 5, (4, 4))
    model = made(name, nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(8, 2)))
    model.learn(rows, [0, 1, 1, 0]).after_task()
    assert model.predict(rows).shape == (4,)
    made(name, net()).learn(np.ones((2, 4)), np.array([0.0, 2.0])).after_task()


# -- errors -------------------------------------------------------------------------------------

X = np.ones((2, 4), dtype=np.float32)
NAN = X.copy()
NAN[1, 2] = np.nan


@each
@pytest.mark.parametrize(
    ("x", "y", "error", "fields"),
    [
        (NAN, [0, 1], NotFiniteError, {"argument": "x", "got": "nan", "row": 1}),
        (X, [0], ShapeError, {"got": "2 and 1"}),
        (X, 0, ShapeError, {"got": "2 and a single number"}),
        (1.0, [0], ShapeError, {"argument": "x", "got": "a single number"}),
        ([["a"]], [0], TypeMismatchError, {"argument": "x"}),
        (X.astype(complex), [0, 1], TypeMismatchError, {"argument": "x", "got": "complex"}),
        (X, [0.0, np.inf], NotFiniteError, {"argument": "y", "row": 1}),
    ],
)
def test_invalid_input_leaves_the_learner_unchanged(
    name: str, x: Any, y: Any, error: type[Exception], fields: dict[str, Any]
) -> None:
    model = made(name, net(norm=True))
    for rows in batches(2):
        model.learn(*rows)
    before = state(model)
    with raises(error, **fields):
        model.learn(x, y)
    assert same(before, state(model))


@pytest.mark.parametrize("name", ["SGD", "EWC", "SI", "LwF", "Replay"])
@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (X, [0, 3], LabelError, r"classes 0 … 2, one for each output, got \[3\]"),
        (X, [0, 0.5], LabelError, "classes 0"),
        (X, [[0, 1], [1, 0]], ShapeError, r"`y` (must )?be of shape"),
        (X[:, :3], [0, 1], ShapeError, r"got float32 \(2, 3\)|`x` must be of shape"),
        (X * np.float32(3e38), [0, 1], NumericalError, "must be finite"),
    ],
)
def test_input_invalid_for_the_module_leaves_the_learner_unchanged(
    name: str, x: Any, y: Any, error: type[Exception], message: str
) -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    model = made(name, module, momentum=0.5)
    for rows in batches(2):
        model.learn(*rows)
    before = state(model)
    with pytest.raises(error, match=message):
        model.learn(x, y)
    assert same(before, state(model))


@pytest.mark.parametrize("name", ["SGD", "EWC", "SI", "LwF", "Replay"])
def test_step_that_is_not_finite_is_not_applied(name: str) -> None:
    model = made(name, net(1), loss="squared", step_size=1e38)
    before = state(model)
    with pytest.raises(NumericalError, match=r"no finite step of .*2\.weight.*Lower `step_size`"):
        model.learn(X, [1e5, 1e5])
    assert same(before, state(model))


def test_joint_is_unchanged_after_a_failed_pass() -> None:
    model = baselines.Joint(net(1), loss="squared", step_size=30.0, epochs=50, momentum=0.9)
    model.learn(*next(iter(batches(1))))
    before = state(model)
    with raises(NumericalError, remedy="These rows were not"):
        model.after_task()
    assert same(before, state(model))
    other = baselines.Joint(net())
    other.learn(X, [0, 7])
    with raises(LabelError, argument="y"):
        other.after_task()


@each
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"loss": "hinge"}, ParameterError),
        ({"step_size": 0.0}, ParameterError),
        ({"step_size": float("nan")}, ParameterError),
        ({"momentum": 1.5}, ParameterError),
        ({"module": 3}, TypeMismatchError),
        ({"module": nn.ReLU()}, ParameterError),
        ({"module": nn.Linear(1, 1).requires_grad_(False)}, ParameterError),  # noqa: FBT003
    ],
)
def test_settings_outside_their_range_are_rejected(
    name: str, settings: Any, error: type[Exception]
) -> None:
    with raises(error, where=name, argument=next(iter(settings))):
        made(name, **{"module": net(), **settings})


@pytest.mark.parametrize("function", [lambda x: x[:0], lambda x: x.sum(), lambda x: x[:1]])
def test_modules_without_one_output_per_row_are_rejected(function: Callable[[Any], Any]) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return function(self.line(x))

    with raises(ShapeError, argument="module"):
        baselines.SGD(Odd()).learn(X, [0, 1])


def test_outputs_independent_of_weights_change_nothing() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.line(x).detach()

    module = Cut()
    before = module.line.weight.clone()
    baselines.SGD(module).learn(X, [0, 1])
    assert bool((module.line.weight == before).all())


def test_without_torch_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    for name in baselines.__all__:
        with pytest.raises(ImportError, match=r"pip install 'onepass\[torch\]'"):
            getattr(baselines, name)
    with pytest.raises(AttributeError, match="no attribute 'NoMemory'"):
        _ = baselines.NoMemory
    assert dir(baselines) == sorted(baselines.__all__)
