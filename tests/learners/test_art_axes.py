"""ART-IPCA with discriminant axes, and with several levels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import onepass as op
from cases import snapshot
from onepass.errors import CheckpointError, MergeError, ParameterError
from raising import raises

ART, Cluster = op.ARTIPCAClassifier, op.ARTIPCACluster
TWO: dict[str, Any] = {"levels": 2, "max_prototypes": (6, 40), "block": 64}


def digits(seed: int = 0) -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order] / 16.0, y[order]


def classes_of_normals(n: int = 1024, d: int = 8, c: int = 5) -> tuple[Any, Any]:
    """Rows of c classes with one covariance."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, c, n)
    means = rng.normal(size=(c, d))
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + means[y] + 5.0, y


# -- discriminant axes -----------------------------------------------------------------------------


@pytest.mark.parametrize("pca", ["incremental", "task", "static"])
@pytest.mark.parametrize("k", [4, 2])
def test_discriminant_axes_equal_batch_lda(pca: str, k: int) -> None:
    X, y = classes_of_normals()
    model = ART(k, projection="lda", shrinkage=0.0, pca=pca).partial_fit(X, y)
    batch = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :k].T
    signs = np.sign((batch * model.components_).sum(axis=1))
    assert_allclose(model.components_, batch * signs[:, None], atol=1e-8)


def test_discriminant_axes_of_sorted_classes_and_merged_parts_equal_batch_lda() -> None:
    X, y = classes_of_normals()
    batch = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :4]
    projector = batch @ np.linalg.pinv(batch)
    order = np.argsort(y, kind="stable")  # new classes arrive one after the other
    model = ART(4, projection="lda", shrinkage=0.0)
    for i in range(0, len(y), 100):
        model.partial_fit(X[order[i : i + 100]], y[order[i : i + 100]])
    parts = [ART(4, projection="lda", shrinkage=0.0) for _ in range(2)]
    one, two = (part.partial_fit(X[i::2], y[i::2]) for i, part in enumerate(parts))
    for learner in (model, one.merge(two)):
        V = learner.components_.T
        assert_allclose(V @ np.linalg.pinv(V), projector, atol=1e-8)


def test_shrinkage_equals_shrunk_scatter_within_classes() -> None:
    X, y = classes_of_normals()
    model = ART(4, projection="lda", shrinkage=0.3).partial_fit(X, y)
    within = sum(np.cov(X[y == k].T, bias=True) * (y == k).mean() for k in range(5))
    shrunk = 0.7 * within + 0.3 * np.trace(within) / 8 * np.eye(8)
    V, axes = model.components_, vars(model)["axes_"]
    assert_allclose(V @ shrunk @ V.T, np.eye(4), atol=1e-10)
    between = np.cov(X.T, bias=True) - within
    assert_allclose(V @ between @ V.T, np.diag(axes.view.lengths**2), atol=1e-10)


@pytest.mark.parametrize("params", [{}, {"projection": "lda"}, TWO])
def test_proposition_1_prototypes_follow_new_axes(params: dict[str, Any]) -> None:
    """Projected prototypes are the means of their rows projected on the current axes."""
    X, y = digits()
    model = ART(8, 0.6, **({"block": 100} | params))
    rows: dict[tuple[int, ...], list[int]] = {}
    for i, (x, label) in enumerate(zip(X[:400], y[:400], strict=True)):
        before = leaf_weights(model)
        model.learn_one(x, label)
        for key, weight in leaf_weights(model).items():
            if weight != before.get(key, 0.0):
                rows.setdefault(key, []).append(i)
    checked = 0
    for path, leaf in model._tree.leaves():
        coordinates = leaf.store.all("coordinates")
        for j, z in enumerate(coordinates):
            those = X[rows[(*path, j)]]
            assert_allclose(z, leaf.project(those).mean(axis=0), atol=1e-9)
            checked += len(those)
    assert checked == 400


def leaf_weights(model: Any) -> dict[tuple[int, ...], float]:
    """The weight of each prototype of the last level, by its path."""
    if not hasattr(model, "prototype_store_"):
        return {}
    return {
        (*path, j): weight
        for path, leaf in model._tree.leaves()
        for j, weight in enumerate(leaf.store.all("weights").tolist())
    }


def test_discriminant_axes_separate_digits_and_singular_scatter_is_accepted() -> None:
    X, y = digits()  # some pixels are constant
    for shrinkage in (0.0, 1e-4, "oas"):
        model = ART(9, 0.5, projection="lda", shrinkage=shrinkage).partial_fit(X[:1200], y[:1200])
        assert model.components_.shape[0] <= 9
        assert model.score(X[1200:], y[1200:]) > 0.93


# -- levels ----------------------------------------------------------------------------------------


class Reference:
    """Two levels as separate flat learners; each row is routed by a clusterer."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.root = Cluster(6, 0.1, block=64, max_prototypes=6)
        self.make = make
        self.children: dict[int, Any] = {}

    def learn_one(self, x: Any, y: Any) -> Any:
        prediction = None
        if hasattr(self.root, "prototype_store_"):
            prediction = self.children[int(self.root.predict_one(x))].predict_one(x)
            before = self.root.prototype_weights_
        else:
            before = np.zeros(0)
        after = self.root.learn_one(x).prototype_weights_
        moved = int(np.flatnonzero(after != np.pad(before, (0, len(after) - len(before))))[0])
        self.children.setdefault(moved, self.make()).learn_one(x, y)
        return prediction


def test_two_levels_equal_a_clusterer_and_a_classifier_for_each_cluster() -> None:
    X, y = digits()
    reference = Reference(lambda: ART(4, 0.6, block=64, max_prototypes=40, classes=range(10)))
    model = ART((6, 4), (0.1, 0.6), classes=range(10), **TWO)
    expected = [reference.learn_one(x, label) for x, label in zip(X[:500], y[:500], strict=True)]
    found = np.concatenate(
        [model.test_then_train(X[i : i + 61], y[i : i + 61]) for i in range(0, 488, 61)]
        + [model.test_then_train(X[488:500], y[488:500])]
    )
    assert_array_equal(found[1:], expected[1:])
    assert_allclose(model.prototype_store_.all("rows"), reference.root.prototypes_, atol=1e-10)
    nearest = reference.root.predict(X[500:600])
    assert len(reference.children) > 2
    predictions = [
        reference.children[int(q)].predict(x[None])[0]
        for q, x in zip(nearest, X[500:600], strict=True)
    ]
    assert_array_equal(model.predict(X[500:600]), predictions)


@pytest.mark.parametrize("cut", [1, 37, 600])
def test_cluster_numbers_of_levels_are_stable_and_independent_of_blocks(cut: int) -> None:
    X, _ = digits()
    model, whole = (Cluster((6, 3), (0.1, 0.6), levels=2, block=64) for _ in range(2))
    predictions = [model.test_then_train(X[:600][i : i + cut]) for i in range(0, 600, cut)]
    assert_array_equal(np.concatenate(predictions), whole.test_then_train(X[:600]))
    assert_array_equal(model.paths_, whole.paths_)
    assert_allclose(model.prototypes_, whole.prototypes_, atol=1e-12)
    assert len(model.paths_) == len(model.prototypes_) == len(np.unique(model.paths_, axis=0))
    before, numbers = model.paths_, model.predict(X[:600])
    assert (model.paths_[numbers] >= 0).all()
    model.partial_fit(X[600:900])
    assert_array_equal(model.paths_[: len(before)], before)
    near = model.similarities(X[:5])
    assert near.shape == (5, len(model.prototypes_))
    assert model.prototype_weights_.sum() == 900.0


def test_levels_are_recursive() -> None:
    X, y = digits()
    model = ART(4, (0.0, 0.2, 0.6), levels=3, max_prototypes=(3, 3, 50), block=32)
    model.partial_fit(X[:1200], y[:1200])
    assert {len(path) for path, _ in model._tree.leaves()} == {2}
    assert len(model.prototype_labels_) == len(model.prototypes_) == len(model.prototype_weights_)
    assert model.prototype_weights_.sum() == pytest.approx(1200.0)
    assert model.score(X[1200:], y[1200:]) > 0.8


@pytest.mark.parametrize("params", [{"projection": "lda"}, TWO, TWO | {"projection": "lda"}])
def test_saved_compact_merged_and_grown_learners(params: dict[str, Any], tmp_path: Any) -> None:
    X, y = digits()
    one, two = (ART(8, 0.4, **params).partial_fit(X[i:1200:2, :60], y[i:1200:2]) for i in range(2))
    op.save(one, tmp_path / "m.onepass")
    loaded = op.load(tmp_path / "m.onepass")
    assert snapshot(loaded) == snapshot(one)
    small = loaded.compact()
    op.save(small, tmp_path / "small.onepass")
    assert_array_equal(op.load(tmp_path / "small.onepass").predict(X[:, :60]),
                       one.predict(X[:, :60]))  # fmt: skip
    assert small.nbytes < one.nbytes
    with raises(ParameterError, remedy="Use the learner that"):
        small.partial_fit(X[:5, :60], y[:5])
    merged = loaded.merge(two)
    assert merged.rows_seen_ == 1200
    assert merged.prototype_weights_.sum() == pytest.approx(1200.0)
    assert merged.score(X[1200:, :60], y[1200:]) > 0.8
    merged.grow(64).partial_fit(X[:50], y[:50])
    assert merged.prototypes_.shape[1] == 64
    with pytest.raises(MergeError, match=r"projection|levels"):
        two.merge(ART(8, 0.4).partial_fit(X[:50, :60], y[:50]))


def test_merged_clusters_of_levels_are_numbered() -> None:
    X, _ = digits()
    one, two = (Cluster((6, 3), (0.1, 0.6), levels=2, block=64).fit(X[i:600:2]) for i in range(2))
    before = one.paths_
    one.merge(two)
    assert_array_equal(one.paths_[: len(before)], before)
    assert len(one.paths_) == len(one.prototypes_)
    assert one.prototype_weights_.sum() == 600.0
    assert_array_equal(one.compact().predict(X), one.predict(X))


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        ({"projection": "ica"}, {"argument": "projection"}),
        ({"projection": "lda", "shrinkage": 2.0}, {"argument": "shrinkage"}),
        ({"levels": 0}, {"argument": "levels"}),
        ({"levels": 99}, {"argument": "levels"}),
        (
            {"levels": 2, "vigilance": (0.1, 0.2, 0.3)},
            {"argument": "vigilance", "got": "(0.1, 0.2, 0.3)"},
        ),
        ({"n_components": (3, 2)}, {"argument": "n_components", "got": "(3, 2)"}),
    ],
)
def test_invalid_parameters_are_refused(params: dict[str, Any], fields: dict[str, Any]) -> None:
    X, y = digits()
    with raises(ParameterError, **fields):
        ART(**params).partial_fit(X[:9], y[:9])


def test_discriminant_axes_cannot_be_learned_without_labels() -> None:
    X, _ = digits()
    with raises(ParameterError, remedy="Call partial_fit, which learns"):
        ART(projection="lda", pca="static").learn_axes(X)


def test_inconsistent_files_are_refused(tmp_path: Any) -> None:
    X, y = digits()
    lda = ART(projection="lda").partial_fit(X[:300], y[:300])
    tree = ART(8, 0.4, **TWO).partial_fit(X[:300], y[:300])
    clusters = Cluster((6, 3), (0.1, 0.6), levels=2).fit(X[:300])
    axes: Any = lda.axes_
    wrong: list[tuple[Any, dict[str, Any]]] = [
        (lda, {"axes_": replace(axes, block=0)}),
        (lda, {"axes_": replace(axes, view=replace(axes.view, lengths=axes.view.lengths[:1]))}),
        (tree, {"children_": tree.children_[:-1]}),
        (tree, {"children_": (*tree.children_[:-1], 7)}),
        (tree, {"levels_": 3}),
        (clusters, {"paths_": clusters.paths_[:-1]}),
    ]
    for model, change in wrong:
        altered = type(model)(**model.get_params())
        altered.__dict__.update({**vars(model), **change})
        op.save(altered, tmp_path / "m.onepass")
        with pytest.raises(CheckpointError):
            op.load(tmp_path / "m.onepass")


@pytest.mark.parametrize("params", [{}, {"projection": "lda"}, TWO])
def test_learners_of_rows_of_weight_0_are_loaded(params: dict[str, Any], tmp_path: Any) -> None:
    X, y = digits()
    model = ART(**params).partial_fit(X[:5], y[:5], sample_weight=np.zeros(5))
    op.save(model, tmp_path / "m.onepass")
    loaded = op.load(tmp_path / "m.onepass").partial_fit(X[:300], y[:300])
    assert_array_equal(loaded.predict(X), model.partial_fit(X[:300], y[:300]).predict(X))


def test_keyed_learns_levels_and_discriminant_axes() -> None:
    X, y = digits()
    key = np.arange(600) % 3
    keyed = op.Keyed(ART(5, 0.4, projection="lda", block=32), by=0)
    keyed.partial_fit(np.column_stack((key, X[:600])), y[:600])
    alone = ART(5, 0.4, projection="lda", block=32).partial_fit(
        X[:600][key == 1], y[:600][key == 1]
    )
    rows = np.column_stack((np.ones(50), X[600:650]))
    assert_array_equal(keyed.predict(rows), alone.predict(X[600:650]))
