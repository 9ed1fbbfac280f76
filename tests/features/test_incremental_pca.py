"""IncrementalPCA: scikit-learn's where that one is defined, and sensible before."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.decomposition import IncrementalPCA as Batches

import onepass as op
from onepass.errors import (
    NotFittedError,
    NumericalError,
    ParameterError,
    ShapeError,
)
from onepass.features import IncrementalPCA


def rows(n: int = 300, d: int = 12, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.1 * rng.normal(size=(n, d)) + 5.0


def aligned(A: Any, B: Any) -> Any:
    return A * np.sign(np.einsum("ij,ij->i", A, B))[:, None]


@pytest.mark.parametrize("whiten", [False, True])
def test_in_batches_of_its_block_it_is_scikit_learns(*, whiten: bool) -> None:
    X = rows()
    theirs = Batches(3, whiten=whiten)
    for i in range(0, 300, 50):
        theirs.partial_fit(X[i : i + 50])
    for cut in (1, 7, 300):
        ours = IncrementalPCA(3, whiten=whiten, block=50)
        for i in range(0, 300, cut):
            ours.learn(X[i : i + cut])
        assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12)
        assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-10)
        assert_allclose(
            aligned(ours.components_, theirs.components_), theirs.components_, atol=1e-9
        )
        assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
        ratio = theirs.explained_variance_ratio_
        assert_allclose(ours.explained_variance_ratio_, ratio, rtol=1e-9)
        assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-8)
        assert_allclose(
            ours.inverse_transform(ours.transform(X)),
            theirs.inverse_transform(theirs.transform(X)),
            atol=1e-8,
        )


def test_without_truncation_it_is_pca() -> None:
    X = rows(256, 6)
    ours, theirs = IncrementalPCA(6, block=128).learn(X), PCA(6).fit(X)
    assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-10)
    assert_allclose(aligned(ours.components_, theirs.components_), theirs.components_, atol=1e-8)


def test_not_centred_it_is_the_svd_of_the_rows() -> None:
    X = rows(128, 6)
    ours = IncrementalPCA(2, centred=False, block=64).learn(X)
    _, lengths, V = np.linalg.svd(X[:64], full_matrices=False)
    first = lengths[:2, None] * V[:2]
    lengths = np.linalg.svd(np.vstack((first, X[64:])), compute_uv=False)
    assert_allclose(ours.singular_values_, lengths[:2], rtol=1e-10)
    assert_array_equal(ours.mean_, np.zeros(6))


def test_it_works_from_the_first_row() -> None:
    X, pca = rows(10), IncrementalPCA(3)
    assert_array_equal(pca.transform(X[:2]), np.zeros((2, 3)))
    said = [pca.learn_transform(X[i : i + 1])[0] for i in range(10)]
    assert_array_equal(said[0], np.zeros(3))
    assert np.abs(said[3]).max() > 0.0
    assert pca.get_feature_names_out().tolist() == ["pc0", "pc1", "pc2"]


@pytest.mark.parametrize("given", [3, 0.97])
def test_a_row_is_learned_as_it_is_asked_about(given: Any) -> None:
    X, pca = rows(80), IncrementalPCA(given, block=16)
    parts = []
    for i in range(80):
        asked = pca.transform(X[i : i + 1])
        parts.append(pca.learn_transform(X[i : i + 1]))
        assert_allclose(parts[-1][:, : asked.shape[1]], asked, atol=1e-12)
        assert not parts[-1][:, asked.shape[1] :].any()
    whole = IncrementalPCA(given, block=16).learn_transform(X)
    for i, part in enumerate(parts):
        assert_allclose(whole[i, : part.shape[1]], part[0], atol=1e-9)
        assert not whole[i, part.shape[1] :].any()


def test_merged_it_knows_the_rows_of_both_and_columns_by_name() -> None:
    pd = pytest.importorskip("pandas")
    X = rows(200, 5)
    names = list("abcde")
    one = IncrementalPCA(5).learn(pd.DataFrame(X[:90], columns=names))
    two = IncrementalPCA(5).learn(pd.DataFrame(X[90:], columns=names)[names[::-1]])
    one.merge(two)
    theirs = PCA(5).fit(X)
    assert one.rows_seen_ == 200
    assert_allclose(one.singular_values_, theirs.singular_values_, rtol=1e-10)
    assert_allclose(one.mean_, theirs.mean_, rtol=1e-12)


def test_columns_may_come_later() -> None:
    X = rows(60, 6)
    pca = IncrementalPCA(4, block=100).learn(X[:30, :4]).grow(6)
    pca.learn(X[30:])
    X[:30, 4:] = 0.0
    whole = IncrementalPCA(4, block=100).learn(X)
    assert_allclose(pca.singular_values_, whole.singular_values_, rtol=1e-10)


def test_it_is_saved_with_what_it_has_not_truncated_yet(tmp_path: Any) -> None:
    X = rows(100)
    model = op.Pipeline(IncrementalPCA(3, block=30), op.RLSRegressor())
    model.partial_fit(X[:70], X[:70, 0])
    op.save(model, tmp_path / "m.onepass")
    other = op.load(tmp_path / "m.onepass")
    said = [one.test_then_train(X[70:], X[70:, 0]) for one in (model, other)]
    assert_array_equal(*said)


@pytest.mark.parametrize("bad", [0, -1, 1.0, 0.0, 1.5, "3", None, True])
def test_components_that_mean_nothing_are_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match="`n_components` must be a whole number >= 1, or a"):
        IncrementalPCA(bad).learn(rows(5))


def test_it_refuses_what_it_cannot_do_and_stays_as_it_was() -> None:
    with pytest.raises(NotFittedError, match="learned no row yet"):
        _ = IncrementalPCA().components_
    with pytest.raises(ParameterError, match="block"):
        IncrementalPCA(block=0).learn(rows(3))
    pca = IncrementalPCA(2, block=20).learn(rows(30))
    before = pca.transform(rows(4))
    with pytest.raises(NumericalError, match="squares of the values must be within float64"):
        pca.learn(np.vstack((rows(3), np.full((1, 12), 1e200))))
    with pytest.raises(ShapeError):
        pca.learn(rows(3, 5))
    assert_array_equal(pca.transform(rows(4)), before)
    assert pca.rows_seen_ == 30
    with pytest.raises(ShapeError):
        pca.inverse_transform(np.zeros((2, 3)))


def test_columns_are_scaled_before_it_though_least_squares_behind_it_is_free_of_units() -> None:
    X = rows(120)
    model = op.Pipeline(op.features.Scale(), IncrementalPCA(3, block=20), op.RLSRegressor())
    model.partial_fit(X, X[:, 0])
    assert "passed by" not in model.describe()
