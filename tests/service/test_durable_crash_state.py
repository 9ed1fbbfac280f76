"""The state of a durable learner after a crash equals the uninterrupted one bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import copy_after_crash, execute_sql, state_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st

import onepass as op
from cases import PIPELINES, PUBLIC, Case, draw, features, make_targets, snapshot
from onepass import native
from onepass.errors import OnepassError
from onepass.service import Durable
from raising import raises

pytestmark = [
    pytest.mark.filterwarnings("ignore::onepass.errors.MemoryFullWarning"),
    pytest.mark.usefixtures("no_sync"),
]

WIDE = [
    Case(op.RLSRegressor(), "70 wide"),
    Case(op.RLSRegressor(forgetting=0.97), "50 wide"),
    Case(op.RLSClassifier(), "70 wide"),
    Case(op.SGDClassifier("logistic"), "130 wide"),
    Case(op.Pipeline(op.features.Scale(), op.RLSRegressor()), "70 wide"),
]
STEPS = ["one row", "rows", "invalid", "weighted", "predict", "snapshot", "model", "rollback"]
SIZES = (1, 1, 1, 3, 1, 1, 40, 1, 1, 1, 1)


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not sync files: the processes of these tests are not killed."""
    from onepass.service import schema

    monkeypatch.setattr(schema, "_AFTER", ())
    monkeypatch.setattr(schema, "_BEFORE", (*schema._BEFORE, "PRAGMA synchronous = OFF"))


def width(case: Case) -> int:
    return int(case.note.split()[0]) if case.note.endswith(" wide") else 4


def stream(case: Case, n: int) -> list[tuple[Any, Any, Any]]:
    """Blocks of rows, targets and weights; one is invalid."""
    X = features(n, width(case))
    y, i, found = make_targets(case, X), 0, []
    while i < n:
        for k, size in enumerate(SIZES):
            rows = slice(i, i + size)
            weights = np.linspace(0.0, 2.0, len(X[rows])) if k == 4 else None
            found.append((X[rows], y[rows], weights))
            i += size
    found.insert(9, (np.full((1, X.shape[1]), np.inf), y[:1], None))
    return found


def read(durable: Durable, X: Any, k: int) -> None:
    """Call the k-th of the methods that do not change the learner."""
    methods = (
        lambda: durable.predict(X),
        lambda: durable.predict_one(X[0]),
        durable.model,
        lambda: repr(durable),
        lambda: durable.snapshot() if k % 3 == 0 else durable.versions,
        lambda: snapshot(durable.frozen_copy),
    )
    methods[k % len(methods)]()


def learn(durable: Durable, blocks: list[Any]) -> list[Any]:
    """Learn blocks; the predictions of each before it was learned, None if it was refused."""
    predictions: list[Any] = []
    for X, y, weights in blocks:
        try:
            predictions.append(snapshot(durable.learn(X, y, weights).predictions))
        except OnepassError:
            predictions.append(None)
    return predictions


def fades_in_window(case: Case) -> bool:
    """Whether rows fade inside a window, which continues from a file only to rounding."""
    rule = getattr(case(), "forgetting", None)
    return isinstance(rule, op.forgetting.Window) and bool(rule.factor or rule.half_life)


def drawn(test: str) -> list[Case]:
    cases = (case for cases in (PUBLIC, PIPELINES, WIDE) for case in draw(cases, test))
    return [case for case in cases if not fades_in_window(case)]


@pytest.mark.parametrize("case", drawn("state after a crash"), ids=lambda case: case.name)
def test_state_after_a_crash_equals_uninterrupted_state(case: Case, tmp_path: Path) -> None:
    blocks = stream(case, 130)
    with op.durable(tmp_path / "m.db", case(), snapshots=100) as durable:
        for k, (X, y, weights) in enumerate(blocks[:-12]):
            learn(durable, [(X, y, weights)])
            read(durable, blocks[3][0], k)
        for block in blocks[-12:-8]:  # since the last snapshot
            learn(durable, [block])
        copies = [copy_after_crash(durable, tmp_path / name) for name in ("latest", "beginning")]
        execute_sql(copies[1], "DELETE FROM snapshots WHERE sequence > 0")
        predictions = learn(durable, blocks[-8:])
        for path in copies:
            with op.durable(path, case()) as again:
                assert learn(again, blocks[-8:]) == predictions
                assert state_bits(again) == state_bits(durable)
                assert again.version == durable.version
                assert again.rows_seen == durable.rows_seen


@pytest.mark.parametrize(
    "rule", [op.forgetting.Bounded(half_life=20.0), op.forgetting.Exponential(half_life="90s")]
)
def test_state_after_a_crash_includes_time(rule: Any, tmp_path: Path) -> None:
    X = features(60)
    y = X.sum(axis=1)
    time: Any = np.cumsum(np.ones(60)) * 3.0
    if rule.half_life == "90s":
        time = np.datetime64("2026-01-01T00:00") + time.astype("timedelta64[s]")
    with op.durable(tmp_path / "m.db", op.RLSRegressor(forgetting=rule)) as durable:
        for i in range(50):
            durable.learn_one(X[i], y[i], time=time[i])
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            for one in (durable, again):
                one.learn(X[50:], y[50:], time=time[50:])
                with raises(OnepassError, argument="time", row=0, remedy="Sort the rows by time"):
                    one.learn_one(X[0], y[0], time=time[0])
            assert state_bits(again) == state_bits(durable)


@settings(max_examples=25)
@example(["one row", "one row", "invalid"], op.RLSRegressor(), 3)
@example(["one row", "one row", "invalid"], op.SGDRegressor(), 66)
@example(
    ["one row", "snapshot", "one row", "rollback", "one row", "invalid"],
    op.RLSRegressor(forgetting=0.9),
    3,
)
@given(
    st.lists(st.sampled_from(STEPS)),
    st.sampled_from([op.RLSRegressor(), op.SGDRegressor(), op.RLSRegressor(forgetting=0.9)]),
    st.sampled_from([3, 66]),
)
def test_state_after_a_crash_and_random_calls_equals_the_original(
    steps: list[str], learner: Any, d: int
) -> None:
    import tempfile

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with op.durable(folder / "m.db", learner) as durable:
            durable.learn(rng.normal(size=(2 * d, d)), rng.normal(size=2 * d))
            for step in [*steps, "one row"]:
                n = 5 if step == "rows" else 1
                X, y = rng.normal(size=(n, d)), rng.normal(size=n)
                if step == "invalid":
                    X[0, 0] = np.nan
                    with pytest.raises(OnepassError):
                        durable.learn(X, y)
                elif step in {"one row", "rows"}:
                    durable.learn(X, y)
                elif step == "weighted":
                    durable.learn(X, y, 0.5)
                elif step == "rollback":
                    durable.rollback(to=max(durable.version - 2, 1))
                elif step == "predict":
                    durable.predict(X)
                else:
                    getattr(durable, step)()
            path = copy_after_crash(durable, folder / "copy")
            with op.durable(path) as again:
                assert state_bits(again) == state_bits(durable)


SLOW = [
    case
    for case in drawn("state after a crash")
    if "SGDClassifier" in case.name or ("wide" in case.name and "Pipeline" not in case.name)
]


@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
def test_state_after_a_crash_without_compiled_loops(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "loops", None)
    test_state_after_a_crash_equals_uninterrupted_state(case, tmp_path)
