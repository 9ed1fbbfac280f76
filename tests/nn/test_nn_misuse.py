"""Misuse of network learners: reported, or without effect."""

import copy
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import (
    CheckpointError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
)
from onepass.nn.function import Function
from onepass.serialization import archive
from raising import raises
from sampling import sample

torch = pytest.importorskip("torch")

KINDS: dict[str, Callable[[Any], Any]] = {
    "ORFit": lambda module: op.nn.ORFit(module, memory=10),
    "ORFit-all": lambda module: op.nn.ORFit(module, memory=None, noise=0.1),
    "OneStepSGD": op.nn.OneStepSGD,
    "OGD": lambda module: op.nn.OGD(module, memory=10, step_size=0.05, batch=4),
    "NTKRLS": lambda module: op.nn.NTKRLS(module, forgetting=0.98),
    "EKF": lambda module: op.nn.EKF(module, decay=0.99, process_noise=0.01),
    "LoFi": lambda module: op.nn.LoFi(module, decay=0.99, process_noise=0.01),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def network(dtype: Any = None) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        dtype or torch.float32
    )


def stream(n: int = 16) -> tuple[Any, Any]:
    X = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))
    return X, torch.sin(X[:, 0])


def weights(net: Any) -> Any:
    return net.network.weights().double().numpy()


@each_kind
def test_copy_learns_independently(kind: str) -> None:
    X, y = stream()
    net = KINDS[kind](network()).learn(X[:8], y[:8])
    before = weights(net)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]  # noqa: S301  our own
    for each in copies:
        each.learn(X[8:], y[8:])
    np.testing.assert_array_equal(weights(net), before)
    net.learn(X[8:], y[8:])
    for each in copies:
        np.testing.assert_array_equal(weights(each), weights(net))


@each_kind
def test_inference_mode_and_autocast_have_no_effect(kind: str) -> None:
    X, y = stream()
    plain, held = KINDS[kind](network()), KINDS[kind](network())
    for part in (slice(0, 5), slice(5, 10), slice(10, 16)):
        plain.learn(X[part], y[part])
    with torch.inference_mode():
        held.learn(X[:5] * 1.0, y[:5] * 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        held.learn(X[5:10], y[5:10])
    held.learn(X[10:], y[10:])
    np.testing.assert_array_equal(weights(held), weights(plain))


@each_kind
def test_frozen_parameters_are_not_written(kind: str) -> None:
    X, y = stream()
    net = KINDS[kind](network())
    net.module[0].weight.requires_grad_(False)  # noqa: FBT003  torch's own
    before = weights(net)
    with pytest.raises(ParameterError, match=r"'0\.weight' was frozen after"):
        net.learn(X, y)
    np.testing.assert_array_equal(weights(net), before)
    assert net.rows_seen_ == 0
    net.module.requires_grad_(True)  # noqa: FBT003
    assert net.learn(X, y).rows_seen_ == 16


@each_kind
@pytest.mark.parametrize(("dtype", "large"), [("float32", 1e300), ("float16", 1e30)])
def test_target_overflow_is_refused(kind: str, dtype: str, large: float) -> None:
    X, y = stream()
    y = y.double()
    y[5] = large
    net = KINDS[kind](network(getattr(torch, dtype)))
    before = weights(net)
    with raises(NotFiniteError, argument="y", remedy="scale y") as raised:
        net.learn(X, y)
    assert (raised.value.argument, raised.value.row) == ("y", 5)
    np.testing.assert_array_equal(weights(net), before)
    assert (net.rows_seen_, net.rows_refused_) == (0, 0)


def test_tiny_noise_fits_rows() -> None:
    X, y = stream(3)
    net = op.nn.LoFi(torch.nn.Linear(3, 1).double(), noise=1e-30).learn(X, y)
    np.testing.assert_allclose(net.predict(X), y.double(), atol=1e-9)
    net.learn(*stream())
    assert np.isfinite(weights(net)).all()


def test_filter_survives_module_dtype_change() -> None:
    X, y = stream()
    for kind in ("EKF", "LoFi"):
        net = KINDS[kind](network()).learn(X[:8], y[:8])
        net.module.double()
        assert net.learn(X[8:], y[8:]).predict(X).dtype == torch.float64


def test_ragged_targets_are_refused() -> None:
    X, _ = stream(2)
    with raises(ShapeError, argument="y", got="rows of several lengths"):
        op.nn.ORFit(network()).learn(X, [[1.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("ORFit", "rows_seen", "many"),
        ("OGD", "refused", -1),
        ("LoFi", "outputs", -3),
        ("ORFit", "inconsistent", "some"),
        ("ORFit", "forgotten", "some"),
        ("EKF", "inconsistent", "some"),
        ("ORFit-all", "start", 3),
        ("EKF", "dynamics.start", 3),
        ("LoFi", "dynamics.start", 3),
    ],
)
def test_invalid_file_does_not_change_module(
    tmp_path: Path, kind: str, name: str, value: Any
) -> None:
    path = tmp_path / "net.onepass"
    KINDS[kind](network()).learn(*stream()).save(path)
    tree = archive.contents(path).tree
    assert name in tree["learned"]
    short = {"@": "tensor", "dtype": "float32", "of": np.ones(3, np.float32)}
    tree["learned"][name] = short if name.endswith("start") else value
    archive.write(path, tree, kind="network")
    module = network()
    before = copy.deepcopy(module.state_dict())
    with raises(CheckpointError, got="a damaged one: the state is inconsistent"):
        op.nn.load(path, module)
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[key])


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "OrthogonalGradient": lambda module: op.nn.optim.OrthogonalGradient(
        torch.optim.Adam(module.parameters()), module, gradients="outputs"
    ),
    "GPM": lambda module: op.nn.optim.GPM(torch.optim.Adam(module.parameters()), module),
}
each_optimizer = pytest.mark.parametrize("kind", OPTIMIZERS)


def trained(optimizer: Any) -> Any:
    X, y = stream()
    for _ in range(3):
        optimizer.zero_grad()
        (optimizer.module(X)[:, 0] - y).square().mean().backward()
        optimizer.step()
    return optimizer


@each_optimizer
@pytest.mark.parametrize("around", ["inference_mode", "autocast"])
def test_after_task_in_inference_mode_or_autocast(kind: str, around: str) -> None:
    X, y = stream()
    found = []
    for held in (False, True):
        optimizer = trained(OPTIMIZERS[kind](network()))
        within = torch.autocast("cpu", torch.bfloat16) if around == "autocast" else None
        with torch.inference_mode(held and within is None):
            if held and within is not None:
                with within:
                    optimizer.after_task([(X[:2] * 1.0, y[:2])])
            else:
                optimizer.after_task([(X[:2] * 1.0, y[:2])])
        module = trained(optimizer).module
        found.append(torch.cat([each.detach().reshape(-1) for each in module.parameters()]))
    assert torch.equal(*found)


@each_optimizer
@pytest.mark.parametrize("part", ["tasks", "names", "memory"])
def test_damaged_state_changes_nothing(kind: str, part: str) -> None:
    optimizer = trained(OPTIMIZERS[kind](network()))
    state = copy.deepcopy(optimizer.after_task([stream()]).state_dict())
    state["onepass"][optimizer._part if part == "memory" else part] = {"tasks": "x"}.get(part, 3)
    other = OPTIMIZERS[kind](network())
    with raises(CheckpointError, where=".load_state_dict", got="another: "):
        other.load_state_dict(state)
    assert other.tasks_ == 0
    assert not other.state


def test_gpm_refuses_invalid_directions() -> None:
    optimizer = trained(OPTIMIZERS["GPM"](network()))
    with torch.no_grad():
        optimizer.module[0].weight[0, 0] = torch.nan
    with raises(NumericalError, got="nan or infinity in '2'"):
        optimizer.after_task([stream()])
    assert optimizer.tasks_ == 0
    assert optimizer.nbytes == 0


@each_kind
def test_module_without_derivative_is_refused(kind: str) -> None:
    class Answering(torch.nn.Sequential):
        @torch.no_grad()
        def forward(self, x: Any) -> Any:
            return super().forward(x)

    net = KINDS[kind](Answering(*network()))
    before = weights(net)
    for rows in (slice(0, 1), slice(0, 16)):
        X, y = stream()
        with raises(ParameterError, remedy="Remove these"):
            net.learn(X[rows], y[rows])
    np.testing.assert_array_equal(weights(net), before)
    assert (net.rows_seen_, net.nbytes) == (0, 0)
    assert net.predict(X).shape == (16,)


# -- indices out of range ------------------------------------------------------------------------


def tables(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "index":
        return Gathered()
    if kind == "bag":
        return torch.nn.Sequential(torch.nn.EmbeddingBag(9, 4), torch.nn.Linear(4, 1))
    return torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Flatten(), torch.nn.Linear(8, 1))


class Gathered(torch.nn.Module):
    """A custom table, for which torch raises another message."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.randn(9, 2))
        self.last = torch.nn.Linear(2, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.rows[x[:, 0]] + self.rows[x[:, 1]])


def places(n: int = 20) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 9, (n, 2), generator=generator), torch.arange(float(n))


MESSAGES = {
    "embedding": r"Embedding '0' must be from 0 to 8, got {} in row {}\. Number categories",
    "bag": r"EmbeddingBag '0' must be from 0 to 8, got {} in row {}\. Number categories",
    "index": "must be valid indices, got .* and the module raised",
}


@pytest.mark.parametrize(
    ("kind", "wrong", "table"),
    sample(list(product(KINDS, [9, -10], MESSAGES)), 9, "index out of range"),
)
def test_index_out_of_range_is_reported_before_learning(kind: str, wrong: int, table: str) -> None:
    ids, y = places()
    net = KINDS[kind](tables(table)).learn(ids[:10], y[:10])
    before, counted = weights(net), (net.rows_seen_, net.nbytes)
    for row in (3, 17):  # among those that a module is tried with, and behind them
        bad = ids.clone()
        bad[row, 1] = wrong
        message = MESSAGES[table].format(wrong, row)
        for ask in (lambda: net.learn(bad, y), lambda: net.predict(bad)):  # noqa: B023
            with pytest.raises(ShapeError, match=rf"^.*{message}"):
                ask()
        with pytest.raises(ShapeError, match=r"Number (them|categories) from 0"):
            net.learn(bad[row : row + 1], y[:1])
    np.testing.assert_array_equal(weights(net), before)
    assert (net.rows_seen_, net.nbytes) == counted
    assert net.learn(ids[10:], y[10:]).rows_seen_ == 20


def test_index_error_names_row() -> None:
    ids, y = places(3000)
    ids[2500, 0] = 9
    net = op.nn.OneStepSGD(tables("embedding"))
    for ask in (lambda: net.learn(ids, y), lambda: net.predict(ids)):
        with raises(ShapeError, row=2500, got="9"):
            ask()
    assert net.rows_seen_ == 0


def test_device_checks_indices_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Function, "on_device", True)
    ids, y = places()
    ids[17, 1] = 9
    net = op.nn.ORFit(tables("embedding"), memory=10)
    for ask in (lambda: net.learn(ids, y), lambda: net.predict(ids[10:])):
        with raises(ShapeError, got="9") as caught:
            ask()
        assert caught.value.row in (7, 17)
        assert caught.value.__cause__ is caught.value.__context__ is None
    assert net.learn(ids[:17], y[:17]).rows_seen_ == 17


@pytest.mark.parametrize("place", ["meta", "cuda:99", "nowhere", 1.5])
def test_memory_device_must_hold_values(place: Any) -> None:
    with raises(ParameterError, argument="memory_device"):
        op.nn.ORFit(network(), memory_device=place)


def test_module_created_in_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        module = network()
    net = op.nn.ORFit(module)
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        net.learn(*stream())
    assert (net.rows_seen_, net.memory_) == (0, None)
    copied = op.nn.ORFit(copy.deepcopy(module)).learn(*stream())
    np.testing.assert_array_equal(weights(copied), weights(op.nn.ORFit(network()).learn(*stream())))
