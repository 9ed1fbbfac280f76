"""Automatic forgetting is the stated mixture of learners with fixed forgetting factors."""

import copy
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags

import onepass as op
from onepass.forgetting.auto import FACTORS
from onepass.memory import least_squares
from onepass.memory.least_squares import experts, shares, triangle
from onepass.memory.mixture import Mixture
from raising import raises


def drifting(seed: int = 0, n: int = 1500, c: int = 1, speed: float = 0.05) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 100.0, 0.0, 3.0]
    truth = np.cumsum(speed * rng.normal(size=(n, 4, c)), axis=0) / [[1.0], [10.0], [0.1], [1.0]]
    Y = np.einsum("nd,ndc->nc", X, truth) + rng.normal(size=(n, c))
    return X, Y[:, 0] if c == 1 else Y


def mixture(
    each: Any, Y: Any, s: Any, first: int = 10, *, indicators: bool = False
) -> tuple[Any, Any]:
    """Predictions by a plain loop, from those of the experts (K, n, c); and the final weights.

    Rows before ``first`` are not counted.
    """
    K, n, c = each.shape
    pi, mixed = np.full((K, c), 1.0 / K), np.zeros((n, c))
    for j in range(c):
        squares = count = 0.0
        for i in range(n):
            mixed[i, j] = pi[:, j] @ each[:, i, j]
            if i < first:
                continue
            guess = np.clip(each[:, i, j], 0, 1) if indicators else each[:, i, j]
            loss = s[i] * (guess - Y[i, j]) ** 2
            v = squares / count if squares > 0 else np.inf
            w = (0.995 * pi[:, j] + 0.005 / K) * np.exp(-0.25 * np.minimum(loss / v, 16.0))
            pi[:, j] = w / w.sum()
            lead = min(loss[pi[:, j].argmax()], 1000.0 * v)
            squares = 0.995 * squares + max(lead, 1e-16 * s[i] * Y[i, j] ** 2)
            count = 0.995 * count + 1.0
    return mixed, pi


@pytest.mark.parametrize("settings", [{}, {"ridge": 0.0}, {"prior": 1.0}, {"fit_intercept": False}])
@pytest.mark.parametrize("c", [1, 3])
def test_predictions_are_those_of_the_mixture(settings: dict[str, Any], c: int) -> None:
    X, y = drifting(c=c)
    s = np.random.default_rng(1).uniform(0.1, 3.0, size=len(X))
    each = np.array(
        [op.RLSRegressor(forgetting=f, **settings).test_then_train(X, y, s) for f in FACTORS]
    ).reshape(len(FACTORS), len(X), c)
    model = op.RLSRegressor(forgetting="auto", **settings)
    scale, first = np.abs(y).max(), 20
    mixed, pi = mixture(each, y.reshape(-1, c), s, first)
    np.testing.assert_allclose(
        model.test_then_train(X, y, s).reshape(-1, c), mixed, rtol=0, atol=1e-7 * scale
    )
    leads = np.array(FACTORS)[pi.argmax(axis=0)]
    assert np.array_equal(np.atleast_1d(model.forgetting_factor_), leads)
    assert isinstance(model.forgetting_factor_, float if c == 1 else np.ndarray)


def test_scores_of_classes_are_limited_in_the_losses() -> None:
    X, y = drifting(2, c=3)
    labels = y.argmax(axis=1)
    Y = (labels[:, None] == np.arange(3)).astype(float)
    each = np.array([op.RLSRegressor(forgetting=f).test_then_train(X, Y) for f in FACTORS])
    mixed, _ = mixture(each, Y, np.ones(len(X)), indicators=True)
    model = op.RLSClassifier(forgetting="auto", classes=[0, 1, 2])
    predictions = model.test_then_train(X, labels)
    assert np.mean(predictions[5:] == mixed.argmax(axis=1)[5:]) > 0.999


def test_late_class_equals_known_class_and_late_feature_equals_constant() -> None:
    X, y = drifting(3)
    positive = y > np.median(y)
    labels = np.where(np.arange(len(X)) < 700, positive, 2 * positive).astype(int)
    late, known = (op.RLSClassifier(forgetting="auto", classes=k) for k in (None, [0, 1, 2]))
    for model in (late, known):
        model.partial_fit(X[:700], labels[:700]).partial_fit(X[700:], labels[700:])
    np.testing.assert_allclose(late.coef_, known.coef_, rtol=1e-7, atol=1e-9)
    names = ["a", "b", "c", "d"]
    rows = [dict(zip(names, x, strict=True)) for x in X.tolist()]
    short = [{k: v for k, v in row.items() if k != "d"} for row in rows[:300]]
    constant = [row | {"d": rows[300]["d"]} for row in rows[:300]]
    grown, whole = (
        op.Pipeline(op.features.Encode(), op.RLSRegressor(forgetting="auto")) for _ in range(2)
    )
    grown.partial_fit(short, y[:300]).partial_fit(rows[300:], y[300:])
    whole.partial_fit(constant, y[:300]).partial_fit(rows[300:], y[300:])
    np.testing.assert_allclose(grown.learner.coef_, whole.learner.coef_, rtol=1e-7)


def test_block_boundaries_and_single_rows_do_not_matter() -> None:
    X, y = drifting(4)
    whole, parts, single = (op.RLSRegressor(forgetting="auto") for _ in range(3))
    predictions = whole.test_then_train(X, y)
    cuts = [0, 1, 2, 63, 65, 700, 701, len(X)]
    found = [parts.test_then_train(X[i:j], y[i:j]) for i, j in pairwise(cuts)]
    np.testing.assert_allclose(np.concatenate(found), predictions, atol=1e-7)
    for x, target in zip(X, y, strict=True):
        single.learn_one(x, target)
    for model in (parts, single):
        np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-7)
        np.testing.assert_allclose(model.predict(X[:9]), whole.predict(X[:9]), rtol=1e-7)
        np.testing.assert_allclose(model.predict_one(X[0]), whole.predict(X[:1])[0])


@pytest.mark.parametrize("model", [op.RLSRegressor(forgetting="auto"), op.KalmanRegressor()])
def test_memory_layout_of_the_weights_does_not_matter(model: Any) -> None:
    X, y = drifting(n=60)
    s = np.random.default_rng(0).uniform(0.5, 2.0, size=(60, 2))
    found = clone(model).test_then_train(X, y, sample_weight=s[:, 0])
    expected = clone(model).test_then_train(X, y, sample_weight=s[:, 0].copy())
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("speed", [0.0, 0.01, 0.1])
def test_error_is_near_that_of_the_best_factor(speed: float) -> None:
    X, y = drifting(5, 6000, speed=speed)

    def error(forgetting: Any) -> float:
        return float(
            np.abs(op.RLSRegressor(forgetting=forgetting).test_then_train(X, y) - y).mean()
        )

    assert error("auto") < 1.02 * min(error(factor) for factor in FACTORS)


@pytest.mark.parametrize("outlier", [1e4, 1e5])
def test_weights_follow_the_errors_after_an_outlier(outlier: float) -> None:
    X, y = drifting(15, 3000, speed=0.0)
    y[1000] = outlier
    errors = np.abs(op.RLSRegressor(forgetting="auto").test_then_train(X, y) - y)
    assert errors[1200:1400].mean() < 2e-5 * outlier + 1.1 * errors[800:1000].mean()
    assert errors[2500:].mean() < 1.2 * errors[800:1000].mean()


@pytest.mark.parametrize("squares", [5e-324, 1e-300, 0.0, 1e300])
@pytest.mark.parametrize("error", [0.0, 1e-160, 1e150])
def test_weights_stay_finite_for_all_errors(squares: float, error: float) -> None:
    weights = shares(op.RLSRegressor(forgetting="auto").fit(*drifting()).state_)
    state = Mixture(weights, np.array([squares]), 200.0)
    with np.errstate(over="ignore"):
        after = state.mixed(np.full((len(FACTORS), 3, 1), error), np.ones((3, 1)), None)[1]
    assert np.isfinite(after.weights).all()
    assert np.isfinite(after.squares).all()


@pytest.mark.parametrize("rows", [40, 1000])
def test_copies_and_files_continue_bit_for_bit(rows: int, tmp_path: Path) -> None:
    X, y = drifting(6, 1200, c=2)
    model = op.RLSRegressor(forgetting="auto").fit(X[:rows], y[:rows])
    model.learn_one(X[rows], y[rows])
    op.save(model, tmp_path / "m")
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]  # noqa: S301  our own
    twins.append(op.load(tmp_path / "m"))
    want = model.partial_fit(X[rows:], y[rows:]).coef_
    for twin in twins:
        assert twin.forgetting == "auto"
        assert np.array_equal(twin.partial_fit(X[rows:], y[rows:]).coef_, want)


def test_standard_deviations_are_those_of_the_mixture() -> None:
    X, y = drifting(7, 900, c=2)
    model = op.RLSRegressor(forgetting="auto").fit(X, y)
    pi, points = shares(model.state_), X[:20]
    v = least_squares.mixture_noise(model.state_)
    predictions, std = model.predict(points, return_std=True)
    R = triangle(experts(model.state_)[0])[0]
    P = np.linalg.inv(R.T @ R)
    away = points - X.mean(axis=0)
    spread = 1 + 1 / 900 + np.einsum("nd,de,ne->n", away, P, away)
    variance, covariance = spread[:, None] * v, np.zeros((2, 4, 4))
    for k, factor in enumerate(FACTORS):
        one = op.RLSRegressor(forgetting=factor).fit(X, y)
        variance += pi[k] * (one.predict(points) - predictions) ** 2
        R = triangle(one.state_)[0]
        for j, by in enumerate(one.coef_ - model.coef_):
            covariance[j] += pi[k, j] * (v[j] * np.linalg.inv(R.T @ R) + np.outer(by, by))
    np.testing.assert_allclose(std**2, variance, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, covariance, rtol=1e-5, atol=1e-9)
    one_mean, one_std = model.predict_one(points[0], return_std=True)
    np.testing.assert_allclose(one_mean, predictions[0], rtol=1e-9)
    np.testing.assert_allclose(one_std, std[0], rtol=1e-7)


@pytest.mark.parametrize("speed", [0.0, 0.02, 0.3])
def test_intervals_cover_as_many_targets_as_stated(speed: float) -> None:
    X, y = drifting(8, 1500, speed=speed)
    model = op.RLSRegressor(forgetting="auto").partial_fit(X[:500], y[:500])
    inside = []
    for x, target in zip(X[500:], y[500:], strict=True):
        prediction, std = model.predict_one(x, return_std=True)
        inside.append(abs(prediction - target) < 1.96 * std)
        model.learn_one(x, target)
    assert 0.92 < np.mean(inside) < 0.98
    early = op.RLSRegressor(forgetting="auto").fit(X[:5], y[:5])
    assert np.isinf(early.predict(X[:1], return_std=True)[1]).all()
    assert np.isinf(early.coef_std_).all()


def test_merge_is_exact_for_all_rows_and_near_for_faded_ones() -> None:
    X, y = drifting(9, 2000)
    a, b, whole = (op.RLSRegressor(forgetting="auto") for _ in range(3))
    a.partial_fit(X[:1200], y[:1200])
    b.partial_fit(X[1200:], y[1200:])
    whole.partial_fit(X, y)
    merged = copy.deepcopy(a).merge(b)
    assert get_tags(merged).merging == "approximate"
    assert merged.rows_seen_ == 2000
    first, of_all = (np.linalg.solve(*triangle(experts(m.state_)[0])) for m in (merged, whole))
    np.testing.assert_allclose(first, of_all, rtol=1e-8)
    np.testing.assert_allclose(merged.predict(X[-50:]), whole.predict(X[-50:]), rtol=0.02)
    np.testing.assert_allclose(shares(merged.state_), shares(whole.state_), atol=0.05)
    after = merged.test_then_train(X, y)
    assert np.abs(after - y).mean() < 1.2 * np.abs(whole.test_then_train(X, y) - y).mean()
    empty = op.RLSRegressor(forgetting="auto").merge(b)
    np.testing.assert_allclose(empty.predict(X[:9]), b.predict(X[:9]), rtol=1e-6)
    both = copy.deepcopy(a).merge(b, concurrent=True)
    assert np.isfinite(both.coef_).all()
    with pytest.raises(op.errors.MergeError):
        a.merge(op.RLSRegressor(forgetting=0.99).fit(X, y))


def test_classes_and_features_of_both_learners_are_merged() -> None:
    X, y = drifting(10, 800)
    labels = np.digitize(y, [-1.0, 1.0])
    first, second = labels[:400] < 2, labels[400:] > 0
    a = op.RLSClassifier(forgetting="auto").fit(X[:400][first], labels[:400][first])
    b = op.RLSClassifier(forgetting="auto").fit(X[400:][second], labels[400:][second])
    a.merge(b)
    assert list(a.classes_) == [0, 1, 2]
    assert shares(a.state_).shape == (len(FACTORS), 3)
    a.partial_fit(X, labels)
    assert np.isfinite(a.coef_).all()


def test_models_of_keys_forget_automatically() -> None:
    X, y = drifting(11, 600)
    keys = np.arange(600) % 3
    model = op.Keyed(op.RLSRegressor(forgetting="auto"), by=0, prior_strength=10)
    model.partial_fit(np.column_stack((keys, X)), y)
    assert np.isfinite(model.predict(np.column_stack((keys, X)))).all()


def test_refused_rows_change_nothing_and_messages_name_auto() -> None:
    X, y = drifting(12, 200)
    model = op.RLSRegressor(forgetting="auto").fit(X, y)
    before = model.coef_
    with pytest.raises(op.errors.NotFiniteError):
        model.partial_fit(X * np.nan, y)
    with pytest.raises(op.errors.NumericalError):
        model.partial_fit(X * 1e200, y)
    assert np.array_equal(model.coef_, before)
    with pytest.raises(op.errors.ParameterError, match="auto"):
        op.RLSRegressor(forgetting="atuo").fit(X, y)
    with pytest.raises(op.errors.ParameterError, match="no arguments"):
        op.RLSRegressor(forgetting="auto:0.99").fit(X, y)
    with raises(op.errors.ParameterError, argument="forgetting"):
        model.set_params(forgetting=0.9).partial_fit(X, y)
    assert not hasattr(op.RLSRegressor(forgetting=0.9).fit(X, y), "forgetting_factor_")


@pytest.mark.parametrize("settings", [{}, {"ridge": 0.0}, {"fit_intercept": False}])
def test_covariance_is_that_of_the_batch_solution(settings: dict[str, Any]) -> None:
    X, Y = drifting(13, 300, c=2)
    s = np.random.default_rng(2).uniform(0.5, 2.0, size=300) * 0.98 ** np.arange(300)[::-1]
    model = op.RLSRegressor(**{"ridge": 1e-3, **settings}).fit(X, Y, s)
    A = np.column_stack((np.ones(300), X)) if model.fit_intercept else X
    penalty = np.diag([0.0] * (A.shape[1] - 4) + [model.ridge] * 4)
    P = np.linalg.inv((A.T * s) @ A + penalty)
    theta = P @ (A.T * s) @ Y
    noise = (s[:, None] * (Y - A @ theta) ** 2).sum(axis=0) / (s.sum() - A.shape[1])
    want = noise[:, None, None] * P[-4:, -4:]
    np.testing.assert_allclose(model.covariance_, want, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(model.coef_std_, np.sqrt(np.diagonal(want, axis1=1, axis2=2)))
    one = op.RLSRegressor(**{"ridge": 1e-3, **settings}).fit(X, Y[:, 0], s)
    np.testing.assert_allclose(one.covariance_, want[0], rtol=1e-7, atol=1e-12)


def test_covariance_is_infinite_while_undetermined() -> None:
    X, y = drifting(14, 20)
    assert np.isinf(op.RLSRegressor(0.0).fit(X[:4], y[:4]).coef_std_).all()
    with pytest.raises(op.errors.NotFittedError):
        op.RLSRegressor().covariance_  # noqa: B018


def test_covariance_is_infinite_if_columns_are_dependent() -> None:
    X, y = drifting(14, 20)
    X[:, 1] = X[:, 0]
    assert np.isinf(op.RLSRegressor(0.0).fit(X, y).coef_std_[:2]).all()


def drawn(kind: str, rng: np.random.Generator, n: int = 3000) -> tuple[Any, Any]:
    """Correlated, often smooth features, and a target whose weights move."""
    d = int(rng.integers(2, 21))
    X = rng.normal(size=(n, d)) @ (0.5 * rng.normal(size=(d, d)) + np.eye(d))
    if rng.random() < 0.5:
        X = 0.05 * np.cumsum(X, axis=0) + 0.3 * X
    W = np.tile(rng.normal(size=d), (n, 1))
    if kind in {"slow", "fast"}:
        W += np.cumsum({"slow": 0.003, "fast": 0.05}[kind] * rng.normal(size=(n, d)), axis=0)
    for at in np.sort(rng.integers(200, n, 4)) if kind == "abrupt" else []:
        W[at:] = rng.normal(size=d)
    if kind == "seasonal":
        W *= 1 + 0.8 * np.sin(2 * np.pi * np.arange(n)[:, None] / rng.integers(100, 1000))
    noise = 10 ** rng.uniform(-2.0, 0.3) * rng.normal(size=n)
    return X, (W * X).sum(axis=1) + noise + rng.choice([0.0, 300.0])


@pytest.mark.parametrize("kind", ["none", "slow", "fast", "abrupt", "seasonal"])
def test_errors_are_close_to_those_of_the_best_factor(kind: str, rng: np.random.Generator) -> None:
    X, y = drawn(kind, rng)
    labels = (y > np.median(y)).astype(int)

    def error(forgetting: Any) -> float:
        found = op.RLSRegressor(forgetting=forgetting, prior=1.0).test_then_train(X, y)
        return float(np.abs(found - y)[50:].mean())

    def accuracy(forgetting: Any) -> float:
        found = op.RLSClassifier(forgetting=forgetting, prior=1.0).test_then_train(X, labels)
        return float(100 * (found == labels)[50:].mean())

    factors = list(FACTORS)
    assert error("auto") < (1.2 if kind == "abrupt" else 1.1) * min(map(error, factors))
    assert accuracy("auto") > max(map(accuracy, factors)) - 3.0
