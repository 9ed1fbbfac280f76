"""SGD against step (4) of the notes and scikit-learn."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier as SklearnClassifier
from sklearn.linear_model import SGDRegressor as SklearnRegressor

from onepass.errors import NotFiniteError, NotFittedError, NumericalError, ParameterError
from onepass.learners.sgd import SGDClassifier, SGDRegressor
from raising import raises

few_examples = settings(max_examples=20, deadline=None, derandomize=True)

REGRESSORS: list[dict[str, Any]] = [
    {},
    {"loss": "absolute", "step": "constant", "step_size": 0.1},
    {"loss": "huber", "huber_delta": 0.5, "step": "decaying", "decay": 0.1, "power": 1.0},
    {"loss": "epsilon-insensitive", "epsilon": 0.2, "noise": 1.0, "l2": 0.1},
    {"step": "normalised"},
    {"loss": "epsilon-insensitive", "step": "pa"},
    {"loss": "epsilon-insensitive", "step": "pa1", "aggressiveness": 0.3},
    {"loss": "epsilon-insensitive", "step": "pa2", "fit_intercept": False},
]
CLASSIFIERS: list[dict[str, Any]] = [
    {},
    {"loss": "logistic", "step": "constant", "l2": 0.1},
    {"loss": "perceptron", "step": "decaying"},
    {"loss": "hinge", "step": "normalised"},
    {"loss": "hinge", "step": "pa"},
    {"loss": "hinge", "step": "pa1", "aggressiveness": 0.1},
    {"loss": "hinge", "step": "pa2", "fit_intercept": False},
]


def random_rows(n: int = 100, d: int = 4, seed: int = 0) -> tuple[Any, Any, Any]:
    """X, real targets with noise, and labels −1 and +1 with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + 0.5 + 0.3 * rng.normal(size=n)
    return X, y, np.where(y + 0.5 * rng.normal(size=n) >= 0, 1, -1)


# -- the step by hand ------------------------------------------------------------------------------


def test_step_equals_equation_4() -> None:
    x, y, eta = np.array([1.0, -2.0]), 3.0, 0.1
    w = np.array([0.5, 0.25])
    model = SGDRegressor(step="constant", step_size=eta, initial_coef=w).learn_one(x, y)
    error = w @ x - y  # the derivative of (wᵀx − y)² / 2 with respect to wᵀx
    assert model.coef_.tolist() == (w - eta * error * x).tolist()
    assert model.intercept_ == -eta * error
    assert w.tolist() == [0.5, 0.25]


def test_decaying_steps_count_rows_of_positive_weight() -> None:
    X, y, _ = random_rows(6)
    s = np.array([1.0, 0.0, 2.0, 0.0, 1.0, 1.0])
    model = SGDRegressor(step="decaying", step_size=0.2, decay=0.5, power=0.7, fit_intercept=False)
    model.partial_fit(X[:3], y[:3], s[:3]).partial_fit(X[3:], y[3:], s[3:])
    w = np.zeros(4)
    for t, i in enumerate(np.flatnonzero(s)):
        w = w - s[i] * 0.2 / (1 + 0.5 * t) ** 0.7 * (w @ X[i] - y[i]) * X[i]
    np.testing.assert_allclose(model.coef_, w, rtol=0, atol=1e-14)
    assert model.steps_ == 4


def test_normalised_step_reduces_error_by_step_size_at_any_scale() -> None:
    X, y, _ = random_rows()
    for scale in (1e-100, 1.0, 1e100):
        model = SGDRegressor(step="normalised", step_size=0.25).partial_fit(X, y)
        x = X[0] * scale
        before = model.predict_one(x)
        after = model.learn_one(x, y[0]).predict_one(x)
        assert y[0] - after == pytest.approx(0.75 * (y[0] - before), rel=1e-6)


def test_l2_and_noise_give_leaky_step() -> None:
    x, y = np.array([3.0, 4.0]), 1.0
    w = np.array([1.0, 1.0])
    model = SGDRegressor(
        step="normalised", step_size=0.5, noise=5.0, l2=0.1, fit_intercept=False, initial_coef=w
    ).learn_one(x, y)
    np.testing.assert_allclose(model.coef_, 0.95 * w - 0.5 * 6.0 / 30.0 * x, rtol=1e-15)


def test_passive_aggressive_steps_equal_crammer_et_al() -> None:
    X, _, y = random_rows()
    C = 0.2
    for step in ("pa", "pa1", "pa2"):
        given = {} if step == "pa" else {"aggressiveness": C}
        model = SGDClassifier("hinge", step=step, fit_intercept=False, classes=[-1, 1], **given)
        model.partial_fit(X, y)
        w = np.zeros(4)
        for x, target in zip(X, y, strict=True):
            loss = max(0.0, 1.0 - target * (w @ x))
            tau = {
                "pa": loss / (x @ x),
                "pa1": min(C, loss / (x @ x)),
                "pa2": loss / (x @ x + 1 / (2 * C)),
            }[step]
            w = w + tau * target * x
        np.testing.assert_allclose(model.coef_[0], w, rtol=0, atol=1e-12)


def test_passive_aggressive_step_fits_row_without_loss() -> None:
    X, real, y = random_rows()
    classifier, regressor = (
        SGDClassifier("hinge", step="pa", classes=[-1, 1]),
        SGDRegressor("epsilon-insensitive", step="pa", epsilon=0.3),
    )
    for x, target, label in zip(X, real, y, strict=True):
        classifier.learn_one(x, label)
        assert label * classifier.decision_function([x])[0] >= 1 - 1e-12
        regressor.learn_one(x, target)
        assert abs(regressor.predict_one(x) - target) <= 0.3 + 1e-12


def test_sample_weight_multiplies_step_or_bound() -> None:
    x, y = np.array([1.0, 2.0]), 50.0

    def step(weight: float, **params: Any) -> Any:
        return SGDRegressor(**params).learn_one(x, y, weight).coef_

    for params in ({"step": "constant"}, {"step": "decaying"}, {"step": "normalised"}):
        np.testing.assert_allclose(step(2.5, **params), 2.5 * step(1.0, **params), rtol=1e-15)
    pa: dict[str, Any] = {"loss": "epsilon-insensitive"}
    for kind in ("pa1", "pa2"):
        heavy = step(2.5, step=kind, aggressiveness=0.2, **pa)
        assert (heavy == step(1.0, step=kind, aggressiveness=0.5, **pa)).all()
    assert (step(2.5, step="pa", **pa) == step(1.0, step="pa", **pa)).all()


# -- peers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.5])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"loss": "squared"}, {"loss": "squared_error"}),
        ({"loss": "huber", "huber_delta": 0.4}, {"loss": "huber", "epsilon": 0.4}),
        ({"loss": "absolute"}, {"loss": "epsilon_insensitive", "epsilon": 0.0}),
        (
            {"loss": "epsilon-insensitive", "epsilon": 0.2},
            {"loss": "epsilon_insensitive", "epsilon": 0.2},
        ),
    ],
    ids=lambda params: params["loss"],
)
def test_regressor_equals_scikit_learn(
    ours: Any,
    theirs: Any,
    l2: float,
    fit_intercept: bool,  # noqa: FBT001
) -> None:
    X, y, _ = random_rows()
    s = np.random.default_rng(1).choice([0.5, 1.0, 2.0], len(X))
    model = SGDRegressor(step="constant", step_size=0.05, l2=l2, fit_intercept=fit_intercept)
    model.set_params(**ours).partial_fit(X, y, s)
    peer = SklearnRegressor(
        learning_rate="constant", eta0=0.05, alpha=l2, shuffle=False, fit_intercept=fit_intercept
    )
    peer.set_params(**theirs).partial_fit(X, y, s)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, rtol=0, atol=1e-10)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kinds", [2, 4])
@pytest.mark.parametrize(("loss", "theirs"), [("hinge", "hinge"), ("logistic", "log_loss")])
def test_classifier_equals_scikit_learn(
    loss: str,
    theirs: str,
    kinds: int,
    fit_intercept: bool,  # noqa: FBT001
) -> None:
    X, y, _ = random_rows()
    labels = np.digitize(y, np.quantile(y, np.arange(1, kinds) / kinds))
    model = SGDClassifier(
        loss,
        step="constant",
        step_size=0.05,
        l2=0.1,
        fit_intercept=fit_intercept,
        classes=range(kinds),
    ).partial_fit(X, labels)
    peer = SklearnClassifier(
        theirs,
        learning_rate="constant",
        eta0=0.05,
        alpha=0.1,
        shuffle=False,
        fit_intercept=fit_intercept,
    ).partial_fit(X, labels, classes=range(kinds))
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, rtol=0, atol=1e-10)
    assert (model.predict(X) == peer.predict(X)).all()


@pytest.mark.parametrize("step", ["pa1", "pa2"])
def test_passive_aggressive_equals_scikit_learn_without_intercept(step: str) -> None:
    # scikit-learn leaves the intercept out of ‖x‖², and so does not meet its own constraint
    X, real, y = random_rows()
    common = {"learning_rate": step, "eta0": 0.3, "shuffle": False, "fit_intercept": False}
    peer = SklearnClassifier("hinge", penalty=None, **common).partial_fit(X, y, classes=[-1, 1])
    ours = SGDClassifier(
        "hinge", step=step, aggressiveness=0.3, fit_intercept=False, classes=[-1, 1]
    )
    np.testing.assert_allclose(ours.partial_fit(X, y).coef_, peer.coef_, rtol=0, atol=1e-10)
    peer = SklearnRegressor("epsilon_insensitive", penalty=None, epsilon=0.2, **common)
    model = SGDRegressor(
        "epsilon-insensitive", step=step, aggressiveness=0.3, epsilon=0.2, fit_intercept=False
    )
    expected = peer.partial_fit(X, real).coef_
    np.testing.assert_allclose(model.partial_fit(X, real).coef_, expected, rtol=0, atol=1e-10)


# -- blocks, purity, refusal -----------------------------------------------------------------------


@few_examples
@given(
    params=st.sampled_from(REGRESSORS),
    seed=st.integers(0, 2**31),
    cuts=st.lists(st.integers(0, 50), max_size=5),
    several=st.booleans(),
)
def test_block_boundaries_do_not_matter_for_regression(
    params: Any,
    seed: int,
    cuts: list[int],
    several: bool,  # noqa: FBT001
) -> None:
    X, y, _ = random_rows(50, seed=seed)
    if several:
        y = np.column_stack([y, -2 * y, X[:, 0]])
    s = np.random.default_rng(seed).choice([0.0, 0.5, 1.0], 50)
    whole, cut, one = (SGDRegressor(**params) for _ in range(3))
    predictions = whole.test_then_train(X, y, s)
    parts = [
        cut.test_then_train(X[i], y[i], s[i])
        for i in np.split(np.arange(50), sorted(cuts))
        if len(i)
    ]
    by_rows = [one.predict_one(X[0]), *[None] * 49]
    for i in range(50):
        by_rows[i] = one.predict_one(X[i]) + np.zeros(y.shape[1:])
        one.learn_one(X[i], y[i], s[i])
    np.testing.assert_allclose(np.concatenate(parts), predictions, rtol=0, atol=1e-12)
    np.testing.assert_allclose(by_rows, predictions, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cut.coef_, whole.coef_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.intercept_, whole.intercept_, rtol=0, atol=1e-12)


@few_examples
@given(
    params=st.sampled_from(CLASSIFIERS),
    seed=st.integers(0, 2**31),
    cuts=st.lists(st.integers(0, 50), max_size=5),
    kinds=st.integers(1, 5),
)
def test_block_boundaries_do_not_matter_for_classification(
    params: Any, seed: int, cuts: list[int], kinds: int
) -> None:
    rng = np.random.default_rng(seed)
    X, s = rng.normal(size=(50, 4)), rng.choice([0.0, 0.5, 1.0], 50)
    y = rng.permutation(kinds)[np.minimum(rng.integers(0, kinds, 50), np.arange(50) // 8)]
    whole, cut, one = (SGDClassifier(**params) for _ in range(3))
    predictions = whole.test_then_train(X, y, s)
    parts = [
        cut.test_then_train(X[i], y[i], s[i])
        for i in np.split(np.arange(50), sorted(cuts))
        if len(i)
    ]
    by_rows = []
    for x, label, weight in zip(X, y, s, strict=True):
        by_rows.append(one.predict_one(x))
        one.learn_one(x, label, weight)
    assert np.concatenate(parts).tolist() == by_rows == predictions.tolist()
    np.testing.assert_allclose(cut.weights_, whole.weights_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.offset_, whole.offset_, rtol=0, atol=1e-12)


def test_predictions_and_refusals_leave_learner_unchanged() -> None:
    X, y, labels = random_rows()
    for model, targets in ((SGDRegressor(), y), (SGDClassifier(), labels)):
        model.partial_fit(X, targets)
        before = copy.deepcopy(vars(model))
        held = model.weights_
        model.predict(X)
        model.coef_[:] = 7.0
        with pytest.raises(NotFiniteError):
            model.partial_fit(np.where(X > 2, np.nan, X), targets)
        with pytest.raises(NumericalError, match=r"in row \d+\. Lower `step_size`"):
            model.partial_fit(X * 1e200, targets)
        assert str(before) == str(vars(model))
        copied = held.copy()
        model.partial_fit(X, targets)
        assert (held == copied).all()


def test_diverging_weights_are_refused() -> None:
    X, y, _ = random_rows(2000)
    model = SGDRegressor(step="constant", step_size=1.0)
    with raises(
        NumericalError, remedy="Lower `step_size`, or scale the features with op.features.Scale"
    ):
        model.partial_fit(1e3 * X, y)
    assert not hasattr(model, "weights_")


@pytest.mark.parametrize("params", REGRESSORS, ids=str)
def test_degenerate_features_give_finite_results(params: Any) -> None:
    X, y, labels = random_rows(400)
    for spoiled in (0.0 * X, np.ones_like(X), X * [1e-9, 1.0, 1e2, 0.0], X * 1e-170):
        model = SGDRegressor(**params)
        assert np.isfinite(model.test_then_train(spoiled, y)).all()
        assert np.isfinite(SGDClassifier().fit(spoiled, labels).coef_).all()


@few_examples
@given(seed=st.integers(0, 2**31), step_size=st.floats(0.01, 1.99))
def test_normalised_steps_never_increase_distance_to_true_weights(
    seed: int, step_size: float
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 4)) * 10.0 ** rng.uniform(-6, 6, 4) + rng.normal(size=4) * 10.0
    truth = rng.normal(size=4)
    model = SGDRegressor(step_size=step_size, fit_intercept=False)
    distance = np.linalg.norm(truth)
    for x in X:
        model.learn_one(x, x @ truth)
        nearer = np.linalg.norm(model.coef_ - truth)
        assert nearer <= distance * (1 + 1e-9)
        distance = nearer


def test_float32_rows_are_learned_in_float64() -> None:
    X, y, _ = random_rows()
    a = SGDRegressor().partial_fit(X.astype(np.float32), y.astype(np.float32))
    b = SGDRegressor().partial_fit(
        X.astype(np.float32).astype(np.float64), y.astype(np.float32).astype(np.float64)
    )
    assert a.coef_.dtype == np.float64
    assert (a.coef_ == b.coef_).all()


# -- classes ---------------------------------------------------------------------------------------


def test_third_class_splits_shared_weight_vector() -> None:
    X, _, y = random_rows()
    two = SGDClassifier("logistic", classes=[-1, 1]).partial_fit(X, y)
    assert (two.weights_[:, 0] == -two.weights_[:, 1]).all()
    assert two.coef_.shape == (1, 4)
    assert two.predict_one(np.zeros(4)) == (1 if two.intercept_[0] >= 0 else -1)
    beta = two.coef_[0]
    three = copy.deepcopy(two).partial_fit(X[:0], y[:0], classes=[0])
    np.testing.assert_array_equal(three.coef_, [-beta / 2, np.zeros(4), beta / 2])


def test_single_class_sets_label_only() -> None:
    X, _, _ = random_rows(10)
    model = SGDClassifier().partial_fit(X, ["a"] * 10)
    assert not model.weights_.any()
    assert model.predict(X).tolist() == ["a"] * 10
    model.learn_one(X[0], "b")
    assert model.predict_one(X[0]) == "b"


def test_score_zero_predicts_second_class() -> None:
    model = SGDClassifier(classes=["a", "b"])
    assert model.predict_one([1.0, 2.0]) == "b"
    assert model.learn_one([1.0, 2.0], "a").predict_one([0.0, 0.0]) == "a"


# -- starts and parameters -------------------------------------------------------------------------


def test_initial_coef_predicts_before_learning() -> None:
    x = np.array([1.0, 2.0])
    assert SGDRegressor().predict_one(x) == 0.0
    assert SGDRegressor(initial_coef=[3.0, 1.0]).predict_one(x) == 5.0
    two = SGDRegressor(initial_coef=[[3.0, 1.0], [0.0, 1.0]])
    assert two.predict_one(x).tolist() == [5.0, 2.0]
    assert two.test_then_train([x], [[0.0, 0.0]]).tolist() == [[5.0, 2.0]]
    predictions = SGDClassifier(initial_coef=[-1.0, 0.0], classes=["a", "b"])
    assert predictions.predict_one(x) == "a"
    predictions.partial_fit(np.empty((0, 2)), np.empty(0), classes=["b", "a"])
    assert predictions.coef_.tolist() == [[-1.0, 0.0]]
    many = SGDClassifier(initial_coef=[[0.0, 0.0], [5.0, 0.0], [0.0, 0.0]], classes=[0, 1, 2])
    assert many.predict_one(x) == 1


def test_step_size_set_later_acts_from_next_row() -> None:
    X, y, _ = random_rows()
    model = SGDRegressor(step="normalised").partial_fit(X, y).set_params(step_size=1.0)
    assert model.learn_one(X[0], 9.0).predict_one(X[0]) == pytest.approx(9.0)


def test_coefficients_of_unfitted_learner_are_refused() -> None:
    for model in (SGDRegressor(), SGDClassifier()):
        assert not hasattr(model, "coef_")
        with raises(NotFittedError, remedy="Call fit"):
            _ = model.intercept_


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "hinge"},
        {"loss": ["squared"]},
        {"step": "optimal"},
        {"step_size": 0.0},
        {"step_size": "auto"},
        {"noise": -1.0},
        {"noise": 1.0, "step": "constant"},
        {"decay": 0.1},
        {"power": 1.5, "step": "decaying"},
        {"aggressiveness": 1.0},
        {"huber_delta": 1.0},
        {"epsilon": 0.1},
        {"epsilon": -0.1, "loss": "epsilon-insensitive"},
        {"step": "pa"},
        {"step": "pa1", "loss": "epsilon-insensitive", "step_size": 0.1},
        {"step": "pa1", "loss": "epsilon-insensitive", "l2": 0.1},
        {"l2": -1.0},
        {"l2": 11.0},
        {"initial_coef": [1.0]},
        {"initial_coef": [[1.0] * 4] * 2},
        {"initial_coef": [np.nan] * 4},
        {"initial_coef": "ones"},
    ],
    ids=str,
)
def test_invalid_regressor_parameters_are_refused(wrong: dict[str, Any]) -> None:
    X, y, _ = random_rows(10)
    model = SGDRegressor(**wrong)
    with pytest.raises(
        ParameterError, match=r"^SGDRegressor\.\w+: `.*` must .*, got .*\. [A-Z].*\.$"
    ):
        model.partial_fit(X, y)
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "squared"},
        {"step": "pa", "loss": "logistic"},
        {"initial_coef": [1.0] * 4},
        {"initial_coef": [1.0] * 4, "classes": [1]},
        {"initial_coef": [1.0] * 4, "classes": [-1, 0, 1]},
    ],
    ids=str,
)
def test_invalid_classifier_parameters_are_refused(wrong: dict[str, Any]) -> None:
    X, _, y = random_rows(10)
    with pytest.raises(
        ParameterError, match=r"^SGDClassifier\.\w+: `.*` must .*, got .*\. [A-Z].*\.$"
    ):
        SGDClassifier(**wrong).partial_fit(X, y)
