"""Delayed labels: each pending row is learned once, with its own label."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import copy_after_crash, state_bits

import onepass as op
from cases import snapshot
from onepass.errors import (
    IdempotencyConflictError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
)
from onepass.service import Durable
from raising import raises

X = np.random.default_rng(0).normal(size=(40, 4))
Y = X @ np.arange(4.0)


@pytest.fixture
def durable(tmp_path: Path) -> Any:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as found:
        found.learn(X[:20], Y[:20])
        yield found


def test_pending_rows_are_predicted_and_stored(durable: Durable) -> None:
    predictions, ids = durable.predict_pending(X[20:23])
    assert predictions.tobytes() == durable.predict(X[20:23]).tobytes()
    assert len(set(ids)) == 3
    assert (durable.labels_pending, durable.version, durable.rows_seen) == (3, 1, 20)


def test_labels_are_learned_in_the_order_of_their_arrival(durable: Durable, tmp_path: Path) -> None:
    ids = durable.predict_pending(X[20:30])[1]
    durable.learn(X[30:], Y[30:])
    result = durable.learn_labels(ids[::-1], Y[20:30][::-1])
    assert (result.version, result.repeated) == (3, False)
    with op.durable(tmp_path / "calm.db", op.RLSRegressor()) as calm:
        calm.learn(X[:20], Y[:20])
        calm.learn(X[30:], Y[30:])
        predictions = calm.learn(X[20:30][::-1], Y[20:30][::-1]).predictions
        assert state_bits(calm) == state_bits(durable)
    assert result.predictions.tobytes() == predictions.tobytes()
    assert durable.labels_pending == 0


def test_snapshots_are_taken_where_only_labels_come(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=10) as durable:
        _, ids = durable.predict_pending(X)
        for each, y in zip(ids, Y, strict=True):
            durable.learn_labels([each], [y])
        durable.commit_pending()
        assert len(durable.versions) >= 3


def test_ids_survive_a_crash(durable: Durable, tmp_path: Path) -> None:
    ids = durable.predict_pending(X[20:23])[1]
    durable.learn_labels(ids[:1], Y[20:21])
    path = copy_after_crash(durable, tmp_path / "copy")
    with op.durable(path) as again:
        assert again.labels_pending == 2
        assert again.learn_labels(ids[:1], Y[20:21]).repeated
        assert not again.learn_labels(ids[1:], Y[21:23]).repeated
        assert (again.labels_pending, again.rows_seen) == (0, 23)
        durable.learn_labels(ids[1:], Y[21:23])
        assert state_bits(again) == state_bits(durable)


def test_repeated_labels_are_learned_once(durable: Durable) -> None:
    ids = durable.predict_pending(X[20:23])[1]
    first = durable.learn_labels(ids, Y[20:23])
    again = durable.learn_labels(ids, Y[20:23])
    part = durable.learn_labels([ids[2], ids[0]], Y[[22, 20]])
    assert (again.repeated, again.version) == (True, first.version)
    assert snapshot(again.predictions) == snapshot(first.predictions)
    assert snapshot(part.predictions) == snapshot(first.predictions[[2, 0]])
    assert durable.rows_seen == 23


def test_new_and_duplicate_labels(durable: Durable) -> None:
    ids = durable.predict_pending(X[20:24])[1]
    first = durable.learn_labels(ids[1:3], Y[21:23])
    both = durable.learn_labels([*ids, ids[0]], Y[[20, 21, 22, 23, 20]])
    assert (both.repeated, both.version, durable.rows_seen) == (False, 3, 24)
    assert both.predictions[1:3].tobytes() == first.predictions.tobytes()
    assert both.predictions[0] == both.predictions[4]


def test_repeated_text_labels_are_recognised_in_other_arrays(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSClassifier()) as durable:
        durable.learn(X[:2], ["cat", "horse"])
        ids = durable.predict_pending(X[20:23])[1]
        durable.learn_labels(ids[:2], ["cat", "horse"])
        assert durable.learn_labels(ids[:1], ["cat"]).repeated
        durable.learn_labels(ids[2:], ["cat"])
        assert durable.learn_labels(ids[1:], ["horse", "cat"]).repeated
        assert durable.rows_seen == 5
        with raises(IdempotencyConflictError, remedy="Nothing was learned. Send"):
            durable.learn_labels(ids[:1], ["cats"])


def test_second_label_of_a_row_is_refused(durable: Durable) -> None:
    ids = durable.predict_pending(X[20:22])[1]
    with raises(IdempotencyConflictError, remedy="Nothing was learned. Send"):
        durable.learn_labels([ids[0], ids[0]], [1.0, 2.0])
    durable.learn_labels(ids[:1], [1.0])
    with raises(IdempotencyConflictError, remedy="Nothing was learned. Send"):
        durable.learn_labels(ids, [2.0, 1.0])
    assert (durable.rows_seen, durable.labels_pending) == (21, 1)
    durable.learn_labels(ids, [1.0, 1.0])


def test_labels_of_a_request_are_learned_all_or_none(durable: Durable) -> None:
    ids = durable.predict_pending(X[20:25])[1]
    before = state_bits(durable)
    for error, given in (
        (ParameterError, ([*ids, "nobody"], Y[20:26])),
        (NotFiniteError, (ids, [1.0, 2.0, np.nan, 4.0, 5.0])),
        (ShapeError, (ids, Y[20:24])),
        (ShapeError, (ids, 1.0)),
        (OnepassError, (ids, [[1.0, 2.0]] * 5)),
        (OnepassError, (ids, ["a"] * 5)),
    ):
        with pytest.raises(error):
            durable.learn_labels(*given)  # type: ignore[arg-type]
    assert (durable.labels_pending, durable.version) == (5, 1)
    assert state_bits(durable) == before
    durable.learn_labels(ids, Y[20:25])


@pytest.mark.parametrize("name", ["nobody", "", "x" * 300, "a\ud800", "'; --", "é", "\0"])
def test_unknown_ids_are_refused(durable: Durable, name: str) -> None:
    with pytest.raises(ParameterError, match="unknown or has expired"):
        durable.learn_labels([name], [1.0])


@pytest.mark.parametrize("ids", [[], (), [7], [None], [b"a"], [["a"]], [{}]])
def test_invalid_lists_of_ids_are_refused(durable: Durable, ids: Any) -> None:
    with raises(ParameterError, argument="ids", remedy="Pass a list of"):
        durable.learn_labels(ids, [1.0])


def test_expired_rows_are_refused(durable: Durable) -> None:
    ids = durable.predict_pending(X[20:22], seconds=100.0)[1]
    late = durable.predict_pending(X[22:23], seconds=1000.0)[1]
    durable._writer._began += 200.0
    assert durable.labels_pending == 1
    with raises(ParameterError, argument="ids", remedy="Nothing was learned. Leave out the id"):
        durable.learn_labels(ids, Y[20:22])
    durable.commit_pending()  # what is over is let go now and then
    durable._writer._expire_at = 0.0
    durable.commit_pending()
    assert durable.labels_pending == 1
    durable.learn_labels(late, Y[22:23])
    assert durable.rows_seen == 21


@pytest.mark.parametrize("seconds", [-1.0, np.nan, np.inf, "long"])
def test_invalid_expiry_is_refused(durable: Durable, seconds: Any) -> None:
    with raises(ParameterError, argument="seconds"):
        durable.predict_pending(X[20:22], seconds=seconds)


@pytest.mark.parametrize("rows", [X[:2, :3], X[0], X[:2] * np.nan, [["a"] * 4]])
def test_rows_that_cannot_be_predicted_are_not_stored(durable: Durable, rows: Any) -> None:
    with pytest.raises(OnepassError):
        durable.predict_pending(rows)
    assert durable.labels_pending == 0


def test_rows_can_wait_before_anything_is_learned(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        predictions, ids = durable.predict_pending(X[:3])
        assert predictions.tolist() == [0.0, 0.0, 0.0]
        durable.learn_labels(ids, Y[:3])
        assert durable.rows_seen == 3


def test_no_rows_return_no_ids(durable: Durable) -> None:
    predictions, ids = durable.predict_pending(X[:0])
    assert (len(predictions), ids, durable.labels_pending) == (0, [], 0)


def test_named_rows_wait_for_labels(tmp_path: Path) -> None:
    model = op.Pipeline(op.features.Encode(), op.SGDClassifier())
    rows = [{"km": float(i), "by": "ab"[i % 2]} for i in range(10)]
    with op.durable(tmp_path / "m.db", model) as durable:
        durable.learn(rows[:5], list("xyxyx"))
        predictions, ids = durable.predict_pending(rows[5:8])
        other = durable.predict_pending([{"km": 1.0}])[1]
        with raises(ParameterError, argument="ids", remedy="Nothing was learned. Send"):
            durable.learn_labels([*ids, *other], list("xyxy"))
        assert durable.labels_pending == 4
        result = durable.learn_labels(ids, list("yxy"))
        assert set(predictions) | set(result.predictions) <= {"x", "y"}
        durable.learn_labels(other, ["x"])
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert (
                again.learn_labels(ids, list("yxy")).predictions.tolist()
                == result.predictions.tolist()
            )
            assert state_bits(again) == state_bits(durable)


def test_weights_and_times_come_with_the_labels(tmp_path: Path) -> None:
    rule = op.forgetting.Bounded(half_life=50.0)
    with op.durable(tmp_path / "m.db", op.RLSRegressor(forgetting=rule)) as durable:
        durable.learn(X[:20], Y[:20], time=np.arange(20.0))
        ids = durable.predict_pending(X[20:23])[1]
        with raises(ParameterError, argument="time", remedy="Pass numbers, one for"):
            durable.learn_labels(ids, Y[20:23])
        with raises(ParameterError, argument="time", remedy="Sort the rows by"):
            durable.learn_labels(ids, Y[20:23], time=[5.0, 6.0, 7.0])
        durable.learn_labels(ids, Y[20:23], [1.0, 0.5, 2.0], time=[20.0, 21.0, 22.0])
        calm = op.RLSRegressor(forgetting=rule).partial_fit(X[:20], Y[:20], time=np.arange(20.0))
        calm.partial_fit(X[20:23], Y[20:23], [1.0, 0.5, 2.0], time=[20.0, 21.0, 22.0])
        np.testing.assert_allclose(durable.model().coef_, calm.coef_, rtol=1e-9)


def test_keys_of_requests_and_of_labels_are_distinct(durable: Durable) -> None:
    ids = durable.predict_pending(X[20:22])[1]
    for key in (ids[0], f"a{ids[0]}", f"pending:{ids[0]}"):
        durable.learn(X[22:23], Y[22:23], key=key)
    assert not durable.learn_labels(ids, Y[20:22]).repeated
    for key in (ids[1], f"a{ids[1]}"):
        assert not durable.learn(X[22:23], Y[22:23], key=key).repeated


def test_labels_are_stored_as_long_as_keys(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), key_seconds=100.0) as durable:
        ids = durable.predict_pending(X[:2])[1]
        durable.learn_labels(ids, Y[:2])
        durable._writer._began += 200.0
        durable._writer._expire_at = 0.0
        durable.commit_pending()
        with raises(ParameterError, argument="ids", remedy="Nothing was learned. Leave out the id"):
            durable.learn_labels(ids, Y[:2])
        assert durable.rows_seen == 2


def test_thousand_rows_wait_for_labels(durable: Durable) -> None:
    ids = durable.predict_pending(np.tile(X, (25, 1)))[1]
    assert durable.labels_pending == 1000
    durable.learn_labels(ids[:999], np.tile(Y, 25)[:999])
    assert (durable.labels_pending, durable.rows_seen, durable.version) == (1, 1019, 2)


@pytest.mark.parametrize(
    ("alone", "beside"),
    [
        ({"y": [3]}, {"y": [3, 2.5]}),
        ({"y": [True]}, {"y": [1, 0]}),
        ({"y": np.array([0.5], dtype=np.float32)}, {"y": [0.5, 0.1]}),
        ({"y": [1.5], "sample_weight": [2]}, {"y": [1.5, 1.0], "sample_weight": [2.0, 0.5]}),
        ({"y": [1.5], "sample_weight": 2}, {"y": [1.5, 1.0], "sample_weight": 2.0}),
    ],
    ids=["whole", "truth", "float32", "weights", "one weight"],
)
def test_repeated_label_may_be_in_an_array_of_another_dtype(
    durable: Durable, alone: dict[str, Any], beside: dict[str, Any]
) -> None:
    """A label may be repeated within an array of another dtype."""
    ids = durable.predict_pending(X[20:22])[1]
    first = durable.learn_labels(ids[:1], **alone)
    both = durable.learn_labels(ids, **beside)
    assert both.predictions[0] == first.predictions[0]
    assert (durable.labels_pending, durable.rows_seen) == (0, 22)
    with pytest.raises(IdempotencyConflictError):
        durable.learn_labels(ids[:1], [3.25])


def test_large_whole_numbers_are_distinct(tmp_path: Path) -> None:
    with op.durable(tmp_path / "c.db", op.RLSClassifier()) as durable:
        ids = durable.predict_pending(X[:1])[1]
        durable.learn_labels(ids, [2**53])
        assert durable.learn_labels(ids, [2**53]).repeated
        with pytest.raises(IdempotencyConflictError):
            durable.learn_labels(ids, [2**53 + 1])


def test_rows_of_one_request_expire_together(durable: Durable) -> None:
    """Otherwise a repeated request could find a part of its ids expired."""
    durable.learn_labels(durable.predict_pending(X[20:])[1], Y[20:])
    times = durable._journal._rows("SELECT DISTINCT at FROM keys")
    assert len(times) == 1
