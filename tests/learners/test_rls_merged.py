"""Merged least squares against batch solutions of all rows, in any tree of merges."""

import copy
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import onepass as op
from onepass.errors import MergeError
from oracles import ridge_qr
from raising import raises
from sampling import sample

Floats = NDArray[Any]
PROPERTY = settings(max_examples=60, deadline=None)


def exponential(factor: float) -> Any:
    """Exponential forgetting without a floor."""
    return 1.0 if factor == 1.0 else op.forgetting.Exponential(factor)


def merge_in_order(parts: Sequence[Any], order: Sequence[int], **options: Any) -> Any:
    """Copies of adjacent learners merged in this order until one is left."""
    parts = [copy.deepcopy(part) for part in parts]
    for at in order:
        k = at % (len(parts) - 1)
        parts[k].merge(parts.pop(k + 1), **options)
    return parts[0]


def assert_close(one: Any, other: Any, tolerance: float = 1e-10) -> None:
    """Equal, relative to the largest number of both."""
    one, other = np.asarray(one), np.asarray(other)
    scale = 1.0 + np.abs(other)[np.isfinite(other)].max(initial=0.0)
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


class Stream:
    """Rows with a large mean, a rare column, one that changes late, and some weights of 0."""

    def __init__(self, seed: int, n: int, d: int) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, d)) + 3.0
        self.X[:, 0] = rng.random(n) < 0.1
        self.X[:, -1] = np.where(np.arange(n) < n // 2, 2.0, 5.0)
        self.Y = rng.normal(size=(n, 2)) + self.X[:, :1] - 7.0
        self.s = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)

    def learned(self, learner: Any, rows: slice = slice(None)) -> Any:
        return learner.partial_fit(self.X[rows], self.Y[rows], sample_weight=self.s[rows])


@PROPERTY
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(0, 25), min_size=3, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    d=st.integers(2, 9),
    ridge=st.sampled_from([0.0, 1e-6, 1.0, "matrix"]),
    factor=st.sampled_from([1.0, 0.97]),
    fit_intercept=st.booleans(),
)
def test_any_tree_of_merges_equals_one_pass(
    seed: int,
    sizes: list[int],
    order: list[int],
    d: int,
    ridge: Any,
    factor: float,
    fit_intercept: bool,  # noqa: FBT001
) -> None:
    stream = Stream(seed, sum(sizes) + 1, d)
    root = np.random.default_rng(seed).normal(size=(d, d))
    settings = {
        "ridge": root @ root.T + np.eye(d) if ridge == "matrix" else ridge,
        "forgetting": exponential(factor),
        "fit_intercept": fit_intercept,
        "initial_coef": None if ridge == 0.0 else np.ones((2, d)),
    }
    edges = np.cumsum([0, *sizes])
    make = lambda: op.RLSRegressor(**settings)  # noqa: E731
    parts = [stream.learned(make(), slice(a, b)) for a, b in pairwise(edges)]
    parts[-1].partial_fit(stream.X[-1:], stream.Y[-1:])  # there is one row, at least
    stream.s[-1] = 1.0
    whole = stream.learned(make())
    merged = merge_in_order(parts, order[: len(parts) - 1])
    assert merged.rows_seen_ == whole.rows_seen_
    learned = stream.X[stream.s > 0.0]
    assert_close(merged.predict(learned), whole.predict(learned))
    if ridge == 0.0 and not is_determined(learned, intercept=fit_intercept):
        return  # coefficients are a matter of rounding
    assert_close(merged.coef_, whole.coef_)
    assert_close(merged.intercept_, whole.intercept_, 1e-9)
    stds = (m.predict(stream.X, return_std=True)[1] for m in (merged, whole))
    assert_close(*stds, 1e-7)
    later = (m.partial_fit(stream.X, stream.Y) for m in (merged, whole))
    assert_close(*(m.coef_ for m in later))
    if (stream.s > 0).sum() > d + 2:
        coef, _ = ridge_qr(
            np.vstack((stream.X, stream.X)), np.vstack((stream.Y, stream.Y)), settings["ridge"],
            intercept=fit_intercept, weights=np.append(stream.s, np.ones(len(stream.X))),
            forgetting=factor, initial=None if ridge == 0.0 else np.ones((d, 2)),
        )  # fmt: skip
        assert_close(merged.coef_.T, coef, 1e-9)


def is_determined(X: Floats, *, intercept: bool) -> bool:
    """Whether rows determine all coefficients."""
    A = X - X.mean(axis=0) if intercept else X
    return int(np.linalg.matrix_rank(A)) == X.shape[1]


@pytest.mark.parametrize("factor", [1.0, 0.97])
@pytest.mark.parametrize("order", [[0, 0], [1, 0]])
def test_merge_with_a_prior_is_nearly_one_pass(order: list[int], factor: float) -> None:
    """The unit of the prior is the first value of a feature, which differs between the parts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5)) + 3.0
    y = X @ np.arange(5.0) + 0.1 * rng.normal(size=120)
    make = lambda: op.RLSRegressor(forgetting=exponential(factor), prior=1.0)  # noqa: E731
    parts = [make().partial_fit(X[i : i + 40], y[i : i + 40]) for i in range(0, 120, 40)]
    assert parts[0]._merging == "approximate"
    merged, whole = merge_in_order(parts, order), make().fit(X, y)
    assert merged.rows_seen_ == 120
    assert_close(merged.predict(X), whole.predict(X), 0.01)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("factor", [1.0, 0.99])
def test_merge_retains_precision_at_condition_1e7(ridge: float, factor: float) -> None:
    rng = np.random.default_rng(0)
    n, d = 400, 8
    U, V = (np.linalg.qr(rng.normal(size=shape))[0] for shape in ((n, d), (d, d)))
    X = U @ np.diag(np.geomspace(1e2, 1e-5, d)) @ V
    y = X @ rng.normal(size=d) + 1e-6 * rng.normal(size=n)
    settings: dict[str, Any] = {"ridge": ridge, "forgetting": exponential(factor)}
    make = lambda: op.RLSRegressor(**settings, fit_intercept=False)  # noqa: E731
    parts = [make().fit(X[i : i + 100], y[i : i + 100]) for i in range(0, n, 100)]
    truth, _ = ridge_qr(X, y, ridge, intercept=False, forgetting=factor)
    bound = 1e7 * np.finfo(float).eps  # of a backward stable method; normal equations: 1e14 eps
    assert np.abs(make().fit(X, y).coef_ - truth).max() <= bound
    for order in ([0, 0, 0], [2, 1, 0], [0, 1, 0]):
        merged = merge_in_order(parts, order)
        assert np.abs(merged.coef_ - truth).max() <= bound
        assert_close(merged.predict(X), X @ truth)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("order", [[0, 0], [1, 0]])
@pytest.mark.parametrize("sizes", [(30, 30, 30), (50, 3, 20), (2, 40, 1)])
def test_concurrent_merge_does_not_age_parts(
    fit_intercept: bool,  # noqa: FBT001
    order: list[int],
    sizes: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(1)
    factor, ridge, d = 0.9, 0.1, 4
    X, y = rng.normal(size=(sum(sizes), d)) + 5.0, rng.normal(size=sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    make = lambda: op.RLSRegressor(ridge, exponential(factor), fit_intercept=fit_intercept)  # noqa: E731
    parts = [make().fit(A, b) for A, b in zip(np.split(X, cuts), np.split(y, cuts), strict=True)]
    merged = merge_in_order(parts, order, concurrent=True)
    ages = np.concatenate([factor ** np.arange(n - 1.0, -1.0, -1.0) for n in sizes])
    coef, b = ridge_qr(X, y, ridge * factor ** max(sizes), intercept=fit_intercept, weights=ages)
    assert_close(merged.coef_, coef)
    assert_close(merged.intercept_, b, 1e-9)


def test_merge_with_long_later_stream_equals_later_stream() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(20_000, 3)), rng.normal(size=20_000)
    make = lambda: op.RLSRegressor(1.0, exponential(0.9))  # noqa: E731
    late = make().fit(X, y)
    merged = make().fit(X[:50], y[:50] + 9.0).merge(late)
    assert_close(merged.coef_, late.coef_)
    assert_close(merged.predict(X[:5]), late.predict(X[:5]))


def test_second_part_may_have_another_start_and_ridge() -> None:
    stream = Stream(3, 60, 4)
    first = op.RLSRegressor(0.1, initial_coef=np.ones((2, 4)))
    second = op.RLSRegressor(3.0, initial_coef=-np.ones((2, 4)))
    stream.learned(first, slice(0, 20)).merge(stream.learned(second, slice(20, 60)))
    whole = stream.learned(op.RLSRegressor(0.1, initial_coef=np.ones((2, 4))))
    assert_close(first.coef_, whole.coef_)
    assert_close(first.intercept_, whole.intercept_)
    assert_close(
        first.predict(stream.X, return_std=True)[1], whole.predict(stream.X, return_std=True)[1]
    )


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("factor", [1.0, 0.97])
def test_merge_aligns_features_by_name(ridge: float, factor: float) -> None:
    rng = np.random.default_rng(4)
    n = 80
    table = {name: rng.normal(size=n) for name in "abcd"}
    table["a"][n // 2 :] = 0.0
    table["d"][: n // 2] = 0.0
    y = rng.normal(size=n)

    def rows(names: str, part: slice) -> list[dict[str, float]]:
        listed = zip(*(table[name][part] for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in listed]

    make = lambda: op.RLSRegressor(ridge, exponential(factor))  # noqa: E731
    early, late = slice(0, n // 2), slice(n // 2, n)
    first, second, whole = make(), make(), make()
    for row, target in zip(rows("abc", early), y[early], strict=True):
        first.learn_one(row, target)
        whole.learn_one(row, target)
    for row, target in zip(rows("cdb", late), y[late], strict=True):
        second.learn_one(row, target)
    whole.grow(4)
    whole.feature_names_in_ = np.array(list("abcd"), dtype=object)
    for row, target in zip(rows("abcd", late), y[late], strict=True):
        whole.learn_one(row, target)
    first.merge(second)
    assert first.feature_names_in_.tolist() == list("abcd")
    assert_close(first.coef_, whole.coef_, 1e-9)
    assert_close(first.intercept_, whole.intercept_, 1e-9)


@pytest.mark.parametrize("rows", [2, 60])
def test_merge_into_learner_of_weight_zero_equals_second_part(rows: int) -> None:
    stream = Stream(17, rows, 4)
    stream.s += 0.5
    empty = op.RLSRegressor(0.0).partial_fit(stream.X, stream.Y, sample_weight=0.0)
    part = stream.learned(op.RLSRegressor(0.0))
    empty.merge(part)
    assert_close(empty.predict(stream.X), part.predict(stream.X))
    assert empty.rows_seen_ == rows


def test_merge_aligns_classes_of_parts() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    y = np.array(["low", "mid", "high", "top"])[np.arange(90) // 30 + (X[:, 0] > 0)]
    parts = [op.RLSClassifier().fit(X[i : i + 30], y[i : i + 30]) for i in range(0, 90, 30)]
    assert len({str(part.classes_) for part in parts}) == 3
    whole = op.RLSClassifier().fit(X, y)
    for order in ([0, 0], [1, 0]):
        merged = merge_in_order(parts, order)
        assert merged.classes_.tolist() == whole.classes_.tolist()
        assert_close(merged.coef_, whole.coef_)
        assert_close(merged.decision_function(X), whole.decision_function(X))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_merge_of_dependent_features_predicts_as_one_pass(*, fit_intercept: bool) -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 6)) + 1e4
    X[:, 1], X[:, 2], X[:, 3] = 0.0, 7.0, X[:, 0]
    y = rng.normal(size=60)
    make = lambda: op.RLSRegressor(0.0, fit_intercept=fit_intercept)  # noqa: E731
    parts = [make().fit(X[i : i + 15], y[i : i + 15]) for i in range(0, 60, 15)]
    whole = make().fit(X, y)
    for order in ([0, 0, 0], [2, 1, 0]):
        assert_close(merge_in_order(parts, order).predict(X), whole.predict(X), 1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_merge_of_dependent_features_does_not_depend_on_their_units(*, fit_intercept: bool) -> None:
    rng = np.random.default_rng(4)
    X = (rng.normal(size=(40, 2)) @ rng.normal(size=(2, 4))) * (1e-6, 1e6, 1.0, 1e3)
    y = rng.normal(size=40)
    parts = [
        op.RLSRegressor(0.0, fit_intercept=fit_intercept).fit(X[rows], y[rows])
        for rows in (slice(20), slice(20, 40))
    ]
    whole = op.RLSRegressor(0.0, fit_intercept=fit_intercept).fit(X, y)
    merged = merge_in_order(parts, [0])
    assert_close(merged.predict(X), whole.predict(X), 1e-9)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a floor": ({"forgetting": 0.9}, {"forgetting": 0.9}, "exponential"),
    "other forgetting": (
        {"forgetting": exponential(0.9)},
        {"forgetting": exponential(0.8)},
        "`forgetting`",
    ),
    "no intercept": ({}, {"fit_intercept": False}, "`fit_intercept`"),
    "rank": ({"ridge": 0.0}, {}, "`ridge`"),
    "other prior": ({"prior": 1.0}, {}, "`prior`"),
    "sifting": (
        {"forgetting": op.forgetting.Directional(0.9)},
        {"forgetting": op.forgetting.Directional(0.9)},
        "exponential",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_merge_of_incompatible_learners_is_refused(name: str) -> None:
    one, two, reason = REFUSED[name]
    stream = Stream(7, 150, 3)
    a, b = (stream.learned(op.RLSRegressor(**params)) for params in (one, two))
    with pytest.raises(MergeError, match=reason) as refusal:
        a.merge(b)
    assert str(refusal.value).startswith("RLSRegressor.merge: ")


def test_merge_without_names_needs_equal_feature_counts() -> None:
    rng = np.random.default_rng(8)
    a, b = (op.RLSRegressor().fit(rng.normal(size=(9, d)), rng.normal(size=9)) for d in (2, 3))
    with raises(MergeError, got="3", remedy="call grow"):
        a.merge(b)
    assert a.grow(3).merge(b).rows_seen_ == 18
    c = op.RLSRegressor().fit(rng.normal(size=(9, 3)), rng.normal(size=(9, 2)))
    with raises(MergeError, got="(n, 2)"):
        a.merge(c)


def test_merge_accepts_equal_rules_in_other_notation() -> None:
    stream = Stream(15, 30, 3)
    for one, two in ((exponential(0.9), "exponential:0.9"), (1.0, "exponential:1")):
        a, b = (stream.learned(op.RLSRegressor(forgetting=rule)) for rule in (one, two))
        assert a.merge(b).rows_seen_ == 2 * np.count_nonzero(stream.s)


def test_merge_with_ridge_matrix_refuses_new_features() -> None:
    rng = np.random.default_rng(16)
    a, b = (op.RLSRegressor(np.eye(2)) for _ in range(2))
    for learner, names in ((a, "ab"), (b, "bc")):
        for x in rng.normal(size=(5, 2)):
            learner.learn_one(dict(zip(names, x, strict=True)), x.sum())
    with raises(MergeError, argument="ridge", got="a matrix for 2 of now 3 features"):
        a.merge(b)


def test_merge_with_itself_counts_rows_twice() -> None:
    stream = Stream(9, 30, 3)
    twice = stream.learned(stream.learned(op.RLSRegressor()))
    once = stream.learned(op.RLSRegressor())
    assert_close(once.merge(once).coef_, twice.coef_)
    assert once.rows_seen_ == twice.rows_seen_


RULES: dict[str, tuple[Any, bool]] = {
    "short window": (op.forgetting.Window(30), False),
    "long window": (op.forgetting.Window(200), False),
    "window of time": (op.forgetting.Window(span=15.0), True),
    "half-life": (op.forgetting.Exponential(half_life=5.0), True),
}


ORDERS = [("after", 0.0), ("after", 1.0), ("between", 0.0), ("before", 0.0)]
MERGES = [
    (name, *order, *rest)
    for name, order in product(RULES, ORDERS)
    if order[0] == "after" or RULES[name][1]  # without times, merges are in order of the rows
    for rest in product([0.0, 0.1], [True, False])
]


@pytest.mark.parametrize(
    ("name", "how", "prior", "ridge", "fit_intercept"), sample(MERGES, 16, "merges")
)
def test_merged_windows_and_half_lives_equal_one_pass(
    name: str,
    how: str,
    prior: float,
    ridge: float,
    fit_intercept: bool,  # noqa: FBT001
) -> None:
    rule, by_time = RULES[name]
    stream = Stream(10, 90, 4)
    stream.s += 0.5
    stream.X[:, [0, -1]] = np.random.default_rng(14).normal(size=(90, 2))
    t = np.cumsum(np.random.default_rng(10).exponential(size=90))
    part = {
        "after": np.repeat([0, 1, 2], [20, 50, 20]),
        "between": np.random.default_rng(11).integers(0, 3, 90),
        "before": np.repeat([2, 1, 0], [20, 50, 20]),
    }[how]

    def fitted(on: Floats) -> Any:
        learner = op.RLSRegressor(ridge, rule, prior=prior, fit_intercept=fit_intercept)
        time = {"time": t[on]} if by_time else {}
        return learner.fit(stream.X[on], stream.Y[on], stream.s[on], **time)

    parts = [fitted(np.flatnonzero(part == k)) for k in range(3)]
    whole = fitted(np.arange(90))
    for order in ([0, 0], [1, 0]):
        merged = merge_in_order(parts, order)
        assert merged._merging == ("approximate" if prior else "exact")
        assert merged.rows_seen_ == 90
        if prior and not rule.stores_rows:
            assert_close(merged.predict(stream.X), whole.predict(stream.X), 0.05)
            continue
        assert_close(merged.coef_, whole.coef_)
        stds = (m.predict(stream.X, return_std=True)[1] for m in (merged, whole))
        assert_close(*stds, 1e-9)
        time = {"time": t + t[-1]} if by_time else {}
        later = (
            m.partial_fit(stream.X, stream.Y, sample_weight=stream.s, **time)
            for m in (merged, copy.deepcopy(whole))
        )
        assert_close(*(m.coef_ for m in later))


def test_merge_across_long_gap_equals_later_part() -> None:
    rng = np.random.default_rng(12)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    make = lambda: op.RLSRegressor(1.0, op.forgetting.Exponential(half_life="1h"))  # noqa: E731
    t = np.datetime64("2024-05-01") + np.timedelta64(1, "m") * np.arange(40)
    early = make().fit(X[:20], y[:20], time=t[:20] - np.timedelta64(900, "D"))
    late = make().fit(X[20:], y[20:], time=t[20:])
    for one, two in ((early, late), (late, early)):
        merged = copy.deepcopy(one).merge(two)
        assert merged.time_ == t[-1]
        coef, _ = ridge_qr(X[20:], y[20:], 1e-30, weights=np.exp2(np.arange(-19, 1) / 60))
        assert_close(merged.coef_, coef, 1e-9)


def test_concurrent_merge_of_windows_of_rows_is_refused() -> None:
    stream, window = Stream(13, 60, 3), op.forgetting.Window(9)
    early, late = (
        stream.learned(op.RLSRegressor(forgetting=window), rows)
        for rows in (slice(0, 30), slice(30, 60))
    )
    with raises(MergeError, argument="concurrent"):
        early.merge(late, concurrent=True)


def test_merge_of_windows_of_time_with_a_prior_equals_one_pass_in_any_order() -> None:
    stream, t = Stream(13, 60, 3), np.arange(60.0)
    make = lambda: op.RLSRegressor(forgetting=op.forgetting.Window(span=40.0), prior=1.0)  # noqa: E731
    early, late, whole = (
        make().fit(stream.X[rows], stream.Y[rows], time=t[rows])
        for rows in (slice(0, 30), slice(30, 60), slice(60))
    )
    assert_close(copy.deepcopy(late).merge(early).predict(stream.X), whole.predict(stream.X))
    assert_close(early.merge(late).predict(stream.X), whole.predict(stream.X))
