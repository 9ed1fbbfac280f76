"""Filters of networks with arbitrarily small noise and repeated rows.

Rows are sums of a few basis rows whose values float32 represents exactly, and the module is linear:
the Kalman filter's estimate is the ridge solution, computed from the coordinates of the rows.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kalman_dense import mlp, stream  # noqa: E402

import onepass as op  # noqa: E402
from sampling import sample  # noqa: E402
from small_noise import NOISES, Rows, rows  # noqa: E402

NEAR = {"float64": 1e-12, "float32": 2e-5}


def ridge_solution(found: Rows, noise: float) -> tuple[Any, Any]:
    """The ridge solution, and √(xᵀ P x) of each row."""
    L = np.linalg.cholesky(found.B @ found.B.T)
    A = np.vstack((found.Z @ L, np.sqrt(noise) * np.eye(len(L))))
    Q, R = np.linalg.qr(A)
    b = np.linalg.solve(R, Q.T @ np.append(found.y, np.zeros(len(L))))
    deviations = np.sqrt(noise) * np.linalg.norm(np.linalg.solve(R.T, (found.Z @ L).T), axis=0)
    return found.B.T @ np.linalg.solve(L.T, b), deviations


LOFI = list(
    product(NEAR, [False, True], [("repeated", 40), ("dependent", 40), ("all of them", 20)])
)
FULL = list(
    product(
        [("EKF", 1), ("EKF", 10), ("EKF", 36), ("ORFit", 10), ("NTKRLS", 10)],
        NEAR,
        ["repeated", "dependent", "all of them"],
    )
)


@pytest.mark.parametrize(("dtype", "block_update", "data"), sample(LOFI, 3, "small noise, LoFi"))
def test_lofi_equals_kalman_filter_for_any_noise(
    dtype: str,
    block_update: bool,  # noqa: FBT001
    data: tuple[str, int],
) -> None:
    kind, p = data
    found = rows(kind, p, 36)
    for noise in NOISES:
        module = torch.nn.Linear(p, 1, bias=False).to(getattr(torch, dtype))
        torch.nn.init.zeros_(module.weight)
        net = op.nn.LoFi(module, 22, noise=noise, block_update=block_update)
        for part in (slice(0, 12), slice(12, 36)):  # more than there are columns
            net.learn(found.X[part], found.y[part])
        right, deviations = ridge_solution(found, noise)
        w = module.weight[0].detach().double().numpy()
        np.testing.assert_allclose(w, right, atol=NEAR[dtype] * np.abs(right).max())
        assert net.rows_refused_ == 0
        std = net.predict(found.X, return_std=True)[1].double().numpy().ravel()
        np.testing.assert_allclose(std, deviations, rtol=1e2 * NEAR[dtype])


WHOLE: dict[str, Any] = {
    "EKF": op.nn.EKF,
    "ORFit": lambda module, noise, **more: op.nn.ORFit(module, None, noise, **more),
    "NTKRLS": op.nn.NTKRLS,
}


@pytest.mark.parametrize(
    ("learner_and_width", "dtype", "kind"), sample(FULL, 8, "small noise, full covariance")
)
def test_full_covariance_equals_kalman_filter(
    learner_and_width: tuple[str, int], dtype: str, kind: str
) -> None:
    learner, width = learner_and_width
    found = rows(kind, 20, 36)
    for noise in NOISES:
        module = torch.nn.Linear(20, 1, bias=False).to(getattr(torch, dtype))
        torch.nn.init.zeros_(module.weight)
        net = WHOLE[learner](module, noise, block_update=width > 1)
        for i in range(0, 36, width):
            net.learn(found.X[i : i + width], found.y[i : i + width])
        right, deviations = ridge_solution(found, noise)
        w = module.weight[0].detach().double().numpy()
        near = max(4.0 * NEAR[dtype], 1e-14 / np.sqrt(noise))  # C is known to its rounding
        np.testing.assert_allclose(w, right, atol=near * np.abs(right).max())
        std = net.predict(found.X, return_std=True)[1].double().numpy().ravel()
        if learner == "NTKRLS":
            std = std * np.sqrt(noise)
        np.testing.assert_allclose(std, deviations, rtol=near)


@pytest.mark.parametrize("time", [{}, {"process_noise": 1e-3, "decay": 0.95}])
def test_repeated_rows_in_both_filters(time: Any) -> None:
    X, Y = stream(4, noise=0.1)
    X, Y = np.tile(X, (5, 1)), np.tile(Y, (5, 1)) + 0.01 * stream(20, seed=1)[1]
    for noise, near in ((1e-4, 1e-6), (1e-8, 1e-3)):
        ekf = op.nn.EKF(mlp(), noise, **time).learn(X, Y)
        lofi = op.nn.LoFi(mlp(), 31, noise, **time).learn(X, Y)
        torch.testing.assert_close(
            lofi.network.weights(), ekf.network.weights(), rtol=0.0, atol=near
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_repeated_rows_add_no_information_elsewhere(dtype: str) -> None:
    """Rounding divided by the root of a small noise must not count as information."""
    module = torch.nn.Linear(30, 1, bias=False).to(getattr(torch, dtype))
    x = np.zeros((1, 30))
    x[0, :10] = np.arange(1.0, 11.0) / 3.0
    net = op.nn.LoFi(module, 3, noise=1e-10)
    for k in range(150):
        net.learn((1.0 + 0.1 * (k % 7)) * x, [float(k % 2)])
    other = np.zeros((2, 30))
    other[0, :2], other[1, 20] = (2.0, -1.0), 1.0  # orthogonal to the row
    std = net.predict(other, return_std=True)[1].double().numpy().ravel()
    np.testing.assert_allclose(std, [np.sqrt(5.0), 1.0], rtol=1e-3)
