"""``Durable.commit_position``: positions of a source without learned rows."""

from pathlib import Path
from typing import Any

import pytest
from durable_files import copy_after_crash, execute_sql, state_bits

import onepass as op
from onepass.errors import CorruptStoreError, ParameterError, StoreError
from raising import raises


def test_position_without_rows_is_committed(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as model:
        model.learn([[1.0]], [2.0], source="flow", position="1")
        before = state_bits(model)
        model.commit_position("flow", "2")
        model.commit_position("other", "7")
        assert (model.positions, model.rows_seen) == ({"flow": "2", "other": "7"}, 1)
        assert (model.version, model._writer.published[0], state_bits(model)) == (3, 3, before)
        there = copy_after_crash(model, tmp_path / "there")
        model.learn([[2.0]], [3.0], source="flow", position="3")
    with op.durable(there) as model:
        assert (model.positions, state_bits(model)) == ({"flow": "2", "other": "7"}, before)
        model.learn([[2.0]], [3.0], source="flow", position="3")
        after = state_bits(model)
    with op.durable(tmp_path / "m.db") as model:
        assert state_bits(model) == after
        model.rollback(to=2)
        assert (model.positions["flow"], model.rows_seen) == ("3", 2)
        assert state_bits(model) == before
        model.commit_position("flow", "4")
        there = copy_after_crash(model, tmp_path / "again")
    with op.durable(there) as model:
        assert (model.positions["flow"], state_bits(model)) == ("4", before)


def test_edited_position_is_refused(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as model:
        model.commit_position("flow", "2")
        there = copy_after_crash(model, tmp_path / "there")
    execute_sql(there, "UPDATE log SET note = replace(note, '2', '3')")
    with pytest.raises(CorruptStoreError):
        op.durable(there)


def until_full(model: Any) -> None:
    for i in range(2, 1000):
        model.commit_position("flow" * 100, str(i))


@pytest.mark.parametrize(
    "words", [("", "1"), ("a", ""), ("a" * 513, "1"), ("a", 1), ("\ud800", "1")]
)
def test_invalid_positions_are_refused(words: tuple[Any, Any], tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as model:
        with pytest.raises(ParameterError, match=r"commit_position: .* must be text of 1 to 512"):
            model.commit_position(*words)
        assert (model.version, model.positions) == (0, {})


def test_position_is_unchanged_on_a_full_disk(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as model:
        model.commit_position("flow", "1")
        db = model._journal._db
        most = db.execute("PRAGMA max_page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        with raises(StoreError, full=True):
            until_full(model)
        at = model.positions["flow" * 100]
        assert (model.version, model.positions["flow"]) == (int(at), "1")
        db.execute(f"PRAGMA max_page_count = {most}")
        model.commit_position("flow", "2")
        there = copy_after_crash(model, tmp_path / "there")
    with op.durable(there) as model:
        assert model.positions == {"flow": "2", "flow" * 100: at}
