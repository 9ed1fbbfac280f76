"""Limits on classes, outputs, labels and state sizes, which the service relies on."""

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.errors import LabelError, LargeStateWarning, ShapeError
from onepass.learners.estimator import classifier
from onepass.validation import arrays
from raising import raises

CLASSIFIERS: list[Callable[[], Any]] = [
    op.RLSClassifier, op.SGDClassifier, partial(op.ORFitClassifier, noise=1.0), op.Perceptron,
    op.NearestClassMean, op.StreamingLDA, op.StreamingQDA, op.ARTIPCAClassifier,
]  # fmt: skip
REGRESSORS: list[Callable[[], Any]] = [
    op.RLSRegressor,
    op.SGDRegressor,
    partial(op.ORFitRegressor, noise=1.0),
]
MIB = 1 << 20


def rows(n: int, d: int = 2) -> Any:
    """Rows of small numbers."""
    return np.random.default_rng(0).normal(size=(n, d))


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.parametrize("first", [0, 10])
@pytest.mark.usefixtures("traced")
def test_class_count_is_limited_by_feature_limit(make: Callable[[], Any], first: int) -> None:
    """Without a limit, a block of n labels would allocate n² numbers."""
    model, labels = make(), np.arange(10_000)
    if first:
        model.partial_fit(rows(10), labels[:10])
    before = dict(vars(model))
    with arrays.feature_limit(4096):
        for y in (labels, labels.astype(str) if not first else labels):
            with pytest.raises(ShapeError, match=r"`y` must have at most 4,096 classes, got 10,0"):
                model.partial_fit(rows(10_000), y)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        model.partial_fit(rows(20), labels[:20])
    assert before.keys() <= vars(model).keys()
    assert len(model.classes_) == 20


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.usefixtures("traced")
def test_score_matrix_is_limited_by_feature_limit(make: Callable[[], Any]) -> None:
    model = make().partial_fit(rows(100), np.arange(100))
    few, many = rows(200), np.zeros((200_000, 2))
    with arrays.feature_limit(4096):
        predictions = model.predict(few)
        for verb in (
            model.predict, model.decision_function,
            lambda X: model.partial_fit(X, np.zeros(len(X))),
            lambda X: model.test_then_train(X, np.arange(len(X)) % 90),
        ):  # fmt: skip
            with raises(ShapeError, got="200,000 rows of 100 values, one for each class"):
                verb(many)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        np.testing.assert_array_equal(model.predict(few), predictions)
    assert model.rows_seen_ == 100


@pytest.mark.parametrize("make", REGRESSORS)
@pytest.mark.usefixtures("traced")
def test_output_count_is_limited_by_feature_limit(make: Callable[[], Any]) -> None:
    with arrays.feature_limit(4096):
        with pytest.raises(ShapeError, match=r"`y` must have at most 4,096 outputs, got 50,000\."):
            make().partial_fit(rows(1), np.ones((1, 50_000)))
        model = make().partial_fit(rows(2), np.ones((2, 4_000)))
        with raises(ShapeError, got="10,000 rows of 4,000 values, one for each output"):
            model.predict(rows(10_000))
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        assert model.predict(rows(10)).shape == (10, 4_000)


def test_outputs_are_unlimited_without_a_feature_limit() -> None:
    model = op.RLSRegressor().partial_fit(rows(1), np.ones((1, 5_000)))
    assert model.predict(rows(4_000)).shape == (4_000, 5_000)


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.usefixtures("traced")
def test_label_length_is_limited_by_feature_limit(make: Callable[[], Any]) -> None:
    """Without a limit, each label would be padded to the longest."""
    model, n = make().partial_fit(rows(2), ["a", "b"]), 3_000
    y = np.array(["a"] * n, dtype=object)
    y[7] = "x" * 65_000
    with arrays.feature_limit(4096):
        for labels in (y, y.tolist()):
            with pytest.raises(LabelError, match="of at most 256 characters, got one of 65,000"):
                model.partial_fit(rows(n), labels)
        with raises(LabelError, argument="y", got="one of 257"):
            model.partial_fit(rows(2), np.array(["a", "x" * 257]))
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        model.partial_fit(rows(2), ["a", "x" * 256])
    assert len(model.classes_) == 3


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.usefixtures("traced")
def test_long_labels_seen_before_the_limit_are_retained(*, named: bool) -> None:
    long = "x" * 65_000
    model = op.RLSClassifier(classes=["a", long] if named else None)
    if not named:
        model.partial_fit(rows(2), ["a", long])
    with arrays.feature_limit(4096):
        model.partial_fit(rows(2), ["a", "b"])
        assert model.predict(rows(2)).shape == (2,)
        for verb in (model.predict, lambda X: model.test_then_train(X, ["a"] * len(X))):
            with raises(ShapeError, got="3,000 rows of 32,500 values, the size of"):
                verb(rows(3_000))
    assert model.classes_.tolist() == ["a", "b", long]
    assert tracemalloc.get_traced_memory()[1] < 64 * MIB


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.uint64, np.float64, np.bool_, np.str_])
@pytest.mark.parametrize("weighted", [True, False])
def test_label_search_and_comparison_give_equal_models(
    monkeypatch: pytest.MonkeyPatch, kind: type, *, weighted: bool
) -> None:
    draw = np.random.default_rng(0)
    blocks = [draw.integers(0, 2 if kind is np.bool_ else k, 60).astype(kind) for k in (4, 9, 9, 3)]
    found = []
    for few in (0, 1 << 30):
        monkeypatch.setattr(classifier, "_FEW", few)
        model, predictions = op.RLSClassifier(), []
        for i, y in enumerate(blocks):
            X, s = rows(120)[60:], np.arange(60.0) % 3 if weighted else None
            predictions.append(model.test_then_train(X + i, y, s))
        found.append((predictions, model.coef_.tobytes(), model.intercept_.tobytes()))
    for one, other in zip(*(each[0] for each in found), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[0][1:] == found[1][1:]


# -- states that are quadratic in the features -----------------------------------------------------

SQUARE = [op.RLSRegressor, op.RLSClassifier, op.StreamingLDA, op.StreamingQDA]


@pytest.mark.parametrize("kind", SQUARE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_large_state_warns_before_learning(kind: Any, dtype: Any) -> None:
    X, model = np.ones((3, 20_000), dtype=dtype), kind()
    message = (
        rf"^{kind.__name__}: `X` has 20,000 features, whose 20,000 × 20,000 state takes 3.2 GB, "
        r"and learning 9.6 GB. Choose "
    )
    with pytest.raises(LargeStateWarning, match=message):  # filterwarnings = error
        model.partial_fit(X, [1, 0, 1])
    assert not hasattr(model, "n_features_in_")
    model.partial_fit(X[:, :3], [1, 0, 1])
    before = model.nbytes
    with pytest.raises(LargeStateWarning, match="20,000 features"):
        model.grow(20_000)
    assert model.nbytes == before


def test_large_state_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_LARGE", 8 * 50 * 50)
    with pytest.warns(LargeStateWarning, match="`X` has 60 features.*SGD, or ORFit"):
        model = op.RLSRegressor().partial_fit(np.ones((3, 60)), [1.0, 2.0, 3.0])
    model.grow(70)  # filterwarnings = error
    model = op.RLSRegressor().partial_fit(np.ones((3, 50)), [1.0, 2.0, 3.0])
    with pytest.warns(LargeStateWarning, match="51 features"):
        model.grow(51)
    op.SGDRegressor().partial_fit(np.ones((3, 60)), [1.0, 2.0, 3.0])
    op.ORFitRegressor(memory=op.memory.Principal(5)).partial_fit(np.ones((3, 60)), [1.0] * 3)
