"""Invalid arguments raise errors that name them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import onepass as op
from onepass import validation
from onepass.errors import (
    ColumnError,
    LabelError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from raising import raises

X = np.random.default_rng(0).normal(size=(6, 3))
Y = X @ [1.0, 2.0, 3.0]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [X.astype(str), X.astype(str).astype(object), [["1", 2, 3]] * 6])
def test_numeric_text_is_refused(text: Any) -> None:
    with raises(TypeMismatchError, argument="X", remedy="Encode"):
        validation.matrix(text)
    with pytest.raises(TypeMismatchError):
        validation.targets(np.array(["1"] * 6), 6)


@pytest.mark.parametrize("value", [np.timedelta64(3, "s"), np.datetime64("2020-01-01"), "1"])
def test_dates_durations_and_text_among_numbers_are_refused(value: Any) -> None:
    rows = [[value, 1.0], [2.0, 3.0]]
    for X in (rows, np.array(rows, dtype=object)):
        for verb in (op.RLSRegressor().partial_fit, op.features.Impute().fit):
            with raises(TypeMismatchError, argument="X", remedy="Encode text and dates"):
                verb(X, [1.0, 2.0])
    with raises(TypeMismatchError, argument="x"):
        op.RLSRegressor().learn_one(rows[0], 1.0)
    with raises(TypeMismatchError, argument="y"):
        op.RLSRegressor().partial_fit([[1.0], [2.0]], [value, 1.0])


def test_single_dict_as_block_is_refused() -> None:
    with raises(TypeMismatchError, argument="X", remedy="Pass a list of dicts"):
        op.RLSRegressor().partial_fit({"a": 1.0}, [1.0])


def test_masked_values_are_missing() -> None:
    masked = np.ma.masked_greater(X, 1.0)
    with pytest.raises(NotFiniteError):
        validation.matrix(masked)
    with pytest.raises(NotFiniteError):
        validation.row_vector(np.ma.array(X[0], mask=[0, 1, 0]), d=None, names=None)
    assert validation.matrix(np.ma.array(X))[0].tolist() == X.tolist()
    with raises(LabelError, argument="y", got="a masked"):
        validation.labels(np.ma.array([1, 2], mask=[0, 1]), 2)


def test_integers_beyond_float64_are_refused() -> None:
    with raises(TypeMismatchError, argument="X", got="non-numeric values: int too large"):
        validation.matrix([[10**400]])


def unaligned(array: Any) -> Any:
    """An unaligned copy, as in packed records."""
    moved = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, array.size, offset=1)
    moved = moved.reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


@pytest.mark.parametrize("make", [op.RLSRegressor, op.SGDRegressor, op.Perceptron])
def test_unaligned_arrays_are_accepted(make: Any) -> None:
    y = Y if make is not op.Perceptron else np.sign(Y)
    plain, odd = make(), make()
    for _ in range(2):
        plain.partial_fit(X, y, sample_weight=np.ones(6)).learn_one(X[0], y[0])
        weights = unaligned(np.ones(6))
        odd.partial_fit(unaligned(X), unaligned(y), sample_weight=weights)
        odd.learn_one(unaligned(X[0]), y[0])
    np.testing.assert_array_equal(odd.coef_, plain.coef_)


def test_empty_targets_and_rows_are_refused() -> None:
    with pytest.raises(ShapeError):
        validation.targets(np.zeros((6, 0)), 6)
    for model in (op.RLSRegressor(), op.SGDRegressor()):
        with pytest.raises(ShapeError):
            model.learn_one(np.zeros(0), 1.0)


@pytest.mark.parametrize("weight", [np.ones(2), [1.0], None, "1"])
def test_invalid_weights_of_one_row_are_refused(weight: Any) -> None:
    with raises(OnepassError, argument="sample_weight"):
        op.RLSRegressor().learn_one(X[0], 1.0, sample_weight=weight)


@pytest.mark.parametrize("d", [0, -1, 4.5, "9", True])
def test_grow_requires_a_positive_integer(d: Any) -> None:
    with raises(ParameterError, where="RLSRegressor.grow", argument="d"):
        op.RLSRegressor().fit(X, Y).grow(d)


# -- names -----------------------------------------------------------------------------------------


def test_dicts_after_unnamed_rows_are_refused() -> None:
    model = op.RLSRegressor().fit(X, Y)
    for request in (model.predict_one, lambda row: model.learn_one(row, 1.0)):
        with raises(ColumnError, argument="x"):
            request({"b": 1.0, "a": 2.0, "c": 3.0})


def test_pandas_series_is_read_by_name() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = op.RLSRegressor().fit(frame, Y)
    row = frame.iloc[0]
    assert model.predict_one(row[["c", "a", "b"]]) == model.predict_one(row)


@pytest.mark.parametrize("names", [["a", "a", "b"], [1, "1", "b"]])
def test_duplicate_names_are_refused(names: list[Any]) -> None:
    with raises(ColumnError, remedy="Rename one of the columns"):
        op.RLSRegressor().fit(pd.DataFrame(X, columns=names), Y)
    rows = [dict(zip(names, x, strict=True)) for x in X.tolist()]
    if len(rows[0]) == 3:
        with raises(ColumnError, remedy="Rename one of the columns"):
            op.RLSRegressor().learn_one(rows[0], 1.0)


def test_integer_names_in_dicts_are_accepted() -> None:
    model = op.RLSRegressor()
    for x, y in zip(X.tolist(), Y, strict=True):
        model.learn_one({1: x[0], 2: x[1], 3: x[2]}, y)
    assert model.feature_names_in_.tolist() == ["1", "2", "3"]
    turned = {3: X[0, 2], 1: X[0, 0], 2: X[0, 1]}
    assert model.predict_one(turned) == pytest.approx(model.predict_one(X[0]), rel=1e-14)


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mixed",
    [["a", None], ["a", float("nan")], ["a", 1], [1, "a"], [True, "x"], [1, None], [b"a", b"b"]],
)
def test_labels_of_mixed_kinds_are_refused(mixed: list[Any]) -> None:
    with raises(LabelError, remedy="Drop rows without a"):
        validation.labels(mixed, 2)


@pytest.mark.parametrize("large", [[2**63, 1], [2**63, -1], [2**64, 1]])
def test_large_integer_labels_are_not_rounded(large: list[int]) -> None:
    with raises(LabelError, argument="y", remedy="Convert such labels to"):
        validation.labels(large, 2)
    model = op.RLSClassifier()
    model.learn_one(X[0], 1)
    with raises(LabelError, argument="y", remedy="Pass such labels as"):
        model.learn_one(X[1], 2**63 + 1)


@pytest.mark.parametrize(
    ("given", "kind"),
    [([True, False], "b"), ([0, 1], "i"), ([0.0, 1.0], "f"), (["a", "b"], "U")],
)
def test_labels_keep_their_dtype(given: list[Any], kind: str) -> None:
    y = given * 3
    for model in (
        op.RLSClassifier().partial_fit(X, y),
        op.RLSClassifier().partial_fit(X, y, classes=given),
        op.RLSClassifier(classes=[]).partial_fit(X, y),
        op.RLSClassifier(classes=given).partial_fit(X, y),
        op.RLSClassifier(classes=set(given)).partial_fit(X, y, classes=given[:1]),
    ):
        assert model.classes_.dtype.kind == kind
        assert model.classes_.tolist() == sorted(given)
        assert model.predict(X).dtype.kind == kind


@pytest.mark.parametrize("kind", [op.RLSClassifier, op.SGDClassifier, op.Perceptron])
@pytest.mark.parametrize("wrong", [5, "abc", [1, "a"], [None], [1.5], iter([0, 1])])
def test_invalid_classes_are_refused(kind: Any, wrong: Any) -> None:
    with pytest.raises(OnepassError, match="classes"):
        kind(classes=wrong).predict_one(X[0])
    with pytest.raises(OnepassError, match="classes"):
        kind(classes=wrong).fit(X, [0, 1] * 3)
    with pytest.raises(OnepassError, match="classes"):
        kind().partial_fit(X, [0, 1] * 3, classes=wrong)


# -- names ----------------------------------------------------------------------------------------


def test_check_subset_preserves_order_of_names() -> None:
    known = ["one", "two", "three"]
    assert validation.check_subset(None, known, "names") == known
    assert validation.check_subset(iter(["three", "one", "one"]), known, "names") == [
        "one",
        "three",
    ]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (["tow"], {"argument": "names", "got": "'tow'", "remedy": "Did you mean 'two'"}),
        ("two", {"argument": "names", "got": "'two'", "remedy": "Pass a list"}),
        ([], {"argument": "names", "got": "[]"}),
        ([None], {"argument": "names", "got": "None"}),
        (["two", 3], {"argument": "names", "got": "3"}),
    ],
)
def test_invalid_subsets_are_refused(given: Any, fields: dict[str, Any]) -> None:
    with raises(ParameterError, **fields):
        validation.check_subset(given, ["one", "two", "three"], "names")


@pytest.mark.parametrize("n", [3, 3000], ids=["few", "many"])
@pytest.mark.parametrize("value", [1e200, -1e308, 1e-320, 0.0])
@pytest.mark.parametrize("order", ["C", "F"])
def test_values_whose_sum_overflows_are_finite(n: int, value: float, order: Any) -> None:
    X = np.full((n, 4), value, order=order)
    assert validation.is_matrix(X, 4)
    assert validation.matrix(X, d=4)[0] is X


@pytest.mark.parametrize("n", [3, 3000], ids=["few", "many"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_single_nonfinite_value_is_found(n: int, value: float) -> None:
    X = np.zeros((n, 4))
    X[n - 1, 2] = value
    assert not validation.is_matrix(X, 4)
    with raises(NotFiniteError, argument="X", row=n - 1, column=2):
        validation.matrix(X, d=4)


@pytest.mark.parametrize(
    "X", [np.zeros((2, 3)), np.zeros(4), np.zeros((2, 4), dtype=np.float32), [[0.0] * 4]], ids=str
)
def test_is_matrix_is_false_for_other_arguments(X: Any) -> None:
    assert not validation.is_matrix(X, 4)
