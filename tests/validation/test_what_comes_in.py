"""What comes in by mistake is refused by name, and never read as something that it is not."""

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

X = np.random.default_rng(0).normal(size=(6, 3))
Y = X @ [1.0, 2.0, 3.0]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [X.astype(str), X.astype(str).astype(object), [["1", 2, 3]] * 6])
def test_text_is_no_number_even_where_it_reads_like_one(text: Any) -> None:
    with pytest.raises(TypeMismatchError, match="Encode"):
        validation.matrix(text, "here")
    with pytest.raises(TypeMismatchError):
        validation.targets(np.array(["1"] * 6), 6, "here")


def test_one_dict_is_not_rows() -> None:
    with pytest.raises(TypeMismatchError, match="Give a list of dicts"):
        op.RLSRegressor().partial_fit({"a": 1.0}, [1.0])


def test_what_a_masked_array_hides_is_missing() -> None:
    masked = np.ma.masked_greater(X, 1.0)
    with pytest.raises(NotFiniteError):
        validation.matrix(masked, "here")
    with pytest.raises(NotFiniteError):
        validation.row_vector(np.ma.array(X[0], mask=[0, 1, 0]), "here", d=None, names=None)
    assert validation.matrix(np.ma.array(X), "here")[0].tolist() == X.tolist()
    with pytest.raises(LabelError, match="masked"):
        validation.labels(np.ma.array([1, 2], mask=[0, 1]), 2, "here")


def test_whole_numbers_beyond_float64_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="too large"):
        validation.matrix([[10**400]], "here")


def off_its_place(array: Any) -> Any:
    """The same numbers, a byte further on than such numbers lie, as in packed records."""
    moved = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, array.size, offset=1)
    moved = moved.reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


@pytest.mark.parametrize("make", [op.RLSRegressor, op.SGDRegressor, op.Perceptron])
def test_numbers_may_lie_anywhere_in_memory(make: Any) -> None:
    y = Y if make is not op.Perceptron else np.sign(Y)
    plain, odd = make(), make()
    for _ in range(2):
        plain.partial_fit(X, y, sample_weight=np.ones(6)).learn_one(X[0], y[0])
        weights = off_its_place(np.ones(6))
        odd.partial_fit(off_its_place(X), off_its_place(y), sample_weight=weights)
        odd.learn_one(off_its_place(X[0]), y[0])
    np.testing.assert_array_equal(odd.coef_, plain.coef_)


def test_there_is_an_answer_in_each_row_and_a_feature() -> None:
    with pytest.raises(ShapeError):
        validation.targets(np.zeros((6, 0)), 6, "here")
    for model in (op.RLSRegressor(), op.SGDRegressor()):
        with pytest.raises(ShapeError):
            model.learn_one(np.zeros(0), 1.0)


@pytest.mark.parametrize("weight", [np.ones(2), [1.0], None, "1"])
def test_a_row_has_one_weight(weight: Any) -> None:
    with pytest.raises(OnepassError, match="sample_weight"):
        op.RLSRegressor().learn_one(X[0], 1.0, sample_weight=weight)


@pytest.mark.parametrize("d", [0, -1, 4.5, "9", True])
def test_features_grow_to_a_whole_number(d: Any) -> None:
    with pytest.raises(ParameterError, match="grow"):
        op.RLSRegressor().fit(X, Y).grow(d)


# -- names -----------------------------------------------------------------------------------------


def test_names_mean_nothing_where_the_first_rows_had_none() -> None:
    model = op.RLSRegressor().fit(X, Y)
    for ask in (model.predict_one, lambda row: model.learn_one(row, 1.0)):
        with pytest.raises(ColumnError, match="array of shape"):
            ask({"b": 1.0, "a": 2.0, "c": 3.0})


def test_a_row_of_a_pandas_frame_is_read_by_its_names() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = op.RLSRegressor().fit(frame, Y)
    row = frame.iloc[0]
    assert model.predict_one(row[["c", "a", "b"]]) == model.predict_one(row)


@pytest.mark.parametrize("names", [["a", "a", "b"], [1, "1", "b"]])
def test_a_name_stands_for_one_column(names: list[Any]) -> None:
    with pytest.raises(ColumnError, match="of its own"):
        op.RLSRegressor().fit(pd.DataFrame(X, columns=names), Y)
    rows = [dict(zip(names, x, strict=True)) for x in X.tolist()]
    if len(rows[0]) == 3:
        with pytest.raises(ColumnError, match="of its own"):
            op.RLSRegressor().learn_one(rows[0], 1.0)


def test_names_that_are_numbers_name_columns_of_dicts() -> None:
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
def test_labels_in_a_list_are_of_one_kind(mixed: list[Any]) -> None:
    with pytest.raises(LabelError, match="one kind"):
        validation.labels(mixed, 2, "here")


@pytest.mark.parametrize("large", [[2**63, 1], [2**63, -1], [2**64, 1]])
def test_whole_labels_are_not_rounded(large: list[int]) -> None:
    with pytest.raises(LabelError, match="64 bits"):
        validation.labels(large, 2, "here")
    model = op.RLSClassifier()
    model.learn_one(X[0], 1)
    with pytest.raises(LabelError, match="64 bits"):
        model.learn_one(X[1], 2**63 + 1)


@pytest.mark.parametrize(
    ("given", "kind"),
    [([True, False], "b"), ([0, 1], "i"), ([0.0, 1.0], "f"), (["a", "b"], "U")],
)
def test_labels_keep_their_kind(given: list[Any], kind: str) -> None:
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
def test_classes_are_a_list_of_labels(kind: Any, wrong: Any) -> None:
    with pytest.raises(OnepassError, match="classes"):
        kind(classes=wrong).predict_one(X[0])
    with pytest.raises(OnepassError, match="classes"):
        kind(classes=wrong).fit(X, [0, 1] * 3)
    with pytest.raises(OnepassError, match="classes"):
        kind().partial_fit(X, [0, 1] * 3, classes=wrong)


# -- names ----------------------------------------------------------------------------------------


def test_some_of_the_known_names_in_their_order() -> None:
    known = ["one", "two", "three"]
    assert validation.check_subset(None, known, "names", "here") == known
    assert validation.check_subset(iter(["three", "one", "one"]), known, "names", "here") == [
        "one",
        "three",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["tow"], r"here: `names` .* got 'tow'\. Did you mean 'two'"),
        ("two", r"got 'two'\. .* Give a list"),
        ([], r"got \[\]"),
        ([None], "got None"),
        (["two", 3], "got 3"),
    ],
)
def test_other_names_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        validation.check_subset(given, ["one", "two", "three"], "names", "here")


@pytest.mark.parametrize("n", [3, 3000], ids=["few", "many"])
@pytest.mark.parametrize("value", [1e200, -1e308, 1e-320, 0.0])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_overflows_when_it_is_summed_is_finite(n: int, value: float, order: Any) -> None:
    X = np.full((n, 4), value, order=order)
    assert validation.is_matrix(X, 4)
    assert validation.matrix(X, "here", d=4)[0] is X


@pytest.mark.parametrize("n", [3, 3000], ids=["few", "many"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_that_is_not_finite_is_found(n: int, value: float) -> None:
    X = np.zeros((n, 4))
    X[n - 1, 2] = value
    assert not validation.is_matrix(X, 4)
    with pytest.raises(NotFiniteError, match=f"row {n - 1}, column 2"):
        validation.matrix(X, "here", d=4)


@pytest.mark.parametrize(
    "X", [np.zeros((2, 3)), np.zeros(4), np.zeros((2, 4), dtype=np.float32), [[0.0] * 4]], ids=str
)
def test_what_is_still_to_be_made_a_matrix(X: Any) -> None:
    assert not validation.is_matrix(X, 4)
