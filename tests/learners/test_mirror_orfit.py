"""ORFit with potentials against batch Bregman projections."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import onepass as op
from onepass.errors import MergeError, ParameterError
from raising import raises

SETTINGS: list[dict[str, Any]] = [
    {"potential": 1.5}, {"potential": 2.0}, {"potential": 3.0},
    {"potential": "entropy", "scale": 0.1},
]  # fmt: skip


def rows(n: int = 6, d: int = 12, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n)


def mirror(params: dict[str, Any], w: Any) -> Any:
    """The gradient of the potential."""
    if params["potential"] == "entropy":
        return np.arcsinh(w / params["scale"])
    return np.sign(w) * np.abs(w) ** (params["potential"] - 1.0)


def potential(params: dict[str, Any], w: Any) -> float:
    if params["potential"] == "entropy":
        b = params["scale"]
        return float((w * np.arcsinh(w / b) - np.sqrt(w**2 + b**2)).sum())
    return float((np.abs(w) ** params["potential"]).sum() / params["potential"])


@pytest.mark.parametrize("start", [0.0, 0.3])
@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_theorem_weights_are_the_bregman_projection_on_all_rows(
    params: dict[str, Any], start: float
) -> None:
    """With unlimited memory, one pass gives argmin D(w, w₀) subject to X w = y."""
    X, y = rows()
    first = np.full(12, start) * np.sign(X[0])
    model = op.MirrorORFitRegressor(memory=None, initial_coef=first, **params)
    model.partial_fit(X, y)
    z = mirror(params, first)
    solve: Any = minimize
    batch = solve(
        lambda w: potential(params, w) - z @ w, np.linalg.lstsq(X, y, rcond=None)[0],
        jac=lambda w: mirror(params, w) - z, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: X @ w - y, "jac": lambda _: X},
        options={"maxiter": 1000, "ftol": 1e-15},
    )  # fmt: skip
    np.testing.assert_allclose(X @ model.coef_, y, atol=1e-10)
    np.testing.assert_allclose(model.coef_, batch.x, atol=1e-5)


@pytest.mark.parametrize("params", [*SETTINGS, {"potential": 1.1}], ids=str)
def test_change_of_the_dual_weights_is_in_the_span_of_the_rows(params: dict[str, Any]) -> None:
    """The optimality condition of the projection, to rounding."""
    X, y = rows(20, 60)
    model = op.MirrorORFitRegressor(memory=None, **params).fit(X, y)
    z = model.duals_[:, 0]
    left = z - X.T @ np.linalg.lstsq(X.T, z, rcond=None)[0]
    assert np.abs(left).max() < 1e-10 * np.abs(z).max()
    np.testing.assert_allclose(X @ model.coef_, y, atol=1e-10)


@pytest.mark.parametrize("memory", [None, 3])
def test_quadratic_potential_is_orfit(memory: int | None) -> None:
    X, y = rows(10, 15)
    ours = op.MirrorORFitRegressor(2.0, memory)
    orfit = op.ORFitRegressor(memory)
    np.testing.assert_allclose(ours.test_then_train(X, y), orfit.test_then_train(X, y), atol=1e-10)
    np.testing.assert_allclose(ours.coef_, orfit.coef_, atol=1e-10)


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_row_is_fitted_without_changing_predictions_in_memory(params: dict[str, Any]) -> None:
    X, y = rows(10, 15)
    model = op.MirrorORFitRegressor(memory=4, **params).fit(X[:9], y[:9])
    U, before = model.directions_.copy(), model.coef_
    model.learn_one(X[9], y[9])
    np.testing.assert_allclose(X[9] @ model.coef_, y[9], atol=1e-10)
    np.testing.assert_allclose(U.T @ model.coef_, U.T @ before, atol=1e-9)
    assert model.directions_.shape == (15, 4)


@pytest.mark.parametrize("potential", [1.02, 3.0, 4.0, "entropy"])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_rows_are_fitted_in_all_units(potential: Any, size: float) -> None:
    X, y = rows(20, 50)
    model = op.MirrorORFitRegressor(potential, None).fit(X / size, y * size)
    np.testing.assert_allclose(X @ model.coef_ / size, y * size, atol=1e-9 * size)


@pytest.mark.parametrize("potential", [1.1, 3.0, 4.0])
def test_weights_that_become_zero(potential: float) -> None:
    X, y = np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 1.0])
    model = op.MirrorORFitRegressor(potential, None).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1.0, 0.0], atol=1e-4)


def test_sparse_weights_are_found_from_fewer_rows() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(40, 100)), np.zeros(100)
    w[:4] = [1.0, -2.0, 3.0, -4.0]
    errors = [abs(op.MirrorORFitRegressor(q, None).fit(X, X @ w).coef_ - w).max() for q in (2, 1.1)]
    assert errors[0] > 1.0
    assert errors[1] < 1e-3


def test_rows_that_contradict_the_past_are_counted() -> None:
    X, y = rows(6, 4)
    model = op.MirrorORFitRegressor(memory=None).fit(X, y)
    assert model.inconsistent_rows_ == 2
    np.testing.assert_allclose(X[:4] @ model.coef_, y[:4], atol=1e-10)


@pytest.mark.parametrize(
    ("params", "argument"),
    [({"potential": 1.0}, "potential"), ({"potential": "l1"}, "potential"),
     ({"memory": 0}, "memory"),
     ({"potential": "entropy", "scale": 0.0}, "scale")],
)  # fmt: skip
def test_invalid_parameters_are_refused(params: dict[str, Any], argument: str) -> None:
    with raises(ParameterError, where="MirrorORFitRegressor.fit", argument=argument):
        op.MirrorORFitRegressor(**params).fit(*rows())


def test_merge_is_refused_with_a_reason() -> None:
    X, y = rows()
    with raises(MergeError, got="one with a potential"):
        op.MirrorORFitRegressor().fit(X, y).merge(op.MirrorORFitRegressor().fit(X, y))
