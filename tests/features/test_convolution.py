"""Random convolution equals its formula, computed patch by patch."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from onepass.errors import NumericalError, ParameterError, ShapeError
from onepass.features import RandomConvolution
from onepass.features.convolution import pooling_matrix
from raising import raises


def slowly(picture: np.ndarray, feature: RandomConvolution) -> np.ndarray:
    """One picture, patch after patch."""
    edge = [feature.padding] * 2
    picture = np.pad(picture, [[0, 0], edge, edge])
    _, h, w = picture.shape
    s, F = feature.size, feature.filters
    if feature.overlap:
        return smoothly(picture, feature)
    down, across = (
        np.round(np.linspace(0, n - s + 1, feature.pool + 1)).astype(int) for n in (h, w)
    )
    sums = np.zeros((feature.pool, feature.pool, 2, F))
    for i in range(feature.pool):
        for j in range(feature.pool):
            places = [
                (a, b) for a in range(down[i], down[i + 1]) for b in range(across[j], across[j + 1])
            ]
            for a, b in places:
                sums[i, j] += sides(picture[:, a : a + s, b : b + s], feature) / len(places)
    return sums.ravel() ** feature.power


def sides(patch: np.ndarray, feature: RandomConvolution) -> np.ndarray:
    """Responses to a patch beyond the threshold, (2, filters)."""
    p = patch.ravel()
    z = feature.filters_.astype(float) @ (p - p.mean()) / np.sqrt(p.var() + feature.contrast**2)
    return np.maximum([z - feature.threshold, -z - feature.threshold], 0)


def smoothly(picture: np.ndarray, feature: RandomConvolution) -> np.ndarray:
    """Means weighted by normal densities about the middles of cells."""
    s, pool = feature.size, feature.pool
    h, w = (n - s + 1 for n in picture.shape[1:])
    means = []
    for i in range(pool):
        for j in range(pool):
            middle = [(i + 0.5) * h / pool - 0.5, (j + 0.5) * w / pool - 0.5]
            spread = [feature.overlap * h / pool, feature.overlap * w / pool]
            total, weights = np.zeros((2, feature.filters)), 0.0
            for a in range(h):
                for b in range(w):
                    weight = float(norm.pdf([a, b], middle, spread).prod())
                    total += weight * sides(picture[:, a : a + s, b : b + s], feature)
                    weights += weight
            means.append(total / weights)
    return np.ravel(means) ** feature.power


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "more", [{}, {"padding": 2, "power": 0.5}, {"padding": 1, "overlap": 0.4, "power": 0.7}]
)
def test_convolution_equals_formula(channels: int, more: dict[str, Any]) -> None:
    X = np.random.default_rng(1).random((4, channels, 9, 7))
    feature = RandomConvolution(5, size=3, pool=2, threshold=0.3, **more).learn(X)
    expected = [slowly(picture, feature) for picture in X]
    assert_allclose(feature.transform(X), expected, atol=1e-6)
    assert_allclose(feature.transform(X.reshape(4, -1)), feature.transform(X), atol=1e-12)
    assert_allclose(feature.filters_.sum(axis=1), 0.0, atol=1e-6)
    assert_allclose(np.linalg.norm(feature.filters_, axis=1), 1.0, rtol=1e-6)
    with pytest.raises(ShapeError, match="shape"):
        feature.transform(X.transpose(0, 1, 3, 2))
    with raises(ShapeError, got="1000"):
        feature.grow(1000)


def test_narrow_pooling_cells_weight_only_center() -> None:
    assert_allclose(pooling_matrix((1, 5), 1, overlap=1e-9), [[0, 0, 1, 0, 0]])
    assert_allclose(pooling_matrix((1, 4), 1, overlap=1e-9), [[0, 0.5, 0.5, 0]])
    assert_allclose(pooling_matrix((1, 5), 1, overlap=1e-310), [[0, 0, 1, 0, 0]])
    assert_allclose(pooling_matrix((3, 4), 2, overlap=1e9), np.full((4, 12), 1 / 12))


@pytest.mark.parametrize("wrong", [{"pool": "4"}, {"pool": None}, {"source": ["patches"]}])
def test_invalid_options_are_named(wrong: dict[str, Any]) -> None:
    with raises(ParameterError, argument=next(iter(wrong))):
        RandomConvolution(5, size=3, **wrong).learn(np.zeros((2, 64)))


def test_overflowing_images_are_refused() -> None:
    X = np.random.default_rng(2).random((3, 64))
    with raises(NumericalError, got="rows with values up to 9"):
        RandomConvolution(5, size=3, pool=2).learn(1e200 * X)
    assert RandomConvolution(5, size=3, pool=2, contrast=1e300).learn(X).transform(X).max() == 0.0
