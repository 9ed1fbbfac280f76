"""Contract of all public learners: the same tests for each.

The learners come from ``cases.LEARNERS``. Each test runs with every learner, in a third of its
settings drawn at random (``cases.draw``), or in all settings with ``ONEPASS_TEST_ALL=1``. A check
of scikit-learn that a learner fails by design is listed in `DEFENDED` with the reason. A test that
does not apply to a setting is skipped, with the reason.
"""

import copy
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import (
    CHECKED,
    CLASSIFIERS,
    LEARNERS,
    PIPELINES,
    PUBLIC,
    REGRESSORS,
    Case,
    TinyRegressor,
    draw,
    features,
    make_targets,
    parametrize,
    pieces,
    snapshot,
)
from onepass import forgetting, memory
from onepass.errors import (
    MemoryFullWarning,
    MergeError,
    NotFittedError,
    NumericalError,
    OnepassError,
)
from oracles import one_row_at_a_time
from raising import raises

EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
TRAIN = "check_classifiers_train"


def _discards_directions(made: Any) -> bool:
    """Whether a memory retains fewer directions than the check has rows."""
    limit = getattr(made, "memory", None)
    m = getattr(limit, "m", limit)
    return limit == memory.NoMemory() or (isinstance(m, int) and m < 15)


DEFENDED: list[tuple[Callable[[Any], bool], str, str]] = [
    (
        lambda made: hasattr(made, "step_size"),
        EQUIVALENCE,
        "Steps are sequential: two steps differ from one of double size.",
    ),
    (
        lambda made: getattr(made, "forgetting", 1.0) != 1.0,
        EQUIVALENCE,
        "Forgetting counts rows: a repeated row discounts earlier rows twice.",
    ),
    (
        lambda made: hasattr(made, "process_noise"),
        EQUIVALENCE,
        "The weights move before each row: a repeated row takes two steps of time.",
    ),
    (
        lambda made: getattr(made, "ridge", None) == 0.0,
        EQUIVALENCE,
        "Below full rank the norm is scaled by the first values, and the check shuffles the rows.",
    ),
    (
        _discards_directions,
        EQUIVALENCE,
        "The content of a limited memory depends on the order of rows, which the check shuffles.",
    ),
    (
        lambda made: hasattr(made, "vigilance"),
        EQUIVALENCE,
        "A repeated row may match another prototype.",
    ),
    (
        lambda made: "Forest" in repr(made),
        EQUIVALENCE,
        "Each row has a random weight in each tree.",
    ),
    (
        lambda made: getattr(made, "_calibrated", False),
        EQUIVALENCE,
        "Probabilities are fitted row by row, in the order of the rows.",
    ),
    (
        lambda made: is_classifier(made) and getattr(made, "noise", 1.0) == 0,
        TRAIN,
        "Without noise the first rows are fitted exactly, and later rows cannot change them.",
    ),
]
"""Checks of scikit-learn that learners fail by design: which learners, which check, why."""


def defended(made: Any) -> dict[str, str]:
    """The checks that a learner fails by design, with the reasons."""
    return {check: reason for fails, check, reason in DEFENDED if fails(made)}


every = parametrize(LEARNERS)
every_whole = parametrize([*LEARNERS, *PIPELINES])
every_saved = parametrize([*PUBLIC, *PIPELINES])
every_classifier = parametrize(CLASSIFIERS)
every_regressor = parametrize(REGRESSORS)
few_examples = settings(max_examples=8, deadline=None, derandomize=True)

N = 40
"""Rows of a stream: enough to fill every memory."""


def assert_same_predictions(one: Any, other: Any, tolerance: float = 1e-8) -> None:
    """Assert equal labels, or numbers equal up to rounding."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        scale = max(1.0, np.abs(other).max(initial=0.0))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)
    else:
        assert one.tolist() == other.tolist()


@pytest.fixture(autouse=True)
def _ignore_full_memories() -> Iterator[None]:
    """Memories fill quickly here; the warning has tests of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryFullWarning)
        yield


# -- checks of scikit-learn -----------------------------------------------------------------------


@parametrize_with_checks(
    [case.made for case in draw(CHECKED, "test_scikit_learn_estimator_checks")],
    expected_failed_checks=defended,
)
def test_scikit_learn_estimator_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    if getattr(check, "func", check).__name__ == TRAIN and getattr(estimator, "_calibrated", False):
        estimator = _without_probabilities(estimator)
    check(estimator)


def _without_probabilities(estimator: Any) -> Any:
    """The estimator without probabilities: with offsets, another class may be more probable."""
    hidden = {"predict_proba": property(lambda _: getattr(None, "predict_proba"))}  # noqa: B009
    kind = type(estimator)
    return type(kind.__name__, (kind,), hidden)(**estimator.get_params(deep=False))


def test_expected_failures_apply_to_checked_learners() -> None:
    for fails, check, _ in DEFENDED:
        assert any(fails(case.made) for case in CHECKED), check


# -- blocks ----------------------------------------------------------------------------------------


@every_whole
@few_examples
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, N), max_size=5))
def test_block_boundaries_do_not_matter(case: Case, seed: int, cuts: list[int]) -> None:
    X = features(N + 10, seed=seed)
    y = make_targets(case, X, seed)
    s = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], size=N + 10)
    a, b = case(), case()
    together = a.test_then_train(X[:N], y[:N], s[:N])
    parts = [b.test_then_train(X[i], y[i], s[i]) for i in pieces(N, cuts)]
    assert_same_predictions(np.concatenate([part for part in parts if len(part)]), together)
    assert a.rows_seen_ == b.rows_seen_ == np.count_nonzero(s[:N])
    # equal states learn identically from here on
    assert_same_predictions(b.predict(X), a.predict(X))
    assert_same_predictions(
        b.test_then_train(X[N:], y[N:], s[N:]), a.test_then_train(X[N:], y[N:], s[N:])
    )


@every_whole
@pytest.mark.parametrize("seed", range(3))
def test_blocks_equal_single_rows(case: Case, seed: int) -> None:
    X = features(N, seed=seed)
    y = make_targets(case, X, seed)
    s = np.random.default_rng(seed).choice([0.0, 0.5, 1.0], size=N, p=[0.2, 0.2, 0.6])
    a, b = case(), case()
    assert_same_predictions(a.test_then_train(X, y, s), one_row_at_a_time(b, X, y, s))
    assert_same_predictions(a.predict(X), b.predict(X))


@every_whole
def test_partial_fit_and_test_then_train_learn_equally(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    a, b = case(), case()
    a.partial_fit(X, y)
    b.test_then_train(X, y)
    assert snapshot(a) == snapshot(b)


@every_whole
def test_learn_one_equals_partial_fit_of_one_row(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    a, b = case(), case()
    for i in range(10):
        assert a.learn_one(X[i], y[i]) is a
        assert b.partial_fit(X[i : i + 1], y[i : i + 1]) is b
        assert snapshot(a) == snapshot(b)
    assert_same_predictions([a.predict_one(x) for x in X], a.predict(X))


# -- no side effects ------------------------------------------------------------------------------


@every_whole
def test_inputs_are_never_written_to(case: Case) -> None:
    X = features(N)
    given = (X, make_targets(case, X), np.linspace(0.0, 2.0, N))
    before = [array.copy() for array in given]
    for locked in (False, True):
        for array in given:
            array.flags.writeable = not locked  # writing to a read-only array raises
        X, y, s = given
        learner = case().fit(X, y, s).partial_fit(X, y, sample_weight=s)
        learner.test_then_train(X, y, s)
        learner.learn_one(X[0], y[0]).predict(X)
    for array, was in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, was)


@every_whole
def test_predictions_leave_learner_unchanged(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    learner.predict(X)
    learner.predict_one(X[0])
    learner.score(X, make_targets(case, X))
    repr(learner)
    assert learner.nbytes > 0
    if is_classifier(learner):
        learner.decision_function(X)
    assert snapshot(learner) == before


@every_whole
def test_predictions_before_fitting_leave_learner_unchanged(case: Case) -> None:
    learner = case()
    before = snapshot(learner)
    learner.predict_one(features(1)[0])
    with pytest.raises(NotFittedError):
        learner.predict(features(3))
    assert snapshot(learner) == before


@every_whole
def test_arrays_of_the_user_are_copied(case: Case) -> None:
    X = features(N)
    y, s = make_targets(case, X), np.linspace(0.5, 2.0, N)
    learner = case().fit(X, y, s).learn_one(X[0], y[0])
    before = snapshot(learner)
    X[:], y[:], s[:] = 99.0, 0, 0.0
    assert snapshot(learner) == before


@every_whole
def test_predictions_are_copies(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    for predictions in (
        learner.predict(X),
        learner.test_then_train(X[:0], make_targets(case, X)[:0]),
    ):
        predictions[...] = 0
    assert snapshot(learner) == before


@every_whole
def test_constructor_arguments_are_never_changed(case: Case) -> None:
    X = features(N)
    learner = case()
    before = snapshot(learner.get_params(deep=False))
    learner.fit(X, make_targets(case, X)).learn_one(X[0], make_targets(case, X)[0])
    assert snapshot(learner.get_params(deep=False)) == before


@every_whole
def test_learned_attributes_end_with_an_underscore(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X)).learn_one(X[0], make_targets(case, X)[0])
    learned = set(vars(learner)) - set(learner.get_params(deep=False))
    derived = {"_single", *getattr(learner, "_derived", ())}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*_", name) for name in learned - derived), learned


# -- bounded memory --------------------------------------------------------------------------------


@every_whole
def test_memory_does_not_grow_with_the_stream(case: Case) -> None:
    if "Forest" in repr(case()):
        pytest.skip("a forest grows to max_bytes, in its own tests")
    rows = 100
    X = features(10 * rows)
    y = make_targets(case, X[:rows])
    levels = getattr(case.made, "levels", 1)
    limits = {"max_prototypes": 9 if levels == 1 else 2, "budget": 9}  # of each node of a tree
    few = {name: limit for name, limit in limits.items() if hasattr(case.made, name)}
    learner = case(**few)  # a limit that the first rows reach
    peaks = []
    for k in range(10):
        peak = 0
        for part in pieces(rows, range(0, rows, 20)):
            learner.partial_fit(X[k * rows : (k + 1) * rows][part], y[part])
            peak = max(peak, learner.nbytes)
        peaks.append(peak)
    full = 1 if levels == 1 else 5
    assert max(peaks[full:]) <= max(peaks[:full])


# -- save and load ---------------------------------------------------------------------------------


@every_saved
def test_loaded_learner_continues_identically(case: Case, tmp_path: Path) -> None:
    from onepass.serialization import models

    X = features(2 * N)
    y = make_targets(case, X)
    learner = case().fit(X[:N], y[:N])
    before = snapshot(learner)
    models.save(learner, tmp_path / "m.onepass")
    assert snapshot(learner) == before
    loaded = models.load(tmp_path / "m.onepass")
    assert snapshot(loaded) == before
    learner.partial_fit(X[N:], y[N:])
    loaded.partial_fit(X[N:], y[N:])
    assert snapshot(loaded) == snapshot(learner)


@every_saved
def test_unfitted_learner_can_be_saved(case: Case, tmp_path: Path) -> None:
    from onepass.serialization import models

    models.save(case(), tmp_path / "m.onepass")
    assert snapshot(models.load(tmp_path / "m.onepass")) == snapshot(case())


@every_whole
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])  # noqa: S301
def test_copies_are_equal_and_independent(case: Case, copied: Callable[[Any], Any]) -> None:
    X = features(2 * N)
    y = make_targets(case, X)
    learner = case().fit(X[:N], y[:N])
    before = snapshot(learner)
    twin = copied(learner)
    assert snapshot(twin) == before
    twin.partial_fit(X[N:], y[N:])
    assert snapshot(learner) == before
    assert snapshot(learner.partial_fit(X[N:], y[N:])) == snapshot(twin)


@every_whole
def test_clone_is_unfitted_with_equal_parameters(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    fresh = clone(learner)
    assert snapshot(fresh) == snapshot(case())
    assert snapshot(fresh.fit(X, make_targets(case, X))) == snapshot(learner)


@every_whole
def test_fit_discards_earlier_rows(case: Case) -> None:
    X = features(2 * N, d=3)
    y = make_targets(case, X)
    learner = case().fit(features(N, d=5), make_targets(case, features(N, d=5)))
    assert snapshot(learner.fit(X, y)) == snapshot(case().fit(X, y))


# -- merging ---------------------------------------------------------------------------------------


def _merged(parts: list[Any], *, leftwards: bool) -> Any:
    """Merge three learners, grouped from the left or from the right, without changing them."""
    a, b, c = copy.deepcopy(parts)
    return a.merge(b).merge(c) if leftwards else a.merge(b.merge(c))


@every_whole
@few_examples
@given(
    leftwards=st.booleans(),
    seed=st.integers(0, 2**31),
    cuts=st.lists(st.integers(0, N), min_size=2, max_size=2),
)
def test_merging_equals_learning_all_rows(
    case: Case,
    leftwards: bool,  # noqa: FBT001
    seed: int,
    cuts: list[int],
) -> None:
    X = features(N + 10, seed=seed)
    y = make_targets(case, X, seed)
    s = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], size=N + 10)
    parts = [case().partial_fit(X[i], y[i], sample_weight=s[i]) for i in pieces(N, cuts)]
    before = snapshot(parts)
    if case.made._merging == "refused":
        with pytest.raises(MergeError):
            parts[0].merge(parts[1])
        assert snapshot(parts) == before
        return
    merged = _merged(parts, leftwards=leftwards)
    assert snapshot(parts) == before
    assert merged.rows_seen_ == np.count_nonzero(s[:N])
    if case.made._merging == "exact":
        whole = case().partial_fit(X[:N], y[:N], sample_weight=s[:N])
        assert_same_predictions(merged.predict(X), whole.predict(X))
        # equal states learn identically from here on
        assert_same_predictions(
            merged.test_then_train(X[N:], y[N:], s[N:]), whole.test_then_train(X[N:], y[N:], s[N:])
        )
    else:
        assert all(np.isfinite(array).all() for array in _floats(merged))


@every_whole
def test_different_learners_are_not_merged(case: Case) -> None:
    X = features(N)
    learner, other = case().fit(X, make_targets(case, X)), TinyRegressor().fit(X, X[:, 0])
    before = snapshot(learner), snapshot(other)
    for one, two in ((learner, other), (other, learner), (learner, None)):
        with raises(MergeError, where=f"{type(one).__name__}.merge"):
            one.merge(two)
    assert (snapshot(learner), snapshot(other)) == before


@every_saved
def test_loaded_learners_merge_identically(case: Case, tmp_path: Path) -> None:
    from onepass.serialization import models

    if case.made._merging == "refused":
        return
    X = features(2 * N)
    y = make_targets(case, X)
    parts = [case().fit(X[:N], y[:N]), case().fit(X[N:], y[N:])]
    for i, part in enumerate(parts):
        models.save(part, tmp_path / f"{i}.onepass")
    first, second = (models.load(tmp_path / f"{i}.onepass") for i in range(2))
    assert snapshot(first.merge(second)) == snapshot(parts[0].merge(parts[1]))


# -- before the first row --------------------------------------------------------------------------


@every_whole
def test_first_prediction_equals_predict_one_of_unfitted_learner(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    first = case().test_then_train(X, y)[0]
    predictions = case().predict_one(X[0])
    assert predictions == (first if first is None else pytest.approx(first, abs=1e-14))
    assert predictions is None if is_classifier(case.made) else np.isfinite(predictions)


# -- errors do not change the learner --------------------------------------------------------------


def _with(array: Any, value: Any) -> Any:
    damaged = array.astype(object) if isinstance(value, str) else array.astype(type(value))
    damaged[2, 1] = value
    return damaged


BAD_X: dict[str, Callable[[Any], Any]] = {
    "nan": lambda X: _with(X, np.nan),
    "infinity": lambda X: _with(X, -np.inf),
    "text": lambda X: _with(X, "low"),
    "complex": lambda X: _with(X, 1j),
    "too wide": lambda X: np.hstack([X, X]),
    "too narrow": lambda X: X[:, :1],
    "no columns": lambda X: X[:, :0],
    "1-D": lambda X: X[0],
    "3-D": lambda X: X[:, :, None],
    "sparse": scipy.sparse.csr_matrix,
    "dates": lambda X: X.astype("datetime64[s]"),
    "None": lambda _: None,
    "a frame with text": lambda X: pd.DataFrame(X).assign(gear="low"),
    "too few rows": lambda X: X[:-1],
}
BAD_Y: dict[str, Callable[[Any], Any]] = {
    "nan": lambda y: np.where(np.arange(len(y)) == 2, np.nan, y),
    "infinity": lambda y: np.where(np.arange(len(y)) == 2, np.inf, y),
    "too few": lambda y: y[:-1],
    "3-D": lambda y: y[:, None, None],
    "None": lambda _: None,
    "complex": lambda y: y + 1j,
    "mixed": lambda y: np.array(["low", *y.tolist()[1:]], dtype=object),
    "another number of outputs": lambda y: np.column_stack([y, y, y]),
}
BAD_WEIGHTS: dict[str, Any] = {
    "negative": np.linspace(-1.0, 1.0, 6),
    "nan": np.array([1.0, np.nan, 1.0, 1.0, 1.0, 1.0]),
    "too few": np.ones(5),
    "2-D": np.ones((6, 1)),
    "text": ["much"] * 6,
}


def _bad_rows(case: Case) -> dict[str, Callable[[Any], Any]]:
    """Damages of rows that are errors of a learner."""
    missing = get_tags(case()).input_tags.allow_nan
    return {name: damage for name, damage in BAD_X.items() if not (missing and name == "nan")}


def _invalid_arguments(case: Case) -> Iterator[tuple[str, Any, Any, Any]]:
    X = features(6)
    y = make_targets(case, X)
    yield from ((f"X: {name}", damage(X), y, None) for name, damage in _bad_rows(case).items())
    yield from ((f"y: {name}", X, damage(y), None) for name, damage in BAD_Y.items())
    yield from ((f"weights: {name}", X, y, s) for name, s in BAD_WEIGHTS.items())


@every
@pytest.mark.parametrize("method", ["fit", "partial_fit", "test_then_train"])
@pytest.mark.parametrize("fitted", [False, True], ids=["new", "fitted"])
def test_invalid_blocks_leave_learner_unchanged(case: Case, method: str, fitted: bool) -> None:  # noqa: FBT001
    X = features(N)
    learner, targets = case(), make_targets(case, X)
    if fitted:
        learner.fit(X, targets).learn_one(X[0], targets[0])  # small blocks may follow a faster path
    before = snapshot(learner)
    alone = {"X: too wide", "X: too narrow", "y: another number of outputs"}
    for name, bad_X, bad_y, bad_s in _invalid_arguments(case):
        fresh = method == "fit" or not fitted
        if fresh and name in alone and not (is_classifier(learner) and name.startswith("y")):
            continue  # an unfitted learner accepts any width
        with pytest.raises(OnepassError) as refusal:
            getattr(learner, method)(bad_X, bad_y, sample_weight=bad_s)
        where = f"{type(learner).__name__}.{method}: "
        assert str(refusal.value).startswith(where), name
        assert snapshot(learner) == before, name


@every
@pytest.mark.parametrize("fitted", [False, True], ids=["new", "fitted"])
def test_invalid_rows_leave_learner_unchanged(case: Case, fitted: bool) -> None:  # noqa: FBT001
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y) if fitted else case()
    before = snapshot(learner)
    x = X[0]
    wrong = np.inf if get_tags(learner).input_tags.allow_nan else np.nan
    bad = [np.where(np.arange(4) == 1, wrong, x), X[:2], x + 1j, list("abcd"), {"a": "text"}]
    for row in [*bad, x[:2]] if fitted else bad:
        with pytest.raises(OnepassError):
            learner.learn_one(row, y[0])
        with pytest.raises(OnepassError):
            learner.predict_one(row)
    for target in (np.nan, np.inf, None, 1j):
        with pytest.raises(OnepassError):
            learner.learn_one(x, target)
    for weight in (-1.0, np.nan, "much"):
        with pytest.raises(OnepassError):
            learner.learn_one(x, y[0], sample_weight=weight)
    assert snapshot(learner) == before


@every
def test_invalid_rows_to_predict_leave_learner_unchanged(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    for name, damage in _bad_rows(case).items():
        if name != "too few rows":
            with pytest.raises(OnepassError):
                learner.predict(damage(X))
    assert snapshot(learner) == before


@every
@pytest.mark.parametrize("fitted", [False, True], ids=["new", "fitted"])
def test_interrupt_leaves_learner_unchanged(
    case: Case,
    fitted: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y) if fitted else case()
    if hasattr(learner, "_decompile"):  # compiled code does not call _learn
        learner._decompile()
    before = snapshot(learner)
    real = type(learner)._learn

    def learn_then_stop(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(learner), "_learn", learn_then_stop)
    new = np.full(N, 7) if is_classifier(learner) else y
    for stopped in (
        lambda: learner.partial_fit(X, new),
        lambda: learner.fit(X, y),
        lambda: learner.learn_one(X[0].tolist(), new[0]),  # arrays may be learned without _learn
    ):
        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert snapshot(learner) == before


# -- edge cases -----------------------------------------------------------------------------------


@every_whole
def test_empty_block_leaves_learner_unchanged(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y)
    before = snapshot(learner)
    learner.partial_fit(X[:0], y[:0])
    learner.partial_fit(X[:0], y[:0], sample_weight=[])
    assert learner.test_then_train(X[:0], y[:0]).shape == (0,)
    assert snapshot(learner) == before
    assert learner.predict(X[:0]).shape == (0,)
    with pytest.raises(OnepassError):
        learner.fit(X[:0], y[:0])
    assert snapshot(learner) == before
    late = case().partial_fit(X[:0], y[:0])
    with pytest.raises(NotFittedError):
        late.predict(X)
    assert snapshot(late.partial_fit(X, y)) == snapshot(case().partial_fit(X, y))


@every_whole
def test_rows_of_weight_zero_are_not_learned(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().partial_fit(X, y)
    before = snapshot(learner)
    learner.partial_fit(X, y[::-1], sample_weight=0.0)
    learner.partial_fit(X, y[::-1], sample_weight=np.zeros(N))
    learner.learn_one(X[0], y[0], sample_weight=0.0)
    assert_same_predictions(learner.test_then_train(X, y, 0.0), learner.predict(X))
    assert snapshot(learner) == before
    with pytest.raises(OnepassError):
        learner.fit(X, y, sample_weight=np.zeros(N))
    assert snapshot(learner) == before
    on = np.arange(N) % 3 > 0
    a = case().partial_fit(X, y, sample_weight=on.astype(float))
    assert_same_predictions(a.predict(X), case().partial_fit(X[on], y[on]).predict(X))


@every_whole
def test_unit_weights_are_the_default(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    a = case().partial_fit(X, y, sample_weight=np.ones(N))
    assert_same_predictions(a.predict(X), case().partial_fit(X, y).predict(X))


@every
def test_dicts_and_data_frames_equal_arrays(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    names = ["a", "b", "c", "d"]
    plain = case().partial_fit(X, y)
    columns = dict(zip(names, X.T, strict=True))
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        named = case().partial_fit(frame, y)
        assert list(named.feature_names_in_) == names
        assert_same_predictions(named.predict(frame), plain.predict(X))
        turned = frame.select(names[::-1]) if hasattr(frame, "select") else frame[names[::-1]]
        assert_same_predictions(named.predict(turned), plain.predict(X))
        with pytest.raises(OnepassError):
            named.predict(
                turned.rename({"a": "z"}) if isinstance(turned, pl.DataFrame) else X[:, 1:]
            )
    by_row = case()
    for x, target in zip(X.tolist(), y, strict=True):
        by_row.learn_one(dict(zip(names, x, strict=True)), target)
    turned_row = dict(zip(names[::-1], X[0, ::-1], strict=True))
    assert_same_predictions(by_row.predict_one(turned_row), plain.predict_one(X[0]))
    with pytest.raises(OnepassError):
        by_row.learn_one({**turned_row, "z": 1.0}, y[0])


@every_whole
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
def test_other_dtypes_are_accepted(case: Case, dtype: Any) -> None:
    X = np.round(features(N) * 3)
    X = (X > 0).astype(dtype) if dtype is bool else np.abs(X).astype(dtype)
    y = make_targets(case, X.astype(float))
    a, b = case().partial_fit(X, y), case().partial_fit(X.astype(np.float64), y)
    assert a.predict(X).dtype == b.predict(X).dtype
    assert_same_predictions(a.predict(X), b.predict(X.astype(np.float64)), 1e-3)
    assert_same_predictions(
        case().partial_fit(X.tolist(), y.tolist()).predict(X.tolist()),
        b.predict(X.astype(np.float64)),
    )


@every_whole
def test_memory_layout_does_not_matter(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    wide, long = np.repeat(X, 2, axis=1), np.repeat(y, 2)
    a = case().partial_fit(X, y)
    for same in (np.asfortranarray(X), wide[:, ::2], X[::-1][::-1], X.astype(">f8")):
        assert_same_predictions(case().partial_fit(same, long[::2]).predict(same), a.predict(X))


@every_whole
def test_learners_fit_a_single_row(case: Case) -> None:
    X = features(1)
    learner = case().fit(X, make_targets(case, X))
    assert learner.rows_seen_ == 1
    assert learner.n_features_in_ == 4
    assert learner.predict(X).shape == (1,)


@every_whole
@pytest.mark.parametrize(
    "damage",
    [
        np.zeros_like,
        np.ones_like,
        lambda X: X * [1.0, 0.0, 0.0, 1.0],
        lambda X: X[:, [0, 0, 1, 1]],
        lambda X: np.repeat(X[:1], len(X), axis=0),
        lambda X: X * [1e-150, 1e-8, 1.0, 1e8],
        lambda X: X * 1e-300,
    ],
    ids=["zero", "one", "zero columns", "doubled columns", "one row again", "scales", "tiny"],
)
def test_degenerate_features_never_give_nan(case: Case, damage: Callable[[Any], Any]) -> None:
    X = damage(features(N))
    y = make_targets(case, features(N))
    learner = case()
    try:
        predictions = learner.test_then_train(X, y)
    except NumericalError:
        # steps of fixed size diverge on large features, which raises an error
        assert learner.step in {"constant", "decaying"}
        return
    if is_classifier(learner):
        assert set(learner.predict(X)) <= set(learner.classes_)
        assert np.isfinite(learner.decision_function(X)).all()
    else:
        assert np.isfinite(predictions).all()
        assert np.isfinite(learner.predict(X)).all()


@every_whole
@pytest.mark.parametrize("size", [1e100, 1e160, 1e200, 1e308])
@pytest.mark.parametrize("fitted", [False, True], ids=["new", "fitted"])
def test_huge_values_give_finite_results_or_errors(
    case: Case,
    size: float,
    fitted: bool,  # noqa: FBT001
) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y) if fitted else case()
    before = snapshot(learner)
    huge = np.sign(X) * size
    big_y = y if is_classifier(learner) else np.sign(y) * size
    for many in (huge, np.where(np.arange(4) == 0, huge, X)):
        try:
            predictions = learner.test_then_train(many, big_y)
        except NumericalError:
            assert snapshot(learner) == before
        else:
            assert is_classifier(learner) or np.isfinite(predictions).all()
            assert all(np.isfinite(array).all() for array in _floats(learner))
            learner = case().fit(X, y) if fitted else case()


@every
def test_huge_single_rows_give_finite_results_or_errors(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y)
    before = snapshot(learner)
    for x in (np.full(4, 1e200), np.array([0.0, 1e160, 0.0, -1.0])):
        with suppress(NumericalError):  # a kernel of high degree overflows
            learner.predict_one(x)
        assert snapshot(learner) == before
        try:
            learner.learn_one(x, y[0])
        except NumericalError:
            assert snapshot(learner) == before
        else:
            assert all(np.isfinite(array).all() for array in _floats(learner))
            learner = case().fit(X, y)


def _floats(thing: Any) -> Iterator[Any]:
    """All floating-point arrays in an object and its parts."""
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind == "f":
            yield thing
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from _floats(part)
    elif isinstance(thing, dict):
        yield from _floats(list(thing.values()))
    elif hasattr(thing, "learn_one"):
        yield from _floats(thing.__getstate__())
    elif hasattr(thing, "__dict__"):
        yield from _floats(vars(thing))
    elif hasattr(thing, "__dataclass_fields__"):
        yield from _floats([getattr(thing, name) for name in thing.__dataclass_fields__])


@every
def test_grow_equals_zero_features_before(case: Case) -> None:
    if getattr(case(), "gamma", 1.0) is None:
        pytest.skip("the default width of a kernel depends on the number of features")
    if getattr(case(), "forgetting", 1.0) in {0.9, 0.95, forgetting.Exponential(0.95)}:
        pytest.skip("with forgetting, the prior of new features starts at full weight")
    if "Forest" in repr(case()):
        pytest.skip("a forest draws from all features, and new ones are missing before")
    X = features(2 * N)
    y = make_targets(case, X)
    early = X * [1.0, 1.0, 0.0, 0.0]
    grown = case().partial_fit(early[:N, :2], y[:N]).grow(4)
    whole = case().partial_fit(early[:N], y[:N])
    assert grown.n_features_in_ == 4
    assert_same_predictions(grown.predict(early[:N]), whole.predict(early[:N]))
    one, two = (each.test_then_train(X[N:], y[N:]) for each in (grown, whole))
    window = isinstance(getattr(case(), "forgetting", None), forgetting.Window)
    # a row that leaves rounds by as much as a tiny ridge or prior of undetermined weights
    first = 3 if window and case().ridge < 1e-9 else 0
    assert_same_predictions(one[first:], two[first:])
    before = snapshot(grown)
    with pytest.raises(OnepassError):
        grown.grow(3)
    assert snapshot(grown.grow(4)) == before


# -- regressors ------------------------------------------------------------------------------------


@every_regressor
def test_several_outputs_equal_several_regressors(case: Case) -> None:
    if getattr(case.made, "budget", None) in {5, 9}:
        pytest.skip("all outputs together determine which rows of a dictionary are dropped")
    if "Forest" in repr(case()):
        pytest.skip("all outputs together determine the trees")
    X = features(N)
    y = make_targets(case, X)
    Y = np.column_stack([y, X[:, 0] - y, np.ones(N), np.zeros(N)])
    learner = case()
    predictions = learner.test_then_train(X, Y)
    assert predictions.shape == (N, 4)
    assert learner.n_outputs_ == 4
    for k in range(4):
        alone = case()
        assert_same_predictions(predictions[:, k], alone.test_then_train(X, Y[:, k]))
        assert_same_predictions(learner.predict(X)[:, k], alone.predict(X))
    rows = case()
    for i in range(N):
        assert_same_predictions(np.broadcast_to(rows.predict_one(X[i]), 4), predictions[i])
        rows.learn_one(X[i], Y[i])


@every_regressor
def test_initial_coef_predicts_before_learning(case: Case) -> None:
    if "initial_coef" not in case.made.get_params(deep=False):
        return
    X, start = features(N), np.array([1.0, -2.0, 0.0, 0.5])
    learner = case(initial_coef=start)
    assert_same_predictions(learner.predict_one(X[0]), X[0] @ start)
    if not getattr(learner, "l2", 0.0):  # targets are fitted exactly: the weights do not change
        assert_same_predictions(learner.test_then_train(X, X @ start), X @ start)
    assert_same_predictions(learner.fit(X, make_targets(case, X)).coef_.shape, (4,))
    assert start.tolist() == [1.0, -2.0, 0.0, 0.5]
    assert learner.initial_coef is start


@every_regressor
def test_targets_of_one_column_retain_their_shape(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    column = case()
    assert_same_predictions(
        column.test_then_train(X, y[:, None])[:, 0], case().test_then_train(X, y)
    )
    assert column.predict(X).shape == (N, 1)


# -- classifiers -----------------------------------------------------------------------------------


@every_classifier
def test_predictions_do_not_depend_on_label_names(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    predictions = case().test_then_train(X, y)
    for names in (np.array(["high", "low", "mid"]), np.array([-7, 0, 12]), np.array([0.0, 1, 5])):
        other = case()
        assert [names[k] if k is not None else None for k in predictions] == other.test_then_train(
            X, names[y]
        ).tolist()
        assert other.classes_.tolist() == names.tolist()
    objects = case().partial_fit(X, np.array(["high", "low", "mid"])[y].astype(object))
    assert objects.classes_.tolist() == ["high", "low", "mid"]


@every_classifier
@few_examples
@given(seed=st.integers(0, 2**31), order=st.permutations(range(5)))
def test_new_classes_are_accepted_at_any_time(case: Case, seed: int, order: list[int]) -> None:
    X = features(N, seed=seed)
    y = np.asarray(order)[
        np.minimum(np.random.default_rng(seed).integers(0, N, N), np.arange(N)) // 8
    ]
    a, b = case(), case()
    predictions = a.test_then_train(X, y)
    assert_same_predictions(predictions, one_row_at_a_time(b, X, y))
    assert a.classes_.tolist() == sorted(set(y.tolist()))
    assert_same_predictions(a.predict(X), b.predict(X))
    for i in range(1, N):  # the prediction is a class seen before
        assert predictions[i] in y[:i]


@every_classifier
def test_single_class_is_always_predicted(case: Case) -> None:
    X = features(N)
    learner = case()
    predictions = learner.test_then_train(X, np.full(N, 3))
    assert predictions.tolist() == [None] + [3] * (N - 1)
    assert learner.classes_.tolist() == [3]
    assert learner.predict(X).tolist() == [3] * N
    assert learner.decision_function(X).shape == (N, 1)


@every_classifier
def test_classes_given_in_advance_are_predicted(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case(classes=[2, 1, 0])
    assert learner.predict_one(X[0]) == 2
    named = case().partial_fit(X[:0], y[:0], classes=[0, 1, 2])
    assert named.classes_.tolist() == [0, 1, 2]
    a, b = learner.test_then_train(X, y), named.test_then_train(X, y)
    assert a.tolist() == b.tolist()
    assert a.dtype == y.dtype
    assert learner.classes_.tolist() == [0, 1, 2]
    learner.learn_one(X[0], 9)
    assert learner.classes_.tolist() == [0, 1, 2, 9]


@every_classifier
def test_decision_function_agrees_with_predict(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    many = case().fit(X, y)
    scores = many.decision_function(X)
    assert scores.shape == (N, 3)
    best = np.searchsorted(many.classes_, many.predict(X))
    assert_same_predictions(scores[np.arange(N), best], scores.max(axis=1))
    two = case().fit(X, y == 1)
    assert two.decision_function(X).shape == (N,)
    assert_same_predictions(two.decision_function(X) >= 0, two.predict(X))


@every_classifier
def test_labels_of_mixed_kinds_are_refused(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    for odd in (np.array(["low"] * N), np.linspace(0.0, 1.0, N)):
        with pytest.raises(OnepassError):
            learner.partial_fit(X, odd)
        assert snapshot(learner) == before
