"""Idempotency keys, groups of requests, callbacks and watchers of a durable learner."""

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from durable_files import copy_after_crash, paused_writer, state_bits
from waiting import until

import onepass as op
from cases import snapshot
from onepass.errors import (
    IdempotencyConflictError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
    StoreError,
    TypeMismatchError,
)
from onepass.service import Durable
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X @ np.arange(4.0)


@pytest.fixture
def durable(tmp_path: Path) -> Any:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as found:
        yield found


def test_repeated_key_returns_the_same_result(durable: Durable) -> None:
    first = durable.learn(X[:5], Y[:5], key="a")
    durable.learn(X[5:9], Y[5:9], key="b")
    again = durable.learn(X[:5], Y[:5], key="a")
    assert (first.repeated, again.repeated) == (False, True)
    assert (again.version, snapshot(again.predictions)) == (
        first.version,
        snapshot(first.predictions),
    )
    assert (durable.version, durable.rows_seen) == (2, 9)


def test_equal_rows_of_another_type_are_the_same_request(durable: Durable) -> None:
    durable.learn(X[:2].tolist(), Y[:2].tolist(), key="a")
    assert durable.learn(X[:2], Y[:2], key="a").repeated
    assert durable.learn(np.asfortranarray(X[:2]), Y[:2], key="a").repeated


@pytest.mark.parametrize(
    "other",
    [
        (X[1:6], Y[:5]),
        (X[:5], Y[1:6]),
        (X[:4], Y[:4]),
        (X[:5], Y[:5], 2.0),
        (X[:5].astype(np.float32), Y[:5]),
        (np.nextafter(X[:5], 9.0), Y[:5]),
    ],
)
def test_repeated_key_with_other_rows_is_refused(durable: Durable, other: Any) -> None:
    durable.learn(X[:5], Y[:5], key="a")
    before = state_bits(durable)
    with pytest.raises(IdempotencyConflictError, match=r"key 'a' .* \(version 1\), got other rows"):
        durable.learn(*other, key="a")
    assert state_bits(durable) == before


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((np.full((1, 4), np.nan), [1.0]), NotFiniteError),
        ((X[:1], [np.inf]), NotFiniteError),
        ((X[:1, :3], [1.0]), ShapeError),
        ((X[:2], [1.0]), ShapeError),
        ((X[:1], ["sea"]), OnepassError),
        ((X[:1], [[1.0, 2.0]]), ShapeError),
        ((X[:1], [1.0], [-1.0]), OnepassError),
        (([["a", "b", "c", "d"]], [1.0]), OnepassError),
        ((X[0], [1.0]), ShapeError),
        ((X[:1], None), TypeMismatchError),
        ((X[:1], [object()]), TypeMismatchError),
        ((X[:1], [1j]), TypeMismatchError),
        (([[{}, 1, 2, 3]], [1.0]), OnepassError),
        (([[1.0, 2.0], [1.0]], [1.0, 2.0]), OnepassError),
        ((np.ma.masked_less(X[:5], 0.0), Y[:5]), OnepassError),
        ((X[:1], [None]), OnepassError),
        ((None, [1.0]), OnepassError),
        ((7, [1.0]), OnepassError),
        ((np.zeros((2, 0)), [1.0, 2.0]), OnepassError),
    ],
)
def test_refused_rows_leave_state_and_keys_unchanged(
    durable: Durable, bad: Any, error: Any
) -> None:
    durable.learn(X[:20], Y[:20])
    with pytest.raises(error):
        durable.learn(*bad, key="a")
    assert (durable.version, durable.rows_seen) == (1, 20)
    assert rows_like(durable, "keys") == rows_like(durable, "pending") == 0
    assert not durable.learn(X[20:25], Y[20:25], key="a").repeated  # the key is free


def rows_like(durable: Durable, table: str) -> int:
    found: int = durable._journal._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
    return found


@pytest.mark.parametrize("word", ["", "x" * 513, 7, b"a", "a\ud800", ["a"]])
@pytest.mark.parametrize("name", ["key", "source", "position"])
def test_keys_and_positions_are_short_text(durable: Durable, name: str, word: Any) -> None:
    named = {"source": "a", "position": "b"} if name != "key" else {}
    with raises(ParameterError, argument=name):
        durable.learn(X[:1], Y[:1], **{**named, name: word})
    assert durable.version == 0


@pytest.mark.parametrize("key", ["x" * 512, "'; DROP TABLE log; --", "\0", "🦊", "a\nb"])
def test_any_text_can_be_a_key(durable: Durable, key: str) -> None:
    assert not durable.learn(X[:1], Y[:1], key=key).repeated
    assert durable.learn(X[:1], Y[:1], key=key).repeated


def test_source_without_position_is_refused(durable: Durable) -> None:
    for given, missing in (({"source": "a"}, "position"), ({"position": "b"}, "source")):
        with pytest.raises(ParameterError) as raised:
            durable.learn(X[:1], Y[:1], **given)
        assert raised.value.argument == missing


def together(durable: Durable, *given: dict[str, Any]) -> list[Any]:
    """Requests that are committed as one group."""
    with paused_writer(durable):
        requests = [durable.request(**each) for each in given]
    durable.commit_pending()
    return requests


def test_requests_with_one_key_in_one_group(durable: Durable) -> None:
    twin = {"X": X[:3], "y": Y[:3], "key": "a"}
    first, second, other, reused = together(
        durable, twin, twin, {"X": X[3:5], "y": Y[3:5]}, {**twin, "y": Y[1:4]}
    )
    assert (first.learn_result.repeated, second.learn_result.repeated) == (False, True)
    assert snapshot(first.learn_result.predictions) == snapshot(second.learn_result.predictions)
    assert second.learn_result.version == 1
    assert isinstance(reused.error, IdempotencyConflictError)
    assert other.learn_result.version == 1
    assert durable.rows_seen == 5


def test_key_of_a_refused_request_can_be_used_again(durable: Durable) -> None:
    durable.learn(X[:9], Y[:9])
    bad, good, again = together(
        durable,
        {"X": X[:1] * np.nan, "y": Y[:1], "key": "a"},
        {"X": X[:1], "y": Y[:1], "key": "a"},
        {"X": X[:1], "y": Y[:1], "key": "a"},
    )
    assert isinstance(bad.error, NotFiniteError)
    assert (good.learn_result.repeated, again.learn_result.repeated) == (False, True)


def test_invalid_request_of_a_group_is_refused_alone(durable: Durable) -> None:
    durable.learn(X[:20], Y[:20])
    given = [{"X": X[i : i + 1], "y": Y[i : i + 1], "key": str(i)} for i in range(20, 50)]
    given[7]["X"] = X[:1] * np.nan
    given[19]["y"] = np.array([np.inf])
    requests = together(durable, *given)
    assert [i for i, each in enumerate(requests) if each.error is not None] == [7, 19]
    assert durable.rows_seen == 48
    calm = op.RLSRegressor()
    for i in range(50):
        if i not in {27, 39}:
            calm.learn_one(X[i], Y[i])
    np.testing.assert_allclose(durable.model().coef_, calm.coef_, rtol=1e-9, atol=1e-12)


def test_requests_of_equal_layout_are_one_block(durable: Durable) -> None:
    alike = [{"X": X[i : i + 1], "y": Y[i : i + 1]} for i in range(10)]
    together(durable, *alike)
    assert durable.version == 1
    together(durable, *alike, {"X": X[:2], "y": Y[:2], "sample_weight": 2.0}, *alike)
    assert durable.version == 4
    sourced = [{**each, "source": "s", "position": str(i)} for i, each in enumerate(alike)]
    together(durable, *sourced)
    assert durable.version == 14
    assert durable.positions == {"s": "9"}


@pytest.mark.parametrize("many", [1, 2, 3, 4, 5, 15, 16, 17, 21, 37])
def test_all_keys_of_a_group_are_stored(tmp_path: Path, many: int) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        with paused_writer(durable):
            first = [durable.request(X[i : i + 1], Y[i : i + 1], key=f"k{i}") for i in range(many)]
        durable.commit_pending()
        assert {each.result().version for each in first} == {1}
    with op.durable(tmp_path / "m.db") as durable:
        for i, each in enumerate(first):
            again = durable.learn(X[i : i + 1], Y[i : i + 1], key=f"k{i}")
            assert again.repeated
            np.testing.assert_array_equal(again.predictions, each.result().predictions)
        assert durable.rows_seen == many


def test_requests_of_a_group_are_refused_as_single_requests(tmp_path: Path) -> None:
    """A column that another request has is not a missing value of this one."""
    model = op.Pipeline(op.features.Encode(missing="error"), op.RLSRegressor(ridge=1.0))
    whole, part = {"km": 1.0, "by": "sea"}, {"km": 2.0}
    alone: list[Any] = []
    for at_once in (False, True):
        with op.durable(tmp_path / f"{at_once}.db", model) as durable:
            durable.learn([whole], [1.0])
            given = [{"X": [each], "y": [1.0]} for each in (whole, part, whole)]
            if at_once:
                requests = together(durable, *given)
            else:
                requests = [each for one in given for each in together(durable, one)]
            alone.append([type(each.error).__name__ for each in requests])
    assert alone[0] == alone[1] == ["NoneType", "NotFiniteError", "NoneType"]


def test_requests_with_one_key_from_many_threads(durable: Durable) -> None:
    results: list[Any] = []
    gate = threading.Barrier(16)

    def send(i: int) -> None:
        gate.wait()
        results.append(durable.learn(X[i % 4 : i % 4 + 1], Y[i % 4 : i % 4 + 1], key=str(i % 4)))

    threads = [threading.Thread(target=send, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not each.repeated for each in results) == 4
    assert durable.rows_seen == 4


def test_expired_keys_are_deleted(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), key_seconds=1000.0) as durable:
        durable.learn(X[:5], Y[:5], key="old")
        durable._writer._began += 900.0
        durable.learn(X[5:9], Y[5:9], key="new")
        durable._writer._began += 200.0
        durable.commit_pending()
        assert not durable.learn(X[:5], Y[:5], key="old").repeated
        assert durable.learn(X[5:9], Y[5:9], key="new").repeated


def test_many_expired_keys_are_deleted_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onepass.service import journal

    monkeypatch.setattr(journal, "_MAX_DELETED", 10)
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), key_seconds=1000.0) as durable:
        together(
            durable,
            *({"X": X[i : i + 1], "y": Y[i : i + 1], "key": str(i)} for i in range(25)),
        )
        durable.predict_pending(X[:15], seconds=10.0)
        durable.commit_pending()
        durable._writer._tick_at = float("inf")  # no maintenance between the calls
        durable._writer._began += 2000.0
        left = []
        for _ in range(4):
            durable.commit_pending()
            left.append((rows_like(durable, "keys"), rows_like(durable, "pending")))
        assert left == [(15, 5), (5, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    "labels",
    [["a", "bb", "a"], [1, 0, 1], [True, False, True], np.array(["é", "b", "é"], dtype=object)],
)
def test_results_of_keys_are_stored_exactly(labels: Any, tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.SGDClassifier()) as durable:
        for k in range(3):
            first = durable.learn(X[k : k + 3], labels, key=str(k))
            again = durable.learn(X[k : k + 3], labels, key=str(k))
            assert again.repeated
            assert snapshot(again.predictions) == snapshot(first.predictions)


def test_results_of_several_outputs_are_stored(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        first = durable.learn(X[:5], X[:5, :2], key="a")
        again = durable.learn(X[:5], X[:5, :2], key="a")
        assert first.predictions.shape == again.predictions.shape == (5, 2)


FRAME = pd.DataFrame({"km": [1.0, None, 3.0], "by": ["sea", "air", None]})
FRAME["at"] = pd.to_datetime(["2026-01-01", "2026-01-02", None])


@pytest.mark.parametrize(
    "rows",
    [
        FRAME,
        FRAME.to_dict("records"),
        [[1.0, "sea"], [2.0, None], [3.0, "air"]],
        np.array([[1.0, "a"], [2.0, "b"], [3.0, None]], dtype=object),
        np.array([["1", "a"], ["2", "b"], ["3", "c"]]),
        [{"a\ud800": 1.0}, {}, {"b": "\udfff"}],
    ],
    ids=["frame", "dicts", "lists", "objects", "text", "halves"],
)
def test_rows_of_each_type_are_learned_and_stored(rows: Any, tmp_path: Path) -> None:
    model = op.Pipeline(op.features.Encode(), op.features.Impute(), op.RLSRegressor(ridge=1.0))
    try:
        model.partial_fit(rows, [1.0, 2.0, 3.0])
    except OnepassError as error:
        with (
            op.durable(tmp_path / "m.db", model.__sklearn_clone__()) as durable,
            pytest.raises(type(error)),
        ):
            durable.learn(rows, [1.0, 2.0, 3.0])
        return
    with op.durable(tmp_path / "m.db", model.__sklearn_clone__()) as durable:
        durable.learn(rows, [1.0, 2.0, 3.0], key="a")
        assert durable.learn(rows, [1.0, 2.0, 3.0], key="a").repeated
        assert durable.predict(rows).tobytes() == model.predict(rows).tobytes()
    with op.durable(tmp_path / "m.db") as durable:
        assert durable.predict(rows).tobytes() == model.predict(rows).tobytes()


def test_dates_in_rows_without_names_are_refused(durable: Durable) -> None:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with raises(TypeMismatchError, argument="X", got="datetime", remedy="as dicts"):
        durable.learn([[1.0, moment]], [1.0])


def test_requests_copy_the_arrays_of_the_caller(durable: Durable) -> None:
    rows, answers = X[:20].copy(), Y[:20].copy()
    request = durable.request(rows, answers)
    rows[:], answers[:] = np.nan, np.nan
    durable.commit_pending()
    assert request.result().version == 1
    np.testing.assert_allclose(durable.predict(X[:3]), Y[:3], atol=1e-4)


def test_failing_callback_does_not_affect_other_requests(durable: Durable) -> None:
    calls: list[Any] = []

    def fail(request: Any) -> None:
        calls.append(request)
        raise RuntimeError("the loop is closed")

    one = durable.request(X[:1], Y[:1], done=fail)
    two = durable.request(X[1:2], Y[1:2], done=calls.append)
    three = durable.request(X[2:3] * np.nan, Y[2:3], done=calls.append)
    durable.commit_pending()
    assert calls == [one, two, three]
    assert [each.error is None for each in calls] == [True, True, False]
    assert "loop is closed" in str(durable.error)


def test_callback_may_make_requests_but_not_wait_for_them(durable: Durable) -> None:
    refused: list[str] = []

    def more(request: Any) -> None:
        assert request.completed
        if len(refused) < 5:
            durable.request(X[:1], Y[:1], done=more)
            with pytest.raises(StoreError) as error:
                durable.learn(X[1:2], Y[1:2])
            refused.append(str(error.value))

    durable.request(X[:1], Y[:1], done=more)
    while durable.version < 6:
        durable.commit_pending()
    assert len(refused) == 5
    assert all("would wait for themselves" in each for each in refused)


def test_watcher_receives_each_block_once(tmp_path: Path) -> None:
    seen: list[tuple[int, Any]] = []

    def begin(learner: Any) -> Any:
        seen.append((-1, learner))
        return lambda block, predictions: seen.append((len(block), predictions))

    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor(), watch=begin) as durable:
        durable.learn(X[:5], Y[:5])
        with pytest.raises(NotFiniteError):
            durable.learn(X[:2] * np.nan, Y[:2])
        durable.learn(X[5:6], Y[5:6], key="a")
        durable.learn(X[5:6], Y[5:6], key="a")
        durable._journal._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreError):
            durable.learn(np.tile(X, (9, 1)), np.tile(Y, 9))
        durable._journal._db.execute("PRAGMA max_page_count = 100000")
        durable.learn(X[6:9], Y[6:9])
    assert [n for n, _ in seen] == [-1, 5, 1, 3]
    seen.clear()
    with op.durable(path, watch=begin) as durable:  # closed with a snapshot: nothing comes again
        durable._writer.watch = lambda *_: 1 / 0
        durable.learn(X[:1], Y[:1])
        until(lambda: "division" in str(durable.error))  # watchers follow the acknowledgement
    assert [n for n, _ in seen] == [-1]


def test_watchers_are_called_after_rows_are_acknowledged(tmp_path: Path) -> None:
    order: list[str] = []

    def begin(_: Any) -> Any:
        return lambda block, _: order.append(f"{len(block)} rows")

    with op.durable(tmp_path / "m.db", op.RLSRegressor(), watch=begin) as durable:
        for n in (2, 3):
            durable.request(X[:n], Y[:n], done=lambda _: order.append("acknowledged"))
            durable.commit_pending()
        assert order == ["acknowledged", "2 rows", "acknowledged", "3 rows"]
        copied = copy_after_crash(durable, tmp_path / "copy")
    order.clear()
    with op.durable(copied, watch=begin):
        assert order == ["2 rows", "3 rows"]


def test_empty_block_changes_nothing(durable: Durable) -> None:
    durable.learn(X[:5], Y[:5])
    result = durable.learn(X[:0], Y[:0], key="a")
    assert len(result.predictions) == 0
    assert durable.rows_seen == 5
    assert durable.learn(X[:0], Y[:0], key="a").repeated


def test_methods_of_learners(durable: Durable) -> None:
    assert durable.partial_fit(X[:20], Y[:20]) is durable
    predictions = durable.test_then_train(X[20:30], Y[20:30])
    durable.learn_one(X[30], Y[30], 2.0)
    durable.learn_one(X[31].tolist(), Y[31])
    calm = op.RLSRegressor().partial_fit(X[:20], Y[:20])
    np.testing.assert_allclose(predictions, calm.test_then_train(X[20:30], Y[20:30]), rtol=1e-9)
    calm.learn_one(X[30], Y[30], 2.0).learn_one(X[31], Y[31])
    np.testing.assert_allclose(durable.predict(X[:3]), calm.predict(X[:3]), rtol=1e-9)
    assert durable.predict_one(X[0]) == durable.predict(X[:1])[0]
    with op.durable(durable.path.parent / "two.db", op.SGDClassifier("logistic")) as other:
        other.learn(X, X[:, 0] > 0)
        np.testing.assert_allclose(other.predict_proba(X).sum(axis=1), 1.0)


def test_learn_one_accepts_rows_by_name(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(frame[:5], Y[:5])
        durable.learn_one(frame.iloc[5], Y[5])
        durable.learn_one(dict(zip("dcba", X[6][::-1], strict=True)), Y[6])
        calm = op.RLSRegressor().partial_fit(frame[:7], Y[:7])
        np.testing.assert_allclose(durable.predict(frame), calm.predict(frame), rtol=1e-9)


@pytest.mark.parametrize("rows", [X[:3], pd.DataFrame(X[:3]), X[:3].tolist()])
def test_unfitted_learner_predicts_its_initial_value(rows: Any, durable: Durable) -> None:
    assert durable.predict(rows).tolist() == [0.0, 0.0, 0.0]
    assert durable.predict_one(X[0]) == 0.0
