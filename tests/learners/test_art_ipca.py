"""ART-IPCA against Algorithm 1 of the paper, with all kinds of PCA."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import cosine_similarity

import onepass as op
from onepass.errors import (
    LabelError,
    MergeError,
    NotFittedError,
    NumericalError,
    ParameterError,
)
from raising import raises

PCA = ("incremental", "task", "static", "none")


def digits(seed: int = 0) -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order] / 16.0, y[order]


def tasks(y: Any) -> list[Any]:
    return [np.flatnonzero(y // 2 == task) for task in range(5)]


def fit_tasks(pca: str, **params: Any) -> tuple[Any, Any, Any]:
    X, y = digits()
    model = op.ARTIPCAClassifier(15, 0.6, pca=pca, **params)
    for rows in tasks(y[:1000]):
        model.partial_fit(X[:1000][rows], y[:1000][rows])
    return model, X[1000:], y[1000:]


def published_algorithm_1(X: Any, y: Any, k: int, vigilance: float) -> Any:
    """Algorithm 1 with tasks, as it is written: every prototype is projected for every row."""
    from sklearn.decomposition import IncrementalPCA

    pca, W, C, n = IncrementalPCA(k), np.zeros((0, X.shape[1])), [], []
    for rows in tasks(y):
        pca.partial_fit(X[rows])
        for x, label in zip(X[rows], y[rows], strict=True):
            if len(W):
                a, B = pca.transform(x[None])[0], pca.transform(W)
                near = B @ a / (np.linalg.norm(B, axis=1) * np.linalg.norm(a))
                best = int(near.argmax())
                if near[best] >= vigilance and C[best] == label:
                    n[best] += 1
                    W[best] += (x - W[best]) / n[best]
                    continue
            W, C, n = np.vstack((W, x)), [*C, label], [*n, 1]
    return W, np.array(C), np.array(n)


def test_task_mode_equals_published_algorithm_1() -> None:
    X, y = digits()
    model, _, _ = fit_tasks("task")
    W, C, n = published_algorithm_1(X[:1000], y[:1000], 15, 0.6)
    assert_allclose(model.prototypes_, W, atol=1e-10)
    assert_array_equal(model.prototype_labels_, C)
    assert_array_equal(model.prototype_weights_, n)


@pytest.mark.parametrize("pca", PCA)
def test_new_classes_retain_accuracy_on_earlier_classes(pca: str) -> None:
    model, X, y = fit_tasks(pca)
    right = [(model.predict(X[rows]) == y[rows]).mean() for rows in tasks(y)]
    assert min(right) > 0.7, right
    assert model.score(X, y) > 0.85
    known = [
        (model.predict(X[rows], task=[2 * t, 2 * t + 1]) == y[rows]).mean()
        for t, rows in enumerate(tasks(y))
    ]
    assert min(known) > 0.95, known
    assert np.mean(known) >= np.mean(right)


def test_static_axes_are_fixed_after_learn_axes() -> None:
    X, y = digits()
    model = op.ARTIPCAClassifier(5, pca="static").learn_axes(X)
    axes = model.learn_axes(X[:0]).axes_.view
    model.partial_fit(X[:100], y[:100])
    assert_array_equal(model.components_, axes.directions)
    assert model.rows_seen_ == 100
    first = op.ARTIPCAClassifier(5, pca="static").partial_fit(X[:100], y[:100])
    again = first.components_
    assert_array_equal(first.partial_fit(X[100:200], y[100:200]).components_, again)


def test_prototype_coordinates_follow_current_axes() -> None:
    X, y = digits()
    model = op.ARTIPCAClassifier(8, 0.8, block=100)
    for i in range(0, 700, 70):
        model.partial_fit(X[i : i + 70], y[i : i + 70])
        expected = model.prototypes_ - model.axes_.view.center
        if model.rows_seen_ >= 100:
            expected = expected @ model.components_.T
        assert_allclose(model.prototype_store_.all("coordinates"), expected, atol=1e-10)


def test_prediction_is_class_of_most_similar_prototype() -> None:
    model, X, _ = fit_tasks("task")
    P, c = model.components_, model.axes_.view.center
    A, B = (X - c) @ P.T, (model.prototypes_ - c) @ P.T
    near = (A @ B.T) / np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
    assert_array_equal(model.predict(X), model.prototype_labels_[near.argmax(axis=1)])
    assert_allclose(model.decision_function(X).max(axis=1), near.max(axis=1), atol=1e-12)


@pytest.mark.parametrize("pca", PCA)
def test_compact_copy_predicts_equally_and_refuses_learning(pca: str, tmp_path: Any) -> None:
    model, X, y = fit_tasks(pca)
    small = model.compact()
    assert_array_equal(small.predict(X), model.predict(X))
    assert_allclose(small.decision_function(X), model.decision_function(X))
    assert small.nbytes <= model.nbytes - 64 * 8 * len(model.prototypes_) * (pca != "none")
    op.save(small, tmp_path / "small.onepass")
    again = op.load(tmp_path / "small.onepass")
    assert_array_equal(again.predict(X), model.predict(X))
    for verb in (
        lambda: again.partial_fit(X[:2], y[:2]),
        lambda: again.learn_one(X[0], y[0]),
        lambda: again.grow(70),
    ):
        with raises(ParameterError, remedy="Use the learner that"):
            verb()
    with raises(MergeError, got="a compact"):
        model.merge(small)
    model.partial_fit(X[:5], y[:5])
    assert_array_equal(again.predict(X[:50]), small.predict(X[:50]))


@pytest.mark.parametrize("pca", ["incremental", "task", "none"])
def test_merged_learner_retains_classes_of_both_parts(pca: str) -> None:
    X, y = digits()
    halves = []
    for classes in (range(5), range(5, 10)):
        rows = np.flatnonzero(np.isin(y[:1000], list(classes)))
        model = op.ARTIPCAClassifier(15, 0.6, pca=pca)
        halves.append(model.partial_fit(X[rows], y[rows]))
    one, two = halves
    weights = one.prototype_weights_.sum() + two.prototype_weights_.sum()
    one.merge(two)
    assert one.rows_seen_ == 1000
    assert one.classes_.tolist() == list(range(10))
    assert_allclose(one.prototype_weights_.sum(), weights)
    whole, X_test, y_test = fit_tasks(pca)
    assert one.score(X_test, y_test) > whole.score(X_test, y_test) - 0.05


def test_invalid_parameters_are_refused_by_partial_fit() -> None:
    X, y = digits()
    for params, argument in (
        ({"vigilance": 1.5}, "vigilance"),
        ({"vigilance": -0.1, "similarity": "euclidean"}, "vigilance"),
        ({"similarity": "manhattan"}, "similarity"),
        ({"pca": "dynamic"}, "pca"),
        ({"step": 0.0}, "step"),
        ({"step": "median"}, "step"),
        ({"n_components": 0}, "n_components"),
        ({"block": 0}, "block"),
        ({"max_prototypes": 0}, "max_prototypes"),
    ):
        with raises(ParameterError, argument=argument):
            op.ARTIPCAClassifier(**params).partial_fit(X[:5], y[:5])
    with raises(ParameterError, argument="pca", got="'none'"):
        op.ARTIPCAClassifier(pca="none").learn_axes(X)
    with pytest.raises(NotFittedError):
        _ = op.ARTIPCAClassifier().prototypes_
    model = op.ARTIPCAClassifier().partial_fit(X[:50], y[:50])
    with raises(LabelError, argument="task"):
        model.predict(X[:2], task=[0, 77])
    before = model.prototypes_
    with pytest.raises(NumericalError, match="below 1e"):
        model.partial_fit(np.full((1, 64), 1e200), [0])
    assert_array_equal(model.prototypes_, before)


def test_row_of_weight_two_equals_two_rows() -> None:
    X = np.array([[1.0, 0.0], [3.0, 0.1]])
    model = op.ARTIPCAClassifier(vigilance=-1.0, pca="none")
    model.partial_fit(X, [0, 0], sample_weight=[1.0, 2.0])
    assert_allclose(model.prototypes_, [(X[0] + 2.0 * X[1]) / 3.0])
    assert model.prototype_weights_.tolist() == [3.0]


def test_identical_rows_give_a_single_prototype() -> None:
    for pca in PCA:
        model = op.ARTIPCAClassifier(pca=pca).fit(np.ones((500, 4)), np.zeros(500, int))
        assert len(model.prototypes_) == 1


def test_pretrained_axes_can_grow_and_fit_restarts_them() -> None:
    X, y = digits()
    model = op.ARTIPCAClassifier(3, pca="static").learn_axes(X[:300, :60]).grow(64)
    model.partial_fit(X[:50], y[:50])
    assert model.components_.shape == (3, 64)
    assert not model.components_[:, 60:].any()
    assert model.fit(X[:100], y[:100]).axes_.rows == 100  # fit begins anew


def test_new_pca_parameters_take_effect_at_next_fit() -> None:
    X, y = digits()
    model = op.ARTIPCAClassifier(5, pca="none").partial_fit(X[:50], y[:50])
    model.set_params(pca="incremental", n_components=3).partial_fit(X[50:100], y[50:100])
    assert model.components_.shape == (0, 64)
    assert model.fit(X, y).components_.shape == (3, 64)


def test_overflowing_sample_weights_are_refused() -> None:
    X, y = digits()
    for pca in PCA:
        model = op.ARTIPCAClassifier(3, pca=pca).partial_fit(X[:50], y[:50])
        before = model.prototypes_
        with raises(NumericalError, remedy="Divide all weights by"):
            model.partial_fit(X[50:60], y[50:60], sample_weight=1e200)
        assert_array_equal(model.prototypes_, before)


def test_compact_learner_stores_no_rows() -> None:
    model, _, _ = fit_tasks("task")
    small = model.compact()
    assert all(page.rows.base is None for page in small.prototype_store_.pages)
    with pytest.raises(ParameterError, match="a compact learner cannot learn axes"):
        small.learn_axes(np.zeros((3, 64)))


def test_invalid_state_in_file_is_refused(tmp_path: Any) -> None:
    from dataclasses import replace

    from onepass.errors import CheckpointError
    from onepass.learners.prototypes import Prototypes

    model, _, _ = fit_tasks("incremental")
    stock, axes, path = model.prototype_store_, model.axes_, tmp_path / "m.onepass"
    page = stock.pages[0]
    wrong: list[dict[str, Any]] = [
        {"prototype_store_": Prototypes(())},
        {"prototype_store_": Prototypes((replace(page, labels=page.labels - 1),))},
        {"prototype_store_": Prototypes((replace(page, labels=page.labels.astype(float)),))},
        {"prototype_store_": Prototypes((replace(page, rows=page.rows[:5]),))},
        {"prototype_store_": Prototypes((replace(page, coordinates=page.coordinates[:, :3]),))},
        {"prototype_store_": Prototypes((replace(page, labels=page.labels + 99),))},
        {"axes_": None},
        {"prototype_store_": 7},
        {"axes_": replace(axes, mean=axes.mean[:2])},
        {"axes_": replace(axes, block=-5)},
        {"axes_": replace(axes, mass=-1.0)},
        {"axes_": replace(axes, view=replace(axes.view, lengths=axes.view.lengths[:2]))},
        {"pca_mode_": "none"},
        {"compact_": 1},
    ]
    for change in wrong:
        altered = op.ARTIPCAClassifier(15, 0.6)
        altered.__dict__.update({**vars(model), **change})
        op.save(altered, path)
        with pytest.raises(CheckpointError):
            op.load(path)
    op.save(model, path)
    assert_array_equal(op.load(path).prototypes_, model.prototypes_)


def test_a_function_as_similarity_equals_the_name(tmp_path: Path, rng: np.random.Generator) -> None:
    X, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(y))[:600]
    X, y = X[rows], y[rows]
    named = op.ARTIPCAClassifier(vigilance=0.7, max_prototypes=60).partial_fit(X, y)
    model = op.ARTIPCAClassifier(similarity=cosine_similarity, vigilance=0.7, max_prototypes=60)
    for part in np.array_split(np.arange(600), np.sort(rng.integers(1, 600, 4))):
        model.partial_fit(X[part], y[part])
    assert (model.predict(X) == named.predict(X)).all()
    assert_allclose(model.predict_proba(X), named.predict_proba(X), atol=1e-6)
    op.save(model, tmp_path / "m.onepass")
    with raises(op.errors.CheckpointError, where="m.onepass", argument="similarity"):
        op.load(tmp_path / "m.onepass")
    again = op.load(tmp_path / "m.onepass", similarity=cosine_similarity)
    assert (again.predict(X) == named.predict(X)).all()
    nearest = op.ARTIPCAClassifier(similarity=lambda A, B: -cdist(A, B), vigilance=-20.0)
    assert nearest.partial_fit(X, y).score(X, y) > 0.9
    bad: list[Any] = [lambda _, B: np.ones(len(B)), lambda _, B: np.full((1, len(B)), np.nan)]
    for function in bad:
        with raises(ParameterError, argument="similarity", remedy="Correct the function"):
            op.ARTIPCAClassifier(similarity=function).fit(X, y)
