"""Mixtures: weights that follow the best member, blocks as single rows, and rows of the past."""

import copy
import os
import signal
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

import onepass as op
from onepass.errors import MergeError, MixtureWarning, NumericalError, OnepassError
from onepass.features import Encode, Impute, Scale

TASKS = ("regression", "classification")


def preset(task: str) -> op.Pipeline:
    return op.models.pipelines(["mixture"], task)["mixture"]


def stream(rng: np.random.Generator, n: int, task: str) -> tuple[Any, Any]:
    """Smooth, correlated columns in different units, with gaps and a late column."""
    Z = np.tanh(np.cumsum(0.2 * rng.normal(size=(n, 4)), axis=0)) + 0.3 * rng.normal(size=(n, 4))
    y = Z[:, 0] + np.abs(Z[:, 1]) + 0.1 * rng.normal(size=n)
    X = (Z + Z[:, :1]) * [1e-3, 1.0, 20.0, 1e4] + [0.0, 5.0, 300.0, -1e5]
    X[rng.random(X.shape) < rng.choice([0.0, 0.05])] = np.nan
    X[: int(rng.integers(0, n // 3)), 2] = np.nan
    return X, np.digitize(y, [0.0, 0.8]) if task == "classification" else 50.0 + y


@pytest.mark.parametrize("form", ["array", "dicts"])
@pytest.mark.parametrize("task", TASKS)
def test_blocks_equal_single_rows(task: str, form: str, rng: np.random.Generator) -> None:
    n = 300
    X, y = stream(rng, n, task)
    rows: Any = X
    if form == "dicts":
        rows = [{f"c{j}": v for j, v in enumerate(x) if np.isfinite(v)} for x in X.tolist()]
    blocks, single = preset(task), preset(task)
    edges = [0, *sorted(rng.integers(0, n, size=5).tolist()), n]
    expected = [blocks.test_then_train(rows[a:b], y[a:b]) for a, b in pairwise(edges) if b > a]
    predictions = []
    for i in range(n):
        x = X[i] if form == "array" else rows[i]
        if rng.random() < 0.7:
            predictions.append(single.predict_one(x))
        else:  # learned without a prediction before
            predictions.append(copy.copy(single).predict_one(x))
        single.learn_one(x, y[i].item())
    whole = np.concatenate(expected)
    if task == "regression":
        assert_allclose(np.array(predictions, float), whole.astype(float), rtol=1e-5, atol=1e-5)
        assert_allclose(single.predict(rows[-50:]), blocks.predict(rows[-50:]), rtol=1e-5)
    else:
        assert np.mean(np.array(predictions[1:]) == whole[1:].astype(int)) > 0.99
        P = blocks.predict_proba(rows[-50:])
        assert_allclose(single.predict_proba(rows[-50:]), P, atol=1e-4)
    assert_allclose(single.learner.weights_, blocks.learner.weights_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_weights_follow_the_member_that_is_best(task: str, rng: np.random.Generator) -> None:
    X = rng.uniform(-1, 1, size=(6000, 3))
    y = np.where(np.arange(6000) < 3000, X @ [1.0, -2.0, 0.5], 2 * np.sign(X[:, 0] * X[:, 1]))
    y = y + 0.1 * rng.normal(size=6000)
    truth = y if task == "regression" else (y > 0).astype(int)
    model = preset(task)
    losses, leaders = [], []
    for half in (slice(0, 3000), slice(3000, 6000)):
        predictions = model.test_then_train(X[half], truth[half])[1000:]
        wrong = (
            np.abs(predictions - truth[half][1000:])
            if task == "regression"
            else predictions != truth[half][1000:]
        )
        losses.append(np.mean(wrong))
        weights = model.learner.weights_.reshape(len(model.learner.models), -1)[:, 0]
        assert weights.sum() == pytest.approx(1.0)
        leaders.append(weights[1])
    assert leaders[1] > 0.9  # the forest
    assert losses[0] < (0.1 if task == "regression" else 0.05)
    assert losses[1] < (0.8 if task == "regression" else 0.15)


def test_a_constant_weight_does_not_matter(rng: np.random.Generator) -> None:
    X, y = stream(rng, 400, "classification")
    X = np.nan_to_num(X)
    models = [op.RLSClassifier(), op.NearestClassMean()]
    light, heavy = (op.Mixture(models).fit(X, y, np.full(400, s)).weights_ for s in (1e-3, 1e4))
    assert np.isfinite([light, heavy]).all()
    assert abs(light - 0.5).max() < 0.5 < heavy.max()


class _Failing(op.SGDRegressor):
    """A regressor that raises an error at its 50th row."""

    def _learn(self, X: Any, *args: Any, **named: Any) -> Any:
        if self.rows_seen_ >= 50:
            raise NumericalError("the weights are too large, got 1e200. Use smaller steps.")
        return super()._learn(X, *args, **named)

    def _learn_in_place(self, *_: Any) -> bool:
        return False


@pytest.mark.parametrize("block", [1, 40])
def test_a_member_that_raises_is_left_out(block: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 2))
    y = X @ [1.0, 2.0]
    model = op.Mixture([_Failing(), op.RLSRegressor(prior=1.0)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for a in range(0, 200, block):
            if block == 1:
                model.learn_one(X[a], y[a].item())
            else:
                model.partial_fit(X[a : a + block], y[a : a + block])
    assert [one.category for one in caught] == [MixtureWarning]
    assert model.members_[0] is None
    assert_array_equal(model.weights_, [[0.0], [1.0]])
    assert_allclose(model.predict(X), model.members_[1].predict(X))
    assert model.rows_seen_ == model.members_[1].rows_seen_ == 200
    only = op.Mixture([_Failing()]).partial_fit(X[:40], y[:40])
    before = only.predict(X)
    with pytest.raises(NumericalError, match="too large"):
        only.partial_fit(X[40:], y[40:])
    assert_array_equal(only.predict(X), before)


def test_a_failing_member_does_not_undo_a_row(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 2))
    y = X @ [1.0, 2.0]
    model = op.Mixture([op.RLSRegressor(), _Failing()]).partial_fit(X[:49], y[:49])
    model._prepare_single_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MixtureWarning):
            model.learn_one(X[49], y[49].item())
    model.learn_one(X[50], y[50].item())
    assert model.rows_seen_ == model.members_[0].rows_seen_ == 51
    assert model.members_[1] is None


def test_rows_that_are_too_large_for_a_member_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = preset("regression").partial_fit(X, X[:, 0])
    before = model.predict(X)
    for x, y, s in (([1e120, 0.0], 0.0, 1.0), ([0.0, 0.0], 1e120, 1.0), ([0.0, 0.0], 0.0, 1e120)):
        with pytest.raises(NumericalError, match="at most 1e\\+100"):
            model.partial_fit([x], [y], sample_weight=[s])
        with pytest.raises(NumericalError, match="at most 1e\\+100"):
            model.learn_one(np.array(x), y, s)
    assert_array_equal(model.predict(X), before)
    assert None not in model.learner.members_


@pytest.mark.parametrize("level", [0.0, 1.7e9])
def test_weights_do_not_depend_on_the_level(level: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 3))
    y = level + 3 * np.sign(X[:, 0] * X[:, 1]) + 0.05 * rng.normal(size=3000)
    assert preset("regression").fit(X, y).learner.weights_[1, 0] > 0.9


def test_classes_given_to_a_member(rng: np.random.Generator) -> None:
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] > 0).astype(int)
    model = op.Mixture([op.RLSClassifier(classes=[-1, 0, 1, 2]), op.NearestClassMean()]).fit(X, y)
    assert model.predict_proba(X).shape == (80, 2)
    assert set(model.recall(X)) <= {0, 1}
    assert model.members_[0] is not None


def test_models_are_checked() -> None:
    X, y = np.eye(3), [1.0, 2.0, 3.0]
    for models, text in (
        ([], "must be a list of learners, got none"),
        (op.RLSRegressor(), "must be a list of learners, got RLSRegressor"),
        ([op.RLSRegressor(), op.RLSClassifier()], "got RLSClassifier"),
        ([op.Keyed("machine", op.RLSRegressor())], "put Keyed and Conformal around"),
    ):
        with pytest.raises(OnepassError, match=text):
            op.Mixture(models).fit(X, y)
    with pytest.raises(MergeError, match="whose weights depend on the order of all rows"):
        op.Mixture([op.RLSRegressor()]).fit(X, y).merge(op.Mixture([op.RLSRegressor()]).fit(X, y))
    with pytest.raises(OnepassError, match="contains NaN"):
        op.Mixture([op.ForestRegressor(), op.RLSRegressor()]).fit([[np.nan], [1.0]], y[:2])


def test_models_are_left_out_with_more_features_than_they_allow(rng: np.random.Generator) -> None:
    width = np.where(np.arange(120) < 60, 2, 3).tolist()
    rows = [{f"c{j}": float(rng.normal()) for j in range(d)} for d in width]
    y = [3.0 * row["c0"] for row in rows]
    mixture = op.Mixture([op.KalmanRegressor(), op.RLSRegressor(prior=1.0)], max_features=(2, None))
    model = op.Pipeline(Encode(), Impute(), mixture)
    model.partial_fit(rows[:60], y[:60])
    assert (model.learner.weights_ > 0.0).all()
    model.partial_fit(rows[60:], y[60:])
    assert_array_equal(model.learner.weights_, [[0.0], [1.0]])
    assert model.learner.members_[0] is None
    for limits, text in (((1,), "for each of 2 models"), ((1, 1), "must allow one of the models")):
        wrong = op.Mixture([op.KalmanRegressor(), op.RLSRegressor()], max_features=limits)
        with pytest.raises(OnepassError, match=text):
            wrong.fit(np.eye(2), [1.0, 2.0])


@pytest.mark.parametrize("task", TASKS)
def test_copies_and_files_continue_alike(
    task: str, rng: np.random.Generator, tmp_path: Any
) -> None:
    X, y = stream(rng, 400, task)
    model = preset(task).partial_fit(X[:300], y[:300])
    frozen, expected = model.frozen_copy(), model.predict(X)
    op.save(model, tmp_path / "m.onepass")
    loaded = op.load(tmp_path / "m.onepass")
    twins = [copy.copy(model), copy.deepcopy(model), loaded]
    for i in range(300, 350):
        model.learn_one(X[i], y[i].item())
    model.partial_fit(X[350:], y[350:])
    for twin in (frozen, *twins):
        assert_array_equal(twin.predict(X), expected)
    for twin in twins:
        for i in range(300, 350):
            twin.learn_one(X[i], y[i].item())
        twin.partial_fit(X[350:], y[350:])
        assert_array_equal(twin.predict(X), model.predict(X))
        assert_array_equal(twin.learner.weights_, model.learner.weights_)


def test_an_interrupt_follows_the_row() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored

    class Interrupting(op.SGDRegressor):
        def _learn_in_place(self, *given: Any) -> bool:
            os.kill(os.getpid(), signal.SIGINT)
            return super()._learn_in_place(*given)

    X, y = np.random.default_rng(0).normal(size=(50, 2)), np.arange(50.0)
    model = op.Mixture([Interrupting(), op.RLSRegressor()]).fit(X, y)
    model._prepare_single_rows()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.learn_one(X[0], 1.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.rows_seen_ == 51
    assert [one.rows_seen_ for one in model.members_] == [51, 51]


def test_standard_deviations_cover_the_targets(rng: np.random.Generator) -> None:
    X = rng.normal(size=(3000, 3))
    y = 1e3 * (X[:, 0] + np.abs(X[:, 1])) + 100.0 * rng.normal(size=3000)
    model = preset("regression").partial_fit(X[:2000], y[:2000])
    mean, std = model.predict(X[2000:], return_std=True)
    covered = np.mean(np.abs(y[2000:] - mean) < 1.645 * std)
    assert 0.8 < covered < 0.98
    one = model.predict_one(X[2000], return_std=True)
    assert_allclose(one, (mean[0], std[0]))


# -- rows of the past ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sorted", "pairs of classes"])
def test_recall_of_sorted_classes(order: str, rng: np.random.Generator) -> None:
    X, y = load_digits(return_X_y=True)
    mixed = rng.permutation(len(y))
    X, y = X[mixed], y[mixed]
    late = np.argsort(y[400:] if order == "sorted" else y[400:] // 2, kind="stable")
    model = preset("classification").partial_fit(X[400:][late], y[400:][late])
    exact = op.RLSClassifier(prior=1.0).fit(X[400:][late], y[400:][late])
    before = model.predict_proba(X[:400])
    recalled = np.mean(model.recall(X[:400]) == y[:400])
    heavy = preset("classification")
    heavy.partial_fit(X[400:][late], y[400:][late], sample_weight=np.full(len(late), 1e3))
    assert np.mean(heavy.recall(X[:400]) == y[:400]) > recalled - 0.05
    assert recalled > np.mean(exact.predict(X[:400]) == y[:400]) - 0.03
    assert np.mean(model.predict(X[:400]) == y[:400]) < 0.5
    assert_array_equal(model.predict_proba(X[:400]), before)


def test_recall_of_an_earlier_region(rng: np.random.Generator) -> None:
    n = 3000
    X = np.vstack([rng.uniform(-1, 0, size=(n, 3)), rng.uniform(0, 1, size=(n, 3))])
    y = np.where(X[:, 0] < 0, X @ [1.0, 2.0, 3.0], X @ [-4.0, 1.0, 1.0])
    y = 20.0 + y + 0.1 * rng.normal(size=2 * n)
    past = rng.choice(n, 500, replace=False)
    now = np.setdiff1d(np.arange(2 * n), past)
    model = preset("regression").partial_fit(X[now], y[now])
    exact = np.abs(op.RLSRegressor(prior=1.0).fit(X[now], y[now]).predict(X[past]) - y[past])
    assert np.abs(model.recall(X[past]) - y[past]).mean() < 1.1 * exact.mean()
    assert np.abs(model.predict(X[past]) - y[past]).mean() > 2.0 * exact.mean()


def test_recall_needs_least_squares_of_all_rows() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X @ [1.0, 2.0]
    with pytest.raises(AttributeError, match="recall"):
        op.Mixture([op.ForestRegressor(), op.RLSRegressor(forgetting=0.9)]).fit(X, y).recall(X)
    kernel = op.KernelRLSRegressor(gamma=1.0)  # does not forget
    curve = op.Mixture([op.RLSRegressor(), kernel]).fit(X, np.abs(X[:, 0]))
    assert_allclose(curve.recall(X), curve.predict(X), atol=0.05)
    models = [op.RLSRegressor(), op.Pipeline(Impute(), Scale(), op.SGDRegressor())]
    model = op.Pipeline(Encode(), op.Mixture(models)).fit(X, y)
    assert_allclose(model.recall(X), y, atol=0.5)
