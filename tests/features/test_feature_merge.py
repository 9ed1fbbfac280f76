"""Merged features and pipelines equal those that learned all rows."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from cases import snapshot
from onepass.errors import MergeError
from onepass.features import Encode, Impute, Scale
from raising import raises

pytestmark = pytest.mark.filterwarnings("ignore::onepass.errors.ManyCategoriesWarning")

N = 120
CUTS = [slice(0, 10), slice(10, 17), slice(17, 60), slice(60, N)]
TREES = ("left", "right", "pairs")


def table(*, gaps: bool = False) -> tuple[pd.DataFrame, Any]:
    """Columns of all kinds; each part of the cuts meets categories in another order."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "km": rng.normal(size=N) + 50.0,
            "by": rng.choice(
                ["sea", "air", "rail", "road", "foot"], N, p=[0.4, 0.3, 0.2, 0.05, 0.05]
            ),
            "load": rng.normal(size=N),
            "urgent": rng.random(N) < 0.2,
            "at": pd.date_range("2024-01-01", periods=N, freq="7h"),
        }
    )
    y = frame["km"] * 2.0 + (frame["by"] == "sea") * 3.0 + rng.normal(size=N)
    if gaps:
        for name in ("km", "load"):
            hole = rng.random(N) < 0.1
            hole[[part.start for part in CUTS]] = False
            frame[name] = frame[name].mask(hole)
    return frame, y


def merged(parts: list[Any], tree: str) -> Any:
    a, b, c, d = copy.deepcopy(parts)
    if tree == "left":
        return a.merge(b).merge(c).merge(d)
    if tree == "right":
        return a.merge(b.merge(c.merge(d)))
    return a.merge(b).merge(c.merge(d))


EXACT = {"rls.forgetting": 1.0}
PIPELINES: dict[str, Callable[[], Any]] = {
    "encoded": lambda: op.Pipeline(Encode(), op.RLSRegressor(prior=1.0)),
    "as by name": lambda: op.models.pipelines(["rls"], "regression", {"rls.forgetting": 1.0})[
        "rls"
    ],
    "forgetting": lambda: op.Pipeline(
        Encode(),
        Impute(),
        op.RLSRegressor(1e-3, op.forgetting.Exponential(0.95), prior=1.0),
    ),
    "hashed, with gaps": lambda: op.Pipeline(
        Encode(categories="hash", hash_size=8),
        Impute("zero", indicator=True),
        op.RLSRegressor(1e-6),
    ),
    "ORFit": lambda: op.Pipeline(Encode(), op.ORFitRegressor(None, 0.1, fit_intercept=True)),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", PIPELINES)
def test_merged_pipeline_equals_pipeline_of_all_rows(name: str, tree: str) -> None:
    frame, y = table(gaps="gaps" in name)
    make = PIPELINES[name]
    whole = make()
    for rows in CUTS:  # with forgetting, what comes late begins anew with its block
        whole.partial_fit(frame[rows], y[rows])
    found = merged([make().partial_fit(frame[rows], y[rows]) for rows in CUTS], tree)
    # the unit of a prior is that of the part whose rows excite a feature first
    assert found._merging == ("approximate" if getattr(found.learner_, "prior", 0.0) else "exact")
    assert found.rows_seen_ == N
    assert found.get_feature_names_out().tolist() == whole.get_feature_names_out().tolist()
    assert found.learner_.feature_names_in_.tolist() == whole.learner_.feature_names_in_.tolist()
    np.testing.assert_allclose(found.predict(frame), whole.predict(frame), atol=1e-9)
    np.testing.assert_allclose(found.learner_.coef_, whole.learner_.coef_, atol=1e-8)
    assert snapshot(found.features_[0]) == snapshot(whole.features_[0])
    more, answers = frame[::-1], y[::-1]
    np.testing.assert_allclose(
        found.test_then_train(more, answers), whole.test_then_train(more, answers), atol=1e-8
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(*[st.integers(0, 9)] * 4),
    tree=st.sampled_from(TREES),
    offset=st.sampled_from([0.0, 1e8]),
)
@pytest.mark.parametrize("make", [Scale, lambda: Scale(with_mean=False), Impute])
def test_merged_column_statistics_equal_those_of_all_rows(
    make: Callable[[], Any], seed: int, sizes: tuple[int, ...], tree: str, offset: float
) -> None:
    X = np.random.default_rng(seed).normal(size=(sum(sizes) + 1, 3)) + offset
    cuts = np.cumsum(sizes)[:-1]
    whole = make().learn(X)
    found = merged([make().learn(part) for part in np.split(X, cuts)], tree)
    assert found.rows_seen_ == len(X)
    np.testing.assert_allclose(found.transform(X + 1.0), whole.transform(X + 1.0), atol=1e-6)
    if hasattr(found, "std_"):
        np.testing.assert_allclose(found.mean_, whole.mean_, rtol=1e-15, atol=1e-14)
        np.testing.assert_allclose(found.std_, whole.std_, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("strategy", ["mean", "last", "zero"])
def test_merged_impute_equals_impute_of_all_rows(strategy: str, tree: str) -> None:
    rng = np.random.default_rng(1)
    X = np.where(rng.random((N, 6)) < 0.05, np.nan, rng.normal(size=(N, 6)))
    X[:, 2], X[:20, 4], X[60:, 5] = np.arange(N), 1.0, 2.0
    make = lambda: Impute(strategy, indicator=True)  # noqa: E731
    whole = make().learn(X)
    found = merged([make().learn(X[rows]) for rows in CUTS], tree)
    assert found.get_feature_names_out().tolist() == whole.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found.counts_, whole.counts_)
    np.testing.assert_allclose(found.fills_, whole.fills_, atol=1e-12)
    np.testing.assert_allclose(found.transform(X), whole.transform(X), atol=1e-12)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("params", [{}, {"categories": "hash", "hash_size": 4}])
def test_merged_encoder_equals_encoder_of_all_rows(params: dict[str, Any], tree: str) -> None:
    frame, _ = table()
    rows = frame.to_dict("records")
    for i, row in enumerate(rows):
        if i < 30:
            del row["by"]  # an optional key: it comes late
    whole = Encode(**params).learn(rows)
    found = merged([Encode(**params).learn(rows[part]) for part in CUTS], tree)
    assert snapshot(found) == snapshot(whole)


def encoded(**columns: Any) -> Any:
    """A pipeline that has learned a small table."""
    settings = columns.pop("settings", {})
    n = len(next(iter(columns.values())))
    pipeline = op.Pipeline(Encode(**settings), op.RLSRegressor())
    return pipeline.partial_fit(pd.DataFrame(columns), np.arange(float(n)))


THREE, DAYS = ["a", "b", "c"], pd.date_range("2024-01-01", periods=3)
FEW: dict[str, Any] = {"settings": {"max_categories": 3}}
ELAPSED: dict[str, Any] = {"settings": {"times": ("elapsed",)}}
FIXED: dict[str, Any] = {"settings": {"extra": "ignore"}}
UNLIKE: dict[str, tuple[Any, Any, str]] = {
    "another kind": (
        lambda: encoded(x=THREE),
        lambda: encoded(x=[1.0, 2.0]),
        "'x' must contain text",
    ),
    "a column less": (
        lambda: encoded(x=[1.0, 2.0], z=[1.0, 2.0]),
        lambda: encoded(x=[3.0, 4.0]),
        "'z' had no value",
    ),
    "a column more": (
        lambda: encoded(x=[1.0, 2.0], **FIXED),
        lambda: encoded(x=[3.0, 4.0], z=[1.0, 2.0], **FIXED),
        "'z', which the first would ignore",
    ),
    "too many categories": (
        lambda: encoded(x=THREE, **FEW),
        lambda: encoded(x=["d"], **FEW),
        "max_categories",
    ),
    "two first dates": (
        lambda: encoded(x=DAYS, **ELAPSED),
        lambda: encoded(x=DAYS[1:], **ELAPSED),
        "elapsed",
    ),
    "another setting": (
        lambda: encoded(x=THREE),
        lambda: encoded(x=THREE, settings={"seed": 3}),
        "`seed` of Encode must be the same",
    ),
    "other steps": (
        lambda: encoded(x=[1.0]),
        lambda: op.Pipeline(Encode(), Impute(), op.RLSRegressor()).partial_fit([[1.0]], [1.0]),
        "Encode > RLSRegressor as in the first, got Encode > Impute > RLSRegressor",
    ),
    "filled gaps": (
        lambda: op.Pipeline(Impute(), op.RLSRegressor()).partial_fit([[1.0], [2.0]], [1.0, 2.0]),
        lambda: op.Pipeline(Impute(), op.RLSRegressor()).partial_fit([[1.0], [None]], [1.0, 2.0]),
        r"Impute\('zero', indicator=True\)",
    ),
    "scaled": (
        lambda: op.Pipeline(Scale(), op.ORFitRegressor(9)).partial_fit([[1.0], [2.0]], [1.0, 2.0]),
        lambda: op.Pipeline(Scale(), op.ORFitRegressor(9)).partial_fit([[1.0], [2.0]], [1.0, 2.0]),
        "scaled by different statistics",
    ),
    "a learner that keeps only weights": (
        lambda: op.Pipeline(Encode(), op.SGDRegressor()).partial_fit([[1.0]], [1.0]),
        lambda: op.Pipeline(Encode(), op.SGDRegressor()).partial_fit([[1.0]], [1.0]),
        "stores only its weights",
    ),
    "a learner alone": (lambda: encoded(x=[1.0]), op.RLSRegressor, "class, Pipeline, got RLS"),
}


@pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning")
@pytest.mark.parametrize("name", UNLIKE)
def test_incompatible_merges_are_refused(name: str) -> None:
    first, second, difference = UNLIKE[name]
    a, b = first(), second()
    before = snapshot([a, b])
    with pytest.raises(MergeError, match=difference):
        a.merge(b)
    assert snapshot([a, b]) == before


def test_merge_treats_late_column_as_missing_in_other_part() -> None:
    rows = [{"x": 1.0}, {"x": 2.0, "z": 3.0}, {"x": 3.0, "z": 5.0}]
    make = lambda: op.Pipeline(Encode(), Impute("zero"), op.RLSRegressor())  # noqa: E731
    late = make().partial_fit(rows, [1.0, 2.0, 3.0])
    with pytest.raises(MergeError, match="'z' had no value in the first 1 rows"):
        make().partial_fit(rows[1:], [2.0, 3.0]).merge(late)
    both = make().partial_fit(rows[:1], [2.0]).merge(late)
    assert both.features_[0].columns_["z"].since == 2


def test_merge_into_unfitted_copies_fitted_state() -> None:
    frame, y = table()
    made = PIPELINES["encoded"]
    learned = made().partial_fit(frame, y)
    fresh = made().merge(learned)
    np.testing.assert_allclose(fresh.predict(frame), learned.predict(frame), atol=1e-9)
    before = snapshot(learned)
    assert snapshot(learned.merge(made())) == before
    scale = Scale().learn([[1.0], [3.0]])
    assert snapshot(Scale().merge(scale)) == snapshot(scale)
    with raises(MergeError, argument="with_mean"):
        scale.merge(Scale(with_mean=False))
    with raises(MergeError, got="1", remedy="call grow"):
        Scale().learn(np.ones((2, 3))).merge(scale)
    twice = learned.merge(learned)
    assert twice.rows_seen_ == 2 * N
