"""The window against a batch solver on its rows, at every row."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import onepass as op
from onepass.errors import OnepassError, ParameterError
from onepass.forgetting import Window
from onepass.memory.least_squares import stored_rows
from oracles import ridge_qr
from raising import raises

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
    size = np.array([k.stop - k.start for k in retained[:150]]) - d - intercept
    for some, tolerance in ((size > 0, 1e-8), ((size < 0) & (ridge > 0.0), 1e-5)):
        scale = 1.0 + np.abs(wanted[some]).max(initial=0.0)  # fewer rows: 1e-16 / ridge or more
        np.testing.assert_allclose(predictions[some], wanted[some], rtol=0, atol=tolerance * scale)
    assert np.isfinite(predictions).all()
    coef, b = ridge_qr(
        X[-rows:], y[-rows:], ridge, intercept=intercept, weights=None if s is None else s[-rows:]
    )
    if rows > 2 * d + 2:
        np.testing.assert_allclose(model.coef_.T, coef, atol=1e-9 * (1 + np.abs(coef).max()))
        np.testing.assert_allclose(model.intercept_, b, atol=1e-9 * (1 + np.abs(b).max()))


class Problem:
    """A random stream and window, and their least-squares problem before each row."""

    def __init__(self, data: st.DataObject) -> None:
        draw = data.draw
        self.rng = rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed"))
        n, d, c = 120, draw(st.integers(1, 5), "d"), draw(st.integers(1, 2), "c")
        self.X, self.y = rng.normal(size=(n, d)) + rng.normal(size=d), rng.normal(size=(n, c))
        for j in range(d):
            kind = draw(
                st.sampled_from(["free", "free", "constant", "dependent", "large"]), "column"
            )
            i = draw(st.integers(0, n), "from")
            if kind == "constant":
                self.X[i : i + 70, j] = 3.7
            elif kind == "dependent":
                self.X[i:, j] = self.X[i:, :j].sum(axis=1)
            elif kind == "large":
                self.X[i : i + 3] *= 1e3
        self.weights = rng.uniform(0.2, 3.0, n) if draw(st.booleans(), "weighted") else None
        self.time = np.cumsum(rng.choice([0.0, 0.5, 1.0, 4.0], n, p=[0.2, 0.4, 0.3, 0.1]))
        self.ridge = draw(st.sampled_from([0.0, 1e-3, 0.5]), "ridge")
        self.intercept = draw(st.booleans(), "intercept")
        size = draw(st.sampled_from([1, 3, 8, 20, 50]), "size")
        kind = draw(st.sampled_from(["rows", "span"]), "kind")
        fade = draw(st.sampled_from([None, "factor", "half_life"]), "fade")
        rate = draw(st.sampled_from([4.0, 25.0]), "half-life")
        self.rule = Window(
            size if kind == "rows" else None,
            span=float(size) if kind == "span" else None,
            factor=0.5 ** (1.0 / rate) if fade == "factor" else None,
            half_life=rate if fade == "half_life" else None,
        )
        if fade is not None:
            self.ridge = 0.0  # how much of it is put back at present depends on the turn
        self.clock = np.zeros(n)
        if fade is not None:
            self.clock = np.arange(n) / rate if fade == "factor" else self.time / rate
        first = np.maximum(np.arange(n) + 1 - size, 0)
        if kind == "span":
            first = np.searchsorted(self.time, self.time - size, side="right")
        self.rows = [slice(0, 0), *(slice(a, i + 1) for i, a in enumerate(first))]
        self.cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5), "cuts"))

    @property
    def model(self) -> Any:
        return op.RLSRegressor(self.ridge, self.rule, fit_intercept=self.intercept)

    def of_rows(self, i: int) -> Floats:
        """The weights of the rows of the window before row i."""
        s = np.exp2(self.clock[self.rows[i]] - self.clock[i - 1])
        return s if self.weights is None else s * self.weights[self.rows[i]]

    def is_determined(self, i: int) -> bool:
        """Whether the rows and the ridge determine the coefficients well."""
        X, root = self.X[self.rows[i]], np.sqrt(self.of_rows(i))[:, None]
        if self.ridge > 0.0 or len(X) <= X.shape[1] + 1:
            return self.ridge > 0.0
        A = np.hstack((np.ones((len(X), 1)), X)) if self.intercept else X
        A = A * root
        sigma = np.linalg.svd(A / np.maximum(np.linalg.norm(A, axis=0), 1e-300))[1]
        return bool(sigma[-1] > 1e-5 * sigma[0])

    def solve(self, i: int) -> tuple[Floats, Any]:
        """Coefficients and intercepts before row i."""
        rows = self.rows[i]
        return ridge_qr(
            self.X[rows],
            self.y[rows],
            self.ridge,
            intercept=self.intercept,
            weights=self.of_rows(i),
            scaled="size",
        )


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_every_window_equals_batch_solver(data: st.DataObject) -> None:
    problem = Problem(data)
    X, y, model = problem.X, problem.y, problem.model
    time = problem.time if model._uses_time else None
    predictions = predict_blocks(
        model, X, y, problem.cuts, time=time, sample_weight=problem.weights
    )
    assert np.isfinite(predictions).all()
    for i in problem.rng.choice(np.arange(1, len(X)), size=40, replace=False):
        if not problem.is_determined(i):
            continue
        coef, b = problem.solve(i)
        size = np.abs(X).max() * np.abs(coef).max() + 10.0
        np.testing.assert_allclose(predictions[i], X[i] @ coef + b, rtol=0, atol=1e-8 * size)
    if not problem.is_determined(len(X)):
        return
    coef, b = problem.solve(len(X))
    size = np.abs(X).max() * np.abs(coef).max() + 10.0
    np.testing.assert_allclose(model.coef_.T, coef, rtol=0, atol=1e-8 * size)
    np.testing.assert_allclose(model.intercept_, b, rtol=0, atol=1e-8 * size)


SIX = {  # the largest error that is allowed, relative to the targets
    "plain": 1e-13,
    "large row": 1e-13,
    "scales": 1e-13,
    "near": 3e-10,
    "offset": 2e-14,
    "silent": 1e-13,
}


def six_streams(name: str) -> tuple[Floats, Floats]:
    """Rows on which removal of rows loses digits unless the triangle is computed anew."""
    rng = np.random.default_rng(7)
    X, coef, noise = rng.normal(size=(2000, 5)), rng.normal(size=5), rng.normal(size=2000)
    match name:
        case "large row":
            X[500] *= 1e6
            noise[500] *= 1e6
        case "scales":
            X *= 10.0 ** np.linspace(-3, 4, 5)
        case "near":
            X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
        case "offset":
            X += 1e4
        case "silent":
            X[800:1750, :3] = 0.0
    return X, X @ coef + 0.1 * noise


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", SIX)
def test_difficult_rows_lose_no_digits(name: str, *, intercept: bool) -> None:
    X, y = six_streams(name)
    model = op.RLSRegressor(0.0, Window(100), fit_intercept=intercept)
    predictions = model.test_then_train(X, y)
    worst, mean = 0.0, np.abs(y[-200:]).mean()
    for i in range(1800, 2000):
        coef, b = ridge_qr(X[i - 100 : i], y[i - 100 : i], intercept=intercept, scaled="size")
        worst = max(worst, abs(float(predictions[i] - X[i] @ coef - b)))
    assert worst <= SIX[name] * mean


@pytest.mark.parametrize("p", [3, 40])
def test_window_retains_precision_over_thousands_of_rows(p: int) -> None:
    """Rows with 1e10 times the information of those after them take 10 digits along, for a time."""
    rng = np.random.default_rng(p)
    X, y = rng.normal(size=(3000, p)), rng.normal(size=3000)
    X[1000:1500] *= 1e5  # rows of the window, and then no more
    model = op.RLSRegressor(0.0, Window(200))
    predictions = model.test_then_train(X, y)
    exact = (500, 1003, 1203, 1600, 2900, 2999)  # computed anew after four windows and a fifth
    for i in (*exact, 1711, 1900, 2500):
        coef, b = ridge_qr(X[i - 200 : i], y[i - 200 : i])
        tolerance = 1e-9 if i in exact else 1e-4  # of the last, by the rounding of the processor
        np.testing.assert_allclose(
            predictions[i], X[i] @ coef + b, rtol=0, atol=tolerance * np.abs(X[i]).max()
        )
    coef, _ = ridge_qr(X[-200:], y[-200:])
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-10, atol=1e-12)


def test_constant_or_dependent_columns_have_small_coefficients() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(120, 5)), rng.normal(size=120)
    X[40:80, 1], X[:, 2], X[60:, 3] = 0.0, 2.5, 2.0 * X[60:, 0]
    model = op.RLSRegressor(0.0, Window(15))
    for i in range(120):
        model.learn_one(X[i], y[i])
        if i >= 20:
            rows = X[i - 14 : i + 1]
            coef, b = ridge_qr(rows, y[i - 14 : i + 1], scaled="size")
            np.testing.assert_allclose(model.predict(rows), rows @ coef + b, atol=1e-9)
            assert not model.coef_[2]
            assert (np.abs(model.coef_) * rows.std(axis=0)).max() < 3.0


def test_changed_window_holds_from_next_row() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    model = op.RLSRegressor(0.0, Window(60)).partial_fit(X[:200], y[:200])
    for rows, factor, i in ((60, 0.9, 205), (20, 0.9, 215), (40, 0.5, 230), (40, None, 290)):
        start = model.rows_seen_
        model.set_params(forgetting=Window(rows, factor=factor)).partial_fit(X[start:i], y[start:i])
        *_, faded = stored_rows(model.state_)
        n = len(faded)
        assert n <= rows
        if start + n <= i and factor is not None:  # all rows have faded by the new factor
            np.testing.assert_allclose(np.exp2(faded), factor ** np.arange(n - 1, -1, -1.0))
        coef, b = ridge_qr(X[i - n : i], y[i - n : i], weights=np.exp2(faded))
        np.testing.assert_allclose(model.coef_, coef, atol=1e-10)
        np.testing.assert_allclose(model.intercept_, b, atol=1e-10)


def test_failed_block_and_copies_leave_state_unchanged() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    model = op.RLSRegressor(1e-6, Window(50)).partial_fit(X[:100], y[:100])
    twin = copy.deepcopy(model)
    for i in range(100, 300, 10):
        with pytest.raises(OnepassError):
            model.partial_fit([*X[i : i + 3], [1e200] * 3], [*y[i : i + 3], 1e200])
        shared = copy.copy(model).partial_fit(X[:7], y[:7])
        for each in (model, twin):
            each.partial_fit(X[i : i + 10], y[i : i + 10])
        assert len(stored_rows(shared.state_)[0]) == 50
        np.testing.assert_allclose(model.coef_, twin.coef_, rtol=1e-10)
    np.testing.assert_allclose(model.coef_, ridge_qr(X[-50:], y[-50:], 1e-6)[0], rtol=1e-10)


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
    assert len(stored_rows(model.state_)[0]) == np.sum(t > t[-1] - 20.0)


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
        model = op.RLSRegressor(forgetting=rule).fit(X, X[:, 0], time=time)
        expected, before = model.predict(X[:9]), X.copy()
        X[:] = 0.0
        model.learn_one(before[0], before[0, 0], time=None if time is None else 2_003.0)
        np.testing.assert_allclose(model.predict(before[:9]), expected, rtol=1e-9)
        X[:] = before


def test_room_of_a_time_span_does_not_grow_with_the_block() -> None:
    X = np.random.default_rng(0).normal(size=(10_000, 4))
    model = op.RLSRegressor(forgetting=Window(span=50.0))
    model.fit(X, X[:, 0], time=np.arange(10_000.0))
    assert model.nbytes < X.nbytes / 2


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"rows": 0},
        {"rows": 2.5},
        {"rows": 3, "span": 1},
        {"rows": 3, "factor": 0.0},
        {"rows": 3, "factor": 0.9, "half_life": 2},
        {"span": 3, "half_life": "1h"},
    ],
)
def test_invalid_window_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with raises(ParameterError, where="Window"):
        Window(**wrong)


def test_change_to_and_from_window_is_refused_until_fit() -> None:
    X, y = np.eye(3), np.ones(3)
    for first, then in ((0.9, "window:2"), ("window:2", 0.9), ("directional:0.9", 0.9)):
        model = op.RLSRegressor(forgetting=first).fit(X, y).set_params(forgetting=then)
        with raises(ParameterError, argument="forgetting", remedy="Call fit"):
            model.partial_fit(X, y)
        model.fit(X, y).predict(X)
