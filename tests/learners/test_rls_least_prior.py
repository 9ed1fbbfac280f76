"""The least prior: it supports undetermined weights, and goes once the rows determine all."""

import os
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass import native
from onepass.forgetting import Window

SEED = int(os.environ["ONEPASS_TEST_SEED"])


def nearly_dependent(n: int, unit: float, noise: float, d: int = 10) -> tuple[Any, Any]:
    """Features that three sources explain up to a noise."""
    rng = np.random.default_rng(SEED)
    X = unit * (rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + noise * rng.normal(size=(n, d)))
    return X, (X / unit) @ rng.normal(size=d) + 0.01 * rng.normal(size=n)


def by_svd(X: Any, y: Any) -> Any:
    away = X - X.mean(axis=0)
    lengths = np.sqrt((away**2).sum(axis=0))
    return np.linalg.lstsq(away / lengths, y - y.mean(), rcond=1e-15)[0] / lengths


def assert_determined(model: Any, X: Any, y: Any, *, within: float) -> None:
    lengths, expected = X.std(axis=0), by_svd(X, y)
    error = np.linalg.norm((model.coef_ - expected) * lengths)
    assert error < within * np.linalg.norm(expected * lengths)
    assert np.isfinite(model.coef_std_).all()


@pytest.mark.parametrize("noise", [1e-3, 1e-5])
@pytest.mark.parametrize(("unit", "ridge"), [(1e5, 1e-12), (1.0, 0.0)])
@pytest.mark.parametrize("sizes", [[15] * 14, [200, 3], [3, 200]])
def test_merged_rows_that_determine_the_weights_have_no_prior(
    sizes: list[int], unit: float, ridge: float, noise: float
) -> None:
    X, y = nearly_dependent(sum(sizes), unit, noise)
    merged, *others = (
        op.RLSRegressor(ridge).fit(X[end - size : end], y[end - size : end])
        for size, end in zip(sizes, np.cumsum(sizes), strict=True)
    )
    for other in others:
        merged.merge(other)
    assert_determined(merged, X, y, within=1e-7)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("rows", [15, 30])
def test_windows_that_determine_the_weights_have_no_prior(
    rows: int, *, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "loops", None)
    X, y = nearly_dependent(150, 1e5, 1e-4)
    model = op.RLSRegressor(forgetting=Window(rows))
    for i, (x, target) in enumerate(zip(X, y, strict=True), 1):
        model.partial_fit(x[None], target[None])
        if i > 100:
            assert_determined(model, X[i - rows : i], y[i - rows : i], within=1e-6)


@pytest.mark.parametrize("n", [500, 1500, 6000])
def test_equal_columns_share_their_effect(n: int) -> None:
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=n)
    X = np.stack([x, x, x], axis=1)
    coef = op.RLSRegressor().fit(X, x + 0.01 * rng.normal(size=n)).coef_
    np.testing.assert_allclose(coef, 1.0 / 3.0, rtol=0.05)
