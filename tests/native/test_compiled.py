"""The compiled loops against NumPy."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import onepass as op
from cases import is_compiled
from onepass import native
from onepass.errors import NumericalError, OnepassError
from onepass.learners import losses
from onepass.memory.vector import Slot
from sampling import sample

needs_loops = pytest.mark.skipif(native.loops is None, reason="needs the compiled loops")
pytestmark = needs_loops

Maker = Callable[[], Any]
N = 300

FADING_WINDOW = op.forgetting.Window(50, factor=0.97)
RULES: list[Any] = [
    1.0,
    0.97,
    0.5,
    op.forgetting.Exponential(0.99),
    op.forgetting.Bounded(0.95, floor=3.0),
    op.forgetting.Window(50),
    FADING_WINDOW,
    "auto",
]


def stream(d: int, c: int = 1, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) * rng.uniform(0.1, 10, size=d) + 3.0
    Y = X @ rng.normal(size=(d, c)) + rng.normal(size=(N, c))
    return X, Y[:, 0] if c == 1 else Y


def without_loops(work: Callable[[], Any]) -> Any:
    """The result of work without the compiled loops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", None)
        return work()


def assert_close(one: Any, two: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-9 * scale)


# -- recursive least squares ----------------------------------------------------------------------


SETTINGS: list[dict[str, Any]] = [
    {}, {"fit_intercept": False}, {"ridge": 0.0}, {"prior": 1.0}, {"ridge": 10.0},
]  # fmt: skip
SIZES = [(1, 1), (7, 1), (8, 3), (33, 1)]


@pytest.mark.parametrize(
    ("rule", "settings", "size"),
    sample(list(product(RULES, SETTINGS, SIZES)), 24, "blocks"),
    ids=str,
)
def test_compiled_rls_equals_numpy(rule: Any, settings: Any, size: tuple[int, int]) -> None:
    d, _ = size
    X, y = stream(*size)
    s = np.random.default_rng(1).uniform(0.3, 3.0, size=N)

    given = {"ridge": 1e-3, **settings, "forgetting": rule}
    if rule is FADING_WINDOW:  # the turns in which its ridge is put back differ
        given["ridge"] = min(given["ridge"], 1e-12)

    def learned() -> tuple[Any, ...]:
        model = op.RLSRegressor(**given)
        predictions = [
            model.test_then_train(X[:41], y[:41]),
            model.test_then_train(X[41:100], y[41:100], s[41:100]),
            model.partial_fit(X[100:101], y[100:101]).test_then_train(X[101:], y[101:]),
        ]
        std = model.predict(X[:5], return_std=True)[1]
        return (
            np.concatenate(predictions),
            model.coef_,
            model.intercept_,
            std,
            model.state_[Slot.MASS],
        )

    ours, plain = learned(), without_loops(learned)
    scale = float(np.abs(y).max())
    assert_close(ours[0][d + 2 :], plain[0][d + 2 :], scale)
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-5, atol=1e-5 * scale)
    for one, two in zip(ours[1:], plain[1:], strict=True):
        assert_close(one, two, scale)


@pytest.mark.parametrize("compiled", [True, False])
def test_ridge_of_a_fading_window_is_held_up_to_a_factor_of_4(
    *, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "loops", None)
    X, y = stream(1)
    model = op.RLSRegressor(10.0, FADING_WINDOW, fit_intercept=False)
    for i in range(N):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        x, t = X[max(0, i - 49) : i + 1, 0], y[max(0, i - 49) : i + 1]
        s = 0.97 ** np.arange(len(x) - 1, -1, -1.0)
        ridge = float(s @ (x * t) / model.coef_[0] - s @ (x * x))
        assert 2.4 <= ridge <= 10.1


@pytest.mark.parametrize(
    ("rule", "d"),
    sample(
        list(product([1.0, 0.97, op.forgetting.Exponential(0.99), "auto"], [6, 60])), 4, "priors"
    ),
    ids=str,
)
def test_compiled_rls_stops_at_the_first_row_of_a_feature_with_a_prior(rule: Any, d: int) -> None:
    X, y = stream(d)
    for j in range(3):
        X[: 120 + 50 * j, j] = 2.0 * j

    def learned() -> tuple[Any, ...]:
        model, single = (op.RLSRegressor(forgetting=rule, prior=1.0) for _ in range(2))
        predictions = model.test_then_train(X, y)
        single.partial_fit(X[:90], y[:90])
        for x, target in zip(X[90:], y[90:].tolist(), strict=True):
            single.learn_one(x, target)
        return predictions, model.coef_, single.coef_

    ours, plain = learned(), without_loops(learned)
    for one, two in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one[-100:], two[-100:], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rule", [1.0, 0.98])
@pytest.mark.parametrize("named", [False, True])
def test_single_rows_equal_one_block(rule: float, *, named: bool) -> None:
    X, y = stream(9)
    rows: list[Any] = [dict(zip("abcdefghi", x, strict=True)) for x in X.tolist()]
    model, many = (op.RLSRegressor(1e-3, rule) for _ in range(2))
    predictions = []
    for x, row, target in zip(X, rows, y.tolist(), strict=True):
        predictions.append(model.predict_one(row if named else x))
        model.learn_one(row if named else x, target)
    assert is_compiled(model)
    want = many.test_then_train(X, y)
    assert_close(predictions[12:], want[12:])
    assert model.rows_seen_ == N
    assert_close(model.coef_, many.coef_)
    assert_close(model.predict(X), many.predict(X))


@pytest.mark.parametrize("labels", [[0, 1], [-1, 3, 7], ["a", "b", "c"]])
def test_single_rows_of_classes_equal_one_block(labels: list[Any]) -> None:
    X, y = stream(6)
    at = np.digitize(y, np.quantile(y, np.linspace(0, 1, len(labels) + 1)[1:-1]))
    targets = [labels[i] for i in at]
    model, many = op.RLSClassifier(1e-3), op.RLSClassifier(1e-3)
    predictions = []
    for x, label in zip(X, targets, strict=True):
        predictions.append(model.predict_one(x))
        model.learn_one(x, label)
    assert is_compiled(model)
    want = many.test_then_train(X, targets)
    assert (np.array(predictions[12:]) == want[12:]).all()
    assert type(predictions[-1]) is type(model.predict(X)[0])
    assert_close(model.coef_, many.coef_)


def test_late_class_by_rows_equals_block() -> None:
    X, _ = stream(4)
    model, many = op.RLSClassifier(), op.RLSClassifier()
    labels = ["a", "b"] * 40 + ["c", "a"] * 40
    for x, label in zip(X, labels, strict=False):
        model.learn_one(x, label)
    many.partial_fit(X[: len(labels)], labels)
    assert list(model.classes_) == ["a", "b", "c"]
    assert_close(model.coef_, many.coef_)


# -- attributes of a compiled state ---------------------------------------------------------------


def compiled_learner(**settings: Any) -> Any:
    X, y = stream(5)
    model = op.RLSRegressor(1e-3, **settings)
    for x, target in zip(X[:50], y.tolist(), strict=False):
        model.learn_one(x, target)
    assert is_compiled(model)
    return model


@pytest.mark.parametrize(
    "twin",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
)
def test_copies_of_compiled_learner_are_independent(twin: Any) -> None:
    X, y = stream(5)
    model = compiled_learner()
    other = twin(model)
    coefficients = other.coef_
    for x, target in zip(X[50:], y[50:].tolist(), strict=True):
        model.learn_one(x, target)
    assert (other.coef_ == coefficients).all()
    assert other.rows_seen_ == 50
    assert model.rows_seen_ == N
    assert_close(other.partial_fit(X[50:], y[50:]).coef_, model.coef_)


def test_arrays_read_before_are_never_written_to() -> None:
    X, y = stream(5)
    model = compiled_learner()
    arrays = model.weights_, model.center_, model.offset_, model.covariance_
    before = [each.copy() for each in arrays]
    for x, target in zip(X[50:], y[50:].tolist(), strict=True):
        model.learn_one(x, target)
    for each, was in zip(arrays, before, strict=True):
        assert (each == was).all()


def test_attributes_of_compiled_learner_can_be_read() -> None:
    model = compiled_learner()
    names = {"state_", "weights_", "center_", "offset_", "covariance_", "rows_seen_"}
    assert all(hasattr(model, name) for name in names)
    assert compiled_learner().nbytes == model.nbytes
    assert repr(compiled_learner()) == repr(model)
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        _ = compiled_learner().nothing_


def test_parameter_set_later_acts_from_next_row() -> None:
    X, y = stream(5)
    one, two = compiled_learner(), compiled_learner()
    one.set_params(forgetting=0.9)
    two.forgetting = 0.9
    for x, target in zip(X[50:], y[50:].tolist(), strict=True):
        one.learn_one(x, target)
        two.learn_one(x, target)
    plain = op.RLSRegressor(1e-3).partial_fit(X[:50], y[:50])
    plain.forgetting = 0.9
    plain.partial_fit(X[50:], y[50:])
    assert_close(one.coef_, plain.coef_)
    assert_close(two.coef_, plain.coef_)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.full(5, np.nan), 1.0),
        (np.ones(4), 1.0),
        (np.ones((1, 5)), 1.0),
        ([1.0, "a", 1.0, 1.0, 1.0], 1.0),
        (np.ones(5), np.inf),
        (np.ones(5), "a"),
        (np.ones(5), [1.0, 2.0]),
        ({"a": 1.0}, 1.0),
        (None, 1.0),
    ],
)
def test_invalid_row_leaves_learner_unchanged(x: Any, y: Any) -> None:
    model = compiled_learner()
    twin = copy.deepcopy(model)
    X, targets = stream(5)
    model.learn_one(X[60], targets[60])
    twin.learn_one(X[60], targets[60])
    with pytest.raises(OnepassError):
        model.learn_one(x, y)
    assert (model.coef_ == twin.coef_).all()
    assert model.rows_seen_ == 51
    model.learn_one(X[61], targets[61])
    twin.learn_one(X[61], targets[61])
    assert_close(model.coef_, twin.coef_)


@pytest.mark.parametrize("x", [[1, 2, 3, 4, 5], (1.0,) * 5, np.arange(5), np.ones(5, np.float32)])
def test_lists_tuples_and_other_dtypes_are_learned(x: Any) -> None:
    model, plain = compiled_learner(), compiled_learner()
    model.learn_one(x, 1)
    plain.partial_fit([list(map(float, x))], [1.0])
    assert_close(model.coef_, plain.coef_)
    assert model.predict_one(x) == pytest.approx(plain.predict([list(map(float, x))])[0])


def test_strided_and_weighted_rows_equal_block() -> None:
    X, y = stream(5)
    wide = np.repeat(X, 2, axis=1)
    model, plain = compiled_learner(), compiled_learner()
    for i in range(60, 80):
        model.learn_one(wide[i, ::2], y[i], 1 + i % 3)
        model.learn_one(X[i], y[i], 0.0)
    plain.partial_fit(X[60:80], y[60:80], 1.0 + np.arange(60, 80) % 3)
    assert_close(model.coef_, plain.coef_)
    assert model.rows_seen_ == 70


@pytest.mark.parametrize("size", [1e-70, 1e-30, 1e30, 1e70, 1e120])
def test_compiled_rls_equals_numpy_for_extreme_sizes(size: float) -> None:
    X, y = stream(4)
    X, y = X * size, y * size

    def learned() -> Any:
        model = op.RLSRegressor(0.0)
        predictions = model.test_then_train(X[:200], y[:200])
        for x, target in zip(X[200:], y[200:], strict=True):
            model.learn_one(x, float(target))
        return predictions, model.coef_

    ours, plain = learned(), without_loops(learned)
    assert_close(ours[0][10:] / size, plain[0][10:] / size)
    assert_close(ours[1], plain[1])


def test_overflowing_rows_leave_learner_unchanged() -> None:
    model = compiled_learner()
    before = model.coef_
    with pytest.raises(NumericalError):
        model.partial_fit(np.full((20, 5), 1e300), np.full(20, 1e300))
    assert (model.coef_ == before).all()


def test_compiled_rls_equals_numpy_for_unexcited_feature() -> None:
    X, y = stream(3)
    X = np.concatenate([X, X])  # then what was known of it is beyond squares that float64 can hold
    y = np.concatenate([y, y])
    X[20:, 1] = 0.0

    def learned() -> Any:
        model = op.RLSRegressor(1e-3, op.forgetting.Exponential(0.5), fit_intercept=False)
        return model.test_then_train(X, y), model.coef_

    ours, plain = learned(), without_loops(learned)
    assert_close(ours[0][10:], plain[0][10:], 10.0)
    assert_close(ours[1], plain[1], 10.0)


def test_library_works_without_compiled_loops() -> None:
    code = (
        "import numpy as np, onepass as op; from onepass import native;"
        "assert native.loops is None;"
        "m = op.RLSRegressor().learn_one(np.ones(2), 1.0); print(m.rows_seen_)"
    )
    done = subprocess.run(  # noqa: S603  our own words, our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"ONEPASS_COMPILED": "0", "PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.stdout == "1\n"


# -- slopes and mistakes --------------------------------------------------------------------------

STEPS: list[dict[str, Any]] = [
    {"step": "normalised"},
    {"step": "normalised", "l2": 0.1},
    {"step": "constant", "step_size": 1e-4, "l2": 1.0},
    {"step": "decaying", "step_size": 1e-3},
]
CLOSED: list[dict[str, Any]] = [{"step": "pa"}, {"step": "pa1"}, {"step": "pa2"}]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize(
    "settings",
    [{"loss": loss, **step} for loss in losses.REGRESSION_LOSSES for step in STEPS]
    + [{"loss": "epsilon-insensitive", **step} for step in CLOSED],
    ids=str,
)
def test_compiled_sgd_regression_equals_numpy(settings: Any, c: int, *, intercept: bool) -> None:
    X, y = stream(11, c)
    s = np.random.default_rng(1).uniform(0.3, 3.0, size=N)

    def learned() -> Any:
        model = op.SGDRegressor(**settings, fit_intercept=intercept)
        predictions = model.test_then_train(X, y, s)
        return predictions, model.coef_, model.intercept_

    for one, two in zip(learned(), without_loops(learned), strict=True):
        assert_close(one, two, 100.0)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize(
    "make",
    [
        *[
            lambda loss=loss, step=step: op.SGDClassifier(loss, **step)
            for loss in losses.MARGIN_LOSSES
            for step in STEPS
        ],
        *[lambda step=step: op.SGDClassifier("hinge", **step) for step in CLOSED],
        op.Perceptron,
        lambda: op.Perceptron(fit_intercept=True, step_size=0.1),
    ],
)
def test_compiled_sgd_classification_equals_numpy(make: Maker, k: int) -> None:
    X, y = stream(11)
    labels = np.digitize(y, np.quantile(y, np.linspace(0, 1, k + 1)[1:-1]))
    labels[:60] = labels[:60].clip(0, 1)  # others come late

    def learned() -> Any:
        model = make()
        predictions = model.test_then_train(X, labels)
        return [-1 if one is None else one for one in predictions], model.coef_, model.intercept_

    ours, plain = learned(), without_loops(learned)
    assert ours[0] == plain[0]
    assert_close(ours[1], plain[1])
    assert_close(ours[2], plain[2])
