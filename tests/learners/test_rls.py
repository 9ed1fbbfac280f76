"""RLS against batch QR and the printed recursion."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onepass import RLSClassifier, RLSRegressor
from onepass.errors import ParameterError
from onepass.forgetting import Exponential
from onepass.memory.least_squares import triangle
from oracles import ridge_qr, rls_row_by_row
from raising import raises
from sampling import sample

Floats = NDArray[np.float64]
PROPERTY = settings(max_examples=60, deadline=None)


class Task(NamedTuple):
    """Rows, and the settings to learn them with."""

    X: Floats
    y: Floats
    weights: Floats | None
    cuts: list[int]
    settings: dict[str, Any]

    def learner(self) -> RLSRegressor:
        rule = Exponential(self.settings["forgetting"])
        return RLSRegressor(**{**self.settings, "forgetting": rule})

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
            scaled="size",
        )

    def weighted(self) -> Floats:
        """The rows times the roots of their weights, centred if there is an intercept."""
        X, n = self.X, len(self.X)
        s = np.ones(n) if self.weights is None else self.weights
        root = np.sqrt(s * self.settings["forgetting"] ** np.arange(n - 1, -1, -1.0))
        mean = root**2 @ X / (root**2).sum() if self.settings["fit_intercept"] else 0.0
        return np.asarray(root[:, None] * (X - mean))


def _columns(coef: Any) -> Any:
    return None if coef is None else np.asarray(coef).T


def fit_blocks(task: Task) -> tuple[RLSRegressor, Floats]:
    """The learner after all blocks, and prequential predictions."""
    learner, predictions = task.learner(), []
    for rows in np.split(np.arange(len(task.X)), task.cuts):
        s = None if task.weights is None else task.weights[rows]
        predictions.append(learner.test_then_train(task.X[rows], task.y[rows], s))
    return learner, np.concatenate([part for part in predictions if len(part)])


def condition(task: Task) -> float:
    """Largest by smallest singular value, not zero, of the weighted and centred rows."""
    sigma = np.linalg.svd(task.weighted(), compute_uv=False)
    real = sigma[sigma > 1e-11 * sigma[0]] if sigma[0] else np.ones(1)
    return float(real[0] / real[-1])


def is_determined(task: Task) -> bool:
    """Whether the rows determine all coefficients."""
    A = task.weighted()
    return int(np.linalg.matrix_rank(A, tol=1e-11 * np.linalg.norm(A))) == A.shape[1]


def assert_close(a: Any, b: Any, tolerance: float, *, scale: float = 0.0) -> None:
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
def test_coefficients_of_any_blocks_equal_batch_ridge(task: Task) -> None:
    assume(condition(task) <= 1e4)
    learner, _ = fit_blocks(task)
    coef, b = task.batch()
    assert_close(_columns(learner.coef_), coef, 1e-10, scale=1e-3)
    assert_close(
        learner.intercept_, b, 1e-10, scale=float(np.abs(coef).max() * np.abs(task.X).max())
    )


def zero_ridge_tolerance(task: Task) -> float:
    """Of ridge 0: its prior has 1e-8 times the column lengths until it is removed."""
    return 1e-10 + 4e-16 * condition(task) ** 2


@PROPERTY
@given(tasks(ridges=(0.0,)))
def test_zero_ridge_equals_batch_at_full_rank(task: Task) -> None:
    assume(condition(task) <= 1e4 and is_determined(task))
    learner, _ = fit_blocks(task)
    coef, b = task.batch()
    tolerance = zero_ridge_tolerance(task)
    assert_close(_columns(learner.coef_), coef, tolerance, scale=1e-3)
    assert_close(
        learner.intercept_, b, tolerance, scale=float(np.abs(coef).max() * np.abs(task.X).max())
    )


@PROPERTY
@given(tasks(ridges=(0.0,), most=7))
def test_zero_ridge_below_full_rank_fits_the_rows_with_nearly_the_least_norm(task: Task) -> None:
    assume(condition(task) <= 1e4 and not is_determined(task))
    learner, _ = fit_blocks(task)
    coef, b = task.batch()
    learned = task.X if task.weights is None else task.X[task.weights > 0.0]
    assert_close(
        learner.predict(learned),
        learned @ coef + b,
        zero_ridge_tolerance(task),
        scale=_prediction_scale(task.X, coef),
    )
    start, sizes = task.settings["initial_coef"], np.linalg.norm(task.weighted(), axis=0)
    found, least = (
        np.linalg.norm((sizes * np.asarray(w - (0.0 if start is None else start))).ravel())
        for w in (learner.coef_, np.asarray(coef).T)
    )
    assert found <= 2.5 * least + 1e-6  # a unit is between half the length of a column and once


@settings(max_examples=25, deadline=None)
@given(tasks(ridges=(0.0, 1e-2), most=20))
def test_prequential_predictions_equal_batch_ridge_of_earlier_rows(task: Task) -> None:
    _, predictions = fit_blocks(task)
    for i in range(1, len(task.X)):
        seen = task._replace(X=task.X[:i], y=task.y[:i], weights=_first_weights(task.weights, i))
        if (seen.weights is not None and not seen.weights.any()) or condition(seen) > 1e3:
            continue
        if task.settings["ridge"] == 0.0 and not is_determined(seen):
            continue
        coef, b = seen.batch()
        assert_close(
            predictions[i],
            task.X[i] @ coef + b,
            1e-9,
            scale=_prediction_scale(task.X[: i + 1], coef),
        )


def _first_weights(weights: Floats | None, i: int) -> Floats | None:
    return None if weights is None else weights[:i]


def _prediction_scale(X: Floats, coef: Floats) -> float:
    return float(np.abs(X).max() * max(np.abs(coef).max(), 1e-3))


@PROPERTY
@given(tasks(ridges=(1e-2, 1.0)))
def test_predictions_weights_and_p_equal_printed_recursion(task: Task) -> None:
    task = task._replace(settings={**task.settings, "fit_intercept": False})
    assume(condition(task) <= 1e4)
    learner, predictions = fit_blocks(task)
    looped = rls_row_by_row(
        task.X,
        task.y,
        task.settings["ridge"],
        weights=task.weights,
        forgetting=task.settings["forgetting"],
        initial=_columns(task.settings["initial_coef"]),
    )
    size = _prediction_scale(task.X, looped.coef)
    assert_close(_columns(learner.coef_), looped.coef, 1e-9, scale=1e-3)
    assert_close(predictions, looped.predictions, 1e-9, scale=size)
    probes = np.random.default_rng(0).normal(size=(5, task.X.shape[1]))
    through = np.einsum("ij,jk,ik->i", probes, looped.P, probes)
    V = scipy.linalg.solve_triangular(triangle(learner.state_)[0], probes.T, trans="T")
    assert_close((V**2).sum(axis=0), through, 1e-8)


@pytest.mark.parametrize("intercept", [True, False])
def test_degenerate_columns_give_lstsq_at_every_row(*, intercept: bool) -> None:
    rng = np.random.default_rng(2)
    free = rng.normal(size=(30, 3))
    X = np.column_stack(
        [np.zeros(30), free[:, 0], np.full(30, 2.5), free[:, 0], 1e5 * free[:, 1], free[:, 2]]
    )
    y = rng.normal(size=30)
    learner = RLSRegressor(ridge=0.0, fit_intercept=intercept)
    for i in range(30):
        learner.learn_one(X[i], y[i])
        coef, b = ridge_qr(X[: i + 1], y[: i + 1], 0.0, intercept=intercept, scaled="size")
        rows = X if i >= 4 else X[: i + 1]  # the former are determined
        assert_close(learner.predict(rows), rows @ coef + b, 1e-9)
        if i >= 4:  # how equal columns share a coefficient is a matter of rounding
            merge = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0]])
            assert_close(merge @ learner.coef_, merge @ coef, 1e-9)
            assert_close(learner.coef_[4:], coef[4:], 1e-9)


def test_integer_weights_equal_repeated_rows() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 4)), rng.normal(size=40)
    times = rng.integers(0, 3, size=40)
    for ridge in (0.0, 0.5):
        weighted = RLSRegressor(ridge=ridge).partial_fit(X, y, sample_weight=times)
        repeated = RLSRegressor(ridge=ridge).partial_fit(X.repeat(times, 0), y.repeat(times))
        assert_close(weighted.coef_, repeated.coef_, 1e-12)
        assert_close(weighted.intercept_, repeated.intercept_, 1e-12)
        assert weighted.rows_seen_ == np.count_nonzero(times)


def test_row_of_weight_zero_does_not_age_earlier_rows() -> None:
    rng = np.random.default_rng(4)
    X, y, s = rng.normal(size=(40, 4)), rng.normal(size=40), np.ones(40)
    s[10:20] = 0.0
    a = RLSRegressor(forgetting=Exponential(0.9)).partial_fit(X, y, sample_weight=s)
    b = RLSRegressor(forgetting=Exponential(0.9)).partial_fit(X[s > 0], y[s > 0])
    assert_close(a.coef_, b.coef_, 1e-13)


# -- ridge as a matrix -----------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("intercept", [True, False])
def test_definite_ridge_matrix_equals_batch_ridge(
    forgetting: float,
    intercept: bool,  # noqa: FBT001
) -> None:
    rng = np.random.default_rng(5)
    X, y, A = rng.normal(size=(25, 4)), rng.normal(size=(25, 2)), rng.normal(size=(6, 4))
    start = rng.normal(size=(2, 4))
    learner = RLSRegressor(
        A.T @ A, Exponential(forgetting), fit_intercept=intercept, initial_coef=start
    )
    for i in range(25):
        learner.learn_one(X[i], y[i])
        coef, b = ridge_qr(
            X[: i + 1], y[: i + 1], A.T @ A,
            intercept=intercept, forgetting=forgetting, initial=start.T,
        )  # fmt: skip
        assert_close(learner.coef_.T, coef, 1e-10)
        assert_close(learner.intercept_, b, 1e-10, scale=1.0)


def test_semidefinite_ridge_matrix_equals_batch() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(25, 6)), rng.normal(size=25)
    D = np.diff(np.eye(6), 2, axis=0)  # second differences: lines in the coefficients are free
    learner = RLSRegressor(ridge=4.0 * D.T @ D, fit_intercept=False)
    for i in range(25):
        learner.learn_one(X[i], y[i])
        rows, targets = np.vstack([2.0 * D, X[: i + 1]]), np.append(np.zeros(4), y[: i + 1])
        coef = np.linalg.lstsq(rows, targets)[0]
        assert_close(rows @ learner.coef_, rows @ coef, 1e-10)
        if i >= 1:  # two rows determine a line
            assert_close(learner.coef_, coef, 1e-10, scale=1e-3)


@pytest.mark.parametrize(
    "ridge", [-1.0, np.diag([1.0, -1.0]), np.array([[1.0, 2.0], [0.0, 1.0]]), np.eye(3)]
)
def test_invalid_ridge_is_refused(ridge: Any) -> None:
    with raises(ParameterError, argument="ridge"):
        RLSRegressor(ridge=ridge).fit(np.eye(2), [1.0, 2.0])


# -- classification --------------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_classifier_equals_regression_on_indicators(forgetting: float, ridge: float) -> None:
    rng = np.random.default_rng(20)
    X, y, s = rng.normal(size=(60, 4)), rng.integers(0, 3, 60), rng.uniform(0.5, 2.0, 60)
    classifier = RLSClassifier(ridge, Exponential(forgetting)).partial_fit(X, y, sample_weight=s)
    regressor = RLSRegressor(ridge, Exponential(forgetting))
    scores = regressor.test_then_train(X, np.eye(3)[y], s)
    assert_close(classifier.coef_, regressor.coef_, 0.0)
    assert_close(classifier.decision_function(X), regressor.predict(X), 0.0)
    again = RLSClassifier(ridge, Exponential(forgetting), classes=[0, 1, 2])
    predictions = again.test_then_train(X, y, s)
    first = np.array([np.argmax(y == k) for k in range(3)])
    known = np.arange(60)[:, None] > first
    expected = np.argmax(np.where(known, scores, -np.inf), axis=1)
    assert (
        predictions[3:] == expected[3:]
    ).mean() > 0.95  # named classes take part before their row


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_late_class_equals_class_given_in_advance(forgetting: float, ridge: float) -> None:
    rng = np.random.default_rng(21)
    X = rng.normal(size=(60, 4))
    y = np.array(["b", "d"])[rng.integers(0, 2, 60)]
    y[30::5], y[45::7] = "a", "c"
    named = RLSClassifier(ridge, Exponential(forgetting), classes=list("abcd")).partial_fit(X, y)
    late = RLSClassifier(ridge, Exponential(forgetting))
    for i in range(60):
        late.learn_one(X[i], y[i])
    assert_close(late.coef_, named.coef_, 1e-11)
    assert_close(late.intercept_, named.intercept_, 1e-11)
    assert_close(late.decision_function(X), named.decision_function(X), 1e-11)


@pytest.mark.parametrize(
    ("mean", "block", "forgetting"),
    sample(list(product([0.0, 1e3, 1e6, 1e9], [1, 40, 200], [1.0, 0.99])), 8, "two units"),
)
def test_feature_in_two_units_has_the_effect_of_one_at_any_mean(
    mean: float, block: int, forgetting: float
) -> None:
    rng = np.random.default_rng(0)
    near, other = rng.normal(size=(2, 200))
    y = near + other + 0.1 * rng.normal(size=200)
    X = np.column_stack((mean + near, 3.28084 * (mean + near), other))
    learner = RLSRegressor(0.0, Exponential(forgetting))
    for i in range(0, 200, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    assert np.sqrt(np.mean((learner.predict(X) - y) ** 2)) < 0.11
    if mean < 1e8:  # the rounding of larger columns is more than 1e-8 of their deviations
        coef, b = ridge_qr(np.column_stack((near, other)), y, forgetting=forgetting)
        merged = learner.coef_ @ [[1.0, 0.0], [3.28084, 0.0], [0.0, 1.0]]
        np.testing.assert_allclose(merged, coef, rtol=1e-6)
        rows = np.column_stack((near, other))
        np.testing.assert_allclose(learner.predict(X), rows @ coef + b, atol=1e-5)
