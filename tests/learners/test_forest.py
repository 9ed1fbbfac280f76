"""Forests: compiled functions equal Python, and behaviour on streams like those of users."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

import onepass as op
from onepass import native
from onepass.errors import MergeError, NumericalError, OnepassError, ShapeError
from onepass.learners import forest_vector
from raising import raises

CLASSES = (op.ForestClassifier, op.ForestRegressor)


@contextmanager
def in_python() -> Iterator[None]:
    """Learn and predict without compiled functions."""
    loops, native.loops = native.loops, None
    try:
        yield
    finally:
        native.loops = loops


def stream(rng: np.random.Generator, n: int, d: int, *, classes: int) -> tuple[Any, Any]:
    """Smooth, correlated columns in different units, with missing values; a nonlinear target."""
    Z = np.cumsum(0.3 * rng.normal(size=(n, d)), axis=0) + rng.normal(size=(n, d))
    Z = np.tanh(Z + Z[:, :1])
    y = Z[:, 0] * Z[:, -1] + 0.5 * np.abs(Z[:, 1]) + 0.05 * rng.normal(size=n)
    X = Z * 10.0 ** rng.integers(-6, 7, size=d) + 10.0 ** rng.integers(0, 4, size=d)
    X[rng.random(X.shape) < rng.choice([0.0, 0.1])] = np.nan
    X[: int(rng.integers(0, n // 4)), 1] = np.nan
    if classes:
        edges = np.quantile(y, np.linspace(0, 1, classes + 1)[1:-1])
        return X, np.digitize(y, edges)
    return X, 1e3 + y


def parts(rng: np.random.Generator, n: int, cuts: int = 6) -> list[slice]:
    edges = [0, *sorted(rng.integers(0, n + 1, size=cuts).tolist()), n]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


@pytest.mark.parametrize("made", CLASSES)
@pytest.mark.parametrize("kind", ["plain", "weighted", "wide", "late", "several"])
def test_compiled_functions_equal_python(made: Any, kind: str, rng: np.random.Generator) -> None:
    if native.loops is None:
        pytest.skip("there are no compiled functions")
    d = 40 if kind == "wide" else int(rng.integers(2, 9))
    X, y = stream(rng, 400, d, classes=3 if made is op.ForestClassifier else 0)
    s = rng.choice([0.5, 1.0, 3.0], size=400) if kind == "weighted" else None
    if kind == "late" and made is op.ForestClassifier:
        y[:150] = np.minimum(y[:150], 1)
    if kind == "several" and made is op.ForestRegressor:
        y = np.column_stack([y, X[:, 0] - y])
        y[np.isnan(y)] = 0.0
    options = {"trees": 2, "seed": int(rng.integers(100))}
    compiled = made(**options)
    expected = compiled.test_then_train(X, y, s)
    with in_python():
        plain = made(**options)
        predictions = plain.test_then_train(X, y, s)
        again = plain.predict(X[:50])
    assert_allclose(predictions[1:].astype(float), expected[1:].astype(float), rtol=1e-9)
    assert_allclose(again, compiled.predict(X[:50]), rtol=1e-9)
    assert_allclose(plain.forest_, compiled.forest_, rtol=1e-6, atol=1e-6)


def test_targets_of_single_rows_are_validated() -> None:
    model = op.ForestRegressor().partial_fit(np.eye(3), [1.0, 2.0, 3.0]).learn_one([0, 0, 1], 3.0)
    before = model.forest_.copy()
    for bad in (np.nan, float("nan"), float("inf"), 10**400):
        with pytest.raises(OnepassError):
            model.learn_one([0.0, 1.0, 0.0], bad)
    assert_array_equal(model.forest_, before)


@pytest.mark.parametrize("c", [1, 2])
def test_single_rows_of_several_outputs(c: int, rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(60, c))
    one, many = op.ForestRegressor(), op.ForestRegressor()
    expected = many.test_then_train(X, Y)
    for x, y, p in zip(X, Y, expected, strict=True):
        assert_allclose(np.broadcast_to(one.predict_one(x), c), p, rtol=1e-9)
        one.learn_one(x, y)
    assert_array_equal(one.forest_, many.forest_)
    with pytest.raises(ShapeError):
        one.learn_one(X[0], 1.0)


def test_an_error_in_a_later_part_of_a_block_changes_nothing() -> None:
    X, s = np.ones((9, 2)), np.array([1.0] * 5 + [0.0] + [1.0] * 3)
    model = op.ForestRegressor().partial_fit(X, np.arange(9.0))
    before = model.forest_.copy()
    X[8, 0] = 1e120
    with pytest.raises(NumericalError):
        model.test_then_train(X, np.arange(9.0), s)
    assert_array_equal(model.forest_, before)


def test_copies_do_not_change(rng: np.random.Generator) -> None:
    X, y = stream(rng, 600, 4, classes=3)
    model = op.ForestClassifier().partial_fit(X[:300], y[:300]).learn_one(X[300], y[300])
    frozen, before = model.frozen_copy(), model.predict_proba(X)
    model.learn_one(X[301], y[301])
    model.partial_fit(X[302:], y[302:])
    assert_array_equal(frozen.predict_proba(X), before)
    assert (model.predict_proba(X) != before).any()


@pytest.mark.parametrize("slot", ["draws", "leaves", "blocks", "nodes"])
def test_damaged_vectors_are_refused(slot: str, rng: np.random.Generator) -> None:
    X, y = stream(rng, 800, 4, classes=3)
    vector = op.ForestClassifier(2).partial_fit(X, y).forest_.copy()
    assert forest_vector.is_sound(vector, 4, 3, 0)
    forest_vector.Parts(vector).trees[slot][:] = 2.0**53
    assert not forest_vector.is_sound(vector, 4, 3, 0)
    assert not forest_vector.is_sound(vector[:-1], 4, 3, 0)


@pytest.mark.parametrize("made", CLASSES)
def test_blocks_equal_single_rows_bit_for_bit(made: Any, rng: np.random.Generator) -> None:
    X, y = stream(rng, 1500, 6, classes=5 if made is op.ForestClassifier else 0)
    if made is op.ForestClassifier:
        y[:300] = 7 - y[:300]  # classes begin late
    s = rng.choice([0.5, 1.0, 2.0], size=len(X))
    one, many = made(max_bytes=3e5), made(max_bytes=3e5)
    for x, target, weight in zip(X, y, s, strict=True):
        one.learn_one(x, target, float(weight))
    for part in parts(rng, len(X)):
        many.partial_fit(X[part], y[part], sample_weight=s[part])
    assert_array_equal(one.forest_, many.forest_)
    assert_allclose(one.predict(X[:100]), many.predict(X[:100]), rtol=1e-12)
    assert one.rows_seen_ == len(X)
    assert one.nbytes < 4e5


@pytest.mark.parametrize("made", CLASSES)
def test_units_of_columns_do_not_matter(made: Any, rng: np.random.Generator) -> None:
    X, y = stream(rng, 1000, 5, classes=2 if made is op.ForestClassifier else 0)
    scale = 2.0 ** rng.integers(-30, 30, size=5)
    one, two = (made().test_then_train(Z, y)[1:] for Z in (X, X * scale))
    if made is op.ForestClassifier:
        assert np.mean(one != two) < 0.01
    else:
        assert np.median(np.abs(one - two)) < 1e-6


def test_units_of_targets_do_not_matter(rng: np.random.Generator) -> None:
    X, y = stream(rng, 1000, 5, classes=0)
    one = op.ForestRegressor().test_then_train(X, y)
    two = op.ForestRegressor().test_then_train(X, y * 2.0**-27)
    assert np.median(np.abs(one[1:] - two[1:] * 2.0**27)) < 1e-6


@pytest.mark.parametrize("made", CLASSES)
def test_the_size_is_bounded(made: Any, rng: np.random.Generator) -> None:
    X = rng.normal(size=(30_000, 4))
    y = (X[:, 0] * X[:, 1] + X[:, 2] ** 2 > 0.5).astype(int)
    model, sizes = made(max_bytes=2e5), []
    for part in np.split(np.arange(len(X)), 10):
        model.partial_fit(X[part], y[part])
        sizes.append(model.nbytes)
    assert max(sizes) < 2.1e5
    assert sizes[-1] == sizes[-3]
    assert len(set(model.n_leaves_.tolist())) == 1  # all trees have reached the bound


def test_new_classes_make_leaves_larger_within_the_bound(rng: np.random.Generator) -> None:
    y = np.repeat(np.arange(40), 300)
    X = rng.normal(size=(len(y), 6)) + 2.0 * rng.normal(size=(40, 6))[y]
    model = op.ForestClassifier(max_bytes=3e5)
    for part in np.split(np.arange(len(y)), 40):
        model.partial_fit(X[part], y[part])
        assert model.nbytes < 3.2e5
    assert np.mean(model.predict(X[-100:]) == 39) > 0.9


def test_many_classes(rng: np.random.Generator) -> None:
    y = rng.integers(0, 100, size=6000)
    X = 2.0 * rng.normal(size=(100, 10))[y] + rng.normal(size=(6000, 10))
    names = np.array([f"class {k}" for k in range(100)])
    correct = op.ForestClassifier().test_then_train(X, names[y]) == names[y]
    assert correct[3000:].mean() > 0.7


def test_digits() -> None:
    X, y = load_digits(return_X_y=True)
    model = op.ForestClassifier()
    correct = model.test_then_train(X, y) == y
    assert correct.mean() > 0.85
    P = model.predict_proba(X)
    assert_allclose(P.sum(axis=1), 1.0)
    assert np.mean(-np.log(P[np.arange(len(y)), y])) < 0.3


def test_trees_follow_a_change(rng: np.random.Generator) -> None:
    X = rng.normal(size=(6000, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    y[3000:] = 1 - y[3000:]
    correct = op.ForestClassifier().test_then_train(X, y) == y
    assert correct[2000:3000].mean() > 0.85
    assert correct[5000:].mean() > 0.85


def test_piecewise_linear_target(rng: np.random.Generator) -> None:
    X = rng.uniform(-1, 1, size=(5000, 3))
    y = np.where(X[:, 0] > 0, 3 * X[:, 1] + 1, X[:, 2] - 2 * X[:, 1]) + 0.05 * rng.normal(size=5000)
    error = np.abs(op.ForestRegressor().test_then_train(X, y) - y)[3000:].mean()
    plane = np.abs(op.RLSRegressor().test_then_train(X, y) - y)[3000:].mean()
    assert error < 0.3 * plane


def test_several_outputs_and_a_level_far_from_zero(rng: np.random.Generator) -> None:
    X, y = stream(rng, 3000, 5, classes=0)
    Y = np.column_stack([y, 1e8 + 1e-3 * y])
    error = np.abs(op.ForestRegressor().test_then_train(X, Y) - Y)[1500:].mean(axis=0)
    mean = np.abs(Y - Y.mean(axis=0)).mean(axis=0)
    assert (error < 0.9 * mean).all()


@pytest.mark.parametrize("made", CLASSES)
def test_constant_missing_and_single_valued_rows(made: Any) -> None:
    n = 300
    for X in (np.full((n, 3), np.nan), np.ones((n, 3)), np.zeros((n, 1))):
        y = np.ones(n, dtype=int)
        model = made()
        found = model.test_then_train(X, y)
        assert_allclose(found[1:].astype(float), 1.0, rtol=1e-9)
        assert_allclose(model.predict(X), 1.0, rtol=1e-9)


@pytest.mark.parametrize("made", CLASSES)
def test_missing_values_are_informative(made: Any, rng: np.random.Generator) -> None:
    X = rng.normal(size=(4000, 2))
    y = (rng.random(4000) < 0.5).astype(int)
    X[y == 1, 0] = np.nan
    found = made().test_then_train(X, y)[3000:].astype(float)
    assert np.abs(found - y[3000:]).mean() < 0.05


def test_feature_importances(rng: np.random.Generator) -> None:
    X = rng.normal(size=(3000, 5))
    model = op.ForestClassifier().partial_fit(X, (X[:, 3] > 0).astype(int))
    assert model.feature_importances_.argmax() == 3
    assert_allclose(model.feature_importances_.sum(), 1.0)


@pytest.mark.parametrize("made", CLASSES)
def test_values_too_large_to_square_are_errors(made: Any) -> None:
    model = made().partial_fit(np.ones((3, 2)), [0, 1, 0])
    before = model.forest_.copy()
    with raises(NumericalError, got="values up to 1e+120"):
        model.partial_fit([[1.0, 1e120]], [1])
    with raises(NumericalError, got="values up to 1e+120"):
        model.learn_one([1.0, 1e120], 1)
    assert_array_equal(model.forest_, before)


def test_forests_are_not_merged() -> None:
    models = [op.ForestRegressor().partial_fit(np.eye(3), [1.0, 2.0, 3.0]) for _ in "ab"]
    with pytest.raises(MergeError, match="average the predictions"):
        models[0].merge(models[1])


@pytest.mark.parametrize("made", CLASSES)
def test_columns_may_come_late(made: Any, rng: np.random.Generator) -> None:
    X, y = stream(rng, 1200, 40, classes=3 if made is op.ForestClassifier else 0)
    model = made().partial_fit(X[:600, :3], y[:600]).grow(40)
    found = model.test_then_train(X[600:], y[600:])
    assert model.n_features_in_ == 40
    assert np.isfinite(found.astype(float)).all()
    tested = forest_vector.Parts(model.forest_).K
    assert tested == (24 if made is op.ForestRegressor else 7)
