"""Rows whose target is missing, in learners that accept them: streams, pipelines and wrappers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import get_tags

import onepass as op
from onepass.features import Encode, Impute, Lag
from onepass.features.target_origin import TargetOrigin

N = 300


def kalman(missing: str = "advance") -> Any:
    return op.KalmanRegressor(0.01, 0.01, missing=missing)


MODELS: dict[str, Callable[[], Any]] = {
    "bare": kalman,
    "lags": lambda: op.Pipeline(Lag(rows=[1, 3]), Impute(), kalman()),
    "difference": lambda: op.Pipeline(Lag(rows=[2], difference=True), Impute(), kalman()),
    "origin": lambda: op.Pipeline(Encode(), TargetOrigin(), kalman()),
    "keyed": lambda: op.Keyed(kalman(), by=0),
    "conformal": lambda: op.Conformal(kalman()),
    "horizon": lambda: op.Conformal(op.Pipeline(Lag(rows=1), Impute(), kalman()), horizon=3),
}


def rows(rng: np.random.Generator) -> tuple[Any, Any]:
    """A moving weight at level 50; targets are missing at the start, in runs and one by one."""
    X = np.column_stack([np.arange(N) % 2, rng.normal(size=(N, 2))])
    y = 50.0 + X[:, 1] * np.cumsum(0.1 * rng.normal(size=N)) + 0.1 * rng.normal(size=N)
    y[rng.random(N) < 0.4] = np.nan
    a = int(rng.integers(40, 200))
    y[: rng.integers(8)] = y[a : a + 40] = np.nan
    return X, y


@pytest.mark.parametrize("name", MODELS)
def test_models_pass_gaps_to_their_learner(name: str, rng: np.random.Generator) -> None:
    (X, y), model, single = rows(rng), MODELS[name](), MODELS[name]()
    assert get_tags(model).missing_targets
    parts = np.array_split(np.arange(N), np.sort(rng.integers(1, N, 5)))
    found = np.concatenate([model.test_then_train(X[part], y[part]) for part in parts])
    assert np.isfinite(found).all()
    assert np.isfinite(model.predict_one(X[0]))
    for i in range(N):
        assert single.predict_one(X[i]) == pytest.approx(found[i], rel=1e-9, abs=1e-9)
        single.learn_one(X[i], y[i])
    if name in {"conformal", "horizon"}:
        assert 0.5 < np.max(model.coverage_) <= 1.0
    if name == "bare":
        for learner in (op.RLSRegressor(), kalman("error")):
            with pytest.raises(op.errors.NotFiniteError):
                learner.partial_fit(X, y)


@pytest.mark.parametrize("source", ["stream", "arrays"])
def test_evaluations_learn_gaps_and_score_known_targets(
    source: str, rng: np.random.Generator
) -> None:
    X, y = rows(rng)
    known = ~np.isnan(y)

    def evaluated(**models: Any) -> Any:
        stream: Any = (X, y)
        if source == "stream":
            frame = pd.DataFrame(X).rename(columns=str).assign(y=y)
            stream = op.stream.read(frame, target="y", block=64)
        return op.evaluate.prequential(models, stream)

    report = evaluated(gaps=kalman(), known=kalman("error"))
    errors = {
        "gaps": np.abs(kalman().test_then_train(X, y) - y)[known],
        "known": np.abs(kalman().test_then_train(X[known], y[known]) - y[known]),
    }
    for name, each in errors.items():
        assert report.scores[name].overall["mae"] == pytest.approx(each.mean(), rel=1e-9)
    assert (report.rows, report.skipped) == (known.sum(), (~known).sum())
    if source == "stream":
        assert evaluated(known=kalman("error")).skipped == (~known).sum()


def test_a_stream_is_as_before_and_blocks_may_be_empty(rng: np.random.Generator) -> None:
    X, y = rows(rng)
    stream = op.stream.read(pd.DataFrame(X).rename(columns=str).assign(y=y), target="y", block=2)
    for _ in range(2):
        report = op.evaluate.prequential({"gaps": kalman()}, stream, delay=3)
        assert report.rows == (~np.isnan(y)).sum()
        op.evaluate.prequential(kalman(), stream)
    assert not any(np.isnan(block.y).any() for block in stream)
    assert op.evaluate.prequential(kalman(), (X, y), delay=3).skipped == np.isnan(y).sum()
    model = MODELS["origin"]().partial_fit(X[:0], y[:0]).partial_fit(X, y)
    assert len(model.test_then_train(X[:0], y[:0])) == 0
    parts = [(X[:0], y[:0]), (X, y), (X[:1], np.full(1, np.nan)), (X[:0], y[:0])]
    blocks = [SimpleNamespace(X=a, y=b) for a, b in parts]
    assert op.evaluate.prequential(kalman(), blocks).skipped == np.isnan(y).sum() + 1
