"""Rollback to retained versions bit for bit, and retention of snapshots and blocks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from durable_files import copy_after_crash, execute_sql, query, state_bits, wait_for_writer
from hypothesis import given, settings
from hypothesis import strategies as st

import onepass as op
from onepass import models
from onepass.errors import ParameterError, StoreError
from onepass.service import journal, writer
from raising import raises

X = np.random.default_rng(0).normal(size=(200, 4))
Y = X @ np.arange(4.0) + np.random.default_rng(1).normal(size=200)


def pipeline() -> Any:
    return models.pipelines(["rls"], "regression")["rls"]


def learn(durable: Any, n: int) -> dict[int, Any]:
    """Learn single rows; the state after each, by version."""
    found = {durable.version: state_bits(durable)}
    for i in range(n):
        durable.learn_one(X[i], Y[i], key=f"{durable.version}-{i}")
        found[durable.version] = state_bits(durable)
    return found


def test_rollback_restores_every_version(tmp_path: Path) -> None:
    with op.durable(
        tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=7, snapshots=100
    ) as durable:
        was = learn(durable, 30)
        for version in (30, 7, 0, 29, 15, 14, 1):
            durable.rollback(to=version)
            was[durable.version] = was[version]
            assert state_bits(durable) == was[version]
            assert durable.predict(X[:3]).shape == (3,)
        for version in reversed(range(31, durable.version)):  # and back from going back
            durable.rollback(to=version)
            assert state_bits(durable) == was[version]


def test_learning_after_a_rollback_survives_a_crash(tmp_path: Path) -> None:
    with (
        op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable,
        op.durable(tmp_path / "calm.db", op.RLSRegressor()) as calm,
    ):
        learn(durable, 20)
        durable.rollback(to=10)
        learn(durable, 5)
        for i in [*range(10), *range(5)]:
            calm.learn_one(X[i], Y[i])
        np.testing.assert_allclose(durable.model().coef_, calm.model().coef_, rtol=1e-9)
        assert (durable.version, durable.rows_seen) == (26, 25)
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)
            assert (again.version, again.rows_seen) == (26, 25)
            for one in (again, durable):
                one.rollback(to=20)
            assert state_bits(again) == state_bits(durable)


def test_rollback_keeps_keys_positions_and_pending_rows(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        ids = durable.predict_pending(X[:3])[1]
        durable.learn(X[:5], Y[:5], key="a")
        durable.learn(X[5:9], Y[5:9], source="s", position="9")
        durable.learn_labels(ids[:1], Y[:1])
        durable.rollback(to=0)
        with op.durable(copy_after_crash(durable, tmp_path / "copy")) as again:
            for one in (durable, again):
                assert one.learn(X[:5], Y[:5], key="a").repeated
                assert one.learn_labels(ids[:1], Y[:1]).repeated
                assert one.positions == {"s": "9"}
                assert (one.labels_pending, one.rows_seen) == (2, 10)
                assert one.model().__sklearn_is_fitted__() is False


def test_retention_of_snapshots_and_blocks(tmp_path: Path) -> None:
    """The last snapshots and the blocks since the oldest are retained."""
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor(), snapshot_rows=5, snapshots=3) as durable:
        was = learn(durable, 33)
        assert [each.version for each in durable.versions] == [20, 25, 30]
        for version in (20, 23, 33):
            durable.rollback(to=version)
            assert state_bits(durable) == was[version]
            oldest = durable.versions[0].version
            if version < oldest:
                break
        with pytest.raises(ParameterError, match=r"from \d+ to the current one, \d+, got 7"):
            durable.rollback(to=7)
        oldest = durable.versions[0].version
    assert query(path, "SELECT min(sequence) FROM log") == [(oldest + 1,)]
    assert query(path, "SELECT count(*) FROM keys") == [(33,)]


def first_block(durable: Any) -> int:
    wait_for_writer(durable)
    return durable._journal._rows("SELECT min(sequence) FROM log")[0][0]


def test_old_blocks_are_deleted_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining blocks are deleted after a crash too."""
    monkeypatch.setattr(writer, "_TRIM_BLOCKS", 60)
    with op.durable(
        tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=1000, snapshots=1
    ) as durable:
        for i in range(1000):
            durable.learn_one(X[i % 200], Y[i % 200])
        wait_for_writer(durable)
        assert [each.version for each in durable.versions] == [1000]
        found = []
        for i in range(5):
            found.append(first_block(durable))
            durable.learn_one(X[i], Y[i])
        steps = np.diff(found)
        assert found[0] < 100
        assert steps.min() > 1
        assert steps.max() < 100
        was, version = state_bits(durable), durable.version
        with op.durable(copy_after_crash(durable, tmp_path / "copy")) as again:
            assert state_bits(again) == was
            before = first_block(again)
            again.learn_one(X[0], Y[0])
            assert first_block(again) > before
            again.rollback(to=version)
            assert state_bits(again) == was
            while again._writer._trims:
                again.learn_one(X[0], Y[0])
                wait_for_writer(again)
            assert first_block(again) == again.versions[0].version + 1 == 1001
    assert query(tmp_path / "m.db", "SELECT count(*) FROM log") == [(0,)]


def test_free_pages_are_returned_to_the_file_system(tmp_path: Path) -> None:
    one = op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=1_000_000, snapshots=1)
    with one as durable:
        noise = np.random.default_rng(0).normal(size=(20_000, 10))
        for _ in range(8):
            durable.learn(noise, noise[:, 0])
        pages = durable._journal._rows("PRAGMA page_count")[0][0]
        durable.snapshot()
        found = []
        for _ in range(20):
            durable.learn_one(noise[0], 1.0)
            wait_for_writer(durable)
            found.append(durable._journal._rows("PRAGMA page_count")[0][0])
    assert np.diff([pages, *found]).min() > -pages / 3  # in several steps, so that rows do not wait
    assert found[-1] < pages / 2
    assert (tmp_path / "m.db").stat().st_size < 4096 * pages / 2


@pytest.mark.parametrize("to", [-1, 6, 10**30, 1.0, True, "1", None])
def test_invalid_versions_are_refused(to: Any, tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        learn(durable, 5)
        before = state_bits(durable)
        with raises(ParameterError, argument="to"):
            durable.rollback(to=to)
        assert state_bits(durable) == before


def test_failed_rollback_on_a_full_disk_leaves_state_unchanged(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        was = learn(durable, 5)
        db = durable._journal._db
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        reached = []
        with raises(StoreError, full=True):
            for k in range(1000):
                durable.rollback(to=3 + k % 2)
                reached.append(3 + k % 2)
        assert state_bits(durable) == was[reached[-1] if reached else 5]
        db.execute("PRAGMA max_page_count = 100000")
        durable.rollback(to=5)
        assert state_bits(durable) == was[5]


def test_descriptions_of_versions(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=4) as durable:
        learn(durable, 5)
        assert durable.snapshot() == 5
        assert durable.snapshot() == 5  # there is one of this version
        durable.rollback(to=2)
        durable.learn(X, Y)
    with op.durable(tmp_path / "m.db", snapshot_seconds=0.0) as durable:
        durable.learn(X, Y)
        wait_for_writer(durable)
        found = durable.versions
    assert [each.why for each in found] == [
        "beginning", "rows", "request", "rollback to 2", "rows", "time",
    ]  # fmt: skip
    assert [each.version for each in found] == [0, 4, 5, 6, 7, 8]
    assert all(each.nbytes > 300 for each in found)
    assert str(found[1]).startswith("version 4: 4 rows, 20")
    assert str(found[1]).endswith(", rows")


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from(["learn", "back", "snap", "crash"]), st.integers(0, 30))),
    st.integers(1, 4),
)
def test_random_rollbacks_and_crashes_restore_each_version(
    steps: list[tuple[str, int]], keep: int
) -> None:
    """Each retained version equals the state at its time."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        durable = op.durable(folder / "m.db", op.RLSRegressor(), snapshot_rows=6, snapshots=keep)
        was = learn(durable, 4)
        for k, (step, n) in enumerate(steps):
            if step == "learn":
                was |= learn(durable, n % 5)
            elif step == "snap":
                durable.snapshot()
            elif step == "back":
                oldest = durable.versions[0].version
                to = oldest + n % (durable.version - oldest + 1)
                durable.rollback(to=to)
                was[durable.version] = was[to]
            else:
                path = copy_after_crash(durable, folder / str(k))
                durable.close()
                durable = op.durable(path, snapshot_rows=6, snapshots=keep)
            assert state_bits(durable) == was[durable.version]
        durable.close()


def test_old_blocks_are_deleted_faster_than_new_ones_arrive(tmp_path: Path) -> None:
    """Rows of two layouts in turn: each is a block of its own."""
    kinds = ([{"a": 1.0}], [{"a": 1.0, "b": 2.0}])
    with op.durable(tmp_path / "m.db", pipeline(), snapshot_rows=10**9, snapshots=1) as durable:
        for _ in range(4):
            for i in range(300):
                durable.request(kinds[i % 2], [1.0])
            durable.commit_pending()
        durable.snapshot()
        for _ in range(5):
            before = first_block(durable), durable.version
            for i in range(300):
                durable.request(kinds[i % 2], [1.0])
            durable.commit_pending()
            if first_block(durable) > durable.versions[0].version:
                return
            came, went = durable.version - before[1], first_block(durable) - before[0]
            assert went > came > 64
        pytest.fail("the old blocks are still there")


def test_long_blocks_are_deleted_in_small_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MAX_DELETED_BYTES", 20_000)
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshots=1) as durable:
        for _ in range(20):
            durable.learn(X, Y)
        durable.snapshot()
        before = first_block(durable)
        durable.commit_pending()
        assert 1 <= first_block(durable) - before <= 4


def test_file_without_auto_vacuum_can_be_trimmed_and_closed(tmp_path: Path) -> None:
    """``auto_vacuum`` was disabled by another program."""
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor(), snapshot_rows=10**9, snapshots=1) as durable:
        noise = np.random.default_rng(0).normal(size=(20_000, 10))
        for _ in range(8):
            durable.learn(noise, noise[:, 0])
        copy_after_crash(durable, tmp_path / "copy")
    path = tmp_path / "copy" / "m.db"
    execute_sql(path, "PRAGMA auto_vacuum = 0", "VACUUM")
    with op.durable(path, snapshots=1) as durable:
        durable.snapshot()
        for _ in range(20):
            durable.learn_one(noise[0], 1.0)
        wait_for_writer(durable)
        assert not durable._writer._trims
    assert query(path, "PRAGMA freelist_count")[0][0] > 1024
