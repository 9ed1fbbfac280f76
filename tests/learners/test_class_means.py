"""NearestClassMean and the moments of classes against batch means."""

import copy
import pickle
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.neighbors import NearestCentroid

import onepass as op
from onepass import native
from onepass.errors import NumericalError, ParameterError
from onepass.learners.class_means import Moments
from raising import raises

few_examples = settings(max_examples=25, deadline=None, derandomize=True)


def stream(seed: int, n: int = 60, d: int = 5, c: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Rows of c classes apart from each other."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, c, n)
    y[:c] = np.arange(c)
    return rng.normal(size=(n, d)) * np.geomspace(0.1, 10.0, d) + y[:, None], y


@few_examples
@given(seed=st.integers(0, 2**31), offset=st.sampled_from([0.0, 1e8, -3e12]))
def test_moments_equal_batch_moments(seed: int, offset: float) -> None:
    X, y = stream(seed)
    X = X + offset
    rng = np.random.default_rng(seed)
    s = rng.choice([0.5, 1.0, 3.0], len(X))
    order, cuts = rng.permutation(len(X)), np.sort(rng.integers(0, len(X), 5))
    moments = Moments.start(5, 4, "each")
    for rows in np.split(order, cuts):
        if len(rows):
            moments = moments.updated(X[rows], y[rows], s[rows])
    exact = X - offset  # no rounding: both have the same last digits
    for k in range(4):
        u, Z = s[y == k], exact[y == k]
        mean = u @ Z / u.sum()
        found = (moments.origins[k] - offset) + moments.offsets[k]
        np.testing.assert_allclose(found, mean, rtol=0, atol=1e-12 * np.abs(exact).max())
        squares = (Z - mean).T @ (u[:, None] * (Z - mean))
        np.testing.assert_allclose(moments.sums[k], squares, rtol=1e-9, atol=1e-9)
        assert moments.mass[k] == u.sum()


def test_predictions_equal_scikit_learn_nearest_centroid() -> None:
    X, y = stream(1, n=300)
    model = op.NearestClassMean()
    for rows in np.array_split(np.arange(300), 17):
        model.partial_fit(X[rows], y[rows])
    whole = NearestCentroid().fit(X, y)
    np.testing.assert_allclose(model.means_, whole.centroids_, rtol=0, atol=1e-13)
    assert model.predict(X).tolist() == whole.predict(X).tolist()
    scores = model.decision_function(X)
    distances = np.square(X[:, None] - whole.centroids_).sum(axis=2)
    apart = scores + 0.5 * distances  # the same for all classes
    np.testing.assert_allclose(apart - apart[:, :1], 0.0, atol=1e-10)


def test_cosine_metric_is_cosine_similarity_to_means() -> None:
    X, y = stream(2, n=200)
    model = op.NearestClassMean("cosine").partial_fit(X, y)
    means = np.array([X[y == k].mean(axis=0) for k in range(4)])
    lengths = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(means, axis=1)
    np.testing.assert_allclose(model.decision_function(X), X @ means.T / lengths, atol=1e-13)
    np.testing.assert_array_equal(model.predict(X * 1e200), model.predict(X))
    assert model.decision_function(np.zeros((1, 5))).tolist() == [[0.0] * 4]


def test_integer_weights_equal_repeated_rows() -> None:
    X, y = stream(3)
    s = np.random.default_rng(3).integers(0, 4, len(X))
    weighed = op.NearestClassMean().partial_fit(X, y, sample_weight=s)
    repeated = op.NearestClassMean().partial_fit(np.repeat(X, s, axis=0), np.repeat(y, s))
    np.testing.assert_allclose(weighed.means_, repeated.means_, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(weighed.counts_, repeated.counts_)


def test_early_outlier_retains_precision_of_other_means() -> None:
    X, y = stream(4)
    X[0] = 1e16  # the code of a missing value, perhaps; of class 0
    model = op.NearestClassMean().partial_fit(X, y)
    for k in (1, 2, 3):
        np.testing.assert_allclose(model.means_[k], X[y == k].mean(axis=0), rtol=0, atol=1e-12)


def test_long_stream_by_rows_retains_precision() -> None:
    rng = np.random.default_rng(5)
    X = (1e8 + rng.normal(size=(3000, 2))).astype(np.float64)
    model = op.NearestClassMean()
    for x in X:
        model.learn_one(x, 0)
    np.testing.assert_allclose(model.means_[0] - 1e8, (X - 1e8).mean(axis=0), rtol=0, atol=2e-8)


def test_class_without_rows_is_never_predicted() -> None:
    model = op.NearestClassMean(classes=["a", "b", "c"]).partial_fit([[1.0], [5.0]], ["a", "b"])
    assert model.predict([[-1e300], [0.0], [1e300]]).tolist() == ["a", "a", "b"]
    assert model.means_.tolist() == [[1.0], [5.0], [0.0]]
    assert model.counts_.tolist() == [1.0, 1.0, 0.0]
    assert np.isfinite(model.decision_function([[0.0]])).all()


def test_merge_unites_feature_names_and_classes() -> None:
    one = op.NearestClassMean().learn_one({"a": 1.0, "b": 2.0}, "x")
    two = (
        op.NearestClassMean().learn_one({"b": 4.0, "c": 6.0}, "x").learn_one({"b": 0, "c": 1}, "y")
    )
    one.merge(two)
    assert one.feature_names_in_.tolist() == ["a", "b", "c"]
    assert one.means_.tolist() == [[0.5, 3.0, 3.0], [0.0, 0.0, 1.0]]


def test_invalid_metric_and_overflow_are_refused() -> None:
    with raises(ParameterError, argument="metric", got="'l1'"):
        op.NearestClassMean("l1").partial_fit([[1.0]], [0])
    model = op.NearestClassMean().partial_fit([[1.0]], [0])
    with raises(NumericalError, got="values up to 1e+200"):
        model.partial_fit([[1e200]], [0])
    assert model.means_.tolist() == [[1.0]]
    model.set_params(metric="l1")
    with raises(ParameterError, argument="metric"):
        model.predict([[1.0]])


MODELS = [
    op.NearestClassMean(),
    op.NearestClassMean("cosine"),
    op.StreamingLDA(),
    op.StreamingLDA("oas"),
    op.StreamingLDA(0.1, target="variance", priors="uniform"),
    op.StreamingQDA(),
    op.StreamingQDA(0.0),
]


def measured(rng: np.random.Generator, n: int, d: int, c: int) -> tuple[np.ndarray, list[str]]:
    """Smooth, correlated rows far from 0, of named classes in blocks of time."""
    walk = np.cumsum(rng.normal(size=(n, d)), axis=0) * 0.05
    y = np.sort(rng.integers(0, c, n))[(np.arange(n) * 7) % n]
    mixing = np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d)
    X = (rng.normal(size=(n, d)) + walk) @ mixing + 3.0 * rng.normal(size=(c, d))[y] + 100.0
    return X, [f"class {k}" for k in y.tolist()]


def learned_by_rows(model: Any, X: np.ndarray, y: list[str]) -> Any:
    """Learn rows as arrays, lists and tuples."""
    kinds: list[Any] = [lambda x: x, np.ndarray.tolist, lambda x: tuple(x.tolist())]
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        model.learn_one(kinds[i % 3](x), label, 1.0 + (i % 4 == 0))
    return model


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize(("d", "c"), [(1, 2), (3, 2), (8, 3), (17, 5), (40, 10)])
def test_rows_in_place_equal_one_block(
    model: Any, d: int, c: int, rng: np.random.Generator
) -> None:
    X, y = measured(rng, 500, d, c)
    s = 1.0 + (np.arange(500) % 4 == 0)
    block = clone(model).partial_fit(X, y, sample_weight=s)
    rows = learned_by_rows(clone(model), X, y)
    assert (rows._single is not None) == (native.loops is not None)
    assert rows.rows_seen_ == block.rows_seen_ == 500
    np.testing.assert_allclose(rows.moments_.mass, block.moments_.mass)
    np.testing.assert_allclose(rows.means_, block.means_, rtol=1e-13)
    scale = np.abs(block.moments_.vector).max()
    np.testing.assert_allclose(rows.moments_.vector, block.moments_.vector, atol=1e-13 * scale)
    assert [rows.predict_one(x) for x in X[:50]] == block.predict(X[:50]).tolist()
    shares = [list(rows.predict_proba_one(x).values()) for x in X[:50]]
    np.testing.assert_allclose(shares, block.predict_proba(X[:50]), atol=1e-7)


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("d", [1, 7, 8, 9, 70])
def test_compiled_scores_equal_plain_ones(
    model: Any, d: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = measured(rng, 400, d, 4)
    if 0.0 not in {getattr(model, "reg_param", 1.0), getattr(model, "shrinkage", 1.0)}:
        y[:3] = ["of one row", "of two rows", "of two rows"]  # else their covariance is singular
    scores = []
    for loops in (native.loops, None):
        monkeypatch.setattr(native, "loops", loops)
        learner = clone(model).set_params(classes=["none"])
        scores.append(learner.partial_fit(X, y).decision_function(X[:60]))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_copies_do_not_follow_rows_in_place(model: Any, rng: np.random.Generator) -> None:
    X, y = measured(rng, 200, 5, 3)
    learner = learned_by_rows(clone(model), X[:100], y[:100])
    learner.predict(X)
    copies = [
        copy.copy(learner), copy.deepcopy(learner), learner.frozen_copy(),
        pickle.loads(pickle.dumps(learner)),  # noqa: S301  its own
    ]  # fmt: skip
    before = learner.predict_proba(X)
    learned_by_rows(learner, X[100:], y[100:])
    assert not np.array_equal(learner.predict_proba(X), before)
    for twin in copies:
        np.testing.assert_array_equal(twin.predict_proba(X), before)
    whole = learned_by_rows(copies[0], X[100:], y[100:])
    np.testing.assert_array_equal(whole.predict_proba(X), learner.predict_proba(X))


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_rows_out_of_range_leave_rows_in_place_unchanged(
    model: Any, rng: np.random.Generator
) -> None:
    X, y = measured(rng, 60, 3, 2)
    learner = learned_by_rows(clone(model), X, y)
    before = learner.moments_.vector.copy()
    with pytest.raises(NumericalError, match="small enough to square"):
        learner.learn_one([1e200, 0.0, 0.0], y[0])
    with pytest.raises(ValueError, match="NaN"):
        learner.learn_one([np.nan, 0.0, 0.0], y[0])
    learner.learn_one(X[0], y[0], 0.0)
    np.testing.assert_array_equal(learner.moments_.vector, before)
    learner.learn_one([1e120, 0.0, 0.0], y[0])  # on a copy
    assert np.isfinite(learner.decision_function(X)).all()
    assert learner.predict_one(X[0]) in y


def content(learner: Any) -> tuple[Any, ...]:
    """The learned state, as bytes."""
    arrays = learner.moments_.vector, learner.calibration_
    return learner.rows_seen_, *learner.classes_, *(array.tobytes() for array in arrays)


def at_instruction(i: int, action: Any, call: Any) -> bool:
    """Call a function and, at its instruction i, another one; return whether it has so many."""
    left, former, done = iter(range(i)), sys.gettrace(), []

    def trace(frame: Any, event: str, argument: object) -> Any:
        del argument
        frame.f_trace_opcodes = True
        if event == "opcode" and not done and next(left, None) is None:
            done.append(i)
            action()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(former)
    return bool(done)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_row_learned_during_a_prediction(model: Any, rng: np.random.Generator) -> None:
    """At any instruction, where another thread may learn it."""
    X, y = measured(rng, 60, 3, 3)
    learner, i = learned_by_rows(clone(model), X, y), 0

    def learn() -> None:
        learner.learn_one(X[i % 60], y[i % 60])

    while i < 400 and at_instruction(i, learn, lambda: learner.predict_one(X[0])):
        fresh = pickle.loads(pickle.dumps(learner))  # noqa: S301  its own
        np.testing.assert_array_equal(learner.decision_function(X), fresh.decision_function(X))
        i += 1
        learn()
    assert i > 50


@pytest.mark.skipif(native.loops is None, reason="the loops are not built")
@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("copied", ["alone", "shared"])
def test_interrupted_row_is_learned_wholly_or_not_at_all(
    model: Any, copied: str, rng: np.random.Generator
) -> None:
    """After any instruction, where a signal handler may raise an exception."""
    X, y = measured(rng, 40, 3, 3)
    learner = learned_by_rows(clone(model), X[:38], y[:38])

    def prepared() -> Any:
        return learned_by_rows(copy.deepcopy(learner), X[:3], y[:3])

    before, after = content(prepared()), content(prepared().learn_one(X[39], y[39]))
    assert after[0] == before[0] + 1
    for i in range(10_000):
        twin = prepared()
        assert twin._single is not None
        frozen = twin.frozen_copy() if copied == "shared" else None
        try:
            interrupted = at_instruction(i, interrupt, partial(twin.learn_one, X[39], y[39]))
        except KeyboardInterrupt:
            interrupted = True
        assert content(twin) in {before, after}
        assert frozen is None or content(frozen) == before
        if not interrupted:
            break
    assert i > 50


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("size", [1e40, 1e59, 1e61, 1e120])
def test_huge_rows_of_one_class_leave_the_others_unchanged(
    model: Any, size: float, rng: np.random.Generator
) -> None:
    X, y = measured(rng, 200, 4, 3)
    huge = np.arange(len(y)) % 9 == 8
    labels = np.array(y)
    labels[huge], X[huge] = "class 1", X[huge] * size / 100
    learner, plain = clone(model), clone(model)
    for rows in np.split(np.arange(200), np.sort(rng.integers(0, 200, 60))):
        before = content(learner) if hasattr(learner, "moments_") else None
        try:
            learner.partial_fit(X[rows], labels[rows])
        except NumericalError:
            assert before is None or content(learner) == before
        plain.partial_fit(X[rows][~huge[rows]], labels[rows][~huge[rows]])
    ours, theirs = learner.moments_, plain.moments_
    assert np.isfinite(ours.vector).all()
    others = learner.classes_ != "class 1"
    for part in ("rows", "mass", "means", *(["sums"] if model._covariance_type == "each" else [])):
        one, two = getattr(ours, part)[others], getattr(theirs, part)[others]
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def test_copy_shares_moments_until_the_next_row(rng: np.random.Generator) -> None:
    X, y = measured(rng, 50, 4, 2)
    learner = learned_by_rows(op.StreamingQDA(), X, y)
    frozen = learner.frozen_copy()
    assert frozen.moments_.vector is learner.moments_.vector
    learned_by_rows(learner, X[:2], y[:2])
    assert (frozen.rows_seen_, learner.rows_seen_) == (50, 52)


def test_new_class_and_parameter_apply_from_next_row(rng: np.random.Generator) -> None:
    X, y = measured(rng, 120, 4, 2)
    learner = learned_by_rows(op.StreamingLDA(), X, y)
    learner.learn_one(X[0], "another")
    learner.learn_one(X[1], "another")
    assert learner.counts_.sum() == 120 + 30 + 2
    learner.set_params(priors="uniform")
    np.testing.assert_allclose(learner.priors_, 1 / 3)
    learner.shrinkage = 2.0
    with pytest.raises(ParameterError, match="`shrinkage`"):
        learner.learn_one(X[0], y[0])
