"""Clusterers: rows without targets; cluster numbers are stable."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits

import onepass as op
from cases import snapshot
from onepass.errors import NotFittedError, ParameterError, ShapeError
from raising import raises


def rows() -> Any:
    X, _ = load_digits(return_X_y=True)
    return X[:600] / 16.0


def sequential_algorithm(X: Any, vigilance: float) -> tuple[Any, list[int]]:
    """Algorithm 1 without labels and axes."""
    W: list[Any] = []
    n: list[int] = []
    predictions = []
    for x in X:
        near = [w @ x / np.linalg.norm(w) / np.linalg.norm(x) for w in W]
        best = int(np.argmax(near)) if W else -1
        predictions.append(best)
        if W and near[best] >= vigilance:
            n[best] += 1
            W[best] = W[best] + (x - W[best]) / n[best]
        else:
            W.append(x)
            n.append(1)
    return np.array(W), predictions


@pytest.mark.parametrize("cut", [1, 37, 600])
def test_any_block_size_equals_sequential_algorithm(cut: int) -> None:
    X = rows()
    W, expected = sequential_algorithm(X, 0.85)
    model = op.ARTIPCACluster(vigilance=0.85, pca="none")
    predictions = [model.test_then_train(X[i : i + cut]) for i in range(0, 600, cut)]
    assert np.concatenate(predictions).tolist() == expected
    assert_allclose(model.prototypes_, W, atol=1e-12)
    assert model.rows_seen_ == 600


def test_clusters_of_digits_have_high_purity() -> None:
    X, y = load_digits(return_X_y=True)
    model = op.ARTIPCACluster(20, 0.7).fit(X[:1200])
    predictions = model.predict(X[1200:])
    purity = sum(
        np.bincount(y[1200:][predictions == k]).max() for k in np.unique(predictions)
    ) / len(predictions)
    assert purity > 0.85
    assert_array_equal(model.similarities(X[1200:]).argmax(axis=1), predictions)


def test_cluster_numbers_are_stable() -> None:
    X = rows()
    model = op.ARTIPCACluster(vigilance=0.9, pca="none").partial_fit(X[:50])
    before = model.prototypes_
    model.partial_fit(X[50:])
    assert len(model.prototypes_) > len(before)
    assert_array_equal(model.predict(before[:5]), np.arange(5))


def test_methods_work_without_targets(tmp_path: Any) -> None:
    X = rows()
    one, two = op.ARTIPCACluster(8, 0.6), op.ARTIPCACluster(8, 0.6)
    for x in X[:200]:
        one.learn_one(x)
    two.partial_fit(X[:200])
    assert_allclose(one.prototypes_, two.prototypes_, atol=1e-10)
    assert one.predict_one(X[0]) == one.predict(X[:1])[0]
    assert clone(one).predict_one(X[0]) == -1
    op.save(one, tmp_path / "c.onepass")
    assert snapshot(op.load(tmp_path / "c.onepass")) == snapshot(one)
    assert_array_equal(one.compact().predict(X), one.predict(X))
    assert_array_equal(clone(one).fit_predict(X), clone(one).fit(X).predict(X))
    assert one.partial_fit(X[:0]).rows_seen_ == 200
    assert one.partial_fit(X[:3], sample_weight=[0.0, 1.0, 2.0]).rows_seen_ == 202


def test_merged_clusterer_retains_weights_of_both() -> None:
    X = rows()
    one = op.ARTIPCACluster(10, 0.7).partial_fit(X[:300])
    two = op.ARTIPCACluster(10, 0.7).partial_fit(X[300:])
    one.merge(two)
    assert one.rows_seen_ == 600
    assert one.prototype_weights_.sum() == 600.0
    assert clone(one).merge(two).rows_seen_ == 300


def test_max_prototypes_is_respected() -> None:
    model = op.ARTIPCACluster(vigilance=0.99, pca="none", max_prototypes=7).fit(rows())
    assert len(model.prototypes_) == 7
    assert model.prototype_weights_.sum() == 600.0


def test_prediction_without_clusters_is_minus_one() -> None:
    X = rows()
    assert op.ARTIPCACluster().test_then_train(X[:3], sample_weight=[0, 1, 1]).tolist() == [
        -1,
        -1,
        0,
    ]
    assert op.ARTIPCACluster().partial_fit(X[:3], sample_weight=0.0).predict(X[:2]).tolist() == [
        -1,
        -1,
    ]


def test_refused_arguments_leave_clusterer_unchanged() -> None:
    X = rows()
    with pytest.raises(NotFittedError):
        op.ARTIPCACluster().predict(X)
    with raises(ParameterError, argument="vigilance"):
        op.ARTIPCACluster(vigilance=2.0).fit(X)
    model = op.ARTIPCACluster().fit(X[:100])
    before = snapshot(model)
    for bad in (np.full((1, 64), np.nan), np.zeros((2, 3))):
        with pytest.raises((ShapeError, ValueError)):
            model.partial_fit(bad)
    assert snapshot(model) == before
