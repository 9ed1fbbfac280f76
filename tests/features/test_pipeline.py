"""Pipeline: equal to its features and learner applied in sequence."""

import copy
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    StandardScaler,
)

from features.feature_cases import CUTS, state, tables
from onepass.errors import (
    CheckpointError,
    MergeError,
    NotFiniteError,
    NotFittedError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.features import Encode, Impute, RandomReLU, Scale
from onepass.features.pipeline import Pipeline
from onepass.learners import Conformal, Keyed, RLSClassifier, RLSRegressor, SGDRegressor
from onepass.learners.estimator import Regressor
from onepass.serialization import models
from onepass.validation.table import Table
from raising import raises


class Steepest(Regressor):
    """Normalised least mean squares, row by row; depends on the units of features."""

    def __init__(self, step_size: Any = 0.5) -> None:
        self.step_size = step_size

    def _start(self, d: Any, c: Any) -> None:
        self.w_ = np.zeros((d, c))

    def _learn(self, X: Any, Y: Any, s: Any, class_mask: Any) -> Any:
        del class_mask
        w, predictions = self.w_.copy(), np.empty(Y.shape)
        for i, (x, y) in enumerate(zip(X, Y, strict=True)):
            predictions[i] = x @ w
            rate = self.step_size * (1.0 if s is None else s[i])
            w += rate / (1 + x @ x) * np.outer(x, y - predictions[i])
        if np.abs(Y).max() > 1e6:
            raise NumericalError("Steepest: too much.")
        self.w_ = w
        return predictions

    def _scores(self, X: Any) -> Any:
        return X @ self.w_

    def _widen(self, d: Any) -> None:
        self.w_ = np.vstack([self.w_, np.zeros((d - len(self.w_), self.w_.shape[1]))])

    def _initial_prediction(self, row: Any) -> Any:
        del row
        return 0.0

    def _add_outputs(self, at: Any, c: Any) -> None:
        raise NotImplementedError


def steepest() -> Any:
    return Pipeline(Encode(), Impute(indicator=True), Scale(), Steepest())


def targets(table: Any) -> Any:
    return np.linspace(-1, 2, len(table)) + np.nan_to_num(table["u"]) / 1e8


@given(
    table=tables(),
    cuts=CUTS,
    weights=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=12, max_size=12),
)
@settings(max_examples=30, deadline=None)
def test_blocks_equal_predict_one_then_learn_one(table: Any, cuts: Any, weights: Any) -> None:
    y, s = targets(table), np.array(weights[: len(table)])
    one, many = steepest(), steepest()
    predictions = []
    for i, row in enumerate(table.rows()):
        predictions.append(one.predict_one(row))
        one.learn_one(row, y[i], sample_weight=s[i])
    edges = [0, *sorted(c for c in cuts if c <= len(table)), len(table)]
    blocks = [
        many.test_then_train(table[a:b], y[a:b], sample_weight=s[a:b]) for a, b in pairwise(edges)
    ]
    assert_allclose(np.concatenate(blocks), predictions, rtol=1e-7, atol=1e-9)
    if s.any():
        assert one.get_feature_names_out().tolist() == many.get_feature_names_out().tolist()
        names = list(getattr(one.learner_, "feature_names_in_", []))
        assert names == one.get_feature_names_out().tolist()
        assert_allclose(one.learner_.w_, many.learner_.w_, rtol=1e-7, atol=1e-9)
        assert one.rows_seen_ == many.rows_seen_ == np.count_nonzero(s)
        quiet = steepest().partial_fit(table, y, sample_weight=s)
        assert_allclose(quiet.learner_.w_, many.learner_.w_, rtol=1e-7, atol=1e-9)


def test_pipeline_equals_steps_applied_in_sequence() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(3, 2, size=(50, 3)), rng.normal(size=50)
    X[1:][rng.random((49, 3)) < 0.2] = np.nan
    pipeline = Pipeline(Impute(), Scale(), Steepest())
    impute, scale, learner = Impute(), Scale(), Steepest()
    for rows in (slice(0, 30), slice(30, 50)):
        predictions = pipeline.test_then_train(X[rows], y[rows])
        Z = scale.learn_transform(impute.learn_transform(X[rows]))
        assert_allclose(predictions, learner.test_then_train(Z, y[rows]), atol=1e-12)
    Z = scale.transform(impute.transform(X))
    assert_allclose(pipeline.predict(X), learner.predict(Z))
    assert pipeline.score(X, y) == pytest.approx(learner.score(Z, y))
    assert pipeline.nbytes == impute.nbytes + scale.nbytes + learner.nbytes + _named(pipeline)


def _named(pipeline: Any) -> Any:
    """Bytes of feature names, which only pipelines pass to their steps."""
    names = pipeline.get_feature_names_out()
    return names.nbytes + sum(map(len, names)) + names.nbytes


def test_rls_with_new_categories_equals_batch_fit() -> None:
    rows = [{"by": by, "u": float(u)} for u, by in enumerate("aababcacbd")]
    y = np.arange(10.0) ** 2
    early, late = (
        Pipeline(Encode(), RLSRegressor(ridge=0.1)),
        Pipeline(Encode(), RLSRegressor(ridge=0.1)),
    )
    early.partial_fit(rows, y)
    for a in range(0, 10, 3):
        late.partial_fit(rows[a : a + 3], y[a : a + 3])
    assert_allclose(late.learner.coef_, early.learner.coef_, rtol=1e-9)
    dense = np.array([[r["by"] == c for c in "ab"] + [r["u"]] for r in rows], dtype=float)
    Z = np.column_stack(
        [dense[:, 0], dense[:, 2], dense[:, 1], *[[r["by"] == c for r in rows] for c in "cd"]]
    )
    assert early.get_feature_names_out().tolist() == ["by=a", "u", "by=b", "by=c", "by=d"]
    assert_allclose(early.learner.coef_, RLSRegressor(ridge=0.1).fit(Z, y).coef_, rtol=1e-9)


def test_scale_is_skipped_before_scale_invariant_learners() -> None:
    free = Pipeline(Encode(), Scale(), RLSRegressor()).fit([{"a": 1.0}, {"a": 3.0}], [1.0, 2.0])
    assert [type(part).__name__ for part in free.features] == ["Encode"]
    assert "Scale()         skipped: RLSRegressor does not depend on units" in free.describe()
    assert "Encode()        1 columns -> 1" in free.describe()
    bound = Pipeline(Encode(), Scale(), Steepest())
    assert [type(part).__name__ for part in bound.features] == ["Encode", "Scale"]
    assert "skipped" not in bound.describe()


class Breaks(Scale):
    """A feature that fails after earlier steps have learned."""

    def _step(self, X: Any, first_rows: Any) -> Any:
        if X.shape[0] and X[-1, 0] == -1:
            raise KeyboardInterrupt
        return super()._step(X, first_rows)

    def _compiled_row(self, x: Any, *, learning: bool) -> Any:
        """Learn single rows by ``_step``."""


LEARNED = [{"a": 1.0, "by": "x"}, {"a": 2.0, "by": "y"}]


@pytest.mark.parametrize("learned", [[], LEARNED])
@pytest.mark.parametrize("by", ["new", "x"])
@pytest.mark.parametrize(
    ("a", "y", "error"),
    [
        (1.0, [1e9], NumericalError),
        (1.0, [np.nan], NotFiniteError),
        (1.0, [1.0, 2.0], ValueError),
        (-1.0, [1.0], KeyboardInterrupt),
        (np.inf, [1.0], NotFiniteError),
        ([1.0], [1.0], TypeMismatchError),
    ],
)
def test_errors_leave_all_steps_unchanged(
    learned: Any, by: str, a: Any, y: Any, error: Any
) -> None:
    pipeline = Pipeline(Encode(), Breaks(), Steepest())
    if learned:
        pipeline.partial_fit(learned, [1.0, 2.0])
    before, rows = state(vars(pipeline)), [{"a": a, "by": by}]
    for verb in (pipeline.partial_fit, pipeline.fit, pipeline.test_then_train):
        with pytest.raises(error):
            verb(rows, y)
        assert state(vars(pipeline)) == before
    if len(y) == 1:
        with pytest.raises(error):
            pipeline.learn_one(rows[0], y[0])
        assert state(vars(pipeline)) == before


class Interrupted(Steepest):
    """A learner that is interrupted after it has learned a row of target 7."""

    def learn_one(self, x: Any, y: Any, sample_weight: Any = 1.0, *, time: Any = None) -> Any:
        super().learn_one(x, y, sample_weight, time=time)
        if y == 7.0:
            raise KeyboardInterrupt
        return self


def test_interrupted_row_is_learned_by_all_steps_or_none() -> None:
    rows = [{"a": a, "by": "x"} for a in (1.0, 4.0, None, 2.0)]
    whole, cut = (Pipeline(Encode(), Impute(), Scale(), last()) for last in (Steepest, Interrupted))
    for row in rows:
        whole.learn_one(row, 1.0)
        cut.learn_one(row, 1.0)
    with pytest.raises(KeyboardInterrupt):
        cut.learn_one({"a": 3.0, "by": "x"}, 7.0)
    whole.learn_one({"a": 3.0, "by": "x"}, 7.0)
    assert cut.rows_seen_ == 5
    assert state(vars(cut)["features_"]) == state(vars(whole)["features_"])


def test_error_of_first_row_after_empty_block() -> None:
    pipeline = Pipeline(Impute(), RLSClassifier()).partial_fit(np.empty((0, 2)), [])
    with pytest.raises(NotFiniteError):
        pipeline.learn_one([1.0, 2.0], np.nan)
    assert pipeline.learn_one([1.0, 2.0], "a").predict_one([1.0, 2.0]) == "a"


@pytest.mark.parametrize(("a", "error"), [("x", TypeMismatchError), (np.nan, NotFiniteError)])
def test_numeric_column_refuses_text_and_nan(a: Any, error: Any) -> None:
    pipeline = Pipeline(Encode(), Scale(), Steepest()).partial_fit(LEARNED, [1.0, 2.0])
    before, row = state(vars(pipeline)), {"by": "new", "a": a}
    with pytest.raises(error, match="'a'"):
        pipeline.partial_fit([row], [1.0])
    with pytest.raises(error, match="'a'"):
        pipeline.learn_one(row, 1.0)
    with pytest.raises(error, match="'a'"):
        pipeline.predict([row])
    assert state(vars(pipeline)) == before


def test_errors_name_input_column() -> None:
    pipeline = Pipeline(Encode(), RLSRegressor())
    rows = [{"by": "x", "delay": 1.0}, {"by": "y", "delay": np.nan}]
    with raises(NotFiniteError, argument="X", row=1, column="delay"):
        pipeline.fit(rows, [1.0, 2.0])


def test_predictions_leave_pipeline_unchanged() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "by": ["x", "y", "x"], "y": [1.0, 2.0, 3.0]})
    pipeline = steepest().fit(frame[["a", "by"]], frame["y"])
    before = state(vars(pipeline))
    odd = frame.assign(by=["z", None, "x"])[["y", "by", "a"]]
    predictions = pipeline.predict(odd)
    assert_allclose(pipeline.predict_one({"a": 4.0, "by": "x"}), predictions[2])
    assert np.isfinite(pipeline.predict(frame[["by"]])).all()
    pipeline.score(odd, frame["y"])
    assert state(vars(pipeline)) == before


def test_unfitted_pipeline() -> None:
    pipeline = steepest()
    assert pipeline.predict_one({"a": 1.0}) == 0.0
    assert state(vars(pipeline)) == state(vars(steepest()))
    for verb in (pipeline.predict, lambda X: pipeline.score(X, [1.0])):
        with pytest.raises(NotFittedError):
            verb([{"a": 1.0}])
    assert pipeline.test_then_train([{"a": None}, {"a": 2.0}], [1.0, 1.0]).tolist() == [0.0, 0.0]
    empty = steepest().partial_fit([], [])
    assert empty.predict_one({"a": 1.0}) == 0.0
    assert empty.learn_one({"a": 1.0}, 1.0).rows_seen_ == 1
    with raises(ShapeError, argument="X", got="0 sample"):
        steepest().fit([], [])


def test_first_row_with_only_missing_values_is_learned() -> None:
    rows = [{"a": None}, {"a": 3.0}, {"a": 4.0}]
    y = [5.0, 6.0, 7.0]
    block = Pipeline(Encode(), Impute(), RLSRegressor()).partial_fit(rows, y)
    single = Pipeline(Encode(), Impute(), RLSRegressor())
    for row, target in zip(rows, y, strict=True):
        single.learn_one(row, target)
    assert_allclose(single.learner.coef_, block.learner.coef_)
    assert single.rows_seen_ == 3
    assert single.learner.feature_names_in_.tolist() == ["a"]


def test_classifiers() -> None:
    rows = [{"by": by} for by in "abab"]
    model = Pipeline(Encode(), RLSClassifier())
    model.partial_fit([], [], classes=["hi", "lo"])
    assert model.classes_.tolist() == ["hi", "lo"]
    model.partial_fit(rows, ["hi", "lo", "hi", "lo"])
    assert model.predict(rows).tolist() == ["hi", "lo", "hi", "lo"]
    assert model.score(rows, ["hi", "lo", "hi", "lo"]) == 1.0
    assert model.decision_function(rows).shape == (4,)
    assert is_classifier(model)
    assert not is_regressor(model)
    regressor = Pipeline(Encode(), RLSRegressor())
    assert is_regressor(regressor)
    assert not hasattr(regressor, "decision_function")
    with raises(ParameterError, argument="classes"):
        regressor.partial_fit(rows, [1, 2, 3, 4], classes=[1])


def test_clone_parameters_and_repr() -> None:
    given_steps = Encode(max_categories=5), Scale(), Scale(with_mean=False), Steepest()
    model = Pipeline(*given_steps).fit([{"a": 1.0}], [1.0])
    assert not any(hasattr(step, "n_features_in_") for step in given_steps)
    twin = clone(model)
    assert repr(twin) == repr(model)
    assert repr(model) == (
        "Pipeline(Encode(max_categories=5), Scale(), Scale(with_mean=False), Steepest())"
    )
    assert not hasattr(twin, "learner_")
    assert twin.steps[0] is not model.steps[0]
    assert model.get_params()["encode__max_categories"] == 5
    assert model.get_params(deep=False) == {"steps": given_steps}
    twin.set_params(encode__max_categories=7, **{"scale-2": Impute()}, steepest__step_size=0.1)
    assert repr(twin).startswith("Pipeline(Encode(max_categories=7), Scale(), Impute(), Steepest")
    assert given_steps[0].max_categories == 5
    assert twin.set_params(steps=(Steepest(),)).steps[0].step_size == 0.5
    with raises(ParameterError, got="'enkode"):
        model.set_params(enkode__seed=1)
    assert model._repr_html_()


@pytest.mark.parametrize(
    "steps", [(), (Encode(),), (RLSRegressor(), Encode()), (Encode, RLSRegressor())]
)
def test_steps_must_be_features_then_learner(steps: Any) -> None:
    with raises(TypeMismatchError, remedy="Pass objects such as"):
        Pipeline(*steps)


@pytest.mark.filterwarnings("ignore::onepass.errors.ManyCategoriesWarning")
def test_grid_search_of_pipeline() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"u": rng.normal(size=60), "by": rng.choice(list("abc"), size=60)})
    y = frame["u"] + (frame["by"] == "b")
    search = GridSearchCV(
        Pipeline(Encode(), RLSRegressor()),
        {"encode__max_categories": [1, 9], "rlsregressor__ridge": [1e-9, 1e6]},
        cv=3,
    ).fit(frame, y)
    assert search.best_params_ == {"encode__max_categories": 9, "rlsregressor__ridge": 1e-9}
    assert search.best_score_ > 0.999


def test_describe_has_single_line_per_step() -> None:
    long = Encode("hash", 1, 2, ("hour", "weekday", "elapsed"), "ignore", 1)
    model = Pipeline(long, RLSRegressor(ridge=0.123456789, forgetting=0.999, fit_intercept=False))
    assert "\n" not in repr(model)
    assert len(model.describe().splitlines()) == 2


def test_pipeline_of_learner_only_equals_learner() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    alone, piped = RLSRegressor(), Pipeline(RLSRegressor())
    assert_array_equal(piped.test_then_train(X, y), alone.test_then_train(X, y))
    assert_array_equal(
        piped.learn_one(X[0], y[0]).predict(X), alone.learn_one(X[0], y[0]).predict(X)
    )
    assert piped.n_features_in_ == 3
    assert piped.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    frame = pd.DataFrame(X, columns=list("abc"))
    assert piped.fit(frame, y).feature_names_in_.tolist() == list("abc")


@given(table=tables())
@settings(max_examples=20, deadline=None)
def test_learning_continues_after_loading(table: Any) -> None:
    y = targets(table)
    model = Pipeline(Encode(categories="onehot"), Impute(indicator=True), RLSRegressor())
    model.partial_fit(table, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onepass"
        models.save(model, path)
        other = models.load(path)
    assert_array_equal(other.test_then_train(table, y), model.test_then_train(table, y))
    assert repr(other) == repr(model)
    assert_array_equal(other.predict(Table({}, 1)), model.predict(Table({}, 1)))


# -- names, slices, and transformers of scikit-learn ----------------------------------------------


def test_named_steps_indexing_and_slices() -> None:
    X = np.random.default_rng(0).normal(3, 2, size=(30, 3))
    model = Pipeline(Impute(), ("unit", Scale()), RandomReLU(5), ("last", RLSRegressor()))
    assert list(model.named_steps) == ["impute", "unit", "randomrelu", "last"]
    assert model["unit"] is model[1] is model.steps[1][1]
    assert model[:-1].steps[1] == model.steps[1]
    model.fit(X, X[:, 0])
    assert len(model) == 4
    assert [model[0], model["unit"], model[2]] == model.features_
    assert model[-1] is model["last"] is model.named_steps.last is model.learner_
    for i in (4, -5):
        with pytest.raises(IndexError):
            model[i]
    Z = model[:-1].transform(X)
    assert_array_equal(model[-1].predict(Z), model.predict(X))
    assert_array_equal(model[2:].predict(model[:2].transform(X)), model.predict(X))
    assert model[:-1].get_feature_names_out().tolist() == model.get_feature_names_out().tolist()
    model.set_params(unit__with_mean=False, last__ridge=2.0)
    assert model["last"].ridge == 1e-12  # fitted before
    assert "('last', RLSRegressor(ridge=2.0))" in repr(clone(model))
    assert Pipeline(Encode(), Scale(), RLSRegressor())[:2].steps[1] == ("scale", "passthrough")


def test_parameters_of_learners_have_the_short_names_of_the_command_line() -> None:
    model = Pipeline(Encode(), RLSClassifier()).set_params(rls__forgetting=0.9)
    assert model["rls"] is model["rlsclassifier"]
    assert model["rls"].forgetting == 0.9
    search = GridSearchCV(Pipeline(RLSRegressor()), {"rls__ridge": [1e-9, 1e6]}, cv=3)
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert search.fit(X, X[:, 0]).best_params_ == {"rls__ridge": 1e-9}


@pytest.mark.parametrize("name", ["steps", "a__b", "steepest"])
def test_names_must_be_unique_and_usable_as_parameters(name: str) -> None:
    with raises(ParameterError, remedy="Rename the step"):
        Pipeline((name, Scale()), Steepest())


def test_stored_names_of_steps(tmp_path: Path) -> None:
    model = Pipeline(("unit", Scale()), ("last", RLSRegressor())).fit([[1.0], [2.0]], [1.0, 2.0])
    models.save(model, tmp_path / "m.onepass")
    assert repr(models.load(tmp_path / "m.onepass")) == repr(model)


FRAME = pd.DataFrame({"a": np.arange(12.0), "by": list("xyz") * 4})
COLUMNS = ColumnTransformer(
    [("unit", StandardScaler(), ["a"]), ("by", OneHotEncoder(handle_unknown="ignore"), ["by"])]
)


@pytest.mark.parametrize("step", [StandardScaler(), MinMaxScaler(), Normalizer()], ids=repr)
@given(cuts=CUTS, seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_transformers_of_scikit_learn_learn_row_by_row(step: Any, cuts: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y, s = rng.normal(3, 2, (12, 3)), rng.normal(size=12), rng.choice([0.0, 1.0, 2.0], 12)
    one, many = (Pipeline(step, Scale(with_mean=False), Steepest()) for _ in range(2))
    edges = [0, *sorted(c for c in cuts if c <= 12), 12]
    blocks = [many.test_then_train(X[a:b], y[a:b], s[a:b]) for a, b in pairwise(edges)]
    predictions = []
    for x, target, weight in zip(X, y, s, strict=True):
        predictions.append(one.predict_one(x))
        one.learn_one(x, target, sample_weight=weight)
    assert_allclose(np.concatenate(blocks), predictions, rtol=1e-9)
    assert_allclose(one.predict(X), many.predict(X), rtol=1e-9)
    learned = clone(step).fit(X[s > 0]) if s.any() else None
    if learned is not None:
        assert_allclose(many[0].transform(X), learned.transform(X), rtol=1e-9)
    assert not hasattr(step, "n_features_in_")


def test_frozen_transformer_of_scikit_learn_gets_frames() -> None:
    frozen = FrozenEstimator(clone(COLUMNS).fit(FRAME))
    model = Pipeline(frozen, Steepest()).fit(FRAME, FRAME["a"])
    expected = Steepest().fit(np.asarray(frozen.transform(FRAME)), FRAME["a"]).w_
    assert_allclose(model.learner_.w_, expected)
    assert model.get_feature_names_out().tolist() == ["unit__a", "by__by_x", "by__by_y", "by__by_z"]
    assert_allclose(model.predict_one({"by": "x", "a": 3.0}), model.predict(FRAME)[3])
    assert model[0] is model.named_steps["frozenestimator"] is frozen


def test_transformers_that_need_all_rows_are_refused_with_a_remedy() -> None:
    with raises(TypeMismatchError, remedy="FrozenEstimator(QuantileTransformer("):
        Pipeline(QuantileTransformer(), Steepest())
    with raises(TypeMismatchError, remedy="Pass objects such as"):
        Pipeline(LinearRegression(), Steepest())


def test_limits_of_transformers_of_scikit_learn(tmp_path: Path) -> None:
    model = Pipeline(StandardScaler(), RLSRegressor())
    with raises(NotFittedError, where="StandardScaler"):
        model.get_feature_names_out()
    model.fit([[1.0], [2.0]], [1.0, 2.0])
    before = state(vars(model))
    with raises(CheckpointError, got="StandardScaler", remedy="Replace it by a trans"):
        models.save(model, tmp_path / "m.onepass")
    with raises(MergeError, got="StandardScaler"):
        model.merge(clone(model).fit([[1.0], [2.0]], [1.0, 2.0]))
    with raises(NotFiniteError, argument="X", row=1, column=0):
        model.partial_fit([[3.0], [np.inf]], [1.0, 2.0])
    assert state(vars(model)) == before
    grown = Pipeline(Encode(), StandardScaler(), RLSRegressor()).fit([{"a": 1.0}], [1.0])
    with raises(ShapeError, got="2", remedy="Place it before transformers"):
        grown.learn_one({"a": 1.0, "b": 1.0}, 1.0)
    halved = Pipeline(FunctionTransformer(lambda X: X[::2]), RLSRegressor())
    with raises(ShapeError, got="1", remedy="Use a transformer that keeps all rows"):
        halved.fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0])  # the first row is learned alone


@pytest.mark.parametrize(
    "changes",
    [
        {"rls": SGDRegressor()},
        {"scale": Impute()},
        {"steps": (Scale(), SGDRegressor())},
        {"steps": (Scale(), RandomReLU(3), RLSRegressor())},
    ],
)
def test_a_step_of_another_class_resets_the_pipeline(changes: dict[str, Any]) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = Pipeline(Scale(), Impute(), RLSRegressor()).fit(X, X[:, 0])
    model.set_params(**changes)
    fresh = Pipeline(*model.steps)
    assert list(model.named_steps) == list(fresh.named_steps)
    assert model.describe() == fresh.describe()
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert_array_equal(model.partial_fit(X, X[:, 0]).predict(X), fresh.fit(X, X[:, 0]).predict(X))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pipeline(Impute(), Scale(), RLSRegressor()),
        lambda: Conformal(RLSRegressor()),
        lambda: Conformal(Pipeline(Impute(), RLSRegressor()), horizon=2),
        lambda: Keyed(RLSRegressor(), by=0),
    ],
)
def test_threads_that_learn_one_estimator_lose_no_row(make: Any) -> None:
    X = np.column_stack((np.zeros(3), np.random.default_rng(0).normal(size=(3, 2))))
    y = X.sum(axis=1)
    model = make().partial_fit(X, y)

    def learn(k: int) -> None:
        for i in range(150):
            if k % 2:
                model.partial_fit(X, y)
            else:
                model.learn_one(X[i % 3], y[i % 3])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(learn, range(4)))
    assert model.rows_seen_ == 3 + 2 * 150 * 3 + 2 * 150
    inner = [model.model_] if isinstance(model, Conformal) else []
    for part in [*getattr(model, "features_", []), *inner]:
        assert part.rows_seen_ == model.rows_seen_
    assert copy.deepcopy(model).rows_seen_ == model.rows_seen_
