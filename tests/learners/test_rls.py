"""RLS is held against batch QR, the row-by-row recursion, and the textbook's standard errors."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass import RLSClassifier, RLSRegressor
from onepass.errors import NumericalError, ParameterError
from oracles import ridge_qr, rls_row_by_row

Floats = NDArray[np.float64]
PROPERTY = settings(max_examples=60, deadline=None)


class Task(NamedTuple):
    """Rows, and the settings to learn them with."""

    X: Floats
    y: Floats
    weights: Floats | None
    cuts: list[int]
    settings: dict[str, Any]

    def learner(self, **changed: Any) -> RLSRegressor:
        return RLSRegressor(**{**self.settings, **changed})

    def batch(self, rows: int | None = None) -> tuple[Floats, Any]:
        s = None if self.weights is None else self.weights[:rows]
        return ridge_qr(
            self.X[:rows],
            self.y[:rows],
            self.settings["ridge"],
            intercept=self.settings["fit_intercept"],
            weights=s,
            forgetting=self.settings["forgetting"],
            initial=_columns(self.settings["initial_coef"]),
        )


def _columns(coef: Any) -> Any:
    return None if coef is None else np.asarray(coef).T


def learned(task: Task) -> tuple[RLSRegressor, Floats]:
    """The rows learned in blocks; and what was said of each row just before."""
    learner, said = task.learner(), []
    for rows in np.split(np.arange(len(task.X)), task.cuts):
        s = None if task.weights is None else task.weights[rows]
        said.append(learner.test_then_train(task.X[rows], task.y[rows], s))
    return learner, np.concatenate([part for part in said if len(part)])


def condition(task: Task) -> float:
    """Largest by smallest singular value, not zero, of the weighted and centred rows."""
    X, n = task.X, len(task.X)
    s = np.ones(n) if task.weights is None else task.weights
    root = np.sqrt(s * task.settings["forgetting"] ** np.arange(n - 1, -1, -1.0))
    A = X - (root**2 @ X / (root**2).sum() if task.settings["fit_intercept"] else 0.0)
    sigma = np.linalg.svd(root[:, None] * A, compute_uv=False)
    real = sigma[sigma > 1e-11 * sigma[0]] if sigma[0] else np.ones(1)
    return float(real[0] / real[-1])


def close(a: Any, b: Any, tolerance: float, *, scale: float = 0.0) -> None:
    a, b = np.asarray(a), np.asarray(b)
    size = max(float(np.abs(b).max(initial=0.0)), scale)
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0.0) <= tolerance * size


@st.composite
def tasks(draw: Any, *, ridges: tuple[float, ...], most: int = 50) -> Task:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, most)), draw(st.integers(1, 7))
    c = draw(st.sampled_from([0, 1, 3]))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, size=d) + rng.normal(size=d)
    y = rng.normal(size=(n, c) if c else n)
    initial = rng.normal(size=(c, d) if c else d) if draw(st.booleans()) else None
    weights = rng.uniform(0.2, 3.0, size=n) if draw(st.booleans()) else None
    if weights is not None and draw(st.booleans()):
        weights[rng.random(n) < 0.3] = 0.0
        assume(weights.any())
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5)))
    chosen = {
        "ridge": draw(st.sampled_from(ridges)),
        "forgetting": draw(st.sampled_from([1.0, 0.98, 0.9])),
        "fit_intercept": draw(st.booleans()),
        "initial_coef": initial,
    }
    return Task(X, y, weights, cuts, chosen)


# -- the same as a batch solver, however the stream was cut ----------------------------------------


@PROPERTY
@given(tasks(ridges=(1e-3, 0.1, 2.0)))
def test_any_cutting_gives_the_coefficients_of_batch_ridge_by_qr(task: Task) -> None:
    assume(condition(task) <= 1e4)
    learner, _ = learned(task)
    coef, b = task.batch()
    close(_columns(learner.coef_), coef, 1e-10, scale=1e-3)
    close(learner.intercept_, b, 1e-10, scale=float(np.abs(coef).max() * np.abs(task.X).max()))


@PROPERTY
@given(tasks(ridges=(0.0,)))
def test_ridge_zero_gives_the_least_norm_solution_below_and_above_full_rank(task: Task) -> None:
    assume(condition(task) <= 1e4)
    learner, _ = learned(task)
    coef, b = task.batch()
    close(_columns(learner.coef_), coef, 1e-10, scale=1e-3)
    close(learner.intercept_, b, 1e-10, scale=float(np.abs(coef).max() * np.abs(task.X).max()))


@settings(max_examples=25, deadline=None)
@given(tasks(ridges=(0.0, 1e-2), most=20))
def test_each_answer_before_learning_is_that_of_batch_ridge_on_the_rows_before(task: Task) -> None:
    _, said = learned(task)
    for i in range(1, len(task.X)):
        seen = task._replace(X=task.X[:i], y=task.y[:i], weights=_head(task.weights, i))
        if (seen.weights is not None and not seen.weights.any()) or condition(seen) > 1e4:
            continue
        coef, b = seen.batch()
        close(said[i], task.X[i] @ coef + b, 1e-9, scale=_size(task.X[: i + 1], coef))


def _head(weights: Floats | None, i: int) -> Floats | None:
    return None if weights is None else weights[:i]


def _size(X: Floats, coef: Floats) -> float:
    return float(np.abs(X).max() * max(np.abs(coef).max(), 1e-3))


@PROPERTY
@given(tasks(ridges=(1e-2, 1.0)))
def test_every_answer_weight_and_p_are_those_of_the_printed_recursion(task: Task) -> None:
    task = task._replace(settings={**task.settings, "fit_intercept": False})
    assume(condition(task) <= 1e4)
    learner, said = learned(task)
    looped = rls_row_by_row(
        task.X,
        task.y,
        task.settings["ridge"],
        weights=task.weights,
        forgetting=task.settings["forgetting"],
        initial=_columns(task.settings["initial_coef"]),
    )
    size = _size(task.X, looped.coef)
    close(_columns(learner.coef_), looped.coef, 1e-9, scale=1e-3)
    close(said, looped.said, 1e-9, scale=size)
    probes = np.random.default_rng(0).normal(size=(5, task.X.shape[1]))
    through = np.einsum("ij,jk,ik->i", probes, looped.P, probes)
    close(learner.memory_.leverage(probes), through, 1e-8)


def test_zero_constant_doubled_and_scaled_columns_give_lstsq_at_every_row() -> None:
    rng = np.random.default_rng(2)
    free = rng.normal(size=(30, 3))
    X = np.column_stack(
        [np.zeros(30), free[:, 0], np.full(30, 2.5), free[:, 0], 1e5 * free[:, 1], free[:, 2]]
    )
    y = rng.normal(size=30)
    for intercept in (True, False):
        learner = RLSRegressor(ridge=0.0, fit_intercept=intercept)
        for i in range(30):
            learner.learn_one(X[i], y[i])
            coef, b = ridge_qr(X[: i + 1], y[: i + 1], 0.0, intercept=intercept)
            close(learner.predict(X), X @ coef + b, 1e-9)
            close(learner.coef_, coef, 1e-9)


def test_a_weight_of_two_is_the_row_twice_and_of_zero_not_at_all() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 4)), rng.normal(size=40)
    times = rng.integers(0, 3, size=40)
    for ridge in (0.0, 0.5):
        weighted = RLSRegressor(ridge=ridge).partial_fit(X, y, sample_weight=times)
        repeated = RLSRegressor(ridge=ridge).partial_fit(X.repeat(times, 0), y.repeat(times))
        close(weighted.coef_, repeated.coef_, 1e-12)
        close(weighted.intercept_, repeated.intercept_, 1e-12)
        assert weighted.rows_seen_ == np.count_nonzero(times)


def test_a_row_of_weight_zero_does_not_age_the_past() -> None:
    rng = np.random.default_rng(4)
    X, y, s = rng.normal(size=(40, 4)), rng.normal(size=40), np.ones(40)
    s[10:20] = 0.0
    a = RLSRegressor(forgetting=0.9).partial_fit(X, y, sample_weight=s)
    b = RLSRegressor(forgetting=0.9).partial_fit(X[s > 0], y[s > 0])
    close(a.coef_, b.coef_, 1e-13)


# -- ridge as a matrix -----------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_definite_ridge_matrix_is_batch_ridge_at_every_row(
    forgetting: float,
    intercept: bool,  # noqa: FBT001
) -> None:
    rng = np.random.default_rng(5)
    X, y, A = rng.normal(size=(25, 4)), rng.normal(size=(25, 2)), rng.normal(size=(6, 4))
    start = rng.normal(size=(2, 4))
    learner = RLSRegressor(A.T @ A, forgetting, fit_intercept=intercept, initial_coef=start)
    for i in range(25):
        learner.learn_one(X[i], y[i])
        coef, b = ridge_qr(
            X[: i + 1], y[: i + 1], A.T @ A,
            intercept=intercept, forgetting=forgetting, initial=start.T,
        )  # fmt: skip
        close(learner.coef_.T, coef, 1e-10)
        close(learner.intercept_, b, 1e-10, scale=1.0)


def test_a_semidefinite_ridge_matrix_gives_the_least_norm_solution_at_every_row() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(25, 6)), rng.normal(size=25)
    D = np.diff(np.eye(6), 2, axis=0)  # second differences: lines in the coefficients are free
    learner = RLSRegressor(ridge=4.0 * D.T @ D, fit_intercept=False)
    for i in range(25):
        learner.learn_one(X[i], y[i])
        rows, answers = np.vstack([2.0 * D, X[: i + 1]]), np.append(np.zeros(4), y[: i + 1])
        close(learner.coef_, np.linalg.lstsq(rows, answers)[0], 1e-10, scale=1e-3)


@pytest.mark.parametrize(
    "ridge", [-1.0, np.diag([1.0, -1.0]), np.array([[1.0, 2.0], [0.0, 1.0]]), np.eye(3)]
)
def test_a_ridge_that_is_no_penalty_is_refused(ridge: Any) -> None:
    with pytest.raises(ParameterError, match="ridge"):
        RLSRegressor(ridge=ridge).fit(np.eye(2), [1.0, 2.0])


# -- conditioning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-20])
@pytest.mark.parametrize("block", [1, 37, 400])
def test_condition_1e7_is_within_1e_8_of_qr_predictions(ridge: float, block: int) -> None:
    rng = np.random.default_rng(7)
    U, V = (np.linalg.qr(rng.normal(size=(n, 6)))[0] for n in (400, 6))
    X = U @ np.diag(np.logspace(0, -7, 6)) @ V.T
    y = X @ rng.normal(size=6) + 1e-3 * rng.normal(size=400)
    learner = RLSRegressor(ridge=ridge)
    for i in range(0, 400, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    coef, b = ridge_qr(X, y, ridge)
    close(learner.predict(X), X @ coef + b, 1e-8)


@pytest.mark.parametrize("ridge", [0.0, 1e-20, 1e-6])
@pytest.mark.parametrize("intercept", [True, False])
def test_features_scaled_from_1e_5_to_1e5_lose_no_digits(ridge: float, intercept: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(8)
    scales = np.array([1e-5, 1e5, 1.0, 1e-3, 1e3])
    X = (rng.normal(size=(300, 5)) + 1.0) * scales
    y = X @ (1.0 / scales) + rng.normal(size=300)
    learner = RLSRegressor(ridge=ridge, fit_intercept=intercept)
    said = np.concatenate([learner.test_then_train(X[i : i + 9], y[i : i + 9])
                           for i in range(0, 300, 9)])  # fmt: skip
    coef, b = ridge_qr(X, y, ridge, intercept=intercept)
    close(learner.predict(X), X @ coef + b, 1e-12)
    close(learner.coef_ * scales, coef * scales, 1e-11)
    before, b = ridge_qr(X[:299], y[:299], ridge, intercept=intercept)
    close(said[-1], X[-1] @ before + b, 1e-11)


@pytest.mark.parametrize("block", [1, 500])
def test_features_far_from_zero_keep_their_digits(block: int) -> None:
    rng = np.random.default_rng(9)
    near = rng.normal(size=(5000, 3))
    X = near + 1e8
    near = X - 1e8  # what float64 holds of them, exactly
    y = near @ [1.0, 2.0, 3.0] + rng.normal(size=5000) - 1e6
    learner = RLSRegressor(ridge=0.0)
    for i in range(0, 5000, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    coef, b = ridge_qr(near, y)
    close(learner.coef_, coef, 1e-11)
    close(learner.predict(X), near @ coef + b, 1e-12)  # of 1e6, through products of 1e8


def test_years_and_pressures_keep_their_digits_with_forgetting() -> None:
    rng = np.random.default_rng(10)
    X = np.column_stack([np.arange(1900.0, 2000.0, 0.1), 101325 + rng.normal(size=1000)])
    y = 0.02 * (X[:, 0] - 1950) + 3 * (X[:, 1] - 101325) + rng.normal(size=1000)
    learner = RLSRegressor(ridge=0.0, forgetting=0.99)
    for x, answer in zip(X, y, strict=True):
        learner.learn_one(x, answer)
    coef, b = ridge_qr(X - [1950, 101325], y, forgetting=0.99)
    close(learner.coef_, coef, 1e-12)
    close(learner.predict(X), (X - [1950, 101325]) @ coef + b, 1e-9)


# -- standard deviations ---------------------------------------------------------------------------


def test_std_is_the_textbook_formula_with_an_intercept() -> None:
    rng = np.random.default_rng(11)
    X, new = rng.normal(size=(30, 3)) + 5.0, rng.normal(size=(7, 3))
    y = X @ rng.normal(size=(3, 2)) + rng.normal(size=(30, 2))
    learner = RLSRegressor(ridge=0.0).fit(X, y)
    A = np.column_stack([np.ones(30), X])
    rest = y - A @ np.linalg.lstsq(A, y)[0]
    sigma = np.sqrt((rest**2).sum(axis=0) / (30 - 4))
    a = np.column_stack([np.ones(7), new])
    leverage = np.einsum("ij,jk,ik->i", a, np.linalg.inv(A.T @ A), a)
    said, std = learner.predict(new, return_std=True)
    close(said, learner.predict(new), 0.0)
    close(std, np.sqrt(1.0 + leverage)[:, None] * sigma, 1e-10)


def test_std_with_weights_and_forgetting_is_that_of_the_weighted_problem() -> None:
    rng = np.random.default_rng(12)
    X, y, new = rng.normal(size=(40, 3)), rng.normal(size=40), rng.normal(size=(5, 3))
    s, lam, ridge = rng.uniform(0.5, 2.0, 40), 0.97, 0.3
    for intercept in (True, False):
        learner = RLSRegressor(ridge, lam, fit_intercept=intercept)
        for rows in np.split(np.arange(40), [3, 17]):
            learner.partial_fit(X[rows], y[rows], s[rows])
        u = s * lam ** np.arange(39, -1, -1.0)
        A, a = (np.column_stack([np.ones(len(Z)), Z]) if intercept else Z for Z in (X, new))
        prior = lam**40 * ridge * np.eye(A.shape[1])
        if intercept:
            prior[0, 0] = 0.0
        M = A.T @ (u[:, None] * A) + prior
        w = np.linalg.solve(M, A.T @ (u * y))
        least = u @ (y - A @ w) ** 2 + w @ prior @ w
        variance = least / (u.sum() - A.shape[1])
        leverage = np.einsum("ij,jk,ik->i", a, np.linalg.inv(M), a)
        std = learner.predict(new, return_std=True)[1]
        close(std, np.sqrt(variance * (1.0 + leverage)), 1e-10)


def test_std_is_infinite_until_the_rows_determine_it() -> None:
    rng = np.random.default_rng(13)
    X, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    learner = RLSRegressor(ridge=0.0)
    for i in range(8):
        learner.learn_one(X[i], y[i])
        std = learner.predict(X, return_std=True)[1]
        assert np.isinf(std).all() if i < 4 else np.isfinite(std).all()


def test_std_is_infinite_where_columns_depend_on_each_other_however_well_they_fit() -> None:
    X = np.ones((9, 2))
    for y in (np.zeros(9), np.arange(9.0)):
        std = RLSRegressor(ridge=0.0).fit(X, y).predict(X, return_std=True)[1]
        assert np.isinf(std).all()


# -- long streams, and numbers of every size -------------------------------------------------------


@pytest.mark.parametrize("forgetting", [0.9, 0.98])
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_silent_constant_and_returning_features_never_give_nan(
    forgetting: float, ridge: float
) -> None:
    rng = np.random.default_rng(14)
    n = 100_000
    X = rng.normal(size=(n, 6))
    X[:, 1], X[:, 2], X[100:, 3], X[:-50, 4], X[100:, 5] = 3.0, 0.0, 0.0, 0.0, 7.0
    y = X @ np.arange(1.0, 7.0) + 0.1 * rng.normal(size=n)
    learner = RLSRegressor(ridge, forgetting)
    said = learner.test_then_train(X, y)
    assert np.isfinite(said).all()
    assert np.isfinite(learner.coef_).all()
    assert np.abs(said - y)[500:-50].max() < 5.0
    back = rng.normal(size=(200, 6))
    said = learner.test_then_train(back, back @ np.arange(1.0, 7.0))
    assert np.isfinite(said).all()
    close(learner.predict(back), back @ np.arange(1.0, 7.0), 0.05)


@pytest.mark.parametrize("size", [1e100, 1e154, 1e200, 1e300])
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
@pytest.mark.parametrize("where", ["X", "y", "both"])
def test_huge_numbers_are_learned_finite_or_refused_whole(
    size: float, ridge: float, where: str
) -> None:
    rng = np.random.default_rng(15)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    learner = RLSRegressor(ridge).partial_fit(X, y)
    coef, seen, state = learner.coef_, learner.rows_seen_, learner.memory_
    big = rng.normal(size=(5, 3)) * (size if where != "y" else 1.0)
    answers = rng.normal(size=5) * (size if where != "X" else 1.0)
    try:
        learner.partial_fit(big, answers)
    except NumericalError:
        assert (learner.coef_ == coef).all()
        assert learner.rows_seen_ == seen
        assert learner.memory_ is state
    else:
        assert np.isfinite(learner.coef_).all()
        assert np.isfinite(learner.predict(X)).all()
        assert not np.isnan(learner.predict(X, return_std=True)[1]).any()


@pytest.mark.parametrize("size", [1e-100, 1e-160, 1e-300])
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_tiny_numbers_are_learned_finite(size: float, ridge: float) -> None:
    rng = np.random.default_rng(16)
    X, y = size * rng.normal(size=(20, 3)), rng.normal(size=20)
    try:
        learner = RLSRegressor(ridge).partial_fit(X, y)
    except NumericalError:
        return
    assert np.isfinite(learner.coef_).all()
    assert np.isfinite(learner.predict(X)).all()


# -- all shapes and layouts ------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 5), (5, 1), (3, 40), (200, 3)])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_any_number_of_rows_and_features(n: int, d: int, ridge: float) -> None:
    rng = np.random.default_rng(17)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    learner = RLSRegressor(ridge).fit(X, y)
    coef, b = ridge_qr(X, y, ridge)
    close(learner.coef_, coef, 1e-9, scale=1e-3)
    close(learner.intercept_, b, 1e-9, scale=1.0)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_layout_and_precision_of_the_rows_do_not_matter(ridge: float) -> None:
    rng = np.random.default_rng(18)
    X, y = rng.normal(size=(60, 8)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    expected = RLSRegressor(ridge).fit(X.astype(np.float64), y.astype(np.float64))
    wide, long = np.zeros((60, 16), dtype=np.float32), np.zeros((120, 8), dtype=np.float32)
    wide[:, ::2], long[::2] = X, X
    fixed = X.copy()
    fixed.flags.writeable = False
    for rows in (X, np.asfortranarray(X), wide[:, ::2], long[::2], fixed):
        learner = RLSRegressor(ridge)
        learner.partial_fit(rows[:7], y[:7]).partial_fit(rows[7:], y[7:])
        close(learner.coef_, expected.coef_, 1e-12)
        assert learner.coef_.dtype == np.float64


def test_late_features_are_as_if_zero_in_every_row_before() -> None:
    rng = np.random.default_rng(19)
    X, y = rng.normal(size=(40, 5)), rng.normal(size=40)
    X[:25, 3:] = 0.0
    for ridge, forgetting in ((0.0, 1.0), (0.0, 0.98), (0.2, 1.0)):
        late = RLSRegressor(ridge, forgetting).partial_fit(X[:25, :3], y[:25]).grow(5)
        late.partial_fit(X[25:], y[25:])
        known = RLSRegressor(ridge, forgetting).partial_fit(X, y)
        close(late.coef_, known.coef_, 1e-11)
        close(late.intercept_, known.intercept_, 1e-11, scale=1.0)


# -- classification --------------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_the_classifier_is_regression_on_indicators(forgetting: float, ridge: float) -> None:
    rng = np.random.default_rng(20)
    X, y, s = rng.normal(size=(60, 4)), rng.integers(0, 3, 60), rng.uniform(0.5, 2.0, 60)
    classifier = RLSClassifier(ridge, forgetting).partial_fit(X, y, sample_weight=s)
    regressor = RLSRegressor(ridge, forgetting)
    scores = regressor.test_then_train(X, np.eye(3)[y], s)
    close(classifier.coef_, regressor.coef_, 0.0)
    close(classifier.decision_function(X), regressor.predict(X), 0.0)
    again = RLSClassifier(ridge, forgetting, classes=[0, 1, 2])
    said = again.test_then_train(X, y, s)
    first = np.array([np.argmax(y == k) for k in range(3)])
    known = np.arange(60)[:, None] > first
    expected = np.argmax(np.where(known, scores, -np.inf), axis=1)
    assert (said[3:] == expected[3:]).mean() > 0.95  # named classes take part before their row


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_a_late_class_is_learned_as_if_it_had_been_known_all_along(
    forgetting: float, ridge: float
) -> None:
    rng = np.random.default_rng(21)
    X = rng.normal(size=(60, 4))
    y = np.array(["b", "d"])[rng.integers(0, 2, 60)]
    y[30::5], y[45::7] = "a", "c"
    named = RLSClassifier(ridge, forgetting, classes=list("abcd")).partial_fit(X, y)
    late = RLSClassifier(ridge, forgetting)
    for i in range(60):
        late.learn_one(X[i], y[i])
    close(late.coef_, named.coef_, 1e-11)
    close(late.intercept_, named.intercept_, 1e-11)
    close(late.decision_function(X), named.decision_function(X), 1e-11)
