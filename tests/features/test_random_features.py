"""Random features: equal to their formulas for any blocks, and restored from files."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from feature_cases import CUTS, in_blocks, row_by_row, state
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler

import onepass as op
from onepass.errors import (
    CheckpointError,
    MergeError,
    NumericalError,
    ParameterError,
)
from onepass.features import Encode, Impute, RandomConvolution, RandomFourier, RandomReLU, Scale
from onepass.features.transformer import Transformer
from raising import raises

rng = np.random.default_rng(0)
TABLE = rng.normal(size=(30, 5))
PICTURES = np.where(rng.random((30, 6, 8)) < 0.3, 0.0, rng.random((30, 6, 8)))
PICTURES[[0, 3]] = 0.5  # flat: no filter comes from them


def make_feature(kind: str, **changes: Any) -> Transformer:
    if kind == "relu":
        return RandomReLU(**({"width": 7} | changes))
    if kind == "fourier":
        return RandomFourier(**({"width": 7} | changes))
    few = {"filters": 9, "size": 3, "pool": 2, "shape": (6, 8), "source": kind}
    return RandomConvolution(**(few | changes))


def rows_of(kind: str) -> np.ndarray:
    return TABLE if kind in {"relu", "fourier"} else PICTURES.reshape(30, -1)


each_kind = pytest.mark.parametrize("kind", ["relu", "fourier", "random", "patches"])


@each_kind
@settings(max_examples=10, deadline=None, derandomize=True)
@given(cuts=CUTS)
def test_block_boundaries_do_not_change_features(kind: str, cuts: list[int]) -> None:
    X = rows_of(kind)
    whole = make_feature(kind)
    expected = whole.learn_transform(X)
    part = make_feature(kind)
    assert_allclose(in_blocks(part, X, cuts), expected, atol=1e-12)
    assert state(part) == state(whole)
    assert whole.n_features_out_ == expected.shape[1] == len(whole.get_feature_names_out())


@each_kind
def test_transform_equals_learn_transform(kind: str) -> None:
    X, feature = rows_of(kind), make_feature(kind)
    for i in range(len(X)):
        transformed_before = feature.transform(X[i : i + 1])
        assert_allclose(feature.learn_transform(X[i : i + 1]), transformed_before, atol=1e-12)
    assert_allclose(
        row_by_row(make_feature(kind), X), make_feature(kind).learn_transform(X), atol=1e-12
    )


@each_kind
def test_loaded_feature_continues_identically(kind: str, tmp_path: Any) -> None:
    X = rows_of(kind)
    feature = make_feature(kind).learn(X[:5])
    op.save(feature, tmp_path / "f.onepass")
    again = op.load(tmp_path / "f.onepass")
    assert state(again) == state(feature)
    assert_array_equal(again.learn_transform(X[5:]), feature.learn_transform(X[5:]))


@each_kind
def test_file_with_inconsistent_attributes_is_refused(kind: str, tmp_path: Any) -> None:
    feature = make_feature(kind).learn(rows_of(kind))
    name = feature._draws[0]
    setattr(feature, name, getattr(feature, name)[:, :-1])
    op.save(feature, tmp_path / "f.onepass")
    with raises(
        CheckpointError, got="a damaged one: the object has inconsistent attributes for Random"
    ):
        op.load(tmp_path / "f.onepass")
    delattr(feature, name)
    op.save(feature, tmp_path / "f.onepass")
    with raises(
        CheckpointError, got="a damaged one: the object has inconsistent attributes for Random"
    ):
        op.load(tmp_path / "f.onepass")


@each_kind
def test_float32_stays_float32(kind: str) -> None:
    X = rows_of(kind)
    Z = make_feature(kind).learn_transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    assert_allclose(Z, make_feature(kind).learn_transform(X), atol=1e-4)


@each_kind
def test_seed_changes_features(kind: str) -> None:
    X = rows_of(kind)
    one, two = (make_feature(kind, seed=seed).learn_transform(X) for seed in (1, 2))
    assert not np.allclose(one, two)


@pytest.mark.parametrize("kind", ["relu", "fourier", "random"])
def test_merged_pipelines_equal_pipeline_of_whole_stream(kind: str) -> None:
    X = rows_of(kind)
    y = X[:, :3].argmax(axis=1)
    one, two, whole = (
        op.Pipeline(make_feature(kind), op.RLSClassifier(ridge=0.1)) for _ in range(3)
    )
    one.partial_fit(X[:11], y[:11]).merge(two.partial_fit(X[11:], y[11:]))
    whole.partial_fit(X, y)
    assert_allclose(one.decision_function(X), whole.decision_function(X), atol=1e-9)
    fresh = op.Pipeline(make_feature(kind), op.RLSClassifier(ridge=0.1)).merge(whole)
    assert_allclose(fresh.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_merge_of_different_patches_is_refused() -> None:
    X, y = rows_of("patches"), np.arange(30) % 2
    one, two = (op.Pipeline(make_feature("patches"), op.RLSClassifier()) for _ in range(2))
    one.partial_fit(X[:12], y[:12])
    two.partial_fit(X[12:], y[12:])
    before = state(one)
    with pytest.raises(MergeError, match="patches of its own first rows"):
        one.merge(two)
    assert state(one) == before


# -- units ---------------------------------------------------------------------------------------


def test_relu_equals_formula() -> None:
    feature = RandomReLU(4000, scale=2.0, bias=0.5, standardize="row")
    Z = feature.learn_transform(TABLE)
    rows = (TABLE - TABLE.mean(axis=1)[:, None]) / TABLE.std(axis=1)[:, None]
    assert_allclose(Z, np.maximum(rows @ feature.weights_ + feature.bias_, 0.0), atol=1e-9)
    assert_allclose(feature.weights_.std(), 2.0 / np.sqrt(5), rtol=0.02)
    assert_allclose(feature.bias_.std(), 0.5, rtol=0.04)
    flat = feature.transform(np.full((1, 5), 0.1))
    assert_allclose(flat[0], np.maximum(feature.bias_, 0.0), atol=1e-7)


@pytest.mark.parametrize("kind", ["relu", "fourier"])
def test_new_columns_count_as_zero_in_earlier_rows(kind: str) -> None:
    feature = make_feature(kind).learn(TABLE[:, :3])
    before = feature.transform(TABLE[:, :3])
    feature.grow(4).grow(5)
    padded = TABLE * [1, 1, 1, 0, 0]
    assert_allclose(feature.transform(padded), before, atol=1e-12)
    at_once = make_feature(kind).learn(TABLE[:, :3]).grow(5)
    assert_array_equal(feature.weights_, at_once.weights_)
    assert not np.allclose(feature.transform(TABLE), before)
    assert (
        "other columns" in make_feature(kind).learn(TABLE[:, ::-1])._merge_conflict(feature)
        or kind == "fourier"
    )


def test_fourier_equals_rbf_sampler() -> None:
    theirs = RBFSampler(gamma=0.3, n_components=7, random_state=5)
    expected = theirs.fit_transform(TABLE)
    assert_array_equal(RandomFourier(7, gamma=0.3, seed=5).learn_transform(TABLE), expected)


def test_scale_is_skipped_after_but_not_before_random_relu() -> None:
    X, y = TABLE * [1, 100, 1, 1, 1], (TABLE[:, 0] > 0).astype(int)
    model = op.Pipeline(Scale(), RandomReLU(20), op.RLSClassifier()).partial_fit(X, y)
    assert [type(feature) for feature in model.features_] == [Scale, RandomReLU]
    assert "skipped" not in model.describe()
    plain = op.Pipeline(RandomReLU(20), Scale(), op.RLSClassifier()).partial_fit(X, y)
    assert [type(feature) for feature in plain.features_] == [RandomReLU]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("relu", {"width": 0}),
        ("relu", {"scale": 0.0}),
        ("relu", {"bias": -1.0}),
        ("relu", {"standardize": "columns"}),
        ("fourier", {"gamma": 0.0}),
        ("fourier", {"seed": 2**32}),
        ("random", {"filters": 0}),
        ("random", {"size": 1}),
        ("random", {"size": 7}),
        ("random", {"pool": 5}),
        ("random", {"size": 7, "padding": 3}),
        ("random", {"padding": 3}),
        ("random", {"padding": -1}),
        ("random", {"overlap": -0.1}),
        ("random", {"power": 0.0}),
        ("random", {"power": 2.0}),
        ("random", {"threshold": -0.1}),
        ("random", {"source": "kmeans"}),
        ("random", {"shape": None}),
        ("random", {"shape": (7, 8)}),
    ],
)
def test_invalid_parameters_are_refused(kind: str, changes: dict[str, Any]) -> None:
    feature = make_feature(kind, **changes)
    before = state(feature)
    with pytest.raises(ParameterError):
        feature.learn(rows_of(kind))
    assert state(feature) == before


@pytest.mark.parametrize("feature", [RandomFourier(12), RandomReLU(12)])
def test_an_empty_first_block_changes_nothing(feature: Any) -> None:
    rows = [{"a": a, "b": b} for a, b in TABLE[:, :2].tolist()]
    one, many = (op.Pipeline(Encode(), Impute(), feature, op.RLSRegressor()) for _ in "ab")
    many.partial_fit([], [])
    assert_array_equal(
        many.test_then_train(rows, TABLE[:, 2]), one.test_then_train(rows, TABLE[:, 2])
    )


def test_overflow_is_refused() -> None:
    with pytest.raises(NumericalError, match="float32"):
        RandomReLU(5, scale=100.0).learn(np.full((2, 3), 3e38, dtype=np.float32))


# -- pictures --------------------------------------------------------------------------------------


def test_padding_does_not_change_filters() -> None:
    plain, padded = make_feature("patches"), make_feature("patches", padding=2)
    assert_array_equal(padded.learn(PICTURES).filters_, plain.learn(PICTURES).filters_)
    assert "padding" in repr(padded)


def test_features_do_not_depend_on_brightness_and_contrast() -> None:
    feature = make_feature("random", contrast=0.0)
    assert_allclose(feature.transform(PICTURES * 0.3 + 0.2), feature.transform(PICTURES), atol=1e-9)
    assert not make_feature("random", threshold=0.0).transform(np.ones((1, 48))).any()


def test_uint8_pixels_are_scaled_to_unit_range() -> None:
    whole = (PICTURES * 255).astype(np.uint8)
    expected = make_feature("random").learn_transform(whole.astype(np.float32) / 255)
    assert_array_equal(make_feature("random").learn_transform(whole), expected)
    flat = make_feature("random")._check_row(whole[1].ravel(), learning=False)
    assert_array_equal(make_feature("random").transform(flat), expected[1:2])


def test_filters_are_patches_of_first_rows() -> None:
    feature = make_feature("patches")
    Z = feature.learn_transform(PICTURES).reshape(30, 4, 2, 9)
    assert feature.drawn_ == 9
    rows = [i for i in range(30) if i not in {0, 3}][:9]
    for j, i in enumerate(rows):
        found = []
        for a in range(4):
            for b in range(6):
                p = PICTURES[i, a : a + 3, b : b + 3].ravel() - 0.0
                p = p - p.mean()
                found.append(feature.filters_[j] @ (p / max(np.linalg.norm(p), 1e-12)))
        assert_allclose(max(found), 1.0, atol=1e-6)
        assert not Z[: i + 1, :, :, j].any()
        assert Z[i + 1 :, :, :, j].any()
    again = make_feature("patches").learn(PICTURES[:12]).learn(PICTURES[:1])
    assert_array_equal(again.filters_, feature.filters_)


def test_learn_one_on_images_equals_partial_fit() -> None:
    y = np.arange(30) % 3
    one, many = (op.Pipeline(make_feature("random"), op.RLSClassifier(ridge=0.1)) for _ in range(2))
    many.partial_fit(PICTURES, y)
    assert one.predict_one(PICTURES[0]) is None  # no class is known
    for x, label in zip(PICTURES, y, strict=True):
        one.learn_one(x, label)
    assert_allclose(one.decision_function(PICTURES), many.decision_function(PICTURES), atol=1e-9)


# -- continual learning ----------------------------------------------------------------------------


FIXED = {
    "relu": RandomReLU(200, standardize="row"),
    "fourier": RandomFourier(200, gamma=0.05),
    "conv": RandomConvolution(10, size=3, pool=3),
    "overlapping": RandomConvolution(
        10, size=3, pool=3, threshold=0.3, padding=1, overlap=0.4, power=0.5
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_order_of_classes_does_not_change_scores(name: str) -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    orders = [range(10), range(9, -1, -1), np.random.default_rng(0).permutation(10)]
    all_scores = []
    for order in orders:
        model = op.Pipeline(FIXED[name], op.RLSClassifier(ridge=0.1, prior=0.0))
        for label in order:
            these = np.flatnonzero(y[:1300] == label)
            model.partial_fit(X[these], y[these])
        all_scores.append(model.decision_function(X[1300:]))
        assert np.mean(model.predict(X[1300:]) == y[1300:]) > 0.9
    for scores in all_scores[1:]:
        assert_allclose(scores, all_scores[0], atol=1e-8)


def test_order_of_tasks_does_not_change_scores() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    all_scores = []
    for order in list(permutations(range(5)))[::60]:
        tasks = op.stream.experiences(X[:1300], y[:1300], X[1300:], y[1300:], order=order)
        exact = op.RLSClassifier(ridge=0.1, prior=0.0)
        model = op.Pipeline(RandomConvolution(20, size=3, pool=3), exact)
        for task in tasks:
            model.partial_fit(task.X, task.y)
        scores = model.decision_function(X[1300:])
        all_scores.append(scores)
        assert np.mean(model.predict(X[1300:]) == y[1300:]) > 0.95
    for scores in all_scores[1:]:
        assert_allclose(scores, all_scores[0], atol=1e-8)


@pytest.mark.parametrize(
    "made",
    [
        RandomReLU(200),
        RandomReLU(400),
        RandomFourier(200, gamma=0.1),
        RandomConvolution(12, size=3, pool=3),
    ],
    ids=repr,
)
def test_accuracy_behind_random_features_does_not_fall_with_more_rows(made: Any) -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] / 16, y[order]
    model = op.Pipeline(made, op.RLSClassifier())
    scores = []
    for i in range(0, 600, 50):
        model.partial_fit(X[i : i + 50], y[i : i + 50])
        scores.append(model.score(X[1000:], y[1000:]))
    assert (np.diff(scores) > -0.03).all()
    assert scores[-1] > 0.9
    assert model.learner_.prior == 10.0
    assert model.steps[-1].prior is None
    assert op.Pipeline(made, op.RLSClassifier(prior=0.0)).fit(X, y).learner_.prior == 0.0
    assert op.Pipeline(Scale(), op.RLSClassifier()).fit(X, y).learner_.prior is None


def test_default_priors_merge() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0] ** 2
    empty, whole = (op.Pipeline(RandomReLU(9), op.RLSRegressor()) for _ in range(2))
    whole.partial_fit(X, y)
    assert_allclose(empty.merge(whole).predict(X), whole.predict(X))
    part = op.Pipeline(RandomReLU(9), op.RLSRegressor()).partial_fit(X[:30], y[:30])
    part.merge(op.Pipeline(RandomReLU(9), op.RLSRegressor()).partial_fit(X[30:], y[30:]))
    assert_allclose(part.predict(X), whole.predict(X), rtol=1e-6, atol=1e-6)
    op.RLSRegressor().fit(X, y).merge(op.RLSRegressor(prior=0.0).fit(X, y))
    with raises(MergeError, argument="prior"):
        whole.merge(op.Pipeline(RandomReLU(9), op.RLSRegressor(prior=1.0)).fit(X, y))


@pytest.mark.parametrize("feature", [RandomReLU(5), RandomFourier(5)])
def test_columns_may_come_after_the_first_row(feature: Any) -> None:
    rows = [{"a": None}, {"a": 1.0}, {"a": 3.0}]
    model = op.Pipeline(Encode(), Impute(), feature, op.RLSRegressor(1e-3))
    model.test_then_train(rows, [1.0, 2.0, 3.0], [0.0, 1.0, 1.0])
    assert model.rows_seen_ == 2
    assert np.isfinite(model.predict(rows)).all()
