"""Probabilities of classifiers: form, calibration, and equality of all ways to learn."""

import copy
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score

import onepass as op
from cases import CLASSIFIERS, Case, features, make_targets, parametrize
from onepass import native
from onepass.linalg import calibration
from raising import raises
from sampling import sample

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")

every = parametrize(CLASSIFIERS)
SCORES = [
    op.RLSClassifier(),
    op.RLSClassifier(forgetting=0.99),
    op.RLSClassifier(forgetting="window:50"),
    op.SGDClassifier("hinge"),
    op.Perceptron(fit_intercept=True),
    op.NearestClassMean(),
    op.ARTIPCAClassifier(),
    op.ORFitClassifier(memory=5, noise=10.0),
]
names = [repr(model) for model in SCORES]


def overlapping(n: int, c: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Rows of Gaussian classes with the Bayes error of about a quarter."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, c, n)
    return rng.normal(size=(n, 4)) + 1.3 * np.eye(c, 4)[y], y


@every
def test_probabilities_are_in_the_order_of_the_classes_and_sum_to_one(case: Case) -> None:
    X = features(60, 4)
    y = make_targets(case, X)
    learner = case().partial_fit(X, y)
    for x, label in zip(X, y, strict=True):
        learner.learn_one(x, label)
    found = learner.predict_proba(X)
    assert found.shape == (60, len(learner.classes_))
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert (found >= 0.0).all()
    if learner._calibrated:  # the softmax of scaled scores with offsets
        fitted = calibration.scale_and_offsets(learner.calibration_)
        logs = fitted[0] * learner._scores(X) + fitted[1:]
        assert_allclose(found, softmax(logs, axis=1), rtol=1e-9, atol=1e-12)
    else:
        chosen = found[np.arange(60), np.searchsorted(learner.classes_, learner.predict(X))]
        assert (chosen == found.max(axis=1)).all()
    one = learner.predict_proba_one(X[3])
    assert list(one) == learner.classes_.tolist()
    assert_allclose(list(one.values()), found[3], rtol=1e-9, atol=1e-12)
    assert case().predict_proba_one(X[3]) == {}


@pytest.mark.parametrize("weighted", [False, True])
@every
def test_prequential_probabilities_equal_those_of_single_rows(
    case: Case, *, weighted: bool
) -> None:
    X = features(90, 4)
    y = make_targets(case, X)
    y[60] = "z" if y.dtype.kind == "U" else 9  # a label that occurs late
    weights = np.arange(90) % 4 > 0 if weighted else np.ones(90, dtype=bool)
    block, single = case(), case()
    if not block._scores_blocks:
        with raises(op.errors.ParameterError, argument="return_proba"):
            block.test_then_train(X, y, return_proba=True)
        assert not block._started
        return
    labels, P = block.test_then_train(X, y, weights.astype(float), return_proba=True)
    assert (labels == case().test_then_train(X, y, weights.astype(float))).all()
    assert P.shape == (90, len(block.classes_))
    for x, label, on, p in zip(X, y, weights, P, strict=True):
        expected = single.predict_proba_one(x)
        known = np.isin(block.classes_, list(expected))
        assert_allclose(p[known], list(expected.values()), rtol=1e-6, atol=1e-9)
        assert np.isnan(p[~known]).all()
        if on:
            single.learn_one(x, label)


@parametrize([case for case in CLASSIFIERS if case.public])
def test_probabilities_survive_copies_and_files(case: Case, tmp_path: Path) -> None:
    X = features(60, 4)
    y = make_targets(case, X)
    learner = case().partial_fit(X[:30], y[:30])
    for x, label in zip(X[30:45], y[30:45], strict=True):
        learner.learn_one(x, label)
    op.save(learner, tmp_path / "m.onepass")
    twins = [
        op.load(tmp_path / "m.onepass"),
        copy.copy(learner),
        copy.deepcopy(learner),
        pickle.loads(pickle.dumps(learner)),  # noqa: S301
    ]
    assert_allclose(learner.frozen_copy().predict_proba(X), learner.predict_proba(X), atol=1e-12)
    for twin in twins:
        assert_allclose(twin.predict_proba(X), learner.predict_proba(X), rtol=0, atol=1e-12)
    learner.partial_fit(X[45:], y[45:])
    for twin in twins:
        twin.partial_fit(X[45:], y[45:])
        assert_allclose(twin.predict_proba(X), learner.predict_proba(X), rtol=0, atol=1e-9)
    assert not calibration.start(2).any()


@pytest.mark.parametrize(
    ("model", "c"), sample(list(product(SCORES, [2, 4])), 8, "probabilities of blocks")
)
def test_blocks_and_single_rows_give_equal_probabilities(model: Any, c: int) -> None:
    X, y = overlapping(400, c)
    one, two = copy.deepcopy(model), copy.deepcopy(model).partial_fit(X, y)
    for x, label in zip(X, y.tolist(), strict=True):
        one.learn_one(x, label)
    three = copy.deepcopy(model)
    for i, part in enumerate(np.array_split(np.arange(400), [1, 7, 130, 131, 300])):
        verb = three.test_then_train if i % 2 else three.partial_fit
        verb(X[part], y[part])
    assert one.calibration_[3] > 200
    assert_allclose(one.calibration_, two.calibration_, rtol=1e-6)
    assert_allclose(three.calibration_, two.calibration_, rtol=1e-6)
    assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", SCORES, ids=names)
def test_weights_of_zero_do_not_change_probabilities(model: Any) -> None:
    X, y = overlapping(300)
    weights = np.resize([1.0, 0.0, 2.0], 300)
    on = weights > 0
    one = copy.deepcopy(model).partial_fit(X, y, sample_weight=weights)
    two = copy.deepcopy(model).partial_fit(X[on], y[on], sample_weight=weights[on])
    assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=0, atol=1e-9)


COMPILED: list[Any] = [
    *(lambda loss=loss: op.SGDClassifier(loss) for loss in ("logistic", "hinge", "perceptron")),
    lambda: op.SGDClassifier("hinge", step="pa1", fit_intercept=False),
    op.Perceptron,
    lambda: op.KernelRLSClassifier(gamma=0.1),
]


@pytest.mark.skipif(native.loops is None, reason="the compiled loops are not installed")
@pytest.mark.parametrize("labels", ["ab", "abc", (0, 1), (-1, 0, 5), (False, True)])
@pytest.mark.parametrize("make", COMPILED)
@settings(max_examples=5)
@given(scale=st.sampled_from([1e-9, 1.0, 40.0, 1e4, 1e30]), seed=st.integers(0, 99))
def test_compiled_probabilities_equal_those_of_blocks(
    make: Any, labels: Any, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = scale * rng.normal(size=(30, 3))
    y = np.array(list(labels))[np.append(np.arange(len(labels)), rng.integers(0, len(labels), 30))]
    model = make()
    for x, label in zip(X, y, strict=False):
        model.learn_one(dict(zip("abc", x.tolist(), strict=True)), label)
    if model._single is None:  # huge rows
        return
    for x in 3.0 * X:
        expected = dict(
            zip(model.classes_.tolist(), model.predict_proba(x[None])[0].tolist(), strict=True)
        )
        for row in (x, x.tolist(), dict(zip("bac", x[[1, 0, 2]].tolist(), strict=True))):
            found = model._single.predict_proba_one(row)
            assert found is not None
            assert list(found) == list(expected)
            assert [type(label) for label in found] == [type(label) for label in expected]
            assert_allclose(list(found.values()), list(expected.values()), rtol=1e-12, atol=1e-12)
            assert model.predict_proba_one(row) == found
    with pytest.raises(op.errors.OnepassError):
        model.predict_proba_one([1.0, np.nan, 0.0])


def test_one_vs_rest_probabilities_are_in_the_order_of_scores_far_below_zero() -> None:
    model = op.SGDClassifier("logistic", initial_coef=[[-9e2], [-8e2], [-1e3]], classes=list("abc"))
    model.partial_fit([[1.0]], ["b"], sample_weight=0.0)
    assert_allclose(model.predict_proba([[1.0]]), [[0.0, 1.0, 0.0]], atol=1e-12)
    assert model.predict([[1.0]]).tolist() == ["b"]


def test_new_classes_may_come_at_any_time() -> None:
    X, y = overlapping(600, 4)
    late = np.argsort(y == 3, kind="stable")
    model = op.RLSClassifier().partial_fit(X[late], y[late])
    found = model.predict_proba(X)
    assert found.shape == (600, 4)
    assert log_loss(y, found) < 1.2  # the offsets contain that the last rows have one class


@pytest.mark.parametrize("model", sample([SCORES[0], *SCORES[3:]], 3, "hindsight"))
def test_scale_and_offsets_are_near_the_best_ones_in_hindsight(model: Any) -> None:
    X, y = overlapping(9000, 3)
    rare = np.arange(9000)[(y > 0) | (np.arange(9000) % 8 == 0)]  # a class of 6 %
    X, y = X[rare], y[rare]
    model = copy.deepcopy(model).partial_fit(X[:4500], y[:4500])
    scores = model._scores(X[4500:])

    def loss(fitted: Any) -> float:
        P = calibration.probabilities(scores, np.append(np.exp(fitted[0]), fitted[1:]))
        return float(log_loss(y[4500:], P))

    best = min(minimize(loss, [first, 0.0, 0.0, 0.0]).fun for first in (-2.0, 0.0, 2.0))
    moving = isinstance(model, op.Perceptron)  # each mistake changes its weights as at the start
    limit = best + (0.07 if moving else 0.03)
    assert log_loss(y[4500:], model.predict_proba(X[4500:])) < limit


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_probabilities_do_not_depend_on_the_unit_of_the_scores(unit: float) -> None:
    X, y = overlapping(500)
    one = op.Perceptron(fit_intercept=True).partial_fit(X, y)
    two = op.Perceptron(step_size=unit, fit_intercept=True).partial_fit(X, y)
    assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-6)


def test_merged_classifiers_average_their_scales_and_offsets() -> None:
    X, y = overlapping(900)
    one = op.RLSClassifier().partial_fit(X[:300], y[:300])
    two = op.RLSClassifier().partial_fit(X[300:], y[300:])
    state = calibration.merged(one.calibration_, two.calibration_)
    one.merge(two)
    assert_allclose(one.calibration_, state)
    whole = op.RLSClassifier().partial_fit(X, y)
    assert log_loss(y, one.predict_proba(X)) < log_loss(y, whole.predict_proba(X)) + 0.01
    new = op.RLSClassifier().merge(two)
    assert_allclose(new.calibration_, two.calibration_)


@pytest.mark.skipif(native.loops is None, reason="the compiled loops are not installed")
def test_compiled_and_numpy_updates_are_equal(monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    rows = [np.exp(rng.normal(0, 3)) * rng.normal(size=c) for c in rng.integers(1, 6, 400)]
    rows[5][0] = -np.inf
    rows += [np.array([1e300, -1e300]), np.array([np.nan, 1.0]), np.array([2.0, 2.0])]
    labels = [int(rng.integers(len(row))) for row in rows]
    weights = rng.exponential(size=len(rows))
    states = []
    for loops in (native.loops, None):
        monkeypatch.setattr(native, "loops", loops)
        state = calibration.start(5)
        for row, y, weight in zip(rows, labels, weights, strict=True):
            scores = np.append(row, np.full(5 - len(row), -np.inf))
            state, _ = calibration.updated(state, scores[None], np.array([y]), weight[None])
        states.append(state)
    assert_allclose(states[0], states[1], rtol=1e-9)
    assert states[0][3] > 200


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("units", [(1e-140, 1e140), (1e140, 1e-140), (1e-100, 1.0)])
def test_scale_stays_finite_when_the_unit_of_the_scores_changes(
    units: tuple[float, float],
    compiled: bool,  # noqa: FBT001
    monkeypatch: Any,
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "loops", None)
    rng, state = np.random.default_rng(0), calibration.start(3)
    scores = np.repeat(units, 100)[:, None] * rng.normal(size=(200, 3))
    state, fitted = calibration.updated(state, scores, rng.integers(3, size=200))
    assert np.isfinite(state).all()
    assert np.isfinite(fitted).all()
    found = calibration.probabilities(np.eye(3) * units[1], fitted[-1])
    assert_allclose(found.sum(axis=1), 1.0)


def test_rows_that_are_used() -> None:
    assert list(calibration.rows(0, 256)) == [*range(256)]
    used = np.array([*calibration.rows(0, 1 << 16)])
    for first, width in ((256, 2), (512, 4), (1024, 8), (1 << 15, 16)):
        part = used[(used >= first) & (used < 2 * first)]
        assert (np.diff(part // width) == 1).all()
        assert len(part) == first // width
        assert len(set(part % 2)) == 2  # labels of a period are all met
    assert len([*calibration.rows(10**9 + 1, 10240)]) in {639, 640, 641}
    joined = [i + at for at in range(0, 5000, 7) for i in calibration.rows(at, 7)]
    assert joined == list(calibration.rows(0, 5005))


@pytest.mark.parametrize(
    "model",
    [
        op.RLSClassifier(),
        op.SGDClassifier("hinge"),
        op.NearestClassMean(),
        op.ORFitClassifier(noise=1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_rare_classes_are_as_probable_as_they_are_frequent(
    model: Any, *, weighted: bool, rng: np.random.Generator
) -> None:
    n, d, still = 5000, int(rng.integers(2, 15)), int(rng.integers(0, 400))
    X = rng.normal(size=(n, d))
    odds = X @ rng.normal(size=d) / np.sqrt(d) + rng.uniform(-4.0, -2.0)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(int)
    y[:2] = 0, 1
    X[:still] = rng.normal(size=d)  # a machine that stands still first
    s = np.where(y == 1, rng.uniform(1.0, 10.0) if weighted else 1.0, 1.0)
    learner = copy.deepcopy(model)
    _, P = learner.test_then_train(X, y, s, return_proba=True)
    counts = np.cumsum(np.eye(2)[y] * s[:, None], axis=0)
    shares = (counts + 1.0) / (counts.sum(axis=1) + 2.0)[:, None]
    late = slice(1500, None)
    of_shares = log_loss(y[late], shares[1499:-1], sample_weight=s[late])
    assert log_loss(y[late], P[late], sample_weight=s[late]) < 1.2 * of_shares
    mean = np.average(P[late, 1])
    assert mean == pytest.approx(shares[-1, 1], abs=0.03 + 0.5 * shares[-1, 1])


@pytest.mark.parametrize("model", SCORES, ids=names)
def test_files_with_a_state_of_another_size_are_refused(model: Any, tmp_path: Path) -> None:
    X, y = overlapping(60)
    learner = copy.deepcopy(model).partial_fit(X, y)
    vars(learner)["calibration_"] = np.zeros(4)
    op.save(learner, tmp_path / "m.onepass")
    with pytest.raises(op.errors.CheckpointError):
        op.load(tmp_path / "m.onepass")


# -- networks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["one_hot", "cross_entropy"])
def test_probabilities_of_networks(loss: str, tmp_path: Path) -> None:
    X, y = overlapping(500, 3)
    x, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 3)
    net: Any = op.nn.EKF(module, loss=loss, noise=3.0).learn(x[:400], labels[:400])
    found = net.predict_proba(x[400:])
    assert_allclose(found.sum(dim=1), 1.0)
    assert log_loss(y[400:], found) < 0.95 * log_loss(y[400:], np.full((100, 3), 1 / 3))
    if loss == "cross_entropy":
        assert torch.equal(found, net.outputs(x[400:]).double().softmax(dim=1))
    net.save(tmp_path / "net.onepass")
    again = op.nn.load(tmp_path / "net.onepass", torch.nn.Linear(4, 3))
    assert torch.equal(again.predict_proba(x), net.predict_proba(x))


# -- scikit-learn ----------------------------------------------------------------------------------


def test_probabilities_in_scikit_learn() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for model in (op.RLSClassifier(ridge=1.0), op.SGDClassifier(), op.NearestClassMean()):
        assert cross_val_score(model, X, y, scoring="neg_log_loss").mean() > -0.3
    calibrated = CalibratedClassifierCV(op.RLSClassifier(ridge=1.0)).fit(X, y)
    assert log_loss(y, calibrated.predict_proba(X)) < 0.15
    X, y = make_classification(600, 10, n_informative=6, n_classes=3, random_state=0)
    search = GridSearchCV(op.RLSClassifier(), {"ridge": [1e-6, 1e6]}, scoring="neg_log_loss")
    assert search.fit(X, y).best_params_ == {"ridge": 1e-6}


def test_probabilities_of_a_pipeline() -> None:
    X, y = load_digits(return_X_y=True)
    model = op.Pipeline(op.features.Scale(), op.RLSClassifier()).partial_fit(X[:1200], y[:1200])
    found = model.predict_proba(X[1200:])
    assert log_loss(y[1200:], found) < 0.5
    assert_allclose(list(model.predict_proba_one(X[1200]).values()), found[0], rtol=1e-9)
    assert op.Pipeline(op.features.Scale(), op.RLSClassifier()).predict_proba_one(X[0]) == {}
    assert not hasattr(op.Pipeline(op.RLSRegressor()), "predict_proba_one")
