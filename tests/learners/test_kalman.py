"""Kalman regression against dense and square-root filters, batch solutions and recursive least
squares."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass import native
from onepass.errors import MergeError, NotFiniteError, NumericalError, ParameterError
from oracles import kalman_dense, kalman_square_root
from raising import raises

N = 120

compiled_or_not = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])


@pytest.fixture(autouse=True)
def _without_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("compiled") is False:
        monkeypatch.setattr(native, "loops", None)


def moving(n: int = N, p: int = 4, seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows, targets, and the weights of a random walk."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.geomspace(0.3, 3.0, p)
    w = rng.normal(size=p) + np.cumsum(0.2 * rng.normal(size=(n, p)), axis=0)
    return X, (X * w).sum(axis=1) + 0.5 * rng.normal(size=n), w


def rotation(p: int) -> Any:
    """A stable transition without zeros."""
    Q, _ = np.linalg.qr(np.random.default_rng(9).normal(size=(p, p)))
    return 0.99 * Q


def covariance(p: int) -> Any:
    A = np.random.default_rng(8).normal(size=(p, p))
    return 0.05 * A @ A.T


def close(one: Any, two: Any, tolerance: float = 1e-9) -> None:
    scale = max(1.0, float(np.abs(two).max(initial=0.0)))
    np.testing.assert_allclose(one, two, rtol=0, atol=tolerance * scale)


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "fixed": lambda _: {"process_noise": 0.0},
    "walk": lambda _: {"process_noise": 0.04},
    "each": lambda p: {"process_noise": np.geomspace(1e-4, 1.0, p)},
    "matrix": lambda p: {"process_noise": covariance(p)},
    "transition": lambda p: {"process_noise": 0.01, "transition": rotation(p)},
    "diagonal": lambda p: {
        "process_noise": np.arange(p) % 2.0,
        "transition": np.diag(np.linspace(0.5, 1.0, p)),
    },
    "upper": lambda p: {"process_noise": covariance(p), "transition": np.triu(rotation(p))},
    "singular": lambda p: {
        "process_noise": np.ones((p, p)),
        "transition": np.diag(np.arange(p) > 0.0),
    },
    "known": lambda p: {
        "process_noise": 0.0, "transition": np.eye(p),
        "prior_variance": np.diag(np.arange(p) % 2.0 + np.eye(p)[0]),
    },
    "prior": lambda p: {"process_noise": 0.01, "prior_variance": covariance(p)},
    "discount": lambda p: {"process_noise": 0.01, "forgetting": 0.95, "transition": rotation(p)},
}  # fmt: skip


def dense(params: dict[str, Any], X: Any, y: Any, r: Any, w: Any) -> Any:
    p = X.shape[1]

    def matrix(value: Any) -> Any:
        return value if np.ndim(value) == 2 else np.eye(p) * value

    return kalman_dense(
        X, y, params.get("transition", np.eye(p)), matrix(params["process_noise"]), r,
        matrix(params.get("prior_variance", 10.0)), w, params.get("forgetting", 1.0),
    )  # fmt: skip


@compiled_or_not
@pytest.mark.parametrize("case", CASES)
def test_filter_equals_dense_filter(case: str, *, compiled: bool) -> None:
    del compiled
    X, y, _ = moving()
    params = {"prior_variance": 10.0, **CASES[case](4)}
    start = np.array([1.0, 0.0, -1.0, 2.0])
    s = np.random.default_rng(1).choice([0.5, 1.0, 2.0], size=N)
    model = op.KalmanRegressor(noise=0.25, fit_intercept=False, initial_coef=start, **params)
    predictions = model.test_then_train(X, y, s)
    w, P, expected, _ = dense(params, X, y, 0.25 / s, start)
    close(predictions, expected)
    close(model.coef_, w)
    close(model.covariance_, P)
    close(model.coef_std_, np.sqrt(np.diagonal(P)))
    # the next row, as of a filter that also learns it
    _, _, after, S = dense(
        params, np.vstack((X, X[:1])), np.r_[y, 0.0], 0.25 / np.r_[s, 1.0], start
    )
    mean, std = model.predict(X[:1], return_std=True)
    close([mean[0], std[0]], [after[-1], np.sqrt(S[-1])])


@pytest.mark.parametrize("case", ["walk", "matrix", "transition", "upper"])
@pytest.mark.parametrize("p", [1, 7, 8, 9, 40])
def test_filter_of_any_number_of_weights_equals_dense_filter(p: int, case: str) -> None:
    X, y, _ = moving(40, p)
    params = {"prior_variance": 10.0, **CASES[case](p)}
    model = op.KalmanRegressor(noise=0.25, fit_intercept=False, **params)
    predictions = model.test_then_train(X, y)
    w, P, expected, _ = dense(params, X, y, 0.25 * np.ones(len(X)), np.zeros(p))
    close(predictions, expected)
    close(model.coef_, w)
    close(model.covariance_, P)


@compiled_or_not
@pytest.mark.parametrize("in_place", [True, False])
def test_parameters_may_change_between_rows(*, in_place: bool, compiled: bool) -> None:
    del compiled
    X, y, _ = moving()
    F, Q = np.zeros((4, 4)), np.zeros((4, 4))
    model = op.KalmanRegressor(Q, 0.25, 10.0, transition=F, fit_intercept=False)
    w, P = np.zeros(4), 10.0 * np.eye(4)
    for i, (x, target) in enumerate(zip(X, y.tolist(), strict=True)):
        if not in_place:
            F, Q = F.copy(), Q.copy()
            model.set_params(transition=F, process_noise=Q)
        F[...], Q[...] = (i % 3 + 1) / 4 * rotation(4), i % 2 * covariance(4)
        w, P, expected, _ = kalman_dense(x[None], [target], F, Q, np.array([0.25]), P, w)
        if i:
            close(model.predict_one(x), expected[0])
        close(model.learn_one(x, target).coef_, w)
    close(model.covariance_, P)


@compiled_or_not
def test_ill_conditioned_filter_equals_square_root_filter(*, compiled: bool) -> None:
    """The dense covariance is not positive definite here: the condition of P is 1e20."""
    del compiled
    X, y, _ = moving()
    X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
    Q = np.diag([0.0, 1e-8, 1e-2, 1e-4])
    model = op.KalmanRegressor(np.diagonal(Q), 1e-8, 1e12, fit_intercept=False).fit(X, y)
    w, R = kalman_square_root(X, y, np.eye(4), Q, 1e-8, 1e12 * np.eye(4), np.zeros(4))
    close(X @ model.coef_, X @ w, 1e-6)
    close(model.coef_std_, np.sqrt((R**2).sum(axis=0)), 1e-6)


def test_filter_equals_batch_smoother_at_the_last_row() -> None:
    """The filter is the last block of the least-squares solution for all weights w_1, …, w_n."""
    X, y, _ = moving(30)
    n, p = X.shape
    q, r, prior = 0.04, 0.25, 5.0
    A = np.zeros((n * p + n, n * p))
    b = np.concatenate((np.zeros(n * p), y / np.sqrt(r)))
    A[: n * p] = np.eye(n * p) / np.sqrt(q) - np.eye(n * p, k=-p) / np.sqrt(q)
    A[:p, :p] = np.eye(p) / np.sqrt(prior + q)
    for i in range(n):
        A[n * p + i, i * p : (i + 1) * p] = X[i] / np.sqrt(r)
    expected = np.linalg.lstsq(A, b, rcond=None)[0][-p:]
    close(op.KalmanRegressor(q, r, prior, fit_intercept=False).fit(X, y).coef_, expected)


@pytest.mark.parametrize("factor", [1.0, 0.97])
def test_forgetting_equals_recursive_least_squares(factor: float) -> None:
    X, y, _ = moving()
    rule = op.forgetting.Exponential(factor)
    rls = op.RLSRegressor(ridge=0.1, forgetting=rule, fit_intercept=False)
    model = op.KalmanRegressor(0.0, 1.0, 10.0, forgetting=factor, fit_intercept=False)
    close(model.test_then_train(X, y), rls.test_then_train(X, y))
    close(model.coef_, rls.coef_)


def test_estimated_noise_is_that_of_the_normalised_innovations() -> None:
    """With noise r, process noise q r and prior v r give the same weights for every r."""
    X, y, _ = moving()
    auto = op.KalmanRegressor(0.1, "auto", 10.0, fit_intercept=False)
    predictions = auto.test_then_train(X, y)
    _, P, expected, S = kalman_dense(
        X, y, np.eye(4), 0.1 * np.eye(4), 1.0, 10.0 * np.eye(4), 0 * X[0]
    )
    close(predictions, expected)
    total = float(((y - expected) ** 2 / S).sum())
    close(auto.noise_, total / N)
    close(auto.covariance_, P * total / (N - 2))
    given = op.KalmanRegressor(
        0.1 * auto.noise_, auto.noise_, 10.0 * auto.noise_, fit_intercept=False
    )
    close(given.test_then_train(X, y), predictions)
    close(given.fit(X, y).noise_, auto.noise_)


def test_noises_are_estimated_from_a_simulated_stream() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6000, 3))
    w = np.cumsum(0.5 * rng.normal(size=X.shape), axis=0)
    y = (X * w).sum(axis=1) + 2.0 * rng.normal(size=6000)
    model = op.KalmanRegressor(fit_intercept=False)
    error = y - model.test_then_train(X, y)
    assert model.process_noise_ == pytest.approx(0.0625)  # the true value, 0.25 / 4
    assert model.noise_ == pytest.approx(4.0, rel=0.1)
    best = op.KalmanRegressor(0.25, 4.0, fit_intercept=False).test_then_train(X, y)
    assert np.square(error).mean() < 1.01 * np.square(y - best).mean()
    _, std = model.predict(X[:500], return_std=True)
    assert 0.8 < np.median(std) / np.std(error[-500:]) < 1.2


def test_mixture_of_one_leading_expert_predicts_as_that_expert() -> None:
    X, y, _ = moving(400)
    model = op.KalmanRegressor().fit(X, y)
    shares = model._shares
    close(shares.sum(axis=0), 1.0)
    close(model.predict(X), X @ model.coef_ + model.intercept_)
    experts = [
        op.KalmanRegressor(q).fit(X, y).predict(X) for q in op.learners.kalman.PROCESS_NOISES
    ]
    close(model.predict(X), shares[:, 0] @ np.array(experts))


# -- missing targets -------------------------------------------------------------------------------


@compiled_or_not
@pytest.mark.parametrize("q", [0.05, "auto"])
def test_missing_targets_advance_time(q: Any, *, compiled: bool) -> None:
    del compiled
    X, y, _ = moving()
    gaps = np.random.default_rng(2).random(N) < 0.3
    y = np.where(gaps, np.nan, y)
    model = op.KalmanRegressor(q, 0.25, 10.0, fit_intercept=False, missing="advance")
    predictions = model.test_then_train(X, y)
    assert np.isfinite(predictions).all()
    assert model.rows_seen_ == N
    rows = op.KalmanRegressor(q, 0.25, 10.0, fit_intercept=False, missing="advance")
    for i in range(N):
        close(rows.predict_one(X[i]), predictions[i])
        rows.learn_one(X[i], y[i])
    if q != "auto":
        w, P, expected, _ = kalman_dense(
            X, y, np.eye(4), q * np.eye(4), 0.25, 10.0 * np.eye(4), np.zeros(4)
        )
        close(predictions, expected)
        close(model.coef_, w)
        close(model.covariance_, P)


@compiled_or_not
@pytest.mark.parametrize("q", [0.05, "auto"])
@pytest.mark.parametrize("cut", [0, 7, 60])
def test_outputs_can_be_missing_separately(q: Any, cut: int, *, compiled: bool) -> None:
    del compiled
    X, y, _ = moving()
    Y = np.column_stack((y, y[::-1], X[:, 0]))
    Y[10:30, 0] = Y[20:50, 1] = Y[25, 2] = np.nan
    model = op.KalmanRegressor(q, missing="advance")
    predictions = np.vstack(
        [model.test_then_train(X[a:b], Y[a:b]) for a, b in ((0, cut), (cut, N)) if b > a]
    )
    means, stds = model.predict(X, return_std=True)
    for j in range(3):
        alone = op.KalmanRegressor(q, missing="advance")
        close(predictions[:, j], alone.test_then_train(X, Y[:, j]))
        mean, std = alone.predict(X, return_std=True)
        close(means[:, j], mean)
        close(stds[:, j], std)
        close(model.covariance_[j], alone.covariance_, 1e-8)


def test_missing_targets_are_refused_by_default() -> None:
    X, y, _ = moving()
    y[5] = np.nan
    with raises(NotFiniteError, argument="y", row=5):
        op.KalmanRegressor().fit(X, y)
    with pytest.raises(NotFiniteError):
        op.KalmanRegressor(missing="advance").fit(X, np.where(np.isnan(y), np.inf, y))


@compiled_or_not
def test_single_precision_rows_are_learned(*, compiled: bool) -> None:
    del compiled
    X, y, s = (each.astype(np.float32) for each in (*moving()[:2], np.linspace(0.5, 2.0, N)))
    single = op.KalmanRegressor().fit(X, y, sample_weight=s)
    double = op.KalmanRegressor().fit(*map(np.float64, (X, y)), sample_weight=np.float64(s))
    np.testing.assert_array_equal(single.coef_, double.coef_)


# -- blocks, growth, errors ------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), cut=st.integers(1, N - 1), case=st.sampled_from(sorted(CASES)))
def test_blocks_do_not_matter(seed: int, cut: int, case: str) -> None:
    X, y, _ = moving(seed=seed)
    params = {"noise": 0.25, "fit_intercept": False, **CASES[case](4)}
    one, two = op.KalmanRegressor(**params), op.KalmanRegressor(**params)
    together = one.test_then_train(X, y)
    parts = [two.test_then_train(X[:cut], y[:cut]), two.test_then_train(X[cut:], y[cut:])]
    np.testing.assert_array_equal(np.concatenate(parts), together)


@pytest.mark.parametrize("q", [0.05, "auto"])
@pytest.mark.parametrize("first", [True, False])
def test_single_rows_equal_blocks(q: Any, *, first: bool) -> None:
    X, y, _ = moving()
    block, single = (op.KalmanRegressor(q, fit_intercept=first) for _ in range(2))
    block.fit(X, y)
    for x, target in zip(X, y.tolist(), strict=True):
        single.learn_one(x, target)
    close(single.predict(X, return_std=True), block.predict(X, return_std=True))
    assert single.rows_seen_ == N
    close(single.noise_, block.noise_)


def test_compiled_loop_equals_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.loops is None:
        pytest.skip("the compiled loops are not installed")
    X, y, _ = moving()
    ours = op.KalmanRegressor(forgetting=0.99).fit(X, y)
    monkeypatch.setattr(native, "loops", None)
    plain = op.KalmanRegressor(forgetting=0.99).fit(X, y)
    close(ours.coef_, plain.coef_)
    close(ours.covariance_, plain.covariance_)


@compiled_or_not
def test_covariance_stays_finite_without_excitation(*, compiled: bool) -> None:
    del compiled
    X = np.zeros((3000, 2))
    X[:, 0] = np.random.default_rng(0).normal(size=3000)
    model = op.KalmanRegressor(0.0, forgetting=0.5, fit_intercept=False).fit(X, X[:, 0])
    assert np.isfinite(model.covariance_).all()
    X[-1, 1] = 1.0
    model.partial_fit(X[-1:], [2.0])
    assert np.isfinite(model.coef_).all()


def test_unstable_transition_raises_an_error() -> None:
    X, y, _ = moving()
    model = op.KalmanRegressor(
        0.1, 1.0, transition=1e4 * np.eye(4), fit_intercept=False, initial_coef=np.ones(4)
    )
    with raises(NumericalError, remedy="eigenvalues"):
        model.fit(X[:, :4] * 0.0, y)


def test_growth_equals_zero_features_with_forgetting() -> None:
    X, y, _ = moving()
    X[:60, 2:] = 0.0
    cases: list[dict[str, Any]] = [
        {"process_noise": 0.1},
        {"process_noise": 0.0, "forgetting": 0.9},
        {},
    ]
    for params in cases:
        whole = op.KalmanRegressor(**params).fit(X, y)
        grown = (
            op.KalmanRegressor(**params).fit(X[:60, :2], y[:60]).grow(4).partial_fit(X[60:], y[60:])
        )
        close(grown.coef_, whole.coef_, 1e-8)
    long = op.KalmanRegressor(0.0, forgetting=0.5)
    for _ in range(10):
        long.partial_fit(X, y)
    assert np.isfinite(long.grow(6).covariance_).all()
    with raises(ParameterError, where="KalmanRegressor.grow", remedy="Start a new learner"):
        op.KalmanRegressor(np.ones(5)).fit(X, y).grow(6)


def test_prior_is_predicted_before_the_first_row() -> None:
    model = op.KalmanRegressor(0.5, 2.0, 3.0, fit_intercept=False, initial_coef=[1.0, 2.0])
    mean, std = model.predict_one([1.0, -1.0], return_std=True)
    close([mean, std], [-1.0, np.sqrt(2 * 3.5 + 2.0)])
    assert op.KalmanRegressor().predict_one([1.0], return_std=True) == (0.0, np.inf)


@pytest.mark.parametrize(
    ("params", "argument"),
    [
        ({"noise": 0.0}, "noise"),
        ({"noise": "none"}, "noise"),
        ({"process_noise": -1.0}, "process_noise"),
        ({"process_noise": np.ones(3)}, "process_noise"),
        ({"process_noise": [[0.0, 1.0, 0, 0, 0]] * 5}, "process_noise"),
        ({"process_noise": np.diag([1.0, 1.0, 1.0, 1.0, -1.0])}, "process_noise"),
        ({"prior_variance": "large"}, "prior_variance"),
        ({"transition": np.eye(4)}, "transition"),
        ({"forgetting": 1.1}, "forgetting"),
        ({"missing": "skip"}, "missing"),
    ],
)
def test_invalid_parameters_are_refused(params: dict[str, Any], argument: str) -> None:
    X, y, _ = moving()
    model = op.KalmanRegressor(**params)
    with raises(ParameterError, where="KalmanRegressor.fit", argument=argument):
        model.fit(X, y)
    assert not hasattr(model, "factors_")


def test_kind_of_process_noise_must_stay() -> None:
    X, y, _ = moving()
    model = op.KalmanRegressor().fit(X, y).set_params(process_noise=0.1)
    with raises(ParameterError, argument="process_noise", remedy="fit to start again"):
        model.partial_fit(X, y)
    model.fit(X, y).set_params(fit_intercept=False)
    with raises(ParameterError, argument="process_noise"):
        model.predict(X)
    with pytest.raises(AttributeError):
        _ = model.process_noise_


def test_merge_is_refused_with_a_reason() -> None:
    X, y, _ = moving()
    with raises(MergeError, got="one whose weights move over time"):
        op.KalmanRegressor().fit(X, y).merge(op.KalmanRegressor().fit(X, y))


def test_pipeline_learns() -> None:
    X, y, _ = moving()
    assert op.models.pipelines(["kalman"], "regression")["kalman"].fit(X, y).predict(X).shape == (
        N,
    )
