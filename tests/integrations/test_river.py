"""Wrapped learners pass the checks of River and work with its evaluation and composition."""

import copy
import pickle
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import (
    bandit,
    base,
    checks,
    compose,
    datasets,
    drift,
    ensemble,
    evaluate,
    linear_model,
    metrics,
    model_selection,
    multiclass,
    multioutput,
    preprocessing,
    stats,
    utils,
)
from sklearn.base import clone, is_classifier

import onepass as op
from onepass import learners
from onepass.errors import (
    ColumnError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    TypeMismatchError,
)
from onepass.features import Encode, Impute, Scale
from onepass.integrations.river import MultiTargetRegressor, wrap
from raising import raises
from sampling import sample

PIPELINES = {
    "names": op.Pipeline(Encode(), op.RLSRegressor()),
    "names, imputed": op.Pipeline(Encode(), Impute(), Scale(), op.SGDRegressor()),
    "names, classes": op.Pipeline(Encode(), op.Perceptron()),
    "matrices": op.Pipeline(Scale(), op.SGDRegressor()),
    "matrices, imputed": op.Pipeline(Impute(), op.RLSRegressor()),
}
PUBLIC = {name: getattr(learners, name)() for name in learners.__all__}
WRAPPED = [
    pytest.param(op.SGDClassifier("logistic"), {}, id="SGDClassifier, probabilities"),
    pytest.param(op.RLSRegressor(), {"targets": True}, id="RLSRegressor, targets"),
    *sample([pytest.param(model, {}, id=name) for name, model in PUBLIC.items()], 2, "River"),
    *sample([

        pytest.param(model, {"targets": True}, id=f"{name}, targets")
        for name, model in PUBLIC.items()
        if not is_classifier(model) and name != "RLSRegressor"
    ], 1, "River, targets"),
    *sample([
        *(pytest.param(model, {}, id=f"Pipeline, {name}") for name, model in PIPELINES.items()),
        pytest.param(PIPELINES["names"], {"targets": True}, id="Pipeline, targets"),
    ], 1, "River, pipelines"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize(("model", "options"), WRAPPED)
def test_wrapped_learners_pass_the_checks_of_river(model: Any, options: dict[str, Any]) -> None:
    random.seed(0)  # the checks draw from it
    wrapped = wrap(model, **options)
    assert not wrapped._unit_test_skips()
    assert sum(1 for _ in checks.yield_checks(wrapped)) >= 15
    checks.check_estimator(wrapped)


# -- wrapping --------------------------------------------------------------------------------------


def test_wrapped_learners_have_the_base_class_of_river() -> None:
    assert isinstance(wrap(op.RLSRegressor()), base.MiniBatchRegressor)
    assert isinstance(wrap(op.Pipeline(Encode(), op.Perceptron())), base.MiniBatchClassifier)
    assert isinstance(wrap(op.RLSRegressor(), targets=["a", "b"]), base.MultiTargetRegressor)
    assert repr(wrap(op.RLSRegressor(ridge=2.0))).split() == [
        *("Regressor", "(", "model=RLSRegressor(ridge=2.0)", ")")
    ]


def test_wrapping_leaves_the_given_model_unchanged() -> None:
    model = op.RLSRegressor()
    wrapped = wrap(model)
    wrapped.learn_one({"a": 1.0}, 2.0)
    assert not hasattr(model, "rows_seen_")
    assert wrapped.model_.rows_seen_ == 1
    assert not wrapped.clone().model_.__sklearn_is_fitted__()


def test_wrapped_saved_model_continues_learning(tmp_path: Any) -> None:
    rows, answers = _rows(40), list(np.arange(40.0))
    wrapped, one = wrap(op.RLSRegressor()), wrap(op.RLSRegressor())
    for x, y in zip(rows, answers, strict=True):
        one.learn_one(x, y)
    for x, y in zip(rows[:20], answers[:20], strict=True):
        wrapped.learn_one(x, y)
    path = tmp_path / "m.onepass"
    op.save(wrapped.model_, path)
    again = wrap(op.load(path))
    for x, y in zip(rows[20:], answers[20:], strict=True):
        again.learn_one(x, y)
    assert again.predict_one(rows[0]) == one.predict_one(rows[0])
    assert list(again.model_.feature_names_in_) == ["a", "b"]
    assert again.clone().model_.rows_seen_ == 20  # where it stood when it was wrapped


# -- changing columns ------------------------------------------------------------------------------


def _rows(n: int, names: str = "ab", seed: int = 0) -> list[dict[str, float]]:
    X = np.random.default_rng(seed).normal(size=(n, len(names)))
    return [dict(zip(names, row, strict=True)) for row in X.tolist()]


@pytest.mark.parametrize(
    "model",
    [
        op.RLSRegressor(ridge=0.1),
        op.RLSRegressor(ridge=0.1, forgetting="exponential:0.9"),
        op.ORFitRegressor(memory=None, noise=0.3),
        op.SGDRegressor(step="constant", step_size=0.02),
    ],
    ids=["rls", "forgetting", "orfit", "sgd"],
)
@pytest.mark.parametrize("by_name", [False, True], ids=["learner", "pipeline"])
def test_new_columns_start_at_the_prior_and_absent_ones_are_zero(model: Any, by_name: bool) -> None:  # noqa: FBT001
    rows = [*_rows(9, "ab"), *_rows(9, "abcd", 1), *_rows(9, "cb", 2), {}, {"d": 1.0}]
    answers = np.random.default_rng(3).normal(size=len(rows)).tolist()
    wrapped = wrap(op.Pipeline(Encode(), model) if by_name else model)
    for x, y in zip(rows, answers, strict=True):
        wrapped.learn_one(x, y)
    if getattr(model, "forgetting", 1.0) == 1.0:  # else a late column's prior is younger
        X = [[x.get(name, 0.0) for name in "abcd"] for x in rows]
        whole = clone(model).partial_fit(np.array(X), np.array(answers))
        for x in ({"a": 1.0, "d": -2.0}, {"c": 1.0, "unheard": 5.0}, {}):
            row = np.array([x.get(name, 0.0) for name in "abcd"])
            assert wrapped.predict_one(x) == pytest.approx(whole.predict_one(row), rel=1e-9)
    learner = getattr(wrapped.model_, "learner_", wrapped.model_)
    assert list(learner.feature_names_in_) == ["a", "b", "c", "d"]


@settings(max_examples=15)
@given(st.permutations("abcde"), st.integers(0, 99))
def test_order_of_keys_does_not_matter(order: list[str], seed: int) -> None:
    for model in (op.RLSRegressor(), op.Pipeline(Encode(), Scale(), op.SGDRegressor())):
        one, other = wrap(model), wrap(model)
        for x in (*_rows(3, "ab", seed), *_rows(4, "abcde", seed)):
            shuffled = {name: x[name] for name in order if name in x}
            assert one.predict_one(x) == other.predict_one(shuffled)
            one.learn_one(x, sum(x.values()))
            other.learn_one(shuffled, sum(x.values()))


def test_first_row_may_have_no_features() -> None:
    for model in (wrap(op.RLSRegressor()), wrap(PIPELINES["names"]), wrap(PIPELINES["matrices"])):
        assert model.predict_one({}) == 0.0
        model.learn_one({}, 4.0)
        model.learn_one({}, 4.0)
        model.learn_one({"a": 1.0}, 6.0)
        assert np.isfinite(model.predict_one({"a": 2.0}))
        assert np.isfinite(model.predict_one({}))


def test_feature_names_may_be_any_hashable_object() -> None:
    model = wrap(op.RLSRegressor())
    model.learn_one({1: 2.0, ("a", "b"): 1.0, "c": 0.0}, 3.0)
    assert list(model.model_.feature_names_in_) == ["('a', 'b')", "1", "c"]
    assert model.predict_one({1: 2.0, ("a", "b"): 1.0}) == pytest.approx(3.0)


def test_pipeline_accepts_text_and_missing_values() -> None:
    model = wrap(op.Pipeline(Encode(), Impute(), op.RLSRegressor(ridge=1e-6)))
    rows = [
        ({"sky": "clear", "wind": 3.0}, 2.0),
        ({"sky": "rain", "wind": None}, 10.0),
        ({"wind": 8.0, "sky": "rain", "gusts": 12.0}, 14.0),
        ({"sky": "snow"}, 20.0),
    ]
    plain = op.Pipeline(Encode(), Impute(), op.RLSRegressor(ridge=1e-6))
    for x, y in rows:
        assert model.predict_one(x) == pytest.approx(float(plain.predict_one(x)))
        model.learn_one(x, y)
        plain.learn_one(x, y)
    assert model.predict_one({"sky": "hail"}) == pytest.approx(plain.predict_one({"sky": "hail"}))


@pytest.mark.parametrize(
    ("x", "error", "fields"),
    [
        ({"a": "3"}, TypeMismatchError, {"got": "'3'", "remedy": "Encode"}),
        ({"a": 1j}, TypeMismatchError, {"got": "1j"}),
        ({"a": None}, NotFiniteError, {"remedy": "Impute"}),
        ({"a": float("nan"), "new": 1.0}, NotFiniteError, {"column": "a", "remedy": "Impute"}),
        ([1.0, 2.0], TypeMismatchError, {"argument": "x"}),
    ],
)
def test_refused_rows_leave_the_model_unchanged(
    x: Any, error: type[OnepassError], fields: dict[str, Any]
) -> None:
    for began in (False, True):
        model = wrap(op.RLSRegressor())
        if began:
            model.learn_one({"a": 1.0}, 2.0)
        before = pickle.dumps(model)
        with raises(error, where="Regressor.learn_one", **fields):
            model.learn_one(x, 1.0)
        assert pickle.dumps(model) == before
    with raises(error, **fields):
        model.predict_one(x)


def test_refused_rows_add_no_columns() -> None:
    for case in (op.RLSRegressor(), PIPELINES["names"], PIPELINES["matrices"]):
        model = wrap(case)
        model.learn_one({"a": 1.0}, 2.0)
        before = pickle.dumps(model)
        with pytest.raises(NotFiniteError):
            model.learn_one({"a": 1.0, "b": 2.0}, float("nan"))
        with pytest.raises(NotFiniteError):
            model.learn_many(pd.DataFrame({"b": [1.0], "c": [2.0]}), pd.Series([np.inf]))
        assert pickle.dumps(model) == before


def test_wrap_refuses_invalid_arguments() -> None:
    with raises(
        TypeMismatchError, argument="model", got="the class RLSRegressor", remedy="Pass an object"
    ):
        wrap(op.RLSRegressor)
    with raises(TypeMismatchError, argument="model", got="LinearRegression"):
        wrap(linear_model.LinearRegression())
    with raises(ColumnError, remedy="Wrap an unfitted model"):
        wrap(op.RLSRegressor().partial_fit([[1.0]], [1.0]))
    with raises(ParameterError, argument="model"):
        wrap(op.RLSClassifier(), targets=["a"])
    with raises(
        ParameterError,
        argument="targets",
        remedy="Call op.integrations.river.wrap(model, targets=[...])",
    ):
        wrap(op.RLSRegressor().learn_one({"a": 1.0}, [1.0, 2.0]))
    for wrong in ("ab", ["a", "a"]):
        with raises(ParameterError, argument="targets", remedy="Name each target once"):
            wrap(op.RLSRegressor(), targets=wrong)
    with pytest.raises(TypeMismatchError):
        wrap(op.RLSRegressor()).learn_one({"a": 1.0}, {"u": 1.0})


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [(False, True), (0, 7), ("no", "yes")])
def test_predicted_labels_keep_type_and_value(labels: tuple[Any, Any]) -> None:
    model = wrap(op.RLSClassifier())
    assert model.predict_one({"a": 1.0}) is None
    for x in _rows(30):
        model.learn_one(x, labels[x["a"] > 0])
    predictions = model.predict_one({"a": 2.0})
    assert predictions == labels[1]
    assert type(predictions) is type(labels[1])


def test_probabilities_of_scores_sum_to_one() -> None:
    model = wrap(op.RLSClassifier())
    for x in _rows(30):
        model.learn_one(x, x["a"] > 0)
    found = model.predict_proba_one({"a": 1.0, "b": 0.0})
    assert found.keys() == {False, True}
    assert found[True] > 0.5
    assert sum(found.values()) == pytest.approx(1.0)


def test_probabilities_of_a_logistic_model() -> None:
    model = wrap(op.SGDClassifier("logistic", classes=["no", "yes"]))
    assert model.predict_proba_one({"a": 1.0}) == {"no": 0.5, "yes": 0.5}
    assert wrap(op.SGDClassifier("logistic")).predict_proba_one({"a": 1.0}) == {}
    for x in _rows(30):
        model.learn_one(x, "yes" if x["a"] > 0 else "no")
    score = float(model.model_.decision_function([[1.0, 2.0]])[0])
    assert model.predict_proba_one({"a": 1.0, "b": 2.0})["yes"] == pytest.approx(
        1 / (1 + np.exp(-score)), rel=1e-12
    )


# -- weights, blocks, several targets --------------------------------------------------------------


def test_row_weights_equal_repeated_rows() -> None:
    twice, heavy, block = (wrap(op.RLSRegressor(ridge=0.5)) for _ in range(3))
    for x in _rows(10):
        twice.learn_one(x, x["a"])
        twice.learn_one(x, x["a"])
        heavy.learn_one(x, x["a"], w=2.0)
    heavy.learn_one({"a": 1.0, "b": 1.0}, 99.0, w=0.0)
    frame = pd.DataFrame(_rows(10))
    block.learn_many(frame, frame["a"], w=pd.Series(np.full(10, 2.0)))
    x = {"a": 1.0, "b": -1.0}
    assert twice.predict_one(x) == pytest.approx(heavy.predict_one(x), rel=1e-9)
    assert twice.predict_one(x) == pytest.approx(block.predict_one(x), rel=1e-9)


def test_row_times_are_passed_to_forgetting_by_time() -> None:
    by_time = op.RLSRegressor(forgetting=op.forgetting.Bounded(half_life=3.0))
    one, plain = wrap(by_time), clone(by_time)
    many = wrap(op.Pipeline(Encode(), by_time))
    times = np.cumsum(np.random.default_rng(0).uniform(0.1, 2.0, size=12))
    for x, t in zip(_rows(12), times.tolist(), strict=True):
        one.learn_one(x, x["a"] + t, t=t)
        plain.learn_one(x, x["a"] + t, time=t)
    frame = pd.DataFrame(_rows(12))
    many.learn_many(frame, frame["a"] + times, t=pd.Series(times))
    x = {"a": 1.0, "b": -1.0}
    assert one.predict_one(x) == plain.predict_one(x)
    assert many.predict_one(x) == pytest.approx(one.predict_one(x), rel=1e-6)
    with raises(ParameterError, argument="time", remedy="Leave out `time`, or"):
        wrap(op.RLSRegressor()).learn_one(x, 1.0, t=3.0)


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_mini_batches_equal_single_rows(library: Any) -> None:
    rows = _rows(20, "abc")
    for model in (op.RLSRegressor(), op.Pipeline(Encode(), op.RLSRegressor())):
        many, one = wrap(model), wrap(model)
        first = many.predict_many(library.DataFrame(rows[:3]))
        assert list(first) == [0.0, 0.0, 0.0]
        for a, b, names in ((0, 10, "ab"), (10, 20, "cb")):
            X = [{name: row[name] for name in names} for row in rows[a:b]]
            y = [row["a"] for row in rows[a:b]]
            many.learn_many(library.DataFrame(X), library.Series(y))
            for row, answer in zip(X, y, strict=True):
                one.learn_one(row, answer)
        asked = library.DataFrame([{"c": 1.0, "new": 1.0}, {"c": 2.0, "new": 1.0}])
        predictions = many.predict_many(asked)
        assert isinstance(predictions, library.Series)
        assert list(predictions) == pytest.approx(
            [one.predict_one({"c": 1.0}), one.predict_one({"c": 2})]
        )


def test_index_of_a_data_frame_is_retained() -> None:
    model = wrap(op.SGDClassifier("logistic"))
    frame = pd.DataFrame(_rows(6), index=list("uvwxyz"))
    model.learn_many(frame, frame["a"] > 0)
    assert list(model.predict_many(frame).index) == list("uvwxyz")
    shares = model.predict_proba_many(frame)
    assert list(shares.columns) == [False, True]
    assert list(shares.index) == list("uvwxyz")
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0] * 6)
    with raises(TypeMismatchError, argument="X"):
        model.learn_many([[1.0]], [True])


def test_several_targets() -> None:
    model = wrap(op.RLSRegressor(ridge=0.0), targets=True)
    assert model.predict_one({"a": 1.0}) == {}
    single = {name: wrap(op.RLSRegressor(ridge=0.0)) for name in ("u", "v")}
    for x in _rows(20):
        y = {"v": x["a"] + 1.0, "u": x["b"]}
        model.learn_one(x, y)
        for name, one in single.items():
            one.learn_one(x, y[name])
    x = {"a": 0.3, "b": -2.0}
    predictions = model.predict_one(x)
    assert predictions == pytest.approx({name: one.predict_one(x) for name, one in single.items()})
    with pytest.raises(ColumnError, match=r"`y` must have the targets \['u', 'v'\]"):
        model.learn_one(x, {"u": 1.0})
    again = wrap(model.model_, targets=("u", "v"))
    assert again.predict_one(x) == predictions
    assert isinstance(again, MultiTargetRegressor)
    named = wrap(op.RLSRegressor(), targets=["u", "v"])
    assert named.predict_one(x) == {"u": 0.0, "v": 0.0}
    begun = wrap(op.RLSRegressor(initial_coef=[[1.0, 0.0], [0.0, 2.0]]), targets=["u", "v"])
    assert begun.predict_one(x) == {"u": 0.3, "v": -4.0}


# -- within River ----------------------------------------------------------------------------------


def test_wrapped_learner_in_a_river_pipeline() -> None:
    theirs = preprocessing.StandardScaler() | wrap(op.RLSRegressor(ridge=1.0))
    score = evaluate.progressive_val_score(datasets.TrumpApproval(), theirs, metrics.MAE())
    reference = preprocessing.StandardScaler() | linear_model.BayesianLinearRegression()
    least = evaluate.progressive_val_score(datasets.TrumpApproval(), reference, metrics.MAE())
    assert score.get() < least.get()


def test_delayed_targets_of_river() -> None:
    stream = [(x, sum(x.values())) for x in _rows(60)]
    model = wrap(op.RLSRegressor())
    moments = iter(range(60))
    score = evaluate.progressive_val_score(
        [({**x, "at": float(next(moments))}, y) for x, y in stream],
        compose.Discard("at") | model,
        metrics.MAE(),
        moment="at",
        delay=5.0,
    )
    predictions, plain = [], op.RLSRegressor()
    for t, (x, _) in enumerate(stream):
        if t >= 5:  # the answer of row t - 5 is known now
            plain.learn_one(stream[t - 5][0], stream[t - 5][1])
        predictions.append(plain.predict_one(x))
    errors = np.abs(np.array(predictions) - [y for _, y in stream])
    assert score.get() == pytest.approx(errors.mean(), rel=0.2)
    assert "at" not in model.model_.feature_names_in_


def test_wrapped_learner_in_compose() -> None:
    text = compose.SelectType(str) | preprocessing.OneHotEncoder()
    model = (text + compose.SelectType(float)) | wrap(op.RLSRegressor())
    rng = np.random.default_rng(0)
    total = metrics.MAE()
    for km in rng.uniform(1, 9, size=80).tolist():
        x = {"by": "sea" if km > 5 else "air", "km": km}
        y = km + (10.0 if x["by"] == "sea" else 0.0)
        total.update(y, model.predict_one(x))
        model.learn_one(x, y)
    assert abs(model.predict_one({"by": "sea", "km": 3.0}) - 13.0) < 0.01
    grid = compose.TargetTransformRegressor(
        wrap(op.RLSRegressor()), func=np.log1p, inverse_func=np.expm1
    )
    for x in _rows(40):
        grid.learn_one(x, np.exp(x["a"]))
    assert grid.predict_one({"a": 0.0, "b": 0.0}) > 0


def test_one_vs_rest_classifier() -> None:
    logistic = op.SGDClassifier("logistic", step="constant", step_size=0.5)
    model = preprocessing.StandardScaler() | multiclass.OneVsRestClassifier(wrap(logistic))
    score = evaluate.progressive_val_score(
        datasets.ImageSegments().take(600), model, metrics.Accuracy()
    )
    assert score.get() > 0.7
    ours = preprocessing.StandardScaler() | wrap(op.RLSClassifier(ridge=1.0))
    score = evaluate.progressive_val_score(
        datasets.ImageSegments().take(600), ours, metrics.Accuracy()
    )
    assert score.get() > 0.7


def test_model_selection_of_river() -> None:
    models = [wrap(op.RLSRegressor(ridge=ridge)) for ridge in (1e6, 1e-3)]
    greedy = model_selection.GreedyRegressor(models)
    cautious = model_selection.BanditRegressor(
        [model.clone() for model in models],
        metric=metrics.MAE(),
        policy=bandit.EpsilonGreedy(epsilon=0.1, seed=1),
    )
    for x in _rows(100):
        for chooser in (greedy, cautious):
            chooser.predict_one(x)
            chooser.learn_one(x, 3.0 * x["a"])
    assert greedy.best_model.model.ridge == 1e-3
    assert cautious.best_model in list(cautious)
    assert all(one.model_.rows_seen_ > 0 for one in cautious)
    grid = utils.expand_param_grid(
        wrap(op.RLSRegressor()), {"model": [op.RLSRegressor(ridge) for ridge in (1.0, 2.0)]}
    )
    assert [one.model.ridge for one in grid] == [1.0, 2.0]


def test_ensembles_of_wrapped_learners() -> None:
    bag = ensemble.BaggingRegressor(wrap(op.RLSRegressor()), n_models=3, seed=1)
    logistic = wrap(op.SGDClassifier("logistic"))
    adaptive = ensemble.ADWINBaggingClassifier(logistic, n_models=3, seed=1)
    for x in _rows(60):
        bag.learn_one(x, 2.0 * x["a"])
        adaptive.learn_one(x, x["a"] > 0)
    assert adaptive.predict_one({"a": 1.0, "b": 0.0}) is True
    assert bag.predict_one({"a": 1.0, "b": 0.0}) == pytest.approx(2.0, abs=1e-3)


def test_drift_retraining_classifier() -> None:
    model = drift.DriftRetrainingClassifier(
        wrap(op.SGDClassifier("logistic", step="constant", step_size=0.5)),
        drift.binary.DDM(warm_start=20),
    )
    right = []
    for t, x in enumerate(_rows(1200)):
        y = (x["a"] > 0) == (t < 600)  # turned round in the middle
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert np.mean(right[20:600]) > 0.95
    assert np.mean(right[900:]) > 0.95


def test_regressor_chain() -> None:
    chain = multioutput.RegressorChain(wrap(op.RLSRegressor()), order=["u", "v"])
    for x in _rows(40):
        chain.learn_one(x, {"u": x["a"], "v": x["a"] + x["b"]})
    predictions = chain.predict_one({"a": 1.0, "b": 2.0})
    assert predictions == pytest.approx({"u": 1.0, "v": 3.0}, abs=1e-3)


def test_copies_and_pickles_are_independent() -> None:
    model = wrap(op.RLSRegressor())
    mean = stats.Mean()
    for x in _rows(20):
        mean.update(abs(x["a"] - model.predict_one(x)))
        model.learn_one(x, x["a"])
    x = {"a": 1.0, "b": 3.0}
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301  our own
        assert other.predict_one(x) == model.predict_one(x)
        other.learn_one(x, 50.0)
        assert other.predict_one(x) != model.predict_one(x)
    retained = model.clone(include_attributes=True)
    assert retained.predict_one(x) == model.predict_one(x)


# -- the extra -------------------------------------------------------------------------------------

WITHOUT = """
import sys
import onepass as op
op.integrations, op.evaluate
print("river" in sys.modules)

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "river":
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
try:
    op.integrations.river
except op.errors.MissingExtraError as missing:
    print(missing)
"""


def test_river_is_imported_on_use_and_its_absence_names_the_extra() -> None:
    done = subprocess.run(  # noqa: S603  our own words, our own interpreter
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("False\n"), done.stderr
    assert "river must be installed" in done.stdout, done.stderr
    assert "pip install 'onepass[river]'" in done.stdout
