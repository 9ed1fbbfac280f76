"""Streams of rows as users have them: smooth, wide, correlated, rarely excited, in any units.

Each function takes a random generator, the number of rows n and the number of features d, and
returns X (n, d) and y (n,). Some have a greatest number of features and return fewer columns than
asked for; all values are below 1e150.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Stream = tuple[Floats, Floats]

SECONDS_PER_DAY = 86_400.0


def sines(rng: Generator, n: int, d: int) -> Stream:
    """Sines of 0.05 to 1 Hz sampled at 125 Hz: few periods, so that they are nearly dependent."""
    seconds = np.arange(n) / 125.0
    frequencies, phases = rng.uniform(0.05, 1.0, d), rng.uniform(0.0, 2 * np.pi, d)
    X = np.sin(2 * np.pi * frequencies * seconds[:, None] + phases)
    return X, _linear_target(rng, X)


def autoregressive_inputs(rng: Generator, n: int, d: int) -> Stream:
    """Lags of the output and the input (ARX) of a slow process whose input is held 100 rows."""
    inputs = np.repeat(rng.normal(size=(n + d) // 100 + 1), 100)[: n + d]
    outputs = np.zeros(n + d)
    for k in range(2, n + d):
        outputs[k] = 1.985 * outputs[k - 1] - 0.98505 * outputs[k - 2] + 5e-5 * inputs[k - 1]
    output_lags = d // 2
    X = np.hstack([_lags(outputs, d, output_lags), _lags(inputs, d, d - output_lags)])
    return X, outputs[d:] + 0.01 * outputs.std() * rng.normal(size=n)


def powers_of_time(rng: Generator, n: int, d: int) -> Stream:
    """t, t² … up to t²⁵ for a time from 0 to 1: a trend by a polynomial."""
    time = np.linspace(0.0, 1.0, n)
    return time[:, None] ** np.arange(1, min(d, 25) + 1), np.sin(6 * time) + _noise(rng, n)


def powers_of_input(rng: Generator, n: int, d: int) -> Stream:
    """x, x² … up to x²⁵ for random x from 0 to 10."""
    x = rng.uniform(0.0, 10.0, n)
    return x[:, None] ** np.arange(1, min(d, 25) + 1), np.sin(x) + _noise(rng, n)


def splines(rng: Generator, n: int, d: int) -> Stream:
    """Cubic B-splines of an input that moves slowly: a row excites at most four columns."""
    x = np.clip(0.02 * np.cumsum(rng.normal(size=n)), -3.0, 3.0)
    position = (x - x.min()) / np.ptp(x) * max(d - 3, 1)
    distance = np.abs(position[:, None] - np.arange(d) + 1.0)
    inner = (4.0 - 6.0 * distance**2 + 3.0 * distance**3) / 6.0
    outer = np.maximum(2.0 - distance, 0.0) ** 3 / 6.0
    return np.where(distance < 1.0, inner, outer), np.sin(x) + _noise(rng, n)


def rare_categories(rng: Generator, n: int, d: int) -> Stream:
    """Indicators of categories whose frequencies fall like 1/k²: many are seen once, or never."""
    frequency = 1.0 / np.arange(1, d + 1) ** 2
    category = rng.choice(d, n, p=frequency / frequency.sum())
    return np.eye(d)[category], rng.normal(size=d)[category] + _noise(rng, n)


def load_lags(rng: Generator, n: int, d: int) -> Stream:
    """Lags 1 to 48 of an hourly load with daily and weekly cycles, without noise of its own."""
    d = min(d, 48)
    hours = np.arange(n + d)
    daily, weekly = np.sin(2 * np.pi * hours / 24), np.sin(2 * np.pi * hours / 168 + 1)
    load = 100.0 + 20.0 * daily + 8.0 * weekly + 0.05 * np.cumsum(rng.normal(size=n + d))
    return _lags(load, d, d), load[d:]


def stepping_settings(rng: Generator, n: int, d: int) -> Stream:
    """Settings of a machine: each is constant for 100 rows on average, at its own times."""
    changes = rng.random((n, d)) < 0.01
    changes[0] = True
    values = np.round(rng.normal(size=(n, d)), 1)
    last_change = np.maximum.accumulate(np.where(changes, np.arange(n)[:, None], 0), axis=0)
    X = np.take_along_axis(values, last_change, axis=0)
    return X, _linear_target(rng, X)


def counters(rng: Generator, n: int, d: int) -> Stream:
    """Counters of events, which grow for ever, nearly in proportion to each other."""
    rates = 3.0 + np.arange(d)
    X = np.cumsum(rng.poisson(rates, (n, d)), axis=0).astype(np.float64)
    return X, X @ rng.normal(size=d) * 1e-3 + _noise(rng, n)


def unix_times(rng: Generator, n: int, d: int) -> Stream:
    """Seconds since 1970, one row a minute, beside harmonics of the day."""
    seconds = 1.7e9 + 60.0 * np.arange(n, dtype=np.float64)
    X = np.column_stack([seconds, _harmonics(seconds, [SECONDS_PER_DAY], d - 1)])
    return X, _linear_target(rng, X[:, 1:]) + 1e-5 * (seconds - seconds[0])


def mixed_units(rng: Generator, n: int, d: int) -> Stream:
    """Independent features in units from 1e-9 to 1e9."""
    levels = rng.normal(size=(n, d)) + 3.0
    return levels * 10.0 ** rng.integers(-9, 10, d), _linear_target(rng, levels)


def robot_joint(rng: Generator, n: int, d: int) -> Stream:
    """Regressors of the torque of a joint on a smooth trajectory at 125 Hz, up to 150."""
    seconds = np.arange(n) / 125.0
    position = np.sin(0.3 * seconds + rng.normal()) + 0.3 * np.sin(0.9 * seconds)
    velocity = np.gradient(position, seconds)
    acceleration = np.gradient(velocity, seconds)
    terms = [
        position, velocity, acceleration, np.sign(velocity), np.sin(position), np.cos(position),
        velocity**2, velocity * np.abs(velocity), position * velocity, acceleration * position,
        acceleration * np.cos(position), velocity**2 * np.sin(position), np.ones(n), position**2,
        acceleration * velocity,
    ]  # fmt: skip
    factors = [
        np.ones(n), np.cos(2 * position), np.sin(2 * position), position, velocity, acceleration,
        position**2, velocity * position, acceleration * position, np.cos(3 * position),
    ]  # fmt: skip
    X = np.column_stack([term * factor for factor in factors for term in terms])[:, :d]
    return X, _linear_target(rng, X)


def calendar(rng: Generator, n: int, d: int) -> Stream:
    """Harmonics of the hour, day, week and year, one row each quarter of an hour."""
    start = rng.uniform(0.0, 365.25) * SECONDS_PER_DAY
    seconds = start + 900.0 * np.arange(n, dtype=np.float64)
    periods = [SECONDS_PER_DAY * days for days in (1.0, 7.0, 365.25, 1.0 / 24.0)]
    X = _harmonics(seconds, periods, d)
    return X, _linear_target(rng, X)


def constant_then_steps(rng: Generator, n: int, d: int) -> Stream:
    """All features constant for 300 rows; then all step at once, each 100 rows."""
    values = np.round(rng.normal(size=(n // 100 + 1, d)), 1)
    values[:3] = values[0]
    X = np.repeat(values, 100, axis=0)[:n]
    return X, _linear_target(rng, X)


def far_levels(rng: Generator, n: int, d: int) -> Stream:
    """Slow features of unit variation at levels from 1e2 to 1e6, such as pressures."""
    deviations = np.empty((n, d))
    deviations[0] = rng.normal(size=d)
    shocks = np.sqrt(1.0 - 0.95**2) * rng.normal(size=(n, d))
    for k in range(1, n):
        deviations[k] = 0.95 * deviations[k - 1] + shocks[k]
    levels = 10.0 ** rng.uniform(2.0, 6.0, d) * rng.choice([-1.0, 1.0], d)
    return levels + deviations, _linear_target(rng, deviations)


def late_columns(rng: Generator, n: int, d: int) -> Stream:
    """Features that are 0 until they begin, at a level of their own."""
    begin = np.sort(rng.integers(0, n // 2, d))
    begin[: (d + 1) // 2] = 0
    values = rng.normal(size=(n, d)) + 5.0 * rng.integers(0, 2, d)
    X = np.where(np.arange(n)[:, None] >= begin, values, 0.0)
    return X, _linear_target(rng, X)


SIGNALS: dict[str, Callable[[Generator, int, int], Stream]] = {
    signal.__name__: signal
    for signal in (
        sines, autoregressive_inputs, powers_of_time, powers_of_input, splines, rare_categories,
        load_lags, stepping_settings, counters, unix_times, mixed_units, robot_joint, calendar,
        constant_then_steps, far_levels, late_columns,
    )
}  # fmt: skip


def _noise(rng: Generator, n: int) -> Floats:
    return 0.1 * rng.normal(size=n)


def _linear_target(rng: Generator, X: Floats) -> Floats:
    """A random linear function of the features, and noise."""
    n, d = X.shape
    return X @ rng.normal(size=d) + _noise(rng, n)


def _lags(series: Floats, longest: int, count: int) -> Floats:
    """Lags 1 to ``count`` of the values from index ``longest`` on."""
    n = len(series) - longest
    columns = [series[longest - lag : longest - lag + n] for lag in range(1, count + 1)]
    return np.column_stack(columns) if columns else np.empty((n, 0))


def _harmonics(seconds: Floats, periods: list[float], count: int) -> Floats:
    """Sines and cosines of all periods, then of their halves, thirds and so on."""
    columns: list[Floats] = []
    order = 0
    while len(columns) < count:
        order += 1
        for period in periods:
            angle = 2 * np.pi * order * (seconds % period) / period
            columns += [np.sin(angle), np.cos(angle)]
    return np.column_stack(columns[:count]) if count else np.empty((len(seconds), 0))
