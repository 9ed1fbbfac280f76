"""frozen_copy: predictions of the current state, independent of later learning."""

import copy
import pickle
import threading
from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import onepass as op
from cases import (
    LEARNERS,
    PIPELINES,
    Case,
    features,
    is_compiled,
    make_targets,
    parametrize,
    snapshot,
)
from onepass import native
from onepass.errors import CheckpointError, NotFittedError
from raising import raises
from sampling import sample

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")

PREDICTION_METHODS = ("predict", "predict_proba", "decision_function")
WIDE = [
    Case(op.RLSRegressor(), "wide"),
    Case(op.RLSRegressor(forgetting=0.97), "wide"),
    Case(op.RLSRegressor(fit_intercept=False), "wide"),
    Case(op.RLSClassifier(), "wide"),
    Case(op.SGDRegressor(), "wide"),
    Case(op.SGDClassifier("logistic"), "wide"),
    Case(op.Perceptron(), "wide"),
]
drawn_cases = parametrize([*LEARNERS, *PIPELINES])


def stream(case: Case, n: int, d: int = 4) -> tuple[Any, Any]:
    X = features(n, d)
    return X, make_targets(case, X)


def all_predictions(learner: Any, X: Any) -> dict[str, Any]:
    """All kinds of predictions of rows."""
    found = {
        name: getattr(learner, name)(X) for name in PREDICTION_METHODS if hasattr(learner, name)
    }
    found["predict_one"] = [learner.predict_one(x) for x in X]
    return snapshot(found)


def learn_blocks(learner: Any, X: Any, y: Any, cuts: tuple[int, ...]) -> None:
    """Learn rows in blocks of these widths, cyclically."""
    i = 0
    while i < len(X):
        for width in cuts:
            learner.test_then_train(X[i : i + width], y[i : i + width])
            i += width


@drawn_cases
@pytest.mark.parametrize("cuts", [(1,), (3, 1, 1, 8)], ids=["singly", "in blocks"])
def test_frozen_copy_predicts_equally_while_learner_learns(
    case: Case, cuts: tuple[int, ...]
) -> None:
    X, y = stream(case, 60)
    learner = case()
    learn_blocks(learner, X[:30], y[:30], cuts)
    twin, whole = learner.frozen_copy(), copy.deepcopy(learner)
    first = all_predictions(twin, X[:7])
    assert first == all_predictions(whole.frozen_copy(), X[:7])
    for one, two in zip(twin.predict(X[:7]), learner.predict(X[:7]), strict=True):
        assert one == two or one == pytest.approx(two, rel=1e-12, abs=1e-12)
    learn_blocks(learner, X[30:], y[30:], cuts)
    assert all_predictions(twin, X[:7]) == first


@pytest.mark.parametrize(
    ("case", "d", "cuts"),
    sample(
        list(product(WIDE, [3, 47, 48, 64, 65, 130], [(1,), (3,), (1, 1, 70)])), 30, "frozen copies"
    ),
    ids=lambda value: value.name if isinstance(value, Case) else str(value),
)
def test_frozen_copy_leaves_learner_unchanged(case: Case, d: int, cuts: tuple[int, ...]) -> None:
    X, y = stream(case, 2 * d + 40, d)
    plain, copied = case(), case()
    i = 0
    while i < len(X):
        for width in cuts:
            rows = slice(i, i + width)
            one = plain.test_then_train(X[rows], y[rows])
            two = copied.test_then_train(X[rows], y[rows])
            assert snapshot(one) == snapshot(two)
            all_predictions(copied.frozen_copy(), X[:2])
            i += width
    _ = plain.coef_, copied.coef_  # which least squares computes when they are first read
    assert snapshot(plain) == snapshot(copied)


@drawn_cases
def test_frozen_copy_of_unfitted_learner_is_unfitted(case: Case) -> None:
    twin = case().frozen_copy()
    X, y = stream(case, 5)
    first = snapshot(twin.predict_one(X[0]))
    with pytest.raises(NotFittedError):
        twin.predict(X)
    learner = case()
    assert snapshot(learner.predict_one(X[0])) == first
    learner.partial_fit(X, y)
    assert twin.__sklearn_is_fitted__() is False


def compiled_learner(d: int = 5) -> tuple[Any, Any]:
    """A learner with a compiled state, and its rows."""
    X, y = stream(Case(op.RLSRegressor()), 4 * d, d)
    learner = op.RLSRegressor().partial_fit(X[:-3], y[:-3])
    for x, t in zip(X[-3:], y[-3:], strict=True):
        learner.learn_one(x, t)
    return learner, X


@pytest.mark.skipif(native.loops is None, reason="the loops are not built")
def test_frozen_copy_of_compiled_learner_refuses_learning_and_saving(tmp_path: Any) -> None:
    learner, X = compiled_learner()
    assert is_compiled(learner)
    twin = learner.frozen_copy()
    assert is_compiled(learner)
    assert not is_compiled(twin)
    for wanted in (
        lambda: twin.predict(X, return_std=True),
        lambda: twin.partial_fit(X, X[:, 0]),
        lambda: twin.learn_one(X[0], 1.0),
    ):
        with raises(NotFittedError, remedy="Use `model()` of a"):
            wanted()
    with pytest.raises(CheckpointError):
        op.save(twin, tmp_path / "m.onepass")
    assert snapshot(twin.coef_) == snapshot(learner.coef_)


def test_copies_of_frozen_copy_predict_equally() -> None:
    learner, X = compiled_learner()
    twin = learner.frozen_copy()
    for other in (copy.copy(twin), copy.deepcopy(twin), twin.frozen_copy()):
        assert all_predictions(other, X) == all_predictions(twin, X)


ROW_LEARNERS = [
    op.RLSRegressor(), op.RLSClassifier(), op.SGDRegressor(), op.SGDClassifier("logistic"),
    op.Perceptron(),
]  # fmt: skip
row_learners = pytest.mark.parametrize("learner", ROW_LEARNERS, ids=repr)


def fit_with_single_rows(learner: Any, n: int = 40, d: int = 4) -> tuple[Any, Any, Any]:
    """A fitted learner whose last rows were learned singly, and all rows."""
    X, y = stream(Case(learner), n, d)
    learner = clone(learner).partial_fit(X[:-10], y[:-10])
    for x, t in zip(X[-10:-5], y[-10:-5], strict=True):
        learner.learn_one(x, t)
    return learner, X, y


@row_learners
@pytest.mark.parametrize(
    "access",
    [
        vars,
        pickle.dumps,
        lambda twin: twin.nbytes,
        lambda twin: twin.rows_seen_,
        lambda twin: setattr(twin, "note", "mine"),
        lambda twin: twin.frozen_copy().coef_,
        dir,
    ],
)
def test_frozen_predictions_do_not_depend_on_first_access(learner: Any, access: Any) -> None:
    learner, X, y = fit_with_single_rows(learner)
    twin = learner.frozen_copy()
    first = all_predictions(copy.deepcopy(learner).frozen_copy(), X)
    for x, t in zip(X[35:], y[35:], strict=True):
        learner.learn_one(x, t)
    access(twin)
    assert all_predictions(twin, X) == first
    assert twin.rows_seen_ == 35


@row_learners
def test_first_predictions_from_many_threads_are_equal(learner: Any) -> None:
    learner, X, _ = fit_with_single_rows(learner)
    expected = all_predictions(learner.frozen_copy(), X)
    for _ in range(20):
        twin, found = learner.frozen_copy(), []
        together = threading.Barrier(4)

        def predict(twin: Any = twin, found: Any = found, together: Any = together) -> None:
            together.wait()
            found.append((all_predictions(twin, X), twin.rows_seen_))

        threads = [threading.Thread(target=predict) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(expected, 35)] * 4


@pytest.mark.skipif(native.loops is None, reason="the loops are not built")
def test_frozen_copy_of_compiled_learner_holds_no_memory() -> None:
    twin = fit_with_single_rows(op.RLSRegressor())[0].frozen_copy()
    assert "state_" not in vars(twin)
    assert twin.rows_seen_ == 35


def test_frozen_copy_has_attributes_set_by_user() -> None:
    model = op.RLSRegressor(ridge=2.0)
    model.partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    model.note = "mine"
    twin = model.frozen_copy()
    assert (twin.note, twin.ridge, twin.rows_seen_, twin.n_features_in_) == ("mine", 2.0, 3, 3)


@pytest.mark.parametrize("learner", [op.RLSRegressor(), op.SGDRegressor()], ids=repr)
def test_frozen_copies_are_consistent_across_threads(learner: Any) -> None:
    """Two predictions of one frozen copy are equal while the learner learns."""
    X = np.random.default_rng(0).normal(size=(600, 6))
    y = X.sum(axis=1)
    learner.partial_fit(X[:200], y[:200])
    held, wrong, done = [learner.frozen_copy()], [], threading.Event()

    def predict_repeatedly() -> None:
        while not done.is_set():
            twin = held[0]
            one, two = twin.predict(X[:3]), twin.predict(X[:3])
            if one.tobytes() != two.tobytes():
                wrong.append((one, two))

    threads = [threading.Thread(target=predict_repeatedly) for _ in range(3)]
    for thread in threads:
        thread.start()
    for x, t in zip(X[200:], y[200:], strict=True):
        learner.learn_one(x, t)
        held[0] = learner.frozen_copy()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_frozen_pipeline_ignores_categories_learned_later() -> None:
    model = op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-3))
    model.partial_fit([{"by": "sea", "km": 1.0}, {"by": "air", "km": 2.0}], [1.0, 2.0])
    twin = model.frozen_copy()
    rows = [{"by": "sea", "km": 3.0}, {"by": "rail", "km": 1.0}]
    first = all_predictions(twin, rows)
    model.partial_fit([{"by": "rail", "km": 5.0, "kg": 1.0}] * 3, [9.0, 9.0, 9.0])
    assert all_predictions(twin, rows) == first
    assert is_classifier(twin) is False
