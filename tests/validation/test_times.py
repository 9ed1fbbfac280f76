from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.validation.times import time_like


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
def test_single_rows_accept_times_of_numpy(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X, y, times = rng.normal(size=(20, 2)), rng.normal(size=20), np.arange(20).astype(kind)
    rule = op.forgetting.Exponential(half_life=3.0)
    rows, block = op.RLSRegressor(forgetting=rule), op.RLSRegressor(forgetting=rule)
    block.partial_fit(X, y, time=times)
    for x, target, time in zip(X, y, times, strict=True):
        rows.learn_one(x, target, time=time)
    np.testing.assert_allclose(rows.coef_, block.coef_, rtol=1e-9)
    assert time_like(rows.time_, times[-1]) is not None  # the compiled state learns it
