"""NearestClassMean and the moments of classes against batch means."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid

import onepass as op
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
        found = (moments.means.origins[k] - offset) + moments.means.offsets[k]
        np.testing.assert_allclose(found, mean, rtol=0, atol=1e-12 * np.abs(exact).max())
        squares = (Z - mean).T @ (u[:, None] * (Z - mean))
        np.testing.assert_allclose(moments.sums[k], squares, rtol=1e-9, atol=1e-9)
        assert moments.means.mass[k] == u.sum()


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
