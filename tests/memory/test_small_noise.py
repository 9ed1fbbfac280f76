"""ORFit with tiny noise equals ridge regression, also with repeated and dependent rows.

The rows are sums of a few, of numbers so short that float32 holds them and their sums exactly. So
they are dependent to the last digit, and their ridge solution is known from their coordinates.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from onepass import ORFitRegressor
from onepass.memory import Principal, Sketch
from sampling import sample
from small_noise import NOISES, Floats, Rows, rows

NEAR = {np.float64: 1e-12, np.float32: 2e-5}


def ridge(found: Rows, noise: float) -> Floats:
    """argmin ‖y − X w‖² + r ‖w‖², in coordinates that are orthonormal in the span of the rows."""
    L = np.linalg.cholesky(found.B @ found.B.T)
    A = np.vstack((found.Z @ L, np.sqrt(noise) * np.eye(len(L))))
    b = np.linalg.lstsq(A, np.append(found.y, np.zeros(len(L))), rcond=None)[0]
    return np.asarray(found.B.T @ np.linalg.solve(L.T, b))


KINDS = [("repeated", 40, 60), ("dependent", 40, 60), ("all of them", 20, 200)]
all_kinds = pytest.mark.parametrize(("kind", "p", "n"), KINDS)


@pytest.mark.parametrize(
    ("kind", "p", "n", "dtype", "start"),
    sample(
        [
            (*kind, *rest)
            for kind in KINDS
            for rest in product(NEAR, [Principal(50).start, Sketch(50).start])
        ],
        6,
        "small noise",
    ),
)
def test_memory_with_any_noise_equals_ridge(
    start: Callable[..., Any], kind: str, p: int, n: int, dtype: Any
) -> None:
    found = rows(kind, p, n)
    assert (found.X.astype(np.float32) == found.X).all()
    for noise in NOISES:
        memory, w = start(p, 1, noise, dtype), np.zeros(p, dtype)
        for x, y in zip(found.X.astype(dtype), found.y, strict=True):
            e = np.array([y - x.astype(float) @ w.astype(float)])
            step = memory.learn(w, x[:, None], e, np.full(1, noise))
            w, memory = step.w, step.memory
        right = ridge(found, noise)
        np.testing.assert_allclose(w, right, atol=NEAR[dtype] * np.abs(right).max())


@all_kinds
def test_orfit_regressor_with_any_noise_equals_ridge(kind: str, p: int, n: int) -> None:
    found = rows(kind, p, n)
    for noise in NOISES:
        model = ORFitRegressor(memory=50, noise=noise).fit(found.X, found.y)
        right = ridge(found, noise)
        np.testing.assert_allclose(model.coef_, right, atol=1e-12 * np.abs(right).max())


@pytest.mark.parametrize(
    ("kind", "p", "n", "dtype", "by_layer"),
    sample(
        [
            (*kind, *rest)
            for kind in KINDS
            for rest in product(["float64", "float32"], [False, True])
        ],
        4,
        "networks",
    ),
)
def test_orfit_network_with_any_noise_equals_ridge(
    kind: str,
    p: int,
    n: int,
    dtype: str,
    by_layer: bool,  # noqa: FBT001
) -> None:
    torch = pytest.importorskip("torch")
    from onepass.nn import ORFit

    found, kind_ = rows(kind, p, min(n, 50)), getattr(torch, dtype)
    for noise in (1e-12, 1e-6, 1.0):
        module = torch.nn.Linear(p, 1, bias=False).to(kind_)
        torch.nn.init.zeros_(module.weight)
        net = ORFit(module, memory=50, noise=noise, by_layer=by_layer)
        net.learn(found.X, found.y)
        right = ridge(found, noise)
        near = 2e-4 if dtype == "float32" else 1e-12
        predictions = module.weight[0].detach().double().numpy()
        np.testing.assert_allclose(predictions, right, atol=near * np.abs(right).max())


@pytest.mark.parametrize("dtype", NEAR)
def test_small_new_direction_above_rounding_is_learned(dtype: Any) -> None:
    """The second of two nearly equal rows moves the weights along their difference."""
    noise, little = 1e-12, 1e-4
    g = np.zeros((30, 2), dtype)
    g[:15, 0] = g[:15, 1] = 1.0
    g[20, 1] = little
    memory, w = Principal(5).start(30, 1, noise, dtype), np.zeros(30, dtype)
    for j, target in enumerate((1.0, 2.0)):
        e = np.array([target]) - g[:, j : j + 1].T.astype(float) @ w
        step = memory.learn(w, g[:, j : j + 1], e, np.full(1, noise))
        w, memory = step.w, step.memory
    assert w[20] == pytest.approx(1.0 / little, rel=1e-2)
    assert memory.subspace.rank == 2
