"""Summaries without rows, their exact combination, and noise on their sums."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import onepass as op
from onepass.errors import (
    CheckpointError,
    LabelError,
    MergeError,
    NumericalError,
    ParameterError,
)
from onepass.scale import federated
from raising import raises

SITES, N = 5, 400
FEATURES = op.features


def data() -> tuple[Any, Any]:
    """Rows in the order of their targets, so that sites have different rows and classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4)) + 2.0
    y = X @ [1.0, -2.0, 3.0, 0.5] + rng.normal(size=N)
    order = np.argsort(y)
    return X[order], y[order]


def labels(y: Any) -> Any:
    return np.digitize(y, np.quantile(y, [0.25, 0.6]))


ACCEPTED: dict[str, Any] = {
    "rls": op.RLSRegressor(),
    "rls without intercept": op.RLSRegressor(ridge=0.3, fit_intercept=False),
    "rls without ridge": op.RLSRegressor(ridge=0.0),
    "rls classifier": op.RLSClassifier(),
    "nearest class mean": op.NearestClassMean(),
    "lda": op.StreamingLDA(),
    "qda": op.StreamingQDA(),
    "random features": op.Pipeline(FEATURES.RandomReLU(30), op.RLSClassifier(1e-2, prior=0)),
    "encoded": op.Pipeline(
        FEATURES.Encode(), FEATURES.Impute("zero", indicator=True), op.RLSRegressor()
    ),
}


def fitted(kind: str, rows: Any = slice(None)) -> Any:
    X, y = data()
    model = clone(ACCEPTED[kind])
    learner = model.learner if isinstance(model, op.Pipeline) else model
    return model.partial_fit(X[rows], labels(y)[rows] if is_classifier(learner) else y[rows])


def outputs(model: Any) -> Any:
    X, _ = data()
    return model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)


@pytest.mark.parametrize("kind", ACCEPTED)
def test_combined_summaries_equal_one_pass(kind: str) -> None:
    parts = [fitted(kind, slice(i, i + N // SITES)) for i in range(0, N, N // SITES)]
    sent = [federated.summary(part) for part in parts]
    merged, whole = federated.combine(sent), fitted(kind)
    assert merged.rows_seen_ == N
    assert federated.summary(federated.combine(sent)) == federated.summary(merged)
    np.testing.assert_allclose(outputs(merged), outputs(whole), rtol=1e-10, atol=1e-10)
    backwards = federated.combine(sent[::-1])
    np.testing.assert_allclose(outputs(backwards), outputs(whole), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ACCEPTED)
def test_summary_contains_no_value_of_a_row(kind: str) -> None:
    model, (X, y) = fitted(kind), data()
    before = outputs(model)
    sent = federated.summary(model)
    values = X.ravel() if is_classifier(getattr(model, "learner", model)) else [*X.ravel(), *y]
    assert not [value for value in values if np.float64(value).tobytes() in sent]
    assert outputs(model).tobytes() == before.tobytes()


def test_dates_are_sent_without_the_first_one() -> None:
    pd = pytest.importorskip("pandas")
    when = pd.date_range("2024-03-05 06:07:08.123457", periods=50, freq="7h")
    first = np.int64(when[0].value // 1000)
    model = op.Pipeline(FEATURES.Encode(), op.RLSRegressor(1e-3))
    model.partial_fit(pd.DataFrame({"when": when}), np.arange(50.0))
    assert str(first).encode() not in federated.summary(model)


REFUSED: dict[str, tuple[Any, str]] = {
    "window": (op.RLSRegressor(forgetting=op.forgetting.Window(50)), "forgetting=1.0"),
    "floor": (op.RLSRegressor(forgetting=0.99), "forgetting=1.0"),
    "prior": (op.RLSRegressor(prior=1.0), "first row; use prior=0"),
    "prior of random features": (
        op.Pipeline(FEATURES.RandomFourier(20), op.RLSRegressor()), "first row; use prior=0"
    ),
    "orfit": (op.ORFitRegressor(None, noise=0.1), "use RLS"),
    "orfit with rows": (op.ORFitRegressor(op.memory.LastDirections(3)), "use RLS"),
    "weights only": (op.SGDRegressor(), "use RLS"),
    "keys": (op.Keyed(op.RLSRegressor(), by="x0"), "use RLS"),
    "last values": (
        op.Pipeline(FEATURES.Impute("last"), op.RLSRegressor()), "last value of each column"
    ),
    "first date": (
        op.Pipeline(FEATURES.Encode(times=("elapsed",)), op.RLSRegressor()), "first date"
    ),
    "not fitted": (None, "has not learned any rows"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_models_that_store_rows_are_refused(name: str) -> None:
    model, remedy = REFUSED[name]
    X, y = data()
    rows = [dict(zip(("x0", "x1", "x2", "x3"), x, strict=True)) for x in X[:60].round().tolist()]
    if model is None:
        model = op.RLSRegressor()
    else:
        model = clone(model).partial_fit(rows if name == "keys" else X[:60], y[:60])
    with raises(MergeError, where="federated.summary", remedy=remedy):
        federated.summary(model)


def test_fitted_steps_of_a_pipeline_are_not_sent() -> None:
    """A pipeline learns with copies of its steps, and stores the steps themselves, too."""
    X, y = data()
    step = op.StreamingLDA().fit(X, labels(y))
    sent = federated.summary(op.Pipeline(step).fit(X[:60], labels(y)[:60]))
    assert not [value for value in X.ravel() if np.float64(value).tobytes() in sent]
    assert step.rows_seen_ == N


def test_few_rows_without_ridge_are_refused() -> None:
    X, y = data()
    with pytest.raises(MergeError, match=r"single rows.* use a larger ridge"):
        federated.summary(op.RLSRegressor(ridge=0.0).fit(X[:3], y[:3]))


def test_wrong_summaries_are_refused() -> None:
    one, two = (federated.summary(fitted("rls", slice(i, i + 50))) for i in (0, 50))
    with raises(
        ParameterError, where="federated.combine: summary 2", got="the bytes of summary 0 again"
    ):
        federated.combine([one, two, one])
    with raises(ParameterError, argument="summaries"):
        federated.combine([])
    assert federated.combine([bytearray(one), memoryview(two)]).rows_seen_ == 100
    with pytest.raises(CheckpointError, match=r"federated\.combine: summary 1"):
        federated.combine([one, two[:-1]])
    with raises(
        MergeError, where="federated.combine: summary 1: RLSRegressor.merge", argument="other"
    ):
        federated.combine([one, federated.summary(fitted("lda"))])


def test_equals_absolute_aggregation_law_of_afl() -> None:
    """The AA law of AFL (arXiv 2405.16240) for pairs of sites, and its RI process at the end."""
    rng = np.random.default_rng(1)
    d, c, gamma = 12, 3, 0.7
    sizes = (5, 40, 8, 30)  # some sites have fewer rows than features
    rows = [rng.normal(size=(n, d)) for n in sizes]
    targets = [rng.normal(size=(n, c)) for n in sizes]
    eye = np.eye(d)
    C = [A.T @ A + gamma * eye for A in rows]  # with the regularisation intermediary
    W = [np.linalg.solve(G, A.T @ Y) for G, A, Y in zip(C, rows, targets, strict=True)]
    C_agg, W_agg = C[0], W[0]
    for C_k, W_k in zip(C[1:], W[1:], strict=True):
        first, second = np.linalg.inv(C_agg), np.linalg.inv(C_k)
        both = np.linalg.inv(C_agg + C_k)
        left = eye - first @ C_k @ (eye - both @ C_k)
        right = eye - second @ C_agg @ (eye - both @ C_agg)
        C_agg, W_agg = C_agg + C_k, left @ W_agg + right @ W_k
    W_law = np.linalg.solve(C_agg - len(rows) * gamma * eye, C_agg @ W_agg)
    model = op.RLSRegressor(ridge=gamma, fit_intercept=False)
    sent = [federated.summary(clone(model).fit(A, Y)) for A, Y in zip(rows, targets, strict=True)]
    ours = federated.combine(sent)  # its ridge counts once
    gram = sum(A.T @ A for A in rows)
    ridged = np.linalg.solve(gram + gamma * eye, gram @ W_law)
    np.testing.assert_allclose(ours.coef_.T, ridged, atol=1e-10)
    whole = np.linalg.lstsq(np.vstack(rows), np.vstack(targets), rcond=None)[0]
    np.testing.assert_allclose(W_law, whole, atol=1e-10)


# -- noise -----------------------------------------------------------------------------------------

BOUNDS: dict[str, Any] = {"delta": 1e-6, "row_norm": 8.0, "target_norm": 20.0}


def private(model: Any = None, rows: Any = slice(None), **changed: Any) -> Any:
    pytest.importorskip("dp_accounting")
    X, y = data()
    blocks = [(X[rows][i : i + 64], y[rows][i : i + 64]) for i in range(0, len(X[rows]), 64)]
    settings = {"epsilon": 1.0, "seed": 0, **BOUNDS, **changed}
    return federated.private(model or op.RLSRegressor(), blocks, **settings)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_the_model_is_that_of_clipped_rows(
    fit_intercept: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federated, "_SENSITIVITY", 1e-12)
    X, y = data()
    model = op.RLSRegressor(ridge=0.1, fit_intercept=fit_intercept)
    noisy = private(model, row_norm=4.0, target_norm=6.0)
    X_clipped = X * np.minimum(1.0, 4.0 / np.linalg.norm(X, axis=1))[:, None]
    whole = clone(model).fit(X_clipped, np.clip(y, -6.0, 6.0))
    assert (np.linalg.norm(X, axis=1) > 4.0).any()
    np.testing.assert_allclose(noisy.coef_, whole.coef_, rtol=1e-8)
    np.testing.assert_allclose(noisy.intercept_, whole.intercept_, rtol=1e-8)
    for ours, theirs in zip(*(m.predict(X, return_std=True) for m in (noisy, whole)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    assert noisy.rows_seen_ == N


def test_noise_has_the_calibrated_size() -> None:
    accounting = pytest.importorskip("dp_accounting")
    sigma = math.sqrt(6.0) * accounting.get_sigma_gaussian(1.0, 1e-6)
    counts = [private(op.RLSRegressor(1e4), seed=seed).rows_seen_ - N for seed in range(200)]
    assert 0.8 * sigma < np.std(counts) < 1.2 * sigma
    assert abs(np.mean(counts)) < 4.0 * sigma / math.sqrt(200)
    epsilon = accounting.get_epsilon_gaussian(sigma / math.sqrt(6.0), 1e-6)
    assert epsilon == pytest.approx(1.0)


def test_sensitivity_of_one_row_is_at_most_root_six() -> None:
    """The worst row has one feature at its bound; no row changes the sums by more."""
    rng = np.random.default_rng(2)
    worst = 0.0
    for _ in range(300):
        x, y = rng.normal(size=3) ** 3, rng.normal(size=2) ** 3
        x, y = x / max(1.0, np.linalg.norm(x)), y / max(1.0, np.linalg.norm(y))
        u = np.append(1.0, x)
        change = [*np.outer(u, u)[np.triu_indices(4)], *np.outer(u, y).ravel(), *y**2]
        worst = max(worst, float(np.linalg.norm(change)))
    assert 2.3 < worst <= math.sqrt(6.0) == federated._SENSITIVITY


def test_model_depends_on_clipped_rows_only() -> None:
    pytest.importorskip("dp_accounting")
    X, y = data()
    settings: dict[str, Any] = {"epsilon": 1.0, "seed": 0, "delta": 1e-6}
    bounds = {"row_norm": 2.0**-9, "target_norm": 2.0**-9}  # all rows are longer
    one, two = (
        federated.private(op.RLSRegressor(), [(X * scale, y * scale)], **settings, **bounds)
        for scale in (1.0, 4.0)
    )
    assert federated.summary(one) == federated.summary(two)


def test_sites_add_their_own_noise_and_combine() -> None:
    model = op.RLSRegressor(ridge=100.0)
    halves = [private(model, slice(i, None, 2), seed=i, epsilon=30.0) for i in range(2)]
    merged = federated.combine(federated.summary(half) for half in halves)
    assert merged.rows_seen_ == halves[0].rows_seen_ + halves[1].rows_seen_
    assert not np.allclose(merged.coef_, halves[0].coef_)
    X, y = data()
    assert np.sqrt(np.mean((merged.predict(X) - y) ** 2)) < 0.6 * y.std()


def test_seed_repeats_the_noise() -> None:
    one, two, other = private(seed=1), private(seed=1), private(seed=2)
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert (one.coef_ != other.coef_).all()
    assert (private(seed=None).coef_ != private(seed=None).coef_).all()


def test_classifier_with_noise_predicts_known_classes() -> None:
    pytest.importorskip("dp_accounting")
    X, y = data()
    model = op.RLSClassifier(ridge=1.0, classes=["high", "low"])
    text = np.where(y > np.median(y), "high", "low")
    settings = {"epsilon": 1e3, "delta": 1e-6, "row_norm": 8.0, "seed": 0}
    noisy = federated.private(model, [(X, text)], **settings)
    assert noisy.score(X, text) > 0.9
    with raises(LabelError, argument="y"):
        federated.private(model, [(X, np.where(y > 0, "high", "other"))], **settings)
    with raises(ParameterError, argument="model"):
        federated.private(op.RLSClassifier(), [(X, text)], **settings)
    with raises(ParameterError, argument="target_norm"):
        federated.private(model, [(X, text)], target_norm=1.0, **settings)


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"row_norm": -1.0}, "row_norm"),
        ({"target_norm": None}, "target_norm"),
        ({"model": op.RLSRegressor(forgetting=0.9)}, "model"),
        ({"model": op.RLSRegressor(prior=1.0)}, "model"),
        ({"model": op.StreamingLDA()}, "model"),
        ({"rows": slice(0, 0)}, "blocks"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_parameters_of_noise_are_refused(changed: dict[str, Any], argument: str) -> None:
    with raises(ParameterError, argument=argument):
        private(**changed)


def test_rows_are_scaled_without_overflow() -> None:
    rows = np.array([[3e300, 4e300], [0.6, 0.8], [3.0, 4.0]])
    expected = [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]]
    np.testing.assert_allclose(federated._clipped(rows, 2.0), expected, rtol=1e-12)
    assert federated._clipped(rows[:0], 2.0).shape == (0, 2)


def test_noise_above_the_number_of_rows_is_an_error() -> None:
    pytest.importorskip("dp_accounting")
    with raises(NumericalError, remedy="Use more rows or"):
        private(op.RLSRegressor(1e3), slice(0, 3), epsilon=1e-3, seed=4)
