"""Row-wise standardisation of very large and very small values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from onepass.features import RandomReLU


@pytest.mark.parametrize(("dtype", "power"), [(np.float32, 100), (np.float64, 900)])
def test_row_standardised_relu_does_not_depend_on_units(dtype: type, power: int) -> None:
    X = np.random.default_rng(0).normal(size=(20, 9)).astype(dtype)
    units = RandomReLU(30, standardize="row")
    known = units.learn_transform(X)
    mean, deviation = X.mean(axis=1, keepdims=True), X.std(axis=1, keepdims=True)
    plain = (X - mean) / deviation @ units.weights_.astype(dtype) + units.bias_
    assert_allclose(known, np.maximum(plain, 0.0), rtol=1e-4, atol=1e-5)
    for exponent in (power, -power):  # whose squares overflow, or are 0
        assert_array_equal(units.transform(np.ldexp(X, exponent)), known)
