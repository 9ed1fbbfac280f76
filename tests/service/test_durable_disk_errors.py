"""A full, failing or read-only disk: no acknowledged row is lost."""

import sqlite3
import sys
import tempfile
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

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
from forked_python import run_forked

import onepass as op
from onepass.errors import CheckpointWarning, StoreError
from onepass.service import Durable, writer
from raising import raises

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such limits there")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 6))
Y = X @ np.arange(6.0) + RNG.normal(size=400)


def until_full(durable: Durable, i: int = 0) -> int:
    """Learn rows until the disk is full; the index of the first row that is not learned."""
    while True:
        try:
            durable.learn(X[i : i + 5], Y[i : i + 5], key=str(i))
        except StoreError as error:
            return i if error.full else -1
        i += 5


def test_rows_that_do_not_fit_on_a_full_disk_are_undone(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with (
        op.durable(path, op.RLSRegressor()) as durable,
        op.durable(tmp_path / "calm.db", op.RLSRegressor()) as calm,
    ):
        fill_disk(durable)
        i = until_full(durable)
        assert i > 0
        version, predictions = durable.version, durable.predict(X[:3])
        assert "full" in str(durable.error)
        for _ in range(3):
            with raises(StoreError, full=True):
                durable.learn(X[i : i + 5], Y[i : i + 5], key=str(i))
            with raises(StoreError, full=True):
                durable.predict_pending(X[:200])
        assert durable.version == version
        assert durable.predict(X[:3]).tobytes() == predictions.tobytes()
        found = copy_after_crash(durable, tmp_path / "copy")
        free_disk(durable)
        for k in range(0, 100, 5):
            result = durable.learn(X[k : k + 5], Y[k : k + 5], key=str(k))
            assert result.repeated == (k < i)
        assert durable.error is None
        for k in range(0, 100, 5):
            calm.learn(X[k : k + 5], Y[k : k + 5])
        np.testing.assert_allclose(durable.model().coef_, calm.model().coef_, rtol=1e-9)
        last = copy_after_crash(durable, tmp_path / "last")
        with op.durable(found) as again:
            assert again.version == version
            assert again.predict(X[:3]).tobytes() == predictions.tobytes()
        with op.durable(last) as again:
            assert state_bits(again) == state_bits(durable)


def test_rows_are_not_learned_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undoing a block requires a restore, so free space is checked first."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        fill_disk(durable)
        i = until_full(durable)
        counted: list[Any] = []
        monkeypatch.setattr(writer, "learn_block", lambda *_: counted.append(1))
        for _ in range(5):
            with raises(StoreError, full=True):
                durable.learn(X[i : i + 5], Y[i : i + 5])
        assert not counted
        monkeypatch.undo()
        free_disk(durable)
        durable.learn(X[i : i + 5], Y[i : i + 5])


def test_snapshots_hold_only_committed_rows(tmp_path: Path) -> None:
    """The rows that trigger the snapshot do not fit."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=300) as durable:
        durable.learn(X[:10], Y[:10])
        fill_disk(durable)
        with pytest.raises(StoreError):
            durable.learn(X[10:], Y[10:])
        free_disk(durable)
        path = copy_after_crash(durable, tmp_path / "copy")
    with op.durable(path) as again, op.durable(tmp_path / "m.db") as closed:
        assert (again.rows_seen, closed.rows_seen) == (10, 10)
        assert state_bits(again) == state_bits(closed)


def test_learning_continues_if_a_snapshot_does_not_fit(tmp_path: Path) -> None:
    wide = np.random.default_rng(1).normal(size=(60, 50))
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=50) as durable:
        for i in range(30):
            durable.learn_one(wide[i], 1.0)
        durable._journal._db.execute("PRAGMA incremental_vacuum").fetchall()
        pages = durable._journal._db.execute("PRAGMA page_count").fetchone()[0]
        durable._journal._db.execute(f"PRAGMA max_page_count = {pages + 4}")
        with raises(StoreError, full=True):
            durable.snapshot()
        for i in range(30, 49):
            durable.learn_one(wide[i], 1.0)
        with pytest.warns(CheckpointWarning, match="All acknowledged rows are in the log"):
            learn_and_maintain(durable, wide[49:52], np.ones(3))
        assert durable.rows_seen == 52
        assert "full" in str(durable.error)
        path = copy_after_crash(durable, tmp_path / "copy")
        free_disk(durable)
        durable.snapshot()
        assert durable.error is None
        with op.durable(path) as again:
            assert again.rows_seen == 52


LIMITED = """
import resource, sys
import numpy as np
import onepass as op
from onepass.errors import StoreError

path, most = sys.argv[1], int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(4000, 6))
durable = op.durable(path, op.RLSRegressor())
resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
try:
    for i in range(4000):
        durable.learn_one(X[i], X[i].sum(), key=str(i))
        print(i, flush=True)
except StoreError as wrong:
    first = str(wrong)
    assert not wrong.full, first
    version = durable.version
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for verb in (
        lambda: durable.learn_one(X[0], 0.0),
        lambda: durable.predict_pending(X[:1]),
        durable.snapshot,
        durable.model,
        lambda: durable.rollback(to=1),
    ):
        try:
            verb()
        except StoreError as again:
            assert str(again) == first, again
        else:
            raise AssertionError(verb)
    assert (durable.error, durable.version) == (first, version)
    assert len(durable.predict(X[:2])) == 2
    durable.close()
    print("broken", version)
"""


def child(program: str, *arguments: str) -> list[str]:
    """Lines of the output of a program."""
    found = run_forked(program, *arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout.split("\n")


def test_failed_write_disables_the_learner_until_it_is_reopened(tmp_path: Path) -> None:
    """A failed write is not a full disk: the content of the file is unknown."""
    lines = child(LIMITED, str(tmp_path / "m.db"), "300000")
    assert lines[-2].startswith("broken")
    acknowledged = int(lines[-3]) + 1
    assert acknowledged > 8
    with op.durable(tmp_path / "m.db") as durable:
        assert acknowledged <= durable.rows_seen <= acknowledged + 1
        result = durable.learn_one(X[0] * 0 + 1, 6.0, key="new")
        assert not result.repeated


class Failing:
    """A connection whose commits raise, before or after they are executed."""

    def __init__(self, db: sqlite3.Connection, *, done: bool, name: str) -> None:
        self._db, self._done, self._name = db, done, name

    def execute(self, sql: str, *values: Any) -> Any:
        if sql != "COMMIT":
            return self._db.execute(sql, *values)
        if self._done:
            self._db.execute(sql, *values)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = self._name
        raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.mark.parametrize("key", ["a", None])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("name", ["SQLITE_IOERR_FSYNC", "SQLITE_CORRUPT", "SQLITE_READONLY"])
def test_failed_commit_is_not_retried(
    tmp_path: Path, name: str, key: str | None, *, done: bool
) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    learn_and_maintain(durable, X[:20], Y[:20])
    db = durable._journal._db
    durable._journal._db = Failing(db, done=done, name=name)  # type: ignore[assignment]
    with pytest.raises(StoreError):
        durable.learn(X[20:30], Y[20:30], key=key)
    durable._journal._db = db
    for _ in range(2):
        with pytest.raises(StoreError):
            durable.learn(X[30:40], Y[30:40])
    assert (durable.version, durable.rows_seen) == (1, 20)
    durable.close()
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == (30 if done else 20)
        if key is not None:
            assert again.learn(X[20:30], Y[20:30], key=key).repeated == done
            assert again.rows_seen == 30


def test_rows_and_their_key_are_one_transaction(tmp_path: Path) -> None:
    predictions: list[str] = []
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        learn_and_maintain(durable, X[:20], Y[:20])
        durable._journal._db.set_trace_callback(
            lambda sql: predictions.append(" ".join(sql.split()[:3]))
        )
        learn_and_maintain(durable, X[20:30], Y[20:30])
        assert predictions == ["BEGIN IMMEDIATE", "INSERT INTO log", "COMMIT"]
        predictions.clear()
        durable.learn(X[30:40], Y[30:40], key="a")
        assert [each for each in predictions if not each.startswith("SELECT")] == [
            "BEGIN IMMEDIATE", "INSERT INTO log", "INSERT INTO keys", "COMMIT",
        ]  # fmt: skip
        durable._journal._db.set_trace_callback(None)


ELSEWHERE = """
import os, sys
import onepass as op
from onepass.errors import StoreError

import onepass.service, onepass.learners
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for path in sys.argv[1:]:
    try:
        op.durable(path, op.RLSRegressor())
    except StoreError as wrong:
        print(type(wrong).__name__, wrong)
    else:
        print("opened", path)
"""


def test_files_without_write_permission_are_refused_and_unchanged() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        paths = [Path(name, what, "m.db") for what in ("file", "lock", "folder", "new")]
        for path in paths:
            path.parent.mkdir()
            if path.parent.name != "new":
                op.durable(path, op.RLSRegressor()).close()
                path.chmod(0o666)
                Path(f"{path}.lock").chmod(0o666)
            path.parent.chmod(0o777)
        paths[0].chmod(0o444)
        Path(f"{paths[1]}.lock").chmod(0o444)
        for path in paths[2:]:
            path.parent.chmod(0o555)
        before = [path.read_bytes() for path in paths[:3]]
        lines = child(ELSEWHERE, *map(str, paths))
        for path in paths:
            path.parent.chmod(0o755)
        assert len(lines) == 5
        assert all(line.startswith("StoreError op.durable: ") for line in lines[:4]), lines
        assert [path.read_bytes() for path in paths[:3]] == before
        assert not paths[3].exists()


def test_file_and_wal_are_bounded_by_the_retained_snapshots(tmp_path: Path) -> None:
    """The state of 500 features takes 2 MB."""
    d, keep = 500, 2
    wide = np.random.default_rng(1).normal(size=(10, d))
    path = tmp_path / "m.db"
    sizes, logs = [], []
    with op.durable(path, op.RLSRegressor(), snapshot_rows=1, snapshots=keep) as durable:
        for row in wide:
            durable.learn_one(row, 1.0)
            sizes.append(path.stat().st_size)
            logs.append(Path(f"{path}-wal").stat().st_size)
        one = durable.versions[-1].nbytes
        assert len(durable.versions) == keep
    assert one > 2e6
    assert max(sizes) < (keep + 2) * one
    assert max(logs) < 3 * one
    assert len(set(sizes[-4:])) == 1
    assert not Path(f"{path}-wal").exists()


def test_large_file_shrinks_after_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with op.durable(path, op.RLSRegressor(), snapshots=1) as durable:
        durable.learn(RNG.normal(size=(150_000, 6)), np.ones(150_000))
        durable.commit_pending()
        large = path.stat().st_size
        durable.learn_one(X[0], 1.0)
        durable.snapshot()
    assert large > 8e6
    assert path.stat().st_size < 6e6


def test_too_large_request_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onepass.errors import ShapeError
    from onepass.service import requests

    monkeypatch.setattr(requests, "_MAX_ENCODED", 10_000)
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        with raises(ShapeError, argument="X", remedy="fewer"):
            durable.learn(X, Y)
        durable.learn(X[:10], Y[:10])


@pytest.mark.parametrize("text", ["a" * 60_000, "\0é🚗" * 20_000], ids=["ascii", "unicode"])
def test_too_large_rows_are_refused_without_encoding_a_shared_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from onepass.errors import ShapeError
    from onepass.service import requests
    from onepass.validation.table import Table

    limit = 1 << 25
    monkeypatch.setattr(requests, "_MAX_ENCODED", limit)
    n = 2 * limit // len(text)
    rows = Table({"a": np.full(n, text, dtype=object)}, n)
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        tracemalloc.start()
        try:
            with pytest.raises(ShapeError, match=r"at most 33,554,432 bytes, got [0-9,]+\. Pass"):
                durable.learn(rows, np.zeros(n))
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_close_on_a_full_disk_keeps_all_rows(tmp_path: Path) -> None:
    durable = op.durable(tmp_path / "m.db", op.RLSRegressor())
    durable.learn(X[:10], Y[:10])
    durable._journal._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 500)
    with pytest.warns(CheckpointWarning, match="All acknowledged rows are in the log"):
        durable.close()
    with op.durable(tmp_path / "m.db") as again:
        assert again.rows_seen == 10


def test_learning_continues_if_a_learner_is_too_large_for_sqlite(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X, Y)
        db = durable._journal._db
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        with raises(StoreError, remedy="Nothing was written: a"):
            durable.snapshot()
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000_000)
        durable.learn(X, Y)
        durable.snapshot()


def test_warnings_as_errors_do_not_stop_the_writer(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor(), snapshot_rows=10) as durable:
        durable.learn(X[:9], Y[:9])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            durable._journal._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 500)
            durable.learn_one(X[9], Y[9], key="a")
            wait_for_writer(durable)
        assert "too big" in str(durable.error)
        durable._journal._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000_000)
        assert durable.learn_one(X[9], Y[9], key="a").repeated


def test_model_returns_a_copy_while_the_disk_is_full(tmp_path: Path) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        was = state_bits(durable)
        fill_disk(durable)
        with raises(StoreError, full=True):
            durable.learn(np.tile(X, (25, 1)), np.tile(Y, 25))
        assert state_bits(durable) == was
        assert not durable.ready
        free_disk(durable)
        durable.learn(X[5:9], Y[5:9])
        assert durable.ready


def test_memory_error_while_learning_leaves_the_state_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are refused until the learner can be restored."""
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        durable.learn(X[5:9], Y[5:9])
        was = state_bits(durable)
        fill_disk(durable)
        with raises(StoreError, full=True):
            durable.learn(np.tile(X, (25, 1)), np.tile(Y, 25))
        free_disk(durable)

        def small(*_: Any) -> Any:
            raise MemoryError("for once")

        monkeypatch.setattr(writer, "learn_block", small)
        given = durable.request(X[:1], Y[:1])
        for verb in (lambda: durable.learn(X[:1], Y[:1]), durable.snapshot, durable.model):
            with pytest.raises(MemoryError, match="for once"):
                verb()
        durable.commit_pending()
        with pytest.raises(MemoryError, match="for once"):
            given.result()
        assert durable.ready
        assert durable.error is None
        monkeypatch.undo()
        assert state_bits(durable) == was
        durable.learn(X[9:10], Y[9:10])
        path = copy_after_crash(durable, tmp_path / "copy")
        with op.durable(path) as again:
            assert state_bits(again) == state_bits(durable)


def test_memory_error_on_opening_is_raised_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with op.durable(tmp_path / "m.db", op.RLSRegressor()) as durable:
        durable.learn(X[:5], Y[:5])
        path = copy_after_crash(durable, tmp_path / "copy")

    def small(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(writer, "learn_block", small)
    with pytest.raises(MemoryError):
        op.durable(path)
    monkeypatch.undo()
    with op.durable(path) as again:
        assert again.rows_seen == 5
