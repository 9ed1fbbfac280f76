"""Merged ORFit: exact with sufficient memory, bounded beyond."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import onepass as op
from onepass import memory
from onepass.errors import MemoryFullWarning, MergeError
from raising import raises

Floats = NDArray[Any]


def fit_rows(rows: slice, X: Floats, y: Floats, seed: int = 0, **params: Any) -> Any:
    """A learner of some rows with random initial weights."""
    start = np.random.default_rng(seed).normal(size=(*y.shape[1:], X.shape[1]))
    return op.ORFitRegressor(**params, initial_coef=start).fit(X[rows], y[rows])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(*[st.integers(1, 12)] * 3),
    spec=st.sampled_from([None, 40]),
    noise=st.sampled_from([0.0, 0.3]),
    fit_intercept=st.booleans(),
    leftwards=st.booleans(),
)
def test_merge_with_sufficient_memory_equals_one_pass(
    seed: int,
    sizes: tuple[int, int, int],
    spec: Any,
    noise: float,
    fit_intercept: bool,  # noqa: FBT001
    leftwards: bool,  # noqa: FBT001
) -> None:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X, y = rng.normal(size=(n, 50)) * np.geomspace(0.1, 10.0, 50), rng.normal(size=(n, 2))
    params = {"memory": spec, "noise": noise, "fit_intercept": fit_intercept}
    i, j = sizes[0], sizes[0] + sizes[1]
    a = fit_rows(slice(0, i), X, y, 0, **params)
    b = fit_rows(slice(i, j), X, y, 1, **params)
    c = fit_rows(slice(j, n), X, y, 2, **params)
    whole = fit_rows(slice(0, n), X, y, 0, **params)
    merged = a.merge(b).merge(c) if leftwards else a.merge(b.merge(c))
    np.testing.assert_allclose(merged.coef_, whole.coef_, atol=1e-10)
    np.testing.assert_allclose(merged.intercept_, whole.intercept_, atol=1e-10)
    new_X, new_y = rng.normal(size=(5, 50)), rng.normal(size=(5, 2))
    np.testing.assert_allclose(
        merged.test_then_train(new_X, new_y), whole.test_then_train(new_X, new_y), atol=1e-9
    )
    if not noise:
        np.testing.assert_allclose(merged.predict(X), y, atol=1e-9)


@pytest.mark.parametrize("spec", [None, memory.Principal(60)])
def test_merge_with_gradients_per_output_equals_one_pass(spec: Any) -> None:
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(5, 40, 3))

    def phi(X: Floats) -> Floats:
        return np.tanh(np.einsum("nd,dpc->npc", X, turn))

    X, y = rng.normal(size=(12, 5)), rng.normal(size=(12, 3))
    make = lambda: op.ORFitRegressor(spec, feature_map=phi)  # noqa: E731
    merged = make().fit(X[:5], y[:5]).merge(make().fit(X[5:], y[5:]))
    np.testing.assert_allclose(merged.predict(X), y, atol=1e-9)
    np.testing.assert_allclose(merged.coef_, make().fit(X, y).coef_, atol=1e-9)


@pytest.mark.parametrize("m", [3, 8, 20])
@pytest.mark.parametrize("seed", range(6))
def test_merge_beyond_memory_changes_predictions_within_bound(m: int, seed: int) -> None:
    # both updates are orthogonal to what the part itself had stored, so its loss bounds them
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.normal(size=(60, 60)))[0] * np.geomspace(5.0, 0.05, 60)
    X, y = rng.normal(size=(60, 60)) @ turned.T, rng.normal(size=60)
    a, b = (op.ORFitRegressor(m).fit(X[i : i + 30], y[i : i + 30]) for i in (0, 30))
    before = copy.deepcopy(a)
    merged = a.merge(b)
    for part, rows in ((before, slice(0, 30)), (b, slice(30, 60))):
        changed = np.linalg.norm(merged.predict(X[rows]) - part.predict(X[rows]))
        moved = np.linalg.norm(merged.coef_ - part.coef_)
        lost = part.memory_.subspace.lost
        assert lost > 0.0
        assert changed <= np.sqrt(lost) * moved * (1.0 + 1e-9)
    assert merged.memory_.subspace.lost >= before.memory_.subspace.lost + b.memory_.subspace.lost
    assert merged.memory_.rank == m


def test_first_part_wins_where_merged_parts_contradict() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(4, 10)), rng.normal(size=4)
    a, b = op.ORFitRegressor(None).fit(X, y), op.ORFitRegressor(None).fit(X[:1], [9.0])
    a.merge(b)
    np.testing.assert_allclose(a.predict(X), y, atol=1e-12)
    assert a.inconsistent_rows_ == 1


def test_merge_that_fills_memory_warns() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(6, 6)), rng.normal(size=6)
    a, b = (op.ORFitRegressor(None).fit(X[i : i + 3], y[i : i + 3]) for i in (0, 3))
    with pytest.warns(MemoryFullWarning):
        a.merge(b)


def test_merge_unites_feature_names_and_classes() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 30))
    y = np.arange(20) // 7
    names = [f"f{j}" for j in range(30)]
    early, late = names[:20], names[10:][::-1]
    first, second = op.ORFitClassifier(None, 0.1), op.ORFitClassifier(None, 0.1)
    for x, label in zip(X[:10], y[:10], strict=True):
        first.learn_one(dict(zip(early, x, strict=False)), label)
    for x, label in zip(X[10:], y[10:], strict=True):
        second.learn_one(dict(zip(late, x, strict=False)), label)
    whole = op.ORFitClassifier(None, 0.1)
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        counted = dict(zip(early if i < 10 else late, x, strict=False))
        whole.learn_one({name: counted.get(name, 0.0) for name in names}, label)
    first.merge(second)
    assert first.classes_.tolist() == [0, 1, 2]
    order = np.argsort([names.index(name) for name in first.feature_names_in_])
    np.testing.assert_allclose(first.coef_[:, order], whole.coef_, atol=1e-12)


@pytest.mark.parametrize("spec", [memory.LastDirections(4), memory.Random(4)])
def test_merged_directions_retain_predictions_of_second_part(spec: Any) -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(20, 30)), rng.normal(size=20)
    a, b = (op.ORFitRegressor(spec).fit(X[i : i + 10], y[i : i + 10]) for i in (0, 10))
    assert a._merging == "approximate"
    predictions = b.memory_.directions.Q.T @ b.coef_
    a.merge(b)
    np.testing.assert_allclose(b.memory_.directions.Q.T @ a.coef_, predictions, atol=1e-12)
    assert a.memory_.rank == 4


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "memory": ({"memory": 5}, {"memory": 6}, {"argument": "memory"}),
    "noise": ({"noise": 0.5}, {"noise": 0.1}, {"argument": "noise"}),
    "nothing": (
        {"memory": memory.NoMemory()},
        {"memory": memory.NoMemory()},
        {"remedy": "Principal"},
    ),
    "map": ({}, {"feature_map": np.tanh}, {"argument": "feature_map"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_merge_of_incompatible_learners_is_refused(name: str) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(6, 9)), rng.normal(size=6)
    one, two, fields = REFUSED[name]
    a, b = (op.ORFitRegressor(**params).fit(X, y) for params in (one, two))
    with raises(MergeError, **fields):
        a.merge(b)


def test_merge_with_feature_map_needs_equal_column_order() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(4, 3)), rng.normal(size=4)
    a, b = (op.ORFitRegressor(feature_map=np.tanh) for _ in range(2))
    for learner, order in ((a, "abc"), (b, "cba")):
        for x, target in zip(X[:2], y[:2], strict=True):
            learner.learn_one(dict(zip(order, x, strict=True)), target)
    with raises(MergeError, remedy="Pass the features in"):
        a.merge(b)
