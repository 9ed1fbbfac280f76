"""IncrementalPCA equals scikit-learn's, and is defined from the first row on."""

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from raising import raises


def rows(n: int = 300, d: int = 12, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.1 * rng.normal(size=(n, d)) + 5.0


def aligned(A: Any, B: Any) -> Any:
    return A * np.sign(np.einsum("ij,ij->i", A, B))[:, None]


@pytest.mark.parametrize("whiten", [False, True])
def test_blocks_equal_batches_of_scikit_learn(*, whiten: bool) -> None:
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


def test_all_components_equal_batch_pca() -> None:
    X = rows(256, 6)
    ours, theirs = IncrementalPCA(6, block=128).learn(X), PCA(6).fit(X)
    assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-10)
    assert_allclose(aligned(ours.components_, theirs.components_), theirs.components_, atol=1e-8)


def test_first_rows_can_be_transformed() -> None:
    X, pca = rows(10), IncrementalPCA(3)
    assert_array_equal(pca.transform(X[:2]), np.zeros((2, 3)))
    transformed = [pca.learn_transform(X[i : i + 1])[0] for i in range(10)]
    assert_array_equal(transformed[0], np.zeros(3))
    assert np.abs(transformed[3]).max() > 0.0
    assert pca.get_feature_names_out().tolist() == ["pc0", "pc1", "pc2"]


@pytest.mark.parametrize("given", [3, 0.97])
def test_learn_transform_equals_transform_before_row(given: Any) -> None:
    X, pca = rows(80), IncrementalPCA(given, block=16)
    parts = []
    for i in range(80):
        transformed_before = pca._transform_rows(X[i : i + 1])
        parts.append(pca.learn_transform(X[i : i + 1]))
        assert_allclose(parts[-1][:, : transformed_before.shape[1]], transformed_before, atol=1e-12)
        assert not parts[-1][:, transformed_before.shape[1] :].any()
    whole = IncrementalPCA(given, block=16).learn_transform(X)
    for i, part in enumerate(parts):
        assert_allclose(whole[i, : part.shape[1]], part[0], atol=1e-9)
        assert not whole[i, part.shape[1] :].any()


def in_batches(X: Any, k: int, block: int) -> Any:
    """Mean, axes and singular values of batches of a block each, the last one shorter."""
    mean, V, lengths, seen = np.zeros(X.shape[1]), np.zeros((0, X.shape[1])), np.zeros(0), 0
    for i in range(0, len(X), block):
        batch = X[i : i + block]
        n, own = len(batch), batch.mean(axis=0)
        between = np.sqrt(seen * n / (seen + n)) * (mean - own)
        F = np.vstack((lengths[:, None] * V, batch - own, between))
        V, lengths = (part[:k] for part in np.linalg.svd(F, full_matrices=False)[:0:-1])
        mean, seen = (seen * mean + n * own) / (seen + n), seen + n
    return mean, V, lengths


@settings(max_examples=30, deadline=None, print_blob=True)
@given(
    n=st.integers(1, 90),
    share=st.sampled_from([1, 3, 0.5, 0.97]),
    block=st.integers(1, 40),
    cut=st.integers(1, 90),
    whiten=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32, np.int32]),
)
def test_attributes_and_transform_use_all_rows(
    n: int,
    share: float,
    block: int,
    cut: int,
    whiten: bool,  # noqa: FBT001  drawn
    dtype: Any,
) -> None:
    X = (10 * rows(n, 6, seed=n)).astype(dtype)
    make = partial(IncrementalPCA, share, whiten=whiten, block=block)
    read, unread, transformed = make(), make(), []
    for i in range(0, n, cut):
        transformed += [pca.learn_transform(X[i : i + cut]) for pca in (read, unread)]
        assert_allclose(read.mean_, X[: i + cut].mean(axis=0, dtype=float), rtol=1e-12)
        read.transform(X)
    for one, other in zip(transformed[::2], transformed[1::2], strict=True):
        assert_array_equal(one, other)
    X = X.astype(float)
    k = len(read.components_) if isinstance(share, float) else min(share, n)
    assert isinstance(share, int) or k == read.n_features_out_
    assert len(pickle.dumps(read)) == len(pickle.dumps(unread))  # no cached view
    loaded = pickle.loads(pickle.dumps(read))  # noqa: S301  its own
    for pca in (read, unread, loaded, copy.deepcopy(unread), make().learn(X)):
        assert pca.rows_seen_ == n
        assert_allclose(pca.mean_, X.mean(axis=0), rtol=1e-12)
        ratio = pca.explained_variance_ratio_.sum() * ((X - pca.mean_) ** 2).sum()
        assert_allclose(ratio, (pca.singular_values_**2).sum(), atol=1e-9)
        if isinstance(share, int) or n <= block:
            _, V, lengths = in_batches(X, k, block)
            found = len(pca.singular_values_)
            assert_allclose(pca.singular_values_, lengths[:found], rtol=1e-7, atol=1e-7)
            assert_allclose(lengths[found:], 0.0, atol=1e-7)
            shared = pca.components_ @ V[:found].T
            apart = np.diff(lengths, append=0.0).max(initial=-np.inf) < -1e-3
            assert not apart or np.allclose(np.abs(np.diagonal(shared)), 1.0, atol=1e-6)
        Z = (X - pca.mean_) @ pca.components_.T
        if whiten:
            spread = np.sqrt(pca.explained_variance_)
            Z /= np.where(spread > 0.0, spread, 1.0)
        assert_allclose(pca.transform(X)[:, : Z.shape[1]], Z, rtol=1e-9, atol=1e-9)
        assert not pca.transform(X)[:, Z.shape[1] :].any()


def test_merge_equals_pca_of_all_rows_with_columns_by_name() -> None:
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


def test_new_columns_count_as_zero_in_earlier_rows() -> None:
    X = rows(60, 6)
    pca = IncrementalPCA(4, block=100).learn(X[:30, :4]).grow(6)
    pca.learn(X[30:])
    X[:30, 4:] = 0.0
    whole = IncrementalPCA(4, block=100).learn(X)
    assert_allclose(pca.singular_values_, whole.singular_values_, rtol=1e-10)


def test_loaded_pca_continues_within_block(tmp_path: Any) -> None:
    X = rows(100)
    model = op.Pipeline(IncrementalPCA(3, block=30), op.RLSRegressor())
    model.partial_fit(X[:70], X[:70, 0])
    op.save(model, tmp_path / "m.onepass")
    other = op.load(tmp_path / "m.onepass")
    transformed = [one.test_then_train(X[70:], X[70:, 0]) for one in (model, other)]
    assert_array_equal(*transformed)


@pytest.mark.parametrize("bad", [0, -1, 1.0, 0.0, 1.5, "3", None, True])
def test_invalid_n_components_are_refused(bad: Any) -> None:
    with raises(ParameterError, argument="n_components"):
        IncrementalPCA(bad).learn(rows(5))


def test_errors_leave_state_unchanged() -> None:
    with raises(NotFittedError, remedy="Call learn or learn_transform"):
        _ = IncrementalPCA().components_
    with raises(ParameterError, argument="block"):
        IncrementalPCA(block=0).learn(rows(3))
    pca = IncrementalPCA(2, block=20).learn(rows(30))
    before = pca.transform(rows(4))
    with raises(NumericalError, remedy="Divide the columns by"):
        pca.learn(np.vstack((rows(3), np.full((1, 12), 1e200))))
    with pytest.raises(ShapeError):
        pca.learn(rows(3, 5))
    assert_array_equal(pca.transform(rows(4)), before)
    assert pca.rows_seen_ == 30
    with pytest.raises(ShapeError):
        pca.inverse_transform(np.zeros((2, 3)))


def test_scale_before_pca_is_not_skipped() -> None:
    X = rows(120)
    model = op.Pipeline(op.features.Scale(), IncrementalPCA(3, block=20), op.RLSRegressor())
    model.partial_fit(X, X[:, 0])
    assert "skipped" not in model.describe()
