"""Features fixed before data: the plain formula, the same however the stream is cut, and saved."""

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
from onepass.features import RandomConvolution, RandomFourier, RandomReLU, Scale
from onepass.features.transformer import Transformer

rng = np.random.default_rng(0)
TABLE = rng.normal(size=(30, 5))
PICTURES = np.where(rng.random((30, 6, 8)) < 0.3, 0.0, rng.random((30, 6, 8)))
PICTURES[[0, 3]] = 0.5  # flat: no filter comes from them


def made(kind: str, **changes: Any) -> Transformer:
    if kind == "relu":
        return RandomReLU(**({"width": 7} | changes))
    if kind == "fourier":
        return RandomFourier(**({"width": 7} | changes))
    few = {"filters": 9, "size": 3, "pool": 2, "shape": (6, 8), "source": kind}
    return RandomConvolution(**(few | changes))


def rows_of(kind: str) -> np.ndarray:
    return TABLE if kind in {"relu", "fourier"} else PICTURES.reshape(30, -1)


each = pytest.mark.parametrize("kind", ["relu", "fourier", "random", "patches"])


@each
@settings(max_examples=15, deadline=None, derandomize=True)
@given(cuts=CUTS)
def test_cutting_a_stream_changes_nothing(kind: str, cuts: list[int]) -> None:
    X = rows_of(kind)
    whole = made(kind)
    expected = whole.learn_transform(X)
    part = made(kind)
    assert_allclose(in_blocks(part, X, cuts), expected, atol=1e-12)
    assert state(part) == state(whole)
    assert whole.n_features_out_ == expected.shape[1] == len(whole.get_feature_names_out())


@each
def test_transform_equals_learn_transform(kind: str) -> None:
    X, feature = rows_of(kind), made(kind)
    for i in range(len(X)):
        asked = feature.transform(X[i : i + 1])
        assert_allclose(feature.learn_transform(X[i : i + 1]), asked, atol=1e-12)
    assert_allclose(row_by_row(made(kind), X), made(kind).learn_transform(X), atol=1e-12)


@each
def test_it_is_saved_whole_and_goes_on(kind: str, tmp_path: Any) -> None:
    X = rows_of(kind)
    feature = made(kind).learn(X[:5])
    op.save(feature, tmp_path / "f.onepass")
    again = op.load(tmp_path / "f.onepass")
    assert state(again) == state(feature)
    assert_array_equal(again.learn_transform(X[5:]), feature.learn_transform(X[5:]))


@each
def test_a_file_that_does_not_fit_together_is_refused(kind: str, tmp_path: Any) -> None:
    feature = made(kind).learn(rows_of(kind))
    name = feature._draws[0]
    setattr(feature, name, getattr(feature, name)[:, :-1])
    op.save(feature, tmp_path / "f.onepass")
    with pytest.raises(CheckpointError, match="has inconsistent attributes for Random"):
        op.load(tmp_path / "f.onepass")
    delattr(feature, name)
    op.save(feature, tmp_path / "f.onepass")
    with pytest.raises(CheckpointError, match="has inconsistent attributes for Random"):
        op.load(tmp_path / "f.onepass")


@each
def test_float32_stays_float32(kind: str) -> None:
    X = rows_of(kind)
    Z = made(kind).learn_transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    assert_allclose(Z, made(kind).learn_transform(X), atol=1e-4)


@each
def test_another_seed_draws_other_numbers(kind: str) -> None:
    X = rows_of(kind)
    one, two = (made(kind, seed=seed).learn_transform(X) for seed in (1, 2))
    assert not np.allclose(one, two)


@pytest.mark.parametrize("kind", ["relu", "fourier", "random"])
def test_pipelines_of_parts_of_a_stream_merge_exactly(kind: str) -> None:
    X = rows_of(kind)
    y = X[:, :3].argmax(axis=1)
    one, two, whole = (op.Pipeline(made(kind), op.RLSClassifier(ridge=0.1)) for _ in range(3))
    one.partial_fit(X[:11], y[:11]).merge(two.partial_fit(X[11:], y[11:]))
    whole.partial_fit(X, y)
    assert_allclose(one.decision_function(X), whole.decision_function(X), atol=1e-9)
    fresh = op.Pipeline(made(kind), op.RLSClassifier(ridge=0.1)).merge(whole)
    assert_allclose(fresh.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_patches_of_other_rows_do_not_merge() -> None:
    X, y = rows_of("patches"), np.arange(30) % 2
    one, two = (op.Pipeline(made("patches"), op.RLSClassifier()) for _ in range(2))
    one.partial_fit(X[:12], y[:12])
    two.partial_fit(X[12:], y[12:])
    before = state(one)
    with pytest.raises(MergeError, match="patches of its own first rows"):
        one.merge(two)
    assert state(one) == before


# -- units ---------------------------------------------------------------------------------------


def test_relu_is_its_formula() -> None:
    feature = RandomReLU(4000, scale=2.0, bias=0.5, standardize="row")
    Z = feature.learn_transform(TABLE)
    rows = (TABLE - TABLE.mean(axis=1)[:, None]) / TABLE.std(axis=1)[:, None]
    assert_allclose(Z, np.maximum(rows @ feature.weights_ + feature.bias_, 0.0), atol=1e-9)
    assert_allclose(feature.weights_.std(), 2.0 / np.sqrt(5), rtol=0.02)
    assert_allclose(feature.bias_.std(), 0.5, rtol=0.04)
    flat = feature.transform(np.full((1, 5), 0.1))
    assert_allclose(flat[0], np.maximum(feature.bias_, 0.0), atol=1e-7)


@pytest.mark.parametrize("kind", ["relu", "fourier"])
def test_columns_that_come_later_were_zero(kind: str) -> None:
    feature = made(kind).learn(TABLE[:, :3])
    before = feature.transform(TABLE[:, :3])
    feature.grow(4).grow(5)
    padded = TABLE * [1, 1, 1, 0, 0]
    assert_allclose(feature.transform(padded), before, atol=1e-12)
    at_once = made(kind).learn(TABLE[:, :3]).grow(5)
    assert_array_equal(feature.weights_, at_once.weights_)
    assert not np.allclose(feature.transform(TABLE), before)
    assert (
        "other columns" in made(kind).learn(TABLE[:, ::-1])._merge_conflict(feature)
        or kind == "fourier"
    )


def test_fourier_is_scikit_learns() -> None:
    theirs = RBFSampler(gamma=0.3, n_components=7, random_state=5)
    expected = theirs.fit_transform(TABLE)
    assert_array_equal(RandomFourier(7, gamma=0.3, seed=5).learn_transform(TABLE), expected)


def test_columns_of_another_unit_are_scaled_in_front_of_units() -> None:
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
def test_out_of_range(kind: str, changes: dict[str, Any]) -> None:
    feature = made(kind, **changes)
    before = state(feature)
    with pytest.raises(ParameterError):
        feature.learn(rows_of(kind))
    assert state(feature) == before


def test_overflow_is_refused() -> None:
    with pytest.raises(NumericalError, match="float32"):
        RandomReLU(5, scale=100.0).learn(np.full((2, 3), 3e38, dtype=np.float32))


# -- pictures --------------------------------------------------------------------------------------


def test_padding_takes_no_filters_from_outside_of_the_picture() -> None:
    plain, padded = made("patches"), made("patches", padding=2)
    assert_array_equal(padded.learn(PICTURES).filters_, plain.learn(PICTURES).filters_)
    assert "padding" in repr(padded)


def test_what_is_brighter_or_of_more_contrast_looks_the_same() -> None:
    feature = made("random", contrast=0.0)
    assert_allclose(feature.transform(PICTURES * 0.3 + 0.2), feature.transform(PICTURES), atol=1e-9)
    assert not made("random", threshold=0.0).transform(np.ones((1, 48))).any()


def test_bytes_are_brightness() -> None:
    whole = (PICTURES * 255).astype(np.uint8)
    expected = made("random").learn_transform(whole.astype(np.float32) / 255)
    assert_array_equal(made("random").learn_transform(whole), expected)
    flat = made("random")._check_row(whole[1].ravel(), "here", learning=False)
    assert_array_equal(made("random").transform(flat), expected[1:2])


def test_filters_are_patches_of_the_first_rows() -> None:
    feature = made("patches")
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
    again = made("patches").learn(PICTURES[:12]).learn(PICTURES[:1])
    assert_array_equal(again.filters_, feature.filters_)


def test_pictures_go_through_a_pipeline_one_by_one() -> None:
    y = np.arange(30) % 3
    one, many = (op.Pipeline(made("random"), op.RLSClassifier(ridge=0.1)) for _ in range(2))
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
def test_the_order_of_classes_changes_nothing(name: str) -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    orders = [range(10), range(9, -1, -1), np.random.default_rng(0).permutation(10)]
    all_scores = []
    for order in orders:
        model = op.Pipeline(FIXED[name], op.RLSClassifier(ridge=0.1))
        for label in order:
            these = np.flatnonzero(y[:1300] == label)
            model.partial_fit(X[these], y[these])
        all_scores.append(model.decision_function(X[1300:]))
        assert np.mean(model.predict(X[1300:]) == y[1300:]) > 0.9
    for scores in all_scores[1:]:
        assert_allclose(scores, all_scores[0], atol=1e-8)


def test_the_order_of_tasks_changes_nothing() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    all_scores = []
    for order in list(permutations(range(5)))[::60]:
        tasks = op.stream.experiences(X[:1300], y[:1300], X[1300:], y[1300:], order=order)
        model = op.Pipeline(RandomConvolution(20, size=3, pool=3), op.RLSClassifier(ridge=0.1))
        for task in tasks:
            model.partial_fit(task.X, task.y)
        scores = model.decision_function(X[1300:])
        all_scores.append(scores)
        assert np.mean(model.predict(X[1300:]) == y[1300:]) > 0.95
    for scores in all_scores[1:]:
        assert_allclose(scores, all_scores[0], atol=1e-8)
