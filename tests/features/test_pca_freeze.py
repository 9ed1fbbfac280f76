"""IncrementalPCA with axes frozen after the first rows, alone and before learners."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import onepass as op
from onepass.errors import CheckpointError, MergeError, NumericalError, ParameterError
from onepass.features import IncrementalPCA
from onepass.serialization import archive
from raising import raises

LEARNERS = [op.RLSClassifier, op.StreamingLDA]


def rows(n: int = 120, d: int = 9, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.1 * rng.normal(size=(n, d)) + 5.0


def along(A: Any, B: Any) -> Any:
    """A's columns, turned round where B's point the other way."""
    return A * np.sign(np.einsum("ij,ij->j", A, B))


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("first", [5, 60, 700])  # fewer rows than columns, more, and many blocks
@pytest.mark.parametrize("k", [3, 0.8])
def test_axes_equal_scikit_learn_pca_of_first_rows(k: Any, first: int, *, whiten: bool) -> None:
    X = rows(800)
    theirs = PCA(k, whiten=whiten, svd_solver="full").fit(X[:first])
    ours = IncrementalPCA(k, whiten=whiten, freeze_after=first)
    Z = ours.learn_transform(X)
    assert not Z[:first].any()
    assert_allclose(
        along(Z[first:], theirs.transform(X[first:])), theirs.transform(X[first:]), atol=1e-8
    )
    assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-8)
    assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-8)
    assert_allclose(
        ours.inverse_transform(ours.transform(X)),
        theirs.inverse_transform(theirs.transform(X)),
        atol=1e-8,
    )


@pytest.mark.parametrize("block", [None, 16])
@settings(deadline=None, max_examples=25)
@given(
    cuts=st.lists(st.integers(0, 120), max_size=6).map(sorted),
    first=st.sampled_from([1, 40, 48, 120, 200]),
    k=st.sampled_from([3, 0.9]),
)
def test_block_boundaries_do_not_change_axes(
    block: int | None, cuts: list[int], first: int, k: Any
) -> None:
    X = rows()
    make = IncrementalPCA(k, block=block, freeze_after=first)
    whole, pca, parts = copy.deepcopy(make).learn_transform(X), copy.deepcopy(make), []
    for begin, end in zip([0, *cuts], [*cuts, 120], strict=True):
        parts.append(pca.learn_transform(X[begin:end]))
    for begin, part in zip([0, *cuts], parts, strict=True):
        width = part.shape[1]
        assert_allclose(part, whole[begin : begin + len(part), :width], atol=1e-8)
        assert not whole[begin : begin + len(part), width:].any()


def test_block_axes_equal_unfrozen_axes_at_freeze() -> None:
    X = rows(200)
    turning = IncrementalPCA(3, block=20).learn(X[:100])
    still = IncrementalPCA(3, block=20, freeze_after=100).learn(X)
    assert_allclose(still.components_, turning.components_, atol=1e-12)
    assert_allclose(still.mean_, turning.mean_, rtol=1e-12)


@pytest.mark.parametrize("k", [3, 0.9])
def test_transform_equals_learn_transform(k: Any) -> None:
    X, pca = rows(), IncrementalPCA(k, freeze_after=50)
    for i in range(120):
        transformed_before = pca.transform(X[i : i + 1])
        learned = pca.learn_transform(X[i : i + 1])
        assert_array_equal(learned[:, : transformed_before.shape[1]], transformed_before)
        assert not learned[:, transformed_before.shape[1] :].any()
    assert len(pca.components_) == pca.n_features_out_ > 0


@pytest.mark.parametrize("learner", LEARNERS)
def test_learner_is_exact_after_freeze(learner: Any) -> None:
    X, y = load_digits(return_X_y=True)
    X, first = X[:600, 1:31] / 16, 200
    theirs = PCA(8).fit(X[:first])
    Z = theirs.transform(X)
    Z[:first] = 0.0
    fixed = learner().partial_fit(Z[:500], y[:500])
    pipeline = op.Pipeline(IncrementalPCA(8, freeze_after=first), learner())
    for i in range(0, 500, 130):
        pipeline.partial_fit(X[i : min(i + 130, 500)], y[i : min(i + 130, 500)])
    assert_array_equal(pipeline.predict(X[500:]), fixed.predict(Z[500:]))
    apart = pipeline.decision_function(X[500:]) - fixed.decision_function(Z[500:])
    assert np.abs(apart).max() < 1e-6


@pytest.mark.parametrize("learner", LEARNERS)
def test_accuracy_is_near_that_on_fixed_axes(learner: Any) -> None:
    X, y = load_digits(return_X_y=True)
    pca = PCA(30).fit(X[:500])
    fixed = learner().partial_fit(pca.transform(X[:1300]), y[:1300])
    pipeline = op.Pipeline(IncrementalPCA(30, freeze_after=500), learner())
    pipeline.partial_fit(X[:1300], y[:1300])
    assert (
        pipeline.score(X[1300:], y[1300:]) > fixed.score(pca.transform(X[1300:]), y[1300:]) - 0.04
    )


@pytest.mark.parametrize("at", [0, 30, 50, 80])
def test_learning_continues_after_loading(at: int, tmp_path: Any) -> None:
    X = rows()
    model = op.Pipeline(IncrementalPCA(3, freeze_after=50), op.RLSRegressor())
    model.partial_fit(X[:at], X[:at, 0])
    op.save(model, tmp_path / "m.onepass")
    other = op.load(tmp_path / "m.onepass")
    assert_array_equal(*(one.test_then_train(X[at:], X[at:, 0]) for one in (model, other)))


def test_files_without_freeze_after_have_unfrozen_axes(tmp_path: Any) -> None:
    X, pca = rows(), IncrementalPCA(3).learn(rows())
    op.save(pca, tmp_path / "new.onepass")
    found = archive.contents(tmp_path / "new.onepass")
    old = {name: value for name, value in found.tree.items() if name != "freeze_after"}
    assert len(old) == len(found.tree) - 1
    archive.write(tmp_path / "old.onepass", old, kind=found.kind)
    again = op.load(tmp_path / "old.onepass")
    assert again.freeze_after is None
    assert_array_equal(again.learn(X).components_, pca.learn(X).components_)


def test_file_with_invalid_freeze_after_is_refused(tmp_path: Any) -> None:
    pca = IncrementalPCA(3, freeze_after=50).learn(rows())
    pca.freeze_after = "50"  # type: ignore[assignment]
    op.save(pca, tmp_path / "m.onepass")
    with raises(CheckpointError, got="a damaged one: the object has inconsistent attributes"):
        op.load(tmp_path / "m.onepass")


def test_frozen_axes_need_less_memory() -> None:
    X, pca = rows(300, 40), IncrementalPCA(3, freeze_after=200)
    learning = pca.learn(X[:199]).nbytes
    frozen = pca.learn(X[199:200]).nbytes
    assert frozen < learning / 10
    assert pca.learn(X[200:]).nbytes == frozen


def test_later_columns_do_not_contribute() -> None:
    X = rows(120, 9)
    early = IncrementalPCA(20, freeze_after=60).learn(X[:30, :6]).grow(9)
    late = IncrementalPCA(20, freeze_after=60).learn(X[:70, :6]).grow(9)
    Z = late.learn_transform(X[70:])
    assert late.n_features_out_ == Z.shape[1] == 6
    assert_array_equal(late.components_[:, 6:], 0.0)
    assert_allclose(Z, IncrementalPCA(20, freeze_after=60).learn(X[:70, :6]).transform(X[70:, :6]))
    X[:30, 6:] = 0.0
    whole = IncrementalPCA(20, freeze_after=60).learn_transform(X)
    assert_allclose(early.learn_transform(X[30:]), whole[30:], atol=1e-8)


# -- merging ---------------------------------------------------------------------------------------


def test_pipelines_with_same_axes_merge_exactly() -> None:
    X = rows(400)
    y = X[:, 0] ** 2
    begun = IncrementalPCA(3, freeze_after=100).learn(X[:100])
    one, two, all_ = (
        op.Pipeline(IncrementalPCA(3, freeze_after=100), op.RLSRegressor(ridge=0.1))
        for _ in range(3)
    )
    one.partial_fit(X[:250], y[:250])
    two.partial_fit(X[:0], y[:0])
    two.features_ = [copy.deepcopy(begun)]
    two.partial_fit(X[250:], y[250:])
    all_.partial_fit(X, y)
    assert_allclose(one.merge(two).predict(X), all_.predict(X), atol=1e-8)
    assert one.features_[0].rows_seen_ == 250 + 250


def test_unfrozen_axes_merge() -> None:
    X = rows(100)
    parts = [
        IncrementalPCA(3, freeze_after=80).learn(X[half]) for half in (slice(50), slice(50, 100))
    ]
    merged = parts[0].merge(parts[1])
    theirs = PCA(3).fit(X)  # all rows of both: no fewer than were wanted
    assert_allclose(merged.mean_, theirs.mean_, rtol=1e-10)
    assert_allclose(merged.explained_variance_, theirs.explained_variance_, rtol=1e-8)
    before = merged.components_
    assert_array_equal(merged.learn(rows(50, seed=1)).components_, before)
    fresh = IncrementalPCA(3, freeze_after=80).merge(merged)
    assert_array_equal(fresh.components_, before)
    few = IncrementalPCA(3, freeze_after=300).learn(X[:50])
    few.merge(IncrementalPCA(3, freeze_after=300).learn(X[50:])).learn(rows(200, seed=1))
    assert_allclose(few.mean_, np.vstack((X, rows(200, seed=1))).mean(axis=0), rtol=1e-10)


def test_merges_of_different_axes_are_refused() -> None:
    X = rows(200)
    one, two, young = (
        op.Pipeline(IncrementalPCA(3, freeze_after=60), op.RLSRegressor()).partial_fit(
            X[part], X[part, 0]
        )
        for part in (slice(100), slice(100, 200), slice(40))
    )
    predictions = one.predict(X)
    for a, b, why in (
        (one, two, "frozen axes must be the same in both"),
        (one, young, "its axes are those of its own first rows"),
        (young, one, "its axes are those of its own first rows"),
        (one.features_[0], young.features_[0], "axes of 60 rows and different axes of 40"),
        (young.features_[0], two.features_[0], "axes of 40 rows and different axes of 60"),
    ):
        with pytest.raises(MergeError, match=why):
            a.merge(b)
    assert_array_equal(one.predict(X), predictions)
    assert young.features_[0].rows_seen_ == 40


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, 1.5, "3", True])
def test_invalid_freeze_after_is_refused(bad: Any) -> None:
    with raises(ParameterError, argument="freeze_after"):
        IncrementalPCA(freeze_after=bad).learn(rows(5))


def test_overflow_is_refused() -> None:
    pca = IncrementalPCA(2, freeze_after=20).learn(rows(10))
    with raises(NumericalError, remedy="Divide the columns by"):
        pca.learn(np.full((1, 9), 1e200))
    assert pca.rows_seen_ == 10
    pca.learn(rows(10)).learn(rows(5))
    with pytest.raises(NumericalError, match="features must be within float64"):
        pca.learn(np.full((1, 9), 1.7e308) * np.sign(pca.components_[0]))
    assert pca.rows_seen_ == 25
