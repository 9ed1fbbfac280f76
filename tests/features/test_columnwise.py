"""Impute and Scale: blocks equal single rows; results equal scikit-learn's."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from features.feature_cases import CUTS, in_blocks, matrices, row_by_row, state
from onepass.errors import (
    ColumnError,
    MergeError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
)
from onepass.features import Impute, RandomReLU, Scale
from onepass.features.pipeline import Pipeline
from onepass.learners import RLSRegressor, SGDRegressor
from onepass.serialization.models import load, save
from raising import raises

IMPUTERS = st.builds(
    Impute, strategy=st.sampled_from(["mean", "last", "zero"]), indicator=st.booleans()
)
SCALES = st.builds(Scale, with_mean=st.booleans())
FIXED = st.builds(Scale, with_mean=st.booleans(), freeze_after=st.sampled_from([1, 2, 5]))
# std, the divisor, has lost sqrt(eps) of the values' own size where a mean is not subtracted
NEAR = {"rtol": 1e-9, "atol": 1e-9}


@given(X=matrices(gaps=True), cuts=CUTS, impute=IMPUTERS)
@settings(max_examples=40, deadline=None)
def test_impute_blocks_equal_single_rows(X: Any, cuts: Any, impute: Any) -> None:
    one, other = clone(impute), clone(impute)
    expected = row_by_row(one, X)
    assert_allclose(
        in_blocks(other, X, [c for c in cuts if c <= len(X)]), expected, rtol=1e-12, atol=1e-6
    )
    assert one.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()
    assert np.isfinite(expected).all()


@given(X=matrices(gaps=False), cuts=CUTS, scale=st.one_of(SCALES, FIXED))
@settings(max_examples=40, deadline=None)
def test_scale_blocks_equal_single_rows(X: Any, cuts: Any, scale: Any) -> None:
    one, other = clone(scale), clone(scale)
    expected = row_by_row(one, X)
    assert_allclose(in_blocks(other, X, [c for c in cuts if c <= len(X)]), expected, **NEAR)


@given(X=matrices(gaps=False), scale=SCALES)
@settings(max_examples=40, deadline=None)
def test_scale_includes_row_in_its_statistics(X: Any, scale: Any) -> None:
    for k, row in enumerate(X, 1):
        before = state(vars(scale))
        transformed = scale.transform(row[None])
        assert state(vars(scale)) == before
        assert_allclose(transformed, scale.learn_transform(row[None]), **NEAR)
        bound = k - 1 if scale.with_mean else k
        assert (np.abs(transformed) <= np.sqrt(bound) * (1 + 1e-9)).all()


@given(X=matrices(gaps=True), impute=IMPUTERS)
@settings(max_examples=40, deadline=None)
def test_impute_transform_equals_learn_transform(X: Any, impute: Any) -> None:
    for row in X:
        before = state(vars(impute))
        transformed = impute.transform(row[None])[0]
        assert state(vars(impute)) == before
        fitted = hasattr(impute, "counts_")
        places = impute.places_[impute.counts_ == 0] if fitted else []
        learned = impute.learn_transform(row[None])[0]
        learned[places] = 0.0  # a column without a value so far is ignored, like a new one
        assert_allclose(transformed, learned[: len(transformed)], rtol=1e-12)


@given(X=matrices(gaps=False), new=matrices(gaps=False), feature=st.one_of(IMPUTERS, SCALES, FIXED))
@settings(max_examples=40, deadline=None)
def test_new_column_counts_as_zero_in_earlier_rows(X: Any, new: Any, feature: Any) -> None:
    d = X.shape[1]
    zeros = np.zeros((len(X), new.shape[1]))
    late, early = clone(feature), clone(feature)
    late.learn(X).grow(d + new.shape[1])
    early.learn(np.hstack([X, zeros]))
    rows = np.hstack([np.resize(X, (len(new), d)), new])
    assert_allclose(late.transform(rows), early.transform(rows), **NEAR)
    assert_allclose(late.learn_transform(rows), early.learn_transform(rows), **NEAR)


def test_scale_equals_standard_scaler_including_the_row(rng: Any) -> None:
    X = rng.normal([1e8, -3, 0], [1, 100, 1e-6], size=(500, 3))
    x = rng.normal([1e8, -3, 0], [1, 100, 1e-6])
    expected = StandardScaler().fit(np.vstack([X, x])).transform(x[None])
    scale = Scale().learn(X)
    assert_allclose(scale.transform(x[None]), expected, rtol=1e-6)
    assert_allclose(scale.mean_, X.mean(axis=0), rtol=1e-12, atol=1e-9)
    assert_allclose(scale.std_, X.std(axis=0), rtol=1e-7)


@pytest.mark.parametrize(("ours", "theirs"), [("mean", "mean"), ("zero", "constant")])
def test_impute_equals_simple_imputer_of_past_rows(rng: Any, ours: Any, theirs: Any) -> None:
    X = np.where(rng.random((300, 4)) < 0.3, np.nan, rng.normal(5, 2, size=(300, 4)))
    imputer = SimpleImputer(strategy=theirs, add_indicator=True).fit(X)
    impute = Impute(ours, indicator=True).learn(X)
    row = np.array([[np.nan, 1.0, np.nan, 2.0]])
    expected = imputer.transform(row)[0]
    transformed = dict(zip(impute.get_feature_names_out(), impute.transform(row)[0], strict=True))
    assert_allclose([transformed[f"x{j}"] for j in range(4)], expected[:4], rtol=1e-12)
    assert [transformed[f"x{j} (missing)"] for j in range(4)] == expected[4:].tolist()


def test_scale_is_accurate_far_from_zero() -> None:
    small = np.tile([-1.0, 1.0], 5000)[:, None]
    transformed = Scale().learn_transform(small + 1e12)
    assert_allclose(transformed, Scale().learn_transform(small), rtol=1e-12)


def test_constant_columns_become_zero_and_zeros_remain() -> None:
    X = np.array([[3.7, 0.0], [3.7, 2.0], [3.7, 0.0]])
    assert_array_equal(Scale().learn_transform(X)[:, 0], 0.0)
    assert_array_equal(Scale(with_mean=False).learn_transform(X)[[0, 2], 1], 0.0)


def test_last_value_and_indicators() -> None:
    impute = Impute("last", indicator=True)
    X = np.array([[1, np.nan], [np.nan, 5], [2, np.nan], [np.nan, np.nan]])
    transformed = impute.learn_transform(X)
    assert transformed.tolist() == [[1, 0, 1, 0], [1, 5, 0, 1], [2, 5, 1, 0], [2, 5, 1, 1]]
    names = ["x0", "x1", "x1 (missing)", "x0 (missing)"]
    assert impute.get_feature_names_out().tolist() == names


def test_frame_columns_are_selected_by_name() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [4, 5, 6]})
    impute = Impute().learn(frame)
    assert impute.transform(frame[["b", "a"]]).tolist() == [[1, 4], [2, 5], [3, 6]]
    with pytest.raises(ColumnError):
        impute.transform(frame[["a"]])
    unnamed = pd.DataFrame([[1.0, np.nan]])
    assert Impute().learn(unnamed).get_feature_names_out().tolist() == ["x0", "x1"]
    scale = Scale().learn(frame[["b"]])
    assert scale.grow(2).get_feature_names_out().tolist() == ["b", "x1"]


@pytest.mark.parametrize("feature", [Impute(), Scale()])
def test_errors_leave_state_unchanged(feature: Any) -> None:
    feature = clone(feature).learn(np.array([[1.0, 2.0], [3.0, 5.0]]))
    before = state(vars(feature))
    for wrong, error in [
        (np.array([[1.0, np.inf]]), NotFiniteError),
        (np.ones((2, 3)), ShapeError),
        (np.ones(2), ShapeError),
        ([["x", "y"]], TypeError),
        (np.array([[1.7e308, 1.0], [-1.7e308, 1.0], [1.7e308, 1.0]]), NumericalError),
    ]:
        if error is NumericalError and isinstance(feature, Impute):
            wrong = np.array([[1.7e308, 1.0], [1.7e308, 1.0]])  # noqa: PLW2901
        with pytest.raises(error):
            feature.learn_transform(wrong)
        assert state(vars(feature)) == before
    with raises(ParameterError, argument="d", got="1"):
        feature.grow(1)


def test_nan_is_refused_by_scale() -> None:
    with raises(NotFiniteError, argument="X", remedy="Impute"):
        Scale().learn([[np.nan]])
    with raises(ParameterError, argument="strategy", got="'median'"):
        Impute("median").learn([[1.0]])


@pytest.mark.parametrize("feature", [Impute(indicator=True), Scale(), Scale(with_mean=False)])
def test_unfitted_transform(feature: Any) -> None:
    feature = clone(feature)
    assert feature.transform([[2.0, 3.0]]).shape == (1, 2)
    assert not hasattr(feature, "n_features_in_")
    assert feature.learn_transform(np.empty((0, 2))).shape == (0, 2)
    assert feature.rows_seen_ == 0
    assert_allclose(feature.transform([[2.0, 3.0]]), feature.learn_transform([[2.0, 3.0]]))


@pytest.mark.parametrize("feature", [Impute(indicator=True), Scale()])
def test_float32_stays_float32_and_input_is_unchanged(feature: Any) -> None:
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    original = X.copy()
    transformed = clone(feature).learn_transform(X)
    assert transformed.dtype == np.float32
    transformed[:] = 7
    assert_array_equal(X, original)
    assert_allclose(
        clone(feature).learn_transform(X),
        clone(feature).learn_transform(original.astype(float)),
        rtol=1e-6,
    )


@pytest.fixture
def rng() -> Any:
    return np.random.default_rng(0)


def test_rounding_is_not_variance() -> None:
    thursday, friday = np.cos(2 * np.pi * np.array([3, 4]) / 7)  # equal, but for the last digit
    assert thursday != friday
    column = np.array([[thursday], [friday], [thursday], [friday], [1.0]])
    scaled = Scale().learn_transform(column).ravel()
    assert_array_equal(scaled[:4], 0.0)
    assert scaled[4] == pytest.approx(2.0)
    assert_array_equal(Scale().learn(column[:3]).transform(column[3:4]), [[0.0]])


def test_small_spread_far_from_zero_is_scaled() -> None:
    scaled = Scale().learn_transform(1e8 + np.array([[-1e-6], [1e-6]])).ravel()
    assert scaled[1] == pytest.approx(1.0)


def test_fixed_statistics_are_those_of_the_first_rows(rng: Any, tmp_path: Path) -> None:
    X = rng.normal([5.0, -3.0, 0.0], [1.0, 100.0, 1e-6], size=(60, 3))
    scale = Scale(freeze_after=40)
    learned = scale.learn_transform(X)
    assert_allclose(learned[:40], Scale().learn_transform(X[:40]))
    expected = StandardScaler().fit(X[:40]).transform(X[40:] + 1.0)
    assert_allclose(learned[40:], StandardScaler().fit(X[:40]).transform(X[40:]))
    scale.set_params(freeze_after=1000)  # applies from the next `fit`
    assert_allclose(scale.transform(X[40:] + 1.0), expected)
    assert_allclose(scale.std_, X[:40].std(axis=0))
    save(scale, tmp_path / "m.onepass")
    assert_array_equal(load(tmp_path / "m.onepass").transform(X), scale.transform(X))
    assert_allclose(scale.grow(4).transform([[5.0, -3.0, 0.0, 7.0]])[0, 3], 7.0)
    with raises(ParameterError, argument="freeze_after"):
        Scale(freeze_after=0).learn(X)
    tiny = Scale(freeze_after=2).learn([[0.0], [1e-150]])
    with raises(NumericalError, where="Scale", remedy="Divide the columns by"):
        tiny.transform([[1e300]])


def test_parts_with_the_same_fixed_statistics_are_merged(rng: Any) -> None:
    X = rng.normal(3.0, 2.0, size=(60, 2))
    start = Pipeline(Scale(freeze_after=20), SGDRegressor()).partial_fit(X[:20], X[:20, 0])
    one, other = copy.deepcopy(start.features_[0]), copy.deepcopy(start.features_[0])
    one.learn(X[20:40])
    merged = one.merge(other.learn(X[40:]))
    assert_array_equal(merged.transform(X), start.features_[0].transform(X))
    linear = Pipeline(Scale(freeze_after=20), RandomReLU(5), RLSRegressor(ridge=1.0))
    a, b = (copy.deepcopy(linear.partial_fit(X[:20], X[:20, 0])) for _ in range(2))
    a.partial_fit(X[20:40], X[20:40, 0]).merge(b.partial_fit(X[40:], X[40:, 0]))
    assert a.rows_seen_ == 100
    for rows in (X[:30], X[:5]):
        with raises(MergeError, remedy="Create both from one"):
            Scale(freeze_after=20).learn(X[30:]).merge(Scale(freeze_after=20).learn(rows))
    few = Scale(freeze_after=20).learn(X[:4]).merge(Scale(freeze_after=20).learn(X[4:9]))
    assert_allclose(few.std_, X[:9].std(axis=0))
