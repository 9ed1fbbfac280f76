import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onepass as op
from onepass.errors import OnepassError
from onepass.validation.times import time_like, times

EARLY = np.datetime64("0001-01-01", "us")
ZONES = st.sampled_from(
    [None, dt.UTC, ZoneInfo("Europe/Berlin"), dt.timezone(dt.timedelta(hours=-9))]
)
UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps"]
DATETIMES = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=ZONES)  # noqa: DTZ001
DATES = st.one_of(
    DATETIMES,
    DATETIMES.map(lambda t: t.date()),
    DATETIMES.map(pd.Timestamp),
    st.builds(
        lambda ns, zone: pd.Timestamp(ns, unit="ns", tz=zone), st.integers(-(10**18), 10**18), ZONES
    ),
    st.builds(np.datetime64, st.integers(-(2**62), 2**62), st.sampled_from(UNITS)),
    st.sampled_from([pd.NaT, np.datetime64("NaT"), np.datetime64("NaT", "us"), None, 1.0, "2020"]),
)


@given(DATES)
def test_single_dates_are_converted_as_those_of_blocks(time: Any) -> None:
    aware = time.tzinfo is not None if isinstance(time, dt.datetime) else None
    converted = time_like(EARLY, time, aware)
    if converted is not None:
        block = times([time], 1, dates=True, last=None)
        assert converted == block[0]
        assert converted.dtype == block.dtype
    elif not isinstance(time, np.datetime64) and not getattr(time, "nanosecond", 0):
        with pytest.raises(OnepassError):
            times([time], 1, dates=True, last=None)


@given(DATETIMES)
def test_datetimes_that_differ_in_zones_are_not_converted(time: Any) -> None:
    for aware in (time.tzinfo is None, None):
        assert time_like(EARLY, time, aware) is None


@given(DATETIMES, st.sampled_from([0, 1]))
def test_datetimes_are_those_of_utc(time: dt.datetime, fold: int) -> None:
    time = time.replace(fold=fold)
    naive = time if time.tzinfo is None else time.astimezone(dt.UTC).replace(tzinfo=None)
    assert times([time], 1, dates=True, last=None)[0] == np.datetime64(naive, "us")


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
