from typing import Any

import numpy as np
import pytest

from raising import raises

torch = pytest.importorskip("torch")

from kalman_dense import Dense, along, mlp, stream  # noqa: E402

import onepass as op  # noqa: E402
from onepass.errors import ParameterError  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("ridge", [1.0, 0.01])
@pytest.mark.parametrize("forgetting", [1.0, 0.98, 0.5, 0.0])
def test_equation_13_as_printed(forgetting: float, ridge: float) -> None:
    X, Y = stream(40 if forgetting else 20, noise=0.1)
    dense = Dense(mlp(), 1.0 / ridge)

    def right(i: int) -> Any:
        dense.printed_13(X[i], Y[i], forgetting, i + 1)
        return dense.w

    net = op.nn.NTKRLS(mlp(), ridge, forgetting)
    assert along(net, X, Y, right) < 1e-8 if forgetting in {1.0, 0.98, 0.0} else 1e-4


def test_theorem_5_nearest_weights_that_fit_the_linearised_rows() -> None:
    X, Y = stream(20)
    for net in (op.nn.ORFit(mlp(), memory=20), op.nn.NTKRLS(mlp(), forgetting=0.0)):
        dense = Dense(mlp(), 1.0)
        w0, A, b = dense.w.copy(), [], []
        for i in range(20):
            outputs, H = dense.row(X[i])
            A.append(H[0])
            b.append(Y[i, 0] - outputs[0] + H[0] @ dense.w)  # f_{k|k−1}(w) = y_k
            net.learn(X[i : i + 1], Y[i : i + 1])
            w = net.network.weights().numpy()
            nearest = w0 + np.linalg.pinv(np.array(A)) @ (np.array(b) - np.array(A) @ w0)
            np.testing.assert_allclose(w, nearest, atol=1e-8)
            np.testing.assert_allclose(np.array(A) @ w, b, atol=1e-9)
            dense.w = w


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_linear_module_equals_least_squares_with_forgetting(forgetting: float) -> None:
    X, Y = stream(80, d=5, c=2, noise=0.3)
    linear = nn.Linear(5, 2, bias=False).double()
    nn.init.zeros_(linear.weight)
    rule = op.forgetting.Exponential(forgetting) if forgetting < 1.0 else 1.0
    rls = op.RLSRegressor(ridge=0.5, fit_intercept=False, forgetting=rule).fit(X, Y)
    for block_update in (False, True):
        nn.init.zeros_(linear.weight)
        net = op.nn.NTKRLS(linear, 0.5, forgetting, block_update=block_update).learn(X, Y)
        found = net.network.weights().numpy().reshape(2, 5)
        np.testing.assert_allclose(found, rls.coef_, atol=1e-9)


def test_long_stream_stays_finite() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[:, 2:] = 0.0  # two weights of no excitation
    Y = X[:, :1] - 2.0 * X[:, 1:2]
    net = op.nn.NTKRLS(nn.Linear(4, 1, bias=False).double(), 1.0, 0.8)
    net.learn(X, Y)
    fresh = rng.normal(size=(50, 4))
    net.learn(fresh, fresh.sum(axis=1))
    np.testing.assert_allclose(net.network.weights().numpy(), 1.0, atol=1e-2)
    assert net.posterior_.beyond <= 1e12


def test_tracks_jumps() -> None:
    X, Y = stream(120, d=3)
    Y[60:] *= -1.0
    late = {}
    for forgetting in (1.0, 0.95):
        net = op.nn.NTKRLS(nn.Linear(3, 1).double(), 1e-3, forgetting)
        late[forgetting] = float(
            (net.test_then_train(X, Y)[-30:] - torch.from_numpy(Y[-30:])).abs().mean()
        )
    assert late[0.95] < 0.6 * late[1.0]


def test_float32_is_near_float64() -> None:
    X, Y = stream(50, noise=0.1)
    double = op.nn.NTKRLS(mlp(), 0.1, 0.95).learn(X, Y).network.weights()
    single = op.nn.NTKRLS(mlp(dtype=torch.float32), 0.1, 0.95).learn(X, Y).network.weights()
    torch.testing.assert_close(single.double(), double, atol=5e-3, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"ridge": 0.0}, {"argument": "ridge"}),
        ({"forgetting": 1.1}, {"argument": "forgetting", "remedy": "Choose another `forgetting`"}),
        ({"forgetting": 0.0, "loss": "cross_entropy"}, {"argument": "forgetting"}),
    ],
)
def test_invalid_arguments(arguments: Any, fields: dict[str, Any]) -> None:
    with raises(ParameterError, where="NTKRLS", **fields):
        op.nn.NTKRLS(mlp(), **arguments)
