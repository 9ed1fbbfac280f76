"""Encode: columns by name, categories in order of appearance, dates as phases."""

import datetime as dt
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from features.feature_cases import CUTS, in_blocks, row_by_row, state, tables
from onepass.errors import (
    ColumnError,
    ManyCategoriesWarning,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.features import Encode
from onepass.features.pipeline import Pipeline
from onepass.learners import RLSRegressor
from onepass.models import pipelines
from onepass.validation.table import Table
from raising import raises

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.ManyCategoriesWarning")

ENCODERS = st.builds(
    Encode,
    categories=st.sampled_from(["onehot", "hash"]),
    max_categories=st.integers(1, 4),
    hash_size=st.integers(1, 5),
    times=st.sampled_from(
        [("hour",), ("elapsed", "weekday"), ("hour", "weekday", "month", "yearday")]
    ),
    extra=st.sampled_from(["learn", "ignore", "refuse"]),
)


@given(table=tables(), cuts=CUTS, encode=ENCODERS)
@settings(max_examples=40, deadline=None)
def test_blocks_equal_single_rows(table: Any, cuts: Any, encode: Any) -> None:
    cuts = [cut for cut in cuts if cut <= len(table)]
    one, other = clone(encode), clone(encode)
    expected = row_by_row(one, table)
    assert_allclose(in_blocks(other, table, cuts), expected, atol=1e-12)
    assert one.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()
    assert state(vars(one)) == state(vars(other))


@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from("abc"), st.floats(-9, 9)), min_size=1, max_size=8
    ),
    cut=st.integers(0, 8),
    encode=ENCODERS,
)
@settings(max_examples=40, deadline=None)
def test_blocks_with_optional_keys_equal_single_rows(rows: Any, cut: Any, encode: Any) -> None:
    encode.set_params(extra="learn" if encode.extra == "refuse" else encode.extra)
    one, other = clone(encode), clone(encode)
    expected = row_by_row(one, rows)
    assert_allclose(in_blocks(other, rows, [min(cut, len(rows))]), expected)
    assert one.layout_ == other.layout_


@given(table=tables(), encode=ENCODERS, data=st.data())
@settings(max_examples=40, deadline=None)
def test_columns_are_selected_by_name(table: Any, encode: Any, data: Any) -> None:
    encode.learn(table)
    names = data.draw(st.permutations(table.names))
    assert_array_equal(encode.transform(table.select(names)), encode.transform(table))


def test_input_types_are_equivalent() -> None:
    when = [dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 7, 4, 18, 30)]  # noqa: DTZ001
    data = {"km": [1.5, 2.0], "ok": [True, False], "by": ["air", None], "when": when}
    rows = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
    expected = Encode().learn_transform(rows)
    for X in (
        pd.DataFrame(data),
        pl.DataFrame(data),
        Table.from_rows(rows),
        tuple(rows),
        pd.DataFrame(data).to_numpy(),
    ):
        assert_allclose(Encode().learn_transform(X), expected)


def test_dates_are_encoded_as_phases() -> None:
    encode = Encode(times=("hour", "weekday", "month", "yearday", "elapsed"))
    monday = dt.datetime(2012, 1, 2, 6)  # noqa: DTZ001
    X = encode.learn_transform([{"t": monday}, {"t": monday + dt.timedelta(days=3.5)}, {"t": None}])
    day = 2 * np.pi * np.array([6 / 24, 18 / 24])
    week = 2 * np.pi * np.array([0, 3]) / 7
    month, year = np.zeros(2), 2 * np.pi * np.array([1, 4]) / 366
    columns = [f(a) for a in (day, week, month, year) for f in (np.sin, np.cos)]
    assert_allclose(X[:2], np.column_stack([*columns, [0.0, 3.5]]), atol=1e-12)
    assert np.isnan(X[2]).all()
    assert encode.get_feature_names_out().tolist() == [
        "t.hour_sin",
        "t.hour_cos",
        "t.weekday_sin",
        "t.weekday_cos",
        "t.month_sin",
        "t.month_cos",
        "t.yearday_sin",
        "t.yearday_cos",
        "t.elapsed",
    ]


@pytest.mark.parametrize("name", ["rls", "sgd"])
def test_models_of_a_few_days_do_not_extrapolate_the_season(name: str) -> None:
    dates = np.datetime64("2024-04-03") + np.arange(50 * 24) * np.timedelta64(1, "h")
    rows = pd.DataFrame({"t": dates})
    y = np.sin(np.arange(1200) * np.pi / 12) + np.random.default_rng(0).normal(size=1200)
    model = pipelines([name], "regression")[name].partial_fit(rows[:192], y[:192])
    assert np.abs(model.predict(rows[192:])).max() < 4


def test_categories_beyond_limit_share_hashed_columns() -> None:
    encode = Encode(max_categories=2)
    rows = [{"n": 1.0, "by": text} for text in ["a", "b", "c", None, "a", *"defgh"]]
    with pytest.warns(ManyCategoriesWarning, match=r"'by' has more than 2 .*columns, now 5"):
        X = encode.learn_transform(rows)
    assert encode.layout_ == ["n", "by=a", "by=b", "by#0", "by#1"]
    assert X[[0, 1, 3, 4], 1:3].tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]
    assert X[[0, 1, 3, 4], 3:].tolist() == [[0, 0]] * 4
    assert np.abs(X[[2, 5, 6, 7, 8, 9], 3:]).sum(axis=1).tolist() == [1] * 6
    assert np.abs(X[:, 3:]).any(axis=0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no second warning
        encode.learn(rows)
    assert_array_equal(encode.transform(rows), X)
    model = Pipeline(Encode(max_categories=2), RLSRegressor()).partial_fit(rows, X[:, 3])
    for row, expected in zip(rows, model.predict(rows), strict=True):
        assert_allclose(model.predict_one(row), expected, atol=1e-12)


def test_hashes_are_reproducible() -> None:
    encode = Encode(categories="hash", hash_size=8)
    X = encode.learn_transform([{"by": "air"}, {"by": "sea"}, {"by": None}, {"by": "air"}])
    assert np.abs(X).sum(axis=1).tolist() == [1, 1, 0, 1]
    assert_array_equal(X[0], X[3])
    assert (int(np.abs(X[0]).argmax()), X[0].sum(), int(np.abs(X[1]).argmax()), X[1].sum()) == (
        0,
        1.0,
        3,
        -1.0,
    )
    other = Encode(categories="hash", hash_size=1024, seed=1)
    first = Encode(categories="hash", hash_size=1024)
    rows = [{"by": "air"}]
    assert (other.learn_transform(rows) != first.learn_transform(rows)).any()


def test_column_is_added_with_first_value() -> None:
    encode = Encode()
    X = encode.learn_transform([{"a": None, "b": 1.0}, {"a": 2.0, "b": None}, {"a": None}])
    assert encode.layout_ == ["b", "a"]
    assert_array_equal(X, [[1, 0], [np.nan, 2], [np.nan, np.nan]])
    assert_array_equal(encode.transform([{"c": 3.0}]), [[np.nan, np.nan]])


def test_extra_columns() -> None:
    rows, more = [{"a": 1.0}], [{"a": 2.0, "b": 3.0}]
    learns = Encode().learn(rows)
    assert learns.transform(more).tolist() == [[2.0]]
    assert learns.learn_transform(more).tolist() == [[2.0, 3.0]]
    assert Encode(extra="ignore").learn(rows).learn_transform(more).tolist() == [[2.0]]
    strict = Encode(extra="refuse").learn(rows)
    for verb in (strict.transform, strict.learn):
        with raises(ColumnError, argument="X", got="also 'b'"):
            verb(more)


def test_frame_without_known_columns_is_refused() -> None:
    encode = Encode().learn(pd.DataFrame({"a": [1.0]}))
    with raises(ColumnError, argument="X", got="only new columns, such as 'z'"):
        encode.transform(pd.DataFrame({"z": [1.0]}))
    assert np.isnan(encode.transform([{"z": 1.0}])).all()  # keys of a dict are optional


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (
            [{"a": 1.0}],
            [{"a": None}, {"a": "x"}],
            r"'a' must contain numbers.*got text: 'x' in row 1",
        ),
        ([{"a": "x"}], [{"a": 2}], r"must contain text.*got numbers: '2.0' in row 0"),
        ([{"a": dt.date(2020, 1, 1)}], [{"a": "x"}], r"must contain dates.*got text"),
        ([{"a": 1.0}], [{"a": dt.date(2020, 1, 1)}], r"must contain numbers.*got dates"),
    ],
)
def test_column_type_must_not_change(first: Any, then: Any, words: Any) -> None:
    encode = Encode().learn(first)
    before = state(vars(encode))
    for verb in (encode.learn, encode.transform):
        with pytest.raises(TypeMismatchError, match=words):
            verb(then)
    assert state(vars(encode)) == before


def test_invalid_tables_are_refused() -> None:
    encode = Encode()
    with raises(NotFiniteError, argument="X", row=1, column="a"):
        encode.learn([{"a": 1.0}, {"a": np.inf}])
    with raises(TypeMismatchError, argument="X", got="one dict"):
        encode.learn({"a": 1.0})
    with raises(TypeMismatchError, remedy="Convert it, such as"):
        encode.learn([{"a": 1.0}, {"a": "x"}])
    with pytest.raises(ShapeError):
        encode.learn(np.ones(3))
    encode.learn(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="3"):
        encode.learn(np.ones((2, 4)))
    with raises(ShapeError, argument="X", got="2"):
        encode.learn(np.full((2, 2), "x"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"categories": "ordinal"},
        {"max_categories": 0},
        {"max_categories": 1.5},
        {"hash_size": True},
        {"times": "hour"},
        {"times": ()},
        {"times": ("minute",)},
        {"extra": "no"},
        {"seed": 0.5},
    ],
)
def test_invalid_parameters_are_refused(wrong: Any) -> None:
    with raises(ParameterError, argument=next(iter(wrong))):
        Encode(**wrong).learn([{"a": 1.0}])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numeric_array_is_unchanged(dtype: Any) -> None:
    X = np.array([[1.0, np.nan], [2.0, 3.0]], dtype=dtype)
    encode = Encode()
    transformed = encode.learn_transform(X)
    assert_array_equal(transformed, X)
    assert transformed is not X
    assert transformed.dtype == dtype
    assert encode.get_feature_names_out().tolist() == ["x0", "x1"]
    assert_array_equal(encode.transform([{"x1": 5.0}]), [[np.nan, 5.0]])
    assert encode.grow(3).learn_transform(np.ones((1, 3))).tolist() == [[1, 1, 1]]


def test_empty_block_leaves_encoder_unchanged() -> None:
    encode = Encode().learn([{"a": "x"}])
    before = state(vars(encode))
    assert encode.learn_transform([]).shape == (0, 1)
    assert encode.learn_transform(pd.DataFrame({"a": []})).shape == (0, 1)
    assert state(vars(encode)) == before
    assert Encode().transform([{"a": 1.0}]).shape == (1, 0)


def test_feature_names_and_nbytes() -> None:
    encode = Encode().learn([{"a": "x", "b": 1}])
    assert encode.get_feature_names_out(["a", "b"]).tolist() == ["a=x", "b"]
    with pytest.raises(ColumnError):
        encode.get_feature_names_out(["b", "a"])
    small = encode.nbytes
    assert encode.learn([{"a": "y" * 100}]).nbytes > small + 100


def test_lists_of_mixed_values() -> None:
    encode = Encode().learn([[1.0, "a"], [2.0, "b"]])
    read = encode._check_row([3.0, "b"], learning=False)
    assert encode._transform_rows(read).tolist() == [[3.0, 0.0, 1.0]]
    for ragged in ([[1.0, 2.0], [3.0]], [[1.0, "x"], ["y"]]):
        with pytest.raises(TypeMismatchError):
            Encode().learn(ragged)
    with raises(ParameterError, remedy="Remove the call: columns"):
        encode.grow(5)
    assert encode._transform_rows(encode._check_row({"x0": None}, learning=False)).shape == (1, 3)


def test_empty_columns() -> None:
    encode = Encode().learn([{"a": 1.0, "none": None}])
    read = encode._check_row({"a": 2.0, "none": None}, learning=True)
    assert encode._learn_rows(read, None)[0].tolist() == [[2.0]]
    assert encode.learn_transform([{"none": "now"}])[0, 1] == 1.0


def test_series_is_read_by_names() -> None:
    pipe = Pipeline(Encode(), RLSRegressor()).partial_fit([{"a": 1.0, "b": 9.0}], [1.0])
    row = pd.DataFrame({"b": [9.0], "a": [1.0]}).iloc[0]
    assert pipe.predict_one(row) == pipe.predict_one({"a": 1.0, "b": 9.0})
    assert pipe.learn_one(row, 1.0).learner_.n_features_in_ == 2


def test_series_without_names_is_read_by_position() -> None:
    pipe = Pipeline(Encode(), RLSRegressor()).partial_fit([[1.0, 9.0]], [1.0])
    assert pipe.predict_one(pd.Series([1.0, 9.0])) == pipe.predict_one(np.array([1.0, 9.0]))


@pytest.mark.parametrize("begun", [False, True])
def test_integers_beyond_float64_are_refused(begun: bool) -> None:  # noqa: FBT001
    pipe = Pipeline(Encode(), RLSRegressor())
    if begun:
        pipe.learn_one({"a": 1.0}, 1.0)
    before = state(vars(pipe))
    for _transform_rows in (
        lambda: pipe.learn_one({"a": 10**400}, 1.0),
        lambda: pipe.predict_one({"a": 10**400}),
    ):
        with pytest.raises(NumericalError, match="'a' must contain numbers within float64"):
            _transform_rows()
    assert state(vars(pipe)) == before


def test_input_names() -> None:
    pipe = Pipeline(Encode(), RLSRegressor()).learn_one({"a": 1.0, "by": "sea"}, 1.0)
    assert pipe.feature_names_in_.tolist() == ["a", "by"]
    pipe.learn_one({"new": 1.0, "by": "sea", "a": 2.0}, 1.0)
    assert pipe.feature_names_in_.tolist() == ["a", "by", "new"]


@pytest.mark.parametrize("kind", [scipy.sparse.dok_matrix, scipy.sparse.csr_array])
def test_sparse_matrices_are_refused(kind: Any) -> None:
    with raises(TypeMismatchError, argument="X", remedy="Sparse input is not supported"):
        Encode().learn(kind(np.eye(3)))


def test_each_category_is_encoded_in_features_of_its_column(rng: np.random.Generator) -> None:
    values = np.array(["0", "1", "7", "?", "#0", "=", "a", "b=0", "b#1", "nan", " ", "é", "x" * 40])
    names, n = ["a", "b", "size"], 300
    table = {
        name: values[rng.choice(len(values), n, p=rng.dirichlet(np.ones(len(values))))]
        for name in names
    }
    rows = [{name: str(table[name][i]) for name in names} for i in range(n)]
    limit = int(rng.integers(1, len(values) + 1))
    encode, cuts = Encode(max_categories=limit, hash_size=4), np.sort(rng.integers(1, n, 5))
    parts = [encode.learn_transform(rows[a:b]) for a, b in pairwise([0, *cuts, n])]
    outputs, width = encode.get_feature_names_out(), encode.n_features_out_
    Z = np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])
    for name in names:
        first = list(dict.fromkeys(table[name].tolist()))[:limit]
        own = np.array([str(out).startswith((f"{name}=", f"{name}#")) for out in outputs])
        assert (np.abs(Z[:, own]).sum(axis=1) == 1.0).all()
        for value in first:
            at = outputs.tolist().index(f"{name}={value}")
            assert_array_equal(Z[:, at], table[name] == value)
        hashed = np.array([str(out).startswith(f"{name}#") for out in outputs])
        assert_array_equal(np.abs(Z[:, hashed]).sum(axis=1), ~np.isin(table[name], first))
