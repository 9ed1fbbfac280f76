"""Metrics of probabilities: equal to scikit-learn's, mergeable, and usable in evaluations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits

import onepass as op
from onepass.errors import ParameterError, ShapeError
from onepass.evaluate import prequential
from onepass.evaluate.metrics import (
    ROCAUC,
    AveragePrecision,
    Brier,
    LogLoss,
    MacroF1,
    row_probabilities,
)
from onepass.learners.estimator import Classifier
from raising import raises

NAMES = ["accuracy", "log_loss", "brier", "roc_auc", "average_precision"]


def drawn(n: int, c: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Labels, classes and probabilities, some of them extreme."""
    rng = np.random.default_rng(seed)
    classes = np.array(["a", "b", "c", "d"])[:c]
    y = rng.integers(0, c, n)
    z = rng.normal(size=(n, c)) * np.exp(rng.normal(size=(n, 1))) + 1.5 * np.eye(c)[y]
    P = np.exp(z - z.max(axis=1, keepdims=True))
    return classes[y], classes, P / P.sum(axis=1, keepdims=True)


def rows(y: Any, classes: Any, P: Any) -> Any:
    return row_probabilities(classes[P.argmax(axis=1)], y, classes, P)


@pytest.mark.parametrize("c", [2, 4])
def test_metrics_equal_those_of_scikit_learn(c: int) -> None:
    y, classes, P = drawn(5000, c)
    found = rows(y, classes, P)
    assert LogLoss().add(y, found).value == pytest.approx(sklearn.metrics.log_loss(y, P))
    half = sklearn.metrics.brier_score_loss(y, P, labels=classes, scale_by_half=True)
    assert Brier().add(y, found).value == pytest.approx(half)
    auc, precision = ROCAUC().add(y, found).value, AveragePrecision().add(y, found).value
    if c > 2:
        assert np.isnan([auc, precision]).all()
        return
    assert auc == pytest.approx(sklearn.metrics.roc_auc_score(y == "b", P[:, 1]), abs=2e-5)
    expected = sklearn.metrics.average_precision_score(y == "b", P[:, 1])
    assert precision == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", ["balanced", "rare", "narrow", "saturated", "drifting", "ties"])
def test_areas_of_long_streams(kind: str, rng: np.random.Generator) -> None:
    n, rate = 300_000, {"balanced": 0.5, "rare": 1e-3}.get(kind, 0.1)
    y = (rng.random(n) < rate).astype(int)
    odds = rng.uniform(1.0, 5.0) * y + rng.normal(size=n) * {"saturated": 40.0}.get(kind, 1.0)
    odds += np.linspace(-3.0, 3.0, n) if kind == "drifting" else -5.0
    p = expit(odds)
    p = 0.02 + 1e-4 * p if kind == "narrow" else p.round(2) if kind == "ties" else p
    found = row_probabilities(y, y, np.array([0, 1]), np.column_stack([1.0 - p, p]))
    auc, precision, other = ROCAUC(), AveragePrecision(), ROCAUC()
    for part in np.array_split(np.arange(n), 300):
        auc.add(y[part], found[part])
        precision.add(y[part], found[part])
    for part in np.array_split(np.arange(n), 7):  # blocks do not matter
        other.add(y[part], found[part])
    assert auc.value == other.value
    assert auc.value == pytest.approx(sklearn.metrics.roc_auc_score(y, p), abs=1e-3)
    expected = sklearn.metrics.average_precision_score(y, p)
    assert precision.value == pytest.approx(expected, abs=1e-3)
    half = (ROCAUC().add(y[: n // 2], found[: n // 2]), ROCAUC().add(y[n // 2 :], found[n // 2 :]))
    assert half[0].merge(half[1]).value == pytest.approx(auc.value, abs=2e-3)


@pytest.mark.parametrize("kind", [LogLoss, Brier, ROCAUC, AveragePrecision])
def test_blocks_and_merging_do_not_change_values(kind: Any) -> None:
    y, classes, P = drawn(900, 2)
    found = rows(y, classes, P)
    whole, one, two = kind().add(y, found), kind(), kind()
    for part in np.array_split(np.arange(900), 7):
        (one if part[0] < 400 else two).add(y[part], found[part])
    assert one.merge(two).value == pytest.approx(whole.value, rel=1e-12)
    assert whole.rows == 900
    assert np.isnan(kind().value)


def test_labels_that_are_not_known_have_no_probability() -> None:
    y = np.array(["a", "z", "a"])
    found = row_probabilities(y, y, np.array(["a", "b"]), [[0.5, 0.5]] * 3)
    assert LogLoss().add(y, found).value == pytest.approx(np.log(2))
    assert Brier().add(y, found).value == pytest.approx((0.25 + 0.75 + 0.25) / 3)
    assert np.isnan(ROCAUC().add(y, found).value)
    assert np.isnan(row_probabilities(y, y, y[:0], None)["p"]).all()


def test_ties_count_half() -> None:
    y = np.array([0, 1, 1])
    found = row_probabilities(y, y, np.array([0, 1]), [[0.5, 0.5], [0.5, 0.5], [0.2, 0.8]])
    assert ROCAUC().add(y, found).value == 0.75


def test_areas_are_of_two_classes_and_reading_them_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.array(["no", "yes"])[rng.integers(2, size=300)]
    model = op.RLSClassifier(classes=["maybe", "no", "yes"])
    report = prequential({"rls": model}, (X, y), ["roc_auc", "average_precision"], baselines=False)
    assert set(report.scores["rls"].overall.values()) == {None}
    (y, classes, P), read, unread = drawn(20_000, 2), ROCAUC(), ROCAUC()
    for part in np.array_split(np.arange(20_000), 9):
        read.add(y[part], rows(y[part], classes, P[part]))
        unread.add(y[part], rows(y[part], classes, P[part]))
        assert 0.0 <= read.value <= 1.0
    assert read.value == unread.value
    other = ROCAUC().add(np.array(["c", "d"]), rows(np.array(["c", "d"]), classes[[0, 1]], P[:2]))
    other._labels = ["c", "d"]
    assert np.isnan(read.merge(other).value)


@pytest.mark.parametrize("metrics", [["accuracy"], ["log_loss", "roc_auc"]])
def test_labels_with_lags_and_a_delay(metrics: list[str]) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.repeat(rng.integers(2, size=40), 5)
    model = op.Pipeline(op.features.Lag(rows=[3], delay=3), op.RLSClassifier())
    report = prequential({"rls": model}, (X, y), metrics, delay=3, baselines=False)
    assert all(np.isfinite(value) for value in report.scores["rls"].overall.values())


def test_predictions_without_probabilities_are_refused() -> None:
    with raises(ShapeError, argument="predictions", remedy="Pass one such result"):
        LogLoss().add([0, 1], [0.5, 0.5])
    y, classes, P = drawn(5, 2)
    with raises(ShapeError, argument="predictions", got="other predictions"):
        LogLoss().add(y[:4], rows(y, classes, P))


# -- evaluations -----------------------------------------------------------------------------------

X, Y = load_breast_cancer(return_X_y=True)


def models() -> dict[str, Any]:
    return {
        "rls": op.Pipeline(op.features.Scale(), op.RLSClassifier()),
        "lda": op.StreamingLDA(),
    }


def by_hand(model: Any, y: Any) -> tuple[Any, Any]:
    """Labels and probabilities of the second class, one row at a time."""
    found = []
    for i in range(len(y)):
        found.append(model.predict_proba_one(X[i]).get(1, np.nan))
        model.learn_one(X[i], y[i])
    first = min(np.flatnonzero(y == k)[0] for k in (0, 1))
    known = np.arange(len(y)) > max(np.flatnonzero(y == k)[0] for k in (0, 1))
    return np.array(found)[known], first


def test_prequential_probabilities_are_those_before_learning() -> None:
    report = prequential(models(), (X[:300], Y[:300]), NAMES, window=50)
    p, _ = by_hand(models()["rls"], Y[:300])
    y = Y[300 - len(p) : 300]
    score = report.scores["rls"]
    # rows that have a known label, but come before the second class, have probability 1
    total = score.overall["log_loss"]
    assert total is not None
    certain = 300 - 2 - len(p)
    expected = sklearn.metrics.log_loss(y, p) * len(p) / (len(p) + certain)
    assert total == pytest.approx(expected, rel=1e-6)
    assert score.recent is not None
    assert score.recent["log_loss"] == pytest.approx(sklearn.metrics.log_loss(y[-50:], p[-50:]))
    plain = prequential(models(), (X[:300], Y[:300]), ["accuracy"])
    assert plain.scores["rls"].overall["accuracy"] == score.overall["accuracy"]
    assert plain.scores["lda"].overall["accuracy"] == report.scores["lda"].overall["accuracy"]
    assert 0.6 < report.scores["majority"].overall["log_loss"] < 0.75
    assert report.scores["rls"].overall["roc_auc"] > 0.95


@pytest.mark.parametrize("delay", [0, 5])
def test_blocks_and_single_rows_have_the_same_scores(
    delay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = prequential(models(), (X[:200], Y[:200]), NAMES, delay=delay)
    monkeypatch.setattr(Classifier, "_scores_blocks", False)
    rows = prequential(models(), (X[:200], Y[:200]), NAMES, delay=delay)
    for name, score in rows.scores.items():
        assert blocks.scores[name].overall == pytest.approx(score.overall, rel=1e-9)


def test_delayed_labels_and_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "m.run"
    whole = prequential(models(), (X[:200], Y[:200]), NAMES, delay=5, window=30)
    for n in (120, 200):
        report = prequential(
            models(), (X[:n], Y[:n]), NAMES, delay=5, window=30, checkpoint=path, resume=n == 200
        )
    for name, score in whole.scores.items():
        assert report.scores[name].overall == pytest.approx(score.overall, rel=1e-12)
        assert report.scores[name].recent == score.recent


def test_several_classes_and_networks() -> None:
    digits, labels = load_digits(return_X_y=True)
    digits, labels = (digits[:400] / 16).astype(np.float32), labels[:400]
    torch.manual_seed(0)
    net = op.nn.EKF(torch.nn.Linear(64, 10), loss="cross_entropy", noise=10.0)
    report = prequential(net, (digits, labels), ["accuracy", "log_loss"])
    assert report.scores["EKF"].overall["log_loss"] < 1.5
    found = prequential(op.RLSClassifier(ridge=1.0), (digits, labels), ["log_loss", "brier"])
    assert found.scores["RLSClassifier"].overall["log_loss"] < 1.2


def test_models_without_probabilities_are_refused() -> None:
    class Labels(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def test_then_train(self, X: Any, y: Any) -> Any:
            del X
            return y

    with raises(ParameterError, got="'Labels', which has none", remedy="Leave out the metric"):
        prequential(Labels(), (X, Y), ["log_loss"])
    assert MacroF1().add([0, 1], [0, 1]).value == 1.0


@pytest.mark.parametrize("delay", [0, 7, 500])
def test_blocks_without_probabilities(delay: int) -> None:
    """No row of the first block has a probability; with a long delay, no row at all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)
    rows = [
        op.stream.Rows(X[a:b], y[a:b], first=a) for a, b in ((0, 1), (1, 2), (2, 150), (150, 300))
    ]
    names = ["log_loss", "brier", "roc_auc", "average_precision"]
    found = [
        op.evaluate.prequential(
            op.RLSClassifier(), stream, names, baselines=False, delay=delay
        ).scores["RLSClassifier"].overall
        for stream in (rows, (X, y))
    ]  # fmt: skip
    one, two = ([np.nan if each[name] is None else each[name] for name in names] for each in found)
    assert one == pytest.approx(two, rel=1e-9, nan_ok=True)
    assert (found[0]["log_loss"] is None) == (delay == 500)


def test_merged_areas_of_more_than_two_labels_are_undefined() -> None:
    one, two = ROCAUC(), ROCAUC()
    labels = np.array([0, 1, 2, 0, 1, 2])
    P = np.full((6, 3), 1 / 3)
    two.add(labels, row_probabilities(labels, labels, np.arange(3), P))
    pair = labels[:2]
    one.add(pair, row_probabilities(pair, pair, np.arange(2), [[0.6, 0.4], [0.3, 0.7]]))
    assert one.value == 1.0
    assert np.isnan(one.merge(two).value)


def test_weights_of_rows_reach_the_model_with_and_without_a_delay() -> None:
    rng = np.random.default_rng(1)
    X, w = rng.normal(size=(300, 3)), rng.random(300) * 3
    y = (X[:, 0] > 0).astype(int)
    for delay in (0, 40):
        model = op.StreamingLDA()
        rows = [op.stream.Rows(X, y, weight=w)]
        op.evaluate.prequential(model, rows, baselines=False, delay=delay)
        assert model.counts_.sum() == pytest.approx(w.sum())
