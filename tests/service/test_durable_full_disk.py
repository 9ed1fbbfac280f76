"""Maintenance on a full disk, and recovery once there is space."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from durable_files import (
    copy_after_crash,
    fill_disk,
    free_disk,
    learn_and_maintain,
    state_bits,
    wait_for_writer,
)

import onepass as op
from onepass.errors import CheckpointWarning, ParameterError, ShapeError, StoreError
from onepass.service import Durable, examine, writer
from raising import raises

X = np.random.default_rng(0).normal(size=(400, 6))
Y = X @ np.arange(6.0)


def test_learner_is_ready_again_once_the_disk_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rows are sent to a learner that is not ready, so the writer checks for space."""
    monkeypatch.setattr(writer, "_CHECK_INTERVAL", 0.0)
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        fill_disk(durable)
        with raises(StoreError, full=True):
            durable.learn(X[5:], Y[5:])
        was, version = durable.predict(X[:3]), durable.version
        durable.commit_pending()
        assert not durable.ready
        free_disk(durable)
        durable.commit_pending()
        assert durable.ready
        assert durable.error is None
        assert durable.predict(X[:3]).tobytes() == was.tobytes()
        durable.learn_one(X[0], Y[0])
        assert durable.version == version + 1


def test_crash_during_the_check_for_space_leaves_no_record(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.predict_pending(X[:2])
        durable._journal._db.execute(
            "INSERT INTO pending (id, until, seal, body) VALUES ('', 0.0, x'', zeroblob(65536))"
        )
        found = copy_after_crash(durable, tmp_path / "copy")
    description = examine(found)
    assert description["labels_pending"] == 2
    with op.durable(found) as again:
        again.commit_pending()
        assert not list(again._journal.pending_rows(""))


class FullAt:
    """Raise the error of a full disk at one step."""

    def __init__(self, durable: Durable, step: str) -> None:
        self.step, self.times, self.left = step, 0, 1
        durable._journal.reached = self  # type: ignore[method-assign]

    def __call__(self, step: str) -> None:
        if step == self.step:
            self.times += 1
            if self.left:
                self.left -= 1
                raise StoreError("full, says the test", full=True)


def test_failed_pruning_does_not_fail_rollback_or_snapshot(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshots=1) as durable:
        for i in range(5):
            durable.learn(X[i : i + 5], Y[i : i + 5])
        FullAt(durable, "pruned snapshots")
        with pytest.warns(CheckpointWarning, match="says the test"):
            assert durable.rollback(to=3) == 6
        assert durable.error is not None
        was = state_bits(durable)
        FullAt(durable, "pruned snapshots")
        durable.learn_one(X[0], Y[0])
        with pytest.warns(CheckpointWarning, match="says the test"):
            assert durable.snapshot() == 7
        durable.rollback(to=6)
        assert state_bits(durable) == was


def test_failed_trimming_is_retried_after_the_next_snapshot(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshots=1) as durable:
        for i in range(20):
            durable.learn_one(X[i], Y[i])
        full = FullAt(durable, "trimmed log")
        durable.snapshot()
        with pytest.warns(CheckpointWarning, match="says the test"):
            durable.commit_pending()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for i in range(5):
                durable.learn_one(X[i], Y[i])
            assert full.times == 1
            durable.snapshot()
            durable.commit_pending()
        assert full.times > 1
        assert durable._journal._rows("SELECT count(*) FROM log") == [(0,)]


def test_max_features_applies_to_new_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor(), max_features=6) as durable:
        with pytest.raises(ShapeError, match="at most 6 features"):
            durable.learn(np.ones((1, 7)), [1.0])
        durable.learn(X, Y)
        found = copy_after_crash(durable, tmp_path / "copy")
    with op.durable(found, max_features=3) as again:
        assert again.rows_seen == 400
        again.learn(X, Y)
    for error in (0, 2.5, "many"):
        with raises(ParameterError, argument="max_features"):
            op.durable(tmp_path / "other.db", op.RLSRegressor(), max_features=error)  # type: ignore[arg-type]


def test_failed_expiry_does_not_delay_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=100) as durable:

        def fail(**_: float) -> bool:
            times.append(1)
            raise StoreError("says the test")

        times: list[int] = []
        monkeypatch.setattr(durable._journal, "delete_expired", fail)
        for i in range(0, 300, 20):
            durable._writer._began += 61.0
            with pytest.warns(CheckpointWarning, match="says the test"):
                learn_and_maintain(durable, X[i : i + 20], Y[i : i + 20])
            durable.learn_one(X[i], Y[i])
        wait_for_writer(durable)
        assert len(times) == 15  # not at every row
        assert [each.rows_seen for each in durable.versions] == [0, 104, 209, 314]
        assert durable.versions[-1].rows_seen == 314


def test_snapshots_omit_failed_attempts(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=50) as durable:
        durable.learn(X[:60], Y[:60])
        wait_for_writer(durable)
        last = durable.versions[-1]
        assert last.rows_seen == 60
        full = FullAt(durable, "snapshot")
        with pytest.warns(CheckpointWarning, match="says the test"):
            learn_and_maintain(durable, X[60:120], Y[60:120])
        durable.learn(X[120:160], Y[120:160])
        wait_for_writer(durable)
        assert full.times == 1
        assert durable.versions[-1] == last
        durable.learn(X[160:180], Y[160:180])
        wait_for_writer(durable)
        assert durable.versions[-1].rows_seen == 180
        last = durable.versions[-1]
    with op.durable(tmp_path / "m.db") as again:
        assert again.versions[-1] == last
