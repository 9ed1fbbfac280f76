"""StreamingLDA and StreamingQDA against batch LDA and QDA of scikit-learn."""

import os
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.covariance import oas
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

import onepass as op
from onepass import native
from onepass.errors import LabelError, NotFittedError, ParameterError
from raising import raises

few_examples = settings(max_examples=50, deadline=None, derandomize=True)


def stream(seed: int, n: int = 240, d: int = 6, c: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Correlated rows of c classes that overlap, in different numbers."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.choice(c, n, p=np.arange(1, c + 1) / (c * (c + 1) / 2)))
    y[: 8 * c] = np.repeat(np.arange(c), 8)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=(c, d))[y]
    return X, y


def fit_shuffled_blocks(model: Any, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Learn the rows in random order and random blocks."""
    rng = np.random.default_rng(seed)
    order, cuts = rng.permutation(len(X)), np.sort(rng.integers(1, len(X), 7))
    for rows in np.split(order, cuts):
        model.partial_fit(X[rows], y[rows])
    return model


def assert_same_model(ours: Any, X: np.ndarray, theirs: Any, Z: np.ndarray) -> None:
    """Assert equal posteriors, predictions, and scores up to a constant per row."""
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(Z), rtol=0, atol=1e-9)
    assert ours.predict(X).tolist() == theirs.predict(Z).tolist()
    one, two = ours.decision_function(X), theirs.decision_function(Z)
    if one.ndim == 2:
        one, two = one - one[:, :1], two - two[:, :1]
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8)


@few_examples
@given(
    shrinkage=st.sampled_from([0.0, 1e-4, 0.3, 1.0]),
    c=st.sampled_from([2, 4]),
    seed=st.integers(0, 2**31),
    offset=st.sampled_from([0.0, 1e8]),
)
def test_lda_equals_batch_lda_of_scikit_learn(
    shrinkage: float, c: int, seed: int, offset: float
) -> None:
    X, y = stream(seed, c=c)
    X = X + offset
    Z = X - offset  # exact: what scikit-learn can learn without losing digits
    ours = fit_shuffled_blocks(op.StreamingLDA(shrinkage, target="variance"), X, y, seed)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(Z, y)
    assert_same_model(ours, X, theirs, Z)
    np.testing.assert_allclose(ours.priors_, theirs.priors_)


def test_lda_scores_equal_equation_of_paper() -> None:
    X, y = stream(0)
    ours = fit_shuffled_blocks(op.StreamingLDA(0.2, priors="uniform"), X, y, 0)
    means = np.array([X[y == k].mean(axis=0) for k in range(4)])
    S = (X - means[y]).T @ (X - means[y]) / len(X)
    L = np.linalg.inv(0.8 * S + 0.2 * np.eye(6))
    scores = X @ L @ means.T - 0.5 * np.einsum("ij,jk,ik->i", means, L, means)
    found = ours.decision_function(X)
    np.testing.assert_allclose(found - found[:, :1], scores - scores[:, :1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.covariance_, S, rtol=0, atol=1e-12)


def test_oas_shrinkage_equals_scikit_learn() -> None:
    X, y = stream(1, n=60)
    ours = fit_shuffled_blocks(op.StreamingLDA("oas"), X, y, 1)
    means = np.array([X[y == k].mean(axis=0) for k in range(4)])
    covariance, share = oas(X - means[y], assume_centered=True)
    assert abs(ours.shrinkage_ - share) < 1e-12
    L = np.linalg.inv(covariance)
    scores = (
        X @ L @ means.T - 0.5 * np.einsum("ij,jk,ik->i", means, L, means) + np.log(ours.priors_)
    )
    found = ours.decision_function(X)
    np.testing.assert_allclose(found - found[:, :1], scores - scores[:, :1], rtol=0, atol=1e-9)
    assert op.StreamingLDA("oas").partial_fit(np.ones((3, 2)), [0, 1, 1]).shrinkage_ == 1.0


@few_examples
@given(
    reg_param=st.sampled_from([0.0, 1e-3, 0.4, 1.0]),
    c=st.sampled_from([2, 4]),
    seed=st.integers(0, 2**31),
    offset=st.sampled_from([0.0, 1e8]),
)
def test_qda_equals_batch_qda_of_scikit_learn(
    reg_param: float, c: int, seed: int, offset: float
) -> None:
    X, y = stream(seed, c=c)
    X = X + offset
    Z = X - offset
    theirs = QuadraticDiscriminantAnalysis(reg_param=reg_param, tol=1e-9)
    ours = fit_shuffled_blocks(op.StreamingQDA(reg_param), X, y, seed)
    assert_same_model(ours, X, theirs.fit(Z, y), Z)


def test_prequential_predictions_equal_batch_lda_of_earlier_rows() -> None:
    X, y = stream(2, n=90)
    order = np.random.default_rng(2).permutation(90)
    X, y = X[order], y[order]
    predictions = op.StreamingLDA(0.1, target="variance").test_then_train(X, y)
    for i in range(40, 90):
        batch = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(X[:i], y[:i])
        assert predictions[i] == batch.predict(X[i : i + 1])[0]


@pytest.mark.parametrize("make", [op.StreamingLDA, op.StreamingQDA])
def test_priors_are_shares_uniform_or_given(make: Any) -> None:
    X, y = stream(3)
    shares = make().partial_fit(X, y)
    uniform = make(priors="uniform").partial_fit(X, y)
    given = make(priors=[1, 2, 3, 4], classes=[3, 2, 1, 0]).partial_fit(X, y)
    np.testing.assert_allclose(shares.priors_, np.bincount(y) / len(y))
    np.testing.assert_allclose(uniform.priors_, 0.25)
    np.testing.assert_allclose(given.priors_, [0.4, 0.3, 0.2, 0.1])
    plain = shares.decision_function(X) - np.log(shares.priors_)
    for model in (uniform, given):
        moved = model.decision_function(X) - np.log(model.priors_)
        np.testing.assert_allclose(moved, plain, atol=1e-9)
    shares.set_params(priors="uniform")  # acts from the next target
    np.testing.assert_array_equal(shares.predict_proba(X), uniform.predict_proba(X))


@pytest.mark.parametrize("make", [op.StreamingLDA, op.StreamingQDA])
def test_probabilities_are_finite_for_extreme_rows(make: Any) -> None:
    model = make(classes=["a", "b", "c"])
    for request in (lambda: model.predict_proba([[0.0, 0.0]]), lambda: model.covariance_):
        with raises(NotFittedError, remedy="Call fit"):
            request()
    model.partial_fit([[0.0, 1.0]], ["a"])
    assert model.predict_proba([[1e200, 3.0]]).tolist() == [[1.0, 0.0, 0.0]]
    assert model.predict_log_proba([[1e200, 3.0]]).tolist() == [[0.0, -np.inf, -np.inf]]
    model.partial_fit([[4.0, 1.0], [5.0, 1.0]], ["b", "b"])  # one row of a, a constant feature
    far = model.predict_proba([[1e300, -1e300], [0.0, 1.0], [4.4, 1.0]])
    np.testing.assert_allclose(far.sum(axis=1), 1.0)
    assert model.predict([[0.0, 1.0], [4.4, 1.0]]).tolist() == ["a", "b"]


@pytest.mark.parametrize("made", [op.StreamingLDA(0.0), op.StreamingQDA(0.0)])
def test_zero_shrinkage_tolerates_constant_and_doubled_features(made: Any) -> None:
    X, y = stream(4)
    plain = made.fit(X, y).predict(X)
    poor = np.column_stack([X, np.full(len(X), 7.0)])
    assert np.mean(made.fit(poor, y).predict(poor) == plain) == 1.0
    doubled = np.column_stack([X, X[:, 0] * 1e6])
    assert np.mean(made.fit(doubled, y).predict(doubled) == plain) > 0.99


def test_predictions_without_shrinkage_ignore_feature_units() -> None:
    X, y = stream(5)
    units = np.geomspace(1e-12, 1e12, 6)
    for make in (op.StreamingLDA, op.StreamingQDA):
        one, two = make(0.0).partial_fit(X, y), make(0.0).partial_fit(X * units, y)
        np.testing.assert_allclose(two.predict_proba(X * units), one.predict_proba(X), atol=1e-9)


def test_order_of_classes_does_not_matter() -> None:
    X, y = stream(6)
    sorted_first = op.StreamingLDA().partial_fit(X, y)
    mixed = fit_shuffled_blocks(op.StreamingLDA(), X, y, 6)
    np.testing.assert_allclose(sorted_first.predict_proba(X), mixed.predict_proba(X), atol=1e-12)


def test_cached_factorisations_are_dropped_on_learning() -> None:
    X, y = stream(7)
    for model in (op.StreamingLDA(), op.StreamingQDA()):
        model.partial_fit(X, y)
        small = len(pickle.dumps(model))
        for _ in range(3):  # of a block, by Python, and in place
            predictions = model.predict_proba(X)
            cached = model.moments_.cached
            model.predict(X)
            assert model.moments_.cached is cached
            model.learn_one(X[0], 3)
            assert not np.array_equal(model.predict_proba(X), predictions)
        assert len(pickle.dumps(model)) < small + 500


@pytest.mark.skipif(native.loops is None, reason="without them, all factors are computed")
def test_qda_factorises_only_classes_with_new_rows() -> None:
    X, y = stream(8)
    model = op.StreamingQDA().partial_fit(X, y)
    model.predict(X)
    before = model.moments_.cached[1][0]
    for row in (X[:1], X[:3]):
        model.partial_fit(row, [3] * len(row)).predict(X)
        after = model.moments_.cached[1][0]
        assert all(one is two for one, two in zip(before[:3], after[:3], strict=True))
        assert before[3] is not after[3]


@pytest.mark.parametrize("model", [op.NearestClassMean(), op.StreamingLDA(), op.StreamingQDA()])
def test_predictions_in_threads_while_rows_are_learned(
    model: Any, rng: np.random.Generator
) -> None:
    X, y = stream(int(rng.integers(1 << 31)), n=3000, d=9)
    y = rng.permutation(y)
    learned_one_by_one = clone(model).partial_fit(X[:200], y[:200])
    done, errors = threading.Event(), []

    def predict() -> None:
        try:
            while not done.is_set():
                for found in (learned_one_by_one.predict(X[:3]), learned_one_by_one.predict(X[:1])):
                    assert set(found) <= {0, 1, 2, 3}
        except Exception as error:  # noqa: BLE001  asserted below
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=predict) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for x, label in zip(X[200:], y[200:].tolist(), strict=True):
            learned_one_by_one.learn_one(x, label)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not errors
    block = clone(model).partial_fit(X, y)
    assert learned_one_by_one.predict(X).tolist() == block.predict(X).tolist()


def test_lda_in_pipeline_equals_plain_lda() -> None:
    X, y = stream(8)
    model = op.Pipeline(op.features.Impute(), op.StreamingLDA()).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), op.StreamingLDA().partial_fit(X, y).predict(X))


def test_invalid_parameters_and_labels_are_refused() -> None:
    wrong: list[tuple[Any, str]] = [
        (op.StreamingLDA("ledoit"), "shrinkage"),
        (op.StreamingLDA(1.5), "shrinkage"),
        (op.StreamingLDA("oas", target="identity"), "target"),
        (op.StreamingLDA(target="diagonal"), "target"),
        (op.StreamingQDA(-0.1), "reg_param"),
        (op.StreamingQDA(priors=[0.5, 0.5]), "priors"),
        (op.StreamingLDA(priors=[0.5, 0.0], classes=[0, 1]), "priors"),
        (op.StreamingLDA(priors="equal"), "priors"),
        (op.StreamingLDA(priors=[[1], [1, 2]], classes=[0, 1]), "priors"),
    ]
    for model, argument in wrong:
        with raises(ParameterError, argument=argument):
            model.partial_fit([[1.0], [2.0]], [0, 1])
        assert not hasattr(model, "moments_")
    model = op.StreamingLDA(priors=[1.0, 3.0], classes=[0, 1]).partial_fit([[1.0], [2.0]], [0, 1])
    with raises(LabelError, argument="y", got="another"):
        model.learn_one([3.0], 2)
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.skipif("ONEPASS_DATA" not in os.environ, reason="ONEPASS_DATA names no folder")
def test_lda_on_split_mnist_equals_batch_lda() -> None:
    tasks = op.stream.split_mnist(rows_per_class=300, test_rows_per_class=50)
    ours = op.StreamingLDA(0.03, target="variance")
    for task in tasks:
        ours.partial_fit(task.X, task.y)
    X, y = (np.concatenate([getattr(task, name) for task in tasks]) for name in ("X", "y"))
    test = np.concatenate([task.X_test for task in tasks]).astype(np.float64)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.03).fit(X.astype(float), y)
    np.testing.assert_allclose(ours.predict_proba(test), theirs.predict_proba(test), atol=1e-8)
