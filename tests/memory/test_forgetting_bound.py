"""The forgetting bound is never exceeded; similar but false statements fail."""

import math
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import onepass as op
from onepass.memory import Basis, LastDirections, NoMemory, Principal, Random, Sketch
from onepass.serialization.models import describe

Floats = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")


class Measured(NamedTuple):
    model: Any
    changed: float
    """Root of the sum of squared changes of all predictions since their rows were learned."""
    D: list[float]
    """Before each step."""
    steps: list[Floats]


def learn_and_measure(model: Any, X: Floats, y: Floats, block: int = 1) -> Measured:
    """Learn rows; compare predictions just after learning with those at the end."""
    then, D, steps, before = [], [], [], 0.0
    for i in range(0, len(X), block):
        D.append(model.memory_.lost if i else 0.0)
        model.partial_fit(X[i : i + block], y[i : i + block])
        then.append(model.predict(X[i : i + block]))
        steps.append(np.ravel(model.coef_) - before)
        before = np.ravel(model.coef_).copy()
    apart = model.predict(X) - np.concatenate(then)
    return Measured(model, float(np.linalg.norm(apart)), D, steps)


def adversarial_rows(seed: int, n: int, p: int, m: int) -> tuple[Floats, Floats]:
    """Rows that are easily forgotten: near the truncation threshold, errors of one sign."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    strengths = np.ones(p)
    strengths[:m] = rng.uniform(1.0, 1.3)  # near the truncation threshold
    chosen = rng.integers(0, p, n)
    kind = seed % 3
    if kind == 0:  # one direction at a time
        X = basis[chosen] * strengths[chosen, None]
    elif kind == 1:  # every row leans on one direction that is always cut
        X = 0.3 * basis[:1] + basis[chosen] * strengths[chosen, None]
    else:
        X = rng.normal(size=(n, p)) * np.geomspace(3.0, 0.1, p)
    X = X * rng.choice([1.0, 1.0, 0.0, 30.0], size=(n, 1), p=[0.5, 0.4, 0.05, 0.05])
    return X, 5.0 * np.arange(1.0, n + 1.0) * rng.choice([1.0, -1.0])


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(2, 9),
    m=st.integers(1, 5),
    block=st.sampled_from([1, 1, 3]),
    kind=st.sampled_from([Principal, Sketch]),
    intercept=st.booleans(),
)
def test_predictions_change_within_bound(
    seed: int,
    p: int,
    m: int,
    block: int,
    kind: Any,
    intercept: bool,  # noqa: FBT001
) -> None:
    X, y = adversarial_rows(seed, 40, p, m)
    model = op.ORFitRegressor(memory=kind(m), fit_intercept=intercept, block_update=block > 1)
    done = learn_and_measure(model, X, y, block)
    found = done.model.forgetting_bound_
    assert (found.kind, found.why) == ("bound", "")
    size = np.linalg.norm(X) * np.linalg.norm(done.steps)
    assert done.changed <= found.all_steps + 1e-9 * size
    G = np.hstack((np.ones((len(X), int(intercept))), X)).T
    probe = np.random.default_rng(seed).normal(size=(len(G), 1))
    step = model.memory_.split(probe).lifted
    moved = np.linalg.norm(G.T @ step)
    assert moved <= found.one_step * np.linalg.norm(step) + 1e-9 * np.linalg.norm(G)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 4),
    kind=st.sampled_from([Principal, Sketch]),
    leftwards=st.booleans(),
)
def test_merged_learners_have_bound_for_all_rows(
    seed: int,
    m: int,
    kind: Any,
    leftwards: bool,  # noqa: FBT001
) -> None:
    X, y = adversarial_rows(seed, 60, 6, m)
    parts = [slice(0, 20), slice(20, 40), slice(40, 60)]
    made = [
        learn_and_measure(op.ORFitRegressor(memory=kind(m)), X[rows], y[rows]) for rows in parts
    ]
    then = []
    for rows in parts:
        one = op.ORFitRegressor(memory=kind(m))
        for x, target in zip(X[rows], y[rows], strict=True):
            then.append(one.learn_one(x, target).predict_one(x))
    a, b, c = (one.model for one in made)
    whole = a.merge(b).merge(c) if leftwards else a.merge(b.merge(c))
    whole.partial_fit(X[::7], y[::7] + 1.0)
    changed = np.linalg.norm(whole.predict(X) - then)
    size = np.linalg.norm(X) * np.linalg.norm(whole.coef_) + np.linalg.norm(y)
    assert changed <= whole.forgetting_bound_.all_steps + 1e-9 * size


def test_bound_holds_for_outputs_weights_and_feature_maps() -> None:
    rng = np.random.default_rng(0)
    X, Y, s = rng.normal(size=(50, 4)), rng.normal(size=(50, 3)), rng.uniform(0.2, 3.0, 50)
    A = rng.normal(size=(4, 12, 3))

    def own(X: Floats) -> Floats:
        return np.tanh(np.einsum("nd,dpc->npc", X, A))

    for feature_map in (None, own):
        model = op.ORFitRegressor(memory=3, feature_map=feature_map)
        then = []
        for k in range(50):
            model.learn_one(X[k], Y[k], sample_weight=s[k])
            then.append(model.predict(X[k : k + 1])[0])
        changed = np.sqrt(s)[:, None] * (model.predict(X) - then)
        found = model.forgetting_bound_
        assert 0.0 < np.linalg.norm(changed) <= found.all_steps


def test_bound_holds_for_late_classes() -> None:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, y = X[:200], np.where(np.arange(200) < 100, y[:200] % 3, y[:200])
    model = op.ORFitClassifier(memory=20)
    then = np.zeros((200, 10))
    for k in range(200):
        model.learn_one(X[k], y[k])
        then[k, model.classes_] = (
            np.ravel(model.decision_function(X[k : k + 1]))[-len(model.classes_) :]
            if len(model.classes_) > 2
            else 0.0
        )
    rows = np.arange(len(X)) >= 10  # before, two classes have one score
    changed = model.decision_function(X)[rows] - then[rows]
    assert 0.0 < np.linalg.norm(changed) <= model.forgetting_bound_.all_steps


def test_saved_and_copied_learners_retain_bound(tmp_path: Any) -> None:
    X, y = adversarial_rows(2, 30, 6, 2)
    model = learn_and_measure(op.ORFitRegressor(memory=2), X, y).model
    found = model.forgetting_bound_
    op.save(model, tmp_path / "a.onepass")
    assert op.load(tmp_path / "a.onepass").forgetting_bound_ == found
    described = describe(tmp_path / "a.onepass")["forgetting_bound"]
    assert described == {"kind": "bound", "one_step": pytest.approx(found.one_step),
                    "all_steps": found.all_steps}  # fmt: skip
    assert pickle.loads(pickle.dumps(model)).forgetting_bound_ == found  # noqa: S301
    del model.forgotten_  # as of a file that was written before it was counted
    assert model.forgetting_bound_.kind == "none"
    assert "counted" not in model.forgetting_bound_.why
    model.partial_fit(X, y)
    assert math.isinf(model.forgetting_bound_.all_steps)


def test_bound_is_zero_if_nothing_was_dropped() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(10, 30)), rng.normal(size=10)
    assert op.ORFitRegressor().forgetting_bound_.all_steps == 0.0
    for spec in (None, Principal(10), Sketch(10)):
        found = op.ORFitRegressor(memory=spec).fit(X, y).forgetting_bound_
        assert found.one_step < 1e-6
        assert found.all_steps < 1e-6
    one, two = (op.ORFitRegressor(memory=Basis()).fit(X, y + far) for far in (0.0, 1.0))
    assert one.merge(two).inconsistent_rows_ > 0  # targets of the second part are not fitted
    assert one.forgetting_bound_.kind == "none"


@pytest.mark.parametrize(
    ("spec", "noise", "why"),
    [
        (Principal(3), 0.1, "noise"),
        (Sketch(3), 0.1, "noise"),
        (None, 0.1, "noise"),
        (Principal(3, of="projected"), 0.0, "drops"),
        (LastDirections(3), 0.0, "drops"),
        (Random(3), 0.0, "drops"),
        (NoMemory(), 0.0, "drops"),
    ],
)
def test_missing_bound_has_reason(spec: Any, noise: float, why: str, tmp_path: Any) -> None:
    X, y = adversarial_rows(4, 20, 6, 2)
    model = op.ORFitRegressor(memory=spec, noise=noise).fit(X, y)
    found = model.forgetting_bound_
    op.save(model, tmp_path / "a.onepass")
    assert describe(tmp_path / "a.onepass")["forgetting_bound"] == {"kind": "none"}
    assert (found.one_step, found.all_steps, found.kind) == (math.inf, math.inf, "none")
    assert why in found.why


# -- near it, and false ---------------------------------------------------------------------------


def test_last_d_times_total_movement_is_not_a_bound() -> None:
    """Each step is orthogonal to another memory: √D_T ‖Σ Δw‖ is exceeded, (2) is not."""
    worst = 0.0
    for seed in range(60):
        X, y = adversarial_rows(3 * seed + 2, 40, 6, 3)
        done = learn_and_measure(op.ORFitRegressor(memory=3), X, np.sin(y))
        whole = np.linalg.norm(np.sum(done.steps[1:], axis=0))
        lost = math.sqrt(done.model.memory_.lost)
        worst = max(worst, done.changed / (lost * whole))
        summed = sum(
            math.sqrt(D) * np.linalg.norm(step) for D, step in zip(done.D, done.steps, strict=True)
        )
        assert done.changed <= summed <= done.model.forgetting_bound_.all_steps * (1 + 1e-9)
    assert worst > 2.0


def test_lengths_of_projected_gradients_are_not_a_bound() -> None:
    """100 rows of e₁, then one of 2 e₂: of the first only the length 1 is known when it leaves."""
    X = np.vstack((np.tile([1.0, 0.0], (100, 1)), [[0.0, 2.0]]))
    memory = Principal(1, of="projected").start(2, 1)
    for g in X:
        memory = memory.after(g[:, None], memory.split(g[:, None]), np.zeros(1))
    assert memory.lost is None
    assert memory.subspace.lost == pytest.approx(1.0)
    step = memory.split(np.array([[1.0], [0.0]])).lifted
    assert np.linalg.norm(step) == pytest.approx(1.0)  # it may move along e₁
    assert np.sum((X @ step) ** 2) == pytest.approx(100.0)
