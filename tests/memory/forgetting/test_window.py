"""The window against a batch solver on its rows, at every row."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import ParameterError
from onepass.memory.forgetting import Window
from oracles import ridge_qr

Floats = np.ndarray[Any, np.dtype[np.float64]]


def predict_blocks(model: Any, X: Floats, y: Floats, cuts: list[int], **given: Any) -> Floats:
    """Prequential predictions of rows learned in these blocks."""
    predictions = []
    for rows in np.split(np.arange(len(X)), cuts):
        parts = {name: values[rows] for name, values in given.items() if values is not None}
        predictions.append(model.test_then_train(X[rows], y[rows], **parts))
    return np.concatenate([part for part in predictions if len(part)])


def batch_predictions(X: Floats, y: Floats, retained: list[slice], **settings: Any) -> Floats:
    """Predictions of a batch solver on the rows retained before each row."""
    predictions = np.zeros(y.shape)
    s = settings.pop("weights", None)
    for i, rows in enumerate(retained):
        if rows.stop > rows.start:
            coef, b = ridge_qr(
                X[rows], y[rows], weights=None if s is None else s[rows], scaled="size", **settings
            )
            predictions[i] = X[i] @ coef + b
    return predictions


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 7, 20, 64]),
    st.integers(1, 6),
    st.sampled_from([0.0, 1e-6, 0.5]),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 150), max_size=6),
)
def test_predictions_equal_batch_solver_on_window(
    seed: int,
    rows: int,
    d: int,
    ridge: float,
    intercept: bool,  # noqa: FBT001
    weighted: bool,  # noqa: FBT001
    cuts: list[int],
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(150, d)) + rng.normal(size=d), rng.normal(size=(150, 2))
    s = rng.uniform(0.2, 3.0, 150) if weighted else None
    model = op.RLSRegressor(ridge, Window(rows), fit_intercept=intercept)
    predictions = predict_blocks(model, X, y, sorted(cuts), sample_weight=s)
    retained = [slice(max(0, i - rows), i) for i in range(151)]
    wanted = batch_predictions(X, y, retained[:150], ridge=ridge, intercept=intercept, weights=s)
    enough = np.array(
        [k.stop - k.start != d + intercept for k in retained[:150]]
    )  # else as bad as may be
    scale = 1.0 + np.abs(wanted[enough]).max(initial=0.0)
    np.testing.assert_allclose(predictions[enough], wanted[enough], rtol=0, atol=1e-8 * scale)
    coef, b = ridge_qr(
        X[-rows:], y[-rows:], ridge, intercept=intercept, weights=None if s is None else s[-rows:]
    )
    if rows > 2 * d + 2:
        np.testing.assert_allclose(model.coef_.T, coef, atol=1e-9 * (1 + np.abs(coef).max()))
        np.testing.assert_allclose(model.intercept_, b, atol=1e-9 * (1 + np.abs(b).max()))


@pytest.mark.parametrize("p", [3, 40])
def test_window_retains_precision_over_thousands_of_rows(p: int) -> None:
    rng = np.random.default_rng(p)
    X, y = rng.normal(size=(3000, p)), rng.normal(size=3000)
    X[1000:1500] *= 1e5  # rows of the window, and then no more
    model = op.RLSRegressor(0.0, Window(200))
    predictions = model.test_then_train(X, y)
    for i in (500, 1003, 1203, 1600, 1711, 2999):
        coef, b = ridge_qr(X[i - 200 : i], y[i - 200 : i])
        np.testing.assert_allclose(
            predictions[i], X[i] @ coef + b, rtol=0, atol=1e-9 * np.abs(X[i]).max()
        )
    coef, _ = ridge_qr(X[-200:], y[-200:])
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-10, atol=1e-12)


def test_constant_or_dependent_columns_have_least_norm() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(120, 5)), rng.normal(size=120)
    X[40:80, 1], X[:, 2], X[60:, 3] = 0.0, 2.5, 2.0 * X[60:, 0]
    model = op.RLSRegressor(0.0, Window(15))
    for i in range(120):
        model.learn_one(X[i], y[i])
        if i >= 20:
            coef, b = ridge_qr(X[i - 14 : i + 1], y[i - 14 : i + 1], scaled="size")
            np.testing.assert_allclose(model.coef_, coef, atol=1e-9)
            np.testing.assert_allclose(model.intercept_, b, atol=1e-9)


@pytest.mark.parametrize("dates", [False, True])
def test_span_stores_rows_younger_than_span(dates: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(400, 3)), rng.normal(size=400)
    gaps = rng.choice([0.0, 0.0, 1.0, 2.0, 30.0], size=400, p=[0.2, 0.2, 0.3, 0.28, 0.02])
    t = 1.7e9 + np.cumsum(gaps)
    retained = [
        slice(int(np.searchsorted(t, t[i - 1] - 20.0, side="right")), i) for i in range(1, 400)
    ]
    time: Any = t.astype("int64").astype("datetime64[s]") if dates else t
    model = op.RLSRegressor(0.1, Window(span="20s" if dates else 20))
    predictions = predict_blocks(model, X, y, [1, 2, 50, 55, 203], time=time)
    wanted = batch_predictions(X, y, [slice(0, 0), *retained], ridge=0.1)
    np.testing.assert_allclose(predictions, wanted, atol=1e-9)
    assert len(model.forgetting_) == np.sum(t > t[-1] - 20.0)


def test_prior_stays_in_window() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    model = op.RLSRegressor(1e-6, Window(40), prior=2.0)
    model.partial_fit(X[:7], y[:7]).partial_fit(X[7:], y[7:])
    penalty = 1e-6 * np.eye(3) + np.diag(2.0 * (X[1] - X[0]) ** 2)
    coef, b = ridge_qr(X[-40:], y[-40:], penalty)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, b, atol=1e-10)


def test_standard_deviations_equal_least_squares_on_window() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(500, 3)) + 5.0, rng.normal(size=500)
    windowed = op.RLSRegressor(1e-6, Window(100)).fit(X, y).predict(X[:5], return_std=True)[1]
    plain = op.RLSRegressor(1e-6).fit(X[-100:], y[-100:]).predict(X[:5], return_std=True)[1]
    np.testing.assert_allclose(windowed, plain, rtol=1e-9)


def test_bytes_are_bounded_by_window() -> None:
    rng = np.random.default_rng(5)
    model = op.RLSRegressor(forgetting=Window(100))
    sizes = []
    for _ in range(20):
        X = rng.normal(size=(57, 4))
        sizes.append(model.partial_fit(X, X[:, 0]).nbytes)
    assert max(sizes) < 8 * (2 * 110 * 6 + 8 * 5 * 7) + 2000


def test_window_stores_copies_not_views_of_block() -> None:
    X = np.random.default_rng(0).normal(size=(2_003, 4))
    for rule, time in ((Window(500), None), (Window(span=500.0), np.arange(2_003.0))):
        retained = (
            op.RLSRegressor(forgetting=rule).fit(X, X[:, 0], time=time).forgetting_.stored_rows
        )
        for array in (retained.X, retained.b, retained.roots, retained.time):
            assert array is None or array.base is None


@pytest.mark.parametrize("wrong", [{}, {"rows": 0}, {"rows": 2.5}, {"rows": 3, "span": 1}])
def test_invalid_window_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"forgetting\.Window"):
        Window(**wrong)


def test_change_to_and_from_window_is_refused_until_fit() -> None:
    X, y = np.eye(3), np.ones(3)
    for first, then in ((0.9, "window:2"), ("window:2", 0.9), ("directional:0.9", 0.9)):
        model = op.RLSRegressor(forgetting=first).fit(X, y).set_params(forgetting=then)
        with pytest.raises(ParameterError, match="Call fit"):
            model.partial_fit(X, y)
        model.fit(X, y).predict(X)
