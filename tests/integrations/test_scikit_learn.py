"""Features and learners inside scikit-learn: pipelines, searches, calibration and metadata."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import onepass as op
from onepass.errors import ParameterError
from onepass.features import Encode, Impute, IncrementalPCA, RandomFourier, RandomReLU, Scale

rng = np.random.default_rng(0)
X = rng.normal(2, 3, size=(300, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=300)
LABELS = np.where(np.median(Y) < Y, "up", "down")
TABLE = pd.DataFrame({"km": X[:, 0], "by": rng.choice(list("abc"), size=300), "load": X[:, 1]})
TABLE["load"] = TABLE["load"].where(np.arange(300) % 7 != 1)
BY = [f"by={label}" for label in dict.fromkeys(TABLE["by"])]
FARE = TABLE["km"] + 3.0 * (TABLE["by"] == "a") + TABLE["load"].fillna(0.0)


@pytest.mark.parametrize(
    "features",
    [
        (Scale(),),
        (Impute(), Scale(), IncrementalPCA(4)),
        (Scale(), RandomReLU(40)),
        (Scale(), RandomFourier(40, gamma=0.05)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("last", [op.RLSRegressor(ridge=1e-2), Ridge(1e-2)], ids=repr)
def test_features_in_pipelines_of_scikit_learn(features: Any, last: Any) -> None:
    model = make_pipeline(*features, last).fit(X[:200], Y[:200])
    assert model.score(X[200:], Y[200:]) > 0.6
    Z = X[:200]
    for step in features:
        Z = sklearn.base.clone(step).fit(Z).transform(Z)
    assert_allclose(model[:-1].transform(X[:200]), Z)
    assert len(model[:-1].get_feature_names_out()) == Z.shape[1]


def test_learners_after_transformers_of_scikit_learn() -> None:
    model = Pipeline([("unit", StandardScaler()), ("last", op.SGDClassifier())]).fit(X, LABELS)
    assert model.score(X, LABELS) > 0.9
    assert model.classes_.tolist() == ["down", "up"]


def test_pipeline_of_named_tables() -> None:
    model = make_pipeline(Encode(), Impute(), op.RLSRegressor(ridge=1e-6))
    model.fit(TABLE, FARE)
    assert model.score(TABLE, FARE) > 0.9
    assert model[:-1].get_feature_names_out().tolist() == ["km", *BY[:1], "load", *BY[1:]]


@pytest.mark.parametrize(
    "last", [op.RLSRegressor(ridge=1e-6), op.SGDRegressor(), Ridge()], ids=repr
)
def test_column_transformer(last: Any) -> None:
    columns = ColumnTransformer(
        [("unit", make_pipeline(Impute(), Scale()), ["km", "load"]), ("by", Encode(), ["by"])]
    )
    model = make_pipeline(columns, last).fit(TABLE, FARE)
    assert model.score(TABLE, FARE) > 0.8
    names = columns.get_feature_names_out().tolist()
    assert names == ["unit__km", "unit__load", *(f"by__{name}" for name in BY)]
    named = sklearn.base.clone(columns).set_output(transform="pandas").fit_transform(TABLE)
    assert named.columns.tolist() == names
    assert_allclose(named.to_numpy(), columns.transform(TABLE))
    by_number = ColumnTransformer([("by", Encode(), [1])]).fit(TABLE.to_numpy(dtype=object))
    assert by_number.get_feature_names_out()[0] == f"by__x1{BY[0][2:]}"


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (
            make_pipeline(Scale(), op.SGDRegressor(step="normalised")),
            {"sgdregressor__step_size": [1e-9, 0.1]},
        ),
        (op.Pipeline(Scale(), op.SGDRegressor(step="normalised")), {"sgd__step_size": [1e-9, 0.1]}),
        (
            make_pipeline(Scale(), RandomReLU(), op.RLSRegressor(ridge=1e-3)),
            {"randomrelu__width": [1, 50], "scale__with_mean": [True, False]},
        ),
        (
            op.Pipeline(StandardScaler(), ("units", RandomReLU()), op.RLSRegressor(ridge=1e-3)),
            {"units__width": [1, 50], "standardscaler": [StandardScaler(), Scale()]},
        ),
    ],
    ids=repr,
)
def test_grid_search(model: Any, grid: Any) -> None:
    search = GridSearchCV(model, grid, cv=TimeSeriesSplit(3), scoring="neg_mean_squared_error")
    search.fit(X, Y)
    first = next(iter(grid))
    assert search.best_params_[first] == grid[first][1]
    assert search.best_estimator_.score(X, Y) > 0.5


@pytest.mark.parametrize(
    "last", [op.RLSClassifier(), op.SGDClassifier(), op.StreamingLDA()], ids=repr
)
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("make", [make_pipeline, op.Pipeline])
def test_calibrated_classifier(last: Any, method: str, make: Any) -> None:
    model = CalibratedClassifierCV(make(Scale(), last), method=method, cv=3).fit(X, LABELS)
    shares = model.predict_proba(X)
    assert_allclose(shares.sum(axis=1), 1.0)
    assert (model.predict(X) == LABELS).mean() > 0.9
    assert -np.log(shares[np.arange(300), (LABELS == "up").astype(int)]).mean() < 0.4


def test_cross_val_score() -> None:
    digits, labels = load_digits(n_class=4, return_X_y=True)
    model = make_pipeline(Scale(), RandomReLU(200), op.RLSClassifier(ridge=1.0))
    ours = cross_val_score(model, digits, labels, cv=3, scoring="accuracy")
    theirs = cross_val_score(LogisticRegression(max_iter=500), digits, labels, cv=3)
    assert ours.min() > 0.9
    assert ours.mean() > theirs.mean() - 0.02
    scores = cross_val_score(
        op.Pipeline(Encode(), Impute(), op.RLSRegressor()), TABLE, FARE,
        scoring="neg_mean_squared_error",
    )  # fmt: skip
    assert scores.min() > -2.0


# -- tags and metadata -----------------------------------------------------------------------------


def test_tags() -> None:
    assert get_tags(op.RLSRegressor()).merging == "exact"
    assert get_tags(op.SGDRegressor()).merging == "refused"
    assert get_tags(op.Pipeline(IncrementalPCA(2), op.RLSClassifier())).merging == "approximate"
    assert get_tags(Encode()).merging == "exact"
    timed = op.RLSRegressor(forgetting=op.forgetting.Bounded(half_life=5.0))
    assert get_tags(timed).uses_time
    assert get_tags(op.Pipeline(Scale(), timed)).uses_time
    assert get_tags(op.Keyed(timed, "id")).uses_time
    wrong = op.RLSRegressor(forgetting=7.0)
    assert not get_tags(wrong).uses_time
    with pytest.raises(ParameterError):
        wrong.fit(X, Y)


@pytest.fixture
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


TIMED = op.RLSRegressor(forgetting=op.forgetting.Bounded(half_life=20.0))


@pytest.mark.usefixtures("_routing")
@pytest.mark.parametrize("requested", ["learner", "pipeline"])
@pytest.mark.parametrize("make", [make_pipeline, op.Pipeline])
def test_weights_and_times_are_routed(make: Any, requested: str) -> None:
    if make is make_pipeline and requested == "pipeline":
        pytest.skip("A pipeline of scikit-learn has no requests of its own.")
    learner = sklearn.base.clone(TIMED)
    model = make(Scale(), learner)
    target: Any = learner if requested == "learner" else model
    target.set_fit_request(time=True, sample_weight=True)
    target.set_score_request(sample_weight=True)
    time, weight = np.arange(300.0) ** 1.5, rng.choice([0.0, 1.0, 3.0], size=300)
    search = GridSearchCV(model, {"rlsregressor__ridge": [1e-6, 1e3]}, cv=TimeSeriesSplit(3))
    search.fit(X, Y, time=time, sample_weight=weight)
    assert search.best_params_ == {"rlsregressor__ridge": 1e-6}
    expected = sklearn.base.clone(model)
    expected.fit(X, Y, time=time, sample_weight=weight)
    assert_allclose(search.predict(X), expected.predict(X), rtol=1e-9)  # the ridges differ
    unweighted = sklearn.base.clone(model).fit(X, Y, time=time)
    assert not np.allclose(search.predict(X), unweighted.predict(X))


@pytest.mark.usefixtures("_routing")
def test_requests_of_partial_fit() -> None:
    learner = sklearn.base.clone(TIMED).set_partial_fit_request(time=True)
    model = op.Pipeline(Scale(), learner).set_partial_fit_request(sample_weight="importance")
    for one in (model, sklearn.base.clone(model)):
        requests = one.get_metadata_routing().partial_fit.requests
        assert requests["time"] is True
        assert requests["sample_weight"] == "importance"
        assert requests["classes"] is None
