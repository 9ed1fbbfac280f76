"""Answering: a copy that says what its learner says now, and disturbs nothing."""

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import onepass as op
from cases import LEARNERS, PIPELINES, Case, features, make_targets, snapshot
from onepass import native
from onepass.errors import CheckpointError, NotFittedError
from onepass.learners import linear

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")

ASKED = ("predict", "predict_proba", "decision_function")
WIDE = [
    Case(op.RLSRegressor(), "wide"),
    Case(op.RLSRegressor(forgetting=0.97), "wide"),
    Case(op.RLSRegressor(fit_intercept=False), "wide"),
    Case(op.RLSClassifier(), "wide"),
    Case(op.SGDRegressor(), "wide"),
    Case(op.SGDClassifier("logistic"), "wide"),
    Case(op.Perceptron(), "wide"),
]
each_case = pytest.mark.parametrize("case", [*LEARNERS, *PIPELINES], ids=lambda case: case.name)


def stream(case: Case, n: int, d: int = 4) -> tuple[Any, Any]:
    X = features(n, d)
    return X, make_targets(case, X)


def predictions(learner: Any, X: Any) -> dict[str, Any]:
    """All that it says of rows."""
    found = {name: getattr(learner, name)(X) for name in ASKED if hasattr(learner, name)}
    found["predict_one"] = [learner.predict_one(x) for x in X]
    return snapshot(found)


def learn(learner: Any, X: Any, y: Any, cuts: tuple[int, ...]) -> None:
    """Blocks of these widths, in turn."""
    i = 0
    while i < len(X):
        for width in cuts:
            learner.test_then_train(X[i : i + width], y[i : i + width])
            i += width


@each_case
@pytest.mark.parametrize("cuts", [(1,), (3, 1, 1, 8)], ids=["singly", "in blocks"])
def test_its_predictions_do_not_change_while_the_learner_learns(
    case: Case, cuts: tuple[int, ...]
) -> None:
    X, y = stream(case, 60)
    learner = case()
    learn(learner, X[:30], y[:30], cuts)
    twin, whole = learner.frozen_copy(), copy.deepcopy(learner)
    first = predictions(twin, X[:7])
    assert first == predictions(whole, X[:7])
    learn(learner, X[30:], y[30:], cuts)
    assert predictions(twin, X[:7]) == first


@pytest.mark.parametrize("d", [3, 47, 48, 64, 65, 130])
@pytest.mark.parametrize("case", WIDE, ids=lambda case: case.name)
@pytest.mark.parametrize("cuts", [(1,), (3,), (1, 1, 70)], ids=str)
def test_to_make_it_changes_no_bit_of_what_follows(
    case: Case, d: int, cuts: tuple[int, ...]
) -> None:
    X, y = stream(case, 2 * d + 40, d)
    alone, asked = case(), case()
    i = 0
    while i < len(X):
        for width in cuts:
            rows = slice(i, i + width)
            one = alone.test_then_train(X[rows], y[rows])
            two = asked.test_then_train(X[rows], y[rows])
            assert snapshot(one) == snapshot(two)
            predictions(asked.frozen_copy(), X[:2])
            i += width
    assert snapshot(alone) == snapshot(asked)


@each_case
def test_before_anything_is_learned(case: Case) -> None:
    twin = case().frozen_copy()
    X, y = stream(case, 5)
    first = snapshot(twin.predict_one(X[0]))
    with pytest.raises(NotFittedError):
        twin.predict(X)
    learner = case()
    assert snapshot(learner.predict_one(X[0])) == first
    learner.partial_fit(X, y)
    assert twin.__sklearn_is_fitted__() is False


def looping(d: int = 5) -> tuple[Any, Any]:
    """A learner whose loop is open, and its rows."""
    X, y = stream(Case(op.RLSRegressor()), 4 * d, d)
    learner = op.RLSRegressor().partial_fit(X[:-3], y[:-3])
    for x, t in zip(X[-3:], y[-3:], strict=True):
        learner.learn_one(x, t)
    return learner, X


@pytest.mark.skipif(native.loops is None, reason="the loops are not built")
def test_it_leaves_the_loop_open_and_refuses_what_the_loop_alone_knows(tmp_path: Any) -> None:
    learner, X = looping()
    loop = learner._loop
    assert loop is not None
    twin = learner.frozen_copy()
    assert learner._loop is loop
    for wanted in (
        lambda: twin.predict(X, return_std=True),
        lambda: twin.partial_fit(X, X[:, 0]),
        lambda: twin.learn_one(X[0], 1.0),
    ):
        with pytest.raises(NotFittedError, match="full copy"):
            wanted()
    with pytest.raises(CheckpointError):
        op.save(twin, tmp_path / "m.onepass")
    assert twin.nbytes == copy.deepcopy(learner).nbytes
    assert snapshot(twin.coef_) == snapshot(learner.coef_)


def test_a_copy_of_it_answers_alike() -> None:
    learner, X = looping()
    twin = learner.frozen_copy()
    for other in (copy.copy(twin), copy.deepcopy(twin), twin.frozen_copy()):
        assert predictions(other, X) == predictions(twin, X)


SINGLY = [
    op.RLSRegressor(), op.RLSClassifier(), op.SGDRegressor(), op.SGDClassifier("logistic"),
    op.Perceptron(),
]  # fmt: skip
each_singly = pytest.mark.parametrize("learner", SINGLY, ids=repr)


def singly(learner: Any, n: int = 40, d: int = 4) -> tuple[Any, Any, Any]:
    """A new learner whose last rows came one by one, if it has a loop for them, and all rows."""
    X, y = stream(Case(learner), n, d)
    learner = clone(learner).partial_fit(X[:-10], y[:-10])
    for x, t in zip(X[-10:-5], y[-10:-5], strict=True):
        learner.learn_one(x, t)
    return learner, X, y


@each_singly
@pytest.mark.parametrize(
    "ask",
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
def test_its_predictions_do_not_depend_on_the_first_access(learner: Any, ask: Any) -> None:
    learner, X, y = singly(learner)
    twin, first = learner.frozen_copy(), predictions(copy.deepcopy(learner), X)
    for x, t in zip(X[35:], y[35:], strict=True):
        learner.learn_one(x, t)
    ask(twin)
    assert predictions(twin, X) == first
    assert twin.rows_seen_ == 35


@each_singly
def test_it_is_asked_first_by_many_threads_at_once(learner: Any) -> None:
    expected = predictions(copy.deepcopy(singly(learner)[0]), stream(Case(learner), 40)[0])
    learner, X, _ = singly(learner)
    for _ in range(50):
        twin, found = learner.frozen_copy(), []
        assert native.loops is None or twin._pending_state is not None
        together = threading.Barrier(4)

        def ask(twin: Any = twin, found: Any = found, together: Any = together) -> None:
            together.wait()
            found.append((predictions(twin, X), twin.rows_seen_))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(expected, 35)] * 4


@each_singly
def test_a_handler_asks_it_while_it_is_asked_first(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = predictions(copy.deepcopy(singly(learner)[0]), stream(Case(learner), 40)[0])
    learner, X, _ = singly(learner)
    twin, within = learner.frozen_copy(), []
    read = type(learner)._attributes_after

    def interrupted(self: Any, *held: Any) -> Any:
        if not within:
            within.append(None)
            within.append(predictions(self, X))
        return read(self, *held)

    monkeypatch.setattr(type(learner), "_attributes_after", interrupted)
    assert predictions(twin, X) == expected
    assert within == ([None, expected] if native.loops is not None else [])


@each_singly
def test_it_waits_for_no_other_learner(learner: Any) -> None:
    """Whoever opens a loop, or looks at what is in one, has a lock of all learners meanwhile."""
    learner, X, _ = singly(learner)
    twin, found = learner.frozen_copy(), []
    with linear._LOOP_LOCK:
        thread = threading.Thread(target=lambda: found.append(twin.predict(X[:2])), daemon=True)
        thread.start()
        thread.join(30)
        assert len(found) == 1


def test_before_it_is_asked_it_keeps_no_memory() -> None:
    learner, _, _ = singly(op.RLSRegressor())
    X, y = stream(Case(learner), 10)
    held = weakref.ref(learner.memory_.R)
    learner.learn_one(X[0], y[0])
    twin = learner.frozen_copy()
    learner.partial_fit(X[1:], y[1:])
    gc.collect()
    assert held() is None
    assert twin.rows_seen_ == 36


def test_attributes_that_a_user_set_go_along() -> None:
    model = op.RLSRegressor(ridge=2.0)
    model.partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    model.note = "mine"
    twin = model.frozen_copy()
    assert (twin.note, twin.ridge, twin.rows_seen_, twin.n_features_in_) == ("mine", 2.0, 3, 3)


@pytest.mark.parametrize("learner", [op.RLSRegressor(), op.SGDRegressor()], ids=repr)
def test_threads_ask_copies_while_one_learns(learner: Any) -> None:
    """Answers are of weights as they were between two rows: y is the sum of x in all of them."""
    X = np.random.default_rng(0).normal(size=(600, 6))
    y = X.sum(axis=1)
    learner.partial_fit(X[:200], y[:200])
    held, wrong, done = [learner.frozen_copy()], [], threading.Event()

    def ask() -> None:
        while not done.is_set():
            twin = held[0]
            one, two = twin.predict(X[:3]), twin.predict(X[:3])
            if one.tobytes() != two.tobytes():
                wrong.append((one, two))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for x, t in zip(X[200:], y[200:], strict=True):
        learner.learn_one(x, t)
        held[0] = learner.frozen_copy()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_pipeline_meets_new_categories_behind_it() -> None:
    model = op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-3))
    model.partial_fit([{"by": "sea", "km": 1.0}, {"by": "air", "km": 2.0}], [1.0, 2.0])
    twin = model.frozen_copy()
    rows = [{"by": "sea", "km": 3.0}, {"by": "rail", "km": 1.0}]
    first = predictions(twin, rows)
    model.partial_fit([{"by": "rail", "km": 5.0, "kg": 1.0}] * 3, [9.0, 9.0, 9.0])
    assert predictions(twin, rows) == first
    assert is_classifier(twin) is False
