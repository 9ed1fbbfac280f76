"""Predictions of networks: shapes, standard deviations, tags, drift."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import (
    CheckpointError,
    ColumnError,
    NotFiniteError,
    ParameterError,
    RowsRefusedWarning,
    ShapeError,
    TypeMismatchError,
)
from raising import raises

torch = pytest.importorskip("torch")

KINDS: dict[str, Any] = {
    "ORFit": lambda module, **more: op.nn.ORFit(module, 8, 1.0, **more),
    "OneStepSGD": lambda module, **more: op.nn.OneStepSGD(module, 1.0, **more),
    "OGD": lambda module, **more: op.nn.OGD(module, 8, batch=4, **more),
    "EKF": op.nn.EKF,
    "NTKRLS": op.nn.NTKRLS,
    "LoFi": op.nn.LoFi,
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def network(c: int = 1) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 20), torch.nn.Tanh(), torch.nn.Linear(20, c)
    ).double()


def stream(n: int = 12, c: int = 1) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return X, torch.sin(X[:, :1] * torch.arange(1.0, c + 1.0, dtype=torch.float64))


# -- shapes ---------------------------------------------------------------------------------------


@each_kind
def test_predictions_have_shape_of_targets(kind: str, tmp_path: Path) -> None:
    X, Y = stream()
    net = KINDS[kind](network())
    assert net.predict(X).shape == (12,)
    predictions = net.test_then_train(X[:6], Y[:6])
    assert predictions.shape == (6, 1)
    assert net.predict(X).shape == (12, 1)
    net.save(tmp_path / "net.onepass")
    assert op.nn.load(tmp_path / "net.onepass", network()).predict(X).shape == (12, 1)
    twin = KINDS[kind](network())
    flat = twin.test_then_train(X[:6], Y[:6, 0])
    assert torch.equal(flat, predictions[:, 0])
    assert torch.equal(twin.predict(X), net.predict(X)[:, 0])
    assert net.learn(X[6:], Y[6:, 0].tolist()).predict(X).shape == (12,)
    assert net.learn(X[:0], Y[:0]).predict(X).shape == (12,)  # nothing was learned in that shape
    if kind in {"EKF", "NTKRLS", "LoFi", "ORFit"}:
        predictions, std = net.learn(X[:1], Y[:1]).predict(X, return_std=True)
        assert predictions.shape == std.shape == (12, 1)


def test_predictions_with_many_axes() -> None:
    X, Y = stream(c=6)
    net = op.nn.ORFit(network(6), memory=8)
    assert net.test_then_train(X, Y.reshape(12, 2, 3)).shape == (12, 2, 3)
    assert net.predict(X[:5]).shape == (5, 2, 3)
    assert net.outputs(X[:5]).shape == (5, 6)
    classes = op.nn.ORFit(network(3), loss="one_hot")
    assert classes.learn(X, torch.arange(12)[:, None] % 3).predict(X).shape == (12, 1)


# -- standard deviations --------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, 100, op.memory.Sketch(100)])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_std_of_complete_memory_equals_kalman_filter(memory: Any, noise: float) -> None:
    X, Y = stream()
    filtered = op.nn.EKF(network(), noise=noise)
    net = op.nn.ORFit(network(), memory=memory, noise=noise)
    for fresh in (True, False):
        wanted = filtered.predict(X, return_std=True)[1]
        np.testing.assert_allclose(net.predict(X, return_std=True)[1], wanted, atol=1e-6)
        if fresh:
            filtered.learn(X[:8], Y[:8, 0])
            net.learn(X[:8], Y[:8, 0])
    assert net.memory_ is not None


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_std_by_layer_uses_block_diagonal_covariance(noise: float) -> None:
    X, Y = stream()
    net = op.nn.ORFit(network(), memory=5, noise=noise, by_layer=True).learn(X[:8], Y[:8])
    predictions, std = net.predict(X, return_std=True)
    P = net.memory_.split(torch.eye(net.network.p, dtype=torch.float64)).lifted
    J = net.network.jacobian(X)[1]
    np.testing.assert_allclose(std[:, 0] ** 2, (J @ P @ J.T).diagonal(), atol=1e-9)
    assert predictions.shape == std.shape


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        (
            lambda: op.nn.OneStepSGD(network()),
            "Use op.nn.EKF, op.nn.NTKRLS",
        ),
        (lambda: op.nn.OGD(network()), "Use op.nn.EKF, op.nn.NTKRLS"),
        (lambda: op.nn.ORFit(network(), op.memory.LastDirections(5)), "or op.nn.LoFi"),
        (lambda: op.nn.ORFit(network(3), loss="one_hot"), "A class has no standard deviation"),
    ],
)
def test_std_without_covariance_is_refused(made: Any, remedy: str) -> None:
    net = made()
    where = f"{type(net).__name__}.predict"
    with raises(ParameterError, where=where, argument="return_std", remedy=remedy):
        net.predict(stream()[0], return_std=True)


# -- tags ----------------------------------------------------------------------------------------


def test_sklearn_tags() -> None:
    X, Y = stream()
    net = op.nn.ORFit(network(), memory=op.memory.Sketch(5), noise=0.5).learn(X, Y)
    assert repr(net) == ("<ORFit(Sequential, memory=Sketch(m=5), noise=0.5), p=101, rows_seen_=12>")
    assert repr(op.nn.EKF(torch.nn.Linear(2, 1))) == "<EKF(Linear), p=3, rows_seen_=0>"


@each_kind
def test_drift(kind: str) -> None:
    X, Y = stream()
    net = KINDS[kind](network()).learn(X[:4], Y[:4])
    then = net.outputs(X[:4])
    assert net.drift(X[:4], then) == 0.0
    assert net.learn(X[4:], Y[4:]).drift(X[:4], then) > 0.0
    with raises(ShapeError, where="drift", argument="predictions", got="shape (3, 1)"):
        net.drift(X[:4], then[:3])
    assert net.drift(X[:4], list(then)) == net.drift(X[:4], then.tolist()) > 0.0


@pytest.mark.parametrize(
    ("predictions", "error"),
    [
        (None, TypeMismatchError),
        ("text", TypeMismatchError),
        ([None] * 4, TypeMismatchError),
        ({1: 2.0}, TypeMismatchError),
        ([[1.0], [1.0, 2.0], [1.0], [1.0]], ShapeError),
        ([torch.ones(1), torch.ones(2)], ShapeError),
        (np.full((4, 1), 1j), TypeMismatchError),
        (np.array([[1.0], [np.nan], [1.0], [np.inf]]), NotFiniteError),
        (3.0, ShapeError),
    ],
)
def test_drift_with_invalid_predictions(predictions: Any, error: Any) -> None:
    X, Y = stream()
    net = op.nn.ORFit(network(), memory=8).learn(X[:4], Y[:4])
    with pytest.raises(error) as raised:
        net.drift(X[:4], predictions)
    assert (raised.value.where, raised.value.argument) == ("ORFit.drift", "predictions")


# -- invalid inputs ------------------------------------------------------------------------------


class Two(torch.nn.Module):
    """Takes two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1).double()

    def forward(self, first: Any, second: Any) -> Any:
        return self.layer(first) + self.layer(second)


@pytest.mark.parametrize(
    "x",
    [lambda X: {"first": X, "other": X}, lambda X: {"first": X}, lambda X: (X, X, X), lambda X: X],
)
def test_unknown_arguments_error(x: Any) -> None:
    X, Y = stream()
    with raises(TypeMismatchError, argument="x", remedy="forward()"):
        op.nn.ORFit(Two()).learn(x(X), Y)


def test_row_without_axis_error() -> None:
    X, Y = stream()
    net = op.nn.ORFit(network())
    for given in (lambda: net.learn(X[0], Y[0]), lambda: net.predict(X[0])):
        with raises(
            ShapeError, remedy="first axis counts rows; for one row, pass X[0:1] instead of"
        ):
            given()
    with raises(ShapeError, argument="y", got="a single number", remedy="y[0:1] instead of y[0]"):
        net.learn(X[:1], Y[0, 0])
    with raises(ShapeError, argument="x", got="a single number", remedy="X[0:1] instead of X[0]"):
        net.predict(1.0)
    with raises(ShapeError, remedy="X[0:1] instead of"):
        op.nn.ORFit(torch.nn.Linear(3, 3).double()).predict(X[0])
    assert net.learn(X[:1], Y[0]).rows_seen_ == 1


def test_nan_refuses_block_and_names_row() -> None:
    X, Y = stream()
    Y[3] = np.nan
    net = op.nn.ORFit(network())
    with raises(NotFiniteError, argument="y", row=3, got="[nan]", remedy="None of the 12 row"):
        net.learn(X, Y)
    assert net.rows_seen_ == 0


@pytest.mark.parametrize(
    ("memory", "by_layer"),
    [
        (None, False),
        (2, False),
        (2, True),
        (op.memory.LastDirections(2), False),
        (op.memory.Random(2), False),
    ],
)
def test_overflowing_step_adds_no_direction(
    memory: Any,
    by_layer: bool,  # noqa: FBT001
) -> None:
    eye = torch.eye(8)
    net = op.nn.ORFit(torch.nn.Linear(8, 1, bias=False), memory=memory, by_layer=by_layer)
    twin = copy.deepcopy(net)
    net.learn(eye[:3], torch.ones(3))
    twin.learn(eye[:3], torch.ones(3))
    with pytest.warns(RowsRefusedWarning, match="got 1 row"):
        net.learn(1e-25 * eye[3:4], torch.tensor([1e20]))
    for each in (net, twin):
        each.learn(eye[3:6], torch.tensor([4.0, 5.0, 6.0]))
    assert torch.equal(net.module.weight, twin.module.weight)
    assert net.memory_.rank == twin.memory_.rank
    assert (net.rows_refused_, net.inconsistent_rows_) == (1, 0)


def test_exact_memory_skips_rows_beyond_precision() -> None:
    X, Y = stream()
    net = op.nn.ORFit(torch.nn.Linear(3, 1).double(), memory=None, noise=1e-320)
    with pytest.warns(RowsRefusedWarning):
        net.learn(X, Y)
    assert torch.isfinite(net.network.weights()).all()


# -- streams and files ----------------------------------------------------------------------------


def test_networks_in_prequential_evaluation() -> None:
    X, Y = (each.numpy() for each in stream(120))
    models = {"net": op.nn.ORFit(network(), 50, 0.1), "rls": op.RLSRegressor()}
    report = op.evaluate.prequential(models, (X, Y[:, 0]))
    assert report.scores["net"].overall["rmse"] < report.scores["rls"].overall["rmse"]
    assert report.scores["net"].learner.startswith("<ORFit(Sequential, memory=50")
    assert models["net"].rows_seen_ == 120
    late = op.evaluate.prequential(op.nn.EKF(network(), 0.1), (X, Y[:, 0]), delay=3)
    assert late.scores["EKF"].overall["rmse"] < 1.0
    labels = (X[:, 0] > 0).astype(int)
    classes = op.nn.ORFit(network(2), 50, 1.0, loss="one_hot")
    report = op.evaluate.prequential({"net": classes}, (X, labels))
    assert report.scores["net"].overall["accuracy"] > 0.7
    with raises(ParameterError, remedy="Evaluate classifiers and regressors"):
        op.evaluate.prequential({"net": classes, "rls": op.RLSRegressor()}, (X, labels))


def test_stream_blocks_as_input() -> None:
    X, Y = (each.numpy() for each in stream(60))
    rows = [{"a": x[0], "b": x[1], "c": x[2], "y": y} for x, y in zip(X, Y[:, 0], strict=True)]
    net, twin = (op.nn.ORFit(network(), 20, 0.1) for _ in range(2))
    op.evaluate.prequential(net, op.stream.read(rows, target="y", block=16))
    twin.learn(X, Y)
    np.testing.assert_allclose(net.network.weights(), twin.network.weights(), atol=1e-12)
    rows[20]["b"] = None
    with raises(NotFiniteError, argument="X", column="b"):
        op.evaluate.prequential(net, op.stream.read(rows, target="y", block=16))
    text = [{**row, "b": "red"} for row in rows]
    with pytest.raises((TypeMismatchError, ColumnError), match="'b'"):
        op.evaluate.prequential(net, op.stream.read(text, target="y", block=16))


@each_kind
def test_op_save_equals_own_save(kind: str, tmp_path: Path) -> None:
    X, Y = stream()
    net = KINDS[kind](network()).learn(X, Y)
    op.save(net, tmp_path / "net.onepass")
    again = op.nn.load(tmp_path / "net.onepass", network())
    assert torch.equal(again.predict(X), net.predict(X))
    with raises(CheckpointError, remedy="load(path, module)"):
        op.load(tmp_path / "net.onepass")


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i4", "f2", "u2", np.longdouble, bool])
def test_target_dtypes(kind: Any) -> None:
    x, y = torch.eye(3), np.array([1, 0, 1])
    nets = [op.nn.ORFit(torch.nn.Linear(3, 1, bias=False), memory=2) for _ in range(2)]
    with torch.no_grad():
        nets[1].module.weight.copy_(nets[0].module.weight)
    predictions = [
        net.learn(x, each).predict(x) for net, each in zip(nets, (y, y.astype(kind)), strict=True)
    ]
    assert torch.equal(*predictions)
