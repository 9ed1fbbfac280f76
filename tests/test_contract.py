"""What every learner promises, held for every public learner by the same tests.

The learners come from ``cases.LEARNERS``. A learner that cannot keep a law of scikit-learn is
in `DEFENDED` with one sentence of defence; a law of onepass that a setting cannot keep is skipped
for it where the law stands, with the reason.
"""

import copy
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
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
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import (
    CHECKED,
    CLASSIFIERS,
    LEARNERS,
    PIPELINES,
    PUBLIC,
    REGRESSORS,
    Case,
    TinyClassifier,
    TinyRegressor,
    features,
    make_targets,
    pieces,
    snapshot,
)
from onepass import memory
from onepass.errors import (
    MemoryFullWarning,
    MergeError,
    NotFittedError,
    NumericalError,
    OnepassError,
)
from onepass.memory import forgetting
from oracles import one_row_at_a_time

EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
TINY = (TinyRegressor, TinyClassifier)
TRAIN = "check_classifiers_train"


def _keeps_few(made: Any) -> bool:
    """Whether a memory keeps fewer directions than the rows of that check have."""
    kept = getattr(made, "memory", None)
    m = getattr(kept, "m", kept)
    return kept == memory.NoMemory() or (isinstance(m, int) and m < 15)


DEFENDED: list[tuple[Callable[[Any], bool], str, str]] = [
    (
        lambda made: (
            hasattr(made, "step_size") or isinstance(made, (TinyRegressor, TinyClassifier))
        ),
        EQUIVALENCE,
        "A step is taken from where the last one ended: two steps are not one of double size.",
    ),
    (
        lambda made: getattr(made, "forgetting", 1.0) != 1.0,
        EQUIVALENCE,
        "Forgetting counts rows: a row that is seen twice also ages what came before it twice.",
    ),
    (
        lambda made: getattr(made, "ridge", None) == 0.0,
        EQUIVALENCE,
        "Below full rank the norm is in units of first values, and that check shuffles the rows.",
    ),
    (
        _keeps_few,
        EQUIVALENCE,
        "What a limited memory keeps depends on the order of rows, which that check shuffles.",
    ),
    (
        lambda made: hasattr(made, "vigilance"),
        EQUIVALENCE,
        "A row that comes twice may find another prototype when it comes again.",
    ),
    (
        lambda made: is_classifier(made) and getattr(made, "noise", 1.0) == 0,
        TRAIN,
        "Without noise the first rows are fitted exactly, and later ones cannot be averaged in.",
    ),
]
"""Which learner fails which check of scikit-learn, and why that is right."""


def defended(made: Any) -> dict[str, str]:
    """The checks that a learner is expected to fail, each with its sentence of defence."""
    return {check: reason for fails, check, reason in DEFENDED if fails(made)}


every = pytest.mark.parametrize("case", LEARNERS, ids=lambda case: case.name)
every_public = pytest.mark.parametrize("case", PUBLIC, ids=lambda case: case.name)
every_whole = pytest.mark.parametrize("case", [*LEARNERS, *PIPELINES], ids=lambda case: case.name)
every_saved = pytest.mark.parametrize("case", [*PUBLIC, *PIPELINES], ids=lambda case: case.name)
every_classifier = pytest.mark.parametrize("case", CLASSIFIERS, ids=lambda case: case.name)
every_regressor = pytest.mark.parametrize("case", REGRESSORS, ids=lambda case: case.name)
quickly = settings(max_examples=8, deadline=None, derandomize=True)

N = 40
"""Rows of a stream in these tests: enough to fill every memory, few enough to be quick."""


def assert_same_answers(one: Any, other: Any, tolerance: float = 1e-8) -> None:
    """Labels equal, numbers equal to rounding."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        scale = max(1.0, np.abs(other).max(initial=0.0))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)
    else:
        assert one.tolist() == other.tolist()


@pytest.fixture(autouse=True)
def _memories_may_fill() -> Iterator[None]:
    """Few features fill a memory soon; what a learner then warns of is its own test's affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryFullWarning)
        yield


# -- scikit-learn's own checks ---------------------------------------------------------------------


@parametrize_with_checks(
    [case.made for case in CHECKED],
    expected_failed_checks=defended,
)
def test_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_every_defence_is_needed() -> None:
    for fails, check, _ in DEFENDED:
        assert any(fails(case.made) for case in CHECKED), check


# -- blocks are a speed device ---------------------------------------------------------------------


@every_whole
@quickly
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, N), max_size=5))
def test_any_cutting_into_blocks_is_the_same(case: Case, seed: int, cuts: list[int]) -> None:
    X = features(N + 10, seed=seed)
    y = make_targets(case, X, seed)
    s = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 2.0], size=N + 10)
    a, b = case(), case()
    together = a.test_then_train(X[:N], y[:N], s[:N])
    cut = [b.test_then_train(X[i], y[i], s[i]) for i in pieces(N, cuts)]
    assert_same_answers(np.concatenate([part for part in cut if len(part)]), together)
    assert a.rows_seen_ == b.rows_seen_ == np.count_nonzero(s[:N])
    # the same state is one that learns the same from here on
    assert_same_answers(b.predict(X), a.predict(X))
    assert_same_answers(
        b.test_then_train(X[N:], y[N:], s[N:]), a.test_then_train(X[N:], y[N:], s[N:])
    )


@every_whole
@pytest.mark.parametrize("seed", range(3))
def test_blocks_say_what_single_rows_say(case: Case, seed: int) -> None:
    X = features(N, seed=seed)
    y = make_targets(case, X, seed)
    s = np.random.default_rng(seed).choice([0.0, 0.5, 1.0], size=N, p=[0.2, 0.2, 0.6])
    a, b = case(), case()
    assert_same_answers(a.test_then_train(X, y, s), one_row_at_a_time(b, X, y, s))
    assert_same_answers(a.predict(X), b.predict(X))


@every_whole
def test_partial_fit_and_test_then_train_learn_the_same(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    a, b = case(), case()
    a.partial_fit(X, y)
    b.test_then_train(X, y)
    assert snapshot(a) == snapshot(b)


@every_whole
def test_learn_one_is_partial_fit_of_one_row(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    a, b = case(), case()
    for i in range(10):
        assert a.learn_one(X[i], y[i]) is a
        assert b.partial_fit(X[i : i + 1], y[i : i + 1]) is b
        assert snapshot(a) == snapshot(b)
    assert_same_answers([a.predict_one(x) for x in X], a.predict(X))


# -- what is asked changes nothing -----------------------------------------------------------------


@every_whole
def test_inputs_are_never_written_to(case: Case) -> None:
    X = features(N)
    given = (X, make_targets(case, X), np.linspace(0.0, 2.0, N))
    before = [array.copy() for array in given]
    for locked in (False, True):
        for array in given:
            array.flags.writeable = not locked  # locked, a write would raise
        X, y, s = given
        learner = case().fit(X, y, s).partial_fit(X, y, sample_weight=s)
        learner.test_then_train(X, y, s)
        learner.learn_one(X[0], y[0]).predict(X)
    for array, was in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, was)


@every_whole
def test_predictions_change_nothing(case: Case) -> None:
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
def test_asking_before_learning_changes_nothing(case: Case) -> None:
    learner = case()
    before = snapshot(learner)
    learner.predict_one(features(1)[0])
    with pytest.raises(NotFittedError):
        learner.predict(features(3))
    assert snapshot(learner) == before


@every_whole
def test_no_array_of_the_user_is_kept(case: Case) -> None:
    X = features(N)
    y, s = make_targets(case, X), np.linspace(0.5, 2.0, N)
    learner = case().fit(X, y, s).learn_one(X[0], y[0])
    before = snapshot(learner)
    X[:], y[:], s[:] = 99.0, 0, 0.0
    assert snapshot(learner) == before


@every_whole
def test_answers_are_the_users_own(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    for said in (learner.predict(X), learner.test_then_train(X[:0], make_targets(case, X)[:0])):
        said[...] = 0
    assert snapshot(learner) == before


@every_whole
def test_constructor_arguments_are_never_changed(case: Case) -> None:
    X = features(N)
    learner = case()
    before = snapshot(learner.get_params(deep=False))
    learner.fit(X, make_targets(case, X)).learn_one(X[0], make_targets(case, X)[0])
    assert snapshot(learner.get_params(deep=False)) == before


@every_whole
def test_what_is_learned_ends_with_an_underscore(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X)).learn_one(X[0], make_targets(case, X)[0])
    learned = set(vars(learner)) - set(learner.get_params(deep=False))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*_", name) for name in learned), learned


# -- bounded memory --------------------------------------------------------------------------------


@every_whole
def test_memory_does_not_grow_with_the_stream(case: Case) -> None:
    rows = 100
    X = features(10 * rows)
    y = make_targets(case, X[:rows])
    few = {"max_prototypes": 9} if hasattr(case.made, "max_prototypes") else {}
    learner = case(**few)  # a ceiling that the first rows reach
    most = []
    for k in range(10):
        peak = 0
        for part in pieces(rows, range(0, rows, 20)):
            learner.partial_fit(X[k * rows : (k + 1) * rows][part], y[part])
            peak = max(peak, learner.nbytes)
        most.append(peak)
    assert max(most[1:]) <= most[0]


# -- save and load ---------------------------------------------------------------------------------


@every_saved
def test_save_load_continue_is_continue(case: Case, tmp_path: Path) -> None:
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
def test_a_learner_that_has_seen_nothing_is_saved_too(case: Case, tmp_path: Path) -> None:
    from onepass.serialization import models

    models.save(case(), tmp_path / "m.onepass")
    assert snapshot(models.load(tmp_path / "m.onepass")) == snapshot(case())


@every_whole
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])  # noqa: S301
def test_copies_continue_alike_and_apart(case: Case, copied: Callable[[Any], Any]) -> None:
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
def test_a_clone_has_the_parameters_and_nothing_learned(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    fresh = clone(learner)
    assert snapshot(fresh) == snapshot(case())
    assert snapshot(fresh.fit(X, make_targets(case, X))) == snapshot(learner)


@every_whole
def test_fit_forgets(case: Case) -> None:
    X = features(2 * N, d=3)
    y = make_targets(case, X)
    learner = case().fit(features(N, d=5), make_targets(case, features(N, d=5)))
    assert snapshot(learner.fit(X, y)) == snapshot(case().fit(X, y))


# -- merging ---------------------------------------------------------------------------------------


def _merged(parts: list[Any], *, leftwards: bool) -> Any:
    """Three learners as one, associated from the left or from the right; they are not changed."""
    a, b, c = copy.deepcopy(parts)
    return a.merge(b).merge(c) if leftwards else a.merge(b.merge(c))


@every_whole
@pytest.mark.parametrize("leftwards", [True, False], ids=["left", "right"])
@quickly
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, N), min_size=2, max_size=2))
def test_merging_is_learning_both(
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
    if case.made.merging == "refused":
        with pytest.raises(MergeError):
            parts[0].merge(parts[1])
        assert snapshot(parts) == before
        return
    merged = _merged(parts, leftwards=leftwards)
    assert snapshot(parts) == before
    assert merged.rows_seen_ == np.count_nonzero(s[:N])
    if case.made.merging == "exact":
        whole = case().partial_fit(X[:N], y[:N], sample_weight=s[:N])
        assert_same_answers(merged.predict(X), whole.predict(X))
        # the same state is one that learns the same from here on
        assert_same_answers(
            merged.test_then_train(X[N:], y[N:], s[N:]), whole.test_then_train(X[N:], y[N:], s[N:])
        )
    else:
        assert all(np.isfinite(array).all() for array in _floats(merged))


@every_whole
def test_what_is_not_alike_is_not_merged(case: Case) -> None:
    X = features(N)
    learner, other = case().fit(X, make_targets(case, X)), TinyRegressor().fit(X, X[:, 0])
    before = snapshot(learner), snapshot(other)
    for one, two in ((learner, other), (other, learner), (learner, None)):
        with pytest.raises(MergeError, match=rf"^{type(one).__name__}\.merge: "):
            one.merge(two)
    assert (snapshot(learner), snapshot(other)) == before


@every_saved
def test_what_was_saved_is_merged_all_the_same(case: Case, tmp_path: Path) -> None:
    from onepass.serialization import models

    if case.made.merging == "refused":
        return
    X = features(2 * N)
    y = make_targets(case, X)
    parts = [case().fit(X[:N], y[:N]), case().fit(X[N:], y[N:])]
    for i, part in enumerate(parts):
        models.save(part, tmp_path / f"{i}.onepass")
    first, second = (models.load(tmp_path / f"{i}.onepass") for i in range(2))
    assert snapshot(first.merge(second)) == snapshot(parts[0].merge(parts[1]))


# -- before learning -------------------------------------------------------------------------------


@every_whole
def test_answers_before_learning(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    first = case().test_then_train(X, y)[0]
    said = case().predict_one(X[0])
    assert said == first
    assert said is None if is_classifier(case.made) else np.isfinite(said)


# -- what is refused leaves no trace ---------------------------------------------------------------


def _with(array: Any, value: Any) -> Any:
    spoilt = array.astype(object) if isinstance(value, str) else array.astype(type(value))
    spoilt[2, 1] = value
    return spoilt


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


def _refusals(case: Case) -> Iterator[tuple[str, Any, Any, Any]]:
    X = features(6)
    y = make_targets(case, X)
    yield from ((f"X: {name}", spoil(X), y, None) for name, spoil in BAD_X.items())
    yield from ((f"y: {name}", X, spoil(y), None) for name, spoil in BAD_Y.items())
    yield from ((f"weights: {name}", X, y, s) for name, s in BAD_WEIGHTS.items())


@every
@pytest.mark.parametrize("verb", ["fit", "partial_fit", "test_then_train"])
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_refused_blocks_change_nothing(case: Case, verb: str, begun: bool) -> None:  # noqa: FBT001
    X = features(N)
    learner = case().fit(X, make_targets(case, X)) if begun else case()
    before = snapshot(learner)
    alone = {"X: too wide", "X: too narrow", "y: another number of outputs"}
    for name, bad_X, bad_y, bad_s in _refusals(case):
        fresh = verb == "fit" or not begun
        if fresh and name in alone and not (is_classifier(learner) and name.startswith("y")):
            continue  # a learner that starts anew takes any width
        with pytest.raises(OnepassError) as refusal:
            getattr(learner, verb)(bad_X, bad_y, sample_weight=bad_s)
        where = f"{type(learner).__name__}.{verb}: "
        assert str(refusal.value).startswith(where), name
        assert snapshot(learner) == before, name


@every
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_refused_rows_change_nothing(case: Case, begun: bool) -> None:  # noqa: FBT001
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y) if begun else case()
    before = snapshot(learner)
    x = X[0]
    bad = [np.where(np.arange(4) == 1, np.nan, x), X[:2], x + 1j, list("abcd"), {"a": "text"}]
    for row in [*bad, x[:2]] if begun else bad:
        with pytest.raises(OnepassError):
            learner.learn_one(row, y[0])
        with pytest.raises(OnepassError):
            learner.predict_one(row)
    for answer in (np.nan, np.inf, None, 1j):
        with pytest.raises(OnepassError):
            learner.learn_one(x, answer)
    for weight in (-1.0, np.nan, "much"):
        with pytest.raises(OnepassError):
            learner.learn_one(x, y[0], sample_weight=weight)
    assert snapshot(learner) == before


@every
def test_refused_questions_change_nothing(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    for name, spoil in BAD_X.items():
        if name != "too few rows":
            with pytest.raises(OnepassError):
                learner.predict(spoil(X))
    assert snapshot(learner) == before


@every
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_an_interrupt_while_learning_changes_nothing(
    case: Case,
    begun: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y) if begun else case()
    before = snapshot(learner)
    real = type(learner)._learn

    def learn_then_stop(self: Any, *args: Any) -> None:
        real(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(learner), "_learn", learn_then_stop)
    new = np.full(N, 7) if is_classifier(learner) else y
    for stopped in (
        lambda: learner.partial_fit(X, new),
        lambda: learner.fit(X, y),
        lambda: learner.learn_one(X[0], new[0]),
    ):
        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert snapshot(learner) == before


# -- the edges -------------------------------------------------------------------------------------


@every_whole
def test_an_empty_block_is_learned_as_nothing(case: Case) -> None:
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
    assert_same_answers(learner.test_then_train(X, y, 0.0), learner.predict(X))
    assert snapshot(learner) == before
    with pytest.raises(OnepassError):
        learner.fit(X, y, sample_weight=np.zeros(N))
    assert snapshot(learner) == before
    on = np.arange(N) % 3 > 0
    a = case().partial_fit(X, y, sample_weight=on.astype(float))
    assert_same_answers(a.predict(X), case().partial_fit(X[on], y[on]).predict(X))


@every_whole
def test_a_weight_of_one_is_no_weight(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    a = case().partial_fit(X, y, sample_weight=np.ones(N))
    assert_same_answers(a.predict(X), case().partial_fit(X, y).predict(X))


@every
def test_dicts_and_frames_are_arrays_with_names(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    names = ["a", "b", "c", "d"]
    plain = case().partial_fit(X, y)
    columns = dict(zip(names, X.T, strict=True))
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        named = case().partial_fit(frame, y)
        assert list(named.feature_names_in_) == names
        assert_same_answers(named.predict(frame), plain.predict(X))
        turned = frame.select(names[::-1]) if hasattr(frame, "select") else frame[names[::-1]]
        assert_same_answers(named.predict(turned), plain.predict(X))
        with pytest.raises(OnepassError):
            named.predict(
                turned.rename({"a": "z"}) if isinstance(turned, pl.DataFrame) else X[:, 1:]
            )
    by_row = case()
    for x, answer in zip(X.tolist(), y, strict=True):
        by_row.learn_one(dict(zip(names, x, strict=True)), answer)
    turned_row = dict(zip(names[::-1], X[0, ::-1], strict=True))
    assert_same_answers(by_row.predict_one(turned_row), plain.predict_one(X[0]))
    with pytest.raises(OnepassError):
        by_row.learn_one({**turned_row, "z": 1.0}, y[0])


@every_whole
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
def test_other_numbers_are_taken(case: Case, dtype: Any) -> None:
    X = np.round(features(N) * 3)
    X = (X > 0).astype(dtype) if dtype is bool else np.abs(X).astype(dtype)
    y = make_targets(case, X.astype(float))
    a, b = case().partial_fit(X, y), case().partial_fit(X.astype(np.float64), y)
    assert a.predict(X).dtype == b.predict(X).dtype
    assert_same_answers(a.predict(X), b.predict(X.astype(np.float64)), 1e-3)
    assert_same_answers(
        case().partial_fit(X.tolist(), y.tolist()).predict(X.tolist()),
        b.predict(X.astype(np.float64)),
    )


@every_whole
def test_the_layout_of_arrays_does_not_matter(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    wide, long = np.repeat(X, 2, axis=1), np.repeat(y, 2)
    a = case().partial_fit(X, y)
    for same in (np.asfortranarray(X), wide[:, ::2], X[::-1][::-1], X.astype(">f8")):
        assert_same_answers(case().partial_fit(same, long[::2]).predict(same), a.predict(X))


@every_whole
def test_one_row_is_enough(case: Case) -> None:
    X = features(1)
    learner = case().fit(X, make_targets(case, X))
    assert learner.rows_seen_ == 1
    assert learner.n_features_in_ == 4
    assert learner.predict(X).shape == (1,)


@every_whole
@pytest.mark.parametrize(
    "spoil",
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
def test_poor_features_never_make_nan(case: Case, spoil: Callable[[Any], Any]) -> None:
    X = spoil(features(N))
    y = make_targets(case, features(N))
    learner = case()
    try:
        said = learner.test_then_train(X, y)
    except NumericalError:
        # steps of a size chosen beforehand diverge on features too large for it: that is said
        assert learner.step in {"constant", "decaying"}
        return
    if is_classifier(learner):
        assert set(learner.predict(X)) <= set(learner.classes_)
        assert np.isfinite(learner.decision_function(X)).all()
    else:
        assert np.isfinite(said).all()
        assert np.isfinite(learner.predict(X)).all()


@every_whole
@pytest.mark.parametrize("size", [1e100, 1e160, 1e200, 1e308])
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_huge_values_are_learned_finite_or_refused(
    case: Case,
    size: float,
    begun: bool,  # noqa: FBT001
) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y) if begun else case()
    before = snapshot(learner)
    huge = np.sign(X) * size
    big_y = y if is_classifier(learner) else np.sign(y) * size
    for many in (huge, np.where(np.arange(4) == 0, huge, X)):
        try:
            said = learner.test_then_train(many, big_y)
        except NumericalError:
            assert snapshot(learner) == before
        else:
            assert is_classifier(learner) or np.isfinite(said).all()
            assert all(np.isfinite(array).all() for array in _floats(learner))
            learner = case().fit(X, y) if begun else case()


@every
def test_huge_rows_are_answered_and_learned_or_refused(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    learner = case().fit(X, y)
    before = snapshot(learner)
    for x in (np.full(4, 1e200), np.array([0.0, 1e160, 0.0, -1.0])):
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
    """All floating arrays that were learned, through nested parts."""
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind == "f":
            yield thing
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from _floats(part)
    elif isinstance(thing, dict):
        yield from _floats(list(thing.values()))
    elif hasattr(thing, "__dict__"):
        yield from _floats(vars(thing))
    elif hasattr(thing, "__dataclass_fields__"):
        yield from _floats([getattr(thing, name) for name in thing.__dataclass_fields__])


@every
def test_growing_is_as_if_the_features_had_been_zero(case: Case) -> None:
    if getattr(case(), "forgetting", 1.0) in {0.9, 0.95, forgetting.Exponential(0.95)}:
        pytest.skip("where all fades, the prior of late features begins anew")
    X = features(2 * N)
    y = make_targets(case, X)
    early = X * [1.0, 1.0, 0.0, 0.0]
    grown = case().partial_fit(early[:N, :2], y[:N]).grow(4)
    whole = case().partial_fit(early[:N], y[:N])
    assert grown.n_features_in_ == 4
    assert_same_answers(grown.predict(early[:N]), whole.predict(early[:N]))
    assert_same_answers(grown.test_then_train(X[N:], y[N:]), whole.test_then_train(X[N:], y[N:]))
    before = snapshot(grown)
    with pytest.raises(OnepassError):
        grown.grow(3)
    assert snapshot(grown.grow(4)) == before


# -- regressors ------------------------------------------------------------------------------------


@every_regressor
def test_several_outputs_are_several_regressors(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    Y = np.column_stack([y, X[:, 0] - y, np.ones(N), np.zeros(N)])
    learner = case()
    said = learner.test_then_train(X, Y)
    assert said.shape == (N, 4)
    assert learner.n_outputs_ == 4
    for k in range(4):
        alone = case()
        assert_same_answers(said[:, k], alone.test_then_train(X, Y[:, k]))
        assert_same_answers(learner.predict(X)[:, k], alone.predict(X))
    rows = case()
    for i in range(N):
        assert_same_answers(np.broadcast_to(rows.predict_one(X[i]), 4), said[i])
        rows.learn_one(X[i], Y[i])


@every_regressor
def test_learning_begins_at_the_initial_weights(case: Case) -> None:
    if "initial_coef" not in case.made.get_params(deep=False):
        return
    X, start = features(N), np.array([1.0, -2.0, 0.0, 0.5])
    learner = case(initial_coef=start)
    assert_same_answers(learner.predict_one(X[0]), X[0] @ start)
    if not getattr(learner, "l2", 0.0):  # nothing to correct: the weights stay where they are
        assert_same_answers(learner.test_then_train(X, X @ start), X @ start)
    assert_same_answers(learner.fit(X, make_targets(case, X)).coef_.shape, (4,))
    assert start.tolist() == [1.0, -2.0, 0.0, 0.5]
    assert learner.initial_coef is start


@every_regressor
def test_one_column_of_answers_stays_a_column(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    column = case()
    assert_same_answers(column.test_then_train(X, y[:, None])[:, 0], case().test_then_train(X, y))
    assert column.predict(X).shape == (N, 1)


# -- classifiers -----------------------------------------------------------------------------------


@every_classifier
def test_labels_are_only_names(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    said = case().test_then_train(X, y)
    for names in (np.array(["high", "low", "mid"]), np.array([-7, 0, 12]), np.array([0.0, 1, 5])):
        other = case()
        assert [names[k] if k is not None else None for k in said] == other.test_then_train(
            X, names[y]
        ).tolist()
        assert other.classes_.tolist() == names.tolist()
    objects = case().partial_fit(X, np.array(["high", "low", "mid"])[y].astype(object))
    assert objects.classes_.tolist() == ["high", "low", "mid"]


@every_classifier
@quickly
@given(seed=st.integers(0, 2**31), order=st.permutations(range(5)))
def test_classes_come_at_any_time(case: Case, seed: int, order: list[int]) -> None:
    X = features(N, seed=seed)
    y = np.asarray(order)[
        np.minimum(np.random.default_rng(seed).integers(0, N, N), np.arange(N)) // 8
    ]
    a, b = case(), case()
    said = a.test_then_train(X, y)
    assert_same_answers(said, one_row_at_a_time(b, X, y))
    assert a.classes_.tolist() == sorted(set(y.tolist()))
    assert_same_answers(a.predict(X), b.predict(X))
    for i in range(1, N):  # an answer is always a class that has been seen
        assert said[i] in y[:i]


@every_classifier
def test_one_class_alone_is_always_the_answer(case: Case) -> None:
    X = features(N)
    learner = case()
    said = learner.test_then_train(X, np.full(N, 3))
    assert said.tolist() == [None] + [3] * (N - 1)
    assert learner.classes_.tolist() == [3]
    assert learner.predict(X).tolist() == [3] * N
    assert learner.decision_function(X).shape == (N, 1)


@every_classifier
def test_classes_known_beforehand(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    known = case(classes=[2, 1, 0])
    assert known.predict_one(X[0]) == 2
    named = case().partial_fit(X[:0], y[:0], classes=[0, 1, 2])
    assert named.classes_.tolist() == [0, 1, 2]
    a, b = known.test_then_train(X, y), named.test_then_train(X, y)
    assert a.tolist() == b.tolist()
    assert a.dtype == y.dtype
    assert known.classes_.tolist() == [0, 1, 2]
    known.learn_one(X[0], 9)
    assert known.classes_.tolist() == [0, 1, 2, 9]


@every_classifier
def test_decision_function_says_the_same_as_predict(case: Case) -> None:
    X = features(N)
    y = make_targets(case, X)
    many = case().fit(X, y)
    scores = many.decision_function(X)
    assert scores.shape == (N, 3)
    best = np.searchsorted(many.classes_, many.predict(X))
    assert_same_answers(scores[np.arange(N), best], scores.max(axis=1))
    two = case().fit(X, y == 1)
    assert two.decision_function(X).shape == (N,)
    assert_same_answers(two.decision_function(X) >= 0, two.predict(X))


@every_classifier
def test_labels_of_two_kinds_are_refused(case: Case) -> None:
    X = features(N)
    learner = case().fit(X, make_targets(case, X))
    before = snapshot(learner)
    for odd in (np.array(["low"] * N), np.linspace(0.0, 1.0, N)):
        with pytest.raises(OnepassError):
            learner.partial_fit(X, odd)
        assert snapshot(learner) == before
