"""Rows that are asked now and answered later: each is learned once, with its own answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import bits, crashed

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
from onepass.service.requests import Block

X = np.random.default_rng(0).normal(size=(40, 4))
Y = X @ np.arange(4.0)


@pytest.fixture
def durable(tmp_path: Path) -> Any:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as found:
        found.learn(X[:20], Y[:20])
        yield found


def test_what_is_asked_is_said_and_waits(durable: Durable) -> None:
    said, ids = durable.ask(X[20:23])
    assert said.tobytes() == durable.predict(X[20:23]).tobytes()
    assert len(set(ids)) == 3
    assert (durable.waiting, durable.version, durable.rows_seen) == (3, 1, 20)


def test_answers_are_learned_as_if_the_rows_came_then(durable: Durable, tmp_path: Path) -> None:
    ids = durable.ask(X[20:30])[1]
    durable.learn(X[30:], Y[30:])
    receipt = durable.answer(ids[::-1], Y[20:30][::-1])
    assert (receipt.version, receipt.again) == (3, False)
    with op.durable(tmp_path / "calm.db", op.RLSRegressor()) as calm:
        calm.learn(X[:20], Y[:20])
        calm.learn(X[30:], Y[30:])
        said = calm.learn(X[20:30][::-1], Y[20:30][::-1]).said
        assert bits(calm) == bits(durable)
    assert receipt.said.tobytes() == said.tobytes()
    assert durable.waiting == 0


def test_snapshots_are_taken_where_only_labels_come(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=10) as durable:
        _, ids = durable.ask(X)
        for each, y in zip(ids, Y, strict=True):
            durable.answer([each], [y])
        durable.settle()
        assert len(durable.versions) >= 3


def test_ids_outlive_a_crash(durable: Durable, tmp_path: Path) -> None:
    ids = durable.ask(X[20:23])[1]
    durable.answer(ids[:1], Y[20:21])
    path = crashed(durable, tmp_path / "copy")
    with op.durable(path) as again:
        assert again.waiting == 2
        assert again.answer(ids[:1], Y[20:21]).again
        assert not again.answer(ids[1:], Y[21:23]).again
        assert (again.waiting, again.rows_seen) == (0, 23)
        durable.answer(ids[1:], Y[21:23])
        assert bits(again) == bits(durable)


def test_each_is_learned_once(durable: Durable) -> None:
    ids = durable.ask(X[20:23])[1]
    first = durable.answer(ids, Y[20:23])
    again = durable.answer(ids, Y[20:23])
    part = durable.answer([ids[2], ids[0]], Y[[22, 20]])
    assert (again.again, again.version) == (True, first.version)
    assert snapshot(again.said) == snapshot(first.said)
    assert snapshot(part.said) == snapshot(first.said[[2, 0]])
    assert durable.rows_seen == 23


def test_some_new_and_some_known(durable: Durable) -> None:
    ids = durable.ask(X[20:24])[1]
    first = durable.answer(ids[1:3], Y[21:23])
    both = durable.answer([*ids, ids[0]], Y[[20, 21, 22, 23, 20]])
    assert (both.again, both.version, durable.rows_seen) == (False, 3, 24)
    assert both.said[1:3].tobytes() == first.said.tobytes()
    assert both.said[0] == both.said[4]


def test_words_are_the_same_whatever_comes_beside_them(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSClassifier()) as durable:
        durable.learn(X[:2], ["cat", "horse"])
        ids = durable.ask(X[20:23])[1]
        durable.answer(ids[:2], ["cat", "horse"])
        assert durable.answer(ids[:1], ["cat"]).again
        durable.answer(ids[2:], ["cat"])
        assert durable.answer(ids[1:], ["horse", "cat"]).again
        assert durable.rows_seen == 5
        with pytest.raises(IdempotencyConflictError, match="one answer"):
            durable.answer(ids[:1], ["cats"])


def test_another_answer_is_refused(durable: Durable) -> None:
    ids = durable.ask(X[20:22])[1]
    with pytest.raises(IdempotencyConflictError, match="one answer"):
        durable.answer([ids[0], ids[0]], [1.0, 2.0])
    durable.answer(ids[:1], [1.0])
    with pytest.raises(IdempotencyConflictError, match="one answer"):
        durable.answer(ids, [2.0, 1.0])
    assert (durable.rows_seen, durable.waiting) == (21, 1)
    durable.answer(ids, [1.0, 1.0])


def test_of_several_all_are_learned_or_none(durable: Durable) -> None:
    ids = durable.ask(X[20:25])[1]
    before = bits(durable)
    for wrong, given in (
        (ParameterError, ([*ids, "nobody"], Y[20:26])),
        (NotFiniteError, (ids, [1.0, 2.0, np.nan, 4.0, 5.0])),
        (ShapeError, (ids, Y[20:24])),
        (ShapeError, (ids, 1.0)),
        (OnepassError, (ids, [[1.0, 2.0]] * 5)),
        (OnepassError, (ids, ["a"] * 5)),
    ):
        with pytest.raises(wrong):
            durable.answer(*given)  # type: ignore[arg-type]
    assert (durable.waiting, durable.version) == (5, 1)
    assert bits(durable) == before
    durable.answer(ids, Y[20:25])


@pytest.mark.parametrize("name", ["nobody", "", "x" * 300, "a\ud800", "'; --", "é", "\0"])
def test_an_unknown_id(durable: Durable, name: str) -> None:
    with pytest.raises(ParameterError, match="unknown, or its time was over"):
        durable.answer([name], [1.0])


@pytest.mark.parametrize("ids", ["abc", [], (), None, 7, [7], [None], [b"a"], [["a"]], [{}]])
def test_no_list_of_ids(durable: Durable, ids: Any) -> None:
    with pytest.raises(ParameterError, match="a list of at least one id"):
        durable.answer(ids, [1.0])


def test_the_time_is_over(durable: Durable) -> None:
    ids = durable.ask(X[20:22], seconds=100.0)[1]
    late = durable.ask(X[22:23], seconds=1000.0)[1]
    durable._writer._began += 200.0
    assert durable.waiting == 1
    with pytest.raises(ParameterError, match="its time was over"):
        durable.answer(ids, Y[20:22])
    durable.settle()  # what is over is let go now and then
    durable._writer._sweep_at = 0.0
    durable.settle()
    assert durable.waiting == 1
    durable.answer(late, Y[22:23])
    assert durable.rows_seen == 21


@pytest.mark.parametrize("seconds", [-1.0, np.nan, np.inf, "long"])
def test_how_long_they_wait_is_a_number(durable: Durable, seconds: Any) -> None:
    with pytest.raises(ParameterError, match="seconds"):
        durable.ask(X[20:22], seconds=seconds)


@pytest.mark.parametrize("rows", [X[:2, :3], X[0], X[:2] * np.nan, [["a"] * 4]])
def test_rows_that_cannot_be_answered_are_not_kept(durable: Durable, rows: Any) -> None:
    with pytest.raises(OnepassError):
        durable.ask(rows)
    assert durable.waiting == 0


def test_before_anything_was_learned(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        said, ids = durable.ask(X[:3])
        assert said.tolist() == [0.0, 0.0, 0.0]
        durable.answer(ids, Y[:3])
        assert durable.rows_seen == 3


def test_no_rows(durable: Durable) -> None:
    said, ids = durable.ask(X[:0])
    assert (len(said), ids, durable.waiting) == (0, [], 0)


def test_rows_by_name(tmp_path: Path) -> None:
    model = op.Pipeline(op.features.Encode(), op.SGDClassifier())
    rows = [{"km": float(i), "by": "ab"[i % 2]} for i in range(10)]
    with op.durable(tmp_path / "m.db", model) as durable:
        durable.learn(rows[:5], list("xyxyx"))
        said, ids = durable.ask(rows[5:8])
        other = durable.ask([{"km": 1.0}])[1]
        with pytest.raises(ParameterError, match="same columns"):
            durable.answer([*ids, *other], list("xyxy"))
        assert durable.waiting == 4
        receipt = durable.answer(ids, list("yxy"))
        assert set(said) | set(receipt.said) <= {"x", "y"}
        durable.answer(other, ["x"])
        path = crashed(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert again.answer(ids, list("yxy")).said.tolist() == receipt.said.tolist()
            assert bits(again) == bits(durable)


def test_weights_and_times_come_with_the_answers(tmp_path: Path) -> None:
    rule = op.forgetting.Bounded(half_life=50.0)
    with op.durable(tmp_path / "m.db", op.RLSRegressor(forgetting=rule)) as durable:
        durable.learn(X[:20], Y[:20], time=np.arange(20.0))
        ids = durable.ask(X[20:23])[1]
        with pytest.raises(ParameterError, match="`time` must say"):
            durable.answer(ids, Y[20:23])
        with pytest.raises(ParameterError, match="must not decrease"):
            durable.answer(ids, Y[20:23], time=[5.0, 6.0, 7.0])
        durable.answer(ids, Y[20:23], [1.0, 0.5, 2.0], time=[20.0, 21.0, 22.0])
        calm = op.RLSRegressor(forgetting=rule).partial_fit(X[:20], Y[:20], time=np.arange(20.0))
        calm.partial_fit(X[20:23], Y[20:23], [1.0, 0.5, 2.0], time=[20.0, 21.0, 22.0])
        np.testing.assert_allclose(durable.model().coef_, calm.coef_, rtol=1e-9)


def test_keys_of_users_are_others_than_those_of_answers(durable: Durable) -> None:
    ids = durable.ask(X[20:22])[1]
    for key in (ids[0], f"a{ids[0]}", f"asked:{ids[0]}"):
        durable.learn(X[22:23], Y[22:23], key=key)
    assert not durable.answer(ids, Y[20:22]).again
    for key in (ids[1], f"a{ids[1]}"):
        assert not durable.learn(X[22:23], Y[22:23], key=key).again


def test_answers_are_known_as_long_as_keys(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), key_seconds=100.0) as durable:
        ids = durable.ask(X[:2])[1]
        durable.answer(ids, Y[:2])
        durable._writer._began += 200.0
        durable._writer._sweep_at = 0.0
        durable.settle()
        with pytest.raises(ParameterError, match="unknown"):
            durable.answer(ids, Y[:2])
        assert durable.rows_seen == 2


def test_a_thousand_wait(durable: Durable) -> None:
    ids = durable.ask(np.tile(X, (25, 1)))[1]
    assert durable.waiting == 1000
    durable.answer(ids[:999], np.tile(Y, 25)[:999])
    assert (durable.waiting, durable.rows_seen, durable.version) == (1, 1019, 2)


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
def test_an_answer_is_the_same_beside_others(
    durable: Durable, alone: dict[str, Any], beside: dict[str, Any]
) -> None:
    """Who repeats an answer may repeat it in another array, which has another dtype."""
    ids = durable.ask(X[20:22])[1]
    first = durable.answer(ids[:1], **alone)
    both = durable.answer(ids, **beside)
    assert both.said[0] == first.said[0]
    assert (durable.waiting, durable.rows_seen) == (0, 22)
    with pytest.raises(IdempotencyConflictError):
        durable.answer(ids[:1], [3.25])


def test_large_whole_numbers_are_told_apart(tmp_path: Path) -> None:
    with op.durable(tmp_path / "c.db", op.RLSClassifier()) as durable:
        ids = durable.ask(X[:1])[1]
        durable.answer(ids, [2**53])
        assert durable.answer(ids, [2**53]).again
        with pytest.raises(IdempotencyConflictError):
            durable.answer(ids, [2**53 + 1])


def test_text_of_a_former_digest_is_known(tmp_path: Path) -> None:
    """Each label was as wide as itself, whatever came beside it."""
    with op.durable(tmp_path / "c.db", op.RLSClassifier()) as durable:
        ids = durable.ask(X[:2])[1]
        durable.answer(ids, ["cat", "horse"])
        for name, value in zip(ids, ["cat", "horse"], strict=True):
            known = next(durable._journal.answers([f"a{name}"]), None)
            assert known is not None
            block = Block(np.empty((1, 0)), np.array([value]))
            old = known._replace(digest=block.former_digest())
            durable._journal._db.execute(
                "UPDATE keys SET digest = ?, seal = ? WHERE key = ?",
                (old.digest, old.seal(), old.key),
            )
        assert durable.answer(ids, ["cat", "horse"]).again
        with pytest.raises(IdempotencyConflictError):
            durable.answer(ids, ["cat", "mouse"])


def test_answers_of_a_former_digest_are_known(durable: Durable) -> None:
    """As they were written before numbers were told apart by their value."""
    ids = durable.ask(X[20:22])[1]
    y = np.array([3, 4])
    durable.answer(ids, y)
    for name, value in zip(ids, y, strict=True):
        block = Block(np.empty((1, 0)), np.array([value]))
        known = next(durable._journal.answers([f"a{name}"]), None)
        assert known is not None
        old = known._replace(digest=block.former_digest())
        durable._journal._db.execute(
            "UPDATE keys SET digest = ?, seal = ? WHERE key = ?", (old.digest, old.seal(), old.key)
        )
    assert durable.answer(ids, y).again
    with pytest.raises(IdempotencyConflictError):
        durable.answer(ids, [3, 5])


def test_what_came_together_is_let_go_together(durable: Durable) -> None:
    """Else one who asks again may find some of it unknown."""
    durable.answer(durable.ask(X[20:])[1], Y[20:])
    times = durable._journal._rows("SELECT DISTINCT at FROM keys")
    assert len(times) == 1
