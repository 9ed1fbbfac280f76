"""Keyed equals one learner per key, however the stream is divided, and whatever holds its rows."""

import copy
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone, is_classifier

import onepass as op
from onepass import native
from onepass.errors import (
    CheckpointError,
    ColumnError,
    MergeError,
    NotFittedError,
    NumericalError,
    OnepassError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.features import Encode, Impute, Scale
from onepass.linalg.interrupt import Interrupt
from onepass.memory.vector import Slot
from onepass.serialization import archive
from onepass.validation.table import Table
from raising import raises

Exponential, Bounded = op.forgetting.Exponential, op.forgetting.Bounded
PACKED: list[Any] = [
    op.RLSRegressor(),
    op.RLSRegressor(1.0, fit_intercept=False),
    op.RLSRegressor(1e-3, 0.9),
    op.RLSRegressor(1e-2, Bounded(0.6, floor=3.0), fit_intercept=False),
    op.RLSRegressor(1e-3, Exponential(0.95), initial_coef=[1.0, -1.0, 2.0]),
]
"""Models that the compiled code learns for all keys at once."""
REGRESSORS: list[Any] = [
    *PACKED,
    op.RLSRegressor(0.0),
    op.RLSRegressor(prior=1.0),
    op.RLSRegressor(forgetting="window:20"),
    op.SGDRegressor(),
    op.ORFitRegressor(memory=2, noise=0.1),
    op.Pipeline(Scale(), op.SGDRegressor()),
    op.Pipeline(Encode(), Impute(), op.RLSRegressor(1e-3, 0.98)),
    op.Conformal(op.RLSRegressor(1e-3)),
]
CLASSIFIERS: list[Any] = [
    op.RLSClassifier(),
    op.SGDClassifier(),
    op.Perceptron(),
    op.NearestClassMean(),
    op.Pipeline(Encode(), op.RLSClassifier()),
    op.Conformal(op.Pipeline(Encode(), op.RLSClassifier())),
]
N, D = 240, 3


def stream(count: int = 5, seed: int = 0, *, scale: float = 1.0) -> tuple[Any, Any, Any]:
    """Keys, features and targets."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(count, size=N)
    X = scale * rng.normal(size=(N, D)) + 0.3
    slopes = rng.normal(size=(count, D)) / scale
    return keys, X, (X * slopes[keys]).sum(axis=1) + keys + 0.1 * rng.normal(size=N)


def joined(keys: Any, X: Any) -> Any:
    """Rows with the key as column 1."""
    return np.insert(X, 1, keys, axis=1)


def pieces(n: int, cuts: Any) -> list[slice]:
    """The blocks between sorted cuts."""
    ends = [0, *sorted({int(cut) for cut in cuts if 0 < cut < n}), n]
    return [slice(a, b) for a, b in pairwise(ends)]


def by_hand(
    model: Any, keys: Any, X: Any, y: Any, s: Any = None
) -> tuple[dict[Any, Any], list[Any]]:
    """One learner per key that learns row by row, and the prequential predictions."""
    learners: dict[Any, Any] = {}
    predictions = []
    for i, key in enumerate(keys):
        on = s is None or s[i] > 0
        own = learners.get(key) or clone(model)
        predictions.append(own.predict_one(X[i]))
        if on:
            learners[key] = own.learn_one(X[i], y[i], 1.0 if s is None else s[i])
    return learners, predictions


def assert_close(one: Any, two: Any) -> None:
    np.testing.assert_allclose(one, np.array(two), rtol=1e-6, atol=1e-8)


# -- one learner per key ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_regressors_equal_one_learner_per_key(model: Any, outputs: int, *, weighted: bool) -> None:
    keys, X, y = stream()
    if outputs == 2:
        y = np.stack((y, -2.0 * y), axis=1)
        if getattr(model, "initial_coef", None) is not None:
            model = clone(model).set_params(initial_coef=np.ones((2, D)))
        if "SGD" in str(model) or "ORFit" in str(model):
            model = op.RLSRegressor(1e-3)
    s = np.random.default_rng(1).integers(0, 3, size=N).astype(float) if weighted else None
    learners, expected = by_hand(model, keys, X, y, s)
    keyed = op.Keyed(model, by=1)
    found = [
        keyed.test_then_train(joined(keys, X)[part], y[part], None if s is None else s[part])
        for part in pieces(N, [1, 2, 40, 41, 200])
    ]
    for i, prediction in enumerate(expected):  # before its first row a learner has one output
        expected[i] = np.broadcast_to(prediction, y.shape[1:])
    assert_close(np.concatenate(found), expected)
    assert keyed.rows_seen_ == (N if s is None else np.count_nonzero(s))
    for key, learner in learners.items():
        own = keys == key
        assert_close(keyed.predict(joined(keys, X)[own]), learner.predict(X[own]))
        assert_close(keyed[key].predict(X[own]), learner.predict(X[own]))
        assert keyed[key].rows_seen_ == learner.rows_seen_


@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_classifiers_equal_one_learner_per_key(model: Any) -> None:
    keys, X, y = stream()
    labels = np.array(["low", "middle", "highest"])[np.digitize(y, [0.0, 4.0])]
    labels[:50] = "low"  # other labels occur later
    learners, expected = by_hand(model, keys, X, labels)
    keyed = op.Keyed(model, by=1)
    assert is_classifier(keyed)
    found: list[Any] = []
    for part in pieces(N, [3, 100]):
        found += keyed.test_then_train(joined(keys, X)[part], labels[part]).tolist()
    assert found == expected
    assert keyed.classes_.tolist() == ["highest", "low", "middle"]
    for key, learner in learners.items():
        own = keys == key
        assert keyed.predict(joined(keys, X)[own]).tolist() == learner.predict(X[own]).tolist()
    assert keyed.score(joined(keys, X), labels) > 0.4


PROBABLE = op.SGDClassifier(loss="logistic")


@pytest.mark.parametrize("model", [PROBABLE, op.StreamingLDA(), op.Pipeline(Scale(), PROBABLE)])
@pytest.mark.parametrize("strength", [None, 2.0])
def test_probabilities(model: Any, strength: float | None) -> None:
    keys, X, y = stream()
    labels = np.array(["low", "middle", "highest"])[np.digitize(y, [0.0, 4.0])]
    labels[keys == 1] = "low"
    keyed = op.Keyed(model, by=1, prior_strength=strength).partial_fit(joined(keys, X), labels)
    found, where = (
        keyed.predict_proba(joined(keys, X)),
        {c: i for i, c in enumerate(keyed.classes_)},
    )
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    for key in range(5):
        own, learner = keys == key, keyed[key]
        expected = np.zeros((own.sum(), 3))
        expected[:, [where[c] for c in learner.classes_]] = learner.predict_proba(X[own])
        assert found[own].tolist() == expected.tolist()
    new = keyed.predict_proba(joined(keys + 9, X))
    pooled = clone(model).partial_fit(X, labels)
    assert_close(new, np.full((N, 3), 1 / 3) if strength is None else pooled.predict_proba(X))
    assert not hasattr(op.Keyed(op.RLSRegressor(), by=1), "predict_proba")
    with raises(NotFittedError, where="Keyed.predict_proba", remedy="Call fit, partial_fit or"):
        clone(keyed).predict_proba(joined(keys, X))
    with raises(ParameterError, where="Keyed.test_then_train", argument="return_proba"):
        keyed.test_then_train(joined(keys, X), labels, return_proba=True)
    unweighted = clone(keyed).partial_fit(joined(keys, X), labels, np.zeros(N))
    assert unweighted.predict_proba(joined(keys, X)).shape == (N, 0)


@pytest.mark.parametrize("model", [*CLASSIFIERS, PROBABLE], ids=str)
def test_declared_classes(model: Any) -> None:
    keys, X, _ = stream()
    rows, labels = joined(keys, X), np.random.default_rng(2).integers(3, size=N)
    expected, named = op.Keyed(clone(model), by=1), [0, 1, 2, 7]
    expected.learner.classes = named
    expected.partial_fit(rows, labels)
    keyed = op.Keyed(model, by=1)
    for part in pieces(N, [9, 100]):
        keyed.partial_fit(rows[part], labels[part], classes=named)
    later = op.Keyed(model, by=1).partial_fit(rows[:100], labels[:100])
    later.partial_fit(rows[:0], labels[:0], classes=named)
    before = later.partial_fit(rows[:0], labels[:0]).classes_.tolist()
    with pytest.raises(ShapeError):
        later.partial_fit(rows, labels[:1], classes=[9])
    assert before == later.classes_.tolist() == keyed.classes_.tolist() == named
    assert later[keys[0]].classes_.tolist() == named
    for unknown in (rows, joined(keys + 9, X)):
        assert keyed.predict(unknown).tolist() == expected.predict(unknown).tolist()
    assert later.predict(joined(keys + 9, X))[0] == named[-1]
    with raises(ParameterError, argument="classes"):
        op.Keyed(op.RLSRegressor(), by=1).partial_fit(rows, labels, classes=named)


def test_intervals_and_sets_are_those_of_the_keys() -> None:
    keys, X, y = stream(3)
    rows, unknown = joined(keys, X), joined(9, X[:2])
    labels = np.array(["low", "high"])[(y > 1.0).astype(int)]
    sure, plain = (
        op.Keyed(op.Conformal(op.RLSRegressor()), by=1, prior_strength=strength)
        for strength in (5.0, None)
    )
    sets = op.Keyed(op.Conformal(op.RLSClassifier()), by=1).partial_fit(rows, labels)
    sure.partial_fit(rows, y)
    plain.partial_fit(rows, y)
    for key in range(3):
        own = keys == key
        assert_close(plain.predict_interval(rows[own]), plain[key].predict_interval(X[own]))
        assert plain[key].coverage_ > 0.85
        assert (sets.predict_set(rows[own]) == sets[key].predict_set(X[own])).all()
    one = rows[7]
    assert_close(plain.predict_interval_one(one), plain.predict_interval(rows[7:8])[0])
    inside = sets.classes_[sets.predict_set(rows[7:8])[0]].tolist()
    assert sets.predict_set_one(one) == set(inside)
    assert_close(list(sets.predict_proba_one(one).values()), sets.predict_proba(rows[7:8])[0])
    assert np.isinf(op.Keyed(op.Conformal(op.RLSRegressor()), by=1).predict_interval_one(one)).all()
    lagged = op.Pipeline(op.features.Lag(), op.RLSRegressor())
    with raises(ParameterError, argument="prior_strength"):
        op.Keyed(lagged, by=1, prior_strength=5.0).partial_fit(rows, y)
    assert np.isinf(plain.predict_interval(unknown)).all()
    assert np.isfinite(sure.predict_interval(unknown)).all()
    assert sets.predict_set(unknown).all()
    assert not hasattr(op.Keyed(op.RLSRegressor(), by=1), "predict_interval")


@pytest.mark.parametrize("model", [PACKED[1], op.Pipeline(Scale(), op.RLSRegressor())], ids=str)
@pytest.mark.parametrize("outputs", [1, 2])
def test_standard_deviations(model: Any, outputs: int) -> None:
    keys, X, y = stream()
    y = y if outputs == 1 else np.stack((y, -2.0 * y), axis=1)
    keyed = op.Keyed(model, by=1).partial_fit(joined(keys, X), y)
    predictions, std = keyed.predict(joined(keys, X), return_std=True)
    assert_close(predictions, keyed.predict(joined(keys, X)))
    own = keys == keys[3]
    assert std[own].tolist() == keyed[keys[3]].predict(X[own], return_std=True)[1].tolist()
    assert_close(keyed.predict_one(joined(keys, X)[3], return_std=True)[1], std[3])
    new = joined(keys + 9, X)
    assert keyed.predict(new, return_std=True)[1].tolist() == np.full(y.shape, np.inf).tolist()
    assert np.all(keyed.predict_one(new[0], return_std=True)[1] == np.inf)
    assert op.Keyed(model, by=1).predict_one(new[0], return_std=True)[1] == np.inf


@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(1, N), max_size=6))
@settings(max_examples=20, deadline=None)
def test_compiled_models_equal_numpy(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    scale = float(rng.choice([1.0, 30.0, 1e4]))  # large rows must be learned in Python at first
    keys, X, y = stream(int(rng.integers(1, 40)), seed, scale=scale)
    model = clone(PACKED[seed % len(PACKED)])
    s = rng.integers(1, 4, size=N).astype(float) if seed % 3 == 0 else None
    y[rng.integers(N, size=2)] *= 1e61 if seed % 7 == 0 else 1.0
    rows = joined(keys, X)

    def learned() -> Any:
        keyed = op.Keyed(model, by=1, max_keys=[None, 7][seed % 2])
        parts = pieces(N, cuts)
        found = [keyed.test_then_train(rows[p], y[p], None if s is None else s[p]) for p in parts]
        return np.concatenate(found), keyed.predict(rows), keyed.keys()

    compiled = learned()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", None)
        plain = learned()
    size = max(1.0, float(np.abs(y).max()))
    for one, two in zip(compiled[:2], plain[:2], strict=True):
        np.testing.assert_allclose(one / size, two / size, rtol=1e-6, atol=1e-8)
    assert compiled[2] == plain[2]


@pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")
@pytest.mark.parametrize("model", PACKED, ids=str)
def test_ordinary_keys_are_packed(model: Any) -> None:
    keys, X, y = stream()
    keyed = op.Keyed(model, by=1).partial_fit(joined(keys, X), y)
    assert all(isinstance(entry, int) for entry in keyed.states_.entries.values())
    large = joined(*stream(scale=1e4)[:2])
    again = op.Keyed(model, by=1).partial_fit(large, y).partial_fit(large, y)
    assert all(isinstance(entry, int) for entry in again.states_.entries.values())


def test_clusterers_equal_one_learner_per_key() -> None:
    keys, X, _ = stream()
    keyed = op.Keyed(op.ARTIPCACluster(vigilance=0.8), by=1, prior_strength=2.0, max_keys=9)
    found = [keyed.test_then_train(joined(keys, X)[part]) for part in pieces(N, [5, 100])]
    alone = op.Keyed(op.ARTIPCACluster(vigilance=0.8), by=1)
    _, expected = by_hand(alone.model, keys, X, np.zeros(N))
    assert alone.test_then_train(joined(keys, X)).tolist() == expected
    whole = clone(keyed).test_then_train(joined(keys, X))
    assert np.concatenate(found).tolist() == whole.tolist()


# -- rows ------------------------------------------------------------------------------------------


CONTAINERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "table": lambda columns: Table.from_frame(pd.DataFrame(columns)),
    "dicts": lambda columns: pd.DataFrame(columns).to_dict("records"),
    "categories": lambda columns: pd.DataFrame(columns).astype({"who": "category"}),
    "table of categories": lambda columns: Table.from_frame(CONTAINERS["categories"](columns)),
}
KEYS: dict[str, Callable[[Any], Any]] = {
    "text": lambda keys: np.array([f"k{key}" for key in keys], dtype=object),
    "integers": lambda keys: keys,
    "whole floats": lambda keys: keys.astype(float),
    "booleans": lambda keys: keys > 2,
    "mixed": lambda keys: np.array([f"k{key}" if key > 2 else int(key) for key in keys], object),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("model", [op.RLSRegressor(), op.Pipeline(Encode(), op.RLSRegressor())])
def test_containers_and_keys(container: str, kind: str, model: Any) -> None:
    if kind == "mixed" and container not in {"pandas", "dicts"}:
        pytest.skip("this container has columns of one type")
    keys, X, y = stream()
    given = KEYS[kind](keys)
    columns = {"a": X[:, 0], "who": given, "b": X[:, 1], "c": X[:, 2]}
    named = str if "categories" in container else int  # categories are text
    names = [key if isinstance(key, str) else named(key) for key in given.tolist()]
    _, expected = by_hand(model, names, [dict(zip("abc", x, strict=True)) for x in X], y)
    keyed = op.Keyed(model, by="who")
    assert_close(keyed.test_then_train(CONTAINERS[container](columns), y), expected)
    assert keyed.n_features_in_ == 4
    assert sorted(keyed.feature_names_in_) == ["a", "b", "c", "who"]
    assert keyed.keys() == list(dict.fromkeys(names))
    assert keyed.dtypes_["who"] == ("text" if isinstance(names[0], str) else "number")
    columns["who"] = names
    row = {name: column[7] for name, column in columns.items()}
    assert keyed.predict_one(pd.Series(row)) == pytest.approx(keyed.predict_one(row), rel=1e-12)
    again = CONTAINERS["dicts"](columns)
    assert keyed.predict_one(row) == pytest.approx(keyed.predict(again)[7])
    assert names[0] in keyed
    assert len(list(keyed)) == len(keyed) == len(set(names))


@pytest.mark.parametrize("by", [0, -1])
def test_lists_of_rows_and_single_rows(by: int) -> None:
    keys, X, y = stream()
    rows = [[*x, f"k{k}"] if by else [f"k{k}", *x] for k, x in zip(keys, X.tolist(), strict=True)]
    one, many = op.Keyed(op.RLSRegressor(), by=by), op.Keyed(op.RLSRegressor(), by=by)
    for row, target in zip(rows, y, strict=True):
        one.learn_one(row, target)
    many.partial_fit(rows, y)
    assert_close(one.predict(rows), many.predict(rows))
    assert one.predict_one(rows[3]) == pytest.approx(many.predict(rows)[3])


@pytest.mark.parametrize(
    "rows",
    [None, 5, [], "text", iter([[1, 2.0]]), {1, 2}, sparse.eye_array(2), [[[1, 2.0]]],
     [[1, 2.0], [1]], np.ma.array([[0, 1.0]], mask=[[0, 1]]), np.array([[1j, 1.0]])],
    ids=lambda rows: type(rows).__name__,
)  # fmt: skip
def test_rows_that_are_no_rows(rows: Any) -> None:
    keyed = op.Keyed(op.RLSRegressor(), by=0)
    for call in (keyed.partial_fit, keyed.test_then_train, keyed.learn_one, keyed.predict_one):
        with pytest.raises(OnepassError):
            call(rows, *[[1.0]] * (call != keyed.predict_one))
    keyed.partial_fit([[1, 2.0]], [3.0])
    with pytest.raises(OnepassError):
        keyed.predict(rows)
    twice = pd.DataFrame([[1, 2.0, 3.0]], columns=["k", "a", "a"])
    for column in ("k", "a", 0):
        with pytest.raises(ColumnError, match="unique"):
            op.Keyed(op.RLSRegressor(), by=column).partial_fit(twice, [1.0])
    for by in (None, 1.5, True, [0], b"k"):
        with raises(TypeMismatchError, argument="by"):
            op.Keyed(op.RLSRegressor(), by=by).partial_fit([[1, 2.0]], [3.0])  # type: ignore[arg-type]


def test_frames_without_names_of_keys() -> None:
    keys, X, y = stream()
    expected = op.Keyed(op.RLSRegressor(), by=1).partial_fit(joined(keys, X), y)
    frame = pd.DataFrame(joined(keys, X), columns=list("abcd"))
    for rows in (frame, pl.from_pandas(frame), pa.table(frame)):
        keyed = op.Keyed(op.RLSRegressor(), by=1).partial_fit(rows, y)
        assert keyed.predict(rows).tolist() == expected.predict(joined(keys, X)).tolist()


@pytest.mark.parametrize("model", [op.RLSRegressor(), op.RLSRegressor(prior=1.0)], ids=str)
def test_empty_blocks(model: Any) -> None:
    keys, X, y = stream()
    rows, Y = joined(keys, X), np.stack((y, y), axis=1)
    keyed = op.Keyed(model, by=1).partial_fit(rows, Y)
    before = state_of(keyed)
    assert keyed.predict(rows[:0]).shape == (0, 2)
    assert keyed.test_then_train(rows[:0], Y[:0]).shape == (0, 2)
    assert state_of(keyed.partial_fit(rows[:0], Y[:0])) == before
    pipeline = op.Pipeline(Encode(), op.RLSRegressor())
    named = op.Keyed(pipeline, by="who").partial_fit([{"who": 1, "a": 2.0}], [3.0])
    assert named.predict([]).shape == named.test_then_train([], []).shape == (0,)


def test_a_fitted_model_is_not_used() -> None:
    _, X, y = stream()
    keyed = op.Keyed(op.RLSRegressor().fit(X, y), by=0)
    assert keyed.predict_one([0, *X[0]]) == 0.0
    for model in (op.RLSRegressor, None, Scale()):
        with raises(TypeMismatchError, argument="model"):
            op.Keyed(model, by=0).predict_one([0, *X[0]])


def test_unknown_keys_are_predicted_by_initial_weights() -> None:
    keys, X, y = stream()
    model = op.RLSRegressor(initial_coef=[1.0, 2.0, 3.0])
    keyed = op.Keyed(model, by=1)
    rows = joined(keys + 50, X)
    with raises(NotFittedError, remedy="Call fit, partial_fit or"):
        keyed.predict(rows)
    assert keyed.predict_one(rows[0]) == pytest.approx(X[0] @ [1.0, 2.0, 3.0])
    keyed.partial_fit(joined(keys, X), y)
    assert_close(keyed.predict(rows), X @ [1.0, 2.0, 3.0])
    both = op.Keyed(op.RLSRegressor(), by=1).partial_fit(joined(keys, X), np.stack((y, y), axis=1))
    assert both.predict(rows).tolist() == np.zeros((N, 2)).tolist()
    labels = op.Keyed(op.RLSClassifier(), by=1).partial_fit(joined(keys, X), y > 0)
    assert labels.predict(rows[:2]).tolist() == [None, None]
    half = joined(np.where(y > 0, keys, 50), X)
    right = labels.predict(half)[y > 0].sum() / N
    assert labels.score(half, y > 0) == pytest.approx(right)


def test_rules_by_time() -> None:
    keys, X, y = stream()
    times = np.arange(N) / 7.0
    model = op.RLSRegressor(1e-3, Bounded(half_life=3.0))
    keyed = op.Keyed(model, by=1)
    assert keyed._uses_time
    for part in pieces(N, [10, 99]):
        keyed.partial_fit(joined(keys, X)[part], y[part], time=times[part])
    for key in range(5):
        own = keys == key
        learner = clone(model).fit(X[own], y[own], time=times[own])
        assert_close(keyed[key].coef_, learner.coef_)
    with raises(ParameterError, argument="time", remedy="Leave out `time`, or"):
        op.Keyed(op.RLSRegressor(), by=1).partial_fit(joined(keys, X), y, time=times)
    last = times[-1]
    for bad in ([*times + last, 99.0], [last], last):
        with pytest.raises(ShapeError, match=rf"`time` must have shape \({N},\)"):
            keyed.partial_fit(joined(keys, X), y, time=bad)
    again = copy.copy(keyed).partial_fit(joined(keys, X), y, time=pa.array(times + last))
    keyed.partial_fit(joined(keys, X), y, time=times + last)
    assert again.predict(joined(keys, X)).tolist() == keyed.predict(joined(keys, X)).tolist()
    keyed.partial_fit(joined(keys, X)[:1], y[:1], time=99.0)


# -- removed keys, pooled model --------------------------------------------------------------------


def least_recent(
    model: Any, keys: Any, X: Any, y: Any, s: Any, max_keys: int | None, max_age: int | None
) -> tuple[list[Any], dict[Any, Any]]:
    """Row by row: predictions, and the learners of the present keys, least recent first."""
    learners: OrderedDict[Any, Any] = OrderedDict()
    last: dict[Any, int] = {}
    predictions, seen = [], 0

    def expire() -> None:
        for key in [k for k in learners if max_age is not None and seen - last[k] >= max_age]:
            del learners[key]

    for i, key in enumerate(keys):
        own = learners.get(key) or clone(model)
        predictions.append(own.predict_one(X[i]))
        if s[i] > 0:
            if key not in learners and len(learners) == max_keys:
                learners.popitem(last=False)
            seen += 1
            learners[key] = own.learn_one(X[i], y[i], s[i])
            learners.move_to_end(key)
            last[key] = seen
        expire()
    return predictions, learners


@given(
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(1, N), max_size=6),
    max_keys=st.sampled_from([None, 1, 3, 20]),
    max_age=st.sampled_from([None, 1, 5, 60]),
)
@settings(max_examples=30, deadline=None)
def test_removed_keys(
    seed: int, cuts: list[int], max_keys: int | None, max_age: int | None
) -> None:
    keys, X, y = stream(12, seed)
    s = np.random.default_rng(seed).integers(0, 4, size=N).clip(0, 1).astype(float)
    model = [op.RLSRegressor(1e-3), op.SGDRegressor()][seed % 2]
    predictions, learners = least_recent(model, keys, X, y, s, max_keys, max_age)
    keyed = op.Keyed(model, by=1, max_keys=max_keys, max_age=max_age)
    rows = joined(keys, X)
    found = []
    for part in pieces(N, cuts):
        if isinstance(model, op.RLSRegressor):
            with pytest.raises(NumericalError):  # leaves the order of the keys unchanged
                keyed.partial_fit(rows[part], np.full(part.stop - part.start, 1e200))
        found.append(keyed.test_then_train(rows[part], y[part], s[part]))
    assert_close(np.concatenate(found), predictions)
    assert sorted(keyed.keys()) == sorted(learners)
    if max_keys is not None or max_age is not None:
        assert keyed.keys() == list(learners)
    for key, learner in learners.items():
        assert_close(keyed[key].coef_, learner.coef_)
    assert all(chunk.shape[1] == keyed.states_.width for chunk in keyed.states_._chunks)


@given(
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(1, N), max_size=6),
    max_keys=st.sampled_from([None, 3]),
)
@settings(max_examples=10, deadline=None)
def test_pooled_model(seed: int, cuts: list[int], max_keys: int | None) -> None:
    keys, X, y = stream(8, seed, scale=[1.0, 100.0][seed % 2])
    s = np.random.default_rng(seed).integers(0, 3, size=N).astype(float)
    models = [op.RLSRegressor(1e-3), op.RLSRegressor(1e-3, 0.9), op.RLSRegressor(0.0)]
    models += [op.SGDRegressor(), op.Pipeline(Scale(), op.RLSRegressor(prior=1.0))]
    model = models[seed % len(models)]
    rows = joined(keys, X)

    def learned(parts: list[slice]) -> tuple[Any, Any]:
        keyed = op.Keyed(model, by=1, prior_strength=5.0, max_keys=max_keys)
        found = [keyed.test_then_train(rows[part], y[part], s[part]) for part in parts]
        return keyed, np.concatenate(found)

    one, predictions = learned([slice(i, i + 1) for i in range(N)])
    many, others = learned(pieces(N, cuts))
    assert_close(others, predictions)
    assert_close(many.predict(rows), one.predict(rows))
    pooled = clone(model).partial_fit(X, y, sample_weight=s)
    assert_close(many.predict(joined(keys + 99, X)), pooled.predict(X))


def test_limits_that_are_changed_later() -> None:
    keys, X, y = stream(9)
    rows = joined(keys, X)
    keyed = op.Keyed(op.RLSRegressor(), by=1, max_keys=8).partial_fit(rows, y)
    keyed.set_params(max_keys=2).partial_fit(rows[-1:], y[-1:])
    assert len(keyed) == 2
    before = state_of(keyed)
    for strength in (np.nan, -1.0):
        with raises(ParameterError, argument="prior_strength"):
            copy.copy(keyed).set_params(prior_strength=strength).partial_fit(rows, y)
    assert state_of(keyed) == before


def test_a_new_key_starts_from_the_faded_pooled_model() -> None:
    keys, X, y = stream(1)
    keyed = op.Keyed(op.RLSRegressor(1e-3), by=1, prior_strength=10.0)
    keyed.partial_fit(joined(keys, X), y)
    keyed.partial_fit(joined(keys[:1] + 1, X[:1]), y[:1])
    assert keyed[1].state_[Slot.MASS] == pytest.approx(11.0)
    assert keyed[0].state_[Slot.MASS] == pytest.approx(N)
    fresh = op.RLSRegressor(1e-3).fit(X, y, np.full(N, 10.0 / N))
    fresh.partial_fit(X[:1], y[:1])
    np.testing.assert_allclose(keyed[1].coef_, fresh.coef_, rtol=1e-3)  # the ridge fades too


# -- errors ----------------------------------------------------------------------------------------


def state_of(keyed: Any) -> Any:
    return json.dumps(archive.split(op.Keyed.__getstate__(keyed) and keyed_tree(keyed), "m")[0])


def keyed_tree(keyed: Any) -> Any:
    from onepass.serialization.codec import state_dict

    return state_dict(keyed, "m")


@pytest.mark.parametrize("model", [op.RLSRegressor(), op.SGDRegressor()], ids=str)
def test_errors_leave_everything_unchanged(model: Any) -> None:
    keys, X, y = stream()
    rows = joined(keys, X)
    keyed = op.Keyed(model, by=1).partial_fit(rows, y)
    before, predicted, frozen = state_of(keyed), keyed.predict(rows), keyed.frozen_copy()
    bad, huge, gap = rows.copy(), y.copy(), rows.copy()
    bad[7, 0], huge[11], gap[5, 1] = np.nan, 1e308, np.nan
    cases: list[tuple[type[Exception], str, Any, Any]] = [
        (NumericalError, f"key {keys[11]}", rows, huge),  # not with SGD, which bounds its steps
        (OnepassError, "row 7", bad, y),
        (TypeMismatchError, "missing key in row 5", gap, y),
        (TypeMismatchError, r"keys in column 1 must be.* got \d\.5 in row 0", rows + 0.5, y),
        (ShapeError, "`y` must have shape", rows, np.stack((y, y), axis=1)),
        (ShapeError, "features", rows[:, :3], y),
    ]
    for kind, text, X_bad, y_bad in cases[isinstance(model, op.SGDRegressor) :]:
        with pytest.raises(kind, match=text):
            keyed.partial_fit(X_bad, y_bad)
        assert state_of(keyed) == before
        assert keyed.predict(rows).tolist() == predicted.tolist()
    keyed.partial_fit(rows, y)
    assert frozen.predict(rows).tolist() == predicted.tolist()


def test_an_interrupt_before_the_models_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, X, y = stream(9)
    keyed = op.Keyed(op.RLSRegressor(), by=1, max_keys=4, max_age=99)
    keyed.partial_fit(joined(keys, X), y)
    before = state_of(keyed)

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Interrupt, "held", interrupted)
    with pytest.raises(KeyboardInterrupt):
        keyed.partial_fit(joined(keys + 5, X), y)
    assert state_of(keyed) == before


def test_messages() -> None:
    keys, X, y = stream()
    rows = joined(keys, X)
    frame = pd.DataFrame(rows, columns=["a", "who", "b", "c"])
    keyed = op.Keyed(op.RLSRegressor(), by="who").partial_fit(frame, y)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ColumnError, "key must be one of the 5 keys", lambda: keyed["nobody"]),
        (ColumnError, "key column 'who'", lambda: keyed.predict(frame.drop(columns="who"))),
        (ColumnError, "index of a column", lambda: keyed.predict(rows)),
        (TypeMismatchError, "column 'who' must be.* got a missing key in row 1",
         lambda: keyed.predict([{"who": 1}, {"a": 1.0}])),
        (TypeMismatchError, "got one dict", lambda: op.Keyed(op.RLSRegressor(), 1).fit({}, y)),
        (TypeMismatchError, "`by` must be", lambda: op.Keyed(op.RLSRegressor(), None).fit(rows, y)),  # type: ignore[arg-type]
        (ColumnError, "'who'", lambda: keyed.predict_one({"a": 1.0, "b": 1.0, "c": 1.0})),
        (ParameterError, "max_keys",
         lambda: op.Keyed(op.RLSRegressor(), 1, max_keys=0).fit(rows, y)),
        (ParameterError, "prior_strength",
         lambda: op.Keyed(op.RLSRegressor(), 1, prior_strength=0).fit(rows, y)),
        (TypeMismatchError, "`model` must be", lambda: op.Keyed(keyed, 1).fit(rows, y)),
        (OnepassError, "RLSRegressor", lambda: op.Keyed(op.RLSRegressor(-1.0), 1).fit(rows, y)),
        (TypeError, "return_std", lambda: op.Keyed(op.SGDRegressor(), 1).fit(rows, y).predict(
            rows, return_std=True)),
        (ShapeError, "must have rows", lambda: op.Keyed(op.RLSRegressor(), 1).fit(rows[:0], y[:0])),
    ]  # fmt: skip
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    with pytest.raises(KeyError):
        keyed[99]


# -- files, copies, merging ------------------------------------------------------------------------


SAVED = [
    PACKED[0],
    PACKED[2],
    op.SGDRegressor(),
    op.Pipeline(Encode(), op.RLSRegressor()),
    op.Conformal(op.RLSRegressor(1e-3)),
]


@pytest.mark.parametrize("model", SAVED, ids=str)
@pytest.mark.parametrize("options", [{}, {"max_keys": 4}, {"prior_strength": 3.0}], ids=str)
def test_files_and_copies_continue_to_the_bit(
    model: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    keys, X, y = stream()
    frame = pd.DataFrame(X, columns=list("abc")).assign(who=[f"k{key}" for key in keys])
    keyed = op.Keyed(model, by="who", **options).partial_fit(frame[:150], y[:150])
    op.save(keyed, tmp_path / "m.onepass")
    others = [
        op.load(tmp_path / "m.onepass"),
        pickle.loads(pickle.dumps(keyed)),  # noqa: S301
        copy.deepcopy(keyed),
        copy.copy(keyed),
    ]
    later = frame[150:].assign(who=[f"k{key + 2}" for key in keys[150:]])
    expected = keyed.test_then_train(later, y[150:])
    for other in others:
        assert other.keys() == op.load(tmp_path / "m.onepass").keys()
        assert other.test_then_train(later, y[150:]).tolist() == expected.tolist()
        assert other.keys() == keyed.keys()
    keyed.set_params(model=op.NearestClassMean())  # applies from the next fit
    op.save(keyed, tmp_path / "m.onepass")
    keyed.partial_fit(later, y[150:])
    again = op.load(tmp_path / "m.onepass").partial_fit(later, y[150:])
    assert again.predict(later).tolist() == keyed.predict(later).tolist()
    assert not hasattr(clone(keyed), "rows_seen_")
    assert clone(keyed).get_params()["by"] == "who"


def test_files_are_compact_and_load_without_the_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows, y = (
        np.c_[rng.integers(2000, size=6000), rng.normal(size=(6000, 4))],
        rng.normal(size=6000),
    )
    keyed = op.Keyed(op.RLSRegressor(), by=0).partial_fit(rows, y)
    op.save(keyed, tmp_path / "m.onepass")
    if native.loops is not None:
        assert (tmp_path / "m.onepass").stat().st_size < len(keyed) * 900
    monkeypatch.setattr(native, "loops", None)
    plain = op.load(tmp_path / "m.onepass")
    assert_close(plain.predict(rows), keyed.predict(rows))
    assert_close(plain.partial_fit(rows, y)[5].coef_, keyed[5].partial_fit(
        rows[rows[:, 0] == 5, 1:], y[rows[:, 0] == 5]).coef_)  # fmt: skip


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    keys, X, y = stream()
    keyed = op.Keyed(op.RLSRegressor(), by=1).partial_fit(joined(keys, X), y)
    place = tmp_path / "m.onepass"

    def damage(change: Callable[[dict[str, Any]], object]) -> None:
        tree = keyed_tree(keyed)
        change(tree["states_"])
        archive.write(place, tree, kind="learner")
        with pytest.raises(CheckpointError):
            op.load(place)

    damage(lambda states: states.update(keys=states["keys"][:-1]))
    damage(lambda states: states.update(keys=np.frombuffer(b"[0,0,0,0,0]", np.uint8).copy()))
    damage(lambda states: states.update(packed=states["packed"][1:]))
    if native.loops is not None:
        damage(lambda states: states.update(values=states["values"][:, 1:].copy()))
        damage(lambda states: states.update(values=states["values"] * 0.0))
        damage(lambda states: states.update(values=np.full_like(states["values"], np.inf)))
    damage(lambda states: states.update(learners=[1.0]))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "model",
    [PACKED[0], op.RLSRegressor(prior=1.0), op.Pipeline(Encode(), op.RLSRegressor())],
    ids=str,
)
def test_merge_by_key(model: Any, *, named: bool) -> None:
    keys, X, y = stream()
    keys[100:] += 2  # some keys occur in one part only

    def part(a: int, b: int) -> Any:
        if not named:
            return joined(keys, X)[a:b]
        return pd.DataFrame(X, columns=list("abc")).assign(who=keys)[a:b]

    by: Any = "who" if named else 1
    one, two, whole = (op.Keyed(model, by=by) for _ in range(3))
    prior = getattr(model, "prior", None)
    assert one._merging == ("approximate" if prior else "exact")
    one.partial_fit(part(0, 100), y[:100])
    two.partial_fit(part(100, N), y[100:])
    whole.partial_fit(part(0, N), y)
    empty = op.Keyed(model, by=by)
    assert_close(empty.merge(one).predict(part(0, N)), one.predict(part(0, N)))
    one.merge(op.Keyed(model, by=by)).merge(two)
    assert sorted(one) == sorted(whole)
    assert one.rows_seen_ == N
    assert_close(one.predict(part(0, N)), whole.predict(part(0, N)))


def test_merge_with_other_features_and_errors() -> None:
    keys, X, y = stream()
    frame = pd.DataFrame(X, columns=list("abc")).assign(who=keys, more=0.0)
    one = op.Keyed(op.RLSRegressor(), by="who").partial_fit(frame.drop(columns="more"), y)
    two = op.Keyed(op.RLSRegressor(), by="who").partial_fit(
        frame[:50].assign(more=X[:50, 0] ** 2), y[:50]
    )
    one.merge(two)
    whole = op.Keyed(op.RLSRegressor(), by="who").partial_fit(frame, y)
    whole.partial_fit(frame[:50].assign(more=X[:50, 0] ** 2), y[:50])
    assert one.n_features_in_ == 5
    assert_close(one.predict(frame), whole.predict(frame))
    for other in (op.Keyed(op.RLSRegressor(), by="b"), op.RLSRegressor()):
        with pytest.raises(MergeError):
            one.merge(other)  # type: ignore[arg-type]
    sgd = op.Keyed(op.SGDRegressor(), by="who").partial_fit(frame, y)
    assert sgd._merging == "refused"
    with pytest.raises(MergeError, match="evidence"):
        sgd.merge(clone(sgd).partial_fit(frame, y))
    other = op.Keyed(op.RLSRegressor(), by="who").partial_fit(
        frame.assign(who=keys + 50), np.stack((y, y), axis=1)
    )
    for a, b in ((one, other), (other, one)):
        with raises(MergeError, remedy="Merge models of the"):
            a.merge(b)
    limited = op.Keyed(op.RLSRegressor(), by="who", max_keys=3)
    limited.partial_fit(frame, y).merge(clone(limited).partial_fit(frame[:1], y[:1]))
    assert limited._merging == "approximate"
    assert len(limited) == 3
    assert limited.keys()[-1] == keys[0]


# -- evaluation, durable learners ------------------------------------------------------------------


def test_prequential_and_durable(tmp_path: Path) -> None:
    keys, X, y = stream()
    rows = [
        {"who": f"k{key}", **dict(zip("abc", x, strict=True))}
        for key, x in zip(keys, X.tolist(), strict=True)
    ]
    report = op.evaluate.prequential(
        {
            "keyed": op.Keyed(op.RLSRegressor(), by="who"),
            "one": op.Pipeline(Encode(), op.RLSRegressor()),
        },
        (Table.from_rows(rows), y),
    )
    assert report.scores["keyed"].overall["mae"] < report.scores["one"].overall["mae"]
    for i, model in enumerate(
        (op.RLSRegressor(), op.Pipeline(Encode(), Impute(), op.RLSRegressor()))
    ):
        place = tmp_path / f"{i}.db"
        with op.durable(place, op.Keyed(model, by="who", max_keys=4)) as durable:
            assert durable.predict(rows[:2]).tolist() == [0.0, 0.0]
            durable.learn(rows[:100], y[:100])
            for row, target in zip(rows[100:130], y[100:130], strict=True):
                durable.learn([row], [target])
            expected, order = durable.predict(rows).tolist(), durable.model().keys()
        with op.durable(place) as durable:
            assert durable.predict(rows).tolist() == expected
            assert durable.model().keys() == order


def test_forecasts_are_those_of_the_keys(rng: np.random.Generator) -> None:
    n, ahead = 300, 12
    keys, X, y = rng.integers(3, size=n), rng.normal(size=(n, 2)), rng.normal(size=n)
    model = op.Pipeline(op.features.Lag(rows=[1, 2]), op.RLSRegressor())
    keyed = op.Keyed(model, by=1).partial_fit(joined(keys, X), y)
    later, rows = rng.integers(4, size=ahead), rng.normal(size=(ahead, 2))
    known = np.where(rng.random(ahead) < 0.5, np.nan, 1.0)
    for targets in (None, known):
        found = keyed.forecast(joined(later, rows), targets)
        for key in range(3):
            own = later == key
            alone = clone(model).partial_fit(X[keys == key], y[keys == key])
            expected = alone.forecast(rows[own], None if targets is None else targets[own])
            assert_close(found[own], expected)
        assert (found[later == 3] == 0.0).all()
    assert_close(keyed.forecast(joined(later, rows)), keyed.forecast(joined(later, rows)))
    with raises(
        ParameterError, argument="interval", remedy="Learn with op.Conformal(op.Keyed(...)), whose"
    ):
        next(op.evaluate.predictions(keyed, op.stream.read(rows), interval=True))


def test_rows_of_weight_zero_are_lags_of_their_key(rng: np.random.Generator) -> None:
    n = 240
    keys, X, y = rng.integers(3, size=n), rng.normal(size=(n, 2)), rng.normal(size=n)
    weights = (rng.random(n) > 0.4).astype(float)
    model = op.Pipeline(op.features.Lag(rows=[1, 2]), op.RLSRegressor(1e-3))
    rows = joined(keys, X)
    whole = op.Keyed(model, by=1).partial_fit(rows, y, weights)
    parts = op.Keyed(model, by=1)
    for part in np.array_split(np.arange(n), 80):
        parts.partial_fit(rows[part], y[part], weights[part])
    for key in range(3):
        own = keys == key
        alone = clone(model).partial_fit(X[own], y[own], sample_weight=weights[own])
        for keyed in (whole, parts):
            assert_close(keyed[key].learner_.coef_, alone.learner_.coef_)


def test_conformal_models_of_keys_forecast_in_files_of_predictions() -> None:
    keys, X, y = stream(2)
    model = op.Conformal(op.Pipeline(op.features.Lag(rows=[1]), op.RLSRegressor()))
    frame = pd.DataFrame(joined(keys, X), columns=["a", "who", "b", "c"])
    keyed = op.Keyed(model, by="who").partial_fit(frame, y)
    (block,) = op.evaluate.predictions(keyed, op.stream.read(frame[:20]))
    assert_close(block["prediction"], keyed.forecast(frame[:20]))
    with raises(
        ParameterError, argument="interval", remedy="Learn with op.Conformal(op.Keyed(...)), whose"
    ):
        next(op.evaluate.predictions(keyed, op.stream.read(frame), interval=True))
    with raises(ShapeError, argument="y", got="19"):
        keyed.forecast(frame[:20], y[:19])
    with pytest.raises(NotFittedError):
        op.Keyed(model, by="who").forecast(frame)
