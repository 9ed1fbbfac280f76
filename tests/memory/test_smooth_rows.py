"""Ridge 0 on smooth trajectories, whose first rows are dependent up to rounding."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import onepass as op
from sampling import sample

_ROWS = 1500


def _sines(rng: np.random.Generator, d: int) -> np.ndarray:
    t = np.arange(_ROWS)[:, None] * 0.008
    return np.sin(2 * np.pi * rng.uniform(0.05, 1.0, d) * t + rng.uniform(0.0, 6.0, d))


def _from_rest(rng: np.random.Generator, d: int) -> np.ndarray:
    t = np.arange(_ROWS)[:, None] * 0.01
    return np.sin(rng.uniform(0.5, 5.0, d) * t) * np.minimum(t, 1.0) ** 3


def _ramps(rng: np.random.Generator, d: int) -> np.ndarray:
    t = np.arange(_ROWS)[:, None] / 100.0
    return np.maximum(t - np.linspace(0.0, 13.0, d), 0.0) * rng.uniform(0.1, 10.0, d)


@pytest.mark.parametrize(
    ("rows", "dependent", "forgetting", "block"),
    sample(
        list(product([_sines, _from_rest, _ramps], [0, 1], [1.0, 0.999], [1, 97, _ROWS])),
        18,
        "smooth rows",
    ),
)
def test_smooth_rows_give_least_squares(
    rows: Callable[[np.random.Generator, int], np.ndarray],
    dependent: int,
    forgetting: float,
    block: int,
) -> None:
    rng = np.random.default_rng(3)
    X = rows(rng, 12)
    if dependent:
        X = np.column_stack((X, X[:, :3] @ (1.0, -2.0, 0.5)))
    y = X @ rng.normal(size=X.shape[1]) + 0.1 * rng.normal(size=_ROWS)
    rule = op.forgetting.Exponential(forgetting) if forgetting < 1.0 else 1.0
    learner = op.RLSRegressor(ridge=0.0, fit_intercept=False, forgetting=rule)
    for i in range(0, _ROWS, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    root = np.sqrt(forgetting ** np.arange(_ROWS)[::-1])
    w = np.linalg.lstsq(X * root[:, None], y * root, rcond=1e-12)[0]
    error = np.abs((X @ (learner.coef_ - w)) * root).max() / np.abs(y).max()
    assert error < (1e-6 if dependent else 1e-9)
    assert dependent or np.isfinite(learner.coef_std_).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_floor_does_not_preserve_directions_of_rounding_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = _sines(rng, 12)
    y = X @ rng.normal(size=12) + 0.1 * rng.normal(size=_ROWS)
    rule = op.forgetting.Bounded(0.999)
    learner = op.RLSRegressor(ridge=0.0, fit_intercept=False, forgetting=rule).fit(X, y)
    root = np.sqrt(0.999 ** np.arange(_ROWS)[::-1])
    w = np.linalg.lstsq(X * root[:, None], y * root, rcond=None)[0]
    assert np.abs(X[-200:] @ (learner.coef_ - w)).max() < 0.1
