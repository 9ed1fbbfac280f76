"""Forgetting by time against a recursion with a dense P."""

import datetime as dt
import pickle
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import onepass as op
from onepass.errors import OnepassError, ParameterError, SourceError, TypeMismatchError
from onepass.forgetting import Bounded, Directional, Exponential, Window
from onepass.memory import least_squares
from raising import raises
from sampling import sample

Floats = np.ndarray[Any, np.dtype[np.float64]]
X = np.random.default_rng(0).normal(size=(60, 3))
Y = X @ [1.0, 2.0, 3.0] + 4.0


def dense_recursion(
    X: Floats, y: Floats, t: Floats, half_life: float, ridge: float
) -> tuple[Floats, Floats]:
    """Prequential predictions and weights: A ← 2^(−Δt/h) A + x xᵀ, no intercept."""
    A, b, w, predictions = (
        ridge * np.eye(X.shape[1]),
        np.zeros(X.shape[1]),
        np.zeros(X.shape[1]),
        [],
    )
    for i, x in enumerate(X):
        predictions.append(x @ w)
        fade = 0.5 ** ((t[i] - t[i - 1]) / half_life) if i else 1.0
        A, b = fade * A + np.outer(x, x), fade * b + y[i] * x
        w = np.linalg.solve(A, b)
    return np.array(predictions), w


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1.7e9]),
    st.sampled_from([3.0, 10.0, 1e4]),
    st.lists(st.integers(0, 120), max_size=6),
)
def test_predictions_of_any_blocks_equal_dense_recursion(
    seed: int, origin: float, half_life: float, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(120, 3)), rng.normal(size=120)
    t = origin + np.cumsum(rng.choice([0.0, 0.25, 1.0, 7.0], size=120))
    wanted, w = dense_recursion(X, y, t, half_life, 0.5)
    model = op.RLSRegressor(0.5, Exponential(half_life=half_life), fit_intercept=False)
    parts = np.split(np.arange(120), sorted(cuts))
    predictions = [model.test_then_train(X[r], y[r], time=t[r]) for r in parts]
    size = 1.0 + np.abs(wanted).max()
    np.testing.assert_allclose(np.concatenate(predictions), wanted, atol=1e-8 * size)
    np.testing.assert_allclose(model.coef_, w, atol=1e-9 * size)
    rows = op.RLSRegressor(0.5, Exponential(half_life=half_life), fit_intercept=False)
    for i in range(40):
        assert rows.predict_one(X[i]) == pytest.approx(wanted[i], abs=1e-8 * size)
        rows.learn_one(X[i], y[i], time=t[i])


def test_forgetting_with_intercept_equals_weighted_batch() -> None:
    t = np.cumsum(np.random.default_rng(1).exponential(size=60))
    for rule in (Exponential(half_life=5.0), Bounded(half_life=5.0, floor=0.0)):
        model = op.RLSRegressor(0.0, rule).partial_fit(X[:7], Y[:7] ** 2, time=t[:7])
        model.partial_fit(X[7:], Y[7:] ** 2, time=t[7:])
        root = 0.5 ** ((t[-1] - t) / 10.0)
        far = root[:, None] * np.column_stack((X, np.ones(60)))
        wanted = np.linalg.lstsq(far, root * Y**2)[0]
        np.testing.assert_allclose([*model.coef_, model.intercept_], wanted, atol=1e-9)


def test_rows_of_equal_time_do_not_age() -> None:
    timed = op.RLSRegressor(0.1, Exponential(half_life=1.0)).fit(X, Y**2, time=np.full(60, 3.0))
    plain = op.RLSRegressor(0.1).fit(X, Y**2)
    np.testing.assert_allclose(timed.coef_, plain.coef_, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
@pytest.mark.parametrize(
    ("rule", "gap", "ridge"),
    sample(
        list(product([Exponential, Bounded, Directional], [1e2, 1e3, 1e5, 1e300], [0.0, 1e-6])),
        8,
        "gaps",
    ),
)
def test_gap_of_any_length_leaves_finite_coefficients(rule: Any, gap: float, ridge: float) -> None:
    model = op.RLSRegressor(ridge, rule(half_life=1.0))
    t = np.linspace(0.0, 1.0, 60)
    model.fit(X, Y, time=t).learn_one(X[0], Y[0] + 1.0, time=gap)
    if rule is Exponential:
        assert model.predict_one(X[0]) == pytest.approx(Y[0] + 1.0)  # nothing holds against it
    for k in range(2, 30):
        model.partial_fit(X, -Y, time=np.full(60, gap * k if gap < 1e200 else gap))
        assert np.isfinite(model.coef_).all()
    if rule is Exponential and gap < 1e200:
        np.testing.assert_allclose(model.coef_, [-1.0, -2.0, -3.0], atol=1e-6)


def test_predictions_after_long_gaps_converge() -> None:
    first = op.RLSRegressor(1e-3, Exponential(half_life=1.0)).fit(X, Y**2, time=np.arange(60.0))
    for gap in (90.0, 300.0, 1e4):
        model = clone(first).fit(X, Y**2, time=np.arange(60.0))
        predictions = model.test_then_train(X[:4], Y[:4], time=np.full(4, 59.0 + gap))
        if gap == 90.0:
            nearly = predictions
        np.testing.assert_allclose(predictions, nearly, atol=1e-7)


@pytest.mark.parametrize("d", [2, 300])
def test_floor_holds_through_gaps_and_any_blocks(d: int) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, d))
    X[100:390, 1] = 0.0
    y = X[:, 0] + 2.0 * X[:, 1] + 0.01 * rng.normal(size=400)
    t = np.cumsum(rng.choice([0.0, 0.1, 1.0, 50.0], size=400, p=[0.3, 0.4, 0.28, 0.02]))
    rule = Bounded(half_life=20.0 if d == 2 else 200.0)
    whole, parts = op.RLSRegressor(1e-3, rule), op.RLSRegressor(1e-3, rule)
    predictions = whole.test_then_train(X, y, time=t)
    cuts = np.split(np.arange(400), [1, 30, 95, 96, 233, 380])
    reported = np.concatenate([parts.test_then_train(X[r], y[r], time=t[r]) for r in cuts])
    np.testing.assert_allclose(reported, predictions, atol=1e-7)
    if d == 2:
        assert np.abs(predictions - y)[390:].max() < 0.1


def test_row_of_weight_zero_does_not_age_earlier_rows() -> None:
    s, t = np.ones(60), np.arange(60.0)
    s[20:30] = 0.0
    one = op.RLSRegressor(0.1, Exponential(half_life=5.0)).fit(X, Y**2, s, time=t)
    on = s > 0
    two = op.RLSRegressor(0.1, Exponential(half_life=5.0)).fit(X[on], Y[on] ** 2, time=t[on])
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-12)
    three = op.RLSRegressor(0.1, Exponential(half_life=5.0))
    three.test_then_train(X, Y**2, s, time=t)
    np.testing.assert_allclose(three.coef_, two.coef_, rtol=1e-12)


HOURS = np.datetime64("2024-05-01T00:00") + np.timedelta64(30, "m") * np.arange(60)


@pytest.mark.parametrize(
    "half_life",
    ["2h", "120min", " 7200 S ", dt.timedelta(hours=2), np.timedelta64(2, "h"),
     np.timedelta64(7_200_000_000_000, "ns"), pd.Timedelta("2h")],
)  # fmt: skip
def test_durations_of_all_types_are_equivalent(half_life: Any) -> None:
    rule = Exponential(half_life=half_life)
    model = op.RLSRegressor(0.1, rule).fit(X, Y**2, time=HOURS)
    same = op.RLSRegressor(0.1, Exponential(half_life=4.0)).fit(X, Y**2, time=np.arange(60.0))
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-12)


def test_dates_of_all_types_are_equivalent() -> None:
    stamps = pd.Series(HOURS.astype("datetime64[ns]"))
    kinds: list[Any] = [
        HOURS.astype("datetime64[s]"), stamps, pd.DatetimeIndex(stamps), list(stamps),
        stamps.dt.tz_localize("UTC").dt.tz_convert("Asia/Seoul"), pl.Series(HOURS.astype("M8[us]")),
        [dt.datetime(2024, 5, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=30 * i) for i in range(60)],
    ]  # fmt: skip
    wanted = op.RLSRegressor(0.1, Bounded(half_life="2h")).fit(X, Y**2, time=HOURS)
    for time in kinds:
        model = op.RLSRegressor(0.1, Bounded(half_life="2h"))
        model.partial_fit(X[:20], Y[:20] ** 2, time=HOURS[:20])
        model.partial_fit(X[20:], Y[20:] ** 2, time=time[20:])
        np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-9)
    one = op.RLSRegressor(0.1, Bounded(half_life="2h"))
    for i in range(60):
        one.learn_one(X[i], Y[i] ** 2, time=stamps[i] if i % 2 else HOURS[i])
    np.testing.assert_allclose(one.coef_, wanted.coef_, rtol=1e-9)


def test_integer_times_retain_precision() -> None:
    nanoseconds = 1_714_521_600_000_000_001 + np.arange(60)
    model = op.RLSRegressor(0.1, Exponential(half_life=4.0)).fit(X, Y**2, time=nanoseconds)
    same = op.RLSRegressor(0.1, Exponential(half_life=4.0)).fit(X, Y**2, time=np.arange(60.0))
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-12)


# -- what is refused -------------------------------------------------------------------------------

T = np.arange(60.0)


def _replaced(i: int, value: Any, time: Any = T) -> Any:
    changed = time.copy()
    changed[i] = value
    return changed


@pytest.mark.parametrize(
    ("rule", "time", "fields"),
    [
        (Bounded(half_life=1.0), None, {"argument": "time", "remedy": "Pass numbers, one for"}),
        (Bounded(half_life=1.0), T[:-1], {"argument": "time"}),
        (Bounded(half_life=1.0), T[:, None], {"argument": "time"}),
        (Bounded(half_life=1.0), _replaced(7, np.nan), {"argument": "time", "row": 7}),
        (Bounded(half_life=1.0), _replaced(7, np.inf), {"argument": "time", "row": 7}),
        (
            Window(span=1.0),
            pd.Series([*HOURS[:59], None]).astype("i8"),
            {"argument": "time", "row": 59},
        ),
        (
            Bounded(half_life=1.0),
            _replaced(7, 5.5),
            {"argument": "time", "row": 7, "got": "5.5 after 6.0"},
        ),
        (Bounded(half_life=1.0), HOURS, {"argument": "time"}),
        (Bounded(half_life=1.0), ["x"] * 60, {"argument": "time"}),
        (Bounded(half_life="1h"), T, {"argument": "time"}),
        (Bounded(half_life="1h"), [str(hour) for hour in HOURS], {"argument": "time"}),
        (
            Bounded(half_life="1h"),
            _replaced(7, np.datetime64("NaT"), HOURS),
            {"argument": "time", "row": 7},
        ),
        (Bounded(half_life="1h"), HOURS[::-1], {"argument": "time", "row": 1}),
        (
            Bounded(half_life="1h"),
            pd.Series([*HOURS[:59], pd.NaT], dtype=object),
            {"argument": "time", "row": 59, "got": "NaT"},
        ),
        (
            Bounded(half_life=1.0),
            np.ma.masked_array(T, T == 7),
            {"argument": "time", "row": 7, "got": "nan"},
        ),
        (
            Bounded(half_life="1h"),
            np.ma.masked_array(HOURS, T == 7),
            {"argument": "time", "row": 7, "got": "NaT"},
        ),
        (Window(span=3.0), None, {"argument": "time", "remedy": "Pass numbers, one for"}),
        (Directional(half_life=3.0), None, {"argument": "time", "remedy": "Pass numbers, one for"}),
        (Bounded(0.9), T, {"argument": "time", "remedy": "Leave out `time`, or"}),
        (1.0, T, {"argument": "time", "remedy": "Leave out `time`, or"}),
    ],
)
def test_invalid_times_are_refused_and_learner_unchanged(
    rule: Any, time: Any, fields: dict[str, Any]
) -> None:
    model = op.RLSRegressor(forgetting=rule)
    for verb in ("fit", "partial_fit", "test_then_train"):
        with raises(OnepassError, **fields):
            getattr(model, verb)(X, Y, time=time)
        assert not hasattr(model, "n_features_in_")


def test_decreasing_time_between_blocks_is_refused() -> None:
    model = op.RLSRegressor(forgetting=Bounded(half_life=1.0)).fit(X, Y, time=T)
    for again in (lambda: model.partial_fit(X[:1], Y[:1], time=[58.0]),
                  lambda: model.learn_one(X[0], Y[0], time=58.0),
                  lambda: model.learn_one(X[0], Y[0])):  # fmt: skip
        with raises(ParameterError, argument="time"):
            again()
    model.partial_fit(X[:0], Y[:0]).learn_one(X[0], Y[0], time=59.0)
    assert model.time_ == 59.0
    with raises(ParameterError, argument="forgetting", remedy="Call fit"):
        model.set_params(forgetting="bounded:half_life=1h").partial_fit(X, Y, time=HOURS)
    model.fit(X, Y, time=HOURS)


@pytest.mark.parametrize("wrong", ["", "1", "1 year", "h", "-1h", "0s", 0, -1.0, np.nan, True, None,
                                   dt.timedelta(0), np.timedelta64("NaT"), [1.0], "1e308w",
                                   np.timedelta64(5, "Y"), np.timedelta64(5)])  # fmt: skip
def test_invalid_half_lives_are_refused(wrong: Any) -> None:
    for kind in (Bounded, Exponential, Directional):
        with pytest.raises(ParameterError, match=rf"{kind.__name__}"):
            kind(half_life=wrong)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("rule", [Exponential, Bounded, Directional, Window])
def test_gap_that_overflows_equals_long_gap(kind: Any, rule: Any) -> None:
    made = rule(span=5) if rule is Window else rule(half_life=5)
    most = np.iinfo(kind).max if kind is np.int64 else np.finfo(kind).max
    late, Z = np.repeat([False, True], 30), np.repeat([-1.0, 1.0], 30) * Y
    long = op.RLSRegressor(forgetting=made).fit(X, Z, time=np.where(late, 1e9, 0.0))
    longest = np.where(late, most, -most).astype(kind)
    model = op.RLSRegressor(forgetting=made).fit(X, Z, time=longest)
    np.testing.assert_allclose(model.coef_, long.coef_, atol=1e-9)


@pytest.mark.parametrize(
    ("span", "times"), [(1e-9, T + 1.7e9), ("1e9d", HOURS), (0.5, T.astype(int))]
)
def test_span_may_be_shorter_or_longer_than_all_gaps(span: Any, times: Any) -> None:
    model = op.RLSRegressor(forgetting=Window(span=span)).fit(X, Y, time=times)
    assert len(least_squares.stored_rows(model.state_)[0]) == (60 if isinstance(span, str) else 1)


# -- pipelines and evaluation ----------------------------------------------------------------------


def test_pipeline_and_evaluation_pass_time(tmp_path: Path) -> None:
    frame = pd.DataFrame({"at": HOURS, "kind": ["a", "b", "c"] * 20, "x": X[:, 0], "y": Y})
    pipe = op.Pipeline(op.features.Encode(), op.RLSRegressor(0.1, Bounded(half_life="2h")))
    assert pipe._uses_time
    assert not op.Pipeline(op.features.Encode(), op.RLSRegressor())._uses_time
    copy = clone(pipe)
    rows = op.stream.read(frame, target="y", time="at", drop=["at"], block=7)
    plain = op.models.pipelines(["sgd"], "regression")["sgd"]
    report = op.evaluate.prequential({"timed": pipe, "plain": plain}, rows)
    assert report.rows == 60
    predictions = copy.test_then_train(frame[["kind", "x"]], Y, time=HOURS)
    np.testing.assert_allclose(
        report.scores["timed"].overall["mae"], np.abs(predictions - Y).mean()
    )
    op.save(pipe, tmp_path / "m.onepass")
    again = op.load(tmp_path / "m.onepass")
    for model in (pipe, again):
        model.learn_one({"kind": "a", "x": 1.0}, 2.0, time=HOURS[-1] + np.timedelta64(3, "h"))
    assert (again.learner.coef_ == pipe.learner.coef_).all()
    with raises(
        OnepassError,
        where="model 'timed', 60 row(s) starting at row 0 (counting from 0): "
        "RLSRegressor.test_then_train",
        argument="time",
    ):
        op.evaluate.prequential({"timed": clone(copy)}, (frame[["kind", "x"]], Y))


# -- digits ----------------------------------------------------------------------------------------

ZONE = "Asia/Seoul"
NUMBERS: dict[str, Any] = {
    "int64": lambda t: np.array(t, dtype=np.int64),
    "uint64": lambda t: np.array(t, dtype=np.uint64),
    "integers": list,
    "objects": lambda t: np.array(t, dtype=object),
    "Decimal": lambda t: [Decimal(v) for v in t],
    "Fraction": lambda t: [Fraction(v) for v in t],
    "pandas": lambda t: pd.Series(t, dtype="UInt64"),
    "polars": lambda t: pl.Series(t, dtype=pl.UInt64),
    "arrow": lambda t: pa.array(t, pa.int64()),
}
DATES: dict[str, Any] = {
    "ns": lambda t: t,
    "pandas": pd.Series,
    "pandas with zone": lambda t: pd.DatetimeIndex(t, tz="UTC").tz_convert(ZONE),
    "Timestamps": lambda t: list(pd.DatetimeIndex(t)),
    "polars with zone": lambda t: (
        pl.Series(t).dt.replace_time_zone("UTC").dt.convert_time_zone(ZONE)
    ),
    "arrow with zone": lambda t: pa.array(t).cast(pa.timestamp("ns", tz=ZONE)),
}


@settings(max_examples=60, deadline=None, print_blob=True)
@given(data=st.data())
def test_times_of_all_units_and_types_retain_precision(data: st.DataObject) -> None:
    draw = data.draw
    dates, n = draw(st.booleans(), "dates"), draw(st.integers(2, 8), "rows")
    span = draw(st.integers(1, 10**4), "half-life or span in the smallest unit")
    gaps = draw(st.lists(st.integers(0, 2 * span), min_size=n, max_size=n), "gaps")
    origin = draw(st.sampled_from([0, 2**53 + 1, 1_700_000_000_000_000_001]), "origin")
    unit = draw(st.sampled_from([1, 1_000, 1_000_000] if dates else [1]), "unit")
    t = [origin // unit * unit + unit * sum(gaps[: i + 1]) for i in range(n)]
    y = np.array(draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n), "y"), dtype=float)
    length: Any = np.timedelta64(span * unit, "ns") if dates else span
    kinds = DATES if dates else NUMBERS
    rule = draw(st.sampled_from([Exponential, Bounded, Directional, Window]), "rule")
    made = rule(span=length) if rule is Window else rule(half_life=length)
    model = op.RLSRegressor(0.0, made)
    every = np.array(t, dtype=np.int64).view("M8[ns]") if dates else t
    cuts = sorted(draw(st.lists(st.integers(1, n - 1), max_size=3, unique=True), "cuts"))
    for a, b in pairwise([0, *cuts, n]):
        kind = draw(st.sampled_from(sorted(kinds)), "kind")
        if kind in {"pandas with zone", "Timestamps"}:
            kind = "pandas"  # the two in one stream are refused
        model.partial_fit(np.zeros((b - a, 1)), y[a:b], time=kinds[kind](every[a:b]))
        model = pickle.loads(pickle.dumps(model))  # noqa: S301  its own
    ages = [Fraction(t[-1] - each, span * unit) for each in t]
    weights = np.array([float(a < 1) if rule is Window else 0.5 ** float(a) for a in ages])
    if rule in {Exponential, Window}:
        assert model.intercept_ == pytest.approx(weights @ y / weights.sum(), abs=1e-9)
    small = rule(span=float(span)) if rule is Window else rule(half_life=float(span))
    since = np.array([(each - t[0]) / unit for each in t])
    same = op.RLSRegressor(0.0, small).fit(np.zeros((n, 1)), y, time=since)
    assert model.intercept_ == pytest.approx(same.intercept_, abs=1e-9)
    last = model.time_
    assert (int(last.astype("M8[ns]").astype(np.int64)) if dates else last) == t[-1]
    single = op.RLSRegressor(0.0, made)
    for i in range(n):
        single.learn_one([0.0], y[i], time=every[i])
    assert single.intercept_ == pytest.approx(model.intercept_, abs=1e-9)


def test_dates_of_all_types_retain_nanoseconds(tmp_path: Path) -> None:
    t = np.array([0, 500, 1000], dtype="M8[ns]") + np.timedelta64(1_700_000_000_000_000_000, "ns")
    y, rows = np.array([1.0, 0.0, 0.0]), np.zeros((3, 1))
    rule = Exponential(half_life=np.timedelta64(500, "ns"))
    for make in DATES.values():
        model = op.RLSRegressor(forgetting=rule).partial_fit(rows[:2], y[:2], time=make(t)[:2])
        op.save(model, tmp_path / "m.onepass")
        model = op.load(tmp_path / "m.onepass").partial_fit(rows[2:], y[2:], time=make(t)[2:])
        assert model.intercept_ == pytest.approx(0.25 / 1.75, rel=1e-12)
    frame = pd.DataFrame({"at": t, "x": 0.0, "y": y})
    frame.to_parquet(tmp_path / "t.parquet")
    sources: list[Any] = [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)]
    for source in [*sources, tmp_path / "t.parquet"]:
        model, late = (op.RLSRegressor(forgetting=rule) for _ in range(2))
        for block in op.stream.read(source, target="y", time="at", drop=["at"], block=2):
            model.partial_fit(block.X, block.y, time=block.time)
        assert model.intercept_ == pytest.approx(0.25 / 1.75, rel=1e-12)
        stream = op.stream.read(source, target="y", time="at", columns=["x", "at"])
        op.evaluate.prequential({"late": late}, stream, delay_until="at", baselines=False)
        assert late.intercept_ == pytest.approx(0.25 / 1.75, rel=1e-12)
    with op.durable(tmp_path / "d.db", op.RLSRegressor(forgetting=rule)) as durable:
        for i in range(3):
            durable.learn(rows[i : i + 1], y[i : i + 1], time=t[i : i + 1])
        assert durable.predict(rows[:1])[0] == pytest.approx(0.25 / 1.75, rel=1e-12)


def test_times_beyond_64_bits_are_refused() -> None:
    model = op.RLSRegressor(forgetting=Exponential(half_life=1.0))
    with raises(ParameterError, argument="time", got="36893488147419"):
        model.fit(X[:2], Y[:2], time=[2**65, 2**65 + 1])
    with raises(ParameterError, argument="time", remedy="Use numbers, and a"):
        clone(model).set_params(forgetting="exponential:half_life=1h").fit(
            X[:1], Y[:1], time=np.array([7], dtype="M8[ps]")
        )
    frame = pd.DataFrame({"at": np.array([2**53, 2**53 + 2]), "x": 1.0, "y": 2.0})
    with pytest.raises(ParameterError, match=r"column 'at' must be numbers up to 2\*\*53"):
        list(op.stream.read(frame, target="y", time="at"))


@pytest.mark.parametrize("first", [True, False])
def test_mixed_datetimes_with_and_without_zone_are_refused(*, first: bool, tmp_path: Path) -> None:
    def at(hour: int, zoned: bool) -> dt.datetime:  # noqa: FBT001
        return dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC if zoned else None)

    for rule in (Exponential(half_life="1h"), Window(span="1h"), Directional(half_life="1h")):
        mixed, words = [at(1, first), at(2, not first)], "all have a time zone, or that all"
        model = op.RLSRegressor(forgetting=rule)
        with pytest.raises(TypeMismatchError, match=words):
            model.partial_fit(X[:2], Y[:2], time=mixed)
        assert not hasattr(model, "n_features_in_")
        model.partial_fit(X[:1], Y[:1], time=mixed[:1])
        op.save(model, tmp_path / "m.onepass")
        for other in (model, op.load(tmp_path / "m.onepass")):
            state = pickle.dumps(other)
            with pytest.raises(TypeMismatchError, match=words):
                other.learn_one(X[1], Y[1], time=mixed[1])
            assert pickle.dumps(other) == state
            other.learn_one(X[1], Y[1], time=np.datetime64("2024-01-01T02"))  # states no zone
        model.fit(X[:1], Y[:1], time=mixed[1:])
    with pytest.raises(SourceError, match=r"row 1 .*column 'at' must be a date with.* a time zone"):
        list(op.stream.read(pd.DataFrame({"at": mixed, "y": [1.0, 2.0]}, dtype=object), target="y"))


def test_repeated_local_times_are_refused_with_remedy() -> None:
    local = pd.date_range("2024-10-27T00:30", periods=4, freq="30min", tz="UTC").tz_convert(
        "Europe/Paris"
    )
    model = op.RLSRegressor(forgetting=Exponential(half_life="1h"))
    with raises(ParameterError, argument="time", remedy="in UTC or with a time zone"):
        model.fit(X[:4], Y[:4], time=local.tz_localize(None))
    model.fit(X[:4], Y[:4], time=local)
