"""Error messages for common mistakes."""

import copy
from typing import Any

import pytest

from raising import raises

torch = pytest.importorskip("torch")

import onepass as op  # noqa: E402
from onepass.errors import (  # noqa: E402
    LabelError,
    MergeError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TaskWarning,
    TypeMismatchError,
)

nn = torch.nn
torch.manual_seed(0)
X, Y = torch.randn(40, 4), torch.randn(40)
LEARNERS = [op.nn.ORFit, op.nn.OGD, op.nn.EKF, op.nn.LoFi, op.nn.NTKRLS, op.nn.OneStepSGD]


def mlp(d: int = 4, c: int = 1) -> Any:
    return nn.Sequential(nn.Linear(d, 20), nn.Tanh(), nn.Linear(20, c))


@pytest.fixture(params=LEARNERS, ids=lambda cls: cls.__name__)
def net(request: Any) -> Any:
    return request.param(mlp()).learn(X[:8], Y[:8])


def test_cross_entropy_error_suggests_noise() -> None:
    with raises(ParameterError, argument="noise", remedy="try noise=0.1, 1.0 and 10.0"):
        op.nn.ORFit(mlp(c=3), loss="cross_entropy", noise=0.0)


@pytest.mark.parametrize("memory", [0, -1, True, 2.5, "10"])
def test_invalid_memory_error_names_public_class(memory: Any) -> None:
    fields: dict[str, Any] = {"argument": "memory", "remedy": "op.memory.NoMemory() to retain none"}
    for cls in (op.nn.ORFit, op.nn.OGD):
        with raises(ParameterError, where=cls.__name__, **fields):
            cls(mlp(), memory=memory)
    module = mlp()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with raises(ParameterError, where="OrthogonalGradient", **fields):
        op.nn.optim.OrthogonalGradient(optimizer, module, memory=memory)
    with raises(ParameterError, where="ORFitRegressor.partial_fit", **fields):
        op.ORFitRegressor(memory=memory).partial_fit(X.numpy(), Y.numpy())
    assert op.nn.ORFit(module, memory=op.memory.NoMemory()).learn(X, Y).memory_.rank == 0


def test_single_column_without_axis(net: Any) -> None:
    cls = type(net)
    fields: dict[str, Any] = {"got": "float32 (40,)", "remedy": "for one column, X[:, None]"}
    for fresh in (True, False):
        column = cls(mlp(1))
        if not fresh:
            column.learn(X[:, :1], Y)
        with raises(ShapeError, where=f"{cls.__name__}.learn", **fields):
            column.learn(X[:, 0], Y)
        with raises(ShapeError, where=f"{cls.__name__}.predict", **fields):
            column.predict(X[:, 0])
        assert column.rows_seen_ == (0 if fresh else 40)


def test_width_error_names_call_and_shape(net: Any) -> None:
    wide, name = torch.randn(40, 5), type(net).__name__
    for fresh in (net, type(net)(mlp())):
        for verb, call in {
            "learn": lambda fresh=fresh: fresh.learn(wide, Y),
            "test_then_train": lambda fresh=fresh: fresh.test_then_train(wide, Y),
            "predict": lambda fresh=fresh: fresh.predict(wide),
            "outputs": lambda fresh=fresh: fresh.outputs(wide),
            "drift": lambda fresh=fresh: fresh.drift(wide, Y),
        }.items():
            with raises(ShapeError, where=f"{name}.{verb}", got="float32 (40, 5)"):
                call()


def test_row_without_axis_error(net: Any) -> None:
    for y in (Y[0:1], Y[0]):
        with raises(ShapeError, where="learn", remedy="pass X[0:1] instead of X"):
            net.learn(X[0], y)
    with raises(ShapeError, argument="y", got="4"):
        net.learn(X[:5], Y[:4])
    assert net.rows_seen_ == 8


def test_methods_of_other_learners_name_replacement(net: Any) -> None:
    for verb, message in {
        "learn_one": r"learn\(X\[k:k\+1\]",
        "predict_one": r"predict\(X\[k:k\+1\]\)\[0\]",
        "partial_fit": r"learn\(X, y\)",
        "fit": "new learner",
        "predict_proba": r"only classifiers have probabilities",
    }.items():
        assert not hasattr(net, verb)
        with pytest.raises(AttributeError, match=rf"{type(net).__name__}.*{verb}.*{message}"):
            getattr(net, verb)
    with pytest.raises(AttributeError, match=r"no attribute 'coef_'"):
        net.coef_  # noqa: B018  it is asked for
    assert torch.equal(copy.deepcopy(net).predict(X), net.predict(X))


def test_load_with_swapped_arguments() -> None:
    with pytest.raises(TypeError, match="not Sequential"):
        op.nn.load(mlp(), "net.onepass")


@pytest.mark.parametrize("kind", ["GPM", "OrthogonalGradient"])
def test_after_task_error_names_batch(kind: str) -> None:
    module, x, y = mlp(4, 3), X.clone(), torch.arange(40) % 3
    optimizer = getattr(op.nn.optim, kind)(torch.optim.SGD(module.parameters(), lr=0.1), module)
    optimizer.after_task((x, y))
    x[26] = torch.nan
    batches = list(zip(x.split(10), y.split(10), strict=True))
    with raises(
        NotFiniteError, where="after_task, batch 2 of `loader`", argument="x", row=6, got="nan"
    ):
        optimizer.after_task(batches)
    with raises(NotFiniteError, where="after_task", argument="x", row=26, got="nan"):
        optimizer.after_task((x, y))
    with raises(ShapeError, where="after_task", got="float32 (12, 5)"):
        optimizer.after_task((torch.randn(12, 5), y[:12]))
    if kind == "OrthogonalGradient":  # GPM ignores y
        with raises(
            ShapeError,
            where="OrthogonalGradient.after_task, batch 1 of `loader`",
            argument="y",
            got="9",
        ):
            optimizer.after_task([batches[0], (X[:10], y[:9])])
        with raises(
            LabelError,
            where="OrthogonalGradient.after_task, batch 1 of `loader`",
            argument="y",
            got="3",
        ):
            optimizer.after_task([batches[0], (X[:10], y[:10] + 1)])
    assert optimizer.tasks_ == 1


def test_ogd_merge_error_names_orfit() -> None:
    one, two = (op.nn.OGD(mlp(), memory=30).learn(X, Y) for _ in range(2))
    with raises(MergeError, got="OGD", remedy="op.nn.ORFit"):
        one.merge(two)


def test_network_in_pipeline_is_refused() -> None:
    with raises(TypeMismatchError, got="Scale, ORFit: networks cannot be steps of a Pipeline"):
        op.Pipeline(op.features.Scale(), op.nn.ORFit(mlp()))


def test_after_task_without_per_task_warns() -> None:
    net = op.nn.OGD(mlp(), memory=30).learn(X, Y)
    before = copy.deepcopy(net.memory_)
    with pytest.warns(TaskWarning, match=r"OGD\.after_task: `per_task` .*got None.*per_task=100"):
        assert net.after_task() is net
    assert net.tasks_ == 0
    assert torch.equal(net.memory_.settled()[1].rows, before.settled()[1].rows)
