from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import pytest

from raising import raises

torch = pytest.importorskip("torch")

from kalman_dense import Dense, along, mlp, stream  # noqa: E402

import onepass as op  # noqa: E402
from onepass import linalg  # noqa: E402
from onepass.errors import (  # noqa: E402
    MemoryFullWarning,
    MergeError,
    NumericalError,
    ParameterError,
    RowsRefusedWarning,
)
from sampling import sample  # noqa: E402

nn = torch.nn


def weights(net: Any) -> Any:
    return net.network.weights().double().numpy()


@pytest.mark.parametrize("c", [1, 2])
def test_orfit_is_ntkrls_with_forgetting_zero_is_ekf_with_noise_zero(c: int) -> None:
    X, Y = stream(14, c=c)
    module = mlp(c=c)
    ours = op.nn.ORFit(mlp(c=c), memory=None)
    dense = Dense(module, 1.0)
    others = {
        "ntkrls": op.nn.NTKRLS(mlp(c=c), forgetting=0.0),
        "ekf": op.nn.EKF(mlp(c=c), noise=0.0),
        "ekf, another prior": op.nn.EKF(mlp(c=c), noise=0.0, prior=7.0),
        "one row a block": op.nn.EKF(mlp(c=c), noise=0.0, block_update=True),
    }
    for i in range(len(X)):
        dense.textbook(X[i], Y[i], 0.0)
        ours.learn(X[i : i + 1], Y[i : i + 1])
        np.testing.assert_allclose(weights(ours), dense.w, atol=1e-8)
        for name, net in others.items():
            net.learn(X[i : i + 1], Y[i : i + 1])
            np.testing.assert_allclose(weights(net), weights(ours), atol=1e-8, err_msg=name)


TIMES = [{}, {"process_noise": 0.01}, {"decay": 0.95}, {"process_noise": 0.1, "decay": 0.9}]


@pytest.mark.parametrize(
    ("noise", "time"), sample(list(product([1.0, 1e-4, 0.0], TIMES)), 6, "EKF equals textbook")
)
def test_equals_textbook_filter(noise: float, time: Any) -> None:
    X, Y = stream(25 if noise or "process_noise" in time else 15, c=2, noise=0.1)
    if not noise and "process_noise" not in time:
        X, Y = X[:15], Y[:15]  # two outputs, 38 weights: all are settled then
    dense = Dense(mlp(c=2), 0.5)
    net = op.nn.EKF(mlp(c=2), noise=noise, prior=0.5, **time)
    for i in range(len(X)):
        dense.textbook(X[i], Y[i], noise, **time)
        net.learn(X[i : i + 1], Y[i : i + 1])
        np.testing.assert_allclose(weights(net), dense.w, atol=1e-7)
    J = np.stack([dense.row(x)[1] for x in X])
    variances = np.einsum("nkp,pq,nkq->nk", J, dense.P, J)
    predictions, std = net.predict(X, return_std=True)
    np.testing.assert_allclose(std.numpy() ** 2, variances, atol=1e-7)
    np.testing.assert_allclose(predictions, net.predict(X))


def test_block_is_one_augmented_row() -> None:
    X, Y = stream(5)
    net = op.nn.EKF(mlp(), 0.1, 0.02, decay=0.9, block_update=True).learn(X, Y)
    dense = Dense(mlp(), 1.0)
    rows = [dense.row(x) for x in X]
    H, e = np.vstack([J for _, J in rows]), Y[:, 0] - np.hstack([f for f, _ in rows])
    K = np.linalg.solve(H @ dense.P @ H.T + 0.1 * np.eye(5), H @ dense.P).T
    w, P = dense.w + K @ e, dense.P - K @ H @ dense.P
    for _ in range(5):
        w, P = dense.start + 0.9 * (w - dense.start), 0.81 * P + 0.02 * np.eye(len(w))
    np.testing.assert_allclose(weights(net), w, atol=1e-12)
    Q, root, s = net.posterior_.Q.numpy(), net.posterior_.root, net.posterior_.beyond
    np.testing.assert_allclose(Q @ root @ root.T @ Q.T + s * (np.eye(len(P)) - Q @ Q.T), P)


@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_linear_orfit_with_noise_is_ridge_regression(noise: float) -> None:
    X, Y = stream(30, d=7, noise=0.3)
    linear = nn.Linear(7, 1, bias=False).double()
    nn.init.zeros_(linear.weight)
    rls = op.RLSRegressor(ridge=noise, fit_intercept=False, forgetting=1.0).fit(X, Y[:, 0])
    orfit = op.nn.ORFit(linear, memory=None, noise=noise).learn(X, Y)
    np.testing.assert_allclose(weights(orfit), rls.coef_, atol=1e-10)
    explicit = op.nn.ORFit(
        nn.Linear(7, 1, bias=False).double(), memory=op.memory.Basis(), noise=noise
    )
    nn.init.zeros_(explicit.module.weight)
    np.testing.assert_allclose(weights(explicit.learn(X, Y)), rls.coef_, atol=1e-10)


def test_printed_gain_of_the_paper_is_wrong() -> None:
    (x,), (y,) = stream(1)
    dense = Dense(mlp(), 1.0)
    outputs, H = dense.row(x)
    g, f, e = H[0], outputs[0], float(y[0] - outputs[0])
    right = op.nn.EKF(mlp(), noise=0.0).learn(x[None], y[None])
    assert abs(g @ (weights(right) - dense.w) - e) < 1e-10  # fits the linearised row
    printed = dense.P @ g / (f * np.linalg.norm(g))  # a number for ∇f, however it is read
    assert abs(g @ (printed * e) - e) > 0.1


def test_float32_is_near_float64() -> None:
    X, Y = stream(40, noise=0.1)
    double = op.nn.EKF(mlp(), 0.05, 1e-3).learn(X, Y)
    single = op.nn.EKF(mlp(dtype=torch.float32), 0.05, 1e-3).learn(X, Y)
    np.testing.assert_allclose(weights(single), weights(double), atol=1e-3)
    assert single.predict(X).dtype == torch.float32
    assert op.nn.EKF(mlp(dtype=torch.bfloat16), 0.05).learn(X, Y).rows_refused_ == 0


def test_noise_averages_contradictory_rows() -> None:
    X, Y = stream(150, seed=3, noise=0.5)
    X_test, truth = stream(400, seed=4)
    error = {}
    for noise in (0.0, 1.0):
        net = op.nn.ORFit(mlp(width=100), memory=None, noise=noise).learn(X, Y)
        error[noise] = float((net.predict(X_test) - torch.from_numpy(truth)).square().mean().sqrt())
    assert error[1.0] < 0.3  # of targets that have a deviation of 1.1
    assert error[0.0] > 2.0 * error[1.0]


def test_process_noise_tracks_drift() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = np.where(np.arange(120)[:, None] < 60, 1.0, -1.0) * X[:, :1]
    late = {}
    for q in (0.0, 1e-1):
        net = op.nn.EKF(nn.Linear(3, 1).double(), 0.1, q)
        late[q] = float((net.test_then_train(X, Y)[-30:] - torch.from_numpy(Y[-30:])).abs().mean())
    assert late[1e-1] < 0.1 * late[0.0]


@pytest.mark.parametrize("loss", ["one_hot", "cross_entropy"])
def test_classification_in_one_pass(loss: Any) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 120)
    X = rng.normal(size=(120, 3)) + 3.0 * np.eye(3)[y]
    net = op.nn.EKF(mlp(c=3), noise=1.0, loss=loss).learn(X[:70], y[:70])
    assert (net.predict(X[70:]).numpy() == y[70:]).mean() > 0.85
    with raises(ParameterError, argument="return_std", remedy="A class has no"):
        net.predict(X, return_std=True)


# -- invalid rows ---------------------------------------------------------------------------------


def test_inconsistent_rows_are_counted() -> None:
    X, Y = stream(1)
    net = op.nn.EKF(nn.Linear(3, 1, bias=False).double(), noise=0.0)
    net.learn(X, Y).learn(X, Y)
    assert net.inconsistent_rows_ == 0
    net.learn(X, Y + 1.0)
    assert net.inconsistent_rows_ == 1
    np.testing.assert_allclose(net.predict(X), Y)


def test_uninformative_rows_leave_weights_unchanged() -> None:
    X, Y = stream(6)
    dead = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1, bias=False)).double()
    nn.init.constant_(dead[0].bias, -100.0)
    for noise in (0.0, 1.0):
        net = op.nn.EKF(dead, noise=noise)
        before = weights(net)
        net.learn(X, Y)
        assert (weights(net) == before).all()
        assert net.inconsistent_rows_ == (6 if not noise else 0)


@pytest.mark.parametrize("bias", [np.nan, np.inf, 1.5e308])
def test_nonfinite_loss_warns_and_is_not_learned(bias: float) -> None:
    X, Y = stream(6)
    for noise in (0.0, 1.0):
        module = mlp()
        net = op.nn.EKF(module, noise)
        nn.init.constant_(module[2].bias, bias)
        nn.init.constant_(module[2].weight, np.sign(bias) * 1e308)
        before = weights(net)
        if np.isfinite(bias):
            with pytest.warns(RowsRefusedWarning, match="must be finite"):
                net.learn(X[:1], Y[:1])
        else:
            with pytest.raises(NumericalError, match=r"finite, but '2\.(weight|bias)' contains"):
                net.learn(X[:1], Y[:1])
        np.testing.assert_array_equal(weights(net), before)
        assert (net.rows_refused_, net.posterior_) == (int(np.isfinite(bias)), None)


def test_all_weights_determined_warns_once() -> None:
    X, Y = stream(9, d=2)
    net = op.nn.EKF(nn.Linear(2, 1, bias=False).double(), noise=0.0)
    with pytest.warns(MemoryFullWarning, match="determine all 2") as caught:
        net.learn(X, Y)
    assert len(caught) == 1
    assert net.posterior_.rank == len(net.posterior_.columns) == 2
    assert net.inconsistent_rows_ == 7


def test_memory_is_bounded() -> None:
    X, Y = stream(80, noise=0.1)
    net = op.nn.EKF(mlp(), 0.1).learn(X[:40], Y[:40])
    before = net.nbytes
    assert before > 0
    assert net.learn(X, Y).nbytes == before
    assert op.nn.EKF(mlp()).nbytes == 0


def test_prior_predictions_before_learning() -> None:
    net = op.nn.EKF(nn.Linear(2, 1, bias=False).double(), prior=4.0)
    predictions, std = net.predict([[3.0, 4.0]], return_std=True)
    assert predictions.shape == std.shape == (1,)
    assert float(std[0]) == pytest.approx(10.0)
    assert net.posterior_ is None
    assert along(net, np.zeros((0, 2)), np.zeros((0, 1)), lambda _: 0.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"noise": -1.0}, {"argument": "noise"}),
        ({"prior": 0.0}, {"argument": "prior"}),
        ({"process_noise": -1e-9}, {"argument": "process_noise"}),
        ({"decay": 1.5}, {"argument": "decay", "remedy": "Choose another `decay`"}),
        ({"decay": 0.0}, {"argument": "decay"}),
        ({"noise": 0.0, "loss": "cross_entropy"}, {"argument": "noise"}),
    ],
)
def test_invalid_arguments(arguments: Any, fields: dict[str, Any]) -> None:
    with raises(ParameterError, where="EKF", **fields):
        op.nn.EKF(mlp(), **arguments)


@pytest.mark.parametrize("where", ["masked", "cuda"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_same_filter_on_cuda(noise: float, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    X, Y = stream(12, c=2)
    kinds = {
        "EKF": {"noise": noise, "process_noise": 0.01},
        "NTKRLS": {"forgetting": 0.9 if noise else 0.0},
        "LoFi": {"memory": 5, "noise": 0.1, "process_noise": 0.01, "decay": 0.9},
        "ORFit": {"memory": None, "noise": noise},
    }
    given = {name: {"block_update": True, **each} for name, each in kinds.items()}
    right = {name: getattr(op.nn, name)(mlp(c=2), **each) for name, each in given.items()}
    for net in right.values():
        net.learn(X[:5], Y[:5]).learn(X[5:], Y[5:])
    if where == "masked":
        for place in ("onepass.linalg", "onepass.linalg.backend", "onepass.linalg.vectors"):
            monkeypatch.setattr(f"{place}.on_device", linalg.is_tensor)
    for name, each in given.items():
        module = mlp(c=2).to("cuda" if where == "cuda" else "cpu")
        net = getattr(op.nn, name)(module, **each).learn(X[:5], Y[:5]).learn(X[5:], Y[5:])
        found, expected = net.network.weights().cpu(), right[name].network.weights()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8, msg=name)
        if name != "ORFit":
            std = net.predict(X, return_std=True)[1].cpu()
            expected = right[name].predict(X, return_std=True)[1]
            torch.testing.assert_close(std, expected, rtol=0, atol=1e-7, msg=name)


def test_merge_error_names_orfit_with_noise() -> None:
    X, Y = stream(40, noise=0.3)
    parts = slice(0, 20), slice(20, 40)
    ekf = op.nn.EKF(nn.Linear(3, 1).double(), noise=0.6, prior=2.0)
    nn.init.zeros_(ekf.module.weight)
    nn.init.zeros_(ekf.module.bias)
    one, two = (op.nn.ORFit(deepcopy(ekf.module), None, 0.6 / 2.0) for _ in parts)
    one.learn(X[parts[0]], Y[parts[0]])
    two.learn(X[parts[1]], Y[parts[1]])
    with raises(MergeError, remedy="is the same filter and can be merged"):
        ekf.learn(X, Y).merge(two)
    np.testing.assert_allclose(weights(one.merge(two)), weights(ekf), atol=1e-12)
