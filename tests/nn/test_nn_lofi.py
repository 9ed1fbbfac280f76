from itertools import product
from typing import Any

import numpy as np
import pytest

from raising import raises

torch = pytest.importorskip("torch")

from kalman_dense import DenseLoFi, along, mlp, stream  # noqa: E402

import onepass as op  # noqa: E402
from onepass.errors import ParameterError, RowsRefusedWarning  # noqa: E402
from sampling import sample  # noqa: E402

nn = torch.nn
TIMES = [{}, {"process_noise": 0.01}, {"decay": 0.95}, {"process_noise": 0.1, "decay": 0.9}]
each_time = pytest.mark.parametrize("time", TIMES)


SIZES = [(1, 1), (4, 1), (5, 2)]


@pytest.mark.parametrize(
    ("size", "time"), sample(list(product(SIZES, TIMES)), 6, "LoFi equals dense recursion")
)
def test_equals_dense_recursion(size: tuple[int, int], time: Any) -> None:
    m, c = size
    X, Y = stream(25, c=c, noise=0.1)
    dense = DenseLoFi(mlp(c=c), m, 0.5)

    def right(i: int) -> Any:
        dense.step(X[i], Y[i], 0.1, **time)
        return dense.w

    net = op.nn.LoFi(mlp(c=c), m, noise=0.1, prior=0.5, **time)
    assert along(net, X, Y, right) < 1e-8
    belief = net.posterior_
    found = np.diag(belief.diagonal.numpy()) + belief.rows.numpy().T @ belief.rows.numpy()
    np.testing.assert_allclose(found, dense.precision, rtol=1e-8, atol=1e-8)
    J = np.stack([dense.row(x)[1] for x in X])
    variances = np.einsum("nkp,pq,nkq->nk", J, np.linalg.inv(dense.precision), J)
    std = net.predict(X, return_std=True)[1].numpy()
    np.testing.assert_allclose(std.reshape(25, c) ** 2, variances, rtol=1e-7)


@pytest.mark.parametrize(
    ("time", "block_update"), sample(list(product(TIMES, [False, True])), 4, "LoFi equals EKF")
)
def test_enough_columns_equal_ekf(time: Any, block_update: bool) -> None:  # noqa: FBT001
    X, Y = stream(12, c=2, noise=0.1)
    given = {"noise": 0.1, "prior": 2.0, "block_update": block_update, **time}
    ekf = op.nn.EKF(mlp(c=2), **given).learn(X, Y)
    lofi = op.nn.LoFi(mlp(c=2), 24, **given).learn(X, Y)
    torch.testing.assert_close(lofi.network.weights(), ekf.network.weights(), rtol=0, atol=1e-8)
    for one, other in zip(lofi.predict(X, return_std=True), ekf.predict(X, return_std=True)):  # noqa: B905
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("time", sample(TIMES, 2, "as many columns as weights"))
def test_as_many_columns_as_weights_equal_ekf_on_long_stream(time: Any) -> None:
    lofi = op.nn.LoFi(mlp(), 31, noise=0.1, **time)
    X, Y = stream(40, noise=0.1)
    ekf = op.nn.EKF(mlp(), noise=0.1, **time)
    assert (
        along(lofi, X, Y, lambda i: ekf.learn(X[i : i + 1], Y[i : i + 1]).network.weights().numpy())
        < 1e-8
    )


def test_truncation_preserves_diagonal() -> None:
    X, Y = stream(40, noise=0.1)
    net = op.nn.LoFi(mlp(), 3, noise=0.1)
    total = torch.ones(31, dtype=torch.float64)
    for i in range(40):
        J = net.network.jacobian(X[i : i + 1])[1]
        total += J[0] ** 2 / 0.1
        net.learn(X[i : i + 1], Y[i : i + 1])
    diagonal = net.posterior_.diagonal + net.posterior_.rows.square().sum(dim=0)
    torch.testing.assert_close(diagonal, total, rtol=1e-12, atol=0.0)


def test_memory_is_bounded_by_m_columns() -> None:
    X, Y = stream(60, noise=0.1)
    net = op.nn.LoFi(mlp(), 5).learn(X[:20], Y[:20])
    before = net.nbytes
    assert before == 31 * 8 * (5 + 1)
    assert net.learn(X, Y).nbytes == before
    assert op.nn.LoFi(mlp(), 5, decay=0.9).learn(X, Y).nbytes == before + 31 * 8


def test_more_columns_approach_full_filter() -> None:
    X, Y = stream(60, seed=3, noise=0.5)
    X_test, truth = stream(300, seed=4)
    whole = op.nn.EKF(mlp(width=40), 0.5).learn(X, Y).predict(X_test)
    apart = {}
    for m in (1, 10, 30, 60):
        predictions = op.nn.LoFi(mlp(width=40), m, 0.5).learn(X, Y).predict(X_test)
        apart[m] = float((predictions - whole).square().mean().sqrt())
    assert apart[1] > apart[10] > apart[30] > 10.0 * apart[60]
    assert float((whole - torch.from_numpy(truth)).square().mean().sqrt()) < 0.5


def test_float32_is_near_float64() -> None:
    X, Y = stream(60, noise=0.1)
    given = {"noise": 0.05, "process_noise": 1e-3}
    double = op.nn.LoFi(mlp(), 8, **given).learn(X, Y)
    single = op.nn.LoFi(mlp(dtype=torch.float32), 8, **given).learn(X, Y)
    torch.testing.assert_close(
        single.network.weights().double(), double.network.weights(), atol=5e-3, rtol=0
    )
    assert single.posterior_.rows.dtype == torch.float32
    assert op.nn.LoFi(mlp(dtype=torch.bfloat16), 8).learn(X, Y).rows_refused_ == 0


def test_prior_is_stationary() -> None:
    X, Y = np.zeros((50, 3)), np.zeros(50)
    linear = nn.Linear(3, 1, bias=False).double()
    net = op.nn.LoFi(linear, prior=2.0, decay=0.9, process_noise=0.19 * 2.0).learn(X, Y)
    np.testing.assert_allclose(net.posterior_.diagonal, 0.5)


def test_zero_gradients_repeated_rows_and_nan_loss() -> None:
    X, Y = stream(6)
    dead = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1, bias=False)).double()
    nn.init.constant_(dead[0].bias, -100.0)
    net = op.nn.LoFi(dead, 2)
    before = net.network.weights()
    assert torch.equal(net.learn(X, Y).network.weights(), before)
    net = op.nn.LoFi(mlp(), 2, noise=1e-6)
    for _ in range(50):
        net.learn(X[:1], Y[:1])
    np.testing.assert_allclose(net.predict(X[:1]), Y[:1], atol=1e-6)
    module = mlp()
    nn.init.constant_(module[2].weight, 1e308)
    net = op.nn.LoFi(module, 2)
    with pytest.warns(RowsRefusedWarning, match="must be finite"):
        net.learn(X, Y)
    assert net.posterior_ is None


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"memory": 0}, {"argument": "memory"}),
        ({"memory": None}, {"argument": "memory"}),
        ({"noise": 0.0}, {"argument": "noise"}),
        ({"noise": -1.0}, {"argument": "noise", "remedy": "Choose another `noise`"}),
        ({"prior": float("inf")}, {"argument": "prior"}),
        ({"decay": 0.0}, {"argument": "decay"}),
    ],
)
def test_invalid_arguments(arguments: Any, fields: dict[str, Any]) -> None:
    with raises(ParameterError, where="LoFi", **fields):
        op.nn.LoFi(mlp(), **arguments)
